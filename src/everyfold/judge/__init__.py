"""How far a score can be trusted: judgements of any fitted search, model or set of folds."""

from everyfold.judge.differences import (
    Comparison,
    ScoreInterval,
    compare,
    score_interval,
    significantly_worse,
)
from everyfold.judge.findings import report
from everyfold.judge.fitted import TunedThreshold, fold_results, fold_scores, tune_threshold
from everyfold.judge.honest import HonestScore, honest_score
from everyfold.judge.leaks import equal_rows
from everyfold.judge.row_influence import Influence, influence
from everyfold.judge.splitters import (
    BufferedLeaveOneOut,
    LeavePairOut,
    PurgedTimeSeriesSplit,
    RebalancedLeaveOneOut,
)
from everyfold.judge.verdicts import Verdict, VerdictLine, verdict

__all__ = [
    "BufferedLeaveOneOut",
    "Comparison",
    "HonestScore",
    "Influence",
    "LeavePairOut",
    "PurgedTimeSeriesSplit",
    "RebalancedLeaveOneOut",
    "ScoreInterval",
    "TunedThreshold",
    "Verdict",
    "VerdictLine",
    "compare",
    "equal_rows",
    "fold_results",
    "fold_scores",
    "honest_score",
    "influence",
    "report",
    "score_interval",
    "significantly_worse",
    "tune_threshold",
    "verdict",
]

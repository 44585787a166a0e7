"""What a search of the command line is to do, all of it checked, and what came out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import get_scorer_names
from sklearn.model_selection import KFold, LeaveOneOut, StratifiedKFold

from everyfold.cli.data import Data
from everyfold.cli.grids import Grid, grow, read_grid
from everyfold.cli.manners import BadInput, choose, naming
from everyfold.cli.models import Choice, check_names, decide_task
from everyfold.cli.options import ModelOptions, SearchOptions
from everyfold.cli.readers import read_file
from everyfold.cli.watch import WatchedSearch, Watcher
from everyfold.operators.base import Rows
from everyfold.selection import FastGridSearchCV, SearchPlan
from everyfold.selection.remarks import edges

MOST_ROUNDS = 4
"""The first grid, and how often it may grow."""


@dataclass(frozen=True)
class Job:
    """Data, model, grid, and the settings of the search."""

    data: Data
    choice: Choice
    grid: Grid
    scoring: str
    settings: dict[str, Any]

    def search(self, kind: type[FastGridSearchCV], grids: Sequence[Grid]) -> Any:
        """A search over these grids, not yet begun."""
        prefix = self.choice.prefix
        named = [{f"{prefix}{name}": values for name, values in grid.items()} for grid in grids]
        estimator = self.choice.pipeline(self.data.X)
        return kind(estimator, named, scoring=self.scoring, refit=False, **self.settings)

    def fitted(self, params: dict[str, Any]) -> Any:
        """The estimator with these parameters, fitted on all rows."""
        estimator = clone(self.choice.pipeline(self.data.X))
        estimator.set_params(**{f"{self.choice.prefix}{k}": v for k, v in params.items()})
        return estimator.fit(self.data.X, self.data.y)


def read_model(options: ModelOptions) -> tuple[Choice, Data]:
    """Check the names of the model, read the data and decide what is to be predicted."""
    check_names(options.model, options.kernel, options.task)
    content = read_file(options.data, options.header)
    with naming(options.data):
        data = content.training(options.target, options.drop)
        task, data = decide_task(options.model, options.task, data)
    return Choice(options.model, options.kernel, task, options.standardise), data


def read_job(options: SearchOptions) -> Job:
    """Check everything that can be checked before the work."""
    order = _read_order(options.order)
    confirm = _read_whole("--confirm", options.confirm, 0, "auto")
    choose("--preprocessing", options.preprocessing, ("auto", "per_fold", "once"))
    if options.scoring is not None:
        choose("--scoring", options.scoring, get_scorer_names())
    if options.n_jobs == 0:
        raise BadInput("--n-jobs must not be 0")
    if options.top < 1:
        raise BadInput("--top must be at least 1")
    choice, data = read_model(options)
    settings = {
        "cv": _read_cv(options, choice, data),
        "n_jobs": options.n_jobs,
        "order": order,
        "n_confirm": confirm,
        "preprocessing": options.preprocessing,
        "random_state": options.seed,
    }
    grid = read_grid(options.grid, choice, data, options.seed)
    return Job(data, choice, grid, options.scoring or _default_scoring(options, choice), settings)


def _default_scoring(options: SearchOptions, choice: Choice) -> str:
    if choice.task == "classification":
        return "accuracy"
    return "neg_mean_squared_error" if options.cv == "loo" else "r2"


def _read_order(order: str) -> Any:
    if order in ("auto", "exact"):
        return order
    return math.inf if order == "inf" else _read_whole("--order", order, 1, "auto, exact, inf")


def _read_whole(option: str, text: str, least: int, word: str) -> Any:
    if text == word:
        return word
    if text.isdecimal() and int(text) >= least:
        return int(text)
    raise BadInput(f"{option} {text!r} is not {word} or a whole number of at least {least}")


def _read_cv(options: SearchOptions, choice: Choice, data: Data) -> Any:
    if options.cv == "loo":
        return LeaveOneOut()
    folds = _read_whole("--cv", options.cv, 2, "loo")
    largest, what = data.n_rows, "rows"
    if choice.task == "classification":
        largest = int(np.unique(data.y, return_counts=True)[1].max())
        what = "rows in the largest class"
    if folds > largest:
        raise BadInput(f"--cv {folds}: there are only {largest} {what}; use fewer folds or loo")
    kind = StratifiedKFold if choice.task == "classification" else KFold
    return kind(folds, shuffle=True, random_state=options.seed)


# -- what came out -------------------------------------------------------------------------------


@dataclass
class Outcome:
    """The finished candidates of one or several rounds.

    Attributes
    ----------
    job : Job
    grid : dict
        All values that were tried.
    rounds : list of fitted searches
    """

    job: Job
    grid: Grid
    rounds: list[Any] = field(default_factory=list)

    @property
    def results(self) -> dict[str, Any]:
        """``cv_results_`` of all rounds together."""
        tables = [search.cv_results_ for search in self.rounds]
        if len(tables) == 1:
            return dict(tables[0])
        merged = {key: _joined([table[key] for table in tables]) for key in tables[0]}
        mean = np.nan_to_num(merged["mean_test_score"], nan=-np.inf)
        merged["rank_test_score"] = 1 + np.array([np.count_nonzero(mean > m) for m in mean])
        return merged

    @property
    def winner(self) -> int:
        """The round that found the best candidate."""
        scores = [getattr(search, "best_score_", np.nan) for search in self.rounds]
        return int(np.argmax(np.nan_to_num(scores, nan=-np.inf)))

    @property
    def best(self) -> int:
        """The best candidate, as a row of the results."""
        before = sum(len(search.cv_results_["params"]) for search in self.rounds[: self.winner])
        return before + int(self.rounds[self.winner].best_index_)

    @property
    def best_params(self) -> dict[str, Any]:
        """Its parameters, by their short names."""
        return self.shorten(self.rounds[self.winner].best_params_)

    @property
    def best_score(self) -> float:
        """Its score, the one by refits if there is one."""
        return float(self.rounds[self.winner].best_score_)

    @property
    def plans(self) -> list[SearchPlan]:
        """The plan of each round."""
        return [search.plan_ for search in self.rounds]

    @property
    def edges(self) -> dict[str, str]:
        """The parameters whose best value is at an end of the grid."""
        return edges(self.grid, self.best_params)

    @property
    def remarks(self) -> list[str]:
        """What is to be said of the winner besides."""
        return [remark.words for remark in self.rounds[self.winner].remarks if remark.is_warning]

    @property
    def n_folds(self) -> int:
        """The number of folds."""
        return int(self.rounds[0].n_splits_)

    def shorten(self, params: dict[str, Any]) -> dict[str, Any]:
        """Parameters without the name of the step they belong to."""
        return {name.removeprefix(self.job.choice.prefix): v for name, v in params.items()}

    def order(self) -> Rows:
        """The candidates, the winner first and then by rank."""
        rank = self.results["rank_test_score"].astype(float)
        rank[self.best] = 0
        return np.argsort(rank, kind="stable")


class NoScoreError(RuntimeError):
    """Everything was tried, and nothing worked."""


def _joined(columns: Sequence[Any]) -> Any:
    if isinstance(columns[0], list):
        return [item for column in columns for item in column]
    if isinstance(columns[0], np.ma.MaskedArray):
        return np.ma.concatenate(columns)  # type: ignore[no-untyped-call]
    return np.concatenate(columns)


def run_rounds(outcome: Outcome, watcher: Watcher, *, may_grow: bool) -> None:
    """Search the grid and, as long as its best is on an edge, what lies beyond."""
    job = outcome.job
    _run(outcome, [job.grid], watcher)
    if not np.isfinite(outcome.results["mean_test_score"]).any():
        raise NoScoreError(
            f"no candidate has a score: --scoring {job.scoring} failed in every fold, or no model "
            "could be fitted; the warnings above say why"
        )
    while may_grow and outcome.edges and len(outcome.rounds) < MOST_ROUNDS:
        score = outcome.best_score
        whole, new = grow(outcome.grid, outcome.edges)
        if not new:
            return
        outcome.grid = whole
        _run(outcome, new, watcher)
        if not outcome.best_score > score:
            return


def _run(outcome: Outcome, grids: Sequence[Grid], watcher: Watcher) -> None:
    search = outcome.job.search(WatchedSearch, grids)
    search.watcher = watcher
    data = outcome.job.data
    try:
        search.fit(data.X, data.y)
    except (ValueError, TypeError) as error:
        if watcher.has_begun:
            raise
        raise BadInput(str(error)) from error
    finally:
        # An interrupted search has what it had finished.
        if hasattr(search, "cv_results_"):
            outcome.rounds.append(search)
        watcher.close()

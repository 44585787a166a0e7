"""A differential fuzz test: random calls, each made of this library and of scikit-learn.

``make fuzz`` runs thousands of cases and prints the seeds that differ; ``python -m
tests.guards.fuzz --start 17 --cases 1 --verbose`` looks at one of them.
``tests/guards/test_fuzz.py`` runs some in the test suite.

A case agrees if both sides raise, or if every number is that of the refit. First the scores are
compared as they are. Where these differ by more than rounding, both sides are run again with a
scorer that keeps what it is shown (predictions, decision values, probabilities), and three
questions are asked:

1. Is the score the one that scikit-learn's metric gives for the values that were held out?
2. Are the values those of refits, to the tolerance of the loss (``tolerance``)? The refits are
   those of the same estimator with its own ``tol`` made small.
3. Do labels differ only where a refit's decision value is within that tolerance of a tie?
4. Is the mean over folds that of the refits, to one row or a thousandth (``_check_mean``)?

Values that are flagged as not exact are compared loosely, unless nobody asked for an approximation:
then they may be off by a few rows in doubt (``UNASKED``). What the library refuses must be in
``REFUSALS``. One seed in forty is a search whose code is edited between two runs with the same
journal (``tests/guards/fuzz_edits.py``).
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sklearn.model_selection as refitting
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import explained_variance_score, get_scorer
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, SVR

from everyfold import InexactWarning
from tests.guards.fuzz_cases import Case, make_case
from tests.guards.fuzz_edits import examine_edit
from tests.guards.fuzz_models import two_scores
from tests.guards.fuzz_sides import (
    FASTER,
    ROUNDING,
    SLOWER,
    Recorder,
    Shown,
    Side,
    call,
    clipped,
    final_step,
    in_double,
    in_doubt,
    rescored,
    tightened,
    tightened_grid,
    tolerance,
    without_unused_probabilities,
)

REFUSALS = (
    r"scoring: .* of one row is",
    r"scoring: .* where a test set has one class",
    r"but SVR fits one target",
    r"best_estimator_ would predict with the wrong support vectors",
)
"""What the library refuses and scikit-learn takes, by the words of the refusal."""

# -- the comparison ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """What became of a case: "agree", "both raise", "refused", "known" or "differ", and why."""

    outcome: str
    words: str = ""


def oversight(case: Case) -> str:
    """What scikit-learn gets wrong in a case, if it is known to: no reference to compare with."""
    final = final_step(case.estimator)
    grids = case.grid if isinstance(case.grid, list) else [case.grid or {}]
    weights = next(iter(case.weights.values()), [1.0])
    for model in [final, *(model for grid in grids for model in grid.get("model", []))]:
        kernel = getattr(model, "kernel", None)
        is_given = kernel == "precomputed" or callable(kernel)
        if isinstance(model, SVC | SVR) and is_given and np.min(weights) == 0.0:
            return "SVC numbers its support vectors without rows of weight 0, K with them"
        if isinstance(model, SVC) and np.min(weights) == 0.0 and _loses_a_class(case, weights):
            return "SVC numbers its classes without those of weight 0, classes_ with them"
    is_renamed = case.call == "predict" and case.method != "predict"
    if is_renamed and isinstance(getattr(final, "class_weight", None), dict):
        return "cross_val_predict renames labels, and class_weight does not find them"
    return ""


def _loses_a_class(case: Case, weights: Any) -> bool:
    """Whether all rows of a class of some training set have weight 0."""
    y, counts = np.asarray(case.y), np.asarray(weights) > 0.0
    splitter = refitting.check_cv(case.cv, y, classifier=True)
    trains = (train for train, _ in splitter.split(np.zeros((len(y), 1)), y, case.groups))
    return any(set(y[train]) != set(y[train][counts[train]]) for train in trains)


def accepts_more(case: Case) -> bool:
    """Whether the library answers where scikit-learn raises, and may.

    A Pipeline that begins with "passthrough" does not cut the columns of a precomputed kernel.
    Several scorers of which one needs probabilities raise, one alone gives ``error_score``. A
    precomputed kernel among others, of rows that are none, ends scikit-learn's whole search; here
    it fails alone.
    """
    steps = case.estimator.steps if isinstance(case.estimator, Pipeline) else []
    grids = case.grid if isinstance(case.grid, list) else [case.grid or {}]
    tried = [step for _, step in steps] + [v for grid in grids for v in _values(grid)]
    extreme = [value for values in case.facts.get("extreme", {}).values() for value in values]
    if any(isinstance(value, str) and value == "precomputed" for value in extreme):
        return True
    if case.container == "kernel" and any(isinstance(v, str) and v == "passthrough" for v in tried):
        return True
    names = case.scoring.values() if isinstance(case.scoring, dict) else case.scoring
    several = isinstance(case.scoring, list | dict)
    return several and any(
        name in ("neg_log_loss", "neg_brier_score", "roc_auc_ovr") for name in names
    )


def _values(grid: dict[str, Any]) -> list[Any]:
    """All values of a grid that are listed, not drawn."""
    return [v for values in grid.values() if isinstance(values, list) for v in values]


def gave_up(side: Side) -> bool:
    """Whether fits ended without a minimum, and said so: there is nothing to compare with."""
    return any(issubclass(warning.category, ConvergenceWarning) for warning in side.warned)


def _says(side: Side, words: str) -> bool:
    """Whether a warning has these words."""
    return any(words in str(warning.message) for warning in side.warned)


def _approximated(side: Side) -> str:
    """The warning that a method was taken that does not give the values of refits, if there is one.

    Values that rounding may have spoilt are flagged in other words.
    """
    said = [str(w.message) for w in side.warned if issubclass(w.category, InexactWarning)]
    return next((w for w in said if "approximation" in w or "fitted once" in w), "")


class Difference(AssertionError):
    """The two sides differ."""


def compare(case: Case) -> Finding:
    """Run both sides of a case and compare them."""
    slow, fast = call(case, SLOWER), call(case, FASTER)
    if fast.error is None and oversight(case):
        return Finding("no reference", oversight(case))
    if fast.error is not None and slow.error is not None:
        return Finding("both raise", _first_line(fast.error))
    if fast.error is not None:
        if gave_up(slow):
            return Finding("accepted", _first_line(fast.error))
        if _has_no_score(fast, slow):
            return Finding("accepted", NO_SCORE)
        return Finding("refused", ONE_CLASS) if _says(fast, "one class only") else _refusal(fast)
    if slow.error is not None:
        words = f"only scikit-learn raises: {_first_line(slow.error)}"
        return Finding("accepted" if accepts_more(case) else "differ", words)
    if case.order in ("auto", "exact") and (words := _approximated(fast)):
        return Finding("differ", f"an approximation that nobody asked for: {words}")
    try:
        if case.is_search:
            flagged = _compare_searches(case, fast, slow)
        elif case.call == "score":
            flagged = _compare_scores(case, fast, slow)
        else:
            flagged = _compare_predictions(case, fast, slow)
    except Difference as difference:
        is_nan = str(difference).startswith("NaN in other places")
        has_failed = is_nan or str(difference).endswith("no values")  # or has a score for failures
        if has_failed and _says(fast, "one class only"):
            return Finding("refused", ONE_CLASS)
        is_known = gave_up(slow) or (
            has_failed and accepts_more(case) and _says(slow, "fits failed")
        )
        return Finding("accepted" if is_known else "differ", str(difference))
    return Finding("flagged" if flagged else "agree")


ONE_CLASS = "RidgeClassifier takes training rows of one class; here that fold fails, and says so"
NO_SCORE = "no candidate has a score, so that none is the best; scikit-learn takes the first"


def _has_no_score(fast: Side, slow: Side) -> bool:
    """Whether a search is refused because all its scores are NaN, which they are on both sides."""
    if not str(fast.error).startswith("no candidate has a score"):
        return False
    results = slow.result.cv_results_
    return any(np.isnan(results[key]).all() for key in results if key.startswith("mean_test_"))


def _refusal(fast: Side) -> Finding:
    words = _first_line(fast.error)
    is_known = any(re.search(pattern, words) for pattern in REFUSALS)
    is_refusal = isinstance(fast.error, ValueError | TypeError | NotImplementedError)
    if is_known and is_refusal:
        return Finding("refused", words)
    where = fast.trace.strip().splitlines()[-3:-1]
    return Finding("differ", f"only everyfold raises: {words} [{' '.join(where).strip()}]")


def _first_line(error: Exception | None) -> str:
    text = str(error).strip() or repr(error)
    return f"{type(error).__name__}: {text.splitlines()[0][:300]}"


def _expect(condition: Any, words: str) -> None:
    if not condition:
        raise Difference(words)


def _close(ours: Any, theirs: Any, rtol: float = ROUNDING) -> Any:
    """Entry by entry; NaN equals NaN."""
    ours, theirs = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
    with np.errstate(invalid="ignore"):
        near = np.abs(ours - theirs) <= rtol * np.maximum(1.0, np.abs(theirs))
    return near | (np.isnan(ours) & np.isnan(theirs)) | (ours == theirs)


def _compare_scores(case: Case, fast: Side, slow: Side) -> bool:
    ours, theirs = np.asarray(fast.result), np.asarray(slow.result)
    _expect(ours.shape == theirs.shape, f"shapes {ours.shape}, {theirs.shape}")
    _check_nan(ours, theirs, "scores")
    near = _close(ours, theirs)
    if near.all():
        return fast.is_flagged
    if fast.is_flagged:
        _check_loosely(case, ours, theirs)
        return True
    ids = _record(case, FASTER), _record(case, SLOWER), _record(case, SLOWER, tight=True)
    for i in np.flatnonzero(~near):
        cells = [side.show(i) for side in ids]
        _check_cell(case, case.estimator, (ours[i], theirs[i], "score"), cells, f"fold {i}")
    truths = [ids[2].show(i) for i in range(len(ours))]
    _check_mean(case, case.estimator, (ours, theirs, "score"), truths, "mean of the folds")
    return False


def _check_nan(ours: Any, theirs: Any, what: str) -> None:
    _expect(
        (np.isnan(ours) == np.isnan(theirs)).all(),
        f"NaN in other places of {what}: {_short(ours)}, scikit-learn {_short(theirs)}",
    )


ASKED, UNASKED = 0.4, 0.1
"""By how much means of flagged scores between -1 and 1 may be off.

An approximation that was asked for is known to be off by a third where classes are balanced. What
nobody asked for is flagged only where rounding decides the labels of some rows: of 20 rows two.
"""


def _check_loosely(case: Case, ours: Any, theirs: Any) -> None:
    """What is flagged is at least near, where scores have a scale."""
    known = np.isfinite(theirs) & (np.abs(theirs) <= 1.0)
    if not case.facts.get("classes") or not known.any():
        return
    gap = abs(np.mean(ours[known]) - np.mean(theirs[known]))
    is_asked = case.is_search and case.order not in ("auto", "exact")
    _expect(
        gap <= (ASKED if is_asked else UNASKED),
        f"flagged, but far away: {_short(ours)}, scikit-learn {_short(theirs)}",
    )


@dataclass
class Records:
    """What a recording run has shown, by fold, or by candidate and fold."""

    ids: Any
    records: list[Shown]

    def show(self, *where: Any) -> Shown | None:
        """The record of a cell, if there is one."""
        number = self.ids[where]
        return None if np.isnan(number) else self.records[int(number)]


def _record(case: Case, functions: dict[str, Any], *, tight: bool = False) -> Records:
    """Run a case again with a scorer that keeps what it sees."""
    recorder = Recorder()
    changes: dict[str, Any] = {"scoring": recorder, "error_score": np.nan}
    quiet = replace(case, routing=False, facts=case.facts)
    estimator = without_unused_probabilities(case)
    if tight:
        quiet, estimator = replace(quiet, X=in_double(case.X)), tightened(estimator)
    if case.is_search:
        changes |= {"refit": False, "n_jobs": None}
        if functions is FASTER:
            changes["n_confirm"] = 0
        if tight:
            changes["grid"] = tightened_grid(case.grid)
    side = call(quiet, functions, estimator=estimator, **changes)
    if side.error is not None:
        raise Difference(f"recording failed: {_first_line(side.error)}")
    if not case.is_search:
        return Records(np.asarray(side.result), recorder.records)
    table, folds = side.result.cv_results_, range(side.result.n_splits_)
    sides = ["test", "train"] if case.with_train else ["test"]
    ids = np.array([[table[f"split{i}_{which}_score"] for i in folds] for which in sides])
    return Records(ids, recorder.records)


SINGLE = 3e-7
"""By how much a score of SVC and SVR may be off that of its recorded values.

Equal rows, which kernels in single precision tell apart, have one value where a scorer reads
values, as the recording one does, and not where errors alone are asked for.
"""


def _check_cell(
    case: Case, estimator: Any, scores: tuple[float, float, str], cells: Any, where: str
) -> None:
    """One score: is it that of the values, and are the values those of a refit?"""
    mine, theirs, truth = cells
    ours, expected, name = scores
    words = f"{where}: {name} {ours:.10g}, scikit-learn {expected:.10g}"
    _expect(mine is not None and truth is not None, f"{words}: no values")
    if not case.routing:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = rescored(case.scoring, mine, name)
        near = SINGLE if isinstance(final_step(estimator), SVC | SVR) else 1e-9
        _expect(_close(ours, again, near), f"{words}: but its own values have {again:.10g}")
    _expect(_same(mine.y, truth.y), f"{words}: other rows are scored")
    check_values(case, estimator, mine, theirs, truth, words)


def _check_mean(
    case: Case, estimator: Any, scores: tuple[Any, Any, str], truths: list[Any], where: str
) -> None:
    """A mean over folds that is that of refits, to one row in one fold or a thousandth.

    A thousandth is what libsvm's usual ``tol`` leaves open in a score of values; one row is the
    least by which a score of labels can differ, or as many as are tied. Where scikit-learn's own
    refits are further from those with a small ``tol``, fold by fold, the library may be as far; in
    scores of numbers, which no row bounds, twice as far. Squared loss has passed a closer test.
    """
    ours, theirs, name = scores
    if _is_squared(final_step(estimator)) or case.routing or None in truths:
        return
    # Libsvm's kernel has single precision.
    digits = SINGLE if isinstance(final_step(estimator), SVC | SVR) else 1e-12
    if any(_is_all_ties(truth, digits) for truth in truths) or _is_void(case.scoring, name, truths):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exact = np.array([rescored(case.scoring, truth, name) for truth in truths])
        except ValueError:
            return  # folds that have no score, as one whose weights are all 0
    known = np.isfinite(exact) & np.isfinite(theirs) & np.isfinite(ours)
    if not known.any():
        return
    mine, expected, truth = (float(np.mean(v[known])) for v in (ours, theirs, exact))
    row = max(_one_row(shown) for shown in truths)
    row = max(row, sum(_tied_rows(shown) * _one_row(shown) for shown in truths))
    row /= np.count_nonzero(known)
    size = np.max(np.abs(exact[known]))  # 1 for scores of labels; rows, where these are counted
    spread = float(np.mean(np.abs(theirs - exact)[known]))
    if not case.facts.get("classes"):
        spread *= 2.0
    allowed = max(1e-3 * size, row * size, spread)
    off = min(abs(mine - expected), abs(mine - truth))
    words = f"{where}: {name} {mine:.6g}, scikit-learn {expected:.6g}, with a small tol {truth:.6g}"
    _expect(off <= allowed + 1e-9, f"{words}: allowed {allowed:.2g}")


def _is_all_ties(shown: Shown, digits: float = 1e-12) -> bool:
    """Whether classes or rows are tied in exact arithmetic, as for a constant kernel.

    Refits then decide by the rounding of 0, and any label is as good as theirs; or they rank rows
    by the last digits of values that are equal.
    """
    if shown.classes is None or shown.values.ndim > 1:
        return False
    size = np.median(np.abs(shown.values))
    return bool(size < 1e-12 or np.ptp(shown.values) < digits * size)


def _tied_rows(shown: Shown) -> int:
    """How many rows get their class from the rounding of 0, as if all rows are the same."""
    if shown.classes is None:
        return 0
    size = np.abs(clipped(shown.values)).max(initial=1.0)
    return int(np.count_nonzero(in_doubt(shown, 1e-12 * size)))


def _is_void(scoring: Any, name: str, truths: list[Any]) -> bool:
    """Whether a score of single rows is 0/0, of which weights leave any quotient of roundings."""
    scorer = scoring[name] if isinstance(scoring, dict) else scoring
    scorer = get_scorer(name if isinstance(scoring, list) else scorer) if scorer else None
    is_ratio = getattr(scorer, "_score_func", None) is explained_variance_score
    return is_ratio and any(len(shown.y) == 1 and shown.weights is not None for shown in truths)


def _one_row(shown: Shown) -> float:
    """What one row counts in a score of labels or ranks: one in its class, at most."""
    if shown.classes is None:
        return 0.0
    return 1.0 / float(np.min(np.unique(np.asarray(shown.y), return_counts=True)[1]))


def _is_squared(model: Any) -> bool:
    libsvm_or_logistic = isinstance(model, SVC | SVR | LogisticRegression)
    return not libsvm_or_logistic and getattr(model, "loss", "squared") == "squared"


def _same(a: Any, b: Any) -> bool:
    return bool(np.array_equal(np.asarray(a), np.asarray(b)))


def check_values(
    case: Case, estimator: Any, mine: Shown, theirs: Shown | None, truth: Shown, words: str
) -> None:
    """Values equal to those of a refit, and labels wherever these are clear."""
    delta = tolerance(case, estimator, truth, theirs)
    doubtful = in_doubt(truth, delta)
    if _is_shifted(mine, truth, delta):
        words = f"{words}: another intercept"
    wrong = (mine.labels != truth.labels) & ~doubtful if truth.classes is not None else []
    _expect(not np.any(wrong), f"{words}: {np.count_nonzero(wrong)} labels differ beyond doubt")
    if mine.values.shape != truth.values.shape:
        return  # a class is missing in the fold; labels say what there is to say
    clear = ~doubtful if truth.pairs is not None else np.ones(len(truth.values), dtype=bool)
    off = np.abs(clipped(mine.values) - clipped(truth.values))[clear].max(initial=0.0)
    _expect(off <= delta, f"{words}: values off by {off:.3g}, allowed {delta:.3g}")


def _is_shifted(mine: Shown, truth: Shown, delta: float) -> bool:
    """Whether all values are off by the same number."""
    if mine.values.shape != truth.values.shape or truth.values.ndim > 1:
        return False
    off = clipped(mine.values) - clipped(truth.values)
    return bool(abs(off.mean()) > delta and np.ptp(off) <= 2.0 * delta)


# -- searches --


def _compare_searches(case: Case, fast: Side, slow: Side) -> bool:
    ours, theirs = fast.result, slow.result
    _compare_tables(ours.cv_results_, theirs.cv_results_)
    _expect(ours.n_splits_ == theirs.n_splits_, "n_splits_ differs")
    _expect(ours.multimetric_ == theirs.multimetric_, "multimetric_ differs")
    # Of a candidate that failed in some folds, the others have scores of refits, too.
    exact = ours.cv_results_["is_exact"] | (ours.cv_results_["status"] == "failed")
    _compare_cells(case, ours, theirs, exact)
    for key in theirs.cv_results_:
        if key.startswith("mean_test_") and not exact.all():
            _check_loosely(case, ours.cv_results_[key][~exact], theirs.cv_results_[key][~exact])
    _compare_winners(case, ours, theirs, exact)
    if case.honest and exact.all():
        _compare_honest(case, ours)
    return not exact.all()


EXTRA = {"is_exact", "status", "is_identity", "spectral_radius"}


def _compare_tables(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    added = {key for key in ours if key in EXTRA or key.startswith("confirmed_test_")}
    extra, missing = set(ours) - set(theirs) - added, set(theirs) - set(ours)
    _expect(not extra and not missing, f"cv_results_ has {extra}, lacks {missing}")
    _expect(repr(ours["params"]) == repr(theirs["params"]), "other candidates")
    for key, expected in theirs.items():
        if key.startswith("param_"):
            _expect(ours[key].dtype == expected.dtype, f"{key}: dtype {ours[key].dtype}")
            _expect((ours[key].mask == expected.mask).all(), f"{key}: another mask")
        elif key.startswith("rank_"):
            _expect(ours[key].dtype == expected.dtype, f"{key}: dtype {ours[key].dtype}")


def _compare_cells(case: Case, ours: Any, theirs: Any, exact: Any) -> None:
    records: list[Records] = []
    differing: set[tuple[str, int]] = set()
    for key, expected in theirs.cv_results_.items():
        found = re.fullmatch(r"split(\d+)_(test|train)_(.+)", key)
        if found is None:
            continue
        scores = ours.cv_results_[key]
        _check_nan(scores, expected, key)
        near = _close(scores, expected)
        for k in np.flatnonzero(~near & exact):
            if not records:
                records = [_record(case, FASTER), _record(case, SLOWER)]
                records.append(_record(case, SLOWER, tight=True))
            where = int(found[2] == "train"), int(found[1]), k
            cells = [side.show(*where) for side in records]
            if where[0]:
                cells = _in_order(case, cells, where[1])
            estimator = _candidate(case, theirs, k)
            words = f"{key} of candidate {k}"
            _check_cell(case, estimator, (scores[k], expected[k], found[3]), cells, words)
            if not where[0]:
                differing.add((found[3], int(k)))
    for name, k in sorted(differing):
        folds = range(ours.n_splits_)
        keys = [f"split{fold}_test_{name}" for fold in folds]
        scores = [np.array([table.cv_results_[key][k] for key in keys]) for table in (ours, theirs)]
        truths = [records[2].show(0, fold, k) for fold in folds]
        estimator = _candidate(case, theirs, k)
        _check_mean(case, estimator, (*scores, name), truths, f"mean of candidate {k}")


def _candidate(case: Case, theirs: Any, k: int) -> Any:
    return clone(case.estimator).set_params(**clone(theirs.cv_results_["params"][k], safe=False))


def _in_order(case: Case, cells: Any, fold: int) -> Any:
    """Training rows in ascending order on all sides: an order that no score depends on."""
    mine, theirs, truth = cells
    if mine is None or truth is None or _same(mine.y, truth.y):
        return cells
    classifier = bool(case.facts.get("classes"))
    splits = refitting.check_cv(case.cv, case.y, classifier=classifier)
    train, _ = list(splits.split(case.X, case.y, groups=case.groups))[fold]
    return [mine, *(shown and shown.reordered(np.argsort(train)) for shown in (theirs, truth))]


def _compare_winners(case: Case, ours: Any, theirs: Any, exact: Any) -> None:
    decisive = theirs.cv_results_.get("mean_test_score")
    is_theirs = bool(ours.plan_.refitted)  # then a search does as scikit-learn's
    if decisive is not None and np.isnan(decisive).all() and not is_theirs:
        _expect(not hasattr(ours, "best_index_"), "a best candidate without a score")
        return
    for name in ("best_index_", "best_params_", "best_score_", "best_estimator_", "refit_time_"):
        _expect(hasattr(ours, name) == hasattr(theirs, name), f"{name} on one side only")
    if not hasattr(theirs, "best_index_") or not hasattr(ours, "best_score_"):
        return
    metric = case.refit if isinstance(case.refit, str) else "score"
    if f"mean_test_{metric}" not in theirs.cv_results_:
        return  # a scorer of several scores that failed everywhere: nobody knows their names
    means = theirs.cv_results_[f"mean_test_{metric}"]
    own = ours.cv_results_[f"mean_test_{metric}"]
    slack = np.nanmax(np.abs(means - own), initial=0.0) if not np.isnan(means).all() else np.nan
    if exact.all() and not np.isnan(slack):
        gap = np.nanmax(means) - means[ours.best_index_]
        _expect(gap <= 2.0 * slack + 1e-9, f"best_index_ {ours.best_index_} loses {gap:.3g}")
    if ours.best_index_ == theirs.best_index_ and hasattr(theirs, "best_estimator_"):
        _compare_refits(case, ours, theirs)


def _compare_refits(case: Case, ours: Any, theirs: Any) -> None:
    with warnings.catch_warnings(), config_context(enable_metadata_routing=case.routing):
        warnings.simplefilter("ignore")
        mine, expected = ours.predict(case.X), theirs.predict(case.X)
    same = _same(mine, expected) if case.facts.get("classes") else _close(mine, expected).all()
    _expect(same, "best_estimator_ predicts otherwise")


def _compare_honest(case: Case, ours: Any) -> None:
    """After a fit with groups an honest score is that of groups, without naming them again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            named = ours.honest_score(n_bootstraps=20, groups=case.groups)
        except ValueError:
            return  # folds that hold rows out twice, scorers that cannot be resampled
        plain = ours.honest_score(n_bootstraps=20)
    _expect(
        (plain.estimate, plain.interval) == (named.estimate, named.interval),
        f"honest_score() {plain.estimate:.6g}, of groups {named.estimate:.6g}",
    )
    is_single = not isinstance(case.scoring, list | dict) and case.scoring is not two_scores
    if is_single and _is_squared(final_step(case.estimator)) and not case.facts.get("classes"):
        _compare_nested(case, ours)


def _compare_nested(case: Case, ours: Any) -> None:
    """Nested scores of groups, if inner searches have no ties that rounding decides."""
    search = refitting.GridSearchCV(
        clone(case.estimator), case.grid, cv=case.cv, scoring=case.scoring
    )
    given = case.weights | {"groups": case.groups}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = refitting.cross_val_score(
                search, case.X, case.y, cv=case.cv, groups=case.groups, params=given
            )
        except ValueError:
            return  # too few groups for inner folds
        found = ours.honest_score("nested", case.X, case.y, **case.weights)
    _check_nan(found.scores, expected, "nested scores")
    _expect(_close(found.scores, expected, 1e-6).all(), f"nested {found.scores}, {expected}")


# -- cross_val_predict --


def _compare_predictions(case: Case, fast: Side, slow: Side) -> bool:
    ours, theirs = np.asarray(fast.result), np.asarray(slow.result)
    if theirs.ndim == 1 and case.facts["y"] == "column":
        ours = ours.reshape(len(ours))  # Ridge alone makes one target of a column
    _expect(ours.shape == theirs.shape, f"shapes {ours.shape}, {theirs.shape}")
    kinds = [values.dtype.kind.replace("O", "U") for values in (ours, theirs)]
    _expect(kinds[0] == kinds[1], f"dtypes {ours.dtype}, {theirs.dtype}")
    if fast.is_flagged:
        return True
    are_labels = case.method == "predict" and bool(case.facts.get("classes"))
    if are_labels and _same(ours, theirs):
        return False
    if not are_labels and _close(clipped(ours), clipped(theirs)).all():
        return False
    runs = [_predicted(case, FASTER), _predicted(case, SLOWER)]
    runs.append(_predicted(case, SLOWER, tight=True))
    if not are_labels and call(case, FASTER, method="predict").is_flagged:
        runs[0].labels = runs[2].labels  # values were asked for; labels say that they are not exact
    check_values(case, case.estimator, *runs, "predictions")
    if case.method == "predict_proba":
        exact = replace(case, X=in_double(case.X))
        truth = call(exact, SLOWER, estimator=tightened(case.estimator)).result
        delta = tolerance(case, case.estimator, runs[2], runs[1])
        _expect((np.abs(ours - truth) <= delta).all(), _gap(ours, truth))
    return False


def _gap(ours: Any, theirs: Any) -> str:
    off = np.abs(clipped(ours) - clipped(theirs))
    return f"values off by {off.max():.3g} at {np.unravel_index(off.argmax(), off.shape)}"


def _predicted(case: Case, functions: dict[str, Any], *, tight: bool = False) -> Shown:
    """Labels and values of all rows, and those of pairs of classes if there are any."""
    estimator = case.estimator
    if tight:
        case, estimator = replace(case, X=in_double(case.X)), tightened(estimator)
    methods = ["predict"]
    if case.facts.get("classes"):
        methods.append("decision_function")
    found = [call(case, functions, estimator=estimator, method=name) for name in methods]
    for side in found:
        if side.error is not None:
            raise Difference(f"recording failed: {_first_line(side.error)}")
    labels, values = np.asarray(found[0].result), np.asarray(found[-1].result)
    shown = Shown(case.X, case.y, labels, values)
    if case.facts.get("classes"):
        shown.classes = case.facts["names"]
    final = final_step(estimator)
    if isinstance(final, SVC) and values.ndim > 1:
        pairs = clone(estimator)
        final_step(pairs).set_params(decision_function_shape="ovo", break_ties=False)
        side = call(case, functions, estimator=pairs, method="decision_function")
        shown.pairs = None if side.error is not None else np.asarray(side.result)
    if isinstance(final, SVC | SVR):
        shown.size = final.C * len(labels)
    return shown


def _short(values: Any) -> str:
    return np.array2string(np.asarray(values, dtype=float), precision=6, threshold=8)


EDITED = 40
"""One seed in so many edits code under a journal: two searches in modules of their own."""


def examine(seed: int) -> Finding:
    """Compare the case of a seed."""
    if seed % EDITED == EDITED - 1:
        words = examine_edit(seed)
        return Finding("differ" if words else "agree", words)
    return compare(make_case(seed))


# -- from the shell ------------------------------------------------------------------------------


def _examined(seeds: range, verbose: bool) -> Iterator[tuple[int, Finding]]:
    for seed in seeds:
        start = time.process_time()
        try:
            finding = examine(seed)
        except Exception:
            finding = Finding("differ", "the comparison failed: " + traceback.format_exc()[-300:])
        if verbose:
            seconds = time.process_time() - start
            print(f"{seed:6d} {seconds:6.2f} s {finding.outcome:10s} {finding.words}")
        yield seed, finding


def main(arguments: list[str] | None = None) -> int:
    """Examine many seeds; print those that differ, each with a line that shows it again."""
    parser = argparse.ArgumentParser(prog="python -m tests.guards.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=3000)
    parser.add_argument("--start", type=int, default=1000)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    seeds = range(options.start, options.start + options.cases)
    for seed, finding in _examined(seeds, options.verbose):
        counts[finding.outcome] += 1
        if finding.outcome == "refused":
            reasons[f"{finding.outcome}: {finding.words[:110]}"] += 1
        if finding.outcome == "differ":
            case = "an edit" if seed % EDITED == EDITED - 1 else make_case(seed)
            print(f"DIFFERS {seed}: {finding.words}\n    {case}")
            print(f"    python -m tests.guards.fuzz --start {seed} --cases 1 --verbose", flush=True)
    print(", ".join(f"{outcome} {count}" for outcome, count in counts.most_common()))
    for reason, count in reasons.most_common():
        print(f"  {count:5d} {reason}")
    return int(counts["differ"] > 0)


if __name__ == "__main__":
    sys.exit(main())

"""What carries a result: the effect of deleting rows, groups of rows or columns on any score.

With squared loss the effects of all single deletions follow from one factorisation
(:mod:`everyfold.crossval.deletions`, :mod:`everyfold.crossval.fold_models`); other models are
fitted again without each row that matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.svm import SVC, SVR
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_consistent_length

from everyfold._sklearn_private import num_samples, safe_indexing, safe_split
from everyfold._typing import (
    AnyArray,
    Array,
    Estimator,
    Index,
    Label,
    Matrix,
    Method,
    Params,
    RandomState,
    Scorer,
    Search,
    Splitter,
    Targets,
)
from everyfold.adapters.pipelines import read_rows
from everyfold.crossval.deletions import deletions
from everyfold.crossval.fold_models import fold_predictions
from everyfold.engine.execution.kernel_builder import bind, rows_of
from everyfold.engine.kept_models import fit_to, follow_from_one
from everyfold.engine.reading.reader import read
from everyfold.engine.records import Candidate, Data
from everyfold.engine.request import Metadata, Options, Request, RequestedOutputs
from everyfold.engine.scoring.checks import alone
from everyfold.engine.scoring.fold_scorers import FoldScorer
from everyfold.engine.scoring.metrics import ScoredRows
from everyfold.estimators.targets import Target
from everyfold.folds import EqualSets, Folds, joined, lengths
from everyfold.functions.cross_val import cross_val_predict, cross_val_score
from everyfold.judge.fitted import given_params, groups_of, is_ours
from everyfold.judge.splitters import HeldOutSets, TestedAndHeld
from everyfold.linalg.blas import blas_threads
from everyfold.linalg.memory import check_memory
from everyfold.linalg.symmetric import is_trusted
from everyfold.operators.base import SupportsResponse, require
from everyfold.solvers import Problem

if TYPE_CHECKING:
    from everyfold.plotting import InfluenceDisplay
    from everyfold.plotting.score_table import Axes

Of = Literal["rows", "columns", "permutations"]

# Effects that are no larger than this share of the score are rounding.
_ROUNDING = 1e-10
# Residuals this many robust standard deviations from their median are suspicious (Iglewicz and
# Hoaglin 1993).
_FAR = 3.5
# A call of a scorer of scikit-learn takes 0.6 to 1.3 ms for few rows (R², F1). Common scores are
# computed for all deletions at once, in less.
_SECONDS_PER_SCORE = 1e-3
# The median absolute deviation of normal numbers with standard deviation 1.
_MAD = 0.6745


@dataclass(frozen=True)
class Influence:
    """The effect of deleting each row, group or column.

    Attributes
    ----------
    effect : array of shape (n_units,)
        The score without the row (or group, or column) minus the score with it; NaN where there is
        no model or no score without it. Positive effects are those of harmful rows.
    labels : array of shape (n_units,)
        The numbers of the rows or columns, or the labels of the groups.
    score : float
        With everything: on the evaluation rows, or the mean over the folds.
    of : {"rows", "columns", "permutations"}
    is_exact : bool
        Whether effects equal those of fitting again, up to rounding or a solver's tolerance.
    how : str
        How they were computed, in words.
    suspects : int array
        Rows whose label or target is probably wrong, the most suspicious first: the model of the
        other rows is as sure of another class as it usually is of rows with that label, or the
        residual is more than 3.5 robust standard deviations from the median.
    changes : array of shape (n_units, n_eval) or (n_units, n_eval, n_columns), optional
        By how much each deletion changes the decision value or prediction of each evaluation row.
    """

    effect: Array
    labels: AnyArray = field(repr=False)
    score: float
    of: Of
    is_exact: bool
    how: str
    suspects: Index = field(default_factory=lambda: np.empty(0, dtype=np.intp), repr=False)
    changes: Array | None = field(default=None, repr=False)

    @property
    def values(self) -> Array:
        """What each row, group or column is worth: the score that is lost without it."""
        return -self.effect

    @property
    def harmful(self) -> AnyArray:
        """The labels of what the score is better without, the most harmful first."""
        order = np.argsort(-self.effect, kind="stable")  # NaN comes last
        least = _ROUNDING * max(abs(self.score), 1.0) if np.isfinite(self.score) else 0.0
        found: AnyArray = self.labels[order[self.effect[order] > least]]
        return found

    def plot(self, *, n_shown: int = 20, ax: Axes = None) -> InfluenceDisplay:
        """Draw the largest effects, as an :class:`~everyfold.plotting.InfluenceDisplay`."""
        from everyfold.plotting import InfluenceDisplay

        return InfluenceDisplay.from_influence(self, n_shown=n_shown, ax=ax)


def influence(
    search_or_estimator: Search,
    X: Matrix,
    y: Targets,
    *,
    groups: ArrayLike | None = None,
    scoring: Scorer = None,
    X_eval: Matrix = None,
    y_eval: Targets = None,
    cv: Splitter = None,
    of: Of = "rows",
    params: Params | None = None,
    n_jobs: int | None = None,
    random_state: RandomState = 0,
) -> Influence:
    """The exact effect that deleting each row, group or column has on a score.

    Rows are deleted from the training rows, and the rows that are scored stay the same: those of
    ``X_eval``, or the test rows of the folds. With squared loss no model is fitted again.

    Parameters
    ----------
    search_or_estimator : fitted search or estimator
        A search stands for its best estimator, with its parameters as they are, and has defaults
        for ``scoring``, ``cv`` and ``params``. An estimator need not be fitted.
    X : {array, CSR matrix, data frame} of shape (n_samples, n_features)
    y : array of shape (n_samples,) or (n_samples, n_targets)
    groups : array of shape (n_samples,) or (n_features,), optional
        Rows with the same label are deleted together; a splitter that takes groups gets these
        labels. With ``of="columns"`` or ``"permutations"`` they are labels of the columns.
    scoring : str, callable or None, default=None
        One scorer of scikit-learn; None means the estimator's own score.
    X_eval, y_eval : arrays, optional
        Rows to be scored by the model of all rows. Without ``y_eval`` there are no scores, only
        ``changes`` of predictions.
    cv : int, splitter or iterable of splits, default=None
        Folds whose test rows are scored, if there are no evaluation rows; 5 folds by default.
    of : {"rows", "columns", "permutations"}, default="rows"
        "columns" fits models without each column, or group of columns. "permutations" permutes it
        among the held-out rows instead, five times: models are not fitted again, and columns that
        can replace each other seem unimportant.
    params : dict, optional
        Passed to ``fit``: ``sample_weight``.
    n_jobs : int, default=None
        The number of fits at a time, where models are fitted again.
    random_state : int, RandomState or None, default=0
        Seed of permutations.

    Returns
    -------
    influence : Influence

    Notes
    -----
    **Cost** for squared loss: one factorisation, and then for evaluation rows the inverse of a
    triangle and 2 n² flops each, for folds one inverse and 2 n m² flops for each fold of m rows.
    SVC and SVR with a number as gamma are fitted again only without their support vectors, as
    other rows change nothing. Anything else is fitted again without each row. **Exact?** Squared
    loss: up to rounding. Other losses: to the solver's tolerance.

    References
    ----------
    R. D. Cook (1977). Detection of influential observation in linear regression. Technometrics 19.
    C. G. Northcutt, L. Jiang, I. L. Chuang (2021). Confident learning. Journal of Artificial
    Intelligence Research 70.

    Examples
    --------
    >>> from everyfold import LSSVC, influence
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X, y = scale(X), y.copy()
    >>> y[30] = 1 - y[30]  # a wrong label
    >>> found = influence(LSSVC(gamma=0.02), X, y, cv=10)
    >>> found.effect.shape, int(found.suspects[0])
    ((569,), 30)
    """
    asked = _Asked.read(
        search_or_estimator, X, y, groups, scoring, X_eval, y_eval, cv, of, params, n_jobs
    )
    if of != "rows":
        return _of_columns(asked, random_state)
    found = _shared(asked)
    return _refitted(asked) if found is None else found


def quick_influence(
    search: Search, X: Matrix, y: Targets, groups: ArrayLike | None, seconds: float
) -> Influence:
    """The influence of rows or groups on a fitted search, if it should take no longer than that.

    Otherwise a ValueError says how long it would take.
    """
    asked = _Asked.read(search, X, y, groups, None, None, None, None, "rows", None, None)
    splits, count = asked.splits or (), len(asked.units.sets)
    are_single = all(np.size(test) == 1 for _, test in splits)  # and have one score together
    expected = _SECONDS_PER_SCORE * count * (1 if are_single else len(splits))
    found = _shared(asked) if expected <= seconds else None
    if found is not None:
        return found
    fits = count * len(splits)
    expected = fits * (search.refit_time_ + _SECONDS_PER_SCORE)
    if expected > seconds:
        raise ValueError(
            f"it could take {fits:,} fits, about {expected:,.0f} seconds; "
            "influence(search, X, y) computes it"
        )
    return _refitted(asked)


class _Units(NamedTuple):
    """What is deleted: labels, and the rows or columns of each."""

    labels: AnyArray
    sets: Sequence[Index]

    @classmethod
    def of(cls, groups: Targets, n: int, what: str) -> _Units:
        if groups is None:
            numbers = np.arange(n)
            return cls(numbers, EqualSets(numbers[:, None]))
        given = np.asarray(groups)
        if given.shape != (n,):
            raise ValueError(
                f"groups has shape {given.shape}, but there are {n} {what}; pass a label for each"
            )
        codes = groups_of(given)
        codes = np.arange(n) if codes is None else codes
        order = np.argsort(codes, kind="stable")
        sets = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
        return cls(given[[own[0] for own in sets]], tuple(sets))


@dataclass(frozen=True)
class _Asked:
    """What was asked for, checked."""

    estimator: Estimator
    X: Matrix
    y: Targets
    units: _Units
    scorer: Scorer
    splits: tuple[tuple[Index, Index], ...] | None
    X_eval: Matrix
    y_eval: Targets
    of: Of
    params: Params
    n_jobs: int | None

    @classmethod
    def read(
        cls,
        given: Search,
        X: Matrix,
        y: Targets,
        groups: Targets,
        scoring: Scorer,
        X_eval: Matrix,
        y_eval: Targets,
        cv: Splitter,
        of: Of,
        params: Params | None,
        n_jobs: int | None,
    ) -> _Asked:
        if of not in ("rows", "columns", "permutations"):
            raise ValueError(f"of={of!r} is not known; use 'rows', 'columns' or 'permutations'")
        if X_eval is None and y_eval is not None:
            raise ValueError("y_eval was passed without X_eval; pass both, or cv alone")
        if X_eval is not None and cv is not None:
            raise ValueError(
                "X_eval cannot be combined with cv, as either is what is scored; leave one out"
            )
        check_consistent_length(X_eval, y_eval)
        if of != "rows" and X_eval is not None and y_eval is None:
            raise ValueError(f"of={of!r} compares scores; pass y_eval as well")
        estimator, rest = given, {}
        if hasattr(given, "best_estimator_"):
            estimator = given.best_estimator_
            rest = dict(given_params(given)) if is_ours(given) else {}
            scoring = _scorer_of(given) if scoring is None else scoring
            cv = getattr(given, "cv", None) if cv is None and X_eval is None else cv
        elif hasattr(given, "cv") and hasattr(given, "refit"):
            raise ValueError(
                f"{type(given).__name__} has no best_estimator_; fit it with refit=True, or pass "
                "an estimator"
            )
        estimator = clone(estimator)
        params = {**rest, **(params or {})}
        labels = params.pop("groups", None)
        n, d = num_samples(X), _width(X)
        units = _Units.of(groups, *((n, "rows") if of == "rows" else (d, "columns")))
        splits = None
        if X_eval is None:
            splitter = check_cv(cv, y, classifier=is_classifier(estimator))
            if of == "rows" and groups is not None:
                labels = groups
            takes_groups = hasattr(splitter, "set_split_request")
            found = splitter.split(X, y, **({"groups": labels} if takes_groups else {}))
            splits = tuple(found)
        scorer = check_scoring(estimator, scoring=scoring)
        return cls(estimator, X, y, units, scorer, splits, X_eval, y_eval, of, params, n_jobs)

    @property
    def n(self) -> int:
        return int(num_samples(self.X))

    def request(self, splits: Sequence[tuple[Index, Index]]) -> Request:
        """What the engine reads."""
        options = Options(n_confirm=0, error_score=np.nan, n_jobs=self.n_jobs)
        wants = RequestedOutputs(mean_scores=False, selects_by=None)
        metadata = Metadata(self.params)
        cv = list(splits)
        return Request(
            self.estimator, [{}], self.X, self.y, cv, self.scorer, metadata, options, wants
        )

    def scores(self, X: Matrix, cv: Splitter) -> Array:
        """The scores of these folds on these columns."""
        how = {"scoring": self.scorer, "params": self.params, "n_jobs": self.n_jobs}
        return cross_val_score(self.estimator, X, self.y, cv=cv, **how)


def _width(X: Matrix) -> int:
    shape = getattr(X, "shape", None)
    return int(np.shape(X)[1]) if shape is None or len(shape) < 2 else int(shape[1])


def _scorer_of(search: Search) -> Scorer:
    """The scorer that decided, of one or several."""
    scorer: Scorer = getattr(search, "scorer_", None)
    if getattr(search, "multimetric_", False):
        if not isinstance(search.refit, str):
            raise ValueError("the search has several scorers; name one: scoring='r2', for example")
        return scorer[search.refit]
    return scorer


# -- squared loss: from one factorisation ----------------------------------------------------------


def _shared(asked: _Asked) -> Influence | None:
    """From one factorisation; None where models of other rows differ in more than their rows."""
    everything = np.arange(asked.n)
    splits = asked.splits or [(everything[1:], everything[:1])]
    data = read(asked.request(splits))
    if not data.candidates or data.has_steps:
        return None
    (candidate,), task = data.candidates.values(), data.tasks[0]
    model, target, folds = candidate.model, task.target, task.folds
    ridges = model.columns_of_ridges(target.columns.shape[1])
    is_given = model.choice.is_precomputed or model.choice.takes_any_rows
    if (
        not follow_from_one(model)
        or target.has_pairs
        or len(ridges) > 1
        or model.class_weight == "balanced"
        or not folds.are_removable
        or (is_given and asked.X_eval is not None)
        or (asked.X_eval is None and not (task.weights > 0.0).all())
    ):
        return None
    X = rows_of(data, candidate)
    structure = model.structure_to_fit(model.choice.resolve(X), X.shape)
    check_memory(asked.n, asked.n)
    with blas_threads(asked.n):
        operator = require(bind(data, candidate, structure, frozenset()), SupportsResponse)
        outline = operator.outline
        if outline.predicts_by_split or outline.response_rank is not None or outline.is_approximate:
            return None
        (problem,) = model.problems(target, task.weights)
        ridge = ridges[0][0]
        if asked.X_eval is not None:
            return _on_new_rows(asked, data, candidate, (problem, operator, ridge))
        response = operator.respond(problem.quadratic, ridge)
        each = deletions(problem, response, folds, asked.units.sets)
        found = sorted(each, key=lambda own: own.fold)
    is_exact = is_trusted(response.condition)
    missing = _without_class(target, (fold.train for fold in folds), asked.units.sets)
    judge = FoldScorer(asked.scorer, target, (data.X, data.y), {}, np.nan)
    held = np.concatenate([own.values[-1] for own in found])
    if bool((np.diff(folds.bounds) == 1).all()):  # single rows have a score together
        together = np.concatenate([own.values for own in found], axis=1)
        scores = _scores(judge, target, folds.test_rows, together)[None]
        missing = np.atleast_2d(missing.any(axis=0))
    else:
        scores = np.stack(
            [_scores(judge, target, folds.tests[own.fold], own.values) for own in found]
        )
    effects = np.where(missing, np.nan, scores[:, :-1] - scores[:, -1:])
    return Influence(
        effects.mean(axis=0),
        asked.units.labels,
        float(scores[:, -1].mean()),
        "rows",
        is_exact,
        f"{len(asked.units.sets)} deletions in {len(folds)} folds from one factorisation",
        _suspects_of(target, folds.test_rows, held),
    )


def _on_new_rows(
    asked: _Asked, data: Data, candidate: Candidate, parts: tuple[Problem, SupportsResponse, float]
) -> Influence:
    """The effects on given rows, by the models without each set of rows."""
    problem, operator, ridge = parts
    target, model, sets = data.tasks[0].target, candidate.model, asked.units.sets
    folds = Folds(asked.n, sets, sets)
    X_new, q = _read_new(asked.X_eval, data), problem.y.shape[1]
    held_out, values = fold_predictions(problem, operator, ridge, folds, X_new)
    (missing,) = _without_class(target, [np.arange(asked.n)], sets)
    changes = np.where(missing[:, None, None], np.nan, values[:-1] - values[-1])
    scores = np.full(len(values), np.nan)
    if asked.y_eval is not None:
        both = np.concatenate([np.asarray(asked.y), np.asarray(asked.y_eval)])
        whole = model.reading.read(both)
        unknown: list[Label] = []
        if whole.classes is not None and target.classes is not None:
            unknown = np.setdiff1d(whole.classes, target.classes).tolist()
        if unknown:
            raise ValueError(f"y_eval has labels that y does not have: {unknown}; leave them out")
        judge = FoldScorer(asked.scorer, whole, (None, both), {}, np.nan)
        scores = _scores(judge, whole, np.arange(asked.n, len(both)), values)
    return Influence(
        np.where(missing, np.nan, scores[:-1] - scores[-1]),
        asked.units.labels,
        float(scores[-1]),
        "rows",
        bool(held_out.is_exact.all()),
        f"{len(sets)} deletions from one factorisation",
        _suspects_of(target, joined(sets), held_out.values),
        changes[:, :, 0] if q == 1 else changes,
    )


def _scores(judge: FoldScorer, target: Target, rows: Index, values: Array) -> Array:
    """The scores of the same rows for each of several sets of values, (g, m, q)."""
    is_known = np.isfinite(values).all(axis=(1, 2))
    kept = values[is_known]
    side = ScoredRows(target, [rows] * len(kept))
    scores = np.full(len(values), np.nan)
    scores[is_known] = np.array(judge.score(kept.reshape(-1, kept.shape[2]), side, {}))
    return scores


def _without_class(
    target: Target, trains: Iterable[Index], sets: Sequence[Index]
) -> NDArray[np.bool_]:
    """Which deletions leave no row at all, or a class without rows, in each training set."""
    codes = getattr(target, "codes", None)
    codes = np.zeros(len(target.columns), dtype=np.intp) if codes is None else codes
    unit = np.full(len(codes), len(sets))
    unit[joined(sets)] = np.repeat(np.arange(len(sets)), lengths(sets))
    size = int(codes.max()) + 1
    code, count = unit * size + codes, (len(sets) + 1) * size
    found = []
    for train in trains:
        counts = np.bincount(code[train], minlength=count).reshape(-1, size)
        total = counts.sum(axis=0)
        found.append(((counts[:-1] == total) & (total > 0)).any(axis=1))
    return np.stack(found)


def _suspects(truth: Array, classes: int, rows: Index, values: Array) -> Index:
    """Rows that the models without them contradict, the most suspicious first.

    ``truth`` are the numbers of these rows, or the codes of their classes, of which there are so
    many; values are (rows, q).
    """
    none = np.empty(0, dtype=np.intp)
    if len(np.unique(rows)) < len(rows) or not np.isfinite(values).all() or truth.ndim > 1:
        return none
    if not classes:
        residual = truth - values[:, 0]
        far = np.abs(residual - np.median(residual))
        suspicion = _MAD * far / max(float(np.median(far)), np.finfo(float).tiny) - _FAR
    else:
        if values.shape[1] == 1:
            values = np.column_stack([-values[:, 0], values[:, 0]])
        if values.shape[1] != classes:
            return none
        codes = truth.astype(np.intp)
        usual = np.array([values[codes == k, k].mean() for k in np.unique(codes)])
        if len(usual) < classes:
            return none
        sure = values - usual
        sure[np.arange(len(rows)), codes] = -np.inf
        suspicion = sure.max(axis=1)
    order = np.argsort(-suspicion, kind="stable")
    return rows[order[suspicion[order] >= 0.0]]


def _suspects_of(target: Target, rows: Index, values: Array) -> Index:
    """The same for a target."""
    if target.classes is not None:
        codes: Array = np.asarray(target.codes)[rows]  # type: ignore[attr-defined]
        return _suspects(codes, len(target.classes), rows, values)
    truth = target.columns[rows]
    return _suspects(truth[:, 0] if truth.shape[1] == 1 else truth, 0, rows, values)


def _suspects_by_refits(asked: _Asked) -> Index:
    """The same by the held-out values of the folds, or of 5 folds."""
    y, is_labels = np.asarray(asked.y), is_classifier(asked.estimator)
    method: Method = "decision_function" if is_labels else "predict"
    tested = None if asked.splits is None else np.concatenate([test for _, test in asked.splits])
    if not hasattr(asked.estimator, method) or (
        tested is not None and not np.array_equal(np.sort(tested), np.arange(asked.n))
    ):
        return np.empty(0, dtype=np.intp)
    cv = 5 if asked.splits is None else list(asked.splits)
    values = cross_val_predict(
        asked.estimator, asked.X, asked.y, cv=cv, method=method, params=asked.params
    )
    classes = 0
    if is_labels:
        names, y = np.unique(y, return_inverse=True)
        classes = len(names)
    return _suspects(y, classes, np.arange(asked.n), values.reshape(asked.n, -1))


def _read_new(X: Matrix, data: Data) -> Matrix:
    """New rows, read as those of the fit."""
    rows = read_rows(X)
    if rows.shape[1] != data.X.shape[1]:
        raise ValueError(
            f"X_eval has {rows.shape[1]} columns, but X has {data.X.shape[1]}; pass the same"
        )
    return rows


# -- anything else: fitted again without each row that matters -------------------------------------


class _GivenSets(HeldOutSets):
    """Folds by their test rows and what they leave out of training."""

    def __init__(self, tests: Sequence[Index], helds: Sequence[Index]) -> None:
        self.tests, self.helds = tests, helds

    def get_n_splits(self, X: Matrix = None, y: Targets = None, groups: Targets = None) -> int:
        """See base class."""
        return len(self.tests)

    def held_out_sets(self, X: Matrix, y: Targets = None) -> TestedAndHeld:
        """See base class."""
        return self.tests, self.helds


def _refitted(asked: _Asked) -> Influence:
    """The estimator fitted again without each set of rows that may change it."""
    if asked.X_eval is not None:
        return _refitted_on_new_rows(asked)
    assert asked.splits is not None
    tests: list[Index] = []
    helds: list[Index] = []
    places: list[tuple[int, int]] = []
    sets, n = asked.units.sets, asked.n
    for k, (train, test) in enumerate(asked.splits):
        train, test = np.arange(n)[train], np.arange(n)[test]
        if len(np.unique(train)) < len(train):
            raise ValueError(f"cv: training rows of split {k} repeat; use folds without repeats")
        held = np.setdiff1d(np.arange(n), train)
        tests.append(test)
        helds.append(held)
        places.append((k, len(sets)))
        matters = _may_matter(asked, train)
        for g, own in enumerate(sets):
            if matters[own].any():
                tests.append(test)
                helds.append(np.union1d(held, own))
                places.append((k, g))
    fold, unit = np.array(places).T
    scores = np.empty((len(asked.splits), len(sets) + 1))
    if alone(asked.scorer) is not None and all(len(test) == 1 for test in tests):
        # The rows have one score together, and each deletion has held-out values of its own.
        lists = np.full(scores.shape, -1)
        lists[fold, unit] = np.arange(len(places))
        lists = np.where(lists < 0, lists[:, -1:], lists)
        columns, which = np.unique(lists, axis=1, return_inverse=True)
        each = [_scores_of(asked, tests, helds, own.tolist()) for own in columns.T]
        scores[:] = np.stack(each, axis=1)[:, which.reshape(-1)]
    else:
        found = _scores_of(asked, tests, helds, range(len(tests)))
        is_base = unit == len(sets)
        scores[:] = found[is_base][:, None]
        scores[fold, unit] = found
    return Influence(
        (scores[:, :-1] - scores[:, -1:]).mean(axis=0),
        asked.units.labels,
        float(scores[:, -1].mean()),
        "rows",
        True,
        f"{len(tests) - len(asked.splits)} fits without rows that matter, of "
        f"{len(sets) * len(asked.splits)} deletions in {len(asked.splits)} folds",
        _suspects_by_refits(asked),
    )


def _scores_of(
    asked: _Asked, tests: Sequence[Index], helds: Sequence[Index], some: Iterable[int]
) -> Array:
    """The scores of some of the folds that test and leave out these rows."""
    chosen = list(some)
    return asked.scores(asked.X, _GivenSets([tests[i] for i in chosen], [helds[i] for i in chosen]))


def _may_matter(asked: _Asked, train: Index) -> Array:
    """Which training rows a model may depend on: for SVC and SVR its support vectors.

    Only where nothing else than the rows themselves depends on which rows there are.
    """
    matters = np.zeros(asked.n, dtype=bool)
    matters[train] = True
    model = asked.estimator
    if type(model) not in (SVC, SVR) or model.gamma in ("scale", "auto"):
        return matters
    calibrates = getattr(model, "probability", False) not in (False, "deprecated")
    if getattr(model, "class_weight", None) == "balanced" or calibrates:
        return matters
    if asked.params.get("sample_weight") is not None:
        return matters
    fitted = fit_to(clone(model), asked.request([]), train)
    matters[:] = False
    matters[train[fitted.support_]] = True
    return matters


def _refitted_on_new_rows(asked: _Asked) -> Influence:
    """Effects on given rows, and the changes of their values."""
    n, sets = asked.n, asked.units.sets
    everything = np.arange(n)
    matters = _may_matter(asked, everything)
    chosen = [g for g, own in enumerate(sets) if matters[own].any()]
    request = asked.request([])
    trains = [np.setdiff1d(everything, sets[g]) for g in chosen]
    whole, *others = Parallel(n_jobs=asked.n_jobs)(
        delayed(_fit_and_score)(asked, request, train) for train in [everything, *trains]
    )
    score, values = whole
    effect = np.where(np.isfinite(score), np.zeros(len(sets)), np.nan)
    changes = np.zeros((len(sets), *values.shape))
    for g, (own_score, own_values) in zip(chosen, others, strict=True):
        effect[g] = own_score - score
        changes[g] = own_values - values if np.shape(own_values) == values.shape else np.nan
    return Influence(
        effect,
        asked.units.labels,
        float(score),
        "rows",
        True,
        f"{len(chosen)} fits without rows that matter, of {len(sets)} deletions",
        _suspects_by_refits(asked),
        changes,
    )


def _fit_and_score(asked: _Asked, request: Request, train: Index) -> tuple[float, Array]:
    """The score of a model of some rows, and its values of the evaluation rows."""
    try:
        model = fit_to(clone(asked.estimator), request, train)
    except ValueError:  # what is left has one class, for example
        return np.nan, np.asarray(np.nan)
    X_eval = asked.X_eval
    if get_tags(model).input_tags.pairwise:
        X_eval = X_eval[:, train]
    has_decisions = is_classifier(model) and hasattr(model, "decision_function")
    values = model.decision_function(X_eval) if has_decisions else None
    if values is None and not is_classifier(model):
        values = model.predict(X_eval)
    if values is None:
        values = model.predict_proba(X_eval)
    score = np.nan if asked.y_eval is None else asked.scorer(model, X_eval, asked.y_eval)
    return float(score), np.asarray(values, dtype=np.float64)


# -- columns ---------------------------------------------------------------------------------------

# How often each column is permuted.
_PERMUTATIONS = 5


def _of_columns(asked: _Asked, random_state: RandomState) -> Influence:
    """The effect of leaving each column out, or of permuting it among the scored rows."""
    n = asked.n
    splits: list[tuple[Index, Index | None]]
    if asked.splits is None:
        splits = [(np.arange(n), None)]
    else:
        splits = [(np.arange(n)[train], np.arange(n)[test]) for train, test in asked.splits]
    if get_tags(asked.estimator).input_tags.pairwise:
        raise ValueError(
            f"of={asked.of!r} needs columns, but X is a kernel matrix; pass the columns it was "
            "made of, and a kernel by name"
        )
    if asked.of == "columns":
        scores = np.array([_without(asked, own, splits) for own in asked.units.sets])
        base = _without(asked, np.empty(0, dtype=np.intp), splits)
        how = f"models without each of {len(scores)} columns or groups of them"
    else:
        scores, base = _permuted(asked, splits, check_random_state(random_state))
        how = f"{_PERMUTATIONS} permutations of each of {len(scores)} columns or groups of them"
    return Influence(scores - base, asked.units.labels, float(base), asked.of, True, how)


def _without(asked: _Asked, columns: Index, splits: Sequence[tuple[Index, Index | None]]) -> float:
    """The mean score of models without some columns."""
    kept = np.setdiff1d(np.arange(_width(asked.X)), columns)
    if not len(kept):
        raise ValueError("groups has one label for all columns, so that none would be left")
    X = safe_indexing(asked.X, kept, axis=1)
    if asked.splits is None:
        request = replace(asked.request([]), X=X)
        model = fit_to(clone(asked.estimator), request, np.arange(asked.n))
        X_eval = safe_indexing(asked.X_eval, kept, axis=1)
        return float(asked.scorer(model, X_eval, asked.y_eval))
    return float(asked.scores(X, splits).mean())


def _permuted(
    asked: _Asked,
    splits: Sequence[tuple[Index, Index | None]],
    random_state: np.random.RandomState,
) -> tuple[Array, float]:
    """Mean scores with each set of columns permuted among the scored rows, and those without."""
    request, sets = asked.request([]), asked.units.sets
    totals, base = np.zeros(len(sets)), 0.0
    for train, test in splits:
        model = fit_to(clone(asked.estimator), request, train)
        X, y = asked.X_eval, asked.y_eval
        if test is not None:
            X, y = safe_split(model, asked.X, asked.y, test, train)
        base += float(asked.scorer(model, X, y)) / len(splits)
        for g, own in enumerate(sets):
            for _ in range(_PERMUTATIONS):
                mixed = _with_mixed(X, own, random_state.permutation(num_samples(X)))
                totals[g] += float(asked.scorer(model, mixed, y)) / (_PERMUTATIONS * len(splits))
    return totals, base


def _with_mixed(X: Matrix, columns: Index, order: Index) -> Matrix:
    """The rows with some columns, together, in another order."""
    if hasattr(X, "iloc"):
        mixed = X.copy()
        for k in columns.tolist():
            mixed[mixed.columns[k]] = X.iloc[order, k].to_numpy()
        return mixed
    if hasattr(X, "tocsc"):
        mixed = X.tolil(copy=True)
        mixed[:, columns] = X.tocsc()[:, columns][order]
        return mixed.tocsr()
    mixed = np.array(X)
    mixed[:, columns] = mixed[order][:, columns]
    return mixed

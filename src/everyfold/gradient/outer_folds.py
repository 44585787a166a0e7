"""Descents on all rows and without each outer fold, and the choice between their points.

The descents begin at the best points of one small grid, get weaker shrinkage one after the other,
and are scored by the rows that were left out. Estimators of this library take one gamma per
feature; SVC and SVR take one gamma for all features, so that they become the last step of a
Pipeline that multiplies the columns first.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.metrics import check_scoring
from sklearn.pipeline import make_pipeline
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from everyfold._typing import Array, Estimator, Index, Matrix, Params, Scorer, Splitter, Targets
from everyfold.adapters.sklearn import fast_version_of, is_ours, read_estimator
from everyfold.engine.checkpoint import Checkpoint
from everyfold.engine.execution.executor import map_unordered
from everyfold.engine.planning.plan import SearchPlan
from everyfold.engine.request import MethodOptions
from everyfold.estimators.model import KernelChoice, Model
from everyfold.gradient.descent import Descent, Point
from everyfold.io import Folds
from everyfold.kernels import Linear, Scaled
from everyfold.kernels.pairwise import dense
from everyfold.linalg.memory import keep_pages
from everyfold.losses import Squared
from everyfold.operators import Dense, Nystrom
from everyfold.search.grid import FastGridSearchCV

# -- Estimators with the gammas that a descent has found -------------------------------------------

# The Cs that an SVM with new scales chooses from; of SVR, relative to the deviation of y. A wide
# range is cheap: all Cs of a fold are one path.
PENALTIES = np.logspace(-1.0, 3.0, 9)

_KERNELS = ("rbf", "laplacian", "polynomial", "poly", "linear")


class ScaledColumns(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Multiply every column by its factor.

    Parameters
    ----------
    factors : array of shape (n_features,)
    """

    def __init__(self, factors: Array) -> None:
        self.factors = factors

    def fit(self, X: Matrix, y: Targets = None) -> ScaledColumns:
        """Check the width of the rows."""
        scaled(validate_data(self, X, accept_sparse="csr", dtype=np.float64), self.factors)
        return self

    def transform(self, X: Matrix) -> Matrix:
        """The rows with scaled columns."""
        check_is_fitted(self)
        rows = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return scaled(rows, self.factors)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@dataclass(frozen=True)
class FitRows:
    """Rows, targets, weights (None for equal ones) and folds of a fit."""

    X: Matrix
    y: Targets
    weights: Array | None
    folds: Folds

    @property
    def splits(self) -> list[tuple[Index, Index]]:
        """The folds as pairs of row numbers."""
        return [(fold.train, fold.test) for fold in self.folds]


@dataclass(frozen=True)
class ScaledModel:
    """An estimator, and the model of squared loss by which its scales are found.

    Attributes
    ----------
    estimator : Estimator
    model : Model
        Of squared loss, with a kernel that has a gamma: the estimator's own, or the LS-SVM with
        the kernel of an SVM.
    has_ridge : bool
        Whether the ridge of the descent is the estimator's. An SVM chooses its C afterwards.
    is_linear : bool
        Whether the kernel is a linear one, which has scales as a polynomial of degree 1 only.
    """

    estimator: Estimator
    model: Model
    has_ridge: bool
    is_linear: bool

    def configured(self, point: Point, rows: FitRows, scoring: Scorer) -> Estimator:
        """The estimator with the scales of a point; or ours, if its class takes one gamma.

        An SVM stands behind scaled columns, with the best C by the folds of these rows.
        """
        if not self.has_ridge:
            svm = self._bare.set_params(C=self._penalty(point, rows, scoring))
            return make_pipeline(ScaledColumns(np.sqrt(point.gamma)), svm)
        choice, params = self.model.choice, params_of(point)
        takes_arrays = is_ours(self.estimator)
        if self.is_linear:
            params |= {"kernel": choice.kernel, "degree": choice.degree, "coef0": choice.coef0}
        is_plain = not self.is_linear and not isinstance(params["gamma"], np.ndarray)
        made = clone(self.estimator) if takes_arrays or is_plain else fast_version_of(self.model)
        return made.set_params(**params)

    def fit(
        self, estimator: Estimator, X: Matrix, y: Targets, weights: ArrayLike | None
    ) -> Estimator:
        """Fit what was configured."""
        prefix = "" if self.has_ridge else f"{estimator.steps[-1][0]}__"
        given = {} if weights is None else {f"{prefix}sample_weight": weights}
        return estimator.fit(X, y, **given)

    def tuned(self, estimator: Estimator, point: Point) -> Params:
        """The parameters of what was configured: gamma, and alpha or C."""
        params = params_of(point)
        if self.has_ridge:
            return params
        return {"gamma": params["gamma"], "C": estimator.steps[-1][1].C}

    def _penalty(self, point: Point, rows: FitRows, scoring: Scorer) -> float:
        """The best C of an SVM on scaled columns, by the folds of these rows."""
        unit = 1.0 if self.model.is_classifier else float(np.std(rows.y)) or 1.0
        rows = replace(rows, X=scaled(rows.X, np.sqrt(point.gamma)))
        found = search_for(self._bare, {"C": unit * PENALTIES}, rows.splits, scoring, rows)
        return float(found.cv_results_["params"][best_of(found)]["C"])

    @property
    def _bare(self) -> Estimator:
        """The SVM with gamma 1, as the columns are scaled already."""
        return clone(self.estimator).set_params(gamma=1.0)


def grid_search(
    estimator: Estimator, grid: Params, splits: Splitter, scoring: Scorer
) -> FastGridSearchCV:
    """A grid search on given splits, without a refit of the winner."""
    how = MethodOptions(n_confirm=0, keeps=None)
    return FastGridSearchCV(
        estimator, grid, cv=splits, scoring=scoring, refit=False, error_score="raise", method=how
    )


def search_for(
    estimator: Estimator, grid: Params, splits: Splitter, scoring: Scorer, rows: FitRows
) -> FastGridSearchCV:
    """The same, fitted; its remarks on the grid are not shown."""
    # An edge of the grid is left behind.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        found = grid_search(estimator, grid, splits, scoring)
        found.fit(rows.X, rows.y, sample_weight=rows.weights)
    return found


def best_of(found: FastGridSearchCV) -> int:
    """The number of the best candidate; the first of equals."""
    return int(np.argmin(found.cv_results_["rank_test_score"]))


def scaled(X: Matrix, factors: Array) -> Matrix:
    """A copy of the rows with scaled columns; raises unless there is a factor for each."""
    return Scaled(Linear(), tuple(np.asarray(factors, dtype=np.float64).tolist())).scale(X)


def params_of(point: Point) -> Params:
    """The parameters of a point: one gamma if all features have the same."""
    is_one = bool((point.gamma == point.gamma[0]).all())
    gamma = float(point.gamma[0]) if is_one else point.gamma.copy()
    return {"gamma": gamma, "alpha": point.ridge}


def read_scaled_model(estimator: Estimator) -> ScaledModel:
    """How an estimator is tuned; says what to use instead of one that cannot be."""
    name = type(estimator).__name__
    for attribute, words in _WRAPPED.items():
        if hasattr(estimator, attribute):
            raise ValueError(f"FastGradientSearchCV: {name} {words}")
    model = read_estimator(estimator)
    is_svm = not model.loss.is_smooth
    if is_svm:
        model = _squared(model)
    for is_so, words in _objections(estimator, model):
        if is_so:
            raise ValueError(f"FastGradientSearchCV: {name} {words}")
    is_linear = model.choice.kernel == "linear"
    if is_linear:
        model = replace(model, choice=KernelChoice("polynomial", 1.0, 1, 0.0))
    return ScaledModel(estimator, model, not is_svm, is_linear)


_WRAPPED = {
    "steps": (
        "has steps before the kernel; put them before the search: "
        "make_pipeline(StandardScaler(), FastGradientSearchCV(...))"
    ),
    "transformer": (
        "transforms y; put the search inside: "
        "TransformedTargetRegressor(FastGradientSearchCV(...), ...)"
    ),
}


def _squared(model: Model) -> Model:
    """The LS-SVM with the kernel of an SVM; its labels are read one versus rest."""
    weights = None if model.class_weight == "balanced" else model.class_weight
    choice = replace(model.choice, on_matrices=False)
    return Model(choice, Squared(), (1.0,), True, model.is_classifier, class_weight=weights)


def _objections(estimator: Estimator, model: Model) -> list[tuple[bool, str]]:
    """What a model may have that no scales are found for, and what to use instead."""
    operator = model.operator
    takes_operator = isinstance(operator, Nystrom | Dense) or operator in ("auto", "dense")
    return [
        (
            not model.loss.has_constant_curvature,
            "does not have squared loss; use LSSVC, LSSVR, SVC or SVR",
        ),
        (
            model.choice.kernel not in _KERNELS,
            f"has kernel={model.choice.kernel!r}, which has no gamma; use one of {_KERNELS}",
        ),
        (model.chooses_ridge, "chooses its own alpha; use Ridge"),
        (model.voting is not None, "has multi_class='ovo'; use multi_class='ovr'"),
        (model.class_weight == "balanced", "has class_weight='balanced'; pass a dict of weights"),
        # C is the ridge by another name, which "alpha" would not replace.
        (
            is_ours(estimator) and getattr(estimator, "C", None) is not None,
            "has C; use alpha = 1 / (2 C)",
        ),
        (len(model.ridges) > 1, "has several ridges; use one alpha"),
        (
            not takes_operator,
            f"has operator={operator!r}, which has no gradient; use 'auto', 'dense' or Nystrom",
        ),
        (
            isinstance(operator, Nystrom) and not _is_plain(operator),
            f"has operator={operator!r}, which has no gradient; use Nystrom(n_landmarks) alone",
        ),
    ]


def _is_plain(operator: Nystrom) -> bool:
    """Whether landmarks serve all folds, with all eigenvectors, to fit and to predict."""
    is_usual = operator.replaces == "kernel" and operator.predicts_with == "features"
    return is_usual and not operator.per_fold and operator.rank is None


# -- Descents without each outer fold --------------------------------------------------------------

# With more folds than MOST_OUTER_FOLDS, OUTER_FOLDS sets of them are left out by the outer
# cross-validation: each set costs descents of its own.
OUTER_FOLDS = 5
MOST_OUTER_FOLDS = 10


@dataclass(frozen=True)
class Outer:
    """Rows that are left out of a walk, and those of them that score it."""

    held: Index
    test: Index


def outer_folds(folds: Folds, random: np.random.RandomState) -> list[Outer]:
    """What the outer cross-validation leaves out: every fold, or of many folds several at a time.

    Sets of folds are drawn where the folds are a partition; else some folds are. The first folds
    of a time series have none before them to be tuned by, and are not left out.
    """
    found = [outer for outer in _sets(folds, random) if _has_inner(folds, outer)]
    if len(found) < 2:
        raise ValueError(
            f"the outer cross-validation leaves out two folds or more, but only {len(found)} of "
            f"{len(folds)} leave training and test rows for the others; use more folds"
        )
    return found


def _sets(folds: Folds, random: np.random.RandomState) -> list[Outer]:
    """Every fold, or a few of many, or sets of them; single rows have no R², and are in sets."""
    is_partition = len(np.unique(folds.held_rows)) == int(folds.sizes.sum())
    has_lone = is_partition and int(np.diff(folds.bounds).min()) == 1
    if len(folds) <= MOST_OUTER_FOLDS and not has_lone:
        return [Outer(held, test) for held, test in zip(folds.helds, folds.tests, strict=True)]
    numbers = random.permutation(len(folds))
    if not is_partition:
        return [Outer(folds.helds[i], folds.tests[i]) for i in numbers[:OUTER_FOLDS]]
    parts = np.array_split(numbers, max(1, min(OUTER_FOLDS, len(folds) // 2)))
    sets = [np.sort(np.concatenate([folds.helds[i] for i in part])) for part in parts]
    return [Outer(rows, rows) for rows in sets]


def _has_inner(folds: Folds, outer: Outer) -> bool:
    """Whether folds test rows that an outer fold does not leave out, and all of them train."""
    left = np.setdiff1d(np.arange(folds.n), outer.held)
    sizes = folds.restrict(left).sizes if left.size else np.empty(0, dtype=np.intp)
    return bool(sizes.size) and int(sizes.max()) < left.size


@dataclass(frozen=True)
class Walked:
    """The points of a walk, and what their models are worth on the rows that were left out.

    Attributes
    ----------
    points : sequence of Point
        The start, and an optimum for each strength of shrinkage so far.
    scores : sequence of float
        By the scorer; none for a walk on all rows.
    losses : sequence of float
        Mean squared errors of the values of labels, which tell more than a few wrong labels do;
        none for numbers, and for SVMs, whose values are no least squares.
    """

    points: Sequence[Point]
    scores: Sequence[float] = ()
    losses: Sequence[float] = ()

    def __add__(self, more: Walked) -> Walked:
        """What comes next, in place of a start that has no score yet."""
        points = [*self.points[: len(self.scores)], *more.points]
        return Walked(points, [*self.scores, *more.scores], [*self.losses, *more.losses])

    @property
    def worth(self) -> Array:
        """What tells most about the points; more is better."""
        return -np.array(self.losses) if len(self.losses) else np.array(self.scores)

    def record(self) -> Params:
        """Plain data, for a journal."""
        names = ("gamma", "ridge", "shrinkage", "error", "steps")
        own = {name: np.array([getattr(point, name) for point in self.points]) for name in names}
        return {**own, "scores": np.array(self.scores), "losses": np.array(self.losses)}

    @classmethod
    def of(cls, records: Sequence[Params], count: int, size: int, is_scored: bool = True) -> Walked:
        """From what a journal has: so many points with so many weights; errors if it has others."""
        names = ("gamma", "ridge", "shrinkage", "error", "steps")
        (record,) = records
        scores, losses = (np.asarray(record[name], np.float64) for name in ("scores", "losses"))
        is_right = np.shape(record["gamma"]) == (count, size)
        is_right &= scores.shape == (count * is_scored,) and losses.shape in (scores.shape, (0,))
        if not is_right:
            raise ValueError(f"these are not {count} points with {size} weights")
        columns = zip(*(record[name] for name in names), strict=True)
        points = [Point(g, float(r), float(s), float(e), int(k)) for g, r, s, e, k in columns]
        return cls(points, scores.tolist(), losses.tolist())


@dataclass(frozen=True)
class OuterDescents:
    """What all walks share.

    Attributes
    ----------
    scaled : ScaledModel
    descent : Descent
        On all rows.
    y, weights : arrays
        As they were given; weights may be None.
    scoring : str or callable, optional
        What outer folds are compared by.
    grid : dict
        Where walks may start: gammas and ridges.
    """

    scaled: ScaledModel
    descent: Descent
    y: Targets
    weights: Array | None
    scoring: Scorer
    grid: Params
    max_iter: int
    n_jobs: int | None

    @property
    def rows(self) -> FitRows:
        """Rows and folds as estimators take them."""
        return FitRows(self.descent.X, self.y, self.weights, self.descent.folds)

    def without(self, held: Index) -> OuterDescents:
        """The same on the rows that are not held out."""
        rows = self.others(held)
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, descent=self.descent.restrict(rows), y=self.y[rows], weights=weights)

    def others(self, held: Index) -> Index:
        """The rows that are not held out."""
        return np.setdiff1d(np.arange(self.descent.folds.n), held)

    # -- starts ------------------------------------------------------------------------------------

    def starts(self, outers: Sequence[Outer]) -> tuple[list[Point], SearchPlan]:
        """The best of the grid on all rows and without each outer fold; the plan of all.

        For a dense kernel and few folds it is one search: inner folds of outer folds are further
        removals from the same factorisations.
        """
        starts: list[Point] = []
        shared = self._shared_splits(outers)
        if shared is not None:
            splits = [split for own in shared for split in own]
            found = search_for(self._judged, self.grid, splits, self.scoring, self.rows)
            table, first = found.cv_results_, 0
            for own in shared:
                last = first + len(own)
                scores = [table[f"split{i}_test_score"] for i in range(first, last)]
                number = int(np.argmax(np.mean(scores, axis=0)))
                starts.append(self._point(table["params"][number]))
                first = last
            return starts, found.plan_
        plan = None
        for held in (np.empty(0, dtype=np.intp), *(outer.held for outer in outers)):
            part = self.without(held) if held.size else self
            found = search_for(part._judged, part.grid, part.rows.splits, part.scoring, part.rows)
            plan = plan or found.plan_
            starts.append(part._point(found.cv_results_["params"][best_of(found)]))
        assert plan is not None
        return starts, plan

    def plan(self, outers: Sequence[Outer]) -> SearchPlan:
        """The plan of the search for the starts; that on all rows stands for several searches."""
        groups = self._shared_splits(outers) or [self.rows.splits]
        splits = [split for own in groups for split in own]
        made = grid_search(self._judged, self.grid, splits, self.scoring)
        return made.plan(self.descent.X, self.y, sample_weight=self.weights)

    @property
    def _judged(self) -> Estimator:
        """The estimator of the grid: every candidate is evaluated on the full kernel, if it may."""
        model = self.scaled.model
        return fast_version_of(
            replace(model, operator="dense") if model.operator == "auto" else model
        )

    def _shared_splits(self, outers: Sequence[Outer]) -> list[list[tuple[Index, Index]]] | None:
        """The folds of all rows and of each outer fold; None if they are not to be shared."""
        folds = self.descent.folds
        if len(outers) != len(folds) or isinstance(self.scaled.model.operator, Nystrom):
            return None
        groups = [self.rows.splits]
        for outer in outers:
            rows = self.others(outer.held)
            groups.append([(rows[f.train], rows[f.test]) for f in folds.restrict(rows)])
        smallest = min(len(test) for splits in groups for _, test in splits)
        return groups if smallest > 1 else None  # single rows may have other scores

    def _point(self, params: Params) -> Point:
        gamma = np.broadcast_to(np.asarray(params["gamma"]), (self.descent.X.shape[1],))
        return Point(gamma.astype(np.float64), float(params["alpha"]))

    # -- walks -------------------------------------------------------------------------------------

    def run(
        self,
        outers: Sequence[Outer],
        walked: Sequence[Walked],
        shrinkages: Sequence[float],
        journal: Checkpoint | None,
    ) -> Iterator[tuple[int, Walked]]:
        """All walks by number with further points, as they get done; a journal's come first."""
        left, names = [], [f"fold {k}, {list(shrinkages)}" for k in range(len(outers))]
        for k, name in enumerate(names):
            count = len(walked[k].points) - len(walked[k].scores) + len(shrinkages)
            read = partial(Walked.of, count=count, size=len(walked[k].points[0].gamma))
            known = None if journal is None else journal.find_record(name, read)
            if known is None:
                left.append(k)
            else:
                yield k, walked[k] + known
        if not left:
            return
        work = partial(self._walk_numbered, outers, walked, shrinkages)
        for k, more in map_unordered(
            work, left, self.n_jobs, self.descent.folds.n, pieces=len(left)
        ):
            if journal is not None:
                journal.append_record(names[k], [more.record()])
            yield k, walked[k] + more

    def _walk_numbered(
        self,
        outers: Sequence[Outer],
        walked: Sequence[Walked],
        shrinkages: Sequence[float],
        k: int,
    ) -> Walked:
        """One of the walks, in whatever process."""
        keep_pages()
        return self.walk(outers[k], walked[k], shrinkages)

    def walk(self, outer: Outer, before: Walked, shrinkages: Sequence[float]) -> Walked:
        """The next points on the rows that are not left out, scored by those that are.

        Each descent begins where the one before ended.
        """
        own = self.without(outer.held)
        descent = own.descent.anchored(before.points[0])
        points = [descent.known(before.points[0]), *before.points[1:]]
        for shrinkage in shrinkages:
            points.append(descent.walk(points[0], points[-1], shrinkage, self.max_iter))
        points = points[len(before.scores) :]
        fitted = [own._fitted(point) for point in points]
        scores = [self._score(estimator, outer) for estimator in fitted]
        if not (self.scaled.has_ridge and self.scaled.model.is_classifier):
            return Walked(points, scores)
        return Walked(points, scores, [self._loss(estimator, outer) for estimator in fitted])

    def finish(
        self,
        start: Point,
        found: Sequence[Walked],
        best: int,
        journal: Checkpoint | None,
    ) -> list[Point]:
        """The points of all rows: amid those of the outer folds, and from there on for the best."""
        keep_pages()
        read = partial(
            Walked.of, count=len(found[0].points), size=len(start.gamma), is_scored=False
        )
        known = None if journal is None else journal.find_record("all rows", read)
        if known is not None:
            return list(known.points)
        descent = self.descent.anchored(start)
        _, *optima = zip(*(walked.points for walked in found), strict=True)
        points = [descent.known(point) for point in (start, *map(Point.amid, optima))]
        if best:
            strength = points[best].shrinkage
            points[best] = descent.walk(points[0], points[best], strength, self.max_iter)
        if journal is not None:
            journal.append_record("all rows", [Walked(points).record()])
        return points

    def _fitted(self, point: Point) -> Estimator:
        estimator = self.scaled.configured(point, self.rows, self.scoring)
        return self.scaled.fit(estimator, self.descent.X, self.y, self.weights)

    def _score(self, estimator: Estimator, outer: Outer) -> float:
        """What a model scores on the rows that were left out of it."""
        scorer = check_scoring(estimator, scoring=self.scoring)
        given = {name: value[outer.test] for name, value in self._scored_with.items()}
        return float(scorer(estimator, self.descent.X[outer.test], self.y[outer.test], **given))

    def _loss(self, estimator: Estimator, outer: Outer) -> float:
        """The mean squared error of a classifier's values on these rows."""
        codes = self.descent.problem.y[outer.test]
        values = estimator.decision_function(self.descent.X[outer.test]).reshape(codes.shape)
        return float(np.mean((values - codes) ** 2))

    @cached_property
    def _scored_with(self) -> Params:
        """Weights, where scikit-learn's searches hand them on to the scorer."""
        if self.weights is None:
            return {}
        asked = grid_search(fast_version_of(self.scaled.model), self.grid, None, self.scoring)
        return dict(asked._get_routed_params_for_fit({"sample_weight": self.weights}).scorer.score)


# -- Which point of a path is chosen by the scores of outer folds, and the path in words ----------


# Standard errors by which a point has to be better. If one fold alone differs, its gain is exactly
# one standard error, which is not to be enough.
MARGIN = 1.0 + 1e-9


@dataclass(frozen=True)
class OuterChoice:
    """The walks of all outer folds, and the point that they speak for; 0 is the start."""

    walks: Sequence[Walked]
    scores: Array
    losses: Array
    gain: Array
    error: Array
    best: int

    @classmethod
    def of(cls, walks: Sequence[Walked]) -> OuterChoice:
        """The best mean score, if it and the losses are better by more than a standard error."""
        scores = np.array([walked.scores for walked in walks])
        losses = np.array([walked.losses for walked in walks])
        gain, error = _gains(scores)
        is_better = gain > MARGIN * error
        if losses.size:
            fall, its_error = _gains(-losses)
            is_better &= fall > MARGIN * its_error
        best = int(np.argmax(np.where(is_better, gain, 0.0)))
        return cls(walks, scores, losses, gain, error, best)

    def path(self, points: Sequence[Point]) -> list[Params]:
        """All that is known of the points of all rows."""
        return [
            {
                **{"shrinkage": point.shrinkage, **params_of(point), "cv_error": point.error},
                **{"outer_scores": self.scores[:, k], "gain": self.gain[k]},
                **{"standard_error": self.error[k], "is_chosen": k == self.best},
                "outer_params": [params_of(walked.points[k]) for walked in self.walks],
                **({"outer_losses": self.losses[:, k]} if self.losses.size else {}),
            }
            for k, point in enumerate(points)
        ]


def _gains(scores: Array) -> tuple[Array, Array]:
    """By how much points are better than the start, (folds, points), and the standard error."""
    gains = scores - scores[:, :1]
    return gains.mean(axis=0), gains.std(axis=0, ddof=1) / math.sqrt(len(gains))


def shares_of(descent: Descent, gamma: Array) -> Array:
    """The share of each feature: its gamma times its spread."""
    X = dense(descent.X)
    spread = X.std(axis=0) if descent.model.choice.kernel == "laplacian" else X.var(axis=0)
    share: Array = gamma * spread
    return share / (float(share.sum()) or 1.0)


def summary_of(path: Sequence[Params], n_outer: int) -> str:
    """The path as a table in words."""
    lines = [f"{'shrinkage':>10} {'CV error':>10} {'outer score':>12} {'gain':>10} {'error':>9}"]
    for k, entry in enumerate(path):
        name = "start" if k == 0 else f"{entry['shrinkage']:g}"
        mark = "  <- chosen" if entry["is_chosen"] else ""
        lines.append(
            f"{name:>10} {entry['cv_error']:>10.4g} {entry['outer_scores'].mean():>12.4g} "
            f"{entry['gain']:>10.3g} {entry['standard_error']:>9.3g}{mark}"
        )
    return "\n".join([*lines, f"{n_outer} outer folds; gain and its standard error in pairs"])

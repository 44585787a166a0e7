"""Every length scale at once: a search along the gradient of the exact cross-validation error."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, validate_data

from everyfold.kernels import gamma_of_features, resolve_gamma
from everyfold.models.adapters import read_estimator, twin_of
from everyfold.models.model import Model, read_ridge, read_weights
from everyfold.operators import Dense
from everyfold.operators.memory import check_memory
from everyfold.rows import Folds
from everyfold.selection.descent import Descent, Point
from everyfold.selection.grid import FastGridSearchCV
from everyfold.types import (
    AnyArray,
    Array,
    Estimator,
    Index,
    Matrix,
    Params,
    RandomState,
    Scorer,
    Splitter,
    Targets,
)

__all__ = ["FastGradientSearchCV"]

SHRINKAGES = (0.1, 0.01, 0.001)
"""Strengths that "auto" tries, besides staying at the start."""

START_GAMMAS = np.logspace(-2.0, 1.0, 7)
START_RIDGES = np.logspace(-5.0, 1.0, 10)
"""The isotropic grid: gammas relative to that of ``gamma="scale"``, and ridges."""

OUTER_FOLDS = 5
MOST_OUTER_FOLDS = 10
"""With more folds than this, these many sets of them are left out by the outer cross-validation."""

_KERNELS = ("rbf", "laplacian", "polynomial", "poly")


def _has(name: str) -> Any:
    """Whether the estimator, fitted or not, has a method."""

    def check(search: FastGradientSearchCV) -> bool:
        getattr(getattr(search, "best_estimator_", search.estimator), name)
        return True

    return check


class FastGradientSearchCV(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    r"""Tune the gamma of every feature, and the ridge, by the gradient of the exact CV error.

    A grid tunes one gamma for all features. Here each feature has its own, and L-BFGS-B follows the
    gradient of the squared error of all held-out values, which costs about as much as one candidate
    of a grid. So many parameters would over-fit that error; an outer cross-validation therefore
    chooses how strongly the gammas are pulled together, and whether they differ at all.

    Parameters
    ----------
    estimator : LSSVR, LSSVC, KernelRegressor, KernelClassifier or KernelRidge
        With squared loss and an rbf, laplacian or polynomial kernel.
    start : "auto" or dict, default="auto"
        "auto": the best of a grid of 7 gammas (the same for all features) and 10 ridges, by
        ``scoring``. Or ``{"gamma": ..., "alpha": ...}``; what is missing is the estimator's own.
    parameters : tuple, default=("gamma", "alpha")
        What is tuned; "alpha" is the ridge.
    per_feature : bool, default=True
        Whether each feature has a gamma of its own.
    shrinkage : "auto" or float, default="auto"
        The factor τ of the penalty :math:`\tau\,\mathrm{mean}_j(\log\gamma_j -
        \overline{\log\gamma})^2` beside the error relative to the variance of y. "auto" tries 0.1,
        0.01 and 0.001. A number is tried alone; inf stays at the start.
    loss : {"auto", "squared"}, default="auto"
        The error that is descended: squared, of labels coded -1 and +1 too.
    cv : int, splitter or iterable of splits, default=None
        Folds that only remove rows. Of the outer cross-validation each leaves its rows out (five
        sets of folds, if there are more than 10), and the others are the inner folds.
    max_iter : int, default=60
        Most iterations for each strength of shrinkage.
    scoring : str or callable, default=None
        What the outer cross-validation compares; None is the estimator's own score.
    refit : bool, default=True
        Whether the winner is fitted to all rows.
    random_state : int, RandomState or None, default=None
        Of the sets of folds, if there are more than 10.
    verbose : int, default=0
        Whether to print the path.
    n_jobs : int, default=None
        Outer folds at a time.

    Attributes
    ----------
    best_params_ : dict
        "gamma", an array where features differ, and "alpha".
    best_estimator_ : estimator
        Fitted to all rows. A KernelRidge takes one gamma only: where features differ it is the
        :class:`KernelRegressor` of the same model.
    best_score_ : float
        The mean score of the outer folds, of rows that neither gamma nor ridge have seen.
    best_index_ : int
        Which entry of ``path_`` was chosen; 0 is the start.
    feature_weights_ : dict
        The share of each feature in the distances (or products) of the kernel, by name of the
        column if X has names, else by number; they sum up to 1.
    path_ : list of dict
        For each strength of shrinkage: "shrinkage", "gamma", "alpha", "cv_error" (the tuned error
        of all rows), "outer_scores", "gain" and "standard_error" (over the start, in pairs).
    summary_ : str
        The path in words.
    n_iter_ : int
        Iterations on all rows, of all strengths together.
    n_features_in_, feature_names_in_, classes_
        As in scikit-learn.

    Notes
    -----
    **Choice.** The best mean outer score wins if it exceeds that of the start by more than one
    standard error of the paired differences over the outer folds; else the start stays. The error
    that was tuned has no say in it.
    **Cost** up to ``max_iter`` candidates for each strength, times one more than the outer folds;
    each one factorisation of n rows, and n² flops a feature. Four dense n×n matrices.
    **Exact?** Error and gradient are those of refitting every fold; the minimum is a local one.

    Examples
    --------
    >>> from everyfold import FastGradientSearchCV, LSSVR
    >>> random = np.random.default_rng(0)
    >>> X = random.normal(size=(120, 4))
    >>> y = np.sin(3.0 * X[:, 0]) + 0.1 * random.normal(size=120)
    >>> search = FastGradientSearchCV(LSSVR(), cv=5).fit(X, y)
    >>> {feature: round(share) for feature, share in search.feature_weights_.items()}
    {0: 1, 1: 0, 2: 0, 3: 0}
    """

    def __init__(
        self,
        estimator: Estimator,
        *,
        start: Literal["auto"] | Params = "auto",
        parameters: Sequence[str] = ("gamma", "alpha"),
        per_feature: bool = True,
        shrinkage: float | Literal["auto"] = "auto",
        loss: Literal["auto", "squared"] = "auto",
        cv: Splitter = None,
        max_iter: int = 60,
        scoring: Scorer = None,
        refit: bool = True,
        random_state: RandomState = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.start = start
        self.parameters = parameters
        self.per_feature = per_feature
        self.shrinkage = shrinkage
        self.loss = loss
        self.cv = cv
        self.max_iter = max_iter
        self.scoring = scoring
        self.refit = refit
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    def fit(
        self,
        X: Matrix,
        y: Targets,
        *,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> FastGradientSearchCV:
        """Descend, choose the shrinkage, and fit the winner to all rows.

        Parameters
        ----------
        X : {array, CSR matrix, data frame} of shape (n_samples, n_features)
        y : array of shape (n_samples,) or (n_samples, n_targets)
        groups : array of shape (n_samples,), optional
            For the splitter.
        sample_weight : array of shape (n_samples,), optional
            Weight 0 is the same as leaving the row out of every fit.

        Returns
        -------
        self
        """
        model = self._check()
        is_label = model.is_classifier
        rows, read = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64, multi_output=not is_label,
            y_numeric=not is_label,
        )  # fmt: skip
        work = self._work(model, rows, read, groups, sample_weight)
        sets = _outer_sets(work.descent.folds, check_random_state(self.random_state))
        walks = Parallel(n_jobs=self.n_jobs)(
            delayed(_walk)(self, work, held) for held in [np.empty(0, dtype=np.intp), *sets]
        )
        scores = np.array([walk.scores for walk in walks[1:]])
        self._keep(work, walks[0].points, scores)
        self.n_iter_ = sum(point.steps for point in walks[0].points)
        if is_label:
            self.classes_ = np.unique(read)
        if self.refit:
            best = self._configured(walks[0].points[self.best_index_])
            weights = {} if sample_weight is None else {"sample_weight": sample_weight}
            self.best_estimator_ = best.fit(X, y, **weights)
        if self.verbose:
            print(self.summary_)
        return self

    # -- reading -----------------------------------------------------------------------------------

    def _check(self) -> Model:
        """The model of the estimator; raises what is wrong with the parameters, before any work."""
        unknown = set(self.parameters) - {"gamma", "alpha"}
        if isinstance(self.parameters, str) or unknown or not self.parameters:
            raise ValueError(
                f"parameters={self.parameters!r} is not allowed; use ('gamma', 'alpha'), "
                "('gamma',) or ('alpha',)"
            )
        if self.loss not in ("auto", "squared"):
            raise ValueError(f"loss={self.loss!r} is not known; use 'auto' or 'squared'")
        shrinkage = self.shrinkage
        is_number = isinstance(shrinkage, Real) and not math.isnan(shrinkage) and shrinkage >= 0.0
        if shrinkage != "auto" and not is_number:
            raise ValueError(f"shrinkage={shrinkage!r} is not allowed; use 'auto' or a number >= 0")
        if not isinstance(self.max_iter, int) or self.max_iter < 1:
            raise ValueError(f"max_iter={self.max_iter!r} is not allowed; use an integer >= 1")
        if self.start != "auto" and not isinstance(self.start, Mapping):
            raise ValueError(f"start={self.start!r} is not known; use 'auto' or a dictionary")
        if self.start != "auto" and set(self.start) - {"gamma", "alpha"}:
            raise ValueError(f"start has {sorted(self.start)}; only 'gamma' and 'alpha' are known")
        if not (self.scoring is None or isinstance(self.scoring, str) or callable(self.scoring)):
            raise ValueError(f"scoring={self.scoring!r} is not one scorer; pass its name")
        return _read_model(self.estimator)

    def _work(
        self,
        model: Model,
        X: Matrix,
        y: Targets,
        groups: ArrayLike | None,
        sample_weight: ArrayLike | None,
    ) -> _Work:
        """Rows, target and folds, read once."""
        n = X.shape[0]
        check_memory(n, n)
        splitter = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        folds = Folds.from_splits(splitter.split(X, y, groups), n)
        if folds.odd or len(folds) < 2:
            raise ValueError(
                f"cv={self.cv!r} must have two or more splits, which only remove rows: no test row "
                "in its training set, and no training row twice"
            )
        target, weights = model.target(y), read_weights(sample_weight, n)
        model.check_labels(target)
        (problem,) = model.problems(target, weights)
        names = frozenset(self.parameters)
        descent = Descent(model, problem, X, folds, names, is_tied=not self.per_feature)
        return _Work(descent, y, weights)

    def _start(self, work: _Work) -> Point:
        """Where the descent begins: given, or the best of an isotropic grid."""
        descent = work.descent
        own = {"gamma": self.estimator.gamma, "alpha": self.estimator.alpha}
        if self.start != "auto":
            own.update(self.start)
        else:
            own.update(self._search(work))
        gammas = gamma_of_features(own["gamma"])
        if gammas is None:
            gammas = (resolve_gamma(own["gamma"], descent.X),) * descent.X.shape[1]
        (ridge,) = read_ridge(own["alpha"])
        if len(gammas) != descent.X.shape[1] or min(gammas) <= 0.0 or ridge <= 0.0:
            raise ValueError(
                f"the start, gamma={own['gamma']!r} and alpha={own['alpha']!r}, must have numbers "
                f"> 0 and one gamma, or one for each of the {descent.X.shape[1]} features"
            )
        return Point(np.array(gammas), ridge)

    def _search(self, work: _Work) -> Params:
        """The best of the isotropic grid."""
        descent = work.descent
        centre = _centre(descent.model, descent.X)
        grid: Params = {"gamma": centre * START_GAMMAS, "alpha": START_RIDGES}
        grid = {name: grid[name] for name in grid if name in descent.parameters}
        splits = [(fold.train, fold.test) for fold in descent.folds]
        search = FastGridSearchCV(
            self.estimator, grid, cv=splits, scoring=self.scoring, refit=False, error_score="raise"
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an edge of the grid is left behind
            search.fit(descent.X, work.y, sample_weight=work.weights)
        best = int(np.argmin(search.cv_results_["rank_test_score"]))
        return dict(search.cv_results_["params"][best])

    @property
    def _shrinkages(self) -> tuple[float, ...]:
        """The strengths to be tried besides the start."""
        if not self.per_feature or "gamma" not in self.parameters:
            return () if self.shrinkage == math.inf else (0.0,)
        if self.shrinkage == "auto":
            return SHRINKAGES
        return () if self.shrinkage == math.inf else (float(self.shrinkage),)

    # -- the answer --------------------------------------------------------------------------------

    def _params(self, point: Point) -> Params:
        """The parameters of a point: one gamma if all features have the same."""
        is_one = bool((point.gamma == point.gamma[0]).all())
        gamma = float(point.gamma[0]) if is_one else point.gamma.copy()
        return {"gamma": gamma, "alpha": point.ridge}

    def _configured(self, point: Point) -> Estimator:
        """The estimator of a point; a twin of it, if its own class takes one gamma only."""
        params = self._params(point)
        is_ours = hasattr(self.estimator, "_model")
        if is_ours or not isinstance(params["gamma"], np.ndarray):
            return clone(self.estimator).set_params(**params)
        return twin_of(read_estimator(self.estimator)).set_params(**params)

    def _keep(self, work: _Work, points: Sequence[Point], scores: Array) -> None:
        """Choose from the scores of the outer folds (folds, points), and say what was found."""
        gains = scores - scores[:, :1]
        gain, error = gains.mean(axis=0), gains.std(axis=0, ddof=1) / math.sqrt(len(gains))
        is_better = (gain > error) & (gain > 0.0)
        self.best_index_ = int(np.argmax(np.where(is_better, gain, 0.0)))
        best = points[self.best_index_]
        self.best_params_ = self._params(best)
        self.best_score_ = float(scores[:, self.best_index_].mean())
        self.path_ = [
            {
                **{"shrinkage": point.shrinkage, **self._params(point), "cv_error": point.error},
                **{"outer_scores": scores[:, k], "gain": gain[k], "standard_error": error[k]},
            }
            for k, point in enumerate(points)
        ]
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        self.feature_weights_ = dict(zip(names, _shares(work.descent, best.gamma), strict=True))
        self.summary_ = _summary(self.path_, self.best_index_, len(scores))

    @property
    def _fitted(self) -> Estimator:
        check_is_fitted(self, "best_index_")
        if not self.refit:
            raise AttributeError("refit=False: no estimator was fitted; pass refit=True")
        return self.best_estimator_

    def predict(self, X: Matrix) -> AnyArray:
        """Predict by the winner."""
        predicted: AnyArray = self._fitted.predict(X)
        return predicted

    @available_if(_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Matrix) -> AnyArray:
        """Values of the winner."""
        values: AnyArray = self._fitted.decision_function(X)
        return values

    def score(self, X: Matrix, y: Targets) -> float:
        """The score of the winner by ``scoring``."""
        scorer = check_scoring(self.estimator, scoring=self.scoring)
        return float(scorer(self._fitted, X, y))

    def __sklearn_tags__(self) -> Any:
        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = own.estimator_type
        tags.classifier_tags, tags.regressor_tags = own.classifier_tags, own.regressor_tags
        tags.target_tags, tags.input_tags.sparse = own.target_tags, True
        return tags


@dataclass(frozen=True)
class _Work:
    """What a walk needs: the error of all rows, and y and weights as they were given."""

    descent: Descent
    y: Targets
    weights: Array

    def restrict(self, rows: Index) -> _Work:
        return _Work(self.descent.restrict(rows), self.y[rows], self.weights[rows])


@dataclass(frozen=True)
class _Walked:
    """The points of a path, and the scores of their models on rows that were left out."""

    points: Sequence[Point]
    scores: Sequence[float]


def _walk(search: FastGradientSearchCV, work: _Work, held: Index) -> _Walked:
    """The path of the rows that are not held out, scored by the others."""
    train = np.setdiff1d(np.arange(len(work.weights)), held)
    inner = work.restrict(train) if held.size else work
    points = inner.descent.walk(search._start(inner), search._shrinkages, search.max_iter)
    scorer, scores = check_scoring(search.estimator, scoring=search.scoring), []
    for point in points if held.size else ():
        model = search._configured(point)
        model.fit(inner.descent.X, inner.y, sample_weight=inner.weights)
        scores.append(float(scorer(model, work.descent.X[held], work.y[held])))
    return _Walked(points, scores)


def _outer_sets(folds: Folds, random: np.random.RandomState) -> list[Index]:
    """The rows that the outer cross-validation leaves out: those of a fold, or of several."""
    if len(folds) <= MOST_OUTER_FOLDS:
        return list(folds.helds)
    numbers = random.permutation(len(folds))
    is_partition = len(np.unique(np.concatenate(folds.helds))) == int(folds.sizes.sum())
    if not is_partition:
        return [folds.helds[i] for i in numbers[:OUTER_FOLDS]]
    parts = np.array_split(numbers, OUTER_FOLDS)
    return [np.sort(np.concatenate([folds.helds[i] for i in part])) for part in parts]


def _read_model(estimator: Estimator) -> Model:
    """The model of an estimator that has a gradient; says what to use instead of others."""
    name = type(estimator).__name__
    if hasattr(estimator, "steps"):
        raise ValueError(
            f"{name} has steps before the kernel; put them before the search: "
            "make_pipeline(StandardScaler(), FastGradientSearchCV(...))"
        )
    model = read_estimator(estimator)
    for is_so, words in (
        (
            not model.loss.has_constant_curvature,
            "has no closed form; tune LSSVC or LSSVR, and give gamma to a machine that takes an "
            "array",
        ),
        (model.choice.kernel not in _KERNELS, f"has kernel={model.choice.kernel!r}, without gamma"),
        (model.voting is not None, "decides by votes of pairs; use multi_class='ovr'"),
        (model.class_weight == "balanced", "has balanced class weights; use fixed ones"),
        (getattr(estimator, "C", None) is not None, "has C; use alpha = 1 / (2 C)"),
        (len(model.ridges) > 1, "has several ridges; use one alpha"),
        (
            not isinstance(model.operator, Dense) and model.operator not in ("auto", "dense"),
            f"has operator={model.operator!r}, which has no gradient; use 'auto' or 'dense'",
        ),
    ):
        if is_so:
            raise ValueError(f"FastGradientSearchCV: {name} {words}")
    return model


def _centre(model: Model, X: Matrix) -> float:
    """A gamma in the middle of the usual range: that of "scale", in units of the kernel."""
    scale = resolve_gamma("scale", X)
    if model.choice.kernel != "laplacian":
        return scale
    n_features = int(X.shape[1])
    return math.sqrt(scale * n_features) / n_features


def _shares(descent: Descent, gamma: Array) -> list[float]:
    """The share of each feature: its gamma times its spread."""
    X = descent.X.toarray() if hasattr(descent.X, "toarray") else descent.X
    spread = X.std(axis=0) if descent.model.choice.kernel == "laplacian" else X.var(axis=0)
    share = gamma * spread
    total = float(share.sum())
    return [float(value) for value in (share / total if total > 0.0 else share)]


def _summary(path: Sequence[Params], best: int, n_outer: int) -> str:
    """The path as a table in words."""
    lines = [f"{'shrinkage':>10} {'CV error':>10} {'outer score':>12} {'gain':>10} {'error':>9}"]
    for k, entry in enumerate(path):
        name = "start" if k == 0 else f"{entry['shrinkage']:g}"
        mark = "  <- chosen" if k == best else ""
        lines.append(
            f"{name:>10} {entry['cv_error']:>10.4g} {entry['outer_scores'].mean():>12.4g} "
            f"{entry['gain']:>10.3g} {entry['standard_error']:>9.3g}{mark}"
        )
    return "\n".join([*lines, f"{n_outer} outer folds; gain and its standard error in pairs"])

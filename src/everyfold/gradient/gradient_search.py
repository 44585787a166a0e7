"""``FastGradientSearchCV``: one gamma per feature, by descent on the exact cross-validation error.

The class reads its parameters and data, and runs the descents of ``outer_folds``; an outer
cross-validation chooses how strongly the gammas are pulled together. The kernel of a Gaussian
process is tuned by the scores of its held-out distributions: where scikit-learn maximises the
likelihood of all rows, L-BFGS-B climbs the mean score of the rows that each fold leaves out, within
the bounds of the kernel.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from inspect import signature
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Kernel
from sklearn.metrics import check_scoring, get_scorer
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from everyfold._typing import (
    AnyArray,
    Array,
    Estimator,
    Matrix,
    Params,
    RandomState,
    Scorer,
    Splitter,
    Targets,
)
from everyfold.adapters.process_kernels import read_process
from everyfold.engine.checkpoint import Checkpoint, check_folds_repeat, fingerprint_of, opened_file
from everyfold.engine.code_digests import CheckpointError
from everyfold.engine.execution.executor import local_threads
from everyfold.engine.planning.costs import COSTS, Cost, CostModel, Workload, feature_seconds
from everyfold.engine.planning.plan import SearchPlan
from everyfold.engine.planning.squared_loss import METHODS
from everyfold.engine.renamed_parameters import RenamedParameters
from everyfold.estimators.model import Model, original, read_ridge, read_weights
from everyfold.gaussian_process.held_out_gaussians import SCORES, HeldOutScore
from everyfold.gradient.descent import Descent, Point
from everyfold.gradient.outer_folds import (
    MOST_OUTER_FOLDS,
    Outer,
    OuterChoice,
    OuterDescents,
    ScaledModel,
    Walked,
    outer_folds,
    read_scaled_model,
    shares_of,
    summary_of,
)
from everyfold.io import Folds
from everyfold.io.base import check_in_memory
from everyfold.judge.verdicts import ResultView
from everyfold.kernels import gamma_of_features, resolve_gamma
from everyfold.linalg.blas import blas_threads
from everyfold.linalg.memory import check_workers
from everyfold.operators import Nystrom
from everyfold.plotting import FeatureWeightsDisplay
from everyfold.plotting.score_table import Axes

# A climb ends where a step gains less than this share of the score: differences that small are far
# within the standard error of a mean over folds.
TOLERANCE = 1e-6

# Iterations by default, which only end climbs that hardly gain: 12 hyper-parameters of the bundled
# diabetes data took 33 steps.
MOST_STEPS = 100

# What stands for the score, in place of NaN, where a kernel matrix is not definite.
_HOPELESS = -1e10


# -- Gaussian processes: climbs of the score of held-out distributions -----------------------------


@dataclass(frozen=True)
class Climbed:
    """Where a climb has ended.

    Attributes
    ----------
    kernel : Kernel
    score : float
        The mean held-out score, more is better; -inf if no kernel matrix was definite.
    start : Kernel
    start_score : float
    steps : int
        Iterations.
    evaluations : int
        Scores with their gradients.
    """

    kernel: Kernel
    score: float
    start: Kernel
    start_score: float
    steps: int
    evaluations: int


def is_process(estimator: Estimator) -> bool:
    """Whether an estimator is scikit-learn's GaussianProcessRegressor."""
    return original(type(estimator)) is original(GaussianProcessRegressor)


def climb_process(
    estimator: Estimator, X: Matrix, Y: Array, folds: Folds, name: str, max_iter: int
) -> list[Climbed]:
    """Climbs from the kernel of the estimator, and from as many random ones as it asks for.

    Random kernels are drawn within the bounds as scikit-learn draws them: ``n_restarts_optimizer``
    of them, by the estimator's ``random_state``.
    """
    process = read_process(clone(estimator).set_params(optimizer=None))
    kernel, score = process.kernel, HeldOutScore(process, X, Y, folds, name)
    if kernel.n_dims == 0:
        raise ValueError(
            f"kernel={kernel} has no hyper-parameters to tune: all of their bounds are 'fixed'; "
            "give one of them bounds"
        )
    starts = [kernel.theta]
    if estimator.n_restarts_optimizer:
        if not np.isfinite(kernel.bounds).all():
            raise ValueError(
                f"n_restarts_optimizer={estimator.n_restarts_optimizer} draws kernels within their "
                "bounds, which have to be finite"
            )
        random = check_random_state(estimator.random_state)
        low, high = kernel.bounds.T
        starts += [random.uniform(low, high) for _ in range(estimator.n_restarts_optimizer)]
    return [_climb(score, theta, max_iter) for theta in starts]


def _climb(score: HeldOutScore, start: Array, max_iter: int) -> Climbed:
    """The nearest optimum."""
    known: list[float] = []
    # Errors are relative to that of the start, and densities are beside it, so that where a climb
    # ends does not depend on the unit of y: L-BFGS compares what it gains with the value itself.
    level, unit = 0.0, 1.0

    def loss(theta: Array) -> tuple[float, Array]:
        try:
            value, gradient = score(theta)
        except ArithmeticError:  # not positive definite to working precision
            value, gradient = np.nan, np.zeros_like(theta)
        nonlocal level, unit
        if not known and np.isfinite(value):
            if score.name == "log_density":
                level = value
            elif value < 0.0:
                unit = -value
        known.append(value if np.isfinite(value) else -np.inf)
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            return -_HOPELESS, np.zeros_like(theta)
        return (level - value) / unit, -gradient / unit

    kernel = score.process.kernel
    found = minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=kernel.bounds,
        options={"maxiter": max_iter, "ftol": TOLERANCE},
    )
    best = level - float(found.fun) * unit if -found.fun > _HOPELESS else -np.inf
    return Climbed(
        kernel.clone_with_theta(found.x),
        best,
        kernel.clone_with_theta(start),
        known[0],
        int(found.nit),
        len(known),
    )


def winner_of(found: list[Climbed]) -> int:
    """The number of the best climb; an error if no kernel matrix was definite."""
    best = int(np.argmax([climbed.score for climbed in found]))
    if not np.isfinite(found[best].score):
        raise ValueError(
            "the kernel matrix is not positive definite at the start, so that nothing can be "
            "tuned; use a larger alpha, a WhiteKernel, or another kernel to begin from"
        )
    return best


def summary_of_climbs(found: list[Climbed], name: str) -> str:
    """All climbs in words, a line each."""
    best = winner_of(found)
    lines = [
        f"{c.start_score:.4g} -> {c.score:.4g} in {c.steps} steps: {c.kernel}"
        f"{'  <- chosen' if k == best else ''}"
        for k, c in enumerate(found)
    ]
    return "\n".join([f"held-out {name.replace('_', ' ')}, mean over the folds", *lines])


# -- What descents cost ----------------------------------------------------------------------------

# Gradients of a descent that an estimate assumes: descents end after 3 or more, and after the most
# that are allowed at the latest. It only changes the printed estimate.
TYPICAL_GRADIENTS = 8


def gradient_cost(work: Workload, features: int, cost: CostModel = COSTS) -> Cost:
    """One error with its gradient: a candidate, and products with a column a fold and feature."""
    made = feature_seconds(work.n, work.rank, features, cost)
    judged = METHODS["eigen" if work.is_low_rank else "cholesky"].cost(work, cost)
    columns = 3 * work.n_folds * work.targets + features
    products = work.n * work.rank * (columns * cost.cube_gram + 4 * cost.stream)
    wide = 2 * work.rank + 4 * work.n_folds * work.targets + 3 * features
    blocks = 16 * sum(count * m**2 for m, count in work.groups)
    # The weights of the slopes of a full kernel are two more matrices.
    weights = 0 if work.is_low_rank else 16 * work.n**2
    memory = judged.memory + weights + 8 * work.n * wide + blocks
    return Cost(cost.kernel + made + judged.seconds + products, memory)


# What needs less memory, whichever estimator was passed: not all of them have an operator.
_LOW_RANK = (
    "or an estimator of low rank: LSSVC(operator=Nystrom(1000)), or "
    "LSSVR(operator=Nystrom(1000)) for numbers"
)


@dataclass(frozen=True)
class Descents:
    """Descents on several sets of rows, one for each strength of shrinkage.

    Attributes
    ----------
    sets, strengths, most : int
        The sets of rows, the descents on each of them, and the most gradients of a descent.
    each : Cost
        Of one gradient on all rows.
    """

    sets: int
    strengths: int
    most: int
    each: Cost

    @property
    def seconds(self) -> float:
        """An estimate for all of them."""
        return self.sets * self.strengths * min(self.most, TYPICAL_GRADIENTS) * self.each.seconds

    def check(self, n: int, n_jobs: int | None) -> None:
        """Refuse what does not fit in memory."""
        check_workers(self.each.memory, min(local_threads(n_jobs), self.sets), n, _LOW_RANK)

    def after(self, plan: SearchPlan) -> SearchPlan:
        """The plan of the search for the start, and of the descents from there."""
        words = (
            f"then up to {self.strengths} descents along the gradient on each of {self.sets} sets "
            f"of rows (all, and those of the outer folds), about {TYPICAL_GRADIENTS} gradients and "
            f"at most {self.most} each"
        )
        return replace(
            plan,
            estimate=plan.estimate + self.seconds,
            memory=max(plan.memory, self.each.memory),
            notes=(*plan.notes, words) if self.strengths else plan.notes,
        )


# -- The search ------------------------------------------------------------------------------------

# Strengths that "auto" tries, besides staying at the start; from strong to weak. Each costs another
# descent on every outer fold.
SHRINKAGES = (0.03, 0.003)

# Iterations of a descent by default. They are few, as a descent that goes on tunes the folds.
MAX_ITER = 10

# What says nothing of a Gaussian process, whose kernel has the parameters that are tuned.
_NOT_OF_PROCESSES = ("start", "parameters", "per_feature", "shrinkage", "checkpoint")

# What descents depend on besides data, folds, estimator and start; a journal is for one set.
_ASKED = ("parameters", "per_feature", "shrinkage", "max_iter", "scoring", "random_state")


def _has(name: str) -> Any:
    """Whether the estimator, fitted or not, has a method."""

    def check(search: FastGradientSearchCV) -> bool:
        getattr(getattr(search, "best_estimator_", search.estimator), name)
        return True

    return check


class FastGradientSearchCV(RenamedParameters, ResultView, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    r"""Tune the gamma of every feature, and the ridge, by the gradient of the exact CV error.

    A grid tunes one gamma for all features. Here each feature has its own gamma, and L-BFGS-B
    minimises the squared error of all held-out values; one gradient costs about as much as one
    candidate of a grid. Minimising over so many parameters would over-fit, so an outer
    cross-validation chooses how strongly the gammas are shrunk towards each other, and whether they
    differ at all.

    Parameters
    ----------
    estimator : estimator
        LSSVR, LSSVC, KernelRegressor, KernelClassifier, KernelRidge, SVC, SVR or
        GaussianProcessRegressor. It must have an rbf, laplacian, polynomial or linear kernel, and
        LSSVR, LSSVC, KernelRegressor and KernelClassifier must have squared loss; use
        ``operator=Nystrom(...)`` for many rows. SVC and SVR get the length scales that squared loss
        finds with their kernel; then C (not epsilon) is chosen by their own loss on the folds. Of
        a GaussianProcessRegressor all hyper-parameters of the kernel are tuned, within their
        bounds, by held-out scores in place of the likelihood (see Notes).
    start : "auto" or dict, default="auto"
        "auto": the best of a grid of 5 gammas (the same for all features) and 8 ridges, by
        ``scoring``. Or ``{"gamma": ..., "alpha": ...}``; missing entries are taken from the
        estimator.
    parameters : tuple, default=("gamma", "alpha")
        What is tuned; "alpha" is the ridge.
    per_feature : bool, default=True
        Whether each feature has its own gamma.
    shrinkage : "auto" or float, default="auto"
        The factor τ of the penalty :math:`\tau\,\mathrm{mean}_j(\log\gamma_j -
        \overline{\log\gamma})^2` which is added to the error relative to the variance of y. "auto"
        tries 0.03 and, if that is not worse than the start, 0.003. A number is the only value
        tried; inf keeps the start.
    loss : {"auto", "squared", "log_density", "crps"}, default="auto"
        The error that is minimised: the squared error, also for labels, which are coded -1 and +1.
        For Gaussian processes "auto" is the negative logarithm of the density at the held-out
        observations, and "crps" the continuous ranked probability score.
    cv : int, splitter or iterable of splits, default=None
        Folds that only leave rows out: no test row may be a training row, and no training row may
        be repeated. In the outer cross-validation each fold is left out (or, with more than 10
        folds, each of five sets of folds), and the other folds are the inner folds.
    max_iter : int, default=None
        Maximum number of iterations for each strength of shrinkage; None means 10, and 100 for
        Gaussian processes.
    scoring : str or callable, default=None
        The score that the outer cross-validation compares; None means the estimator's own score.
    refit : bool, default=True
        Whether to fit the winner to all rows.
    random_state : int, RandomState or None, default=None
        Seed of the sets of folds, if there are more than 10 folds.
    verbose : int, default=0
        1 prints the path.
    n_jobs : int, default=None
        The number of outer folds at a time.
    checkpoint : str or path, default=None
        A file to which the descents of finished outer folds are written, so that the same call
        continues after the process was killed. The checkpoint of another search raises an error.

    Attributes
    ----------
    best_params_ : dict
        "gamma", an array if features differ, and "alpha" (for SVC and SVR "C").
    best_estimator_ : estimator
        Fitted to all rows. As KernelRidge accepts one gamma only, it becomes the equivalent
        :class:`KernelRegressor` if features differ; SVC and SVR become the last step of a Pipeline
        that multiplies the columns first. A linear kernel with length scales becomes a polynomial
        kernel of degree 1.
    best_score_ : float
        The mean score of the outer folds, whose rows were not used to choose gamma and ridge.
    best_index_ : int
        The index of the selected entry of ``path_``; 0 is the start.
    feature_weights_ : dict
        The share of each feature in the distances (or products) of the kernel, by column name if X
        has names, otherwise by number; the shares sum up to 1.
    fold_weights_ : array of shape (outer folds, n_features)
        The same for the descents without each outer fold; :meth:`plot` draws both.
    path_ : list of dict
        For each strength of shrinkage that was tried: "shrinkage"; "is_chosen", true for the entry
        of ``best_index_``; "gamma", "alpha" and the tuned "cv_error" on all rows (for entries that
        were not selected, at the geometric mean of the outer folds); "outer_scores";
        "outer_params" (of the descent of each outer fold); "gain" and "standard_error" (of the
        paired differences from the start); for labels also "outer_losses", the squared errors of
        the outer decision values.
    summary_ : str
        The path in words.
    plan_ : SearchPlan
        What was planned and done; :meth:`plan` returns the plan in advance.
    n_iter_ : int
        The number of iterations of all descents, on the outer folds and on all rows; 1 if the
        gradient is already 0 at the start.
    n_features_in_, feature_names_in_, classes_
        As in scikit-learn.

    Notes
    -----
    **Choice.** The entry with the best mean outer score is selected if it exceeds the score of the
    start by more than one standard error of the paired differences over the outer folds; otherwise
    the start is selected. For labels, the squared error of the outer decision values must also fall
    by more than one standard error, because a few wrong labels more or less mean little. The tuned
    error is not used for this choice.
    **Gaussian processes** start from the kernel of the estimator, and from
    ``n_restarts_optimizer`` random ones; ``alpha`` stays as it is (use a ``WhiteKernel`` to tune
    the noise). There are no outer folds: ``best_score_`` is the tuned score, which is slightly too
    good; ``best_params_`` has the kernel; ``path_`` has an entry for each start. ``parameters``,
    ``per_feature``, ``start``, ``shrinkage`` and ``checkpoint`` are for the other estimators.
    **Cost** about 8 candidates for each strength and outer fold; each needs one factorisation of
    its rows, and n² flops per feature. Up to eight dense n×n matrices are in memory. One search
    gives the starting points of all outer folds, and the single descent on all rows starts at the
    geometric mean of the points that the outer folds have found. **Exact?** Error and gradient
    equal those of refitting every fold; the minimum is a local one. With landmarks they are those
    of the model with the landmarks drawn at the start of a descent.

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
        loss: Literal["auto", "squared", "log_density", "crps"] = "auto",
        cv: Splitter = None,
        max_iter: int | None = None,
        scoring: Scorer = None,
        refit: bool = True,
        random_state: RandomState = None,
        verbose: int = 0,
        n_jobs: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        **deprecated: Any,
    ) -> None:
        self._keep_parameters(locals())

    def fit(
        self,
        X: Matrix,
        y: Targets,
        *,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> FastGradientSearchCV:
        """Tune the parameters, choose the shrinkage, and fit the winner to all rows.

        Parameters
        ----------
        X : {array, CSR matrix, data frame} of shape (n_samples, n_features)
        y : array of shape (n_samples,) or (n_samples, n_targets)
        groups : array of shape (n_samples,), optional
            Passed to the splitter.
        sample_weight : array of shape (n_samples,), optional
            A row with weight 0 is left out of every fit.

        Returns
        -------
        self
        """
        check_in_memory(X, type(self).__name__)
        if is_process(self.estimator):
            return self._fit_process(X, y, groups, sample_weight)
        begin = time.perf_counter()
        walks, outers = self._read(X, y, groups, sample_weight)
        descents = self._descents(walks, outers)
        with self._journal(walks) as journal, blas_threads(walks.descent.folds.n):
            starts, made = self._starts(walks, outers)
            choice = OuterChoice.of(self._walk(walks, outers, starts[1:], journal))
            points = walks.finish(starts[0], choice.walks, choice.best, journal)
        self._keep(walks, points, choice)
        if walks.scaled.model.is_classifier:
            self.classes_ = np.unique(walks.y)
        best = points[self.best_index_]
        estimator = walks.scaled.configured(best, walks.rows, self.scoring)
        self.best_params_ = walks.scaled.tuned(estimator, best)
        if self.refit:
            self.best_estimator_ = walks.scaled.fit(estimator, X, y, sample_weight)
        self.plan_ = descents.after(made).took(time.perf_counter() - begin)
        if self.verbose:
            print(self.summary_, flush=True)
        return self

    def plan(
        self,
        X: Matrix,
        y: Targets,
        *,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> SearchPlan:
        """Return the plan that ``fit`` would execute with these arguments, without executing it."""
        if is_process(self.estimator):
            raise ValueError(
                "there is no plan for a GaussianProcessRegressor: how many kernels are tried is "
                "known when the search ends (n_iter_)"
            )
        walks, outers = clone(self)._read(X, y, groups, sample_weight)
        return self._descents(walks, outers).after(walks.plan(outers))

    def plot(self, *, most: int = 20, ax: Axes = None) -> FeatureWeightsDisplay:
        """Plot the weights of the features, and those of the outer folds.

        Parameters
        ----------
        most : int, default=20
            The maximum number of features to show, those with the largest weights.
        ax : matplotlib Axes, optional
        """
        return FeatureWeightsDisplay.from_search(self, most=most, ax=ax)

    # -- reading -----------------------------------------------------------------------------------

    def _check(self) -> ScaledModel:
        """How the estimator is tuned; raises what is wrong with the parameters, before any work."""
        unknown = set(self.parameters) - {"gamma", "alpha"}
        if isinstance(self.parameters, str) or unknown or not self.parameters:
            raise ValueError(
                f"parameters={self.parameters!r} is not allowed; use ('gamma', 'alpha'), "
                "('gamma',) or ('alpha',)"
            )
        if self.loss not in ("auto", "squared"):
            raise ValueError(
                f"loss={self.loss!r} is not known for {type(self.estimator).__name__}; use 'auto' "
                "or 'squared'"
            )
        shrinkage = self.shrinkage
        is_number = isinstance(shrinkage, Real) and float(shrinkage) >= 0.0
        if shrinkage != "auto" and not is_number:
            raise ValueError(f"shrinkage={shrinkage!r} is not allowed; use 'auto' or a number >= 0")
        self._check_common()
        if self.start != "auto" and not isinstance(self.start, Mapping):
            raise ValueError(f"start={self.start!r} is not known; use 'auto' or a dictionary")
        if self.start != "auto" and set(self.start) - {"gamma", "alpha"}:
            raise ValueError(
                f"start has {sorted(self.start)}; only 'gamma' and 'alpha' are allowed"
            )
        return read_scaled_model(self.estimator)

    def _check_common(self) -> None:
        """Check what any estimator is tuned with."""
        is_count = isinstance(self._max_iter, Integral) and not isinstance(self.max_iter, bool)
        if not is_count or self._max_iter < 1:
            raise ValueError(
                f"max_iter={self.max_iter!r} is not allowed; use None or an integer >= 1"
            )
        if isinstance(self.scoring, str):
            get_scorer(self.scoring)
        elif not (self.scoring is None or callable(self.scoring)):
            raise ValueError(
                f"scoring={self.scoring!r} is not a single scorer; pass a name or a callable"
            )

    @property
    def _max_iter(self) -> int:
        """The most iterations of a descent."""
        usual = MOST_STEPS if is_process(self.estimator) else MAX_ITER
        return usual if self.max_iter is None else self.max_iter

    def _read(
        self, X: Matrix, y: Targets, groups: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> tuple[OuterDescents, list[Outer]]:
        """Rows, target, folds and where walks start, read once; and what is left out."""
        scaled = self._check()
        model = scaled.model
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=not model.is_classifier,
            multi_output=not model.is_classifier and scaled.has_ridge,
        )  # fmt: skip
        splitter = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        folds = Folds.from_splits(splitter.split(X, y, groups), X.shape[0])
        if folds.odd or len(folds) < 2:
            raise ValueError(
                "cv must have two or more splits, with no test row in the training set and no "
                "training row twice; use KFold or StratifiedKFold"
            )
        target, weights = model.target(y), read_weights(sample_weight, X.shape[0])
        model.check_labels(target)
        (problem,) = model.problems(target, weights)
        random = check_random_state(self.random_state)
        outers = outer_folds(folds, random)
        model = _seeded(model, random)
        parameters = frozenset(self.parameters)
        descent = Descent(model, problem, X, folds, parameters, is_tied=not self.per_feature)
        scaled = replace(scaled, model=model)
        grid = grid_of(self.start, self.parameters, scaled, X)
        given = None if sample_weight is None else weights
        how = self._max_iter, self.n_jobs
        return OuterDescents(scaled, descent, y, given, self.scoring, grid, *how), outers

    @property
    def _shrinkages(self) -> tuple[float, ...]:
        """The strengths to be tried besides the start."""
        if not self.per_feature or "gamma" not in self.parameters:
            return () if self.shrinkage == math.inf else (0.0,)
        if self.shrinkage == "auto":
            return SHRINKAGES
        return () if self.shrinkage == math.inf else (float(self.shrinkage),)

    # -- the work ----------------------------------------------------------------------------------

    def _descents(self, walks: OuterDescents, outers: Sequence[Outer]) -> Descents:
        """What the descents cost; refused if it does not fit."""
        descent, model = walks.descent, walks.scaled.model
        n, d = descent.X.shape
        rank = model.operator.rank_for(n, d) if isinstance(model.operator, Nystrom) else n
        work = Workload(n, rank, 1, descent.problem.y.shape[1], descent.folds.groups)
        found = Descents(
            1 + len(outers), len(self._shrinkages), self._max_iter, gradient_cost(work, d)
        )
        found.check(n, self.n_jobs)
        return found

    @contextmanager
    def _journal(self, walks: OuterDescents) -> Iterator[Checkpoint | None]:
        """The journal, if there is one; every finished walk is a record of it."""
        if self.checkpoint is None:
            yield None
            return
        check_folds_repeat(self.cv)
        if self.random_state is None and len(walks.descent.folds) > MOST_OUTER_FOLDS:
            raise CheckpointError(
                "random_state=None draws different sets of folds in every call, so that a "
                "checkpoint cannot be continued; pass an integer, such as random_state=0"
            )
        asked = {name: value for name, value in self.get_params(False).items() if name in _ASKED}
        parts = {
            "data": {"X": walks.descent.X, "y": walks.y, "sample_weight": walks.weights},
            "folds": {"cv": walks.descent.folds},
            "candidates": {"estimator": self.estimator, "start": walks.grid},
            "options": {**asked, "operator": walks.scaled.model.operator},
        }
        with opened_file(self.checkpoint, fingerprint_of(parts)) as journal:
            yield journal

    def _starts(
        self, walks: OuterDescents, outers: Sequence[Outer]
    ) -> tuple[list[Point], SearchPlan]:
        """The best of the grid for all rows and for those of each outer fold."""
        starts, plan = walks.starts(outers)
        if self.verbose:
            first = starts[0]
            words = f"gamma={first.gamma[0]:.3g}, alpha={first.ridge:.3g}"
            print(f"start of {len(starts)} descents: {words} on all rows", flush=True)
        return starts, plan

    def _walk(
        self,
        walks: OuterDescents,
        outers: Sequence[Outer],
        starts: Sequence[Point],
        journal: Checkpoint | None,
    ) -> list[Walked]:
        """The walks of all outer folds, with what their points score.

        All outer folds get one strength after the other, from strong to weak, until one is worse
        than the one before.
        """
        begin, found = time.perf_counter(), [Walked([start]) for start in starts]
        for some in [self._shrinkages[k : k + 1] for k in range(len(self._shrinkages))] or [()]:
            for k, walked in walks.run(outers, tuple(found), some, journal):
                found[k] = walked
                if self.verbose:
                    words = f"{walked.points[-1].steps} steps, {time.perf_counter() - begin:.1f} s"
                    strength = f"shrinkage {some[0]:g}" if some else "start"
                    print(f"{strength} without outer fold {k + 1}, {words}", flush=True)
            if some and np.mean([own.worth[-1] - own.worth[-2] for own in found]) < 0.0:
                break
        return found

    # -- Gaussian processes ------------------------------------------------------------------------

    def _fit_process(
        self, X: Matrix, y: Targets, groups: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> FastGradientSearchCV:
        """Tune the kernel of a Gaussian process, and fit it to all rows."""
        self._check_common()
        for name in _NOT_OF_PROCESSES:
            if getattr(self, name) != signature(type(self)).parameters[name].default:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} has no effect on a GaussianProcessRegressor, "
                    "whose kernel says what is tuned; leave it out"
                )
        if sample_weight is not None:
            raise ValueError(
                "GaussianProcessRegressor takes no sample_weight; use its alpha, a number for each "
                "row, for rows with more or less noise"
            )
        name = "log_density" if self.loss == "auto" else self.loss
        if name not in SCORES:
            raise ValueError(f"loss={self.loss!r} is not known; use 'auto' or one of {[*SCORES]}")
        rows = X  # data frames keep their names in the winner
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, multi_output=True)
        folds = Folds.from_splits(check_cv(self.cv, y).split(X, y, groups), len(X))
        if not folds.are_removable:
            raise ValueError(
                "cv has a split with a test row in the training set, or with a repeated training "
                "row; use KFold, for example"
            )
        Y = np.reshape(y, (len(X), -1)).astype(np.float64)
        with blas_threads(len(X)):
            found = climb_process(self.estimator, X, Y, folds, name, self._max_iter)
        self.best_index_ = winner_of(found)
        best = found[self.best_index_]
        self.best_score_, self.best_params_ = best.score, {"kernel": best.kernel}
        self.n_iter_ = max(1, sum(climbed.steps for climbed in found))
        self.path_ = [vars(climbed) for climbed in found]
        self.summary_ = summary_of_climbs(found, name)
        if self.refit:
            model = clone(self.estimator).set_params(kernel=clone(best.kernel), optimizer=None)
            self.best_estimator_ = model.fit(rows, y)
        if self.verbose:
            print(self.summary_, flush=True)
        return self

    # -- the answer --------------------------------------------------------------------------------

    def _keep(self, walks: OuterDescents, points: Sequence[Point], choice: OuterChoice) -> None:
        """Say what was found and chosen."""
        best = self.best_index_ = choice.best
        self.best_score_ = float(choice.scores[:, best].mean())
        walked = [point for walk in choice.walks for point in walk.points]
        self.n_iter_ = max(1, sum(point.steps for point in (*walked, *points)))
        self.path_ = choice.path(points)
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        share = shares_of(walks.descent, points[best].gamma)
        self.feature_weights_ = dict(zip(names, share.tolist(), strict=True))
        own = [walked.points[best].gamma for walked in choice.walks]
        self.fold_weights_ = np.array([shares_of(walks.descent, gamma) for gamma in own])
        self.summary_ = summary_of(self.path_, len(choice.scores))

    @property
    def _fitted(self) -> Estimator:
        check_is_fitted(self, "best_index_")
        if not self.refit:
            raise AttributeError("refit=False: no estimator was fitted; pass refit=True")
        return self.best_estimator_

    def predict(self, X: Matrix, **params: object) -> AnyArray:
        """Predict with the winner; a Gaussian process takes ``return_std=True``."""
        predicted: AnyArray = self._fitted.predict(X, **params)
        return predicted

    @available_if(_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Matrix) -> AnyArray:
        """Decision values of the winner."""
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
        tags.target_tags, tags.input_tags.sparse = own.target_tags, not is_process(self.estimator)
        return tags


def _seeded(model: Model, random: np.random.RandomState) -> Model:
    """The model whose operator draws the same landmarks every time."""
    if not isinstance(model.operator, Nystrom):
        return model
    seeded = model.operator.seeded(lambda: int(random.randint(2**31 - 1)))
    return replace(model, operator=seeded)


# -- Where a descent may begin: what was given, or a small isotropic grid -------------------------


# The grid of starts, in which all features have one gamma: gammas relative to that of
# ``gamma="scale"``, and ridges. It is coarse, as the descent refines what it finds.
START_GAMMAS = np.logspace(-2.0, 0.8, 5)
START_RIDGES = np.logspace(-5.0, 2.0, 8)


def grid_of(
    start: Literal["auto"] | Params, parameters: Sequence[str], scaled: ScaledModel, X: Matrix
) -> Params:
    """The gammas and ridges that are tried first; what is not tuned is the estimator's own."""
    own: Params = {
        "gamma": [getattr(scaled.estimator, "gamma", 1.0)],
        "alpha": [getattr(scaled.estimator, "alpha", 1.0)],
    }
    if start == "auto":
        gammas = _centre(scaled.model, X) * (1.0 if scaled.is_linear else START_GAMMAS)
        wide = {"gamma": np.atleast_1d(gammas), "alpha": START_RIDGES}
        own |= {name: wide[name] for name in parameters}
    else:
        own |= {name: [value] for name, value in start.items()}
    return {
        "gamma": [_read_gamma(gamma, X) for gamma in own["gamma"]],
        "alpha": [_read_alpha(alpha) for alpha in own["alpha"]],
    }


def _read_gamma(gamma: Any, X: Matrix) -> Any:
    """A gamma to begin from: a number, or one for each feature."""
    gammas = gamma_of_features(gamma)
    if gammas is None:
        gammas = (resolve_gamma(gamma, X),)
    if len(gammas) not in (1, X.shape[1]) or min(gammas) <= 0.0:
        raise ValueError(
            f"the start, gamma={gamma!r}, is not allowed; pass a number > 0, or one for each of "
            f"the {X.shape[1]} features"
        )
    return gammas[0] if len(gammas) == 1 else np.array(gammas)


def _read_alpha(alpha: Any) -> float:
    """Check the ridge that a descent starts from: one number > 0, as its logarithm is tuned."""
    (ridge,) = read_ridge(alpha)
    if ridge <= 0.0:
        raise ValueError(
            f"the start, alpha={alpha!r}, is not allowed, as its logarithm is tuned; pass a "
            "number > 0"
        )
    return ridge


def _centre(model: Model, X: Matrix) -> float:
    """A gamma in the middle of the usual range: that of "scale", in units of the kernel."""
    scale = resolve_gamma("scale", X)
    if model.choice.kernel != "laplacian":
        return scale
    n_features = int(X.shape[1])
    return math.sqrt(scale * n_features) / n_features

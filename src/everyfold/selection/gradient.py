"""Every length scale at once: a search along the gradient of the exact cross-validation error."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.metrics import check_scoring, get_scorer
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from everyfold.display import FeatureWeightsDisplay
from everyfold.display.table import Axes
from everyfold.evaluate.costs import Workload
from everyfold.evaluate.descents import Descents, gradient_cost
from everyfold.evaluate.fingerprint import fingerprint_of
from everyfold.evaluate.journal import Journal, JournalError, check_folds_repeat, opened_file
from everyfold.evaluate.plan import SearchPlan
from everyfold.models.estimators.base import keep_parameters
from everyfold.models.model import Model, read_weights
from everyfold.operators import Nystrom
from everyfold.operators.threads import blas_threads
from everyfold.rows import Folds
from everyfold.selection.descent import Descent, Point
from everyfold.selection.outerchoice import OuterChoice, shares_of, summary_of
from everyfold.selection.reporting import ResultView
from everyfold.selection.scales import Machine, read_machine
from everyfold.selection.starts import grid_of
from everyfold.selection.walks import MOST_OUTER_FOLDS, Outer, Walked, Walks, outer_folds
from everyfold.types import (
    AnyArray,
    Estimator,
    Matrix,
    Params,
    RandomState,
    Scorer,
    Splitter,
    Targets,
)

SHRINKAGES = (0.03, 0.003)
"""Strengths that "auto" tries, besides staying at the start; from strong to weak."""

_ASKED = ("parameters", "per_feature", "shrinkage", "max_iter", "scoring", "random_state")
"""What walks depend on besides data, folds, estimator and start."""


def _has(name: str) -> Any:
    """Whether the estimator, fitted or not, has a method."""

    def check(search: FastGradientSearchCV) -> bool:
        getattr(getattr(search, "best_estimator_", search.estimator), name)
        return True

    return check


class FastGradientSearchCV(ResultView, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    r"""Tune the gamma of every feature, and the ridge, by the gradient of the exact CV error.

    A grid tunes one gamma for all features. Here each feature has its own, and L-BFGS-B follows the
    gradient of the squared error of all held-out values, which costs about as much as one candidate
    of a grid. So many parameters would over-fit that error; an outer cross-validation therefore
    chooses how strongly the gammas are pulled together, and whether they differ at all.

    Parameters
    ----------
    estimator : LSSVR, LSSVC, KernelRegressor, KernelClassifier, KernelRidge, SVC or SVR
        With squared loss and an rbf, laplacian, polynomial or linear kernel; with
        ``operator=Nystrom(...)`` for many rows. SVC and SVR get the scales that squared loss finds
        with their kernel, and then choose C (not epsilon) by their own folds.
    start : "auto" or dict, default="auto"
        "auto": the best of a grid of 5 gammas (the same for all features) and 8 ridges, by
        ``scoring``. Or ``{"gamma": ..., "alpha": ...}``; what is missing is the estimator's own.
    parameters : tuple, default=("gamma", "alpha")
        What is tuned; "alpha" is the ridge.
    per_feature : bool, default=True
        Whether each feature has a gamma of its own.
    shrinkage : "auto" or float, default="auto"
        The factor τ of the penalty :math:`\tau\,\mathrm{mean}_j(\log\gamma_j -
        \overline{\log\gamma})^2` beside the error relative to the variance of y. "auto" tries 0.03
        and, if that was not worse than the start, 0.003. A number is tried alone; inf stays there.
    loss : {"auto", "squared"}, default="auto"
        The error that is descended: squared, of labels coded -1 and +1 too.
    cv : int, splitter or iterable of splits, default=None
        Folds that only remove rows. Of the outer cross-validation each leaves its rows out (five
        sets of folds, if there are more than 10), and the others are the inner folds.
    max_iter : int, default=10
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
    journal : str or path, default=None
        A file that keeps the descents of finished outer folds, so that the same call goes on after
        its process has died. That of another search is refused.

    Attributes
    ----------
    best_params_ : dict
        "gamma", an array where features differ, and "alpha" (of SVC and SVR "C").
    best_estimator_ : estimator
        Fitted to all rows. A KernelRidge takes one gamma only: where features differ it is the
        :class:`KernelRegressor` of the same model, and SVC and SVR stand at the end of a Pipeline
        that multiplies the columns. A linear kernel with scales is a polynomial one of degree 1.
    best_score_ : float
        The mean score of the outer folds, of rows that neither gamma nor ridge have seen.
    best_index_ : int
        Which entry of ``path_`` was chosen; 0 is the start.
    feature_weights_ : dict
        The share of each feature in the distances (or products) of the kernel, by name of the
        column if X has names, else by number; they sum up to 1.
    fold_weights_ : array of shape (outer folds, n_features)
        The same of the descents without each outer fold; :meth:`plot` draws both.
    path_ : list of dict
        For each strength of shrinkage that was tried: "shrinkage", "gamma", "alpha" and the tuned
        "cv_error" of all rows (of what was not chosen, amid the outer folds), "outer_scores",
        "outer_params" (those of each outer fold's own descent), "gain" and "standard_error" (over
        the start, in pairs); of labels also "outer_losses", squared errors of the outer values.
    summary_ : str
        The path in words.
    plan_ : SearchPlan
        What was planned and done; :meth:`plan` makes it beforehand.
    n_iter_ : int
        Iterations of all descents, those of the outer folds and those on all rows; 1 where the
        start is already flat.
    n_features_in_, feature_names_in_, classes_
        As in scikit-learn.

    Notes
    -----
    **Choice.** The best mean outer score wins if it exceeds that of the start by more than one
    standard error of the paired differences over the outer folds; else the start stays. Of labels,
    the squared error of the outer values has to fall by as much, too, as a few wrong labels more
    or less say little. The error that was tuned has no say in it.
    **Cost** about 8 candidates for each strength and outer fold, each one factorisation of its
    rows, and n² flops a feature. Up to eight dense n×n matrices. The start of all outer folds is
    one search, and the one descent on all rows begins amid the points that outer folds have found.
    **Exact?** Error and gradient are those of refitting every fold; the minimum is a local one.
    With landmarks they are those of the model with the landmarks drawn at the start of a descent.

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
        max_iter: int = 10,
        scoring: Scorer = None,
        refit: bool = True,
        random_state: RandomState = None,
        verbose: int = 0,
        n_jobs: int | None = None,
        journal: str | os.PathLike[str] | None = None,
    ) -> None:
        keep_parameters(self, locals())

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
        begin = time.perf_counter()
        walks, outers = self._read(X, y, groups, sample_weight)
        descents = self._descents(walks, outers)
        with self._journal(walks) as journal, blas_threads(walks.descent.folds.n):
            starts, made = self._starts(walks, outers)
            choice = OuterChoice.of(self._walk(walks, outers, starts[1:], journal))
            points = walks.settle(starts[0], choice.walks, choice.best, self.max_iter, journal)
        self._keep(walks, points, choice)
        if walks.machine.model.is_classifier:
            self.classes_ = np.unique(walks.y)
        best = self._tune(walks, points[self.best_index_])
        if self.refit:
            self.best_estimator_ = walks.machine.fit(best, X, y, sample_weight)
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
        """What ``fit`` would do with these arguments, without doing it."""
        walks, outers = clone(self)._read(X, y, groups, sample_weight)
        return self._descents(walks, outers).after(walks.plan(outers))

    def plot(self, *, most: int = 20, ax: Axes = None) -> FeatureWeightsDisplay:
        """Draw the weights of the features and their spread over the outer folds.

        Parameters
        ----------
        most : int, default=20
            The most features to show; those with the largest weights.
        ax : matplotlib Axes, optional
        """
        return FeatureWeightsDisplay.from_search(self, most=most, ax=ax)

    # -- reading -----------------------------------------------------------------------------------

    def _check(self) -> Machine:
        """How the estimator is tuned; raises what is wrong with the parameters, before any work."""
        unknown = set(self.parameters) - {"gamma", "alpha"}
        if isinstance(self.parameters, str) or unknown or not self.parameters:
            raise ValueError(
                f"parameters={self.parameters!r} is not allowed; use ('gamma', 'alpha'), "
                "('gamma',) or ('alpha',)"
            )
        if self.loss not in ("auto", "squared"):
            raise ValueError(f"loss={self.loss!r} is not known; use 'auto' or 'squared'")
        shrinkage = self.shrinkage
        is_number = isinstance(shrinkage, Real) and float(shrinkage) >= 0.0
        if shrinkage != "auto" and not is_number:
            raise ValueError(f"shrinkage={shrinkage!r} is not allowed; use 'auto' or a number >= 0")
        is_count = isinstance(self.max_iter, Integral) and not isinstance(self.max_iter, bool)
        if not is_count or self.max_iter < 1:
            raise ValueError(f"max_iter={self.max_iter!r} is not allowed; use an integer >= 1")
        if self.start != "auto" and not isinstance(self.start, Mapping):
            raise ValueError(f"start={self.start!r} is not known; use 'auto' or a dictionary")
        if self.start != "auto" and set(self.start) - {"gamma", "alpha"}:
            raise ValueError(f"start has {sorted(self.start)}; only 'gamma' and 'alpha' are known")
        if isinstance(self.scoring, str):
            get_scorer(self.scoring)
        elif not (self.scoring is None or callable(self.scoring)):
            raise ValueError(f"scoring={self.scoring!r} is not one scorer; pass its name")
        return read_machine(self.estimator)

    def _read(
        self, X: Matrix, y: Targets, groups: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> tuple[Walks, list[Outer]]:
        """Rows, target, folds and where walks start, read once; and what is left out."""
        machine = self._check()
        model = machine.model
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=not model.is_classifier,
            multi_output=not model.is_classifier and machine.has_ridge,
        )  # fmt: skip
        splitter = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        folds = Folds.from_splits(splitter.split(X, y, groups), X.shape[0])
        if folds.odd or len(folds) < 2:
            raise ValueError(
                f"cv={self.cv!r} must have two or more splits, which only remove rows: no test row "
                "in its training set, and no training row twice"
            )
        target, weights = model.target(y), read_weights(sample_weight, X.shape[0])
        model.check_labels(target)
        (problem,) = model.problems(target, weights)
        random = check_random_state(self.random_state)
        outers = outer_folds(folds, random)
        model = _seeded(model, random)
        parameters = frozenset(self.parameters)
        descent = Descent(model, problem, X, folds, parameters, is_tied=not self.per_feature)
        machine = replace(machine, model=model)
        grid = grid_of(self.start, self.parameters, machine, X)
        given = None if sample_weight is None else weights
        return Walks(machine, descent, y, given, self.scoring, grid), outers

    @property
    def _shrinkages(self) -> tuple[float, ...]:
        """The strengths to be tried besides the start."""
        if not self.per_feature or "gamma" not in self.parameters:
            return () if self.shrinkage == math.inf else (0.0,)
        if self.shrinkage == "auto":
            return SHRINKAGES
        return () if self.shrinkage == math.inf else (float(self.shrinkage),)

    # -- the work ----------------------------------------------------------------------------------

    def _descents(self, walks: Walks, outers: Sequence[Outer]) -> Descents:
        """What the descents cost; refused if it does not fit."""
        descent, model = walks.descent, walks.machine.model
        n, d = descent.X.shape
        rank = model.operator.rank_for(n, d) if isinstance(model.operator, Nystrom) else n
        work = Workload(n, rank, 1, descent.problem.y.shape[1], descent.folds.groups)
        found = Descents(
            1 + len(outers), len(self._shrinkages), self.max_iter, gradient_cost(work, d)
        )
        found.check(n, self.n_jobs)
        return found

    @contextmanager
    def _journal(self, walks: Walks) -> Iterator[Journal | None]:
        """The journal, if there is one; every finished walk is a record of it."""
        if self.journal is None:
            yield None
            return
        check_folds_repeat(self.cv)
        if self.random_state is None and len(walks.descent.folds) > MOST_OUTER_FOLDS:
            raise JournalError(
                "random_state=None draws other sets of folds in every call, so that no journal "
                "could be gone on with; pass random_state=0"
            )
        asked = {name: value for name, value in self.get_params(False).items() if name in _ASKED}
        parts = {
            "data": {"X": walks.descent.X, "y": walks.y, "sample_weight": walks.weights},
            "folds": {"cv": walks.descent.folds},
            "candidates": {"estimator": self.estimator, "start": walks.grid},
            "options": {**asked, "operator": walks.machine.model.operator},
        }
        with opened_file(self.journal, fingerprint_of(parts)) as journal:
            yield journal

    def _starts(self, walks: Walks, outers: Sequence[Outer]) -> tuple[list[Point], SearchPlan]:
        """The best of the grid for all rows and for those of each outer fold."""
        starts, plan = walks.starts(outers)
        if self.verbose:
            first = starts[0]
            words = f"gamma={first.gamma[0]:.3g}, alpha={first.ridge:.3g}"
            print(f"start of {len(starts)} descents: {words} on all rows", flush=True)
        return starts, plan

    def _walk(
        self,
        walks: Walks,
        outers: Sequence[Outer],
        starts: Sequence[Point],
        journal: Journal | None,
    ) -> list[Walked]:
        """The walks of all outer folds, with what their points score.

        All outer folds get one strength after the other, from strong to weak, until one is worse
        than the one before.
        """
        begin, found = time.perf_counter(), [Walked([start]) for start in starts]
        for some in [self._shrinkages[k : k + 1] for k in range(len(self._shrinkages))] or [()]:
            rest = (some, self.max_iter, self.n_jobs, journal)
            for k, walked in walks.run(outers, tuple(found), *rest):
                found[k] = walked
                if self.verbose:
                    words = f"{walked.points[-1].steps} steps, {time.perf_counter() - begin:.1f} s"
                    strength = f"shrinkage {some[0]:g}" if some else "start"
                    print(f"{strength} without outer fold {k + 1}, {words}", flush=True)
            if some and np.mean([own.worth[-1] - own.worth[-2] for own in found]) < 0.0:
                break
        return found

    # -- the answer --------------------------------------------------------------------------------

    def _keep(self, walks: Walks, points: Sequence[Point], choice: OuterChoice) -> None:
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
        self.summary_ = summary_of(self.path_, best, len(choice.scores))

    def _tune(self, walks: Walks, best: Point) -> Estimator:
        """The estimator of the best point, which is not fitted yet."""
        estimator = walks.machine.configured(best, walks.rows, self.scoring)
        self.best_params_ = walks.machine.tuned(estimator, best)
        return estimator

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


def _seeded(model: Model, random: np.random.RandomState) -> Model:
    """The model whose operator draws the same landmarks every time."""
    if not isinstance(model.operator, Nystrom):
        return model
    seeded = model.operator.seeded(lambda: int(random.randint(2**31 - 1)))
    return replace(model, operator=seeded)

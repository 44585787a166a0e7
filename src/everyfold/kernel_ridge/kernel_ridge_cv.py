"""``KernelRidgeCV`` and ``KernelRidgeClassifierCV``: scikit-learn's RidgeCV with kernels.

The classes read parameters and data; :mod:`everyfold.kernel_ridge.selection` chooses.
"""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from numbers import Integral, Real
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.utils import Tags, check_random_state, check_scalar, compute_sample_weight
from sklearn.utils.validation import check_is_fitted, validate_data

from everyfold._progress import warn
from everyfold._typing import (
    AnyArray,
    Array,
    Matrix,
    Params,
    RandomState,
    Scorer,
    Splitter,
    Targets,
)
from everyfold.crossval import Folds, InexactWarning
from everyfold.estimators import KernelClassifier, KernelRegressor
from everyfold.estimators.base import fit_columns, keep_parameters
from everyfold.estimators.model import ClassWeight, KernelChoice, Model, read_weights
from everyfold.estimators.targets import Labels, Numbers, Target
from everyfold.gradient.gradient_search import FastGradientSearchCV
from everyfold.gradient.outer_folds import scaled
from everyfold.kernel_ridge.bands import (
    BandExpansion,
    BandSelection,
    ColumnsOfBand,
    fit_bands,
    groups_of_targets,
    read_bands,
)
from everyfold.kernel_ridge.ridge_scores import Judge
from everyfold.kernel_ridge.selection import Chosen, Selection, Tuned, spread_of_columns
from everyfold.kernels import Gamma, Kernel, KernelLike, check_precomputed, factors_of
from everyfold.linalg.blas import blas_threads
from everyfold.linalg.memory import check_memory
from everyfold.losses import Squared
from everyfold.operators import Nystrom
from everyfold.operators.base import Expansion, OperatorChoice

# Kernels that have a gamma.
WITH_GAMMA = ("rbf", "laplacian", "polynomial", "poly")

# Folds of the descent to a gamma for every feature in place of leave-one-out, which would take a
# product for each row; and rows from which it takes landmarks, with their number.
DESCENT_FOLDS, DESCENT_ROWS, DESCENT_LANDMARKS = 10, 1500, 500


def _takes_weights(scorer: Scorer | None) -> bool:
    """Whether rows count by their weight in a score, as in RidgeCV."""
    metric = getattr(scorer, "_score_func", None)
    return metric is not None and "sample_weight" in signature(metric).parameters


class RidgeByFolds(BaseEstimator):  # type: ignore[misc]
    """What the regressor and the classifier share."""

    alphas: Literal["tune"] | ArrayLike
    kernel: KernelLike
    gamma: Literal["tune"] | ArrayLike | None
    degree: int
    coef0: float
    kernel_params: Params | None
    operator: OperatorChoice
    fit_intercept: bool
    scoring: Scorer
    cv: Splitter
    length_scales: Literal["shared", "per_feature"]
    scale: Literal["auto", "robust"] | None
    store_cv_results: bool
    random_state: RandomState
    alpha_per_target: bool = False
    band_search: Literal["gradient"] | int = "gradient"
    target_groups: Literal["each"] | ArrayLike | None = None

    # Numbers or arrays, as y is, and lists of several kernels: only the parameters tell which.
    alpha_: Targets
    best_score_: Targets
    kernel_: Kernel | list[Kernel]
    gamma_: Gamma | list[Gamma]
    expansion_: Expansion | BandExpansion

    def _fit(
        self, X: Matrix, y: Targets, target: Target, weights: Array | None, groups: ArrayLike | None
    ) -> None:
        """Choose kernel and ridges, and fit."""
        if isinstance(self.kernel, list):
            self._fit_bands(X, y, target, weights, groups)
            return
        alphas, gammas, model = self._alphas(), self._gammas(), self._model()
        if model.choice.is_precomputed:
            X = check_precomputed(X)
        w = read_weights(weights, X.shape[0])
        judge = self._judge(X, y, target, weights, groups, per_target=self.alpha_per_target)
        folds = judge.folds
        (problem,) = model.problems(target, w)
        scale = self._column_scale(X, w, is_tuned=gammas is None)
        rows = X if scale is None else scaled(X, scale)
        several = self.alpha_per_target and target.columns.shape[1] > 1
        choice = Selection(model, rows, problem, judge, alphas, several, self.store_cv_results)
        with blas_threads(X.shape[0]):
            tuned = None
            if gammas is None:
                random = check_random_state(self.random_state)
                tuned = choice.tuned(random)
                gammas = (tuned.gamma,)
                if self.length_scales == "per_feature":
                    factors = self._factors(rows, y, weights, tuned, folds, random)
                    scale = factors if scale is None else scale * factors
                    choice = replace(choice, X=scaled(X, scale))
            found = choice.among(gammas, tuned)
            final = replace(model, ridges=tuple(found.ridges.tolist()))
            solution = found.solution or fit_columns(final, found.operator, target, w)
        self.scale_ = scale
        self.expansion_ = found.operator.expand(solution.coef)
        self.intercept_: Array | float = solution.intercept
        self._keep(found, problem.y, w)

    def _judge(
        self,
        X: Matrix,
        y: Targets,
        target: Target,
        weights: Array | None,
        groups: ArrayLike | None,
        *,
        per_target: bool,
    ) -> Judge:
        """What scores held-out values."""
        folds, scorer = self._folds(X, y, groups), self._scorer()
        w = read_weights(weights, X.shape[0])
        params = {"sample_weight": w} if weights is not None and _takes_weights(scorer) else {}
        is_pooled = self.cv is None
        return Judge(target, (X, y), folds, w, scorer, params, is_pooled, per_target)

    def _fit_bands(
        self, X: Matrix, y: Targets, target: Target, weights: Array | None, groups: ArrayLike | None
    ) -> None:
        """Choose the weights of several kernels, and ridges, and fit."""
        if not isinstance(target, Numbers):
            raise ValueError(
                "several kernels are for numbers: use KernelRidgeCV on labels that are coded as "
                "numbers, or one kernel"
            )
        alphas, n = self._alphas(), X.shape[0]
        self._check_bands()
        w, random = read_weights(weights, n), check_random_state(self.random_state)
        if (w == 0.0).any():
            raise ValueError(
                "several kernels take no sample_weight of 0; leave these rows out of X and y"
            )
        self.scale_ = 1.0 / spread_of_columns(X, w) if self.scale == "robust" else None
        rows = X if self.scale_ is None else scaled(X, self.scale_)
        bands = read_bands(self._band_choices(), rows, w, random, self._names())
        check_memory(n, n * (len(bands.kernels) + 4) // 3, "or fewer kernels")
        model = replace(self._model(KernelChoice("precomputed")), operator="dense")
        (problem,) = model.problems(target, w)
        judge = self._judge(X, y, target, weights, groups, per_target=True)
        if judge.folds.odd:
            raise ValueError(
                "several kernels need folds that leave rows out: cv has a split with a test row in "
                "the training set, or with a repeated training row; use KFold, for example"
            )
        shared = groups_of_targets(self.target_groups, target.columns.shape[1])
        with blas_threads(n):
            matrices, sizes = bands.matrices(rows)
            choice = BandSelection(matrices, problem, judge, alphas, shared, self.alpha_per_target)
            if self.band_search == "gradient":
                chosen = choice.by_gradient()
            else:
                chosen = choice.by_draws(int(self.band_search), random)
            fit = fit_bands(model, choice, chosen, target)
        self.band_weights_ = chosen.weights / sizes[:, None]
        self.explained_by_band_ = fit.explained
        self.dual_coef_, self.intercept_, self.is_exact_ = fit.coef, fit.intercept, chosen.is_exact
        self.expansion_ = bands.expansion(rows, self.band_weights_, fit.coef)
        self.kernel_, self.gamma_ = bands.kernels, bands.gammas
        has_several = self.alpha_per_target or len(np.unique(shared)) > 1
        self.alpha_ = chosen.ridges if has_several else float(chosen.ridges[0])
        self.best_score_ = chosen.scores if has_several else float(chosen.scores.mean())

    def _check_bands(self) -> None:
        """Refuse what several kernels have no use for."""
        is_count = isinstance(self.band_search, Integral) and int(self.band_search) > 0
        reasons = {
            f"band_search={self.band_search!r} is not allowed; use 'gradient' or a number of "
            "random draws": self.band_search != "gradient" and not is_count,
            f"operator={self.operator!r} is not for several kernels; use 'auto' or 'dense'": (
                self.operator not in ("auto", "dense")
            ),
            "length_scales='per_feature' is not for several kernels; use 'shared'": (
                self.length_scales != "shared"
            ),
            "store_cv_results=True is not for several kernels; use scoring": self.store_cv_results,
            f"gamma={self.gamma!r} is not for several kernels; use 'tune', None or a number": (
                not (self.gamma is None or self.gamma == "tune" or isinstance(self.gamma, Real))
            ),
        }
        for reason, holds in reasons.items():
            if holds:
                raise ValueError(reason)

    def _band_choices(self) -> list[tuple[KernelChoice, ColumnsOfBand]]:
        """Kernel and columns of every band; gamma is None where it is still to be found."""
        assert isinstance(self.kernel, list)
        if not self.kernel or not all(isinstance(b, tuple) and len(b) == 2 for b in self.kernel):
            raise ValueError(
                "several kernels are a list of pairs (name or kernel, columns), such as "
                "[('linear', slice(0, 10)), ('rbf', [10, 11])]"
            )
        found = []
        for kernel, columns in self.kernel:
            if isinstance(kernel, str) and kernel == "precomputed":
                raise ValueError(
                    "kernel='precomputed' is not allowed in a band; name a kernel and columns"
                )
            gamma = self.gamma if isinstance(kernel, str) and kernel in WITH_GAMMA else None
            degree, coef0, params = self.degree, self.coef0, self.kernel_params
            found.append((KernelChoice(kernel, gamma, degree, coef0, params), columns))
        return found

    def _names(self) -> list[str]:
        """The names of the columns, if they have any."""
        return list(getattr(self, "feature_names_in_", ()))

    def _keep(self, found: Chosen, y: Array, w: Array) -> None:
        """The attributes of what was chosen."""
        has_several = len(found.ridges) > 1
        self.alpha_ = found.ridges if has_several else float(found.ridges[0])
        self.best_score_ = found.scores if has_several else float(found.scores[0])
        self.gamma_, self.kernel_ = found.gamma, found.kernel
        self.dual_coef_, self.is_exact_ = self.expansion_.coef, found.is_exact
        self.gammas_ = list(found.tables)
        self.alphas_ = np.stack([table.ridges for table in found.tables.values()])
        self.scores_ = np.stack([table.scores for table in found.tables.values()])
        values = found.tables[found.gamma].values
        if values is not None:
            held = values if self.scoring is not None else w[:, None] * (values - y) ** 2
            self.cv_results_ = held.transpose(1, 2, 0)
        if not found.is_exact:
            warn(
                f"the best alpha ({self.alpha_}) is so small beside the kernel matrix that "
                "its held-out scores may differ from those of refits; use larger alphas",
                InexactWarning,
            )

    # -- parameters --------------------------------------------------------------------------------

    def _model(self, choice: KernelChoice | None = None) -> Model:
        """Kernel, loss and operator; raises what is wrong with them."""
        if choice is None:
            choice = KernelChoice(self.kernel, None, self.degree, self.coef0, self.kernel_params)
        is_labels = is_classifier(self)
        return Model(choice, Squared(), (1.0,), bool(self.fit_intercept), is_labels, self.operator)

    def _alphas(self) -> tuple[float, ...] | None:
        """The ridges to choose from; None to tune them."""
        if isinstance(self.alphas, str) and self.alphas == "tune":
            return None
        if isinstance(self.alphas, str) or np.ndim(self.alphas) > 1 or np.size(self.alphas) == 0:
            raise ValueError(
                f"alphas={self.alphas!r} is not allowed; use 'tune', a number > 0, or several"
            )
        is_one = np.ndim(self.alphas) == 0
        bounds = "neither" if self.cv is None else "left"
        alphas = np.atleast_1d(np.asarray(self.alphas, dtype=object)).tolist()
        for i, alpha in enumerate(alphas):
            name = "alphas" if is_one else f"alphas[{i}]"
            check_scalar(alpha, name, Real, min_val=0.0, include_boundaries=bounds)
        return tuple(float(alpha) for alpha in alphas)

    def _gammas(self) -> tuple[float | None, ...] | None:
        """The gammas to choose from; None to tune one."""
        if self.length_scales not in ("shared", "per_feature"):
            raise ValueError(
                f"length_scales={self.length_scales!r} is not known; use 'shared' or 'per_feature'"
            )
        has_gamma = isinstance(self.kernel, str) and self.kernel in WITH_GAMMA
        is_tuned = has_gamma and isinstance(self.gamma, str) and self.gamma == "tune"
        if self.length_scales == "per_feature" and not is_tuned:
            raise ValueError(
                f"length_scales='per_feature' needs gamma='tune' and one of {WITH_GAMMA}, but "
                f"kernel={self.kernel!r} and gamma={self.gamma!r}"
            )
        if is_tuned:
            return None
        if not has_gamma or self.gamma is None:
            return (None,)
        if isinstance(self.gamma, str) or np.ndim(self.gamma) > 1 or np.size(self.gamma) == 0:
            raise ValueError(
                f"gamma={self.gamma!r} is not allowed; use 'tune', None (1/n_features), a number "
                ">= 0, or several to choose from"
            )
        return tuple(np.atleast_1d(np.asarray(self.gamma, dtype=np.float64)).tolist())

    def _scorer(self) -> Scorer | None:
        """The scorer; None for the squared error of leave-one-out."""
        if self.scoring is None and self.cv is None:
            return None
        if not (self.scoring is None or isinstance(self.scoring, str) or callable(self.scoring)):
            raise ValueError(
                f"scoring={self.scoring!r} is not a single scorer; pass a name or a callable"
            )
        return check_scoring(self, scoring=self.scoring)

    def _folds(self, X: Matrix, y: Targets, groups: ArrayLike | None) -> Folds:
        """Single rows, or those of the splitter."""
        if self.cv is None:
            return Folds.leave_one_out(X.shape[0])
        if self.store_cv_results:
            raise ValueError(
                f"cv!=None and store_cv_results=True are incompatible (cv={self.cv!r}): only the "
                "values of leave-one-out are stored; use cv=None, or scores_ for other folds"
            )
        splitter = check_cv(self.cv, y, classifier=is_classifier(self))
        return Folds.from_splits(splitter.split(X, y, groups), X.shape[0])

    def _column_scale(self, X: Matrix, weights: Array, *, is_tuned: bool) -> Array | None:
        """What columns are multiplied by, if they are."""
        if self.scale not in ("auto", "robust", None):
            raise ValueError(f"scale={self.scale!r} is not known; use 'auto', 'robust' or None")
        if self.scale is None or (self.scale == "auto" and not is_tuned):
            return None
        if isinstance(self.kernel, str) and self.kernel == "precomputed":
            raise ValueError(
                "scale='robust' needs columns; use scale=None for a precomputed kernel"
            )
        return 1.0 / spread_of_columns(X, weights)

    def _factors(
        self,
        X: Matrix,
        y: Targets,
        weights: Array | None,
        tuned: Tuned,
        folds: Folds,
        random: np.random.RandomState,
    ) -> Array:
        """A factor for every column, by descent from the best gamma that all of them share."""
        n, d = X.shape
        labels = is_classifier(self)
        seed = int(random.randint(2**31 - 1))
        is_large = n > DESCENT_ROWS and self.operator == "auto"
        kind = KernelClassifier if labels else KernelRegressor
        model = kind(
            kernel=self.kernel,
            gamma=tuned.gamma,
            degree=self.degree,
            coef0=self.coef0,
            operator=Nystrom(DESCENT_LANDMARKS, random_state=seed) if is_large else self.operator,
            alpha=tuned.ridge,
            fit_intercept=self.fit_intercept,
        )
        splits: Splitter = [(fold.train, fold.test) for fold in folds] if self.cv else None
        if splits is None:
            kfold = StratifiedKFold if labels else KFold
            splits = kfold(min(DESCENT_FOLDS, n), shuffle=True, random_state=seed)
        start = {"gamma": tuned.gamma, "alpha": tuned.ridge}
        search = FastGradientSearchCV(
            model, start=start, cv=splits, refit=False, random_state=seed
        ).fit(X, y, sample_weight=weights)
        gamma = np.broadcast_to(search.best_params_["gamma"], d) / tuned.gamma
        return np.array(factors_of(str(self.kernel), gamma.tolist()))

    # -- predictions -------------------------------------------------------------------------------

    def _values(self, X: Matrix) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        values: Array = self.expansion_(X if self.scale_ is None else scaled(X, self.scale_))
        return values + self.intercept_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


class KernelRidgeCV(RegressorMixin, RidgeByFolds):  # type: ignore[misc]
    r"""Kernel ridge regression that chooses its own alpha and gamma by exact held-out scores.

    It is to kernel ridge regression what :class:`sklearn.linear_model.RidgeCV` is to Ridge:
    leave-one-out, or any other folds, of all alphas follow from one factorisation of the kernel
    matrix. By default you need not choose anything: gamma and alpha are both tuned.

    Parameters
    ----------
    alphas : "tune", float or array of shape (n_alphas,), default="tune"
        The ridges to choose from, as in :class:`sklearn.kernel_ridge.KernelRidge`. "tune" takes
        33 of them between 2.5e-10 and 1 times the trace of the kernel matrix.
    kernel : {"rbf", "laplacian", "polynomial", "linear", "cosine", "precomputed"}, callable or list
        The kernel, named as in scikit-learn. Or a list of pairs ``(kernel, columns)``: a weighted
        sum of kernels, each of some columns of X (their numbers or names, a slice or a mask), whose
        weights are chosen as well ("banded ridge"). gamma is then a number for all of them, or
        "tune", the gamma at which typical rows of a band are at distance 1.
    gamma : "tune", None, float or array of shape (n_gammas,), default="tune"
        The gammas to choose from; None means 1/n_features. "tune" searches about ten of them,
        from coarse to fine, for the best score that any alpha has.
    degree, coef0 : int and float
        Parameters of the polynomial kernel.
    kernel_params : dict, optional
        Keyword arguments of a callable kernel.
    operator : {"auto", "dense"} or Structure, default="auto"
        How the kernel matrix is represented, as in :class:`everyfold.KernelRegressor`. "auto" is
        exact, and takes the columns themselves if the kernel is linear and they are fewer than the
        rows.
    fit_intercept : bool, default=True
        Whether to add a free constant b.
    scoring : str or callable, optional
        What is compared; by default the negative mean squared error of leave-one-out, and R² with
        other folds, as in RidgeCV.
    cv : int, splitter or iterable of splits, optional
        None is leave-one-out; its held-out values are scored all together.
    alpha_per_target : bool, default=False
        Whether each target has the alpha that is best for it. Folds of any kind are allowed.
    length_scales : {"shared", "per_feature"}, default="shared"
        "per_feature" starts from the best common gamma and tunes one for each feature by the
        gradient of the held-out error (:class:`everyfold.FastGradientSearchCV`). It needs
        ``gamma="tune"``.
    scale : {"auto", "robust"} or None, default="auto"
        "robust" divides each column by its spread before the kernel: the range of all values but
        the 5 % largest and the 5 % smallest, or the whole range where that is 0 or X is sparse.
        "auto" does so if gamma is tuned.
    store_cv_results : bool, default=False
        Whether to keep ``cv_results_``; for leave-one-out only.
    random_state : int, RandomState or None, default=None
        Seed of the rows and landmarks by which gamma is searched, and of random weights.
    band_search : "gradient" or int, default="gradient"
        How the weights of several kernels are chosen: along the exact gradient of the held-out
        squared error (of targets with variance 1), or, with a number, as the best of that many
        random draws.
    target_groups : None, "each" or array of shape (n_targets,), default=None
        Which targets share the weights of several kernels: all of them (None), none ("each"), or
        those of a group, with an array of the number or name of each target's group.

    Attributes
    ----------
    alpha_ : float or array of shape (n_targets,)
        The best alpha; one for each target with ``alpha_per_target=True``.
    best_score_ : float or array of shape (n_targets,)
        The score of ``alpha_``.
    gamma_ : float or None
        The best gamma, of scaled columns.
    scale_ : array of shape (n_features,) or None
        What columns are multiplied by before the kernel.
    gammas_ : list
        The gammas that were scored with all alphas.
    alphas_ : array of shape (n_gammas, n_alphas)
    scores_ : array of shape (n_gammas, n_alphas, n_targets) or (n_gammas, n_alphas, 1)
        Of each target where the score has one for it; NaN for alphas that are too small.
    cv_results_ : array of shape (n_samples, n_alphas) or (n_samples, n_targets, n_alphas)
        With ``store_cv_results=True``: squared errors of leave-one-out for ``gamma_``, or its
        predictions if there is a ``scoring``.
    band_weights_ : array of shape (n_bands, n_targets)
        What each of several kernels is multiplied by.
    explained_by_band_ : array of shape (n_bands, n_targets)
        What each of several kernels adds to the R² of held-out rows; their sum is that R².
    is_exact_ : bool
        Whether ``best_score_`` is that of refits, up to rounding.
    dual_coef_, intercept_, kernel_, expansion_
        As in :class:`everyfold.KernelRegressor`, for scaled columns; coefficients and intercept
        without the second axis if y has none.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    **Cost** one factorisation for each gamma, about 9 n³ flops, and 2 n² for each alpha and target.
    gamma takes about ten kernels, by landmarks with more than 150 rows: a handful with c = 100, and
    four or five with c = 400, of 4 n c² flops each. With more than 600 rows alpha is found by
    these as well, and the full kernel is factorised for this alpha and, up to 1500 rows, for those
    beside it. With more targets than rows, the targets are scored in batches. **Exact?**
    ``best_score_`` is that of refitting every fold. The scores with landmarks, which select gamma,
    are not; the gamma that is found is a local optimum.

    Examples
    --------
    >>> from everyfold import KernelRidgeCV
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = KernelRidgeCV(random_state=0).fit(X, y)
    >>> -round(model.best_score_), bool(0 < model.alpha_ < 10)
    (2912, True)
    """

    def __init__(
        self,
        alphas: Literal["tune"] | ArrayLike = "tune",
        *,
        kernel: KernelLike = "rbf",
        gamma: Literal["tune"] | ArrayLike | None = "tune",
        degree: int = 3,
        coef0: float = 1.0,
        kernel_params: Params | None = None,
        operator: OperatorChoice = "auto",
        fit_intercept: bool = True,
        scoring: Scorer = None,
        cv: Splitter = None,
        alpha_per_target: bool = False,
        length_scales: Literal["shared", "per_feature"] = "shared",
        scale: Literal["auto", "robust"] | None = "auto",
        store_cv_results: bool = False,
        random_state: RandomState = None,
        band_search: Literal["gradient"] | int = "gradient",
        target_groups: Literal["each"] | ArrayLike | None = None,
    ) -> None:
        keep_parameters(self, locals())

    def fit(
        self,
        X: Matrix,
        y: Targets,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> KernelRidgeCV:
        """Choose alpha and gamma, and fit.

        Parameters
        ----------
        X : {array, CSR matrix, data frame} of shape (n_samples, n_features)
            For ``kernel="precomputed"`` the kernel matrix of shape (n_samples, n_samples).
        y : array of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array of shape (n_samples,), optional
            A row with weight 0 is left out of every fit. Scores are weighted, unless a ``scoring``
            does not accept weights.
        groups : array of shape (n_samples,), optional
            Passed to the splitter.

        Returns
        -------
        self
        """
        if np.asarray(y).dtype.kind in "US":
            raise ValueError(
                f"y has labels, such as {str(np.ravel(y)[0])!r}; use KernelRidgeClassifierCV"
            )
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64, multi_output=True, y_numeric=True
        )
        weights = None if sample_weight is None else read_weights(sample_weight, X.shape[0])
        target = Numbers.read(y)
        self._fit(X, y, target, weights, groups)
        if target.is_flat:
            self.intercept_ = float(np.ravel(self.intercept_)[0])
            self.dual_coef_ = self.dual_coef_[:, 0]
            if self.store_cv_results:
                self.cv_results_ = self.cv_results_[:, 0]
        self._is_flat = target.is_flat
        return self

    def predict(self, X: Matrix) -> Array:
        """Predict the rows of X.

        For ``kernel="precomputed"``, X is the kernel between the new rows and the training rows.
        """
        values = self._values(X)
        return values[:, 0] if self._is_flat else values

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class KernelRidgeClassifierCV(ClassifierMixin, RidgeByFolds):  # type: ignore[misc]
    """A classifier by kernel ridge regression on ±1 labels that chooses its own alpha and gamma.

    It is the version with kernels of :class:`sklearn.linear_model.RidgeClassifierCV`, and otherwise
    like :class:`KernelRidgeCV`. More than two classes are handled one versus rest, all from the
    same factorisation.

    Parameters
    ----------
    alphas, kernel, gamma, degree, coef0, kernel_params, operator, fit_intercept
        As in :class:`KernelRidgeCV`.
    scoring : str or callable, optional
        What is compared; by default the negative mean squared error of the decision values of
        leave-one-out, and accuracy with other folds, as in RidgeClassifierCV.
    cv, length_scales, scale, store_cv_results, random_state
        As in :class:`KernelRidgeCV`. An integer ``cv`` means stratified folds.
    class_weight : dict, "balanced" or None, default=None
        Factors of the sample weights by class; "balanced" means inverse to the class frequencies
        of all rows.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    alpha_, best_score_ : float
    gamma_, scale_, gammas_, alphas_, scores_, cv_results_, is_exact_
        As in :class:`KernelRidgeCV`, with ±1 labels for targets.
    dual_coef_, intercept_, kernel_, expansion_, n_features_in_, feature_names_in_
        As in :class:`everyfold.KernelClassifier`.

    Notes
    -----
    **Cost** and **Exact?** As in :class:`KernelRidgeCV`.

    Examples
    --------
    >>> from everyfold import KernelRidgeClassifierCV
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> round(KernelRidgeClassifierCV(scoring="accuracy", random_state=0).fit(X, y).best_score_, 2)
    0.99
    """

    def __init__(
        self,
        alphas: Literal["tune"] | ArrayLike = "tune",
        *,
        kernel: KernelLike = "rbf",
        gamma: Literal["tune"] | ArrayLike | None = "tune",
        degree: int = 3,
        coef0: float = 1.0,
        kernel_params: Params | None = None,
        operator: OperatorChoice = "auto",
        fit_intercept: bool = True,
        scoring: Scorer = None,
        cv: Splitter = None,
        class_weight: ClassWeight = None,
        length_scales: Literal["shared", "per_feature"] = "shared",
        scale: Literal["auto", "robust"] | None = "auto",
        store_cv_results: bool = False,
        random_state: RandomState = None,
    ) -> None:
        keep_parameters(self, locals())

    def fit(
        self,
        X: Matrix,
        y: Targets,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> KernelRidgeClassifierCV:
        """Choose alpha and gamma, and fit.

        Parameters
        ----------
        X : {array, CSR matrix, data frame} of shape (n_samples, n_features)
            For ``kernel="precomputed"`` the kernel matrix of shape (n_samples, n_samples).
        y : array of shape (n_samples,)
            Class labels, at least two different ones.
        sample_weight : array of shape (n_samples,), optional
            A row with weight 0 is left out of every fit.
        groups : array of shape (n_samples,), optional
            Passed to the splitter.

        Returns
        -------
        self
        """
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        self._alphas()  # wrong parameters are named before wrong labels, as in RidgeClassifierCV
        labels = Labels.read(y)
        weights = None if sample_weight is None else read_weights(sample_weight, X.shape[0])
        if self.class_weight is not None:
            by_class = compute_sample_weight(self.class_weight, y)
            weights = by_class if weights is None else weights * by_class
        self._fit(X, labels.truth, labels, weights, groups)
        self.classes_ = labels.classes
        self._decoder = labels.emptied()
        return self

    def decision_function(self, X: Matrix) -> Array:
        """Decision values f(x) + b.

        One per row for two classes, positive for the second; otherwise one per row and class.
        """
        return np.asarray(self._decoder_of_fit().decide(self._values(X)))

    def predict(self, X: Matrix) -> AnyArray:
        """Predict the label of each row of X."""
        return self._decoder_of_fit().predict(self._values(X))

    def _decoder_of_fit(self) -> Labels:
        check_is_fitted(self)
        return self._decoder

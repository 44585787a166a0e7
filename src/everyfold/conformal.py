"""Prediction intervals from the models of all folds: jackknife+, CV+ and similar methods.

``FastCrossConformalRegressor`` keeps the models of all folds and their errors on held-out rows. The
interval of a new row is made of quantiles of the models' predictions plus or minus these errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from numbers import Integral, Real
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, is_classifier
from sklearn.model_selection import KFold, LeaveOneOut
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from everyfold._progress import warn
from everyfold._sklearn_private import num_samples
from everyfold._typing import (
    Array,
    Estimator,
    Fallback,
    Matrix,
    Params,
    Preprocessing,
    RandomState,
    Splitter,
    Targets,
)
from everyfold.crossval import InexactWarning
from everyfold.engine.kept_models import KeptFolds, keep_folds
from everyfold.engine.reading.reader import not_sped_up, warn_of_refits
from everyfold.engine.renamed_parameters import warn_of_fallback
from everyfold.engine.request import HOW_TO_FILTER, Options, Request, RequestedOutputs
from everyfold.estimators.base import keep_parameters
from everyfold.functions.cross_val import parted, route
from everyfold.io.base import check_in_memory

Aggregate = Literal["mean", "median"] | None

_METHODS = ("plus", "base", "minmax")
_BLOCK = 4_000_000  # numbers at a time: new rows times rows of the fit


class FastCrossConformalRegressor(RegressorMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    r"""Prediction intervals by cross-validation, without refitting for squared loss.

    Names and results are those of :class:`CrossConformalRegressor` of MAPIE 1.x with absolute
    conformity scores. Let :math:`f_{-S(i)}` be the model of the fold that held out row i, and
    :math:`e_i` the residual of row i by this model. The interval of a new row x lies between
    quantiles of :math:`f_{-S(i)}(x) \pm |e_i|` (Barber et al. 2021).

    Parameters
    ----------
    estimator : regressor
        For ``KernelRidge``, ``Ridge``, ``LSSVR`` and ``KernelRegressor`` with squared loss the
        models of all folds come from one factorisation. Others (``SVR``, smooth losses, steps of a
        Pipeline or a gamma that depend on the training rows) are fitted on each fold. The same
        holds for any other regressor, with an :class:`UnsupportedWarning`.
    confidence_level : float or sequence of float, default=0.9
        The share of new rows that the intervals should cover; several levels give several
        intervals.
    method : {"plus", "base", "minmax"}, default="plus"
        "plus": jackknife+ or CV+, as above. "base": the prediction of the model fitted on all rows
        ± a quantile of the :math:`|e_i|`. "minmax": from the smallest :math:`f_{-S}(x)` minus that
        quantile to the largest plus that quantile, which is the widest interval.
    cv : int or splitter, default=5
        A number of shuffled folds, -1 or ``LeaveOneOut()`` for the jackknife, or a splitter whose
        test sets are a partition.
    n_jobs : int, default=None
        The number of fits at a time, if folds are fitted one by one.
    preprocessing
        As in :class:`FastGridSearchCV`.
    fallback : {"warn", "refit", "refuse"}, default="deprecated"
        What happens to an estimator that cannot be sped up. It works for one more release; filter
        :class:`UnsupportedWarning` instead.
    random_state : int, RandomState or None, default=None
        Seed of the shuffled folds.

    Attributes
    ----------
    conformity_scores_ : array of shape (n_samples,)
        The \|e_i\|.
    is_exact_ : bool
        Whether the models of the folds equal refits, up to rounding.
    how_ : str
        How the models were computed, in words.

    Notes
    -----
    **Cost** for squared loss: one factorisation, and 2 n t flops per new row with t folds; that is
    n² for the jackknife+, whose coefficients take 8 n² bytes. **Exact?** Up to rounding. If the
    structure draws landmarks, all folds use the landmarks drawn from all rows.

    "plus" covers at least 1 - 2(1 - confidence_level) of new rows for any distribution (with k
    folds a little less), and about ``confidence_level`` in practice. "minmax" covers at least
    ``confidence_level``.

    References
    ----------
    R. F. Barber, E. J. Candès, A. Ramdas, R. J. Tibshirani (2021). Predictive inference with the
    jackknife+. Annals of Statistics 49.

    Examples
    --------
    >>> from everyfold import FastCrossConformalRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> ridge = KernelRidge(alpha=0.1, kernel="rbf", gamma=5.0)
    >>> conformal = FastCrossConformalRegressor(ridge, cv=-1).fit_conformalize(X[:-2], y[:-2])
    >>> points, intervals = conformal.predict_interval(X[-2:])
    >>> points.shape, intervals.shape
    ((2,), (2, 2, 1))
    """

    def __init__(
        self,
        estimator: Estimator,
        *,
        confidence_level: float | Iterable[float] = 0.9,
        method: Literal["plus", "base", "minmax"] = "plus",
        cv: Splitter = 5,
        n_jobs: int | None = None,
        preprocessing: Preprocessing = "per_fold",
        fallback: Fallback | Literal["deprecated"] = "deprecated",
        random_state: RandomState = None,
    ) -> None:
        keep_parameters(self, locals())

    def fit_conformalize(
        self,
        X: Matrix,
        y: Targets,
        groups: ArrayLike | None = None,
        fit_params: Params | None = None,
    ) -> FastCrossConformalRegressor:
        """Fit the models of all folds and the model on all rows, and keep the held-out residuals.

        Parameters
        ----------
        X : {array, CSR matrix, data frame} of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        groups : array of shape (n_samples,), optional
            Passed to the splitter.
        fit_params : dict, optional
            ``sample_weight`` for fitting (for a Pipeline ``step__sample_weight``); in the quantiles
            every row counts the same.

        Returns
        -------
        self
        """
        check_in_memory(X, type(self).__name__)
        self._check()
        self._fallback: Fallback = "warn"
        if self.fallback != "deprecated":
            warn_of_fallback(self.fallback)
            self._fallback = self.fallback
        y = column_or_1d(y, dtype=np.float64, warn=True)
        splitter = self._splitter()
        if groups is not None and get_config()["enable_metadata_routing"]:
            groups, fit_params = None, {**(fit_params or {}), "groups": groups}
        metadata = route("cross_val_predict", self.estimator, splitter, None, groups, fit_params)
        options = Options(
            n_confirm=0,
            preprocessing=self.preprocessing,
            error_score="raise",
            n_jobs=self.n_jobs,
            fallback=self._fallback,
        )
        wants = RequestedOutputs(partition=True, selects_by=None)
        request = Request(
            self.estimator, [{}], X, y, splitter, metadata=metadata, options=options, wants=wants
        )
        self._say_fallback(request)
        kept = keep_folds(request)
        self._keep(kept, X, y)
        return self

    def fit(self, X: Matrix, y: Targets, **fit_params: object) -> FastCrossConformalRegressor:
        """The same as ``fit_conformalize``, under scikit-learn's name.

        Parameters
        ----------
        X, y
            As in ``fit_conformalize``.
        **fit_params
            ``groups`` are passed to the splitter, and to a search; everything else is passed to the
            ``fit`` of the estimator. With metadata routing, to whatever requests it.

        Returns
        -------
        self
        """
        if get_config()["enable_metadata_routing"]:
            return self.fit_conformalize(X, y, fit_params=fit_params)
        metadata = parted(self.estimator, fit_params)
        return self.fit_conformalize(X, y, metadata.split.get("groups"), metadata.fit)

    def predict_interval(
        self,
        X: Matrix,
        aggregate_point_predictions: Aggregate = "mean",
        *,
        allow_infinite_bounds: bool = False,
    ) -> tuple[Array, Array]:
        """Point predictions and intervals for new rows.

        Parameters
        ----------
        X : {array, CSR matrix, data frame} of shape (n_samples, n_features)
        aggregate_point_predictions : {"mean", "median"} or None, default="mean"
            How point predictions are computed: as mean or median over the training rows of the
            predictions by the models without that row; or, with None and always for
            ``method="base"``, by the model fitted on all rows.
        allow_infinite_bounds : bool, default=False
            Whether a confidence level that is too high for the number of rows gives infinite
            intervals instead of an error.

        Returns
        -------
        points : array of shape (n_samples,)
        intervals : array of shape (n_samples, 2, n_levels)
            Lower and upper bounds.
        """
        check_is_fitted(self, "conformity_scores_")
        _check_aggregate(aggregate_point_predictions)
        alphas = _read_levels(self.confidence_level)
        if not allow_infinite_bounds:
            _check_count(alphas, len(self.conformity_scores_))
        points, bounds = [], []
        for values in self._values(X):
            points.append(self._points(values, aggregate_point_predictions))
            bounds.append(self._bounds(values, alphas))
        return np.concatenate(points), np.concatenate(bounds)

    def predict(self, X: Matrix, aggregate_point_predictions: Aggregate = "mean") -> Array:
        """Point predictions for new rows, as in ``predict_interval``."""
        check_is_fitted(self, "conformity_scores_")
        _check_aggregate(aggregate_point_predictions)
        blocks = self._values(X)
        return np.concatenate([self._points(b, aggregate_point_predictions) for b in blocks])

    @property
    def conformity_scores(self) -> Array:
        """The absolute residuals of held-out rows, under MAPIE's name."""
        check_is_fitted(self, "conformity_scores_")
        return self.conformity_scores_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags

    # -- before and after the work -------------------------------------------------------------

    def _check(self) -> None:
        """Raise what is wrong with the parameters."""
        _read_levels(self.confidence_level)
        if self.method not in _METHODS:
            raise ValueError(f"method={self.method!r} is not known; use one of {_METHODS}")
        if is_classifier(self.estimator):
            raise ValueError(
                f"estimator={type(self.estimator).__name__} is a classifier, and intervals are for "
                "numbers; use a regressor, or FastCalibratedClassifierCV for probabilities"
            )

    def _splitter(self) -> Splitter:
        """A number of folds means shuffled ones, as in MAPIE."""
        if not isinstance(self.cv, Integral) or isinstance(self.cv, bool):
            return self.cv
        if self.cv == -1:
            return LeaveOneOut()
        if self.cv < 2:
            raise ValueError(f"cv={self.cv} is not allowed; use 2 folds or more, or -1 for n")
        return KFold(int(self.cv), shuffle=True, random_state=self.random_state)

    def _say_fallback(self, request: Request) -> None:
        reason = not_sped_up(request)
        if reason and request.options.fallback == "warn":
            warn_of_refits(
                [self.estimator],
                f"the estimator is refitted on every fold: {reason}. {HOW_TO_FILTER}",
            )

    def _keep(self, kept: KeptFolds, X: Matrix, y: Array) -> None:
        if kept.predictors.checks_rows:
            validate_data(self, X, skip_check_array=True)
        self.conformity_scores_ = np.abs(y - kept.held_out)
        self.is_exact_ = kept.is_exact
        self.how_ = kept.words
        self._predictors, self._fold_of = kept.predictors, kept.fold_of
        if not np.isfinite(self.conformity_scores_).all():
            raise ValueError("a fold has predictions that are not finite; use a larger ridge")
        if kept.remark:
            words = f"the models of the folds may differ from refits: {kept.remark}"
            warn(words, InexactWarning)

    # -- new rows ------------------------------------------------------------------------------

    def _values(self, X: Matrix) -> Iterator[Array]:
        """What all models say of the new rows, in blocks of at most about 32 MB a row of the fit.

        A column for each fold, and a last one for the model of all rows.
        """
        if self._predictors.checks_rows:
            X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        is_sparse: bool = sparse.issparse(X)
        if is_sparse:
            X = X.tocsr()  # other formats cannot be cut
        step = max(1, _BLOCK // len(self._fold_of))
        for i in range(0, num_samples(X), step):
            block = X.iloc[i : i + step] if hasattr(X, "iloc") else X[i : i + step]
            yield self._predictors(block)

    def _points(self, values: Array, aggregate: Aggregate) -> Array:
        if aggregate is None or self.method == "base":
            return values[:, -1]
        if aggregate == "median":
            return np.asarray(np.median(values[:, self._fold_of], axis=1))
        return values[:, :-1] @ (np.bincount(self._fold_of) / len(self._fold_of))

    def _bounds(self, values: Array, alphas: Array) -> Array:
        """Lower and upper bounds, (rows, 2, levels)."""
        scores = self.conformity_scores_
        if self.method == "plus":
            spread = values[:, self._fold_of]
            # As MAPIE rounds: 0.95 is (1 - 0.1) + 0.05 below, which is the next number.
            lower = -_quantiles(scores - spread, (1.0 - 2.0 * alphas) + alphas)
            return np.stack([lower, _quantiles(scores + spread, 1.0 - alphas)], axis=1)
        margin = _quantiles(scores[None], 1.0 - alphas)
        low = high = values[:, -1:]
        if self.method == "minmax":
            low = values[:, :-1].min(axis=1, keepdims=True)
            high = values[:, :-1].max(axis=1, keepdims=True)
        return np.stack([low - margin, high + margin], axis=1)


def _quantiles(values: Array, levels: Array) -> Array:
    """The ⌈level · (n + 1)⌉-th smallest of the n values of each row, infinite beyond the n-th."""
    n = values.shape[1]
    places = np.ceil(levels * (n + 1)).astype(np.intp) - 1
    found = np.full((len(values), len(levels)), np.inf)
    inside = np.flatnonzero(places < n)
    if len(inside):
        ordered = np.partition(values, np.unique(places[inside]), axis=1)
        found[:, inside] = ordered[:, places[inside]]
    return found


def _read_levels(confidence_level: float | Iterable[float]) -> Array:
    """What confidence levels leave out, 1 - level in decimals: that of 0.9 is 0.1."""
    given = confidence_level if isinstance(confidence_level, Iterable) else [confidence_level]
    given = list(given)
    for level in given:
        if not (isinstance(level, Real) and 0.0 < float(level) < 1.0):
            raise ValueError(
                f"confidence_level={confidence_level!r} is not allowed; use a number between 0 and "
                "1, such as 0.9, or several"
            )
    if not given:
        raise ValueError("confidence_level is empty; use a number such as 0.9, or several")
    return np.array([float(1 - Decimal(str(float(level)))) for level in given])


def _check_count(alphas: Array, n: int) -> None:
    """Raise if a quantile would be beyond the largest of n values."""
    for alpha in alphas:
        if n < max(1.0 / alpha, 1.0 / (1.0 - alpha)):
            raise ValueError(
                f"confidence_level={1.0 - alpha:g} needs at least "
                f"{math.ceil(max(1.0 / alpha, 1.0 / (1.0 - alpha)))} rows, and there are {n}; use "
                "another level, or allow_infinite_bounds=True"
            )


def _check_aggregate(aggregate: Aggregate) -> None:
    if aggregate not in ("mean", "median", None):
        raise ValueError(
            f"aggregate_point_predictions={aggregate!r} is not known; use 'mean', 'median' or None"
        )

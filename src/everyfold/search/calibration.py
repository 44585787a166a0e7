"""Probabilities from held-out decision values: scikit-learn's calibration without its refits.

The decision values come from ``cross_val_predict``, from the models of all folds, or from a search
that has kept them; scikit-learn's calibrators are fitted to them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from inspect import signature
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import LeaveOneOut, check_cv
from sklearn.utils import assert_all_finite, get_tags, indexable
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from everyfold._progress import warn
from everyfold._sklearn_private import (
    HasMethods,
    StrOptions,
    check_sample_weight,
    fit_calibrator,
    fit_context,
    num_samples,
    safe_indexing,
)
from everyfold._typing import (
    AnyArray,
    Array,
    Estimator,
    Index,
    Matrix,
    Params,
    Preprocessing,
    RandomState,
    Splitter,
    Targets,
)
from everyfold.crossval import InexactWarning
from everyfold.engine.kept_models import fold_classifiers
from everyfold.engine.renamed_parameters import RenamedParameters
from everyfold.engine.request import Metadata, MethodChoice, MethodOptions, Options, Request
from everyfold.estimators.classifiers import decide_together
from everyfold.functions.cross_val import cross_val_predict, parted
from everyfold.io.base import check_in_memory
from everyfold.judge.fitted import KnownDecisions
from everyfold.search.base import FastSearchCV


class FastCalibratedClassifierCV(RenamedParameters, CalibratedClassifierCV):  # type: ignore[misc]
    """Calibrated probabilities of a kernel machine, without refitting it on every fold.

    The result is that of :class:`sklearn.calibration.CalibratedClassifierCV`. Use it also to get
    probabilities of an SVC, whose parameter ``probability`` scikit-learn is removing; with
    ``ensemble=False`` one classifier is kept, and no fold is refitted.

    Parameters
    ----------
    estimator : classifier or search
        ``SVC``, ``LSSVC``, any other classifier that :func:`cross_val_predict` accepts, or a
        ``Pipeline``; or a :class:`FastGridSearchCV` or :class:`FastRandomizedSearchCV` of one. With
        ``cv=None`` a search is fitted once, and its winner is calibrated on its own folds, on which
        it was selected. With a ``cv`` the whole search is repeated on each training set of ``cv``,
        as scikit-learn does.
    method : {"sigmoid", "isotonic", "temperature"}, default="sigmoid"
        The calibrator, scikit-learn's own; "temperature" since scikit-learn 1.8.
    cv : int, splitter or iterable of splits, default=None
        As in scikit-learn; with ``ensemble=False`` the test sets must be a partition of the rows.
    n_jobs : int, default=None
        As in :func:`cross_val_predict`; if the estimator is a search, its own parameter is used.
    ensemble : bool or "auto", default="auto"
        True: the classifier is fitted to the training rows of each fold and calibrated on the test
        rows, and the probabilities of all these are averaged. For ``LSSVC`` and other classifiers
        of this library with squared loss, the models of all folds come from one factorisation;
        others are fitted on each fold. False: the calibrator is fitted to the held-out values of
        all rows, which need no refits, and the classifier to all rows. "auto" is False for a
        ``FrozenEstimator``, as in scikit-learn, and for precomputed kernels, otherwise True.
    cv_method, preprocessing, random_state
        Of held-out values (``ensemble=False``), as ``method`` and others in
        :class:`FastGridSearchCV`; if the estimator is a search, its own parameters are used.
    **deprecated
        ``order`` and ``fallback`` of version 0.2 work for one more release, with a warning that
        prints the new call.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    calibrated_classifiers_ : list
        Pairs of a classifier and its calibrators: one for each fold, or with ``ensemble=False`` one
        with the classifier (or search) fitted to all rows. With ``ensemble=True`` those of a search
        without ``cv`` are the winner's.
    n_features_in_, feature_names_in_
        If the estimator has them.

    Notes
    -----
    **Cost** with ``ensemble=False`` that of ``cross_val_predict`` and one fit; for a search, that
    of the search. With ``ensemble=True`` a fit for each fold, or one factorisation for squared loss
    and a kernel that all folds share; a search is added. **Exact?** An ensemble consists of refits,
    or equals them up to rounding. Otherwise as exact as the held-out values: for squared loss up to
    rounding, for SVC up to libsvm's own tolerance; :class:`InexactWarning` otherwise.

    Examples
    --------
    >>> from everyfold import FastCalibratedClassifierCV
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.svm import SVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = FastCalibratedClassifierCV(SVC(), cv=5, ensemble=False)
    >>> model.fit(X, y).predict_proba(X[:2]).round(2)
    array([[1., 0.],
           [1., 0.]])
    """

    _method_name = "cv_method"
    _parameter_constraints: Params = {  # noqa: RUF012
        **CalibratedClassifierCV._parameter_constraints,
        "estimator": [
            HasMethods(["fit", "decision_function"]),
            HasMethods(["fit", "predict_proba"]),
        ],
        "cv_method": "no_validation",
        "preprocessing": [StrOptions({"auto", "per_fold", "once"})],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: Estimator,
        *,
        method: Literal["sigmoid", "isotonic", "temperature"] = "sigmoid",
        cv: Splitter = None,
        n_jobs: int | None = None,
        ensemble: bool | Literal["auto"] = "auto",
        cv_method: MethodChoice = "auto",
        preprocessing: Preprocessing = "per_fold",
        random_state: RandomState = None,
        **deprecated: Any,
    ) -> None:
        self._keep_parameters(locals())

    @fit_context(prefer_skip_nested_validation=False)  # type: ignore[untyped-decorator]
    def fit(
        self, X: Matrix, y: Targets, sample_weight: ArrayLike | None = None, **fit_params: object
    ) -> FastCalibratedClassifierCV:
        """Fit the classifier to all rows, and the calibrator to values of held-out rows.

        Parameters
        ----------
        X : {array, CSR matrix, data frame} of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        sample_weight : array of shape (n_samples,), optional
            For the classifier, if its ``fit`` accepts them, and for the calibrator.
        **fit_params
            ``groups`` are passed to the splitter, and to a search; everything else is passed to the
            ``fit`` of the estimator. With metadata routing, to whatever requests it.

        Returns
        -------
        self
        """
        check_in_memory(X, type(self).__name__)
        X, y = indexable(X, y)
        labels = column_or_1d(y)
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        metadata = self._metadata(sample_weight, fit_params)
        self._check_folds(np.bincount(codes))
        if self.method == "temperature":
            labels = codes
        weights = None
        if sample_weight is not None:
            weights = check_sample_weight(sample_weight, X, dtype=np.float64)
        held_out = self._of_folds if self._is_ensemble else self._of_all_rows
        self.calibrated_classifiers_ = [
            self._calibrated(
                fitted, values, labels[rows], None if weights is None else weights[rows]
            )
            for fitted, values, rows in held_out(X, y, metadata)
        ]
        fitted = self.calibrated_classifiers_[0].estimator
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(fitted, name):
                setattr(self, name, getattr(fitted, name))
        return self

    def predict_proba(self, X: Matrix) -> Array:
        """Calibrated probabilities of the classes, averaged over the members of an ensemble.

        Parameters
        ----------
        X : {array, CSR matrix, data frame} of shape (n_samples, n_features)

        Returns
        -------
        probabilities : array of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        pairs = self.calibrated_classifiers_
        values = decide_together([pair.estimator for pair in pairs], X)
        if values is None:
            return np.asarray(super().predict_proba(X))
        known = [copy(pair) for pair in pairs]
        for pair in known:
            pair.estimator = KnownDecisions(pair.estimator.classes_)
        found = [pair.predict_proba(own) for pair, own in zip(known, values, strict=True)]
        mean: Array = np.mean(found, axis=0)
        return mean

    def _calibrated(
        self, fitted: Estimator, values: Array, labels: AnyArray, weights: Array | None
    ) -> Estimator:
        """A classifier with calibrators of its values for rows that it was not fitted to."""
        if len(fitted.classes_) == 2:  # one column; of probabilities that of the second class
            values = values[:, -1:] if values.ndim == 2 else values[:, None]
        return fit_calibrator(fitted, values, labels, self.classes_, self.method, weights)

    @property
    def _is_ensemble(self) -> bool:
        is_pairwise: bool = get_tags(self.estimator).input_tags.pairwise
        if self.ensemble == "auto":
            return not isinstance(self.estimator, FrozenEstimator) and not is_pairwise
        if self.ensemble and is_pairwise:
            raise ValueError(
                "ensemble=True: the classifiers of an ensemble are fitted to different rows, so "
                "that no single kernel matrix serves new rows; use ensemble=False"
            )
        return bool(self.ensemble)

    @property
    def _uses_search(self) -> bool:
        """Whether the held-out values are those that a search has kept."""
        return isinstance(self.estimator, FastSearchCV) and self.cv is None

    def _metadata(self, sample_weight: ArrayLike | None, fit_params: Params) -> Metadata:
        """What the estimator's ``fit`` and the splitter get, by scikit-learn's rules."""
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", sample_weight=sample_weight, **fit_params)
            return Metadata(dict(routed.estimator.fit), dict(routed.splitter.split))
        metadata = parted(self.estimator, fit_params)
        if sample_weight is None:
            return metadata
        asked = self.estimator.estimator if self._uses_search else self.estimator
        if "sample_weight" in signature(asked.fit).parameters:
            return replace(metadata, fit={**metadata.fit, "sample_weight": sample_weight})
        warn(
            f"{type(asked).__name__}.fit has no sample_weight, so that the weights are used for "
            "the calibration only, which is then likely to be wrong; for a Pipeline, pass them "
            "as step__sample_weight as well"
        )
        return metadata

    def _check_folds(self, counts: AnyArray) -> None:
        """Refuse folds that cannot all have rows of every class, before any work."""
        cv = self.estimator.cv if self._uses_search else self.cv
        if isinstance(cv, LeaveOneOut):
            raise ValueError(
                "LeaveOneOut cross-validation does not allow all classes to be present in test "
                "splits; use cv=5 or another splitter whose test sets have rows of every class"
            )
        n_folds = cv if isinstance(cv, int) else getattr(cv, "n_splits", None)
        if n_folds and counts.min() < n_folds:
            raise ValueError(
                f"Requesting {n_folds}-fold cross-validation but provided less than {n_folds} "
                f"examples for at least one class: {self.classes_[counts.argmin()]!r} has "
                f"{counts.min()}; use fewer folds, or leave the class out"
            )

    def _of_folds(
        self, X: Matrix, y: Targets, metadata: Metadata
    ) -> Iterator[tuple[Estimator, Array, Index]]:
        """The estimator fitted to the training rows of each fold, and its values of test rows."""
        estimator, cv, params, split = self.estimator, self.cv, metadata.fit, metadata.split
        if isinstance(estimator, FastSearchCV) and self.cv is None:
            search = clone(estimator)
            _check_search(search)
            routed = search._get_routed_params_for_fit(params)
            split, cv, own = routed.splitter.split, search.cv, dict(routed.estimator.fit)
            splits = list(check_cv(cv, y, classifier=True).split(X, y, **split))
            search.cv = splits  # the same for the ensemble, also if they are random
            estimator, params = search.fit(X, y, **params).best_estimator_, own
        else:
            splits = list(check_cv(cv, y, classifier=True).split(X, y, **split))
        options = Options(n_jobs=self.n_jobs, random_state=self.random_state, fallback="refit")
        request = Request(estimator, [{}], X, y, splits, None, Metadata(params, {}), options)
        models = fold_classifiers(request, splits)
        for fitted, (_, test) in zip(models, splits, strict=True):
            method = getattr(fitted, "decision_function", None) or fitted.predict_proba
            yield fitted, np.asarray(method(safe_indexing(X, test))), test

    def _of_all_rows(
        self, X: Matrix, y: Targets, metadata: Metadata
    ) -> Iterator[tuple[Estimator, Array, Index]]:
        """The estimator fitted to all rows, and its values for rows that were held out."""
        fitted, everything = clone(self.estimator), np.arange(num_samples(X))
        if self._uses_search:
            yield fitted, _values_of_search(fitted, X, y, metadata.fit), everything
            return
        groups, params = metadata.split.get("groups"), metadata.fit
        if get_config()["enable_metadata_routing"]:
            groups, params = None, {**params, **metadata.split}
        has_values = hasattr(fitted, "decision_function")
        is_frozen = isinstance(fitted, FrozenEstimator)  # nothing is refitted
        how = MethodOptions.of(self.cv_method)
        values: Array = cross_val_predict(
            fitted,
            X,
            y,
            groups=groups,
            cv=check_cv(self.cv, y, classifier=True),
            n_jobs=self.n_jobs,
            params=params,
            method="decision_function" if has_values else "predict_proba",
            cv_method=replace(how, fallback="refit") if is_frozen else how,
            preprocessing=self.preprocessing,
            random_state=self.random_state,
        )
        fitted.fit(X, y, **metadata.fit)
        yield fitted, values, everything


def _check_search(search: FastSearchCV) -> None:
    """Refuse a search that has no winner, or no folds."""
    if not search.refit:
        raise ValueError("refit=False: the search leaves no model to calibrate; use refit=True")
    if MethodOptions.of(search.method).criterion is not None:
        raise ValueError(
            f"method={search.method!r}: the search has no folds, and so no held-out rows; use "
            "method='auto', or calibrate its best_estimator_ with a cv"
        )


def _values_of_search(search: FastSearchCV, X: Matrix, y: Targets, params: Params) -> Array:
    """Fit a search, and read the held-out decision values of its winner."""
    _check_search(search)
    how = MethodOptions.of(search.method)
    search.method = replace(how, keeps=how.keeps or "best").named()
    search._needs_partition = True
    reason = search._why_not_sped_up(X, y, **params)
    if reason:
        raise ValueError(
            f"the search has no held-out values, as it refits every fold ({reason}); pass a cv, "
            "which repeats the search on each of its training sets, or calibrate best_estimator_"
        )
    with warnings.catch_warnings():  # said below, of the winner
        warnings.filterwarnings("ignore", "the held-out values", InexactWarning)
        search.fit(X, y, **params)
    found = search.out_of_fold(method="decision_function")
    if not found.is_exact:
        warn(
            f"the calibration uses the held-out values of the winner, which are {found.status}: "
            "they may differ from those of refits",
            InexactWarning,
        )
    return np.asarray(found.values, dtype=np.float64)

"""The only module that imports private names of scikit-learn.

If a release moves or changes one, this is the only place to repair.
"""

from inspect import signature
from typing import Any

import numpy as np
from sklearn.base import _fit_context as fit_context
from sklearn.calibration import _fit_calibrator
from sklearn.metrics._scorer import _BaseScorer as BaseScorer
from sklearn.metrics._scorer import _MultimetricScorer as MultimetricScorer
from sklearn.model_selection._search import BaseSearchCV
from sklearn.model_selection._search import _search_estimator_has as search_has
from sklearn.model_selection._validation import _aggregate_score_dicts as aggregate_score_dicts
from sklearn.model_selection._validation import _fit_and_score as fit_and_score
from sklearn.model_selection._validation import _insert_error_scores as insert_error_scores
from sklearn.model_selection._validation import _normalize_score_results as normalize_score_results
from sklearn.model_selection._validation import _score as score
from sklearn.model_selection._validation import _translate_train_sizes as translate_train_sizes
from sklearn.model_selection._validation import (
    _warn_or_raise_about_fit_failures as warn_or_raise_about_fit_failures,
)
from sklearn.svm import _libsvm
from sklearn.utils import _safe_indexing as safe_indexing
from sklearn.utils._array_api import get_namespace
from sklearn.utils._param_validation import HasMethods, StrOptions, validate_parameter_constraints
from sklearn.utils.metaestimators import _safe_split as safe_split
from sklearn.utils.validation import _check_method_params as check_method_params
from sklearn.utils.validation import _check_sample_weight as check_sample_weight
from sklearn.utils.validation import _num_samples as num_samples

from everyfold._typing import AnyArray, Array, Estimator, Index, Params, Targets

# Whether searches call callbacks: since 1.9.
HAS_CALLBACKS = "callback_ctx" in signature(fit_and_score).parameters


def fit_calibrator(
    classifier: Estimator,
    values: Array,
    y: Targets,
    classes: AnyArray,
    method: str,
    sample_weight: Array | None,
) -> Any:
    """A fitted classifier with calibrators of its values; of codes, not labels, for temperature."""
    extra = {"xp": get_namespace(values)[0]} if _TAKES_NAMESPACE else {}
    return _fit_calibrator(
        classifier, values, y, classes, method, sample_weight=sample_weight, **extra
    )


def classify_by_libsvm(
    K: Array, y: Array, weights: Array, factors: Array, options: Params
) -> tuple[Index, Array, float, bool]:
    """Support vectors, their coefficients, b, and whether libsvm came to its end.

    As ``SVC`` calls it after its checks, which take longer than a fit to few rows; the same numbers
    to the last digit. ``y`` is 0 or 1, ``factors`` what the two weigh; ``options`` has C, tol and
    shrinking.
    """
    K = np.ascontiguousarray(K, dtype=np.float64)
    given = {"sample_weight": weights, "class_weight": factors, "kernel": "precomputed"}
    _libsvm.set_verbosity_wrap(0)
    support, _, _, coef, b, *_, status, _ = _libsvm.fit(
        K, y, svm_type=0, cache_size=200.0, **given, **options
    )
    return support, -coef[0], -float(b[0]), status == 0


# Whether calibrators are told the kind of their arrays: since 1.8.
_TAKES_NAMESPACE = "xp" in signature(_fit_calibrator).parameters

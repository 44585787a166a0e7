"""Reading the candidates of a request: which are sped up, refused, or left to refits.

A candidate whose parameters ``fit`` would refuse fails alone. One that is valid but that no method
speeds up is set aside to be refitted as scikit-learn does, if options allow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

from sklearn.base import BaseEstimator, clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from everyfold._progress import warn
from everyfold._typing import Estimator, Params, Scorer
from everyfold.adapters.pipelines import (
    MetadataError,
    Parts,
    advice_on,
    final_step,
    split_steps,
    warp_of,
)
from everyfold.adapters.sklearn import UnknownEstimatorError, is_ours, read_estimator
from everyfold.adapters.validity import check_parameters
from everyfold.crossval.base import Failure
from everyfold.engine.method_options import UnsupportedWarning, is_refused
from everyfold.engine.planning.methods import check_order
from everyfold.engine.records import Candidate
from everyfold.engine.request import Request
from everyfold.engine.scoring.fold_scorers import by_name
from everyfold.engine.scoring.metrics import (
    is_own_score,
    may_ask_for_probabilities,
    unusual_score,
    usual_score,
)
from everyfold.estimators.model import Model
from everyfold.estimators.target_transforms import Warp

NO_FITS = "No fits were performed. Was the CV iterator empty? Were there no candidates?"


@dataclass(frozen=True)
class Readable:
    """An estimator with a candidate's parameters, and what it asks for."""

    number: int
    estimator: Estimator
    model: Model


@dataclass
class Others:
    """Candidates that are not evaluated here.

    Attributes
    ----------
    refused : dict
        Those that no fit would take.
    foreign : dict
        Those that only refits of the estimator itself can evaluate.
    """

    request: Request
    refused: dict[int, Failure] = field(default_factory=dict)
    foreign: dict[int, Exception] = field(default_factory=dict)

    def refuse(self, number: int, error: Exception) -> None:
        """Let a candidate fail, with what is being raised."""
        if self.request.options.error_score == "raise":
            raise error
        self.refused[number] = Failure.caught(error)

    def set_aside(self, number: int, error: Exception) -> None:
        """Leave a candidate to refits, if these are allowed."""
        if not shares_distributions(self.request, number):
            self.request.check_fallback(error)
        self.foreign[number] = error

    @property
    def reasons(self) -> dict[int, str]:
        """Why the foreign ones are."""
        return {k: getattr(error, "reason", str(error)) for k, error in self.foreign.items()}

    def check_any(self, found: Sequence[object]) -> None:
        """Raise the first refusal, if no candidate is left."""
        if not found and not self.foreign and self.refused:
            raise next(iter(self.refused.values())).error


def shares_distributions(request: Request, number: int) -> bool:
    """Whether a candidate's folds share all that scorers of predicted distributions look at.

    That is known to the scorers (:mod:`everyfold.gaussian_process`), not to the engine.
    """
    metadata, scorers = request.metadata, list(by_name(request.scorer).values())
    if request.wants.train_scores or metadata.fit or metadata.score:
        return False
    if not all(hasattr(scorer, "shares_folds") for scorer in scorers):
        return False
    (estimator,) = configured(request.estimator, [request.candidates[number]])
    return bool(scorers[0].shares_folds(estimator))


def read_models(request: Request, others: Others) -> list[Readable]:
    """All candidates that can be sped up."""
    if not request.candidates:
        raise ValueError(f"{NO_FITS} The grid has none")
    options = request.options
    found: list[Readable] = []
    is_of_low_rank = options.is_of_low_rank
    for number, estimator in enumerate(configured(request.estimator, request.candidates)):
        final = final_step(estimator)
        try:
            check_parameters(estimator)
        except (TypeError, ValueError) as error:
            others.refuse(number, error)
            continue
        try:
            split_steps(estimator, {})
            model = options.apply(read_estimator(final))
            warp = warp_of(estimator)
            if warp is not None:
                model = _warped(model, warp)
            if is_of_low_rank and not hasattr(final, "operator"):
                model = replace(model, is_stand_in=True)
            model.choice.resolve_for_any()
        except UnknownEstimatorError as error:
            others.set_aside(number, error)
        except (TypeError, ValueError) as error:
            (others.set_aside if _is_valid(final) else others.refuse)(number, error)
        else:
            check_order(model, options.order)
            if options.closed is not None:
                options.closed.check(model.loss, chooses_ridge=model.chooses_ridge)
            found.append(Readable(number, estimator, model))
    others.check_any(found)
    return _judged_alike(found, request.scorer, others)


def _warped(model: Model, warp: Warp) -> Model:
    """The model with the transformation of its targets."""
    is_shared = model.loss.has_constant_curvature and not model.chooses_ridge
    is_several = len(model.ridges) > 1 and not model.chooses_ridge
    if is_several or not (is_shared or warp.is_fixed):
        raise ValueError(
            "TransformedTargetRegressor(transformer=...) gives every fold different targets, "
            "which can share a factorisation only with squared loss and a single alpha"
        )
    return replace(model, warp=warp, flattens=False)


def _judged_alike(found: Sequence[Readable], scorer: Scorer, others: Others) -> list[Readable]:
    """Keep those of the first one's kind, classifier or regressor, with that kind's usual score."""
    kept = []
    is_own = is_own_score(scorer)
    for item in found:
        if item.model.is_classifier != found[0].model.is_classifier:
            others.set_aside(item.number, ValueError(_MIXED))
        elif is_own and usual_score(item.estimator) is None:
            others.set_aside(item.number, unusual_score(item.estimator))
        elif item.model.calibrates and any(
            map(may_ask_for_probabilities, by_name(scorer).values())
        ):
            others.set_aside(item.number, ValueError(_CALIBRATES))
        else:
            kept.append(item)
    return kept


_CALIBRATES = (
    "scoring uses the probabilities of SVC(probability=True), which calibrates them by a "
    "cross-validation of its own; use a score of predictions or decision values, or "
    "FastCalibratedClassifierCV(SVC()) for probabilities"
)
_MIXED = "the grid mixes classifiers and regressors; search them separately"


def read_candidates(
    models: Sequence[Readable], request: Request, others: Others
) -> list[Candidate]:
    """The candidates with their share of the metadata; those that refuse it fail alone."""
    found: list[Candidate] = []
    for item in models:
        try:
            parts = split_steps(item.estimator, request.metadata.fit)
            if parts.params:
                _check_fit_params(parts)
        except (MetadataError, UnsetMetadataPassedError, TypeError) as error:
            others.refuse(item.number, error)
        except ValueError as error:
            others.set_aside(item.number, error)
        else:
            found.append(Candidate(item.number, item.model, parts))
    others.check_any(found)
    return found


def configured(estimator: Estimator, candidates: Sequence[Params]) -> Iterator[Estimator]:
    """The estimator with the parameters of each candidate.

    Where these are all its own, a copy of one clone takes them: ``clone`` and ``set_params`` read
    the signature of ``__init__`` three times, which is most of the cost of a small candidate.
    """
    if len(candidates) == 1 and not candidates[0]:
        yield estimator
        return
    blank = clone(estimator)
    is_plain = getattr(type(blank), "set_params", None) is BaseEstimator.set_params
    own = set(blank.get_params(deep=False)) if is_plain else set()
    for params in candidates:
        if own.issuperset(params):
            configured = copy(blank)
            for name, value in params.items():
                setattr(configured, name, value)
        else:
            configured = clone(estimator).set_params(**_unshared(params))
        yield configured


# The classes of which this process has been told that they are refitted.
_TOLD: set[type] = set()


def warn_of_refits(estimators: Iterable[Estimator], words: str) -> None:
    """Warn that estimators are refitted, once for each class in a process.

    Nothing is said of those whose ``fit`` does nothing worth speeding up.
    """
    finals = [final_step(estimator) for estimator in estimators]
    kinds = {type(final) for final in finals if not _needs_no_fit(final)}
    # A filter that makes an error of it means every call and estimator, and not the first one only.
    if kinds - _TOLD or is_refused():
        warn(words, UnsupportedWarning)
        _TOLD.update(kinds)


def forget_warnings() -> None:
    """Let this process be told again of all refits, as tests need it."""
    _TOLD.clear()


def _needs_no_fit(final: Estimator) -> bool:
    if isinstance(final, DummyClassifier | DummyRegressor | FrozenEstimator):
        return True
    if getattr(final, "cv", None) == "prefit":
        return True
    if isinstance(final, GaussianProcessRegressor):  # without a fit it predicts by its prior
        return False
    return hasattr(final, "__sklearn_tags__") and not get_tags(final).requires_fit


def _unshared(params: Params) -> Params:
    """The parameters of one candidate, with steps that other candidates do not share.

    ``set_params`` may change a step that it has just set: ``step__degree`` after ``step``.
    """
    return {
        name: clone(value) if isinstance(value, BaseEstimator) else value
        for name, value in params.items()
    }


def _is_valid(estimator: Estimator) -> bool:
    """Whether fitting would take the parameters; those of scikit-learn's have been checked."""
    if not is_ours(estimator):
        return True
    try:
        read_estimator(estimator).choice.resolve_for_any()
    except (TypeError, ValueError):
        return False
    return True


def _check_fit_params(parts: Parts) -> None:
    """Refuse whatever the model's ``fit`` is to get besides sample weights."""
    unknown = sorted(set(parts.params) - {"sample_weight"})
    if unknown:
        is_ours_alone = any(has_fit_parameter(parts.final, name) for name in unknown)
        raise (ValueError if is_ours_alone else MetadataError)(
            f"params has {unknown}, which {type(parts.final).__name__}.fit does not take here; "
            f"only 'sample_weight' is allowed{advice_on(unknown)}"
        )

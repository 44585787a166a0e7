"""From points of a grid to candidates in the library's own words, or a refusal before any work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from numbers import Integral, Real
from traceback import format_exc
from typing import Any

from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import UnsetMetadataPassedError

from everyfold.adapters import read_estimator
from everyfold.model import Model
from everyfold.operators import Structure
from everyfold.preprocess import MetadataError, take_apart
from everyfold.search.seeds import Seeds
from everyfold.units import Candidate, check
from everyfold.validation import read_fit_params


@dataclass(frozen=True)
class Options:
    """What a search asks for besides the grid, checked."""

    order: Any
    operator: Any
    ridge_scaling: Any
    n_confirm: Any
    preprocessing: str
    error_score: Any
    seeds: Seeds

    def __post_init__(self) -> None:
        order = self.order
        if order not in ("auto", "exact") and not _is_order(order):
            raise ValueError(
                f"order={order!r} is not known; use 'auto', 'exact', inf or a positive integer"
            )
        if not isinstance(self.operator, Structure) and self.operator not in ("auto", "dense"):
            raise ValueError(
                f"operator={self.operator!r} is not known; use 'auto', 'dense', or a structure "
                "such as Dense()"
            )
        if self.ridge_scaling not in ("sum", "mean"):
            raise ValueError(f"ridge_scaling={self.ridge_scaling!r} is not 'sum' or 'mean'")
        if self.preprocessing not in ("auto", "per_fold", "once"):
            raise ValueError(
                f"preprocessing={self.preprocessing!r} is not known; use 'per_fold', 'once' or "
                "'auto'"
            )
        self._check_confirm()

    def _check_confirm(self) -> None:
        k = self.n_confirm
        if k != "auto" and not (isinstance(k, Integral) and int(k) >= 0):
            raise ValueError(f"n_confirm={k!r} is not 'auto' or a number of candidates >= 0")
        if k != "auto" and k > 0 and self.ridge_scaling == "mean":
            raise ValueError(
                "n_confirm refits the estimator as it is, whose ridge does not grow with the rows; "
                "use n_confirm=0 with ridge_scaling='mean'"
            )

    def check_source(self, y: Any, with_train: bool) -> None:
        """Refuse what rows that are read in blocks cannot give."""
        for is_wrong, what in (
            (y is not None, "y apart from the rows; give the source its targets"),
            (with_train, "return_train_score=True"),
            (self.is_finite, f"order={self.order!r}; use order='auto'"),
            (self.n_confirm not in ("auto", 0), f"n_confirm={self.n_confirm!r}; use 0"),
        ):
            if is_wrong:
                raise ValueError(f"a source of rows does not go with {what}")

    @property
    def is_finite(self) -> bool:
        """Whether an influence series of finite order was asked for."""
        return not isinstance(self.order, str) and self.order < math.inf

    def apply(self, model: Model) -> Model:
        """The model with what the search asks for."""
        operator = self.seeds.plant(model.operator if self.operator == "auto" else self.operator)
        return replace(
            model, operator=operator, ridge_scaling=self.ridge_scaling, seed=self.seeds.own
        )


def _is_order(order: Any) -> bool:
    if not isinstance(order, Real) or isinstance(order, bool) or math.isnan(order):
        return False
    number = float(order)
    return number >= 1.0 and (number == math.inf or number == int(number))


@dataclass(frozen=True)
class Readable:
    """An estimator with a candidate's parameters, and what it asks for."""

    number: int
    estimator: Any
    model: Model

    def candidate(self, fit_params: dict[str, Any]) -> Candidate:
        """The candidate, with the metadata that ``fit`` gets."""
        return Candidate(self.number, self.model, take_apart(self.estimator, fit_params))


def read_candidates(
    estimator: Any, candidates: Sequence[dict[str, Any]], options: Options
) -> tuple[list[Readable], dict[int, str]]:
    """All candidates that can be evaluated, and what is wrong with those that no fit would take.

    What scikit-learn could fit but this library cannot is refused at once.
    """
    if not candidates:
        raise ValueError("No fits were performed: the grid has no candidates")
    readable, broken = [], {}
    failure: Exception | None = None
    for number, configured in enumerate(_configured(estimator, candidates)):
        final = take_apart(configured, {}).final
        try:
            model = options.apply(read_estimator(final))
            check(Candidate(number, model, take_apart(configured, {})), options.order)
        except (TypeError, ValueError) as error:
            if options.error_score == "raise" or not _is_invalid(final):
                raise
            broken[number], failure = format_exc(), failure or error
            continue
        readable.append(Readable(number, configured, model))
    if not readable and failure is not None:
        raise failure
    if len({candidate.model.is_classifier for candidate in readable}) > 1:
        raise ValueError("the grid mixes classifiers and regressors; search them separately")
    return readable, broken


def hand_out(
    readable: Sequence[Readable], fit_params: dict[str, Any], options: Options
) -> tuple[list[Candidate], dict[int, str]]:
    """The candidates with their share of the metadata, and what is wrong with those that refuse it.

    As in scikit-learn, whose searches let such candidates fail and go on with the others.
    """
    candidates, broken = [], {}
    failure: Exception | None = None
    for item in readable:
        try:
            candidate = item.candidate(fit_params)
            read_fit_params(candidate.parts)
        except (MetadataError, UnsetMetadataPassedError, TypeError) as error:
            if options.error_score == "raise":
                raise
            broken[item.number], failure = format_exc(), failure or error
            continue
        candidates.append(candidate)
    if not candidates and failure is not None:
        raise failure
    return candidates, broken


def _configured(estimator: Any, candidates: Sequence[dict[str, Any]]) -> Iterator[Any]:
    """The estimator with the parameters of each candidate.

    Where these are all its own, a copy of one clone takes them: ``clone`` and ``set_params`` read
    the signature of ``__init__`` three times, which is most of the cost of a small candidate.
    """
    blank = clone(estimator)
    is_plain = getattr(type(blank), "set_params", None) is BaseEstimator.set_params
    own = set(blank.get_params(deep=False)) if is_plain else set()
    for params in candidates:
        if own.issuperset(params):
            configured = copy(blank)
            for name, value in params.items():
                setattr(configured, name, value)
        else:
            configured = clone(estimator).set_params(**params)
        yield configured


def _is_invalid(estimator: Any) -> bool:
    """Whether fitting would refuse the parameters, too."""
    try:
        if hasattr(estimator, "_model"):
            estimator._model()
        else:
            estimator._validate_params()
    except (TypeError, ValueError):
        return True
    return False

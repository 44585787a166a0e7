"""How out-of-fold values are computed: what ``method=`` may be, and the parameters it replaced.

``method`` is one of four names or a :class:`MethodOptions`. The factories of
:mod:`everyfold.papers` return such records for the methods of publications. Parameters of
version 0.2 are translated here, so that nothing else in the package knows their names.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from inspect import Parameter, signature
from typing import Any, Literal, TypeAlias

from everyfold._progress import warn
from everyfold._typing import (
    ClosedName,
    Fallback,
    FoldsAndOrder,
    Order,
    Params,
    RidgeScaling,
    Scorer,
    Splitter,
)
from everyfold.crossval import Closed
from everyfold.engine.scoring.pooled_scorer import pooled
from everyfold.operators.base import OperatorChoice

# Half of the digits of float64: smaller kernel values are lost in squares beside the diagonal.
NEAR_IDENTITY = 1.5e-8

# What the names of methods ask for: an order of the influence series, or refits.
_ORDERS: dict[str, Order] = {
    "auto": "auto",
    "exact": "exact",
    "screen": "screen",
    "fast": math.inf,
}


class UnsupportedWarning(UserWarning):
    """That candidates cannot be sped up and are refitted on every fold, as scikit-learn does.

    A filter with "error" refuses them before any work, and one with "ignore" refits them without a
    word.

    Examples
    --------
    >>> import warnings
    >>> from everyfold import UnsupportedWarning
    >>> with warnings.catch_warnings():
    ...     warnings.filterwarnings("ignore", category=UnsupportedWarning)
    """


# The end of every such warning.
HOW_TO_FILTER = (
    'warnings.filterwarnings("ignore", category=everyfold.UnsupportedWarning) refits without this '
    'warning, and "error" in place of "ignore" raises an error before any work.'
)


@dataclass(frozen=True, repr=False)
class MethodOptions:
    """How out-of-fold values are computed, where the names of ``method`` do not say it.

    The factories of :mod:`everyfold.papers` make these with the conventions of a publication.

    Parameters
    ----------
    order : {"auto", "exact", "screen"}, float or Granularity, default="auto"
        The order of the influence series; inf takes one Newton step per fold.
    criterion : str, Closed or None, default=None
        A criterion that is computed from one fit on all rows, without folds.
    ridge_scaling : {"sum", "mean"}, default="sum"
        "sum": the ridge does not change when rows are left out, as in scikit-learn. "mean": it is
        multiplied by the number of training rows, and ``best_estimator_`` has the ridge
        multiplied by the number of all rows.
    n_confirm : int or "auto", default="auto"
        How many of the best candidates are scored again by refits of the estimator itself; these
        scores then decide. "auto" is 0 if the winner's score is exact, otherwise 3 (0 with more
        than 20 folds).
    near_identity : float, default=1.5e-8
        For a finite ``order`` only: a candidate gets the score -inf if the median over the rows of
        their largest kernel value with another row, relative to the diagonal, is at most this.
    operator : {"auto", "dense"} or Structure, default="auto"
        Used where the search itself has ``operator="auto"``.
    folds : int, splitter or None, default=None
        Used where the search itself has ``cv=None``.
    scoring : str, callable or None, default=None
        Used where the search itself has ``scoring=None``.
    fallback : {"warn", "refit", "refuse"}, default="warn"
        What happens to candidates that cannot be sped up, in calls that still name it.
    keeps : {"best", "all"} or None, default="best"
        Whose held-out values are kept for ``out_of_fold`` and ``honest_score``: those of the
        winner, of all candidates (8 bytes per row, fold repetition and candidate; sums over rows
        then take a second pass), or none.
    """

    order: Order | FoldsAndOrder = "auto"
    criterion: ClosedName | Closed | None = None
    ridge_scaling: RidgeScaling = "sum"
    n_confirm: int | Literal["auto"] = "auto"
    near_identity: float = NEAR_IDENTITY
    operator: OperatorChoice = "auto"
    folds: Splitter = None
    scoring: Scorer = None
    fallback: Fallback = "warn"
    keeps: Literal["best", "all"] | None = "best"

    def __post_init__(self) -> None:
        if self.keeps not in ("best", "all", None):
            raise ValueError(f"keeps={self.keeps!r} is not known; use 'best', 'all' or None")

    @classmethod
    def of(cls, method: MethodChoice) -> MethodOptions:
        """What a ``method`` asks for."""
        if isinstance(method, cls):
            return method
        if isinstance(method, str) and method in _NAMED:
            return _NAMED[method]
        raise ValueError(
            f"method={method!r} is not known; use 'auto', 'exact', 'screen', 'fast' or a method of "
            "everyfold.papers, such as bif(order=2)"
        )

    def named(self) -> MethodChoice:
        """The name of this method, if it has one; else the record itself."""
        found = (name for name, how in _NAMED.items() if self == how)
        return next(found, self)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        own = ((field, getattr(self, field.name)) for field in fields(self))
        given = [f"{f.name}={value!r}" for f, value in own if repr(value) != repr(f.default)]
        return f"MethodOptions({', '.join(given)})"


# The methods that have names.
_NAMED = {name: MethodOptions(order) for name, order in _ORDERS.items()}


def is_finite(order: Order) -> bool:
    """Whether an order is one of the finite influence series."""
    return not isinstance(order, str) and float(order) < math.inf


# A ``method`` argument.
MethodChoice: TypeAlias = Literal["auto", "exact", "screen", "fast"] | MethodOptions


# -- Parameters of version 0.2, which work for one more release -----------------------------------


# Those that a MethodOptions has, by its fields.
_OF_METHOD = {
    "order": "order",
    "criterion": "criterion",
    "ridge_scaling": "ridge_scaling",
    "n_confirm": "n_confirm",
    "near_identity": "near_identity",
    "keep_predictions": "keeps",
}
# What fallback= asked for is now asked of Python's own filters.
_FILTERS = {"refit": '"ignore"', "refuse": '"error"', "warn": '"default"'}
OLD_NAMES = frozenset({*_OF_METHOD, "pooled", "fallback", "journal"})


def renamed(given: Params, current: Params, method_name: str = "method") -> Params:
    """The parameters by their new names, with a warning for each new name that prints its value.

    Parameters
    ----------
    given : dict
        Parameters as a caller named them.
    current : dict
        The values that new parameters have where ``given`` lacks them: an old name changes a part
        of such a value.
    method_name : str
        "cv_method" where scikit-learn has a ``method`` of its own.
    """
    old = {name: given[name] for name in given if name in OLD_NAMES}
    if not old:
        return given
    new = {name: value for name, value in given.items() if name not in OLD_NAMES}
    known = {**current, **new}
    how = MethodOptions.of(known.get(method_name, "auto"))
    how = replace(how, **{_OF_METHOD[name]: old[name] for name in old if name in _OF_METHOD})
    for names, advice in (
        ([name for name in old if name in _OF_METHOD], f"{method_name}={_call(how)}"),
        (["pooled"], f"scoring={_pooled_call(known.get('scoring'), old.get('pooled'))}"),
        (["journal"], f"checkpoint={old.get('journal')!r}"),
    ):
        words = ", ".join(f"{name}={old[name]!r}" for name in names if name in old)
        if words:
            warn(f"{words} is now {advice}", DeprecationWarning)
    if "fallback" in old:
        warn_of_fallback(old["fallback"])
        how = replace(how, fallback=old["fallback"])
    if old.keys() - {"pooled", "journal"}:
        new[method_name] = how.named()
    if "pooled" in old and old["pooled"] != "auto":
        new["scoring"] = pooled(known.get("scoring"), old["pooled"])
    if "journal" in old:
        new["checkpoint"] = old["journal"]
    return new


def _call(how: MethodOptions) -> str:
    """The method as somebody would write it."""
    named = how.named()
    if isinstance(named, str):
        return f'"{named}"'
    rest = {"n_confirm": how.n_confirm, "near_identity": how.near_identity}
    usual = {"n_confirm": "auto", "near_identity": NEAR_IDENTITY}
    more = [f"{name}={value!r}" for name, value in rest.items() if value != usual[name]]
    if isinstance(how.criterion, str):
        if how == MethodOptions(criterion=how.criterion):
            return f"everyfold.papers.{how.criterion}()"
    elif how.criterion is None and _is_series(how.order) and how.keeps == "best":
        scaling = [] if how.ridge_scaling == "mean" else [f"ridge_scaling={how.ridge_scaling!r}"]
        return f"everyfold.papers.bif({', '.join([f'order={how.order}', *scaling, *more])})"
    return f"everyfold.papers.{how!r}"


def _is_series(order: object) -> bool:
    return isinstance(order, int | float) and order < math.inf


def _pooled_call(scoring: object, is_pooled: object) -> str:
    if is_pooled == "auto":
        return f"{scoring!r}"
    return f"everyfold.scorers.pooled({scoring!r}{'' if is_pooled else ', False'})"


def warn_of_fallback(fallback: object) -> None:
    """Warn which filter has replaced a ``fallback``."""
    action = _FILTERS.get(str(fallback), '"default"')
    warn(
        f"fallback={fallback!r} is now warnings.filterwarnings({action}, "
        "category=everyfold.UnsupportedWarning)",
        DeprecationWarning,
    )


def check_names(function: Callable[..., object], given: Collection[str]) -> None:
    """Raise what Python raises of unexpected names, for a function that also takes old ones."""
    known = signature(function).parameters
    for name in given:
        if name not in known or known[name].kind is Parameter.VAR_KEYWORD:
            raise TypeError(
                f"{function.__qualname__.removesuffix('.__init__')}() got an unexpected keyword "
                f"argument {name!r}"
            )


class RenamedParameters:
    """Lets an estimator be made with old names, and set by them; it has new ones only.

    They are translated at once, so that ``get_params``, ``clone``, ``repr`` and pickles show the
    new call. ``__init__`` ends with ``**deprecated``, which scikit-learn allows.
    """

    _method_name = "method"
    # Taken without an effect: scikit-learn's checks pass every name that a signature has, the name
    # of its last part included.
    _without_effect: Collection[str] = ("deprecated",)

    def _keep_parameters(self, given: Params) -> None:
        """Set attributes to what ``__init__`` was given, by its ``locals()``."""
        old = given["deprecated"]
        new = {k: v for k, v in given.items() if k not in ("self", "deprecated", "__class__")}
        old = {name: value for name, value in old.items() if name not in self._without_effect}
        if old:
            allowed = renamed(old, new, self._method_name)
            check_names(type(self).__init__, allowed)
            new |= allowed
        for name, value in new.items():
            setattr(self, name, value)

    def set_params(self, **params: Any) -> Any:
        """Set parameters, also by names of version 0.2, with a warning."""
        current = {name: getattr(self, name, None) for name in ("scoring", self._method_name)}
        params = renamed(params, current, self._method_name)
        known = {name: params[name] for name in params if name not in self._without_effect}
        return super().set_params(**known)  # type: ignore[misc]


def is_refused(category: type[Warning] = UnsupportedWarning) -> bool:
    """Whether a filter that names this very category makes it an error."""
    for action, _, filtered, _, _ in warnings.filters:
        if filtered is category:
            return action == "error"
    return False

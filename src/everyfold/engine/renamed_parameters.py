"""Parameters of version 0.2, which work for one more release.

They are translated here, with a warning that prints the new call, so that nothing else in the
package knows their names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from inspect import Parameter, signature
from typing import Any

from everyfold._progress import warn
from everyfold._typing import Params
from everyfold.engine.request import NEAR_IDENTITY, MethodOptions
from everyfold.engine.scoring.pooled_scorer import pooled

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

"""Leaving a call to scikit-learn's function of the same name, where nothing speeds it up.

A function raises ``NotSpedUp``; ``falls_back`` catches it, warns once of each class of estimators,
and calls scikit-learn with the arguments as they were given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from inspect import signature
from typing import NoReturn, ParamSpec, TypeVar

import numpy as np
from sklearn import model_selection

from everyfold._typing import Params
from everyfold.engine.planning.plan import SearchPlan
from everyfold.engine.planning.planner import plan
from everyfold.engine.reading.reader import not_sped_up, read, warn_of_refits
from everyfold.engine.records import Data
from everyfold.engine.renamed_parameters import check_names, renamed
from everyfold.engine.request import HOW_TO_FILTER, MethodOptions, Request
from everyfold.io.base import check_in_memory

P = ParamSpec("P")
R = TypeVar("R")


class NotSpedUp(Exception):
    """That a call is left to scikit-learn, and why; ``says_so`` if the user is to be told."""

    def __init__(self, reason: str, request: Request) -> None:
        super().__init__(reason)
        self.estimator = request.estimator
        self.says_so = request.options.fallback == "warn"


def check_sped_up(request: Request) -> None:
    """Leave a request to scikit-learn if nothing speeds it up; raise why if that is not allowed."""
    reason = not_sped_up(request)
    if reason:
        raise NotSpedUp(reason, request)


def check_read(data: Data, request: Request) -> Data:
    """The data, unless nothing of them is sped up, which a scorer may be the reason of."""
    if data.foreign and not data.candidates:
        raise NotSpedUp(next(iter(data.foreign.values())), request)
    return data


def check_plan(made: SearchPlan, request: Request) -> None:
    """Leave a request to scikit-learn, without a word, if refits are the plan."""
    for reason in made.plain.values():
        silent = replace(request.options, fallback="refit")
        raise NotSpedUp(reason, replace(request, options=silent))


def planned(request: Request) -> tuple[Data, SearchPlan]:
    """The data and their plan, unless scikit-learn takes less time for all candidates.

    Where it does for some of them, these are refitted beside the others.
    """
    data = check_read(read(request), request)
    made = plan(data, request)
    if not data.foreign and made.plain.keys() == data.candidates.keys():
        check_plan(made, request)
    return data, made


def leave_to_scikit_learn(request: Request, error: Exception) -> NoReturn:
    """Leave a request to scikit-learn for a reason, or raise it if that is not allowed."""
    request.check_fallback(error)
    raise NotSpedUp(str(error), request)


def falls_back(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function hand its arguments to scikit-learn's twin when it raises ``NotSpedUp``."""
    twin = getattr(model_selection, function.__name__)
    theirs, ours = signature(twin).parameters, signature(function)
    # scikit-learn's cross_val_predict has a method of its own.
    choice = "cv_method" if "method" in theirs else "method"

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        named = renamed(kwargs, {}, choice)
        check_names(function, named)
        how = MethodOptions.of(named.get(choice, "auto"))
        usual = {"cv": how.folds, "scoring": how.scoring}
        named |= {
            name: value
            for name, value in usual.items()
            if value is not None and name in ours.parameters and named.get(name) is None
        }
        given = ours.bind(*args, **named)
        if isinstance(given.arguments.get("cv"), Iterator):  # may be read twice
            given.arguments["cv"] = list(given.arguments["cv"])
        states = _states(given.arguments)
        try:
            return function(*given.args, **given.kwargs)
        except NotSpedUp as left:
            rows = given.arguments.get("X")
            check_in_memory(rows, f"scikit-learn's {function.__name__} ({left})")
            if left.says_so:
                warn_of_refits(
                    [left.estimator],
                    f"the estimator is refitted on every fold, as scikit-learn does: {left}. "
                    f"{HOW_TO_FILTER}",
                )
        for generator, state in states:  # as if nothing had been drawn here
            generator.set_state(state)
        known = {name: value for name, value in given.arguments.items() if name in theirs}
        return twin(**known)  # type: ignore[no-any-return]

    return call


def _states(given: Params) -> list[tuple[np.random.RandomState, Params]]:
    """The generators of a call, its own and that of its splitter, and their states."""
    cv = given.get("cv")
    generators = [given.get("random_state"), getattr(cv, "random_state", None)]
    return [
        (own, own.get_state(legacy=False))
        for own in generators
        if isinstance(own, np.random.RandomState)
    ]

"""The candidates of a random search: those that scikit-learn would draw, and further ridges."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from sklearn.model_selection import ParameterSampler
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state

from everyfold._typing import Estimator, Grid, Params, RandomState
from everyfold.adapters.pipelines import final_step, freeze
from everyfold.adapters.sklearn import UnknownEstimatorError, read_estimator

_RIDGES = ("alpha", "C")

# Distributions, or lists of values, by the names of parameters.
_Options: TypeAlias = Mapping[str, Any]


def check_free_ridges(estimator: Estimator, distributions: Grid, count: int) -> None:
    """Refuse ``free_ridges`` that is no count, or that estimator or distributions do not allow.

    Ridges must share a kernel, and have a distribution to be drawn from.
    """
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
        raise ValueError(f"free_ridges={count!r} is not a number of ridges; use 0, 1, 2, ...")
    if not count:
        return
    try:
        read_estimator(final_step(estimator))
    except UnknownEstimatorError as error:
        raise ValueError(
            f"free_ridges={count} needs an estimator whose ridges share a kernel, but "
            f"{type(final_step(estimator)).__name__} is refitted for every ridge; use "
            "free_ridges=0"
        ) from error
    for options in _as_list(distributions):
        _name_of_ridge(estimator, options, count)


def draw(
    estimator: Estimator, distributions: Grid, n_iter: int, random_state: RandomState, count: int
) -> list[Params]:
    """What scikit-learn's search would draw, and then ``count`` further ridges for every kernel.

    These come from the distribution of the ridge, one from each of so many parts of equal
    probability; from a list they are as many of its values as there are, at most.
    """
    rng = check_random_state(random_state)
    drawn = list(ParameterSampler(distributions, n_iter, random_state=rng))
    if not count:
        return drawn
    kernels: dict[Hashable, list[Params]] = {}
    names = []
    for params in drawn:
        options = _source(_as_list(distributions), params)
        name = _name_of_ridge(estimator, options, count)
        rest = {key: value for key, value in params.items() if key != name}
        own = kernels.setdefault((name, freeze(rest)), [])
        if not own:
            names.append((own, name, options[name]))
        own.append(params)
    further = []
    for own, name, ridge in names:
        taken = [params[name] for params in own]
        values = (value for value in _ridges(ridge, count, rng) if value not in taken)
        further += [{**own[0], name: value} for value in islice(values, count)]
    return drawn + further


def _as_list(distributions: Grid) -> list[_Options]:
    return [distributions] if isinstance(distributions, Mapping) else list(distributions)


def _source(distributions: Sequence[_Options], params: Params) -> _Options:
    """The distributions that a candidate was drawn from."""
    for options in distributions:
        if set(options) == set(params) and all(
            hasattr(values, "rvs") or any(params[name] is v or params[name] == v for v in values)
            for name, values in options.items()
        ):
            return options
    raise AssertionError(f"{params} is no draw of the distributions")


def _name_of_ridge(estimator: Estimator, options: _Options, count: int) -> str:
    """The parameter that is the ridge of the model, among those that have a distribution."""
    prefix = f"{estimator.steps[-1][0]}__" if isinstance(estimator, Pipeline) else ""
    for name in (f"{prefix}{ridge}" for ridge in _RIDGES):
        values = options.get(name)
        if values is not None and (hasattr(values, "rvs") or len(values) > 1):
            return name
    raise ValueError(
        f"free_ridges={count} draws further ridges from the distribution of {prefix}alpha or "
        f"{prefix}C, but {sorted(options)} has none; add one, such as '{prefix}alpha': "
        "loguniform(1e-4, 10), or use free_ridges=0"
    )


def _ridges(ridge: Any, count: int, rng: np.random.RandomState) -> list[Any]:
    """Ridges from a distribution, or the values of a list in random order."""
    if hasattr(ridge, "ppf"):
        parts = (np.arange(count) + rng.uniform(size=count)) / count
        return [value.item() for value in np.asarray(ridge.ppf(parts))]
    if hasattr(ridge, "rvs"):
        return [ridge.rvs(random_state=rng) for _ in range(count)]
    return [ridge[i] for i in rng.permutation(len(ridge))]

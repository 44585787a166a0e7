"""Losses by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import fields

from everyfold.losses.base import Loss
from everyfold.losses.margins import HuberHinge, Logistic, SquaredHinge
from everyfold.losses.regression import QuadraticEpsilon, SmoothEpsilon, Squared

LOSSES: dict[str, type[Loss]] = {
    loss.name: loss
    for loss in (Squared, QuadraticEpsilon, SmoothEpsilon, HuberHinge, SquaredHinge, Logistic)
}


def find_loss(name: str | Loss, **parameters: float) -> Loss:
    """The loss of a name, with its parameters.

    Parameters
    ----------
    name : str or Loss
        One of "squared", "quadratic_epsilon", "smooth_epsilon", "huber_hinge", "squared_hinge" and
        "logistic". A `Loss` is returned as it is.
    **parameters : float
        What the loss takes: ``epsilon`` and ``h``, or nothing.

    Returns
    -------
    Loss

    Raises
    ------
    ValueError
        If the name is unknown, or a parameter is not one of the loss or out of range.

    Examples
    --------
    >>> from everyfold.losses import find_loss
    >>> find_loss("huber_hinge", h=0.1)
    HuberHinge(h=0.1)
    >>> find_loss("hubber_hinge")
    Traceback (most recent call last):
    ValueError: loss='hubber_hinge' is not known; did you mean 'huber_hinge'? ...
    """
    if isinstance(name, Loss):
        if parameters:
            raise ValueError(
                f"loss={name!r} already carries its parameters, so {_listed(parameters)} cannot be "
                f"given as well; give the name {name.name!r} instead, or set them on the loss."
            )
        return name
    if not isinstance(name, str) or name not in LOSSES:
        raise ValueError(
            f"loss={name!r} is not known;{_suggestion(name)} It must be one of "
            f"{_listed(LOSSES)}, or a Loss."
        )
    _check_parameters(LOSSES[name], parameters)
    return LOSSES[name](**parameters)


def _check_parameters(loss: type[Loss], parameters: dict[str, float]) -> None:
    known = [field.name for field in fields(loss)]  # type: ignore[arg-type]
    unknown = [parameter for parameter in parameters if parameter not in known]
    if unknown:
        raise ValueError(
            f"loss={loss.name!r} has no parameter {_listed(unknown)}; "
            f"{f'it takes {_listed(known)}' if known else 'it takes none'}: leave the others out."
        )


def _suggestion(name: object) -> str:
    nearest = difflib.get_close_matches(str(name), LOSSES, n=1)
    return f" did you mean {nearest[0]!r}?" if nearest else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))

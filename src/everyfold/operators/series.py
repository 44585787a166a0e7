r"""The influence series, of which the hold-out formula (★) is the limit."""

from __future__ import annotations

from collections.abc import Callable

from everyfold.types import Array


def influence_series(first: Array, step: Callable[[Array], Array], order: int) -> Array:
    r"""The sum of ``order`` terms, each the ``step`` of the one before it.

    With :math:`\delta_1 = M_{SS}\,g_S` and the step :math:`\delta \mapsto M_{SS} D_S\,\delta` it is
    the Bouligand influence function (BIF) of that order. It converges to (★) where the spectral
    radius of :math:`M_{SS} D_S` is below 1.

    **Cost** ``order`` - 1 steps. **Exact?** No: the terms that are left out decay like the powers
    of the spectral radius.

    Examples
    --------
    >>> import numpy as np
    >>> influence_series(np.array([1.0]), lambda term: 0.5 * term, 3)
    array([1.75])
    """
    total, term = first.copy(), first
    for _ in range(order - 1):
        term = step(term)
        total += term
    return total

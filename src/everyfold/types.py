"""The names of what is passed around: arrays, row numbers, and words with a few allowed values."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Index", "Mask", "Matrix", "Order", "RidgeScaling", "Route"]

Array: TypeAlias = NDArray[np.float64]
"""Numbers in double precision."""

Index: TypeAlias = NDArray[np.intp]
"""Row numbers."""

Mask: TypeAlias = NDArray[np.bool_]
"""True or false for each row."""

Matrix: TypeAlias = Any
"""Rows of numbers: an array or a CSR matrix, for which SciPy has no common type."""

Route = Literal["eigen", "explicit", "cholesky", "tridiagonal"]
"""How a ridge system is factorised."""

RidgeScaling = Literal["sum", "mean"]
"""Whether a ridge stays what it is when rows are left out, or grows with their number."""

Order: TypeAlias = float | Literal["auto", "exact"]
"""How far the influence series of a fold goes, or whether to refit."""

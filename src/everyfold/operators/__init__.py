"""Kernel matrices with structure, and the only place where anything is factorised."""

from everyfold.operators.base import (
    Expansion,
    KernelOperator,
    Quadratic,
    Response,
    Solution,
    Structure,
)
from everyfold.operators.dense import Dense, DenseMatrix
from everyfold.operators.lowrank import LowRank, Primal
from everyfold.operators.perfold import PerFold

__all__ = [
    "Dense",
    "DenseMatrix",
    "Expansion",
    "KernelOperator",
    "LowRank",
    "PerFold",
    "Primal",
    "Quadratic",
    "Response",
    "Solution",
    "Structure",
]

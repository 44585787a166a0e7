"""Kernel matrices with structure, and the only place where anything is factorised."""

from everyfold.operators.base import (
    Expansion,
    KernelOperator,
    Quadratic,
    Response,
    Solution,
    Structure,
    StructureError,
)
from everyfold.operators.circulant import Circulant
from everyfold.operators.dense import Dense, DenseMatrix
from everyfold.operators.fourier import CirculantMatrix, CirculantWarning
from everyfold.operators.iterative import Iterative
from everyfold.operators.lowrank import LowRank, Primal
from everyfold.operators.nystrom import Nystrom, NystromMatrix

__all__ = [
    "Circulant",
    "CirculantMatrix",
    "CirculantWarning",
    "Dense",
    "DenseMatrix",
    "Expansion",
    "Iterative",
    "KernelOperator",
    "LowRank",
    "Nystrom",
    "NystromMatrix",
    "Primal",
    "Quadratic",
    "Response",
    "Solution",
    "Structure",
    "StructureError",
]

"""Kernel matrices with structure, and how fitted values answer to a change of the data.

An operator is the kernel matrix of some rows, in full, of low rank or never held; its
:class:`Response` for one ridge is all that cross-validation needs to know of it.
"""

from everyfold.operators.base import Expansion, Structure, SupportsResponse
from everyfold.operators.dense import Dense, DenseMatrix
from everyfold.operators.features import FeatureMap
from everyfold.operators.iterative import Iterative
from everyfold.operators.lowrank import LowRank, Mapped, Primal
from everyfold.operators.nystrom import FixedLandmarks, Nystrom, NystromMatrix
from everyfold.operators.random_fourier import RandomFourier
from everyfold.operators.response import Quadratic, Response, Solution, StructureError

__all__ = [
    "Dense",
    "DenseMatrix",
    "Expansion",
    "FeatureMap",
    "FixedLandmarks",
    "Iterative",
    "LowRank",
    "Mapped",
    "Nystrom",
    "NystromMatrix",
    "Primal",
    "Quadratic",
    "RandomFourier",
    "Response",
    "Solution",
    "Structure",
    "StructureError",
    "SupportsResponse",
]

r"""Feature maps: kernels that are inner products of c numbers a row, K = V Vᵀ.

A map has three steps, :math:`V = \phi(B)\,T` with :math:`B = \text{base}(X)`: a base matrix that
is free of hyper-parameters (columns, distances to landmarks, products with random directions), an
elementwise :math:`\phi`, and a small matrix T that mixes the columns. Kernels that differ in gamma
only share the first step, and sums over rows can be mixed afterwards, at c×c size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np

from everyfold._typing import Array, Matrix
from everyfold.io.moments import Scaling
from everyfold.kernels import Kernel
from everyfold.kernels.pairwise import dense, is_sparse
from everyfold.linalg.blas import product
from everyfold.linalg.columns import (
    inverse_of_lower,
    orthonormal_basis,
    right_singular_vectors_of_inverse,
)
from everyfold.linalg.symmetric import CHUNK, EPS, spectrum
from everyfold.operators.base import Expansion
from everyfold.operators.dense import KernelExpansion
from everyfold.operators.landmarks import refuse_indefinite

# What rounding may do to a sum, relative to it; scores move by a hundredth of that or less.
TRUSTED = 1e-8

# Rows of a sample that decide whether raw columns may be summed and mixed afterwards.
PROBE = 1000


class FeatureMap(ABC):
    """A map from rows to the c numbers whose inner products are the kernel.

    Attributes
    ----------
    T : array of shape (raw columns, c) or None
        What mixes the raw columns; None if they are the features.
    base_key : hashable or None
        Maps with equal keys have the same base matrix; None is never shared.
    """

    T: Array | None = None

    @property
    def base_key(self) -> Hashable | None:
        """See above."""
        return None

    @abstractmethod
    def base(self, X: Matrix) -> Array:
        """The base matrix B of the rows of ``X``: a new array."""

    def columns(self, B: Array, *, may_overwrite: bool = False) -> Array:
        """The raw columns φ(B); a new array unless B may be overwritten."""
        return B if may_overwrite else B.copy()

    @property
    @abstractmethod
    def raw_width(self) -> int:
        """The number of raw columns."""

    @property
    def width(self) -> int:
        """The number of features."""
        return self.raw_width if self.T is None else int(self.T.shape[1])

    def raw(self, X: Matrix) -> Array:
        """The raw columns of the rows of ``X``, a new array."""
        return self.columns(self.base(X), may_overwrite=True)

    def __call__(self, X: Matrix) -> Array:
        """The features of the rows of ``X``, (rows, c), in pieces of about 64 MB."""
        V = np.empty((X.shape[0], self.width))
        step = max(1, CHUNK // max(1, self.raw_width))
        for i in range(0, len(V), step):
            C = self.raw(X[i : i + step])
            V[i : i + step] = C if self.T is None else product(C, self.T)
        return V

    def keeps_digits(self, rho: float) -> bool:
        """Whether the Gram matrix of the raw columns may be summed and mixed by T afterwards.

        ``rho`` is the ridge divided by the number of rows.
        """
        return self.T is None

    def expand(self, coef: Array) -> Expansion:
        """The function with these coefficients of the features."""
        return MapExpansion(self, coef if self.T is None else self.T @ coef)

    def rescaled(self, old: Scaling, new: Scaling) -> FeatureMap:
        """The same map for rows that are scaled otherwise: its landmarks, if any, are too."""
        return self


@dataclass(frozen=True)
class MapExpansion(Expansion):
    """f(x) = φ(base(x)) coef: coefficients of the raw columns."""

    features: FeatureMap
    coef: Array

    def link(self, X: Matrix) -> Array:
        """See base class: the raw columns."""
        return self.features.raw(X)


@dataclass(frozen=True)
class Plain(FeatureMap):
    """The columns of X themselves."""

    n_columns: int

    @property
    def base_key(self) -> Hashable:
        """See base class."""
        return "columns"

    def base(self, X: Matrix) -> Array:
        """See base class."""
        return as_columns(X) if is_sparse(X) else np.array(X, dtype=np.float64, order="C")

    @property
    def raw_width(self) -> int:
        """See base class."""
        return self.n_columns

    def __call__(self, X: Matrix) -> Array:
        """See base class; no copy of a C-ordered array."""
        return as_columns(X)

    def expand(self, coef: Array) -> Expansion:
        """See base class."""
        return LinearExpansion(coef)


@dataclass(frozen=True)
class WithConstant(Plain):
    """The columns of X and one of a number everywhere: an intercept that has the ridge, too."""

    constant: float

    @property
    def base_key(self) -> Hashable:
        """See base class."""
        return "columns", self.constant

    def base(self, X: Matrix) -> Array:
        """See base class."""
        columns = np.full((X.shape[0], self.raw_width), self.constant)
        columns[:, :-1] = dense(X)
        return columns

    @property
    def raw_width(self) -> int:
        """See base class."""
        return self.n_columns + 1

    def __call__(self, X: Matrix) -> Array:
        """See base class."""
        return self.base(X)

    def expand(self, coef: Array) -> Expansion:
        """See base class."""
        return MapExpansion(self, coef)


@dataclass(frozen=True)
class Turned(FeatureMap):
    """The columns of X in other coordinates: as many as there are rows, where columns are more."""

    T: Array

    @classmethod
    def of(cls, X: Matrix) -> Turned:
        """An orthonormal basis of the rows; 2 n² p flops for n rows of p columns."""
        return cls(np.ascontiguousarray(orthonormal_basis(as_columns(X).T)))

    def base(self, X: Matrix) -> Array:
        """See base class."""
        return np.array(as_columns(X))

    @property
    def raw_width(self) -> int:
        """See base class."""
        return len(self.T)


def as_columns(X: Matrix) -> Array:
    """Rows as a dense array in C order, themselves where they are one."""
    return np.ascontiguousarray(dense(X), dtype=np.float64)


@dataclass(frozen=True)
class LinearExpansion(Expansion):
    """f(x) = xᵀ coef."""

    coef: Array

    def link(self, X: Matrix) -> Array:
        """See base class: the columns themselves."""
        return as_columns(X)


@dataclass(frozen=True)
class LandmarkFeatures(FeatureMap):
    """φ(x) = Tᵀ (k(x, l_1), …, k(x, l_c)) with T Tᵀ the (truncated) pseudo-inverse of W.

    ``probe`` are rows of the sample that the landmarks were drawn from.
    """

    kernel: Kernel
    landmarks: Matrix
    T: Array
    probe: Matrix = field(default=None, compare=False, repr=False)

    @classmethod
    def of(
        cls, kernel: Kernel, landmarks: Matrix, W: Array, rank: int, probe: Matrix
    ) -> LandmarkFeatures:
        """From the leading eigenvectors of W; eigenvalues that rounding made are left out."""
        values, U = spectrum(0.5 * (W + W.T))
        refuse_indefinite(values, float(np.abs(values).max(initial=0.0)))
        kept = np.flatnonzero(values > len(W) * EPS * max(float(values[-1]), 0.0))[-rank:]
        T = U[:, kept] / np.sqrt(values[kept])
        return cls(kernel, landmarks, np.ascontiguousarray(T), probe)

    @classmethod
    def of_factor(
        cls, kernel: Kernel, landmarks: Matrix, L: Array, probe: Matrix
    ) -> LandmarkFeatures:
        """From the Cholesky factor of W."""
        T = inverse_of_lower(L).T
        return cls(kernel, landmarks, np.ascontiguousarray(T), probe)

    def rescaled(self, old: Scaling, new: Scaling) -> LandmarkFeatures:
        """See base class; c² kernel evaluations and 9 c³ flops."""
        landmarks, probe = new(old.back(self.landmarks)), new(old.back(self.probe))
        W = self.kernel(landmarks, landmarks)
        return LandmarkFeatures.of(self.kernel, landmarks, W, self.width, probe)

    def truncated(self, rank: int) -> tuple[LandmarkFeatures, Array]:
        """The leading features of W only, and the rotation that takes the old ones there.

        W = L Lᵀ, so that its eigenvectors are the left singular vectors of L and the features
        rotate by the right ones.
        """
        vectors = right_singular_vectors_of_inverse(self.T)
        rotation = np.ascontiguousarray(vectors[:rank].T)
        T = self.T @ rotation
        return LandmarkFeatures(self.kernel, self.landmarks, T, self.probe), rotation

    @property
    def base_key(self) -> Hashable | None:
        """See base class: the kind of distance and the landmarks."""
        if self.kernel.base is None:
            return None
        return self.kernel.base, fingerprint(self.landmarks)

    def base(self, X: Matrix) -> Array:
        """See base class: distances to the landmarks, or inner products with them."""
        return self.kernel.base_matrix(X, self.landmarks)

    def columns(self, B: Array, *, may_overwrite: bool = False) -> Array:
        """See base class: kernel values."""
        return self.kernel.from_base(B, out=B if may_overwrite else None)

    @property
    def raw_width(self) -> int:
        """See base class: the number of landmarks."""
        return len(self.T)

    def keeps_digits(self, rho: float) -> bool:
        """See base class, judged by the probe.

        Rounding leaves errors of about EPS times its entries in a Gram matrix, of either sign,
        which T multiplies by the squared norms of its columns.
        """
        if self.probe is None or not self.probe.shape[0]:
            return False
        C = self.raw(self.probe)
        V = product(C, self.T)
        mixed = np.einsum("ij,ij->j", V, V) + len(C) * rho
        largest = float(np.einsum("ij,ij->j", C, C).max(initial=0.0))
        rounding = EPS * largest * np.einsum("ij,ij->j", self.T, self.T)
        return bool((rounding <= TRUSTED * mixed).all())

    def expand(self, coef: Array) -> KernelExpansion:
        """See base class: c kernel evaluations a row."""
        return KernelExpansion(self.kernel, self.landmarks, self.T @ coef)


@dataclass(frozen=True)
class Standardised(FeatureMap):
    """A map of scaled rows, as a map of the rows themselves."""

    features: FeatureMap
    scaling: Scaling
    T: Array | None = None

    @classmethod
    def of(cls, features: FeatureMap, scaling: Scaling) -> Standardised:
        """Rows are scaled, and mapped then."""
        return cls(features, scaling, features.T)

    @property
    def base_key(self) -> Hashable | None:
        """See base class: that of the map, for rows scaled alike."""
        key = self.features.base_key
        if key is None:
            return None
        return key, fingerprint(self.scaling.shift), fingerprint(self.scaling.scale)

    def base(self, X: Matrix) -> Array:
        """See base class."""
        return self.features.base(self.scaling(X))

    def columns(self, B: Array, *, may_overwrite: bool = False) -> Array:
        """See base class."""
        return self.features.columns(B, may_overwrite=may_overwrite)

    @property
    def raw_width(self) -> int:
        """See base class."""
        return self.features.raw_width

    def keeps_digits(self, rho: float) -> bool:
        """See base class."""
        return self.features.keeps_digits(rho)


def fingerprint(rows: Matrix) -> bytes:
    """Equal for equal rows, dense or CSR."""
    parts = (rows.data, rows.indices, rows.indptr) if hasattr(rows, "indptr") else (rows,)
    found = sha256(str(rows.shape).encode())
    for part in parts:
        found.update(np.ascontiguousarray(part).data)
    return found.digest()

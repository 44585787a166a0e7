r"""Sums over rows of features: all that ridge regression needs to know of them, fold by fold.

Rows enter through their weight, their features v and their targets z only as sums of products, so
that folds are taken out by subtraction, and rows may arrive block by block from anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
from scipy.linalg import blas, lapack

from everyfold.operators.base import Array, Quadratic, Rows
from everyfold.operators.systems import EPS, mirror, refuse

BLOCK = 4_000_000
"""Entries of V that are weighted at a time, about 32 MB."""

DISTINCT = 1e-5
"""Differences below this share of what they are taken of have lost their digits."""

FEW_RIDGES = 8
"""Up to this many ridges a Cholesky factor each is cheaper than one eigendecomposition."""


def gram(Z: Array) -> Array:
    """ZᵀZ of a C-ordered matrix, both triangles filled, at half the flops of a product."""
    if Z.size == 0:
        return np.zeros((Z.shape[1], Z.shape[1]))
    return mirror(blas.dsyrk(1.0, np.ascontiguousarray(Z).T, lower=1))


class GramSum:
    """A sum of Gram matrices in one piece of memory; ``total`` fills the other triangle."""

    def __init__(self, size: int) -> None:
        self._lower = np.zeros((size, size), order="F")

    def add(self, Z: Array) -> None:
        """Add ZᵀZ of a C-ordered matrix."""
        if Z.size:
            self._lower = blas.dsyrk(1.0, Z.T, beta=1.0, c=self._lower, lower=1, overwrite_c=1)

    def total(self) -> Array:
        """The sum, symmetric."""
        return mirror(self._lower.copy(order="F"))


def weighted_gram(V: Array, s: Array, centre: Array) -> Array:
    """ZᵀZ of Z = s (V − 1 centreᵀ), in blocks so that no second V is made."""
    total = GramSum(V.shape[1])
    step = max(1, BLOCK // max(1, V.shape[1]))
    is_plain = bool(np.all(s == 1.0)) and not centre.any()
    for i in range(0, len(V), step):
        block = V[i : i + step]
        total.add(block if is_plain else (block - centre) * s[i : i + step, None])
    return total.total()


@dataclass(frozen=True)
class Sums:
    """Sums over some rows of weights w, features v, targets z and their products.

    Attributes
    ----------
    count : int
        The number of rows with positive weight.
    weight : float
    features : array of shape (c,)
    gram : array of shape (c, c)
    targets : array of shape (q,)
    cross : array of shape (c, q)
        Of w v zᵀ.
    squares : array of shape (q,)
        Of w z².
    """

    count: int
    weight: float
    features: Array
    gram: Array
    targets: Array
    cross: Array
    squares: Array

    @classmethod
    def of(cls, V: Array, s: Array, z: Array) -> Sums:
        """The sums over rows with weights s²; c² flops a row."""
        w = s * s
        weighted = w[:, None] * z
        return cls(
            int(np.count_nonzero(w)),
            float(w.sum()),
            w @ V,
            weighted_gram(V, s, np.zeros(V.shape[1])),
            weighted.sum(axis=0),
            V.T @ weighted,
            np.einsum("ij,ij->j", weighted, z),
        )

    def __add__(self, other: Sums) -> Sums:
        return self._with(other, 1.0)

    def __sub__(self, other: Sums) -> Sums:
        return self._with(other, -1.0)

    def _with(self, other: Sums, sign: float) -> Sums:
        return Sums(
            self.count + int(sign) * other.count,
            self.weight + sign * other.weight,
            self.features + sign * other.features,
            self.gram + sign * other.gram,
            self.targets + sign * other.targets,
            self.cross + sign * other.cross,
            self.squares + sign * other.squares,
        )

    def mapped(self, T: Array) -> Sums:
        """The sums of the features v T; what c×c costs, whatever the number of rows."""
        gram = T.T @ self.gram @ T
        return replace(self, features=self.features @ T, gram=gram, cross=T.T @ self.cross)

    def solve(self, rhos: Sequence[float], *, intercept: bool) -> RidgeModels:
        """Ridge regression on these rows for all ridges; 9 c³ flops and c² more a ridge."""
        is_centred = intercept and self.weight > 0.0
        centre = self.features / self.weight if is_centred else np.zeros_like(self.features)
        A = self.gram - self.weight * np.outer(centre, centre)
        rhs = self.cross - np.outer(centre, self.targets)
        if len(A):
            solve = _by_factors if len(rhos) <= FEW_RIDGES else _by_spectrum
            coef, condition = solve(A, rhs, rhos)
        else:  # a kernel of zeros
            coef, condition = np.empty((len(rhos), *rhs.shape)), np.ones(len(rhos))
        b = np.zeros((len(rhos), len(self.targets)))
        if is_centred:
            b = self.targets / self.weight - centre @ coef
        return RidgeModels(coef, b, condition)

    def residual(self, models: RidgeModels) -> Array:
        """The sums of squared residuals of models on these rows, (ridges, q)."""
        coef, b = models.coef, models.intercept
        fitted = np.einsum("kcq,kcq->kq", coef, self.gram @ coef)
        fitted += 2.0 * b * (self.features @ coef) + self.weight * b * b
        explained = np.einsum("kcq,cq->kq", coef, self.cross) + b * self.targets
        residual: Array = self.squares - 2.0 * explained + fitted
        return residual


@dataclass(frozen=True)
class Centred:
    """Sums over rows from whose features and targets constants were subtracted: their origin.

    An origin near the rows keeps the digits that a common one may cost.
    """

    sums: Sums
    origin: Array
    target_origin: Array

    @property
    def target_mean(self) -> Array:
        """The weighted mean of the targets."""
        mean: Array = self.sums.targets / self.sums.weight + self.target_origin
        return mean

    def about(self, origin: Array, target_origin: Array) -> Sums:
        """The sums about another origin; a few c² flops."""
        own, d, e = self.sums, self.origin - origin, self.target_origin - target_origin
        if not d.any() and not e.any():
            return own
        half = np.outer(own.features + 0.5 * own.weight * d, d)
        return replace(
            own,
            features=own.features + own.weight * d,
            gram=own.gram + half + half.T,
            targets=own.targets + own.weight * e,
            cross=own.cross + np.outer(own.features, e) + np.outer(d, own.targets + own.weight * e),
            squares=own.squares + e * (2.0 * own.targets + own.weight * e),
        )

    def mapped(self, T: Array) -> Centred:
        """The sums of the features v T."""
        return replace(self, sums=self.sums.mapped(T), origin=self.origin @ T)

    def solve(self, rhos: Sequence[float], *, intercept: bool) -> RidgeModels:
        """Ridge regression on these rows, in terms of features and targets as they were."""
        models = self.sums.solve(rhos, intercept=intercept)
        b = models.intercept + self.target_origin - self.origin @ models.coef
        return replace(models, intercept=b)

    def residual(self, models: RidgeModels) -> Array:
        """The sums of squared residuals of such models on these rows, (ridges, q)."""
        b = models.intercept - self.target_origin + self.origin @ models.coef
        return self.sums.residual(replace(models, intercept=b))


def bring_together(pieces: Sequence[Centred], *, intercept: bool) -> list[Centred]:
    """The same sums, all about the mean of all rows, or about 0 where no intercept is fitted."""
    first = pieces[0]
    origin, target_origin = np.zeros_like(first.origin), np.zeros_like(first.target_origin)
    weight = sum(piece.sums.weight for piece in pieces)
    if intercept and weight > 0.0:
        for piece in pieces:
            share = piece.sums.weight / weight
            origin += piece.sums.features / weight + share * piece.origin
            target_origin += piece.sums.targets / weight + share * piece.target_origin
    moved = (piece.about(origin, target_origin) for piece in pieces)
    return [Centred(sums, origin, target_origin) for sums in moved]


def merge(pieces: Sequence[Centred]) -> Centred:
    """The sums over the rows of all pieces, which have one origin."""
    return replace(pieces[0], sums=reduce(add, (piece.sums for piece in pieces)))


@dataclass
class RunningSums:
    """Sums that grow, block by block."""

    count: int
    weight: float
    features: Array
    gram: GramSum
    targets: Array
    cross: Array
    squares: Array
    around: tuple[Array, Array]
    """Sums of the targets and of their squares around a fixed point."""

    @classmethod
    def empty(cls, c: int, q: int) -> RunningSums:
        """No rows yet."""
        cross = np.zeros((c, q), order="F")
        around = np.zeros(q), np.zeros(q)
        return cls(0, 0.0, np.zeros(c), GramSum(c), np.zeros(q), cross, np.zeros(q), around)

    def spread_by(self, w: Array | None, z: Array) -> None:
        """Add targets to the sums around a fixed point."""
        weighted = z if w is None else z * w[:, None]
        self.around[0][:] += weighted.sum(axis=0)
        self.around[1][:] += np.einsum("ij,ij->j", weighted, z)

    def spread(self) -> Array:
        """The sums of squares around the means; NaN where the difference lost its digits."""
        first, second = self.around
        spread = second - first**2 / max(self.weight, np.finfo(np.float64).tiny)
        return np.where(spread > DISTINCT * second, spread, np.nan)

    def add(self, V: Array, w: Array | None, z: Array) -> None:
        """Add rows; c² flops each."""
        weighted = z if w is None else z * w[:, None]
        self.count += len(V) if w is None else int(np.count_nonzero(w))
        self.weight += float(len(V) if w is None else w.sum())
        ones = np.ones(len(V)) if w is None else w
        both = np.asfortranarray(np.column_stack([weighted, ones]))
        products = blas.dgemm(1.0, V.T, both)
        self.cross += products[:, :-1]
        self.features += products[:, -1]
        self.targets += weighted.sum(axis=0)
        self.squares += np.einsum("ij,ij->j", weighted, z)
        self.gram.add(V if w is None else V * np.sqrt(w)[:, None])

    def sums(self) -> Sums:
        """The sums so far."""
        return Sums(
            self.count,
            self.weight,
            self.features,
            self.gram.total(),
            self.targets,
            self.cross,
            self.squares,
        )


@dataclass(frozen=True)
class RidgeModels:
    """Coefficients (ridges, c, q), intercepts (ridges, q) and condition numbers (ridges,)."""

    coef: Array
    intercept: Array
    condition: Array

    def values(self, V: Array) -> Array:
        """Predictions of rows with features V, (ridges, rows, q), by one product."""
        k, c, q = self.coef.shape
        flat = V @ self.coef.transpose(1, 0, 2).reshape(c, k * q)
        values: Array = flat.reshape(len(V), k, q).transpose(1, 0, 2) + self.intercept[:, None, :]
        return values


def _by_spectrum(A: Array, rhs: Array, rhos: Sequence[float]) -> tuple[Array, Array]:
    values, U, info = lapack.dsyevd(A, lower=1)
    if info:
        raise np.linalg.LinAlgError(f"dsyevd did not converge (info={info})")
    values = np.maximum(values, 0.0)
    inner = U.T @ rhs
    coef, condition = np.empty((len(rhos), *rhs.shape)), np.empty(len(rhos))
    for k, rho in enumerate(rhos):
        smallest, largest = float(values[0]) + rho, float(values[-1]) + rho
        if smallest <= EPS * largest:
            raise refuse(smallest, rho)
        condition[k] = largest / smallest
        coef[k] = inner / (values + rho)[:, None]
    return U @ coef, condition


def _by_factors(A: Array, rhs: Array, rhos: Sequence[float]) -> tuple[Array, Array]:
    coef, condition = np.empty((len(rhos), *rhs.shape)), np.empty(len(rhos))
    for k, rho in enumerate(rhos):
        system = A + rho * np.eye(len(A))
        norm = float(np.abs(system).sum(axis=0).max())
        L, x, info = lapack.dposv(system, rhs, lower=1)
        rcond = lapack.dpocon(L, norm, uplo="L")[0] if info == 0 else 0.0
        if rcond <= EPS:
            raise refuse(float(np.linalg.eigvalsh(system)[0]), rho)
        coef[k], condition[k] = x, 1.0 / rcond
    return coef, condition


@dataclass(frozen=True)
class Moments:
    """The sums over all rows, and over each set that may be left out.

    ``shift`` and ``target_shift`` are constants that were subtracted from the features and the
    targets, so that centring them for an intercept loses no digits where they are far from 0.
    Models in shifted terms are what ``without`` gives; ``original`` takes them back.
    """

    total: Sums
    parts: tuple[Sums, ...]
    intercept: bool
    shift: Array
    target_shift: Array

    @classmethod
    def of_sets(cls, V: Array, quadratic: Quadratic, sets: Sequence[Rows]) -> Moments:
        """Sum over sets of rows; where they cut the rows into pieces each row counts once."""
        s, z = quadratic.s, quadratic.z
        shift, target_shift = np.zeros(V.shape[1]), np.zeros(z.shape[1])
        if quadratic.intercept:
            weight = max(float(s @ s), np.finfo(np.float64).tiny)
            shift, target_shift = (s * s) @ V / weight, (s * s) @ z / weight
        z = z - target_shift
        parts = tuple(Sums.of(V[rows] - shift, s[rows], z[rows]) for rows in sets)
        if _is_partition(sets, len(V)):
            total = reduce(add, parts)
        else:
            step = max(1, BLOCK // max(1, V.shape[1]))
            pieces = [slice(i, i + step) for i in range(0, len(V), step)]
            total = reduce(add, [Sums.of(V[part] - shift, s[part], z[part]) for part in pieces])
        return cls(total, parts, quadratic.intercept, shift, target_shift)

    def without(self, k: int, rhos: Sequence[float]) -> RidgeModels:
        """The models of all rows but those of set k, in shifted terms."""
        return (self.total - self.parts[k]).solve(rhos, intercept=self.intercept)

    def original(self, models: RidgeModels) -> RidgeModels:
        """The same models for features and targets as they were."""
        intercept = models.intercept + self.target_shift - self.shift @ models.coef
        return RidgeModels(models.coef, intercept, models.condition)


def _is_partition(sets: Sequence[Rows], n: int) -> bool:
    if sum(len(rows) for rows in sets) != n:
        return False
    seen = np.zeros(n, dtype=bool)
    for rows in sets:
        seen[rows] = True
    return bool(seen.all())

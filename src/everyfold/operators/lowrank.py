"""Kernels of low rank, K = V Vᵀ: linear models in their primal form are the simplest case.

Everything is computed with the c columns of V, at a cost of n c² in place of n³; coefficients are
those of the columns.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from everyfold._typing import Array, Index, Matrix, Route
from everyfold.io.blocks import array_batches, height_of
from everyfold.io.samples import Held, Sampled
from everyfold.kernels import Kernel
from everyfold.linalg.blas import product
from everyfold.linalg.columns import Columns, singular_values
from everyfold.linalg.ridge_systems import factorise
from everyfold.linalg.symmetric import (
    CHUNK,
    EPS,
    DeflatedStack,
    FactoredStack,
    NotPositiveDefiniteError,
    cholesky,
    condition_at,
    gram,
    invert_lower,
    largest_eigenvalues,
    refuse,
    solve_stack,
    spectrum,
    weighted_gram,
)
from everyfold.operators.base import Expansion, OperatorSpec, Structure, SupportsResponse
from everyfold.operators.features import FeatureMap, Plain, Turned, WithConstant
from everyfold.operators.gram import ILL, FoldSums, Start, accumulate
from everyfold.operators.response import DualModel, Quadratic, Response, RidgeModels, Solution

# Entries of V, about 32 MB, from which on sums over rows save memory.
BLOCK = 4_000_000


class Mapped(Structure):
    """A structure that represents the kernel by a feature map, K = V Vᵀ.

    Whatever is a map serves every loss, folds by sums or with V in memory, and rows of any source.
    """

    kind: ClassVar[str]
    """What the raw columns are, in words."""

    @abstractmethod
    def feature_map(self, kernel: Kernel, rows: Sampled) -> FeatureMap:
        """The map for these rows, of which no more than a sample is read."""

    @abstractmethod
    def raw_width_for(self, n_rows: int, n_features: int) -> int:
        """The number of raw columns of a map for rows of this shape, at most."""

    def rows_sampled(self, n_rows: int, most: int) -> int:
        """How many rows are held while a map is made, if that may be ``most`` of them."""
        return 0

    def bind(self, kernel: Kernel, X: Matrix) -> LowRank:
        """See base class."""
        features = self.feature_map(kernel, Held(X))
        return LowRank(features(X), features)

    def bind_rows(self, kernel: Kernel, X: Matrix) -> LowRank:
        """See base class: without V."""
        return LowRank(None, self.feature_map(kernel, Held(X)), X)

    reads_sources = True

    def outline(self, n_rows: int, n_features: int, *, is_per_fold: bool = False) -> OperatorSpec:
        """See base class."""
        found = super().outline(n_rows, n_features, is_per_fold=is_per_fold)
        return replace(found, has_columns=True)

    def needs_blocks(self, n_rows: int, n_features: int) -> bool:
        """See base class."""
        return n_rows * self.raw_width_for(n_rows, n_features) > BLOCK

    def rank_for(self, n_rows: int, n_features: int) -> int:
        """See base class."""
        return min(n_rows, self.raw_width_for(n_rows, n_features))


@dataclass(frozen=True)
class Primal(Mapped):
    """Represent a linear kernel by the features themselves.

    **Cost** n d² flops and d² memory where the dense kernel takes n³ and n²; worth it when
    features are fewer than rows.
    """

    kind: ClassVar[str] = "columns of the rows"

    def bind(self, kernel: Kernel, X: Matrix) -> LowRank:
        """See base class; of more columns than rows the coordinates in which these differ."""
        if X.shape[1] <= X.shape[0] or kernel.constant:
            return super().bind(kernel, X)
        features = Turned.of(X)
        return LowRank(features(X), features)

    def feature_map(self, kernel: Kernel, rows: Sampled) -> Plain:
        """See base class."""
        if not kernel.is_linear:
            raise ValueError(f"a primal form exists for the linear kernel only, not for {kernel}")
        if kernel.constant:
            return WithConstant(rows.n_features, math.sqrt(kernel.constant))
        return Plain(rows.n_features)

    def raw_width_for(self, n_rows: int, n_features: int) -> int:
        """See base class."""
        return n_features


class LowRank(SupportsResponse):
    """K = V Vᵀ for an (n, c) matrix V. Coefficients are those of the c columns."""

    def __init__(
        self, V: Array | None, features: FeatureMap | None = None, X: Matrix = None
    ) -> None:
        """V itself, or a map and the rows that it is made of when something asks for it."""
        self._features = features
        self._X = X
        if V is not None:
            self.V = V
        self.n = int(X.shape[0]) if V is None else len(V)

    @cached_property
    def V(self) -> Array:
        """The features of all rows."""
        assert self._features is not None
        return self._features(self._X)

    @property
    def _is_held(self) -> bool:
        return "V" in vars(self)

    @property
    def rank(self) -> int:
        """The number of columns of V, or of rows if that is smaller."""
        c = self.V.shape[1] if self._features is None or self._is_held else self._features.width
        return int(min(self.n, c))

    def sums(self, quadratic: Quadratic, sets: Sequence[Index], rho: float) -> FoldSums:
        """The sums over the rows that each of the sets holds out, for ridges from rho on."""
        rows, features = self._X, self._features
        if self._is_held or features is None:
            rows, features = self.V, Plain(self.V.shape[1])
        start = Start.of(features, rho, self.n, intercept=quadratic.intercept)
        w = None if (quadratic.s == 1.0).all() else quadratic.s**2
        batches = array_batches(rows, quadratic.z, w, sets, height_of(features.raw_width))
        return accumulate(batches, [features], [start])[0]

    def predict(self, models: RidgeModels, rows: Index) -> Array:
        """The values of some rows by models of the features, (ridges, rows, q)."""
        if self._is_held or self._features is None:
            return models.values(self.V[rows])
        return models.of_raw(self._features.T).values(self._features.raw(self._X[rows]))

    def matmat(self, B: Array) -> Array:
        """K B, 4 n c flops a column."""
        return product(self.V, product(self.V.T, B))

    def evaluate(self, coef: Array) -> Array:
        """See base class: V times the coefficients."""
        return product(self.V, coef)

    def coefficients(self, a: Array) -> Array:
        """See base class: Vᵀ a."""
        return product(self.V.T, a)

    def inherit(self, coef: Array, rows: Index) -> Array:
        """See base class: all of them."""
        return coef

    def inner(self, coef: Array, other: Array, values: Array) -> float:
        """See base class: the coefficients are coordinates."""
        return float(np.vdot(coef, other))

    def drift(self, forces: Array, coef: Array, rho: float) -> Array | None:
        """See base class."""
        return self.coefficients(forces[:, None])[:, 0] + 2.0 * rho * coef

    def size_of_sums(self, total: float, largest: float) -> float:
        """See base class."""
        return total * float(np.sqrt(largest))

    def diagonal(self) -> Array:
        """See base class."""
        diagonal: Array = np.einsum("ij,ij->i", self.V, self.V)
        return diagonal

    def eigenvalues(self) -> Array:
        """All n eigenvalues, ascending: the squared singular values of V and zeros."""
        values = np.zeros(self.n)
        spectrum = singular_values(self.V) ** 2
        values[self.n - len(spectrum) :] = spectrum[::-1]
        return values

    def respond_path(
        self, quadratic: Quadratic, rhos: Sequence[float], route: Route
    ) -> Iterator[LowRankResponse]:
        """See base class.

        A single ridge takes a c×c Cholesky factor, more a shared spectrum; by the tridiagonal route
        they share a reduction, which gives their solutions and nothing else. Ridges that these
        cannot solve take the columns themselves.
        """
        centred = _Centred(self.V, quadratic)
        kind, limit = self._response_kind(), self.limit
        if len(rhos) == 1:
            yield kind(centred, quadratic, _safely(centred, rhos[0], limit), rhos[0])
            return
        if route == "tridiagonal" and len(centred.gram):
            try:
                found = list(factorise(centred.gram, route).path(rhos, centred.force))
            except NotPositiveDefiniteError:
                found = []  # by rounding: the spectrum knows better
            for rho, (system, coef) in zip(rhos, found, strict=False):
                if system.condition <= limit:
                    yield kind(centred, quadratic, None, rho, coef, system.condition)
                else:
                    yield kind(centred, quadratic, _safely(centred, rho, limit), rho)
            if found:
                return
        spectrum = _Spectrum(centred)
        for rho in rhos:
            is_well = spectrum.condition(rho) <= limit
            inverse = spectrum.at(rho) if is_well else _safely(centred, rho, limit)
            yield kind(centred, quadratic, inverse, rho)

    def leave_one_out(
        self, quadratic: Quadratic, rhos: Sequence[float]
    ) -> list[tuple[Array, Solution, float]] | None:
        """Held-out residuals of every row, the fit and its condition number, for each ridge.

        None where the Gram matrix has too few digits. One spectrum and three passes over the rows
        serve all ridges: (n + 2 n q) c flops a ridge, where :meth:`respond_path` makes factors of
        all rows for each.
        """
        centred, s = _Centred(self.V, quadratic), quadratic.s[:, None]
        spectrum, total = _Spectrum(centred), float(np.square(s).sum())
        conditions = [spectrum.condition(rho) for rho in rhos]
        if total == 0.0 or max(conditions) > self.limit:
            return None
        shares = spectrum.shares(rhos)
        mean = 1.0 / total if quadratic.intercept else 0.0
        left = 1.0 - s**2 * (product(np.square(spectrum.rotated), shares) + mean)
        found, step = [], max(1, CHUNK // max(1, quadratic.z.size))
        for first in range(0, len(rhos), step):
            coefs = spectrum.solve(shares[:, first : first + step])
            fitted = product(centred.rows, np.hstack(coefs))
            for k, coef in enumerate(coefs, first):
                residual = quadratic.z - fitted[:, : coef.shape[1]]
                fitted = fitted[:, coef.shape[1] :]
                offset = mean * np.square(s).T @ residual
                solution = Solution(coef, offset[0] - centred.centre @ coef)
                found.append(((residual - offset) / left[:, [k]], solution, conditions[k]))
        return found

    @property
    def limit(self) -> float:
        """The condition number up to which a Gram matrix will do.

        Features that only stand for a kernel are not worth more than their system can be solved.
        """
        is_plain = self._features is None or isinstance(self._features, Plain | Turned)
        return ILL if is_plain else 1.0 / EPS

    def _response_kind(self) -> type[LowRankResponse]:
        return LowRankResponse

    def restrict(self, rows: Index) -> LowRank:
        """See base class."""
        if self._is_held:
            return LowRank(self.V[rows], self._features)
        return LowRank(None, self._features, self._X[rows])

    def cross(self, new: Index, rows: Index) -> Array:
        """See base class: the rows of V."""
        if self._is_held or self._features is None:
            return self.V[new]
        return self._features(self._X[new])

    def link(self, X: Matrix) -> Array:
        """See base class: the features of new rows."""
        return super().link(X) if self._features is None else self._features(X)

    def expand(self, coef: Array) -> Expansion:
        """See base class."""
        if self._features is None:
            raise TypeError("a bare matrix cannot predict new rows; bind it to a kernel and data")
        return self._features.expand(coef)


class _Centred:
    r"""The features of a quadratic problem, and the Gram matrix of its active rows.

    An unpenalised intercept is the same as centring the columns at their weighted means
    :math:`\bar v`, which also keeps the Gram matrix well conditioned when the data sit far from
    the origin.
    """

    def __init__(self, V: Array, quadratic: Quadratic) -> None:
        """Centre and multiply; c² flops for every row that has curvature."""
        self.V = V
        self._quadratic = quadratic
        active = quadratic.active
        s, inside = quadratic.s[active], V if active.size == len(V) else V[active]
        weight = float(s @ s)
        self.centre = np.zeros(V.shape[1])
        if quadratic.intercept and weight > 0.0:
            self.centre = (s**2 @ inside) / weight
        self.gram = weighted_gram(inside, s, self.centre)

    @cached_property
    def rows(self) -> Array:
        """V − 1 v̄ᵀ for all rows, active or not."""
        return self.V - self.centre if self.centre.any() else self.V

    @cached_property
    def columns(self) -> Columns:
        """Those of the active rows, centred and weighted; 2 n c² flops."""
        active = self._quadratic.active
        return Columns(self.rows[active] * self._quadratic.s[active, None])

    @cached_property
    def force(self) -> Array:
        """What the targets do to the coefficients: (V − 1 v̄ᵀ)ᵀ s² z, and what pulls at b."""
        B = self._quadratic.z * (self._quadratic.s**2)[:, None]
        # b follows the mean of f, so that a force on b is one on f too.
        pull = 0.5 * self._quadratic.pull
        force: Array = product(self.V.T, B) - np.outer(self.centre, B.sum(axis=0) - pull)
        if self._quadratic.drift is not None:
            force -= 0.5 * self._quadratic.drift[:, None]
        return force

    def left(self, coef: Array) -> Array:
        """The weighted residuals of all rows for these coefficients and the b that goes with them.

        Their products with the centred rows do not depend on b.
        """
        s, z = self._quadratic.s[:, None], self._quadratic.z
        residual = z - product(self.rows, coef)
        if self._quadratic.intercept and s.any():
            residual -= (s**2).T @ residual / (s**2).sum()
        left: Array = s**2 * residual
        return left

    def pull(self, coef: Array, rho: float) -> Array:
        """What else acts on the coefficients: the ridge, and what pulls at b and at them."""
        pull = np.outer(self.centre, np.full(coef.shape[1], 0.5 * self._quadratic.pull))
        if self._quadratic.drift is not None:
            pull -= 0.5 * self._quadratic.drift[:, None]
        return pull - rho * coef


@dataclass(frozen=True)
class _Inverse:
    """(ZᵀZ + ρ)⁻¹ = P Pᵀ for the centred and weighted features Z."""

    P: Array
    condition: float
    rotate: Callable[[], Array]
    """Gives the centred rows times P."""

    def solve(self, centred: _Centred, rho: float) -> Array:
        """The coefficients, (c, q)."""
        solved: Array = self.P @ (self.P.T @ centred.force)
        return solved


@dataclass(frozen=True)
class _FromColumns(_Inverse):
    """The same from the columns, without the normal equations."""

    def solve(self, centred: _Centred, rho: float) -> Array:
        """See base class: what is left of the forces, twice, turned by P before it is summed."""
        coef = np.zeros_like(centred.force)
        turned = self.rotate()
        for _ in range(2):
            coef += self.P @ (turned.T @ centred.left(coef) + self.P.T @ centred.pull(coef, rho))
        return coef


class _Spectrum:
    """Eigenvalues and eigenvectors of the Gram matrix; they serve every ridge."""

    def __init__(self, centred: _Centred) -> None:
        """Decompose; 9 c³ flops."""
        values, self._U = spectrum(centred.gram)
        self._values = np.maximum(values, 0.0)
        self._centred = centred

    @cached_property
    def rotated(self) -> Array:
        """The centred rows times the eigenvectors, 2 n c² flops."""
        return np.ascontiguousarray(product(self._centred.rows, self._U))

    def shares(self, rhos: Sequence[float]) -> Array:
        """The inverses of all eigenvalues for each ridge, (c, ridges)."""
        return np.asarray(1.0 / (self._values[:, None] + np.asarray(rhos)))

    def condition(self, rho: float) -> float:
        """The condition number at a ridge; infinite if there is no inverse."""
        try:
            return condition_at(self._values, rho)
        except NotPositiveDefiniteError:
            return np.inf

    def solve(self, shares: Array) -> list[Array]:
        """The coefficients of the ridges with these shares."""
        turned = product(self._U.T, self._centred.force)
        return [product(self._U, share[:, None] * turned) for share in shares.T]

    def at(self, rho: float) -> _Inverse:
        """The inverse for one ridge."""
        roots = np.sqrt(1.0 / (self._values + rho))
        return _Inverse(self._U * roots, self.condition(rho), lambda: self.rotated * roots)


def _safely(centred: _Centred, rho: float, limit: float) -> _Inverse:
    """The inverse for one ridge: from the columns if the Gram matrix has too few digits."""
    try:
        found = _factor(centred, rho)
    except NotPositiveDefiniteError:
        found = None
    if found is not None and found.condition <= limit:
        return found
    P, condition = centred.columns.at(rho)
    return _FromColumns(P, condition, lambda: np.ascontiguousarray(product(centred.rows, P)))


def _factor(centred: _Centred, rho: float) -> _Inverse:
    """The inverse for one ridge by Cholesky factors, c³ flops."""
    L, condition = cholesky(centred.gram, rho)
    if not len(L):
        return _Inverse(L, condition, lambda: centred.rows)
    P = invert_lower(L).T
    return _Inverse(P, condition, lambda: np.ascontiguousarray(product(centred.rows, P)))


class LowRankResponse(Response):
    r"""M and R of K = V Vᵀ: :math:`2M = GG^\top` with c columns, one more for an intercept.

    G are the centred features times P, where :math:`PP^\top` is the inverse of the c×c system,
    and the constant :math:`1/\sqrt{\sum s^2}`. ``scale`` is 1: R stays finite at ridge 0
    (ordinary least squares).
    """

    def __init__(
        self,
        centred: _Centred,
        quadratic: Quadratic,
        inverse: _Inverse | None,
        rho: float,
        coef: Array | None = None,
        condition: float = 1.0,
    ) -> None:
        """Without an inverse, the coefficients and the condition number are known already."""
        self.rho = rho
        self._coef = coef
        self.condition = condition if inverse is None else inverse.condition
        self._centred = centred
        self._quadratic = quadratic
        if inverse is not None:
            self._inverse = inverse
        weight = float(quadratic.s @ quadratic.s)
        self._mean = 1.0 / weight if quadratic.intercept and weight > 0.0 else 0.0

    @cached_property
    def _inverse(self) -> _Inverse:
        """The inverse, factorised when something else than the solution is asked for."""
        return _factor(self._centred, self.rho)

    @property
    def scale(self) -> float:
        """One."""
        return 1.0

    @cached_property
    def G(self) -> Array:
        """See above, (n, c) or (n, c + 1)."""
        rotated = self._inverse.rotate()
        if self._mean == 0.0:
            return rotated
        return np.column_stack([rotated, np.full(len(rotated), np.sqrt(self._mean))])

    def _hat(self, rows: Index | slice, B: Array) -> Array:
        """2 M_{rows,:} B."""
        return product(self.G[rows], product(self.G.T, B))

    def solution(self) -> Solution:
        """See base class; ``coef`` belong to the columns of V."""
        quadratic, coef = self._quadratic, self._coef
        if coef is None:
            coef = self._inverse.solve(self._centred, self.rho)
        total = quadratic.s**2 @ quadratic.z - 0.5 * quadratic.pull
        return Solution(coef, self._mean * total - self._centred.centre @ coef)

    def moved(self, rows: Index, dz: Array) -> Solution:
        """See base class; 2 n c flops for a partition, and 4 c² a set."""
        B, P = self._quadratic.s[rows] ** 2 * dz, self._inverse.P
        turned = self.G[:, : P.shape[1]]
        force = np.stack([B_S @ turned[S] for S, B_S in zip(rows, B, strict=True)], axis=1)
        total = B.sum(axis=1)
        coef = P @ force
        return Solution(coef, self._mean * total - self._centred.centre @ coef)

    def reduced(self) -> Array:
        """See base class."""
        s, z = self._quadratic.s[:, None], self._quadratic.z
        return s * (z - self._hat(slice(None), s**2 * z))

    def residual_matmat(self, B: Array) -> Array:
        """See base class; 4 n c flops a column."""
        s = self._quadratic.s[:, None]
        return np.where(s > 0.0, B, 0.0) - s * self._hat(slice(None), s * B)

    def residual_blocks(self, rows: Index) -> Array:
        """See base class; c m² flops each."""
        if (
            rows.shape[1] == 1
        ):  # thousands of products of two vectors, which matmul takes one by one
            s, G = self._quadratic.s[rows], self.G[rows[:, 0]]
            alone: Array = 1.0 - s**2 * np.einsum("ij,ij->i", G, G)[:, None]
            return alone[:, :, None]
        Q = self.G[rows] * self._quadratic.s[rows][:, :, None]
        blocks: Array = -(Q @ Q.transpose(0, 2, 1))
        steps = np.arange(rows.shape[1])
        blocks[:, steps, steps] += 1.0
        return blocks

    def residual_diagonal(self) -> Array:
        """See base class."""
        return 1.0 - 2.0 * self._quadratic.s**2 * self.diagonal()

    def solve_residual_blocks(self, rows: Index, B: Array) -> Array:
        """See base class; sets larger than the rank cost m c² + c³ flops, not m³."""
        if rows.shape[1] <= self.G.shape[1]:
            return super().solve_residual_blocks(rows, B)
        s = self._quadratic.s[:, None]
        pairs = zip(rows, B, strict=True)
        return np.stack([_deflate(self.G[S] * s[S], B_S) for S, B_S in pairs])

    def factored_residual_blocks(self, rows: Index) -> FactoredStack:
        """See base class; likewise, and 8 m c bytes a set."""
        if rows.shape[1] <= self.G.shape[1]:
            return super().factored_residual_blocks(rows)
        Q = self.G[rows]
        Q *= self._quadratic.s[rows][:, :, None]
        return DeflatedStack(Q)

    def radius(self, rows: Index) -> Array:
        """See base class; likewise."""
        if rows.shape[1] <= self.G.shape[1]:
            return super().radius(rows)
        s = self._quadratic.s[:, None]
        inner = np.stack([gram(self.G[S] * s[S]) for S in rows])
        return largest_eigenvalues(inner)

    def removal_forces(self, rows: Index, g: Array) -> Array:
        """See base class; likewise."""
        if len(rows) <= self.G.shape[1]:
            return super().removal_forces(rows, g)
        s, G = self._quadratic.s[rows, None], self.G[rows]
        # (I − D M)⁻¹ = I + s (I − Q Qᵀ)⁻¹ Q Gᵀ with Q = s G.
        pushed = s * G @ (G.T @ g[rows, None])
        return g[rows] + (s * _deflate(s * G, pushed))[:, 0]

    def held_out_values(self, rows: Index, v: Array, model: DualModel) -> Array:
        """See base class."""
        G = self.G[rows]
        return model.u[rows] + 0.5 * (G @ (G.T @ v))

    @property
    def curvature(self) -> Array:
        """See base class."""
        return 2.0 * self._quadratic.s**2

    def matmat(self, B: Array) -> Array:
        """See base class."""
        return 0.5 * self._hat(slice(None), B)

    def block(self, rows: Index, columns: Index) -> Array:
        """See base class."""
        return 0.5 * product(self.G[rows], self.G[columns].T)

    def diagonal(self) -> Array:
        """See base class; 2 n c flops."""
        diagonal: Array = 0.5 * np.einsum("ij,ij->i", self.G, self.G)
        return diagonal


class DualLowRankResponse(LowRankResponse):
    """The same with dual coefficients for a solution, one a row: a = s² (z − u) / ρ."""

    def solution(self) -> Solution:
        """See base class."""
        if self.rho <= 0.0:
            raise refuse(0.0, self.rho)
        primal, quadratic = super().solution(), self._quadratic
        u = product(self._centred.V, primal.coef) + primal.intercept
        a = (quadratic.s**2)[:, None] * (quadratic.z - u) / self.rho
        return Solution(a, primal.intercept)

    def moved(self, rows: Index, dz: Array) -> Solution:
        """See base class: not for dual coefficients, which predict by another kernel."""
        return Response.moved(self, rows, dz)


def _deflate(Q: Array, B: Array) -> Array:
    """(I − Q Qᵀ)⁻¹ B for a tall Q, through the c×c matrix I − QᵀQ; NaN if it is not definite."""
    inner = np.eye(Q.shape[1]) - gram(Q)
    solved = solve_stack(inner[None], (Q.T @ B)[None])[0]
    deflated: Array = B + Q @ solved
    return deflated

"""Sums over rows of features: all that ridge regression needs to know of them, fold by fold.

Rows enter through their weight, their features v and their targets z only as sums of products, so
that every fold's model follows from the sums over the sets that folds hold out, and rows may come
from anywhere, batch by batch. Sums are kept about the means of their own rows: no set loses digits
because others are far from it, and it does not matter how rows are cut into batches.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add

import numpy as np
from scipy.linalg import blas

from everyfold._typing import Array, Matrix
from everyfold.io.blocks import NEVER, TOTAL, Batch
from everyfold.linalg.blas import add_gram, product
from everyfold.linalg.symmetric import (
    NotPositiveDefiniteError,
    cholesky,
    condition_at,
    mirror,
    solve_cholesky,
    spectrum,
)
from everyfold.linalg.tridiagonal import ridge_solutions
from everyfold.operators.features import FeatureMap
from everyfold.operators.response import RidgeModels

# Differences below this share of the terms have lost their digits by cancellation.
DISTINCT = 1e-5

# Up to this many ridges a Cholesky factor each is cheaper than one tridiagonal reduction.
FEW_RIDGES = 4

# The condition number of a Gram matrix from which on ridges are solved again, more safely: their
# values would be off by 1e-8 and more. Columns take five times as long as their Gram matrix.
ILL = 1e8

# Targets that differ by less than this share of their mean are constant up to rounding.
NEGLIGIBLE = 1e-11


@dataclass
class Sums:
    """Sums over some rows of their weights w and of products of features v and targets z.

    Attributes
    ----------
    origin, target_origin : arrays of shape (c,) and (q,)
        What was subtracted from v and z: their weighted means, or 0 where no intercept is fitted.
    gram : array of shape (c, c)
        Of w v vᵀ, in the lower triangle.
    cross : array of shape (c, q)
        Of w v zᵀ.
    squares : array of shape (q,)
        Of w z².
    middle, spread : arrays of shape (q,)
        The weighted means of the targets, and the sums of squares around them.
    is_centred : bool
    rows, count : int
        The number of rows, and of those with positive weight.
    weight : float
    """

    origin: Array
    target_origin: Array
    gram: Array
    cross: Array
    squares: Array
    middle: Array
    spread: Array
    is_centred: bool
    rows: int = 0
    count: int = 0
    weight: float = 0.0

    @classmethod
    def empty(cls, c: int, q: int, *, is_centred: bool) -> Sums:
        """No rows yet."""
        gram, cross = np.zeros((c, c), order="F"), np.zeros((c, q), order="F")
        none, squares, spread = np.zeros(q), np.zeros(q), np.zeros(q)
        return cls(np.zeros(c), none, gram, cross, squares, none, spread, is_centred)

    def add(self, V: Array, w: Array | None, z: Array) -> None:
        """Add rows, c² flops each; V, in C order, is written to."""
        weight = float(len(V) if w is None else w.sum())
        self.rows += len(V)
        if weight == 0.0:
            return
        self.count += len(V) if w is None else int(np.count_nonzero(w))
        middle = _mean(z, w, weight)
        origin, target_origin = self.origin, self.target_origin
        z_middle = z - middle
        if self.is_centred:
            origin, target_origin, z = _mean(V, w, weight), middle, z_middle
            V -= origin
        if w is not None:
            root = np.sqrt(w)[:, None]
            V *= root
            z, z_middle = z * root, z_middle * root
        if V.size:
            self.gram = add_gram(V, self.gram)
            self.cross += V.T @ z
        self.squares += np.einsum("ij,ij->j", z, z)
        self.spread += np.einsum("ij,ij->j", z_middle, z_middle)
        self._move(weight, origin, target_origin, middle)

    def _move(self, weight: float, origin: Array, target_origin: Array, middle: Array) -> None:
        """Move sums whose parts are about two origins to the mean of both; 2 c² flops.

        The second origin is that of the last ``weight``, a negative one for rows taken out.
        """
        whole = self.weight + weight
        if whole == 0.0:
            self.weight = 0.0
            return
        share = weight / whole
        factor = self.weight * share
        d, e, m = origin - self.origin, target_origin - self.target_origin, middle - self.middle
        if factor and d.any():
            self.gram = blas.dsyr(factor, d, lower=1, a=self.gram, overwrite_a=1)
        self.cross += factor * np.outer(d, e)
        self.squares += factor * e * e
        self.spread += factor * m * m
        self.origin = self.origin + share * d
        self.target_origin = self.target_origin + share * e
        self.middle = self.middle + share * m
        self.weight = whole

    def _with(self, other: Sums, sign: float) -> Sums:
        parts = ("gram", "cross", "squares", "spread")
        found = replace(self, **{name: getattr(self, name).copy(order="F") for name in parts})
        found.rows += int(sign) * other.rows
        found.count += int(sign) * other.count
        if other.weight == 0.0:
            return found
        for name in parts:
            mine = getattr(found, name)
            mine += sign * getattr(other, name)
        found._move(sign * other.weight, other.origin, other.target_origin, other.middle)
        return found

    def __add__(self, other: Sums) -> Sums:
        return self._with(other, 1.0)

    def __sub__(self, other: Sums) -> Sums:
        return self._with(other, -1.0)

    def mapped(self, T: Array) -> Sums:
        """The sums of the features v T; what c×c costs, whatever the number of rows."""
        gram = product(T.T, product(self._full_gram(), T))
        return replace(self, origin=self.origin @ T, gram=gram, cross=T.T @ self.cross)

    def _full_gram(self) -> Array:
        return mirror(self.gram.copy(order="F"))

    def solve(self, rhos: Sequence[float]) -> RidgeModels:
        """Ridge regression on these rows for all ridges; 4/3 c³ flops and 6 c² more a ridge."""
        coef, condition = np.empty((len(rhos), *self.cross.shape)), np.ones(len(rhos))
        if len(self.gram):  # else a kernel of zeros
            solve = _by_factors if len(rhos) <= FEW_RIDGES else _by_reduction
            coef, condition = solve(self._full_gram(), self.cross, rhos)
        return RidgeModels(coef, self.target_origin - self.origin @ coef, condition)

    def residual(self, models: RidgeModels) -> Array:
        """The sums of squared residuals of models on these rows, (ridges, q)."""
        coef = models.coef
        flat = models.flat
        fitted = np.einsum("cj,cj->j", flat, product(self._full_gram(), flat))
        explained = np.einsum("kcq,cq->kq", coef, self.cross)
        within = self.squares - 2.0 * explained + fitted.reshape(explained.shape)
        off = self.target_origin - self.origin @ coef - models.intercept
        residual: Array = within + self.weight * off * off
        return residual

    @property
    def known_spread(self) -> Array:
        """The spread, NaN where it is rounding."""
        rounding = self.weight * (NEGLIGIBLE * self.middle) ** 2
        return np.where(self.spread > rounding, self.spread, np.nan)


def _mean(V: Array, w: Array | None, weight: float) -> Array:
    return (V.sum(axis=0) if w is None else w @ V) / weight


def _by_reduction(A: Array, rhs: Array, rhos: Sequence[float]) -> tuple[Array, Array]:
    """All ridges from one tridiagonal form, but for those that this leaves too few digits.

    A factor does not mind columns of very different size.
    """
    try:
        coef, condition = ridge_solutions(A, rhos, rhs)
    except NotPositiveDefiniteError:  # one of them, or all
        return _by_factors(A, rhs, rhos)
    ill = np.flatnonzero(condition > ILL).tolist()
    if ill:
        coef[ill], condition[ill] = _by_factors(A, rhs, [rhos[k] for k in ill])
    return coef, condition


def _by_factors(A: Array, rhs: Array, rhos: Sequence[float]) -> tuple[Array, Array]:
    """A Cholesky factor for each ridge; the spectrum where rounding made one indefinite."""
    coef, condition = np.empty((len(rhos), *rhs.shape)), np.empty(len(rhos))
    for k, rho in enumerate(rhos):
        try:
            L, condition[k] = cholesky(A, rho)
        except NotPositiveDefiniteError:
            coef[k], condition[k] = _by_spectrum(A, rhs, rho)
        else:
            coef[k] = solve_cholesky(L, rhs)
    return coef, condition


def _by_spectrum(A: Array, rhs: Array, rho: float) -> tuple[Array, float]:
    values, U = spectrum(A)
    values = np.maximum(values, 0.0)
    condition = condition_at(values, rho)
    solved: Array = U @ ((U.T @ rhs) / (values + rho)[:, None])
    return solved, condition


# -- folds -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """What is decided before the first row: by the sample that a map comes from, and the model.

    Attributes
    ----------
    is_raw : bool
        Whether the raw columns of the map are summed and mixed afterwards, at c×c size, which
        saves two thirds of the flops.
    is_centred : bool
        Whether an intercept is fitted.
    """

    is_raw: bool
    is_centred: bool

    @classmethod
    def of(cls, features: FeatureMap, rho: float, n: int, *, intercept: bool) -> Start:
        """For n rows and this ridge, the smallest there is."""
        return cls(features.keeps_digits(rho / max(1, n)), intercept)


@dataclass(frozen=True)
class FoldSums:
    """The sums over every set that is held out, and over the other rows.

    ``+`` puts those of different rows together, so that parts of the rows may be summed anywhere.

    Attributes
    ----------
    start : Start
    T : array or None
        What mixes the summed columns into features.
    parts : dict
        Sums by the number of the set; ``NEVER`` has the rows that are in none, ``TOTAL`` all rows
        where sets overlap.
    """

    start: Start
    T: Array | None
    parts: dict[int, Sums] = field(default_factory=dict)

    def add(self, V: Array, batch: Batch) -> None:
        """Add the rows of a batch, whose columns are V, which is written to."""
        for number, rows in batch.sets:
            z, w = batch.z[rows], None if batch.w is None else batch.w[rows]
            if number not in self.parts:
                empty = Sums.empty(V.shape[1], z.shape[1], is_centred=self.start.is_centred)
                self.parts[number] = empty
            self.parts[number].add(V[rows], w, z)

    def __add__(self, other: FoldSums) -> FoldSums:
        parts = dict(self.parts)
        for number, sums in other.parts.items():
            parts[number] = parts[number] + sums if number in parts else sums
        return replace(self, parts=parts)

    @property
    def folds(self) -> list[int]:
        """The numbers of the sets that are held out, ascending."""
        return sorted(number for number in self.parts if number >= 0)

    @property
    def total(self) -> Sums:
        """The sums over all rows."""
        if TOTAL in self.parts:
            return self._mixed(self.parts[TOTAL])
        return self._mixed(reduce(add, self.parts.values()))

    def _mixed(self, sums: Sums) -> Sums:
        return sums if self.T is None else sums.mapped(self.T)

    def rests(self) -> Iterator[tuple[int, Sums]]:
        """Every fold with the sums over all rows but its own.

        The sets that stay are added up, t log t additions for t folds, so that nothing is lost
        where a fold weighs far more than what it leaves. Only sets that overlap are subtracted.
        """
        folds = self.folds
        if TOTAL in self.parts:
            found: Iterator[tuple[int, Sums]] = (
                (k, self.parts[TOTAL] - self.parts[k]) for k in folds
            )
        else:
            found = _without_each(folds, self.parts, self.parts.get(NEVER))
        for k, rest in found:
            yield k, self._mixed(rest)

    def errors(self, models: dict[int, RidgeModels]) -> FoldErrors | None:
        """The errors of every fold's models on its own rows; None if they lost their digits."""
        parts = [self.parts[k] for k in models]
        squared = np.stack(
            [p.residual(m.of_raw(self.T)) for p, m in zip(parts, models.values(), strict=True)]
        )
        if (squared < DISTINCT * np.stack([part.squares for part in parts])[:, None]).any():
            return None
        spread = np.stack([part.known_spread for part in parts])
        return FoldErrors(squared, spread, np.array([part.weight for part in parts]))


@dataclass(frozen=True)
class FoldErrors:
    """The errors of folds, as sums give them.

    Attributes
    ----------
    squared : array of shape (t, ridges, q)
        Sums of squared errors.
    spread : array of shape (t, q)
        Sums of squares of the targets around their mean; NaN where that is rounding.
    weight : array of shape (t,)
    """

    squared: Array
    spread: Array
    weight: Array

    @classmethod
    def joined(cls, parts: Sequence[FoldErrors]) -> FoldErrors:
        """Those of different folds, one after the other."""
        names = ("squared", "spread", "weight")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    @property
    def is_known(self) -> bool:
        """Whether they are enough for every fold's mean squared error and R²."""
        return bool(self.weight.all()) and not np.isnan(self.spread).any()

    def of_ridge(self, k: int) -> FoldErrors:
        """Those of one ridge alone."""
        return replace(self, squared=self.squared[:, k : k + 1])


def _without_each(
    folds: list[int], parts: dict[int, Sums], outside: Sums | None
) -> Iterator[tuple[int, Sums]]:
    """Every one of some folds, and the sums over the other ones and what is outside of all."""
    if len(folds) == 1:
        if outside is not None:
            yield folds[0], outside
        return
    half = len(folds) // 2
    for own, others in ((folds[:half], folds[half:]), (folds[half:], folds[:half])):
        more = reduce(add, (parts[k] for k in others))
        yield from _without_each(own, parts, more if outside is None else outside + more)


def accumulate(
    batches: Iterable[Batch],
    maps: Sequence[FeatureMap],
    starts: Sequence[Start],
    owners: Sequence[int | None] | None = None,
) -> list[FoldSums]:
    """The sums of every map over every set, from one pass over the rows.

    ``owners`` has the fold that a map is for, whose sums are those of its rows and of all others;
    None where it is for all folds.

    **Cost** the columns of each map, with one base matrix for those that share it, and n c² flops
    a map; memory for the columns and the base of one map at a time and 8 c² bytes a set and map.
    **Exact?** The result does not depend on how the rows are cut, up to rounding.
    """
    found = [
        FoldSums(start, features.T if start.is_raw else None)
        for features, start in zip(maps, starts, strict=True)
    ]
    alike: dict[Hashable, list[int]] = {}
    for i, features in enumerate(maps):
        key = features.base_key
        alike.setdefault(("alone", i) if key is None else key, []).append(i)
    owners = owners or [None] * len(maps)
    for batch in batches:
        for members in alike.values():
            for i, C in _columns(batch.X, maps, members):
                features, owner = maps[i], owners[i]
                if features.T is not None and found[i].T is None:
                    C = C @ features.T
                found[i].add(C, batch if owner is None else batch.seen_by(owner))
    return found


def _columns(
    X: Matrix, maps: Sequence[FeatureMap], members: Sequence[int]
) -> Iterator[tuple[int, Array]]:
    """The columns of the rows by maps with one base, one after the other."""
    if len(members) == 1:
        yield members[0], maps[members[0]].raw(X)
        return
    base = maps[members[0]].base(X)
    for i in members:
        yield i, maps[i].columns(base)

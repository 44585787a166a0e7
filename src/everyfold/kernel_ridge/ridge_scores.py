"""Held-out scores of all ridges and all targets of one kernel matrix, from one factorisation.

Held-out values are linear in the targets. With more targets than rows, those of the unit vectors
are computed once for each ridge, and the targets pass by in batches; a table of rows, targets and
ridges never exists. The maps of many ridges are combinations of those of a few, which alone are
multiplied with the targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from everyfold._typing import AnyArray, Array, Index, Matrix, Params, Scorer, Targets
from everyfold.crossval import Folds, OutOfFold
from everyfold.crossval.closed_form import ClosedFormCV
from everyfold.engine.planning.squared_loss import plan_exact
from everyfold.engine.scoring.fold_scorers import FoldScorer
from everyfold.engine.scoring.metrics import ScoredRows
from everyfold.estimators.targets import Numbers, Target
from everyfold.linalg.blas import product
from everyfold.linalg.columns import basis_of_rows
from everyfold.linalg.memory import SHARE_OF_MEMORY, available_memory, check_workers
from everyfold.linalg.symmetric import CHUNK, NotPositiveDefiniteError, is_trusted
from everyfold.operators.base import SupportsResponse
from everyfold.operators.lowrank import LowRank
from everyfold.operators.response import Solution
from everyfold.solvers import Problem


@dataclass(frozen=True)
class Judge:
    """How held-out values are scored; more is better.

    Attributes
    ----------
    target : Target
        What is true, in the user's own terms.
    data : tuple (X, y)
        As scorers get them.
    folds : Folds
    weights : array of shape (n,)
        Of the rows; errors count by them where there is no scorer.
    scorer : callable or None
        One of scikit-learn's; None is the negative mean squared error of the target's columns.
    params : dict
        What scorers get besides.
    is_pooled : bool
        Whether the values of all folds are scored together, as those of single rows have to be.
    per_target : bool
        Whether targets have scores of their own, whatever the scorer.
    """

    target: Target
    data: tuple[Matrix, Targets]
    folds: Folds
    weights: Array
    scorer: Scorer | None
    params: Params
    is_pooled: bool
    per_target: bool

    def __call__(self, values: Array) -> Array:
        """The score of each target, (q,); of all together, (1,), where these have none."""
        if self.scorer is None:
            rows = self._side.rows
            scores: Array = -(self.weights[rows] @ (self._side.y - values) ** 2) / len(rows)
            return scores
        found = self._known.by_column(values, self._side)
        if found is not None:
            return np.asarray(found.mean(axis=0))
        if self.per_target and self.target.classes is None and values.shape[1] > 1:
            parts = (slice(k, k + 1) for k in range(values.shape[1]))
            return np.concatenate([self.among(part)(values[:, part]) for part in parts])
        trains = {i: self.folds[i].train for i in self.target.incomplete(self.folds)}
        by_fold = self._known.score(values, self._side, {} if self.is_pooled else trains)
        return np.array([np.mean(by_fold)])

    def among(self, columns: slice | Index) -> Judge:
        """The same for some of the targets, which are numbers."""
        y = self.target.columns[:, columns]
        is_flat = y.shape[1] == 1
        target = Numbers(y, is_flat)
        return replace(self, target=target, data=(self.data[0], y[:, 0] if is_flat else y))

    @property
    def splits_targets(self) -> bool:
        """Whether targets can be scored a few at a time."""
        if self.target.classes is not None:
            return False
        if self.scorer is None or self.per_target:
            return True
        rows = self._side.y[:, :1], replace(self, per_target=True).among(slice(0, 1))
        return rows[1]._known.by_column(rows[0], rows[1]._side) is not None

    @cached_property
    def _side(self) -> ScoredRows:
        side = ScoredRows(self.target, self.folds.tests)
        return side.together if self.is_pooled else side

    @cached_property
    def _known(self) -> FoldScorer:
        return FoldScorer(self.scorer, self.target, self.data, self.params, "raise")


@dataclass(frozen=True)
class RidgeScores:
    """The scores of all ridges of a kernel.

    Attributes
    ----------
    ridges : array of shape (ridges,)
    scores : array of shape (ridges, targets) or (ridges, 1)
        NaN where a ridge is too small for the matrix to be factorised.
    is_exact : bool array of shape (ridges,)
        Whether all held-out values equal those of refits, up to rounding.
    values : array of shape (ridges, held-out rows, targets) or None
        The held-out values, if they were asked for.
    solutions : tuple of Solution or None, one for each ridge
        The fit to all rows, where the scores came from its factorisation alone.
    """

    ridges: Array
    scores: Array
    is_exact: NDArray[np.bool_]
    values: Array | None = None
    solutions: tuple[Solution | None, ...] = ()

    @classmethod
    def joined(cls, parts: Sequence[RidgeScores]) -> RidgeScores:
        """Those of some ridges and of others; their values are not kept."""
        ridges, scores, is_exact = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("ridges", "scores", "is_exact")
        )
        solutions = tuple(fit for part in parts for fit in part.solutions)
        return cls(ridges, scores, is_exact, solutions=solutions)


def score_ridges(
    problem: Problem,
    operator: SupportsResponse,
    ridges: Sequence[float],
    judge: Judge,
    *,
    keeps_values: bool = False,
) -> RidgeScores:
    """The scores of all ridges by exact held-out values.

    **Cost** one factorisation (of each fold, where that is cheaper), and 2 n² flops for each ridge
    and target. **Exact?** Yes: values equal those of refits of every fold.

    Examples
    --------
    >>> from everyfold.kernels import Linear
    >>> from everyfold.losses import Squared
    >>> from everyfold.operators import Dense
    >>> X, y = np.array([[0.0], [1.0], [2.0]]), np.array([[1.0], [3.0], [5.0]])
    >>> judge = Judge(
    ...     Numbers(y, True), (X, y), Folds.leave_one_out(3), np.ones(3), None, {}, True, False
    ... )
    >>> problem = Problem(y, np.ones(3), Squared(), intercept=True)
    >>> found = score_ridges(problem, Dense().bind(Linear(), X), [1e-3, 1.0], judge)
    >>> found.scores.round(3).ravel()
    array([-0.   , -2.667])
    """
    n, q = problem.y.shape
    is_wide = q > n and judge.splits_targets and not keeps_values
    base = _mean(problem)
    columns = np.eye(n) if is_wide else problem.y - base
    shared = replace(problem, y=columns)
    rhos = np.asarray(ridges, dtype=np.float64)
    scores: list[Array | None] = [None] * len(rhos)
    is_exact = np.zeros(len(rhos), dtype=bool)
    kept: list[Array | None] = [None] * len(rhos)
    maps: dict[int, Array] = {}
    fits: list[Solution | None] = [None] * len(rhos)
    for k, record, fit in _records(shared, operator, rhos, judge.folds):
        is_exact[k] = bool(record.is_exact.all())
        if not np.isfinite(record.values).all():
            continue
        if is_wide:
            maps[k] = record.values
            if len(maps) == _maps_at_a_time(record.values):
                _score_maps(maps, problem.y - base, base, judge, scores)
                maps = {}
            continue
        values = record.values + base
        scores[k] = judge(values)
        fits[k] = None if fit is None else Solution(fit.coef, fit.intercept + base)
        kept[k] = values if keeps_values else None
    if maps:
        _score_maps(maps, problem.y - base, base, judge, scores)
    width = max((len(found) for found in scores if found is not None), default=1)
    table = np.stack([np.full(width, np.nan) if own is None else own for own in scores])
    return RidgeScores(rhos, table, is_exact, _stacked(kept) if keeps_values else None, tuple(fits))


def _mean(problem: Problem) -> Array:
    """What an intercept takes off the targets, so that their level costs no digits; else 0."""
    if not problem.intercept:
        return np.zeros(problem.y.shape[1])
    return np.asarray(np.average(problem.y, axis=0, weights=problem.w))


# The size, relative to the largest, below which a part of the maps is left out, a tenth of what
# tests allow; and below which products in single precision are good enough for it.
_LEFT_OUT, _SINGLE = 1e-10, 5e-4

# The most folds whose own rows are left out of products: what a fold predicts does not depend on
# them, but more folds make the products small.
_FEW_FOLDS = 10


def _maps_at_a_time(values: Array) -> int:
    """How many ridges are scored together: their maps exist twice."""
    return max(1, int(SHARE_OF_MEMORY * available_memory()) // (2 * values.nbytes))


def _score_maps(
    maps: dict[int, Array], y: Array, base: Array, judge: Judge, scores: list[Array | None]
) -> None:
    """Score all targets by the maps from targets to held-out values of some ridges, by number.

    About 64 MB of held-out values exist at a time.
    """
    numbers, (rows, n) = list(maps), next(iter(maps.values())).shape
    stacked = np.stack([maps[k].ravel() for k in numbers])
    maps.clear()
    basis, sizes, combine = basis_of_rows(stacked, _LEFT_OUT)
    del stacked
    r, k = len(basis), int(np.count_nonzero(sizes > _SINGLE))
    blocks = [_FoldMaps.of(basis.reshape(r, rows, n), k, slice(0, rows), np.arange(n))]
    if len(judge.folds) <= _FEW_FOLDS:
        places = zip(judge.folds.bounds, judge.folds.bounds[1:], judge.folds, strict=False)
        cube = basis.reshape(r, rows, n)
        blocks = [_FoldMaps.of(cube, k, slice(i, j), fold.train) for i, j, fold in places]
    found: list[list[Array]] = [[] for _ in numbers]
    step = max(1, CHUNK // (rows * (len(numbers) + r)))
    for part in (slice(i, i + step) for i in range(0, y.shape[1], step)):
        own, some = judge.among(part), y[:, part]
        few = np.empty((r, rows, some.shape[1]))
        for block in blocks:
            few[:, block.slots] = block.times(some[block.train])
        values = (combine @ few.reshape(r, -1)).reshape(len(numbers), rows, -1)
        if base.any():
            values += base[part]
        for one, values_of_ridge in zip(found, values, strict=True):
            one.append(own(values_of_ridge))
    for number, parts in zip(numbers, found, strict=True):
        scores[number] = np.concatenate(parts)


@dataclass(frozen=True)
class _FoldMaps:
    """Maps from the targets of training rows to some held-out values, small ones in float32."""

    slots: slice
    train: Index
    large: Array
    small: AnyArray

    @classmethod
    def of(cls, basis: Array, k: int, slots: slice, train: Index) -> _FoldMaps:
        """Of a basis of maps (r, rows, n), the first k of which are large."""
        own = basis[:, slots][:, :, train] if len(train) < basis.shape[2] else basis[:, slots]
        small = own[k:].astype(np.float32)
        return cls(slots, train, np.ascontiguousarray(own[:k]), small)

    def times(self, y: Array) -> Array:
        """All maps times some targets, (r, rows, targets)."""
        # Products come in Fortran order: a transposed one has the values of a map side by side.
        (k, m, n), q = self.large.shape, y.shape[1]
        found = np.empty((k + len(self.small), m, q))
        found[:k] = product(y.T, self.large.reshape(-1, n).T).T.reshape(k, m, q)
        if len(self.small):
            unit = np.abs(y).max(axis=0) + np.finfo(np.float64).tiny
            rough = product((y / unit).astype(np.float32).T, self.small.reshape(-1, n).T)
            np.multiply(rough.T.reshape(-1, m, q), unit, out=found[k:])
        return found


def _stacked(kept: Sequence[Array | None]) -> Array:
    shape = next((values.shape for values in kept if values is not None), (0, 0))
    return np.stack([np.full(shape, np.nan) if values is None else values for values in kept])


Record = tuple[OutOfFold, Solution | None]


def _records(
    problem: Problem, operator: SupportsResponse, ridges: Array, folds: Folds
) -> Iterator[tuple[int, OutOfFold, Solution | None]]:
    """The held-out values of each ridge, by number; none for those that have no factorisation.

    From large ridges to small ones: once a ridge is too small, all that follow are.
    """
    order = np.argsort(-ridges, kind="stable")
    done = 0
    try:
        for k, record in zip(
            order, _evaluate(problem, operator, ridges[order], folds), strict=True
        ):
            yield int(k), *record
            done += 1
    except NotPositiveDefiniteError:
        yield from _one_by_one(problem, operator, ridges, order[done:], folds)


def _one_by_one(
    problem: Problem, operator: SupportsResponse, ridges: Array, order: Index, folds: Folds
) -> Iterator[tuple[int, OutOfFold, Solution | None]]:
    for k in order:
        try:
            record = next(_evaluate(problem, operator, ridges[k : k + 1], folds))
        except NotPositiveDefiniteError:
            return
        yield int(k), *record


def _evaluate(
    problem: Problem, operator: SupportsResponse, ridges: Array, folds: Folds
) -> Iterator[Record]:
    """The held-out values by the cheapest exact method; refused if they do not fit.

    And the fit to all rows, where it costs nothing more.
    """
    if isinstance(operator, LowRank) and folds.are_singles and (problem.w > 0.0).all():
        found = operator.leave_one_out(problem.quadratic, ridges.tolist())
        if found is not None:
            for residual, fit, condition in found:
                each = np.full(len(folds), condition)
                is_exact = np.full(len(folds), is_trusted(condition))
                none = np.full(len(folds), np.nan)
                yield OutOfFold(problem.y - residual, is_exact, none, each), fit
            return
    plan = plan_exact(problem, operator, len(ridges), folds)
    check_workers(plan.memory, 1, problem.n)
    method = plan.criterion
    if plan.method == "cholesky" and len(ridges) == 1 and isinstance(method, ClosedFormCV):
        response = operator.respond(problem.quadratic, float(ridges[0]), "cholesky")
        yield method.of_response(problem, operator, response, folds), response.solution()
        return
    for record in method.evaluate(problem, operator, ridges.tolist(), folds):
        yield record, None

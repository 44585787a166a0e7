"""Low rank for the whole grid, more where it matters, and the exact kernel for the last few.

A kernel matrix of rank r costs n r² instead of n³. Whether that is enough differs between kernels
and ridges, and is seen only afterwards, so that a search climbs: all candidates at a low rank,
those that are not certain and could still win at twice the rank, and so on. What is not certain
then is looked at on one split with its exact kernel. The best are evaluated on the full
matrix, which decides. Every candidate says how far it got.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from everyfold.criteria.refit import Refit
from everyfold.evaluate.bind import rows_of
from everyfold.evaluate.data import Candidate, Data
from everyfold.evaluate.rounds import History, Rounds
from everyfold.evaluate.standings import (
    CERTAIN,
    CONTENDERS,
    MOST_EXACT,
    MOST_LARGE,
    SHARE_OF_ALL,
    Climb,
    Standing,
)
from everyfold.evaluate.tiles import KernelPlan, Unit, cut, typical_rows
from everyfold.evaluate.views import (
    MOST_ROWS,
    Scale,
    look_at,
    looked_at,
    perfect_score,
    removals,
    ridge_of,
)
from everyfold.operators import Dense, Iterative, Nystrom, Structure
from everyfold.operators.memory import available_memory
from everyfold.types import Order

LADDER_ROWS = 2500
"""From this many rows on a factorisation of the full matrix for every kernel is too slow."""

COSTLY_ROWS, COSTLY_SECONDS = 1000, 4.0
"""From this many rows on it is too slow if all should take so many seconds, and the ladder less."""

FIRST_RANK = 128

LOOK_PRECISION = 0.003
"""By which share of the spread of the targets values may be off in a look; most are by far less."""

ITERATIVE_ROWS = 10_000
"""From this many rows on the full matrix is iterated with and not factorised."""

ITERATIVE_RANK = 1000


def climbs(
    data: Data,
    kernels: Sequence[KernelPlan],
    order: Order,
    seconds: float,
) -> bool:
    """Whether a search begins with low ranks: its kernels are costly, and nobody asked otherwise.

    ``seconds`` is what all full matrices should take, of all searches if it is one of several.
    Training scores and folds that do not just remove rows need the full matrix of every fold.
    """
    if order not in ("auto", "screen", np.inf) or data.n < min(COSTLY_ROWS, LADDER_ROWS):
        return False
    if any(kernel.outline.is_per_fold and not kernel.features for kernel in kernels):
        return False  # steps that fail, which their own evaluation reports
    if any(task.with_train or not removals(task).are_removable for task in data.tasks):
        return False
    candidates = list(data.candidates.values())
    if len(candidates) <= CONTENDERS or not all(_is_plain(c) for c in candidates):
        return False
    return data.n >= LADDER_ROWS or seconds > COSTLY_SECONDS


def _seconds(units: Sequence[Unit]) -> float:
    return sum(unit.seconds for unit in units)


def _is_plain(candidate: Candidate) -> bool:
    model = candidate.model
    if not model.loss.has_constant_curvature or model.operator != "auto" or model.warp is not None:
        return False
    if model.choice.depends_on_rows or model.choice.is_precomputed:
        return False
    if len(model.ridges) > 1 or model.chooses_ridge or model.ridges[0] <= 0.0:
        return False
    if any(step.params for step in candidate.parts.steps):
        return False  # metadata of all rows, which samples of them do not have
    return not model.choice.resolve_for_any().is_linear and model.class_weight != "balanced"


@dataclass(frozen=True)
class Step:
    """A kernel of the ladder: its candidates, its trace, and whether each fold has its own."""

    numbers: tuple[int, ...]
    trace: float
    is_per_fold: bool = False


StructureOf = Callable[[Step, Sequence[int]], Structure]
"""How the matrix of a kernel is represented for some of its candidates."""


@dataclass(frozen=True)
class Ladder(Rounds):
    """Low ranks first, the full kernel last.

    Attributes
    ----------
    kernels : tuple of Step
    rhos : dict
        The ridge of every candidate on all rows, by number.
    metric : str
        The score that decides.
    order : Order
    seed : int
        Of the landmarks.
    scale : Scale
        How scores are compared.
    most : int
        Candidates that are evaluated on the full matrix because of what they promise.
    first : sequence of Unit
    """

    kernels: tuple[Step, ...]
    rhos: dict[int, float]
    metric: str
    order: Order
    seed: int
    scale: Scale
    most: int
    first: Sequence[Unit] = field(default=(), repr=False)

    @classmethod
    def of(
        cls, data: Data, kernels: Sequence[KernelPlan], metric: str, order: Order, seed: int
    ) -> Ladder:
        """The ladder of a search."""
        steps = tuple(
            Step(
                tuple(c.number for c in kernel.candidates),
                _trace(data, kernel),
                kernel.outline.is_per_fold,
            )
            for kernel in kernels
        )
        rhos = {k: ridge_of(c, data.tasks[c.task]) for k, c in data.candidates.items()}
        _, test = look_at(removals(data.tasks[0]), seed)
        scale = Scale(perfect_score(data.tasks[0], metric), len(test))
        is_large = data.n >= LADDER_ROWS or len(rhos) < SHARE_OF_ALL * MOST_EXACT
        most = MOST_LARGE if is_large else MOST_EXACT
        ladder = cls(steps, rhos, metric, order, seed, scale, most)
        return replace(ladder, first=ladder._units(data, list(rhos), FIRST_RANK))

    @property
    def climbs(self) -> bool:
        """See base class."""
        return True

    def after(self, history: History, data: Data) -> Sequence[Unit]:
        """See base class."""
        climb = self._climb(history)
        if climb.has_full:
            return self._units(data, climb.contenders(), None)
        if not any(outcome.is_look for outcomes in history for outcome in outcomes):
            rank = FIRST_RANK * 2 ** len(history)
            # Where a look has all rows, it tells more than a higher rank, in less time.
            if data.n > MOST_ROWS and rank <= data.n // 4:
                standings = climb.uncertain()
                if standings:
                    return self._units(data, standings, rank)
            suspects = climb.suspects()
            if suspects:
                return self._look(data, suspects)
        return self._units(data, climb.contenders(), None)

    def expected(self, data: Data) -> Sequence[Unit]:
        """See base class: the first rank, a look, and the full matrix of a few candidates."""
        # The best are often ridges of one kernel.
        steps = sorted(self.kernels, key=lambda step: -len(step.numbers))
        full = [number for step in steps for number in step.numbers][: self.most // 2]
        look = self._look(data, list(self.rhos))
        return [*self.first, *look, *self._units(data, full, None)]

    def is_quicker(self, data: Data, full: Sequence[Unit]) -> bool:
        """Whether it should take less time than the full matrices of all candidates."""
        return data.n >= LADDER_ROWS or _seconds(self.expected(data)) < _seconds(full)

    def _standings(self) -> list[Standing]:
        """Every candidate at the start."""
        return [
            Standing(number, self.rhos[number], k, step.trace)
            for k, step in enumerate(self.kernels)
            for number in step.numbers
        ]

    def _climb(self, history: History) -> Climb:
        climb = Climb(self._standings(), self.metric, self.scale, self.most)
        return climb.replay(history)

    def statuses(self, history: History) -> dict[int, str]:
        """See base class."""
        climb = self._climb(history)
        return {number: climb.status(standing) for number, standing in climb.standings.items()}

    def _units(self, data: Data, numbers: Sequence[int], rank: int | None) -> list[Unit]:
        """Units of some candidates at a rank, None for the full matrix."""
        structure_of = partial(self._structure, data.n, rank)
        return cut(data, list(self._plans(data, numbers, structure_of)), self.order)

    def _look(self, data: Data, numbers: Sequence[int]) -> list[Unit]:
        """Units of some candidates on the split that all are looked at on."""
        seen = looked_at(data)
        # One split needs no kernel of all rows: that of its training rows is smaller.
        plans = [
            replace(plan, outline=replace(plan.outline, is_per_fold=True))
            for plan in self._plans(seen, numbers, lambda *_: Dense())
        ]
        units = cut(seen, plans, self.order)
        return [_quick(replace(unit, is_look=True), seen) for unit in units]

    def _plans(
        self, data: Data, numbers: Sequence[int], structure_of: StructureOf
    ) -> Iterator[KernelPlan]:
        chosen = set(numbers)
        for step in self.kernels:
            own = [number for number in step.numbers if number in chosen]
            if own:
                structure = structure_of(step, own)
                outline = structure.outline(data.n, data.n, is_per_fold=step.is_per_fold)
                # Refits have the full kernel, whichever rows landmarks are drawn from.
                outline = replace(outline, is_approximate=structure.is_approximate)
                candidates = tuple(data.candidates[number] for number in own)
                yield KernelPlan(candidates, structure, outline)

    def _structure(self, n: int, rank: int | None, step: Step, numbers: Sequence[int]) -> Structure:
        """The full matrix, or landmarks until the last of the candidates is certain."""
        if rank is None:
            return Dense() if step.is_per_fold else _full(n, self.seed)
        rho = min(self.rhos[number] for number in numbers)
        tol = CERTAIN * rho / step.trace if step.trace > 0.0 else 0.0
        return Nystrom(rank, tol=min(0.5, tol), random_state=self.seed)


def _quick(unit: Unit, data: Data) -> Unit:
    """The same look by reductions that end as soon as scores are known well enough."""
    if any(task.width > 1 for task in data.tasks):
        return unit  # several targets share the whole reduction, or a factorisation
    quick = Refit(route="tridiagonal", precision=LOOK_PRECISION)
    groups = tuple(
        tuple(replace(group, method=replace(group.method, criterion=quick)) for group in own)
        for own in unit.groups
    )
    return replace(unit, groups=groups)


def _trace(data: Data, kernel: KernelPlan) -> float:
    candidate = kernel.candidates[0]
    X = (typical_rows if kernel.outline.is_per_fold else rows_of)(data, candidate)
    return float(candidate.model.choice.resolve(X).diagonal(X).sum())


def _full(n: int, seed: int) -> Structure:
    """The full matrix: factorised while that is quick, else iterated with, held if it fits."""
    if n < ITERATIVE_ROWS:
        return Dense()
    is_held = 2 * 8 * n * n < available_memory()
    return Iterative(rank=ITERATIVE_RANK, is_held=is_held, random_state=seed)

"""Low rank for the whole grid, more where it matters, and the exact kernel for the last few.

A kernel matrix of rank r costs n r² instead of n³. Whether that is enough differs between kernels
and ridges, and is seen only afterwards, so that a search goes in stages: all candidates at a low
rank, those that are not certain and could still win at twice the rank, and so on. What is not
certain then is evaluated on one pilot split with its exact kernel. The best are evaluated on the
full matrix, which decides. Every candidate says how far it got.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from everyfold._typing import Order
from everyfold.crossval.refit import Refit
from everyfold.engine.adaptive.candidate_state import (
    CONTENDERS,
    MOST_EXACT,
    MOST_LARGE,
    SHARE_OF_ALL,
    CandidateState,
    SearchState,
    certified_residual,
)
from everyfold.engine.adaptive.pilot_splits import (
    Scale,
    number_of_pilots,
    on_pilot_split,
    perfect_score,
    pilot_split,
    pilots_are_folds,
    pilots_are_whole,
    removals,
    ridge_of,
)
from everyfold.engine.execution.kernel_builder import rows_of
from everyfold.engine.planning.plan import History, Strategy
from everyfold.engine.planning.units import KernelPlan, Unit, cut, typical_rows
from everyfold.engine.records import ESTIMATED, Candidate, Data, Outcome, mean_score, with_fields
from everyfold.engine.scoring.fold_scorers import moved, names_of
from everyfold.linalg.tridiagonal import SINGLE
from everyfold.operators import Dense, Iterative, Nystrom, Structure

# With this many rows or more, factorising the full matrix of every kernel is too slow.
LOW_RANK_FIRST_ROWS = 2500

# With COSTLY_ROWS rows or more it is too slow if it should take COSTLY_SECONDS in all, and stages
# should take less.
COSTLY_ROWS, COSTLY_SECONDS = 1000, 1.5

# The rank of the first stage: a higher one is wasted on candidates that are far from winning, a
# lower one says too little of most.
FIRST_RANK = 128

# The largest error of a value of a pilot split, as a share of the spread of the targets; most
# errors are far smaller.
PILOT_PRECISION = 0.003

# The time of a pilot split in single and in double precision, as shares of an exact reduction.
SHARE_OF_SINGLE, SHARE_OF_DOUBLE = 0.25, 0.7

# With this many rows or more, the full matrix is used by iterations and not factorised.
ITERATIVE_ROWS = 10_000

# The rank of the preconditioner there: a higher one saves iterations and costs more to make.
ITERATIVE_RANK = 1000

# With fewer rows, too, where what the last rank left of the diagonal is on average at most EASY
# times the ridge, and there are so many rows for each fold and target. Abalone (3132 rows, 5 folds,
# 6 x 6 candidates): 4 to 23 iterations a candidate, 0.2 s instead of 0.7 s; with rank 500 fewer,
# but 0.3 s.
EASY, ROWS_A_COLUMN, EASY_RANK = 1.0, 150, 256


def is_worth_it(
    data: Data,
    kernels: Sequence[KernelPlan],
    order: Order,
    seconds: float,
) -> bool:
    """Whether a search begins with low ranks: its kernels are costly, and nobody asked otherwise.

    ``seconds`` is what all full matrices should take, of all searches if it is one of several.
    Training scores and folds that do not just remove rows need the full matrix of every fold.
    """
    if order not in ("auto", "screen", np.inf):
        return False
    if any(kernel.outline.is_per_fold and not kernel.features for kernel in kernels):
        return False  # steps that fail, which their own evaluation reports
    if any(kernel.structure.is_approximate for kernel in kernels):
        return False  # the full matrix does not fit in memory
    if any(task.with_train or not removals(task).are_removable for task in data.tasks):
        return False
    candidates = list(data.candidates.values())
    if len(candidates) <= CONTENDERS or not all(_is_plain(c) for c in candidates):
        return False
    return data.n >= LOW_RANK_FIRST_ROWS or seconds > COSTLY_SECONDS


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
class KernelStages:
    """A kernel of the search: its candidates, its trace, and whether each fold has its own."""

    numbers: tuple[int, ...]
    trace: float
    is_per_fold: bool = False


# How the matrix of a kernel is represented for some of its candidates.
StructureOf = Callable[[KernelStages, Sequence[int]], Structure]


@dataclass(frozen=True)
class LowRankFirst(Strategy):
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
        Candidates that are evaluated on the full matrix because of their upper limits.
    first : sequence of Unit
    """

    kernels: tuple[KernelStages, ...]
    rhos: dict[int, float]
    metric: str
    order: Order
    seed: int
    scale: Scale
    most: int
    first: Sequence[Unit] = field(default=(), repr=False)

    begins_at_low_rank = True

    @classmethod
    def of(
        cls, data: Data, kernels: Sequence[KernelPlan], metric: str, order: Order, seed: int
    ) -> LowRankFirst:
        """The strategy for a search."""
        steps = tuple(
            KernelStages(
                tuple(c.number for c in kernel.candidates),
                _trace(data, kernel),
                kernel.outline.is_per_fold,
            )
            for kernel in kernels
        )
        rhos = {k: ridge_of(c, data.tasks[c.task]) for k, c in data.candidates.items()}
        folds = removals(data.tasks[0])
        rows = len(pilot_split(folds, seed)[1])
        all_pilots = len(folds) if pilots_are_folds(folds) else 0
        scale = Scale(perfect_score(data.tasks[0], metric), rows, all_pilots)
        is_large = data.n >= LOW_RANK_FIRST_ROWS or len(rhos) < SHARE_OF_ALL * MOST_EXACT
        most = MOST_LARGE if is_large else MOST_EXACT
        blank = cls(steps, rhos, metric, order, seed, scale, most)
        return replace(blank, first=blank._units(data, list(rhos), FIRST_RANK))

    def after(self, history: History, data: Data) -> Sequence[Unit]:
        """See base class."""
        state = self._state(history).predict()
        pilots = max((o.pilot for outcomes in history for o in outcomes), default=0)
        if not (pilots or state.has_full):
            rank = FIRST_RANK * 2 ** len(history)
            # Where a pilot split has all rows, it says more than a higher rank, in less time.
            if rank <= data.n // 4 and not pilots_are_whole(removals(data.tasks[0])):
                states = state.uncertain()
                if states:
                    return self._units(data, states, rank)
            uncertified = state.uncertified()
            if uncertified:
                return self._pilot(data, uncertified, 1)
        next_pilots, turn = state.next_pilots(number_of_pilots(removals(data.tasks[0])))
        if next_pilots:
            return self._pilot(data, next_pilots, turn)
        return self._units(data, state.next_full(), None, state)

    def expected(self, data: Data) -> Sequence[Unit]:
        """See base class: the first rank, a pilot split, more for a few, full matrices of two."""
        turns = number_of_pilots(removals(data.tasks[0]))
        few = [step.numbers[0] for step in self.kernels][:CONTENDERS]
        pilots = self._pilot(data, list(self.rhos), 1)
        pilots += [unit for turn in range(2, turns + 1) for unit in self._pilot(data, few, turn)]
        return [*self.first, *pilots, *self._units(data, few[:2], None)]

    def is_quicker(self, data: Data, full: Sequence[Unit]) -> bool:
        """Whether it should take less time than the full matrices of all candidates."""
        return data.n >= LOW_RANK_FIRST_ROWS or _seconds(self.expected(data)) < _seconds(full)

    def _states(self) -> list[CandidateState]:
        """Every candidate at the start."""
        return [
            CandidateState(number, self.rhos[number], k, step.trace)
            for k, step in enumerate(self.kernels)
            for number in step.numbers
        ]

    def _state(self, history: History) -> SearchState:
        state = SearchState(self._states(), self.metric, self.scale, self.most)
        return state.replay(history)

    def status(self, outcome: Outcome) -> str:
        """See base class: "certified" is what the residual trace tells."""
        is_certified = outcome.residual_trace <= self._certified[outcome.number]
        return "certified" if outcome.is_of_another_model and is_certified else ESTIMATED

    @cached_property
    def _certified(self) -> dict[int, float]:
        """The residual traces at which candidates are certified."""
        return {
            number: certified_residual(self.rhos[number], step.trace)
            for step in self.kernels
            for number in step.numbers
        }

    def restated(self, history: History, data: Data) -> Sequence[Outcome]:
        """See base class: scores follow pilot splits where ranks left much out; statuses all."""
        latest = {o.number: o for outcomes in history for o in outcomes if not o.pilot}
        state, shifts = self._state(history), self._shifts(history, latest, data)
        found = []
        for number, outcome in latest.items():
            status = state.status(state.states[number])
            if number in shifts:
                scores = moved(outcome.scores, shifts[number])
                found.append(with_fields(outcome, scores=scores, means={}, status=status))
            elif status != self.status(outcome):
                found.append(with_fields(outcome, status=status))
        return found

    def _shifts(
        self, history: History, latest: Mapping[int, Outcome], data: Data
    ) -> dict[int, dict[str, float]]:
        """What pilot splits add to scores of ranks that left much out, by candidate and metric.

        None gets ahead of the best on the full matrix.
        """
        full = [mean_score(o, self.metric) for o in latest.values() if not o.is_of_another_model]
        shifts: dict[int, dict[str, float]] = {}
        for metric in names_of(next(iter(latest.values())).scores):
            scale = replace(self.scale, best=perfect_score(data.tasks[0], metric))
            state = SearchState(self._states(), metric, scale, self.most).replay(history).predict()
            cap = max(full, default=np.inf) if metric == self.metric else np.inf
            for number, shift in state.corrections(cap).items():
                shifts.setdefault(number, {})[metric] = shift
        return shifts

    def _units(
        self,
        data: Data,
        numbers: Sequence[int],
        rank: int | None,
        state: SearchState | None = None,
    ) -> list[Unit]:
        """Units of some candidates at a rank, None for the full matrix."""
        structure_of = partial(self._structure, data, rank, state)
        return cut(data, list(self._plans(data, numbers, structure_of)), self.order)

    def _pilot(self, data: Data, numbers: Sequence[int], turn: int) -> list[Unit]:
        """Units of some candidates on a split that they are compared on."""
        seen = on_pilot_split(data, turn)
        # One split needs no kernel of all rows: that of its training rows is smaller.
        plans = [
            replace(plan, outline=replace(plan.outline, is_per_fold=True))
            for plan in self._plans(seen, numbers, lambda *_: Dense())
        ]
        units = cut(seen, plans, self.order)
        return [self._quick(replace(unit, pilot=turn), seen) for unit in units]

    def _quick(self, unit: Unit, seen: Data) -> Unit:
        """The same pilot split by reductions that end as soon as scores are known well enough."""
        if any(task.width > 1 for task in seen.tasks):
            return unit  # several targets share the whole reduction, or a factorisation
        quick = Refit(route="tridiagonal", precision=PILOT_PRECISION)
        groups = tuple(
            tuple(replace(group, method=replace(group.method, criterion=quick)) for group in own)
            for own in unit.groups
        )
        least = [min(self.rhos[k] for group in own for k in group.numbers) for own in groups]
        is_single = [rho >= SINGLE * seen.n for rho in least]
        share = np.mean([SHARE_OF_SINGLE if single else SHARE_OF_DOUBLE for single in is_single])
        return replace(unit, groups=groups, seconds=float(share) * unit.seconds)

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

    def _structure(
        self,
        data: Data,
        rank: int | None,
        state: SearchState | None,
        step: KernelStages,
        numbers: Sequence[int],
    ) -> Structure:
        """The full matrix, or landmarks until the last of the candidates is certain."""
        if rank is None:
            most = self._preconditioner(data, state, step, numbers)
            return Iterative(rank=most, random_state=self.seed) if most else Dense()
        rho = min(self.rhos[number] for number in numbers)
        tol = certified_residual(rho, step.trace) / step.trace if step.trace > 0.0 else 0.0
        return Nystrom(rank, tol=tol, random_state=self.seed)

    def _preconditioner(
        self, data: Data, state: SearchState | None, step: KernelStages, numbers: Sequence[int]
    ) -> int:
        """The rank of what makes iterations with a full matrix few; 0 to factorise it.

        Before anything is known of candidates they are expected to be few.
        """
        if step.is_per_fold:
            return 0
        if data.n >= ITERATIVE_ROWS:
            return ITERATIVE_RANK
        columns = max(len(task.folds) * task.width for task in data.tasks)
        if columns * ROWS_A_COLUMN > data.n:
            return 0
        if state is None:
            return EASY_RANK
        limits = ((state.states[k].residual, EASY * self.rhos[k] * data.n) for k in numbers)
        return EASY_RANK if all(residual <= limit for residual, limit in limits) else 0


def _trace(data: Data, kernel: KernelPlan) -> float:
    candidate = kernel.candidates[0]
    X = (typical_rows if kernel.outline.is_per_fold else rows_of)(data, candidate)
    return float(candidate.model.choice.resolve(X).diagonal(X).sum())

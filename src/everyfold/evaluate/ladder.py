"""Low rank for the whole grid, more where it matters, and the exact kernel for the last few.

A kernel matrix of rank r costs n r² instead of n³. Whether that is enough differs between kernels
and ridges, and is seen only afterwards, so that a search climbs: all candidates at a low rank,
those that are not certain and could still win at twice the rank, and so on. Kernels that low rank
does not capture are looked at on a sample of rows instead. The best are evaluated on the full
matrix, which decides. Every candidate says how far it got.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from everyfold.evaluate.bind import rows_of
from everyfold.evaluate.data import Candidate, Data, Outcome
from everyfold.evaluate.rounds import History, Rounds, mean_score
from everyfold.evaluate.tiles import KernelPlan, Unit, cut, typical_rows
from everyfold.evaluate.views import Curve, perfect_score, removals, ridge_of, sample_size
from everyfold.operators import Dense, Iterative, Nystrom, Structure
from everyfold.operators.memory import available_memory
from everyfold.types import Array, Order

LADDER_ROWS = 2500
"""From this many rows on a factorisation of the full matrix for every kernel is too slow."""

COSTLY_ROWS, COSTLY_SECONDS = 1000, 5.0
"""From this many rows on it is too slow if all of them together should take so many seconds."""

FIRST_RANK = 128

CERTAIN = 0.03
"""A candidate is certified where the residual trace is at most this share of its ridge."""

CAPTURED = 0.01
"""A kernel is captured where the residual trace is at most this share of its trace."""

OUT_OF_REACH = 0.5
"""Where the residual trace is more than this share, the next rank will not capture it either."""

CONVERGED = 1e-3
"""A score has converged where twice the rank moves it by less than this share of their spread."""

PROMISE, SETBACK = 2.0, 1.0
"""A score may still rise by these multiples of what the last doubling of the rank gave or took."""

CONTENDERS = 3
"""How many candidates are evaluated on the full matrix at first."""

MOST_EXACT = 12

THE_SAME, ABOUT_AS_GOOD = 1.1, 1.5
"""Factors between the errors of two ridges of a kernel that are called so."""

ITERATIVE_ROWS = 10_000
"""From this many rows on the full matrix is iterated with and not factorised."""

ITERATIVE_RANK = 1000


def climbs(data: Data, kernels: Sequence[KernelPlan], order: Order) -> bool:
    """Whether a search begins with low ranks: its kernels are costly, and nobody asked otherwise.

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
    if data.n >= LADDER_ROWS:
        return True
    return sum(unit.seconds for unit in cut(data, kernels, order)) > COSTLY_SECONDS


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
    curve : Curve or None
        What scores on samples of the rows are continued by; None where no perfect score is known.
    first : sequence of Unit
    """

    kernels: tuple[Step, ...]
    rhos: dict[int, float]
    metric: str
    order: Order
    seed: int
    curve: Curve | None = None
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
        best = perfect_score(data.tasks[0], metric)
        curve = Curve(best, data.n) if np.isfinite(best) else None
        ladder = cls(steps, rhos, metric, order, seed, curve)
        return replace(ladder, first=ladder._units(data, list(rhos), FIRST_RANK))

    def after(self, history: History, data: Data) -> Sequence[Unit]:
        """See base class."""
        climb = _Climb.replay(self, history)
        views = [round_[0].sample for round_ in history if round_ and round_[0].sample]
        rank = FIRST_RANK * 2 ** len(history)
        if not climb.has_full and not views and rank <= data.n // 4:
            standings = climb.uncertain()
            if standings:
                return self._units(data, standings, rank)
        if not climb.has_full and self.curve is not None:
            units = self._look_again(climb, data, len(views))
            if units:
                return units
        return self._units(data, climb.contenders(), None)

    def expected(self, data: Data) -> Sequence[Unit]:
        """See base class: the first rank, twice that, and the full matrix of a few candidates."""
        numbers = [step.numbers[0] for step in self.kernels]
        full = (numbers * CONTENDERS)[:CONTENDERS]
        again = self._units(data, list(self.rhos), 2 * FIRST_RANK)
        return [*self.first, *again, *self._units(data, full, None)]

    def _look_again(self, climb: _Climb, data: Data, done: int) -> list[Unit]:
        """Kernels that low rank does not capture, on half a sample first, then on all of it."""
        size = sample_size(data.n)
        if done == 0:
            return self._units(data, climb.beside_known(climb.suspects()), None, (size, size // 2))
        if done == 1:
            return self._units(data, climb.beside_known(climb.hopeful()), None, (size,))
        return []

    def statuses(self, history: History) -> dict[int, str]:
        """See base class."""
        climb = _Climb.replay(self, history)
        return {number: climb.status(standing) for number, standing in climb.standings.items()}

    def _units(
        self, data: Data, numbers: Sequence[int], rank: int | None, sample: tuple[int, ...] = ()
    ) -> list[Unit]:
        """Units of some candidates at a rank, None for the full matrix; or on a sample of rows."""
        chosen = set(numbers)
        plans = []
        for step in self.kernels:
            own = [number for number in step.numbers if number in chosen]
            if own:
                structure = Dense() if sample else self._structure(data.n, step, own, rank)
                outline = structure.outline(data.n, data.n, is_per_fold=step.is_per_fold)
                # Refits have the full kernel, whichever rows landmarks are drawn from.
                outline = replace(outline, is_approximate=structure.is_approximate)
                candidates = tuple(data.candidates[number] for number in own)
                plans.append(KernelPlan(candidates, structure, outline))
        units = cut(data, plans, self.order)
        if not sample:
            return units
        # Samples are small, and may lack some folds: all that are left come in one unit.
        return [replace(u, sample=sample, folds=None) for u in units if u.folds in (None, (0,))]

    def _structure(self, n: int, step: Step, numbers: Sequence[int], rank: int | None) -> Structure:
        """The full matrix, or landmarks until the last of the candidates is certain."""
        if rank is None:
            return Dense() if step.is_per_fold else _full(n, self.seed)
        rho = min(self.rhos[number] for number in numbers)
        tol = CERTAIN * rho / step.trace if step.trace > 0.0 else 0.0
        return Nystrom(rank, tol=min(0.5, tol), random_state=self.seed)


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


@dataclass
class _Standing:
    """Where one candidate stands."""

    number: int
    rho: float
    kernel: int
    trace: float
    score: float = -np.inf
    gain: float = np.inf
    residual: float = np.inf
    is_full: bool = False
    is_exact: bool = False
    half: float = np.nan
    """The score on the smaller sample."""
    promise: float | None = None
    """What samples of rows promise, where low rank says nothing."""
    ceiling: float = np.inf
    """What they leave possible, where low rank has not settled."""

    @property
    def is_certified(self) -> bool:
        return not self.is_full and self.residual <= CERTAIN * self.rho

    @property
    def is_captured(self) -> bool:
        return self.is_full or self.is_certified or self.residual <= CAPTURED * self.trace

    @property
    def is_out_of_reach(self) -> bool:
        return not self.is_captured and self.residual > OUT_OF_REACH * self.trace

    @property
    def potential(self) -> float:
        if self.is_full or self.is_certified:
            return self.score
        if self.promise is not None:
            return self.promise
        rise = PROMISE * self.gain if self.gain >= 0.0 else -SETBACK * self.gain
        return max(self.score, min(self.score + rise, self.ceiling))


class _Climb:
    """The standings of all candidates."""

    def __init__(self, ladder: Ladder) -> None:
        self._curve, self._metric = ladder.curve, ladder.metric
        self._recent: set[int] = set()
        self._known_spread: float | None = None
        self.standings = {
            number: _Standing(number, ladder.rhos[number], k, step.trace)
            for k, step in enumerate(ladder.kernels)
            for number in step.numbers
        }

    @classmethod
    def replay(cls, ladder: Ladder, history: History) -> _Climb:
        """What all outcomes so far amount to."""
        climb = cls(ladder)
        for outcomes in history:
            for outcome in outcomes:
                if outcome.sample:
                    climb._read_sample(outcome)
                else:
                    climb._read(outcome)
            climb._recent = {outcome.number for outcome in outcomes}
            if outcomes and len(outcomes[0].sample) == 1:
                climb._calibrate()
            climb._weigh()
        return climb

    def _read(self, outcome: Outcome) -> None:
        self._known_spread = None
        standing = self.standings[outcome.number]
        score = mean_score(outcome, self._metric)
        is_first = not np.isfinite(standing.score)
        standing.gain = np.inf if is_first else score - standing.score
        standing.score = score
        standing.is_full = not outcome.is_of_another_model
        standing.residual = 0.0 if standing.is_full else outcome.residual_trace
        standing.is_exact = standing.is_full and bool(outcome.is_exact.all())

    def _read_sample(self, outcome: Outcome) -> None:
        assert self._curve is not None
        standing, score = self.standings[outcome.number], mean_score(outcome, self._metric)
        if not np.isfinite(score):
            return
        if len(outcome.sample) > 1:
            standing.half = score
            found = self._curve.bound(score, outcome.sample[-1])
        elif np.isfinite(standing.half):
            found = self._curve.promise(standing.half, score, outcome.sample[0])
        else:
            return
        if standing.is_captured:
            standing.ceiling = found
        else:
            standing.promise = found

    @property
    def has_full(self) -> bool:
        return any(standing.is_full for standing in self.standings.values())

    def status(self, standing: _Standing) -> str:
        if standing.is_exact:
            return "exact"
        if standing.is_certified:
            return "certified"
        has_settled = abs(standing.gain) <= CONVERGED * self._spread
        return "converged" if has_settled and standing.is_captured else "estimated"

    @property
    def _scores(self) -> Array:
        return np.array([standing.score for standing in self.standings.values()])

    @property
    def _spread(self) -> float:
        """From the median to the best score: a unit that suits any scorer."""
        if self._known_spread is None:
            scores = self._scores[np.isfinite(self._scores)]
            self._known_spread = float(scores.max() - np.median(scores)) if scores.size else 0.0
        return self._known_spread

    @property
    def _trusted(self) -> float:
        """The best score that says something."""
        scores = [s.score for s in self.standings.values() if s.is_captured]
        return max(scores, default=-np.inf)

    def uncertain(self) -> list[int]:
        """Those whose score is not certain and may still turn out to be the best."""
        floor = float(np.max(self._scores)) - CONVERGED * self._spread
        return [
            number
            for number, standing in self.standings.items()
            if self.status(standing) == "estimated"
            and not standing.is_out_of_reach
            and standing.potential >= floor
        ]

    def suspects(self) -> list[int]:
        """Those whose kernel no rank has captured, or whose scores may still rise to the best."""
        unsettled = set(self.uncertain())
        return [k for k, s in self.standings.items() if k in unsettled or not s.is_captured]

    def hopeful(self) -> list[int]:
        """Those of them that the smaller sample leaves a chance."""
        return [
            k
            for k in self.suspects()
            if np.isfinite(self.standings[k].half) and self.standings[k].potential >= self._trusted
        ]

    def beside_known(self, numbers: list[int]) -> list[int]:
        """The same and, to compare them with, the best candidate whose score is known."""
        known = [s for s in self.standings.values() if self._is_known(s)]
        if not numbers or not known:
            return numbers
        return [*numbers, max(known, key=lambda s: (s.score, -s.number)).number]

    def _is_known(self, standing: _Standing) -> bool:
        is_low = not standing.is_full and np.isfinite(standing.score)
        return is_low and self.status(standing) in ("certified", "converged")

    def _calibrate(self) -> None:
        """Correct what samples promise by what they promised for a candidate that is known.

        Chance makes all candidates on the same few rows look better or worse together.
        """
        sampled = [self.standings[number] for number in self._recent]
        known = [s for s in sampled if self._is_known(s) and np.isfinite(s.ceiling)]
        if not known or self._curve is None:
            return
        factor = max(1.0, max(self._curve.ratio(s.score, s.ceiling) for s in known))
        for standing in sampled:
            if standing.promise is not None:
                standing.promise = self._curve.better(standing.promise, factor)
            standing.ceiling = self._curve.better(standing.ceiling, factor)

    def contenders(self) -> list[int]:
        """The next to be evaluated on the full matrix: the best, until none can be much better.

        Whatever has the best score of all is evaluated in any case.
        """
        full = [standing for standing in self.standings.values() if standing.is_full]
        if not full:
            return self._first()
        recent = [standing for standing in full if standing.number in self._recent]
        alike = [other.number for standing in recent for other in self._alike(standing)]
        if alike:
            return alike
        order = sorted(self.standings.values(), key=lambda s: (-s.potential, s.number))
        known = max(standing.score for standing in full)
        is_settled = order[0].potential <= known + CONVERGED * self._spread
        if not is_settled and len(full) < MOST_EXACT:
            return [self._spokesman(order[0]).number]
        leader = max(self.standings.values(), key=lambda s: (s.score, -s.number))
        return self._beside(leader) if leader.is_full else [leader.number]

    def _beside(self, leader: _Standing) -> list[int]:
        """The next smaller and larger ridge, where only samples spoke for the leader's kernel."""
        if leader.promise is None:
            return []
        same = [s for s in self.standings.values() if s.kernel == leader.kernel]
        below = max((s for s in same if s.rho < leader.rho), key=lambda s: s.rho, default=leader)
        above = min((s for s in same if s.rho > leader.rho), key=lambda s: s.rho, default=leader)
        return [standing.number for standing in (below, above) if not standing.is_full]

    def _first(self) -> list[int]:
        """The most promising, and of kernels that only samples speak for one ridge each."""
        chosen: list[_Standing] = []
        for standing in sorted(self.standings.values(), key=lambda s: (-s.potential, s.number)):
            is_repeated = standing.promise is not None and any(
                other.kernel == standing.kernel for other in chosen
            )
            if np.isfinite(standing.score) and not is_repeated:
                chosen.append(standing)
        return [self._spokesman(standing).number for standing in chosen[:CONTENDERS]]

    def _spokesman(self, best: _Standing) -> _Standing:
        """Of the ridges of a kernel that promise the same, the largest.

        It is the least likely to disappoint: samples have fewer rows that are nearly alike.
        """
        if best.promise is None or self._curve is None:
            return best
        bar = self._curve.better(best.promise, THE_SAME)
        equals = [other for other in self._unknown(best) if other.potential >= bar]
        return max([best, *equals], key=lambda s: s.rho)

    def _unknown(self, standing: _Standing) -> list[_Standing]:
        """The other ridges of a kernel that only samples speak for."""
        return [
            other
            for other in self.standings.values()
            if other.kernel == standing.kernel
            and other is not standing
            and not other.is_full
            and other.promise is not None
        ]

    def _alike(self, standing: _Standing) -> list[_Standing]:
        """The other ridges of a kernel that one has confirmed, if they promise about as much."""
        if standing.promise is None or self._curve is None:
            return []
        if standing.score < self._curve.better(self._trusted, ABOUT_AS_GOOD):
            return []
        bar = self._curve.better(self._trusted, THE_SAME)
        return [other for other in self._unknown(standing) if other.potential >= bar]

    def _weigh(self) -> None:
        """Correct the promises of a kernel by what the full matrix has disappointed.

        What samples promise for the ridges of one kernel is mistaken together.
        """
        for standing in (self.standings[number] for number in self._recent):
            if not standing.is_full or standing.promise is None or self._curve is None:
                continue
            factor = max(1.0, self._curve.ratio(standing.score, standing.promise))
            for other in self._unknown(standing):
                other.promise = self._curve.better(other.potential, factor)

"""What is known of each candidate, and which of them are worth more work.

Three sources say something about a candidate's score: a low-rank kernel on all folds, the exact
kernel on one split (:mod:`everyfold.engine.adaptive.pilot_splits`), and the full kernel on all
folds, which is final. From the first two the final score is predicted, with an upper limit. A
candidate whose upper limit is below the best final score is left as it is; the others get further
pilot splits, or the full kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from everyfold._typing import Array
from everyfold.engine.adaptive.pilot_splits import Scale
from everyfold.engine.planning.plan import History
from everyfold.engine.records import ESTIMATED, Outcome, mean_score

# A low-rank score is certified if the residual trace is at most this share of the ridge.
#
# And of the trace of the kernel: a ridge beyond that makes all values so small that what the low
# rank leaves out may be most of them, which a score that does not depend on their size would show.
CERTAIN = 0.03

# A kernel is captured if the residual trace is at most CAPTURED · its trace.
#
# A score that fell as the rank grew still counts if that trace is at most INFORMATIVE · the ridge.
CAPTURED, INFORMATIVE = 0.01, 1000.0

# A low-rank score says less than a pilot split if the residual trace is above UNRELIABLE · ridge.
UNRELIABLE = 5.0

# A score has converged if doubling the rank moves it by less than CONVERGED · (best − median).
#
# Where the perfect score is known, it must also move by less than NEARLY · the error of the best,
# which is far smaller than the spread of all scores where fits are good.
CONVERGED, NEARLY = 1e-3, 5e-3

# A low-rank score may still rise by RISE times what the last doubling of the rank added to it, or
# by SETBACK times what it took from it.
RISE, SETBACK = 2.0, 1.0

# How many candidates are evaluated on the full matrix at a time; so many are evaluated at once.
CONTENDERS = 3

# Differences of scores below this share of their size are rounding.
_ROUNDING = 1e-9

# How many candidates are evaluated on the full matrix because of their upper limits.
#
# MOST_LARGE is for many rows, where each takes long, and for few candidates.
MOST_EXACT, MOST_LARGE = 12, 4

# There are few candidates if they are fewer than SHARE_OF_ALL · MOST_EXACT.
SHARE_OF_ALL = 10

# The nearest ridge of a neighbouring kernel counts as a neighbour within this factor.
NEAR = 10.0


def certified_residual(rho: float, trace: float) -> float:
    """The largest residual trace at which the low-rank score of a ridge is certified."""
    return CERTAIN * min(rho, trace)


@dataclass(frozen=True)
class PilotScore:
    """A candidate on a pilot split: its score, and its errors on parts of the test rows.

    Errors are None where the score is no sum over rows.
    """

    score: float
    errors: Array | None = None


@dataclass(slots=True)
class CandidateState:
    """What is known of one candidate.

    Attributes
    ----------
    number : int
    rho : float
        The ridge on all rows.
    kernel : int
        Which of the kernels it has.
    trace : float
        Of the kernel matrix.
    score : float
        The latest mean score on all folds.
    gain : float
        By how much the score rose when it was last evaluated at a higher rank.
    residual : float
        tr(K − K̃) at the last rank.
    is_full, is_exact : bool
        Whether the score is that of the full kernel matrix, and exact.
    pilots : dict
        By the number of the pilot split.
    predicted, upper : float, optional
        The score on all folds that pilot splits predict, and its upper limit.
    wide_upper : float, optional
        A more cautious upper limit, for neighbours of the best candidate.
    width : float
        The share of the trace that the first rank left out: it orders kernels from wide to narrow.
    """

    number: int
    rho: float
    kernel: int
    trace: float
    score: float = -np.inf
    gain: float = np.inf
    residual: float = np.inf
    is_full: bool = False
    is_exact: bool = False
    pilots: dict[int, PilotScore] = field(default_factory=dict)
    predicted: float | None = None
    upper: float | None = None
    wide_upper: float | None = None
    width: float = np.inf

    @property
    def pilot(self) -> float:
        """The mean score of all pilot splits; NaN without any."""
        scores = [pilot.score for pilot in self.pilots.values()]
        return sum(scores) / len(scores) if scores else math.nan

    @property
    def share(self) -> float:
        """tr(K − K̃) / tr(K) at the last rank."""
        return self.residual / self.trace if self.trace > 0.0 else 0.0

    @property
    def is_certified(self) -> bool:
        """Whether the low-rank score is as good as that of the full kernel for this ridge."""
        return not self.is_full and self.residual <= certified_residual(self.rho, self.trace)

    @property
    def is_captured(self) -> bool:
        """Whether nearly all of the kernel was kept, so that a score that stays has converged."""
        return self.is_full or self.is_certified or self.residual <= CAPTURED * self.trace

    @property
    def is_unreliable(self) -> bool:
        """Whether the score is of a low rank that leaves out far more than the ridge."""
        return not self.is_full and self.residual > UNRELIABLE * self.rho

    @property
    def upper_score(self) -> float:
        """The upper limit of the final score."""
        if self.is_full or self.is_certified:
            return self.score
        if self.upper is not None:
            return self.upper
        rise = RISE * self.gain if self.gain >= 0.0 else -SETBACK * self.gain
        return self.score + rise

    @property
    def likely_score(self) -> float:
        """The final score as predicted; its upper limit if there was no pilot split."""
        if self.is_full or self.is_certified or self.predicted is None:
            return self.upper_score
        return self.predicted

    def may_reach(self, score: float) -> bool:
        """Whether the final score may be so good, by pilot splits and low ranks.

        A score that fell as the rank grew excludes nothing if the residual trace is far above the
        ridge.
        """
        if self.is_full or self.is_certified or not np.isfinite(self.score):
            return False
        if self.wide_upper is not None and self.wide_upper < score:
            return False
        is_falling = self.gain < 0.0 and self.residual > INFORMATIVE * self.rho
        return not self.is_captured or is_falling or self.score + RISE * abs(self.gain) >= score


@dataclass(frozen=True)
class Pair:
    """Two candidates on the pilot splits that both had.

    Attributes
    ----------
    here, there : float
        Their mean scores.
    errors, others : array, optional
        Their errors on each part of the test rows.
    """

    here: float
    there: float
    errors: Array | None
    others: Array | None

    @property
    def likeness(self) -> float:
        """The slope of relative errors of the first over those of the second, clipped to [0, 1].

        1 if errors are not known.
        """
        if self.errors is None or self.others is None:
            return 1.0
        apart = self.others - self.others.mean()
        spread = float(apart @ apart) * self.errors.mean()
        if spread <= 0.0:
            return 1.0
        return float(np.clip(self.others.mean() * float(apart @ self.errors) / spread, 0.0, 1.0))


class SearchState:
    """What is known of all candidates, and what should be done next."""

    def __init__(
        self, states: Iterable[CandidateState], metric: str, scale: Scale, most: int = MOST_EXACT
    ) -> None:
        self._scale, self._metric, self._most = scale, metric, most
        self._known_margin: float | None = None
        self.states = {standing.number: standing for standing in states}

    def replay(self, history: History) -> SearchState:
        """Read all outcomes so far; :meth:`predict` then says what they mean for final scores."""
        for outcomes in history:
            for outcome in outcomes:
                if outcome.pilot:
                    pilot = PilotScore(mean_score(outcome, self._metric), outcome.errors)
                    self.states[outcome.number].pilots[outcome.pilot] = pilot
                else:
                    self._read(outcome)
        return self

    def _read(self, outcome: Outcome) -> None:
        self._known_margin = None
        standing = self.states[outcome.number]
        score = mean_score(outcome, self._metric)
        is_first = not np.isfinite(standing.score)
        standing.gain = np.inf if is_first else score - standing.score
        standing.score = score
        standing.is_full = not outcome.is_of_another_model
        if not standing.is_full:
            standing.residual = outcome.residual_trace
            standing.width = standing.share if is_first else standing.width
        standing.is_exact = standing.is_full and bool(outcome.is_exact.all())

    @property
    def has_full(self) -> bool:
        """Whether any candidate was evaluated on the full matrix."""
        return any(standing.is_full for standing in self.states.values())

    def status(self, standing: CandidateState) -> str:
        """How certain a score is: "exact", "certified", "converged" or "estimated"."""
        if standing.is_exact:
            return "exact"
        if standing.is_certified:
            return "certified"
        has_settled = abs(standing.gain) <= self._margin
        return "converged" if has_settled and standing.is_captured else ESTIMATED

    @property
    def _scores(self) -> Array:
        return np.array([standing.score for standing in self.states.values()])

    @property
    def _margin(self) -> float:
        """Scores that differ by less than this count as equal.

        CONVERGED · (best − median), which suits any scorer; where the perfect score is known, at
        most NEARLY · (perfect − best).
        """
        if self._known_margin is None:
            scores = self._scores[np.isfinite(self._scores)]
            best = float(scores.max(initial=-np.inf))
            spread = best - float(np.median(scores)) if scores.size else 0.0
            margin = CONVERGED * spread
            if self._scale.has_errors and scores.size:
                error = max(self._scale.best - best, _ROUNDING * spread)
                margin = min(margin, NEARLY * error)
            self._known_margin = margin
        return self._known_margin

    def uncertain(self) -> list[int]:
        """The candidates that are only estimated and may still be the best."""
        floor = float(np.max(self._scores)) - self._margin
        return [
            number
            for number, standing in self.states.items()
            if self.status(standing) == ESTIMATED and standing.upper_score >= floor
        ]

    def uncertified(self) -> list[int]:
        """For the first pilot split: all candidates not certified, and the best that is.

        The latter is what the others are compared with. All ridges of a kernel are looked at, since
        they cost little more than one.
        """
        numbers = [number for number, s in self.states.items() if not s.is_certified]
        known = [s for s in self.states.values() if s.is_certified]
        if not numbers or not known:
            return numbers
        return [*numbers, max(known, key=lambda s: (s.score, -s.number)).number]

    @property
    def _seen(self) -> list[CandidateState]:
        """Those that were looked at."""
        return [s for s in self.states.values() if np.isfinite(s.pilot)]

    def predict(self) -> SearchState:
        """Predict final scores from pilot splits, by the best candidate whose final score is known.

        If there is none, the score of a pilot split is the prediction.
        """
        known, seen = self._best_known, self._seen
        if known is None:
            for standing in seen:
                standing.predicted = standing.upper = standing.pilot
        else:
            for standing, scores in self._compared(seen, known, known.score):
                standing.predicted, standing.upper = scores
        return self

    @property
    def _best_known(self) -> CandidateState | None:
        """The best candidate that was looked at and has a final score, or else a certified one.

        Others are compared with it, since chance makes candidates better or worse together on the
        same test rows.
        """
        seen = self._seen
        known = [s for s in seen if s.is_full] or [s for s in seen if s.is_certified]
        return max(known, key=lambda s: (s.score, -s.number), default=None)

    def _compared(
        self,
        ones: Iterable[CandidateState],
        other: CandidateState,
        score: float,
        *,
        is_wide: bool = False,
    ) -> Iterator[tuple[CandidateState, tuple[float, float]]]:
        """Candidates, their predicted scores and upper limits, if ``other`` has this score.

        Only pilot splits that both had are compared; those with the same pilot splits at once.
        """
        groups: dict[tuple[int, ...], list[CandidateState]] = {}
        for one in ones:
            groups.setdefault(tuple(k for k in one.pilots if k in other.pilots), []).append(one)
        for pilots, group in groups.items():
            theirs = [other.pilots[k] for k in pilots]
            ours = [[one.pilots[k] for k in pilots] for one in group]
            here = np.array([[pilot.score for pilot in row] for row in ours]).mean(axis=1)
            there = sum(pilot.score for pilot in theirs) / len(pilots)
            errors, others = _stacked([_together(row) for row in ours]), _together(theirs)
            doubt = self._scale.doubt(errors, others, len(pilots), is_wide=is_wide)
            likely = self._scale.predict(score, here, there)
            upper = self._scale.predict(score, here, there, doubt)
            yield from zip(group, zip(likely.tolist(), upper.tolist(), strict=True), strict=True)

    def corrections(self, cap: float = np.inf) -> dict[int, float]:
        """By how much unreliable low-rank scores are to be moved, so that none reaches ``cap``."""
        known, found = self._best_known, {}
        # Estimates stay behind the best by more than the rounding of a mean over folds.
        most = cap - _ROUNDING * abs(cap) - 1e-6 * self._margin
        for s in self._seen:
            if s.is_unreliable and self.status(s) == ESTIMATED:
                shift = min(s.pilot if known is None else self._corrected(s, known), most) - s.score
                if np.isfinite(shift):
                    found[s.number] = shift
        return found

    def _corrected(self, one: CandidateState, other: CandidateState) -> float:
        """The score of a candidate by its pilot splits, corrected by one with a known score.

        How far pilot splits were off for the known one counts as far as the errors of both are
        correlated.
        """
        both = self._on_both(one, other)
        return self._scale.blended(other.score, both.here, both.there, both.likeness)

    def _on_both(self, one: CandidateState, other: CandidateState) -> Pair:
        """Two candidates on the pilot splits that both had."""
        both = [number for number in one.pilots if number in other.pilots]
        ours, theirs = ([s.pilots[number] for number in both] for s in (one, other))
        here, there = (
            sum(pilot.score for pilot in pilots) / len(both) for pilots in (ours, theirs)
        )
        return Pair(here, there, _together(ours), _together(theirs))

    def rivals(self) -> list[int]:
        """Those with the most pilot splits that may be the best, by these pilot splits."""
        seen = self._seen
        most = max((len(s.pilots) for s in seen), default=0)
        last = [s for s in seen if len(s.pilots) == most]
        if not last:
            return []
        leader = max(last, key=lambda s: (s.pilot, -s.number))
        bar = leader.pilot
        return [s.number for s, (_, upper) in self._compared(last, leader, bar) if upper >= bar]

    def possible_winners(self) -> list[int]:
        """The candidates that may be better than the best final score, the likeliest first.

        First those whose upper limit is above it, until the full matrix was made for so many as the
        search allows; then the neighbours of the best. A candidate that leads without a final score
        is always one of them.
        """
        full = [s for s in self.states.values() if s.is_full]
        order = sorted(self.states.values(), key=lambda s: (-s.likely_score, s.number))
        if not full:
            rivals = self.rivals() or list(self.states)
            return [s.number for s in order if np.isfinite(s.score) and s.number in rivals]
        bar = max(standing.score for standing in full) + self._margin
        left = [s.number for s in order if not s.is_full and s.upper_score > bar]
        if left and len(full) < self._most:
            return left
        leader = max(self.states.values(), key=lambda s: (s.score, -s.number))
        return self._neighbours(leader) if leader.is_full else [leader.number]

    def next_pilots(self, pilots: int) -> tuple[list[int], int]:
        """The candidates for a further pilot split, and its number; none after so many.

        A pilot split costs less than the full matrix, which is for candidates that pilot splits
        cannot separate.
        """
        possible_winners = [self.states[number] for number in self.possible_winners()]
        unsure = [s for s in possible_winners if not s.is_certified and 0 < len(s.pilots) < pilots]
        if len(possible_winners) < 2 and not self.has_full:
            return [], 0
        turn = 1 + min((len(s.pilots) for s in unsure), default=0)
        return [s.number for s in unsure if len(s.pilots) < turn], turn

    def next_full(self) -> list[int]:
        """The next candidates for the full matrix, a few at a time."""
        done = sum(standing.is_full for standing in self.states.values())
        left = self._most - done
        return self.possible_winners()[: min(CONTENDERS, left) if left > 0 else CONTENDERS]

    def _neighbours(self, leader: CandidateState) -> list[int]:
        """The neighbours of the leader that may be better: the next ridges and the next kernels.

        Errors vary smoothly with the ridge and the width of the kernel. Comparing the winner with
        its neighbours by final scores corrects most of what low ranks and pilot splits got wrong.
        """
        same = [s for s in self.states.values() if s.kernel == leader.kernel]
        below = max((s for s in same if s.rho < leader.rho), key=lambda s: s.rho, default=leader)
        above = min((s for s in same if s.rho > leader.rho), key=lambda s: s.rho, default=leader)
        around = {s.number: s for s in (below, above, *self._in_next_kernels(leader))}
        known, seen = self._best_known, [s for s in around.values() if s.pilots]
        if known is not None:
            for s, (_, upper) in self._compared(seen, known, known.score, is_wide=True):
                s.wide_upper = upper
        return [s.number for s in around.values() if s.may_reach(leader.score)]

    def _in_next_kernels(self, leader: CandidateState) -> Iterator[CandidateState]:
        """Of the next wider and narrower kernel: the nearest ridge, the best by pilot splits."""
        widths = {s.kernel: s.width for s in self.states.values()}
        order = sorted(widths, key=lambda kernel: (widths[kernel], kernel))
        place = order.index(leader.kernel)
        for kernel in (*order[max(place - 1, 0) : place], *order[place + 1 : place + 2]):
            own = [s for s in self.states.values() if s.kernel == kernel]
            nearest = min(own, key=lambda s: (abs(math.log(s.rho / leader.rho)), s.number))
            if max(nearest.rho, leader.rho) <= NEAR * min(nearest.rho, leader.rho):
                yield nearest
            seen = [s for s in own if np.isfinite(s.pilot)]
            if seen:
                yield max(seen, key=lambda s: (s.pilot, -s.number))


def _together(pilots: Sequence[PilotScore]) -> Array | None:
    """The errors on the parts of all pilot splits; None if some are not known."""
    known = [pilot.errors for pilot in pilots if pilot.errors is not None]
    return np.concatenate(known) if len(known) == len(pilots) else None


def _stacked(rows: Sequence[Array | None]) -> Array | None:
    """The errors of several candidates, one row for each; None if some are not known."""
    known = [row for row in rows if row is not None]
    return np.stack(known) if len(known) == len(rows) else None

"""The plan of an evaluation: made before the work, executed, and printed.

A plan holds a strategy: a first round of units, and a rule for those after it. What comes after a
round is a pure function of the outcomes so far, the only place where results decide about work, so
that the same outcomes lead the same way in one process, in several, and after an interruption.
"""

from __future__ import annotations

from abc import ABC
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import ClassVar, Literal

from everyfold._progress import pluralise, printable
from everyfold._typing import Params
from everyfold.crossval.base import Closed
from everyfold.engine.planning.units import Unit
from everyfold.engine.records import Data, Outcome

_PREPROCESSING = {
    "none": "none",
    "per_fold": (
        "fitted on the training rows of each fold, once for all candidates with the same steps"
    ),
    "once": "fitted once, on all rows, including the test rows of each fold",
}


_NAMED = 10  # candidates at most in a note


# -- What is done next, given what is known --------------------------------------------------------

# The outcomes of every round so far.
History = Sequence[Sequence[Outcome]]


class Strategy(ABC):
    """A first round, and a rule for those after it."""

    first: Sequence[Unit]
    """The units of the first round."""
    begins_at_low_rank: ClassVar[bool] = False
    """Whether candidates begin at low rank, and only the best get further."""
    takes_parts: ClassVar[bool] = False
    """Whether what comes next depends on candidates that are known on some folds only."""

    @property
    def planned(self) -> Sequence[Unit]:
        """The units that say what is going to be done; a trial before them does not."""
        return self.first

    def after(self, history: History, data: Data) -> Sequence[Unit]:
        """The units of the next round; none if there is nothing left to do."""
        return ()

    def expected(self, data: Data) -> Sequence[Unit]:
        """Units that are likely to be done in all rounds, for an estimate of their cost."""
        return self.first

    def status(self, outcome: Outcome) -> str:
        """How certain scores are, as far as they tell by themselves."""
        return outcome.status

    def restated(self, history: History, data: Data) -> Sequence[Outcome]:
        """Outcomes whose scores or status are to be stated anew in the end, when all is known."""
        return ()


@dataclass(frozen=True)
class SingleRound(Strategy):
    """One round, and perhaps a confirmation of its best, unless every score is exact.

    Attributes
    ----------
    first : sequence of Unit
    confirmation : Strategy or None
        What is asked about the units after the round, if a score is not exact.
    """

    first: Sequence[Unit]
    confirmation: Strategy | None = None

    def after(self, history: History, data: Data) -> Sequence[Unit]:
        """See base class."""
        found = (outcome for outcomes in history for outcome in outcomes)
        if self.confirmation is None or all(o.is_exact.all() and not o.failures for o in found):
            return ()
        return self.confirmation.after(history, data)


# -- The plan as a whole ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """What became of a plan.

    Attributes
    ----------
    seconds : float
    candidates, exact, confirmed : int
        Those that were finished, those of them whose every fold equals a refit, and those that
        were refitted.
    operator : str
    methods : tuple of (words, number of candidates)
    rungs : tuple of (number of a candidate, rank of its kernel, mean score)
        Of candidates that were evaluated at several ranks, in this order.
    """

    seconds: float
    candidates: int
    exact: int
    confirmed: int
    operator: str
    methods: tuple[tuple[str, int], ...]
    rungs: tuple[tuple[int, int, float], ...] = ()


@dataclass(frozen=True)
class SearchPlan:
    """What a search will do, or has done, and why; ``print(search.plan_)`` shows it.

    Attributes
    ----------
    rows, folds, kernels, ridges : int
        Sizes of the search; ``ridges`` is the largest number of ridges that share one kernel.
    estimate : float
        Estimated seconds.
    memory : int
        Estimated memory of one worker in bytes.
    notes : tuple of str
        Remarks on the search and its winner.
    measured : Measured, optional
        The measured results; None before the work.
    pooled : tuple of str
        The scores that are computed for all held-out rows together.
    plain : dict
        Candidates that could be sped up but are refitted, by number, and why: mostly because
        refitting takes less time. They may be added to it after the first fold has been timed.
    hint : str
        If the exact method should take long: the option that approximates, and its error.
    candidates, operator, methods, exact, confirmed, seconds
        What was done; before the work, what is planned, as far as it is known.

    Examples
    --------
    >>> from everyfold import FastGridSearchCV, LSSVR
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> search = FastGridSearchCV(LSSVR(gamma=1.0), {"alpha": [0.1, 1.0]}, cv=5)
    >>> plan = search.plan(X, y)  # nothing is computed
    >>> plan.candidates, plan.kernels, plan.folds, plan.measured is None
    (2, 1, 5, True)
    """

    rows: int
    folds: int
    kernels: int
    ridges: int
    rounds: Strategy
    kind: Literal["none", "per_fold", "once"]
    estimate: float
    memory: int
    notes: tuple[str, ...] = ()
    measured: Measured | None = None
    pooled: tuple[str, ...] = ()
    plain: Mapping[int, str] = field(default_factory=dict)
    hint: str = ""

    @property
    def units(self) -> Sequence[Unit]:
        """Those of the first round, without a trial."""
        return self.rounds.planned

    @property
    def candidates(self) -> int:
        """The number of candidates."""
        if self.measured is not None:
            return self.measured.candidates
        return len({number for unit in self.units for number in unit.numbers})

    @property
    def operator(self) -> str:
        """How kernel matrices are represented."""
        if self.measured is not None:
            return self.measured.operator
        return ", ".join(dict.fromkeys(unit.words for unit in self.units if unit.words))

    @property
    def methods(self) -> tuple[tuple[str, int], ...]:
        """How held-out values come about, with the number of candidates."""
        if self.measured is not None:
            return self.measured.methods
        by_number = {
            number: group.method.words
            for unit in self.units
            for groups in unit.groups
            for group in groups
            for number in group.numbers
        }
        return tuple(Counter(by_number.values()).items())

    @property
    def refitted(self) -> tuple[int, ...]:
        """The candidates that are refitted on every fold, by number."""
        refits = (unit for unit in self.units if unit.order == "refit")
        return tuple(dict.fromkeys(number for unit in refits for number in unit.numbers))

    @property
    def preprocessing(self) -> str:
        """How steps in front of the model are fitted, in words."""
        if self.is_closed and self.kind == "per_fold":
            return "fitted on all rows, once for all candidates with the same steps"
        return _PREPROCESSING[self.kind]

    @property
    def is_closed(self) -> bool:
        """Whether a criterion of the fit on all rows takes the place of folds."""
        return any(isinstance(m.criterion, Closed) for unit in self.units for m in unit.methods)

    @property
    def exact(self) -> int:
        """The number of candidates whose every fold equals a refit up to rounding."""
        return 0 if self.measured is None else self.measured.exact

    @property
    def confirmed(self) -> int:
        """The number of candidates that were refitted."""
        return 0 if self.measured is None else self.measured.confirmed

    @property
    def rungs(self) -> tuple[tuple[int, int, float], ...]:
        """Candidates that were evaluated at several ranks: number, rank, mean score."""
        return () if self.measured is None else self.measured.rungs

    @property
    def seconds(self) -> float:
        """What the whole search took."""
        return 0.0 if self.measured is None else self.measured.seconds

    def done(
        self,
        outcomes: Iterable[Outcome],
        *,
        seconds: float,
        exact: int,
        confirmed: int = 0,
        notes: Sequence[str] = (),
        rungs: Sequence[tuple[int, int, float]] = (),
        is_verbose: bool = False,
    ) -> SearchPlan:
        """The plan with what was measured beside its estimates.

        ``is_verbose`` adds notes that ask for no action.
        """
        found = list(outcomes)
        operators = dict.fromkeys(o.operator for o in found if o.operator)
        methods = Counter(o.method for o in found if o.method)
        measured = Measured(
            seconds,
            len(found),
            exact,
            confirmed,
            ", ".join(operators) or ("auto" if self.kernels else "none"),
            tuple(methods.items()),
            tuple(rungs),
        )
        details = _not_unique(found) if is_verbose else []
        return replace(self, measured=measured, notes=(*self.notes, *notes, *details))

    def took(self, seconds: float) -> SearchPlan:
        """The same plan, with the seconds of the whole call that its search was part of."""
        done = self.measured and replace(self.measured, seconds=seconds)
        return replace(self, measured=done)

    @property
    def exactness(self) -> str:
        """Whether values will be exact, as far as that is known before the work."""
        if self.is_closed:
            return "the criterion as defined, of the fit on all rows"
        if any(method.is_approximate for unit in self.units for method in unit.methods):
            return "not all: an approximation; a search may confirm the best candidates by refits"
        if self.kind == "once":
            return "no: equal to refits, but with steps that were fitted on the test rows as well"
        if self.rounds.begins_at_low_rank:
            return "the best candidates equal refits; the others are estimated at low rank"
        if any(method.is_of_another_model for unit in self.units for method in unit.methods):
            return "no: equal to refits of a model that replaces this one, such as one of low rank"
        return "yes: equal to refits, to rounding or the solver's own tolerance"

    def as_dict(self) -> Params:
        """The plan by the names of what it says, for JSON; results only where there are any."""
        known = ["rows", "folds", "candidates", "kernels", "ridges", "operator", "methods"]
        known += ["preprocessing", "estimate", "memory", "notes"]
        if self.measured is not None:
            known += ["exact", "confirmed", "seconds"]
        return {name: getattr(self, name) for name in known}

    def __str__(self) -> str:
        return "\n".join(f"{name:<14} {words}" for name, words in self.lines())

    def _repr_html_(self) -> str:
        left = 'style="text-align: left; vertical-align: top"'
        rows = (
            f"<tr><th {left}>{name}</th><td {left}>{escape(printable(words))}</td></tr>"
            for name, words in self.lines()
        )
        return f"<table>{''.join(rows)}</table>"

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self._repr_html_()}

    def lines(self) -> list[tuple[str, str]]:
        """What the plan says: names, and words."""
        folds = "no folds" if self.is_closed else pluralise(self.folds, "fold")
        return [
            (
                "search",
                f"{pluralise(self.candidates, 'candidate')} = {self._shape()}, "
                f"{pluralise(self.rows, 'row')}, {folds}",
            ),
            ("operator", self.operator),
            *(
                ("method", f"{words} ({pluralise(count, 'candidate')})")
                for words, count in self.methods
            ),
            ("preprocessing", self.preprocessing),
            *self._costs(),
            *(("note", note) for note in self.notes),
            *([("quicker", self.hint)] if self.hint else []),
        ]

    def _shape(self) -> str:
        """How the candidates are taken together."""
        each = "" if self.kernels == 1 else " each"
        ridges = f"up to {pluralise(self.ridges, 'ridge')}{each}"
        together = f"{pluralise(self.kernels, 'kernel')} with {ridges}"
        one = len(self.refitted) == 1
        alone = f"{len(self.refitted)} that {'is' if one else 'are'} refitted"
        if not self.refitted:
            return together
        return f"{together}, and {alone}" if self.kernels else alone

    def _costs(self) -> list[tuple[str, str]]:
        if self.measured is None:
            cost = f"{self.estimate:.3g} s, {self.memory / 1e6:.3g} MB per worker"
            return [("exact", self.exactness), ("estimate", cost)]
        is_one = self.candidates == 1
        meaning = "equals" if is_one else "equal"
        meaning += " refits, to rounding or the solver's own tolerance"
        if self.is_closed:
            meaning = (
                f"{'has' if is_one else 'have'} the criterion as defined, of the fit on all rows"
            )
        cost = f"{self.seconds:.3g} s, estimated {self.estimate:.3g} s, "
        cost += f"about {self.memory / 1e6:.0f} MB per worker"
        lines = [("exact", f"{_share(self.exact, self.candidates)} {meaning}"), ("cost", cost)]
        if self.confirmed:
            lines.append(("confirmed", f"{pluralise(self.confirmed, 'candidate')} by real refits"))
        return lines


def _not_unique(outcomes: Sequence[Outcome]) -> list[str]:
    """Count the candidates whose intercept is not unique: scikit-learn has the same scores."""
    count = sum(not outcome.is_unique for outcome in outcomes)
    if count == 0:
        return []
    return [
        f"the intercept of {pluralise(count, 'candidate')} is not unique in some folds, because "
        "no support vector is free there; libsvm's own intercept was used"
    ]


def some(numbers: Sequence[int]) -> str:
    """Candidates in words.

    Examples
    --------
    >>> some([3, 5])
    '2 candidates (number 3, 5)'
    """
    named = ", ".join(map(str, numbers[:_NAMED])) + (", ..." if len(numbers) > _NAMED else "")
    return f"{pluralise(len(numbers), 'candidate')} (number {named})"


def _share(part: int, whole: int) -> str:
    if part == whole == 1:
        return "the candidate"
    return (
        f"all {whole} candidates" if part == whole else f"{part} of {pluralise(whole, 'candidate')}"
    )

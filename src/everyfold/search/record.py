"""What a search did, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from everyfold.search.setup import Setup, StreamSetup
from everyfold.units import Verdict

_NAMED = 10  # candidates at most in a note


@dataclass(frozen=True)
class SearchPlan:
    """What a search did and why; ``print(search.plan_)`` shows it.

    Attributes
    ----------
    rows, folds, candidates, kernels, ridges : int
        The sizes: ``ridges`` is the largest number of candidates that shared one path.
    operator : str
        How kernel matrices were represented.
    methods : tuple of (words, number of candidates)
        How the held-out values came about.
    preprocessing : str
        How steps in front of the model were fitted.
    exact : int
        The number of candidates whose every fold equals a refit up to rounding.
    confirmed : int
        The number of candidates that were refitted.
    estimate, seconds : float
        Estimated cost of the linear algebra, and what the whole search took.
    memory : int
        Estimated bytes at work in one worker.
    notes : tuple of str
        What differs from what was asked for.
    """

    rows: int
    folds: int
    candidates: int
    kernels: int
    ridges: int
    operator: str
    methods: tuple[tuple[str, int], ...]
    preprocessing: str
    exact: int
    confirmed: int
    estimate: float
    seconds: float
    memory: int
    notes: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"search         {self.candidates} candidates = {self.kernels} kernels with up to "
            f"{self.ridges} ridges each, {self.rows} rows, {self.folds} folds",
            f"operator       {self.operator}",
            *(f"method         {words} ({count} candidates)" for words, count in self.methods),
            f"preprocessing  {self.preprocessing}",
            f"exact          {_share(self.exact, self.candidates)} equal refits, to rounding or "
            "the solver's own tolerance",
            f"cost           {self.seconds:.3g} s, linear algebra estimated {self.estimate:.3g} s, "
            f"about {self.memory / 1e6:.0f} MB a worker",
        ]
        if self.confirmed:
            lines.append(f"confirmed      {self.confirmed} candidates by real refits")
        return "\n".join([*lines, *(f"note           {note}" for note in self.notes)])


def _share(part: int, whole: int) -> str:
    return f"all {whole} candidates" if part == whole else f"{part} of {whole} candidates"


def summarise(
    setup: Setup | StreamSetup,
    verdicts: Sequence[Verdict],
    *,
    exact: int,
    seconds: float,
    confirmed: int = 0,
    notes: Sequence[str] = (),
) -> SearchPlan:
    """The plan of a search that has been run."""
    methods = [verdict.method for verdict in verdicts if verdict.method is not None]
    found = dict.fromkeys(verdict.operator for verdict in verdicts if verdict.operator)
    return SearchPlan(
        rows=setup.n,
        folds=len(setup.sizes),
        candidates=len(verdicts),
        kernels=setup.n_kernels,
        ridges=setup.longest_path,
        operator=", ".join(found) or "auto",
        methods=tuple(Counter(method.words for method in methods).items()),
        preprocessing=setup.preprocessing,
        exact=exact,
        confirmed=confirmed,
        # Candidates of one path share its cost, so that each path is counted once.
        estimate=sum(method.seconds for method in {id(m): m for m in methods}.values()),
        seconds=seconds,
        memory=max((method.memory for method in methods), default=0),
        notes=(*notes, *_loose(verdicts)),
    )


def _loose(verdicts: Sequence[Verdict]) -> list[str]:
    """Say whose intercept is not unique."""
    records = [(verdict.number, verdict.record) for verdict in verdicts]
    numbers = [k for k, record in records if record is not None and not record.has_one_solution]
    if not numbers:
        return []
    named = ", ".join(map(str, numbers[:_NAMED])) + (", ..." if len(numbers) > _NAMED else "")
    who = "1 candidate" if len(numbers) == 1 else f"{len(numbers)} candidates"
    return [
        f"the intercept of {who} (number {named}) is not unique in some folds, as no support "
        "vector is free there; libsvm's own was taken"
    ]

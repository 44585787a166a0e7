"""The kinds of tables: which cells they need, and how their cells are printed."""

from __future__ import annotations

import functools
import re
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from benchmarks.papers import work
from benchmarks.papers.statistics import Comparison, paired_t
from benchmarks.papers.study import Cell, Found, Grid, Key, Method, Profile, Result, Rows

Printed = Mapping[str, Mapping[str, tuple[float, float]]]
Test = Callable[[Sequence[float], Sequence[float]], Comparison]


@dataclass(frozen=True, kw_only=True)
class Table(ABC):
    """A table or figure of a paper.

    Attributes
    ----------
    paper, name : str
        The first two parts of the keys of its cells.
    title : str
        The heading.
    note : str
        How to read it.
    """

    paper: str
    name: str
    title: str
    note: str = ""

    @abstractmethod
    def cells(self, profile: Profile) -> Iterator[Cell]:
        """What has to be computed, the first split of all sets first."""

    @abstractmethod
    def lines(self, found: Found) -> list[str]:
        """The table in Markdown."""

    def markdown(self, found: Found) -> str:
        """Heading, note and table."""
        body = self.lines(found) or ["*Not computed yet.*"]
        return "\n".join(
            [f"### {self.title}", "", *([wrapped(self.note), ""] if self.note else []), *body]
        )


@dataclass(frozen=True)
class Verdict:
    """On which sets a method is significantly worse or better than another."""

    sets: tuple[str, ...]
    worse: tuple[str, ...]
    better: tuple[str, ...]

    def __str__(self) -> str:
        count = len(self.sets)
        worse = f"worse on {len(self.worse)} of {count} sets{_named(self.worse)}"
        return f"significantly {worse}, better on {len(self.better)}{_named(self.better)}"


def _named(labels: Sequence[str]) -> str:
    return f" ({', '.join(labels)})" if labels else ""


@dataclass(frozen=True, kw_only=True)
class ErrorTable(Table):
    """Test errors: sets down, methods across, mean ± standard deviation over splits.

    Attributes
    ----------
    rows, grid, share, splits
        As in ``work.select``; ``share`` None takes the published partitions.
    methods : tuple of Method
    printed : mapping
        Figures of the paper: label of the set, name of the method, (mean, deviation).
    references : mapping
        The method that each method is compared with.
    test : callable
    measure : str
        Which number of a cell's result is shown.
    generosity : int
        How many times the splits of a profile are computed; more than 1 where they cost little.
    """

    rows: tuple[Rows, ...]
    grid: Grid
    share: float | None
    methods: tuple[Method, ...]
    splits: int
    printed: Printed = field(default_factory=dict)
    references: Mapping[str, str] = field(default_factory=dict)
    test: Test = paired_t
    measure: str = "error"
    generosity: int = 1

    def cells(self, profile: Profile) -> Iterator[Cell]:
        """See base class."""
        for split in range(self.splits):
            for rows in self.rows:
                rows = self.sampled(rows, profile)
                if split < profile.splits_of(self.train(rows), self.generosity):
                    yield from self._row(rows, split)

    def _row(self, rows: Rows, split: int) -> Iterator[Cell]:
        for method in self.methods:
            key = (self.paper, self.name, rows.label, method.name, str(split))
            yield Cell(key, work.select, (rows, split, self.share, self.grid, method))

    def sampled(self, rows: Rows, profile: Profile) -> Rows:
        """A set as the profile takes it."""
        if self.share is None or profile.largest is None:
            return rows
        size = rows.take or rows.size
        return replace(rows, take=profile.largest) if size > profile.largest else rows

    def train(self, rows: Rows) -> float:
        """The number of training rows."""
        return rows.size if self.share is None else self.share * (rows.take or rows.size)

    def errors(self, found: Found, label: str, method: str) -> dict[str, float]:
        """Errors by split."""
        head = (self.paper, self.name, label, method)
        return {key[4]: result[self.measure] for key, result in found.items() if key[:4] == head}

    def compare(self, found: Found, label: str, first: str, second: str) -> Comparison | None:
        """The test of two methods on the splits that both have."""
        ones, others = (self.errors(found, label, name) for name in (first, second))
        both = sorted(ones.keys() & others.keys())
        if not both:
            return None
        return self.test([ones[s] for s in both], [others[s] for s in both])

    def comparisons(self, found: Found, first: str, second: str) -> dict[str, Comparison]:
        """The test on every set that has been computed."""
        each = {rows.label: self.compare(found, rows.label, first, second) for rows in self.rows}
        return {label: comparison for label, comparison in each.items() if comparison}

    def verdict(self, found: Found, first: str, second: str) -> Verdict:
        """What the test says of two methods on every set."""
        each = self.comparisons(found, first, second)
        worse = tuple(label for label, comparison in each.items() if comparison.is_worse)
        better = tuple(label for label, comparison in each.items() if comparison.is_better)
        return Verdict(tuple(each), worse, better)

    def near_printed(self, found: Found, method: str) -> str:
        """On how many sets our mean is within one printed deviation of the printed mean."""
        ours = self.means(found, method)
        both = {label: self.printed[label][method] for label in ours if label in self.printed}
        near = [x for x, (mean, spread) in both.items() if abs(ours[x] - mean) <= spread]
        return f"{len(near)} of {len(both)}"

    def means(self, found: Found, method: str) -> dict[str, float]:
        """Mean errors by set."""
        each = {rows.label: self.errors(found, rows.label, method) for rows in self.rows}
        return {label: float(np.mean(list(e.values()))) for label, e in each.items() if e}

    def lines(self, found: Found) -> list[str]:
        """See base class."""
        names = [method.name for method in self.methods]
        shown = [row for rows in self.rows if (row := self._line(found, rows.label, names))]
        if not shown:
            return []
        head = ["set", "n", "splits", *names]
        return [_bar(head), _bar(["---"] * len(head)), *shown]

    def _line(self, found: Found, label: str, names: Sequence[str]) -> str | None:
        each = {name: self.errors(found, label, name) for name in names}
        if not any(each.values()):
            return None
        train = next(
            r["train"] for k, r in found.items() if k[:3] == (self.paper, self.name, label)
        )
        splits = max(len(errors) for errors in each.values())
        cells = [self._entry(found, label, name, list(each[name].values())) for name in names]
        return _bar([label, str(train), str(splits), *cells])

    def _entry(self, found: Found, label: str, name: str, errors: list[float]) -> str:
        theirs = self.printed.get(label, {}).get(name)
        if not errors:
            return "–" if theirs is None else f"– *{figure(theirs[0])}*"
        mean, spread = float(np.mean(errors)), float(np.std(errors, ddof=min(1, len(errors) - 1)))
        text = f"{figure(mean)} ± {figure(spread, mean)}" if len(errors) > 1 else figure(mean)
        if name in self.references:
            comparison = self.compare(found, label, name, self.references[name])
            text += comparison.mark if comparison else ""
        if theirs is None:
            return text
        return f"{text} *{figure(theirs[0])}* ({_signed(mean - theirs[0], theirs[0])})"


@dataclass(frozen=True, kw_only=True)
class TimeTable(Table):
    """Seconds of selecting over the whole grid, and how many times faster than refits that is.

    Attributes
    ----------
    rows, grid, share, methods, refits, thin
        As in ``work.measure``.
    printed : mapping
        Seconds of the paper.
    against : mapping
        The refits that each method is compared with.
    timed : tuple of str
        The sets that shorter profiles time.
    brief : tuple of str
        The methods and refits that are timed for more than 1,500 training rows; all if empty.
    """

    rows: tuple[Rows, ...]
    grid: Grid
    share: float | None
    methods: tuple[Method, ...]
    refits: tuple[Method, ...]
    against: Mapping[str, str]
    thin: tuple[int, int] = (5, 5)
    printed: Printed = field(default_factory=dict)
    timed: tuple[str, ...] = ()
    brief: tuple[str, ...] = ()

    def cells(self, profile: Profile) -> Iterator[Cell]:
        """See base class."""
        for rows in self.rows:
            size = rows.size if self.share is None else self.share * (rows.take or rows.size)
            if size > profile.timed or (profile.largest and rows.label not in self.timed):
                continue
            key = (self.paper, self.name, rows.label, "time", "0")
            groups = [self._timed(group, size) for group in (self.methods, self.refits)]
            arguments = (rows, self.share, self.grid, *groups, self.thin)
            yield Cell(key, work.measure, arguments, is_timing=True)

    def _timed(self, methods: tuple[Method, ...], size: float) -> tuple[Method, ...]:
        names = self.brief if size > 1500 else ()
        return tuple(method for method in methods if not names or method.name in names)

    def seconds(self, found: Found, label: str) -> Mapping[str, float]:
        """Seconds by method; empty if the set was not timed."""
        result = found.get((self.paper, self.name, label, "time", "0"))
        return result["seconds"] if result else {}

    def ratio(self, found: Found, label: str, method: str) -> float:
        """How many times as long the refits take; NaN if it is not known."""
        seconds = self.seconds(found, label)
        if method not in seconds:
            return np.nan
        return seconds[self.against[method]] / seconds[method]

    def printed_ratio(self, label: str, method: str) -> float:
        """The paper's ratio."""
        theirs = self.printed.get(label, {})
        if method not in theirs or self.against[method] not in theirs:
            return np.nan
        return theirs[self.against[method]][0] / theirs[method][0]

    def lines(self, found: Found) -> list[str]:
        """See base class."""
        refits, methods = ([m.name for m in group] for group in (self.refits, self.methods))
        shown = [
            self._line(found, rows.label, refits, methods)
            for rows in self.rows
            if self.seconds(found, rows.label)
        ]
        if not shown:
            return []
        head = ["set", "n", *(f"{name}, s" for name in refits), *(f"{m}, ×" for m in methods)]
        return [_bar(head), _bar(["---"] * len(head)), *shown]

    def _line(self, found: Found, label: str, refits: list[str], methods: list[str]) -> str:
        seconds, theirs = self.seconds(found, label), self.printed.get(label, {})
        train = found[self.paper, self.name, label, "time", "0"]["train"]
        cells = [label, str(train)]
        for name in refits:
            text = figure(seconds[name]) if name in seconds else "–"
            cells.append(f"{text} *{figure(theirs[name][0])}*" if name in theirs else text)
        for name in methods:
            ratio, printed = self.ratio(found, label, name), self.printed_ratio(label, name)
            text = f"{ratio:.1f}" if np.isfinite(ratio) else "–"
            cells.append(text if np.isnan(printed) else f"{text} *{printed:.1f}*")
        return _bar(cells)


@dataclass(frozen=True, kw_only=True)
class DiscrepancyTable(Table):
    """Mean squared differences of held-out values between a series and refits, by order."""

    rows: tuple[Rows, ...]
    grid: Grid
    share: float
    methods: tuple[Method, ...]
    orders: tuple[int, ...]
    splits: int

    def cells(self, profile: Profile) -> Iterator[Cell]:
        """See base class."""
        for rows in self.rows:
            if profile.splits_of(self.share * (rows.take or rows.size)):
                for method in self.methods:
                    key = (self.paper, self.name, rows.label, method.name, "0")
                    given = (rows, 0, self.share, self.grid, method, self.orders)
                    yield Cell(key, work.discrepancy, given)

    def relative(self, found: Found, label: str, method: str) -> list[float]:
        """Root mean squares relative to that of the refits' values, one an order."""
        result = found.get((self.paper, self.name, label, method, "0"))
        return [float(np.sqrt(s / result["size"])) for s in result["squares"]] if result else []

    def lines(self, found: Found) -> list[str]:
        """See base class."""
        shown = [
            _bar([rows.label, method.name, *(figure(value) for value in series)])
            for rows in self.rows
            for method in self.methods
            if (series := self.relative(found, rows.label, method.name))
        ]
        head = ["set", "folds", *(f"order {order}" for order in self.orders)]
        return [_bar(head), _bar(["---"] * len(head)), *shown] if shown else []


@dataclass(frozen=True, kw_only=True)
class CurveTable(Table):
    """Reported errors over the ridge for one kernel: a picture, not a table.

    Attributes
    ----------
    rows, share, grid
        As in ``work.curve``; the grid has one kernel.
    methods : tuple of Method
        The last one is the truth.
    picture : str
        The name of the file.
    """

    rows: tuple[Rows, ...]
    grid: Grid
    share: float
    methods: tuple[Method, ...]
    picture: str

    def cells(self, profile: Profile) -> Iterator[Cell]:
        """See base class."""
        for rows in self.rows:
            key = (self.paper, self.name, rows.label, "curve", "0")
            yield Cell(key, work.curve, (rows, self.share, self.grid, self.methods))

    def curves(self, found: Found) -> dict[str, Result]:
        """What has been computed, by set."""
        keys = {rows.label: (self.paper, self.name, rows.label, "curve", "0") for rows in self.rows}
        return {label: found[key] for label, key in keys.items() if key in found}

    def lines(self, found: Found) -> list[str]:
        """See base class."""
        return [f"![{self.title}]({self.picture})"] if self.curves(found) else []


@dataclass(frozen=True)
class Line:
    """A line of a plain table: its label, what its work is given, and what is printed (or None)."""

    label: str
    arguments: tuple[Any, ...]
    printed: tuple[float | None, ...]
    is_quick: bool = True


@dataclass(frozen=True, kw_only=True)
class PlainTable(Table):
    """A table whose lines are the ``values`` of one function."""

    head: tuple[str, ...]
    work: Callable[..., Result]
    items: tuple[Line, ...]
    is_timing: bool = False

    def cells(self, profile: Profile) -> Iterator[Cell]:
        """See base class."""
        for line in self.items:
            if line.is_quick or profile.name != "quick":
                yield Cell(self._key(line), self.work, line.arguments, self.is_timing)

    def _key(self, line: Line) -> Key:
        return (self.paper, self.name, line.label, "values", "0")

    def values(self, found: Found, label: str) -> list[float]:
        """The figures of a line; empty if they have not been computed."""
        result = found.get((self.paper, self.name, label, "values", "0"))
        return result["values"] if result else []

    def lines(self, found: Found) -> list[str]:
        """See base class."""
        shown = [
            _bar([line.label, *(_pair(*both) for both in zip(values, line.printed, strict=True))])
            for line in self.items
            if (values := self.values(found, line.label))
        ]
        return [_bar(self.head), _bar(["---"] * len(self.head)), *shown] if shown else []


def _pair(ours: float, theirs: float | None) -> str:
    text = "–" if np.isnan(ours) else str(ours) if isinstance(ours, int) else figure(ours)
    if theirs is None:
        return text
    return f"{text} *{theirs if isinstance(theirs, int) else figure(theirs)}*"


def wrapped(text: str) -> str:
    """Paragraphs in lines of equal length."""
    fill = functools.partial(
        textwrap.fill, width=115, break_long_words=False, break_on_hyphens=False
    )
    return "\n\n".join(
        part if part.startswith("#") else fill(part, subsequent_indent="  " * part.startswith("* "))
        for part in text.split("\n\n")
    )


def figure(value: float, like: float | None = None) -> str:
    """A number with the digits that the papers print."""
    size = abs(value if like is None else like)
    if size and size < 0.095:
        return re.sub(r"e([-+])0", r"e\1", f"{value:.1e}")
    return f"{value:.0f}" if size >= 1000 else f"{value:.1f}" if size >= 100 else f"{value:.2f}"


def _signed(value: float, like: float) -> str:
    text = figure(value, like)
    if float(text) == 0.0:
        return "0"
    return text if text.startswith("-") else f"+{text}"


def _bar(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"

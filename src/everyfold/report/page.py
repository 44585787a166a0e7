"""A search on one page: self-contained HTML that reads results by name and asks no network."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from everyfold._progress import pluralise, printable
from everyfold._typing import AnyArray, Mask, Search
from everyfold.plotting.markup import Markup, table, tag, written
from everyfold.plotting.prediction_plots import Kind, OutOfFoldDisplay
from everyfold.plotting.score_curves import CVCurveDisplay, RankCurveDisplay
from everyfold.plotting.score_table import (
    Axes,
    ScoreTable,
    candidate_table,
    label_of,
    metrics_of,
    number,
    params_words,
    pyplot,
    ranges,
)
from everyfold.plotting.surface import CVSurfaceDisplay
from everyfold.plotting.worst_rows import worst_rows

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Findings:
    """What a search says of itself beside its attributes.

    Attributes
    ----------
    title, call : str
        What the page is called, and what repeats the search.
    honest : HonestScore or str
        The score that selecting does not flatter; or why there is none.
    is_worse : bool array or str
        The candidates that are significantly worse than the best; or why that is not known.
    remarks : sequence of str
        What else is to be said of the winner.
    plans : sequence of SearchPlan
    ids : array, optional
        The names of the rows.
    held : str
        Why there are no held-out values; empty if there are.
    versions : dict
        Of what took part, by name.
    """

    title: str
    call: str
    honest: Any
    is_worse: Mask | str
    remarks: Sequence[str]
    plans: Sequence[Any]
    ids: AnyArray | None
    held: str
    versions: Mapping[str, str]


def page(search: Search, findings: Findings) -> str:
    """The whole page."""
    found = ScoreTable.of(search, _deciding(search))
    sections = [
        _head(search, findings, found),
        _section("The winner", *_winner(search, findings, found)),
        _section("Scores", *_pictures(_of_scores(search, found), "s")),
        _section("Held-out rows", *_held_out(search, findings)),
        _section("Candidates", *candidate_table(found, findings.is_worse)),
        _section("What was done", *(_plan(plan) for plan in findings.plans)),
        _section("To repeat it", *_repeat(findings)),
    ]
    return _document(findings.title, tag("main", *sections))


def _document(title: str, body: Markup) -> str:
    """A page that may run its one script and load nothing."""
    style, script = ((_HERE / f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    digest = f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src '{digest}'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{tag('title', title)}\n<style>\n{style}</style>\n</head>\n<body>\n{body}\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _section(title: str, *children: object) -> Markup:
    return tag("section", tag("h2", title), *children)


def _head(search: Search, findings: Findings, found: ScoreTable) -> Markup:
    plan = findings.plans[-1]
    folds = (
        "no folds: a criterion of one fit" if plan.is_closed else pluralise(found.n_splits, "fold")
    )
    count = len(found.results["params"])
    words = f"{pluralise(count, 'candidate')}, {pluralise(plan.rows, 'row')}, {folds}"
    words = f"{type(search).__name__}: {words}"
    return tag("header", tag("h1", findings.title), tag("p", words, class_="soft"))


def _deciding(search: Search) -> str:
    """The metric that decides; the first of several if none does."""
    if not search.multimetric_:
        return "score"
    names = metrics_of(search.cv_results_)
    return str(search.refit) if search.refit in names else names[0]


# -- the winner ----------------------------------------------------------------------------------


def _winner(search: Search, findings: Findings, found: ScoreTable) -> Iterator[Markup]:
    """Who won, and how sure that is."""
    if found.best is None:
        words = (
            "no candidate has a score, or there are several metrics and refit names none of them"
        )
        yield tag("p", f"None: {words} (refit=False).")
        return
    yield tag("dl", *_cards(search, findings, found), class_="facts")
    yield tag("ul", *(tag("li", words) for words in _said(findings, found)))
    if search.multimetric_:
        names = metrics_of(found.results)
        means = [number(found.results[f"mean_test_{name}"][found.best]) for name in names]
        yield table(["metric", "mean of the winner"], zip(names, means, strict=True))


def _card(name: str, value: str, small: str) -> Markup:
    size = "long" if len(value) > 24 else None
    return tag("div", tag("dt", name), tag("dd", value, tag("small", small), class_=size))


def _cards(search: Search, findings: Findings, found: ScoreTable) -> Iterator[Markup]:
    best, count = int(found.best or 0), len(found.results["params"])
    yield _card("Parameters", params_words(search.best_params_), f"number {best} of {count}")
    score = getattr(search, "best_score_", found.mean[best])
    mean = "Best" if found.n_splits < 2 else "Best mean"
    yield _card(f"{mean} {found.label}", number(score), _error_words(findings, found, best))
    honest = findings.honest
    if not isinstance(honest, str):
        low, high = (number(value) for value in honest.interval)
        small = f"{low} to {high} ({honest.confidence:.0%})"
        small += f"; selection bias {number(honest.bias)}" if count > 1 else ""
        yield _card(f"Honest {found.label}", number(honest.estimate), small)
    if not isinstance(findings.is_worse, str):
        equal = int(np.count_nonzero(~findings.is_worse))
        small = (
            "not significantly worse than the best (95 %, without correction for multiple testing)"
        )
        yield _card("As good as the winner", f"{equal} of {pluralise(count, 'candidate')}", small)


def _error_words(findings: Findings, found: ScoreTable, best: int) -> str:
    if any(plan.pooled for plan in findings.plans):
        return "of all held-out rows together"
    if found.n_splits < 2:
        return "of one fit, without folds"
    folds = pluralise(found.n_splits, "fold")
    return f"± {number(found.error[best])}, one standard error over {folds}"


def _said(findings: Findings, found: ScoreTable) -> Iterator[str]:
    """What is to be said of the winner, in sentences."""
    status = str(found.results.get("status", ["known"] * (1 + int(found.best or 0)))[found.best])
    yield f"Status of the winner's scores: {status}."
    tied = int(np.count_nonzero(found.mean == found.mean[found.best]))
    if tied > 1:
        yield f"{tied} candidates share the winner's mean score; the first of them was selected."
    if isinstance(findings.is_worse, str):
        yield f"Which candidates are as good is not known: {findings.is_worse}."
    else:
        spans = ranges(found, ~findings.is_worse)
        if spans:
            yield f"Candidates that are not significantly worse have {spans}."
        estimated = int(np.count_nonzero(found.results.get("status") == "estimated"))
        if estimated:
            words = (
                f"The scores of {estimated} of {pluralise(len(found.mean), 'candidate')} are only"
            )
            yield f"{words} estimated, and so is whether these are worse."
    yield from (f"{remark[:1].upper()}{remark[1:]}." for remark in findings.remarks)
    if len(found.mean) == 1:
        yield "There was only one candidate, so that the score is not biased by a selection."
    elif isinstance(findings.honest, str):
        yield (
            "The best score is too optimistic, because the candidate was selected by it. A "
            f"score without selection bias is not known: {findings.honest}."
        )
    if not isinstance(findings.honest, str):
        together = "; it scores all rows together and is not a mean over folds"
        is_bbc = findings.honest.method.startswith("BBC")
        yield f"The honest score is by {findings.honest.method}{together if is_bbc else ''}."


# -- pictures ------------------------------------------------------------------------------------

_Draw = Callable[..., object]


def _pictures(asked: Sequence[tuple[str, _Draw]], prefix: str) -> Iterator[Markup]:
    """The pictures that there are; why the others are not."""
    try:
        pyplot()
    except ImportError as error:
        yield tag("p", f"No pictures: {error}.", class_="soft")
        return
    drawn, left_out = [], []
    for k, (caption, draw) in enumerate(asked):
        try:
            drawn.append(figure(partial(_on, draw), caption, f"{prefix}{k}"))
        except ValueError as error:
            left_out.append(tag("li", f"Not drawn, {caption[:1].lower()}{caption[1:]}: {error}."))
    if drawn:
        yield tag("div", *drawn, class_="figures")
    if left_out:
        yield tag("ul", *left_out, class_="soft")


def _on(draw: _Draw, ax: Any) -> object:
    return draw(ax=ax)


def _of_scores(search: Search, found: ScoreTable) -> list[tuple[str, _Draw]]:
    """Surface and curves, as far as there are parameters for them."""
    count = len(found.numeric())
    asked: list[tuple[str, _Draw]] = []
    metric = found.metric
    if count > 1:
        caption = (
            "Mean scores over two parameters; outlined candidates are within one standard error"
        )
        asked.append((caption, partial(CVSurfaceDisplay.from_search, search, metric=metric)))
    caption = "Mean scores over one parameter, one line for each value of the others"
    if not _is_scattered(found):
        asked.append((caption, partial(CVCurveDisplay.from_search, search, metric=metric)))
    if search.plan_.rungs:
        caption = "Scores of the best candidates over the rank of their kernel"
        asked.append((caption, partial(RankCurveDisplay.from_search, search)))
    return asked


def _is_scattered(found: ScoreTable) -> bool:
    """Whether no two candidates agree in all parameters but one, so that there are no lines."""
    names = found.numeric()
    columns = [found.column(name) for name in names]
    every = [[*zip(*columns[:k], *columns[k + 1 :], strict=True)] for k in range(len(names))]
    return len(names) > 1 and all(len(set(rest)) == len(rest) for rest in every)


def _held_out(search: Search, findings: Findings) -> Iterator[Markup]:
    """What the models of other folds say, if that was kept, and where they are wrong."""
    if findings.held:
        yield tag("p", f"There are none: {findings.held}.", class_="soft")
        return
    kinds: dict[Kind, str] = {
        "confusion": "Confusion matrix of held-out rows",
        "roc": "ROC curves of held-out rows",
        "calibration": "Calibration of held-out probabilities",
    }
    if not is_classifier(search):
        kinds = {"predicted": "Predicted against true values of held-out rows"}
    held = search.out_of_fold()
    rows = int(np.count_nonzero(held.repeats))
    times = "" if held.repeats.max() <= 1 else f", up to {held.repeats.max()} times each"
    words = f"{rows} of {len(held.repeats)} rows were held out{times}; values are {held.status}."
    yield tag("p", words, class_="soft")
    draw = OutOfFoldDisplay.from_search
    asked = [(words, partial(draw, search, kind=kind)) for kind, words in kinds.items()]
    yield from _pictures(asked, "h")
    yield tag("h3", "Rows that went wrong")
    yield from worst_rows(search, findings.ids)


# -- the work ------------------------------------------------------------------------------------


def _plan(plan: Any) -> Markup:
    rows = (tag("tr", tag("td", name), tag("td", words)) for name, words in plan.lines())
    return tag("div", tag("table", *rows, class_="plan"), class_="wide")


def _repeat(findings: Findings) -> Iterator[Markup]:
    yield tag("pre", findings.call)
    words = ", ".join(f"{name} {version}" for name, version in findings.versions.items())
    yield tag("p", f"With {words}.", class_="soft")


# -- Pictures as text within a page: black becomes the colour of its text, in light and in dark ---


# More points or cells than that are one image of pixels within the picture.
MOST_SHAPES = 600

_LOOK: Any = {
    "svg.fonttype": "none",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "font.size": 11.0,
}


def figure(draw: Callable[[Axes], object], caption: str, name: str) -> Markup:
    """A figure of a page, drawn on axes.

    ``name`` keeps the ids of several figures of a page apart. Nothing of pyplot's state changes.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({**_LOOK, "svg.hashsalt": name}):
        canvas = Figure(figsize=(6.4, 4.8), layout="constrained")
        axes = canvas.subplots()
        draw(axes)
        for artist in (*axes.collections, *axes.lines):
            artist.set_rasterized(_count(artist) > MOST_SHAPES)
        file = io.StringIO()
        canvas.savefig(file, format="svg", dpi=144, metadata={"Date": None, "Creator": None})
    return tag("figure", _inline(file.getvalue(), name, caption), tag("figcaption", caption))


def _count(artist: Axes) -> int:
    """How many shapes an artist would be."""
    if hasattr(artist, "get_offsets"):
        values = artist.get_array()
        return max(len(artist.get_offsets()), 0 if values is None else values.size)
    has_marker = artist.get_marker() not in (None, "", "None", "none")
    return len(artist.get_xydata()) if has_marker else 0


def _inline(text: str, name: str, words: str) -> Markup:
    """The element of a file, its ids its own, as wide as there is room."""
    svg = printable(text[text.index("<svg") :], keep="\n")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = svg.replace("#000000", "currentColor")
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{written(words)}"', 1))


# -- What a notebook shows of a fitted search below scikit-learn's own diagram --------------------


_STYLE = "text-align: left; vertical-align: top"


def result_view(search: Search) -> Markup:
    """The winner, its score and the plan; nothing of a search that is not fitted."""
    lines = []
    if hasattr(search, "best_params_"):
        lines.append(("best_params_", params_words(search.best_params_)))
    if hasattr(search, "best_score_"):
        lines.append(("best_score_", f"{number(search.best_score_)} ({label_of(search)})"))
    if hasattr(search, "cv_results_"):
        lines += search.plan_.lines()
    lines += [("path_", line) for line in getattr(search, "summary_", "").splitlines()]
    return view(lines) if lines else Markup("")


def view(lines: list[tuple[str, str]]) -> Markup:
    """Names and words as a table."""
    rows = (
        tag("tr", tag("th", name, style=_STYLE), tag("td", words, style=_STYLE))
        for name, words in lines
    )
    return tag("table", *rows)

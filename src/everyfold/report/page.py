"""A report of a search as one HTML page, which loads nothing from the network.

The page is filled in by jinja2 from ``template.html``, which escapes everything; this module
gathers what stands in it: the verdict, plots, rows that were predicted wrongly, and candidates.
matplotlib draws the plots as SVG text, which is changed so that several of them fit into one page:
ids of their own, the page's width, and the colour of its text.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from sklearn.base import is_classifier

from everyfold._progress import pluralise, printable, rounded
from everyfold._typing import AnyArray, Array, Index, Mask, Params, Search
from everyfold.engine.planning.plan import SearchPlan
from everyfold.plotting.prediction_plots import InfluenceDisplay, Kind, OutOfFoldDisplay, known_rows
from everyfold.plotting.score_curves import CVCurveDisplay, CVSurfaceDisplay, RankCurveDisplay
from everyfold.plotting.score_table import (
    Axes,
    ScoreTable,
    brief,
    metrics_of,
    number,
    params_words,
    pyplot,
    ranges,
    short,
)

# With more points or cells than that, an artist is one image of pixels within the SVG: thousands of
# shapes would make the page slow to scroll and megabytes long.
MAX_SHAPES = 600

_RC: Any = {
    "svg.fonttype": "none",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "font.size": 11.0,
}


# -- Plots as SVG text -----------------------------------------------------------------------------


def draw_svg(draw: Callable[..., object], name: str, caption: str) -> str:
    """What ``draw(ax=axes)`` draws, as an ``<svg>`` element whose ids begin with ``name``."""
    import matplotlib as mpl
    from markupsafe import Markup, escape
    from matplotlib.figure import Figure

    with mpl.rc_context({**_RC, "svg.hashsalt": name}):
        figure = Figure(figsize=(6.4, 4.8), layout="constrained")
        axes = figure.subplots()
        draw(ax=axes)
        for artist in (*axes.collections, *axes.lines):
            artist.set_rasterized(_n_shapes(artist) > MAX_SHAPES)
        file = io.StringIO()
        figure.savefig(file, format="svg", dpi=144, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    svg = printable(text[text.index("<svg") :], keep="\n")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Ids are of the whole page: each plot has a prefix of its own.
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    # Black text and lines take the colour of the page's text, which is light in dark mode.
    svg = svg.replace("#000000", "currentColor")
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    label = escape(printable(caption))
    return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1))


def _n_shapes(artist: Axes) -> int:
    """How many shapes an artist would be."""
    if hasattr(artist, "get_offsets"):
        values = artist.get_array()
        return max(len(artist.get_offsets()), 0 if values is None else values.size)
    has_marker = artist.get_marker() not in (None, "", "None", "none")
    return len(artist.get_xydata()) if has_marker else 0


# -- The page --------------------------------------------------------------------------------------

# With more candidates or wrong rows than that the page shows the first of them: a browser sorts and
# filters a thousand rows at once, and cv_results_ has all.
MAX_CANDIDATES, MAX_WORST_ROWS = 1000, 50
# Rows or groups whose influence is drawn and listed.
MAX_INFLUENCES = 20

_NO_WINNER = "no candidate has a score, or there are several metrics and refit names none of them"

_KINDS: dict[Kind, str] = {
    "confusion": "Confusion matrix of held-out rows",
    "roc": "ROC curves of held-out rows",
    "calibration": "Calibration of held-out probabilities",
}

_Draw = Callable[..., object]


# What ``out_of_fold`` of a search and ``influence`` return: their classes are in packages above.
_Held: TypeAlias = Any
_Influence: TypeAlias = Any


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
    influence : dict of Influence or str
        What deleting rows or groups changes, by what is deleted; or why that is not known.
    remarks : sequence of str
        What else is to be said of the winner.
    verdict : sequence of (str, str, str)
        What can be trusted: topics, what was found, and what repairs it.
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
    influence: Mapping[str, _Influence] | str
    remarks: Sequence[str]
    verdict: Sequence[tuple[str, str, str]]
    plans: Sequence[SearchPlan]
    ids: AnyArray | None
    held: str
    versions: Mapping[str, str]


def page(search: Search, findings: Findings) -> str:
    """The whole page."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise ImportError(
            "a report needs jinja2, which is not installed; run pip install 'everyfold[report]'"
        ) from error
    from markupsafe import Markup

    def shown(value: object) -> object:
        # Control characters could reorder what is read; markup was checked where it was made.
        return value if isinstance(value, Markup) else printable(str(value), keep="\n")

    environment = Environment(
        loader=PackageLoader("everyfold.report", ""),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = (
        (Path(__file__).parent / f"page.{kind}").read_text(encoding="utf-8")
        for kind in ("css", "js")
    )
    # The policy lets the browser run this one script, known by its digest, and load nothing.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    found = ScoreTable.of(search, _deciding(search))
    has_winner = found.best is not None
    return environment.get_template("template.html").render(
        digest=digest,
        style=Markup(style),
        script=Markup(script),
        title=findings.title,
        verdict=_verdict(search, findings, found),
        summary=_summary(search, findings, found),
        cards=list(_cards(search, findings, found)) if has_winner else (),
        remarks=_remarks(findings, found) if has_winner else (),
        metrics=_metrics(found) if search.multimetric_ and has_winner else (),
        scores=_pictures(_of_scores(search, found), "s"),
        held=_held_out(search, findings),
        influence=_influence(findings, found.label),
        candidates=_candidates(found, findings.is_worse),
        trust=findings.verdict,
        plans=findings.plans,
        call=findings.call,
        versions=", ".join(f"{name} {version}" for name, version in findings.versions.items()),
    )


def _deciding(search: Search) -> str:
    """The metric that decides; the first of several if none does."""
    if not search.multimetric_:
        return "score"
    names = metrics_of(search.cv_results_)
    return str(search.refit) if search.refit in names else names[0]


# -- the winner ----------------------------------------------------------------------------------


def _summary(search: Search, findings: Findings, found: ScoreTable) -> str:
    folds, rows = pluralise(found.n_splits, "fold"), ""
    for plan in findings.plans[-1:]:  # scikit-learn's searches have none
        folds = "no folds: a criterion of one fit" if plan.is_closed else folds
        rows = f"{pluralise(plan.rows, 'row')}, "
    # The shell's own class is private: a reader knows the one it derives from.
    kind = next(c.__name__ for c in type(search).__mro__ if not c.__name__.startswith("_"))
    count = pluralise(len(found.results["params"]), "candidate")
    return f"{kind}: {count}, {rows}{folds}"


def _verdict(search: Search, findings: Findings, found: ScoreTable) -> str:
    """What most readers want to know, in two sentences."""
    if found.best is None:
        return f"There is no winner: {_NO_WINNER} (refit=False)."
    best, score, error = next(_score_cards(search, findings, found))
    is_alone = len(found.mean) == 1
    words = f"{params_words(search.best_params_)}{'' if is_alone else ' won'}. "
    words += f"{best}: {score} ({error})"
    honest = findings.honest
    if isinstance(honest, str) or len(found.mean) == 1:
        return f"{words}."
    low, high = (number(value) for value in honest.interval)
    return f"{words}; without selection bias {number(honest.estimate)} ({low} to {high})."


def _score_cards(
    search: Search, findings: Findings, found: ScoreTable
) -> Iterator[tuple[str, str, str]]:
    """The winner's score, and the one without selection bias if it is known."""
    best = int(found.best or 0)
    if any(plan.pooled for plan in findings.plans):
        error = "of all held-out rows together"
    elif found.n_splits < 2:
        error = "of one fit, without folds"
    else:
        folds = pluralise(found.n_splits, "fold")
        error = f"± {found.error[best]:.2g}, one standard error over {folds}"
    mean = "Best" if found.n_splits < 2 else "Best mean"
    yield f"{mean} {found.label}", number(getattr(search, "best_score_", found.mean[best])), error
    honest = findings.honest
    if not isinstance(honest, str):
        low, high = (number(value) for value in honest.interval)
        small = f"{low} to {high} ({rounded(honest.confidence, 0, '%')})"
        small += f"; selection bias {honest.bias:.2g}" if len(found.mean) > 1 else ""
        yield f"Honest {found.label}", number(honest.estimate), small


def _cards(search: Search, findings: Findings, found: ScoreTable) -> Iterator[tuple[str, str, str]]:
    """Name, value and small print of what is known of the winner."""
    count = len(found.mean)
    yield "Parameters", params_words(search.best_params_), f"number {found.best} of {count}"
    yield from _score_cards(search, findings, found)
    if not isinstance(findings.is_worse, str):
        equal = f"{np.count_nonzero(~findings.is_worse)} of {pluralise(count, 'candidate')}"
        small = (
            "not significantly worse than the best (95 %, without correction for multiple testing)"
        )
        yield "As good as the winner", equal, small


def _remarks(findings: Findings, found: ScoreTable) -> Iterator[str]:
    """What is to be said of the winner, in sentences."""
    status = found.results.get("status")
    yield f"Status of the winner's scores: {'refitted' if status is None else status[found.best]}."
    tied = int(np.count_nonzero(found.mean == found.mean[found.best]))
    if tied > 1:
        yield f"{tied} candidates share the winner's mean score; the first of them was selected."
    if isinstance(findings.is_worse, str):
        yield f"Which candidates are as good is not known: {findings.is_worse}."
    else:
        spans = ranges(found, ~findings.is_worse)
        if spans:
            yield f"Candidates that are not significantly worse have {spans}."
        estimated = int(np.count_nonzero(status == "estimated"))
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


def _metrics(found: ScoreTable) -> list[tuple[str, str]]:
    return [
        (name, number(found.results[f"mean_test_{name}"][found.best]))
        for name in metrics_of(found.results)
    ]


# -- plots ---------------------------------------------------------------------------------------


def _pictures(asked: Sequence[tuple[str, _Draw]], prefix: str) -> Params:
    """The plots that there are, and why the others are not."""
    try:
        pyplot()
    except ImportError as error:
        return {"why_none": str(error), "drawn": (), "left_out": ()}
    drawn, left_out = [], []
    for k, (caption, draw) in enumerate(asked):
        try:
            drawn.append((draw_svg(draw, f"{prefix}{k}", caption), caption))
        except ValueError as error:  # a plot that these data have not, such as ROC curves of pairs
            left_out.append((f"{caption[:1].lower()}{caption[1:]}", str(error)))
    return {"why_none": "", "drawn": drawn, "left_out": left_out}


def _of_scores(search: Search, found: ScoreTable) -> list[tuple[str, _Draw]]:
    """Surface and curves, as far as there are parameters for them."""
    names = found.numeric()
    asked: list[tuple[str, _Draw]] = []
    if len(names) > 1:
        caption = (
            "Mean scores over two parameters; outlined candidates are within one standard error"
        )
        asked.append((caption, partial(CVSurfaceDisplay.from_search, search, metric=found.metric)))
    # If no two candidates agree in all parameters but one, as in a random search, there are no
    # lines to draw.
    columns = [found.column(name) for name in names]
    others = [[*zip(*columns[:k], *columns[k + 1 :], strict=True)] for k in range(len(names))]
    if len(names) < 2 or any(len(set(rest)) < len(rest) for rest in others):
        caption = "Mean scores over one parameter, one line for each value of the others"
        asked.append((caption, partial(CVCurveDisplay.from_search, search, metric=found.metric)))
    if hasattr(search, "plan_") and search.plan_.rungs:
        caption = "Scores of the best candidates over the rank of their kernel"
        asked.append((caption, partial(RankCurveDisplay.from_search, search)))
    return asked


def _held_out(search: Search, findings: Findings) -> Params:
    """Plots of held-out values, if they were kept, and the rows that are predicted wrongly."""
    if findings.held:
        return {"why_none": findings.held}
    kinds = _KINDS
    if not is_classifier(search):
        kinds = {"predicted": "Predicted against true values of held-out rows"}
    held = search.out_of_fold()
    rows, most = int(np.count_nonzero(held.repeats)), held.repeats.max()
    times = "" if most <= 1 else f", up to {most} times each"
    draw = OutOfFoldDisplay.from_search
    asked = [(words, partial(draw, search, kind=kind)) for kind, words in kinds.items()]
    worst = (_wrong_labels if is_classifier(search) else _largest_errors)(search, held)
    return {
        "why_none": "",
        "summary": f"{rows} of {len(held.repeats)} rows were held out{times}; values are "
        f"{held.status}.",
        "pictures": _pictures(asked, "h"),
        "worst": _worst_table(worst, held, findings.ids),
    }


# -- rows that were predicted wrongly --------------------------------------------------------------

# A sentence, the rows, and their columns by name; a column of None is left out.
_Worst = tuple[str, Index, dict[str, Sequence[str] | None]]


def _worst_table(worst: _Worst, held: _Held, ids: AnyArray | None) -> Params:
    """The rows by their names, and how much the folds of each disagree if there are several."""
    summary, rows, columns = worst
    names = [str(row) if ids is None else brief(ids[row]) for row in rows]
    spread = None
    if held.repeats.max() > 1 and len(rows):
        spread = [number(v) for v in held.spread[rows].reshape(len(rows), -1).max(axis=1)]
    named = {"row" if ids is None else "id": names, **columns}
    named["other folds" if "label" in columns else "spread"] = spread
    shown = {name: column for name, column in named.items() if column is not None}
    return {
        "summary": summary,
        "header": list(shown),
        "rows": list(zip(*shown.values(), strict=True)),
    }


def _wrong_labels(search: Search, held: _Held) -> _Worst:
    """Rows with the wrong label, the most certain first."""
    known = known_rows(held.spread)
    wrong, count = known[held.values[known] != held.truth[known]], len(known)
    if not len(wrong):
        return f"All {count} held-out rows have the right label.", wrong, {}
    margin = _margins(search, held, wrong)
    order = np.argsort(-np.nan_to_num(margin), kind="stable")[:MAX_WORST_ROWS]
    rows = wrong[order]
    most = f" The {MAX_WORST_ROWS} most certain ones:" if len(wrong) > MAX_WORST_ROWS else ""
    columns: dict[str, Sequence[str] | None] = {
        "label": [brief(value) for value in held.truth[rows]],
        "predicted": [brief(value) for value in held.values[rows]],
        "margin": None if np.isnan(margin).all() else [number(m) for m in margin[order]],
    }
    return f"{len(wrong)} of {count} held-out rows have the wrong label.{most}", rows, columns


def _margins(search: Search, held: _Held, rows: Index) -> Array:
    """By how much the predicted label beats the right one; NaN where values are of pairs."""
    values = search.out_of_fold(method="decision_function").values[rows]
    if values.ndim == 1:
        return np.abs(np.asarray(values, dtype=np.float64))
    classes, every = np.unique(held.truth), np.arange(len(values))
    if values.shape[1] != len(classes):
        return np.full(len(values), np.nan)
    predicted, right = (
        np.searchsorted(classes, part[rows].astype(classes.dtype))
        for part in (held.values, held.truth)
    )
    margins: Array = values[every, predicted] - values[every, right]
    return margins


def _largest_errors(search: Search, held: _Held) -> _Worst:
    """The rows with the largest errors, of several targets relative to their spread."""
    truth, values = (part.reshape(len(part), -1) for part in (held.truth, held.values))
    errors = values - truth
    scale = np.nanstd(truth, axis=0)
    size = np.max(np.abs(errors) / np.where(scale > 0.0, scale, 1.0), axis=1)
    known = np.flatnonzero(np.isfinite(size))
    rows = known[np.argsort(-size[known], kind="stable")][:MAX_WORST_ROWS]
    columns: dict[str, Sequence[str] | None] = {}
    for k in range(truth.shape[1]):
        target = f" {k}" if truth.shape[1] > 1 else ""
        for name, part in (("measured", truth), ("predicted", values), ("error", errors)):
            columns[f"{name}{target}"] = [number(v) for v in part[rows, k]]
    return f"The {len(rows)} largest errors of {len(known)} held-out rows:", rows, columns


# -- rows and groups that carry the score ----------------------------------------------------------


def _influence(findings: Findings, score: str) -> Params:
    """Pictures and tables of what deleting rows or groups changes."""
    found, ids = findings.influence, findings.ids
    if isinstance(found, str):
        return {"why_none": found, "parts": ()}
    return {
        "why_none": "",
        "parts": [
            _influence_part(name, own, score, ids if name == "row" else None)
            for name, own in found.items()
        ],
    }


def _influence_part(what: str, found: _Influence, score: str, ids: AnyArray | None) -> Params:
    names = np.array([brief(v) for v in (found.labels if ids is None else ids)], dtype=object)
    effect, missing = found.effect, np.count_nonzero(np.isnan(found.effect))
    words = f"With all rows, the mean {score} of the winner is {number(found.score)}; it would "
    count, whole = len(found.harmful), pluralise(len(effect), what)
    words += (
        f"be higher without any one of {count} of " if count else "not be higher without any of "
    )
    words += f"{whole}."
    if missing:
        few = pluralise(int(missing), what)
        words += f" There is no model or no score without any one of {few}."
    if len(found.suspects) and what == "row":
        shown = ", ".join(names[found.suspects[:MAX_INFLUENCES]])
        more = ", …" if len(found.suspects) > MAX_INFLUENCES else ""
        words += f" Rows whose label or target looks wrong: {shown}{more}."
    sizes = np.abs(np.nan_to_num(effect))
    largest = np.argsort(-sizes, kind="stable")[: min(MAX_INFLUENCES, np.count_nonzero(sizes))]
    display = InfluenceDisplay(effect=effect, labels=names, name=what, n_shown=MAX_INFLUENCES)
    caption = f"The {what}s whose deletion changes the mean {score} most"
    return {
        "words": words,
        "pictures": _pictures([(caption, display.plot)] if len(largest) else [], what),
        "header": (what if ids is None else "id", "score without it", "change"),
        "rows": [(names[k], number(found.score + effect[k]), f"{effect[k]:+.3g}") for k in largest],
        "how": f"{found.how[:1].upper()}{found.how[1:]}.",
    }


# -- candidates ------------------------------------------------------------------------------------


def _candidates(found: ScoreTable, is_worse: Mask | str) -> Params:
    """All candidates, or the best of very many, to be sorted and filtered."""
    # The winner first, then by mean score; those without one last.
    place = -np.where(np.isnan(found.mean), -np.inf, found.mean)
    if found.best is not None:
        place[found.best] = -np.inf
    order = np.argsort(place, kind="stable")
    few = f"The best {MAX_CANDIDATES} of {len(order)}; cv_results_ has all."
    columns = _columns(found, is_worse)
    return {
        "left_out": few if len(order) > MAX_CANDIDATES else "",
        "example": next((f"{short(name)}>1" for name in found.numeric()), "exact"),
        "header": list(columns),
        "rows": [[column[k] for column in columns.values()] for k in order[:MAX_CANDIDATES]],
        "best": None if found.best is None else 0,
    }


def _columns(found: ScoreTable, is_worse: Mask | str) -> dict[str, list[str]]:
    """The cells of every column, by its name."""
    results, count = found.results, len(found.results["params"])
    columns = {"candidate": [str(k) for k in range(count)]}
    rank = f"rank_test_{found.metric}"
    if rank in results:
        columns["rank"] = [str(place) for place in results[rank]]
    # Names without the step of a Pipeline, unless two steps have a parameter of the same name.
    is_clear = len({short(name) for name in found.names}) == len(found.names)
    for name in found.names:
        shown = short(name) if is_clear else name
        columns[shown] = [brief(value) for value in results[f"param_{name}"]]
    for metric in metrics_of(results):
        shown = found.label if metric == found.metric else metric
        columns[shown] = [number(value) for value in results[f"mean_test_{metric}"]]
    if found.n_splits > 1:
        columns["std. error"] = [number(value) for value in found.error]
    refits = results.get(f"confirmed_test_{found.metric}", np.array([np.nan]))
    if np.isfinite(refits).any():
        columns["refitted"] = [number(value) for value in refits]
    if not isinstance(is_worse, str):
        columns["worse"] = ["yes" if worse else "no" for worse in is_worse]
    if "status" in results:
        columns["status"] = [str(status) for status in results["status"]]
    return columns

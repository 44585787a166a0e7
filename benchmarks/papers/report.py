"""The tables of all papers as one page of Markdown and a picture, from stored cells alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from benchmarks.papers import fbif2018
from benchmarks.papers.papers import PAPERS
from benchmarks.papers.profiles import PROFILES
from benchmarks.papers.study import Found, Result
from benchmarks.papers.tables import CurveTable, ErrorTable, wrapped

HEAD = """\
# The papers, printed and reproduced

This page is written by `python -m benchmarks.papers report` from the cells in
`benchmarks/results/papers`; nothing on it is typed. `make reproduce` computes all of it (hours;
`SPLITS=k` for fewer repetitions), `make reproduce-quick` the smallest sets. What each method is,
and how it is called: [papers.md](papers.md). Data are looked for in `../shared/data`, then in
`~/.cache/everyfold` (or `$EVERYFOLD_DATA`), then on their public pages.

Each entry is our mean ± standard deviation over splits, *the printed mean* and (the difference of
the two). ▲ is significantly worse than the t-CV of the same table at the 95 % level by the
paper's own test, ▽ significantly better; with fewer repetitions than the paper's, the quantile is
that of fewer. n is the number of training rows. Rows of times are seconds of refits by
scikit-learn's GridSearchCV (a sub-grid, scaled up to the whole) and how many times faster each
method is; medians in one process with one thread, nothing else running. Splits overlap, which
makes every such test a little too sure."""


def write(folder: Path, found: Found, sessions: Sequence[Result], papers: Sequence[str]) -> None:
    """Write ``reproduction.md`` and the picture into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "reproduction.md"
    path.write_text(page(found, sessions, papers), encoding="utf-8")
    for table in _tables(papers, CurveTable):
        if table.curves(found):
            draw(table, found, folder / table.picture)
    print(f"wrote {path}")


def page(found: Found, sessions: Sequence[Result], papers: Sequence[str]) -> str:
    """The whole page."""
    parts = [wrapped(HEAD), computed(found, sessions), claims(found, papers)]
    for paper in papers:
        declared = PAPERS[paper]
        if any(key[0] == paper for key in found):
            tables = [table.markdown(found) for table in declared.TABLES]
            parts += [f"## {declared.TITLE}", wrapped(declared.remarks(found)), *tables]
    return "\n\n".join(part for part in parts if part) + "\n"


def computed(found: Found, sessions: Sequence[Result]) -> str:
    """Machine, versions, threads, splits."""
    lines = [
        f"* {about['machine']}; Python {about['python']}, NumPy {about['numpy']}, SciPy "
        f"{about['scipy']}, scikit-learn {about['scikit-learn']}, everyfold {about['everyfold']}; "
        f"profile `{about['profile']}`, processes: {about['jobs']}, BLAS threads of each: "
        f"{about['threads']}"
        for about in {str(session): session for session in sessions}.values()
    ]
    splits = [int(key[4]) + 1 for key, result in found.items() if "error" in result]
    lines.append(
        f"* {len(found)} cells; up to {max(splits, default=0)} splits of a set (the column "
        "*splits* has the number; the papers have 10 to 100)"
    )
    largest = {PROFILES[session["profile"]].largest for session in sessions} - {None}
    lines += [
        f"* sets of more than {rows:,} rows are sub-samples of {rows:,} in the tables of errors, "
        "drawn anew for every split, and whole in those of times but for cpusmall (2,560)"
        for rows in largest
    ]
    return "\n".join(["## Computed", "", *map(wrapped, lines)])


def claims(found: Found, papers: Sequence[str]) -> str:
    """The claims that are tested, and what became of them."""
    lines = map(wrapped, [*_speed(found), *_never_worse(found, papers)])
    return "\n".join(["## Claims", "", *lines])


def _speed(found: Found) -> Iterator[str]:
    table = fbif2018.TABLE_2
    sets = [rows for rows in table.rows if rows.size > 500]
    for method in ("default 10", "10-FBIF"):
        ratios = {rows.label: table.ratio(found, rows.label, method) for rows in sets}
        ratios = {label: ratio for label, ratio in ratios.items() if np.isfinite(ratio)}
        if not ratios:
            continue
        shown = ", ".join(f"{label} {ratio:.0f}×" for label, ratio in ratios.items())
        missed = [label for label, ratio in ratios.items() if ratio < _wanted(label)]
        outcome = f"missed on {', '.join(missed)}" if missed else "holds on all"
        yield (
            f"* **{method}** on the grid of 2018, at least 10 times faster than refitting on every "
            f"set of more than 500 rows and 20 times on abalone and cpusmall: {outcome} ({shown})."
        )


def _wanted(label: str) -> float:
    return 20.0 if label in {"abalone", "cpusmall"} else 10.0


def _never_worse(found: Found, papers: Sequence[str]) -> Iterator[str]:
    tests, worse = 0, []
    for table in _tables(papers, ErrorTable):
        name = next((m.name for m in table.methods if m.name.startswith("default")), None)
        if name is None or table.measure == "mape":
            continue
        verdict = table.verdict(found, name, table.references[name])
        tests += len(verdict.sets)
        worse += [f"{table.paper} {table.name} {label}" for label in verdict.worse]
    outcome = f"worse in {len(worse)} ({', '.join(worse)})" if worse else "worse in none"
    yield (
        f"* **Our default is never significantly worse than t-CV** at the 95 % level: of {tests} "
        f"comparisons (sets and tables), {outcome}. By chance alone one expects up to "
        f"{0.05 * tests:.0f}."
    )


def _tables(papers: Sequence[str], kind: type) -> list:
    return [table for paper in papers for table in PAPERS[paper].TABLES if isinstance(table, kind)]


def draw(table: CurveTable, found: Found, path: Path) -> None:
    """Reported errors over the ridge, one panel a set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    curves = table.curves(found)
    figure, axes = plt.subplots(1, len(curves), figsize=(4.2 * len(curves), 3.6), squeeze=False)
    styles = (
        {"color": "C1", "lw": 5, "alpha": 0.45},
        {"color": "C3", "lw": 1.8, "ls": "--"},
        {"color": "C0", "lw": 1.8},
    )
    for ax, (label, curve) in zip(axes[0], curves.items(), strict=True):
        *series, truth = table.methods
        ax.plot(curve["ridges"], curve[truth.name], color="0.6", lw=5, label="refits")
        for method, style in zip(series, styles, strict=True):
            ax.plot(curve["ridges"], curve[method.name], label=method.name, **style)
        ax.set_xscale("log", base=2)
        ax.set(title=f"{label}, n = {curve['train']}", xlabel="λ", ylim=(-1.0, None))
    axes[0, 0].set_ylabel("10-fold error (%)")
    axes[0, 0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)

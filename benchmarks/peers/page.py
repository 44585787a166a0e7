"""The page and its picture, from kept results alone."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.peers.peers import PEERS, TRIALS
from benchmarks.peers.problems import PROBLEMS, ROOT, Problem

Kept = dict[tuple[str, str], dict[str, Any]]
HEAD = """\
# Peers

This page is written by `python -m benchmarks.peers report`; nothing on it is typed. Searches of
the same 6 × 6 grid (C or alpha, gamma) with the same five folds on three quarters of the rows;
the rest is held out. *Time* is that of the search and the fit of its winner, one
thread{clock}; *ratio* is GridSearchCV's time over it. *Off* is how far
the reported score of the winner is from that of refits on the same folds. *Error* is that on the
rows held out: share of mistakes, or squared error as a share of the variance. Nystroem + RidgeCV
has 300 landmarks and searches gamma alone (leave-one-out chooses the ridge); optuna draws {trials}
times from the same ranges; neo-ls-svm chooses its own kernel by leave-one-out and has no folds;
himalaya and torchkm share one kernel's factorisation between ridges and are called once a gamma.
What was stopped after ten minutes says so. Times of compiling and
importing are left out.
"""


WHY = {
    "neo-ls-svm": "It searches no grid: its features are scaled by a rule of its own and its ridge "
    "is set by leave-one-out, which is one fit where a grid of 6 × 6 with five folds has 180."
}
"""What a peer does otherwise that may be ahead."""


def write(kept: Kept) -> None:
    """The page and its picture."""
    quiet = all(record["quiet"] for record in kept.values())
    clock = "" if quiet else " († processor time: the machine was shared at that moment)"
    parts = [
        HEAD.format(clock=clock, trials=TRIALS),
        verdict(kept),
        "![Time against rows](peers.png)\n",
    ]
    parts += [table(problem, kept) for problem in PROBLEMS.values()]
    versions = sorted({str(record["versions"]) for record in kept.values() if "versions" in record})
    parts.append(
        f"Measured on {platform.machine()}, {os.cpu_count()} cores; {'; '.join(versions)}.\n"
    )
    (ROOT / "docs" / "peers.md").write_text("\n".join(parts), encoding="utf-8")
    draw(kept, ROOT / "docs" / "peers.png")


def seconds(record: dict[str, Any]) -> float:
    return float(record["wall" if record["quiet"] else "processor"])


def is_ahead(theirs: dict[str, Any], ours: dict[str, Any]) -> bool:
    """Whether a peer is faster, and better on the rows held out."""
    if "wall" not in theirs:
        return False
    return seconds(theirs) < seconds(ours) and theirs["held"] < ours["held"]


def verdict(kept: Kept) -> str:
    """Who is ahead of everyfold in time and in error on the rows held out."""
    ahead = []
    for label in PROBLEMS:
        ours = kept.get(("everyfold", label))
        for peer in PEERS:
            theirs = kept.get((peer, label))
            if ours and theirs and is_ahead(theirs, ours):
                ahead.append(f"{peer} on {label}")
    if not ahead:
        return "No peer is ahead in both time and error on any set.\n"
    words = f"**Ahead of everyfold in both time and error: {', '.join(ahead)}.**"
    why = " ".join(WHY[peer] for peer in WHY if any(peer in entry for entry in ahead))
    return f"{words} {why}".rstrip() + "\n"


def table(problem: Problem, kept: Kept) -> str:
    records = {peer: kept.get((peer, problem.label)) for peer in PEERS}
    found = {peer: record for peer, record in records.items() if record}
    rows = next((record["rows"] for record in found.values() if "rows" in record), 0)
    lines = [f"## {problem.label}: {problem.kind}, {rows:,} rows searched", ""]
    lines += ["| peer | time | ratio | reported | off | error |", "|---|---|---|---|---|---|"]
    base = found.get("GridSearchCV", {})
    for peer, record in found.items():
        if "failed" in record:
            lines.append(f"| {peer} | failed: {record['failed']} | | | | |")
            continue
        ratio = f"{seconds(base) / seconds(record):.1f}×" if "wall" in base else "—"
        scaled = f" (1/{record['scaled']:.0f} of it run)" if record["scaled"] != 1 else ""
        mark = "" if record["quiet"] else " †"
        off = None if record["true"] is None else abs(record["reported"] - record["true"])
        entries = [_shown(record["reported"]), _shown(off, ".0e"), _shown(record["held"])]
        lines.append(
            f"| {peer} | {seconds(record):.3g} s{mark}{scaled} | {ratio} | {' | '.join(entries)} |"
        )
    return "\n".join(lines) + "\n"


def _shown(value: float | None, form: str = ".4f") -> str:
    return "—" if value is None or np.isnan(value) else format(value, form)


def draw(kept: Kept, path: Path) -> None:
    """Time against the number of rows, one line a peer."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7.5, 4.6))
    for k, peer in enumerate(PEERS):
        records = [r for (name, _), r in kept.items() if name == peer and "wall" in r]
        points = sorted((record["rows"], seconds(record)) for record in records)
        if points:
            style = {"lw": 3, "color": "k"} if peer == "everyfold" else {"lw": 1, "color": f"C{k}"}
            ax.plot(*zip(*points, strict=True), marker="o", label=peer, **style)
    ax.set(xscale="log", yscale="log", xlabel="rows searched", ylabel="seconds of a search")
    ax.legend(frameon=False, fontsize=8, bbox_to_anchor=(1.0, 1.0), loc="upper left")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)

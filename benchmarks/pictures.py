"""Draw the two pictures of README and of the front page of the site.

``docs/surface.png`` is drawn by README's own example; the times of ``docs/speed.png`` are those of
``benchmarks/results``. Run it from the root of the project: ``python benchmarks/pictures.py``.
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DOTS = 110  # per inch: sharp enough, and less than 50 kB each

# Names of searches in everyday.txt, and what the picture calls them.
SEARCHES = {
    "SVC, breast cancer, Pipeline": "Pipeline with SVC, 569 rows, 80 candidates",
    "SVC, german.numer, 10 folds": "SVC, 1000 rows, 80 candidates",
    "SVC, six classes": "SVC, six classes, 2000 rows, 30 candidates",
    "KernelRidge, Pipeline": "Pipeline with KernelRidge, 2000 rows, 256 candidates",
    "KernelRidge, abalone, ladder": "KernelRidge, 3341 rows, 256 candidates",
    "KernelRidge, nested": "nested search of KernelRidge, 1000 rows",
}


def measured() -> dict[str, tuple[float, float]]:
    """Seconds of scikit-learn and ours, by the names of the first run in the file."""
    text = (RESULTS / "everyday.txt").read_text("utf-8").partition("\n\n")[0]
    row = re.compile(r"^(\S.*?) {2,}.*? ([\d.]+) +([\d.]+) +[\d.]+ [<>]=", re.MULTILINE)
    found = {name: (float(theirs), float(ours)) for name, theirs, ours in row.findall(text)}
    return {words: found[name] for name, words in SEARCHES.items()}


def draw_speed(path: Path) -> None:
    """Draw both times of every search as two dots, and their ratio beside them."""
    figure, ax = plt.subplots(figsize=(7.6, 2.7), layout="constrained")
    times = measured()
    for place, (theirs, ours) in enumerate(reversed(times.values())):
        ax.plot([ours, theirs], [place, place], color="0.8", lw=3, zorder=1)
        ax.scatter(theirs, place, color="0.45", zorder=2, label="GridSearchCV")
        ax.scatter(ours, place, color="C0", zorder=2, label="everyfold")
        ax.annotate(
            f"{theirs / ours:.0f}×",
            (theirs, place),
            (8, 0),
            textcoords="offset points",
            va="center",
        )
    ax.set(xscale="log", xlabel="seconds of one search", xlim=(0.2, 5000))
    ax.set_yticks(range(len(times)), list(times)[::-1])
    ax.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1000"])
    ax.spines[["top", "right"]].set_visible(False)
    handles = dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))
    ax.legend(handles.values(), handles, frameon=False, loc="upper right")
    figure.savefig(path, dpi=DOTS)
    plt.close(figure)


def draw_surface(path: Path) -> None:
    """Run README's example, and keep what it draws."""
    page = (ROOT / "README.md").read_text("utf-8")
    example = page.partition("```python\n")[2].partition("```")[0]
    names: dict[str, object] = {}
    exec(example, names)
    figure = plt.gcf()
    figure.set_size_inches(5.6, 3.6)
    figure.savefig(path, dpi=DOTS)
    plt.close(figure)


if __name__ == "__main__":
    draw_speed(ROOT / "docs" / "speed.png")
    draw_surface(ROOT / "docs" / "surface.png")

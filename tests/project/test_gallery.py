"""The gallery: its examples run, show a picture, and need nothing but the library."""

import re
import runpy
from pathlib import Path

import matplotlib
import pytest

GALLERY = Path(__file__).parents[2] / "examples" / "gallery"
EXAMPLES = sorted(GALLERY.glob("*.py"))


@pytest.mark.filterwarnings("ignore::everyfold.InexactWarning")  # some approximate on purpose
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_draws(example, monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.setattr(matplotlib, "interactive", lambda _: None)
    plt.switch_backend("Agg")
    plt.close("all")
    runpy.run_path(str(example))
    drawn = [plt.figure(number).axes for number in plt.get_fignums()]
    plt.close("all")
    assert drawn
    assert all(axes for axes in drawn)


def test_there_are_enough_of_them():
    assert len(EXAMPLES) >= 12
    assert all(example.name.startswith("plot_") for example in EXAMPLES)


def test_every_example_has_its_place():
    """The order of the gallery is a list, which names every file once."""
    settings = (GALLERY.parents[1] / "docs" / "conf.py").read_text("utf-8")
    listed = re.findall(r'"(plot_\w+\.py)"', settings)
    assert sorted(listed) == [example.name for example in EXAMPLES]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_stands_alone(example):
    """A title, a picture, data of its own."""
    text = example.read_text("utf-8")
    title, underline = text.split("\n")[1:3]
    assert title
    assert underline == "=" * len(title)
    assert "Display.from_" in text or "plt.subplots" in text
    assert "shared" not in text
    assert "fetch_" not in text

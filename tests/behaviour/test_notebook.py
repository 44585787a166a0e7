"""A real notebook without a screen: the plan, a bar while the search runs, its result, a report."""

import json
from pathlib import Path

import pytest

import everyfold

CELLS = {
    "search": """
from sklearn.datasets import load_iris
from sklearn.svm import SVC
from everyfold import FastGridSearchCV

X, y = load_iris(return_X_y=True)
grid = {"C": [0.1, 1.0, 10.0], "gamma": [0.01, 0.1, 1.0]}
search = FastGridSearchCV(SVC(), grid, cv=3, verbose=1)
""",
    "plan": "search.plan(X, y)",
    "fit": "search.fit(X, y)",
    "done": "search.plan_",
    "report": "search.report('report.html')",
    "score": "search.best_score_",
}


@pytest.fixture(name="shown", scope="module")
def run_notebook(tmp_path_factory):
    """The outputs of every cell, by its name."""
    nbclient = pytest.importorskip(
        "nbclient", reason="nbclient runs notebooks: pip install '.[dev]'"
    )
    pytest.importorskip("ipykernel", reason="ipykernel runs notebooks: pip install '.[dev]'")
    nbformat = pytest.importorskip("nbformat")
    folder = tmp_path_factory.mktemp("notebook")
    package = str(Path(everyfold.__file__).parents[1])
    first = f"import sys; sys.path.insert(0, {package!r})"
    cells = [nbformat.v4.new_code_cell(source) for source in (first, *CELLS.values())]
    book = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": folder}})
    client.execute()
    return dict(zip(CELLS, (cell.outputs for cell in book.cells[1:]), strict=True)), folder


def pages(outputs):
    return "".join(output.get("data", {}).get("text/html", "") for output in outputs)


def printed(outputs, stream):
    found = (o.text for o in outputs if o.output_type == "stream" and o.name == stream)
    return "".join(found)


@pytest.mark.filterwarnings("default")  # of the kernel's own packages
def test_a_notebook_shows_plan_bar_result_and_report(shown):
    outputs, folder = shown
    assert not outputs["search"]
    for name in ("plan", "done"):
        assert "<td" in pages(outputs[name])
        assert "9 candidates = 3 kernels" in pages(outputs[name])
    assert "estimate" in pages(outputs["plan"])
    assert "9 candidates" in json.dumps(outputs["fit"])  # the bar, or a line for every kernel
    fitted = pages(outputs["fit"])
    assert "FastGridSearchCV" in fitted
    assert "9 candidates = 3 kernels" in fitted
    assert not any(o.output_type == "error" for cell in outputs.values() for o in cell)
    assert "Warning" not in "".join(printed(cell, "stderr") for cell in outputs.values())
    assert "<html" in (folder / "report.html").read_text("utf-8")

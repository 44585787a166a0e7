"""What the documentation says is true: its examples run, its links lead somewhere."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import everyfold
from tests.project.test_architecture import LAYERS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
SKIP = "<!-- not run -->"
GUIDE = ("judge", "search", "predictions", "models", "lowrank")
MAIN = (*GUIDE, "mathematics", "papers")

on_every_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


def blocks(text):
    """Line number and source of every Python block that is to be run.

    Left out are blocks below the marker and those of an interactive session, whose prompts are no
    Python.
    """
    lines = text.splitlines()
    opened, above = None, ""
    for number, line in enumerate(lines):
        if opened is None and line.startswith("```"):
            opened, skipped = number, line.strip() != "```python" or above == SKIP
        elif opened is not None and line.strip() == "```":
            source = lines[opened + 1 : number]
            if not skipped and not any(code.startswith(">>>") for code in source):
                yield opened + 2, "\n".join(source)
            opened = None
        above = line.strip() or above
    if opened is not None:
        raise ValueError(f"the block of line {opened + 1} is not closed")


def run(text, name):
    """Run all blocks of a page in one namespace."""
    namespace = {"__name__": "__page__"}
    for number, (line, source) in enumerate(blocks(text), start=1):
        # Empty lines in front make the line numbers of a traceback those of the page.
        code = "\n" * (line - 1) + source
        try:
            exec(compile(code, name, "exec"), namespace)
        except Exception as error:
            raise AssertionError(
                f"{name}, block {number} (line {line}): {type(error).__name__}: {error}"
            ) from error


@on_every_page
def test_examples_run(page):
    if page.name != "recipes.md":  # whose sections need packages of their own
        run(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)))


RECIPES = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8").split("\n## ")[1:]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda text: text.partition("\n")[0])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_recipes_run(recipe, tmp_path, monkeypatch):
    """Every recipe by itself, where the packages are installed that it needs."""
    title, _, text = recipe.partition("\n")
    for name in re.findall(r"<!-- needs: (\w+) -->", text):
        pytest.importorskip(name, reason=f"the recipe {title!r} needs {name}")
    monkeypatch.chdir(tmp_path)
    assert list(blocks(text))
    run(text, f"docs/recipes.md, {title}")


def test_what_one_search_gives_by_one_line_each(tmp_path, monkeypatch):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(
        r"^\| [^|]+ \| `([^`]+)` \|$", text.partition("| you want | line |")[2], re.M
    )
    assert len(lines) >= 10
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace = {name: getattr(everyfold, name) for name in everyfold.__all__}
    _, source = next(blocks(text))
    exec(source, namespace)
    for line in lines:
        assert eval(line, namespace) is not None or line.startswith("print("), line
    assert (tmp_path / "report.html").exists()


def test_the_example_of_the_readme_prints_what_is_shown(capsys, monkeypatch):
    """But for its times; the machine decides these."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (_, source), (_, second), *_ = blocks(text)
    names = {}
    exec(source, names)
    shown = text.partition(source)[2].partition("```text\n")[2].partition("```")[0]
    printed = capsys.readouterr().out
    lines = shown.splitlines()
    assert printed.splitlines()[:-1] == lines[:-1]
    cost = re.compile(r"cost +[\d.]+ s, estimated [\d.]+ s, about \d+ MB per worker")
    assert cost.fullmatch(printed.splitlines()[-1])
    assert cost.fullmatch(lines[-1])
    exec(second, names)
    lines = text.partition(second)[2].partition("```text\n")[2].partition("```")[0].splitlines()
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == [line.split()[0] for line in lines]
    assert printed[1] == lines[1]


def test_the_first_page_prints_what_it_shows(capsys):
    """But for the times."""
    text, names = (ROOT / "docs" / "start.md").read_text(encoding="utf-8"), {}
    shown = 0
    for _, source in blocks(text):
        exec(source, names)
        printed = capsys.readouterr().out
        below = text.partition(source + "\n```\n\n```text\n")[2].partition("```")[0]
        wanted, found = (re.sub("cost .*", "", lines) for lines in (below, printed))
        assert found == wanted, source
        shown += bool(below)
    assert shown == 3


def test_times_of_the_readme_are_in_the_results():
    """Both times of every row of its tables are in a file that a script has printed."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    files = (ROOT / "benchmarks" / "results").glob("*.txt")
    results = " ".join(file.read_text(encoding="utf-8") for file in files)
    printed = {float(number) for number in re.findall(r"\d+\.\d+|\d+", results)}
    rows = re.findall(r"^\|.*\| ([\d.]+) s(?: \(scaled\))? (?:→|/) ([\d.]+) s \|", text, re.M)
    assert len(rows) >= 15
    for number in {number for row in rows for number in row}:
        digits = len(number.partition(".")[2])
        assert any(f"{value:.{digits}f}" == number for value in printed), number


def test_the_main_pages_have_examples():
    for name in ("README.md", "CONTRIBUTING.md", *(f"docs/{n}.md" for n in MAIN)):
        assert list(blocks((ROOT / name).read_text(encoding="utf-8"))), name


def test_a_broken_example_is_reported_with_file_and_block():
    page = "```python\nx = 1\n```\ntext\n```python\n\nassert x == 2\n```\n"
    with pytest.raises(AssertionError, match=r"page\.md, block 2 \(line 6\): AssertionError"):
        run(page, "page.md")
    with pytest.raises(AssertionError, match=r"page\.md, block 1 .*SyntaxError"):
        run("```python\nx = = 1\n```\n", "page.md")


@pytest.mark.parametrize(
    "page",
    [
        f"{SKIP}\n```python\nraise RuntimeError\n```\n",
        f"{SKIP}\n\n```python\nraise RuntimeError\n```\n",
        "```python\n>>> 1 + 1\n3\n```\n",
        "```text\n```\n```sh\nmake test\n```\n",
    ],
)
def test_what_is_not_run(page):
    assert list(blocks(page)) == []


def test_only_the_block_below_the_marker_is_skipped():
    page = f"{SKIP}\n```python\na\n```\n```python\nb\n```\n"
    assert [source for _, source in blocks(page)] == ["b"]


def test_an_open_block_is_an_error():
    with pytest.raises(ValueError, match="line 1 is not closed"):
        list(blocks("```python\nx = 1\n"))


def anchor(heading):
    """The anchor that a heading gets: lower case, no punctuation, hyphens for spaces."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@on_every_page
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        path, _, fragment = target.partition("#")
        other = page.parent / path if path else page
        assert other.exists(), target
        if fragment:
            headings = re.findall(r"^#+ (.*)$", other.read_text(encoding="utf-8"), re.MULTILINE)
            assert fragment in map(anchor, headings), target


def test_every_package_is_in_the_table():
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    table = text.partition("\n## One table\n")[2].partition("\n\nImports")[0]
    packages = {
        package
        for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for package in re.findall(r"`(\w+)`", cell)
    }
    assert packages == set().union(*LAYERS)


def test_the_order_of_imports_on_the_page_is_the_one_that_is_enforced():
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    section = text.partition("\nImports go one way:\n")[2].partition("\nA package")[0]
    layers = "".join(line for line in section.splitlines() if line.strip()).split("→")
    assert [set(re.findall(r"\w+", layer)) for layer in layers] == LAYERS


def test_the_walk_is_the_way_that_a_search_takes():
    """The functions that the walk names by their files are called, first calls in this order."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    walk = text.partition("\n## One walk\n")[2].partition("\n## ")[0]
    assert re.findall(r"^(\d+)\. ", walk, re.MULTILINE) == [str(i) for i in range(1, 11)]
    named = re.findall(r"`([\w/]+\.py):(\w+)`", walk)
    package, called = Path(everyfold.__file__).parent, {}

    def note(frame, event, _):
        file = Path(frame.f_code.co_filename)
        if event == "call" and package in file.parents:
            name = frame.f_code.co_name
            called.setdefault((file.relative_to(package).as_posix(), name), len(called))

    namespace = {"__name__": "__page__"}
    _, source = next(blocks(walk))
    exec(source, namespace)  # compiles, so that the second time is short
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        namespace["search"].fit(namespace["X"], namespace["y"])
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert [step for step in named if step not in called] == []
    assert named == sorted(named, key=called.get)


def test_the_first_screen_of_the_readme():
    """One import line, installation in the first 35 lines, and figures between markers."""
    top = (ROOT / "README.md").read_text("utf-8").partition("\n---\n")[0]
    assert top.count("from sklearn.model_selection import") == 1
    assert top.index("FastGridSearchCV") < top.index("cross_val_score")
    assert "pip install" in "".join(top.splitlines()[:35])
    figures = re.search(r"<!-- figures: (.*?) -->(.*?)<!-- /figures -->", top, re.DOTALL)
    assert figures is not None
    assert all((ROOT / script).exists() for script in figures[1].split(", "))
    assert "| measurement | ratio | times | remark |" in figures[2]
    assert "`make demo`" in top


def test_every_public_name_is_in_the_readme_or_on_a_main_page():
    pages = ["README.md", *(f"docs/{page}.md" for page in MAIN)]
    text = "".join((ROOT / page).read_text("utf-8") for page in pages)
    assert [name for name in everyfold.__all__ if not re.search(rf"\b{name}\b", text)] == []


def test_versions_agree():
    for name, pattern in (
        ("CITATION.cff", rf"^version: {re.escape(everyfold.__version__)}$"),
        ("CHANGELOG.md", rf"^## \[{re.escape(everyfold.__version__)}\] - \d{{4}}-\d\d-\d\d$"),
    ):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert re.search(pattern, text, re.MULTILINE), name


def test_demo():
    """The demo shows equal numbers, both times and two plans, and says that both sides agree."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "demo.py"), "--quick"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    rows = re.findall(
        r"^  (.+?)\s{3,}([\d.]+)\s+([\d.]+)\s+(\S+)\s+([\d.]+) s\s+([\d.]+) s\s+([\d.]+)x$",
        done.stdout,
        re.MULTILINE,
    )
    assert [row[0] for row in rows] == [
        "scores, 10-fold",
        "scores, leave-one-out",
        "predictions, leave-one-out",
        "the best of 8",
    ]
    for _, theirs, ours, difference, *_ in rows:
        assert theirs == ours
        assert float(difference) < 1e-9
    winners = re.findall(r"selects (gamma=\S+, alpha=\S+)", done.stdout)
    assert len(winners) == 2
    assert len(set(winners)) == 1
    for side in ("GridSearchCV", "FastGridSearchCV"):
        assert re.search(rf"^   {side} +[\d.]+ s, selects C=\S+, gamma=", done.stdout, re.MULTILINE)
    assert len(re.findall(r"^  C=\S+, gamma=\S+ +0\.\d+ +0\.\d+$", done.stdout, re.MULTILINE)) == 5
    assert "8 candidates = 2 kernels" in done.stdout
    assert re.search(r"^ *method +\w+: ", done.stdout, re.MULTILINE)
    assert "120 rows, 120 folds" in done.stdout
    assert "Both sides agree" in done.stdout

"""The site: all names are in the reference, all pages in the navigation, and all can be read."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import everyfold
import everyfold.bounds
import everyfold.scorers
import everyfold.streams
from tests.project import matrix

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TASKS = 12

# The works of authors who are cited for several; any other name has one year everywhere.
YEARS = {
    "Liu & Liao": {"2015", "2017"},
    "Liu et al.": {"2013", "2014", "2018"},
    "Liu, Jiang & Liao": {"2013", "2014"},
}


def reference():
    """The names of the reference by their modules."""
    module, names = "", {}
    for line in (DOCS / "api.rst").read_text("utf-8").splitlines():
        if found := re.fullmatch(r"\.\. currentmodule:: (\S+)", line):
            module = found[1]
        elif re.fullmatch(r"   \w+", line):
            names.setdefault(module, []).append(line.strip())
    return names


@pytest.mark.parametrize(
    "module", [everyfold, everyfold.streams, everyfold.scorers, everyfold.bounds]
)
def test_every_public_name_is_in_the_reference(module):
    assert sorted(reference()[module.__name__]) == sorted(module.__all__)


def test_every_name_of_the_reference_exists_and_is_documented():
    for module, names in reference().items():
        for name in names:
            found = getattr(importlib.import_module(module), name)
            is_object = name == "neg_coefficient_of_variation"  # documented where it is made
            assert found.__doc__ or is_object, (module, name)


def test_the_reference_has_no_internals():
    public = {"everyfold", *(f"everyfold.{name}" for name in ("judge", "papers", "streams", "cli"))}
    public |= {f"everyfold.{name}" for name in ("scorers", "bounds", "plotting")}
    assert set(reference()) <= public
    assert not [name for names in reference().values() for name in names if name.startswith("_")]


def test_a_work_has_the_same_year_everywhere():
    name, found = "[A-Z][a-z]+", {}
    author = rf"{name}(?:,? {name})*(?: (?:and|&) {name}| et al\.)"
    files = [*DOCS.glob("*.md"), ROOT / "README.md", *ROOT.glob("src/**/*.py")]
    for file in [*files, *ROOT.glob("examples/**/*.py")]:
        text = " ".join(file.read_text("utf-8").split())
        for authors, year in re.findall(rf"({author}),? \(?((?:19|20)\d\d)\b", text):
            found.setdefault(authors.replace(" and ", " & "), set()).add(year)
    assert len(found) > 20
    assert {who: years for who, years in found.items() if len(years) > 1} == YEARS


@pytest.mark.parametrize("name", everyfold.__all__)
def test_reference_has_an_example(name):
    """And what computes says what that costs, and how exact it is."""
    text = getattr(everyfold, name).__doc__
    assert ">>> " in text
    if re.match("cross_|Fast|LSSV|Kernel|Huber|Quadratic|perm|learn|valid|Nys|Circ", name):
        assert "**Cost**" in text
        assert "**Exact?**" in text


def test_every_page_is_in_the_navigation():
    """Once; what is named there and has no file is a page to come."""
    settings = (DOCS / "conf.py").read_text("utf-8").partition("NAVIGATION = {")[2]
    named = re.findall(r'(?:docs/|")([\w-]+)>?",\n', settings.partition("\n}\n")[0])
    pages = {page.stem for page in [*DOCS.glob("*.md"), *DOCS.glob("*.rst"), *ROOT.glob("*.md")]}
    named = [name for name in named if name not in ("index", "README")]
    assert len(named) == len(set(named))
    assert pages - set(named) == {"index", "README"}


def script(name):
    """A script that checks a built site."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(name="links")
def read_links():
    return script("links")


def test_dead_links_are_found(links, tmp_path):
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here">1</a><a href="b.html#there">2</a><a href="c.html">3</a>'
        '<a href="https://example.org/gone">4</a><img src="d.png"><a href="#top">5</a>'
        '<script src="https://example.org/x.js"></script><img src="data:image/png;base64,AA==">'
    )
    (tmp_path / "b.html").write_text('<p id="here">')
    assert links.dead_links(tmp_path) == [
        "a.html: b.html#there is not on that page",
        "a.html: c.html does not exist",
        "a.html: d.png does not exist",
        "a.html: #top is not on that page",
        "a.html: https://example.org/x.js is loaded from another site",
    ]


@pytest.fixture(name="site", scope="module")
def build_site(tmp_path_factory):
    """The site of a copy of the pages; the examples of its gallery are shown, but not run."""
    for package in ("sphinx", "myst_parser", "numpydoc", "sphinx_gallery", "pydata_sphinx_theme"):
        pytest.importorskip(package, reason=f"{package} builds the site: pip install '.[docs]'")
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    for folder in ("docs", "examples"):
        made = shutil.ignore_patterns("gallery" if folder == "docs" else "", "api", "__pycache__")
        shutil.copytree(ROOT / folder, source / folder, ignore=made)
    for file in [*ROOT.glob("*.md"), ROOT / "CITATION.cff", ROOT / "LICENSE"]:
        shutil.copy(file, source)
    package = str(Path(everyfold.__file__).parents[1])
    options = ["-q", "-W", "--keep-going", "-D", "plot_gallery=0", "-c", "docs"]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, ".", site],
        cwd=source,
        env={**os.environ, "PYTHONPATH": package},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return site


@pytest.fixture(name="browser", scope="module")
def find_browser():
    pytest.importorskip("playwright", reason="playwright opens pages: pip install '.[docs]'")
    browser = script("browser")
    if (found := browser.find_browser()) is None:
        pytest.skip(f"no browser is installed; looked for {', '.join(browser.BROWSERS)}")
    return lambda site: list(browser.mistakes(site, found))


@pytest.mark.xdist_group("site")
def test_links_of_the_site_lead_somewhere(site, links):
    assert links.dead_links(site) == []


@pytest.mark.xdist_group("site")
def test_the_search_of_the_site_finds_the_words_of_the_papers(site):
    index = (site / "searchindex.js").read_text("utf-8")
    for word in ("bif", "granular", "circul", "nystrom", "jackknif"):
        assert f'"{word}":' in index


@pytest.mark.xdist_group("site")
def test_every_page_fits_wide_and_narrow_screens(site, browser):
    """Nothing sticks out at 1280 and 390 px, nothing is cut off at 1280, no error is logged."""
    assert browser(site) == []


@pytest.mark.xdist_group("site")
def test_what_does_not_fit_a_page_is_found(browser, tmp_path):
    long = "x" * 300
    (tmp_path / "a.html").write_text(
        f"<article><h1>{long}</h1><pre style='overflow: auto'>{long}</pre>"
        "<div style='width: 400px'>narrow</div></article><script>console.error('oh')</script>"
    )
    (tmp_path / "b.html").write_text("<article><h1>good</h1><script>gone()</script></article>")
    found = browser(tmp_path)
    for line in (
        r"a\.html, 1280 px: sticks out by \d+ px: <h1 .*> xxx",
        r"a\.html, 1280 px: cut off by \d+ px: <pre .*> xxx",
        r"a\.html, 390 px: sticks out by \d+ px: <div .*> narrow",
        r"a\.html: oh",
        r"b\.html: gone is not defined",
    ):
        assert any(re.match(line, other) for other in found), (line, found)
    assert not any(re.match(r"a\.html, 390 px: cut off", other) for other in found)


def flowchart():
    """Where the boxes of the drawing lead."""
    drawing = ElementTree.parse(DOCS / "which.svg").getroot()
    return [box.get("href") for box in drawing.iter("{http://www.w3.org/2000/svg}a")]


def test_boxes_of_the_flowchart_lead_to_what_exists():
    *tasks, start = flowchart()
    assert len(set(tasks)) == TASKS
    assert start == "start.html"
    for link in tasks:
        page = link.partition("#")[0].removesuffix(".html")
        assert (DOCS / f"{page}.md").exists() or (ROOT / "examples" / f"{page}.py").exists(), link


@pytest.mark.parametrize("page", ["index", "which"])
def test_every_task_is_one_click_from_an_example(page):
    """The tables of both pages lead where the boxes lead."""
    text = (DOCS / f"{page}.md").read_text("utf-8")
    table = text.partition("| runnable example |")[2].partition("\n\n")[0]
    rows = [row for row in table.splitlines() if row.startswith("| ") and "---" not in row]
    assert len(rows) == TASKS
    leads = {
        target.replace("../examples/", "").replace(".py", ".html").replace(".md", ".html")
        for target in re.findall(r"\]\(([^)]+)\)", table)
    }
    assert set(flowchart()[:-1]) <= leads


def test_the_table_of_versions_takes_new_lines():
    """A line takes the place of that of the same Python and kind; the others stay."""
    page = "before\n<!-- matrix -->\n<!-- /matrix -->\nafter\n"
    first = matrix.line("3.12", "newest", {"numpy": "2.0", "outcome": "3 failed"})
    page = matrix.merge(page, [first, matrix.line("3.11", "oldest", {"outcome": "9 passed"})])
    page = matrix.merge(page, [matrix.line("3.12", "newest", {"outcome": "4 passed"})])
    rows = [row for row in page.splitlines() if row.startswith("| 3.")]
    assert [row.split(" | ")[1] for row in rows] == ["oldest", "newest"]
    assert rows[1].endswith("| 4 passed |")
    assert page.startswith("before\n<!-- matrix -->\n")
    assert page.endswith("<!-- /matrix -->\nafter\n")


def test_the_oldest_versions_are_those_that_are_allowed():
    needs = {need.partition("==")[0] for need in matrix.lowest()}
    assert needs == set(matrix.PACKAGES)

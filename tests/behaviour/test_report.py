"""The page about a search: all of it there, nothing of it executable, and right where it counts."""

import json
import os
import pickle
import re
import select
import shutil
import subprocess
import sys
import unicodedata
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from markupsafe import Markup, escape
from scipy.stats import loguniform
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    ShuffleSplit,
    TimeSeriesSplit,
    cross_val_predict,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from everyfold import (
    LSSVC,
    LSSVR,
    FastGridSearchCV,
    FastRandomizedSearchCV,
    KernelLogisticClassifier,
    judge,
)
from everyfold.io.arrays import ArrayRows

pytest.importorskip("jinja2")
matplotlib = pytest.importorskip("matplotlib")
pytest.importorskip("matplotlib.figure")
matplotlib.use("Agg")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(70, 3))
y = np.sin(2.0 * X[:, 0]) + 0.3 * RNG.normal(size=70)
GRID = {"alpha": np.logspace(-3, 1, 3), "gamma": np.logspace(-2, 1, 3)}
EVIL = "<script>alert('x')</script>"


class Page(HTMLParser):
    """What a browser would see: texts, tags, tables by the header of their section."""

    def __init__(self, path):
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.tags, self.texts, self.rows, self.links, self.open = [], [], [], [], []
        self.feed(self.source)
        self.words = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, name, attributes):
        self.tags.append(name)
        self.open.append(name)
        self.links += [v for k, v in attributes if k in ("src", "href", "xlink:href", "action")]
        if name == "tr":
            self.rows.append([])
        if name in ("td", "th") and self.rows:
            self.rows[-1].append("")

    def handle_endtag(self, name):
        while self.open and self.open.pop() != name:
            pass

    def handle_data(self, data):
        if self.open and self.open[-1] in ("script", "style"):
            return
        self.texts.append(data)
        if {"td", "th"} & set(self.open[-2:]) and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data

    def table(self, first):
        """The rows below the header that begins with a word."""
        start = next(k for k, row in enumerate(self.rows) if row and row[0] == first)
        width = len(self.rows[start])
        rows = []
        for row in self.rows[start + 1 :]:
            if len(row) != width:
                break
            rows.append(dict(zip(self.rows[start], row, strict=True)))
        return rows


@pytest.fixture
def drawn_report(tmp_path):
    def write(search, **how):
        return Page(judge.report(search, tmp_path / "report.html", **how))

    return write


@pytest.fixture
def report(drawn_report, monkeypatch):
    """A page whose pictures are drawn and not written, which takes longest."""

    def draw_svg(draw, name, caption):
        draw(ax=matplotlib.figure.Figure(layout="constrained").subplots())
        return Markup("<svg></svg>")

    monkeypatch.setattr("everyfold.report.page.draw_svg", draw_svg)
    return drawn_report


def labels(n_classes=2, names=("no", "yes", "perhaps")):
    cuts = np.quantile(y, [0.5, 0.8])[: n_classes - 1]
    return np.array(names)[np.digitize(y, cuts)]


# -- what is on it -----------------------------------------------------------------------------


def test_a_page_for_numbers(report):
    search = FastGridSearchCV(LSSVR(), GRID, cv=5, keep_predictions="all").fit(X, y)
    page = report(search)
    assert page.tags.count("svg") == 4  # surface, curves, predicted against true values, influence
    assert page.tags.count("script") == 1
    best = search.best_params_
    assert f"alpha = {best['alpha']:.6g}, gamma = {best['gamma']:.6g}" in page.words
    assert f"{search.best_score_:.5g}" in page.words
    honest = search.honest_score()
    assert f"{honest.estimate:.5g}" in page.words
    assert f"{honest.interval[0]:.5g} to {honest.interval[1]:.5g} (95%)" in page.words
    equal = np.count_nonzero(~search.significantly_worse())
    assert f"{equal} of 9 candidates" in page.words
    assert str(search.plan_.methods[0][0]) in page.words
    assert "search.fit(X, y)" in page.words
    assert "scikit-learn" in page.words

    rows = page.table("candidate")
    assert rows[0]["candidate"] == str(search.best_index_)
    found = {int(row["candidate"]): float(row["R²"]) for row in rows}
    means = search.cv_results_["mean_test_score"]
    np.testing.assert_allclose([found[k] for k in range(9)], means, rtol=1e-4)
    assert list(found.values()) == sorted(found.values(), reverse=True)

    held = cross_val_predict(search.best_estimator_, X, y, cv=5)
    worst = np.argsort(-np.abs(held - y))
    rows = page.table("row")
    assert [int(row["row"]) for row in rows] == worst[:50].tolist()
    np.testing.assert_allclose(float(rows[0]["error"]), (held - y)[worst[0]], rtol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_page_for_labels_names_the_wrong_rows(report, n_classes):
    target = labels(n_classes)
    frame = pd.DataFrame(X, index=[f"patient {k}" for k in range(70)])
    search = FastGridSearchCV(LSSVC(), GRID, cv=4).fit(frame, target)
    page = report(search)
    held = cross_val_predict(search.best_estimator_, X, target, cv=4)
    wrong = np.flatnonzero(held != target)
    assert 0 < len(wrong) < 50
    rows = page.table("id")
    assert {row["id"] for row in rows} == {f"patient {k}" for k in wrong}
    for row in rows:
        k = int(row["id"].split()[1])
        assert (row["label"], row["predicted"]) == (target[k], held[k])
    margins = [float(row["margin"]) for row in rows]
    assert margins == sorted(margins, reverse=True)
    values = cross_val_predict(search.best_estimator_, X, target, cv=4, method="decision_function")
    k = int(rows[0]["id"].split()[1])
    if n_classes == 2:
        assert margins[0] == pytest.approx(abs(values[k]), rel=1e-4)
    assert page.tags.count("svg") == 5  # surface, curves, confusion, ROC, influence
    assert "Not drawn, calibration" in page.words
    assert "; without selection bias " in page.words


def test_probabilities_have_a_calibration_curve(report):
    grid = {"C": [0.1, 1.0], "gamma": [0.1, 1.0]}
    search = FastGridSearchCV(KernelLogisticClassifier(), grid, cv=4).fit(X, labels())
    assert report(search).tags.count("svg") == 6


def test_ids_are_checked_and_shown(report):
    search = FastGridSearchCV(LSSVR(), GRID, cv=3).fit(X, y)
    page = report(search, ids=[f"row-{k}" for k in range(70)], title="Wheat & rye")
    assert page.table("id")[0]["id"].startswith("row-")
    assert "<h1>Wheat &amp; rye</h1>" in page.source
    with pytest.raises(ValueError, match=r"ids has the shape \(3,\).*70 rows"):
        report(search, ids=[1, 2, 3])


def test_dates_are_ids_as_one_writes_them(report):
    rows = pd.DataFrame(X, index=pd.date_range("2020-01-01", periods=70))
    page = report(FastGridSearchCV(LSSVR(), GRID, cv=TimeSeriesSplit(3)).fit(rows, y))
    assert re.fullmatch(r"2020-0[123]-\d\d", page.table("id")[0]["id"])


@pytest.mark.parametrize("keeps", ["best", "all"])
def test_one_candidate_was_not_selected(report, keeps):
    search = FastGridSearchCV(LSSVR(), {"alpha": [0.1]}, cv=3, keep_predictions=keeps).fit(X, y)
    page = report(search)
    assert "There was only one candidate" in page.words
    assert "selection bias" not in page.words
    assert "was chosen for it" not in page.words


@pytest.mark.filterwarnings("ignore:the held-out values:everyfold.InexactWarning")
def test_estimates_are_told(report):
    search = FastGridSearchCV(LSSVR(), GRID, cv=5, order=1, n_confirm=0).fit(X, y)
    page = report(search)
    words = "The scores of 9 of 9 candidates are only estimated, and so is whether these are worse."
    assert words in page.words
    assert "only estimated" not in report(FastGridSearchCV(LSSVR(), GRID, cv=5).fit(X, y)).words


def test_a_small_search_is_repeated_for_its_honest_score(report):
    rows = X.copy()
    search = FastGridSearchCV(LSSVR(), GRID, cv=3).fit(rows, y)
    kept = FastGridSearchCV(LSSVR(), GRID, cv=3, keep_predictions="all").fit(rows, y)
    before = search.cv_results_["mean_test_score"].copy()
    honest = kept.honest_score()
    verdict = f"; without selection bias {honest.estimate:.5g} ({honest.interval[0]:.5g} to"
    assert verdict in report(search).words
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"], before)
    # not where the rows are no longer those of fit, or the folds those of the search
    for other in (pickle.loads(pickle.dumps(search)), search):
        page = report(other)
        assert (verdict in page.words) == (other is search)
        assert ("keeps='all'" in page.words) == (other is not search)
    rows[0] += 1.0
    assert "A score without selection bias is not known" in report(search).words
    drawn = FastGridSearchCV(LSSVR(), GRID, cv=KFold(3, shuffle=True)).fit(X, y)
    assert "A score without selection bias is not known" in report(drawn).words


def test_a_given_honest_score_is_shown(report):
    search = FastGridSearchCV(LSSVR(), GRID, cv=3).fit(X, y)
    honest = search.honest_score("nested", X, y)
    page = report(search, honest=honest)
    assert f"{honest.estimate:.5g}" in page.words
    assert "nested cross-validation on 3 outer folds" in page.words


def test_what_fit_was_given_is_named(report):
    groups = np.repeat(np.arange(14), 5)
    search = FastGridSearchCV(LSSVR(), GRID, cv=GroupKFold(3), keep_predictions="all")
    search.fit(X, y, groups=groups)
    page = report(search)
    assert "search.fit(X, y, groups=groups)" in page.words
    assert "Honest R²" in page.words
    assert "bootstraps of 14 whole groups of held-out rows" in page.words


def test_ties_edges_and_draws_are_told(report):
    grid = {"alpha": np.logspace(-3, 1, 3), "gamma": [0.1, 0.1]}
    search = FastGridSearchCV(LSSVR(), grid, cv=3).fit(X, y)
    page = report(search)
    assert "2 candidates share the winner's mean score" in page.words
    edge = FastGridSearchCV(LSSVR(), {"alpha": [10.0, 100.0], "gamma": [0.3]}, cv=3).fit(X, y)
    assert "The best alpha=10 is the smallest of its grid; try smaller values." in (
        report(edge).words
    )
    ranges = {"alpha": loguniform(1e-3, 10.0), "gamma": loguniform(1e-2, 1.0)}
    draws = FastRandomizedSearchCV(LSSVR(), ranges, n_iter=6, random_state=0).fit(X, y)
    page = report(draws)
    assert "loguniform(0.001, 10.0)" in page.words
    assert "object at 0x" not in page.source
    assert page.tags.count("svg") == 3  # no lines between scattered candidates


# -- searches that lack something --------------------------------------------------------------


def test_what_carries_the_score(report):
    groups, folds = np.array([f"farm {k // 5}" for k in range(70)]), GroupKFold(3)
    frame = pd.DataFrame(X, index=[f"plant {k}" for k in range(70)])
    wrong = np.where(np.arange(70) == 7, 9.0, y)
    search = FastGridSearchCV(LSSVR(), GRID, cv=folds).fit(frame, wrong, groups=groups)
    page = report(search)

    def score_without(left_out):
        scores = []
        for train, test in folds.split(X, wrong, groups):
            kept = train[~left_out[train]]
            model = clone(search.best_estimator_).fit(X[kept], wrong[kept])
            scores.append(model.score(X[test], wrong[test]))
        return np.mean(scores)

    one = page.table("group")[0]
    expected = score_without(groups == one["group"])
    assert float(one["score without it"]) == pytest.approx(expected, rel=1e-4)
    change = expected - score_without(np.zeros(70, dtype=bool))
    assert float(one["change"]) == pytest.approx(change, rel=1e-2)
    section = page.source.partition("Rows that the score depends on")[2].partition("<h2>")[0]
    assert "Rows whose label or target looks wrong: plant 7" in section
    assert section.count("<svg>") == 2
    one = re.search(r"<td>plant (\d+)</td><td>(.*?)</td>", section)
    expected = score_without(np.arange(70) == int(one[1]))
    assert float(one[2]) == pytest.approx(expected, rel=1e-4)


def test_influence_is_fitted_only_where_that_is_quick(report):
    search = FastGridSearchCV(SVC(gamma=0.5), {"C": [0.1, 1.0]}, cv=3).fit(X, labels())
    page = report(search)
    assert "fits without rows that matter, of 210 deletions in 3 folds" in page.words
    search.refit_time_ = 0.1
    page = report(search)
    assert "Not computed: it could take 210 fits, about 21 seconds; influence(" in page.words
    assert "fits without rows" not in page.words


def test_why_there_is_no_influence(report):
    rows = X.copy()
    search = FastGridSearchCV(LSSVR(), GRID, cv=3).fit(rows, y)
    rows[0] += 1.0
    assert "Not computed: the rows of fit are not at hand" in report(search).words
    drawn = FastGridSearchCV(LSSVR(), GRID, cv=KFold(3, shuffle=True)).fit(X, y)
    assert "draws different folds in every call; give it a random_state" in report(drawn).words
    table = FastGridSearchCV(LSSVR(), GRID, cv=3, refit=False).fit(X, y)
    assert "Not computed: " in report(table).words


def test_a_criterion_has_no_folds(report):
    page = report(FastGridSearchCV(LSSVR(), GRID, criterion="gcv").fit(X, y))
    assert page.words.count("a criterion of the fit on all rows takes the place of folds") == 3
    assert "std. error" not in page.source
    assert "Best -gcv" in page.words
    assert page.tags.count("svg") == 2


def test_a_source_keeps_no_values(report):
    search = FastGridSearchCV(LSSVR(), GRID, cv=3).fit(ArrayRows(X, y))
    page = report(search)
    assert "rows of a source are read in blocks" in page.words
    assert "search.fit(source)" in page.words
    assert len(page.table("candidate")) == 9


def test_refitted_candidates(report):
    grid = {"n_estimators": [2, 3], "max_depth": [1, 2]}
    forest = RandomForestRegressor(random_state=0)
    page = report(FastGridSearchCV(forest, grid, cv=3, fallback="refit").fit(X, y))
    assert "There are none: the held-out values of candidate" in page.words
    assert {row["status"] for row in page.table("candidate")} == {"refitted"}
    mixed = [{"alpha": [0.1, 1.0]}, {"alpha": [1.0], "positive": [True]}]
    page = report(FastGridSearchCV(Ridge(), mixed, cv=3, fallback="refit").fit(X, y))
    assert [row["positive"] for row in page.table("candidate")].count("") == 2


def test_a_search_of_scikit_learn(report, tmp_path):
    search = GridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=5).fit(X, y)
    page = report(search)
    assert "GridSearchCV: 9 candidates, 5 folds" in page.words
    assert "GridSearchCV keeps scores only, and no held-out values" in page.words
    equal = np.count_nonzero(~judge.significantly_worse(search))
    assert f"{equal} of 9 candidates" in page.words
    assert "What was done" not in page.words
    assert "search.fit(X, y)" in page.words
    ours = FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=5).fit(X, y)
    assert ours.report(tmp_path / "own.html") == tmp_path / "own.html"


def test_several_metrics_with_and_without_a_winner(report):
    scoring = ["r2", "neg_mean_absolute_error"]
    search = FastGridSearchCV(LSSVR(), GRID, cv=3, scoring=scoring, refit="r2").fit(X, y)
    page = report(search)
    shown = {row["metric"]: float(row["mean of the winner"]) for row in page.table("metric")}
    for name in scoring:
        mean = search.cv_results_[f"mean_test_{name}"][search.best_index_]
        assert shown[name] == pytest.approx(mean, rel=1e-4)
    page = report(FastGridSearchCV(LSSVR(), GRID, cv=3, scoring=scoring, refit=False).fit(X, y))
    assert "there are several metrics and refit names none of them" in page.words
    assert "neg_mean_absolute_error" in page.table("candidate")[0]


@pytest.mark.parametrize(
    "how",
    [
        {"refit": False},
        {"refit": "one_standard_error"},
        {"refit": lambda results: 2},
        {"keep_predictions": None},
        {"cv": ShuffleSplit(3, random_state=0)},
        {"cv": TimeSeriesSplit(3)},
        {"pooled": True},
        {"order": 1, "n_confirm": 2},
        {"cv": 70, "scoring": "neg_mean_squared_error"},
    ],
    ids=["none", "simplest", "callable", "no_rows", "overlap", "time", "pooled", "order", "many"],
)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.filterwarnings("ignore:the held-out values:everyfold.InexactWarning")
def test_every_search_has_a_page(report, how):
    search = FastGridSearchCV(LSSVR(), GRID, **{"cv": 3, **how}).fit(X, y)
    page = report(search)
    assert len(page.table("candidate")) == 9
    assert ("There are none" in page.words) == (how.get("keep_predictions", "best") is None)


def test_time_series_of_labels_have_no_label_for_first_rows(report):
    search = FastGridSearchCV(LSSVC(), GRID, cv=TimeSeriesSplit(2)).fit(X, labels())
    held = np.count_nonzero(search.out_of_fold().repeats)
    assert 0 < held < len(X)
    words = report(search).words
    assert f"{held} of {len(X)} rows were held out" in words
    assert f"of {held} held-out rows have the wrong label" in words
    assert "Not drawn, confusion" not in words


def test_several_targets(report):
    search = FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=3).fit(X, np.c_[y, -3.0 * y])
    page = report(search)
    assert {"measured 0", "measured 1"} <= set(page.table("row")[0])
    assert "Not drawn, predicted against true values" in page.words


def test_without_matplotlib(report, monkeypatch):
    import builtins

    real = builtins.__import__

    def no_matplotlib(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    search = FastGridSearchCV(LSSVR(), GRID, cv=3).fit(X, y)
    monkeypatch.setattr(builtins, "__import__", no_matplotlib)
    page = report(search)
    assert page.words.count("run pip install 'everyfold[plot]'") == 3
    assert "svg" not in page.tags


def test_without_jinja2(tmp_path, monkeypatch):
    search = FastGridSearchCV(LSSVR(), GRID, cv=3).fit(X, y)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"jinja2.*pip install 'everyfold\[report\]'"):
        search.report(tmp_path / "report.html")
    assert "<table>" in search._repr_html_()  # notebooks need no template


def test_the_verdict_comes_first_and_what_is_fixed_is_no_range(report):
    search = FastGridSearchCV(LSSVR(), {**GRID, "degree": [3]}, cv=3).fit(X, y)
    page = report(search)
    assert page.words.index(" won. Best mean R²: ") < page.words.index("FastGridSearchCV: 9 cand")
    assert not re.search(r"from (\S+) to \1\b", page.words)


def test_many_candidates_stay_small(report):
    grid = {"alpha": np.logspace(-6, 3, 60), "gamma": np.logspace(-2, 1, 20)}
    search = FastGridSearchCV(LSSVR(), grid, cv=3, refit=False).fit(X, y)
    page = report(search)
    assert "The best 1000 of 1200" in page.words
    assert len(page.table("candidate")) == 1000
    assert len(page.source) < 500_000


# -- safe and whole ----------------------------------------------------------------------------


def test_names_are_escaped(drawn_report):
    names = (EVIL, "a & b < c", "$\\frac{1$ _x^")
    target = labels(3, names)
    frame = pd.DataFrame(X, columns=[EVIL, "b", "c"], index=[f"{EVIL} {k}" for k in range(70)])
    search = FastGridSearchCV(LSSVC(), GRID, cv=4).fit(frame, target)
    page = drawn_report(search, title=EVIL)
    assert page.tags.count("script") == 1
    assert page.tags.count("svg") == 5  # no name was read as a formula
    assert str(escape(EVIL)) in page.source
    assert "alert('x')" not in re.sub(r"(?s)<script>.*?</script>", "", page.source).replace(
        "&lt;script&gt;alert('x')", ""
    ).replace("&lt;script&gt;alert(&#39;x&#39;)", "")
    class_weights = {"class_weight": [{EVIL: 2.0}, None]}
    groups = np.array([f"{EVIL} {k % 14}" for k in range(70)])
    search = FastGridSearchCV(LSSVC(), class_weights, cv=GroupKFold(4))
    page = drawn_report(search.fit(X, target, groups=groups))
    assert page.tags.count("script") == 1
    assert f"<td>{escape(EVIL)} " in page.source


def test_control_characters_are_written_out(drawn_report):
    """They can reorder what is read (bidirectional overrides), and are no text of a page."""
    hidden = "a\x1b[31m\x07\x9b\u202e\u2066\x7f"
    target = labels(3, (f"{hidden} 0", f"{hidden} 1", "plain"))
    frame = pd.DataFrame(X, index=[f"{hidden} {k}" for k in range(70)])
    grid = {"class_weight": [{f"{hidden} 0": 2.0, f"{hidden} 1": 1.0, "plain": 1.0}, None]}
    search = FastGridSearchCV(LSSVC(), grid, cv=4).fit(frame, target)
    page = drawn_report(search, title=hidden)
    found = {c for c in page.source if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert found == {"\n"}
    written = "a\\x1b[31m\\x07\\x9b\\u202e\\u2066\\x7f"
    assert f"<title>{written}</title>" in page.source
    svg = "".join(re.findall(r"(?s)<svg.*?</svg>", page.source))
    assert written[:19] in svg  # names are shortened in plots


def test_nothing_is_loaded_and_only_our_script_may_run(drawn_report):
    page = drawn_report(FastGridSearchCV(LSSVR(), GRID, cv=3).fit(X, y))
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in page.links)
    assert "@import" not in page.source
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page.source)
    assert policy.startswith("default-src 'none'")
    assert "script-src 'sha256-" in policy
    ids = re.findall(r'\bid="([^"]+)"', page.source)
    assert len(ids) == len(set(ids))


def test_what_was_there_is_kept_if_writing_fails(tmp_path, report, monkeypatch):
    search = FastGridSearchCV(LSSVR(), GRID, cv=3).fit(X, y)
    path = tmp_path / "report.html"
    path.write_text("old")
    monkeypatch.setattr("everyfold.io.disk.os.fsync", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        search.report(path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    monkeypatch.setattr("everyfold.io.disk.os.fsync", lambda _: None)
    assert search.report(str(path)) == path
    assert path.read_text() != "old"
    for bad in (tmp_path, tmp_path / "none" / "report.html"):
        with pytest.raises(ValueError, match="cannot be written"):
            search.report(bad)


# -- in a browser ------------------------------------------------------------------------------

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell", "chrome")
OPTIONS = ["--headless", "--no-sandbox", "--no-zygote", "--single-process", "--in-process-gpu"]
OPTIONS += ["--use-angle=swiftshader", "--no-first-run", "--remote-debugging-pipe"]

PROBE = """(() => {
const table = document.querySelector("table.sortable"), heads = [...table.tHead.rows[0].cells];
const k = heads.findIndex((head) => head.textContent === "C");
heads[k].querySelector("button").click();
const sorted = [...table.tBodies[0].rows].map((row) => row.cells[k].textContent);
const input = document.querySelector("#filter"), page = document.documentElement;
input.value = "C>0.1 exact";
input.dispatchEvent(new Event("input"));
const shown = [...table.tBodies[0].rows].filter((row) => !row.hidden).length;
const text = getComputedStyle(document.querySelector("figure svg text")).fill;
const body = getComputedStyle(document.body);
return {sorted, shown, count: document.querySelector("output").textContent, text,
        ink: body.color, paper: body.backgroundColor, over: page.scrollWidth - page.clientWidth};
})()"""


class Browser:
    """A Chromium that is told what to do through a pipe."""

    def __init__(self, path, folder):
        (theirs, self.ours), (self.answers, back) = os.pipe(), os.pipe()
        as_three_and_four = f"os.dup2({theirs}, 3); os.dup2({back}, 4)"
        code = f"import os, sys; {as_three_and_four}; os.execv(sys.argv[1], sys.argv[1:])"
        command = [sys.executable, "-c", code, path, *OPTIONS]
        self.process = subprocess.Popen(
            [*command, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(theirs, back),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        os.close(back)
        self.count, self.rest, self.session = 0, b"", None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]

    def ask(self, method, **params):
        """The answer to a command."""
        self.count += 1
        order = {"id": self.count, "method": method, "params": params}
        order |= {} if self.session is None else {"sessionId": self.session}
        os.write(self.ours, json.dumps(order).encode() + b"\0")
        return next(m["result"] for m in self.messages() if m.get("id") == self.count)

    def messages(self):
        while True:
            while b"\0" not in self.rest:
                assert select.select([self.answers], [], [], 60.0)[0], "the browser is silent"
                part = os.read(self.answers, 65536)
                assert part, "the browser has ended"
                self.rest += part
            message, _, self.rest = self.rest.partition(b"\0")
            yield json.loads(message)

    def look(self, path, width, scheme):
        """What the probe finds on a page of this width, light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", features=features)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        self.ask("Page.enable")
        self.ask("Page.navigate", url=f"file://{path}")
        next(m for m in self.messages() if m.get("method") == "Page.loadEventFired")
        found = self.ask("Runtime.evaluate", expression=PROBE, returnByValue=True)
        return found["result"]["value"]

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.answers)


@pytest.fixture
def browser(tmp_path):
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is on the PATH")
    browser = Browser(found, tmp_path / "profile")
    yield browser
    browser.close()


def test_the_page_works_in_a_browser(browser, tmp_path):
    grid = {"svc__C": [0.1, 1.0, 10.0], "svc__gamma": [0.1, 1.0]}
    target = labels(2, (EVIL, "no"))
    search = FastGridSearchCV(make_pipeline(StandardScaler(), SVC()), grid, cv=3).fit(X, target)
    path = search.report(tmp_path / "report.html")
    papers = set()
    for width in (1280, 390):
        for scheme in ("light", "dark"):
            found = browser.look(path, width, scheme)
            assert found["sorted"] == ["0.1", "0.1", "1", "1", "10", "10"]
            assert (found["shown"], found["count"]) == (4, "4 of 6 shown")
            assert found["over"] == 0  # nothing sticks out of a phone
            assert found["text"] == found["ink"] != found["paper"]
            papers.add(found["paper"])
    assert len(papers) == 2

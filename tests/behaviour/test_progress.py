"""How far a search is: counted once, within kernels and passes, on terminals and in notebooks."""

import io
import pickle
import re
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from everyfold import LSSVR, FastGridSearchCV
from everyfold._progress import ProgressListener, report_share, reporting_to, subtask, tracked
from everyfold.io.arrays import ArrayRows
from everyfold.search import progress

tqdm = pytest.importorskip("tqdm.auto")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=60)
GRID = {"alpha": [0.1, 1.0], "gamma": np.logspace(-2, 1, 7)}


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def every_state(monkeypatch):
    """Bars are drawn at every step, however quick."""
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_STATES", 0.0)


def shares(screen):
    return [int(found) for found in re.findall(r"(\d+)%", screen)]


def pipeline_grid():
    return make_pipeline(StandardScaler(), LSSVR()), {f"lssvr__{k}": v for k, v in GRID.items()}


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("case", ["whole", "per fold"])
def test_kernels_are_counted_whatever_batches_they_come_in(capsys, case, n_jobs):
    model, grid = (LSSVR(), GRID) if case == "whole" else pipeline_grid()
    FastGridSearchCV(model, grid, cv=3, verbose=1, n_jobs=n_jobs).fit(X, y)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("kernel ")]
    assert lines[-1].startswith("kernel 7/7, 14/14 candidates")
    counts = [int(re.match(r"kernel (\d+)/7", line)[1]) for line in lines]
    assert counts == sorted(set(counts))


def test_a_terminal_has_a_bar_and_no_lines(monkeypatch, every_state):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    model, grid = pipeline_grid()
    FastGridSearchCV(model, grid, cv=4, verbose=1).fit(X, y)
    screen = terminal.getvalue()
    found = shares(screen)
    assert found == sorted(found)
    assert len(set(found)) > 5  # within a batch of seven kernels, too
    assert found[-1] == 100
    assert "kernel 7/7, 14/14 candidates" in screen
    assert screen.endswith("\n")
    assert "\nkernel" not in screen


def test_the_bar_moves_within_a_kernel_and_within_a_pass(monkeypatch, every_state):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    grid = {"C": [1.0], "gamma": [0.1]}
    FastGridSearchCV(SVR(), grid, cv=5, verbose=1).fit(X, y)
    assert {20, 40, 60, 80, 100} <= set(shares(terminal.getvalue()))
    terminal.truncate(0)
    monkeypatch.setattr("everyfold.engine.source_data.height_of", lambda width: 10)
    search = FastGridSearchCV(LSSVR(), {"alpha": [0.1], "gamma": [0.1]}, cv=3, verbose=1)
    search.fit(ArrayRows(X, y))
    assert {17, 33, 50, 67, 83, 100} <= set(shares(terminal.getvalue()))  # 6 blocks of rows
    terminal.truncate(0)
    search.set_params(scoring="neg_median_absolute_error").fit(ArrayRows(X, y))  # two passes
    assert {8, 25, 50, 58, 75, 100} <= set(shares(terminal.getvalue()))


@pytest.mark.filterwarnings("ignore:the held-out values:everyfold.InexactWarning")
def test_refits_and_later_rounds_have_a_bar(monkeypatch, every_state):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    forest, grid = RandomForestRegressor(n_estimators=2), {"max_depth": [1, 2]}
    FastGridSearchCV(forest, grid, cv=2, verbose=1, fallback="refit").fit(X, y)
    assert shares(terminal.getvalue())[-1] == 100
    terminal.truncate(0)
    FastGridSearchCV(LSSVR(), GRID, cv=3, order=1, n_confirm=2, verbose=1).fit(X, y)
    assert "round 2" in terminal.getvalue()


def test_an_error_closes_the_bar(monkeypatch, every_state):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    search = FastGridSearchCV(LSSVR(), GRID, cv=3, verbose=1)
    monkeypatch.setattr(search, "_take", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        search.fit(X, y)
    assert terminal.getvalue().endswith("\n")


def test_a_notebook_has_a_bar(monkeypatch, every_state, capsys):
    shown = []

    class NotebookBar(tqdm.tqdm):
        def display(self, *args, **kwargs):
            shown.append(str(self))

    notebook = ModuleType("IPython")
    notebook.get_ipython = lambda: SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setattr("tqdm.auto.tqdm", NotebookBar)
    FastGridSearchCV(LSSVR(), GRID, cv=3, verbose=1).fit(X, y)
    assert len(shown) >= 7
    assert "100%" in shown[-1]
    assert "kernel 7/7" in shown[-1]
    assert "kernel 1/7," not in capsys.readouterr().out


def test_without_tqdm_a_terminal_has_lines(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    FastGridSearchCV(LSSVR(), GRID, cv=3, verbose=1).fit(X, y)
    assert "\nkernel 7/7, 14/14 candidates" in terminal.getvalue()
    assert "%" not in terminal.getvalue()


def test_silence(monkeypatch, every_state):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    FastGridSearchCV(LSSVR(), GRID, cv=3).fit(X, y)
    assert terminal.getvalue() == ""


def test_shares_add_up_and_nobody_need_listen():
    heard = []
    report_share(0.5)
    with reporting_to(heard.append):
        for k in range(2):
            with subtask(k, 2):
                assert list(tracked("ab")) == ["a", "b"]
    report_share(0.5)
    assert heard == [0.25, 0.5, 0.5, 0.75, 1.0, 1.0]


def test_a_pickled_listener_ignores_all():
    search = FastGridSearchCV(LSSVR(), GRID, verbose=1)
    listener = progress.Progress(search, (X, y, None), 7, 14)
    assert type(pickle.loads(pickle.dumps(listener))) is ProgressListener


def watched_by(search):
    return type(search._begin(X, y, {}).progress)


def test_a_search_that_nobody_watches_tells_nothing():
    assert watched_by(FastGridSearchCV(LSSVR(), GRID)) is type(None)
    assert watched_by(FastGridSearchCV(LSSVR(), GRID, verbose=1)) is progress.Progress


@pytest.mark.parametrize("part", ["search", "estimator", "step"])
def test_callbacks_of_any_part_are_called(part):
    """scikit-learn keeps them under this name."""
    steps = make_pipeline(StandardScaler(), LSSVR())
    search = FastGridSearchCV(steps, {"lssvr__alpha": [0.1, 1.0]})
    assert watched_by(search) is type(None)
    {"search": search, "estimator": steps, "step": steps[0]}[part]._skl_callbacks = []
    assert watched_by(search) is progress.Progress

"""Displays draw what the search found."""

import builtins

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import LSSVR, CVCurveDisplay, CVSurfaceDisplay, FastGridSearchCV

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
y = np.sin(2.0 * X[:, 0]) + 0.3 * RNG.normal(size=60)
ALPHAS = np.logspace(-3, 1, 5)
GAMMAS = np.logspace(-2, 1, 4)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.fixture(scope="module")
def search():
    return FastGridSearchCV(LSSVR(), {"alpha": ALPHAS, "gamma": GAMMAS}, cv=5).fit(X, y)


def test_surface(search):
    display = CVSurfaceDisplay.from_search(search)
    assert (display.x_name, display.y_name) == ("alpha", "gamma")
    assert display.ax_.get_xscale() == display.ax_.get_yscale() == "log"
    assert display.ax_.get_xlabel() == "alpha"
    for params, score in zip(
        search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
    ):
        column = np.flatnonzero(display.x == params["alpha"])[0]
        row = np.flatnonzero(display.y == params["gamma"])[0]
        assert display.scores[row, column] == score
    column, row = display.best
    assert display.scores[row, column] == search.best_score_
    assert display.x[column] == search.best_params_["alpha"]
    assert_allclose(display.mesh_.get_array().reshape(display.scores.shape), display.scores)
    star = display.ax_.lines[0]
    assert star.get_xydata().tolist() == [[display.x[column], display.y[row]]]


def test_the_region_of_one_standard_error(search):
    display = CVSurfaceDisplay.from_search(search)
    folds = np.array([search.cv_results_[f"split{k}_test_score"] for k in range(5)])
    best = search.best_index_
    error = folds[:, best].std(ddof=1) / np.sqrt(5)
    near = search.cv_results_["mean_test_score"] >= search.best_score_ - error
    assert display.near_best.sum() == near.sum()
    assert 1 < near.sum() < near.size


def test_axes_can_be_chosen(search):
    import matplotlib.pyplot as plt

    _, ax = plt.subplots()
    display = CVSurfaceDisplay.from_search(search, x="gamma", y="alpha", ax=ax)
    assert display.ax_ is ax
    assert display.scores.shape == (5, 4)
    linear = FastGridSearchCV(LSSVR(), {"alpha": [1.0, 2.0, 3.0], "gamma": GAMMAS}).fit(X, y)
    display = CVSurfaceDisplay.from_search(linear)
    assert display.ax_.get_xscale() == "linear"


def test_other_parameters_show_their_best_candidate():
    grid = {"alpha": ALPHAS, "gamma": GAMMAS, "fit_intercept": [True, False]}
    search = FastGridSearchCV(LSSVR(), grid).fit(X, y)
    display = CVSurfaceDisplay.from_search(search)
    assert np.nanmax(display.scores) == search.best_score_


def test_pipelines_and_scikit_learns_own_search():
    pipeline = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf"))
    grid = {"kernelridge__alpha": ALPHAS, "kernelridge__gamma": GAMMAS}
    display = CVSurfaceDisplay.from_search(GridSearchCV(pipeline, grid, cv=3).fit(X, y))
    assert display.ax_.get_xlabel() == "alpha"


def test_several_metrics():
    scoring = ["r2", "neg_mean_absolute_error"]
    options = {"scoring": scoring, "refit": "r2"}
    search = FastGridSearchCV(LSSVR(), {"alpha": ALPHAS, "gamma": GAMMAS}, **options).fit(X, y)
    assert CVSurfaceDisplay.from_search(search).metric == "r2"
    display = CVCurveDisplay.from_search(search, metric="neg_mean_absolute_error")
    assert "neg_mean_absolute_error" in display.ax_.get_ylabel()
    with pytest.raises(ValueError, match="metric='mse' is not in cv_results_"):
        CVSurfaceDisplay.from_search(search, metric="mse")


def test_curves(search):
    display = CVCurveDisplay.from_search(search)
    assert display.x_name == "alpha"
    assert len(display.lines_) == len(GAMMAS)
    assert display.ax_.get_xscale() == "log"
    best = display.lines_[0]
    assert f"gamma={search.best_params_['gamma']:.3g}" == best.get_label()
    assert best.get_ydata().max() == search.best_score_
    assert len(display.ax_.collections) == len(GAMMAS)
    assert len(CVCurveDisplay.from_search(search, max_lines=2).lines_) == 2
    assert CVCurveDisplay.from_search(search, x="gamma").ax_.get_xlabel() == "gamma"


def test_one_parameter_is_a_curve_not_a_surface():
    search = FastGridSearchCV(Ridge(), {"alpha": np.logspace(-1, 4, 6)}).fit(X, y)
    assert len(CVCurveDisplay.from_search(search).lines_) == 1
    with pytest.raises(ValueError, match="use CVCurveDisplay for one"):
        CVSurfaceDisplay.from_search(search)
    with pytest.raises(ValueError, match="'colour' was not searched"):
        CVCurveDisplay.from_search(search, x="colour")
    words = FastGridSearchCV(Ridge(), {"fit_intercept": [True, False]}).fit(X, y)
    with pytest.raises(ValueError, match="needs a numeric parameter"):
        CVCurveDisplay.from_search(words)


def test_unfitted_searches_are_refused():
    with pytest.raises(NotFittedError):
        CVSurfaceDisplay.from_search(FastGridSearchCV(LSSVR(), {"alpha": ALPHAS}))


def test_missing_matplotlib_is_named(search, monkeypatch):
    real = builtins.__import__

    def no_matplotlib(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_matplotlib)
    with pytest.raises(ImportError, match=r"everyfold\[plot\]"):
        CVSurfaceDisplay.from_search(search)

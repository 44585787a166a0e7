"""Displays draw what the search found."""

import builtins

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import trapezoid
from scipy.stats import loguniform
from sklearn.calibration import calibration_curve
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics import confusion_matrix, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import (
    LSSVC,
    LSSVR,
    CVCurveDisplay,
    CVSurfaceDisplay,
    FastCrossConformalRegressor,
    FastGridSearchCV,
    FastRandomizedSearchCV,
    IntervalDisplay,
    KernelLogisticClassifier,
    OutOfFoldDisplay,
    RankCurveDisplay,
)
from everyfold.engine.adaptive import low_rank_first as ladder

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


# -- colours, points and names -----------------------------------------------------------------


def test_colours_resolve_the_region_of_the_best(search):
    display = CVSurfaceDisplay.from_search(search)
    scores = search.cv_results_["mean_test_score"]
    folds = np.array([search.cv_results_[f"split{k}_test_score"] for k in range(5)])
    best = int(np.argmax(scores))
    low = scores[best] - 10.0 * folds[:, best].std(ddof=1) / np.sqrt(5)
    assert display.mesh_.get_clim()[0] == pytest.approx(max(low, scores.min()))
    assert display.colorbar_.extend == ("min" if low > scores.min() else "neither")
    display.scores[0, 0] = -1e6  # a hopeless corner leaves the colours of the others alone
    assert display.plot().mesh_.get_clim()[0] == pytest.approx(low)
    assert display.colorbar_.extend == "min"


def test_the_metric_is_named(search):
    assert CVSurfaceDisplay.from_search(search).colorbar_.ax.get_ylabel() == "mean test R²"
    how = {"scoring": "neg_mean_absolute_error"}
    other = FastGridSearchCV(LSSVR(), {"alpha": ALPHAS, "gamma": GAMMAS}, **how).fit(X, y)
    assert "neg_mean_absolute_error" in CVCurveDisplay.from_search(other).ax_.get_ylabel()
    labels = FastGridSearchCV(LSSVC(), {"alpha": ALPHAS, "gamma": GAMMAS}).fit(X, y > 0.0)
    assert "accuracy" in CVCurveDisplay.from_search(labels).ax_.get_ylabel()


def test_a_random_search_is_drawn_as_points():
    ranges = {"alpha": loguniform(1e-3, 10.0), "gamma": loguniform(1e-2, 10.0)}
    search = FastRandomizedSearchCV(LSSVR(), ranges, n_iter=12, random_state=0).fit(X, y)
    display = CVSurfaceDisplay.from_search(search)
    assert display.is_scattered
    found = {tuple(point) for point in display.mesh_.get_offsets().data.tolist()}
    assert found == {(p["alpha"], p["gamma"]) for p in search.cv_results_["params"]}
    points, colours = display.mesh_.get_offsets().data.tolist(), display.mesh_.get_array()
    at = {tuple(point): colour for point, colour in zip(points, colours, strict=True)}
    scores = search.cv_results_["mean_test_score"]
    for params, score in zip(search.cv_results_["params"], scores, strict=True):
        assert at[params["alpha"], params["gamma"]] == score


def test_curves_are_coloured_and_named_in_the_order_of_the_other_parameter():
    grid = {"alpha": ALPHAS, "gamma": np.logspace(-2, 1, 9)}
    search = FastGridSearchCV(LSSVR(), grid, cv=5).fit(X, y)
    display = CVCurveDisplay.from_search(search)
    names = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert names == [f"gamma={gamma:.3g}" for gamma in grid["gamma"]]
    colours = {line.get_label(): line.get_color() for line in display.lines_}
    lightness = [np.dot(colours[name][:3], [0.3, 0.59, 0.11]) for name in names]
    assert (np.diff(lightness) > 0.0).all()
    assert len(display.ax_.collections) == 1  # the band of the best alone


# -- held-out values ---------------------------------------------------------------------------


def test_predicted_against_measured(search):
    display = OutOfFoldDisplay.from_search(search)
    assert display.kind == "predicted"
    held = cross_val_predict(search.best_estimator_, X, y, cv=5)
    points = display.ax_.collections[0].get_offsets()
    assert_allclose(np.asarray(points), np.column_stack([held, y]), rtol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels(n_classes):
    labels = np.array(["a", "b", "c"])[np.digitize(y, np.quantile(y, [0.5, 0.8])[: n_classes - 1])]
    search = FastGridSearchCV(LSSVC(), {"alpha": ALPHAS, "gamma": GAMMAS}, cv=4).fit(X, labels)
    display = OutOfFoldDisplay.from_search(search)
    held = cross_val_predict(search.best_estimator_, X, labels, cv=4)
    assert (display.displays_[0].confusion_matrix == confusion_matrix(labels, held)).all()
    display = OutOfFoldDisplay.from_search(search, kind="roc")
    method = {"method": "decision_function", "cv": 4}
    values = cross_val_predict(search.best_estimator_, X, labels, **method).reshape(60, -1)
    each = ["b"] if n_classes == 2 else ["a", "b", "c"]
    for k, label in enumerate(each):
        area = roc_auc_score(labels == label, values[:, k])
        assert f"{label} (AUC = {area:.2f})" in [line.get_label() for line in display.ax_.lines]


def test_calibration_of_probabilities():
    labels = np.where(y > 0.0, "yes", "no")
    grid = {"C": [0.1, 1.0], "gamma": [0.1, 1.0]}
    search = FastGridSearchCV(KernelLogisticClassifier(), grid, cv=4).fit(X, labels)
    display = OutOfFoldDisplay.from_search(search, kind="calibration")
    how = {"method": "predict_proba", "cv": 4}
    held = cross_val_predict(search.best_estimator_, X, labels, **how)[:, 1]
    truth, predicted = calibration_curve(labels == "yes", held, n_bins=10, strategy="quantile")
    assert_allclose(display.displays_[0].prob_true, truth)
    assert_allclose(display.displays_[0].prob_pred, predicted, rtol=1e-6)


def test_kinds_that_do_not_fit(search):
    with pytest.raises(ValueError, match="kind='roc' is not available for this target"):
        OutOfFoldDisplay.from_search(search, kind="roc")
    with pytest.raises(ValueError, match="use one of"):
        OutOfFoldDisplay.from_search(search, kind="lift")
    labels = FastGridSearchCV(LSSVC(), {"alpha": ALPHAS}).fit(X, y > 0.0)
    with pytest.raises(ValueError, match="logistic loss"):
        OutOfFoldDisplay.from_search(labels, kind="calibration")
    with pytest.raises(ValueError, match="were not kept"):
        OutOfFoldDisplay.from_search(labels, candidate=(labels.best_index_ + 1) % 5)


def test_many_classes_with_any_names():
    rng = np.random.default_rng(1)
    long = "a class with a rather long name"
    names = np.array(["$\\frac{1$", "<b>", *(f"{long} {k}" for k in range(20))])
    codes = np.repeat(np.arange(22), 5)
    rows = np.column_stack([np.cos(codes), np.sin(codes)]) + 0.1 * rng.normal(size=(110, 2))
    search = FastGridSearchCV(LSSVC(), {"gamma": [1.0, 3.0]}, cv=5).fit(rows, names[codes])
    display = OutOfFoldDisplay.from_search(search)
    assert display.displays_[0].text_ is None  # colours alone
    display.figure_.canvas.draw()  # a name that is read as a formula would raise
    display = OutOfFoldDisplay.from_search(search, kind="roc")
    display.figure_.canvas.draw()
    values = search.out_of_fold(method="decision_function").values
    classes = np.unique(names)
    areas = [roc_auc_score(names[codes] == c, values[:, k]) for k, c in enumerate(classes)]
    assert len(display.displays_) == 10
    shown = [float(trapezoid(*line.get_data()[::-1])) for line in display.ax_.lines[:10]]
    assert_allclose(sorted(shown), sorted(areas)[:10])


# -- ranks and intervals -----------------------------------------------------------------------


def test_rank_curves_are_the_scores_of_these_ranks(monkeypatch):
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(600, 4))
    target = np.sin(2.0 * rows[:, 0]) + rows[:, 1] ** 2 + 0.2 * rng.normal(size=600)
    grid = {"alpha": [1e-3, 0.1], "gamma": [0.03, 0.1, 0.3]}
    monkeypatch.setattr(ladder, "LOW_RANK_FIRST_ROWS", 300)
    search = FastGridSearchCV(KernelRidge(kernel="rbf"), grid, cv=4).fit(rows, target)
    display = RankCurveDisplay.from_search(search)
    label, ranks, scores = display.lines[0]
    best = search.best_params_
    assert label == f"alpha = {best['alpha']:g}, gamma = {best['gamma']:g}"
    assert ranks[-1] == 600
    assert (np.diff(ranks) > 0).all()
    exact = cross_val_score(search.best_estimator_, rows, target, cv=4).mean()
    assert scores[-1] == pytest.approx(exact, rel=1e-8)
    assert ranks[0] <= 128
    assert scores[0] != scores[-1]
    assert display.lines_[0].get_xydata().tolist() == np.column_stack([ranks, scores]).tolist()
    assert "R²" in display.ax_.get_ylabel()


def test_rank_curves_need_a_ladder(search):
    with pytest.raises(ValueError, match="no candidate was evaluated at several ranks"):
        RankCurveDisplay.from_search(search)


def test_intervals_are_drawn_as_they_are():
    model = FastCrossConformalRegressor(LSSVR(gamma=0.3), confidence_level=[0.5, 0.8], cv=5)
    model.set_params(random_state=0).fit_conformalize(X[:40], y[:40])
    display = IntervalDisplay.from_estimator(model, X[40:], y[40:], level=1)
    points, intervals = model.predict_interval(X[40:])
    low, high = intervals[:, 0, 1], intervals[:, 1, 1]
    inside = (low <= y[40:]) & (y[40:] <= high)
    assert display.coverage_ == inside.mean()
    assert 0.0 < display.coverage_ < 1.0
    bars, covered, missed = display.ax_.collections
    drawn = np.array([segment[:, 1] for segment in bars.get_segments()])
    assert_allclose(drawn, np.column_stack([low, high]))
    assert_allclose(np.asarray(covered.get_offsets()), np.column_stack([points, y[40:]])[inside])
    assert len(missed.get_offsets()) == np.count_nonzero(~inside)
    assert "asked for 80%" in display.ax_.get_legend().get_title().get_text()
    with pytest.raises(ValueError, match="y has 3 entries, but X has 20 rows"):
        IntervalDisplay.from_estimator(model, X[40:], y[:3])


def test_one_fit_has_no_standard_error():
    search = FastGridSearchCV(LSSVR(), {"alpha": ALPHAS, "gamma": GAMMAS}, criterion="gcv")
    display = CVSurfaceDisplay.from_search(search.fit(X, y))
    assert display.colorbar_.ax.get_ylabel() == "mean test -gcv"
    names = [text.get_text() for text in display.figure_.legends[0].get_texts()]
    assert names == ["winner"]
    assert "std. error" not in CVCurveDisplay.from_search(search).ax_.get_ylabel()


def test_an_area_below_one_is_not_rounded_to_one():
    truth, values = np.repeat([0, 1], 50), np.arange(100.0)
    values[[49, 50]] = values[[50, 49]]
    display = OutOfFoldDisplay(kind="roc", truth=truth, values=values).plot()
    names = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert names[0] == "1 (AUC = 0.9996)"

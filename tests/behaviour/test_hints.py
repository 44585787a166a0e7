"""What a search says of its winner: that it is at an edge, or that it needs no model."""

import warnings

import numpy as np
import pytest
from scipy.stats import loguniform
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, SVR

from everyfold import LSSVC, FastGridSearchCV, FastRandomizedSearchCV

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, size=(120, 3))
y = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.normal(size=120)


def quiet(search, *data):
    """Fit, with every warning an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return search.fit(*data)


class TestEdges:
    def test_a_score_that_still_rises_is_warned_of(self):
        grid = {"alpha": [0.1], "gamma": np.logspace(-5, -1, 5)}
        search = FastGridSearchCV(KernelRidge(kernel="rbf"), grid)
        with pytest.warns(UserWarning, match=r"gamma=0\.1 is the largest .* try larger values"):
            search.fit(X, y)
        assert any("gamma=0.1 is the largest" in note for note in search.plan_.notes)

    def test_the_other_end(self):
        grid = {"alpha": np.logspace(2, 6, 5), "gamma": [0.5]}
        with pytest.warns(UserWarning, match=r"alpha=100 is the smallest .* try smaller values"):
            FastGridSearchCV(KernelRidge(kernel="rbf"), grid).fit(X, y)

    @pytest.mark.parametrize(
        ("grid", "is_noted"),
        [
            ({"gamma": [1e-4, 1e-3, 1e-2, 1e-1]}, True),  # four values are a small grid
            ({"gamma": [0.1, 0.5, 1.0, 3.0, 30.0]}, False),
            ({"gamma": [0.5], "alpha": [0.0, 1.0, 10.0, 100.0, 1e4]}, False),  # nothing below 0
            ({"gamma": [0.01]}, False),
        ],
    )
    def test_what_is_only_noted_or_not_at_all(self, grid, is_noted):
        search = quiet(FastGridSearchCV(KernelRidge(0.1, kernel="rbf"), grid), X, y)
        assert any("of its grid" in note for note in search.plan_.notes) == is_noted
        assert ("of its grid" in str(search.plan_)) == is_noted

    def test_a_plateau_is_only_noted(self):
        labels = np.where(X[:, 0] > 0.0, 1, 0)
        grid = {"C": np.logspace(6, 12, 7)}
        search = quiet(FastGridSearchCV(SVC(kernel="linear"), grid), 1e3 * X, labels)
        assert search.best_params_["C"] == 1e6
        assert any("C=1e+06 is the smallest" in note for note in search.plan_.notes)

    def test_parameters_of_steps_are_only_noted(self):
        model = make_pipeline(StandardScaler(), PolynomialFeatures(), Ridge(1e-3))
        grid = {"polynomialfeatures__degree": [1], "polynomialfeatures__include_bias": [True]}
        assert not quiet(FastGridSearchCV(model, grid), X, y).plan_.notes

    def test_the_grid_of_the_winner_counts(self):
        grids = [
            {"kernel": ["rbf"], "gamma": np.logspace(-5, -1, 5), "alpha": [0.1]},
            {"kernel": ["linear"], "alpha": np.logspace(-2, 6, 5)},
        ]
        with pytest.warns(UserWarning, match="gamma=0.1 is the largest"):
            FastGridSearchCV(KernelRidge(), grids).fit(X, y)
        joined = [{**grids[0], "gamma": [0.1, 0.5, 3.0]}, grids[0]]
        search = quiet(FastGridSearchCV(KernelRidge(), joined), X, y)
        assert search.best_params_["gamma"] == 0.5

    def test_distributions_have_no_edges(self):
        params = {"alpha": [0.1], "gamma": loguniform(1e-5, 1e-1)}
        model = KernelRidge(kernel="rbf")
        search = FastRandomizedSearchCV(model, params, n_iter=8, random_state=0)
        assert not quiet(search, X, y).plan_.notes

    def test_a_callable_refit_chooses_for_itself(self):
        grid = {"gamma": np.logspace(-5, -1, 5)}
        model = KernelRidge(0.1, kernel="rbf")
        assert not quiet(FastGridSearchCV(model, grid, refit=lambda r: 0), X, y).plan_.notes


class TestConstants:
    rare = np.where(np.arange(120) % 8 == 0, "rare", "usual")

    @pytest.mark.parametrize(
        ("model", "grid"),
        [
            (SVC(), {"C": [1e-3], "gamma": [0.1]}),
            (LSSVC(gamma=0.1), {"alpha": [10.0, 100.0]}),
            (RidgeClassifier(), {"alpha": [1e3, 1e4]}),
        ],
        ids=["svc", "lssvc", "ridge"],
    )
    @pytest.mark.parametrize("with_train", [False, True])
    def test_a_winner_that_needs_no_model(self, model, grid, with_train):
        search = FastGridSearchCV(model, grid, return_train_score=with_train)
        with pytest.warns(UserWarning, match="predicts 'usual' for every held-out row"):
            search.fit(X, self.rare)
        assert any("'usual' for every held-out row" in note for note in search.plan_.notes)
        assert (search.predict(X) == "usual").all()

    def test_a_winner_that_tells_classes_apart(self):
        labels = np.where(X[:, 0] > 1.0, "rare", "usual")
        search = quiet(FastGridSearchCV(SVC(), {"C": [1.0, 10.0]}), X, labels)
        assert not any("held-out row" in note for note in search.plan_.notes)

    def test_held_out_rows_of_one_class_are_no_offence(self):
        labels = np.where(np.arange(120) < 60, 0, 1)
        cv = [(np.r_[0:20, 80:120], np.arange(20, 60))]
        search = FastGridSearchCV(LSSVC(gamma=0.1), {"alpha": [1e-3]}, cv=cv)
        assert set(quiet(search, X + 9.0 * labels[:, None], labels).predict(X)) <= {0, 1}

    def test_a_class_that_a_fold_does_not_know(self):
        labels = np.repeat([0, 1, 2], 40)
        search = FastGridSearchCV(LSSVC(gamma=0.1), {"alpha": [0.1]}, cv=KFold(3))
        assert not quiet(search, X, labels).plan_.notes


IRIS, CELLS = (load(return_X_y=True) for load in (load_iris, load_breast_cancer))
DIABETES = load_diabetes(return_X_y=True)
ORDINARY = {
    "iris": (SVC(), {"C": np.logspace(-1, 3, 5), "gamma": np.logspace(-3, 1, 5)}, IRIS),
    "cells": (
        make_pipeline(StandardScaler(), SVC()),
        {"svc__C": np.logspace(-2, 3, 6), "svc__gamma": np.logspace(-4, 0, 5)},
        CELLS,
    ),
    "ridge": (
        KernelRidge(kernel="rbf"),
        {"alpha": np.logspace(-3, 2, 6), "gamma": np.logspace(-2, 2, 5)},
        DIABETES,
    ),
    "svr": (
        make_pipeline(StandardScaler(), SVR()),
        {"svr__C": np.logspace(0, 3, 4), "svr__gamma": np.logspace(-4, 0, 5)},
        DIABETES,
    ),
    "logistic": (
        make_pipeline(StandardScaler(), LogisticRegression()),
        {"logisticregression__C": np.logspace(-3, 2, 6)},
        CELLS,
    ),
    "linear": (RidgeClassifier(), {"alpha": np.logspace(-3, 2, 6)}, CELLS),
}


class TestOrdinarySearches:
    @pytest.mark.parametrize("name", ORDINARY)
    def test_nothing_is_said_that_asks_for_no_action(self, name, capfd):
        """No warning, no line, no note; the best candidates are inside their grids."""
        model, grid, data = ORDINARY[name]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            search = FastGridSearchCV(model, grid, cv=5).fit(*data)
        assert search.plan_.notes == ()
        assert capfd.readouterr() == ("", "")

    def test_verbose_counts_intercepts_that_are_not_unique(self):
        model, grid, data = ORDINARY["iris"]
        (note,) = FastGridSearchCV(model, grid, cv=5, verbose=1).fit(*data).plan_.notes
        assert note.startswith("the intercept of 9 candidates is not unique in some folds")

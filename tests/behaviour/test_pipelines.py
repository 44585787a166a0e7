"""Pipelines of scikit-learn's Nystroem with linear models: the numbers GridSearchCV gives."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris, make_moons
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
)
from sklearn.model_selection import (
    cross_val_predict as sklearn_predict,
)
from sklearn.model_selection import (
    cross_val_score as sklearn_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import FastGridSearchCV, KernelLogisticClassifier, cross_val_predict, cross_val_score

NYSTROEM = Nystroem(n_components=25, gamma=0.1, random_state=0)


def assert_same(model, grid, X, y, atol, **options):
    options = {"cv": KFold(5, shuffle=True, random_state=0), **options}
    ours = FastGridSearchCV(model, grid, **options).fit(X, y)
    theirs = GridSearchCV(model, grid, **options).fit(X, y)
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], atol=atol
    )
    assert ours.cv_results_["is_exact"].all()
    return ours


class TestRidgeCV:
    ALPHAS = (1e-3, 0.1, 1.0, 30.0)

    @pytest.mark.parametrize("intercept", [True, False])
    @pytest.mark.parametrize("weighted", [True, False])
    def test_equals_scikit_learn(self, intercept, weighted):
        X, y = load_diabetes(return_X_y=True)
        model = RidgeCV(self.ALPHAS, fit_intercept=intercept)
        params = {}
        if weighted:
            params["sample_weight"] = np.random.default_rng(0).uniform(0.1, 3.0, len(y))
        ours = cross_val_predict(model, X, y, cv=5, params=params)
        theirs = sklearn_predict(model, X, y, cv=5, params=params)
        np.testing.assert_allclose(ours, theirs, rtol=1e-7)

    def test_folds_choose_different_alphas(self):
        X, y = load_diabetes(return_X_y=True)
        chosen = {RidgeCV(self.ALPHAS).fit(X[a], y[a]).alpha_ for a, _ in KFold(60).split(X)}
        assert len(chosen) > 1
        np.testing.assert_allclose(
            cross_val_predict(RidgeCV(self.ALPHAS), X, y, cv=60),
            sklearn_predict(RidgeCV(self.ALPHAS), X, y, cv=60),
            rtol=1e-7,
        )

    def test_after_nystroem(self):
        X, y = load_diabetes(return_X_y=True)
        model = make_pipeline(StandardScaler(), NYSTROEM, RidgeCV(self.ALPHAS))
        assert_same(model, {"nystroem__gamma": [0.01, 0.1]}, X, y, 1e-8)

    def test_two_targets(self):
        X, y = load_diabetes(return_X_y=True)
        Y = np.column_stack([y, np.sqrt(y)])
        ours = cross_val_predict(RidgeCV(self.ALPHAS), X, Y, cv=5)
        np.testing.assert_allclose(
            ours, sklearn_predict(RidgeCV(self.ALPHAS), X, Y, cv=5), rtol=1e-7
        )

    @pytest.mark.parametrize(
        "params", [{"cv": 3}, {"scoring": "r2"}, {"alpha_per_target": True}], ids=str
    )
    def test_other_ways_to_choose_are_refused(self, params):
        X, y = load_diabetes(return_X_y=True)
        with pytest.raises(ValueError, match="chooses alpha in another way"):
            cross_val_score(RidgeCV(self.ALPHAS, **params), X, y, fallback="refuse")

    def test_finite_orders_are_refused(self):
        X, y = load_diabetes(return_X_y=True)
        with pytest.raises(ValueError, match="chooses its own alpha"):
            FastGridSearchCV(RidgeCV(), {"fit_intercept": [True]}, order=1).fit(X, y)


class TestLogisticRegression:
    def data(self):
        return make_moons(300, noise=0.3, random_state=0)

    @pytest.mark.parametrize("class_weight", [None, "balanced", {0: 2.0, 1: 1.0}])
    @pytest.mark.parametrize("intercept", [True, False])
    def test_equals_scikit_learn(self, class_weight, intercept):
        X, y = self.data()
        model = LogisticRegression(
            C=3.0, class_weight=class_weight, fit_intercept=intercept, tol=1e-10
        )
        for method in ("decision_function", "predict_proba"):
            np.testing.assert_allclose(
                cross_val_predict(model, X, y, cv=5, method=method),
                sklearn_predict(model, X, y, cv=5, method=method),
                atol=1e-5,
            )

    @pytest.mark.parametrize("scoring", ["accuracy", "neg_log_loss", "roc_auc"])
    def test_after_nystroem(self, scoring):
        X, y = self.data()
        final = LogisticRegression(tol=1e-10, max_iter=10_000)
        model = make_pipeline(StandardScaler(), NYSTROEM, final)
        grid = {"logisticregression__C": [0.1, 1.0, 100.0], "nystroem__gamma": [0.1, 1.0]}
        assert_same(model, grid, X, y, 1e-5, scoring=scoring)

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"l1_ratio": 1.0, "solver": "saga"}, "l2 penalty"),
            ({"C": np.inf}, "C=inf"),
        ],
    )
    def test_what_is_not_ours_is_refused(self, params, message):
        X, y = self.data()
        with pytest.raises(ValueError, match=message):
            cross_val_score(LogisticRegression(**params), X, y, fallback="refuse")

    def test_more_than_two_classes_are_fitted_together(self):
        X, y = load_iris(return_X_y=True)
        X = X / X.std(axis=0)
        precise = LogisticRegression(solver="newton-cholesky", tol=1e-10)
        ours = cross_val_score(precise, X, y, scoring="neg_log_loss", fallback="refuse")
        theirs = sklearn_score(precise, X, y, scoring="neg_log_loss")
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


class TestProbabilities:
    @pytest.mark.parametrize("scoring", ["neg_log_loss", "roc_auc_ovr", "neg_brier_score"])
    def test_scorers_of_probabilities(self, scoring):
        X, y = load_iris(return_X_y=True)
        if scoring == "neg_brier_score":
            y = y == 1
        model = KernelLogisticClassifier(gamma=0.3)
        assert_same(model, {"C": [0.1, 10.0]}, X, y, 1e-8, scoring=scoring)

    def test_other_losses_have_none(self):
        X, y = make_moons(60, random_state=0)
        with pytest.raises(ValueError, match="predict_proba"):
            cross_val_predict(Ridge(), X, y, method="predict_proba", fallback="refuse")

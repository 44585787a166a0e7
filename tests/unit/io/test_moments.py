"""A StandardScaler in front of a model on a source of rows: each fold's own, from sums."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from everyfold import (
    LSSVC,
    FastGridSearchCV,
    KernelRegressor,
    Nystrom,
    RandomFourier,
    cross_val_predict,
    cross_val_score,
)
from everyfold.io.arrays import ArrayRows, IteratedRows
from everyfold.io.moments import FoldMoments, Moments, Scaling
from tests import cases

N = 203
FACTORS = np.array([1e-3, 1.0, 50.0, 1e4])


def data():
    X = cases.features(N)[:, :3]
    X = np.column_stack([X, np.full(N, 0.1)]) * FACTORS + 7.0
    rng = np.random.default_rng(3)
    return X, np.sin(X[:, 1]) + 0.001 * X[:, 2] + 0.1 * rng.normal(size=N)


def labels():
    X, y = data()
    return X, np.where(y > np.median(y), "up", "down")


def pipeline(model, **options):
    return Pipeline([("scale", StandardScaler(**options)), ("model", model)])


def table(search):
    return np.array([search.cv_results_[f"split{i}_test_score"] for i in range(search.n_splits_)])


class TestMoments:
    @pytest.mark.parametrize("offset", [0.0, 1e6])
    @pytest.mark.parametrize("cuts", [[], [1], [50, 51, 180]])
    def test_any_parts_give_the_scaler_of_all(self, offset, cuts):
        X = data()[0] + offset
        found = FoldMoments({0: Moments.of(X[: (cuts or [N])[0]])})
        for part in np.split(X, cuts)[1:]:
            found = found + FoldMoments({1: Moments.of(part)})
        scaler = StandardScaler().fit(X)
        moments = found.total
        np.testing.assert_allclose(moments.mean, scaler.mean_, rtol=1e-13)
        np.testing.assert_allclose(moments.variance, scaler.var_, rtol=1e-8, atol=1e-12)
        scaling = Scaling.standard(moments, with_mean=True, with_std=True)
        np.testing.assert_allclose(scaling.scale, scaler.scale_, rtol=1e-8)
        assert scaling.scale[3] == 1.0  # constant

    def test_the_rest_of_a_fold(self):
        X, numbers = data()[0], np.arange(N) % 3 - 1
        moments = FoldMoments.of(X, numbers)
        scaler = StandardScaler().fit(X[numbers != 0])
        np.testing.assert_allclose(moments.rest(0).mean, scaler.mean_, rtol=1e-13)
        np.testing.assert_allclose(moments.rest(0).variance[:3], scaler.var_[:3], rtol=1e-10)


class TestPerFold:
    @pytest.mark.parametrize("options", [{}, {"with_mean": False}, {"with_std": False}])
    @pytest.mark.parametrize("scoring", ["r2", "neg_mean_absolute_error", "neg_max_error"])
    def test_linear_models_equal_scikit_learn(self, options, scoring):
        X, y = data()
        grid = {"model__alpha": [0.1, 10.0, 1e3], "model__fit_intercept": [True, False]}
        settings = {"cv": KFold(4), "scoring": scoring}
        theirs = GridSearchCV(pipeline(Ridge(), **options), grid, **settings).fit(X, y)
        ours = FastGridSearchCV(pipeline(Ridge(), **options), grid, **settings)
        ours.fit(ArrayRows(X, y))
        np.testing.assert_allclose(table(ours), table(theirs), rtol=1e-7, atol=1e-10)
        assert ours.best_params_ == theirs.best_params_
        np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-8, atol=1e-9)
        assert "fitted on the training rows of each fold" in str(ours.plan_)

    def test_random_waves_equal_the_pipeline_in_memory(self):
        X, y = data()
        model = KernelRegressor(operator=RandomFourier(20, random_state=0))
        grid = {"model__gamma": [0.05, 0.5], "model__alpha": [1e-2, 1.0]}
        memory = FastGridSearchCV(pipeline(model), grid, cv=KFold(4)).fit(X, y)
        source = FastGridSearchCV(pipeline(model), grid, cv=KFold(4)).fit(ArrayRows(X, y))
        np.testing.assert_allclose(table(source), table(memory), rtol=1e-8)

    @pytest.mark.parametrize("sampling", ["uniform", "rpcholesky"])
    def test_landmarks_are_rows_that_each_fold_scales_itself(self, sampling):
        X, y = data()
        operator = Nystrom(15, sampling=sampling, random_state=0)
        model = KernelRegressor(gamma=0.2, alpha=0.1, operator=operator)
        found = cross_val_score(pipeline(model), ArrayRows(X, y), cv=KFold(4))
        whole = StandardScaler().fit(X)
        kernel = model._model().choice.resolve(X)
        drawn = operator.landmarks(kernel, whole.transform(X)).features.landmarks
        rows = whole.inverse_transform(drawn)
        expected = []
        for train, test in KFold(4).split(X):
            scaler = StandardScaler().fit(X[train])
            marks = scaler.transform(rows)
            values, U = np.linalg.eigh(kernel(marks, marks))
            T = U[:, values > 1e-10] / np.sqrt(values[values > 1e-10])
            V, W = (kernel(scaler.transform(X[part]), marks) @ T for part in (train, test))
            expected.append(Ridge(alpha=0.1).fit(V, y[train]).score(W, y[test]))
        np.testing.assert_allclose(found, expected, rtol=1e-6)

    def test_classes_and_a_second_pass(self):
        X, y = labels()
        order = np.random.default_rng(0).permutation(N)
        X, y = X[order], y[order]
        model = LSSVC(operator=RandomFourier(20, random_state=0), gamma=0.3)
        grid = {"model__alpha": [1e-2, 1.0]}
        options = {"cv": KFold(3), "scoring": ["accuracy", "roc_auc"], "refit": "roc_auc"}
        memory = FastGridSearchCV(pipeline(model), grid, **options).fit(X, y)
        source = FastGridSearchCV(pipeline(model), grid, **options).fit(ArrayRows(X, y))
        for name in ("mean_test_accuracy", "mean_test_roc_auc"):
            found, expected = source.cv_results_[name], memory.cv_results_[name]
            np.testing.assert_allclose(found, expected, rtol=1e-9)
        np.testing.assert_array_equal(source.predict(ArrayRows(X, y)), memory.predict(X))

    def test_held_out_values(self):
        X, y = data()
        model = pipeline(KernelRegressor(operator=RandomFourier(20, random_state=0), gamma=0.2))
        found = cross_val_predict(model, ArrayRows(X, y), cv=KFold(4))
        np.testing.assert_allclose(found, cross_val_predict(model, X, y, cv=KFold(4)), rtol=1e-8)

    def test_weights_are_the_models_alone(self):
        X, y = data()
        w = np.linspace(0.0, 2.0, N)
        model = pipeline(Ridge())
        grid = {"model__alpha": [0.1, 10.0]}
        memory = FastGridSearchCV(model, grid, cv=KFold(4), scoring="neg_max_error")
        memory.fit(X, y, model__sample_weight=w)
        source = FastGridSearchCV(model, grid, cv=KFold(4), scoring="neg_max_error")
        source.fit(ArrayRows(X, y, sample_weight=w))
        np.testing.assert_allclose(table(source), table(memory), rtol=1e-8)


class TestOtherWays:
    def test_once(self):
        X, y = data()
        model = KernelRegressor(operator=Nystrom(15, random_state=0), gamma=0.2)
        options = {"cv": KFold(4), "preprocessing": "once"}
        grid = {"model__alpha": [1e-2, 1.0]}
        memory = FastGridSearchCV(pipeline(model), grid, **options).fit(X, y)
        source = FastGridSearchCV(pipeline(model), grid, **options).fit(ArrayRows(X, y))
        np.testing.assert_allclose(table(source), table(memory), rtol=1e-8)

    def test_many_folds_scale_their_own_rows(self):
        X, y = data()
        grid = {"model__alpha": [0.1, 10.0]}
        theirs = GridSearchCV(pipeline(Ridge()), grid, cv=KFold(30), scoring="neg_max_error")
        ours = FastGridSearchCV(pipeline(Ridge()), grid, cv=KFold(30), scoring="neg_max_error")
        ours.fit(ArrayRows(X, y))
        np.testing.assert_allclose(table(ours), table(theirs.fit(X, y)), rtol=1e-7)

    def test_scaled_or_not_in_one_grid(self):
        X, y = data()
        grid = {"scale": [StandardScaler(), "passthrough"], "model__alpha": [0.1, 10.0]}
        theirs = GridSearchCV(pipeline(Ridge()), grid, cv=KFold(4)).fit(X, y)
        ours = FastGridSearchCV(pipeline(Ridge()), grid, cv=KFold(4)).fit(ArrayRows(X, y))
        np.testing.assert_allclose(table(ours), table(theirs), rtol=1e-7)

    def test_the_winner_is_an_ordinary_pipeline(self):
        X, y = data()
        frame = pd.DataFrame(X, columns=list("abcd"))
        model = pipeline(KernelRegressor(operator=Nystrom(20, random_state=0)))
        ours = FastGridSearchCV(model, {"model__gamma": [0.1, 0.3]}, cv=3).fit(ArrayRows(frame, y))
        scaler = StandardScaler().fit(frame)
        found = ours.best_estimator_.named_steps["scale"]
        for name in ("mean_", "var_", "scale_"):
            np.testing.assert_allclose(getattr(found, name), getattr(scaler, name), rtol=1e-9)
        np.testing.assert_array_equal(found.feature_names_in_, scaler.feature_names_in_)
        whole = ArrayRows(frame, y)
        np.testing.assert_allclose(ours.predict(whole), ours.predict(frame), rtol=1e-12)

    def test_rows_of_unknown_number(self):
        X, y = data()
        source = IteratedRows(lambda: ((X[i : i + 40], y[i : i + 40]) for i in range(0, N, 40)))
        ours = cross_val_score(pipeline(Ridge()), source, cv=4)
        theirs = cross_val_score(pipeline(Ridge()), X, y, cv=KFold(4))
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)

    @pytest.mark.parametrize(
        "steps", [[MinMaxScaler()], [StandardScaler(), MinMaxScaler()], [StandardScaler()] * 2]
    )
    def test_other_steps_are_refused(self, steps):
        with pytest.raises(ValueError, match="is one StandardScaler without sample_weight"):
            cross_val_score(make_pipeline(*steps, Ridge()), ArrayRows(*data()))

    def test_a_fold_of_everything(self):
        X, y = data()
        with pytest.raises(ValueError, match="leaves no training rows"):
            cross_val_score(pipeline(Ridge()), ArrayRows(X, y, fold=np.zeros(N, dtype=int)))

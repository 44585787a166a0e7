"""Sources of rows: the same models and scores as in memory, whatever the blocks."""

from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.metrics import make_scorer, max_error, mean_squared_error
from sklearn.model_selection import GridSearchCV, KFold, PredefinedSplit, StratifiedKFold
from sklearn.model_selection import cross_val_predict as sklearn_cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import SVC

import everyfold.estimators.sources as sources
from everyfold import (
    LSSVC,
    LSSVR,
    FastCalibratedClassifierCV,
    FastCrossConformalRegressor,
    FastGradientSearchCV,
    FastGridSearchCV,
    KernelClassifier,
    KernelRegressor,
    Nystrom,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    permutation_test_score,
)
from everyfold.engine.planning.costs import sums_bytes
from everyfold.io.arrays import ArrayRows, IteratedRows
from everyfold.io.blocks import StreamError
from everyfold.io.svmlight import SvmlightRows
from everyfold.io.tables import ParquetRows
from everyfold.linalg.symmetric import NotPositiveDefiniteError
from everyfold.operators.features import LandmarkFeatures
from tests import cases

N = 203
OPERATOR = Nystrom(12, sampling="uniform", random_state=0)
GRID = {"gamma": [0.05, 0.4], "alpha": [1e-3, 0.1, 1.0, 10.0]}


def regression(q=1):
    X = cases.features(N)
    y = cases.targets(X, q) + 1000.0
    return X, y[:, 0] if q == 1 else y


def labels(k=2):
    X, y = regression()
    cuts = np.quantile(y, np.linspace(0, 1, k + 1)[1:-1])
    return X, np.array(["red", "green", "blue"])[np.searchsorted(cuts, y)]


def pair(model, grid=GRID, data=None, **options):
    """The same search on arrays and on a source of them."""
    X, y = data or regression()
    options = {"cv": KFold(4), **options}
    memory = FastGridSearchCV(clone(model), grid, **options).fit(X, y)
    source = FastGridSearchCV(clone(model), grid, **options).fit(ArrayRows(X, y))
    return memory, source


def assert_same(memory, source, rtol=1e-9):
    for i in range(memory.n_splits_):
        key = f"split{i}_test_score"
        np.testing.assert_allclose(source.cv_results_[key], memory.cv_results_[key], rtol=rtol)


class TestSearch:
    @pytest.mark.parametrize("intercept", [True, False])
    @pytest.mark.parametrize(
        "scoring", [None, "neg_mean_squared_error", "neg_root_mean_squared_error"]
    )
    @pytest.mark.parametrize("q", [1, 2])
    def test_equals_memory_in_one_pass(self, intercept, scoring, q):
        model = KernelRegressor(operator=OPERATOR, fit_intercept=intercept)
        memory, source = pair(model, scoring=scoring, data=regression(q))
        assert_same(memory, source, rtol=1e-9 if intercept else 1e-8)
        assert "one pass" in str(source.plan_)
        assert source.best_params_ == memory.best_params_
        X, _ = regression()
        np.testing.assert_allclose(
            source.best_estimator_.predict(X), memory.best_estimator_.predict(X), rtol=1e-9
        )

    @pytest.mark.parametrize("rows", [1, 7, 64, 203, 5000])
    @pytest.mark.parametrize("is_raw", [True, False])
    def test_every_block_size(self, rows, is_raw, monkeypatch):
        X, y = regression()
        memory = FastGridSearchCV(KernelRegressor(operator=OPERATOR), GRID, cv=KFold(4)).fit(X, y)
        monkeypatch.setattr("everyfold.engine.source_data.height_of", lambda _: rows)
        monkeypatch.setattr(LandmarkFeatures, "keeps_digits", lambda *_: is_raw)
        model = KernelRegressor(operator=OPERATOR)
        source = FastGridSearchCV(model, GRID, cv=KFold(4)).fit(ArrayRows(X, y))
        assert_same(memory, source)

    @pytest.mark.parametrize(
        "scoring",
        [
            "neg_mean_absolute_error",
            "neg_max_error",
            ["r2", "neg_max_error"],
            make_scorer(max_error),
        ],
    )
    def test_other_scores_take_a_second_pass(self, scoring):
        refit = "r2" if isinstance(scoring, list) else True
        model = KernelRegressor(operator=OPERATOR)
        memory, source = pair(model, scoring=scoring, refit=refit)
        assert "two passes" in str(source.plan_)
        for key in memory.cv_results_:
            if key.startswith("mean_test"):
                np.testing.assert_allclose(
                    source.cv_results_[key], memory.cv_results_[key], rtol=1e-8
                )

    @pytest.mark.parametrize("k", [2, 3])
    @pytest.mark.parametrize("class_weight", [None, {"red": 3.0}])
    @pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy"])
    def test_classification(self, k, class_weight, scoring):
        model = LSSVC(operator=OPERATOR, class_weight=class_weight)
        cv = KFold(4, shuffle=True, random_state=0)
        memory, source = pair(model, data=labels(k), cv=cv, scoring=scoring)
        assert_same(memory, source)
        X, _ = labels(k)
        np.testing.assert_array_equal(source.predict(X), memory.predict(X))
        assert source.classes_.tolist() == memory.classes_.tolist()

    @pytest.mark.parametrize("scoring", [None, "neg_mean_absolute_error"])
    def test_weights_of_the_source(self, scoring):
        X, y = regression()
        w = cases.weights("zeros", N)
        search = FastGridSearchCV(
            KernelRegressor(operator=OPERATOR), GRID, cv=KFold(4), scoring=scoring
        )
        memory = clone(search).fit(X, y, sample_weight=w)
        source = clone(search).fit(ArrayRows(X, y, sample_weight=w))
        assert_same(memory, source)
        np.testing.assert_allclose(source.predict(X), memory.predict(X), rtol=1e-9)

    def test_errors_that_are_small_differences_take_a_second_pass(self):
        X = cases.features(N)
        y = X @ [3.0, -1.0, 2.0] + 1e-7 * np.sin(np.arange(N))
        model = KernelRegressor(kernel="linear", fit_intercept=False)
        scoring = "neg_mean_squared_error"
        memory, source = pair(model, {"alpha": [1e-9]}, data=(X, y), scoring=scoring)
        assert_same(memory, source, rtol=1e-6)
        assert "two passes" in str(source.plan_)

    def test_mean_convention(self):
        memory, source = pair(KernelRegressor(operator=OPERATOR), ridge_scaling="mean")
        assert_same(memory, source)

    def test_mean_convention_counts_rows_of_positive_weight(self):
        X, y = regression()
        w = cases.weights("zeros", N)
        assert 0 < np.count_nonzero(w) < N
        model = KernelRegressor(kernel="linear")
        options = {"cv": KFold(4), "ridge_scaling": "mean", "scoring": "neg_mean_squared_error"}
        search = FastGridSearchCV(model, {"alpha": [0.03]}, **options)
        search.fit(ArrayRows(X, y, sample_weight=w))
        ridge = Ridge(alpha=0.03 * np.count_nonzero(w)).fit(X, y, sample_weight=w)
        np.testing.assert_allclose(search.predict(X), ridge.predict(X), rtol=1e-10)
        for k, (train, test) in enumerate(KFold(4).split(X)):
            ridge = Ridge(alpha=0.03 * np.count_nonzero(w[train]))
            ridge.fit(X[train], y[train], sample_weight=w[train])
            score = -mean_squared_error(y[test], ridge.predict(X[test]), sample_weight=w[test])
            np.testing.assert_allclose(search.cv_results_[f"split{k}_test_score"], score, rtol=1e-9)

    def test_the_estimate_is_none_of_the_clock(self):
        X, y = regression()

        def estimate(times=1, cv=4, scoring="r2", landmarks=12, **grid):
            rows = ArrayRows(np.tile(X, (times, 1)), np.tile(y, times))
            model = KernelRegressor(operator=Nystrom(landmarks, random_state=0))
            search = FastGridSearchCV(model, {**GRID, **grid}, cv=cv, refit=False, scoring=scoring)
            return search.fit(rows).plan_.estimate

        one = estimate()
        assert one == estimate() > 0.0
        more = {"times": 4}, {"cv": 40}, {"scoring": "neg_max_error"}, {"landmarks": 24}
        assert all(estimate(**options) > one for options in more)
        assert estimate(gamma=[0.05, 0.1, 0.2, 0.4]) == pytest.approx(2 * one)

    @pytest.mark.parametrize("sampling", ["rpcholesky", "kmeans"])
    def test_other_landmarks(self, sampling):
        operator = Nystrom(12, sampling=sampling, random_state=0)
        memory, source = pair(KernelRegressor(operator=operator))
        assert_same(memory, source, rtol=1e-8)

    def test_linear_kernels_need_no_landmarks(self):
        memory, source = pair(KernelRegressor(kernel="linear"), {"alpha": [0.1, 10.0]})
        assert_same(memory, source)
        assert "columns" in source.plan_.operator

    def test_kernels_share_a_pass_and_distances(self, monkeypatch):
        X, y = regression()
        passes = []

        class Counted(ArrayRows):
            def _pieces(self, size):
                passes.append(size)
                yield from super()._pieces(size)

        search = FastGridSearchCV(KernelRegressor(operator=OPERATOR), GRID, cv=3, refit=False)
        search.fit(Counted(X, y))
        assert len(passes) == 1
        monkeypatch.setattr("everyfold.engine.planning.pass_sizes.MOST_BYTES", 1)
        passes.clear()
        again = FastGridSearchCV(KernelRegressor(operator=OPERATOR), GRID, cv=3, refit=False)
        again.fit(Counted(X, y))
        assert len(passes) == 2
        assert_same(search, again, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
class TestFailures:
    """What fails in a pass fails alone, as it does in memory."""

    def twins(self):
        X, y = regression()
        return np.column_stack([X, X]), y

    def test_a_ridge_that_is_too_small(self):
        grid = {"alpha": [1e-300, 0.1, 1.0]}
        model, data = KernelRegressor(kernel="linear"), self.twins()
        with pytest.warns(FitFailedWarning, match="4 fits failed"):
            source = FastGridSearchCV(model, grid, cv=KFold(4)).fit(ArrayRows(*data))
        assert np.isnan(source.cv_results_["mean_test_score"]).tolist() == [True, False, False]
        alone = FastGridSearchCV(model, {"alpha": [0.1, 1.0]}, cv=KFold(4)).fit(*data)
        truth = alone.cv_results_["mean_test_score"]
        np.testing.assert_allclose(source.cv_results_["mean_test_score"][1:], truth, rtol=1e-9)
        assert source.best_params_ == alone.best_params_

    def test_a_kernel_without_landmarks(self, monkeypatch):
        whole = LandmarkFeatures.of.__func__

        def of(cls, kernel, *args):
            if kernel.gamma == 0.4:
                raise NotPositiveDefiniteError("no landmarks")
            return whole(cls, kernel, *args)

        monkeypatch.setattr(LandmarkFeatures, "of", classmethod(of))
        X, y = regression()
        model = KernelRegressor(operator=OPERATOR)
        for scoring in ("r2", "neg_mean_absolute_error"):
            search = FastGridSearchCV(model, GRID, cv=KFold(4), scoring=scoring)
            with pytest.warns(FitFailedWarning, match="no landmarks"):
                search.fit(ArrayRows(X, y))
            failed = [params["gamma"] == 0.4 for params in search.cv_results_["params"]]
            assert np.isnan(search.cv_results_["mean_test_score"]).tolist() == failed

    def test_errors_are_raised_if_asked_for_or_if_nothing_is_left(self):
        data, model = self.twins(), KernelRegressor(kernel="linear")
        grid = {"alpha": [1e-300, 1.0]}
        search = FastGridSearchCV(model, grid, cv=KFold(4), error_score="raise")
        with pytest.raises(NotPositiveDefiniteError, match="increase alpha"):
            search.fit(ArrayRows(*data))
        search = FastGridSearchCV(model, {"alpha": [1e-300]}, cv=KFold(4))
        with pytest.raises(ValueError, match=r"All the 4 fits failed[\s\S]*increase alpha"):
            search.fit(ArrayRows(*data))

    @pytest.mark.filterwarnings("ignore:overflow")
    @pytest.mark.parametrize("scoring", ["r2", "neg_mean_absolute_error"])
    @pytest.mark.parametrize("has_column", [True, False])
    def test_a_pass_whose_only_kernel_fails(self, monkeypatch, scoring, has_column):
        monkeypatch.setattr(
            "everyfold.engine.planning.pass_sizes.MOST_BYTES", 1
        )  # a pass for every kernel
        X, y = regression()
        fold = np.arange(len(y)) % 4 if has_column else None
        cv = PredefinedSplit(fold) if has_column else KFold(4)
        good = {"kernel": ["rbf"], "gamma": [0.1], "alpha": [0.1, 1.0]}
        grid = [{"kernel": ["poly"], "gamma": [9.0], "degree": [999], "alpha": [0.1, 1.0]}, good]
        options = {"scoring": scoring, "random_state": 0, "cv": cv}
        model = KernelRegressor(operator=Nystrom(20))
        whole = FastGridSearchCV(model, good, **options).fit(X, y)
        options["cv"] = None if has_column else cv
        search = FastGridSearchCV(model, grid, **options)
        with pytest.warns(FitFailedWarning, match=r"overflows on these rows"):
            search.fit(ArrayRows(X, y, fold=fold))
        assert len(search.plan_.units) == 2
        found = search.cv_results_["mean_test_score"]
        assert np.isnan(found[:2]).all()
        np.testing.assert_allclose(found[2:], whole.cv_results_["mean_test_score"], rtol=1e-9)
        assert search.best_params_ == whole.best_params_
        with pytest.raises(ValueError, match=r"All the \d fits failed"):
            FastGridSearchCV(model, grid[0], **options).fit(ArrayRows(X, y, fold=fold))
        options["cv"] = PredefinedSplit(np.full(len(y), -1))
        with pytest.raises(ValueError, match="holds out no row"):
            FastGridSearchCV(model, grid[0], **options).fit(ArrayRows(X, y))


class TestMemory:
    def test_passes_that_do_not_fit_are_refused(self, monkeypatch):
        monkeypatch.setattr("everyfold.linalg.memory.available_memory", lambda: 1_000)
        search = FastGridSearchCV(KernelRegressor(operator=OPERATOR), GRID, cv=KFold(4))
        with pytest.raises(MemoryError, match="GB at a time"):
            search.fit(ArrayRows(*regression()))

    def test_workers_share_the_memory_of_passes(self, monkeypatch):
        def units(n_jobs):
            search = FastGridSearchCV(
                KernelRegressor(operator=OPERATOR),
                {"gamma": list(np.geomspace(0.01, 1.0, 12))},
                cv=KFold(4),
                n_jobs=n_jobs,
                refit=False,
            )
            return len(search.fit(ArrayRows(*regression())).plan_.units)

        monkeypatch.setattr(
            "everyfold.engine.planning.pass_sizes.MOST_BYTES", 6 * sums_bytes(12, 4)
        )
        assert (units(1), units(2)) == (2, 4)


class TestEstimatorsOfScikitLearn:
    """They are scored as they are, and refitted as ours."""

    @pytest.mark.parametrize("scoring", ["r2", "neg_mean_absolute_error"])
    @pytest.mark.parametrize("scaling", ["sum", "mean"])
    def test_kernel_ridge(self, scoring, scaling):
        X, y = regression()
        options = {"cv": KFold(4), "scoring": scoring, "ridge_scaling": scaling}
        rbf = KernelRidge(kernel="rbf")
        theirs = FastGridSearchCV(rbf, GRID, operator=OPERATOR, **options).fit(ArrayRows(X, y))
        model = KernelRegressor(fit_intercept=False, operator=OPERATOR)
        ours = FastGridSearchCV(model, GRID, **options).fit(ArrayRows(X, y))
        assert_same(ours, theirs, rtol=1e-12)
        assert type(theirs.best_estimator_) is KernelRegressor
        assert theirs.best_params_ == ours.best_params_
        np.testing.assert_allclose(theirs.predict(X), ours.predict(X), rtol=1e-12)
        assert "best_estimator_ is the KernelRegressor" in str(theirs.plan_)
        assert "KernelRegressor" not in str(ours.plan_)

    def test_kernel_ridge_draws_the_landmarks_of_the_search(self, monkeypatch):
        monkeypatch.setattr("everyfold.operators.nystrom.DEFAULT_LANDMARKS", 12)
        X, y = regression()
        options = {"cv": KFold(4), "random_state": 3}
        search = FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, **options).fit(ArrayRows(X, y))
        assert search.best_estimator_.operator == Nystrom(random_state=3)

    @pytest.mark.parametrize("intercept", [True, False])
    def test_ridge(self, intercept):
        X, y = regression()
        grid = {"alpha": [0.1, 10.0]}
        ridge = Ridge(fit_intercept=intercept)
        expected = GridSearchCV(ridge, grid, cv=KFold(4)).fit(X, y)
        found = FastGridSearchCV(ridge, grid, cv=KFold(4)).fit(ArrayRows(X, y))
        assert_same(expected, found, rtol=1e-8)
        np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-9)

    def test_ridge_classifier(self):
        X, y = labels(3)
        grid = {"alpha": [0.1, 10.0]}
        cv = KFold(4, shuffle=True, random_state=0)
        expected = GridSearchCV(RidgeClassifier(), grid, cv=cv).fit(X, y)
        found = FastGridSearchCV(RidgeClassifier(), grid, cv=cv).fit(ArrayRows(X, y))
        assert_same(expected, found)
        np.testing.assert_array_equal(found.predict(X), expected.predict(X))

    def test_scores_and_predictions(self):
        X, y = regression()
        for function in (cross_val_score, cross_val_predict):
            found = function(Ridge(), ArrayRows(X, y), cv=4)
            np.testing.assert_allclose(found, function(Ridge(), X, y, cv=4), rtol=1e-9)


class TestSources:
    def expected(self, cv):
        X, y = regression()
        return cross_val_score(KernelRegressor(gamma=0.4, operator=OPERATOR), X, y, cv=cv)

    def score(self, source, cv=None):
        return cross_val_score(KernelRegressor(gamma=0.4, operator=OPERATOR), source, cv=cv)

    def test_memmap(self, tmp_path):
        X, y = regression()
        np.save(tmp_path / "X.npy", X)
        rows = ArrayRows(np.load(tmp_path / "X.npy", mmap_mode="r"), y)
        np.testing.assert_allclose(self.score(rows, 4), self.expected(KFold(4)), rtol=1e-9)

    def test_iterator_of_known_length_is_cut_into_runs(self):
        X, y = regression()

        def pieces():
            for i in range(0, N, 31):
                yield X[i : i + 31], y[i : i + 31]

        scores = self.score(IteratedRows(pieces), 4)
        np.testing.assert_allclose(scores, self.expected(KFold(4)), rtol=1e-9)

    def test_fold_column(self):
        X, y = regression()
        fold = np.random.default_rng(0).integers(3, size=N)
        expected = self.expected(PredefinedSplit(fold))
        np.testing.assert_allclose(self.score(ArrayRows(X, y, fold=fold)), expected, rtol=1e-9)
        np.testing.assert_allclose(
            self.score(ArrayRows(X, y), PredefinedSplit(fold)), expected, rtol=1e-9
        )

    def test_rows_that_are_never_held_out(self):
        X, y = regression()
        fold = np.random.default_rng(0).integers(-1, 3, size=N)
        expected = self.expected(PredefinedSplit(fold))
        scores = self.score(ArrayRows(X, y), PredefinedSplit(fold))
        np.testing.assert_allclose(scores, expected, rtol=1e-9)
        with pytest.raises(ValueError, match="is in no fold"):
            cross_val_predict(
                KernelRegressor(operator=OPERATOR), ArrayRows(X, y), cv=PredefinedSplit(fold)
            )

    def test_parquet(self, tmp_path):
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        X, y = regression()
        columns = {f"x{j}": X[:, j] for j in range(X.shape[1])}
        pq.write_table(pa.table({**columns, "y": y}), tmp_path / "t.parquet", row_group_size=50)
        rows = ParquetRows(tmp_path / "t.parquet", "y")
        np.testing.assert_allclose(self.score(rows, 4), self.expected(KFold(4)), rtol=1e-9)
        model = LSSVR(gamma=0.4, operator=OPERATOR).fit(rows)
        assert model.feature_names_in_.tolist() == ["x0", "x1", "x2"]

    def test_svmlight(self, tmp_path):
        from sklearn.datasets import dump_svmlight_file

        X, y = regression()
        dump_svmlight_file(X, y, str(tmp_path / "t.svm"), zero_based=False)
        rows = SvmlightRows(tmp_path / "t.svm", 3)
        np.testing.assert_allclose(self.score(rows, 4), self.expected(KFold(4)), rtol=1e-7)

    @pytest.mark.parametrize("k", [2, 3])
    @pytest.mark.parametrize("method", ["predict", "decision_function"])
    def test_predictions(self, k, method):
        X, y = labels(k)
        cv = KFold(4, shuffle=True, random_state=0)
        model = LSSVC(gamma=0.4, operator=OPERATOR)
        ours = cross_val_predict(model, ArrayRows(X, y), cv=cv, method=method)
        expected = cross_val_predict(model, X, y, cv=cv, method=method)
        if method == "predict":
            np.testing.assert_array_equal(ours, expected)
        else:
            np.testing.assert_allclose(ours, expected, rtol=1e-8)


class TestOddFolds:
    """Folds of which sums tell nothing, or too little: scikit-learn's answer, or a refusal."""

    MODEL = KernelRegressor(kernel="linear")

    def assert_as_sklearn(self, X, y, cv, scoring, **weights):
        """Scores of Ridge, by scikit-learn's own loop."""
        expected = GridSearchCV(Ridge(), {"alpha": [1.0]}, cv=cv, scoring=scoring, refit=False)
        search = FastGridSearchCV(
            self.MODEL, {"alpha": [1.0]}, cv=cv, scoring=scoring, refit=False
        ).fit(ArrayRows(X, y, **weights))
        expected.fit(X, y, **weights)
        for i in range(expected.n_splits_):
            key = f"split{i}_test_score"
            score = expected.cv_results_[key]
            np.testing.assert_allclose(search.cv_results_[key], score, rtol=1e-8)
        return search

    @pytest.mark.filterwarnings("ignore:Scoring failed", "ignore:One or more of the test scores")
    @pytest.mark.filterwarnings("ignore:The scoring .* does not support sample_weight")
    @pytest.mark.parametrize(
        "scoring", ["r2", "neg_mean_squared_error", "neg_mean_absolute_error", "neg_max_error"]
    )
    def test_weight_0_for_all_of_a_fold(self, scoring):
        X, y = regression()
        w = cases.weights("zeros", N)
        w[:51] = 0.0
        search = self.assert_as_sklearn(X, y, KFold(4), scoring, sample_weight=w)
        is_nan = np.isnan(search.cv_results_["split0_test_score"]).all()
        assert is_nan == (scoring != "neg_max_error")

    @pytest.mark.parametrize("scoring", ["r2", "neg_mean_squared_error"])
    def test_constant_targets_in_a_fold(self, scoring):
        X, y = regression()
        y[51:102] = 1000.1
        self.assert_as_sklearn(X, y, KFold(4), scoring)

    def test_targets_that_differ_between_folds_by_far_more_than_within(self):
        X, y = regression()
        y = 1e-3 * (y - 1000.0) + 1000.0 * (np.arange(N) // 51)
        self.assert_as_sklearn(X, y, KFold(4), "r2")

    @pytest.mark.filterwarnings("ignore:R\\^2 score is not well-defined")
    @pytest.mark.filterwarnings("ignore:One or more of the test scores")
    def test_folds_of_one_row(self):
        X, y = (part[:6] for part in regression())
        fold = np.array([0, 0, 0, 1, 1, 2])
        search = self.assert_as_sklearn(X, y, PredefinedSplit(fold), "r2")
        assert np.isnan(search.cv_results_["split2_test_score"]).all()
        self.assert_as_sklearn(X, y, KFold(6), "neg_mean_squared_error")

    @pytest.mark.parametrize("rows", [1, 40])
    def test_blocks_of_rows_that_are_never_held_out(self, rows, monkeypatch):
        monkeypatch.setattr("everyfold.engine.source_data.height_of", lambda _: rows)
        X, y = regression()
        fold = np.random.default_rng(0).integers(3, size=N)
        fold[40:120] = -1
        for scoring in ("neg_mean_absolute_error", "neg_max_error", "r2"):
            self.assert_as_sklearn(X, y, PredefinedSplit(fold), scoring)

    @pytest.mark.parametrize("what", ["outlier", "weights", "level", "targets"])
    @pytest.mark.parametrize("intercept", [True, False])
    def test_folds_of_very_different_sizes(self, what, intercept, monkeypatch):
        """What is left without fold 0 is small beside it, or far from it, and not a difference."""
        monkeypatch.setattr("everyfold.engine.source_data.height_of", lambda _: 10)
        X, y = regression()
        y, w = y - 1000.0, cases.weights("random", N)
        first = np.arange(N) < 51
        X[3] *= 1e7 if what == "outlier" else 1.0
        X[~first] += 1e6 if what == "level" and intercept else 0.0
        y[first] += 1e10 if what == "targets" else 0.0
        w[first] *= 1e14 if what == "weights" else 1.0
        model = KernelRegressor(kernel="linear", alpha=1.0, fit_intercept=intercept)
        values = cross_val_predict(model, ArrayRows(X, y, sample_weight=w), cv=4)[first]
        ridge = Ridge(fit_intercept=intercept, solver="svd")
        ridge.fit(X[~first], y[~first], sample_weight=w[~first])
        expected = ridge.predict(X[first])
        scale = np.abs(expected).max(initial=1.0)
        np.testing.assert_allclose(values / scale, expected / scale, atol=1e-9)

    @pytest.mark.parametrize("model", [MODEL, LSSVC(kernel="linear")])
    def test_no_training_rows(self, model):
        X, y = regression() if model is self.MODEL else labels()
        everything = np.zeros(N, dtype=int)
        half = np.where(np.arange(N) < 100, 0.0, 1.0)
        for options, cv in (
            ({"fold": everything}, None),
            ({}, PredefinedSplit(everything)),
            ({"sample_weight": half}, PredefinedSplit(np.where(half > 0, 1, 0))),
        ):
            with pytest.raises(
                ValueError, match=r"fold [01] leaves no training rows with positive"
            ):
                cross_val_score(model, ArrayRows(X, y, **options), cv=cv)
            with pytest.raises(
                ValueError, match=r"fold [01] leaves no training rows with positive"
            ):
                cross_val_predict(model, ArrayRows(X, y, **options), cv=cv)
        with pytest.raises(ValueError, match="cv has no folds"):
            cross_val_score(model, ArrayRows(X, y), cv=PredefinedSplit(everything - 1))

    @pytest.mark.parametrize("model", [MODEL, LSSVC(kernel="linear")])
    def test_weight_0_for_all_rows(self, model):
        data = regression() if model is self.MODEL else labels()
        rows = ArrayRows(*data, sample_weight=np.zeros(N))
        for work in (lambda: model.fit(rows), lambda: cross_val_score(model, rows, cv=3)):
            with pytest.raises(ValueError, match="zero for every row"):
                work()

    @pytest.mark.parametrize("q", [0, 1, 2])
    def test_predictions_have_the_shape_of_the_targets(self, q):
        X, y = regression(max(q, 1))
        y = y.reshape(N, -1) if q else y
        model = KernelRegressor(kernel="linear", alpha=1.0)
        expected = sklearn_cross_val_predict(Ridge(), X, y, cv=4)
        found = cross_val_predict(model, ArrayRows(X, y), cv=4)
        np.testing.assert_allclose(found, expected.reshape(y.shape), rtol=1e-9)
        expected = Ridge().fit(X, y).predict(X).reshape(y.shape)
        np.testing.assert_allclose(model.fit(ArrayRows(X, y)).predict(X), expected, rtol=1e-9)


class TestRefusals:
    def refuse(self, message, model=None, X=None, **options):
        data = regression() if X is None else X
        model = model or KernelRegressor(operator=OPERATOR)
        y = options.pop("y", None)
        grid = options.pop("grid", {"alpha": [1.0]})
        with pytest.raises(ValueError, match=message):
            FastGridSearchCV(model, grid, **options).fit(ArrayRows(*data), y)

    def test_what_needs_all_rows(self):
        X, y = labels()
        self.refuse("fits 3 classes together", LogisticRegression(), labels(3), grid={"C": [1.0]})
        self.refuse("depends on the training rows", KernelRegressor(gamma="scale"))
        self.refuse("needs all rows at once", KernelRegressor(operator="dense"))
        self.refuse("needs all rows at once", cv=StratifiedKFold(3))
        self.refuse("LSSVC, HuberSVC", SVC(), (X, y), grid={"C": [1.0]})
        self.refuse("balanced", KernelClassifier(class_weight="balanced"), (X, y))
        for wrong, message in (({"pink": 2.0}, "names .'pink'"), ({"red": -1.0}, "at least 0")):
            self.refuse(message, KernelClassifier(class_weight=wrong), (X, y))
        self.refuse("or have it with weight 0", KernelClassifier(class_weight={"red": 0}), (X, y))
        weights = {"class_weight": [None, {"red": 2.0}]}
        self.refuse("search one class_weight at a time", KernelClassifier(), (X, y), grid=weights)
        self.refuse("alpha=0", grid={"alpha": [1.0, 0.0]})
        self.refuse("n_confirm", n_confirm=2)
        self.refuse("return_train_score", return_train_score=True)
        self.refuse("order=1", order=1)
        self.refuse("y; pass the targets to the source", y=regression()[1])
        pipeline = make_pipeline(MinMaxScaler(), KernelRegressor())
        self.refuse("MinMaxScaler", pipeline, grid={"kernelregressor__alpha": [1.0]})

    @pytest.mark.parametrize(
        "work",
        [
            lambda model, rows: permutation_test_score(model, rows, None),
            lambda model, rows: learning_curve(model, rows, None),
            lambda model, rows: cross_validate(model, rows, return_indices=True),
            lambda model, rows: cross_val_predict(model, rows, method="predict_proba"),
            lambda model, rows: cross_val_score(FastGridSearchCV(model, {}), rows),
            lambda model, rows: FastCalibratedClassifierCV(model).fit(rows, None),
            lambda model, rows: FastCrossConformalRegressor(model).fit(rows, None),
            lambda model, rows: FastGradientSearchCV(model).fit(rows, None),
        ],
    )
    def test_one_message_where_all_rows_are_needed(self, work):
        with pytest.raises(ValueError, match="needs all rows at once, and those of ArrayRows"):
            work(KernelClassifier(operator=OPERATOR), ArrayRows(*labels()))

    def test_too_few_rows_or_folds(self):
        self.refuse("int in the range", cv=1)
        self.refuse("more than the 203 rows", cv=300)

    def test_rows_sorted_by_label(self):
        X, y = labels()
        order = np.argsort(y)
        with pytest.raises(ValueError, match="sorted by label"):
            cross_val_score(LSSVC(operator=OPERATOR), ArrayRows(X[order], y[order]), cv=2)

    def test_a_source_that_changes(self):
        X, y = regression()
        calls = []

        def pieces():
            calls.append(0)
            yield X, y + (0.0 if len(calls) < 4 else 1.0)

        with pytest.raises(StreamError, match="changed"):
            FastGridSearchCV(KernelRegressor(operator=OPERATOR), GRID, cv=3).fit(
                IteratedRows(pieces)
            )

    def test_a_file_rewritten_in_the_only_pass(self, tmp_path, monkeypatch):
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        monkeypatch.setattr("everyfold.io.base._LONGEST_PIECE", 50)
        X, y = regression()
        path = tmp_path / "t.parquet"
        write = partial(pq.write_table, where=path, row_group_size=50)
        columns = {f"x{j}": X[:, j] for j in range(X.shape[1])}
        write(pa.table({**columns, "y": y}))

        class Rewritten(ParquetRows):
            def _pieces(self, size):
                for start, piece in enumerate(super()._pieces(size)):
                    yield piece
                    if start == 1:
                        write(pa.table({**columns, "y": -y}))

        source = Rewritten(path, "y")
        with pytest.raises(StreamError, match=r"t\.parquet was written to"):
            cross_val_score(KernelRegressor(operator=OPERATOR), source, cv=4)

    def test_fit_takes_targets_from_the_source(self):
        X, y = regression()
        with pytest.raises(ValueError, match="leave y out"):
            KernelRegressor(operator=OPERATOR).fit(ArrayRows(X, y), y)

    def test_interrupted_searches_keep_what_is_finished(self, monkeypatch):
        X, y = regression()
        monkeypatch.setattr("everyfold.engine.planning.pass_sizes.MOST_BYTES", 1)
        whole = sources.accumulate
        calls = []

        def sometimes(*args):
            calls.append(0)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return whole(*args)

        monkeypatch.setattr("everyfold.estimators.sources.accumulate", sometimes)
        search = FastGridSearchCV(KernelRegressor(operator=OPERATOR), GRID, cv=3)
        with pytest.warns(UserWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
            search.fit(ArrayRows(X, y))
        assert len(search.cv_results_["params"]) == 4
        assert search.predict(X).shape == (N,)

"""Rows that only the kernel of the user knows: words, graphs, data frames."""

import numpy as np
import pandas as pd
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist
from sklearn.datasets import make_classification
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC, SVR

from everyfold import FastGridSearchCV, cross_val_predict, cross_val_score

pytestmark = pytest.mark.xdist_group("numba")

X, LABELS = make_classification(160, 5, n_informative=4, n_redundant=0, flip_y=0.1, random_state=0)


def shared_letters(A, B):
    """How many letters two words share, scaled; knows nothing but words."""
    assert all(isinstance(word, str) for word in [*A, *B])
    counts = [[len(set(a) & set(b)) / (len(set(a)) * len(set(b))) ** 0.5 for b in B] for a in A]
    return np.array(counts)


def graph_kernel(A, B):
    return np.array([[len(a["edges"] & b["edges"]) + 1.0 for b in B] for a in A])


def words(n=60):
    rng = np.random.default_rng(0)
    first = ["".join(rng.choice(list("abcdefghij"), size=5)) for _ in range(n // 2)]
    second = ["".join(rng.choice(list("ghijklmnop"), size=5)) for _ in range(n // 2)]
    return first + second, np.repeat(["x", "y"], n // 2)


CONTAINERS = {
    "list": list,
    "array": np.array,
    "objects": lambda rows: np.array(rows, dtype=object),
    "series": pd.Series,
}


class TestRowsOfAnyKind:
    """A function of whole sets of rows gets what the user has, as in scikit-learn."""

    CV = ms.StratifiedKFold(4, shuffle=True, random_state=0)

    @pytest.mark.parametrize("container", CONTAINERS)
    def test_words(self, container):
        rows, labels = words()
        rows = CONTAINERS[container](rows)
        model = SVC(kernel=shared_letters, tol=1e-6)
        args = (model, rows, labels)
        options = {"cv": self.CV, "method": "decision_function"}
        assert_allclose(
            cross_val_predict(*args, **options),
            ms.cross_val_predict(*args, **options),
            atol=1e-5,
        )
        assert_allclose(cross_val_score(*args, cv=self.CV), ms.cross_val_score(*args, cv=self.CV))
        grid = {"C": [0.1, 1.0, 10.0]}
        ours = FastGridSearchCV(model, grid, cv=self.CV).fit(rows, labels)
        theirs = ms.GridSearchCV(model, grid, cv=self.CV).fit(rows, labels)
        key = "mean_test_score"
        assert_allclose(ours.cv_results_[key], theirs.cv_results_[key])
        assert ours.predict(rows).tolist() == theirs.predict(rows).tolist()

    def test_objects_and_regression(self):
        rng = np.random.default_rng(0)
        graphs = [{"edges": set(rng.integers(0, 12, size=6).tolist())} for _ in range(40)]
        y = np.array([sum(graph["edges"]) for graph in graphs]) / 10.0
        model = SVR(kernel=graph_kernel, tol=1e-6)
        assert_allclose(
            cross_val_predict(model, graphs, y, cv=5),
            ms.cross_val_predict(model, graphs, y, cv=5),
            atol=1e-4,
        )

    def test_a_pipeline_that_makes_words(self):
        rows, labels = words()
        short = FunctionTransformer(lambda rows: [word[:4] for word in rows])
        model = make_pipeline(short, SVC(kernel=shared_letters, tol=1e-6))
        grid = {"svc__C": [0.1, 1.0]}
        for options in ({}, {"preprocessing": "once"}):
            ours = FastGridSearchCV(model, grid, cv=self.CV, **options).fit(rows, labels)
            theirs = ms.GridSearchCV(model, grid, cv=self.CV).fit(rows, labels)
            assert_allclose(
                ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"]
            )

    def test_named_kernels_and_functions_in_one_grid(self):
        def kernel(A, B):
            assert isinstance(A, pd.DataFrame)
            return np.exp(-0.2 * cdist(A, B, "sqeuclidean"))

        frame = pd.DataFrame(X)
        grid = {"kernel": ["rbf", kernel, "linear"], "C": [0.5, 2.0]}
        ours = FastGridSearchCV(SVC(gamma=0.2, tol=1e-6), grid, cv=self.CV).fit(frame, LABELS)
        theirs = ms.GridSearchCV(SVC(gamma=0.2, tol=1e-6), grid, cv=self.CV).fit(frame, LABELS)
        key = "mean_test_score"
        assert_allclose(ours.cv_results_[key], theirs.cv_results_[key])

    def test_kernel_ridge_takes_numbers_only_as_in_scikit_learn(self):
        column = [[word] for word in words()[0]]
        for run in (cross_val_predict, ms.cross_val_predict):
            with pytest.raises(ValueError, match=r"could not convert|arrays of bytes"):
                run(KernelRidge(kernel=lambda a, b: 1.0), column, np.arange(60.0), cv=3)

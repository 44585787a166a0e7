"""Held-out values as scikit-learn's displays read them, against estimators of each fold."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import ConfusionMatrixDisplay, RocCurveDisplay, roc_auc_score
from sklearn.model_selection import RepeatedStratifiedKFold, cross_validate
from sklearn.preprocessing import scale

from everyfold import LSSVC, LSSVR, FastGridSearchCV
from everyfold.judge import fold_results

X, Y = load_breast_cancer(return_X_y=True)
X, Y = scale(X[:150]), np.where(Y[:150] == 1, "benign", "malignant")


@pytest.fixture(scope="module")
def search():
    return FastGridSearchCV(LSSVC(kernel="linear"), {"alpha": [1.0, 10.0]}, cv=4).fit(X, Y)


def test_as_estimators_of_each_fold(search):
    found = fold_results(search, X, Y)
    theirs = cross_validate(
        search.best_estimator_, X, Y, cv=4, return_estimator=True, return_indices=True
    )
    np.testing.assert_allclose(found["test_score"], theirs["test_score"])
    for side in ("train", "test"):
        for ours, rows in zip(found["indices"][side], theirs["indices"][side], strict=True):
            assert np.array_equal(ours, rows)
    for ours, model, test in zip(
        found["estimator"], theirs["estimator"], theirs["indices"]["test"], strict=True
    ):
        assert np.array_equal(ours.predict(X[test]), model.predict(X[test]))
        np.testing.assert_allclose(
            ours.decision_function(X[test]), model.decision_function(X[test]), atol=1e-8
        )
        some = test[::-3]
        assert np.array_equal(ours.predict(X[some]), model.predict(X[some]))
        with pytest.raises(ValueError, match="test rows of a fold"):
            ours.predict(X)


def test_some_rows_of_a_fold_are_found_in_a_table(search):
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(X).assign(kind=np.resize(["a", "b"], len(X)))
    found = fold_results(search, table, Y)
    model, test = found["estimator"][1], found["indices"]["test"][1]
    every = model.predict(table.iloc[test])
    assert np.array_equal(model.predict(table.iloc[test[5:9]]), every[5:9])


def test_displays_read_them(search):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    held = search.out_of_fold()
    drawn = ConfusionMatrixDisplay.from_predictions(held.truth, held.values)
    assert np.trace(drawn.confusion_matrix) == np.sum(held.truth == held.values)
    if not hasattr(RocCurveDisplay, "from_cv_results"):
        pytest.skip("scikit-learn before 1.7 draws no curves of folds")
    found = fold_results(search, X, Y)
    drawn = RocCurveDisplay.from_cv_results(found, X, Y, pos_label="malignant")
    values = search.out_of_fold(method="decision_function").values
    for area, test in zip(drawn.roc_auc, found["indices"]["test"], strict=True):
        np.testing.assert_allclose(area, roc_auc_score(Y[test], values[test]))
    plt.close("all")


def test_what_has_no_folds_apart():
    cv = RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0)
    search = FastGridSearchCV(LSSVC(), {"alpha": [1.0, 10.0]}, cv=cv).fit(X, Y)
    with pytest.raises(ValueError, match="tests every row once"):
        fold_results(search, X, Y)
    search = FastGridSearchCV(LSSVR(), {"alpha": [1.0, 10.0]}).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="classifier"):
        fold_results(search, X, X[:, 0])

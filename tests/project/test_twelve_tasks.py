"""The twelve tasks of the flowchart in docs/which.md: each call of its table, on little data."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GroupKFold, LeaveOneOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC

from everyfold import (
    LSSVR,
    FastCalibratedClassifierCV,
    FastCrossConformalRegressor,
    FastGridSearchCV,
    KernelLogisticClassifier,
    Nystrom,
    cross_val_score,
)
from everyfold.papers import HuberSVC, bif, circulant, gacv, granularity
from everyfold.streams import ParquetRows
from tests.shell import run

IRIS, LABELS = load_iris(return_X_y=True)
SUGAR, LEVEL = (part[:120] for part in load_diabetes(return_X_y=True))
CELLS, BENIGN = (part[:150] for part in load_breast_cancer(return_X_y=True))
GRID = {"C": [1.0, 10.0], "gamma": [0.1, 1.0]}
RIDGES = {"alpha": [0.1, 1.0], "gamma": [1.0, 10.0]}


def few_rows(folder):
    search = FastGridSearchCV(SVC(), GRID, cv=LeaveOneOut()).fit(IRIS[::3], LABELS[::3])
    assert search.honest_score("nested", IRIS[::3], LABELS[::3], outer=3).estimate > 0.8


def many_rows(folder):
    X = np.random.default_rng(0).normal(size=(600, 3))
    y = np.sin(X[:, 0])
    assert FastGridSearchCV(KernelRidge(kernel="rbf"), RIDGES).fit(X, y).best_score_ > 0.9
    search = FastGridSearchCV(LSSVR(), RIDGES, operator=Nystrom(100)).fit(X, y)
    assert search.best_score_ > 0.9


def groups(folder):
    g = np.arange(150) % 50 // 5 + 10 * LABELS
    search = FastGridSearchCV(SVC(), GRID, cv=GroupKFold(5)).fit(IRIS, LABELS, groups=g)
    assert search.best_score_ > 0.9


def spectra(folder):
    X = np.cumsum(np.random.default_rng(0).normal(size=(60, 40)), axis=1)
    first = FunctionTransformer(np.diff)
    model = make_pipeline(first, StandardScaler(), KernelRidge(kernel="rbf", gamma=0.001))
    grid = {"kernelridge__alpha": [0.01, 0.1]}
    assert FastGridSearchCV(model, grid).fit(X, X[:, 20] - X[:, 10]).best_score_ > 0.0


def text(folder):
    words, kinds = ["good fine day", "bad awful night", "fine good", "awful bad"] * 9, [1, 0] * 18
    for last, name in ((SVC(kernel="linear"), "svc__C"), (RidgeClassifier(), None)):
        grid = {name or "ridgeclassifier__alpha": [0.1, 1.0]}
        search = FastGridSearchCV(make_pipeline(TfidfVectorizer(), last), grid, cv=3)
        assert search.fit(words, kinds).best_score_ == 1.0


def precomputed(folder):
    K = IRIS @ IRIS.T
    search = FastGridSearchCV(SVC(kernel="precomputed"), {"C": [1.0, 10.0]}).fit(K, LABELS)
    assert search.best_score_ > 0.9
    FastGridSearchCV(KernelRidge(kernel="precomputed"), {"alpha": [1.0]}).fit(K, 1.0 * LABELS)


def intervals(folder):
    model = KernelRidge(kernel="rbf", gamma=10.0, alpha=0.1)
    fitted = FastCrossConformalRegressor(model, cv=-1).fit_conformalize(SUGAR, LEVEL)
    _, bounds = fitted.predict_interval(SUGAR)
    assert np.mean((bounds[:, 0, 0] <= LEVEL) & (bounds[:, 1, 0] >= LEVEL)) > 0.8


def probabilities(folder):
    search = FastGridSearchCV(make_pipeline(StandardScaler(), SVC()), {"svc__C": [1.0, 10.0]})
    for model in (search, KernelLogisticClassifier(gamma=0.01)):
        fitted = model.fit(CELLS, BENIGN)
        if model is search:
            fitted = FastCalibratedClassifierCV(search).fit(CELLS, BENIGN)
        assert fitted.predict_proba(CELLS).shape == (150, 2)


def memory(folder):
    pd.DataFrame(SUGAR).add_prefix("x").assign(y=LEVEL).to_parquet(folder / "rows.parquet")
    rows = ParquetRows(folder / "rows.parquet", target="y")
    assert cross_val_score(LSSVR(gamma=10.0, operator=Nystrom(50)), rows).shape == (5,)


def cores(folder):
    dask = pytest.importorskip("dask.array")
    X, y = dask.from_array(SUGAR, (40, 10)), dask.from_array(LEVEL, 40)
    FastGridSearchCV(LSSVR(operator=Nystrom(30)), RIDGES).fit(X, y)
    journal = str(folder / "search.journal")
    search = FastGridSearchCV(SVC(), GRID, n_jobs=2, checkpoint=journal).fit(IRIS, LABELS)
    assert search.best_score_ > 0.9


def command_line(folder):
    load_iris(as_frame=True).frame.to_csv(folder / "data.csv", index=False)
    done = run(folder, "search", "data.csv", "--model", "svc", "--cv", "3")
    assert done.code == 0, done.err


def paper(folder):
    squared = LSSVR(fit_intercept=False)
    for method in (bif(order=1), circulant()):
        FastGridSearchCV(squared, RIDGES, method=method).fit(SUGAR, LEVEL)
    FastGridSearchCV(SVC(), GRID, method=gacv()).fit(CELLS, BENIGN)
    method = granularity(0.1, ridge=1.0, smoothing=0.01)
    FastGridSearchCV(HuberSVC(h=0.01), GRID, method=method).fit(IRIS[50:], LABELS[50:])


TASKS = {
    "few rows": few_rows,
    "many rows": many_rows,
    "groups": groups,
    "spectra, curves": spectra,
    "text": text,
    "a precomputed kernel": precomputed,
    "prediction intervals": intervals,
    "probabilities": probabilities,
    "rows that do not fit in memory": memory,
    "a cluster, or many cores": cores,
    "the command line": command_line,
    "a paper's method": paper,
}


def test_the_tasks_are_those_of_the_page():
    page = (Path(__file__).parents[2] / "docs" / "which.md").read_text("utf-8")
    table = page.partition("| I have, or want |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| ([^|]+?) \|", table, re.MULTILINE) == list(TASKS)


@pytest.mark.filterwarnings("ignore::UserWarning")  # approximations that were asked for
@pytest.mark.parametrize("task", TASKS)
def test_a_task_takes_the_call_of_its_row(task, tmp_path):
    TASKS[task](tmp_path)

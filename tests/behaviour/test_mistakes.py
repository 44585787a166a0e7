"""Forty mistakes that people make: a command or a call, and the message that sets them right.

A message names what was given, what is allowed and what to do instead, in the language of the place
where the mistake was made: options in the shell, parameters in Python.
"""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, LeaveOneOut, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from everyfold import (
    LSSVC,
    FastGridSearchCV,
    KernelRidgeCV,
    LeavePairOut,
    PurgedTimeSeriesSplit,
    compare,
    cross_val_predict,
    cross_val_score,
    influence,
    score_interval,
)
from everyfold.cli import load_model
from everyfold.judge import verdict
from everyfold.operators import Nystrom
from everyfold.scorers import neg_crps_scorer
from tests.shell import run

RNG = np.random.default_rng(5)
N = 24
X = RNG.normal(size=(N, 3)).round(2)
y = (X[:, 0] > np.median(X[:, 0])).astype(int)
TABLE = pd.DataFrame(X, columns=["age", "weight", "height"]).assign(
    colour=RNG.choice(["red", "green"], N),
    born=pd.date_range("1990-01-01", periods=N).strftime("%Y-%m-%d"),
    patient=np.arange(N) // 3,
    ill=np.where(y, "yes", "no"),
)
GOOD = TABLE.drop(columns=["colour", "born", "patient"])

# -- the shell ------------------------------------------------------------------------------------

SVM = ("search", "good.csv", "-m", "svc")
ALL = ("search", "all.csv", "-m", "svc")
COMMANDS = {
    # the file
    ("search", "god.csv", "-m", "svc"): ["god.csv: there is no such file"],
    ("search", "ragged.csv", "-m", "svc"): ["line 3 has 2 fields, but the first has 3"],
    ("search", "gaps.csv", "-m", "svc"): [
        "column 'age' has 1 missing cell (empty or NaN) of 24, first in row 3, "
        "column 'height' has 2 missing cells (empty or NaN) of 24, first in row 5",
        "fill them in (features by --impute median), drop those rows, or leave the column out "
        "with --drop",
    ],
    ALL: ["column 'born' has dates such as '1990-01-01'; turn them into days with --dates iso"],
    (*ALL, "--dates", "%d.%m.%Y"): ["which are not of the format %d.%m.%Y"],
    (*ALL, "--dates", "iso", "--ordinal", "colour=red"): [
        "column 'colour' has 'green', which --ordinal colour=red has not; list all of its values"
    ],
    (*SVM, "--dates", "iso"): ["--dates iso: no column has dates; leave it out"],
    ("search", "names.csv", "-m", "svc"): [
        "column 'name' has 24 different texts in 24 rows, such as 'n0'; take them for categories "
        "with --one-hot, or leave the column out with --drop"
    ],
    (*ALL, "--drop", "born,coulor"): ["--drop 'coulor' is not a column; did you mean 'colour'?"],
    ("search", "german.csv", "-m", "svc"): [
        "column 'born' has dates such as '01.01.1990'; turn them into days with --dates %d.%m.%Y"
    ],
    # the model
    ("search", "good.csv"): ["--model is missing; use --model svc for labels, --model svr for"],
    ("search", "good.csv", "-m", "svm"): ["--model 'svm' is not known; did you mean 'svc'?"],
    ("search", "good.csv", "-m", "krr"): ["did you mean 'kernel-ridge'?"],
    (*SVM, "-k", "gaussian"): ["--kernel 'gaussian' is not known; did you mean 'rbf'?"],
    (*SVM, "-k", "cosine"): ["--kernel cosine does not suit --model svc", "--model lssvm"],
    ("search", "good.csv", "-m", "svr"): ["has labels such as ", "for classification use --model"],
    (*SVM, "-t", "age"): ["which are no class labels; for regression use --model svr"],
    (*SVM, "-t", "sick"): ["--target 'sick' is not a column", "Known are age, weight, height, ill"],
    (*SVM, "--operator", "nystrom"): ["is not auto, dense, nystrom:500 (landmarks)"],
    (*SVM, "--operator", "nystrom:9"): [
        "SVC and SVR need the full kernel matrix and cannot use one of rank 9; use --operator "
        "dense, or --model huber-svc or quadratic-svr with this operator"
    ],
    # the search
    (*SVM, "-g", "lambda=1"): ["'lambda' is not a parameter of --model svc", "did you mean 'C'?"],
    (*SVM, "-g", "alpha=1"): ["is regularised by C, alpha = 1/(2 C)"],
    (*SVM, "-g", "C=0"): ["C must be greater than 0"],
    (*SVM, "--cv", "group:5"): ["--cv group:5 needs --groups COLUMN"],
    (*SVM, "--cv", "20"): ["there are only 12 rows in the largest class; use fewer folds or loo"],
    (*SVM, "--scoring", "auc"): ["--scoring 'auc' is not known; did you mean 'roc_auc'?"],
    (*SVM, "--scoring", "r2"): ["--scoring r2 is for numbers, and the target has labels"],
    (*SVM, "--scoring", "f1"): ["--scoring f1 is not for labels no, yes; use f1_macro"],
    ("search", "good.csv", "-m", "ridge", "-t", "age", "--drop", "ill", "--scoring", "accuracy"): [
        "--scoring accuracy is for labels, and the target has numbers; use r2"
    ],
    (*SVM, "--order", "2"): [
        "--order 2 is not available with steps that are fitted per fold; use --preprocessing once "
        "or --order auto"
    ],
    # what is written
    (*SVM, "--save", "model.pkl"): [
        "--save model.pkl: a skops file, no pickle, is written; name it model.skops"
    ],
    (*SVM, "--report", "report.pdf"): ["an HTML page is written; name it report.html"],
    (*SVM, "--resume"): ["--resume continues a journal; name it with --journal FILE"],
    (*SVM, "--proba"): ["--proba needs --save MODEL.skops"],
    ("predict", "good.csv", "good.csv"): ["good.csv: this is not a model file of everyfold"],
}
# Words of Python, which nobody types in a shell.
PYTHON = re.compile(r"\b[a-z_]{2,}=['\d]|[A-Z]\w+\(|None|True|False|np\.|\bself\b")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes")
    gaps = GOOD.copy()
    gaps.loc[2, "age"] = np.nan
    gaps.loc[[4, 6], "height"] = np.nan
    tables = {"good": GOOD, "all": TABLE.drop(columns="patient"), "gaps": gaps}
    tables["names"] = GOOD.assign(ill=[f"n{i}" for i in range(N)]).rename(columns={"ill": "name"})
    tables["names"]["ill"] = GOOD["ill"]
    dates = pd.date_range("1990-01-01", periods=N).strftime("%d.%m.%Y")
    tables["german"] = GOOD.assign(ill=dates).rename(columns={"ill": "born"}).assign(ill=GOOD.ill)
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    (folder / "ragged.csv").write_text("a,b,y\n1,2,0\n1,2\n3,4,1\n")
    return folder


@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_a_wrong_command_is_answered_in_the_language_of_the_shell(folder, argv):
    before = sorted(folder.iterdir())
    done = run(folder, *argv)
    assert (done.code, done.out) == (2, ""), done
    message = done.err.splitlines()[-1]
    assert message.startswith("everyfold: error: ")
    assert done.err.count("error:") == 1
    for words in COMMANDS[argv]:
        assert words in message
    assert not PYTHON.search(message), message
    assert sorted(folder.iterdir()) == before


# -- Python ----------------------------------------------------------------------------------------

GRID = {"C": [1.0, 10.0]}
SCALED = make_pipeline(StandardScaler(), SVC())
CALLS = {
    "a method that is none": (
        lambda: FastGridSearchCV(SVC(), GRID, method="exat").fit(X, y),
        "method='exat' is not known; use 'auto', 'exact', 'screen', 'fast'",
    ),
    "a kernel that is none": (
        lambda: FastGridSearchCV(LSSVC(kernel="rfb"), {"alpha": [1.0]}).fit(X, y),
        "kernel='rfb' is not known; did you mean 'rbf'?",
    ),
    "a parameter that is none": (
        lambda: FastGridSearchCV(SVC(), {"gama": [1.0]}).fit(X, y),
        "Invalid parameter 'gama' for estimator SVC()",
    ),
    "how steps are fitted": (
        lambda: FastGridSearchCV(SCALED, {}, preprocessing="each").fit(X, y),
        "preprocessing='each' is not known; use 'per_fold', 'once' or 'auto'",
    ),
    "low rank for SVC": (
        lambda: FastGridSearchCV(SVC(), GRID, operator=Nystrom(9)).fit(X, y),
        "SVC and SVR need the full kernel matrix and cannot use one of rank 9; use "
        "operator='dense', or HuberSVC or QuadraticSVR",
    ),
    "one class": (
        lambda: FastGridSearchCV(SVC(), GRID).fit(X, np.zeros(N)),
        "y has one class only ([0.0]); a classifier needs at least two different labels",
    ),
    "weights of other rows": (
        lambda: FastGridSearchCV(SVC(), GRID).fit(X, y, sample_weight=np.ones(3)),
        "sample_weight has shape (3,), expected one weight per row: (24,)",
    ),
    "a kernel matrix that is none": (
        lambda: FastGridSearchCV(SVC(kernel="precomputed"), GRID).fit(X, y),
        "X with kernel='precomputed' must be the square matrix of all pairs of training rows",
    ),
    "folds without groups": (
        lambda: FastGridSearchCV(SVC(), GRID, cv=GroupKFold(3)).fit(X, y),
        "The 'groups' parameter should not be None",
    ),
    "predictions of rows that are never held out": (
        lambda: cross_val_predict(SVC(), X, y, cv=TimeSeriesSplit(3)),
        "does not test every row exactly once; use KFold, StratifiedKFold or GroupKFold",
    ),
    "a value in the place of a list": (
        lambda: FastGridSearchCV(SVC(), {"C": 1.0}).fit(X, y),
        "Single values need to be wrapped in a list",
    ),
    "groups of other rows": (
        lambda: score_interval(SVC(), X, y, groups=np.arange(5)),
        "groups has 5 labels for 24 rows; pass one for each row",
    ),
    "two scores with one interval": (
        lambda: score_interval(SVC(), X, y, scoring=["accuracy", "f1"]),
        "scoring=['accuracy', 'f1'] has several scorers; pass one at a time",
    ),
    "a level in percent": (
        lambda: score_interval(SVC(), X, y, level=95),
        "level=95 is not between 0 and 1; use 0.95",
    ),
    "an interval that is for areas": (
        lambda: score_interval(KernelRidge(), X, y, method="delong"),
        "method='delong' is for scoring='roc_auc' of two classes; use method='auto'",
    ),
    "labels against numbers": (
        lambda: compare(SVC(), Ridge(), X, y),
        "the models have different scores by default (accuracy, r2); pass scoring",
    ),
    "models without rows": (
        lambda: compare(SVC(), SVC(C=9.0)),
        "models are compared on rows; pass the data: X=..., y=...",
    ),
    "a model without rows": (
        lambda: verdict(SVC()),
        "SVC is no fitted search, so that the verdict needs rows; pass the data: X=..., y=...",
    ),
    "deleting what is none": (
        lambda: influence(KernelRidge(), X, y, of="row"),
        "of='row' is not known; use 'rows', 'columns' or 'permutations'",
    ),
    "labels for numbers": (
        lambda: KernelRidgeCV().fit(X, np.where(y, "yes", "no")),
        "y has labels, such as '",
    ),
    "a gamma of SVC": (
        lambda: KernelRidgeCV(gamma="scale").fit(X, y),
        "gamma='scale' is not allowed; use 'tune', None (1/n_features), a number",
    ),
    "pairs of nothing": (
        lambda: next(LeavePairOut().split(X)),
        "LeavePairOut needs y, the class of each row; pass y to split",
    ),
    "more folds than rows": (
        lambda: next(PurgedTimeSeriesSplit(99).split(X)),
        "n_splits=99 is more than the 24 rows; use a smaller number",
    ),
    "deviations of a model that has none": (
        lambda: cross_val_predict(KernelRidge(), X, y, return_std=True),
        "KernelRidge predicts no standard deviations; use a GaussianProcessRegressor, or Fast",
    ),
    "a distribution of a model that has none": (
        lambda: cross_val_score(SCALED, X, y, scoring=neg_crps_scorer),
        "SVC predicts no standard deviations; use a GaussianProcessRegressor",
    ),
    "deviations of rows never held out": (
        lambda: cross_val_predict(
            GaussianProcessRegressor(optimizer=None), X, y, cv=TimeSeriesSplit(3), return_std=True
        ),
        "the test sets of cv must contain every row once; use KFold",
    ),
    "an honest score of what was not kept": (
        lambda: FastGridSearchCV(SVC(), GRID, cv=LeaveOneOut()).fit(X, y).honest_score(),
        "repeat the search in folds by honest_score('nested', X, y), or fit it with method=",
    ),
    "a model file that is not there": (
        lambda: load_model("gone.skops"),
        "load_model: gone.skops: there is no such file",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_is_answered_by_the_parameter(name):
    call, words = CALLS[name]
    with pytest.raises((ValueError, TypeError), match=re.escape(words)):
        call()


def test_there_are_forty_and_some():
    assert len(COMMANDS) + len(CALLS) >= 60

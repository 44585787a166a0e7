"""The command line for studies: groups, weights, ids, kinds of folds."""

# ruff: noqa: F811  (pytest finds fixtures by their names)
import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_diabetes
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    LeaveOneGroupOut,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    StratifiedGroupKFold,
    TimeSeriesSplit,
)
from sklearn.svm import SVC

from tests.test_cli import cli, read_predictions, refused, scaled, server  # noqa: F401

N = 84
X, y = (part[:N] for part in load_diabetes(return_X_y=True))
RNG = np.random.default_rng(0)
PATIENT = RNG.permutation(np.repeat(np.arange(12), 7))
WEIGHT = RNG.uniform(0.1, 3.0, N).round(3)
LABEL = np.where(y > np.median(y), "high", "low")


def frame(**columns):
    table = pd.DataFrame(X, columns=[f"x{i}" for i in range(10)])
    return table.assign(**columns)


@pytest.fixture
def study(tmp_path):
    """A table with columns that are no features; the target is the last."""
    ids = [f"00{i}" for i in range(N)]
    columns = {"row": ids, "patient": [f"p{i:02}" for i in PATIENT], "w": WEIGHT}
    frame(**columns, label=LABEL, y=y).to_csv(tmp_path / "study.csv", index=False)
    return tmp_path / "study.csv"


NUMBERS = ("--model", "ridge", "-g", "alpha=0.1,1", "-g", "gamma=0.02,0.1", "--drop", "label")
CLASSES = ("--model", "svc", "-g", "C=1,10", "-g", "gamma=0.02,0.1", "-t", "label", "--drop", "y")
BESIDE = ("--id", "row", "--groups", "patient", "--weights", "w")


def slow(is_labelled, cv, **fit):
    """The search of scikit-learn."""
    model = SVC() if is_labelled else KernelRidge(kernel="rbf")
    grid = {"model__gamma": [0.02, 0.1]}
    grid |= {"model__C": [1.0, 10.0]} if is_labelled else {"model__alpha": [0.1, 1.0]}
    return GridSearchCV(scaled(model), grid, cv=cv).fit(X, LABEL if is_labelled else y, **fit)


SHUFFLED = {"shuffle": True, "random_state": 0}
GROUPS = {"groups": PATIENT}
FOLDS = [
    (False, ["--cv", "3x4"], RepeatedKFold(n_splits=4, n_repeats=3, random_state=0), {}),
    (True, ["--cv", "2x4"], RepeatedStratifiedKFold(n_splits=4, n_repeats=2, random_state=0), {}),
    (False, ["--cv", "time:4"], TimeSeriesSplit(4), {}),
    (False, ["--cv", "group:4", "--groups", "patient"], GroupKFold(4, **SHUFFLED), GROUPS),
    (False, ["--cv", "4", "--groups", "patient"], GroupKFold(4, **SHUFFLED), GROUPS),
    (True, ["--cv", "4", "--groups", "patient"], StratifiedGroupKFold(4, **SHUFFLED), GROUPS),
    (False, ["--cv", "loo", "--groups", "patient"], LeaveOneGroupOut(), GROUPS),
]


@pytest.mark.parametrize(("is_labelled", "options", "cv", "fit"), FOLDS)
def test_folds_are_those_of_scikit_learn(cli, study, is_labelled, options, cv, fit):
    args = CLASSES if is_labelled else NUMBERS
    beside = ("--drop", "row", "--drop", "w")
    beside += () if fit else ("--drop", "patient")
    done = cli("search", study, *args, *beside, *options, "--json", "--top", "1")
    assert done.code == 0, done.err
    found, best = json.loads(done.out)["best"], slow(is_labelled, cv, **fit)
    assert found["params"] == {k.removeprefix("model__"): v for k, v in best.best_params_.items()}
    theirs = [best.cv_results_[f"split{i}_test_score"][best.best_index_] for i in range(4)]
    assert_allclose(found["splits"][:4], theirs, rtol=1e-8)
    assert_allclose(found["mean_test_score"], best.best_score_, rtol=1e-8)


def test_weights_groups_and_ids_are_no_features(cli, study):
    done = cli("search", study, *NUMBERS, *BESIDE, "--cv", "4", "--json", "--save", "m.skops")
    record = json.loads(done.out)
    assert record["features"] == 10
    cv = GroupKFold(4, **SHUFFLED)
    best = slow(False, cv, groups=PATIENT, model__sample_weight=WEIGHT)
    assert_allclose(record["best"]["mean_test_score"], best.best_score_, rtol=1e-8)
    header, columns = read_predictions(cli("predict", "m.skops", study).out)
    assert header == ["row", "prediction"]
    assert columns[0][7] == "007"  # as it is in the file
    assert_allclose(np.array(columns[1], float), best.predict(X), rtol=1e-8)


def test_fit_takes_weights(cli, study):
    args = ("--model", "ridge", "-p", "alpha=0.1", "-p", "gamma=0.1", "--drop", "label")
    assert cli("fit", study, *args, *BESIDE, "--save", "m.skops").code == 0
    fitted = scaled(KernelRidge(alpha=0.1, gamma=0.1, kernel="rbf"))
    fitted.fit(X, y, model__sample_weight=WEIGHT)
    _, columns = read_predictions(cli("predict", "m.skops", study).out)
    assert_allclose(np.array(columns[1], float), fitted.predict(X), rtol=1e-8)


def test_predict_takes_ids_where_there_are_some(cli, study, tmp_path):
    args = ("--model", "ridge", "-p", "alpha=0.1", "--drop", "label", *BESIDE)
    assert cli("fit", study, *args, "--save", "m.skops").code == 0
    frame(key=2**60 + np.arange(N)).to_parquet(tmp_path / "new.parquet")
    header, columns = read_predictions(cli("predict", "m.skops", "new.parquet").out)
    assert header == ["prediction"]  # there is no column 'row'
    plain = columns[0]
    header, columns = read_predictions(
        cli("predict", "m.skops", "new.parquet", "--id", "key", "--out", "p.csv").out
        or (tmp_path / "p.csv").read_text()
    )
    assert header == ["key", "prediction"]
    assert columns[0][3] == str(2**60 + 3)
    assert columns[1] == plain
    refused(cli("predict", "m.skops", "new.parquet", "--id", "kee"), "did you mean 'key'?")
    np.savez(tmp_path / "rows.npz", X=X)
    refused(cli("predict", "m.skops", "rows.npz", "--id", "key"), "--id 'key' does not apply")


def test_groups_with_many_digits_stay_apart(cli, tmp_path):
    keys = 2**60 + PATIENT  # equal as floats
    frame(key=keys, y=y).to_csv(tmp_path / "keys.csv", index=False)
    args = ("--model", "ridge", "-g", "alpha=1", "-g", "gamma=0.1", "--groups", "key")
    assert json.loads(cli("search", "keys.csv", *args, "--cv", "loo", "--json").out)["folds"] == 12


def test_plan_has_the_folds_of_the_search(cli, study):
    args = (study, *NUMBERS, *BESIDE, "--cv", "group:3", "-q")
    planned, done = cli("plan", *args).out, cli("search", *args).out
    (line,) = [line for line in planned.splitlines() if line.startswith("search ")]
    assert "3 folds" in line
    assert line in done


BAD = [
    (["--cv", "group:4"], "--cv group:4 needs --groups COLUMN"),
    (["--cv", "3x"], "--cv '3x' is not a number of folds from 2 on, 10x5"),
    (["--cv", "0x5"], "--cv '0x5' is not"),
    (["--cv", "time:1"], "--cv 'time:1' is not"),
    (["--cv", "time:84"], "there are only 83 rows"),
    (["--groups", "patient", "--cv", "13"], "only 12 groups in --groups patient; use fewer folds"),
    (
        ["--groups", "patient", "--cv", "2x5"],
        "--cv 2x5 would tear --groups apart; use --cv group:5",
    ),
    (["--groups", "patien"], "--groups 'patien' is no column; did you mean 'patient'?"),
    (["--groups", "y"], "--groups 'y' is the target"),
    (["--weights", "x0"], "--weights, column 'x0', is -"),
    (["--weights", "patient"], "--weights, column 'patient', is not numeric"),
]


@pytest.mark.parametrize(("options", "words"), BAD)
def test_bad_options(cli, study, options, words):
    args = ("--drop", "row", "--drop", "patient", "-t", "y")
    refused(cli("plan", study, *NUMBERS, *args, *options, "-q"), words)


def test_files_without_columns_have_no_groups(cli, tmp_path):
    np.savez(tmp_path / "a.npz", X=X, y=y)
    refused(cli("search", "a.npz", "-m", "ridge", "--groups", "g"), "--groups does not apply")


def test_a_repeating_id_is_warned_of(cli, study):
    words = "column 'patient' has 12 values in 84 rows"
    args = (study, *NUMBERS, "--drop", "row")
    assert words in cli("plan", *args, "--drop", "patient").err
    assert "name it as --groups" in cli("plan", *args, "--id", "patient").err
    assert "warning" not in cli("plan", *args, "--groups", "patient").err
    assert (
        "warning"
        not in cli(
            "fit",
            *NUMBERS[:2],
            *args[:1],
            "-p",
            "alpha=1",
            "--drop",
            "row",
            "--drop",
            "label",
            "--drop",
            "patient",
            "--save",
            "m.skops",
        ).err
    )  # has no folds

"""The command line for studies: groups, weights, ids, kinds of folds."""

# ruff: noqa: F811  (pytest finds fixtures by their names)
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_diabetes
from sklearn.impute import SimpleImputer
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    TimeSeriesSplit,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from everyfold import LSSVR, Nystrom, RandomFourier
from tests.behaviour.test_cli import cli, read_predictions, refused, scaled, server  # noqa: F401

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


NUMBERS = (
    "--model",
    "kernel-ridge",
    "-g",
    "alpha=0.1,1",
    "-g",
    "gamma=0.02,0.1",
    "--drop",
    "label",
)
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
    args = ("--model", "kernel-ridge", "-p", "alpha=0.1", "-p", "gamma=0.1", "--drop", "label")
    assert cli("fit", study, *args, *BESIDE, "--save", "m.skops").code == 0
    fitted = scaled(KernelRidge(alpha=0.1, gamma=0.1, kernel="rbf"))
    fitted.fit(X, y, model__sample_weight=WEIGHT)
    _, columns = read_predictions(cli("predict", "m.skops", study).out)
    assert_allclose(np.array(columns[1], float), fitted.predict(X), rtol=1e-8)


def test_predict_takes_ids_where_there_are_some(cli, study, tmp_path):
    args = ("--model", "kernel-ridge", "-p", "alpha=0.1", "--drop", "label", *BESIDE)
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
    args = ("--model", "kernel-ridge", "-g", "alpha=1", "-g", "gamma=0.1", "--groups", "key")
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
        "--cv 2x5 would split --groups between training and test rows; use --cv group:5",
    ),
    (["--groups", "patien"], "--groups 'patien' is not a column; did you mean 'patient'?"),
    (["--groups", "y"], "--groups 'y' is the target"),
    (["--weights", "x0"], "--weights, column 'x0', is -"),
    (["--weights", "patient"], "--weights, column 'patient', is not numeric"),
    (["--operator", "nystrom"], "--operator 'nystrom' is not auto, dense, nystrom:500"),
    (["--operator", "fourier:0"], "--operator 'fourier:0' is not"),
    (["--ridge-scaling", "mode"], "--ridge-scaling 'mode' is not known"),
    (["--criterion", "gvc"], "--criterion 'gvc' is not known; did you mean 'gcv'?"),
    (["--criterion", "gcv", "--cv", "5"], "--criterion gcv has no folds; leave --cv out"),
    (["--criterion", "gcv", "--oof", "o.csv"], "leave --oof out"),
    (["--criterion", "span"], "--criterion span is not available"),
    (["--impute", "zero"], "--impute 'zero' is not known"),
    (["--out", "study.csv"], "--out study.csv is the file that is read; give another name"),
    (["--out", "a.csv", "--oof", "./a.csv"], "is that of --out, too; give another name"),
]


@pytest.mark.parametrize(("options", "words"), BAD)
def test_bad_options(cli, study, options, words):
    args = ("--drop", "row", "--drop", "patient", "-t", "y")
    refused(cli("search", study, *NUMBERS, *args, *options, "-q"), words)


def test_files_without_columns_have_no_groups(cli, tmp_path):
    np.savez(tmp_path / "a.npz", X=X, y=y)
    refused(
        cli("search", "a.npz", "-m", "kernel-ridge", "--groups", "g"), "--groups does not apply"
    )


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


# -- what takes the place of folds, of the kernel and of missing cells -----------------------------

PLAIN = ("--drop", "row", "--drop", "patient", "--drop", "w")


def test_a_criterion_has_no_folds(cli, study):
    done = cli("search", study, *NUMBERS, *PLAIN, "--criterion", "gcv")
    assert done.code == 0, done.err
    header, _, first, *_ = done.out.splitlines()
    assert header.split()[1:4] == ["alpha", "gamma", "-gcv"]
    alpha, gamma, value = map(float, first.split()[1:4])
    K = rbf_kernel(StandardScaler().fit_transform(X), gamma=gamma)
    H = np.linalg.solve(K + alpha * np.eye(N), K).T
    gcv = np.mean((y - H @ y) ** 2) / (1.0 - np.trace(H) / N) ** 2
    assert_allclose(value, -gcv, rtol=1e-4)
    assert "no folds" in cli("plan", study, *NUMBERS, *PLAIN, "--criterion", "gcv").out


def test_mean_scaling_multiplies_the_ridge_by_the_rows(cli, study):
    args = ("--model", "kernel-ridge", "--drop", "label", *PLAIN, "-g", "gamma=0.1", "--json")
    how = ("--ridge-scaling", "mean", "--save", "m.skops", "--cv", "4")
    found = json.loads(cli("search", study, *args, "-g", "alpha=0.01", *how).out)["best"]
    model = KernelRidge(kernel="rbf", gamma=0.1, alpha=0.01 * 63)  # rows of a training set
    folds = KFold(4, **SHUFFLED)
    assert_allclose(found["splits"], cross_val_score(scaled(model), X, y, cv=folds), rtol=1e-8)
    _, columns = read_predictions(cli("predict", "m.skops", study).out)
    expected = scaled(model.set_params(alpha=0.01 * N)).fit(X, y).predict(X)
    assert_allclose(np.array(columns[0], float), expected, rtol=1e-8)
    usual, scaled_down = (
        json.loads(cli("plan", study, *args, *more).out)["grid"]["alpha"]
        for more in ((), ("--ridge-scaling", "mean"))
    )
    assert_allclose(np.array(scaled_down) * N, usual, rtol=1e-2)


@pytest.mark.parametrize("kind", ["nystrom", "fourier"])
@pytest.mark.parametrize("model", ["kernel-ridge", "lssvm"])
def test_a_model_of_low_rank_is_saved_as_such(cli, study, kind, model):
    args = ("--model", model, "-g", "alpha=0.1,1", "-g", "gamma=0.02", "--drop", "label", *PLAIN)
    how = ("--operator", f"{kind}:15", "--cv", "4", "--json", "--save", "m.skops")
    done = cli("search", study, *args, *how)
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert (
        record["plans"][0]["operator"]
        == json.loads(cli("plan", study, *args, *how[:-2]).out)["plan"]["operator"]
    )
    structure = Nystrom(15, random_state=0) if kind == "nystrom" else RandomFourier(15, 0)
    alpha = record["best"]["params"]["alpha"]
    twin = LSSVR(alpha=alpha, gamma=0.02, operator=structure, fit_intercept=model == "lssvm")
    _, columns = read_predictions(cli("predict", "m.skops", study).out)
    assert_allclose(np.array(columns[0], float), scaled(twin).fit(X, y).predict(X), rtol=1e-6)


@pytest.mark.parametrize("how", ["median", "mean"])
def test_missing_cells_are_filled_in_within_folds(cli, tmp_path, how):
    holes = X.copy()
    holes[::5, 2], holes[3::7, 4] = np.nan, np.nan
    pd.DataFrame(holes).assign(y=y).to_csv(tmp_path / "holes.csv", index=False)
    args = ("--model", "kernel-ridge", "-g", "alpha=0.1", "-g", "gamma=0.1", "--cv", "4", "--json")
    refused(cli("search", "holes.csv", *args), "column '2' has 17 missing cells", "--impute median")
    done = cli("search", "holes.csv", *args, "--impute", how, "--save", "m.skops")
    assert done.code == 0, done.err
    model = KernelRidge(kernel="rbf", alpha=0.1, gamma=0.1)
    whole = make_pipeline(SimpleImputer(strategy=how), StandardScaler(), model)
    theirs = cross_val_score(whole, holes, y, cv=KFold(4, **SHUFFLED))
    assert_allclose(json.loads(done.out)["best"]["splits"], theirs, rtol=1e-8)
    _, columns = read_predictions(cli("predict", "m.skops", "holes.csv").out)
    assert_allclose(np.array(columns[0], float), whole.fit(holes, y).predict(holes), rtol=1e-8)


# -- out-of-fold predictions -----------------------------------------------------------------------


def test_out_of_fold_predictions_of_the_winner(cli, study, tmp_path):
    args = (*NUMBERS[:2], "-g", "alpha=10,100", "-g", "gamma=0.1", "--drop", "label", *BESIDE)
    done = cli("search", study, *args, "--cv", "4", "--expand", "--json", "--oof", "o.csv")
    params = json.loads(done.out)["best"]["params"]
    assert len(json.loads(done.out)["plans"]) > 1  # the winner is of a later round
    model = scaled(KernelRidge(kernel="rbf", **params))
    folds = GroupKFold(4, **SHUFFLED).split(X, y, PATIENT)
    expected = np.empty(N)
    for train, test in folds:
        model.fit(X[train], y[train], model__sample_weight=WEIGHT[train])
        expected[test] = model.predict(X[test])
    table = pd.read_csv(tmp_path / "o.csv", dtype={"row": str})
    assert list(table) == ["row", "target", "prediction"]
    assert table["row"][7] == "007"
    assert_allclose(table["prediction"], expected, rtol=1e-8)
    assert "wrote o.csv: out-of-fold predictions of alpha=" in done.err


def test_out_of_fold_labels_have_decisions_and_repeats(cli, study, tmp_path):
    args = (*CLASSES, *PLAIN, "-g", "C=1", "-g", "gamma=0.1", "--cv", "3x4", "--oof", "o.csv")
    assert cli("search", study, *args).code == 0
    table = pd.read_csv(tmp_path / "o.csv")
    assert list(table) == ["row", "target", "prediction", "decision", "spread", "folds"]
    assert set(table["folds"]) == {3}
    assert (table["target"] == LABEL).all()
    decided = np.zeros(N)
    for train, test in RepeatedStratifiedKFold(n_splits=4, n_repeats=3, random_state=0).split(
        X, LABEL
    ):
        fitted = scaled(SVC(gamma=0.1)).fit(X[train], LABEL[train])
        decided[test] += fitted.decision_function(X[test]) / 3
    assert_allclose(table["decision"], decided, atol=5e-3)  # libsvm's own tolerance
    refused(
        cli("search", study, *args[:-4], "--cv", "time:4", "--oof", "o.csv"),
        "--cv time:4 never holds out its first rows",
    )


# -- targets and winners ---------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["lssvm", "svc", "kernel-ridge", "svr"])
def test_a_bad_cell_of_a_numeric_target_is_named(cli, tmp_path, model):
    cells = [str(i % 2) for i in range(N)]
    cells[40] = "1O"
    frame(y=cells).to_csv(tmp_path / "bad.csv", index=False)
    words = "the target 'y' has 83 numbers of 84, but '1O' in row 41; correct the cell"
    refused(cli("plan", "bad.csv", "--model", model), words)
    if model == "svc":
        done = cli("plan", "bad.csv", "--model", model, "--task", "classification", "--json")
        assert done.code == 0, done.err


def test_ties_are_told(cli, study):
    args = (*CLASSES, *PLAIN, "-g", "C=0.001,0.002,0.003", "-g", "gamma=0.1", "--cv", "3")
    done = cli("search", study, *args)
    assert "note: 3 candidates share the best score, the first is taken" in done.err
    lone = cli("search", study, *args[:-5], "C=0.001", *args[-4:])
    assert "share the best score" not in lone.err


# -- probabilities ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [[], ["--groups", "patient"], ["--weights", "w"]])
@pytest.mark.parametrize("command", ["fit", "search"])
def test_probabilities_are_calibrated_on_held_out_rows(cli, study, command, how):
    grid = [("-p" if command == "fit" else "-g", word) for word in ("C=1", "gamma=0.1")]
    args = (*CLASSES[:2], *CLASSES[-4:], *(word for pair in grid for word in pair))
    beside = [name for name in ("row", "patient", "w") if name not in how]
    dropped = (word for name in beside for word in ("--drop", name))
    done = cli(command, study, *args, *dropped, *how, "--proba", "--save", "m.skops")
    assert done.code == 0, done.err
    assert "sample_weight" not in done.err
    splitter = StratifiedGroupKFold if "--groups" in how else StratifiedKFold
    groups = PATIENT if "--groups" in how else None
    splits = list(splitter(5, **SHUFFLED).split(X, LABEL, groups))
    fit = {"sample_weight": WEIGHT, "model__sample_weight": WEIGHT} if "w" in how else {}
    theirs = CalibratedClassifierCV(scaled(SVC(gamma=0.1)), cv=splits, ensemble=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of sample_weight in a Pipeline
        theirs.fit(X, LABEL, **fit)
    header, columns = read_predictions(
        cli("predict", "m.skops", study, "--proba", "--decision").out
    )
    assert header == ["prediction", "probability_high", "probability_low", "decision"]
    found = np.array(columns[1:3], float).T
    assert_allclose(found, theirs.predict_proba(X), atol=2e-3)  # libsvm's own tolerance
    inner = theirs.calibrated_classifiers_[0].estimator
    assert_allclose(np.array(columns[3], float), inner.decision_function(X), atol=1e-8)


def test_probabilities_that_are_not_there(cli, study):
    args = (*CLASSES[:2], *CLASSES[-4:], *PLAIN, "-p", "C=1", "--save", "m.skops")
    assert cli("fit", study, *args).code == 0
    refused(cli("predict", "m.skops", study, "--proba"), "fit and save it with --proba")
    refused(cli("search", study, *CLASSES, *PLAIN, "--proba"), "--proba needs --save")
    numbers = (*NUMBERS, *PLAIN, "--proba", "--save", "n.skops")
    refused(cli("search", study, *numbers), "--proba is for labels, not numbers")

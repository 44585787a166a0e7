"""Linear models, Gaussian processes, models without a grid, and several targets, in the shell."""

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from everyfold import KernelRidgeClassifierCV, KernelRidgeCV, score_interval
from tests.shell import run

RNG = np.random.default_rng(5)
N = 60
X = RNG.normal(size=(N, 3))
Y = np.column_stack([np.sin(X[:, 0]) + X[:, 1], X @ [1.0, -2.0, 0.5]])
Y += 0.1 * RNG.normal(size=Y.shape)
LABELS = np.where(Y[:, 0] + 0.5 * RNG.normal(size=N) > 0, "yes", "no")
TABLE = pd.DataFrame(X, columns=list("abc")).assign(**{"up": Y[:, 0], "far, out": Y[:, 1]})
NUMBERS = ("t.csv", "--drop", "kind")
KINDS = ("t.csv", "--drop", "up", "--drop", "far, out")
FOLDS = KFold(3, shuffle=True, random_state=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    TABLE.assign(kind=LABELS).to_csv(path / "t.csv", index=False)
    return path


@pytest.fixture
def cli(folder):
    return lambda *argv: run(folder, *argv)


def scaled(model):
    return Pipeline([("scaler", StandardScaler()), ("model", model)])


def process(signal=1.0, length_scale=1.0, noise=1.0, **options):
    kernel = ConstantKernel(signal) * RBF(length_scale) + WhiteKernel(noise)
    return GaussianProcessRegressor(kernel, normalize_y=True, **options)


def ok(done):
    assert done.code == 0, done.err
    return done


def columns(text):
    header, *rows = csv.reader(io.StringIO(text))
    return header, np.array(rows).T


def refused(done, words):
    assert (done.code, "Traceback" in done.err) == (2, False), done
    assert words in done.err


CLASSIFIERS = {
    "logistic": (("-p", "C=10"), LogisticRegression(C=10.0)),
    "linear-svc": (("-p", "C=0.1"), LinearSVC(C=0.1)),
    "ridge": (("-p", "alpha=3"), RidgeClassifier(alpha=3.0)),
    "kernel-ridge": ((), KernelRidgeClassifierCV()),
}


@pytest.mark.parametrize("model", CLASSIFIERS)
def test_classifiers_of_the_shell_are_those_of_python(cli, model):
    given, estimator = CLASSIFIERS[model]
    ok(cli("fit", *KINDS, "-m", model, *given, "--save", "m.skops"))
    header, found = columns(ok(cli("predict", "m.skops", "t.csv", "--decision")).out)
    fitted = scaled(estimator).fit(X, LABELS)
    assert header == ["prediction", "decision"]
    assert_array_equal(found[0], fitted.predict(X))
    assert_allclose(found[1].astype(float), fitted.decision_function(X), rtol=2e-4, atol=1e-4)


def test_a_logistic_model_has_probabilities(cli):
    ok(cli("fit", *KINDS, "-m", "logistic", "-p", "C=10", "--save", "m.skops"))
    _, found = columns(ok(cli("predict", "m.skops", "t.csv", "--proba")).out)
    wanted = scaled(LogisticRegression(C=10.0)).fit(X, LABELS).predict_proba(X)
    assert_allclose(found[1:].astype(float).T, wanted, atol=1e-4)


REGRESSORS = {
    "ridge": (("alpha=0.1,10",), Ridge(), {"alpha": [0.1, 10.0]}),
    "gp": (
        ("noise=0.1,1", "length_scale=1,3", "signal=2"),
        process(optimizer=None),
        {
            "kernel__k1__k1__constant_value": [2.0],
            "kernel__k1__k2__length_scale": [1.0, 3.0],
            "kernel__k2__noise_level": [0.1, 1.0],
        },
    ),
}


@pytest.mark.parametrize("targets", [["up"], ["up", "far, out"]])
@pytest.mark.parametrize("model", REGRESSORS)
def test_a_search_scores_as_grid_search_does(cli, model, targets):
    given, estimator, grid = REGRESSORS[model]
    named = [word for name in targets for word in ("-t", name)]
    beside = () if len(targets) == 2 else ("--drop", "far, out")
    options = [word for text in given for word in ("-g", text)]
    args = (*NUMBERS, *beside, *named, "-m", model, *options, "--cv", "3", "--json", "-q")
    found = json.loads(ok(cli("search", *args, "--top", "9")).out)
    y = Y if len(targets) == 2 else Y[:, 0]
    grid = {f"model__{name}": values for name, values in grid.items()}
    theirs = GridSearchCV(scaled(estimator), grid, cv=FOLDS, scoring="r2").fit(X, y)
    scores = [each["mean_test_score"] for each in found["top"]]
    assert_allclose(scores, np.sort(theirs.cv_results_["mean_test_score"])[::-1], rtol=1e-6)
    best = {name.split("__")[-1]: value for name, value in theirs.best_params_.items()}
    own = found["best"]["params"]
    assert sorted(own.values()) == sorted(best.values())
    assert set(own) == {text.partition("=")[0] for text in given}


def test_several_targets_are_predicted_judged_and_written(cli, folder):
    args = (*NUMBERS, "-t", "up", "-t", "far, out", "-m", "kernel-ridge")
    grid = ("-g", "alpha=0.1", "-g", "gamma=0.1", "--cv", "3")
    files = ("--save", "two.skops", "--oof", "oof.csv", "--out", "all.csv", "--report", "r.html")
    done = ok(cli("search", *args, *grid, *files))
    assert "targets 'up', 'far, out'" in done.err
    header, found = columns(ok(cli("predict", "two.skops", "t.csv")).out)
    assert header == ["prediction_up", "prediction_far, out"]
    held = pd.read_csv(folder / "oof.csv")
    assert_allclose(held[["target_up", "target_far, out"]], Y)
    off = np.mean((held[["prediction_up", "prediction_far, out"]].to_numpy() - Y) ** 2)
    assert np.mean((found.astype(float).T - Y) ** 2) < off < 0.5 * Y.var()
    judged = json.loads(ok(cli("judge", "two.skops", "t.csv", "--json")).out)
    model = scaled(KernelRidge(kernel="rbf", alpha=0.1, gamma=0.1))
    theirs = score_interval(model, X, Y, scoring="r2", random_state=0)
    assert_allclose((judged["estimate"], judged["low"]), (theirs.estimate, theirs.low))


def test_a_list_names_several_targets_of_a_folder(folder):
    (folder / "rows").mkdir(exist_ok=True)
    plain = TABLE.rename(columns={"far, out": "out"})
    plain.to_csv(folder / "rows" / "one.csv", index=False)
    args = ("rows", "-t", "up,out", "-m", "ridge", "-g", "alpha=1", "--cv", "3")
    ok(run(folder, "search", *args, "--save", "rows.skops", "-q"))
    header, found = columns(ok(run(folder, "predict", "rows.skops", "rows")).out)
    assert header == ["prediction_up", "prediction_out"]
    assert_allclose(found.astype(float).T, scaled(Ridge()).fit(X, Y).predict(X), rtol=1e-6)


@pytest.mark.parametrize("has_labels", [False, True])
def test_kernel_ridge_without_a_grid_chooses_in_each_fold(cli, has_labels):
    data = KINDS if has_labels else (*NUMBERS, "--drop", "far, out", "-t", "up")
    model, y = (KernelRidgeClassifierCV(), LABELS) if has_labels else (KernelRidgeCV(), Y[:, 0])
    done = ok(cli("search", *data, "-m", "kernel-ridge", "--cv", "3", "--json"))
    found = json.loads(done.out)
    folds = StratifiedKFold(3, shuffle=True, random_state=0) if has_labels else FOLDS
    theirs = cross_val_score(scaled(model), X, y, cv=folds)
    assert_allclose(found["best"]["splits"], theirs, rtol=1e-9)
    chosen = scaled(model).fit(X, y)[-1]
    assert_allclose(
        (found["chosen"]["alpha"], found["chosen"]["gamma"]), (chosen.alpha_, chosen.gamma_)
    )
    assert "chosen on all rows: alpha=" in done.err
    assert "not sped up" not in done.err


def test_a_grid_groups_or_landmarks_make_it_a_search(cli):
    up = ("-m", "kernel-ridge", "-t", "up", "--drop", "far, out")
    for option in (("-g", "alpha=1"), ("--operator", "nystrom:9"), ("--criterion", "gcv")):
        found = json.loads(ok(cli("plan", *NUMBERS, *up, *option, "--json")).out)
        assert len(found["grid"]["gamma"]) > 1, option


def test_parameters_of_a_process_are_those_of_the_fit_on_all_rows(cli):
    up = (*NUMBERS, "--drop", "far, out", "-t", "up", "-m", "gp")
    found = json.loads(ok(cli("search", *up, "--cv", "3", "--json")).out)["grid"]
    tuned = scaled(process(1.0, 1.7, 0.5)).fit(X, Y[:, 0])[-1].kernel_.get_params()
    wanted = [tuned[f"k1__{name}"] for name in ("k1__constant_value", "k2__length_scale")]
    wanted.append(tuned["k2__noise_level"])
    values = [found[name][0] for name in ("signal", "length_scale", "noise")]
    assert_allclose(values, wanted, rtol=0.01)
    fixed = json.loads(ok(cli("search", *up, "-g", "noise=0.7", "--cv", "3", "--json")).out)["grid"]
    assert fixed["noise"] == [0.7]
    assert fixed["length_scale"] != found["length_scale"]


def test_a_process_predicts_its_standard_deviations(cli):
    given = ("-p", "noise=0.5", "-p", "signal=2", "-p", "length_scale=1.5")
    up = (*NUMBERS, "--drop", "far, out", "-t", "up")
    ok(cli("fit", *up, "-m", "gp", *given, "--save", "gp.skops"))
    header, found = columns(ok(cli("predict", "gp.skops", "t.csv", "--std")).out)
    fitted = scaled(process(2.0, 1.5, 0.5, optimizer=None)).fit(X, Y[:, 0])
    mean, std = fitted.predict(X, return_std=True)
    assert header == ["prediction", "std"]
    assert_allclose(found.astype(float), [mean, std], rtol=1e-9)
    judged = json.loads(ok(cli("judge", "gp.skops", "t.csv", "--json")).out)
    assert judged["estimate"] < judged["as_saved"]
    ok(cli("fit", *up, "-m", "ridge", "-p", "alpha=1", "--save", "r.skops"))
    refused(cli("predict", "r.skops", "t.csv", "--std"), "--std: only a gp has standard deviations")


WRONG = {
    "-m logistic -k rbf": "--kernel rbf does not suit --model logistic, which is linear; use",
    "-m gp -k linear": "--kernel linear does not suit --model gp, which is always rbf",
    "-m logistic -g gamma=1": "for a kernel with one use --model kernel-logistic",
    "-m ridge -g C=1": "--model ridge is regularised by alpha",
    "-m gp -t up -g noise=0": "noise must be greater than 0",
    "-m svr -t up,a": "--target names 2 columns, and --model svr predicts one; give one",
    "-m ridge -t up,a --task classification": "--model ridge for labels predicts one",
    "-m ridge -t up,up": "--target names 'up' more than once",
    "-m ridge -t up,kind": "the target, column 'kind', has text, such as '",
    "-m ridge -t up,a --interval 0.9 --save x.skops": "--interval is for one target",
    "-m gp": "has labels such as",
    "-m krr": "did you mean 'kernel-ridge'?",
    "-m logreg": "did you mean 'logistic'?",
    "-m gaussian-process": "did you mean 'gp'?",
}


@pytest.mark.parametrize("args", WRONG)
def test_what_does_not_go_together_is_refused(cli, args):
    refused(cli("search", "t.csv", *args.split()), WRONG[args])

"""Saved models judged in the shell: the same numbers as in Python, and what cannot be judged."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from everyfold import LSSVC, compare, score_interval
from tests.shell import run

RNG = np.random.default_rng(11)
N = 60
TABLE = pd.DataFrame(RNG.normal(size=(N, 2)).round(3), columns=["age", "weight"]).assign(
    colour=RNG.choice(["red", "green", "blue"], N), patient=np.arange(N) // 3
)
TABLE["ill"] = np.where((TABLE["age"] > 0.0) ^ (TABLE["colour"] == "red"), "yes", "no")
y = TABLE["ill"].to_numpy()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three models: an SVC on all columns, an LSSVC on two of them, and one of numbers."""
    folder = tmp_path_factory.mktemp("judging")
    TABLE.to_csv(folder / "t.csv", index=False)
    fits = {
        "svc": ("-m", "svc", "-p", "C=10", "-p", "gamma=0.1", "--proba", "--drop", "patient"),
        "lssvm": ("-m", "lssvm", "-p", "gamma=0.1", "--drop", "colour", "--drop", "patient"),
        "age": ("-m", "kernel-ridge", "-t", "age", "--drop", "ill", "--drop", "patient"),
    }
    for name, options in fits.items():
        done = run(folder, "fit", "t.csv", *options, "--save", f"{name}.skops")
        assert done.code == 0, done.err
    return folder


def encoded(model):
    """An estimator after the steps of the shell, on all columns."""
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    parts = [("numbers", StandardScaler(), ["age", "weight"]), ("words", one_hot, ["colour"])]
    return make_pipeline(ColumnTransformer(parts), model)


SVM = encoded(SVC(C=10.0, gamma=0.1))


@pytest.mark.parametrize("how", [{}, {"groups": "patient", "scoring": "balanced_accuracy"}])
def test_a_judgement_is_that_of_score_interval(folder, how):
    options = [word for name, value in how.items() for word in (f"--{name}", value)]
    done = run(folder, "judge", "svc.skops", "t.csv", *options, "--json", "--level", "0.9")
    assert done.code == 0, done.err
    groups = TABLE["patient"].astype(str).to_numpy() if how else None
    scoring = how.get("scoring", "accuracy")
    asked = {"groups": groups, "scoring": scoring, "level": 0.9, "random_state": 0}
    theirs = score_interval(SVM, TABLE, y, **asked)
    found = json.loads(done.out)
    for name in ("estimate", "low", "high"):
        assert found[name] == pytest.approx(getattr(theirs, name), rel=1e-9)
    assert found["unit"] == ("group" if how else "row")
    predicted = run(folder, "predict", "svc.skops", "t.csv").out.split()[1:]
    as_saved = balanced_accuracy_score(y, predicted) if how else np.mean(predicted == y)
    assert found["as_saved"] == pytest.approx(as_saved)


def test_a_judgement_in_words_and_its_report(folder):
    done = run(folder, "judge", "svc.skops", "t.csv", "--report", "report.html")
    assert done.code == 0, done.err
    score, method, as_saved, exact, *rest = done.out.splitlines()
    assert score.startswith("score          accuracy 0.")
    assert "(95 %: " in score
    assert score.endswith("; fitted to 60 rows like these")
    assert exact == "exact          all held-out values equal those of refits"
    assert {line.split()[0] for line in rest} == {"rows", "leaks"}
    assert method.startswith("method         ")
    assert as_saved.startswith("as saved       ")
    page = (folder / "report.html").read_text()
    assert "<h1>Judgement of svc.skops</h1>" in page
    assert "C = 10, gamma = 0.1. Best mean accuracy: 0." in page
    assert "everyfold judge svc.skops t.csv --report report.html" in page


def test_leaks_are_named_with_the_option_that_repairs_them(folder):
    leaking = pd.concat([TABLE, TABLE.head(20)]).assign(code=lambda t: (t["ill"] == "yes") * 2.0)
    leaking = leaking[[*leaking.columns.drop("ill"), "ill"]]
    leaking.to_csv(folder / "leaks.csv", index=False)
    fit = ("fit", "leaks.csv", "-m", "svc", "-p", "gamma=0.1", "--drop", "colour")
    assert run(folder, *fit, "--save", "leaks.skops").code == 0
    found = run(folder, "judge", "leaks.skops", "leaks.csv").out
    assert "column 'code' alone tells the target; fit without it (--drop)" in found
    assert "; name a column of what belongs together as --groups" in found
    assert "cv=" not in found


def test_models_of_other_columns_are_compared_on_the_same_folds(folder):
    done = run(folder, "compare", "svc.skops", "lssvm.skops", "t.csv", "--json")
    assert done.code == 0, done.err
    two = ["age", "weight"]
    other = make_pipeline(ColumnTransformer([("n", StandardScaler(), two)]), LSSVC(gamma=0.1))
    theirs = compare(SVM, other, TABLE, y, scoring="accuracy")
    found = json.loads(done.out)
    assert found["difference"] == pytest.approx(theirs.difference, rel=1e-9)
    assert found["interval"] == pytest.approx(theirs.interval, rel=1e-9)
    words = run(folder, "compare", "svc.skops", "lssvm.skops", "t.csv").out
    assert words.startswith("verdict        svc.skops is better than lssvm.skops\n")
    words = run(folder, "compare", "lssvm.skops", "svc.skops", "t.csv").out
    assert words.startswith("verdict        svc.skops is better than lssvm.skops\n")
    words = run(folder, "compare", "svc.skops", "svc.skops", "t.csv").out
    assert words.startswith("verdict        it is not certain which is better at 0.95\n")
    options = ("svc.skops", "svc.skops", "t.csv", "--margin", "0.1")
    assert "within the margin of 0.1" in run(folder, "compare", *options).out.splitlines()[0]


def test_what_cannot_be_judged(folder):
    for argv, words in (
        (("judge", "svc.skops", "gone.csv"), "there is no such file"),
        (("judge", "svc.skops", "t.csv", "-t", "ag"), "did you mean 'age'?"),
        (("judge", "svc.skops", "t.csv", "-t", "age"), "the target 'age' has values such as"),
        (("judge", "svc.skops", "t.csv", "--scoring", "r2"), "is for numbers"),
        (("judge", "svc.skops", "t.csv", "--cv", "1"), "--cv 1 is not a number of folds"),
        (("judge", "svc.skops", "t.csv", "--level", "95"), "--level 95 is not a share"),
        (("judge", "svc.skops", "t.csv", "--report", "r.pdf"), "name it r.html"),
        (("judge", "t.csv", "t.csv"), "this is not a model file"),
        (("compare", "svc.skops", "age.skops", "t.csv"), "one predicts labels and the other"),
    ):
        done = run(folder, *argv)
        assert (done.code, done.out) == (2, ""), done
        assert words in done.err.splitlines()[-1]

"""Folders from the shell: searches, fits and predictions of rows that are read in blocks."""

import importlib.util
import io
import json
import signal
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import dump_svmlight_file
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import LSSVC, FastGridSearchCV, KernelRegressor, Nystrom
from everyfold.io.arrays import ArrayRows
from tests import cases
from tests.shell import run

N = 150
NAMES = ["a", "b", "c"]
X = cases.features(N)[:, :3].round(5) * [1.0, 10.0, 100.0]
Y = cases.targets(X / [1.0, 10.0, 100.0], 1)[:, 0].round(5)
WEIGHTS = np.linspace(0.5, 2.0, N).round(3)


def table():
    frame = pd.DataFrame(X, columns=NAMES).assign(w=WEIGHTS, name=[f"n{i}" for i in range(N)])
    return frame.assign(group=(np.median(Y) < Y).astype(int), y=Y)


@pytest.fixture
def study(tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    for i, part in enumerate(np.array_split(np.arange(N), 3)):
        table().iloc[part].to_csv(folder / f"part.{9 + i}.csv", index=False)
    (tmp_path / "new").mkdir()
    table()[NAMES].to_parquet(tmp_path / "new" / "all.parquet", row_group_size=40)
    return tmp_path


def refused(done, *words):
    assert done.code == 2, done
    assert all(word in done.err.splitlines()[-1] for word in words), done.err


NUMBERS = ("-m", "kernel-ridge", "-k", "linear", "-t", "y", "--drop", "group", "--drop", "w")
NUMBERS += ("--id", "name")
LABELS = ("-m", "lssvm", "-t", "group", "--drop", "y", "--drop", "w", "--drop", "name")


def folds(k):
    return KFold(k, shuffle=True, random_state=0)


def test_a_linear_search_is_scikit_learns(study):
    done = run(study, "search", "rows", *NUMBERS, "-g", "alpha=0.1,10,1000", "--cv", "4", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    pipeline = make_pipeline(StandardScaler(), Ridge(fit_intercept=False))
    grid = {"ridge__alpha": [0.1, 10.0, 1000.0]}
    theirs = GridSearchCV(pipeline, grid, cv=folds(4)).fit(X, Y)
    assert found["rows"] == N
    assert found["best"]["params"]["alpha"] == theirs.best_params_["ridge__alpha"]
    np.testing.assert_allclose(found["best"]["mean_test_score"], theirs.best_score_, rtol=1e-8)


def test_a_logistic_search_of_a_folder(study):
    asked = "-m", "logistic", *LABELS[2:], "-g", "C=0.1,10", "--cv", "4", "--json"
    done = run(study, "search", "rows", *asked, "--save", "m.skops")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["rows"] == N
    labels = table()["group"]
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(tol=1e-9))
    grid = {"logisticregression__C": [0.1, 10.0]}
    theirs = GridSearchCV(pipeline, grid, cv=folds(4)).fit(X, labels)
    assert found["best"]["mean_test_score"] == pytest.approx(theirs.best_score_)
    done = run(study, "predict", "m.skops", "new", "--out", "p.csv")
    assert done.code == 0, done.err
    assert len(pd.read_csv(study / "p.csv")) == N


def test_search_save_and_predict_another_folder(study):
    asked = ("-g", "gamma=0.1,0.5", "-g", "alpha=0.01,1", "--cv", "3", "--operator", "nystrom:20")
    done = run(study, "search", "rows", *LABELS, *asked, "--save", "m.skops", "--json")
    assert done.code == 0, done.err
    model = make_pipeline(StandardScaler(), LSSVC(operator=Nystrom(20)))
    grid = {"lssvc__gamma": [0.1, 0.5], "lssvc__alpha": [0.01, 1.0]}
    options = {"cv": folds(3), "random_state": 0, "scoring": "accuracy"}
    here = FastGridSearchCV(model, grid, **options)
    here.fit(ArrayRows(X, (np.median(Y) < Y).astype(int)))
    found = json.loads(done.out)["best"]
    np.testing.assert_allclose(found["mean_test_score"], here.best_score_, rtol=1e-9)
    done = run(study, "predict", "m.skops", "new", "--decision", "--out", "p.csv")
    assert done.code == 0, done.err
    written = pd.read_csv(study / "p.csv")
    np.testing.assert_array_equal(written["prediction"], here.predict(X))
    np.testing.assert_allclose(written["decision"], here.decision_function(X), rtol=1e-6)
    done = run(study, "predict", "m.skops", "new/*.parquet")
    np.testing.assert_array_equal(pd.read_csv(io.StringIO(done.out))["prediction"], here.predict(X))


def test_fit_plan_and_weights(study):
    options = ("-m", "lssvm", "-t", "y", "--drop", "group", "--drop", "name", "--weights", "w")
    asked = ("-g", "gamma=0.1", "--cv", "3", "--operator", "nystrom:9")
    done = run(study, "plan", "rows", *options, *asked)
    assert done.code == 0, done.err
    assert "sums over the rows of every fold in one pass" in done.out
    params = ("-p", "gamma=0.3", "-p", "alpha=0.1", "--save", "m.skops")
    assert run(study, "fit", "rows", *options, *params).code == 0
    done = run(study, "predict", "m.skops", "new")
    scaler = StandardScaler().fit(X)
    model = KernelRegressor(gamma=0.3, alpha=0.1, operator=Nystrom(random_state=0))
    model.fit(scaler.transform(X), Y, sample_weight=WEIGHTS)
    found = pd.read_csv(io.StringIO(done.out))["prediction"]
    np.testing.assert_allclose(found, model.predict(scaler.transform(X)), atol=1e-3)


def test_a_journal_of_a_folder(study, monkeypatch):
    monkeypatch.setattr("everyfold.engine.planning.pass_sizes.MOST_BYTES", 1)
    search = ("search", "rows", *LABELS, "-g", "gamma=0.1,0.5", "-g", "alpha=0.1,1", "--cv", "3")
    search += ("--operator", "nystrom:20", "--json", "--journal", "j")
    first = run(study, *search)
    assert first.code == 0, first.err
    with monkeypatch.context() as patch:
        patch.setattr(
            "everyfold.engine.execution.passes.block_method", None
        )  # nothing is left to do
        again = run(study, *search, "--resume")
    assert again.code == 0, again.err
    assert json.loads(again.out)["top"] == json.loads(first.out)["top"]
    table().iloc[:5].to_csv(study / "rows" / "part.20.csv", index=False)
    refused(run(study, *search, "--resume"), "data (X)")


def test_progress_within_a_pass(study, monkeypatch):
    monkeypatch.setattr("everyfold.search.progress._SECONDS_BETWEEN_LINES", 0.0)
    done = run(study, "search", "rows", *NUMBERS, "-g", "alpha=0.1,10", "--cv", "4")
    assert f"100 % of {N} rows of a pass" in done.err


def test_refusals(study):
    (study / "empty").mkdir()
    refused(run(study, "search", "empty", "-m", "svc"), "is a directory")
    refused(
        run(study, "search", "rows", "-m", "svc", "-t", "y"),
        "use --model logistic, ridge, kernel-ridge, lssvm, kernel-logistic",
    )
    for option in (("--groups", "name"), ("--impute", "mean"), ("--oof", "o.csv")):
        refused(run(study, "search", "rows", *NUMBERS, *option), f"{option[0]} needs all rows")
    told = run(study, "search", "rows", *NUMBERS, "--groups", "name")
    refused(told, "give one file, or in Python FolderRows(..., fold=COLUMN)")
    refused(run(study, "search", "rows", *NUMBERS, "--cv", "loo"), "needs all rows at once")
    refused(
        run(study, "search", "rows", "-m", "kernel-ridge", "-t", "z"),
        "--target 'z' is not a column",
    )
    refused(run(study, "search", "rows", "-m", "kernel-ridge", "-t", "y"), "'name' is not numeric")
    spoilt = table()
    spoilt.loc[4, "b"] = np.nan
    spoilt.to_csv(study / "rows" / "part.12.csv", index=False)
    done = run(study, "search", "rows", *NUMBERS)
    refused(done, "row 154: the column 'b' is null", "part.12.csv")


def test_less_memory_than_rows_and_a_kill(tmp_path, monkeypatch):
    """The benchmark of beyond_memory.py on a few megabytes, with a pass for every kernel."""
    script = Path(__file__).parents[2] / "benchmarks" / "beyond_memory.py"
    spec = importlib.util.spec_from_file_location("beyond_memory", script)
    beyond = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "beyond_memory", beyond)
    spec.loader.exec_module(beyond)
    study = beyond.Study(tmp_path, 4.0, 1500.0, 50, 100, part=2000, call=beyond.ONE_EACH)
    beyond.make(study, "rows", study.rows, seed=0)
    beyond.make(study, "new", 500, seed=1)
    killed = beyond.run(study, *study.search("broken"), kill_at=1, name="broken")
    assert killed.code == -signal.SIGKILL, killed.words
    kept = (tmp_path / "broken.journal").read_bytes()
    kept = kept[: kept.rfind(b"\n") + 1]
    assert 1 <= kept.count(b"\n") - 1 < 3
    monkeypatch.setattr("everyfold.engine.planning.pass_sizes.LONGEST", 0.0)
    assert run(tmp_path, *study.search("whole")).code == 0
    resumed = run(tmp_path, *study.search("broken"), "--resume")
    assert resumed.code == 0, resumed.err
    assert (tmp_path / "broken.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert (tmp_path / "broken.journal").read_bytes().startswith(kept)
    assert beyond.records(study, "broken") == beyond.records(study, "whole") == 3
    assert (tmp_path / "broken.html").read_text().startswith("<!DOCTYPE html>")
    assert not list(tmp_path.glob(".*.partial"))
    predicted = run(tmp_path, "predict", "broken.skops", "new")
    found = pd.read_csv(io.StringIO(predicted.out))["prediction"]
    y = pd.read_parquet(tmp_path / "new")["y"]
    assert 1 - np.mean((y - found) ** 2) / y.var() > 0.5


@pytest.mark.parametrize("first", [1, 10**9])
def test_a_journal_does_not_depend_on_how_passes_are_cut(study, monkeypatch, first):
    search = ("search", "rows", *LABELS, "-g", "gamma=0.1,0.5,2", "-g", "alpha=0.1,1", "--cv", "3")
    search += ("--operator", "nystrom:20", "--json", "--journal", "j")
    monkeypatch.setattr("everyfold.engine.planning.pass_sizes.MOST_BYTES", first)
    whole = run(study, *search)
    lines = (study / "j").read_bytes().splitlines(keepends=True)
    (study / "j").write_bytes(b"".join(lines[:3]))  # two of three kernels
    monkeypatch.setattr("everyfold.engine.planning.pass_sizes.MOST_BYTES", 10**9 // first)
    again = run(study, *search, "--resume")
    assert again.code == 0, again.err
    assert json.loads(again.out)["top"] == json.loads(whole.out)["top"]
    assert (study / "j").read_bytes().splitlines(keepends=True)[:3] == lines[:3]
    assert len((study / "j").read_bytes().splitlines()) == 4


@pytest.mark.parametrize("base", [0, 1])
def test_svmlight_files_are_those_of_one_file(tmp_path, base):
    (tmp_path / "rows").mkdir()
    sparse = np.where(np.abs(X) > np.median(np.abs(X), axis=0), X, 0.0)
    sparse[0] = 1.0  # every index occurs
    for i, part in enumerate([*np.array_split(np.arange(N), 3), np.arange(N)]):
        name = "one.svm" if i == 3 else f"rows/{i}.svm"
        dump_svmlight_file(sparse[part], Y[part], str(tmp_path / name), zero_based=base == 0)
    asked = ("-m", "lssvm", "-k", "linear", "-g", "alpha=0.1,10", "--cv", "3", "--json", "--save")
    found = [run(tmp_path, "search", data, *asked, "m.skops") for data in ("one.svm", "rows")]
    assert [done.code for done in found] == [0, 0], found
    one, many = (json.loads(done.out)["best"] for done in found)
    assert one["params"] == many["params"]
    np.testing.assert_allclose(many["mean_test_score"], one["mean_test_score"], rtol=1e-8)
    told = [run(tmp_path, "predict", "m.skops", data) for data in ("one.svm", "rows")]
    one, many = (pd.read_csv(io.StringIO(done.out))["prediction"] for done in told)
    np.testing.assert_allclose(many, one, rtol=1e-9)
    refused(run(tmp_path, "search", "rows", *asked, "m.skops", "--id", "a"), "--id does not apply")
    refused(
        run(tmp_path, "predict", "m.skops", "rows", "--id", "a"), "--id cannot be combined with"
    )
    dump_svmlight_file(np.ones((2, 5)), np.ones(2), str(tmp_path / "rows" / "9.svm"))
    refused(run(tmp_path, "predict", "m.skops", "rows"), "is not among")


def test_ridge_is_fitted_as_it_is_searched(study):
    searched = run(
        study, "search", "rows", *NUMBERS, "-g", "alpha=3", "--cv", "3", "--save", "m.skops"
    )
    fitted = run(study, "fit", "rows", *NUMBERS, "-p", "alpha=3", "--save", "n.skops")
    assert (searched.code, fitted.code) == (0, 0), (searched.err, fitted.err)
    found = [run(study, "predict", name, "rows") for name in ("m.skops", "n.skops")]
    assert found[0].out == found[1].out
    assert found[0].err == ""
    pipeline = make_pipeline(StandardScaler(), Ridge(3.0, fit_intercept=False)).fit(X, Y)
    predicted = pd.read_csv(io.StringIO(found[0].out))["prediction"]
    np.testing.assert_allclose(predicted, pipeline.predict(X), rtol=1e-8)


def test_ids_of_predicted_rows(study):
    params = ("-g", "alpha=1", "--cv", "3", "--save", "m.skops")
    assert run(study, "search", "rows", *NUMBERS, *params).code == 0
    done = run(study, "predict", "m.skops", "rows")
    assert done.code == 0, done.err
    first = pd.read_csv(io.StringIO(done.out))
    assert list(first.columns) == ["name", "prediction"]
    assert first["name"].tolist() == table()["name"].tolist()
    done = run(study, "predict", "m.skops", "rows", "--id", "w")
    assert [line.split(",")[0] for line in done.out.split()[1:]] == [str(w) for w in WEIGHTS]
    for i in range(2):
        rows = table().iloc[i::2].assign(name=[f"00{j}" for j in range(N // 2)])
        rows.to_csv(study / "new" / f"{i}.csv", index=False)
    done = run(study, "predict", "m.skops", "new/*.csv")
    assert done.out.splitlines()[2].startswith("001,")  # as it is written
    plain = run(study, "predict", "m.skops", "new/*.parquet")
    assert plain.out.startswith("prediction\n")
    refused(run(study, "predict", "m.skops", "rows", "--id", "z"), "--id 'z' is not a column")
    refused(run(study, "search", "rows", *NUMBERS, "--no-header"), "must begin with names")

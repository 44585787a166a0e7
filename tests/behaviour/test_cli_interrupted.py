"""What the command line keeps: journals to go on with, intervals beside a model, its own plan."""

import json
import os
import signal

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_diabetes
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GroupKFold, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from everyfold.engine.execution import executor as door
from everyfold.engine.execution.run import run as evaluate
from tests.shell import run

N = 60
X, y = (part[:N] for part in load_diabetes(return_X_y=True))
RNG = np.random.default_rng(0)
GROUP = RNG.permutation(np.repeat([f"g{i}" for i in range(12)], 5))
WEIGHT = RNG.uniform(0.5, 2.0, N).round(3)
LABEL = np.where(y > np.median(y), "high", "low")
BESIDE = ("--drop", "label", "--drop", "g", "--drop", "w")
NUMBERS = ("-m", "kernel-ridge", "-g", "alpha=0.1,1", "-g", "gamma=0.02,0.1,0.5", "--cv", "4")
SEARCH = ("search", "study.csv", *NUMBERS, *BESIDE, "--no-standardise", "--json")
JOURNAL = ("--journal", "a.journal")


@pytest.fixture
def study(tmp_path):
    table = pd.DataFrame(X, columns=[f"x{i}" for i in range(10)])
    table = table.assign(g=GROUP, w=WEIGHT, label=LABEL, y=y)
    table.to_csv(tmp_path / "study.csv", index=False)
    return tmp_path


def refused(done, *words):
    assert done.code == 2, done
    assert all(word in done.err.splitlines()[-1] for word in words), done.err


# -- journals --------------------------------------------------------------------------------------


@pytest.fixture
def runs(monkeypatch):
    """The units that are evaluated; number ``stop`` of them ends the process as it says."""

    class Runs(list):
        stop, how = None, None

    done = Runs()

    def counted(data, unit):
        done.append(unit)
        if len(done) == done.stop:
            done.how()
        return evaluate(data, unit)

    monkeypatch.setattr(door, "run", counted)
    return done


def numbers(done):
    """All scores of the best candidates, with all digits."""
    record = json.loads(done.out)
    return [(row["params"], row["splits"]) for row in record["top"]]


def test_a_journal_is_gone_on_with_by_resume_only(study, runs):
    plain = run(study, *SEARCH)
    first = run(study, *SEARCH, *JOURNAL)
    assert (plain.code, first.code) == (0, 0), first.err
    del runs[:]
    refused(run(study, *SEARCH, *JOURNAL), "--journal a.journal exists; go on with it by --resume")
    assert runs == []
    again = run(study, *SEARCH, *JOURNAL, "--resume")
    assert runs == []
    assert numbers(again) == numbers(first) == numbers(plain)
    other = ("--seed", "5")
    refused(
        run(study, *SEARCH, *JOURNAL, "--resume", *other),
        "--journal a.journal belongs to another search: it differs in folds (cv); options "
        "(random_state)",
    )
    assert runs == []
    new = run(study, *SEARCH, "--journal", "new.journal", "--resume")
    assert new.code == 0  # nothing to go on with
    assert numbers(new) == numbers(plain)


def interrupt():
    raise KeyboardInterrupt


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def run_out_of_memory():
    raise MemoryError("no room")


ENDS = [(interrupt, 130, "interrupted"), (terminate, 143, ""), (run_out_of_memory, 1, "no room")]


@pytest.mark.parametrize(("how", "code", "words"), ENDS)
def test_what_ends_a_search_leaves_its_table_and_its_journal(study, runs, how, code, words):
    plain = run(study, *SEARCH)
    del runs[:]
    runs.stop, runs.how = 3, how
    done = run(study, *SEARCH, *JOURNAL, "--out", "done.csv", "--save", "m.skops")
    assert done.code == code, done.err
    assert words in done.err
    assert "finished kernels are in a.journal: --resume goes on with them" in done.err
    assert len(pd.read_csv(study / "done.csv")) == len(json.loads(done.out)["top"]) == 4
    assert run(study, "predict", "m.skops", "study.csv").code == 0
    del runs[:]
    runs.stop = None
    assert numbers(run(study, *SEARCH, *JOURNAL, "--resume")) == numbers(plain)
    assert len(runs) == 1
    assert sorted(path.name for path in study.iterdir()) == [
        *("a.journal", "done.csv", "m.skops", "study.csv")
    ]


def test_every_round_has_a_journal_of_its_own(study, runs):
    grown = (*SEARCH, "-g", "alpha=10,100", "--expand", *JOURNAL)
    first = run(study, *grown)
    assert first.code == 0, first.err
    rounds = len(json.loads(first.out)["plans"])
    assert rounds > 1
    names = ["a.journal", *(f"a.journal.{k}" for k in range(2, rounds + 1))]
    assert sorted(path.name for path in study.glob("a.journal*")) == names
    del runs[:]
    assert numbers(run(study, *grown, "--resume")) == numbers(first)
    assert runs == []
    (study / "a.journal").unlink()
    refused(run(study, *grown), "--journal a.journal.2 exists")


def test_journals_that_are_none(study):
    (study / "folder").mkdir()
    refused(run(study, *SEARCH, "--resume"), "--resume continues a journal; name it")
    refused(run(study, *SEARCH, "--journal", "folder"), "--journal folder is a directory")
    refused(run(study, *SEARCH, "--journal", "study.csv"), "is the file that is read")
    refused(run(study, *SEARCH, "--journal", "no/j"), "there is no directory no")
    refused(run(study, *SEARCH, "--journal", "o.csv", "--out", "o.csv"), "is that of --out, too")
    table = (study / "study.csv").read_bytes()
    (study / "table").write_bytes(table)
    refused(run(study, *SEARCH, "--journal", "table", "--resume"), "exists and is not a checkpoint")
    assert (study / "table").read_bytes() == table
    os.mkfifo(study / "pipe")
    refused(run(study, *SEARCH, "--journal", "pipe"), "--journal pipe is not a regular file")


# -- intervals -------------------------------------------------------------------------------------


def bounds_by_hand(model, splits, level, weight=None):
    """CV+ as it is defined: a refit for each fold, and quantiles of sums and differences."""
    low, high = [], []
    for train, test in splits:
        fit = {} if weight is None else {f"{model.steps[-1][0]}__sample_weight": weight[train]}
        model.fit(X[train], y[train], **fit)
        residuals, values = np.abs(y[test] - model.predict(X[test])), model.predict(X)
        low += [values - residual for residual in residuals]
        high += [values + residual for residual in residuals]
    last = int(np.ceil(level * (N + 1))) - 1
    return np.sort(low, axis=0)[N - 1 - last], np.sort(high, axis=0)[last]


RIDGE, SUPPORT = KernelRidge(kernel="rbf", alpha=0.1, gamma=0.1), SVR(C=50.0, gamma=0.1, epsilon=1)
SHUFFLED = {"shuffle": True, "random_state": 3}
PLAIN = list(KFold(5, **SHUFFLED).split(X))
GROUPED = list(GroupKFold(5, **SHUFFLED).split(X, y, GROUP))
FITS = {
    "scaled": (
        ("-m", "kernel-ridge", "-p", "alpha=0.1", *BESIDE),
        make_pipeline(StandardScaler(), RIDGE),
    ),
    "plain": (
        ("-m", "kernel-ridge", "-p", "alpha=0.1", "--no-standardise", *BESIDE),
        make_pipeline(RIDGE),
    ),
    "svr": (
        ("-m", "svr", "-p", "C=50", "-p", "epsilon=1", *BESIDE),
        make_pipeline(StandardScaler(), SUPPORT),
    ),
    "groups, weights": (
        (
            "-m",
            "kernel-ridge",
            "-p",
            "alpha=0.1",
            "--drop",
            "label",
            "--groups",
            "g",
            "--weights",
            "w",
        ),
        make_pipeline(StandardScaler(), RIDGE),
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_intervals_are_those_of_refits(study, name):
    args, model = FITS[name]
    fit = ("fit", "study.csv", *args, "-p", "gamma=0.1", "--seed", "3", "--interval", "0.9")
    done = run(study, *fit, "--save", "m.skops")
    assert done.code == 0, done.err
    is_grouped = "--groups" in args
    for level in (0.9, 0.8):
        done = run(study, "predict", "m.skops", "study.csv", "--interval", level, "--out", "p.csv")
        assert done.code == 0, done.err
        table = pd.read_csv(study / "p.csv")
        assert list(table) == ["prediction", "lower", "upper"]
        given = (GROUPED, level, WEIGHT) if is_grouped else (PLAIN, level)
        low, high = bounds_by_hand(model, *given)
        assert_allclose(table["lower"], low, rtol=1e-6)
        assert_allclose(table["upper"], high, rtol=1e-6)
    fit = {f"{model.steps[-1][0]}__sample_weight": WEIGHT} if is_grouped else {}
    assert_allclose(table["prediction"], model.fit(X, y, **fit).predict(X), rtol=1e-8)


def test_a_search_saves_intervals_of_its_winner(study):
    how = ("--interval", "0.9", "--save", "m.skops")
    done = run(study, *SEARCH, *how, "--operator", "nystrom:15")
    assert done.code == 0, done.err
    table = run(study, "predict", "m.skops", "study.csv", "--interval", "0.75")
    assert table.out.splitlines()[0] == "prediction,lower,upper"
    rows = np.array([line.split(",") for line in table.out.splitlines()[1:]], float)
    covered = np.mean((rows[:, 1] <= y) & (y <= rows[:, 2]))
    assert 0.7 <= covered <= 1.0


def test_intervals_that_are_not_there(study):
    fit = ("fit", "study.csv", "-m", "kernel-ridge", "-p", "gamma=0.1", *BESIDE)
    assert run(study, *fit, "--save", "m.skops").code == 0
    refused(
        run(study, "predict", "m.skops", "study.csv", "--interval", "0.9"),
        "--interval: the model has no intervals; fit and save it with --interval",
    )
    refused(run(study, *fit, "--interval", "90", "--save", "i.skops"), "--interval 90 is not a sha")
    refused(
        run(study, *fit, "--interval", "0.99", "--save", "i.skops"),
        "--interval 0.99 needs 100 rows to fit, and there are 60",
    )
    refused(run(study, *SEARCH, "--interval", "0.9"), "--interval needs --save")
    labels = ("-m", "svc", "-t", "label", "--drop", "g", "--drop", "w", "--drop", "y")
    refused(
        run(study, "search", "study.csv", *labels, "--interval", "0.9", "--save", "i.skops"),
        "--interval is for numbers, not labels",
    )
    assert run(study, *fit, "--interval", "0.9", "--save", "i.skops").code == 0
    refused(
        run(study, "predict", "i.skops", "study.csv", "--interval", "0.99"), "needs 100 rows to fit"
    )


# -- plan and search -------------------------------------------------------------------------------

LABELS = ("-t", "label", "--drop", "y", "--drop", "g", "--drop", "w", "-g", "gamma=0.02,0.1")
CALLS = [
    ("-m", "kernel-ridge", "-g", "alpha=0.1,1", "-g", "gamma=0.1", *BESIDE),
    ("-m", "kernel-ridge", "-g", "alpha=1", "-k", "linear", "--cv", "loo", *BESIDE),
    (
        "-m",
        "kernel-ridge",
        "-g",
        "alpha=1",
        "-g",
        "gamma=0.1",
        "--cv",
        "loo",
        "--scoring",
        "r2",
        *BESIDE,
    ),
    (
        "-m",
        "kernel-ridge",
        "-g",
        "alpha=1",
        "--no-standardise",
        "--order",
        "1",
        "--confirm",
        "1",
        *BESIDE,
    ),
    ("-m", "lssvm", "-g", "alpha=1", "--operator", "nystrom:20", *BESIDE),
    ("-m", "lssvm", "-g", "alpha=1", "--no-standardise", "--operator", "nystrom:20", *BESIDE),
    ("-m", "lssvm", "-g", "alpha=1", "--criterion", "gcv", *BESIDE),
    ("-m", "lssvm", "-g", "alpha=1", "--preprocessing", "once", "--cv", "time:4", *BESIDE),
    ("-m", "svr", "-g", "C=1,10", "-g", "gamma=0.1", "--cv", "3", *BESIDE),
    ("-m", "svr", "-g", "C=1", "-g", "gamma=0.1", "--order", "screen", "--cv", "3", *BESIDE),
    ("-m", "quadratic-svr", "-g", "C=1", "-g", "gamma=0.1", "--cv", "3", *BESIDE),
    ("-m", "svc", "-g", "C=1,10", "--cv", "3", *LABELS),
    ("-m", "svc", "-g", "C=1", "-g", "class_weight=balanced,none", "--cv", "2x3", *LABELS),
    ("-m", "kernel-logistic", "-g", "C=1", "--cv", "3", "--no-standardise", *LABELS),
    ("-m", "huber-svc", "-g", "C=1", "--cv", "3", *LABELS),
    ("-m", "lssvm", "-g", "alpha=1", "--cv", "3", "--ridge-scaling", "mean", *LABELS),
    # refused by both, in the same words
    ("-m", "svr", "-g", "C=1", "--operator", "nystrom:20", *BESIDE),
    ("-m", "svr", "-g", "C=1", "--criterion", "gcv", *BESIDE),
    ("-m", "kernel-ridge", "-g", "alpha=1", "--cv", "group:4", *BESIDE),
    ("-m", "svc", "--order", "3", "-g", "C=1", *LABELS),
    ("-m", "kernel-ridge", "--plot", "a.xyz", *BESIDE),
    ("-m", "kernel-ridge", "--out", "study.csv", *BESIDE),
    ("-m", "kernel-ridge", "--scoring", "roc_auc", *BESIDE),
    ("-m", "svc", "--interval", "0.9", "--save", "m.skops", *LABELS),
    ("-m", "kernel-ridge", "-g", "alpha=logspace(0,1,20000)", *BESIDE),
]
SAME = ["rows", "folds", "candidates", "kernels", "ridges", "operator", "methods", "preprocessing"]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: " ".join(call[:8]))
def test_the_plan_is_what_the_search_does(study, call):
    planned, done = (run(study, word, "study.csv", *call, "--json") for word in ("plan", "search"))
    if done.code or planned.code:
        assert (planned.code, done.code) == (2, 2), (planned, done)
        assert planned.err.splitlines()[-1] == done.err.splitlines()[-1]
        return
    told, found = json.loads(planned.out), json.loads(done.out)
    (plan,) = found["plans"]
    assert {name: told["plan"][name] for name in SAME} == {name: plan[name] for name in SAME}
    assert told["grid"] == found["grid"]
    assert set(told["plan"]["notes"]) <= set(plan["notes"])
    is_exact = [row["is_exact"] for row in found["top"]]
    assert all(is_exact) or not told["exact"].startswith("yes")

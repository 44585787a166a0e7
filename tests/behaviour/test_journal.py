"""Journals: what is finished survives kills, and is never repeated or taken for something else."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import make_scorer, max_error
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import FastGridSearchCV, FastRandomizedSearchCV, Nystrom
from everyfold.engine.execution import executor as door
from everyfold.engine.execution.run import run
from tests.guards import edited_scripts
from tests.guards.killed_searches import is_good

KILLS = 3
"""How many searches are killed; many more by ``make kills``."""

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
GRID = {"alpha": [0.1, 1.0], "gamma": [0.1, 0.2, 0.4, 0.8]}


def searched(journal, grid=GRID, *, kind=FastGridSearchCV, rows=(X, y), fit=None, **options):
    given = {"cv": 4, "journal": journal} | options
    return kind(KernelRidge(kernel="rbf"), grid, **given).fit(*rows, **(fit or {}))


@pytest.fixture
def runs(monkeypatch):
    """The units that are evaluated, and not read from a journal."""
    done = []

    def counted(data, unit):
        done.append(unit)
        return run(data, unit)

    monkeypatch.setattr(door, "run", counted)
    return done


def assert_same(one, other):
    assert one.cv_results_.keys() == other.cv_results_.keys()
    for name in one.cv_results_:
        if "time" not in name and name != "params":
            assert_array_equal(one.cv_results_[name], other.cv_results_[name], err_msg=name)
    assert one.best_params_ == other.best_params_
    assert_array_equal(one.out_of_fold().values, other.out_of_fold().values)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks processes to kill them")
@pytest.mark.parametrize(("n_jobs", "kills"), [(1, KILLS), (2, max(1, KILLS // 3))])
def test_a_killed_search_goes_on_and_repeats_nothing(tmp_path, n_jobs, kills):
    command = [sys.executable, "-m", "tests.guards.killed_searches", kills, "--n-jobs", n_jobs]
    environment = os.environ | {"PYTHONWARNINGS": "ignore", "TMPDIR": str(tmp_path)}
    with open(tmp_path / "out", "w+") as out, open(tmp_path / "err", "w+") as err:
        done = subprocess.run(
            list(map(str, command)),
            env=environment,
            stdout=out,
            stderr=err,
            check=False,
            timeout=900,
        )
    told = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [kill for kill in told if not is_good(kill)] == [], (tmp_path / "err").read_text()
    assert (done.returncode, len(told)) == (0, kills)
    assert all(kill["processes"] >= n_jobs for kill in told if n_jobs > 1 and kill["written"])


@pytest.mark.parametrize(
    ("kind", "grid", "options"),
    [
        (FastGridSearchCV, GRID, {}),
        (FastGridSearchCV, GRID, {"return_train_score": True, "keep_predictions": "all"}),
        (FastGridSearchCV, GRID, {"scoring": ["r2", "neg_mean_squared_error"], "refit": "r2"}),
        (FastGridSearchCV, GRID, {"order": 2, "keep_predictions": "all"}),
        (FastGridSearchCV, GRID, {"cv": 60, "scoring": "r2", "pooled": True}),
        (FastRandomizedSearchCV, GRID, {"n_iter": 5, "random_state": 3}),
    ],
    ids=["grid", "train", "metrics", "confirmed", "pooled", "random"],
)
@pytest.mark.filterwarnings("ignore:the held-out values:everyfold.InexactWarning")
def test_a_journal_gives_back_what_was_written(tmp_path, runs, kind, grid, options):
    journal = tmp_path / "journal"
    expected = searched(None, grid, kind=kind, **options)
    first = searched(journal, grid, kind=kind, **options)
    assert len(runs) > 0
    del runs[:]
    again = searched(journal, grid, kind=kind, **options)
    assert runs == []
    assert_same(first, expected)
    assert_same(again, expected)


@pytest.mark.parametrize("cut", [1, 40, 400])
def test_a_torn_last_record_is_dropped(tmp_path, runs, cut):
    journal = tmp_path / "journal"
    expected = searched(journal)
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-cut])
    del runs[:]
    assert_same(searched(journal), expected)
    assert len(runs) == 1
    assert journal.read_bytes().count(b"\n") == whole.count(b"\n")


def test_a_torn_first_line_begins_anew(tmp_path):
    journal = tmp_path / "journal"
    expected = searched(journal)
    journal.write_bytes(journal.read_bytes()[:30])
    assert_same(searched(journal), expected)


def test_a_damaged_record_is_done_again(tmp_path, runs):
    journal = tmp_path / "journal"
    expected = searched(journal)
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"array", b"arrow", 1)
    journal.write_bytes(b"".join(lines))
    del runs[:]
    with pytest.warns(UserWarning, match="damaged at byte"):
        again = searched(journal)
    assert_same(again, expected)
    assert len(runs) == 1


def test_a_file_of_another_kind_is_left_as_it_is(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="exists and is not a checkpoint"):
        searched(path)
    assert path.read_text() == "a,b\n1,2\n"
    with pytest.raises(ValueError, match="not a regular file"):
        searched(tmp_path)
    with pytest.raises(ValueError, match="there is no folder"):
        searched(tmp_path / "none" / "journal")


SHUFFLED = KFold(4, shuffle=True, random_state=0)
WEIGHTS = np.linspace(1.0, 2.0, 60)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"rows": (X + 1e-12, y)}, r"data \(X\)\."),
        ({"rows": (X, y[::-1])}, r"data \(y\)\."),
        ({"fit": {"sample_weight": WEIGHTS}}, r"data \(sample_weight\)\."),
        ({"cv": SHUFFLED}, r"folds \(cv\)\."),
        ({"grid": {**GRID, "alpha": [0.1, 2.0]}}, r"candidates \(parameters\)\."),
        ({"order": "exact"}, r"options \(order\)\."),
        ({"return_train_score": True}, r"options \(return_train_score\)\."),
        ({"scoring": make_scorer(max_error, greater_is_better=False)}, r"options \(scoring\)\."),
        ({"rows": (X, -y), "cv": SHUFFLED}, r"data \(y\); folds \(cv\)\."),
    ],
)
def test_another_search_is_refused_and_the_difference_named(tmp_path, runs, change, part):
    journal = tmp_path / "journal"
    searched(journal)
    written = journal.read_bytes()
    del runs[:]
    with pytest.raises(ValueError, match=f"belongs to another search: it differs in {part}"):
        searched(journal, **change)
    assert runs == []
    assert journal.read_bytes() == written


@pytest.fixture(scope="module")
def runs_of_scripts(tmp_path_factory):
    """By the name of an edit, what the script raised, and how many scores it made."""
    folder, found = tmp_path_factory.mktemp("scripts"), {}
    for seed in ("1", "2"):  # sets and dictionaries have another order
        done = subprocess.run(
            [sys.executable, "-m", "tests.guards.edited_scripts", str(folder)],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONWARNINGS": "ignore"},
            capture_output=True,
            text=True,
            check=True,
            timeout=900,
        )
        found |= {name: tuple(rest) for name, *rest in map(json.loads, done.stdout.splitlines())}
    return found


fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks processes")


@fork
@pytest.mark.parametrize("name", edited_scripts.CHANGES)
def test_edited_code_is_named_and_not_taken_for_the_same(runs_of_scripts, name):
    raised, calls = runs_of_scripts[name]
    words = edited_scripts.CHANGES[name][3]
    assert "belongs to another search" in raised
    assert words in raised
    assert raised.count("changed since") == ("changed" in raised)  # of one function alone
    assert calls == 0


@fork
@pytest.mark.parametrize("name", ["again", "cells", *edited_scripts.HARMLESS])
def test_unchanged_code_goes_on(runs_of_scripts, name):
    assert runs_of_scripts["first"] == runs_of_scripts["first in cells"] == ("", 12)
    assert runs_of_scripts[name] == ("", 0)


@fork
@pytest.mark.parametrize("name", edited_scripts.REFUSED)
def test_code_that_cannot_be_recognised_is_refused(runs_of_scripts, name):
    raised, calls = runs_of_scripts[name]
    *_, words = edited_scripts.REFUSED[name]
    assert raised.startswith("CheckpointError: a checkpoint cannot tell whether the global")
    assert words in raised
    assert "cannot pickle" in raised
    assert "the function `score` of module __main__ uses it" in raised
    assert calls == 0


def test_what_a_frozen_step_has_learnt_counts(tmp_path):
    """A clone of it has learnt the same, while any other step is fitted anew."""
    journal = tmp_path / "journal"

    def searched_after(rows, step):
        model = Pipeline([("scale", step(StandardScaler().fit(rows))), ("ridge", KernelRidge())])
        return FastGridSearchCV(model, {"ridge__alpha": [0.1]}, cv=4, checkpoint=journal).fit(X, y)

    searched_after(X, clone)
    searched_after(2.0 * X, clone)
    journal.unlink()
    searched_after(X, FrozenEstimator)
    searched_after(X, FrozenEstimator)
    with pytest.raises(ValueError, match=r"differs in candidates \(estimator\)"):
        searched_after(2.0 * X, FrozenEstimator)


def test_another_version_is_named(tmp_path, monkeypatch):
    journal = tmp_path / "journal"
    searched(journal)
    monkeypatch.setattr("everyfold.engine.checkpoint.version", lambda name: "0.0")
    with pytest.raises(ValueError, match=r"versions \(everyfold [^ ]+, now 0\.0, numpy"):
        searched(journal)


def test_what_is_drawn_anew_in_every_call_is_refused(tmp_path):
    journal = tmp_path / "journal"
    with pytest.raises(ValueError, match="give it a random_state"):
        searched(journal, cv=KFold(4, shuffle=True))
    with pytest.raises(ValueError, match="such as random_state=0"):
        searched(journal, operator=Nystrom(20))
    with pytest.raises(ValueError, match="such as random_state=0"):
        searched(journal, kind=FastRandomizedSearchCV, n_iter=3)
    assert not journal.exists()
    searched(journal, operator=Nystrom(20), random_state=0)


def test_two_searches_at_a_time_are_refused(tmp_path, monkeypatch):
    pytest.importorskip("fcntl")
    journal, refused = tmp_path / "journal", []

    def nested(data, unit):
        with monkeypatch.context() as inner:
            inner.setattr(door, "run", run)
            with pytest.raises(ValueError, match="in use by another search"):
                searched(journal)
        refused.append(unit)
        return run(data, unit)

    monkeypatch.setattr(door, "run", nested)
    searched(journal)
    assert len(refused) == 4
    monkeypatch.setattr(door, "run", run)
    searched(journal)  # the lock is gone


@pytest.mark.parametrize("error", [MemoryError("no room"), SystemExit(143), KeyboardInterrupt()])
def test_an_error_leaves_what_is_finished(tmp_path, monkeypatch, error):
    journal, calls = tmp_path / "journal", []
    expected = searched(None)

    def failing(data, unit):
        calls.append(unit)
        if len(calls) == 3:
            if isinstance(error, SystemExit):
                os.kill(os.getpid(), signal.SIGTERM)
            raise error
        return run(data, unit)

    monkeypatch.setattr(door, "run", failing)
    made = FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=4, checkpoint=journal)
    with pytest.warns(UserWarning, match="4 of 8 candidates"), pytest.raises(type(error)):
        made.fit(X, y)
    assert len(made.cv_results_["params"]) == 4
    for params, score in zip(
        made.cv_results_["params"], made.cv_results_["mean_test_score"], strict=True
    ):
        k = expected.cv_results_["params"].index(params)
        assert score == expected.cv_results_["mean_test_score"][k]
    assert made.best_score_ == made.cv_results_["mean_test_score"].max()
    assert made.predict(X).shape == (60,)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    monkeypatch.setattr(door, "run", run)
    assert_same(made.fit(X, y), expected)


def test_a_handler_of_somebody_else_is_left_alone(monkeypatch):
    caught = []

    def noted(data, unit):
        os.kill(os.getpid(), signal.SIGTERM)
        return run(data, unit)

    monkeypatch.setattr(door, "run", noted)
    previous = signal.signal(signal.SIGTERM, lambda *_: caught.append(1))
    try:
        searched(None)
        assert len(caught) == 4
    finally:
        signal.signal(signal.SIGTERM, previous)

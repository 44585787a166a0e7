"""Journals that somebody else wrote, and full disks: the journal's own errors, no others."""

import base64
import errno
import json
import os
import subprocess
import sys
import warnings
import zlib

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.kernel_ridge import KernelRidge

from everyfold import FastGradientSearchCV, FastGridSearchCV, KernelRegressor
from everyfold.engine import checkpoint as journal
from everyfold.engine.code_digests import CheckpointError
from everyfold.engine.execution import executor as door
from everyfold.engine.execution.run import run
from everyfold.papers import MethodOptions

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2))
y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)
GRID = {"alpha": [0.1, 1.0], "gamma": [0.1, 0.2, 0.4]}


def searched(path, **options):
    keeps = MethodOptions(keeps="all")
    given = {"cv": 4, "method": keeps, "return_train_score": True, **options}
    return FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, checkpoint=path, **given).fit(X, y)


def descended(path):
    return FastGradientSearchCV(KernelRegressor(), max_iter=2, cv=3, checkpoint=path).fit(X, y)


def line(record, prefix=b""):
    """A line with the right checksum."""
    text = record if isinstance(record, bytes) else json.dumps(record).encode()
    return prefix + b"%08x " % zlib.crc32(text) + text + b"\n"


MAGIC = b"everyfold-journal-3 "
VALUES = [None, True, -1, 1e400, 10**30, "text", [], {}, {"list": [1]}, {"dict": [[1, 2]]}]
VALUES += [{"array": ["<f8", [10**12], ""]}, {"array": ["|O", [1], "eJwDAAAAAAE="]}]
VALUES += [{"array": ["<f8", [-1], "x"]}, {"Failure": []}, {"unknown": 1}, {"FoldScores": {}}]
VALUES += [{"Outcome": {}}, {"tuple": 5}]
for array in (np.zeros(3), np.zeros(4), np.zeros((40, 2)), np.zeros(4, bool), np.zeros(4, int)):
    packed = base64.b64encode(zlib.compress(array.tobytes())).decode()
    VALUES.append({"array": [array.dtype.str, list(array.shape), packed]})


def places(value, path=()):
    """Where something stands in a record, for all that it consists of."""
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))


def replaced(value, path, new):
    """The same with something else at a place."""
    if not path:
        return new
    found = dict(value) if isinstance(value, dict) else list(value)
    found[path[0]] = replaced(value[path[0]], path[1:], new)
    return found


def removed(value, path):
    """The same without what stands at a place."""
    found = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1:
        del found[path[0]]
    else:
        found[path[0]] = removed(value[path[0]], path[1:])
    return found


def forged(whole, rng):
    """One forged journal: a change in a header or a record, its checksum right, or raw damage."""
    lines = whole.splitlines(keepends=True)
    k = int(rng.integers(len(lines)))
    prefix = MAGIC if k == 0 else b""
    record = json.loads(lines[k].removeprefix(MAGIC).partition(b" ")[2])
    every = list(places(record))
    path = every[int(rng.integers(len(every)))]
    kinds = ["replace", "remove", "nest", "copy", "bytes", "cut", "swap", "token", "version"]
    kind = kinds[int(rng.integers(len(kinds)))]
    if kind == "replace":
        new = VALUES[int(rng.integers(len(VALUES)))]
        lines[k] = line(replaced(record, path, new), prefix)
    elif kind == "remove" and path:
        lines[k] = line(removed(record, path), prefix)
    elif kind == "nest":
        lines[k] = line(b"[" * 100_000 + b"]" * 100_000, prefix)
    elif kind == "copy":
        lines.insert(k + 1, lines[int(rng.integers(len(lines)))])
    elif kind == "bytes":
        lines.insert(k + 1, line(rng.bytes(30).replace(b"\n", b"")))
    elif kind == "cut":
        return whole[: int(rng.integers(len(whole)))]
    elif kind == "swap":
        other = int(rng.integers(len(lines)))
        lines[k], lines[other] = lines[other], lines[k]
    elif kind == "token":
        texts = (b"NaN", b"-Infinity", b'"\xff"', b"{}" * 2, b'{"unit": NaN}', b"9" * 5000)
        lines.append(line(texts[int(rng.integers(len(texts)))]))
    elif kind == "version":
        return whole.replace(b"journal-3", b"journal-%d" % rng.integers(4, 9), 1)
    return b"".join(lines)


@pytest.fixture(scope="module", params=[searched, descended], ids=["search", "gradient"])
def known(request, tmp_path_factory):
    """A search, its results without a journal, and the bytes of its journal."""
    path = tmp_path_factory.mktemp("journals") / "journal"
    request.param(path)
    return request.param, path.read_bytes()


@pytest.mark.parametrize("seed", range(4))
def test_forged_journals_raise_the_error_of_journals(known, tmp_path, seed):
    call, whole = known
    path, rng = tmp_path / "journal", np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(40 if call is searched else 12):
            content = forged(whole, rng)
            path.write_bytes(content)
            said = ""
            try:
                found = call(path)
            except CheckpointError as error:
                said = str(error)
            else:
                assert found.predict(X).shape == y.shape
                if call is searched:
                    assert found.out_of_fold().values.shape[0] == len(y)
            assert not said or repr(str(path)) in said
            assert not said or "remove the file" in said or "choose" in said
            path.unlink()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,b\n1,2\n", "is not a checkpoint; choose the name"),
        ("everyfold-journal-3 ".encode("utf-16"), "is not a checkpoint; choose the name"),
        (b"\x00" * 100, "is not a checkpoint; choose the name"),
        (b"everyfold-journal-1 x\n", "another version of everyfold; choose another file"),
        (b"everyfold-journal-2 00000000 {}\n", "another version of everyfold; choose another file"),
        (line({"fingerprint": 1}, MAGIC) + b"x\n", "damaged in its first line"),
        (line({"fingerprint": {"data": 1}}, MAGIC) * 2, "damaged in its first line"),
        (line({"fingerprint": {"data": {"X": 1}}}, MAGIC), "damaged in its first line"),
        (line([1], MAGIC), "damaged in its first line"),
        (MAGIC + b"00000000 {}\n" + line({}), "damaged in its first line"),
        (line(b"[" * 100_000, MAGIC), "at byte 0 that this search has not written; remove"),
    ],
)
def test_what_is_no_journal_is_named_and_left_alone(tmp_path, content, words):
    path = tmp_path / "journal"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=words) as caught:
        searched(path)
    assert repr(str(path)) in str(caught.value)
    assert path.read_bytes() == content


RECORD = {"unit": "a", "outcomes": []}


@pytest.mark.parametrize("record", [{}, [], 5, {"unit": 1}, b"[" * 100_000, b'"\xff"', b"{"])
def test_a_record_that_nobody_wrote_is_named(tmp_path, record):
    path = tmp_path / "journal"
    searched(path)
    whole = path.read_bytes()
    path.write_bytes(whole + line(record))
    with pytest.raises(CheckpointError, match=f"at byte {len(whole)} that this search has not"):
        searched(path)


def test_units_that_are_unknown_or_there_twice_do_no_harm(tmp_path):
    path = tmp_path / "journal"
    expected = searched(path).cv_results_["mean_test_score"]
    whole = path.read_bytes()
    twice = whole.splitlines(keepends=True)[1]
    path.write_bytes(whole + line(RECORD) + twice)
    assert_array_equal(searched(path).cv_results_["mean_test_score"], expected)


def test_much_damage_is_one_warning(tmp_path):
    path = tmp_path / "journal"
    expected = searched(path).cv_results_["mean_test_score"]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\n" * 1000 + b"".join(lines[1:]))
    with pytest.warns(UserWarning, match="and 999 more places") as caught:
        found = searched(path)
    assert len(caught) == 1
    assert_array_equal(found.cv_results_["mean_test_score"], expected)


# -- full disks ------------------------------------------------------------------------------------


@pytest.fixture
def runs(monkeypatch):
    done = []

    def counted(data, unit):
        done.append(unit)
        return run(data, unit)

    monkeypatch.setattr(door, "run", counted)
    return done


@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_a_full_disk_is_named_and_nothing_is_lost(tmp_path, monkeypatch, runs, fails_at):
    path, calls, sync = tmp_path / "journal", [], os.fsync
    expected = searched(None)
    del runs[:]

    def full(descriptor):
        calls.append(1)
        if len(calls) == fails_at + 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    made = FastGridSearchCV(
        KernelRidge(kernel="rbf"),
        GRID,
        checkpoint=path,
        cv=4,
        keep_predictions="all",
        return_train_score=True,
    )
    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(journal.os, "fsync", full)
        patch.setattr(journal, "sync_folder", lambda folder: None)
        with pytest.raises(OSError, match="No space left on device") as caught:
            made.fit(X, y)
    assert caught.value.errno == errno.ENOSPC
    assert repr(str(path)) in str(caught.value)
    n_before = len(runs)
    again = searched(path)
    assert len(runs) == n_before + 3 - max(0, fails_at - 1)
    assert path.read_bytes().count(b"\n") == 4
    for name in ("mean_test_score", "mean_train_score"):
        assert_array_equal(again.cv_results_[name], expected.cv_results_[name])


SCRIPT = """
import resource, sys
import numpy as np
from sklearn.kernel_ridge import KernelRidge
from everyfold import FastGridSearchCV
rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2))
made = FastGridSearchCV(
    KernelRidge(kernel="rbf"), {"gamma": [0.1, 0.2, 0.4]}, cv=4, checkpoint="journal"
)
try:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
    made.fit(X, X[:, 0])
except OSError as error:
    print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    made.fit(X, X[:, 0])
    print(open("journal").read().count("\\n"))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits the size of files")
@pytest.mark.parametrize("size", [100, 3000])
def test_a_file_that_may_not_grow_is_as_before(tmp_path, size):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(size)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    told, lines = done.stdout.splitlines()
    assert "checkpoint='journal' cannot be written (File too large)" in told
    assert lines == "4"

"""Files that the command line writes: complete or untouched, through links, never over devices."""

import errno
import os
import stat
import subprocess
import sys
import threading
from contextlib import suppress

import numpy as np
import pytest
from sklearn.datasets import load_iris
from typer.testing import CliRunner

from everyfold.cli import commands as app
from everyfold.cli.errors import BadInput
from everyfold.cli.output import check_outputs
from everyfold.io.disk import writing


def write(path, content):
    with writing(path) as file:
        file.write(content)


def leftovers(folder):
    return sorted(path.name for path in folder.glob(".*.partial"))


def test_a_file_is_complete_or_as_it_was(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"old")
    with suppress(KeyboardInterrupt), writing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    write(path, b"new")
    assert path.read_bytes() == b"new"
    assert leftovers(tmp_path) == []


def test_a_full_disk_is_named_and_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_bytes(b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("everyfold.io.disk.os.fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*a\.csv"):
        write(path, b"new")
    assert path.read_bytes() == b"old"
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_modes_are_kept(tmp_path, mode):
    path = tmp_path / "a.csv"
    path.write_bytes(b"old")
    path.chmod(mode)
    write(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_has_the_mode_of_any_other(tmp_path):
    write(tmp_path / "a.csv", b"new")
    (tmp_path / "b.csv").write_bytes(b"other")
    assert (tmp_path / "a.csv").stat().st_mode == (tmp_path / "b.csv").stat().st_mode


@pytest.mark.parametrize("exists", [True, False])
def test_links_are_followed(tmp_path, exists):
    (tmp_path / "data").mkdir()
    real, first, link = tmp_path / "data" / "a.csv", tmp_path / "first", tmp_path / "link.csv"
    if exists:
        real.write_bytes(b"old")
    first.symlink_to(real)
    link.symlink_to(first)
    check_outputs({"out": link}, tmp_path / "in.csv")
    write(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert not real.is_symlink()


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_outputs({"out": pipe}, tmp_path / "in.csv")  # must not wait for a reader
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    content = b"x" * 200_000  # more than a pipe holds
    write(pipe, content)
    reader.join(30)
    assert got == [content]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert leftovers(tmp_path) == []


def test_what_could_not_be_written_is_refused_before(tmp_path):
    (tmp_path / "in.csv").write_bytes(b"x")
    (tmp_path / "same.csv").symlink_to("in.csv")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "lost").symlink_to(tmp_path / "gone" / "a.csv")
    for path, words in (
        (tmp_path, "is a directory"),
        (tmp_path / "no" / "a.csv", "there is no directory"),
        (tmp_path / "same.csv", "is the file that is read"),
        (tmp_path / "circle", "go in a circle"),
        (tmp_path / "lost", "there is no directory"),
        (tmp_path / ("n" * 300), "cannot be written: File name too long"),
    ):
        with pytest.raises(BadInput, match=words):
            check_outputs({"out": path}, tmp_path / "in.csv")
    with pytest.raises(BadInput, match=r"--out .*a.csv is that of --save, too"):
        check_outputs({"save": tmp_path / "a.csv", "out": tmp_path / "a.csv"}, tmp_path / "in.csv")
    assert leftovers(tmp_path) == []
    assert (tmp_path / "in.csv").read_bytes() == b"x"


KILLED = """
import os, signal, sys
from pathlib import Path
from everyfold.io.disk import writing
with writing(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_partial_files_of_dead_runs_are_removed_and_others_stay(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"old")
    foreign = tmp_path / ".a.csv.mine.partial"
    foreign.write_bytes(b"of somebody else")
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        name = f".a.csv.{process.pid}.partial"
        check_outputs({"out": path}, tmp_path / "in.csv")
        assert leftovers(tmp_path) == sorted([foreign.name, name])  # it lives
        process.kill()
    assert leftovers(tmp_path) == sorted([foreign.name, name])
    check_outputs({"out": path}, tmp_path / "in.csv")
    assert leftovers(tmp_path) == [foreign.name]
    assert path.read_bytes() == b"old"


def test_the_model_is_first_and_what_fails_does_not_keep_the_others_back(tmp_path, monkeypatch):
    X, y = load_iris(return_X_y=True)
    np.savez(tmp_path / "iris.npz", X=X, y=y)
    tried = []

    def fail(path, outcome):
        tried.append((path.name, (tmp_path / "all.csv").exists()))
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(app._WRITERS, "save", fail)
    grid = ["-g", "alpha=0.1", "-g", "gamma=0.1", "--cv", "3"]
    files = ["--out", str(tmp_path / "all.csv"), "--save", str(tmp_path / "m.skops")]
    argv = ["search", str(tmp_path / "iris.npz"), "-m", "lssvm", *grid, *files]
    done = CliRunner().invoke(app.app, argv)
    assert (done.exit_code, tried) == (1, [("m.skops", False)])
    assert "m.skops was not written: [Errno 28] No space left on device" in done.stderr
    assert (tmp_path / "all.csv").read_text().startswith("rank,alpha,gamma,mean_test_score")

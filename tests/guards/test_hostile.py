"""Hostile files and arguments: refused, with every file as it was; more by ``make hostile``."""

import os
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pytest

from tests.guards.hostile import FAMILIES, GOOD, _faults, contents, csv, make_models, wrongs
from tests.shell import Done, run

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="makes pipes and sockets")

CASES = 168
"""Eight of each family; all of them, and others, by ``make hostile``."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    make_models(folder)
    return folder


@pytest.mark.parametrize("part", range(6))
def test_what_is_hostile_is_refused(tmp_path, models, part):
    failures = []
    for number in range(part, CASES, 6):
        (folder := tmp_path / str(number)).mkdir()
        failures.append(wrongs(number, models, folder))
    assert [words for words in failures if words] == []
    assert len(failures) == CASES // 6 >= len(FAMILIES)


def test_what_is_wrong_would_be_seen(tmp_path):
    before = {"a": b"1"}
    for done, after, words in [
        (Done(0, "", ""), before, "exit code 0"),
        (Done(2, "", "Traceback error:"), before, "traceback"),
        (Done(2, "", "error: \x1b"), before, "control characters"),
        (Done(2, "", ""), before, "no message"),
        (Done(2, "", "error:"), {"a": b"2"}, "changed ['a']"),
        (Done(2, "", "error:"), {}, "changed ['a']"),
        (Done(2, "", "error:"), {**before, "b": b""}, "left ['b']"),
    ]:
        assert list(_faults(done, before, after)) == [words]
    assert list(_faults(Done(2, "", "error:"), before, before)) == []


# -- what is written and printed -------------------------------------------------------------------

FORMULA = "=cmd|' /C calc'!A0"
LABELS = [FORMULA, "red\x1b[31m\n\u202e", "+1-2", "-5", "plain", "no\u00a0break"]
SAFE = [f"'{FORMULA}", "red\\x1b[31m\\n\\u202e", "'+1-2", "-5", "plain", "no\u00a0break"]


def test_formulas_and_control_characters_are_harmless(tmp_path):
    rng = np.random.default_rng(0)
    names = np.array(LABELS)[np.arange(60) % 6]
    table = pd.DataFrame({"a": np.arange(60) % 6 + 0.1 * rng.normal(size=60), "@id": names})
    table.assign(**{"=y": names}).to_parquet(tmp_path / "t.parquet")
    args = ("t.parquet", "-m", "lssvm", "--id", "@id", "-t", "=y", "--task", "classification")
    grid = ("-g", "alpha=0.01", "-g", "gamma=5", "--cv", "3", "--oof", "o.csv")
    done = run(tmp_path, "search", *args, *grid, "--save", "m.skops")
    assert done.code == 0, done.err
    found = run(tmp_path, "predict", "m.skops", "t.parquet", "--decision").out
    held_out = (tmp_path / "o.csv").read_text()
    for text in (done.out, done.err, found, held_out):
        assert all(c.isprintable() or c in "\n\u00a0" for c in text), text
    assert found.splitlines()[0].startswith("'@id,prediction,")
    rows = [line.split(",")[:2] for line in found.splitlines()[1:]]
    assert [row[0] for row in rows[:6]] == SAFE
    assert [row[1] for row in rows[:6]] == SAFE  # each row is of its own class
    assert f"\n'{FORMULA}," in held_out


# -- what is read ----------------------------------------------------------------------------------


def test_a_pipe_with_a_writer_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(csv(GOOD) * 1,))
    writer.start()
    args = ("-m", "svc", "-t", "label", "-g", "C=1", "-g", "gamma=0.1", "--cv", "3")
    done = run(tmp_path, "search", "pipe", *args)
    writer.join()
    assert done.code == 0, done.err
    assert contents(tmp_path) == {"pipe": (tmp_path / "pipe").stat().st_mode}


def test_a_shell_reads_what_a_process_writes(tmp_path):
    (tmp_path / "good.csv").write_bytes(csv(GOOD))
    command = f"{sys.executable} -c 'from everyfold.cli import main; main()'"
    script = f"{command} plan <(cat good.csv) -m svc -t label -q"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "24 rows" in done.stdout

"""The runner of the papers' experiments: data, statistics, cells that survive a kill, tables."""

from __future__ import annotations

import hashlib
import http.server
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from benchmarks.papers import data, report, statistics
from benchmarks.papers.__main__ import in_turn
from benchmarks.papers.papers import PAPERS
from benchmarks.papers.profiles import PROFILES
from benchmarks.papers.runner import Store, run
from benchmarks.papers.study import Cell, printed
from benchmarks.papers.tables import ErrorTable, TimeTable
from scipy import stats
from sklearn.datasets import dump_svmlight_file

from tests.project import tiny_reproduction as tiny

ROOT = Path(__file__).parents[2]
TABLES = [table for paper in PAPERS.values() for table in paper.TABLES]


# -- data -----------------------------------------------------------------------------------------

ROWS = np.array([[0.5, -1.0], [0.0, 0.25], [1.0, 1.0]])
LABELS = np.array([2.0, 4.0, 2.0])


def libsvm_text():
    held = io.BytesIO()
    dump_svmlight_file(ROWS, LABELS, held, zero_based=False)
    return held.getvalue()


class Server:
    """A page on loopback that counts its visits and behaves as it is told."""

    def __init__(self):
        self.visits, self.content, self.manner = 0, b"", "whole"
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.visits += 1
                outer.answer(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/page"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, handler):
        manner = self.manner
        if manner == "absent":
            handler.send_error(404)
            return
        if manner == "broken once" and self.visits == 1:
            handler.send_error(503)
            return
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(self.content)))
        handler.end_headers()
        if manner == "truncated" or (manner == "truncated once" and self.visits == 1):
            handler.wfile.write(self.content[:-5])
        elif manner == "slow":
            handler.wfile.write(self.content[:1])
            handler.wfile.flush()
            time.sleep(0.6)
        else:
            handler.wfile.write(self.content)


@pytest.fixture
def server():
    page = Server()
    yield page
    page.server.shutdown()
    page.server.server_close()


@pytest.fixture
def page(server, tmp_path, monkeypatch):
    """A set "libsvm/toy" that only the server has."""
    server.content = libsvm_text()
    signs = np.where(LABELS == 4.0, 1.0, -1.0)
    monkeypatch.setattr(data, "FOLDER", tmp_path / "nowhere")
    monkeypatch.setenv("EVERYFOLD_DATA", str(tmp_path / "cache"))
    monkeypatch.setitem(data.PAGES, "libsvm/toy", server.url)
    monkeypatch.setitem(data.NUMBERS, "libsvm/toy", data.Numbers(ROWS, signs).digest)
    monkeypatch.setattr(data, "TWO_CLASSES", {"libsvm/toy"})
    monkeypatch.setattr(data, "fetch", lambda url: FETCH(url, timeout=0.3, pause=0.01))
    data.load.cache_clear()
    yield server
    data.load.cache_clear()


FETCH = data.fetch


@pytest.mark.parametrize("manner", ["whole", "broken once", "truncated once"])
def test_a_set_is_downloaded_once_and_kept(page, manner):
    page.manner = manner
    found = data.load("libsvm/toy")
    np.testing.assert_array_equal(found.X, ROWS)
    np.testing.assert_array_equal(found.y, [-1.0, 1.0, -1.0])
    assert page.visits == (1 if manner == "whole" else 2)
    visits = page.visits
    data.load.cache_clear()
    np.testing.assert_array_equal(data.load("libsvm/toy").X, ROWS)
    assert page.visits == visits


@pytest.mark.parametrize(
    ("manner", "visits", "reason"),
    [
        ("absent", 1, "404"),
        ("truncated", 3, "IncompleteRead"),
        ("slow", 3, "[Tt]ime"),
    ],
)
def test_a_failed_download_says_why_and_what_to_do(page, tmp_path, manner, visits, reason):
    page.manner = manner
    with pytest.raises(data.DataUnavailable, match=reason) as caught:
        data.load("libsvm/toy")
    assert page.visits == visits
    for part in (page.url, str(tmp_path / "cache"), "EVERYFOLD_DATA"):
        assert part in str(caught.value)
    assert not list(tmp_path.rglob("*.npz"))


def test_other_numbers_are_refused_from_the_page_and_from_the_cache(page, tmp_path):
    page.content = libsvm_text().replace(b"0.25", b"0.26")
    with pytest.raises(data.DataUnavailable, match="other numbers"):
        data.load("libsvm/toy")
    path = tmp_path / "cache" / "libsvm" / "toy.npz"
    path.parent.mkdir(parents=True)
    np.savez(path, X=ROWS + 1.0, y=LABELS)
    with pytest.raises(data.DataUnavailable, match=r"toy\.npz has other numbers"):
        data.load("libsvm/toy")


def test_a_page_of_another_format_is_refused(page):
    page.content = b"<html>moved</html>"
    with pytest.raises(data.DataUnavailable, match="no file of LIBSVM's format"):
        data.load("libsvm/toy")


def test_partitions_come_from_the_repackaged_benchmark(page, tmp_path, monkeypatch):
    held = io.BytesIO()
    entry = {"x": ROWS, "t": LABELS[:, None], "train": [[1, 2], [3, 1]], "test": [[3], [2]]}
    scipy.io.savemat(held, {"flare_solar": entry})
    page.content = held.getvalue()
    digest = hashlib.sha256(page.content).hexdigest()
    monkeypatch.setattr(data, "RAETSCH", (page.url, digest))
    found = data.load("raetsch/flare-solar")
    np.testing.assert_array_equal(found.train, [[0, 1], [2, 0]])
    np.testing.assert_array_equal(found.y, LABELS)
    monkeypatch.setattr(data, "RAETSCH", (page.url, "0" * 64))
    with pytest.raises(
        data.DataUnavailable, match=f"sha256 {digest[:12]}… instead of 000000000000"
    ):
        data.load("raetsch/thyroid")


def test_declared_sets_are_those_of_the_folder():
    sets = {rows.name: rows for table in TABLES for rows in getattr(table, "rows", ())}
    here = [name for name in sets if data.is_available(name)]
    if not here:
        pytest.skip("the data sets of the papers are not in ../shared/data nor in the cache")
    for name in here:
        numbers = data.load(name)  # checks the sha256 of LIBSVM's sets
        rows = len(numbers.y) if numbers.train is None else numbers.train.shape[1]
        assert sets[name].size == rows, name


# -- statistics -----------------------------------------------------------------------------------


def test_critical_values_are_the_papers():
    assert statistics.paired_t(range(10), np.zeros(10)).critical == pytest.approx(1.833, abs=5e-4)
    assert statistics.paired_t(range(50), np.zeros(50)).critical == pytest.approx(1.676, abs=1e-3)
    assert statistics.z_test([1.0, 2.0], [1.0, 3.0]).critical == pytest.approx(1.64, abs=5e-3)


def test_paired_t_by_hand():
    # d = 1, 2, 3: mean 2, deviation 1, statistic 2 / (1 / sqrt 3)
    found = statistics.paired_t([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert found.statistic == pytest.approx(2.0 * np.sqrt(3.0))
    assert found.critical == pytest.approx(2.919986)
    assert (found.difference, found.pairs, found.is_worse, found.mark) == (2.0, 3, True, "▲")
    other = statistics.paired_t([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    assert (other.is_better, other.is_worse, other.mark) == (True, False, "▽")


def test_paired_t_without_spread_or_pairs():
    assert statistics.paired_t([1.0, 2.0], [1.0, 2.0]).mark == ""
    assert statistics.paired_t([2.0, 3.0], [1.0, 2.0]).is_worse
    assert statistics.paired_t([2.0], [1.0]).mark == ""


def test_z_by_hand():
    # Standard errors 1/sqrt 3 and 2/sqrt 3, means 2 and 7.
    found = statistics.z_test([1.0, 2.0, 3.0], [5.0, 7.0, 9.0])
    assert found.statistic == pytest.approx(-5.0 / np.sqrt(1.0 / 3.0 + 4.0 / 3.0))
    assert found.is_better
    assert statistics.z_test([1.0, 1.0], [1.0, 1.0]).mark == ""


def test_signed_rank_by_hand():
    # Six differences of one sign: p = 2 / 2^6.
    first = np.arange(6.0)
    assert statistics.signed_rank(first, first + np.arange(1, 7)) == pytest.approx(2.0 / 64.0)
    assert statistics.signed_rank(first, first) == 1.0
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 12))
    assert statistics.signed_rank(x, y) == stats.wilcoxon(x, y).pvalue


# -- runner ---------------------------------------------------------------------------------------


def start_tiny(tmp_path, log, pause="0"):
    environment = {**os.environ, "TINY_LOG": str(tmp_path / log), "TINY_PAUSE": pause}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "tests.project.tiny_reproduction", str(tmp_path / "store")]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )


def stored(tmp_path):
    path = tmp_path / "store" / "tiny.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_killed_run_goes_on_and_repeats_nothing(tmp_path):
    first = start_tiny(tmp_path, "first", pause="0.3")
    end = time.monotonic() + 120.0
    while stored(tmp_path) < 4 and first.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    with (tmp_path / "store" / "tiny.jsonl").open("a") as file:
        file.write('0123456789ab {"key": ["tiny", "ta')  # a line that the kill cut off
    kept = {cell.key for cell in tiny.cells() if Store(tmp_path / "store").get(cell)}
    assert 4 <= len(kept) < len(tiny.cells())

    second = start_tiny(tmp_path, "second")
    printed_table = second.communicate(timeout=120)[0]
    assert second.returncode == 0
    done = (tmp_path / "second").read_text().split("\n")[:-1]
    wanted = [f"{cell.key[3]} {cell.key[4]}" for cell in tiny.cells() if cell.key not in kept]
    assert sorted(done) == sorted(wanted)
    whole = tiny.TABLE.markdown({cell.key: tiny.select(*cell.arguments) for cell in tiny.cells()})
    assert printed_table.endswith(whole + "\n")


def test_a_cell_that_fails_or_kills_its_process_leaves_the_others(tmp_path, capsys):
    manners = ("raises", "dies", "works")
    cells = [Cell(("tiny", manner), tiny.fail, (manner,)) for manner in manners]
    store = Store(tmp_path)
    failed = dict(run(cells, store, jobs=1))
    assert [cell.key[1] for cell in failed] == ["raises", "dies"]
    assert failed[cells[0]] == "ValueError: no such candidate"
    assert store.get(cells[2]) == {"manner": "works"}
    assert "FAILED ValueError" in capsys.readouterr().out


def double(x):
    return {"double": 2 * x}


def test_a_store_forgets_other_declarations_and_broken_lines(tmp_path):
    cell = Cell(("a", "b"), double, (3,))
    store = Store(tmp_path)
    store.put(cell, double(3))
    assert Store(tmp_path).get(cell) == {"double": 6}
    assert Store(tmp_path).get(Cell(("a", "b"), double, (4,))) is None
    path = tmp_path / "a.jsonl"
    path.write_text(path.read_text().replace('"double":6', '"double":7'))
    assert Store(tmp_path).get(cell) is None
    store.put(cell, {"each": [1.0 / 3.0, np.nan, 4]})
    assert Store(tmp_path).get(cell)["each"][::2] == store.get(cell)["each"][::2] == [0.333333, 4]


# -- declarations and tables ----------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table.paper}-{table.name}")
@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
def test_cells_are_declared_the_same_in_every_process(table, profile):
    cells = list(table.cells(profile))
    assert len({cell.key for cell in cells}) == len(cells)
    for cell in cells[:200]:
        assert cell.key[:2] == (table.paper, table.name)
        assert not re.search(r"0x[0-9a-f]{4}| at 0|<function", repr(cell.arguments))
    if profile.name == "full":
        assert cells


@pytest.mark.parametrize(
    "table",
    [table for table in TABLES if isinstance(table, ErrorTable | TimeTable)],
    ids=lambda table: f"{table.paper}-{table.name}",
)
def test_printed_figures_and_references_name_what_is_declared(table):
    names = {method.name for method in (*table.methods, *getattr(table, "refits", ()))}
    labels = {rows.label for rows in table.rows}
    for label, figures in table.printed.items():
        assert label in labels
        assert figures.keys() <= names
    references = getattr(table, "references", None) or getattr(table, "against", {})
    assert {*references, *references.values()} <= names


def test_profiles_limit_splits_rows_and_times():
    hour, full = PROFILES["hour"], PROFILES["full"]
    table = PAPERS["2018"].TABLE_1
    by_set = Counter(cell.key[2] for cell in table.cells(full) if cell.key[3] == "10-CV")
    assert set(by_set.values()) == {50}
    short = [cell for cell in table.cells(hour) if cell.key[3] == "10-CV"]
    assert Counter(cell.key[2] for cell in short)["pyrim"] == hour.splits[0][1]
    assert {cell.arguments[0].take for cell in short if cell.key[2] == "abalone"} == {hour.largest}
    capped = list(table.cells(replace(full, most=3)))
    assert {int(cell.key[4]) for cell in capped} == {0, 1, 2}


def test_printed_figures_are_read():
    found = printed("one 1.5±0.5 2e-3±1e-4\ntwo – 7", "a b")
    assert found["one"] == {"a": (1.5, 0.5), "b": (2e-3, 1e-4)}
    assert found["two"]["b"][0] == 7.0
    assert "a" not in found["two"]


KEPT = ROOT / "benchmarks" / "results" / "papers"


def test_a_page_without_cells_says_so():
    text = report.page({}, [], list(PAPERS))
    assert "0 cells" in text
    assert "of 0 comparisons" in text


def test_the_page_in_the_docs_is_that_of_the_kept_cells():
    if not list(KEPT.glob("*.jsonl")):
        pytest.skip("no run of the papers' experiments is kept")
    store = Store(KEPT)
    cells = in_turn(TABLES, PROFILES["hour"])
    found = {cell.key: result for cell in cells if (result := store.get(cell)) is not None}
    text = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    assert report.page(found, store.sessions(), list(PAPERS)) == text


def test_a_table_shows_printed_ours_difference_and_significance():
    errors = {"5CV": [1.0, 2.0, 3.0], "BIF-5CV": [11.0, 12.5, 13.0]}
    found = {
        ("tiny", "table", "cells", name, str(split)): {"error": error, "train": 60}
        for name, values in errors.items()
        for split, error in enumerate(values)
    }
    line = tiny.TABLE.lines(found)[-1]
    assert line == "| cells | 60 | 3 | 2.00 ± 1.00 *4.00* (-2.00) | 12.17 ± 1.04▲ |"

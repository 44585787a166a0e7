"""A cache of compiled code that was cut off, or comes from elsewhere, costs a warning."""

import gc
import importlib.util
import os
import pickle
import re
import shutil
import subprocess
import sys
import types
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numba import TypingError
from numba.core.event import Listener, install_listener

from everyfold.linalg.jit import Entry, stamp_of
from everyfold.search.progress import Progress
from everyfold.svm import core
from everyfold.svm.core import drivers, state
from everyfold.svm.core.drivers import fold_paths
from everyfold.svm.paths import svm_paths

SOURCE = """
def double(x):
    return 2.0 * x


def bound(x):
    return x[0]
"""

DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "cut early": lambda path: path.write_bytes(path.read_bytes()[:7]),
    "noise": lambda path: path.write_bytes(bytes(range(256)) * 9),
    "foreign": lambda path: path.write_bytes(pickle.dumps({"another": "program"})),
    "a missing module": lambda path: path.write_bytes(b"cno_such_module\nThing\n."),
}


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "small.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("small", path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def files(module, ending="nb?"):
    folder = Path(module.__file__).parent / "__pycache__"
    return sorted(folder.glob(f"*.{ending}"))


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cache_is_made_again(module, damage, ending):
    assert Entry(module.double, {})(3.0) == 6.0
    (path,) = files(module, ending)
    DAMAGES[damage](path)
    says_nothing = ending == "nbi" and damage == "foreign"  # numba reads that as another version
    again = Entry(module.double, {})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert again(3.0) == 6.0
        assert again(4.0) == 8.0
    assert [w.category for w in said] == [] if says_nothing else [RuntimeWarning]
    if not says_nothing:
        assert "double was compiled again" in str(said[0].message)
    assert len(files(module)) == 2
    later = Entry(module.double, {})
    assert later(3.0) == 6.0  # without a warning, which would be an error
    assert later._run.stats.cache_hits


def test_threads_that_fail_together_warn_once(module):
    Entry(module.double, {})(3.0)
    for path in files(module):
        path.write_bytes(b"")
    again = Entry(module.double, {})
    with warnings.catch_warnings(record=True) as said, ThreadPoolExecutor(4) as pool:
        warnings.simplefilter("always")
        assert list(pool.map(again, [1.0, 2.0, 3.0, 4.0])) == [2.0, 4.0, 6.0, 8.0]
    assert len(said) == 1


def test_a_cache_that_cannot_be_deleted_is_done_without(module, monkeypatch):
    Entry(module.double, {})(3.0)
    for path in files(module):
        path.write_bytes(b"")

    def refuse(self, missing_ok=False):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.warns(RuntimeWarning, match="compiled again"):
        assert Entry(module.double, {})(3.0) == 6.0
    assert all(path.stat().st_size == 0 for path in files(module))


def test_other_errors_are_not_the_caches(module):
    entry = Entry(module.bound, {})
    assert entry(np.ones(2)) == 1.0
    kept = {path: path.read_bytes() for path in files(module)}
    with pytest.raises(TypingError):
        entry(1.0)
    assert {path: path.read_bytes() for path in files(module)} == kept


PART = """
from numba import njit

FACTOR = 2.0

@njit
def times(x):
    return FACTOR * x
"""

WHOLE = """
from part import times

def scaled(x):
    return times(x)
"""


@pytest.fixture
def scaled(tmp_path, monkeypatch):
    """Makes an entry of two files as they are now, as a new process would."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # files change within its clock's tick
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "part.py").write_text(PART)
    (tmp_path / "whole.py").write_text(WHOLE)

    def make(**options):
        for name in ("part", "whole"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        return Entry(importlib.import_module("whole").scaled, {}, **options)

    return make


def test_numba_sees_one_file_only(scaled, tmp_path):
    """The reason for stamps."""
    assert scaled()(3.0) == 6.0
    (tmp_path / "part.py").write_text(PART.replace("2.0", "5.0"))
    assert scaled()(3.0) == 6.0


def test_a_stamp_covers_every_file(scaled, tmp_path):
    def cache():
        return {path.name for path in (tmp_path / "__pycache__").iterdir()}

    assert scaled(stamp=stamp_of(tmp_path))(3.0) == 6.0
    former = cache()
    assert len(former) == 2
    again = scaled(stamp=stamp_of(tmp_path))
    assert again(3.0) == 6.0
    assert again._run.stats.cache_hits
    assert cache() == former
    (tmp_path / "part.py").write_text(PART.replace("2.0", "5.0"))
    other = scaled(stamp=stamp_of(tmp_path))
    assert other(3.0) == 15.0
    assert other._run.stats.cache_misses
    assert len(cache()) == 2  # what was compiled from other files is deleted
    assert not cache() & former


def test_a_stamp_changes_with_names_and_contents_of_sources(tmp_path):
    def stamp(**sources):
        for path in tmp_path.iterdir():
            path.unlink()
        for name, source in sources.items():
            (tmp_path / name.replace("_", ".")).write_text(source)
        return stamp_of(tmp_path)

    first = stamp(a_py="1", b_py="2")
    assert stamp(b_py="2", a_py="1") == first
    assert stamp(a_py="1", b_py="2", c_txt="3") == first
    others = {stamp(a_py="1"), stamp(a_py="12", b_py=""), stamp(a_py="2", b_py="1")}
    assert len(others | {first, stamp(a_py="1", c_py="2")}) == 5
    assert stamp_of(tmp_path / "nothing") == stamp()


def test_the_solver_is_stamped_by_all_that_it_is_compiled_from():
    folder = Path(core.__file__).parent
    modules = state, drivers
    entries = [value for m in modules for value in vars(m).values() if type(value) is Entry]
    assert len(entries) >= 6
    for entry in entries:
        assert entry._function.__qualname__.startswith(f"{stamp_of(folder)}.")
    for path in folder.glob("*.py"):
        lines = re.findall(r"^\s*(?:from|import) (everyfold\S*)", path.read_text(), re.MULTILINE)
        elsewhere = {line for line in lines if not line.startswith("everyfold.svm.core.")}
        assert elsewhere <= {"everyfold.linalg.jit"}, path.name


def test_any_file_of_the_solver_is_in_its_stamp(tmp_path):
    folder = shutil.copytree(Path(core.__file__).parent, tmp_path / "core")
    whole, files = stamp_of(folder), sorted(folder.glob("*.py"))
    assert len(files) >= 7
    for path in files:
        source = path.read_text()
        path.write_text(source + "# another line\n")
        assert stamp_of(folder) != whole, path.name
        path.write_text(source)
    assert stamp_of(folder) == whole


SEARCHES = """
import os, shutil, sys, warnings
from pathlib import Path
import numpy as np
from sklearn.svm import SVC
from everyfold import FastGridSearchCV
from everyfold.svm.core.drivers import fold_paths
from everyfold.svm.core.state import flush

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
y = (X[:, 0] + 0.3 * rng.normal(size=60) > 0.0).astype(int)

def search():
    child = os.fork()  # each has compiled nothing yet
    if child == 0:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            search = FastGridSearchCV(SVC(gamma=0.3), {"C": [0.1, 1.0, 10.0]}, cv=3).fit(X, y)
        again = [w for w in said if "flush was compiled again" in str(w.message)]
        print(search.cv_results_["mean_test_score"].tolist(), len(again), len(said), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

flush.folder.mkdir(parents=True, exist_ok=True)
for entry in (flush, fold_paths):
    for path in Path(sys.argv[1]).glob(f"*.{entry._function.__qualname__}-*"):
        shutil.copy2(path, flush.folder)
search()
for ending in ("nbi", "nbc"):
    (path,) = flush.folder.glob(f"state.*.flush-*.{ending}")
    os.truncate(path, path.stat().st_size // 2)
    search()
search()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_search_survives_its_damaged_cache(tmp_path):
    x = np.array([-2.0, -1.0, 1.0, 2.0])
    svm_paths(np.outer(x, x), np.sign(x), [1.0], np.ones(4))  # now there is a cache to copy
    done = subprocess.run(
        [sys.executable, "-c", SEARCHES, str(fold_paths.folder)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    first, *others = done.stdout.splitlines()
    scores = first.removesuffix(" 0 0")
    assert scores != first
    assert others == [f"{scores} 1 1", f"{scores} 1 1", f"{scores} 0 0"]


AHEAD = """
import numpy as np
from sklearn.model_selection import LeaveOneOut
from sklearn.svm import SVC
from everyfold import FastGridSearchCV, compile
from everyfold.linalg import batched
from everyfold.linalg.jit import Entry, stamp_of
from everyfold.svm.core import drivers, state

def entries():
    modules = batched, state, drivers
    found = [value for m in modules for value in vars(m).values() if type(value) is Entry]
    return {entry._function.__name__: entry for entry in found}

def others():
    return {name: e.signatures for name, e in entries().items() if len(e.signatures) != 1}

compile.main()
assert len(entries()) >= 7
assert not others(), others()
for name, entry in entries().items():
    assert list(entry.folder.glob(f"*.*{name}-*.nbc")), name
rng = np.random.default_rng(0)
X = rng.normal(size=(90, 3))
y = (X[:, 0] + 0.3 * rng.normal(size=90) > 0.0).astype(int)
for target in (y, y + (X[:, 1] > 0.0)):
    for options in ({"cv": 3}, {"cv": LeaveOneOut()}, {"cv": LeaveOneOut(), "order": "exact"}):
        FastGridSearchCV(SVC(gamma=0.3), {"C": [0.1, 9.0]}, refit=False, **options).fit(X, target)
assert not others(), others()
"""


def test_everything_can_be_compiled_ahead():
    """Each entry for the types that searches call it with, so that none is compiled later."""
    command = [sys.executable, "-W", "ignore", "-c", AHEAD]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"compiled in \d+\.\d s; kept in .+", last), done.stdout
    assert str(fold_paths.folder) in last


PARTS = """
import numpy as np
from everyfold.svm.core import drivers, solver, state, steps
from everyfold.svm.paths import svm_paths

x = np.array([-2.0, -1.0, 1.0, 2.0])
svm_paths(np.outer(x, x), np.sign(x), [1.0], np.ones(4))
modules, kind = (state, steps, solver, drivers), type(steps._move)
parts = {name: part for m in modules for name, part in vars(m).items() if type(part) is kind}
found = {name: part.signatures for name, part in parts.items()}
compiled = {name: types for name, types in found.items() if types}
assert len(compiled) > 20, compiled
print({name: types for name, types in compiled.items() if len(types) > 1})
"""


def test_the_parts_of_a_path_are_compiled_once(tmp_path):
    """A literal among the arguments would have a part compiled for it alone, and then again."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_OPT": "0"}
    command = [sys.executable, "-c", PARTS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "{}\n"), done.stderr + done.stdout


def test_compiling_is_logged_once_and_reading_the_cache_is_not(module, caplog):
    caplog.set_level("INFO", logger="everyfold")
    entry = Entry(module.double, {})
    assert [entry(3.0), entry(4.0)] == [6.0, 8.0]
    (record,) = caplog.records
    assert record.getMessage().startswith("compiling double, once; it is kept in ")
    assert str(entry.folder) in record.getMessage()
    Entry(module.double, {})(3.0)
    assert len(caplog.records) == 1


class Looks(Listener):
    """Notes whether the collector is on whenever something begins to be compiled."""

    def __init__(self):
        self.seen = []

    def on_start(self, event):
        self.seen.append(gc.isenabled())

    def on_end(self, event):
        pass


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_is_paused_while_something_is_compiled(module, is_on):
    looks = Looks()
    (gc.enable if is_on else gc.disable)()
    try:
        with install_listener("numba:compile", looks):
            assert Entry(module.double, {})(3.0) == 6.0
            with pytest.raises(TypingError):
                Entry(module.bound, {})(1.0)
        assert gc.isenabled() is is_on
    finally:
        gc.enable()
    assert looks.seen
    assert not any(looks.seen)


def test_a_search_that_prints_says_that_it_compiles(module, capsys):
    class Asked(Progress):
        def __init__(self, verbose):
            self._search = types.SimpleNamespace(verbose=verbose)

    with Asked(0).printing():
        Entry(module.double, {})(3.0)
    assert capsys.readouterr().out == ""
    with Asked(1).printing():
        Entry(module.bound, {})(np.ones(2))
    assert capsys.readouterr().out.startswith("compiling bound, once")

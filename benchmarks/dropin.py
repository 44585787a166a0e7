"""Scripts that others wrote, run twice: as they are, and with our names in place of scikit-learn's.

Every script runs in a process and a temporary directory of its own, without a network and a screen.
The names are replaced in ``sklearn.model_selection`` and ``sklearn.calibration`` before the script
is read; its text is not touched. In both runs every search and call of a replaced function is
recorded: what it was given, how long it took and what it returned. What differs is printed, script
by script: results, printed text (numbers to a tolerance), exceptions and warnings. A script whose
output differs is run once more as it is: what varies by itself is no difference.

Run with ``python benchmarks/dropin.py FOLDER [--pattern "**/*.py"] [--limit 120] [--scripts 10]
[--output FILE]``. Scripts that name none of the replaced functions are left out, and so are those
that fetch data (``--skip``). Times are seconds of a clock, or of the processor (``--processor``,
for a busy machine). A call counts as slower if it takes 5 % and 0.1 seconds more; the first one of
a script loads compiled code, unless ``--warm`` does that before.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any

FUNCTIONS = (
    "cross_val_predict",
    "cross_val_score",
    "cross_validate",
    "learning_curve",
    "permutation_test_score",
    "validation_curve",
)
CLASSES = {
    "GridSearchCV": "sklearn.model_selection",
    "RandomizedSearchCV": "sklearn.model_selection",
    "CalibratedClassifierCV": "sklearn.calibration",
}
USES = re.compile(rf"\b({'|'.join([*FUNCTIONS, *CLASSES])})\b")
FETCHES = r"\bfetch_|urlretrieve|urlopen|requests\.get"

SLOWER_BY = 1.05, 0.1
"""What counts as slower: this factor, and these seconds."""
ROWS_SHOWN = 6
"""Lines of a script's differences that are printed."""
MEMORY = 8
"""Gigabytes of addresses that a script may use, with its libraries."""
KEPT = 20_000
"""Numbers of a result that are kept for the comparison."""


# -- the process of a script -----------------------------------------------------------------------


@dataclass
class Recorder:
    """What a script did: calls from outside of any other, warnings, and how it ended."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    error: str = ""
    _depth: int = 0

    def timed(self, name: str, call: Callable[..., Any], *, is_method: bool) -> Callable[..., Any]:
        """The call, recorded unless it is made by another recorded one."""

        @functools.wraps(call)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if self._depth:
                return call(*args, **kwargs)
            self._depth += 1
            start = time.perf_counter(), time.process_time()
            result = None
            try:
                result = call(*args, **kwargs)
                return result
            finally:
                self._depth -= 1
                spent = time.perf_counter() - start[0], time.process_time() - start[1]
                given = args[0].estimator if is_method else (args or [kwargs.get("estimator")])[0]
                entry = {"name": name, "estimator": _named(given), "seconds": spent}
                rows = (args[1:] or [kwargs.get("X")])[0] if is_method else None
                self.calls.append(entry | {"values": _values(name, result, rows)})

        return wrapper

    def warn(self, message: Any, category: Any, *_: Any, **__: Any) -> None:
        """In place of ``warnings.showwarning``."""
        first = str(message).strip().partition("\n")[0]
        self.warned.append(f"{category.__name__}: {first[:200]}")


def _named(estimator: Any) -> str:
    """The classes that an estimator consists of."""
    steps = getattr(estimator, "steps", None)
    if steps:
        return " + ".join(_named(step) for _, step in steps)
    inner = getattr(estimator, "estimator", None)
    name = type(estimator).__name__
    return f"{name}({_named(inner)})" if inner is not None else name


def _values(name: str, result: Any, rows: Any) -> dict[str, list[Any]]:
    """The numbers and labels of a result, by name; not those of times."""
    import numpy as np

    if result is None:
        return {}
    parts: dict[str, Any]
    if name == "CalibratedClassifierCV":
        parts = {"probabilities": result.predict_proba(rows)}
    elif name in CLASSES:
        table = result.cv_results_
        parts = {k: v for k, v in table.items() if re.match(r"(mean|std)_(test|train)_", k)}
        parts["best_params_"] = [repr(getattr(result, "best_params_", None))]
    elif isinstance(result, dict):
        parts = {k: v for k, v in result.items() if k.startswith(("test_", "train_"))}
    elif isinstance(result, tuple):
        words = {
            "learning_curve": ("sizes", "train", "test"),
            "validation_curve": ("train", "test"),
        }
        default = "score", "permuted", "p"
        parts = dict(zip(words.get(name, default), result, strict=False))
    else:
        parts = {"values": result}
    flat = {key: np.ravel(np.asarray(value)) for key, value in parts.items()}
    return {key: value[:KEPT].tolist() for key, value in flat.items()}


def _replaced(recorder: Recorder, ours: bool) -> None:
    """Put recorded names in place: scikit-learn's own, or ours."""
    import sklearn
    from sklearn import calibration, model_selection

    for name in sklearn.__all__:  # what these take from model_selection stays scikit-learn's
        with contextlib.suppress(ImportError):
            importlib.import_module(f"sklearn.{name}")
    source: Any = model_selection
    if ours:
        import everyfold as source
    for name in FUNCTIONS:
        recorded = recorder.timed(name, getattr(source, name), is_method=False)
        setattr(model_selection, name, recorded)
    for name, module in CLASSES.items():
        here = calibration if module == "sklearn.calibration" else model_selection
        kind = getattr(source, f"Fast{name}") if ours else getattr(here, name)
        kind.fit = recorder.timed(name, kind.fit, is_method=True)
        setattr(here, name, kind)


def _stay_offline() -> None:
    """Let nothing connect to another machine."""
    connect = socket.socket.connect

    def local(self: socket.socket, address: Any) -> Any:
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(f"no network: {address}")
        return connect(self, address)

    socket.socket.connect = local  # type: ignore[method-assign]


def _limit_memory(gigabytes: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (gigabytes * 2**30, gigabytes * 2**30))


def _warm_up() -> None:
    """Load what is compiled: a search of each kind that compiles something."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC, SVR

    from everyfold import FastGridSearchCV

    X = np.random.default_rng(0).normal(size=(30, 2))
    for model in (SVC(), SVR(), LogisticRegression()):
        y = X[:, 0] > 0.0 if hasattr(model, "class_weight") else X[:, 0]
        FastGridSearchCV(model, {"C": [0.1, 1.0]}, cv=3).fit(X, y)


def run_script(options: argparse.Namespace) -> None:
    """Run a script in this process and write what was recorded."""
    who, script, output = options.run
    _limit_memory(options.memory)
    _stay_offline()
    recorder = Recorder()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if who == "ours" and options.warm:
            _warm_up()
        _replaced(recorder, who == "ours")
    warnings.showwarning = recorder.warn
    sys.argv = [script]
    sys.path[0] = str(Path(script).parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        recorder.error = f"SystemExit: {end.code}" if end.code else ""
    except BaseException as error:
        traceback.print_exc()
        recorder.error = f"{type(error).__name__}: {str(error).strip()[:500]}"
    finally:
        sys.stdout.flush()
        found = {"calls": recorder.calls, "warned": recorder.warned, "error": recorder.error}
        Path(output).write_text(json.dumps(found, default=str))


# -- both runs -------------------------------------------------------------------------------------


@dataclass
class Run:
    """What came of a script in its own process."""

    text: str
    calls: list[dict[str, Any]]
    warned: list[str]
    error: str


def run_apart(script: Path, options: argparse.Namespace, *, ours: bool) -> Run:
    """Run a script in a process of its own, as long and as large as the options allow."""
    with tempfile.TemporaryDirectory(prefix="dropin-") as name:
        folder = Path(name)
        record, printed = folder / "record.json", folder / "printed.txt"
        (folder / "work").mkdir()
        environment = os.environ | {"MPLBACKEND": "Agg", "MPLCONFIGDIR": name, "HOME": name}
        own = ["--run", "ours" if ours else "plain", str(script.resolve()), str(record)]
        own += ["--memory", str(options.memory), *(["--warm"] if options.warm else [])]
        command = [sys.executable, str(Path(__file__).resolve()), *own]
        with printed.open("w") as out, (folder / "errors.txt").open("w") as errors:
            process = subprocess.Popen(
                command,
                cwd=folder / "work",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
            is_late = False
            try:
                process.wait(options.limit)
            except subprocess.TimeoutExpired:
                is_late = True
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # and workers that outlive the script
                process.wait()
        text = printed.read_text(errors="replace")
        if record.exists():
            found = json.loads(record.read_text())
            return Run(text, found["calls"], found["warned"], found["error"])
        words = (
            f"more than {options.limit:g} seconds" if is_late else f"ended by {process.returncode}"
        )
        return Run(text, [], [], words)


# -- the comparison --------------------------------------------------------------------------------

NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?(?![\w.])")
OWN_NAMES = re.compile(r"\bFast((?:Grid|Randomized)SearchCV|CalibratedClassifierCV)\b")
PROGRESS = re.compile(r"compiling |\[CV|Fitting \d+ folds|\d+ candidates on |kernel \d+/\d+")
"""What ``verbose`` prints: of every fit there, of every kernel and of compilation here."""
TIMES = re.compile(r"[-+.\deE]+(?=\s*(?:s|ms|sec|secs|seconds|minutes)\b)")


def differing_lines(plain: str, ours: str, tolerance: float) -> list[str]:
    """The lines of two texts that differ in their words, or in numbers by more than a tolerance."""
    one, other = _lines(plain), _lines(ours)
    found = [
        f"- {a}\n+ {b}" for a, b in zip(one, other, strict=False) if not _alike(a, b, tolerance)
    ]
    if len(one) != len(other):
        found.append(f"- {len(one)} lines\n+ {len(other)} lines")
    return found


def _lines(text: str) -> list[str]:
    lines = (" ".join(line.split()) for line in OWN_NAMES.sub(r"\1", text).splitlines())
    return [line for line in lines if line and not PROGRESS.match(line)]


def _alike(one: str, other: str, tolerance: float) -> bool:
    one, other = (re.sub(r"0x[0-9a-f]+", "", TIMES.sub("", text)) for text in (one, other))
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return all(_near(float(a), float(b), tolerance) for a, b in pairs)


def _near(a: float, b: float, tolerance: float) -> bool:
    return a == b or abs(a - b) <= tolerance * max(1.0, abs(a)) or (a != a and b != b)


def largest_difference(plain: dict[str, list[Any]], ours: dict[str, list[Any]]) -> float:
    """Of two results, relative to 1 or the number; labels that differ count as 1."""
    worst = 0.0
    for name, values in plain.items():
        others = ours.get(name, [])
        if len(others) != len(values):
            return float("inf")
        for a, b in zip(values, others, strict=True):
            if a == b or name == "best_params_":  # ties are common, and not a score
                continue
            if not (_is_number(a) and _is_number(b)):
                worst = max(worst, 1.0)
            elif a == a or b == b:
                off = abs(a - b) / max(1.0, abs(a))
                worst = max(worst, off if off == off else float("inf"))
    return worst


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass
class Pair:
    """A call in both runs."""

    name: str
    estimator: str
    plain: float
    ours: float
    off: float
    other_best: bool

    @property
    def is_slower(self) -> bool:
        """Whether ours takes longer by more than timing can be off."""
        factor, seconds = SLOWER_BY
        return self.ours > factor * self.plain and self.ours > self.plain + seconds

    def __str__(self) -> str:
        ratio = self.plain / max(self.ours, 1e-9)
        best = ", another best candidate" if self.other_best else ""
        return (
            f"{self.name}({self.estimator}): {self.plain:.2f} s, ours {self.ours:.2f} s, "
            f"{ratio:.2g}x, off by {self.off:.1e}{best}"
        )


def paired(plain: Run, ours: Run, clock: int) -> list[Pair]:
    """The calls of both runs side by side, as far as they are the same."""
    pairs = []
    for a, b in zip(plain.calls, ours.calls, strict=False):
        if a["name"] != b["name"]:
            break
        best = [call["values"].get("best_params_") for call in (a, b)]
        pairs.append(
            Pair(
                a["name"],
                a["estimator"],
                a["seconds"][clock],
                b["seconds"][clock],
                largest_difference(a["values"], b["values"]),
                best[0] != best[1],
            )
        )
    return pairs


@dataclass
class Verdict:
    """What became of a script: a word for it, its calls, and what differs."""

    script: str
    word: str
    pairs: list[Pair] = field(default_factory=list)
    details: list[str] = field(default_factory=list)

    def show(self) -> Iterator[str]:
        """The lines that are printed."""
        times = [sum(getattr(pair, side) for pair in self.pairs) for side in ("plain", "ours")]
        ratio = f"{times[0] / times[1]:7.2f}x" if times[1] else "       -"
        off = f"{max((pair.off for pair in self.pairs), default=0.0):.1e}"
        line = f"{len(self.pairs):4d} calls {times[0]:8.2f} s {times[1]:8.2f} s {ratio} {off:>8s}"
        yield f"{self.word:16s} {line}  {self.script}"
        kinds = Counter(str(pair).partition(":")[0] for pair in self.pairs)
        shown = [p for p in self.pairs if p.is_slower or p.off > 0.0 or p.other_best]
        yield from (f"    {pair}" for pair in shown[:ROWS_SHOWN])
        if not shown:
            yield from (f"    {count} x {kind}: equal" for kind, count in kinds.most_common(3))
        for detail in self.details:
            yield from (f"    {line[:160]}" for line in detail.splitlines())


def judge(script: Path, name: str, options: argparse.Namespace) -> Verdict:
    """Run a script both ways and compare."""
    plain = run_apart(script, options, ours=False)
    if plain.error:
        return Verdict(name, "fails plain too", details=[plain.error])
    if not plain.calls:
        return Verdict(name, "no calls")
    ours = run_apart(script, options, ours=True)
    pairs = paired(plain, ours, int(options.processor))
    details = _details(plain, ours, options.tolerance)
    new = Counter(ours.warned) - Counter(plain.warned)
    told = [f"warned: {words} ({count} times)" for words, count in new.most_common(ROWS_SHOWN)]
    is_off = any(pair.off > options.tolerance for pair in pairs)
    if ours.error:
        return Verdict(name, "fails with ours", pairs, [ours.error, *told])
    if not details and not is_off and len(plain.calls) == len(ours.calls):
        slower = any(pair.is_slower for pair in pairs)
        return Verdict(name, "slower" if slower else "equal", pairs, told)
    again = run_apart(script, options, ours=False)
    itself = _details(plain, again, options.tolerance)
    varies = paired(plain, again, 0)
    if itself or any(pair.off > options.tolerance for pair in varies):
        return Verdict(name, "varies by itself", pairs, told)
    return Verdict(name, "differs", pairs, [*details[:ROWS_SHOWN], *told])


def _details(plain: Run, ours: Run, tolerance: float) -> list[str]:
    found = differing_lines(plain.text, ours.text, tolerance)
    if len(plain.calls) != len(ours.calls):
        found.append(f"{len(plain.calls)} calls, ours {len(ours.calls)}")
    return found


# -- from the shell --------------------------------------------------------------------------------


def chosen(options: argparse.Namespace) -> Iterator[Path]:
    """The scripts of a folder that use what is replaced and fetch nothing."""
    for path in sorted(Path(options.folder).glob(options.pattern)):
        text = path.read_text(errors="replace") if path.is_file() else ""
        if USES.search(text) and not (options.skip and re.search(options.skip, text)):
            yield path


def compare(options: argparse.Namespace) -> int:
    """Compare all scripts and print what differs."""
    scripts = list(chosen(options))[: options.scripts]
    output = open(options.output, "w") if options.output else None  # noqa: SIM115
    with output or contextlib.nullcontext():

        def say(line: str) -> None:
            print(line, flush=True)
            if output:
                print(line, file=output, flush=True)

        verdicts = []
        names = [str(script.relative_to(options.folder)) for script in scripts]
        with ThreadPoolExecutor(options.jobs) as pool:
            for verdict in pool.map(judge, scripts, names, repeat(options)):
                verdicts.append(verdict)
                for line in verdict.show():
                    say(line)
        for line in summary(verdicts):
            say(line)
    return int(any(v.word in ("differs", "fails with ours") for v in verdicts))


def summary(verdicts: list[Verdict]) -> Iterator[str]:
    """The counts of all scripts and calls."""
    words = Counter(verdict.word for verdict in verdicts)
    pairs = [pair for verdict in verdicts for pair in verdict.pairs]
    plain, ours = sum(pair.plain for pair in pairs), sum(pair.ours for pair in pairs)
    yield ""
    yield f"{len(verdicts)} scripts: " + ", ".join(f"{n} {word}" for word, n in words.most_common())
    if not pairs:
        return
    slower = sum(pair.is_slower for pair in pairs)
    ratios = sorted(pair.plain / max(pair.ours, 1e-9) for pair in pairs)
    yield (
        f"{len(pairs)} calls: {plain:.1f} s, ours {ours:.1f} s; ratios {ratios[0]:.2g} to "
        f"{ratios[-1]:.2g}, median {ratios[len(ratios) // 2]:.2g}; {slower} slower by "
        f"{SLOWER_BY[0] - 1:.0%} and {SLOWER_BY[1]} s"
    )


def read_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", help="where the scripts are")
    parser.add_argument("--pattern", default="**/*.py", help="which files of the folder")
    parser.add_argument("--skip", default=FETCHES, help="leave out scripts with this expression")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for a run of a script")
    parser.add_argument("--memory", type=int, default=MEMORY, help="gigabytes for a run")
    parser.add_argument("--scripts", type=int, help="at most so many scripts")
    parser.add_argument("--jobs", type=int, default=1, help="so many scripts at a time")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="of numbers")
    parser.add_argument("--processor", action="store_true", help="time of the processor")
    parser.add_argument("--warm", action="store_true", help="load compiled code before a script")
    parser.add_argument("--output", help="also write to this file")
    parser.add_argument("--run", nargs=3, metavar=("WHO", "SCRIPT", "RECORD"), help="one run only")
    options = parser.parse_args(arguments)
    if options.folder is None and options.run is None:
        parser.error("folder: name the folder with the scripts")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = read_options(arguments)
    if options.run:
        run_script(options)
        return 0
    return compare(options)


if __name__ == "__main__":
    sys.exit(main())

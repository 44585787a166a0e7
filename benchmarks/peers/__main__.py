"""Searches of kernel machines by other packages, each in an environment of its own.

Twelve sets from 351 to 20,000 rows; three quarters of the rows are searched (5 folds, 6 × 6 grid of
C or alpha and gamma), the rest is held out. Of every peer: the time of its search with the refit of
its winner, the score it reports, the winner's score by refits on the same folds, and the error of
its model on the rows held out. Regression: squared error as a share of the variance; classes:
share of mistakes.

``python -m benchmarks.peers run`` makes the environments under ``build/peers`` (packages are
downloaded), measures what is missing and keeps every result in ``benchmarks/results/peers.jsonl``;
``report`` writes ``docs/peers.md`` and ``docs/peers.png`` from them. ``run --peers P … --sets S …``
measures some of it again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.peers.peers import PEERS, Peer
from benchmarks.peers.problems import DATA, PROBLEMS, ROOT, Problem

KEPT = ROOT / "benchmarks" / "results" / "peers.jsonl"
HOMES = ROOT / "build" / "peers"
LIMIT = 600  # seconds of one measurement


def measure(peer: Peer, problem: Problem, repeats: int) -> dict[str, Any]:
    """One peer on one set, in this process."""
    from sklearn.model_selection import cross_val_score

    warnings.simplefilter("ignore")
    X, y, held, truth, folds = problem.rows()
    few = np.concatenate([np.flatnonzero(y == c)[:20] for c in np.unique(y)[:10]])[:200]
    peer.run(problem, X[few], y[few], folds)  # imports and compiles
    walls, processors = [], []
    for _ in range(repeats):
        wall, processor = time.perf_counter(), _processor()
        found = peer.run(problem, X, y, folds)
        walls.append((time.perf_counter() - wall) * found.times)
        processors.append((_processor() - processor) * found.times)
        if walls[-1] > 10:
            break
    predicted = found.predict(held)
    wrong = (predicted - truth) ** 2 if problem.is_regression else predicted != truth
    true = None
    if found.winner and problem.has_true_score:
        model = problem.estimator().set_params(**found.winner)
        true = cross_val_score(model, X, y, cv=folds, scoring=problem.scoring).mean()
    return {
        "wall": float(np.median(walls)),
        "processor": float(np.median(processors)),
        "scaled": found.times,
        "reported": found.reported,
        "true": true,
        "held": float(np.mean(wrong)),
        "rows": len(y),
    }


def _processor() -> float:
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def environment(peer: Peer) -> Path:
    """The peer's own Python; made if it is not there."""
    home = HOMES / "-".join(sorted(set(peer.needs) - {"-e", str(ROOT)}) or ["everyfold"])
    python = home / "bin" / "python"
    if not (home / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *peer.needs]
        subprocess.run(install, check=True)
        (home / ".ready").touch()
    return python


def cells(peers: list[str], sets: list[str]) -> Iterator[tuple[Peer, Problem]]:
    for problem in map(PROBLEMS.__getitem__, sets):
        for peer in map(PEERS.__getitem__, peers):
            if problem.kind in peer.kinds and (peer.most > 10_000 or problem.share == 1):
                yield peer, problem


def run(options: argparse.Namespace) -> None:
    kept = read()
    for peer, problem in cells(options.peers, options.sets):
        if not options.again and (peer.name, problem.label) in kept:
            continue
        command = [
            str(environment(peer)),
            "-m",
            "benchmarks.peers",
            "one",
            "--repeats",
            str(options.repeats),
        ]
        command += ["--peers", peer.name, "--sets", problem.label]
        threads = dict.fromkeys(("OPENBLAS", "OMP", "MKL", "NUMBA"), "1")
        threads = {f"{name}_NUM_THREADS": n for name, n in threads.items()}
        record: dict[str, Any] = {"peer": peer.name, "set": problem.label, "quiet": options.quiet}
        try:
            done = subprocess.run(
                command, cwd=ROOT,
                env={**os.environ, **threads}, capture_output=True, text=True,
                timeout=LIMIT,
            )  # fmt: skip
            record |= (
                json.loads(done.stdout.splitlines()[-1])
                if done.returncode == 0
                else {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
            )
        except subprocess.TimeoutExpired:
            record["failed"] = f"not done after {LIMIT // 60} minutes"
        with KEPT.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        print(record, flush=True)


def read() -> dict[tuple[str, str], dict[str, Any]]:
    """The last result of each peer on each set."""
    if not KEPT.exists():
        return {}
    lines = map(json.loads, KEPT.read_text(encoding="utf-8").splitlines())
    return {(line["peer"], line["set"]): line for line in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["run", "report", "one"])
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--sets", nargs="*", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--repeats", type=int, default=3, help="while a search is below 10 seconds")
    parser.add_argument("--again", action="store_true", help="measure what is kept, too")
    parser.add_argument("--quiet", action="store_true", help="nothing else runs: wall clocks count")
    options = parser.parse_args()
    if options.command == "one":
        problem = PROBLEMS[options.sets[0]]
        answer = measure(PEERS[options.peers[0]], problem, options.repeats)
        import sklearn

        answer["versions"] = (
            f"Python {platform.python_version()}, scikit-learn {sklearn.__version__}"
        )
        print(json.dumps(answer))
    elif options.command == "run":
        if not DATA.exists():
            options.sets = [name for name in options.sets if name in {"digits", "friedman1"}]
            print("the other sets need ../shared/data")
        run(options)
    else:
        from benchmarks.peers.page import write

        write(read())


if __name__ == "__main__":
    main()

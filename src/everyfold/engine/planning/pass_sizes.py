"""Candidates on a source of rows, cut into passes.

A pass has as many kernels as memory allows and, with a checkpoint, as many as take half a minute.
"""

from __future__ import annotations

from collections.abc import Sequence

from joblib import cpu_count
from sklearn.base import is_classifier

from everyfold._progress import pluralise
from everyfold.crossval import GramCV
from everyfold.engine.execution.block_methods import BlockMethod, block_method
from everyfold.engine.planning.costs import Cost, sums_bytes
from everyfold.engine.planning.methods import Method
from everyfold.engine.planning.units import Group, Unit
from everyfold.engine.records import Data
from everyfold.engine.source_data import BlockKernel, SourceData
from everyfold.io.cluster import Workers
from everyfold.io.samples import SAMPLE
from everyfold.linalg.blas import thread_budget
from everyfold.linalg.memory import SHARE_OF_MEMORY, available_memory, sample_rows

# What the sums of one pass may take, if it is less than their share of free memory. More would
# save passes, less memory.
MOST_BYTES = 1_000_000_000

# Seconds after which a pass should end where a checkpoint keeps what was finished: shorter passes
# lose less when a search dies, but read the rows more often.
LONGEST = 30.0


def cut_passes(data: SourceData, workers: int) -> list[Unit]:
    """The passes over a source, given how many of them may run at a time."""
    elsewhere = data.source.workers()
    memory = None if elsewhere is None else elsewhere.memory
    most_bytes = min(MOST_BYTES, SHARE_OF_MEMORY * (memory or available_memory()))
    kernels = data.kernels
    needed = [_method([kernel]).held_bytes(data, kernel) for kernel in kernels]
    # The number of rows that landmarks are chosen from: the same in all passes.
    drawn = sample_rows(data.source.n_features, data.widest)
    # Passes that run at the same time share the memory.
    most_bytes /= max(1, min(workers, len(kernels), sum(needed) // max(1, int(most_bytes))))
    batches: list[list[BlockKernel]] = [[]]
    taken, spent = 0, 0.0
    for kernel, own in zip(kernels, needed, strict=True):
        seconds = _cost(data, [kernel], drawn).seconds if data.has_journal else 0.0
        is_full = taken + own > most_bytes or spent + seconds > LONGEST
        method = _method([kernel])
        is_alone = not method.shares_passes
        if batches[-1] and (is_full or is_alone or method is not _method(batches[-1])):
            batches.append([])
            taken, spent = 0, 0.0
        batches[-1].append(kernel)
        taken, spent = taken + own, spent + seconds
    # How many threads add up shows in the last digits, and depends on what memory is free: a search
    # with a checkpoint has one, and with it the digits of one that was not interrupted.
    is_alone = elsewhere is not None or data.has_journal or 1 < workers <= len(batches)
    blocks = data.n // data.height
    most = 1
    if not is_alone:  # as many as there may be workers or BLAS, and no fewer than two blocks each
        most = max(1, min(max(workers, thread_budget()), int(cpu_count()), blocks // 2))
    half = 2 * SHARE_OF_MEMORY * available_memory()
    units = []
    for batch in batches:
        threads = most
        while threads > 1 and _cost(data, batch, drawn, threads).memory > half:
            threads -= 1
        units.append(_unit(data, batch, drawn, threads, elsewhere))
    return units


def _cost(data: SourceData, batch: Sequence[BlockKernel], drawn: int, threads: int = 1) -> Cost:
    """What a pass for some kernels costs."""
    return _method(batch).cost(data, batch, _sampled_rows(data, batch, drawn), threads)


def _method(batch: Sequence[BlockKernel]) -> BlockMethod:
    """How the kernels of a pass are evaluated."""
    return block_method(batch[0].members[0].model)


def _sampled_rows(data: SourceData, batch: Sequence[BlockKernel], drawn: int) -> int:
    """How many rows are held to make the maps of a pass."""
    return max(kernel.structure.rows_sampled(data.n, drawn) for kernel in batch)


def _unit(
    data: SourceData,
    batch: Sequence[BlockKernel],
    drawn: int,
    threads: int,
    workers: Workers | None,
) -> Unit:
    # A worker of a cluster also holds a partition, as it is made and as rows.
    rows = 0 if workers is None else -(-data.n // max(1, workers.partitions))
    held = 16 * rows * (data.source.n_features + 1)
    cost = _cost(data, batch, drawn, threads)
    words = _method(batch).words(knows_scores=_method(batch).knows_scores(data))
    method = Method(GramCV(), words, cost.seconds, cost.memory, is_of_another_model=True)
    groups = tuple((Group(tuple(c.number for c in k.members), method),) for k in batch)
    widest = max(kernel.width for kernel in batch)
    return Unit(
        groups,
        None,
        None,
        frozenset(),
        f"up to {widest} {batch[0].structure.kind}",
        order="blocks",
        threads=threads,
        seconds=cost.seconds / (workers.threads if workers else 1),
        memory=cost.memory + held,
        drawn=drawn,
    )


def pass_notes(data: SourceData, units: Sequence[Unit]) -> list[str]:
    """What is to be said of passes."""
    notes: list[str] = []
    drawn, usual = units[0].drawn, min(SAMPLE, data.n)
    if drawn < usual and _sampled_rows(data, data.kernels, drawn):
        notes.append(
            f"landmarks are drawn from {drawn} rows, and not from {usual}, which with "
            f"{pluralise(data.source.n_features, 'feature')} would take more than an eighth of "
            "the memory"
        )
    workers, method = data.source.workers(), _method(data.kernels)
    if workers is None:
        return notes
    cluster = (
        f"{pluralise(workers.partitions, 'partition')} on {pluralise(workers.count, 'worker')} "
        f"with {pluralise(workers.threads, 'thread')}"
    )
    if not method.shares_passes:
        return [
            *notes,
            f"{cluster}; rows stay where they are, but for a sample, and each pass moves the "
            "coefficients and gradients of all models",
        ]
    passes = len(units) * (1 if method.knows_scores(data) else 2)
    passes += (data.moments is not None) + (data.reader.classes is not None)
    sums = sum(sums_bytes(kernel.width, data.n_folds) for kernel in data.kernels) / 2
    return [
        *notes,
        f"{cluster}, {pluralise(passes, 'pass')} over the rows, which stay where they are; at most "
        f"{sums * workers.chains / 1e6:.3g} MB of sums move between the workers",
    ]


def stand_in_notes(data: Data) -> list[str]:
    """Say what is fitted in place of an estimator that cannot be fitted to the rows."""
    why = f"needs the full kernel matrix of {data.n} rows, which does not fit in memory"
    if not data.in_memory:
        why = "cannot be fitted to a source of rows"
    found = (c.parts.final for c in data.candidates.values() if data.has_stand_in(c))
    estimator = next(found, None)
    if estimator is None:
        return []
    kind = "KernelClassifier" if is_classifier(estimator) else "KernelRegressor"
    return [f"{type(estimator).__name__} {why}; best_estimator_ is the {kind} of the same model"]

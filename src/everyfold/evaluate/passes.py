"""Candidates on a source of rows, cut into passes: as many kernels each as memory allows."""

from __future__ import annotations

from collections.abc import Sequence

from sklearn.base import is_classifier

from everyfold.criteria import BySums
from everyfold.evaluate.costs import Cost, SummedKernel, source_pass, sums_bytes
from everyfold.evaluate.data import Candidate, Data
from everyfold.evaluate.methods import Method
from everyfold.evaluate.stream import Stream
from everyfold.evaluate.tiles import Group, Unit, gather
from everyfold.models.sources import structure_of
from everyfold.operators.memory import available_memory
from everyfold.rows.batches import height_of
from everyfold.rows.cluster import Workers

SHARE_OF_MEMORY = 0.25
MOST_BYTES = 1_000_000_000
"""What the sums of one pass may take: this share of free memory, and no more than this."""

LONGEST = 30.0
"""Seconds after which a pass should end where a journal keeps what was finished."""


def cut_passes(data: Data, workers: int) -> list[Unit]:
    """The passes over a source, given how many of them may run at a time."""
    stream, elsewhere = data.stream, data.stream.source.workers()
    memory = None if elsewhere is None else elsewhere.memory
    room = min(MOST_BYTES, SHARE_OF_MEMORY * (memory or available_memory()))
    kernels = _kernels(data)
    needed = [sums_bytes(_summed(stream, own).width, stream.n_folds) for own in kernels]
    room /= max(1, min(workers, len(kernels), sum(needed) // max(1, int(room))))
    batches: list[list[list[Candidate]]] = [[]]
    taken, spent = 0, 0.0
    for members, own in zip(kernels, needed, strict=True):
        seconds = _cost(stream, [members]).seconds if stream.has_journal else 0.0
        if batches[-1] and (taken + own > room or spent + seconds > LONGEST):
            batches.append([])
            taken, spent = 0, 0.0
        batches[-1].append(members)
        taken, spent = taken + own, spent + seconds
    return [_unit(stream, batch) for batch in batches]


def _kernels(data: Data) -> list[list[Candidate]]:
    """The candidates by kernel."""
    return gather(data.candidates.values(), lambda c: (c.kernel_key, c.model.intercept))


def block_height(data: Data) -> int:
    """How many rows to read at a time: the same in all passes, however these were cut."""
    widths = [_summed(data.stream, own).width for own in _kernels(data)]
    return height_of(max(data.stream.source.n_features, *widths))


def _summed(stream: Stream, members: Sequence[Candidate]) -> SummedKernel:
    """The sizes of a kernel that costs depend on."""
    source, structure = stream.source, structure_of(members[0].model)
    width = structure.raw_width_for(source.n_rows or 0, source.n_features)
    return SummedKernel(
        width, len(members), stream.n_folds if stream.is_per_fold(members[0]) else 1
    )


def _cost(stream: Stream, batch: Sequence[Sequence[Candidate]]) -> Cost:
    """What a pass for some kernels costs."""
    source, kernels = stream.source, [_summed(stream, members) for members in batch]
    shape, passes = (source.n_rows or 0, source.n_features), 1 if stream.is_one_pass else 2
    return source_pass(shape, kernels, stream.n_folds, passes)


def _unit(stream: Stream, batch: Sequence[Sequence[Candidate]]) -> Unit:
    cost, words = _cost(stream, batch), pass_words(1 if stream.is_one_pass else 2)
    method = Method(BySums(), words, cost.seconds, cost.memory, is_of_another_model=True)
    groups = tuple((Group(tuple(c.number for c in members), method),) for members in batch)
    widest = max(_summed(stream, members).width for members in batch)
    words = f"up to {widest} {structure_of(batch[0][0].model).kind}"
    return Unit(groups, None, None, frozenset(), words, order="pass")


def pass_words(passes: int) -> str:
    """How candidates on a source are evaluated."""
    times = "one pass" if passes == 1 else "two passes"
    return (
        f"sums over the rows of every fold in {times} over the source, one factorisation a "
        "fold; folds are exact for the low-rank kernel"
    )


def traffic_notes(data: Data, units: Sequence[Unit], workers: Workers | None) -> list[str]:
    """Say what moves between the workers of a cluster."""
    if workers is None:
        return []
    stream = data.stream
    passes = len(units) * (1 if stream.is_one_pass else 2)
    passes += (stream.moments is not None) + (stream.reader.classes is not None)
    sums = sum(sums_bytes(_summed(stream, own).width, stream.n_folds) for own in _kernels(data)) / 2
    return [
        f"{workers.partitions} partitions on {workers.count} workers with {workers.threads} "
        f"threads, {passes} {'pass' if passes == 1 else 'passes'} over the rows, which stay where "
        f"they are; at most {sums * workers.chains / 1e6:.3g} MB of sums move between the workers"
    ]


def worker_bytes(data: Data, workers: Workers) -> int:
    """What a worker of a cluster holds besides its pass: a partition as it is made and as rows."""
    source = data.stream.source
    rows = -(-(source.n_rows or 0) // max(1, workers.partitions))
    return int(16 * rows * (source.n_features + 1))


def stand_in_notes(data: Data) -> list[str]:
    """Say what is fitted in place of an estimator whose ``fit`` takes no source."""
    estimator = next(iter(data.candidates.values())).parts.final
    if hasattr(estimator, "_model"):
        return []
    kind = "KernelClassifier" if is_classifier(estimator) else "KernelRegressor"
    return [
        f"{type(estimator).__name__} cannot be fitted to a source of rows; best_estimator_ is the "
        f"{kind} of the same model"
    ]

"""Units of work: tiles of the table of candidates × folds, a few numbers each.

Where all folds share a kernel, a unit is one kernel on all folds. Where every fold has its own (a
Pipeline, ``gamma="scale"``), it is one fold, or a few of many, with a batch of kernels, which share
the rows and distances of a fold. Batches come one after the other, so that an interrupt leaves
complete candidates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar

from scipy.sparse import issparse

from everyfold._typing import Matrix, Order
from everyfold.adapters.pipelines import freeze
from everyfold.crossval import GramCV
from everyfold.engine.execution.kernel_builder import FoldRows, rows_of
from everyfold.engine.planning import costs
from everyfold.engine.planning.methods import MANY_FOLDS, Method, RidgePath
from everyfold.engine.records import Candidate, Data
from everyfold.estimators.model import Model
from everyfold.kernels import Kernel
from everyfold.operators import Structure
from everyfold.operators.base import OperatorSpec

# How many kernels of one fold are made from its distances before the next fold follows.
BATCH = 8

# Folds up to which each is a unit of its own, and the most in one unit. A unit costs about as much
# as a fold of a hundred rows; more units keep more workers busy, and more of them in a journal.
FEW_FOLDS = 16

# What the distances of all folds of a unit may take: so many folds of 700 rows, one of 3000.
BASE_BYTES = 64_000_000

# Rows for each fold and column from which on a c×c decomposition a fold costs little beside.
ROWS_TO_SUM = 10

Item = TypeVar("Item")


@dataclass(frozen=True)
class Group:
    """Candidates with one kernel and task that differ in the ridge only."""

    numbers: tuple[int, ...]
    method: Method


@dataclass(frozen=True)
class Unit:
    """A tile of the table of candidates × folds.

    Attributes
    ----------
    groups : tuple of tuple of Group
        By kernel.
    folds : tuple of int or None
        The numbers of the folds; None for all.
    structure : Structure
        How kernel matrices are represented.
    shared : frozenset of str
        Base matrices that kernels share.
    words : str
        The structure in words.
    order : {"kernel", "fold", "pass", "blocks", "refit"}
        Whether the unit is a kernel on all folds, some folds with some kernels, a kernel in one
        pass over the rows, some kernels in passes over rows that come in blocks, or refits of the
        estimators themselves.
    threads : int
        For the folds of a kernel, where the method can use them.
    pilot : int
        The number of the pilot split, from 1 on; 0 for the folds of the candidates.
    seconds, memory : float, int
        What it should cost, and bytes at work, kernels included.
    landmarks : int
        Their number where it was left open; 0 if it was not.
    drawn : int
        Rows of a source that landmarks are drawn from, at most.
    """

    groups: tuple[tuple[Group, ...], ...]
    folds: tuple[int, ...] | None
    structure: Structure | None
    shared: frozenset[str]
    words: str
    order: Literal["kernel", "fold", "pass", "blocks", "refit"] = "kernel"
    threads: int = 1
    pilot: int = 0
    seconds: float = 0.0
    memory: int = 0
    landmarks: int = 0
    drawn: int = 0

    @property
    def numbers(self) -> list[int]:
        """The candidates."""
        return [number for groups in self.groups for group in groups for number in group.numbers]

    @property
    def methods(self) -> list[Method]:
        """Those of all groups."""
        return [group.method for groups in self.groups for group in groups]

    def by_kernel(self) -> list[Unit]:
        """What a journal keeps: each kernel of a pass, as passes may be cut otherwise next time."""
        if self.order == "fold":
            return [self]
        return [replace(self, groups=(groups,)) for groups in self.groups]


@dataclass(frozen=True)
class KernelPlan:
    """One kernel: its candidates, and how its matrix is represented."""

    candidates: tuple[Candidate, ...]
    structure: Structure
    outline: OperatorSpec
    features: int = 0
    row_entries: float = 0.0
    """Stored entries of a row: fewer than features where rows are sparse."""

    def only(self, numbers: Container[int]) -> KernelPlan:
        """The same kernel for some of its candidates."""
        own = tuple(candidate for candidate in self.candidates if candidate.number in numbers)
        return replace(self, candidates=own)

    def words(self, n: int, *, has_folds: bool = True) -> str:
        """How the kernel matrix is represented."""
        rank = f"rank {self.outline.rank}"
        if self.outline.is_per_fold and has_folds:
            is_low_rank = self.structure.is_approximate and self.outline.rank < n
            return f"{rank} for each fold" if is_low_rank else "a kernel for each fold"
        if self.outline.rank < n:
            return rank
        if self.outline.response_rank is not None:
            return f"dense, responses of rank {self.outline.response_rank}"
        if self.outline.methods is None:
            return "dense"
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(self.structure).__name__).lower()

    def groups(self, data: Data, order: Order) -> tuple[Group, ...]:
        """The candidates by what they share, each with its method."""
        groups = []
        for members in gather(self.candidates, lambda candidate: candidate.group_key):
            # From strong to weak ridges each fit of a Newton method starts near its minimum.
            if not members[0].model.loss.has_constant_curvature:
                members.sort(key=lambda candidate: -candidate.model.ridges[0])
            models = [candidate.model for candidate in members]
            task, rows = data.tasks[members[0].task], partial(rows_of, data, members[0])
            method = RidgePath(models, task, self.outline, order, rows).choose()
            groups.append(Group(tuple(candidate.number for candidate in members), method))
        return tuple(groups)


def gather(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    """Items with equal keys together, in the order of their first."""
    found: dict[Hashable, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.values())


def kernels_of(
    data: Data, candidates: Sequence[Candidate], *, is_per_fold: bool
) -> Iterator[KernelPlan]:
    """The kernels of candidates, each with the structure it asks for on the data at hand."""
    known: dict[Hashable, Structure] = {}
    for members in gather(candidates, lambda candidate: candidate.kernel_key):
        first = members[0]
        is_own = first.model.has_kernel_per_fold or (bool(first.parts.steps) and is_per_fold)
        X = typical_rows(data, first) if is_own else rows_of(data, first)
        if X is None:  # the steps of a fold fail, which its own evaluation reports
            structure = first.model.structure_for_any()
            outline = structure.outline(data.n, data.n, is_per_fold=True)
            shape, row_entries = (data.n, 0), 0.0
        else:
            shape = (data.n, X.shape[1])
            is_sparse: bool = issparse(X)
            row_entries = X.nnz / X.shape[0] if is_sparse else float(X.shape[1])
            structure = _structure(first.model, first.model.choice.resolve(X), shape, known)
            outline = structure.outline(*shape, is_per_fold=is_own)
            # Sums over rows cost no more than a fit then, and save holding the features.
            if not is_own and data.n_folds <= MANY_FOLDS and structure.needs_blocks(*shape):
                is_long = data.n >= ROWS_TO_SUM * data.n_folds * structure.rank_for(*shape)
                outline = replace(outline, needs_blocks=is_long)
        yield KernelPlan(tuple(members), structure, outline, shape[1], row_entries)


def _structure(
    model: Model, kernel: Kernel, shape: tuple[int, int], known: dict[Hashable, Structure]
) -> Structure:
    """The structure of a kernel: what is alike to it is not asked for its memory again."""
    asked = freeze(model.operator), model.choice.is_precomputed, freeze(model.loss), model.seed
    key = *asked, kernel.is_linear, shape
    if key not in known:
        known[key] = model.structure(kernel, shape)
    return known[key]


def typical_rows(data: Data, candidate: Candidate) -> Matrix:
    """The training rows of the first fold as the kernel sees them, None if they cannot be made."""
    if not candidate.parts.steps:
        return rows_of(data, candidate)
    fold = data.tasks[candidate.task].folds[0]
    try:
        return FoldRows(data, candidate, candidate.model.structure_for_any()).rows(
            fold.train, fold.test
        )[0]
    except MemoryError:
        raise
    except Exception:
        return None


def cut(data: Data, kernels: Sequence[KernelPlan], order: Order) -> list[Unit]:
    """Cut the table of candidates × folds into units."""
    units: list[Unit] = []
    for same_rows in gather(kernels, lambda kernel: kernel.candidates[0].rows_key):
        # The base matrices that more than one kernel is made of.
        bases = [k.candidates[0].model.choice.resolve_for_any().base for k in same_rows]
        shared = frozenset(base for base in bases if base is not None and bases.count(base) > 1)
        whole = [kernel for kernel in same_rows if not kernel.outline.is_per_fold]
        units += [_whole(data, kernel, shared, order) for kernel in whole]
        per_fold = [kernel for kernel in same_rows if kernel.outline.is_per_fold]
        for alike in gather(per_fold, lambda kernel: repr(kernel.structure)):
            units += _fold_by_fold(data, alike, shared, order)
    return units


def _whole(data: Data, kernel: KernelPlan, shared: frozenset[str], order: Order) -> Unit:
    """A kernel on all folds; a base matrix that further kernels share is kept beside it."""
    groups, is_low_rank = kernel.groups(data, order), kernel.structure.is_approximate
    made = costs.kernel_cost(data.n, kernel.outline, kernel.features, is_low_rank=is_low_rank)
    methods = [group.method for group in groups]
    is_sum = all(isinstance(method.criterion, GramCV) for method in methods)
    is_pass = kernel.outline.needs_blocks and is_sum
    return Unit(
        (groups,),
        None,
        kernel.structure,
        shared,
        kernel.words(data.n),
        order="pass" if is_pass else "kernel",
        seconds=made.seconds + sum(method.seconds for method in methods),
        # The features of a pass are never all in memory; methods count the kernels they work with.
        memory=max([0 if is_pass else made.memory, *(method.memory for method in methods)])
        + _kept(data, kernel, shared),
    )


def _kept(data: Data, kernel: KernelPlan, shared: frozenset[str]) -> int:
    """Bytes of a base matrix that is kept for further kernels."""
    return 8 * data.n**2 if shared and kernel.structure.needs_base else 0


def _fold_by_fold(
    data: Data, kernels: Sequence[KernelPlan], shared: frozenset[str], order: Order
) -> Iterator[Unit]:
    for start in range(0, len(kernels), BATCH):
        batch = kernels[start : start + BATCH]
        groups = tuple(kernel.groups(data, order) for kernel in batch)
        methods = [group.method for own in groups for group in own]
        is_low_rank = batch[0].structure.is_approximate
        made = [
            costs.kernel_cost(data.n, own.outline, own.features, is_low_rank=is_low_rank)
            for own in batch
        ]
        # Methods count all folds, and every fold makes its kernels anew.
        seconds = sum(method.seconds for method in methods) / data.n_folds
        seconds += sum(cost.seconds for cost in made)
        kept = _kept(data, batch[0], shared)
        size = min(-(-data.n_folds // FEW_FOLDS), FEW_FOLDS)
        size = max(min(size, BASE_BYTES // kept), 1) if kept else size
        unit = Unit(
            groups,
            None,
            batch[0].structure,
            shared,
            batch[0].words(data.n, has_folds=data.tasks[0].criterion is None),
            order="fold",
            memory=max([*(cost.memory for cost in made), *(method.memory for method in methods)])
            + size * kept,
        )
        for first in range(0, data.n_folds, size):
            folds = tuple(range(first, min(first + size, data.n_folds)))
            yield replace(unit, folds=folds, seconds=len(folds) * seconds)

"""From candidates to kernels on rows: what is fitted to which rows, and what kernels share.

`bind` makes the kernel matrix of all rows where folds share one. `FoldRows` makes one for every
training set, where steps of a Pipeline or gamma depend on it. Rows and base matrices that further
kernels need are kept in the cache of the data.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from sklearn.utils import get_tags

from everyfold._typing import Array, Index, Matrix
from everyfold.adapters.pipelines import (
    plain_numbers,
    prepare_fold,
    prepare_once,
    read_rows,
    scale_fold,
)
from everyfold.adapters.sklearn import is_ours
from everyfold.engine.records import Candidate, Data
from everyfold.kernels import Kernel, check_precomputed
from everyfold.kernels.precomputed import largest_entry, noise_of
from everyfold.operators import Structure, SupportsResponse
from everyfold.operators.base import SupportsMatmul, SupportsSplit, TrainTestKernel, require

# Base matrices by their name and their rows.
Bases = dict[Hashable, Array]


def rows_of(data: Data, candidate: Candidate) -> Matrix:
    """All rows as a candidate's kernel sees them, where every fold has the same.

    Steps of a Pipeline are fitted on all rows, once for all candidates with the same steps.
    """
    steps = candidate.parts.steps
    key = "rows", candidate.rows_key, candidate.model.choice.is_precomputed
    kept = data.cache.get(key)
    if kept is None:
        X = _prepared(data, candidate) if steps else data.X
        if steps or data.is_raw:
            takes_any = candidate.model.choice.takes_any_rows
            X = read_rows(X, candidate.parts.final, takes_any=takes_any)
        if candidate.model.choice.is_precomputed:
            X = check_precomputed(X, _before(data, candidate))
        kept = (X,)
        data.cache.put(key, X)
    return kept[0]


def _prepared(data: Data, candidate: Candidate) -> Matrix:
    """All rows by steps fitted on all of them; the planner may have made them already."""
    made = data.cache.get(("prepared", candidate.rows_key))
    return prepare_once(candidate.parts.steps, data.X) if made is None else made[0]


def _before(data: Data, candidate: Candidate) -> float:
    """The largest entry of the kernel matrix that steps get, which their rounding goes with.

    0 if they get none, and for the library's own machines, whose ``fit`` knows no matrix of before
    and refuses what is not symmetric.
    """
    steps = candidate.parts.steps
    if not steps or is_ours(candidate.parts.final):
        return 0.0
    is_kernel: bool = get_tags(steps[0].transformer).input_tags.pairwise
    return largest_entry(data.X) if is_kernel else 0.0


def bind(
    data: Data,
    candidate: Candidate,
    structure: Structure,
    shared: frozenset[str],
    *,
    is_pass: bool = False,
) -> SupportsMatmul:
    """The operator of a candidate's kernel on all rows.

    ``shared`` names the base matrices that further kernels are made of and that are kept for them.
    In a pass over the rows features are made batch by batch.
    """
    X = rows_of(data, candidate)
    kernel = candidate.model.choice.resolve(X)
    if is_pass:
        found = structure.bind_rows(kernel, X)
        data.cache.put(("map", candidate.kernel_key), found)
        return found
    if kernel.base not in shared or not structure.needs_base:
        return structure.bind(kernel, X)
    key = "base", kernel.base, candidate.rows_key
    kept = data.cache.get(key)
    if kept is None:
        kept = (kernel.base_matrix(X, None),)
        data.cache.put(key, *kept)
    return structure.bind_shared(kernel, X, kept[0])


@dataclass(frozen=True)
class FoldRows(SupportsSplit):
    """A kernel that every training set has for itself.

    Its rows are transformed by steps fitted on them, or its gamma is chosen by them. Rows are kept
    for further kernels of the same folds; base matrices only for those of one unit (``bases``).
    """

    data: Data
    candidate: Candidate
    structure: Structure
    shared: frozenset[str] = frozenset()
    bases: Bases = field(default_factory=dict)
    made: list[tuple[int, float, bool]] = field(default_factory=list)
    """Of each kernel so far its rank, what it leaves unexplained, whether it is the identity."""

    @property
    def n(self) -> int:  # type: ignore[override]  # an attribute of other operators
        """The number of rows."""
        return self.data.n

    @property
    def rank(self) -> int:
        """The largest of the kernels so far."""
        return max((rank for rank, _, _ in self.made), default=0)

    @property
    def residual_trace(self) -> float:  # type: ignore[override]  # a constant elsewhere
        """The most that one of the kernels so far leaves unexplained."""
        return max((residual for _, residual, _ in self.made), default=0.0)

    @property
    def is_identity(self) -> bool:  # type: ignore[override]  # a constant elsewhere
        """Whether all kernels so far are the identity."""
        return bool(self.made) and all(is_identity for _, _, is_identity in self.made)

    @property
    def words(self) -> str:  # type: ignore[override]  # a constant elsewhere
        """See base class."""
        is_low_rank = self.structure.is_approximate and self.rank < self.n
        return f"rank {self.rank} for each fold" if is_low_rank else super().words

    def split(self, train: Index, test: Index) -> TrainTestKernel:
        """See base class."""
        X_train, X_test, key = self.rows(train, test)
        model = self.candidate.model
        noise = 0.0
        if model.choice.is_precomputed:
            noise = noise_of(X_train) if self._before else 0.0
            X_train = check_precomputed(X_train, self._before)
        kernel = model.choice.resolve(X_train)
        if kernel.base not in self.shared or not self.structure.needs_base:
            bound = self.structure.bind(kernel, X_train)
        else:
            base = self._base(kernel, X_train, None, (key, "train"))
            bound = self.structure.bind_shared(kernel, X_train, base)
        operator = require(bound, SupportsResponse)
        # The first kernel that is not the identity decides: the others need not be checked.
        is_identity = (not self.made or self.made[-1][2]) and operator.is_identity
        self.made.append((operator.rank, operator.residual_trace, is_identity))
        cross = self._cross(kernel, operator, X_train, X_test, key)
        return TrainTestKernel(train, test, operator, cross, noise)

    def rows(self, train: Index, test: Index) -> tuple[Matrix, Matrix, Hashable]:
        """The rows of a fold as the kernel sees them, and a key for them."""
        key = "fold", self.candidate.rows_key, train.tobytes(), test.tobytes()
        kept = self.data.cache.get(key)
        if kept is None:
            steps = self.candidate.parts.steps
            if steps:
                kept = self._scaled(train, test)
                if kept is None:
                    takes_any, y = self.candidate.model.choice.takes_any_rows, self.data.y
                    kept = prepare_fold(steps, self.data.X, y, train, test, takes_any=takes_any)
            else:
                rows, kept = rows_of(self.data, self.candidate), (train, test)
                if self.candidate.model.choice.is_precomputed:  # the columns of the training rows
                    kept = np.ix_(train, train), np.ix_(test, train)
                kept = rows[kept[0]], rows[kept[1]]
            self.data.cache.put(key, *kept)
        return kept[0], kept[1], key

    def _scaled(self, train: Index, test: Index) -> tuple[Matrix, Matrix] | None:
        """The rows of a fold scaled, where that is all that the steps do; None if it is not."""
        parts, choice = self.candidate.parts, self.candidate.model.choice
        if parts.lone_scaler is None or choice.is_precomputed or choice.takes_any_rows:
            return None
        kept = self.data.cache.get("numbers")
        if kept is None:
            kept = (plain_numbers(self.data.X),)
            self.data.cache.put("numbers", *kept)
        return None if kept[0] is None else scale_fold(parts.lone_scaler, kept[0], train, test)

    @cached_property
    def _before(self) -> float:
        return _before(self.data, self.candidate)

    def _cross(
        self,
        kernel: Kernel,
        operator: SupportsResponse,
        X_train: Matrix,
        X_test: Matrix,
        key: Hashable,
    ) -> Array:
        if not X_test.shape[0]:
            return np.empty((0, operator.n))
        if kernel.base in self.shared and self.structure.needs_base:
            return kernel.from_base(self._base(kernel, X_test, X_train, (key, "test")))
        return operator.link(X_test)

    def _base(self, kernel: Kernel, X: Matrix, Y: Matrix, key: Hashable) -> Array:
        name = kernel.base, key
        if name not in self.bases:
            self.bases[name] = kernel.base_matrix(X, Y)
        return self.bases[name]

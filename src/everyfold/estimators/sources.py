"""Models that are fitted to a source of rows: which ones can be, and their sums over its blocks.

Kernel ridge models with a low-rank kernel follow from sums over rows, so that one pass suffices.
Other smooth losses take several (``newton_passes.py``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import add, or_

import numpy as np

from everyfold._progress import report_share
from everyfold._typing import AnyArray, Array, Estimator, Index, Matrix, Targets
from everyfold.estimators.model import Model
from everyfold.estimators.targets import Labels, Numbers, Target
from everyfold.io import Block, RowSource
from everyfold.io.base import Result, is_lazy
from everyfold.io.blocks import Batch, by_fold, rows_at_a_time
from everyfold.io.dask import lazily
from everyfold.io.fold_rules import FoldRule
from everyfold.io.samples import Few, Sampled
from everyfold.linalg.blas import lone_blas
from everyfold.linalg.memory import sample_rows
from everyfold.operators import FeatureMap, Mapped, Nystrom, Primal
from everyfold.operators.gram import FoldSums, Start, accumulate


def check_model(model: Model) -> None:
    """Refuse what needs all rows at once."""
    ridges, choice = model.ridges, model.choice
    is_read = model.operator == "auto" or model.structure_for_any().reads_sources
    for is_wrong, what, instead in (
        (
            not model.loss.is_smooth,
            f"loss={model.loss} is not smooth, and its dual needs all rows at once",
            "HuberSVC or LSSVC (for regression KernelRegressor(loss='smooth_epsilon'))",
        ),
        (
            model.is_binary,
            "solver='liblinear' penalises the intercept",
            "another solver of LogisticRegression",
        ),
        (
            model.warp is not None,
            "TransformedTargetRegressor looks at the targets of each training set together",
            "its regressor, with y transformed beforehand",
        ),
        (
            model.voting is not None,
            "multi_class='ovo' fits each pair of classes to rows of its own",
            "'ovr'",
        ),
        (
            choice.depends_on_rows,
            f"gamma={choice.gamma!r} depends on the training rows of each fold",
            "a number",
        ),
        (len(ridges) > 1, "alpha has several entries", "one number"),
        (
            ridges[0] <= 0.0,
            f"alpha={ridges[0]:g} can make the linear systems singular",
            "a number > 0",
        ),
        (choice.is_precomputed, "kernel='precomputed' has no rows to read", "another kernel"),
        (not is_read, f"operator={model.operator!r} needs all rows at once", "Nystrom(...)"),
    ):
        if is_wrong:
            raise ValueError(f"{what}; for a source of rows use {instead}")


def structure_of(model: Model) -> Mapped:
    """How the kernel of rows that are never all in memory is represented."""
    if isinstance(model.operator, Mapped):
        return model.operator
    return Primal() if model.choice.kernel == "linear" else Nystrom(random_state=model.seed)


def choose_map(model: Model, rows: Sampled, most_rows: int | None = None) -> FeatureMap:
    """The map from rows to features; the number of rows must be known.

    ``most_rows`` may be held for it at a time; as many as memory allows if None.
    """
    kernel = model.choice.resolve(np.zeros((1, rows.n_features)))
    structure, n, d = structure_of(model), rows.n_rows or 0, rows.n_features
    most = most_rows or sample_rows(d, structure.raw_width_for(n, d))
    return structure.feature_map(kernel, Few(rows, most))


@dataclass(frozen=True)
class Reader:
    """From blocks to targets: numbers, or the labels of ``classes``.

    Attributes
    ----------
    classes : array of shape (k,) or None
    factors : array of shape (k,) or None
        Weights of the classes.
    has_log_odds : bool
        Whether values of models are log-odds.
    """

    classes: AnyArray | None = None
    factors: Array | None = None
    has_log_odds: bool = False

    @property
    def sample(self) -> AnyArray:
        """Dummy targets, used to find metrics."""
        return np.zeros(2) if self.classes is None else self.classes

    def target(self, y: Targets) -> Target:
        """The target of some rows."""
        if self.classes is None:
            return Numbers.read(y)
        codes = np.asarray(np.searchsorted(self.classes, np.asarray(y)), dtype=np.intp)
        labels = Labels.coded(self.classes, codes)
        return replace(labels, has_probabilities=True) if self.has_log_odds else labels

    def weights(self, block: Block, target: Target) -> Array | None:
        """The weights of a block's rows; None if all are 1."""
        if self.factors is None or not isinstance(target, Labels):
            return block.sample_weight
        factors: Array = self.factors[target.codes]
        return factors if block.sample_weight is None else factors * block.sample_weight


def read_source(source: RowSource, model: Model) -> Reader:
    """A reader of the source's targets; classes take a pass, as do rows of an unknown number."""
    if not source.has_target:
        raise ValueError(f"{source!r} has no target to learn from; name its column by target=...")
    if not model.is_classifier:
        if source.n_rows is None:
            for _ in source.blocks(rows_at_a_time(source.n_features)):
                pass
        return Reader()
    if model.class_weight == "balanced":
        raise ValueError(
            "class_weight='balanced' depends on the training rows of each fold, which a source of "
            "rows does not keep; pass a dict of weights"
        )
    found: set[Targets] = source.reduce(_labels, or_)
    classes = np.array(sorted(found))
    each = Labels.read(classes)  # raises what is wrong with them
    factors = None
    if model.class_weight is not None:
        factors = model.problems(each, np.ones(len(classes)))[0].w
    if model.is_joint and len(classes) > 2:
        raise ValueError(
            f"LogisticRegression fits {len(classes)} classes together, which a source of rows is "
            "not read for; use KernelLogisticClassifier(kernel='linear'), which fits each class "
            "against the rest"
        )
    return Reader(classes, factors, model.loss.has_log_odds)


def _labels(source: RowSource) -> set[Targets]:
    """The different labels of rows."""
    found: set[Targets] = set()
    for block in source.blocks(rows_at_a_time(source.n_features)):
        if np.ndim(block.y) != 1:
            raise ValueError("y of a classifier must be one column of labels")
        found.update(np.unique(block.y).tolist())
    return found


def reduced(
    source: RowSource,
    work: Callable[[RowSource], Result],
    merge: Callable[[Result, Result], Result],
    threads: int,
) -> Result:
    """What ``work`` makes of a source in so many threads, with one thread of BLAS in each."""
    with lone_blas(threads):
        return source.reduce(work, merge, threads)


@dataclass(frozen=True)
class View:
    """A map whose sums are taken in a pass.

    Attributes
    ----------
    features : FeatureMap
    start : Start
    fold : int or None
        The fold that it is for; None if it is for all.
    """

    features: FeatureMap
    start: Start
    fold: int | None = None


@dataclass(frozen=True)
class Pass:
    """What a pass over rows has found; ``+`` is for passes over different rows.

    Attributes
    ----------
    sums : list of FoldSums
        Those of every view.
    is_weighted : bool
        Whether the source has weights.
    is_flat : bool
        Whether its y has one axis.
    """

    sums: list[FoldSums]
    is_weighted: bool = False
    is_flat: bool = True

    def __add__(self, other: Pass) -> Pass:
        sums = [one + two for one, two in zip(self.sums, other.sums, strict=True)]
        return Pass(sums, self.is_weighted, self.is_flat)


@dataclass(frozen=True)
class FoldedBlocks:
    """How blocks of rows are read in a pass: their targets, their folds, and how many at a time."""

    reader: Reader
    rule: FoldRule
    height: int

    def folded(self, source: RowSource) -> Iterator[tuple[Block, Index]]:
        """Every block with the folds of its rows; says how far the pass is after each."""
        for block in source.blocks(self.height):
            yield block, self.rule.numbers(block)
            if source.n_rows:
                report_share(min(1.0, (block.start + len(block)) / source.n_rows))


@dataclass(frozen=True)
class Summing(FoldedBlocks):
    """One pass over a source: how its rows are read, and what is summed of them."""

    views: Sequence[View]

    def over(self, source: RowSource, threads: int = 1) -> Pass:
        """The sums of every view, from one pass."""
        found: Pass = reduced(source, self, add, threads)
        if not any(part.count for part in found.sums[0].parts.values()):
            raise ValueError(
                "the weight (sample_weight, times class_weight) is zero for every row of the "
                "source; at least one must be positive"
            )
        # The sums of raw columns become those of features by the matrix T of the map.
        mixing = [view.features.T if view.start.is_raw else None for view in self.views]
        whole = [replace(sums, T=T) for sums, T in zip(found.sums, mixing, strict=True)]
        return replace(found, sums=whole)

    def __call__(self, source: RowSource) -> Pass:
        """The sums over rows that are here."""
        seen: dict[str, bool] = {}
        maps, starts = [view.features for view in self.views], [view.start for view in self.views]
        owners = [view.fold for view in self.views]
        sums = accumulate(self._batches(source, seen), maps, starts, owners)
        # What mixes them is known to who asked, and need not travel with them.
        return Pass([replace(found, T=None) for found in sums], **seen)

    def _batches(self, source: RowSource, seen: dict[str, bool]) -> Iterator[Batch]:
        """The rows in batches, sorted by fold."""
        for block, numbers in self.folded(source):
            seen |= {"is_weighted": block.sample_weight is not None, "is_flat": block.y.ndim == 1}
            target = self.reader.target(block.y)
            X, z, w = block.X, target.columns, self.reader.weights(block, target)
            order, sets = by_fold(numbers)
            if order is not None:
                X, z, w = X[order], z[order], None if w is None else w[order]
            yield Batch(X, z, w, sets)


def answers(work: Callable[[Matrix], AnyArray], X: Matrix, fitted: Estimator) -> AnyArray:
    """What ``work`` of a fitted estimator makes of rows, whatever they are in.

    Rows of a source are taken block by block; of a collection of Dask, the answer is one.
    """
    if isinstance(X, RowSource):
        return in_blocks(work, X, fitted)
    return lazily(work, X) if is_lazy(X) else work(X)


def in_blocks(work: Callable[[Matrix], AnyArray], source: RowSource, fitted: Estimator) -> AnyArray:
    """What ``work`` of a fitted estimator makes of all rows of a source, block by block.

    **Cost**: one pass, and memory for a block and for what is made of all.
    """
    known = getattr(fitted, "feature_names_in_", None)
    if known is not None and source.names is not None and list(known) != list(source.names):
        raise ValueError(
            f"{source!r} has the features {list(source.names)}, but the model was fitted to "
            f"{list(known)}; name them in that order by features=..."
        )
    if source.n_features != fitted.n_features_in_:
        raise ValueError(
            f"{source!r} has {source.n_features} features, but {type(fitted).__name__} is "
            f"expecting {fitted.n_features_in_} features as input"
        )
    with warnings.catch_warnings():
        # Blocks are arrays; the names are those of the source.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        blocks = source.blocks(rows_at_a_time(source.n_features))
        return np.concatenate([work(block.X) for block in blocks])

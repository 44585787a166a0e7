"""The data of a search whose rows come in blocks: how they are read, their folds and scorers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from everyfold._sklearn_private import MultimetricScorer
from everyfold._typing import Array, ErrorScore, Scorer
from everyfold.adapters.pipelines import freeze
from everyfold.adapters.scaling import ScaledRows, scaler_of, scaling_of
from everyfold.engine.planning.costs import SummedKernel
from everyfold.engine.planning.units import gather
from everyfold.engine.records import Candidate, Data, Outcome
from everyfold.engine.scoring.fold_scorers import by_name
from everyfold.engine.scoring.metrics import Metric, find_metric
from everyfold.estimators.base import SourceFit
from everyfold.estimators.sources import Reader, View, choose_map, reduced, structure_of
from everyfold.io import RowSource
from everyfold.io.base import Result
from everyfold.io.blocks import height_of
from everyfold.io.fold_rules import FoldRule
from everyfold.io.moments import FoldMoments
from everyfold.operators import FeatureMap, Mapped
from everyfold.operators.features import Standardised
from everyfold.operators.gram import Start

# Folds that costs and memory are estimated with where only a pass over the rows shows how many
# there are: a usual number.
_ASSUMED_FOLDS = 10


@dataclass(frozen=True, kw_only=True)
class BlockKernel(SummedKernel):
    """A kernel with its candidates, and the sizes that costs depend on."""

    members: Sequence[Candidate]

    @property
    def structure(self) -> Mapped:
        """How it is represented."""
        return structure_of(self.members[0].model)


class PassNotes:
    """Keeps what the passes of a unit found, so that a search that is repeated goes on from there.

    This one keeps nothing, and so does any in another process.
    """

    def kept(self, number: int, work: Callable[[], list[list[Array]]]) -> list[list[Array]]:
        """What the pass of a number found, done if that is not known."""
        return work()

    def of_unit(self, key: str) -> PassNotes:
        """The notes of a unit."""
        return self

    def __reduce__(self) -> tuple[type[PassNotes], tuple[()]]:
        return PassNotes, ()


@dataclass(frozen=True, kw_only=True)
class SourceData(Data):
    """The data of a search whose rows are a source, read block by block in every pass.

    Attributes
    ----------
    source : RowSource
    reader : Reader
    rule : FoldRule
    scorer : callable or None
        None if held-out values are asked for.
    error_score : "raise" or float
    moments : FoldMoments, optional
        Of the rows of every fold, where any candidate has a scaler in front of its model.
    kind : {"none", "per_fold", "once"}
        Whose rows scalers are fitted to: the training rows of each fold, or all.
    has_journal : bool
        Whether finished passes are kept, so that long ones are better cut.
    threads : int
        That work on the blocks of a pass, here.
    notes : PassNotes
        What keeps the finished passes of units that take several.
    best_by : str or None
        The score by which only the best candidate of a kernel gets the model of all rows as well.
    """

    source: RowSource
    reader: Reader
    rule: FoldRule
    scorer: Scorer
    error_score: ErrorScore
    moments: FoldMoments | None = None
    kind: str = "none"
    has_journal: bool = False
    threads: int = 1
    notes: PassNotes = field(default_factory=PassNotes, compare=False)
    best_by: str | None = None

    in_memory = False

    @property
    def n_folds(self) -> int:
        """How many folds to reckon with: as many as there are, or a usual number."""
        if self.moments is not None:
            return len(self.moments.folds)
        known = self.rule.n_folds
        return _ASSUMED_FOLDS if known is None else known

    def folds_of(self, number: int) -> None:
        """See base class: a pass has all folds of its candidates."""

    @property
    def folding(self) -> FoldRule:
        """See base class."""
        return self.rule

    def prepared(self, kind: str, pooled: tuple[str, ...] = ()) -> SourceData:
        """See base class; scores are never pooled."""
        return replace(self, kind=kind)

    def is_per_fold(self, candidate: Candidate) -> bool:
        """Whether every fold scales the rows of a candidate by means and variances of its own."""
        return self.kind == "per_fold" and bool(candidate.parts.steps)

    def views(self, members: Sequence[Candidate], most_rows: int) -> list[View]:
        """The maps of one kernel: one for all folds, or one for each that scales for itself.

        Landmarks are drawn from all rows, scaled by what is known of all; each fold then scales
        those same rows by what it knows. ``most_rows`` are held for that at a time.
        """
        first, source = members[0], self.source
        scaler = scaler_of(first.parts)
        if scaler is None or self.moments is None:
            features = choose_map(first.model, source, most_rows)
            self.cache["map", first.kernel_key] = (features,)
            return [self._view(features, members)]
        whole = scaling_of(scaler, self.moments.total)
        features = choose_map(first.model, ScaledRows(source, whole), most_rows)
        # The map that is summed takes rows as they are in the source, and scales them itself.
        if not self.is_per_fold(first):
            return [self._view(Standardised.of(features, whole), members)]
        found = []
        for fold in self.moments.folds:
            own = scaling_of(scaler, self.moments.rest(fold))
            scaled = Standardised.of(features.rescaled(whole, own), own)
            found.append(self._view(scaled, members, fold))
        return found

    def _view(
        self, features: FeatureMap, members: Sequence[Candidate], fold: int | None = None
    ) -> View:
        rho = min(m.model.ridges[0] for m in members)
        start = Start.of(features, rho, self.n, intercept=members[0].model.intercept)
        return View(features, start, fold)

    @cached_property
    def kernels(self) -> list[BlockKernel]:
        """The candidates by kernel."""
        found = gather(
            self.candidates.values(),
            lambda c: (freeze(c.model.loss), c.kernel_key, c.model.intercept),
        )
        return [self._kernel(members) for members in found]

    def _kernel(self, members: Sequence[Candidate]) -> BlockKernel:
        width = structure_of(members[0].model).raw_width_for(self.n, self.source.n_features)
        maps = self.n_folds if self.is_per_fold(members[0]) else 1
        return BlockKernel(width=width, ridges=len(members), maps=maps, members=members)

    @property
    def widest(self) -> int:
        """The most numbers that are summed of a row, and the size of what is factorised."""
        return max(kernel.width for kernel in self.kernels)

    @property
    def height(self) -> int:
        """How many rows to read at a time: the same in all passes, however these were cut."""
        return height_of(max(self.source.n_features, self.widest))

    @property
    def metrics(self) -> dict[str, Metric | None]:
        """The scorers as arithmetic on folds, None where scikit-learn must be asked."""
        target = self.reader.target(self.reader.sample)
        known = {} if self.scorer is None else by_name(self.scorer)
        return {name: find_metric(scorer, target) for name, scorer in known.items()}

    @property
    def takes_weights(self) -> bool:
        """Whether scikit-learn would hand weights of rows on: if any scorer takes them."""
        scorers = {} if self.scorer is None else by_name(self.scorer)
        asked = [getattr(own, "_accept_sample_weight", None) for own in scorers.values()]
        return any(accepts is not None and accepts() for accepts in asked)

    @property
    def is_multimetric(self) -> bool:
        """Whether every fold has several scores."""
        return isinstance(self.scorer, MultimetricScorer)

    def reduce(
        self, work: Callable[[RowSource], Result], merge: Callable[[Result, Result], Result]
    ) -> Result:
        """What ``work`` makes of one pass over the rows, where they are; see `RowSource.reduce`."""
        return reduced(self.source, work, merge, self.threads)


def kept_fit(data: Data, outcome: Outcome) -> SourceFit | None:
    """The fit of a candidate to all rows, if passes over them gave it in this process."""
    candidate = data.candidates[outcome.number]
    key = "map", candidate.kernel_key
    if outcome.whole is None or key not in data.cache or (data.in_memory and candidate.parts.steps):
        return None
    (features,), (coef, intercept, is_flat) = data.cache[key], outcome.whole
    reader = data.reader if isinstance(data, SourceData) else Reader()
    return SourceFit(features.expand(coef), intercept, reader, is_flat)

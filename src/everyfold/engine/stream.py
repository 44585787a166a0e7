"""A source of rows as a search sees it: how it is read, its folds and scorers, and its kernels.

A `Stream` takes the place of the arrays of a search; `PassKernel` has what one pass found about a
kernel, and `Predictor` is the part of it that is sent to where rows are predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from everyfold._typing import Array, ErrorScore, Index, Params, Score
from everyfold.adapters.scaling import ScaledRows, scaler_of, scaling_of
from everyfold.engine.records import Candidate
from everyfold.engine.scoring.metrics import Metric, find_metric, is_of_sums
from everyfold.estimators.sources import Reader, View, choose_map
from everyfold.io import RowSource
from everyfold.io.fold_rules import FoldRule
from everyfold.io.moments import FoldMoments
from everyfold.operators import FeatureMap
from everyfold.operators.features import Standardised
from everyfold.operators.gram import FoldErrors, FoldSums, Start, Sums
from everyfold.operators.response import RidgeModels

# Folds that costs and memory are estimated with where only a pass over the rows shows how many
# there are: a usual number.
_ASSUMED_FOLDS = 10


@dataclass(frozen=True)
class Stream:
    """A source of rows, how its targets and folds are read, and its scorers.

    Attributes
    ----------
    source : RowSource
    reader : Reader
    rule : FoldRule
    scorers : dict
        By name; none if held-out values are asked for.
    is_multimetric : bool
    error_score : "raise" or float
    moments : FoldMoments, optional
        Of the rows of every fold, where any candidate has a scaler in front of its model.
    kind : {"none", "per_fold", "once"}
        Whose rows scalers are fitted to: the training rows of each fold, or all.
    has_journal : bool
        Whether finished passes are kept, so that long ones are better cut.
    threads : int
        That work on the blocks of a pass, here.
    """

    source: RowSource
    reader: Reader
    rule: FoldRule
    scorers: Params
    is_multimetric: bool
    error_score: ErrorScore
    moments: FoldMoments | None = None
    kind: Literal["none", "per_fold", "once"] = "none"
    has_journal: bool = False
    threads: int = 1

    @cached_property
    def n_folds(self) -> int:
        """How many folds to reckon with: as many as there are, or a usual number."""
        if self.moments is not None:
            return len(self.moments.folds)
        known = self.rule.n_folds
        return _ASSUMED_FOLDS if known is None else known

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
            return [self._view(choose_map(first.model, source, most_rows), members)]
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
        rho, n = min(m.model.ridges[0] for m in members), self.source.n_rows or 1
        start = Start.of(features, rho, n, intercept=members[0].model.intercept)
        return View(features, start, fold)

    @property
    def metrics(self) -> dict[str, Metric | None]:
        """The scorers as arithmetic on folds, None where scikit-learn must be asked."""
        target = self.reader.target(self.reader.sample)
        return {name: find_metric(scorer, target) for name, scorer in self.scorers.items()}

    @property
    def is_one_pass(self) -> bool:
        """Whether scores should follow from sums alone."""
        is_of_numbers = self.reader.classes is None and bool(self.scorers)
        return is_of_numbers and all(map(is_of_sums, self.metrics.values()))

    def pack(self, scores: dict[str, float]) -> Score:
        """The scores of a fold as scikit-learn gives them."""
        return scores if self.is_multimetric else scores["score"]


@dataclass(frozen=True)
class Predictor:
    """What predicts held-out rows: a map, and the models of the folds that it is for.

    Models are those of the map's raw columns; plain data, as it may be sent elsewhere.
    """

    features: FeatureMap
    models: dict[int, RidgeModels]

    def put(self, values: Array, X: Array, numbers: Index) -> None:
        """Write the values of rows by the models of their folds, (ridges, rows, q)."""
        folds = [fold for fold in np.unique(numbers).tolist() if fold in self.models]
        if not folds:
            return
        mine = np.flatnonzero(np.isin(numbers, folds))
        C, own = self.features.raw(X[mine]), numbers[mine]
        for fold in folds:
            rows = np.flatnonzero(own == fold)
            values[:, mine[rows]] = self.models[fold].values(C[rows])


@dataclass(frozen=True)
class PassKernel:
    """A kernel in a pass: its candidates, its views, their sums, and the models of every fold."""

    members: Sequence[Candidate]
    views: Sequence[View]
    sums: Sequence[FoldSums]
    models: dict[int, RidgeModels]

    @property
    def parts(self) -> dict[int, Sums]:
        """The sums over the rows of every fold."""
        return {fold: sums.parts[fold] for sums in self.sums for fold in sums.folds}

    @property
    def count(self) -> int:
        """The number of rows with positive weight."""
        return sum(part.count for part in self.sums[0].parts.values())

    @property
    def features(self) -> FeatureMap:
        """The map, or one of them."""
        return self.views[0].features

    def errors(self) -> FoldErrors | None:
        """The errors of every fold's models on its own rows; None if they lost their digits."""
        found = []
        for sums in self.sums:
            of_view = sums.errors({fold: self.models[fold] for fold in sums.folds})
            if of_view is None:  # a second pass computes them from values
                return None
            found.append(of_view)
        return found[0] if len(found) == 1 else FoldErrors.joined(found)

    def predictors(self) -> list[Predictor]:
        """What predicts held-out rows."""
        return [
            Predictor(
                view.features,
                {fold: self.models[fold].of_raw(view.features.T) for fold in sums.folds},
            )
            for view, sums in zip(self.views, self.sums, strict=True)
        ]

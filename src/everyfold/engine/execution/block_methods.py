"""How the models of every fold are found where rows come in blocks: a class for each method.

A method reads all rows in passes, for several kernels and all folds at a time, and gives the models
of every fold. To predict held-out rows with them, and to score them, is the same for all methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from everyfold._progress import reporting_share_of, reporting_to
from everyfold._typing import Array, Index, Mask, Score
from everyfold.crossval.base import Failure
from everyfold.engine.planning.costs import (
    Cost,
    newton_bytes,
    newton_passes,
    source_pass,
    sums_bytes,
)
from everyfold.engine.records import Candidate
from everyfold.engine.scoring.fold_scorers import FoldScores
from everyfold.engine.scoring.metrics import (
    Metric,
    ScoredRows,
    is_mean,
    is_of_sums,
    score_errors,
)
from everyfold.engine.source_data import BlockKernel, SourceData
from everyfold.estimators.model import Model
from everyfold.estimators.newton_passes import (
    MOST_PASSES,
    FirstPass,
    Held,
    MapFit,
    Sampling,
    Setting,
    are_minima,
    choose_sample,
    holding,
    holds_features,
    minimise,
    usual_passes,
)
from everyfold.estimators.sources import FoldedBlocks, Summing, View
from everyfold.estimators.targets import Target
from everyfold.io import StreamError
from everyfold.io.cluster import ClusterError
from everyfold.operators import FeatureMap, StructureError
from everyfold.operators.gram import FoldErrors, FoldSums
from everyfold.operators.response import RidgeModels
from everyfold.solvers import DidNotConvergeError

# Why candidates have no models, by number.
Failures = dict[int, Failure]


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
class BlockModels:
    """What passes have found about a kernel: the models of every fold for all of its candidates.

    Attributes
    ----------
    members : sequence of Candidate
    views : sequence of View
        The maps from rows to features: one for all folds, or one for each.
    models : dict
        By fold, those of the features of its map.
    rows : dict
        By fold, how many rows it holds out.
    count : int
        The number of rows with positive weight.
    is_weighted : bool
        Whether the source has weights.
    """

    members: Sequence[Candidate]
    views: Sequence[View]
    models: dict[int, RidgeModels]
    rows: dict[int, int]
    count: int
    is_weighted: bool

    @property
    def remark(self) -> str:
        """What is to be said of how they were found, in words."""
        return ""

    @property
    def features(self) -> FeatureMap:
        """The map, or one of them."""
        return self.views[0].features

    def scores(self, data: SourceData) -> list[Sequence[Score]] | None:
        """Those of every candidate, if they are known; None if a pass with the models tells."""
        return None

    def whole(self, data: SourceData, k: int) -> tuple[Array, Array, bool] | None:
        """The model of all rows of one candidate, see `Outcome`; None if it takes a fit."""
        return None

    def predictors(self) -> list[Predictor]:
        """What predicts held-out rows."""
        return [
            Predictor(
                view.features,
                {
                    fold: models.of_raw(view.features.T)
                    for fold, models in self.models.items()
                    if view.fold in (None, fold)
                },
            )
            for view in self.views
        ]


# A kernel to be fitted: its candidates, and its maps.
MappedKernel = tuple[Sequence[Candidate], Sequence[View]]


class BlockMethod(ABC):
    """A method of cross-validation for rows that come in blocks."""

    @abstractmethod
    def takes(self, model: Model) -> bool:
        """Whether it is one for such models."""

    @abstractmethod
    def knows_scores(self, data: SourceData) -> bool:
        """Whether its own passes should tell the scores, which else take one more."""

    @abstractmethod
    def words(self, *, knows_scores: bool) -> str:
        """How candidates are evaluated."""

    shares_passes = True
    """Whether several kernels are worth a pass together."""

    @abstractmethod
    def held_bytes(self, data: SourceData, kernel: BlockKernel) -> int:
        """What is held of a kernel throughout its passes."""

    @abstractmethod
    def cost(
        self, data: SourceData, kernels: Sequence[BlockKernel], sample: int, threads: int
    ) -> Cost:
        """What it takes for some kernels; ``sample`` rows are held to make their maps."""

    @abstractmethod
    def fit(
        self, data: SourceData, kernels: Sequence[MappedKernel], failures: Failures
    ) -> list[BlockModels]:
        """The models of some kernels, from passes over the blocks of the data.

        A candidate that fails does so alone, and its error is put among the failures.
        """


class SumsOverBlocks(BlockMethod):
    r"""Squared loss: the Gram matrices of every fold's rows from one pass, which add up.

    Notes
    -----
    **Cost** n c² + t (4/3 c³) flops for each kernel of c features, with t folds and any number of
    ridges. **Exact?** Yes, for the low-rank kernel.
    """

    def takes(self, model: Model) -> bool:
        """See base class."""
        return model.loss.has_constant_curvature

    def knows_scores(self, data: SourceData) -> bool:
        """See base class: where they follow from sums of errors."""
        is_of_numbers = data.reader.classes is None and data.scorer is not None
        return is_of_numbers and all(map(is_of_sums, data.metrics.values()))

    def words(self, *, knows_scores: bool) -> str:
        """See base class."""
        times = "one pass" if knows_scores else "two passes"
        return (
            f"sums over the rows of every fold in {times} over the source, one factorisation per "
            "fold; folds are exact for the low-rank kernel"
        )

    def held_bytes(self, data: SourceData, kernel: BlockKernel) -> int:
        """See base class: the sums of all folds."""
        return sums_bytes(kernel.width, data.n_folds)

    def cost(
        self, data: SourceData, kernels: Sequence[BlockKernel], sample: int, threads: int
    ) -> Cost:
        """See base class."""
        shape, passes = (data.n, data.source.n_features), 1 if self.knows_scores(data) else 2
        return source_pass(shape, kernels, data.n_folds, passes, sample, threads)

    def fit(
        self, data: SourceData, kernels: Sequence[MappedKernel], failures: Failures
    ) -> list[BlockModels]:
        """See base class."""
        every = [view for _, views in kernels for view in views]
        found = Summing(data.reader, data.rule, data.height, every).over(data.source, data.threads)
        left = iter(found.sums)
        fitted: list[BlockModels] = []
        for members, views in kernels:
            sums = [next(left) for _ in views]
            seen = found.is_weighted, found.is_flat
            fitted += _solved(data, members, views, sums, failures, seen)
        return fitted


class NewtonOverBlocks(BlockMethod):
    r"""Other smooth losses: gradients of all folds and ridges from every pass.

    Notes
    -----
    **Cost** 4 n c flops a pass for each of the models, in about nine passes, of hinges twenty.
    **Exact?** Up to a Newton decrement of ``STATIONARY`` relative to the size of the model, for the
    low-rank kernel.
    """

    shares_passes = False

    def takes(self, model: Model) -> bool:
        """See base class."""
        return model.loss.is_smooth

    def knows_scores(self, data: SourceData) -> bool:
        """See base class: where the score of a fold is the mean of those of its rows."""
        known = data.metrics.values()
        return bool(known) and all(metric is not None and is_mean(metric) for metric in known)

    def words(self, *, knows_scores: bool) -> str:
        """See base class."""
        more = "" if knows_scores else " and one more for the scores"
        return (
            "Newton steps of all folds and ridges at once, with the Hessian of a sample, each by a "
            f"pass over the rows{more}; folds are exact for the low-rank kernel"
        )

    def held_bytes(self, data: SourceData, kernel: BlockKernel) -> int:
        """See base class: the sample, its Hessians, the coefficients of all models, features."""
        is_held = _holds_features(data, kernel)
        return newton_bytes(data.n, kernel, data.n_folds, _columns_of(data), is_held=is_held)

    def cost(
        self, data: SourceData, kernels: Sequence[BlockKernel], sample: int, threads: int
    ) -> Cost:
        """See base class."""
        shape, q = (data.n, data.source.n_features), _columns_of(data)
        passes = usual_passes(kernels[0].members[0].model.loss) + (not self.knows_scores(data))
        sizes, is_held = (data.n_folds, q, passes), _holds_features(data, kernels[0])
        return newton_passes(shape, kernels, sizes, sample, threads, is_held=is_held)

    def fit(
        self, data: SourceData, kernels: Sequence[MappedKernel], failures: Failures
    ) -> list[BlockModels]:
        """See base class."""
        found: list[BlockModels] = []
        for members, views in kernels:
            with isolated(data, members, failures):
                found += _minimised(data, members, views, failures)
        return found


def _holds_features(data: SourceData, kernel: BlockKernel) -> bool:
    """Whether the features of all rows by the map of a kernel are held; of one map at most."""
    width, count = kernel.width, len(data.kernels)
    return kernel.maps == 1 and holds_features(data.source, data.n, width, count)


def _columns_of(data: SourceData) -> int:
    """How many columns of values a model has; as of one column where numbers may have more."""
    classes = data.reader.classes
    return 1 if classes is None or len(classes) == 2 else len(classes)


# The methods there are; a model is fitted by the first that takes it.
BLOCK_METHODS: tuple[BlockMethod, ...] = (SumsOverBlocks(), NewtonOverBlocks())


def block_method(model: Model) -> BlockMethod:
    """The method for a model."""
    return next(method for method in BLOCK_METHODS if method.takes(model))


class BadFoldsError(ValueError):
    """Folds that no kernel can be fitted on."""


@contextmanager
def isolated(data: SourceData, members: Sequence[Candidate], failures: Failures) -> Iterator[None]:
    """Keep an error as that of some candidates, unless it is of all or is to be raised."""
    try:
        yield
    except (MemoryError, StructureError, StreamError, ClusterError, BadFoldsError):
        raise
    except Exception as error:
        if data.error_score == "raise":
            raise
        failures |= dict.fromkeys((own.number for own in members), Failure.caught(error))


# -- squared loss ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _SummedModels(BlockModels):
    """Models from sums, which tell their squared errors as well."""

    sums: Sequence[FoldSums]
    is_flat: bool = True

    def whole(self, data: SourceData, k: int) -> tuple[Array, Array, bool] | None:
        """See base class: from the sums over all rows, where folds have one map."""
        if len(self.sums) > 1 or self.views[0].fold is not None:
            return None
        total = self.sums[0].total
        found = total.solve([_rho(self.members[k], total.count)])
        return found.coef[0], found.intercept[0], self.is_flat

    def scores(self, data: SourceData) -> list[Sequence[Score]] | None:
        """See base class; None as well if the errors lost their digits."""
        if data.reader.classes is not None or (self.is_weighted and not data.takes_weights):
            return None
        found = []
        for sums in self.sums:
            of_view = sums.errors({fold: self.models[fold] for fold in sums.folds})
            if of_view is None:
                return None
            found.append(of_view)
        errors = found[0] if len(found) == 1 else FoldErrors.joined(found)
        if not errors.weight.all():  # scikit-learn knows what weight 0 is worth
            return None
        table = score_errors(data.metrics, errors)
        if table is None:
            return None
        columns = [{name: s[:, k] for name, s in table.items()} for k in range(len(self.members))]
        return [FoldScores(own, data.is_multimetric) for own in columns]


def _solved(
    data: SourceData,
    members: Sequence[Candidate],
    views: Sequence[View],
    sums: Sequence[FoldSums],
    failures: Failures,
    seen: tuple[bool, bool],
) -> list[BlockModels]:
    """The models of a kernel; if a ridge has none, those of the other ridges one by one.

    ``seen`` says whether the source has weights, and a y of one axis.
    """
    failed: Failures = {}
    with isolated(data, members, failed):
        models: dict[int, RidgeModels] = {}
        for of_view in sums:
            models |= _fold_models(data, members, of_view)
        rows = {fold: of_view.parts[fold].rows for of_view in sums for fold in of_view.folds}
        count = sum(part.count for part in sums[0].parts.values())
        is_weighted, is_flat = seen
        return [_SummedModels(members, views, models, rows, count, is_weighted, sums, is_flat)]
    # One ridge of several failed, and it is not known which.
    if len(members) == 1:
        failures |= failed
        return []
    return [
        kernel for one in members for kernel in _solved(data, [one], views, sums, failures, seen)
    ]


_LEAVES_NOTHING = "cv: fold {} leaves no training rows with positive weight; use smaller folds"
NO_FOLDS = "cv has no folds: it holds out no row of the source; check the fold column"


def _fold_models(
    data: SourceData, members: Sequence[Candidate], sums: FoldSums
) -> dict[int, RidgeModels]:
    """The models of every fold for the candidates' ridges; refuses folds nothing is learnt from."""
    if not sums.folds:
        raise BadFoldsError(NO_FOLDS)
    total = sum(part.count for part in sums.parts.values())
    for fold in sums.folds:
        if sums.parts[fold].count == total:
            raise BadFoldsError(_LEAVES_NOTHING.format(fold))
    models = {}
    for fold, rest in sums.rests():
        if data.reader.classes is not None and _lacks_a_class(rest.middle):
            raise BadFoldsError(_LACKS_A_CLASS.format(fold))
        models[fold] = rest.solve([_rho(member, rest.count) for member in members])
    return models


def _rho(member: Candidate, count: int) -> float:
    """The ridge of a candidate for so many rows."""
    return member.model.ridges[0] * (count if member.model.ridge_scaling == "mean" else 1)


_LACKS_A_CLASS = (
    "cv: the training rows of fold {} lack a class (rows sorted by label?), or have it with weight "
    "0 only; give the source a fold column that mixes them, or use KFold(shuffle=True)"
)


def _lacks_a_class(mean: Array) -> bool:
    """Whether a class has no weight, given the mean of its targets of -1 and 1."""
    share = 0.5 * (1.0 + mean)
    # Two classes have one column, in which the second may be missing as well.
    return bool((share < 1e-12).any() or (len(share) == 1 and (share > 1 - 1e-12).any()))


# -- other smooth losses -----------------------------------------------------------------------


@dataclass(frozen=True)
class _MinimisedModels(BlockModels):
    """Models of a smooth loss, with the means of their scores where the passes have them."""

    means: dict[str, Array] | None = None
    """By metric, (folds, candidates)."""
    fit: MapFit | None = None
    """That of all folds, where they have one map."""
    first: FirstPass | None = None
    ridges: Index | None = None
    """The numbers of the candidates' ridges in the fit."""
    passes: int = 0
    held: Held = None

    @property
    def remark(self) -> str:
        """See base class."""
        return f" ({self.passes} passes)"

    def whole(self, data: SourceData, k: int) -> tuple[Array, Array, bool] | None:
        """See base class: some passes more, which begin at the mean of the models of the folds."""
        if self.fit is None or self.first is None or self.ridges is None:
            return None
        member = self.members[k]
        fit = self.fit.whole(int(self.ridges[k]), self.first, member.model.ridges[0])
        pattern = FoldedBlocks(data.reader, data.rule, data.height)

        def kept(number: int, work: Callable[[], list[list[Array]]]) -> list[list[Array]]:
            return data.notes.kept(MOST_PASSES + number, work)

        with reporting_to(None):
            minimise(data.source, [fit], pattern, (), data.threads, kept, self.held)
        if not are_minima(fit.errors):
            return None
        found = fit.models()[None]
        return found.coef[0], found.intercept[0], self.first.is_flat

    def scores(self, data: SourceData) -> list[Sequence[Score]] | None:
        """See base class."""
        if self.means is None:
            return None
        columns = [{m: s[:, k] for m, s in self.means.items()} for k in range(len(self.members))]
        return [FoldScores(own, data.is_multimetric) for own in columns]


@dataclass(frozen=True)
class _SumOf:
    """The sum over rows of a score that is a mean over them."""

    metric: Metric

    def __call__(self, target: Target, values: Array) -> float:
        side = ScoredRows(target, (np.arange(len(values)),))
        return float(self.metric(side, values).scores[0]) * len(values)


def _minimised(
    data: SourceData, members: Sequence[Candidate], views: Sequence[View], failures: Failures
) -> list[BlockModels]:
    """The models of a kernel; ridges whose models are not at their minima have none."""
    model = members[0].model
    parts = data.reader, data.rule, data.height
    width = max(view.features.raw_width for view in views)
    setting = Setting(model.loss, model.intercept, model.ridge_scaling == "mean")
    share = 1.0 / setting.usual_passes
    with reporting_share_of(0.0, share):
        rows = choose_sample(data.n, width)
        first = Sampling(*parts, rows).over(data.source, data.threads)
    _check_folds(first, is_of_classes=data.reader.classes is not None)
    ridges = [member.model.ridges[0] for member in members]
    fits = [
        MapFit.of(
            view.features, setting, first, ridges, first.folds if view.fold is None else [view.fold]
        )
        for view in views
    ]
    pattern, held = FoldedBlocks(*parts), None
    kernel = next(own for own in data.kernels if members[0] in own.members)
    if len(views) == 1 and _holds_features(data, kernel):
        held = holding(data.source, fits[0], pattern, data.threads)
    # With weights, scikit-learn's scorers decide what they do with them.
    is_known = block_method(model).knows_scores(data) and not first.is_weighted
    metrics = {name: m for name, m in data.metrics.items() if m is not None} if is_known else {}
    with reporting_share_of(share, 1.0):
        passes = minimise(
            data.source,
            fits,
            pattern,
            [_SumOf(metric) for metric in metrics.values()],
            data.threads,
            data.notes.kept,
            held,
        )
    errors = np.concatenate([fit.errors for fit in fits])
    is_well = np.array([are_minima(own) for own in errors.T])
    for k in np.flatnonzero(~is_well).tolist():
        error = DidNotConvergeError(
            f"the passes did not converge: the relative decrement is {errors[:, k].max():.1g}; use "
            "a smaller C (a larger alpha), or a larger h"
        )
        if data.error_score == "raise":
            raise error
        failures[members[k].number] = Failure.of(error)
    if not is_well.any():
        return []
    models: dict[int, RidgeModels] = {}
    for fit in fits:
        found = fit.models().items()
        models |= {fold: _some(own, is_well) for fold, own in found if fold is not None}
    sizes = {fold: int(first.counts[fold][0]) for fold in first.folds}
    means = None
    if metrics:
        sums = np.concatenate([fit.scores for fit in fits], axis=1)[:, :, is_well]
        rows_of = np.array([sizes[fold] for fold in first.folds])
        means = dict(zip(metrics, sums / rows_of[:, None], strict=True))
    kept = [member for member, well in zip(members, is_well, strict=True) if well]
    count = int(first.total[1])
    one = None if len(fits) > 1 or views[0].fold is not None else fits[0]
    more = means, one, replace(first, parts=[]), np.flatnonzero(is_well), passes + 1, held
    return [_MinimisedModels(kept, views, models, sizes, count, first.is_weighted, *more)]


def _some(models: RidgeModels, ridges: Mask) -> RidgeModels:
    """The models of some ridges."""
    return RidgeModels(models.coef[ridges], models.intercept[ridges], models.condition[ridges])


def _check_folds(first: FirstPass, *, is_of_classes: bool) -> None:
    """Refuse folds nothing is learnt from."""
    if not first.folds:
        raise BadFoldsError(NO_FOLDS)
    for fold in first.folds:
        rest = first.rest(fold)
        if rest[1] <= 0:
            raise BadFoldsError(_LEAVES_NOTHING.format(fold))
        share = rest[3:] / rest[2]
        if is_of_classes and _lacks_a_class(2.0 * share - 1.0):
            raise BadFoldsError(_LACKS_A_CLASS.format(fold))

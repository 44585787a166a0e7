"""Candidates on a source of rows that never fits in memory: sums in one pass, scores from them.

One pass for each batch of kernels gives every fold's model for every ridge. Squared errors and R²
follow from the same sums; other scores take a second pass.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from sklearn.base import is_classifier

from everyfold.criteria import BySums
from everyfold.evaluate.costs import COSTS, feature_seconds, landmark_seconds
from everyfold.evaluate.data import Candidate, Data, Outcome
from everyfold.evaluate.methods import Method, pass_bytes, sums_bytes
from everyfold.evaluate.plan import SearchPlan
from everyfold.evaluate.rounds import Once
from everyfold.evaluate.secondpass import held_out_values, score_values, scores_from_sums
from everyfold.evaluate.stream import Kernel, Stream
from everyfold.evaluate.tiles import Group, Unit, gather
from everyfold.models.model import Model
from everyfold.models.sources import Summing, View, structure_of
from everyfold.models.targets import Target
from everyfold.operators import FeatureMap
from everyfold.operators.memory import available_memory
from everyfold.operators.sums import FEW_RIDGES, FoldSums, RidgeModels
from everyfold.rows import RowSource
from everyfold.rows.batches import height_of
from everyfold.types import Array, Score

__all__ = ["plan_passes", "run_pass"]

Kind = Literal["none", "per_fold", "once"]

_SHARE_OF_MEMORY = 0.25
_MOST_BYTES = 1_000_000_000


# -- the plan ----------------------------------------------------------------------------------


def plan_passes(data: Data, kind: Kind, notes: Sequence[str]) -> SearchPlan:
    """Cut candidates on a source into passes: as many kernels each as memory allows."""
    stream = replace(data.stream, kind=kind)
    kernels = gather(data.candidates.values(), lambda c: (c.kernel_key, c.model.intercept))
    room = min(_MOST_BYTES, _SHARE_OF_MEMORY * available_memory())
    batches: list[list[list[Candidate]]] = [[]]
    taken = 0
    for members in kernels:
        needed = sums_bytes(_width(members[0].model, stream.source), stream.n_folds)
        if batches[-1] and taken + needed > room:
            batches.append([])
            taken = 0
        batches[-1].append(members)
        taken += needed
    units = [_unit(stream, batch) for batch in batches]
    methods = {id(method): method for unit in units for method in unit.methods}
    return SearchPlan(
        rows=stream.source.n_rows or 0,
        folds=stream.rule.n_folds or 0,
        kernels=len(kernels),
        ridges=max(len(members) for members in kernels),
        rounds=Once(units),
        kind=kind,
        estimate=sum(method.seconds for method in methods.values()),
        memory=max(method.memory for method in methods.values()),
        notes=(*_notes(data), *notes),
    )


def _notes(data: Data) -> tuple[str, ...]:
    """Say what is fitted in place of an estimator whose ``fit`` takes no source."""
    estimator = next(iter(data.candidates.values())).parts.final
    if hasattr(estimator, "_model"):
        return ()
    kind = "KernelClassifier" if is_classifier(estimator) else "KernelRegressor"
    return (
        f"{type(estimator).__name__} cannot be fitted to a source of rows; best_estimator_ is the "
        f"{kind} of the same model",
    )


def _unit(stream: Stream, batch: Sequence[Sequence[Candidate]]) -> Unit:
    widths = [_width(members[0].model, stream.source) for members in batch]
    method = Method(
        BySums(),
        _method_words(1 if stream.is_one_pass else 2),
        _estimate(stream, widths, batch),
        pass_bytes(widths, stream.n_folds),
        is_of_another_model=True,
    )
    groups = tuple((Group(tuple(c.number for c in members), method),) for members in batch)
    words = f"up to {max(widths)} {structure_of(batch[0][0].model).kind}"
    return Unit(groups, None, None, frozenset(), words, order="pass")


def _width(model: Model, source: RowSource) -> int:
    """How many numbers are summed of a row."""
    return structure_of(model).raw_width_for(source.n_rows or 0, source.n_features)


def _estimate(stream: Stream, widths: Sequence[int], batch: Sequence[Sequence[Candidate]]) -> float:
    """The seconds that the linear algebra should take, by what is known before any of it."""
    n, total = float(stream.source.n_rows or 0), 0.0
    for c, members in zip(widths, batch, strict=True):
        k, times = len(members), stream.n_folds if stream.is_per_fold(members[0]) else 1
        solve = k * COSTS.block_cholesky if k <= FEW_RIDGES else COSTS.cube_eigen
        total += landmark_seconds(n, c)
        total += times * feature_seconds(n, c, stream.source.n_features)
        total += times * 2 * COSTS.block_gram * n * c**2
        total += stream.n_folds * ((2 * COSTS.cube_gram + solve) * c**3 + k * COSTS.call)
        if not stream.is_one_pass:
            total += 2 * COSTS.stream * n * c + COSTS.cube_gram * n * c * k
    return total


def _method_words(passes: int) -> str:
    times = "one pass" if passes == 1 else "two passes"
    return (
        f"sums over the rows of every fold in {times} over the source, one eigendecomposition a "
        "fold; folds are exact for the low-rank kernel"
    )


# -- a pass ------------------------------------------------------------------------------------


def block_height(maps: Sequence[FeatureMap]) -> int:
    """How many rows to read at a time."""
    return height_of(max(features.raw_width for features in maps))


def run_pass(data: Data, unit: Unit) -> list[Outcome]:
    """The outcomes of all candidates of a pass."""
    stream, start = data.stream, time.perf_counter()
    members = [[data.candidates[k] for k in group.numbers] for (group,) in unit.groups]
    views = [stream.views(own) for own in members]
    every = [view for own in views for view in own]
    height = block_height([view.features for view in every])
    found = Summing(stream.reader, stream.rule, height, every).over(stream.source)
    left = iter(found.sums)
    kernels = [
        _kernel(stream, own, of_kernel, [next(left) for _ in of_kernel])
        for own, of_kernel in zip(members, views, strict=True)
    ]
    if not stream.scorers:
        return [_predicted(stream, kernels[0], height)]
    is_weighted = found.is_weighted
    scores, passes = scores_from_sums(stream, kernels, is_weighted=is_weighted), 1
    if scores is None:
        scores, passes = score_values(stream, kernels, height, is_weighted=is_weighted), 2
    seconds = (time.perf_counter() - start) / len(unit.numbers)
    return [
        _outcome(candidate.number, kernel, passes, seconds, [row[k] for row in of_kernel])
        for kernel, of_kernel in zip(kernels, scores, strict=True)
        for k, candidate in enumerate(kernel.members)
    ]


def _kernel(
    stream: Stream, members: Sequence[Candidate], views: Sequence[View], sums: Sequence[FoldSums]
) -> Kernel:
    models: dict[int, RidgeModels] = {}
    for of_view in sums:
        models |= _fold_models(stream, members, of_view)
    return Kernel(members, views, sums, models)


def _words(features: FeatureMap, model: Model) -> str:
    return f"{features.raw_width} {structure_of(model).kind}, rank {features.width}"


def _outcome(
    number: int,
    kernel: Kernel,
    passes: int,
    seconds: float,
    scores: list[Score],
    values: Array | None = None,
    target: Target | None = None,
) -> Outcome:
    parts = [kernel.parts[fold] for fold in sorted(kernel.models)]
    unknown = np.full(len(parts), np.nan)
    return Outcome(
        number,
        np.arange(len(parts)),
        scores,
        None,
        np.zeros(len(parts), dtype=bool),
        unknown,
        unknown,
        {},
        values,
        target,
        [part.rows for part in parts],
        kernel.count,
        (seconds, 0.0),
        _method_words(passes),
        _words(kernel.features, kernel.members[0].model),
        is_of_another_model=True,
    )


def _fold_models(
    stream: Stream, members: Sequence[Candidate], sums: FoldSums
) -> dict[int, RidgeModels]:
    """The models of every fold for the candidates' ridges."""
    _check_training(sums)
    models = {}
    for fold, rest in sums.rests():
        if stream.reader.classes is not None and _lacks_a_class(rest.middle):
            raise ValueError(
                f"cv: the training rows of fold {fold} lack a class (rows sorted by label?), or "
                "have it with weight 0 only; give the source a fold column that mixes them, or use "
                "KFold(shuffle=True)"
            )
        models[fold] = rest.solve(
            [
                m.model.ridges[0] * (rest.count if m.model.ridge_scaling == "mean" else 1)
                for m in members
            ]
        )
    return models


def _check_training(sums: FoldSums) -> None:
    """Refuse folds that leave nothing to learn from."""
    if not sums.folds:
        raise ValueError("cv has no folds: it holds out no row of the source")
    total = sum(part.count for part in sums.parts.values())
    for fold in sums.folds:
        if sums.parts[fold].count == total:
            raise ValueError(
                f"cv: fold {fold} leaves no training rows of positive weight; use folds that share "
                "the rows out"
            )


def _lacks_a_class(mean: Array) -> bool:
    share = 0.5 * (1.0 + mean)
    return bool((share < 1e-12).any() or (len(share) == 1 and (share > 1 - 1e-12).any()))


def _predicted(stream: Stream, kernel: Kernel, height: int) -> Outcome:
    """The held-out values of all rows, in a second pass."""
    start = time.perf_counter()
    held, y = held_out_values(stream, kernel, height)
    seconds, scores = time.perf_counter() - start, [None] * len(kernel.models)
    target = stream.reader.target(y)
    return _outcome(kernel.members[0].number, kernel, 2, seconds, scores, held, target)

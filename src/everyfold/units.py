"""The unit of work: one kernel, all ridges, all folds, all scores. One pure function runs it.

A search reads its candidates, puts those with the same rows and kernel together, and maps
:func:`run` over what results, here or elsewhere.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from traceback import format_exc
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everyfold.criteria import Fold, Folds, OutOfFold
from everyfold.engines import Answer, Bench, Engine, Method, evaluate, find_engine
from everyfold.material import Folded, Material, Source, Whole
from everyfold.metrics import Side
from everyfold.model import Model
from everyfold.operators.base import Array, KernelOperator, Rows, StructureError
from everyfold.preprocess import Parts, freeze, prepare_once, read_rows
from everyfold.scoring import Judge, failing_folds, incomplete_folds


@dataclass(frozen=True)
class Candidate:
    """One point of a search: what it asks for, and how its rows are prepared."""

    number: int
    model: Model
    parts: Parts

    @property
    def kernel_key(self) -> Any:
        """Equal for candidates with one kernel on the same rows."""
        return self.parts.key, freeze(self.model.choice), freeze(self.model.operator)

    @property
    def ridge_key(self) -> Any:
        """Equal for candidates that differ in the ridge only."""
        return freeze(replace(self.model, ridges=()))


@dataclass(frozen=True)
class Trial:
    """How candidates are judged: the folds, what is fitted, and who scores.

    Attributes
    ----------
    bench : Bench
        Its folds predict the test rows of the usable folds, and their training rows after them if
        these are to be scored as well.
    usable : int array
        The numbers of the folds that a model can be fitted on.
    failing : dict
        The others, and why.
    judge : Judge, optional
    test, train : Side, optional
        The rows to be scored in each usable fold.
    """

    bench: Bench
    usable: Rows
    failing: dict[int, ValueError]
    n_folds: int
    judge: Judge | None = None
    test: Side | None = None
    train: Side | None = None

    @cached_property
    def lacking(self) -> dict[int, Rows]:
        """The training rows of the usable folds that lack a class, by position."""
        folds = self.bench.folds
        return {i: folds[i].train for i in incomplete_folds(self.bench.target, folds)}


def set_up(bench: Bench, judge: Judge | None = None, *, with_train: bool = False) -> Trial:
    """Prepare a trial."""
    folds, target = bench.folds, bench.target
    failing = failing_folds(target, bench.weights, folds)
    usable = np.array([i for i in range(len(folds)) if i not in failing], dtype=np.intp)
    kept = folds if not failing else folds.subset(usable.tolist())
    test = Side(target, kept.tests)
    train = None
    if with_train:
        train = Side(target, tuple(fold.train for fold in kept))
        kept = _widened(kept)
    bench = replace(bench, folds=kept)
    return Trial(bench, usable, failing, len(folds), judge, test, train)


def as_they_are(folds: Folds) -> Folds:
    """The same folds, none of which may be read as a mere removal of rows."""
    return replace(folds, odd={i: replace(folds[i], is_removable=False) for i in range(len(folds))})


def _widened(folds: Folds) -> Folds:
    """The same folds with their training rows to be predicted after the test rows."""
    wide = {
        i: Fold(fold.train, np.concatenate([fold.test, fold.train]), fold.held, False)
        for i, fold in enumerate(folds)
    }
    return Folds(folds.n, tuple(fold.test for fold in wide.values()), folds.helds, wide)


@dataclass(frozen=True)
class Unit:
    """One kernel, and groups of candidates that differ in the ridge only."""

    material: Material
    groups: tuple[tuple[Candidate, ...], ...]
    trial: Trial

    @property
    def size(self) -> int:
        """The number of candidates."""
        return sum(len(group) for group in self.groups)

    @property
    def shares_out_folds(self) -> bool:
        """Whether all engines can use threads for the folds of this kernel."""
        models = [group[0].model for group in self.groups]
        bench = self.trial.bench
        return isinstance(self.material, Whole) and all(
            find_engine(model).shares_out(model, bench) for model in models
        )

    def trace(self) -> float:
        """The trace of the kernel matrix."""
        return self.material.trace(self.groups[0][0].model)


@dataclass(frozen=True)
class Verdict:
    """What became of one candidate.

    ``record`` has the values of the usable folds. ``errors`` names the folds that failed, by
    number, and ``test`` and ``train`` have one entry a fold, None for those that failed.
    """

    number: int
    record: OutOfFold | None
    errors: dict[int, str]
    test: list[Any]
    train: list[Any] | None
    fit_seconds: float
    score_seconds: float
    method: Method | None
    exception: Exception | None = None
    operator: str = ""
    residual_trace: float = 0.0
    """What a low-rank kernel leaves unexplained; 0 for a full one."""
    is_identity: bool = False
    """Whether the kernel is numerically the identity."""
    status: str = ""
    """How certain the scores are, where that is more than exact or not."""


def run(unit: Unit) -> list[Verdict]:
    """Evaluate all candidates of one kernel: a pure function of the unit."""
    start = time.perf_counter()
    try:
        operator = unit.material.bind(unit.groups[0][0].model)
    except (MemoryError, StructureError):
        raise
    except Exception as error:
        lost = [candidate for group in unit.groups for candidate in group]
        return [_lost(candidate, unit.trial, error, format_exc()) for candidate in lost]
    shared = (time.perf_counter() - start) / unit.size
    verdicts = []
    for group in unit.groups:
        verdicts += _run_group(group, operator, unit.trial, shared)
    words = _describe(operator)
    is_identity, residual = operator.is_identity, operator.residual_trace
    return [
        replace(v, operator=words, residual_trace=residual, is_identity=is_identity)
        for v in verdicts
    ]


def _describe(operator: KernelOperator) -> str:
    if operator.depends_on_rows:
        return "a kernel for each fold"
    if operator.rank < operator.n:
        return f"rank {operator.rank}"
    return "dense" if operator.methods is None else type(operator).__name__


def _lost(candidate: Candidate, trial: Trial, error: Exception, trace: str) -> Verdict:
    errors = dict.fromkeys(range(trial.n_folds), trace)
    nothing: list[Any] = [None] * trial.n_folds
    train = None if trial.train is None else nothing
    return Verdict(candidate.number, None, errors, nothing, train, 0.0, 0.0, None, error)


def _run_group(
    group: Sequence[Candidate], operator: KernelOperator, trial: Trial, shared: float
) -> list[Verdict]:
    start = time.perf_counter()
    models = [candidate.model for candidate in group]
    attempts = _attempt(find_engine(models[0]), models, operator, trial.bench)
    seconds = shared + (time.perf_counter() - start) / len(group)
    return [
        _judge(candidate, attempt, trial, seconds)
        for candidate, attempt in zip(group, attempts, strict=True)
    ]


@dataclass(frozen=True)
class Attempt:
    """A record, and the folds (by position) in which it has no meaning because they failed."""

    record: OutOfFold
    method: Method | None
    errors: dict[int, str]
    exception: Exception | None = None


def _attempt(
    engine: Engine, models: Sequence[Model], operator: KernelOperator, bench: Bench
) -> list[Attempt]:
    """All models together; if that fails, one by one, and the failing one fold by fold."""
    if len(bench.folds) == 0:
        empty = np.empty(0)
        record = OutOfFold(np.empty((0, 1)), empty.astype(bool), empty, empty)
        return [Attempt(record, None, {})] * len(models)
    try:
        answer = evaluate(engine, models, operator, bench)
        return [Attempt(record, answer.method, {}) for record in answer.records]
    except (MemoryError, StructureError):
        raise
    except Exception:
        if len(models) > 1:
            alone = [_attempt(engine, [model], operator, bench) for model in models]
            return [attempt for attempts in alone for attempt in attempts]
        return [_fold_by_fold(engine, models[0], operator, bench)]


def _fold_by_fold(engine: Engine, model: Model, operator: KernelOperator, bench: Bench) -> Attempt:
    """Each fold from its own training rows: a failing one takes no other with it."""
    q = bench.target.columns.shape[1]
    folds = as_they_are(bench.folds)
    parts: list[OutOfFold] = []
    errors: dict[int, str] = {}
    exception: Exception | None = None
    answer: Answer | None = None
    for i in range(len(folds)):
        one = replace(bench, folds=folds.subset([i]), order="auto")
        try:
            answer = evaluate(engine, [model], operator, one)
            parts.append(answer.records[0])
        except (MemoryError, StructureError):
            raise
        except Exception as error:
            errors[i], exception = format_exc(), error
            nothing = np.full((len(folds.tests[i]), q), np.nan)
            unknown = np.array([np.nan])
            parts.append(OutOfFold(nothing, np.array([False]), unknown, unknown))
    record = OutOfFold(
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.is_exact for part in parts]),
        np.concatenate([part.spectral_radius for part in parts]),
        np.concatenate([part.condition for part in parts]),
    )
    return Attempt(record, answer.method if answer else None, errors, exception)


def _judge(candidate: Candidate, attempt: Attempt, trial: Trial, fit_seconds: float) -> Verdict:
    start = time.perf_counter()
    errors = {int(trial.usable[i]): trace for i, trace in attempt.errors.items()}
    for i, error in trial.failing.items():
        errors[i] = f"ValueError: {error}\n"
    test: list[Any] = [None] * trial.n_folds
    train: list[Any] | None = None if trial.train is None else [None] * trial.n_folds
    if trial.judge is not None and trial.test is not None and len(trial.usable) > 0:
        values, inside = _cut(attempt.record.values, trial)
        _fill(test, values, trial.test, trial, attempt.errors)
        if train is not None and trial.train is not None and inside is not None:
            _fill(train, inside, trial.train, trial, attempt.errors)
    seconds = time.perf_counter() - start
    exception = attempt.exception or next(iter(trial.failing.values()), None)
    return Verdict(
        candidate.number,
        attempt.record,
        errors,
        test,
        train,
        fit_seconds,
        seconds,
        attempt.method,
        exception,
    )


def _cut(values: Array, trial: Trial) -> tuple[Array, Array | None]:
    """The values of the test rows, and those of the training rows if there are any."""
    if trial.train is None or trial.test is None:
        return values, None
    sizes = np.column_stack([trial.test.sizes, trial.train.sizes]).ravel()
    is_test = np.repeat(np.tile([True, False], len(trial.test.sizes)), sizes)
    return values[is_test], values[~is_test]


def _fill(
    scores: list[Any], values: Array, side: Side, trial: Trial, errors: dict[int, str]
) -> None:
    """Write the scores of the usable folds into the list of all folds."""
    assert trial.judge is not None
    good: Sequence[int] = range(len(side.parts))
    lacking = trial.lacking
    if errors:
        good = [i for i in good if i not in errors]
        kept: NDArray[np.bool_] = ~np.isin(side.folds, list(errors))
        values = values[kept]
        side = Side(side.target, tuple(side.parts[i] for i in good))
        lacking = {good.index(i): train for i, train in lacking.items() if i in good}
    if not good:
        return
    found = trial.judge.score(values, side, lacking)
    if len(found) == len(scores):
        scores[:] = found
        return
    for i, score in zip(good, found, strict=True):
        scores[int(trial.usable[i])] = score


def share_out(units: Sequence[Unit], threads: int) -> list[Unit] | None:
    """The same work with threads for the folds of each kernel; None if kernels keep more busy.

    Such threads start at once and share the kernel.
    """
    trial = units[0].trial
    by_fold, by_kernel = min(threads, len(trial.bench.folds)), min(threads, len(units))
    if by_fold == 1 or by_fold < by_kernel or not all(unit.shares_out_folds for unit in units):
        return None
    trial = replace(trial, bench=replace(trial.bench, threads=by_fold))
    return [replace(unit, trial=trial) for unit in units]


# -- grouping ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rawdata:
    """X and y as the user passed them, and how steps in front of the model are fitted."""

    X: Any
    y: Any
    n: int
    is_per_fold: bool
    prepared: Mapping[Any, Any] = field(default_factory=dict)
    """Rows by steps that were fitted on all of them, by the key of the steps."""


def group(candidates: Sequence[Candidate], data: Rawdata, trial: Trial) -> list[Unit]:
    """Units of work: candidates with the same rows and kernel, next to those with the same rows."""
    units = []
    for members in _gather(candidates, lambda c: (c.parts.key, c.model.choice.takes_any_rows)):
        kernels = _gather(members, lambda candidate: candidate.kernel_key)
        material = _material(members[0], data, trial, _shared_bases(kernels))
        for same_kernel in kernels:
            groups = _gather(same_kernel, lambda candidate: candidate.ridge_key)
            units.append(Unit(material, tuple(tuple(found) for found in groups), trial))
    return units


def _gather(candidates: Sequence[Candidate], key: Any) -> list[list[Candidate]]:
    found: dict[Any, list[Candidate]] = {}
    for candidate in candidates:
        found.setdefault(key(candidate), []).append(candidate)
    return list(found.values())


_PROBE = np.eye(2)


def _shared_bases(kernels: Sequence[Sequence[Candidate]]) -> list[str]:
    """The base matrices that more than one kernel is made of."""
    bases = [members[0].model.choice.resolve(_PROBE).base for members in kernels]
    return [base for base, count in Counter(bases).items() if base is not None and count > 1]


def _material(candidate: Candidate, data: Rawdata, trial: Trial, shared: list[str]) -> Material:
    parts, takes_any = candidate.parts, candidate.model.choice.takes_any_rows
    if not parts.steps:
        return Whole(read_rows(data.X, parts.final, takes_any=takes_any), shared)
    if not data.is_per_fold:
        rows = data.prepared.get(parts.key)
        if rows is None:
            rows = prepare_once(parts.steps, data.X)
        return Whole(read_rows(rows, parts.final, takes_any=takes_any), shared)
    source = Source(parts.steps, data.X, data.y, takes_any)
    return Folded(source, trial.bench.folds, shared)


def check(candidate: Candidate, order: Any) -> None:
    """Raise what can be known to be wrong with a candidate before any work."""
    find_engine(candidate.model).check(candidate.model, order)
    candidate.model.choice.resolve(_PROBE)

"""The records of an evaluation: tasks and candidates on its way in, outcomes on its way out.

A task is a target on folds with who scores it; a candidate is one point of the grid with its model.
`Data` has all of them with the rows, and is all that a worker needs. An `Outcome` is what became of
a candidate on some folds; `join` makes one of several.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar, get_type_hints

import numpy as np

from everyfold._progress import ProgressListener
from everyfold._typing import AnyArray, Array, Estimator, Index, Label, Mask, Matrix, Score, Targets
from everyfold.adapters.pipelines import Parts, freeze
from everyfold.adapters.sklearn import is_ours
from everyfold.crossval.base import Closed, Failure
from everyfold.engine.request import Request
from everyfold.engine.scoring.fold_scorers import FoldScorer, column, masked
from everyfold.engine.scoring.metrics import ScoredRows
from everyfold.estimators.model import Model
from everyfold.estimators.targets import Target
from everyfold.folds import Fold, Folds
from everyfold.linalg.memory import TRIFLE, available_memory, fits

# -- Rows and base matrices that units of one process share ---------------------------------------


# What the cache may take of the free memory, and at most in bytes: what is not kept is made anew
# for every kernel, what is kept is missing where kernels are factorised.
_SHARE_OF_MEMORY = 0.25
_MOST_BYTES = 2_000_000_000


class Cache(dict[Hashable, tuple[Matrix, ...]]):
    """Things worth keeping for other units, within a share of the memory.

    A pickled cache is empty: a worker process fills its own.
    """

    _size = 0  # bytes

    def put(self, key: Hashable, *items: Matrix) -> None:
        """Keep the items, if there is room."""
        size = self._size
        for item in items:
            size += getattr(item, "nbytes", 0) or getattr(getattr(item, "data", None), "nbytes", 0)
        if size <= TRIFLE or size <= self._room:
            self._size = size
            self[key] = items

    @cached_property
    def _room(self) -> float:
        return min(_MOST_BYTES, _SHARE_OF_MEMORY * available_memory())

    def __reduce__(self) -> tuple[type[Cache], tuple[()]]:
        return Cache, ()


# The status of a candidate that nothing speeds up: its scores are those of its own refits.
REFITTED = "refitted"
# The status of a candidate whose scores are an approximation of unknown error.
ESTIMATED = "estimated"
# The status of a candidate that an influence series says nothing of.
NEAR_IDENTITY = "near identity"


@dataclass(frozen=True)
class FoldSubset:
    """Some folds of a task: what their models predict, and which of it is scored.

    Attributes
    ----------
    task : Task
    asked : int array
        The folds that were asked for, by their numbers in the task, ascending.
    numbers : int array
        Those of them that a model can be fitted on.
    folds : Folds
        What is predicted in each: its test rows, and its training rows after them if these are
        scored as well.
    test, train : ScoredRows
        The rows to be scored.
    lacking : dict
        The training rows of folds that lack a class, by position.
    """

    task: Task
    asked: Index
    numbers: Index
    folds: Folds
    test: ScoredRows
    train: ScoredRows | None
    lacking: Mapping[int, Index]

    @cached_property
    def places(self) -> Index:
        """Where the usable folds stand among those that were asked for."""
        return np.searchsorted(self.asked, self.numbers)

    @property
    def keeps_one(self) -> bool:
        """Whether the best of candidates evaluated together is all that keeps its values."""
        task = self.task
        return task.best_by is not None and self is task.whole and task.criterion is None

    def spread(self, found: AnyArray, missing: float) -> AnyArray:
        """Entries of the usable folds among those of all that were asked for."""
        if len(self.numbers) == len(self.asked):
            return found
        entries = np.full(len(self.asked), missing, dtype=found.dtype)
        entries[self.places] = found
        return entries

    def split(self, values: Array) -> tuple[Array, Array | None]:
        """The values of the test rows, and those of the training rows if there are any."""
        if self.train is None:
            return values, None
        sizes = np.column_stack([self.test.sizes, self.train.sizes]).ravel()
        is_test: Mask = np.repeat(np.tile([True, False], len(self.test.sizes)), sizes)
        return values[is_test], values[~is_test]


@dataclass(frozen=True)
class Task:
    """What is predicted, with which weights, on which folds, and who judges it."""

    target: Target
    weights: Array
    folds: Folds
    judge: FoldScorer | None = None
    with_train: bool = False
    reads_labels: bool = False
    """Whether nothing but predicted labels is read of the values, where there is no judge."""
    criterion: Closed | None = None
    """What takes the place of held-out values; there is one fold then, of all rows."""
    keeps_values: bool = False
    """Whether held-out values are kept beside their scores."""
    best_by: str | None = None
    """The score by which only the best of the candidates evaluated together keeps its values."""
    near_identity: float = 0.0
    """The typical similarity up to which a finite influence series excludes a kernel."""
    owners: tuple[int, ...] | None = None
    """The version of the target that each fold is for, where each has folds of its own."""

    @property
    def width(self) -> int:
        """How many values a row has."""
        return int(self.target.columns.shape[1])

    @property
    def needs_values(self) -> bool:
        """Whether held-out values are read as such, or compared with each other.

        If not, only the labels they predict are, for which their signs are enough.
        """
        if self.judge is not None:
            return self.judge.needs_values
        return not (self.reads_labels and self.target.predicts_by_sign)

    @cached_property
    def has_several_classes(self) -> bool:
        """Whether the test rows with positive weight have labels of several classes."""
        side = self.whole.test
        if self.target.classes is None or not len(side.parts):
            return False
        return len(np.unique(side.codes[self.weights[side.rows] > 0.0])) > 1

    @property
    def lacks_classes(self) -> bool:
        """Whether the training rows of some fold lack a class that others have."""
        return bool(self.target.incomplete(self.folds))

    @cached_property
    def failing(self) -> dict[int, ValueError]:
        """The folds that no model can be fitted on, and why."""
        weights, folds = self.weights, self.folds
        failing: dict[int, ValueError] = {}
        if not weights.all():
            fold = np.repeat(np.arange(len(folds)), folds.sizes)
            kept = weights.sum() - np.bincount(fold, weights[folds.held_rows], minlength=len(folds))
            for i in np.flatnonzero(kept <= 0.0).tolist():
                if not np.delete(weights, folds.helds[i]).any():  # rounding may hide what is left
                    failing[i] = ValueError(
                        f"cv: split {i} leaves no training rows with positive sample_weight"
                    )
        if self.target.classes is None:
            return failing
        target = self.target.weighed(weights)
        for i in target.incomplete(folds):
            try:
                target.mask(target.columns[:1], folds[i].train)
            except ValueError as error:
                failing.setdefault(i, error)
        return failing

    @cached_property
    def whole(self) -> FoldSubset:
        """All usable folds."""
        return self._tile(np.arange(len(self.folds)))

    def held_out(self, values: Array) -> Array:
        """Values of the usable folds' test rows without classes that their training rows lack."""
        lacking = self.whole.lacking
        return masked(self.target, values, self.whole.test, lacking) if lacking else values

    @property
    def is_pooled(self) -> bool:
        """Whether some scores need all folds at once."""
        return self.judge is not None and self.judge.is_pooled

    def pooled(self, names: tuple[str, ...]) -> Task:
        """The same task, with the scores of these names made of all held-out rows together."""
        return replace(self, judge=None if self.judge is None else self.judge.pooled(names))

    def as_removals(self) -> Task:
        """The same folds, read as removals of rows where they are."""
        splits = ((fold.train, fold.test) for fold in self.folds)
        return replace(self, folds=Folds.from_splits(splits, self.folds.n))

    def tile(self, numbers: tuple[int, ...] | None) -> FoldSubset:
        """Some of the folds, of which only the usable ones count; None for all."""
        if numbers is None:
            return self.whole
        found = self._last_tile.get(numbers)
        if found is None:
            found = self._tile(np.array(numbers, dtype=np.intp))
            self._last_tile.clear()
            self._last_tile[numbers] = found
        return found

    @cached_property
    def _last_tile(self) -> dict[tuple[int, ...], FoldSubset]:
        """The folds of the unit at work, for all of its kernels."""
        return {}

    def _tile(self, asked: Index) -> FoldSubset:
        numbers = asked[~np.isin(asked, list(self.failing))] if self.failing else asked
        folds = self.folds
        if len(numbers) < len(folds):
            folds = folds.subset(numbers.tolist())
        test, train = ScoredRows(self.target, folds.tests), None
        lacking = {}
        if self.target.classes is not None:
            lacking = {i: folds[i].train for i in self.target.incomplete(folds)}
        if self.with_train:
            train = ScoredRows(self.target, tuple(fold.train for fold in folds))
            folds = _with_training_rows(folds)
        return FoldSubset(self, asked, numbers, folds, test, train, lacking)


def _with_training_rows(folds: Folds) -> Folds:
    """The same folds with their training rows to be predicted after the test rows."""
    wide = {
        i: Fold(fold.train, np.concatenate([fold.test, fold.train]), fold.held, False)
        for i, fold in enumerate(folds)
    }
    return Folds(folds.n, tuple(fold.test for fold in wide.values()), folds.helds, wide)


# What candidates of one kernel have to agree in to be evaluated together.
_SHARED = [f.name for f in fields(Model) if f.name not in ("choice", "operator", "ridges", "C")]


@dataclass(frozen=True)
class Candidate:
    """One point of a search: what it asks for, how its rows are prepared, and its task."""

    number: int
    model: Model
    parts: Parts
    task: int = 0

    @cached_property
    def rows_key(self) -> Hashable:
        """Equal for candidates that prepare the rows alike."""
        return self.parts.key, self.model.choice.takes_any_rows

    @cached_property
    def kernel_key(self) -> Hashable:
        """Equal for candidates with one kernel on the same rows."""
        return self.rows_key, freeze(self.model.choice), freeze(self.model.operator)

    @cached_property
    def group_key(self) -> Hashable:
        """Equal for candidates of one task that differ in their kernel and ridge at most."""
        ridges = self.model.ridges if self.model.chooses_ridge else ()
        return self.task, ridges, *[freeze(getattr(self.model, name)) for name in _SHARED]


@dataclass(frozen=True)
class Data:
    """All that units need besides their own few numbers; sent to a worker once.

    Attributes
    ----------
    X : array, CSR matrix, data frame or object array
        The rows: checked where no step of a Pipeline comes before the kernel, else as passed.
    y : array
        As passed.
    n : int
        The number of rows.
    tasks : tuple of Task
    candidates : dict
        By number.
    refused : dict
        Candidates that no fit would take, and why.
    foreign : dict
        Candidates that are refitted as scikit-learn would, and why: nothing speeds them up, or
        refits are better. The latter are among the candidates as well.
    """

    X: Matrix
    y: Targets
    n: int
    tasks: tuple[Task, ...]
    candidates: Mapping[int, Candidate]
    refused: Mapping[int, Failure] = field(default_factory=dict)
    foreign: Mapping[int, str] = field(default_factory=dict)
    own: Request | None = None
    """What the estimators themselves are refitted by; its cv are the splits, if those matter."""
    is_raw: bool = False
    """Whether X is as it was passed, to be read by each kernel after its steps."""
    jobs: int | None = None
    """How many units are at work at a time; None for as many as are asked for."""
    caller: Estimator = None
    """The search that callbacks of refits belong to."""
    contexts: Mapping[tuple[int, int], Any] = field(default_factory=dict)
    """What callbacks are called by, for candidates and folds."""
    cache: Cache = field(default_factory=Cache, compare=False)
    watch: ProgressListener = field(default_factory=ProgressListener, compare=False)
    """What is informed how far the work is."""

    in_memory: ClassVar[bool] = True
    """Whether a method may have all rows at once."""

    @cached_property
    def open_ranks(self) -> list[int]:
        """The candidates whose number of landmarks is to be found by the search."""
        return [
            number
            for number, candidate in self.candidates.items()
            if getattr(candidate.model.operator, "n_landmarks", None) == "auto"
        ]

    @cached_property
    def has_steps(self) -> bool:
        """Whether any candidate prepares its rows."""
        return any(candidate.parts.steps for candidate in self.candidates.values())

    def prepared(self, kind: str, pooled: tuple[str, ...] = ()) -> Data:
        """The data for one way to fit the steps of Pipelines, and with some scores pooled.

        Where steps are fitted once, on all rows, folds need not be taken literally.
        """
        tasks = self.tasks
        if kind == "once":
            tasks = tuple(task.as_removals() for task in tasks)
        if pooled:
            tasks = tuple(task.pooled(pooled) for task in tasks)
        return self if tasks is self.tasks else replace(self, tasks=tasks)

    def refitting(self, reasons: Mapping[int, str]) -> Data:
        """The same data with some of the candidates left to refits of their estimators."""
        return replace(self, foreign={**self.foreign, **reasons})

    @property
    def n_folds(self) -> int:
        """The number of folds of every task."""
        if self.tasks:
            return len(self.tasks[0].folds)
        assert self.own is not None
        return len(self.own.cv)

    def folds_of(self, number: int) -> int | None:
        """The number of folds of a candidate; None where each outcome has all that there are."""
        if number not in self.candidates:
            return self.n_folds
        return len(self.tasks[self.candidates[number].task].folds)

    def split(self, number: int) -> tuple[Index, Index]:
        """The training and test rows of a fold that estimators are refitted on."""
        if self.own is not None and self.own.cv is not None:
            return self.own.cv[number]  # type: ignore[no-any-return]
        fold = self.tasks[0].folds[number]
        return fold.train, fold.test

    @property
    def splits(self) -> list[tuple[Index, Index]]:
        """Those of all folds."""
        return [self.split(number) for number in range(self.n_folds)]

    def has_stand_in(self, candidate: Candidate) -> bool:
        """Whether the library's own estimator is fitted in the place of scikit-learn's.

        That takes no source of rows, and always makes the full kernel matrix, which may not fit.
        """
        if is_ours(candidate.parts.final):
            return False
        is_too_large = not fits(self.n, self.n) and candidate.model.has_full_matrix
        return not self.in_memory or is_too_large

    @property
    def n_weighted(self) -> int:
        """The number of rows with positive weight."""
        return int(np.count_nonzero(self.tasks[0].weights))

    @property
    def folding(self) -> object:
        """All that says which rows are fitted and predicted."""
        if not self.tasks:  # all candidates are refitted
            return self.splits
        return list({id(task.folds): task.folds for task in self.tasks}.values())

    @property
    def sizes(self) -> list[int]:
        """How many test rows each fold has."""
        if self.tasks:
            return np.diff(self.tasks[0].folds.bounds).tolist()  # type: ignore[no-any-return]
        return [len(test) for _, test in self.splits]


# -- Outcomes, and how those on some folds become one on all folds --------------------------------


def first(found: list[Any]) -> Any:
    """The first value that says something: equal on all folds, or known on some of them only."""
    return next((value for value in found if value is not None and value != ""), found[0])


def concatenated(found: list[Any]) -> Any:
    """The arrays there are, one after the other."""
    known = [value for value in found if value is not None]
    return np.concatenate(known) if known else None


def listed(found: list[Any]) -> Any:
    """The entries of the lists there are."""
    known = [value for value in found if value is not None]
    return [entry for value in known for entry in value] if known else None


def united(found: list[dict[int, Failure]]) -> dict[int, Failure]:
    """The entries of all dictionaries."""
    return {key: value for each in found for key, value in each.items()}


def summed(found: list[tuple[float, ...]]) -> tuple[float, ...]:
    """The sums over folds, position by position."""
    return tuple(map(sum, zip(*found, strict=True)))


def named(found: list[str]) -> str:
    """All words, each once."""
    return "; ".join(dict.fromkeys(words for words in found if words))


def agreed(found: list[Any]) -> Any:
    """The value that all have, None if they differ."""
    return found[0] if all(value == found[0] for value in found) else None


@dataclass(frozen=True)
class Outcome:
    """What became of one candidate on some folds; plain data.

    The annotation of a field names the function that makes one value of those on several folds.

    Attributes
    ----------
    number : int
    folds : int array
        The numbers of the folds.
    scores, train_scores : sequence, a FoldScores where all are known
        One entry a fold: a number, or a dictionary for several scorers; None where it failed.
    is_exact : bool array, one entry a fold
    condition, radius : arrays, one entry a fold
    failures : dict
        By the number of the fold.
    values : array, optional
        Held-out values of the usable folds, if they were asked for.
    target : Target, optional
        What turns values into predictions, where rows come from a source.
    sizes : list of int, optional
        How many test rows each fold has, and
    n_weighted : int, optional
        how many rows have a positive weight, where only a pass over a source tells.
    seconds : tuple (fitting, scoring)
    method : str
        How it was done, in words.
    operator : str
        How the kernel matrix was represented, in words.
    caveat : str
        How far values may be from those of refits, in words; empty for methods that give these.
    is_of_another_model : bool
        Whether values belong to an approximate
        kernel, so that refits cannot confirm them.
    residual_trace : float
        What a low-rank kernel leaves unexplained; 0 for a full one.
    rank : int
        Of the kernel matrix; 0 where there is not one for all rows.
    is_identity : bool
        Whether the kernel is numerically the identity.
    is_unique : bool
        Whether every fold has one solution.
    is_refit : bool
        Whether scores are those of the estimator itself, refitted on every fold to confirm others.
    pilot : int
        The number of the pilot split of the scores, from 1 on; 0 for scores of all folds.
    errors : array, optional
        The errors of a pilot split on each part of its rows, by which candidates are compared.
    is_restated : bool
        Whether nothing was evaluated again, and only scores or status are stated anew.
    landmarks : int
        Their number where a search found it; else 0.
    only_label : tuple of one label, optional
        What is predicted for all held-out rows, if that is one label and they have several.
    status : str
        How certain the scores are, where that is more than exact or not.
    times : list of tuples (fitting, scoring), optional
        Those of every fold, where folds are fitted one by one.
    fitted : list of estimators, optional
        Those of every fold, None where the fit failed, as long as values may be asked of them.
    whole : tuple, optional
        The model of all rows where the passes of the folds give it: coefficients of the features,
        intercepts, and whether y has one axis. Of a source, for the best candidate of a kernel.
    """

    number: Annotated[int, first]
    folds: Annotated[Index, concatenated]
    scores: Annotated[Sequence[Score], listed]
    train_scores: Annotated[Sequence[Score] | None, listed]
    is_exact: Annotated[Mask, concatenated]
    condition: Annotated[Array, concatenated]
    radius: Annotated[Array, concatenated]
    failures: Annotated[dict[int, Failure], united]
    values: Annotated[Array | None, concatenated] = None
    target: Annotated[Target | None, first] = None
    sizes: Annotated[list[int] | None, listed] = None
    n_weighted: Annotated[int | None, first] = None
    seconds: Annotated[tuple[float, float], summed] = (0.0, 0.0)
    method: Annotated[str, named] = ""
    operator: Annotated[str, first] = ""
    caveat: Annotated[str, first] = ""
    is_of_another_model: Annotated[bool, any] = False
    residual_trace: Annotated[float, max] = 0.0
    is_identity: Annotated[bool, all] = False
    is_unique: Annotated[bool, all] = True
    is_refit: Annotated[bool, any] = False
    pilot: Annotated[int, max] = 0
    errors: Annotated[Array | None, concatenated] = None
    is_restated: Annotated[bool, any] = False
    only_label: Annotated[tuple[Label] | None, agreed] = None
    status: Annotated[str, first] = ""
    landmarks: Annotated[int, max] = 0
    times: Annotated[list[tuple[float, float]] | None, listed] = None
    rank: Annotated[int, max] = 0
    fitted: Annotated[list[Estimator] | None, listed] = None
    whole: Annotated[tuple[Array, Array, bool] | None, first] = None
    means: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Mean scores that were asked for already: rounds ask again after every unit."""

    @property
    def failure(self) -> Failure | None:
        """One of the failures, if there are any."""
        return next(iter(self.failures.values()), None)


def with_fields(outcome: Outcome, **facts: object) -> Outcome:
    """The same outcome with other values of some fields.

    A tenth of the time of ``dataclasses.replace``, and thousands of outcomes get several of them.
    """
    found = copy(outcome)
    found.__dict__.update(facts)
    return found


def exclude(outcome: Outcome) -> Outcome:
    """The outcome with the worst of all scores.

    The rule of Liu, Jiang & Liao (2014, footnote 2) for finite orders: where the kernel matrix is
    near the identity, the series is near the training error, and the criterion is set to infinity.
    """
    is_exact = np.zeros_like(outcome.is_exact)
    scores = [_worst(score) for score in outcome.scores]
    return replace(outcome, scores=scores, is_exact=is_exact, status=NEAR_IDENTITY)


def _worst(score: Score) -> Score:
    if isinstance(score, dict):
        return dict.fromkeys(score, -np.inf)
    return None if score is None else -np.inf


def drop_values(outcome: Outcome) -> Outcome:
    """The same, to be remembered: values of thousands of candidates would be most of the memory."""
    is_short = outcome.values is None and outcome.fitted is None
    return outcome if is_short else with_fields(outcome, values=None, fitted=None)


@cache
def _rules() -> dict[str, Callable[[list[Any]], Any]]:
    """How each field of `Outcome` is joined: what its annotation says beside the type.

    A field that does not say it is an error, so that none is forgotten.
    """
    hints = get_type_hints(Outcome, include_extras=True)
    return {
        known.name: hints[known.name].__metadata__[0] for known in fields(Outcome) if known.init
    }


def join(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcomes of one candidate on several folds as one, in the order of the folds."""
    parts = sorted(outcomes, key=lambda outcome: int(outcome.folds[0]))
    if len(parts) == 1:
        return parts[0]
    whole = {name: rule([getattr(part, name) for part in parts]) for name, rule in _rules().items()}
    # Kernels of folds may differ in rank; the operator is described by the widest of them.
    widest = max(parts, key=lambda part: part.rank)
    return Outcome(**{**whole, "operator": widest.operator or whole["operator"]})


def mean_score(outcome: Outcome, metric: str) -> float:
    """The mean over the folds, -inf where one of them has none."""
    if metric not in outcome.means:
        scores = column(outcome.scores, metric)
        mean = float(scores.mean()) if len(scores) else -np.inf
        outcome.means[metric] = mean if np.isfinite(mean) else -np.inf
    return outcome.means[metric]

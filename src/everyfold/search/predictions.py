"""What a search keeps: what ``fit`` was given, and held-out values of its candidates.

A digest of rows and parameters tells other data from the same. Held-out values are read as
out-of-fold predictions, or as the table that scores without selection bias are computed from.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from everyfold._sklearn_private import search_has
from everyfold._typing import AnyArray, Array, Estimator, Index, Mask, Matrix, Params, Targets
from everyfold.engine.execution.executor import evaluate_request
from everyfold.engine.planning.planner import plan
from everyfold.engine.records import Data, Outcome, Task, mean_score
from everyfold.engine.request import Request, RequestedOutputs
from everyfold.engine.scoring.fold_scorers import FoldScores
from everyfold.estimators.sources import answers
from everyfold.estimators.targets import Target
from everyfold.io import RowSource
from everyfold.io.base import is_lazy
from everyfold.judge.fitted import NOT_A_CLASSIFIER, index_of
from everyfold.judge.honest import HeldOutTable

# Numbers that are copied at a time.
_BLOCK = 2**22
# Bytes up to which the rows themselves stay at hand: a search is repeated on them in seconds.
MOST_BYTES = 20_000_000
# Kinds of arrays that are known by their numbers.
_NUMBERS = "biuf"
# Types of objects that are known by their words.
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})


# -- What fit was given ----------------------------------------------------------------------------


@dataclass(frozen=True)
class DataHash:
    """A digest of values, one a row or several, that does not depend on what holds them.

    Attributes
    ----------
    shape : tuple of int
        Without a last axis of length 1.
    kind : str
        What is comparable: "numbers", "sparse", "words", "frame"; "objects" is not.
    digest : str
        Of numbers as float32, so that a copy in single precision is the same.
    """

    shape: tuple[int, ...]
    kind: str
    digest: str = ""

    @classmethod
    def of(cls, values: Any) -> DataHash:
        """The contents of an array, a list, a sparse matrix or a data frame.

        **Cost** one reading of the values.
        """
        is_sparse: bool = sparse.issparse(values)
        if is_sparse:
            return cls(_short(values.shape), "sparse", _digest(_sparse_parts(values)))
        if hasattr(values, "columns") and hasattr(values, "dtypes"):
            columns = [np.asarray(values[name]) for name in values.columns]
            if not all(column.dtype.kind in _NUMBERS for column in columns):
                parts = (cls._of_array(column).digest.encode() for column in columns)
                return cls(_short(values.shape), "frame", _digest(parts))
        try:
            array = np.asarray(values)
        except ValueError:  # a list of objects of different lengths
            return cls((len(values),), "objects")
        return cls._of_array(array)

    @classmethod
    def _of_array(cls, array: AnyArray) -> DataHash:
        if array.dtype.kind in _NUMBERS:
            return cls(_short(array.shape), "numbers", _digest(_blocks(array)))
        flat = array.ravel().tolist()
        if not set(map(type, flat)) <= _PLAIN:
            return cls(array.shape[:1], "objects")
        return cls(_short(array.shape), "words", _digest(["\0".join(map(str, flat)).encode()]))

    def difference(self, other: DataHash) -> str:
        """In words, by what others are known to differ from these; empty if by nothing."""
        if self.kind == "objects" or other.kind == "objects":
            is_other = self.shape[:1] != other.shape[:1]
        else:
            is_other = self.shape != other.shape
        if is_other:
            return f"shape {other.shape}, not {self.shape}"
        is_other = self.kind == other.kind and self.digest != other.digest
        return "other values" if is_other else ""


def _short(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[:-1] if len(shape) > 1 and shape[-1] == 1 else tuple(shape)


def _sparse_parts(values: Matrix) -> Iterator[bytes]:
    rows = values.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    yield rows.indptr.astype(np.int64).tobytes()
    yield rows.indices.astype(np.int64).tobytes()
    yield from _blocks(rows.data)


def _blocks(array: AnyArray) -> Iterator[bytes]:
    """The numbers in order, as bytes of float32 without negative zeros."""
    array = np.atleast_1d(array)
    step = max(1, _BLOCK // max(1, array[:1].size))
    with np.errstate(over="ignore"):
        for k in range(0, len(array), step):
            yield (array[k : k + step].astype(np.float32) + np.float32(0.0)).tobytes()


def _digest(parts: Iterator[bytes] | Sequence[bytes]) -> str:
    hasher = blake2b(digest_size=16)
    for part in parts:
        hasher.update(part)
    return hasher.hexdigest()


@dataclass(frozen=True)
class FitInputs:
    """What ``fit`` was called with.

    Attributes
    ----------
    ids : array or None
        Names of the rows: the index of a data frame.
    names : sequence of str
        Of the metadata.
    is_source : bool
    contents : dict or None
        Of the rows, targets and metadata by name; None of a source, whose rows are not all here.
    params : dict or None
        The metadata themselves (groups, weights, …), which honest scores and comparisons use; one
        value for each row is a copy.
    rows : tuple of X and y, or None
        The rows themselves (no copies) where they are small; they are not pickled.
    """

    ids: AnyArray | None
    names: Sequence[str]
    is_source: bool
    contents: Mapping[str, DataHash] | None = None
    params: Params | None = None
    rows: tuple[Matrix, Targets] | None = None

    def __getstate__(self) -> Params:
        return {**vars(self), "rows": None}

    @classmethod
    def of(cls, X: Matrix, y: Targets, params: Params, *, is_in_memory: bool) -> FitInputs:
        """What a report names, and what the rows are known by."""
        index: Any = getattr(X, "index", None) if hasattr(X, "iloc") else None
        if index is not None and getattr(index.dtype, "kind", "") == "M":
            index = index.astype(str)  # dates without their nanoseconds
        ids = None if index is None else np.asarray(index)
        is_source = isinstance(X, RowSource)
        known = {name: value for name, value in params.items() if value is not None}
        contents = None
        if is_in_memory:
            given = {"X": X, **({} if y is None else {"y": y}), **known}
            contents = {name: DataHash.of(value) for name, value in given.items()}
        kept = {name: _kept(value) for name, value in known.items()}
        is_small = contents is not None and 8 * getattr(X, "size", MOST_BYTES) < MOST_BYTES
        return cls(ids, list(known), is_source, contents, kept, (X, y) if is_small else None)

    @property
    def call(self) -> str:
        """The call of ``fit`` in words."""
        rows = ["source"] if self.is_source else ["X", "y"]
        return f"search.fit({', '.join([*rows, *(f'{name}={name}' for name in self.names)])})"

    def differences(self, X: Matrix, y: Targets, params: Params) -> list[str]:
        """In words, what differs from what ``fit`` was given, as far as that is known.

        Groups may be new, as outer folds may have some that the search has none of.
        """
        if self.contents is None:
            return []
        now, words = _contents({"X": X, "y": y, **params}), []
        for name, then in self.contents.items():
            other = then.difference(now[name]) if name in now else "not passed"
            words += [f"{name} ({other})"] if other else []
        new = [name for name in now if name not in self.contents and name != "groups"]
        return words + [f"{name} (not passed to fit)" for name in new]


def _kept(value: object) -> object:
    """A copy of values of rows, as the caller may change them after ``fit``; else the object."""
    is_column = isinstance(value, list | tuple) or getattr(value, "ndim", 0) == 1
    if is_lazy(value) or not is_column:
        return value
    try:
        return np.array(value)
    except ValueError:  # a list of objects of different lengths
        return value


def _contents(values: Params) -> dict[str, DataHash]:
    return {name: DataHash.of(value) for name, value in values.items() if value is not None}


# -- Held-out values of candidates -----------------------------------------------------------------

Method = Literal["predict", "decision_function", "predict_proba"]

# What the held-out values of several targets' winners are kept under, beside candidates.
WINNERS_OF_TARGETS = -1


@dataclass(frozen=True)
class OutOfFoldPredictions:
    """Out-of-fold predictions: of each row by the models that were not fitted on it.

    Attributes
    ----------
    values : array of shape (n_samples,), (n_samples, n_targets) or (n_samples, n_classes)
        The mean over the folds that held a row out; for labels, the most frequent one. NaN for rows
        that were never held out or whose fold failed; labels that are no numbers are objects then.
    spread : array of the same shape
        The standard deviation over these folds, 0 if there is only one; for labels, the share of
        folds that predict another label.
    repeats : int array of shape (n_samples,)
        How many folds held a row out.
    is_exact : bool
        Whether every value equals that of a refit up to rounding or the solver's own tolerance.
    status : str
        How certain the values are, as in ``cv_results_["status"]``.
    truth : array of shape (n_samples,) or (n_samples, n_targets)
        y of all rows.
    std : array of the same shape as values, or None
        For Gaussian processes, the predicted standard deviations as ``predict(return_std=True)``
        has them: with the noise of a ``WhiteKernel``, without ``alpha``. Of rows that several folds
        held out, the root of the mean variance.
    """

    values: AnyArray
    spread: Array = field(repr=False)
    repeats: Index = field(repr=False)
    is_exact: bool
    status: str
    truth: AnyArray = field(repr=False)
    std: Array | None = field(default=None, repr=False)


@dataclass(frozen=True)
class KeptValues:
    """The held-out values of one candidate, and what makes predictions of them.

    ``are_signs`` if only the signs of values are those of refits; ``whole`` is the target of all
    rows.
    """

    target: Target
    rows: Index
    values: Array
    n: int
    are_signs: bool
    whole: Target

    @classmethod
    def of(cls, outcome: Outcome, task: Task) -> KeptValues | None:
        """Those of an outcome, if it has any."""
        if outcome.values is None:
            return None
        are_signs = bool(outcome.caveat) and not task.needs_values
        target, values = task.target.emptied(), task.held_out(outcome.values)
        return cls(target, task.whole.test.rows, values, task.folds.n, are_signs, task.target)

    def read(self, method: Method) -> AnyArray:
        """What was predicted, one entry for each held-out row of each fold."""
        if method == "predict":
            return self.target.predict(self.values)
        if self.target.classes is None:
            raise ValueError(f"method={method!r} is for classifiers; use method='predict'")
        if method == "decision_function":
            return self.target.decide(self.values)
        if method != "predict_proba":
            raise ValueError(
                f"method={method!r} is not known; use 'predict', 'decision_function' or "
                "'predict_proba'"
            )
        if not self.target.has_probabilities:
            raise ValueError(
                "method='predict_proba' needs a classifier with the logistic loss; use "
                "FastCalibratedClassifierCV for probabilities, or method='decision_function'"
            )
        return self.target.probabilities(self.values)


@dataclass(frozen=True)
class LateValues:
    """Held-out values that take a pass of their own over rows in memory, made when asked for."""

    request: Request
    data: Data
    number: int
    given: FitInputs

    def made(self) -> Outcome:
        """The candidate evaluated once more; refuses rows that are others than in ``fit``."""
        X, y = self.request.X, self.request.y
        if changed := self.given.differences(X, y, self.given.params or {}):
            raise ValueError(
                "held-out values of so many rows are computed when they are first asked for, but "
                f"since fit these have changed: {', '.join(changed)}; fit the search again"
            )
        return evaluate_again(self.request, self.data, self.number)


@dataclass
class PredictionStore:
    """Keeps the values of the best candidate so far, or of all.

    Attributes
    ----------
    keeps : {"best", "all"} or None
    metric : str or None
        The score that the best is known by, if one is.
    """

    keeps: Literal["best", "all"] | None
    metric: str | None
    _kept: dict[int, KeptValues | None] = field(default_factory=dict)
    _best: tuple[float, int] = (-math.inf, 0)
    _fitted: Outcome | None = None
    _late: LateValues | None = None

    def __getstate__(self) -> Params:
        """Values that wait to be made cannot be made elsewhere, without the rows."""
        if self._late is not None:
            with suppress(ValueError):  # rows that have changed have no values
                self._find(self._late.number)
        return {**vars(self), "_late": None}

    def take(self, outcome: Outcome, data: Data) -> None:
        """Keep the values of an outcome, if they are wanted."""
        number = outcome.number
        if self.keeps == "best":
            has_values = outcome.values is not None or outcome.fitted is not None
            if not has_values or self.metric is None or not _has(outcome, self.metric):
                if number in self._kept:  # the best so far, evaluated again, more exactly
                    self._kept.clear()
                    self._best = -math.inf, 0
                return
            standing = mean_score(outcome, self.metric), -number
            if number not in self._kept and standing <= self._best:
                return
            self._best = standing
            self._kept.clear()
        if self.keeps is not None:
            task = data.tasks[data.candidates[number].task]
            self._kept[number] = KeptValues.of(outcome, task)
            self._fitted = outcome if outcome.fitted is not None else None

    def fitted(self, number: int) -> Outcome | None:
        """The outcome whose estimators are still to be asked for the values of a candidate."""
        own = self._fitted
        return own if own is not None and own.number == number else None

    def lacks(self, number: int) -> bool:
        """Whether a candidate's values are wanted and not there."""
        is_late = self._late is not None and self._late.number == number
        return self.keeps is not None and self._kept.get(number) is None and not is_late

    def postpone(self, late: LateValues) -> None:
        """Make the values of the winner when they are first asked for."""
        self._late = late

    def add(self, outcome: Outcome, data: Data) -> None:
        """Keep the values of the winner, and of nobody else if those of all are not wanted."""
        if self.keeps == "best":
            self._kept.clear()
        task = data.tasks[data.candidates[outcome.number].task]
        self._kept[outcome.number], self._fitted = KeptValues.of(outcome, task), None

    def read(
        self, number: int, method: Method, *, is_exact: bool, status: str
    ) -> OutOfFoldPredictions:
        """The predictions of a candidate in the order of the rows."""
        kept = self._find(number)
        found = kept.read(method)
        is_exact = is_exact and not (kept.are_signs and method != "predict")
        repeats = np.bincount(kept.rows, minlength=kept.n)
        if method == "predict" and kept.target.classes is not None:
            values, spread = _votes(found, kept, repeats)
        else:
            values, spread = _means(found, kept.rows, repeats)
        return OutOfFoldPredictions(values, spread, repeats, is_exact, status, kept.whole.truth)

    def labelled(self, number: int) -> tuple[Array, AnyArray, AnyArray]:
        """Every held-out decision value of a candidate, the label of its row, and all labels."""
        kept = self._find(number)
        if kept.target.classes is None:
            raise ValueError(NOT_A_CLASSIFIER)
        found = kept.read("decision_function")
        if kept.are_signs:
            raise ValueError(
                "the held-out values are approximations of which only the signs are meaningful; "
                "fit the search with method='exact', or with a scoring that needs the values, "
                "such as 'roc_auc'"
            )
        return found, kept.whole.truth[kept.rows], kept.target.classes

    def table(self, numbers: Sequence[int]) -> HeldOutTable:
        """The values of all candidates that have one for every held-out row.

        Refuses folds that hold rows out twice, and candidates that all predict one thing.
        """
        if self.keeps != "all":
            raise ValueError(
                "the held-out values of all candidates are needed, but were not kept "
                f"(keeps={self.keeps!r}); repeat the search in folds by honest_score('nested', X, "
                "y), or fit it with method=everyfold.papers.MethodOptions(keeps='all')"
            )
        kept = [own for own in map(self._kept.get, numbers) if own is not None]
        if not kept:
            raise ValueError(
                "no candidate has held-out values, because all were refitted or failed; use "
                "method='nested'"
            )
        rows = kept[0].rows
        if len(np.unique(rows)) < len(rows):
            raise ValueError(
                "cv holds out some rows more than once, but method='bbc' needs each row at most "
                "once; use a cv that is a partition, or method='nested'"
            )
        known = [own for own in kept if np.isfinite(own.values).all()]
        if all(_is_constant(own) for own in known):
            raise ValueError(
                "every candidate predicts the same value for all held-out rows, so that there "
                "is nothing to select; try other values of gamma and of the ridge"
            )
        return HeldOutTable(kept[0].whole, np.sort(rows), [_in_order(own) for own in known])

    def _find(self, number: int) -> KeptValues:
        if self._late is not None and self._late.number == number:
            self.add(self._late.made(), self._late.data)
            self._late = None
        kept = self._kept.get(number)
        if kept is None:
            raise ValueError(
                f"the held-out values of candidate {number} were not kept "
                f"(keeps={self.keeps!r}, or it was refitted by scikit-learn; a source "
                "of rows and a criterion without folds keep none); use "
                "method=everyfold.papers.MethodOptions(keeps='all'), or cross_val_predict with its "
                "parameters"
            )
        return kept


def _is_constant(kept: KeptValues) -> bool:
    predicted = kept.read("predict")
    return bool((predicted == predicted[:1]).all())


def _in_order(kept: KeptValues) -> Array:
    """The values in the order of all rows; NaN for rows that no fold held out."""
    values = np.full((kept.n, kept.values.shape[1]), np.nan)
    values[kept.rows] = kept.values
    return values


def _has(outcome: Outcome, metric: str) -> bool:
    """Whether there is such a score; those of a user's own function may have any names."""
    if isinstance(outcome.scores, FoldScores):
        return not outcome.scores.is_multimetric or metric in outcome.scores.columns
    return all(metric in score for score in outcome.scores if isinstance(score, dict))


def _means(found: AnyArray, rows: Index, repeats: Index) -> tuple[Array, Array]:
    """Mean and standard deviation over the folds of every row; NaN where there is none."""
    count = repeats.reshape(-1, *[1] * (found.ndim - 1)).astype(np.float64)
    count[count == 0.0] = np.nan
    mean = _sum(found, rows, len(repeats)) / count
    variance = _sum((found - mean[rows]) ** 2, rows, len(repeats)) / count
    return mean, np.sqrt(variance)


def _sum(found: Array, rows: Index, n: int) -> Array:
    total = np.zeros((n, *found.shape[1:]))
    np.add.at(total, rows, found)
    return total


def _votes(found: AnyArray, kept: KeptValues, repeats: Index) -> tuple[AnyArray, Array]:
    """The most frequent label of every row, the first of several, and the share of others.

    NaN for rows that were never held out, or whose fold failed.
    """
    classes = kept.target.classes
    assert classes is not None
    votes = np.zeros((kept.n, len(classes)))
    np.add.at(votes, (kept.rows, np.searchsorted(classes, found)), 1.0)
    labels: AnyArray = classes[votes.argmax(axis=1)]
    spread = 1.0 - votes.max(axis=1) / np.maximum(repeats, 1)
    is_missing = (repeats == 0) | _has_gaps(kept)
    if is_missing.any():
        # An array of integers or strings holds no NaN.
        labels = labels.astype(np.float64 if labels.dtype.kind in "iuf" else object)
        labels[is_missing] = spread[is_missing] = np.nan
    return labels, spread


def _has_gaps(kept: KeptValues) -> Mask:
    """The rows with a value that is not known."""
    gaps = np.zeros(kept.n, dtype=bool)
    gaps[kept.rows[np.isnan(kept.values).any(axis=1)]] = True
    return gaps


def evaluate_again(request: Request, data: Data, number: int) -> Outcome:
    """One candidate on the same folds once more, for its held-out values.

    For a way of work that keeps none: sums over the rows, or a winner that is known last.
    """
    tasks = tuple(replace(task, judge=None, with_train=False) for task in data.tasks)
    alone = {number: data.candidates[number]}
    data = replace(data, tasks=tasks, candidates=alone, refused={}, foreign={}, own=None)
    options = replace(request.options, n_confirm=0)
    request = replace(
        request, scorer=None, options=options, wants=RequestedOutputs(selects_by=None)
    )
    with warnings.catch_warnings(action="ignore"):  # all has been said in the search itself
        return evaluate_request(plan(data, request), data, request)[number]


# -- Methods of a fitted search: predictions of its winner, out-of-fold predictions, thresholds ---


class WinnerAnswers:
    """Methods of a search that use its ``best_estimator_``; rows may come from a source."""

    best_estimator_: Estimator
    best_index_: int
    cv_results_: Params
    _keeper: PredictionStore
    _numbers: list[int]
    _given: FitInputs
    _splits: Sequence[tuple[Index, Index]] | None
    estimator: Estimator

    def _respond(self, method: str, X: Matrix) -> AnyArray:
        """What the winner makes of rows; those of a source block by block, those of Dask later."""
        check_is_fitted(self)
        work = getattr(self.best_estimator_, method)
        return answers(work, X, self)

    @available_if(search_has("predict"))  # type: ignore[untyped-decorator]
    def predict(self, X: Matrix) -> AnyArray:
        """Predictions of the winner; X may be a source of rows or a Dask collection."""
        return self._respond("predict", X)

    @available_if(search_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Matrix) -> AnyArray:
        """Decision values of the winner; X may be a source of rows or a Dask collection."""
        return self._respond("decision_function", X)

    @available_if(search_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Matrix) -> AnyArray:
        """Probabilities of the winner; X may be a source of rows or a Dask collection."""
        return self._respond("predict_proba", X)

    def out_of_fold(
        self,
        candidate: int | None = None,
        method: Literal["predict", "decision_function", "predict_proba"] = "predict",
    ) -> OutOfFoldPredictions:
        """Out-of-fold predictions of a candidate, from which its scores were computed.

        Parameters
        ----------
        candidate : int, optional
            Its index in ``cv_results_``; None means the best. Other candidates need
            ``MethodOptions(keeps="all")``.
        method : {"predict", "decision_function", "predict_proba"}, default="predict"
            Probabilities are available for the logistic loss only.

        Returns
        -------
        predictions : OutOfFoldPredictions
            ``values`` in the order of the rows, their ``spread`` over repeated folds, ``repeats``,
            ``is_exact`` and ``status``. Rows that were never held out are NaN, labels included.
        """
        index, results = index_of(self, candidate), self.cv_results_
        number, winners = self._numbers[index], [index]
        if candidate is None and hasattr(self, "best_index_per_target_"):
            number, winners = WINNERS_OF_TARGETS, np.unique(self.best_index_per_target_).tolist()
        is_exact = bool(results["is_exact"][winners].all())
        status = str(results["status"][winners[0]])
        is_one = number != WINNERS_OF_TARGETS
        if method == "predict" and is_one and self._splits is not None and self._given.rows:
            return self._distributions(results["params"][index], is_exact=is_exact, status=status)
        return self._keeper.read(number, method, is_exact=is_exact, status=status)

    def _distributions(
        self, params: Params, *, is_exact: bool, status: str
    ) -> OutOfFoldPredictions:
        """The distributions of a Gaussian process, which the search itself has not computed."""
        from everyfold.gaussian_process.held_out_gaussians import DistributionFolds

        assert self._given.rows is not None
        X, y = self._given.rows
        estimator = clone(self.estimator).set_params(**clone(params, safe=False))
        folds = DistributionFolds(estimator, X, y, None, self._splits, None)
        found, std, rows = folds.predictions()
        repeats = np.bincount(rows, minlength=len(y))
        values, spread = _means(found, rows, repeats)
        variance, _ = _means(std**2, rows, repeats)
        truth = np.asarray(y)
        return OutOfFoldPredictions(
            values, spread, repeats, is_exact, status, truth, np.sqrt(variance)
        )

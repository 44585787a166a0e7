"""Scikit-learn's scorers on predictions that already exist.

A scorer gets a stand-in for the fitted model, which knows the held-out values of one fold. Metrics
that are known are computed for all folds at once from arrays, with the same numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if

from everyfold._sklearn_private import (
    BaseScorer,
    MultimetricScorer,
    check_method_params,
    safe_indexing,
)
from everyfold._sklearn_private import score as score_estimator
from everyfold._typing import (
    AnyArray,
    Array,
    ErrorScore,
    Estimator,
    Index,
    Mask,
    Matrix,
    Params,
    Score,
    Scorer,
    Targets,
)
from everyfold.engine.scoring.metrics import (
    ExplainedDeviance,
    Metric,
    Scored,
    ScoredRows,
    asks_for_predictions,
    by_column,
    by_row,
    find_metric,
    is_of_sums,
    is_own_score,
    positive_label,
    score_errors,
    unusual_score,
    usual_score,
)
from everyfold.estimators.targets import Numbers, Target
from everyfold.operators.gram import FoldErrors

# What scorers look for in turn; a stand-in has what its estimator has.
_RESPONSES = ("predict_proba", "predict_log_proba", "decision_function")


class HeldOut(BaseEstimator):  # type: ignore[misc]
    """A model of one fold that knows the answers for its test rows, and for no others."""

    was_asked_elsewhere = False
    missing_attribute = ""
    """What a scorer asked for that only the estimator itself has."""

    def __init__(self, X: Matrix, target: Target, values: Array) -> None:
        self.X = X
        self.target = target
        self.values = values

    def _answers(self, X: Matrix) -> Array:
        if X is not self.X:
            self.was_asked_elsewhere = True
            raise ValueError(
                "the scorer predicts rows other than the held-out ones, which needs fitted models"
            )
        return self.values

    def predict(self, X: Matrix) -> AnyArray:
        """Predict the test rows."""
        return self.target.predict(self._answers(X))

    def get_params(self, deep: bool = True) -> Params:
        """No parameters of the estimator that it stands for."""
        self.missing_attribute = self.missing_attribute or "get_params"
        return super().get_params(deep)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and name not in _RESPONSES:
            self.__dict__["missing_attribute"] = name
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_is_fitted__(self) -> bool:
        return True


class HeldOutRegressor(RegressorMixin, HeldOut):  # type: ignore[misc]
    """Stands in for the regressor of one fold."""


def _has_probabilities(model: Estimator) -> bool:
    return bool(model.target.has_probabilities)


class HeldOutClassifier(ClassifierMixin, HeldOut):  # type: ignore[misc]
    """Stands in for the classifier of one fold."""

    @property
    def classes_(self) -> AnyArray:
        """The labels of the fold's training rows."""
        assert self.target.classes is not None
        return self.target.classes

    def decision_function(self, X: Matrix) -> AnyArray:
        """Decide the test rows."""
        return self.target.decide(self._answers(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Matrix) -> Array:
        """Probabilities of the classes of the test rows."""
        return self.target.probabilities(self._answers(X))


class KnownAnswer(BaseScorer):  # type: ignore[misc]
    """Stands in for a scorer whose answer is known, among others that are asked.

    Scorers that are asked together share predictions, and only the first to need them says which
    label is the positive one: whether a later one fails depends on those before it.
    """

    def __init__(self, answer: AnyArray) -> None:
        super().__init__(None, 1, {}, "predict")
        self._answer = answer

    def _score(
        self, method_caller: Any, estimator: Estimator, X: Matrix, y_true: Targets, **_: object
    ) -> AnyArray:
        method_caller(estimator, "predict", X, pos_label=None)
        return self._answer


def stand_in(X: Matrix, target: Target, values: Array) -> HeldOut:
    """An estimator that answers for the test rows ``X`` with ``values``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.metrics import get_scorer
    >>> from everyfold.estimators.targets import Numbers
    >>> X, y = np.ones((3, 1)), np.array([1.0, 2.0, 3.0])
    >>> get_scorer("r2")(stand_in(X, Numbers.read(y), y[:, None]), X, y)
    1.0
    """
    kind = HeldOutRegressor if target.classes is None else HeldOutClassifier
    return kind(X, target, values)


# -- Models that know the answers: what a scorer gets in the place of a fitted estimator -----------


# With more folds, ``cv_results_`` has only means and standard deviations, no column for each fold.
MOST_COLUMNS = 1000


@dataclass(frozen=True)
class FoldScores(Sequence[Score]):
    """One score a fold, or one of every scorer by name; reads like a list of them.

    Attributes
    ----------
    columns : mapping
        By the name of the scorer, "score" if there is one, the scores of all folds.
    is_multimetric : bool
        Whether an entry is a dictionary.
    is_known : bool array, optional
        The folds that have scores; the entries of others are None. All have, if it is None.

    Examples
    --------
    >>> scores = FoldScores({"score": np.array([0.5, 0.75])}, False)
    >>> list(scores), scores[1]
    ([0.5, 0.75], 0.75)
    """

    columns: Mapping[str, Array]
    is_multimetric: bool
    is_known: Mask | None = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            columns = {name: scores[i] for name, scores in self.columns.items()}
            is_known = None if self.is_known is None else self.is_known[i]
            return FoldScores(columns, self.is_multimetric, is_known)
        if self.is_known is not None and not self.is_known[i]:
            return None
        found = {name: float(scores[i]) for name, scores in self.columns.items()}
        return found if self.is_multimetric else found["score"]

    def __iter__(self) -> Iterator[Score]:
        lists = [scores.tolist() for scores in self.columns.values()]
        rows: Iterator[Score] = iter(lists[0])
        if self.is_multimetric:
            rows = (
                dict(zip(self.columns, values, strict=True)) for values in zip(*lists, strict=True)
            )
        if self.is_known is None:
            return rows
        return (row if known else None for row, known in zip(rows, self.is_known, strict=True))

    def column(self, name: str) -> Array:
        """The scores of all folds by one scorer; NaN where there is none."""
        scores = self.columns.get(name if self.is_multimetric else "score")
        if scores is None:
            return np.full(len(self), np.nan)
        return scores if self.is_known is None else np.where(self.is_known, scores, np.nan)


def column(scores: Sequence[Score], name: str) -> Array:
    """The scores of all folds by one scorer; NaN where there is none.

    Examples
    --------
    >>> column([0.5, None], "score")
    array([0.5, nan])
    >>> column([{"r2": 0.5}], "r2")
    array([0.5])
    """
    if isinstance(scores, FoldScores):
        return scores.column(name)
    found = [score.get(name) if isinstance(score, dict) else score for score in scores]
    return np.array(found, dtype=np.float64)


def moved(scores: Sequence[Score], shifts: Mapping[str, float]) -> Sequence[Score]:
    """The scores of all folds with the same added to each, by scorer.

    Examples
    --------
    >>> list(moved([0.5, None], {"score": 0.25}))
    [0.75, None]
    >>> moved([{"r2": 0.5, "mse": -1.0}], {"r2": 0.25})[0]
    {'r2': 0.75, 'mse': -1.0}
    """
    if isinstance(scores, FoldScores):
        columns = {name: own + shifts.get(name, 0.0) for name, own in scores.columns.items()}
        return replace(scores, columns=columns)
    return [_moved(score, shifts) for score in scores]


def _moved(score: Score, shifts: Mapping[str, float]) -> Score:
    if isinstance(score, dict):
        return {name: own + shifts.get(name, 0.0) for name, own in score.items()}
    return None if score is None else score + shifts.get("score", 0.0)


def names_of(scores: Sequence[Score]) -> list[str]:
    """The names of the scorers, as far as one fold has them.

    A fold that fails before any has several scores may have the score of failures instead.
    """
    if isinstance(scores, FoldScores):
        return list(scores.columns)
    return next((list(score) for score in scores if isinstance(score, dict)), ["score"])


def placed(scores: Sequence[Score], where: Index, size: int) -> Sequence[Score]:
    """Scores of some folds among those of all, where the others have none."""
    if len(where) == size:
        return scores
    if not isinstance(scores, FoldScores):
        among_all: list[Score] = [None] * size
        for i, score in zip(where.tolist(), scores, strict=True):
            among_all[i] = score
        return among_all
    is_known = np.zeros(size, dtype=bool)
    is_known[where] = True if scores.is_known is None else scores.is_known
    columns = {name: np.full(size, np.nan) for name in scores.columns}
    for name, found in scores.columns.items():
        columns[name][where] = found
    return FoldScores(columns, scores.is_multimetric, is_known)


def _lacks_its_label(scorer: Scorer, classes: AnyArray) -> bool:
    """Whether a scorer has a positive label that is none of the classes."""
    label = positive_label(scorer)
    return label is not None and label not in classes.tolist()


def take(rows: Matrix, index: NDArray[np.intp]) -> Matrix:
    """Rows of an array, a sparse matrix, a data frame or a list."""
    return rows if rows is None else safe_indexing(rows, index)


def masked(target: Target, values: Array, side: ScoredRows, trains: Mapping[int, Index]) -> Array:
    """Values without the classes that the training rows of some folds lack."""
    values = values.copy()
    for i, train in trains.items():
        part = slice(side.bounds[i], side.bounds[i + 1])
        values[part] = target.mask(values[part], train)
    return values


def by_name(scorer: Scorer) -> Params:
    """Scorers by their names, whether there are several or one."""
    if isinstance(scorer, MultimetricScorer):
        return dict(scorer._scorers)
    own = usual_score(scorer._estimator) if is_own_score(scorer) else None
    return {"score": own.scorer if isinstance(own, ExplainedDeviance) else scorer}


class FoldScorer:
    """Scores held-out values, by arithmetic on all folds at once where the scorer is well known.

    Parameters
    ----------
    scorer : callable
        One of scikit-learn's, several in a ``_MultimetricScorer``, or any callable.
    target : Target
    data : tuple (X, y)
        As the user passed them.
    params : dict
        What the scorer gets besides.
    error_score : "raise" or float
    """

    def __init__(
        self, scorer: Scorer, target: Target, data: Matrix, params: Params, error_score: ErrorScore
    ) -> None:
        self._target = target
        self._X, self._y = data
        self._params = params
        self._error_score = error_score
        self.is_multimetric = isinstance(scorer, MultimetricScorer)
        scorers = by_name(scorer)
        self._scorer = scorer if self.is_multimetric else scorers["score"]
        self._scorers = scorers
        self._known: dict[str, Metric] = {}
        self.is_of_sklearn = True
        """Whether no scorer is a function of the user's own, which may look at anything."""
        for name, item in scorers.items():
            is_own = is_own_score(item)
            if is_own and usual_score(item._estimator) is None:
                raise unusual_score(item._estimator)
            self.is_of_sklearn &= is_own or isinstance(item, BaseScorer)
            metric = None if params else find_metric(item, target)
            if metric is not None:
                self._known[name] = metric
        # Scores of a function of the user's own have names that only a call tells.
        has_names = self.is_multimetric or type(scorer).__module__ == "sklearn.metrics._scorer"
        self.names = tuple(scorers) if has_names else ()
        """What its scores are called, as far as that is known."""
        are_known = len(self._known) == len(scorers)
        self.needs_errors_only = are_known and all(map(is_of_sums, self._known.values()))
        """Whether the squared errors of folds are all that its scores depend on."""
        self._shares_predictions = target.classes is not None and any(
            _lacks_its_label(scorer, target.classes) for scorer in scorers.values()
        )

    @property
    def needs_values(self) -> bool:
        """Whether a scorer may look at the held-out values, and not at predicted labels alone."""
        are_labels = all(asks_for_predictions(scorer) for scorer in self._scorers.values())
        return not (are_labels and self._target.predicts_by_sign)

    def restrict(self, rows: Index, target: Target) -> FoldScorer:
        """The same judge of some of the rows, whose target is given; failures count as NaN."""
        data = take(self._X, rows), take(self._y, rows)
        params = check_method_params(self._X, params=self._params, indices=rows)
        return FoldScorer(self._scorer, target, data, params, np.nan)

    @property
    def knows_predictions(self) -> bool:
        """Whether its scores are simple arithmetic on what estimators predict, and nothing else."""
        asked = all(asks_for_predictions(scorer) for scorer in self._scorers.values())
        return asked and len(self._known) == len(self._scorers)

    is_pooled = False
    """Whether some scores are those of all folds' rows together."""

    @property
    def by_fold(self) -> FoldScorer:
        """The same judge of every fold by itself."""
        return self

    def pooled(self, names: Collection[str]) -> FoldScorer:
        """The same judge, with these scores of all folds' rows together; none for no change."""
        return PooledScorer(self, names) if names else self

    def only(self, names: Collection[str]) -> FoldScorer:
        """The same judge by some of its scorers."""
        if not self.is_multimetric:
            return self
        chosen = {name: item for name, item in self._scorers.items() if name in names}
        scorer = MultimetricScorer(scorers=chosen, raise_exc=self._error_score == "raise")
        data = self._X, self._y
        return FoldScorer(scorer, self._target, data, self._params, self._error_score)

    def ordered(self, order: Index, target: Target) -> FoldScorer:
        """The same judge for permuted targets: y in this order, which ``target`` is the code of."""
        data = self._X, take(self._y, order)
        return FoldScorer(self._scorer, target, data, self._params, self._error_score)

    def by_column(self, values: Array, side: ScoredRows) -> Array | None:
        """The scores of folds and columns, (t, q), where the score is known and their mean."""
        is_known = "score" in self._known and np.isfinite(values).all()
        return by_column(self._known["score"], side, values) if is_known else None

    def known_scores(self, values: Array, side: ScoredRows) -> Array | None:
        """The scores of all folds, if there is one scorer and nothing else need be asked."""
        metric = None if self.is_multimetric else self._known.get("score")
        scored = None if metric is None or not np.isfinite(values).all() else metric(side, values)
        return None if scored is None or not scored.is_known.all() else scored.scores

    def by_target(self, values: Array, side: ScoredRows) -> Array:
        """The scores of folds and targets, (t, q): of every column of y as if it were alone."""
        found = self.by_column(values, side)
        if found is None:
            y = np.asarray(self._y)
            found = np.empty((len(side.parts), values.shape[1]))
            for j in range(values.shape[1]):
                judge = self._of_target(Numbers.read(y[:, j]))
                own = ScoredRows(judge._target, side.parts)
                found[:, j] = column(judge.score(values[:, [j]], own, {}), "score")
        return found

    def _of_target(self, target: Numbers) -> FoldScorer:
        """The same judge of one target."""
        data = self._X, target.truth
        return FoldScorer(self._scorer, target, data, self._params, self._error_score)

    def by_row(self, values: Array, side: ScoredRows) -> Array | None:
        """A number for each row whose sums rank candidates as their scores do, if there is one."""
        is_known = "score" in self._known and np.isfinite(values).all()
        return by_row(self._known["score"], side, values) if is_known else None

    def score_errors(self, errors: FoldErrors) -> Sequence[Score]:
        """``score`` of one candidate by the squared errors of its folds."""
        table = score_errors(self._known, errors)
        assert table is not None
        return FoldScores({name: s[:, 0] for name, s in table.items()}, self.is_multimetric)

    def score(
        self, values: Array, side: ScoredRows, trains: Mapping[int, Index]
    ) -> Sequence[Score]:
        """A score, or one for each scorer by name, of every fold.

        Parameters
        ----------
        values : array of shape (N, q)
            Of the rows of ``side``, fold after fold.
        side : ScoredRows
        trains : mapping
            The training rows of folds where they lack a class, by number.
        """
        if trains:
            values = masked(self._target, values, side, trains)
        # By scorer, the scores of all folds that scikit-learn need not be asked for.
        table: dict[str, Scored] = {}
        if self._known and np.isfinite(values).all():
            table = {name: metric(side, values) for name, metric in self._known.items()}
        if len(table) == len(self._scorers) and all(s.is_known.all() for s in table.values()):
            return FoldScores({name: s.scores for name, s in table.items()}, self.is_multimetric)
        results = []
        for i in range(len(side.parts)):
            found = {name: float(s.scores[i]) for name, s in table.items() if s.is_known[i]}
            if len(found) < len(self._scorers):
                found = self._ask(values, side, i, found, trains.get(i))
            results.append(found if self.is_multimetric else found["score"])
        return results

    def _check(self, model: HeldOut) -> None:
        """Raise if no score can be had this way, whatever ``error_score`` is."""
        if model.was_asked_elsewhere:
            model.predict(None)

    def _ask(
        self, values: Array, side: ScoredRows, i: int, found: Params, train: Index | None
    ) -> Params:
        """Let scikit-learn score fold i by what is not known yet.

        ``train`` are the training rows if they lack a class, which a refit does not know either.
        """
        rows = side.parts[i]
        scorer = self._scorer
        if self.is_multimetric:
            rest = {name: item for name, item in self._scorers.items() if name not in found}
            if self._shares_predictions:
                rest = {k: rest.get(k) or KnownAnswer(found[k]) for k in self._scorers}
            scorer = MultimetricScorer(scorers=rest, raise_exc=self._error_score == "raise")
        X, y = take(self._X, rows), take(self._y, rows)
        target, part = self._target, values[side.bounds[i] : side.bounds[i + 1]]
        if train is not None:
            target, part = target.known_by(part, train)
        model = stand_in(X, target, part)
        params = check_method_params(self._X, params=self._params, indices=rows)
        scores = score_estimator(model, X, y, scorer, params, self._error_score)
        self._check(model)
        if not self.is_multimetric:
            return {"score": scores}
        both = {**found, **scores}
        return {name: both[name] for name in self._scorers}


class _Probe(FoldScorer):
    """Finds out whether scorers need more than predictions: any failure is raised."""

    def _check(self, model: HeldOut) -> None:
        super()._check(model)
        if model.missing_attribute:
            raise ValueError(f"the scorer uses {model.missing_attribute!r} of the fitted estimator")


def why_not_judged(
    scorer: Scorer, target: Target, data: Matrix, params: Params, rows: Index
) -> str:
    """Why scorers cannot judge held-out values alone; empty if they can, as scikit-learn's do.

    A function of the user's own gets the estimator itself. It is tried on one that knows the true
    values of some rows, and nothing else.
    """
    side = ScoredRows(target, (rows,))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _Probe(scorer, target, data, params, "raise").score(side.y, side, {})
    except Exception as error:
        return (
            "scoring: held-out predictions are not enough for this scorer "
            f"({type(error).__name__}: {error})"
        )
    return ""


class PooledScorer(FoldScorer):
    """Gives every fold the score of all folds' rows together, for some scorers or all.

    Parameters
    ----------
    judge : FoldScorer
        Of every fold by itself.
    names : collection of str
        The scorers that look at all rows.
    """

    is_pooled = True

    def __init__(self, judge: FoldScorer, names: Collection[str]) -> None:
        self.__dict__.update(judge.__dict__)
        self._base, self._chosen = judge, names
        # The spread of all rows does not follow from those of folds.
        self.needs_errors_only = False
        self._whole = judge.only(names)
        rest = [name for name in self._scorers if name not in names]
        self._rest = judge.only(rest) if rest else None

    @property
    def by_fold(self) -> FoldScorer:
        """See base class."""
        return self._base

    def restrict(self, rows: Index, target: Target) -> FoldScorer:
        """See base class."""
        return self._base.restrict(rows, target).pooled(self._chosen)

    def ordered(self, order: Index, target: Target) -> FoldScorer:
        """See base class."""
        return self._base.ordered(order, target).pooled(self._chosen)

    def by_column(self, values: Array, side: ScoredRows) -> Array | None:
        """See base class."""
        found = self._base.by_column(values, side.together)
        return None if found is None else np.repeat(found, len(side.parts), axis=0)

    def known_scores(self, values: Array, side: ScoredRows) -> Array | None:
        """See base class; what ``side`` has may be several sets of rows."""
        return None

    def _of_target(self, target: Numbers) -> FoldScorer:
        """See base class."""
        return self._base._of_target(target).pooled(self._chosen)

    def score(
        self, values: Array, side: ScoredRows, trains: Mapping[int, Index]
    ) -> Sequence[Score]:
        """See base class."""
        known = masked(self._target, values, side, trains) if trains else values
        (whole,) = self._whole.score(known, side.together, {})
        count = len(side.parts)
        if isinstance(whole, dict) and not self.is_multimetric:  # of a function of the user's
            return [whole] * count
        whole = whole if self.is_multimetric else {"score": whole}
        columns = {name: np.broadcast_to(score, count) for name, score in whole.items()}
        rest = [] if self._rest is None else self._rest.score(values, side, trains)
        if isinstance(rest, FoldScores):
            columns |= rest.columns
        elif rest:
            return [{name: {**own, **whole}[name] for name in self._scorers} for own in rest]
        return FoldScores({name: columns[name] for name in self._scorers}, self.is_multimetric)

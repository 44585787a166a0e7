"""``refit="per_target"``: each of several targets is predicted by the candidate that suits it best.

A store keeps, target by target, the score of every candidate and the held-out values of the best.
After the search one model of each winning candidate is fitted, on the targets that it won.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from everyfold._sklearn_private import safe_indexing
from everyfold._typing import Array, Estimator, Index, Matrix, Scorer, Targets
from everyfold.engine.records import Data, Outcome, mean_score
from everyfold.engine.request import MethodOptions
from everyfold.engine.results import PER_TARGET
from everyfold.search.predictions import WINNERS_OF_TARGETS, KeptValues, PredictionStore


def exact_method(how: MethodOptions, scoring: Scorer, *, is_source: bool) -> MethodOptions:
    """The method of a search with a winner for each target, or an error if there is none.

    A first round at low rank looks for one winner only, so that all candidates are exact.
    """
    if isinstance(scoring, list | tuple | set | dict):
        raise ValueError(
            f"refit={PER_TARGET!r} needs one metric, but scoring has {list(scoring)}; pass one of "
            "them as scoring"
        )
    if how.criterion is not None or is_source:
        what = "a source of rows does" if is_source else "a criterion without folds does"
        raise ValueError(
            f"refit={PER_TARGET!r} needs the held-out values of all candidates, which {what} not "
            "give; use refit=True"
        )
    return replace(how, order="exact") if how.order == "auto" else how


def check_targets(data: Data) -> None:
    """Refuse a single target, labels, and candidates whose held-out values are not known."""
    for task in data.tasks:
        is_of_labels = task.target.classes is not None
        if is_of_labels or task.width < 2:
            raise ValueError(
                f"refit={PER_TARGET!r} needs y with several columns of numbers, but y has "
                f"{'labels' if is_of_labels else 'one column'}; use refit=True"
            )
    if data.foreign:
        number, reason = next(iter(data.foreign.items()))
        raise ValueError(
            f"refit={PER_TARGET!r} needs the held-out values of all candidates, but candidate "
            f"{number} has to be refitted ({reason}); use MultiOutputRegressor around a search of "
            "one target"
        )


@dataclass
class TargetStore(PredictionStore):
    """Keeps the scores of all candidates for every target, and the values of each target's best.

    Attributes
    ----------
    scores : dict
        By candidate, the mean score of every target over the folds.
    """

    scores: dict[int, Array] = field(default_factory=dict)
    _best_scores: Array = field(default_factory=lambda: np.empty(0))
    _best_numbers: Index = field(default_factory=lambda: np.empty(0, dtype=np.intp))

    def take(self, outcome: Outcome, data: Data) -> None:
        """See base class."""
        task, number = data.tasks[data.candidates[outcome.number].task], outcome.number
        if outcome.failures or outcome.values is None:
            self.scores[number] = np.full(task.width, mean_score(outcome, "score"))
            return
        assert task.judge is not None
        values = task.held_out(outcome.values)
        scores = task.judge.by_target(values, task.whole.test).mean(axis=0)
        self.scores[number] = scores
        kept = self._kept.get(WINNERS_OF_TARGETS)
        if kept is None:
            kept = KeptValues.of(outcome, task)
            assert kept is not None
            self._kept[WINNERS_OF_TARGETS] = replace(kept, values=values.copy())
            self._best_scores, self._best_numbers = scores.copy(), np.full(len(scores), number)
            return
        # Candidates come in any order; of equal ones the first of the grid wins.
        is_first = (scores == self._best_scores) & (number < self._best_numbers)
        is_better = is_first | (scores > self._best_scores) | np.isnan(self._best_scores)
        kept.values[:, is_better] = values[:, is_better]
        self._best_scores[is_better], self._best_numbers[is_better] = scores[is_better], number

    def lacks(self, number: int) -> bool:
        """See base class: values are there from the start."""
        return False

    def table_of_targets(self, numbers: Sequence[int]) -> Array:
        """The scores of these candidates for every target; NaN where there is none."""
        missing = np.full(len(next(iter(self.scores.values()))), np.nan)
        return np.array([self.scores.get(number, missing) for number in numbers])


class PerTargetRegressor(RegressorMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Regressors that share the targets: each is fitted on, and predicts, those that are its own.

    What a search with ``refit="per_target"`` has as its ``best_estimator_``.

    Parameters
    ----------
    estimators : list of regressors
    owners : int array of shape (n_targets,)
        Which of the estimators predicts each target.

    Attributes
    ----------
    estimators_ : list of fitted regressors
    n_features_in_, feature_names_in_
        Those of the first, if it has them.
    """

    def __init__(self, estimators: list[Estimator], owners: Index) -> None:
        self.estimators = estimators
        self.owners = owners

    def fit(self, X: Matrix, y: Targets, **params: object) -> PerTargetRegressor:
        """Fit every estimator on its targets; parameters are passed on to all."""
        y = y if hasattr(y, "shape") else np.asarray(y)
        width = np.shape(y)[1] if np.ndim(y) == 2 else 1
        if width != len(self.owners):
            raise ValueError(f"y has {width} columns, but owners has {len(self.owners)}")
        self.estimators_ = [
            clone(estimator).fit(X, safe_indexing(y, targets, axis=1), **params)
            for estimator, targets in zip(self.estimators, self._targets(), strict=True)
        ]
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimators_[0], name):
                setattr(self, name, getattr(self.estimators_[0], name))
        return self

    def predict(self, X: Matrix) -> Array:
        """Predictions of all targets, (n_samples, n_targets)."""
        check_is_fitted(self)
        found: Array | None = None
        for estimator, targets in zip(self.estimators_, self._targets(), strict=True):
            own = np.asarray(estimator.predict(X))
            if found is None:
                found = np.empty((len(own), len(self.owners)))
            found[:, targets] = own.reshape(len(own), -1)
        assert found is not None
        return found

    def _targets(self) -> list[Index]:
        """The targets of each estimator."""
        owners = np.asarray(self.owners)
        return [np.flatnonzero(owners == k) for k in range(len(self.estimators))]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimators[0]).input_tags
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags

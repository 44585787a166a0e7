"""What a fitted search answers: predictions of its winner, held-out ones, and thresholds."""

from __future__ import annotations

from typing import Literal

from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from everyfold.models.private import search_has
from everyfold.models.sources import answers
from everyfold.selection.outoffold import Keeper, OutOfFoldPredictions
from everyfold.selection.threshold import TunedThreshold, tune
from everyfold.types import AnyArray, Estimator, Matrix, Params, Scorer


class WinnerAnswers:
    """The methods of a search that ask its ``best_estimator_``; rows may come from a source."""

    best_estimator_: Estimator
    best_index_: int
    cv_results_: Params
    _keeper: Keeper
    _numbers: list[int]

    def _respond(self, method: str, X: Matrix) -> AnyArray:
        """What the winner makes of rows; those of a source block by block, those of Dask later."""
        check_is_fitted(self)
        work = getattr(self.best_estimator_, method)
        return answers(work, X, self)

    @available_if(search_has("predict"))  # type: ignore[untyped-decorator]
    def predict(self, X: Matrix) -> AnyArray:
        """Predictions of the winner; X may be a source of rows or of Dask."""
        return self._respond("predict", X)

    @available_if(search_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Matrix) -> AnyArray:
        """Decision values of the winner; X may be a source of rows or of Dask."""
        return self._respond("decision_function", X)

    @available_if(search_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Matrix) -> AnyArray:
        """Probabilities of the winner; X may be a source of rows or of Dask."""
        return self._respond("predict_proba", X)

    def out_of_fold(
        self,
        candidate: int | None = None,
        method: Literal["predict", "decision_function", "predict_proba"] = "predict",
    ) -> OutOfFoldPredictions:
        """Out-of-fold predictions of a candidate, as its scores were made of.

        Parameters
        ----------
        candidate : int, optional
            Its index in ``cv_results_``; the best if None. Others than the best need
            ``keep_predictions="all"``.
        method : {"predict", "decision_function", "predict_proba"}, default="predict"
            Probabilities for the logistic loss only.

        Returns
        -------
        predictions : OutOfFoldPredictions
            ``values`` and their ``spread`` over repeated folds, in the order of the rows, beside
            ``repeats``, ``is_exact`` and ``status``. Rows that no fold held out are NaN; of labels
            they are refused.
        """
        index, results = self._index(candidate), self.cv_results_
        is_exact, status = bool(results["is_exact"][index]), str(results["status"][index])
        return self._keeper.read(self._numbers[index], method, is_exact=is_exact, status=status)

    def tune_threshold(
        self,
        scoring: Scorer = "balanced_accuracy",
        *,
        candidate: int | None = None,
        thresholds: int | ArrayLike = 100,
    ) -> TunedThreshold:
        """The threshold of decision values that is best for the held-out rows, for two classes.

        What :class:`sklearn.model_selection.TunedThresholdClassifierCV` finds, with one
        difference: it averages the curves of the folds, and here all held-out values are one
        curve, so that small folds do no harm. Nothing is fitted. Predict with it by
        ``FixedThresholdClassifier(search.best_estimator_, threshold=...,
        response_method="decision_function")``, and ``pos_label`` if the scorer has one.

        Parameters
        ----------
        scoring : str or scorer, default="balanced_accuracy"
            What is to be best; of predicted labels. "f1", "precision" and their kin are scores of
            the class 1; for others name it: ``make_scorer(f1_score, pos_label="yes")``.
        candidate : int, optional
            As in ``out_of_fold``.
        thresholds : int or array, default=100
            How many between the smallest and the largest value are tried, or which.

        Returns
        -------
        tuned : TunedThreshold
            ``best_threshold`` and ``best_score``, which can be unpacked.
        """
        index = self._index(candidate)
        found = self._keeper.labelled(self._numbers[index])
        return tune(*found, scoring, thresholds)

    def _index(self, candidate: int | None) -> int:
        """A candidate's place in the table; the best by default."""
        check_is_fitted(self, "cv_results_")
        if candidate is None and not hasattr(self, "best_index_"):
            raise ValueError("the search has no best candidate; name one: candidate=0, 1, ...")
        if candidate is None:
            return int(self.best_index_)
        count = len(self._numbers)
        if not -count <= candidate < count:
            raise ValueError(
                f"candidate {candidate} is not in cv_results_, which has {count}; use 0 to "
                f"{count - 1}"
            )
        return range(count)[candidate]

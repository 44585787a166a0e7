"""Methods of a fitted search: predictions of its winner, out-of-fold predictions, thresholds."""

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
    """Methods of a search that use its ``best_estimator_``; rows may come from a source."""

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
            ``keep_predictions="all"``.
        method : {"predict", "decision_function", "predict_proba"}, default="predict"
            Probabilities are available for the logistic loss only.

        Returns
        -------
        predictions : OutOfFoldPredictions
            ``values`` in the order of the rows, their ``spread`` over repeated folds, ``repeats``,
            ``is_exact`` and ``status``. Rows that were never held out are NaN, labels included.
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
        """Find the threshold of decision values with the best score of held-out rows (two classes).

        This is what :class:`sklearn.model_selection.TunedThresholdClassifierCV` does, with one
        difference: that class averages the score curves of the folds, whereas here all held-out
        values give one curve, so that small folds are no problem. Nothing is fitted. To predict
        with the threshold, use ``FixedThresholdClassifier(search.best_estimator_, threshold=...,
        response_method="decision_function")``, and ``pos_label`` if the scorer has one.

        Parameters
        ----------
        scoring : str or scorer, default="balanced_accuracy"
            The score to maximise; it must need predicted labels only. "f1", "precision" and similar
            scores are those of class 1; for other labels, name the positive class:
            ``make_scorer(f1_score, pos_label="yes")``.
        candidate : int, optional
            As in ``out_of_fold``.
        thresholds : int or array, default=100
            The number of thresholds to try between the smallest and the largest value, or the
            thresholds themselves.

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

"""What a fitted search answers: predictions of its winner, for arrays and for sources of rows."""

from __future__ import annotations

from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from everyfold.models.private import search_has
from everyfold.models.sources import answers
from everyfold.types import AnyArray, Estimator, Matrix


class WinnerAnswers:
    """The methods of a search that ask its ``best_estimator_``; rows may come from a source."""

    best_estimator_: Estimator

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

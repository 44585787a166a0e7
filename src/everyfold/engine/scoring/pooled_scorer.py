"""Scorers whose score is that of all held-out rows together, and not a mean over the folds.

Most scores of single rows are undefined or are not what their name says, such as R² and RMSE. Their
value for all held-out rows together exists even for leave-one-out.
"""

from __future__ import annotations

from dataclasses import dataclass

from sklearn.metrics import check_scoring

from everyfold._progress import check_choice
from everyfold._typing import Estimator, Matrix, Pooled, Scorer, Targets


@dataclass(frozen=True)
class PooledScoring:
    """A scorer, and whether the score of all held-out rows together is used for every split.

    Outside this library, as in scikit-learn's own searches, it is the scorer itself.
    """

    scoring: Scorer
    is_pooled: bool = True

    def __call__(
        self, estimator: Estimator, X: Matrix, y: Targets = None, **params: object
    ) -> float:
        """The score of a fitted estimator, as scikit-learn's own searches ask for it."""
        scorer = check_scoring(estimator, scoring=self.scoring)
        return scorer(estimator, X, y, **params)  # type: ignore[no-any-return]


def pooled(scoring: Scorer = None, is_pooled: bool = True) -> PooledScoring:
    """Score all held-out rows together, and use that score for every split.

    By default this is done only if test sets have one row and the score of a single row is
    undefined or is not what its name says (R², RMSE, ROC, …).

    Parameters
    ----------
    scoring : str, callable, list, tuple, dict or None, default=None
        What ``scoring=`` may be; None means the estimator's own score.
    is_pooled : bool, default=True
        False never pools: where that leaves no score at all, an error is raised, and in the other
        cases there is a warning.

    Returns
    -------
    scorer : PooledScoring
        To be passed as ``scoring=``.

    Examples
    --------
    >>> from everyfold import cross_val_score
    >>> from everyfold.scorers import pooled
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = KernelRidge(alpha=0.1, kernel="rbf")
    >>> cross_val_score(model, X, y - y.mean(), cv=3, scoring=pooled("r2")).round(2)
    array([0.46, 0.46, 0.46])
    """
    if isinstance(scoring, PooledScoring):
        scoring = scoring.scoring
    check_choice("is_pooled", is_pooled, (True, False))
    return PooledScoring(scoring, bool(is_pooled))


def read_pooled(scoring: Scorer) -> tuple[Scorer, Pooled]:
    """A ``scoring`` without its pooling, and whether scores are pooled."""
    if isinstance(scoring, PooledScoring):
        return scoring.scoring, scoring.is_pooled
    several = list(scoring.values()) if isinstance(scoring, dict) else []
    found = {own.is_pooled for own in several if isinstance(own, PooledScoring)}
    if not found:
        return scoring, "auto"
    if len(found) > 1 or not all(isinstance(own, PooledScoring) for own in several):
        raise ValueError(
            "scoring: all scores of a search are pooled, or none is; use pooled({...}) for all of "
            "them, or separate searches"
        )
    return {name: own.scoring for name, own in scoring.items()}, found.pop()

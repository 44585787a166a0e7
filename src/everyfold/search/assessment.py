"""Methods of a search that judge its results: each is a function of ``everyfold.judge``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from numpy.typing import ArrayLike

from everyfold._typing import Array, Mask, Matrix, Scorer, Splitter, Targets
from everyfold.judge import differences, findings, fitted, honest, threshold


class JudgedSearch:
    """The part of a search that judges its own results."""

    def honest_score(
        self,
        method: Literal["bbc", "nested", "repeated"] = "bbc",
        X: Matrix = None,
        y: Targets = None,
        *,
        confidence: float = 0.95,
        outer: Splitter = None,
        n_repeats: int = 5,
        n_bootstraps: int = 1000,
        random_state: int | None = 0,
        **params: object,
    ) -> honest.HonestScore:
        """Estimate the score of the selected model on new rows, without selection bias.

        The arguments and the result are those of :func:`everyfold.judge.honest_score`.
        """
        return honest.honest_score(
            self,
            method,
            X,
            y,
            confidence=confidence,
            outer=outer,
            n_repeats=n_repeats,
            n_bootstraps=n_bootstraps,
            random_state=random_state,
            **params,
        )

    def fold_scores(self, candidate: int | None = None, name: str | None = None) -> Array:
        """The scores of all folds of a candidate: see :func:`everyfold.judge.fold_scores`.

        With up to 1,000 folds these are also columns of ``cv_results_``; with more they are only
        available here.
        """
        return fitted.fold_scores(self, candidate, name)

    def compare(
        self,
        i: int,
        j: int,
        *,
        metric: str | None = None,
        confidence: float = 0.95,
        margin: float = 0.0,
    ) -> differences.Comparison:
        """Compare two candidates by the corrected resampled t-test: see :func:`compare`."""
        return differences.compare(
            i, j, search=self, metric=metric, level=confidence, margin=margin
        )

    def significantly_worse(self, confidence: float = 0.95, *, metric: str | None = None) -> Mask:
        """Which candidates are significantly worse than the best.

        See :func:`everyfold.judge.significantly_worse`.
        """
        return differences.significantly_worse(self, confidence, metric=metric)

    def tune_threshold(
        self,
        scoring: Scorer = "balanced_accuracy",
        *,
        candidate: int | None = None,
        thresholds: int | ArrayLike = 100,
    ) -> threshold.TunedThreshold:
        """Find the threshold of decision values with the best score of held-out rows (two classes).

        The arguments and the result are those of :func:`everyfold.judge.tune_threshold`; nothing is
        fitted.
        """
        return threshold.tune_threshold(self, scoring, candidate=candidate, thresholds=thresholds)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        ids: ArrayLike | None = None,
        honest: honest.HonestScore | None = None,
        title: str | None = None,
    ) -> Path:
        """Write a report of the search, one HTML file: see :func:`everyfold.judge.report`."""
        return findings.report(self, path, ids=ids, honest=honest, title=title)

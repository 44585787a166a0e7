"""What grid and randomised search share: scikit-learn's contract around units of work."""

from __future__ import annotations

import time
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from sklearn.base import _fit_context, clone, is_classifier
from sklearn.metrics._scorer import _MultimetricScorer
from sklearn.model_selection import GridSearchCV, check_cv
from sklearn.model_selection._search import BaseSearchCV
from sklearn.model_selection._validation import (
    _insert_error_scores,
    _warn_or_raise_about_fit_failures,
)
from sklearn.utils import Bunch, get_tags, indexable
from sklearn.utils.validation import _check_method_params, check_consistent_length

from everyfold.criteria import Folds
from everyfold.operators.base import Array
from everyfold.preprocess import read_rows, take_apart
from everyfold.search.candidates import Options, Readable, read_candidates
from everyfold.search.ladder import climbs, ladder
from everyfold.search.progress import Progress
from everyfold.search.record import summarise
from everyfold.search.setup import MANY_FOLDS, Setup, StreamSetup, set_up_table
from everyfold.streaming import set_up_stream
from everyfold.streams import RowSource
from everyfold.units import Candidate, Verdict
from everyfold.validation import read_folds, warn_if_inexact

AUTO_CONFIRM = 3
"""How many candidates are refitted by default if the winner's score is not exact."""


@dataclass
class _Run:
    """One call of fit: what it was given and what it has found so far."""

    X: Any
    y: Any
    routed: Bunch
    scorers: Any
    metric: Any
    params: list[dict[str, Any]]
    broken: dict[int, str]
    start: float
    setup: Setup | StreamSetup
    progress: Progress
    verdicts: dict[int, Verdict] = field(default_factory=dict)

    @property
    def finished(self) -> list[int]:
        """The candidates that have an outcome, in order."""
        return sorted({*self.verdicts, *self.broken})


class FastSearchCV(BaseSearchCV):  # type: ignore[misc]
    """Base of the searches; everything not defined here is scikit-learn's own."""

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012
        name: rule
        for name, rule in BaseSearchCV._parameter_constraints.items()
        if name != "pre_dispatch"
    }

    @abstractmethod
    def _candidates(self) -> Iterable[dict[str, Any]]:
        """The parameters to try."""

    @_fit_context(prefer_skip_nested_validation=False)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, **params: Any) -> FastSearchCV:
        """Evaluate all candidates and refit the best.

        Parameters
        ----------
        X : {array, CSR matrix, data frame} of shape (n_samples, n_features)
            Or the kernel matrix, (n_samples, n_samples), for ``kernel="precomputed"``; or a
            source of rows (:mod:`everyfold.streams`) with its targets, without ``y``.
        y : array of shape (n_samples,) or (n_samples, n_targets)
        **params
            ``sample_weight`` (for a Pipeline ``step__sample_weight``) and ``groups``, or whatever
            the objects request if metadata routing is enabled.

        Returns
        -------
        self

        Raises
        ------
        KeyboardInterrupt
            If interrupted. What had been finished by then is in the usual attributes, the best of
            it refitted.
        """
        start = time.perf_counter()
        options = self._options()
        scorers, metric = self._get_scorers()
        grid = list(self._candidates())
        readable, broken = read_candidates(self.estimator, grid, options)
        if not isinstance(X, RowSource):
            X, y = indexable(X, y)
            params = _check_method_params(X, params=params)
        routed = self._get_routed_params_for_fit(params)
        setup = self._set_up(X, y, routed, readable, scorers, options)
        progress = Progress(self, (X, y), setup.n_kernels, len(grid))
        if isinstance(setup, Setup) and climbs(setup, options):
            setup = ladder(setup, metric)
        state = _Run(X, y, routed, scorers, metric, grid, broken, start, setup, progress)
        try:
            self._evaluate(state)
        except KeyboardInterrupt:
            self._keep_what_is_finished(state)
            raise
        progress.end_search()
        self._finish(state, options)
        progress.end()
        return self

    def _options(self) -> Options:
        return Options(
            self.order,
            self.operator,
            self.ridge_scaling,
            self.n_confirm,
            self.preprocessing,
            self.error_score,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags = deepcopy(get_tags(self.estimator).target_tags)
        return tags

    # -- before the work -----------------------------------------------------------------------

    def _set_up(
        self,
        X: Any,
        y: Any,
        routed: Bunch,
        readable: Sequence[Readable],
        scorers: Any,
        options: Options,
    ) -> Setup | StreamSetup:
        """Read data and folds, and cut the work into units."""
        candidates = [item.candidate(routed.estimator.fit) for item in readable]
        if isinstance(X, RowSource):
            return self._set_up_source(X, y, candidates, scorers, options)
        candidates[0].model.target(y)  # raises what is wrong with y before the folds are read
        has_steps = any(candidate.parts.steps for candidate in candidates)
        is_foreign = any(candidate.model.choice.takes_any_rows for candidate in candidates)
        rows = X if has_steps or is_foreign else read_rows(X, self.estimator)
        check_consistent_length(rows, y)
        folds = self._folds(rows, y, routed.splitter.split, has_steps)
        judge = scorers, self.return_train_score
        return set_up_table((X, y), rows, folds, routed, candidates, options, judge)

    def _set_up_source(
        self, source: RowSource, y: Any, candidates: list[Candidate], scorers: Any, options: Options
    ) -> StreamSetup:
        options.check_source(y, self.return_train_score)
        if not hasattr(self.estimator, "_model"):
            raise ValueError(
                f"{type(self.estimator).__name__} cannot be fitted to a source of rows; use "
                "KernelRegressor, LSSVR, KernelClassifier or LSSVC"
            )
        several = isinstance(scorers, _MultimetricScorer)
        judge = scorers._scorers if several else {"score": scorers}, several, self.error_score
        return StreamSetup(set_up_stream(source, self.cv, candidates, judge), candidates)

    def _folds(self, X: Any, y: Any, split: dict[str, Any], literal: bool) -> Folds:
        classifier = is_classifier(self.estimator)
        # The splits are drawn once: a generator can be read only once, and a random splitter
        # would draw others the next time.
        self._checked_cv_orig = check_cv(self.cv, y, classifier=classifier)
        self.n_splits_ = self._checked_cv_orig.get_n_splits(X, y, **split)
        folds = read_folds(self._checked_cv_orig, X, y, split, literal=literal)
        if len(folds) != self.n_splits_:
            raise ValueError(
                "cv.split and cv.get_n_splits return inconsistent results. Expected "
                f"{self.n_splits_} splits, got {len(folds)}"
            )
        return folds

    # -- the work ------------------------------------------------------------------------------

    def _evaluate(self, state: _Run) -> None:
        state.progress.begin(state.setup)
        for verdicts in state.setup.work(self.n_jobs):
            is_new = any(verdict.number not in state.verdicts for verdict in verdicts)
            for verdict in verdicts:
                if verdict.errors and self.error_score == "raise":
                    assert verdict.exception is not None
                    raise verdict.exception
                state.verdicts[verdict.number] = verdict
            if is_new:
                state.progress.advance(len(state.verdicts))
            else:
                state.progress.refine(len(verdicts))

    # -- after the work ------------------------------------------------------------------------

    def _finish(self, state: _Run, options: Options) -> None:
        results, exact = self._tabulate(state)
        warn_if_inexact(list(state.verdicts.values()))
        self._choose(state, results)
        confirmed = self._confirm(state, results, exact, options)
        if hasattr(self, "best_index_") and results["is_identity"][self.best_index_]:
            warnings.warn(
                f"the kernel of the best candidate, {self.best_params_}, is numerically the "
                "identity: every row is like itself only, and all new rows get the same "
                "prediction. Its width does not fit the data: search smaller values of gamma, or "
                "standardise the features.",
                UserWarning,
                stacklevel=5,
            )
        self._record(state, results, exact, confirmed)
        if self.refit:
            self._refit_best(state)

    def _keep_what_is_finished(self, state: _Run) -> None:
        """Leave a usable object behind: the finished candidates and the best of them."""
        if not state.verdicts:
            return
        warnings.warn(
            f"the search was interrupted: cv_results_ has {len(state.finished)} of "
            f"{len(state.params)} candidates, and best_estimator_ is the best of these",
            UserWarning,
            stacklevel=4,
        )
        results, exact = self._tabulate(state)
        self._choose(state, results)
        results["confirmed_test_score"] = np.full(len(results["params"]), np.nan)
        self._record(state, results, exact, 0, ("interrupted before all candidates were done",))
        if self.refit:
            self._refit_best(state)

    def _tabulate(self, state: _Run) -> tuple[dict[str, Any], Array]:
        """``cv_results_`` of the finished candidates, by scikit-learn's own hand."""
        self.n_splits_ = len(state.setup.sizes)
        out = list(chain.from_iterable(self._entries(state, k) for k in state.finished))
        _warn_or_raise_about_fit_failures(out, self.error_score)
        if callable(self.scoring):
            _insert_error_scores(out, self.error_score)
        params = [state.params[number] for number in state.finished]
        results: dict[str, Any] = self._format_results(params, self.n_splits_, out)
        self.multimetric_ = isinstance(out[0]["test_scores"], dict)
        if callable(self.scoring) and self.multimetric_:
            self._check_refit_for_multimetric(out[0]["test_scores"])
            state.metric = self.refit
        exact = np.array([_is_exact(state, number) for number in state.finished], dtype=bool)
        results["is_exact"] = exact
        results["status"] = np.array([_status(state, k) for k in state.finished], dtype=object)
        results["is_identity"] = np.array([_is_identity(state, k) for k in state.finished])
        results["spectral_radius"] = np.array([_radius(state, k) for k in state.finished])
        return results, exact

    def _entries(self, state: _Run, number: int) -> list[dict[str, Any]]:
        """What scikit-learn's table wants to know of each fold of one candidate."""
        verdict, sizes = state.verdicts.get(number), state.setup.sizes
        if verdict is None:
            failed = {
                "fit_error": state.broken[number],
                "test_scores": self._failed_score(state.scorers),
                "fit_time": 0.0,
                "score_time": 0.0,
            }
            if self.return_train_score:
                failed["train_scores"] = self._failed_score(state.scorers)
            return [{**failed, "n_test_samples": size} for size in sizes]
        folds = partial(zip, verdict.test, sizes, strict=True)
        shared = {
            "fit_error": None,
            "fit_time": verdict.fit_seconds / len(sizes),
            "score_time": verdict.score_seconds / len(sizes),
        }
        if verdict.train is None and not verdict.errors and isinstance(verdict.test[0], float):
            # Thousands of folds of one row have few different scores, and nobody writes to these.
            known = {
                (score, size): {**shared, "test_scores": score, "n_test_samples": size}
                for score, size in set(folds())
            }
            return list(map(known.__getitem__, folds()))
        entries = [
            {**shared, "test_scores": score, "n_test_samples": size} for score, size in folds()
        ]
        if verdict.train is not None:
            for entry, score in zip(entries, verdict.train, strict=True):
                entry["train_scores"] = score
        for i, error in verdict.errors.items():
            failed_score = self._failed_score(state.scorers)
            entries[i] |= {"fit_error": error, "test_scores": failed_score}
            if self.return_train_score:
                entries[i]["train_scores"] = failed_score
        return entries

    def _failed_score(self, scorers: Any) -> Any:
        if isinstance(scorers, _MultimetricScorer):
            return dict.fromkeys(scorers._scorers, self.error_score)
        return self.error_score

    def _choose(self, state: _Run, results: dict[str, Any]) -> None:
        if not self.refit and self.multimetric_:
            return
        self.best_index_ = self._select_best_index(self.refit, state.metric, results)
        if not callable(self.refit):
            self.best_score_ = results[f"mean_test_{state.metric}"][self.best_index_]
        self.best_params_ = results["params"][self.best_index_]

    def _confirm(self, state: _Run, results: dict[str, Any], exact: Array, options: Options) -> int:
        """Refit the best candidates on every fold, and let that decide between them."""
        confirmed = np.full(len(results["params"]), np.nan)
        results["confirmed_test_score"] = confirmed
        k = self._number_to_confirm(state, results, exact, options)
        if k == 0 or isinstance(state.setup, StreamSetup):
            return 0
        best = np.argsort(results[f"rank_test_{state.metric}"], kind="stable")[:k]
        metadata = {**state.routed.estimator.fit, **state.routed.scorer.score}
        search = GridSearchCV(
            self.estimator,
            [{name: [value] for name, value in results["params"][i].items()} for i in best],
            scoring=self.scoring,
            n_jobs=self.n_jobs,
            refit=False,
            cv=[(fold.train, fold.test) for fold in state.setup.folds],
            error_score=self.error_score,
        ).fit(state.X, state.y, **metadata)
        confirmed[best] = search.cv_results_[f"mean_test_{state.metric}"]
        if not callable(self.refit) and not np.isnan(confirmed[best]).all():
            self.best_index_ = best[np.nanargmax(confirmed[best])]
            self.best_score_ = confirmed[self.best_index_]
            self.best_params_ = results["params"][self.best_index_]
        return k

    def _number_to_confirm(
        self, state: _Run, results: dict[str, Any], exact: Array, options: Options
    ) -> int:
        if not hasattr(self, "best_index_"):
            return 0
        if options.n_confirm != "auto":
            return min(int(options.n_confirm), len(exact))
        is_settled = exact[self.best_index_] or not state.setup.is_per_fold
        methods = [verdict.method for verdict in state.verdicts.values()]
        is_settled |= any(method is not None and method.is_of_another_model for method in methods)
        if is_settled or callable(self.refit) or options.ridge_scaling == "mean":
            return 0
        return min(AUTO_CONFIRM, len(exact)) if self.n_splits_ <= MANY_FOLDS else 0

    def _record(
        self,
        state: _Run,
        results: dict[str, Any],
        exact: Array,
        confirmed: int,
        notes: Sequence[str] = (),
    ) -> None:
        scorers = state.scorers
        self.scorer_ = scorers._scorers if isinstance(scorers, _MultimetricScorer) else scorers
        self.cv_results_ = results
        setup = state.setup
        self.plan_ = summarise(
            setup,
            [state.verdicts[number] for number in sorted(state.verdicts)],
            exact=int(np.count_nonzero(exact)),
            seconds=time.perf_counter() - state.start,
            confirmed=confirmed,
            notes=[*setup.notes, *notes],
        )

    def _refit_best(self, state: _Run) -> None:
        best = clone(self.estimator).set_params(**clone(self.best_params_, safe=False))
        if self.ridge_scaling == "mean":
            _scale_ridge(best, state)
        self.best_estimator_ = best
        start = time.perf_counter()
        state.progress.refit(best, state.routed.estimator.fit)
        self.refit_time_ = time.perf_counter() - start
        if hasattr(best, "feature_names_in_"):
            self.feature_names_in_ = best.feature_names_in_


def _is_exact(state: _Run, number: int) -> bool:
    """Whether a candidate's every score is that of refitting its whole Pipeline."""
    verdict = state.verdicts.get(number)
    if verdict is None or verdict.record is None or verdict.errors:
        return False
    is_prepared_alike = state.setup.is_per_fold or not state.setup.has_steps
    return is_prepared_alike and bool(verdict.record.is_exact.all())


def _status(state: _Run, number: int) -> str:
    """How certain a candidate's scores are."""
    verdict = state.verdicts.get(number)
    if verdict is None or (verdict.errors and verdict.record is None):
        return "failed"
    if _is_exact(state, number):
        return "exact"
    return verdict.status or "estimated"


def _is_identity(state: _Run, number: int) -> bool:
    verdict = state.verdicts.get(number)
    return verdict is not None and verdict.is_identity


def _radius(state: _Run, number: int) -> float:
    verdict = state.verdicts.get(number)
    if verdict is None or verdict.record is None:
        return np.nan
    radius = verdict.record.spectral_radius
    return float(np.nanmax(radius)) if np.isfinite(radius).any() else np.nan


def _scale_ridge(estimator: Any, state: _Run) -> None:
    """The ridge of all rows in the "mean" convention, which estimators do not know."""
    final = take_apart(estimator, {}).final
    n = state.setup.n_weighted
    if getattr(final, "C", None) is not None:
        final.set_params(C=final.C / n)
    else:
        final.set_params(alpha=np.multiply(final.alpha, n))

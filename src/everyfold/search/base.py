"""What grid and randomised search share: scikit-learn's contract around units of work."""

from __future__ import annotations

import time
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
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
from sklearn.utils.validation import _check_method_params, _num_samples, check_consistent_length

from everyfold.criteria import Folds, InexactWarning
from everyfold.engines import Bench
from everyfold.execute import map_unordered
from everyfold.model import read_weights
from everyfold.operators.base import Array
from everyfold.preprocess import freeze, read_rows, take_apart
from everyfold.scoring import Judge
from everyfold.search.candidates import Options, Readable, read_candidates
from everyfold.search.progress import Progress
from everyfold.search.record import summarise
from everyfold.units import Candidate, Rawdata, Unit, Verdict, group, run, set_up
from everyfold.validation import read_fit_params, read_folds, warn_if_inexact

MANY_FOLDS = 20
"""Beyond this many folds, preparing the rows of each anew costs more than the rest."""

AUTO_CONFIRM = 3
"""How many candidates are refitted by default if the winner's score is not exact."""


@dataclass(frozen=True)
class _Setup:
    """What a search is about to do, all of it decided."""

    data: Rawdata
    folds: Folds
    units: list[Unit]
    is_per_fold: bool
    has_steps: bool
    notes: tuple[str, ...]


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
    setup: _Setup
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
            Or the kernel matrix, (n_samples, n_samples), for ``kernel="precomputed"``.
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
        X, y = indexable(X, y)
        params = _check_method_params(X, params=params)
        routed = self._get_routed_params_for_fit(params)
        setup = self._set_up(X, y, routed, readable, scorers, options)
        progress = Progress(self, (X, y), len(setup.units), len(grid))
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
    ) -> _Setup:
        """Read data and folds, and cut the work into units."""
        candidates = [item.candidate(routed.estimator.fit) for item in readable]
        candidates[0].model.target(y)  # raises what is wrong with y before the folds are read
        has_steps = any(candidate.parts.steps for candidate in candidates)
        rows = X if has_steps else read_rows(X, self.estimator)
        n = _num_samples(rows)
        check_consistent_length(rows, y)
        weights = read_weights(read_fit_params(candidates[0].parts).get("sample_weight"), n)
        folds = self._folds(rows, y, routed.splitter.split, has_steps)
        is_per_fold, notes = _decide_preprocessing(candidates, rows, folds, options)
        if not is_per_fold:
            folds = Folds.from_splits(((fold.train, fold.test) for fold in folds), n)
        _check_order(options, folds, has_steps and is_per_fold, self.return_train_score)
        data = Rawdata(rows, y, n, is_per_fold)
        units = []
        for alike in _by_target(candidates):
            target = alike[0].model.target(y)
            trial = set_up(
                Bench(target, weights, folds, options.order),
                Judge(scorers, target, (X, y), routed.scorer.score, self.error_score),
                with_train=self.return_train_score,
            )
            units += group(alike, data, trial)
        return _Setup(data, folds, units, is_per_fold, has_steps, notes)

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
        state.progress.begin(len(state.setup.folds))
        units = state.setup.units
        for verdicts in map_unordered(run, units, self.n_jobs, state.setup.data.n):
            for verdict in verdicts:
                if verdict.errors and self.error_score == "raise":
                    assert verdict.exception is not None
                    raise verdict.exception
                state.verdicts[verdict.number] = verdict
            state.progress.advance(len(state.verdicts))

    # -- after the work ------------------------------------------------------------------------

    def _finish(self, state: _Run, options: Options) -> None:
        results, exact = self._tabulate(state)
        warn_if_inexact(list(state.verdicts.values()))
        self._choose(state, results)
        confirmed = self._confirm(state, results, exact, options)
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
        out = [entry for number in state.finished for entry in self._entries(state, number)]
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
        results["spectral_radius"] = np.array([_radius(state, k) for k in state.finished])
        return results, exact

    def _entries(self, state: _Run, number: int) -> list[dict[str, Any]]:
        """What scikit-learn's table wants to know of each fold of one candidate."""
        n_folds, folds = self.n_splits_, state.setup.folds
        verdict = state.verdicts.get(number)
        failed = self._failed_score(state.scorers)
        entries = []
        for i in range(n_folds):
            error = state.broken[number] if verdict is None else verdict.errors.get(i)
            entry = {"fit_error": error, "test_scores": failed}
            if self.return_train_score:
                entry["train_scores"] = failed
            if verdict is not None and error is None:
                entry["test_scores"] = verdict.test[i]
                if verdict.train is not None:
                    entry["train_scores"] = verdict.train[i]
            entry["n_test_samples"] = len(folds.tests[i])
            entry["fit_time"] = 0.0 if verdict is None else verdict.fit_seconds / n_folds
            entry["score_time"] = 0.0 if verdict is None else verdict.score_seconds / n_folds
            entries.append(entry)
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
        if k == 0:
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
        return min(AUTO_CONFIRM, len(exact)) if len(state.setup.folds) <= MANY_FOLDS else 0

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
            setup.units,
            [state.verdicts[number] for number in sorted(state.verdicts)],
            preprocessing=_preprocessing_words(setup),
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


def _by_target(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Candidates that read y alike: all of them, unless the grid has several ways to vote."""
    found: dict[Any, list[Candidate]] = {}
    for candidate in candidates:
        found.setdefault(freeze(candidate.model.voting), []).append(candidate)
    return list(found.values())


def _is_exact(state: _Run, number: int) -> bool:
    """Whether a candidate's every score is that of refitting its whole Pipeline."""
    verdict = state.verdicts.get(number)
    if verdict is None or verdict.record is None or verdict.errors:
        return False
    is_prepared_alike = state.setup.is_per_fold or not state.setup.has_steps
    return is_prepared_alike and bool(verdict.record.is_exact.all())


def _radius(state: _Run, number: int) -> float:
    verdict = state.verdicts.get(number)
    if verdict is None or verdict.record is None:
        return np.nan
    radius = verdict.record.spectral_radius
    return float(np.nanmax(radius)) if np.isfinite(radius).any() else np.nan


def _scale_ridge(estimator: Any, state: _Run) -> None:
    """The ridge of all rows in the "mean" convention, which estimators do not know."""
    final = take_apart(estimator, {}).final
    n = int(np.count_nonzero(state.setup.units[0].trial.bench.weights))
    if getattr(final, "C", None) is not None:
        final.set_params(C=final.C / n)
    else:
        final.set_params(alpha=np.multiply(final.alpha, n))


def _decide_preprocessing(
    candidates: Sequence[Candidate], X: Any, folds: Folds, options: Options
) -> tuple[bool, tuple[str, ...]]:
    """Whether each fold prepares its own rows, and what is to be said about it."""
    if not any(candidate.parts.steps for candidate in candidates):
        return True, ()
    if options.preprocessing == "per_fold":
        return True, ()
    if options.preprocessing == "auto" and len(folds) <= MANY_FOLDS:
        return True, ()
    different = {candidate.parts.key: candidate.parts for candidate in candidates}
    is_supervised = any(parts.need_y(X) for parts in different.values())
    if options.preprocessing == "once" and is_supervised:
        raise ValueError(
            "preprocessing='once' fits the steps on all rows, but some of them look at y, which "
            "would leak into every fold; use preprocessing='per_fold'"
        )
    if options.preprocessing == "once" or is_supervised:
        return is_supervised, ()
    note = (
        f"with {len(folds)} folds the steps of the Pipeline were fitted once, on all rows, and not "
        f"on each fold's training rows as GridSearchCV does"
    )
    advice = "; pass preprocessing='per_fold' for that, or 'once' to agree"
    warnings.warn(note + advice, InexactWarning, stacklevel=5)
    return False, (note,)


def _preprocessing_words(setup: _Setup) -> str:
    if not setup.has_steps:
        return "none"
    if setup.is_per_fold:
        return "steps fitted on the training rows of each fold, once for all candidates alike"
    return "steps fitted once, on all rows: folds are not wholly independent of their test rows"


def _check_order(options: Options, folds: Folds, is_prepared: bool, with_train: bool) -> None:
    if not options.is_finite:
        return
    for is_wrong, what in (
        (is_prepared, "steps that are fitted per fold; use preprocessing='once'"),
        (with_train, "training scores; use return_train_score=False"),
        (not folds.are_removable, "folds that do not just remove rows; use another cv"),
    ):
        if is_wrong:
            raise ValueError(
                f"order={options.order!r} is not available with {what} or order='auto'"
            )

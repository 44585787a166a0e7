"""What grid search and random search have in common: scikit-learn's interface.

``fit`` reads its arguments into a ``Request``, executes the plan, makes ``cv_results_`` of the
outcomes and fits the winner to all rows.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.utils import Tags, get_tags

from everyfold._progress import warn
from everyfold._sklearn_private import BaseSearchCV, MultimetricScorer, fit_context
from everyfold._typing import Matrix, Params, Pooled, Scorer, Targets
from everyfold.adapters.pipelines import final_step, with_final_step
from everyfold.adapters.scaling import fit_to_source
from everyfold.adapters.sklearn import fast_version_of
from everyfold.engine.adaptive.rank_search import with_rank
from everyfold.engine.checkpoint import opened
from everyfold.engine.execution.executor import execute
from everyfold.engine.execution.refits import refitted_again, with_values
from everyfold.engine.planning.plan import SearchPlan
from everyfold.engine.planning.planner import plan
from everyfold.engine.reading.reader import not_sped_up, read
from everyfold.engine.records import REFITTED, Data, Outcome, drop_values, mean_score
from everyfold.engine.renamed_parameters import RenamedParameters
from everyfold.engine.request import Metadata, MethodOptions, Options, Request, RequestedOutputs
from everyfold.engine.results import (
    ONE_STANDARD_ERROR,
    PER_TARGET,
    RULES,
    ResultsTable,
    best_index,
    check_rule,
    check_spread,
    check_weightless,
    is_rule,
    read_fold,
    scale_ridge,
    set_rank,
    tabulate,
    warn_if_inexact,
)
from everyfold.engine.scoring.fold_scorers import column
from everyfold.engine.scoring.pooled_scorer import read_pooled
from everyfold.engine.source_data import kept_fit
from everyfold.io import RowSource
from everyfold.io.conversion import as_rows
from everyfold.judge.differences import Comparison, compare, significantly_worse
from everyfold.judge.findings import report
from everyfold.judge.fitted import Unit, fold_scores, groups_of, ratio_of_splits, tune_threshold
from everyfold.judge.honest import honest_score
from everyfold.judge.verdicts import ResultView
from everyfold.search.hints import Remark, constant_remark, edge_remarks, identity_remark
from everyfold.search.per_target import (
    PerTargetRegressor,
    TargetStore,
    check_targets,
    exact_method,
)
from everyfold.search.predictions import (
    FitInputs,
    LateValues,
    PredictionStore,
    WinnerAnswers,
    evaluate_again,
)
from everyfold.search.progress import Contexts, Progress

# Where scikit-learn keeps the callbacks of an estimator, and the task that it is a part of.
_OF_CALLBACKS = "_skl_callbacks", "_parent_callback_ctx"


@dataclass
class _Run:
    """One call of fit: what it was given and what it has found so far."""

    request: Request
    scorer: Scorer
    metric: Any
    data: Data
    plan: SearchPlan
    progress: Progress | None
    start: float
    keeper: PredictionStore
    given: FitInputs
    alone: frozenset[int]
    """The candidates that are refitted beside kernels."""
    history: dict[int, Outcome] = field(default_factory=dict)
    refits: dict[int, Outcome] = field(default_factory=dict)
    rungs: list[tuple[int, int, float]] = field(default_factory=list)
    """Candidates, ranks of their kernels, and mean scores, where a candidate may have several."""

    def refitted(self, number: int) -> Outcome | None:
        """The outcome of a candidate by refits of its estimator, if there are any."""
        found = self.history.get(number)
        is_alone = found is not None and found.status == REFITTED
        return found if is_alone else self.refits.get(number)

    @property
    def ranked_twice(self) -> list[tuple[int, int, float]]:
        """The rungs of candidates with several ranks, by their places in the table."""
        place = {number: k for k, number in enumerate(self.finished)}
        several = Counter(number for number, _ in {rung[:2] for rung in self.rungs})
        return [(place[k], rank, score) for k, rank, score in self.rungs if several[k] > 1]

    @property
    def finished(self) -> list[int]:
        """The candidates that have an outcome, in order."""
        return sorted({*self.history, *self.data.refused})

    @property
    def ridges(self) -> list[float]:
        """Those of the finished candidates; NaN of one that is not known by a ridge."""
        found = [self.data.candidates.get(number) for number in self.finished]
        return [np.nan if item is None else max(item.model.ridges) for item in found]

    @property
    def n_weighted(self) -> int:
        """The number of rows with positive weight; of a source that is known after a pass."""
        found = [o.n_weighted for o in self.history.values() if o.n_weighted is not None]
        return found[0] if found else self.data.n_weighted


class FastSearchCV(
    RenamedParameters,
    WinnerAnswers,
    ResultView,
    BaseSearchCV,  # type: ignore[misc]
):
    """Base class of the searches; everything that is not defined here is scikit-learn's own."""

    _parameter_constraints: Params = {  # noqa: RUF012
        **BaseSearchCV._parameter_constraints,
        "random_state": ["random_state"],
        "checkpoint": [str, os.PathLike, None],
    }
    _parameter_constraints.pop("pre_dispatch")
    _without_effect = ("pre_dispatch", "deprecated")

    _progress_kind: Callable[..., Progress] | None = None
    """What a front end has for itself to show how far the work is."""
    _needs_partition: bool = False
    """Whether every row is to be held out once, as who reads the values of the winner may ask."""

    # What judges any fitted search; of this one nothing but the search has to be passed.
    honest_score = honest_score
    fold_scores = fold_scores
    significantly_worse = significantly_worse
    tune_threshold = tune_threshold
    report = report

    def compare(
        self,
        i: int,
        j: int,
        *,
        metric: str | None = None,
        confidence: float = 0.95,
        margin: float = 0.0,
    ) -> Comparison:
        """Compare two candidates by the corrected resampled t-test: see :func:`compare`."""
        return compare(i, j, search=self, metric=metric, level=confidence, margin=margin)

    @abstractmethod
    def _candidates(self) -> Iterable[Params]:
        """The parameters to try."""

    @fit_context(prefer_skip_nested_validation=False)  # type: ignore[untyped-decorator]
    def fit(self, X: Matrix, y: Targets = None, **params: object) -> FastSearchCV:
        """Evaluate all candidates and refit the best.

        Parameters
        ----------
        X : {array, CSR matrix, data frame} of shape (n_samples, n_features)
            For ``kernel="precomputed"`` the kernel matrix of shape (n_samples, n_samples). Or a
            source of rows (:mod:`everyfold.streams`), which has its own targets; then omit ``y``.
        y : array of shape (n_samples,) or (n_samples, n_targets)
        **params
            ``sample_weight`` (for a Pipeline ``step__sample_weight``) and ``groups``, or whatever
            the objects request if metadata routing is enabled.

        Returns
        -------
        self

        Raises
        ------
        KeyboardInterrupt, SystemExit, Exception
            If the search is interrupted by Ctrl-C or SIGTERM (in the main thread, unless a handler
            is installed), or if an error occurs. The candidates finished by then are in the usual
            attributes, and the best of them is refitted. A refit by libsvm sees no signal before it
            ends.
        """
        state = self._begin(X, y, params)
        with sigterm_raises():
            try:
                progress = state.progress
                idle: AbstractContextManager[Contexts] = nullcontext({})
                if progress is not None:
                    idle = progress.working(state.plan)
                with idle as contexts:
                    self._evaluate(state, contexts)
            except BaseException as error:
                self._keep_what_is_finished(state, error)
                raise
            self._finish(state)
        if state.progress is not None:
            state.progress.end()
        return self

    def plan(self, X: Matrix, y: Targets = None, **params: object) -> SearchPlan:
        """Return the plan that ``fit`` would execute with these arguments, without executing it.

        All arguments are read and checked, and the steps of a Pipeline may be fitted on one fold to
        find the number of features; no kernel is computed.
        """
        request, *_ = self._request(X, y, params)
        return plan(read(request), request)

    def _why_not_sped_up(self, X: Matrix, y: Targets = None, **params: object) -> str:
        """Why every candidate would be refitted on every fold; empty if some would not."""
        return not_sped_up(self._request(X, y, params)[0])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags = deepcopy(get_tags(self.estimator).target_tags)
        return tags

    # -- before the work -----------------------------------------------------------------------

    def _request(self, X: Matrix, y: Targets, params: Params) -> tuple[Request, Scorer, Scorer]:
        """The request, the scorers, and the metric that decides."""
        if hasattr(X, "__dask_graph__"):
            X, y = as_rows(X, y)
        how = MethodOptions.of(self.method)
        is_per_target = self.refit == PER_TARGET
        if is_per_target:
            how = exact_method(how, self._read_scoring()[0], is_source=isinstance(X, RowSource))
        names = ("preprocessing", "error_score", "n_jobs", "random_state")
        given = {name: getattr(self, name) for name in names}
        options = Options.of_method(how, self.operator, has_search=True, **given)
        scoring, pools = self._read_scoring()
        if self.refit == ONE_STANDARD_ERROR:
            check_rule(self.refit, scoring, has_folds=how.criterion is None)
        scorer, metric = self._get_scorers()
        routed = self._get_routed_params_for_fit(params)
        metadata = Metadata(routed.estimator.fit, routed.splitter.split, routed.scorer.score)
        grid = list(self._candidates())
        has_folds = how.criterion is None and not isinstance(X, RowSource)
        keeps = "all" if is_per_target else how.keeps if has_folds else None
        wants = RequestedOutputs(
            self.return_train_score,
            self._needs_partition,
            keeps=keeps,
            pools=pools,
            selects_by="score" if self.refit in RULES else self.refit,
            journal=self.checkpoint is not None,
            refits=not is_per_target,  # which keep no held-out values of all candidates
        )
        judge = None if how.criterion is not None and scoring is None else scorer
        cv = how.folds if self.cv is None else self.cv
        asked = self.estimator, grid, X, y, cv, judge, metadata, options, wants
        return Request(*asked, verbose=self.verbose), scorer, metric

    def _read_scoring(self) -> tuple[Scorer, Pooled]:
        """What is scored, and whether all held-out rows are scored together."""
        scoring = self.scoring
        if scoring is None:
            scoring = MethodOptions.of(self.method).scoring
        if scoring is None or isinstance(scoring, str):  # only an object says that it is pooled
            return scoring, "auto"
        return read_pooled(scoring)

    def _get_scorers(self) -> tuple[Scorer, Any]:
        """See base class, which knows nothing of pooled scores."""
        asked = copy(self)
        asked.scoring, _ = self._read_scoring()
        return super(FastSearchCV, asked)._get_scorers()  # type: ignore[no-any-return]

    def _begin(self, X: Matrix, y: Targets, params: Params) -> _Run:
        """Read the request and make its plan."""
        start = time.perf_counter()
        request, scorer, metric = self._request(X, y, params)
        data = read(request)
        if self.refit == PER_TARGET:
            check_targets(data)
        made = plan(data, request)
        if self.refit == ONE_STANDARD_ERROR:
            check_spread(self.refit, made.pooled, data)
        if self.refit and request.metadata.fit:
            check_weightless(data)
        request = request.indexed()
        progress = self._find_progress(request, made.kernels)
        deciding = self.refit if isinstance(self.refit, str) else "score"
        if self.refit == PER_TARGET:
            keeper: PredictionStore = TargetStore("best", None)
        else:
            keeper = PredictionStore(request.wants.keeps, None if is_rule(self.refit) else deciding)
        given = FitInputs.of(X, y, params, is_in_memory=data.in_memory)
        alone = frozenset(made.refitted if made.plain or data.foreign else ())
        return _Run(request, scorer, metric, data, made, progress, start, keeper, given, alone)

    def _find_progress(self, request: Request, n_kernels: int) -> Progress | None:
        """What is told how far the work is: nothing, unless this is verbose or has callbacks."""
        steps = [step for _, step in getattr(self.estimator, "steps", ())]
        # A search in a search has its caller's callbacks, and parts may have some of their own.
        parts = self, self.estimator, *steps
        calls = any(hasattr(part, name) for part in parts for name in _OF_CALLBACKS)
        if self._progress_kind is None and self.verbose <= 0 and not calls:
            return None
        weights = {k: v for k, v in request.metadata.fit.items() if k == "sample_weight"}
        given = request.X, request.y, weights or None
        return (self._progress_kind or Progress)(self, given, n_kernels, len(request.candidates))

    # -- the work ------------------------------------------------------------------------------

    def _evaluate(self, state: _Run, contexts: Contexts) -> None:
        path = self.checkpoint
        journals = opened(path, state.request, state.data) if path is not None else nullcontext()
        data = state.data
        if state.progress is not None:
            # Refits tell callbacks of their caller by these contexts.
            caller = self if contexts else None
            data = replace(data, caller=caller, contexts=contexts, watch=state.progress)
        with journals as journal, closing(execute(state.plan, data, self.n_jobs, journal)) as done:
            for outcomes in done:
                self._take(state, outcomes)

    def _take(self, state: _Run, outcomes: Sequence[Outcome]) -> None:
        """Note outcomes of candidates that got complete together."""
        if outcomes[0].is_restated:
            state.history |= {outcome.number: outcome for outcome in outcomes}
            return
        new = [o.number for o in outcomes if o.number not in state.history]
        for outcome in outcomes:
            if self.error_score == "raise" and outcome.failure is not None:
                raise outcome.failure.error
            found = state.refits if outcome.is_refit else state.history
            found[outcome.number] = drop_values(outcome)
            is_one_of_several = outcome.landmarks or state.plan.rounds.begins_at_low_rank
            if is_one_of_several and outcome.rank and isinstance(state.metric, str):
                score = mean_score(outcome, state.metric)
                state.rungs.append((outcome.number, outcome.rank, score))
            if not outcome.is_refit and outcome.number in state.data.candidates:
                state.keeper.take(outcome, state.data)
        if state.progress is None or outcomes[0].number in state.alone:
            return
        if new:
            state.progress.advance(new)
        else:
            state.progress.refine(len(outcomes))

    # -- after the work ------------------------------------------------------------------------

    def _finish(self, state: _Run) -> None:
        table = self._tabulate(state)
        if not table.is_exact.all():
            warn_if_inexact(list(state.history.values()))
        self._choose(state, table.results)
        remarks = self._remarks(state, table)
        self._complete_values(state)
        self._record(state, table, [remark.words for remark in remarks])
        for remark in remarks:
            if remark.is_warning:
                warn(remark.words)
        if self.refit:
            if not hasattr(self, "best_index_"):
                raise ValueError(
                    f"no candidate has a score: mean_test_{state.metric} is NaN or -inf for all, "
                    "so that there is no best candidate to refit. The warnings say why, and "
                    "cv_results_ has the table; pass refit=False if the table is enough"
                )
            self._refit_best(state)

    def _complete_values(self, state: _Run) -> None:
        """Evaluate the winner once more, if its held-out values are wanted and were not kept."""
        if not hasattr(self, "best_index_"):
            return
        number = state.finished[self.best_index_]
        if state.keeper.lacks(number) and number in state.data.candidates:
            data = with_rank(state.data, state.history[number].landmarks)
            fitted = state.keeper.fitted(number)
            if fitted is not None:
                outcome = with_values(fitted, data)
            elif state.history[number].status == REFITTED:
                outcome = refitted_again(data, number)
            elif state.history[number].whole is not None:
                # Another pass over rows that are in memory may wait until the values are read.
                state.keeper.postpone(LateValues(state.request, data, number, state.given))
                return
            else:
                outcome = evaluate_again(state.request, data, number)
            state.keeper.add(outcome, data)

    def _remarks(self, state: _Run, table: ResultsTable) -> list[Remark]:
        """What is to be said of the winner; a front end may take it and say it at another time."""
        if not hasattr(self, "best_index_"):
            return []
        best, params, results = int(self.best_index_), self.best_params_, table.results
        outcome = state.history.get(state.finished[best])
        remarks: list[Remark] = []
        if results["is_identity"][best]:
            remarks.append(identity_remark(params))
        elif outcome is not None and outcome.only_label is not None:
            remarks.append(constant_remark(outcome.only_label[0], params))
        if not is_rule(self.refit):
            read = partial(read_fold, results, table.by_fold, f"test_{state.metric}")
            remarks += edge_remarks(self._grids(), results, best, state.metric, read)
        return remarks

    def _grids(self) -> Sequence[Params]:
        """What the candidates are points of, if that has edges."""
        return ()

    def _keep_what_is_finished(self, state: _Run, error: BaseException) -> None:
        """Leave a usable object behind: the finished candidates and the best of them."""
        if not state.history:
            return
        try:
            table = self._tabulate(state)
            self._choose(state, table.results)
            self._record(state, table, ("interrupted before all candidates were done",))
            if self.refit and hasattr(self, "best_index_"):
                self._refit_best(state)
        except Exception as other:
            error.add_note(f"what was finished before could not all be kept: {other!r}")
            return
        warn(
            f"the search was interrupted: cv_results_ has {len(state.finished)} of "
            f"{len(state.request.candidates)} candidates, and best_estimator_ is the best of these"
        )

    def _tabulate(self, state: _Run) -> ResultsTable:
        scoring, _ = self._read_scoring()
        table = tabulate(self, state.request, state.data, state.plan, state.history, scoring)
        for name in table.names if table.is_multimetric else ("score",):
            refits = np.full(len(state.finished), np.nan)
            if state.refits or state.plan.plain or state.data.foreign:
                for k, number in enumerate(state.finished):
                    refits[k] = _mean(state.refitted(number), name)
            table.results[f"confirmed_test_{name}"] = refits
        self.n_splits_ = table.n_splits
        self.multimetric_ = table.is_multimetric
        if callable(scoring) and table.is_multimetric:
            self._check_refit_for_multimetric(table.names)
            state.metric = self.refit
        return table

    def _choose(self, state: _Run, results: Params) -> None:
        """The best candidate, if there is one: none of those without a score is."""
        for former in [name for name in vars(self) if name.startswith("best_")]:
            del self.__dict__[former]
        if not self.refit and self.multimetric_:
            return
        is_void = not callable(self.refit) and not np.any(
            results[f"mean_test_{state.metric}"] > -np.inf
        )
        if is_void and not state.data.foreign:  # among those, scikit-learn takes the first
            return
        ridges = state.ridges if self.refit == ONE_STANDARD_ERROR else ()
        self.best_index_ = best_index(self.refit, state.metric, results, self.n_splits_, ridges)
        if not callable(self.refit):
            self.best_score_ = results[f"mean_test_{state.metric}"][self.best_index_]
        # Refits of the best candidates decide between them, where there are any.
        confirmed = results.get(f"confirmed_test_{state.metric}", np.empty(0))
        if state.refits and not is_rule(self.refit) and np.isfinite(confirmed).any():
            self.best_index_ = int(np.nanargmax(confirmed))
            self.best_score_ = confirmed[self.best_index_]
        self.best_params_ = results["params"][self.best_index_]
        if self.refit == PER_TARGET:
            self._choose_per_target(state)

    def _choose_per_target(self, state: _Run) -> None:
        """The best candidate of every target, beside the best for all of them."""
        assert isinstance(state.keeper, TargetStore)
        scores = state.keeper.table_of_targets(state.finished)
        self.scores_per_target_ = scores
        self.best_index_per_target_ = np.where(np.isnan(scores), -np.inf, scores).argmax(axis=0)
        self.best_score_per_target_ = np.take_along_axis(
            scores, self.best_index_per_target_[None], axis=0
        )[0]

    def _record(self, state: _Run, table: ResultsTable, notes: Sequence[str] = ()) -> None:
        scorer = state.scorer
        self.scorer_ = scorer._scorers if isinstance(scorer, MultimetricScorer) else scorer
        self.cv_results_ = table.results
        self._keeper, self._numbers = state.keeper, state.finished
        self._by_fold = table.by_fold
        has_std = isinstance(final_step(self.estimator), GaussianProcessRegressor)
        self._splits = state.data.splits if has_std and state.data.in_memory else None
        self._given, self._said = state.given, tuple(notes)
        groups = state.request.metadata.split, state.given.params or {}
        self._ratio, self._unit = _test_ratio(state.data, table.n_splits, *groups)
        self.plan_ = state.plan.done(
            [state.history[number] for number in sorted(state.history)],
            seconds=time.perf_counter() - state.start,
            exact=int(np.count_nonzero(table.is_exact)),
            confirmed=len(state.refits),
            notes=notes,
            rungs=state.ranked_twice if state.rungs else (),
            is_verbose=self.verbose > 0,
        )

    def _refit_best(self, state: _Run) -> None:
        """Fit the winner to all rows; of several targets, one model of each target's winner."""
        is_per_target, owners = self.refit == PER_TARGET, np.empty(0, dtype=np.intp)
        winners = np.array([self.best_index_])
        if is_per_target:
            winners, owners = np.unique(self.best_index_per_target_, return_inverse=True)
        models = []
        for index in winners.tolist():
            number, params = state.finished[index], self.cv_results_["params"][index]
            made = clone(self.estimator).set_params(**clone(params, safe=False))
            candidate = state.data.candidates.get(number)
            if candidate is not None and state.data.has_stand_in(candidate):
                made = with_final_step(made, fast_version_of(candidate.model))
            if state.request.options.ridge_scaling == "mean":
                scale_ridge(made, state.n_weighted)
            final = final_step(made)
            # Most estimators have no place for an operator.
            if number not in state.data.foreign and hasattr(final, "operator"):
                n_rows = state.data.n if state.data.in_memory else None
                state.request.options.hand_on(final, n_rows)
            outcome = state.history.get(number)
            if outcome is not None and outcome.landmarks:
                set_rank(final, outcome.landmarks)
            models.append(made)
        best = PerTargetRegressor(models, owners) if is_per_target else models[0]
        self.best_estimator_ = best
        X, y, progress = state.request.X, state.request.y, state.progress
        fit = partial(fit_to_source, best) if isinstance(X, RowSource) else best.fit
        start = time.perf_counter()
        kept = None
        if outcome is not None and outcome.whole is not None and not is_per_target:
            is_able = hasattr(final_step(best), "keep_source_fit")
            kept = kept_fit(state.data, outcome) if is_able else None
        with nullcontext() if progress is None else progress.refitting(best):
            if kept is None:
                fit(*((X,) if y is None else (X, y)), **state.request.metadata.fit)
            else:  # the passes of the folds have told it
                final_step(best).keep_source_fit(X, kept)
        self.refit_time_ = time.perf_counter() - start
        if hasattr(best, "feature_names_in_"):
            self.feature_names_in_ = best.feature_names_in_


def _test_ratio(data: Data, n_splits: int, split: Params, params: Params) -> tuple[float, Unit]:
    """How many test rows (or whole groups) the folds have for each of training.

    Groups are those that the splitter gets, or what has the name.
    """
    labels = split.get("groups", params.get("groups"))
    groups = None if labels is None else groups_of(labels)
    if not data.in_memory:  # every row is held out by one fold
        return 1.0 / max(1, n_splits - 1), "row"
    if not data.tasks:
        return ratio_of_splits(data.splits, groups)
    folds = data.tasks[0].folds
    if groups is not None:
        return ratio_of_splits([(fold.train, fold.test) for fold in folds], groups)
    trains = folds.n - folds.sizes
    for i, fold in folds.odd.items():
        trains[i] = len(fold.train)
    return float(folds.bounds[-1] / trains.sum()), "row"


def _mean(outcome: Outcome | None, metric: str) -> float:
    """The mean score of a refitted candidate; NaN if it was not, or not on every fold."""
    if outcome is None or outcome.failures:
        return np.nan
    return float(np.mean(column(outcome.scores, metric)))


# -- SIGTERM as an exception, so that what asks a search to end finds its work kept ---------------


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """While this lasts, SIGTERM raises ``SystemExit(143)``, where it would end the process at once.

    Only in the main thread, as Python asks for, and only where nobody has a handler of their own.
    """
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)

"""The planner: the one place that chooses, before any kernel matrix exists.

It has the sizes of the data, their kernels and folds, but computes nothing from them. It asks each
method for its cost, refits of the user's estimator included, takes the cheapest that gives what was
asked for, and refuses what cannot be done or does not fit in memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from everyfold._progress import warn
from everyfold._typing import Order
from everyfold.adapters.pipelines import Parts
from everyfold.engine.adaptive import low_rank_first
from everyfold.engine.adaptive.rank_search import RankSearch
from everyfold.engine.execution.executor import local_threads
from everyfold.engine.execution.refits import (
    ConfirmByRefit,
    Timed,
    WithRefits,
    plain_units,
    refit_units,
    with_distributions,
)
from everyfold.engine.planning import refit_costs
from everyfold.engine.planning.costs import SEARCH, first_use
from everyfold.engine.planning.pass_sizes import cut_passes, pass_notes, stand_in_notes
from everyfold.engine.planning.plan import SearchPlan, SingleRound, Strategy, some
from everyfold.engine.planning.refit_costs import Doubt, RefitChoice
from everyfold.engine.planning.units import KernelPlan, Unit, cut, gather, kernels_of
from everyfold.engine.reading.reader import configured, warn_of_refits
from everyfold.engine.records import Candidate, Data, Task
from everyfold.engine.request import HOW_TO_FILTER, Options, Request
from everyfold.engine.scoring.checks import (
    POOLED,
    check_folds,
    leave_one_out_bias,
    meanings,
    reasons_to_pool,
)
from everyfold.engine.scoring.fold_scorers import FoldScorer, by_name
from everyfold.engine.scoring.metrics import ScoredRows
from everyfold.engine.source_data import SourceData
from everyfold.linalg import memory as limits

Preprocessing = Literal["none", "per_fold", "once"]

# A plan of more than LONG estimated seconds names the option that should take at most this share
# of them. It is never taken without being asked for.
LONG, SHARE = 10.0, 0.1

_LOW_RANK_FIRST = (
    "with {} rows all candidates were evaluated at low rank first, and the best on the full "
    "kernel matrix; cv_results_['status'] says which. operator='dense' evaluates all on the "
    "full kernel matrix"
)
_NO_METRIC = (
    "no single metric decides between the candidates (there are several, and refit names none "
    "of them), so that none was excluded at low rank, and all were evaluated on the full kernel "
    "matrix of {} rows; refit='<metric>' is faster"
)
_TIMED = (
    "one refit was timed to decide: shared work should take about {:.2g} s, refits of the "
    "estimator itself about {:.2g} s"
)


def plan(data: Data, request: Request) -> SearchPlan:
    """Decide how the candidates are evaluated; refuse what cannot be done.

    The plan holds no rows: it can be pickled, printed and executed.
    """
    if isinstance(data, SourceData):
        return _plan_passes(data, request)
    # What nothing speeds up is refitted beside the other candidates, and the plan says why.
    notes = _foreign(data, request) if data.foreign else []
    refits = refit_units(data) if data.foreign else []
    if not data.candidates:
        rounds = SingleRound(refits)
        return SearchPlan(data.n, data.n_folds, 0, 0, rounds, "none", 0.0, 0, tuple(notes))
    made = _plan(data, request)
    # Steps fitted once on all rows would leak: where they save much they are named, never chosen.
    if made.kind == "per_fold" and made.estimate >= LONG and request.options.closed is None:
        made = replace(made, notes=(*made.notes, *_quicker_once(data, made, request)))
    if refits:
        made = replace(made, rounds=WithRefits(made.rounds, refits), notes=(*made.notes, *notes))
    return made


def _plan_passes(data: SourceData, request: Request) -> SearchPlan:
    """The plan of candidates on rows in blocks: passes are all that there is to choose."""
    options = request.options
    kind = choose_preprocessing(data, options)
    data = data.prepared(kind)
    rounds: Strategy
    if data.open_ranks:
        metric = _deciding(tuple(data.metrics), request)
        rounds = _rank_curve(data, metric, options, _cut_blocks)
    else:
        rounds = SingleRound(cut_passes(data, local_threads(data.jobs or options.n_jobs)))
    units = rounds.first
    memory = max(unit.memory for unit in units)
    if data.jobs is None:  # workers of a cluster have memory of their own
        _check_workers(units, memory, data, options.n_jobs)
    kernels = [groups for unit in units for groups in unit.groups]
    return SearchPlan(
        rows=data.n,
        folds=data.rule.n_folds or 0,  # a pass will tell
        kernels=len(kernels),
        ridges=max(len(group.numbers) for groups in kernels for group in groups),
        rounds=rounds,
        kind=kind,
        estimate=sum(unit.seconds for unit in rounds.expected(data)),
        memory=memory,
        notes=(*stand_in_notes(data), *pass_notes(data, units)),
    )


def _foreign(data: Data, request: Request) -> list[str]:
    """What is to be said of candidates that nothing speeds up."""
    notes = []
    shared = with_distributions(data)
    left = {number: reason for number, reason in data.foreign.items() if number not in shared}
    by_reason = gather(left.items(), lambda item: item[1])
    for members in by_reason:
        numbers, reason = [number for number, _ in members], members[0][1]
        who = "" if len(numbers) == len(request.candidates) else f" {some(numbers)}"
        notes.append(f"not sped up{who}: {reason}")
    if notes and request.options.fallback == "warn":
        words = "; ".join(notes)
        firsts = [request.candidates[members[0][0]] for members in by_reason]
        warn_of_refits(
            configured(request.estimator, firsts),
            f"{len(left)} of {len(request.candidates)} candidates are refitted on every "
            f"fold, as scikit-learn does: {words}. {HOW_TO_FILTER}",
        )
    return notes


def _plan(data: Data, request: Request) -> SearchPlan:
    """The plan of the candidates that are sped up."""
    options = request.options
    notes, pooled = _check_scorers(data, request)
    kind = choose_preprocessing(data, options)
    if pooled or kind == "once":
        data = data.prepared(kind, pooled)
    if options.order != "auto":
        _check_order(data, options, kind)
    candidates = list(data.candidates.values())
    kernels = list(kernels_of(data, candidates, is_per_fold=kind == "per_fold"))
    choice, full = RefitChoice(), None
    # With an open number of landmarks no unit has a known cost to compare refits with.
    if not data.open_ranks:
        full = cut(data, kernels, options.order)
        # Work is done as planned if it is short, or takes clearly less than the calls of refits
        # alone. Solvers of linear models with a coefficient for each row are an exception.
        short = min(refit_costs.LEAST, refit_costs.TIMED_FROM, refit_costs.LONG)
        if len({type(candidate.parts.final) for candidate in candidates}) == 1:
            calls = refit_costs.CALLS * len(candidates) * data.n_folds
            short = max(short, min(calls, refit_costs.LONG) / refit_costs.CLEARLY)
        is_long = sum(unit.seconds for unit in full) >= short
        if is_long or any(kernel.features >= data.n for kernel in kernels):
            choice = refit_costs.plain_fits(data, kernels, full, request)
    refits = choice.fits
    # A doubt is a plan of shared work that one timed refit may still overturn.
    if choice.doubt is not None or not refits:
        try:
            made = _sped_up(data, kernels, request, kind, notes, pooled, full)
        except MemoryError:  # refits need less
            if not refits:
                raise
        else:
            # Rounds that begin at a low rank may take far less than all full matrices.
            doubt = choice.doubt
            theirs = 0.0 if doubt is None else sum(own.seconds for own in doubt.fits.values())
            is_clear = theirs >= refit_costs.WITHIN * made.estimate
            return made if doubt is None or is_clear else _timed(made, data, doubt)
    units, seconds = plain_units(data, refits), sum(own.seconds for own in refits.values())
    reasons = {number: own.words for number, own in refits.items()}
    # Some candidates are cheaper to refit, others to share: each goes its own way.
    left = {k: own for k, own in data.candidates.items() if k not in refits}
    if not left:
        sizes = data.n, data.n_folds, 0, 0
        return SearchPlan(*sizes, SingleRound(units), kind, seconds, 0, tuple(notes), plain=reasons)
    rest = replace(data, candidates=left)
    kernels = [own for own in (kernel.only(left) for kernel in kernels) if own.candidates]
    made = _sped_up(rest, kernels, request, kind, notes, pooled)
    return replace(
        made, rounds=WithRefits(made.rounds, units), estimate=made.estimate + seconds, plain=reasons
    )


def _timed(made: SearchPlan, data: Data, doubt: Doubt) -> SearchPlan:
    """The plan that one refit decides between this one and refits of all candidates."""
    seconds = sum(own.seconds for own in doubt.fits.values())
    reasons = {number: own.words for number, own in doubt.fits.items()}
    rounds = Timed(made.rounds, plain_units(data, doubt.fits), doubt.limit)
    note = _TIMED.format(made.estimate, seconds)
    # Until the refit is timed, the estimate is that of the way that is taken by default.
    estimate = made.estimate if doubt.limit <= seconds else seconds
    notes = (*made.notes, note)
    return replace(made, rounds=rounds, estimate=estimate, plain=reasons, notes=notes)


def _sped_up(
    data: Data,
    kernels: Sequence[KernelPlan],
    request: Request,
    kind: Preprocessing,
    notes: list[str],
    pooled: tuple[str, ...],
    full: list[Unit] | None = None,
) -> SearchPlan:
    """The plan of candidates that share work; ``full`` are its units, if they are cut already."""
    options = request.options
    _check_structures(data, kernels)
    rounds, more = _rounds(data, kernels, request, full)
    units, expected = rounds.first, rounds.expected(data)
    kept = 0
    if request.wants.keeps == "all":  # held-out values of all candidates, kept until the end
        width = sum(data.tasks[own.task].width for own in data.candidates.values())
        kept = 8 * sum(data.sizes) * width
    compiled = {name for unit in units for m in unit.methods for name in m.criterion.compiled}
    # What no unit counts: the search itself, and compiled code on its first use.
    beside = SEARCH + (first_use(compiled) if compiled else 0.0)
    notes = [*notes, *more]
    # A matrix that does not fit was replaced by one of low rank, which the plan must say.
    if not limits.fits(data.n, data.n):
        notes += stand_in_notes(data)
    needed = kept + max(unit.memory for unit in units)
    if needed > limits.TRIFLE:  # what is free is not looked up for so little
        _check_workers(units, needed, data, options.n_jobs)
    seconds = sum(unit.seconds for unit in expected)
    return SearchPlan(
        rows=data.n,
        folds=data.n_folds,
        kernels=len(kernels),
        ridges=max(len(g.numbers) for u in units for groups in u.groups for g in groups),
        rounds=rounds,
        kind=kind,
        estimate=seconds + beside,
        memory=kept + max(unit.memory for unit in expected),
        notes=tuple(notes),
        pooled=pooled,
        hint=_quicker(expected, seconds) if seconds > LONG else "",
    )


def _quicker(units: Sequence[Unit], seconds: float) -> str:
    """The option that approximates, where the exact way is long and it is much quicker."""
    # Methods that are exact now and could be one step instead; others would take what they take.
    known = [m for u in units for m in u.methods if m.by_steps is not None and not m.caveat]
    steps = seconds - sum(max(m.seconds - (m.by_steps or 0.0), 0.0) for m in known)
    if steps > SHARE * seconds:
        return ""
    caveat = " ".join(dict.fromkeys(m.caveat_of_steps for m in known))
    return (
        f"method='fast' should take about {steps:.2g} s instead of {seconds:.2g} s, by one "
        f"step from the fit on all rows for every fold, which is an approximation. {caveat}"
    )


def _check_scorers(data: Data, request: Request) -> tuple[list[str], tuple[str, ...]]:
    """Refuse what no score could decide; what to say of the others, and which are pooled."""
    if request.scorer is None:
        return [], ()
    side, named, wants = data.tasks[0].whole.test, by_name(request.scorer), request.wants
    is_plain = side.target.classes is None and side.sizes.min(initial=2) > 1
    if is_plain and wants.pools is not True:
        return [], ()  # scores of numbers on folds of several rows mean what their names say
    if data.foreign:  # refits are scored fold by fold, and nothing else can be compared with them
        wants = replace(wants, pools=False)
    is_leave_one_out = side.sizes.max(initial=0) == 1 == data.tasks[0].folds.sizes.max()
    may_lean = is_leave_one_out and any(own.model.intercept for own in data.candidates.values())
    if wants.pools is True:
        biases = leave_one_out_bias(named, named, side) if may_lean else {}
        for words in biases.values():
            warn(words)
        return [POOLED.format("as asked for, scores are"), *biases.values()], tuple(named)
    # Scores of single rows that are undefined, or not what their name says, are pooled.
    pooled = {}
    if wants.pools == "auto":
        pooled = reasons_to_pool(named, side, needs_all=wants.mean_scores)
    name = wants.selects_by
    decisive = {name: named[name]} if isinstance(name, str) and name in named else named
    if not pooled.keys() & decisive.keys():
        check_folds(decisive, side, needs_all=wants.mean_scores)
    # Scores that do not decide are kept even if they mean little, with a warning.
    rest = {name: scorer for name, scorer in named.items() if name not in pooled}
    biases = leave_one_out_bias(named, pooled, side) if may_lean else {}
    joined = [words + "; " * (key in biases) + biases.pop(key, "") for key, words in pooled.items()]
    notes = [*joined, *meanings(rest, side), *biases.values()]
    for words in notes:
        warn(words)
    return notes, tuple(pooled)


def _rounds(
    data: Data, kernels: Sequence[KernelPlan], request: Request, full: list[Unit] | None
) -> tuple[Strategy, list[str]]:
    """The rounds, and what is to be said about them."""
    options = request.options
    is_confirmed = options.n_confirm not in ("auto", 0)
    # Without a scorer, held-out values are asked for, and nothing decides between candidates. A
    # function of the user's own may give one score or several, which only a call can tell.
    judge = data.tasks[0].judge
    names = () if judge is None else judge.names or _sample_names(data.tasks[0], judge)
    metric = _deciding(names, request)
    if data.open_ranks:
        is_per_fold = any(kernel.outline.is_per_fold for kernel in kernels)
        cutter = partial(_cut_all, order=options.order, is_per_fold=is_per_fold)
        return _rank_curve(data, metric, options, cutter), []
    if is_confirmed and metric is None:
        raise ValueError(
            f"n_confirm={options.n_confirm} refits the best candidates, but no single metric says "
            "which these are; use refit='<metric>', or n_confirm=0"
        )
    # Nested searches repeat all of this for every outer fold: low ranks pay sooner there.
    full = full or cut(data, kernels, options.order)
    seconds = options.repeats * sum(unit.seconds for unit in full)
    # The one question that most searches are asked about low ranks: they have too few rows.
    is_large = data.n >= min(low_rank_first.COSTLY_ROWS, low_rank_first.LOW_RANK_FIRST_ROWS)
    is_large = is_large and options.closed is None
    is_large = is_large and low_rank_first.is_worth_it(data, kernels, options.order, seconds)
    if is_large and metric is not None:
        asked = metric, options.order, options.seeds.own
        stages = low_rank_first.LowRankFirst.of(data, kernels, *asked)
        if stages.is_quicker(data, full):
            return _confirmed(stages, data, request, metric), [_LOW_RANK_FIRST.format(data.n)]
    notes = [_NO_METRIC.format(data.n)] if is_large and metric is None else []
    rounds = SingleRound(_with_threads(full, data, options.n_jobs))
    return _confirmed(rounds, data, request, metric), notes


def _cut_all(data: Data, order: Order, *, is_per_fold: bool) -> list[Unit]:
    """All candidates, cut into units."""
    kernels = kernels_of(data, list(data.candidates.values()), is_per_fold=is_per_fold)
    return cut(data, list(kernels), order)


def _cut_blocks(data: Data) -> list[Unit]:
    """The same of rows that come in blocks."""
    assert isinstance(data, SourceData)
    return cut_passes(data, 1)


def _rank_curve(
    data: Data, metric: str | None, options: Options, cutter: Callable[[Data], Sequence[Unit]]
) -> RankSearch:
    """The rounds that find the number of landmarks, if a score can tell."""
    # The search compares scores of growing numbers of landmarks: one of them must decide.
    is_one = metric is not None and options.closed is None and len(data.tasks) < 2
    if metric is None or not is_one or options.n_confirm not in ("auto", 0):
        raise ValueError(
            "n_landmarks='auto' needs one score of held-out rows to decide by: use a single "
            "metric or name it (refit='<metric>'), and leave out n_confirm and criteria without "
            "folds; or pass a number of landmarks"
        )
    return RankSearch.of(data, metric, cutter)


def _deciding(names: tuple[str, ...], request: Request) -> str | None:
    """The one of several scores that decides between candidates; None if no single one does."""
    # A single scorer decides; of several scorers, the one that refit names.
    if names == ("score",):
        return "score"
    by = request.wants.selects_by
    return by if isinstance(by, str) and by in names else None


def _confirmed(rounds: Strategy, data: Data, request: Request, metric: str | None) -> Strategy:
    """The same rounds, and refits of the best where these may be asked for."""
    options, selects_by = request.options, request.wants.selects_by
    # There is no estimator to refit, no score that decides, or no refit was asked for.
    if data.own is None or metric is None or options.n_confirm == 0:
        return rounds
    # A pooled score has no folds of its own, by which a refit could be compared with it.
    if data.tasks[0].is_pooled:
        if options.n_confirm == "auto":
            return rounds
        raise ValueError(
            f"n_confirm={options.n_confirm} scores refits fold by fold, which cannot be combined "
            "with pooled scores; use n_confirm=0, or a scorer that is not pooled"
        )
    # A number of refits was asked for, whatever the results are.
    if options.n_confirm != "auto":
        return ConfirmByRefit(rounds, int(options.n_confirm), metric)
    # A rule of the user's own, or ridges that depend on the rows, have no refit to compare with.
    if callable(selects_by) or options.ridge_scaling != "sum":
        return rounds
    confirmation = ConfirmByRefit(rounds, None, metric)
    if isinstance(rounds, SingleRound):  # asked only if a score turns out not to be exact
        return replace(rounds, confirmation=confirmation)
    return confirmation


def _sample_names(task: Task, judge: FoldScorer) -> tuple[str, ...]:
    """What the scores of a callable are called, by the score of the true values of one fold."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            side = ScoredRows(task.target, task.whole.test.parts[:1])
            score = judge.score(side.y, side, {})[0]
    except Exception:
        return ("score",)  # whatever is wrong will be met again, and reported, in the search itself
    return tuple(score) if isinstance(score, dict) else ("score",)


def _with_threads(units: list[Unit], data: Data, n_jobs: int | None) -> list[Unit]:
    """Threads for the folds of each kernel, unless workers for kernels keep more of them busy.

    Such threads start at once and share the kernel.
    """
    methods = (method for unit in units for method in unit.methods)
    if any(u.order != "kernel" for u in units) or not all(
        m.criterion.uses_threads for m in methods
    ):
        return units
    # As many kernels as threads keep all of them busy; fewer kernels share out their folds.
    threads = local_threads(n_jobs)
    by_fold = min(threads, data.n_folds)
    if by_fold == 1 or by_fold < min(threads, len(units)):
        return units
    return [replace(unit, threads=by_fold) for unit in units]


def _check_workers(units: Sequence[Unit], memory: int, data: Data, n_jobs: int | None) -> None:
    """Refuse what workers cannot hold together; those of a cluster have memory of their own."""
    is_shared = units[0].threads > 1
    workers = 1 if is_shared else min(local_threads(n_jobs), len(units))
    # Most machines can have less than the full kernel; those that cannot say what can.
    instead = {candidate.model.instead for candidate in data.candidates.values()}
    kind = max(instead - {limits.LOW_RANK}, default=limits.LOW_RANK)
    limits.check_workers(memory, workers, data.n, kind)


def _check_structures(data: Data, kernels: Sequence[KernelPlan]) -> None:
    for kernel in kernels:
        tasks = {candidate.task for candidate in kernel.candidates}
        # Kernels of single folds are checked when they are made, with the rows of their fold.
        if kernel.outline.is_per_fold:
            continue
        for task in (data.tasks[number] for number in tasks):
            kernel.structure.check(data.n, task.weights, task.folds.helds)


def choose_preprocessing(data: Data, options: Options) -> Preprocessing:
    """Whether each fold prepares its own rows, or all folds those of steps fitted on all rows."""
    if not data.has_steps:
        return "none"
    if options.preprocessing != "once":
        return "per_fold"
    # Steps that use y would have seen the answers of the held-out rows.
    if not all(_is_free_of_y(data, candidate) for candidate in _different(data)):
        raise ValueError(
            "preprocessing='once' fits the steps on all rows, but some of them use y, which "
            "would leak into every fold; use preprocessing='per_fold'"
        )
    return "once"


def _quicker_once(data: Data, made: SearchPlan, request: Request) -> list[str]:
    """What steps fitted once on all rows would save, where folds of their own take long."""
    try:
        if not all(_is_free_of_y(data, candidate) for candidate in _different(data)):
            return []
        shared = data.prepared("once")
        kernels = list(kernels_of(shared, list(data.candidates.values()), is_per_fold=False))
        seconds = sum(unit.seconds for unit in cut(shared, kernels, request.options.order))
    except Exception:  # whatever steps say of all rows, they were not asked
        return []
    if seconds > SHARE * made.estimate:
        return []
    return [
        f"the steps are fitted in each of {data.n_folds} folds, as GridSearchCV does, so that each "
        f"has a kernel matrix of its own (about {made.estimate:.0f} s); preprocessing='once' fits "
        f"them once, on all rows (about {seconds:.2g} s), but they then know the held-out rows, "
        "and no score is exact"
    ]


def _different(data: Data) -> list[Candidate]:
    """One candidate for every way to prepare the rows."""
    found = {candidate.rows_key: candidate for candidate in data.candidates.values()}
    return list(found.values())


def _is_free_of_y(data: Data, candidate: Candidate) -> bool:
    """Whether steps can be fitted without y; the rows they make are kept."""
    if not data.in_memory:  # the only step that reads blocks is a scaler
        return True
    parts: Parts = candidate.parts
    rows = parts.without_y(data.X)
    if rows is None:
        return False
    data.cache.put(("prepared", candidate.rows_key), rows)
    return True


def _check_order(data: Data, options: Options, kind: Preprocessing) -> None:
    if not options.is_finite:
        return
    task = data.tasks[0]
    for is_wrong, what in (
        (kind == "per_fold", "steps that are fitted per fold; use preprocessing='once'"),
        (task.with_train, "training scores; use return_train_score=False"),
        (not task.folds.are_removable, "folds that do not just remove rows; use another cv"),
    ):
        if is_wrong:
            raise ValueError(
                f"order={options.order!r} is not available with {what} or method='auto'"
            )

"""What a search of the shell is to do, read from its options and checked, and what came out.

``read_job`` turns options into a ``Job``: rows, a model, a grid and the settings of the search.
``run_rounds`` runs it, with larger grids as long as the best is at an edge, into a ``StudyResult``.
"""

from __future__ import annotations

import copy
import math
import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from rich import progress
from rich.console import Console
from sklearn.base import clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import get_scorer, get_scorer_names
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    LeaveOneOut,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    TimeSeriesSplit,
)

from everyfold._progress import warn
from everyfold._typing import ClosedName, Estimator, Index, Matrix, Params, Search, Splitter
from everyfold.adapters.scaling import fit_to_source
from everyfold.cli.errors import BadInput, CommandFailure, choose, in_options, naming, say
from everyfold.cli.folders import is_folder, read_folder
from everyfold.cli.model_table import MODELS, check_names, full_name, short_name
from everyfold.cli.models import OF_LOW_RANK, ChosenModel, Grid, decide_task, grow, read_grid
from everyfold.cli.options import ModelOptions, SearchOptions
from everyfold.cli.readers import read_file
from everyfold.cli.table import Column, TableData
from everyfold.conformal import FastCrossConformalRegressor
from everyfold.engine.code_digests import CheckpointError
from everyfold.engine.request import MethodOptions, UnsupportedWarning
from everyfold.search import FastGridSearchCV, SearchPlan
from everyfold.search.calibration import FastCalibratedClassifierCV
from everyfold.search.hints import Remark, edges
from everyfold.search.progress import Bar, Progress

# The first grid and three larger ones: each adds three values at every edge.
MOST_ROUNDS = 4

# Folds of the held-out rows that probabilities and intervals come from, as in scikit-learn's
# CalibratedClassifierCV.
FOLDS = 5


class _Search(FastGridSearchCV):
    """A round of a search; remarks on its winner wait until the end of all rounds."""

    remarks: Sequence[Remark] = ()

    def _grids(self) -> Sequence[Params]:
        return ()

    def _remarks(self, *found: object) -> list[Remark]:
        self.remarks = super()._remarks(*found)  # type: ignore[arg-type]
        return [replace(remark, is_warning=False) for remark in self.remarks]


@dataclass(frozen=True)
class Job:
    """Data, model, grid, the settings of the search, and what a saved model has besides.

    ``proba`` and ``interval`` ask for probabilities and intervals, from folds drawn by ``seed``.
    """

    data: TableData
    choice: ChosenModel
    grid: Grid = field(default_factory=dict)
    settings: Params = field(default_factory=dict)
    proba: bool = False
    interval: float | None = None
    seed: int = 0
    journal: Path | None = None

    def search(self, grids: Sequence[Grid], number: int = 0) -> Search:
        """A search over these grids, not yet begun; each round has a journal of its own."""
        prefix, estimator = self.choice.prefix, self.choice.pipeline(self.data.X)
        named = [{full_name(prefix, k): values for k, values in grid.items()} for grid in grids]
        journal = None if self.journal is None else journals_of(self.journal)[number]
        return _Search(estimator, named, **self.settings, checkpoint=journal)

    @property
    def judged_by(self) -> str:
        """What is to be large: a score, or minus a criterion."""
        scoring: str | None = self.settings["scoring"]
        return f"-{self.settings['method'].criterion}" if scoring is None else scoring

    def plan(self) -> SearchPlan:
        """What a search over the whole grid would do, without doing it."""
        try:
            # The plan says what is refitted.
            with warnings.catch_warnings(action="ignore", category=UnsupportedWarning):
                plan: SearchPlan = self.search([self.grid]).plan(*self.rows, **self.metadata)
            return plan
        except (ValueError, TypeError) as error:
            raise BadInput(in_options(str(error))) from error

    def fitted(self, params: Params) -> Estimator:
        """The estimator with these parameters, fitted on all rows."""
        estimator = clone(self.choice.pipeline(self.data.X))
        estimator.set_params(**{full_name(self.choice.prefix, k): v for k, v in params.items()})
        if self.data.source is not None:
            return fit_to_source(estimator, self.data.source)
        return estimator.fit(*self.rows, **self.weights)

    def calibrated(self, fitted: Estimator) -> Estimator:
        """The same model with probabilities, from its decisions on five folds of held-out rows."""
        splits = self._splits(StratifiedKFold, StratifiedGroupKFold)
        model = FastCalibratedClassifierCV(
            clone(fitted), cv=splits, ensemble=False, random_state=self.seed
        )
        with warnings.catch_warnings():
            # Steps get their weights by name, as the warning advises.
            warnings.filterwarnings("ignore", "Pipeline.fit has no sample_weight")
            named = self.weights if self.choice.prefix else {}
            return model.fit(*self.rows, sample_weight=self.data.weights, **named)

    def conformal(self, fitted: Estimator) -> Estimator:
        """What intervals of the same model need: its residuals on five folds of held-out rows."""
        model = FastCrossConformalRegressor(clone(fitted), cv=self._splits(KFold, GroupKFold))
        data = self.data
        # Five refits are no surprise.
        with warnings.catch_warnings(action="ignore", category=UnsupportedWarning):
            model.fit_conformalize(data.X, data.y, fit_params=self.weights)
        return model.set_params(cv=FOLDS)

    def _splits(self, plain: Splitter, grouped: Splitter) -> list[tuple[Index, Index]]:
        """Shuffled folds, which keep groups together."""
        kind = plain if self.data.groups is None else grouped
        folds = kind(FOLDS, shuffle=True, random_state=self.seed)
        return list(folds.split(*self.rows, self.data.groups))

    @property
    def rows(self) -> tuple[Matrix, ...]:
        """What is fitted: features and target, or a source that has both."""
        source = self.data.source
        return (self.data.X, self.data.y) if source is None else (source,)

    @property
    def weights(self) -> Params:
        """The weights of rows, as a fit takes them."""
        name, weights = f"{self.choice.prefix}sample_weight", self.data.weights
        return {} if weights is None else {name: weights}

    @property
    def metadata(self) -> Params:
        """Weights and groups, as a search takes them."""
        groups = self.data.groups
        return self.weights if groups is None else {**self.weights, "groups": groups}


def read_model(options: ModelOptions) -> tuple[TableData, ChosenModel]:
    """Check the names of the model, read the data and decide what is to be predicted."""
    check_names(options.model, options.kernel, options.task, options.impute)
    if is_folder(options.data):
        return read_folder(options)
    content = read_file(options.data, options.header)
    with naming(options.data):
        data = content.training(options)
        task, data = decide_task(options.model, options.task, data)
    _check_extras(options, task, data)
    prepared = options.standardise, options.impute, data.layout.kinds
    kernel = options.kernel or MODELS[options.model].kernel
    choice = ChosenModel(options.model, kernel, task, *prepared)
    is_free = all(getattr(options, name, usual) == usual for name, usual in _OF_GRIDS.items())
    can_tune = MODELS[options.model].without_grid is not None
    return data, replace(choice, tunes_itself=is_free and can_tune)


# Options that only a grid can follow, and what they are otherwise. A model that chooses its
# parameters itself would do so by single rows, whatever the groups.
_OF_GRIDS: Params = {"grid": [], "param": [], "groups": None, "criterion": None, "operator": "auto"}
_OF_GRIDS |= {"ridge_scaling": "sum", "journal": None, "expand": False, "plot": None}


def _check_extras(options: ModelOptions, task: str, data: TableData) -> None:
    """Raise if what the saved model is to have cannot be had."""
    wanted = {"proba": options.proba, "interval": options.interval is not None}
    for name in (name for name, is_wanted in wanted.items() if is_wanted):
        words = "needs --save MODEL.skops; leave it out, or give that"
        if (task == "regression") == (name == "proba"):
            is_for = "labels, not numbers" if name == "proba" else "numbers, not labels"
            words = f"is for {is_for}; leave it out"
        elif data.y.ndim > 1:
            words = f"is for one target, and there are {data.y.shape[1]}; leave it out"
        elif options.save is not None:
            continue
        raise BadInput(f"--{name} {words}")
    if options.interval is not None:
        check_level(options.interval, len(data.y))
    n_units = len(data.y) if data.groups is None else len(np.unique(data.groups))
    if any(wanted.values()) and n_units < FOLDS:
        what = "rows" if data.groups is None else "groups"
        raise BadInput(f"--proba and --interval need {FOLDS} {what}, and there are {n_units}")


def journals_of(path: Path) -> list[Path]:
    """The files of the rounds: the one named, and for those that the grid grows by its kin."""
    return [path, *(path.with_name(f"{path.name}.{k}") for k in range(2, MOST_ROUNDS + 1))]


def check_journal(options: SearchOptions) -> None:
    """Raise if a journal is there that was not to be gone on with, or could be none."""
    known = [] if options.journal is None else journals_of(options.journal)
    for path in known[: MOST_ROUNDS if options.expand else 1]:
        try:
            is_there, is_file = path.exists(), path.is_file()
            has_content = is_file and path.stat().st_size > 0
        except (OSError, ValueError) as error:
            raise BadInput(f"--journal {path} cannot be read: {error}") from error
        if is_there and not is_file:
            raise BadInput(f"--journal {path} is not a regular file; name one")
        if has_content and not options.resume:
            advice = "go on with it by --resume, or name another file"
            raise BadInput(f"--journal {path} exists; {advice}")


def read_job(options: SearchOptions) -> Job:
    """Check everything that can be checked before the work."""
    check_options(options)
    check_journal(options)
    data, choice = read_model(options)
    choice = replace(choice, ridge_scaling=options.ridge_scaling, operator=options.operator)
    for words in data.repeating if data.groups is None else ():
        advice = "name it as --groups, or the score may promise too much"
        warn(f"{words}: if equal cells mean rows that belong together, {advice}")
    grid = read_grid(options.grid, choice, data, options.seed)
    asked = {name: getattr(options, name) for name in ("proba", "interval", "seed", "journal")}
    return Job(data, choice, grid, read_settings(options, choice, data), **asked)


# -- settings of a search --------------------------------------------------------------------------

# Rows up to which a report has an honest score, which needs the values of all candidates:
# bootstraps take as long as there are rows.
MOST_KEPT = 5000

# Scorers of numbers: scikit-learn does not say which they are, and scores labels 0 and 1 by them.
_OF_NUMBERS = re.compile(
    r"r2$|explained_variance|(neg_)?max_error|neg_(mean|median|root)_|d2_(absolute|pinball|tweedie)"
)

_FOLDS = re.compile(
    r"(?:(?P<repeats>[1-9][0-9]{0,8})x|(?P<kind>group|time):)?(?P<count>[0-9]{1,9})"
)
# What a typing error would exceed, of --cv 10x5, --order and --n-jobs.
MOST_FOLDS, MOST_ORDER, MOST_JOBS = 100_000, 1000, 1024


def check_options(options: SearchOptions) -> None:
    """Raise if a value is not one of its option, before the data are read."""
    _read_order(options.order)
    _read_whole("--confirm", options.confirm, 0)
    _read_folds(options)
    _read_operator(options.operator)
    choose("--ridge-scaling", options.ridge_scaling, ("sum", "mean"))
    choose("--preprocessing", options.preprocessing, ("auto", "per_fold", "once"))
    if options.scoring is not None:
        choose("--scoring", options.scoring, get_scorer_names())
    if options.criterion is not None:
        choose("--criterion", options.criterion, get_args(ClosedName))
        for name in (n for n in ("cv", "scoring", "groups", "oof") if getattr(options, n)):
            raise BadInput(f"--criterion {options.criterion} has no folds; leave --{name} out")
    if options.proba and options.ridge_scaling == "mean":
        raise BadInput("--proba cannot be combined with --ridge-scaling mean; use sum")
    if options.n_jobs == 0 or abs(options.n_jobs) > MOST_JOBS:
        wrong = f"--n-jobs {options.n_jobs} is not a number of processes"
        raise BadInput(f"{wrong}; use 1 to {MOST_JOBS}, or -1 for all processors")
    if options.resume and options.journal is None:
        raise BadInput("--resume continues a journal; name it with --journal FILE")
    if options.top < 1:
        raise BadInput("--top must be at least 1")


def check_level(level: float, n_rows: int) -> None:
    """Raise if so few residuals have no quantile that covers that share of new rows."""
    if not 0.0 < level < 1.0:
        raise BadInput(f"--interval {level:g} is not a share between 0 and 1, such as 0.9")
    least = math.ceil(max(1.0 / (1.0 - level), 1.0 / level) - 1e-9)
    if n_rows < least:
        needs = f"--interval {level:g} needs {least} rows to fit, and there are {n_rows}"
        raise BadInput(f"{needs}; use a share nearer to one half")


def read_settings(options: SearchOptions, choice: ChosenModel, data: TableData) -> Params:
    """What a search is made with besides the estimator and its grid."""
    method = MethodOptions(
        order=_read_order(options.order),
        criterion=options.criterion,  # type: ignore[arg-type]  # checked by check_options
        ridge_scaling=options.ridge_scaling,  # type: ignore[arg-type]
        n_confirm=_read_whole("--confirm", options.confirm, 0),
        keeps=None,
    )
    settings: Params = {
        "scoring": None,
        "cv": None,
        "method": method,
        "operator": _read_operator(options.operator),
        "refit": options.save is not None or choice.tunes_itself,  # which shows what it chose
        "preprocessing": options.preprocessing,
        "n_jobs": options.n_jobs,
        "random_state": options.seed,
    }
    if options.scoring is not None:
        check_scoring(options.scoring, choice.task, data.y)
    if options.criterion is not None:  # takes the place of folds and of their scores
        return settings
    # One held-out row has no R².
    is_single = options.cv == "loo" and data.groups is None
    usual = "neg_mean_squared_error" if is_single else "r2"
    usual = "accuracy" if choice.task == "classification" else usual
    kept: Literal["best", "all"] | None = "best" if options.oof is not None else None
    if options.report is not None:  # its honest score needs the values of all candidates
        kept = "all" if len(data.y) <= MOST_KEPT else "best"
    return settings | {
        "scoring": options.scoring or usual,
        "cv": _splitter(options, choice, data),
        "method": replace(method, keeps=kept),
    }


def check_scoring(name: str, task: str, y: Column) -> None:
    """Raise if the scorer has nothing to say of such a target, whatever is predicted."""
    is_of_numbers = _OF_NUMBERS.match(name) is not None
    if is_of_numbers and task == "classification":
        instead = "accuracy, balanced_accuracy or another scorer of labels"
        raise BadInput(f"--scoring {name} is for numbers, and the target has labels; use {instead}")
    # A scorer that cannot score a constant prediction cannot score any: the search would fail after
    # all its work.
    guess = (DummyClassifier if task == "classification" else DummyRegressor)()
    rows = np.zeros((len(y), 1))
    try:
        with warnings.catch_warnings(action="ignore"):
            get_scorer(name)(guess.fit(rows, y), rows, y)
    except (ValueError, TypeError, AttributeError) as error:
        if task == "regression" and not is_of_numbers:
            words = "is for labels, and the target has numbers; use r2 or neg_mean_absolute_error"
            raise BadInput(f"--scoring {name} {words}") from error
        for other in (f"{name}_{kind}" for kind in ("ovr", "macro")):
            if other in get_scorer_names():
                labels = ", ".join(map(str, np.unique(y)[:5]))
                words = f"is not for labels {labels}; use {other}"
                raise BadInput(f"--scoring {name} {words}") from error
        why = f"cannot be used with this target, for {task}: {error}"
        raise BadInput(f"--scoring {name} {why}") from error


def _read_order(text: str) -> Any:
    if text in ("exact", "screen"):
        return text
    more = ", exact, screen, inf"
    order = math.inf if text == "inf" else _read_whole("--order", text, 1, more)
    if order not in ("auto", math.inf) and order > MOST_ORDER:
        raise BadInput(
            f"--order {order} is more than {MOST_ORDER}; use inf, the limit of the series"
        )
    return order


def _read_whole(option: str, text: str, least: int, more: str = "") -> Any:
    if text == "auto":
        return text
    if re.fullmatch("[0-9]{1,9}", text) and int(text) >= least:
        return int(text)
    raise BadInput(f"{option} {text!r} is not auto{more} or a whole number of at least {least}")


def _read_operator(text: str) -> Any:
    kind, _, count = text.partition(":")
    if text in ("auto", "dense"):
        return text
    if kind not in OF_LOW_RANK or not re.fullmatch("[0-9]{1,9}", count) or int(count) < 1:
        known = "auto, dense, nystrom:500 (landmarks) or fourier:500 (random waves)"
        raise BadInput(f"--operator {text!r} is not {known}")
    return OF_LOW_RANK[kind](int(count))


def _read_folds(options: SearchOptions) -> tuple[str, int, int]:
    """Their kind, their number, and how often they are drawn anew."""
    text = options.cv or "10"
    if text == "loo":
        return "loo", 0, 1
    # 10, 10x5, group:5 and time:5; nothing else matches.
    found = _FOLDS.fullmatch(text)
    if found is None or int(found["count"]) < 2:
        known = "a number of folds from 2 on, 10x5 (ten times five folds), group:5, time:5 or loo"
        raise BadInput(f"--cv {text!r} is not {known}")
    if found["repeats"] and int(found["repeats"]) * int(found["count"]) > MOST_FOLDS:
        raise BadInput(f"--cv {text} has more than {MOST_FOLDS} folds; use fewer")
    return found["kind"] or "", int(found["count"]), int(found["repeats"] or 1)


def _splitter(options: SearchOptions, choice: ChosenModel, data: TableData) -> Splitter:
    """The folds of --cv, which keep --groups together; of those loo leaves out one at a time."""
    kind, count, repeats = _read_folds(options)
    asked = f"--cv {options.cv or 10}"
    has_labels, shuffled = choice.task == "classification", {"random_state": options.seed}
    if data.source is not None:
        if kind or repeats > 1:
            words = "rows of a folder are read in blocks; use a number of folds"
            raise BadInput(f"{asked} needs all rows at once: {words}")
        return KFold(count, shuffle=True, **shuffled)
    if data.groups is not None:
        n_groups = len(np.unique(np.asarray(data.groups)))
        if kind == "time" or repeats > 1:
            advice = f"use --cv group:{count} or --cv loo, or leave --groups out"
            raise BadInput(f"{asked} would split --groups between training and test rows; {advice}")
        if max(count, 2) > n_groups:
            few = f"only {n_groups} groups in --groups {options.groups}"
            raise BadInput(f"{asked}: there are {few}; use fewer folds")
        if kind == "loo":
            return LeaveOneGroupOut()
        grouped = StratifiedGroupKFold if has_labels else GroupKFold
        return grouped(count, shuffle=True, **shuffled)
    if kind == "group":
        raise BadInput(f"{asked} needs --groups COLUMN, the column of the groups")
    if kind == "loo":
        return LeaveOneOut()
    largest, what = len(data.y) - (kind == "time"), "rows"
    if has_labels and kind != "time":
        largest = int(np.unique(data.y, return_counts=True)[1].max())
        what = "rows in the largest class"
    if count > largest:
        raise BadInput(f"{asked}: there are only {largest} {what}; use fewer folds or loo")
    if kind == "time":
        if has_labels and options.oof is not None:
            never = f"{asked} never holds out its first rows, which have no label then"
            raise BadInput(f"--oof: {never}; use other folds, or leave --oof out")
        return TimeSeriesSplit(count)
    if repeats > 1:
        repeated = RepeatedStratifiedKFold if has_labels else RepeatedKFold
        return repeated(n_splits=count, n_repeats=repeats, **shuffled)
    return (StratifiedKFold if has_labels else KFold)(count, shuffle=True, **shuffled)


# -- what came out -------------------------------------------------------------------------------


@dataclass
class StudyResult:
    """The finished candidates of one or several rounds.

    ``grid`` has all values that were tried, ``plans`` the plan of each round; ``search`` is a
    fitted search with the candidates of all rounds, or None if none was finished, and ``winner``
    the search of the round that found the best.
    """

    job: Job
    grid: Grid
    search: Search = None
    winner: Search = None
    plans: list[SearchPlan] = field(default_factory=list)

    def shorten(self, params: Params) -> Params:
        """Parameters without the name of the step they belong to."""
        return {short_name(self.job.choice.prefix, name): v for name, v in params.items()}

    @property
    def best_params(self) -> Params:
        """The parameters of the best candidate, by their short names."""
        return self.shorten(self.search.best_params_)

    @property
    def chosen(self) -> Params:
        """What a model that chooses its parameters has chosen on all rows."""
        if not self.job.choice.tunes_itself:
            return {}
        model = self.search.best_estimator_
        model = model.steps[-1][1] if self.job.choice.prefix else model
        found = {"alpha": model.alpha_, "gamma": model.gamma_}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def edges(self) -> dict[str, str]:
        """The parameters whose best value is at an end of the grid."""
        return edges(self.grid, self.best_params)

    def add(self, search: Search) -> None:
        """Take in the candidates of another round."""
        self.plans.append(search.plan_)
        is_better = _best_score(search) > _best_score(self.search)
        self.winner = search if self.winner is None or is_better else self.winner
        if self.search is None:
            self.search = search
        else:
            self.search = _joined(self.search, search, is_better)

    @property
    def n_tied(self) -> int:
        """How many candidates share the best mean score."""
        return int(np.count_nonzero(self.search.cv_results_["rank_test_score"] == 1))


def _best_score(search: Any) -> float:
    return getattr(search, "best_score_", -math.inf)


def _joined(one: Any, two: Any, is_better: bool) -> Any:
    """A search as if it had tried the candidates of both."""
    whole, tables = copy.copy(two if is_better else one), (one.cv_results_, two.cv_results_)
    whole.best_index_ += len(tables[0]["params"]) if is_better else 0
    whole.cv_results_ = {}
    for key, column in tables[0].items():
        # Columns of parameters are masked, and params is a list.
        join: Any = np.ma.concatenate if key.startswith("param_") else np.concatenate
        parts = column, tables[1][key]
        whole.cv_results_[key] = [*parts[0], *parts[1]] if key == "params" else join(parts)
    nobody = [-1] * len((one if is_better else two)._numbers)  # whose held-out values are kept
    whole._numbers = [*nobody, *two._numbers] if is_better else [*one._numbers, *nobody]
    whole._by_fold = {key: [*own, *two._by_fold[key]] for key, own in one._by_fold.items()}
    mean = np.nan_to_num(whole.cv_results_["mean_test_score"], nan=-np.inf)
    rank = 1 + np.array([np.count_nonzero(mean > m) for m in mean])
    whole.cv_results_["rank_test_score"] = rank
    return whole


# -- the work ------------------------------------------------------------------------------------


class ShellProgress(Progress):
    """Shows how far a search is: a live bar on a terminal, plain lines elsewhere, or nothing.

    A search makes it when everything has been checked, and has it as ``search.shown``: what goes
    wrong from then on is a failure of the work, not of the input.
    """

    def __init__(
        self, is_quiet: bool, search: Search, data: Any, n_kernels: int, n_candidates: int
    ) -> None:
        self.is_quiet, self.said = is_quiet, 0
        super().__init__(search, data, n_kernels, n_candidates)
        search.shown = self

    def find_bar(self) -> Bar | None:
        """See base class: that of rich, on stderr."""
        return None if self.is_quiet or not sys.stderr.isatty() else RichBar()

    def advance(self, numbers: Sequence[int]) -> None:
        """See base class; at most about twenty lines."""
        super().advance(numbers)
        step = -(-self._total // 20)
        done = self._kernels.done
        is_due = done // step > self.said // step or self.said < done == self._total
        if is_due and not self.is_quiet and self._bar is None:
            self.said = done
            say(self._words())

    def report_rows(self, done: int, total: int | None) -> None:
        """See base class."""
        if not self.is_quiet and self._bar is None:
            self._say_rows(done, total, say)


class RichBar:
    """A live bar on stderr."""

    def __init__(self) -> None:
        self.bar = progress.Progress(
            progress.SpinnerColumn(),
            *(progress.BarColumn(), progress.TaskProgressColumn(), "{task.description}"),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self.task = self.bar.add_task("", total=1.0)
        self.bar.start()

    def show(self, share: float, words: str) -> None:
        """See base class."""
        self.bar.update(self.task, completed=share, description=words, refresh=True)

    def close(self) -> None:
        """See base class."""
        self.bar.stop()


def run_rounds(outcome: StudyResult, *, is_quiet: bool, may_grow: bool) -> None:
    """Search the grid and, as long as its best is on an edge, what lies beyond."""
    new, score = [outcome.grid], -math.inf
    while new:
        _run(outcome, new, is_quiet)
        if not np.isfinite(outcome.search.cv_results_["mean_test_score"]).any():
            settings = outcome.job.settings
            criterion = settings["method"].criterion
            asked = f"criterion {criterion}" if criterion else f"scoring {settings['scoring']}"
            scoring = f"--{asked} failed in every fold"
            why = "or no model could be fitted; the warnings above say why"
            raise CommandFailure(f"no candidate has a score: {scoring}, {why}")
        if not may_grow or len(outcome.plans) == MOST_ROUNDS or outcome.search.best_score_ <= score:
            return
        score = outcome.search.best_score_
        outcome.grid, new = grow(outcome.grid, outcome.edges)


def _run(outcome: StudyResult, grids: Sequence[Grid], is_quiet: bool) -> None:
    job, search = outcome.job, outcome.job.search(grids, len(outcome.plans))
    search._progress_kind = partial(ShellProgress, is_quiet)
    try:
        # The plan says what is refitted.
        with warnings.catch_warnings(action="ignore", category=UnsupportedWarning):
            search.fit(*job.rows, **job.metadata)
    except CheckpointError as error:
        raise BadInput(in_options(str(error))) from error
    except (ValueError, TypeError) as error:
        # Before there was anything to show, it is an option or the data that is wrong.
        if hasattr(search, "shown"):
            raise
        raise BadInput(in_options(str(error))) from error
    finally:
        # An interrupted search has what it had finished.
        if hasattr(search, "cv_results_"):
            outcome.add(search)
        if hasattr(search, "shown"):
            search.shown.close()

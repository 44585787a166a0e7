"""What a search of the command line is to do, all of it checked, and what came out."""

from __future__ import annotations

import copy
import math
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich import progress
from rich.console import Console
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold

from everyfold._progress import warn
from everyfold._typing import Estimator, Index, Matrix, Params, Search, Splitter
from everyfold.adapters.scaling import fit_to_source
from everyfold.cli import settings
from everyfold.cli.errors import BadInput, CommandFailure, naming, say
from everyfold.cli.folders import is_folder, read_folder
from everyfold.cli.models import ChosenModel, Grid, check_names, decide_task, grow, read_grid
from everyfold.cli.options import ModelOptions, SearchOptions
from everyfold.cli.readers import read_file
from everyfold.cli.table import Roles, TableData
from everyfold.conformal import FastCrossConformalRegressor
from everyfold.engine.code_digests import JournalError
from everyfold.engine.method_options import UnsupportedWarning
from everyfold.search import FastGridSearchCV, SearchPlan
from everyfold.search.calibration import FastCalibratedClassifierCV
from everyfold.search.hints import Remark, edges
from everyfold.search.progress import Bar, Progress

# The first grid, and how often it may grow.
MOST_ROUNDS = 4

# Of held-out rows that probabilities and intervals come from.
FOLDS = 5


class _Search(FastGridSearchCV):
    """A round of a search; what is to be said of its winner is told at the end of all rounds."""

    remarks: Sequence[Remark] = ()

    def _grids(self) -> Sequence[Params]:
        return ()

    def _say(self, remarks: Sequence[Remark]) -> None:
        self.remarks = remarks


@dataclass(frozen=True)
class Extras:
    """What a saved model has besides predictions, and the seed of the folds that it comes from."""

    proba: bool = False
    interval: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class Job:
    """Data, model, grid, the settings of the search, and what a saved model has besides."""

    data: TableData
    choice: ChosenModel
    grid: Grid = field(default_factory=dict)
    settings: Params = field(default_factory=dict)
    extras: Extras = Extras()
    journal: Path | None = None

    def search(self, grids: Sequence[Grid], number: int = 0) -> Search:
        """A search over these grids, not yet begun; each round has a journal of its own."""
        prefix, estimator = self.choice.prefix, self.choice.pipeline(self.data.X)
        named = [{f"{prefix}{name}": values for name, values in grid.items()} for grid in grids]
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
            plan: SearchPlan = self.search([self.grid]).plan(*self.rows, **self.metadata)
            return plan
        except (ValueError, TypeError) as error:
            raise BadInput(str(error)) from error

    def fitted(self, params: Params) -> Estimator:
        """The estimator with these parameters, fitted on all rows."""
        estimator = clone(self.choice.pipeline(self.data.X))
        estimator.set_params(**{f"{self.choice.prefix}{k}": v for k, v in params.items()})
        if self.data.source is not None:
            return fit_to_source(estimator, self.data.source)
        return estimator.fit(*self.rows, **self.weights)

    def calibrated(self, fitted: Estimator) -> Estimator:
        """The same model with probabilities, from its decisions on five folds of held-out rows."""
        splits = self._splits(StratifiedKFold, StratifiedGroupKFold)
        model = FastCalibratedClassifierCV(
            clone(fitted), cv=splits, ensemble=False, random_state=self.extras.seed
        )
        with warnings.catch_warnings():
            # Steps get their weights by name, as the warning advises.
            warnings.filterwarnings("ignore", "Pipeline.fit has no sample_weight")
            return model.fit(*self.rows, sample_weight=self.data.weights, **self._named_weights)

    def conformal(self, fitted: Estimator) -> Estimator:
        """What intervals of the same model need: its residuals on five folds of held-out rows."""
        model = FastCrossConformalRegressor(clone(fitted), cv=self._splits(KFold, GroupKFold))
        data = self.data
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnsupportedWarning)  # five refits are no surprise
            model.fit_conformalize(data.X, data.y, fit_params=self.weights)
        return model.set_params(cv=FOLDS)

    def _splits(self, plain: Splitter, grouped: Splitter) -> list[tuple[Index, Index]]:
        """Shuffled folds, which keep groups together."""
        kind = plain if self.data.groups is None else grouped
        folds = kind(FOLDS, shuffle=True, random_state=self.extras.seed)
        return list(folds.split(*self.rows, self.data.groups))

    @property
    def _named_weights(self) -> Params:
        return self.weights if self.choice.prefix else {}

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
        settings.check_seed(options.seed)
        return read_folder(options)
    content = read_file(options.data, options.header)
    with naming(options.data):
        known = {item.name: getattr(options, item.name) for item in fields(Roles)}
        data = content.training(Roles(**known), may_miss=options.impute is not None)
        task, data = decide_task(options.model, options.task, data)
    _check_extras(options, task, data)
    rows = options.standardise, options.impute
    return data, ChosenModel(options.model, options.kernel, task, *rows)


def _check_extras(options: ModelOptions, task: str, data: TableData) -> None:
    """Raise if what the saved model is to have cannot be had."""
    settings.check_seed(options.seed)
    wanted = {"proba": options.proba, "interval": options.interval is not None}
    for name in (name for name, is_wanted in wanted.items() if is_wanted):
        words = "needs --save MODEL.skops; leave it out, or give that"
        if (task == "regression") == (name == "proba"):
            is_for = "labels, not numbers" if name == "proba" else "numbers, not labels"
            words = f"is for {is_for}; leave it out"
        elif options.save is not None:
            continue
        raise BadInput(f"--{name} {words}")
    if options.interval is not None:
        settings.check_level(options.interval, len(data.y))
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
    settings.check(options)
    check_journal(options)
    data, choice = read_model(options)
    choice = replace(choice, ridge_scaling=options.ridge_scaling, operator=options.operator)
    for words in data.repeating if data.groups is None else ():
        advice = "name it as --groups, or the score may promise too much"
        warn(f"{words}: if equal cells mean rows that belong together, {advice}")
    grid = read_grid(options.grid, choice, data, options.seed)
    return Job(
        *(data, choice, grid, settings.read(options, choice, data), extras_of(options)),
        journal=options.journal,
    )


def extras_of(options: ModelOptions) -> Extras:
    """What a saved model is to have besides."""
    return Extras(options.proba, options.interval, options.seed)


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
        return {name.removeprefix(self.job.choice.prefix): v for name, v in params.items()}

    @property
    def best_params(self) -> Params:
        """The parameters of the best candidate, by their short names."""
        return self.shorten(self.search.best_params_)

    @property
    def edges(self) -> dict[str, str]:
        """The parameters whose best value is at an end of the grid."""
        return edges(self.grid, self.best_params)

    def add(self, search: Search) -> None:
        """Take in the candidates of another round."""
        self.plans.append(search.plan_)
        is_better = _best_score(search) > _best_score(self.search)
        self.winner = search if self.winner is None or is_better else self.winner
        joined = partial(_joined, self.search, search, is_better)
        self.search = search if self.search is None else joined()

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


class Watcher(Progress):
    """Shows how far a search is: a live bar on a terminal, plain lines elsewhere, or nothing.

    A search makes its watcher when everything has been checked, and has it as ``search.watcher``:
    what goes wrong from then on is a failure of the work, not of the input.
    """

    def __init__(
        self, is_quiet: bool, search: Search, data: Any, n_kernels: int, n_candidates: int
    ) -> None:
        self.is_quiet, self.said = is_quiet, 0
        super().__init__(search, data, n_kernels, n_candidates)
        search.watcher = self

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

    def within(self, done: int, total: int | None) -> None:
        """See base class."""
        if not self.is_quiet and self._bar is None:
            self._say_within(done, total, say)


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
    search._progress_kind = partial(Watcher, is_quiet)
    try:
        search.fit(*job.rows, **job.metadata)
    except JournalError as error:
        raise BadInput(str(error).replace("journal=", "--journal ", 1)) from error
    except (ValueError, TypeError) as error:
        if hasattr(search, "watcher"):
            raise
        raise BadInput(str(error)) from error
    finally:
        # An interrupted search has what it had finished.
        if hasattr(search, "cv_results_"):
            outcome.add(search)
        if hasattr(search, "watcher"):
            search.watcher.close()

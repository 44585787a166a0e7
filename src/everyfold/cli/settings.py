"""The settings of a search, read from its options: folds, criterion, operator and the rest."""

from __future__ import annotations

import math
import re
import warnings
from typing import Any

import numpy as np
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

from everyfold._typing import Params, Splitter
from everyfold.cli.errors import BadInput, choose
from everyfold.cli.models import OF_LOW_RANK, ChosenModel
from everyfold.cli.options import SearchOptions
from everyfold.cli.table import Column, TableData
from everyfold.crossval.closed_criteria import CLOSED
from everyfold.engine.method_options import MethodOptions

# Rows up to which a report has an honest score: bootstraps take as long as there are rows.
MOST_KEPT = 5000

_FOLDS = re.compile(
    r"(?:(?P<repeats>[1-9][0-9]{0,8})x|(?P<kind>group|time):)?(?P<count>[0-9]{1,9})"
)
# Of --cv 10x5, --order, --n-jobs and --seed.
MOST_FOLDS, MOST_ORDER, MOST_JOBS, MOST_SEED = 100_000, 1000, 1024, 2**32 - 1


def check(options: SearchOptions) -> None:
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
        choose("--criterion", options.criterion, CLOSED)
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


def check_seed(seed: int) -> None:
    """Raise if NumPy knows no such seed."""
    if not 0 <= seed <= MOST_SEED:
        raise BadInput(f"--seed {seed} is not a whole number from 0 to {MOST_SEED}")


def check_level(level: float, n_rows: int) -> None:
    """Raise if so many residuals cannot tell what covers that share of new rows."""
    if not 0.0 < level < 1.0:
        raise BadInput(f"--interval {level:g} is not a share between 0 and 1, such as 0.9")
    least = math.ceil(max(1.0 / (1.0 - level), 1.0 / level) - 1e-9)
    if n_rows < least:
        needs = f"--interval {level:g} needs {least} rows to fit, and there are {n_rows}"
        raise BadInput(f"{needs}; use a share nearer to one half")


def read(options: SearchOptions, choice: ChosenModel, data: TableData) -> Params:
    """What a search is made with besides the estimator and its grid."""
    is_single = options.cv == "loo" and data.groups is None
    usual = "neg_mean_squared_error" if is_single else "r2"
    usual = "accuracy" if choice.task == "classification" else usual
    has_folds = options.criterion is None
    method: Params = {
        "order": _read_order(options.order),
        "criterion": options.criterion,
        "ridge_scaling": options.ridge_scaling,
        "n_confirm": _read_whole("--confirm", options.confirm, 0),
        "keeps": _keeps(options, data) if has_folds else None,
    }
    if options.scoring is not None:
        _check_scoring(options.scoring, choice.task, data.y)
    return {
        "scoring": options.scoring or usual if has_folds else None,
        "cv": _splitter(options, choice, data) if has_folds else None,
        "method": MethodOptions(**method),
        **{"operator": _read_operator(options.operator), "refit": options.save is not None},
        "preprocessing": options.preprocessing,
        **{"n_jobs": options.n_jobs, "random_state": options.seed},
    }


def _check_scoring(name: str, task: str, y: Column) -> None:
    """Raise if the scorer has nothing to say of such a target, whatever is predicted."""
    guess = (DummyClassifier if task == "classification" else DummyRegressor)()
    rows = np.zeros((len(y), 1))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            get_scorer(name)(guess.fit(rows, y), rows, y)
    except (ValueError, TypeError, AttributeError) as error:
        why = f"cannot be used with this target, for {task}: {error}"
        raise BadInput(f"--scoring {name} {why}") from error


def _keeps(options: SearchOptions, data: TableData) -> str | None:
    """Whose held-out values are needed: the honest score of a report reads those of all."""
    if options.report is not None:
        return "all" if len(data.y) <= MOST_KEPT else "best"
    return "best" if options.oof is not None else None


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
    found = _FOLDS.fullmatch(text)
    if found is None or int(found["count"]) < 2:
        known = "a number of folds from 2 on, 10x5 (ten times five folds), group:5, time:5 or loo"
        raise BadInput(f"--cv {text!r} is not {known}")
    if found["repeats"] and int(found["repeats"]) * int(found["count"]) > MOST_FOLDS:
        raise BadInput(f"--cv {text} has more than {MOST_FOLDS} folds; use fewer")
    return found["kind"] or "", int(found["count"]), int(found["repeats"] or 1)


def _splitter(options: SearchOptions, choice: ChosenModel, data: TableData) -> Splitter:
    kind, count, repeats = _read_folds(options)
    has_labels, shuffled = choice.task == "classification", {"random_state": options.seed}
    if data.source is not None:
        if kind or repeats > 1:
            words = "rows of a folder are read in blocks; use a number of folds"
            raise BadInput(f"--cv {options.cv} needs all rows at once: {words}")
        return KFold(count, shuffle=True, **shuffled)
    if data.groups is not None:
        return _group_splitter(options, data, has_labels)
    if kind == "group":
        raise BadInput(f"--cv {options.cv} needs --groups COLUMN, which rows belong together")
    if kind == "loo":
        return LeaveOneOut()
    largest, what = len(data.y) - (kind == "time"), "rows"
    if has_labels and kind != "time":
        largest = int(np.unique(data.y, return_counts=True)[1].max())
        what = "rows in the largest class"
    if count > largest:
        raise BadInput(
            f"--cv {options.cv or 10}: there are only {largest} {what}; use fewer folds or loo"
        )
    if kind == "time" and has_labels and options.oof is not None:
        never = f"--cv {options.cv} never holds out its first rows, which have no label then"
        raise BadInput(f"--oof: {never}; use other folds, or leave --oof out")
    if kind == "time":
        return TimeSeriesSplit(count)
    if repeats > 1:
        repeated = RepeatedStratifiedKFold if has_labels else RepeatedKFold
        return repeated(n_splits=count, n_repeats=repeats, **shuffled)
    return (StratifiedKFold if has_labels else KFold)(count, shuffle=True, **shuffled)


def _group_splitter(options: SearchOptions, data: TableData, has_labels: bool) -> Splitter:
    """Folds that keep groups together; loo leaves out one group at a time."""
    kind, count, repeats = _read_folds(options)
    n_groups = len(np.unique(np.asarray(data.groups)))
    if kind == "time" or repeats > 1:
        advice = f"use --cv group:{count} or --cv loo, or leave --groups out"
        raise BadInput(
            f"--cv {options.cv} would split --groups between training and test rows; {advice}"
        )
    if max(count, 2) > n_groups:
        few = f"only {n_groups} groups in --groups {options.groups}"
        raise BadInput(f"--cv {options.cv or 10}: there are {few}; use fewer folds")
    if kind == "loo":
        return LeaveOneGroupOut()
    splitter = StratifiedGroupKFold if has_labels else GroupKFold
    return splitter(count, shuffle=True, random_state=options.seed)

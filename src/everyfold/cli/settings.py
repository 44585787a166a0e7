"""The settings of a search, read from its options: folds, criterion, operator and the rest."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from sklearn.metrics import get_scorer_names
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

from everyfold.cli.data import Data
from everyfold.cli.manners import BadInput, choose
from everyfold.cli.models import OF_LOW_RANK, Choice
from everyfold.cli.options import SearchOptions
from everyfold.criteria.named import CLOSED
from everyfold.types import Params, Splitter

_FOLDS = re.compile(r"(?:(?P<repeats>[1-9]\d*)x|(?P<kind>group|time):)?(?P<count>\d+)")


def check(options: SearchOptions) -> None:
    """Raise if a value is not one of its option, before the data are read."""
    _read_order(options.order)
    _read_whole("--confirm", options.confirm, 0, "auto")
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
        raise BadInput("--proba does not go with --ridge-scaling mean; use sum")
    if options.n_jobs == 0:
        raise BadInput("--n-jobs must not be 0")
    if options.top < 1:
        raise BadInput("--top must be at least 1")


def read(options: SearchOptions, choice: Choice, data: Data) -> Params:
    """What a search is made with besides the estimator and its grid."""
    is_single = options.cv == "loo" and data.groups is None
    usual = "neg_mean_squared_error" if is_single else "r2"
    usual = "accuracy" if choice.task == "classification" else usual
    has_folds = options.criterion is None
    return {
        "scoring": options.scoring or usual if has_folds else None,
        "cv": _splitter(options, choice, data) if has_folds else None,
        **{"criterion": options.criterion, "operator": _read_operator(options.operator)},
        **{"ridge_scaling": options.ridge_scaling, "refit": options.save is not None},
        "keep_predictions": "best" if options.oof is not None else None,
        **{"order": _read_order(options.order), "preprocessing": options.preprocessing},
        "n_confirm": _read_whole("--confirm", options.confirm, 0, "auto"),
        **{"n_jobs": options.n_jobs, "random_state": options.seed},
    }


def _read_order(text: str) -> Any:
    if text in ("exact", "screen"):
        return text
    more = ", exact, screen, inf"
    return math.inf if text == "inf" else _read_whole("--order", text, 1, "auto", more)


def _read_whole(option: str, text: str, least: int, word: str, more: str = "") -> Any:
    if text == word:
        return word
    if text.isdecimal() and int(text) >= least:
        return int(text)
    raise BadInput(f"{option} {text!r} is not {word}{more} or a whole number of at least {least}")


def _read_operator(text: str) -> Any:
    kind, _, count = text.partition(":")
    if text in ("auto", "dense"):
        return text
    if kind not in OF_LOW_RANK or not count.isdecimal() or int(count) < 1:
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
    return found["kind"] or "", int(found["count"]), int(found["repeats"] or 1)


def _splitter(options: SearchOptions, choice: Choice, data: Data) -> Splitter:
    kind, count, repeats = _read_folds(options)
    has_labels, shuffled = choice.task == "classification", {"random_state": options.seed}
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


def _group_splitter(options: SearchOptions, data: Data, has_labels: bool) -> Splitter:
    """Folds that keep groups together; loo leaves out one group at a time."""
    kind, count, repeats = _read_folds(options)
    n_groups = len(np.unique(np.asarray(data.groups)))
    if kind == "time" or repeats > 1:
        advice = f"use --cv group:{count} or --cv loo, or leave --groups out"
        raise BadInput(f"--cv {options.cv} would tear --groups apart; {advice}")
    if max(count, 2) > n_groups:
        few = f"only {n_groups} groups in --groups {options.groups}"
        raise BadInput(f"--cv {options.cv or 10}: there are {few}; use fewer folds")
    if kind == "loo":
        return LeaveOneGroupOut()
    splitter = StratifiedGroupKFold if has_labels else GroupKFold
    return splitter(count, shuffle=True, random_state=options.seed)

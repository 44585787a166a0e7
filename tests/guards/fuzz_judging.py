"""A differential fuzz test of judgements: each random one against a loop of refits.

``make fuzz`` runs a thousand cases and prints the seeds that differ; ``python -m
tests.guards.fuzz_judging --start 17 --cases 1 --verbose`` looks at one of them. Cases have groups,
weights, rows that repeat, folds that repeat or overlap, data frames and Pipelines. What rows
contribute to a score is found here by numerical derivatives of the score in the weights of rows,
and everything else by fitting scikit-learn's way, so that nothing is computed as the library does.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import sklearn.model_selection as refitting
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.base import clone, is_classifier
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.metrics import get_scorer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from everyfold import (
    LSSVC,
    LSSVR,
    BufferedLeaveOneOut,
    LeavePairOut,
    PurgedTimeSeriesSplit,
    RebalancedLeaveOneOut,
    compare,
    cross_val_score,
    influence,
    permutation_test_score,
    score_interval,
)
from everyfold.judge.model_scores import ModelScores, _halves

CLOSE, LOOSE = 1e-7, 2e-5
"""How close results are to be, relative to 1 or their size: of squared loss, of other losses.

Losses other than the squared are fitted by both sides to a tolerance.
"""


class Slow(NamedTuple):
    """An interval the slow way; ``plain`` is the standard error of independent rows."""

    estimate: float
    error: float
    freedom: float
    plain: float = 0.0


class Difference(AssertionError):
    """The two sides differ."""


# -- the cases -------------------------------------------------------------------------------------


@dataclass
class Drawn:
    """Rows, a model or two, and a score."""

    random: np.random.Generator
    X: Any
    y: Any
    groups: Any
    weights: Any
    models: list[Any]
    scoring: str
    scores: Sequence[str]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def n(self) -> int:
        return len(self.y)

    @property
    def tolerance(self) -> float:
        return LOOSE if any(_is_iterative(model) for model in self.models) else CLOSE

    def rows(self, which: Any) -> Any:
        return self.X.iloc[which] if hasattr(self.X, "iloc") else self.X[which]

    def fit(self, model: Any, train: Any, y: Any = None) -> Any:
        """A model of some rows, as scikit-learn fits it."""
        y = self.y if y is None else y
        given = {}
        if self.weights is not None:
            step = model.steps[-1][0] + "__" if hasattr(model, "steps") else ""
            given = {f"{step}sample_weight": self.weights[train]}
        return clone(model).fit(self.rows(train), y[train], **given)

    @property
    def params(self) -> Any:
        """The weights as the library takes them."""
        if self.weights is None:
            return None
        step = ""
        if hasattr(self.models[0], "steps"):
            step = self.models[0].steps[-1][0] + "__"
        return {f"{step}sample_weight": self.weights}

    def __str__(self) -> str:
        parts = [f"{self.models}", self.scoring, f"n={self.n}"]
        parts += ["groups"] * (self.groups is not None) + ["weights"] * (self.weights is not None)
        return ", ".join([*parts, *(f"{key}={value}" for key, value in self.facts.items())])


OF_NUMBERS = (
    "r2",
    "neg_mean_squared_error",
    "neg_mean_absolute_error",
    "neg_root_mean_squared_error",
)
OF_LABELS = ("accuracy", "balanced_accuracy", "roc_auc")
MODELS_OF_NUMBERS: tuple[Callable[[float], Any], ...] = (
    lambda a: Ridge(alpha=a),
    lambda a: KernelRidge(alpha=a, kernel="rbf", gamma=0.2),
    lambda a: KernelRidge(alpha=a, kernel="poly", degree=2, gamma=0.3),
    lambda a: LSSVR(alpha=a, gamma=0.3),
    lambda a: make_pipeline(StandardScaler(), Ridge(alpha=a)),
    lambda a: make_pipeline(StandardScaler(), LSSVR(alpha=a, gamma=0.2)),
    lambda a: SVR(C=a, gamma=0.3, epsilon=0.3, tol=1e-9),
    lambda a: DecisionTreeRegressor(max_depth=2, random_state=0),
)
MODELS_OF_LABELS: tuple[Callable[[float], Any], ...] = (
    lambda a: RidgeClassifier(alpha=a),
    lambda a: LSSVC(alpha=a, gamma=0.3),
    lambda a: LSSVC(alpha=a, gamma=0.3, class_weight="balanced"),
    lambda a: make_pipeline(StandardScaler(), LSSVC(alpha=a, gamma=0.2)),
    lambda a: SVC(C=a, gamma=0.3, tol=1e-9),
    lambda a: LogisticRegression(C=a, tol=1e-11, max_iter=2000),
    lambda a: DecisionTreeClassifier(max_depth=2, random_state=0),
)


def _is_iterative(model: Any) -> bool:
    return isinstance(model, SVC | SVR | LogisticRegression)


def draw(
    random: np.random.Generator, *, shared: bool = False, labels: Any = None, repeats: float = 0.3
) -> Drawn:
    """Random rows with a model and a score; ``shared`` for models of squared loss only.

    Rows that repeat have equal values up to rounding, which decides about areas under ROC curves.
    """
    n = int(random.integers(24, 42))
    X = random.normal(size=(n, int(random.integers(2, 5))))
    facts: dict[str, Any] = {}
    if random.random() < repeats:  # rows that repeat, with targets of their own
        X[: n // 4] = X[n // 4 : 2 * (n // 4)]
        facts["repeats"] = True
    order = random.permutation(n)
    X = X[order]
    signal = X[:, 0] + random.normal(size=n)
    is_labels = bool(random.random() < 0.5) if labels is None else labels
    y: Any = signal.round(1) if random.random() < 0.3 else signal
    if is_labels:
        names = [np.array(["no", "yes"]), np.array([-1, 1]), np.array([0, 1])]
        y = names[random.integers(3)][
            (signal > np.quantile(signal, random.choice([0.5, 0.65]))) * 1
        ]
    groups = None
    if random.random() < 0.4:
        codes = random.integers(0, n // 3, n)
        groups = codes if random.random() < 0.5 else np.array([f"g{k}" for k in codes])
    weights = random.uniform(0.3, 3.0, n) if random.random() < 0.35 else None
    makers = MODELS_OF_LABELS if is_labels else MODELS_OF_NUMBERS
    count = len(makers) - (2 if not is_labels else 3) if shared else len(makers)
    models = [
        makers[random.integers(count)](float(10.0 ** random.uniform(-1.5, 1.0))) for _ in range(2)
    ]
    scores = OF_LABELS[: 2 if facts else 3] if is_labels else OF_NUMBERS
    scoring = str(random.choice(scores))
    if not hasattr(models[0], "steps") and random.random() < 0.15:
        X = pd.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])])
        facts["frame"] = True
    return Drawn(random, X, y, groups, weights, models, scoring, scores, facts)


def draw_splits(
    drawn: Drawn, *, partition: bool = True, repeated: bool = True, least: int = 3
) -> list[tuple[Any, Any]]:
    """Folds as pairs of indices: of whole groups, stratified, repeated, or that overlap."""
    random, seed = drawn.random, int(drawn.random.integers(1000))
    k, times = int(random.integers(least, 6)), int(random.integers(1, 4)) if repeated else 1
    if not partition and random.random() < 0.4:
        splitter: Any = refitting.ShuffleSplit(k, test_size=0.3, random_state=seed)
        if is_classifier(drawn.models[0]):
            splitter = refitting.StratifiedShuffleSplit(k, test_size=0.3, random_state=seed)
        drawn.facts["cv"] = "overlapping"
        return list(splitter.split(drawn.X, drawn.y))
    splits: list[tuple[Any, Any]] = []
    for repeat in range(times):
        if drawn.groups is not None:
            splitter = refitting.GroupKFold(k, shuffle=True, random_state=seed + repeat)
        elif is_classifier(drawn.models[0]):
            splitter = refitting.StratifiedKFold(k, shuffle=True, random_state=seed + repeat)
        else:
            splitter = refitting.KFold(k, shuffle=True, random_state=seed + repeat)
        splits += splitter.split(drawn.X, drawn.y, drawn.groups)
    drawn.facts["cv"] = f"{times} x {k}"
    return splits


# -- the slow way ----------------------------------------------------------------------------------


def answers(drawn: Drawn, model: Any, splits: Sequence[Any], scoring: str) -> list[Any]:
    """What models of all splits say of their test rows."""
    found = []
    for train, test in splits:
        fitted = drawn.fit(model, train)
        rows = drawn.rows(test)
        if scoring != "roc_auc":
            found.append(fitted.predict(rows))
        elif hasattr(fitted, "decision_function"):
            found.append(fitted.decision_function(rows))
        else:
            found.append(fitted.predict_proba(rows)[:, 1])
    return found


def weighted_score(scoring: str, y: Any, r: Any, w: Any) -> float:
    """A score of weighted rows, by its definition."""
    w = np.asarray(w, dtype=float)
    if scoring == "roc_auc":
        positive = y == np.unique(y)[-1]
        above = np.sign(np.subtract.outer(r[positive], r[~positive]))
        both = np.outer(w[positive], w[~positive])
        return float((both * (0.5 + 0.5 * above)).sum() / both.sum())
    if scoring == "balanced_accuracy":
        recalls = [w[own & (y == r)].sum() / w[own].sum() for own in (y == c for c in np.unique(y))]
        return float(np.mean(recalls))
    if scoring == "accuracy":
        return float(w @ (y == r) / w.sum())
    error = y - r
    if scoring == "neg_mean_absolute_error":
        return -float(w @ np.abs(error) / w.sum())
    squared = float(w @ error**2 / w.sum())
    if scoring == "r2":
        centre = w @ y / w.sum()
        return 1.0 - squared / float(w @ (y - centre) ** 2 / w.sum())
    return -np.sqrt(squared) if scoring == "neg_root_mean_squared_error" else -squared


def contributions(scoring: str, reference: Any, rows: Any) -> Any:
    """The score of the reference rows plus its derivative towards each of some rows.

    (1 - h) of the reference and h of the row; four points make the error of order h⁴.
    """
    (y, r), (y_new, r_new) = reference, rows
    n, found = len(y), np.empty(len(y_new))
    whole = weighted_score(scoring, y, r, np.ones(n))
    for i in range(len(y_new)):
        both = np.append(y, y_new[i]), np.append(r, r_new[i])

        def at(h: float, both: Any = both) -> float:
            return weighted_score(scoring, *both, np.append(np.full(n, (1.0 - h) / n), h))

        h = 1e-3
        slope = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h)
        found[i] = whole + slope
    return found


def error_of(rows: Any, groups: Any) -> tuple[float, int]:
    """The standard error of a mean of rows, or of rows in groups, and how many there are."""
    deviations = rows - rows.mean()
    if groups is not None:
        deviations = np.array([deviations[groups == g].sum() for g in np.unique(groups)])
    count = len(deviations)
    if count < 2:
        return np.nan, count
    return float(np.sqrt(count / (count - 1) * (deviations**2).sum())) / len(rows), count


def minus(found: Sequence[Any]) -> Any:
    return found[0] if len(found) == 1 else found[0] - found[1]


def pooled(drawn: Drawn, models: Sequence[Any], splits: Sequence[Any]) -> Any:
    """What each row contributes to the score or difference, on average over all repetitions."""
    n, total = drawn.n, np.zeros(drawn.n)
    times = sum(len(test) for _, test in splits) // n
    count = len(splits) // times
    for k in range(times):
        part = splits[k * count : (k + 1) * count]
        tests = np.concatenate([test for _, test in part])
        each = []
        for model in models:
            values = np.concatenate(answers(drawn, model, part, drawn.scoring))
            own = drawn.y[tests], values
            each.append(contributions(drawn.scoring, own, own))
        total[tests] += minus(each) / times
    return total


def slow_normal(drawn: Drawn, models: Sequence[Any], splits: Sequence[Any]) -> Slow:
    rows = pooled(drawn, models, splits)
    error, count = error_of(rows, drawn.groups)
    return Slow(float(rows.mean()), error, count - 1, float(rows.std() / np.sqrt(drawn.n)))


def slow_nested(drawn: Drawn, models: Sequence[Any], splits: Sequence[Any]) -> Slow:
    """Bates, Hastie and Tibshirani (2023), algorithm 1, with the variance, by all models."""
    times = sum(len(test) for _, test in splits) // drawn.n
    k = len(splits) // times
    parts = [splits[s * k : (s + 1) * k] for s in range(times)]
    all_rows, inner_splits = [], []
    for part in parts:
        for i, (train, _) in enumerate(part):
            inner_splits.append(
                [
                    (np.intersect1d(train, other), test)
                    for j, (other, test) in enumerate(part)
                    if j != i
                ]
            )
    tests = np.concatenate([test for _, test in splits])
    outer_rows, inner_rows = [], []
    for model in models:
        values = np.concatenate(answers(drawn, model, splits, drawn.scoring))
        reference = drawn.y[tests], values
        outer_rows.append(contributions(drawn.scoring, reference, reference))
        inner_rows.append([])
        for own in inner_splits:
            inner_values = np.concatenate(answers(drawn, model, own, drawn.scoring))
            inner_tests = np.concatenate([test for _, test in own])
            rows = drawn.y[inner_tests], inner_values
            inner_rows[-1].append(contributions(drawn.scoring, reference, rows).mean())
    outer, inner = minus(outer_rows), minus([np.array(own) for own in inner_rows])
    all_rows = np.zeros(drawn.n)
    np.add.at(all_rows, tests, outer / times)
    gaps, noise, start = [], [], 0
    for s, (_, test) in enumerate(splits):
        own = outer[start : start + len(test)]
        start += len(test)
        noise.append(error_of(own, None if drawn.groups is None else drawn.groups[test])[0] ** 2)
        gaps.append(inner[s] - own.mean())
    plain, count = error_of(all_rows, drawn.groups)
    variance = (k - 1) / k * (np.var(gaps) - np.mean(noise))
    error = float(np.sqrt(0.75 * np.clip(variance, plain**2, k * plain**2) + 0.25 * plain**2))
    mean = inner.mean()
    estimate = mean - (1.0 + (k - 2) / k) * (mean - all_rows.mean())
    return Slow(float(estimate), error, count - 1, float(all_rows.std() / np.sqrt(drawn.n)))


def fold_scores(drawn: Drawn, model: Any, splits: Sequence[Any]) -> Any:
    scorer = get_scorer(drawn.scoring)
    return np.array(
        [scorer(drawn.fit(model, a), drawn.rows(b), drawn.y[b]) for a, b in splits], dtype=float
    )


def slow_corrected(drawn: Drawn, models: Sequence[Any], splits: Sequence[Any]) -> Slow:
    scores = minus([fold_scores(drawn, model, splits) for model in models])
    units = np.arange(drawn.n) if drawn.groups is None else drawn.groups
    if any(np.isin(units[train], units[test]).any() for train, test in splits):
        units = np.arange(drawn.n)  # groups that folds divide are no units
    trained, tested = (
        sum(len(np.unique(units[rows])) for rows in own) for own in zip(*splits, strict=True)
    )
    ratio = tested / trained
    error = np.sqrt(scores.var(ddof=1) * (1.0 / len(scores) + ratio))
    return Slow(float(scores.mean()), float(error), len(scores) - 1)


def slow_pairs(drawn: Drawn, models: Sequence[Any]) -> Slow:
    """All pairs of unlike rows left out, one after the other."""
    positive = drawn.y == np.unique(drawn.y)[-1]
    first, second = np.flatnonzero(positive), np.flatnonzero(~positive)
    tables = []
    for model in models:
        wins = np.empty((len(first), len(second)))
        for i, p in enumerate(first):
            for j, q in enumerate(second):
                rest = np.setdiff1d(np.arange(drawn.n), [p, q])
                values = answers(drawn, model, [(rest, np.array([p, q]))], "roc_auc")[0]
                wins[i, j] = 0.5 + 0.5 * np.sign(values[0] - values[1])
        tables.append(wins)
    wins = minus(tables)
    a, b = wins.mean(axis=1), wins.mean(axis=0)
    error = np.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
    return Slow(float(wins.mean()), float(error), min(wins.shape) - 1)


def slow_halves(drawn: Drawn, models: Sequence[Any], k: int, seed: int) -> Slow:
    """Scores of the folds of disjoint halves; the halves and folds are those of the library."""
    scores = ModelScores(models, drawn.X, drawn.y, drawn.groups, drawn.scoring, k, seed)
    codes = scores.truth if scores.is_classifier else None

    def score(part: Sequence[Any]) -> float:
        tests = np.concatenate([test for _, test in part])
        each = []
        for model in models:
            values = np.concatenate(answers(drawn, model, part, drawn.scoring))
            each.append(weighted_score(drawn.scoring, drawn.y[tests], values, np.ones(len(tests))))
        return float(minus(each))

    squares = []
    for number in range(10):
        a, b = (
            score(scores.partitions(1, own)[0])
            for own in _halves(drawn.n, scores.units, codes, number)
        )
        squares.append((a - b) ** 2)
    error = float(np.sqrt(np.mean(squares) / 2.0))
    return Slow(score(scores.partitions(1)[0]), error, np.inf)


# -- what is compared ------------------------------------------------------------------------------


def expect(ours: Any, theirs: Any, tolerance: float, what: str) -> None:
    """Entry by entry; NaN equals NaN."""
    ours, theirs = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
    if ours.shape != theirs.shape:
        raise Difference(f"{what}: shapes {ours.shape} and {theirs.shape}")
    near = np.abs(ours - theirs) <= tolerance * np.maximum(1.0, np.abs(theirs))
    near |= np.isnan(ours) & np.isnan(theirs)
    if not near.all():
        i = np.flatnonzero(~near.reshape(-1))[0]
        raise Difference(
            f"{what}: {ours.reshape(-1)[i]:.12g}, by refits {theirs.reshape(-1)[i]:.12g}"
        )


def ends_of(drawn: Drawn, slow: Slow, level: float, *, of_hits: bool) -> tuple[float, float]:
    """Student's interval, or Wilson's: where |p - estimate| is the quantile times p's error."""
    half = 0.5 + level / 2.0
    quantile = norm.ppf(half) if slow.freedom == np.inf else student.ppf(half, slow.freedom)
    if not of_hits:
        return slow.estimate - quantile * slow.error, slow.estimate + quantile * slow.error
    share, count = float(np.clip(slow.estimate, 0.0, 1.0)), float(drawn.n)
    if slow.error > 0.0:
        count *= min(1.0, (slow.plain / slow.error) ** 2)
    square = quantile**2 / count
    ends = np.roots([1.0 + square, -(2.0 * share + square), share**2]).real
    return min(slow.estimate, ends.min()), max(slow.estimate, ends.max())


def draw_interval(random: np.random.Generator, count: int) -> tuple[Drawn, dict[str, Any], Slow]:
    """What an interval of one model, or of a difference, is asked for, and the slow one."""
    kinds = ["normal", "nested", "corrected-t", "conservative-z", "pairs", "delong"]
    method = str(random.choice(kinds, p=[0.25, 0.3, 0.25, 0.05, 0.05, 0.1]))
    of_pairs = method in ("pairs", "delong")
    is_area = True if of_pairs else None
    drawn = draw(
        random, shared=method in ("pairs", "nested"), labels=is_area, repeats=0.3 * (not of_pairs)
    )
    drawn.weights = None
    if of_pairs:
        drawn.scoring = "roc_auc"
    if method == "pairs":
        drawn.groups = None
    models = drawn.models[:count]
    level = float(random.choice([0.8, 0.9, 0.95]))
    asked = {"scoring": drawn.scoring, "groups": drawn.groups, "level": level, "method": method}
    drawn.facts["method"] = method
    if method == "pairs":
        return drawn, asked, slow_pairs(drawn, models)
    if method == "conservative-z":
        k, seed = int(random.integers(2, 4)), int(random.integers(1000))
        asked |= {"cv": k, "random_state": seed}
        return drawn, asked, slow_halves(drawn, models, k, seed)
    splits = draw_splits(drawn, partition=method != "corrected-t")
    if random.random() < 0.15:  # shuffled by the library: the folds are its own
        k, seed = int(random.integers(3, 5)), int(random.integers(1000))
        scores = ModelScores(models, drawn.X, drawn.y, drawn.groups, drawn.scoring, k, seed)
        parts = scores.partitions(scores.repeats(method))  # type: ignore[arg-type]
        splits = [split for part in parts for split in part]
        asked |= {"cv": k, "random_state": seed}
        drawn.facts["cv"] = k
    else:
        asked["cv"] = splits
    work = {"nested": slow_nested, "corrected-t": slow_corrected}.get(method, slow_normal)
    try:
        return drawn, asked, work(drawn, models, splits)
    except ValueError:  # training rows of one class
        return drawn, asked, Slow(np.nan, np.nan, 1.0)


def ask(function: Any, models: Any, drawn: Drawn, asked: dict[str, Any], slow: Slow) -> Any:
    """The library's answer; None if it refuses what has no number the slow way either.

    It also refuses training rows of one class, to which RidgeClassifier fits a constant.
    """
    has_number = np.isfinite([slow.estimate, slow.error]).all()
    try:
        found = function(*models, drawn.X, drawn.y, **asked)
    except ValueError as error:
        if has_number and "one class only" not in str(error):
            raise
        return None
    if has_number:
        return found
    raise Difference(f"{drawn}: {found}, where refits have no number")


def examine_interval(random: np.random.Generator) -> tuple[Drawn, str]:
    """``score_interval`` of one model."""
    drawn, asked, slow = draw_interval(random, 1)
    found = ask(score_interval, drawn.models[:1], drawn, asked, slow)
    if found is None:
        return drawn, "refused"
    estimate = np.clip(slow.estimate, 0.0, 1.0) if drawn.scoring in OF_LABELS else slow.estimate
    expect(found.estimate, estimate, drawn.tolerance, f"{drawn}: estimate")
    expect(found.error, slow.error, 10.0 * drawn.tolerance, f"{drawn}: error")
    of_hits = drawn.scoring == "accuracy" and found.method in ("normal", "nested")
    of_hits &= found.method == "nested" or str(drawn.facts.get("cv"))[:3] not in ("2 x", "3 x")
    ends = ends_of(drawn, slow, asked["level"], of_hits=of_hits)
    least, most = (0.0, 1.0) if drawn.scoring in OF_LABELS else (-np.inf, drawn.scoring == "r2")
    ends = np.clip(ends, least, most)
    expect([found.low, found.high], ends, 20.0 * drawn.tolerance, f"{drawn}: interval")
    return drawn, "interval"


def examine_comparison(random: np.random.Generator) -> tuple[Drawn, str]:
    """``compare`` of two models, its test and its probabilities."""
    drawn, asked, slow = draw_interval(random, 2)
    margin = float(random.choice([0.0, 0.02, 0.3]))
    found = ask(compare, drawn.models, drawn, asked | {"margin": margin}, slow)
    if found is None:
        return drawn, "refused"
    expect(found.difference, slow.estimate, drawn.tolerance, f"{drawn}: difference")
    if slow.error < 1e-7:
        return drawn, "comparison of equals"
    off = 100.0 * drawn.tolerance
    freedom = 1e12 if slow.freedom == np.inf else slow.freedom
    statistic = slow.estimate / slow.error
    expect(found.statistic, statistic, off * max(1.0, abs(statistic)), f"{drawn}: statistic")
    expect(found.pvalue, 2.0 * student.sf(abs(statistic), freedom), off, f"{drawn}: p-value")
    ends = ends_of(drawn, slow, asked["level"], of_hits=False)
    expect(found.interval, ends, off, f"{drawn}: interval")
    posterior = student(freedom, loc=slow.estimate, scale=slow.error)
    chances = posterior.sf(margin), posterior.cdf(-margin)
    expect([found.p_better, found.p_worse], chances, off, f"{drawn}: probabilities")
    expect(found.p_equal, 1.0 - sum(chances), off, f"{drawn}: probability of none")
    return drawn, "comparison"


# -- influence -------------------------------------------------------------------------------------


def score_without(drawn: Drawn, splits: Sequence[Any], left_out: Any) -> float:
    """The mean score of the folds of a model that is fitted without some rows."""
    model, scorer = drawn.models[0], get_scorer(drawn.scoring)
    scores, pool = [], []
    are_single = all(len(test) == 1 for _, test in splits)
    for train, test in splits:
        rest = np.setdiff1d(train, left_out)
        if not len(rest) or (
            is_classifier(model) and len(np.unique(drawn.y[rest])) < len(np.unique(drawn.y[train]))
        ):
            return np.nan
        if are_single:
            pool.append(answers(drawn, model, [(rest, test)], drawn.scoring)[0])
            continue
        scores.append(scorer(drawn.fit(model, rest), drawn.rows(test), drawn.y[test]))
    if are_single:
        tests = np.concatenate([test for _, test in splits])
        values = np.concatenate(pool)
        return weighted_score(drawn.scoring, drawn.y[tests], values, np.ones(len(tests)))
    return float(np.mean(scores))


def examine_influence(random: np.random.Generator) -> tuple[Drawn, str]:
    """The effect of deleting every row or group, in folds or on rows that are not trained on."""
    drawn = draw(random, shared=bool(random.random() < 0.7))
    model, n = drawn.models[0], drawn.n
    labels = np.arange(n) if drawn.groups is None else np.asarray(drawn.groups)
    units = np.unique(labels)
    asked: dict[str, Any] = {"scoring": drawn.scoring, "params": drawn.params}
    way = str(random.choice(["folds", "evaluation rows", "single rows"], p=[0.5, 0.35, 0.15]))
    if drawn.groups is not None or drawn.scoring == "balanced_accuracy":
        way = "folds" if way == "single rows" else way
    drawn.facts["way"] = way
    X, y = drawn.X, drawn.y
    if way == "evaluation rows":
        cut = n - max(8, n // 4)
        if len(np.unique(y[cut:])) < 2 or len(np.unique(y[:cut])) < 2:
            return drawn, "nothing to evaluate"
        splits = [(np.arange(cut), np.arange(cut, n))]
        labels = labels[:cut]
        units = np.unique(labels)
        asked |= {"X_eval": drawn.rows(np.arange(cut, n)), "y_eval": y[cut:]}
        X, y = drawn.rows(np.arange(cut)), y[:cut]
        if drawn.weights is not None:
            asked["params"] = {key: value[:cut] for key, value in drawn.params.items()}
    else:
        single = way == "single rows"
        splits = (
            list(refitting.LeaveOneOut().split(X))
            if single
            else draw_splits(drawn, partition=bool(random.random() < 0.7))
        )
        asked["cv"] = splits
    if drawn.groups is not None:
        asked["groups"] = labels
    found = influence(model, X, y, **asked)
    base = score_without(drawn, splits, [])
    expect(found.score, base, drawn.tolerance, f"{drawn}: score")
    some = units if len(units) <= 12 else random.choice(units, 12, replace=False)
    for unit in some:
        own = score_without(drawn, splits, np.flatnonzero(labels == unit))
        effect = found.effect[np.flatnonzero(np.asarray(found.labels) == unit)[0]]
        expect(effect, own - base, drawn.tolerance, f"{drawn}: effect of {unit}")
    return drawn, f"influence, {way}"


def examine_columns(random: np.random.Generator) -> tuple[Drawn, str]:
    """The effect of leaving out every column, or groups of them."""
    drawn = draw(random)
    drawn.groups = None
    splits = draw_splits(drawn)
    width = drawn.X.shape[1]
    labels = None if random.random() < 0.5 else np.append([0], random.integers(0, 2, width - 2))
    labels = None if labels is None else np.append(labels, 1)
    asked = {"scoring": drawn.scoring, "params": drawn.params, "cv": splits, "groups": labels}
    found = influence(drawn.models[0], drawn.X, drawn.y, of="columns", **asked)
    base = fold_scores(drawn, drawn.models[0], splits).mean()
    codes = np.arange(width) if labels is None else labels
    for place, unit in enumerate(np.unique(codes)):
        less = Drawn(**{**drawn.__dict__})
        kept = np.flatnonzero(codes != unit)
        less.X = drawn.X.iloc[:, kept] if hasattr(drawn.X, "iloc") else drawn.X[:, kept]
        effect = fold_scores(less, drawn.models[0], splits).mean() - base
        expect(found.effect[place], effect, drawn.tolerance, f"{drawn}: column {unit}")
    return drawn, "influence of columns"


# -- permutations ----------------------------------------------------------------------------------


def orders_of(drawn: Drawn, exchange: str, count: int, seed: int) -> list[Any]:
    """The permuted targets as scikit-learn draws them, or by whole groups, or with other signs."""
    random, y, n = np.random.RandomState(seed), drawn.y, drawn.n
    targets = []
    names = None if drawn.groups is None else np.unique(drawn.groups)
    for _ in range(count):
        order = np.arange(n)
        if exchange == "signs":
            signs = 2.0 * random.randint(0, 2, n if names is None else len(names)) - 1.0
            units = order if names is None else np.searchsorted(names, drawn.groups)
            targets.append(y * signs[units])
            continue
        if names is None:
            order = random.permutation(n)
        elif exchange == "within":
            for name in names:
                own = np.flatnonzero(drawn.groups == name)
                order[own] = random.permutation(own)
        else:  # whole groups of one size
            members = np.array([np.flatnonzero(drawn.groups == name) for name in names])
            order[members] = members[random.permutation(len(names))]
        targets.append(y[order])
    return targets


def examine_permutations(random: np.random.Generator) -> tuple[Drawn, str]:
    """Permutation tests with blocks, signs, several times or several scorers."""
    drawn = draw(random, shared=bool(random.random() < 0.8))
    model, is_labels = drawn.models[0], is_classifier(drawn.models[0])
    kinds = ["within", "whole"] if is_labels else ["within", "whole", "signs"]
    exchange = str(random.choice(kinds))
    if exchange == "whole":
        n = drawn.n - drawn.n % 4
        drawn.X, drawn.y = drawn.rows(np.arange(n)), drawn.y[:n]
        drawn.weights = None if drawn.weights is None else drawn.weights[:n]
        drawn.groups = random.permutation(np.repeat(np.arange(n // 4), 4))
    count, seed = int(random.integers(3, 7)), int(random.integers(1000))
    k = int(random.integers(2, 5))
    cv: Any = refitting.KFold(k, shuffle=True, random_state=seed)
    if is_labels:
        cv = refitting.StratifiedKFold(k, shuffle=True, random_state=seed)
    if drawn.groups is not None and random.random() < 0.5 and exchange == "whole":
        cv = refitting.GroupKFold(k)
    if random.random() < 0.3:
        cv = refitting.RepeatedKFold(n_splits=k, n_repeats=2, random_state=seed)
    times = int(random.integers(2, 4)) if random.random() < 0.3 else 0
    scorings = [drawn.scoring]
    if random.random() < 0.3:
        scorings = [str(name) for name in random.choice(drawn.scores, 2, replace=False)]
    X = np.asarray(drawn.X, dtype=float)
    parts = [X] if not times else [X + 0.5 * k * random.normal(size=X.shape) for k in range(times)]
    asked = {"groups": drawn.groups, "cv": cv, "exchange": exchange, "params": drawn.params}
    drawn.facts |= {"exchange": exchange, "times": times, "scorers": scorings, "cv": cv}
    found = permutation_test_score(
        model,
        np.stack(parts, axis=2) if times else drawn.X,
        drawn.y,
        scoring=scorings if len(scorings) > 1 else scorings[0],
        n_permutations=count,
        random_state=seed,
        **asked,
    )
    targets = [drawn.y, *orders_of(drawn, exchange, count, seed)]
    table = np.empty((len(targets), len(parts), len(scorings)))
    for t, part in enumerate(parts):
        own = Drawn(**{**drawn.__dict__})
        own.X = part
        for i, y in enumerate(targets):
            own.y = y
            for s, scoring in enumerate(scorings):
                own.scoring = scoring
                splits = list(cv.split(part, y, drawn.groups))
                table[i, t, s] = fold_scores(own, model, splits).mean()
    shape = (len(parts),) * bool(times) + (len(scorings),) * (len(scorings) > 1)
    expect(found[0], table[0].reshape(shape), drawn.tolerance, f"{drawn}: score")
    expect(found[1], table[1:].reshape(count, *shape), drawn.tolerance, f"{drawn}: permuted")
    both = np.concatenate([np.asarray(found[0])[None], found[1]]).reshape(count + 1, -1)
    if len(scorings) > 1:
        spread = both.std(axis=0)
        both = (both - both.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    most = both[1:].max(axis=1)
    pvalues = (1.0 + (most[:, None] >= both[0]).sum(axis=0)) / (count + 1.0)
    expect(found[2], pvalues.reshape(shape), 1e-12, f"{drawn}: p-value")
    return drawn, f"permutations, {exchange}"


# -- splitters -------------------------------------------------------------------------------------


def examine_splitter(random: np.random.Generator) -> tuple[Drawn, str]:
    """What a splitter leaves out, and the scores of its folds."""
    drawn = draw(random, shared=bool(random.random() < 0.8))
    drawn.groups = None
    n, y = drawn.n, drawn.y
    rows = np.arange(n)
    places = random.normal(size=(n, 2)).round(1)
    moments = random.permutation(np.sort(random.integers(0, 60, n)))
    seed, radius = int(random.integers(1000)), float(random.uniform(0.0, 0.8))
    purge, embargo = int(random.integers(0, 4)), int(random.integers(0, 4))
    is_labels = is_classifier(drawn.models[0])
    kinds = ["rebalanced", "buffered", "purged"] + ["pairs"] * ("roc_auc" in drawn.scores)
    kind = str(random.choice(kinds))
    drawn.facts["splitter"] = kind
    splitter: Any = {
        "pairs": LeavePairOut(25, random_state=seed),
        "rebalanced": RebalancedLeaveOneOut(int(random.integers(1, 4)), random_state=seed),
        "buffered": BufferedLeaveOneOut(places, radius),
        "purged": PurgedTimeSeriesSplit(4, purge=purge, embargo=embargo, times=moments),
    }[kind]
    splits = list(splitter.split(drawn.X, y))
    for train, test in splits:
        gone = np.setdiff1d(rows, train)
        if not np.isin(test, gone).all():
            raise Difference(f"{drawn}: rows are trained on and tested")
        if kind == "pairs" and not (len(test) == len(gone) == 2 == len(set(y[test].tolist()))):
            raise Difference(f"{drawn}: no pair of unlike rows: {test}")
        if kind == "rebalanced":
            if is_labels and sorted(y[gone].tolist()) != sorted(np.unique(y).tolist()):
                raise Difference(f"{drawn}: not one row of each class: {y[gone]}")
            if not is_labels and len(gone) != 2:
                raise Difference(f"{drawn}: not two rows: {gone}")
        if kind == "buffered":
            near = np.hypot(*(places - places[test[0]]).T) <= radius
            expect(gone, np.flatnonzero(near), 0.0, f"{drawn}: neighbours")
        if kind == "purged":
            first, last = moments[test].min() - purge, moments[test].max() + purge + embargo
            near = (moments >= first) & (moments <= last)
            expect(gone, np.flatnonzero(near), 0.0, f"{drawn}: neighbours in time")
    tested = np.concatenate([test for _, test in splits])
    if kind in ("rebalanced", "buffered", "purged"):
        expect(np.ptp(np.bincount(tested, minlength=n)), 0, 0.0, f"{drawn}: tests of each row")
    if kind == "pairs" and len({tuple(test) for _, test in splits}) < len(splits):
        raise Difference(f"{drawn}: a pair twice")
    if any(len(np.unique(y[train])) < 2 for train, _ in splits):
        return drawn, "one class left"
    scoring = "roc_auc" if kind == "pairs" else "accuracy" if is_labels else drawn.scoring
    drawn.scoring = "neg_mean_squared_error" if scoring == "r2" else scoring
    params = drawn.params
    cv = splitter if random.random() < 0.5 else splits
    found = cross_val_score(
        drawn.models[0], drawn.X, y, cv=cv, scoring=drawn.scoring, params=params
    )
    slow = fold_scores(drawn, drawn.models[0], splits)
    if drawn.scoring == "neg_root_mean_squared_error" and kind != "purged":
        return drawn, "pooled"
    expect(found, slow, drawn.tolerance, f"{drawn}: scores")
    return drawn, f"splitter, {kind}"


# -- from the shell --------------------------------------------------------------------------------

KINDS: tuple[tuple[float, Callable[[np.random.Generator], tuple[Drawn, str]]], ...] = (
    (0.30, examine_interval),
    (0.15, examine_comparison),
    (0.25, examine_influence),
    (0.05, examine_columns),
    (0.15, examine_permutations),
    (0.10, examine_splitter),
)


def examine(seed: int) -> tuple[str, str]:
    """The outcome of a seed, "agree", "refused" or "differ", and words."""
    random = np.random.default_rng([33, seed])
    shares = np.array([share for share, _ in KINDS])
    kind = KINDS[random.choice(len(KINDS), p=shares / shares.sum())][1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            drawn, what = kind(random)
        except Difference as difference:
            return "differ", f"{kind.__name__}: {difference}"
        except Exception:
            return "differ", f"{kind.__name__} failed: " + traceback.format_exc()[-700:]
    return "agree", f"{what}: {drawn}"


def main(arguments: list[str] | None = None) -> int:
    """Examine many seeds; print those that differ, each with a line that shows it again."""
    parser = argparse.ArgumentParser(prog="python -m tests.guards.fuzz_judging")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--start", type=int, default=1000)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    for seed in range(options.start, options.start + options.cases):
        start = time.process_time()
        outcome, words = examine(seed)
        kind = words.split(":")[0].split(",")[0] if outcome == "agree" else outcome
        counts[kind] += 1
        if options.verbose:
            print(f"{seed:6d} {time.process_time() - start:6.2f} s {outcome:8s} {words}")
        elif outcome == "differ":
            print(f"DIFFERS {seed}: {words}", flush=True)
    print(", ".join(f"{outcome} {count}" for outcome, count in counts.most_common()))
    return int(counts["differ"] > 0)


if __name__ == "__main__":
    sys.exit(main())

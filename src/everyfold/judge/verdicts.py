"""What can be trusted about a score: a verdict in a few lines, with the call that repairs each.

The lines are about the score and its bias, exactness, candidates, rows and leaks. Each asks another
module of this package, and says so where it cannot answer.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from numbers import Real

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.model_selection import check_cv

from everyfold._progress import pluralise, printable
from everyfold._sklearn_private import num_samples
from everyfold._typing import (
    AnyArray,
    Estimator,
    Index,
    Mask,
    Matrix,
    Scorer,
    Search,
    Splitter,
    Targets,
)
from everyfold.functions.cross_val import takes_groups
from everyfold.io import RowSource
from everyfold.io.base import is_lazy
from everyfold.judge.differences import ScoreInterval, score_interval, worse_candidates
from everyfold.judge.fitted import given_params, groups_of, is_ours, ratio_of, score_table, statuses
from everyfold.judge.interval_methods import corrected_t
from everyfold.judge.leaks import leaks_of
from everyfold.judge.model_scores import ModelScores
from everyfold.judge.responses import Split, fold_responses, truth_of
from everyfold.judge.row_scores import read_metric

# The score of a search is its selection repeated on 15 training sets, if that should take no longer
# than so many seconds.
_MOST_SECONDS = 60.0

# Splitters of a search that give no more folds than that are those of its outer loop, too.
_MOST_FOLDS = 10

# A residual is suspicious beyond so many robust standard deviations: one of a million normal ones.
_FAR = 5.0

# Rows that a line names.
_MOST_NAMED = 5


@dataclass(frozen=True)
class VerdictLine:
    """One thing that was looked at.

    Attributes
    ----------
    topic : str
        "score", "exact", "candidates", "grid", "rows" or "leaks".
    words : str
        What was found.
    remedy : str
        The call that repairs it, or tells more; empty if nothing is wrong.
    is_problem : bool
        Whether the score should not be relied on before this is repaired.
    """

    topic: str
    words: str
    remedy: str = ""
    is_problem: bool = False

    def __str__(self) -> str:
        return f"{self.words} → {self.remedy}" if self.remedy else self.words


@dataclass(frozen=True)
class Verdict:
    """What can be trusted about a score.

    ``print`` shows it line by line, a notebook as a table.

    Attributes
    ----------
    lines : tuple of VerdictLine
    interval : ScoreInterval or None
        The score with its interval; None where it is not known.
    """

    lines: tuple[VerdictLine, ...]
    interval: ScoreInterval | None = None

    @property
    def problems(self) -> tuple[VerdictLine, ...]:
        """The lines that need repair."""
        return tuple(line for line in self.lines if line.is_problem)

    def __str__(self) -> str:
        width = max(len(line.topic) for line in self.lines)
        return "\n".join(f"{line.topic:{width}}  {line}" for line in self.lines)

    def _repr_html_(self) -> str:
        return _html((line.topic, str(line)) for line in self.lines)


def verdict(
    search_or_estimator: Estimator,
    X: Matrix = None,
    y: Targets = None,
    *,
    cv: Splitter = None,
    groups: Targets = None,
    scoring: Scorer = None,
    level: float = 0.95,
) -> Verdict:
    """Say what can be trusted about the score of a search or model, and what repairs the rest.

    Parameters
    ----------
    search_or_estimator : fitted search or estimator
        Of a search of this library or of scikit-learn the winner is judged; a model is
        cross-validated.
    X, y : optional
        The rows, for a search those of its ``fit``. Without them, leaks cannot be looked for, and
        the score of a search is that by which its winner was selected.
    cv : int, splitter or iterable of splits, optional
        Folds of a model; those of a search are its own. 5 shuffled folds by default.
    groups : array of shape (n_samples,), optional
        By default those of ``fit``.
    scoring : str, callable or None, default=None
        Of a model.
    level : float, default=0.95
        Of the interval.

    Returns
    -------
    verdict : Verdict
        Lines about the score with its interval, how exact it is, candidates that are no worse,
        edges of the grid, suspicious rows, and leaks.

    Notes
    -----
    **Cost** That of ``score_interval``; a search is repeated only if that should take less than a
    minute.

    Examples
    --------
    >>> from everyfold import FastGridSearchCV
    >>> from everyfold.judge import verdict
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> search = FastGridSearchCV(KernelRidge(), {"alpha": [0.1, 1.0]}).fit(X, y - y.mean())
    >>> print(verdict(search))  # doctest: +ELLIPSIS
    score       R² 0.4807 (95 %: ...), corrected-t...
    exact       all scores equal those of refits
    candidates  1 of 2 is not significantly worse than the best
    grid        the best alpha=0.1 is the smallest of its grid; try smaller values → ...
    rows        none of 442 residuals is beyond 5 robust standard deviations
    leaks       not looked for → verdict(search, X, y)
    """
    model = search_or_estimator
    if isinstance(X, RowSource) or is_lazy(X):
        X = y = None
    has_table = hasattr(model, "cv_results_")
    if not has_table and (X is None or y is None):
        raise ValueError(
            f"{type(model).__name__} is no fitted search, so that the verdict needs rows; pass the "
            "data: X=..., y=..."
        )
    if groups is None and has_table:
        groups = given_params(model).get("groups")
    judged = _Judgement(model, X, y, cv, groups, scoring, level)
    return judged.of_search() if has_table else judged.of_model()


@dataclass
class _Judgement:
    """What is judged, and on what."""

    model: Search
    X: Matrix
    y: Targets
    cv: Splitter
    groups: Targets
    scoring: Scorer
    level: float

    @property
    def has_rows(self) -> bool:
        return self.X is not None and self.y is not None

    def of_search(self) -> Verdict:
        if not hasattr(self.model, "best_index_"):
            words = "no candidate won, as none has a score or no single metric decides"
            line = VerdictLine("score", words, "fit with refit=True or refit='<metric>'", True)
            return Verdict((line,))
        interval, score = self._score_of_search()
        parts = (score, *self._exact(), *self._candidates(), *self._grid(), *self._rows_of_search())
        return Verdict((*parts, *self._doubts(interval), *self._leaks()), interval)

    def of_model(self) -> Verdict:
        interval = self._interval(self.model, 5 if self.cv is None else self.cv, self.scoring)
        score = VerdictLine("score", f"{interval}: {interval.why}")
        exact = "all held-out values equal those of refits"
        if not interval.is_exact:
            exact = "some held-out values are approximations"
        rows = self._rows_of_model()
        lines = (score, VerdictLine("exact", exact), *rows, *self._doubts(interval), *self._leaks())
        return Verdict(lines, interval)

    # -- the score -----------------------------------------------------------------------------

    def _score_of_search(self) -> tuple[ScoreInterval | None, VerdictLine]:
        """Without the bias of selecting, where that is known or quickly found."""
        # A plain search loads no package of pictures.
        from everyfold.plotting.score_table import label_of, number

        search, label = self.model, label_of(self.model)
        best = float(getattr(search, "best_score_", np.nan))
        selected = f"; the winner was selected by its {number(best)}"
        is_alone = len(search.cv_results_["params"]) == 1
        keeps = is_ours(search) and search._keeper.keeps == "all"
        is_list = isinstance(search.cv, list | tuple)  # no folds of the training rows of others
        is_quick = self.has_rows and not is_list and self._seconds() < _MOST_SECONDS
        if keeps or is_quick:
            try:
                found = self._interval(search if keeps else clone(search), self._outer())
                words = f"{label} {found}: {found.why}{'' if is_alone else selected}"
                return found, VerdictLine("score", words)
            except ValueError as error:
                why = str(error)
        else:
            why = "selecting was not repeated"
        try:
            scores = score_table(search, None)[:, search.best_index_]
            ratio, unit = ratio_of(search, self.X, self.y)
            own = corrected_t(scores, ratio, self.level)
            metric = read_metric(search, None)
            if metric is not None and np.array_equal(np.clip(scores, *metric.ends), scores):
                own = own.within(*metric.ends)
        except ValueError as error:
            return None, VerdictLine("score", f"{label} {number(best)}, without interval: {error}")
        words = "the scores of the winner's folds, by which it was selected"
        found = ScoreInterval(
            own.estimate, own.low, own.high, "corrected-t", words, self.level, own.error, unit
        )
        remedy = "" if is_alone else "score_interval(search, X, y)"
        bias = "" if is_alone else f", too optimistic ({why})"
        return found, VerdictLine("score", f"{label} {found}{bias}", remedy)

    def _interval(self, model: Search, cv: Splitter, scoring: Scorer = None) -> ScoreInterval:
        """The score with its interval; its warnings are lines of the verdict."""
        how = {"cv": cv, "groups": self.groups, "scoring": scoring, "level": self.level}
        with warnings.catch_warnings(action="ignore"):
            return score_interval(model, self.X, self.y, **how)

    def _outer(self) -> Splitter:
        """Outer folds to repeat the search on: its own, unless they are many."""
        return self.model.cv if self.model.n_splits_ <= _MOST_FOLDS and self.model.cv else 5

    def _seconds(self) -> float:
        """What repeating the search on 15 training sets should take."""
        if is_ours(self.model):
            return 15.0 * float(self.model.plan_.seconds or 0.0)
        times = self.model.cv_results_["mean_fit_time"] + self.model.cv_results_["mean_score_time"]
        return float(15.0 * np.sum(times) * self.model.n_splits_)

    def _exact(self) -> Iterator[VerdictLine]:
        is_exact, status = statuses(self.model)
        best = int(self.model.best_index_)
        count = len(is_exact) - int(np.count_nonzero(is_exact))
        if not count:
            words = "all scores equal those of refits"
            yield VerdictLine("exact", words)
            return
        words = f"the scores of {count} of {pluralise(len(is_exact), 'candidate')} are no refits'"
        own = f"; those of the winner are {status[best]}"
        yield VerdictLine("exact", words + own, "method='exact'", not is_exact[best])

    # -- candidates ----------------------------------------------------------------------------

    def _candidates(self) -> Iterator[VerdictLine]:
        count = len(self.model.cv_results_["params"])
        if count == 1:
            return
        try:
            equal = int(np.count_nonzero(~self._is_worse()))
        except ValueError as error:
            yield VerdictLine("candidates", f"which ones are as good is not known: {error}")
            return
        are = "is" if equal == 1 else "are"
        words = f"{equal} of {count} {are} not significantly worse than the best"
        remedy = ""
        if equal > 1:
            remedy = "refit='one_standard_error' for the simplest, RepeatedKFold to tell them apart"
        yield VerdictLine("candidates", words, remedy)

    def _is_worse(self) -> AnyArray:
        ratio, _ = ratio_of(self.model, self.X, self.y, self.groups)
        return worse_candidates(self.model, self.level, ratio)

    def _grid(self) -> Iterator[VerdictLine]:
        """What the search itself said of its winner: edges of the grid, useless models."""
        if not is_ours(self.model):
            return
        grid = getattr(self.model, "param_grid", None)
        for words in self.model._said:
            is_edge = "of its grid" in words
            name = words.removeprefix("the best ").partition("=")[0]
            remedy = "more values in param_grid" if is_edge else ""
            if is_edge and isinstance(grid, dict):  # of numbers, as they have ends
                further = _beyond(grid[name], "largest" if "the largest" in words else "smallest")
                remedy = f"param_grid[{name!r}] += {further}" if further else remedy
            yield VerdictLine("grid" if is_edge else "winner", words, remedy, not is_edge)

    # -- rows ----------------------------------------------------------------------------------

    def _rows_of_search(self) -> Iterator[VerdictLine]:
        search = self.model
        if not is_ours(search):
            return
        try:
            held = search.out_of_fold()
            values = held.values
            if is_classifier(search):
                values = search.out_of_fold(method="decision_function").values
        except ValueError:  # a criterion without folds, a source of rows
            return
        known = np.flatnonzero((held.repeats > 0) & ~_has_gaps(values))
        rest = held.truth[known], held.values[known]
        found = _certain(*rest, values[known]) if is_classifier(search) else _far(*rest)
        if found is not None:
            yield self._named(known[found[0]], found[1])

    def _rows_of_model(self) -> Iterator[VerdictLine]:
        splits = self._splits()
        tests = np.concatenate([test for _, test in splits])
        if len(np.unique(tests)) != len(tests):
            return
        truth = truth_of(self.model, self.y)
        asks = ["predict"]
        if is_classifier(self.model) and hasattr(self.model, "decision_function"):
            asks.append("decision_function")
        answers = [
            fold_responses(self.model, self.X, self.y, splits, (name,), None, self.groups)
            for name in asks
        ]
        rest = truth[tests], answers[0].values
        found: tuple[Index, str] | None = None
        if not is_classifier(self.model):
            found = _far(*rest)
        elif len(answers) > 1:
            found = _certain(*rest, answers[1].values)
        if found is not None:
            yield self._named(tests[found[0]], found[1])

    def _named(self, rows: Index, words: str) -> VerdictLine:
        if not len(rows):
            return VerdictLine("rows", words)
        index = getattr(self.X, "index", None)
        names = rows if index is None or callable(index) else np.asarray(index)[rows]
        shown = ", ".join(str(name) for name in names[:_MOST_NAMED])
        more = ", …" if len(rows) > _MOST_NAMED else ""
        return VerdictLine("rows", f"{words}: {shown}{more}", "influence(search, X, y)")

    def _doubts(self, interval: ScoreInterval | None) -> Iterator[VerdictLine]:
        if interval is not None:
            yield from (VerdictLine("score", words, "", True) for words in interval.remarks)

    # -- leaks ---------------------------------------------------------------------------------

    def _splits(self) -> list[Split]:
        """The folds of the search; those of a model as ``score_interval`` makes them."""
        model = self.model
        if not hasattr(model, "cv_results_"):
            cv = 5 if self.cv is None else self.cv
            scores = ModelScores([model], self.X, self.y, self.groups, self.scoring, cv, 0)
            return scores.partitions(1)[0]
        splitter = check_cv(model.cv, self.y, classifier=is_classifier(model))
        groups = self.groups if takes_groups(splitter) else None
        every = np.arange(num_samples(self.X))
        return [(every[a], every[b]) for a, b in splitter.split(self.X, self.y, groups)]

    def _leaks(self) -> Iterator[VerdictLine]:
        if not self.has_rows:
            yield VerdictLine("leaks", "not looked for", "verdict(search, X, y)")
            return
        if np.ndim(self.X) != 2:
            return
        groups = None if self.groups is None else groups_of(self.groups)
        found = leaks_of(self.X, truth_of(self.model, self.y), self._splits(), groups)
        if not found:
            yield VerdictLine("leaks", "no equal rows across folds, no labels of groups")
        yield from (VerdictLine("leaks", leak.words, leak.remedy, True) for leak in found)


def _beyond(values: Sequence[object], side: str) -> list[float]:
    """Two values beyond an end of a grid, in steps like its last one.

    >>> _beyond([0.1, 1, 10, "scale"], "largest"), _beyond([2, 3, 4], "smallest")
    ([100, 1000], [1])
    """
    numbers = {value for value in values if isinstance(value, Real)}
    before, end = sorted(map(float, numbers), reverse=side == "smallest")[-2:]
    is_positive = min(before, end) > 0.0
    if is_positive and max(before, end) > 2.0 * min(before, end):
        found = [end * (end / before) ** k for k in (1, 2)]
    else:
        found = [end + (end - before) * k for k in (1, 2)]
    words = (f"{value:.3g}" for value in found if value > 0.0 or not is_positive)
    return [int(float(own)) if float(own).is_integer() else float(own) for own in words]


def _has_gaps(values: AnyArray) -> Mask:
    """The rows with a value that is not known."""
    return np.asarray(np.isnan(values.reshape(len(values), -1)).any(axis=1))


def _far(truth: AnyArray, predicted: AnyArray) -> tuple[Index, str]:
    """Rows with residuals far out, the worst first; of several targets by the worst of them."""
    errors = np.abs(truth - predicted).reshape(len(truth), -1)
    centre = np.nanmedian(errors, axis=0)
    scale = np.where(centre > 0.0, 1.4826 * centre, np.inf)
    sizes = np.nan_to_num((errors / scale).max(axis=1))
    rows = np.flatnonzero(sizes > _FAR)
    rows = rows[np.argsort(-sizes[rows], kind="stable")]
    count = f"{len(rows) or 'none'} of {pluralise(len(truth), 'residual')}"
    are = "is" if len(rows) < 2 else "are"
    return rows, f"{count} {are} beyond {_FAR:g} robust standard deviations"


def _certain(truth: AnyArray, predicted: AnyArray, values: AnyArray) -> tuple[Index, str] | None:
    """Rows with the wrong label and a larger margin than half of those with the right one."""
    classes = np.unique(truth)
    margins = np.abs(values) if values.ndim == 1 else None
    wrong: Mask = np.not_equal(truth, predicted).astype(bool)
    if values.ndim == 2 and values.shape[1] == len(classes) and not wrong.all():
        top = np.partition(values, -2, axis=1)
        margins = top[:, -1] - top[:, -2]
    if margins is None or wrong.all():
        return None
    usual = float(np.median(margins[~wrong]))
    rows = np.flatnonzero(wrong & (margins > usual))
    rows = rows[np.argsort(-margins[rows], kind="stable")]
    words = f"{len(rows) or 'none'} of the {int(wrong.sum())} wrong predictions"
    are = "is" if len(rows) < 2 else "are"
    return rows, f"{words} {are} more certain than half of the right ones"


# -- in notebooks ----------------------------------------------------------------------------------


def _html(lines: Iterable[tuple[str, str]]) -> str:
    """A table of names and words."""
    style = "text-align: left; vertical-align: top"
    rows = (
        f'<tr><th style="{style}">{escape(printable(name))}</th>'
        f'<td style="{style}">{escape(printable(words))}</td></tr>'
        for name, words in lines
    )
    return f"<table>{''.join(rows)}</table>"


class ResultView:
    """Shows the results below scikit-learn's own diagram in notebooks, and the verdict in print."""

    def __str__(self) -> str:
        return f"{self!r}\n{verdict(self)}" if hasattr(self, "cv_results_") else repr(self)

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)  # part of a sentence

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + _result_view(self)  # type: ignore[misc]

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle


def _result_view(search: Search) -> str:
    """The winner, its score and the plan as a table; nothing of a search that is not fitted."""
    # A plain search loads no package of pictures.
    from everyfold.plotting.score_table import label_of, number, params_words

    lines: list[tuple[str, str]] = []
    if hasattr(search, "best_params_"):
        lines.append(("best_params_", params_words(search.best_params_)))
    if hasattr(search, "best_score_"):
        lines.append(("best_score_", f"{number(search.best_score_)} ({label_of(search)})"))
    if hasattr(search, "cv_results_"):
        lines += search.plan_.lines()
        said = {name for name, _ in lines}  # the plan says how exact the scores are, too
        lines += [(v.topic, str(v)) for v in verdict(search).lines if v.topic not in said]
    lines += [("path_", line) for line in getattr(search, "summary_", "").splitlines()]
    return _html(lines) if lines else ""

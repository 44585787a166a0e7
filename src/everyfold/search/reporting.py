"""The report of a search, and its view in notebooks.

``findings_of`` asks a fitted search for what a report needs and its attributes do not have, in
words where it is not known. The page itself is made by ``everyfold.report``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from everyfold._progress import printable
from everyfold._typing import AnyArray, Estimator, Search
from everyfold.engine.checkpoint import versions
from everyfold.engine.planning.plan import SearchPlan
from everyfold.io.disk import writing
from everyfold.search.assessment import HonestScore
from everyfold.search.fit_inputs import FitInputs

if TYPE_CHECKING:
    from everyfold.report.page import Findings

# Letters of the call that repeats a search: longer grids are cut in the middle, as scikit-learn
# prints estimators.
MOST_LETTERS = 4000


class ResultView:
    """Shows the results below scikit-learn's own diagram in notebooks."""

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + result_view(self)  # type: ignore[misc]

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle


def result_view(search: Search) -> str:
    """The winner, its score and the plan as a table; nothing of a search that is not fitted."""
    # Most searches are neither shown in a notebook nor reported: what reads their tables is
    # imported where it is needed.
    from everyfold.plotting.score_table import label_of, number, params_words

    lines = []
    if hasattr(search, "best_params_"):
        lines.append(("best_params_", params_words(search.best_params_)))
    if hasattr(search, "best_score_"):
        lines.append(("best_score_", f"{number(search.best_score_)} ({label_of(search)})"))
    if hasattr(search, "cv_results_"):
        lines += search.plan_.lines()
    lines += [("path_", line) for line in getattr(search, "summary_", "").splitlines()]
    style = "text-align: left; vertical-align: top"
    rows = (
        f'<tr><th style="{style}">{escape(printable(name))}</th>'
        f'<td style="{style}">{escape(printable(words))}</td></tr>'
        for name, words in lines
    )
    return f"<table>{''.join(rows)}</table>" if lines else ""


class ReportedSearch(ResultView):
    """The part of a search that shows itself."""

    _given: FitInputs
    _said: Sequence[str]
    plan_: SearchPlan

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        ids: ArrayLike | None = None,
        honest: HonestScore | None = None,
        title: str | None = None,
    ) -> Path:
        """Write a report of the search: one HTML file, which needs no network.

        It contains the winner and how certain it is, the surface of scores, plots of out-of-fold
        predictions, the rows that were predicted wrongly, all candidates in a table that can be
        sorted and filtered, the plan, and the call that repeats the search. If the search lacks
        something (folds, held-out values, a winner), that part is left out, and the page says why.
        The page needs jinja2 (``everyfold[report]``), its plots matplotlib.

        Parameters
        ----------
        path : str or path
            The file to write. It is written under a temporary name and renamed once it is complete.
        ids : array of shape (n_samples,), optional
            Names of the rows; by default the index of X if it was a data frame, otherwise numbers
            from 0.
        honest : HonestScore, optional
            A result of ``honest_score``. By default that of "bbc" is computed, which needs
            ``MethodOptions(keeps="all")``.
        title : str, optional

        Returns
        -------
        path : Path
            The path of the file.
        """
        check_is_fitted(self, "cv_results_")
        return write_report(path, self, findings_of(self, ids, honest, title))


def write_report(path: str | os.PathLike[str], search: Search, findings: Findings) -> Path:
    """Write the page of a search."""
    from everyfold.report.page import page

    path = Path(path)
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise ValueError(
            f"path={str(path)!r} cannot be written: it is a directory, or its directory does not "
            "exist; use the name of a file in an existing directory"
        )
    content = page(search, findings).encode(errors="replace")
    with writing(path) as file:
        file.write(content)
    return path


def findings_of(
    search: Search,
    ids: ArrayLike | None = None,
    honest: HonestScore | None = None,
    title: str | None = None,
) -> Findings:
    """What a report needs beside the attributes; in words where something is not known."""
    from everyfold.report.page import Findings

    held = _why_no_values(search)
    return Findings(
        title=f"Search of {_name(search.estimator)}" if title is None else title,
        call=_call(search),
        honest=(held or _or_words(search.honest_score)) if honest is None else honest,
        is_worse=_or_words(search._worse),
        held=held,
        remarks=search._said,
        plans=(search.plan_,),
        ids=_read_ids(ids, search),
        versions=versions(),
    )


def _why_no_values(search: Search) -> str:
    """Why there are no held-out values; empty if there are."""
    if search.plan_.is_closed:
        return "a criterion of the fit on all rows takes the place of folds"
    if search._given.is_source:
        return "rows of a source are read in blocks, and no values of them are kept"
    found = _or_words(search.out_of_fold)
    return found if isinstance(found, str) else ""


def _or_words(ask: Any) -> Any:
    """The answer, or why there is none."""
    try:
        return ask()
    except ValueError as error:
        return str(error)


def _name(estimator: Estimator) -> str:
    """The class of an estimator; of a Pipeline those of its steps."""
    steps = getattr(estimator, "steps", None)
    names = [type(estimator).__name__]
    if steps:
        names = [type(step).__name__ for _, step in steps if step not in (None, "passthrough")]
    return " + ".join(names)


def _call(search: Search) -> str:
    """The search as it was made, with all digits, and its fit."""
    shown = copy(search)
    for name in ("param_grid", "param_distributions"):
        if hasattr(search, name):
            setattr(shown, name, _as_written(getattr(search, name)))
    return f"search = {shown.__repr__(N_CHAR_MAX=MOST_LETTERS)}\n{search._given.call}"


@dataclass(frozen=True)
class _Words:
    """A value that is shown by these words."""

    words: str

    def __repr__(self) -> str:
        return self.words


def _as_written(value: Any) -> Any:
    """Values of a grid as one would write them: arrays as lists, distributions by their names."""
    if isinstance(value, dict):
        return {name: _as_written(values) for name, values in value.items()}
    if isinstance(value, list) and value and all(isinstance(grid, dict) for grid in value):
        return [_as_written(grid) for grid in value]
    if isinstance(value, np.ndarray):
        return _Words(str(value.tolist()))
    if hasattr(value, "dist") and hasattr(value, "args"):
        given = [*map(repr, value.args), *(f"{k}={v!r}" for k, v in value.kwds.items())]
        return _Words(f"{value.dist.name}({', '.join(given)})")
    return value


def _read_ids(ids: ArrayLike | None, search: Search) -> AnyArray | None:
    """The names of rows, one each."""
    if ids is None:
        found: AnyArray | None = search._given.ids
        return found
    named, n = np.asarray(ids), search.plan_.rows
    if named.shape != (n,):
        raise ValueError(
            f"ids has the shape {named.shape}, but the search was fitted to {n} rows; pass one "
            "id for each row"
        )
    return named

"""The report of a search: one HTML file, and what stands in it.

``findings_of`` asks a fitted search for what a report needs and its attributes do not have, in
words where it is not known. The page itself is made by ``everyfold.report``.
"""

from __future__ import annotations

import os
import warnings
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from everyfold._typing import AnyArray, Estimator, Search
from everyfold.engine.checkpoint import check_folds_repeat, versions
from everyfold.engine.request import MethodOptions
from everyfold.engine.results import is_rule
from everyfold.io.disk import writing
from everyfold.judge.differences import worse_candidates
from everyfold.judge.fitted import check_table, is_ours, ratio_of
from everyfold.judge.honest import HonestScore, honest_score
from everyfold.judge.row_influence import Influence, quick_influence
from everyfold.judge.verdicts import verdict

if TYPE_CHECKING:
    from everyfold.report.page import Findings

# Up to which a search is repeated for its report: bootstraps take as long as there are rows. Rows
# are deleted one by one if that should not take more seconds.
MOST_ROWS, MOST_SECONDS = 5000, 10.0

# Letters of the call that repeats a search: longer grids are cut in the middle, as scikit-learn
# prints estimators.
MOST_LETTERS = 4000


def report(
    search: Search,
    path: str | os.PathLike[str],
    *,
    ids: ArrayLike | None = None,
    honest: HonestScore | None = None,
    title: str | None = None,
) -> Path:
    """Write a report of the search: one HTML file, which needs no network.

    It contains the winner and how certain it is, the surface of scores, plots of out-of-fold
    predictions, the rows that were predicted wrongly, the rows and groups on which the score
    depends, all candidates in a table that can be sorted and filtered, the plan, and the call that
    repeats the search. If the search lacks something (folds, held-out values, a winner), that part
    is left out, and the page says why. The page needs jinja2 (``everyfold[report]``), its plots
    matplotlib.

    Parameters
    ----------
    search : fitted search
        One of this library, or scikit-learn's own, of which there is less to report.
    path : str or path
        The file to write. It is written under a temporary name and renamed once it is complete.
    ids : array of shape (n_samples,), optional
        Names of the rows; by default the index of X if it was a data frame, otherwise numbers
        from 0.
    honest : HonestScore, optional
        A result of ``honest_score``. By default that of "bbc" is computed. It needs the held-out
        values of all candidates (``MethodOptions(keeps="all")``): a search of up to 5000 rows
        that took up to 10 seconds is repeated if it did not keep them.
    title : str, optional

    Returns
    -------
    path : Path
        The path of the file.
    """
    check_table(search)
    return write_report(path, search, findings_of(search, ids, honest, title))


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
        honest=(held or _or_words(partial(_honest, search))) if honest is None else honest,
        is_worse=_or_words(lambda: worse_candidates(search, 0.95, ratio_of(search)[0])),
        held=held,
        remarks=search._said if is_ours(search) else (),
        influence=held or _or_words(partial(_influence, search)),
        verdict=[(line.topic, line.words, line.remedy) for line in verdict(search).lines],
        plans=(search.plan_,) if is_ours(search) else (),
        ids=_read_ids(ids, search),
        versions=versions(),
    )


def _why_no_values(search: Search) -> str:
    """Why there are no held-out values; empty if there are."""
    if not is_ours(search):
        return f"{type(search).__name__} keeps scores only, and no held-out values"
    if search.plan_.is_closed:
        return "a criterion of the fit on all rows takes the place of folds"
    if search._given.is_source:
        return "rows of a source are read in blocks, and no values of them are kept"
    found = _or_words(search.out_of_fold)
    return found if isinstance(found, str) else ""


def _influence(search: Search) -> dict[str, Influence]:
    """Which rows the score of the winner depends on, and which groups if it has any."""
    if not hasattr(search, "best_estimator_"):
        raise ValueError("there is no best_estimator_; use refit=True")
    given = search._given
    if given.rows is None or given.differences(*given.rows, given.params):
        raise ValueError("the rows of fit are not at hand; use influence(search, X, y)")
    try:
        check_folds_repeat(search.cv)
    except ValueError as error:
        words = f"cv={search.cv} draws different folds in every call; give it a random_state"
        raise ValueError(words) from error
    (X, y), groups = given.rows, given.params.get("groups")
    units = {"row": None} if groups is None else {"group": groups, "row": None}
    return {
        name: quick_influence(search, X, y, labels, MOST_SECONDS) for name, labels in units.items()
    }


def _honest(search: Search) -> HonestScore:
    """The score without selection bias; a small search is repeated for the values it needs."""
    if not is_ours(search):
        return honest_score(search)
    method, rows = MethodOptions.of(search.method), search._given.rows
    is_small = search.plan_.rows <= MOST_ROWS and search.plan_.seconds <= MOST_SECONDS
    if method.keeps != "best" or rows is None or not is_small or is_rule(search.refit):
        return honest_score(search)
    given = search._given.params
    if search._given.differences(*rows, given):  # changed in place since
        return honest_score(search)
    again = clone(search).set_params(checkpoint=None, verbose=0)
    again.method = replace(method, keeps="all")
    with warnings.catch_warnings(action="ignore"):  # all was said by the search itself
        again.fit(*rows, **given)
    names = [key for key in search.cv_results_ if key.startswith("mean_test_")]
    one, two = (np.array([own.cv_results_[name] for name in names]) for own in (search, again))
    # Candidates or folds that are drawn anew in every call are those of another search.
    is_same = one.shape == two.shape and np.allclose(one, two, 1e-6, 1e-12, equal_nan=True)
    return honest_score(again if is_same else search)


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
    call = search._given.call if is_ours(search) else "search.fit(X, y)"
    return f"search = {shown.__repr__(N_CHAR_MAX=MOST_LETTERS)}\n{call}"


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
    if not is_ours(search):  # rows are shown with their held-out values, of which there are none
        return None
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

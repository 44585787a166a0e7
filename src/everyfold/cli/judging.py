"""The commands ``judge`` and ``compare``: saved models on the rows of a file.

The models are cross-validated with the parameters that they were saved with. The judgements are
those of ``everyfold.judge``; this module reads models and rows, and prints the results.
"""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.sparse import hstack
from sklearn.base import is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.metrics import get_scorer, get_scorer_names
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold
from sklearn.pipeline import make_pipeline

from everyfold._progress import pluralise
from everyfold._typing import Estimator, Matrix, Params
from everyfold.cli import model_file as modelfile
from everyfold.cli.errors import BadInput, choose, in_options, naming
from everyfold.cli.model_table import full_name
from everyfold.cli.models import decide_task
from everyfold.cli.options import CompareOptions, JudgeOptions, Judging
from everyfold.cli.output import show_lines, show_record
from everyfold.cli.readers import read_file
from everyfold.cli.study import check_scoring
from everyfold.cli.table import TableData
from everyfold.engine.request import MethodOptions, UnsupportedWarning
from everyfold.judge.differences import compare
from everyfold.judge.findings import findings_of, write_report
from everyfold.judge.verdicts import VerdictLine, verdict
from everyfold.kernels.pairwise import is_sparse
from everyfold.search import FastGridSearchCV


@dataclass(frozen=True)
class Case:
    """Models to be judged, not fitted, and the rows to judge them on.

    ``paths`` are their files, ``saved`` the models as they were fitted; each has its own matrix in
    ``rows``, and ``X`` is what the models in ``models`` take.
    """

    paths: Sequence[Path]
    saved: Sequence[modelfile.SavedModel]
    models: Sequence[Estimator]
    rows: Sequence[Matrix]
    X: Matrix
    data: TableData
    scoring: str

    @property
    def n_rows(self) -> str:
        """How many rows there are, and groups if there are any."""
        words = pluralise(len(self.data.y), "row")
        if self.data.groups is None:
            return words
        return f"{words} in {pluralise(len(np.unique(self.data.groups)), 'group')}"


def read_case(paths: Sequence[Path], path: Path, options: Judging) -> Case:
    """The saved models and the rows of the file, checked against each other."""
    if not 0.0 < options.level < 1.0:
        raise BadInput(f"--level {options.level:g} is not a share between 0 and 1, such as 0.95")
    if options.cv < 2:
        raise BadInput(f"--cv {options.cv} is not a number of folds from 2 on")
    saved = [modelfile.load(path) for path in paths]
    tasks = {"classification" if is_classifier(each.estimator) else "regression" for each in saved}
    if len(tasks) > 1:
        raise BadInput(f"{paths[0]} and {paths[1]}: one predicts labels and the other numbers")
    (task,) = tasks
    content = read_file(path, options.header)
    with naming(path):
        tables = [content.judged(each.layout, options) for each in saved]
        _, data = decide_task(saved[0].model, task, tables[0])
    scoring = options.scoring or ("accuracy" if task == "classification" else "r2")
    choose("--scoring", scoring, get_scorer_names())
    check_scoring(scoring, task, data.y)
    rows = [each.as_fitted(table.X) for each, table in zip(saved, tables, strict=True)]
    models = [each.unfitted for each in saved]
    X = rows[0]
    if len({(each.layout.names, each.layout.positions, each.layout.kinds) for each in saved}) > 1:
        models, X = _side_by_side(models, rows)
    return Case(paths, saved, models, rows, X, data, scoring)


def _side_by_side(
    models: Sequence[Estimator], rows: Sequence[Matrix]
) -> tuple[list[Estimator], Matrix]:
    """Models that take their own columns of one matrix, and that matrix."""
    ends = np.cumsum([0, *(X.shape[1] for X in rows)]).tolist()
    own = [
        make_pipeline(ColumnTransformer([("own", "passthrough", slice(*span))]), model)
        for span, model in zip(pairwise(ends), models, strict=True)
    ]
    return own, hstack(rows, "csr") if any(map(is_sparse, rows)) else np.hstack(rows)


def show_score(case: Case, options: JudgeOptions) -> None:
    """Print what can be trusted about the score of the model."""
    asked: Params = {"cv": options.cv, "groups": case.data.groups, "scoring": case.scoring}
    try:
        found = verdict(case.models[0], case.X, case.data.y, **asked, level=options.level)
    except ValueError as error:
        raise BadInput(in_options(str(error))) from error
    scorer = get_scorer(case.scoring)
    as_saved = float(scorer(case.saved[0].estimator, case.rows[0], case.data.y))
    interval = found.interval
    assert interval is not None  # models have one
    rest = [(line.topic, f"{_named(line.words, case)}{_remedy(line)}") for line in found.lines[1:]]
    if options.json:
        record = {**asdict(interval), "scoring": case.scoring, "as_saved": as_saved}
        return show_record({**record, "findings": dict(rest)})
    score = f"{case.scoring} {interval}; fitted to {case.n_rows} like these"
    saved = f"{as_saved:.4g} on these rows; only of use for rows that it was not fitted to"
    method = ("method", f"{interval.method}: {interval.why}")
    return show_lines([("score", score), method, ("as saved", saved), *rest])


def _named(words: str, case: Case) -> str:
    """Columns by their names, where the rows have some."""
    names = case.saved[0].layout.names
    if names is None:
        return words
    return re.sub(r"\bcolumn (\d+)", lambda found: f"column {names[int(found[1])]!r}", words)


def _remedy(line: VerdictLine) -> str:
    """What repairs a leak, as an option."""
    if line.topic != "leaks" or not line.is_problem:
        return ""
    if "alone tells" in line.words:
        return "; fit without it (--drop), if it is not known before the target is"
    return "; name a column of what belongs together as --groups"


def show_difference(case: Case, options: CompareOptions) -> None:
    """Print which of two models is better, if that is certain, and by how much."""
    asked: Params = {"cv": options.cv, "groups": case.data.groups, "scoring": case.scoring}
    asked |= {"level": options.level, "margin": options.margin, "random_state": options.seed}
    try:
        a, b = case.models
        found = compare(a, b, case.X, case.data.y, **asked)
    except ValueError as error:
        raise BadInput(in_options(str(error))) from error
    if options.json:
        return show_record({**asdict(found), "scoring": case.scoring})
    first, second = case.paths
    decision = f"it is not certain which is better at {options.level:g}"
    for one, two, chance in ((first, second, found.p_better), (second, first, found.p_worse)):
        if chance >= options.level:
            decision = f"{one} is better than {two}"
    if found.p_equal >= options.level:
        decision = f"the difference is within the margin of {options.margin:g}"
    low, high = found.interval
    share = f"{100.0 * options.level:g} %"
    chances = f"{found.p_better:.3g} that {first} is better, {found.p_worse:.3g} that {second} is"
    chances += f", {found.p_equal:.3g} within the margin" if options.margin else ""
    difference = f"{found.difference:.4g} ({share}: {low:.4g} to {high:.4g}) of {case.scoring}"
    lines = [
        ("verdict", decision),
        ("difference", f"{difference} on {case.n_rows}, {first} minus {second}"),
        ("probability", chances),
        ("method", f"{found.method}: {found.why}"),
    ]
    return show_lines(lines)


def write_case(case: Case, options: JudgeOptions) -> None:
    """Write the page of a model: that of a search with one candidate."""
    saved, model, data = case.saved[0], case.models[0], case.data
    prefix = "model__" if hasattr(model, "steps") else ""
    grid = {full_name(prefix, name): [value] for name, value in saved.parameters.items()}
    has_labels = is_classifier(model)
    kind = StratifiedKFold if has_labels else KFold
    if data.groups is not None:
        kind = StratifiedGroupKFold if has_labels else GroupKFold
    folds = kind(options.cv, shuffle=True, random_state=0)
    search = FastGridSearchCV(
        model, grid, scoring=case.scoring, cv=folds, method=MethodOptions(keeps="all")
    )
    try:
        # The page says what is refitted.
        with warnings.catch_warnings(action="ignore", category=UnsupportedWarning):
            search.fit(case.X, data.y, groups=data.groups)
    except (ValueError, TypeError) as error:
        raise BadInput(in_options(str(error))) from error
    found = findings_of(search, title=f"Judgement of {case.paths[0].name}")
    call = shlex.join(["everyfold", *sys.argv[1:]])
    write_report(options.report or "", search, replace(found, call=call))

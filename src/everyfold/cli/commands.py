"""The commands: what they are called, what their help says, and what they do in which order.

Results go to standard output, messages to standard error. Everything that can be checked is checked
before the work begins; what was finished is shown and written if something ends it.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import typer

import everyfold
from everyfold._progress import pluralise, printable
from everyfold._typing import Estimator, Matrix, Params
from everyfold.cli import judging, output
from everyfold.cli import model_file as modelfile
from everyfold.cli.errors import BadInput, CommandFailure, UsageError, in_options, naming, say
from everyfold.cli.folders import as_bad_input, is_folder, rows_of
from everyfold.cli.models import parse_assignment, suited
from everyfold.cli.options import (
    CompareOptions,
    FitOptions,
    JudgeOptions,
    PredictOptions,
    SearchOptions,
    as_command,
    as_help,
)
from everyfold.cli.readers import read_file
from everyfold.cli.study import Job, StudyResult, read_job, read_model, run_rounds
from everyfold.io.blocks import rows_at_a_time
from everyfold.search.hints import edge_words

app = typer.Typer(
    name="everyfold",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"everyfold {everyfold.__version__}")
        raise typer.Exit


_VERSION = typer.Option(
    False, "--version", help="Show the version.", callback=_show_version, is_eager=True
)


def root(version: bool = _VERSION) -> None:
    r"""Cross-validation of kernel machines and linear models without refitting.

    \b
    Find good parameters, keep the model, use it:
      everyfold search train.csv --model svc --save model.skops
      everyfold predict model.skops new.csv

    Results go to standard output, messages to standard error. Exit codes: 0 success, 1 failure
    during the work, 2 bad input or usage, 130 interrupted.
    """


def search(options: SearchOptions) -> None:
    r"""Search a grid of parameters by cross-validation.

    Prints the best candidates with the standard errors of their scores over the folds, and the
    plan. Folds are shuffled (and stratified, for classes) by --seed.

    \b
    Examples:
      everyfold search iris.csv --model svc
      everyfold search iris.csv -m svc -g "C=logspace(-2,3,10)" -g "gamma=0.01,0.1,1" --cv 5
      everyfold search houses.parquet -m kernel-ridge -t price
      everyfold search houses.parquet -m ridge -t price,rent --scoring neg_mean_absolute_error
      everyfold search a9a.svm.gz -m lssvm --no-standardise --json > result.json
      everyfold search iris.csv -m svc --expand --out all.csv --plot surface.png --save best.skops
      everyfold search large.parquet -m ridge --journal large.journal --resume
      everyfold search iris.csv -m svc --cv 10x5 --id name --report report.html
      everyfold search folder/ -m lssvm --operator nystrom:300 --save model.skops
    """
    job = _prepare(options)
    outcome = StudyResult(job, job.grid)
    try:
        run_rounds(outcome, is_quiet=options.quiet, may_grow=options.expand)
    except BaseException as error:
        if type(error) is not BadInput:  # after which nothing was begun
            _keep_finished(outcome, options)
        raise
    _report(outcome, options, is_complete=True)
    _write(outcome, options, _WRITERS)


def _prepare(options: SearchOptions) -> Job:
    """Check and read everything, files to be written included."""
    names = *_WRITERS, "journal"
    output.check_outputs({name: getattr(options, name) for name in names}, options.data)
    job = read_job(options)
    output.check_plot(options.plot, job)
    _introduce(job, options)
    return job


def _keep_finished(outcome: StudyResult, options: SearchOptions) -> None:
    """Show and write what was finished before something ended the search."""
    if options.journal is not None and options.journal.exists():
        _note(f"finished kernels are in {options.journal}: --resume goes on with them", options)
    if hasattr(outcome.search, "best_index_"):
        _report(outcome, options, is_complete=False)
        _write(outcome, options, ("save", "out"))


def _write(outcome: StudyResult, options: SearchOptions, names: Iterable[str]) -> None:
    """Write what was asked for; a file that fails does not keep the next from being written."""
    failures = []
    for name in names:
        path = getattr(options, name)
        if path is None:
            continue
        try:
            words = _WRITERS[name](path, outcome)
        except (OSError, ValueError) as error:
            failures.append(f"--{name} {path} was not written: {error}")
        else:
            _note(f"wrote {path}: {words}", options)
    if failures:
        raise CommandFailure("; ".join(failures))


def _note(words: str, options: SearchOptions | FitOptions) -> None:
    if not options.quiet:
        say(words)


def _introduce(job: Job, options: SearchOptions | FitOptions) -> None:
    data, names = job.data, ", ".join(map(repr, job.data.layout.targets))
    target = f"target{'s' * (len(job.data.layout.targets) > 1)} {names}"
    if job.choice.task == "classification":
        target += f" with {pluralise(len(np.unique(data.y)), 'class')}"
    n, d = data.shape
    _note(f"{job.choice}: {pluralise(n, 'row')}, {pluralise(d, 'feature')}, {target}", options)
    for words in data.notes:
        _note(f"note: {words}", options)


def _report(outcome: StudyResult, options: SearchOptions, *, is_complete: bool) -> None:
    if options.json:
        output.show_json(
            outcome.job, output.describe(outcome, options.top, is_complete=is_complete)
        )
    else:
        output.show_table(outcome, options.top)
        output.show_plans(outcome)
    sys.stdout.flush()
    if options.quiet or not is_complete:
        return
    if chosen := outcome.chosen:
        better = "each fold chose its own, so that the score is not too good for that reason"
        say(f"note: chosen on all rows: {output.as_words(chosen)}; {better}")
    if outcome.n_tied > 1:
        finer = "a score of values, such as roc_auc or neg_log_loss, may tell them apart"
        say(f"note: {outcome.n_tied} candidates share the best score, the first is taken; {finer}")
    for remark in outcome.search.remarks:
        say(f"warning: {in_options(remark.words)}")
    for name, side in outcome.edges.items():
        advice = "give a wider --grid" if options.expand else f"use --expand or --grid {name}=…"
        say(f"note: {edge_words(name, outcome.best_params[name], side)}; {advice}")


def _save(path: Path, outcome: StudyResult) -> str:
    search = outcome.winner
    return _save_model(path, outcome.job, outcome.best_params, search.best_estimator_)


def _save_model(path: Path, job: Job, params: Params, fitted: Estimator) -> str:
    intervals = None if job.interval is None else job.conformal(fitted)
    if job.proba:
        fitted = job.calibrated(fitted)
    modelfile.save(path, job.choice, job.data, params, fitted, intervals)
    return ", ".join(filter(None, (str(job.choice), output.as_words(params))))


# What writes the files of the options: the model first, which took the longest.
_WRITERS: dict[str, Callable[[Path, StudyResult], str]] = {
    **{"save": _save, "out": output.write_results},
    **{"oof": output.write_out_of_fold, "plot": output.write_plot, "report": output.write_page},
}


def plan(options: SearchOptions) -> None:
    r"""Show what search would do and its estimated cost, without doing it.

    Takes the options of search.

    \b
    Examples:
      everyfold plan iris.csv --model svc
      everyfold plan houses.parquet -m ridge -t price --cv loo
    """
    job = _prepare(options)
    found = job.plan()
    if options.json:
        output.show_json(job, {"grid": job.grid, "plan": found.as_dict(), "exact": found.exactness})
        return
    for name, values in job.grid.items():
        print(f"{name:<14} {' '.join(output.as_words({'': value})[1:] for value in values)}")
    output.show_plan(job, found)


def fit(options: FitOptions) -> None:
    r"""Fit one model on all rows and write it to a file.

    The file is a skops file, from which nothing is unpickled; docs/cli.md describes it.

    \b
    Examples:
      everyfold fit iris.csv --model svc --param gamma=0.1 --param C=10 --save model.skops
      everyfold fit houses.csv -m ridge -p alpha=0.5 --save model.skops
    """
    if options.save is None:
        raise BadInput("fit needs --save MODEL.skops, where to write the model")
    output.check_outputs({"save": options.save}, options.data)
    data, choice = read_model(options)
    job = Job(data, choice, proba=options.proba, interval=options.interval, seed=options.seed)
    params: Params = {}
    for text in options.param:
        name, values = parse_assignment("--param", text, choice)
        if len(values) != 1:
            raise BadInput(f"--param {text!r}: give one value; to compare several, use search")
        params[name] = values[0]
    params = suited(choice, data, options.seed, params)
    _introduce(job, options)
    try:
        fitted = job.fitted(params)
    except (ValueError, TypeError) as error:
        raise BadInput(in_options(str(error))) from error
    _note(f"wrote {options.save}: {_save_model(options.save, job, params, fitted)}", options)


def predict(options: PredictOptions) -> None:
    r"""Predict the rows of a file with a saved model.

    Columns are found by name if both files have names, otherwise by position; the target may be
    missing. Prints CSV.

    \b
    Examples:
      everyfold predict model.skops new.csv
      everyfold predict model.skops new.csv --decision --out predictions.csv
      everyfold predict model.skops new.csv --proba --id patient
      everyfold predict model.skops new.csv --interval 0.9
      everyfold predict gp.skops new.csv --std
      everyfold predict model.skops folder/ --out predictions.csv
    """
    output.check_outputs({"out": options.out}, options.data)
    model = modelfile.load(options.model_file)
    if is_folder(options.data):
        return _predict_folder(model, options)
    content = read_file(options.data, options.header)
    with naming(options.data):
        X, ids = content.rows(model.layout), content.ids(model.layout, options.id)
    columns = {} if ids is None else {ids[0]: ids[1].tolist()}
    columns |= _answers(model, X, options)
    output.write_csv(options.out, list(columns), zip(*columns.values(), strict=True))
    return None


def _predict_folder(model: modelfile.SavedModel, options: PredictOptions) -> None:
    """Predict rows that are read in blocks; lines are written as they come."""
    row_id, rows = rows_of(options.data, model.layout, options.id)

    def answered() -> Iterator[Params]:
        for block in rows.blocks(rows_at_a_time(rows.n_features)):
            ids = {} if row_id is None else {row_id: block.y.tolist()}
            yield ids | _answers(model, block.X, options)

    with as_bad_input(options.data):
        found = answered()
        first = next(found)
        every = (zip(*columns.values(), strict=True) for columns in chain([first], found))
        output.write_csv(options.out, list(first), chain.from_iterable(every))


def _answers(model: modelfile.SavedModel, X: Matrix, options: PredictOptions) -> Params:
    """The columns of what is predicted of some rows."""
    predicted, decided = model.predict(X)
    columns: Params = {}
    columns |= output.by_target("prediction", predicted, model.layout.targets)
    if options.std:
        columns |= output.by_target("std", model.deviations(X), model.layout.targets)
    if options.proba:
        columns |= model.probabilities(X)
    if options.interval is not None:
        columns |= model.bounds(X, options.interval)
    if options.decision:
        columns |= output.decisions(decided, getattr(model.estimator, "classes_", decided))
    return columns


def judge(options: JudgeOptions) -> None:
    r"""Say how good a saved model is on new rows, with an interval.

    Cross-validates the model with its parameters on the rows of a file: the score is that of the
    model fitted to all of them. If the parameters were selected on the same rows, it is a little
    too good; the report of a search has a score without that bias.

    \b
    Examples:
      everyfold judge model.skops train.csv
      everyfold judge model.skops train.csv --scoring roc_auc --groups patient --report report.html
    """
    output.check_outputs({"report": options.report}, options.data)
    case = judging.read_case([options.model_file], options.data, options)
    judging.show_score(case, options)
    if options.report is not None:
        judging.write_case(case, options)
        if not options.quiet:
            say(f"wrote {options.report}")


def compare(options: CompareOptions) -> None:
    r"""Say which of two saved models is better, and how certain that is.

    Cross-validates both on the same folds of the rows of a file. They may have been fitted to other
    columns of it.

    \b
    Examples:
      everyfold compare svc.skops lssvm.skops train.csv
      everyfold compare with_age.skops without_age.skops train.csv --margin 0.01
    """
    case = judging.read_case([options.first, options.second], options.data, options)
    judging.show_difference(case, options)


app.callback(help=as_help(root))(root)
app.command("search")(as_command(SearchOptions, search))
app.command("plan")(as_command(SearchOptions, plan))
app.command("fit")(as_command(FitOptions, fit))
app.command("predict")(as_command(PredictOptions, predict))
app.command("judge")(as_command(JudgeOptions, judge))
app.command("compare")(as_command(CompareOptions, compare))


def run() -> None:
    """Run the command that the arguments name."""
    # A terminal that cannot show a letter gets a question mark, not an error.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        code = app(prog_name="everyfold", standalone_mode=False)
    except UsageError as error:
        words = io.StringIO()
        error.show(words)  # ours are said at once
        sys.stderr.write("\n".join(map(printable, words.getvalue().split("\n"))))
        sys.exit(error.exit_code)
    sys.exit(code)

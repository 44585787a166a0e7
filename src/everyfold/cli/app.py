"""The commands: what they are called, what their help says, and what they do in which order."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer

import everyfold
from everyfold.cli import modelfile
from everyfold.cli.grids import central_gamma, parse_assignment
from everyfold.cli.job import Job, Outcome, read_job, read_model, run_rounds
from everyfold.cli.manners import BadInput, check_writable, guard, leave, naming, say
from everyfold.cli.options import (
    Common,
    FitOptions,
    Options,
    PredictOptions,
    SearchOptions,
    as_command,
    as_help,
)
from everyfold.cli.output import (
    as_words,
    check_plot,
    show_json,
    show_json_plan,
    show_plans,
    show_table,
    write_csv,
    write_plot,
    write_results,
)
from everyfold.cli.preview import preview
from everyfold.cli.readers import read_file
from everyfold.cli.watch import find_watcher
from everyfold.selection.remarks import edge_words

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


def root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    r"""Cross-validation of kernel machines without refitting.

    \b
    Find good parameters, keep the model, use it:
      everyfold search train.csv --model svc --save model.npz
      everyfold predict model.npz new.csv

    Results go to standard output, messages to standard error. Exit codes: 0 success, 1 failure
    during the work, 2 bad input or usage, 130 interrupted.
    """


app.callback(help=as_help(root))(root)


# -- search --------------------------------------------------------------------------------------


def search(options: SearchOptions) -> None:
    r"""Search a grid of parameters by cross-validation.

    Prints the best candidates with the standard errors of their scores over the folds, and what
    was done. Folds are shuffled (and stratified, for classes) by --seed.

    \b
    Examples:
      everyfold search iris.csv --model svc
      everyfold search iris.csv -m svc -g "C=logspace(-2,3,10)" -g "gamma=0.01,0.1,1" --cv 5
      everyfold search houses.parquet -m ridge -t price --scoring neg_mean_absolute_error
      everyfold search a9a.svm.gz -m lssvm --no-standardise --json > result.json
      everyfold search iris.csv -m svc --expand --out all.csv --plot surface.png --save best.npz
    """
    for option, path in (
        ("--out", options.out),
        ("--plot", options.plot),
        ("--save", options.save),
    ):
        check_writable(option, path)
    job = read_job(options)
    check_plot(options.plot, job)
    _introduce(job, options)
    outcome = Outcome(job, job.grid)
    try:
        run_rounds(outcome, find_watcher(options.quiet), may_grow=options.expand)
    except KeyboardInterrupt:
        if outcome.rounds:
            _report(outcome, options, is_complete=False)
        raise
    _report(outcome, options, is_complete=True)
    _keep(outcome, options)


def _introduce(job: Job, options: Common) -> None:
    if options.quiet:
        return
    data = job.data
    target = f"target {data.layout.target!r}"
    if job.choice.task == "classification":
        target += f" with {len(np.unique(data.y))} classes"
    say(f"{job.choice}: {data.n_rows} rows, {data.X.shape[1]} features, {target}")


def _report(outcome: Outcome, options: SearchOptions, *, is_complete: bool) -> None:
    if options.json:
        show_json(outcome, options.top, is_complete=is_complete)
    else:
        show_table(outcome, options.top)
        show_plans(outcome)
    sys.stdout.flush()
    if options.quiet or not is_complete:
        return
    for words in outcome.remarks:
        say(f"warning: {words}")
    for name, side in outcome.edges.items():
        advice = "give a wider --grid" if options.expand else f"use --expand or --grid {name}=…"
        say(f"note: {edge_words(name, outcome.best_params[name], side)}; {advice}")


def _keep(outcome: Outcome, options: SearchOptions) -> None:
    """Write the files that were asked for."""
    if options.out is not None:
        write_results(options.out, outcome)
    if options.plot is not None:
        write_plot(options.plot, outcome)
    if options.save is not None:
        _save(outcome.job, outcome.best_params, options)


def _save(job: Job, params: dict[str, Any], options: SearchOptions | FitOptions) -> None:
    assert options.save is not None
    model = modelfile.export(job.choice, job.data, params, job.fitted(params))
    modelfile.save(options.save, model)
    if not options.quiet:
        say(f"wrote {options.save}: {job.choice}, {as_words(params)}")


# -- plan ----------------------------------------------------------------------------------------


def plan(options: SearchOptions) -> None:
    r"""Show what search would do, and what it should cost, without doing it.

    Takes the options of search.

    \b
    Examples:
      everyfold plan iris.csv --model svc
      everyfold plan houses.parquet -m ridge -t price --cv loo
    """
    job = read_job(options)
    _introduce(job, options)
    found = preview(job)
    if options.json:
        show_json_plan(job, found)
        return
    for name, values in job.grid.items():
        print(f"{name:<14} {' '.join(as_words({'': value})[1:] for value in values)}")
    print(found)


# -- fit and predict -----------------------------------------------------------------------------


def fit(options: FitOptions) -> None:
    r"""Fit one model on all rows and write it to a file.

    The file holds plain arrays and JSON, nothing that could run code; docs/cli.md describes it.

    \b
    Examples:
      everyfold fit iris.csv --model svc --param gamma=0.1 --param C=10 --save model.npz
      everyfold fit houses.csv -m ridge -k linear -p alpha=0.5 --save model.npz
    """
    if options.save is None:
        raise BadInput("fit needs --save MODEL.npz, where to write the model")
    check_writable("--save", options.save)
    choice, data = read_model(options)
    job = Job(data, choice, {}, "", {})
    params: dict[str, Any] = {}
    for text in options.param:
        name, values = parse_assignment("--param", text, choice)
        if len(values) != 1:
            raise BadInput(f"--param {text!r}: give one value; to compare several, use search")
        params[name] = values[0]
    if "gamma" in choice.parameters and "gamma" not in params:
        params["gamma"] = central_gamma(choice, data, options.seed)
    _introduce(job, options)
    try:
        _save(job, params, options)
    except (ValueError, TypeError) as error:
        raise BadInput(str(error)) from error


def predict(options: PredictOptions) -> None:
    r"""Predict the rows of a file with a saved model.

    Columns are found by their names where both files have them, else by position; a target may be
    there or not. Prints CSV.

    \b
    Examples:
      everyfold predict model.npz new.csv
      everyfold predict model.npz new.csv --decision --out predictions.csv
    """
    check_writable("--out", options.out)
    model = modelfile.load(options.model_file)
    content = read_file(options.data, options.header)
    with naming(options.data):
        X = content.rows(model.layout)
    values = model.values(X)
    columns, header = [model.target.predict(values)], ["prediction"]
    if options.decision:
        decided = model.target.decide(values)
        columns += [decided] if decided.ndim == 1 else list(decided.T)
        header += _decision_names(model, len(columns) - 1)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    write_csv(options.out, header, rows)


def _decision_names(model: modelfile.SavedModel, count: int) -> list[str]:
    if model.classes is None or count == 1:
        return ["decision"]
    return [f"decision_{label}" for label in model.classes.tolist()]


# -- the commands as typer sees them -------------------------------------------------------------


def _register(kind: type[Options], work: Callable[[Options], None]) -> None:
    def guarded(options: Options) -> None:
        leave(guard(lambda: work(options), is_quiet=options.quiet, debug=options.debug))

    guarded.__doc__ = work.__doc__
    app.command(name=work.__name__)(as_command(kind, guarded))


_register(SearchOptions, search)
_register(SearchOptions, plan)
_register(FitOptions, fit)
_register(PredictOptions, predict)


def run() -> None:
    """Run the command that the arguments name."""
    # A terminal that cannot show a letter gets a question mark, not an error.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app(prog_name="everyfold")

"""Errors and warnings of the command line: a line on stderr, and an exit code.

``guard`` runs a command and turns whatever ends it into a message without a traceback. Messages of
the library name parameters of Python: ``in_options`` puts the options of the shell in their place.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import typer

from everyfold._progress import printable

# What people type, and what that is called here; the first name that an option knows is meant.
_MEANT = {
    **dict.fromkeys(("svm", "classifier", "c-svc"), ("svc",)),
    **dict.fromkeys(("epsilon-svr", "regressor"), ("svr",)),
    **dict.fromkeys(("krr", "kernelridge", "kernel_ridge"), ("kernel-ridge",)),
    **dict.fromkeys(("gpr", "gaussian-process", "process", "kriging"), ("gp",)),
    **dict.fromkeys(("linear", "ols", "least-squares", "tikhonov"), ("ridge",)),
    **dict.fromkeys(("linearsvc", "linear_svc", "linear-svm"), ("linear-svc",)),
    **dict.fromkeys(("ls-svm", "ls-svc", "lssvc", "lssvr", "rls"), ("lssvm",)),
    **dict.fromkeys(("logreg", "logit", "lr", "softmax"), ("logistic",)),
    **dict.fromkeys(("klr", "kernel_logistic"), ("kernel-logistic",)),
    **dict.fromkeys(("gaussian", "gauss", "se", "radial"), ("rbf",)),
    **dict.fromkeys(("exponential", "matern"), ("laplacian",)),
    **dict.fromkeys(("lambda", "reg", "penalty", "lam"), ("alpha", "C", "noise")),
    **dict.fromkeys(("cost",), ("C", "alpha")),
    **dict.fromkeys(
        ("sigma", "length_scale", "lengthscale", "bandwidth"), ("length_scale", "gamma")
    ),
    **dict.fromkeys(("class", "classify", "labels"), ("classification",)),
    **dict.fromkeys(("regress", "numbers"), ("regression",)),
    **{"auc": ("roc_auc",), "log_loss": ("neg_log_loss",), "logloss": ("neg_log_loss",)},
    **{"acc": ("accuracy",), "rsquared": ("r2",), "r^2": ("r2",), "mcc": ("matthews_corrcoef",)},
    **{"mse": ("neg_mean_squared_error",), "rmse": ("neg_root_mean_squared_error",)},
    **{"mae": ("neg_mean_absolute_error",), "mape": ("neg_mean_absolute_percentage_error",)},
    **{"mean": ("mean", "median"), "mode": ("median",)},
}

# Parameters of Python whose options have another name.
_SPELLED = {
    **{"method": "--order", "n_confirm": "--confirm", "checkpoint": "--journal"},
    **{"random_state": "--seed", "class_weight": "--grid class_weight"},
    **{name: f"--{name}" for name in ("operator", "preprocessing", "order", "cv", "scoring")},
    **{"n_jobs": "--n-jobs", "ridge_scaling": "--ridge-scaling", "criterion": "--criterion"},
}

_WHOLE = {
    **{"Dense()": "dense", "method='fast'": "--order inf", "operator:": "--operator:"},
    **{"cv=LeaveOneOut()": "--cv loo", "(keep_predictions)": "(--oof, --report)"},
    **{"HuberSVC or QuadraticSVR": "--model huber-svc or quadratic-svr"},
}

# What typer raises of arguments that it cannot read.
UsageError: Any = typer.BadParameter.__base__


class BadInput(typer.BadParameter):
    """Something the user can put right: a file, an option, a value. Exit code 2."""

    def show(self, file: IO[str] | None = None) -> None:
        """Print the message like all others of the command line."""
        say(f"error: {_one_line(self.message)}")


class CommandFailure(BadInput):
    """Something that went wrong during the work."""

    exit_code = 1


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Say which file it is that something is wrong with."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error


def say(message: str) -> None:
    """Write a message to stderr, without any control characters."""
    print(f"everyfold: {printable(message)}", file=sys.stderr, flush=True)


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint at the known word that is meant, by meaning or by letters, and some of them.

    Examples
    --------
    >>> nearest("scv", ["svc", "svr"])
    "did you mean 'svc'? Known are svc, svr"
    >>> nearest("svm", ["svc", "lssvm"])
    "did you mean 'svc'? Known are svc, lssvm"
    """
    a, names = word.lower(), list(known)
    # How alike two words are, swapped letters ("scv") above wrong ones.
    alike = [
        difflib.SequenceMatcher(None, a, b.lower()).ratio() + 0.1 * (sorted(a) == sorted(b.lower()))
        for b in names
    ]
    by_letters = [names[alike.index(max(alike))]] if max(alike, default=0.0) >= 0.5 else []
    meant = [name for name in _MEANT.get(a, ()) if name in names] or by_letters
    hint = f"did you mean {meant[0]!r}? " if meant else ""
    return f"{hint}Known are {', '.join(names[:12])}{', …' if len(names) > 12 else ''}"


def choose(option: str, value: str, known: Iterable[str]) -> None:
    """Raise unless the value is one of those known to the option."""
    names = list(known)
    if value not in names:
        raise BadInput(f"{option} {value!r} is not known; {nearest(value, names)}")


@contextmanager
def guard(*, is_quiet: bool, debug: bool) -> Iterator[None]:
    """Turn whatever ends the work into an exit code and, but for a broken pipe, a message."""
    try:
        with warnings.catch_warnings():
            _speak_warnings(is_quiet)
            yield
            sys.stdout.flush()
    except BrokenPipeError as error:
        # The reader has gone, as `| head` does. What is still buffered goes nowhere, or Python
        # would complain at its end; 141 is what a shell reports of SIGPIPE.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(141) from error
    except KeyboardInterrupt as error:
        say("interrupted")
        raise typer.Exit(130) from error
    except Exception as error:
        if debug:
            traceback.print_exception(error)
        if isinstance(error, BadInput):
            raise
        short = "not enough memory" if isinstance(error, MemoryError) else type(error).__name__
        raise CommandFailure(f"{short}: {in_options(str(error))}") from error


def in_options(message: str) -> str:
    """What the library says, with the options of the shell in the place of Python's parameters.

    Examples
    --------
    >>> in_options("use operator=Nystrom(1000), n_confirm=0 or method='auto'")
    'use --operator nystrom:1000, --confirm 0 or --order auto'
    """
    kinds = {"Nystrom": "nystrom", "RandomFourier": "fourier"}
    message = re.sub(
        r"\b(Nystrom|RandomFourier)\((?:n_\w+=)?(\d*)[^()]*\)",
        lambda found: f"{kinds[found[1]]}:{found[2] or 1000}",
        message,
    )
    message = re.sub(r"\bn_landmarks=(\d+)", r"--operator nystrom:\1", message)
    for python, option in _WHOLE.items():
        message = message.replace(python, option)
    # Parameters of a candidate, as Python prints them.
    message = re.sub(r"\{('\w+': [^{}]*)\}", lambda found: _assigned(found[1]), message)

    def spelled(found: re.Match[str]) -> str:
        option, value = _SPELLED[found[1]], found[2].strip("'")
        return f"{option}={value}" if "grid" in option else f"{option} {value}"

    return re.sub(rf"\b({'|'.join(_SPELLED)})=('[^']*'|[\w.:-]*\w)", spelled, message)


def _assigned(items: str) -> str:
    """The items of a dictionary as options name them."""
    return re.sub(r"'(?:model__)?(\w+)': ([^,]+),?", r"\1=\2", items)


def _one_line(message: str) -> str:
    """The words of a message, of a traceback that some libraries put into it only the last line."""
    head, traceback, tail = message.partition("Traceback (most recent")
    last = tail.strip().splitlines()[-1:] if traceback else []
    return " ".join([*head.split("\n-----")[0].split(), *last])


def _speak_warnings(is_quiet: bool) -> None:
    """Show each warning once, as a message."""
    said: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *rest: object) -> None:
        words = in_options(_one_line(str(message)))
        if words not in said and not is_quiet:
            said.add(words)
            say(f"warning: {words}")

    warnings.simplefilter("default")
    # Who runs a command can change nothing about these: they are for who writes Python.
    for hidden in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning):
        warnings.simplefilter("ignore", hidden)
    warnings.showwarning = show  # type: ignore[assignment]

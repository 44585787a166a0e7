"""One table of the models of the command line, and one of their parameters.

A row of the first says which estimators a value of ``--model`` stands for and what they take; a new
model is a new row. ``check_names`` refuses what is in no row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.svm import SVC, SVR, LinearSVC

from everyfold._typing import Estimator, Params
from everyfold.cli.errors import BadInput, choose
from everyfold.estimators import LSSVC, LSSVR, HuberSVC, KernelLogisticClassifier, QuadraticSVR
from everyfold.kernel_ridge.kernel_ridge_cv import KernelRidgeClassifierCV, KernelRidgeCV

Task = Literal["classification", "regression"]
# Makes an estimator of the name of a kernel, if it takes one.
Maker: TypeAlias = Callable[..., Estimator]

KERNELS = ("rbf", "laplacian", "polynomial", "linear", "cosine")
_KERNEL_PARAMETERS = {
    **{"rbf": ("gamma",), "laplacian": ("gamma",), "polynomial": ("gamma", "degree", "coef0")}
}
# Beyond a degree of 100 powers overflow.
MOST_DEGREE = 100


@dataclass(frozen=True)
class ParameterRow:
    """What values a parameter takes.

    Numbers from ``least`` on, without it if ``is_open``, up to ``most``; or ``words``. ``usual``
    are the values of a default grid that does not depend on the data, ``path`` is what the
    estimator calls it, if that is another name.
    """

    least: float = 0.0
    is_open: bool = False
    is_whole: bool = False
    most: float = float("inf")
    words: Params = field(default_factory=dict)
    has_numbers: bool = True
    usual: Sequence[float] = ()
    path: str = ""


PARAMETERS = {
    "alpha": ParameterRow(),
    "C": ParameterRow(is_open=True),
    "gamma": ParameterRow(is_open=True, words={"scale": "scale", "auto": "auto"}),
    "degree": ParameterRow(least=1.0, is_whole=True, most=MOST_DEGREE, usual=(2, 3)),
    "coef0": ParameterRow(usual=(1.0,)),
    "epsilon": ParameterRow(),
    "h": ParameterRow(is_open=True, usual=(0.05,)),
    "class_weight": ParameterRow(words={"balanced": "balanced", "none": None}, has_numbers=False),
    "noise": ParameterRow(is_open=True, path="kernel__k2__noise_level"),
    "signal": ParameterRow(is_open=True, path="kernel__k1__k1__constant_value"),
    "length_scale": ParameterRow(is_open=True, path="kernel__k1__k2__length_scale"),
}


@dataclass(frozen=True)
class ModelRow:
    """What a value of ``--model`` stands for.

    Attributes
    ----------
    labels, numbers : callable or None
        What makes the estimator for labels and for numbers; None if the model does not do that.
    ridge : str
        The parameter that regularises.
    decades : (int, int)
        From which power of ten to which its default grid goes.
    kernels : mapping
        The kernels of ``--kernel`` by the names that the estimator has for them, the default first;
        empty if it has only one, ``only_kernel``.
    others : sequence of str
        Further parameters, whatever the kernel.
    in_blocks : (callable, callable) or None
        The same for labels and numbers of rows that are read in blocks, and of low rank; None if
        the estimators themselves are of low rank and cannot be fitted to blocks.
    instead : str
        Of a model with one kernel, the one that has several.
    follows_spread : bool
        Whether the unit of the ridge is that of the target.
    takes_several : bool
        Whether it predicts several targets at once, if they are numbers.
    without_grid : (callable, callable) or None
        For labels and numbers what makes an estimator that chooses its parameters itself; it is
        taken where no values are given.
    """

    labels: Maker | None
    numbers: Maker | None
    ridge: str = "C"
    decades: tuple[int, int] = (-2, 3)
    kernels: Mapping[str, str] = field(default_factory=lambda: {name: name for name in KERNELS})
    others: Sequence[str] = ()
    in_blocks: tuple[Maker | None, Maker | None] | None = None
    only_kernel: str = "linear"
    instead: str = ""
    follows_spread: bool = False
    takes_several: bool = False
    without_grid: tuple[Maker, Maker] | None = None

    @property
    def task(self) -> Task | None:
        """What it does, if that is one task only."""
        if self.labels is None:
            return "regression"
        return "classification" if self.numbers is None else None

    @property
    def kernel(self) -> str:
        """The usual kernel."""
        return next(iter(self.kernels), self.only_kernel)

    def parameters(self, kernel: str, task: Task) -> tuple[str, ...]:
        """The names of all parameters, the ridge first."""
        of_kernel = _KERNEL_PARAMETERS.get(kernel, ()) if self.kernels else ()
        names = (self.ridge, *of_kernel, *self.others)
        return (*names, "class_weight") if task == "classification" else names


_LIBSVM = {"rbf": "rbf", "polynomial": "poly", "linear": "linear"}
_LSSVM: Params = {"ridge": "alpha", "decades": (-4, 2), "takes_several": True}
_NO_INTERCEPT = (partial(LSSVC, fit_intercept=False), partial(LSSVR, fit_intercept=False))
# Where the columns hang together, the solvers of LogisticRegression and LinearSVC take thousands of
# steps to the minimum that folds are computed for (see docs/linear.md).
_STEPS = 10_000
_LINEAR: Params = {"kernels": {}}


def process_kernel(signal: float = 1.0, length_scale: float = 1.0, noise: float = 1.0) -> Kernel:
    """The kernel of a Gaussian process: smooth functions, and noise."""
    return ConstantKernel(signal) * RBF(length_scale) + WhiteKernel(noise)


MODELS = {
    "svc": ModelRow(partial(SVC, coef0=1.0), None, kernels=_LIBSVM),
    "svr": ModelRow(
        None, partial(SVR, coef0=1.0), kernels=_LIBSVM, others=("epsilon",), follows_spread=True
    ),
    "logistic": ModelRow(
        partial(LogisticRegression, max_iter=_STEPS),
        None,
        **_LINEAR,
        in_blocks=(partial(KernelLogisticClassifier, kernel="linear"), None),
        instead="kernel-logistic",
    ),
    "linear-svc": ModelRow(partial(LinearSVC, max_iter=_STEPS), None, **_LINEAR, instead="svc"),
    "ridge": ModelRow(
        RidgeClassifier,
        Ridge,
        "alpha",
        (-2, 4),
        **_LINEAR,
        in_blocks=(partial(LSSVC, kernel="linear"), partial(LSSVR, kernel="linear")),
        instead="kernel-ridge",
        takes_several=True,
    ),
    "kernel-ridge": ModelRow(
        _NO_INTERCEPT[0],
        KernelRidge,
        **_LSSVM,
        in_blocks=_NO_INTERCEPT,
        without_grid=(KernelRidgeClassifierCV, KernelRidgeCV),
    ),
    "gp": ModelRow(
        None,
        lambda: GaussianProcessRegressor(process_kernel(), optimizer=None, normalize_y=True),
        "noise",
        kernels={},
        only_kernel="rbf",
        instead="kernel-ridge",
        others=("signal", "length_scale"),
        takes_several=True,
    ),
    "lssvm": ModelRow(LSSVC, LSSVR, **_LSSVM, in_blocks=(LSSVC, LSSVR)),
    "kernel-logistic": ModelRow(
        KernelLogisticClassifier, None, in_blocks=(KernelLogisticClassifier, None)
    ),
    "huber-svc": ModelRow(HuberSVC, None, others=("h",), in_blocks=(HuberSVC, None)),
    "quadratic-svr": ModelRow(
        None, QuadraticSVR, others=("epsilon",), in_blocks=(None, QuadraticSVR)
    ),
}


def check_names(model: str, kernel: str | None, task: str, impute: str | None) -> None:
    """Raise if there is no such model, or not with that kernel or for that task."""
    if impute is not None:
        choose("--impute", impute, ("median", "mean"))
    if not model:
        raise BadInput(
            f"--model is missing; use --model svc for labels, --model svr for numbers, or another "
            f"of {', '.join(MODELS)}"
        )
    choose("--model", model, MODELS)
    row = MODELS[model]
    if kernel is not None:
        choose("--kernel", kernel, KERNELS)
        if not row.kernels and kernel != row.kernel:
            how = "linear" if row.only_kernel == "linear" else f"always {row.only_kernel}"
            instead = f"which is {how}; use --model {row.instead}"
            raise BadInput(f"--kernel {kernel} does not suit --model {model}, {instead}")
        if row.kernels and kernel not in row.kernels:
            known = f"which has {', '.join(row.kernels)}; --model lssvm has them all"
            raise BadInput(f"--kernel {kernel} does not suit --model {model}, {known}")
    choose("--task", task, ("auto", "classification", "regression"))
    if row.task is not None and task not in ("auto", row.task):
        raise BadInput(f"--task {task} does not suit --model {model}, which does {row.task}")


def models_that(can: Callable[[ModelRow], object]) -> str:
    """The names of the models that can do something, for a message."""
    *names, last = [name for name, row in MODELS.items() if can(row)]
    return f"{', '.join(names)} or {last}"


def full_name(prefix: str, name: str) -> str:
    """What a parameter is called in a pipeline.

    Examples
    --------
    >>> full_name("model__", "noise"), short_name("model__", "model__kernel__k2__noise_level")
    ('model__kernel__k2__noise_level', 'noise')
    """
    return f"{prefix}{PARAMETERS[name].path or name}"


def short_name(prefix: str, name: str) -> str:
    """What a parameter of a pipeline is called in the shell."""
    own = name.removeprefix(prefix)
    return next((short for short, row in PARAMETERS.items() if row.path == own), own)

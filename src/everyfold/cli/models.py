"""The models of the command line: which estimator, for which target, with which parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from everyfold.cli.data import Column, Data
from everyfold.cli.manners import BadInput, choose, nearest
from everyfold.kernels.distances import is_sparse
from everyfold.models.estimators import LSSVC, LSSVR, KernelLogisticClassifier

Task = Literal["classification", "regression"]

MODELS = ("svc", "svr", "ridge", "lssvm", "logistic")
KERNELS = ("rbf", "laplacian", "polynomial", "linear", "cosine")
MANY_VALUES = 20
"""A whole-numbered target with more values than this is taken for a quantity, not for labels."""

_TASKS: dict[str, Task] = {
    "svc": "classification",
    "logistic": "classification",
    "svr": "regression",
}
_LIBSVM_KERNELS = {"rbf": "rbf", "polynomial": "poly", "linear": "linear"}
_KERNEL_PARAMETERS = {
    "rbf": ("gamma",),
    "laplacian": ("gamma",),
    "polynomial": ("gamma", "degree", "coef0"),
}


@dataclass(frozen=True)
class Choice:
    """A model that has been chosen, and how its rows are prepared."""

    model: str
    kernel: str
    task: Task
    is_standardised: bool

    @property
    def ridge(self) -> str:
        """What the regularisation parameter is called."""
        return "alpha" if self.model in ("ridge", "lssvm") else "C"

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of all parameters, the ridge first."""
        names = (self.ridge, *_KERNEL_PARAMETERS.get(self.kernel, ()))
        if self.model == "svr":
            names += ("epsilon",)
        return (*names, "class_weight") if self.task == "classification" else names

    def check_parameter(self, option: str, name: str) -> None:
        """Raise if the model has no such parameter, with the one that may be meant."""
        if name in self.parameters:
            return
        owner = f"--model {self.model} with --kernel {self.kernel}"
        if {name, self.ridge} == {"C", "alpha"}:
            raise BadInput(f"{option}: {owner} is regularised by {self.ridge}, alpha = 1/(2 C)")
        if name == "kernel":
            raise BadInput(f"{option}: the kernel is not searched; choose one by --kernel")
        raise BadInput(
            f"{option}: {name!r} is no parameter of {owner}; {nearest(name, self.parameters)}"
        )

    def estimator(self) -> Any:
        """The model itself, without what comes before it."""
        if self.model in ("svc", "svr"):
            kind = SVC if self.model == "svc" else SVR
            return kind(kernel=_LIBSVM_KERNELS[self.kernel], coef0=1.0)
        if self.model == "logistic":
            return KernelLogisticClassifier(kernel=self.kernel)
        if self.task == "classification":
            return LSSVC(kernel=self.kernel, fit_intercept=self.model == "lssvm")
        if self.model == "ridge":
            return KernelRidge(kernel=self.kernel)
        return LSSVR(kernel=self.kernel)

    def pipeline(self, X: Any) -> Any:
        """The estimator for these rows, standardised before if that was asked for."""
        if not self.is_standardised:
            return self.estimator()
        scaler = StandardScaler(with_mean=not is_sparse(X))
        return Pipeline([("scaler", scaler), ("model", self.estimator())])

    @property
    def prefix(self) -> str:
        """What comes before the names of parameters in the pipeline."""
        return "model__" if self.is_standardised else ""

    def __str__(self) -> str:
        return f"{type(self.estimator()).__name__}, {self.kernel} kernel, {self.task}"


def check_names(model: str, kernel: str, task: str) -> None:
    """Raise if there is no such model, or not with that kernel or for that task."""
    choose("--model", model, MODELS)
    choose("--kernel", kernel, KERNELS)
    choose("--task", task, ("auto", "classification", "regression"))
    if model in ("svc", "svr") and kernel not in _LIBSVM_KERNELS:
        raise BadInput(
            f"--kernel {kernel} is not one of libsvm's; --model {model} has "
            f"{', '.join(_LIBSVM_KERNELS)}, and --model lssvm has them all"
        )
    known = _TASKS.get(model)
    if known is not None and task not in ("auto", known):
        raise BadInput(f"--task {task} does not suit --model {model}, which does {known}")


def decide_task(model: str, task: str, data: Data) -> tuple[Task, Data]:
    """What is to be predicted, and the target read accordingly."""
    known = _TASKS.get(model)
    if known is None and task != "auto":
        known = "regression" if task == "regression" else "classification"
    if known is None:
        known = "regression" if _is_quantity(data.y) else "classification"
    y = _labels(data) if known == "classification" else _numbers(data, model)
    return known, replace(data, y=y)


def _is_quantity(y: Column) -> bool:
    if y.dtype.kind not in "fiu":
        return False
    values = np.unique(y)
    return len(values) > MANY_VALUES or bool((values != np.round(values)).any())


def _labels(data: Data) -> Column:
    """Class labels, whole numbers as such."""
    y, target = data.y, data.layout.target
    classes = np.unique(y)
    if len(classes) < 2:
        raise BadInput(f"the target {target!r} has one class only ({classes[0]})")
    if y.dtype.kind == "f":
        broken = classes[classes != np.round(classes)]
        if broken.size:
            raise BadInput(
                f"the target {target!r} has values such as {broken[0]:g}, which are no class "
                "labels; for regression use --model svr, ridge or lssvm"
            )
        return y.astype(np.int64)
    return y


def _numbers(data: Data, model: str) -> Column:
    if data.y.dtype.kind not in "fiub":
        raise BadInput(
            f"the target {data.layout.target!r} has labels such as {str(data.y[0])!r}, but --model "
            f"{model} predicts numbers; for classification use --model svc, lssvm or logistic"
        )
    return data.y.astype(np.float64)

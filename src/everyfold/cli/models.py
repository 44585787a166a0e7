"""The models of the command line: which estimator, for which target, with which parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from everyfold.cli.data import Data
from everyfold.cli.manners import BadInput, choose, nearest
from everyfold.kernels.distances import is_sparse
from everyfold.models.estimators import LSSVC, LSSVR, KernelLogisticClassifier

Task = Literal["classification", "regression"]

MODELS = ("svc", "svr", "ridge", "lssvm", "logistic")
KERNELS = ("rbf", "laplacian", "polynomial", "linear", "cosine")
MANY_VALUES = 20
"""A whole-numbered target with more values than this is taken for a quantity, not for labels."""

_TASKS: dict[str, Task] = {
    **{"svc": "classification", "logistic": "classification", "svr": "regression"}
}
_LIBSVM_KERNELS = {"rbf": "rbf", "polynomial": "poly", "linear": "linear"}
_KERNEL_PARAMETERS = {
    **{"rbf": ("gamma",), "laplacian": ("gamma",), "polynomial": ("gamma", "degree", "coef0")}
}


@dataclass(frozen=True)
class Choice:
    """A model that has been chosen, and how its rows are prepared."""

    model: str
    kernel: str
    task: Task
    is_standardised: bool

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of all parameters, the ridge first."""
        ridge = "alpha" if self.model in ("ridge", "lssvm") else "C"
        names = (ridge, *_KERNEL_PARAMETERS.get(self.kernel, ()))
        names += ("epsilon",) if self.model == "svr" else ()
        return (*names, "class_weight") if self.task == "classification" else names

    def check_parameter(self, option: str, name: str) -> None:
        """Raise if the model has no such parameter, with the one that may be meant."""
        owner = f"--model {self.model} with --kernel {self.kernel}"
        if name in self.parameters:
            return
        if {name, self.parameters[0]} == {"C", "alpha"}:
            how = f"regularised by {self.parameters[0]}, alpha = 1/(2 C)"
            raise BadInput(f"{option}: {owner} is {how}")
        if name == "kernel":
            raise BadInput(f"{option}: the kernel is not searched; choose one by --kernel")
        hint = nearest(name, self.parameters)
        raise BadInput(f"{option}: {name!r} is no parameter of {owner}; {hint}")

    def estimator(self) -> Any:
        """The model itself, without what comes before it."""
        if self.model in ("svc", "svr"):
            kind = SVC if self.model == "svc" else SVR
            return kind(kernel=_LIBSVM_KERNELS[self.kernel], coef0=1.0)
        if self.model == "logistic":
            return KernelLogisticClassifier(kernel=self.kernel)
        if self.task == "classification":
            return LSSVC(kernel=self.kernel, fit_intercept=self.model == "lssvm")
        return (KernelRidge if self.model == "ridge" else LSSVR)(kernel=self.kernel)

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
        known = f"--model {model} has {', '.join(_LIBSVM_KERNELS)}, and --model lssvm has them all"
        raise BadInput(f"--kernel {kernel} is not one of libsvm's; {known}")
    known = _TASKS.get(model, task)
    if task not in ("auto", known):
        raise BadInput(f"--task {task} does not suit --model {model}, which does {known}")


def decide_task(model: str, task: str, data: Data) -> tuple[Task, Data]:
    """What is to be predicted, and the target read accordingly: as numbers, or as labels."""
    y, target = data.y, f"the target {data.layout.target!r}"
    values, is_text = np.unique(y), y.dtype.kind not in "fiub"
    fractions = values[values != np.round(values)] if y.dtype.kind == "f" else values[:0]
    is_quantity = y.dtype.kind in "fiu" and (len(values) > MANY_VALUES or fractions.size > 0)
    known = _TASKS.get(model, task)
    if known == "regression" or (known == "auto" and is_quantity):
        if is_text:
            advice = "for classification use --model svc, lssvm or logistic"
            labels = f"has labels such as {str(y[0])!r}"
            raise BadInput(f"{target} {labels}, but --model {model} predicts numbers; {advice}")
        return "regression", replace(data, y=y.astype(np.float64))
    if len(values) < 2:
        raise BadInput(f"{target} has one class only ({values[0]})")
    if fractions.size:
        advice = "for regression use --model svr, ridge or lssvm"
        values_are = f"values such as {fractions[0]:g}, which are no class labels"
        raise BadInput(f"{target} has {values_are}; {advice}")
    return "classification", replace(data, y=y.astype(np.int64) if y.dtype.kind == "f" else y)

"""The model that was chosen: what ``--model``, ``--kernel`` and the target come to.

A ``ChosenModel`` makes the estimator with the steps before it, and knows its parameters by the
names that they have in the shell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from everyfold._typing import Estimator, Matrix
from everyfold.cli.errors import BadInput, nearest
from everyfold.cli.model_table import MODELS, ModelRow, Task, models_that
from everyfold.cli.table import Kind, TableData, bad_cell, encoder, is_text
from everyfold.kernels.pairwise import is_sparse
from everyfold.operators import Nystrom, RandomFourier

# A whole-numbered target with more values than this is taken for a quantity, not for labels.
MANY_VALUES = 20

# The structures of kernel matrices that make models of their own.
OF_LOW_RANK: dict[str, type] = {"nystrom": Nystrom, "fourier": RandomFourier}


@dataclass(frozen=True)
class ChosenModel:
    """A model that has been chosen, how its rows are prepared, and in which units its ridge is."""

    model: str
    kernel: str
    task: Task
    standardised: bool
    impute: str | None = None
    kinds: tuple[Kind, ...] = ()
    ridge_scaling: str = "sum"
    operator: str = "auto"
    in_blocks: bool = False
    tunes_itself: bool = False

    @property
    def row(self) -> ModelRow:
        """What the table of models says of it."""
        return MODELS[self.model]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of all parameters, the ridge first; none if the model chooses them."""
        return () if self.tunes_itself else self.row.parameters(self.kernel, self.task)

    def check_parameter(self, option: str, name: str) -> None:
        """Raise if the model has no such parameter, with the one that may be meant."""
        owner = f"--model {self.model}"
        owner += f" with --kernel {self.kernel}" if self.row.kernels else ""
        if name in self.parameters:
            return
        if {name, self.parameters[0]} == {"C", "alpha"}:
            how = f"regularised by {self.parameters[0]}, alpha = 1/(2 C)"
            raise BadInput(f"{option}: {owner} is {how}")
        if name == "kernel":
            raise BadInput(f"{option}: the kernel cannot be searched; choose one with --kernel")
        hint = nearest(name, self.parameters)
        if not self.row.kernels and name in ("gamma", "degree", "coef0"):
            hint = f"for a kernel with one use --model {self.row.instead}"
        raise BadInput(f"{option}: {name!r} is not a parameter of {owner}; {hint}")

    def estimator(self) -> Estimator:
        """The model itself, without what comes before it."""
        row, is_special = self.row, self.in_blocks or self.is_low_rank
        # KernelRidge has no operator, and nothing of scikit-learn takes rows that are read in
        # blocks: others stand for them.
        special = row.without_grid if self.tunes_itself else row.in_blocks if is_special else None
        make = (special or (row.labels, row.numbers))[self.task == "regression"]
        assert make is not None  # or check_names had refused the task
        return make(kernel=row.kernels[self.kernel]) if row.kernels else make()

    @property
    def is_low_rank(self) -> bool:
        """Whether the kernel matrix is one of low rank, which the model is of, too."""
        return self.operator.partition(":")[0] in OF_LOW_RANK

    def pipeline(self, X: Matrix) -> Estimator:
        """The estimator for these rows, after the steps that were asked for."""
        steps = self.steps(X)
        return Pipeline([*steps, ("model", self.estimator())]) if steps else self.estimator()

    def steps(self, X: Matrix) -> list[tuple[str, Estimator]]:
        """What is done to these rows before the model sees them."""
        steps: list[tuple[str, Estimator]] = []
        if self.impute is not None:
            steps += [("imputer", SimpleImputer(strategy=self.impute, keep_empty_features=True))]
        if self.kinds:  # numbers among words are objects, until a scaler makes numbers of them
            scaler = StandardScaler(with_mean=self.standardised, with_std=self.standardised)
            return [("encoder", encoder(self.kinds, [*steps, ("scaler", scaler)], self.impute))]
        if self.standardised:
            steps += [("scaler", StandardScaler(with_mean=not is_sparse(X)))]
        return steps

    @property
    def prefix(self) -> str:
        """What comes before the names of parameters in the pipeline."""
        is_prepared = self.standardised or self.impute is not None or self.kinds
        return "model__" if is_prepared else ""

    def __str__(self) -> str:
        kernel = f", {self.kernel} kernel" if self.row.kernels else ""
        return f"{type(self.estimator()).__name__}{kernel}, {self.task}"


def decide_task(model: str, task: str, data: TableData) -> tuple[Task, TableData]:
    """What is to be predicted, and the target read accordingly: as numbers, or as labels."""
    if data.y.ndim > 1:
        if not MODELS[model].takes_several or task == "classification":
            able = models_that(lambda row: row.takes_several)
            how = f"--model {model}" + (" for labels" if MODELS[model].takes_several else "")
            raise BadInput(
                f"--target names {data.y.shape[1]} columns, and {how} predicts one; give one, or "
                f"use --model {able} for numbers"
            )
        return "regression", data
    y, target = data.y, f"the target {data.layout.target!r}"
    values, has_words = np.unique(y), is_text(y)
    fractions = values[values != np.round(values)] if y.dtype.kind == "f" else values[:0]
    # Labels repeat: whole numbers of which most stand once are quantities, however few rows.
    is_varied = len(values) > MANY_VALUES or 2 * len(values) > max(len(y), 4)
    is_quantity = y.dtype.kind in "fiu" and (is_varied or fractions.size > 0)
    known = MODELS[model].task or task
    is_regression = known == "regression"
    bad = bad_cell(y, len(y) if is_regression else None) if has_words else None
    if bad is not None and task != "classification":
        advice = "or leave the row out" + (
            "" if is_regression else "; --task classification for labels"
        )
        raise BadInput(f"{target} has {bad.words}; {bad.remedy} {advice}")
    if is_regression or (known == "auto" and is_quantity):
        if has_words:
            advice = "for classification use --model svc, lssvm or logistic"
            labels = f"has labels such as {str(y[0])!r}"
            raise BadInput(f"{target} {labels}, but --model {model} predicts numbers; {advice}")
        return "regression", replace(data, y=y.astype(np.float64))
    if len(values) < 2:
        advice = "a classifier needs two; check --target"
        raise BadInput(f"{target} has one class only ({values[0]}); {advice}")
    if fractions.size:
        advice = "for regression use --model svr, ridge or lssvm"
        values_are = f"values such as {fractions[0]:g}, which are no class labels"
        raise BadInput(f"{target} has {values_are}; {advice}")
    return "classification", replace(data, y=y.astype(np.int64) if y.dtype.kind == "f" else y)

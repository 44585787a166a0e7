"""Random cases of cross-validation: from one number everything that a user might pass.

A case is drawn from its seed alone. The kind of estimator and of call follow from the seed by
counting, so that a few dozen seeds in a row have every estimator in every kind of call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.stats import loguniform
from sklearn import config_context
from sklearn.linear_model import RidgeCV
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    fbeta_score,
    make_scorer,
    mean_absolute_error,
    mean_pinball_loss,
    mean_squared_error,
    precision_score,
    roc_auc_score,
)
from sklearn.model_selection import (
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    LeaveOneGroupOut,
    LeaveOneOut,
    LeavePGroupsOut,
    PredefinedSplit,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
    TimeSeriesSplit,
)
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    StandardScaler,
)
from sklearn.svm import SVC, SVR

from tests.guards.fuzz_models import EXTREME, KINDS, Models, margin, mean_error, two_scores

CALLS = ("grid", "grid", "score", "random", "grid", "predict", "score", "grid")


@dataclass
class Case:
    """One call, for either library."""

    seed: int
    call: str
    estimator: Any
    X: Any
    y: Any
    cv: Any
    grid: Any = None
    n_iter: int = 0
    scoring: Any = None
    refit: Any = True
    weights: dict[str, Any] = field(default_factory=dict)
    groups: Any = None
    method: str = "predict"
    with_train: bool = False
    error_score: Any = np.nan
    n_jobs: int | None = None
    order: str = "auto"
    routing: bool = False
    honest: bool = False
    container: str = "array"
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def is_search(self) -> bool:
        """Whether the call is one of the two searches."""
        return self.call in ("grid", "random")

    def __str__(self) -> str:
        options = {
            "cv": self.cv if not isinstance(self.cv, list) else self.facts["cv"],
            "scoring": self.scoring,
            "weights": sorted(self.weights),
            "container": self.container,
            "y": self.facts["y"],
            "n": self.facts["n"],
        }
        if self.is_search:
            options |= {"grid": self.grid, "order": self.order, "n_jobs": self.n_jobs}
            options |= {"refit": self.refit, "with_train": self.with_train}
        elif self.call == "predict":
            options["method"] = self.method
        options["error_score"] = self.error_score
        options["routing"] = self.routing
        words = ", ".join(f"{name}={value!r}" for name, value in options.items())
        return " ".join(f"{self.call}({self.estimator!r}, {words})".split())


def make_case(seed: int) -> Case:
    """The case of a seed."""
    rng = np.random.default_rng([seed, 1105])
    kind = KINDS[seed % len(KINDS)]
    call = CALLS[sum(divmod(seed, len(KINDS))) % len(CALLS)]
    with config_context(enable_metadata_routing=True):  # requests can be set only then
        return _Maker(rng, kind, call).make(seed)


class _Maker(Models):
    """All of a case."""

    def make(self, seed: int) -> Case:
        self.n = int(self.rng.integers(20, 61))
        self.d = int(self.rng.integers(1, 7))
        self.with_loo = self.chance(0.07)
        self.with_many = not self.with_loo and self.chance(0.25)
        if self.with_loo or self.with_many:
            self.n = min(self.n, 36)  # scikit-learn refits them all
        X, y = self.rows(), None
        y = self.labels(X) if self.is_classifier else self.numbers(X)
        model, axes = self.model(self.kind)
        if self.is_precomputed(model):
            X, container = self.kernel_matrix(X), "kernel"
        else:
            X, container = self.contain(X, model)
        estimator, axes = self.pipeline(model, axes, container)
        case = Case(seed, self.call, estimator, X, self.y_contain(y), None, container=container)
        case.facts = self.facts | {"n": self.n, "kind": self.kind.__name__}
        case.routing = self.chance(0.04)
        self.weigh(case)
        case.cv, case.groups = self.folds(y)
        case.facts = case.facts | self.facts
        self.options(case, axes)
        return case

    # -- data --

    def rows(self) -> Any:
        X = self.rng.normal(size=(self.n, self.d))
        style = self.pick("plain", "plain", "shifted", "scaled", "rounded", "twins", "constant")
        if style == "shifted":
            X = X + self.rng.uniform(-4.0, 4.0, self.d)
        elif style == "scaled":
            X = X * 10.0 ** self.rng.uniform(-1.5, 1.0, self.d)
        elif style == "rounded":
            X = np.round(2.0 * X)
        elif style == "twins":
            X[self.n // 2 : self.n // 2 + 5] = X[:5]
        elif style == "constant":
            X[:, 0] = 1.5
        self.facts["X"] = style
        return X

    def signal(self, X: Any) -> Any:
        Z = (X - X.mean(axis=0)) / (X.std(axis=0) + 1e-9)
        along = self.rng.normal(size=self.d) / np.sqrt(self.d)
        return np.sin(1.5 * Z @ along) + Z[:, 0] * self.rng.uniform(-0.5, 0.5)

    def numbers(self, X: Any) -> Any:
        y = self.signal(X) + self.rng.uniform(0.05, 0.6) * self.rng.normal(size=self.n)
        style = self.pick("plain", "plain", "shifted", "large", "counts", "two", "column")
        if style == "shifted":
            y = y + 7.0
        elif style == "large":
            y = 300.0 * y
        elif style == "counts":
            y = np.round(3.0 * y).astype(int)
        elif style == "two":
            y = np.column_stack([y, self.signal(X) - 2.0 + 0.1 * self.rng.normal(size=self.n)])
        elif style == "column":
            y = y[:, None] if self.chance(0.3) else y
        self.facts["y"] = style
        return y

    def labels(self, X: Any) -> Any:
        size = self.pick(2, 2, 3, 4)
        signal = self.signal(X) + self.rng.uniform(0.05, 0.8) * self.rng.normal(size=self.n)
        shares = self.rng.dirichlet(np.full(size, 4.0)) * 0.7 + 0.3 / size
        cuts = np.quantile(signal, np.cumsum(shares)[:-1])
        codes = np.searchsorted(cuts, signal)
        names = self.pick("codes", "codes", "words", "words", "signs", "floats", "bools", "objects")
        classes: Any = np.arange(size)
        if names in ("words", "objects"):
            classes = np.array(["cat", "ant", "dog", "bee"][:size], dtype=object)
            classes = classes if names == "objects" else classes.astype(str)
        elif names == "signs" and size == 2:
            classes = np.array([-1, 1])
        elif names == "floats":
            classes = np.arange(size) + 1.0
        elif names == "bools" and size == 2:
            classes = np.array([False, True])
        self.facts |= {"y": f"{size} {names}", "classes": size, "names": classes}
        return classes[codes]

    def kernel_matrix(self, X: Any) -> Any:
        Z = X / (X.std(axis=0) + 1e-9)
        K = np.exp(-0.3 * ((Z[:, None] - Z[None]) ** 2).sum(axis=2))
        if self.kind in (SVC, SVR) and self.chance(0.15):
            self.facts["indefinite"] = True
            K = np.tanh(Z @ Z.T - 0.5)
        return K

    def contain(self, X: Any, model: Any) -> tuple[Any, str]:
        names = ["array"] * 5 + ["fortran", "float32", "int", "pandas", "polars", "list"]
        names += ["csr", "csc", "coo", "csr_array"]
        name = self.pick(*names)
        if callable(getattr(model, "kernel", None)) and name in ("csr", "csc", "coo", "csr_array"):
            name = "array"
        return self.contained(X, name), name

    def contained(self, X: Any, name: str) -> Any:
        columns = [f"c{j}" for j in range(X.shape[1])]
        if name in ("csr", "csc", "coo", "csr_array"):
            X = np.where(self.rng.random(X.shape) < 0.4, 0.0, X)
            kinds = {"csr": sparse.csr_matrix, "csc": sparse.csc_matrix, "coo": sparse.coo_matrix}
            return kinds.get(name, sparse.csr_array)(X)
        if name == "polars":
            import polars

            return polars.DataFrame({c: X[:, j] for j, c in enumerate(columns)})
        if name == "pandas":
            index = self.rng.permutation(len(X)) + 100
            return pd.DataFrame(X, columns=columns, index=index)
        if name == "int":
            return np.round(3.0 * X).astype(int)
        ways = {"fortran": np.asfortranarray, "float32": np.float32, "list": np.ndarray.tolist}
        return ways.get(name, np.asarray)(X)

    def y_contain(self, y: Any) -> Any:
        way = self.pick("array", "array", "array", "series", "list")
        if way == "series" and y.ndim == 1:
            return pd.Series(y, index=self.rng.permutation(len(y)) + 7, name="target")
        if way == "series":
            return pd.DataFrame(y, columns=["u", "v"][: y.shape[1]])
        return y.tolist() if way == "list" else y

    # -- everything else --

    def weigh(self, case: Case) -> None:
        if not self.chance(0.3) or (case.routing and isinstance(case.estimator, Pipeline)):
            case.routing = False
            return
        w = self.rng.uniform(0.2, 3.0, self.n)
        style = self.pick("random", "zeros", "counts", "list")
        if style == "zeros":
            w[self.rng.random(self.n) < 0.2] = 0.0
        elif style == "counts":
            w = np.round(w).astype(int)
        case.facts["weights"] = style
        values = w.tolist() if style == "list" else w
        is_pipeline = isinstance(case.estimator, Pipeline)
        case.weights = {"model__sample_weight" if is_pipeline else "sample_weight": values}
        if case.routing:
            case.estimator.set_fit_request(sample_weight=True)
            return
        if is_pipeline and not isinstance(case.estimator.steps[0][1], Pipeline):
            for name, step in case.estimator.steps[:-1]:
                if isinstance(step, StandardScaler) and self.chance(0.3):
                    case.weights[f"{name}__sample_weight"] = values

    def folds(self, y: Any) -> tuple[Any, Any]:
        k = int(self.rng.integers(2, 6))
        seed = int(self.rng.integers(1000))
        self.facts["cv"] = "splitter"
        if self.with_loo:
            self.facts["cv"] = "loo"
            return LeaveOneOut(), None
        if self.with_many:
            return self.many_folds(seed)
        if self.call == "predict":
            plain = (k, None, KFold(k, shuffle=True, random_state=seed))
            return self.pick(*plain, self.partition()), None
        groups = self.rng.integers(0, 5, self.n)
        groups[:5] = np.arange(5)
        grouped = [
            GroupKFold(3),
            LeaveOneGroupOut(),
            GroupShuffleSplit(3, random_state=seed),
            # RidgeCV has nothing to choose by on two rows: all its alphas predict alike.
            LeaveOneGroupOut() if self.kind is RidgeCV else LeavePGroupsOut(4),
        ]
        if self.is_classifier:
            grouped.append(StratifiedGroupKFold(3))
        if self.chance(0.2):
            names = np.array([f"g{number}" for number in groups])
            return self.pick(*grouped), self.pick(groups, names, groups.tolist())
        choices: list[Any] = [
            k,
            None,
            KFold(k, shuffle=True, random_state=seed),
            RepeatedKFold(n_splits=k, n_repeats=2, random_state=seed),
            ShuffleSplit(k, test_size=0.3, random_state=seed),
            ShuffleSplit(k, test_size=0.2, train_size=0.5, random_state=seed),
            TimeSeriesSplit(k),
            PredefinedSplit(self.rng.integers(-1, 3, self.n)),
            self.partition(),
            self.drawn(),
        ]
        if self.is_classifier:
            choices += [
                StratifiedKFold(k, shuffle=True, random_state=seed),
                RepeatedStratifiedKFold(n_splits=k, n_repeats=2, random_state=seed),
                StratifiedShuffleSplit(k, test_size=0.3, random_state=seed),
            ]
        return self.pick(*choices), None

    def many_folds(self, seed: int) -> tuple[Any, Any]:
        """More folds than 20, which once was where approximations began."""
        self.facts["cv"] = "many"
        groups = self.rng.permutation(np.arange(self.n) % 22)
        if self.call == "predict":
            folds = [(KFold(21), None), (LeaveOneGroupOut(), groups)]
            return self.pick(*folds) if self.n > 22 else (LeaveOneOut(), None)
        k = self.pick(3, 5)
        choices: list[tuple[Any, Any]] = [
            (RepeatedKFold(n_splits=k, n_repeats=25 // k, random_state=seed), None),
            (ShuffleSplit(30, test_size=0.25, random_state=seed), None),
            (LeaveOneGroupOut(), self.pick(groups, [f"g{number}" for number in groups])),
            (GroupShuffleSplit(22, test_size=0.3, random_state=seed), groups),
        ]
        if self.is_classifier:
            several = RepeatedStratifiedKFold(n_splits=k, n_repeats=25 // k, random_state=seed)
            choices += [(several, None), (StratifiedShuffleSplit(22, random_state=seed), None)]
        return self.pick(*choices)

    def partition(self) -> list[Any]:
        """Unequal parts of the rows, each tested once."""
        order = self.rng.permutation(self.n)
        cuts = np.sort(self.rng.choice(np.arange(2, self.n - 2), 3, replace=False))
        parts = np.split(order, cuts)
        self.facts["cv"] = "list of a partition"
        return [(np.setdiff1d(order, part), part) for part in parts]

    def drawn(self) -> list[Any]:
        """Folds of all sorts: rows drawn twice, tests that overlap or were trained on, masks."""
        folds = []
        style = self.pick("overlap", "bootstrap", "trained on", "order", "lists")
        for _ in range(3):
            order = self.rng.permutation(self.n)
            test, train = order[: self.n // 4], order[self.n // 3 :]
            if style == "bootstrap":
                train = self.rng.choice(train, len(train))
            elif style == "trained on":
                test = np.concatenate([test, train[:3]])
            elif style == "order":
                train = np.sort(order[self.n // 4 :])[::-1]
            folds.append((train.tolist(), test.tolist()) if style == "lists" else (train, test))
        self.facts["cv"] = f"list: {style}"
        return folds

    def options(self, case: Case, axes: dict[str, Any]) -> None:
        case.scoring, several = self.scorer(case)
        case.error_score = self.pick(np.nan, np.nan, np.nan, 0.0, "raise")
        if case.call == "predict":
            methods = ("predict", "predict", "decision_function", "predict_proba")
            case.method = self.pick(*methods) if self.is_classifier else "predict"
            case.scoring = None
        if not case.is_search:
            return
        case.grid = self.grid(case, axes)
        case.with_train = self.chance(0.2)
        case.order = self.pick("auto", "exact", "screen")
        # What groups are for after a fit: rows of a group are resampled together.
        case.honest = case.groups is not None and case.call == "grid" and not self.with_many
        case.n_jobs = (
            2 if self.chance(0.02) or (self.kind in (SVC, SVR) and self.chance(0.1)) else None
        )
        case.refit = self.pick(*several, False) if several else self.pick(True, True, False)

    def grid(self, case: Case, axes: dict[str, Any]) -> Any:
        names = list(axes)
        least = min(len(names), 3)
        chosen = [names[i] for i in self.rng.permutation(len(names))[:least]]
        if case.call == "random":
            case.n_iter = int(self.rng.integers(2, 6))
            return {name: self.distribution(name, axes[name]) for name in chosen}
        grid = {name: self.some(axes[name], 3 if i else 6) for i, name in enumerate(chosen)}
        size = int(np.prod([len(values) for values in grid.values()]))
        most = 4 if self.with_many or self.with_loo else 12
        while size > most:
            longest = max(grid, key=lambda name: len(grid[name]))
            grid[longest] = grid[longest][:-1]
            size = int(np.prod([len(values) for values in grid.values()]))
        parts = [grid]
        if len(chosen) > 1 and self.chance(0.1):
            parts = [{name: values} for name, values in grid.items()]
        if self.chance(0.15):
            self.spoil(case, parts)
        return parts[0] if len(parts) == 1 else parts

    def spoil(self, case: Case, parts: list[Any]) -> None:
        """Values that no fit takes, or hardly: among good ones, or in a grid of their own."""
        case.error_score = self.pick(np.nan, np.nan, np.nan, np.nan, 0.0, "raise")
        known = [
            name for name in case.estimator.get_params() if name.rpartition("__")[2] in EXTREME
        ]
        beside = [name for name in known if name in parts[0]]
        name = self.pick(*(beside if beside and self.chance(0.6) else known))
        bad = self.some(EXTREME[name.rpartition("__")[2]], 2)
        case.facts["extreme"] = {name: bad}
        if name in parts[0]:
            parts[0][name] = [*parts[0][name][:3], *bad]
        else:
            parts.append({name: bad})

    def distribution(self, name: str, values: list[Any]) -> Any:
        if name.rpartition("__")[2] in ("alpha", "C") and self.chance(0.6):
            return loguniform(0.01, 50.0)
        return values

    def scorer(self, case: Case) -> tuple[Any, list[str]]:
        """What to score by, and the names of the scores if they are several."""
        single = self.label_scorers() if self.is_classifier else self.number_scorers()
        if case.routing and self.chance(0.5):
            metric = accuracy_score if self.is_classifier else mean_absolute_error
            scorer = make_scorer(metric, greater_is_better=self.is_classifier)
            return scorer.set_score_request(sample_weight=True), []
        if case.is_search and self.chance(0.2):
            names = [item for item in single if isinstance(item, str)]
            chosen = [names[i] for i in self.rng.permutation(len(names))[:2]]
            if self.chance(0.4):
                return {"a": chosen[0], "b": self.pick(*single[1:])}, ["a", "b"]
            if self.chance(0.2):
                return two_scores, ["hits", "f1"]
            return chosen, chosen
        return self.pick(None, None, *single), []

    def label_scorers(self) -> list[Any]:
        classes = self.facts["names"]
        positive = classes[0] if self.chance(0.5) else classes[-1]
        positive = positive.item() if hasattr(positive, "item") else positive
        choices: list[Any] = [
            "accuracy",
            "balanced_accuracy",
            "f1_macro",
            "f1_weighted",
            "matthews_corrcoef",
            "neg_log_loss",
            mean_error,
            make_scorer(f1_score, average="micro"),
            make_scorer(accuracy_score, normalize=False),
        ]
        if len(classes) == 2:
            choices += [
                "roc_auc",
                "average_precision",
                "f1",
                "precision",
                "neg_brier_score",
                margin,
                make_scorer(roc_auc_score, response_method="decision_function"),
                make_scorer(roc_auc_score, response_method=("decision_function", "predict_proba")),
                make_scorer(f1_score, pos_label=positive),
                make_scorer(fbeta_score, beta=2.0, pos_label=positive),
                make_scorer(precision_score, pos_label=positive, zero_division=0.0),
            ]
        else:
            choices += ["roc_auc_ovr", "top_k_accuracy", "jaccard_macro"]
        return choices

    def number_scorers(self) -> list[Any]:
        return [
            "r2",
            "neg_mean_squared_error",
            "neg_root_mean_squared_error",
            "neg_mean_absolute_error",
            "neg_median_absolute_error",
            "explained_variance",
            "neg_max_error",
            "neg_mean_absolute_percentage_error",
            mean_error,
            make_scorer(mean_squared_error, greater_is_better=False),
            make_scorer(mean_pinball_loss, greater_is_better=False, alpha=0.3),
            make_scorer(
                mean_absolute_error, greater_is_better=False, multioutput="uniform_average"
            ),
        ]

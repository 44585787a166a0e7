"""What a user asked for, not yet read: how values are computed, options, outputs, and the request.

``method`` is one of four names or a :class:`MethodOptions`. The factories of
:mod:`everyfold.papers` return such records for the methods of publications.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any, Literal, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state, indexable

from everyfold._progress import check_choice
from everyfold._sklearn_private import check_method_params, num_samples
from everyfold._typing import (
    ClosedName,
    ErrorScore,
    Estimator,
    Fallback,
    FoldsAndOrder,
    Index,
    Matrix,
    Order,
    Params,
    Pooled,
    Preprocessing,
    RandomState,
    Refit,
    RidgeScaling,
    Scorer,
    Splitter,
    Targets,
)
from everyfold.adapters.pipelines import final_step
from everyfold.adapters.sklearn import is_ours, read_estimator
from everyfold.crossval import Closed
from everyfold.crossval.base import find_criterion
from everyfold.estimators.model import Model
from everyfold.io import RowSource
from everyfold.operators import Nystrom, Structure
from everyfold.operators.base import OperatorChoice

# -- How out-of-fold values are computed: what ``method=`` may be ----------------------------------


# Half of the digits of float64: smaller kernel values are lost in squares beside the diagonal.
NEAR_IDENTITY = 1.5e-8

# What the names of methods ask for: an order of the influence series, or refits.
_ORDERS: dict[str, Order] = {"auto": "auto", "exact": "exact", "screen": "screen", "fast": math.inf}


class UnsupportedWarning(UserWarning):
    """Candidates cannot be sped up and are refitted on every fold, as scikit-learn does.

    A filter with "error" refuses them before any work, and one with "ignore" refits them without a
    word.

    Examples
    --------
    >>> import warnings
    >>> from everyfold import UnsupportedWarning
    >>> with warnings.catch_warnings():
    ...     warnings.filterwarnings("ignore", category=UnsupportedWarning)
    """


# The end of every such warning.
HOW_TO_FILTER = (
    'warnings.filterwarnings("ignore", category=everyfold.UnsupportedWarning) refits without this '
    'warning, and "error" in place of "ignore" raises an error before any work.'
)


@dataclass(frozen=True, repr=False)
class MethodOptions:
    """How out-of-fold values are computed, where the names of ``method`` do not say it.

    The factories of :mod:`everyfold.papers` make these with the conventions of a publication.

    Parameters
    ----------
    order : {"auto", "exact", "screen"}, float or Granularity, default="auto"
        The order of the influence series; inf takes one Newton step per fold.
    criterion : str, Closed or None, default=None
        A criterion that is computed from one fit on all rows, without folds.
    ridge_scaling : {"sum", "mean"}, default="sum"
        "sum": the ridge does not change when rows are left out, as in scikit-learn. "mean": it is
        multiplied by the number of training rows, and ``best_estimator_`` has the ridge
        multiplied by the number of all rows.
    n_confirm : int or "auto", default="auto"
        How many of the best candidates are scored again by refits of the estimator itself; these
        scores then decide. "auto" is 0 if the winner's score is exact, otherwise 3 (0 with more
        than 20 folds).
    near_identity : float, default=1.5e-8
        For a finite ``order`` only: a candidate gets the score -inf if the median over the rows of
        their largest kernel value with another row, relative to the diagonal, is at most this.
    operator : {"auto", "dense"} or Structure, default="auto"
        Used where the search itself has ``operator="auto"``.
    folds : int, splitter or None, default=None
        Used where the search itself has ``cv=None``.
    scoring : str, callable or None, default=None
        Used where the search itself has ``scoring=None``.
    fallback : {"warn", "refit", "refuse"}, default="warn"
        What happens to candidates that cannot be sped up, in calls that still name it.
    keeps : {"best", "all"} or None, default="best"
        Whose held-out values are kept for ``out_of_fold`` and ``honest_score``: those of the
        winner, of all candidates (8 bytes per row, fold repetition and candidate; sums over rows
        then take a second pass), or none.
    """

    order: Order | FoldsAndOrder = "auto"
    criterion: ClosedName | Closed | None = None
    ridge_scaling: RidgeScaling = "sum"
    n_confirm: int | Literal["auto"] = "auto"
    near_identity: float = NEAR_IDENTITY
    operator: OperatorChoice = "auto"
    folds: Splitter = None
    scoring: Scorer = None
    fallback: Fallback = "warn"
    keeps: Literal["best", "all"] | None = "best"

    def __post_init__(self) -> None:
        check_choice("keeps", self.keeps, ("best", "all", None))

    @classmethod
    def of(cls, method: MethodChoice) -> MethodOptions:
        """What a ``method`` asks for."""
        if isinstance(method, cls):
            return method
        if isinstance(method, str) and method in _NAMED:
            return _NAMED[method]
        raise ValueError(
            f"method={method!r} is not known; use 'auto', 'exact', 'screen', 'fast' or a method of "
            "everyfold.papers, such as bif(order=2)"
        )

    def named(self) -> MethodChoice:
        """The name of this method, if it has one; else the record itself."""
        found = (name for name, how in _NAMED.items() if self == how)
        return next(found, self)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        own = ((field, getattr(self, field.name)) for field in fields(self))
        given = [f"{f.name}={value!r}" for f, value in own if repr(value) != repr(f.default)]
        return f"MethodOptions({', '.join(given)})"


# The methods that have names.
_NAMED = {name: MethodOptions(order) for name, order in _ORDERS.items()}


def is_finite(order: Order) -> bool:
    """Whether an order is one of the finite influence series."""
    return not isinstance(order, str) and float(order) < math.inf


# A ``method`` argument.
MethodChoice: TypeAlias = Literal["auto", "exact", "screen", "fast"] | MethodOptions


def is_refused(category: type[Warning] = UnsupportedWarning) -> bool:
    """Whether a filter that names this very category makes it an error."""
    for action, _, filtered, _, _ in warnings.filters:
        if filtered is category:
            return action == "error"
    return False


# -- Options that exclude each other --------------------------------------------------------------


# What is asked of the value of an option, by the words of the table.
_CONDITIONS: dict[str, Callable[[Any], bool]] = {
    "given": lambda value: value is not None,
    "True": lambda value: value is True,
    "finite": is_finite,
    "not 'auto'": lambda value: value != "auto",
    "above 0": lambda value: value not in ("auto", 0),
    "'mean'": lambda value: value == "mean",
    "'once'": lambda value: value == "once",
    "a source of rows": lambda value: isinstance(value, RowSource),
}

# Rows of (option, its condition, other option, its condition, advice). docs/search.md prints them.
INCOMPATIBLE = (
    (
        *("n_confirm", "above 0", "ridge_scaling", "'mean'"),
        "it refits the estimator itself, whose ridge does not depend on the number of rows; use "
        "n_confirm=0",
    ),
    ("criterion", "given", "order", "not 'auto'", "which needs folds; use method='auto'"),
    ("criterion", "given", "n_confirm", "above 0", "which refits folds; use n_confirm=0"),
    (
        *("criterion", "given", "preprocessing", "'once'"),
        "as steps are always fitted on all rows then; leave it out",
    ),
    ("criterion", "given", "scoring", "given", "leave scoring=None, or criterion=None"),
    ("criterion", "given", "cv", "given", "as it has no folds; leave cv=None"),
    ("criterion", "given", "groups", "given", "as it has no folds; leave them out"),
    ("criterion", "given", "return_train_score", "True", "use False"),
    ("X", "a source of rows", "y", "given", "pass the targets to the source instead"),
    ("X", "a source of rows", "return_train_score", "True", "use False"),
    ("X", "a source of rows", "order", "finite", "use method='auto'"),
    ("X", "a source of rows", "n_confirm", "above 0", "use n_confirm=0"),
    ("X", "a source of rows", "criterion", "given", "use scoring"),
    ("X", "a source of rows", "pooled", "True", "use a scorer that is not pooled"),
)
# Options whose values say nothing in a message.
_WITHOUT_VALUES = {"scoring", "groups", "y"}


_CHOICES = {
    "ridge_scaling": ("sum", "mean"),
    "preprocessing": ("per_fold", "once", "auto"),
    "fallback": ("warn", "refit", "refuse"),
}


@dataclass(frozen=True)
class Options:
    """What a search asks for besides the grid, checked.

    ``order`` says how far the influence series of a fold goes, or whether to refit, and
    ``granularity`` what it was chosen together with a number of folds by. ``repeats`` says how many
    searches like this one are asked for together, one for each outer fold: what all of them cost
    decides whether they begin at low rank.
    """

    order: Order = "auto"
    operator: OperatorChoice = "auto"
    ridge_scaling: RidgeScaling = "sum"
    n_confirm: int | Literal["auto"] = "auto"
    preprocessing: Preprocessing = "per_fold"
    error_score: ErrorScore = np.nan
    n_jobs: int | None = None
    random_state: RandomState = None
    criterion: str | Closed | None = None
    fallback: Fallback = "warn"
    repeats: int = 1
    near_identity: float = NEAR_IDENTITY
    granularity: FoldsAndOrder | None = None

    @classmethod
    def of_method(
        cls,
        method: MethodChoice,
        operator: OperatorChoice,
        *,
        has_search: bool = False,
        **others: Any,
    ) -> Options:
        """The options of a call with this ``method`` and ``operator``.

        Only a search may have a criterion without folds and confirm its winner by refits.
        """
        how = MethodOptions.of(method)
        is_auto = isinstance(operator, str) and operator == "auto"
        granularity = how.order if isinstance(how.order, FoldsAndOrder) else None
        if not has_search and how.criterion is not None:
            raise ValueError(
                f"method={method!r} has no folds and compares candidates of a search; use "
                "FastGridSearchCV"
            )
        return cls(
            order=how.order if granularity is None else granularity.order,  # type: ignore[arg-type]
            operator=how.operator if is_auto else operator,
            ridge_scaling=how.ridge_scaling,
            n_confirm=how.n_confirm if has_search else 0,
            criterion=how.criterion,
            fallback=how.fallback,
            near_identity=how.near_identity,
            granularity=granularity,
            **others,
        )

    def __post_init__(self) -> None:
        order, k = self.order, self.n_confirm
        if order not in ("auto", "exact", "screen") and not _is_order(order):
            raise ValueError(
                f"order={order!r} is not known; use 'auto', 'exact', 'screen', inf, a positive "
                "integer or choose_granularity(...)"
            )
        if not isinstance(self.operator, Structure) and self.operator not in ("auto", "dense"):
            raise ValueError(
                f"operator={self.operator!r} is not known; use 'auto', 'dense', or a structure "
                "such as Dense()"
            )
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                check_choice(name, getattr(self, name), allowed)
        if not (isinstance(self.near_identity, Real) and 0.0 <= self.near_identity <= 1.0):
            raise ValueError(
                f"near_identity={self.near_identity!r} is not allowed; use a kernel value between "
                "0 (no candidate is excluded) and 1, such as 1.5e-8"
            )
        if k != "auto" and not (isinstance(k, Integral) and int(k) >= 0):
            raise ValueError(
                f"n_confirm={k!r} is not allowed; use 'auto' or a number of candidates >= 0"
            )

    @cached_property
    def closed(self) -> Closed | None:
        """The criterion that takes the place of held-out scores, if one does."""
        return None if self.criterion is None else find_criterion(self.criterion)

    def check_fallback(self, error: Exception) -> None:
        """Raise an error that says why nothing is sped up, unless the estimator may be refitted.

        It may not where an option asks for what no such refit has.
        """
        if self.fallback == "refuse":
            raise error
        if self.fallback == "warn" and is_refused():
            # The filter's error, at once and with the advice of what to use instead.
            raise UnsupportedWarning(str(error)) from error
        for is_set, what in (
            (self.is_finite, f"order={self.order!r}"),
            (isinstance(self.operator, Structure), f"operator={self.operator!r}"),
            (self.ridge_scaling == "mean", "ridge_scaling='mean'"),
            (self.preprocessing == "once", "preprocessing='once'"),
            (self.criterion is not None, f"criterion={self.criterion!r}"),
        ):
            if is_set:
                error.add_note(
                    f"{what} means nothing to a refit of this estimator, so that there is no "
                    "fallback; leave it out to have the estimator refitted on every fold"
                )
                raise error

    @property
    def is_finite(self) -> bool:
        """Whether an influence series of finite order was asked for."""
        return is_finite(self.order)

    @cached_property
    def seeds(self) -> Seeds:
        """Those of all random choices, drawn once."""
        return Seeds(self.random_state)

    @property
    def is_of_low_rank(self) -> bool:
        """Whether the operator of the search makes a model of its own, which predicts by it."""
        operator = self.operator
        if not isinstance(operator, Structure):
            return False
        return operator.is_approximate and operator.to_fit() is operator

    def hand_on(self, final: Estimator, n_rows: int | None) -> None:
        """Give the winner the operator and the seed that it was scored with.

        ``n_rows`` is None for rows that never fit in memory.
        """
        if self.is_of_low_rank:
            final.set_params(operator=self.operator)
        self.seeds.plant_where_drawn(final, n_rows)

    def apply(self, model: Model) -> Model:
        """The model with what the search asks for, which is mostly nothing."""
        is_usual = self.random_state is None and self.ridge_scaling == "sum"
        is_usual = is_usual and self.operator == "auto"
        if is_usual and not isinstance(model.operator, Structure):
            return model
        operator = self.seeds.plant(model.operator if self.operator == "auto" else self.operator)
        scaling = model.ridge_scaling if model.ridge_scaling == "weights" else self.ridge_scaling
        return replace(model, operator=operator, ridge_scaling=scaling, seed=self.seeds.own)


def _is_order(order: Order) -> bool:
    if not isinstance(order, Real) or isinstance(order, bool) or math.isnan(order):
        return False
    number = float(order)
    return number >= 1.0 and (number == math.inf or number == int(number))


@dataclass(frozen=True)
class RequestedOutputs:
    """What the caller is going to read of the outcomes.

    Attributes
    ----------
    train_scores : bool
        Whether training rows are scored, too.
    partition : bool
        Whether held-out values are asked for, one a row, so that test sets must be a partition.
    labels_only : bool
        Whether nothing but predictions is read of these values.
    mean_scores : bool
        Whether the mean over the folds decides, so that one fold without a score leaves nothing.
    keeps : {"best", "all"} or None
        Whose held-out values are kept beside their scores.
    pools : bool or "auto"
        Whether scores are those of all held-out rows together; "auto" where single rows have none.
    selects_by : str, bool, callable or None
        The score that a winner is chosen by; None if that is not known before the work.
    journal : bool
        Whether finished units are written down.
    refits : bool
        Whether estimators may be refitted where nothing else takes less time.
    """

    train_scores: bool = False
    partition: bool = False
    labels_only: bool = False
    mean_scores: bool = True
    keeps: Literal["best", "all"] | None = None
    pools: Pooled = "auto"
    selects_by: Refit | None = "score"
    journal: bool = False
    refits: bool = False


@dataclass(frozen=True)
class Metadata:
    """What else is handed on, by scikit-learn's rules: to ``fit``, ``split`` and the scorers."""

    fit: Params = field(default_factory=dict)
    split: Params = field(default_factory=dict)
    score: Params = field(default_factory=dict)

    def weighing(self, X: Matrix) -> Metadata:
        """The same with an array where one number is the weight of all rows.

        scikit-learn's ``fit`` takes such a number; its metrics and libsvm do not.
        """
        return Metadata(*(_one_weight_a_row(p, X) for p in (self.fit, self.split, self.score)))


def _one_weight_a_row(params: Params, X: Matrix) -> Params:
    numbers = {
        name: np.full(num_samples(X), float(value))
        for name, value in params.items()
        if name.split("__")[-1] == "sample_weight" and isinstance(value, Real)
    }
    return {**params, **numbers} if numbers else params


@dataclass(frozen=True)
class Request:
    """What a user asked for, not yet read.

    Attributes
    ----------
    estimator : estimator
    candidates : sequence of dict
        Parameters to be set on it; one empty dictionary for the estimator as it is.
    X, y, cv
        As passed; splits that can be read once only are listed.
    scorer : callable or None
        One of scikit-learn's scorers, several in one of its multi-metric scorers, or any callable.
    metadata : Metadata
    options : Options
    wants : RequestedOutputs
    orders : sequence of int arrays
        Orders of the rows of y, each of which is evaluated in place of y itself; for one candidate.
    cvs : sequence of splitters
        Each is evaluated in place of cv, as a task of its own; for one candidate, with as many
        splits each.
    verbose : int
        What refits of the estimator print.
    """

    estimator: Estimator
    candidates: Sequence[Params]
    X: Matrix
    y: Targets
    cv: Splitter
    scorer: Scorer = None
    metadata: Metadata = field(default_factory=Metadata)
    options: Options = field(default_factory=Options)
    wants: RequestedOutputs = field(default_factory=RequestedOutputs)
    orders: Sequence[Index] = ()
    cvs: Sequence[Splitter] = ()
    verbose: int = 0
    is_source: bool = field(default=False, init=False)
    """Whether rows come in blocks, with their targets."""

    def __post_init__(self) -> None:
        granularity, given = self.options.granularity, self.metadata
        if self.cv is None and granularity is not None:
            object.__setattr__(self, "cv", granularity.folds)
        if isinstance(self.cv, Iterator):  # read more than once
            object.__setattr__(self, "cv", list(self.cv))
        object.__setattr__(self, "is_source", isinstance(self.X, RowSource))
        values = (*given.fit.values(), *given.split.values(), *given.score.values())
        if any(isinstance(value, Real) for value in values) and not self.is_source:
            object.__setattr__(self, "metadata", self.metadata.weighing(self.X))

    def check_combinations(self) -> None:
        """Refuse options that exclude each other."""
        groups = [value for value in self.metadata.split.values() if value is not None]
        options = self.options
        facts: Params = {
            "order": options.order,
            "criterion": None if options.closed is None else options.closed.name,
            "ridge_scaling": options.ridge_scaling,
            "n_confirm": options.n_confirm,
            "preprocessing": options.preprocessing,
            "X": self.X,
            "y": self.y,
            "scoring": self.scorer,
            "cv": self.cv,
            "groups": groups[0] if groups else None,
            "return_train_score": self.wants.train_scores,
            "pooled": self.wants.pools,
        }
        for option, condition, other, other_condition, advice in INCOMPATIBLE:
            first, second = facts[option], facts[other]
            if _CONDITIONS[condition](first) and _CONDITIONS[other_condition](second):
                subject = condition if option == "X" else f"{option}={first!r}"
                what = other if other in _WITHOUT_VALUES else f"{other}={second!r}"
                joint = ", " if advice.startswith(("which ", "as ")) else "; "
                raise ValueError(f"{subject} cannot be combined with {what}{joint}{advice}")

    def check_fallback(self, error: Exception) -> None:
        """Raise why something is not sped up, unless the estimator itself may be refitted."""
        self.options.check_fallback(error)
        if self.wants.pools is True:
            error.add_note("pooled=True needs held-out values, so that refitting is not possible")
            raise error

    def check_folds(self, count: int) -> None:
        """Raise if an order was chosen for another number of folds."""
        asked = self.options.granularity
        if asked is not None and count != asked.folds:
            raise ValueError(
                f"cv={self.cv!r} has {count} folds, but order={asked} is for {asked.folds}; "
                f"leave cv out, or pass order={asked.order}"
            )

    def indexed(self) -> Request:
        """The same with X, y and metadata as things whose rows can be taken; a source as it is."""
        if self.is_source:
            return self
        X, y = indexable(self.X, self.y)
        given = self.metadata.fit, self.metadata.split, self.metadata.score
        metadata = Metadata(*(check_method_params(X, params=params) for params in given))
        return replace(self, X=X, y=y, metadata=metadata)


# -- Where the random choices of a search begin: whole numbers, fixed before the work -------------


LARGEST_SEED = 2**31 - 1


class Seeds:
    """The seeds of one search, drawn once, so that it matters not who does the work in what order.

    Parameters
    ----------
    random_state : int, RandomState or None
        A whole number is the seed itself, so that a search draws what an operator with that seed
        would draw.
    """

    def __init__(self, random_state: RandomState) -> None:
        self._random_state = random_state

    @cached_property
    def of_operators(self) -> int:
        """For operators that have none; NumPy's own state gives it if nobody else does."""
        given = self._random_state
        if isinstance(given, Integral):
            return int(given)
        return int(check_random_state(given).randint(LARGEST_SEED))

    @property
    def are_drawn(self) -> bool:
        """Whether something needed the seed of operators."""
        return "of_operators" in vars(self)

    @cached_property
    def own(self) -> int:
        """For what the search chooses itself; 0 unless asked for."""
        return 0 if self._random_state is None else self.of_operators

    def plant(self, value: Any) -> Any:
        """A parameter, or a copy of it whose operator has a seed."""
        if isinstance(value, Structure):
            return value.seeded(lambda: self.of_operators)
        if isinstance(value, BaseEstimator) and not isinstance(value, type):
            value = clone(value)
            self.plant_in(value)
        return value

    def plant_in(self, estimator: Estimator) -> None:
        """Seed the operator of an estimator, or of the last step of a Pipeline."""
        final = final_step(estimator)
        if isinstance(getattr(final, "operator", None), Structure):
            final.set_params(operator=self.plant(final.operator))

    def plant_where_drawn(self, estimator: Estimator, n_rows: int | None) -> None:
        """Seed the operator; where "auto" draws landmarks, have it draw those that were scored.

        ``n_rows`` is None for rows that never fit in memory.
        """
        self.plant_in(estimator)
        final = final_step(estimator)
        if self.own != 0 and is_ours(final) and read_estimator(final).draws_landmarks(n_rows):
            final.set_params(operator=Nystrom(random_state=self.own))

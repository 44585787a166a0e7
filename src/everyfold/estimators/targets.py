"""What is predicted, numbers or labels: from a user's y to columns of numbers and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from everyfold._typing import AnyArray, Array, Estimator, Index, Targets
from everyfold.crossval.base import Failure, OutOfFold
from everyfold.folds import Folds


def decode(classes: AnyArray, values: Array, *, zero_is_second: bool = False) -> AnyArray:
    """The label of each row of values: by sign for two classes, by the largest for more."""
    if values.shape[1] > 1:
        chosen = values.argmax(axis=1)
    else:
        is_second = values[:, 0] >= 0.0 if zero_is_second else values[:, 0] > 0.0
        chosen = is_second.astype(np.intp)
    labels: AnyArray = classes[chosen]
    return labels


class Target(ABC):
    """A user's y as an (n, q) matrix, and the way back from fitted values to predictions."""

    columns: Array
    classes: AnyArray | None
    """The labels there are; None of numbers."""

    is_joint = False
    """Whether columns are fitted together, a column for each class."""

    @property
    def predicts_by_sign(self) -> bool:
        """Whether predictions depend on nothing but the signs of the values."""
        return False

    @abstractmethod
    def predict(self, values: Array) -> AnyArray:
        """Predictions in the user's own terms from values (rows, q)."""

    @abstractmethod
    def decide(self, values: Array) -> AnyArray:
        """The values in the shape scikit-learn gives ``decision_function`` or ``predict``."""

    @abstractmethod
    def restrict(self, rows: Index) -> Self:
        """The same target of some of the rows; labels keep all their classes."""

    def permuted(self, order: Index) -> Self:
        """The same with its rows in another order, and weights as they are."""
        return self.restrict(order)

    def learnt_with(self, weights: Array) -> Self:
        """The same for models that are fitted with these weights of the rows."""
        return self

    def weighed(self, weights: Array) -> Self:
        """The same for the question which folds have no model at all with these weights."""
        return self

    def why_no_model(self, weights: Array) -> str:
        """Why rows of these weights have no model; empty if they have one."""
        return ""

    def emptied(self) -> Self:
        """The same without its rows, to decide about others."""
        return self.restrict(np.empty(0, dtype=np.intp))

    @property
    def truth(self) -> AnyArray:
        """The y of its rows, in the user's own terms."""
        return self.predict(self.columns)

    @property
    def has_pairs(self) -> bool:
        """Whether columns are problems of their own, on some of the rows each."""
        return False

    def pairs(self) -> list[tuple[Array, NDArray[np.bool_]]]:
        """Columns that are problems of their own, each with the rows that take part."""
        return []

    def mask(self, values: Array, train: Index) -> Array:
        """Values of a fold without what its training rows cannot know; here, all are known."""
        return values

    def incomplete(self, folds: Folds) -> list[int]:
        """The folds whose training rows lack a class; none without classes."""
        return []

    def is_complete_in_any_order(self, folds: Folds) -> bool:
        """Whether it is plain that no order of the rows makes a fold lack a class."""
        return self.classes is None

    def check_weights(self, weights: Array, folds: Folds) -> None:  # noqa: B027 (most may)
        """Raise :class:`NotSpedUpError` if no solver here fits a fold with these weights."""

    def known_by(self, values: Array, train: Index) -> tuple[Target, Array]:
        """The target of a model that knows the classes of its training rows only, and its values.

        Two classes that are left are one problem, positive for the second.
        """
        return self, values

    has_probabilities = False
    """Whether values are log-odds."""

    def probabilities(self, values: Array) -> Array:
        """Of the classes, from log-odds."""
        raise TypeError("a regressor has no probabilities")


@dataclass(frozen=True)
class Numbers(Target):
    """Real targets, one column each."""

    columns: Array
    is_flat: bool
    classes = None

    @classmethod
    def read(cls, y: Targets) -> Numbers:
        """Check and read a regression target.

        Examples
        --------
        >>> Numbers.read([1, 2, 3]).columns.shape
        (3, 1)
        """
        if y is None:
            raise ValueError("this estimator requires y to be passed, but the target y is None")
        y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        if y.ndim == 0 or y.ndim > 2:
            raise ValueError(f"y must have one or two dimensions, got shape {y.shape}")
        return cls(y.reshape(len(y), -1), y.ndim == 1)

    def predict(self, values: Array) -> Array:
        """See base class."""
        return values[:, 0] if self.is_flat else values

    decide = predict

    def restrict(self, rows: Index) -> Self:
        """See base class."""
        return replace(self, columns=self.columns[rows])


@dataclass(frozen=True)
class Labels(Target):
    """Class labels: ±1 in one column for two classes, one column a class (+1, else −1) for more."""

    classes: AnyArray
    codes: Index
    columns: Array
    has_probabilities: bool = field(default=False, kw_only=True)
    is_libsvm: bool = field(default=False, kw_only=True)
    """Whether a class whose rows have no weight is not learnt at all, and 0 is the second class."""
    needs_contrast: bool = field(default=False, kw_only=True)
    """Whether rows of one class have no model, as the intercept of a margin loss has no end."""
    counted: NDArray[np.bool_] | None = field(default=None, kw_only=True)
    """The rows that make their class known; None for all."""
    learns_idle: bool = field(default=False, kw_only=True)
    """Whether a class has a model of its own though no row of it has weight."""

    @classmethod
    def read(cls, y: Targets) -> Labels:
        """Check and read class labels.

        Examples
        --------
        >>> labels = Labels.read(["b", "a", "b"])
        >>> labels.columns[:, 0], labels.predict(np.array([[0.3], [-2.0]]))
        (array([ 1., -1.,  1.]), array(['b', 'a'], dtype='<U1'))
        """
        if y is None:
            raise ValueError("this estimator requires y to be passed, but the target y is None")
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y has one class only ({classes.tolist()}); a classifier needs at least two "
                "different labels"
            )
        return cls.coded(classes, codes)

    @classmethod
    def coded(cls, classes: AnyArray, codes: Index) -> Labels:
        """Labels by their numbers among the classes."""
        columns = 2.0 * (codes[:, None] == np.arange(len(classes))) - 1.0
        return cls(classes, codes, columns[:, 1:] if len(classes) == 2 else columns)

    @property
    def truth(self) -> AnyArray:
        """See base class."""
        return self.classes[self.codes]

    @property
    def predicts_by_sign(self) -> bool:
        """See base class: its sign decides between two classes, the largest value between more."""
        return bool(self.columns.shape[1] == 1)

    def predict(self, values: Array) -> AnyArray:
        """See base class."""
        return decode(self.classes, values, zero_is_second=self.is_libsvm)

    def decide(self, values: Array) -> Array:
        """See base class."""
        return values[:, 0] if values.shape[1] == 1 else values

    def probabilities(self, values: Array) -> Array:
        """Of the classes; more than two are one-versus-rest ones scaled to sum 1."""
        positive = expit(values)
        if values.shape[1] == 1:
            return np.column_stack([1.0 - positive[:, 0], positive[:, 0]])
        # Far from every class all of them underflow together: then none is preferred.
        positive = np.maximum(positive, np.finfo(np.float64).tiny)
        scaled: Array = positive / positive.sum(axis=1, keepdims=True)
        return scaled

    def restrict(self, rows: Index) -> Self:
        """See base class."""
        return replace(
            self,
            codes=self.codes[rows],
            columns=self.columns[rows],
            counted=None if self.counted is None else self.counted[rows],
        )

    def permuted(self, order: Index) -> Self:
        """See base class."""
        return replace(self.restrict(order), counted=self.counted)

    def learnt_with(self, weights: Array) -> Self:
        """See base class."""
        has_weight = weights > 0.0
        is_known = has_weight.all() or not self.is_libsvm
        return self if is_known else replace(self, counted=has_weight)

    def weighed(self, weights: Array) -> Self:
        """See base class."""
        return replace(self, counted=weights > 0.0) if self.needs_contrast else self

    def why_no_model(self, weights: Array) -> str:
        """See base class."""
        seen = self.classes[np.unique(self.codes[weights > 0.0])].tolist()
        if not self.needs_contrast or len(seen) > 1:
            return ""
        return (
            f"the rows with positive sample_weight have one class only ({seen}); a classifier "
            "needs at least two different labels among them"
        )

    def _seen(self, train: Index) -> NDArray[np.bool_]:
        """Which classes a model of these training rows knows."""
        rows = train if self.counted is None else train[self.counted[train]]
        return np.asarray(np.bincount(self.codes[rows], minlength=len(self.classes)) > 0)

    def mask(self, values: Array, train: Index) -> Array:
        """A class that the training rows do not have cannot be predicted."""
        seen = self._seen(train)
        if seen.sum() < 2:
            weighted = "" if self.counted is None else " with positive sample_weight"
            raise ValueError(
                f"the training rows{weighted} of a fold have one class only; use a stratified cv, "
                "fewer folds, or more rows of the rare class"
            )
        if seen.all():
            return values
        masked = values.copy()
        masked[:, ~seen] = np.finfo(np.float64).min
        return masked

    def incomplete(self, folds: Folds) -> list[int]:
        """See base class."""
        counts = np.ones(len(self.codes)) if self.counted is None else self.counted
        return np.flatnonzero((self._kept(folds, counts) == 0).any(axis=1)).tolist()

    def check_weights(self, weights: Array, folds: Folds) -> None:
        """See base class."""
        has_weight = weights > 0.0
        if not self.learns_idle or has_weight.all():
            return
        has_rows = self._kept(folds, np.ones(len(weights))) > 0
        is_idle = has_rows & (self._kept(folds, has_weight) == 0)
        if is_idle.any():
            i, k = np.argwhere(is_idle)[0]
            raise NotSpedUpError(
                f"in split {i} no training row of class {self.classes[k]} has weight: its "
                "intercept falls until the estimator's own solver stops"
            )

    def _kept(self, folds: Folds, counts: AnyArray) -> AnyArray:
        """How many rows of each class count among the training rows of each fold."""
        size, fold = len(self.classes), np.repeat(np.arange(len(folds)), folds.sizes)
        rows = folds.held_rows
        held = np.bincount(
            fold * size + self.codes[rows], counts[rows], minlength=len(folds) * size
        ).reshape(len(folds), size)
        return np.asarray(np.bincount(self.codes, counts, minlength=size) - held)

    def is_complete_in_any_order(self, folds: Folds) -> bool:
        """See base class: every class has more rows than a fold leaves out."""
        least = np.bincount(self.codes, minlength=len(self.classes)).min()
        return self.counted is None and bool(least > max(map(len, folds.helds)))

    def known_by(self, values: Array, train: Index) -> tuple[Labels, Array]:
        """See base class."""
        seen = self._seen(train)
        if seen.all():
            return self, values
        kept = values[:, seen] if seen.sum() > 2 else values[:, [np.flatnonzero(seen)[-1]]]
        return replace(self.emptied(), classes=self.classes[seen]), kept


@dataclass(frozen=True)
class JointLabels(Labels):
    """More than two classes that are fitted together: values are log-odds up to a constant."""

    is_joint = True

    def probabilities(self, values: Array) -> Array:
        """See base class."""
        if values.shape[1] == 1:  # of a model that knows two of the classes
            return super().probabilities(values)
        return np.asarray(softmax(values, axis=1))

    def known_by(self, values: Array, train: Index) -> tuple[Labels, Array]:
        """See base class: of two classes, one value says how much more there is for the second."""
        known, kept = super().known_by(values, train)
        seen = np.flatnonzero(self._seen(train))
        if len(seen) == 2:
            kept = values[:, seen[1:]] - values[:, seen[:1]]
        return known, kept


@dataclass(frozen=True)
class Voting:
    """How pairwise decisions become one, in the words of :class:`sklearn.svm.SVC`."""

    shape: Literal["ovr", "ovo"] = "ovr"
    break_ties: bool = False
    is_libsvm: bool = False
    """Whether a class whose rows have no weight is not learnt at all, and 0 is the second class."""


@dataclass(frozen=True)
class Pairs(Labels):
    """More than two classes, one versus one: a column for each pair, in which others take no part.

    Attributes
    ----------
    takes_part : bool array of shape (n, n_pairs)
        Whether a row belongs to one of the two classes of a column; +1 is the first of them.
    """

    takes_part: NDArray[np.bool_]
    voting: Voting

    @classmethod
    def of(cls, labels: Labels, voting: Voting) -> Pairs:
        """Pair the classes of ``labels``.

        Examples
        --------
        >>> pairs = Pairs.of(Labels.read(["a", "b", "c"]), Voting())
        >>> pairs.columns[:, 1], pairs.takes_part[:, 1]
        (array([ 1., -1., -1.]), array([ True, False,  True]))
        """
        first, second = cls._pairs(len(labels.classes))
        codes = labels.codes[:, None]
        takes_part = (codes == first) | (codes == second)
        columns = np.where(codes == first, 1.0, -1.0)
        return cls(
            labels.classes,
            labels.codes,
            columns,
            takes_part,
            voting,
            is_libsvm=labels.is_libsvm,
            needs_contrast=labels.needs_contrast,
        )

    @staticmethod
    def _pairs(n_classes: int) -> tuple[Index, Index]:
        first, second = np.triu_indices(n_classes, 1)
        return first, second

    @property
    def has_pairs(self) -> bool:
        """See base class."""
        return True

    def pairs(self) -> list[tuple[Array, NDArray[np.bool_]]]:
        """See base class."""
        return [(self.columns[:, [k]], self.takes_part[:, k]) for k in range(self.columns.shape[1])]

    def restrict(self, rows: Index) -> Self:
        """See base class."""
        return replace(super().restrict(rows), takes_part=self.takes_part[rows])

    def _sums(self, of_first: AnyArray, of_second: AnyArray) -> Array:
        """What the pairs give to the first and to the second of their classes, by class."""
        total = np.zeros((len(of_first), len(self.classes)))
        for k, (i, j) in enumerate(zip(*self._pairs(len(self.classes)), strict=True)):
            total[:, i] += of_first[:, k]
            total[:, j] += of_second[:, k]
        return total

    def _votes(self, values: Array) -> Array:
        """The votes for each class, by one product."""
        first, second = self._pairs(len(self.classes))
        every = np.eye(len(self.classes))
        # Whole numbers: the second of each pair has its vote, unless the first takes it away.
        taken = (values > 0.0).astype(np.float64) @ (every[first] - every[second])
        return np.asarray(taken + every[second].sum(axis=0))

    def _confidence(self, values: Array) -> Array:
        """Votes, with ties broken by the sums of the decision values."""
        total = self._sums(values, -values)
        return self._sums(values >= 0.0, values < 0.0) + total / (3.0 * (np.abs(total) + 1.0))

    @property
    def predicts_by_sign(self) -> bool:
        """See base class: votes do, unless values break their ties."""
        return not (self.voting.break_ties and self.voting.shape == "ovr")

    def predict(self, values: Array) -> AnyArray:
        """See base class: most votes win, the first class of equals unless ties are broken."""
        scores = self._votes(values) if self.predicts_by_sign else self._confidence(values)
        return decode(self.classes, scores)

    def decide(self, values: Array) -> Array:
        """See base class."""
        return values if self.voting.shape == "ovo" else self._confidence(values)

    def mask(self, values: Array, train: Index) -> Array:
        """A class that the training rows do not have loses every vote."""
        seen = self._seen(train)
        if seen.all():
            return values
        super().mask(np.empty((0, len(self.classes))), train)
        first, second = self._pairs(len(self.classes))
        masked = values.copy()
        masked[:, seen[first] & ~seen[second]] = np.finfo(np.float32).max
        masked[:, ~seen[first] & seen[second]] = -np.finfo(np.float32).max
        masked[:, ~seen[first] & ~seen[second]] = 0.0
        return masked

    def known_by(self, values: Array, train: Index) -> tuple[Labels, Array]:
        """See base class."""
        seen = self._seen(train)
        if seen.all():
            return self, values
        first, second = self._pairs(len(self.classes))
        kept, empty = values[:, seen[first] & seen[second]], self.emptied()
        if seen.sum() == 2:  # a pair alone is positive for its second class
            two = Labels(
                self.classes[seen], empty.codes, empty.columns[:, :1], is_libsvm=self.is_libsvm
            )
            return two, -kept
        return replace(empty, classes=self.classes[seen]), kept


class NotSpedUpError(ValueError):
    """Targets that scikit-learn's estimator takes and no loss here does."""


@dataclass(frozen=True)
class Reading:
    """All that decides how a model reads y: models with equal readings share a target.

    Attributes
    ----------
    is_classifier : bool
    voting : Voting or None
        More than two classes are decided one versus one; None is one versus rest.
    has_log_odds : bool
        Whether the values of one column are log-odds.
    is_joint : bool
        Whether more than two classes are fitted together.
    has_one_target : bool
        Whether y has to be one column of numbers.
    flattens : bool
        Whether a single column is predicted without its second axis.
    takes_indicators : bool
        Whether y may be an indicator of several labels a row, which nothing here reads.
    is_binary : bool
        Whether more than two classes are left to scikit-learn.
    needs_contrast : bool
        Whether rows of one class have no model.
    """

    is_classifier: bool
    voting: Voting | None = None
    has_log_odds: bool = False
    is_joint: bool = False
    has_one_target: bool = False
    flattens: bool = False
    takes_indicators: bool = False
    is_binary: bool = False
    needs_contrast: bool = False

    def read(self, y: Targets) -> Target:
        """Check and read y.

        Examples
        --------
        >>> type(Reading(is_classifier=True, voting=Voting()).read(["a", "b", "c"])).__name__
        'Pairs'
        """
        if not self.is_classifier:
            numbers = Numbers.read(_one_column(y) if self.has_one_target else y)
            is_single = self.flattens and numbers.columns.shape[1] == 1
            return replace(numbers, is_flat=numbers.is_flat or is_single)
        if self.takes_indicators and np.ndim(y) == 2 and np.shape(y)[1] > 1:
            raise NotSpedUpError(
                f"y is an indicator matrix of {np.shape(y)[1]} labels, but this library needs "
                "one label per row; search each column separately"
            )
        labels = replace(Labels.read(y), needs_contrast=self.needs_contrast)
        if self.is_binary and len(labels.classes) > 2:
            raise NotSpedUpError(
                f"y has {len(labels.classes)} classes, of which solver='liblinear' takes two; use "
                "solver='lbfgs', or OneVsRestClassifier"
            )
        if self.is_joint and len(labels.classes) > 2:
            joint = JointLabels(labels.classes, labels.codes, labels.columns)
            labels = replace(joint, needs_contrast=labels.needs_contrast)
        labels = replace(labels, learns_idle=self.is_joint)
        if self.has_log_odds:
            labels = replace(labels, has_probabilities=self.voting is None)
        if self.voting is not None:
            labels = replace(labels, is_libsvm=self.voting.is_libsvm)
        if self.voting is None or len(labels.classes) == 2:
            return labels
        return Pairs.of(labels, self.voting)


def _one_column(y: Targets) -> AnyArray | None:
    if np.ndim(y) == 2 and np.shape(y)[1] > 1:
        raise ValueError(
            f"y has shape {np.shape(y)}, but SVR fits one target: y should be a 1d array; search "
            "each column separately, or use scikit-learn's MultiOutputRegressor"
        )
    return y if y is None else column_or_1d(y, warn=True)


# -- Targets that are transformed before the fit and back after it, by a rule of each training set -


@dataclass(frozen=True)
class Warp:
    """The rule of a :class:`~sklearn.compose.TransformedTargetRegressor`."""

    transformer: Estimator
    func: Callable[[Array], Array] | None
    inverse_func: Callable[[Array], Array] | None
    check_inverse: bool

    @classmethod
    def of(cls, estimator: TransformedTargetRegressor) -> Warp:
        """The rule of an estimator; raises what is wrong with it."""
        warp = cls(
            estimator.transformer, estimator.func, estimator.inverse_func, estimator.check_inverse
        )
        if warp.transformer is not None and (warp.func or warp.inverse_func):
            raise ValueError("'transformer' and functions 'func'/'inverse_func' cannot both be set")
        if warp.transformer is None and (warp.func is None) != (warp.inverse_func is None):
            raise ValueError("func and inverse_func have to be given together")
        return warp

    @property
    def is_fixed(self) -> bool:
        """Whether all training sets have the same rule: a function, which learns nothing."""
        return self.transformer is None

    def fit(self, y: Array) -> Estimator:
        """The transformer of a training set with these targets, (rows, targets)."""
        if self.transformer is not None:
            return clone(self.transformer).fit(y)
        return FunctionTransformer(
            func=self.func,
            inverse_func=self.inverse_func,
            validate=True,
            check_inverse=self.check_inverse,
        ).fit(y)


@dataclass
class Warped:
    """A target as every fold's training set would have it, and the way back.

    Attributes
    ----------
    target : Numbers
        Side by side, the targets of all rows under the rule of each fold; one block where all folds
        have the same rule. For squared loss more columns cost n² flops each.
    """

    warp: Warp
    y: Array
    folds: Folds
    target: Numbers = field(init=False)
    failures: dict[int, Failure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = 1 if self.warp.is_fixed else len(self.folds)
        self._rules: list[Estimator] = [None] * count
        blocks: list[Array | None] = [self._block(k) for k in range(count)]
        if self.warp.is_fixed and self.failures:
            self.failures = dict.fromkeys(range(len(self.folds)), self.failures[0])
        width = next((block.shape[1] for block in blocks if block is not None), 1)
        blank = np.zeros((len(self.y), width))
        columns = np.hstack([blank if block is None else block for block in blocks])
        self.target = Numbers(columns, False)
        self._width = width

    def _block(self, k: int) -> Array | None:
        try:
            train = np.arange(len(self.y)) if self.warp.is_fixed else self.folds[k].train
            self._rules[k] = self.warp.fit(self.y[train])
            found = np.asarray(self._rules[k].transform(self.y[train]), dtype=np.float64)
            found = check_array(found.reshape(len(train), -1), input_name="y")
            # Other rows take no part in the fold's fit; what they have only has to be near.
            block = np.tile(found.mean(axis=0), (len(self.y), 1))
            block[train] = found
            return block
        except Exception as error:
            self.failures[k] = Failure.caught(error)
            return None

    def back(self, record: OutOfFold) -> OutOfFold:
        """Held-out values as they were asked for, each fold by its own rule."""
        values = np.full((len(record.values), self.y.shape[1]), np.nan)
        failures = {**record.failures, **self.failures}
        for k in range(len(self.folds)):
            if k in failures:
                continue
            part = slice(self.folds.bounds[k], self.folds.bounds[k + 1])
            at = 0 if self.warp.is_fixed else k
            block = record.values[part, at * self._width : (at + 1) * self._width]
            try:
                found = np.asarray(self._rules[at].inverse_transform(block), dtype=np.float64)
                values[part] = found.reshape(len(block), -1)
            except Exception as error:
                failures[k] = Failure.caught(error)
        return replace(record, values=values, failures=failures)

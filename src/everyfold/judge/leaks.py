"""What lets models know held-out rows in advance: equal rows, groups, columns that tell the target.

These are the usual reasons why a cross-validated score is too good to be true.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import sparse
from scipy.stats import f as fisher
from scipy.stats import rankdata

from everyfold._progress import pluralise
from everyfold._typing import AnyArray, Array, Index, Matrix
from everyfold.judge.responses import Split

# Words in names of columns that are labels of what was measured several times.
_ID_WORDS = frozenset(
    {
        *("id", "ids", "uid", "uuid", "subject", "patient", "participant", "user", "person"),
        *("group", "site", "session", "batch"),
    }
)

# A column of whole numbers or words may be a label of groups if it has at least so many values, and
# two rows for each on average.
_FEWEST_GROUPS = 10

# Its groups explain the target by chance with this probability at most, and neighbours in the order
# of its values are no more alike than this: else it is a quantity, such as an age.
_CHANCE, _MOST_LIKENESS = 1e-6, 0.3

# A column whose ranks go with the target's like this leaves nothing to learn.
_TELLS = 0.999

# Rows of which columns are asked one by one; more are sampled.
_MOST_ROWS = 20_000


@dataclass(frozen=True)
class Leak:
    """Something that lets models know held-out rows in advance.

    Attributes
    ----------
    words : str
        What was found.
    remedy : str
        The call that repairs it.
    """

    words: str
    remedy: str


def equal_rows(X: Matrix) -> Index:
    """The number of the set of equal rows that each row belongs to, to be passed as ``groups``.

    Parameters
    ----------
    X : {array, sparse matrix, data frame} of shape (n_samples, n_features)

    Returns
    -------
    sets : int array of shape (n_samples,)

    Notes
    -----
    **Cost** one sort of the rows.

    Examples
    --------
    >>> equal_rows(np.array([[1.0, 2.0], [0.0, 0.0], [1.0, 2.0]]))
    array([1, 0, 1])
    """
    is_sparse: bool = sparse.issparse(X)
    if is_sparse:
        rows = X.tocsr(copy=True)
        rows.sum_duplicates()
        ends = rows.indptr.tolist()
        keys = [rows.indices[a:b].tobytes() + rows.data[a:b].tobytes() for a, b in pairwise(ends)]
        return np.unique(np.array(keys, dtype=object), return_inverse=True)[1].reshape(-1)
    codes = np.column_stack([np.unique(c, return_inverse=True)[1] for c in _columns(X)])
    return np.unique(codes, axis=0, return_inverse=True)[1].reshape(-1)


def leaks_of(X: Matrix, y: AnyArray, splits: Sequence[Split], groups: Index | None) -> list[Leak]:
    """All leaks that are found, the worst first."""
    found = [
        _of_columns(X, y),
        _of_equal_rows(X, y, splits),
        _of_divided(splits, groups),
        None if groups is not None else _of_ids(X, y, splits),
    ]
    return [leak for leak in found if leak is not None]


def _columns(X: Matrix) -> Iterator[AnyArray]:
    """The columns one by one; values of several types as words."""
    names = list(X.columns) if hasattr(X, "columns") else None
    table = X if names is not None else np.asarray(X)
    for k in range(len(names) if names is not None else np.atleast_2d(table).shape[1]):
        column = np.asarray(table.iloc[:, k]) if hasattr(table, "iloc") else None
        if column is None:
            column = np.asarray(table[names[k]]) if names is not None else table[:, k]
        yield column.astype(str) if column.dtype.kind not in "biuf" else column


def _names(X: Matrix) -> list[str]:
    if hasattr(X, "columns"):
        return [repr(name) for name in X.columns]
    return [str(k) for k in range(np.shape(X)[1])]


def _crosses(labels: Index, splits: Sequence[Split]) -> int:
    """How many test rows have a label that a training row of their fold has."""
    return sum(int(np.isin(labels[test], labels[train]).sum()) for train, test in splits)


def _of_equal_rows(X: Matrix, y: AnyArray, splits: Sequence[Split]) -> Leak | None:
    sets = equal_rows(X)
    count = _crosses(sets, splits)
    if not count:
        return None
    tested = sum(len(test) for _, test in splits)
    if count > tested // 2 and sets.max() < 0.1 * len(sets):
        return None  # a few combinations of categories: that rows are equal is their nature
    words = f"{count} of {tested} test rows have an equal row among their training rows"
    return Leak(words, "groups=everyfold.judge.equal_rows(X) with cv=GroupKFold(5)")


def _of_divided(splits: Sequence[Split], groups: Index | None) -> Leak | None:
    count = 0 if groups is None else _crosses(groups, splits)
    if not count:
        return None
    words = f"folds divide groups: {pluralise(count, 'test row')} of groups that are trained on"
    return Leak(words, "cv=GroupKFold(5), with groups=groups for fit")


def _of_columns(X: Matrix, y: AnyArray) -> Leak | None:
    """A column that tells the target alone."""
    if sparse.issparse(X) or y.ndim > 1:
        return None
    rows = slice(None, _MOST_ROWS)
    codes = y[rows] if y.dtype.kind in "biuf" else np.unique(y[rows], return_inverse=True)[1]
    if len(np.unique(codes)) > 2 and y.dtype.kind not in "f":
        return None  # the order of several classes means nothing
    target = _standard(rankdata(codes))
    for name, column in zip(_names(X), _columns(X), strict=True):
        if column.dtype.kind not in "biuf":
            continue
        values = column[rows].astype(np.float64)
        # Of two classes, a column that separates them has ranks in two blocks.
        if len(np.unique(codes)) == 2 and np.isfinite(values).all():
            parts = [values[codes == code] for code in np.unique(codes)]
            tells = parts[0].max() < parts[1].min() or parts[1].max() < parts[0].min()
        else:
            tells = abs(float(target @ _standard(rankdata(values)))) > _TELLS
        if tells:
            words = f"column {name} alone tells the target"
            return Leak(words, "leave it out if it is not known before the target is")
    return None


def _standard(values: Array) -> Array:
    centred = values - values.mean()
    size = float(np.sqrt(centred @ centred))
    return np.asarray(centred / size if size > 0.0 else centred)


def _of_ids(X: Matrix, y: AnyArray, splits: Sequence[Split]) -> Leak | None:
    """A column, or the index of a frame, that looks like the label of groups."""
    if sparse.issparse(X) or y.ndim > 1:
        return None
    codes = y.astype(np.float64) if y.dtype.kind in "biuf" else _codes(y)
    index = getattr(X, "index", None)
    if index is not None and not callable(index) and _is_divided(np.asarray(index), splits):
        words = "the index of X names rows of several folds alike, as if they were of one group"
        return Leak(words, "groups=X.index with cv=GroupKFold(5)")
    for k, (name, column) in enumerate(zip(_names(X), _columns(X), strict=True)):
        is_named = hasattr(X, "columns") and bool(_ID_WORDS & _words(name))
        if _is_divided(column, splits) and (is_named or _is_label(column, codes)):
            words = f"column {name} looks like the label of groups, which folds divide"
            place = f"X[{name}]" if hasattr(X, "columns") else f"X[:, {k}]"
            return Leak(words, f"groups={place} with cv=GroupKFold(5), and X without it")
    return None


def _codes(y: AnyArray) -> Array:
    return np.unique(y, return_inverse=True)[1].astype(np.float64)


def _words(name: str) -> set[str]:
    letters = "".join(c if c.isalnum() else " " for c in name.lower())
    return set(letters.split())


def _is_divided(column: AnyArray, splits: Sequence[Split]) -> bool:
    """Whether a column has many values, of which most have several rows, in several folds."""
    if column.dtype.kind == "f" and not np.all(column == np.round(column)):
        return False
    values, labels = np.unique(column, return_inverse=True)
    if not _FEWEST_GROUPS <= len(values) <= len(column) // 2:
        return False
    return _crosses(labels.reshape(-1), splits) > 0


def _is_label(column: AnyArray, target: Array) -> bool:
    """Whether rows of one value are alike in their target, and neighbouring values are not."""
    values, labels = np.unique(column, return_inverse=True)
    labels = labels.reshape(-1)
    counts = np.bincount(labels)
    means = np.bincount(labels, target) / counts
    between = float(np.sum(counts * (means - target.mean()) ** 2))
    within = float(np.sum((target - means[labels]) ** 2))
    freedom = len(values) - 1, len(target) - len(values)
    if within <= 0.0:
        return between > 0.0
    ratio = (between / freedom[0]) / (within / freedom[1])
    if fisher.sf(ratio, *freedom) > _CHANCE:
        return False
    likeness = float(_standard(means[:-1]) @ _standard(means[1:]))
    return likeness < _MOST_LIKENESS

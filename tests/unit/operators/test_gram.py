"""Sums over rows: the same however rows are cut, and as many digits as rows have."""

from functools import reduce
from operator import add

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.linear_model import Ridge

from everyfold.io.blocks import Batch, array_batches
from everyfold.io.samples import Held
from everyfold.kernels import RBF
from everyfold.operators import Nystrom, RandomFourier
from everyfold.operators.features import Plain
from everyfold.operators.gram import FoldSums, Start, accumulate
from tests import cases

N = 90
RHOS = [0.1, 3.0]
MAPS = ("columns", "landmarks", "waves")


def data(weight="zeros"):
    X = cases.features(N)
    w = None if weight == "none" else cases.weights(weight, N)
    return X, cases.targets(X, 2) + 50.0, w


def feature_map(name, X):
    if name == "columns":
        return Plain(X.shape[1])
    structure = {"landmarks": Nystrom(9, random_state=0), "waves": RandomFourier(8, random_state=0)}
    return structure[name].feature_map(RBF(0.3), Held(X))


def sums_of(maps, sets, height, *, is_raw=True, intercept=True, rows=None, weight="zeros"):
    X, z, w = data(weight)
    X = X if rows is None else rows
    starts = [Start(is_raw or features.T is None, intercept) for features in maps]
    return accumulate(array_batches(X, z, w, sets, height), maps, starts)


def models(found):
    return {k: rest.solve(RHOS) for k, rest in found.rests()}


def expected(features, sets, intercept=True, weight="zeros"):
    """Coefficients and intercepts by refits on the features."""
    X, z, w = data(weight)
    V = features(X)
    for held in sets:
        train = np.setdiff1d(np.arange(N), held)
        fits = [
            Ridge(rho, fit_intercept=intercept, solver="svd").fit(
                V[train], z[train], None if w is None else w[train]
            )
            for rho in RHOS
        ]
        yield V[held], z[held], None if w is None else w[held], fits


def close(ours, theirs, rtol=1e-12):
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol * np.abs(theirs).max())


@pytest.fixture(params=["equal", "unequal", "groups", "repeated", "shuffle"])
def sets(request):
    return cases.folds(request.param).helds  # of the first 30 rows: others are never held out


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weight", cases.WEIGHTS)
@pytest.mark.parametrize("is_raw", [True, False])
def test_models_and_errors_are_those_of_refits(name, intercept, weight, is_raw, sets):
    features = feature_map(name, data()[0])
    (found,) = sums_of([features], sets, 17, is_raw=is_raw, intercept=intercept, weight=weight)
    ours = models(found)
    errors = found.errors(ours)
    for i, (V, z, w, fits) in enumerate(expected(features, sets, intercept, weight)):
        for k, fit in enumerate(fits):
            predicted = fit.predict(V)
            close(ours[i].values(V)[k], predicted, 1e-8)
            squares = np.average((z - predicted) ** 2, axis=0, weights=w) * errors.weight[i]
            close(errors.squared[i, k], squares, 1e-6)
        mean = np.average(z, axis=0, weights=w)
        spread = np.average((z - mean) ** 2, axis=0, weights=w) * errors.weight[i]
        close(errors.spread[i], spread, 1e-10)


@pytest.mark.parametrize("intercept", [True, False])
def test_any_batches_give_the_same(sets, intercept):
    maps = [feature_map(name, data()[0]) for name in MAPS]
    whole = sums_of(maps, sets, N, intercept=intercept)
    for height in (1, 2, 7, 31, 1000):
        for ours, theirs in zip(
            sums_of(maps, sets, height, intercept=intercept), whole, strict=True
        ):
            assert ours.folds == theirs.folds
            for k, sums in theirs.parts.items():
                mine = ours.parts[k]
                assert (mine.rows, mine.count) == (sums.rows, sums.count)
                for field in ("origin", "middle", "cross", "squares", "spread", "weight"):
                    close(getattr(mine, field), getattr(sums, field))
                close(np.tril(mine.gram), np.tril(sums.gram))


def test_parts_of_the_rows_add_up_in_any_order(sets):
    features = feature_map("landmarks", data()[0])
    (whole,) = sums_of([features], sets, N)
    X, z, w = data()
    start = Start(True, True)

    def part(rows):
        own = [np.flatnonzero(np.isin(rows, held)) for held in sets]
        batches = list(array_batches(X[rows], z[rows], w[rows], own, 11))
        is_whole = any(number == -2 for batch in batches for number, _ in batch.sets)
        assert is_whole == (-2 in whole.parts)
        return accumulate(batches, [features], [start])[0]

    rows = np.random.default_rng(0).permutation(N)
    pieces = [part(np.sort(piece)) for piece in np.array_split(rows, 3)]
    for order in (pieces, pieces[::-1]):
        together = reduce(add, order)
        ours, theirs = models(together), models(whole)
        for k in theirs:
            close(ours[k].coef, theirs[k].coef, 1e-9)
            close(ours[k].intercept, theirs[k].intercept, 1e-11)


def test_maps_share_a_base_matrix():
    X, *_ = data()
    calls = []

    class Counted(type(feature_map("waves", X))):
        def base(self, X):
            calls.append(len(X))
            return super().base(X)

    one = feature_map("waves", X)
    maps = [Counted(one.directions, scale) for scale in (0.5, 1.0, 2.0)]
    found = sums_of(maps, [np.arange(10)], N)
    assert calls == [N]
    for features, ours in zip(maps, found, strict=True):
        (alone,) = sums_of([features], [np.arange(10)], N)
        close(np.tril(ours.parts[0].gram), np.tril(alone.parts[0].gram))


def test_sparse_rows_stay_sparse():
    X, z, w = data()
    sparse = csr_matrix(np.where(np.abs(X) > 0.5, X, 0.0))
    batches = list(array_batches(sparse, z, w, [np.arange(0, N, 2)], 40))
    assert all(batch.X.format == "csr" for batch in batches)
    for name in MAPS:
        features = feature_map(name, sparse)
        found = [
            sums_of([features], [np.arange(0, N, 2)], 40, rows=rows)[0].total
            for rows in (sparse, sparse.toarray())
        ]
        close(np.tril(found[0].gram), np.tril(found[1].gram), 1e-10)


def test_rows_of_the_caller_are_left_alone():
    X, z, w = data()
    kept = X.copy(), z.copy(), w.copy()
    batch = Batch(X, z, w, [(0, slice(0, 40)), (1, slice(40, N))])
    accumulate([batch], [Plain(3)], [Start(True, True)])
    for mine, copy in zip((X, z, w), kept, strict=True):
        np.testing.assert_array_equal(mine, copy)


@pytest.mark.parametrize("far", ["rows", "targets", "both"])
def test_sets_far_from_each_other_keep_their_digits(far):
    """A set is summed about its own mean, and what stays is added up."""
    X, z, _ = data()
    own = np.arange(30)
    moved, aim = X.copy(), z.copy()
    moved[own] += 1e7 if far != "targets" else 0.0
    aim[own] -= 1e9 if far != "rows" else 0.0
    (near,) = accumulate(array_batches(X, z, None, [own], 8), [Plain(3)], [Start(True, True)])
    (away,) = accumulate(array_batches(moved, aim, None, [own], 8), [Plain(3)], [Start(True, True)])
    np.testing.assert_array_equal(models(away)[0].coef, models(near)[0].coef)
    close(away.parts[0].spread, near.parts[0].spread, 1e-5)


def test_empty_sums_change_nothing():
    found = FoldSums(Start(True, True), None)
    assert found.folds == []
    (whole,) = sums_of([Plain(3)], [np.arange(10)], N)
    close((found + whole).total.gram, whole.total.gram)

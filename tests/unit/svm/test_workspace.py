"""Compiled code works by addresses: it must not write beside the memory that it is given."""

import numpy as np
import pytest

from everyfold.svm import leave_one_out as rows
from everyfold.svm import paths
from everyfold.svm.core.workspace import LANES, Workspace, aligned, padded, vector_stride, workspace
from everyfold.svm.kernel32 import Kernel32
from everyfold.svm.leave_one_out import RowRemovals, held_out_values, refit_without_rows
from everyfold.svm.paths import PairProblems, pair_paths
from tests.cases import svm_paths_of_folds as svm_paths

SIZES = (2, 3, 31, 32, 33, 100, 150)
MARK, BESIDE = 77, 64


class Guarded:
    """Makes workspaces with marks on both sides of each array, which must still be there."""

    def __init__(self):
        self.whole = []

    def __call__(self, n, width, **options):
        made = []
        for array in workspace(n, width, **options):
            whole = np.full(len(array) + 2 * BESIDE, MARK, dtype=array.dtype)
            self.whole.append(whole)
            made.append(whole[BESIDE:-BESIDE])
        return Workspace(*made)

    def check(self):
        assert self.whole
        for whole in self.whole:
            assert (whole[:BESIDE] == MARK).all()
            assert (whole[-BESIDE:] == MARK).all()


@pytest.fixture
def guarded(monkeypatch):
    made = Guarded()
    monkeypatch.setattr(paths, "workspace", made)
    monkeypatch.setattr(rows, "workspace", made)
    yield made
    made.check()


def problem(n, flips=0.2):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 3))
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    X[:, 0] += np.where(rng.random(n) < flips, -1.0, 1.0) * y
    return np.exp(-0.2 * ((X[:, None] - X) ** 2).sum(axis=2)), y


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("flips", [0.0, 0.3])
def test_paths_stay_within_their_memory(guarded, n, flips):
    K, y = problem(n, flips)
    found = svm_paths(K, y, [0.01, 1.0, 1e4], np.ones((1, n)), tol=1e-6)
    assert found.converged.all()
    plain = workspace(n, padded(n))
    assert [len(a) for a in plain] == [len(a) - 2 * BESIDE for a in guarded.whole[:5]]


def test_pairs_stay_within_their_memory(guarded):
    K, y = problem(150)
    sizes = (2, 33, 150, 64)
    rows = np.concatenate([np.arange(m) for m in sizes])
    pairs = PairProblems(np.cumsum([0, *sizes]), rows, y[rows], np.ones(len(rows)))
    found = pair_paths(Kernel32(K), pairs, [0.01, 1.0, 1e4], tol=1e-6)
    assert found.converged.all()


@pytest.mark.parametrize("n", SIZES[1:])
def test_single_rows_stay_within_their_memory(guarded, n):
    K, y = problem(n)
    w, every = np.ones(n), np.arange(n)
    coef = svm_paths(K, y, [1.0], w[None]).coef[0, 0]
    removal = RowRemovals(1.0, coef, K @ coef, every, every)
    (short,) = held_out_values(K, y, w, [removal])
    whole = refit_without_rows(K, y, w, removal)
    assert np.isfinite(short.values).any()
    assert np.isfinite(whole.values).any()


@pytest.mark.parametrize("n", [1, 32, 100, 1000, 5000])
def test_vectors_are_apart_and_on_cache_lines(n):
    width = padded(n)
    assert width % LANES == 0
    assert 0 <= width - n < LANES
    assert all(vector_stride(width) * 4 * between % 4096 for between in range(1, 8))
    for kind in (np.float32, np.float64, np.int64):
        assert aligned(n, kind).ctypes.data % 64 == 0
        assert aligned(n, kind).shape == (n,)

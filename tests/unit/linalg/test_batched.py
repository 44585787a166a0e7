"""Blocks that are gathered and solved by compiled code, against NumPy one by one."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from everyfold.linalg import ridge_systems as systems
from everyfold.linalg.ridge_systems import factorise

SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 47, 48, 49, 73, 100, 143]


def matrix(n, rng):
    """A well-conditioned symmetric positive definite matrix."""
    A = rng.standard_normal((n, n))
    return A @ A.T / n + np.eye(n)


def draw(n, t, m, rng):
    """Row sets, each in ascending order."""
    return np.stack([np.sort(rng.choice(n, m, replace=False)) for _ in range(t)])


def one_by_one(G, h, rows, B):
    C = G - np.outer(h, h)
    return np.stack([np.linalg.solve(C[np.ix_(S, S)], B_S) for S, B_S in zip(rows, B, strict=True)])


def compiled(G, h, rows, B):
    from everyfold.linalg.batched import solve_gathered

    out = np.full(B.shape, 7.0)
    solve_gathered(G, h, rows, B, out)
    return out


def close(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * np.abs(theirs).max())


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("targets", [1, 3, 8, 11])
def test_every_size_and_number_of_targets(m, targets):
    rng = np.random.default_rng(100 * m + targets)
    G, h = matrix(150, rng), 0.05 * rng.standard_normal(150)
    rows, B = draw(150, 3, m, rng), rng.standard_normal((3, m, targets))
    for own in (h, np.zeros(150)):
        close(compiled(G, own, rows, B), one_by_one(G, own, rows, B))


@pytest.mark.parametrize("m", [1, 9, 50])
def test_the_lower_triangle_is_enough(m):
    rng = np.random.default_rng(m)
    G = matrix(60, rng)
    rows, B, h = draw(60, 4, m, rng), rng.standard_normal((4, m, 2)), 0.1 * rng.standard_normal(60)
    half = np.tril(G) + np.triu(np.full(G.shape, np.nan), 1)
    close(compiled(half, h, rows, B), one_by_one(G, h, rows, B))


@pytest.mark.parametrize("m", [1, 6, 24, 61])
def test_an_indefinite_block_is_nan_and_harms_no_other(m):
    rng = np.random.default_rng(m)
    G = matrix(80, rng)
    rows, B, h = draw(79, 5, m, rng), rng.standard_normal((5, m, 2)), np.zeros(80)
    G[79, 79] = -1.0
    rows[1, -1] = rows[3, -1] = 79
    solved = compiled(G, h, rows, B)
    assert np.isnan(solved[[1, 3]]).all()
    others = [0, 2, 4]
    close(solved[others], one_by_one(G, h, rows[others], B[others]))


@pytest.mark.parametrize("bad", [0.0, np.nan])
def test_a_pivot_that_is_no_positive_number_gives_nan(bad):
    G = np.diag(np.r_[np.ones(10), bad, np.ones(9)])
    rows = np.stack([np.arange(12), np.r_[np.arange(10), 11, 12]])
    solved = compiled(G, np.zeros(20), rows, np.ones((2, 12, 1)))
    assert np.isnan(solved[0]).all()
    np.testing.assert_array_equal(solved[1], 1.0)


@pytest.fixture
def always_compiled(monkeypatch):
    monkeypatch.setattr(systems, "COMPILED_FROM", 0)


@pytest.mark.parametrize("t", [1, 2, 40])
@pytest.mark.parametrize("m", [1, 13, 30])
@pytest.mark.parametrize("order", ["ascending", "descending", "mixed"])
def test_an_explicit_system_gives_what_the_others_give(always_compiled, t, m, order):
    rng = np.random.default_rng(t + m)
    K = matrix(70, rng)
    h = 0.05 * rng.standard_normal(70)
    rows, B = draw(70, t, m, rng), rng.standard_normal((t, m, 2))
    if order == "descending":
        rows = rows[:, ::-1]
    elif order == "mixed":
        rows = rng.permuted(rows, axis=1)
    explicit, cholesky = factorise(K, "explicit"), factorise(K, "cholesky")
    for rho in (0.1, 3.0):
        for own in (None, h):
            ours = explicit.at(rho).solve_blocks(rows, B, own)
            close(ours, cholesky.at(rho).solve_blocks(rows, B, own))


@pytest.mark.parametrize("n", [40, 300])
def test_ridges_that_share_their_memory_do_not_see_each_other(always_compiled, n):
    """Blocks need all of the inverse, solutions half of it; in any order of ridges and calls."""
    rng = np.random.default_rng(0)
    K = matrix(n, rng)
    rows, B = draw(n, 3, 20, rng), rng.standard_normal((3, 20, 1))
    explicit, zeros = factorise(K, "explicit"), np.zeros(n)
    near, far = explicit.at(0.1), explicit.at(5.0)
    for system in (near, far, near, near, far):
        G = np.linalg.inv(K + system.rho * np.eye(n))
        close(system.solve_blocks(rows, B, None), one_by_one(G, zeros, rows, B))
        close(system.blocks(rows), np.stack([G[np.ix_(S, S)] for S in rows]))
        close(system.solve_blocks(rows, B, None), one_by_one(G, zeros, rows, B))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_a_path_of_ridges_formed_together(always_compiled, count):
    """Each ridge when it comes, and all of them again, last to first, when they have gone by."""
    rng = np.random.default_rng(count)
    K, zeros = matrix(50, rng), np.zeros(50)
    rows, B = draw(50, 3, 11, rng), rng.standard_normal((3, 11, 1))
    gone = []
    for system, solved in factorise(K, "explicit").path(np.logspace(-2, 1, count), B[0, :1] + K):
        gone.append(system)
        G = np.linalg.inv(K + system.rho * np.eye(50))
        close(solved, G @ (B[0, :1] + K))
        close(system.solve_blocks(rows, B, None), one_by_one(G, zeros, rows, B))
    assert len(gone) == count
    for system in reversed(gone):
        G = np.linalg.inv(K + system.rho * np.eye(50))
        close(system.solve_blocks(rows, B, None), one_by_one(G, zeros, rows, B))


def test_threads_give_the_same_numbers(always_compiled):
    rng = np.random.default_rng(0)
    system = factorise(matrix(60, rng), "explicit").at(1.0)
    rows, B = draw(60, 50, 17, rng), rng.standard_normal((50, 17, 1))
    with threadpool_limits(1):
        alone = system.solve_blocks(rows, B, None)
    with threadpool_limits(2):
        np.testing.assert_array_equal(system.solve_blocks(rows, B, None), alone)

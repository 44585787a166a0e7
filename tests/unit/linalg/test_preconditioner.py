"""Preconditioners of several classes beside the inverses that they stand for."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from everyfold.linalg.preconditioner import CoupledPreconditioner, GramPreconditioner

RNG = np.random.default_rng(0)
N, C, K = 60, 4, 3
A = RNG.standard_normal((N, C)).astype(np.float32)
PENALTY = np.array([0.1, 1.0, 2.0, 0.5])


def curvatures():
    """The second derivatives of the multinomial loss at some probabilities."""
    share = RNG.dirichlet(np.ones(K), N)
    return share[:, :, None] * np.eye(K) - share[:, :, None] * share[:, None, :]


@pytest.mark.parametrize("outside", [np.zeros((1, 3), dtype=bool), np.eye(3, dtype=bool)])
def test_systems_of_the_rows_that_each_model_has(outside):
    D, parts, t = curvatures(), np.arange(N) % 3, 3
    preconditioner = CoupledPreconditioner(A, D, parts, outside)
    preconditioner.add(PENALTY)
    B = RNG.standard_normal((C, t, K))
    B -= B.mean(axis=2, keepdims=True)  # as gradients are, for the values of a row add up to 0
    models = np.array([2, 0])
    found = preconditioner.of_models(B[:, models].reshape(C, -1), models).reshape(C, -1, K)
    for place, model in enumerate(models):
        inside = ~outside[model % len(outside)][parts]
        H = np.einsum("ni,nkl,nj->ikjl", A[inside], D[inside], A[inside])
        H += np.einsum("ij,kl->ikjl", np.diag(PENALTY), np.eye(K))
        solved = np.linalg.solve(H.reshape(C * K, C * K), B[:, model].ravel()).reshape(C, K)
        assert_allclose(found[:, place], solved, atol=2e-5)


def test_a_column_of_zeros_without_a_penalty_has_a_factor():
    """As the intercept of a class that the rows of a fold do not have."""
    columns = A.copy()
    columns[:, 0] = 0.0
    preconditioner = CoupledPreconditioner(columns, curvatures(), np.zeros(N, int), np.eye(1) > 1)
    preconditioner.add(np.zeros(C))
    assert np.isfinite(preconditioner.of_models(np.ones((C, K)), np.array([0]))).all()


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("spoilt", [np.nan, np.inf])
def test_what_is_not_finite_comes_to_an_end(spoilt):
    columns = A.copy()
    columns[0] = spoilt
    coupled = CoupledPreconditioner(columns, curvatures(), np.zeros(N, int), np.eye(1) > 1)
    coupled.add(PENALTY)
    assert coupled.of_models(np.ones((C, K)), np.array([0])).shape == (C, K)
    gram = GramPreconditioner(columns, np.ones(N, dtype=np.float32))
    gram.add(PENALTY)
    assert gram.solve(np.ones((C, 2))).shape == (C, 2)

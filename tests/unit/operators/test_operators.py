"""One contract for every operator: whatever its structure, it answers like the dense matrix."""

import inspect
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from everyfold.kernels import RBF, Linear, Polynomial
from everyfold.linalg.batched import solve_gathered
from everyfold.linalg.ridge_systems import ROUTES, factorise
from everyfold.linalg.spans import NestedSpans
from everyfold.linalg.symmetric import DeflatedStack, NotPositiveDefiniteError
from everyfold.operators import (
    Dense,
    DenseMatrix,
    Nystrom,
    Primal,
    Quadratic,
    StructureError,
    SupportsResponse,
)
from everyfold.operators.response import DualModel
from everyfold.svm.kernel32 import Kernel32
from tests import cases, reference

RHO = 0.4
ROWS = np.array([[2, 5, 7], [0, 3, 29]])


@pytest.fixture(params=cases.OPERATORS)
def pair(request):
    return cases.operator(request.param)


@pytest.fixture(params=cases.WEIGHTS)
def weights(request):
    return cases.weights(request.param)


@pytest.fixture(params=[True, False], ids=["intercept", "none"])
def intercept(request):
    return request.param


@pytest.fixture(params=ROUTES)
def case(request, pair, weights, intercept):
    operator, K = pair
    z = cases.targets(cases.features(), 2)
    quadratic = Quadratic(np.sqrt(weights), z, intercept)
    response = operator.respond(quadratic, RHO, request.param)
    return response, reference.response(K, weights, RHO, intercept), quadratic, operator, K


def close(actual, desired):
    assert_allclose(actual, desired, rtol=1e-8, atol=1e-9 * max(1.0, np.abs(desired).max()))


@pytest.fixture(params=cases.WITH_MATRIX)
def with_matrix(request):
    return cases.item(request.param)


class TestOperator:
    """What every operator with a matrix of all rows answers."""

    def test_products_and_diagonal(self, with_matrix):
        operator, K = with_matrix.operator, with_matrix.K
        assert operator.n == len(K)
        B = np.random.default_rng(0).normal(size=(operator.n, 2))
        close(operator.matmat(B), K @ B)
        close(operator.evaluate(operator.coefficients(B)), K @ B)
        close(operator.diagonal(), K.diagonal())

    def test_eigenvalues_and_rank(self, with_matrix):
        operator, K = with_matrix.operator, with_matrix.K
        assert np.linalg.matrix_rank(K, tol=1e-9 * K.max()) <= operator.rank <= operator.n
        close(operator.eigenvalues(), np.linalg.eigvalsh(K))

    def test_restriction_may_repeat_rows(self, with_matrix):
        rows = np.array([3, 1, 8, 8])
        part = with_matrix.operator.restrict(rows)
        close(part.matmat(np.eye(4)), with_matrix.K[np.ix_(rows, rows)])

    def test_link_and_expand_continue_the_function(self, with_matrix):
        operator, new, K_new = with_matrix.operator, with_matrix.new, with_matrix.K_new
        a = np.random.default_rng(0).normal(size=(operator.n, 2))
        coef = operator.coefficients(a)
        if K_new is None:
            for ask in (operator.expand, lambda _: operator.link(cases.features(5))):
                with pytest.raises((StructureError, TypeError), match="cannot predict"):
                    ask(coef)
            return
        close(operator.link(new) @ coef, K_new @ a)
        kept = pickle.loads(pickle.dumps(operator.expand(coef)))
        close(kept(new), K_new @ a)
        close(kept.link(new) @ kept.coef, K_new @ a)
        assert kept.link(new).shape == (new.shape[0], len(kept.coef))

    @pytest.mark.parametrize("chunk", [1, 2**23])
    def test_expansions_are_the_same_in_pieces(self, with_matrix, chunk, monkeypatch):
        monkeypatch.setattr("everyfold.operators.base.CHUNK", chunk)
        monkeypatch.setattr("everyfold.operators.features.CHUNK", chunk)
        operator = with_matrix.operator
        a = np.random.default_rng(0).normal(size=(operator.n, 1))
        close(operator.matmat(a), with_matrix.K @ a)
        if with_matrix.K_new is not None:
            f = operator.expand(operator.coefficients(a))
            close(f(with_matrix.new), with_matrix.K_new @ a)


@pytest.mark.parametrize("name", cases.EVERY)
class TestFolds:
    """What a fold asks of every operator: the matrix of its training rows, and a way to others."""

    TRAIN, TEST = np.array([3, 1, 8, 20, 29, 11]), np.array([0, 5, 17])

    def check(self, inside, cross, fold):
        K, K_cross = fold(self.TRAIN, self.TEST)
        a = np.random.default_rng(0).normal(size=(len(self.TRAIN), 2))
        close(inside.matmat(a), K @ a)
        close(inside.diagonal(), K.diagonal())
        close(cross @ inside.coefficients(a), K_cross @ a)

    def test_split(self, name):
        item = cases.item(name)
        part = item.operator.split(self.TRAIN, self.TEST)
        self.check(part.operator, part.cross, item.fold)

    def test_restrict_and_cross(self, name):
        item = cases.item(name)
        if not isinstance(item.operator, SupportsResponse):
            return  # it can only be split
        inside = item.operator.restrict(self.TRAIN)
        self.check(inside, item.operator.cross(self.TEST, self.TRAIN), item.fold)

    def test_a_fold_that_tests_nothing(self, name):
        item = cases.item(name)
        part = item.operator.split(self.TRAIN, self.TEST[:0])
        inside, cross = part.operator, part.cross
        coef = inside.coefficients(np.ones((len(self.TRAIN), 1)))
        assert (cross @ coef).shape == (0, 1)

    def test_fits_of_a_fold_predict_its_test_rows(self, name):
        item = cases.item(name)
        part = item.operator.split(self.TRAIN, self.TEST)
        inside, cross = part.operator, part.cross
        z = cases.targets(cases.features(len(self.TRAIN)))
        quadratic = Quadratic(np.ones(len(z)), z, True)
        solution = inside.respond(quadratic, RHO).solution()
        K, K_cross = item.fold(self.TRAIN, self.TEST)
        a, b = reference.fit(K, z[:, 0], np.ones(len(z)), RHO, True)
        close((cross @ solution.coef + solution.intercept)[:, 0], K_cross @ a + b)


def test_the_market_has_every_operator():
    def leaves(kind):
        below = kind.__subclasses__()
        own = set() if inspect.isabstract(kind) else {kind}
        return own.union(*(leaves(child) for child in below))

    ours = {kind for kind in leaves(SupportsResponse) if kind.__module__.startswith("everyfold.")}
    assert ours <= {type(cases.item(name).operator) for name in cases.EVERY}


class TestResponse:
    def test_matmat(self, case):
        response, M, *_ = case
        B = np.random.default_rng(0).normal(size=(len(M), 2))
        close(response.matmat(B), M @ B)

    def test_diagonal_and_trace(self, case):
        response, M, *_ = case
        close(response.diagonal(), M.diagonal())
        close(response.trace(), np.trace(M))

    def test_block(self, case):
        response, M, *_ = case
        close(response.block(ROWS[0], ROWS[1]), M[np.ix_(ROWS[0], ROWS[1])])

    def test_solution_and_residual(self, case):
        response, M, quadratic, operator, _ = case
        s = quadratic.s[:, None]
        u = M @ (2.0 * s**2 * quadratic.z)
        solution = response.solution()
        close(operator.evaluate(solution.coef) + solution.intercept, u)
        close(response.scale * response.reduced(), s * (quadratic.z - u))

    def test_solutions_of_several_ridges(self, case):
        _, _, quadratic, operator, _ = case
        rhos = [3.0, RHO, 0.9]
        for route in ROUTES:
            found = operator.solutions(quadratic, rhos, route)
            for k, one in enumerate(operator.respond_path(quadratic, rhos, route)):
                close(found.coef[k], one.solution().coef)
                close(found.intercept[k], one.solution().intercept)
                # Where the intercept is taken out of the system first, that is no worse.
                assert found.condition[k] <= one.condition * (1.0 + 1e-6)
                if not quadratic.intercept:
                    assert found.condition[k] == pytest.approx(one.condition, rel=1e-6)

    def test_residual_blocks(self, case):
        response, M, quadratic, *_ = case
        s = quadratic.s
        R = np.eye(len(M)) - 2.0 * s[:, None] * M * s
        active = ROWS[:, quadratic.s[ROWS].min(axis=0) > 0]
        expected = np.stack([R[np.ix_(S, S)] for S in active])
        close(response.scale * response.residual_blocks(active), expected)
        close(response.scale * response.residual_diagonal(), R.diagonal())

    def test_leave_solves_with_the_blocks(self, case):
        response, *_ = case
        rows = np.array([[2, 5, 7], [0, 3, 10]])
        B = np.random.default_rng(0).normal(size=(2, 3, 4))
        blocks = response.residual_blocks(rows)
        close(blocks @ response.solve_residual_blocks(rows, B), B)
        system = response.factored_residual_blocks(rows)
        close(blocks @ system.solve(B), B)
        close(blocks @ system.solve(2.0 * B), 2.0 * B)

    def test_radius_is_that_of_the_block(self, case):
        response, M, quadratic, *_ = case
        S = np.array([2, 5, 7])
        H = M[np.ix_(S, S)] * (2.0 * quadratic.s[S] ** 2)
        close(response.radius(S[None]), [np.abs(np.linalg.eigvals(H)).max()])


def test_factors_of_sets_larger_than_the_rank_are_of_its_size():
    X = cases.features(40)
    operator = Nystrom(5).bind(RBF(0.2), X)
    response = operator.respond(Quadratic(np.linspace(0.5, 1.5, 40), cases.targets(X), True), 0.1)
    rows = np.arange(40).reshape(2, 20)
    B = np.random.default_rng(0).normal(size=(2, 20, 3))
    system = response.factored_residual_blocks(rows)
    assert isinstance(system, DeflatedStack)
    close(response.residual_blocks(rows) @ system.solve(B), B)


def test_large_blocks_go_through_lapack_and_give_the_same_answer():
    X = cases.features(200)
    operator = Dense().bind(RBF(0.2), X)
    quadratic = Quadratic(np.ones(200), cases.targets(X), True)
    rows = np.random.default_rng(0).permutation(200)[:150].reshape(3, 50)
    B = np.random.default_rng(1).normal(size=(3, 50, 2))
    for route in ROUTES:
        response = operator.respond(quadratic, 0.1, route)
        close(response.residual_blocks(rows) @ response.solve_residual_blocks(rows, B), B)


@pytest.mark.parametrize("route", ROUTES)
def test_a_matrix_that_is_not_positive_definite_is_refused(route):
    K = np.diag([1.0, -0.5, 2.0])
    with pytest.raises(NotPositiveDefiniteError, match=r"not positive definite.*increase alpha"):
        factorise(K, route).at(0.1)
    assert factorise(K, route).at(0.6).condition == pytest.approx(26.0, rel=1e-6)


@pytest.mark.parametrize("ridge", [1e-12, 1e-9, 1e-6])
def test_all_routes_call_the_same_systems_well_conditioned(ridge):
    """Sums over rows, of which LAPACK's estimate is, are far larger than eigenvalues."""
    rows = np.random.default_rng(0).normal(size=(400, 3))
    K = RBF(0.01)(rows)
    found = [factorise(K.copy(), route).at(ridge).condition for route in ("cholesky", "eigen")]
    assert found[0] == pytest.approx(found[1], rel=0.3)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_tiny_matrices(route, n):
    K = np.eye(n) + 1.0
    system = factorise(K, route).at(0.5)
    close(system.solve(np.eye(n)), np.linalg.inv(K + 0.5 * np.eye(n)))


def test_singular_matrix_at_ridge_zero_is_refused():
    for route in ROUTES:
        with pytest.raises(NotPositiveDefiniteError, match="needs a ridge > 0"):
            factorise(np.ones((4, 4)), route).at(0.0)


def test_a_primal_form_needs_a_linear_kernel():
    with pytest.raises(ValueError, match="linear kernel only"):
        Primal().bind(RBF(1.0), cases.features())


def test_a_bare_matrix_cannot_predict_new_rows():
    with pytest.raises(TypeError, match="cannot predict new rows"):
        DenseMatrix(np.eye(3)).expand(np.ones((3, 1)))
    assert len(Dense().bind(Linear(), cases.features()).expand(np.ones((30, 1))).coef) == 30


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("m", [2, 7, 30])
def test_compiled_blocks_give_the_same_answer(monkeypatch, intercept, m):
    X = cases.features(90)
    operator = Dense().bind(RBF(0.3), X)
    quadratic = Quadratic(np.ones(90), cases.targets(X), intercept)
    rng = np.random.default_rng(0)
    rows = np.stack([rng.permutation(90)[:m] for _ in range(40)])
    B = rng.normal(size=(40, m, 3))
    responses = list(operator.respond_path(quadratic, [0.1, 2.0], "explicit"))
    plain = [response.solve_residual_blocks(rows, B) for response in responses]
    monkeypatch.setattr("everyfold.linalg.ridge_systems.COMPILED_FROM", 0)
    # The ridges share their memory: ask them in turns.
    for response, expected in (*zip(responses, plain, strict=True), (responses[0], plain[0])):
        close(response.solve_residual_blocks(rows, B), expected)


def test_compiled_blocks_that_are_not_definite_are_nan():
    G = np.diag([1.0, -1.0, 2.0])
    out = np.empty((2, 2, 1))
    rows = np.array([[0, 1], [0, 2]])
    solve_gathered(G, np.zeros(3), rows, np.ones((2, 2, 1)), out)
    assert np.isnan(out[0]).all()
    assert_allclose(out[1, :, 0], [1.0, 0.5])


# -- nested sets of rows that answer -----------------------------------------------------------


@pytest.mark.parametrize("lonely", [[], [0, 7, 15], range(20)], ids=["none", "some", "all"])
def test_nested_spans_are_those_of_each_set_alone(lonely):
    rng = np.random.default_rng(0)
    K, order = RBF(0.5)(rng.normal(size=(40, 3))), rng.permutation(40)[:20]
    cut = np.append(order[list(lonely)], 30) if len(lonely) else np.array([], dtype=int)
    K[cut], K[:, cut] = 0.0, 0.0
    K[cut, cut] = 1.0
    operator, rho = DenseMatrix(K), 0.05
    isolated = operator.isolated(1e-12)
    assert_array_equal(np.flatnonzero(isolated), np.sort(cut))
    s = np.sqrt(rng.uniform(1.0, 4.0, 40))
    spans = NestedSpans(K, order, rho / s[order] ** 2, [5, 12, 12, 20], isolated)
    found = spans.of(np.arange(40))
    nothing = np.zeros(40)
    for count, ours in zip([5, 12, 12, 20], found, strict=True):
        answers = np.zeros(40)
        answers[order[:count]] = s[order[:count]]
        quadratic = Quadratic(answers, np.empty((40, 0)), intercept=True)
        response = operator.respond(quadratic, rho)
        v = response.removal_forces_each(np.full(40, 2.0 * rho))
        true = response.held_out_values_each(v, DualModel(nothing, nothing, 0.0))
        assert_allclose(ours, true, rtol=1e-10)


def test_a_row_that_answers_alone_leaves_the_intercept_where_it_is():
    spans = NestedSpans(np.eye(3), np.array([1]), np.array([0.5]), [1], np.zeros(3, dtype=bool))
    assert_allclose(spans.of(np.arange(3)), [[2.5, 1.0, 2.5]])


def test_isolated_rows_by_their_sums():
    K = np.array([[1.0, 1e-4, 0.0], [1e-4, 1.0, 0.5], [0.0, 0.5, 4.0]])
    assert_array_equal(DenseMatrix(K).isolated(1e-3), [True, False, False])
    assert_array_equal(DenseMatrix(np.zeros((2, 2))).isolated(1e-3), [False, False])
    assert_array_equal(DenseMatrix(-K).isolated(1e-3), [True, False, False])


@pytest.mark.parametrize("n", [20, 100, 400])
def test_ends_of_a_spectrum_that_is_one_value(n):
    """LAPACK's bisection finds neither where K is the identity but for tiny entries."""
    tiny = 1e-100 * np.random.default_rng(0).uniform(size=(n, n))
    K = np.eye(n) + np.tril(tiny, -1) + np.tril(tiny, -1).T
    B, rhos = np.random.default_rng(1).normal(size=(n, 2)), (0.5, 2.0)
    found = list(factorise(K, "tridiagonal").path(rhos, B))
    for rho, (system, solved) in zip(rhos, found, strict=True):
        assert system.condition == pytest.approx(1.0)
        assert_allclose(solved, B / (1.0 + rho), atol=1e-12)


@pytest.mark.parametrize(
    "kernel", [RBF(0.2), RBF(500.0), Linear(), Polynomial(3, 0.5, 1.0)], ids=str
)
class TestLazyMatrix:
    """A dense matrix that holds its base alone, until K is asked for."""

    @pytest.fixture
    def pair(self, kernel):
        X = cases.features(70)
        lazy = Dense().bind_shared(kernel, X, kernel.base_matrix(X))
        return lazy, Dense().bind(kernel, X)

    def test_parts_are_those_of_the_matrix(self, pair):
        lazy, eager = pair
        some, others = np.array([3, 1, 40]), np.arange(50)
        assert_array_equal(lazy.diagonal(), eager.diagonal())
        assert lazy.is_identity == eager.is_identity
        assert lazy.typical_similarity == eager.typical_similarity
        assert not lazy.is_made
        assert_array_equal(lazy.cross(some, others), eager.cross(some, others))
        assert_array_equal(lazy.restrict(some).K, eager.restrict(some).K)
        assert lazy.is_made

    def test_rows_in_single_precision(self, pair):
        lazy, eager = pair
        made = Kernel32.filled(lazy.diagonal(), lazy.write_rows)
        assert not lazy.is_made
        copied = Kernel32(eager.K)
        assert made.rows.shape == copied.rows.shape
        assert_allclose(made.rows, copied.rows, rtol=1e-7, atol=1e-7)
        assert_array_equal(made.rows[:, 70:], 0.0)
        assert_array_equal(made.diagonal, copied.diagonal)
        assert not np.any((made.rows != 0.0) & (np.abs(made.rows) < 1e-30))


def test_rows_that_are_not_finite_are_refused():
    X = cases.features(40)
    base = RBF(1.0).base_matrix(X)
    base[7, 9] = np.nan
    lazy = Dense().bind_shared(RBF(1.0), X, base)
    with pytest.raises(ValueError, match="K must be finite"):
        Kernel32.filled(lazy.diagonal(), lazy.write_rows)

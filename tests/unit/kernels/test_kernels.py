"""Kernels: scikit-learn's pairwise functions as reference, and what sharing a base relies on."""

import dataclasses
import pickle
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.gaussian_process import kernels as gp
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import pairwise
from sklearn.svm import SVC

from everyfold.estimators.model import KernelChoice
from everyfold.kernels import (
    RBF,
    Cosine,
    Custom,
    Kernel,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    check_precomputed,
    find_kernel,
    resolve_gamma,
)
from everyfold.kernels.precomputed import noise_of


def contributed():
    """The kernel that CONTRIBUTING.md shows how to add; the steps that follow it there are done."""
    page = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    example = page.partition("## Add a kernel")[2].partition("```python\n")[2].partition("```")[0]
    names = {"__name__": __name__}
    exec(compile(example, "CONTRIBUTING.md", "exec", dont_inherit=True), names)
    return names["RationalQuadratic"]


RationalQuadratic = contributed()  # pickle looks for it by name


def rational_quadratic(X, Y=None):
    return (1.0 + 0.3 * pairwise.euclidean_distances(X, Y, squared=True)) ** -2.0


KERNELS = [
    (RBF(0.3), partial(pairwise.rbf_kernel, gamma=0.3)),
    (RBF(0.0), lambda X, Y=None: np.ones((X.shape[0], (X if Y is None else Y).shape[0]))),
    (Laplacian(0.2), partial(pairwise.laplacian_kernel, gamma=0.2)),
    *(
        (
            Polynomial(degree, 0.3, coef0),
            partial(pairwise.polynomial_kernel, degree=degree, gamma=0.3, coef0=coef0),
        )
        for degree, coef0 in [(1, 0.0), (2, 1.0), (3, 1.0), (7, 0.5)]
    ),
    (Linear(), pairwise.linear_kernel),
    (Cosine(), pairwise.cosine_similarity),
    (RationalQuadratic(gamma=0.3, power=2.0), rational_quadratic),
]
FORMATS = {
    "dense": np.asarray,
    "float32": lambda X: X.astype(np.float32),
    "fortran": np.asfortranarray,
    "csr_array": sparse.csr_array,
    "csr_matrix": sparse.csr_matrix,
    "csr_float32": lambda X: sparse.csr_array(X.astype(np.float32)),
}

every_kernel = pytest.mark.parametrize(
    ("kernel", "reference"), KERNELS, ids=[repr(kernel) for kernel, _ in KERNELS]
)
kernel_only = pytest.mark.parametrize("kernel", [kernel for kernel, _ in KERNELS], ids=repr)


def make_rows(n_rows, n_features, density=1.0, seed=0):
    """Rows with float32-exact entries, one of them zero and two of them equal."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, n_features)).astype(np.float32).astype(np.float64)
    X[rng.random(X.shape) >= density] = 0.0
    X[0] = 0.0
    X[-1] = X[-2]
    return X


def upcast(X):
    return X.astype(np.float64)


def assert_close(K, expected):
    assert isinstance(K, np.ndarray)
    assert K.dtype == np.float64
    assert_allclose(K, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@every_kernel
@pytest.mark.parametrize("form", FORMATS)
# Wide and thin stay CSR inside, long and full become dense: both routes must be right.
@pytest.mark.parametrize(("shape", "density"), [((30, 5), 0.6), ((25, 60), 0.03), ((9, 1), 1.0)])
def test_matches_scikit_learn_on_one_set_of_rows(kernel, reference, form, shape, density):
    X = FORMATS[form](make_rows(*shape, density))
    K = kernel(X)
    assert_close(K, reference(upcast(X)))
    assert_array_equal(K, K.T)


@every_kernel
@pytest.mark.parametrize("form_X", FORMATS)
@pytest.mark.parametrize("form_Y", FORMATS)
@pytest.mark.parametrize(("n_features", "density"), [(4, 0.7), (70, 0.03)])
def test_matches_scikit_learn_between_two_sets_of_rows(
    kernel, reference, form_X, form_Y, n_features, density
):
    X = FORMATS[form_X](make_rows(12, n_features, density, seed=1))
    Y = FORMATS[form_Y](make_rows(17, n_features, density, seed=2))
    K = kernel(X, Y)
    assert K.flags.c_contiguous
    assert_close(K, reference(upcast(X), upcast(Y)))


@kernel_only
@pytest.mark.parametrize("form", ["dense", "fortran", "csr_array"])
@pytest.mark.parametrize("n_features", [1, 2, 3, 40, 500])
@pytest.mark.parametrize("n_rows", [2, 67, 300])
def test_base_is_exactly_symmetric(kernel, form, n_rows, n_features):
    X = FORMATS[form](make_rows(n_rows, n_features, density=0.04 if "csr" in form else 1.0))
    B = kernel.base_matrix(X)
    assert_array_equal(B, B.T)
    assert_array_equal(kernel.base_matrix(X, X), B)
    if kernel.base in ("squared_distance", "manhattan"):
        assert_array_equal(B.diagonal(), 0.0)
        assert B.min() >= 0.0


@kernel_only
@pytest.mark.parametrize("form", FORMATS)
def test_strided_views_and_single_rows(kernel, form):
    X = make_rows(40, 6, density=0.5)
    assert_close(kernel(X[::2, ::3]), kernel(np.ascontiguousarray(X[::2, ::3])))
    rows = FORMATS[form](X)
    assert_close(kernel(rows[3:4], rows), kernel(rows)[3:4])
    assert_close(kernel(rows, rows[3:4]), kernel(rows)[:, 3:4])


@kernel_only
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("shape", "density"), [((30, 5), 0.6), ((25, 60), 0.03)])
def test_diagonal_is_that_of_the_matrix(kernel, form, shape, density):
    X = FORMATS[form](make_rows(*shape, density))
    diagonal = kernel.diagonal(X)
    assert diagonal.shape == (shape[0],)
    assert_close(diagonal, kernel(X).diagonal())


@kernel_only
def test_from_base_is_the_call_and_writes_where_it_is_told(kernel):
    X = make_rows(23, 4)
    B = kernel.base_matrix(X)
    kept = B.copy()
    K = kernel.from_base(B)
    assert_array_equal(K, kernel(X))
    assert not np.shares_memory(K, B)
    assert_array_equal(B, kept)

    room = np.empty_like(B)
    assert kernel.from_base(B, out=room) is room
    assert_array_equal(room, K)
    single = np.empty(B.shape, dtype=np.float32)
    assert kernel.from_base(B, out=single) is single
    assert_allclose(single, K, rtol=1e-4, atol=1e-5)
    assert kernel.from_base(B, out=B) is B
    assert_array_equal(B, K)


@pytest.mark.parametrize(
    ("owner", "others"),
    [
        (RBF(1.0), [RBF(0.1), RBF(10.0)]),
        (Laplacian(1.0), [Laplacian(0.1), Laplacian(10.0)]),
        (Linear(), [Polynomial(2, 0.1, 1.0), Polynomial(3, 2.0, 0.0)]),
    ],
    ids=repr,
)
def test_kernels_of_one_base_share_it(owner, others):
    X = make_rows(31, 5)
    B = owner.base_matrix(X)
    for kernel in others:
        assert kernel.base == owner.base
        assert_array_equal(kernel.from_base(B), kernel(X))


def test_kernels_of_different_functions_never_share_a_base():
    bases = [kernel.base for kernel in (RBF(1), Laplacian(1), Linear(), Cosine(), Precomputed())]
    assert len(set(bases)) == 5
    assert Custom(np.dot).base is None


def test_more_rows_than_a_block_holds():
    X = make_rows(700, 3)
    assert_close(RBF(0.5)(X), np.exp(-0.5 * cdist(X, X, "sqeuclidean")))
    assert_close(Polynomial(3, 0.5, 1.0)(X), (0.5 * X @ X.T + 1.0) ** 3)


@pytest.mark.parametrize("form", ["dense", "csr_array"])
@pytest.mark.parametrize("has_two_sets", [False, True])
def test_distances_far_from_the_origin_do_not_cancel(form, has_two_sets):
    # Short binary fractions, so that adding the offset costs no digits but squaring does.
    rng = np.random.default_rng(3)
    near = rng.integers(-(2**20), 2**20, size=(60, 4)) / 2**20
    far = FORMATS[form](near + 1e6)
    Y = far[:20] if has_two_sets else None
    expected = cdist(near, near[:20] if has_two_sets else near, "sqeuclidean")
    B = RBF(1.0).base_matrix(far, Y)
    assert_allclose(B, expected, rtol=0, atol=1e-12 * expected.max())
    naive = pairwise.euclidean_distances(far, Y, squared=True)
    assert np.abs(naive - expected).max() > 1e-6


def test_rounding_never_makes_a_distance_negative():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((50, 5))
    Y = X + 1e-10 * rng.standard_normal(X.shape)
    products = (X**2).sum(1)[:, None] + (Y**2).sum(1) - 2 * X @ Y.T
    assert products.min() < 0.0
    assert RBF(1.0).base_matrix(X, Y).min() == 0.0


def test_whole_numbers_near_the_origin_have_exact_distances():
    rng = np.random.default_rng(4)
    X = rng.integers(0, 3, size=(80, 30)).astype(np.float64)
    assert_array_equal(RBF(1.0).base_matrix(X), cdist(X, X, "sqeuclidean"))


def test_float32_rows_do_not_cost_accuracy():
    rng = np.random.default_rng(5)
    X = (rng.standard_normal((40, 3)) + 30).astype(np.float32)
    expected = cdist(upcast(X), upcast(X), "sqeuclidean")
    assert_allclose(RBF(1.0).base_matrix(X), expected, atol=1e-12 * expected.max())


@kernel_only
def test_unsorted_csr_with_duplicates_is_read_right_and_left_alone(kernel):
    X = make_rows(20, 50, density=0.03, seed=7)
    i, j = np.tile(X.nonzero(), 2)
    order = np.lexsort((-j, i))
    indptr = np.searchsorted(i[order], np.arange(21))
    messy = sparse.csr_array((X[i, j][order] / 2, j[order], indptr), shape=X.shape)
    assert not messy.has_canonical_format
    before = messy.indices.copy()
    K = kernel(messy)
    assert_close(K, kernel(X))
    assert_array_equal(K, K.T)
    assert_close(kernel.diagonal(messy), K.diagonal())
    assert_array_equal(messy.indices, before)


@kernel_only
def test_inputs_are_left_alone(kernel):
    X, Y = make_rows(15, 3), make_rows(10, 3, seed=1) + 100.0
    kept_X, kept_Y = X.copy(), Y.copy()
    kernel(X, Y)
    kernel(X)
    kernel.diagonal(Y)
    assert_array_equal(X, kept_X)
    assert_array_equal(Y, kept_Y)


@given(
    gamma=st.floats(0, 5),
    shift=st.floats(-100, 100),
    seed=st.integers(0, 2**16),
)
def test_distance_kernels_ignore_a_shift_and_stay_within_0_and_1(gamma, shift, seed):
    X = np.random.default_rng(seed).standard_normal((8, 3))
    for kernel in (RBF(gamma), Laplacian(gamma)):
        K = kernel(X)
        assert K.min() >= 0.0
        assert K.max() <= 1.0
        assert_allclose(kernel(X + shift), K, atol=1e-10)


@given(seed=st.integers(0, 2**16))
def test_kernel_matrices_are_positive_semidefinite(seed):
    X = np.random.default_rng(seed).standard_normal((12, 2))
    for kernel, _ in KERNELS:
        eigenvalues = np.linalg.eigvalsh(kernel(X))
        assert eigenvalues[0] >= -1e-12 * max(eigenvalues[-1], 1.0)


@kernel_only
def test_kernels_are_immutable_values(kernel):
    twin = pickle.loads(pickle.dumps(kernel))
    assert twin == kernel
    assert hash(twin) == hash(kernel)
    with pytest.raises(dataclasses.FrozenInstanceError):
        kernel.gamma = 1.0


# Precomputed


@pytest.mark.parametrize("form", [np.asarray, np.float32, sparse.csr_array])
def test_precomputed_hands_on_the_matrix(form):
    given_matrix = form(np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 0.5]]))
    K = Precomputed()(given_matrix)
    assert_array_equal(K, [[2.0, 1.0, 0.0], [1.0, 3.0, 0.5]])
    assert K.dtype == np.float64
    assert_array_equal(Precomputed().diagonal(given_matrix[:, :2]), [2.0, 3.0])


def test_precomputed_call_is_a_copy_and_its_base_is_not():
    K = np.eye(3)
    assert not np.shares_memory(Precomputed()(K), K)
    assert Precomputed().base_matrix(K) is K


def test_precomputed_rectangle_has_no_diagonal():
    with pytest.raises(ValueError, match=r"shape \(2, 3\) and so no k\(x, x\)"):
        Precomputed().diagonal(np.ones((2, 3)))


def test_check_precomputed_keeps_a_symmetric_matrix_and_averages_rounding():
    K = RBF(1.0)(make_rows(50, 3))
    assert check_precomputed(K) is K
    noise = 1e-10 * np.random.default_rng(0).standard_normal(K.shape)
    checked = check_precomputed(K + noise)
    assert_array_equal(checked, checked.T)
    assert_allclose(checked, K + (noise + noise.T) / 2, atol=1e-15)
    assert_array_equal(check_precomputed(sparse.csr_array(K)), K)


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_check_precomputed_measures_asymmetry_against_the_largest_entry(scale):
    K = scale * np.eye(300)
    K[299, 3] = 0.9e-8 * scale
    assert check_precomputed(K)[3, 299] == pytest.approx(0.45e-8 * scale)
    K[299, 3] = 1.1e-8 * scale
    with pytest.raises(ValueError, match="not symmetric"):
        check_precomputed(K)


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_check_precomputed_lets_rounding_of_a_larger_matrix_pass(scale):
    """What centring leaves of a nearly constant matrix is symmetric to its rounding only."""
    K = 1e-10 * scale * np.eye(30)
    K[29, 3] = 1e-15 * scale
    with pytest.raises(ValueError, match="not symmetric"):
        check_precomputed(K)
    assert check_precomputed(K, before=scale)[3, 29] == pytest.approx(0.5e-15 * scale)
    assert noise_of(K) == pytest.approx(1e-5)
    K[29, 3] = 1e-13 * scale
    with pytest.raises(ValueError, match="not symmetric"):
        check_precomputed(K, before=scale)
    assert noise_of(np.eye(30)) == 0.0


@pytest.mark.parametrize(
    ("K", "message"),
    [
        (np.ones((3, 2)), r"X with kernel='precomputed' must be the square .* shape \(3, 2\)"),
        (np.ones(3), r"must be the square .* shape \(3,\)"),
        (np.ones((0, 0)), r"must be the square .* shape \(0, 0\)"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), "X with kernel='precomputed' .*NaN"),
        (np.array([[1.0, np.inf], [np.inf, 1.0]]), "NaN or infinite"),
        (np.array([[1.0, -np.inf], [0.0, 1.0]]), "NaN or infinite"),
        (np.array([[1.0, 0.5], [0.2, 1.0]]), r"not symmetric: .* is 0\.3, .*\(K \+ K\.T\) / 2"),
    ],
)
def test_check_precomputed_says_what_is_wrong(K, message):
    with pytest.raises(ValueError, match=message):
        check_precomputed(K)


# Custom


def tilted(x, y, power=1.0):
    return float(np.exp(-(np.abs(x - y).sum() ** power)))


@pytest.mark.parametrize("params", [{}, {"power": 0.5}])
def test_custom_is_called_as_kernel_ridge_calls_it(params):
    X, Y = make_rows(9, 3), make_rows(5, 3, seed=1)
    kernel = Custom(tilted, params)
    ridge = KernelRidge(kernel=tilted, kernel_params=params)
    assert_array_equal(kernel(X), ridge._get_kernel(X))
    assert_array_equal(kernel(X, Y), ridge._get_kernel(X, Y))
    assert_array_equal(kernel.diagonal(X), kernel(X).diagonal())


@pytest.mark.parametrize("form", FORMATS)
def test_custom_functions_of_rows_and_of_matrices(form):
    X, Y = FORMATS[form](make_rows(150, 3)), FORMATS[form](make_rows(4, 3, seed=1))

    def dot(x, y):
        return x @ y if isinstance(x, np.ndarray) else (x @ y.T).toarray()[0, 0]

    for kernel in (Custom(dot), Custom(lambda X, Y: X @ Y.T, on_matrices=True)):
        assert_close(kernel(X[:9]), Linear()(X[:9]))
        assert_close(kernel(X[:9], Y), Linear()(X[:9], Y))
        assert_close(kernel.diagonal(X), Linear().diagonal(X))


def test_custom_on_matrices_is_called_as_svc_calls_it():
    X = make_rows(40, 2, seed=8)
    y = np.where(X[:, 0] > 0, 1, -1)
    by_function = SVC(kernel=pairwise.laplacian_kernel).fit(X, y)
    kernel = Custom(pairwise.laplacian_kernel, on_matrices=True)
    by_matrix = SVC(kernel="precomputed").fit(kernel(X), y)
    assert_array_equal(by_matrix.decision_function(kernel(X, X)), by_function.decision_function(X))


def test_custom_does_not_write_into_what_the_function_keeps():
    kept = np.eye(3)
    K = Custom(lambda X, Y: kept, on_matrices=True)(np.ones((3, 1)))
    K += 1.0
    assert_array_equal(kept, np.eye(3))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda X, Y: np.ones(3), r"returned shape \(3,\) for 3 and 3 rows"),
        (lambda X, Y: np.triu(np.ones((3, 3))), "kernel=.* is not symmetric"),
        (lambda X, Y: np.full((3, 3), np.nan), "kernel=.* NaN or infinite"),
    ],
)
def test_custom_checks_what_the_function_returns(function, message):
    with pytest.raises(ValueError, match=message):
        Custom(function, on_matrices=True)(np.ones((3, 1)))


def test_custom_between_two_sets_must_be_finite():
    with pytest.raises(ValueError, match="NaN or infinite"):
        Custom(lambda x, y: np.inf)(np.ones((3, 1)), np.ones((2, 1)))


def test_custom_keeps_its_own_parameters_and_hashes():
    params = {"power": 0.5}
    kernel = Custom(tilted, params)
    params["power"] = 1.0
    assert kernel.params == {"power": 0.5}
    assert kernel != Custom(tilted, params)
    assert len({kernel, Custom(tilted, {"power": 0.5})}) == 1
    with pytest.raises(ValueError, match="function='rbf' is not callable"):
        Custom("rbf")


# Finding a kernel


@pytest.mark.parametrize(
    ("arguments", "kernel"),
    [
        ({"kernel": "rbf", "gamma": 0.3}, RBF(0.3)),
        ({"kernel": "rbf", "gamma": 0}, RBF(0.0)),
        ({"kernel": "rbf"}, RBF(0.25)),
        ({"kernel": "rbf", "gamma": "auto"}, RBF(0.25)),
        ({"kernel": "laplacian"}, Laplacian(0.25)),
        ({"kernel": "poly", "gamma": 2}, Polynomial(3, 2.0, 1.0)),
        ({"kernel": "polynomial", "degree": 2, "coef0": 0}, Polynomial(2, 0.25, 0.0)),
        ({"kernel": "linear", "gamma": "ignored"}, Linear()),
        ({"kernel": "cosine"}, Cosine()),
        ({"kernel": "precomputed"}, Precomputed()),
        ({"kernel": RBF(7.0), "gamma": 1.0}, RBF(7.0)),
        ({"kernel": tilted, "kernel_params": {"power": 2}}, Custom(tilted, {"power": 2})),
        ({"kernel": tilted, "on_matrices": True}, Custom(tilted, on_matrices=True)),
    ],
    ids=lambda value: re.sub(r" at 0x\w+", "", str(value)),
)
def test_find_kernel(arguments, kernel):
    assert find_kernel(X=np.ones((6, 4)), **arguments) == kernel


@pytest.mark.parametrize("name", ["rbf", "laplacian", "poly", "polynomial", "linear", "cosine"])
def test_found_kernels_equal_those_of_kernel_ridge(name):
    X = make_rows(20, 4)
    for gamma in (None, 0.7):
        ridge = KernelRidge(kernel=name, gamma=gamma, degree=2, coef0=0.5)
        kernel = find_kernel(name, gamma=gamma, degree=2, coef0=0.5, X=X)
        assert_close(kernel(X), ridge._get_kernel(X))


@pytest.mark.parametrize("form", FORMATS)
def test_gamma_scale_equals_that_of_svc(form):
    X = FORMATS[form](make_rows(30, 4, density=0.5) + (0 if "csr" in form else 3))
    y = np.tile([-1, 1], 15)
    svc = SVC(gamma="scale").fit(X, y)
    assert_allclose(resolve_gamma("scale", X), svc._gamma, rtol=1e-12)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("constant", [0.0, 0.125])
def test_gamma_scale_of_constant_features_is_1(form, constant):
    assert resolve_gamma("scale", FORMATS[form](np.full((7, 3), constant))) == 1.0


def test_gamma_scale_of_sparse_rows_does_not_cancel():
    X = 1e6 + np.arange(12.0).reshape(4, 3) / 8
    assert_allclose(resolve_gamma("scale", sparse.csr_array(X)), 1 / (3 * X.var()), rtol=1e-12)


def test_gaussian_process_kernels_are_called_on_matrices():
    X, Y = make_rows(10, 3), make_rows(4, 3, seed=1)
    function = gp.RBF(1.5) + gp.DotProduct()
    kernel = find_kernel(function)
    ridge = KernelRidge(kernel=function)
    assert kernel.on_matrices
    assert_close(kernel(X), ridge._get_kernel(X))
    assert_close(kernel(X, Y), ridge._get_kernel(X, Y))
    assert_close(kernel.diagonal(X), function.diag(X))
    assert hash(kernel) == hash(find_kernel(function))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel": "rfb"}, r"kernel='rfb' is not known; did you mean 'rbf'\?"),
        ({"kernel": "lineal"}, r"did you mean 'linear'\?"),
        ({"kernel": "zzz"}, "kernel='zzz' is not known; use one of 'rbf', .*callable"),
        ({"kernel": None}, "kernel=None is not known"),
        ({"kernel": 3}, "kernel=3 is not known"),
        ({"kernel": "sigmoid"}, "kernel='sigmoid' is not supported: .*not positive semi-definite"),
        ({"kernel": "chi2"}, "kernel='chi2' is not supported: .*precomputed"),
        ({"kernel": "additive_chi2"}, "conditionally positive definite.*precomputed"),
        ({"kernel": "rbf", "gamma": -1.0}, r"gamma=-1.0 is not allowed: .* finite number >= 0"),
        ({"kernel": "rbf", "gamma": np.inf}, "gamma=inf is not allowed"),
        ({"kernel": "laplacian", "gamma": np.nan}, "gamma=nan is not allowed"),
        ({"kernel": "rbf", "gamma": [1.0]}, "gamma has 1 entries, but X has 4 features"),
        ({"kernel": "rbf", "gamma": "scales"}, "gamma='scales' is not known; .*'scale', 'auto'"),
        ({"kernel": "rbf", "X": None}, "gamma=None depends on the data; pass the training rows"),
        ({"kernel": "poly", "degree": 2.5}, r"degree=2.5 is not allowed: .*whole number"),
        ({"kernel": "poly", "degree": -1}, "degree=-1 is not allowed"),
        ({"kernel": "poly", "degree": np.nan}, "degree=nan is not allowed"),
        ({"kernel": "poly", "coef0": -1.0}, "coef0=-1.0 is not allowed: .*semi-definite"),
    ],
    ids=str,
)
def test_find_kernel_says_what_is_wrong(arguments, message):
    with pytest.raises(ValueError, match=message):
        find_kernel(**{"X": np.ones((6, 4)), **arguments})


@pytest.mark.parametrize(
    ("gamma", "expected"), [("scale", True), ("auto", False), (None, False), (0.1, False)]
)
def test_only_gamma_scale_depends_on_the_rows(gamma, expected):
    X = make_rows(10, 3)
    assert KernelChoice("rbf", gamma).depends_on_rows is expected
    assert (resolve_gamma(gamma, X) != resolve_gamma(gamma, X[:5])) is expected


def test_an_incomplete_kernel_cannot_be_made():
    class Incomplete(Kernel):
        def base_matrix(self, X, Y=None):
            return np.zeros((1, 1))

    with pytest.raises(TypeError, match="abstract"):
        Incomplete()

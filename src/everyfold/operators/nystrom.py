r"""Low-rank kernels from landmarks: :math:`\tilde K = C W_k^+ C^\top = V V^\top`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import ClassVar, Literal, TypeGuard

import numpy as np
from sklearn.utils import check_random_state

from everyfold import _extensions
from everyfold._progress import check_choice
from everyfold._typing import Array, Index, Matrix, Order, RandomState
from everyfold.io.samples import SAMPLE, Held, Sampled
from everyfold.kernels import Kernel
from everyfold.linalg.blas import product
from everyfold.linalg.symmetric import CHUNK, leading_cholesky
from everyfold.operators.base import OperatorSpec, Structure, SupportsGradient, SupportsResponse
from everyfold.operators.dense import Dense, KernelExpansion
from everyfold.operators.features import PROBE, LandmarkFeatures
from everyfold.operators.landmarks import centres, rp_cholesky, uniform
from everyfold.operators.lowrank import DualLowRankResponse, LowRank, LowRankResponse, Mapped
from everyfold.operators.response import StructureError

# The most landmarks that are taken where no number is asked for: cost grows with their square.
DEFAULT_LANDMARKS = 1000

# The share of the largest pivot down to which landmarks count as independent: a Cholesky factor
# takes a tenth of the time of an eigendecomposition, which drops those that depend on others.
_PIVOTS = 1e-5

# Steps of power iteration for the norm of what an approximation leaves, of a product each.
_POWER_STEPS = 30

Sampling = Literal["uniform", "rpcholesky", "kmeans"]


@dataclass(frozen=True)
class Nystrom(Mapped):
    r"""Nyström approximation: represent the kernel by its values at c landmarks, with rank c.

    Parameters
    ----------
    n_landmarks : int, float or "auto", optional
        Their number c, or their share of the rows; by default up to 1000. If there are fewer rows
        than this, all rows are landmarks, with a warning. With "auto", a search starts with 128 and
        doubles the number until the best score has converged; the winner gets the number that was
        found. In a single fit "auto" means the default.
    rank : int or float, optional
        How many leading eigenvectors of the kernel between the landmarks to keep, or a share of
        them; by default all that are numerically nonzero. The choice of the 2012 paper is
        ``Nystrom(0.1, 0.5, sampling="uniform")``.
    sampling : {"rpcholesky", "uniform", "kmeans"}, default="rpcholesky"
        "rpcholesky" (randomly pivoted Cholesky) draws rows with a probability proportional to their
        residual variance given the landmarks so far, which needs far fewer landmarks if the data
        are clustered; "uniform" draws rows without replacement; "kmeans" uses cluster centres.
    tol : float, default=1e-6
        "rpcholesky" stops as soon as the residual trace is at most this share of the trace of the
        kernel matrix.
    random_state : int, RandomState or None, default=None
        An int gives the same landmarks every time.
    replaces : {"kernel", "response"}, default="kernel"
        "kernel" fits the low-rank model. "response" is t-FBIF, the fast Bouligand influence
        function of Liu et al. (2018): the fit and the gradient of every fold use the full kernel,
        and only the inverse of the BIF matrix is of low rank. Use it with
        ``method=everyfold.papers.t_bif()`` for the order and the ridge of the paper. With an
        intercept, K is replaced everywhere in the bordered system of f and b.
    per_fold : bool, default=False
        Whether landmarks are drawn from every training set anew, as a refit does and as in the 2012
        paper (Algorithm 2). By default all folds share landmarks drawn from all rows.
    predicts_with : {"features", "kernel"}, default="features"
        "features" predicts with the low-rank kernel. "kernel" predicts with the dual coefficients
        of the low-rank fit and the true kernel, as in the 2012 paper (Algorithm 1): n kernel
        evaluations per row instead of c.

    Notes
    -----
    **Cost** n c kernel evaluations, n c² flops and 8 n c bytes; a prediction needs c kernel
    evaluations per row. With ``per_fold=True`` this is needed for every fold. With
    ``replaces="response"``: one fit with the full kernel for each ridge, and in addition c³ + n² +
    n c² + t n c for the first order of t folds.
    **Exact?** Folds equal refits of the low-rank model with the same landmarks, which are chosen
    once from all rows; the model itself approximates that of the full kernel. With
    ``per_fold=True`` folds equal complete refits of the low-rank model. With
    ``replaces="response"`` the model is exact, and its folds are approximate.

    Examples
    --------
    >>> from everyfold.kernels import RBF
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> operator = Nystrom(40, random_state=0).bind(RBF(0.1), X)
    >>> operator.rank <= 40, operator.residual_trace < 0.01
    (True, True)
    """

    n_landmarks: int | float | Literal["auto"] | None = None
    rank: int | float | None = None
    sampling: Sampling = "rpcholesky"
    tol: float = 1e-6
    random_state: RandomState = None
    replaces: Literal["kernel", "response"] = "kernel"
    per_fold: bool = False
    predicts_with: Literal["features", "kernel"] = "features"

    is_approximate: ClassVar[bool] = True
    kind: ClassVar[str] = "landmarks"

    def __post_init__(self) -> None:
        for name in ("n_landmarks", "rank"):
            value = getattr(self, name)
            if name == "n_landmarks" and isinstance(value, str) and value == "auto":
                continue
            if value is not None and not _is_count(value) and not _is_share(value):
                more = ", 'auto'" if name == "n_landmarks" else ""
                raise ValueError(
                    f"{name}={value!r} is not allowed; use an integer >= 1, a share between 0 and "
                    f"1{more}, or None"
                )
        check_choice("sampling", self.sampling, ("uniform", "rpcholesky", "kmeans"))
        if not (isinstance(self.tol, Real) and 0.0 <= float(self.tol) < 1.0):
            raise ValueError(f"tol={self.tol!r} is not allowed; use a number >= 0 and < 1")
        self._check_forms()
        rank, count = self.rank, self.n_landmarks
        if _is_count(rank) and _is_count(count) and _number(rank, rank) > _number(count, count):
            raise ValueError(
                f"rank={self.rank} is more than n_landmarks={self.n_landmarks}; the kernel between "
                "the landmarks has no more eigenvectors than that"
            )

    def _check_forms(self) -> None:
        """Refuse forms that are not known, or do not go together."""
        check_choice("replaces", self.replaces, ("kernel", "response"))
        check_choice("per_fold", self.per_fold, (True, False))
        check_choice("predicts_with", self.predicts_with, ("features", "kernel"))
        if self.replaces == "response" and (self.per_fold or self.predicts_with == "kernel"):
            raise ValueError(
                "replaces='response' fits all rows once and predicts with the full kernel; it "
                "cannot be combined with per_fold=True or predicts_with='kernel'"
            )

    def check_order(self, order: Order) -> None:
        """See base class."""
        if self.replaces == "response" and order == "exact":
            raise ValueError(
                "order='exact' refits every fold, so that there is no inverse that "
                "replaces='response' could approximate; use replaces='kernel', or order=1 "
                "(t-FBIF), a higher order or inf"
            )
        is_series = order not in ("auto", "exact", "screen", np.inf)
        if is_series and (self.per_fold or self.predicts_with == "kernel"):
            raise ValueError(
                f"order={order!r} expands the fit on all rows, which per_fold=True and "
                "predicts_with='kernel' do not have; use method='auto' or plain landmarks"
            )

    def outline(self, n_rows: int, n_features: int, *, is_per_fold: bool = False) -> OperatorSpec:
        """See base class."""
        found = super().outline(n_rows, n_features, is_per_fold=is_per_fold or self.per_fold)
        if self.replaces == "kernel":
            return replace(found, predicts_by_split=self.predicts_with == "kernel")
        rank = self._kept(self.count(n_rows))
        return replace(found, is_approximate=False, response_rank=rank)

    @property
    def needs_base(self) -> bool:  # type: ignore[override]  # a constant elsewhere
        """See base class: where the full kernel is there as well."""
        return self.replaces == "response"

    @property
    def reads_sources(self) -> bool:  # type: ignore[override]  # likewise
        """See base class: only the plain form does."""
        is_plain = self.replaces == "kernel" and self.predicts_with == "features"
        return is_plain and not self.per_fold

    def needs_blocks(self, n_rows: int, n_features: int) -> bool:
        """See base class; other forms than the plain one hold what they work with."""
        is_plain = self.replaces == "kernel" and self.predicts_with == "features"
        return is_plain and super().needs_blocks(n_rows, n_features)

    def to_fit(self) -> Structure:
        """See base class: the full kernel where only responses are of low rank."""
        return self if self.replaces == "kernel" else Dense()

    def count(self, n: int) -> int:
        """The number of landmarks for n rows."""
        asked = self.n_landmarks
        if asked is None or asked == "auto":
            asked = DEFAULT_LANDMARKS
        return _number(asked, n)

    def raw_width_for(self, n_rows: int, n_features: int) -> int:
        """See base class."""
        return self.count(n_rows)

    def rows_sampled(self, n_rows: int, most: int) -> int:
        """See base class."""
        return min(n_rows, self.count(n_rows) + PROBE if self.sampling == "uniform" else most)

    def rank_for(self, n_rows: int, n_features: int) -> int:
        """See base class."""
        return n_rows if self.replaces == "response" else self._kept(self.count(n_rows))

    def _kept(self, count: int) -> int:
        return count if self.rank is None else _number(self.rank, count)

    def bind(self, kernel: Kernel, X: Matrix) -> SupportsResponse:  # type: ignore[override]
        """See base class."""
        low = self.landmarks(kernel, X)
        if self.replaces == "response":
            return _with_full_kernel(kernel(X), low, kernel, X)
        if self.predicts_with == "kernel":
            return DualNystrom(low.V, low.features, low.trace, X)
        return low

    def bind_shared(self, kernel: Kernel, X: Matrix, base: Array) -> SupportsResponse:
        """See base class."""
        return _with_full_kernel(kernel.from_base(base), self.landmarks(kernel, X), kernel, X)

    def landmarks(self, kernel: Kernel, X: Matrix) -> NystromMatrix:
        """The low-rank kernel of the rows of ``X``, whatever it is for."""
        n = X.shape[0]
        if _is_count(self.n_landmarks) and self.count(n) < int(self.n_landmarks or 0):
            warnings.warn(
                f"n_landmarks={self.n_landmarks} is more than the {n} rows: all of them are "
                "landmarks, which saves nothing; use fewer, or operator='dense'",
                UserWarning,
                stacklevel=3,
            )
        trace = float(kernel.diagonal(X).sum())
        if self.sampling != "rpcholesky" or n > SAMPLE:
            features = self.feature_map(kernel, Held(X))
            return NystromMatrix(features(X), features, trace, X=self._rows(X))
        random = check_random_state(self.random_state)
        features, F, pivots = self._pivoted(kernel, X, self.count(n), random)
        return NystromMatrix(F, features, trace, pivots, self._rows(X))

    def _rows(self, X: Matrix) -> Matrix | None:
        """What the operator needs to say how it changes, which a truncated one cannot."""
        return X if self.rank is None else None

    def feature_map(self, kernel: Kernel, rows: Sampled) -> LandmarkFeatures:
        """See base class; of more than ``rows.most_rows``, so many are read."""
        n = rows.n_rows
        assert n is not None
        random = check_random_state(self.random_state)
        count = self.count(n)
        if self.sampling == "uniform":
            more = 0 if kernel.base == "precomputed" else PROBE
            drawn = uniform(n, count + more, random)
            X = rows.take(drawn)
            landmarks = kernel.anchors(X[:count], drawn[:count])
            W = kernel(X[:count], landmarks)
            probe = _own(X[count:]) if len(drawn) > count else X
            return LandmarkFeatures.of(kernel, landmarks, W, self._kept(count), probe)
        most = rows.most_rows
        X = rows.take(np.arange(n) if n <= most else np.sort(uniform(n, most, random)))
        if self.sampling == "kmeans":
            _refuse_centres(kernel)
            landmarks = centres(X, count, random)
            W = kernel(landmarks, landmarks)
            return LandmarkFeatures.of(kernel, landmarks, W, self._kept(count), _own(X[:PROBE]))
        return self._pivoted(kernel, X, count, random)[0]

    def _pivoted(
        self, kernel: Kernel, X: Matrix, count: int, random: np.random.RandomState
    ) -> tuple[LandmarkFeatures, Array, Index]:
        """The map, the features of the rows, and the pivots."""
        found = rp_cholesky(kernel, X, count, self.tol, random)
        landmarks = kernel.anchors(X[found.rows], found.rows)
        L = found.F[found.rows]
        features = LandmarkFeatures.of_factor(kernel, landmarks, L, _own(X[:PROBE]))
        if self.rank is None:
            return features, found.F, found.rows
        features, rotation = features.truncated(self._kept(len(found.rows)))
        return features, np.ascontiguousarray(product(found.F, rotation)), found.rows


def _with_full_kernel(K: Array, low: LowRank, kernel: Kernel, X: Matrix) -> SupportsResponse:
    """The full kernel with responses of low rank, the t-FBIF of ``everyfold.papers``."""
    made: SupportsResponse = _extensions.find(_extensions.OPERATORS, "t-FBIF")(K, low, kernel, X)
    return made


def _own(rows: Matrix) -> Matrix:
    """Rows without those that they are a part of, which would be held as long as they are."""
    return rows.copy() if isinstance(rows, np.ndarray) else rows


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def _is_share(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, Integral) and 0.0 < float(value) < 1.0


def _number(asked: float, whole: float) -> int:
    """A number that was asked for as such or as a share of the whole, at least 1."""
    if _is_share(asked):
        return max(1, round(float(asked) * int(whole)))
    return min(int(asked), int(whole))


def _refuse_centres(kernel: Kernel) -> None:
    if kernel.base == "precomputed":
        raise StructureError(
            "sampling='kmeans' takes centres of clusters, which a matrix with "
            "kernel='precomputed' has no columns for; use 'rpcholesky' or 'uniform'"
        )


@dataclass(frozen=True)
class Quality:
    """How well a low-rank kernel approximates the full kernel.

    Attributes
    ----------
    landmarks, rank : int
    residual_trace : float
        tr(K − K̃), an upper bound of ‖K − K̃‖₂.
    relative : float
        The same as a share of tr(K).
    """

    landmarks: int
    rank: int
    residual_trace: float
    relative: float


class NystromMatrix(LowRank, SupportsGradient):
    """K̃ = V Vᵀ from landmarks, and how far it is from K."""

    def __init__(
        self,
        V: Array,
        features: LandmarkFeatures,
        trace: float,
        pivots: Index | None = None,
        X: Matrix = None,
    ) -> None:
        super().__init__(V, features, X)
        self.features = features
        self.trace = trace
        self.pivots = pivots
        # tr(K − K̃) ≥ ‖K − K̃‖₂, as K − K̃ is positive semi-definite.
        self.residual_trace = max(0.0, trace - float(np.vdot(V, V)))

    @property
    def outline(self) -> OperatorSpec:
        """See base class."""
        return OperatorSpec(self.rank, is_approximate=True)

    @property
    def quality(self) -> Quality:
        """See :class:`Quality`."""
        residual = self.residual_trace
        share = residual / self.trace if self.trace > 0.0 else 0.0
        return Quality(len(self.features.T), self.V.shape[1], residual, share)

    def restrict(self, rows: Index) -> LowRank:
        """See base class: the same landmarks."""
        return LowRank(self.V[rows], self.features)

    def slopes(self, left: Array, right: Array) -> Array:
        r"""See base class, with landmarks that stay where they are; n c flops a column and feature.

        With C the kernel between rows and landmarks and :math:`F = CW^{-1}`, the matrix
        :math:`CW^{-1}C^\top` changes by :math:`dC\,F^\top + F\,dC^\top - F\,dW\,F^\top`.
        """
        if self._X is None:
            raise ValueError(
                "Nystrom(rank=...) keeps only some eigenvectors, which change with gamma, so "
                "that there is no gradient; use rank=None"
            )
        kernel, landmarks = self.features.kernel, self.features.landmarks
        F = product(self.V, self.features.T.T)
        L_F, R_F = product(left.T, F), product(right.T, F)
        weights = product(left, R_F) + product(right, L_F)
        C, W = kernel(self._X, landmarks), kernel(landmarks)
        slopes = kernel.slopes(self._X, landmarks, np.ascontiguousarray(weights), C)
        return slopes - kernel.slopes(landmarks, None, product(L_F.T, R_F).T, W)

    def residual_norm(self, X: Matrix, steps: int = _POWER_STEPS) -> float:
        """‖K − K̃‖₂ by power iteration; each step evaluates the kernel of all rows once."""
        kernel = self.features.kernel
        x = np.random.default_rng(0).standard_normal((self.n, 1))
        norm = 0.0
        step = max(1, CHUNK // self.n)
        for _ in range(steps):
            x /= max(float(np.linalg.norm(x)), np.finfo(np.float64).tiny)
            full = [kernel(X[i : i + step], X) @ x for i in range(0, self.n, step)]
            x = np.concatenate(full) - self.matmat(x)
            norm = float(np.linalg.norm(x))
        return norm


@dataclass(frozen=True, eq=False)
class FixedLandmarks(Mapped):
    """Represent a kernel by landmarks that are given, whatever its parameters.

    What :class:`Nystrom` draws depends on gamma; along a path of gammas it has to stay.

    **Cost** as :class:`Nystrom` without the drawing: n c² + c³ flops.

    Attributes
    ----------
    landmarks : {array, CSR matrix} of shape (c, d)
    """

    landmarks: Matrix

    is_approximate: ClassVar[bool] = True
    kind: ClassVar[str] = "landmarks"

    def feature_map(self, kernel: Kernel, rows: Sampled) -> LandmarkFeatures:
        """See base class."""
        W, count = kernel(self.landmarks), int(self.landmarks.shape[0])
        L = leading_cholesky(W)
        pivots = L.diagonal()
        if len(L) == count and pivots.min(initial=np.inf) > _PIVOTS * pivots.max(initial=0.0):
            return LandmarkFeatures.of_factor(kernel, self.landmarks, L, None)
        return LandmarkFeatures.of(kernel, self.landmarks, W, count, None)

    def bind(self, kernel: Kernel, X: Matrix) -> NystromMatrix:
        """See base class."""
        return self.bind_shared(kernel, X, None)

    def bind_shared(self, kernel: Kernel, X: Matrix, base: Array | None) -> NystromMatrix:
        """See base class; ``base`` is the base matrix between the rows and the landmarks."""
        features = self.feature_map(kernel, Held(X))
        V = features(X) if base is None else product(features.columns(base), features.T)
        return NystromMatrix(V, features, float(kernel.diagonal(X).sum()), X=X)

    def raw_width_for(self, n_rows: int, n_features: int) -> int:
        """See base class."""
        return int(self.landmarks.shape[0])


class DualNystrom(NystromMatrix):
    """K̃ = V Vᵀ for the fit, and the true kernel for predictions (2012 paper, Algorithm 1).

    Coefficients are the dual ones of the low-rank model, one a row.
    """

    def __init__(self, V: Array, features: LandmarkFeatures, trace: float, X: Matrix) -> None:
        super().__init__(V, features, trace)
        self._X = X

    @property
    def outline(self) -> OperatorSpec:
        """See base class."""
        return replace(super().outline, predicts_by_split=True)

    def _response_kind(self) -> type[LowRankResponse]:
        return DualLowRankResponse

    def evaluate(self, coef: Array) -> Array:
        """See base class: K̃ a, the values of the fit."""
        return self.matmat(coef)

    # As those of any operator with a coefficient for each row, and not as those of features.
    coefficients, inherit = SupportsResponse.coefficients, SupportsResponse.inherit
    inner, drift, size_of_sums = (
        SupportsResponse.inner,
        SupportsResponse.drift,
        SupportsResponse.size_of_sums,
    )

    def restrict(self, rows: Index) -> DualNystrom:
        """See base class: the same landmarks."""
        return DualNystrom(self.V[rows], self.features, 0.0, self._X[rows])

    def cross(self, new: Index, rows: Index) -> Array:
        """See base class: the true kernel."""
        kernel = self.features.kernel
        return kernel(self._X[new], kernel.anchors(self._X[rows], rows))

    def link(self, X: Matrix) -> Array:
        """See base class: likewise."""
        return self.features.kernel(X, self._X)

    def expand(self, coef: Array) -> KernelExpansion:
        """See base class: likewise."""
        return KernelExpansion(self.features.kernel, self._X, coef)

r"""Low-rank kernels from landmarks: :math:`\tilde K = C W_k^+ C^\top = V V^\top`."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils import check_random_state

from everyfold.kernels import Kernel, Precomputed
from everyfold.operators.base import StructureError
from everyfold.operators.dense import product
from everyfold.operators.features import PROBE, LandmarkFeatures
from everyfold.operators.landmarks import centres, rp_cholesky, uniform
from everyfold.operators.lowrank import LowRank, Mapped
from everyfold.operators.systems import CHUNK
from everyfold.rows.memory import Held, Sampled
from everyfold.types import Array, Index, Matrix, RandomState

DEFAULT_LANDMARKS = 1000
"""The most landmarks that are taken where no number is asked for."""

SAMPLE = 20_000
"""Rows, drawn uniformly, that landmarks of a longer source are chosen from."""

_POWER_STEPS = 30

Sampling = Literal["uniform", "rpcholesky", "kmeans"]


@dataclass(frozen=True)
class Nystrom(Mapped):
    r"""Represent the kernel by its values at c landmarks: rank c instead of n.

    Parameters
    ----------
    n_landmarks : int or float, optional
        Their number c, or their share of the rows; by default up to 1000. More than there are rows
        means all of them, with a warning.
    rank : int or float, optional
        Keep only the leading k eigenvectors of the kernel between the landmarks, or a share of
        them; by default all that are numerically there. The 2012 paper's choice is
        ``Nystrom(0.1, 0.5, sampling="uniform")``.
    sampling : {"rpcholesky", "uniform", "kmeans"}, default="rpcholesky"
        "uniform" draws rows without replacement; "rpcholesky" draws them by what the others leave
        unexplained, which needs far fewer where the data cluster; "kmeans" takes cluster centres.
    tol : float, default=1e-6
        "rpcholesky" stops where the residual trace is this share of the trace of the kernel.
    random_state : int, RandomState or None, default=None
        An int gives the same landmarks every time.

    Notes
    -----
    **Cost** n c kernel evaluations, n c² flops and 8 n c bytes; prediction takes c kernel
    evaluations a row.
    **Exact?** Folds are those of refitting the low-rank model with the same landmarks, which are
    chosen once, from all rows; the model itself approximates that of the full kernel.

    Examples
    --------
    >>> from everyfold.kernels import RBF
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> operator = Nystrom(40, random_state=0).bind(RBF(0.1), X)
    >>> operator.rank <= 40, operator.residual_trace < 0.01
    (True, True)
    """

    n_landmarks: int | float | None = None
    rank: int | float | None = None
    sampling: Sampling = "rpcholesky"
    tol: float = 1e-6
    random_state: RandomState = None

    is_approximate: ClassVar[bool] = True
    kind: ClassVar[str] = "landmarks"

    def __post_init__(self) -> None:
        for name in ("n_landmarks", "rank"):
            value = getattr(self, name)
            if value is not None and not _is_count(value) and not _is_share(value):
                raise ValueError(
                    f"{name}={value!r} is not allowed; use an integer >= 1, a share between 0 and "
                    "1, or None"
                )
        if self.sampling not in ("uniform", "rpcholesky", "kmeans"):
            raise ValueError(
                f"sampling={self.sampling!r} is not known; use 'uniform', 'rpcholesky' or 'kmeans'"
            )
        if not (isinstance(self.tol, Real) and 0.0 <= float(self.tol) < 1.0):
            raise ValueError(f"tol={self.tol!r} is not allowed; use a number >= 0 and < 1")
        rank, count = self.rank, self.n_landmarks
        if _is_count(rank) and _is_count(count) and _number(rank, rank) > _number(count, count):
            raise ValueError(
                f"rank={self.rank} is more than n_landmarks={self.n_landmarks}; the kernel between "
                "the landmarks has no more eigenvectors than that"
            )

    def count(self, n: int) -> int:
        """The number of landmarks among n rows."""
        asked = DEFAULT_LANDMARKS if self.n_landmarks is None else self.n_landmarks
        return _number(asked, n)

    def raw_width_for(self, n_rows: int, n_features: int) -> int:
        """See base class."""
        return self.count(n_rows)

    def rank_for(self, n_rows: int, n_features: int) -> int:
        """See base class."""
        return self._kept(self.count(n_rows))

    def _kept(self, count: int) -> int:
        return count if self.rank is None else _number(self.rank, count)

    def bind(self, kernel: Kernel, X: Matrix) -> NystromMatrix:
        """See base class."""
        n = X.shape[0]
        if _is_count(self.n_landmarks) and self.count(n) < int(self.n_landmarks or 0):
            warnings.warn(
                f"n_landmarks={self.n_landmarks} is more than the {n} rows: all of them are "
                "landmarks, which saves nothing; use fewer, or operator='dense'",
                UserWarning,
                stacklevel=2,
            )
        trace = float(kernel.diagonal(X).sum())
        if self.sampling != "rpcholesky" or n > SAMPLE:
            features = self.feature_map(kernel, Held(X))
            return NystromMatrix(features(X), features, trace)
        random = check_random_state(self.random_state)
        features, F, pivots = self._pivoted(kernel, X, self.count(n), random)
        return NystromMatrix(F, features, trace, pivots)

    def feature_map(self, kernel: Kernel, rows: Sampled) -> LandmarkFeatures:
        """See base class; of more than ``SAMPLE`` rows, so many are looked at."""
        n = rows.n_rows
        assert n is not None
        random = check_random_state(self.random_state)
        count = self.count(n)
        if self.sampling == "uniform":
            more = 0 if isinstance(kernel, Precomputed) else PROBE
            drawn = uniform(n, count + more, random)
            X = rows.take(drawn)
            landmarks = kernel.anchors(X[:count], drawn[:count])
            W = kernel(X[:count], landmarks)
            probe = X[count:] if len(drawn) > count else X
            return LandmarkFeatures.of(kernel, landmarks, W, self._kept(count), probe)
        X = rows.take(np.arange(n) if n <= SAMPLE else np.sort(uniform(n, SAMPLE, random)))
        if self.sampling == "kmeans":
            _refuse_centres(kernel)
            landmarks = centres(X, count, random)
            W = kernel(landmarks, landmarks)
            return LandmarkFeatures.of(kernel, landmarks, W, self._kept(count), X[:PROBE])
        return self._pivoted(kernel, X, count, random)[0]

    def _pivoted(
        self, kernel: Kernel, X: Matrix, count: int, random: np.random.RandomState
    ) -> tuple[LandmarkFeatures, Array, Index]:
        """The map, the features of the rows, and the pivots."""
        found = rp_cholesky(kernel, X, count, self.tol, random)
        landmarks = kernel.anchors(X[found.rows], found.rows)
        L = found.F[found.rows]
        features = LandmarkFeatures.of_factor(kernel, landmarks, L, X[:PROBE])
        if self.rank is None:
            return features, found.F, found.rows
        features, rotation = features.truncated(self._kept(len(found.rows)))
        return features, np.ascontiguousarray(product(found.F, rotation)), found.rows


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def _is_share(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, Integral) and 0.0 < float(value) < 1.0


def _number(asked: Any, whole: Any) -> int:
    """A number that was asked for as such or as a share of the whole, at least 1."""
    if _is_share(asked):
        return max(1, round(float(asked) * int(whole)))
    return min(int(asked), int(whole))


def _refuse_centres(kernel: Kernel) -> None:
    if isinstance(kernel, Precomputed):
        raise StructureError(
            "sampling='kmeans' takes centres of clusters, which a matrix with "
            "kernel='precomputed' has no columns for; use 'rpcholesky' or 'uniform'"
        )


@dataclass(frozen=True)
class Quality:
    """How well a low-rank kernel stands for the full one.

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


class NystromMatrix(LowRank):
    """K̃ = V Vᵀ from landmarks, and how far it is from K."""

    is_approximation = True

    def __init__(
        self, V: Array, features: LandmarkFeatures, trace: float, pivots: Index | None = None
    ) -> None:
        super().__init__(V, features)
        self.features = features
        self.trace = trace
        self.pivots = pivots
        # tr(K − K̃) ≥ ‖K − K̃‖₂, as K − K̃ is positive semi-definite.
        self.residual_trace = max(0.0, trace - float(np.vdot(V, V)))

    @property
    def quality(self) -> Quality:
        """See :class:`Quality`."""
        residual = self.residual_trace
        share = residual / self.trace if self.trace > 0.0 else 0.0
        return Quality(len(self.features.T), self.V.shape[1], residual, share)

    def restrict(self, rows: Index) -> LowRank:
        """See base class: the same landmarks."""
        return LowRank(self.V[rows], self.features)

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


def model_error_bound(
    residual_norm: float, n: int, ridge: float, *, kappa: float = 1.0, offset: float = 0.0
) -> float:
    r"""The 2012 paper's bound on what replacing K by K̃ does to an LS-SVM's decision values.

    .. math:: |f'(x) - f(x)| \le \frac{\kappa(1 + \zeta)}{n\mu_0^2}\|\tilde K - K\|_2,
              \qquad \mu_0 = \mu / n

    for labels ±1 and both models with the same offset ζ.

    Parameters
    ----------
    residual_norm : float
        ‖K̃ − K‖₂, measured, or the residual trace as an upper bound of it.
    n : int
    ridge : float
        μ, the ridge of (K + μ I).
    kappa : float, default=1
        An upper bound of k(x, x).
    offset : float, default=0
        |ζ|.

    Examples
    --------
    >>> model_error_bound(1e-3, n=100, ridge=10.0)
    0.001
    """
    return kappa * (1.0 + abs(offset)) * n * residual_norm / ridge**2


def expected_residual(
    diagonal: Array, tail: float, count: int, *, rank: int, confidence: float = 0.9
) -> float:
    r"""The a-priori bound on ‖K̃ − K‖₂ of uniform sampling (2012 paper, Theorem 3).

    .. math:: \|K - K_k\|_F + \epsilon\Bigl[\tfrac{n}{c}\sum_{i \in D(c)} K_{ii}
              \bigl(\sqrt{n \textstyle\sum K_{ii}^2} + \eta \max n K_{ii}\bigr)\Bigr]^{1/2}

    with :math:`\epsilon = (64 k / c)^{1/4}`, the smallest that the theorem allows.

    Parameters
    ----------
    diagonal : array of shape (n,)
    tail : float
        ‖K − K_k‖_F, the norm of the eigenvalues beyond the k-th.
    count, rank : int
        c and k.
    confidence : float, default=0.9
        1 − δ.
    """
    n, epsilon = len(diagonal), (64.0 * rank / count) ** 0.25
    rest = n - count
    g = count * rest / (n - 0.5) / (1.0 - 1.0 / (2.0 * max(count, rest)))
    eta = math.sqrt(max(math.log(2.0 / (1.0 - confidence)) * g, 0.0) / count)
    largest = float(np.sort(diagonal)[-count:].sum())
    spread = math.sqrt(n * float(diagonal @ diagonal)) + eta * n * float(diagonal.max())
    return float(tail + epsilon * math.sqrt(n / count * largest * spread))

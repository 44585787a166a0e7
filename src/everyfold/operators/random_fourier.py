"""Random Fourier features: shift-invariant kernels as averages of random waves.

The waves do not depend on the rows, so that rows may come from any source.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from numbers import Integral
from typing import ClassVar

import numpy as np
from sklearn.utils import check_random_state

from everyfold._typing import Array, Matrix, RandomState
from everyfold.io.samples import Sampled
from everyfold.kernels import Kernel
from everyfold.operators.features import FeatureMap, fingerprint
from everyfold.operators.lowrank import Mapped
from everyfold.operators.response import StructureError


@dataclass(frozen=True)
class RandomFourier(Mapped):
    r"""Random Fourier features: represent an rbf or Laplacian kernel by c random waves.

    A shift-invariant kernel is the mean of :math:`\cos(\omega^\top(x - x'))` over random directions
    ω from its Fourier transform: normal for the rbf, Cauchy for the Laplacian kernel (Rahimi &
    Recht 2007).

    Parameters
    ----------
    n_components : int, default=1000
        The number of features c: a cosine and a sine for each direction, so that an odd number is
        rounded up.
    random_state : int, RandomState or None, default=None
        An int gives the same directions every time.

    Notes
    -----
    **Cost** n c d flops and n c cosines, n c² flops more for a fit, and 8 n c bytes if the features
    are kept in memory. The features do not depend on the data. The error of a kernel value is about
    :math:`1/\sqrt c` for any data; `Nystrom` needs fewer features if the eigenvalues of the kernel
    decay fast.
    **Exact?** Folds equal refits of the low-rank model with the same directions; the model itself
    approximates that of the full kernel.

    Examples
    --------
    >>> from everyfold.kernels import RBF
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> V = RandomFourier(2000, random_state=0).bind(RBF(0.1), X).V
    >>> bool(np.abs(V @ V.T - RBF(0.1)(X)).max() < 0.2)
    True
    """

    n_components: int = 1000
    random_state: RandomState = None

    is_approximate: ClassVar[bool] = True
    kind: ClassVar[str] = "random waves"

    def __post_init__(self) -> None:
        c = self.n_components
        if not isinstance(c, Integral) or isinstance(c, bool) or int(c) < 1:
            raise ValueError(f"n_components={c!r} is not allowed; use an integer >= 1")

    def raw_width_for(self, n_rows: int, n_features: int) -> int:
        """See base class."""
        return 2 * self._n_directions

    @property
    def _n_directions(self) -> int:
        return (int(self.n_components) + 1) // 2

    def feature_map(self, kernel: Kernel, rows: Sampled) -> WaveFeatures:
        """See base class."""
        random, size = check_random_state(self.random_state), (rows.n_features, self._n_directions)
        waves = kernel.waves(random, size)
        if waves is None:
            raise StructureError(
                f"operator={self} stands for rbf and laplacian kernels, not for {kernel}; use "
                "operator=Nystrom(...), which takes any"
            )
        return WaveFeatures(*waves)


@dataclass(frozen=True)
class WaveFeatures(FeatureMap):
    """φ(x) = (cos scale ωᵀx, sin scale ωᵀx) / √m for m directions ω."""

    directions: Array
    scale: float

    @property
    def base_key(self) -> Hashable:
        """See base class: the directions, which all gammas share."""
        return "waves", fingerprint(self.directions)

    def base(self, X: Matrix) -> Array:
        """See base class: products with the directions."""
        return np.asarray(X @ self.directions, dtype=np.float64)

    def columns(self, B: Array, *, may_overwrite: bool = False) -> Array:
        """See base class: cosines, then sines."""
        m = self.directions.shape[1]
        phases = np.multiply(B, self.scale, out=B if may_overwrite else None)
        waves = np.empty((len(B), 2 * m))
        np.cos(phases, out=waves[:, :m])
        np.sin(phases, out=waves[:, m:])
        waves /= np.sqrt(m)
        return waves

    @property
    def raw_width(self) -> int:
        """See base class."""
        return int(2 * self.directions.shape[1])

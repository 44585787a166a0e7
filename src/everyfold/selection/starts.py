"""Where a descent may begin: what was given, or a small isotropic grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from everyfold.kernels import gamma_of_features, resolve_gamma
from everyfold.models.model import Model, read_ridge
from everyfold.selection.scales import Machine
from everyfold.types import Matrix, Params

START_GAMMAS = np.logspace(-2.0, 0.8, 5)
START_RIDGES = np.logspace(-5.0, 2.0, 8)
"""The isotropic grid: gammas relative to that of ``gamma="scale"``, and ridges."""


def grid_of(
    start: Literal["auto"] | Params, parameters: Sequence[str], machine: Machine, X: Matrix
) -> Params:
    """The gammas and ridges that are tried first; what is not tuned is the estimator's own."""
    own: Params = {
        "gamma": [getattr(machine.estimator, "gamma", 1.0)],
        "alpha": [getattr(machine.estimator, "alpha", 1.0)],
    }
    if start == "auto":
        gammas = _centre(machine.model, X) * (1.0 if machine.is_linear else START_GAMMAS)
        wide = {"gamma": np.atleast_1d(gammas), "alpha": START_RIDGES}
        own |= {name: wide[name] for name in parameters}
    else:
        own |= {name: [value] for name, value in start.items()}
    return {
        "gamma": [_read_gamma(gamma, X) for gamma in own["gamma"]],
        "alpha": [_read_alpha(alpha) for alpha in own["alpha"]],
    }


def _read_gamma(gamma: Any, X: Matrix) -> Any:
    """A gamma to begin from: a number, or one for each feature."""
    gammas = gamma_of_features(gamma)
    if gammas is None:
        gammas = (resolve_gamma(gamma, X),)
    if len(gammas) not in (1, X.shape[1]) or min(gammas) <= 0.0:
        raise ValueError(
            f"the start, gamma={gamma!r}, is not allowed; pass a number > 0, or one for each of "
            f"the {X.shape[1]} features"
        )
    return gammas[0] if len(gammas) == 1 else np.array(gammas)


def _read_alpha(alpha: Any) -> float:
    """Check the ridge that a descent starts from: one number > 0, as its logarithm is tuned."""
    (ridge,) = read_ridge(alpha)
    if ridge <= 0.0:
        raise ValueError(
            f"the start, alpha={alpha!r}, is not allowed, as its logarithm is tuned; pass a "
            "number > 0"
        )
    return ridge


def _centre(model: Model, X: Matrix) -> float:
    """A gamma in the middle of the usual range: that of "scale", in units of the kernel."""
    scale = resolve_gamma("scale", X)
    if model.choice.kernel != "laplacian":
        return scale
    n_features = int(X.shape[1])
    return math.sqrt(scale * n_features) / n_features

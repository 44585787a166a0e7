"""The kernel of a Gaussian process by the scores of its held-out distributions.

scikit-learn maximises the likelihood of all rows. Here L-BFGS-B climbs the mean score of the rows
that each fold leaves out, along its exact gradient and within the bounds of the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils import check_random_state

from everyfold._typing import Array, Estimator, Matrix
from everyfold.adapters.process_kernels import read_process
from everyfold.estimators.model import original
from everyfold.folds import Folds
from everyfold.gaussian_process.held_out_gradient import HeldOutScore

# A climb ends where a step gains less than this share of the score: differences that small are far
# within the standard error of a mean over folds.
TOLERANCE = 1e-6

# Iterations by default, which only end climbs that hardly gain: 12 hyper-parameters of the bundled
# diabetes data took 33 steps.
MOST_STEPS = 100

# What stands for the score, in place of NaN, where a kernel matrix is not definite.
_HOPELESS = -1e10


@dataclass(frozen=True)
class Climbed:
    """Where a climb has ended.

    Attributes
    ----------
    kernel : Kernel
    score : float
        The mean held-out score, more is better; -inf if no kernel matrix was definite.
    start : Kernel
    start_score : float
    steps : int
        Iterations.
    evaluations : int
        Scores with their gradients.
    """

    kernel: Kernel
    score: float
    start: Kernel
    start_score: float
    steps: int
    evaluations: int


def is_process(estimator: Estimator) -> bool:
    """Whether an estimator is scikit-learn's GaussianProcessRegressor."""
    return original(type(estimator)) is original(GaussianProcessRegressor)


def climb_process(
    estimator: Estimator, X: Matrix, Y: Array, folds: Folds, name: str, max_iter: int
) -> list[Climbed]:
    """Climbs from the kernel of the estimator, and from as many random ones as it asks for.

    Random kernels are drawn within the bounds as scikit-learn draws them: ``n_restarts_optimizer``
    of them, by the estimator's ``random_state``.
    """
    process = read_process(clone(estimator).set_params(optimizer=None))
    kernel, score = process.kernel, HeldOutScore(process, X, Y, folds, name)
    if kernel.n_dims == 0:
        raise ValueError(
            f"kernel={kernel} has no hyper-parameters to tune: all of their bounds are 'fixed'; "
            "give one of them bounds"
        )
    starts = [kernel.theta]
    if estimator.n_restarts_optimizer:
        if not np.isfinite(kernel.bounds).all():
            raise ValueError(
                f"n_restarts_optimizer={estimator.n_restarts_optimizer} draws kernels within their "
                "bounds, which have to be finite"
            )
        random = check_random_state(estimator.random_state)
        low, high = kernel.bounds.T
        starts += [random.uniform(low, high) for _ in range(estimator.n_restarts_optimizer)]
    return [_climb(score, theta, max_iter) for theta in starts]


def _climb(score: HeldOutScore, start: Array, max_iter: int) -> Climbed:
    """The nearest optimum."""
    known: list[float] = []
    # Errors are relative to that of the start, and densities are beside it, so that where a climb
    # ends does not depend on the unit of y: L-BFGS compares what it gains with the value itself.
    level, unit = 0.0, 1.0

    def loss(theta: Array) -> tuple[float, Array]:
        try:
            value, gradient = score(theta)
        except ArithmeticError:  # not positive definite to working precision
            value, gradient = np.nan, np.zeros_like(theta)
        nonlocal level, unit
        if not known and np.isfinite(value):
            if score.name == "log_density":
                level = value
            elif value < 0.0:
                unit = -value
        known.append(value if np.isfinite(value) else -np.inf)
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            return -_HOPELESS, np.zeros_like(theta)
        return (level - value) / unit, -gradient / unit

    kernel = score.process.kernel
    found = minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=kernel.bounds,
        options={"maxiter": max_iter, "ftol": TOLERANCE},
    )
    best = level - float(found.fun) * unit if -found.fun > _HOPELESS else -np.inf
    return Climbed(
        kernel.clone_with_theta(found.x),
        best,
        kernel.clone_with_theta(start),
        known[0],
        int(found.nit),
        len(known),
    )


def winner_of(found: list[Climbed]) -> int:
    """The number of the best climb; an error if no kernel matrix was definite."""
    best = int(np.argmax([climbed.score for climbed in found]))
    if not np.isfinite(found[best].score):
        raise ValueError(
            "the kernel matrix is not positive definite at the start, so that nothing can be "
            "tuned; use a larger alpha, a WhiteKernel, or another kernel to begin from"
        )
    return best


def summary_of_climbs(found: list[Climbed], name: str) -> str:
    """All climbs in words, a line each."""
    best = winner_of(found)
    lines = [
        f"{c.start_score:.4g} -> {c.score:.4g} in {c.steps} steps: {c.kernel}"
        f"{'  <- chosen' if k == best else ''}"
        for k, c in enumerate(found)
    ]
    return "\n".join([f"held-out {name.replace('_', ' ')}, mean over the folds", *lines])

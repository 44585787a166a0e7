r"""Scores of held-out distributions, and their gradient in all hyper-parameters of a kernel.

With :math:`G = A^{-1}` and :math:`C_S = (G_{SS})^{-1}` the covariance of a fold S,
:math:`U_S = G_{:S} C_S` and the residuals :math:`e_S = C_S r_S` with :math:`r_S = (G z)_S`,

.. math:: dC_S = U_S^\top dA\, U_S, \qquad de_S = U_S^\top dA\, (U_S r_S - G z).

A function of residuals and variances with the derivatives f in e and g in the diagonal of C
therefore changes by :math:`\langle B, dA\rangle` with

.. math:: B = \sum_S U_S\,\bigl(f_S r_S^\top + \mathrm{diag}\,g_S\bigr)\,U_S^\top
              - U_S f_S\,(G z)^\top .

The gradient in all hyper-parameters costs one product of n×n matrices more than the score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from everyfold._typing import Array, Index, Matrix
from everyfold.adapters.process_kernels import Process
from everyfold.folds import Folds
from everyfold.gaussian_process.held_out_gaussians import training_rules
from everyfold.linalg.memory import check_memory
from everyfold.linalg.symmetric import FactoredStack, refuse
from everyfold.operators.dense import DenseMatrix
from everyfold.operators.response import Quadratic

# A score of residuals and standard deviations, with its derivatives in both; more is better.
DistributionScore = Callable[[Array, Array], tuple[Array, Array, Array]]


def _log_density(e: Array, std: Array) -> tuple[Array, Array, Array]:
    z = e / std
    return np.asarray(norm.logpdf(z)) - np.log(std), -z / std, (z**2 - 1.0) / std


def _neg_squared_error(e: Array, std: Array) -> tuple[Array, Array, Array]:
    return -(e**2), -2.0 * e, np.zeros_like(std)


def _neg_crps(e: Array, std: Array) -> tuple[Array, Array, Array]:
    z = e / std
    above, height = 2.0 * norm.cdf(z) - 1.0, 2.0 * norm.pdf(z) - 1.0 / np.sqrt(np.pi)
    return -std * (z * above + height), -above, -height


SCORES: dict[str, DistributionScore] = {
    "log_density": _log_density,
    "squared": _neg_squared_error,
    "crps": _neg_crps,
}


@dataclass(frozen=True)
class HeldOutScore:
    """The mean score of held-out distributions as a function of the kernel's hyper-parameters.

    **Cost** of the score and all derivatives: one Cholesky factorisation with its inverse, a
    product of n×n matrices, and n² for each hyper-parameter, whose derivative of the kernel
    matrix scikit-learn makes. Memory: five n×n matrices and one for each hyper-parameter.
    **Exact?** Yes: those of refits of every fold with these hyper-parameters.

    Attributes
    ----------
    process : Process
        The kernel and the noise; the hyper-parameters of its kernel are not used.
    X : array of shape (n, d)
    Y : array of shape (n, q)
    folds : Folds
        Removals of rows.
    name : {"log_density", "squared", "crps"}
        What is scored; the latter two are negative, so that more is better.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> X = np.linspace(0.0, 3.0, 12)[:, None]
    >>> score = HeldOutScore(Process(RBF(), 1e-3, False), X, np.sin(X), Folds.leave_one_out(12))
    >>> value, gradient = score(np.log([0.1]))
    >>> bool(gradient[0] > 0.0)  # a longer scale is better
    True
    """

    process: Process
    X: Matrix
    Y: Array
    folds: Folds
    name: str = "log_density"

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """The score with these logarithms of the hyper-parameters, and its gradient in them.

        Raises NotPositiveDefiniteError where the kernel matrix is not definite.
        """
        n = len(self.Y)
        check_memory(n, max(n, n * (5 + len(theta)) // 3), "or fewer rows")
        kernel = self.process.kernel.clone_with_theta(theta)
        K, slopes = kernel(self.X, eval_gradient=True)
        value, B = self._slopes_of_matrix(np.array(K, dtype=np.float64))
        return value, np.einsum("ij,ijk->k", B, slopes)

    def _slopes_of_matrix(self, A: Array) -> tuple[float, Array]:
        """The score of a kernel matrix, and its derivative in every entry; overwrites A."""
        n, q = self.Y.shape
        process, folds = self.process, self.folds
        A.flat[:: n + 1] += process.noise(n)
        level = self.Y.mean(axis=0) if process.normalises else np.zeros(q)
        centred = self.Y - level
        columns = np.column_stack([centred, np.ones(n)]) if process.normalises else centred
        quadratic = Quadratic(np.ones(n), columns, intercept=False)
        response = DenseMatrix(A, is_semidefinite=True).respond(quadratic, 0.0)
        reduced, G = response.reduced(), response.residual_matrix()
        shift, unit = training_rules(process, centred, folds)

        value, B = 0.0, np.zeros((n, n))
        left, right = np.zeros((n, q)), np.zeros(n)  # what multiplies (G z)ᵀ and (G 1)ᵀ
        for stack in folds.stacks(np.ones(n, dtype=bool)):
            m = stack.rows.shape[1]
            blocks = G[stack.rows[:, :, None], stack.rows[:, None, :]]
            C = FactoredStack(blocks).solve(np.broadcast_to(np.eye(m), blocks.shape))
            variance = np.einsum("tii->ti", C)
            if not (variance > 0.0).all():  # NaN where a block is not definite
                raise refuse(0.0, 0.0)
            r = reduced[stack.rows]  # t × m × q
            own, scale = shift[stack.folds][:, None, :], unit[stack.folds][:, None, :]
            if process.normalises:
                r = r[:, :, :q] - own * r[:, :, q:]
            e = C @ r
            std = np.sqrt(variance)[:, :, None] * scale
            score, by_e, by_std = self._scored(e, std, stack.slots)
            value += score
            by_variance = (by_std * scale).sum(axis=2) / (2.0 * np.sqrt(variance))
            inner = by_e @ r.transpose(0, 2, 1)
            inner[:, np.arange(m), np.arange(m)] += by_variance
            # U = G_:S C_S and U (f rᵀ + diag g) of all folds of this size, side by side.
            U = G[:, stack.rows].transpose(1, 0, 2) @ C
            B += _side_by_side(U @ inner) @ _side_by_side(U).T
            pulled = U @ by_e
            left += pulled.sum(axis=0)
            right += (pulled * own).sum(axis=(0, 2))
        B -= left @ reduced[:, :q].T
        if process.normalises:
            B += np.outer(right, reduced[:, q])
        return value, B

    def _scored(self, e: Array, std: Array, slots: Index) -> tuple[float, Array, Array]:
        """The share of some folds in the score, with its derivatives: (t, m, q) each."""
        share = self.folds.shares[slots][:, :, None] / e.shape[2]
        score, by_e, by_std = SCORES[self.name](e, std)
        return float((share * score).sum()), share * by_e, share * by_std


def _side_by_side(each: Array) -> Array:
    """Matrices (t, n, m) as one of n rows."""
    return each.transpose(1, 0, 2).reshape(each.shape[1], -1)

"""Naive loops that anyone can check by eye: the oracles of the test suite.

Nothing here is shared with the library: plain NumPy, one fold and one target at a time, the
normal equations solved by `numpy.linalg.solve`.
"""

from __future__ import annotations

import numpy as np


def fit(K, y, w, rho, intercept):
    """Dual coefficients and intercept of weighted kernel ridge regression (bordered system)."""
    keep = np.flatnonzero(w > 0)
    n = len(keep)
    A = np.zeros((n + 1, n + 1))
    A[:n, :n] = K[np.ix_(keep, keep)] + rho * np.diag(1.0 / w[keep])
    A[:n, n] = A[n, :n] = 1.0 if intercept else 0.0
    A[n, n] = 0.0 if intercept else 1.0
    solved = np.linalg.solve(A, np.append(y[keep], 0.0))
    a = np.zeros(len(y))
    a[keep] = solved[:n]
    return a, solved[n]


def response(K, w, rho, intercept):
    """M of squared loss by its definition, (D + 2 rho K^-1)^-1, with the intercept's term."""
    D = np.diag(2.0 * w)
    M = np.linalg.solve(K @ D + 2.0 * rho * np.eye(len(K)), K)
    if intercept:
        one = np.ones(len(K))
        z = one - M @ D @ one
        M = M + np.outer(z, z) / (one @ D @ one - one @ D @ M @ D @ one)
    return M


def held_out(K, Y, w, ridge, intercept, folds, scaling="sum"):
    """Predictions of every fold's test rows by a fit on its training rows."""
    values = []
    for fold in folds:
        T = fold.train
        rho = ridge * (np.count_nonzero(w[T]) if scaling == "mean" else 1)
        columns = []
        for y in Y.T:
            a, b = fit(K[np.ix_(T, T)], y[T], w[T], rho, intercept)
            columns.append(K[np.ix_(fold.test, T)] @ a + b)
        values.append(np.column_stack(columns))
    return np.concatenate(values)


def series(K, Y, w, ridge, intercept, folds, order, scaling="sum"):
    """The influence series of a finite order, term by term as printed."""
    n = np.count_nonzero(w)
    rho = ridge * (n if scaling == "mean" else 1)
    M = response(K, w, rho, intercept)
    D = 2.0 * w
    values = []
    for fold in folds:
        S = fold.held
        columns = []
        for y in Y.T:
            a, b = fit(K, y, w, rho, intercept)
            u = K @ a + b
            g = 2.0 * w * (u - y)
            if scaling == "sum":
                M_SS = M[np.ix_(S, S)]
                term = M_SS @ g[S]
                total = np.zeros(len(S))
                for _ in range(order):
                    total += term
                    term = M_SS @ (D[S] * term)
                update = dict(zip(S, total, strict=True))
                columns.append([u[i] + update[i] for i in fold.test])
            else:
                m = np.count_nonzero(w[S])
                if m == 0:  # only rows without weight leave: nothing changes
                    columns.append(u[fold.test])
                    continue
                c = np.full(len(y), -1.0)
                c[S] += n / m
                epsilon = -m / (n - m)
                delta = -epsilon * M @ (c * g)
                total = delta.copy()
                for _ in range(order - 1):
                    delta = -epsilon * M @ (c * D * delta)
                    total += delta
                columns.append((u + total)[fold.test])
        values.append(np.column_stack(columns))
    return np.concatenate(values)


def minimise(K, forces, rho, intercept):
    """Fitted values at the minimum of any loss: damped Newton on its stationarity conditions.

    ``forces(u)`` are the slope and the curvature of the loss at the values u.
    """
    n = len(K)
    a, b = np.zeros(n), 0.0

    def violation(a, b):
        g = forces(K @ a + b)[0]
        return np.append(2 * rho * a + g, g.sum() if intercept else b)

    for _ in range(200):
        now = violation(a, b)
        if np.abs(now).max() < 1e-13:
            break
        D = forces(K @ a + b)[1]
        J = np.zeros((n + 1, n + 1))
        J[:n, :n], J[n, n] = 2 * rho * np.eye(n) + D[:, None] * K, 1.0
        if intercept:
            J[:n, n], J[n, :n], J[n, n] = D, D @ K, D.sum()
        step = np.linalg.lstsq(J, -now, rcond=None)[0]
        t = 1.0
        while t > 1e-6:
            after = violation(a + t * step[:n], b + t * step[n])
            if np.linalg.norm(after) <= np.linalg.norm(now):
                break
            t /= 2
        a, b = a + t * step[:n], b + t * step[n]
    assert np.abs(violation(a, b)).max() < 1e-12
    return K @ a + b

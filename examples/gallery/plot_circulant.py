"""
Circulant kernels: where they help, and where not
=================================================

A circulant matrix depends on the rows only by their order. If the rows are the points of a regular
grid, that is enough: leave-one-out of all candidates takes as long as a few Fourier transforms. If
the rows are in arbitrary order, selecting by it is worse than not selecting at all.
"""

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import LeaveOneOut

from everyfold import LSSVR, Circulant, FastGridSearchCV
from everyfold.papers import CirculantWarning

rng = np.random.default_rng(0)
side = 24
axis = np.linspace(0.0, 2.0 * np.pi, side, endpoint=False)
X = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
field = np.sin(X[:, 0]) * np.cos(2.0 * X[:, 1])
y = field + rng.normal(scale=0.3, size=field.size)
mixed = rng.permutation(len(X))
grid = {"gamma": np.logspace(-1, 2, 10), "alpha": np.logspace(-2, 2, 9)}


def select(operator, order):
    """The leave-one-out scores of all candidates, and the time in seconds."""
    search = FastGridSearchCV(
        LSSVR(),
        grid,
        cv=LeaveOneOut(),
        scoring="neg_mean_squared_error",
        operator=operator,
        refit=False,
    )
    start = time.perf_counter()
    with warnings.catch_warnings():  # the library warns about the last one
        warnings.simplefilter("ignore", CirculantWarning)
        search.fit(X[order], y[order])
    return search, time.perf_counter() - start


in_order = np.arange(len(X))
tried = {
    "exact": select("dense", in_order),
    "circulant, rows in order": select(Circulant(factors=(side, side)), in_order),
    "circulant, rows shuffled": select(Circulant(factors=(side, side)), mixed),
}

# %%
# Each selected candidate is then fitted with the exact kernel, and compared with the field without
# noise:

fig, axes = plt.subplots(1, 4, figsize=(13, 3.4), layout="constrained")
axes[0].imshow(y.reshape(side, side), vmin=-1.3, vmax=1.3, cmap="RdBu")
axes[0].set_title("noisy field")
for ax, (name, (search, seconds)) in zip(axes[1:], tried.items(), strict=True):
    best = search.cv_results_["params"][np.argmax(search.cv_results_["mean_test_score"])]
    fitted = LSSVR(**best).fit(X, y).predict(X)
    error = np.sqrt(np.mean((fitted - field) ** 2))
    ax.imshow(fitted.reshape(side, side), vmin=-1.3, vmax=1.3, cmap="RdBu")
    ax.set_title(f"{name}\nerror {error:.3f}, {seconds:.2f} s", fontsize=10)
for ax in axes:
    ax.set(xticks=[], yticks=[])

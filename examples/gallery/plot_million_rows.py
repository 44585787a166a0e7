"""
A million rows, read in blocks
==============================

With squared loss, all that is needed of a fold are sums over its rows. One pass over a source of
rows therefore gives all folds for all ridges. The source may be a file that is larger than memory;
in this example blocks are generated on demand and never kept together.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

from everyfold import LSSVR, FastGridSearchCV, Nystrom
from everyfold.streams import IteratedRows

BLOCK = 50_000


def blocks(total):
    """A function that yields the same rows in every pass."""

    def read():
        for number in range(total // BLOCK):
            rng = np.random.default_rng(number)
            X = rng.uniform(-1.0, 1.0, size=(BLOCK, 3))
            noise = rng.normal(scale=0.3, size=BLOCK)
            yield X, np.sin(4.0 * X[:, 0]) * X[:, 1] + X[:, 2] ** 2 + noise

    return read


grid = {"alpha": np.logspace(-4, 2, 13)}
model = LSSVR(gamma=1.0, operator=Nystrom(60, sampling="uniform", random_state=0))
sizes, times = [50_000, 200_000, 1_000_000], []
for total in sizes:
    start = time.perf_counter()
    search = FastGridSearchCV(model, grid, cv=10).fit(IteratedRows(blocks(total)))
    times.append(time.perf_counter() - start)
print(search.plan_)

# %%
# Each time includes ten folds for thirteen ridges, and the fit of the winner. Time grows with the
# number of rows, memory does not.

fig, ax = plt.subplots(layout="constrained")
ax.loglog(sizes, times, "o-", label="10 folds × 13 ridges, and the fit")
ax.loglog(sizes, times[-1] * np.array(sizes) / sizes[-1], "k:", label="proportional to rows")
ax.set(xlabel="rows", ylabel="seconds", title=f"R² of held-out rows: {search.best_score_:.3f}")
ax.legend()

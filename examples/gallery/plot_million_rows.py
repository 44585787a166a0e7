"""
A million rows, read in blocks
==============================

For squared loss a fold is a sum over its rows, so that one pass over a source of rows gives every
fold of every ridge. The source may be a file that is larger than memory; here blocks are made as
they are asked for, and never held together.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

from everyfold import LSSVR, FastGridSearchCV, Nystrom
from everyfold.streams import IteratedRows

BLOCK = 50_000


def blocks(total):
    """A function that gives the same rows on every pass."""

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
# Ten folds of thirteen ridges, and the fit of the winner. Time grows with the rows, memory does
# not.

fig, ax = plt.subplots(layout="constrained")
ax.loglog(sizes, times, "o-", label="10 folds × 13 ridges, and the fit")
ax.loglog(sizes, times[-1] * np.array(sizes) / sizes[-1], "k:", label="proportional to rows")
ax.set(xlabel="rows", ylabel="seconds", title=f"R² of held-out rows: {search.best_score_:.3f}")
ax.legend()

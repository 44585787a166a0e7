"""
Many rows: a search that climbs ranks
=====================================

From some thousand rows on, a search for squared loss evaluates all candidates at a low rank first,
gives those that could still win more of it, and ends with the full kernel matrix for the best few.
Every candidate says how far it got.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1

from everyfold import LSSVR, FastGridSearchCV

X, y = make_friedman1(2500, n_features=6, noise=1.0, random_state=0)
grid = {"gamma": np.logspace(-2, 1, 6), "alpha": np.logspace(-4, 1, 8)}
search = FastGridSearchCV(LSSVR(), grid, cv=5, random_state=0).fit(X, y)
print(search.plan_)

# %%
# The status of every candidate: the numbers of the exact ones are those of refits, the certified
# and the converged ones are known to be close, and the estimated ones were too far behind to be
# worth more.

shape = len(grid["alpha"]), len(grid["gamma"])
names = ["estimated", "converged", "certified", "exact"]
status = np.array([names.index(word) for word in search.cv_results_["status"]]).reshape(shape)
scores = search.cv_results_["mean_test_score"].reshape(shape)

fig, ax = plt.subplots(figsize=(7.5, 5), layout="constrained")
colours = plt.get_cmap("YlGnBu", len(names))
shown = ax.imshow(status, cmap=colours, vmin=-0.5, vmax=len(names) - 0.5, aspect="auto")
for (i, j), score in np.ndenumerate(scores):
    ax.text(j, i, f"{score:.3f}", ha="center", va="center", color="w" if status[i, j] > 2 else "k")
bar = fig.colorbar(shown, ticks=range(len(names)))
bar.ax.set_yticklabels(names)
ax.set(
    xticks=range(shape[1]),
    xticklabels=[f"{gamma:.2g}" for gamma in grid["gamma"]],
    yticks=range(shape[0]),
    yticklabels=[f"{alpha:.2g}" for alpha in grid["alpha"]],
    xlabel="gamma",
    ylabel="alpha",
    title="R² of five folds, and how certain it is",
)

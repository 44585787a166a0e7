"""
Many rows: a search that begins at low rank
===========================================

With some thousand rows and squared loss, a search evaluates all candidates with a low-rank
approximation first, increases the rank for those that could still win, and evaluates the best few
with the full kernel matrix. The status of every candidate says how certain its score is.
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
# The status of every candidate: exact scores equal those of refits, certified and converged scores
# are close to them, and candidates with estimated scores were too far behind to be evaluated more
# exactly.

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

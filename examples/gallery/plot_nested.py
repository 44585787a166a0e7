"""
Honest scores: nested against naive
===================================

The best score of a search is the largest of many noisy numbers. With random labels it suggests that
there is something to learn. Nested cross-validation and BBC-CV, which bootstraps the held-out rows
of all candidates, avoid this selection bias.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import StratifiedKFold

from everyfold import LSSVC, FastGridSearchCV
from everyfold.papers import MethodOptions

every = MethodOptions(keeps="all")  # BBC-CV needs the held-out values of all candidates
grid = {"gamma": np.logspace(-3, 1, 9), "alpha": np.logspace(-3, 2, 9)}
found = {"best_score_": [], "nested": [], "BBC-CV": []}
warnings.filterwarnings("ignore", ".*of its grid")  # the winner is random here
for seed in range(12):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(100, 5)), rng.permutation(np.repeat([0, 1], 50))
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    search = FastGridSearchCV(LSSVC(), grid, cv=folds, method=every).fit(X, y)
    found["best_score_"].append(search.best_score_)
    found["nested"].append(search.honest_score("nested", X, y, outer=5).estimate)
    found["BBC-CV"].append(search.honest_score(n_bootstraps=200).estimate)

# %%
# Twelve data sets of a hundred rows, 81 candidates each. The true accuracy is one half.

fig, ax = plt.subplots(layout="constrained")
for place, (name, values) in enumerate(found.items()):
    ax.plot(values, np.full(12, place) + np.linspace(-0.15, 0.15, 12), "o", alpha=0.6)
    ax.plot(np.mean(values), place, "k|", markersize=40)
    print(f"{name:12s} {np.mean(values):.3f}")
ax.axvline(0.5, color="grey", linestyle="--")
ax.set(yticks=range(3), yticklabels=list(found), xlabel="accuracy (labels are random)")
ax.set_title("Three scores where there is nothing to learn")

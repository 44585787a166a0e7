"""
A table of a paper: granularity
===============================

How many folds, and how many terms of the influence series, are needed to be within a tolerance of
cross-validation? Liu and Liao (2017) print a table for four tolerances. ``choose_granularity``
computes it by their rule, and by the optimum that the rule was meant to give.
"""

import matplotlib.pyplot as plt
import numpy as np

from everyfold import choose_granularity, granularity_bound

printed = {0.2: (4, 2), 0.1: (5, 3), 0.05: (6, 4), 0.01: (16, 14)}
setting = {"ridge": 1.0, "smoothing": 0.01}
print("tolerance   printed   computed   smallest t + r")
for tolerance, (folds, order) in printed.items():
    rule = choose_granularity(tolerance, **setting)
    smallest = choose_granularity(tolerance, rule="smallest", **setting)
    assert (rule.folds, rule.order) == (folds, order)
    print(
        f"{tolerance:9.2f}   {folds:2d}, {order:2d}    {rule.folds:2d}, {rule.order:2d}     "
        f"{smallest.folds:2d}, {smallest.order:2d}"
    )

# %%
# The bound on which the rule is based, over folds and terms. Circles are the printed table;
# triangles have the smallest sum of folds and terms under the same bound.

folds, orders = np.arange(2, 21), np.arange(1, 21)
bound = np.array([[granularity_bound(int(t), int(r), **setting) for t in folds] for r in orders])

fig, ax = plt.subplots(figsize=(7, 5), layout="constrained")
shown = ax.pcolormesh(folds, orders, np.log10(bound), cmap="magma_r", vmin=-2.5, vmax=0)
fig.colorbar(shown, label="log₁₀ of the bound")
lines = ax.contour(folds, orders, bound, levels=sorted(printed), colors="w", linewidths=1)
ax.clabel(lines, fmt="%g")
for tolerance, (t, r) in printed.items():
    smallest = choose_granularity(tolerance, rule="smallest", **setting)
    ax.plot(t, r, "o", color="C0", markeredgecolor="w", markersize=9)
    ax.plot(smallest.folds, smallest.order, "^", color="C2", markeredgecolor="w", markersize=9)
ax.set(xlabel="folds t", ylabel="terms r", xticks=range(2, 21, 2), yticks=range(2, 21, 2))

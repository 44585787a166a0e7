"""
Leave-one-out of pure noise
===========================

Forty rows of noise have an area under the ROC curve of one half. Leave-one-out reports much less:
the training set lacks a row of the tested class, and so the model leans towards the other one.
Leave-pair-out and rebalanced leave-one-out do not have this bias.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import LeaveOneOut

from everyfold import (
    LSSVC,
    LeavePairOut,
    RebalancedLeaveOneOut,
    cross_val_predict,
    cross_val_score,
)

rng = np.random.default_rng(0)
y = np.arange(40) % 2
model = LSSVC(kernel="linear", alpha=300.0)

# %%
# The values of single rows are scored together. Each pair of rows of unlike class has a score of
# its own: 1 if the row of class 1 has the larger value. All pairs follow from one factorisation.

areas = {"leave-one-out": [], "rebalanced": [], "pairs": []}
for seed in range(60):
    X = rng.normal(size=(40, 10))
    lone = cross_val_predict(model, X, y, cv=LeaveOneOut(), method="decision_function")
    areas["leave-one-out"].append(roc_auc_score(y, lone))
    cv = RebalancedLeaveOneOut(random_state=seed)
    rebalanced = cross_val_predict(model, X, y, cv=cv, method="decision_function")
    areas["rebalanced"].append(roc_auc_score(y, rebalanced))
    pairs = cross_val_score(model, X, y, cv=LeavePairOut(), scoring="roc_auc")
    areas["pairs"].append(pairs.mean())

fig, ax = plt.subplots(layout="constrained")
ax.boxplot(list(areas.values()))
ax.set_xticks([1, 2, 3], list(areas))
ax.axhline(0.5, color="black", linestyle="--")
ax.set(ylabel="area under the ROC curve", title="60 draws of noise, 40 rows each")
for name, found in areas.items():
    print(f"{name:14} {np.mean(found):.2f}")

# %%
# The library says so where it applies, and names the remedy:

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    cross_val_score(model, X, y, cv=LeaveOneOut(), scoring="roc_auc")
print(caught[-1].message)

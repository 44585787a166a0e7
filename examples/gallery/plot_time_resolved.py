"""
When does a signal tell the condition? Decoding over time
=========================================================

A model is cross-validated at each of 60 times, for y and for 500 permutations of it. Among many
times some look good by chance: each score is compared with the largest of every permutation.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import KFold

from everyfold import LSSVC, permutation_test_score

rng = np.random.default_rng(0)
y = np.repeat([0, 1], 40)
times = np.linspace(-0.1, 0.5, 60)
X = rng.normal(size=(80, 12, 60))
pattern = rng.normal(size=12)
X += 0.35 * np.multiply.outer(np.outer(y - 0.5, pattern), np.exp(-(((times - 0.2) / 0.06) ** 2)))

folds = KFold(5, shuffle=True, random_state=0)
model = LSSVC(kernel="linear", alpha=10.0)
score, chance, pvalue = permutation_test_score(
    model, X, y, cv=folds, scoring="accuracy", n_permutations=500, random_state=0
)

fig, ax = plt.subplots(figsize=(8, 3.5), layout="constrained")
ax.plot(times, score, color="C0", label="accuracy")
ax.axhline(np.quantile(chance.max(axis=1), 0.95), color="C3", ls="--", label="95 % of the largest")
ax.axhline(np.quantile(chance, 0.95), color="0.6", ls=":", label="95 % of each time alone")
ax.fill_between(times, 0.3, 0.32, where=pvalue <= 0.05, color="C3", label="p ≤ 0.05 for all times")
ax.set(xlabel="seconds", ylabel="accuracy")
ax.legend(loc="upper right")

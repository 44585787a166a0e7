"""
Better than chance? Thousands of permutations
=============================================

A permutation test compares the score of a model with its scores for permuted targets. With squared
loss all permutations share one factorisation, so that thousands of them cost little.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.kernel_ridge import KernelRidge
from sklearn.preprocessing import scale

from everyfold import permutation_test_score

X, y = load_diabetes(return_X_y=True)
X, y = scale(X[:80]), y[:80] - y[:80].mean()
model = KernelRidge(kernel="rbf", gamma=0.01, alpha=1.0)

fig, axes = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True, layout="constrained")
for ax, columns, name in ((axes[0], [0, 1], "age and sex"), (axes[1], slice(None), "all ten")):
    score, chance, pvalue = permutation_test_score(
        model, X[:, columns], y, cv=5, n_permutations=5000, random_state=0
    )
    ax.hist(chance, bins=50, color="0.7")
    ax.axvline(score, color="C3", label=f"R² = {score:.2f}, p = {pvalue:.4f}")
    ax.set(title=f"{name} of the features", xlabel="R² of 5000 permutations")
    ax.legend()

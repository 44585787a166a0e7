"""
Is one pipeline better than another?
====================================

Two pipelines are compared on the same rows and folds: what each row contributes to the difference
of their scores gives an interval, and the probability that one is better by more than a margin that
matters.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import compare

X, y = load_diabetes(return_X_y=True)
y = (y - y.mean()) / y.std()
linear = make_pipeline(StandardScaler(), Ridge(alpha=10.0))
kernels = [0.001, 0.003, 0.01, 0.03, 0.1]

fig, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
for k, gamma in enumerate(kernels):
    rbf = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf", gamma=gamma, alpha=0.5))
    found = compare(rbf, linear, X, y, margin=0.01)
    low, high = found.interval
    ax.plot([low, high], [k, k], color="C0", lw=3)
    ax.plot(found.difference, k, "o", color="k")
    ax.text(
        high + 0.005, k, f"better: {found.p_better:.2f}, equal: {found.p_equal:.2f}", va="center"
    )
ax.axvspan(-0.01, 0.01, color="0.9")
ax.set(xlabel="R² of the kernel − R² of the linear model", ylabel="gamma")
ax.set_yticks(np.arange(len(kernels)), [str(gamma) for gamma in kernels])
ax.set_xlim(right=ax.get_xlim()[1] + 0.15)

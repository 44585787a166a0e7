"""
One ridge for each of a thousand targets
========================================

Targets with little noise want a small ridge, noisy ones a large ridge. Held-out scores of all
ridges and all targets come from one factorisation of the kernel matrix.
"""

# %%
# A thousand targets, linear in the same 400 columns, with noise from small to large.

import matplotlib.pyplot as plt
import numpy as np

from everyfold import KernelRidgeCV

random = np.random.default_rng(0)
X = random.normal(size=(150, 400)) / 20.0
noise = np.logspace(-2.0, 1.0, 1000)
Y = X @ random.normal(size=(400, 1000)) + noise * random.normal(size=(150, 1000))
alphas = np.logspace(-3.0, 3.0, 25)

each = KernelRidgeCV(alphas, kernel="linear", cv=5, alpha_per_target=True).fit(X, Y)
common = KernelRidgeCV(alphas, kernel="linear", cv=5).fit(X, Y)

# %%
# Left: the chosen ridges, and the one that all targets would have in common. Right: what each
# target gains by a ridge of its own, in R² of the held-out rows.

best = common.scores_[0].mean(axis=1).argmax()
figure, (left, right) = plt.subplots(1, 2, figsize=(8.0, 3.2), layout="constrained")
left.loglog(noise, each.alpha_, ".", markersize=3)
left.axhline(common.alpha_, color="black", linewidth=0.8)
left.set(xlabel="noise of the target", ylabel="alpha")
right.semilogx(noise, each.best_score_ - common.scores_[0, best], ".", markersize=3)
right.set(xlabel="noise of the target", ylabel="gain in R²")
plt.show()

"""
Groups: rows that are not independent
=====================================

There are ten measurements of every patient. A model that was trained on nine of them can predict
the tenth by recognising the patient. Folds of single rows favour such models; folds of whole
patients show how well a model predicts a new patient.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GroupKFold, KFold

from everyfold import FastGridSearchCV

rng = np.random.default_rng(0)


def patients(count):
    """Features and outcomes of ten visits per patient; both depend on the patient."""
    own = rng.normal(size=(count, 2))
    effect = 2.0 * np.sin(own[:, 0]) + own[:, 1] + rng.normal(scale=0.8, size=count)
    X = np.repeat(own, 10, axis=0) + rng.normal(scale=0.05, size=(10 * count, 2))
    y = np.repeat(effect, 10) + rng.normal(scale=0.2, size=10 * count)
    return X, y, np.repeat(np.arange(count), 10)


X, y, groups = patients(50)
X_new, y_new, _ = patients(100)
gammas = np.logspace(-2, 2, 13)
grid = {"gamma": gammas, "alpha": [0.1]}
rows = FastGridSearchCV(KernelRidge(kernel="rbf"), grid, cv=KFold(5, shuffle=True, random_state=0))
rows.fit(X, y)
whole = FastGridSearchCV(KernelRidge(kernel="rbf"), grid, cv=GroupKFold(5))
whole.fit(X, y, groups=groups)

# %%
# The true score is that on a hundred new patients.

truth = [
    KernelRidge(kernel="rbf", gamma=gamma, alpha=0.1).fit(X, y).score(X_new, y_new)
    for gamma in gammas
]
fig, ax = plt.subplots(layout="constrained")
ax.semilogx(gammas, rows.cv_results_["mean_test_score"], "o-", label="folds of rows")
ax.semilogx(gammas, whole.cv_results_["mean_test_score"], "s-", label="folds of patients")
ax.semilogx(gammas, truth, "k--", label="new patients")
ax.set(xlabel="gamma", ylabel="R²", ylim=(-0.2, 1.05), title="The same models, two kinds of folds")
ax.legend()
print("by rows    ", rows.best_params_, "new patients:", round(rows.score(X_new, y_new), 2))
print("by patients", whole.best_params_, "new patients:", round(whole.score(X_new, y_new), 2))

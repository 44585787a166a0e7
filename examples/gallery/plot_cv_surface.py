"""
The surface of a grid search
============================

A search over eighty candidates of a Pipeline with a scaler and an SVC, with ten folds. The table is
that of GridSearchCV. The plot marks the winner and outlines all candidates within one standard
error of it; the data cannot distinguish between these.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from everyfold import CVSurfaceDisplay, FastGridSearchCV

X, y = load_breast_cancer(return_X_y=True)
pipeline = make_pipeline(StandardScaler(), SVC())
grid = {"svc__C": np.logspace(-2, 3, 10), "svc__gamma": np.logspace(-4, 0, 8)}
search = FastGridSearchCV(pipeline, grid, cv=10).fit(X, y)
print(search.plan_)

# %%
# The region of good candidates is a band: a wider kernel (a smaller gamma) needs a larger C.

CVSurfaceDisplay.from_search(search)

# %%
# ``refit="one_standard_error"`` selects the simplest model of that region.

simple = FastGridSearchCV(pipeline, grid, cv=10, refit="one_standard_error").fit(X, y)
print("best    ", search.best_params_, round(search.best_score_, 4))
print("simplest", simple.best_params_, round(simple.best_score_, 4))

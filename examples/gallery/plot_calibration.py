"""
Probabilities of an SVC
=======================

Decision values are not probabilities. Calibration turns them into probabilities by a sigmoid or a
monotone function, which is fitted to the decision values of held-out rows. Here these values need
no refits.
"""

import matplotlib.pyplot as plt
from sklearn.calibration import CalibrationDisplay
from sklearn.datasets import make_classification
from sklearn.metrics import brier_score_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC

from everyfold import FastCalibratedClassifierCV, FastGridSearchCV

X, y = make_classification(3000, n_features=10, n_informative=5, flip_y=0.15, random_state=0)
X, X_new, y, y_new = train_test_split(X, y, train_size=1000, random_state=0)

pipeline = make_pipeline(StandardScaler(), SVC())
grid = {"svc__C": [0.3, 1.0, 3.0, 10.0], "svc__gamma": [0.01, 0.03, 0.1]}
search = FastGridSearchCV(pipeline, grid, cv=5).fit(X, y)

# %%
# If the estimator is a search, the held-out values of its winner are reused, and nothing is
# cross-validated twice.

raw = search.decision_function(X_new).reshape(-1, 1)
shown = {"decision values, rescaled": MinMaxScaler().fit_transform(raw)[:, 0]}
for method in ("sigmoid", "isotonic"):
    model = FastCalibratedClassifierCV(search, method=method, ensemble=False).fit(X, y)
    shown[f"calibrated, {method}"] = model.predict_proba(X_new)[:, 1]

fig, ax = plt.subplots(layout="constrained")
for name, probabilities in shown.items():
    score = brier_score_loss(y_new, probabilities)
    CalibrationDisplay.from_predictions(
        y_new, probabilities, n_bins=10, name=f"{name} (Brier {score:.3f})", ax=ax
    )
ax.set(title="2000 new rows", xlabel="mean probability", ylabel="share of positives")

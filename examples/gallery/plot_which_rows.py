"""
Which rows matter
=================

``influence`` deletes every row in turn and says by how much the score changes. With squared loss
all deletions follow from one factorisation, and equal fits without the row. Here twelve labels are
wrong.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import scale

from everyfold import LSSVC, influence

X, y = load_breast_cancer(return_X_y=True)
X = scale(X)
rng = np.random.default_rng(0)
wrong = rng.choice(len(y), 12, replace=False)
y = y.copy()
y[wrong] = 1 - y[wrong]

model = LSSVC(gamma=0.02, alpha=1.0)
folds = StratifiedKFold(10, shuffle=True, random_state=0)
found = influence(model, X, y, cv=folds, scoring="roc_auc")
print(found.how)

# %%
# Suspected labels are those that the model of the other rows contradicts with as much certainty as
# it usually has. They are few rows, and nearly all of them have a wrong label:

is_wrong = np.isin(found.suspects, wrong)
print(f"{len(found.suspects)} suspects, {is_wrong.sum()} of the {len(wrong)} wrong labels")

# %%
# Rows without which the score is better stand at the top:

display = found.plot(n_shown=24)
colours = [
    "C3" if int(label.get_text()) in wrong else "0.4" for label in display.ax_.get_yticklabels()
]
for label, colour in zip(display.ax_.get_yticklabels(), colours, strict=True):
    label.set_color(colour)
display.ax_.set_title("wrong labels in red")

# %%
# And which columns? Models are fitted without each of ten groups of columns: the mean, the standard
# error and the worst value of the same measurement.

names = load_breast_cancer().feature_names
kinds = [name.replace("mean ", "").replace(" error", "").replace("worst ", "") for name in names]
columns = influence(model, X, y, cv=folds, scoring="roc_auc", of="columns", groups=kinds)
fig, ax = plt.subplots(layout="constrained")
columns.plot(ax=ax)

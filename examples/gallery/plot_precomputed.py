"""
Strings by their similarity: a precomputed kernel
=================================================

If the rows are not vectors, a kernel matrix is enough. Here the rows are short sequences, which are
compared by the substrings of three letters that they share. ``cv`` selects rows and columns of the
matrix, which all values of C share.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.svm import SVC

from everyfold import FastGridSearchCV, cross_val_predict

rng = np.random.default_rng(0)
letters = np.array(list("ACGT"))


def sequence(motif):
    """Sixty random letters with two copies of the motif, some letters of which are wrong."""
    found = rng.choice(letters, 60)
    for _ in range(2):
        place = rng.integers(0, 60 - len(motif))
        copy = np.where(rng.random(len(motif)) < 0.15, rng.choice(letters, len(motif)), list(motif))
        found[place : place + len(motif)] = copy
    return "".join(found)


y = np.repeat([0, 1], 150)
rows = [sequence(("GATTACA", "TTGCAGG")[label]) for label in y]


def pieces(row, length=3):
    """How often each substring of this length occurs."""
    places = 4 ** np.arange(length)
    codes = np.searchsorted(letters, list(row))
    windows = np.lib.stride_tricks.sliding_window_view(codes, length) @ places
    return np.bincount(windows, minlength=4**length)


counts = np.stack([pieces(row) for row in rows]).astype(float)
counts /= np.linalg.norm(counts, axis=1, keepdims=True)
K = counts @ counts.T  # the spectrum kernel, with ones on its diagonal

search = FastGridSearchCV(SVC(kernel="precomputed"), {"C": np.logspace(-2, 2, 9)}, cv=10).fit(K, y)
print(search.best_params_, round(search.best_score_, 3))

# %%
# The kernel matrix, and the decision values of held-out sequences:

values = cross_val_predict(search.best_estimator_, K, y, cv=10, method="decision_function")
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
shown = left.imshow(K, vmin=np.quantile(K, 0.02), vmax=np.quantile(K, 0.98))
fig.colorbar(shown, ax=left)
left.set_title("similarities of 300 sequences")
for label, name in enumerate(("with GATTACA", "with TTGCAGG")):
    right.hist(values[y == label], bins=25, alpha=0.6, label=name)
right.set(xlabel="out-of-fold decision value", ylabel="sequences")
right.legend()

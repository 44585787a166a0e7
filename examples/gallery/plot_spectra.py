"""
Spectra in a Pipeline
=====================

Spectral data have hundreds of correlated columns, few rows, and baselines that are unrelated to the
target. Steps that transform each spectrum (here the standard normal variate and a derivative) are
part of a Pipeline, and the search selects one of them like any other parameter.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.signal import savgol_filter
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from everyfold import FastGridSearchCV, OutOfFoldDisplay

rng = np.random.default_rng(0)
nm = np.linspace(1100, 2500, 300)


def bands(share):
    """Absorption of a mixture: two bands of the protein, one of the rest."""
    peaks = [(1450, 60, share), (1940, 50, share**2), (1700, 90, 1.0 - share)]
    return sum(size * np.exp(-(((nm - at) / width) ** 2)) for at, width, size in peaks)


protein = rng.uniform(0.1, 0.9, 120)
X = np.stack([bands(share) for share in protein])
X = X * rng.lognormal(sigma=0.3, size=(120, 1)) + rng.normal(size=(120, 1))  # scatter, baseline
X += 0.5 * rng.normal(size=(120, 1)) * (nm - nm.mean()) / np.ptp(nm)  # slope
X += 0.02 * rng.normal(size=X.shape)
y = protein - protein.mean()


def normal_variate(X):
    """Every spectrum with mean 0 and standard deviation 1."""
    return (X - X.mean(axis=1, keepdims=True)) / X.std(axis=1, keepdims=True)


def derivative(X):
    """The smoothed first derivative, which removes the baseline."""
    return normal_variate(savgol_filter(X, 21, 2, deriv=1, axis=1))


pipeline = Pipeline(
    [
        ("treat", FunctionTransformer()),
        ("scale", StandardScaler()),
        ("model", KernelRidge(kernel="rbf")),
    ]
)
grid = {
    "treat__func": [None, normal_variate, derivative],
    "model__gamma": np.logspace(-5, -2, 7),
    "model__alpha": np.logspace(-4, 0, 9),
}
search = FastGridSearchCV(pipeline, grid, cv=10).fit(X, y)
for func in grid["treat__func"]:
    mine = [p["treat__func"] is func for p in search.cv_results_["params"]]
    best = search.cv_results_["mean_test_score"][mine].max()
    print(f"{getattr(func, '__name__', 'raw'):15s} R² {best:.3f}")

# %%
# Raw spectra, the spectra as the winner transforms them, and its out-of-fold predictions:

fig, (raw, seen, held) = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
colours = plt.get_cmap("viridis")(protein)
for row, colour in zip(X[:40], colours, strict=False):
    raw.plot(nm, row, color=colour, linewidth=0.7)
for row, colour in zip(search.best_params_["treat__func"](X[:40]), colours, strict=False):
    seen.plot(nm, row, color=colour, linewidth=0.7)
raw.set(title="spectra", xlabel="nm")
seen.set(title=search.best_params_["treat__func"].__name__.replace("_", " "), xlabel="nm")
OutOfFoldDisplay.from_search(search, ax=held)
held.set_title(f"held-out spectra: R² {search.best_score_:.3f}")

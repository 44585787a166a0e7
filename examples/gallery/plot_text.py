"""
Text in a Pipeline
==================

Words become sparse columns, a linear SVC separates them. The vocabulary is learnt in every fold
from its training rows, once for all candidates with the same steps. Here notes of three trades are
made of words that each of them prefers.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC

from everyfold import FastGridSearchCV, OutOfFoldDisplay

rng = np.random.default_rng(0)
words = {
    "bakery": "flour oven dough crust yeast loaf sugar butter knead rise",
    "garage": "engine brake oil tyre clutch gear exhaust battery wheel torque",
    "nursery": "soil seed leaf prune pot compost root bloom water graft",
}
common = "the a of with and to today customer order price new old again before after good"


def note(trade):
    """Twelve words, of which two are of the trade and one of any."""
    own, other = words[trade].split(), words[rng.choice(list(words))].split()
    return " ".join([*rng.choice(own, 2), *rng.choice(other, 1), *rng.choice(common.split(), 9)])


y = np.repeat(list(words), 100)
X = np.array([note(trade) for trade in y], dtype=object)
print(X[0], "|", X[150])

pipeline = Pipeline([("words", TfidfVectorizer()), ("svc", SVC(kernel="linear"))])
grid = {
    "words__min_df": [1, 5],
    "words__ngram_range": [(1, 1), (1, 2)],
    "svc__C": np.logspace(-2, 2, 9),
}
search = FastGridSearchCV(pipeline, grid, cv=5).fit(X, y)
print(search.best_params_, round(search.best_score_, 3))

# %%
# What the winner says of notes that were held out, and the score over C:

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
OutOfFoldDisplay.from_search(search, ax=left)
for grams in grid["words__ngram_range"]:
    for fewest in grid["words__min_df"]:
        mine = [
            p["words__ngram_range"] == grams and p["words__min_df"] == fewest
            for p in search.cv_results_["params"]
        ]
        name = f"{'words' if grams[1] == 1 else 'and pairs'}, in {fewest} notes or more"
        right.semilogx(
            grid["svc__C"], search.cv_results_["mean_test_score"][mine], ".-", label=name
        )
right.set(xlabel="C", ylabel="accuracy")
right.legend()

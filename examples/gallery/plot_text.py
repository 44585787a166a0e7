"""
Text in a Pipeline
==================

Words become sparse features, and a linear SVC classifies the texts. The vocabulary is learnt from
the training rows of every fold, once for all candidates with the same steps. The texts are random
notes of three trades, each of which has its own words.
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
    """Twelve words: two of the trade, one of a random trade, and nine common ones."""
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
# The confusion matrix of the winner on held-out notes, and the score over C:

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
OutOfFoldDisplay.from_search(search, ax=left)
for grams in grid["words__ngram_range"]:
    for fewest in grid["words__min_df"]:
        mine = [
            p["words__ngram_range"] == grams and p["words__min_df"] == fewest
            for p in search.cv_results_["params"]
        ]
        name = f"{'words' if grams[1] == 1 else 'words and pairs'}, in {fewest} notes or more"
        right.semilogx(
            grid["svc__C"], search.cv_results_["mean_test_score"][mine], ".-", label=name
        )
right.set(xlabel="C", ylabel="accuracy")
right.legend()

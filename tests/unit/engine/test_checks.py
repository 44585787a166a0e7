"""What is known of metrics on single rows, compared with what scikit-learn makes of them."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn import metrics
from sklearn.metrics import get_scorer, get_scorer_names, make_scorer

from everyfold.engine.scoring.checks import alone
from everyfold.engine.scoring.fold_scorers import stand_in
from everyfold.estimators.targets import Labels, Numbers

RNG = np.random.default_rng(0)
N = 16
X = RNG.normal(size=(N, 3))

EXTRA = {
    "kappa": make_scorer(metrics.cohen_kappa_score),
    "d2_pinball": make_scorer(metrics.d2_pinball_score),
    "d2_tweedie": make_scorer(metrics.d2_tweedie_score),
    "fbeta": make_scorer(metrics.fbeta_score, beta=0.5),
    "fbeta macro": make_scorer(metrics.fbeta_score, beta=0.5, average="macro"),
    "labelled loss": make_scorer(
        metrics.log_loss, labels=[0, 1], response_method="predict_proba", greater_is_better=False
    ),
}
SCORERS = {name: get_scorer(name) for name in get_scorer_names()} | EXTRA
TARGETS = {
    "numbers": Numbers.read(RNG.uniform(0.5, 3.0, N)),
    "two classes": replace(Labels.read(RNG.integers(0, 2, N)), has_probabilities=True),
    "three classes": replace(Labels.read(RNG.integers(0, 3, N)), has_probabilities=True),
}


def row_by_row(scorer, target, values):
    """scikit-learn's score of every row alone; NaN where it fails."""
    truth = target.classes[target.codes] if isinstance(target, Labels) else target.columns[:, 0]
    scores = []
    for i in range(N):
        row = X[i : i + 1]
        try:
            score = scorer(stand_in(row, target, values[i : i + 1]), row, truth[i : i + 1])
        except (AttributeError, ValueError):
            score = np.nan
        scores.append(score)
    return np.array(scores), truth


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("name", SCORERS)
def test_what_is_known_of_single_rows_is_true(name, kind):
    """Compared with scikit-learn's own scores of single rows, for two sets of predictions."""
    target, scorer = TARGETS[kind], SCORERS[name]
    shape = target.columns.shape
    guesses = [RNG.normal(size=shape) + 0.5 * target.columns for _ in range(2)]
    if kind == "numbers":
        guesses = [np.abs(guess) + 0.1 for guess in guesses]
    (first, truth), (second, _) = (row_by_row(scorer, target, guess) for guess in guesses)
    fails = np.isnan(first).any() or np.isnan(second).any()
    says_nothing = fails or np.array_equal(first, second)
    known = alone(scorer)
    if known is not None and known.instead is None:
        assert says_nothing
    elif not fails:
        # What is not known to say nothing must tell these two guesses apart.
        assert not says_nothing
    if known is None or known.instead is None or fails:
        return
    hits = target.predict(guesses[0]) == truth
    expected = {
        "the accuracy": lambda: hits,
        "the share of rows that are true positives": lambda: hits & (truth == 1),
        "the mean absolute error": lambda: -np.abs(guesses[0][:, 0] - truth),
        "the mean absolute error of logarithms": lambda: (
            -np.abs(np.log1p(guesses[0][:, 0]) - np.log1p(truth))
        ),
    }[known.instead]()
    if kind == "numbers" or isinstance(expected[0], np.bool_):
        assert_allclose(first, expected, rtol=1e-9)


def test_means_over_rows_are_left_alone():
    for name in ("neg_mean_squared_error", "neg_mean_absolute_error", "accuracy", "f1_micro"):
        assert alone(get_scorer(name)) is None

"""Intervals of scores and of differences, against loops of refits and textbook formulas."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import get_scorer, make_scorer, roc_auc_score
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneOut,
    RepeatedKFold,
    ShuffleSplit,
    TimeSeriesSplit,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import LSSVC, FastGridSearchCV, compare, score_interval
from everyfold.judge.interval_methods import error_of_mean, heaviest_share, plain_normal
from everyfold.judge.model_scores import ModelScores
from everyfold.judge.responses import fold_responses
from everyfold.judge.row_scores import read_metric
from everyfold.papers import MethodOptions

RNG = np.random.default_rng(3)
X = RNG.normal(size=(60, 4))
Y = X[:, 0] + 0.5 * X[:, 1] + RNG.normal(size=60)
LABELS = np.where(Y > 0.3, "yes", "no")
GROUPS = np.arange(60) // 3
FOLDS = list(KFold(5, shuffle=True, random_state=1).split(X))


def refitted(model, y, splits, method="predict"):
    """Held-out answers by a loop."""
    fits = (clone(model).fit(X[train], y[train]) for train, _ in splits)
    return [getattr(m, method)(X[test]) for m, (_, test) in zip(fits, splits, strict=True)]


def losses(answers, splits):
    rows = np.empty(len(X))
    for answer, (_, test) in zip(answers, splits, strict=True):
        rows[test] = -((Y[test] - answer) ** 2)
    return rows


def nested_by_hand(model, splits, level):
    """Bates, Hastie and Tibshirani (2023), algorithm 1, with the clipping of their package."""
    k = len(splits)
    rows = losses(refitted(model, Y, splits), splits)
    inner, gaps, noise = [], [], []
    for i, (_, out) in enumerate(splits):
        others = [test for j, (_, test) in enumerate(splits) if j != i]
        rest = np.concatenate(others)
        found = []
        for test in others:
            train = np.setdiff1d(rest, test)
            found.append(-((Y[test] - clone(model).fit(X[train], Y[train]).predict(X[test])) ** 2))
        inner.append(np.concatenate(found))
        gaps.append(inner[-1].mean() - rows[out].mean())
        noise.append(rows[out].var(ddof=1) / len(out))
    plain = rows.std(ddof=1) / np.sqrt(len(rows))
    variance = (k - 1) / k * (np.var(gaps) - np.mean(noise))
    variance = min(max(variance, plain**2), k * plain**2)
    error = np.sqrt(0.75 * variance + 0.25 * plain**2)
    mean = np.mean([own.mean() for own in inner])
    estimate = mean - (1 + (k - 2) / k) * (mean - rows.mean())
    half = student.ppf(0.5 + level / 2, len(rows) - 1) * error
    return estimate, estimate - half, estimate + half


def ends(found):
    return found.estimate, found.low, found.high


MODELS = [KernelRidge(kernel="rbf", gamma=0.1, alpha=0.3), Ridge(alpha=2.0)]


@pytest.mark.parametrize("model", MODELS)
def test_nested_is_its_algorithm(model):
    asked = {"cv": FOLDS, "scoring": "neg_mean_squared_error", "level": 0.8}
    found = score_interval(model, X, Y, method="nested", **asked)
    np.testing.assert_allclose(ends(found), nested_by_hand(model, FOLDS, 0.8), rtol=1e-8)


def test_plain_normal_is_the_error_of_the_rows():
    rows = losses(refitted(MODELS[0], Y, FOLDS), FOLDS)
    found = score_interval(
        MODELS[0], X, Y, cv=FOLDS, scoring="neg_mean_squared_error", method="normal", level=0.9
    )
    half = student.ppf(0.95, 59) * rows.std(ddof=1) / np.sqrt(60)
    np.testing.assert_allclose(ends(found), (rows.mean(), rows.mean() - half, rows.mean() + half))


@pytest.mark.parametrize("scoring", ["r2", "neg_mean_absolute_error", "neg_max_error"])
def test_corrected_t_is_its_formula(scoring):
    splits = list(RepeatedKFold(n_splits=4, n_repeats=3, random_state=0).split(X))
    score = get_scorer(scoring)._score_func
    sign = get_scorer(scoring)._sign
    answers = refitted(MODELS[0], Y, splits)
    scores = np.array([sign * score(Y[b], a) for a, (_, b) in zip(answers, splits, strict=True)])
    half = student.ppf(0.975, 11) * np.sqrt(scores.var(ddof=1) * (1 / 12 + 15 / 45))
    found = score_interval(MODELS[0], X, Y, cv=splits, scoring=scoring, method="corrected-t")
    np.testing.assert_allclose(
        ends(found), (scores.mean(), scores.mean() - half, scores.mean() + half)
    )


def test_conservative_z_compares_halves():
    """Half the mean square of the differences between the scores of disjoint halves."""
    found = score_interval(MODELS[1], X, Y, scoring="r2", method="conservative-z")
    z = norm.ppf(0.975)
    np.testing.assert_allclose(found.high - found.low, 2 * z * found.error)
    plain = score_interval(MODELS[1], X, Y, scoring="r2", method="normal")
    assert found.error > plain.error


def auc_by_hand(values, positive):
    wins = (values[positive][:, None] > values[~positive]) + 0.5 * (
        values[positive][:, None] == values[~positive]
    )
    v10, v01 = wins.mean(axis=1), wins.mean(axis=0)
    return wins.mean(), np.sqrt(v10.var(ddof=1) / len(v10) + v01.var(ddof=1) / len(v01))


def test_delong_on_pooled_values():
    model, values = LSSVC(gamma=0.1, alpha=0.5), np.empty(60)
    for answer, (_, test) in zip(
        refitted(model, LABELS, FOLDS, "decision_function"), FOLDS, strict=True
    ):
        values[test] = answer
    area, error = auc_by_hand(values, LABELS == "yes")
    found = score_interval(model, X, LABELS, cv=FOLDS, scoring="roc_auc", method="delong")
    np.testing.assert_allclose(found.estimate, area)
    np.testing.assert_allclose(found.error, error, rtol=0.02)  # n/(n − 1) of all or of each class


def test_pairs_are_left_out_together():
    model, few = LSSVC(gamma=0.1, alpha=0.5), np.arange(20)
    positives, negatives = (few[LABELS[:20] == name] for name in ("yes", "no"))
    wins = np.empty((len(positives), len(negatives)))
    for i, p in enumerate(positives):
        for j, q in enumerate(negatives):
            own = clone(model).fit(np.delete(X[:20], [p, q], 0), np.delete(LABELS[:20], [p, q]))
            low, high = own.decision_function(X[[q, p]])
            wins[i, j] = low < high
    found = score_interval(model, X[:20], LABELS[:20], scoring="roc_auc", method="pairs")
    np.testing.assert_allclose(found.estimate, wins.mean())
    v10, v01 = wins.mean(axis=1), wins.mean(axis=0)
    error = np.sqrt(v10.var(ddof=1) / len(v10) + v01.var(ddof=1) / len(v01))
    np.testing.assert_allclose(found.error, error)


def test_many_pairs_are_drawn_evenly(monkeypatch):
    from everyfold.judge import model_scores

    monkeypatch.setattr(model_scores, "MOST_PAIRS", 200)
    found = score_interval(LSSVC(), X, LABELS, scoring="roc_auc", method="pairs")
    assert 0.5 < found.estimate < 1.0
    assert "pairs" in found.why


@pytest.mark.parametrize(
    "scoring", ["r2", "neg_root_mean_squared_error", "roc_auc", "balanced_accuracy"]
)
def test_contributions_are_those_of_the_jackknife(scoring):
    """The delta method and leaving out each row agree up to terms of order 1/n."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=400)
    responses = y + rng.normal(size=400)
    if scoring in ("roc_auc", "balanced_accuracy"):
        y = (y > 0.4).astype(int)
    if scoring == "balanced_accuracy":
        responses = (responses > 0.0).astype(int)
    metric = read_metric(Ridge(), scoring)
    rows = metric.contributions(y, responses)
    np.testing.assert_allclose(rows.mean(), metric.score(y, responses))
    by_leaving_out = [
        400 * metric.score(y, responses)
        - 399 * metric.score(np.delete(y, i), np.delete(responses, i))
        for i in range(400)
    ]
    assert np.corrcoef(rows, by_leaving_out)[0, 1] > 0.999
    np.testing.assert_allclose(rows.std(), np.std(by_leaving_out), rtol=0.02)


def test_other_scores_are_left_out_row_by_row():
    metric = read_metric(
        LSSVC(), make_scorer(roc_auc_score, response_method="predict", max_fpr=0.5)
    )
    y = np.array([0, 1, 0, 1, 1, 0, 0, 1])
    found = metric.contributions(y, np.array([0, 1, 1, 1, 0, 0, 0, 1]))
    assert len(np.unique(found.round(12))) == 4  # right and wrong rows of both classes


@pytest.mark.parametrize("scoring", ["accuracy", "f1_macro", "neg_log_loss", "neg_brier_score"])
def test_every_kind_of_response(scoring):
    labels = (LABELS == "yes").astype(int)
    found = score_interval(LogisticRegression(), X, labels, scoring=scoring, method="normal")
    answers = [clone(LogisticRegression()).fit(X[a], labels[a]) for a, _ in FOLDS]
    scorer = get_scorer(scoring)
    loop = [scorer(m, X[b], labels[b]) for m, (_, b) in zip(answers, FOLDS, strict=True)]
    again = score_interval(
        LogisticRegression(), X, labels, cv=FOLDS, scoring=scoring, method="corrected-t"
    )
    np.testing.assert_allclose(again.estimate, np.mean(loop), rtol=1e-3)  # lbfgs stops early
    assert found.low < found.estimate < found.high


def test_rows_of_groups_are_counted_as_groups():
    twice = np.repeat(np.arange(30), 2)
    rows = np.random.default_rng(0).normal(size=30)
    alone, doubled = error_of_mean(rows), error_of_mean(rows[twice], twice)
    np.testing.assert_allclose(doubled, alone)
    found = score_interval(Ridge(), X, Y, groups=GROUPS)
    assert found.unit == "group"
    by_rows = score_interval(Ridge(), X, Y)
    assert by_rows.unit == "row"


@pytest.mark.parametrize("method", ["normal", "nested", "corrected-t", "conservative-z"])
def test_groups_stay_together(method, monkeypatch):
    from everyfold.judge import model_scores

    seen = []

    def noted(model, rows, y, splits, *rest):
        seen.extend(splits)
        return fold_responses(model, rows, y, splits, *rest)

    monkeypatch.setattr(model_scores.ModelScores.__init__, "__defaults__", (noted, None))
    score_interval(Ridge(), X, Y, groups=GROUPS, method=method)
    assert seen
    assert not any(np.isin(GROUPS[train], GROUPS[test]).any() for train, test in seen)


def test_folds_that_divide_groups_are_reported():
    with pytest.warns(UserWarning, match="divide groups"):
        found = score_interval(Ridge(), X, Y, groups=GROUPS, cv=KFold(5, shuffle=True))
    assert "GroupKFold" in found.remarks[0]
    assert not score_interval(Ridge(), X, Y, groups=GROUPS, cv=GroupKFold(5)).remarks


def test_answers_of_any_model_on_any_splits():
    splits = [*FOLDS, *ShuffleSplit(3, random_state=0).split(X)]
    for model in (Ridge(), FastGridSearchCV(Ridge(), {"alpha": [0.1, 10.0, 100.0]}, cv=3)):
        found = fold_responses(model, X, Y, splits)
        loop = np.concatenate(refitted(model, Y, splits))
        np.testing.assert_allclose(found.values, loop, rtol=1e-7)
    forest = RandomForestClassifier(5, random_state=0)
    found = fold_responses(forest, X, LABELS, splits, ("predict_proba",))
    loop = np.concatenate(refitted(forest, LABELS, splits, "predict_proba"))[:, 1]
    np.testing.assert_allclose(found.values, loop)


class TestChoice:
    def test_free_folds_are_nested(self):
        assert score_interval(Ridge(), X, Y).method == "nested"

    def test_folds_that_are_fits_are_repeated(self):
        labels = LABELS == "yes"
        assert score_interval(LogisticRegression(), X, labels).method == "corrected-t"

    def test_many_rows(self):
        many = np.random.default_rng(0).normal(size=(5000, 3))
        assert (
            score_interval(Ridge(), many, many[:, 0] + np.cos(50.0 * many[:, 1])).method == "normal"
        )

    def test_folds_that_are_no_partition(self):
        found = score_interval(Ridge(), X, Y, cv=TimeSeriesSplit(4))
        assert found.method == "corrected-t"
        with pytest.raises(ValueError, match="test every row once"):
            score_interval(Ridge(), X, Y, cv=TimeSeriesSplit(4), method="normal")

    def test_scores_that_need_models(self):
        found = score_interval(Ridge(), X, Y, scoring=lambda m, X, y: m.score(X, y))
        assert found.method == "corrected-t"

    def test_a_search_that_kept_its_values(self):
        grid = {"alpha": [0.1, 1.0, 10.0], "gamma": [0.1, 1.0]}
        kept = FastGridSearchCV(KernelRidge(kernel="rbf"), grid, method=MethodOptions(keeps="all"))
        found = score_interval(kept.fit(X, Y), X, Y)
        honest = kept.honest_score()
        assert found.method == "bbc"
        assert ends(found) == (honest.estimate, *honest.interval)
        again = score_interval(kept, X, Y, scoring="neg_mean_absolute_error")
        assert again.method == "corrected-t"

    def test_a_search_is_repeated_on_every_fold(self):
        ours = FastGridSearchCV(Ridge(), {"alpha": [0.1, 10.0, 100.0]}, cv=3)
        theirs = GridSearchCV(Ridge(), {"alpha": [0.1, 10.0, 100.0]}, cv=3)
        found = [score_interval(search, X, Y) for search in (ours, theirs)]
        np.testing.assert_allclose(ends(found[0]), ends(found[1]), rtol=1e-7)


def test_a_point_is_no_interval():
    """All rows right: Wilson's interval has a width, and stays below 1."""
    far = np.where(LABELS == "yes", 1.0, -1.0)[:, None] + 0.01 * X[:, :1]
    for method in ("normal", "nested"):
        found = score_interval(LSSVC(kernel="linear"), far, LABELS, method=method)
        assert found.estimate == found.high == 1.0
        assert 0.9 < found.low < 0.96
    rows = np.array([1.0] * 9 + [0.0])
    found = plain_normal(rows, 0.95, values=(0.0, 1.0))
    assert 0.5 < found.low < 0.9 < found.high < 1.0


def test_heavy_tails_are_reported():
    wild = Y + np.where(np.arange(60) == 17, 100.0, 0.0)
    with pytest.warns(UserWarning, match="heavy tails"):
        found = score_interval(Ridge(), X, wild, scoring="neg_mean_squared_error")
    assert "row 17 alone" in found.remarks[0]
    rng = np.random.default_rng(0)
    said = [heaviest_share(rng.normal(size=100) ** 2) is not None for _ in range(400)]
    assert np.mean(said) < 0.04
    said = [heaviest_share(rng.standard_t(2, 100) ** 2) is not None for _ in range(100)]
    assert np.mean(said) > 0.5


class TestDifferences:
    def test_rows_are_subtracted(self):
        first, second = (losses(refitted(m, Y, FOLDS), FOLDS) for m in MODELS)
        rows = first - second
        asked = {"cv": FOLDS, "scoring": "neg_mean_squared_error"}
        found = compare(*MODELS, X, Y, method="normal", level=0.9, **asked)
        half = student.ppf(0.95, 59) * rows.std(ddof=1) / np.sqrt(60)
        np.testing.assert_allclose(found.difference, rows.mean())
        np.testing.assert_allclose(found.interval, (rows.mean() - half, rows.mean() + half))
        np.testing.assert_allclose(found.pvalue, 2 * student.sf(abs(found.statistic), 59))

    def test_nested_is_that_of_the_differences(self):
        asked = {"cv": FOLDS, "scoring": "neg_mean_squared_error", "level": 0.8}
        found = compare(*MODELS, X, Y, method="nested", **asked)
        alone = [nested_by_hand(model, FOLDS, 0.8)[0] for model in MODELS]
        np.testing.assert_allclose(found.difference, alone[0] - alone[1], rtol=1e-7)
        assert found.method == "nested"

    @pytest.mark.parametrize("method", ["normal", "nested", "corrected-t", "conservative-z"])
    def test_both_ways(self, method):
        one = compare(*MODELS, X, Y, method=method, margin=0.05)
        other = compare(*MODELS[::-1], X, Y, method=method, margin=0.05)
        np.testing.assert_allclose(one.difference, -other.difference)
        np.testing.assert_allclose(one.p_better, other.p_worse)
        np.testing.assert_allclose(one.p_better + one.p_equal + one.p_worse, 1.0)

    @pytest.mark.parametrize("method", ["normal", "nested", "corrected-t"])
    def test_the_same_model_is_no_better(self, method):
        found = compare(Ridge(), Ridge(solver="cholesky"), X, Y, method=method)
        assert found.difference == 0.0
        assert found.pvalue == 1.0
        assert found.p_better == 0.5

    def test_areas_by_pairs(self):
        models = LSSVC(gamma=0.1), LSSVC(gamma=10.0)
        found = compare(*models, X, LABELS, scoring="roc_auc", method="pairs")
        alone = [
            score_interval(m, X, LABELS, scoring="roc_auc", method="pairs").estimate for m in models
        ]
        np.testing.assert_allclose(found.difference, alone[0] - alone[1])

    def test_searches(self):
        searches = [FastGridSearchCV(m, {"alpha": [0.1, 1.0]}, cv=3) for m in MODELS]
        found = compare(*searches, X, Y)
        assert found.method == "corrected-t"
        assert found.interval[0] < found.difference < found.interval[1]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"method": "bootstrap"}, "is not known"),
        ({"level": 95}, "between 0 and 1"),
        ({"method": "pairs"}, "roc_auc"),
        ({"cv": 2, "method": "nested"}, "at least 3 folds"),
        ({"cv": LeaveOneOut(), "method": "nested"}, "at least 2 rows"),
        ({"scoring": "neg_median_absolute_error", "method": "normal"}, "smooth"),
        ({"scoring": "explained_variance", "method": "nested"}, "does not know"),
        ({"groups": np.zeros(60)}, "same label"),
        ({"scoring": "neg_log_loss"}, "predict_proba"),
    ],
)
def test_what_cannot_be_asked_for(asked, words):
    with pytest.raises(ValueError, match=words):
        score_interval(Ridge(), X, Y, **asked)


def test_comparisons_that_cannot_be():
    with pytest.raises(ValueError, match="no estimators"):
        compare(0, 1, X, Y)
    with pytest.raises(ValueError, match="pass the data"):
        compare(Ridge(), Ridge())
    with pytest.raises(ValueError, match="different scores by default"):
        compare(Ridge(), LSSVC(), X, Y)
    with pytest.raises(ValueError, match="margin"):
        compare(Ridge(), Ridge(), X, Y, margin=-1.0)


def test_pairs_of_folds_are_trained_once(monkeypatch):
    """The 20 inner folds of 5 are 10 fits, where folds are refitted."""
    fits = []

    class Counted(Ridge):
        def fit(self, X, y):
            fits.append(len(y))
            return super().fit(X, y)

    score_interval(Counted(), X, Y, cv=FOLDS, method="nested")
    assert len(fits) == 5 + len(list(combinations(range(5), 2)))


@pytest.mark.filterwarnings("ignore:row .* alone has")
@pytest.mark.parametrize("method", ["normal", "corrected-t", "nested"])
@pytest.mark.parametrize(("scoring", "most"), [("r2", 1.0), ("neg_mean_squared_error", 0.0)])
def test_intervals_end_where_scores_do(method, scoring, most):
    y = X[:, 0] + 0.02 * np.random.default_rng(0).standard_t(1, len(X))  # one row far off
    found = score_interval(Ridge(alpha=1e-3), X, y, scoring=scoring, method=method, level=0.999)
    scores = ModelScores([Ridge(alpha=1e-3)], X, y, None, scoring, 5, 0)
    free = scores.judge(method, 0.999).bounds
    assert free.high > most
    assert found.high == most
    assert found.low == free.low


@pytest.mark.parametrize("model", [Ridge(), make_pipeline(StandardScaler(), Ridge())])
@pytest.mark.parametrize("method", ["normal", "nested", "corrected-t"])
def test_weights_are_those_of_the_fits(model, method):
    weights = np.random.default_rng(0).integers(1, 4, len(X)).astype(float)
    asked = {"cv": FOLDS, "method": method, "scoring": "neg_mean_squared_error"}
    given = {"sample_weight": weights}
    found = score_interval(model, X, Y, params=given, **asked)
    name = "sample_weight" if isinstance(model, Ridge) else "ridge__sample_weight"
    rows = np.empty(len(X))
    for train, test in FOLDS:
        fitted = clone(model).fit(X[train], Y[train], **{name: weights[train]})
        rows[test] = -((Y[test] - fitted.predict(X[test])) ** 2)
    parts = [rows[test].mean() for _, test in FOLDS]
    if method == "nested":  # whose estimate is corrected for its bias
        assert found != score_interval(model, X, Y, **asked)
    else:
        np.testing.assert_allclose(found.estimate, np.mean(parts), rtol=1e-8)
    other = compare(model, Ridge(10.0), X, Y, params=given, **asked)
    lone = score_interval(Ridge(10.0), X, Y, params=given, **asked)
    np.testing.assert_allclose(other.difference, found.estimate - lone.estimate, rtol=1e-8)

"""Honest scores and tests of candidates, against plain loops and values worked out by hand."""

import pickle

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn import config_context
from sklearn.datasets import make_classification, make_friedman1
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.metrics import get_scorer, make_scorer
from sklearn.metrics import mean_squared_error as mse
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    LeaveOneOut,
    RepeatedKFold,
    ShuffleSplit,
)
from sklearn.model_selection import cross_val_score as their_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from everyfold import LSSVC, LSSVR, FastGridSearchCV, InexactWarning, compare, judge
from everyfold.io.arrays import ArrayRows
from everyfold.judge.interval_methods import corrected_t
from everyfold.search.predictions import DataHash

RIDGES = {"alpha": [1e-3, 1e-1, 1.0], "gamma": [0.3, 1.0]}


@pytest.fixture(scope="module")
def numbers():
    return make_friedman1(70, noise=1.0, random_state=0)


@pytest.fixture(scope="module")
def labels():
    X, y = make_classification(80, 6, n_informative=4, flip_y=0.15, random_state=1)
    return X, np.array(["no", "yes"])[y]


def ridge_search(**how):
    how = {"cv": 4, "keep_predictions": "all", **how}
    return FastGridSearchCV(KernelRidge(kernel="rbf"), RIDGES, **how)


class Known:
    """A fitted model whose rows are its answers."""

    _estimator_type = "classifier"

    def __init__(self, values, classes=None):
        self.values, self.classes_ = values, classes

    def __sklearn_tags__(self):
        return (SVC() if self.classes_ is not None else KernelRidge()).__sklearn_tags__()

    def __sklearn_is_fitted__(self):
        return True

    def predict(self, X):
        return self.values

    def decision_function(self, X):
        return self.values


def plain_bbc(columns, y, scorer, *, count, seed, groups=None, classes=None, weights=None):
    """BBC-CV as printed: for every bootstrap, select on the bag and score outside it."""
    rng, scores = np.random.default_rng(seed), []
    units = np.arange(len(y)) if groups is None else np.unique(groups)
    while len(scores) < count:
        drawn = units[rng.integers(0, len(units), len(units))]
        of_row = np.arange(len(y)) if groups is None else groups
        bag = np.concatenate([np.flatnonzero(of_row == unit) for unit in drawn])
        rest = np.setdiff1d(np.arange(len(y)), bag)
        if len(rest) < 2:
            continue

        def score(column, rows):
            how = {} if weights is None else {"sample_weight": weights[rows]}
            return scorer(Known(column[rows], classes), np.zeros((len(rows), 1)), y[rows], **how)

        best = max(range(len(columns)), key=lambda c: score(columns[c], bag))
        scores.append(score(columns[best], rest))
    return np.array(scores)


def columns_of(search, method):
    count = len(search.cv_results_["params"])
    return [search.out_of_fold(k, method).values for k in range(count)]


@pytest.mark.parametrize(
    "scoring",
    ["r2", "neg_mean_squared_error", "neg_mean_absolute_error", "neg_median_absolute_error"],
)
def test_bbc_of_numbers(numbers, scoring):
    search = ridge_search(scoring=scoring).fit(*numbers)
    found = search.honest_score("bbc", n_bootstraps=40, random_state=3)
    columns = columns_of(search, "predict")
    plain = plain_bbc(columns, numbers[1], get_scorer(scoring), count=40, seed=3)
    np.testing.assert_allclose(found.scores, plain, rtol=1e-9)
    assert found.estimate == pytest.approx(plain.mean())
    together = [
        get_scorer(scoring)(Known(column), np.zeros((70, 1)), numbers[1]) for column in columns
    ]
    assert found.bias == pytest.approx(max(together) - plain.mean())
    np.testing.assert_allclose(found.interval, np.quantile(plain, [0.025, 0.975]))


@pytest.mark.parametrize(
    ("scoring", "method"), [("accuracy", "predict"), ("roc_auc", "decision_function")]
)
def test_bbc_of_labels(labels, scoring, method):
    grid = {"alpha": [0.1, 1.0], "gamma": [0.03, 0.3]}
    search = FastGridSearchCV(LSSVC(), grid, cv=4, scoring=scoring, keep_predictions="all")
    search.fit(*labels)
    found = search.honest_score(n_bootstraps=25, confidence=0.8)
    how = {"count": 25, "seed": 0, "classes": np.unique(labels[1])}
    plain = plain_bbc(columns_of(search, method), labels[1], get_scorer(scoring), **how)
    np.testing.assert_allclose(found.scores, plain, rtol=1e-12)
    np.testing.assert_allclose(found.interval, np.quantile(plain, [0.1, 0.9]))


def test_bbc_draws_groups_as_wholes_and_prefers_what_a_scorer_does(numbers):
    groups = np.random.default_rng(0).integers(0, 15, 70)
    upside_down = make_scorer(mse)  # the largest error is the best score
    search = ridge_search(scoring=upside_down, cv=GroupKFold(4)).fit(*numbers, groups=groups)
    found = search.honest_score(n_bootstraps=20, groups=groups)
    columns = columns_of(search, "predict")
    how = {"count": 20, "seed": 0, "groups": groups}
    plain = plain_bbc(columns, numbers[1], upside_down, **how)
    np.testing.assert_allclose(found.scores, plain, rtol=1e-9)


def grouped_numbers():
    """Rows that are much alike within their group, so that single rows promise too much."""
    rng = np.random.default_rng(4)
    groups = np.sort(rng.integers(0, 12, 90))
    centres, levels = rng.normal(size=(12, 3)), 2.0 * rng.normal(size=12)
    X = centres[groups] + 0.2 * rng.normal(size=(90, 3))
    return X, X[:, 0] + levels[groups] + 0.2 * rng.normal(size=90), groups


def in_words(groups):
    return np.array([f"patient {group}" for group in groups])


@pytest.mark.parametrize(
    "kind", [np.asarray, list, in_words, lambda groups: in_words(groups).tolist(), "series"]
)
def test_honest_scores_remember_the_groups_of_fit(kind):
    X, y, codes = grouped_numbers()
    if kind == "series":
        kind = pytest.importorskip("pandas").Series
    groups = kind(codes)
    search = ridge_search(cv=GroupKFold(4)).fit(X, y, groups=groups)
    found = search.honest_score(n_bootstraps=30)
    how = {"count": 30, "seed": 0, "groups": np.asarray(groups)}
    plain = plain_bbc(columns_of(search, "predict"), y, get_scorer("r2"), **how)
    np.testing.assert_allclose(found.scores, plain, rtol=1e-9)
    assert (found.unit, "30 bootstraps of 12 whole groups" in found.method) == ("group", True)
    assert "unit='group'" in repr(found)


@pytest.mark.parametrize("method", ["nested", "repeated"])
def test_outer_folds_are_of_the_groups_of_fit(method):
    X, y, groups = grouped_numbers()
    search = ridge_search(cv=GroupKFold(3)).fit(X, y, groups=groups)
    found = search.honest_score(method, X, y, n_repeats=2)
    explicit = search.honest_score(method, X, y, n_repeats=2, groups=groups)
    np.testing.assert_array_equal(found.scores, explicit.scores)
    assert (found.unit, "outer folds of whole groups" in found.method) == ("group", True)
    if method == "nested":
        how = {"cv": GroupKFold(3), "groups": groups, "params": {"groups": groups}}
        np.testing.assert_allclose(found.scores, their_score(search, X, y, **how), rtol=1e-8)


def test_weights_of_fit_are_remembered(numbers):
    weights = np.random.default_rng(2).exponential(size=70) ** 2
    search = ridge_search().fit(*numbers, sample_weight=weights)
    expected = search.honest_score(n_bootstraps=20, sample_weight=weights.copy()).scores
    weights[:] = 1.0  # what is remembered is a copy
    np.testing.assert_array_equal(search.honest_score(n_bootstraps=20).scores, expected)
    assert search.honest_score(n_bootstraps=20).unit == "row"


def test_groups_that_come_by_metadata_routing():
    X, y, groups = grouped_numbers()
    folds = GroupKFold(4)
    expected = ridge_search(cv=folds).fit(X, y, groups=groups)
    with config_context(enable_metadata_routing=True):
        routed = ridge_search(cv=folds).fit(X, y, groups=groups)
        renamed = ridge_search(cv=clone_of_folds(folds)).fit(X, y, patient=groups)
        for search in (routed, renamed):
            found = search.honest_score(n_bootstraps=20)
            assert found.unit == "group"
            np.testing.assert_allclose(
                found.scores, expected.honest_score(n_bootstraps=20).scores, rtol=1e-9
            )
            assert search.compare(0, 1).unit == "group"


def clone_of_folds(folds):
    """Folds whose groups are passed as ``patient``."""
    return GroupKFold(folds.n_splits).set_split_request(groups="patient")


def test_labels_that_make_no_groups_are_rows():
    X, y, codes = grouped_numbers()
    rows = np.arange(len(y))
    search = ridge_search(cv=GroupKFold(4)).fit(X, y, groups=rows)
    found = search.honest_score(n_bootstraps=20)
    assert (found.unit, search.compare(0, 1).unit) == ("row", "row")
    plain = plain_bbc(columns_of(search, "predict"), y, get_scorer("r2"), count=20, seed=0)
    np.testing.assert_allclose(found.scores, plain, rtol=1e-9)
    same = ridge_search().fit(X, y)
    with pytest.raises(ValueError, match="groups has the same label for all held-out rows"):
        same.honest_score(groups=np.zeros(len(y)))
    mixed = [None if code == 3 else code for code in codes]  # no order, and no loss of the search
    assert same.honest_score(n_bootstraps=5, groups=mixed).unit == "group"


def test_bbc_with_weights(numbers):
    weights = np.random.default_rng(2).exponential(size=70) ** 2
    search = ridge_search().fit(*numbers, sample_weight=weights)
    found = search.honest_score(n_bootstraps=20, sample_weight=weights)
    how = {"count": 20, "seed": 0, "weights": weights}
    plain = plain_bbc(columns_of(search, "predict"), numbers[1], get_scorer("r2"), **how)
    np.testing.assert_allclose(found.scores, plain, rtol=1e-9)


def test_bbc_with_weights_that_only_the_fit_gets(numbers):
    weights = np.random.default_rng(2).exponential(size=70) ** 2
    model = make_pipeline(StandardScaler(), LSSVR())
    search = FastGridSearchCV(
        model, {"lssvr__alpha": [0.1, 1.0, 10.0]}, cv=5, keep_predictions="all"
    ).fit(*numbers, lssvr__sample_weight=weights)
    found = search.honest_score(n_bootstraps=20, lssvr__sample_weight=weights)
    np.testing.assert_array_equal(found.scores, search.honest_score(n_bootstraps=20).scores)


@pytest.mark.filterwarnings("ignore:.*does not support sample_weight")
@pytest.mark.parametrize("names", ["neg_max_error", ["neg_max_error", "r2"]])
def test_bbc_by_a_score_without_weights(numbers, names):
    weights = np.random.default_rng(2).exponential(size=70) ** 2
    search = FastGridSearchCV(
        LSSVR(),
        {"alpha": [0.1, 1.0, 10.0]},
        cv=5,
        scoring=names,
        refit="neg_max_error" if isinstance(names, list) else True,
        keep_predictions="all",
    ).fit(*numbers, sample_weight=weights)
    found = search.honest_score(n_bootstraps=20, sample_weight=weights)
    np.testing.assert_allclose(found.scores, search.honest_score(n_bootstraps=20).scores)


def test_bbc_by_a_function_that_gives_several_metrics(numbers):
    def both(estimator, X, y):
        return {"r2": get_scorer("r2")(estimator, X, y), "none": 1.0}

    search = ridge_search(scoring=both, refit="r2").fit(*numbers)
    usual = ridge_search().fit(*numbers).honest_score(n_bootstraps=20)
    np.testing.assert_allclose(search.honest_score(n_bootstraps=20).scores, usual.scores)


def first_within(results, gap=0.05):
    """A rule of the user's own: the first that is not much worse than the best."""
    means = results["mean_test_score"]
    return int(np.flatnonzero(means >= means.max() - gap)[0])


def test_nested_with_a_rule_of_the_users_own(numbers):
    """scikit-learn's searches have no best_score_ then, and the winner has one all the same."""
    search = ridge_search(refit=first_within).fit(*numbers)
    theirs = GridSearchCV(KernelRidge(kernel="rbf"), RIDGES, cv=4, refit=first_within)
    found = search.honest_score("nested", *numbers)
    np.testing.assert_allclose(found.scores, their_score(theirs, *numbers, cv=4), rtol=1e-9)
    chosen = theirs.fit(*numbers).cv_results_["mean_test_score"][theirs.best_index_]
    assert found.bias == pytest.approx(chosen - found.estimate)
    with pytest.raises(ValueError, match="another rule; use method='nested'"):
        search.honest_score()


@pytest.mark.filterwarnings("ignore:the held-out values:everyfold.InexactWarning")
def test_bbc_of_approximations_says_so(numbers):
    """A finite order is no refit, and what rests on it is no honest score of refits."""
    assert ridge_search().fit(*numbers).honest_score(n_bootstraps=5).is_exact
    rough = ridge_search(order=1, n_confirm=0).fit(*numbers)
    found = rough.honest_score(n_bootstraps=5)
    assert not found.is_exact
    assert "of 6 candidates by approximate values" in found.method
    assert rough.honest_score("nested", *numbers).is_exact


def test_bbc_leaves_no_candidate_out(labels):
    grid = {"C": [0.1, 1.0], "kernel": ["rbf", "sigmoid"]}
    search = FastGridSearchCV(SVC(), grid, cv=4, fallback="refit", keep_predictions="all")
    search.fit(*labels)
    with pytest.raises(ValueError, match=r"2 candidates .*refitted.*use method='nested'"):
        search.honest_score()


def test_nested_without_a_refit_is_that_with_one(numbers):
    found = ridge_search(refit=False).fit(*numbers).honest_score("nested", *numbers)
    usual = ridge_search().fit(*numbers).honest_score("nested", *numbers)
    np.testing.assert_array_equal(found.scores, usual.scores)


def test_nested_and_its_interval(numbers):
    search = ridge_search().fit(*numbers)
    found = search.honest_score("nested", *numbers, outer=KFold(5), confidence=0.9)
    scores = their_score(search, *numbers, cv=KFold(5))
    np.testing.assert_allclose(found.scores, scores, rtol=1e-8)
    error = np.sqrt(scores.var(ddof=1) * (1 / 5 + 14 / 56))
    half = stats.t(4).ppf(0.95) * error
    np.testing.assert_allclose(found.interval, [scores.mean() - half, scores.mean() + half])
    assert found.bias == pytest.approx(search.best_score_ - scores.mean())
    assert "5 outer folds" in found.method


def test_nested_folds_are_those_of_the_search_with_groups(numbers):
    groups = np.random.default_rng(0).integers(0, 15, 70)
    search = ridge_search(cv=GroupKFold(3)).fit(*numbers, groups=groups)
    found = search.honest_score("nested", *numbers, groups=groups)
    how = {"cv": GroupKFold(3), "groups": groups, "params": {"groups": groups}}
    np.testing.assert_allclose(found.scores, their_score(search, *numbers, **how), rtol=1e-8)


def test_repeated(labels):
    grid = {"alpha": [0.1, 1.0], "gamma": [0.03, 0.3]}
    search = FastGridSearchCV(LSSVC(), grid, cv=3).fit(*labels)
    found = search.honest_score("repeated", *labels, n_repeats=3)
    assert found.scores.shape == (9,)
    assert "3 times 3" in found.method
    again = search.honest_score("repeated", *labels, n_repeats=3)
    np.testing.assert_array_equal(found.scores, again.scores)
    other = search.honest_score("repeated", *labels, n_repeats=3, random_state=1)
    assert not np.array_equal(found.scores, other.scores)


# -- comparisons -------------------------------------------------------------------------------


def test_corrected_t_test_by_hand(numbers):
    search = ridge_search(cv=5).fit(*numbers)
    for k, (a, b) in enumerate(
        zip([5.0, 3.0, 4.0, 4.0, 6.0], [3.0, 3.0, 2.0, 4.0, 3.0], strict=True)
    ):
        search.cv_results_[f"split{k}_test_score"][:2] = a, b
    # differences 2, 0, 2, 0, 3: mean 1.4, s² = 1.8, (1/5 + 14/56) s² = 0.81, error 0.9
    found = search.compare(0, 1)
    assert found.difference == pytest.approx(1.4)
    assert found.statistic == pytest.approx(1.4 / 0.9)
    assert found.pvalue == pytest.approx(0.19475, abs=1e-4)
    assert found.interval == pytest.approx((1.4 - 2.776445 * 0.9, 1.4 + 2.776445 * 0.9))
    back = search.compare(1, 0)
    assert (back.difference, back.pvalue) == (-found.difference, found.pvalue)


def test_significantly_worse(numbers):
    search = ridge_search(cv=5).fit(*numbers)
    best = search.best_index_
    is_worse = search.significantly_worse(0.9)
    for k in range(len(is_worse)):
        found = None if k == best else search.compare(best, k)
        expected = found is not None and found.statistic > stats.t(4).ppf(0.9)
        assert is_worse[k] == expected
    assert is_worse.any()
    assert not is_worse.all()
    search.cv_results_["split2_test_score"][(best + 1) % 6] = np.nan
    assert search.significantly_worse(0.9)[(best + 1) % 6]


def test_uneven_and_repeated_folds_count_by_their_rows(numbers):
    search = ridge_search(cv=RepeatedKFold(n_splits=7, n_repeats=2, random_state=0)).fit(*numbers)
    table = np.array([search.cv_results_[f"split{k}_test_score"] for k in range(14)])
    differences = table[:, 0] - table[:, 3]
    error = np.sqrt(differences.var(ddof=1) * (1 / 14 + 10 / 60))
    assert search.compare(0, 3).statistic == pytest.approx(differences.mean() / error)


def test_comparisons_count_the_groups_of_fit():
    """Random test sets of whole groups: the variance is corrected by groups, not by their rows."""
    X, y, groups = grouped_numbers()
    groups = np.where(groups < 6, 0, groups)  # a large one, and several small ones
    folds = GroupShuffleSplit(6, test_size=2, random_state=0)
    search = ridge_search(cv=folds).fit(X, y, groups=groups)
    table = np.array([search.cv_results_[f"split{k}_test_score"] for k in range(6)])
    differences = table[:, 0] - table[:, 3]
    error = np.sqrt(differences.var(ddof=1) * (1 / 6 + 2 / 5))
    found = search.compare(0, 3)
    assert found.statistic == pytest.approx(differences.mean() / error)
    assert found.unit == "group"
    divided = ridge_search(cv=KFold(6, shuffle=True, random_state=0))
    with pytest.warns(UserWarning, match="groups parameter is ignored"):
        divided.fit(X, y, groups=groups)
    assert divided.compare(0, 3).unit == "row"


@pytest.mark.filterwarnings("ignore:the held-out values:everyfold.InexactWarning")
def test_comparisons_of_estimates_say_so(numbers):
    """A finite order is no refit."""
    rough = ridge_search(order=1, n_confirm=0).fit(*numbers)
    found = rough.compare(0, 1)
    assert (found.is_exact, found.status) == (False, ("estimated", "estimated"))
    with pytest.warns(InexactWarning, match="scores of 6 of 6 candidates are only estimated"):
        rough.significantly_worse()
    exact = ridge_search().fit(*numbers)
    found = exact.compare(0, 1)
    assert (found.is_exact, found.status) == (True, ("exact", "exact"))
    exact.significantly_worse()  # without a warning
    exact.cv_results_["status"][1], exact.cv_results_["is_exact"][1] = "certified", False
    assert (exact.compare(1, 0).is_exact, exact.compare(1, 0).status[0]) == (False, "certified")
    assert exact.compare(2, 0).is_exact
    exact.significantly_worse()  # what is certified is known well enough


def test_rounding_is_no_difference(numbers):
    search = ridge_search().fit(*numbers)
    scores = np.array([0.8, 0.7, 0.9, 0.6])
    for k, score in enumerate(scores):
        own = [score, score * (1.0 - 1e-15), score - 0.1, -1.0, -1.0, -1.0]
        search.cv_results_[f"split{k}_test_score"][:] = own
    found = search.compare(0, 1)
    assert (found.statistic, found.pvalue, found.interval) == (0.0, 1.0, (0.0, 0.0))
    assert (found.p_better, found.p_worse) == (0.5, 0.5)
    found = search.compare(0, 2)  # 0.1 for every fold
    assert (found.statistic, found.p_better) == (np.inf, 1.0)
    assert search.significantly_worse(0.9).tolist() == [False, False, True, True, True, True]
    search.cv_results_["split1_test_score"][2] = -np.inf
    assert search.significantly_worse(0.9)[2]


# -- functions, and scikit-learn's own searches --------------------------------------------------


def test_bayesian_comparison_by_its_definition(numbers):
    """Benavoli et al. (2017): Student's posterior with the corrected error, and a margin."""
    search = ridge_search(cv=5).fit(*numbers)
    table = np.array([search.cv_results_[f"split{k}_test_score"] for k in range(5)])
    differences = table[:, 1] - table[:, 0]
    posterior = stats.t(4, differences.mean(), np.sqrt(differences.var(ddof=1) * (1 / 5 + 14 / 56)))
    found = compare(1, 0, search=search, margin=0.02)
    assert found.p_better == pytest.approx(1.0 - posterior.cdf(0.02))
    assert found.p_worse == pytest.approx(posterior.cdf(-0.02))
    assert found.p_better + found.p_equal + found.p_worse == pytest.approx(1.0)
    assert compare(1, 0, search=search).p_equal == 0.0
    with pytest.raises(ValueError, match=r"margin=-1\.0 is negative"):
        search.compare(0, 1, margin=-1.0)


def both_searches(data, **how):
    how = {"cv": KFold(5), **how}
    model = KernelRidge(kernel="rbf")
    ours = FastGridSearchCV(model, RIDGES, **how).fit(*data)
    return ours, GridSearchCV(model, RIDGES, **how).fit(*data)


@pytest.mark.parametrize("cv", [5, KFold(5), RepeatedKFold(n_splits=5, n_repeats=2)])
def test_searches_of_scikit_learn_are_judged_alike(numbers, cv):
    if not isinstance(cv, int):
        cv.random_state = 0 if isinstance(cv, RepeatedKFold) else None
    ours, theirs = both_searches(numbers, cv=cv)
    np.testing.assert_allclose(judge.fold_scores(theirs), ours.fold_scores())
    one, two = ours.compare(0, 3), compare(0, 3, search=theirs)
    assert two.statistic == pytest.approx(one.statistic)
    assert (two.status, two.is_exact) == (("refitted", "refitted"), True)
    worse = judge.significantly_worse(theirs, 0.9)
    assert worse.tolist() == ours.significantly_worse(0.9).tolist()


def test_sizes_of_folds_that_a_splitter_does_not_tell(numbers):
    splits = ShuffleSplit(4, test_size=0.2, random_state=0)
    ours, theirs = both_searches(numbers, cv=splits)
    with pytest.raises(ValueError, match="ShuffleSplit as cv does not tell them; pass the data"):
        compare(0, 3, search=theirs)
    found = compare(0, 3, *numbers, search=theirs)
    assert found.statistic == pytest.approx(ours.compare(0, 3).statistic)
    listed = both_searches(numbers, cv=list(splits.split(numbers[0])))[1]
    assert compare(0, 3, search=listed) == found
    X, y, groups = grouped_numbers()
    model = KernelRidge(kernel="rbf")
    theirs = GridSearchCV(model, RIDGES, cv=GroupShuffleSplit(6, test_size=2, random_state=0))
    theirs.fit(X, y, groups=groups)
    found = compare(0, 3, X, y, search=theirs, groups=groups)
    assert found.unit == "group"


def test_honest_scores_of_scikit_learn(numbers):
    ours, theirs = both_searches(numbers)
    found = judge.honest_score(theirs, "nested", *numbers, outer=4)
    same = ours.honest_score("nested", *numbers, outer=4)
    np.testing.assert_allclose(found.scores, same.scores)
    assert found.interval == pytest.approx(same.interval)
    with pytest.raises(ValueError, match="GridSearchCV keeps scores only; use method='nested'"):
        judge.honest_score(theirs)
    X, y, groups = grouped_numbers()
    theirs = GridSearchCV(KernelRidge(), {"alpha": [0.1, 1.0]}, cv=GroupKFold(3))
    theirs.fit(X, y, groups=groups)
    assert judge.honest_score(theirs, "nested", X, y, groups=groups).unit == "group"


def test_thresholds_of_scikit_learn(labels):
    grid = {"alpha": [0.1, 1.0]}
    ours = FastGridSearchCV(RidgeClassifier(), grid, cv=4).fit(*labels)
    theirs = GridSearchCV(RidgeClassifier(), grid, cv=4).fit(*labels)
    assert judge.tune_threshold(theirs, X=labels[0], y=labels[1]) == pytest.approx(
        ours.tune_threshold()
    )
    with pytest.raises(ValueError, match="GridSearchCV keeps no held-out values; pass the data"):
        judge.tune_threshold(theirs)


def test_what_has_no_candidates_is_refused(numbers):
    class Other:
        best_estimator_ = None

    with pytest.raises(ValueError, match="Other has no cv_results_"):
        judge.fold_scores(Other())


# -- what is refused ---------------------------------------------------------------------------


def test_what_honest_scores_refuse(numbers, labels):
    search = ridge_search().fit(*numbers)
    for how, words in (
        ({"method": "bootstrap"}, "use 'bbc', 'nested' or 'repeated'"),
        ({"confidence": 95}, "between 0 and 1"),
        ({"n_bootstraps": 0}, "too few"),
        ({"groups": np.arange(70)}, "so that there are no groups"),
        ({"groups": [0, 0, 1]}, "groups has 3 entries, and the search was fitted to 70 rows"),
        ({"sample_weight": np.ones(7)}, "sample_weight has 7 entries"),
        (
            {"sample_weights": np.ones(70)},
            "sample_weights is not known; pass the same parameters as to fit",
        ),
        ({"method": "nested", "X": ArrayRows(*numbers), "y": numbers[1]}, "pass an array"),
        ({"method": "nested"}, "pass the data: X=..., y=..."),
        ({"method": "repeated", "X": numbers[0], "y": numbers[1], "outer": KFold(3)}, "outer=5"),
    ):
        with pytest.raises(ValueError, match=words):
            search.honest_score(**how)
    with pytest.raises(ValueError, match="keeps='all'"):
        ridge_search(keep_predictions="best").fit(*numbers).honest_score()
    with pytest.raises(ValueError, match="more than once"):
        ridge_search(cv=RepeatedKFold(n_splits=3, n_repeats=2)).fit(*numbers).honest_score()
    with pytest.raises(ValueError, match="another rule"):
        ridge_search(refit="one_standard_error").fit(*numbers).honest_score()
    with pytest.raises(ValueError, match="no single metric"):
        ridge_search(refit=False, scoring=["r2", "neg_max_error"]).fit(*numbers).honest_score()
    y = np.repeat(["a", "b"], [76, 4])
    X = labels[0] + 5.0 * (y == "b")[:, None]
    rare = FastGridSearchCV(LSSVC(gamma=0.01), {"alpha": [0.1, 1.0]}, cv=4).fit(X, y)
    with pytest.raises(ValueError, match="class 'b' has 4 rows, too few for 4 outer folds"):
        rare.honest_score("nested", X, y)


@pytest.mark.parametrize("method", ["nested", "repeated"])
def test_other_rows_than_those_of_fit_are_refused(numbers, method):
    X, y = numbers
    weights = np.linspace(0.5, 2.0, len(y))
    plain, weighted = ridge_search().fit(X, y), ridge_search().fit(X, y, sample_weight=weights)
    for search, rows, params, words in (
        (plain, (X[:60], y[:60]), {}, r"X \(shape \(60, 10\), not \(70, 10\)\), y \(shape"),
        (plain, (X[::-1], y[::-1]), {}, r"X \(other values\), y \(other values\)"),
        (plain, (2.0 * X, y), {}, r"given: X \(other values\); pass the same rows"),
        (plain, (X, y + 1.0), {}, r"given: y \(other values\); .*cross_val_score"),
        (plain, (X, y), {"sample_weight": weights}, r"sample_weight \(not passed to fit\)"),
        (weighted, (X, y), {"sample_weight": 1 / weights}, r"sample_weight \(other values\)"),
    ):
        with pytest.raises(ValueError, match=words):
            search.honest_score(method, *rows, **params)


def test_other_labels_than_those_of_fit_are_refused(labels):
    X, y = labels
    search = FastGridSearchCV(LSSVC(), {"alpha": [0.1, 1.0]}, cv=3).fit(X, y)
    with pytest.raises(ValueError, match=r"given: y \(other values\)"):
        search.honest_score("nested", X, np.where(y == "no", "yes", "no"))
    search.honest_score("nested", X, y.astype(object))


def test_the_same_rows_may_come_in_another_container(numbers):
    pandas = pytest.importorskip("pandas")
    X, y = numbers
    table = sparse.csr_matrix(np.where(X < 0.5, 0.0, X))
    search, of_sparse = ridge_search().fit(X, y), ridge_search().fit(table, y)
    expected = search.honest_score("nested", X, y).scores
    for rows in ((pandas.DataFrame(X), pandas.Series(y)), (X.tolist(), list(y)), (X, y[:, None])):
        np.testing.assert_allclose(search.honest_score("nested", *rows).scores, expected)
    single = search.honest_score("nested", X.astype(np.float32), y.astype(np.float32))
    np.testing.assert_allclose(single.scores, expected, rtol=1e-3)
    expected = of_sparse.honest_score("nested", table, y).scores
    for rows in (table.toarray(), table.tocsc()):
        np.testing.assert_allclose(of_sparse.honest_score("nested", rows, y).scores, expected)
    with pytest.raises(ValueError, match=r"X \(other values\)"):
        of_sparse.honest_score("nested", 2.0 * table, y)


@pytest.mark.parametrize(
    ("first", "second", "is_other"),
    [
        ([["a", 1.0], ["b", 2.0]], [["a", 1.0], ["c", 2.0]], True),  # a data frame of words
        ([["a", 1.0], ["b", 2.0]], [["a", 1.0], ["b", 2.0]], False),
        ([[None, 1.0], ["b", np.nan]], [[None, 1.0], ["b", np.nan]], False),
    ],
)
def test_contents_of_tables_of_words(first, second, is_other):
    pandas = pytest.importorskip("pandas")
    one, other = (DataHash.of(pandas.DataFrame(rows)) for rows in (first, second))
    assert bool(one.difference(other)) == is_other


def test_contents_of_objects_are_their_number():
    """Rows of a kernel that is a function may be anything, which no process knows again."""
    one, other = ([{1}, {1, 2}], [{3}, {4}])
    assert not DataHash.of(one).difference(DataHash.of(other))
    assert DataHash.of(one).difference(DataHash.of(other[:1])) == "shape (1,), not (2,)"
    assert DataHash.of([[1], [1, 2]]).difference(DataHash.of([[1]]))


def test_honest_scores_of_a_pickled_search(numbers):
    X, y = numbers
    search = ridge_search().fit(X, y)
    expected = search.honest_score("nested", X, y).scores
    copied = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(copied.honest_score("nested", X, y).scores, expected)
    with pytest.raises(ValueError, match=r"X \(shape"):
        copied.honest_score("nested", X[:50], y[:50])
    del search._given.__dict__["contents"]  # as pickles of former versions
    former = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(former.honest_score("nested", X, y).scores, expected)


def test_constant_predictions_are_nothing_to_select(labels):
    X, y = labels[0], np.repeat(["a", "b"], [70, 10])
    search = FastGridSearchCV(SVC(gamma=1e-6), {"C": [1e-3, 1e-2]}, cv=4, keep_predictions="all")
    with pytest.warns(UserWarning, match="predicts"):
        search.fit(X, y)
    with pytest.raises(ValueError, match="nothing to select"):
        search.honest_score()


def test_what_comparisons_refuse(numbers):
    search = ridge_search().fit(*numbers)
    with pytest.raises(ValueError, match="candidate 6 is not in cv_results_, which has 6"):
        search.compare(0, 6)
    with pytest.raises(ValueError, match="with itself"):
        search.compare(0, -6)
    with pytest.raises(ValueError, match="between 0 and 1"):
        search.significantly_worse(1.0)
    with pytest.raises(ValueError, match="use one of \\['score'\\]"):
        search.compare(0, 1, metric="r2")
    search.cv_results_["split1_test_score"][2] = np.nan
    with pytest.raises(ValueError, match="candidate 2 has the score nan on fold 1"):
        search.compare(0, 2)
    few = numbers[0][:20], numbers[1][:20]
    with pytest.warns(UserWarning, match="pooled"):
        single = ridge_search(cv=LeaveOneOut()).fit(*few)
    with pytest.raises(ValueError, match="pooled"):
        single.compare(0, 1)
    rule = ridge_search(cv=LeaveOneOut(), refit="one_standard_error")
    with (
        pytest.warns(UserWarning, match="pooled"),
        pytest.raises(ValueError, match="but scores are pooled over all rows"),
    ):
        rule.fit(*few)


def test_scores_that_are_all_nan_are_named():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    search = FastGridSearchCV(LSSVR(), {"alpha": [0.1, 1.0]}, cv=3, refit=False)
    search.set_params(scoring=lambda estimator, X, y: np.nan)
    with pytest.warns(UserWarning, match="non-finite"):
        search.fit(X, y)
    for ask in (search.significantly_worse, lambda: search.honest_score("nested", X, y)):
        with pytest.raises(ValueError, match="no candidate has a score on every fold"):
            ask()


def test_intervals_of_honest_scores_end_where_scores_do():
    X = np.random.default_rng(0).normal(size=(40, 3))
    y = X[:, 0] + 0.05 * np.random.default_rng(0).standard_t(1, 40)
    search = GridSearchCV(Ridge(), {"alpha": [1e-3, 1e-2]}).fit(X, y)
    found = judge.honest_score(search, "nested", X, y, outer=3, confidence=0.999)
    assert corrected_t(found.scores, 0.5, 0.999).high > 1.0
    assert found.interval[1] == 1.0

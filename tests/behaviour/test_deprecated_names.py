"""Names of version 0.2: each works for one release, warns, and gives what its new call gives."""

import math
import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.tree import DecisionTreeRegressor

from everyfold import (
    LSSVR,
    FastCalibratedClassifierCV,
    FastCrossConformalRegressor,
    FastGridSearchCV,
    FastRandomizedSearchCV,
    HuberSVC,
    InexactWarning,
    UnsupportedWarning,
    choose_granularity,
    cross_val_predict,
    cross_val_score,
    papers,
)
from everyfold.papers import MethodOptions
from everyfold.scorers import pooled

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 3))
y = X[:, 0] + 0.1 * RANDOM.normal(size=40)
SIDES = np.where(y > 0.0, 1, -1)
GRID = {"alpha": [0.01, 1.0], "gamma": [0.1, 1.0]}
CHOSEN = choose_granularity(0.1, ridge=1.0, smoothing=0.01)

RENAMED = [
    ({"order": "auto"}, {}, 'method="auto"'),
    ({"order": "exact"}, {"method": "exact"}, 'method="exact"'),
    ({"order": "screen"}, {"method": "screen"}, 'method="screen"'),
    ({"order": math.inf}, {"method": "fast"}, 'method="fast"'),
    (
        {"order": 2, "ridge_scaling": "mean"},
        {"method": papers.bif(order=2)},
        "method=everyfold.papers.bif(order=2)",
    ),
    (
        {"order": 2},
        {"method": papers.bif(order=2, ridge_scaling="sum")},
        "method=everyfold.papers.bif(order=2, ridge_scaling='sum')",
    ),
    (
        {"order": 1, "near_identity": 0.2},
        {"method": papers.bif(order=1, ridge_scaling="sum", near_identity=0.2)},
        "near_identity=0.2)",
    ),
    (
        {"order": CHOSEN, "ridge_scaling": "mean"},
        {"method": papers.granularity(0.1, ridge=1.0, smoothing=0.01)},
        "method=everyfold.papers.MethodOptions(order=Granularity(",
    ),
    ({"criterion": "gcv"}, {"method": papers.gcv()}, "method=everyfold.papers.gcv()"),
    (
        {"ridge_scaling": "mean"},
        {"method": MethodOptions(ridge_scaling="mean")},
        "method=everyfold.papers.MethodOptions(ridge_scaling='mean')",
    ),
    (
        {"n_confirm": 1},
        {"method": MethodOptions(n_confirm=1)},
        "method=everyfold.papers.MethodOptions(n_confirm=1)",
    ),
    ({"pooled": True}, {"scoring": pooled()}, "scoring=everyfold.scorers.pooled(None)"),
    (
        {"pooled": True, "scoring": "r2"},
        {"scoring": pooled("r2")},
        "scoring=everyfold.scorers.pooled('r2')",
    ),
    ({"pooled": False}, {"scoring": pooled(is_pooled=False)}, "pooled(None, False)"),
    (
        {"keep_predictions": "all"},
        {"method": MethodOptions(keeps="all")},
        "method=everyfold.papers.MethodOptions(keeps='all')",
    ),
    ({"fallback": "refit"}, {}, 'warnings.filterwarnings("ignore"'),
]


def compared(search):
    """The columns of the table that are not times, and no parameters."""
    table = search.fit(X, y).cv_results_
    return {name: table[name] for name in table if "time" not in name and "param" not in name}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("old", "new", "words"), RENAMED, ids=lambda value: str(value)[:60])
def test_each_old_name_warns_and_gives_what_the_new_one_gives(old, new, words):
    with pytest.warns(DeprecationWarning, match=" is now ") as said:
        search = FastGridSearchCV(LSSVR(), GRID, **old)
    assert len(said) == 1
    assert words in str(said[0].message)
    assert said[0].category is DeprecationWarning
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        expected = compared(FastGridSearchCV(LSSVR(), GRID, **new))
        found = compared(search)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert_array_equal(found[name], values, err_msg=name)


def test_a_journal_is_a_checkpoint(tmp_path):
    path = tmp_path / "search.journal"
    with pytest.warns(DeprecationWarning, match="^journal=.* is now checkpoint="):
        old = FastGridSearchCV(LSSVR(), GRID, journal=path)
    first = compared(old)
    size = path.stat().st_size
    again = compared(FastGridSearchCV(LSSVR(), GRID, checkpoint=path))
    assert path.stat().st_size == size
    assert_array_equal(again["mean_test_score"], first["mean_test_score"])


@pytest.mark.filterwarnings("ignore:order=:DeprecationWarning")
def test_old_names_become_parameters_that_survive_clone_repr_pickle_and_set_params():
    search = FastGridSearchCV(HuberSVC(), {"C": [1.0]}, order=2)
    assert search.get_params()["method"] == MethodOptions(order=2)
    assert "order" not in search.get_params()
    assert "method=MethodOptions(order=2)" in repr(search)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the new call is all that a copy knows
        copies = [clone(search), pickle.loads(pickle.dumps(search))]
    assert [own.method for own in copies] == [search.method] * 2
    with pytest.warns(DeprecationWarning, match="^ridge_scaling='mean' is now method="):
        search.set_params(ridge_scaling="mean")
    assert search.method == papers.bif(order=2)
    assert search.set_params(order="exact", ridge_scaling="sum").method == "exact"


def test_other_classes_and_functions_take_old_names():
    with pytest.warns(DeprecationWarning, match='^order=inf is now method="fast"'):
        drawn = FastRandomizedSearchCV(LSSVR(), GRID, order=math.inf)
    assert drawn.method == "fast"
    with pytest.warns(DeprecationWarning, match='^order=inf is now cv_method="fast"'):
        calibrated = FastCalibratedClassifierCV(HuberSVC(), order=math.inf)
    assert clone(calibrated).cv_method == "fast"
    with pytest.warns(DeprecationWarning, match='^order=.exact. is now method="exact"') as said:
        old = cross_val_score(LSSVR(), X, y, cv=3, order="exact")
    assert said[0].filename == __file__
    assert_array_equal(old, cross_val_score(LSSVR(), X, y, cv=3, method="exact"))
    with pytest.warns(DeprecationWarning, match="^pooled=True is now scoring="):
        old = cross_val_score(LSSVR(), X, y, cv=40, pooled=True)
    assert_array_equal(old, cross_val_score(LSSVR(), X, y, cv=40, scoring=pooled()))
    with pytest.warns(DeprecationWarning, match='^order=.exact. is now cv_method="exact"'):
        old = cross_val_predict(KernelRidge(), X, y, order="exact")
    assert_array_equal(old, cross_val_predict(KernelRidge(), X, y, cv_method="exact"))
    with pytest.warns(DeprecationWarning, match="^fallback='refit' is now warnings"):
        FastCrossConformalRegressor(LSSVR(), fallback="refit").fit(X, y)


def test_names_that_never_existed_are_refused():
    with pytest.raises(TypeError, match=r"FastGridSearchCV\(\) got an unexpected .* 'ordr'"):
        FastGridSearchCV(LSSVR(), GRID, ordr=2)
    with pytest.raises(TypeError, match=r"cross_val_score\(\) got an unexpected .* 'ordr'"):
        cross_val_score(LSSVR(), X, y, ordr=2)
    with pytest.raises(ValueError, match="Invalid parameter 'ordr'"):
        FastGridSearchCV(LSSVR(), GRID).set_params(ordr=2)
    with pytest.raises(ValueError, match="method='exakt' is not known"):
        FastGridSearchCV(LSSVR(), GRID, method="exakt").fit(X, y)


def test_pre_dispatch_of_scikit_learn_is_taken_and_has_no_effect():
    search = FastGridSearchCV(LSSVR(), GRID, pre_dispatch="all").set_params(pre_dispatch=2)
    assert "pre_dispatch" not in search.get_params()


def test_a_filter_of_warnings_refuses_or_silences_refits():
    search = FastGridSearchCV(DecisionTreeRegressor(), {"max_depth": [1, 2]})
    with pytest.warns(UnsupportedWarning, match="2 of 2 candidates are refitted"):
        search.fit(X, y)
    del search.cv_results_
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnsupportedWarning)
        for _ in range(2):  # not only the first time
            with pytest.raises(UnsupportedWarning, match="DecisionTreeRegressor"):
                search.fit(X, y)
            with pytest.raises(UnsupportedWarning, match="DecisionTreeRegressor"):
                cross_val_score(DecisionTreeRegressor(), X, y)
    assert not hasattr(search, "cv_results_")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UnsupportedWarning)
        search.fit(X, y)


def test_a_paper_brings_its_operator_folds_and_score():
    search = FastGridSearchCV(LSSVR(), GRID, method=papers.t_fbif(20, folds=4, random_state=0))
    with pytest.warns(InexactWarning):
        search.fit(X, y)
    assert search.n_splits_ == 4
    assert "t-FBIF" in str(search.plan_)
    with pytest.warns(InexactWarning):
        scores = cross_val_score(LSSVR(), X, y, method=papers.bif(folds=3))
    assert len(scores) == 3
    with pytest.raises(ValueError, match="has no folds"):
        cross_val_score(LSSVR(), X, y, method=papers.gcv())

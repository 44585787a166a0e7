"""Estimators and backends that derive from others: which are what they derive from, and which not.

The patches of scikit-learn-intelex are classes of its modules with the name of the class that they
derive from; the stand-ins below have that form.
"""

import sys
from types import ModuleType

import numpy as np
import pytest
import sklearn.model_selection as ms
from joblib import parallel_config
from joblib._parallel_backends import LokyBackend, MultiprocessingBackend, ThreadingBackend
from joblib.parallel import BACKENDS
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import is_classifier
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from everyfold import FastGridSearchCV, cross_val_predict, cross_val_score
from everyfold.adapters import sklearn as adapters
from everyfold.engine.execution.executor import local_threads

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
y = np.sin(X[:, 0]) + 0.2 * RNG.normal(size=60)
LABELS = np.where(y > 0.0, "yes", "no")


def patched(monkeypatch, module, kind, *between):
    """A class as a patch makes it: its own ``fit`` and ``score``, in a module of the patch."""

    def fit(self, X, y, sample_weight=None):
        return kind.fit(self, X, y, sample_weight=sample_weight)

    def score(self, X, y, sample_weight=None):
        return kind.score(self, X, y, sample_weight=sample_weight)

    made = type(kind.__name__, (*between, kind), {"fit": fit, "score": score})
    made.__init__ = kind.__init__
    made.__module__ = module
    stand_in = ModuleType(module)
    setattr(stand_in, kind.__name__, made)
    monkeypatch.setitem(sys.modules, module, stand_in)
    return made


class Dispatching:
    """Something that a patch mixes in."""


CASES = {
    "SVC": ("sklearnex.svm.svc", SVC, {"C": 3.0, "tol": 1e-6}),
    "SVR": ("sklearnex.svm.svr", SVR, {"C": 3.0, "tol": 1e-6}),
    "Ridge": ("daal4py.sklearn.linear_model.ridge", Ridge, {"alpha": 0.3}),
    "KernelRidge": ("sklearnex", KernelRidge, {"alpha": 0.3, "kernel": "rbf"}),
    "LogisticRegression": (
        "daal4py.sklearn.linear_model.logistic_path",
        LogisticRegression,
        {"C": 2.0, "tol": 1e-9},
    ),
}


@pytest.mark.parametrize(("module", "kind", "params"), CASES.values(), ids=CASES)
class TestPatched:
    def test_scores_and_predictions(self, monkeypatch, module, kind, params):
        model = patched(monkeypatch, module, kind, Dispatching)(**params)
        target = LABELS if is_classifier(kind()) else y
        ours = cross_val_score(model, X, target, cv=4)
        assert_allclose(ours, ms.cross_val_score(kind(**params), X, target, cv=4), rtol=1e-4)
        ours = cross_val_predict(model, X, target, cv=4)
        theirs = ms.cross_val_predict(kind(**params), X, target, cv=4)
        if target is LABELS:
            assert_array_equal(ours, theirs)
        else:
            assert_allclose(ours, theirs, atol=1e-4)

    def test_searches(self, monkeypatch, module, kind, params):
        made = patched(monkeypatch, module, kind)
        target = LABELS if is_classifier(kind()) else y
        name = "C" if "C" in params else "alpha"
        last = f"{kind.__name__.lower()}__"
        grid = {last + name: [0.1, 1.0, 10.0]}
        ours = FastGridSearchCV(make_pipeline(StandardScaler(), made(**params)), grid, cv=4)
        theirs = ms.GridSearchCV(make_pipeline(StandardScaler(), kind(**params)), grid, cv=4)
        ours.fit(X, target)
        theirs.fit(X, target)
        key = "mean_test_score"
        assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], rtol=1e-4)
        assert type(ours.best_estimator_[-1]) is made


def test_what_only_resembles_a_patch_is_refused(monkeypatch):
    accelerated = patched(monkeypatch, "sklearnex.svm.svc", SVC)

    class Odd(accelerated):
        pass

    class SVCPlus(SVC):
        __module__ = "sklearnex.svm.svc"

    for name in ("elsewhere.svm", "sklearnexample.svm", "my.sklearnex.svm"):
        with pytest.raises(TypeError, match="estimator=SVC is not supported"):
            cross_val_predict(patched(monkeypatch, name, SVC)(), X, LABELS, fallback="refuse")
    for kind in (Odd, SVCPlus):
        with pytest.raises(TypeError, match=f"estimator={kind.__name__} is not supported"):
            cross_val_predict(kind(), X, LABELS, fallback="refuse")


def test_a_patch_before_the_import_leaves_the_plain_class_known(monkeypatch):
    readers = {patched(monkeypatch, "sklearnex.svm.svc", SVC): adapters._READERS[SVC]}
    monkeypatch.setattr(adapters, "_READERS", readers)
    assert adapters.read_estimator(SVC(C=2.0)).ridges == (0.25,)
    with pytest.raises(TypeError, match="estimator=SVR is not supported"):
        adapters.read_estimator(SVR())


# -- backends of joblib --------------------------------------------------------------------------


@pytest.mark.parametrize("base", [MultiprocessingBackend, ThreadingBackend, LokyBackend])
def test_a_backend_derived_from_a_local_one_may_work_elsewhere(monkeypatch, base):
    class Cluster(base):
        def effective_n_jobs(self, n_jobs):
            return 8

    monkeypatch.setitem(BACKENDS, "cluster", Cluster)
    with parallel_config(backend="cluster"):
        assert local_threads(4) == 1


@pytest.mark.parametrize("name", ["loky", "threading", "multiprocessing"])
def test_backends_of_this_machine_are_local(name):
    with parallel_config(backend=name):
        assert local_threads(2) == 2


def test_a_joblib_without_processes_has_threads(monkeypatch):
    for name in ("loky", "multiprocessing"):
        monkeypatch.delitem(BACKENDS, name)
    with parallel_config(backend="threading"):
        assert local_threads(2) == 2

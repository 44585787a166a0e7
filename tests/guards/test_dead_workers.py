"""Workers that die: what they were at work on is tried again, and fails alone."""

import os
import signal
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Lasso
from sklearn.metrics import make_scorer, mean_squared_error
from sklearn.model_selection import LeaveOneOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from everyfold import LSSVR, FastGridSearchCV
from everyfold.engine.execution import executor as door
from everyfold.engine.execution.executor import WorkerDiedError

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
LABELS = np.array(["a", "b", "c"])[np.digitize(y, [-0.4, 0.4])]
GAMMAS = [0.1, 1e6, 0.2, 0.3, 0.4]
GRID = {"alpha": [0.1, 1.0], "gamma": GAMMAS}


def deadly_error(folder, y, predicted):
    """A score that kills a process, as long as it may, where the kernel is the identity."""
    if np.abs(predicted).max() < 1e-6 and os.path.exists(f"{folder}/deadly"):
        os.kill(os.getpid(), signal.SIGKILL)
    return -mean_squared_error(y, predicted)


def searched(folder, n_jobs, **options):
    scoring = make_scorer(partial(deadly_error, str(folder)))
    made = FastGridSearchCV(
        KernelRidge(kernel="rbf"), GRID, cv=3, scoring=scoring, n_jobs=n_jobs, **options
    )
    return made.fit(X, y)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:One or more of the test scores")
def test_a_unit_that_kills_its_worker_fails_alone(tmp_path):
    expected = searched(tmp_path, 1)
    (tmp_path / "deadly").touch()
    with pytest.warns(UserWarning, match="a worker process died; its work is tried again"):
        made = searched(tmp_path, 2, checkpoint=tmp_path / "journal")
    is_lost = made.cv_results_["param_gamma"] == 1e6
    assert_array_equal(made.cv_results_["status"] == "failed", is_lost)
    for name in ("mean_test_score", "split1_test_score"):
        scores = made.cv_results_[name]
        assert np.isnan(scores[is_lost]).all()
        assert_array_equal(scores[~is_lost], expected.cv_results_[name][~is_lost])
    lines = (tmp_path / "journal").read_bytes().count(b"\n")
    assert lines == 1 + len(GAMMAS) - 1  # what was lost is tried again by the next call
    (tmp_path / "deadly").unlink()
    again = searched(tmp_path, 1, checkpoint=tmp_path / "journal")
    assert_array_equal(
        again.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"]
    )


SCALED = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf"))
IN_PIPELINE = {"kernelridge__gamma": np.geomspace(0.01, 1.0, 10)}  # two batches of kernels
MEETINGS = {
    "kernel": (KernelRidge(kernel="rbf"), GRID, y, {}),
    "pipeline": (SCALED, IN_PIPELINE, y, {"keep_predictions": "all", "refit": False}),
    "train, metrics": (
        SCALED,
        IN_PIPELINE,
        y,
        {"return_train_score": True, "scoring": ["r2", "neg_max_error"], "refit": "r2"},
    ),
    "pooled": (SCALED, IN_PIPELINE, y, {"pooled": True, "preprocessing": "per_fold"}),
    "single rows": (KernelRidge(kernel="rbf"), GRID, y, {"cv": LeaveOneOut(), "scoring": "r2"}),
    "classes": (SVC(), {"C": [1.0, 2.0], "gamma": GAMMAS}, LABELS, {}),
    "criterion": (LSSVR(kernel="rbf"), GRID, y, {"criterion": "gcv", "cv": None}),
    "refits": (make_pipeline(Lasso()), {"lasso__alpha": [0.01, 0.1]}, y, {"fallback": "refit"}),
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("meeting", MEETINGS)
def test_a_lost_unit_meets_everything_else(monkeypatch, meeting):
    estimator, grid, target, options = MEETINGS[meeting]
    made = FastGridSearchCV(estimator, grid, **{"cv": 3, **options})
    expected = made.fit(X, target).cv_results_
    mapped, lost_numbers = door.map_unordered, []

    def losing(work, units, *rest, lost, **more):
        units = list(units)
        if not lost_numbers:
            lost_numbers.extend(units[0].numbers)
            yield units[0], lost(units[0], WorkerDiedError("gone"))
            units = units[1:]
        yield from mapped(work, units, *rest, **more)

    monkeypatch.setattr(door, "map_unordered", losing)
    made.fit(X, target)
    assert 0 < len(lost_numbers) < len(expected["params"])
    is_lost = np.isin(np.arange(len(expected["params"])), lost_numbers)
    for name in expected:
        if name.startswith(("mean_t", "split")) and "_time" not in name:
            found, known = made.cv_results_[name], expected[name]
            assert_array_equal(found[~is_lost], known[~is_lost], err_msg=name)
            if name.startswith("mean_test"):
                assert np.isnan(found[is_lost]).all()

"""About eighty seeded requests, and what the library answered before it was rebuilt.

``python -m tests.guards.snapshot > tests/guards/snapshot.json`` stored the answers of the old code.
The test of the same name compares: to 1e-10, scores of the hinge to 0.002.
"""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix
from sklearn.datasets import load_diabetes, load_iris, make_classification
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, RidgeCV
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneOut,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
    TimeSeriesSplit,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from everyfold import (
    LSSVC,
    LSSVR,
    Circulant,
    FastGridSearchCV,
    FastRandomizedSearchCV,
    HuberSVC,
    KernelClassifier,
    KernelLogisticClassifier,
    KernelRegressor,
    Nystrom,
    QuadraticSVR,
    cross_val_predict,
    cross_val_score,
)
from everyfold.io.arrays import ArrayRows

SUGAR, PROGRESS = load_diabetes(return_X_y=True)
SUGAR, PROGRESS = 20.0 * SUGAR[:120], PROGRESS[:120] / 100.0
BOTH = np.column_stack([PROGRESS, np.sin(PROGRESS)])
FLOWERS, KINDS = load_iris(return_X_y=True)
POINTS, SIDES = make_classification(110, 5, n_informative=3, flip_y=0.1, random_state=1)
WEIGHTS = np.random.default_rng(0).integers(0, 4, 120) / 2.0
GROUPS = np.arange(120) // 8
ALPHAS, CS = [0.01, 0.3, 5.0], [0.1, 1.0, 20.0]
FIVE = KFold(5, shuffle=True, random_state=0)
TEN = StratifiedKFold(10, shuffle=True, random_state=0)


def _search(estimator, grid, X, y, *, fit=None, kind=FastGridSearchCV, **options):
    search = kind(estimator, grid, refit=False, n_confirm=0, **options).fit(X, y, **(fit or {}))
    found = search.cv_results_
    names = [key for key in found if key.startswith(("mean_test", "std_test", "mean_train"))]
    answer = {name: np.asarray(found[name], dtype=float).tolist() for name in sorted(names)}
    answer["is_exact"] = found["is_exact"].tolist()
    answer["status"] = found["status"].tolist()
    return answer


def _values(function, *args, **options):
    return {"values": np.asarray(function(*args, **options), dtype=float).ravel().tolist()}


def _regressions():
    """Squared loss and its kin on numbers."""
    plain = (SUGAR, PROGRESS)
    gammas = {"alpha": ALPHAS, "gamma": [0.02, 0.3]}
    for name in ("rbf", "laplacian", "polynomial", "linear", "cosine"):
        grid = gammas if name != "cosine" else {"alpha": ALPHAS}
        yield f"krr {name}", lambda g=grid, k=name: _search(KernelRidge(kernel=k), g, *plain, cv=5)
    krr = KernelRidge(kernel="rbf")
    splitters = {
        "loo": LeaveOneOut(),
        "repeated": RepeatedKFold(n_splits=4, n_repeats=3, random_state=0),
        "shuffle": ShuffleSplit(4, test_size=0.3, random_state=0),
        "time": TimeSeriesSplit(4),
        "ten": KFold(10),
    }
    mse = {"scoring": "neg_mean_squared_error"}
    for name, cv in splitters.items():
        yield f"krr {name}", lambda cv=cv: _search(krr, gammas, *plain, cv=cv, **mse)
        yield f"lssvr {name}", lambda cv=cv: _search(LSSVR(), gammas, *plain, cv=cv, **mse)
    yield (
        "krr groups",
        lambda: _search(krr, gammas, *plain, cv=GroupKFold(4), fit={"groups": GROUPS}),
    )
    weighted = {"fit": {"sample_weight": WEIGHTS}, "cv": FIVE}
    yield "krr weights", lambda: _search(krr, gammas, *plain, **weighted)
    yield "ridge weights", lambda: _search(Ridge(), {"alpha": ALPHAS}, *plain, **weighted)
    yield "lssvr targets", lambda: _search(LSSVR(), gammas, SUGAR, BOTH, cv=FIVE)
    several = {"alpha": [[0.1, 1.0], [2.0, 0.3]]}
    yield "krr alphas", lambda: _search(krr, {**several, "gamma": [0.1]}, SUGAR, BOTH, cv=FIVE)
    yield "train", lambda: _search(krr, gammas, *plain, cv=4, return_train_score=True)
    yield "metrics", lambda: _search(krr, gammas, *plain, cv=4, scoring=["r2", "neg_max_error"])
    yield "csr", lambda: _search(krr, gammas, csr_matrix(SUGAR), PROGRESS, cv=4)
    frame = pd.DataFrame(SUGAR, columns=[f"x{k}" for k in range(10)])
    yield "frame", lambda: _search(LSSVR(), gammas, frame, PROGRESS, cv=4)
    yield "ridge", lambda: _search(Ridge(), {"alpha": ALPHAS}, *plain, cv=10)
    yield "ridgecv", lambda: _search(RidgeCV(), {"alphas": [ALPHAS, [1.0, 9.0]]}, *plain, cv=5)
    yield "mean", lambda: _search(LSSVR(), gammas, *plain, cv=FIVE, ridge_scaling="mean")
    for order in (1, 3, np.inf):
        yield (
            f"order {order}",
            lambda r=order: _search(LSSVR(), gammas, *plain, cv=FIVE, order=r),
        )
        yield (
            f"mean {order}",
            lambda r=order: _search(
                LSSVR(), gammas, *plain, cv=FIVE, order=r, ridge_scaling="mean"
            ),
        )
    yield "scale", lambda: _search(LSSVR(gamma="scale"), {"alpha": ALPHAS}, *plain, cv=5)
    steps = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf"))
    named = {f"kernelridge__{name}": values for name, values in gammas.items()}
    yield "pipeline", lambda: _search(steps, named, *plain, cv=5)
    yield (
        "pipeline once",
        lambda: _search(steps, named, *plain, cv=LeaveOneOut(), preprocessing="once", **mse),
    )
    for loss in ("quadratic_epsilon", "smooth_epsilon"):
        model = KernelRegressor(loss, gamma=0.05)
        yield loss, lambda m=model: _search(m, {"alpha": [0.1, 1.0]}, *plain, cv=4)
    lone = {"cv": LeaveOneOut(), **mse}
    for ending, how in (("", {}), (" step", {"order": np.inf})):
        for name, model in (
            ("svr loo", SVR(gamma=0.05)),
            ("quadratic svr", QuadraticSVR(gamma=0.05)),
        ):
            yield (
                f"{name}{ending}",
                lambda m=model, how=how: _search(m, {"C": CS}, *plain, **lone, **how),
            )
    landmarks = Nystrom(25, random_state=0)
    yield "nystrom", lambda: _search(LSSVR(operator=landmarks), gammas, *plain, cv=FIVE)
    yield (
        "nystrom loo",
        lambda: _search(LSSVR(operator=landmarks), gammas, *plain, cv=LeaveOneOut(), **mse),
    )
    yield (
        "nystrom uniform",
        lambda: _search(
            KernelRegressor(operator=Nystrom(30, 12, sampling="uniform", random_state=1)),
            gammas,
            *plain,
            cv=FIVE,
        ),
    )
    circulant = LSSVR(operator=Circulant(factors=(12, 10), steps=1.0))
    yield "circulant", lambda: _search(circulant, {"alpha": ALPHAS, "gamma": [0.3]}, *plain, cv=12)
    source = ArrayRows(SUGAR, PROGRESS, sample_weight=np.maximum(WEIGHTS, 0.5))
    model = LSSVR(operator=landmarks)
    yield "source", lambda: _search(model, gammas, source, None, cv=4)
    yield (
        "source mae",
        lambda: _search(model, gammas, source, None, cv=4, scoring="neg_mean_absolute_error"),
    )
    yield "values", lambda: _values(cross_val_predict, KernelRidge(alpha=0.1), *plain, cv=7)
    yield (
        "values loo",
        lambda: _values(cross_val_predict, LSSVR(gamma=0.1), *plain, cv=LeaveOneOut()),
    )
    yield "scores", lambda: _values(cross_val_score, Ridge(), *plain, cv=6)
    yield (
        "values source",
        lambda: _values(cross_val_predict, LSSVR(operator=landmarks), source, cv=3),
    )
    draws = {"alpha": ALPHAS, "gamma": [0.02, 0.1, 0.3]}
    random = {"kind": FastRandomizedSearchCV, "n_iter": 5, "random_state": 0}
    yield "random", lambda: _search(krr, draws, *plain, cv=5, **random)


def _classifications():
    """Labels of two classes and of three."""
    two, three = (POINTS, SIDES), (FLOWERS, KINDS)
    grid = {"alpha": ALPHAS, "gamma": [0.1, 1.0]}
    svc = {"C": CS, "gamma": [0.1, 1.0]}
    for name, data in (("two", two), ("three", three)):
        yield f"lssvc {name}", lambda d=data: _search(LSSVC(), grid, *d, cv=TEN)
        yield f"lssvc loo {name}", lambda d=data: _search(LSSVC(), grid, *d, cv=LeaveOneOut())
        balanced = LSSVC(class_weight="balanced")
        yield f"balanced {name}", lambda d=data, m=balanced: _search(m, grid, *d, cv=5)
        pairs = KernelClassifier(multi_class="ovo")
        yield f"pairs {name}", lambda d=data, m=pairs: _search(m, grid, *d, cv=5)
        ridge = RidgeClassifier()
        yield f"ridge {name}", lambda d=data, m=ridge: _search(m, {"alpha": ALPHAS}, *d, cv=5)
        for model in (HuberSVC(gamma=0.3), KernelLogisticClassifier(gamma=0.3)):
            kind = type(model).__name__
            yield f"{kind} {name}", lambda d=data, m=model: _search(m, {"C": CS}, *d, cv=4)
        yield f"svc {name}", lambda d=data: _search(SVC(), svc, *d, cv=TEN, order="exact")
        yield f"svc auto {name}", lambda d=data: _search(SVC(), svc, *d, cv=5)
        lone = {"cv": LeaveOneOut(), "order": np.inf}
        yield f"svc loo {name}", lambda d=data, o=lone: _search(SVC(), svc, *d, **o)
        steps = make_pipeline(StandardScaler(), SVC())
        yield f"svc steps {name}", lambda d=data, m=steps: _search(m, {"svc__C": CS}, *d, cv=5)
    yield "logistic", lambda: _search(LogisticRegression(), {"C": CS}, *two, cv=5)
    auc = {"scoring": "roc_auc", "cv": 5}
    yield "auc", lambda: _search(LSSVC(), grid, *two, **auc)
    huber = HuberSVC(gamma=0.3), {"C": CS}, *two
    many = SVC(gamma=0.3), {"C": CS}, *two
    for ending, how in (("", {}), (" step", {"order": np.inf})):
        yield f"huber loo{ending}", lambda how=how: _search(*huber, cv=LeaveOneOut(), **how)
        yield f"svc 30 folds{ending}", lambda how=how: _search(*many, cv=KFold(30), **how)
    yield (
        "svr",
        lambda: _search(SVR(), {"C": CS, "gamma": [0.05]}, SUGAR, PROGRESS, cv=5, order="exact"),
    )
    source = ArrayRows(POINTS, SIDES)
    model = LSSVC(operator=Nystrom(30, random_state=0))
    yield "labels source", lambda: _search(model, grid, source, None, cv=KFold(4))


REQUESTS = dict([*_regressions(), *_classifications()])
OF_THE_HINGE = tuple(name for name in REQUESTS if name.startswith(("svc", "svr")))


def answer(name):
    """What the library says to a request."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return REQUESTS[name]()


if __name__ == "__main__":
    json.dump({name: answer(name) for name in REQUESTS}, sys.stdout, indent=0)

"""The peers: how each is called, what it needs, which problems it can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from benchmarks.peers.problems import FOLDS, ROOT, Problem

TRIALS = 12  # of optuna: a third of the grid


@dataclass(frozen=True)
class Found:
    """A peer's answer: its model, the score it reports, and the winner if refits can repeat it."""

    predict: Callable[[np.ndarray], np.ndarray]
    reported: float | None
    winner: dict[str, float] | None = None
    times: float = 1.0  # the whole over what was run


def _searched(search: Any, X: np.ndarray, y: np.ndarray) -> Found:
    search.fit(X, y)
    return Found(search.predict, search.best_score_, search.best_params_)


def everyfold(problem: Problem, X: np.ndarray, y: np.ndarray, folds: Any) -> Found:
    from everyfold import FastGridSearchCV

    model, grid = problem.estimator(), problem.grid()
    return _searched(FastGridSearchCV(model, grid, cv=folds, scoring=problem.scoring), X, y)


def no_grid(problem: Problem, X: np.ndarray, y: np.ndarray, folds: Any) -> Found:
    from everyfold import KernelRidgeClassifierCV, KernelRidgeCV

    kind = KernelRidgeCV if problem.is_regression else KernelRidgeClassifierCV
    model = kind(random_state=0).fit(X, y)
    return Found(model.predict, model.best_score_)


def logistic(problem: Problem, X: np.ndarray, y: np.ndarray, folds: Any) -> Found:
    from sklearn.linear_model import LogisticRegressionCV

    model = LogisticRegressionCV(
        Cs=np.logspace(-1, 4, 6), l1_ratios=(0.0,), cv=folds, max_iter=1000,
        use_legacy_attributes=False,
    ).fit(X, y)  # fmt: skip
    return Found(model.predict, float(np.max(model.scores_.mean(axis=0))))


def gridsearch(problem: Problem, X: np.ndarray, y: np.ndarray, folds: Any, jobs: int = 1) -> Found:
    from sklearn.model_selection import GridSearchCV

    grid = problem.grid(problem.share)
    search = GridSearchCV(problem.estimator(), grid, cv=folds, scoring=problem.scoring, n_jobs=jobs)
    if problem.share == 1:
        return _searched(search, X, y)
    search.set_params(cv=list(folds.split(X, y))[: problem.folds], refit=False).fit(X, y)
    fits = len(search.cv_results_["params"]) * problem.folds
    whole = FOLDS * np.prod([len(values) for values in problem.grid().values()])
    return Found(lambda rows: rows[:, 0] * np.nan, None, None, float(whole) / fits)


def gridsearch2(problem: Problem, X: np.ndarray, y: np.ndarray, folds: Any) -> Found:
    return gridsearch(problem, X, y, folds, jobs=2)


def intelex(problem: Problem, X: np.ndarray, y: np.ndarray, folds: Any) -> Found:
    from sklearnex import patch_sklearn

    patch_sklearn(verbose=False)
    return gridsearch(problem, X, y, folds)


def halving(problem: Problem, X: np.ndarray, y: np.ndarray, folds: Any) -> Found:
    from sklearn.experimental import enable_halving_search_cv  # noqa: F401
    from sklearn.model_selection import HalvingGridSearchCV

    search = HalvingGridSearchCV(
        problem.estimator(), problem.grid(), cv=folds, scoring=problem.scoring, random_state=0
    )
    return _searched(search, X, y)


def nystroem(problem: Problem, X: np.ndarray, y: np.ndarray, folds: Any) -> Found:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import RidgeClassifierCV, RidgeCV
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline

    name, ridges, gammas = problem.axes()
    alphas = ridges if name == "alpha" else 1 / (2 * ridges)
    last = RidgeCV(alphas) if problem.is_regression else RidgeClassifierCV(alphas)
    model = make_pipeline(Nystroem(n_components=300, random_state=0), last)
    search = GridSearchCV(model, {"nystroem__gamma": gammas}, cv=folds, scoring=problem.scoring)
    search.fit(X, y)
    return Found(search.predict, search.best_score_)


def optuna(problem: Problem, X: np.ndarray, y: np.ndarray, folds: Any) -> Found:
    import optuna as package
    from sklearn.model_selection import cross_val_score

    package.logging.set_verbosity(package.logging.ERROR)
    name, ridges, gammas = problem.axes()

    def objective(trial: Any) -> float:
        drawn = {
            name: trial.suggest_float(name, ridges.min(), ridges.max(), log=True),
            "gamma": trial.suggest_float("gamma", gammas.min(), gammas.max(), log=True),
        }
        model = problem.estimator().set_params(**drawn)
        return cross_val_score(model, X, y, cv=folds, scoring=problem.scoring).mean()

    study = package.create_study(direction="maximize", sampler=package.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=TRIALS)
    model = problem.estimator().set_params(**study.best_params).fit(X, y)
    return Found(model.predict, study.best_value, study.best_params)


def himalaya(problem: Problem, X: np.ndarray, y: np.ndarray, folds: Any) -> Found:
    from himalaya.kernel_ridge import KernelRidgeCV

    name, ridges, gammas = problem.axes()
    best: tuple[float, Any, float] | None = None
    for gamma in gammas:
        model = KernelRidgeCV(
            alphas=ridges, kernel="rbf", kernel_params={"gamma": gamma}, cv=folds
        ).fit(X, y[:, None])
        score = float(np.ravel(model.cv_scores_)[0])
        if best is None or score > best[0]:
            best = score, model, gamma
    assert best is not None
    score, model, gamma = best
    ridge = float(np.ravel(model.best_alphas_)[0])
    return Found(lambda rows: np.ravel(model.predict(rows)), score, {name: ridge, "gamma": gamma})


def torchkm(problem: Problem, X: np.ndarray, y: np.ndarray, folds: Any) -> Found:
    import torch
    from torchkm.estimators import TorchKMSVC

    torch.set_num_threads(1)
    _, ridges, gammas = problem.axes()
    place = np.empty(len(y), dtype=int)
    for k, (_, test) in enumerate(folds.split(X, y)):
        place[test] = k + 1
    best: tuple[float, Any, float] | None = None
    for gamma in gammas:
        model = TorchKMSVC(
            kernel="precomputed", Cs=ridges[::-1].copy(), nC=len(ridges), cv=FOLDS, foldid=place,
            max_iter=20_000, device="cpu",
        ).fit(_rbf(X, X, gamma), y)  # fmt: skip
        score = 1.0 - float(np.min(model.cv_mis_))
        if best is None or score > best[0]:
            best = score, model, gamma
    assert best is not None
    score, model, gamma = best
    return Found(
        lambda rows: model.predict(_rbf(rows, X, gamma)),
        score,
        {"C": float(model.best_C_), "gamma": gamma},
    )


def _rbf(A: np.ndarray, B: np.ndarray, gamma: float) -> np.ndarray:
    from sklearn.metrics.pairwise import rbf_kernel

    return rbf_kernel(A, B, gamma)


def neo(problem: Problem, X: np.ndarray, y: np.ndarray, folds: Any) -> Found:
    from neo_ls_svm import NeoLSSVM

    model = NeoLSSVM(random_state=0).fit(X, y)
    score = model.loo_score_ - 1.0 if problem.is_regression else model.loo_score_
    return Found(model.predict, float(score))


@dataclass(frozen=True)
class Peer:
    """Who it is, what it needs, which problems it can do."""

    name: str
    run: Callable[[Problem, np.ndarray, np.ndarray, Any], Found]
    needs: tuple[str, ...]
    kinds: tuple[str, ...] = ("two classes", "ten classes", "regression")
    most: int = 10_000  # rows


STOCK = ("scikit-learn",)
PEERS = {
    peer.name: peer
    for peer in (
        Peer("everyfold", everyfold, ("-e", str(ROOT)), most=100_000),
        Peer("everyfold, no grid", no_grid, ("-e", str(ROOT)), most=100_000),
        Peer("GridSearchCV", gridsearch, STOCK, most=100_000),
        Peer("GridSearchCV, 2 jobs", gridsearch2, STOCK),
        Peer("HalvingGridSearchCV", halving, STOCK),
        Peer(
            "scikit-learn-intelex",
            intelex,
            ("scikit-learn-intelex", *STOCK),
            ("two classes", "ten classes"),
        ),
        Peer("Nystroem + RidgeCV", nystroem, STOCK, most=100_000),
        Peer("LogisticRegressionCV", logistic, STOCK, ("two classes", "ten classes")),
        Peer("optuna", optuna, ("optuna", *STOCK)),
        Peer("torchkm", torchkm, ("torch", "torchkm", *STOCK), ("two classes",)),
        Peer("himalaya", himalaya, ("himalaya", "packaging", *STOCK), ("regression",)),
        Peer(
            "neo-ls-svm", neo, ("neo-ls-svm", "pandas", *STOCK), ("two classes", "regression"),
            most=100_000,
        ),
    )
}  # fmt: skip

"""The model of every fold at new rows, against models that are fitted to its training rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.model_selection import KFold

from everyfold.crossval import Folds
from everyfold.crossval.fold_models import are_complements, fold_models
from everyfold.operators.response import StructureError
from tests import cases, reference


def refitted(found, problem, folds, ridge):
    """Values at the new rows, a column for each fold and one for all rows."""
    everything = np.arange(problem.n)
    columns = []
    for train in [*(fold.train for fold in folds), everything]:
        K = found.K[np.ix_(train, train)]
        a, b = reference.fit(K, problem.y[train, 0], problem.w[train], ridge, problem.intercept)
        columns.append(found.K_new[:, train] @ a + b)
    return np.column_stack(columns)


@pytest.mark.parametrize("operator", [*cases.OPERATORS, "nystrom_precomputed", "waves"])
@pytest.mark.parametrize("fold", ["unequal", "loo", "groups"])
@pytest.mark.parametrize("weight", ["none", "zeros"])
@pytest.mark.parametrize("intercept", [True, False])
def test_fold_models_equal_refits(operator, fold, weight, intercept):
    problem = cases.problem(1, weight, intercept)
    found, folds = cases.item(operator), cases.folds(fold)
    models = fold_models(problem, found.operator, 0.3, folds)
    ours = found.operator.expand(models.solution.coef)(found.new) + models.solution.intercept
    theirs = refitted(found, problem, folds, 0.3)
    assert_allclose(ours, theirs, rtol=0.0, atol=1e-10 * np.abs(theirs).max())
    held = reference.held_out(found.K, problem.y, problem.w, 0.3, intercept, folds)
    assert_allclose(models.held_out.values, held, rtol=0.0, atol=1e-10 * np.abs(held).max())
    assert models.held_out.is_exact.all()


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("shuffle", [False, True])
def test_sets_of_any_size(size, shuffle):
    """Few sets are solved for, many are read off the inverse."""
    problem, found = cases.problem(1, "random"), cases.item("rbf")
    splitter = KFold(cases.N // size, shuffle=shuffle, random_state=0 if shuffle else None)
    folds = Folds.from_splits(splitter.split(np.empty(cases.N)), cases.N)
    models = fold_models(problem, found.operator, 0.03, folds)
    ours = found.K_new @ models.solution.coef + models.solution.intercept
    assert_allclose(ours, refitted(found, problem, folds, 0.03), atol=1e-10)


def test_only_complements_are_sped_up():
    assert are_complements(cases.folds("groups"))
    assert not are_complements(cases.folds("shuffle"))


@pytest.mark.parametrize("operator", ["influence", "circulant", "dual"])
def test_structures_that_cannot_say_so_say_that(operator):
    problem, found = cases.problem(1), cases.item(operator)
    with pytest.raises(StructureError, match="fit the training rows"):
        fold_models(problem, found.operator, 0.3, cases.folds("equal"))

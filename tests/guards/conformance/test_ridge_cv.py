"""scikit-learn's tests of RidgeCV and RidgeClassifierCV, with kernels that are linear in place."""

from inspect import getsource
from unittest.mock import patch

from sklearn import linear_model

from everyfold import KernelRidgeClassifierCV, KernelRidgeCV
from tests.guards.conformance import borrowed

ALPHAS = (0.1, 1.0, 10.0)


class _Linear:
    """What the tests ask of a linear model besides."""

    @property
    def coef_(self):
        coef = self.expansion_.coef
        if hasattr(self.expansion_, "X"):  # dual coefficients
            coef = self.expansion_.X.T @ coef
        return coef[:, 0] if coef.shape[1] == 1 else coef.T


class RidgeCV(_Linear, KernelRidgeCV):
    def __init__(
        self,
        alphas=ALPHAS,
        *,
        fit_intercept=True,
        scoring=None,
        cv=None,
        gcv_mode=None,
        store_cv_results=False,
        alpha_per_target=False,
    ):
        own = {name: value for name, value in locals().items() if name not in ("self", "gcv_mode")}
        own.pop("__class__")
        super().__init__(kernel="linear", **own)
        self.gcv_mode = gcv_mode


class RidgeClassifierCV(_Linear, KernelRidgeClassifierCV):
    def __init__(
        self,
        alphas=ALPHAS,
        *,
        fit_intercept=True,
        scoring=None,
        cv=None,
        class_weight=None,
        store_cv_results=False,
    ):
        own = {name: value for name, value in locals().items() if name != "self"}
        own.pop("__class__")
        super().__init__(kernel="linear", **own)


with patch.multiple(linear_model, RidgeCV=RidgeCV, RidgeClassifierCV=RidgeClassifierCV):
    from sklearn.linear_model.tests import test_ridge as theirs

globals().update(
    {
        name: test
        for name, test in borrowed.collected(theirs).items()
        if any(words in getsource(test) for words in ("RidgeCV", "RidgeClassifierCV"))
    }
)

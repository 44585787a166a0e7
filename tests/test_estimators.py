"""scikit-learn's own checks, and the answers of scikit-learn's own estimators."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from everyfold import LSSVC, LSSVR, KernelClassifier, KernelRegressor


@parametrize_with_checks(
    [
        KernelRegressor(),
        KernelClassifier(),
        LSSVR(),
        LSSVC(),
        KernelRegressor(kernel="linear"),
        LSSVC(kernel="linear", operator="dense"),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)

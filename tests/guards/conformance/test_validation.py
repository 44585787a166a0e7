"""scikit-learn's tests of cross_val_score and its kin, with our functions in place."""

from tests.guards.conformance.borrowed import borrowed

globals().update(borrowed("test_validation"))

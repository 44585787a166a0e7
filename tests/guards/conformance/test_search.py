"""scikit-learn's tests of GridSearchCV and RandomizedSearchCV, with our classes in place."""

from tests.guards.conformance.borrowed import borrowed

globals().update(borrowed("test_search"))

"""What the scripts that compare searches with ``GridSearchCV`` share: rows, one thread, times."""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sklearn
from sklearn.datasets import load_svmlight_file
from threadpoolctl import threadpool_limits

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "libsvm"
"""Sets of LIBSVM beside the project."""

Rows = tuple[Any, Any]


def shared(name: str) -> Callable[..., Rows]:
    """A function that reads one of these sets, called as those of ``sklearn.datasets``."""

    def load(*, return_X_y: bool) -> Rows:
        assert return_X_y
        X, y = load_svmlight_file(str(SHARED / f"{name}.svm.gz"))
        return X.toarray(), y

    return load


def use_one_thread() -> None:
    """From here on, and say with what: times of both sides are then those of one processor."""
    threadpool_limits(1)
    print(f"Python {platform.python_version()}, scikit-learn {sklearn.__version__}, one thread")


def seconds(
    search: Any, X: Any, y: Any, clock: Callable[[], float] = time.process_time, **fit: Any
) -> float:
    """The time that a fit takes, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = clock()
        search.fit(X, y, **fit)
        return clock() - start

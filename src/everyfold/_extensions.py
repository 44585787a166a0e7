"""What packages above the core add to it under a name, so that the core need not import them.

``everyfold.papers`` enters its criteria, metrics and operators here when it is imported. A name
that is not known imports it first: only a search that asks for a method of a paper loads the
papers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from everyfold._typing import Scorer

# Criteria without folds, by the names that users pass as ``criterion=``.
CRITERIA: dict[str, Any] = {}

# Classes of operators for special purposes, by name.
OPERATORS: dict[str, Any] = {}


@dataclass(frozen=True)
class MetricFacts:
    """What the scoring of folds must know of a metric that scikit-learn does not have.

    Attributes
    ----------
    fast : callable
        From a scorer of the metric and the target, a function that can be pickled; None if the
        options of the scorer are not supported. From the scored rows of all folds and their
        values, the function makes the scores of all folds, and which of them are known.
    alone : str
        What the mean over folds of one row is; empty if the metric itself.
    instead : str
        The scorer to use for such folds, as the remedy of messages.
    """

    fast: Callable[[Scorer, Any], Callable[..., Any] | None]
    alone: str = ""
    instead: str = ""


METRICS: dict[object, MetricFacts] = {}


def find(table: dict[str, Any], name: str) -> Any:
    """The entry of this name, or None; a name that is not known yet imports the papers."""
    if name not in table:
        import_module("everyfold.papers")
    return table.get(name)

"""How held-out values come about: one engine for each kind of loss."""

from everyfold.engines.base import Answer, Bench, Engine, Method, all_unique, evaluate
from everyfold.engines.closed import ClosedForm
from everyfold.engines.nested import OwnChoice
from everyfold.engines.newton import NewtonSteps, OneVersusOne
from everyfold.engines.paths import FoldPathsOfC
from everyfold.model import Model

__all__ = ["Answer", "Bench", "Engine", "Method", "all_unique", "evaluate", "find_engine"]

_PLAIN: tuple[Engine, ...] = (OwnChoice(), ClosedForm(), NewtonSteps(), FoldPathsOfC())

ENGINES: tuple[Engine, ...] = (*(OneVersusOne(engine) for engine in _PLAIN), *_PLAIN)
"""The engines; the first that suits a model does its work."""


def find_engine(model: Model) -> Engine:
    """The engine for a model's loss."""
    for engine in ENGINES:
        if engine.suits(model):
            return engine
    raise ValueError(f"no engine cross-validates loss={model.loss}; use loss='squared'")

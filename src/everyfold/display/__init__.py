"""Pictures of a finished search, in scikit-learn's Display style. matplotlib is needed to draw."""

from everyfold.display.curves import CVCurveDisplay
from everyfold.display.heldout import OutOfFoldDisplay
from everyfold.display.surfaces import CVSurfaceDisplay

__all__ = ["CVCurveDisplay", "CVSurfaceDisplay", "OutOfFoldDisplay"]

"""Sources of rows that need not fit in memory: read in blocks, the same rows in every pass.

The names are those of ``everyfold.io``.
"""

from everyfold.io import *  # noqa: F403
from everyfold.io import __all__ as __all__

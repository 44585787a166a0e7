"""What a search takes beside its units: a fixed time, and compiled code on its first use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

# Seconds for reading, planning and tables; searches of 150 rows took 0.012 to 0.02 (processor
# time, one thread), of which 0.003 to 0.006 are counted by their units.
SEARCH = 0.012

# Seconds for a module of compiled code: read from numba's cache with numba itself, or compiled.
# 0.47, and 5.1 to 6.7, were measured in processes of their own.
_LOADING, _COMPILING = 0.45, 5.5


def first_use(modules: Iterable[str]) -> float:
    """Seconds until modules of compiled code are ready in this process."""
    missing = [name for name in set(modules) if name not in sys.modules]
    if not missing:
        return 0.0
    return _LOADING + sum(_COMPILING for name in missing if not _is_cached(name))


def _is_cached(module: str) -> bool:
    """Whether numba has kept what it compiled of a module, in one of the places it uses."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return False
    source = Path(spec.origin)
    places = [source.parent / "__pycache__"]
    if os.environ.get("NUMBA_CACHE_DIR"):
        places = [Path(os.environ["NUMBA_CACHE_DIR"])]
    return any(next(place.rglob(f"{source.stem}.*.nbi"), None) for place in places)

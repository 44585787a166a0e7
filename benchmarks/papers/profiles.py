"""How much of the papers is computed: a few minutes, about an hour, or all of it."""

from __future__ import annotations

import numpy as np
from benchmarks.papers.study import Profile

PROFILES = {
    "quick": Profile("quick", ((200, 3),), largest=1000, timed=200),
    "hour": Profile("hour", ((250, 10), (600, 4), (np.inf, 3)), largest=1000),
    "full": Profile("full", ((np.inf, 1000),)),
}

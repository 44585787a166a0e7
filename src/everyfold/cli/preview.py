"""What ``search`` would do, without doing it."""

from __future__ import annotations

from everyfold.cli.job import Job
from everyfold.cli.manners import BadInput
from everyfold.selection import FastGridSearchCV, SearchPlan


def preview(job: Job) -> SearchPlan:
    """Everything ``search`` decides before its first kernel, and what that should cost."""
    try:
        plan: SearchPlan = job.search(FastGridSearchCV, [job.grid]).plan(job.data.X, job.data.y)
        return plan
    except (ValueError, TypeError) as error:
        raise BadInput(str(error)) from error

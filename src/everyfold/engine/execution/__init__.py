"""Carrying out a plan: units of work, workers, passes over rows, refits."""

"""Gaussian processes: the held-out distributions of all folds, and scores of distributions."""

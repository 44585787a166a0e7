"""Estimators and Pipelines of scikit-learn, read as models that can be evaluated without refits."""

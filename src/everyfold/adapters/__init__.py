"""What users ask for: estimators, adapters of scikit-learn's, targets, Pipelines taken apart."""

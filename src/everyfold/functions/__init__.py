"""Functions with scikit-learn's names and signatures, without its refits."""

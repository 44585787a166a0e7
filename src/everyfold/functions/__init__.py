"""``cross_val_score`` and its kin: scikit-learn's functions without refits."""

"""Kernel ridge models that choose their own ridge and kernel width by held-out scores."""

"""Strategies: what to evaluate next, given what is known of the candidates."""

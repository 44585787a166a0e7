"""The HTML report of a search."""

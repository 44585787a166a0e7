"""Searches of kernel machines by other packages."""

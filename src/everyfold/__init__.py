"""Every fold from one fit: cross-validation of kernel machines without refitting."""

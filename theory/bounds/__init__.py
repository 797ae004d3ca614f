"""Bounds on the model update, and the papers' scalar model."""

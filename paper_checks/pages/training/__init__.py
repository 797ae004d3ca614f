"""TRAINING.md and its figures."""

"""TRANSFORMERS.md and its figures."""

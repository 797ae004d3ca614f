"""The audit in continuous integration: what a model is held against there, and what is told of it where.

``law`` asserts it in a test of the user's own, ``outcome`` says what of an audit fails, ``baseline`` is what was
accepted before, ``reports`` writes pages and SARIF, and ``configured`` reads ``[tool.depthlaw]`` of pyproject.toml.
"""

from depthlaw.testing.law import assert_depth_law

__all__ = ["assert_depth_law"]

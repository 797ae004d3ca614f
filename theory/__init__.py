"""Exact: what a scheme's update is at any depth, which rule keeps it from growing, and bounds on it.

>>> from depthlaw.theory import predict, solve_rule
>>> round(predict("post-ln", "sgd", 8).update, 4)
5.3333
"""

import lazy_loader as lazy

# The names stand in the .pyi beside this; each is imported when somebody asks for it.
__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)

"""The depth laws of Transformers, derived, verified and measured: the names that a person needs, in one import.

What a model does: ``predict`` (its update in one step), ``measure`` (the same on real networks), ``Network`` (a scheme
or recipe at a depth and width, for both); ``train``, ``TrainConfig``, ``Trial``, ``execute`` (training runs).
What to choose: ``solve_rule`` (residual weight, init gain), ``advise`` (what to change as a model gets deeper).
Your own module: ``audit`` (what is wrong with it), ``initialise`` (draws its weights anew),
``watch`` (what each step of its training moves).
What there is: ``scheme``, ``custom_scheme``, ``recipe``, ``optimizer``.
What the papers print: ``claim``, ``su_optimizers``, ``su_prenorm``.

Everything else is found where it lives: ``depthlaw.theory`` is exact, ``depthlaw.sims`` measures, and
``depthlaw.paper_checks`` holds both against the papers.

>>> import depthlaw
>>> network = depthlaw.Network(scheme=depthlaw.scheme("deepnorm"), num_sublayers=8, d_model=64)
>>> round(network.theory("adam").update, 3)
1.27
"""

from typing import Any

import lazy_loader as lazy

# The names stand in the .pyi beside this; each is imported when somebody asks for it.
_getattr, __dir__, __all__ = lazy.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("depthlaw")
    return _getattr(name)

"""Claims, verdicts, real networks beside predictions, the command line: what knows both ``theory`` and ``sims``.

>>> from depthlaw.paper_checks import Network, claim
>>> from depthlaw.theory import scheme
>>> network = Network(scheme=scheme("post-ln"), num_sublayers=8, d_model=64)
>>> round(network.theory("sgd").update, 4), claim("S1-24").expected.value
(5.3333, 'CONFIRMED')
"""

import lazy_loader as lazy

# The names stand in the .pyi beside this; each is imported when somebody asks for it.
__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)

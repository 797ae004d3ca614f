"""What papers print, and whether it holds: claims, their verdicts, and real networks beside what is predicted.

>>> from depthlaw.paper_checks import claim
>>> claim("S1-24").expected.value
'CONFIRMED'
"""

import lazy_loader as lazy

# The names stand in the .pyi beside this; each is imported when somebody asks for it.
__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)

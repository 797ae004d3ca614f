from depthlaw.paper_checks import *
from depthlaw.paper_checks.audit.audit import audit as audit
from depthlaw.sims import *
from depthlaw.theory import *

__version__: str

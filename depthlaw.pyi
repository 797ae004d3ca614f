from paper_checks import *
from paper_checks.audit.audit import audit as audit
from sims import *
from theory import *

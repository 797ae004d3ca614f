from paper_checks import *
from sims import *
from theory import *

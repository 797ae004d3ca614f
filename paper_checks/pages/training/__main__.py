"""Rewrites TRAINING.md and its figures: python -m depthlaw.paper_checks.pages.training"""

from depthlaw.paper_checks.pages.training.page import write
from depthlaw.paper_checks.pages.training.runs import records

if __name__ == "__main__":
    write(records())

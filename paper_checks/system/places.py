"""Where things are in a checkout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "sims" / "records"
"""What was measured at initialisation; what is the user's own lies below, in ``local``, which git ignores."""
TRAINING_RECORDS = RECORDS / "training"
RESULTS = ROOT / "paper_checks" / "results"
"""What is generated and committed: pages, tables, kept answers, and below them the figures."""
FIGURES = RESULTS / "figures"
NOTEBOOKS = ROOT / "notebooks"

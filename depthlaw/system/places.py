"""Where things are, in a checkout and in an installed depthlaw."""

from pathlib import Path

ROOT = (Path(__file__).resolve().parents[1] / "sims").resolve().parent
"""The folder of theory, sims and paper_checks: the checkout, or depthlaw itself where it is installed."""
RECORDS = ROOT / "sims" / "records"
"""What was measured at initialisation; what is the user's own lies below, in ``local``, which git ignores."""
TRAINING_RECORDS = RECORDS / "training"
RESULTS = ROOT / "paper_checks" / "results"
"""What is generated and committed: pages, tables, kept answers, and below them the figures."""
FIGURES = RESULTS / "figures"
NOTEBOOKS = ROOT / "notebooks"


def training_record(name: str, scale: str = "small") -> Path:
    """The file of an experiment's runs; those of another scale than the two cores' have one of their own."""
    return TRAINING_RECORDS / (f"{name}.jsonl" if scale == "small" else f"{name}-{scale}.jsonl")

"""The figures of the report: what pages ask for."""

from __future__ import annotations

from paper_checks.pages.drawing import Figure
from paper_checks.pages.scheme_figures import SchemeFigures, by_scheme
from paper_checks.report.claim_figures import for_claim, training
from paper_checks.report.overview import picture, rules

__all__ = ["Figure", "SchemeFigures", "by_scheme", "for_claim", "picture", "rules", "training"]

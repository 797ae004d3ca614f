"""The figures of the report, and what its first page leads with: the README's picture and the rule by optimizer."""

from __future__ import annotations

from paper_checks.pages import why_figure
from paper_checks.pages.drawing import Figure
from paper_checks.pages.scheme_figures import SchemeFigures, by_scheme
from paper_checks.report.claim_figures import for_claim, training
from paper_checks.verify.document import small_tables

__all__ = ["Figure", "SchemeFigures", "by_scheme", "for_claim", "picture", "rules", "training"]


def picture() -> Figure | None:
    """How far one step moves a Transformer, by optimizer; None where the numbers are not kept."""
    try:
        return Figure.of(why_figure.picture(), why_figure.rows())
    except LookupError:
        return None


def rules() -> list[dict[str, str]]:
    """By optimizer: the weight of the skip and the gain of the tables derived, for Post-LN and for Pre-LN.

    >>> from paper_checks.report.figures import rules
    >>> [list(row.values())[1:] for row in rules()][:1]
    [['(2*N)**(1/4)', '(2*N)**(-1/4)', '1/sqrt(2*N)']]
    """
    post, pre = (
        {row["optimizer"] or "": row for row in table["rows"]}
        for name in ("su-optimizers", "su-prenorm")
        for table in small_tables()
        if table["id"] == name
    )
    names = {"sgd": "SGD", "adam": "Adam, AdamW", "lamb": "LAMB"}
    return [
        {
            "Optimizer": names.get(one, one),
            "Post-LN: skip": row["alpha"] or "",
            "Post-LN: gain": row["lambda"] or "",
            "Pre-LN: gain": pre[one]["lambda"] or "",
        }
        for one, row in post.items()
    ]

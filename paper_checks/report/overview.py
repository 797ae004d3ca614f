"""What the first page leads with: the picture of the README in the page's own colours, and the rule by optimizer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from paper_checks.experiments.kernel_laws import law
from paper_checks.pages import why_figure
from paper_checks.pages.drawing import Curve, Figure, Panel, figure
from paper_checks.pages.transformers.figures import Point
from paper_checks.pages.transformers.text import WIDE
from paper_checks.verify.document import small_tables

_STYLES = {
    "post-ln": ("Post-LN", "--c2", "solid", "circle"),
    "deepnorm": ("DeepNorm", "--ink", "solid", "square"),
    "su-adam": ("Su, Adam", "--c4", "dashed", "triangle"),
}
"""By scheme: what stands at its line, and how that looks."""
_ABOVE = str.maketrans("-.0123456789", "⁻·⁰¹²³⁴⁵⁶⁷⁸⁹")


def picture() -> Figure | None:
    """How far one step moves a Transformer, by optimizer; None where the numbers are not kept."""
    try:
        return _picture()
    except LookupError:
        return None


@cache
def _picture() -> Figure:
    found = why_figure.curves()
    said = why_figure.titles()
    panels = [
        Panel(
            title=_raised(said[optimizer]),
            about=_about(optimizer),
            curves=[_curve(scheme, points) for scheme, points in by_scheme.items()],
            x="layers N",
            y="update U of one step" if not i else "",
        )
        for i, (optimizer, by_scheme) in enumerate(found.items())
    ]
    caption = (
        f"{said['sgd']}; under Adam it {why_figure.goes(law('deepnorm', 'adam'))}, and Su's row for Adam "
        f"{why_figure.goes(law('su-adam', 'adam'))}. Lines: predicted, no fitted constant. Points: real Transformers, "
        f"measured at d = {WIDE}, 95 % intervals."
    )
    rows = [_row(scheme) for scheme in _STYLES]
    return Figure(
        svg=figure(panels), title="How far one optimizer step moves a Transformer", caption=caption, rows=rows
    )


def _raised(text: str) -> str:
    """N^0.49 in an SVG, which has no MathML."""
    return re.sub(r"\^(-?[\d.]+)", lambda match: match[1].translate(_ABOVE), text)


def _curve(scheme: str, points: Sequence[Point]) -> Curve:
    label, colour, line_style, mark = _STYLES[scheme]
    return Curve(
        label=label,
        line=[(float(n), y) for n, y, *_ in points],
        points=[(float(n), mean, low, high) for n, _, mean, low, high in points if mean is not None],
        colour=colour,
        line_style=line_style,
        mark=mark,
    )


def _about(optimizer: str) -> str:
    laws = why_figure.laws(optimizer)
    return " ".join(f"{_STYLES[scheme][0]} {why_figure.goes(one)}." for scheme, one in laws.items())


def _row(scheme: str) -> dict[str, str]:
    row = {"scheme": why_figure.LABELS[scheme]}
    for optimizer, name in why_figure.OPTIMIZERS.items():
        found = law(scheme, optimizer)
        row |= {f"{name}, 1 layer": f"{found.updates[1]:.2g}", f"{name}, 1,000": f"{found.updates[1000]:.2g}"}
        row |= {f"{name}: it": why_figure.goes(found)}
    return row


def rules() -> list[dict[str, str]]:
    """By optimizer: the weight of the skip and the gain of the tables derived, for Post-LN and for Pre-LN.

    >>> from paper_checks.report.overview import rules
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

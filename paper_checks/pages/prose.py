"""What a notebook writes with: sentences, formulas, tables and pictures whose every number is computed.

A notebook's own Markdown holds no result; a sentence with a number in it is a ``say``, fed from the objects that the
derivation or the measurement returned.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, TypeVar

from depthlaw.paper_checks.pages import markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from sympy import Basic

FAST = "DEPTHLAW_NOTEBOOKS"
"""The variable that is "fast" where a test runs a notebook: the same code, with fewer seeds and depths."""
T = TypeVar("T")


def pick(full: T, fast: T) -> T:
    """``full`` for a reader, ``fast`` where a test runs the notebook.

    >>> from depthlaw.paper_checks.pages.prose import pick
    >>> pick(range(32), fast=range(2))
    range(0, 32)
    """
    return fast if os.environ.get(FAST) == "fast" else full


def say(text: str) -> None:
    """A paragraph of Markdown, shown below the cell. Its numbers come from the reader's own run, by an f-string."""
    from IPython.display import Markdown, display

    display(Markdown(cleandoc(text)))


def quote(id_: str) -> None:
    """What a source prints, word for word, as the claim of that id keeps it, and where; restated where no copy is."""
    from depthlaw.paper_checks.claims.sources import sources
    from depthlaw.paper_checks.papers.registry import claims

    claim = claims()[id_]
    source = sources()[claim.source]
    how = "" if source.file else ", restated by us"
    lines = "  \n> ".join(claim.quote.splitlines())
    say(f"> {lines}\n>\n> ({source.title}; {claim.locator}: {id_}{how})")


def formula(right: Basic | str, left: Basic | str | None = None, sign: str = "=") -> None:
    """A formula set apart: an expression of sympy, or LaTeX, and what it is equal to."""
    from IPython.display import Math, display

    parts = [right] if left is None else [left, sign, right]
    display(Math(" ".join(latex(part) for part in parts)))


def latex(expression: Basic | str | float) -> str:
    r"""LaTeX of an expression; a string is taken to be LaTeX already.

    >>> from depthlaw.paper_checks.pages.prose import latex
    >>> from sympy import Rational
    >>> from depthlaw.theory.symbols import N
    >>> print(latex((2 * N) ** Rational(1, 4)))
    \sqrt[4]{2} \sqrt[4]{N}
    """
    if isinstance(expression, str):
        return expression
    from sympy import latex as typeset

    return typeset(expression, root_notation=True)


def table(rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows with the same keys, as a table of Markdown; expressions are typeset, numbers rounded to four digits.
    ValueError where there is none."""
    kept = list(rows)
    if not kept:
        raise ValueError("a table needs at least one row")
    names = list(kept[0])
    say(markdown.table(names, [[_cell(row[name]) for name in names] for row in kept]))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value) if isinstance(value, str | int) else f"${latex(value)}$"


def plain(text: str) -> str:
    r"""Text whose stars, bars, lines and angles mean nothing to Markdown.

    >>> from depthlaw.paper_checks.pages.prose import plain
    >>> print(plain("|dtheta| * 2"))
    \|dtheta\| \* 2
    """
    return re.sub(r"([*_|])", r"\\\1", text).replace("<", "&lt;")


def typeset(text: str) -> str:
    r"""A claim's text as Markdown, with the signs of mathematics.

    >>> from depthlaw.paper_checks.pages.prose import typeset
    >>> print(typeset("Theta(L^(1/2)) at gains 1"))
    Θ(L^(1/2)) at gains 1
    """
    from depthlaw.paper_checks.notation.signs import signs

    return plain(signs(text))


def style() -> None:
    """Pictures as the project draws them: small, text as text, the same bytes from the same numbers."""
    import matplotlib
    from IPython.core.getipython import get_ipython

    matplotlib.rcParams.update(
        {
            "figure.constrained_layout.use": True,
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.25,
            "legend.frameon": False,
            "figure.facecolor": "white",
            "figure.dpi": 110,
            "figure.figsize": (7.2, 3.8),
        }
    )
    shell = get_ipython()
    if shell is not None:
        shell.run_line_magic("matplotlib", "inline")
        shell.run_line_magic("config", "InlineBackend.figure_formats = ['png']")
        # As large as figsize says; and no version of matplotlib in the file.
        shell.run_line_magic(
            "config", "InlineBackend.print_figure_kwargs = {'bbox_inches': None, 'metadata': {'Software': None}}"
        )


def name_curves(axes: Axes) -> None:
    """Each labelled curve, or set of points, is named in its colour at the right edge, as high as it ends there; names
    that would meet are moved apart. In the place of a legend."""
    from depthlaw.paper_checks.pages.drawing import spread

    axes.autoscale_view()
    figure: Any = axes.figure
    artists: list[Any]
    artists, labels = axes.get_legend_handles_labels()
    points = [artist if hasattr(artist, "get_xydata") else artist[0] for artist in artists]  # of error bars, too
    ends = [max(map(tuple, curve.get_xydata())) for curve in points]
    shares = axes.transAxes.inverted().transform(axes.transData.transform(ends))[:, 1]
    height = axes.get_window_extent().height / figure.dpi * 72  # in points
    rising = sorted(zip(shares, labels, [curve.get_color() for curve in points], strict=True))
    places = spread([share * height for share, *_ in rising], [11.0] * len(rising), 0, height)
    for place, (_, label, color) in zip(places, rising, strict=True):
        at = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
        axes.annotate(label, (1, place / height), (5, 0), color=color, va="center", fontsize=8, **at)

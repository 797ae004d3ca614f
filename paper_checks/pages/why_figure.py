"""The picture of the README: why the optimizer decides which scheme keeps a deep Transformer's update flat.

    python -m paper_checks.pages.why_figure          # rewrites figures/why.svg, from the records and the kept laws

Lines are predicted and points measured; no constant is fitted. What its titles say is computed from the lines. The file
says in its metadata which numbers it draws (``transformers_figures.digest``).
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paper_checks.experiments.kernel_laws import Law, law
from paper_checks.pages.scheme_figures import UPDATE, transformers
from paper_checks.pages.training.drawing import STYLES
from paper_checks.pages.transformers.figures import Curves, Point, digest
from paper_checks.pages.transformers.growth import FLAT, last_exponent
from paper_checks.pages.transformers.text import WIDE
from paper_checks.system.files import write_atomically
from paper_checks.system.places import FIGURES
from sims.records.record import rounded

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PATH = FIGURES / "why.svg"
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam"}
LABELS = {"post-ln": "vanilla Post-LN", "deepnorm": "DeepNorm", "su-adam": "Su's row for Adam"}
"""By scheme, each with the mark that it has in the figures of training."""
_COLOURS = {"post-ln": "#C24A00", "deepnorm": "#000000", "su-adam": "#8E3B8B"}
"""Dark enough for words on white, and told apart by the colour-blind."""
_LINES = {"post-ln": "-", "deepnorm": "-", "su-adam": (0, (5, 2))}
_DIGITS = 4
_LOWEST, _HIGHEST = 2e-4, 2e4


def laws(optimizer: str) -> dict[str, Law]:
    """Of real Transformers at infinite width, from 1 to 1,000 layers."""
    return {scheme: law(scheme, optimizer) for scheme in LABELS}


def curves() -> Curves:
    """By optimizer and scheme: N, predicted, and measured with its interval where it is."""
    return {
        optimizer: {scheme: _points(scheme, optimizer, found) for scheme, found in laws(optimizer).items()}
        for optimizer in OPTIMIZERS
    }


def _points(scheme: str, optimizer: str, found: Law) -> list[Point]:
    measured = {int(n): rest for n, *rest in transformers(scheme, optimizer).points(UPDATE)}
    points = []
    for n, predicted in found.updates.items():
        mean, low, high = (None if one is None else rounded(one, _DIGITS) for one in measured.get(n, (None,) * 3))
        points.append((n, predicted, mean, low, high))
    return points


# ---------------------------------------------------------------- what is seen


def goes(found: Law, *, is_math: bool = False) -> str:
    """How the update goes with N at the deep end: flat, or as a power. ValueError of an update that is 0."""
    slope = last_exponent(found)
    if slope is None:
        raise ValueError("an update of 0 goes as no power of N")
    if abs(slope) < FLAT:
        return "is flat"
    power, verb = f"{abs(slope):.2g}", "grows" if slope > 0 else "falls"
    if power == "1":
        return f"{verb} as {'' if slope > 0 else '1/'}N"
    sign = "" if slope > 0 else "-"
    return f"{verb} as {f'$N^{{{sign}{power}}}$' if is_math else f'N^{sign}{power}'}"


def titles(*, is_math: bool = False) -> dict[str, str]:
    """By optimizer, what its panel shows."""
    return {
        optimizer: f"Under {name}, DeepNorm {goes(law('deepnorm', optimizer), is_math=is_math)}"
        for optimizer, name in OPTIMIZERS.items()
    }


def alt_text() -> str:
    """For who cannot see it, and for the README."""
    said = []
    for optimizer, name in OPTIMIZERS.items():
        parts = [
            f"{LABELS[scheme]} {goes(found)}, from {found.updates[1]:.2g} at 1 layer to {_number(found.updates[1000])}"
            for scheme, found in laws(optimizer).items()
        ]
        said.append(f"Under {name} {'; '.join(parts)} at 1,000.")
    return (
        f"How far one optimizer step moves a Transformer, against its layers: predicted lines run through measured "
        f"points. {' '.join(said)}"
    )


def _number(value: float) -> str:
    """Two digits, 2,200 for 2.2e+03."""
    return f"{float(f'{value:.2g}'):,g}"


# ---------------------------------------------------------------- drawing


def draw(found: Curves) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.7), facecolor="white")
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
    panels: Sequence[Axes] = figure.subplots(1, len(found), sharey=True)
    said = titles(is_math=True)
    for axes, (optimizer, by_scheme) in zip(panels, found.items(), strict=True):
        _draw(axes, by_scheme, laws(optimizer))
        axes.set_title(said[optimizer], fontsize=13, fontweight="bold", loc="left", pad=10)
    panels[0].set_ylabel("update U of one step, per learning rate", fontsize=11)
    text = f"lines: predicted, no fitted constant\npoints: measured, d = {WIDE}, 95 % intervals"
    panels[-1].text(1.15, _LOWEST * 2.2, text, fontsize=10, color="#444444", va="bottom", linespacing=1.5)
    return figure


def _draw(axes: Axes, by_scheme: Mapping[str, Sequence[Point]], by_law: Mapping[str, Law]) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    for scheme, points in by_scheme.items():
        color, (_, mark) = _COLOURS[scheme], STYLES[scheme]
        axes.plot([n for n, *_ in points], [y for _, y, *_ in points], color=color, linestyle=_LINES[scheme], lw=1.8)
        there = [(n, mean, low, high) for n, _, mean, low, high in points if None not in (mean, low, high)]
        xs, means, lows, highs = zip(*there, strict=True)
        ends = [[y - low for y, low in zip(means, lows, strict=True)]]
        ends.append([high - y for y, high in zip(means, highs, strict=True)])
        axes.errorbar(xs, means, ends, fmt=mark, color=color, markersize=6, capsize=2.5, elinewidth=1)
        last, height, *_ = points[-1]
        words = f"{LABELS[scheme]}\n{goes(by_law[scheme], is_math=True)}"
        axes.annotate(words, (last, height), (8, 0), textcoords="offset points", color=color, va="center", fontsize=10)
    axes.set(xscale="log", yscale="log", xlim=(0.85, 1100), ylim=(_LOWEST, _HIGHEST))
    axes.set_xlabel("layers N", fontsize=11)
    axes.set_xticks([1, 4, 16, 64, 250, 1000], ["1", "4", "16", "64", "250", "1,000"])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(numticks=10))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=10, length=0)


def svg(found: Curves) -> str:
    """The same bytes from the same numbers. Letters as outlines: a README is read where there is no font of ours."""
    import matplotlib as mpl

    content = io.BytesIO()
    metadata = {"Date": None, "Description": f"numbers {digest(found)}"}
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": PATH.stem, "font.sans-serif": ["DejaVu Sans"]}):
        draw(found).savefig(content, format="svg", metadata=metadata)
    return content.getvalue().decode()


def write(path: Path = PATH) -> None:
    write_atomically(path, svg(curves()))


if __name__ == "__main__":
    write()

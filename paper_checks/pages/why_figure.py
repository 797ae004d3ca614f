"""The picture of the README and of the site's first page: why the optimizer decides which scheme keeps a deep
Transformer's update flat.

    python -m paper_checks.pages.why_figure          # rewrites figures/why.svg, from the records and the kept laws

Lines are predicted and points measured; no constant is fitted. What its titles say is computed from the lines.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from paper_checks.experiments.kernel_laws import Law, law
from paper_checks.pages.drawing import Curve, Drawing, Panel, raised, save
from paper_checks.pages.markdown import caption
from paper_checks.pages.scheme_figures import UPDATE, transformers
from paper_checks.pages.transformers import FLAT, WIDE, last_exponent
from paper_checks.system.places import FIGURES

PATH = FIGURES / "why.svg"
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam"}
LABELS = {"post-ln": "vanilla Post-LN", "deepnorm": "DeepNorm", "su-adam": "Su's row for Adam"}
"""By scheme."""


def laws(optimizer: str) -> dict[str, Law]:
    """Of real Transformers at infinite width, from 1 to 1,000 layers."""
    return {scheme: law(scheme, optimizer) for scheme in LABELS}


def goes(found: Law) -> str:
    """How the update goes with N at the deep end: flat, or as a power. ValueError of an update that is 0."""
    slope = last_exponent(found)
    if slope is None:
        raise ValueError("an update of 0 goes as no power of N")
    if abs(slope) < FLAT:
        return "is flat"
    power, verb = f"{abs(slope):.2g}", "grows" if slope > 0 else "falls"
    if power == "1":
        return f"{verb} as {'' if slope > 0 else '1/'}N"
    return f"{verb} as N^{'' if slope > 0 else '-'}{power}"


def titles() -> dict[str, str]:
    """By optimizer, what its panel shows."""
    return {
        optimizer: f"Under {name}, DeepNorm {goes(law('deepnorm', optimizer))}"
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


@cache
def picture() -> Drawing:
    """A panel for each optimizer, on one vertical axis. LookupError where its numbers are not kept."""
    said = titles()
    deepnorm, su_adam = (goes(law(scheme, "adam")) for scheme in ("deepnorm", "su-adam"))
    below = caption("why", sgd=said["sgd"], adam=deepnorm, su_adam=su_adam, wide=WIDE)
    panels = [
        Panel(
            title=raised(said[optimizer]),
            about=" ".join(f"{LABELS[scheme]} {goes(found)}." for scheme, found in laws(optimizer).items()),
            curves=[_curve(scheme, optimizer, found) for scheme, found in laws(optimizer).items()],
            x="layers N",
            y="update U of one step, per learning rate",
        )
        for optimizer in OPTIMIZERS
    ]
    note = f"Lines: predicted, no fitted constant. Points: measured, d = {WIDE}, 95 % intervals."
    title = "How far one optimizer step moves a Transformer"
    return Drawing(
        panels=panels, title=title, caption=below, note=note, columns=2, width=440, height=330, scale="shared"
    )


def _curve(scheme: str, optimizer: str, found: Law) -> Curve:
    return Curve.of_scheme(
        scheme,
        f"{LABELS[scheme]}\n{raised(goes(found))}",
        line=[(float(n), y) for n, y in found.updates.items()],
        points=transformers(scheme, optimizer).points(UPDATE),
        line_style="dashed" if scheme.startswith("su-") else "solid",
    )


def rows() -> list[dict[str, str]]:
    """The picture as a table."""
    found = []
    for scheme, label in LABELS.items():
        row = {"scheme": label}
        for optimizer, name in OPTIMIZERS.items():
            one = law(scheme, optimizer)
            row |= {f"{name}, 1 layer": f"{one.updates[1]:.2g}", f"{name}, 1,000": f"{one.updates[1000]:.2g}"}
            row |= {f"{name}: it": goes(one)}
        found.append(row)
    return found


def write(path: Path = PATH) -> None:
    save(picture(), path)


if __name__ == "__main__":
    write()

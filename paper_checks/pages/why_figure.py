"""The picture of the site's first page: why the optimizer decides which scheme keeps a deep
Transformer's update flat.

    python -m depthlaw.paper_checks.pages.why_figure  # rewrites figures/why.svg, from the records and the kept laws

Lines are predicted and points measured; no constant is fitted. What its titles say is computed from the lines.
"""

from __future__ import annotations

from functools import cache

from depthlaw.paper_checks.experiments.compared import WIDE, by_depth
from depthlaw.paper_checks.experiments.kernel_laws import FLAT, Law, last_exponent, law
from depthlaw.paper_checks.pages.drawing import Curve, Drawing, Panel, raised, save
from depthlaw.paper_checks.pages.markdown import caption
from depthlaw.paper_checks.pages.transformers import study
from depthlaw.paper_checks.pages.transformers_figures import points
from depthlaw.system.places import FIGURES

PATH = FIGURES / "why.svg"
TITLE = "How far one optimizer step moves a Transformer"
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam"}
LABELS = {"post-ln": "vanilla Post-LN", "deepnorm": "DeepNorm", "su-adam": "Su's rule for Adam"}
"""By scheme."""


def goes(law: Law) -> str:
    """How the update goes with N at the deep end: flat, or as a power. ValueError of an update that is 0."""
    slope = last_exponent(law)
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
    return {by: f"Under {name}, DeepNorm {goes(law('deepnorm', by))}" for by, name in OPTIMIZERS.items()}


def alt_text() -> str:
    """For who cannot see it."""

    def said(scheme: str, optimizer: str) -> str:
        kept = law(scheme, optimizer)
        last = float(f"{kept.updates[1000]:.2g}")
        return f"{LABELS[scheme]} {goes(kept)}, from {kept.updates[1]:.2g} at 1 layer to {last:,g}"

    by_optimizer = [
        f"Under {name} {'; '.join(said(scheme, by) for scheme in LABELS)} at 1,000." for by, name in OPTIMIZERS.items()
    ]
    return (
        f"How far one optimizer step moves a Transformer, against its layers: predicted lines run through measured "
        f"points. {' '.join(by_optimizer)}"
    )


def words() -> dict[str, str]:
    """Title, text for who cannot see it, and caption, as a page has them. LookupError where its laws are not kept."""
    deepnorm, su_adam = (goes(law(scheme, "adam")) for scheme in ("deepnorm", "su-adam"))
    below = caption("why", sgd=titles()["sgd"], adam=deepnorm, su_adam=su_adam, wide=WIDE)
    return {"title": TITLE, "alt": alt_text(), "caption": below}


@cache
def picture() -> Drawing:
    """A panel for each optimizer, on one vertical axis. LookupError where its numbers are not kept."""
    panels = [
        Panel(
            title=raised(title),
            curves=[_curve(scheme, optimizer) for scheme in LABELS],
            x="layers N",
            y="update U of one step, per learning rate",
        )
        for optimizer, title in titles().items()
    ]
    return Drawing(
        panels=panels,
        title=TITLE,
        note=f"Lines: predicted, no fitted constant. Points: measured, d = {WIDE}, 95 % intervals.",
        columns=2,
        width=440,
        height=330,
        scale="shared",
    )


def _curve(scheme: str, optimizer: str) -> Curve:
    kept = law(scheme, optimizer)
    return Curve.of_scheme(
        scheme,
        f"{LABELS[scheme]}\n{raised(goes(kept))}",
        line=[(float(n), y) for n, y in kept.updates.items()],
        points=points(by_depth(study().cells, scheme, optimizer), "update"),
        line_style="dashed" if scheme.startswith("su-") else "solid",
    )


if __name__ == "__main__":
    save(picture(), PATH)

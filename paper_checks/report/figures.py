"""The figures that belong to a claim: printed orders beside exact curves, bounds beside updates, what training gave."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

from sympy import Expr, Indexed, Integer, lambdify

from depthlaw.network.network import Network
from depthlaw.paper_checks.claims.claim import Claim
from depthlaw.paper_checks.claims.statements import Growth
from depthlaw.paper_checks.experiments import NAMES, experiment
from depthlaw.paper_checks.experiments.compared import WIDE, Index, by_depth, cell
from depthlaw.paper_checks.experiments.kernel_kept import Number
from depthlaw.paper_checks.experiments.sweeps import LENGTHS, OPTIMIZERS
from depthlaw.paper_checks.pages.drawing import Curve, Drawing, Panel, Place, Point
from depthlaw.paper_checks.pages.markdown import caption
from depthlaw.paper_checks.pages.transformers import study
from depthlaw.paper_checks.pages.transformers_figures import points
from depthlaw.paper_checks.papers.registry import claims
from depthlaw.paper_checks.report.rendered import Picture, pictures
from depthlaw.paper_checks.routes import algebra
from depthlaw.paper_checks.routes.kernel import InTransformer, law
from depthlaw.paper_checks.routes.signal_propagation.update_bounds import LETTERS, Inequality
from depthlaw.sims.records import record
from depthlaw.system.places import RECORDS
from depthlaw.theory.asymptotics.evaluate import evaluate
from depthlaw.theory.meanfield.setting import Setting
from depthlaw.theory.meanfield.update import predict_setting
from depthlaw.theory.schemes import scheme
from depthlaw.theory.symbols import L

UPDATE = "update"
FROM = 4
"""Sublayers at which a printed order meets the exact curve."""
DEPTHS = (4, 8, 16, 64, 128, 256, 512, 1000, 10**4, 10**6, 10**8, 10**9)
MOST = 1e12
"""An update above it is not drawn: an exponential leaves every picture."""
EQUAL_GAINS = (1, 2)
"""A bound that holds at gains 1 may fail at others."""
EQUAL_DEPTHS = (1, 2, 4, 8, 11, 16, 32, 64, 128, 256, 512, 1000)
UNEVEN_BASE, UNEVEN_DEPTHS = 3, (2, 3, 4, 5, 6, 7, 8)
NORM_WORDS = {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}
OF_EXPERIMENT = {
    "stable-rates": ("training-rates", "training-curves", "training-predicts"),
    "warmup": ("training-warmup",),
    "thousand-layers": ("training-thousand", "training-updates"),
    "best-rates": ("training-best-losses", "training-best-rates"),
    "after-start": ("training-after-start",),
    "transfer": ("training-gains", "training-transfer"),
    "elsewhere": ("training-elsewhere",),
}
"""Files of figures/, the most telling one first."""


def for_claim(claim_id: str) -> list[Drawing | Picture]:
    """None, one or some. KeyError of an id that is not there."""
    claim = claims()[claim_id]
    of_training = (pictures()[name] for name in training_names(claim) if name in pictures())
    return [*_growths(claim), *_bounds(claim), *of_training]


# ---------------------------------------------------------------- printed orders


def _growths(claim: Claim) -> Iterator[Drawing]:
    by_text = {part.statement.text: part.statement for part in claim.parts if isinstance(part.statement, Growth)}
    for is_real, what in ((False, "FFN-only stacks"), (True, "real Transformers")):
        panels = [_growth_panel(part) for part in by_text.values() if isinstance(part, InTransformer) == is_real]
        if panels:
            has_points = any(curve.points for panel in panels for curve in panel.curves)
            yield Drawing(
                panels=panels,
                title=f"Printed order and exact update: {what}",
                caption=caption("growth", has_points=has_points),
            )


def _growth_panel(statement: Growth) -> Panel:
    line, role = _exact(statement), getattr(statement, "role", UPDATE)
    dashed = order_through(statement.order, line[0], [x for x, _ in line])
    norm = NORM_WORDS[statement.norm_kind]
    names = (statement.scheme, statement.activation, norm, statement.optimizer, *[role] * (role != UPDATE))
    return Panel(
        title=", ".join(names),
        curves=[
            Curve(label="exact", line=line, points=_recorded(statement)),
            Curve(label=_order_text(statement), line=dashed, colour="--c2", line_style="dashed"),
        ],
        x="sublayers L",
        y="U per unit learning rate",
    )


def _exact(statement: Growth) -> list[Place]:
    if isinstance(statement, InTransformer):
        values = law(statement).of(statement.role)
        return [(2.0 * layers, value) for layers, value in values.items() if 2 * layers >= FROM]
    setting = Setting.of(statement.scheme, statement.optimizer, statement.activation, statement.norm_kind)
    updates = [(float(n), predict_setting(setting, n).update) for n in DEPTHS]
    return [(n, update) for n, update in updates if 0 < update < MOST]


def _recorded(statement: Growth) -> list[Point]:
    """What the records of relu networks with LayerNorm have of it."""
    if (statement.activation, statement.norm_kind) != ("relu", "layernorm") or statement.optimizer not in OPTIMIZERS:
        return []
    if isinstance(statement, InTransformer):
        shown = points(by_depth(study().cells, statement.scheme, statement.optimizer), statement.role)
        return [(2 * layers, mean, low, high) for layers, mean, low, high in shown if 2 * layers >= FROM]
    return of_stacks(statement.scheme, statement.optimizer)


@cache
def _stacks() -> Index:
    return Index(record.read(RECORDS / "ffn-stacks.jsonl"))


@cache
def of_stacks(name: str, optimizer: str) -> list[Point]:
    """By sublayers, the measured update of FFN-only stacks and its 95 % interval."""
    cells = {}
    for length in LENGTHS:
        network = Network(scheme=scheme(name), num_sublayers=length, d_model=WIDE)
        exact = {UPDATE: Number(network.theory(optimizer).update, 0.0)}
        cells[length] = cell(network, optimizer, _stacks().find(network, optimizer), exact)
    return points(cells, UPDATE)


def order_through(order: Expr, first: Place, xs: Sequence[float]) -> list[Place]:
    """The order in L times what makes it meet the first point."""
    start, *values = (evaluate(order, {L: int(x)}, 17) for x in (first[0], *xs))
    return [(x, float(first[1] * value / start)) for x, value in zip(xs, values, strict=True)]


def _order_text(statement: Growth) -> str:
    order = re.sub(r"\b(sqrt|log)\((\w)\)", r"\1 \2", str(statement.order)).replace("sqrt ", "√")
    order = order.replace("**", "^").replace("*", " ")
    return f"{'O' if statement.is_upper else 'Θ'}({order})"


# ---------------------------------------------------------------- printed bounds


def _bounds(claim: Claim) -> Iterator[Drawing]:
    panels = [_bound_panel(part.statement) for part in claim.parts if isinstance(part.statement, Inequality)]
    if panels:
        yield Drawing(panels=panels, title="Printed bound and exact update", caption=caption("bound"))


def _bound_panel(statement: Inequality) -> Panel:
    """At gains 1, or at others where it fails only there; where any gains are allowed, at growing ones."""
    seen = [_at_equal(statement, gain) for gain in EQUAL_GAINS] if statement.is_equal else [_at_growing(statement)]
    above = [_first_above(update, bound) for _, update, bound in seen]
    place = next((i for i, length in enumerate(above) if length is not None), 0)
    gains, update, bound = seen[place]
    norm = NORM_WORDS[statement.norm_kind]
    head = " + W_vocab" if statement.has_head else ""
    where = "nowhere here" if above[place] is None else f"from L = {above[place]:g}"
    return Panel(
        title=f"{statement.scheme}, {statement.activation}, {norm}{head}, gains {gains}",
        curves=[
            Curve(label="update", line=update, has_dots=True),
            Curve(label="bound", line=bound, colour="--c2", line_style="dashed"),
        ],
        x="sublayers L",
        y=f"over η d; the update is above its bound {where}",
    )


def _first_above(update: Sequence[Place], bound: Sequence[Place]) -> float | None:
    """Sublayers from which the update is above."""
    both = zip(update, bound, strict=True)
    return next((x for (x, value), (_, most) in both if value > most * (1 + 1e-9)), None)


_AtGains = tuple[str, list[Place], list[Place]]
"""Gains, and by sublayers the exact update and the printed bound at them, over eta d."""


def _at_equal(statement: Inequality, gain: int) -> _AtGains:
    bound = _at_gain(statement.bound, gain)
    update = [(float(n), float(statement.update([float(gain)] * n, [float(gain)] * n))) for n in EQUAL_DEPTHS]
    return str(gain), update, [(float(n), float(bound(n))) for n in EQUAL_DEPTHS]


@cache
def _at_gain(bound: Expr, gain: int) -> Callable[[int], Any]:
    """As a function of L: what is left of its sums is added up in floats."""
    at = bound.replace(lambda term: isinstance(term, Indexed), lambda _: Integer(gain))
    return lambdify(L, algebra.normal_form(at), modules="math")


def _at_growing(statement: Inequality) -> _AtGains:
    update, bound = [], []
    for length in UNEVEN_DEPTHS:
        gains = [Fraction(UNEVEN_BASE) ** i for i in range(length)]
        floats = [float(gain) for gain in gains]
        update.append((float(length), float(statement.update(floats, floats))))
        bound.append((float(length), float(algebra.value_at(statement.bound, LETTERS, (gains, gains, length)))))
    return f"{UNEVEN_BASE}^(l-1)", update, bound


# ---------------------------------------------------------------- training


def training_names(claim: Claim) -> list[str]:
    """Which of figures/training-*.svg show what the claim says."""
    named = dict.fromkeys(name for part in claim.parts for name in _of_statement(part.statement))
    for name in NAMES:
        if claim.id in experiment(name).claims and not set(OF_EXPERIMENT[name]) & set(named):
            named[OF_EXPERIMENT[name][0]] = None
    return list(named)


def _of_statement(statement: object) -> tuple[str, ...]:
    of = getattr(statement, "of", "")
    if type(statement).__name__ in ("SmallerIsStabler", "RanksFall"):
        return ("training-predicts",)
    if of == "stable-rates":
        return ("training-curves" if getattr(statement, "look", "") == "half" else "training-rates",)
    return OF_EXPERIMENT.get(of, ()) if isinstance(of, str) else ()

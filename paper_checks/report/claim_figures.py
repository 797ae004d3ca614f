"""The figures that belong to a claim: printed orders beside exact curves, bounds beside updates, what training gave."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
from sympy import Expr, Indexed, Integer, lambdify

from paper_checks.claims.claim import Claim
from paper_checks.claims.statements import Growth
from paper_checks.experiments import NAMES, experiment
from paper_checks.experiments.sweeps import OPTIMIZERS
from paper_checks.pages.drawing import Curve, Drawing, Figure, Interval, Panel, tick_label
from paper_checks.pages.markdown import caption
from paper_checks.pages.scheme_figures import UPDATE, stacks, transformers
from paper_checks.pages.training import drawings
from paper_checks.pages.training import study as training_study
from paper_checks.papers.registry import claims
from paper_checks.routes import algebra
from paper_checks.routes.kernel import InTransformer, law
from paper_checks.routes.update_bounds import LETTERS, Inequality
from theory.asymptotics.evaluate import evaluate
from theory.meanfield.setting import Setting
from theory.meanfield.update import predict_setting
from theory.symbols import L

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
    "own-row": ("training-own-row",),
}
"""Files of figures/, the most telling one first."""
_OF_STATEMENT = {"SmallerIsStabler": "training-predicts", "RanksFall": "training-predicts"}


@dataclass(frozen=True, kw_only=True)
class _Printed:
    """A printed order and its exact curve. points: measured."""

    statement: Growth
    line: Sequence[tuple[float, float]]
    points: Sequence[Interval]


def for_claim(claim_id: str) -> list[Figure]:
    """None, one or some. KeyError of an id that is not there."""
    found = claims()[claim_id]
    return [*_growths(found), *_bounds(found), *(training()[name] for name in training_names(found))]


# ---------------------------------------------------------------- printed orders


def _growths(found: Claim) -> Iterator[Figure]:
    by_text: dict[str, _Printed] = {}
    for part in found.parts:
        statement = part.statement
        if isinstance(statement, Growth):
            by_text.setdefault(statement.text, _printed(statement))
    for is_real, what in ((False, "FFN-only stacks"), (True, "real Transformers")):
        printed = [one for one in by_text.values() if isinstance(one.statement, InTransformer) == is_real]
        if printed:
            yield _growth_figure(printed, what)


def _printed(statement: Growth) -> _Printed:
    if isinstance(statement, InTransformer):
        values = law(statement).of(statement.role)
        line = [(2.0 * layers, value) for layers, value in values.items() if 2 * layers >= FROM]
    else:
        setting = Setting.of(statement.scheme, statement.optimizer, statement.activation, statement.norm_kind)
        exact_at = ((float(n), predict_setting(setting, n)) for n in DEPTHS)
        line = [(n, one.update) for n, one in exact_at if 0 < one.update < MOST]
    return _Printed(statement=statement, line=line, points=_recorded(statement))


def _recorded(statement: Growth) -> list[Interval]:
    """What the records of relu networks with LayerNorm have of it."""
    if (statement.activation, statement.norm_kind) != ("relu", "layernorm") or statement.optimizer not in OPTIMIZERS:
        return []
    if isinstance(statement, InTransformer):
        found = transformers(statement.scheme, statement.optimizer).points(statement.role)
        return [(2 * layers, mean, low, high) for layers, mean, low, high in found if 2 * layers >= FROM]
    return stacks(statement.scheme, statement.optimizer).points(UPDATE)


def order_through(order: Expr, first: tuple[float, float], xs: Sequence[float]) -> list[tuple[float, float]]:
    """The order in L times what makes it meet the first point."""
    start = _value(order, first[0])
    return [(x, float(first[1] * _value(order, x) / start)) for x in xs]


def _value(order: Expr, length: float) -> mpmath.mpf:
    return evaluate(order, {L: int(length)}, 17)


def _order_text(statement: Growth) -> str:
    order = re.sub(r"\b(sqrt|log)\((\w)\)", r"\1 \2", str(statement.order)).replace("sqrt ", "√")
    order = order.replace("**", "^").replace("*", " ")
    return f"{'O' if statement.is_upper else 'Θ'}({order})"


def _growth_figure(printed: Sequence[_Printed], what: str) -> Figure:
    drawing = Drawing(
        panels=[_growth_panel(one) for one in printed],
        title=f"Printed order and exact update: {what}",
        caption=caption("growth", has_points=any(one.points for one in printed)),
    )
    return Figure.of(drawing, [_growth_row(one) for one in printed])


def _growth_panel(one: _Printed) -> Panel:
    statement = one.statement
    dashed = order_through(statement.order, one.line[0], [x for x, _ in one.line])
    return Panel(
        title=_name(statement),
        about=(
            f"From {_at(one.line[0])} to {_at(one.line[-1])}; the printed {_order_text(statement)} through the first "
            f"point ends at {dashed[-1][1]:.3g}."
        ),
        curves=[
            Curve(label="exact", line=one.line, points=one.points),
            Curve(label=_order_text(statement), line=dashed, colour="--c2", line_style="dashed"),
        ],
        x="sublayers L",
    )


def _name(statement: Growth) -> str:
    role = statement.role if isinstance(statement, InTransformer) and statement.role != UPDATE else ""
    norm = NORM_WORDS[statement.norm_kind]
    return ", ".join(filter(None, (statement.scheme, statement.activation, norm, statement.optimizer, role)))


def _at(point: tuple[float, float]) -> str:
    return f"{point[1]:.3g} at L = {tick_label(point[0])}"


def _growth_row(one: _Printed) -> dict[str, str]:
    (first, start), (last, end) = one.line[0], one.line[-1]
    printed = order_through(one.statement.order, one.line[0], [last])[0][1]
    return {
        "network": _name(one.statement),
        "printed": _order_text(one.statement),
        "L": f"{tick_label(first)} to {tick_label(last)}",
        "exact update": f"{start:.4g} to {end:.4g}",
        "printed order, from there": f"{start:.4g} to {printed:.4g}",
    }


# ---------------------------------------------------------------- printed bounds


def _bounds(found: Claim) -> Iterator[Figure]:
    bounded = [(part, part.statement) for part in found.parts if isinstance(part.statement, Inequality)]
    if not bounded:
        return
    panels, rows = [], []
    for part, statement in bounded:
        seen = against_bound(statement)
        above, (last, update), (_, bound) = seen.first_above, seen.update[-1], seen.bound[-1]
        panels.append(
            Panel(
                title=f"{_bound_name(statement)}, gains {seen.gains}",
                about=f"The update at L = {last:g} is {update:.3g}, the bound {bound:.3g}.",
                curves=[
                    Curve(label="update", line=seen.update, has_dots=True),
                    Curve(label="bound", line=seen.bound, colour="--c2", line_style="dashed"),
                ],
                x="sublayers L",
            )
        )
        rows.append(
            {
                "part": part.name,
                "gains here": seen.gains,
                "update above the bound": "nowhere here" if above is None else f"from L = {above:g} here",
                "at the last L": f"update {update:.4g}, bound {bound:.4g}",
            }
        )
    yield Figure.of(Drawing(panels=panels, title="Printed bound and exact update", caption=caption("bound")), rows)


@dataclass(frozen=True)
class AgainstBound:
    """The exact update and the printed bound, over eta d, by sublayers, at these gains."""

    gains: str
    update: Sequence[tuple[float, float]]
    bound: Sequence[tuple[float, float]]

    @property
    def first_above(self) -> float | None:
        """Sublayers from which the update is above."""
        both = zip(self.update, self.bound, strict=True)
        return next((x for (x, update), (_, bound) in both if update > bound * (1 + 1e-9)), None)


def against_bound(statement: Inequality) -> AgainstBound:
    """At gains 1, or at others where it fails only there; where any gains are allowed, at growing ones."""
    if not statement.is_equal:
        return _at_growing(statement)
    seen = [_at_equal(statement, gain) for gain in EQUAL_GAINS]
    return next((one for one in seen if one.first_above is not None), seen[0])


def _at_equal(statement: Inequality, gain: int) -> AgainstBound:
    bound = _at_gain(statement.bound, gain)
    return AgainstBound(
        gains=str(gain),
        update=[(float(n), float(statement.update([float(gain)] * n, [float(gain)] * n))) for n in EQUAL_DEPTHS],
        bound=[(float(n), float(bound(n))) for n in EQUAL_DEPTHS],
    )


def _at_growing(statement: Inequality) -> AgainstBound:
    gains = [[Fraction(UNEVEN_BASE) ** i for i in range(length)] for length in UNEVEN_DEPTHS]
    return AgainstBound(
        gains=f"{UNEVEN_BASE}^(l-1)",
        update=[(float(len(one)), float(statement.update([*map(float, one)], [*map(float, one)]))) for one in gains],
        bound=[
            (float(len(one)), float(algebra.value_at(statement.bound, LETTERS, (one, one, len(one))))) for one in gains
        ],
    )


@cache
def _at_gain(bound: Expr, gain: int) -> Callable[[int], Any]:
    """As a function of L: what is left of its sums is added up in floats."""
    at = bound.replace(lambda one: isinstance(one, Indexed), lambda _: Integer(gain))
    return lambdify(L, algebra.normal_form(at), modules="math")


def _bound_name(statement: Inequality) -> str:
    norm = NORM_WORDS[statement.norm_kind]
    return f"{statement.scheme}, {statement.activation}, {norm}{' + W_vocab' if statement.has_head else ''}"


# ---------------------------------------------------------------- training


def training_names(found: Claim) -> list[str]:
    """Which of figures/training-*.svg show what the claim says."""
    names = dict.fromkeys(name for part in found.parts for name in _of_statement(part.statement))
    for name in NAMES:
        if found.id in experiment(name).claims and not set(OF_EXPERIMENT[name]) & set(names):
            names[OF_EXPERIMENT[name][0]] = None
    return list(names)


def _of_statement(statement: object) -> tuple[str, ...]:
    of = getattr(statement, "of", None)
    if not isinstance(of, str) or of not in OF_EXPERIMENT:
        return ()
    by_kind = _OF_STATEMENT.get(type(statement).__name__)
    if by_kind is not None:
        return (by_kind,)
    if of == "stable-rates":
        return ("training-curves" if getattr(statement, "look", "") == "half" else "training-rates",)
    return OF_EXPERIMENT[of]


@cache
def training() -> dict[str, Figure]:
    """The figures of TRAINING.md, by file name."""
    return {name: Figure.of(one, _training_rows(one)) for name, one in drawings(training_study().records).items()}


def _training_rows(drawing: Drawing) -> list[dict[str, str]]:
    """The ends of each curve that is named, or has points."""
    rows = []
    for panel in drawing.panels:
        for curve in panel.shown:
            if curve.label or curve.marked:
                places = [(x, y) for x, y, *_ in curve.line or curve.points]
                row = {"panel": panel.title, "curve": curve.label or panel.title, "x": panel.x, "y": panel.y}
                rows.append(row | {"first": _ends(places[0]), "last": _ends(places[-1])})
    return rows


def _ends(point: tuple[float, float]) -> str:
    return f"{point[1]:.4g} at {point[0]:,g}"

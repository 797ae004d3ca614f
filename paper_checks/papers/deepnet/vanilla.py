"""DN-09: what DeepNet says of vanilla Post-LN, in its own scalar model and in a wide network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sympy import Expr, Rational, S, Sum, exp, expand_log, factor, lambdify, limit, log, sqrt, together

from paper_checks.claims.claim import Amendment, Cell, Check, Claim, Evidence, Kind, Mutant, Part, Route, Verdict
from paper_checks.claims.statements import Growth, Values
from paper_checks.papers.deepnet.runs import GROWTH_ON_RECORD
from paper_checks.routes import algebra, one_liners
from paper_checks.routes.checks import GROWTH, check, growth_part, outcome
from paper_checks.routes.gelu_growth import EQUAL_MOMENTS, KAPPA_POST
from paper_checks.routes.kernel import GROWTH_BY_KERNEL
from paper_checks.routes.recorded_stacks import STACKS_ON_RECORD
from paper_checks.routes.wide_networks import measured_too
from theory.symbols import L, displacements, l, scratch
from theory.symbols import gain_in as w
from theory.symbols import gain_out as v
from theory.symbols import residual_weight as alpha

HALF = Rational(1, 2)

# ---------------------------------------------------------------- the special case of Theorem 4.2

_THEOREM = Sum(sqrt(v**2 + w**2) / alpha * displacements[l], (l, 1, L))
"""Theorem 4.2 at one gain for every sublayer."""


def _is_number(expr: Expr) -> bool:
    return expr.is_number and bool(expr.is_finite) and expr != 0


def _ratio(first: Expr, second: Expr) -> bool | None:
    """Whether two sums differ by a number."""
    return _is_number((algebra.normal_form(first) / algebra.normal_form(second)).cancel())


def _theory_bound(s: Values) -> list[bool | None]:
    from theory.bounds.update import derive_bound
    from theory.symbols import gains_in, gains_out

    found = derive_bound("post-ln").displacement
    if found is None:
        raise ArithmeticError("the post-norm bound has no displacement form")
    plain = found.replace(lambda e: getattr(e, "base", None) in (gains_in, gains_out), lambda _: S.One)
    return [_ratio(plain.subs(alpha, 1), s["bound"])]


_VANILLA = Values.of(bound=Sum(displacements[l], (l, 1, L)))


# ---------------------------------------------------------------- the scalar model at alpha = v = w = 1


@dataclass(frozen=True)
class Moves:
    """From alpha = v = w = 1, the scalar model moves by at most a constant times ``factor`` sum ||dtheta_i||."""

    factor: Expr

    @property
    def text(self) -> str:
        times = "" if self.factor == 1 else f"{self.factor} "
        return f"d = 1, alpha = v = w = 1, L sublayers, any theta* in (0, 1]: |dF| = O({times}sum_i ||dtheta_i||)"


_LOWERED = Rational(9, 10)
"""What v_1 and w_1 are lowered to."""


def _moves_by_theory(s: Moves) -> list[bool | None]:
    """log of theory's slope at 1, L - 1 times, and of what the first sublayer moves by; no slope is larger."""
    from theory.bounds.scalar_model import scalar_slope

    whole = scalar_slope(S.One, S.One, S.One)
    moved = (whole - scalar_slope(S.One, _LOWERED, _LOWERED)) / (sqrt(2) * (1 - _LOWERED))
    over = limit(expand_log(log(whole) * (L - 1) + log(moved) - log(s.factor), force=True).expand(), L, S.Infinity)
    t = scratch("t", positive=True)
    room = factor(together(whole**2 - scalar_slope(S.One, t, S.One) ** 2))
    return [over is not S.Infinity, algebra.equal(room, (1 - t) ** 2 / (1 + t**2))]


def _output(weights: Sequence[tuple[float, float]]) -> float:
    """F of an input of 1."""
    found = 1.0
    for one, other in weights:
        branch = one * other
        found *= (1 + branch) / math.sqrt(1 + branch**2)
    return found


def _first_lowered(length: int) -> float:
    """|dF| over sqrt(2) sum ||dtheta||, the first sublayer's two weights lowered from 1 to 0.9."""
    rest = [(1.0, 1.0)] * (length - 1)
    low = float(_LOWERED)
    return (_output([(1.0, 1.0), *rest]) - _output([(low, low), *rest])) / (2 * (1 - low))


def _moves_by_sums(s: Moves) -> Evidence:
    lengths = (2, 6, 12, 40, 80, 160)
    order = lambdify(L, log(s.factor), modules="math")
    found = {length: _first_lowered(length) for length in lengths}
    logs = [math.log(found[length]) - order(length) for length in lengths[-3:]]
    holds = algebra.settles(logs) or algebra.falls_away(logs)
    shown = {str(length): float(f"{found[length]:.4g}") for length in lengths[:4]}
    example = {
        "printed": "vanilla Post-LN: the update is O(sum_i ||dtheta_i||)",
        "found": "v_1 and w_1 lowered by 0.1: |dF| over sqrt(2) sum ||dtheta|| is "
        + ", ".join(
            f"{ratio:.3g} at L = {length}" if ratio < 100 else f"{ratio:.0f} at L = {length}"
            for length, ratio in shown.items()
        )
        + ": it grows as 2^(L/2)",
        "ratios": shown,
        "command": one_liners.VANILLA_STEP,
    }
    return Evidence(
        route=Route.NUMERIC,
        num_effective=len(lengths),
        verdict=outcome(holds),
        detail="v_1 and w_1 lowered to 0.9: |dF| over sqrt(2) sum ||dtheta|| times the factor, by multiplying out: "
        + ("settles or falls" if holds else "does not settle")
        + ". To first order dF is exactly 0 there (every df/dv has the factor alpha - vw = 0), but the sentence does "
        "not say first order, and each of the L - 1 slopes above is sqrt(2)",
        numbers={f"L = {length}": ratio for length, ratio in shown.items()},
        counterexample=None if holds else example,
    )


def _moves_by_search(s: Moves) -> Evidence:
    """Any one or two sublayers moved, the first ones first, within (0, 1], L up to 60; the constant is 100 sqrt(2)."""
    from hypothesis import strategies as st

    from paper_checks.routes.search import search

    times = lambdify(L, s.factor, modules="math")

    def holds(case: Any) -> bool:
        length, moved = case
        weights = [(a / 16, b / 16) for a, b in moved[:length]]
        rest = [(1.0, 1.0)] * (length - len(weights))
        change = abs(_output([(1.0, 1.0)] * length) - _output([*weights, *rest]))
        distance = math.fsum(math.hypot(1 - a, 1 - b) for a, b in weights)
        return bool(change <= 100 * math.sqrt(2) * times(length) * distance)

    weight = st.integers(1, 15)
    moved = st.lists(st.tuples(weight, weight), min_size=1, max_size=2)
    found = search(st.tuples(st.integers(1, 60), moved), holds, max_examples=60)
    return Evidence(
        route=Route.PROPERTY,
        num_effective=found.num_effective,
        verdict=outcome(found.found is None),
        detail="one or two sublayers moved from 1 to anywhere in (0, 1], L from 1 to 60: |dF| at most 100 sqrt(2) "
        "times the factor times sum ||dtheta||",
    )


# ---------------------------------------------------------------- a wide network

_POST_RELU = Growth(scheme="post-ln", order=L, is_upper=True)
_DN_09 = Claim(
    id="DN-09",
    kind=Kind.STEP,
    source="deepnet",
    locator="Section 4, after Theorem 4.2",
    quote="vanilla Post-LN: alpha = v = w = 1, so O(sum_i ||theta_i^* - theta_i||)",
    summary="vanilla Post-LN is alpha = v = w = 1, its update O(sum of the displacements)",
    parts=(
        Part(
            name="the bound at alpha = v = w = 1, as a case of Theorem 4.2",
            statement=_VANILLA,
            checks=(
                check(Route.PROOF, "the derived post-norm bound, over the printed one, is a number", _theory_bound),
                check(
                    Route.ARITHMETIC,
                    "Theorem 4.2 at alpha = v = w = 1 is sqrt(2) times it",
                    lambda s: [_ratio(_THEOREM.subs({alpha: 1, v: 1, w: 1}), s["bound"])],
                    is_direct=True,
                ),
            ),
            mutants=(
                Mutant(name="a square", statement=Values.of(bound=Sum(displacements[l] ** 2, (l, 1, L)))),
                Mutant(name="a weight l", statement=Values.of(bound=Sum(l * displacements[l], (l, 1, L)))),
            ),
        ),
        Part(
            name="in the model that it is derived in: d = 1, alpha = v = w = 1",
            statement=Moves(S.One),
            checks=(
                check(
                    Route.PROOF,
                    "the derived model's slopes above a first sublayer whose v and w are lowered to 0.9",
                    _moves_by_theory,
                ),
                Check(route=Route.NUMERIC, run=_moves_by_sums, is_direct=True),
                Check(route=Route.PROPERTY, run=_moves_by_search, is_direct=True),
            ),
            mutants=(
                Mutant(name="times L", statement=Moves(L)),
                Mutant(name="times 2^(L/4)", statement=Moves(2 ** (L / 4))),
            ),
            instead=Amendment(
                statement=Moves(2 ** (L / 2)),
                text="O(2^(L/2) sum ||dtheta_i||): at alpha = v = w = 1 each slope is (1 + 1)/sqrt(2) = sqrt(2). To "
                "first order alone dF = 0",
            ),
            condition="first order in dtheta, where the left side is 0; or a wide network, relu, where the slopes "
            "multiply to 1 in mean square",
            expected=Verdict.REFUTED,
        ),
        Part(
            name="in a wide network, relu: the true update under SGD",
            statement=_POST_RELU,
            checks=(*GROWTH, GROWTH_ON_RECORD, STACKS_ON_RECORD, GROWTH_BY_KERNEL),
            mutants=(
                Mutant(name="O(log L)", statement=_POST_RELU.with_(order=log(L))),
                Mutant(name="O(L^(1/2))", statement=_POST_RELU.with_(order=L**HALF)),
            ),
        ),
        measured_too(
            growth_part(
                "in a wide network, gelu: the true update under SGD",
                Growth(scheme="post-ln", activation="gelu", order=L, is_upper=True),
                expected=Verdict.REFUTED,
                instead=(
                    exp(L * log(KAPPA_POST)),
                    "Theta(kappa^L): at gain 1 E phi'^2 > E phi^2, so each sublayer multiplies the gradient by "
                    f"kappa = (1 + E phi'^2)/(1 + E phi^2) = {float(KAPPA_POST):.4f}",
                ),
                condition=EQUAL_MOMENTS,
                wrong=log(L),
            )
        ),
    ),
    cells=(
        Cell(
            table="bounds",
            where=(("scheme", "post-ln"),),
            column="bound",
            printed="eta*Sum((v[l]**2 + w[l]**2)/alpha**2, (l, 1, L))",
            note="Theorem 4.2 after one SGD step, before alpha = v = w = 1",
        ),
    ),
    expected=Verdict.REFUTED,
)

CLAIMS: tuple[Claim, ...] = (_DN_09,)

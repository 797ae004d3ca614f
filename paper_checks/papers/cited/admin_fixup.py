"""What the sources cite: Admin (arXiv 2004.08249) and Fixup (arXiv 1901.09321)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from sympy import Expr, Rational, S, harmonic, log, sympify

from paper_checks.claims.claim import Check, Claim, Evidence, Kind, Mutant, Part, Route
from paper_checks.claims.statements import Growth, Values
from paper_checks.routes import algebra, second_meanfield
from paper_checks.routes.checks import GROWTH, check, derived, order_key, order_of, outcome
from paper_checks.routes.kernel import GROWTH_BY_KERNEL, GROWTH_BY_KERNEL_ANEW
from paper_checks.routes.recorded_stacks import STACKS_ON_RECORD
from paper_checks.routes.wide_networks import DEPTHS, NUM_NETWORKS, WIDTH, second_rise
from theory.symbols import L, N

_MATRICES = range(2, 7)


def _settled(quantity: Callable[[int], float]) -> Callable[[Values], list[bool | None]]:
    """quantity / order at 10^2, 10^4, 10^6."""

    def decide(s: Values) -> list[bool | None]:
        ratios = [
            math.log(quantity(length) / float(s["order"].subs(L, length).evalf()))
            for length in second_meanfield.LENGTHS
        ]
        return [algebra.settles(ratios)]

    return decide


def _with_relu(statement: Growth) -> Evidence:
    found = GROWTH[0].run(statement)
    return replace(found, detail=f"{found.detail}; with gelu it outgrows the order, see S3-10")


def _by_measuring(statement: Growth) -> Evidence:
    """Whether the update rises no more between the two larger of three depths than the order does."""
    networks = [second_meanfield.coefficients(statement.scheme, length) for length in DEPTHS]
    gains = tuple(network.gain_in for network in networks)
    found = second_rise(networks[0].placement, gains, (statement.activation,), statement.norm_kind)
    first, second, third = (float(statement.order.subs(L, length)) for length in DEPTHS)
    ratio = math.inf if second == first else (third - second) / (second - first)
    return Evidence(
        route=Route.MEASURED,
        num_effective=int(math.isfinite(ratio)),
        verdict=outcome(found.low <= ratio),
        detail=f"real networks {WIDTH} wide, {NUM_NETWORKS} a depth: the update from {DEPTHS[1]} to {DEPTHS[2]} "
        f"sublayers rises {found.text} times as much as from {DEPTHS[0]} to {DEPTHS[1]}; as the order, {ratio:.2g} "
        "times",
    )


def _admin(
    id_: str,
    corollary: str,
    scheme: str,
    order: Expr,
    share: Expr,
    own: Callable[[int], float],
    text: str,
    *more: Check,
) -> Claim:
    """A corollary of Admin: sum_l beta_ll^2, beta_ll^2 the share of branch l in its own sublayer's variance.

    more: routes besides to the true update.
    """

    def closed(s: Values) -> list[bool | None]:
        return [order_key(order_of(share)) == order_key(order_of(s["order"]))]

    statement = Values.of(order=order)
    growth = Growth(scheme=scheme, order=order, is_upper=True)
    checks: tuple[Check, ...] = (
        check(Route.PROOF, f"sum of beta_ll^2 = {share}, its leading order", closed),
        check(Route.NUMERIC, f"{text}, summed", _settled(own), is_direct=True),
    )
    wrong = (("too small", order / log(L)), ("another power", order * L ** Rational(1, 2)))
    return Claim(
        id=id_,
        kind=Kind.RESULT,
        source="admin",
        locator=corollary,
        quote=f"Var[F(x_0, W) - F(x_0, W*)] = O({'log N' if order.has(log) else 'N'})",
        summary=f"{scheme}: the update is O({order}) in L sublayers",
        parts=(
            Part(
                name="in its own model",
                statement=statement,
                checks=checks,
                mutants=tuple(Mutant(name=name, statement=Values.of(order=expr)) for name, expr in wrong),
            ),
            Part(
                name="the true update under SGD with relu, which Admin's networks have",
                statement=growth,
                checks=(
                    Check(route=GROWTH[0].route, run=_with_relu),
                    GROWTH[1],
                    Check(route=Route.MEASURED, run=_by_measuring, is_direct=True),
                    *more,
                ),
                mutants=(
                    Mutant(name="flat", statement=growth.with_(order=S.One)),
                    Mutant(name="the square root", statement=growth.with_(order=order ** Rational(1, 2))),
                ),
            ),
        ),
    )


def _fixup_rules() -> dict[str, Expr]:
    from theory.rules.solve import solve_rule

    found = {}
    for m in _MATRICES:
        rule = solve_rule("none", "sgd", "encoder", num_matrices=m, zero_last=True, with_alternatives=False)
        found[f"m{m}"] = sympify(rule.sides[0].gain).subs(N, L / 2)
    return found


_FIXUP = Values.of(**{f"m{m}": L ** Rational(-1, 2 * m - 2) for m in _MATRICES})
_FLAT = Growth(scheme="fixup", order=S.One)

CLAIMS: tuple[Claim, ...] = (
    _admin(
        "LI-01",
        "Corollary 1",
        "pre-ln",
        log(L),
        harmonic(L + 1) - 1,
        lambda length: sum(1 / (1 + i) for i in range(1, length + 1)),
        "equal branches: beta_ll^2 = 1/(l + 1)",
        GROWTH_BY_KERNEL_ANEW,
    ),
    _admin(
        "LI-02",
        "Corollary 2",
        "post-ln",
        L,
        L / 2,
        lambda length: length / 2,
        "equal branches: beta_ll^2 = 1/2",
        STACKS_ON_RECORD,
        GROWTH_BY_KERNEL_ANEW,
    ),
    Claim(
        id="LI-05",
        kind=Kind.RESULT,
        source="fixup",
        locator="Section 3, rule 2",
        quote="scale the weight layers inside residual branches by L^(-1/(2m-2)), the last layer of a branch at 0",
        summary="branches of m layers, the last at zero: gain L^(-1/(2m-2)) makes one SGD step Theta(eta)",
        parts=(
            Part(
                name="the exponent, m = 2 to 6",
                statement=_FIXUP,
                checks=(
                    derived("the derived rule for a branch of m matrices, the last at 0", _fixup_rules),
                    check(
                        Route.ARITHMETIC,
                        "only the last layer has a gradient, the product of the m - 1 others: L times its square is 1",
                        lambda s: [algebra.equal(L * s[f"m{m}"] ** (2 * (m - 1)), S.One) for m in _MATRICES],
                        is_direct=True,
                    ),
                ),
                mutants=(
                    Mutant(name="2m", statement=_FIXUP.with_(m3=L ** Rational(-1, 6))),
                    Mutant(name="m - 1", statement=_FIXUP.with_(m4=L ** Rational(-1, 3))),
                ),
            ),
            Part(
                name="the true update under SGD, m = 2, relu, does not grow",
                statement=_FLAT,
                checks=(*GROWTH, STACKS_ON_RECORD, GROWTH_BY_KERNEL),
                mutants=(
                    Mutant(name="grows", statement=_FLAT.with_(order=log(L))),
                    Mutant(name="without it", statement=_FLAT.with_(scheme="post-ln")),
                ),
            ),
        ),
    ),
)

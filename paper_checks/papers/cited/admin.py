"""Liu et al., "Understanding the Difficulty of Training Transformers" (Admin), arXiv 2004.08249: LI-01, LI-02."""

from __future__ import annotations

import math
from dataclasses import replace

from sympy import Expr, S, harmonic, lambdify, log, sqrt

from paper_checks.claims.broken import broken
from paper_checks.claims.claim import Check, Claim, Evidence, Kind, Mutant, Part, Route
from paper_checks.claims.statements import Growth, Values
from paper_checks.routes import algebra, second_meanfield
from paper_checks.routes.checks import GROWTH, Answers, check, order_key, order_of
from paper_checks.routes.kernel import GROWTH_BY_KERNEL_ANEW
from paper_checks.routes.recorded_stacks import STACKS_ON_RECORD
from paper_checks.routes.wide_networks import DEPTHS, WIDTH, second_rise
from theory.symbols import L, l


def _with_relu(s: Growth) -> Evidence:
    evidence = GROWTH[0].run(s)
    return replace(evidence, detail=f"{evidence.detail}; with gelu it outgrows the order, see S3-10")


@check(Route.MEASURED, f"real networks {WIDTH} wide: the rise of the update over {DEPTHS} sublayers", is_direct=True)
def _rises(s: Growth) -> Answers:
    networks = [second_meanfield.coefficients(s.scheme, length) for length in DEPTHS]
    gains = tuple(network.gain_in for network in networks)
    rise = second_rise(networks[0].placement, gains, (s.activation,), s.norm_kind)
    first, second, third = (float(s.order.subs(L, length)) for length in DEPTHS)
    ratio = (third - second) / (second - first)
    numbers = {"the second rise over the first": rise.text, "as the order": float(f"{ratio:.2g}")}
    return Answers(holds=[rise.low <= ratio], numbers=numbers)


def _admin(id_: str, locator: str, scheme: str, order: Expr, share: Expr, each: Expr, *more: Check) -> Claim:
    """A corollary: the update is the sum of beta_ll^2, the share of branch l in its own sublayer's variance.

    share: that sum. each: beta_ll^2, with equal branches. more: routes besides to the true update.
    """

    def closed(s: Values) -> list[bool | None]:
        return [order_key(order_of(share)) == order_key(order_of(s["order"]))]

    def summed(s: Values) -> list[bool | None]:
        term, ratios = lambdify(l, each, modules="math"), []
        for length in second_meanfield.LENGTHS:
            total = math.fsum(term(index) for index in range(1, length + 1))
            ratios.append(math.log(total / float(s["order"].subs(L, length).evalf())))
        return [algebra.settles(ratios)]

    statement = Values.of(order=order)
    growth = Growth(scheme=scheme, order=order, is_upper=True)
    wrong = {"too small": order / log(L), "another power": order * sqrt(L)}
    return Claim(
        id=id_,
        kind=Kind.RESULT,
        source="admin",
        locator=locator,
        quote=f"Var[F(x_0, W) - F(x_0, W*)] = O({'log N' if order.has(log) else 'N'})",
        summary=f"{scheme}: the update is O({order}) in L sublayers",
        parts=(
            Part(
                name="in its own model",
                statement=statement,
                checks=(
                    check(Route.PROOF, f"sum of beta_ll^2 = {share}, its leading order", closed),
                    check(Route.NUMERIC, f"equal branches: beta_ll^2 = {each}, summed", summed, is_direct=True),
                ),
                mutants=tuple(Mutant(name=name, statement=Values.of(order=expr)) for name, expr in wrong.items()),
            ),
            Part(
                name="the true update under SGD with relu, which Admin's networks have",
                statement=growth,
                checks=(Check(route=GROWTH[0].route, run=_with_relu), GROWTH[1], _rises, *more),
                mutants=broken(growth),
            ),
        ),
    )


CLAIMS: tuple[Claim, ...] = (
    _admin("LI-01", "Corollary 1", "pre-ln", log(L), harmonic(L + 1) - 1, 1 / (l + 1), GROWTH_BY_KERNEL_ANEW),
    _admin("LI-02", "Corollary 2", "post-ln", L, L / 2, S.Half, STACKS_ON_RECORD, GROWTH_BY_KERNEL_ANEW),
)

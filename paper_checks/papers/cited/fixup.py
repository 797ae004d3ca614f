"""Zhang et al., "Fixup Initialization", arXiv 1901.09321: the gain of the layers inside a branch, LI-05."""

from __future__ import annotations

from sympy import Expr, Rational, S, sympify

from paper_checks.claims.broken import broken
from paper_checks.claims.claim import Claim, Kind, Part, Route
from paper_checks.claims.statements import Growth, Values
from paper_checks.routes import algebra
from paper_checks.routes.checks import GROWTH, check, derived
from paper_checks.routes.kernel import GROWTH_BY_KERNEL
from paper_checks.routes.recorded_stacks import STACKS_ON_RECORD
from theory.symbols import L, N

_MATRICES = range(2, 7)


def _rules() -> dict[str, Expr]:
    from theory.rules.solve import solve_rule

    gains = {}
    for m in _MATRICES:
        rule = solve_rule("none", "sgd", "encoder", num_matrices=m, zero_last=True, with_alternatives=False)
        gains[f"m{m}"] = sympify(rule.sides[0].gain).subs(N, L / 2)
    return gains


_GAINS = Values.of(**{f"m{m}": L ** Rational(-1, 2 * m - 2) for m in _MATRICES})
_FLAT = Growth(scheme="fixup", order=S.One)
_LI_05 = Claim(
    id="LI-05",
    kind=Kind.RESULT,
    source="fixup",
    locator="Section 3, rule 2",
    quote="scale the weight layers inside residual branches by L^(-1/(2m-2)), the last layer of a branch at 0",
    summary="branches of m layers, the last at zero: gain L^(-1/(2m-2)) makes one SGD step Theta(eta)",
    parts=(
        Part(
            name="the exponent, m = 2 to 6",
            statement=_GAINS,
            checks=(
                derived("the derived rule for a branch of m matrices, the last at 0", _rules),
                check(
                    Route.ARITHMETIC,
                    "only the last layer has a gradient, the product of the m - 1 others: L times its square is 1",
                    lambda s: [algebra.equal(L * s[f"m{m}"] ** (2 * (m - 1)), S.One) for m in _MATRICES],
                    is_direct=True,
                ),
            ),
            mutants=broken(_GAINS),
        ),
        Part(
            name="the true update under SGD, m = 2, relu, does not grow",
            statement=_FLAT,
            checks=(*GROWTH, STACKS_ON_RECORD, GROWTH_BY_KERNEL),
            mutants=broken(_FLAT),
        ),
    ),
)

CLAIMS: tuple[Claim, ...] = (_LI_05,)

"""Keel (Post-LayerNorm Is Back): the scale at which a post-norm's residual path passes gradients on."""

from __future__ import annotations

from sympy import Expr, Integer, Rational, exp, limit, log, oo

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Amendment, Claim, Finding, Kind, Mutant, Part, Route, Verdict, claim
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes import algebra
from depthlaw.paper_checks.routes.checks import Answers, check, python_command
from depthlaw.theory.symbols import L

# ---------------------------------------------------------------- KE-02: the critical scale


def _passed(power: Expr) -> Expr:
    """lim (alpha / sqrt(alpha^2 + 1))^L at alpha = L^power: what L post-norms leave of the residual path's gradient."""
    return exp(limit(-L / 2 * log(1 + L ** (-2 * power)), L, oo))


def _number(power: Expr, length: int) -> float:
    alpha = float(length) ** float(power)
    return float((alpha / (alpha**2 + 1) ** 0.5) ** length)


_LIMIT = Values.of("lim (L/sqrt(L^2 + 1))^L = {value}", value=1)
_CRITICAL = Values.of("alpha = L^{power} is the smallest power at which the gradient does not vanish", power=1)


@check(Route.PROOF, "the limit")
def _limit(s: Values) -> list[bool | None]:
    return [algebra.equal(_passed(Integer(1)), s["value"])]


@check(Route.PROOF, "lim (alpha/sqrt(alpha^2 + 1))^L at the printed power of L, and at one a twelfth below")
def _vanishes_below(s: Values) -> Answers:
    at, below = (_passed(power) for power in (s["power"], s["power"] - Rational(1, 12)))
    powers = (Rational(1, 4), Rational(1, 2), Rational(3, 4), Integer(1))
    code = "print(*[(1e6**(2*p) / (1e6**(2*p) + 1))**5e5 for p in (0.25, 0.5, 0.75, 1)])"
    holds = at != 0 and below == 0
    example = {
        "printed": s.text,
        "found": "alpha = sqrt(L) leaves exp(-1/2), alpha = L^(3/4) leaves 1, alpha = L^(1/4) nothing",
        "command": python_command(code),
    }
    numbers = {f"alpha = L^({power})": str(_passed(power)) for power in powers}
    return Answers(holds=[holds], numbers=numbers, counterexample=None if holds else example)


@check(Route.NUMERIC, "the same at 10^4 and 10^6 sublayers")
def _vanishes_in_numbers(s: Values) -> list[bool | None]:
    """What is left, once it is there, stays; what vanishes is a third at the most of what it was at 10^4."""
    step = Rational(1, 12)
    stays = [_number(power, 10**6) > 0.9 * _number(power, 10**4) > 0 for power in (s["power"], s["power"] - step)]
    return [stays[0] and not stays[1]]


_KE_02 = Claim(
    id="KE-02",
    kind=Kind.RESULT,
    locator="(19) and footnote 2",
    quote="lim (L/sqrt(L^2 + 1))^L = 1, so alpha = L is the critical scale",
    summary="alpha = L is the critical scale of the residual path: (L/sqrt(L^2 + 1))^L goes to 1",
    parts=(
        Part(name="the limit", statement=_LIMIT, checks=(_limit,)),
        Part(
            name="that it makes alpha = L critical",
            statement=_CRITICAL,
            checks=(_vanishes_below, _vanishes_in_numbers),
            mutants=changed(_CRITICAL, power=[Rational(1, 4), Rational(3, 4), 2]),
            expected=Verdict.REFUTED,
            instead=Amendment(statement=_CRITICAL.with_(power=Rational(1, 2)), text="the critical scale is sqrt(L)"),
            condition="another criterion than the gradient of the residual path, such as the update under an optimizer",
        ),
    ),
    finding=Finding(
        "Keel's limit holds, but does not make alpha = L critical: from alpha = sqrt(L) on the residual path passes "
        "the gradient on",
        rank=63,
    ),
)

# ---------------------------------------------------------------- KE-04: DeepNorm, as Keel states it

_DEEPNORM = Values.of(alpha=L ** Rational(1, 4), beta=L ** -Rational(1, 4))


@check(Route.ARITHMETIC, "DeepNet's decoder, alpha = (2M)^(1/4) and beta = (8M)^(-1/4), L counting sublayers or layers")
def _as_deepnet(s: Values) -> Answers:
    readings = {"sublayers, L = 2M": L / 2, "layers, L = M": L}
    fits = {
        name: algebra.equal(s["alpha"], (2 * M) ** Rational(1, 4))
        and algebra.equal(s["beta"], (8 * M) ** -Rational(1, 4))
        for name, M in readings.items()
    }
    example = {
        "printed": s.text,
        "found": "DeepNet's alpha beta is 4^(-1/4) = 0.707 at every depth, the printed one is 1",
        "command": python_command("M = 12; print((2*M)**0.25 * (8*M)**-0.25)"),
    }
    holds = any(fits.values())
    return Answers(holds=[holds], numbers=fits, counterexample=None if holds else example)


_KE_04 = claim(
    "KE-04",
    kind=Kind.REMARK,
    locator="Section 2.4",
    quote="DeepNorm's decoder: alpha = L^0.25, beta = L^-0.25",
    summary="DeepNorm's decoder has alpha = L^(1/4) and beta = L^(-1/4)",
    statement=_DEEPNORM,
    checks=(_as_deepnet,),
    mutants=(Mutant(name="beta = 1", statement=_DEEPNORM.with_(beta=1)),),
    expected=Verdict.REFUTED,
    instead=Amendment(
        statement=_DEEPNORM.with_(beta=(4 * L) ** -Rational(1, 4)), text="beta = (4L)^(-1/4), L sublayers"
    ),
    condition="a gain beta that is counted in units of Xavier's over sqrt(2)",
    finding=Finding(
        "DeepNorm's gain beta is (4L)^(-1/4), not L^(-1/4) as Keel states it, L counting sublayers", rank=90
    ),
)

CLAIMS = (_KE_02, _KE_04)

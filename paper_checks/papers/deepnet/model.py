"""DeepNet's derivation: the scalar model of Appendix A, and what it is approximated by.

One sublayer is f(x) = (alpha + v w) / sqrt(alpha^2 + v^2 w^2) x with weights v and w, d = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import mpmath
from sympy import Expr, Rational, S, diff, exp, factor, lambdify, limit, log, sqrt, together

from paper_checks.claims.claim import Amendment, Check, Claim, Evidence, Kind, Mutant, Part, Route, Verdict
from paper_checks.claims.statements import Values
from paper_checks.routes import algebra, one_liners, second_meanfield
from paper_checks.routes.checks import check, derived, outcome
from theory.symbols import N, scratch
from theory.symbols import gain_in as w
from theory.symbols import gain_out as v
from theory.symbols import residual_weight as alpha

APPENDIX = "Appendix A"
_ROOT = sqrt(alpha**2 + v**2 * w**2)

# ---------------------------------------------------------------- DN-08: the scalar model and its approximations

_MODEL = Values.of(
    slope=(alpha + v * w) / _ROOT,
    by_v=alpha * (alpha - v * w) / _ROOT**3 * w,
    by_w=alpha * (alpha - v * w) / _ROOT**3 * v,
    cross_stream=alpha / _ROOT,
    cross_memory=v * w / _ROOT,
)


def _differentiated() -> dict[str, Expr]:
    """Every slope at x = 1, by sympy."""
    x, y = scratch("x", positive=True), scratch("y", positive=True)
    f, cross = (alpha * x + v * w * x) / _ROOT, (alpha * y + v * w * x) / _ROOT
    slopes = {"slope": diff(f, x), "by_v": diff(f, v), "by_w": diff(f, w)}
    slopes |= {"cross_stream": diff(cross, y), "cross_memory": diff(cross, x)}
    return {name: factor(together(found.subs(x, 1))) for name, found in slopes.items()}


def _model_of_theory(s: Values) -> list[bool | None]:
    from theory.bounds.scalar_model import cross_slopes, scalar_sensitivity, scalar_slope

    stream, memory = cross_slopes(alpha, v, w)
    return [
        algebra.equal(s["slope"], scalar_slope(alpha, v, w)),
        algebra.equal(factor(s["by_v"] ** 2 + s["by_w"] ** 2), factor(scalar_sensitivity(alpha, v, w) ** 2)),
        algebra.equal(s["cross_stream"], stream),
        algebra.equal(s["cross_memory"], memory),
    ]


@dataclass(frozen=True)
class Near:
    """A factor is about a simpler one: wherever 0 < v, w < 1 < alpha, or only as v w / alpha falls."""

    slope: Expr
    sensitivity: Expr
    as_ratio_falls: bool = False

    @property
    def text(self) -> str:
        when = "as v w / alpha goes to 0" if self.as_ratio_falls else "for 0 < v, w < 1 < alpha"
        names = ("(alpha + vw)/sqrt(alpha^2 + v^2 w^2)", "alpha (alpha - vw)/(alpha^2 + v^2 w^2)^(3/2)")
        return f"{names[0]} ~ {self.slope}; {names[1]} ~ {self.sensitivity}, {when}"


_NEAR = Near(S.One, 1 / alpha)


def _near_by_limits(s: Near) -> list[bool | None]:
    """Factor over simpler form, functions of r = v w / alpha: 1 as r goes to 0; and, for every r below 1, not to 0."""
    r = scratch("r", positive=True)
    out: list[bool | None] = []
    for full, printed in ((_MODEL["slope"], s.slope), (_MODEL["by_v"] / w, s.sensitivity)):
        form = (full / printed).subs(v * w, r * alpha).subs(v, r * alpha / w)
        form = factor(form.subs(alpha, 1)) if form.has(alpha) else form
        out.append(limit(form, r, 0) == 1)
        if not s.as_ratio_falls:
            out.append(limit(form, r, 1) != 0)
    return out


def _near_by_theory(s: Near) -> list[bool | None]:
    """theory's slopes at v = w, alpha = 1: off by less than 2r at r = 2^-4, 2^-8, 2^-12; or a factor 2 up to r = 1."""
    from theory.bounds.scalar_model import scalar_sensitivity, scalar_slope

    points = [Rational(1, 2**k) for k in (4, 8, 12)]
    if not s.as_ratio_falls:
        points += [1 - point for point in points]
    out: list[bool | None] = []
    for r in points:
        at = sqrt(r)
        ways = (scalar_slope(S.One, at, at), scalar_sensitivity(S.One, at, at) / sqrt(2 * r))
        for way, printed in zip(ways, (s.slope, s.sensitivity), strict=True):
            off = abs(math.log(float(way / printed.subs(alpha, 1))))
            out.append(off < 2 * min(float(r), math.log(2) / 2))
    return out


_PRODUCT = Values.of(product=S.One)
_TRUE_PRODUCT = Values.of(product=exp(2 ** Rational(-3, 4) * N ** Rational(1, 4)))


def _log_product(num_layers: int) -> mpmath.mpf:
    """log of ((1 + r)/sqrt(1 + r^2))^(2N) at the printed alpha and beta: r = (8N)^(-1/2) (2N)^(-1/4)."""
    n = mpmath.mpf(num_layers)
    ratio = (8 * n) ** mpmath.mpf("-0.5") * (2 * n) ** mpmath.mpf("-0.25")
    return 2 * n * (mpmath.log1p(ratio) - mpmath.log1p(ratio**2) / 2)


def _first_beyond(size: int) -> int:
    """The least N whose product exceeds ``size``; it grows with N."""
    low, high = 0, 10**6
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _log_product(middle) > math.log(size) else (middle, high)
    return high


def _product_settles(s: Values) -> Evidence:
    printed = lambdify(N, log(s["product"]), modules="mpmath")
    holds = algebra.settles([_log_product(n) - printed(mpmath.mpf(n)) for n in second_meanfield.LENGTHS])
    passes = {size: _first_beyond(size) for size in (2, 10)}
    example = {
        "printed": "the slopes of the 2N sublayers multiply to about 1",
        "found": f"the product, about exp(2^(-3/4) N^(1/4)), is above 2 from N = {passes[2]}, above 10 from N = "
        f"{passes[10]}",
        "command": one_liners.PRODUCT_OF_SLOPES,
    }
    return Evidence(
        route=Route.NUMERIC,
        num_effective=len(second_meanfield.LENGTHS),
        verdict=outcome(holds),
        detail="the product over the printed form, N = 10^2, 10^4, 10^6: "
        + ("settles" if holds else "does not settle"),
        numbers={f"log of the product, N = {n}": mpmath.nstr(_log_product(n), 6) for n in second_meanfield.LENGTHS},
        counterexample=None if holds else example,
    )


def _product_limit(s: Values) -> list[bool | None]:
    """2N log of theory's slope at the derived alpha and beta, less log of the printed form, as N = 1/t^4 grows."""
    from theory.bounds.scalar_model import scalar_slope
    from theory.rules.solve import solve_rule

    side = solve_rule("post", "sgd", "encoder", "deepnet", with_alternatives=False).side("encoder")
    assert side.gain is not None
    t, r = scratch("t", positive=True), scratch("r", positive=True)
    step = log(scalar_slope(S.One, sqrt(r), sqrt(r))).series(r, 0, 3).removeO()
    whole = 2 * N * step.subs(r, side.gain**2 / side.residual_weight) - log(s["product"])
    return [bool(limit(whole.subs(N, t**-4).expand(), t, 0, "+").is_finite)]


_DN_08 = Claim(
    id="DN-08",
    kind=Kind.STEP,
    source="deepnet",
    locator=f"{APPENDIX}, the proof of Theorem 4.2",
    quote="f(x) = (alpha + vw)/sqrt(alpha^2 + v^2 w^2) x; df/dx ~ 1, df/d(v, w) ~ x (w, v)/alpha",
    summary="the scalar model, its slopes, and that they are about 1 and 1/alpha",
    uses=("DN-04",),
    parts=(
        Part(
            name="the slopes",
            statement=_MODEL,
            checks=(
                derived("differentiated by sympy", _differentiated, is_direct=True),
                check(Route.PROOF, "the derived scalar model's", _model_of_theory),
            ),
            mutants=(
                Mutant(name="alpha + vw", statement=_MODEL.with_(by_v=alpha * (alpha + v * w) / _ROOT**3 * w)),
                Mutant(name="the root once", statement=_MODEL.with_(by_w=(alpha - v * w) / _ROOT * v)),
                Mutant(name="cross-attention as self", statement=_MODEL.with_(cross_stream=(alpha + v * w) / _ROOT)),
            ),
        ),
        Part(
            name="each is about 1 and 1/alpha",
            statement=_NEAR,
            checks=(
                check(Route.PROOF, "limits in r = v w / alpha, at 0 and at 1", _near_by_limits, is_direct=True),
                check(
                    Route.NUMERIC, "the derived model's slopes at r = 2^-4 to 2^-12, and 1 less that", _near_by_theory
                ),
            ),
            mutants=(
                Mutant(name="2/alpha", statement=Near(S.One, 2 / alpha, as_ratio_falls=True)),
                Mutant(name="slope 2", statement=Near(S(2), 1 / alpha, as_ratio_falls=True)),
            ),
            hedge=Amendment(
                statement=Near(S.One, 1 / alpha, as_ratio_falls=True),
                text="as v w / alpha goes to 0: they are 1 + r and (1 - r)/alpha to first order in r = v w / alpha. At "
                "v = w = alpha = 1 the second is 0",
            ),
            expected=Verdict.CONDITIONAL,
        ),
        Part(
            name="so the product over the 2N sublayers is about 1, at the printed alpha and beta",
            statement=_PRODUCT,
            checks=(
                Check(route=Route.NUMERIC, run=_product_settles, is_direct=True),
                check(Route.PROOF, "limit of 2N log(slope) at the derived alpha and beta", _product_limit),
            ),
            mutants=(
                Mutant(name="N^(1/2)", statement=Values.of(product=exp(sqrt(N) / 2))),
                Mutant(name="exp(N^(1/4))", statement=Values.of(product=exp(N ** Rational(1, 4)))),
            ),
            instead=Amendment(
                statement=_TRUE_PRODUCT,
                text="exp(2^(-3/4) N^(1/4) (1 + o(1))): v w / alpha = 2^(-7/4) N^(-3/4), 2N times",
            ),
            condition="N v w / alpha bounded, which alpha^2 = 1/(v^2 + w^2) meets only with beta = O(N^(-1/3)). In a "
            "wide network the branch is uncorrelated with the stream, a sublayer multiplies the mean squared gradient "
            "by (alpha^2 + v^2 w^2)/(alpha^2 + v^2 w^2) = 1, and the product is 1 at any alpha and beta",
            expected=Verdict.REFUTED,
        ),
    ),
    expected=Verdict.REFUTED,
)


CLAIMS: tuple[Claim, ...] = (_DN_08,)

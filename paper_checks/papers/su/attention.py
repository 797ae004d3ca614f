"""Su's article on attention: what the softmax does to the gradients of q and k, and to an average of tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sympy import Expr, Integer, Rational, S, Symbol, exp, oo, simplify

from paper_checks.claims.claim import Amendment, Check, Claim, Evidence, Finding, Mutant, Part, Route, Verdict
from paper_checks.papers.su.shares import DEEP, DEEP_UNSCALED, SHARES, SHARES_OF_SCALED, SHRINKING, DeepShare
from paper_checks.routes import attention, averages
from paper_checks.routes.averages import Average
from paper_checks.routes.checks import all_of, check, outcome
from paper_checks.routes.intervals import Interval

_LOCATOR = "Self-Attention"
_EXPLAIN = "depthlaw explain S1-18"
_QUARTER = Rational(1, 4)


# ---------------------------------------------------------------- S1-18: one layer


@dataclass(frozen=True, kw_only=True)
class QueryRatio:
    """low <= (gradient of q)^2 / (gradient of v)^2 <= high in one attention layer at gain 1, on independent tokens.

    measure: "scalars", lambda_q and lambda_v, or "matrices", W_q and W_v. is_scaled: logits over sqrt(d).
    regime: "long", many more tokens than the width; "wide", the other way round; "every", both; "many", many tokens T
    and any width d, with logits of variance s^2: ends in these letters.
    """

    measure: str
    is_scaled: bool
    regime: str = "every"
    low: Expr = S.Zero
    high: Expr = _QUARTER

    def with_(self, **changes: Any) -> QueryRatio:
        return replace(self, **changes)

    def covers(self, regime: str) -> bool:
        return self.regime == regime or (self.regime == "every" and regime != "many")

    @property
    def text(self) -> str:
        names = {"scalars": "dL/dlambda_q : dL/dlambda_v", "matrices": "dL/dW_q : dL/dW_v"}
        logits = "logits over sqrt(d)" if self.is_scaled else "logits not scaled"
        where = {"every": "any width and length", "long": "length >> width", "wide": "width >> length"}
        where["many"] = "T >> 1, logits of variance s^2"
        ends = f"are {self.low}" if self.low == self.high else f"from {self.low} to {self.high}"
        return f"one layer, gain 1, {logits}, {where[self.regime]}: squares of {names[self.measure]} {ends}"


_WIDTHS = (64, 128)
_LAW = attention.ratio_law(attention.noise())
_SHAPES = ((512, 128, 0.25), (256, 256, 0.25), (1024, 64, 0.5))
"""(T, d, s^2) where T is already large enough for the law: with s^2 = 1 it takes far more tokens."""


def _limits(s: QueryRatio) -> dict[str, Expr]:
    """The ratio in each regime: T -> oo at fixed d, where xbar is the tilted mean; d -> oo with two tokens."""
    found: dict[str, Expr] = {}
    if s.covers("long"):
        found["long"] = attention.long_ratio(attention.tilted_mean())
    if s.covers("wide"):
        power = 2 if s.measure == "scalars" else 0
        if s.is_scaled:
            factor = 1 if s.measure == "scalars" else 2
            found["wide"] = S(factor * attention.two_tokens(1.0, power))
        else:
            # Over s = sqrt(d) it is a density of ties; |k|^2 = d comes on top of that for the matrices.
            found["wide"] = S.Zero if s.measure == "scalars" else oo
    return found


def _ties(s: QueryRatio) -> list[bool | None]:
    """That two tokens' ratio does go as 1/s where the limit above says so: times s it has settled by s = 100."""
    if s.is_scaled or not s.covers("wide"):
        return []
    power = 2 if s.measure == "scalars" else 0
    early, late = (scale * attention.two_tokens(scale, power) for scale in (100.0, 10000.0))
    return [abs(late / early - 1) < 1e-2]


def _exactly(s: QueryRatio) -> Evidence:
    limits = _limits(s)
    answers: list[bool | None] = [bool(s.low <= found) and bool(found <= s.high) for found in limits.values()]
    answers += _ties(s)
    if s.covers("many"):
        limits["many"] = _LAW
        answers += [simplify(end - _LAW) == 0 for end in (s.low, s.high)]
    return Evidence(
        route=Route.PROOF,
        num_effective=len(answers),
        verdict=outcome(all_of(answers)),
        detail="exact limits: T >> d, where xbar = lambda_q lambda_k u, linear in all four scalars; d >> T, two tokens",
        numbers={name: str(found.evalf(5) if found.is_number else found) for name, found in limits.items()},
        steps=(
            "lambda_v dL/dlambda_v = g . xbar and lambda_q dL/dlambda_q = g . sum_j p_j (a_j - abar) x_j",
            "T -> oo: E[x e^(s x)]/E[e^(s x)] = s, so xbar = u for logits u . x, and both are g . u: their ratio is 1",
            f"d >> T >> 1: the noise of the tokens is all, and the ratio is {attention.independent_ratio()}, s^2 the "
            "variance of the logits; s = 1 where they are over sqrt(d): 2",
            "T >> 1: with n = d e^(s^2)/T, the noise in xbar, it is (n (s^2 + s^4) + s^2)/(n + s^2)",
            "s -> oo at fixed T: ties within O(1) of the largest logit are all, of probability O(1/s) = O(d^(-1/2)); "
            "dL/dW_q has |k|^2 = d beside that",
        ),
    )


def _by_autograd(s: QueryRatio) -> Evidence:
    """Where the exact limits are far off, as of unscaled logits at T >> e^d, nothing is measured."""
    shapes: list[tuple[int, int]] = [(128, 64)] if s.covers("long") and s.is_scaled else []
    if s.covers("wide"):
        shapes += [(4, 64)] if s.is_scaled else [(8, width) for width in _WIDTHS]
    numbers, answers = {}, []
    for num_tokens, width in shapes:
        found = attention.one_layer(num_tokens, width, is_scaled=s.is_scaled)
        measured: Interval = getattr(found, s.measure)
        numbers[f"T = {num_tokens}, d = {width}"] = measured.text
        answers.append(measured.within(float(s.low), float(s.high)))
    for shape in _SHAPES if s.covers("many") else ():
        found, ends = attention.many_tokens(*shape), [attention.at_shape(end, *shape) for end in (s.low, s.high)]
        numbers["T = {}, d = {}, s^2 = {:g}".format(*shape)] = f"{found.text}, stated {ends[0]:.3g}"
        answers.append(found.low <= ends[1] and ends[0] <= found.high)
    failed = all_of(answers) is False and not s.covers("many")
    return Evidence(
        route=Route.MEASURED,
        num_effective=len(answers),
        verdict=outcome(all_of(answers)),
        detail="softmax averages of real tokens, 32 queries each: d xbar/d lambda_q and xbar"
        if s.covers("many")
        else "a real layer by autograd, averaged over what arrives",
        numbers=numbers,
        counterexample=_example(s, numbers) if failed else None,
    )


def _example(s: QueryRatio, numbers: dict[str, str]) -> dict[str, Any]:
    """What was measured; and for the scalars the least networks, exact by hand."""
    shape, ratio = list(numbers.items())[-1 if not s.is_scaled else 0]
    example: dict[str, Any] = {
        "printed": "very small beside those of v",
        "found": f"{ratio} times v's, squares of the {'lambdas' if s.measure == 'scalars' else 'matrices'} at {shape}",
        "command": _EXPLAIN,
    }
    if s.measure == "scalars" and s.is_scaled:
        example |= {
            "two_tokens": "x and -x with logits a and -a: lambda_q dL/dlambda_q is 2a/sinh(2a) of v's, 0.85 at a = 1/2",
            "three_tokens": "x, -x, -x with logits a, -a, -a, a = log(2)/2: v's gradient is 0, q's a (x . g), not 0",
        }
    return example


_ONE_LAYER = (
    Check(route=Route.PROOF, run=_exactly, is_direct=True),
    Check(route=Route.MEASURED, run=_by_autograd, is_direct=True),
)

_SCALED = QueryRatio(measure="scalars", is_scaled=True)
_UNSCALED = QueryRatio(measure="scalars", is_scaled=False)
_MATRICES = QueryRatio(measure="matrices", is_scaled=False, regime="wide")
_FLAT_LAW = attention.ratio_law(attention.noise() * exp(-(Symbol("s", positive=True) ** 2)))
_SMALL_WHERE = (
    "tokens nearly parallel; or gains of v and out that vanish while q and k stay at 1; or logits of small variance "
    "s^2 and T s^2 << d, for the ratio of squares is (n (s^2 + s^4) + s^2)/(n + s^2), n = d e^(s^2)/T, of many tokens: "
    "measured averages are within 3% of it from T = 256 at s^2 = 1/4 and 1/2 (d up to 4T), from T = 1024 at s^2 = 1 "
    "(d up to T); of fewer tokens it says too much (1.73 at T = d = 64 and s = 1, where a layer makes 1.1 to 1.2)"
)


# ---------------------------------------------------------------- S1-18: the cause


@dataclass(frozen=True, kw_only=True)
class Cause:
    """What makes q's gradient small beside v's: without it the ratio of squares is at least ten times as large.

    regime: as of ``QueryRatio``.
    """

    factor: str
    is_scaled: bool
    regime: str = "every"

    def covers(self, regime: str) -> bool:
        return self.regime in (regime, "every")

    @property
    def text(self) -> str:
        logits = "logits over sqrt(d)" if self.is_scaled else "logits not scaled"
        where = {"every": "any width and length", "long": "length >> width", "wide": "width >> length"}[self.regime]
        return f"{logits}, {where}: the gradients of q and k are small due to {self.factor}"


_TEN = 10


def _cause_exactly(s: Cause) -> list[bool | None]:
    """T >> d: linear weights make the same average of normal tokens as softmax; a common part stays in xbar alone."""
    return [
        attention.effect(s.factor, regime, is_scaled=s.is_scaled) >= _TEN
        for regime in ("long", "wide")
        if s.covers(regime)
    ]


def _cause_measured(s: Cause) -> Evidence:
    """At T = d where logits are over sqrt(d); at T = 8, d = 64 where not, for T >> e^d is out of reach."""
    layer, length, fewer = partial(attention.one_layer, width=64, is_scaled=s.is_scaled), 64, 16
    if not s.is_scaled:
        length, fewer = 8, 4
    base = layer(length).scalars
    others: dict[str, Callable[[], tuple[str, attention.Measured, bool]]] = {
        "the softmax": lambda: ("weights (1 + a - mean a)/T in its place", layer(length, weights="linear"), True),
        "parallel tokens": lambda: ("cosine 0.9", layer(length, cosine=float(attention.PARALLEL)), False),
        "many tokens": lambda: (f"{fewer} tokens", layer(fewer), True),
    }
    name, other, is_without = others[s.factor]()
    without, present = (other.scalars, base) if is_without else (base, other.scalars)
    holds = True if without.low >= _TEN * present.high else False if without.high < _TEN * present.low else None
    numbers = {f"softmax, {length} independent tokens": base.text, name: other.scalars.text}
    example = {
        "printed": f"small due to {s.factor}",
        "found": f"without it {without.text} of v's square, with it {present.text}",
        "command": _EXPLAIN,
    }
    return Evidence(
        route=Route.MEASURED,
        num_effective=1,
        verdict=outcome(holds),
        detail="a real layer by autograd, d = 64: (dL/dlambda_q)^2 over (dL/dlambda_v)^2 with the factor and without",
        numbers=numbers,
        counterexample=example if holds is False else None,
    )


_CAUSE = Cause(factor="the softmax", is_scaled=True)
_CAUSE_UNSCALED = Cause(factor="the softmax", is_scaled=False)
_CAUSES = (
    check(
        Route.PROOF,
        "T >> d: softmax and linear weights give one average, u, and one ratio, 1; a common part of the tokens divides "
        "it. d >> T, two tokens: s^2/(2 + s^2) with linear weights, beside which softmax's ratio goes as 1/s",
        _cause_exactly,
        is_direct=True,
    ),
    Check(route=Route.MEASURED, run=_cause_measured, is_direct=True),
)

_S1_18 = Claim(
    id="S1-18",
    source="su",
    locator=_LOCATOR,
    quote=r"Due to the presence of softmax, the gradients of $\lambda_q, \lambda_k$ themselves will be very small and "
    "will not significantly affect the final update amount.",
    summary="the gradients of lambda_q, lambda_k are very small due to softmax (read: squares at most 1/4 of v's)",
    parts=(
        Part(
            name="one layer at gain 1, logits over sqrt(d): the gradient of lambda_q",
            statement=_SCALED,
            checks=_ONE_LAYER,
            mutants=(
                Mutant(name="a hundredth", statement=_SCALED.with_(high=Rational(1, 100))),
                Mutant(name="three times v's", statement=_SCALED.with_(regime="long", low=Integer(3), high=oo)),
                Mutant(name="n = d/T", statement=_SCALED.with_(regime="many", low=_FLAT_LAW, high=_FLAT_LAW)),
            ),
            expected=Verdict.REFUTED,
            condition=_SMALL_WHERE,
            instead=Amendment(
                statement=_SCALED.with_(regime="many", low=_LAW, high=_LAW),
                text="of many tokens (n (s^2 + s^4) + s^2)/(n + s^2), n = d e^(s^2)/T: at s = 1 from 1, where T >> d "
                "and lambda_q's gradient is lambda_v's, to 2",
            ),
        ),
        Part(
            name="one layer at gain 1, the text's unscaled softmax: the gradient of lambda_q",
            statement=_UNSCALED,
            checks=_ONE_LAYER,
            mutants=(
                Mutant(name="long sequences, half", statement=_UNSCALED.with_(regime="long", high=Rational(1, 2))),
                Mutant(name="as large as v's", statement=_UNSCALED.with_(low=S.One, high=Integer(2))),
            ),
            hedge=Amendment(
                statement=_UNSCALED.with_(regime="wide"),
                text="the width large beside the length: the softmax picks one token, and the ratio of squares is "
                "O(d^(-1/2)) at fixed length (at fixed width it goes to 1)",
            ),
            expected=Verdict.CONDITIONAL,
        ),
        Part(
            name="one layer at gain 1, the text's unscaled softmax: W_q in the update amount",
            statement=_MATRICES,
            checks=_ONE_LAYER,
            mutants=(
                Mutant(name="at most v's", statement=_MATRICES.with_(high=S.One)),
                Mutant(name="a hundredth", statement=_MATRICES.with_(high=Rational(1, 100))),
            ),
            expected=Verdict.REFUTED,
            condition="logits over sqrt(d), and one of: logits of small variance, nearly parallel tokens, small gains "
            "of v and out",
            instead=Amendment(
                statement=_MATRICES.with_(low=S.One, high=oo),
                text="|dL/dW_q|^2 / |dL/dW_v|^2 = Theta(d^(1/2)): W_q takes most of the update, though lambda_q's own "
                "gradient is small, for |k|^2 is d times the variance of a coordinate",
            ),
        ),
        Part(
            name="stacks of each scheme, logits over sqrt(d): the share of q and k in the update",
            statement=DEEP,
            checks=SHARES_OF_SCALED,
            mutants=(
                Mutant(name="a constant share", statement=DEEP.with_(power=S.Zero, most=None)),
                Mutant(name="as L^(-2)", statement=DEEP.with_(power=Integer(-2), most=None)),
            ),
        ),
        Part(
            name="stacks of each scheme, the text's unscaled softmax: the share of q and k in the update",
            statement=DEEP_UNSCALED,
            checks=SHARES,
            mutants=(
                Mutant(name="a constant share", statement=DEEP_UNSCALED.with_(power=S.Zero)),
                Mutant(name="as L^(-2)", statement=DEEP_UNSCALED.with_(power=Integer(-2), most=None)),
            ),
            expected=Verdict.REFUTED,
            condition="gains of v and out that vanish with depth while q and k stay at 1: the share goes as the gain "
            "squared; or logits over sqrt(d). At gain 1, in Post-LN, Pre-LN and Sub-LN, q and k have about half of the "
            "squared gradients at every depth measured",
            instead=Amendment(
                statement=DeepShare(schemes=SHRINKING, is_scaled=False),
                text="in DeepNorm and the three rows it falls with depth, as the gain squared in the end",
            ),
        ),
        Part(
            name="that the softmax is the cause, the text's unscaled softmax",
            statement=_CAUSE_UNSCALED,
            checks=_CAUSES,
            mutants=(Mutant(name="length", statement=Cause(factor="many tokens", is_scaled=False, regime="wide")),),
            hedge=Amendment(
                statement=Cause(factor="the softmax", is_scaled=False, regime="wide"),
                text="the width large beside the length: logits of variance d make the softmax pick one token, and "
                "linear weights (1 + a - mean a)/T in its place leave lambda_q a gradient like lambda_v's (ratio of "
                "squares s^2/(2 + s^2) of two tokens, s^2 = d); at T >> e^d both ratios are 1",
            ),
            expected=Verdict.CONDITIONAL,
        ),
        Part(
            name="that the softmax is the cause, logits over sqrt(d)",
            statement=_CAUSE,
            checks=_CAUSES,
            mutants=(Mutant(name="length", statement=Cause(factor="many tokens", is_scaled=True)),),
            expected=Verdict.REFUTED,
            condition="logits not scaled and the width large beside the length, where the softmax picks one token",
            instead=Amendment(
                statement=Cause(factor="parallel tokens", is_scaled=True, regime="long"),
                text="where q's gradient is small in deep Post-LN and Pre-LN it is because the tokens have become "
                "parallel; in DeepNorm and the three rows it is because v and out have small gains",
            ),
        ),
    ),
    expected=Verdict.REFUTED,
    finding=Finding(
        "Su: the gradients of lambda_q, lambda_k are not small because of softmax: at logits over sqrt(d) "
        "they are as large as v's in one layer. In stacks at that scale their share does fall, since tokens "
        "become parallel or v and out are scaled down; with the unscaled softmax of the text it does not",
        rank=160,
    ),
)


# ---------------------------------------------------------------- S1-20: the average of tokens

_TENTH = Average(low=Rational(1, 100))
_BOUNDED = _TENTH.with_(min_cosine=S.Zero, max_tokens=100)


_BY_SOFTMAX = check(
    Route.MEASURED,
    "a real attention layer over 8, 48 and 304 orthogonal tokens, width 320",
    averages.by_softmax,
    is_direct=True,
)


_S1_20 = Claim(
    id="S1-20",
    source="su",
    locator=_LOCATOR,
    quote="Generally, the vectors before and after averaging will be of the same order of magnitude",
    summary="a softmax average of tokens has their order of magnitude (read: within a factor of ten)",
    parts=(
        Part(
            name="as printed",
            statement=_TENTH,
            checks=(*averages.average_checks("S1-20"), _BY_SOFTMAX),
            mutants=(
                Mutant(name="at least half", statement=_TENTH.with_(low=Rational(1, 2))),
                Mutant(name="at most half", statement=_BOUNDED.with_(high=Rational(1, 2))),
                Mutant(name="cosines over 1/2, 3/5", statement=Average(min_cosine=S.Half, low=Rational(3, 5))),
            ),
            hedge=Amendment(
                statement=_BOUNDED,
                text="|xbar|^2/|x|^2 = p^T C p, at least rho + (1 - rho)/n for cosines of at least rho and "
                "n = 1/sum p_j^2, with equality at equal cosines: of order 1 where rho > 0, or where rho = 0 and n is "
                "bounded (here by 100); 0 of opposite tokens, 1/T of T orthogonal ones with equal weights",
            ),
            expected=Verdict.CONDITIONAL,
        ),
    ),
    expected=Verdict.CONDITIONAL,
    finding=Finding(
        "Su: averaging tokens keeps their magnitude where they are correlated, or few of them carry the "
        "weight; T independent ones with equal weights lose a factor sqrt(T)",
        rank=260,
    ),
)

CLAIMS: tuple[Claim, ...] = (_S1_18, _S1_20)

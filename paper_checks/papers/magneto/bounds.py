"""The upper bounds of Magneto, (10) and (12), and Post-LN beside them, against the exact update of the networks."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace

from sympy import Expr, Indexed, S, Sum, exp, lambdify, log, pi

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import (
    Claim,
    Finding,
    Kind,
    Mutant,
    Part,
    Route,
    Sentence,
    Verdict,
    claim,
    number,
    sentence,
)
from depthlaw.paper_checks.claims.statements import Growth, Values
from depthlaw.paper_checks.papers import cited
from depthlaw.paper_checks.papers.magneto import theorems
from depthlaw.paper_checks.routes import algebra, recorded_stacks, second_meanfield
from depthlaw.paper_checks.routes.checks import GROWTH, Answers, check, growth_part, order_key, order_of
from depthlaw.paper_checks.routes.intervals import ends
from depthlaw.paper_checks.routes.recorded_stacks import recorded_too
from depthlaw.paper_checks.routes.signal_propagation.gelu_growth import (
    EQUAL_MOMENTS,
    GELU_RMS,
    KAPPA,
    KAPPA_POST,
    gelu_part,
)
from depthlaw.paper_checks.routes.signal_propagation.update_bounds import Inequality, inequality, v, w
from depthlaw.theory.symbols import L, l

_PRE = Inequality(scheme="pre-ln", bound=theorems.PRE_BOUND, is_equal=False)
_SUB = Inequality(scheme="sub-ln", bound=theorems.SUB_BOUND, is_equal=False)


def _gelu_order(name: str, statement: Growth, condition: str | Sentence) -> Part:
    """O(log L) at gains 1, which GELU breaks by a power of 0.072; the mutant is O(1), as O(L^(1/2)) would hold."""
    part = gelu_part(name, statement, instead=GELU_RMS, condition=condition)
    return replace(part, mutants=(Mutant(name="O(1)", statement=statement.with_(order=S.One)),))


@check(
    Route.MEASURED,
    f"recorded FFN stacks at gains 1, {recorded_stacks.WIDE} wide, the line in 1/d through both: the interval of the "
    "mean update at infinite width",
)
def _stacks_below(statement: Inequality) -> Answers:
    """The bound at gains 1, at every recorded length."""
    if (statement.activation, statement.norm_kind, statement.has_head) != ("relu", "layernorm", False):
        raise LookupError(f"not in the record: {statement.text}")
    at_ones = statement.bound.replace(lambda e: isinstance(e, Indexed), lambda _: S.One)
    bound, answers, numbers = lambdify(L, at_ones, modules="math"), [], {}
    for length, mean in recorded_stacks.at_infinite_width(statement.scheme, "sgd").items():
        value = float(bound(length))
        answers.append(ends(mean).is_below(value))
        numbers[f"L = {length}"] = f"{recorded_stacks.interval_text(mean)} against {recorded_stacks.short(value)}"
    return Answers(holds=answers, num_effective=len(answers), numbers=numbers)


def _late(statement: Inequality) -> tuple[Mutant, ...]:
    return (Mutant(name="k from 3", statement=statement.with_(bound=theorems.from_three(statement.bound))),)


def _with_head(name: str, statement: Inequality) -> Part:
    """Equal gains, and theta as (6) has it."""
    return inequality(
        f"with W_vocab, as theta is defined there: equal gains, {name}",
        statement.with_(is_equal=True, has_head=True),
        expected=Verdict.REFUTED,
        condition="theta = the branch matrices alone; or gains 1. W_vocab adds eta d at any gains and any depth, and "
        "the bound falls with the square of the gain: at v = w = 2 and two sublayers it is eta d, as much as W_vocab "
        "adds by itself",
        instead=(statement.bound + 1, "W_vocab's own gradient is x^e, and |x^e|^2 = d"),
    )


def _uneven(name: str, statement: Inequality, branch: str, input_second: int, terms: tuple[Expr, Expr]) -> Part:
    """Any gains. The condition is exact at given branch variances: v_1^2 + w_1^2 may be as large as one likes."""
    weight, added = terms
    return inequality(
        name,
        statement,
        expected=Verdict.REFUTED,
        condition=f"N = 1; or equal gains; in general, with s_l = {branch} and S_L their sum, it holds at every ratio "
        f"v_l/w_l if and only if S_L/({input_second} + s_1) <= 1 + sum_k s_k/S_(k-1)",
        instead=(
            Sum(weight / theorems.total(added, l), (l, 1, L)),
            "for the product over k > l of 1 + s_k/S_(k-1), which telescopes to S_L/S_l, the source puts 1 + sum_k "
            "s_k/S_(k-1), which is as large only while it is small",
        ),
        more=_late,
    )


def _sub_ln(gains: str, activation: str, norm: str, network: str = "", *, is_measured: bool = True) -> Part:
    """(12) where Sub-LN exceeds it. network: who exceeds it at gains 1; left out where uneven gains do."""
    name, is_equal = f"{gains} gains, {activation}, {norm}", gains == "equal"
    condition: str | Sentence = KAPPA + "; and then as with ReLU and RMSNorm"
    if is_equal:
        text = f"{KAPPA}; at gains 1 {network} exceeds (12) from {{first}} sublayers on"
        condition = sentence(text, first=number(name, "num_sublayers"))
    statement = _SUB.with_(is_equal=is_equal, activation=activation, norm_kind=norm.lower())
    return inequality(name, statement, expected=Verdict.REFUTED, condition=condition, is_measured=is_measured)


def _first_beyond(scheme: str, bound: Expr) -> int:
    """The least number of sublayers at which the update with GELU at gains 1 exceeds a bound, by bisection."""
    value = lambdify(L, algebra.normal_form(bound), modules="mpmath")

    def is_beyond(length: int) -> bool:
        return math.exp(second_meanfield.log_update(scheme, length, "gelu")) > value(length)

    high = 2
    while not is_beyond(high):
        high *= 2
    return bisect_left(range(high), True, lo=high // 2, key=is_beyond)


_S2_08 = Claim(
    id="S2-08",
    kind=Kind.RESULT,
    locator="Section 3.2, Theorem 3.1, (10)",
    quote="Under SGD update, Fpre satisfies:\nFpre ηd(PL\nl=1 v2\nl+w2\nl\nPL\nn=1 v2\nnw2\nn",
    summary="the update of Pre-LN is at most (10), for any gains",
    uses=("S2-05", "S2-06", "S2-07", "S2-09"),
    parts=(
        recorded_too(
            inequality(
                "equal gains, relu",
                _PRE.with_(is_equal=True),
                more=lambda s: (*_late(s), Mutant(name="gelu", statement=s.with_(activation="gelu"))),
            ),
            _stacks_below,
        ),
        _gelu_order(
            "equal gains 1, gelu, where (10) is O(log L)",
            Growth(scheme="pre-ln", activation="gelu", order=log(L), is_upper=True),
            sentence(
                EQUAL_MOMENTS + "; GELU at gain 1 up to {most:,} sublayers (beyond them (10) itself is exceeded)",
                most=lambda: _first_beyond("pre-ln", theorems.PRE_UNIFORM["bracket"]) - 1,
            ),
        ),
        _uneven("uneven gains", _PRE, "v_l^2 w_l^2", 2, theorems.PRE_TERMS),
        _with_head("relu", _PRE),
    ),
    finding=Finding(
        "Magneto's Theorem 3.1 (Pre-LN) fails at uneven gains: v_l = w_l = {gains} gives {update:.2g} against a bound "
        "of {bound:.2g}. Gains that grow faster break it by any factor; at equal gains with ReLU it holds",
        rank=50,
        numbers={
            "gains": number("uneven gains", "v"),
            "update": number("uneven gains", "update"),
            "bound": number("uneven gains", "bound"),
        },
    ),
)

_S2_13 = Claim(
    id="S2-13",
    kind=Kind.RESULT,
    locator="Section 3.2, Theorem 3.2, (12)",
    quote="Under SGD update, Fsub satisfies:\nFsub ηd(PL\nl=1(1 + v2\nl\nw2\nl\n)",
    summary="the update of Sub-LN, x + W2 LN(phi(W1 LN(x))), is at most (12), for any gains",
    uses=("S2-06", "S2-07", "S2-14"),
    parts=(
        recorded_too(_sub_ln("equal", "relu", "LayerNorm", "ReLU behind LayerNorm"), _stacks_below),
        growth_part(
            "equal gains 1, relu, LayerNorm, where (12) is O(log L)",
            Growth(scheme="sub-ln", order=log(L), is_upper=True),
            expected=Verdict.REFUTED,
            instead=(L ** (1 / (pi - 1)), "Theta(L^(1/(pi - 1))): no constant saves (12) either"),
            wrong=S.One,
            condition=KAPPA,
        ),
        _sub_ln("equal", "gelu", "LayerNorm", "GELU behind LayerNorm"),
        inequality("equal gains, relu, RMSNorm", _SUB.with_(is_equal=True, norm_kind="rmsnorm"), more=_late),
        _sub_ln("equal", "gelu", "RMSNorm", "GELU behind RMSNorm", is_measured=False),
        _gelu_order(
            "equal gains 1, gelu, RMSNorm, where (12) is O(log L)",
            Growth(scheme="sub-ln", activation="gelu", norm_kind="rmsnorm", order=log(L), is_upper=True),
            KAPPA,
        ),
        _sub_ln("uneven", "relu", "LayerNorm"),
        _uneven("uneven gains, relu, RMSNorm", _SUB.with_(norm_kind="rmsnorm"), "v_l^2", 1, theorems.SUB_TERMS),
        _sub_ln("uneven", "gelu", "LayerNorm"),
        _sub_ln("uneven", "gelu", "RMSNorm"),
        _with_head("relu, RMSNorm", _SUB.with_(norm_kind="rmsnorm")),
    ),
    finding=Finding(
        "Magneto's Theorem 3.2 (Sub-LN): at gains 1, ReLU and LayerNorm exceed the bound from {first} "
        "sublayers on; at uneven gains it fails for every activation and norm",
        rank=60,
        numbers={"first": number("equal gains, relu, LayerNorm", "num_sublayers")},
    ),
)

# ---------------------------------------------------------------- S2-11: Post-LN

_POST = Inequality(scheme="post-ln", bound=Sum(v[l] ** 2 + w[l] ** 2, (l, 1, L)), is_equal=False)
_RATIO = Values.of(ratio=log(L) / L)


@check(Route.MEANFIELD, "the leading orders, one over the other")
def _ratio_derived(s: Values) -> list[bool | None]:
    from depthlaw.theory.meanfield.growth import update_order
    from depthlaw.theory.meanfield.setting import Setting

    pre, post = (order_key(update_order(Setting.of(name, "sgd", "relu"))) for name in ("pre-ln", "post-ln"))
    printed = order_key(order_of(s["ratio"]))
    return [all(a - b == c for a, b, c in zip(pre, post, printed, strict=True))]


@check(Route.NUMERIC, "the two updates added up, at 10^2, 10^4, 10^6")
def _ratio_summed(s: Values) -> list[bool | None]:
    logs = [
        second_meanfield.log_update("pre-ln", length) - second_meanfield.log_update("post-ln", length)
        for length in second_meanfield.LENGTHS
    ]
    printed = [math.log(float(s["ratio"].subs(L, length))) for length in second_meanfield.LENGTHS]
    return [algebra.settles([a - b for a, b in zip(logs, printed, strict=True)])]


_S2_11 = Claim(
    id="S2-11",
    kind=Kind.RESULT,
    locator="Section 3.2, after Theorem 3.1",
    quote="Wang et al. (2022a) proves that under\nSGD update, the model update of vanilla Post-LN\nFpost\nis\nO(PL\n"
    "l=1 v2\nl+w2\nl)\n.\nFpre\nis much\nsmaller than\nFpost\nwith the same model depth\nL",
    summary="the update of Post-LN is O(sum v_l^2 + w_l^2), and that of Pre-LN much smaller at the same L",
    parts=(
        recorded_too(
            inequality(
                "Post-LN, any gains, relu (as in Figure 1)",
                _POST,
                more=lambda s: (
                    Mutant(name="a quarter of it", statement=s.with_(bound=s.bound / 4)),
                    Mutant(name="gelu", statement=s.with_(activation="gelu")),
                ),
            ),
            _stacks_below,
        ),
        growth_part(
            "Post-LN, gelu, at gains 1, where the sum is O(L)",
            Growth(scheme="post-ln", activation="gelu", order=L, is_upper=True),
            expected=Verdict.REFUTED,
            instead=(
                exp(L * log(KAPPA_POST)),
                sentence(
                    "Theta(kappa^L), kappa = (1 + E phi'^2)/(1 + E phi^2) = {kappa:.4f}: at gain 1 GELU has "
                    "E phi'^2 > E phi^2, so that every sublayer multiplies the gradient; from {first} sublayers on the "
                    "update exceeds eta d times the sum itself",
                    kappa=KAPPA_POST,
                    first=lambda: _first_beyond("post-ln", 2 * L),
                ),
            ),
            condition=EQUAL_MOMENTS,
        ),
        Part(
            name="Pre-LN over Post-LN at gains 1",
            statement=_RATIO,
            checks=(_ratio_derived, _ratio_summed),
            mutants=changed(_RATIO, ratio=[1 / L, 1]),
        ),
    ),
    finding=Finding(
        "Post-LN's update is O(sum v^2 + w^2) with ReLU; with GELU at gains 1 it grows as exp({rate:.2g} L)",
        rank=100,
        numbers={"rate": log(KAPPA_POST)},
    ),
)

# ---------------------------------------------------------------- S2-12: what Admin says

_VERIFIED = Growth(scheme="pre-ln", order=log(L), is_upper=True)


@check(
    Route.CITATION,
    "Admin's Corollary 1, as LI-01 states it, and S2-10, which is what it is to verify: one order. "
    "Admin's is Var[F(x_0, W) - F(x_0, W*)] over a given change of the weights, not a step of SGD",
)
def _as_admin(s: Growth) -> list[bool | None]:
    (corollary,) = (claim for claim in cited.CLAIMS if claim.id == "LI-01")
    printed = [part.statement["order"] for part in corollary.parts if isinstance(part.statement, Values)]
    return [algebra.equal(s.order, order) for order in (*printed, theorems.PRE_UNIFORM["order"])]


_S2_12 = claim(
    "S2-12",
    kind=Kind.REMARK,
    locator="Section 3.2, after Theorem 3.1",
    quote="It is also verified by Liu et al. (2020).",
    summary="Admin (Corollary 1) has O(log L) for Pre-LN, too",
    uses=("LI-01", "S2-10"),
    statement=_VERIFIED,
    checks=(_as_admin, GROWTH[0]),
    mutants=changed(_VERIFIED, order=S.One),
)

CLAIMS: tuple[Claim, ...] = (_S2_08, _S2_11, _S2_12, _S2_13)

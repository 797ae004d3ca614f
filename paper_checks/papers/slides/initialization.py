"""The slides' "Magneto: Initialization": the paper's theorems again, the table of orders, the goal and gamma."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import mpmath
from sympy import Abs, Add, Expr, Indexed, Poly, Rational, S, Sum, cancel, exp, fraction, lambdify, log, pi, sqrt

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import (
    Amendment,
    Claim,
    Finding,
    Kind,
    Mutant,
    Part,
    Route,
    Verdict,
    claim,
    number,
    sentence,
)
from depthlaw.paper_checks.claims.statements import Growth, Sublayer, Values
from depthlaw.paper_checks.papers.magneto import explosion, goal, initialization, theorems
from depthlaw.paper_checks.papers.magneto.goal import true_update
from depthlaw.paper_checks.papers.slides.experiments import smaller_is_stabler
from depthlaw.paper_checks.routes import algebra, kernel, second_meanfield
from depthlaw.paper_checks.routes.checks import Answers, check, growth_part, order_key, order_of
from depthlaw.paper_checks.routes.kernel import kernel_too
from depthlaw.paper_checks.routes.recorded_stacks import recorded_too
from depthlaw.paper_checks.routes.signal_propagation import gelu_growth
from depthlaw.paper_checks.routes.signal_propagation.update_bounds import n, v, w
from depthlaw.theory.symbols import L, N, d, gain_in, gain_out, k, l, scratch

_THEOREMS = "Magneto: Initialization, Theorem 1 and Theorem 2"
_GOAL = "Magneto: Initialization, GOAL and Derivation"

# ---------------------------------------------------------------- S3-04: what the model update is

_CLASSES = 4
_BEFORE, _AFTER, _LABEL = (
    [scratch(name.format(i), real=True) for i in range(_CLASSES)] for name in ("f{}", "f{}_new", "gamma{}")
)
_MOVED = [after - before for before, after in zip(_BEFORE, _AFTER, strict=True)]
_READ = Add(*(label * moved for label, moved in zip(_LABEL, _MOVED, strict=True)))
_UPDATE = Values.of(update=sqrt(_READ**2))
"""||gamma^T (F(x, theta*) - F(x, theta))||, four classes."""


def _one_hot(place: int) -> dict[Expr, Expr]:
    return {letter: S(int(i == place)) for i, letter in enumerate(_LABEL)}


@check(
    Route.PROOF,
    "at every one-hot gamma it is |f_y(theta*) - f_y(theta)|, four classes; that gamma, 'the label of "
    "x', is one-hot stands in the paper alone, and is another gamma than the gain",
)
def _is_label_logit(s: Values) -> list[bool | None]:
    return [s["update"].subs(_one_hot(place)) - Abs(_MOVED[place]) == S.Zero for place in range(_CLASSES)]


_S3_04 = Claim(
    id="S3-04",
    kind=Kind.STEP,
    locator="Magneto: Initialization, Model Update",
    quote=r"**Model Update:**  $\Delta F = \|\gamma^T (F(x, \theta^*) - F(x, \theta))\|$",
    summary="the model update is |gamma^T (F(x, theta*) - F(x, theta))|; the smaller, the more stable the optimisation",
    parts=(
        Part(
            name="the definition is the paper's: the change of the label's logit",
            statement=_UPDATE,
            checks=(_is_label_logit,),
            mutants=(
                Mutant(name="the change of all logits", statement=Values.of(update=sqrt(Add(*(x**2 for x in _MOVED))))),
                Mutant(name="with its sign", statement=Values.of(update=_READ)),
            ),
        ),
        smaller_is_stabler("smaller updates make optimisation more stable", "trains"),
    ),
)

# ---------------------------------------------------------------- S3-05, S3-06: the theorems

_PRE_TOTAL, _PRE_BELOW = (Sum(v[n] ** 2 * w[n] ** 2, (n, 1, last)) for last in (L, k - 1))
_SLIDE_PRE: Expr = Sum(v[l] ** 2 + w[l] ** 2, (l, 1, L)) / _PRE_TOTAL + Sum(
    (v[l] ** 2 + w[l] ** 2) / _PRE_TOTAL * (v[k] ** 2 * w[k] ** 2 / _PRE_BELOW), (k, 2, L), (l, 1, L)
)
_SUB_TOTAL, _SUB_BELOW = (Sum(v[n] ** 2, (n, 1, last)) for last in (L, k - 1))
_SLIDE_SUB: Expr = Sum(1 + v[l] ** 2 / w[l] ** 2, (l, 1, L)) / _SUB_TOTAL + Sum(
    (1 + v[l] ** 2 / w[l] ** 2) / _SUB_TOTAL * (v[k] ** 2 / _SUB_BELOW), (k, 2, L), (l, 1, L)
)
_PRE, _SUB = Values.of(bound=_SLIDE_PRE), Values.of(bound=_SLIDE_SUB)

_S3_05 = claim(
    "S3-05",
    kind=Kind.STEP,
    locator=f"{_THEOREMS}; L is not defined there",
    quote=r"$$\Delta F^{pre} \leq \eta d \left( \frac{\sum_{l=1}^L v_l^2 + w_l^2}{\sum_{n=1}^L v_n^2 w_n^2} + "
    r"\sum_{l=1}^L \sum_{k=2}^L \frac{v_l^2 + w_l^2}{\sum_{n=1}^L v_n^2 w_n^2} \frac{v_k^2 w_k^2}"
    r"{\sum_{n=1}^{k-1} v_n^2 w_n^2} \right)$$",
    summary="Theorem 1's formula is the paper's (10)",
    uses=("S2-09",),
    statement=_PRE,
    checks=(theorems.equals_derived("pre-ln"), theorems.same_as(theorems.PRE_BOUND, "the paper's (10)")),
    mutants=(Mutant(name="k from 3", statement=_PRE.with_(bound=theorems.from_three(_SLIDE_PRE))),),
    cells=(theorems.bound_cell("pre-ln", _SLIDE_PRE, "Theorem 1"),),
)

_PAPER = Sublayer(("LN", "W1", "phi", "LN", "W2"))
_SLIDE = Sublayer(("LN", "W1", "LN", "W2"))


@check(Route.MEANFIELD, "the growth of its update against that of the paper's, relu")
def _same_law(s: Sublayer) -> list[bool | None]:
    from depthlaw.theory.meanfield.growth import update_order
    from depthlaw.theory.meanfield.setting import Setting

    names = ["relu" if "phi" in steps else "identity" for steps in (s.steps, _PAPER.steps)]
    slide, paper = (order_key(update_order(Setting.of("sub-ln", "sgd", name))) for name in names)
    return [slide == paper]


_S3_06 = Claim(
    id="S3-06",
    kind=Kind.STEP,
    locator=_THEOREMS,
    quote=r"**Theorem 2:** Given an  $N$ -layer Magneto  $F(x, \theta)$ , the  $l$ -th sublayer is formulated as  "
    r"$x^l = x^{l-1} + W^{l,2} LN(W^{l,1} LN(x^{l-1}))$ .",
    summary="Theorem 2's formula is the paper's (12); its sublayer lacks the activation",
    uses=("S2-14",),
    parts=(
        Part(
            name="the formula",
            statement=_SUB,
            checks=(theorems.equals_derived("sub-ln"), theorems.same_as(theorems.SUB_BOUND, "the paper's (12)")),
            mutants=(Mutant(name="k from 3", statement=_SUB.with_(bound=theorems.from_three(_SLIDE_SUB))),),
        ),
        Part(
            name="the sublayer",
            statement=_SLIDE,
            checks=(
                check(
                    Route.CITATION,
                    "step by step against the paper's (11), x + W2 LN(phi(W1 LN(x)))",
                    lambda s: [s.steps == _PAPER.steps],
                ),
                _same_law,
            ),
            mutants=(Mutant(name="no inner norm", statement=Sublayer(("LN", "W1", "W2"))),),
            misprint=Amendment(
                statement=_PAPER,
                text="x^l = x^{l-1} + W^{l,2} LN(phi(W^{l,1} LN(x^{l-1}))): the activation is missing, and it matters "
                "(S3-10)",
                grounds="the paper's (11) and Theorem 3.2; Theorem 1 beside it has phi",
            ),
            expected=Verdict.MISPRINT,
        ),
    ),
    cells=(theorems.bound_cell("sub-ln", _SLIDE_SUB, "Theorem 2"),),
    finding=Finding(
        "Magneto's slides leave the activation out of Theorem 2's sublayer, and it matters (S3-10)", rank=230
    ),
)

# ---------------------------------------------------------------- S3-07: the slide's variances

_VARIANCES = Values.of(W2=gain_out**2 / d, W1=gain_in**2 / d)
_INDEXED = Values.of(W2=v[l] ** 2 / d, W1=w[l] ** 2 / d)


@check(Route.CITATION, "against the paper's (9), v_l^2/d, and the same of w_l")
def _as_in_paper(s: Values) -> list[bool | None]:
    same, printed = initialization.same, initialization.NINE["variance"]
    return [same(s["W2"], printed), same(s["W1"], printed.xreplace({v: w}))]


@check(Route.PROOF, "the letters they define against those that Theorems 1 and 2 sum over, L = 4")
def _letters_of_theorems(s: Values) -> list[bool | None]:
    given = {(d * s[name]).subs(l, index) for name in ("W1", "W2") for index in range(1, 5)}
    letters = [bound.subs(L, 4).doit().atoms(Indexed) for bound in (theorems.PRE_BOUND, theorems.SUB_BOUND)]
    return [given == {letter**2 for letter in of_bound} for of_bound in letters]


_S3_07 = claim(
    "S3-07",
    kind=Kind.STEP,
    locator="Magneto: Initialization, below Theorem 2",
    quote=r"$W_{ij}^{l,2} \sim N(0, \frac{v^2}{d})$  and  $W_{ij}^{l,1} \sim N(0, \frac{w^2}{d})$",
    summary="W^{l,2}_ij ~ N(0, v^2/d), W^{l,1}_ij ~ N(0, w^2/d)",
    uses=("S2-06",),
    statement=_VARIANCES,
    checks=(_as_in_paper, _letters_of_theorems),
    mutants=(
        Mutant(name="v and w swapped", statement=Values.of(W2=w[l] ** 2 / d, W1=v[l] / d)),
        Mutant(name="the next sublayer's", statement=_INDEXED.with_(W2=v[l + 1] ** 2 / d)),
    ),
    misprint=Amendment(
        statement=_INDEXED,
        text="W^{l,2}_ij ~ N(0, v_l^2/d), W^{l,1}_ij ~ N(0, w_l^2/d): the index l is lost",
        grounds="the paper's (9); the theorems above it sum over v_l and w_l",
    ),
    expected=Verdict.MISPRINT,
    finding=Finding("Magneto's slides lose the index l of the weights' scales", rank=240),
)

# ---------------------------------------------------------------- S3-08, S3-09: where a sublayer explodes

_S3_08 = replace(
    explosion.S2_16,
    id="S3-08",
    source="",
    locator="Magneto: Initialization, after Theorem 2",
    quote="When the activation of the  $l$ -th sublayer explodes:  $w_l \\gg w_i, i \\neq l$",
)
_S3_09 = replace(
    explosion.S2_17,
    id="S3-09",
    source="",
    locator="Magneto: Initialization, after the comparison of one term",
    quote="Therefore, Sub-LN has smaller model update than Pre-LN.",
    summary="the update of Sub-LN is smaller than that of Pre-LN",
    uses=("S3-08",),
    finding=None,
)

# ---------------------------------------------------------------- S3-10: the table of orders

_ORDERS = Values.of(post=N, pre=log(N), sub=log(N))
_SCHEMES = {"post": "post-ln", "pre": "pre-ln", "sub": "sub-ln"}


@check(Route.PROOF, "leading orders of the derived bounds")
def _orders_derived(s: Values) -> list[bool | None]:
    from depthlaw.theory.bounds.update import derive_bound

    return [order_key(derive_bound(_SCHEMES[name]).order) == order_key(order_of(printed, N)) for name, printed in s]


@check(Route.NUMERIC, "2L and 2 + 2 H_{L-1} over them")
def _orders_summed(s: Values) -> list[bool | None]:
    """The bounds of A5/A10, (10) and (12) at equal gains 1."""

    def settles(name: str, printed: Expr) -> bool:
        ratios = []
        for length in second_meanfield.LENGTHS:
            bracket = 2 * length if name == "post" else theorems.bracket_value(length, mpmath.mpf(1))
            ratios.append(math.log(bracket / float(printed.subs(N, Rational(length, 2)))))
        return algebra.settles(ratios)

    return [settles(name, printed) for name, printed in s]


_KAPPA_SUB = gelu_growth.GELU_SLOPE / (gelu_growth.GELU_SECOND - 1 / (4 * pi))
_S3_10 = Claim(
    id="S3-10",
    kind=Kind.RESULT,
    locator="Magneto: Initialization, table of normalizations",
    quote="Post-LayerNorm\t$\\Theta(N)$\t×\nPre-LayerNorm\t$\\Theta(\\log N)$\t✓\n"
    "<b>Sub-LayerNorm</b>\t$\\Theta(\\log N)$\t×",
    summary="bounds of the model update: Post Theta(N), Pre Theta(log N), Sub Theta(log N)",
    uses=("S2-10", "S3-13", "DN-09"),
    parts=(
        Part(
            name="the printed bounds, at gains 1",
            statement=_ORDERS,
            checks=(_orders_derived, _orders_summed),
            mutants=changed(_ORDERS, post=log(N), sub=N, pre=log(N) ** 2),
        ),
        true_update(
            "Sub, relu, LayerNorm (the paper's sublayer)",
            "sub-ln",
            log(L),
            instead=(
                L ** (1 / (pi - 1)),
                "Theta(L^(1/(pi - 1))): LayerNorm subtracts ReLU's mean, so it divides by Var phi = (1 - 1/pi) "
                "E phi^2, and the gradient of a branch is kappa = pi/(pi - 1) times what would telescope",
            ),
            condition=gelu_growth.KAPPA,
        ),
        true_update(
            "Sub, gelu, LayerNorm",
            "sub-ln",
            log(L),
            "gelu",
            instead=(
                L ** (_KAPPA_SUB - 1),
                f"Theta(L^(kappa - 1)), kappa = E phi'^2 / Var phi = {float(_KAPPA_SUB):.2f} of GELU at w = 1",
            ),
            condition=gelu_growth.KAPPA,
        ),
        kernel_too(true_update("Sub, relu, RMSNorm", "sub-ln", log(L), "relu", "rmsnorm")),
        gelu_growth.gelu_part(
            "the true update, Sub, gelu, RMSNorm",
            Growth(scheme="sub-ln", activation="gelu", norm_kind="rmsnorm", order=log(L)),
            instead=gelu_growth.GELU_RMS,
            condition=gelu_growth.KAPPA,
        ),
        true_update("Sub without phi (the slide's sublayer)", "sub-ln", log(L), "identity"),
        kernel_too(recorded_too(true_update("Post, relu", "post-ln", L, wrong=log(L)))),
        true_update(
            "Post, gelu",
            "post-ln",
            L,
            "gelu",
            instead=(
                exp(L * log(gelu_growth.KAPPA_POST)),
                "Theta(kappa^L): at gain 1 E phi'^2 > E phi^2, so each sublayer multiplies the gradient by "
                f"kappa = (1 + E phi'^2)/(1 + E phi^2) = {float(gelu_growth.KAPPA_POST):.2f}",
            ),
            condition=gelu_growth.EQUAL_MOMENTS,
        ),
        kernel_too(true_update("Pre, relu", "pre-ln", log(L))),
        gelu_growth.gelu_part(
            "the true update, Pre, gelu",
            Growth(scheme="pre-ln", activation="gelu", order=log(L)),
            instead=gelu_growth.GELU_RMS,
            condition=gelu_growth.EQUAL_MOMENTS,
        ),
    ),
    cells=tuple(theorems.order_cell(_SCHEMES[name], str(order)) for name, order in _ORDERS),
    finding=Finding(
        "With ReLU and a real LayerNorm, Sub-LN's update grows as L^{relu:.2g}, not as log L. LayerNorm subtracts "
        "ReLU's mean and so divides by too little; with RMSNorm it is log L. With GELU Post-LN explodes exponentially, "
        "and Pre-LN grows as L^{gelu:.1g}",
        rank=10,
        numbers={
            "relu": number("the true update, Sub, relu, LayerNorm", "power_value"),
            "gelu": number("the true update, Pre, gelu", "power_value"),
        },
    ),
)

# ---------------------------------------------------------------- S3-11: the signal

_POWERS = Values.of(pre=2, post=0, sub=0)
"""Of w_l in the second moment of the stream behind sublayer l, as w_l goes to infinity: 2 explodes, 0 does not."""


@check(Route.MEANFIELD, "degree in w_l of the stream's second moment, from the form of a sublayer")
def _power_by_theory(s: Values) -> list[bool | None]:
    q, out = scratch("q", positive=True), []
    for name, printed in s:
        second = gain_in**2 / 2 * (q if name == "post" else 1)  # Post-LN has no norm before W1
        moments = (second, second, S.Zero, S.Zero, S.Half, S.Zero)
        sublayer = initialization.through_sublayer(
            name, moments, "rmsnorm", stream=q, gain_in=gain_in, gain_out=gain_out
        )
        above, below = (Poly(part, gain_in).degree() for part in fraction(cancel(S(sublayer.stream))))
        out.append(above - below == printed)
    return out


_ONES = [Fraction(1)] * 6


def _degree(scheme: str, exploding: str) -> float:
    """Of the stream's second moment behind sublayer 3 of 6 in that sublayer's v or w, from 10^3 to 10^6; gains 1."""
    seconds = []
    for size in (10**3, 10**6):
        gains = {"v": _ONES, "w": _ONES, exploding: [Fraction(size if i == 2 else 1) for i in range(6)]}
        seconds.append(second_meanfield.streams(scheme, gains["v"], gains["w"], norm_kind="rmsnorm")[3])
    return math.log10(seconds[1] / seconds[0]) / 3


@check(Route.NUMERIC, "sublayer 3 of 6, w_3 from 10^3 to 10^6, exactly; w_l alone grows")
def _power_by_sums(s: Values) -> Answers:
    of_sub, of_pre = (round(_degree(name, "v")) for name in ("sub-ln", "pre-ln"))
    at_one = [second_meanfield.streams(name, _ONES, _ONES, norm_kind="rmsnorm")[6] for name in ("sub-ln", "pre-ln")]
    return Answers(
        holds=[round(_degree(_SCHEMES[name], "w"), 3) == int(printed) for name, printed in s],
        steps=(
            f"v_l -> c v_l instead: the stream's second moment is of degree {of_sub} in c with Sub-LN, and "
            f"{of_pre} with Pre-LN",
            f"at gains 1 Sub-LN's is 1 + L, Pre-LN's 1 + L/2: {at_one[0]} and {at_one[1]} at L = 6",
        ),
    )


def signal(name: str, s: Values) -> Part:
    return Part(
        name=name,
        statement=s,
        checks=(_power_by_theory, _power_by_sums),
        mutants=changed(s, **{norm: 2 - power for norm, power in s}),
    )


_S3_11 = Claim(
    id="S3-11",
    kind=Kind.RESULT,
    locator="Magneto: Initialization, table of normalizations",
    quote="Normalization\tThe bound of model update\tActivation explosion\nPost-LayerNorm\t$\\Theta(N)$\t×\n"
    "Pre-LayerNorm\t$\\Theta(\\log N)$\t✓",
    summary="activation explosion: Pre-LN yes, Post-LN no, Sub-LN no",
    parts=(signal("the stream behind sublayer l where w_l grows (the slide's own case, w_l >> w_i)", _POWERS),),
)

# ---------------------------------------------------------------- S3-12: the goal

_REAL_NORMS = goal.part_of_real(
    "in a real Transformer: the gains of the norms, which a default model trains, too (relu, LayerNorm)",
    replace(goal.FLAT_REAL, role="norm_gain"),
    expected=Verdict.REFUTED,
    condition=sentence(
        "they are frozen, or their learning rate falls with depth as L^(-1/3): their power of L is {all:.2f} over all "
        "depths, {deep:.2f} over the deeper half",
        all=number("in a real Transformer: the gains of the norms", "power of L"),
        deep=number("in a real Transformer: the gains of the norms", "deeper half, power of L"),
    ),
)

_S3_12 = replace(
    goal.S2_20,
    id="S3-12",
    source="",
    locator="Magneto: Initialization, GOAL",
    quote=r"- **GOAL:**  $F(x, \theta)$  is updated by  $\Theta(\eta)$  per SGD step after initialization as  "
    r"$\eta \rightarrow 0$ . That is  $\Delta F^{sub} = \Theta(\eta d)$",
    uses=("S3-13",),
    parts=(*goal.S2_20.parts, goal.REAL_MODEL, goal.REAL_RMS, _REAL_NORMS),
    finding=Finding(
        "Magneto's gain sqrt(log L) keeps the update from growing with ReLU and RMSNorm, but not with ReLU and "
        "LayerNorm, nor with GELU. So the guarantee of stable training that rests on it is not established; whether "
        "training is stable is open. In a real Transformer with softmax "
        "attention the update of the matrices nearly doubles from {first} layers to {last:,}. That of the norm gains, "
        "which a default model trains too, grows as L^{power:.2g} over these depths, and as L^{deep:.2g} at their "
        "deep end",
        rank=20,
        shared_with=("S3-14", "S2-20", "S2-24"),
        numbers={
            "first": kernel.FIRST,
            "last": kernel.LAST,
            "power": number("in a real Transformer: the gains of the norms", "power of L"),
            "deep": number("in a real Transformer: the gains of the norms", kernel.BY_ROLE, "norm_gain"),
        },
    ),
)

_S3_13 = replace(
    theorems.S2_21,
    id="S3-13",
    source="",
    locator=_GOAL,
    quote=r"**Derivation:** The term related to the model depth can be bounded as:",
    summary="at v = w = gamma the bracket is O(log L / gamma^2)",
    uses=("S3-06",),
)

# ---------------------------------------------------------------- S3-14: gamma = sqrt(log L)

_GAMMA = Values.of(gamma=sqrt(log(L)))


@check(Route.PROOF, "leading order of (2/gamma^2)(1 + H_{L-1}) is a number, 2")
def _bounded_derived(s: Values) -> list[bool | None]:
    return [goal.bracket_is_bounded(s["gamma"])]


@check(Route.NUMERIC, "(2/gamma^2)(1 + H_{L-1}) settles; from 5.77 at L = 2 it only falls, to L = 300")
def _bounded_summed(s: Values) -> list[bool | None]:
    square = lambdify(L, s["gamma"] ** 2, modules="mpmath")
    deep = [mpmath.log(theorems.bracket_value(length, square(length))) for length in second_meanfield.LENGTHS]
    shallow = [theorems.bracket_value(length, square(length)) for length in range(2, 300)]
    return [algebra.settles(deep), *(bool(late <= early) for early, late in pairwise(shallow))]


_S3_14 = Claim(
    id="S3-14",
    kind=Kind.RESULT,
    locator=_GOAL,
    quote=r"We use  $v = w = \gamma = \sqrt{\log L}$  to bound the model update independent of depth.",
    summary="v = w = gamma = sqrt(log L) bounds the model update independent of depth",
    uses=("S3-13",),
    parts=(
        Part(
            name="the printed bound, L >= 2",
            statement=_GAMMA,
            checks=(_bounded_derived, _bounded_summed),
            mutants=changed(_GAMMA, gamma=[log(L) ** Rational(1, 4), 1]),
        ),
        *goal.AT_GAMMA,
        growth_part(
            "the true update without phi (the slide's sublayer)",
            Growth(scheme="sub-ln-gamma", activation="identity", order=S.One),
        ),
    ),
    cells=(
        theorems.order_cell("sub-ln-gamma", "1"),
        theorems.bound_cell("sub-ln-gamma", _SLIDE_SUB, "Theorem 2, before gamma is put in"),
    ),
)

CLAIMS: tuple[Claim, ...] = (_S3_04, _S3_05, _S3_06, _S3_07, _S3_08, _S3_09, _S3_10, _S3_11, _S3_12, _S3_13, _S3_14)

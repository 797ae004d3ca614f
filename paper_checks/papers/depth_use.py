"""What deep layers are good for, and what keeps gradients small: at initialisation."""

from __future__ import annotations

import math

from sympy import Expr, Rational, S, limit, log, oo, sqrt

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Amendment, Claim, Finding, Kind, Part, Route, Verdict
from depthlaw.paper_checks.claims.statements import Growth, Values
from depthlaw.paper_checks.routes import algebra
from depthlaw.paper_checks.routes.checks import Answers, awaits, check, growth_part
from depthlaw.paper_checks.routes.drawn import PreNorm
from depthlaw.theory.symbols import L

# ---------------------------------------------------------------- OL-01: the reordered norm

_OL_01 = Claim(
    id="OL-01",
    kind=Kind.REMARK,
    locator="Section 3, at second hand",
    quote="norms of the outputs of attention and FFN, in place of their inputs, are as stable as both (Peri-LN)",
    summary="OLMo 2's norms behind the branches alone are as stable as Peri-LN: the first update grows alike",
    parts=tuple(
        growth_part(
            f"that the update grows as Peri-LN's does under {optimizer}, at initialisation",
            Growth(scheme="branch-ln", optimizer=optimizer, order=order),
        )
        for optimizer, order in (("sgd", log(L)), ("adam", sqrt(L)))
    ),
)

# ---------------------------------------------------------------- SN-01: Spike No More

_SPIKE = Values.of(
    "Pre-LN with sublayers of gain {small} and an embedding of std {large}: the gradient at the bottom stays a bounded "
    "multiple of that at the top, in L sublayers",
    small=1 / sqrt(L),
    large=1,
)
_ENOUGH = Values.of(
    "for this small sublayers are needed, whatever the embedding's std: {std} is not enough", std=sqrt(L)
)


def _ratio(small: Expr, large: Expr) -> Expr:
    """Of squares: the product of 1 + s/q_l with q_l = q_0 + l s, which is q_L/q_0; a ReLU branch adds s = gain^2/2."""
    return 1 + L * small**2 / 2 / large**2


@check(
    Route.PROOF,
    "the product of what each sublayer multiplies the gradient's square by",
    steps=lambda: ("1 + s/q_l, q_(l + 1) = q_l + s: the product is q_L/q_0 = 1 + L s/q_0",),
)
def _by_product(s: Values) -> Answers:
    ratio = _ratio(s["small"], S(s["large"]))
    return Answers(
        holds=[bool(limit(ratio, L, oo).is_finite)],
        numbers={
            name: float(_ratio(small, large).subs(L, 96).evalf())
            for name, small, large in (
                ("both, 96 sublayers", 1 / sqrt(L), S.One),
                ("small sublayers, std 0.02", 1 / sqrt(L), Rational(1, 50)),
                ("neither", S.One, Rational(1, 50)),
            )
        },
    )


@check(Route.NUMERIC, "the same multiplied out, at 10^2, 10^4 and 10^6 sublayers")
def _multiplied(s: Values) -> list[bool | None]:
    logs = []
    for length in (10**2, 10**4, 10**6):
        added = float(s["small"].subs(L, length).evalf()) ** 2 / 2
        stream = float(S(s["large"]).subs(L, length).evalf()) ** 2
        logs.append(math.fsum(math.log1p(added / (stream + k * added)) for k in range(length)) + 1)
    return [algebra.settles(logs)]


@check(Route.PROOF, "the ratio with sublayers of gain 1, as L grows")
def _by_one(s: Values) -> Answers:
    is_short = limit(_ratio(S.One, s["std"]), L, oo) == oo
    longer = math.sqrt(1 + (1 + 1 / 2) / 2)  # of one token attention adds 1 to the stream's square, a ReLU FFN 1/2
    example = {
        "printed": s.text,
        "found": "with gain 1 and an embedding of std sqrt(L) the gradient at the bottom of a Transformer of one token "
        f"is {longer:.3g} times as long as at the top, at L = 16 and at L = 256: L gain^2/std^2 alone enters",
        "command": " && ".join(
            f"depthlaw predict --scheme pre-ln --optimizer sgd --layers {length // 2} --attention --tokens 1 "
            f"--ffn-ratio 1 --embedding-std {math.isqrt(length)} --by-layer"
            for length in (16, 256)
        ),
    }
    return Answers(holds=[is_short], counterexample=None if is_short else example)


_SN_01 = Claim(
    id="SN-01",
    kind=Kind.RESULT,
    locator="abstract",
    quote="stabilising the pre-training requires two conditions: small sub-layers and large shortcut",
    summary="Pre-LN's gradients stay bounded with small sublayers and a large embedding, and need both",
    parts=(
        Part(
            name="that both are enough, at initialisation",
            statement=_SPIKE,
            checks=(_by_product, _multiplied),
            mutants=changed(_SPIKE, small=[1, L ** -Rational(1, 4)], large=1 / sqrt(L)),
        ),
        Part(
            name="that each is needed, at initialisation",
            statement=_ENOUGH,
            checks=(_by_one,),
            mutants=changed(_ENOUGH, std=L),
            expected=Verdict.REFUTED,
            instead=Amendment(
                statement=_ENOUGH.with_(std=1),
                text="one of the two, far enough, does as well: L gain^2/(2 std^2) is all that enters",
            ),
            condition="an embedding of std 1 or less: then sublayers have to be small",
        ),
    ),
    finding=Finding(
        "At initialisation Spike No More's two conditions are one: a gradient's square grows by 1 + L g^2/(2 s^2), "
        "g the gain of the sublayers and s the std of the embedding",
        rank=70,
    ),
)

# ---------------------------------------------------------------- DL-01: that deep layers are useless

_HALF = Values.of(
    "without the deeper half of Pre-LN's layers the last state keeps a cosine of {cosine}", cosine=sqrt(S.Half)
)
_TRAINED = "trained models of several depths, with layers taken out"


@check(Route.PROOF, "the root of E x_(L/2)^2 / E x_L^2, as L grows")
def _by_streams(s: Values) -> list[bool | None]:
    from depthlaw.paper_checks.routes.signal_propagation.streams import second_moment

    stream = second_moment("pre-ln")
    return [sqrt(limit(stream.subs(L, L / 2) / stream, L, oo)) == s["cosine"]]


@check(Route.NUMERIC, "x_512 and x_1024 of a drawn stack")
def _by_drawn(s: Values) -> Answers:
    stack = PreNorm(1024, 1.0)
    matrices, first, _ = stack.drawn
    streams = stack.streams(matrices, first)
    cosine = float(streams[512] @ streams[1024] / streams[512].norm() / streams[1024].norm())
    return Answers(holds=[abs(cosine - float(s["cosine"])) < 0.1], numbers={"cosine": round(cosine, 3)})


_DL_01 = Claim(
    id="DL-01",
    kind=Kind.RESULT,
    locator="abstract",
    quote="minimal degradation of performance until after a large fraction, up to half, of the layers are removed",
    summary="the deeper half of a model's layers can be removed at little cost; at initialisation they turn its state",
    parts=(
        Part(
            name="what the deeper half does, at initialisation",
            statement=_HALF,
            checks=(_by_streams, _by_drawn),
            mutants=changed(_HALF, cosine=[1, 0]),
        ),
        Part(
            name="of trained models",
            statement=Values.of("without the deeper half the loss is hardly higher"),
            checks=(awaits(_TRAINED),),
            expected=Verdict.UNDECIDED,
            open=_TRAINED,
        ),
    ),
)

CLAIMS = (_OL_01, _SN_01, _DL_01)

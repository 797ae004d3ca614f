"""Networks without norms, or near the identity by other means: ReZero, SkipInit, T-Fixup, DyT and nGPT."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sympy import Expr, Rational, S, Symbol, integrate, pi, simplify, sqrt

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Claim, Kind, Part, Route, Verdict, claim
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.papers.by_layer import log_jacobians
from depthlaw.paper_checks.routes import second_meanfield
from depthlaw.paper_checks.routes.checks import Answers, awaits, check
from depthlaw.paper_checks.routes.drawn import PreNorm
from depthlaw.theory.symbols import L, N

if TYPE_CHECKING:
    from depthlaw.theory.schemes import Scheme

# ---------------------------------------------------------------- RZ-01: ReZero

_ISOMETRY = Values.of("every singular value of dx_L/dx_0 is 1, at a gate of {gate}", gate=0)


@check(Route.PROOF, "what one sublayer makes of a gradient's square, with the gate as its branch weight")
def _by_sublayer(s: Values) -> list[bool | None]:
    from depthlaw.theory.meanfield.closedform import symbolic_moments
    from depthlaw.theory.moments import activation
    from depthlaw.theory.stack import NO_NORM, NormKind, transfer

    letters = dict.fromkeys(("stream", "input_scale", "gain_in", "gain_out", "residual_weight"), S.One)
    moments = symbolic_moments(activation("relu"), S.One)
    t = transfer(NO_NORM, NormKind.LAYERNORM, moments, sqrt=sqrt, branch_weight=s["gate"], **letters)
    return [simplify(t.gradient_ratio - 1) == 0]


@check(Route.NUMERIC, "singular values of the Jacobian of 16 drawn sublayers, by differences")
def _by_singular_values(s: Values) -> list[bool | None]:
    import torch

    stack = PreNorm(16, float(s["gate"]))
    matrices, first, _ = stack.drawn
    jacobian = torch.autograd.functional.jacobian(lambda x: stack.streams(matrices, x)[-1], first)
    values = torch.linalg.svdvals(jacobian)
    return [bool((values - 1).abs().max() < 1e-9)]


_RZ_01 = claim(
    "RZ-01",
    kind=Kind.RESULT,
    name="at initialisation",
    locator="abstract",
    quote="gating each residual connection by a single zero-initialised parameter satisfies initial dynamical isometry",
    summary="ReZero: with gates of 0 every singular value of the network's Jacobian is 1 at the start",
    statement=_ISOMETRY,
    checks=(_by_sublayer, _by_singular_values),
    mutants=changed(_ISOMETRY, gate=[1, Rational(1, 10)]),
)

# ---------------------------------------------------------------- SK-01: SkipInit

_DOWNSCALED = Values.of(
    "a norm before each branch makes it smaller beside the skip, at depth L by L^{power}", power=S.Half
)


@check(Route.PROOF, "E x_L^2 over what a branch adds")
def _share(s: Values) -> list[bool | None]:
    from depthlaw.paper_checks.routes.signal_propagation.streams import second_moment

    ratio = second_moment("pre-ln") / L ** (2 * s["power"])
    return [bool(ratio.limit(L, S.Infinity).is_positive)]


@check(Route.NUMERIC, "E x_L^2 of drawn stacks of 64 and 1,024 sublayers")
def _drawn_share(s: Values) -> Answers:
    stack = PreNorm(1024, 1.0)
    matrices, first, _ = stack.drawn
    streams = stack.streams(matrices, first)
    power = math.log(float(streams[1024].square().sum() / streams[64].square().sum()), 16) / 2
    return Answers(holds=[abs(power - float(s["power"])) < 0.1], numbers={"power": round(power, 3)})


_SK_01 = claim(
    "SK-01",
    kind=Kind.RESULT,
    name="at initialisation",
    locator="abstract",
    quote="normalisation downscales the residual branch relative to the skip connection, by a normalising factor on "
    "the order of the square root of the network depth",
    summary="norms make residual branches smaller beside the skip by the square root of depth",
    statement=_DOWNSCALED,
    checks=(_share, _drawn_share),
    mutants=changed(_DOWNSCALED, power=[0, Rational(1, 4), 1]),
)

# ---------------------------------------------------------------- TF-01: T-Fixup

_EMBEDDING = Values.of(
    "T-Fixup with embeddings times {embedding}: SGD's first update of N layers does not depend on depth",
    embedding=(9 * N) ** -Rational(1, 4),
)


def _t_fixup(embedding: Expr) -> Scheme:
    return second_meanfield.variant("t-fixup", embedding_scale=S(embedding).subs(N, L / 2))


@check(Route.MEANFIELD, "leading order of SGD's update of its FFNs")
def _by_order(s: Values) -> Answers:
    from depthlaw.theory.meanfield.growth import update_order
    from depthlaw.theory.meanfield.setting import Setting

    powers = {name: update_order(Setting.of(_t_fixup(s["embedding"]), name)).power for name in ("sgd", "adam")}
    return Answers(holds=[powers["sgd"] == 0], numbers={name: str(power) for name, power in powers.items()})


@check(Route.NUMERIC, "the same, summed sublayer by sublayer, at 10^2 and 10^4")
def _by_sum(s: Values) -> list[bool | None]:
    few, many = (second_meanfield.log_update(_t_fixup(s["embedding"]), length) for length in (10**2, 10**4))
    return [abs(many - few) < 0.05]


_TF_01 = claim(
    "TF-01",
    kind=Kind.RESULT,
    name="its FFNs under SGD, at initialisation",
    locator="Theorem 3.1 and the scheme",
    quote="embeddings times (9N)^(-1/4), v, output and FFN matrices times 0.67 N^(-1/4): each update is of order eta",
    summary="T-Fixup's embeddings times (9N)^(-1/4) are what makes SGD's first update independent of depth",
    statement=_EMBEDDING,
    checks=(_by_order, _by_sum),
    mutants=changed(_EMBEDDING, embedding=[1, N ** -Rational(1, 2)]),
)

# ---------------------------------------------------------------- DY-01: DyT's alpha

_ALPHA = Values.of(
    "with DyT, tanh(alpha x), in place of norms the log of the squared Jacobian stays where alpha is times L^{power}",
    power=-S.Half,
)


@check(Route.PROOF, "E (d tanh(alpha x))^2 at a second moment q, to its leading order, over L sublayers of q_k = c k")
def _by_slope(s: Values) -> list[bool | None]:
    alpha, q, t = (Symbol(name, positive=True) for name in ("alpha", "q", "t"))
    slope = alpha * integrate(1 - t**2, (t, -1, 1)) / sqrt(2 * pi * q)  # t = tanh(alpha x): dt = alpha (1 - t^2) dx
    total = integrate(slope, (q, 0, L))
    return [not simplify(total.subs(alpha, L ** s["power"])).has(L)]


@check(Route.NUMERIC, "the log of the squared Jacobian of 10^3 and 10^5 ReLU FFN sublayers, alpha = 2 L^power")
def _by_jacobian(s: Values) -> Answers:
    def at(length: int) -> float:
        return log_jacobians((length,), is_normed=False, scale=2 * length ** float(s["power"]))[0]

    few, many = at(10**3), at(10**5)
    return Answers(holds=[abs(math.log(many / few)) < 0.1], numbers={"log at 10^3 and 10^5": [few, many]})


_SWEEPS = "sweeps of alpha at several depths and widths, each trained"

_DY_01 = Claim(
    id="DY-01",
    kind=Kind.RESULT,
    locator="Section 7, initialisation of alpha",
    quote="alpha = 0.5 at the start; the best alpha falls with the model's width, and depth has little to do with it",
    summary="DyT's best initial alpha depends on the model's width, and hardly on its depth",
    parts=(
        Part(
            name="what holds the Jacobian: an alpha that falls with depth, at initialisation",
            statement=_ALPHA,
            checks=(_by_slope, _by_jacobian),
            mutants=changed(_ALPHA, power=[0, -1]),
        ),
        Part(
            name="the best alpha, in training",
            statement=Values.of("the best alpha is the same at every depth"),
            checks=(awaits(_SWEEPS),),
            expected=Verdict.UNDECIDED,
            open=_SWEEPS,
        ),
    ),
)

# ---------------------------------------------------------------- NG-01: nGPT's eigen learning rates

_EIGEN = Values.of(
    "alpha = {alpha} at the start is 1/N, within a factor of two, at the sizes that were trained", alpha="0.05"
)


@check(Route.ARITHMETIC, "alpha N at 24 and 36 layers; model.py has 0.05 at every depth")
def _of_one_over_n(s: Values) -> Answers:
    over = {layers: float(s["alpha"]) * layers for layers in (24, 36)}
    kept = {}
    for layers in (24, 36, 1000):
        moved = float(s["alpha"])  # h goes to norm((1 - alpha) h + alpha f), f at right angles to h
        kept[str(layers)] = ((1 - moved) / math.hypot(1 - moved, moved)) ** (2 * layers)
    return Answers(holds=[0.5 < ratio < 2 for ratio in over.values()], numbers={"cosine of first and last state": kept})


_NG_01 = claim(
    "NG-01",
    kind=Kind.REMARK,
    name="at the sizes that were trained",
    locator="Section 2.6; model.py",
    quote="alpha_A and alpha_M start at 0.05, in order of 1/n_layers",
    summary="nGPT's eigen learning rates start at 0.05, which is of the order of 1/n_layers",
    statement=_EIGEN,
    checks=(_of_one_over_n,),
    mutants=changed(_EIGEN, alpha=["0.5", "0.005"]),
)

CLAIMS = (_RZ_01, _SK_01, _TF_01, _DY_01, _NG_01)

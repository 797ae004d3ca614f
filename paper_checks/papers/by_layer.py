"""What differs from layer to layer, at initialisation: Mix-LN's gradients, and the Jacobian without norms."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from sympy import Rational, Symbol, erf, exp, integrate, limit, log, oo, pi, sqrt, tanh

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Amendment, Claim, Finding, Kind, Part, Route, Verdict, claim
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes.checks import Answers, awaits, check
from depthlaw.paper_checks.routes.drawn import norm as rms_norm
from depthlaw.theory.symbols import L

if TYPE_CHECKING:
    from depthlaw.network.network import Network

# ---------------------------------------------------------------- MX-01: whose gradients are alike

_FIRST = Values.of(
    "the gradient of a layer's matrices in Pre-LN is {word} in the last layer than in the first", word="smaller"
)
_VANISHES = Values.of("Post-LN leaves the first layer {word} of the last layer's gradient", word="less than half")
_EVEN = Values.of(
    "largest over smallest, Mix-LN's gradients by layer are {word} than Pre-LN's and Post-LN's", word="more even"
)


_NUM_LAYERS = 8


def _network(scheme: str, num_layers: int) -> Network:
    from depthlaw.network.network import Network
    from depthlaw.theory.schemes import scheme as named

    return Network(
        scheme=named(scheme), arch="encoder", num_sublayers=2 * num_layers, d_model=128, num_heads=4, num_tokens=4
    )


@cache
def _kernel_profile(scheme: str, num_layers: int = _NUM_LAYERS) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """By layer, the norm of the gradient of its matrices; and by l, the log of ||dF/dx_l||^2. Infinite width."""
    answer = _network(scheme, num_layers).kernel_update("sgd", replicates=1)
    layers = [
        sum(value for role, value in sublayer.items() if role in ("q", "k", "v", "out", "fc1", "fc2"))
        for sublayer in answer.layers["encoder"]
    ]
    norms = [math.sqrt(a + b) for a, b in zip(layers[::2], layers[1::2], strict=True)]
    logs = [stream.log10_gradient_square * math.log(10) for stream in answer.streams["encoder"]]
    return tuple(norms), tuple(logs)


@cache
def _measured_norms(scheme: str, num_layers: int = _NUM_LAYERS, num_seeds: int = 16) -> tuple[float, ...]:
    """By layer, the norm of the gradient of its matrices: the root of the mean square of real networks 128 wide."""
    from depthlaw.sims.measure import Question, collect

    network = _network(scheme, num_layers)
    question = Question(config=network.config("sgd"), task=network.task, has_layers=True, dtype="float32")
    values = collect(question, range(num_seeds))
    norms = []
    for layer in range(1, num_layers + 1):
        parts = (values[f"sgd/layer/{role}/{layer}"] for role in ("q", "k", "v", "out", "fc1", "fc2"))
        norms.append(math.sqrt(sum(map(np.mean, parts))))
    return tuple(norms)


def _spread(norms: Any) -> float:
    return max(norms) / min(norms)


def _answers(norms_of: Any, s: Values) -> Answers:
    """norms_of: a scheme's name to the gradient's norm by layer."""
    pre, post, mix = (norms_of(scheme) for scheme in ("pre-ln", "post-ln", "mix-ln"))
    holds = {
        "smaller": pre[-1] < 0.8 * pre[0],
        "larger": pre[-1] > 1.25 * pre[0],
        "less than half": post[0] < post[-1] / 2,
        "more than twice": post[0] > 2 * post[-1],
        "more even": _spread(mix) < min(_spread(pre), _spread(post)),
        "less even": _spread(mix) > max(_spread(pre), _spread(post)),
        "between, less even": _spread(post) < _spread(mix) < _spread(pre),
        "as much as": 0.8 < post[0] / post[-1] < 1.25,
    }[s["word"]]
    numbers = {
        name: [round(float(norm), 3) for norm in norms] for name, norms in (("pre", pre), ("post", post), ("mix", mix))
    }
    text = f"Post-LN: the first layer has {post[0] / post[-1]:.3g} of the last's; spreads {_spread(pre):.3g} (Pre-LN), "
    text += f"{_spread(post):.3g} (Post-LN), {_spread(mix):.3g} (Mix-LN)"
    command = "depthlaw predict --scheme post-ln --optimizer sgd --layers 8 --attention --tokens 4 --by-layer"
    example = {"printed": s.text, "found": text, "command": command}
    return Answers(holds=[holds], numbers=numbers, counterexample=None if holds else example)


@check(Route.KERNEL, "the norm of the gradient by layer, 8 layers, at infinite width")
def _by_kernel(s: Values) -> Answers:
    return _answers(lambda scheme: _kernel_profile(scheme)[0], s)


@check(Route.MEASURED, "the same in 16 networks of 8 layers, 128 wide")
def _in_networks(s: Values) -> Answers:
    return _answers(_measured_norms, s)


_TRAINED = "gradients by layer along training, of Pre-LN, Post-LN and Mix-LN networks of several depths"
_PROFILE = (_by_kernel, _in_networks)

_MX_01 = Claim(
    id="MX-01",
    kind=Kind.RESULT,
    locator="abstract",
    quote="Pre-LN leads to diminished gradient norms in its deeper layers; Post-LN preserves larger gradient norms in "
    "deeper layers but suffers from vanishing gradients in earlier layers; Mix-LN ensures more uniform gradients",
    summary="gradients are small in Pre-LN's deep layers and Post-LN's early ones, and more uniform in Mix-LN",
    parts=(
        Part(
            name="Pre-LN's deep layers, at initialisation",
            statement=_FIRST,
            checks=_PROFILE,
            mutants=changed(_FIRST, word="larger"),
        ),
        Part(
            name="Post-LN's early layers, at initialisation",
            statement=_VANISHES,
            checks=_PROFILE,
            mutants=changed(_VANISHES, word="more than twice"),
            expected=Verdict.REFUTED,
            instead=Amendment(
                statement=_VANISHES.with_(word="as much as"), text="the first layer has as much gradient as the last"
            ),
            condition="weights as training makes them, or gains below 1 of what the branch is made of",
        ),
        Part(
            name="Mix-LN's evenness, at initialisation",
            statement=_EVEN,
            checks=_PROFILE,
            mutants=changed(_EVEN, word="less even"),
            expected=Verdict.REFUTED,
            instead=Amendment(
                statement=_EVEN.with_(word="between, less even"), text="Mix-LN is between Pre-LN and Post-LN"
            ),
            condition="weights as training makes them",
        ),
        Part(
            name="all three, after training",
            statement=_EVEN,
            checks=(awaits(_TRAINED),),
            expected=Verdict.UNDECIDED,
            open=_TRAINED,
        ),
    ),
    finding=Finding(
        "At initialisation Post-LN's gradients are the most even over the layers; Mix-LN's lie between Post-LN's and "
        "Pre-LN's",
        rank=66,
    ),
)

# ---------------------------------------------------------------- DT-01: the Jacobian without norms

_GROWTH = Values.of(
    "log ||dx_L/dx_0||^2 grows as {pre} with Pre-LN and as {free} with tanh or erf in the norm's place",
    pre=log(L),
    free=sqrt(L),
)


_GRID = np.arange(-2, 15, 0.05)
"""Of log q, q the second moment of the stream."""


@cache
def _of_tanh(scale: float) -> tuple[list[float], list[float]]:
    """At each log q of the grid: E u^2 and E u'^2 of u = tanh(scale x)."""
    x = np.linspace(-40, 40, 4001)
    seconds, slopes = [], []
    for q in np.exp(_GRID):
        size = scale * math.sqrt(q)
        z = x / 4 if size < 1 else x / size  # in units of the Gaussian, or of where tanh bends, if that is narrower
        density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
        bent = 1 - np.tanh(z * size) ** 2
        seconds.append(1 - float(density @ bent))
        slopes.append(scale**2 * float(density @ bent**2))
    return seconds, slopes


def log_jacobians(lengths: tuple[int, ...], *, is_normed: bool, scale: float = 0.5) -> list[float]:
    """log of ||dx_L/dx_0||^2 / d of ReLU FFN branches W2 relu(W1 u), E x_0^2 = 1; u is norm(x), or tanh(scale x)."""
    q, total, logs = 1.0, 0.0, []
    seconds, slopes = _of_tanh(scale)
    first, step = float(_GRID[0]), float(_GRID[1] - _GRID[0])
    for length in range(1, max(lengths) + 1):
        if is_normed:
            second, slope = 1.0, 1 / q
        else:
            place, part = divmod((math.log(q) - first) / step, 1)
            at = int(place)
            second, slope = ((1 - part) * of[at] + part * of[at + 1] for of in (seconds, slopes))
        total += math.log1p(slope / 2)
        q += second / 2
        if length in lengths:
            logs.append(total)
    return logs


@check(
    Route.PROOF,
    "E f'(x)^2 at a second moment q, to its leading order, summed over sublayers with q growing as their number",
    steps=lambda: (
        "each independent branch adds c E f'(x_k)^2 to the log of the squared Jacobian; q_k = c k once f is saturated",
        "a norm: E f'^2 = 1/q; a saturating f: E f'^2 = (integral of f'^2) / sqrt(2 pi q)",
    ),
)
def _summed(s: Values) -> list[bool | None]:
    x, q = Symbol("x", real=True), Symbol("q", positive=True)
    sizes = {f: integrate(f(x).diff(x).rewrite(exp) ** 2, (x, -oo, oo)) for f in (erf,)}
    sizes[tanh] = integrate((1 - x**2), (x, -1, 1))  # in t = tanh x: dt = (1 - t^2) dx
    free = [integrate(size / sqrt(2 * pi * q), (q, 1, L)) for size in sizes.values()]
    normed = integrate(1 / q, (q, 1, L))
    return [
        limit(normed / s["pre"], L, oo).is_positive and limit(normed / s["pre"], L, oo) != oo,
        all(0 < limit(ratio / s["free"], L, oo) < oo for ratio in free),
    ]


@check(Route.NUMERIC, "the local power of log L, and of L, between 10^3 and 10^5 ReLU FFN sublayers, tanh(x/2)")
def _added_up(s: Values) -> list[bool | None]:
    lengths = (10**3, 10**5)
    answers: list[bool | None] = []
    for name in ("pre", "free"):
        logs = log_jacobians(lengths, is_normed=name == "pre")
        ratios = [value / float(s[name].subs(L, length).evalf()) for value, length in zip(logs, lengths, strict=True)]
        answers.append(abs(math.log(ratios[1] / ratios[0])) < 0.15)
    return answers


_DT_01 = claim(
    "DT-01",
    kind=Kind.RESULT,
    name="at initialisation",
    locator="abstract",
    quote="Pre-LN exhibits power-law APJN growth, whereas Transformers with LayerNorm replaced by elementwise "
    "tanh-like nonlinearities have stretched-exponential APJN growth",
    summary="the squared Jacobian grows as a power of depth with Pre-LN, and as exp(c sqrt(L)) with DyT or Derf",
    statement=_GROWTH,
    checks=(_summed, _added_up),
    mutants=changed(_GROWTH, pre=[sqrt(L), L], free=[log(L), L, L ** Rational(1, 4)]),
)

# ---------------------------------------------------------------- RD-01: ResiDual's lower bound

_NOT_LESS = Values.of("the first layer's gradient in ResiDual is at least {share} times the last's", share=1)


@check(Route.KERNEL, "the norms of both, 8 layers, at infinite width")
def _first_by_kernel(s: Values) -> Answers:
    return _first_over_last(_kernel_profile("residual")[0], s)


@check(Route.MEASURED, "the same in 16 networks of 8 layers, 128 wide")
def _first_in_networks(s: Values) -> Answers:
    return _first_over_last(_measured_norms("residual"), s)


def _first_over_last(norms: tuple[float, ...], s: Values) -> Answers:
    share = float(norms[0] / norms[-1])
    return Answers(holds=[share >= s["share"]], numbers={"first over last": round(share, 3)})


_RD_01 = claim(
    "RD-01",
    kind=Kind.RESULT,
    name="at initialisation, 8 layers",
    locator="abstract",
    quote="ResiDual has a lower bound on the gradient to avoid the vanishing issue, due to the residual connection of "
    "Pre-LN",
    summary="ResiDual's gradients do not vanish in early layers: the first layer's is at least the last's",
    statement=_NOT_LESS,
    checks=(_first_by_kernel, _first_in_networks),
    mutants=changed(_NOT_LESS, share=2),
)

# ---------------------------------------------------------------- BT-01: B2T's connection

_LONG_WAY = Values.of(
    "of a gradient's square the residual path through {layers} layers leaves {word} with B2T than in Post-LN",
    layers=12,
    word="more",
)


@check(
    Route.NUMERIC,
    "what the norms of a layer leave of the residual path's gradient, by second moments, over that many layers",
    steps=lambda: (
        "Post-LN: x and F of variance 1 and f: two norms leave 1/(1 + f) each of the square",
        "B2T: x + u + F, u = norm(x + A): cov(x, u) = 1/sqrt(1 + a); the path is x and u's part of x",
    ),
)
def _by_norms(s: Values) -> Answers:
    a, f = 1.0, 0.5  # an attention to one token, and a ReLU FFN
    through = 1 / math.sqrt(1 + a)
    post = 1 / (1 + a) / (1 + f)
    b2t = (1 + through) ** 2 / (2 + 2 * through + f)
    return _more(post ** int(s["layers"]), b2t ** int(s["layers"]), s)


@check(Route.MEASURED, "the same by autograd with branches held, in a drawn stack of FFNs 64 wide")
def _by_held_branches(s: Values) -> Answers:
    import torch

    def left(*, is_b2t: bool) -> float:
        draw = torch.Generator().manual_seed(2)
        first, readout = (torch.randn(64, generator=draw, dtype=torch.float64) for _ in range(2))
        x = first.requires_grad_()
        for _ in range(int(s["layers"])):
            w1, w2, w3 = (torch.randn((64, 64), generator=draw, dtype=torch.float64) / 8 for _ in range(3))
            u = rms_norm(x + x.detach() @ w1)
            x = rms_norm(u + (u.detach() @ w2).relu() @ w3 + (x if is_b2t else 0))
        (gradient,) = torch.autograd.grad(x @ readout, first)
        return float(gradient.square().sum() / 64)

    return _more(left(is_b2t=False), left(is_b2t=True), s)


def _more(post: float, b2t: float, s: Values) -> Answers:
    holds = {"more": b2t > 10 * post, "no more": b2t <= post, "all of it": b2t > 0.9}[s["word"]]
    return Answers(holds=[holds], numbers={"Post-LN": f"{post:.2e}", "B2T": f"{b2t:.2e}"})


_BT_01 = claim(
    "BT-01",
    kind=Kind.RESULT,
    name="the residual path at initialisation, 12 layers (it vanishes in both, of B2T later)",
    locator="abstract and Section 4",
    quote="the connection from a layer's input to its output skips all layer normalisations but the last of the layer, "
    "and so eases the vanishing of gradients",
    summary="B2T's connection leaves more of the gradient on the residual path than Post-LN does",
    statement=_LONG_WAY,
    checks=(_by_norms, _by_held_branches),
    mutants=changed(_LONG_WAY, word=["no more", "all of it"]),
)

CLAIMS = (_BT_01, _DT_01, _MX_01, _RD_01)

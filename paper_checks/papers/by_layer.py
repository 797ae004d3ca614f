"""What differs from layer to layer, at initialisation: Mix-LN's gradients, and the Jacobian without norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from sympy import Rational, Symbol, erf, exp, integrate, limit, log, oo, pi, sqrt, tanh

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import (
    Amendment,
    Claim,
    Finding,
    Kind,
    Number,
    Part,
    Route,
    Verdict,
    claim,
    number,
    sentence,
)
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes.checks import Answers, awaits, check
from depthlaw.paper_checks.routes.drawn import norm as rms_norm
from depthlaw.theory.symbols import L

if TYPE_CHECKING:
    from depthlaw.network.network import Network

# ---------------------------------------------------------------- gradients of a layer's matrices

_NUM_LAYERS = 8
_TOKENS = (4, 64)
"""Post-LN's layers are alike at few tokens alone: an average over many shrinks what attention's v and out receive."""
_VALUES = ("v", "out")
_MATRICES = ("q", "k", *_VALUES, "fc1", "fc2")


def _network(scheme: str, num_layers: int, arch: str, num_tokens: int) -> Network:
    from depthlaw.network.network import Network
    from depthlaw.theory.schemes import scheme as named

    return Network(
        scheme=named(scheme),
        arch=arch,
        num_sublayers=2 * num_layers,
        d_model=128,
        num_heads=4,
        num_tokens=num_tokens,
    )


@dataclass(frozen=True, kw_only=True)
class _Profile:
    """norms, of_values: by layer, the norm of the gradient of its matrices, and of v and out alone. streams: by l, that
    of x_l, in units of the last; of predictions alone."""

    norms: tuple[float, ...]
    of_values: tuple[float, ...]
    streams: tuple[float, ...] = ()

    @property
    def share(self) -> float:
        """What the first layer has of the last's."""
        return self.norms[0] / self.norms[-1]


@cache
def _predicted(scheme: str, arch: str, num_tokens: int, num_layers: int = _NUM_LAYERS) -> _Profile:
    """At infinite width, by so few points that a gradient is within a percent."""
    answer = _network(scheme, num_layers, arch, num_tokens).kernel_update("sgd", replicates=1, effort=0.25)
    ((side, sublayers),) = answer.layers.items()
    layers = [dict(a) | dict(f) for a, f in zip(sublayers[::2], sublayers[1::2], strict=True)]
    logs = [stream.log10_gradient_square / 2 for stream in answer.streams[side]]
    return _Profile(
        norms=tuple(math.sqrt(sum(layer[role] for role in _MATRICES)) for layer in layers),
        of_values=tuple(math.sqrt(sum(layer[role] for role in _VALUES)) for layer in layers),
        streams=tuple(10 ** (log - logs[-1]) for log in logs),
    )


@cache
def _measured(scheme: str, arch: str, num_tokens: int, num_seeds: int = 16) -> _Profile:
    """The root of the mean square of real networks 128 wide."""
    from depthlaw.sims.measure import Question, collect

    network = _network(scheme, _NUM_LAYERS, arch, num_tokens)
    question = Question(config=network.config("sgd"), task=network.task, has_layers=True, dtype="float32")
    values = collect(question, range(num_seeds))

    def of(roles: tuple[str, ...], layer: int) -> float:
        return math.sqrt(sum(float(np.mean(values[f"sgd/layer/{role}/{layer}"])) for role in roles))

    layers = range(1, _NUM_LAYERS + 1)
    norms, of_values = (tuple(of(roles, layer) for layer in layers) for roles in (_MATRICES, _VALUES))
    return _Profile(norms=norms, of_values=of_values)


def _spread(norms: tuple[float, ...]) -> float:
    return max(norms) / min(norms)


# ---------------------------------------------------------------- MX-01: whose gradients are alike

_SCHEMES = ("Pre-LN", "Post-LN", "Mix-LN")
_FIRST = Values.of(
    "the gradient of a layer's matrices in Pre-LN is {word} in the last layer than in the first", word="smaller"
)
_VANISHES = Values.of(
    "Post-LN leaves the first layer {word} of the last layer's gradient (the project's measure of vanishing)",
    word="less than half",
)
_EVEN = Values.of("largest over smallest, the gradients by layer are the most even in {scheme}", scheme="Mix-LN")


def _see(scheme: str) -> str:
    network = f"--layers {_NUM_LAYERS} --attention --causal --tokens {_TOKENS[-1]}"
    return f"depthlaw predict --scheme {scheme.lower()} --optimizer sgd {network} --by-layer"


def _answers(profile_of: Callable[[str, str, int], _Profile], s: Values) -> Answers:
    """profile_of: a scheme's name, the architecture and the number of tokens to what a layer has of the gradient."""
    holds: list[bool | None] = []
    numbers = {}
    by_tokens = {tokens: [profile_of(scheme.lower(), "decoder", tokens) for scheme in _SCHEMES] for tokens in _TOKENS}
    for tokens, profiles in by_tokens.items():
        pre, post, _ = profiles
        spreads = [_spread(profile.norms) for profile in profiles]
        if "scheme" in dict(s):
            holds.append(_SCHEMES[spreads.index(min(spreads))] == s["scheme"])
        else:
            holds.append(
                {
                    "smaller": pre.share > 1.25,
                    "larger": pre.share < 0.8,
                    "less than half": post.share < 1 / 2,
                    "more than half": post.share > 1 / 2,
                    "more than twice": post.share > 2,
                }[s["word"]]
            )
        numbers[f"{tokens} tokens"] = {
            "first over last": _by_scheme([profile.share for profile in profiles]),
            "largest over smallest": _by_scheme(spreads),
            "largest over smallest, the stream": _by_scheme(
                [_spread(profile.streams) for profile in profiles if profile.streams]
            ),
            "v and out of an encoder's Post-LN, first over last": _of_values(profile_of("post-ln", "encoder", tokens)),
        }
    _, post, mix = by_tokens[_TOKENS[-1]]
    first, *_, last = (norm**2 for norm in post.norms)
    large, small = max(mix.norms) ** 2, min(mix.norms) ** 2
    text = f"of {_TOKENS[-1]} tokens the square, attention and FFN together, is {first:.2g} in Post-LN's first layer "
    text += f"and {last:.2g} in its last; Mix-LN's go from {large:.2g} to {small:.2g}"
    command = " && ".join(_see(scheme) for scheme in ("Post-LN", "Mix-LN"))
    example = {"printed": s.text, "found": text, "command": command}
    return Answers(holds=holds, numbers=numbers, counterexample=None if all(holds) else example)


def _by_scheme(values: list[float]) -> dict[str, float]:
    return {scheme: round(value, 3) for scheme, value in zip(_SCHEMES, values, strict=False)}


def _of_values(profile: _Profile) -> float:
    return round(profile.of_values[0] / profile.of_values[-1], 3)


@check(Route.KERNEL, "the norm of the gradient by layer, decoders of 8 layers, 4 and 64 tokens, at infinite width")
def _by_kernel(s: Values) -> Answers:
    return _answers(_predicted, s)


@check(Route.MEASURED, "the same in 16 networks 128 wide")
def _in_networks(s: Values) -> Answers:
    return _answers(_measured, s)


_TRAINED = "gradients by layer along training, of Pre-LN, Post-LN and Mix-LN networks of several depths"
_PROFILE = (_by_kernel, _in_networks)
_EVENNESS = "Mix-LN's evenness"


def _found(part: str, tokens: int, *keys: str) -> Number:
    return number(part, f"{tokens} tokens", *keys)


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
                statement=_VANISHES.with_(word="more than half"),
                text=sentence(
                    "the first of a decoder's 8 layers has {few:.2f} of the last's gradient at 4 tokens, {many:.2f} at "
                    "64",
                    few=_found("Post-LN", 4, "first over last", "Post-LN"),
                    many=_found("Post-LN", 64, "first over last", "Post-LN"),
                ),
            ),
            condition=sentence(
                "weights as training makes them, gains below 1 of what the branch is made of, or v and out alone in an "
                "encoder of 64 tokens ({values:.2f})",
                values=_found("Post-LN", 64, "v and out of an encoder's Post-LN, first over last"),
            ),
        ),
        Part(
            name=f"{_EVENNESS}, at initialisation",
            statement=_EVEN,
            checks=_PROFILE,
            mutants=changed(_EVEN, scheme="Pre-LN"),
            expected=Verdict.REFUTED,
            instead=Amendment(
                statement=_EVEN.with_(scheme="Post-LN"),
                text=sentence(
                    "Post-LN's are the most even; at 64 tokens Mix-LN's largest is {mix:.2f} times its smallest, "
                    "Pre-LN's {pre:.2f}, Post-LN's {post:.2f}",
                    **{
                        name: _found(_EVENNESS, 64, "largest over smallest", scheme)
                        for name, scheme in zip(("pre", "post", "mix"), _SCHEMES, strict=True)
                    },
                ),
            ),
            condition=sentence(
                "weights as training makes them; or gradients of the stream in place of matrices', at 64 tokens "
                "({mix:.2f} in Mix-LN, {pre:.2f} in Pre-LN, {post:.2f} in Post-LN)",
                **{
                    name: _found(_EVENNESS, 64, "largest over smallest, the stream", scheme)
                    for name, scheme in zip(("pre", "post", "mix"), _SCHEMES, strict=True)
                },
            ),
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
        "At initialisation, at 4 tokens and at 64, the gradients of a decoder's matrices are the most even over the "
        "layers in Post-LN, not in Mix-LN",
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

_NOT_LESS = Values.of(
    "the first layer of {scheme} has at least {share} of the last's gradient (the project's measure of vanishing), "
    "that of a layer's matrices together, and {word} than Post-LN's has, at 4 and at 64 tokens, causal or not",
    scheme="ResiDual",
    share=Rational(1, 2),
    word="more",
)


@check(Route.KERNEL, "what the first layer has of the last's, of 8 layers, at infinite width")
def _first_by_kernel(s: Values) -> Answers:
    return _first_over_last(_predicted, s, (8,))


@check(Route.KERNEL, "the same of 32 and 128 layers", is_slow=True)
def _first_of_deep(s: Values) -> Answers:
    return _first_over_last(_predicted, s, (32,), (128,))


@check(Route.MEASURED, "the same in 16 networks of 8 layers, 128 wide")
def _first_in_networks(s: Values) -> Answers:
    return _first_over_last(_measured, s, ())


def _first_over_last(profile_of: Callable[..., _Profile], s: Values, *sizes: tuple[int, ...]) -> Answers:
    scheme = s["scheme"].lower()
    cases = [(arch, tokens) for tokens in _TOKENS for arch in ("encoder", "decoder")]
    profiles, posts = (
        {case: [profile_of(name, *case, *size) for size in sizes] for case in cases} for name in (scheme, "post-ln")
    )
    shares = [
        (profile.share, post.share) for case in cases for profile, post in zip(profiles[case], posts[case], strict=True)
    ]
    return Answers(
        holds=[
            *(share >= s["share"] for share, _ in shares),
            *({"more": share > of_post, "less": share < of_post}[s["word"]] for share, of_post in shares),
        ],
        numbers={
            f"{arch}, {tokens} tokens": {
                "first over last": [round(profile.share, 3) for profile in found],
                "v and out alone": [_of_values(profile) for profile in found],
            }
            for (arch, tokens), found in profiles.items()
        },
    )


_RD_01 = claim(
    "RD-01",
    kind=Kind.RESULT,
    name="at initialisation, up to 128 layers",
    locator="abstract",
    quote="ResiDual has a lower bound on the gradient to avoid the vanishing issue, due to the residual connection of "
    "Pre-LN",
    summary="ResiDual's gradients do not vanish in early layers: the first has at least half of the last's, and more "
    "than Post-LN's",
    statement=_NOT_LESS,
    checks=(_first_by_kernel, _first_of_deep, _first_in_networks),
    mutants=changed(_NOT_LESS, scheme="Post-LN", share=[1, 2], word="less"),
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

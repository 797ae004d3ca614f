"""DeepNet's goal, an update of Theta(eta) at any depth, and what its figures say of the update: DN-10, DN-13, DN-14."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from sympy import Expr, Rational, S, cancel, log

from paper_checks import direct, exact
from paper_checks.checks import GROWTH, all_of, awaits, check, order_key, order_of, outcome
from paper_checks.claim import Amendment, Check, Claim, Evidence, Mutant, Part, Route, Verdict
from paper_checks.papers.deepnet_parts import (
    BETWEEN,
    VANILLA,
    Interval,
    deepnet_scales,
    exponent,
    interval,
    is_below,
    matrix_shares,
    measured,
    squares,
)
from paper_checks.statements import Growth
from theory.symbols import L

HALF = Rational(1, 2)


# ---------------------------------------------------------------- DN-10: all that a default model trains

GROUPS: Mapping[str, tuple[str, ...]] = {
    "matrices": ("q", "k", "v", "out", "fc1", "fc2"),
    "norm gains": ("post_gain",),
    "norm biases": ("post_bias",),
    "output biases": ("out_bias", "fc2_bias"),
    "inner biases": ("v_bias", "fc1_bias"),
}
"""By what they are, the roles of a default Transformer. The biases of q and k: a shift of all scores does nothing."""


@dataclass(frozen=True)
class RoleOrders:
    """What the parameters of each kind contribute to the change of a logit under one SGD step, per learning rate."""

    entries: tuple[tuple[str, Expr], ...]

    def __getitem__(self, name: str) -> Expr:
        return dict(self.entries)[name]

    def with_(self, **orders: Expr) -> RoleOrders:
        """Other orders under names with _ for a blank."""
        return RoleOrders(tuple((name, orders.get(name.replace(" ", "_"), order)) for name, order in self.entries))

    @property
    def text(self) -> str:
        forms = ", ".join(f"{name} Theta({order})" for name, order in self.entries)
        return f"deepnorm, fixed width, L sublayers, relu: ||df/dtheta||^2 of the {forms}"


def _by_theory(s: RoleOrders) -> list[bool | None]:
    """theory's sublayer: a norm's gain and bias get D_l = 1, an output bias 1/(alpha^2 + s) of it, fc1's as its W."""
    from theory.closedform import symbolic_moments
    from theory.moments import activation
    from theory.schemes import scheme
    from theory.stack import NormKind, transfer

    stack = scheme("deepnorm").stack
    assert stack.residual_weight is not None
    t = transfer(
        stack.placement,
        NormKind.LAYERNORM,
        symbolic_moments(activation("relu"), stack.gain_in),
        stream=S.One,
        residual_weight=stack.residual_weight,
        branch_weight=stack.branch_weight,
        input_scale=stack.input_scale,
        gain_in=stack.gain_in,
        gain_out=stack.gain_out,
        sqrt=lambda x: x**HALF,
    )
    if cancel(t.gradient_ratio - 1) != 0:
        raise ArithmeticError("a post-norm sublayer with ReLU should pass the squared gradient unchanged")
    each = {
        "matrices": t.fc1_square + t.fc2_square,
        "norm gains": S.One,
        "norm biases": S.One,
        "output biases": 1 / t.sum_second,
        "inner biases": t.fc1_square,
    }
    return [order_key(order_of(L * each[name])) == order_key(order_of(order)) for name, order in s.entries]


def _by_sums(s: RoleOrders) -> list[bool | None]:
    """The same sublayer written out, summed at 10^2, 10^4, 10^6."""
    network = direct.NETWORKS["deepnorm"]
    out: list[bool | None] = []
    for name, order in s.entries:
        ratios = []
        for length in direct.LENGTHS:
            square, gain2 = network.residual_weight(length) ** 2, network.gain(length) ** 2
            total = square + gain2**2 / 2
            each = {"matrices": gain2 / total, "output biases": 1 / total, "inner biases": gain2 / 2 / total}
            ratios.append(math.log(length * each.get(name, 1.0) / float(order.subs(L, length))))
        out.append(exact.settles(ratios))
    return out


_WIDTH, _DEPTHS, _SEEDS = 32, (4, 64), 32


@cache
def _real_groups(length: int) -> tuple[Mapping[str, float], ...]:
    """By seed: ||df/dtheta||^2 by kind, in a DeepNorm encoder with norm gains and biases and linear biases."""
    from sims.model import ModelConfig, alternating

    network = direct.NETWORKS["deepnorm"]
    gains: dict[str, float] = dict.fromkeys(("v", "out", "fc1", "fc2"), network.gain(length))
    config = ModelConfig(
        encoder=alternating(length, residual_weight=network.residual_weight(length), gains=gains),
        d_model=_WIDTH,
        ffn_ratio=1,
        has_affine=True,
        has_bias=True,
    )
    found = squares(config, _SEEDS, 4)
    kinds = {role: name for name, roles in GROUPS.items() for role in roles}
    out: list[dict[str, float]] = [dict.fromkeys(GROUPS, 0.0) for _ in range(_SEEDS)]
    for name, by_seed in found.items():
        kind = kinds.get(name.split("_", 3)[3])
        for sums, square in zip(out, by_seed, strict=True):
            if kind is not None:
                sums[kind] += square
    return tuple(out)


def _by_measuring(s: RoleOrders) -> Evidence:
    """Whether the measured power of L of each kind is the stated one, to less than 1/8."""
    low, high = (_real_groups(length) for length in _DEPTHS)
    factor = _DEPTHS[1] / _DEPTHS[0]
    answers: list[bool | None] = []
    numbers = {}
    for name, order in s.entries:
        found = exponent([one[name] for one in low], [one[name] for one in high], factor)
        power = float((log(order.subs(L, _DEPTHS[1])) - log(order.subs(L, _DEPTHS[0]))) / math.log(factor))
        answers.append(_is_near(found, power))
        numbers[f"power of L, {name}"] = found.text
    totals = {
        length: interval([sum(one.values()) / one["matrices"] for one in _real_groups(length)]) for length in _DEPTHS
    }
    numbers |= {f"all over matrices, L = {length}": total.text for length, total in totals.items()}
    holds = all_of(answers)
    deep = totals[_DEPTHS[1]]
    example = {
        "printed": "one SGD step moves F by Theta(eta), whatever the depth",
        "found": f"with norm gains and biases trained, Theta(eta L) at fixed width: at d = {_WIDTH}, L = {_DEPTHS[1]} "
        f"all parameters move a logit {deep.text} times as far as the matrices do",
        "width": _WIDTH,
        "num_sublayers": _DEPTHS[1],
        "command": "depthlaw explain DN-10",
    }
    return Evidence(
        route=Route.MEASURED,
        num_effective=len(answers),
        verdict=outcome(holds),
        detail=f"real DeepNorm encoders, 4 tokens, d = {_WIDTH}, {_SEEDS} seeds: each kind's power of L from "
        f"{_DEPTHS[0]} to {_DEPTHS[1]} sublayers, by autograd; multiples of 1/4 are told apart",
        numbers=numbers,
        counterexample=example if holds is False else None,
    )


def _is_near(found: Interval, power: float) -> bool | None:
    inside = is_below(found, power + BETWEEN), is_below(found, power - BETWEEN)
    return False if inside[0] is False or inside[1] is True else None if None in inside else True


def _matrices(activation: str) -> Part:
    statement = Growth(scheme="deepnorm", activation=activation, order=S.One)
    return Part(
        name=f"the weights that the theory covers, {activation}",
        statement=statement,
        checks=GROWTH,
        mutants=(
            Mutant(name="as L^(1/4)", statement=statement.with_(order=L ** Rational(1, 4))),
            Mutant(name="post-ln", statement=statement.with_(scheme="post-ln")),
        ),
    )


_ALL = RoleOrders(tuple((name, S.One) for name in GROUPS))
_FOUND = _ALL.with_(norm_gains=L, norm_biases=L, output_biases=L**HALF)
_DN_10 = Claim(
    id="DN-10",
    source="deepnet",
    locator="Section 4, GOAL",
    quote="GOAL: ||dF|| = Theta(eta) per SGD step after initialisation, as eta goes to 0",
    summary="under DeepNorm one SGD step moves F by Theta(eta), whatever the depth",
    uses=("DN-04",),
    parts=(
        _matrices("relu"),
        _matrices("gelu"),
        Part(
            name="all parameters that a default model trains: norm gains and biases, linear biases",
            statement=_ALL,
            checks=(
                check(
                    Route.MEANFIELD,
                    "by kind, from the derived sublayer; its squared gradient is 1 at every l",
                    _by_theory,
                ),
                check(Route.NUMERIC, "by kind, summed at 10^2, 10^4, 10^6", _by_sums, is_direct=True),
                Check(route=Route.MEASURED, run=_by_measuring, is_direct=True),
            ),
            mutants=(
                Mutant(name="output biases as L", statement=_FOUND.with_(output_biases=L)),
                Mutant(name="norm gains as L^(1/2)", statement=_FOUND.with_(norm_gains=L**HALF)),
                Mutant(name="norms flat", statement=_FOUND.with_(norm_gains=S.One, norm_biases=S.One)),
            ),
            instead=Amendment(
                statement=_FOUND,
                text="norm gains and norm biases Theta(L) each, output biases Theta(L^(1/2)), inner biases and, times "
                "d, matrices Theta(1): a norm's bias adds straight to a stream whose gradient has one size all along",
            ),
            condition="these parameters are frozen, or the learning rate of norm gains and biases is divided by L and "
            "that of output biases by L^(1/2); or L is below about d/4, where the norms' 2L is below the matrices' d/2",
            expected=Verdict.REFUTED,
        ),
    ),
    expected=Verdict.REFUTED,
)


# ---------------------------------------------------------------- DN-13 and DN-14: what figures show


@dataclass(frozen=True)
class Depths:
    """How the update of an N-layer encoder and decoder moves with N, by scheme: it grows, or stays."""

    entries: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        return "; ".join(f"the update of {scheme} {how} with depth" for scheme, how in self.entries)


def _layers(scheme: str, num_layers: int) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """(alpha, gain) by layer of encoder and decoder. Post-LN-init divides what is in layer l by N - l + 1."""
    if scheme == "post-ln-init":
        side = [(1.0, 1 / (num_layers - index)) for index in range(num_layers)]
        return side, side
    scales = deepnet_scales(num_layers, num_layers) if scheme == "deepnet" else VANILLA
    return [scales.encoder] * num_layers, [scales.decoder] * num_layers


def one_token_update(scheme: str, num_layers: int) -> float:
    """``one_token`` for layers of their own gains, layer by layer from the top; the paper's FFN of 2 d."""
    encoder, decoder = _layers(scheme, num_layers)
    gradient, entering, total = 1.0, 0.0, 0.0
    for weight, gain in reversed(decoder):
        attention, ffn = matrix_shares(weight, gain, 2)
        total += gradient * (ffn + attention)
        kept = weight**2 / (weight**2 + gain**4)
        entering, gradient = entering + gradient * (1 - kept), gradient * kept
        total += gradient * attention
    return total + entering * sum(sum(matrix_shares(weight, gain, 2)) for weight, gain in encoder)


def _depths_by_closed_form(s: Depths) -> Evidence:
    answers, numbers = [], {}
    for scheme, how in s.entries:
        updates = [one_token_update(scheme, n) for n in (10, 100, 1000)]
        stays = exact.settles(list(map(math.log, updates))) or exact.falls_away(list(map(math.log, updates)))
        answers.append(stays is (how == "stays"))
        numbers[scheme] = [float(f"{update:.4g}") for update in updates]
    return Evidence(
        route=Route.MEANFIELD,
        num_effective=len(answers),
        verdict=outcome(all(answers)),
        detail="the update at N = M = 10, 100, 1000, infinite width, one token on either side, relu",
        numbers=numbers,
    )


def _real_updates(scheme: str, num_layers: int) -> list[float]:
    """By seed, the update of the paper's tiny encoder-decoder: d = 64, FFN 128, 2 heads, here with 4 tokens."""
    if scheme == "post-ln-init":
        return [total for total, _ in _init_network(num_layers, is_scaled=True)]
    scales = deepnet_scales(num_layers, num_layers) if scheme == "deepnet" else VANILLA
    seeds = 4 if scheme == "deepnet" else 12
    return [sum(both) for both in measured(scales, num_layers, num_layers, num_seeds=seeds, d_model=64, ffn_ratio=2)]


@cache
def _init_network(num_layers: int, *, is_scaled: bool) -> tuple[tuple[float, float], ...]:
    """By seed: (the update, the gradient norm of the decoder's top layer), with Post-LN-init or without."""
    from sims.model import MATRICES, ModelConfig, SublayerConfig

    gains = [1 / (num_layers - index) if is_scaled else 1.0 for index in range(num_layers)]
    sides = [
        tuple(SublayerConfig(kind=kind, gains=dict.fromkeys(MATRICES[kind], gain)) for gain in gains for kind in kinds)
        for kinds in (("attention", "ffn"), ("attention", "cross", "ffn"))
    ]
    found = squares(ModelConfig(encoder=sides[0], decoder=sides[1], d_model=64, num_heads=2, ffn_ratio=2), 4, 4)
    top = tuple(f"_weights.decoder_{index}_" for index in range(3 * num_layers - 3, 3 * num_layers))
    highest = [by_seed for name, by_seed in found.items() if name.startswith(top)]
    totals, tops = ([sum(seeds) / 64 for seeds in zip(*some, strict=True)] for some in (found.values(), highest))
    return tuple(zip(totals, map(math.sqrt, tops), strict=True))


def _depths_by_measuring(low: int, high: int) -> Callable[[Depths], Evidence]:
    def run(s: Depths) -> Evidence:
        answers: list[bool | None] = []
        numbers = {}
        for scheme, how in s.entries:
            found = exponent(_real_updates(scheme, low), _real_updates(scheme, high), high / low)
            stays = is_below(found, BETWEEN)
            answers.append(None if stays is None else stays is (how == "stays"))
            numbers[f"power of N, {scheme}"] = found.text
        return Evidence(
            route=Route.MEASURED,
            num_effective=len(answers),
            verdict=outcome(all_of(answers)),
            detail=f"the update of real encoder-decoders by autograd, d = 64, FFN 128, 2 heads, 4 tokens: its power of "
            f"N from {low}L-{low}L to {high}L-{high}L, stays below 1/8, grows above",
            numbers=numbers,
        )

    return run


def _init_against_plain(s: Depths) -> Evidence:
    """At 18L-18L, beside Post-LN: the update, and the top layer's gradient, which the open part is about."""
    plain = _init_network(18, is_scaled=False)
    answers: list[bool | None] = []
    numbers = {}
    for scheme, how in s.entries:
        found = _init_network(18, is_scaled=scheme == "post-ln-init")
        over = exponent([update for update, _ in plain], [update for update, _ in found], math.e)
        top = exponent([norm for _, norm in plain], [norm for _, norm in found], math.e)
        smaller = is_below(over, 0)
        answers.append(None if smaller is None else smaller is (how == "stays"))
        numbers[f"{scheme} over post-ln, log of the update"] = over.text
        numbers[f"{scheme} over post-ln, log of the gradient norm of the decoder's top layer"] = top.text
    return Evidence(
        route=Route.MEASURED,
        num_effective=len(answers),
        verdict=outcome(all_of(answers)),
        detail="real 18L-18L encoder-decoders at initialisation, d = 64, FFN 128, independent tokens: the update below "
        "Post-LN's",
        numbers=numbers,
    )


_INIT = Depths((("post-ln-init", "stays"),))
_TRAINING = "logged 18L-18L runs of Post-LN and Post-LN-init on one translation task"
_DN_13 = Claim(
    id="DN-13",
    source="deepnet",
    locator="Section 3, Post-LN-init and Figure 3",
    quote="Post-LN-init: W of layer l divided by k_l = N - l + 1, W_o^l ~ N(0, 1/(k_l^2 d')). 18L-18L: it converges, "
    "Post-LN does not, though the gradient norm of its top layers is larger",
    summary="Post-LN-init (weights of layer l over N - l + 1) trains where Post-LN does not, top gradients larger",
    parts=(
        Part(
            name="it keeps the update at initialisation from growing with depth",
            statement=_INIT,
            checks=(
                Check(route=Route.MEANFIELD, run=_depths_by_closed_form, is_direct=True),
                Check(route=Route.MEASURED, run=_init_against_plain, is_direct=True),
            ),
            mutants=(
                Mutant(name="it grows", statement=Depths((("post-ln-init", "grows"),))),
                Mutant(name="so does Post-LN", statement=Depths((("post-ln", "stays"),))),
            ),
        ),
        Part(
            name="18L-18L converges with it, and not without",
            statement=Depths((("post-ln-init", "stays"),)),
            checks=(awaits(_TRAINING),),
            mutants=(),
            open=_TRAINING,
            expected=Verdict.UNDECIDED,
        ),
        Part(
            name="its top-layer gradients are larger than Post-LN's",
            statement=Depths((("post-ln-init", "stays"),)),
            checks=(awaits(f"the gradient norms of {_TRAINING}"),),
            mutants=(),
            open=f"the gradient norms of {_TRAINING}. At initialisation on independent tokens they are not larger: the "
            "top layer is not scaled, and one token's gradient is the same in both (first part, last number)",
            expected=Verdict.UNDECIDED,
        ),
    ),
    expected=Verdict.UNDECIDED,
)

_FIGURE = Depths((("post-ln", "grows"), ("deepnet", "stays")))
_DN_14 = Claim(
    id="DN-14",
    source="deepnet",
    locator="Section 4, Figure 5",
    quote="update of 64-128-2 encoder-decoders, 6L-6L to 100L-100L: Post-LN's explodes with depth, DeepNet's is nearly "
    "constant",
    summary="the update of Post-LN explodes with depth, DeepNet's is nearly constant, 6L-6L to 100L-100L",
    uses=("DN-07",),
    parts=(
        Part(
            name="the update by depth",
            statement=_FIGURE,
            checks=(
                Check(route=Route.MEANFIELD, run=_depths_by_closed_form, is_direct=True),
                Check(route=Route.MEASURED, run=_depths_by_measuring(6, 24), is_direct=True),
            ),
            mutants=(
                Mutant(name="Post-LN stays", statement=Depths((("post-ln", "stays"), ("deepnet", "stays")))),
                Mutant(name="DeepNet grows", statement=Depths((("post-ln", "grows"), ("deepnet", "grows")))),
            ),
        ),
    ),
)

CLAIMS: tuple[Claim, ...] = (_DN_10, _DN_13, _DN_14)

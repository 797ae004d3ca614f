"""The kernel rung's walk: one token through FFNs is the scalar rung, and what must hold of any stack."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pytest
from scipy.special import stdtrit

from depthlaw.theory.kernel import walk
from depthlaw.theory.kernel.duals import dual
from depthlaw.theory.kernel.predict import (
    REPLICATES,
    Inputs,
    KernelUpdate,
    Sublayer,
    Transformer,
    predict_kernel,
    unit_power,
)
from depthlaw.theory.kernel.setting import PLACES, Heads
from depthlaw.theory.meanfield.recursion import letters_of
from depthlaw.theory.meanfield.update import predict
from depthlaw.theory.schemes import SCHEMES, Scheme
from depthlaw.theory.stack import PLACEMENTS, SublayerKind
from depthlaw.theory.symbols import L

SELF, CROSS, FFN = SublayerKind.SELF, SublayerKind.CROSS, SublayerKind.FFN
OPTIMIZERS = ("sgd", "adam", "lamb", "muon", "lars")
ONE_TOKEN = Inputs(num_tokens=1)


def trained(name: str) -> Scheme:
    """The scheme with branch weights that train."""
    scheme = SCHEMES[name]
    return replace(scheme, stack=replace(scheme.stack, trains_branch_weight=True))


def ffn_stack(scheme: Scheme, num_sublayers: int, activation: str, norm_kind: str) -> Transformer:
    """The network of the theorems, in the kernel rung's words."""
    letters = letters_of(scheme.stack, num_sublayers)
    placement = next((key for key, where in PLACEMENTS.items() if where == scheme.stack.placement), "none")
    sublayers = []
    for place in range(1, num_sublayers + 1):
        a, b, c, w, v = letters(place)
        assert a is not None
        sublayers.append(
            Sublayer(
                kind=FFN,
                residual_weight=a,
                branch_weight=b,
                input_scale=c,
                gains={"fc1": w, "fc2": v},
                trains_branch_weight=True,
            )
        )
    return Transformer(
        encoder=tuple(sublayers), placement=placement, norm_kind=norm_kind, activation=activation, ffn_ratio=1.0
    )


EXACT = ("sgd", "muon", "lars")
"""Without quasi-random hidden units, at one token."""


def disagreeing(
    scheme: Scheme, num_sublayers: int, activation: str, norm_kind: str, drawn: float = 1e-3
) -> set[tuple[str, str]]:
    """(optimizer, role) where the kernel rung is not the scalar one. drawn: error of hidden units' means."""
    start = float(scheme.stack.embedding_scale.subs(L, num_sublayers))
    stack, inputs = ffn_stack(scheme, num_sublayers, activation, norm_kind), replace(ONE_TOKEN, embedding_std=start)
    by_optimizer = predict_kernel(stack, inputs, OPTIMIZERS)
    missed = set()
    for optimizer, kernel in by_optimizer.items():
        scalar = predict(scheme, optimizer, num_sublayers, activation=activation, norm_kind=norm_kind)
        rate = 1.0 if optimizer == "sgd" else float(scheme.lr_multiplier.subs(L, num_sublayers))
        pairs = {role: (rate * kernel.roles[role], scalar.roles[role]) for role in ("fc1", "fc2", "branch_weight")}
        pairs["update"] = (rate * kernel.update, scalar.update)
        allowed = 1e-10 if optimizer in EXACT else drawn
        missed |= {
            (optimizer, role)
            for role, (by_kernel, by_scalar) in pairs.items()
            if not math.isclose(by_kernel, by_scalar, rel_tol=allowed, abs_tol=1e-15)
        }
    return missed


STACKS = [
    *((name, 3, "relu", "layernorm") for name in ("post-ln", "pre-ln", "sub-ln", "peri-ln", "t-fixup")),
    *((name, 3, "relu", "layernorm") for name in ("depth-mup", "ln-scaling", "fixup")),
    *((name, 2, "gelu", "rmsnorm") for name in ("post-ln", "pre-ln", "peri-ln", "t-fixup")),
    ("sub-ln", 3, "silu", "layernorm"),
    ("sub-ln", 3, "leaky_relu", "rmsnorm"),
    ("sub-ln", 64, "relu", "layernorm"),
]
"""Each place of the norms behind each kind of activation; one deep stack."""


@pytest.mark.parametrize(("name", "num_sublayers", "activation", "norm_kind"), STACKS)
def test_one_token_through_ffns_is_the_scalar_rung(
    name: str, num_sublayers: int, activation: str, norm_kind: str
) -> None:
    assert disagreeing(trained(name), num_sublayers, activation, norm_kind) == set()


@pytest.mark.parametrize("placement", ["post", "pre", "sub"])
def test_a_wide_ffn_is_a_square_one_of_other_gains(placement: str) -> None:
    """Of ratio r: W1 has variance 2/(1 + r) and r d rows, over which a product with W2 is summed."""
    ratio, count = 4.0, 3
    wide = Transformer(encoder=(Sublayer(kind=FFN),) * count, placement=placement, ffn_ratio=ratio)
    roles = predict_kernel(wide, ONE_TOKEN, ("sgd",))["sgd"].roles
    w, v = math.sqrt(2 / (1 + ratio)), math.sqrt(2 * ratio / (1 + ratio))
    square = predict(f"{placement}-ln", "sgd", count, w=[w] * count, v=[v] * count).roles
    assert roles["fc1"] == pytest.approx(square["fc1"], rel=1e-10)
    assert roles["fc2"] == pytest.approx(ratio * square["fc2"], rel=1e-10)


TOKENS = Inputs(num_tokens=4, correlation=0.2)
at_few_points = partial(predict_kernel, effort=0.1)
"""For what holds at any points."""


def layers(num_layers: int, **gains: float) -> tuple[Sublayer, ...]:
    kinds = (SELF, FFN) * num_layers
    return tuple(Sublayer(kind=kind, gains=gains) for kind in kinds)


def ratios(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    return {role: first[role] / second[role] for role in first if second[role] != 0}


def near(values: Mapping[str, float], wanted: Mapping[str, float], rel: float = 1e-7) -> bool:
    """Every role's value is as wanted, 1 where that says nothing: to the root of rounding, as of a matrix."""
    return all(math.isclose(value, wanted.get(role, 1.0), rel_tol=rel) for role, value in values.items())


@pytest.mark.parametrize(("most", "drawn"), [(2**28, 2), (0, 4)])
def test_attentions_are_drawn_once_where_memory_has_room(
    monkeypatch: pytest.MonkeyPatch, most: int, drawn: int
) -> None:
    """And the answer is the same to the last bit either way."""
    network, built, make = Transformer(encoder=layers(2), placement="pre"), [], walk.Attention
    wanted = at_few_points(network, TOKENS, ("adam",), replicates=1)["adam"]
    monkeypatch.setattr(walk, "Attention", lambda *args, **options: built.append(1) or make(*args, **options))
    monkeypatch.setattr(walk, "_MOST_KEPT", most)
    assert at_few_points(network, TOKENS, ("adam",), replicates=1)["adam"].roles == wanted.roles
    assert len(built) == drawn


@pytest.mark.parametrize("placement", PLACES)
def test_equal_tokens_have_no_use_for_queries_and_keys(placement: str) -> None:
    inputs = Inputs(num_tokens=3, correlation=1.0)
    runs = [
        at_few_points(Transformer(encoder=layers(2, q=gain, k=gain), placement=placement), inputs, OPTIMIZERS)
        for gain in (1.0, 3.0)
    ]
    for optimizer in OPTIMIZERS:
        plain, scaled = (run[optimizer].roles for run in runs)
        assert plain["q"] == plain["k"] == 0
        assert near(ratios(plain, scaled), {})
    different = at_few_points(Transformer(encoder=layers(2), placement=placement), TOKENS, ("sgd",))["sgd"].roles
    assert different["q"] > 0


SCHEDULED = tuple(
    Sublayer(kind=kind, gains={"v": gain, "fc1": gain}, lr_multipliers={"q": gain, "fc2": gain}, branch_weight=gain)
    for gain in (0.8, 1.2)
    for kind in (SELF, FFN)
)
"""Numbers that differ between sublayers of a kind."""
SEVERAL: dict[str, tuple[Transformer, Inputs]] = {
    "one side": (Transformer(encoder=SCHEDULED, placement="sub", is_causal=True), TOKENS),
    "two sides": (
        Transformer(encoder=SCHEDULED, decoder=(*SCHEDULED, Sublayer(kind=CROSS)), activation="geglu"),
        replace(TOKENS, loss="ce", num_classes=3),
    ),
    "drawn heads": (
        Transformer(encoder=SCHEDULED, placement="pre", head_size=4, heads=Heads(rotary_base=10.0, queries_per_key=2)),
        TOKENS,
    ),
    "visits": (Transformer(encoder=SCHEDULED, visits=2), TOKENS),
    # Preactivations are large, or not, as the points have it.
    **{
        name: (Transformer(encoder=layers(1, v=gain), placement="none", activation=name), replace(TOKENS, num_tokens=6))
        for name, gain in (("gelu", 11.75), ("tanh", 7.0))
    },
}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.wide] * (one == "two sides")) for one in SEVERAL]
)
def test_what_is_computed_together_is_what_it_is_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sets of points of a walk, and the parts of sublayers."""
    network, inputs = SEVERAL[name]
    steps, answers = ("sgd", "adam", "adafactor"), []
    for most in (walk._MOST_AT_ONCE, 1):
        monkeypatch.setattr(walk, "_MOST_AT_ONCE", most)
        monkeypatch.setattr(walk, "_MOST_WAITING", most)
        answers.append(predict_kernel(network, inputs, steps, effort=0.01))
    for together, alone in ((answer[step] for answer in answers) for step in steps):
        assert together.roles == pytest.approx(alone.roles, rel=1e-9)
        assert together.error == pytest.approx(alone.error, rel=1e-6, abs=1e-9)
        for side, of_side in alone.layers.items():
            for own, of_layer in zip(together.layers[side], of_side, strict=True):
                assert own == pytest.approx(of_layer, rel=1e-9)
        for side, streams in alone.streams.items():
            for own, stream in zip(together.streams[side], streams, strict=True):
                assert vars(own) == pytest.approx(vars(stream), rel=1e-9, abs=1e-12)


BEFORE_NORMS = {"sub": ("v", "fc1"), "peri": ("out", "fc2"), "normformer": ("out", "fc1")}
"""A matrix whose output a norm sees, so that its gain is nothing: in relu's case also behind the activation."""


@pytest.mark.parametrize("placement", BEFORE_NORMS)
def test_a_gain_before_a_norm_is_nothing_but_the_matrix_own(placement: str) -> None:
    """Its gradient is smaller by as much; LAMB and LARS, which scale by the matrix, see none of it."""
    roles, gain = BEFORE_NORMS[placement], 3.0
    for activation in ("relu", "gelu"):
        network = Transformer(encoder=layers(2), placement=placement, activation=activation)
        scaled = replace(network, encoder=layers(2, **dict.fromkeys(roles, gain)))
        with_gain, without = (at_few_points(n, TOKENS, ("sgd", "adam", "lamb", "lars")) for n in (scaled, network))
        powers = {"sgd": -2, "adam": -1, "lamb": 0, "lars": 0}
        is_nothing = []
        for optimizer, power in powers.items():
            moved = ratios(with_gain[optimizer].roles, without[optimizer].roles)
            is_nothing.append(near({r: x for r, x in moved.items() if r != "bias"}, dict.fromkeys(roles, gain**power)))
        assert all(is_nothing) == (activation == "relu" or "fc1" not in roles)


def outside_errors(update: KernelUpdate, wanted: Mapping[str, float], errors: Mapping[str, float]) -> set[str]:
    """The roles that are not what is wanted, by the stated errors (of four sets of points) at 1e-4 each."""
    reach = -float(stdtrit(REPLICATES - 1, 5e-5))
    return {
        role
        for role, value in update.roles.items()
        if abs(value - wanted[role]) > reach * (update.error[role] * value + errors[role]) + 1e-12 * abs(value)
    }


def test_a_sum_over_tokens_with_heads_of_their_own_is_a_sum_of_updates() -> None:
    """Under sgd. Behind a causal mask each is that of the last of as many tokens."""
    network = Transformer(encoder=layers(2), is_causal=True)
    together = predict_kernel(network, Inputs(num_tokens=4, correlation=0.2, readout="sum"), ("sgd",))["sgd"]
    alone = [predict_kernel(network, Inputs(num_tokens=t, correlation=0.2), ("sgd",))["sgd"] for t in (1, 2, 3, 4)]
    wanted = {role: sum(run.roles[role] for run in alone) for role in together.roles}
    errors = {role: math.hypot(*(run.roles[role] * run.error[role] for run in alone)) for role in together.roles}
    assert outside_errors(together, wanted, errors) == set()


ONE = (Sublayer(kind=SublayerKind.FFN),)

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "placement": (lambda: Transformer(encoder=ONE, placement="middle"), "placement .* not 'middle'"),
    "norm_kind": (lambda: Transformer(encoder=ONE, norm_kind="batchnorm"), "norm_kind .* not 'batchnorm'"),
    "no sublayer": (lambda: Transformer(encoder=()), "at least one sublayer"),
    "cross": (lambda: Transformer(encoder=(Sublayer(kind=SublayerKind.CROSS),)), "cross stands in the decoder"),
    "a zero branch": (
        lambda: Transformer(encoder=(replace(ONE[0], gains={"fc1": 0.0}),), placement="sub"),
        r"a norm \(inner\) behind fc1, which starts at 0",
    ),
    "num_tokens": (lambda: Inputs(num_tokens=0), "num_tokens is at least 1, not 0"),
    "batch_size": (lambda: Inputs(batch_size=-2), "batch_size is at least 1, not -2"),
    "too many": (lambda: Inputs(num_tokens=257, batch_size=2), "at most 512 tokens in all, not 2 x 257"),
    "correlation below": (lambda: Inputs(correlation=-0.1), "between 0 and 1, not at -0.1"),
    "readout": (lambda: Inputs(readout="first"), "readout .* not 'first'"),
    "loss": (lambda: Inputs(loss="mse"), "loss .* not 'mse'"),
    "num_classes": (lambda: Inputs(loss="ce", num_classes=1), "at least 2 classes, not 1"),
    "activation": (lambda: dual("swiglu"), "swiglu"),
    "unit of an unknown": (lambda: unit_power("adamm", "q"), "adamm"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_named_in_one_line(what: str) -> None:
    make, message = REFUSED[what]
    with pytest.raises(ValueError) as caught:
        make()
    text = str(caught.value)
    assert "\n" not in text
    assert re.search(message, text), text

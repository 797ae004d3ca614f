"""The kernel rung's walk: one token through FFNs is the scalar rung, and what must hold of any stack."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest
from scipy.special import stdtrit

import theory.kernel.walk as kernel_walk
from theory.kernel.predict import REPLICATES, Inputs, KernelUpdate, Sublayer, Transformer, predict_kernel
from theory.kernel.setting import PLACES
from theory.kernel.update import Part
from theory.meanfield.recursion import letters_of
from theory.meanfield.update import predict
from theory.schemes import SCHEMES, Scheme
from theory.stack import PLACEMENTS, SublayerKind
from theory.symbols import L

SELF, CROSS, FFN = SublayerKind.SELF, SublayerKind.CROSS, SublayerKind.FFN
OPTIMIZERS = ("sgd", "adam", "lamb", "muon", "lars")
ONE_TOKEN = Inputs(num_tokens=1)


# ---------------------------------------------------------------- one token through FFNs


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
    scheme: Scheme, num_sublayers: int, activation: str = "relu", norm_kind: str = "layernorm", drawn: float = 1e-3
) -> set[tuple[str, str]]:
    """(optimizer, role) where the kernel rung is not the scalar one. drawn: error of hidden units' means."""
    found = predict_kernel(ffn_stack(scheme, num_sublayers, activation, norm_kind), ONE_TOKEN, OPTIMIZERS)
    missed = set()
    for optimizer in OPTIMIZERS:
        kernel, scalar = (
            found[optimizer],
            predict(scheme, optimizer, num_sublayers, activation=activation, norm_kind=norm_kind),
        )
        rate = float(scheme.sign_lr_multiplier.subs(L, num_sublayers)) if optimizer == "adam" else 1.0
        pairs = {"update": (rate * kernel.update, scalar.update)}
        for role in ("fc1", "fc2"):
            pairs[role] = (rate * kernel.roles[role], scalar.roles[role])
        pairs["branch_weight"] = (rate * kernel.roles["branch_weight"], scalar.roles["branch_weight"])
        allowed = 1e-10 if optimizer in EXACT else drawn
        missed |= {
            (optimizer, role)
            for role, (one, other) in pairs.items()
            if not math.isclose(one, other, rel_tol=allowed, abs_tol=1e-15)
        }
    return missed


NAMED = (
    "post-ln",
    "pre-ln",
    "sub-ln",
    "peri-ln",
    "deepnorm",
    "t-fixup",
    "depth-mup",
    "ln-scaling",
    "sub-ln-gamma",
    "fixup",
    "rezero",
)


PLACED = ("post-ln", "pre-ln", "peri-ln", "t-fixup")  # sub-ln behind other activations is below


SLOW = ("deepnorm", "sub-ln-gamma", "rezero")  # other numbers in what others have


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in NAMED]
)
def test_one_token_through_ffns_is_the_scalar_rung(name: str) -> None:
    assert disagreeing(trained(name), 3) == set()
    assert name not in PLACED or disagreeing(trained(name), 2, "gelu", "rmsnorm") == set()


DEEP = ["sub-ln", *(pytest.param(name, marks=pytest.mark.slow) for name in ("post-ln", "pre-ln", "peri-ln", "t-fixup"))]


@pytest.mark.parametrize("name", DEEP)
def test_the_scalar_rung_at_depth(name: str) -> None:
    assert disagreeing(trained(name), 64) == set()


@pytest.mark.parametrize(
    ("activation", "norm_kind"), [("silu", "layernorm"), ("tanh", "layernorm"), ("leaky_relu", "rmsnorm")]
)
def test_other_activations_and_norms(activation: str, norm_kind: str) -> None:
    assert disagreeing(trained("sub-ln"), 3, activation, norm_kind) == set()


def test_a_role_that_is_twice_as_large_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Part.value
    for mutant in ("fc1", "fc2", "branch_weight"):
        monkeypatch.setattr(Part, "value", lambda part, of, to=mutant: real(part, of) * (2 if part.role == to else 1))
        assert {role for _, role in disagreeing(trained("pre-ln"), 3)} >= {mutant}


def test_a_gradient_that_is_not_divided_by_a_norm_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_walk, "_behind_norm", lambda gradient, _: gradient)
    for name in ("post-ln", "pre-ln", "sub-ln", "peri-ln"):
        assert ("sgd", "fc1") in disagreeing(trained(name), 3)


def test_a_mean_that_stays_before_an_inner_layernorm_is_seen() -> None:
    found = predict_kernel(ffn_stack(SCHEMES["sub-ln"], 3, "relu", "rmsnorm"), ONE_TOKEN, ("sgd",))["sgd"]
    assert found.roles["fc1"] != pytest.approx(predict("sub-ln", "sgd", 3).roles["fc1"], rel=1e-2)


# ---------------------------------------------------------------- what must hold of any stack

MATRICES = ("q", "k", "v", "out", "fc1", "fc2")
TOKENS = Inputs(num_tokens=4, correlation=0.2)
at_few_points = partial(predict_kernel, effort=0.1)
"""For what holds at any points."""


def layers(num_layers: int, **gains: float) -> tuple[Sublayer, ...]:
    kinds = (SELF, FFN) * num_layers
    return tuple(Sublayer(kind=kind, gains=gains) for kind in kinds)


def ratios(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {role: one[role] / other[role] for role in one if other[role] != 0}


def near(found: Mapping[str, float], wanted: Mapping[str, float], rel: float = 1e-7) -> bool:
    """Every role of ``found`` is ``wanted``, 1 where that says nothing: to the root of rounding, as of a matrix."""
    return all(math.isclose(value, wanted.get(role, 1.0), rel_tol=rel) for role, value in found.items())


@pytest.mark.parametrize("placement", PLACES)
def test_equal_tokens_have_no_use_for_queries_and_keys(placement: str) -> None:
    inputs = Inputs(num_tokens=3, correlation=1.0)
    runs = [
        at_few_points(Transformer(encoder=layers(2, q=gain, k=gain), placement=placement), inputs, OPTIMIZERS)
        for gain in (1.0, 3.0)
    ]
    for optimizer in OPTIMIZERS:
        one, other = (run[optimizer].roles for run in runs)
        assert one["q"] == one["k"] == 0
        assert near(ratios(one, other), {})
    different = [
        at_few_points(Transformer(encoder=layers(2, q=gain), placement=placement), TOKENS, ("sgd",))["sgd"].roles
        for gain in (1.0, 3.0)
    ]
    assert different[0]["q"] > 0
    assert not near(ratios(*different), {})


@pytest.mark.parametrize("head_size", [None, 4])
def test_queries_and_keys_count_by_their_product(head_size: int | None) -> None:
    """What one gains and the other loses changes their own updates alone."""
    one, other = (
        at_few_points(Transformer(encoder=layers(2, q=q, k=k), head_size=head_size), TOKENS, ("sgd", "adam", "lamb"))
        for q, k in ((2.0, 1.0), (1.0, 2.0))
    )
    assert near(ratios(one["sgd"].roles, other["sgd"].roles), {"q": 1 / 4, "k": 4.0} | _vectors(one, other, "sgd"))
    assert near(ratios(one["adam"].roles, other["adam"].roles), {"q": 1 / 2, "k": 2.0} | _vectors(one, other, "adam"))
    assert near(ratios(one["lamb"].roles, other["lamb"].roles), {})


def _vectors(one: Mapping[str, KernelUpdate], other: Mapping[str, KernelUpdate], optimizer: str) -> dict[str, float]:
    """Biases have q's, and none of k: theirs are not compared."""
    return {"bias": one[optimizer].roles["bias"] / other[optimizer].roles["bias"]}


BEFORE_NORMS = {"sub": ("v", "fc1"), "peri": ("out", "fc2"), "normformer": ("out", "fc1")}
"""A matrix whose output a norm sees, so that its gain is nothing: in relu's case also behind the activation."""


@pytest.mark.parametrize("placement", BEFORE_NORMS)
def test_a_gain_before_a_norm_is_nothing_but_the_matrix_own(placement: str) -> None:
    """Its gradient is smaller by as much; LAMB and LARS, which scale by the matrix, see none of it."""
    roles, gain = BEFORE_NORMS[placement], 3.0
    for activation in ("relu", "gelu"):
        network = Transformer(encoder=layers(2), placement=placement, activation=activation)
        scaled = replace(network, encoder=layers(2, **dict.fromkeys(roles, gain)))
        one, other = (at_few_points(n, TOKENS, ("sgd", "adam", "lamb", "lars")) for n in (scaled, network))
        powers = {"sgd": -2, "adam": -1, "lamb": 0, "lars": 0}
        fine = []
        for optimizer, power in powers.items():
            found = ratios(one[optimizer].roles, other[optimizer].roles)
            fine.append(near({r: x for r, x in found.items() if r != "bias"}, dict.fromkeys(roles, gain**power)))
        assert all(fine) == (activation == "relu" or "fc1" not in roles)


def test_a_post_norm_sees_only_the_ratio_of_its_weights() -> None:
    network = Transformer(encoder=layers(2))
    scaled = replace(network, encoder=tuple(replace(s, residual_weight=3.0, branch_weight=3.0) for s in layers(2)))
    one, other = (at_few_points(n, TOKENS, OPTIMIZERS) for n in (scaled, network))
    for optimizer in OPTIMIZERS:
        assert near(ratios(one[optimizer].roles, other[optimizer].roles), {})
    mutant = replace(network, encoder=tuple(replace(s, branch_weight=3.0) for s in layers(2)))
    assert not near(ratios(at_few_points(mutant, TOKENS, ("sgd",))["sgd"].roles, other["sgd"].roles), {})


def test_learning_rates_multiply_roles() -> None:
    rates = {"q": 2.0, "fc2": 3.0, "norm_gain": 5.0, "bias": 7.0}
    network = Transformer(encoder=layers(2))
    scaled = replace(network, encoder=tuple(replace(s, lr_multipliers=rates) for s in layers(2)))
    one, other = (at_few_points(n, TOKENS, OPTIMIZERS) for n in (scaled, network))
    for optimizer in OPTIMIZERS:
        assert near(ratios(one[optimizer].roles, other[optimizer].roles), rates)
        total = sum(one[optimizer].roles[role] for role in MATRICES)
        assert one[optimizer].update == pytest.approx(total, rel=1e-12)
        assert 10 ** one[optimizer].log10_update == pytest.approx(total, rel=1e-12)


def test_the_last_token_sees_all_with_or_without_a_mask() -> None:
    """In one attention; in two, what it sees has seen more."""
    for num, same in ((1, True), (2, False)):
        full = Transformer(encoder=(Sublayer(kind=SELF),) * num, placement="pre")
        found = [at_few_points(replace(full, is_causal=c), TOKENS, ("sgd",))["sgd"].roles for c in (True, False)]
        assert near(ratios(*found), {}) == same


def within_errors(one: KernelUpdate, wanted: Mapping[str, float], errors: Mapping[str, float]) -> set[str]:
    """Roles of ``one`` that are not what is wanted, by the stated errors (of four sets of points) at 1e-4 each."""
    reach = -float(stdtrit(REPLICATES - 1, 5e-5))
    return {
        role
        for role, value in one.roles.items()
        if abs(value - wanted[role]) > reach * (one.error[role] * value + errors[role]) + 1e-12 * abs(value)
    }


def test_a_sum_over_tokens_with_heads_of_their_own_is_a_sum_of_updates() -> None:
    """Under sgd. Behind a causal mask each is that of the last of as many tokens."""
    network = Transformer(encoder=layers(2), is_causal=True)
    together = predict_kernel(network, Inputs(num_tokens=4, correlation=0.2, readout="sum"), ("sgd",))["sgd"]
    alone = [predict_kernel(network, Inputs(num_tokens=t, correlation=0.2), ("sgd",))["sgd"] for t in (1, 2, 3, 4)]
    wanted = {role: sum(one.roles[role] for one in alone) for role in together.roles}
    errors = {role: math.hypot(*(one.roles[role] * one.error[role] for one in alone)) for role in together.roles}
    assert within_errors(together, wanted, errors) == set()
    short = {role: value - alone[0].roles[role] for role, value in wanted.items()}
    assert within_errors(together, short, errors) >= {"v", "out", "fc1", "fc2", "head", "embedding"}


def test_equal_places_are_read_alike() -> None:
    """Under a full attention every token's update is the last one's."""
    network = Transformer(encoder=layers(2), placement="pre")
    one, every = (predict_kernel(network, replace(TOKENS, readout=r), ("sgd",))["sgd"] for r in ("last", "sum"))
    errors = {role: 4 * one.roles[role] * one.error[role] for role in one.roles}
    assert within_errors(every, {role: 4 * value for role, value in one.roles.items()}, errors) == set()
    assert within_errors(every, {role: 3 * value for role, value in one.roles.items()}, errors) >= set(MATRICES)


def test_a_batch_of_unrelated_sequences_is_a_mean() -> None:
    """Of an activation without a mean, tokens of two sequences never meet: each has its part of the batch's update."""
    network = Transformer(encoder=layers(2), activation="identity", is_causal=True)
    one, three = (predict_kernel(network, Inputs(num_tokens=3, batch_size=b), ("sgd",))["sgd"] for b in (1, 3))
    roles = (*MATRICES, "head", "embedding", "norm_gain")
    wanted = {role: one.roles[role] / 3 for role in one.roles}
    errors = {role: one.error[role] * wanted[role] for role in one.roles}
    assert within_errors(three, wanted, errors) & set(roles) == set()
    relu = predict_kernel(replace(network, activation="relu"), Inputs(num_tokens=3, batch_size=3), ("sgd",))["sgd"]
    alone = predict_kernel(replace(network, activation="relu"), Inputs(num_tokens=3), ("sgd",))["sgd"]
    assert {"fc1", "fc2"} <= within_errors(relu, {r: x / 3 for r, x in alone.roles.items()}, errors)
    assert relu.roles["fc2"] > alone.roles["fc2"] / 3


def test_a_decoder_is_a_walk_of_its_own() -> None:
    """Without a branch in the cross-attention nothing reaches the encoder, and the decoder is a causal encoder."""
    decoder = (Sublayer(kind=SELF), Sublayer(kind=CROSS, branch_weight=0.0), Sublayer(kind=FFN))
    both = Transformer(encoder=layers(1), decoder=decoder)
    found = predict_kernel(both, TOKENS, ("sgd",))["sgd"].roles
    alone = predict_kernel(Transformer(encoder=layers(1), is_causal=True), TOKENS, ("sgd",))["sgd"]
    for role in MATRICES:
        assert found[role] == pytest.approx(alone.roles[role], rel=0.2), "other points"
    assert all(found[f"cross_{role}"] == 0 for role in ("q", "k", "v", "out"))
    open_ = replace(both, decoder=(*decoder[:1], Sublayer(kind=CROSS), *decoder[2:]))
    opened = predict_kernel(open_, TOKENS, ("sgd",))["sgd"].roles
    assert all(opened[f"cross_{role}"] > 0 for role in ("q", "k", "v", "out"))


@pytest.mark.parametrize("correlation", [0.0, 0.2])
def test_rounding_of_the_inputs_stays_rounding(correlation: float) -> None:
    """Tokens that are alike have equal eigenvalues, whose axes are up to rounding: nothing hangs on them."""
    near_by = math.nextafter(correlation, 1) if correlation else 1e-16
    network = Transformer(encoder=layers(2), head_size=4)
    one, other, further = (
        at_few_points(network, Inputs(num_tokens=5, correlation=c), ("sgd", "adam"))
        for c in (correlation, near_by, correlation + 1e-4)
    )
    for optimizer in one:
        assert near(ratios(one[optimizer].roles, other[optimizer].roles), {})
        assert not near(ratios(one[optimizer].roles, further[optimizer].roles), {})

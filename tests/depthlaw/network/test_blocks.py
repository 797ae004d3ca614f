"""The blocks that people train: what is predicted of each is what real networks do, and recipes are what they say."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import pytest
import torch

from depthlaw.network.block import Block
from depthlaw.network.kernel import as_inputs, as_transformer
from depthlaw.network.lower import lower_transformer
from depthlaw.network.network import Network
from depthlaw.recipes.catalogue import RECIPES, recipe
from depthlaw.recipes.recipe import LETTERS, evaluate
from depthlaw.sims.measure import Question, collect, run
from depthlaw.sims.model import ModelConfig, SublayerConfig, Transformer, alternating, by_role, gradients, side_by_side
from depthlaw.sims.stats import estimate
from depthlaw.sims.update import Task
from depthlaw.theory.kernel.predict import predict_kernel, unit_power
from depthlaw.theory.kernel.softmax import DrawnNorm
from depthlaw.theory.symbols import N, d, l
from tests.often import often

D, LAYERS, SEEDS = 256, 2, 32
TASK = Task(num_tokens=8, correlation=0.5, trains_inputs=True, readout="sum")
OPTIMIZERS = ("sgd", "adam")
ALLOWED = 0.06
"""Of a role, beside its interval: the correction of order L/d and that of few heads."""


def config(norms: tuple[frozenset[str], frozenset[str]] | None = None, **shape: Any) -> ModelConfig:
    sublayers = alternating(2 * LAYERS)
    if norms is not None:
        sublayers = tuple(replace(one, norms=norms[one.kind == "ffn"]) for one in sublayers)
    numbers = {"placement": "pre", "d_model": D, "num_heads": 8, "has_affine": True, "has_short_draws": True}
    return ModelConfig(**{**numbers, "encoder": sublayers, **shape})


def mixing() -> tuple[SublayerConfig, ...]:
    """Every attention, the first among them, says that it mixes values; the first has none to mix in."""
    mixed = {"value_weight": 0.5, "first_value_weight": 0.8}
    return tuple(replace(one, **mixed) if one.kind == "attention" else one for one in alternating(2 * LAYERS + 2))


BLOCKS: dict[str, ModelConfig] = {
    "gated": config(activation="swiglu"),
    "gated behind an inner norm": config(activation="geglu", placement="sub", has_bias=True),
    "norms of queries and keys": config(has_qk_norm=True),
    "over all heads": config(has_qk_norm=True, has_wide_norms=True, norm_kind="rmsnorm"),
    "grouped heads": config(num_kv_heads=2, has_bias=True),
    "wide heads": config(head_size=64),
    "rotary": config(rotary_base=100.0, is_causal=True),
    "rotary behind norms": config(rotary_base=100.0, has_qk_norm=True),
    "capped and scaled logits": config(logit_softcap=1.0, attention_scale=0.25),
    "side by side": config(encoder=side_by_side(alternating(2 * LAYERS)), has_bias=True),
    "side by side between norms": config(
        encoder=side_by_side(alternating(2 * LAYERS, norms=frozenset({"pre", "branch", "post"}))), has_bias=True
    ),
    "norms behind branches": config((frozenset({"branch", "q", "k"}), frozenset({"branch"})), has_final=True),
    "two norms": config((frozenset({"pre", "post"}), frozenset({"pre", "post"})), placement="none"),
    "by kind of sublayer": config((frozenset({"q", "k", "v"}), frozenset({"post"})), has_final=True),
    "layer scale": config(encoder=alternating(2 * LAYERS, has_layer_scale=True, branch_weight=0.3)),
    "dyt": config(norm_kind="dyt"),
    "two streams": config(placement="post", has_second_stream=True, has_bias=True),
    "x_0 again": config(encoder=alternating(2 * LAYERS, residual_weight=0.8, input_weight=0.6), has_bias=True),
    "x_0 again behind post-norms": config(encoder=alternating(2 * LAYERS, input_weight=1.0), placement="post"),
    "values of the first attention": config(encoder=mixing(), num_kv_heads=4, has_bias=True),
    "eps of norms": config(
        (frozenset({"pre", "q", "k", "branch"}), frozenset({"inner", "post"})), has_final=True, norm_eps=0.5
    ),
    "input and head": config(embedding_std=0.3, embedding_multiplier=2.0, head_gain=0.5),
}
SLOW = {
    "gated",
    "norms of queries and keys",
    "norms behind branches",
    "side by side",
    "x_0 again behind post-norms",
    "over all heads",
    "wide heads",
    "rotary",
    "two norms",
    "by kind of sublayer",
    "layer scale",
    "input and head",
}


def ratios(network: ModelConfig) -> dict[str, tuple[float, float]]:
    """Measured over predicted, by optimizer and role: the interval of the mean over independent networks."""
    transformer = as_transformer(network, head_size=network.size_of_head)
    predictions = predict_kernel(transformer, as_inputs(TASK, network), OPTIMIZERS)
    values: dict[str, list[float]] = {}
    for result in run(Question(config=network, task=TASK, optimizers=OPTIMIZERS, dtype="float32"), range(SEEDS)):
        for name, numbers in result.values.items():
            values.setdefault(name, []).extend(numbers)
    ends = {}
    for optimizer, prediction in predictions.items():
        for role, predicted in {"update": prediction.update, **prediction.roles}.items():
            name = f"{optimizer}/{role}"
            if name in values:  # not a bias that this network does not train
                unit = 1.0 if role == "update" else D ** unit_power(optimizer, role)
                over = estimate([value * unit / predicted for value in values[name]], level=0.9999)
                assert over.low is not None and over.high is not None
                ends[name] = over.low, over.high
    return ends


@pytest.mark.parametrize(
    "name",
    [
        *often((name for name in BLOCKS if name not in SLOW), 6, wide=1),
        *(pytest.param(name, marks=pytest.mark.slow) for name in BLOCKS if name in SLOW),
    ],
)
def test_what_is_predicted_is_what_networks_do(name: str) -> None:
    """Every role, and the update of the matrices to half of what a role is allowed.

    Under adam the roles behind dyt are 3 to 7 % off: its entries are bounded, and theory takes them for Gaussian.
    """
    for role, (low, high) in ratios(BLOCKS[name]).items():
        is_update = role.endswith("/update")
        allowed = ALLOWED / 2 if is_update else ALLOWED
        assert low - allowed < 1 < high + allowed, role
        assert not is_update or high - low < 0.4


@pytest.mark.parametrize("name", often(["x_0 again", "gated", "two norms", "dyt", "norms behind branches"], 4, wide=2))
def test_what_each_layer_does_is_predicted(name: str) -> None:
    """Of each x_l its size, its cosines and its gradient, and of each sublayer its part of the update and the gradients
    of its matrices."""
    network = BLOCKS[name]
    transformer = as_transformer(network, head_size=network.size_of_head)
    prediction = predict_kernel(transformer, as_inputs(TASK, network), ["sgd"])["sgd"]
    values = collect(Question(config=network, task=TASK, has_layers=True, dtype="float32"), range(16))
    wanted = {}
    for index, stream in enumerate(prediction.streams["encoder"]):
        at = f"layer/encoder/{index}"
        wanted |= {f"{at}/{one}": getattr(stream, one) for one in ("second_moment", "cosine_with_previous")}
        wanted |= {f"{at}/token_correlation": stream.token_correlation}
        wanted |= {f"{at}/gradient_square": 10**stream.log10_gradient_square}
        if name == "gated":  # nothing but the branch is added, which knows nothing of the stream
            assert stream.branch_share == pytest.approx(1 - stream.cosine_with_previous**2, abs=1e-3)
    for index, (attention, ffn) in enumerate(zip(*[iter(prediction.layers["encoder"])] * 2, strict=True), start=1):
        wanted |= {f"sgd/layer/{role}/{index}": attention[role] for role in ("v", "out")}
        wanted |= {f"sgd/layer/{role}/{index}": ffn[role] for role in ("fc1", "fc2")}
    for index, (attention, ffn) in enumerate(zip(*[iter(prediction.gradients["encoder"])] * 2, strict=True), start=1):
        wanted |= {f"layer/gradient/{role}/{index}": attention[role] for role in ("v", "out")}
        wanted |= {f"layer/gradient/{role}/{index}": ffn[role] for role in ("fc1", "fc2")}
    for quantity, predicted in wanted.items():
        over = estimate([value / predicted for value in values[quantity]], level=0.9999)
        assert over.low is not None and over.high is not None
        assert over.low - ALLOWED < 1 < over.high + ALLOWED, quantity


def test_layers_add_up_to_the_whole() -> None:
    network = BLOCKS["gated"]
    transformer = as_transformer(network, head_size=network.size_of_head)
    for answer in predict_kernel(transformer, as_inputs(TASK, network), OPTIMIZERS, replicates=1).values():
        for role in ("q", "k", "v", "out", "fc1", "fc2"):
            assert sum(layer.get(role, 0.0) for layer in answer.layers["encoder"]) == pytest.approx(answer.roles[role])


def test_the_derivative_of_a_head_s_norm_is_autograd_s() -> None:
    """(points, tokens, K) vectors, and r gradients at each: real heads are too large to see it in."""
    vectors, gradients = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 3, 5, 4, dtype=torch.float64)
    told = DrawnNorm(vectors.numpy()).back(gradients.numpy(), slice(None))
    for which in range(gradients.shape[2]):
        leaf = vectors.clone().requires_grad_()
        (leaf / leaf.norm(dim=-1, keepdim=True)).backward(gradients[:, :, which])
        assert leaf.grad is not None
        torch.testing.assert_close(torch.from_numpy(told[:, :, which]), leaf.grad)


def test_a_block_is_the_papers_until_an_option_says_otherwise() -> None:
    network = lower_transformer("deepnorm", "adam", 4, 32, num_heads=4)
    assert Block().on(network) is network
    for option in ({"has_qk_norm": True}, {"num_kv_heads": 2}, {"has_rotary": True}, {"logit_softcap": 2.0}):
        block = Block(**cast("Any", option))
        assert block.on(network) != network
        assert block.options == option
    published = recipe("llama-2").config(2, 64, 4)
    assert Block(norm_eps=1e-5).on(published) == replace(published, norm_eps=1e-5)


def test_gpt_2_as_it_is_initialised() -> None:
    """0.02 everywhere, and 0.02/sqrt(2N) of the two output matrices; the head is the embedding."""
    network = lower_transformer("gpt2", "adamw", 24, 768, num_heads=12, is_causal=True)
    built = Block(init_std=0.02, embedding_std=0.02, is_head_tied=True).on(network)
    attention, ffn = built.encoder[:2]
    for sublayer, role in ((attention, "q"), (attention, "k"), (attention, "v"), (ffn, "fc1")):
        assert built.std(sublayer, role) == pytest.approx(0.02)
    assert built.std(attention, "out") == built.std(ffn, "fc2") == pytest.approx(0.02 / math.sqrt(24))
    assert built.head_gain / math.sqrt(768) == pytest.approx(built.embedding_std) == pytest.approx(0.02)


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(ValueError, match="layers of these two, a whole number of them"):
        side_by_side(alternating(3))
    with pytest.raises(ValueError, match="one residual weight"):
        side_by_side((SublayerConfig(kind="attention"), SublayerConfig(kind="ffn", residual_weight=2.0)))
    within = side_by_side(alternating(2, norms=frozenset({"inner"})))
    with pytest.raises(ValueError, match="no norm within the branch"):
        config(encoder=within)
    with pytest.raises(ValueError, match="init_std is a number above 0"):
        Block(init_std=-1.0)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_a_prediction_at_every_size(name: str) -> None:
    """Small and shallow; every number of it is finite, and its source says where to look."""
    found = recipe(name)
    network = found.config(2, 64, 4 * found.queries_per_key)
    inputs = as_inputs(Task(num_tokens=4), network)
    told = predict_kernel(as_transformer(network, head_size=None), inputs, ("adamw",), effort=0.02)["adamw"]
    is_identity = found.layer_scale == 0  # at the start: its gates move, and no matrix behind them
    assert math.isfinite(told.update) and (told.update > 0) is not is_identity
    assert not is_identity or told.roles["layer_scale"] > 0
    assert any(character.isdigit() for character in found.source) and found.says


class WithTalkingHeads(Transformer):
    """CaiT's: scores, and behind the softmax weights, are mixed over heads by matrices that start at 0.02."""

    is_traced = False

    def _mixed(self, q_BTD: torch.Tensor, k_BSD: torch.Tensor, v_BSD: torch.Tensor, is_causal: bool) -> torch.Tensor:
        assert not is_causal and not self.config.logit_softcap
        heads = (self.config.num_heads, -1)
        q, k, v = (x.unflatten(-1, heads).transpose(-3, -2) for x in (q_BTD, k_BSD, v_BSD))
        shape, kind = heads[:1] * 2, q.dtype
        mixing = [0.02 * torch.randn(shape, generator=self._generator, dtype=kind) for _ in range(2)]
        scores = torch.einsum("gh,...hts->...gts", mixing[0], self._scale * q @ k.mT)
        weights = torch.einsum("gh,...hts->...gts", mixing[1], scores.softmax(-1))
        return (weights @ v).transpose(-3, -2).flatten(-2)


@pytest.mark.slow
def test_what_cait_s_talking_heads_make_of_attention() -> None:
    """The recipe leaves them out and says what they are: v and out move 0.02 sqrt(H) as far, q and k its square; and
    the FFNs as far as without."""
    num_heads = 8
    network = replace(recipe("cait").config(2, 128, num_heads), num_outputs=1)
    size = 0.02**2 * num_heads
    expected = {"q": size**2, "k": size**2, "v": size, "out": size, "fc1": 1.0, "fc2": 1.0}
    sums: dict[type[Transformer], list[dict[str, float]]] = {Transformer: [], WithTalkingHeads: []}
    for seed in range(64):
        inputs = torch.randn(1, 8, 128, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        for kind, several in sums.items():
            model = kind(network, seed)
            logit = model.logits(model(inputs))[0, -1, 0]
            several.append(by_role(model, gradients(model, logit), lambda grad: grad.square().sum()))
    for role, share in expected.items():
        without = sum(one[role] for one in sums[Transformer]) / len(sums[Transformer])
        over = estimate([one[role] / (share * without) for one in sums[WithTalkingHeads]], level=0.9999)
        assert over.low is not None and over.high is not None
        assert over.low < 1 < over.high and over.high - over.low < 1.2, role


class WithScales(Transformer):
    """DyT as it is published: the scale of each is a parameter of its own, which our block holds at its first value."""

    def _norm(self, place: str, name: str, x_BTD: torch.Tensor) -> torch.Tensor:
        if place not in self._places[name]:
            return x_BTD
        scale = torch.tensor(self.config.norm_scale, dtype=x_BTD.dtype, requires_grad=True)
        self.scales.append(scale)
        return torch.tanh(scale * x_BTD)

    scales: list[torch.Tensor]


@pytest.mark.slow
def test_dyt_s_scale_is_a_small_part_of_its_update() -> None:
    """One number of each norm, which no role has: under 5 % of the matrices' update under sgd at this width, and under
    0.1 % under sign-type optimizers. It falls as 1/d and as d^(-3/2)."""
    network = config(norm_kind="dyt", has_affine=False, num_outputs=1)
    shares: dict[str, list[float]] = {"sgd": [], "adam": []}
    for seed in range(32):
        model = WithScales(network, seed)
        model.scales = []
        inputs = torch.randn(1, 8, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        logit = model.logits(model(inputs))[0, -1, 0]
        assert len(model.scales) == 2 * LAYERS + 1
        own = torch.stack(torch.autograd.grad(logit, model.scales, retain_graph=True))
        grads = gradients(model, logit)
        matrices = torch.cat([grads[name].flatten() for name, _, role in model.tagged() if role != "head"])
        shares["sgd"].append(float(own.square().sum() / matrices.square().sum()))
        shares["adam"].append(float(own.abs().sum() / matrices.abs().sum()))
    for optimizer, most in {"sgd": 0.05, "adam": 0.001}.items():
        share = estimate(shares[optimizer], level=0.9999)
        assert share.high is not None and 0 < share.high < most


LARGEST_EPS = 1e-5
"""Of the norms of a published model."""


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_no_recipe_depends_on_the_eps_of_its_norms_by_one_percent(name: str) -> None:
    """At its own width, where RECIPES.md leaves it out; 4 layers, as deeper ones depend on it less."""
    model, told = recipe(name), []
    for eps in (0.0, LARGEST_EPS):
        asked = Network.of_recipe(model, 4, model.size["d_model"], block=Block(norm_eps=eps))
        answer = asked.kernel_update("adamw", effort=0.1)
        told.append(answer.update or answer.roles["layer_scale"])
    assert told[1] != told[0]
    assert told[1] == pytest.approx(told[0], rel=0.01)


@pytest.mark.parametrize(
    ("name", "widths"),
    [
        ("gemma-2", {2304: 9216, 3584: 14_336}),
        ("hybrid-norm", {2048: 8192}),
        ("llama-2", {4096: 11_008}),
        ("llama-3", {256: 768, 4096: 14_336, 8192: 28_672}),
        ("ln-scaling", {768: 2048, 2048: 5461}),
        ("mitchell", {4096: 11_008}),
        ("mix-ln", {768: 2048, 2048: 5461}),
        ("qwen-3", {1024: 3072, 2048: 6144}),
    ],
)
def test_a_recipe_s_ffn_is_as_wide_as_its_source_s(name: str, widths: dict[int, int]) -> None:
    """By d_model, of the models that its source has."""
    found = recipe(name)
    assert {d: found.config(2, d, found.heads_at(d)).hidden for d in widths} == widths


def test_a_recipe_s_laws_follow_the_layer_and_the_depth() -> None:
    mitchell = recipe("mitchell").config(4, 64, 4)
    stds = [mitchell.std(sublayer, "out") for sublayer in mitchell.encoder[::2]]
    assert stds == pytest.approx([stds[0] / math.sqrt(layer) for layer in (1, 2, 3, 4)])
    keel = recipe("keel").config(4, 64, 4)
    assert [one.residual_weight for one in keel.encoder] == [1.0] * 2 + [8.0] * 6
    assert ["post" in (one.norms or ()) for one in keel.encoder] == [False] * 2 + [True] * 6
    mixed = recipe("mix-ln").config(8, 64, 4)
    assert ["post" in (one.norms or ()) for one in mixed.encoder] == [True] * 4 + [False] * 12
    letters = dict.fromkeys(LETTERS, 8.0) | {N: 4.0, l: 2.0}
    assert evaluate(d / N + l, letters) == 4
    with pytest.raises(ValueError, match="no multiple of the 4 that share keys"):
        recipe("llama-3").config(2, 64, 6)

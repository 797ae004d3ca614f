"""The gallery: Transformers with one planted mistake each, and beside each its twin without it.

A twin is right for the scheme or recipe that it claims, by formulas written by hand. A planted fault is the twin with
one mistake, of a kind that issue trackers are full of.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.depthlaw.auditing.transformer import (
    NUM_HEADS,
    PRE,
    At,
    Build,
    LanguageModel,
    Law,
    Matrix,
    Shape,
    Stack,
    Sublayer,
    Translator,
    everywhere,
    matrices,
    one,
    start,
    transformer,
    xavier,
)

LAYERS = (2, 4, 8)
OUTPUTS = ("out", "fc2")
GAINED = ("v", "out", "fc1", "fc2", "cross_v", "cross_out")
"""Roles that DeepNorm's gain is for."""


@dataclass(frozen=True, kw_only=True)
class Twin:
    """A right implementation. build: number of layers (of either side) to module. layers: the depths to look at.
    inputs: what the module is called with, where that is not guessed."""

    name: str
    build: Build
    scheme: str | None = None
    recipe: str | None = None
    layers: tuple[int, ...] = LAYERS
    inputs: Callable[[nn.Module], Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A mistake. says: what the programmer did. twin: the same without it, whose claim both make. kind, roles: of the
    fault that is to be reported; no roles where the fault is of none."""

    name: str
    says: str
    twin: Twin
    build: Build
    kind: str
    roles: tuple[str, ...] = ()


# ---------------------------------------------------------------- GPT-2: outputs smaller by 1/sqrt(2N)

GPT_2 = Shape(is_fused=True, is_tied=True, has_positions=True)


def gpt_2(matrix: Matrix) -> float:
    return 0.02 / math.sqrt(2 * matrix.place.num_layers) if matrix.role in OUTPUTS else 0.02


def flat(_: Matrix) -> float:
    return 0.02


def only(law: Law, *roles: str, otherwise: Law = flat) -> Law:
    """The law for these roles, another one for the rest."""
    return lambda matrix: (law if matrix.role in roles else otherwise)(matrix)


def outputs(factor: Callable[[At], float], base: Law = flat) -> Law:
    """The base law, times a factor on output matrices."""
    return lambda matrix: base(matrix) * (factor(matrix.place) if matrix.role in OUTPUTS else 1)


gpt2 = Twin(name="gpt2", build=transformer(GPT_2, gpt_2), recipe="gpt2")
gpt2_apart = Twin(
    name="gpt2, q, k and v apart", build=transformer(replace(GPT_2, is_fused=False), gpt_2), recipe="gpt2"
)


def suffix_of(model: Any) -> None:
    for name, parameter in model.named_parameters():
        if name.endswith("proj.weight"):
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * len(model.stack.blocks)))


def attention_only(model: Any) -> None:
    for block in model.stack.blocks:
        nn.init.normal_(block.attention.branch.out_proj.weight, std=0.02 / math.sqrt(2 * len(model.stack.blocks)))


def all_but_last(model: Any) -> None:
    for number in range(len(model.stack.blocks) - 1):
        for branch in (model.stack.blocks[number].attention.branch, model.stack.blocks[number].ffn.branch):
            name = "out_proj" if hasattr(branch, "out_proj") else "down_proj"
            nn.init.normal_(getattr(branch, name).weight, std=0.02 / math.sqrt(2 * len(model.stack.blocks)))


def scale_outputs(model: Any) -> None:
    for matrix in matrices(model):
        if matrix.role in OUTPUTS:
            matrix.weight.mul_(1 / math.sqrt(2 * matrix.place.num_layers))


def reset(model: Any) -> None:
    """What a generic ``_init_weights`` does to every linear layer."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)


def torch_biases(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.bias is not None:
            bound = module.in_features**-0.5
            nn.init.uniform_(module.bias, -bound, bound)


def scale_tied_twice(model: Any) -> None:
    with torch.no_grad():
        for name in ("stack.embedding", "lm_head"):
            model.get_submodule(name).weight.mul_(0.1)


def scale_embedding(model: Any) -> None:
    with torch.no_grad():
        model.stack.embedding.weight.mul_(0.1)


def all_parameters_normal(model: Any) -> None:
    for name, parameter in model.named_parameters():
        if "norm" in name and name.endswith("weight"):
            nn.init.normal_(parameter, std=0.02)


def gains_of_a_tenth(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
            nn.init.constant_(module.weight, 0.1)


def default_embedding(model: Any) -> None:
    model.stack.embedding.reset_parameters()


def copied_layers(model: Any) -> None:
    blocks = model.stack.blocks
    model.stack.blocks = nn.ModuleList(copy.deepcopy(blocks[0]) for _ in blocks)


def shared_layers(model: Any) -> None:
    blocks = model.stack.blocks
    model.stack.blocks = nn.ModuleList([blocks[0]] * len(blocks))


def layers_in_turn(model: Any) -> None:
    blocks = model.stack.blocks
    model.stack.blocks = nn.ModuleList([*blocks[: len(blocks) // 2]] * 2)


def copies_in_turn(model: Any) -> None:
    blocks = model.stack.blocks
    model.stack.blocks = nn.ModuleList(copy.deepcopy(blocks[number % 2]) for number in range(len(blocks)))


def shared_ffn(model: Any) -> None:
    for block in model.stack.blocks:
        block.ffn.branch.down_proj.weight = model.stack.blocks[0].ffn.branch.down_proj.weight


def reset_layer_2(model: Any) -> None:
    for module in model.stack.blocks[1].modules():
        if isinstance(module, nn.Linear):
            nn.init.kaiming_uniform_(module.weight, a=5**0.5)


def zero_layers(model: Any) -> None:
    for block in model.stack.blocks:
        nn.init.zeros_(block.ffn.branch.down_proj.weight)
        nn.init.zeros_(block.ffn.branch.up_proj.weight)


class ResidualLeftOut(Sublayer):
    """The second layer's FFN gives its branch alone."""

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        if (self.at.layer, self.at.kind) == (2, "ffn"):
            return self.added(x, memory)
        return super().forward(x, memory)


def but_layer_2(places: Callable[[At], frozenset[str]], *missing: str, kind: str = "ffn") -> Callable:
    """The norms but these, which the second layer lacks."""
    return lambda at: places(at) - set(missing) if (at.layer, at.kind) == (2, kind) else places(at)


def _gpt2(name: str, says: str, kind: str, roles: tuple[str, ...] = (), *, build: Build) -> Planted:
    return Planted(name=name, says=says, twin=gpt2, build=build, kind=kind, roles=roles)


_GPT2_FAULTS = (
    _gpt2(
        "hf-gpt2-c-proj",
        "The rule for output matrices is written, but the generic initialisation runs later and erases it.",
        "init-law",
        OUTPUTS,
        build=transformer(GPT_2, gpt_2, reset),
    ),
    _gpt2(
        "logits-not-divided",
        "The products of queries and keys are not divided by the square root of the head size.",
        "attention-scale",
        ("q",),
        build=transformer(replace(GPT_2, attention_scale=1.0), gpt_2),
    ),
    _gpt2(
        "logits-divided-twice",
        "They are divided by the head size, and not by its square root.",
        "attention-scale",
        ("q",),
        build=transformer(replace(GPT_2, attention_scale=NUM_HEADS / GPT_2.d_model), gpt_2),
    ),
    _gpt2(
        "n-for-2n",
        "Outputs are divided by sqrt(N), with the number of layers in the place of the number of sublayers.",
        "init-constant",
        OUTPUTS,
        build=transformer(GPT_2, outputs(lambda at: at.num_layers**-0.5)),
    ),
    _gpt2(
        "square-root-forgotten",
        "Outputs are divided by 2N instead of its square root.",
        "init-law",
        OUTPUTS,
        build=transformer(GPT_2, outputs(lambda at: 1 / (2 * at.num_layers))),
    ),
    _gpt2(
        "sign-of-the-exponent",
        "Outputs are multiplied by sqrt(2N) instead of divided by it.",
        "init-law",
        OUTPUTS,
        build=transformer(GPT_2, outputs(lambda at: math.sqrt(2 * at.num_layers))),
    ),
    _gpt2(
        "attention-alone",
        "The rule is applied to the attention's output matrix and not to the FFN's.",
        "init-law",
        ("fc2",),
        build=transformer(GPT_2, flat, attention_only),
    ),
    _gpt2(
        "scaled-twice",
        "Output matrices are drawn small, and divided by sqrt(2N) once more.",
        "init-law",
        OUTPUTS,
        build=transformer(GPT_2, gpt_2, scale_outputs),
    ),
    _gpt2(
        "last-layer-skipped",
        "The loop over layers ends one too early: the last layer's outputs are not made smaller.",
        "init-law",
        OUTPUTS,
        build=transformer(GPT_2, flat, all_but_last),
    ),
    _gpt2(
        "depth-of-the-default-config",
        "The factor is that of 12 layers, the default of the configuration, whatever is built.",
        "init-law",
        OUTPUTS,
        build=transformer(GPT_2, outputs(lambda at: 24**-0.5)),
    ),
    _gpt2(
        "index-for-depth",
        "Outputs are divided by sqrt(2l), with the layer's index in the place of the number of layers.",
        "init-law",
        OUTPUTS,
        build=transformer(GPT_2, outputs(lambda at: (2 * at.layer) ** -0.5)),
    ),
    _gpt2(
        "init-and-branch-weight",
        "Both the outputs' initialisation and the branch itself are divided by sqrt(2N).",
        "branch-weight",
        build=transformer(replace(GPT_2, branch_weight=lambda at: (2 * at.num_layers) ** -0.5), gpt_2),
    ),
    _gpt2(
        "torch-biases",
        "Weights are drawn anew and biases left as torch made them: uniform, not zero.",
        "bias",
        build=transformer(GPT_2, gpt_2, torch_biases),
    ),
    _gpt2(
        "final-norm-forgotten",
        "The norm behind the last layer is missing.",
        "norms",
        build=transformer(replace(GPT_2, has_final=False), gpt_2),
    ),
    _gpt2(
        "norm-left-out-of-one-layer",
        "The FFN of the second layer has no norm.",
        "norms",
        build=transformer(replace(GPT_2, norms=but_layer_2(PRE, "pre")), gpt_2),
    ),
    _gpt2(
        "rms-for-layernorm",
        "RMSNorm stands where LayerNorm should.",
        "norms",
        build=transformer(replace(GPT_2, norm=nn.RMSNorm), gpt_2),
    ),
    _gpt2(
        "extra-norm-on-the-branch",
        "A second norm stands behind each branch, before the sum.",
        "norms",
        build=transformer(replace(GPT_2, norms=everywhere("pre", "branch")), gpt_2),
    ),
    _gpt2(
        "residual-left-out-of-one-layer",
        "The FFN of the second layer is not added to the stream but replaces it.",
        "no-residual",
        build=transformer(replace(GPT_2, sublayer=ResidualLeftOut), gpt_2),
    ),
    _gpt2(
        "embedding-never-initialised",
        "The embedding keeps torch's standard normal: the initialisation goes over linear layers only.",
        "embedding",
        build=transformer(GPT_2, gpt_2, default_embedding),
    ),
    _gpt2(
        "tied-scaled-twice",
        "Embedding and head are one tensor, and both are made ten times smaller: a hundred times in all.",
        "embedding",
        build=transformer(GPT_2, gpt_2, scale_tied_twice),
    ),
    _gpt2(
        "gains-drawn-normal",
        "The initialisation of matrices is applied to norm gains too: they start near 0.",
        "norm-gain",
        build=transformer(GPT_2, gpt_2, all_parameters_normal),
    ),
    _gpt2(
        "gains-of-a-tenth",
        "Norm gains start at 0.1.",
        "norm-gain",
        build=transformer(GPT_2, gpt_2, gains_of_a_tenth),
    ),
    _gpt2(
        "layers-copied",
        "One layer is made and deep-copied: all layers start alike.",
        "identical-layers",
        build=transformer(GPT_2, gpt_2, copied_layers),
    ),
    _gpt2(
        "layers-shared",
        "A list of one layer times N: the layers are one and the same module.",
        "shared-layers",
        build=transformer(GPT_2, gpt_2, shared_layers),
    ),
    _gpt2(
        "layers-in-turn",
        "Half as many layers are made as are run: the whole stack is run twice.",
        "shared-layers",
        build=transformer(GPT_2, gpt_2, layers_in_turn),
    ),
    _gpt2(
        "copies-in-turn",
        "Two layers are made, and deep-copied in turn.",
        "identical-layers",
        build=transformer(GPT_2, gpt_2, copies_in_turn),
    ),
    _gpt2(
        "one-matrix-shared",
        "All layers have the first one's FFN output matrix.",
        "shared-layers",
        build=transformer(GPT_2, gpt_2, shared_ffn),
    ),
    _gpt2(
        "depth-ignored",
        "The builder makes four layers, the default of its configuration, whatever it is asked for.",
        "depth-ignored",
        build=lambda num_layers: transformer(GPT_2, gpt_2)(4),
    ),
    _gpt2(
        "zero-in-zero-out",
        "Both matrices of every FFN start at zero: neither ever gets a gradient.",
        "dead-branch",
        build=transformer(GPT_2, gpt_2, zero_layers),
    ),
    _gpt2(
        "epsilon-of-a-tenth",
        "The norms have an eps of 0.1, on a stream whose variance is 0.001.",
        "epsilon",
        build=transformer(replace(GPT_2, eps=0.1), gpt_2),
    ),
    Planted(
        name="suffix-takes-too-much",
        says="All parameters whose names end in proj.weight are made smaller: q, k, v and the up matrix, too.",
        twin=gpt2_apart,
        build=transformer(replace(GPT_2, is_fused=False), gpt_2, suffix_of),
        kind="init-law",
        roles=("q", "k", "v", "fc1"),
    ),
)

# ---------------------------------------------------------------- Llama and Mitchell: gated, RMSNorm, no biases

LLAMA = Shape(norm=nn.RMSNorm, is_gated=True, activation=F.silu, has_bias=False, ffn_width=256, is_rotary=True)


def mitchell(matrix: Matrix) -> float:
    """1/sqrt(fan-in), and outputs over sqrt(2l)."""
    base = 32**-0.5 if matrix.role == "embedding" else matrix.weight.shape[-1] ** -0.5
    return base * (2 * matrix.place.layer) ** -0.5 if matrix.role in OUTPUTS else base


def fan_in(matrix: Matrix) -> float:
    return 32**-0.5 if matrix.role == "embedding" else matrix.weight.shape[-1] ** -0.5


def by_index(factor: Callable[[At], float], *roles: str) -> Law:
    return lambda matrix: fan_in(matrix) * (factor(matrix.place) if matrix.role in roles else 1)


MITCHELL = replace(LLAMA, norm=nn.LayerNorm)
llama = Twin(name="llama-2", build=transformer(LLAMA, flat), recipe="llama-2")
olmo_1 = Twin(name="mitchell", build=transformer(MITCHELL, mitchell, cut=3), recipe="mitchell")
olmo_1_fused = Twin(
    name="mitchell, fused", build=transformer(replace(MITCHELL, is_fused=True), mitchell, cut=3), recipe="mitchell"
)
gpt2_gated = Twin(
    name="gpt2 rule, gated",
    build=transformer(LLAMA, outputs(lambda at: (2 * at.num_layers) ** -0.5, xavier)),
    scheme="gpt2",
)


def xavier_of_fused(model: Any) -> None:
    for block in model.stack.blocks:
        nn.init.xavier_normal_(block.attention.branch.qkv_proj.weight)


def head_by_depth(model: Any) -> None:
    nn.init.normal_(model.lm_head.weight, std=0.02 / math.sqrt(2 * len(model.stack.blocks)))


def llama2_c(matrix: Matrix) -> float:
    factor = (2 * matrix.place.num_layers) ** -0.5 if matrix.role in ("out", "fc3") else 1
    return xavier(matrix) * factor


def xavier_scaled(factor: Callable[[At], float], *roles: str) -> Law:
    return lambda matrix: xavier(matrix) * (factor(matrix.place) if matrix.role in roles else 1)


_LLAMA_FAULTS = (
    Planted(
        name="llama2.c-up-for-down",
        says="w3, the up matrix, is made smaller in the place of w2, the output (karpathy/llama2.c issue 579).",
        twin=gpt2_gated,
        build=transformer(LLAMA, llama2_c),
        kind="init-law",
        roles=("fc2", "fc3"),
    ),
    Planted(
        name="torchtitan-up-and-down",
        says="w3, the up matrix, is made smaller besides w2, the output (pytorch/torchtitan issue 3334).",
        twin=olmo_1,
        build=transformer(MITCHELL, by_index(lambda at: (2 * at.layer) ** -0.5, "out", "fc2", "fc3"), cut=3),
        kind="init-law",
        roles=("fc3",),
    ),
    Planted(
        name="gate-for-down",
        says="The gate is made smaller in the place of the output matrix.",
        twin=olmo_1,
        build=transformer(MITCHELL, by_index(lambda at: (2 * at.layer) ** -0.5, "out", "fc1"), cut=3),
        kind="init-law",
        roles=("fc1", "fc2"),
    ),
    Planted(
        name="index-reversed",
        says="Layers are counted from the end: the first layer's outputs are the smallest.",
        twin=olmo_1,
        build=transformer(MITCHELL, by_index(lambda at: (2 * (at.num_layers - at.layer + 1)) ** -0.5, *OUTPUTS), cut=3),
        kind="init-law",
        roles=OUTPUTS,
    ),
    Planted(
        name="index-from-one-and-one-more",
        says="The index counts from 1, and 1 is added as if it counted from 0.",
        twin=olmo_1,
        build=transformer(MITCHELL, by_index(lambda at: (2 * (at.layer + 1)) ** -0.5, *OUTPUTS), cut=3),
        kind="init-law",
        roles=OUTPUTS,
    ),
    Planted(
        name="depth-for-index",
        says="Outputs are divided by sqrt(2N) in every layer, with the depth in the place of the layer's index.",
        twin=olmo_1,
        build=transformer(MITCHELL, by_index(lambda at: (2 * at.num_layers) ** -0.5, *OUTPUTS), cut=3),
        kind="init-law",
        roles=OUTPUTS,
    ),
    Planted(
        name="xavier-of-the-fused-matrix",
        says="The fused matrix of 3d rows starts by Xavier, not by its input width: q, k and v are smaller by sqrt(2).",
        twin=olmo_1_fused,
        build=transformer(replace(MITCHELL, is_fused=True), mitchell, xavier_of_fused, cut=3),
        kind="init-constant",
        roles=("q", "k", "v"),
    ),
    Planted(
        name="layernorm-for-rms",
        says="LayerNorm stands where RMSNorm should.",
        twin=llama,
        build=transformer(replace(LLAMA, norm=nn.LayerNorm), flat),
        kind="norms",
    ),
    Planted(
        name="head-by-depth",
        says="The head is divided by sqrt(2N) like an output matrix: its name ends the same way.",
        twin=llama,
        build=transformer(
            LLAMA,
            flat,
            head_by_depth,
        ),
        kind="head",
    ),
    Planted(
        name="embedding-multiplied",
        says="The embedding is multiplied by 30, as Gemma does and Llama does not.",
        twin=llama,
        build=transformer(replace(LLAMA, embedding_multiplier=30.0), flat),
        kind="embedding",
    ),
    Planted(
        name="llama-by-depth",
        says="Llama's flat initialisation is given GPT-2's rule for one of its two output matrices.",
        twin=llama,
        build=transformer(LLAMA, only(gpt_2, "fc2")),
        kind="init-law",
        roles=("fc2",),
    ),
)

# ---------------------------------------------------------------- DeepNorm: post-norm, residual weight and gain

DEEPNORM = Shape(
    arch="encoder", norms=everywhere("post"), has_final=False, residual_weight=lambda at: (2 * at.num_layers) ** 0.25
)
VASWANI = replace(DEEPNORM, residual_weight=one)


def deepnorm(matrix: Matrix) -> float:
    return xavier(matrix) * ((8 * matrix.place.num_layers) ** -0.25 if matrix.role in GAINED else 1)


def q_for_v(model: Any) -> None:
    """DeepNorm's gain on the first third of a fused matrix, as if values stood there."""
    for matrix in matrices(model):
        if matrix.role == "q":
            matrix.weight.mul_((8 * matrix.place.num_layers) ** -0.25)


class OnTheBranch(Sublayer):
    """The residual weight multiplies the branch."""

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        assert self.post_norm is not None
        return self.post_norm(x + self.residual_weight * self.added(x, memory))


deepnorm_twin = Twin(name="deepnorm", build=transformer(DEEPNORM, deepnorm), scheme="deepnorm")
deepnorm_fused = Twin(
    name="deepnorm, fused", build=transformer(replace(DEEPNORM, is_fused=True), deepnorm), scheme="deepnorm"
)
pre_ln = Twin(name="pre-ln", build=transformer(Shape(), xavier), scheme="pre-ln")
post_ln = Twin(name="post-ln", build=transformer(VASWANI, xavier), scheme="post-ln")


def _alpha(name: str, says: str, weight: Callable[[At], float]) -> Planted:
    build = transformer(replace(DEEPNORM, residual_weight=weight), deepnorm)
    return Planted(name=name, says=says, twin=deepnorm_twin, build=build, kind="residual-weight")


def _beta(name: str, says: str, law: Law, roles: tuple[str, ...], kind: str = "init-law") -> Planted:
    build = transformer(DEEPNORM, law)
    return Planted(name=name, says=says, twin=deepnorm_twin, build=build, kind=kind, roles=roles)


_DEEPNORM_FAULTS = (
    Planted(
        name="alpha-on-the-branch",
        says="The residual weight multiplies the branch, not the stream.",
        twin=deepnorm_twin,
        build=transformer(replace(DEEPNORM, sublayer=OnTheBranch), deepnorm),
        kind="residual-weight",
    ),
    _alpha("alpha-exponent", "The residual weight is (2N)^(1/2).", lambda at: (2 * at.num_layers) ** 0.5),
    _alpha("alpha-sign", "The residual weight is (2N)^(-1/4).", lambda at: (2 * at.num_layers) ** -0.25),
    _alpha("alpha-n-for-2n", "The residual weight is N^(1/4).", lambda at: at.num_layers**0.25),
    _alpha("alpha-sublayers", "N is taken to count sublayers: (4N)^(1/4).", lambda at: (4 * at.num_layers) ** 0.25),
    _alpha(
        "alpha-of-an-encoder-decoder",
        "The residual weight is that of the encoder of an encoder-decoder.",
        lambda at: 0.81 * at.num_layers ** (5 / 16),
    ),
    _alpha("alpha-of-12-layers", "The residual weight is that of 12 layers at every depth.", lambda at: 24**0.25),
    _alpha("alpha-by-index", "The residual weight grows with the layer's index.", lambda at: (2 * at.layer) ** 0.25),
    _alpha(
        "alpha-forgotten-in-ffn",
        "The FFN's sum has no residual weight.",
        lambda at: (2 * at.num_layers) ** 0.25 if at.kind == "attention" else 1.0,
    ),
    _beta(
        "queries-and-keys-too",
        "Queries and keys get the gain, too.",
        xavier_scaled(lambda at: (8 * at.num_layers) ** -0.25, *GAINED, "q", "k"),
        ("q", "k"),
    ),
    _beta(
        "values-forgotten",
        "Values do not get the gain.",
        xavier_scaled(lambda at: (8 * at.num_layers) ** -0.25, "out", "fc1", "fc2"),
        ("v",),
    ),
    _beta(
        "beta-exponent",
        "The gain is (8N)^(-1/2).",
        xavier_scaled(lambda at: (8 * at.num_layers) ** -0.5, *GAINED),
        ("v", "out", "fc1", "fc2"),
    ),
    _beta(
        "beta-sign",
        "The gain is (8N)^(1/4).",
        xavier_scaled(lambda at: (8 * at.num_layers) ** 0.25, *GAINED),
        ("v", "out", "fc1", "fc2"),
    ),
    _beta(
        "beta-2n-for-8n",
        "The gain is (2N)^(-1/4), one over the residual weight.",
        xavier_scaled(lambda at: (2 * at.num_layers) ** -0.25, *GAINED),
        ("v", "out", "fc1", "fc2"),
        "init-constant",
    ),
    _beta(
        "beta-of-12-layers",
        "The gain is that of 12 layers at every depth.",
        xavier_scaled(lambda at: 96**-0.25, *GAINED),
        ("v", "out", "fc1", "fc2"),
    ),
    _beta(
        "beta-twice",
        "The initialisation runs twice, and multiplies by the gain both times.",
        xavier_scaled(lambda at: (8 * at.num_layers) ** -0.25 * (8 * at.num_layers) ** -0.25, *GAINED),
        ("v", "out", "fc1", "fc2"),
    ),
    _beta(
        "beta-lost",
        "The gain is applied, and a later Xavier initialisation of all matrices erases it.",
        xavier,
        ("v", "out", "fc1", "fc2"),
    ),
    Planted(
        name="fused-rows",
        says="The gain of the values lands on the rows of the queries in the fused matrix.",
        twin=deepnorm_fused,
        build=transformer(
            replace(DEEPNORM, is_fused=True),
            xavier_scaled(lambda at: (8 * at.num_layers) ** -0.25, "out", "fc1", "fc2"),
            q_for_v,
        ),
        kind="init-law",
        roles=("q", "v"),
    ),
    Planted(
        name="pre-norm-with-alpha",
        says="A pre-norm model gets DeepNorm's residual weight.",
        twin=pre_ln,
        build=transformer(Shape(residual_weight=lambda at: (2 * at.num_layers) ** 0.25), xavier),
        kind="residual-weight",
    ),
    Planted(
        name="deepnorm-before-the-branch",
        says="The norms of DeepNorm stand before the branches.",
        twin=deepnorm_twin,
        build=transformer(replace(DEEPNORM, norms=PRE), deepnorm),
        kind="norms",
    ),
    Planted(
        name="post-for-pre",
        says="The flag norm_first is left at False: a pre-norm scheme is built post-norm.",
        twin=pre_ln,
        build=transformer(Shape(norms=everywhere("post"), has_final=False), xavier),
        kind="norms",
    ),
    Planted(
        name="pre-for-post",
        says="A post-norm scheme is built pre-norm.",
        twin=post_ln,
        build=transformer(replace(VASWANI, norms=PRE, has_final=True), xavier),
        kind="norms",
    ),
)

# ---------------------------------------------------------------- DeepNorm, encoder-decoder


def _encoder_alpha(at: At) -> float:
    return 0.81 * (at.num_layers**4 * at.num_layers) ** (1 / 16)


def two_sides(at: At) -> float:
    return _encoder_alpha(at) if at.side == "encoder" else (3 * at.num_layers) ** 0.25


def two_gains(at: At, constant: float = 0.87) -> float:
    own = constant * (at.num_layers**4 * at.num_layers) ** (-1 / 16)
    return own if at.side == "encoder" else (12 * at.num_layers) ** -0.25


BOTH = replace(DEEPNORM, arch="encoder-decoder", residual_weight=two_sides)
both = Twin(name="deepnorm, two sides", build=transformer(BOTH, xavier_scaled(two_gains, *GAINED)), scheme="deepnorm")


def _both(name: str, says: str, kind: str, roles: tuple[str, ...] = (), *, shape: Shape = BOTH, law: Law) -> Planted:
    return Planted(name=name, says=says, twin=both, build=transformer(shape, law), kind=kind, roles=roles)


_TWO_SIDES = (
    _both(
        "encoder-constants-of-one-stack",
        "The encoder of an encoder-decoder gets the residual weight of an encoder by itself, (2N)^(1/4).",
        "residual-weight",
        shape=replace(BOTH, residual_weight=lambda at: ((2 if at.side == "encoder" else 3) * at.num_layers) ** 0.25),
        law=xavier_scaled(two_gains, *GAINED),
    ),
    _both(
        "decoder-2m-for-3m",
        "The decoder's residual weight is (2M)^(1/4): the cross-attention is not counted.",
        "residual-weight",
        shape=replace(
            BOTH,
            residual_weight=lambda at: two_sides(at) if at.side == "encoder" else (2 * at.num_layers) ** 0.25,
        ),
        law=xavier_scaled(two_gains, *GAINED),
    ),
    _both(
        "torchscale-1.15",
        "The encoder's gain has 1.15, one over 0.87, in the place of 0.87 (torchscale 0.3.0).",
        "init-constant",
        ("v", "out", "fc1", "fc2"),
        law=xavier_scaled(lambda at: two_gains(at, 1.15), *GAINED),
    ),
    _both(
        "cross-attention-forgotten",
        "The cross-attention's values and outputs do not get the decoder's gain.",
        "init-law",
        ("cross_v", "cross_out"),
        law=xavier_scaled(two_gains, "v", "out", "fc1", "fc2"),
    ),
    Planted(
        name="one-gain-for-both",
        says="The decoder gets the encoder's gain.",
        twin=both,
        build=transformer(
            replace(BOTH, d_model=64, ffn_width=256),  # -5/16 and -1/4 are not told apart by smaller matrices
            xavier_scaled(lambda at: two_gains(replace(at, side="encoder")), *GAINED),
        ),
        kind="init-law",
        roles=("v", "out", "fc1", "fc2", "cross_v", "cross_out"),
    ),
)

# ---------------------------------------------------------------- branch weights, fixed and trained

COMPLETEP = Shape(branch_weight=lambda at: 1 / at.num_layers)
DEPTH_MUP = Shape(branch_weight=lambda at: (2 * at.num_layers) ** -0.5)
REZERO = Shape(norms=everywhere(), has_final=False, branch_weight=lambda at: 0.0, trained="scalar")


def layer_scale(at: At) -> float:
    """CaiT's, by the number of layers."""
    return 0.1 if at.num_layers <= 18 else 1e-5 if at.num_layers <= 24 else 1e-6


CAIT = Shape(
    arch="encoder",
    inputs="images",
    has_positions=True,
    is_fused=True,
    trained="vector",
    branch_weight=layer_scale,
)
MINICPM = replace(LLAMA, ffn_width=80, branch_weight=lambda at: 1.4 * at.num_layers**-0.5, embedding_multiplier=12.0)


def minicpm(matrix: Matrix) -> float:
    std = 0.1 / math.sqrt(32 / 256)
    return std * 256 / 32 if matrix.role == "head" else std


completep = Twin(name="completep", build=transformer(COMPLETEP, xavier), scheme="completep")
depth_mup = Twin(name="depth-mup", build=transformer(DEPTH_MUP, xavier), scheme="depth-mup")
rezero = Twin(name="rezero", build=transformer(REZERO, xavier), scheme="rezero")
cait = Twin(name="cait", build=transformer(CAIT, flat), recipe="cait")
deep_cait = replace(cait, name="cait, 36 layers", layers=(6, 36))
minicpm_twin = Twin(name="minicpm", build=transformer(MINICPM, minicpm), recipe="minicpm")


class WeightedTwice(Sublayer):
    """The branch weight is applied in the branch, and again at the sum."""

    def added(self, x: Tensor, memory: Tensor | None) -> Tensor:
        return self.branch_weight * super().added(x, memory)


class WeightedSum(Sublayer):
    """The weight multiplies the sum of stream and branch."""

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        return self.branch_weight * (x + self.branch(self.pre(x), memory))


def zero_outputs(model: Any) -> None:
    for matrix in matrices(model):
        if matrix.role in OUTPUTS:
            nn.init.zeros_(matrix.weight)


def ones_for_vectors(model: Any) -> None:
    """A generic initialisation that takes every vector for a norm's gain."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 and not name.endswith("bias"):
            nn.init.ones_(parameter)


def _weight(name: str, says: str, twin: Twin, shape: Shape, law: Law, kind: str = "branch-weight") -> Planted:
    return Planted(name=name, says=says, twin=twin, build=transformer(shape, law), kind=kind)


_BRANCH_WEIGHTS = (
    _weight(
        "branch-weight-twice",
        "The branch weight is applied inside the branch and again at the sum.",
        depth_mup,
        replace(DEPTH_MUP, sublayer=WeightedTwice),
        xavier,
    ),
    _weight(
        "branch-weight-n-for-2n",
        "The branch weight counts layers instead of sublayers: N^(-1/2).",
        depth_mup,
        replace(DEPTH_MUP, branch_weight=lambda at: at.num_layers**-0.5),
        xavier,
    ),
    _weight(
        "branch-weight-exponent",
        "CompleteP's branch weight is N^(-1/2), not 1/N.",
        completep,
        replace(COMPLETEP, branch_weight=lambda at: at.num_layers**-0.5),
        xavier,
    ),
    _weight(
        "branch-weight-of-12-layers",
        "The branch weight is that of 12 layers at every depth.",
        completep,
        replace(COMPLETEP, branch_weight=lambda at: 1 / 12),
        xavier,
    ),
    _weight(
        "branch-weight-in-ffn-alone",
        "The attention's branch is not weighted.",
        completep,
        replace(COMPLETEP, branch_weight=lambda at: 1 / at.num_layers if at.kind == "ffn" else 1.0),
        xavier,
    ),
    _weight(
        "weight-on-the-sum",
        "The branch weight multiplies the sum of stream and branch.",
        completep,
        replace(COMPLETEP, sublayer=WeightedSum),
        xavier,
        "residual-weight",
    ),
    _weight(
        "rezero-at-one",
        "ReZero's scalars start at 1.",
        rezero,
        replace(REZERO, branch_weight=one),
        xavier,
    ),
    _weight(
        "rezero-not-trained",
        "ReZero's scalar is a plain number, 0 for ever.",
        rezero,
        replace(REZERO, trained=None),
        xavier,
        "dead-branch",
    ),
    Planted(
        name="rezero-and-zero-outputs",
        says="ReZero's scalar and the output matrices both start at zero: neither ever gets a gradient.",
        twin=rezero,
        build=transformer(REZERO, xavier, zero_outputs),
        kind="dead-branch",
    ),
    Planted(
        name="timm-layer-scale",
        says="LayerScale starts at 1, whatever it was told (timm 1.0.21, issue 2605).",
        twin=cait,
        build=transformer(CAIT, flat, ones_for_vectors),
        kind="branch-weight",
    ),
    _weight(
        "cait-36",
        "LayerScale starts at 1e-5 at 36 layers, where the paper has 1e-6 (facebookresearch/deit issue 122).",
        deep_cait,
        replace(CAIT, branch_weight=lambda at: 1e-5 if at.num_layers > 24 else layer_scale(at)),
        flat,
    ),
    _weight(
        "cait-of-24-layers",
        "LayerScale starts at 1e-5 whatever the depth, where its authors have 0.1 up to 18 layers.",
        cait,
        replace(CAIT, branch_weight=lambda at: 1e-5),
        flat,
    ),
    _weight(
        "layer-scale-in-attention-alone",
        "The FFN's branch has its LayerScale at 1.",
        cait,
        replace(CAIT, branch_weight=lambda at: 0.1 if at.kind == "attention" else 1.0),
        flat,
    ),
    _weight(
        "minicpm-branch-weight",
        "MiniCPM's branch weight is 1.4/N: the square root is forgotten.",
        minicpm_twin,
        replace(MINICPM, branch_weight=lambda at: 1.4 / at.num_layers),
        minicpm,
    ),
    _weight(
        "embedding-multiplier-forgotten",
        "The embedding is not multiplied by 12.",
        minicpm_twin,
        replace(MINICPM, embedding_multiplier=1.0),
        minicpm,
        "embedding",
    ),
    _weight(
        "embedding-multiplier-twice",
        "The embedding is multiplied by 12 twice.",
        minicpm_twin,
        replace(MINICPM, embedding_multiplier=144.0),
        minicpm,
        "embedding",
    ),
    _weight(
        "head-not-by-width",
        "The head lacks muP's factor of the width.",
        minicpm_twin,
        MINICPM,
        lambda matrix: 0.1 / math.sqrt(32 / 256),
        "head",
    ),
)

# ---------------------------------------------------------------- LN-scaling

LN_SCALING = replace(LLAMA, input_scale=lambda at: at.layer**-0.5)
ln_scaling = Twin(name="ln-scaling", build=transformer(LN_SCALING, flat), recipe="ln-scaling")


class ScaledBeforeNorm(Sublayer):
    """The factor stands before the norm, which takes it away again."""

    def pre(self, x: Tensor) -> Tensor:
        assert self.pre_norm is not None
        return self.pre_norm(self.input_scale * x)


class Buffered(Sublayer):
    """The factor is a buffer."""

    def __init__(self, shape: Shape, at: At) -> None:
        super().__init__(shape, at)
        del self.input_scale
        self.register_buffer("input_scale", torch.full((1,), at.layer**-0.5), persistent=False)


class Restored(Buffered):
    def init_weights(self) -> None:
        self.input_scale.fill_(self.at.layer**-0.5)


class LateModel(LanguageModel):
    """A model that may be made on the meta device: ``init_weights`` fills all that ``to_empty`` leaves undefined."""

    def __init__(self, shape: Shape, num_layers: int, law: Law) -> None:
        super().__init__(shape, num_layers)
        self.law = law
        self.init_weights()

    def init_weights(self) -> None:
        for module in self.modules():
            if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
                module.reset_parameters()
            elif isinstance(module, Restored):
                module.init_weights()
            elif isinstance(module, Sublayer) and isinstance(module.branch_weight, nn.Parameter):
                nn.init.constant_(module.branch_weight, 1e-5)
        start(self, self.law)


class Forgetful(LateModel):
    """Its ``init_weights`` leaves trained branch weights as they are."""

    def init_weights(self) -> None:
        start(self, self.law)
        for module in self.modules():
            if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
                module.reset_parameters()


LAYER_SCALE = Shape(trained="vector", branch_weight=lambda at: 1e-5)
ln_scaling_late = Twin(
    name="ln-scaling, on meta",
    build=lambda num_layers: LateModel(replace(LLAMA, sublayer=Restored), num_layers, flat),
    recipe="ln-scaling",
)
layer_scale_late = Twin(name="layer scale, on meta", build=lambda num_layers: LateModel(LAYER_SCALE, num_layers, flat))

_LN_SCALING_FAULTS = (
    _weight(
        "factor-before-the-norm",
        "The factor of the depth stands before the norm, which takes it away.",
        ln_scaling,
        replace(LN_SCALING, sublayer=ScaledBeforeNorm),
        flat,
        "input-scale",
    ),
    _weight(
        "factor-of-the-depth",
        "The factor is N^(-1/2) in every layer, not l^(-1/2).",
        ln_scaling,
        replace(LN_SCALING, input_scale=lambda at: at.num_layers**-0.5),
        flat,
        "input-scale",
    ),
    _weight(
        "index-from-zero",
        "The index counts from 0, and a max(1, index) keeps it from dividing by zero.",
        ln_scaling,
        replace(LN_SCALING, input_scale=lambda at: max(1, at.layer - 1) ** -0.5),
        flat,
        "input-scale",
    ),
    _weight(
        "factor-left-out",
        "A pre-norm model is said to be LN-scaled: the option is read by nobody.",
        ln_scaling,
        LLAMA,
        flat,
        "input-scale",
    ),
    Planted(
        name="olmo-core-buffer-lost",
        says="The factor is a buffer that to_empty erases and init_weights leaves out (allenai/OLMo-core issue 698).",
        twin=ln_scaling_late,
        build=lambda num_layers: LateModel(replace(LLAMA, sublayer=Buffered), num_layers, flat),
        kind="lost-on-meta",
    ),
    Planted(
        name="layer-scale-lost",
        says="LayerScale is set where it is made, and init_weights forgets it after to_empty.",
        twin=layer_scale_late,
        build=lambda num_layers: Forgetful(LAYER_SCALE, num_layers, flat),
        kind="lost-on-meta",
    ),
)

# ---------------------------------------------------------------- norms in other places

SUB_LN = Shape(norms=everywhere("pre", "inner"))
PERI_LN = Shape(norms=everywhere("pre", "branch"))
OLMO_2 = replace(LLAMA, norms=everywhere("branch", "q", "k"))
BERT = replace(VASWANI, has_embedding_norm=True)
KEEL = Shape(norms=everywhere("pre", "post"), has_final=False, residual_weight=lambda at: 2.0 * at.num_layers)
MIX_LN = Shape(norms=lambda at: frozenset({"post"} if 4 * at.layer <= at.num_layers else {"pre"}))
T_FIXUP = Shape(norms=everywhere(), has_final=False)
T5 = Shape(
    arch="encoder-decoder",
    norm=nn.RMSNorm,
    has_bias=False,
    activation=F.relu,
    attention_scale=1.0,
)


def bert(matrix: Matrix) -> float:
    return 1.0 if matrix.role == "embedding" else 0.02


def t5(matrix: Matrix) -> float:
    """1/sqrt(fan-in), and queries smaller by the square root of the head's size."""
    if matrix.role == "embedding":
        return 1.0
    own = matrix.weight.shape[-1] ** -0.5 * (0.8796 if matrix.role in ("fc1", "fc2") else 1)
    return own * (32 // NUM_HEADS) ** -0.5 if matrix.role in ("q", "cross_q") else own


def t_fixup(matrix: Matrix) -> float:
    if matrix.role == "embedding":
        return (9 * matrix.num_layers) ** -0.25
    return xavier(matrix) * (0.67 * matrix.place.num_layers**-0.25 if matrix.role in GAINED else 1)


sub_ln = Twin(name="sub-ln", build=transformer(SUB_LN, xavier), scheme="sub-ln")
peri_ln = Twin(name="peri-ln", build=transformer(PERI_LN, xavier), scheme="peri-ln")
olmo_2 = Twin(name="olmo-2", build=transformer(OLMO_2, flat, cut=3), recipe="olmo-2")
bert_twin = Twin(name="bert", build=transformer(BERT, bert, cut=2), recipe="bert")
keel = Twin(name="keel", build=transformer(KEEL, xavier), scheme="keel")
keel_half = Twin(name="keel, float16", build=transformer(KEEL, xavier, nn.Module.half), scheme="keel")
mix_ln = Twin(name="mix-ln", build=transformer(MIX_LN, xavier), scheme="mix-ln", layers=(4, 8))
t_fixup_twin = Twin(name="t-fixup", build=transformer(T_FIXUP, t_fixup), scheme="t-fixup")
t5_twin = Twin(name="t5", build=transformer(T5, t5), recipe="t5")


def _torch_encoder(num_layers: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, NUM_HEADS, 128, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, num_layers)


def _torch_encoder_redrawn(num_layers: int) -> nn.Module:
    model = _torch_encoder(num_layers)
    model.layers = nn.ModuleList(
        nn.TransformerEncoderLayer(32, NUM_HEADS, 128, dropout=0.0, batch_first=True) for _ in range(num_layers)
    )
    return model


torch_encoder = Twin(name="torch.nn.TransformerEncoder, drawn anew", build=_torch_encoder_redrawn)

_PLACES = (
    _weight(
        "inner-norm-in-ffn-alone",
        "Sub-LN's second norm stands in the FFN and not in the attention.",
        sub_ln,
        replace(SUB_LN, norms=lambda at: frozenset({"pre", "inner"} if at.kind == "ffn" else {"pre"})),
        xavier,
        "norms",
    ),
    _weight(
        "inner-norm-left-out-of-one-layer",
        "The attention of the second layer lacks Sub-LN's second norm.",
        sub_ln,
        replace(SUB_LN, norms=but_layer_2(SUB_LN.norms, "inner", kind="attention")),
        xavier,
        "norms",
    ),
    _weight(
        "branch-norm-left-out-of-attention",
        "Peri-LN's second norm stands behind the FFN and not behind the attention.",
        peri_ln,
        replace(PERI_LN, norms=lambda at: frozenset({"pre", "branch"} if at.kind == "ffn" else {"pre"})),
        xavier,
        "norms",
    ),
    Planted(
        name="query-norm-left-out-of-one-layer",
        says="The second layer normalises neither its queries nor its keys.",
        twin=olmo_2,
        build=transformer(replace(OLMO_2, norms=but_layer_2(OLMO_2.norms, "q", "k", kind="attention")), flat, cut=3),
        kind="norms",
    ),
    Planted(
        name="olmo-2-before-the-branch",
        says="OLMo 2's norms stand before the branches, as in OLMo 1.",
        twin=olmo_2,
        build=transformer(replace(OLMO_2, norms=everywhere("pre", "q", "k")), flat, cut=3),
        kind="norms",
    ),
    Planted(
        name="bert-by-depth",
        says="BERT's matrices get GPT-2's rule on outputs.",
        twin=bert_twin,
        build=transformer(BERT, lambda matrix: 1.0 if matrix.role == "embedding" else gpt_2(matrix), cut=2),
        kind="init-law",
        roles=OUTPUTS,
    ),
    _weight(
        "keel-layers-for-sublayers",
        "The residual weight is N, not 2N.",
        keel,
        replace(KEEL, residual_weight=lambda at: float(at.num_layers)),
        xavier,
        "residual-weight",
    ),
    Planted(
        name="half-overflow",
        says="The norm behind the sum is forgotten: a stream that grows by 2N at each sum overflows float16.",
        twin=keel_half,
        build=transformer(replace(KEEL, norms=PRE, has_final=True), xavier, nn.Module.half),
        kind="not-finite",
    ),
    _weight(
        "mix-ln-reversed",
        "The last quarter of the layers is post-norm, not the first.",
        mix_ln,
        replace(MIX_LN, norms=lambda at: frozenset({"post"} if 4 * at.layer > 3 * at.num_layers else {"pre"})),
        xavier,
        "norms",
    ),
    Planted(
        name="t-fixup-constant",
        says="The factor 0.67 is forgotten.",
        twin=t_fixup_twin,
        build=transformer(T_FIXUP, lambda matrix: t_fixup(matrix) / (0.67 if matrix.role in GAINED else 1)),
        kind="init-constant",
        roles=("v", "out", "fc1", "fc2"),
    ),
    Planted(
        name="t-fixup-embedding-forgotten",
        says="T-Fixup's matrices are scaled, and its embedding is not.",
        twin=t_fixup_twin,
        build=transformer(T_FIXUP, lambda matrix: 1.0 if matrix.role == "embedding" else t_fixup(matrix)),
        kind="embedding",
        roles=("embedding",),
    ),
    Planted(
        name="t-fixup-with-norms",
        says="T-Fixup's initialisation is used, and the norms that it is to replace are kept.",
        twin=t_fixup_twin,
        build=transformer(Shape(), t_fixup),
        kind="norms",
    ),
    Planted(
        name="t5-queries",
        says="Queries start at 1/sqrt(d), though attention scores are not divided by anything.",
        twin=t5_twin,
        build=transformer(T5, lambda matrix: 1.0 if matrix.role == "embedding" else replace_query(matrix)),
        kind="init-constant",
        roles=("q", "cross_q"),
    ),
    Planted(
        name="torch-transformer-encoder",
        says="torch.nn.TransformerEncoder deep-copies one layer (pytorch issue 72253).",
        twin=torch_encoder,
        build=_torch_encoder,
        kind="identical-layers",
    ),
)


def replace_query(matrix: Matrix) -> float:
    own = t5(matrix)
    return own * (32 // NUM_HEADS) ** 0.5 if matrix.role in ("q", "cross_q") else own


# ---------------------------------------------------------------- arithmetic of standard deviations, and other blocks

SUB_LN_GAMMA = ("v", "out", "fc1", "fc2")


class DynamicTanh(nn.Module):
    """tanh(alpha x) in the place of a norm."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.full((1,), 0.5))
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * torch.tanh(self.alpha * x) + self.bias


def fixup(matrix: Matrix) -> float:
    if matrix.role in OUTPUTS:
        return 0.0
    return xavier(matrix) * ((2 * matrix.place.num_layers) ** -0.5 if matrix.role in ("v", "fc1") else 1)


def bounds_for_stds(model: Any) -> None:
    """uniform_(-std, std) has a standard deviation of std / sqrt(3)."""
    for matrix in matrices(model):
        if matrix.at is not None:
            nn.init.uniform_(matrix.weight, -0.02, 0.02)


def scaled_bert(model: Any) -> None:
    nn.init.normal_(model.stack.embedding.weight, std=0.02)


class FixedEncoder(Translator):
    """The option is the decoder's: the encoder has its default of 6 layers."""

    def __init__(self, shape: Shape, num_layers: int) -> None:
        super().__init__(shape, num_layers)
        self.encoder = Stack(shape, "encoder", 6)


def _fixed_encoder(num_layers: int) -> nn.Module:
    model = FixedEncoder(T5, num_layers)
    start(model, t5)
    return model


FIXUP = replace(T_FIXUP, trained="scalar")
fixup_twin = Twin(name="fixup", build=transformer(FIXUP, fixup), scheme="fixup")
dyt = Twin(name="dyt", build=transformer(Shape(norm=DynamicTanh), xavier), scheme="dyt")
sub_ln_gamma = Twin(
    name="sub-ln-gamma",
    build=transformer(SUB_LN, xavier_scaled(lambda at: math.log(2 * at.num_layers) ** 0.5, *SUB_LN_GAMMA)),
    scheme="sub-ln-gamma",
)

_ARITHMETIC = (
    Planted(
        name="log-to-base-2",
        says="Sub-LN's gain takes the logarithm to base 2.",
        twin=sub_ln_gamma,
        build=transformer(SUB_LN, xavier_scaled(lambda at: math.log2(2 * at.num_layers) ** 0.5, *SUB_LN_GAMMA)),
        kind="init-constant",
        roles=SUB_LN_GAMMA,
    ),
    Planted(
        name="log-without-root",
        says="Sub-LN's gain is log 2N, not its square root.",
        twin=sub_ln_gamma,
        build=transformer(SUB_LN, xavier_scaled(lambda at: math.log(2 * at.num_layers), *SUB_LN_GAMMA)),
        kind="init-law",
        roles=SUB_LN_GAMMA,
    ),
    Planted(
        name="bounds-for-deviations",
        says="Weights are drawn between -0.02 and 0.02, where 0.02 is to be their standard deviation.",
        twin=llama,
        build=transformer(LLAMA, flat, bounds_for_stds),
        kind="init-constant",
        roles=("q", "k", "v", "out", "fc1", "fc2", "fc3"),
    ),
    Planted(
        name="variance-for-deviation",
        says="The variance 1/fan-in is passed as the standard deviation.",
        twin=olmo_1,
        build=transformer(MITCHELL, lambda m: fan_in(m) if m.at is None else mitchell(m) * fan_in(m), cut=3),
        kind="init-constant",
        roles=("q", "k", "v", "out", "fc1", "fc2", "fc3"),
    ),
    Planted(
        name="fixup-outputs-not-zero",
        says="Fixup's output matrices are not set to zero.",
        twin=fixup_twin,
        build=transformer(FIXUP, lambda matrix: xavier(matrix) if matrix.role in OUTPUTS else fixup(matrix)),
        kind="init-law",
        roles=OUTPUTS,
    ),
    Planted(
        name="fixup-with-one-more-zero",
        says="Fixup's scalars start at zero like its output matrices.",
        twin=fixup_twin,
        build=transformer(replace(FIXUP, branch_weight=lambda at: 0.0), fixup),
        kind="dead-branch",
    ),
    Planted(
        name="layernorm-for-dyt",
        says="LayerNorm is left in the place of DyT.",
        twin=dyt,
        build=transformer(Shape(), xavier),
        kind="norms",
    ),
    Planted(
        name="embedding-norm-forgotten",
        says="BERT's norm behind the embedding is missing: the stream starts at 0.02.",
        twin=bert_twin,
        build=transformer(replace(BERT, has_embedding_norm=False), bert, scaled_bert, cut=2),
        kind="embedding",
    ),
    Planted(
        name="alpha-from-the-second-layer",
        says="The first layer has no residual weight.",
        twin=deepnorm_twin,
        build=transformer(
            replace(DEEPNORM, residual_weight=lambda at: 1.0 if at.layer == 1 else (2 * at.num_layers) ** 0.25),
            deepnorm,
        ),
        kind="residual-weight",
    ),
    Planted(
        name="cross-attention-without-a-norm",
        says="The decoder's cross-attention has no norm.",
        twin=t5_twin,
        build=transformer(replace(T5, norms=lambda at: frozenset() if at.kind == "cross" else frozenset({"pre"})), t5),
        kind="norms",
    ),
    Planted(
        name="encoder-of-6-layers",
        says="The number of layers is the decoder's alone: the encoder has 6, whatever is asked for.",
        twin=t5_twin,
        build=_fixed_encoder,
        kind="depth-ignored",
    ),
    Planted(
        name="first-layer-post-norm",
        says="The first layer is post-norm: it was copied from another model.",
        twin=pre_ln,
        build=transformer(Shape(norms=lambda at: frozenset({"post" if at.layer == 1 else "pre"})), xavier),
        kind="norms",
        roles=("pre", "post"),
    ),
    Planted(
        name="one-layer-reinitialised",
        says="The second layer is reset by torch's defaults after the initialisation.",
        twin=gpt2_apart,
        build=transformer(replace(GPT_2, is_fused=False), gpt_2, reset_layer_2),
        kind="init-law",
        roles=("q", "k", "v", "out", "fc1", "fc2"),
    ),
    Planted(
        name="encoder-without-alpha",
        says="The encoder of an encoder-decoder has no residual weight.",
        twin=both,
        build=transformer(
            replace(BOTH, residual_weight=lambda at: 1.0 if at.side == "encoder" else two_sides(at)),
            xavier_scaled(two_gains, *GAINED),
        ),
        kind="residual-weight",
    ),
)

# ---------------------------------------------------------------- right in other ways


def torchscale_base(matrix: Matrix) -> float:
    """Xavier of gain 1/sqrt(2) for queries, keys and values, torch's default for the FFN: both are in use."""
    if matrix.role in ("q", "k", "v"):
        return xavier(matrix) * 0.5**0.5
    return (3 * matrix.weight.shape[-1]) ** -0.5 if matrix.role in ("fc1", "fc2") else xavier(matrix)


def mixed_deepnorm(matrix: Matrix) -> float:
    return torchscale_base(matrix) * ((8 * matrix.place.num_layers) ** -0.25 if matrix.role in GAINED else 1)


def uniform(model: Any) -> None:
    """The same standard deviations, drawn uniformly."""
    for matrix in matrices(model):
        if matrix.at is not None:
            bound = deepnorm(matrix) * 3**0.5
            nn.init.uniform_(matrix.weight, -bound, bound)


def he(matrix: Matrix) -> float:
    return 1.0 if matrix.role == "embedding" else (2 / matrix.weight.shape[-1]) ** 0.5


def bart(matrix: Matrix) -> float:
    return 1.0 if matrix.role == "embedding" else 0.02


def torchtitan(matrix: Matrix) -> float:
    """As it is published: the up matrix is scaled, too."""
    if matrix.role in ("embedding", "head"):
        return 1.0 if matrix.role == "embedding" else 32**-0.5
    return 0.02 * ((2 * matrix.place.layer) ** -0.5 if matrix.role in ("out", "fc2", "fc3") else 1)


def cut_head(model: Any) -> None:
    nn.init.trunc_normal_(model.lm_head.weight, std=32**-0.5, a=-3 * 32**-0.5, b=3 * 32**-0.5)


def su_adam(matrix: Matrix) -> float:
    return xavier(matrix) * ((2 * matrix.place.num_layers) ** -0.5 if matrix.role in GAINED else 1)


def su_pre_adam(matrix: Matrix) -> float:
    return xavier(matrix) * (1 / (2 * matrix.place.num_layers) if matrix.role in GAINED else 1)


_NEIGHBOURS = (
    Twin(name="deepnorm, mixed bases", build=transformer(DEEPNORM, mixed_deepnorm), scheme="deepnorm"),
    Twin(name="deepnorm, uniform", build=transformer(DEEPNORM, xavier, uniform), scheme="deepnorm"),
    Twin(name="gpt2 as a scheme", build=transformer(GPT_2, gpt_2), scheme="gpt2"),
    Twin(name="pre-ln, He", build=transformer(Shape(), he), scheme="pre-ln"),
    Twin(name="pre-ln, Llama's block", build=transformer(LLAMA, flat), scheme="pre-ln"),
    Twin(name="post-ln, torch's biases", build=transformer(VASWANI, xavier, torch_biases), scheme="post-ln"),
    Twin(name="nanogpt", build=transformer(replace(GPT_2, has_bias=False), gpt_2), recipe="nanogpt"),
    Twin(name="vit", build=transformer(replace(CAIT, trained=None, branch_weight=one), flat), recipe="vit"),
    Twin(name="bart", build=transformer(replace(BERT, arch="encoder-decoder"), bart), recipe="bart"),
    Twin(
        name="torchtitan, as it is",
        build=transformer(replace(LLAMA, ffn_width=1024), torchtitan, cut_head),
        recipe="torchtitan",
    ),
    Twin(
        name="su-adam",
        build=transformer(replace(VASWANI, residual_weight=lambda at: (2 * at.num_layers) ** 0.5), su_adam),
        scheme="su-adam",
    ),
    Twin(name="su-pre-adam", build=transformer(Shape(), su_pre_adam), scheme="su-pre-adam"),
    Twin(
        name="normless width 64",
        build=transformer(replace(T_FIXUP, d_model=64, ffn_width=256), t_fixup),
        scheme="t-fixup",
    ),
)


# ---------------------------------------------------------------- all of it

PLANTED: tuple[Planted, ...] = (
    *_GPT2_FAULTS,
    *_LLAMA_FAULTS,
    *_DEEPNORM_FAULTS,
    *_TWO_SIDES,
    *_BRANCH_WEIGHTS,
    *_LN_SCALING_FAULTS,
    *_PLACES,
    *_ARITHMETIC,
)
TWINS: dict[str, Twin] = {twin.name: twin for twin in (*(planted.twin for planted in PLANTED), *_NEIGHBOURS)}
RENAMED = (
    "hf-gpt2-c-proj",
    "last-layer-skipped",
    "norm-left-out-of-one-layer",
    "layers-copied",
    "torchtitan-up-and-down",
    "index-reversed",
    "alpha-on-the-branch",
    "queries-and-keys-too",
    "fused-rows",
    "torchscale-1.15",
    "timm-layer-scale",
    "factor-before-the-norm",
)
"""Those that are looked for under other names besides."""

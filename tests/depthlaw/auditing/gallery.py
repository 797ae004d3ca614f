"""The gallery: Transformers with one planted mistake each, and beside each its twin without it.

A twin is right for the scheme or recipe that it claims, by formulas written by hand. A planted fault is the twin with
one mistake, of a kind that issue trackers are full of.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
    """A right implementation. shape, law, edits, cut: as ``transformer`` takes them. builder: the number of layers (of
    either side) to the module, where ``transformer`` does not make it. layers: the depths to look at. inputs: what the
    module is called with, where that is not guessed."""

    name: str
    shape: Shape = field(default_factory=Shape)
    law: Law = xavier
    edits: tuple[Callable[[Any], Any], ...] = ()
    cut: float | None = None
    builder: Build | None = None
    scheme: str | None = None
    recipe: str | None = None
    layers: tuple[int, ...] = LAYERS
    inputs: Callable[[nn.Module], Any] | None = None

    @property
    def build(self) -> Build:
        return self.builder or transformer(self.shape, self.law, *self.edits, cut=self.cut)

    def faulty(
        self,
        name: str,
        says: str,
        kind: str,
        *roles: str,
        law: Law | None = None,
        edit: Callable[[Any], Any] | None = None,
        builder: Build | None = None,
        side: str | None = None,
        **changes: Any,
    ) -> Planted:
        """The same with one mistake: another law, an edit of the model besides, another builder, or changes of its
        shape."""
        edits = self.edits if edit is None else (*self.edits, edit)
        shape = replace(self.shape, **changes)
        wrong = replace(self, shape=shape, law=law or self.law, edits=edits, builder=builder or self.builder)
        return Planted(name=name, says=says, twin=self, build=wrong.build, kind=kind, roles=roles, side=side)


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A mistake. says: what the programmer did. twin: the same without it, whose claim both make. kind, roles, side: of
    the fault that is to be reported; no roles where the fault is of none, no side where it may be any."""

    name: str
    says: str
    twin: Twin
    build: Build
    kind: str
    roles: tuple[str, ...] = ()
    side: str | None = None


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


gpt2 = Twin(name="gpt2", shape=GPT_2, law=gpt_2, recipe="gpt2")
gpt2_apart = Twin(name="gpt2, q, k and v apart", shape=replace(GPT_2, is_fused=False), law=gpt_2, recipe="gpt2")


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


_GPT2_FAULTS = (
    gpt2.faulty(
        "hf-gpt2-c-proj",
        "The rule for output matrices is written, but the generic initialisation runs later and erases it.",
        "init-law",
        *OUTPUTS,
        edit=reset,
    ),
    gpt2.faulty(
        "logits-not-divided",
        "The products of queries and keys are not divided by the square root of the head size.",
        "attention-scale",
        "q",
        attention_scale=1.0,
    ),
    gpt2.faulty(
        "logits-divided-twice",
        "They are divided by the head size, and not by its square root.",
        "attention-scale",
        "q",
        attention_scale=NUM_HEADS / GPT_2.d_model,
    ),
    gpt2.faulty(
        "n-for-2n",
        "Outputs are divided by sqrt(N), with the number of layers in the place of the number of sublayers.",
        "init-constant",
        *OUTPUTS,
        law=outputs(lambda at: at.num_layers**-0.5),
    ),
    gpt2.faulty(
        "square-root-forgotten",
        "Outputs are divided by 2N instead of its square root.",
        "init-law",
        *OUTPUTS,
        law=outputs(lambda at: 1 / (2 * at.num_layers)),
    ),
    gpt2.faulty(
        "sign-of-the-exponent",
        "Outputs are multiplied by sqrt(2N) instead of divided by it.",
        "init-law",
        *OUTPUTS,
        law=outputs(lambda at: math.sqrt(2 * at.num_layers)),
    ),
    gpt2.faulty(
        "attention-alone",
        "The rule is applied to the attention's output matrix and not to the FFN's.",
        "init-law",
        "fc2",
        law=flat,
        edit=attention_only,
    ),
    gpt2.faulty(
        "scaled-twice",
        "Output matrices are drawn small, and divided by sqrt(2N) once more.",
        "init-law",
        *OUTPUTS,
        edit=scale_outputs,
    ),
    gpt2.faulty(
        "last-layer-skipped",
        "The loop over layers ends one too early: the last layer's outputs are not made smaller.",
        "init-law",
        *OUTPUTS,
        law=flat,
        edit=all_but_last,
    ),
    gpt2.faulty(
        "depth-of-the-default-config",
        "The factor is that of 12 layers, the default of the configuration, whatever is built.",
        "init-law",
        *OUTPUTS,
        law=outputs(lambda at: 24**-0.5),
    ),
    gpt2.faulty(
        "index-for-depth",
        "Outputs are divided by sqrt(2l), with the layer's index in the place of the number of layers.",
        "init-law",
        *OUTPUTS,
        law=outputs(lambda at: (2 * at.layer) ** -0.5),
    ),
    gpt2.faulty(
        "init-and-branch-weight",
        "Both the outputs' initialisation and the branch itself are divided by sqrt(2N).",
        "branch-weight",
        branch_weight=lambda at: (2 * at.num_layers) ** -0.5,
    ),
    gpt2.faulty(
        "torch-biases",
        "Weights are drawn anew and biases left as torch made them: uniform, not zero.",
        "bias",
        edit=torch_biases,
    ),
    gpt2.faulty("final-norm-forgotten", "The norm behind the last layer is missing.", "norms", has_final=False),
    gpt2.faulty(
        "norm-left-out-of-one-layer", "The FFN of the second layer has no norm.", "norms", norms=but_layer_2(PRE, "pre")
    ),
    gpt2.faulty("rms-for-layernorm", "RMSNorm stands where LayerNorm should.", "norms", norm=nn.RMSNorm),
    gpt2.faulty(
        "extra-norm-on-the-branch",
        "A second norm stands behind each branch, before the sum.",
        "norms",
        norms=everywhere("pre", "branch"),
    ),
    gpt2.faulty(
        "residual-left-out-of-one-layer",
        "The FFN of the second layer is not added to the stream but replaces it.",
        "no-residual",
        sublayer=ResidualLeftOut,
    ),
    gpt2.faulty(
        "embedding-never-initialised",
        "The embedding keeps torch's standard normal: the initialisation goes over linear layers only.",
        "embedding",
        edit=default_embedding,
    ),
    gpt2.faulty(
        "tied-scaled-twice",
        "Embedding and head are one tensor, and both are made ten times smaller: a hundred times in all.",
        "embedding",
        edit=scale_tied_twice,
    ),
    gpt2.faulty(
        "gains-drawn-normal",
        "The initialisation of matrices is applied to norm gains too: they start near 0.",
        "norm-gain",
        edit=all_parameters_normal,
    ),
    gpt2.faulty("gains-of-a-tenth", "Norm gains start at 0.1.", "norm-gain", edit=gains_of_a_tenth),
    gpt2.faulty(
        "layers-copied",
        "One layer is made and deep-copied: all layers start alike.",
        "identical-layers",
        edit=copied_layers,
    ),
    gpt2.faulty(
        "layers-shared",
        "A list of one layer times N: the layers are one and the same module.",
        "shared-layers",
        edit=shared_layers,
    ),
    gpt2.faulty(
        "layers-in-turn",
        "Half as many layers are made as are run: the whole stack is run twice.",
        "shared-layers",
        edit=layers_in_turn,
    ),
    gpt2.faulty(
        "copies-in-turn", "Two layers are made, and deep-copied in turn.", "identical-layers", edit=copies_in_turn
    ),
    gpt2.faulty(
        "one-matrix-shared", "All layers have the first one's FFN output matrix.", "shared-layers", edit=shared_ffn
    ),
    gpt2.faulty(
        "depth-ignored",
        "The builder makes four layers, the default of its configuration, whatever it is asked for.",
        "depth-ignored",
        builder=lambda num_layers: transformer(GPT_2, gpt_2)(4),
    ),
    gpt2.faulty(
        "zero-in-zero-out",
        "Both matrices of every FFN start at zero: neither ever gets a gradient.",
        "dead-branch",
        edit=zero_layers,
    ),
    gpt2.faulty(
        "epsilon-of-a-tenth", "The norms have an eps of 0.1, on a stream whose variance is 0.001.", "epsilon", eps=0.1
    ),
    gpt2_apart.faulty(
        "suffix-takes-too-much",
        "All parameters whose names end in proj.weight are made smaller: q, k, v and the up matrix, too.",
        "init-law",
        "q",
        "k",
        "v",
        "fc1",
        edit=suffix_of,
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
llama = Twin(name="llama-2", shape=LLAMA, law=flat, recipe="llama-2")
olmo_1 = Twin(name="mitchell", shape=MITCHELL, law=mitchell, cut=3, recipe="mitchell")
olmo_1_fused = Twin(
    name="mitchell, fused", shape=replace(MITCHELL, is_fused=True), law=mitchell, cut=3, recipe="mitchell"
)
gpt2_gated = Twin(
    name="gpt2 rule, gated", shape=LLAMA, law=outputs(lambda at: (2 * at.num_layers) ** -0.5, xavier), scheme="gpt2"
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
    gpt2_gated.faulty(
        "llama2.c-up-for-down",
        "w3, the up matrix, is made smaller in the place of w2, the output (karpathy/llama2.c issue 579).",
        "init-law",
        "fc2",
        "fc3",
        law=llama2_c,
    ),
    olmo_1.faulty(
        "torchtitan-up-and-down",
        "w3, the up matrix, is made smaller besides w2, the output (pytorch/torchtitan issue 3334).",
        "init-law",
        "fc3",
        law=by_index(lambda at: (2 * at.layer) ** -0.5, "out", "fc2", "fc3"),
    ),
    olmo_1.faulty(
        "gate-for-down",
        "The gate is made smaller in the place of the output matrix.",
        "init-law",
        "fc1",
        "fc2",
        law=by_index(lambda at: (2 * at.layer) ** -0.5, "out", "fc1"),
    ),
    olmo_1.faulty(
        "index-reversed",
        "Layers are counted from the end: the first layer's outputs are the smallest.",
        "init-law",
        *OUTPUTS,
        law=by_index(lambda at: (2 * (at.num_layers - at.layer + 1)) ** -0.5, *OUTPUTS),
    ),
    olmo_1.faulty(
        "index-from-one-and-one-more",
        "The index counts from 1, and 1 is added as if it counted from 0.",
        "init-law",
        *OUTPUTS,
        law=by_index(lambda at: (2 * (at.layer + 1)) ** -0.5, *OUTPUTS),
    ),
    olmo_1.faulty(
        "depth-for-index",
        "Outputs are divided by sqrt(2N) in every layer, with the depth in the place of the layer's index.",
        "init-law",
        *OUTPUTS,
        law=by_index(lambda at: (2 * at.num_layers) ** -0.5, *OUTPUTS),
    ),
    olmo_1_fused.faulty(
        "xavier-of-the-fused-matrix",
        "The fused matrix of 3d rows starts by Xavier, not by its input width: q, k and v are smaller by sqrt(2).",
        "init-constant",
        "q",
        "k",
        "v",
        edit=xavier_of_fused,
    ),
    llama.faulty("layernorm-for-rms", "LayerNorm stands where RMSNorm should.", "norms", norm=nn.LayerNorm),
    llama.faulty(
        "head-by-depth",
        "The head is divided by sqrt(2N) like an output matrix: its name ends the same way.",
        "head",
        edit=head_by_depth,
    ),
    llama.faulty(
        "embedding-multiplied",
        "The embedding is multiplied by 30, as Gemma does and Llama does not.",
        "embedding",
        embedding_multiplier=30.0,
    ),
    llama.faulty(
        "llama-by-depth",
        "Llama's flat initialisation is given GPT-2's rule for one of its two output matrices.",
        "init-law",
        "fc2",
        law=only(gpt_2, "fc2"),
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


deepnorm_twin = Twin(name="deepnorm", shape=DEEPNORM, law=deepnorm, scheme="deepnorm")
deepnorm_fused = Twin(name="deepnorm, fused", shape=replace(DEEPNORM, is_fused=True), law=deepnorm, scheme="deepnorm")
pre_ln = Twin(name="pre-ln", scheme="pre-ln")
post_ln = Twin(name="post-ln", shape=VASWANI, scheme="post-ln")


_DEEPNORM_FAULTS = (
    deepnorm_twin.faulty(
        "alpha-on-the-branch",
        "The residual weight multiplies the branch, not the stream.",
        "residual-weight",
        sublayer=OnTheBranch,
    ),
    deepnorm_twin.faulty(
        "alpha-exponent",
        "The residual weight is (2N)^(1/2).",
        "residual-weight",
        residual_weight=lambda at: (2 * at.num_layers) ** 0.5,
    ),
    deepnorm_twin.faulty(
        "alpha-sign",
        "The residual weight is (2N)^(-1/4).",
        "residual-weight",
        residual_weight=lambda at: (2 * at.num_layers) ** -0.25,
    ),
    deepnorm_twin.faulty(
        "alpha-n-for-2n",
        "The residual weight is N^(1/4).",
        "residual-weight",
        residual_weight=lambda at: at.num_layers**0.25,
    ),
    deepnorm_twin.faulty(
        "alpha-sublayers",
        "N is taken to count sublayers: (4N)^(1/4).",
        "residual-weight",
        residual_weight=lambda at: (4 * at.num_layers) ** 0.25,
    ),
    deepnorm_twin.faulty(
        "alpha-of-an-encoder-decoder",
        "The residual weight is that of the encoder of an encoder-decoder.",
        "residual-weight",
        residual_weight=lambda at: 0.81 * at.num_layers ** (5 / 16),
    ),
    deepnorm_twin.faulty(
        "alpha-of-12-layers",
        "The residual weight is that of 12 layers at every depth.",
        "residual-weight",
        residual_weight=lambda at: 24**0.25,
    ),
    deepnorm_twin.faulty(
        "alpha-by-index",
        "The residual weight grows with the layer's index.",
        "residual-weight",
        residual_weight=lambda at: (2 * at.layer) ** 0.25,
    ),
    deepnorm_twin.faulty(
        "alpha-forgotten-in-ffn",
        "The FFN's sum has no residual weight.",
        "residual-weight",
        residual_weight=lambda at: (2 * at.num_layers) ** 0.25 if at.kind == "attention" else 1.0,
    ),
    deepnorm_twin.faulty(
        "queries-and-keys-too",
        "Queries and keys get the gain, too.",
        "init-law",
        "q",
        "k",
        law=xavier_scaled(lambda at: (8 * at.num_layers) ** -0.25, *GAINED, "q", "k"),
    ),
    deepnorm_twin.faulty(
        "values-forgotten",
        "Values do not get the gain.",
        "init-law",
        "v",
        law=xavier_scaled(lambda at: (8 * at.num_layers) ** -0.25, "out", "fc1", "fc2"),
    ),
    deepnorm_twin.faulty(
        "beta-exponent",
        "The gain is (8N)^(-1/2).",
        "init-law",
        "v",
        "out",
        "fc1",
        "fc2",
        law=xavier_scaled(lambda at: (8 * at.num_layers) ** -0.5, *GAINED),
    ),
    deepnorm_twin.faulty(
        "beta-sign",
        "The gain is (8N)^(1/4).",
        "init-law",
        "v",
        "out",
        "fc1",
        "fc2",
        law=xavier_scaled(lambda at: (8 * at.num_layers) ** 0.25, *GAINED),
    ),
    deepnorm_twin.faulty(
        "beta-2n-for-8n",
        "The gain is (2N)^(-1/4), one over the residual weight.",
        "init-constant",
        "v",
        "out",
        "fc1",
        "fc2",
        law=xavier_scaled(lambda at: (2 * at.num_layers) ** -0.25, *GAINED),
    ),
    deepnorm_twin.faulty(
        "beta-of-12-layers",
        "The gain is that of 12 layers at every depth.",
        "init-law",
        "v",
        "out",
        "fc1",
        "fc2",
        law=xavier_scaled(lambda at: 96**-0.25, *GAINED),
    ),
    deepnorm_twin.faulty(
        "beta-twice",
        "The initialisation runs twice, and multiplies by the gain both times.",
        "init-law",
        "v",
        "out",
        "fc1",
        "fc2",
        law=xavier_scaled(lambda at: (8 * at.num_layers) ** -0.25 * (8 * at.num_layers) ** -0.25, *GAINED),
    ),
    deepnorm_twin.faulty(
        "beta-lost",
        "The gain is applied, and a later Xavier initialisation of all matrices erases it.",
        "init-law",
        "v",
        "out",
        "fc1",
        "fc2",
        law=xavier,
    ),
    deepnorm_fused.faulty(
        "fused-rows",
        "The gain of the values lands on the rows of the queries in the fused matrix.",
        "init-law",
        "q",
        "v",
        law=xavier_scaled(lambda at: (8 * at.num_layers) ** -0.25, "out", "fc1", "fc2"),
        edit=q_for_v,
    ),
    pre_ln.faulty(
        "pre-norm-with-alpha",
        "A pre-norm model gets DeepNorm's residual weight.",
        "residual-weight",
        residual_weight=lambda at: (2 * at.num_layers) ** 0.25,
    ),
    deepnorm_twin.faulty(
        "deepnorm-before-the-branch", "The norms of DeepNorm stand before the branches.", "norms", norms=PRE
    ),
    pre_ln.faulty(
        "post-for-pre",
        "The flag norm_first is left at False: a pre-norm scheme is built post-norm.",
        "norms",
        norms=everywhere("post"),
        has_final=False,
    ),
    post_ln.faulty("pre-for-post", "A post-norm scheme is built pre-norm.", "norms", norms=PRE, has_final=True),
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
both = Twin(name="deepnorm, two sides", shape=BOTH, law=xavier_scaled(two_gains, *GAINED), scheme="deepnorm")


_TWO_SIDES = (
    both.faulty(
        "encoder-constants-of-one-stack",
        "The encoder of an encoder-decoder gets the residual weight of an encoder by itself, (2N)^(1/4).",
        "residual-weight",
        residual_weight=lambda at: ((2 if at.side == "encoder" else 3) * at.num_layers) ** 0.25,
    ),
    both.faulty(
        "decoder-2m-for-3m",
        "The decoder's residual weight is (2M)^(1/4): the cross-attention is not counted.",
        "residual-weight",
        residual_weight=lambda at: two_sides(at) if at.side == "encoder" else (2 * at.num_layers) ** 0.25,
    ),
    both.faulty(
        "torchscale-1.15",
        "The encoder's gain has 1.15, one over 0.87, in the place of 0.87 (torchscale 0.3.0).",
        "init-constant",
        "v",
        "out",
        "fc1",
        "fc2",
        law=xavier_scaled(lambda at: two_gains(at, 1.15), *GAINED),
    ),
    both.faulty(
        "cross-attention-forgotten",
        "The cross-attention's values and outputs do not get the decoder's gain.",
        "init-law",
        "cross_v",
        "cross_out",
        law=xavier_scaled(two_gains, "v", "out", "fc1", "fc2"),
    ),
    both.faulty(
        "one-gain-for-both",
        "The decoder gets the encoder's gain.",
        "init-law",
        "v",
        "out",
        "fc1",
        "fc2",
        "cross_v",
        "cross_out",
        law=xavier_scaled(lambda at: two_gains(replace(at, side="encoder")), *GAINED),
        d_model=64,
        ffn_width=256,
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


completep = Twin(name="completep", shape=COMPLETEP, scheme="completep")
depth_mup = Twin(name="depth-mup", shape=DEPTH_MUP, scheme="depth-mup")
rezero = Twin(name="rezero", shape=REZERO, scheme="rezero")
cait = Twin(name="cait", shape=CAIT, law=flat, recipe="cait")
deep_cait = replace(cait, name="cait, 36 layers", layers=(6, 36))
minicpm_twin = Twin(name="minicpm", shape=MINICPM, law=minicpm, recipe="minicpm")


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


_BRANCH_WEIGHTS = (
    depth_mup.faulty(
        "branch-weight-twice",
        "The branch weight is applied inside the branch and again at the sum.",
        "branch-weight",
        sublayer=WeightedTwice,
    ),
    depth_mup.faulty(
        "branch-weight-n-for-2n",
        "The branch weight counts layers instead of sublayers: N^(-1/2).",
        "branch-weight",
        branch_weight=lambda at: at.num_layers**-0.5,
    ),
    completep.faulty(
        "branch-weight-exponent",
        "CompleteP's branch weight is N^(-1/2), not 1/N.",
        "branch-weight",
        branch_weight=lambda at: at.num_layers**-0.5,
    ),
    completep.faulty(
        "branch-weight-of-12-layers",
        "The branch weight is that of 12 layers at every depth.",
        "branch-weight",
        branch_weight=lambda at: 1 / 12,
    ),
    completep.faulty(
        "branch-weight-in-ffn-alone",
        "The attention's branch is not weighted.",
        "branch-weight",
        branch_weight=lambda at: 1 / at.num_layers if at.kind == "ffn" else 1.0,
    ),
    completep.faulty(
        "weight-on-the-sum",
        "The branch weight multiplies the sum of stream and branch.",
        "residual-weight",
        sublayer=WeightedSum,
    ),
    rezero.faulty("rezero-at-one", "ReZero's scalars start at 1.", "branch-weight", branch_weight=one),
    rezero.faulty("rezero-not-trained", "ReZero's scalar is a plain number, 0 for ever.", "dead-branch", trained=None),
    rezero.faulty(
        "rezero-and-zero-outputs",
        "ReZero's scalar and the output matrices both start at zero: neither ever gets a gradient.",
        "dead-branch",
        edit=zero_outputs,
    ),
    cait.faulty(
        "timm-layer-scale",
        "LayerScale starts at 1, whatever it was told (timm 1.0.21, issue 2605).",
        "branch-weight",
        edit=ones_for_vectors,
    ),
    deep_cait.faulty(
        "cait-36",
        "LayerScale starts at 1e-5 at 36 layers, where the paper has 1e-6 (facebookresearch/deit issue 122).",
        "branch-weight",
        branch_weight=lambda at: 1e-5 if at.num_layers > 24 else layer_scale(at),
    ),
    cait.faulty(
        "cait-of-24-layers",
        "LayerScale starts at 1e-5 whatever the depth, where its authors have 0.1 up to 18 layers.",
        "branch-weight",
        branch_weight=lambda at: 1e-5,
    ),
    cait.faulty(
        "layer-scale-in-attention-alone",
        "The FFN's branch has its LayerScale at 1.",
        "branch-weight",
        branch_weight=lambda at: 0.1 if at.kind == "attention" else 1.0,
    ),
    minicpm_twin.faulty(
        "minicpm-branch-weight",
        "MiniCPM's branch weight is 1.4/N: the square root is forgotten.",
        "branch-weight",
        branch_weight=lambda at: 1.4 / at.num_layers,
    ),
    minicpm_twin.faulty(
        "embedding-multiplier-forgotten",
        "The embedding is not multiplied by 12.",
        "embedding",
        embedding_multiplier=1.0,
    ),
    minicpm_twin.faulty(
        "embedding-multiplier-twice",
        "The embedding is multiplied by 12 twice.",
        "embedding",
        embedding_multiplier=144.0,
    ),
    minicpm_twin.faulty(
        "head-not-by-width",
        "The head lacks muP's factor of the width.",
        "head",
        law=lambda matrix: 0.1 / math.sqrt(32 / 256),
    ),
)

# ---------------------------------------------------------------- LN-scaling

LN_SCALING = replace(LLAMA, input_scale=lambda at: at.layer**-0.5)
ln_scaling = Twin(name="ln-scaling", shape=LN_SCALING, law=flat, recipe="ln-scaling")


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
    builder=lambda num_layers: LateModel(replace(LLAMA, sublayer=Restored), num_layers, flat),
    recipe="ln-scaling",
)
layer_scale_late = Twin(
    name="layer scale, on meta", builder=lambda num_layers: LateModel(LAYER_SCALE, num_layers, flat)
)

_LN_SCALING_FAULTS = (
    ln_scaling.faulty(
        "factor-before-the-norm",
        "The factor of the depth stands before the norm, which takes it away.",
        "input-scale",
        sublayer=ScaledBeforeNorm,
    ),
    ln_scaling.faulty(
        "factor-of-the-depth",
        "The factor is N^(-1/2) in every layer, not l^(-1/2).",
        "input-scale",
        input_scale=lambda at: at.num_layers**-0.5,
    ),
    ln_scaling.faulty(
        "index-from-zero",
        "The index counts from 0, and a max(1, index) keeps it from dividing by zero.",
        "input-scale",
        input_scale=lambda at: max(1, at.layer - 1) ** -0.5,
    ),
    ln_scaling.faulty(
        "factor-left-out",
        "A pre-norm model is said to be LN-scaled: the option is read by nobody.",
        "input-scale",
        input_scale=one,
    ),
    ln_scaling_late.faulty(
        "olmo-core-buffer-lost",
        "The factor is a buffer that to_empty erases and init_weights leaves out (allenai/OLMo-core issue 698).",
        "lost-on-meta",
        builder=lambda num_layers: LateModel(replace(LLAMA, sublayer=Buffered), num_layers, flat),
    ),
    layer_scale_late.faulty(
        "layer-scale-lost",
        "LayerScale is set where it is made, and init_weights forgets it after to_empty.",
        "lost-on-meta",
        builder=lambda num_layers: Forgetful(LAYER_SCALE, num_layers, flat),
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


sub_ln = Twin(name="sub-ln", shape=SUB_LN, scheme="sub-ln")
peri_ln = Twin(name="peri-ln", shape=PERI_LN, scheme="peri-ln")
olmo_2 = Twin(name="olmo-2", shape=OLMO_2, law=flat, cut=3, recipe="olmo-2")
bert_twin = Twin(name="bert", shape=BERT, law=bert, cut=2, recipe="bert")
keel = Twin(name="keel", shape=KEEL, scheme="keel")
keel_half = Twin(name="keel, float16", shape=KEEL, edits=(nn.Module.half,), scheme="keel")
mix_ln = Twin(name="mix-ln", shape=MIX_LN, scheme="mix-ln", layers=(4, 8))
t_fixup_twin = Twin(name="t-fixup", shape=T_FIXUP, law=t_fixup, scheme="t-fixup")
t5_twin = Twin(name="t5", shape=T5, law=t5, recipe="t5")


def _torch_encoder(num_layers: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, NUM_HEADS, 128, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, num_layers)


def _torch_encoder_redrawn(num_layers: int) -> nn.Module:
    model = _torch_encoder(num_layers)
    model.layers = nn.ModuleList(
        nn.TransformerEncoderLayer(32, NUM_HEADS, 128, dropout=0.0, batch_first=True) for _ in range(num_layers)
    )
    return model


torch_encoder = Twin(name="torch.nn.TransformerEncoder, drawn anew", builder=_torch_encoder_redrawn)

_PLACES = (
    sub_ln.faulty(
        "inner-norm-in-ffn-alone",
        "Sub-LN's second norm stands in the FFN and not in the attention.",
        "norms",
        norms=lambda at: frozenset({"pre", "inner"} if at.kind == "ffn" else {"pre"}),
    ),
    sub_ln.faulty(
        "inner-norm-left-out-of-one-layer",
        "The attention of the second layer lacks Sub-LN's second norm.",
        "norms",
        norms=but_layer_2(SUB_LN.norms, "inner", kind="attention"),
    ),
    peri_ln.faulty(
        "branch-norm-left-out-of-attention",
        "Peri-LN's second norm stands behind the FFN and not behind the attention.",
        "norms",
        norms=lambda at: frozenset({"pre", "branch"} if at.kind == "ffn" else {"pre"}),
    ),
    olmo_2.faulty(
        "query-norm-left-out-of-one-layer",
        "The second layer normalises neither its queries nor its keys.",
        "norms",
        norms=but_layer_2(OLMO_2.norms, "q", "k", kind="attention"),
    ),
    olmo_2.faulty(
        "olmo-2-before-the-branch",
        "OLMo 2's norms stand before the branches, as in OLMo 1.",
        "norms",
        norms=everywhere("pre", "q", "k"),
    ),
    bert_twin.faulty(
        "bert-by-depth",
        "BERT's matrices get GPT-2's rule on outputs.",
        "init-law",
        *OUTPUTS,
        law=lambda matrix: 1.0 if matrix.role == "embedding" else gpt_2(matrix),
    ),
    keel.faulty(
        "keel-layers-for-sublayers",
        "The residual weight is N, not 2N.",
        "residual-weight",
        residual_weight=lambda at: float(at.num_layers),
    ),
    keel_half.faulty(
        "half-overflow",
        "The norm behind the sum is forgotten: a stream that grows by 2N at each sum overflows float16.",
        "not-finite",
        norms=PRE,
        has_final=True,
    ),
    mix_ln.faulty(
        "mix-ln-reversed",
        "The last quarter of the layers is post-norm, not the first.",
        "norms",
        norms=lambda at: frozenset({"post"} if 4 * at.layer > 3 * at.num_layers else {"pre"}),
    ),
    t_fixup_twin.faulty(
        "t-fixup-constant",
        "The factor 0.67 is forgotten.",
        "init-constant",
        "v",
        "out",
        "fc1",
        "fc2",
        law=lambda matrix: t_fixup(matrix) / (0.67 if matrix.role in GAINED else 1),
    ),
    t_fixup_twin.faulty(
        "t-fixup-embedding-forgotten",
        "T-Fixup's matrices are scaled, and its embedding is not.",
        "embedding",
        "embedding",
        law=lambda matrix: 1.0 if matrix.role == "embedding" else t_fixup(matrix),
    ),
    t_fixup_twin.faulty(
        "t-fixup-with-norms",
        "T-Fixup's initialisation is used, and the norms that it is to replace are kept.",
        "norms",
        norms=PRE,
        has_final=True,
    ),
    t5_twin.faulty(
        "t5-queries",
        "Queries start at 1/sqrt(d), though attention scores are not divided by anything.",
        "init-constant",
        "q",
        "cross_q",
        law=lambda matrix: 1.0 if matrix.role == "embedding" else replace_query(matrix),
    ),
    torch_encoder.faulty(
        "torch-transformer-encoder",
        "torch.nn.TransformerEncoder deep-copies one layer (pytorch issue 72253).",
        "identical-layers",
        builder=_torch_encoder,
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
fixup_twin = Twin(name="fixup", shape=FIXUP, law=fixup, scheme="fixup")
dyt = Twin(name="dyt", shape=Shape(norm=DynamicTanh), scheme="dyt")
sub_ln_gamma = Twin(
    name="sub-ln-gamma",
    shape=SUB_LN,
    law=xavier_scaled(lambda at: math.log(2 * at.num_layers) ** 0.5, *SUB_LN_GAMMA),
    scheme="sub-ln-gamma",
)

_ARITHMETIC = (
    sub_ln_gamma.faulty(
        "log-to-base-2",
        "Sub-LN's gain takes the logarithm to base 2.",
        "init-constant",
        *SUB_LN_GAMMA,
        law=xavier_scaled(lambda at: math.log2(2 * at.num_layers) ** 0.5, *SUB_LN_GAMMA),
    ),
    sub_ln_gamma.faulty(
        "log-without-root",
        "Sub-LN's gain is log 2N, not its square root.",
        "init-law",
        *SUB_LN_GAMMA,
        law=xavier_scaled(lambda at: math.log(2 * at.num_layers), *SUB_LN_GAMMA),
    ),
    llama.faulty(
        "bounds-for-deviations",
        "Weights are drawn between -0.02 and 0.02, where 0.02 is to be their standard deviation.",
        "init-constant",
        "q",
        "k",
        "v",
        "out",
        "fc1",
        "fc2",
        "fc3",
        edit=bounds_for_stds,
    ),
    olmo_1.faulty(
        "variance-for-deviation",
        "The variance 1/fan-in is passed as the standard deviation.",
        "init-constant",
        "q",
        "k",
        "v",
        "out",
        "fc1",
        "fc2",
        "fc3",
        law=lambda m: fan_in(m) if m.at is None else mitchell(m) * fan_in(m),
    ),
    fixup_twin.faulty(
        "fixup-outputs-not-zero",
        "Fixup's output matrices are not set to zero.",
        "init-law",
        *OUTPUTS,
        law=lambda matrix: xavier(matrix) if matrix.role in OUTPUTS else fixup(matrix),
    ),
    fixup_twin.faulty(
        "fixup-with-one-more-zero",
        "Fixup's scalars start at zero like its output matrices.",
        "dead-branch",
        branch_weight=lambda at: 0.0,
    ),
    dyt.faulty("layernorm-for-dyt", "LayerNorm is left in the place of DyT.", "norms", norm=nn.LayerNorm),
    bert_twin.faulty(
        "embedding-norm-forgotten",
        "BERT's norm behind the embedding is missing: the stream starts at 0.02.",
        "embedding",
        edit=scaled_bert,
        has_embedding_norm=False,
    ),
    deepnorm_twin.faulty(
        "alpha-from-the-second-layer",
        "The first layer has no residual weight.",
        "residual-weight",
        residual_weight=lambda at: 1.0 if at.layer == 1 else (2 * at.num_layers) ** 0.25,
    ),
    t5_twin.faulty(
        "cross-attention-without-a-norm",
        "The decoder's cross-attention has no norm.",
        "norms",
        norms=lambda at: frozenset() if at.kind == "cross" else frozenset({"pre"}),
    ),
    t5_twin.faulty(
        "encoder-of-6-layers",
        "The number of layers is the decoder's alone: the encoder has 6, whatever is asked for.",
        "depth-ignored",
        builder=_fixed_encoder,
    ),
    pre_ln.faulty(
        "first-layer-post-norm",
        "The first layer is post-norm: it was copied from another model.",
        "norms",
        "pre",
        "post",
        norms=lambda at: frozenset({"post" if at.layer == 1 else "pre"}),
    ),
    gpt2_apart.faulty(
        "one-layer-reinitialised",
        "The second layer is reset by torch's defaults after the initialisation.",
        "init-law",
        "q",
        "k",
        "v",
        "out",
        "fc1",
        "fc2",
        edit=reset_layer_2,
    ),
    both.faulty(
        "encoder-without-alpha",
        "The encoder of an encoder-decoder has no residual weight.",
        "residual-weight",
        residual_weight=lambda at: 1.0 if at.side == "encoder" else two_sides(at),
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
    Twin(name="deepnorm, mixed bases", shape=DEEPNORM, law=mixed_deepnorm, scheme="deepnorm"),
    Twin(name="deepnorm, uniform", shape=DEEPNORM, edits=(uniform,), scheme="deepnorm"),
    Twin(name="gpt2 as a scheme", shape=GPT_2, law=gpt_2, scheme="gpt2"),
    Twin(name="pre-ln, He", law=he, scheme="pre-ln"),
    Twin(name="pre-ln, Llama's block", shape=LLAMA, law=flat, scheme="pre-ln"),
    Twin(name="post-ln, torch's biases", shape=VASWANI, edits=(torch_biases,), scheme="post-ln"),
    Twin(name="nanogpt", shape=replace(GPT_2, has_bias=False), law=gpt_2, recipe="nanogpt"),
    Twin(name="vit", shape=replace(CAIT, trained=None, branch_weight=one), law=flat, recipe="vit"),
    Twin(name="bart", shape=replace(BERT, arch="encoder-decoder"), law=bart, recipe="bart"),
    Twin(
        name="torchtitan, as it is",
        shape=replace(LLAMA, ffn_width=1024),
        law=torchtitan,
        edits=(cut_head,),
        recipe="torchtitan",
    ),
    Twin(
        name="su-adam",
        shape=replace(VASWANI, residual_weight=lambda at: (2 * at.num_layers) ** 0.5),
        law=su_adam,
        scheme="su-adam",
    ),
    Twin(name="su-pre-adam", law=su_pre_adam, scheme="su-pre-adam"),
    Twin(name="normless width 64", shape=replace(T_FIXUP, d_model=64, ffn_width=256), law=t_fixup, scheme="t-fixup"),
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

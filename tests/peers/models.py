"""Models of other packages, in the environment of one of them: what the audit says of each.

python -m tests.peers.models PACKAGE prints a document: by model, the kind, role and side of each fault.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import library, nn

from depthlaw.auditing.audit import audit
from depthlaw.auditing.builders import hugging_face
from depthlaw.testing.outcome import Outcome

WIDTH, HEADS, LAYERS = 64, 2, (2, 4, 8)
HUGGING_FACE = ("gpt2", "bert", "bart", "llama", "olmo2", "t5", "gpt_neox", "qwen3", "gemma2", "vit")


@dataclass(frozen=True, kw_only=True)
class Model:
    """A builder, what it claims to be, the depths to look at, and what it is called with where that is not guessed.
    accepted: what was built before, as a baseline has it; roles that start otherwise now are told as "changed"."""

    build: Callable[[int], nn.Module]
    inputs: Callable[[nn.Module], Any] | None = None
    scheme: str | None = None
    recipe: str | None = None
    layers: tuple[int, ...] = LAYERS
    accepted: Callable[[int], nn.Module] | None = None

    def faults(self) -> list[str]:
        try:
            answer = audit(
                self.build, self.layers, scheme=self.scheme, recipe=self.recipe, inputs=self.inputs, measures=False
            )
        except ValueError as error:
            return [f"refused: {error}"]
        found = {" ".join(filter(None, (fault.kind, fault.role, fault.side))) for fault in answer.findings.faults}
        if self.accepted is not None:
            before = audit(self.accepted, self.layers, inputs=self.inputs, measures=False, has_nearest=False)
            changes = Outcome.of(answer, baseline=Outcome.of(before).baseline).changes
            found |= {f"changed {change.partition(' starts at ')[0]}" for change in changes}
        return sorted(found)


def timm() -> Iterator[tuple[str, Model]]:
    """Its models call nothing of torchvision's compiled part, which is made for one build of torch alone."""
    own = library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        own.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    cait = import_module("timm.models.cait").Cait
    vit = import_module("timm.models.vision_transformer").VisionTransformer
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": WIDTH, "num_heads": HEADS, "num_classes": 10}
    yield "vit", Model(build=lambda layers: vit(depth=layers, **sizes), recipe="vit")
    deep = (20, 24)  # where CaiT has that
    scaled = Model(build=lambda layers: vit(depth=layers, init_values=1e-5, **sizes), recipe="cait", layers=deep)
    yield "vit, init_values=1e-5", scaled
    yield "cait", Model(build=lambda n: cait(depth=n, init_values=1e-5, **sizes), recipe="cait", layers=deep)
    xxs = Model(build=lambda n: cait(depth=n, init_values=1e-5, **sizes), recipe="cait", layers=(24, 36))
    yield "cait, XXS36", xxs


def transformers() -> Iterator[tuple[str, Model]]:
    for name in HUGGING_FACE:
        build, recipe = hugging_face(name, WIDTH)
        yield name, Model(build=build, recipe=recipe)


def litgpt() -> Iterator[tuple[str, Model]]:
    package, pretrain = import_module("litgpt"), import_module("litgpt.pretrain")
    fabric = import_module("lightning").Fabric(accelerator="cpu", devices=1)

    def build(name: str, layers: int, *, is_pretrained_from_scratch: bool | None) -> nn.Module:
        """None: as torch starts it, with no initialisation of litgpt's own."""
        own = {"n_embd": WIDTH, "n_head": HEADS, "n_query_groups": HEADS, "intermediate_size": 4 * WIDTH}
        config = package.Config.from_name(
            name, n_layer=layers, block_size=64, padded_vocab_size=96, vocab_size=96, **own
        )
        model = package.GPT(config)
        if is_pretrained_from_scratch:
            pretrain.initialize_weights(fabric, model, layers, WIDTH)
        elif is_pretrained_from_scratch is not None:
            model.apply(model._init_weights)
        return model

    def pythia_by_the_paper(layers: int) -> nn.Module:
        model = build("pythia-14m", layers, is_pretrained_from_scratch=True)
        for name, parameter in model.named_parameters():
            if name.endswith("proj.weight"):
                nn.init.normal_(parameter, std=2 / layers / WIDTH**0.5)
        return model

    for name, recipe in (("Llama-2-7b-hf", "llama-2"), ("OLMo-2-1124-7B", "olmo-2")):
        yield (
            name,
            Model(build=lambda layers, name=name: build(name, layers, is_pretrained_from_scratch=False), recipe=recipe),
        )
    from_scratch = Model(
        build=lambda layers: build("pythia-14m", layers, is_pretrained_from_scratch=True), recipe="gpt-neox"
    )
    yield "pythia-14m, pretrained from scratch", from_scratch
    yield "the same with the outputs of GPT-NeoX's paper", Model(build=pythia_by_the_paper, recipe="gpt-neox")
    tiny = partial(build, "tiny-llama-1.1b", is_pretrained_from_scratch=True)
    never = partial(build, "tiny-llama-1.1b", is_pretrained_from_scratch=None)
    yield "tiny-llama, pretrained from scratch, beside itself", Model(build=tiny, accepted=tiny)
    yield "the same before pull request 1162, on one device", Model(build=never, accepted=tiny)


def x_transformers() -> Iterator[tuple[str, Model]]:
    package = import_module("x_transformers")

    def build(layers: int, **options: Any) -> nn.Module:
        stack = package.Decoder(dim=WIDTH, depth=layers, heads=HEADS, attn_dim_head=WIDTH // HEADS, **options)
        return package.TransformerWrapper(num_tokens=96, max_seq_len=64, attn_layers=stack)

    yield "pre-norm", Model(build=build, scheme="pre-ln")
    yield "post-norm", Model(build=lambda layers: build(layers, pre_norm=False), scheme="post-ln")
    yield "sandwich", Model(build=lambda layers: build(layers, sandwich_norm=True), scheme="peri-ln")
    yield "pre-norm by the name of deepnorm", Model(build=build, scheme="deepnorm")
    yield (
        "one set of weights for all layers",
        Model(build=lambda layers: build(1, weight_tie_layers=True), scheme="pre-ln"),
    )


def diffusers() -> Iterator[tuple[str, Model]]:
    package = import_module("diffusers")
    head, patch, text = WIDTH // HEADS, 2, 24
    sizes = {"sample_size": 8, "patch_size": patch, "pos_embed_max_size": 8, "in_channels": 4, "out_channels": 4}
    sizes |= {"attention_head_dim": head, "num_attention_heads": HEADS, "caption_projection_dim": WIDTH}

    def build(layers: int, **options: Any) -> nn.Module:
        own = {"num_layers": layers, "joint_attention_dim": text, "pooled_projection_dim": text}
        return package.SD3Transformer2DModel(**sizes, **own, **options)

    def with_gates_of_zero(layers: int) -> nn.Module:
        model = build(layers)
        for name, parameter in model.named_parameters():
            if ".norm1" in name and "linear" in name:
                nn.init.zeros_(parameter)
        return model

    def inputs(_: nn.Module) -> dict[str, Any]:
        pictures, words = torch.randn(2, 4, 8, 8), torch.randn(2, 5, text)
        given = {"hidden_states": pictures, "encoder_hidden_states": words, "pooled_projections": torch.randn(2, text)}
        return {**given, "timestep": torch.tensor([200.0, 700.0])}

    yield "sd3", Model(build=build, inputs=inputs, scheme="pre-ln")
    normed = Model(build=lambda layers: build(layers, qk_norm="rms_norm"), inputs=inputs, scheme="pre-ln")
    yield "sd3, qk_norm", normed
    dual = Model(build=lambda layers: build(layers, dual_attention_layers=(0, 1)), inputs=inputs, scheme="pre-ln")
    yield "sd3.5, dual attention", dual
    yield "sd3 by its recipe", Model(build=build, inputs=inputs, recipe="sd3")
    yield "sd3 by its recipe, gates of 0", Model(build=with_gates_of_zero, inputs=inputs, recipe="sd3")


PACKAGES = {
    "timm": timm,
    "transformers": transformers,
    "litgpt": litgpt,
    "x-transformers": x_transformers,
    "diffusers": diffusers,
}


def main(package: str) -> None:
    warnings.simplefilter("ignore")
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    found = {name: model.faults() for name, model in PACKAGES[package]()}
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main(sys.argv[1])

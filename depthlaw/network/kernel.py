"""Plain numbers of a network that sims build, handed to the kernel rung: what is predicted is what is measured.

A scheme's residual weights, gains and learning rates are lowered once (``depthlaw.network.lower``), and both rungs
read them. Of the width the kernel rung needs ratios alone: the FFN's width to d_model, and the size of a head.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from depthlaw.network.lower import KINDS
from depthlaw.sims.config import ModelConfig, SublayerConfig, Task
from depthlaw.system.kept import kept
from depthlaw.theory.kernel import points
from depthlaw.theory.kernel.after_start import predict_after_start
from depthlaw.theory.kernel.predict import (
    REPLICATES,
    Inputs,
    KernelUpdate,
    Stream,
    Sublayer,
    Transformer,
    predict_kernel,
)
from depthlaw.theory.kernel.setting import Heads

SHARED = "its streams share their attentions, and what is derived has one stream in each attention"
"""Why there is no prediction of streams side by side."""
KIND_OF = {name: kind for kind, name in KINDS.items()}
"""Theory's kinds of sublayer by the names that sims have for them."""
points.keeper.set(kept)  # theory knows no disk: the room that asks it says where points are kept


def as_transformer(config: ModelConfig, *, head_size: int | None) -> Transformer:
    """head_size: None for infinitely large heads.

    ValueError, in one line, for what the kernel rung does not know. It predicts the roles of norms' gains and biases
    and of linear biases whether the config trains them or not; at init they are 1 and 0 either way.
    """
    if config.is_side_by_side:
        raise ValueError(SHARED)
    size = config.size_of_head
    return Transformer(
        encoder=tuple(_sublayer(config, sublayer) for sublayer in config.encoder),
        decoder=tuple(_sublayer(config, sublayer) for sublayer in config.decoder),
        placement=config.placement,
        norm_kind=config.norm_kind,
        norm_scale=config.norm_scale,
        norm_eps=config.norm_eps,
        has_final=config.has_final,
        has_second_stream=config.has_second_stream,
        visits=config.visits,
        activation=config.activation,
        ffn_ratio=config.hidden / config.d_model,
        is_causal=config.is_causal,
        head_size=head_size,
        heads=Heads(
            number=config.num_heads if _has_norms_of_heads(config) else 0,
            queries_per_key=config.num_heads // config.key_heads,
            width_ratio=config.num_heads * size / config.d_model,
            rotary_base=config.rotary_base,
            rotary_share=config.rotary_share,
            logit_scale=1.0 if config.attention_scale is None else config.attention_scale * math.sqrt(size),
            logit_softcap=config.logit_softcap,
            has_wide_norm=config.has_wide_norms,
        ),
    )


def _has_norms_of_heads(config: ModelConfig) -> bool:
    """Whose gains are as many as a head has numbers: only of these does the number of heads matter."""
    return any(config.places(sublayer) & {"q", "k", "v"} for sublayer in (*config.encoder, *config.decoder))


def _sublayer(config: ModelConfig, sublayer: SublayerConfig) -> Sublayer:
    return Sublayer(
        kind=KIND_OF[sublayer.kind],
        residual_weight=sublayer.residual_weight,
        branch_weight=sublayer.branch_weight,
        input_scale=sublayer.input_scale,
        input_weight=sublayer.input_weight,
        value_weight=sublayer.value_weight,
        first_value_weight=sublayer.first_value_weight,
        gains=sublayer.gains,
        lr_multipliers=sublayer.lr_multipliers,
        trains_branch_weight=sublayer.trains_branch_weight,
        has_layer_scale=sublayer.has_layer_scale,
        norms=config.places(sublayer) if config.has_qk_norm else sublayer.norms,
    )


def as_inputs(task: Task, config: ModelConfig) -> Inputs:
    return Inputs(
        embedding_std=config.embedding_std,
        embedding_multiplier=config.embedding_multiplier,
        decoder_embedding_std=config.decoder_embedding_std,
        head_gain=config.head_gain,
        num_tokens=task.num_tokens,
        batch_size=task.batch_size,
        correlation=task.correlation,
        readout=task.readout,
        loss=task.objective,
        num_classes=task.num_classes,
    )


def update_of(
    network: Transformer,
    inputs: Inputs,
    optimizer: str,
    *,
    advance: Callable[[float], None] = lambda _: None,
    effort: float = 1.0,
    replicates: int = REPLICATES,
) -> KernelUpdate:
    """What ``predict_kernel`` answers of one optimizer, or answered before where answers are kept."""
    how = {"effort": effort, "replicates": replicates}
    asked = {**_asked(network, inputs, optimizer), **how}

    def make() -> dict[str, Any]:
        return asdict(predict_kernel(network, inputs, (optimizer,), advance=advance, **how)[optimizer])

    answer = _kept(asked, make, network, advance)
    streams = {side: [Stream(**stream) for stream in of_side] for side, of_side in answer["streams"].items()}
    return KernelUpdate(**{**answer, "streams": streams})


def later_update_of(
    law: str,
    network: Transformer,
    inputs: Inputs,
    optimizer: str,
    size: float,
    d_model: int,
    *,
    advance: Callable[[float], None] = lambda _: None,
    **options: Any,
) -> float:
    """The update of what ``predict_after_start`` answers, or answered before where answers are kept.

    law, size, d_model and the unit of the update: as there. options: of ``predict_kernel``. ValueError, in one line,
    for what cannot be.
    """
    asked = {**_asked(network, inputs, optimizer), **options, "law": law, "size": size, "d_model": d_model}

    def make() -> float:
        return predict_after_start(law, network, inputs, optimizer, size, d_model, advance=advance, **options).update

    return _kept(asked, make, network, advance)


def _asked(network: Transformer, inputs: Inputs, optimizer: str) -> dict[str, Any]:
    """What an answer depends on, beside options."""
    return {
        **{"network": asdict(network), "inputs": asdict(inputs), "of": type(inputs).__name__},
        "optimizer": optimizer,
    }


def _kept(
    asked: dict[str, Any], make: Callable[[], Any], network: Transformer, advance: Callable[[float], None]
) -> Any:
    """As ``kept``. An answer that was kept advances by all sublayers at once."""
    is_new = False

    def making() -> Any:
        nonlocal is_new
        is_new = True
        return make()

    answer = kept(asked, making)
    if not is_new:
        advance(2.0 * network.num_sublayers)
    return answer

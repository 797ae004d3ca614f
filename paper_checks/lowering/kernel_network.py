"""Plain numbers of a network that sims build, handed to the kernel rung: what is predicted is what is measured.

A scheme's residual weights, gains and learning rates are lowered once (``paper_checks.lowering.lower``), and both rungs
read them. Of the width the kernel rung needs ratios alone: the FFN's width to d_model, and the size of a head.
"""

from __future__ import annotations

from collections.abc import Callable

from paper_checks.lowering.lower import KINDS
from paper_checks.lowering.predicted_rows import KernelPrediction
from sims.model import BRANCH_ROLES, OTHER_ROLES, ModelConfig, SublayerConfig
from sims.update import Task
from theory.kernel.predict import Inputs, Sublayer, Transformer, predict_kernel

_KINDS = {name: kind for kind, name in KINDS.items()}


def as_transformer(config: ModelConfig, *, head_size: int | None) -> Transformer:
    """head_size: None for infinitely large heads.

    ValueError, in one line, for what the kernel rung does not know. It predicts the roles of norms' gains and biases
    and of linear biases whether the config trains them or not; at init they are 1 and 0 either way.
    """
    if config.activation == "swiglu":
        raise ValueError("the kernel rung knows activations of one input, and swiglu has two")
    unknown = {
        "norms of q and k": config.has_qk_norm,
        "an attention_scale of one's own": config.attention_scale is not None,
        "a norm_eps": config.norm_eps != 0,
    }
    if found := [what for what, is_there in unknown.items() if is_there]:
        raise ValueError(f"the kernel rung does not know {' or '.join(found)}")
    return Transformer(
        encoder=tuple(map(_sublayer, config.encoder)),
        decoder=tuple(map(_sublayer, config.decoder)),
        placement=config.placement,
        norm_kind=config.norm_kind,
        activation=config.activation,
        ffn_ratio=config.hidden / config.d_model,
        is_causal=config.is_causal,
        head_size=head_size,
    )


def _sublayer(one: SublayerConfig) -> Sublayer:
    return Sublayer(
        kind=_KINDS[one.kind],
        residual_weight=one.residual_weight,
        branch_weight=one.branch_weight,
        input_scale=one.input_scale,
        gains=one.gains,
        lr_multipliers=one.lr_multipliers,
        trains_branch_weight=one.trains_branch_weight,
    )


def as_inputs(task: Task) -> Inputs:
    return Inputs(
        num_tokens=task.num_tokens,
        batch_size=task.batch_size,
        correlation=task.correlation,
        readout=task.readout,
        loss=task.objective,
        num_classes=task.num_classes,
    )


def predict(
    transformer: Transformer, inputs: Inputs, optimizer: str, advance: Callable[[float], None] = lambda _: None
) -> KernelPrediction:
    """advance: told how many passes over a sublayer were done, two for each sublayer in all.

    ValueError and ArithmeticError for what the kernel rung does not know, or cannot compute.
    """
    found = predict_kernel(transformer, inputs, (optimizer,), advance=advance)[optimizer]
    return KernelPrediction(
        num_sublayers=len(transformer.encoder) + len(transformer.decoder),
        update=found.update,
        roles={role: found.roles[role] for role in (*BRANCH_ROLES, *OTHER_ROLES) if role in found.roles},
        log10_update=found.log10_update,
        holds=holds(transformer.head_size),
        error=dict(found.error),
    )


def holds(head_size: int | None) -> str:
    """Where the numbers hold, as one line."""
    heads = "large heads" if head_size is None else f"heads of size {head_size}"
    return (
        f"infinite width, infinitely many {heads}; the relative correction is of order L/d at width d, and of order "
        "1/heads where few heads carry a role's gradient (embedding under sign-type optimizers: -20 % at one head)"
    )

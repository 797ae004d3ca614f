"""How far one optimizer step moves a module that was built: measured by role, and predicted by the kernel rung.

The update is the project's own (``sims.update``): <gradient of one logit, first step>, in units of a power of the width
in which it is O(1). Where the module ends in logits, the logit is its first one at the last token; where it ends in
hidden states, they are read by a head of our own, N(0, 1/d).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from paper_checks.audit.graph import Flow, is_a
from paper_checks.audit.inputs import Inputs, first_output
from paper_checks.audit.look import Built, Sublayer
from paper_checks.lowering.kernel_network import as_inputs, as_transformer
from sims.model import BRANCH_ROLES, GATED, MATRICES, ModelConfig, SublayerConfig
from sims.optim import NORMALISATION
from sims.update import Norms, Task
from theory.kernel.predict import predict_kernel, unit_power

_HEAD_SEED = 5_000_011
_ROUNDING = 1e-5
"""Of a mean square in single precision: what is smaller beside it is no eps."""
_ONE = 0.02
"""What is so near to 1 is 1: the scatter of one network's mean squares."""


def measured(built: Built, optimizer: str) -> dict[str, float]:
    """The update by role of one module, "update" of all matrices of branches; and "encoder/update" by side of two.
    Empty where the module's output is not finite."""
    module = built.module.float() if _is_half(built.module) else built.module
    value = _logit(module, built.inputs, built.d_model)
    if value is None:
        return {}
    trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    if not trained:
        raise ValueError(f"no parameter of {type(module).__name__} is trained: all have requires_grad=False")
    try:
        gradients = dict(
            zip(trained, torch.autograd.grad(value, list(trained.values()), allow_unused=True), strict=True)
        )
    except RuntimeError as error:
        raise ValueError(f"the backward pass of {type(module).__name__} fails: {str(error).splitlines()[0]}") from error
    sums: dict[str, float] = {}

    def add(role: str, gradient: Tensor, weight: Tensor, keys: Sequence[str]) -> None:
        is_branch = role in BRANCH_ROLES
        norms = Norms(gradient.double()[None], weight.double()[None], gradient.ndim, is_branch)
        power = NORMALISATION[optimizer].power - (0 if is_branch else unit_power(optimizer, role))
        part = norms.alignment(optimizer).item() / built.d_model**power
        for key in keys:
            sums[key] = sums.get(key, 0.0) + part

    for weight in built.weights:
        gradient = gradients.get(weight.name)
        if gradient is not None:
            keys = ["update", weight.role]
            keys += [f"{weight.side}/update", f"{weight.side}/{weight.role}"] if len(built.sides) > 1 else []
            add(weight.role, weight.of(gradient), weight.of(weight.parameter), keys)
    for name, role in built.others.items():
        gradient = gradients.get(name)
        is_of_branch = bool(set(BRANCH_ROLES) & set(built.biases.get(name, ())))
        is_apart = role == "other" or (role == "bias" and not is_of_branch)  # of a head, say
        if gradient is not None and not is_apart:
            add(role, gradient, trained[name].detach(), [role])
    return sums


def _is_half(module: nn.Module) -> bool:
    return any(parameter.dtype in (torch.float16, torch.bfloat16) for parameter in module.parameters())


def _logit(module: nn.Module, inputs: Inputs, d_model: int) -> Tensor | None:
    was_training = module.training
    try:
        output = first_output(inputs.call(module.eval()))
    finally:
        module.train(was_training)
    if not output.isfinite().all():
        return None
    last = output.flatten(0, -2)[-1]
    if len(last) != d_model:
        return last[0]
    generator = torch.Generator().manual_seed(_HEAD_SEED)
    return last @ (torch.randn(d_model, generator=generator).to(last) / math.sqrt(d_model))


# ---------------------------------------------------------------- the module as plain numbers


def as_config(built: Built) -> ModelConfig:
    """The module as the plain numbers of ``sims.model``: what the kernel rung is asked about.

    What is not read is as in the papers' block: no rotary positions. ValueError, in one line, for
    a sublayer that is neither attention nor FFN.
    """
    if other := next((sub for sub in built.sublayers if sub.kind not in MATRICES), None):
        side = f"{other.side}, " if len(built.sides) > 1 else ""
        raise ValueError(
            f"{side}sublayer {other.index} is neither attention nor FFN: what it adds to the stream is no product of a "
            "matrix with data, as where one einsum multiplies experts by their router's weights, too (write it as two)"
        )
    first = next((sub for sub in built.sublayers if sub.num_heads), None)
    queries = next((w for w in built.weights if w.role.endswith("q")), None)
    inner = next((w for w in built.weights if w.role == "fc1"), None)
    heads = first.num_heads if first is not None and first.num_heads else 1
    size = queries.shape[-2] // heads if queries is not None else built.d_model
    start = built.sublayers[0]
    activation = next((sub.activation for sub in built.sublayers if sub.activation), None)
    is_gated = any(weight.role == "fc3" for weight in built.weights)
    shape = ModelConfig(
        encoder=(SublayerConfig(kind="ffn"),),
        placement="none",
        d_model=built.d_model,
        num_heads=heads,
        num_kv_heads=first.num_kv_heads if first is not None else None,
        head_size=max(size, 1),
        attention_scale=first.attention_scale if first is not None else None,
        ffn_width=inner.shape[-2] if inner is not None else None,
        activation=activation or ("swiglu" if is_gated else "gelu"),
        norm_kind=built.norm_kind or "layernorm",
        has_affine="norm_gain" in built.others.values(),
        has_bias="bias" in built.others.values(),
        is_causal=bool(first is not None and first.is_causal),
        has_final=built.final[start.side],
        norm_eps=_norm_eps(built.flow),
        embedding_std=math.sqrt(start.second_moment) if math.isfinite(start.second_moment) else 1.0,
        head_gain=_head_gain(built),
        has_short_draws=True,
    )
    sides = [tuple(_sublayer(shape, sub) for sub in side) for side in built.sides.values()]
    return replace(shape, encoder=sides[0], decoder=sides[1] if len(sides) > 1 else ())


def _norm_eps(flow: Flow) -> float:
    """What norms add to the mean square whose root they divide by, as the one tells it that has the smallest before it;
    0 where none does, or where it is lost in rounding."""
    told: list[tuple[float, float]] = []
    for node in flow.order:
        if is_a(node, ("NativeLayerNormBackward",)):
            value, root = node._saved_input.double(), node._saved_result2.double()
            square = value.var(-1, correction=0, keepdim=True)
        elif is_a(node, ("RsqrtBackward",)):
            power = node
            while power is not None and not is_a(power, ("PowBackward", "MulBackward", "AccumulateGrad")):
                power = next((operand for operand in flow.operands(power) if operand is not None), None)
            if power is None or not isinstance(value := getattr(power, "_saved_self", None), Tensor):
                continue
            root, square = node._saved_result.double(), value.double().square().mean(-1, keepdim=True)
        else:
            continue
        if root.shape == square.shape and (least := square.min()).isfinite():
            told.append((least.item(), (root**-2 - square).flatten()[square.argmin()].item()))
    square, eps = min(told, default=(0.0, 0.0))
    return eps if eps > _ROUNDING * square and eps > 0 else 0.0


def _head_gain(built: Built) -> float:
    """Of a head of our own 1; else of the module's head, which may be its embedding's table."""
    names = [name for name, role in built.others.items() if role == "head"]
    names += [name for name, role in built.others.items() if role == "embedding"]
    rows = built.flow.output.shape[-1]
    if rows == built.d_model:
        return 1.0
    for name in names:
        parameter = built.flow.parameters[name]
        if tuple(parameter.shape) == (rows, built.d_model):
            return parameter.detach().double().std().item() * math.sqrt(built.d_model)
    return 1.0


def _sublayer(shape: ModelConfig, sub: Sublayer) -> SublayerConfig:
    roles = [role for role in shape.roles(sub.kind) if role != "fc3" or shape.activation in GATED]
    by_role = sub.roles
    gains = {role: shape.gain(role, _rms([w.std for w in by_role[role]])) for role in roles if role in by_role}
    is_scaled = "pre" in sub.norms and shape.norm_kind in ("layernorm", "rmsnorm") and abs(sub.input_rms - 1) > _ONE
    scale = sub.input_rms if is_scaled else 1.0
    return SublayerConfig(
        kind=sub.kind,
        norms=sub.norms,
        residual_weight=sub.residual_weight,
        branch_weight=sub.branch_weight,
        input_scale=scale,
        trains_branch_weight=sub.trained == "scalar",
        has_layer_scale=sub.trained == "vector",
        gains=gains,
    )


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(sum(value * value for value in values) / len(values))


def task_of(built: Built) -> Task:
    """As many tokens as the module was given, as alike as they are where the stream begins."""
    value = built.start_value
    if value is None or value.ndim < 2:
        return Task(num_tokens=1, trains_inputs=True)
    tokens = value.detach().double().flatten(0, -2)
    count = len(tokens)
    unit = tokens / tokens.norm(dim=-1, keepdim=True).clamp(min=1e-30)
    alike = (unit.sum(0).square().sum() - count).item() / (count * (count - 1)) if count > 1 else 0.0
    return Task(num_tokens=count, correlation=min(max(alike, 0.0), 1.0), trains_inputs=True)


def predicted(
    config: ModelConfig, task: Task, optimizer: str, advance: Callable[[float], None] = lambda _: None
) -> Mapping[str, float]:
    """The update by role at infinite width, as ``measured`` names it, with the same points at every depth. ValueError,
    in one line, for what the kernel rung does not know."""
    transformer = as_transformer(config, head_size=config.size_of_head)
    inputs = as_inputs(task, config)
    answer = predict_kernel(transformer, inputs, (optimizer,), replicates=1, advance=advance)[optimizer]
    sides = answer.sides if config.decoder else {}
    by_side = {f"{side}/{role}": value for side, values in sides.items() for role, value in values.items()}
    return {"update": answer.update, **answer.roles, **by_side}

"""How far one optimizer step moves a module that was built: measured by role, and predicted by the kernel rung.

The update is the project's own (``sims.update``): <gradient of one logit, first step>, in units of a power of the width
in which it is O(1). Where the module ends in logits, the logit is its first one at the last token; where it ends in
hidden states, they are read by a head of our own, N(0, 1/d).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from depthlaw.auditing.inputs import HALF, first_output
from depthlaw.auditing.reading.look import Built, Sublayer
from depthlaw.network.kernel import as_inputs, as_transformer, update_of
from depthlaw.network.lower import visited
from depthlaw.sims.model import BRANCH_ROLES, GATED, MATRICES, ModelConfig, SublayerConfig
from depthlaw.sims.optim import NORMALISATION
from depthlaw.sims.update import Norms, Task
from depthlaw.theory.kernel.gram import Array, Gram
from depthlaw.theory.kernel.predict import Inputs as KernelInputs
from depthlaw.theory.kernel.predict import KernelUpdate, unit_power

_HEAD_SEED = 5_000_011
_ONE = 0.02
"""What is so near to 1 is 1: the scatter of one network's mean squares."""
_SPREAD = 2.0
"""Standard deviations that the cosines of independent vectors have: what is more is no chance."""
_UNEVEN = 2.0
"""Between lengths, or weights, of tokens that are alike."""


def measured(built: Built, optimizer: str) -> dict[str, float]:
    """The update by role of one module, "update" of all matrices of branches; and "encoder/update" by side of two.
    Empty where the module's output, or a gradient, is not finite."""
    module = built.module.float() if is_half(built.module) else built.module
    value = _logit(module, built)
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
        rows = gradient.contiguous().double()  # in this order: turning a matrix of doubles takes five times as long
        norms = Norms(rows[None], weight[None], gradient.ndim, is_branch)
        power = NORMALISATION[optimizer].power - (0 if is_branch else unit_power(optimizer, role))
        part = norms.alignment(optimizer).item() / built.d_model**power
        for key in keys:
            sums[key] = sums.get(key, 0.0) + part

    for weight in built.matrices:
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
    return sums if all(map(math.isfinite, sums.values())) else {}


def is_half(module: nn.Module) -> bool:
    return any(parameter.dtype in HALF for parameter in module.parameters())


def _logit(module: nn.Module, built: Built) -> Tensor | None:
    was_training = module.training
    try:
        output = first_output(built.inputs.in_floats().call(module.eval()))
    finally:
        module.train(was_training)
    if not output.isfinite().all():
        return None
    last = output.flatten(0, -2)[-1]
    return last @ read_out(built, last)


def read_out(built: Built, last: Tensor) -> Tensor:
    """What the last vector of an output is multiplied by: picks the first logit, or is a row of our own head."""
    if not _is_hidden(built):
        return torch.eye(1, len(last)).to(last)[0]
    generator = torch.Generator().manual_seed(_HEAD_SEED)
    return torch.randn(built.d_model, generator=generator).to(last) / math.sqrt(built.d_model)


def _is_hidden(built: Built) -> bool:
    """Whether the output is hidden states: as wide as these, and no head has made it, nor the embedding's table."""
    names = [*(name for name, role in built.others.items() if role == "head"), *built.tied]
    heads = [built.flow.parameters[name] for name in names]
    width = built.flow.output.shape[-1]
    return width == built.d_model and not any(head.ndim > 1 and width in head.shape for head in heads)


# ---------------------------------------------------------------- the module as plain numbers


def as_config(built: Built) -> ModelConfig:
    """The module as the plain numbers of ``sims.model``: what the kernel rung is asked about.

    What is not read is as in the papers' block: no rotary positions. ValueError, in one line, for
    a sublayer that is neither attention nor FFN, and for visits of a layer that differ.
    """
    if other := next((sub for sub in built.sublayers if sub.kind not in MATRICES), None):
        side = f"{other.side}, " if len(built.sides) > 1 else ""
        raise ValueError(f"{side}{other.called} is neither attention nor FFN: {other.found or 'its branches differ'}")
    if len(built.sides) == 1 and (cross := next((sub for sub in built.sublayers if sub.kind == "cross"), None)):
        raise ValueError(f"{cross.called} reads what is no stream, where a cross-attention is predicted of an encoder")
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
        has_final=next(iter(built.final.values())),
        norm_eps=built.flow.norm_eps,
        embedding_std=math.sqrt(start.second_moment) if math.isfinite(start.second_moment) else 1.0,
        head_gain=_head_gain(built),
        has_short_draws=True,
        is_side_by_side=built.is_side_by_side,
    )
    sides = [_visits_alike([_sublayer(shape, sub) for sub in side], built.visits) for side in built.sides.values()]
    config = replace(shape, encoder=sides[0], decoder=sides[1] if len(sides) > 1 else ())
    return visited(config, built.visits) if built.visits > 1 else config


def _visits_alike(sublayers: Sequence[SublayerConfig], visits: int) -> tuple[SublayerConfig, ...]:
    """With the numbers of a layer's first visit at its others, where they are these as nearly as they are read."""
    firsts = [*sublayers[: len(sublayers) // visits]] * visits
    numbers = ("residual_weight", "branch_weight", "input_scale")
    return tuple(
        first
        if replace(sub, **{name: getattr(first, name) for name in numbers}) == first
        and all(abs(getattr(sub, name) - getattr(first, name)) <= _ONE * abs(getattr(first, name)) for name in numbers)
        else sub
        for first, sub in zip(firsts, sublayers, strict=True)
    )


def _head_gain(built: Built) -> float:
    """Of a head of our own 1, and of one that starts at 0, as if it did not; else of the module's head, which may be
    its embedding's table."""
    names = [name for name, role in built.others.items() if role == "head"]
    names += [name for name, role in built.others.items() if role == "embedding"]
    rows = built.flow.output.shape[-1]
    if _is_hidden(built):
        return 1.0
    for name in names:
        parameter = built.flow.parameters[name]
        if tuple(parameter.shape) == (rows, built.d_model):
            if not parameter.any():
                return 1.0
            return parameter.detach().double().std().item() * math.sqrt(built.d_model)
    return 1.0


def _sublayer(shape: ModelConfig, sub: Sublayer) -> SublayerConfig:
    roles = [role for role in shape.roles(sub.kind) if role != "fc3" or shape.activation in GATED]
    by_role = sub.roles
    gains = {role: shape.gain(role, _rms([w.std for w in by_role[role]])) for role in roles if role in by_role}
    # the kernel rung has the norms' eps: what that takes from a norm's output is no scale of its own
    of_norm = math.sqrt(1 / (1 + shape.norm_eps / sub.second_moment)) if sub.second_moment > 0 else 1.0
    scale = sub.input_rms / of_norm
    is_scaled = "pre" in sub.norms and shape.norm_kind in ("layernorm", "rmsnorm") and abs(scale - 1) > _ONE
    scale = scale if is_scaled else 1.0
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


@dataclass(frozen=True, kw_only=True)
class Given(Task):
    """The tokens of one pass, and which of them the output reads.

    cosines: of any two tokens where the stream begins, times both lengths in units of their root mean square. reads:
    the place of the one token that is read; None for the mean of all.
    """

    cosines: Array = field(compare=False)
    reads: int | None


@dataclass(frozen=True, kw_only=True)
class _Given(KernelInputs):
    """What the kernel rung is told of these. Of a mean of all tokens, each is a sequence of its own, since the
    objective is the mean over sequences; but all attend to one another."""

    cosines: Array = field(compare=False)
    reads: int | None

    @property
    def groups(self) -> Array:
        return np.zeros(self.num_all, dtype=int)

    @property
    def positions(self) -> Array:
        return np.arange(self.num_all)

    @property
    def read(self) -> Array:
        return self.positions if self.reads is None else np.array([self.reads])

    def gram_of(self, side: int) -> Gram:
        """Of either side: what an audited module is given has one scale."""
        level = float(self.cosines.max())
        return Gram(level, level - self.cosines).times((self.embedding_std * self.embedding_multiplier) ** 2)


def task_of(built: Built) -> Given:
    """As many tokens as the module was given, as long and as alike as they are where the stream begins."""
    value = built.start_value
    tokens = torch.ones(1, 1) if value is None or value.ndim < 2 else value.detach().double().flatten(0, -2)
    count, width = tokens.shape
    size = tokens.square().mean().item() or 1.0
    if built.norm_kind == "layernorm":
        tokens = tokens - tokens.mean(-1, keepdim=True)
    cosines = (tokens @ tokens.T / (width * size)).cpu().numpy()
    apart, lengths = ~np.eye(count, dtype=bool), np.sqrt(np.diagonal(cosines))
    angles = cosines[apart] / np.outer(lengths, lengths).clip(min=1e-30)[apart]
    alike = float(angles.mean().clip(0.0, 1.0)) if count > 1 else 0.0
    if count == 1 or (angles.std() < _SPREAD / math.sqrt(width) and lengths.max() < _UNEVEN * lengths.min()):
        cosines = (lengths @ lengths / count) * (alike + (1 - alike) * np.eye(count))  # the rest is chance
    return Given(num_tokens=count, correlation=alike, trains_inputs=True, cosines=cosines, reads=_read_by(built, count))


FEW = 16
"""Tokens of which a thousand layers are predicted in seconds: attention takes the square of their number."""


def of_few_tokens(task: Given, visits: int = 1) -> Given:
    """With ``FEW`` of its tokens in all visits together, at least two in each, evenly spaced, the one that is read
    among them; as it is where it has no more."""
    few = max(2, FEW // visits)
    if task.num_tokens <= few:
        return task
    places = np.linspace(0, task.num_tokens - 1, few).round().astype(int)
    if task.reads is not None:
        places[np.abs(places - task.reads).argmin()] = task.reads
    reads = None if task.reads is None else int(np.flatnonzero(places == task.reads)[0])
    return replace(task, num_tokens=few, cosines=task.cosines[np.ix_(places, places)], reads=reads)


def _read_by(built: Built, count: int) -> int | None:
    """The place of the token that the output reads, by the gradient where the stream ends; None for the mean of all.

    Tokens that are read in another way are taken for that which counts most.
    """
    flow, end = built.flow, built.sublayers[-1].end
    if flow.output.dtype in HALF:  # ``measured`` has made float of the parameters that the backward pass would take
        return count - 1
    vector = torch.zeros_like(flow.output).flatten(0, -2)
    vector[-1] = read_out(built, vector[-1])
    gradient = flow.back((flow.end, 0), vector.view_as(flow.output), [end], flow.active).get(end)
    if gradient is None or gradient.numel() != count * built.d_model:
        return count - 1
    sizes = gradient.double().reshape(count, -1).norm(dim=-1)
    most = sizes.max().item()
    return None if count > 1 and sizes.min().item() > most / _UNEVEN else int(sizes.argmax())


def predicted(
    config: ModelConfig, task: Task, optimizer: str, advance: Callable[[float], None] = lambda _: None
) -> Mapping[str, float]:
    """The update by role at infinite width, with the same points at every depth. ValueError, in one line, for what the
    kernel rung does not know."""
    return by_role(config, answered(config, task, optimizer, advance))


def by_role(config: ModelConfig, answer: KernelUpdate) -> Mapping[str, float]:
    """The update by role of an answer, as ``measured`` names it."""
    sides = answer.sides if config.decoder else {}
    by_side = {f"{side}/{role}": value for side, values in sides.items() for role, value in values.items()}
    return {"update": answer.update, **answer.roles, **by_side}


def answered(
    config: ModelConfig, task: Task, optimizer: str, advance: Callable[[float], None] = lambda _: None
) -> KernelUpdate:
    """All that the kernel rung answers, with the same points at every depth."""
    transformer = as_transformer(config, head_size=config.size_of_head)
    inputs = as_inputs(task, config)
    if isinstance(task, Given):
        of_all = {"num_tokens": 1, "batch_size": task.num_tokens} if task.reads is None else {}
        inputs = _Given(**{**vars(inputs), **of_all}, cosines=task.cosines, reads=task.reads)
    return update_of(transformer, inputs, optimizer, replicates=1, advance=advance)

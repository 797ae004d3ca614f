"""A model's initialisation, forward pass and parameter groups as Python to paste, from the plain numbers of its layers.

The lines run as they stand: they need torch alone, and a table of the user's parameter names, which they begin with
those that Hugging Face's models have. A test runs them and measures the model that they build.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from textwrap import wrap

from sims.model import BRANCH_ROLES, ModelConfig, SublayerConfig

_WIDTH = 100
NAMES: Mapping[str, tuple[str, ...]] = {
    "qkv": ("c_attn", "query_key_value", "qkv", "in_proj"),
    "q": ("q_proj", "query", "wq", "SelfAttention.q"),
    "k": ("k_proj", "key", "wk", "SelfAttention.k"),
    "v": ("v_proj", "value", "wv", "SelfAttention.v"),
    "out": ("o_proj", "out_proj", "attn.c_proj", "wo", "SelfAttention.o", "attention.dense", "attention.output.dense"),
    "cross_q": ("cross_attn.q", "encoder_attn.q_proj", "EncDecAttention.q"),
    "cross_k": ("cross_attn.k", "encoder_attn.k_proj", "EncDecAttention.k"),
    "cross_v": ("cross_attn.v", "encoder_attn.v_proj", "EncDecAttention.v"),
    "cross_out": ("cross_attn.o", "encoder_attn.out_proj", "EncDecAttention.o"),
    "fc1": ("gate_proj", "c_fc", "w1", "fc1", "linear1", "intermediate.dense", "wi", "dense_h_to_4h"),
    "fc3": ("up_proj", "w3", "fc3", "wi_1"),
    "fc2": ("down_proj", "mlp.c_proj", "w2", "fc2", "linear2", "output.dense", "DenseReluDense.wo", "dense_4h_to_h"),
    "norm_gain": ("norm", "layernorm", "LayerNorm", "layer_norm", "q_norm", "k_norm", "ln_"),
    "embedding": ("embed", "wte", "wpe"),
    "head": ("lm_head",),
}
"""Parts of parameter names by role, as published code has them; the longest that fits counts."""
_NEAR = 0.05
"""An epsilon that is off by less is left as it is."""
ADAPTIVE = ("adam", "adamw", "lamb", "rmsprop", "muon+adamw")
"""Optimizers with an epsilon beside the root of squared gradients."""
DECOUPLED = ("adamw", "lamb", "lion", "muon", "muon+adamw", "sophia")
"""Optimizers that multiply the weight decay with the learning rate of the group."""


def code(
    config: ModelConfig, optimizer: str, title: str, *, rates: Mapping[str, float], eps: Mapping[str, float]
) -> list[str]:
    """rates, eps: by role, what the tuned model's learning rate and epsilon are multiplied by."""
    parts = (
        [f"# {title}", "import torch", "", ""],
        _tables(config, optimizer, rates, eps),
        _roles(config),
        _init(config),
        _forward(config),
        _groups(optimizer),
    )
    return [line for part in parts for line in part]


def _by_side(config: ModelConfig) -> bool:
    return len(config.sides) > 1


def _tables(config: ModelConfig, optimizer: str, rates: Mapping[str, float], eps: Mapping[str, float]) -> Iterator[str]:
    yield "# standard deviation of each matrix at the start, by role" + (", of each layer" if _varies(config) else "")
    stds = {side: _stds(config, sublayers) for side, sublayers in config.sides}
    if _by_side(config):
        yield "STD = {"
        for side, of_side in stds.items():
            yield from _table(f'    "{side}": ', of_side, ",")
        yield "}"
    else:
        yield from _table("STD = ", stds["encoder"])
    yield "# times the learning rate of the tuned model; 1 where absent"
    yield from _table("RATES = ", {role: _short(rate) for role, rate in rates.items() if _short(rate) != "1"})
    if optimizer in ADAPTIVE:
        yield "# times the epsilon of the tuned model, since gradients are so much larger or smaller; 1 where absent"
        adaptive = {role: size for role, size in eps.items() if optimizer != "muon+adamw" or role not in BRANCH_ROLES}
        adaptive = {role: size for role, size in adaptive.items() if role not in ("embedding", "head")}
        yield from _table(
            "EPS = ", {role: _short(size) for role, size in adaptive.items() if abs(math.log(size)) > _NEAR}
        )


def _varies(config: ModelConfig) -> bool:
    return any(text.startswith("[") for _, side in config.sides for text in _stds(config, side).values())


def _stds(config: ModelConfig, sublayers: tuple[SublayerConfig, ...]) -> dict[str, str]:
    """By role: one number, or a list of each layer's where they differ; "qkv" where the three are equal."""
    found: dict[str, str] = {}
    for role in BRANCH_ROLES:
        stds = [_short(config.std(one, role), 4) for one in sublayers if role in config.roles(one.kind)]
        if stds:
            found[role] = stds[0] if len(set(stds)) == 1 else f"[{', '.join(stds)}]"
    if len({found.get(role) for role in "qkv"}) == 1:
        found["qkv"] = found["q"]
    return found


def _short(number: float, digits: int = 3) -> str:
    return f"{number:.{digits}g}"


def _table(front: str, cells: Mapping[str, str], behind: str = "") -> Iterator[str]:
    """A dict in lines that are not too long."""
    text = ", ".join(f'"{role}": {cell}' for role, cell in cells.items())
    indent = " " * (len(front) - len(front.lstrip()) + 4)
    if len(line := f"{front}{{{text}}}{behind}") <= _WIDTH:
        yield line
        return
    yield f"{front}{{"
    yield from wrap(f"{text},", _WIDTH, initial_indent=indent, subsequent_indent=indent)
    yield f"{indent[4:]}}}{behind}"


def _roles(config: ModelConfig) -> Iterator[str]:
    absent = set(BRANCH_ROLES) - {role for _, side in config.sides for one in side for role in config.roles(one.kind)}
    yield "# parts of your parameters' names by role: put yours here; the longest that fits counts"
    yield "NAMES = {"
    for role, parts in NAMES.items():
        if role not in absent:
            listed = ", ".join(f'"{part}"' for part in parts)
            yield from wrap(f'    "{role}": [{listed}],', _WIDTH, subsequent_indent=" " * 8)
    yield "}"
    yield from (
        "",
        "",
        "def role_of(name):",
        '    """The role of a parameter; None where NAMES does not know it."""',
        "    fits = [(len(part), role) for role, parts in NAMES.items() for part in parts if part in name]",
        "    role = max(fits)[1] if fits else None",
        '    if role and name.endswith("bias"):',
        '        return "norm_bias" if role == "norm_gain" else "bias"',
        "    return role",
        "",
        "",
    )


def _init(config: ModelConfig) -> Iterator[str]:
    yield "@torch.no_grad()"
    yield "def initialise(model):"
    yield '    """Draws the matrices of the branches anew; embeddings, head and norms stay as they are."""'
    yield "    for name, parameter in model.named_parameters():"
    yield "        role = role_of(name)"
    if _by_side(config):
        yield '        stds = STD["decoder" if "decoder" in name else "encoder"]'
    else:
        yield "        stds = STD"
    yield "        if role in stds:"
    if _varies(config):
        yield "            layer = int(next(part for part in name.split('.') if part.isdigit()))"
        yield "            std = stds[role][layer] if isinstance(stds[role], list) else stds[role]"
        yield "            parameter.normal_(std=std)"
    else:
        yield "            parameter.normal_(std=stds[role])"
    yield '        elif role == "bias":'
    yield "            parameter.zero_()"
    yield ""
    yield ""


def _forward(config: ModelConfig) -> Iterator[str]:
    """What stands in place of x + branch."""
    weights = {
        name: {side: _weights(sublayers, read) for side, sublayers in config.sides} for name, read in _READ.items()
    }
    behind = any("post" in config.places(one) for _, side in config.sides for one in side)
    where = "; the norm stands behind it" if behind else ""
    has_scale = any(one.has_layer_scale for _, side in config.sides for one in side)
    for name, by_side in weights.items():
        cells = {side: cell for side, cell in by_side.items()}
        if _by_side(config):
            yield from _table(f"{name} = ", cells)
        else:
            yield from wrap(f"{name} = {cells['encoder']}", _WIDTH, subsequent_indent="    ")
    yield ""
    yield ""
    if has_scale:
        yield "# BRANCH_WEIGHT is where each entry of the trained vector on a branch starts"
    side = ", side" if _by_side(config) else ""
    needs_index = any(cell.startswith("[") for by_side in weights.values() for cell in by_side.values())
    index = ", index" if needs_index else ""
    yield f"def residual(x, branch{side}{index}):"
    counted = " index: of the sublayer, from 0." if needs_index else ""
    yield f'    """In the forward pass, in place of x + branch{where}.{counted}"""'

    def read(name: str) -> str:
        value = f"{name}[side]" if _by_side(config) else name
        return f"{value}[index]" if any(cell.startswith("[") for cell in weights[name].values()) else value

    yield f"    return {read('RESIDUAL_WEIGHT')} * x + {read('BRANCH_WEIGHT')} * branch"
    yield ""
    yield ""


_READ: Mapping[str, Callable[[SublayerConfig], float]] = {
    "RESIDUAL_WEIGHT": lambda one: one.residual_weight,
    "BRANCH_WEIGHT": lambda one: one.branch_weight,
}


def _weights(sublayers: tuple[SublayerConfig, ...], read: Callable[[SublayerConfig], float]) -> str:
    """One number, or a list of each sublayer's where they differ."""
    texts = [_short(read(one), 6) for one in sublayers]
    return texts[0] if len(set(texts)) == 1 else f"[{', '.join(texts)}]"


def _groups(optimizer: str) -> Iterator[str]:
    has_eps, decays = optimizer in ADAPTIVE, optimizer in DECOUPLED
    arguments = ", eps=1e-8" * has_eps + ", weight_decay=0.0" * decays
    yield f"def param_groups(model, lr{arguments}):"
    yield '    """Groups for torch.optim. lr and the rest: those of the tuned model."""'
    yield "    groups = {}"
    yield "    for name, parameter in model.named_parameters():"
    yield "        role = role_of(name)"
    yield '        role = "v" if role == "qkv" else role  # of the three, v has most of the update'
    is_mixed = optimizer == "muon+adamw"
    cells = {"rate": "RATES.get(role, 1.0)"}
    cells |= {"small": "EPS.get(role, 1.0)"} if has_eps else {}
    cells |= {"is_matrix": "parameter.ndim == 2 and role not in (None, 'embedding', 'head')"} if is_mixed else {}
    last = "," if len(cells) == 1 else ""
    yield f"        kind = ({', '.join(cells.values())}{last})"
    yield "        groups.setdefault(kind, []).append(parameter)"
    yield f"    {'muon, adamw' if is_mixed else 'listed'} = {'[], []' if is_mixed else '[]'}"
    yield f"    for ({', '.join(cells)}{last}), parameters in groups.items():"
    yield '        group = {"params": parameters, "lr": lr * rate}'
    if decays:
        yield "        # a step decays by weight_decay * lr: divided by the rate, the decay stays what it was"
        yield '        group["weight_decay"] = weight_decay / rate'
    if is_mixed:
        yield "        if not is_matrix:"
        yield '            group["eps"] = eps * small'
        yield "        (muon if is_matrix else adamw).append(group)"
        yield "    return muon, adamw"
        yield ""
        yield ""
        yield "# muon, adamw = param_groups(model, lr=...)"
        yield '# torch.optim.Muon(muon, adjust_lr_fn="match_rms_adamw") and torch.optim.AdamW(adamw)'
        return
    if has_eps:
        yield '        group["eps"] = eps * small'
    yield "        listed.append(group)"
    yield "    return listed"
    yield ""
    yield ""
    yield f"# optimizer: {_CLASS.get(optimizer, optimizer)}(param_groups(model, lr=...))"


_CLASS = {
    "sgd": "torch.optim.SGD",
    "adam": "torch.optim.Adam",
    "adamw": "torch.optim.AdamW",
    "rmsprop": "torch.optim.RMSprop",
    "adafactor": "torch.optim.Adafactor",
    "muon": "torch.optim.Muon",
}

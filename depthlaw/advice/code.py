"""A model's initialisation, forward pass and parameter groups as Python to paste, from the plain numbers of its layers.

The lines run as they stand: they need torch alone, and a table of the user's parameter names, which they begin with
those that Hugging Face's models have. A test runs them and measures the model that they build.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap

from jinja2 import Environment, StrictUndefined

from depthlaw.sims.config import BRANCH_ROLES, ModelConfig, SublayerConfig

_WIDTH = 100
_CLASSES = {
    "sgd": "SGD",
    "adam": "Adam",
    "adamw": "AdamW",
    "rmsprop": "RMSprop",
    "adafactor": "Adafactor",
    "muon": "Muon",
}
"""Of torch.optim, by optimizer."""
NAMES: Mapping[str, tuple[str, ...]] = {
    "qkv": ("c_attn", "query_key_value", "qkv", "in_proj*"),
    "cross_qkv": ("multihead_attn.in_proj*",),
    "q": ("q_proj", "query", "wq", "SelfAttention.q"),
    "k": ("k_proj", "key", "wk", "SelfAttention.k"),
    "v": ("v_proj", "value", "wv", "SelfAttention.v"),
    "out": (
        *("o_proj", "out_proj", "attn.c_proj", "attn.proj", "wo", "SelfAttention.o"),
        *("attention.dense", "attention.output.dense"),
    ),
    "cross_q": ("cross_attn.q*", "encoder_attn.q_proj", "EncDecAttention.q"),
    "cross_k": ("cross_attn.k*", "encoder_attn.k_proj", "EncDecAttention.k"),
    "cross_v": ("cross_attn.v*", "encoder_attn.v_proj", "EncDecAttention.v"),
    "cross_out": ("cross_attn.o*", "encoder_attn.out_proj", "EncDecAttention.o", "multihead_attn.out_proj"),
    "fc1": ("gate_proj", "c_fc", "w1", "fc1", "linear1", "intermediate.dense", "wi", "dense_h_to_4h"),
    "fc3": ("up_proj", "w3", "fc3", "wi_1"),
    "fc2": ("down_proj", "mlp.c_proj", "w2", "fc2", "linear2", "output.dense", "DenseReluDense.wo", "dense_4h_to_h"),
    "norm_gain": ("*norm*", "*Norm*", "*layernorm*", "*LayerNorm*", "*layer_norm*", "ln_*"),
    "final_norm": (
        *("ln_f", "model.norm", "norm_f", "final_layernorm"),
        *("encoder.final_layer_norm", "decoder.final_layer_norm"),
    ),
    "embedding": ("*embed*", "wte", "wpe", "shared"),
    "head": ("lm_head",),
    "other": ("cls_token", "distillation_token", "mask_token", "pooler", "relative_attention_bias", "position_embed*"),
}
"""Names between the dots of a parameter's name by role, as published code has them, * for anything; the longest that
fits counts."""
_NEAR = 0.05
"""An epsilon that is off by less is left as it is."""
ADAPTIVE = ("adam", "adamw", "lamb", "rmsprop", "muon+adamw")
"""Optimizers with an epsilon beside the root of squared gradients."""
DECOUPLED = ("adamw", "lamb", "lion", "muon", "muon+adamw", "sophia")
"""Optimizers that multiply the weight decay with the learning rate of the group."""


_CODE = '''\
# {{ title }}
%% for line in tuned
# {{ line }}
%% endfor
from fnmatch import fnmatchcase

import torch


# standard deviation of each matrix at the start, by role{{ ", of each layer" if varies }}
{{ stds }}
# times the learning rate of the tuned model; 1 where absent
{{ rates }}
%% if has_eps
# times the epsilon of the tuned model, since gradients are so much larger or smaller; 1 where absent
{{ eps }}
%% endif
# what stands between the dots of your parameters' names, by role: put yours here; * is anything, the longest counts
NAMES = {
{{ names }}
}


def role_of(name):
    """The role of a parameter; None where NAMES does not know it."""
    fits = [
        (len(part.replace("*", "")), role)
        for role, parts in NAMES.items()
        for part in parts
        if fnmatchcase(f".{name}.", f"*.{part}.*")
    ]
    role = max(fits)[1] if fits else None
    if role == "norm_gain" and not any(part.isdigit() for part in name.split(".")):
        return "final_norm"  # it stands in no layer
    if role not in (None, "final_norm", "embedding", "head", "other", "norm_bias") and name.endswith("bias"):
        return "norm_bias" if role == "norm_gain" else "bias"
    return role


def roles_of(model):
    """The role of every parameter that is trained; ValueError that lists those which NAMES does not know."""
    roles = {name: role_of(name) for name, one in model.named_parameters() if one.requires_grad}
    if unknown := [name for name, role in roles.items() if role is None]:
        raise ValueError(f"NAMES gives no role to {', '.join(unknown)}: put your names into NAMES")
    return roles


@torch.no_grad()
def initialise(model):
    """Draws the matrices of the branches anew; embeddings, head and norms stay as they are."""
    missing = {{ 'set(STD["encoder"]) | set(STD["decoder"])' if by_side else "set(STD)" }}
    for role in roles_of(model).values():
        missing -= {role.replace("qkv", part) for part in "qkv"} if role.endswith("qkv") else {role}
    if missing:
        raise ValueError(f"no parameter has the role {', '.join(sorted(missing))}: put your names into NAMES")
    for name, role in roles_of(model).items():
        parameter = model.get_parameter(name)
        stds = {{ 'STD["decoder" if "decoder" in name else "encoder"]' if by_side else "STD" }}
        if role == "bias":
            parameter.zero_()
        if role not in (*stds, "qkv"{{ ', "cross_qkv"' if by_side }}):
            continue
        roles = [role.replace("qkv", part) for part in "qkv"] if role.endswith("qkv") else [role]
        # packed: one behind the other along the longer side
        dim = 0 if parameter.shape[0] >= parameter.shape[-1] else 1
        for part, matrix in zip(roles, parameter.chunk(len(roles), dim)):
%% if varies
            layer = int(next(part for part in name.split('.') if part.isdigit()))
            std = stds[part]
            matrix.normal_(std=std[layer] if isinstance(std, list) else std)
%% else
            matrix.normal_(std=stds[part])
%% endif


{{ weights }}


%% if has_scale
# BRANCH_WEIGHT is where each entry of the trained vector on a branch starts
%% endif
def residual(x, branch{{ ", side" if by_side }}{{ ", index" if indexed }}):
    """In the forward pass, in place of x + branch{{ "; the norm stands behind it" if is_post }}.
{{- " index: of the sublayer, from 0." if indexed }}"""
    return {{ read("RESIDUAL_WEIGHT") }} * x + {{ read("BRANCH_WEIGHT") }} * branch

%% if embedding
EMBEDDING = {{ embedding }}  # in the forward pass, times what the embeddings give

%% endif

def param_groups(model, lr{{ ", eps=1e-8" if has_eps }}{{ ", weight_decay=0.0" if decays }}):
    """Groups for torch.optim, with every parameter that is trained. lr and the rest: those of the tuned model."""
    groups = {}
    for name, role in roles_of(model).items():
        parameter = model.get_parameter(name)
        role = role.replace("qkv", "v")  # packed: of the three, v has most of the update
%% if is_muon
        in_muon = parameter.ndim == 2  # torch.optim.Muon moves matrices alone
%% elif is_mixed
        in_muon = parameter.ndim == 2 and role not in ("embedding", "head", "other")
%% endif
        kind = ({{ kind }})
        groups.setdefault(kind, []).append(parameter)
    {{ "muon, rest = [], []" if is_mixed or is_muon else "listed = []" }}
    for ({{ kind_names }}), parameters in groups.items():
        group = {"params": parameters, "lr": lr * rate}
%% if decays
        # a step decays by weight_decay * lr: divided by the rate, the decay stays what it was; biases, norms and other
        # vectors have none
        group["weight_decay"] = weight_decay / rate{{ " if is_matrix else 0.0" }}
%% endif
%% if is_mixed or is_muon
%% if is_mixed
        if not in_muon:
            group["eps"] = eps * small
%% endif
        (muon if in_muon else rest).append(group)
    return muon, rest


# muon, rest = param_groups(model, lr=...)
%% else
%% if has_eps
        group["eps"] = eps * small
%% endif
        listed.append(group)
    return listed


%% endif
# {{ usage }}
'''


def code(
    config: ModelConfig,
    optimizer: str,
    title: str,
    *,
    rates: Mapping[str, float],
    eps: Mapping[str, float],
    tuned: ModelConfig | None = None,
) -> list[str]:
    """rates, eps: by role, what the tuned model's learning rate and epsilon are multiplied by. tuned: that model, where
    the remedy changes it, too."""
    sublayers = [sublayer for _, side in config.sides for sublayer in side]
    by_side, is_mixed = len(config.sides) > 1, optimizer == "muon+adamw"
    stds_text, *weights_text = assigned = _assigned(config)
    indexed = [line.split(" = ")[0] for line in weights_text if "[" in line]
    has_eps, decays, is_muon = optimizer in ADAPTIVE, optimizer in DECOUPLED, optimizer == "muon"
    kind = {"rate": "RATES.get(role, 1.0)"}
    if has_eps:
        kind["small"] = "EPS.get(role, 1.0)"
    if decays:
        kind["is_matrix"] = "parameter.ndim > 1"
    if is_mixed or is_muon:
        kind["in_muon"] = "in_muon"
    of_tuned = []
    if tuned is not None:
        changed = [text for text, now in zip(_assigned(tuned), assigned, strict=True) if text != now]
        of_tuned = ["it changes the tuned model, too: that one has this code, with RATES and EPS empty, and"]
        of_tuned += [line for text in changed for line in text.splitlines()]
    moved = moved_eps(eps, optimizer)
    roles = {role for sublayer in sublayers for role in config.roles(sublayer.kind)}
    lines = []
    for role, parts in NAMES.items():
        first = role.replace("qkv", "q")
        if first in roles or first not in BRANCH_ROLES:
            listed = ", ".join(f'"{part}"' for part in parts)
            lines += wrap(f'    "{role}": [{listed}],', _WIDTH, subsequent_indent=" " * 8)

    def read(name: str) -> str:
        return f"{name}{'[side]' if by_side else ''}{'[index]' if name in indexed else ''}"

    text = _TEMPLATE.render(
        title=title,
        tuned=of_tuned,
        varies="[" in stds_text,
        by_side=by_side,
        stds=stds_text,
        rates=_table("RATES = ", {role: text for role, rate in rates.items() if (text := f"{rate:.3g}") != "1"}),
        has_eps=has_eps,
        eps=_table("EPS = ", {role: f"{size:.3g}" for role, size in moved.items()}),
        names="\n".join(lines),
        weights="\n".join(weights_text),
        embedding="" if config.embedding_multiplier == 1 else f"{config.embedding_multiplier:.6g}",
        has_scale=any(sublayer.has_layer_scale for sublayer in sublayers),
        indexed=indexed,
        is_post=any("post" in config.places(sublayer) for sublayer in sublayers),
        read=read,
        decays=decays,
        is_mixed=is_mixed,
        is_muon=is_muon,
        kind_names=_tuple(kind),
        kind=_tuple(kind.values()),
        usage=usage(optimizer),
    )
    return text.splitlines()


def moved_eps(eps: Mapping[str, float], optimizer: str) -> dict[str, float]:
    """Those epsilons that are worth to be changed, by role: of no embedding and no head, whose gradients are few."""
    without = {"embedding", "head", *(BRANCH_ROLES if optimizer == "muon+adamw" else ())}
    sizes = {role: size for role, size in eps.items() if size > 0 and role not in without}
    return {role: size for role, size in sizes.items() if abs(math.log(size)) > _NEAR}


def usage(optimizer: str) -> str:
    """What the groups are for."""
    if optimizer == "muon+adamw":
        return 'torch.optim.Muon(muon, adjust_lr_fn="match_rms_adamw") and torch.optim.AdamW(rest)'
    if optimizer == "muon":
        return "torch.optim.Muon(muon), and an optimizer of your choice for the rest, which has no matrices"
    named = f"torch.optim.{_CLASSES[optimizer]}" if optimizer in _CLASSES else optimizer
    return f"optimizer: {named}(param_groups(model, lr=...))"


_TEMPLATE = Environment(line_statement_prefix="%%", undefined=StrictUndefined, autoescape=False).from_string(_CODE)


def _tuple(parts: Iterable[str]) -> str:
    text = ", ".join(parts)
    return text if "," in text else f"{text},"


def _assigned(config: ModelConfig) -> list[str]:
    """The lines that say standard deviations, residual weights and branch weights, a text each."""
    stds = {side: _stds(config, of_side) for side, of_side in config.sides}
    weights = {
        name.upper(): {
            side: _listed([f"{getattr(sublayer, name):.6g}" for sublayer in of_side]) for side, of_side in config.sides
        }
        for name in ("residual_weight", "branch_weight")
    }
    if len(config.sides) > 1:
        rows = [_table(f'    "{side}": ', of_side, ",") for side, of_side in stds.items()]
        return ["\n".join(["STD = {", *rows, "}"]), *(_table(f"{name} = ", cells) for name, cells in weights.items())]
    lines = (wrap(f"{name} = {cells['encoder']}", _WIDTH, subsequent_indent="    ") for name, cells in weights.items())
    return [_table("STD = ", stds["encoder"]), *map("\n".join, lines)]


def _stds(config: ModelConfig, sublayers: tuple[SublayerConfig, ...]) -> dict[str, str]:
    """By role: one number, or a list of each layer's where they differ."""
    return {
        role: _listed(of_role)
        for role in BRANCH_ROLES
        if (
            of_role := [
                f"{config.std(sublayer, role):.4g}" for sublayer in sublayers if role in config.roles(sublayer.kind)
            ]
        )
    }


def _listed(numbers: Sequence[str]) -> str:
    return numbers[0] if len(set(numbers)) == 1 else f"[{', '.join(numbers)}]"


def _table(front: str, cells: Mapping[str, str], behind: str = "") -> str:
    """A dict in lines that are not too long."""
    text = ", ".join(f'"{role}": {cell}' for role, cell in cells.items())
    if len(line := f"{front}{{{text}}}{behind}") <= _WIDTH:
        return line
    indent = " " * (len(front) - len(front.lstrip()))
    inner = wrap(f"{text},", _WIDTH, initial_indent=f"{indent}    ", subsequent_indent=f"{indent}    ")
    return "\n".join([f"{front}{{", *inner, f"{indent}}}{behind}"])

"""What a remedy makes of the user's own model, by the names of its own parameters.

A remedy's branch weight is not asked of the forward pass. It is put into the last matrix of the branch, whose initial
values are multiplied by it, and whose learning rate by the power of it that makes the steps the same: F = b W h is
F = W' h with W' = b W, whose gradient is 1/b of the other. Behind a norm after the sum the residual weight is in it,
too, since that norm divides by any scale.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from depthlaw.advice.code import ADAPTIVE, DECOUPLED, moved_eps
from depthlaw.advice.own import OwnNetwork, mean_ratio
from depthlaw.advice.own_code import Row, Slice, own_code
from depthlaw.advice.remedies import layers_text
from depthlaw.advice.remedy import Remedy
from depthlaw.auditing.reading.branch import Weight
from depthlaw.auditing.reading.look import Built, pattern_of
from depthlaw.sims.config import BRANCH_ROLES
from depthlaw.theory.optimizers import optimizer as optimizer_named

_LAST = ("out", "cross_out", "fc2")
"""Roles of the matrices next to the sum."""


@dataclass(frozen=True)
class Changed:
    """What a remedy makes of a module that its own code has built.

    rows: by parameter of the module that was read. folds: by side, what its last matrices are multiplied by in place of
    a weight of the forward pass. slices: of fused matrices whose parts are scaled differently, the part and its factor.
    others: of parameters that only the user's model has, such as a head. must_change: lines on a forward pass that has
    to have other weights; empty where it has not.
    """

    rows: Mapping[str, Row]
    folds: Mapping[str, float]
    slices: Sequence[tuple[Weight, float]]
    must_change: Sequence[str]
    others: Row


def changed_by(remedy: Remedy, network: OwnNetwork, optimizer: str, *, is_tuned: bool = False) -> Changed:
    """is_tuned: of the tuned model, which only a remedy for both depths changes."""
    built, config = network.read.built, remedy.tuned if is_tuned else remedy.config
    degrees = optimizer_named(optimizer)
    power = 1 + float(degrees.gradient_degree) - float(degrees.parameter_degree)
    rates = {} if is_tuned else remedy.rates
    eps = {} if is_tuned else moved_eps(remedy.eps, optimizer)
    folds: dict[str, float] = {}
    scales: dict[tuple[str, str], float] = {}
    must_change: list[str] = []
    vectors: dict[str, float] = {}
    for (side, now), (_, before) in zip(config.sides, network.numbers.sides, strict=True):
        of = f" of the {side}" if len(config.sides) > 1 else ""
        for role in BRANCH_ROLES:
            mine = [(a.gains[role], b.gains[role]) for a, b in zip(now, before, strict=True) if role in a.gains]
            if mine and (ratio := mean_ratio(*zip(*mine, strict=True))) != 1:
                scales[side, role] = ratio
        residual, branch = (
            mean_ratio([getattr(sublayer, name) for sublayer in now], [getattr(sublayer, name) for sublayer in before])
            for name in ("residual_weight", "branch_weight")
        )
        is_post = all("post" in config.places(sublayer) for sublayer in now)
        fold = branch / residual if is_post else branch
        if fold == 1 and (residual == 1 or is_post):
            continue
        subs = built.sides[side]
        if any(sub.trained for sub in subs):
            vectors |= {sub.branch_parameter: branch for sub in subs if sub.branch_parameter is not None}
        elif any("branch" in config.places(sublayer) for sublayer in now) or (residual != 1 and not is_post):
            must_change.append(
                f"in the forward pass{of}, in place of a x + b F(x): a is to be multiplied by {residual:.6g} and b by "
                f"{branch:.6g}"
            )
        else:
            folds[side] = fold
    if (times := config.embedding_multiplier / network.numbers.embedding_multiplier) != 1:
        must_change.append(f"in the forward pass, what the embeddings give is to be multiplied by {times:.6g}")
    parts: dict[str, list[Weight]] = {}
    for weight in built.weights:
        parts.setdefault(weight.name, []).append(weight)
    rows, slices, parameters = {}, [], dict(built.module.named_parameters())
    for name, parameter in parameters.items():
        if name in parts:
            weights = parts[name]
            fold = [folds.get(weight.side, 1.0) if weight.role in _LAST else 1.0 for weight in weights]
            scale = [scales.get((weight.side, weight.role), 1.0) * f for weight, f in zip(weights, fold, strict=True)]
            # of queries, keys and values in one parameter, the values have most of the update
            first = next((i for i, weight in enumerate(weights) if weight.role.endswith("v")), 0)
            role = ", ".join(dict.fromkeys(weight.role for weight in weights))
            rate = rates.get(weights[first].role, 1.0) * fold[first] ** power
            epsilon = eps.get(weights[first].role, 1.0) / fold[first]
            is_even = len(set(scale)) == 1
            rows[name] = Row(role, rate, epsilon, scale[0] if is_even else 1.0, parameter.ndim == 2)
            slices += [] if is_even else [(weight, f) for weight, f in zip(weights, scale, strict=True) if f != 1]
            continue
        role = _role_of(name, built)
        of_matrix = {side for side in folds for weight in built.weights if weight.side == side}
        fold = 1.0
        if role == "bias" and (roles := built.biases.get(name)):
            owner = next(
                (weight for weight in built.weights if weight.role in roles and _is_beside(name, weight.name)), None
            )
            if owner is not None and owner.role in _LAST and owner.side in of_matrix:
                fold = folds[owner.side]
        rows[name] = Row(
            role, rates.get(role, 1.0) * fold**power, eps.get(role, 1.0) / fold, fold * vectors.get(name, 1.0), False
        )
    for name in built.unused:  # an expert that no token went to is as those of its name that were used
        shape, uneven = parameters[name].shape, {weight.name for weight, _ in slices}
        alike = [of for of in parts if pattern_of(of) == pattern_of(name) and parameters[of].shape == shape]
        if alike and uneven.isdisjoint(alike):
            rows[name] = rows[alike[0]]
    has_head = bool(built.tied) or any(row.role == "head" for row in rows.values())
    others = Row("other") if has_head else Row("head", rates.get("head", 1.0), eps.get("head", 1.0))
    return Changed(rows, folds, slices, must_change, others)


def _is_beside(bias: str, matrix: str) -> bool:
    """Whether a bias and a matrix belong to one part of the module, or are called alike but for their last word."""
    return bias.rpartition(".")[0] == matrix.rpartition(".")[0] or pattern_of(bias) == pattern_of(matrix)


def _role_of(name: str, built: Built) -> str:
    """Of what is no matrix of a branch, as a remedy's learning rates name it."""
    role = "final_norm" if name in built.final_norms else built.others.get(name, "other")
    return {"positions": "embedding", "router": "other", "modulation": "other"}.get(role, role)


def patterns(rows: Mapping[str, Row]) -> dict[str, Row]:
    """Rows by name, * for the number of a layer, where all that a name with * fits have the same row."""
    by_pattern: dict[str, Row] = {}
    groups: dict[str, dict[str, Row]] = {}
    for name, row in rows.items():
        groups.setdefault(pattern_of(name), {})[name] = row
    for pattern, members in groups.items():
        if len(set(members.values())) == 1:
            by_pattern[pattern] = next(iter(members.values()))
            continue
        by_first: dict[str, dict[str, Row]] = {}
        for name, row in members.items():  # only the first number is a layer's, as in blocks.3.net.0
            by_first.setdefault(re.sub(r"(?<![^.])[0-9]+(?![^.])", "*", name, count=1), {})[name] = row
        for narrower, rest in by_first.items():
            by_pattern |= {narrower: next(iter(rest.values()))} if len(set(rest.values())) == 1 else rest
    return by_pattern


def slices_of(changed: Changed) -> list[Slice]:
    """Those parts by name, * for the number of a layer where every layer has the same."""
    by_pattern: dict[str, list[Slice]] = {}
    for weight, scale in changed.slices:
        dims = list(weight.output_dims) or [weight.output_dim]
        if len(dims) > 1 or weight.features is None:
            raise ValueError(f"parts of {weight.name} cannot be said in a line of code: use .apply(model)")
        part = Slice(weight.name, dims[0], tuple(weight.features.tolist()), scale)
        by_pattern.setdefault(pattern_of(weight.name), []).append(part)
    slices: list[Slice] = []
    for pattern, members in by_pattern.items():
        kinds = list(dict.fromkeys(member[1:] for member in members))
        is_even = len(kinds) * len({member.name for member in members}) == len(members)
        slices += [Slice(pattern, *kind) for kind in kinds] if is_even else members
    return slices


def code_of_own(remedy: Remedy, shallow: OwnNetwork, deep: OwnNetwork, optimizer: str, title: str) -> list[str]:
    """Python to paste. ValueError, in one line, where a part of a parameter cannot be named in it."""
    changed = changed_by(remedy, deep, optimizer)
    remarks = list(changed.must_change)
    if changed.folds:
        remarks.append(
            "the forward pass stays as it is: the branch weight stands in the initial values and learning rates"
        )
        remarks.append("of the last matrix of each branch, with which the model is the same and each step, too")
    if not remedy.keeps_tuned:
        tuned = changed_by(remedy, shallow, optimizer, is_tuned=True)
        remarks += tuned.must_change
        remarks.append("it changes the tuned model, too: that one has this code with")
        by_pattern, plain = patterns(tuned.rows), Row("")
        remarks += [
            f'PARAMETERS["{name}"]: learning rate x {row.rate:.4g}, initial values x {row.scale:.6g}, all else 1'
            for name, row in by_pattern.items()
            if (row.rate, row.scale) != (plain.rate, plain.scale)
        ]
        remarks.append(f"NUM_PARAMETERS = {_num_in_layers(tuned.rows)}")
    return own_code(
        patterns(changed.rows),
        slices_of(changed),
        optimizer,
        title,
        layers=layers_text(deep),
        num_parameters=_num_in_layers(changed.rows),
        others=changed.others,
        remarks=remarks,
    )


# ---------------------------------------------------------------- done to a module


def _is_in_layer(name: str) -> bool:
    return re.search("[0-9]", name) is not None


def _num_in_layers(rows: Mapping[str, Row]) -> int:
    return sum(map(_is_in_layer, rows))


def _start_of(names: Iterable[str], rows: Mapping[str, Row]) -> str:
    """What stands before all names: module. of DDP, _orig_mod. of torch.compile, model. of a model with a head.

    >>> from depthlaw.advice.own_changes import _start_of
    >>> _start_of(["lm_head.weight", "model.norm.weight"], {"norm.weight": None}), _start_of(["norm.weight"], {})
    ('model.', '')
    """
    starts = Counter(
        name[:place]
        for name in names
        for place in [0, *(dot.end() for dot in re.finditer("[.]", name))]
        if name[place:] in rows
    )
    return max(starts, key=lambda start: starts[start], default="")


@torch.no_grad()
def initialised(model: nn.Module, changed: Changed, others: Sequence[str] = ()) -> dict[str, tuple[nn.Parameter, Row]]:
    """Scale the values that a module was just built with. By name, its trained parameters and their rows. others: names
    of those that the module which was read has not. ValueError, in one line, where there are more of these, or where
    some of its layers' are missing, as in another number of layers."""
    named = dict(model.named_parameters())
    start = _start_of(named, changed.rows)
    read = {name: name.removeprefix(start) for name in named if name.startswith(start)}
    rows = {name: changed.rows[short] for name, short in read.items() if short in changed.rows}
    rows |= {name: changed.others for name in named if name in others and name not in rows}
    parameters = {name: parameter for name, parameter in named.items() if parameter.requires_grad}
    if unknown := [name for name in parameters if name not in rows]:
        kept = "the learning rate of a head" if changed.others.role == "head" else "the tuned learning rate"
        raise ValueError(
            f"these parameters are not of the model that was read: {', '.join(unknown)}; to give them {kept}: "
            f"others={unknown}"
        )
    if missing := [name for name in changed.rows if start + name not in named and _is_in_layer(name)]:
        raise ValueError(f"these parameters of the model that was read are not of this one: {', '.join(missing)}")
    for name, parameter in parameters.items():
        parameter.mul_(rows[name].scale)
    for weight, scale in changed.slices:
        if start + weight.name in parameters:
            mine = replace(weight, parameter=parameters[start + weight.name])
            mine.write(mine.of(mine.parameter) * scale)
    return {name: (parameter, rows[name]) for name, parameter in parameters.items()}


def param_groups(
    rows: Mapping[str, tuple[nn.Parameter, Row]], optimizer: str, lr: float, eps: float, weight_decay: float
) -> Any:
    """Groups for torch.optim; of muon and muon+adamw two lists, for Muon and for the other optimizer. As the code has
    them that is printed."""
    groups: dict[tuple[Any, ...], list[nn.Parameter]] = {}
    for parameter, row in rows.values():
        groups.setdefault((row.rate, row.eps, row.in_muon, parameter.ndim > 1), []).append(parameter)
    muon, rest = [], []
    for (rate, small, in_muon, is_matrix), parameters in groups.items():
        group: dict[str, Any] = {"params": parameters, "lr": lr * rate}
        if optimizer in DECOUPLED:
            group["weight_decay"] = weight_decay / rate if is_matrix else 0.0
        if optimizer in ADAPTIVE and not (in_muon and optimizer == "muon+adamw"):
            group["eps"] = eps * small
        (muon if in_muon and optimizer in ("muon", "muon+adamw") else rest).append(group)
    return (muon, rest) if optimizer in ("muon", "muon+adamw") else rest

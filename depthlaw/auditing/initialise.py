"""A module initialised in place, as a scheme or a recipe asks for: the roles of its matrices are found, not named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from depthlaw.auditing.expected import Claimed, pairs
from depthlaw.auditing.groups import is_of_branch, roles_of
from depthlaw.auditing.inputs import given, guess
from depthlaw.auditing.laws import SMALL
from depthlaw.auditing.reading.look import Built, Weight, look


@dataclass(frozen=True)
class Initialised:
    """What a forward pass and an optimizer are to be given besides.

    residual_weights, branch_weights: of each sublayer, by side; a trained branch weight is set already. rates, eps:
    what the learning rate and Adam's epsilon of each parameter are multiplied by, by name. must_change: in words,
    sublayers whose forward pass has another weight today, matrices whose scale does not follow that of their parameter,
    and matrices that sublayers of several scales share.

    >>> import torch, depthlaw
    >>> layer = torch.nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True)
    >>> told = depthlaw.initialise(torch.nn.TransformerEncoder(layer, 2), scheme="post-ln")
    >>> [group["lr"] for group in told.param_groups(lr=0.1)]
    [0.1]
    """

    residual_weights: Mapping[str, Sequence[float]]
    branch_weights: Mapping[str, Sequence[float]]
    rates: Mapping[str, float]
    eps: Mapping[str, float]
    must_change: Sequence[str]
    parameters: Mapping[str, nn.Parameter] = field(repr=False)

    def param_groups(self, lr: float, eps: float | None = None) -> list[dict[str, Any]]:
        """Groups for torch.optim, one for each learning rate, and for each epsilon where one is given."""
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, parameter in self.parameters.items():
            small = 1.0 if eps is None else self.eps.get(name, 1.0)
            groups.setdefault((self.rates.get(name, 1.0), small), []).append(parameter)
        return [
            {"params": group, "lr": lr * rate} | ({} if eps is None else {"eps": eps * small})
            for (rate, small), group in sorted(groups.items())
        ]


def initialise(
    module: nn.Module,
    *,
    scheme: str | None = None,
    recipe: str | None = None,
    optimizer: str = "adamw",
    inputs: Callable[[nn.Module], Any] | None = None,
    seed: int | None = None,
) -> Initialised:
    """Draw the matrices of a module's branches anew, as a scheme or a recipe asks for, and say what else it takes.

    A scheme's matrices are Xavier's normal ones times its gains, a recipe's have its standard deviations, and its
    embedding and head too; T-Fixup scales the embedding that is there. Biases become 0, trained branch weights get
    their first value, and norms are left alone. The residual weight is part of the forward pass, which this function
    cannot change: the answer lists what you still have to do, in ``must_change``. seed: the seed of the draws; torch's
    own generator draws if it is left out. ValueError, in one line, for a scheme, recipe or module that is not known.

    >>> import torch, depthlaw
    >>> layer = torch.nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, 4)
    >>> told = depthlaw.initialise(model, scheme="deepnorm", optimizer="adamw")
    >>> [round(weight, 4) for weight in told.residual_weights["encoder"][:2]], len(told.must_change)
    ([1.6818, 1.6818], 8)
    """
    if (scheme is None) == (recipe is None):
        raise ValueError(f"give a scheme or a recipe{', not both' if scheme else ''}")
    claimed = Claimed.named(scheme or recipe or "", optimizer, is_recipe=recipe is not None)
    built = look(module, guess(module) if inputs is None else given(inputs(module), module))
    counts = {side: built.num_layers(side) for side in built.sides}
    asked, multipliers = claimed.config(built, counts), claimed.multipliers(built, counts)
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    written: list[tuple[Weight, float]] = []
    parameters = dict(module.named_parameters())
    rates: dict[str, float] = {}
    eps: dict[str, float] = {}
    weights: dict[str, dict[str, list[float]]] = {"residual": {}, "branch": {}}
    must_change = []
    with torch.no_grad():
        for pair in pairs(built, asked):
            sub, wanted = pair.built, pair.asked
            weights["residual"].setdefault(sub.side, []).append(wanted.residual_weight)
            weights["branch"].setdefault(sub.side, []).append(wanted.branch_weight)
            for weight in sub.weights:
                rows, columns = weight.shape[-2:]
                xavier = (2 / (rows + columns)) ** 0.5
                std = (
                    asked.std(wanted, weight.role)
                    if claimed.is_absolute
                    else xavier * wanted.gains.get(weight.role, 1.0)
                )
                weight.write(torch.randn(weight.shape, generator=generator, dtype=torch.float64) * std / weight.factor)
                written.append((weight, std))
                rates[weight.name] = wanted.lr_multipliers.get(weight.role, 1.0)
            name = sub.branch_parameter
            if name is not None:
                parameters[name].fill_(wanted.branch_weight)
            differs = abs(sub.residual_weight - wanted.residual_weight) > 1e-3 * abs(wanted.residual_weight)
            differs |= name is None and abs(sub.branch_weight - wanted.branch_weight) > 1e-3 * abs(wanted.branch_weight)
            moves = pair.places & _AROUND != sub.norms & _AROUND
            if differs or moves:
                where = f", with norms {_named(pair.places)} in place of {_named(sub.norms)}" if moves else ""
                weights_of_sum = f"x = {wanted.residual_weight:.6g} x + {wanted.branch_weight:.6g} F(x)"
                must_change.append(f"{sub.side}, {sub.called}: {weights_of_sum}{where}")
        _ends(built, claimed, asked, generator)
    if multipliers is not None:
        for name, roles in roles_of(built).items():
            if is_of_branch(built, name, roles):
                rates[name], eps[name] = multipliers
    must_change += [*_of_another_scale(module, built, written), *_of_several_scales(written)]
    return Initialised(weights["residual"], weights["branch"], rates, eps, must_change, parameters)


_AROUND = frozenset({"pre", "inner", "branch", "post"})
"""Places of norms in a sublayer, those of queries, keys and values apart."""


def _named(norms: frozenset[str]) -> str:
    return " and ".join(place for place in ("pre", "inner", "branch", "post") if place in norms) or "none"


def _of_another_scale(module: nn.Module, built: Built, written: Sequence[tuple[Weight, float]]) -> Iterator[str]:
    """Matrices that are made of their parameter by more than a number, as by ``weight_norm``, and did not follow."""
    if all(weight.factor == 1 for weight, _ in written):
        return
    now = {(weight.name, weight.role): weight.factor for weight in look(module, built.inputs).weights}
    for weight, std in written:
        there = now[weight.name, weight.role] * std / weight.factor
        if abs(there - std) > SMALL * std:
            yield f"{weight.name} is normalised on its way to the data: its std is {there:.4g} there, not {std:.4g}"


def _of_several_scales(written: Sequence[tuple[Weight, float]]) -> Iterator[str]:
    """Matrices that several sublayers share, which are to have a scale in each of them."""
    stds: dict[tuple[str, tuple[int, ...], int], set[float]] = {}
    for weight, std in written:
        rows = () if weight.features is None else tuple(weight.features.tolist())
        stds.setdefault((weight.name, rows, weight.expert), set()).add(std)
    for (name, *_), several in stds.items():
        if max(several) > (1 + SMALL) * min(several):
            asked = f"{min(several):.4g} to {max(several):.4g}"
            yield f"{name} is shared by sublayers that are to have a std of {asked} each by itself: it has the last's"


def _ends(built: Built, claimed: Claimed, asked: Any, generator: torch.Generator | None) -> None:
    """Biases, and of a recipe the embedding, learned positions and the head."""
    has_positions = "positions" in built.others.values()
    stds = claimed.start_stds(asked, has_positions=has_positions) if claimed.is_absolute else {}
    scale = 1.0
    if not claimed.is_absolute and asked.embedding_std != 1:
        scale = asked.embedding_std / built.sublayers[0].second_moment ** 0.5
    stds["head"] = asked.head_gain / asked.d_model**0.5
    for name, role in built.others.items():
        parameter = built.flow.parameters[name]
        if role == "bias":
            parameter.zero_()
        elif scale != 1 and role in ("embedding", "positions"):
            parameter.mul_(scale)
        elif (
            claimed.is_absolute
            and stds.get(role)
            and parameter.shape[-1] == asked.d_model
            and (parameter.ndim == 2 or role == "positions")
        ):
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * stds[role])

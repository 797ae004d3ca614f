"""What a remedy makes of the user's own model, as Python to paste: nothing is to be filled in.

The lines need torch alone. Each parameter of the model stands in one table, by its own name, with what its learning
rate, its epsilon and its initial values are multiplied by. A test runs them and measures a step of what they make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from jinja2 import Environment, StrictUndefined

from depthlaw.advice.code import ADAPTIVE, DECOUPLED, usage


class Row(NamedTuple):
    """Of a parameter: its role, and what its learning rate, its epsilon and its initial values are multiplied by.
    in_muon: whether Muon may move it, under an optimizer that has Muon in it."""

    role: str
    rate: float = 1.0
    eps: float = 1.0
    scale: float = 1.0
    in_muon: bool = False


class Slice(NamedTuple):
    """A part of a fused parameter that is scaled by itself: numbers of its rows along a dimension."""

    name: str
    dim: int
    rows: tuple[int, ...]
    scale: float


_CODE = '''\
# {{ title }}
%% for line in remarks
# {{ line }}
%% endfor
import re
from collections import Counter

import torch

# every parameter of the model, * for the number of a layer: what it is, and what its learning rate{{ eps_text }} and
# its initial values are multiplied by
PARAMETERS = {
%% for name, cells in rows
    "{{ name }}": {{ cells }},
%% endfor
}
OTHERS = {{ others }}  # the same of parameters that only your model has, which you name in others=[...]
NUM_PARAMETERS = {{ num_parameters }}  # tensors in layers, of the model of {{ layers }} layers that was read
{{ parts }}

def find(table, name):
    """What a table says of a parameter; None where it does not know it."""
    fits = (row for pattern, row in table.items() if re.fullmatch(re.escape(pattern).replace(r"\\*", "[0-9]+"), name))
    return next(fits, None)


def start_of(model):
    """What stands before all names: module. of DDP, _orig_mod. of torch.compile, model. of a model with a head."""
    starts = Counter(
        name[:place]
        for name, _ in model.named_parameters()
        for place in [0, *(dot.end() for dot in re.finditer("[.]", name))]
        if find(PARAMETERS, name[place:]) is not None
    )
    return max(starts, key=starts.get, default="")


def rows_of(model, others=()):
    """By name, the parameters that are trained and their rows; ValueError that lists those which have none."""
    start, rows = start_of(model), {}
    for name, parameter in model.named_parameters():
        row = find(PARAMETERS, name[len(start) :]) if name.startswith(start) else None
        rows[name] = parameter, OTHERS if row is None and name in others else row
    trained = {name: (one, row) for name, (one, row) in rows.items() if one.requires_grad}
    if unknown := [name for name, (_, row) in trained.items() if row is None]:
        raise ValueError(
            f"these parameters are not of the model that was read: {', '.join(unknown)}; to give them {OTHERS}: "
            f"others={unknown}"
        )
    in_layers = [name for name, (_, row) in rows.items() if row and re.search("[0-9]", name[len(start) :])]
    in_layers = [name for name in in_layers if name not in others]
    if len(in_layers) != NUM_PARAMETERS:
        raise ValueError(
            f"this model has {len(in_layers)} parameters in its layers and the one that was read has {NUM_PARAMETERS}"
        )
    return trained


@torch.no_grad()
def initialise(model, others=()):
    """Scales what your own code has drawn: to be called once, of a model that was just built."""
    for name, (parameter, row) in rows_of(model, others).items():
        parameter.mul_(row[-1])
%% if slices
        for dim, numbers, scale in find(PARTS, name.removeprefix(start_of(model))) or []:
            numbers = torch.tensor(numbers, device=parameter.device)
            parameter.index_copy_(dim, numbers, parameter.index_select(dim, numbers) * scale)
%% endif
{{ "" }}

def param_groups(model, lr{{ ", eps=1e-8" if has_eps }}{{ ", weight_decay=0.0" if decays }}, others=()):
    """Groups for torch.optim, with every parameter that is trained. lr and the rest: those of the tuned model."""
    groups = {}
    for parameter, ({{ cells }}) in rows_of(model, others).values():
%% if decays
        is_matrix = parameter.ndim > 1
%% endif
        kind = ({{ kind }})
        groups.setdefault(kind, []).append(parameter)
    {{ "muon, rest = [], []" if has_muon else "listed = []" }}
    for ({{ kind }}), parameters in groups.items():
        group = {"params": parameters, "lr": lr * rate}
%% if decays
        # a step decays by weight_decay * lr: divided by the rate, the decay stays what it was; biases, norms and other
        # vectors have none
        group["weight_decay"] = weight_decay / rate if is_matrix else 0.0
%% endif
%% if has_eps and is_mixed
        if not in_muon:
            group["eps"] = eps * small
%% elif has_eps
        group["eps"] = eps * small
%% endif
%% if has_muon
        (muon if in_muon else rest).append(group)
    return muon, rest


# muon, rest = param_groups(model, lr=...)
%% else
        listed.append(group)
    return listed


%% endif
# {{ usage }}
'''
_PARTS = """
# parts of fused parameters whose initial values are multiplied, too: the dimension, its numbers, the factor
PARTS = {"""
_TEMPLATE = Environment(line_statement_prefix="%%", undefined=StrictUndefined, autoescape=False).from_string(_CODE)


def own_code(
    rows: Mapping[str, Row],
    slices: Sequence[Slice],
    optimizer: str,
    title: str,
    *,
    layers: str,
    num_parameters: int,
    others: Row,
    remarks: Sequence[str] = (),
) -> list[str]:
    """rows: by name, * in it for numbers of layers. slices: by name in the same way. remarks: comment lines. layers:
    of the model that was read, as words. num_parameters: how many tensors of it have a row and a number in their name.
    others: of parameters that it has not."""
    has_eps, decays, has_muon = optimizer in ADAPTIVE, optimizer in DECOUPLED, optimizer in ("muon", "muon+adamw")
    names = ["_", "rate", *(["small"] if has_eps else []), *(["in_muon"] if has_muon else []), "_"]
    kind = [*names[1:-1], *(["is_matrix"] if decays else [])]

    def cells(row: Row) -> str:
        numbers = [f"{row.rate:.4g}", *([f"{row.eps:.3g}"] if has_eps else [])]
        numbers += [str(row.in_muon)] if has_muon else []
        return f'("{row.role}", {", ".join([*numbers, f"{row.scale:.6g}"])})'

    by_name: dict[str, list[str]] = {}
    for part in slices:
        by_name.setdefault(part.name, []).append(f"({part.dim}, {_numbers(part.rows)}, {part.scale:.6g})")
    lines = [f'    "{name}": [{", ".join(parts)}],' for name, parts in by_name.items()]
    text = _TEMPLATE.render(
        title=title,
        remarks=remarks,
        layers=layers,
        num_parameters=num_parameters,
        others=cells(others),
        eps_text=", its epsilon" if has_eps else "",
        rows=[(name, cells(row)) for name, row in rows.items()],
        slices=bool(slices),
        parts="\n".join([_PARTS, *lines, "}\n"]) if slices else "",
        has_eps=has_eps,
        decays=decays,
        has_muon=has_muon,
        is_mixed=optimizer == "muon+adamw",
        cells=", ".join(names),
        kind=", ".join(kind) + ("," if len(kind) == 1 else ""),
        usage=usage(optimizer),
    )
    return text.splitlines()


def _numbers(rows: Sequence[int]) -> str:
    """Python of whole numbers: runs of them as ranges.

    >>> from depthlaw.advice.own_code import _numbers
    >>> _numbers([4, 5, 6, 7]), _numbers([2, 3, 8, 9])
    ('[*range(4, 8)]', '[*range(2, 4), *range(8, 10)]')
    """
    runs: list[list[int]] = []
    for number in rows:
        if runs and number == runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([number, number + 1])
    starts = [start for start, _ in runs]
    sizes = {end - start for start, end in runs}
    steps = {b - a for a, b in pairwise(starts)}
    if len(runs) > 2 and len(sizes) == 1 and len(steps) == 1:
        (size,), (step,) = sizes, steps
        return f"[n for i in range({starts[0]}, {starts[-1] + 1}, {step}) for n in range(i, i + {size})]"
    return f"[{', '.join(f'*range({start}, {end})' for start, end in runs)}]"

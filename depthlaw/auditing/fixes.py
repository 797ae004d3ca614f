"""Fixes: small programs over the parameters of roles, and the Python that is printed of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

NORMAL = "torch.nn.init.normal_(model.get_parameter({}){}, std={})"
CONSTANT = "torch.nn.init.constant_(model.get_parameter({}){}, {})"
_NUMBER = r"(?<![^.])[0-9]+(?![^.])"
"""Of a layer, in the name of a parameter."""
NORM_CLASSES = {"rmsnorm": "nn.RMSNorm", "layernorm": "nn.LayerNorm"}


class Block(NamedTuple):
    """A line of Python, and those that are indented under it."""

    head: str
    body: tuple[str, ...] = ()


class Entry(NamedTuple):
    """What a parameter of a layer, or some rows of it, is to have. rows: as Python picks them."""

    name: str
    rows: str
    layer: int
    value: str


@dataclass(frozen=True)
class Assign:
    """Parameters of the layers, each drawn or set anew. formula: of all layers, where there is one; num_layers, called:
    of the model that has such layers, and what Python calls that number; own: the same of layers with weights of their
    own, where these are visited again."""

    call: str
    entries: tuple[Entry, ...]
    formula: str | None
    called: str
    num_layers: int
    own: tuple[str, int] | None = None
    is_code = True

    def blocks(self) -> Iterator[Block]:
        """A loop for those whose names differ in the layer alone and that have one number or a formula, else a line for
        each, for the depth that has such layers.

        >>> from depthlaw.auditing.fixes import Assign, Entry, python
        >>> def fix(*numbers):
        ...     entries = tuple(Entry(f"h.{n}.up", "", n + 1, "0.1") for n in numbers)
        ...     return python([(None, (Assign("zero({}{}, {})", entries, None, "num_layers", 2),))])
        >>> print(fix(1))
        if num_layers == 2:
            zero("h.1.up", 0.1)  # layer 2 of 2
        >>> print(fix(0, 1))
        for layer in range(1, num_layers + 1):
            zero(f"h.{layer - 1}.up", 0.1)
        """
        groups: dict[tuple[str, str], dict[int, Entry]] = {}
        for entry in self.entries:
            groups.setdefault((_of_layer(entry.name, entry.layer), entry.rows), {})[entry.layer] = entry
        looped, guarded, lines = [], [], []
        bound, number = self.own or (self.called, self.num_layers)
        for (pattern, rows), by_layer in groups.items():
            values = {entry.value for entry in by_layer.values()}
            text = self.formula or (min(values) if len(values) == 1 else None)
            if text is not None and "{" in pattern and 1 < number == len(by_layer):
                looped.append(self.call.format(f'f"{pattern}"', rows, text))
            else:
                for layer, entry in by_layer.items():
                    line = self.call.format(f'"{entry.name}"', rows, entry.value)
                    (guarded if re.search(_NUMBER, entry.name) else lines).append(
                        f"{line}  # layer {layer} of {number}"
                    )
        if looped:
            yield Block(f"for layer in range(1, {bound} + 1):", tuple(looped))
        if guarded:
            yield Block(f"if {self.called} == {self.num_layers}:", tuple(guarded))
        yield from map(Block, lines)


@dataclass(frozen=True)
class Code:
    """Python that is run on a model, which it calls ``model``."""

    head: str
    body: tuple[str, ...] = ()
    is_code = True

    def blocks(self) -> Iterator[Block]:
        yield Block(self.head, self.body)


@dataclass(frozen=True)
class Initialise:
    """The call that draws all matrices as a claim has them. It comes last: it does all at once."""

    claim: str
    comment: str
    is_code = True

    def blocks(self) -> Iterator[Block]:
        yield Block(f"{self.claim}  # {self.comment}")


@dataclass(frozen=True)
class Edit:
    """Lines that a person writes into the module's own code."""

    text: str
    is_code = False

    def blocks(self) -> Iterator[Block]:
        yield from map(Block, self.text.splitlines())


Fix = Sequence[Assign | Code | Initialise | Edit]


def python(fixes: Sequence[tuple[str | None, Fix]]) -> str:
    """Fixes, each of a side, as one program: what stands under one line is put together, and calls that initialise all
    come last."""
    sides = list(dict.fromkeys(side for side, _ in fixes))
    lines: list[str] = []
    last: dict[str, None] = {}
    for side in sides:
        blocks: dict[str, dict[str, None]] = {}
        for program in (fix for of, fix in fixes if of == side):
            for statement in program:
                for head, body in statement.blocks():
                    if isinstance(statement, Initialise):
                        last[head] = None
                    else:
                        blocks.setdefault(head, {}).update(dict.fromkeys(body))
        lines += [f"# {side}"] if len(sides) > 1 else []
        lines += [line for head, body in blocks.items() for line in (head, *(f"    {line}" for line in body))]
    return "\n".join([*lines, *last])


def is_code(fix: Fix) -> bool:
    """Whether all of it runs on a model that is there."""
    return bool(fix) and all(statement.is_code for statement in fix)


def _of_layer(name: str, layer: int) -> str:
    """The name of a parameter as a pattern of Python in the layer, which may be counted from 0 in it.

    >>> from depthlaw.auditing.fixes import _of_layer
    >>> _of_layer("h.3.experts.0.up", 4), _of_layer("embedding", 1)
    ('h.{layer - 1}.experts.0.up', 'embedding')
    """
    for index, text in ((layer - 1, "{layer - 1}"), (layer, "{layer}")):
        pattern, number = re.subn(rf"(?<![^.]){index}(?![^.])", text, name, count=1)
        if number:
            return pattern
    return name


# ---------------------------------------------------------------- lines of a forward pass


def summed(residual: str, branch: str, norms: Collection[str]) -> str:
    """Python of a sublayer, with what multiplies its stream and its branch.

    >>> from depthlaw.auditing.fixes import summed
    >>> summed("2 * ", "", {"post"}), summed("", "0.5 * ", {"pre"})
    ('x = norm(2 * x + branch(x))', 'x = x + 0.5 * branch(norm(x))')
    """
    term = "branch(norm(x))" if "pre" in norms else "branch(x)"
    total = f"{residual}x + {branch}{f'norm({term})' if 'branch' in norms else term}"
    return f"x = norm({total})" if "post" in norms else f"x = {total}"


def norm_line(place: str, *, is_missing: bool) -> str:
    """The line that puts a norm to a place, or says which to leave out."""
    lines = {
        "pre": "x = x + branch(norm(x))",
        "post": "x = norm(x + branch(x))",
        "branch": "x = x + norm(branch(x))",
        "inner": "return output(norm(inner))",
        "q": "q = q_norm(q)",
        "k": "k = k_norm(k)",
        "v": "v = v_norm(v)",
    }
    return lines[place] if is_missing else f"# leave out: {lines[place]}"


def anew(names: Iterable[str]) -> tuple[Code, ...]:
    """Gains that are to start at 1."""
    return tuple(Code(f'torch.nn.init.ones_(model.get_parameter("{name}"))') for name in names)

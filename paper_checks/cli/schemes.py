"""``depthlaw schemes``: the named schemes, as ``theory.schemes`` has them, in a table or one of them in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paper_checks.cli.choices import lowered, one_scheme
from paper_checks.cli.inputs import refusing
from paper_checks.cli.options import Json
from paper_checks.cli.output import print_json, print_whole
from paper_checks.system.files import document

if TYPE_CHECKING:
    from sympy import Expr

    from theory.schemes import Scheme

_WEIGHTS = {"residual_weight": "a", "branch_weight": "b", "input_scale": "c"}
_NORMS = {
    "pre": "before the branch",
    "inner": "before the last matrix of the branch",
    "branch": "behind the branch",
    "post": "behind the sum of stream and branch",
    "final": "once before the head",
}
"""Where each norm of a ``theory.stack.Placement`` stands, in words."""


def run(
    name: Annotated[
        str | None,
        typer.Argument(
            help="One scheme, said in words; all by default.",
            metavar="[NAME]",
            autocompletion=one_scheme,
            callback=lowered,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """The named schemes: where the norms stand, the residual weight, the init gains, and who published each."""
    from theory.schemes import SCHEMES, scheme

    with refusing():
        chosen = [scheme(name)] if name is not None else list(SCHEMES.values())
    found = [entry(one) for one in chosen]
    if as_json:
        print_json(document(schemes=found))
    elif name is None:
        _show_all(found)
    else:
        for line in told(found[0]):
            print(line)


def entry(scheme: Scheme) -> dict[str, Any]:
    """One scheme as other programs read it. Weights and gains are texts that sympy reads, in L and the index l.

    >>> from paper_checks.cli.schemes import entry
    >>> from theory.schemes import SCHEMES
    >>> found = entry(SCHEMES["deepnorm"])
    >>> found["form"], found["residual_weight"], found["gains"]["fc1"]
    ('x_l = norm(a x + W2 phi(W1 x))', 'L**(1/4)', '(4*L)**(-1/4)')
    """
    from theory.stack import SCALED_ROLES, UNSCALED_ROLES, SublayerKind

    stack = scheme.stack
    gains = {role: "1" for role in UNSCALED_ROLES[SublayerKind.SELF]}
    for kind in (SublayerKind.SELF, SublayerKind.FFN):
        first, second = SCALED_ROLES[kind]
        gains |= {first: _text(stack.gain_in), second: _text(stack.gain_out)}
    weights = {name: getattr(stack, name) for name in _WEIGHTS}
    return {
        "name": scheme.name,
        "form": _form(scheme),
        # Admin's rule depends on the activation, so it is no expression in L.
        **{name: "sqrt(1 + sum of Var f_j over j < l)" if law is None else _text(law) for name, law in weights.items()},
        "gains": gains,
        "norms": [name for name in _NORMS if getattr(stack.placement, name)],
        "source": scheme.source,
        "trains_branch_weight": stack.trains_branch_weight,
        "sign_lr_multiplier": _text(scheme.sign_lr_multiplier),
        "min_sublayers": scheme.min_sublayers,
    }


def _text(law: Expr) -> str:
    from theory.rules.magnitude import compact

    return min(compact(law), str(law), key=len)


def _form(scheme: Scheme) -> str:
    """One sublayer on the stream x; a weight is left out where it is 1."""
    placement, stack = scheme.stack.placement, scheme.stack
    a, b, c = ("" if getattr(stack, name) == 1 else f"{letter} " for name, letter in _WEIGHTS.items())
    hidden = f"phi(W1 {c}{'norm(x)' if placement.pre else 'x'})"
    branch = f"W2 {f'norm({hidden})' if placement.inner else hidden}"
    total = f"{a}x + {b}{f'norm({branch})' if placement.branch else branch}"
    return f"x_l = norm({total})" if placement.post else f"x_l = {total}"


def told(found: dict[str, Any]) -> Iterator[str]:
    """One scheme in words, a line for each fact."""
    from theory.kernel.setting import PLACES
    from theory.optimizers import OPTIMIZERS

    yield f"{found['name']}, from {found['source']}"
    yield f"  one sublayer:    {found['form']}"
    for where in [_NORMS[name] for name in found["norms"]] or ["none"]:
        yield f"  norm:            {where}"
    if {"inner", "branch"} <= PLACES.get(found["name"], set()):
        yield "                   (in an attention behind the branch, not within it)"
    for name, letter in _WEIGHTS.items():
        trained = ", a trained parameter" if name == "branch_weight" and found["trains_branch_weight"] else ""
        yield f"  {name.replace('_', ' ') + ':':<16} {letter} = {found[name]}{trained}"
    for gain in dict.fromkeys(found["gains"].values()):
        roles = ", ".join(role for role, value in found["gains"].items() if value == gain)
        yield f"  init gain:       {gain} on {roles}"
    if found["sign_lr_multiplier"] != "1":
        signs = ", ".join(name for name, one in OPTIMIZERS.items() if one.is_sign_type)
        yield f"  learning rate:   x {found['sign_lr_multiplier']} under {signs}"
    if found["min_sublayers"] > 1:
        yield f"  defined from:    {found['min_sublayers']} sublayers on"
    yield (
        "L is the number of sublayers, two to a layer, and l counts them. W1 and W2 are\n"
        "fc1 and fc2 of an FFN, v and out of an attention. A weight that the form leaves\n"
        "out is 1. How the update of this scheme grows with depth:"
    )
    yield f"  depthlaw predict --scheme {found['name']} --optimizer adamw --sublayers 8,64,512"


def _show_all(found: list[dict[str, Any]]) -> None:
    """With sources where the terminal is wide enough."""
    from rich.console import Console
    from rich.table import Table

    rows = [(one["name"], ", ".join(one["norms"]) or "none", _differing(one), one["source"]) for one in found]
    tables = []
    for heads in (("scheme", "norms", "what is not 1", "source"), ("scheme", "norms", "what is not 1")):
        tables.append(Table(*heads, box=None, padding=(0, 1)))
        for row in rows:
            tables[-1].add_row(*row[: len(heads)])
    console = Console()
    print_whole(console, *([table] for table in tables))
    console.print(
        "a: residual weight; b: branch weight; c: input scale; gains: v, out, fc1, fc2.\n"
        "L: sublayers, of which l is one. `depthlaw schemes NAME` tells of one scheme.",
        markup=False,
        highlight=False,
    )


def _differing(one: dict[str, Any]) -> str:
    """Its weights and gains that are not 1."""
    parts = [f"{letter} = {one[name]}" for name, letter in _WEIGHTS.items() if one[name] != "1"]
    gains = {role: gain for role, gain in one["gains"].items() if gain != "1"}
    for gain in dict.fromkeys(gains.values()):
        roles = [role for role in gains if gains[role] == gain]
        parts.append(f"{'gains' if len(roles) == 4 else ', '.join(roles)} = {gain}")
    return "; ".join(parts)

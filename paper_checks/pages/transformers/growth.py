"""TRANSFORMERS.md's second half: how each role's update grows with depth, and what a user should do about it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from paper_checks.experiments.kernel_laws import LENGTHS, Law, law
from paper_checks.experiments.sweeps import OPTIMIZERS
from paper_checks.pages.transformers.text import SHOWN_ROLES, table
from theory.kernel.predict import unit_power
from theory.schemes import SCHEMES

FIRST = 4
"""Of the N that an exponent is over."""
FLAT = 0.05
"""An exponent that is smaller, between the two largest N, is flat."""
SMALL = 0.02
"""An error of such an exponent that is no matter."""
START = 8
"""Layers for which a user has tuned a learning rate."""
ASKED = (24, 100, 1000)
MODEL, MATTERS = 1024, 0.05
"""The width at which shares are told, and the least that matters."""
USED = ("post-ln", "pre-ln", "sub-ln", "deepnorm", "sub-ln-gamma", "gpt2")
VECTORS = ("norm_gain", "norm_bias", "bias")
WIDTHS = (512, 4096)
FARTHEST = 10_000
"""Layers up to which an exponent is trusted beyond those that are kept."""
Laws = Mapping[tuple[str, str], Law]


def laws() -> dict[tuple[str, str], Law]:
    """LookupError where one of them is not kept."""
    return {(name, optimizer): law(name, optimizer) for name in SCHEMES for optimizer in OPTIMIZERS}


def last_exponent(found: Law, role: str = "update") -> float | None:
    """Between the two largest N; None where U is 0 there."""
    return found.local_exponents(role).get((LENGTHS[-2], LENGTHS[-1]))


def at(found: Law, role: str, layers: float) -> float:
    """U at any N, between kept ones along the straight line of the logarithms."""
    values = found.of(role)
    if layers in values:
        return values[int(layers)]
    low, high = max(n for n in values if n < layers), min(n for n in values if n > layers)
    share = math.log(layers / low) / math.log(high / low)
    return values[low] ** (1 - share) * values[high] ** share


# ---------------------------------------------------------------- the laws


def growth(found: Laws) -> str:
    last, errors = f"from N = {LENGTHS[-2]} to {LENGTHS[-1]:,}", _end_errors(found)
    tables = "".join(
        f"Under {optimizer}:\n\n"
        + table(
            ["scheme", "update", "update at the end", *SHOWN_ROLES, "grows at the end"],
            [_growth_row(name, found[name, optimizer]) for name in SCHEMES],
        )
        + "\n"
        for optimizer in OPTIMIZERS
    )
    return f"""## How each role grows with depth

Exponents in N of the predicted U over N = {FIRST} to {LENGTHS[-1]:,}, by least squares of the logarithms, at infinite
width and with infinitely large heads; "at the end" is {last}. Bold: flat at the end, which is an
exponent below {FLAT} either way, whatever it was before. Its quasi-random error is below {SMALL} in
{sum(error < SMALL for error in errors)} of {len(errors)} cases, and {max(errors):.1g} at most.
0: does not move, as a factor in front of it begins at 0.

{"".join(_promises(found, optimizer) for optimizer in OPTIMIZERS)}
{tables}"""


def _end_errors(found: Laws) -> list[float]:
    """Of the exponents at the end."""
    low, high = LENGTHS[-2:]
    errors = (
        math.hypot(one.errors[role][low], one.errors[role][high]) for one in found.values() for role in one.errors
    )
    return [error / math.log(high / low) for error in errors]


def _growth_row(name: str, found: Law) -> list[str]:
    end = last_exponent(found)
    still = _list(growing(found))
    return [name, _exponent(found, "update"), _two(end), *(_exponent(found, role) for role in SHOWN_ROLES), still]


def growing(found: Law) -> list[str]:
    """The roles that still grow at the greatest depth."""
    ends = {role: last_exponent(found, role) for role in SHOWN_ROLES if role in found.roles}
    return [role for role, end in ends.items() if end is not None and end >= FLAT]


def _exponent(found: Law, role: str) -> str:
    if role != "update" and role not in found.roles:
        return "-"
    exponent, end = found.exponent(role, FIRST), last_exponent(found, role)
    if exponent is None or end is None:
        return "0"
    return f"**{_two(exponent)}**" if abs(end) < FLAT else _two(exponent)


def _two(value: float | None) -> str:
    return "0" if value is None else f"{value:z.2f}"


def _promises(found: Laws, optimizer: str) -> str:
    """Which schemes keep the matrices' update flat, and what breaks the promise all the same."""
    ends = {name: last_exponent(found[name, optimizer]) for name in SCHEMES}
    flat = [name for name, end in ends.items() if end is not None and abs(end) < FLAT]
    falls = [name for name, end in ends.items() if end is not None and end <= -FLAT]
    whole = [name for name in flat if not growing(found[name, optimizer])]
    broken = [f"{name} ({', '.join(growing(found[name, optimizer]))})" for name in flat if name not in whole]
    return f"""- Under {optimizer} the matrices' update is flat at the end in {len(flat)} of {len(SCHEMES)} schemes.
  No role grows in {_list(whole)}. Other roles grow in {_list(broken, "; ")}.
  The update falls in {_list(falls)}, and is 0 in {_list([name for name, end in ends.items() if end is None])}.
"""


def _list(names: Sequence[str], mark: str = ", ") -> str:
    return mark.join(names) or "none"


# ---------------------------------------------------------------- what to do about it


def advice(found: Laws) -> str:
    tables = ""
    for optimizer in ("adam", "sgd"):
        roles = [role for role in SHOWN_ROLES if any(role in found[name, optimizer].roles for name in USED)]
        rows = [row for name in USED for row in _multipliers(name, optimizer, found, roles)]
        most = ", ".join(f"{name} {_to_turn_down(found[name, optimizer], optimizer)}" for name in USED)
        tables += (
            f"Under {optimizer}. Of the roles whose share is {100 * MATTERS:g} % or more, the one to turn down most at "
            f"{ASKED[1]} layers: {most}.\n\n"
        )
        tables += table(["scheme", "N", *roles], rows) + "\n"
    return f"""## What to do about it

A step is proportional to its learning rate. So a role whose U grows as N^p moves the model as much at N layers as it
did at N0 if its learning rate is multiplied by U(N0)/U(N), near (N/N0)^-p. The tables have this multiplier for each
role of a model whose learning rate was tuned at N0 = {START} layers: first the power -p, over N = {FIRST} to
{LENGTHS[-1]:,}, then numbers of the curve itself (between kept N, along the straight line of the logarithms).
A role with a multiplier above 1 falls behind the others in depth; to leave it at 1 is safe. It is the first step that
this holds for; training is another matter.

How much a role matters at all is in the rows "share": its part of the update beside that of all matrices, at
{ASKED[1]} layers and d = {MODEL:,}. Norms and biases are 1/d of the numbers above, so in a wide model their learning
rate hardly matters. Of other schemes, optimizers, depths and widths:
`depthlaw predict --attention --scheme NAME --optimizer NAME --layers 8,100 --width {MODEL} --roles`.

{tables}"""


def multiplier(found: Law, role: str, layers: int) -> float | None:
    """None where there is no such role, or where it does not move."""
    now = at(found, role, layers) if role in found.roles else 0.0
    return at(found, role, START) / now if now else None


def _to_turn_down(found: Law, optimizer: str) -> str:
    known = {
        role: x
        for role in SHOWN_ROLES
        if (x := multiplier(found, role, ASKED[1])) is not None
        and share(found, optimizer, role, MODEL, ASKED[1]) >= MATTERS
    }
    role = min(known, key=known.__getitem__)
    return f"{role} ({known[role]:.2g})"


def _multipliers(name: str, optimizer: str, laws_: Laws, roles: Sequence[str]) -> Iterator[list[str]]:
    found = laws_[name, optimizer]
    yield [name, "(N/N0)^", *(_power(found, role) for role in roles)]
    for layers in ASKED:
        numbers = [multiplier(found, role, layers) for role in roles]
        yield ["", f"{layers:,}", *("-" if x is None else f"{x:.2g}" for x in numbers)]
    parts = [share(found, optimizer, role, MODEL, ASKED[1]) if role in found.roles else None for role in roles]
    yield ["", "share", *("-" if x is None else f"{100 * x:.2g} %" for x in parts)]


def _power(found: Law, role: str) -> str:
    exponent = found.exponent(role, FIRST) if role in found.roles else None
    return "-" if exponent is None else _two(-exponent)


# ---------------------------------------------------------------- vectors against matrices


def overtaking(found: Laws) -> str:
    rows, first = [], []
    for name in SCHEMES:
        for optimizer in OPTIMIZERS:
            one = found[name, optimizer]
            depths = [overtakes(one, optimizer, role, d_model) for d_model in WIDTHS for role in VECTORS]
            if any(depths):
                together = [overtakes_together(one, optimizer, d_model) for d_model in WIDTHS]
                rows.append([name, optimizer, *map(_depth, [*depths, *together])])
                first.append(min(depth for depth in depths if depth is not None))
    heads = ["scheme", "optimizer", *(f"{role}, d = {d_model:,}" for d_model in WIDTHS for role in VECTORS)]
    heads += [f"together, d = {d_model:,}" for d_model in WIDTHS]
    return f"""## When norms and biases move the model more than its matrices

At width d the part of a norm's gain or bias, or of a linear bias, is 1/d of its number here (under lamb, where biases
at 0 do not move, a gain's is d^(-1/2) of it): little in a wide and shallow model. Where it grows faster than the
matrices' update, it is the larger of the two from some N on, which is in the table: within {LENGTHS[-1]:,} layers for
{sum(depth <= LENGTHS[-1] for depth in first)} of {len(found)} schemes and optimizers.
"together": all three; within {LENGTHS[-1]:,} layers.
~: beyond these, by the exponents from {LENGTHS[-2]} to {LENGTHS[-1]:,}.
-: not below {FARTHEST:,} layers, or there is no such role, or it does not move. Lines of these alone are left out.

{table(heads, rows)}"""


def _depth(depth: float | None) -> str:
    if depth is None:
        return "-"
    return f"{math.ceil(depth):,}" if depth <= LENGTHS[-1] else f"~ {float(f'{depth:.2g}'):,.0f}"


def overtakes(found: Law, optimizer: str, role: str, d_model: int) -> float | None:
    """The N from which the role's part is larger than that of the matrices; beyond what is kept, by the last exponents.

    None where it is not up to ``FARTHEST``, or where one of the two is 0.
    """
    deepest = LENGTHS[-1]
    if role not in found.roles or not found.updates[deepest] or not found.roles[role][deepest]:
        return None
    depth = crossing(lambda layers: share(found, optimizer, role, d_model, layers))
    if depth is not None:
        return depth
    ends = last_exponent(found, role), last_exponent(found)
    assert ends[0] is not None and ends[1] is not None
    farther = (FARTHEST / deepest) ** (ends[0] - ends[1])
    missing = 1 / share(found, optimizer, role, d_model, deepest)
    return deepest * missing ** (1 / (ends[0] - ends[1])) if missing <= farther else None


def overtakes_together(found: Law, optimizer: str, d_model: int) -> float | None:
    """The same of all vectors together; None beyond what is kept."""
    known = [role for role in VECTORS if role in found.roles]
    return crossing(lambda layers: sum(share(found, optimizer, role, d_model, layers) for role in known))


def share(found: Law, optimizer: str, role: str, d_model: int, layers: float) -> float:
    """The role's part over that of the matrices, at this width."""
    return at(found, role, layers) * d_model ** -unit_power(optimizer, role) / at(found, "update", layers)


def crossing(value: Callable[[float], float]) -> float | None:
    """The N at which a value that is a power between kept N first reaches 1; None where it does not."""
    if value(LENGTHS[0]) >= 1:
        return LENGTHS[0]
    for low, high in pairwise(LENGTHS):
        before, after = value(low), value(high)
        if before < 1 <= after:
            return low * (high / low) ** (math.log(1 / before) / math.log(after / before))
    return None

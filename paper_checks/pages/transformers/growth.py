"""TRANSFORMERS.md's second half: how each role's update grows with depth, and what a user should do about it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from paper_checks.experiments.kernel_laws import KEPT_SCHEMES, LENGTHS, Law, law
from paper_checks.experiments.sweeps import OPTIMIZERS
from paper_checks.pages.markdown import section
from paper_checks.pages.transformers.text import SHOWN_ROLES
from theory.kernel.predict import unit_power

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
    return {(name, optimizer): law(name, optimizer) for name in KEPT_SCHEMES for optimizer in OPTIMIZERS}


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
    errors = _end_errors(found)
    return section(
        "transformers",
        "growth",
        first=FIRST,
        before=LENGTHS[-2],
        last=LENGTHS[-1],
        flat=FLAT,
        small=SMALL,
        num_small=sum(error < SMALL for error in errors),
        errors=errors,
        promises=[_promises(found, optimizer) for optimizer in OPTIMIZERS],
        roles=list(SHOWN_ROLES),
        tables={
            optimizer: [_growth_row(name, found[name, optimizer]) for name in KEPT_SCHEMES] for optimizer in OPTIMIZERS
        },
    )


def _end_errors(found: Laws) -> list[float]:
    """Of the exponents at the end."""
    low, high = LENGTHS[-2:]
    errors = (
        math.hypot(one.errors[role][low], one.errors[role][high]) for one in found.values() for role in one.errors
    )
    return [error / math.log(high / low) for error in errors]


def _growth_row(name: str, found: Law) -> list[str]:
    end = last_exponent(found)
    still = ", ".join(growing(found)) or "none"
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


def _promises(found: Laws, optimizer: str) -> dict[str, Any]:
    """Which schemes keep the matrices' update flat, and what breaks the promise all the same."""
    ends = {name: last_exponent(found[name, optimizer]) for name in KEPT_SCHEMES}
    flat = {name: growing(found[name, optimizer]) for name, end in ends.items() if end is not None and abs(end) < FLAT}
    return {
        "optimizer": optimizer,
        "num": len(ends),
        "flat": flat,
        "whole": [name for name, roles in flat.items() if not roles],
        "broken": [f"{name} ({', '.join(roles)})" for name, roles in flat.items() if roles],
        "falls": [name for name, end in ends.items() if end is not None and end <= -FLAT],
        "still": [name for name, end in ends.items() if end is None],
    }


# ---------------------------------------------------------------- what to do about it


def advice(found: Laws) -> str:
    tables = []
    for optimizer in ("adam", "sgd"):
        roles = [role for role in SHOWN_ROLES if any(role in found[name, optimizer].roles for name in USED)]
        rows = [row for name in USED for row in _multipliers(name, optimizer, found, roles)]
        most = [f"{name} {_to_turn_down(found[name, optimizer], optimizer)}" for name in USED]
        tables.append({"optimizer": optimizer, "roles": roles, "rows": rows, "most": most})
    return section(
        "transformers",
        "advice",
        start=START,
        first=FIRST,
        last=LENGTHS[-1],
        asked=ASKED[1],
        model=MODEL,
        matters=100 * MATTERS,
        tables=tables,
    )


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
    for name in KEPT_SCHEMES:
        for optimizer in OPTIMIZERS:
            one = found[name, optimizer]
            depths = [overtakes(one, optimizer, role, d_model) for d_model in WIDTHS for role in VECTORS]
            if any(depths):
                together = [overtakes_together(one, optimizer, d_model) for d_model in WIDTHS]
                rows.append([name, optimizer, *map(_depth, [*depths, *together])])
                first.append(min(depth for depth in depths if depth is not None))
    heads = ["scheme", "optimizer", *(f"{role}, d = {d_model:,}" for d_model in WIDTHS for role in VECTORS)]
    heads += [f"together, d = {d_model:,}" for d_model in WIDTHS]
    return section(
        "transformers",
        "overtaking",
        before=LENGTHS[-2],
        last=LENGTHS[-1],
        farthest=FARTHEST,
        num=len(found),
        num_soon=sum(depth <= LENGTHS[-1] for depth in first),
        heads=heads,
        rows=rows,
    )


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

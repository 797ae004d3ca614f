"""Both ends of the stream and the biases: what a recipe says of the embedding and the head."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from depthlaw.auditing.faults import Amount, Fault, Faults, Remark, distinct
from depthlaw.auditing.fixes import NORMAL, Code, Edit
from depthlaw.auditing.laws import is_near, scatter
from depthlaw.auditing.models import Beside, Depth, Models
from depthlaw.sims.model import BRANCH_ROLES, ModelConfig

_START = 0.15
"""Relative: what a stream begins with is read from few tokens."""


def embeddings(beside: Beside) -> Faults:
    """The scale at which the stream begins, of a recipe and of a scheme that scales its embedding, where no norm behind
    the embedding is what changes it.
    """
    off = _start_off(beside)
    if off is None or _is_normed(*off):
        return
    depth, asked = off
    built = depth.built
    stds = beside.claimed.start_stds(asked, has_positions="positions" in built.others.values())
    lines = [
        NORMAL.format(f'"{name}"', "", f"{std:.4g}")
        for of, std in stds.items()
        for name in _tables(depth, of)
        if std and built.flow.parameters[name].ndim > 1
    ] or [f"# what the stream begins with, at a root mean square of {_asked_start(asked):.3g}"]
    yield _of_start(f"The stream begins at another scale than {beside.name}'s.", depth, asked, lines)


def norms_of_embeddings(beside: Beside) -> Faults:
    """A norm behind an embedding that is as it should be."""
    off = _start_off(beside)
    if off is not None and _is_normed(*off):
        says = f"A norm stands on the stream behind the embedding; {beside.name} has none there."
        yield _of_start(says, *off, ["# leave out: x = norm(x)  # behind the embedding"])


def _of_start(says: str, depth: Depth, asked: ModelConfig, lines: Sequence[str]) -> Fault:
    value, wanted = (f"root mean square {of:.3g}" for of in (_start(depth), _asked_start(asked)))
    return Fault(
        kind="embedding",
        says=says,
        where=distinct(_tables(depth)),
        amount=f"{value} where the stream begins",
        asked=wanted,
        program=(Edit("\n".join(lines)),),
        roles=("embedding",),
    )


def _start_off(beside: Beside) -> tuple[Depth, ModelConfig] | None:
    """The shallowest model whose stream begins at another scale, with what is asked of it."""
    if not beside.is_absolute and all(asked.embedding_std == 1 for asked in beside.asked):
        return None
    for depth, asked in zip(beside.depths, beside.asked, strict=True):
        start = depth.built.start_value
        share = max(_START, scatter(1 if start is None else start.numel()))
        if "token ids" in depth.built.inputs.kind and not is_near(_start(depth), _asked_start(asked), share):
            return depth, asked
    return None


def _start(depth: Depth) -> float:
    return math.sqrt(depth.built.sublayers[0].second_moment)


def _asked_start(asked: ModelConfig) -> float:
    return asked.embedding_std * asked.embedding_multiplier


def _tables(depth: Depth, *roles: str) -> list[str]:
    return [name for name, role in depth.built.others.items() if role in (roles or ("embedding", "positions"))]


def _is_normed(depth: Depth, asked: ModelConfig) -> bool:
    """Whether the embedding is as it should be, and the norm behind it is what changes the scale."""
    built = depth.built
    given = sum(built.flow.parameters[name].detach().double().square().mean().item() for name in _tables(depth))
    is_there = built.sublayers[0].side in built.starts_normed
    return is_there and is_near(math.sqrt(given), _asked_start(asked), _START)


def heads(beside: Beside) -> Faults:
    """The scale of a recipe's head."""
    if not beside.is_absolute:
        return
    for depth, asked in zip(beside.depths, beside.asked, strict=True):
        built = depth.built
        wanted = asked.head_gain / math.sqrt(asked.d_model)
        names = [name for name, role in built.others.items() if role == "head"]
        names_of_tables = [name for name in names if built.flow.parameters[name].ndim > 1]
        tables = [built.flow.parameters[name].detach().double() for name in names_of_tables]
        if not tables or tables[0].shape[-1] != asked.d_model:
            continue
        std = tables[0].std().item()
        if not std and beside.claimed.has_gates:
            continue  # of such recipes the head starts at 0 as published; what is predicted is of one that does not
        if not is_near(std, wanted, max(0.05, scatter(tables[0].numel()))):
            yield Fault(
                kind="head",
                says=f"The head starts at another scale than {beside.name}'s.",
                where=distinct(names),
                amount=f"std {std:.3g}",
                asked=f"std {wanted:.3g}",
                program=tuple(Code(NORMAL.format(f'"{name}"', "", f"{wanted:.4g}")) for name in names_of_tables),
                roles=("head",),
            )
            return


def biases(beside: Beside) -> Faults:
    """Biases of branches that do not start at 0, as a recipe's do; of an embedding or a head, recipes say nothing."""
    by_depth: dict[int, list[float]] = {}
    names: list[str] = []
    for depth in beside.depths:
        for name, roles in depth.built.biases.items():
            if set(roles) & set(BRANCH_ROLES):
                value = depth.built.flow.parameters[name].detach().double()
                size = value.square().mean().sqrt().item()
                by_depth.setdefault(depth.asked, []).append(size)
                names += [name] if size > 0 else []
    if not names:
        return
    sizes = {asked: fmean(values) for asked, values in by_depth.items()}
    first = next(iter(sizes.values()))
    is_one = all(is_near(size, first, 0.05) for size in sizes.values())
    text = f"{first:.2g}" if is_one else ", ".join(f"{size:.2g} at {asked} layers" for asked, size in sizes.items())
    if not beside.is_absolute:
        yield Remark(f"biases do not start at 0: their root mean square is {text}")
        return
    yield Fault(
        kind="bias",
        says="Biases do not start at 0.",
        where=distinct(names),
        amount=f"root mean square {text}",
        asked=Amount("root mean square", 0.0),
        program=(Edit("nn.init.zeros_(linear.bias)"),),
        roles=("bias",),
    )


def heads_at_zero(models: Models) -> Faults:
    """A head that starts at 0, as some do on purpose."""
    built = models.last.built
    heads = [name for name, role in built.others.items() if role == "head" and not built.flow.parameters[name].any()]
    if heads:
        yield Remark(
            f"the head ({', '.join(heads)}) starts at 0, so that a first step moves it alone; what is predicted is of "
            "a head that does not"
        )

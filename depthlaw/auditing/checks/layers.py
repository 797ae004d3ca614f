"""Layers: as many as were asked for, each run, with a way round, trained, and none a copy of another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import torch

from depthlaw.auditing.faults import Fault, Faults, Remark, distinct, few, listed
from depthlaw.auditing.fixes import Code, Edit
from depthlaw.auditing.models import Beside, Depth, Models, counted
from depthlaw.auditing.reading.look import Built, Weight, pattern_of
from depthlaw.auditing.reading.sublayer import block_of

_START = 8
"""Entries of a matrix by which its copies are looked for."""


def layers_not_run(models: Models) -> Faults:
    """Layers of which nothing that the module gives depends."""
    built = models.last.built
    skipped = _skipped(built)
    if skipped and (idle := built.unused_in_training(skipped)):
        numbers = dict.fromkeys("".join(block) for name in idle if (block := block_of(name)))
        yield Fault(
            kind="depth-ignored",
            says="The module has layers that it does not run.",
            where=tuple(idle),
            amount=f"parameters of which nothing that it gives depends, in {', '.join(numbers)}",
            asked="each layer in its place",
            program=(Edit("for layer in layers: x = layer(x)  # each of them"),),
        )
    elif skipped:
        yield Remark("layers that are left out of evaluation, and not of training, are not read")


def _skipped(built: Built) -> list[str]:
    """Parameters of the blocks of a stack of which the pass used none."""
    stacks = {block[0] for w in built.weights if (block := block_of(w.name))}
    run = {block_of(name) for name in built.flow.parameters}
    blocks = {name: block_of(name) for name in built.unused}
    return [name for name, block in blocks.items() if block and block[0] in stacks and block not in run]


def number_of_layers(models: Models) -> Faults:
    """Another number of layers than the builder was asked for, of those that are run."""
    depths = models.depths
    if _skipped(models.last.built):
        return
    wrong = [depth for depth in depths if any(count != depth.asked for count in depth.counts.values())]
    if not wrong or models.last.built.joined or all(_num_blocks(depth.built) == depth.asked for depth in depths):
        return  # of layers without attention there are as many as were asked for, by their names
    text = ", ".join(f"{depth.asked}: {'+'.join(map(str, depth.counts.values()))}" for depth in depths)
    if models.last.built.visits > 1 and counted(depths) is not None:
        return  # as ``visits`` says
    ratios = [[count / depth.asked for count in depth.counts.values()] for depth in depths]
    if 1.0 in ratios[0] and all(
        of_depth == ratios[0] for of_depth in ratios
    ):  # one side as deep, the other so many times
        yield Remark(f"sides are not of one depth: of the layers asked for the builder builds {text}")
        return
    halves, doubles = (all(ratio == by for of_depth in ratios for ratio in of_depth) for by in (0.5, 2.0))
    if halves or doubles:
        what = "sublayers" if halves else "pairs of blocks"
        yield Remark(f"the builder counts {what}: of the layers asked for it builds {text}")
        return
    if len(depths) > 2 and _are_several_each(depths):
        yield Remark(f"the builder counts what is several layers, such as rounds of a loop: it builds {text}")
        return
    yield Fault(
        kind="depth-ignored",
        says="The module has another number of layers than its builder was asked for.",
        amount=f"layers by the number asked for: {text}",
        asked="as many as are asked for",
        program=(Edit("for index in range(num_layers): layers.append(Block(...))"),),
    )


def _are_several_each(depths: Sequence[Depth]) -> bool:
    """Whether each of what the builder counts is one whole number of layers, more than one, beside others that all have
    in common."""
    steps = {
        (other.counts[side] - depth.counts[side]) / (other.asked - depth.asked)
        for depth, other in pairwise(depths)
        for side in depth.counts
    }
    return len(steps) == 1 and min(steps) >= 2 and min(steps).is_integer()


def unread(models: Models) -> Faults:
    """What could not be read."""
    lines = (line for depth in models.depths for line in depth.built.unread if "no residual connection" not in line)
    yield from map(Remark, distinct(lines))


def no_residual(models: Models) -> Faults:
    """Matrices on the stream itself, with no way round."""
    for side, names in models.serial.items():
        patterns: dict[str, list[str]] = {}
        for name in names:
            patterns.setdefault(pattern_of(name), []).append(name)
        texts = [alike[0] if len(alike) == 1 else f"{pattern} ({len(alike)})" for pattern, alike in patterns.items()]
        yield Fault(
            kind="no-residual",
            says="There is no residual connection round {which} (or there are several streams side by side).",
            terms={"which": few(texts)},
            where=distinct(names),
            amount="x' = F(x)",
            asked="x' = x + F(x)",
            program=(Edit("x = x + branch(x)"),),
            side=side,
        )


def skips(models: Models) -> Faults:
    """Ways round several sublayers, and what is put beside the stream."""
    yield from map(Remark, (*models.last.built.long_skips, *models.last.built.joined))


def conditions(models: Models) -> Faults:
    """What is scaled, shifted or gated by something else than the stream."""
    built = models.last.built
    does = {
        "scaled": sum("scale" in sub.modulated for sub in built.sublayers),
        "shifted": sum("shift" in sub.modulated for sub in built.sublayers),
        "gated": sum(sub.trained == "gate" for sub in built.sublayers),
    }
    if not built.conditions or not any(does.values()):
        return
    words = listed([word for word, number in does.items() if number])
    gates = [sub.branch_weight for sub in built.sublayers if sub.trained == "gate"]
    size = f"; the gates' root mean square is {_between(min(gates), max(gates))} at the start" if gates else ""
    says = f", of which {models.claimed.name} says nothing" if models.claimed and not models.claimed.has_gates else ""
    yield Remark(f"branches are {words} by {listed(built.conditions)}{says}{size}")


def mixtures(models: Models) -> Faults:
    """FFNs of experts, of which predictions know one."""
    built = models.last.built
    if built.has_experts:
        routers = few(distinct(pattern_of(name) for name, role in built.others.items() if role == "router"))
        by = f", by a router ({routers})" if routers else ""
        yield Remark(f"FFNs are mixtures of experts{by}: predictions are of one FFN that has their scale")


def _between(least: float, most: float) -> str:
    return f"{least:.3g}" if most - least < 0.01 * most or not most else f"{least:.3g} to {most:.3g}"


def not_trained(models: Models) -> Faults:
    """Matrices that are frozen."""
    weights = models.last.built.weights
    names, frozen = (distinct(w.name for w in group) for group in (weights, [w for w in weights if _is_frozen(w)]))
    if len(frozen) == len(names):
        yield Remark("the matrices of branches are not trained (requires_grad is False): they have no update")
    elif frozen:
        patterns = few(distinct(map(pattern_of, frozen)))
        yield Remark(f"{len(frozen)} of {len(names)} matrices of branches are not trained: {patterns}")


def _is_frozen(weight: Weight) -> bool:
    return not weight.parameter.requires_grad


def visits(models: Models) -> Faults:
    """Layers that are said to be gone through several times, and are not; and what the builder of a loop counts."""
    looped = [depth for depth in models.depths if depth.built.visits > 1]
    if looped:
        text = ", ".join(
            f"{depth.asked}: {'+'.join(map(str, depth.own_counts.values()))} x {depth.built.visits}" for depth in looped
        )
        count = counted(models.depths)
        of = "its number is neither that of layers nor of visits" if count is None else f"its number is that of {count}"
        yield Remark(
            f"layers are gone through several times, as visits say; layers x visits by the builder's number are "
            f"{text}: {of}. Laws of depth, and num_layers in a fix, count a layer at each visit"
        )
    for depth in [depth for depth in models.depths if depth.visits != depth.built.visits][:1]:
        yield Fault(
            kind="visits",
            says="The layers are not gone through as often as it was said, with the same weights.",
            where=distinct(weight.name for weight in depth.built.weights),
            amount=f"at {depth.asked} layers {_runs(depth.built)}",
            asked=f"each sublayer is run {depth.visits} times, in turn",
            program=(Edit(f"for _ in range({depth.visits}):\n    for layer in layers: x = layer(x)"),),
        )


def _runs(built: Built) -> str:
    """How often each sublayer is run in one pass."""
    if built.seen_visits > 1:
        return f"each sublayer is run {built.seen_visits} times, in turn"
    runs = Counter((sub.side, frozenset(weight.entries for weight in sub.weights)) for sub in built.sublayers)
    numbers = sorted(Counter(runs.values()).items())
    return " and ".join(
        f"{number} sublayer{' is' if number == 1 else 's are'} run {'once' if often == 1 else f'{often} times'}"
        for often, number in numbers
    )


def copies(models: Models) -> Faults:
    """Layers that share their matrices, or start as copies of one another."""
    built = models.last.built
    seen = [depth.built.seen_visits for depth in models.depths]
    is_told = any(depth.visits > 1 for depth in models.depths)
    option = ",".join(map(str, seen if len(set(seen)) > 1 else seen[:1]))
    meant = f"say --visits {option} (in Python visits={option if len(set(seen)) == 1 else f'({option})'})"
    for side in built.sides:
        shared, copied = _shared_and_copied(built, side)
        shared = [] if is_told else shared  # ``visits`` tells of them
        is_loop = min(seen) > 1
        apart = "nn.ModuleList(Block() for _ in range(num_layers))"
        if shared and models.claimed is None:
            of = f" of the {side}" if len(built.sides) > 1 else ""
            yield Remark(
                f"layers{of} share their matrices; where that is not meant, build a block for each, {apart}, and not "
                f"[block] * num_layers{f'; where it is, {meant}' * is_loop}"
            )
        elif shared:
            yield Fault(
                kind="shared-layers",
                says="Layers share their matrices: they are one and the same parameter."
                + f" Where a loop over the same layers is meant, {meant}." * is_loop,
                where=distinct(shared),
                amount="one matrix in several layers",
                asked="a matrix of its own in each layer",
                program=(Edit(f"layers = {apart}  # not [block] * num_layers"),),
                side=side,
            )
        if copied:
            yield Fault(
                kind="identical-layers",
                says="Layers start as copies of one another.",
                where=distinct(copied),
                amount="equal entries in different layers",
                asked="independent draws",
                program=(
                    models.initialise("draws each layer's matrices by themselves")
                    if isinstance(models, Beside) and models.is_absolute
                    else _drawn_anew(copied[0]),
                ),
                side=side,
            )


def _shared_and_copied(built: Built, side: str) -> tuple[list[str], list[str]]:
    groups: dict[str, list[tuple[int, Weight]]] = {}
    for sublayer in built.sides[side]:
        for weight in sublayer.weights:
            groups.setdefault(weight.role, []).append((sublayer.index, weight))
    shared, copied = [], []
    for weights in groups.values():
        seen: dict[tuple, tuple[int, Weight]] = {}
        for place, weight in weights:
            start = weight.of(weight.parameter).flatten()[:_START].tolist()
            before, first = seen.setdefault((tuple(weight.shape), *start), (place, weight))
            if first is weight or (before == place and first.name == weight.name):
                continue
            if first.entries == weight.entries:
                shared.append(weight.name)
            elif first.std > 0 and torch.equal(first.of(first.parameter), weight.of(weight.parameter)):
                copied.append(weight.name)
    return shared, copied


def _drawn_anew(name: str) -> Code:
    """Python that draws the matrices of all layers again, of which this is one, at the scale that they have."""
    start = pattern_of(name).partition("*")[0]
    return Code(
        "for name, parameter in model.named_parameters():",
        (
            f'if name.startswith("{start}") and parameter.ndim > 1:',
            "    torch.nn.init.normal_(parameter, parameter.mean().item(), parameter.std().item())",
        ),
    )


def _num_blocks(built: Built) -> int:
    """Of the stack that has most, by the names of what it runs."""
    stacks = {block[0] for weight in built.weights if (block := block_of(weight.name))}
    blocks = {block for name in built.flow.parameters if (block := block_of(name)) and block[0] in stacks}
    return max(Counter(stack for stack, _ in blocks).values(), default=0)

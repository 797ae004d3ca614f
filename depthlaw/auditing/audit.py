"""The audit: a builder of modules at several depths, what it builds, how it moves, and what is wrong with it.

    import depthlaw
    audit = depthlaw.audit(build, layers=(4, 8, 16), recipe="gpt2", optimizer="adamw")

Modules are built and run, which is code of whoever wrote them; nothing else of theirs is executed.
"""

from __future__ import annotations

import io
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import torch
from rich.console import Console
from torch import nn

from depthlaw.auditing.answer import Answer, Nearest
from depthlaw.auditing.beyond import (
    FAR,
    NO_LAW,
    Growth,
    explodes,
    exponential,
    extrapolated,
    far_off,
    in_words,
    is_useless,
    learning_rates,
    left_out,
    lost_gradients,
    missed_by,
    outside,
    with_effect,
    worse,
)
from depthlaw.auditing.builders import hugging_face
from depthlaw.auditing.building import (
    Build,
    build_at,
    called_with,
    check_builder,
    lost_on_meta,
    prepare,
    visits_by_number,
)
from depthlaw.auditing.by_layer import measured as measured_by_layer
from depthlaw.auditing.by_layer import rows_of
from depthlaw.auditing.checks.norms import no_norm_anywhere
from depthlaw.auditing.compare import NOT_INDEPENDENT, compare, compare_groups
from depthlaw.auditing.expected import Claimed
from depthlaw.auditing.faults import Fault, together
from depthlaw.auditing.fixes import Code
from depthlaw.auditing.groups import Given, Groups
from depthlaw.auditing.groups import read as read_groups
from depthlaw.auditing.inputs import Inputs, guess
from depthlaw.auditing.models import Depth
from depthlaw.auditing.reading.look import Built, look
from depthlaw.auditing.text import show, title
from depthlaw.auditing.updates import answered, as_config, by_role, measured, task_of
from depthlaw.recipes.catalogue import RECIPES
from depthlaw.sims.cluster import as_they_end
from depthlaw.system.page import Page
from depthlaw.theory.kernel.predict import KernelUpdate
from depthlaw.theory.optimizers import optimizer as optimizer_named
from depthlaw.theory.schemes import SCHEMES

_WEIGHTS = {"structure": 6.0, "norms": 3.0, "residual-weight": 2.0, "branch-weight": 2.0, "init-law": 1.0}
"""Of a kind of fault, where the nearest scheme is looked for; others: 0.5."""

LAYERS = (2, 4, 8, 16)
"""That are built where nothing is said, as on the command line."""
_OF_DEPTH = ("residual-weight", "branch-weight", "init-law", "init-constant")
"""Kinds of faults that a claim's learning rates go with."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Audit(Answer):
    """What an audit tells. ``print`` of it prints what the command prints."""

    def __repr__(self) -> str:
        return f"<Audit: {title(self)}>"

    def __str__(self) -> str:
        """The page that the command prints."""
        with (page := Page(Console(file=io.StringIO()))).console.capture() as printed:
            show(page, self)
        return printed.get()


@contextmanager
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


@_threads_as_before()
def audit(
    build: Build | None = None,
    layers: Sequence[int] | int = LAYERS,
    *,
    scheme: str | None = None,
    recipe: str | None = None,
    hf: str | None = None,
    width: int | None = None,
    optimizer: str = "adamw",
    inputs: Callable[[nn.Module], Any] | None = None,
    groups: Given | None = None,
    visits: Sequence[int] | int = 1,
    seeds: int = 4,
    seed: int = 0,
    measures: bool = True,
    by_layer: bool = False,
    far: Sequence[int] | None = None,
    has_nearest: bool = True,
    elsewhere: Elsewhere | None = None,
    advance: Callable[[str, float, float | None], None] = lambda *_: None,
    **unknown: Any,
) -> Audit:
    """Build a module at each number of layers, and say what it is, how it moves and what is wrong with it.

    Print the answer to read it as ``depthlaw audit`` prints it; its ``faults`` and ``document()`` are for programs.

    build: a function that is called with a number of layers, or with two (encoder and decoder layers) where it takes
    two, and returns a module. hf: in its place a model type of Hugging Face's transformers or a config.json, built with
    random weights at a width, 256 or less if left out, and compared with its own recipe where no name is given. layers:
    the number of layers to build, or several. scheme, recipe: what the module claims to be; where both are left out,
    the audit names the nearest, and looks only for faults that need no claim. inputs: a function that is called with
    the module and returns what the module is called with; guessed if left out. groups: a function that is called with
    the module and returns its torch optimizer, several of them, or parameter groups, which are compared with the
    scheme's. visits: how often the model's layers are gone through with the same weights: one number, or one for each
    of layers, as of a builder that is called with the number of visits. seeds: how many models of each depth are
    measured. measures: whether the update is measured and predicted at all. by_layer: whether each sublayer of the
    deepest model is, too, as the stream and the gradient show what it does. far: the numbers of layers at which the
    effect of faults is predicted, ``FAR`` if left out. has_nearest: whether the nearest scheme or recipe is looked for,
    where none is named. elsewhere: workers that measure depths and seeds side by side; this process then builds one
    model of each depth, to read it. advance: a function that is called with what is being done, how much of it is done,
    and how much there is. ValueError, in one line, for what cannot be audited.

    >>> from torch import nn
    >>> from depthlaw import audit
    >>> def build(num_layers):
    ...     layer = nn.TransformerEncoderLayer(64, 4, 256, norm_first=True, batch_first=True)
    ...     return nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
    >>> answer = audit(build, layers=(2, 4), scheme="pre-ln", measures=False)
    >>> [fault.kind for fault in answer.faults]
    ['identical-layers', 'norms']
    """
    for name in unknown:
        hint = ": as on the command line, it is seeds here" if name == "num_seeds" else ""
        raise TypeError(f"audit takes no {name}{hint}")
    if scheme is not None and recipe is not None:
        raise ValueError("a scheme or a recipe, not both")
    if (build is None) == (hf is None):
        raise ValueError("give one of build, a function that makes the model, and hf, a type of transformers")
    if build is None:
        build, recipe_of_type = hugging_face(str(hf), width)
        recipe = recipe_of_type if scheme is None and recipe is None else recipe
    elif width is not None:
        raise ValueError("width is of hf: a function of your own says how wide it builds")
    if by_layer and not measures:
        raise ValueError("by_layer is measured: leave measures as it is")
    optimizer_named(optimizer)
    of_layers = visits_by_number(layers, visits)
    layers, far = [*of_layers], FAR if far is None else far
    check_builder(build)
    name = scheme or recipe
    claimed = None if name is None else Claimed.named(name, optimizer, is_recipe=recipe is not None)
    prepare(build, layers[-1], len(layers))
    drawn = range(seed, seed + (seeds if measures else 1))
    profiled = layers[-1] if by_layer else None
    jobs = deque(product(layers, drawn) if measures and elsewhere is not None else ())
    num_jobs = len(jobs)
    there = (
        iter(()) if elsewhere is None else as_they_end(elsewhere.executor, elsewhere.task(optimizer, profiled), jobs)
    )
    here = (drawn[:1], False) if num_jobs else (drawn, measures)
    depths = list(_depths(build, of_layers, optimizer, inputs, groups, *here, profiled, advance))
    if num_jobs:
        results: dict[tuple[int, int], Measured] = {}
        for job, result in there:
            results[job] = result
            advance("measuring", len(results), num_jobs)
        depths = [
            replace(
                depth,
                updates=[results[depth.asked, seed].update for seed in drawn if results[depth.asked, seed].update],
                layers=[results[depth.asked, seed].layers for seed in drawn if results[depth.asked, seed].layers],
            )
            for depth in depths
        ]
    findings = compare(depths, claimed, cache(partial(_of_depth, build, inputs, seed)))
    if any(depth.built.not_finite for depth in depths):
        depths = [replace(depth, updates=()) for depth in depths]
        return Audit(optimizer=optimizer, depths=depths, findings=findings, claimed=claimed)
    of_groups, of_decay = compare_groups(depths, claimed)
    lost = list(lost_on_meta(build, layers[0], depths[0], seed))
    findings = replace(findings, faults=(*findings.faults, *lost))
    overflows = list(explodes(depths, far)) if not any(f.kind in NO_LAW for f in findings.faults) else []
    remarks = list(overflows)
    remarks += lost_gradients(depths, len(drawn)) if measures else []
    has_law = not any(fault.kind in (*NO_LAW, *NOT_INDEPENDENT) for fault in findings.faults)
    rows: list[Mapping[str, float]] = []
    missed: Mapping[str, tuple[float, float]] = {}
    beyond: dict[int, dict[str, Mapping[str, float]]] = {}
    answer: KernelUpdate | None = None
    growth: Growth | None = None
    is_whole = not depths[-1].built.joined  # else how many layers a deeper model has is not known
    if measures and is_whole:
        try:
            for depth in depths:
                config = as_config(depth.built)
                answer = answered(config, task_of(depth.built), optimizer)
                row = by_role(config, answer)
                rows.append({role: value for role, value in row.items() if role not in left_out(depth.built)})
                advance("predicting", len(rows), len(depths) + 2 * len(far) * bool(findings.faults))
            if not any(fault.kind == "identical-layers" for fault in findings.faults):  # which says so itself
                missed = missed_by(depths, rows)
                grown = rows[-1]["update"] / rows[0]["update"] if rows[0]["update"] else math.inf
                growth = Growth.of(depths[0], depths[-1], grown)
                remarks += outside(depths[-1], missed, growth)
        except (ValueError, ArithmeticError) as error:
            rows, answer = [], None
            remarks.append(f"there is no prediction of this block: {in_words(error)}")
    has_asked = findings.faults and claimed is not None and not any(f.kind in NO_LAW for f in findings.faults)
    if rows and has_asked and claimed is not None:
        beyond, missing = far_off(depths, findings, claimed, optimizer, rows, far, advance)
        remarks += missing
    if beyond and claimed is not None:
        remarks += worse(claimed.name, optimizer, beyond)
    rates = learning_rates(claimed, depths) if findings.faults else ()
    faults = [with_effect(fault, depths, rows, beyond, missed, name, bool(rates)) for fault in findings.faults]
    of_law = next((fault for fault in faults if fault.kind in _OF_DEPTH), None)
    if rates and of_law is not None:  # what is promised of all faults together is said once
        also = tuple(Code(line) for line in rates)
        faults[faults.index(of_law)] = replace(of_law, program=(*of_law.program, *also))
    has_law = has_law and not is_useless(missed, growth)
    grows = exponential(depths, findings, optimizer) if has_law and rows else None
    if not faults and (grows is not None or overflows):
        faults = [*no_norm_anywhere(depths[-1].built)]
    findings = replace(findings, faults=(*faults, *of_groups))
    return Audit(
        optimizer=optimizer,
        depths=depths,
        findings=findings,
        claimed=claimed,
        nearest=None if claimed is not None or not has_nearest else _nearest(depths, optimizer),
        predicted=rows,
        far=beyond,
        remarks=[*remarks, *of_decay],
        exponential=grows,
        explodes=bool(overflows),
        by_layer=rows_of(depths[-1].built, depths[-1].layers, answer) if by_layer else None,
    )


class Measured(NamedTuple):
    """Of one model: the update by role, and where it is asked what each sublayer does."""

    update: Mapping[str, float]
    layers: Sequence[Mapping[str, float]] = ()


class Elsewhere(NamedTuple):
    """Workers that measure. load: gives, in a worker, ``build`` and ``inputs``."""

    executor: Executor
    load: Callable[[], tuple[Build, Callable[[nn.Module], Any] | None]]

    def task(self, optimizer: str, profiled: int | None) -> Callable[[tuple[int, int]], Measured]:
        return partial(_measured_there, self.load, optimizer, profiled)


def _measured_there(
    load: Callable[[], tuple[Build, Callable[[nn.Module], Any] | None]],
    optimizer: str,
    profiled: int | None,
    job: tuple[int, int],
) -> Measured:
    """In a worker, of the model of a number of layers and a seed. profiled: of how many layers by layer, too."""
    build, inputs = load()
    module = build_at(build, *job)
    called = guess(module, job[1]) if inputs is None else called_with(inputs, module)
    built = look(module, called)
    layers = measured_by_layer(built) if job[0] == profiled else ()
    return Measured(measured(built, optimizer), layers)


def _depths(
    build: Build,
    layers: Mapping[int, int],
    optimizer: str,
    inputs: Callable[[nn.Module], Any] | None,
    groups: Given | None,
    seeds: Sequence[int],
    measures: bool,
    profiled: int | None,
    advance: Callable[[str, float, float | None], None],
) -> Iterator[Depth]:
    done, total = 0, len(layers) * len(seeds)
    """layers: how often they are said to be visited, by the number that is built."""
    for number, visits in layers.items():
        first: Built | None = None
        own_groups: Groups | None = None
        updates: list[Mapping[str, float]] = []
        by_layer: list[Sequence[Mapping[str, float]]] = []
        for seed in seeds:
            module = build_at(build, number, seed)
            called = guess(module, seed) if inputs is None else called_with(inputs, module)
            built = _look(module, called, visits) if first is None else first.of_other_draws(module, called)
            first = first or built
            if measures and number == profiled:
                by_layer.append(measured_by_layer(built, is_of_others=built is not first))
            if measures and (update := measured(built, optimizer)):
                updates.append(update)
            if built is first and groups is not None:  # last of all, as it may wrap the module or change it
                own_groups = read_groups(groups, module)
            done += 1
            advance("building and measuring", done, total)
        assert first is not None
        counts = {side: first.num_layers(side) for side in first.sides}
        yield Depth(number, first, counts, updates, own_groups, by_layer, visits)


def _look(module: nn.Module, called: Inputs, visits: int) -> Built:
    """visits: that are said, and told of the module where they are seen."""
    built = look(module, called)
    return replace(built, visits=visits) if built.seen_visits == visits else built


def _of_depth(build: Build, inputs: Callable[[nn.Module], Any] | None, seed: int, num_layers: int) -> Built | None:
    """The model of a depth that was not asked for, read; None where it cannot be."""
    try:
        prepare(build, num_layers, 1)
        module = build_at(build, num_layers, seed)
        return look(module, guess(module, seed) if inputs is None else called_with(inputs, module))
    except ValueError:
        return None


# ---------------------------------------------------------------- the nearest


def _nearest(depths: Sequence[Depth], optimizer: str) -> Nearest | None:
    """The scheme or recipe that the module differs least from; of equals a recipe, which says more."""
    best: Nearest | None = None
    if depths[-1].built.joined or any(sub.is_unknown for sub in depths[-1].built.sublayers):
        return None  # of which too little is known to tell by
    names = [*((name, "recipe") for name in RECIPES), *((name, "scheme") for name in SCHEMES)]
    for name, kind in names:
        try:
            claimed = Claimed.named(name, optimizer, is_recipe=kind == "recipe")
            if claimed.is_absolute and not claimed.is_of_as_many_sums(depths[-1].built):
                continue
            faults = compare(depths, claimed).faults
        except (ValueError, ArithmeticError):
            continue
        differences = [fault for fault in faults if fault.role or fault.kind in _WEIGHTS]
        distance = sum(_WEIGHTS.get(fault.kind, 0.5) for fault in differences)
        if best is None or distance < best.distance:
            best = Nearest(name, together(differences), kind, distance)
    return best


__all__ = ["Audit", "Fault", "Inputs", "audit", "extrapolated"]

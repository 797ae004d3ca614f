"""The audit: a builder of modules at several depths, what it builds, how it moves, and what is wrong with it.

    import depthlaw
    audit = depthlaw.audit(build, layers=(4, 8, 16), recipe="gpt2", optimizer="adamw")

Modules are built and run, which is code of whoever wrote them; nothing else of theirs is executed.
"""

from __future__ import annotations

import inspect
import io
import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from scipy.stats import t as student_t
from torch import nn

from depthlaw.auditing.compare import NOT_INDEPENDENT, Findings, compare
from depthlaw.auditing.expected import Claimed
from depthlaw.auditing.faults import Effect, Fault, times, together
from depthlaw.auditing.fixes import Edit
from depthlaw.auditing.inputs import Inputs, given, guess, line_of
from depthlaw.auditing.laws import shape_of_draws
from depthlaw.auditing.look import Built, Sublayer, look
from depthlaw.auditing.models import Depth
from depthlaw.auditing.text import show, title
from depthlaw.auditing.updates import as_config, measured, of_few_tokens, predicted, task_of
from depthlaw.recipes.catalogue import RECIPES
from depthlaw.sims.cluster import as_they_end
from depthlaw.sims.ensemble import available_bytes
from depthlaw.sims.model import BRANCH_ROLES, ModelConfig, SublayerConfig
from depthlaw.sims.stats import ExponentFit, estimate, fit_exponent
from depthlaw.system.page import Page
from depthlaw.theory.schemes import SCHEMES

Build = Callable[..., nn.Module]
_MOST_DRAWS = 50_000
"""Entries of a role whose distribution is looked at."""
_LARGE = 2**22
"""Entries of a matrix from which on its products gain by threads."""
FAR = (100, 1000)
"""Layers at which a prediction says what a fault comes to."""
_INITS = ("init_weights", "reset_parameters", "initialize_weights")
_WEIGHTS = {"structure": 6.0, "norms": 3.0, "residual-weight": 2.0, "branch-weight": 2.0, "init-law": 1.0}
"""Of a kind of fault, where the nearest scheme is looked for; others: 0.5."""


class Nearest(NamedTuple):
    """The scheme or recipe that a module is nearest to. kind: scheme or recipe."""

    name: str
    differences: Sequence[Fault]
    kind: str


@dataclass(frozen=True, kw_only=True, repr=False)
class Audit:
    """What an audit tells. ``print`` of it prints what the command prints.

    depths: the module at each number of layers. findings: what was found, with the faults of each role by themselves.
    claimed: the scheme or recipe that it was compared with; nearest: the one that it is nearest to, where none was
    named, and how it differs. predicted: the update by role at each depth, as
    the kernel rung predicts it of the block as it is; far: the same beyond, as it is and as it should be, relative to
    the shallowest depth, and the ratio of what it is to what it should be.
    """

    optimizer: str
    depths: Sequence[Depth]
    findings: Findings
    claimed: Claimed | None = None
    nearest: Nearest | None = None
    predicted: Sequence[Mapping[str, float]] = ()
    far: Mapping[int, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    remarks: Sequence[str] = ()

    def __repr__(self) -> str:
        return f"<Audit: {title(self)}>"

    def __str__(self) -> str:
        """The page that the command prints."""
        with (page := Page(Console(file=io.StringIO()))).console.capture() as printed:
            show(page, self)
        return printed.get()

    @cached_property
    def faults(self) -> list[Fault]:
        """As they are numbered for people: one that is of several roles is one fault."""
        return together(self.findings.faults)

    @property
    def layers(self) -> list[int]:
        return [depth.asked for depth in self.depths]

    @cached_property
    def roles(self) -> list[str]:
        """Of branch matrices by the order of the block, then the others."""
        there = {role for depth in self.depths for update in depth.updates for role in update}
        sides = [f"{side}/{role}" for side in ("encoder", "decoder") for role in ("update", *BRANCH_ROLES)]
        order = ["update", *sides, *BRANCH_ROLES]
        return [role for role in order if role in there] + sorted(there - set(order))

    def exponent(self, role: str) -> ExponentFit | None:
        """Of the measured update in the number of layers, beside that of the predicted one."""
        samples = [[update.get(role) for update in depth.updates] for depth in self.depths]
        values = [row.get(role, math.nan) for row in self.predicted]
        known = values if len(values) == len(samples) and all(v > 0 for v in values) else None
        if len(self.depths) < 2 or not all(samples):
            return None
        try:
            return fit_exponent(self.layers, samples, known)
        except (ValueError, ArithmeticError):
            return None

    def draws(self, role: str, side: str = "") -> str | None:
        """The distribution that the entries of a role's matrices look drawn from, at the greatest depth."""
        weights = [w for w in self.depths[-1].built.weights if w.role == role and side in ("", w.side) and w.std > 0]
        if not weights:
            return None
        each = max(1, _MOST_DRAWS // len(weights))
        parts = [w.of(w.parameter).flatten()[:each].double() / w.std for w in weights]
        return shape_of_draws(torch.cat(parts).numpy())

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The update at each depth, as ``depthlaw measure`` has its rows: what a plot is drawn from."""
        rows = []
        for place, depth in enumerate(self.depths):
            predicted = self.predicted[place] if self.predicted else {}
            by_role = {}
            for role in self.roles:
                values = [update[role] for update in depth.updates if role in update]
                if values:
                    mean = estimate(values)
                    by_role[role] = {"measured": mean.mean, "low": mean.low, "high": mean.high}
            rows.append(
                {"num_sublayers": 2 * depth.asked, "update": predicted.get("update"), **by_role.get("update", {})}
                | {"roles": {role: predicted.get(role) for role in by_role}, "by_role": by_role}
            )
        return rows

    def document(self) -> dict[str, Any]:
        """As JSON has it: what is not finite is null."""
        last = self.depths[-1]
        answer = {
            "module": type(last.built.module).__name__,
            "input": last.built.inputs.kind,
            "optimizer": self.optimizer,
            "scheme": None if self.claimed is None or self.claimed.is_absolute else self.claimed.name,
            "recipe": None if self.claimed is None or not self.claimed.is_absolute else self.claimed.name,
            "nearest": None
            if self.nearest is None
            else {
                "name": self.nearest.name,
                "kind": self.nearest.kind,
                "differs": [fault.what for fault in self.nearest.differences],
            },
            "layers": self.layers,
            "built_layers": [dict(depth.counts) for depth in self.depths],
            "d_model": last.built.d_model,
            "sublayers": [_sublayer_row(sub) for sub in last.built.sublayers],
            "final_norm": dict(last.built.final),
            "roles": [self.role_row(role) for role in self.roles],
            "faults": [fault.document() for fault in self.faults],
            "remarks": [*self.findings.remarks, *self.remarks],
        }
        return _finite(answer)

    def role_row(self, role: str) -> dict[str, Any]:
        side, _, name = role.rpartition("/")
        keys = [key for key in self.findings.laws if key[1] == name and side in ("", key[0])]
        fitted = self.exponent(role)
        slope = None if fitted is None else fitted.measured
        means = [[update[role] for update in depth.updates if role in update] for depth in self.depths]
        own = [sub for sub in self.depths[-1].built.sublayers if name in sub.roles and side in ("", sub.side)]
        asked = [pair.asked for pair in self.findings.pairs if pair.built in own]
        return {
            "role": name,
            "side": side or None,
            "draws": self.draws(name, side),
            "residual_weight": own[0].residual_weight if own else None,
            "expected_residual_weight": asked[0].residual_weight if asked else None,
            "norms": sorted(own[0].norms) if own else None,
            "init_std": {key[0]: self.findings.laws[key].text for key in keys},
            "expected_init": {
                key[0]: self.findings.asked_laws[key].text for key in keys if key in self.findings.asked_laws
            },
            "update": [
                {"num_layers": layers, "measured": estimate(values).mean if values else None}
                | {"standard_error": estimate(values).standard_error if values else None}
                | {"predicted": row.get(role) if row else None}
                for layers, values, row in zip(
                    self.layers, means, self.predicted or [{}] * len(self.depths), strict=True
                )
            ],
            "exponent": None if slope is None else slope.mean,
            "exponent_low": None if slope is None else slope.low,
            "exponent_high": None if slope is None else slope.high,
            "predicted_exponent": None if fitted is None else fitted.predicted,
            "far": {
                str(layers): {which: values[role] for which, values in both.items() if role in values}
                for layers, both in self.far.items()
            },
            "faults": [
                fault.document()
                for fault in self.findings.faults
                if fault.role == name and side in ("", fault.side or "")
            ],
        }


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _sublayer_row(sub: Any) -> dict[str, Any]:
    return {
        "side": sub.side,
        "index": sub.index,
        "kind": sub.kind,
        "residual_weight": sub.residual_weight,
        "branch_weight": sub.branch_weight,
        "trained_branch_weight": sub.trained,
        "norms": sorted(sub.norms),
        "second_moment": sub.second_moment,
        "input_rms": sub.input_rms,
        "weights": [
            {"role": w.role, "name": w.name, "std": w.std, "is_part": w.features is not None} for w in sub.weights
        ],
    }


@contextmanager
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


@_threads_as_before()
def audit(
    build: Build,
    layers: Sequence[int] | int,
    *,
    scheme: str | None = None,
    recipe: str | None = None,
    optimizer: str = "adamw",
    inputs: Callable[[nn.Module], Any] | None = None,
    num_seeds: int = 4,
    seed: int = 0,
    measures: bool = True,
    far: Sequence[int] | None = None,
    has_nearest: bool = True,
    elsewhere: Elsewhere | None = None,
    advance: Callable[[str, float, float | None], None] = lambda *_: None,
) -> Audit:
    """Build a module at each number of layers, and say what it is, how it moves and what is wrong with it.

    Print the answer to read it as ``depthlaw audit`` prints it; its ``faults`` and ``document()`` are for programs.

    build: called with a number of layers, or with two (encoder and decoder layers) where it wants two; returns a
    module. layers: the numbers of layers to build, or a single one. scheme or recipe: what it claims to be; left out,
    the nearest is named and only faults that need no claim are told. inputs: a function of the module that returns what
    it is called with; left out, they are guessed. num_seeds: models of each depth. measures: whether the update is
    measured and predicted, too. far: numbers of layers at which the effect of faults is predicted, ``FAR`` if left
    out. has_nearest: whether the nearest scheme or recipe is looked for, where none is named. elsewhere: the workers
    that measure depths and seeds side by side; here one model of each depth is built, to be read. advance: told what is
    being done, how much of it, and of how much. ValueError, in one line, for what cannot be
    audited.

    >>> from torch import nn
    >>> from depthlaw import audit
    >>> def build(num_layers):
    ...     layer = nn.TransformerEncoderLayer(64, 4, 256, norm_first=True, batch_first=True)
    ...     return nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
    >>> answer = audit(build, layers=(2, 4), scheme="pre-ln", measures=False)
    >>> [fault.kind for fault in answer.faults]
    ['identical-layers', 'norms']
    """
    if scheme is not None and recipe is not None:
        raise ValueError("a scheme or a recipe, not both")
    layers, far = _numbers(layers), FAR if far is None else far
    _check_builder(build)
    name = scheme or recipe
    claimed = None if name is None else Claimed.named(name, optimizer, is_recipe=recipe is not None)
    _prepare(build, layers[-1], len(layers))
    seeds = range(seed, seed + (num_seeds if measures else 1))
    jobs = deque(product(layers, seeds) if measures and elsewhere is not None else ())
    num_jobs = len(jobs)
    there = iter(()) if elsewhere is None else as_they_end(elsewhere.executor, elsewhere.task(optimizer), jobs)
    here = (seeds[:1], False) if num_jobs else (seeds, measures)
    depths = list(_depths(build, layers, optimizer, inputs, *here, advance))
    if num_jobs:
        updates: dict[tuple[int, int], Mapping[str, float]] = {}
        for job, update in there:
            updates[job] = update
            advance("measuring", len(updates), num_jobs)
        depths = [replace(one, updates=[u for own in seeds if (u := updates[one.asked, own])]) for one in depths]
    findings = compare(depths, claimed, cache(partial(_of_depth, build, inputs, seed)))
    if any(not parameter.isfinite().all() for depth in depths for parameter in depth.built.module.parameters()):
        depths = [replace(depth, updates=()) for depth in depths]
        return Audit(optimizer=optimizer, depths=depths, findings=findings, claimed=claimed)
    lost = list(_lost(build, layers[0], depths[0], seed))
    findings = replace(findings, faults=(*findings.faults, *lost))
    remarks = list(_explodes(depths, far)) if not any(f.kind in _NO_LAW for f in findings.faults) else []
    rows: list[Mapping[str, float]] = []
    missed: Mapping[str, tuple[float, float]] = {}
    beyond: dict[int, dict[str, Mapping[str, float]]] = {}
    if measures:
        try:
            for depth in depths:
                row = predicted(as_config(depth.built), task_of(depth.built), optimizer)
                rows.append({role: value for role, value in row.items() if role not in _left_out(depth.built)})
                advance("predicting", len(rows), len(depths) + 2 * len(far) * bool(findings.faults))
            if not any(fault.kind == "identical-layers" for fault in findings.faults):  # which says so itself
                missed = _missed(depths, rows)
                remarks += _outside(depths[-1], missed)
        except (ValueError, ArithmeticError) as error:
            rows = []
            remarks.append(f"the kernel rung has no prediction of this block: {_in_words(error)}")
    if rows and findings.faults and claimed is not None and not any(f.kind in _NO_LAW for f in findings.faults):
        beyond, missing = _far(depths, findings, claimed, optimizer, rows, far, advance)
        remarks += missing
    if beyond and claimed is not None:
        remarks += _worse(claimed.name, optimizer, beyond)
    told = (_with_effect(fault, depths, rows, beyond, missed, name) for fault in findings.faults)
    findings = replace(findings, faults=tuple(told))
    return Audit(
        optimizer=optimizer,
        depths=depths,
        findings=findings,
        claimed=claimed,
        nearest=None if claimed is not None or not has_nearest else _nearest(depths, optimizer),
        predicted=rows,
        far=beyond,
        remarks=remarks,
    )


class Elsewhere(NamedTuple):
    """Workers that measure. load: gives, in a worker, ``build`` and ``inputs``."""

    executor: Executor
    load: Callable[[], tuple[Build, Callable[[nn.Module], Any] | None]]

    def task(self, optimizer: str) -> Callable[[tuple[int, int]], Mapping[str, float]]:
        return partial(_measured_there, self.load, optimizer)


def _measured_there(
    load: Callable[[], tuple[Build, Callable[[nn.Module], Any] | None]], optimizer: str, job: tuple[int, int]
) -> Mapping[str, float]:
    """In a worker, the update of the model of a number of layers and a seed."""
    build, inputs = load()
    module = _built(build, *job)
    called = guess(module, job[1]) if inputs is None else _given(inputs, module)
    return measured(look(module, called), optimizer)


def _numbers(layers: Sequence[int] | int) -> list[int]:
    """The numbers of layers, the least first. ValueError, in one line, where they are none."""
    numbers = list(layers) if isinstance(layers, Iterable) else [layers]
    if not numbers:
        raise ValueError("layers is empty: give numbers of layers, such as (4, 8, 16)")
    whole = [n for n in numbers if isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n > 0]
    if len(whole) < len(numbers) or len(set(whole)) < len(whole):
        raise ValueError(f"layers are whole numbers above 0, each once, such as (4, 8, 16): {layers!r}")
    return sorted(map(int, whole))


def _depths(
    build: Build,
    layers: Sequence[int],
    optimizer: str,
    inputs: Callable[[nn.Module], Any] | None,
    seeds: Sequence[int],
    measures: bool,
    advance: Callable[[str, float, float | None], None],
) -> Iterator[Depth]:
    done, total = 0, len(layers) * len(seeds)
    for number in layers:
        first: Built | None = None
        updates: list[Mapping[str, float]] = []
        for own in seeds:
            module = _built(build, number, own)
            called = guess(module, own) if inputs is None else _given(inputs, module)
            built = look(module, called) if first is None else first.of_other_draws(module, called)
            first = first or built
            if measures and (update := measured(built, optimizer)):
                updates.append(update)
            done += 1
            advance("building and measuring", done, total)
        assert first is not None
        counts = {side: first.num_layers(side) for side in first.sides}
        yield Depth(number, first, counts, updates)


def _of_depth(build: Build, inputs: Callable[[nn.Module], Any] | None, seed: int, num_layers: int) -> Built | None:
    """The model of a depth that was not asked for, read; None where it cannot be."""
    try:
        _prepare(build, num_layers, 1)
        module = _built(build, num_layers, seed)
        return look(module, guess(module, seed) if inputs is None else _given(inputs, module))
    except ValueError:
        return None


def _given(inputs: Callable[[nn.Module], Any], module: nn.Module) -> Inputs:
    """What a user's own function answers, tried once. ValueError, in one line, where it raises or the module does."""
    try:
        answer = inputs(module)
    except Exception as error:  # whatever a function of somebody else raises
        raise ValueError(f"--input failed: {line_of(error)}") from error
    called = given(answer, module)
    try:
        called.call(module)
    except Exception as error:  # whatever a module raises of an input that it does not take
        raise ValueError(f"called with what --input gives, {type(module).__name__} fails: {line_of(error)}") from error
    return called


def _built(build: Build, num_layers: int, seed: int) -> nn.Module:
    """ValueError, in one line, where the builder raises or returns something else."""
    with _seeded(seed):
        try:
            module = _call(build, num_layers)
        except Exception as error:  # whatever a builder of somebody else raises
            raise ValueError(f"the builder failed at {num_layers} layers: {line_of(error)}") from error
    if not isinstance(module, nn.Module):
        raise ValueError(f"the builder returned something of type {type(module).__name__}, no torch.nn.Module")
    if any(parameter.is_meta for parameter in module.parameters()):
        raise ValueError(
            f"the parameters of {type(module).__name__} are on the meta device: it must be built with values"
        )
    if not callable(module.forward):
        raise ValueError(f"{type(module).__name__}.forward is of type {type(module.forward).__name__}, no function")
    return module


def _prepare(build: Build, num_layers: int, num_depths: int) -> None:
    """Refuse what would not fit: a model at every depth, and gradients of one; and run small models in one thread, as
    several would wait for one another at each small product. A builder that cannot build on the meta device is let
    pass."""
    try:
        with _seeded(0), torch.device("meta"):
            module = _call(build, num_layers)
        sizes = [tensor.numel() for tensor in module.parameters()]
        needed = (num_depths + 2) * sum(tensor.nbytes for tensor in module.parameters())
    except Exception:
        return
    if max(sizes, default=0) < _LARGE:
        torch.set_num_threads(1)
    if needed > (free := available_bytes("cpu")):
        raise ValueError(
            f"{num_layers} layers need about {needed / 2**30:.0f} GiB of memory, and {free / 2**30:.0f} are free: "
            "audit fewer layers or a narrower model; laws of depth do not depend on the width"
        )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """The random generators of torch, numpy and Python from a seed, and afterwards as they were."""
    of_numpy = np.random.get_state()  # noqa: NPY002 - the one that a builder of somebody else may draw from
    of_python = random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002 - as above
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002 - as above


_COUNTS = ("layer", "depth", "block")
"""In the name of a parameter by keyword that is a number of layers."""


def _check_builder(build: Build) -> None:
    """Refuse what takes no number of layers, or answers only when it is awaited."""
    if inspect.iscoroutinefunction(build):
        raise ValueError(f"the builder {build.__name__} is an async function: it must return the module at once")
    try:
        parameters = inspect.signature(build).parameters.values()
    except (TypeError, ValueError):
        return
    if not any(p.kind is not p.KEYWORD_ONLY or any(word in p.name for word in _COUNTS) for p in parameters):
        names = ", ".join(p.name for p in parameters) or "nothing"
        raise ValueError(
            f"the builder {getattr(build, '__name__', 'given')} takes {names}: it must take the number of layers to "
            "build, as build(num_layers), and return the module"
        )


def _call(build: Build, num_layers: int) -> nn.Module:
    """Call a builder with a number of layers, twice where it must be told the encoder's and the decoder's."""
    try:
        parameters = inspect.signature(build).parameters.values()
    except (TypeError, ValueError):
        return build(num_layers)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
    if not positional:
        by_keyword = [p for p in parameters if any(word in p.name for word in _COUNTS)]
        needed = [p for p in by_keyword if p.default is p.empty] or by_keyword[:1]
        return build(**{p.name: num_layers for p in needed})
    return build(*[num_layers] * (2 if sum(p.default is p.empty for p in positional) == 2 else 1))


# ---------------------------------------------------------------- built without memory first


def _lost(build: Build, num_layers: int, depth: Depth, seed: int) -> Iterator[Fault]:
    """What the module's own initialisation leaves out after construction on the meta device, as large models are built.

    Tried where the module has such an initialisation, a method of its own that takes nothing. It is called behind
    every part's ``reset_parameters``, so that only what neither of them sets is told.
    """
    name = next((name for name in _INITS if callable(getattr(type(depth.built.module), name, None))), None)
    if name is None or hasattr(depth.built.module, "config"):
        return  # Hugging Face's models materialise by a way of their own
    try:
        with _seeded(seed), torch.device("meta"):
            module = _call(build, num_layers)
        module.to_empty(device="cpu")
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                torch.nn.init.constant_(tensor, math.nan)
        with _seeded(seed):
            for part in module.modules():
                reset = getattr(part, "reset_parameters", None)
                if part is not module and callable(reset):
                    reset()
            getattr(module, name)()
    except Exception:  # the module does not support it
        return
    tensors = dict([*module.named_parameters(), *module.named_buffers()])
    missing = [name for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.isnan().any()]
    before = dict([*depth.built.module.named_parameters(), *depth.built.module.named_buffers()])
    changed = [
        name
        for name, tensor in tensors.items()
        if tensor.is_floating_point() and name in before and _differs(tensor, before[name])
    ]
    if missing or changed:
        yield Fault(
            kind="lost-on-meta",
            says=f"Built on the meta device, {name}() and reset_parameters() of its parts leave tensors without values."
            if missing
            else f"Built on the meta device, the module starts otherwise: {name}() does not do what __init__ does.",
            where=tuple(missing or changed),
            amount="memory as it was" if missing else "another scale",
            asked="values" if missing else "that of the module as it is built",
            program=(Edit(f"# set them in {name}(), too, not in __init__ alone"),),
        )


def _differs(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two draws are of another scale."""
    sizes = [tensor.detach().double().square().mean().sqrt().item() for tensor in (first, second)]
    error = 6 / math.sqrt(first.numel())
    return abs(sizes[0] - sizes[1]) > max(error, 0.02) * max(*sizes, 1e-12)


# ---------------------------------------------------------------- beyond the depths that were built


def _far(
    depths: Sequence[Depth],
    findings: Findings,
    claimed: Claimed,
    optimizer: str,
    rows: Sequence[Mapping[str, float]],
    numbers: Sequence[int],
    advance: Callable[[str, float, float | None], None],
) -> tuple[dict[int, dict[str, Mapping[str, float]]], list[str]]:
    """The update beside that at the shallowest depth, as it is and as it should be; and the ratio of the two. With it,
    in words, why there is no prediction at some numbers of layers."""
    whole = task_of(depths[-1].built)
    task = of_few_tokens(whole)
    wrong = {(fault.side, fault.role) for fault in findings.faults}
    found: dict[int, dict[str, Mapping[str, float]]] = {}
    missing: dict[str, list[str]] = {}
    done = len(depths)
    start = rows[0]
    try:
        if task is not whole:
            start = predicted(as_config(depths[0].built), task, optimizer)
        first = predicted(_asked_config(depths, claimed, findings, wrong, depths[0].asked), task, optimizer)
    except (ValueError, ArithmeticError) as error:
        return {}, [f"there is no prediction of {claimed.name}: {_in_words(error)}"]
    for number in numbers:
        if number <= depths[-1].asked:
            continue
        which = "the module as it is"
        try:
            as_it_is = predicted(extrapolated(depths, findings, number), task, optimizer)
            advance("predicting", done + 1, len(depths) + 2 * len(numbers))
            which = claimed.name
            mended = predicted(_asked_config(depths, claimed, findings, wrong, number), task, optimizer)
        except (ValueError, ArithmeticError) as error:
            missing.setdefault(f"there is no prediction of {which}: {_in_words(error)}", []).append(f"{number:,}")
            continue
        done += 2
        advance("predicting", done, len(depths) + 2 * len(numbers))
        is_ = {role: value / start[role] for role, value in as_it_is.items() if start.get(role)}
        should = {role: value / first[role] for role, value in mended.items() if first.get(role)}
        ratio = {
            role: is_[role] * start[role] / (value * first[role])
            for role, value in should.items()
            if value and is_.get(role)
        }
        found[number] = {"as_it_is": is_, "as_it_should_be": should, "ratio": ratio}
    told = [f"at {' and '.join(where)} layers {reason}" for reason, where in missing.items()]
    if found and task is not whole:
        told.append(
            f"what is predicted of more than {depths[-1].asked} layers is of {task.num_tokens} of the "
            f"{whole.num_tokens} tokens"
        )
    return found, told


def _in_words(error: Exception) -> str:
    """Why there is no prediction: numerical failures, whatever they are called, are numbers that left the floats."""
    is_numerical = isinstance(error, (ArithmeticError, np.linalg.LinAlgError))
    return "numbers overflow on the way" if is_numerical else str(error)


def _explodes(depths: Sequence[Depth], numbers: Sequence[int]) -> Iterator[str]:
    """A line for each stream that leaves the floats of single precision on the way to one of so many layers.

    The exponent of its growth goes on as a line through the shallowest and the deepest model, so that weights which
    approach 1 with depth are let pass.
    """
    first, last = depths[0], depths[-1]
    for side, sublayers in last.built.sides.items():
        if side not in first.built.sides:
            continue
        end, start = _growth(sublayers), _growth(first.built.sides[side])
        span = last.asked - first.asked
        slope = (end - start) / span if span else end / last.asked
        reached = (n for n in sorted(numbers) if n > last.asked and end + slope * (n - last.asked) > _MOST_DIGITS)
        if (number := next(reached, None)) is None:
            continue
        moments = [(depth.asked, *_ends(depth.built.sides[side])) for depth in depths if side in depth.built.sides]
        squares = "; ".join(f"from {start:.3g} to {end:.3g} at {asked}" for asked, start, end in moments)
        of = f" of the {side}" if len(last.built.sides) > 1 else ""
        yield (
            f"the stream{of} grows with every layer, so that at {number:,} layers its numbers are beyond the floats. "
            f"From its start to its last sublayer its mean square goes {squares} layers"
        )


def _ends(sublayers: Sequence[Sublayer]) -> tuple[float, float]:
    """The mean square of a stream at its start and at its last sublayer."""
    return sublayers[0].second_moment, sublayers[-1].second_moment


def _growth(sublayers: Sequence[Sublayer]) -> float:
    """The power of ten by which a stream grows from layer to layer: by its residual weights since the last norm that it
    runs through; where no norm stands anywhere and branches grow with it, as it was measured."""
    if not any(sub.norms & _KEEPS_SCALE for sub in sublayers) and _branches_grow(sublayers):
        start, end = _ends(sublayers)
        return math.log10(end / start) / 2
    power = most = 0.0
    for sub in sublayers:
        weight = sub.residual_weight
        power = 0.0 if "post" in sub.norms else power + (math.log10(weight) if weight > 0 else 0.0)
        most = max(most, power)
    return most


def _branches_grow(sublayers: Sequence[Sublayer]) -> bool:
    """Whether branches of some kind grow with their stream, from the first to the last of the kind, and not much less,
    as those behind a bounded activation do."""
    known = [sub for sub in sublayers if sub.branch_rms > 0 and 0 < sub.second_moment < math.inf]
    grown = []
    for kind in {sub.kind for sub in known}:
        first, last = (next(sub for sub in own if sub.kind == kind) for own in (known, known[::-1]))
        stream = math.log(last.second_moment / first.second_moment) / 2
        grown.append(stream > 0 and math.log(last.branch_rms / first.branch_rms) > stream / 2)
    return any(grown)


def extrapolated(depths: Sequence[Depth], findings: Findings, num_layers: int) -> ModelConfig:
    """The module's numbers at a depth that was not built, by the laws that were read at those that were."""
    first, last = depths[0], depths[-1]
    config = as_config(last.built)
    sides = []
    for side, sublayers, shallow in zip(
        last.built.sides,
        (config.encoder, config.decoder),
        (as_config(first.built).encoder, as_config(first.built).decoder),
        strict=False,
    ):
        count = last.counts[side]
        each = len(sublayers) // count
        growth = math.log(num_layers / count)
        span = math.log(count / first.counts[side]) if count != first.counts[side] else math.inf

        def grown(value: float, before: float, growth: float = growth, span: float = span) -> float:
            return value * math.exp(growth * math.log(value / before) / span) if value > 0 and before > 0 else value

        new: list[SublayerConfig] = []
        for layer in range(1, num_layers + 1):
            share = (layer - 0.5) / num_layers
            place = min(int(share * count), count - 1)
            earlier = min(int(share * first.counts[side]), first.counts[side] - 1)
            for part in range(each):
                own = sublayers[place * each + part]
                before = shallow[min(earlier * each + part, len(shallow) - 1)]
                gains = {}
                for role, gain in own.gains.items():
                    law = findings.laws.get((side, role))
                    gains[role] = config.gain(role, law.at(num_layers, layer)) if law is not None and gain else gain
                new.append(
                    replace(
                        own,
                        gains=gains,
                        residual_weight=grown(own.residual_weight, before.residual_weight),
                        branch_weight=grown(own.branch_weight, before.branch_weight),
                    )
                )
        sides.append(tuple(new))
    return replace(config, encoder=sides[0], decoder=sides[1] if len(sides) > 1 else ())


def _asked_config(
    depths: Sequence[Depth],
    claimed: Claimed,
    findings: Findings,
    wrong: set[tuple[str | None, str | None]],
    num_layers: int,
) -> ModelConfig:
    """What is asked for at a depth; of a scheme, on the constants of the module's own initialisation. wrong: sides and
    roles of faults, whose constants are those of the other roles' initialisation."""
    built = depths[-1].built
    asked = claimed.config(built, dict.fromkeys(built.sides, num_layers))
    shape = as_config(built)
    is_start_wrong, is_head_wrong = ((None, role) in wrong for role in ("embedding", "head"))
    own = replace(
        asked,
        embedding_std=asked.embedding_std * asked.embedding_multiplier if is_start_wrong else shape.embedding_std,
        embedding_multiplier=1.0,
        head_gain=asked.head_gain if is_head_wrong else shape.head_gain,
        is_causal=shape.is_causal,
    )
    if claimed.is_absolute:
        return own
    own = replace(own, attention_scale=shape.attention_scale)
    sides = []
    for side, sublayers in zip(built.sides, (own.encoder, own.decoder), strict=False):
        bases = {
            key[1]: findings.bases[key] if key in wrong else shape.gain(key[1], law.constant / asked_law.constant)
            for key, law in findings.laws.items()
            if key[0] == side and (asked_law := findings.asked_laws.get(key)) is not None and asked_law.constant
        }
        sides.append(
            tuple(
                replace(
                    sub, gains={role: sub.gains.get(role, 1.0) * bases.get(role, 1.0) for role in own.roles(sub.kind)}
                )
                for sub in sublayers
            )
        )
    return replace(own, encoder=sides[0], decoder=sides[1] if len(sides) > 1 else ())


_NO_LAW = ("depth-ignored", "no-residual")
"""Faults of modules whose sublayers, as they are read at some depths, say nothing of other depths."""
_KEEPS_SCALE = frozenset({"pre", "v", "inner", "branch", "post"})
"""Places of norms behind which a branch is as large whatever the stream is."""
_MOST_DIGITS = math.log10(torch.finfo(torch.float32).max)
_MISS = 0.01
"""The probability that any role's interval leaves out the prediction of a block that is as it is predicted."""


def _missed(depths: Sequence[Depth], rows: Sequence[Mapping[str, float]]) -> Mapping[str, tuple[float, float]]:
    """By role, what is measured and what is predicted at the greatest depth, where these differ by more than chance and
    a finite width move them.

    Of a few models of one depth the scatter is hardly known. Relative to the mean it is about the same at each depth,
    so it is taken from the seeds of all of them; and what misses alike at all depths is told by all of them together.
    """
    last = depths[-1]
    share = math.log1p(len(last.built.sublayers) / last.built.d_model)
    roles = [role for role in rows[-1] if role.rpartition("/")[2] in ("update", *BRANCH_ROLES)]
    missed = {}
    for role in roles:
        off = [
            [math.log(own[role] / row[role]) for own in depth.updates if own.get(role, 0.0) > 0]
            for depth, row in zip(depths, rows, strict=True)
            if row.get(role, 0.0) > 0
        ]
        num_free = sum(len(own) - 1 for own in off if own)
        if not off or num_free < 1 or len(off[-1]) < len(last.updates):
            continue
        scatter = math.sqrt(sum(float(np.var(own)) * len(own) for own in off if own) / num_free)
        width = float(student_t.isf(_MISS / len(roles) / 4, num_free)) * scatter
        every = [value for own in off for value in own]
        of_last, of_all = (abs(sum(own) / len(own)) - width / math.sqrt(len(own)) for own in (off[-1], every))
        mean = estimate([own[role] for own in last.updates]).mean
        if of_last > share or (of_all > share and abs(math.log(mean / rows[-1][role])) > share):
            missed[role] = mean, rows[-1][role]
    return missed


def _outside(depth: Depth, missed: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    """A line where predictions are not what is measured, with what they leave out of this block."""
    if not missed:
        return
    built = depth.built
    off = [f"{role} {is_:.3g} beside {told:.3g}" for role, (is_, told) in missed.items()]
    known = {
        "layers that share their matrices": bool(built.shared),
        "the parts that other remarks say were not read": bool(built.unread),
        "long skips": bool(built.long_skips),
        "biases that do not start at 0": any(built.flow.parameters[name].any() for name in built.biases),
        "an activation that it does not know": any(sub.kind == "ffn" and not sub.activation for sub in built.sublayers),
    }
    out = [text for text, is_there in known.items() if is_there]
    why = (
        f"The prediction leaves out {' and '.join(out)}"
        if out
        else "The prediction leaves out that the width is finite, and nothing else that is known"
    )
    ratios = [max(is_ / told, told / is_) for is_, told in missed.values()]
    rest = "" if max(ratios) < _USELESS else ", and no prediction of it at any depth"
    yield (
        f"at {depth.asked} layers what is measured is not what is predicted "
        f"({', '.join(off[:4])}{' ...' if len(off) > 4 else ''}), so trust what is measured{rest}. {why}"
    )


_USELESS = 3.0
"""A factor between what is predicted and what is measured."""


def _with_effect(
    fault: Fault,
    depths: Sequence[Depth],
    rows: Sequence[Mapping[str, float]],
    far: Mapping[int, Mapping[str, Mapping[str, float]]],
    missed: Mapping[str, tuple[float, float]],
    name: str | None,
) -> Fault:
    """The fault with its effect on the update, measured and predicted. missed: as ``_missed`` tells it."""
    known = set[str]().union(*depths[-1].updates)
    role = next((key for key in (f"{fault.side}/{fault.role}", fault.role) if key in known), None) or "update"
    side, _, name_of_role = role.rpartition("/")
    effect = Effect(
        of=f"the {side}'s {name_of_role}" if side else "all branch matrices" if role == "update" else role,
        name=name,
        start=depths[0].asked,
        end=depths[-1].asked,
    )
    first, last = ([update[role] for update in depth.updates if role in update] for depth in (depths[0], depths[-1]))
    if first and last and len(depths) > 1 and sum(first) > 0:
        effect = replace(effect, measured=(sum(last) / len(last)) / (sum(first) / len(first)))
    if fault.kind in NOT_INDEPENDENT:
        if effect.measured is not None and rows and rows[0].get(role):
            effect = replace(effect, independent=rows[-1][role] / rows[0][role])
        return replace(fault, effect=effect)
    ways = {number: own for number, own in far.items() if all(role in own[which] for which in _WAYS)}
    if ways:
        as_it_is, mended = ({number: own[which][role] for number, own in ways.items()} for which in _WAYS)
        ratio = {number: of for number, own in ways.items() if (of := own["ratio"].get(role)) is not None}
        effect = replace(effect, as_it_is=as_it_is, mended=mended, ratio=ratio, missed=missed.get(role))
    return replace(fault, effect=effect)


_WAYS = ("as_it_is", "as_it_should_be")


def _left_out(built: Built) -> set[str]:
    """Roles of which a prediction says something else than what is measured: biases, where some matrices have none."""
    biased = {role for roles in built.biases.values() for role in roles}
    return set() if all(weight.role in biased for weight in built.weights) else {"bias", "encoder/bias", "decoder/bias"}


def _worse(name: str, optimizer: str, far: Mapping[int, Mapping[str, Mapping[str, float]]]) -> list[str]:
    """A line where the update grows more, at the greatest depth, when all is mended."""
    number = max(far)
    is_, mended = (far[number][which].get("update", 0.0) for which in ("as_it_is", "as_it_should_be"))
    if mended <= 1.1 * is_:
        return []
    does = "grows more" if mended > 1 else "shrinks less"
    return [
        f"by {name} itself the update {does} under {optimizer} than in the module as it is, {times(mended)} "
        f"beside {times(is_)} at {number:,} layers: `depthlaw advise` says what keeps it from growing"
    ]


# ---------------------------------------------------------------- the nearest


def _nearest(depths: Sequence[Depth], optimizer: str) -> Nearest | None:
    """The scheme or recipe that the module differs least from; of equals a recipe, which says more."""
    best: tuple[float, Nearest] | None = None
    names = [*((name, "recipe") for name in RECIPES), *((name, "scheme") for name in SCHEMES)]
    for name, kind in names:
        try:
            faults = compare(depths, Claimed.named(name, optimizer, is_recipe=kind == "recipe")).faults
        except (ValueError, ArithmeticError):
            continue
        differences = [fault for fault in faults if fault.role or fault.kind in _WEIGHTS]
        score = sum(_WEIGHTS.get(fault.kind, 0.5) for fault in differences)
        if best is None or score < best[0]:
            best = score, Nearest(name, together(differences), kind)
    return None if best is None else best[1]


__all__ = ["Audit", "Fault", "Inputs", "audit", "extrapolated"]

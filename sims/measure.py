"""Many independent networks of one config, measured: each seed's numbers, chunk by chunk, with where one diverged.

``run`` yields, for one ``Question``, a ``Result`` for as many seeds at once as memory holds; its values are by
optimizer/role, a number for each seed, in the unit that is O(1) in the width. NotEnoughMemoryError, a ValueError, where
not one network fits. On a CPU the seeds of a chunk are shared out to threads, one to a core.

>>> from depthlaw.sims.measure import Question, choose_device, run
>>> from depthlaw.sims.model import ModelConfig, alternating
>>> from depthlaw.sims.update import Task
>>> task = Task(num_tokens=4)
>>> config = task.on(ModelConfig(encoder=alternating(4), d_model=16))
>>> [result] = run(Question(config=config, task=task, optimizers=("sgd", "adam")), seeds=range(3))
>>> result.seeds, [round(value, 2) for value in result.values["sgd/update"]]
([0, 1, 2], [4.88, 1.34, 3.87])
>>> choose_device("cpu")
'cpu'
"""

from __future__ import annotations

import gc
import math
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from depthlaw.sims.ensemble import Ensemble, Member, bytes_of_member, members_at_once
from depthlaw.sims.model import BRANCH_ROLES, ModelConfig
from depthlaw.sims.optim import NORMALISATION
from depthlaw.sims.records.record import is_of
from depthlaw.sims.update import (
    Divergence,
    FirstOrder,
    Inputs,
    Task,
    divergences,
    draw_inputs,
    finite_changes,
    first_order,
    hidden_size,
    layers_of,
    linear_up_to,
    on_spheres,
    real_step,
    roles_of,
    second_order,
    size_of,
    tangents,
)

BY_NEED = "auto"
DTYPES = (BY_NEED, "float64", "float32")
_TYPES = {"float64": torch.float64, "float32": torch.float32}
DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is measured of the networks of one config.

    has_layers: also what each x_l is, and each sublayer's part of the update. has_changes: also what the step does to
    the other readings. has_second_order: also what it does to second order. learning_rate: also the real optimizer's
    step of that length, and up to where it is linear. dtype: float64, float32, or "auto", which takes float32 unless
    rounding changes a quantity by more than a thousandth there, or a real step is asked for.
    """

    config: ModelConfig
    task: Task = field(default_factory=Task)
    optimizers: tuple[str, ...] = ("sgd",)
    has_layers: bool = False
    has_changes: bool = False
    has_second_order: bool = False
    learning_rate: float | None = None
    dtype: str = "float64"
    device: str = "cpu"

    @property
    def full_config(self) -> ModelConfig:
        """The config of the networks, with the head that the task reads."""
        return self.task.on(self.config)

    @property
    def keeps_steps(self) -> bool:
        return self.has_changes or self.has_second_order or self.learning_rate is not None

    @property
    def num_sublayers(self) -> int:
        """Each as often as it is visited."""
        return sum(self.config.num_sums.values())

    @property
    def text(self) -> str:
        """The question in one line, for a message."""
        return f"{self.num_sublayers} sublayers, d_model {self.config.d_model}, {self.dtype}"


@dataclass
class Result:
    """What was measured of some seeds.

    values: by quantity, a number for each seed. Where a seed diverged all its numbers are NaN or, if a step diverged,
    those that came of the step. dtype: in which they were computed.

    Quantities are named optimizer/role, such as adam/q or adam/update (all branch matrices); lamb/real_step, the update
    along its real first step, which differs from the definition; adam/layer/ROLE/NUMBER; adam/change/READING/ROLE;
    adam/second/READING/NAME; adam/finite/READING, adam/linear_up_to; and layer/SIDE/INDEX/NAME. unreliable:
    quantities that rounding decides, which are not in values, each with the relative change that rounding makes of it.
    """

    seeds: list[int]
    values: dict[str, list[float]]
    diverged: dict[int, Divergence]
    unreliable: dict[str, float] = field(default_factory=dict)
    dtype: str = "float64"


def choose_device(name: str) -> str:
    """ "auto" is a GPU where there is one. ValueError, in one line, for what is not there."""
    if name not in DEVICES:
        raise ValueError(f"unknown device {name!r} (allowed: {', '.join(DEVICES)})")
    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise ValueError("device cuda: torch sees no GPU here (allowed: auto, cpu)")
    return ("cuda" if has_gpu else "cpu") if name == "auto" else name


def device_name(device: str) -> str:
    """ "cpu", or what the GPU calls itself."""
    return torch.cuda.get_device_name(device) if device == "cuda" else device


@dataclass(frozen=True)
class Part:
    """Seeds of a question that are measured at once. unreliable: what rounding decides, None where these seeds have to
    tell it: they are the first."""

    question: Question
    seeds: Sequence[int]
    unreliable: Mapping[str, float] | None = None

    def measured(self, advance: Callable[[float], None] = lambda _: None, most_threads: int | None = None) -> Result:
        """most_threads: on a CPU; left out, as many as cores."""
        measure = partial(_measure, most_threads=most_threads)
        if self.unreliable is None:
            return _probe(self.question, self.seeds, advance, measure)
        result = measure(self.question, self.seeds, advance)
        return _without(result, self.unreliable)


def first_part(question: Question, seeds: Sequence[int], free: int | None = None) -> tuple[Part, int]:
    """The seeds that tell what rounding decides, and how many are measured at once behind them. free: bytes, where it
    is not this process that measures.

    NotEnoughMemoryError where not one fits, even when the backward pass computes again what it did not keep.
    """
    if not seeds:
        raise ValueError("no seeds to measure")
    size, recomputes = _chunk(question, len(seeds), free)
    question = replace(question, config=replace(question.config, recomputes=recomputes))
    return Part(question, seeds[: min(_PROBED, size)]), size


def other_parts(first: Part, result: Result, seeds: Sequence[int], size: int) -> list[Part]:
    """What is measured behind the first part: the other seeds, in the dtype that its result has."""
    question, probed = replace(first.question, dtype=result.dtype), first.seeds
    return [
        Part(question, seeds[start : start + size], result.unreliable) for start in range(len(probed), len(seeds), size)
    ]


def run(
    question: Question, seeds: Sequence[int], advance: Callable[[float], None] = lambda _: None
) -> Iterator[Result]:
    """Measure the networks of these seeds, and yield a result for as many of them at once as memory holds.

    advance: told how many seeds' work was done, in fractions. Raises the errors of ``first_part``.
    """
    first, size = first_part(question, seeds)
    result = first.measured(advance)
    yield result
    for part in other_parts(first, result, seeds, size):
        yield part.measured(advance)


def _probe(
    question: Question, seeds: Sequence[int], advance: Callable[[float], None], measure: Callable[..., Result]
) -> Result:
    """Measure the first seeds, with what rounding decides of them; the dtype is the one that the question then has."""
    if question.dtype == BY_NEED:
        fast, parts = replace(question, dtype="float32"), []
        if not question.keeps_steps:
            result = measure(fast, seeds, parts.append, probes=True)
            if not result.diverged and max(result.unreliable.values(), default=0.0) <= _FAST_LIMIT:
                advance(sum(parts))
                result.unreliable = {}
                return result
        question = replace(question, dtype="float64")
    result = measure(question, seeds, advance, probes=True)
    return _without(result, {name: change for name, change in result.unreliable.items() if change > _LIMIT})


def _without(result: Result, unreliable: Mapping[str, float]) -> Result:
    """The result without what rounding decides."""
    result.unreliable = dict(unreliable)
    result.values = {name: values for name, values in result.values.items() if not _is_of(name, unreliable)}
    return result


def collect(question: Question, seeds: Sequence[int]) -> dict[str, list[float]]:
    """The values of ``run`` by quantity, of all seeds in one list.

    >>> from depthlaw.sims.measure import Question, collect
    >>> from depthlaw.sims.model import ModelConfig, alternating
    >>> values = collect(Question(config=ModelConfig(encoder=alternating(2), d_model=8)), range(3))
    >>> [len(values[f"sgd/{role}"]) for role in ("update", "fc1")]
    [3, 3]
    """
    values: dict[str, list[float]] = {}
    for result in run(question, seeds):
        for name, column in result.values.items():
            values.setdefault(name, []).extend(column)
    return values


def _chunk(question: Question, num_seeds: int, free: int | None = None) -> tuple[int, bool]:
    """How many networks to measure at once, in even chunks, and whether the backward pass computes again what it did
    not keep, which it does only where a single network would not fit otherwise."""
    task, itemsize = question.task, _TYPES.get(question.dtype, torch.float64).itemsize
    copies = 1
    if question.learning_rate is not None:
        # Every step, all gradients; of the real optimizer weights, gradients and two moments, and what it moved.
        copies = 8 + len(question.optimizers)
    elif question.keeps_steps:
        copies = 3 + len(question.optimizers)

    def fitting(recomputes: bool) -> int:
        config = replace(question.full_config, recomputes=recomputes)
        vectors = task.batch_size * task.num_tokens
        need = bytes_of_member(config, vectors, task.num_tokens, itemsize, copies)
        return members_at_once(need, question.device, question.text, free)

    try:
        at_once, recomputes = fitting(question.config.recomputes), question.config.recomputes
    except ValueError:
        at_once, recomputes = fitting(True), True
    at_once = min(at_once, _MOST_AT_ONCE)
    return math.ceil(num_seeds / math.ceil(num_seeds / at_once)), recomputes


def _is_of(name: str, unreliable: Collection[str]) -> bool:
    """Whether rounding decides a quantity, or the total that it is a part of: adam/layer/q/3 is a part of adam/q."""
    optimizer, _, quantity = name.partition("/")
    prefix = f"{optimizer}/"
    return is_of(quantity, {lost.removeprefix(prefix) for lost in unreliable if lost.startswith(prefix)})


def check_memory(question: Question, free: int | None = None) -> None:
    """NotEnoughMemoryError where not even one network fits into what is free here, or into so many bytes elsewhere."""
    _chunk(question, 1, free)


_MOST_AT_ONCE = 64
"""The most networks in a chunk. More would be no faster, and progress is told and saved chunk by chunk."""


class _Stopped(Exception):
    """Raised in a thread whose numbers nobody waits for any more."""


def _measure(
    question: Question,
    seeds: Sequence[int],
    advance: Callable[[float], None],
    *,
    probes: bool = False,
    most_threads: int | None = None,
) -> Result:
    """A chunk. On a CPU its seeds are shared out to threads, or several cores work on each operation: see
    ``threads_for``."""
    before = torch.get_num_threads()
    num_threads, num_cores = threads_for(question, len(seeds)) if question.device == "cpu" else (1, before)
    num_threads = min(num_threads, most_threads or num_threads)
    if num_threads == 1:
        try:
            torch.set_num_threads(min(num_cores, before, most_threads or before))
            return _part(question, seeds, advance, probes=probes)
        finally:
            torch.set_num_threads(before)
            if question.keeps_steps:
                gc.collect()  # what a forward-mode derivative ran on is in cycles, and as large as the networks
    lock, is_over = threading.Lock(), threading.Event()

    def tell(done: float) -> None:
        with lock:
            if is_over.is_set():
                raise _Stopped
            try:
                advance(done)
            except BaseException:
                is_over.set()
                raise

    size = math.ceil(len(seeds) / num_threads)
    pool = ThreadPoolExecutor(num_threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        parts = [seeds[start : start + size] for start in range(0, len(seeds), size)]
        futures = [pool.submit(_part, question, part, tell, probes=probes) for part in parts]
        wait(futures, return_when=FIRST_EXCEPTION)
        errors = [error for future in futures if future.done() and (error := future.exception())]
        if errors:  # what went wrong, and not that another thread was stopped for it
            raise min(errors, key=lambda error: isinstance(error, _Stopped))
        return _joined([future.result() for future in futures])
    finally:
        is_over.set()
        pool.shutdown()
        torch.set_num_threads(before)


class Shares(NamedTuple):
    """How many threads share the seeds of a chunk on a CPU, and how many cores each operation uses."""

    threads: int
    cores: int


def threads_for(question: Question, num_seeds: int) -> Shares:
    """Of networks with small matrices, one thread and one core. Of larger ones, one thread whose operations use as many
    cores as there are networks, or all where the width is huge. Of still larger ones, as many threads as cores; but not
    where steps are kept, which one thread holds.

    Cores that share an operation wait for one another at its end. Python hands over from thread to thread between any
    two operations, which takes as long as a small one does; several cores wait less long.
    """
    task, width, all_cores = question.task, question.config.d_model, os.cpu_count() or 1
    num_cores = min(all_cores, num_seeds)
    products = num_seeds / num_cores * task.batch_size * task.num_tokens * width**2
    if products >= _WORTH_A_THREAD and num_cores > 1 and not question.keeps_steps:
        return Shares(num_cores, 1)
    if width >= _HUGE:
        return Shares(1, all_cores)
    return Shares(1, num_cores if products >= _WORTH_A_CORE else 1)


_HUGE = 512
"""The width from which on a single network's operations are worth all cores."""
_WORTH_A_CORE, _WORTH_A_THREAD = 2**20, 2**23
"""Of a square matrix and the vectors of all members of a thread, how many numbers are multiplied. Measured on 2 cores,
beside one thread with one core: at 2^18 two cores to an operation took 1.1 times as long and two threads 1.9 times, at
2^20 0.95 and 1.3, at 2^21 0.7 and 0.8, at 2^22 0.68 and 0.76, at 2^23 0.59 and 0.55."""


def _joined(parts: Sequence[Result]) -> Result:
    """The results of some seeds each as one."""
    whole = parts[0]
    for part in parts[1:]:
        whole.seeds += part.seeds
        whole.diverged |= part.diverged
        for name, values in part.values.items():
            whole.values[name] += values
        for name, change in part.unreliable.items():
            whole.unreliable[name] = max(change, whole.unreliable.get(name, 0.0))
    return whole


def _part(
    question: Question, seeds: Sequence[int], advance: Callable[[float], None], *, probes: bool = False
) -> Result:
    config, task, kind = question.full_config, question.task, _TYPES[question.dtype]
    model = Ensemble([Member(config, seed) for seed in seeds], dtype=kind, device=question.device)
    inputs = draw_inputs(config, task, seeds, kind, question.device)
    needs_gradients = question.has_layers or question.learning_rate is not None
    optimizers = {*question.optimizers, *(["sgd"] if needs_gradients else [])}
    part = 0.5 * len(seeds) / (question.num_sublayers + 3 * len(config.sides))
    done = 0.0

    def on_stream() -> None:
        nonlocal done
        done += part
        advance(part)

    model.kinks = {} if probes else None
    asked = {"keeps_steps": question.keeps_steps, "has_cosines": question.has_layers}
    order = first_order(model, inputs, task, optimizers, **asked, on_stream=on_stream)
    kinks, model.kinks = model.kinks, None
    values: dict[str, Tensor] = {}
    for optimizer in question.optimizers:
        values |= _by_role(model, order, optimizer)
        if optimizer == "lamb":  # the only one whose step is not its definition's; the same names in every chunk
            values["lamb/real_step"] = roles_of(model, order.values["lamb"])["update"]
        if question.has_layers:
            values |= _by_layer(model, order, optimizer)
        if question.has_changes:
            values |= _changes(question, model, inputs, order, optimizer)
        if question.has_second_order:
            values |= _second_order(question, model, inputs, order, optimizer)
        if question.learning_rate is not None:
            values |= _finite(question, model, inputs, order, optimizer)
    if question.has_layers:
        values |= _streams(order) | _gradients(model, order)
    unreliable = {} if kinks is None else rounding(question, model, inputs, order, kinks, advance)
    advance(len(seeds) - done)
    diverged = divergences(order)
    listed = {name: value.double().cpu().tolist() for name, value in values.items()}
    for member in diverged:
        for column in listed.values():
            column[member] = math.nan
    side, number = list(config.num_sums.items())[-1]
    for column in listed.values():  # a step that left the finite numbers: what was before it is as good as ever
        for member, value in enumerate(column):
            if not math.isfinite(value):
                diverged.setdefault(member, Divergence(side, number, "step"))
    places = {seeds[member]: place for member, place in sorted(diverged.items())}
    return Result(list(seeds), listed, places, unreliable, question.dtype)


def _by_role(model: Ensemble, order: FirstOrder, optimizer: str) -> dict[str, Tensor]:
    return {f"{optimizer}/{role}": value for role, value in roles_of(model, order.functionals[optimizer]).items()}


def _by_layer(model: Ensemble, order: FirstOrder, optimizer: str) -> dict[str, Tensor]:
    return {
        f"{optimizer}/layer/{role}/{index}": value
        for role, layers in layers_of(model, order.functionals[optimizer]).items()
        for index, value in enumerate(layers, start=1)
    }


def _gradients(model: Ensemble, order: FirstOrder) -> dict[str, Tensor]:
    """The norm of the gradient of each sublayer's matrices, by role, over sqrt(d): SGD's update is its square."""
    updates = order.functionals["sgd"]
    squares = {name: updates[name] / model.lr_multiplier(name, 0) for name, _, _ in model.tagged()}
    return {
        f"layer/gradient/{role}/{index}": value.sqrt()
        for role, layers in layers_of(model, squares).items()
        if role in BRANCH_ROLES
        for index, value in enumerate(layers, start=1)
    }


def _unit(question: Question, optimizer: str) -> float:
    power, constant = NORMALISATION[optimizer]
    return constant * question.config.d_model**power


def _changes(
    question: Question, model: Ensemble, inputs: Inputs, order: FirstOrder, optimizer: str
) -> dict[str, Tensor]:
    """What the step changes, by reading and role, per unit learning rate and in the optimizer's unit; of
    "representation" the last hidden state's change over that state. Beside the roles, ``ON_SPHERES``."""
    step, unit = order.steps[optimizer], _unit(question, optimizer)
    still = hidden_size(model, inputs, question.task)
    present = dict.fromkeys(role for _, _, role in model.tagged())
    groups = {"update": [role for role in present if role in BRANCH_ROLES], **{role: [role] for role in present}}
    steps = dict.fromkeys(groups, step)
    for name, of_vectors in ON_SPHERES.items():
        groups[name], steps[name] = groups["update"], on_spheres(model, step, of_vectors=of_vectors)
    changes = {}
    for name, roles in groups.items():
        moved = _moved(tangents(model, inputs, question.task, steps[name], roles))
        for reading, value in {**moved, "representation": moved["hidden"] / still}.items():
            changes[f"{optimizer}/change/{reading}/{name}"] = value / unit
    return changes


ON_SPHERES = {"update_on_spheres": False, "update_on_vectors": True}
"""Names of the branch matrices' step where norms are kept: of each matrix, or of each of its vectors."""


def _moved(readings: dict[str, Tensor]) -> dict[str, Tensor]:
    """A hidden state's move is its root mean square over all entries."""
    return readings | {"hidden": size_of(readings["hidden"])}


def _second_order(
    question: Question, model: Ensemble, inputs: Inputs, order: FirstOrder, optimizer: str
) -> dict[str, Tensor]:
    """By reading, the first order and the size of the second, per unit learning rate and its square, in the optimizer's
    unit; and what the second is over the first, of a step whose first order moves the objective by 1 (0 where
    nothing moves)."""
    orders = second_order(model, inputs, question.task, order.steps[optimizer])
    moved, unit, values = orders[question.task.reading][0].abs(), _unit(question, optimizer), {}
    for reading, (first, second) in orders.items():
        over_first = torch.where(first * moved == 0, 0, second / first / moved).abs()
        numbers = {"first": first.abs() / unit, "second": second.abs() / unit**2, "over_first": over_first}
        values |= {f"{optimizer}/second/{reading}/{name}": value for name, value in numbers.items()}
    return values


def _finite(
    question: Question, model: Ensemble, inputs: Inputs, order: FirstOrder, optimizer: str
) -> dict[str, Tensor]:
    """What a step of finite length changes: the real optimizer's step, and up to which length it acts linearly."""
    assert question.learning_rate is not None
    rates_of = {name: model.lr_multiplier(name, model.num_dims[name]) for name in order.steps["sgd"]}
    gradients = {  # what has rate 0 does not move, whatever its gradient
        name: torch.where(rates_of[name] == 0, 0, step / rates_of[name]) for name, step in order.steps["sgd"].items()
    }
    step = real_step(model, gradients, optimizer, question.learning_rate)
    size = (model.num_members,)
    rates = torch.full(size, question.learning_rate, dtype=_TYPES[question.dtype], device=question.device)
    moved = finite_changes(model, inputs, question.task, step, rates)
    slope = torch.stack([(gradients[name] * step[name]).reshape(model.num_members, -1).sum(1) for name in step]).sum(0)
    changes = {f"{optimizer}/finite/{name}": value for name, value in _moved(moved).items()}
    changes[f"{optimizer}/finite/first_order"] = -question.learning_rate * slope
    changes[f"{optimizer}/linear_up_to"] = linear_up_to(model, inputs, question.task, step, slope)
    return changes


def _streams(order: FirstOrder) -> dict[str, Tensor]:
    by_quantity = {}
    for (side, index), stream in order.streams.items():
        numbers = {
            "second_moment": stream.second_moment,
            "token_correlation": stream.token_correlation,
            "cosine_with_input": stream.cosine_with_input,
            "cosine_with_previous": stream.cosine_with_previous,
            "gradient_square": stream.gradient_square,
        }
        by_quantity |= {f"layer/{side}/{index}/{name}": value for name, value in numbers.items() if value is not None}
    return by_quantity


# ---------------------------------------------------------------- what rounding decides

_PROBED = 8
"""The number of networks in which rounding is probed. Tokens collapse at very different depths: with two networks,
means that were off by 2 % went unnoticed; with eight, none did.
"""
_LIMIT, _FAST_LIMIT = 0.01, 0.001
"""A quantity that rounding changes by more than the first in one of them is not reported; by more than the second, and
float32 is not precise enough where the dtype is left to the program."""


def rounding(
    question: Question,
    model: Ensemble,
    inputs: Inputs,
    order: FirstOrder,
    kinks: dict[tuple[str, int], Tensor],
    advance: Callable[[float], None] = lambda _: None,
) -> dict[str, float]:
    """Each quantity's relative change under noise of one unit in the last place, where it is beyond ``_FAST_LIMIT``.
    The noise is put on every x_l of the first networks. order: the first-order result of these networks without noise.
    kinks: the side of its kink on which each unit is without noise, as of ``Transformer``.

    The gradients of q and k come from the differences between tokens, which deep post-LN makes smaller than rounding.
    Behind a norm of two numbers they are 0. Noise takes no unit to the other side of its kink: where the tokens have
    become one, a ReLU that is 0 but for rounding switches for all of them, and every gradient of that network jumps by
    some percent. Of its two values neither is less precise, and rounding draws one as the seed draws the weights.
    """
    model.rounding, model.kinks = torch.finfo(_TYPES[question.dtype]).eps, kinks
    optimizers = {*question.optimizers, *(["sgd"] if question.has_layers else [])}
    again = first_order(model, inputs, question.task, optimizers, on_stream=lambda: advance(0.0))
    runs = []
    for run in (order, again):
        runs.append({})
        for optimizer in question.optimizers:
            runs[-1] |= _by_role(model, run, optimizer)
            runs[-1] |= _by_layer(model, run, optimizer) if question.has_layers else {}
        runs[-1] |= _gradients(model, run) if question.has_layers else {}
    model.rounding, model.kinks = 0.0, None
    unreliable = {}
    for name, exact in runs[0].items():
        # A member that diverged has no change, and hides no other's.
        change = torch.where(exact == 0, 0, (runs[1][name] / exact - 1).abs()).nan_to_num(0.0).max()
        if change > _FAST_LIMIT:
            unreliable[name] = float(change)
    return unreliable

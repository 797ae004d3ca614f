"""Answers of the kernel rung that take a while, kept in a file, each with a digest of the numbers it is the answer to.

Answers to other numbers (a scheme was corrected) are made anew; tests compute some of the others again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from depthlaw.network.network import Network
from depthlaw.system.files import write_atomically

if TYPE_CHECKING:
    from depthlaw.theory.kernel.predict import Inputs, Transformer

_HOW = "python -m depthlaw.paper_checks.experiments.kernel_laws makes it, in ten minutes"
DIGITS = 6
"""Of a value: far below its quasi-random error, and above what one machine's rounding differs from another's by."""

Key = tuple[str, str, tuple[str, ...]]
"""Of an answer: its network, the digest of its numbers, its optimizers."""


class Number(NamedTuple):
    """error: relative standard error of the quasi-random averages."""

    value: float
    error: float


@dataclass(frozen=True)
class Answer:
    """about: the network, as ``about`` has it. numbers: ``digest_of`` what the kernel rung was asked. by_optimizer: of
    those that share one walk, the number of "update" and of each role."""

    about: Mapping[str, Any]
    numbers: str
    by_optimizer: Mapping[str, Mapping[str, Number]]

    @property
    def key(self) -> Key:
        return _name(self.about), self.numbers, tuple(self.by_optimizer)


@dataclass(frozen=True)
class Question:
    """A network and the optimizers that share one walk over it. effort: as ``predict_kernel`` has it."""

    network: Network
    optimizers: tuple[str, ...]
    numbers: str
    effort: float = 1.0

    @property
    def key(self) -> Key:
        return _name(about(self.network)), self.numbers, self.optimizers


def about(network: Network) -> dict[str, Any]:
    """What tells it from the others, for people. A prediction knows no width, and the number of heads only where their
    queries, keys and values have norms."""
    sizes = network.num_layers or network.num_sublayers // 2
    first = {"scheme": network.scheme.name, "arch": network.arch, "num_layers": sizes}
    names = ("activation", "norm_kind", "is_causal", "predicted_head_size", "num_tokens", "batch_size", "correlation")
    rest = {name.removeprefix("predicted_"): getattr(network, name) for name in (*names, "readout", "loss")}
    heads = {"num_heads": network.num_heads} if network.scheme.stack.placement.heads else {}
    return first | rest | heads | network.block.options


def _name(about: Mapping[str, Any]) -> str:
    return json.dumps(about, sort_keys=True)


def _numbers(network: Network, optimizer: str) -> tuple[Transformer, Inputs]:
    """What the kernel rung is asked."""
    from depthlaw.network.kernel import as_inputs, as_transformer

    config = network.config(optimizer)
    return as_transformer(config, head_size=network.predicted_head_size), as_inputs(network.task, config)


def digest_of(network: Network, optimizer: str) -> str:
    """Of the plain numbers that the kernel rung gets."""
    from depthlaw.network.lower import digest_of_numbers

    return digest_of_numbers(*_numbers(network, optimizer))


def stored(path: Path) -> list[Answer]:
    """LookupError, in one line that says how to make it, where the file is missing or broken."""
    try:
        answers = json.loads(path.read_text(encoding="utf-8"))["answers"]
        return [
            Answer(
                row["about"],
                row["numbers"],
                {
                    optimizer: {role: Number(*pair) for role, pair in roles.items()}
                    for optimizer, roles in row["by_optimizer"].items()
                },
            )
            for row in answers
        ]
    except (OSError, ValueError, KeyError, TypeError):
        raise LookupError(f"there is no readable {path.name}: {_HOW}") from None


def write(path: Path, answers: Sequence[Answer]) -> None:
    """One answer a line, so that a changed one is one changed line."""
    head = {"note": f"Generated, {_HOW}; do not edit."}
    lines = ",\n".join(json.dumps(vars(answer), allow_nan=False) for answer in answers)
    write_atomically(path, json.dumps(head)[:-1] + ',\n"answers": [\n' + lines + "\n]}\n")


class Kept:
    """Answers by what they are of."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers = {(_name(answer.about), name): answer for answer in answers for name in answer.by_optimizer}

    def find(self, network: Network, optimizer: str) -> Answer:
        """LookupError, in one line, where there is none."""
        name = _name(about(network))
        if (name, optimizer) not in self._answers:
            raise LookupError(f"nothing is kept of {network.scheme.name} under {optimizer}: {name}")
        return self._answers[name, optimizer]


@cache
def read(path: Path) -> Kept:
    return Kept(stored(path))


def questions(networks: Sequence[Network], optimizers: Sequence[str], effort: float = 1.0) -> list[Question]:
    """Each once. Learning rates of one's own for some optimizers split them."""
    suffix = "" if effort == 1 else f" with {effort:g} times the points"
    asked: dict[Key, Question] = {}
    for network in networks:
        by_numbers: dict[str, list[str]] = {}
        for optimizer in optimizers:
            by_numbers.setdefault(digest_of(network, optimizer) + suffix, []).append(optimizer)
        for numbers, group in by_numbers.items():
            question = Question(network, tuple(group), numbers, effort)
            asked.setdefault(question.key, question)
    return list(asked.values())


def ask(question: Question) -> Answer:
    from depthlaw.theory.kernel.predict import predict_kernel

    transformer, inputs = _numbers(question.network, question.optimizers[0])
    updates = predict_kernel(transformer, inputs, question.optimizers, effort=question.effort)
    by_optimizer = {
        optimizer: {
            role: _number(value, update.error[role])
            for role, value in {"update": update.update, **update.roles}.items()
        }
        for optimizer, update in updates.items()
    }
    return Answer(about(question.network), question.numbers, by_optimizer)


def _number(value: float, error: float) -> Number:
    if not (math.isfinite(value) and math.isfinite(error)):
        raise ValueError(f"an update of {value} is none that a file can keep")
    return Number(float(f"{value:.{DIGITS}g}"), float(f"{error:.2g}"))


def collect(path: Path, asked: Sequence[Question], pool: Executor) -> Generator[None, None, None]:
    """Answer what the file lacks, and write it after each answer, in the order of ``asked``; nothing else stays.

    Yields after each answer, those that are there first.
    """
    try:
        kept = {answer.key: answer for answer in stored(path)}
    except LookupError:
        kept = {}
    there = {question.key: kept[question.key] for question in asked if question.key in kept}
    missing = [question for question in asked if question.key not in there]
    yield from (None for _ in there)
    pending = [pool.submit(ask, question) for question in missing]
    try:
        for done in as_completed(pending):
            answer = done.result()
            there[answer.key] = answer
            write(path, [there[question.key] for question in asked if question.key in there])
            yield
    finally:
        for future in pending:
            future.cancel()

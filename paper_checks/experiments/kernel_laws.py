"""How the update of a real Transformer grows with its depth, by role, at infinite width: the kernel rung, kept.

    python -m paper_checks.experiments.kernel_laws   # what kernel-laws.json and the others of results lack

Encoders of N layers (an attention and an FFN each), 16 tokens, full attention of infinitely large heads, one logit at
the last token; encoder-decoders of N layers on either side. kernel-measured.json has the same of the networks that the
project measures, with heads of the size that they have, kernel-training.json of those that it trains, and
kernel-recipes.json of the recipes, at the width and with the heads that they were published with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import linear_regression
from typing import Annotated

import typer

from paper_checks.experiments.kernel_kept import Kept, Question, collect, questions, read
from paper_checks.experiments.sweeps import KEPT_SCHEMES, OPTIMIZERS, SWEEPS
from paper_checks.lowering.networks import Network
from paper_checks.recipes.catalogue import RECIPES, recipe
from paper_checks.recipes.recipe import RECIPE_TOKENS
from paper_checks.system.places import RESULTS
from theory.schemes import scheme

LENGTHS = (1, 2, 4, 8, 16, 32, 64, 125, 250, 500, 1000)
"""N, layers."""
MOST_OF_TWO_SIDES = 250
LAWS = RESULTS / "kernel-laws.json"
MEASURED = RESULTS / "kernel-measured.json"
OF_RECIPES = RESULTS / "kernel-recipes.json"
RECIPE_LENGTHS = (12, 48, 192, 1000)
RECIPE_OPTIMIZERS = ("adamw", "muon+adamw")
_FIRST = ("post-ln", "pre-ln", "sub-ln", "deepnorm", "sub-ln-gamma", "su-adam", "su-sgd", "su-lamb", "gpt2", "t-fixup")
_ORDERED = (*_FIRST, *(name for name in KEPT_SCHEMES if name not in _FIRST))
_GELU = ("post-ln", "pre-ln", "sub-ln", "sub-ln-gamma", "deepnorm")
_RMSNORM = ("sub-ln", "sub-ln-gamma")
_CLOSE = "sub-ln-gamma"
"""Whether its update under sgd levels off hangs on small differences between deep stacks: they get more points."""
_TWO_SIDES = ("deepnorm", "post-ln", "sub-ln-gamma")


@dataclass(frozen=True, kw_only=True)
class Law:
    """By N: the update of all branch matrices, of each role, and the relative quasi-random error of either ("update"
    for the first)."""

    updates: Mapping[int, float]
    roles: Mapping[str, Mapping[int, float]]
    errors: Mapping[str, Mapping[int, float]]

    def of(self, role: str = "update") -> Mapping[int, float]:
        return self.updates if role == "update" else self.roles[role]

    def exponent(self, role: str = "update", first: int = 4, last: int = 1000) -> float | None:
        """d log U / d log N by least squares over the kept N of this range; None where a U is 0.

        LookupError where fewer than two N are kept.
        """
        points = [(length, value) for length, value in self.of(role).items() if first <= length <= last]
        if len(points) < 2:
            raise LookupError(f"an exponent needs two depths between {first} and {last}, and {len(points)} are kept")
        if not all(value for _, value in points):
            return None
        logs = [(math.log(length), math.log(value)) for length, value in points]
        return linear_regression(*zip(*logs, strict=True)).slope

    def local_exponents(self, role: str = "update") -> dict[tuple[int, int], float]:
        """Between neighbouring N; those of a U of 0 left out."""
        found = list(self.of(role).items())
        return {(n, m): math.log(y / x) / math.log(m / n) for (n, x), (m, y) in pairwise(found) if x and y}


def law(
    scheme: str, optimizer: str, *, activation: str = "relu", norm_kind: str = "layernorm", arch: str = "encoder"
) -> Law:
    """LookupError, in one line, where it is not kept."""
    return _law(
        LAWS,
        LENGTHS,
        lambda length: network_of(scheme, length, activation=activation, norm_kind=norm_kind, arch=arch),
        optimizer,
    )


def recipe_law(name: str, optimizer: str) -> Law:
    """Of a recipe, at ``RECIPE_LENGTHS``, under one of ``RECIPE_OPTIMIZERS``. LookupError where it is not kept."""
    return _law(OF_RECIPES, RECIPE_LENGTHS, lambda length: recipe_network(name, length), optimizer)


def _law(path: Path, lengths: Sequence[int], network_at: Callable[[int], Network], optimizer: str) -> Law:
    kept = read(path)
    numbers = {}
    for length in lengths:
        try:
            numbers[length] = kept.find(network_at(length), optimizer).by_optimizer[optimizer]
        except LookupError:
            if length == lengths[0]:
                raise
    names = next(iter(numbers.values()))
    values = {role: {length: one[role].value for length, one in numbers.items()} for role in names}
    errors = {role: {length: one[role].error for length, one in numbers.items()} for role in names}
    return Law(updates=values.pop("update"), roles=values, errors=errors)


def network_of(
    name: str, length: int, *, activation: str = "relu", norm_kind: str = "layernorm", arch: str = "encoder"
) -> Network:
    """Of N = length layers (on either side), with infinitely large heads."""
    is_double = arch == "encoder-decoder"
    return Network(
        scheme=scheme(name),
        arch=arch,
        num_sublayers=0 if is_double else 2 * length,
        num_layers=(length, length) if is_double else None,
        activation=activation,
        norm_kind=norm_kind,
        has_wide_heads=True,
    )


def recipe_network(name: str, length: int, d_model: int | None = None) -> Network:
    """Of N = length layers (on either side), as wide and with as many heads as it was published; or of another width,
    with heads as large as then. ValueError for a width that they do not divide."""
    found = recipe(name)
    width = found.size["d_model"] if d_model is None else d_model
    heads = found.size["num_heads"] if d_model is None else found.heads_at(width)
    if heads is None:
        raise ValueError(f"{name} has no number of heads that divides a width of {width}")
    is_double = found.arch == "encoder-decoder"
    return Network(
        recipe=found,
        scheme=found.as_scheme,
        arch=found.arch,
        num_sublayers=0 if is_double else 2 * length,
        num_layers=(length, length) if is_double else None,
        activation=found.activation,
        norm_kind=found.norm_kind,
        d_model=width,
        num_heads=heads,
        num_tokens=RECIPE_TOKENS,
    )


# ---------------------------------------------------------------- making it


def of_laws(lengths: Sequence[int] = LENGTHS) -> list[Question]:
    """Shallow ones first."""
    found: list[Question] = []
    for length in lengths:
        found += questions([network_of(name, length) for name in _ORDERED if name != _CLOSE], OPTIMIZERS)
        effort = 16.0 if length >= 64 else 1.0
        found += questions([network_of(_CLOSE, length)], ("sgd",), effort)
        found += questions([network_of(_CLOSE, length)], ("adam", "lamb"))
        others = [network_of(name, length, activation="gelu") for name in _GELU]
        others += [network_of(name, length, norm_kind="rmsnorm") for name in _RMSNORM]
        if length <= MOST_OF_TWO_SIDES:
            others += [network_of(name, length, arch="encoder-decoder") for name in _TWO_SIDES]
        found += questions(others, ("sgd",))
    return found


def of_measured() -> list[Question]:
    """The networks that the project measures on a CPU."""
    plain = [network for name in ("transformers", "transformer-variants") for network in SWEEPS[name].networks]
    return questions(plain, OPTIMIZERS) + questions(SWEEPS["blocks"].networks, SWEEPS["blocks"].optimizers)


def of_recipes(lengths: Sequence[int] = RECIPE_LENGTHS) -> list[Question]:
    """Shallow ones first."""
    return [
        question
        for length in lengths
        for question in questions([recipe_network(name, length) for name in RECIPES], RECIPE_OPTIMIZERS)
    ]


def measured() -> Kept:
    """What is kept of them. LookupError where there is no such file."""
    return read(MEASURED)


def run(processes: Annotated[int, typer.Option(help="At once.")] = 2) -> None:
    """Compute what the files lack; one that was stopped goes on."""
    from rich.progress import track

    from paper_checks.experiments.training_theory import PATH, of_training

    files = {LAWS: of_laws(), MEASURED: of_measured(), PATH: of_training(), OF_RECIPES: of_recipes()}
    with ProcessPoolExecutor(processes) as pool:
        for path, asked in files.items():
            for _ in track(collect(path, asked, pool), total=len(asked), description=path.name):
                pass


if __name__ == "__main__":
    typer.run(run)

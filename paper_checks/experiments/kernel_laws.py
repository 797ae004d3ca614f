"""How the update of a real Transformer grows with its depth, by role, at infinite width: the kernel rung, kept.

    python -m depthlaw.paper_checks.experiments.kernel_laws   # what kernel-laws.json and the others of results lack

Encoders of N layers (an attention and an FFN each), 16 tokens, full attention of infinitely large heads, one logit at
the last token; encoder-decoders of N layers on either side. kernel-measured.json has the same of the networks that the
project measures, with heads of the size that they have, and kernel-recipes.json of the recipes, at the width and with
the heads that they were published with.

kernel-training.json has it of the networks that are trained, before their first step: decoders on bytes, as the
experiments begin with them: 32 tokens, causal, heads of 16, one logit at the last one. The theory knows tokens of one
correlation; real ones are the same byte or not. So its correlation is the mean over the pairs of the sequence that the
update is measured on: 1/2, the share of x_0's variance that comes from the table of bytes, where two bytes are equal,
else 0. Left out: the 1e-5 in the norms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import linear_regression
from typing import Annotated, Any

import typer

from depthlaw.network.network import Network, sublayers_of
from depthlaw.network.trials import OF_RECIPE
from depthlaw.paper_checks.experiments import best_rates, stable_rates
from depthlaw.paper_checks.experiments.kernel_kept import Kept, Question, collect, questions, read
from depthlaw.paper_checks.experiments.scale import HEAD_SIZE, SMALL
from depthlaw.paper_checks.experiments.sweeps import KEPT_SCHEMES, OPTIMIZERS, SWEEPS
from depthlaw.recipes.catalogue import RECIPES, recipe
from depthlaw.sims.model import OTHER_ROLES
from depthlaw.system.places import RESULTS
from depthlaw.theory.kernel.predict import unit_power
from depthlaw.theory.schemes import scheme

LENGTHS = (1, 2, 4, 8, 16, 32, 64, 125, 250, 500, 1000)
"""N, layers."""
FIRST, BEFORE, LAST = 4, *LENGTHS[-2:]
"""Of the N that an exponent is over: the least, and the two largest, between which an update is "at the end"."""
FLAT = 0.05
"""An exponent that is smaller, at the end, is flat."""
FARTHEST = 10_000
"""Layers up to which an exponent is trusted beyond those that are kept."""
MATRICES = ("q", "k", "v", "out", "fc1", "fc2")
VECTORS = ("norm_gain", "norm_bias", "bias")
SHOWN_ROLES = (*MATRICES, *OTHER_ROLES)
MOST_OF_TWO_SIDES = 250
LAWS = RESULTS / "kernel-laws.json"
MEASURED = RESULTS / "kernel-measured.json"
OF_RECIPES = RESULTS / "kernel-recipes.json"
OF_TRAINING = RESULTS / "kernel-training.json"
TRAINING_CORRELATION = 0.054
"""Of the sequence that looks are at, in Python 3.11.7's library, to its last digit: ``correlation_of``."""
TRAINING_OPTIMIZER = "adam"
TRAINING_CASES = tuple((name, layers) for layers in stable_rates.LAYERS for name in stable_rates.SCHEMES)
"""(scheme, layers)."""
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

    def exponent(self, role: str = "update", first: int = FIRST, last: int = LAST) -> float | None:
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
        points = pairwise(self.of(role).items())
        return {(n, m): math.log(y / x) / math.log(m / n) for (n, x), (m, y) in points if x and y}


def law(scheme: str, optimizer: str, **options: str) -> Law:
    """options: activation, norm_kind and arch, as in ``network_of``. LookupError, in one line, where it is not kept."""
    return _law(LAWS, LENGTHS, lambda length: network_of(scheme, length, **options), optimizer)


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
    names = numbers[lengths[0]]
    values = {role: {length: row[role].value for length, row in numbers.items()} for role in names}
    errors = {role: {length: row[role].error for length, row in numbers.items()} for role in names}
    return Law(updates=values.pop("update"), roles=values, errors=errors)


# ---------------------------------------------------------------- what follows from a law


def laws() -> dict[tuple[str, str], Law]:
    """By scheme and optimizer. LookupError where one of them is not kept."""
    return {(name, optimizer): law(name, optimizer) for name in KEPT_SCHEMES for optimizer in OPTIMIZERS}


def last_exponent(law: Law, role: str = "update") -> float | None:
    """Between the two largest N; None where U is 0 there."""
    return law.local_exponents(role).get((BEFORE, LAST))


def growing(law: Law) -> list[str]:
    """The roles that still grow at the greatest depth."""
    ends = {role: last_exponent(law, role) for role in SHOWN_ROLES if role in law.roles}
    return [role for role, end in ends.items() if end is not None and end >= FLAT]


def at(law: Law, role: str, layers: float) -> float:
    """U at any N, between kept ones along the straight line of the logarithms; 0 where there is no such role."""
    if role != "update" and role not in law.roles:
        return 0.0
    values = law.of(role)
    if layers in values:
        return values[int(layers)]
    low, high = max(n for n in values if n < layers), min(n for n in values if n > layers)
    part = math.log(layers / low) / math.log(high / low)
    return values[low] ** (1 - part) * values[high] ** part


def share(law: Law, optimizer: str, role: str, d_model: int, layers: float) -> float:
    """The role's part over that of the matrices, at this width."""
    return at(law, role, layers) * d_model ** -unit_power(optimizer, role) / at(law, "update", layers)


def multiplier(law: Law, role: str, tuned: int, layers: int) -> float | None:
    """What a role's learning rate is multiplied by, from ``tuned`` layers to ``layers``, for its U to be as before.

    None where there is no such role, or where it does not move.
    """
    now = at(law, role, layers)
    return at(law, role, tuned) / now if now else None


def overtakes(law: Law, optimizer: str, role: str, d_model: int) -> float | None:
    """The N from which the role's part is larger than that of the matrices; beyond what is kept, by the last exponents.

    None where it is not up to ``FARTHEST``, or where one of the two is 0.
    """
    if not law.updates[LAST] or not at(law, role, LAST):
        return None
    depth = crossing(lambda layers: share(law, optimizer, role, d_model, layers))
    if depth is not None:
        return depth
    ends = last_exponent(law, role), last_exponent(law)
    assert ends[0] is not None and ends[1] is not None
    farther = (FARTHEST / LAST) ** (ends[0] - ends[1])
    missing = 1 / share(law, optimizer, role, d_model, LAST)
    return LAST * missing ** (1 / (ends[0] - ends[1])) if missing <= farther else None


def overtakes_together(law: Law, optimizer: str, d_model: int) -> float | None:
    """The same of all vectors together; None beyond what is kept."""
    return crossing(lambda layers: sum(share(law, optimizer, role, d_model, layers) for role in VECTORS))


def crossing(value: Callable[[float], float]) -> float | None:
    """The N at which a value that is a power between kept N first reaches 1; None where it does not."""
    if value(LENGTHS[0]) >= 1:
        return LENGTHS[0]
    for low, high in pairwise(LENGTHS):
        before, after = value(low), value(high)
        if before < 1 <= after:
            return low * (high / low) ** (math.log(1 / before) / math.log(after / before))
    return None


def network_of(
    name: str, length: int, *, activation: str = "relu", norm_kind: str = "layernorm", arch: str = "encoder"
) -> Network:
    """Of N = length layers (on either side), with infinitely large heads."""
    return Network(
        scheme=scheme(name),
        arch=arch,
        **sublayers_of((length, length) if arch == "encoder-decoder" else length),
        activation=activation,
        norm_kind=norm_kind,
        has_wide_heads=True,
    )


def recipe_network(name: str, length: int) -> Network:
    """Of N = length layers (on either side), as wide and with as many heads as it was published."""
    model = recipe(name)
    return Network.of_recipe(model, length, model.size["d_model"], num_heads=model.size["num_heads"])


def training_network(
    name: str,
    num_layers: int,
    width: int = SMALL.d_model,
    correlation: float = TRAINING_CORRELATION,
    head_size: int = HEAD_SIZE,
) -> Network:
    """Of the arms with that scheme, so many layers and that width. correlation: of the tokens of their text, half of
    it the bytes', half the positions'."""
    heads = width // head_size
    if name.startswith(OF_RECIPE):
        model = recipe(name.removeprefix(OF_RECIPE))
        # Where positions turn queries and keys alone, all of x_0's variance is the bytes'.
        of_bytes = correlation * (2 if model.rotary_base else 1)
        sequence: dict[str, Any] = {"num_tokens": SMALL.num_tokens, "correlation": of_bytes}
        return Network.of_recipe(model, num_layers, width, num_heads=heads, **sequence)
    return Network(
        scheme=scheme(name),
        arch="decoder",
        is_causal=True,
        num_sublayers=2 * num_layers,
        d_model=width,
        num_heads=heads,
        num_tokens=SMALL.num_tokens,
        correlation=correlation,
    )


def training_update(name: str, num_layers: int, optimizer: str = TRAINING_OPTIMIZER) -> float:
    """U at initialisation. LookupError where it is not kept."""
    answer = read(OF_TRAINING).find(training_network(name, num_layers), optimizer)
    return answer.by_optimizer[optimizer]["update"].value


def correlation_of(data: str = "causal", num_sequences: int = 1) -> float:
    """Of the first held-out sequences of a text, the mean, on this machine: half the share of pairs of positions with
    equal bytes."""
    from depthlaw.sims.training.data import DataConfig, load

    tokens_NT = load(DataConfig(name=data, num_tokens=SMALL.num_tokens)).held_out(num_sequences).inputs
    same_NTT = (tokens_NT[:, :, None] == tokens_NT[:, None, :]).double()
    num = tokens_NT.shape[1]
    return float((same_NTT.sum((1, 2)) - num).mean() / (num * (num - 1)) / 2)


def of_laws(lengths: Sequence[int] = LENGTHS) -> list[Question]:
    """Shallow ones first."""
    asked: list[Question] = []
    for length in lengths:
        asked += questions([network_of(name, length) for name in _ORDERED if name != _CLOSE], OPTIMIZERS)
        asked += questions([network_of(_CLOSE, length)], ("sgd",), 16.0 if length >= 64 else 1.0)
        asked += questions([network_of(_CLOSE, length)], ("adam", "lamb"))
        others = [network_of(name, length, activation="gelu") for name in _GELU]
        others += [network_of(name, length, norm_kind="rmsnorm") for name in _RMSNORM]
        if length <= MOST_OF_TWO_SIDES:
            others += [network_of(name, length, arch="encoder-decoder") for name in _TWO_SIDES]
        asked += questions(others, ("sgd",))
    return asked


def of_measured() -> list[Question]:
    """The networks that the project measures."""
    plain = [network for name in ("transformers", "transformer-variants") for network in SWEEPS[name].networks]
    others = (SWEEPS["blocks"], SWEEPS["deep"])
    return sum((questions(sweep.networks, sweep.optimizers) for sweep in others), questions(plain, OPTIMIZERS))


def of_training() -> list[Question]:
    of_largest = questions([training_network(*case) for case in TRAINING_CASES], (TRAINING_OPTIMIZER,))
    best = [training_network(name, layers) for layers in best_rates.LAYERS for name in best_rates.SCHEMES]
    return of_largest + questions(best, (best_rates.OPTIMIZER,))


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

    files = {LAWS: of_laws(), MEASURED: of_measured(), OF_TRAINING: of_training(), OF_RECIPES: of_recipes()}
    with ProcessPoolExecutor(processes) as pool:
        for path, asked in files.items():
            for _ in track(collect(path, asked, pool), total=len(asked), description=path.name):
                pass


if __name__ == "__main__":
    typer.run(run)

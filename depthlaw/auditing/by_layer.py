"""What each sublayer of a module does: to its stream on the way forward, and what reaches that on the way back.

Measured of a module that was looked at, by the graph of that look, beside what the kernel rung predicts of each x_l
(``theory.kernel.predict.Stream``, whose names it has). The gradient is that of what ``auditing.updates`` reads of the
output; a head of our own has length 1 here, so that its draw is no scatter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from depthlaw.auditing.reading.look import Built, Sublayer, look, mean_square
from depthlaw.auditing.reading.sublayer import added
from depthlaw.auditing.reading.weights import Weight
from depthlaw.auditing.updates import is_half, read_out
from depthlaw.network.predicted_rows import of_stream, percent
from depthlaw.sims.stats import estimate, num_diverged
from depthlaw.system.page import times
from depthlaw.theory.kernel.predict import KernelUpdate

OF_MATRICES = "matrices_gradient_square"
QUANTITIES = ("second_moment", "branch_share", "cosine_with_previous", "gradient_square", OF_MATRICES)
_BEHIND = ("branch_share", "cosine_with_previous")
"""What is said of x_l, the stream behind a sublayer; the rest is of the stream before it."""
_RUNS_AWAY = 10.0
"""By which factor numbers multiply from layer to layer where they grow by it while the number of sublayers doubles: a
sum of branches grows by 2, by 4 where all push in one direction, and by 9 from 1 1/2 layers to 3."""
_NOTHING = 0.01
"""Of a sublayer: were all like it, the branches would together be less than this share of the stream."""
_MOST_NAMES = 6


@dataclass(frozen=True, kw_only=True)
class AtSublayer:
    """One sublayer. name: the user's own, as ``labels`` has it. measured: by quantity, a value for each seed.
    predicted: by quantity, where there is a prediction. Beside ``QUANTITIES`` both have that of the matrices of each
    role, as ``of_role`` names it."""

    side: str
    index: int
    layer: int
    kind: str
    name: str
    measured: Mapping[str, Sequence[float]]
    predicted: Mapping[str, float | None]

    def mean(self, quantity: str) -> float:
        """NaN where a seed's value is not finite."""
        values = self.measured[quantity]
        return math.nan if not values or num_diverged(values) else estimate(values).mean

    def document(self) -> dict[str, Any]:
        row: dict[str, Any] = {key: getattr(self, key) for key in ("side", "index", "layer", "kind", "name")}
        row |= {quantity: self._interval(quantity) for quantity in QUANTITIES}
        roles = [name.removeprefix(of_role("")) for name in self.measured if name.startswith(of_role(""))]
        return row | {f"{OF_MATRICES}_by_role": {role: self._interval(of_role(role)) for role in roles}}

    def _interval(self, quantity: str) -> dict[str, float | None]:
        values = self.measured[quantity]
        is_known = bool(values) and not num_diverged(values)
        mean = estimate(values) if is_known else None
        interval = {key: mean and getattr(mean, key) for key in ("mean", "low", "high")}
        return {"measured": interval.pop("mean"), **interval, "predicted": self.predicted.get(quantity)}


def of_role(role: str) -> str:
    """The name of ``OF_MATRICES`` of one role's matrices.

    >>> from depthlaw.auditing.by_layer import of_role
    >>> of_role("fc1")
    'matrices_gradient_square/fc1'
    """
    return f"{OF_MATRICES}/{role}"


# ---------------------------------------------------------------- measured


def measured(built: Built, *, is_of_others: bool = False) -> list[dict[str, float]]:
    """By quantity, of each sublayer of all sides. What is not to be seen is NaN, and a gradient that is no finite
    number is infinite. is_of_others: whether what was read is of other draws (``Built.of_other_draws``), so that the
    module is looked at. One of half precision becomes one of single precision, as the update makes it."""
    if is_of_others or is_half(built.module):
        module = built.module.float() if is_half(built.module) else built.module
        built = look(module, built.inputs.in_floats())
    flow, subs = built.flow, built.sublayers
    last = flow.output.flatten(0, -2)[-1]
    vector = read_out(built, last)
    matrices = {id(weight.parameter): weight.parameter for sub in subs for weight in sub.weights}
    matrices = {key: matrix for key, matrix in matrices.items() if matrix.requires_grad}
    try:
        gradients = torch.autograd.grad(
            last @ (vector / vector.norm()),
            [*(GradientEdge(sub.start, 0) for sub in subs), *map(get_gradient_edge, matrices.values())],
            retain_graph=True,
            allow_unused=True,
        )
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"the backward pass of {type(built.module).__name__} fails: {reason}") from error
    of_matrices = dict(zip(matrices, gradients[len(subs) :], strict=True))
    rows = []
    for sub, gradient in zip(subs, gradients, strict=False):
        start, end = flow.value((sub.start, 0)), flow.value((sub.end, 0))
        row = dict.fromkeys(QUANTITIES, math.nan)
        row["second_moment"] = mean_square(start) / sub.start_scale**2
        if gradient is not None:
            square = gradient.double().square().sum().item() * sub.start_scale**2
            row["gradient_square"] = square if math.isfinite(square) else math.inf
        by_role = {of_role(role): _square(weights, of_matrices) for role, weights in sub.roles.items()}
        row |= by_role | ({OF_MATRICES: sum(by_role.values())} if by_role else {})
        if start is not None and end is not None and start.shape == end.shape:
            does = added(start, end, sub.summed_weight)
            row |= {"branch_share": does.share, "cosine_with_previous": does.cosine}
        rows.append(row)
    return rows


def _square(weights: Sequence[Weight], gradients: Mapping[int, torch.Tensor | None]) -> float:
    """||g||^2 of the matrices that the data meet, all of one role; NaN where one is not trained, or not reached."""
    given = [(weight, gradients.get(id(weight.parameter))) for weight in weights]
    parts = (
        math.nan if of is None else (weight.of(of).double() / weight.factor).square().sum() for weight, of in given
    )
    return float(sum(parts))


# ---------------------------------------------------------------- beside what is predicted


def rows_of(
    built: Built, seeds: Sequence[Sequence[Mapping[str, float]]], answer: KernelUpdate | None
) -> list[AtSublayer]:
    """A row for each sublayer. answer: what the kernel rung says of the module; None where it says nothing."""
    streams = {} if answer is None else dict(zip(built.sides, answer.streams.values(), strict=False))
    matrices = {} if answer is None else dict(zip(built.sides, answer.gradients.values(), strict=False))
    names = labels(built.sublayers)
    reaches = any(row["gradient_square"] for of_seed in seeds for row in of_seed)
    rows = []
    for place, sub in enumerate(built.sublayers):
        of_side = [of_stream(stream) for stream in streams.get(sub.side, ())]
        predicted = {}
        for quantity in QUANTITIES[:-1] if sub.index < len(of_side) else ():
            predicted[quantity] = of_side[sub.index if quantity in _BEHIND else sub.index - 1][quantity]
        if of_layers := matrices.get(sub.side, ()):
            of_layer = of_layers[(sub.index - 1) % len(of_layers)]
            squares = {of_role(role): built.d_model * norm**2 for role, norm in of_layer.items()}
            predicted |= squares | {OF_MATRICES: sum(squares.values())}
        if not reaches:  # a head that starts at 0, of which the prediction is as if it did not
            predicted = {name: value for name, value in predicted.items() if "gradient" not in name}
        rows.append(
            AtSublayer(
                side=sub.side,
                index=sub.index,
                layer=sub.layer,
                kind=sub.kind,
                name=names[place],
                measured={name: [of_seed[place][name] for of_seed in seeds] for name in seeds[0][place]},
                predicted=predicted,
            )
        )
    return rows


def labels(subs: Sequence[Sublayer]) -> list[str]:
    """Each by its part of the module. With its kind, where a part has others in it that are sublayers, too; with its
    number, where one part is several."""
    called = [sub.called for sub in subs]
    many = {name for name in called if called.count(name) > 1 or any(other.startswith(f"{name}.") for other in called)}
    names = [f"{name} ({sub.kind})" if name in many else name for name, sub in zip(called, subs, strict=True)]
    again = {name for name in names if names.count(name) > 1}
    return [f"{name}, sublayer {sub.index}" if name in again else name for name, sub in zip(names, subs, strict=True)]


# ---------------------------------------------------------------- in words


def says(rows: Sequence[AtSublayer]) -> list[str]:
    """Where the stream or the gradient explodes or vanishes over depth, and which sublayers do nothing; nothing where
    that is not so."""
    sides = {row.side: [each for each in rows if each.side == row.side] for row in rows}
    lines: list[str] = []
    for side, of_side in sides.items():
        of = f" of the {side}" if len(sides) > 1 else ""
        lines += [*_of_stream(of_side, of), *_of_gradient(of_side, of), *_of_nothing(of_side, of)]
    return lines


def _of_stream(rows: Sequence[AtSublayer], of: str) -> Iterator[str]:
    values = [row.mean("second_moment") for row in rows]
    beyond = next((place for place, value in enumerate(values) if not math.isfinite(value)), None)
    if beyond:
        yield f"The stream{of} explodes: behind {rows[beyond - 1].name} its numbers are beyond the floats."
    elif (ends := _runs_away(rows, values)) is not None:
        first, last = ends
        verb = "explodes" if values[last] > values[first] else "vanishes"
        yield (
            f"The stream{of} {verb} over depth: its second moment goes from {values[first]:.3g} before "
            f"{rows[first].name} to {values[last]:.3g} before {rows[last].name}{_most(rows, values, first, last)}."
        )


def _of_gradient(rows: Sequence[AtSublayer], of: str) -> Iterator[str]:
    if lost := [row.name for row in rows if math.inf in row.measured["gradient_square"]]:
        yield f"The gradient{of} is lost on its way back: before {lost[-1]} it is no finite number."
        return
    values = [row.mean("gradient_square") for row in rows]
    if not all(map(math.isfinite, values)) or (ends := _runs_away(rows, values)) is None:
        return
    first, last = ends
    verb = "explodes" if values[first] > values[last] else "vanishes"
    yield (
        f"The gradient{of} {verb} on its way back: its square goes from {values[last]:.3g} before {rows[last].name} to "
        f"{values[first]:.3g} before {rows[first].name}{_most(rows, values, first, last)}."
    )


def _runs_away(rows: Sequence[AtSublayer], values: Sequence[float]) -> tuple[int, int] | None:
    """Between which places numbers multiply from layer to layer. The first layer is passed over: beside a small
    embedding it makes the stream what it is."""
    size = sum(row.layer == rows[0].layer for row in rows)
    pairs = [(place, 2 * place) for place in range(size, (len(rows) + 1) // 2)]
    for rises in (True, False):
        stretches = [
            (low, high)
            for low, high in pairs
            if (values[high] > _RUNS_AWAY * values[low] if rises else values[low] > _RUNS_AWAY * values[high])
        ]
        if stretches:
            return stretches[0][0], stretches[-1][1]
    return None


def _most(rows: Sequence[AtSublayer], values: Sequence[float], first: int, last: int) -> str:
    """The one sublayer that does most of it, if there is one."""
    if not all(values[first : last + 1]):
        return ""
    steps = [math.log(after / before) for before, after in pairwise(values[first : last + 1])]
    most = max(steps, key=abs)
    if 2 * most / sum(steps) <= 1 or len(steps) < 3:
        return ""
    return f", most of it at {rows[first + steps.index(most)].name} ({times(math.exp(abs(most)))})"


def _of_nothing(rows: Sequence[AtSublayer], of: str) -> Iterator[str]:
    idle = [row for row in rows if row.mean("branch_share") * len(rows) < _NOTHING]
    if not idle:
        return
    most = max(row.mean("branch_share") for row in idle)
    part = percent(most).replace("< ", "less than ") if most < 0.001 else f"at most {percent(most)}"
    if len(idle) == len(rows):
        yield f"No sublayer{of} does anything at the start: each adds {part} of the stream."
        return
    names = ", ".join(row.name for row in idle[:_MOST_NAMES])
    more = f" and {len(idle) - _MOST_NAMES} more" if len(idle) > _MOST_NAMES else ""
    does = "does nothing at the start: it adds" if len(idle) == 1 else "do nothing at the start: they add"
    yield f"{names}{more} {does} {part} of the stream{of}."

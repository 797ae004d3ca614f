"""What stands by layer in a row of ``predict`` or ``measure``, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from depthlaw.cli.shared import words
from depthlaw.system.page import Page, grid

_SHOWN_LAYERS = 16
_IN_JSON_ALONE = ("gradient_square", "log10_gradient_square")
"""What the Jacobian's norm is of."""
_MEANINGS = {
    "second moment": "of an entry of x_l",
    "token correlation": "the mean cosine of two tokens",
    "cosine with previous": "of x_l and x_(l-1), 1 where a sublayer is the identity",
    "cosine with input": "of x_l and x_0",
    "branch share": "of the sum's square what the branch adds",
    "jacobian": "the root mean square of the singular values of the Jacobian from x_l to the last sum; so much longer "
    "is the gradient at x_l than there",
}
"""What the columns are."""


def show_layers(page: Page, row: Mapping[str, Any]) -> None:
    """Of a row that has ``streams``, ``updates_by_layer`` and ``gradients_by_layer``; of another nothing."""
    shown: dict[str, None] = {}
    for side, streams in row.get("streams", {}).items():
        names = dict.fromkeys(name for stream in streams.values() for name in stream if name not in _IN_JSON_ALONE)
        columns = {name.replace("_", " "): {at: values.get(name) for at, values in streams.items()} for name in names}
        of_side = {"encoder": 2 * row.get("num_layers", 0), "decoder": 3 * row.get("num_decoder_layers", 0)}
        num_sublayers = of_side[side] if "num_layers" in row else row["num_sublayers"]
        last = f"; x_{len(streams) - 1}: behind the final norm" if len(streams) - 1 > num_sublayers else ""
        which = f" of the {side}" if len(row["streams"]) > 1 else ""
        _show_columns(page, f"L = {row['num_sublayers']}: x_l{which}{last}", "l", columns)
        shown |= dict.fromkeys(columns)
        page.say(_in_words(list(streams.values())[: num_sublayers + 1]))
    if meanings := [f"{name}: {meaning}." for name, meaning in _MEANINGS.items() if name in shown]:
        page.say(" ".join(meanings), "dim")
    if parts := _by_kind(row.get("updates_by_layer", {})):
        order = ", the encoder's first" if "num_layers" in row else ""
        heading = f"L = {row['num_sublayers']}: update of the n-th sublayer of a kind{order}"
        _show_columns(page, heading, "n", parts)
    if norms := row.get("gradients_by_layer", {}):
        heading = f"L = {row['num_sublayers']}: norm of the gradient of the n-th matrix of a role, over sqrt(d_model)"
        _show_columns(page, heading, "n", norms)
        ratios = ((role, of_role["1"], list(of_role.values())[-1]) for role, of_role in norms.items())
        ends = [f"{role} x {first / last:.3g}" for role, first, last in ratios if first is not None and last]
        page.say(f"The first of a role beside its last: {', '.join(ends)}.")


def _in_words(streams: list[Mapping[str, float | None]]) -> str:
    """What becomes of the stream's size, how much the first and the last sublayer do, and what reaches x_0."""
    end = len(streams) - 1
    moments = [stream.get("second_moment") for stream in streams]
    cosines = [stream.get("cosine_with_previous") for stream in streams]
    texts = []
    if moments[0] and moments[-1]:
        texts.append(f"From x_0 to x_{end} the second moment goes from {moments[0]:.3g} to {moments[-1]:.3g}.")
    if cosines[1] is not None and cosines[-1] is not None:
        texts.append(
            f"The first sublayer's output has a cosine of {cosines[1]:.3g} with its input, the last's "
            f"{cosines[-1]:.3g}."
        )
    if (ratio := streams[0].get("jacobian")) is not None:
        texts.append(f"The gradient at x_0 is {ratio:.3g} times as long as at x_{end}.")
    return " ".join(texts)


def _by_kind(by_role: Mapping[str, Mapping[str, float | None]]) -> dict[str, dict[str, float | None]]:
    """The matrices of a sublayer together, by kind and number. None where one of them is missing; fc3 is of gated FFNs
    alone."""
    sums: dict[str, dict[str, float | None]] = {}
    for kind, roles in words.ROLES_OF_KINDS.items():
        present = [by_role[role] for role in roles if role in by_role]
        num_wanted = sum(role in by_role or role != "fc3" for role in roles)
        for number in dict.fromkeys(number for values in present for number in values):
            known = [part for values in present if (part := values.get(number)) is not None]
            sums.setdefault(kind, {})[number] = sum(known) if len(known) == num_wanted else None
    return sums


def _show_columns(page: Page, heading: str, first: str, columns: Mapping[str, Mapping[str, float | None]]) -> None:
    """Few enough lines to read, evenly, and the last."""
    lines = list(dict.fromkeys(line for values in columns.values() for line in values))
    shown = dict.fromkeys([*lines[:: -(-len(lines) // _SHOWN_LAYERS)], lines[-1]])
    values = ((line, [column.get(line) for column in columns.values()]) for line in shown)
    page.say(heading)
    page.show(grid([first, *columns], ([line, *("-" if x is None else f"{x:.4g}" for x in xs)] for line, xs in values)))

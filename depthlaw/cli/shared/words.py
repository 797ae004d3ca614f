"""What the numbers of ``predict`` and ``measure`` are, in words: titles, units, and what an answer leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

_IN_TITLE = ("scheme", "optimizer", "arch", "d_model", "activation", "norm_kind", "w", "v")
ROLES_OF_KINDS = {
    "attention": ("q", "k", "v", "out"),
    "cross": ("cross_q", "cross_k", "cross_v", "cross_out"),
    "ffn": ("fc1", "fc2", "fc3"),
}
"""The matrices that an update sums, by kind of sublayer."""


def title(answer: Mapping[str, Any]) -> str:
    """Of the table and of the plot."""
    arch = answer.get("network", {}).get("arch", "ffn")
    names = (f"{answer['scheme']} under {answer['optimizer']}", answer["activation"], answer["norm_kind"])
    return ", ".join(names if arch == "ffn" else (*names, arch))


def rest(network: Mapping[str, Any]) -> str:
    """What the title does not say: a scheme of one's own, heads, tokens, ..."""
    texts = []
    for name, value in network.items():
        if name not in _IN_TITLE and value is not None and value is not False:
            word = name.removeprefix("is_").removeprefix("has_").removeprefix("num_").replace("_", " ")
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            texts.append(word if value is True else f"{word} {shown}")
    return "; ".join(texts)


def short(number: int) -> str:
    """A count; from a million on with a power of ten, where that loses no digit.

    >>> from depthlaw.cli.shared.words import short
    >>> short(4096), short(1_000_000_000), short(12_500_000)
    ('4096', '1e9', '1.25e7')
    """
    power = len(str(number)) - 1
    return str(number) if number < 10**6 else f"{Decimal(number).scaleb(-power).normalize()}e{power}"


def depth_cells(row: Mapping[str, Any], *, is_in_layers: bool) -> dict[str, str]:
    """The depth by column: layers stand beside sublayers L where they were given. Of layers that are visited again
    both count each visit, and the layers stand as "4 x 8", the number of their own and of visits."""
    depth, visits = {"L": short(row["num_sublayers"])}, row.get("visits", 1)
    times = f" x {visits}" if visits > 1 else ""
    if "num_layers" in row:
        sides = (row[name] // visits for name in ("num_layers", "num_decoder_layers"))
        return {"layers": "-".join(map(str, sides)) + times} | depth
    if is_in_layers:
        return {"layers": f"{row['num_sublayers'] // (2 * visits)}{times}"} | depth
    return {"L": f"{row['num_sublayers'] // visits}{times}"} if times else depth


def visits_text(answer: Mapping[str, Any]) -> str:
    """Empty where each layer is visited once."""
    if all("visits" not in row for row in answer["rows"]):
        return ""
    from depthlaw.theory.rules.visits import counts_as

    number = "R" if counts_as("post", answer["optimizer"], 1, 2) == 2 else "R^2"
    return (
        "x: visits of the same layers, with the same weights. The L of the scheme's formulas, as of all that is said "
        "here, is the number of residual sums, a sublayer at each of its visits. Where branches are small beside the "
        f"stream, R visits of a layer move the output as far as {number} layers of their own under "
        f"{answer['optimizer']}, and so `depthlaw rule --visits R` counts them; the stream grows by them as by R^2 "
        "layers."
    )


def update_text(answer: Mapping[str, Any]) -> str:
    """What the numbers are."""
    objective, network = "one logit", answer.get("network", {})
    if network.get("loss") == "ce":
        objective = "the loss"
    elif network.get("readout") == "sum":
        objective = "the sum of a logit of each token"
    return (
        f"L: residual sublayers; N: layers. update: what a first step of the branch matrices changes {objective} "
        f"by, to first order, per unit learning rate, divided by {unit_text(answer)}."
    )


def unit_text(answer: Mapping[str, Any], less: float = 0.0) -> str:
    """A power of the width, which makes it O(1); of a hidden state's change, half a power less."""
    power, constant = answer["unit"]["power"] - less, answer["unit"]["constant"]
    factors = [*([f"{constant:g}"] if constant != 1 else []), *([_power_of_width(power)] if power else [])]
    return " ".join(factors) or "1"


def _power_of_width(power: float) -> str:
    return "d_model" + ("" if power == 1 else f"^{power:g}")


def others_text(role_units: Mapping[str, float]) -> str:
    """Roles beside the branch matrices, and the power of the width that each is multiplied by; empty without any."""
    branches = {role for kind in ROLES_OF_KINDS.values() for role in kind}
    others = [role for role in role_units if role not in branches]
    if not others:
        return ""
    text = f"Not in update: {', '.join(others)}."
    for power in sorted({role_units[role] for role in others} - {0}):
        roles = ", ".join(role for role in others if role_units[role] == power)
        text += f" Shown times {_power_of_width(power)}: {roles}."
    return text


def finite_width_text(rows: Sequence[Mapping[str, Any]], width: int) -> str:
    """How large L/d is, of whose order the error of a prediction at infinite width is."""
    last = max(row["num_sublayers"] for row in rows)
    return f"L/d is {last / width:.2g} for L = {last} at d = {width}."


def error_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The largest of the kernel rung's own errors."""
    errors = [value for row in rows for value in row.get("error", {}).values() if value is not None]
    return f"Standard error of its quasi-random points: {100 * max(errors, default=0):.2g} % at most."


def left_out_text(answer: Mapping[str, Any]) -> str:
    """Empty where nothing is."""
    return f"Left out of {answer['scheme']}: {answer['left_out']}." if answer.get("left_out") else ""


def identity_text(answer: Mapping[str, Any]) -> str:
    """Empty where the first step moves matrices of branches."""
    rows = answer["rows"]
    moves = [role for role in ("branch_weight", "layer_scale") if all(row["roles"].get(role) for row in rows)]
    if not moves or any(row["update"] != 0 for row in rows):
        return ""
    return (
        "Every layer starts as the identity, as its branches are multiplied by 0: a first step moves none of their "
        f"matrices, only what multiplies them ({', '.join(moves)}), and what stands outside of the branches."
    )


def admin_text(answer: Mapping[str, Any]) -> str:
    """Empty of other networks."""
    if answer["scheme"] != "admin" or answer["network"]["arch"] == "ffn":
        return ""
    return "admin: its residual weights are those of attention to equal tokens; profiled on these it would be less."

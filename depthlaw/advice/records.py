"""What the project's own training runs say of a scheme."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

from depthlaw.sims.config import GATED, ModelConfig
from depthlaw.system.places import RESULTS, TRAINING_RECORDS

GAINS = RESULTS / "gains.json"
"""What each remedy gained in the runs of ``transfer``; generated with TRAINING.md."""

_FAMILIES = ("adam", "adamw")
"""A first step of the two is one: a run under either is a record of both."""
_ONE = 1e-4
"""Relative: a number that was read off a user's model is so near to the one that it is."""
_OTHERS = ("after-start", "transfer")
"""How the names of records begin that do not say which schemes train: the first is of a few steps, the second of ways
to go deeper. They are not in the wheel."""


def record_of(scheme: str, optimizer: str, num_sides: int = 1) -> dict[str, Any] | None:
    """The project's training runs of a named scheme under that optimizer; None where there are none.

    num_sides: 2 for those of encoder-decoders.
    largest_rate: by layers, the largest learning rate at which a run trained. Adam and AdamW without decay are one.
    """
    names = _FAMILIES if optimizer in _FAMILIES else (optimizer,)
    runs = [
        run
        for run in training_runs(TRAINING_RECORDS)
        if run["scheme"] == scheme and run["optimizer"] in names and run["num_sides"] == num_sides
    ]
    if not runs:
        return None
    trained = [run for run in runs if run["outcome"] == "trained"]
    layers = sorted({run["num_layers"] for run in trained})
    return {
        "scheme": scheme,
        "optimizers": sorted({run["optimizer"] for run in runs}),
        "blocks": sorted({f"{run['activation']}, {run['norm_kind']}" for run in runs}),
        "layers": sorted({run["num_layers"] for run in runs}),
        "num_runs": len(runs),
        "num_trained": len(trained),
        "largest_rate": {
            str(count): max(run["learning_rate"] for run in trained if run["num_layers"] == count) for count in layers
        },
    }


def kind_of(few: ModelConfig, many: ModelConfig) -> dict[str, Any]:
    """By what a model is compared with those that were trained: whether norms stand behind the sums, whether its FFN
    has a gate, and which of a sublayer's numbers are others in a deeper one.

    few, many: the model, with the numbers of a shallower one and with its own.
    """
    sublayers = [sublayer for _, several in many.sides for sublayer in several]
    pairs: list[tuple[str, float, float]] = []
    for first, last in zip(few.encoder[-2:], many.encoder[-2:], strict=True):  # attention and FFN, or both in one
        pairs += [(name, getattr(first, name), getattr(last, name)) for name in ("residual_weight", "branch_weight")]
        for name in ("gains", "lr_multipliers"):
            before, after = getattr(first, name), getattr(last, name)
            pairs += [(name, before.get(role, 1.0), after.get(role, 1.0)) for role in {*before, *after}]
    changed = {name for name, value, other in pairs if not math.isclose(value, other, rel_tol=_ONE)}
    return {
        "is_post_norm": any("post" in many.places(sublayer) for sublayer in sublayers),
        "is_gated": many.activation in GATED,
        "changes_with_depth": sorted(changed),
    }


def gain_of(remedy: str, model: str, few: ModelConfig, many: ModelConfig, optimizer: str) -> dict[str, Any] | None:
    """What a remedy gained in training: a row of ``GAINS``, and whether it is of the model itself.

    The row is of the model that was asked about, or else of the nearest that was trained: one with its norms in the
    same place and numbers of the same kind that are others in a deeper model (one whose branch weight falls with depth
    is like none that has no such weight), and if possible with an FFN of the same kind. None where nothing like it was
    trained: a model of another form, or with two sides, or under an optimizer without runs of its own or its family's.

    few, many: as in ``kind_of``.
    """
    if len(many.sides) > 1 or not _has_trained_form(many):
        return None
    shape = kind_of(few, many)
    same = ("is_post_norm", "changes_with_depth")
    names = _FAMILIES if optimizer in _FAMILIES else (optimizer,)
    tried = [row for row in _gains() if row["optimizer"] in names and row["remedy"] == remedy]
    rows = [row for row in tried if all(row[name] == shape[name] for name in same)]
    if not rows:
        return None
    nearest = min(rows, key=lambda row: (row["model"] != model, row["is_gated"] != shape["is_gated"]))
    return nearest | {"is_same_model": nearest["model"] == model}


def _has_trained_form(config: ModelConfig) -> bool:
    """Whether a model is pre-norm with a final norm and nothing on its stream, or post-norm, as those are that were
    trained. Trained weights or vectors on the branches, values that are mixed and a second stream are another form."""
    sublayers = config.encoder
    places = {config.places(sublayer) - {"q", "k"} for sublayer in sublayers}
    is_pre = places == {frozenset({"pre"})} and all(sublayer.residual_weight == 1 for sublayer in sublayers)
    return (
        (places == {frozenset({"post"})} or (is_pre and config.ends_in_norm))
        and not config.has_second_stream
        and not any(s.trains_branch_weight or s.has_layer_scale or s.mixes_values or s.input_weight for s in sublayers)
    )


@cache
def _gains() -> list[dict[str, Any]]:
    return json.loads(GAINS.read_text(encoding="utf-8"))


@cache
def training_runs(records: Path) -> tuple[dict[str, Any], ...]:
    """Every run of a folder of records: what it was of, and its outcome. Those of ``_OTHERS`` are left out."""
    names = ("scheme", "optimizer", "activation", "norm_kind", "num_layers", "learning_rate")
    rows = (
        json.loads(line)
        for path in sorted(records.glob("*.jsonl"))
        if not path.stem.startswith(_OTHERS)
        for line in path.read_text(encoding="utf-8").splitlines()
    )
    return tuple(
        {name: row["config"][name] for name in names}
        | {"num_sides": 2 if row["config"]["num_decoder_layers"] else 1, "outcome": row["result"]["outcome"]}
        for row in rows
    )

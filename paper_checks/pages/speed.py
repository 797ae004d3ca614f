"""SPEED.md: how fast depthlaw is beside what people write instead, and how long its commands take; from bench.json.

depthlaw bench --record paper_checks/results/bench.json  # measures anew
python -m depthlaw.paper_checks.pages.speed              # rewrites SPEED.md and its figure
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from depthlaw.paper_checks.pages.drawing import Curve, Drawing, Panel, save
from depthlaw.paper_checks.pages.markdown import caption, section
from depthlaw.system.files import write_atomically
from depthlaw.system.places import FIGURES, RESULTS

PAGE, FIGURE, RECORD = RESULTS / "SPEED.md", FIGURES / "speed.svg", RESULTS / "bench.json"
TOGETHER = "runs one by one"
"""What stands beside the row of runs that are trained together."""
AXES = {"num_layers": "layers", "num_tokens": "tokens"}
"""By axis of a prediction, what its panel shows."""
DEEP = (64, 32, 8)
"""Width, layers and most sequences of the networks that sims/README.md speaks of."""
_SIZE = ("d_model", "num_layers", "num_sequences")

Answer = Mapping[str, Any]


def kept() -> dict[str, Any]:
    """The record of ``depthlaw bench``."""
    return json.loads(RECORD.read_text(encoding="utf-8"))


def page(answer: Answer) -> str:
    """Markdown."""
    passes = [row for row in answer["rows"] if row["beside"] != TOGETHER]
    deep, long, by_optimizer = (_of_prediction(answer, axis)["fixed"] for axis in (*AXES, "optimizer"))
    return section(
        "speed",
        "page",
        machine=answer["machine"],
        versions=answer["versions"],
        members=passes[0]["num_members"],
        tokens=passes[0]["num_tokens"],
        rows=list(_passes(passes)),
        beside=_contenders(passes),
        together=next((row for row in answer["rows"] if row["beside"] == TOGETHER), None),
        growth=[_grown(row) for row in answer["growth"]],
        commands=answer["commands"],
        usual=deep | by_optimizer,
        few=long["num_layers"],
        caption=caption("speed", num_tokens=deep["num_tokens"], num_layers=long["num_layers"]),
    )


def in_readme(answer: Answer) -> str:
    """The sentence on speed of sims/README.md."""
    ratios = {(row["beside"], *(row[name] for name in _SIZE)): row["ratio"] for row in answer["rows"]}
    width, layers, sequences = DEEP
    return section(
        "speed",
        "in_readme",
        members=answer["rows"][0]["num_members"],
        layers=layers,
        width=width,
        sequences=sequences,
        loop=ratios["torchscale", width, layers, 1],
        many=ratios["torchscale", width, layers, sequences],
        vmap=ratios["vmap", width, layers, 1],
    ).strip()


def _contenders(passes: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["beside"] for row in passes))


def _passes(passes: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """A row for each size."""
    by_size: dict[tuple[int, ...], dict[str, Mapping[str, Any]]] = {}
    for row in passes:
        size = tuple(row[name] for name in _SIZE)
        by_size.setdefault(size, {})[row["beside"]] = row
    for size, by_name in by_size.items():
        shares = sorted(row["share_of_peak"] for row in by_name.values())
        ratios = [f"{by_name[name]['ratio']:.2f}" if name in by_name else "-" for name in _contenders(passes)]
        yield [*map(str, size), *ratios, f"{100 * shares[len(shares) // 2]:.0f} %"]


def _grown(row: Mapping[str, Any]) -> list[str]:
    powers = ("-" if row[name] is None else f"{row[name]:.2f}" for name in ("time", "memory"))
    values = ", ".join(f"{x:,}" if isinstance(x, int) else x for x in row["values"])
    seconds = ", ".join(f"{x:.2g}" if x < 10 else f"{x:.0f}" for x in row["seconds"])
    return [row["of"], row["axis"], values, seconds, *powers]


def _of_prediction(answer: Answer, axis: str) -> Mapping[str, Any]:
    return next(row for row in answer["growth"] if (row["of"], row["axis"]) == ("prediction", axis))


def drawing(answer: Answer) -> Drawing:
    """What a prediction of the kernel rung takes."""
    panels = []
    for axis, name in AXES.items():
        row = _of_prediction(answer, axis)
        line = list(zip(map(float, row["values"]), row["seconds"], strict=True))
        panels.append(Panel(title=f"against {name}", curves=[Curve(line=line, has_dots=True)], x=name, y="seconds"))
    return Drawing(panels=panels, title="What a prediction takes", columns=2, width=330, height=240)


if __name__ == "__main__":
    save(drawing(kept()), FIGURE)
    write_atomically(PAGE, page(kept()))

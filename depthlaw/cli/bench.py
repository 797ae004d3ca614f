"""``depthlaw bench``: how fast the program is here, beside loops over models, and how long its commands take."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from depthlaw.cli.shared import options
from depthlaw.cli.shared.options import BadInputError, option, refusing
from depthlaw.cli.shared.output import counted, print_json
from depthlaw.system.files import as_text, document, read_all, write_atomically
from depthlaw.system.page import Page, grid

EXAMPLES = ("bench --quick", "bench --quick --json", "bench --record mine.json")


def run(
    quick: bool = option("Only the smallest networks, in three rounds, and no commands."),
    rounds: int = option("How often each pair is timed, in turn.", 7, least=1, most=1000),
    device: str = options.DEVICE,
    record: Path | None = option("Also write the answer to this file, which says on what machine it was made.", None),
    as_json: bool = options.JSON,
) -> None:
    """Time the program beside what people write instead, and say how long its commands take.

    A pass is forward, backward and the norm of each gradient of 16 post-LN
    encoders. depthlaw passes them as one ensemble; beside it stand loops over
    torchscale's and torch's encoders, vmap, and a loop in two processes. Each
    pair is timed in turn, and what counts is the ratio: above 1, depthlaw is
    faster. Then a step of runs trained together, beside the same one by one,
    time and memory of a pass and of a prediction against each size, and how
    long commands take to answer, the first time and again. All of it takes
    half an hour on two cores.
    """
    from depthlaw.paper_checks.experiments import bench
    from depthlaw.sims.measure import choose_device, device_name

    if record is not None:
        check_place(record)
    with refusing():
        where = choose_device(device)
    sizes = bench.QUICK if quick else bench.SIZES
    axes = [] if quick or where != "cpu" else list(bench.AXES)
    names = () if quick else bench.timed_commands()
    compared, grown, answered = [], [], []
    num_rows = len(sizes) * len(bench.contenders(where)) + (not quick)
    with counted("timing", num_rows + len(axes) + len(names)) as advance:
        for size in sizes:
            for row in bench.compare(size, 3 if quick else rounds, device=where):
                compared.append(row)
                advance(1)
        if not quick:
            compared.append(bench.trained(bench.TRAINED, rounds, where))
            advance(1)
        for axis in axes:
            grown.append(bench.growth(*axis))
            advance(1)
        for row in bench.commands(names):
            answered.append(row)
            advance(1)
    machine = {**bench.machine(), "device": device_name(where)}
    answer = document(rows=compared, growth=grown, commands=answered, machine=machine, versions=bench.versions())
    if record is not None:
        write_atomically(record, as_text(answer))
    if as_json:
        print_json(answer)
        return
    page = Page()
    show(answer, page)
    page.wrote(record)


def check_place(record: Path) -> None:
    """What is there is written over where it is a record like this, and else refused before a quarter of an hour."""
    if not record.exists():
        return
    try:
        there = json.loads(read_all(record))
    except (ValueError, RecursionError):
        there = None
    if not isinstance(there, dict) or not {"rows", "growth", "commands", "machine", "versions"} <= there.keys():
        raise BadInputError(
            f"--record: {record} is there and no record of `depthlaw bench` (allowed: one, which is written anew, or a "
            "name that is free)"
        )


def show(answer: Mapping[str, Any], page: Page) -> None:
    machine = answer["machine"]
    page.say(
        f"On {machine['num_cores']} cores ({machine['processor']}), torch {answer['versions']['torch']} with "
        f"{machine['torch_threads']} threads for loops."
    )
    heads = ("width", "layers", "batch", "beside", "ratio", "least to most", "made anew", "of peak")
    page.show(grid(heads, _ratios(answer["rows"]), ("beside",), "A pass of 16 networks", heads, padding=(0, 0)))
    page.say(
        "batch: sequences of 32 tokens. ratio: their time over depthlaw's. made anew: the same with the networks' "
        "construction. of peak: depthlaw's rate of operations in matrices over the best of torch's own products here. "
        "runs one by one: a step of 8 runs trained together, of sequences of 16 tokens, is what stands beside them."
    )
    if grown := answer["growth"]:
        cells = [
            (
                f"{row['of']}: {row['axis']}",
                ", ".join(map(str, row["values"])),
                ", ".join(f"{x:.3g}" for x in row["seconds"]),
                *("-" if row[name] is None else f"{row[name]:.2f}" for name in ("time", "memory")),
            )
            for row in grown
        ]
        page.show(grid(("against", "at", "seconds", "time as", "memory as"), cells, ("against", "at", "seconds")))
    if answered := answer["commands"]:
        page.show(grid(("command", "seconds", "again", "beside"), map(_answered, answered), ("command", "beside")))


def _ratios(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        whole = "-" if row["with_construction"] is None else f"{row['with_construction']:.2f}"
        sizes = (str(row[name]) for name in ("d_model", "num_layers", "num_sequences"))
        spread = f"{row['ratio_least']:.2f} to {row['ratio_most']:.2f}"
        yield *sizes, row["beside"], f"{row['ratio']:.2f}", spread, whole, f"{100 * row['share_of_peak']:.0f} %"


def _answered(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    beside = "" if row["beside"] is None else f"{row['beside']}: {row['least']:.2f}"
    return row["command"], f"{row['seconds']:.2f}", f"{row['again']:.2f}", beside

"""MEASURED.md: every scheme that is kept under sgd, adam and lamb, predicted and measured; generated from sims/records.

python -m depthlaw.paper_checks.pages.measured          # rewrites MEASURED.md
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from depthlaw.network.network import Network
from depthlaw.paper_checks.experiments.compared import Index
from depthlaw.paper_checks.experiments.sweeps import KEPT_SCHEMES, LENGTHS, OPTIMIZERS
from depthlaw.paper_checks.pages.markdown import interval, section
from depthlaw.sims import stats
from depthlaw.sims.records import record
from depthlaw.system.files import write_atomically
from depthlaw.system.places import RECORDS, RESULTS
from depthlaw.theory.schemes import scheme

PAGE = RESULTS / "MEASURED.md"
WIDE, NARROW = 512, 256
CLOSE = 0.03
"""Of a ratio to 1, and of an exponent to that of the predicted curve."""
SHOWN = (4, 16, 64)
"""Lengths whose ratios stand in the table."""


@dataclass(frozen=True)
class Line:
    """One scheme under one optimizer. ratios: measured over predicted, by length, at the larger width. limits: the same
    at 1/d = 0, by length. real: the real first step's update over the definition's, at the greatest length."""

    scheme: str
    optimizer: str
    seeds: int
    predicted: dict[int, float]
    ratios: dict[int, stats.Estimate]
    limits: dict[int, stats.Estimate]
    fit: stats.ExponentFit
    real: float | None


def lines(path: Path = RECORDS / "ffn-stacks.jsonl") -> list[Line]:
    """Of every scheme that is measured, in theory's order."""
    index = Index(record.read(path))
    return [_line(index, name, optimizer) for name in KEPT_SCHEMES for optimizer in OPTIMIZERS]


def _line(index: Index, name: str, optimizer: str) -> Line:
    networks = {
        (width, length): Network(scheme=scheme(name), num_sublayers=length, d_model=width)
        for length in LENGTHS
        for width in (WIDE, NARROW)
    }
    runs = {at: index.find(network, optimizer) for at, network in networks.items()}
    values = {at: run.values["update"] for at, run in runs.items()}
    predicted = {length: networks[WIDE, length].theory(optimizer).update for length in LENGTHS}
    ratios, limits = {}, {}
    for length, exact in predicted.items():
        if exact != 0:
            both = [stats.ratio_to_exact(stats.estimate(values[width, length]), exact) for width in (WIDE, NARROW)]
            ratios[length], limits[length] = both[0], stats.width_term((WIDE, NARROW), both, length).limit
    last = runs[WIDE, LENGTHS[-1]].values
    has_real = bool(last.get("real_step")) and predicted[LENGTHS[-1]] != 0
    return Line(
        scheme=name,
        optimizer=optimizer,
        seeds=min(len(runs[width, LENGTHS[-1]].seeds) for width in (WIDE, NARROW)),
        predicted=predicted,
        ratios=ratios,
        limits=limits,
        fit=stats.fit_exponent(LENGTHS, [values[WIDE, length] for length in LENGTHS], list(predicted.values())),
        real=stats.estimate(last["real_step"]).mean / stats.estimate(last["update"]).mean if has_real else None,
    )


# ---------------------------------------------------------------- the page


def page(lines: Sequence[Line]) -> str:
    """Markdown."""
    first, last = LENGTHS[0], LENGTHS[-1]
    cases = [(line, length) for line in lines for length in line.ratios]
    fits = [line.fit.difference for line in lines if line.fit.difference is not None]
    return section(
        "measured",
        "page",
        lengths=LENGTHS,
        first=first,
        last=last,
        seeds=min(line.seeds for line in lines if any(line.predicted.values())),
        wide=WIDE,
        narrow=NARROW,
        cases=cases,
        far=[
            f"{line.scheme} {line.optimizer} L = {length}: {interval(line.ratios[length])}"
            for line, length in cases
            if abs(line.ratios[length].mean - 1) > CLOSE
        ],
        covered=sum(stats.holds(line.limits[length]) for line, length in cases),
        near=sum(abs(difference.mean) <= CLOSE for difference in fits),
        num_fits=len(fits),
        real=sorted(line.real for line in lines if line.real is not None and line.optimizer == "lamb"),
        heads=[
            *("scheme", "optimizer", f"U({first})", f"U({last})", *(f"ratio, L = {length}" for length in SHOWN)),
            *(f"d → ∞, L = {last}", "exponent", "predicted"),
        ],
        rows=list(map(_row, lines)),
    )


def _row(line: Line) -> list[str]:
    ends = (f"{line.predicted[length]:.4g}" for length in (LENGTHS[0], LENGTHS[-1]))
    ratios = (interval(line.ratios.get(length)) for length in SHOWN)
    fit = "-" if line.fit.predicted is None else f"{line.fit.predicted:z.3f}"
    limit = interval(line.limits.get(LENGTHS[-1]))
    return [line.scheme, line.optimizer, *ends, *ratios, limit, interval(line.fit.measured), fit]


if __name__ == "__main__":
    write_atomically(PAGE, page(lines()))

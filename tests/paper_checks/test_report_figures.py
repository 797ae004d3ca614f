"""What the report's figures draw is what theory predicts, what is kept and what is recorded, of their own network; and
they are drawn in the page's colours."""

from __future__ import annotations

import json
import re
from functools import cache
from statistics import fmean
from typing import Any

import pytest

from depthlaw.network.network import Network
from depthlaw.paper_checks.claims.claim import Claim
from depthlaw.paper_checks.claims.statements import Growth
from depthlaw.paper_checks.experiments.kernel_kept import read
from depthlaw.paper_checks.experiments.kernel_laws import LAWS, LENGTHS, network_of
from depthlaw.paper_checks.experiments.sweeps import OPTIMIZERS
from depthlaw.paper_checks.pages.drawing import Drawing
from depthlaw.paper_checks.pages.transformers import WIDE
from depthlaw.paper_checks.papers.registry import claims
from depthlaw.paper_checks.report import figures
from depthlaw.paper_checks.report.figures import OF_EXPERIMENT, for_claim, training_names
from depthlaw.paper_checks.report.rendered import pictures
from depthlaw.paper_checks.routes.kernel import InTransformer
from depthlaw.system.places import FIGURES, RECORDS
from depthlaw.theory.meanfield.update import predict
from depthlaw.theory.schemes import SCHEMES, scheme
from depthlaw.theory.symbols import L
from tests.paper_checks.report_pages import ORDERED

UPDATE = "update"
KEPT = ("S1-03", "S1-41", "S2-12")
"""Claims of orders that the default lane tries; S1-41 has every optimizer."""
VARIABLES = {"--ink", "--muted", "--line", "--paper", "--panel", "--accent", *(f"--c{i}" for i in range(1, 9))}
MOST = 40_000


def check_looks(svg: str) -> None:
    """Small, and no colour of its own or that the page lacks."""
    assert len(svg) < MOST
    assert not re.search(r"#[0-9a-fA-F]{6}\b", svg)
    assert set(re.findall(r"var\((--[a-z0-9]+)\)", svg)) <= VARIABLES


@cache
def records(is_real: bool) -> dict[tuple[str, str, int], dict[str, list[float | None]]]:
    """The values of all seeds at d = WIDE, by scheme, optimizer and sublayers: of Transformers, or of stacks."""
    runs: dict[tuple[str, str, int], dict[str, list[float | None]]] = {}
    file = RECORDS / ("transformers.jsonl" if is_real else "ffn-stacks.jsonl")
    for run in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
        config = run["config"]
        norm = SCHEMES[config["scheme"]].stack.norm_function or "layernorm"
        assert (config["activation"], config["norm_kind"]) == ("relu", norm)
        if config["d_model"] == WIDE:
            of_network = runs.setdefault((config["scheme"], config["optimizer"], config["num_sublayers"]), {})
            for role, values in run["values"].items():
                of_network.setdefault(role, []).extend(values)
    return runs


@cache
def means(name: str, optimizer: str, role: str, is_real: bool) -> dict[int, float]:
    """By sublayers, the mean over seeds of what is recorded, in the unit of the prediction."""
    by_length = {}
    for (other, by, length), of_network in records(is_real).items():
        values = [value for value in of_network.get(role, [None]) if value is not None]
        if (other, by) == (name, optimizer) and len(values) == len(of_network.get(role, [None])):
            arch = "encoder" if is_real else "ffn"
            network = Network(scheme=scheme(name), num_sublayers=length, d_model=WIDE, arch=arch)
            by_length[length] = fmean(values) * (1 if role == UPDATE else WIDE ** network.role_power(optimizer, role))
    return by_length


def printed(claim: Claim) -> list[Growth]:
    """Its printed orders as its figures have them: each once, those of real Transformers last."""
    every = {part.statement.text: part.statement for part in claim.parts if isinstance(part.statement, Growth)}
    return sorted(every.values(), key=lambda one: isinstance(one, InTransformer))


def exact_line(statement: Growth) -> dict[int, float]:
    """By sublayers, from where the figure begins."""
    by, options = statement.optimizer, dict[str, Any](activation=statement.activation, norm_kind=statement.norm_kind)
    if isinstance(statement, InTransformer):
        networks = {2 * n: network_of(statement.scheme, n, **options) for n in LENGTHS if 2 * n >= figures.FROM}
        answers = {n: read(LAWS).find(network, by).by_optimizer[by] for n, network in networks.items()}
        return {n: answer[statement.role].value for n, answer in answers.items()}
    updates = {n: predict(statement.scheme, by, n, **options).update for n in figures.DEPTHS}
    return {n: value for n, value in updates.items() if 0 < value < figures.MOST}


def recorded(statement: Growth) -> dict[int, float]:
    """By sublayers; of relu networks with LayerNorm alone."""
    if (statement.activation, statement.norm_kind) != ("relu", "layernorm") or statement.optimizer not in OPTIMIZERS:
        return {}
    role = statement.role if isinstance(statement, InTransformer) else UPDATE
    seen = means(statement.scheme, statement.optimizer, role, isinstance(statement, InTransformer))
    return {n: value for n, value in seen.items() if n >= figures.FROM}


@pytest.mark.parametrize("id_", [pytest.param(id_, marks=[pytest.mark.wide] * (id_ not in KEPT)) for id_ in ORDERED])
def test_figures_of_claims_are_of_their_statements(id_: str) -> None:
    """The exact line, the printed order through its first point, and the points that are recorded."""
    drawings = [one for one in for_claim(id_) if isinstance(one, Drawing) and one.title.startswith("Printed order")]
    for one in drawings:
        check_looks(one.inline)
        assert len(one.table) == 2 * len(one.panels)
    panels = [panel for one in drawings for panel in one.panels]
    for statement, panel in zip(printed(claims()[id_]), panels, strict=True):
        assert all(word in panel.title for word in (statement.scheme, statement.activation, statement.optimizer))
        exact, order = panel.curves
        line = exact_line(statement)
        assert dict(exact.line) == pytest.approx(line, rel=1e-9)
        at = {n: float(statement.order.subs(L, n).evalf(17)) for n in line}
        start = min(line)
        assert dict(order.line) == pytest.approx({n: line[start] * at[n] / at[start] for n in at}, rel=1e-9)
        assert {x: y for x, y, *_ in exact.points} == pytest.approx(recorded(statement), rel=1e-9)
        assert all(low is not None and high is not None and low < y < high for _, y, low, high in exact.points)


def test_claims_of_training_have_its_figures() -> None:
    names = {name for several in OF_EXPERIMENT.values() for name in several}
    assert names == set(pictures()) == {path.stem for path in FIGURES.glob("training-*.svg")}
    assert training_names(claims()["S3-49"]) == ["training-predicts", "training-rates"]
    assert for_claim("S1-50") == [pictures()["training-thousand"]]
    assert for_claim("S1-24") == []

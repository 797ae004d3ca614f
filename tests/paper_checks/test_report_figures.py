"""What the report's figures draw is what theory predicts, what is kept and what is recorded, of their own network; and
they are drawn in the page's colours."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import fmean
from typing import Any
from xml.etree import ElementTree

import pytest

from paper_checks.claims.claim import Claim, Verdict
from paper_checks.claims.statements import Growth
from paper_checks.experiments.kernel_kept import read
from paper_checks.experiments.kernel_laws import LAWS, LENGTHS, measured, network_of
from paper_checks.experiments.sweeps import LENGTHS as STACK_LENGTHS
from paper_checks.experiments.sweeps import OPTIMIZERS, SWEEPS
from paper_checks.lowering.networks import Network
from paper_checks.pages import drawing, scheme_figures
from paper_checks.pages.drawing import Panel
from paper_checks.pages.transformers.text import LAYERS, WIDE
from paper_checks.papers.registry import claims
from paper_checks.report import claim_figures
from paper_checks.report.claim_figures import OF_EXPERIMENT, against_bound, for_claim, training, training_names
from paper_checks.routes.kernel import InTransformer
from paper_checks.routes.update_bounds import Inequality
from paper_checks.system.places import FIGURES, RECORDS
from tests.paper_checks.report_pages import DRAWN, ORDERED, fast, figures_of
from theory.meanfield.update import predict
from theory.schemes import SCHEMES, scheme
from theory.symbols import L

UPDATE = "update"
FILES = {True: RECORDS / "transformers.jsonl", False: RECORDS / "ffn-stacks.jsonl"}
"""Of real Transformers, and of stacks."""
VARIABLES = {"--ink", "--muted", "--line", "--paper", "--panel", "--accent", *(f"--c{i}" for i in range(1, 9))}
MOST = 40_000


def check_looks(svg: str) -> None:
    """Small, and no colour of its own or that the page lacks."""
    assert len(svg) < MOST
    assert not re.search(r"#[0-9a-fA-F]{6}\b", svg)
    assert set(re.findall(r"var\((--[a-z0-9]+)\)", svg)) <= VARIABLES


# ---------------------------------------------------------------- numbers that no figure has touched


@cache
def records(*, is_real: bool) -> Mapping[tuple[str, str, int], Mapping[str, Sequence[float | None]]]:
    """The values of all seeds at d = WIDE, by scheme, optimizer and sublayers."""
    found: dict[tuple[str, str, int], dict[str, list[float | None]]] = {}
    for line in FILES[is_real].read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        config = run["config"]
        assert (config["activation"], config["norm_kind"]) == ("relu", "layernorm")
        if config["d_model"] == WIDE:
            there = found.setdefault((config["scheme"], config["optimizer"], config["num_sublayers"]), {})
            for role, values in run["values"].items():
                there.setdefault(role, []).extend(values)
    return found


@cache
def means(name: str, optimizer: str, role: str, *, is_real: bool) -> dict[int, float]:
    """By sublayers, the mean over seeds of what is recorded, in the unit of the prediction."""
    arch = "encoder" if is_real else "ffn"
    found = {}
    for (other, by, length), values in records(is_real=is_real).items():
        there = values.get(role, [None])
        if (other, by) == (name, optimizer) and None not in there:
            network = Network(scheme=scheme(name), num_sublayers=length, d_model=WIDE, arch=arch)
            unit = 1.0 if role == UPDATE else WIDE ** network.role_power(optimizer, role)
            found[length] = unit * fmean(value for value in there if value is not None)
    return found


@cache
def kept_laws() -> Any:
    return read(LAWS)


@cache
def kept_measured() -> Any:
    return measured()


# ---------------------------------------------------------------- by claim: printed orders


def printed(found: Claim) -> list[Growth]:
    """Its printed orders as its figures have them: each once, those of real Transformers last."""
    every = {part.statement.text: part.statement for part in found.parts if isinstance(part.statement, Growth)}
    return sorted(every.values(), key=lambda one: isinstance(one, InTransformer))


PRINTED = {id_: some for id_, one in claims().items() if (some := printed(one))}


def exact_line(statement: Growth) -> dict[int, float]:
    """By sublayers, from where the figure begins."""
    activation, norm_kind, by = statement.activation, statement.norm_kind, statement.optimizer
    if isinstance(statement, InTransformer):
        networks = {2 * n: network_of(statement.scheme, n, activation=activation, norm_kind=norm_kind) for n in LENGTHS}
        found = {n: kept_laws().find(one, by).by_optimizer[by][statement.role].value for n, one in networks.items()}
        return {n: value for n, value in found.items() if n >= claim_figures.FROM}
    found = {
        n: predict(statement.scheme, by, n, activation=activation, norm_kind=norm_kind).update
        for n in claim_figures.DEPTHS
    }
    return {n: value for n, value in found.items() if 0 < value < claim_figures.MOST}


def recorded(statement: Growth) -> dict[int, float]:
    """By sublayers; of relu networks with LayerNorm alone."""
    if (statement.activation, statement.norm_kind) != ("relu", "layernorm") or statement.optimizer not in OPTIMIZERS:
        return {}
    is_real = isinstance(statement, InTransformer)
    role = statement.role if isinstance(statement, InTransformer) else UPDATE
    found = means(statement.scheme, statement.optimizer, role, is_real=is_real)
    return {n: value for n, value in found.items() if n >= claim_figures.FROM}


@pytest.mark.parametrize("id_", fast(PRINTED, ORDERED))
def test_figures_of_claims_are_of_their_statements(id_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact line, the printed order through its first point, and the points that are recorded."""
    panels: list[Panel] = []
    draw = drawing.inline
    monkeypatch.setattr(drawing, "inline", lambda one: panels.extend(one.panels) or draw(one))
    monkeypatch.setattr(claim_figures, "_bounds", lambda _: ())
    monkeypatch.setattr(claim_figures, "training_names", lambda _: [])
    figures = claim_figures.for_claim(id_)
    for one in figures:
        check_looks(one.svg)
    assert sum(len(one.rows) for one in figures) == len(panels)
    for statement, panel in zip(PRINTED[id_], panels, strict=True):
        assert all(word in panel.title for word in (statement.scheme, statement.activation, statement.optimizer))
        exact, order = panel.curves
        line = exact_line(statement)
        assert dict(exact.line) == pytest.approx(line, rel=1e-9)
        at = {n: float(statement.order.subs(L, n).evalf(17)) for n in line}
        start = min(line)
        assert dict(order.line) == pytest.approx({n: line[start] * at[n] / at[start] for n in at}, rel=1e-9)
        assert {x: y for x, y, *_ in exact.points} == pytest.approx(recorded(statement), rel=1e-9)
        assert all(low is not None and high is not None and low < y < high for _, y, low, high in exact.points)


# ---------------------------------------------------------------- by claim: bounds and training


def test_bounds_hold_or_fail_as_the_claims_say() -> None:
    bounded = [part for one in claims().values() for part in one.parts if isinstance(part.statement, Inequality)]
    assert len(bounded) > 10
    for part in bounded:
        assert isinstance(part.statement, Inequality)
        seen = against_bound(part.statement)
        assert (seen.first_above is not None) == (part.expected is Verdict.REFUTED), part.name
    row = next(row for row in for_claim("S2-13")[1].rows if row["part"] == "equal gains, relu, LayerNorm")
    assert row["update above the bound"] == "from L = 11 here"


def test_claims_of_training_have_its_figures() -> None:
    names = {name for several in OF_EXPERIMENT.values() for name in several}
    for each in training().values():
        check_looks(each.svg)
    assert names == set(training()) == {path.stem for path in FIGURES.glob("training-*.svg")}
    shown = {id_: training_names(one) for id_, one in claims().items()}
    assert shown["S3-49"] == ["training-predicts", "training-rates"]
    assert shown["S3-42"] == ["training-warmup"]
    assert shown["S1-50"] == ["training-thousand"]
    assert "training-own-row" in shown["S1-49"]
    for id_ in ("S3-49", "S1-50"):
        assert [one.title for one in for_claim(id_)] == [training()[name].title for name in shown[id_]]
    assert not shown["S1-24"] and for_claim("S1-24") == []


# ---------------------------------------------------------------- by scheme


@cache
def drawn(name: str) -> scheme_figures.SchemeFigures:
    return figures_of(name)[0]


@cache
def predicted(name: str, optimizer: str, depth: int, *, is_real: bool) -> Mapping[str, float]:
    """By role: of a stack of L sublayers, or of a Transformer of N layers as it is measured."""
    if is_real:
        network = next(one for one in _networks() if (one.scheme.name, one.num_sublayers) == (name, 2 * depth))
        kept = kept_measured().find(network, optimizer).by_optimizer[optimizer]
        return {role: one.value for role, one in kept.items()}
    found = predict(name, optimizer, depth)
    return {UPDATE: found.update, **found.roles}


@cache
def _networks() -> list[Network]:
    return [one for one in SWEEPS["transformers"].networks if one.d_model == WIDE]


def ends(name: str, optimizer: str, role: str, *, is_real: bool) -> str:
    """What a drawing says of a line: its first and its last point, with infinitely large heads where it goes deeper."""
    if is_real:
        beyond = ((n, kept_laws().find(network_of(name, n), optimizer).by_optimizer[optimizer]) for n in LENGTHS)
        points = [(n, one[role].value) for n, one in beyond]
        points += [(n, predicted(name, optimizer, n, is_real=True)[role]) for n in LAYERS]
    else:
        depths = (*STACK_LENGTHS, *scheme_figures.DEEPER)
        points = [(n, predicted(name, optimizer, n, is_real=False)[role]) for n in depths]
    (x, low), (deep, high) = min(points), max(points)
    return f"{role}: predicted {low:.3g} at {x}, {high:.3g} at {deep:,}"


def test_every_scheme_and_optimizer_has_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_of_transformers", "_of_stacks"):
        monkeypatch.setattr(scheme_figures, name, lambda *of: of)
    every = scheme_figures.by_scheme()
    assert [one.scheme for one in every] == list(SCHEMES)
    for one in every:
        assert one.transformers == one.stacks == {by: (one.scheme, by) for by in OPTIMIZERS}


@pytest.mark.parametrize("is_real", [False, True], ids=["stacks", "transformers"])
@pytest.mark.parametrize("by", OPTIMIZERS)
@pytest.mark.parametrize("name", fast(SCHEMES, DRAWN))
def test_figures_of_schemes_are_predicted_and_recorded(name: str, by: str, is_real: bool) -> None:
    """Panels with names, rows of the table, lines and points."""
    figure = (drawn(name).transformers if is_real else drawn(name).stacks)[by]
    beside = (scheme_figures.transformers if is_real else scheme_figures.stacks)(name, by)
    depths, letter, step = (LAYERS, "N", 2) if is_real else (STACK_LENGTHS, "L", 1)
    theory = {n: predicted(name, by, n, is_real=is_real) for n in depths}
    check_looks(figure.svg)
    panels = list(ElementTree.fromstring(figure.svg).iter("svg"))
    assert len(panels) >= 2
    assert all(panel.attrib["role"] == "img" and panel.findtext("title") for panel in panels)
    assert {row["role"] for row in figure.rows} == set(theory[depths[0]])
    for row in figure.rows:
        role = row["role"]
        seen = means(name, by, role, is_real=is_real)
        for n in (depths[0], depths[-1]):
            assert row[f"U({n}) predicted"] == f"{theory[n][role]:.4g}"
        for n in depths:
            mean, value = seen.get(step * n), theory[n][role]
            wanted = "0, as predicted" if value == 0 else "-" if mean is None else f"{mean / value:.3f}"
            assert row[f"ratio, {letter} = {n}"].partition(" [")[0] == wanted
        if any(one[role] for one in theory.values()):
            assert ends(name, by, role, is_real=is_real) in figure.svg
        line = dict(beside.lines[role])
        assert line == {n: predicted(name, by, int(n), is_real=is_real)[role] for n in line}
        points = {int(n): y for n, y, *_ in beside.points(role)}
        assert points == pytest.approx({n: seen[step * n] for n in points}, rel=1e-6)
    is_zero = not any(one[UPDATE] for one in theory.values())
    assert is_zero == ("exactly 0" in figure.caption)
    assert not is_zero or "exactly 0" in figure.svg

"""Notebook 8 with other models in its second cell: what it then prints is what theory says of them."""

import ast
import math
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import jupytext
import pytest

from paper_checks.networks import Network
from paper_checks.notebooks import run, source
from paper_checks.predicted_rows import exponents, predicted_row
from paper_checks.transformers_growth import FLAT
from theory.rule_order import rule_scheme
from theory.rules import evaluate, solve_rule

NAME = "08_choose_your_rule"
MATRICES = ("q", "k", "v", "out", "fc1", "fc2")
SHALLOW, D_MODEL, NUM_HEADS = 6, 64, 4
SIZES = {"SHALLOW": SHALLOW, "D_MODEL": D_MODEL, "NUM_HEADS": NUM_HEADS}
TOKENS = 4
"""Of the notebook's fast mode."""
CASES = [("post", "adam", "decoder", 12), ("sub", "lamb", "encoder", 24), ("pre", "sgd", "encoder", 8)]


def execute(notebook: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    jupytext.write(notebook, folder / f"{NAME}.py", fmt="py:percent")
    monkeypatch.setattr("paper_checks.notebooks.FOLDER", folder)
    monkeypatch.setenv("DEPTHLAW_NOTEBOOKS", "fast")
    return run(NAME, is_fast=True)


def outputs(folder: Path, monkeypatch: pytest.MonkeyPatch, last: str, **settings: Any) -> str:
    """What the notebook says with these settings, up to the cell in which ``last`` stands."""
    notebook = source(NAME)
    kept = [cell for cell in notebook.cells if cell.cell_type == "code"]
    kept = kept[: 1 + next(number for number, cell in enumerate(kept) if last in cell.source)]
    [cell] = [cell for cell in kept if cell.source.startswith("PLACEMENT")]
    for name, value in settings.items():
        cell.source, count = re.subn(rf"^{name} = \S+", f"{name} = {value!r}", cell.source, flags=re.MULTILINE)
        assert count == 1, name
    notebook.cells = kept
    found = [output for cell in execute(notebook, folder, monkeypatch).cells for output in cell.outputs]
    return "\n\n".join(output.get("data", {}).get("text/markdown", "") for output in found)


def rows_of(said: str, header: str) -> dict[str, list[str]]:
    """The cells of the table whose header starts so, by the first of each row."""
    lines = said[said.index(f"| {header} |") :].split("\n\n", maxsplit=1)[0].splitlines()[2:]
    cells = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {first: rest for first, *rest in cells}


def predicted(placement: str, optimizer: str, arch: str, num_layers: int) -> dict[str, Any]:
    """Of the rule at one learning rate for all."""
    rule = solve_rule(placement, optimizer, arch)
    network = Network(
        scheme=rule_scheme(rule, rule.sides[0]),
        arch=arch,
        is_causal=arch == "decoder",
        num_sublayers=2 * num_layers,
        d_model=D_MODEL,
        num_heads=NUM_HEADS,
        num_tokens=TOKENS,
    )
    return {"num_sublayers": 2 * num_layers, **predicted_row(network.theory(optimizer))}


@pytest.mark.parametrize(("placement", "optimizer", "arch", "num_layers"), CASES)
def test_numbers_and_snippet_are_of_the_model_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, placement: str, optimizer: str, arch: str, num_layers: int
) -> None:
    asked = {"PLACEMENT": placement, "OPTIMIZER": optimizer, "ARCHITECTURE": arch, "NUM_LAYERS": num_layers}
    said = outputs(tmp_path, monkeypatch, "inspect.getsource", **asked, **SIZES)
    case = (placement, optimizer, arch)
    letter = {"encoder": "N", "decoder": "M"}[arch]
    rule = evaluate(solve_rule(*case), **{letter: num_layers})[arch]
    gains = rule.init_gain or dict.fromkeys(MATRICES, 1.0)
    # What no gain can do, a learning rate over the order of the update does.
    own_rate = 1.0
    if rule.init_gain is None:
        own_rate = evaluate(solve_rule(*case), **{letter: SHALLOW})[arch].update_order / rule.update_order

    chosen = rows_of(said, "what")
    assert float(chosen["residual weight"][0]) == pytest.approx(rule.residual_weight, rel=1e-3)
    every = {role: float(cells[0]) for what, cells in chosen.items() if "gain" in what for role in what[8:].split(", ")}
    assert every == pytest.approx(gains, rel=1e-3)

    depths = [SHALLOW, *(n for n in (12, 24) if n < num_layers), num_layers]
    rows = [predicted(*case, n) for n in depths]
    shallow, deep = rows[0]["roles"], rows[-1]["roles"]
    at_depth = {role: own_rate if role in MATRICES else 1.0 for role in deep}
    printed = {role: [float(cell) for cell in cells[1:3]] for role, cells in rows_of(said, "role").items()}
    assert printed.keys() == deep.keys()
    for role, (first, last) in printed.items():
        assert first == pytest.approx(shallow[role], rel=1e-3)
        assert last == pytest.approx(deep[role] * at_depth[role], rel=1e-3)
    updates = rows[0]["update"], rows[-1]["update"] * own_rate
    words = re.search(r"From (\d+) to (\d+) layers the matrices' update goes from ([\d.]+) to ([\d.]+)\s", said)
    assert words is not None
    assert [int(found) for found in words.groups()[:2]] == [SHALLOW, num_layers]
    assert [float(found) for found in words.groups()[2:]] == pytest.approx(updates, rel=1e-2)

    snippet = said[said.index("```python") :].split("```")[1]
    assert float(re.findall(r"^ALPHA = (.+)$", snippet, re.MULTILINE)[0]) == pytest.approx(rule.residual_weight)
    assert ast.literal_eval(re.findall(r"^GAIN = (.+)$", snippet, re.MULTILINE)[0]) == pytest.approx(gains, rel=1e-5)
    rates = {role: float(rate) for role, rate in re.findall(r"#   (\w+): learning rate \* (\S+)", snippet)}
    wanted = {role: rate for role, rate in at_depth.items() if rate != 1}
    for role, power in exponents(rows).items():
        # at the rule's own learning rate, a power of the depth between the first and the last
        here = math.log(at_depth.get(role, 1.0)) / math.log(num_layers / SHALLOW)
        if role != "update" and power is not None and power + here > FLAT:
            wanted[role] = shallow[role] / deep[role]
    assert wanted
    assert rates == pytest.approx(wanted, rel=1e-2)


REFUSED = {
    "SHALLOW is 6 and NUM_LAYERS 6; needed: 1 <= SHALLOW < NUM_LAYERS": "NUM_LAYERS = 6",
    "D_MODEL is 1000, and has to be a multiple of NUM_HEADS, 16": "D_MODEL = 1000",
    "PLACEMENT is 'peri', and has to be one of: post, pre, sub": "PLACEMENT = 'peri'",
    "ARCHITECTURE is 'both', and has to be one of: decoder, encoder": "ARCHITECTURE = 'both'",
    "OPTIMIZER is 'adafactor', and has to be one of: sgd, momentum, adam, adamw, rmsprop, signsgd, lion, lars, lamb, "
    "muon, sophia": "OPTIMIZER = 'adafactor'",
}


def test_settings_that_it_cannot_serve_are_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = source(NAME)
    imports, settings, check = [cell for cell in notebook.cells if cell.cell_type == "code"][:3]
    notebook.cells = [imports]
    for changed in REFUSED.values():
        cell = deepcopy(check)
        cell.source = f"{settings.source}\n{changed}\n{check.source}"
        cell.metadata["tags"] = ["raises-exception"]  # and the next one is run all the same
        notebook.cells.append(cell)
    found = [output for cell in execute(notebook, tmp_path, monkeypatch).cells for output in cell.outputs]
    assert [output.get("evalue") for output in found] == list(REFUSED)

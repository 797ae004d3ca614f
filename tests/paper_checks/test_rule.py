"""What ``depthlaw rule`` says beside the rule: held against ``depthlaw predict``, torch and what sims build."""

import json
import math
import subprocess
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from sympy import Rational, sympify
from torch import nn

from paper_checks import experiments, rule_roles
from paper_checks.commands import rule as command
from paper_checks.commands.inputs import BadInputError
from paper_checks.commands.predict_attention import percent
from paper_checks.commands.rule_text import XAVIER, _factor, legend, snippet
from paper_checks.experiments.base import RECORDS
from paper_checks.networks import Network, NoTheoryError
from paper_checks.rule_roles import BESIDE, FLAT, beside, named_scheme, predict_command, role_growth, trained_under
from paper_checks.transformers_growth import FLAT as FLAT_IN_TRANSFORMERS
from paper_checks.transformers_growth import MATTERS
from sims.model import ModelConfig, Transformer, alternating
from theory.rule_order import rule_scheme
from theory.rules import solve_rule
from theory.schemes import SCHEMES, custom_scheme
from theory.stack import PLACEMENTS

DEPTHLAW = Path(__file__).resolve().parents[2] / ".venv" / "bin" / "depthlaw"
D_MODEL = "1024"
RULE = ("q", "k", "v", "out", "fc1", "fc2")
WITHIN = 0.2
"""What the fewer tokens may change a growth over 8 times the depth by."""
NEAR = 0.05
"""An exponent so near to the edge of what grows may fall on either side of it."""


def document(*arguments: str) -> dict[str, Any]:
    result = subprocess.run([DEPTHLAW, *arguments, "--json"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def answer(norm: str, optimizer: str, arch: str, layers: int, **more: Any) -> dict[str, Any]:
    """The same of `rule`, without a process of its own."""
    with redirect_stdout(StringIO()) as out:
        command.run(norm, optimizer, arch, str(layers), None, None, as_json=True, **more)
    return json.loads(out.getvalue())


# --- what the other parameters do


def predicted_growth(norm: str, optimizer: str, arch: str, layers: int) -> dict[str, float]:
    """From an eighth of the layers, as `depthlaw predict --attention` has it: 16 tokens, all points."""
    rule = solve_rule(norm, optimizer, arch)
    shallow, deep = (
        Network(scheme=rule_scheme(rule, rule.sides[0]), arch=arch, num_sublayers=2 * n, has_wide_heads=True).theory(
            optimizer
        )
        for n in (layers // 8, layers)
    )
    found = {role: value / shallow.roles[role] for role, value in deep.roles.items() if shallow.roles[role]}
    return {role: value for role, value in found.items() if role not in RULE} | {"": deep.update / shallow.update}


def wrong(others: dict[str, Any], warnings: list[str], predicted: dict[str, float]) -> list[str]:
    """What an answer of `rule` says otherwise than the prediction."""
    said = {role: one["growth"] for role, one in others["roles"].items()} | {"": others["matrices"]["growth"]}
    found = [f"{role} is left out" for role in predicted.keys() - said.keys()]
    found += [f"{role}: x {said[role]}" for role in said if abs(said[role] / predicted[role] - 1) > WITHIN]
    text = " ".join(line for line in warnings if "other parameters" in line)
    for role, factor in predicted.items():
        exponent = math.log(factor) / math.log(8)
        if role and abs(exponent - FLAT) > NEAR and (f"{role} x {said.get(role, 0):.3g}" in text) != (exponent > FLAT):
            found.append(f"{role} goes as L^{exponent:.2f}, and the warning is: {text}")
    return found


CASES = [
    ("post", "adam", "encoder"),
    ("post", "sgd", "decoder"),
    ("post", "lamb", "encoder"),
    ("pre", "adamw", "decoder"),
    ("pre", "muon", "encoder"),
    ("sub", "sgd", "encoder"),
    ("sub", "adam", "decoder"),
]


@pytest.mark.parametrize(("norm", "optimizer", "arch"), CASES)
def test_other_roles_grow_as_predicted(norm: str, optimizer: str, arch: str) -> None:
    rule = solve_rule(norm, optimizer, arch)
    others = command.other_roles(rule, {str(rule.sides[0].num_layers): 16})
    warnings = command.warnings_of(others, is_held=True)
    assert others["layers"] == [2, 16]
    assert wrong(others, warnings, predicted_growth(norm, optimizer, arch, 16)) == []


def test_a_warning_that_is_dropped_or_misstated_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    predicted = predicted_growth("post", "adam", "encoder", 16)
    rule = solve_rule("post", "adam", "encoder")
    others = command.other_roles(rule, {"N": 16})
    warnings = command.warnings_of(others, is_held=True)
    assert not wrong(others, warnings, predicted)
    assert wrong(others, [], predicted)
    assert wrong(others, [line.replace("norm_gain", "embedding") for line in warnings], predicted)
    other = command.other_roles(solve_rule("pre", "adam", "encoder"), {"N": 16})
    assert wrong(other, command.warnings_of(other, is_held=True), predicted)
    monkeypatch.setattr(rule_roles, "SHALLOWER", 4)
    less = command.other_roles(rule, {"N": 16})
    assert wrong(less, command.warnings_of(less, is_held=True), predicted)


def test_matrices_that_grow_are_warned_of() -> None:
    rule = solve_rule("sub", "adam", "encoder")
    others = command.other_roles(rule, {"N": 16})
    assert any("matrices' own update" in line for line in command.warnings_of(others, is_held=True))
    assert not any("matrices' own update" in line for line in command.warnings_of(others, is_held=False))


def test_flat_is_what_the_page_calls_flat() -> None:
    assert FLAT == FLAT_IN_TRANSFORMERS


def test_what_is_not_computed_is_said_in_one_line() -> None:
    for optimizer, layers, reason in (("adafactor", 48, "rank one"), ("adam", 1, "one layer")):
        with pytest.raises(NoTheoryError, match=reason):
            role_growth(solve_rule("post", optimizer), {"N": layers})
        others = command.other_roles(solve_rule("post", optimizer), {"N": layers})
        assert reason in others["not_computed"]
        assert "\n" not in others["not_computed"]
        assert command.warnings_of(others, is_held=True) == []


def test_very_deep_and_both_sides() -> None:
    deep = role_growth(solve_rule("post", "sgd"), {"N": 10**9})
    assert (deep.shallow, deep.deep) == ({"N": 8}, {"N": 64})
    both = role_growth(solve_rule("post", "sgd", "encoder-decoder", "deepnet"), {"N": 16, "M": 8})
    assert (both.shallow, both.deep) == ({"N": 2, "M": 2}, {"N": 16, "M": 8})
    assert both.others["norm_gain"].grows
    assert both.matrices is not None
    assert not both.matrices.grows


def test_shares_are_those_of_predict() -> None:
    found = answer("post", "adamw", "decoder", 16, width=D_MODEL)
    _, *arguments = found["other_roles"]["command"].split()
    assert "--width" in arguments
    predicted = {role: values[-1] for role, values in document(*arguments)["shares"].items()}
    others = found["other_roles"]["roles"]
    assert {"bias", "norm_gain", "norm_bias", "head", "embedding"} == set(others)
    for role, one in others.items():
        assert one["share"] == pytest.approx(predicted[role], rel=0.02), role
    (line,) = [line for line in found["warnings"] if "other parameters" in line]
    for role, one in others.items():
        assert (f"{role} x {one['growth']:.3g} (share {percent(one['share'])})" in line) == one["grows"]
    assert "d_model 1024" in line
    assert "add --width" not in line


def test_without_a_width_the_warning_asks_for_it() -> None:
    rule = solve_rule("post", "adam", "encoder")
    (line,) = command.warnings_of(command.other_roles(rule, {"N": 8}), is_held=True)
    assert line.endswith("add --width D")
    assert "share" not in line
    (wide,) = command.warnings_of(command.other_roles(rule, {"N": 8}, d_model=10**5), is_held=True)
    assert "hardly matters" in wide
    assert command.MATTERS == MATTERS


# --- what the model is before the first step


def start_of(norm: str, optimizer: str, layers: int, activation: str = "relu") -> list[str]:
    return answer(norm, optimizer, "decoder", layers, activation=activation)["start"]


def test_a_rule_that_starts_as_the_identity_says_so() -> None:
    identity, training = start_of("pre", "adamw", 48)
    assert "1/(4*M**2) = 0.000109 of the stream" in identity
    assert "together 0.00106" in identity
    assert "S3-49" in training
    assert "No run in TRAINING.md" in training
    (only,) = start_of("post", "sgd", 4)
    assert "identity" not in only
    assert "(su-sgd) with relu and layernorm, under adam, lamb, sgd" in only
    assert "No run in TRAINING.md" in start_of("post", "sgd", 4, "gelu")[-1]


def test_trained_schemes_are_those_of_the_experiments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert rule_roles.RECORDS == RECORDS
    planned = {one.trial.scheme for name in experiments.NAMES for one in experiments.experiment(name).arms}
    known = {name: named_scheme(scheme) for name, scheme in SCHEMES.items()}
    for name in SCHEMES:
        alike = {other for other in SCHEMES if known[other] == known[name]}
        assert bool(trained_under(SCHEMES[name], "relu", "layernorm")) == bool(alike & planned), name
    monkeypatch.setattr(rule_roles, "RECORDS", tmp_path)
    assert trained_under(SCHEMES["su-sgd"], "relu", "layernorm") is None


# --- the same rule, asked about elsewhere


NAMED = {
    ("post", "adam", "encoder", None): "su-adam",
    ("post", "sgd", "encoder", None): "su-sgd",
    ("post", "sgd", "decoder", "deepnet"): "deepnorm",
    ("post", "lamb", "encoder", None): "su-lamb",
    ("pre", "muon", "decoder", None): "su-pre-adam",
    ("sub", "sgd", "encoder", None): "sub-ln-gamma",
    ("sub", "lars", "encoder", None): "sub-ln",
    ("sub", "adam", "encoder", None): None,
    ("post", "adam", "encoder", "deepnet"): None,
}


@pytest.mark.parametrize("case", NAMED, ids=str)
def test_named_scheme_has_the_rule_s_values(case: tuple[str, str, str, str | None]) -> None:
    rule = solve_rule(*case)
    assert named_scheme(rule_scheme(rule, rule.sides[0])) == NAMED[case]


def test_no_name_for_other_values() -> None:
    quarter, half = (Rational(1), Rational(1, 4)), (Rational(1), Rational(1, 2))
    assert named_scheme(custom_scheme("post", residual_weight=quarter, gain=(Rational(1), Rational(-1, 4)))) == "su-sgd"
    assert named_scheme(custom_scheme("post", residual_weight=half, gain=(Rational(1), Rational(-1, 4)))) is None
    assert named_scheme(custom_scheme("pre", residual_weight=quarter, gain=(Rational(1), Rational(-1, 4)))) is None


@pytest.mark.parametrize("select", [None, "deepnet"])
def test_the_command_asks_about_this_rule(select: str | None) -> None:
    rule = solve_rule("post", "adam", "decoder", select)
    line = predict_command(rule, (1, 8))
    assert line is not None
    program, *arguments = line.split()
    assert program == "depthlaw"
    found = document(*arguments)
    network = Network(scheme=rule_scheme(rule, rule.sides[0]), arch="decoder", num_sublayers=16, has_wide_heads=True)
    assert found["rows"][-1]["roles"] == pytest.approx(dict(network.theory("adam").roles), rel=1e-6)


# --- without the rule


def test_without_the_rule() -> None:
    rows = {one.scheme: one for one in beside(solve_rule("pre", "adam", "decoder"), 48)}
    assert rows.keys() == {"rule-pre-adam-alpha-one", *BESIDE["pre"]}
    found = document("predict", "--scheme", "gpt2", "--optimizer", "adam", "--sublayers", "12,96")
    shallow, deep = (row["update"] for row in found["rows"])
    gpt2 = rows["gpt2"].growth
    assert gpt2 is not None
    assert gpt2.factor == pytest.approx(deep / shallow)
    assert rows["gpt2"].order == "0.5723 M"
    ruled = rows["rule-pre-adam-alpha-one"].growth
    assert ruled is not None
    assert abs(ruled.exponent) < FLAT < gpt2.exponent


def test_schemes_beside_stand_where_the_rule_s_norms_do() -> None:
    assert BESIDE.keys() == set(command.NORMS)
    for norm, schemes in BESIDE.items():
        assert schemes[0] == rule_roles.plain_scheme(PLACEMENTS[norm])
        assert all(SCHEMES[name].stack.placement == PLACEMENTS[norm] for name in schemes)


# --- how to set it


def spread(weight: torch.Tensor) -> float:
    return float(weight.detach().double().std())


def is_xavier(weight: torch.Tensor, gain: float, law: str) -> bool:
    """Of tens of thousands of entries the spread is known within 1 %."""
    rows, columns = weight.shape
    return abs(spread(weight) / (gain * float(sympify(law, {"fan_in": columns, "fan_out": rows}))) - 1) < 0.02


def test_init_gain_is_what_sims_and_torch_take_it_for() -> None:
    gain = 0.3
    config = ModelConfig(d_model=128, placement="post", encoder=alternating(2, gains={"fc1": gain}))
    model = Transformer(config, seed=0)
    [weight] = [parameter for _, parameter, role in model.tagged() if role == "fc1"]
    ours = nn.init.xavier_normal_(torch.empty(weight.shape), gain)
    for found in (weight, ours):
        assert is_xavier(found, gain, XAVIER)
        for law in (f"sqrt(2)*{XAVIER}", "1/sqrt(fan_in)", "sqrt(2/fan_in)", "sqrt(6/(fan_in + fan_out))"):
            assert not is_xavier(found, gain, law), law


@pytest.mark.parametrize(("norm", "arch"), [("post", "decoder"), ("pre", "encoder"), ("sub", "encoder-decoder")])
def test_snippet_sets_the_rule_s_gains(norm: str, arch: str, capsys: pytest.CaptureFixture[str]) -> None:
    more = "6" if arch == "encoder-decoder" else None
    command.run(norm, "sgd", arch, "12", more, None, as_json=True)
    answer = json.loads(capsys.readouterr().out)
    side = answer["decoder"] if more else answer
    torch.manual_seed(0)
    d = 96
    names: dict[str, Any] = {f"norm{place}": nn.LayerNorm(d) for place in (1, 2, 3)}
    names |= {"norm1b": nn.LayerNorm(d), "norm3b": nn.LayerNorm(4 * d), "norm2b": nn.LayerNorm(4 * d)}
    names |= {"attn": nn.MultiheadAttention(d, 4), "cross": nn.MultiheadAttention(d, 4), "relu": torch.relu}
    names |= {"fc1": nn.Linear(d, 4 * d), "fc2": nn.Linear(4 * d, d), "heads": lambda x: x}
    names |= {"x": torch.randn(5, d), "memory": torch.randn(5, d), "T": 5}
    before, code = names["x"], snippet(norm, side)
    exec("\n".join(code), names)
    assert names["x"].shape == before.shape
    weights = {"out": names["attn"].out_proj.weight, "fc1": names["fc1"].weight, "fc2": names["fc2"].weight}
    weights |= {role: names[role] for role in ("q", "k", "v")}
    if more:
        weights |= {role: names[role] for role in ("cross_q", "cross_k", "cross_v")}
        weights["cross_out"] = names["cross"].out_proj.weight
    assert weights.keys() == side["init_gain"].keys()
    for role, weight in weights.items():
        gain = side["init_gain"][role]
        assert spread(weight) == pytest.approx(gain * math.sqrt(2 / sum(weight.shape)), rel=0.03), role
    packed = names["attn"].in_proj_weight.chunk(3)
    assert torch.equal(packed[2], names["v"]), "the packed matrix itself is what is set"
    assert any(f"{side['residual_weight']:.6g} * x" in line for line in code) == (norm == "post")


def layer_of(d: int, activation: str = "relu") -> dict[str, Any]:
    """Default modules, whose linear biases are random, and biases of attention that someone has set."""
    names: dict[str, Any] = {"fc1": nn.Linear(d, 4 * d), "fc2": nn.Linear(4 * d, d)}
    names |= {name: nn.MultiheadAttention(d, 4) for name in ("attn", "cross")}
    for bias in (names["attn"].in_proj_bias, names["attn"].out_proj.bias):
        nn.init.normal_(bias)
    names |= {name: nn.LayerNorm(d) for name in ("norm1", "norm2", "norm3", "norm1b")}
    names |= {name: nn.LayerNorm(4 * d) for name in ("norm2b", "norm3b")}
    return names | {activation: getattr(nn.functional, activation)}


def branch_over_rule(code: list[str], side: dict[str, Any], activation: str) -> float:
    """RMS of the FFN branch at the start over what the gains say: fan_in times the variance of Xavier, once for each
    matrix, and phi's second moment between them."""
    torch.manual_seed(0)
    d, tokens = 64, 512
    names = layer_of(d, activation) | {"x": torch.randn(tokens, d), "T": tokens}
    with torch.no_grad():
        exec("\n".join(code), names)
        given = names["norm2"](torch.randn(tokens, d))
        phi = getattr(nn.functional, activation)
        found = names["fc2"](phi(names["fc1"](given))).square().mean().sqrt()
        first = side["init_gain"]["fc1"] ** 2 * d * 2 / (5 * d)
        inner = phi(first**0.5 * torch.randn(10**6)).square().mean()
        second = side["init_gain"]["fc2"] ** 2 * 4 * d * 2 / (5 * d)
    return float(found / (second * inner).sqrt())


@pytest.mark.parametrize(("norm", "activation"), [("pre", "relu"), ("pre", "gelu"), ("post", "tanh")])
def test_a_pasted_branch_starts_as_the_rule_says(norm: str, activation: str) -> None:
    side = answer(norm, "adamw", "decoder", 48)
    code = snippet(norm, side, activation, is_causal=True)
    assert branch_over_rule(code, side, activation) == pytest.approx(1, abs=0.1)
    kept = [line for line in code if "zeros_(b)" not in line and not line.startswith("for b in")]
    assert len(kept) == len(code) - 2
    assert branch_over_rule(kept, side, activation) > 2, "with the biases of nn.Linear it does not"
    assert branch_over_rule([line.replace("gain=0.", "gain=0.3") for line in code], side, activation) > 1.5


def first_token_moves(code: list[str]) -> bool:
    """Whether the first token's output sees the last one."""
    d, tokens = 32, 6

    def heads(x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        scores = x @ x.T / len(x.T)
        return (scores if mask is None else scores.masked_fill(mask, -math.inf)).softmax(-1) @ x

    torch.manual_seed(0)
    start = torch.randn(tokens, d)
    other = torch.cat([start[:-1], torch.randn(1, d)])
    outputs = []
    for x in (start, other):
        torch.manual_seed(1)
        names = layer_of(d) | {"x": x, "T": tokens, "heads": heads, "memory": torch.ones(3, d)}
        exec("\n".join(code), names)
        outputs.append(names["x"])
    assert not torch.equal(outputs[0][-1], outputs[1][-1])
    return not torch.allclose(outputs[0][0], outputs[1][0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("norm", command.NORMS)
@pytest.mark.parametrize("arch", ["encoder", "decoder", "encoder-decoder"])
def test_a_decoder_s_snippet_does_not_see_the_future(
    norm: str, arch: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of what is printed, as it is printed."""
    monkeypatch.setenv("COLUMNS", "400")
    command.run(norm, "sgd", arch, "2", "2" if arch == "encoder-decoder" else None, None, as_json=False)
    for part in capsys.readouterr().out.split("In torch, ")[1:]:
        name, *lines = part.splitlines()
        code = [line[2:] for line in lines[: next(i for i, line in enumerate(lines) if not line.startswith("  "))]]
        assert first_token_moves(code) == (name != "decoder:")
        if name == "decoder:" and norm != "sub":
            assert first_token_moves([line.replace(", attn_mask=mask, is_causal=True", "") for line in code])


def test_learning_rates_of_their_own_are_in_the_snippet() -> None:
    rule = solve_rule("pre", "adamw", "decoder")
    others = command.other_roles(rule, {"M": 48})
    side = answer("pre", "adamw", "decoder", 48)
    text = " ".join(snippet("pre", side, is_causal=True, others=others)).replace("#  ", "")
    assert f"bias {others['roles']['bias']['lr_multiplier']:.3g}" in text
    assert "norm_gain" not in text, "it does not grow there"


# --- how it looks


def test_words_of_the_table_are_explained() -> None:
    lines = legend(solve_rule("post", "adam", "decoder"), "decoder", {"M": 48})
    assert lines[0] == "M: layers of the decoder, here 48."
    for word in ("residual weight", "branch weight", "init gain", "selection symmetric", "update grows as"):
        assert any(word in line for line in lines), word


def shown(capsys: pytest.CaptureFixture[str], norm: str, optimizer: str, layers: int, **more: Any) -> str:
    command.run(norm, optimizer, "decoder", str(layers), None, None, as_json=False, **more)
    return " ".join(capsys.readouterr().out.split())


def test_other_ways_and_why_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    short, full = shown(capsys, "pre", "adam", 8), shown(capsys, "pre", "adam", 8, has_why=True)
    for said in ("Why: 1.", "Other ways to hold it, decoder", "growing-gains: "):
        assert said not in short
        assert said in full
    assert short.endswith("Other ways to hold it, and why step by step: add --why")
    assert "add --why" not in full


def test_the_activation_and_norm_asked_for_are_in_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "post", "adamw", 48, activation="gelu", norm_kind="rmsnorm", has_why=True)
    for said in (
        "fc2(gelu(fc1(x)))",
        "nn.RMSNorm",
        "4 tokens, gelu, rmsnorm",
        "FFN stack (gelu, rmsnorm, infinite width)",
        "FFN stack (gelu, rmsnorm): the update",
        "faster than any power, exp(",
        "--activation gelu --norm-kind rmsnorm",
    ):
        assert said in text, said
    assert "norm_bias x" not in text, "an RMSNorm has none"


def test_the_document_keeps_relu_and_gelu_and_adds_what_is_asked_for() -> None:
    kinds = [("relu", "layernorm"), ("gelu", "layernorm")]
    for activation, also in (("relu", []), ("gelu", []), ("tanh", [("tanh", "layernorm")])):
        found = answer("pre", "adam", "encoder", 4, activation=activation)
        assert [(one["activation"], one["norm_kind"]) for one in found["mean_field"]] == kinds + also


def test_growth_beyond_the_floats_is_a_power_of_ten() -> None:
    one = {row["scheme"]: row for row in command._without(solve_rule("post", "adam"), 10**6, "gelu", "layernorm")}
    assert one["post-ln"]["growth"] is None
    assert one["post-ln"]["log10_growth"] > 308
    assert _factor(one["post-ln"]).startswith("x 10^")
    assert _factor(one["su-adam" if "su-adam" in one else "deepnorm"]).startswith("x 2.8")


@pytest.mark.parametrize(("asked", "meant"), [("post-ln", "post"), ("sub-ln", "sub"), ("prr", "pre")])
def test_a_norm_that_is_mistyped_is_guessed(asked: str, meant: str) -> None:
    with pytest.raises(BadInputError, match=rf"did you mean {meant}\?"):
        command.run(asked, "adam", "encoder", "4", None, None, as_json=True)


def folded(text: str) -> list[str]:
    """Rows of tables that a cell was broken into."""
    rows = [line for line in text.splitlines() if line.startswith("│")]
    return [row for row in rows if not row.strip("│ ").strip() or not row.split("│")[1].strip()]


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("norm", ["post", "sub"])
def test_it_is_readable_at_that_width(
    norm: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    command.run(norm, "adam", "decoder", "16", None, None, as_json=False)
    text = capsys.readouterr().out
    prose = [line for line in text.splitlines() if not line.startswith("  ") or line.startswith("     ")]
    assert max(map(len, prose)) <= columns
    assert folded(text) == []
    for said in (
        "WARNING",
        "notebooks/08_choose_your_rule.ipynb",
        "depthlaw predict --",
        "Weight decay",
        "xavier_normal_",
        "add --why",
    ):
        assert said in text, said
    assert folded("│ depth-mup │ alpha = lambda │\n│           │ = 1            │")

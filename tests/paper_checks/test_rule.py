"""What ``depthlaw rule`` says beside the rule: held against ``depthlaw predict``, torch and what sims build."""

import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sympy import Rational

from paper_checks import experiments
from paper_checks.lowering import rule_document as command
from paper_checks.lowering import rule_roles
from paper_checks.lowering.networks import Network, NoTheoryError
from paper_checks.lowering.predicted_rows import percent
from paper_checks.lowering.rule_roles import (
    BESIDE,
    FLAT,
    beside,
    named_scheme,
    predict_command,
    role_growth,
    trained_under,
)
from paper_checks.pages.transformers.growth import FLAT as FLAT_IN_TRANSFORMERS
from paper_checks.pages.transformers.growth import MATTERS
from paper_checks.system.places import TRAINING_RECORDS as RECORDS
from tests.command import document, options
from theory.rules.check import rule_scheme
from theory.rules.solve import solve_rule
from theory.schemes import SCHEMES, custom_scheme
from theory.stack import PLACEMENTS

D_MODEL = "1024"
RULE = ("q", "k", "v", "out", "fc1", "fc2")
WITHIN = 0.2
"""What the fewer tokens may change a growth over 8 times the depth by."""
NEAR = 0.05
"""An exponent so near to the edge of what grows may fall on either side of it."""


def answer(norm: str, optimizer: str, arch: str, layers: int, **more: object) -> dict[str, Any]:
    """The document of ``depthlaw rule``."""
    return document("rule", *options(norm=norm, optimizer=optimizer, arch=arch, layers=layers, **more))


# --- what the other parameters do


@cache
def predicted_growth(norm: str, optimizer: str, arch: str, num_tokens: int) -> dict[str, float]:
    """From 2 layers to 16, as `depthlaw predict --attention` has it, with all points."""
    rule = solve_rule(norm, optimizer, arch)
    shape: dict[str, Any] = {"arch": arch, "num_tokens": num_tokens, "has_wide_heads": True}
    shallow, deep = (
        Network(scheme=rule_scheme(rule, rule.sides[0]), num_sublayers=2 * n, **shape).theory(optimizer)
        for n in (2, 16)
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


@cache
def others_of(norm: str, optimizer: str, arch: str) -> dict[str, Any]:
    rule = solve_rule(norm, optimizer, arch)
    return command.other_roles(rule, {str(rule.sides[0].num_layers): 16})


# With fewer tokens than a prediction has, a case is quick: one that grows by few roles, one by many.
FEW, ALL = 6, 16
CASES = [
    ("post", "adam", "encoder", FEW),
    ("sub", "sgd", "decoder", FEW),
    *(
        pytest.param(*case, ALL, marks=pytest.mark.slow)
        for case in (
            ("post", "adam", "encoder"),
            ("post", "sgd", "decoder"),
            ("post", "lamb", "encoder"),
            ("pre", "adamw", "decoder"),
            ("pre", "muon", "encoder"),
            ("sub", "sgd", "encoder"),
            ("sub", "adam", "decoder"),
        )
    ),
]


@pytest.mark.parametrize(("norm", "optimizer", "arch", "num_tokens"), CASES)
def test_other_roles_grow_as_predicted(norm: str, optimizer: str, arch: str, num_tokens: int) -> None:
    others = others_of(norm, optimizer, arch)
    warnings = command.warnings_of(others, is_held=True)
    assert others["layers"] == [2, 16]
    assert wrong(others, warnings, predicted_growth(norm, optimizer, arch, num_tokens)) == []


@pytest.mark.usefixtures("quickly")
def test_matrices_that_grow_are_warned_of() -> None:
    others = command.other_roles(solve_rule("sub", "adam", "encoder"), {"N": 16})
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


@pytest.mark.usefixtures("quickly")
def test_shares_are_those_of_predict() -> None:
    """With as many tokens as it has here."""
    found = answer("post", "adamw", "decoder", 8, width=D_MODEL)
    _, *arguments = found["other_roles"]["command"].split()
    assert "--width" in arguments
    tokens = options(tokens=rule_roles.TOKENS)
    predicted = {role: values[-1] for role, values in document(*arguments, *tokens)["shares"].items()}
    others = found["other_roles"]["roles"]
    assert {"bias", "norm_gain", "norm_bias", "head", "embedding"} == set(others)
    for role, one in others.items():
        assert one["share"] == pytest.approx(predicted[role], rel=0.02), role
    (line,) = [line for line in found["warnings"] if "other parameters" in line]
    for role, one in others.items():
        assert (f"{role} x {one['growth']:.3g} (share {percent(one['share'])})" in line) == one["grows"]
    assert "d_model 1024" in line
    assert "add --width" not in line


@pytest.mark.usefixtures("quickly")
def test_without_a_width_the_warning_asks_for_it() -> None:
    rule = solve_rule("post", "adam", "encoder")
    (line,) = command.warnings_of(command.other_roles(rule, {"N": 8}), is_held=True)
    assert line.endswith("add --width D")
    assert "share" not in line
    (wide,) = command.warnings_of(command.other_roles(rule, {"N": 8}, d_model=10**5), is_held=True)
    assert "hardly matters" in wide
    assert command.MATTERS == MATTERS


# --- what the model is before the first step


@pytest.mark.usefixtures("quickly")
def test_a_rule_that_starts_as_the_identity_says_so() -> None:
    identity, training = answer("pre", "adamw", "decoder", 48)["start"]
    assert "1/(4*M**2) = 0.000109 of the stream" in identity
    assert "together 0.00106" in identity
    assert "S3-49" in training
    assert "No run in TRAINING.md" in training
    found = answer("post", "sgd", "decoder", 4)
    (only,) = found["start"]
    assert "identity" not in only
    assert "(su-sgd) with relu and layernorm, under adam, lamb, sgd" in only
    rule = solve_rule("post", "sgd", "decoder")
    assert "No run in TRAINING.md" in command.starts(rule, {"decoder": found}, "leaky_relu", "layernorm")[-1]


def test_trained_schemes_are_those_of_the_experiments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert rule_roles.TRAINING_RECORDS == RECORDS
    planned = {one.trial.scheme for name in experiments.NAMES for one in experiments.experiment(name).arms}
    known = {name: named_scheme(scheme) for name, scheme in SCHEMES.items()}
    for name in dict.fromkeys(known[name] or name for name in SCHEMES):  # one of those that are alike
        alike = {other for other in SCHEMES if known[other] == known[name]}
        assert bool(trained_under(SCHEMES[name], "relu", "layernorm")) == bool(alike & planned), name
    monkeypatch.setattr(rule_roles, "TRAINING_RECORDS", tmp_path)
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
    line = predict_command(rule, (1, 4))
    assert line is not None
    program, *arguments = line.split()
    assert program == "depthlaw"
    found = document(*arguments, "--tokens", "3")
    scheme = rule_scheme(rule, rule.sides[0])
    network = Network(scheme=scheme, arch="decoder", num_sublayers=8, num_tokens=3, has_wide_heads=True)
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
    assert gpt2.exponent == pytest.approx(math.log(deep / shallow, 96 / 12))
    assert rows["gpt2"].order == "0.5723 M"
    ruled = rows["rule-pre-adam-alpha-one"].growth
    assert ruled is not None
    assert abs(ruled.exponent) < FLAT < gpt2.exponent


def test_schemes_beside_stand_where_the_rule_s_norms_do() -> None:
    assert BESIDE.keys() == set(command.NORMS)
    for norm, schemes in BESIDE.items():
        assert schemes[0] == rule_roles.plain_scheme(PLACEMENTS[norm])
        assert all(SCHEMES[name].stack.placement == PLACEMENTS[norm] for name in schemes)


@pytest.mark.usefixtures("quickly")
def test_two_layers_at_least_are_compared_and_none_is_warned_of() -> None:
    assert [rule_roles.shallower(n) for n in (1, 2, 3, 4, 16, 17, 48)] == [1, 1, 2, 2, 2, 2, 6]
    for layers in (2, 4):
        found = answer("pre", "lamb", "decoder", layers)
        assert found["warnings"] == []
        assert found["other_roles"]["layers"] == [layers // 2, layers]
    assert answer("post", "lamb", "decoder", 4)["warnings"] != []


def test_few_tokens_make_no_warning_of_a_small_exponent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [rule_roles.tokens_of(norm, None) for norm in ("post", "pre", "sub")] == [4, 4, 16]
    assert {rule_roles.tokens_of(norm, 64) for norm in ("post", "pre", "sub")} == {16}
    rule = solve_rule("post", "lamb")
    assert role_growth(rule, {"N": 4}).others["norm_gain"].grows
    monkeypatch.setattr(rule_roles, "FLAT_AT_FEW_TOKENS", 2.0)
    assert not role_growth(rule, {"N": 4}).others["norm_gain"].grows
    assert role_growth(rule, {"N": 4}, d_model=64).others["norm_gain"].grows, "16 tokens are not few"


# --- where no gain holds the update, and where the argument is denied


@pytest.mark.usefixtures("quickly")
def test_the_rate_that_is_left_where_no_gain_helps() -> None:
    found = answer("sub", "lamb", "encoder", 16)
    assert found["init_gain"] is None
    assert set(found["lr_multiplier"].values()) == {1}
    left = found["rate_left"]
    rule = solve_rule("sub", "lamb")
    matrices = role_growth(rule, {"N": 16}).matrices
    assert matrices is not None
    assert left["multiplier"] == pytest.approx(1 / matrices.factor)
    assert left["layers"] == [2, 16]
    (line,) = [line for line in found["warnings"] if "no init gain" in line]
    assert f"x {matrices.factor:.3g} from 2 to 16 layers" in line
    assert f"{1 / matrices.factor:.3g} times the rate that suits 2 layers" in line
    held = answer("sub", "adam", "encoder", 2)
    assert (found["other_roles"]["unmoved"], held["other_roles"]["unmoved"]) == (["bias", "norm_bias"], [])
    assert held["rate_left"] is None
    assert not any("no init gain" in line for line in held["warnings"])


@pytest.mark.usefixtures("quickly")
def test_the_rate_that_is_left_by_the_argument_alone() -> None:
    found = answer("sub", "adafactor", "encoder", 8)
    assert found["rate_left"] == {"multiplier": pytest.approx(1 / 4), "layers": None, "formula": "1/sqrt(2*N)"}
    (line,) = [line for line in found["warnings"] if "no init gain" in line]
    assert "grows as sqrt(2*N); 0.25 times the rate where 1/sqrt(2*N) is 1" in line


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize(
    ("norm", "optimizer", "activation"),
    [
        ("sub", "sgd", "relu"),
        pytest.param("sub", "momentum", "leaky_relu", marks=pytest.mark.slow),
        ("sub", "adam", "relu"),
        ("pre", "sgd", "leaky_relu"),
        pytest.param("pre", "sgd", "gelu", marks=pytest.mark.slow),
    ],
)
def test_exact_moments_that_deny_the_argument_are_warned_of(norm: str, optimizer: str, activation: str) -> None:
    found = answer(norm, optimizer, "decoder", 4, activation=activation)
    one = next(line for line in found["mean_field"] if line["activation"] == activation)
    said = [line for line in found["warnings"] if "disagree" in line]
    assert len(said) == (one["is_flat"] is False)
    assert all(line.endswith(f"({activation}, layernorm) disagree: it goes as {one['approximate']}") for line in said)
    assert bool(said) == (optimizer in {"sgd", "momentum"} and norm == "sub")

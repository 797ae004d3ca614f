"""What ``depthlaw rule`` prints: the lines for torch, run, and the tables, read back."""

import math
import re
from functools import cache
from itertools import takewhile
from typing import Any

import pytest
import torch
from sympy import sympify
from torch import nn

from paper_checks.cli.rule import XAVIER, _factor, legend
from paper_checks.lowering import rule_document as command
from paper_checks.lowering import rule_roles
from paper_checks.lowering.rule_snippet import snippet
from sims.model import ModelConfig, Transformer, alternating
from tests.command import document, options, refusal, told
from theory.rules.solve import solve_rule

pytestmark = pytest.mark.usefixtures("quickly")


def asked(norm: str, optimizer: str, arch: str, layers: int, **more: object) -> list[str]:
    return ["rule", *options(norm=norm, optimizer=optimizer, arch=arch, layers=layers, **more)]


@cache
def answer(norm: str, optimizer: str, arch: str, layers: int, **more: object) -> dict[str, Any]:
    return document(*asked(norm, optimizer, arch, layers, **more))


@cache
def printed(
    norm: str, optimizer: str, arch: str, layers: int, *, columns: int = 80, has_why: bool = True, **more: object
) -> str:
    """With --why, as most of what is tested here stands behind it."""
    why = ["--why"] if has_why else []
    return told(*asked(norm, optimizer, arch, layers, **more), *why, COLUMNS=str(columns))


ENDLESS = 400
"""Columns, in which no line is broken."""

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
def test_snippet_sets_the_rule_s_gains(norm: str, arch: str) -> None:
    more = {"decoder_layers": 6} if arch == "encoder-decoder" else {}
    found = answer(norm, "sgd", arch, 12, **more)
    side = found["decoder"] if more else found
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


@pytest.mark.parametrize(
    ("norm", "activation"), [("pre", "relu"), ("pre", "gelu"), pytest.param("post", "tanh", marks=pytest.mark.slow)]
)
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
@pytest.mark.parametrize(
    "arch", [*(pytest.param(one, marks=pytest.mark.slow) for one in ("encoder", "decoder")), "encoder-decoder"]
)
def test_a_decoder_s_snippet_does_not_see_the_future(norm: str, arch: str) -> None:
    """Of what is printed, as it is printed."""
    more = {"decoder_layers": 2} if arch == "encoder-decoder" else {}
    for part in printed(norm, "sgd", arch, 2, columns=ENDLESS, **more).split("In torch, ")[1:]:
        name, *lines = part.splitlines()
        code = [line[2:] for line in takewhile(lambda line: line.startswith("  "), lines)]
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
    for word in ("residual weight", "branch weight", "init gain", "selection symmetric", "update: what"):
        assert any(word in line for line in lines), word


def shown(norm: str, optimizer: str, layers: int, **more: Any) -> str:
    return " ".join(printed(norm, optimizer, "decoder", layers, **more).split())


SCREEN = 24
"""Lines of a terminal."""


@pytest.mark.parametrize(("norm", "optimizer"), [("post", "adam"), ("pre", "sgd"), ("sub", "lamb")])
def test_the_answer_is_on_one_screen(norm: str, optimizer: str) -> None:
    """What to set, whether the update is flat, and what is left open; everything else is behind --why."""
    found, text = answer(norm, optimizer, "decoder", 16), printed(norm, optimizer, "decoder", 16, has_why=False)
    assert len(text.splitlines()) <= SCREEN
    assert max(map(len, text.splitlines())) <= 80
    joined = " ".join(text.split())
    for role, one in found["other_roles"]["roles"].items():
        assert (f"{role} x {one['growth']:.3g}" in joined) == one["grows"]
        assert not one["grows"] or f"{one['lr_multiplier']:.3g}" in joined
    assert f"it goes x {found['other_roles']['matrices']['growth']:.3g} from 2 to 16 layers" in joined
    assert f"{found['residual_weight']:.6g} │ {found['formula']['residual_weight']}" in joined
    for gain in set((found["init_gain"] or {}).values()):
        assert f"│ {gain:.6g} │" in joined


def test_other_ways_and_why_are_asked_for() -> None:
    short, full = shown("pre", "adam", 8, has_why=False), shown("pre", "adam", 8)
    for said in ("Why: 1.", "Other ways to hold it, decoder", "growing-gains: ", "In torch", "xavier_normal_"):
        assert said not in short
        assert said in full
    assert full.startswith(short.partition("--why has lines")[0])
    assert "--why has lines" in short and "--why has lines" not in full


def test_the_activation_and_norm_asked_for_are_in_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside one other scheme: each has exact moments of its own, which take their time."""
    monkeypatch.setitem(rule_roles.BESIDE, "post", ("post-ln",))
    text = shown("post", "adam", 4, activation="gelu", norm_kind="rmsnorm")
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


def test_the_document_keeps_relu_and_gelu_and_adds_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their moments are."""
    monkeypatch.setattr(command, "CHECKED_ACTIVATIONS", ("relu", "gelu"))
    monkeypatch.setattr(command, "_without", lambda *_: [])
    monkeypatch.setattr(
        command,
        "mean_field",
        lambda _, activation, norm_kind: {
            "activation": activation,
            "norm_kind": norm_kind,
            "is_flat": None,
            "says": "",
        },
    )
    kinds = [("relu", "layernorm"), ("gelu", "layernorm")]
    for activation, also in (("relu", []), ("leaky_relu", [("leaky_relu", "layernorm")])):
        found = document(*asked("post", "adam", "encoder", 2, activation=activation))
        assert [(one["activation"], one["norm_kind"]) for one in found["mean_field"]] == kinds + also


def test_growth_beyond_the_floats_is_a_power_of_ten() -> None:
    one = {row["scheme"]: row for row in command._without(solve_rule("post", "adam"), 10**6, "gelu", "rmsnorm")}
    assert one["post-ln"]["growth"] is None
    assert one["post-ln"]["log10_growth"] > 308
    assert _factor(one["post-ln"]).startswith("x 10^")
    assert _factor(one["su-adam" if "su-adam" in one else "deepnorm"]).startswith("x 2.8")


@pytest.mark.parametrize(("wrong", "meant"), [("post-ln", "post"), ("sub-ln", "sub"), ("prr", "pre")])
def test_a_norm_that_is_mistyped_is_guessed(wrong: str, meant: str) -> None:
    assert f"did you mean {meant}?" in refusal("rule", *options(norm=wrong, optimizer="adam", arch="encoder", layers=4))


def folded(text: str) -> list[str]:
    """Rows of tables that a cell was broken into."""
    rows = [line for line in text.splitlines() if line.startswith("│")]
    return [row for row in rows if not row.strip("│ ").strip() or not row.split("│")[1].strip()]


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("asked", [("post", "adam", "decoder", 16), ("sub", "lamb", "encoder", 24)], ids=str)
def test_it_is_readable_at_that_width(asked: tuple[str, str, str, int], columns: int) -> None:
    text = printed(*asked, columns=columns)
    prose = [line for line in text.splitlines() if not line.startswith("  ") or line.startswith("     ")]
    assert max(map(len, prose)) <= columns
    assert folded(text) == []
    for said in (
        "WARNING",
        "notebooks/08_choose_your_rule.ipynb",
        "depthlaw predict --",
        "Weight decay",
        "xavier_normal_",
    ):
        assert said in text, said


# --- the same network, plainly


WEIGHTS = {"residual_weight": 1.7, "branch_weight": 0.6}
"""Unlike 1 and unlike each other."""


def off_reference(norm: str, code: list[str]) -> float:
    """How far the output of the lines is from that of the same matrices in a network of sims."""
    d, tokens, num_heads = 32, 6, 4
    torch.manual_seed(0)
    names = layer_of(d) | {"x": torch.randn(tokens, d), "T": tokens}
    for module in names.values():
        if isinstance(module, nn.Module):
            module.double()
    start = names["x"] = names["x"].double()

    def heads(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            (x @ matrix.T).unflatten(-1, (num_heads, -1)).transpose(0, 1)
            for matrix in names["attn"].in_proj_weight.chunk(3)
        )
        scores = (q @ k.mT / math.sqrt(d / num_heads)).masked_fill(mask, -math.inf)
        return (scores.softmax(-1) @ v).transpose(0, 1).flatten(-2)

    exec("\n".join(code), names | (locals_of := {"heads": heads, "x": start}), locals_of)
    q, k, v = names["attn"].in_proj_weight.chunk(3)
    matrices = {"0_q": q, "0_k": k, "0_v": v, "0_out": names["attn"].out_proj.weight}
    matrices |= {"1_fc1": names["fc1"].weight, "1_fc2": names["fc2"].weight}
    config = ModelConfig(
        d_model=d,
        num_heads=num_heads,
        placement=norm,
        is_causal=True,
        norm_eps=1e-5,
        encoder=alternating(2, **WEIGHTS),
    )
    model = Transformer(config, seed=0)
    with torch.no_grad():
        for name, matrix in matrices.items():
            model.get_parameter(f"_weights.encoder_{name}").copy_(matrix)
        wanted = model.streams(start[None])[2][0]
        return float((locals_of["x"] - wanted).abs().max())


@pytest.mark.parametrize("norm", command.NORMS)
def test_a_pasted_forward_pass_is_that_of_the_network(norm: str) -> None:
    gains = {role: 0.8 for role in ("q", "k", "v", "out", "fc1", "fc2")}
    side = {"init_gain": gains, "lr_multiplier": gains, "alternatives": []} | WEIGHTS
    code = snippet(norm, side, is_causal=True)
    assert off_reference(norm, code) < 1e-9


def wrong_legend(lines: list[str]) -> list[str]:
    """What the legend says of biases, norm gains and the learning rate, held against modules that the lines set."""
    said = " ".join(lines)
    found = re.search(r"Biases (\S+), norm gains (\d+)", said)
    if not found:
        return ["nothing of biases and gains"]
    names = layer_of(16) | {"x": torch.randn(3, 16), "T": 3}
    exec("\n".join(snippet("pre", answer("pre", "adam", "encoder", 2))), names)
    modules = [one for name, one in names.items() if isinstance(one, nn.Module) and name in ("attn", "fc1", "fc2")]
    biases = [value for one in modules for name, value in one.named_parameters() if "bias" in name]
    gains = [one.weight for one in names.values() if isinstance(one, nn.LayerNorm)]
    assert len(biases) == 4
    wrong = [f"biases {found[1]}"] * (not all((value == float(found[1])).all() for value in biases))
    wrong += [f"norm gains {found[2]}"] * (not all((value == float(found[2])).all() for value in gains))
    return wrong + ["the unit"] * (len(re.findall("per unit learning rate", said)) != 2)


def test_legend_says_what_the_lines_set() -> None:
    lines = legend(solve_rule("pre", "adam"), "encoder", {"N": 2})
    assert wrong_legend(lines) == []


# --- the tables, read back


def wrong_table(text: str, others: dict[str, Any]) -> list[str]:
    """What is printed of the other roles and is not in the document, or is not its own inverse."""
    rows = dict(re.findall(r"^│ (\S.*?) +│ (x .*?)│$", text, flags=re.MULTILINE))
    wanted = {"the rule's matrices": others["matrices"], **others["roles"]}
    found = [f"no row {role}" for role in wanted if role not in rows]
    for role in wanted.keys() & rows.keys():
        growth, exponent, rate = (float(cell.strip(" x")) for cell in rows[role].split("│"))
        one = wanted[role]
        if not math.isclose(growth, one["growth"], rel_tol=0.006) or abs(exponent - one["exponent"]) > 0.006:
            found.append(f"{role}: x {growth}, exponent {exponent}")
        if not math.isclose(growth * rate, 1, rel_tol=0.012):
            found.append(f"{role}: {rate} does not undo {growth}")
    error = re.search(r"error\s+([\d.]+)%\s+at\s+most", text)
    if error is None or abs(float(error[1]) / 100 - others["error"]) > 0.0006:
        found.append(f"the error: {error and error[1]}")
    return found


def test_printed_table_is_that_of_the_document() -> None:
    others, text = answer("post", "adam", "decoder", 16)["other_roles"], printed("post", "adam", "decoder", 16)
    assert others["error"] > 0.001
    assert wrong_table(text, others) == []


def test_one_learning_rate_where_no_gain_holds_the_update() -> None:
    found, text = answer("sub", "lamb", "encoder", 24), printed("sub", "lamb", "encoder", 24, columns=ENDLESS)
    assert wrong_table(text, found["other_roles"]) == []
    joined = " ".join(text.replace("#  ", "").split())
    rate = f"{found['rate_left']['multiplier']:.3g}"
    for said in (
        f"learning-rate multiplier │ {rate} │ 24 layers beside 3 │",
        f"the learning rate of these matrices: {rate} times the rate that suits 3 layers",
        f"{rate} times the rate that suits 3 layers undoes it",
        "This rule is here without its smaller learning rate",
    ):
        assert said in joined, said
    assert "0.1443" not in printed("sub", "lamb", "encoder", 24, has_why=False), "beside another depth"
    assert "bias, norm_bias: left out. As published LAMB moves no parameter that is zero" in joined
    assert "yours to write" in joined
    assert folded(printed("sub", "lamb", "encoder", 24)) == []


def test_a_depth_that_was_not_computed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_roles, "MOST_LAYERS", 16)
    deep, computed = (
        " ".join(printed("post", "lamb", "encoder", layers, columns=ENDLESS).split()) for layers in (1000, 16)
    )
    assert "1000 layers were not computed, but 2 to 16" in deep
    assert "growth times (layers/16)^exponent" in deep
    assert "parameter groups at 16 layers" in deep
    for said in ("not computed", "parameter groups at"):
        assert said not in computed
    for text in (deep, computed):
        assert "times the rate that suits 2 layers, undoes it" in text
        assert "beside the rate that suits 2 layers" in text


def test_an_encoder_before_a_decoder_has_no_head() -> None:
    both = printed("pre", "sgd", "encoder-decoder", 2, columns=ENDLESS, decoder_layers=2)
    encoder, decoder = both.split("In torch, ")[1:]
    assert "one behind the last layer too" in encoder
    assert "one before the head too" in decoder
    assert "one before the head too" in printed("pre", "sgd", "encoder", 2, columns=ENDLESS)

"""What ``depthlaw rule`` says: held against ``depthlaw predict``, torch and what sims build, and how it looks."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from depthlaw.advice import rule as command
from depthlaw.advice import rule_roles
from depthlaw.advice.laws import known_as
from depthlaw.advice.rule_roles import (
    BESIDE,
    FLAT,
    beside,
    named_scheme,
    predict_command,
    trained_under,
)
from depthlaw.advice.rule_snippet import snippet
from depthlaw.network.block import Block
from depthlaw.network.network import Network
from depthlaw.network.predicted_rows import percent
from depthlaw.paper_checks import experiments
from depthlaw.paper_checks.pages.transformers import FLAT as FLAT_IN_TRANSFORMERS
from depthlaw.paper_checks.pages.transformers import MATTERS
from depthlaw.sims.model import ModelConfig, Transformer, alternating
from depthlaw.system.kept import keeping
from depthlaw.theory.kernel.predict import Inputs, Sublayer, predict_kernel
from depthlaw.theory.kernel.predict import Transformer as KernelTransformer
from depthlaw.theory.rules.check import rule_scheme
from depthlaw.theory.rules.solve import evaluate, solve_rule
from depthlaw.theory.schemes import SCHEMES
from depthlaw.theory.stack import SublayerKind
from depthlaw.theory.symbols import L, M
from tests.command import document, options, told

D_MODEL = "1024"
FAILED = "su-pre-adam"
"""A rule's own scheme in which the law of later steps failed in training."""
RULE = ("q", "k", "v", "out", "fc1", "fc2")
WITHIN = 0.2
"""What the fewer tokens may change a growth over 8 times the depth by."""
NEAR = 0.05
"""An exponent so near to the edge of what grows may fall on either side of it."""


def answer(norm: str, optimizer: str, arch: str, layers: int, **more: object) -> dict[str, Any]:
    """The document of ``depthlaw rule``."""
    return document("rule", *options(norm=norm, optimizer=optimizer, arch=arch, layers=layers, **more))


def printed(
    norm: str, optimizer: str, arch: str, layers: int, *, why: bool = False, columns: int = 80, activation: str = "relu"
) -> str:
    asked = options(norm=norm, optimizer=optimizer, arch=arch, layers=layers, activation=activation)
    return told("rule", *asked, *(["--why"] if why else []), COLUMNS=str(columns))


# --- what the other parameters do


# With fewer tokens than a prediction has, a case is quick: one that grows by few roles, one by many.
FEW, ALL = 6, 16
CASES = [
    ("post", "adam", "encoder", FEW),
    ("sub", "sgd", "decoder", FEW),
    *(
        pytest.param(*case, ALL, marks=pytest.mark.slow)
        for case in (
            ("post", "sgd", "decoder"),
            ("pre", "muon", "encoder"),
        )
    ),
]


@pytest.mark.parametrize(("norm", "optimizer", "arch", "num_tokens"), CASES)
def test_other_roles_grow_as_predicted(norm: str, optimizer: str, arch: str, num_tokens: int) -> None:
    """From 2 layers to 16, as `depthlaw predict --attention` has it with all points; those that grow are warned of."""
    rule = solve_rule(norm, optimizer, arch)
    others = command.other_roles(rule, {str(rule.sides[0].num_layers): 16})
    assert others["layers"] == [2, 16]
    shape: dict[str, Any] = {"arch": arch, "num_tokens": num_tokens, "has_wide_heads": True}
    shallow, deep = (
        Network(scheme=rule_scheme(rule, rule.sides[0]), num_sublayers=2 * n, **shape).theory(optimizer)
        for n in (2, 16)
    )
    assert others["matrices"]["growth"] == pytest.approx(deep.update / shallow.update, rel=WITHIN)
    text = " ".join(line for line in command.warnings_of(others, is_held=True) if "other parameters" in line)
    for role, one in others["roles"].items():
        growth = deep.roles[role] / shallow.roles[role]
        assert one["growth"] == pytest.approx(growth, rel=WITHIN), role
        assert one["exponent"] == pytest.approx(math.log(one["growth"], 8)), role
        if abs(math.log(growth, 8) - FLAT) > NEAR:
            assert (f"{role} x {one['growth']:.3g}" in text) == (math.log(growth, 8) > FLAT), role
    assert set(others["roles"]) == {role for role, update in shallow.roles.items() if update and role not in RULE}


def test_what_is_kept_of_the_exact_moments_is_what_is_derived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a rule that is flat by them, and of one that is not in one network; each under its own name."""
    monkeypatch.setenv("DEPTHLAW_CACHE", str(tmp_path))
    asked = [
        ("post", "sgd", "relu", "layernorm"),
        ("sub", "sgd", "relu", "layernorm"),
        ("sub", "sgd", "relu", "rmsnorm"),
    ]
    derived = [command.mean_field(solve_rule(norm, optimizer), *network) for norm, optimizer, *network in asked]
    for _ in range(2):
        with keeping():
            found = [command.mean_field(solve_rule(norm, optimizer), *network) for norm, optimizer, *network in asked]
        assert found == derived and len(list(tmp_path.iterdir())) == len(asked)
        monkeypatch.setattr(command.check, "rule_order", None)


@pytest.mark.wide
def test_what_it_goes_by_later_is_told() -> None:
    """As ``advise`` has the matrices of the same networks."""
    rule = solve_rule("sub", "adamw", "decoder")
    later = command.other_roles(rule, {str(rule.sides[0].num_layers): 16})["later"]
    tokens = rule_roles.tokens_of("sub", None)
    networks = [
        Network(scheme=rule_scheme(rule, rule.sides[0]), num_sublayers=2 * n, arch="decoder", num_tokens=tokens)
        for n in (2, 16)
    ]
    few, many = (  # once a matrix is as large as Xavier's init
        network.after_start("adamw", network.d_model**-0.5, 1, laws=(later["law"],))[later["law"]]
        for network in networks
    )
    assert later["growth"] == pytest.approx(many / few, rel=WITHIN)


def test_what_it_goes_by_later_is_told_where_the_law_did_not_fail() -> None:
    """Not of the schemes in which it failed in training, of post-norms, and of optimizers without the law."""
    rule = solve_rule("sub", "adamw", "decoder")
    assert command.other_roles(rule, {str(rule.sides[0].num_layers): 2})["later"]
    for norm, optimizer, scheme in (("post", "adamw", "su-adam"), ("pre", "sgd", None), ("pre", "adamw", FAILED)):
        rule = solve_rule(norm, optimizer, "decoder")
        others = command.other_roles(rule, {str(rule.sides[0].num_layers): 16})
        assert others["later"] is None and scheme in (None, others["scheme"])


@pytest.mark.wide
def test_what_the_update_does_beside_the_users_embedding() -> None:
    """As predicted of it; unasked, that of published models, and of a post-norm, which forgets it, none."""
    rule = solve_rule("pre", "adam", "decoder")
    own, other = ({"M": 16}, rule_roles.PUBLISHED), 0.3
    growths = [
        command.other_roles(rule, own[0], embedding_std=std)["embedding"]["other_growth"] for std in (None, other)
    ]
    for std, growth in zip((own[1], other), growths, strict=True):
        few, many = (
            Network(
                scheme=rule_scheme(rule, rule.sides[0]),
                num_sublayers=2 * n,
                arch="decoder",
                num_tokens=rule_roles.TOKENS,
                block=Block(embedding_std=std),
            ).theory("adam")
            for n in (2, 16)
        )
        assert growth == pytest.approx(many.update / few.update, rel=WITHIN)
    assert growths[0] / growths[1] > 1.1
    post = solve_rule("post", "adam", "encoder")
    assert command.other_roles(post, {"N": 16})["embedding"] is None
    beside = command.other_roles(post, {"N": 16}, embedding_std=0.02)["embedding"]
    assert beside["other_growth"] / beside["growth"] == pytest.approx(1, abs=0.2)


def test_limits_are_those_of_the_generated_page() -> None:
    assert (command.MATTERS, FLAT) == (MATTERS, FLAT_IN_TRANSFORMERS)
    assert rule_roles.MOST_LAYERS >= 96


@pytest.mark.usefixtures("quickly")
def test_shares_are_those_of_predict() -> None:
    """With as many tokens as it has here."""
    found = answer("post", "adamw", "decoder", 8, width=D_MODEL)
    _, *arguments = found["other_roles"]["command"].split()
    assert "--width" in arguments
    tokens = options(tokens=rule_roles.TOKENS)
    predicted = {role: values[-1] for role, values in document(*arguments, *tokens)["shares"].items()}
    (line,) = [line for line in found["warnings"] if "other parameters" in line]
    for role, one in found["other_roles"]["roles"].items():
        assert one["share"] == pytest.approx(predicted[role], rel=0.02), role
        assert (f"{role} x {one['growth']:.3g} (share {percent(one['share'])})" in line) == one["grows"]


# --- what the model is before the first step


@pytest.mark.usefixtures("quickly")
def test_a_rule_that_starts_as_the_identity_says_so() -> None:
    identity, training = answer("pre", "adamw", "decoder", 16)["start"]
    assert f"1/(4*M**2) = {1 / (4 * 16**2):.3g} of the stream" in identity
    assert "(su-pre-adam) with relu and layernorm, under adamw" in training
    assert "No run in TRAINING.md" in answer("sub", "adam", "encoder", 4)["start"][-1]


def test_trained_schemes_are_those_of_the_experiments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
    ("post", "sgd", "decoder", "deepnet"): "deepnorm",
    ("pre", "muon", "decoder", None): "su-pre-adam",
    ("sub", "sgd", "encoder", None): "sub-ln-gamma",
    ("sub", "adam", "encoder", None): None,
    ("post", "adam", "encoder", "deepnet"): None,
}


def test_named_scheme_has_the_rule_s_values() -> None:
    rules = {case: solve_rule(*case) for case in NAMED}
    assert {case: named_scheme(rule_scheme(rule, rule.sides[0])) for case, rule in rules.items()} == NAMED


@pytest.mark.parametrize("select", [None, "deepnet"])
def test_the_command_asks_about_this_rule(select: str | None) -> None:
    rule = solve_rule("post", "adam", "decoder", select)
    line = predict_command(rule, (1, 4))
    assert line is not None
    found = document(*line.split()[1:], "--tokens", "3", "--precise")
    scheme = rule_scheme(rule, rule.sides[0])
    network = Network(scheme=scheme, arch="decoder", num_sublayers=8, num_tokens=3, has_wide_heads=True)
    assert found["rows"][-1]["roles"] == pytest.approx(dict(network.theory("adam").roles), rel=1e-6)


# --- without the rule


def test_without_the_rule() -> None:
    rows = {row["scheme"]: row for row in beside(solve_rule("pre", "adam", "decoder"), 48)}
    assert rows.keys() == {"rule-pre-adam-alpha-one", *BESIDE["pre"]}
    found = document("predict", "--scheme", "gpt2", "--optimizer", "adam", "--sublayers", "12,96")
    shallow, deep = (row["update"] for row in found["rows"])
    gpt2, ruled = (rows[name]["growth"] for name in ("gpt2", "rule-pre-adam-alpha-one"))
    assert gpt2 == pytest.approx(deep / shallow)
    assert rows["gpt2"]["update_order"] == "0.5723 M"
    assert abs(math.log(ruled, 8)) < FLAT < math.log(gpt2, 8)


# --- where no gain holds the update, and where the argument is denied


@pytest.mark.wide
@pytest.mark.usefixtures("quickly")
def test_the_rate_that_is_left_where_no_gain_helps() -> None:
    """By what is predicted; where nothing is, by the argument alone."""
    found = answer("sub", "lamb", "encoder", 16)
    assert found["init_gain"] is None
    assert set(found["lr_multiplier"].values()) == {1}
    growth = command.other_roles(solve_rule("sub", "lamb"), {"N": 16})["matrices"]["growth"]
    assert found["rate_left"]["multiplier"] == pytest.approx(1 / growth)
    (line,) = [line for line in found["warnings"] if "no init gain" in line]
    assert f"x {growth:.3g} from 2 to 16 layers" in line
    held = answer("sub", "adam", "encoder", 2)
    assert (found["other_roles"]["unmoved"], held["other_roles"]["unmoved"]) == (["bias", "norm_bias"], [])
    assert held["rate_left"] is None and not any("no init gain" in line for line in held["warnings"])
    argued = answer("sub", "lamb", "encoder", 1)
    assert argued["rate_left"] == {"multiplier": pytest.approx(2**-0.5), "layers": None, "formula": "1/sqrt(2*N)"}


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize(
    ("norm", "optimizer", "activation"),
    [
        ("sub", "sgd", "relu"),
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
    assert bool(said) == ((norm, optimizer) == ("sub", "sgd"))


# --- two depths, and what people use instead


@pytest.mark.usefixtures("quickly")
def test_the_depths_that_were_asked_for_are_compared() -> None:
    """Those, and not an eighth of the deeper one; a model may become shallower, too."""
    rule = solve_rule("pre", "adam", "decoder")
    up, down = (command.other_roles(rule, {"M": n}, tuned={"M": m}) for n, m in ((6, 3), (3, 6)))
    assert (up["layers"], down["layers"]) == ([3, 6], [6, 3])
    assert up["roles"]["bias"]["growth"] * down["roles"]["bias"]["growth"] == pytest.approx(1)
    both = answer("post", "adam", "encoder-decoder", 4, decoder_layers=2, from_layers=2, from_decoder_layers=1)
    assert both["other_roles"]["layers"] == [[2, 1], [4, 2]]


def test_alternatives_have_the_names_that_people_use() -> None:
    """By their laws: each is held against the scheme's own numbers at two depths."""
    named = {
        ("pre", "adam"): {"branch-weight": "completep", "depth-mup": "depth-mup", "alpha-one": "su-pre-adam"},
        ("pre", "sgd"): {"branch-weight": "depth-mup", "depth-mup": "depth-mup", "alpha-one": "su-pre-sgd"},
        ("post", "sgd"): {"symmetric": "deepnorm", "deepnet": "deepnorm", "alpha-one": "su-lamb"},
        ("sub", "sgd"): {"leading-log": "sub-ln-gamma", "branch-weight": "depth-mup"},
    }
    for (norm, optimizer), wanted in named.items():
        (side,) = solve_rule(norm, optimizer, "decoder").sides
        members = {member.name: member for member in (side.member, *side.alternatives)}
        assert {name: known_as(members[name], norm, optimizer) for name in wanted} == wanted
    (side,) = solve_rule("pre", "adam", "decoder").sides
    weight, stack = side.alternative("branch-weight").branch_weight, SCHEMES["completep"].stack
    ratios = [
        float(law.subs(letter, 96 * per) / law.subs(letter, 12 * per))
        for law, letter, per in ((weight, M, 1), (stack.branch_weight, L, 2))
    ]
    assert ratios == pytest.approx([1 / 8, 1 / 8])


@pytest.mark.wide
@pytest.mark.usefixtures("quickly")
def test_the_command_for_advise_can_be_asked() -> None:
    text = told("rule", *options(norm="pre", optimizer="adamw", arch="decoder", layers=8, from_layers=2, width=64))
    (line,) = [line for line in text.splitlines() if "depthlaw advise" in line]
    advice = document(*line.split()[1:])
    assert (advice["from"], advice["to"], advice["d_model"]) == ({"num_sublayers": 4}, {"num_sublayers": 16}, 64)
    assert "completep" in text and "depth-mup" in text
    assert {"completep", "depth-mup"} <= {remedy["name"] for remedy in advice["remedies"]}


@pytest.mark.usefixtures("quickly")
def test_what_is_held_is_said_and_what_is_not() -> None:
    """The relative update under Adam goes as 2N before the branch, as sqrt(2N) behind the sum, and stays under LAMB."""
    for norm, optimizer, growth in (("pre", "adam", 4.0), ("post", "adam", 2.0), ("post", "lamb", 1.0)):
        asked = options(norm=norm, optimizer=optimizer, arch="encoder", layers=8, from_layers=2)
        assert document("rule", *asked)["relative_update_growth"] == pytest.approx(growth)
        text = " ".join(told("rule", *asked).split())
        assert f"relative to its matrix a step goes x {growth:g}. `advise` keeps a tuned model" in text


@pytest.mark.wide
@pytest.mark.usefixtures("quickly")
def test_no_depth_is_left_out_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too deep to be computed: the tuned depth stays where it can, and the command is one that has an answer."""
    monkeypatch.setattr(rule_roles, "MOST_LAYERS", 12)
    for tuned, computed, left in ((4, [4, 12], "20000"), (10, [2, 12], "10 and 20000")):
        asked = options(norm="pre", optimizer="adam", arch="decoder", layers=20000, from_layers=tuned, width=64)
        text = told("rule", *asked, COLUMNS="400")
        assert f"{left} layers were not computed, but {computed[0]} to {computed[1]}" in text
        assert document("rule", *asked)["other_roles"]["layers"] == computed
    (line,) = [line for line in text.splitlines() if "depthlaw advise" in line]
    assert document(*line.split()[1:], "--tokens", "4")["to"] == {"num_sublayers": 24}
    assert "depthlaw advise" not in told("rule", *options(norm="pre", optimizer="adam", arch="decoder", layers=1))


# --- how to set it


def layer_of(d: int) -> dict[str, Any]:
    """Default modules, whose linear biases are random, and biases of attention that someone has set."""
    names: dict[str, Any] = {"fc1": nn.Linear(d, 4 * d), "fc2": nn.Linear(4 * d, d)}
    names |= {name: nn.MultiheadAttention(d, 4) for name in ("attn", "cross")}
    for bias in (names["attn"].in_proj_bias, names["attn"].out_proj.bias):
        nn.init.normal_(bias)
    names |= {name: nn.LayerNorm(d) for name in ("norm1", "norm2", "norm3", "norm1b")}
    names |= {name: nn.LayerNorm(4 * d) for name in ("norm2b", "norm3b")}
    return names | {"relu": nn.functional.relu}


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize(("norm", "arch"), [("post", "decoder"), ("pre", "encoder"), ("sub", "encoder-decoder")])
def test_snippet_sets_the_rule_s_gains(norm: str, arch: str) -> None:
    more = {"decoder_layers": 6} if arch == "encoder-decoder" else {}
    found = answer(norm, "sgd", arch, 12, **more)
    side = found["decoder"] if more else found
    torch.manual_seed(0)
    d = 96
    names = layer_of(d) | {"heads": lambda x: x, "x": torch.randn(5, d), "memory": torch.randn(5, d), "T": 5}
    code = snippet(norm, side)
    exec("\n".join(code), names)
    assert names["x"].shape == (5, d)
    weights = {"out": names["attn"].out_proj.weight, "fc1": names["fc1"].weight, "fc2": names["fc2"].weight}
    weights |= {role: names[role] for role in ("q", "k", "v")}
    if more:
        weights |= {role: names[role] for role in ("cross_q", "cross_k", "cross_v")}
        weights["cross_out"] = names["cross"].out_proj.weight
    assert weights.keys() == side["init_gain"].keys()
    for role, weight in weights.items():
        gain = side["init_gain"][role]
        assert float(weight.detach().std()) == pytest.approx(gain * math.sqrt(2 / sum(weight.shape)), rel=0.03), role
    packed = names["attn"].in_proj_weight.chunk(3)
    assert torch.equal(packed[2], names["v"]), "the packed matrix itself is what is set"
    assert any(f"{side['residual_weight']:.6g} * x" in line for line in code) == (norm == "post")


@pytest.mark.parametrize(("norm", "activation"), [*((norm, "relu") for norm in command.NORMS), ("sub", "swiglu")])
def test_a_pasted_forward_pass_is_that_of_the_network(norm: str, activation: str) -> None:
    """Of the same matrices in a network of sims, with weights unlike 1 and unlike each other."""
    d, tokens, num_heads = 32, 6, 4
    torch.manual_seed(0)
    names = layer_of(d) | {"x": torch.randn(tokens, d), "T": tokens, "fc3": nn.Linear(d, 4 * d)}
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

    gains, weights = (
        dict.fromkeys(("q", "k", "v", "out", "fc1", "fc2", *["fc3"] * (activation == "swiglu")), 0.8),
        {"residual_weight": 1.7, "branch_weight": 0.6},
    )
    side = {"init_gain": gains, "lr_multiplier": gains, "alternatives": [], **weights}
    exec("\n".join(snippet(norm, side, activation, is_causal=True)), names := names | {"heads": heads})
    q, k, v = names["attn"].in_proj_weight.chunk(3)
    matrices = {"0_q": q, "0_k": k, "0_v": v, "0_out": names["attn"].out_proj.weight}
    matrices |= {f"1_{role}": names[role].weight for role in gains if role.startswith("fc")}
    shape = {"d_model": d, "num_heads": num_heads, "placement": norm, "is_causal": True, "norm_eps": 1e-5}
    shape |= {"activation": activation}
    model = Transformer(ModelConfig(**shape, encoder=alternating(2, **weights)), seed=0)
    with torch.no_grad():
        for name, matrix in matrices.items():
            model.get_parameter(f"_weights.encoder_{name}").copy_(matrix)
        assert float((names["x"] - model.streams(start[None])[2][0]).abs().max()) < 1e-9


@pytest.mark.parametrize(("norm", "optimizer"), [("post", "adam"), ("pre", "sgd"), ("sub", "adam")])
def test_the_third_matrix_of_a_gated_ffn_moves_it_alike_at_any_depth(norm: str, optimizer: str) -> None:
    """Of a Transformer with the rule's numbers: at its own learning rate it keeps its part beside the gate."""
    rule, parts = solve_rule(norm, optimizer, is_gated=True), []
    for num_layers in (4, 32):
        mine = evaluate(rule, N=num_layers)["encoder"]
        assert mine.init_gain is not None and mine.init_gain["fc3"] == 1
        layer = [
            Sublayer(
                kind=kind,
                residual_weight=mine.residual_weight,
                gains={role: mine.init_gain[role] for role in roles},
                lr_multipliers={role: mine.lr_multiplier[role] for role in roles},
            )
            for kind, roles in (
                (SublayerKind.SELF, ("q", "k", "v", "out")),
                (SublayerKind.FFN, ("fc1", "fc2", "fc3")),
            )
        ]
        network = KernelTransformer(encoder=(*layer * num_layers,), placement=norm, activation="reglu")
        roles = predict_kernel(network, Inputs(num_tokens=2), (optimizer,), effort=0.25)[optimizer].roles
        parts.append(roles["fc3"] / roles["fc1"])
    assert parts == pytest.approx([parts[0]] * 2, rel=0.1) and 0.5 < parts[0] < 2


@pytest.mark.wide
def test_rule_of_a_gated_ffn_has_the_third_matrix() -> None:
    text = " ".join(printed("pre", "adamw", "decoder", 16, activation="swiglu").split())
    assert "init gain of q, k, fc3 │ 1 │ 1 │" in text and "learning-rate multiplier of fc3 │ 32 │ 2*M │" in text
    found = answer("post", "lamb", "encoder", 4, activation="swiglu")
    assert found["lr_multiplier"]["fc3"] == found["lr_multiplier"]["fc1"] and "fc3" not in found["other_roles"]["roles"]


@pytest.mark.usefixtures("quickly")
def test_one_learning_rate_where_no_gain_holds_the_update() -> None:
    """What --why prints of the other roles is in the document; each learning rate undoes the growth beside it."""
    found, text = answer("sub", "lamb", "encoder", 24), printed("sub", "lamb", "encoder", 24, why=True, columns=400)
    rows, others = dict(re.findall(r"^│ (\S.*?) +│ (x .*?)│$", text, flags=re.MULTILINE)), found["other_roles"]
    for role, one in {"the rule's matrices": others["matrices"], **others["roles"]}.items():
        growth, exponent, rate = (float(cell.strip(" x")) for cell in rows[role].split("│"))
        assert (growth, exponent) == (pytest.approx(one["growth"], rel=6e-3), pytest.approx(one["exponent"], abs=6e-3))
        assert growth * rate == pytest.approx(1, rel=0.012), role
    left = f"{found['rate_left']['multiplier']:.3g}"
    assert f"learning-rate multiplier │ {left} │ 24 layers beside 3 │" in " ".join(text.split())
    assert f"{left} times the rate that suits 3 layers undoes it" in text
    assert "bias, norm_bias: left out. As published LAMB moves no parameter that is zero" in text


def test_deepnet_s_selection_under_another_optimizer_is_not_called_deepnet_s() -> None:
    question = options(norm="post", arch="encoder", layers=24, select="deepnet")
    adam, sgd = (told("rule", *question, "--optimizer", name) for name in ("adam", "sgd"))
    assert "its residual weight is 2.632 here" in " ".join(adam.split()) and "the family's member for adam" in adam
    assert "family's member" not in sgd and "2.632" in sgd

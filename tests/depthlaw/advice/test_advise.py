"""``depthlaw advise``: what is promised is measured on plain torch networks that run the code that it prints."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from depthlaw.advice.advice import Advice, advise, compared
from depthlaw.advice.code import code
from depthlaw.advice.remedy import ALL, HELD, LATER, Remedy, away
from depthlaw.advice.text import known_of, other_way
from depthlaw.network.network import Network
from depthlaw.paper_checks.experiments.clients import CLIENTS, roles_of
from depthlaw.sims.model import BRANCH_ROLES
from depthlaw.sims.stats import Estimate, estimate, ratio
from depthlaw.theory.kernel.predict import unit_power
from depthlaw.theory.rules.solve import evaluate, solve_rule
from depthlaw.theory.schemes import SCHEMES, custom_scheme
from depthlaw.theory.symbols import L
from tests.command import document, options, told
from tests.often import often

D, TOKENS, HEADS = 128, 8, 4


def pasted(lines: list[str]) -> Any:
    """The names that the code defines."""
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    return names


class Layer(nn.Module):
    def __init__(self, norm: type[nn.Module], *, is_gated: bool, is_post: bool) -> None:
        super().__init__()
        self.is_post = is_post
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(D, D, bias=not is_gated) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(D, 4 * D, bias=not is_gated), nn.Linear(4 * D, D, bias=not is_gated)
        self.up_proj = nn.Linear(D, 4 * D, bias=False) if is_gated else None
        self.attention_norm, self.ffn_norm = norm(D), norm(D)

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = (
            project(x).unflatten(-1, (HEADS, D // HEADS)).transpose(-2, -3)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        heads = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(heads.transpose(-2, -3).flatten(-2))

    def feed(self, x: Tensor) -> Tensor:
        if self.up_proj is None:
            return self.fc2(nn.functional.gelu(self.fc1(x)))
        return self.fc2(nn.functional.silu(self.fc1(x)) * self.up_proj(x))

    def forward(self, x: Tensor, residual: Any) -> Tensor:
        for branch, norm in ((self.attend, self.attention_norm), (self.feed, self.ffn_norm)):
            x = norm(residual(x, branch(x))) if self.is_post else residual(x, branch(norm(x)))
        return x


class Model(nn.Module):
    def __init__(self, num_layers: int, norm: type[nn.Module], **block: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(norm, **block) for _ in range(num_layers))
        self.last_norm = nn.Identity() if block["is_post"] else norm(D)

    def forward(self, x: Tensor, residual: Any) -> Tensor:
        for layer in self.layers:
            x = layer(x, residual)
        return self.last_norm(x)


def moved(lines: list[str], num_layers: int, seed: int, optimizer: str, **block: Any) -> dict[str, float]:
    """By role, what one real step changes a logit by, to first order, per unit learning rate."""
    names = pasted(lines)
    torch.manual_seed(seed)
    norm = nn.RMSNorm if block["is_gated"] else nn.LayerNorm
    model = Model(num_layers, norm, **block).double()
    names["initialise"](model)
    x, head = torch.randn(TOKENS, D).double(), torch.randn(D).double() / math.sqrt(D)
    logit = model(names.get("EMBEDDING", 1.0) * x, names["residual"])[-1] @ head
    logit.backward()
    before = {name: (p.detach().clone(), p.grad.clone()) for name, p in model.named_parameters() if p.grad is not None}
    groups = names["param_groups"](model, lr=1e-3)
    if optimizer == "muon+adamw":
        steps = [torch.optim.Muon(groups[0], adjust_lr_fn="match_rms_adamw"), torch.optim.AdamW(groups[1])]
    else:
        for group in groups:
            group["eps"] *= 1e-8  # the prediction is of an epsilon of 0
        steps = [torch.optim.AdamW(groups) if optimizer == "adamw" else torch.optim.Adam(groups)]
    for step in steps:
        step.step()
    total: dict[str, float] = {}
    for name, parameter in model.named_parameters():
        if name in before:
            old, gradient = before[name]
            role = names["role_of"](name)
            total[role] = total.get(role, 0.0) + float((gradient * (old - parameter.detach())).sum()) / 1e-3
    return total


GPT = {"scheme": "gpt2", "activation": "gelu"}
POST = {"scheme": "deepnorm", "activation": "gelu"}
GATED: dict[str, Any] = {"scheme": "pre-ln", "activation": "swiglu", "norm_kind": "rmsnorm"}
SEEDS = 16


@cache
def asked(optimizer: str, **question: str) -> Advice:
    shape = {"width": D, "num_heads": HEADS, "num_tokens": TOKENS, "is_causal": True}
    return advise(optimizer=optimizer, from_layers=2, layers=8, **question, **shape)


def named(advice: Advice, name: str) -> Remedy:
    return next(remedy for remedy in advice.remedies if remedy.name == name)


def intervals(advice: Advice, remedy: Remedy, roles: Sequence[str]) -> dict[str, Estimate]:
    """By role, how its update in the deeper model that the remedy's code builds is to that of the tuned one."""
    optimizer, config, lines = advice.optimizer, remedy.tuned, advice.code(remedy)
    block = {"is_gated": config.activation == "swiglu", "is_post": config.placement == "post"}
    tuned = code(config, optimizer, "as it is", rates={}, eps={})
    few = [moved(tuned, 2, seed, optimizer, **block) for seed in range(SEEDS)]
    many = [moved(lines, 8, 1000 + seed, optimizer, **block) for seed in range(SEEDS)]
    return {
        role: ratio(estimate([run[role] for run in many], LEVEL), estimate([run[role] for run in few], LEVEL), LEVEL)
        for role in roles
    }


LEVEL = 0.9999
SLOW = pytest.mark.slow
CASES = [
    (GPT, "adamw", "depth-mup"),
    pytest.param(POST, "adamw", "su-adam", marks=SLOW),
    pytest.param(GATED, "adamw", "depth-mup", marks=SLOW),
    pytest.param(GATED, "adamw", "embedding", marks=SLOW),
    pytest.param(GATED, "muon+adamw", "learning-rates", marks=SLOW),
    pytest.param(GPT, "adamw", "learning-rates", marks=SLOW),
    pytest.param(GPT, "adamw", "completep", marks=SLOW),
    pytest.param(GPT, "adamw", "depth-mup at both depths", marks=SLOW),
    pytest.param(GPT, "adamw", "nothing", marks=SLOW),
    pytest.param(POST, "adamw", "branch-weight", marks=SLOW),
    pytest.param(GATED, "muon+adamw", "depth-mup", marks=SLOW),
]


@pytest.mark.wide
@pytest.mark.parametrize(("question", "optimizer", "name"), CASES)
def test_the_code_of_a_remedy_moves_a_network_as_promised(question: dict[str, str], optimizer: str, name: str) -> None:
    """Real layers, a real step of the real optimizer with the groups that the code makes, at both depths."""
    advice = asked(optimizer, **question)
    remedy = named(advice, name)
    roles = [role for role in remedy.matters if role in BRANCH_ROLES]
    assert roles
    for role, measured in intervals(advice, remedy, roles).items():
        assert measured.low is not None and measured.high is not None
        assert measured.low < remedy.leaves[role] < measured.high, (role, measured, remedy.leaves[role])


@pytest.mark.wide
def test_factors_are_those_of_a_full_prediction() -> None:
    """One set of points is enough for a ratio: the value path is within a percent, q and k, behind a softmax, within
    five."""
    advice = asked("adamw", **GPT)
    few, many = (network.theory("adamw") for network in (advice.shallow, advice.deep))
    for role in ("q", "k", "v", "out", "fc1", "fc2"):
        near = 0.05 if role in "qk" else 0.01
        assert advice.factors[role] == pytest.approx(many.roles[role] / few.roles[role], rel=near)


def test_gpt2_is_held_by_learning_rates_and_by_branch_weights() -> None:
    """The outputs of GPT-2 grow in proportion to the depth; what is derived for the optimizer holds every role."""
    advice = asked("adamw", **GPT)
    assert advice.exponents["fc2"] == pytest.approx(1, abs=0.1)
    held = {remedy.name for remedy in advice.remedies if remedy.worst <= HELD}
    assert "learning-rates" in held and not held & {"nothing", "depth-mup without its learning rate"}
    assert advice.remedies[0].name in held and advice.remedies[-1].worst > HELD
    assert set(named(advice, "depth-mup").rates.values()) == {0.5, 1.0}
    assert named(advice, "depth-mup").worst < 1.2 < named(advice, "depth-mup without its learning rate").worst / 1.5
    twice = next(remedy for remedy in advice.remedies if remedy.name.endswith("on top"))
    assert "twice" in twice.warnings[0] and twice.leaves["fc1"] < named(advice, "completep").leaves["fc1"]


@pytest.mark.wide
def test_a_larger_embedding_is_a_remedy_where_norms_before_the_branches_divide_by_the_stream() -> None:
    """It holds the whole update, and is offered where it takes away more than half of any role's growth. Norms behind
    the sums forget it."""
    advice = asked("adamw", **GATED)
    remedy = named(advice, "embedding")
    assert advice.factors["update"] > 2 > 1.1 > remedy.leaves[ALL] > 0.9 and not remedy.keeps_forward
    assert remedy.worst < named(advice, "nothing").worst ** 0.5
    assert not any("embedding is no way" in remark for remark in advice.remarks)
    forgets = asked("adamw", **POST)
    assert "embedding" not in {one.name for one in forgets.remedies}
    (why,) = (remark for remark in forgets.remarks if "embedding is no way" in remark)
    assert why.endswith("the norms behind the sums divide by any scale of it")


@pytest.mark.wide
def test_of_deepnet_s_and_su_s_members_the_one_derived_for_the_optimizer_holds() -> None:
    of_encoder: dict[str, Any] = {"arch": "encoder", "num_tokens": 4, **POST}
    advice = advise(optimizer="adamw", from_layers=6, layers=24, width=1024, **of_encoder)
    assert named(advice, "su-adam").worst <= HELD < named(advice, "nothing").worst
    assert any("su-adam is derived for adamw" in remark for remark in advice.remarks)


def test_what_is_held_stands_first_and_of_that_what_changes_least() -> None:
    """By what is derived; what training has shown changes places afterwards (test_gains)."""
    remedies = sorted(asked("adamw", **GPT).remedies, key=lambda remedy: remedy.rank)
    is_held = [remedy.worst <= HELD for remedy in remedies]
    assert is_held == sorted(is_held, reverse=True)
    held = [(remedy.keeps_tuned, remedy.keeps_forward, remedy.name) for remedy in remedies if remedy.worst <= HELD]
    assert held == sorted(held, key=lambda one: one[:2], reverse=True) and held[0][2] == "learning-rates"
    assert {one[:2] for one in held} >= {(True, True), (True, False)}
    left = [round(math.log(remedy.worst), 2) for remedy in remedies if remedy.worst > HELD]
    assert left == sorted(left)


@cache
def of_su_adam() -> Advice:
    return advise(scheme="su-adam", optimizer="adamw", from_layers=4, layers=16, width=1024, num_tokens=4)


def test_small_roles_count_together() -> None:
    """Biases and norms, each below what matters, are in the update of everything: as full predictions have it."""
    advice = of_su_adam()
    nothing = named(advice, "nothing")
    before, after = (
        sum(
            value * advice.deep.d_model ** -unit_power("adamw", role)
            for role, value in network.theory("adamw").roles.items()
        )
        for network in (advice.shallow, advice.deep)
    )
    assert nothing.leaves[ALL] == pytest.approx(after / before, rel=0.01)
    assert nothing.leaves[ALL] > advice.factors["update"]
    many = replace(nothing, leaves={"v": 1.0, "bias": 9.0, ALL: 1.4}, matters=["v"])
    assert (many.worst_role, many.worst) == (ALL, 1.4)


def test_a_role_that_vanishes_gets_no_rate_beyond_bounds() -> None:
    """Queries of a cross-attention, whose keys become alike in a deep Post-LN encoder."""
    advice = advise(
        scheme="post-ln",
        optimizer="adamw",
        from_layers=(2, 2),
        layers=(8, 8),
        width=512,
        arch="encoder-decoder",
        num_tokens=4,
    )
    assert advice.factors["cross_q"] < 0.5
    rates = named(advice, "learning-rates").rates
    assert rates["cross_q"] == 1 and rates["v"] < 1


def test_a_law_of_the_layer_s_index_goes_on_in_the_deeper_model() -> None:
    advice = advise(recipe="torchtitan", optimizer="adamw", from_layers=2, layers=4, width=64, num_tokens=2)
    lines = advice.code(named(advice, "depth-mup"))
    names = pasted(lines)
    assert names["STD"]["out"] == [pytest.approx(0.02 / math.sqrt(2 * layer), rel=1e-3) for layer in (1, 2, 3, 4)]


def test_both_sides_of_an_encoder_decoder_have_numbers_of_their_own() -> None:
    question = {"arch": "encoder-decoder", "num_tokens": 2, "width": 64, "optimizer": "adam"}
    advice = advise(scheme="deepnorm", from_layers=(2, 2), layers=(4, 6), **question)
    remedy = named(advice, "residual-weight")
    names = pasted(advice.code(remedy))
    for side, sublayers in remedy.config.sides:
        assert names["RESIDUAL_WEIGHT"][side] == pytest.approx(sublayers[0].residual_weight, rel=1e-4)
        assert names["STD"][side]["fc2"] == pytest.approx(remedy.config.std(sublayers[-1], "fc2"), rel=1e-3)
    assert names["residual"](1.0, 0.0, "decoder") == names["RESIDUAL_WEIGHT"]["decoder"]
    parts = (f"decoder.layers.0.multihead_attn.{name}" for name in ("in_proj_weight", "out_proj.weight"))  # torch's
    assert [names["role_of"](name) for name in parts] == ["cross_qkv", "cross_out"]


@pytest.mark.parametrize("optimizer", often(["adamw", "sgd"], 2, wide=1))
def test_an_encoder_decoder_gets_the_rule_s_members_by_side(optimizer: str) -> None:
    """With the numbers of ``rule`` at both depths, and DeepNet's own member by its name."""
    question = {"arch": "encoder-decoder", "num_tokens": 4, "width": 512, "optimizer": optimizer}
    advice = advise(scheme="post-ln", from_layers=(4, 4), layers=(8, 6), **question)
    name = "residual-weight" if optimizer == "adamw" else "deepnorm"
    rule = solve_rule("post", optimizer, "encoder-decoder", None if optimizer == "adamw" else "deepnet")
    remedy = named(advice, f"{name} at both depths")
    for config, (n, m) in ((remedy.tuned, (4, 4)), (remedy.config, (8, 6))):
        numbers = evaluate(rule, N=n, M=m)
        for side, sublayers in config.sides:
            gains = numbers[side].init_gain
            assert gains is not None
            for sublayer in sublayers:
                assert sublayer.residual_weight == pytest.approx(numbers[side].residual_weight)
                assert sublayer.gains == pytest.approx({role: gains[role] for role in sublayer.gains})
    if optimizer == "adamw":
        assert remedy.worst < named(advice, "deepnorm").worst
        assert any("residual-weight is derived for adamw" in remark for remark in advice.remarks)
    assert any("no source prints" in remark and "su-adam" in remark for remark in advice.remarks)
    lines = [line for remedy in advice.remedies for line in remedy.changes]
    assert not [line for line in lines if "cross" in line and "of the encoder" in line]


@pytest.mark.wide
def test_at_both_depths_nothing_is_left_of_the_scheme_s_own_numbers() -> None:
    """Which lowering gives T-Fixup's decoder by its name."""
    question = {"arch": "encoder-decoder", "num_tokens": 3, "width": 64, "optimizer": "adamw"}
    advice = advise(scheme="t-fixup", from_layers=(2, 2), layers=(4, 6), **question)
    remedy = named(advice, "branch-weight at both depths")
    for config in (remedy.tuned, remedy.config):
        assert {gain for _, side in config.sides for sublayer in side for gain in sublayer.gains.values()} == {1.0}
    for each in advice.remedies:
        compile("\n".join(advice.code(each)), "pasted", "exec")


GROWN: dict[str, dict[str, Any]] = {
    "deeper": {"recipe": "gpt2", "layers": 4, "num_heads": 8},
    "visited more often": {"scheme": "pre-ln", "layers": 1, "from_visits": 1, "visits": 4, "num_heads": 8},
}
MEASURED = {
    "deeper": ("learning-rates", "completep at both depths"),
    "visited more often": ("learning-rates", "completep at both depths", "embedding"),
}


@pytest.mark.wide
@pytest.mark.parametrize("kind", GROWN)
def test_measured_leaves_are_those_that_are_promised(kind: str) -> None:
    """By networks of sims, for a remedy whose learning rates are its own and one that changes the tuned model."""
    advice = advise(**GROWN[kind], optimizer="adamw", from_layers=1, width=D, num_tokens=TOKENS)
    for name in MEASURED[kind]:
        remedy = named(advice, name)
        measured = advice.measure(remedy, range(8))
        assert measured.keys() == set(remedy.matters)
        for role, interval in measured.items():
            near = 3 * (interval.standard_error or 0.0) + 0.05  # of order L/d = 0.12 beside chance
            assert abs(interval.mean - remedy.leaves[role]) < near, (name, role)


@pytest.mark.parametrize(
    "name", often(["T5", "GPT-2", "BERT", "Qwen3", "Llama, grouped heads", "torch, pre-norm", "ViT"], 3, wide=1)
)
def test_the_code_knows_every_matrix_of_a_published_model(name: str) -> None:
    """As clients' own table of names has it; every parameter is in one group."""
    client = CLIENTS[name]
    model, _ = client.build(2, 64, 4)
    arch = {"arch": "encoder-decoder"} if name == "T5" else {}
    layers: Any = ((2, 2), (4, 4)) if arch else (2, 4)
    question = {"scheme": "pre-ln", "activation": client.recipe.activation, "num_tokens": 4, **arch}
    advice = advise(optimizer="adamw", from_layers=layers[0], layers=layers[1], width=64, **question)
    code = pasted(advice.code(advice.remedies[0]))
    for parameter, _ in model.named_parameters():
        roles = roles_of(client, model, parameter)
        if roles[0] in BRANCH_ROLES:
            stacked = {3: "qkv", 1: roles[0]}[len(roles)]
            assert code["role_of"](parameter) == stacked, parameter
    code["NAMES"]["embedding"].append("inputs")  # what the clients' own wrapper calls its table, and its final norm
    code["NAMES"]["final_norm"].append("parts.2")
    groups = code["param_groups"](model, lr=1.0)
    listed = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(listed) == sorted(id(parameter) for parameter in model.parameters())


def test_completep_s_epsilon_is_derived() -> None:
    """As published: divided by the ratio of the depths (depth-mup's by its root); and as the schemes have it, which
    `audit --groups` compares with."""
    for scheme, published in (("completep", 1 / 4), ("depth-mup", 1 / 2)):
        law = SCHEMES[scheme].eps_multiplier
        assert float(law.subs(L, 48) / law.subs(L, 12)) == published
    advice = advise(scheme="completep", optimizer="adamw", from_layers=6, layers=24, width=1024, num_tokens=4)
    eps = named(advice, "nothing").eps
    assert {role: eps[role] for role in BRANCH_ROLES if role in eps} == pytest.approx(
        dict.fromkeys(("q", "k", "v", "out", "fc1", "fc2"), 1 / 4), rel=0.1
    )


QUESTION = ["advise", *options(scheme="gpt2", optimizer="adamw", from_layers=2, layers=4, width=64, tokens=4)]


def test_the_command_says_and_writes_what_the_function_does(monkeypatch: pytest.MonkeyPatch) -> None:
    found = document(*QUESTION)
    advice = advise(scheme="gpt2", optimizer="adamw", from_layers=2, layers=4, width=64, num_tokens=4)
    assert {row["role"]: row["factor"] for row in found["as_it_is"]} == pytest.approx(dict(advice.factors))
    assert [one["name"] for one in found["remedies"]] == [remedy.name for remedy in advice.remedies]
    for remedy in found["remedies"]:
        assert {"changes", "leaves", "training_record", "code"} <= remedy.keys()
        compile(remedy["code"], "pasted", "exec")
    best = told(*QUESTION, "--code", "best")
    assert best.rstrip("\n") == found["remedies"][0]["code"]
    monkeypatch.setenv("COLUMNS", "100")
    assert told(*QUESTION, COLUMNS="100") == str(advice)


def test_the_answer_stands_first_and_its_reasons_behind_why() -> None:
    """Three lines, with the numbers of the document: what happens, what to do, another way; --why adds roles."""
    advice = advise(scheme="gpt2", optimizer="adamw", from_layers=2, layers=4, width=64, num_tokens=4)
    text = told(*QUESTION)
    happens, do, other = re.split(r"\n(?=Do this|Or this)", text.partition("\nHow far")[0])
    best, another = advice.remedies[0], other_way(advice.remedies)
    assert happens.startswith("If you change nothing")
    assert f"{advice.factors['update']:.3g} times as far" in " ".join(happens.split())
    assert do.startswith(f"Do this: {best.name}: ") and another is not None and another.name in other
    assert another.gain is not None and "trained here: " in other.lower()
    assert f"{another.gain['mean']:z.2f} [" in " ".join(other.split())
    why = told(*QUESTION, "--why")
    assert known_of(another) in " ".join(why.split())
    assert why.startswith(text.partition("\nBy kind")[0]) and "exponent" not in text
    assert all(remedy.name in why for remedy in advice.remedies)


@pytest.mark.wide
def test_several_depths_are_each_what_they_are_alone() -> None:
    two = ["advise", *options(scheme="gpt2", optimizer="adamw", from_layers=2, layers="8,4", width=64, tokens=4)]
    of_each, alone = document(*two), document(*QUESTION)
    assert [one["to"]["num_sublayers"] for one in of_each["depths"]] == [8, 16]
    assert of_each["remedies"] == of_each["depths"][1]["remedies"], "the document's own fields are the deepest's"
    assert alone["remedies"] == of_each["depths"][0]["remedies"]
    text = told(*two)
    assert "at 4 layers" in text and "at 8 layers" in text


@pytest.mark.wide
def test_a_vector_that_carries_the_update_is_said_to() -> None:
    advice = advise(recipe="cait", optimizer="adamw", from_layers=20, layers=24, width=96, num_tokens=4)
    assert advice.shares["layer_scale"] > 1
    first = str(advice).partition("Do this")[0]
    assert "the trained vector on each branch carries the update itself" in " ".join(first.split())
    assert not re.search(r"[0-9]{4,} %", str(advice))


@pytest.mark.slow
def test_a_published_model_may_have_a_trained_vector_besides_and_says_what_it_leaves_out() -> None:
    of_vit = ["advise", *options(recipe="vit", optimizer="adamw", from_layers=2, layers=4, width=64, tokens=4)]
    with_vector = document(*of_vit, "--layer-scale", "1e-5")
    assert "layer_scale" in {row["role"] for row in with_vector["as_it_is"]}
    assert "layer_scale" not in {row["role"] for row in document(*of_vit)["as_it_is"]}
    assert any("left out of completep" in remark and "eps" in remark for remark in with_vector["remarks"])


@pytest.mark.wide
def test_a_published_model_has_the_width_that_was_published() -> None:
    question = ["advise", *options(recipe="vit", optimizer="adamw", from_layers=2, layers=4, tokens=2)]
    assert document(*question) == document(*question, "--width", "768")
    in_python: dict[str, Any] = {"recipe": "vit", "from_layers": 2, "layers": 4, "num_tokens": 2}
    assert advise(**in_python).document() == advise(**in_python, width=768).document()


@pytest.mark.wide
def test_what_is_left_out_of_a_way_is_said_at_once_and_so_is_which_step_the_advice_is_of() -> None:
    """In short beside the first lines, where the model or one of the two ways is a published one."""
    of_it, of_another = (
        " ".join(str(advise(scheme=name, from_layers=4, layers=8, width=64, num_tokens=2)).split())
        for name in ("completep", "post-ln")
    )
    assert (
        "Mind: left out of completep: its learning rates by width and Adam's eps by width (--why has it in full)."
        in of_it
    )
    assert "left out of" not in of_another
    assert "one logit, by a step that is taken to change that logit" in of_another


@pytest.mark.slow
def test_no_rate_is_beyond_bounds_where_a_role_vanishes() -> None:
    """Queries and keys do where a Post-LN of large gains makes all tokens one: no learning rate brings them back."""
    scheme = custom_scheme("post", gain=(Fraction(9), Fraction(0)))
    shape: dict[str, Any] = {"arch": "decoder", "d_model": 64, "num_tokens": 2, "activation": "gelu"}
    few, many = (Network(scheme=scheme, num_sublayers=2 * n, **shape) for n in (2, 40))
    advice = compared(few, many, "sgd")
    assert 0 < advice.factors["q"] < 1e-9
    rates = named(advice, "learning-rates").own_rates
    assert "q" not in rates and max(map(away, rates.values())) < 1e3


@pytest.mark.wide
def test_a_role_that_matters_and_vanishes_is_told_and_neither_raised_nor_ranked_by() -> None:
    """Keys under Muon, whose step has one size: they matter at 4 layers of Post-LN, and at 32 all tokens are alike."""
    advice = advise(scheme="post-ln", optimizer="muon+adamw", from_layers=4, layers=32, width=512)
    assert advice.vanished == ["k"] and advice.factors["k"] < 0.05 <= advice.shares["fc2"]
    assert max(named(advice, "learning-rates").own_rates.values()) <= 1
    assert all(remedy.worst_role != "k" for remedy in advice.remedies)
    (remark,) = (remark for remark in advice.remarks if "hardly moves the deeper model" in remark)
    assert remark.startswith("k ") and "depth-mup" in remark
    assert "k, the keys, hardly moves it any more" in " ".join(str(advice).split())


def test_vectors_do_not_decay_and_matrices_decay_as_before() -> None:
    advice = asked("adamw", **GPT)
    code = pasted(advice.code(named(advice, "depth-mup")))
    model = Model(2, nn.LayerNorm, is_gated=False, is_post=False)
    for group in code["param_groups"](model, lr=1.0, weight_decay=0.1):
        for parameter in group["params"]:
            decay = group["lr"] * group["weight_decay"]
            assert decay == pytest.approx(0.1 if parameter.ndim > 1 else 0.0)


def test_the_code_says_what_the_tuned_model_is_where_it_changes_too() -> None:
    advice = asked("adamw", **GPT)
    remedy = named(advice, "depth-mup at both depths")
    title, says, *lines = advice.code(remedy)
    first = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    names = pasted([line.removeprefix("# ") for line in lines[:first]])
    assert "2 layers" in title and "changes the tuned model" in says
    assert names["BRANCH_WEIGHT"] == remedy.tuned.encoder[0].branch_weight == 2 * pasted(lines)["BRANCH_WEIGHT"]


# ---------------------------------------------------------------- other people's names


def of_deepnorm() -> dict[str, Any]:
    advice = advise(
        scheme="deepnorm", arch="encoder", optimizer="adamw", from_layers=2, layers=8, width=D, num_heads=HEADS
    )
    (nothing,) = (remedy for remedy in advice.remedies if remedy.name == "nothing")
    return pasted(advice.code(nothing))


@pytest.mark.wide
def test_packed_queries_keys_and_values_get_their_own_deviations() -> None:
    """DeepNorm scales v and not q and k; torch's encoder has the three in one matrix."""
    names, layer = of_deepnorm(), nn.TransformerEncoderLayer(D, HEADS, 4 * D)
    names["initialise"](layer)
    stds = names["STD"]
    assert stds["v"] < stds["q"]
    for role, part in zip("qkv", layer.self_attn.in_proj_weight.chunk(3), strict=True):
        assert float(part.detach().std()) == pytest.approx(stds[role], rel=0.05)


@SLOW
def test_packed_cross_attention_gets_its_own_deviations() -> None:
    """T5's start, whose queries are smaller than keys and values, in torch's encoder-decoder."""
    advice = advise(recipe="t5", optimizer="adafactor", from_layers=(2, 2), layers=(4, 4), width=D, num_heads=HEADS)
    names, model = pasted(advice.code(advice.remedies[0])), nn.Transformer(D, HEADS, 2, 2, 4 * D, batch_first=True)
    names["initialise"](model)
    stds = names["STD"]["decoder"]
    assert stds["cross_q"] < stds["cross_v"]
    packed = model.get_parameter("decoder.layers.0.multihead_attn.in_proj_weight")
    for role, part in zip("qkv", packed.chunk(3), strict=True):
        assert float(part.detach().std()) == pytest.approx(stds[f"cross_{role}"], rel=0.05)


def test_names_that_the_code_does_not_know_are_said() -> None:
    names = of_deepnorm()
    with pytest.raises(ValueError, match="no parameter has the role fc1, fc2, k, out, q, v: put your names into NAMES"):
        names["initialise"](nn.ModuleDict({"lm_head": nn.Linear(D, D)}))
    known = {
        "blocks.0.attn.proj.weight": "out",
        "blocks.0.norm1.weight": "norm_gain",
        "transformer.ln_f.bias": "final_norm",
    }
    known |= dict.fromkeys(("network.0.weight", "two.weight", "switch.weight", "window_table"))
    assert {name: names["role_of"](name) for name in known} == known


def renamed(model: nn.Module, names: dict[str, str]) -> nn.Module:
    """Its parts called otherwise."""
    for part in list(model.modules()):
        for name, own in list(part.named_children()):
            if name in names:
                delattr(part, name)
                part.add_module(names[name], own)
    return model


@pytest.mark.parametrize("optimizer", often(["muon+adamw", "adamw", "muon"], 3))
def test_a_llama_with_names_of_its_own_is_in_groups_or_refused(optimizer: str) -> None:
    """No matrix and no norm keeps its rate, or falls to AdamW, because its name is not known; a final norm is no
    block's."""
    advice = advise(optimizer=optimizer, from_layers=2, layers=4, width=64, num_tokens=2, **GATED)
    code = pasted(advice.code(named(advice, "learning-rates")))
    model, _ = CLIENTS["Llama"].build(2, 64, 4)
    groups = code["param_groups"](model, lr=1.0)
    every = [group for of in groups for group in of] if optimizer.startswith("muon") else groups
    found = [id(parameter) for group in every for parameter in group["params"]]
    assert sorted(found) == sorted(map(id, model.parameters()))
    (final,) = (one for name, one in model.named_parameters() if code["role_of"](name) == "final_norm")
    assert [group["lr"] for group in every if any(one is final for one in group["params"])] == [1.0]
    if optimizer == "muon+adamw":
        in_muon = {id(parameter) for group in groups[0] for parameter in group["params"]}
        matrices = {name for name, one in model.named_parameters() if one.ndim == 2 and id(one) not in in_muon}
        assert all("embed" in name or "head" in name for name in matrices)
    renamed(model, {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "input_layernorm": "n1"})
    for call in (code["initialise"], lambda model: code["param_groups"](model, lr=1.0)):
        with pytest.raises(
            ValueError, match=r"NAMES gives no role to .*n1\.weight.*gate\.weight|.*gate\.weight.*n1\.weight"
        ):
            call(model)


def test_what_is_held_needs_nothing() -> None:
    """And starting nearly as the identity is no reason to change it."""
    assert of_su_adam().remedies[0].name == "nothing"


def test_a_branch_that_starts_at_zero_has_advice() -> None:
    advice = advise(scheme="fixup", optimizer="adamw", from_layers=4, layers=16, width=512, num_tokens=4)
    assert advice.factors["update"] == pytest.approx(2.0, rel=0.1)


# ---------------------------------------------------------------- behind the first steps


def aligned(network: Network, rate: float = 1.0) -> float:
    """The update by the law that ``LATER`` has for adamw, a step of that many times the rate behind the start."""
    asked = {"laws": (LATER["adamw"],), "effort": 0.25, "replicates": 1}
    return network.after_start("adamw", rate * D**-0.5, 1, **asked)[LATER["adamw"]]


@pytest.mark.wide
def test_how_far_a_way_moves_behind_the_first_steps() -> None:
    """A learning rate makes the matrices that much smaller and the step that much shorter; of a way at both depths both
    networks have it."""
    advice = advise(scheme="pre-ln", optimizer="adamw", from_layers=2, layers=16, width=D, num_tokens=2)
    later, few = {one.name: advice.after_start(one) for one in advice.remedies}, aligned(advice.shallow)
    assert later["nothing"] == pytest.approx(aligned(advice.deep) / few)
    rate = next(iter(advice.named("learning-rate").own_rates.values()))
    assert rate < 0.5
    assert later["learning-rate"] == pytest.approx(rate * aligned(advice.deep, rate) / few)
    few, many = (aligned(replace(one, scheme=SCHEMES["depth-mup"])) for one in (advice.shallow, advice.deep))
    assert later["depth-mup at both depths"] == pytest.approx(many / few)
    assert advice.document()["remedies"][0]["after_start"] == later[advice.remedies[0].name]


@pytest.mark.wide
def test_python_takes_several_depths_a_type_of_transformers_and_adamw_as_the_command_does() -> None:
    question: dict[str, Any] = {"scheme": "pre-ln", "from_layers": 2, "width": 64, "num_tokens": 2}
    several = advise(layers=[3, 4], **question)
    assert [(one.deep.num_sublayers, one.optimizer) for one in several] == [(6, "adamw"), (8, "adamw")]
    assert several[1].factors == advise(layers=4, **question).factors
    own = advise(hf="gpt2", from_layers=1, layers=2, width=32)
    assert own.name == "GPT2Model" and own.deep.d_model == 32
    with pytest.raises(ValueError, match="width does not go with a model of your own"):
        advise(lambda _: nn.Identity(), from_layers=1, layers=2, width=32)

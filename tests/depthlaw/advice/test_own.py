"""Advice for models of one's own: the code is executed as it is printed, and a real step of what it makes is measured
at both depths, whatever the parameters are called."""

import math
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from depthlaw.advice.advice import Advice, advise, of_model
from depthlaw.auditing.builders import hugging_face
from depthlaw.auditing.inputs import first_output, guess
from depthlaw.sims.config import BRANCH_ROLES
from depthlaw.sims.stats import estimate, ratio
from tests.command import depthlaw, options, refusal, told
from tests.depthlaw.advice.test_advise import pasted
from tests.often import often

D, HEADS, VOCABULARY = 128, 4, 64
SEEDS, LEVEL = 16, 0.9999
FEW, MANY = 1, 4


class Mixer(nn.Module):
    """Attention with one fused matrix for queries, keys and values."""

    def __init__(self, *, has_bias: bool) -> None:
        super().__init__()
        self.into, self.back = nn.Linear(D, 3 * D, bias=has_bias), nn.Linear(D, D, bias=has_bias)

    def forward(self, x: Tensor) -> Tensor:
        heads = (part.unflatten(-1, (HEADS, D // HEADS)).transpose(-2, -3) for part in self.into(x).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.back(mixed.transpose(-2, -3).flatten(-2))


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(D, 4 * D, False),
            nn.Linear(D, 4 * D, False),
            nn.Linear(4 * D, D, False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, *, is_post: bool, scale: float | None) -> None:
        super().__init__()
        norm = nn.LayerNorm if is_post else nn.RMSNorm
        # numbers in the names that are no layer's, and no name that says what it is
        plain = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))
        self.n1, self.n2, self.one = norm(D), norm(D), Mixer(has_bias=is_post)
        self.two = plain if is_post else Gated()
        self.is_post = is_post
        self.s1, self.s2 = (None if scale is None else nn.Parameter(torch.full((D,), scale)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for norm, branch, scale in ((self.n1, self.one, self.s1), (self.n2, self.two, self.s2)):
            y = branch(x if self.is_post else norm(x))
            y = y if scale is None else scale * y
            x = norm(x + y) if self.is_post else x + y
        return x


class Odd(nn.Module):
    def __init__(
        self, num_layers: int, *, is_post: bool = False, scale: float | None = None, falls: bool = False
    ) -> None:
        super().__init__()
        self.tok = nn.Embedding(VOCABULARY, D)
        self.stack = nn.ModuleList(Block(is_post=is_post, scale=scale) for _ in range(num_layers))
        self.last = nn.Identity() if is_post else nn.RMSNorm(D)
        self.vocab = nn.Linear(D, VOCABULARY, False)
        for name, one in self.named_parameters():
            if one.ndim > 1:
                is_last = falls and name.endswith(("back.weight", "down.weight"))
                nn.init.normal_(one, std=0.02 / (math.sqrt(2 * num_layers) if is_last else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(one)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok(ids)
        for block in self.stack:
            x = block(x)
        return self.vocab(self.last(x))


def build(num_layers: int) -> nn.Module:
    return Odd(num_layers)


OWN: dict[str, Callable[[int], nn.Module]] = {
    "pre": build,
    "falling": partial(Odd, falls=True),
    "post": partial(Odd, is_post=True),
    "scaled": partial(Odd, scale=0.1),
    **{name: hugging_face(name, D)[0] for name in ("gpt2", "llama", "bert", "t5")},
}


@pytest.fixture
def _exponential() -> None:
    """Of depths beyond those that are asked for."""


@pytest.fixture(autouse=True)
def _quickly(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what an audit says of depths that nobody asks for here."""
    if "_exponential" in request.fixturenames:
        return
    monkeypatch.setattr("depthlaw.auditing.audit.exponential", lambda *_: None)


@cache
def asked(name: str, optimizer: str) -> Advice:
    return advise(model=OWN[name], optimizer=optimizer, from_layers=FEW, layers=MANY)


def moved(model: nn.Module, groups: Any, optimizer: str, roles: dict[str, str], seed: int) -> dict[str, float]:
    """By role, what one real step changes a logit by, to first order, per unit learning rate."""
    model = model.double().eval()
    output = first_output(guess(model, seed).call(model)).flatten(0, -2)[-1]
    head = torch.randn(len(output), generator=torch.Generator().manual_seed(3)).double()
    ((output @ head) / math.sqrt(D) if len(output) == D else output[0]).backward()
    before = {name: (one.detach().clone(), one.grad) for name, one in model.named_parameters() if one.grad is not None}
    if optimizer == "muon+adamw":
        steps: list[Any] = [torch.optim.Muon(groups[0], adjust_lr_fn="match_rms_adamw"), torch.optim.AdamW(groups[1])]
    else:
        for group in groups:
            if "eps" in group:
                group["eps"] = 1e-30  # the prediction is of an epsilon of 0
        steps = [torch.optim.SGD(groups) if optimizer == "sgd" else torch.optim.AdamW(groups)]
    for step in steps:
        step.step()
    total: dict[str, float] = {}
    for name, one in model.named_parameters():
        if name in before and (role := roles.get(name)) is not None:
            old, gradient = before[name]
            total[role] = total.get(role, 0.0) + float((gradient * (old - one.detach())).sum()) / 1e-3
    return total


def made(name: str, num_layers: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return OWN[name](num_layers)


CASES = [
    ("pre", "adamw", "depth-mup"),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            ("post", "adamw", "su-adam"),
            ("gpt2", "adamw", "best"),
            ("falling", "adamw", "depth-mup"),
            ("scaled", "adamw", "depth-mup"),
            ("t5", "adamw", "learning-rates"),
            ("pre", "muon+adamw", "learning-rates"),
            ("pre", "adamw", "completep"),
            ("pre", "sgd", "completep"),
            ("llama", "adamw", "depth-mup"),
            ("bert", "adamw", "su-adam"),
            ("gpt2", "adamw", "depth-mup"),
            ("falling", "adamw", "nothing"),
        )
    ),
]


@pytest.mark.wide
@pytest.mark.parametrize(("name", "optimizer", "remedy"), CASES)
def test_the_code_moves_the_user_s_own_model_as_promised(name: str, optimizer: str, remedy: str) -> None:
    advice = asked(name, optimizer)
    chosen = advice.named(remedy)
    names = pasted(advice.code(chosen))
    few, many = [], []
    for seed in range(SEEDS):
        tuned, deep = made(name, FEW, seed), made(name, MANY, 1000 + seed)
        rows = {one: row[0] for one, (_, row) in names["rows_of"](deep).items()}
        first = {one: rows[one] for one, _ in tuned.named_parameters() if one in rows}
        assert first.keys() == {one for one, _ in tuned.named_parameters()}
        plain: Any = [{"params": list(tuned.parameters()), "lr": 1e-3, "eps": 1e-8}]
        if optimizer == "muon+adamw":
            matrices = [
                p for n, p in tuned.named_parameters() if p.ndim == 2 and rows[n].split(", ")[0] in BRANCH_ROLES
            ]
            others = [p for p in tuned.parameters() if not any(p is matrix for matrix in matrices)]
            plain = [{"params": matrices, "lr": 1e-3}], [{"params": others, "lr": 1e-3}]
        elif optimizer == "sgd":
            del plain[0]["eps"]
        few.append(moved(tuned, plain, optimizer, first, seed))
        names["initialise"](deep)
        many.append(moved(deep, names["param_groups"](deep, lr=1e-3), optimizer, rows, 1000 + seed))
    tried = 0
    for role in chosen.matters:
        if role in few[0] and role in BRANCH_ROLES:
            after, before = (estimate([run[role] for run in runs], LEVEL) for runs in (many, few))
            measured = ratio(after, before, LEVEL)
            assert measured.low is not None and measured.high is not None
            assert measured.low < chosen.leaves[role] < measured.high, (role, measured, chosen.leaves[role])
            tried += 1
    assert tried >= 2


@pytest.mark.wide
@pytest.mark.parametrize("optimizer", often(["adamw", "muon+adamw", "sgd"], 3))
def test_apply_does_what_the_code_does(optimizer: str) -> None:
    """The same values and the same groups; su-adam scales the values in a fused matrix, and not its queries."""
    for name in ("post", "gpt2"):
        advice = asked(name, optimizer)
        for remedy in advice.remedies:
            if remedy.name.endswith("on top"):
                continue
            one, other = made(name, MANY, 1), made(name, MANY, 1)
            if remedy.name == "embedding":
                assert any("what the embeddings give is to be multiplied by" in line for line in advice.code(remedy))
                with pytest.raises(ValueError, match="embedding is not in the parameters alone: in the forward pass"):
                    advice.apply(other, lr=0.1, remedy=remedy.name)
                continue
            names = pasted(advice.code(remedy))
            names["initialise"](one)
            decay: dict[str, Any] = {} if optimizer == "sgd" else {"weight_decay": 0.1}
            by_code = names["param_groups"](one, lr=0.1, **decay)
            by_call = advice.apply(other, lr=0.1, remedy=remedy.name, **decay)
            for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=0)

            def rates(groups: Any, model: nn.Module) -> dict[str, tuple[Any, ...]]:
                called = {id(parameter): name for name, parameter in model.named_parameters()}
                every = (
                    [(g, "muon") for g in groups[0]] + [(g, "rest") for g in groups[1]]
                    if optimizer.startswith("muon")
                    else [(g, "") for g in groups]
                )
                listed = {
                    called[id(p)]: (place, *(g.get(key, 0.0) for key in ("lr", "eps", "weight_decay")))
                    for g, place in every
                    for p in g["params"]
                }
                assert len(listed) == sum(len(g["params"]) for g, _ in every) == len(called)
                return listed

            mine, theirs = rates(by_code, one), rates(by_call, other)
            assert mine.keys() == theirs.keys()
            for key, numbers in mine.items():
                assert numbers[0] == theirs[key][0] and numbers[1:] == pytest.approx(theirs[key][1:], rel=1e-2)


def test_a_parameter_that_was_not_read_is_refused() -> None:
    advice = asked("pre", "adamw")
    model = made("pre", MANY, 0)
    model.adapter = nn.Linear(D, D)
    names = pasted(advice.code(advice.remedies[0]))
    for call in (lambda: advice.apply(model, lr=1.0), lambda: names["param_groups"](model, lr=1.0)):
        with pytest.raises(ValueError, match=r"not of the model that was read: adapter.weight, adapter.bias"):
            call()


class Headed(nn.Module):
    """As transformers makes a model with a head of one without."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.lm_head = model, nn.Linear(D, D, bias=False)


class DDP(nn.Module):
    """Names as DistributedDataParallel has them."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


WRAPPED: dict[str, Callable[[nn.Module], Any]] = {
    "_orig_mod.module.model.": lambda model: torch.compile(DDP(Headed(model)), backend="eager"),
    "module.": DDP,
    "_orig_mod.": partial(torch.compile, backend="eager"),
    "model.": Headed,
}


@pytest.mark.parametrize("start", often(WRAPPED, 4, wide=1))
@pytest.mark.parametrize(("name", "remedy"), often([("post", "su-adam"), ("pre", "depth-mup")], 2, wide=1))
def test_a_model_may_be_wrapped(start: str, name: str, remedy: str) -> None:
    """Its names begin with a word or several more. A head is told by name, and stands in a group once that is said;
    su-adam scales a part of a fused matrix."""
    advice, plain = asked(name, "adamw"), made(name, MANY, 0)
    advice.apply(plain, lr=1.0, remedy=remedy)
    names = pasted(advice.code(advice.named(remedy)))
    head = f"{start.removesuffix('model.')}lm_head.weight"
    for by_code in (False, True):
        inner = made(name, MANY, 0)
        model = WRAPPED[start](inner)
        others = [head] if start.endswith("model.") else []

        def apply(others: Any = (), model: Any = model, by_code: bool = by_code) -> Any:
            if not by_code:
                return advice.apply(model, lr=1.0, remedy=remedy, others=others)
            names["initialise"](model, others=others)
            return names["param_groups"](model, lr=1.0, others=others)

        if others:
            with pytest.raises(ValueError, match=rf"{head}; to give them .*others=\['{head}'\]"):
                apply()
        groups = apply(others)
        assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
        for mine, theirs in zip(inner.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=0)


def test_parameters_are_scaled_once() -> None:
    """Where a remedy changes rates alone, it may be applied again."""
    advice, model = asked("pre", "adamw"), made("pre", MANY, 0)
    for _ in range(2):
        advice.apply(model, lr=1.0, remedy="learning-rates")
    advice.apply(model, lr=1.0, remedy="depth-mup")
    with pytest.raises(ValueError, match="has scaled the parameters of this model already"):
        advice.apply(model, lr=1.0, remedy="depth-mup")


@pytest.mark.parametrize("num_layers", [MANY - 1, MANY + 1])
def test_a_model_of_another_depth_is_refused(num_layers: int) -> None:
    """Its names all fit, and the numbers are those of another depth."""
    advice, model = asked("pre", "adamw"), made("pre", num_layers, 0)
    with pytest.raises(ValueError, match=rf"stack.{min(num_layers, MANY)}.n1.weight"):
        advice.apply(model, lr=1.0)
    with pytest.raises(
        ValueError, match=r"this model has \d+ parameters in its layers and the one that was read has \d+"
    ):
        pasted(advice.code(advice.remedies[0]))["initialise"](model)


def test_a_builder_that_takes_no_notice_of_its_number_has_no_advice() -> None:
    with pytest.raises(ValueError, match=r"asked for 1 and for 2 layers, it builds 3 both times"):
        of_model(lambda _: build(3), 1, [2], "adamw")


@pytest.mark.wide
def test_a_law_of_the_model_s_own_is_taken_back() -> None:
    """Its outputs fall as 1/sqrt(N): a remedy begins at the tuned model's scale, and says so."""
    advice = asked("falling", "adamw")
    names = pasted(advice.code(advice.named("depth-mup")))
    scale = names["find"](names["PARAMETERS"], "stack.3.two.down.weight")[-1]
    assert scale == pytest.approx(math.sqrt(MANY / FEW) * (MANY / FEW) ** -0.5, rel=0.02)
    assert "init as in the model of 1 layer" in "; ".join(advice.named("depth-mup").changes)


@pytest.mark.wide
def test_a_trained_vector_begins_smaller_and_no_matrix_does() -> None:
    names = pasted(asked("scaled", "adamw").code(asked("scaled", "adamw").named("depth-mup")))
    model = made("scaled", MANY, 0)
    names["initialise"](model)
    assert torch.allclose(model.get_parameter("stack.0.s1"), torch.tensor(0.1 * (MANY / FEW) ** -0.5))
    assert names["find"](names["PARAMETERS"], "stack.0.two.down.weight")[-1] == 1


FILE = """
from tests.depthlaw.advice.test_own import Odd

def build(num_layers):
    return Odd(num_layers)

def breaks(num_layers):
    raise RuntimeError("no")
"""
QUESTION = options(optimizer="adamw", from_layers=1, layers=2)


def test_the_command_reads_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    model = f"{tmp_path / 'mine.py'}:build"
    text = told("advise", "--model", model, "--from-layers", "1", "--layers", "2", "--code", "best")
    assert "adamw" in text and "stack.*.one.into.weight" in text  # adamw if nothing is said
    refused = depthlaw("advise", "--model", f"{tmp_path / 'mine.py'}:breaks", *QUESTION)
    assert refused.returncode == 2 and "mine.py, line 8" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.wide
def test_faults_and_what_is_not_read_are_said() -> None:
    """torch's layers start as copies: that is a fault, and the growth that is measured is not the one predicted."""

    def copies(num_layers: int) -> nn.Module:
        layer = nn.TransformerEncoderLayer(64, 4, 256, 0.0, norm_first=True, batch_first=True)
        return nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)

    (advice,) = of_model(copies, 2, [4], "adamw")
    assert "mend what the audit finds" in advice.first and "copies" in advice.first
    assert "the audit finds" in " ".join(str(advice).split())


def test_the_router_of_a_mixture_of_experts_is_named_and_keeps_its_rate() -> None:
    (advice,) = of_model(hugging_face("mixtral", 64)[0], 1, [2], "adamw")
    (warning,) = (one for one in advice.warnings if "mixture of experts" in one)
    assert "router (layers.*.mlp.gate.weight)" in warning and "not in the prediction" in warning
    assert all(remedy.gain is None for remedy in advice.remedies)
    names = pasted(advice.code(advice.named("learning-rate")))
    assert names["find"](names["PARAMETERS"], "layers.1.mlp.gate.weight")[:2] == ("other", 1)


class Routed(nn.Module):
    """Experts in a list, the best of which gets a token. skips: whether those without tokens are not called."""

    def __init__(self, *, skips: bool) -> None:
        super().__init__()
        self.skips = skips
        self.router, self.experts = nn.Linear(D, 6, False), nn.ModuleList(Gated() for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -2)
        weight, chosen = self.router(flat).softmax(-1).max(-1)
        out = torch.zeros_like(flat)
        for place, expert in enumerate(self.experts):
            (rows,) = (chosen == place).nonzero(as_tuple=True)
            if len(rows) or not self.skips:
                out = out.index_add(0, rows, weight[rows, None] * expert(flat[rows]))
        return out.view_as(x)


@pytest.mark.wide
@pytest.mark.parametrize("skips", often([False, True], 2))
def test_an_expert_that_gets_no_token_is_as_the_others(skips: bool) -> None:
    """Of a few tokens that a model is read with some experts get none; whether they are called without is the same."""

    def routed(num_layers: int) -> nn.Module:
        model = Odd(num_layers)
        for block in model.stack:
            block.two = Routed(skips=skips)
        for name, matrix in model.named_parameters():
            if ".two." in name:
                nn.init.normal_(matrix, std=0.02)
        return model

    (advice,) = of_model(routed, 2, [8], "adamw")
    rows = pasted(advice.code(advice.named("learning-rate")))
    names = [name for name, _ in routed(8).named_parameters() if ".two." in name]
    roles = {name: rows["find"](rows["PARAMETERS"], name) for name in names}
    assert {row[0] for name, row in roles.items() if "router" in name} == {"other"}
    of_experts = {row[:2] for name, row in roles.items() if "experts" in name}
    assert {role for role, _ in of_experts} == {"fc1", "fc2", "fc3"}
    assert len({rate for _, rate in of_experts}) == 1 and 1 not in {rate for _, rate in of_experts}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("--model mine:build --hf gpt2", "not both"),
        ("--model mine:build --scheme gpt2", "--scheme does not go with a model of your own"),
        ("--model mine:build --tokens 4", "--tokens does not go with a model of your own"),
        ("--model mine:build --width 64", "--width is of --hf"),
        ("--hf meta-llama/Llama-2-7b-hf", "nothing is downloaded"),
        ("--model nowhere.py:build", "there is no file nowhere.py"),
        ("--scheme gpt2", "--width D is wanted"),
        ("--width 64", "name a model: your own, --model MODULE:FACTORY"),
    ],
)
def test_what_has_no_answer_is_refused_in_one_line(more: str, says: str) -> None:
    assert says in refusal("advise", *more.split(), *QUESTION)


class NoNorms(Odd):
    """The same layers, whose norms do nothing."""

    def __init__(self, num_layers: int) -> None:
        super().__init__(num_layers)
        for block in self.stack:
            block.n1, block.n2 = nn.Identity(), nn.Identity()
        for one in self.parameters():
            if one.ndim > 1:
                nn.init.normal_(one, std=3 * one.shape[-1] ** -0.5)


@pytest.mark.wide
@pytest.mark.usefixtures("_exponential")
def test_of_numbers_that_explode_it_is_said_what_to_do_first() -> None:
    """A model without norms: a line before all advice, and where nothing can be computed any more that line alone."""
    (told,) = of_model(NoNorms, 1, [2], "adamw")
    said = " ".join(str(told).split())
    assert "First of all: with depth this model explodes: its branches have no norm" in said
    assert told.first in told.document()["remarks"]
    with pytest.raises(
        ValueError, match=r"NoNorms of 40 layers has numbers beyond the floats.*first put a norm"
    ) as refused:
        of_model(NoNorms, 1, [40], "adamw")
    assert "\n" not in str(refused.value)

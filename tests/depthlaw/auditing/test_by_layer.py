"""What each sublayer does: measured as it is predicted, by the user's own names, and in words where one is wrong."""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from depthlaw.auditing.audit import Audit, audit
from depthlaw.auditing.by_layer import OF_MATRICES, QUANTITIES, AtSublayer, measured, rows_of, says
from depthlaw.auditing.inputs import guess
from depthlaw.auditing.reading.look import look
from depthlaw.paper_checks.pages.plots import _OF_LAYERS
from depthlaw.sims.stats import estimate
from tests.command import depthlaw as run
from tests.depthlaw.auditing.gallery import GPT_2, gpt_2
from tests.depthlaw.auditing.transformer import At, Build, Matrix, Sublayer, everywhere, transformer, xavier

WIDTH, NUM_LAYERS, FEW_LAYERS = 64, 8, 4
GPT = replace(GPT_2, d_model=WIDTH, ffn_width=4 * WIDTH)


def he(matrix: Matrix) -> float:
    return 1.0 if matrix.at is None else (2 / matrix.weight.shape[-1]) ** 0.5


def third(_: At) -> float:
    return 1 / 3


def torchs(*, norm_first: bool) -> Build:
    """torch's encoder, its layers drawn one by one."""

    def layer() -> nn.TransformerEncoderLayer:
        return nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, norm_first=norm_first, batch_first=True)

    def build(num_layers: int) -> nn.Module:
        final = nn.LayerNorm(WIDTH) if norm_first else None
        model = nn.TransformerEncoder(layer(), 1, final, enable_nested_tensor=False)
        model.layers = nn.ModuleList(layer() for _ in range(num_layers))
        return model

    return build


def vectors(_: nn.Module) -> Tensor:
    return torch.randn(1, 8, WIDTH)


def audited(
    build: Build,
    num_seeds: int,
    inputs: Callable[[nn.Module], Tensor] | None = None,
    num_layers: int = NUM_LAYERS,
) -> Audit:
    return audit(build, num_layers, seeds=num_seeds, inputs=inputs, by_layer=True, far=(), has_nearest=False)


RIGHT = {
    "a GPT": (transformer(GPT, gpt_2), None, "stack.blocks.{}.attention.branch", "stack.blocks.{}.ffn.branch"),
    "torch, pre": (torchs(norm_first=True), vectors, "layers.{}.self_attn", "layers.{} (ffn)"),
    "torch, post": (torchs(norm_first=False), vectors, "layers.{}.self_attn", "layers.{} (ffn)"),
    "two sides": (transformer(replace(GPT, arch="encoder-decoder", is_tied=False, is_fused=False), xavier), None),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in ("torch, pre", "two sides") else ()) for name in RIGHT],
)
def test_each_sublayer_does_what_is_predicted(name: str) -> None:
    """Each number lies in the interval of eight seeds (1e-3 for all together), widened by L/d; nothing is said of
    models that are right."""
    build, inputs, *names = RIGHT[name]
    answer = audited(build, 8, inputs, FEW_LAYERS)
    rows = answer.by_layer
    assert rows is not None and answer.predicted
    num_sides = len(answer.depths[-1].built.sides)
    assert len(rows) == (5 if num_sides > 1 else 2) * FEW_LAYERS
    if num_sides == 1:
        assert [row.name for row in rows] == [at.format(layer) for layer in range(FEW_LAYERS) for at in names]
    width = len(rows) / WIDTH
    for row in rows:
        for quantity in QUANTITIES:
            found = estimate(row.measured[quantity], level=1 - 1e-3 / len(rows) / len(QUANTITIES))
            told = row.predicted[quantity]
            assert found.low is not None and found.high is not None and told is not None
            assert (1 - width) * found.low <= told <= (1 + width) * found.high, (row.name, quantity, found, told)
    assert answer.document()["by_layer"]["says"] == []


def test_each_number_is_that_of_the_stream_before_its_sublayer() -> None:
    """By hooks: what each sublayer of a GPT is given and answers, and the gradient of the first logit at the last token
    with respect to that."""
    module = transformer(GPT, gpt_2)(FEW_LAYERS)
    built = look(module, guess(module))
    given: list[Tensor] = []
    answered: list[Tensor] = []

    def keep(_: nn.Module, args: tuple[Tensor, ...], answer: Tensor) -> None:
        given.append(args[0])
        answered.append(answer)

    hooks = [part.register_forward_hook(keep) for part in built.module.modules() if isinstance(part, Sublayer)]
    logit = built.inputs.call(built.module)[0, -1, 0]
    for hook in hooks:
        hook.remove()
    told = measured(built)
    gradients = torch.autograd.grad(logit, given, retain_graph=True)
    for x, y, gradient, sub, row in zip(given, answered, gradients, built.sublayers, told, strict=True):
        matrices = {weight.name: weight.parameter for weight in sub.weights}
        squares = [
            part.square().sum().item()
            for part in torch.autograd.grad(logit, list(matrices.values()), retain_graph=True)
        ]
        assert row[OF_MATRICES] == pytest.approx(sum(squares), rel=1e-4)
        assert row[OF_MATRICES] == pytest.approx(sum(value for name, value in row.items() if "/" in name))
        assert row["second_moment"] == pytest.approx(x.square().mean().item(), rel=1e-5)
        assert row["gradient_square"] == pytest.approx(gradient.square().sum().item(), rel=1e-4)
        assert row["branch_share"] == pytest.approx(
            ((y - x).norm(dim=-1) / y.norm(dim=-1)).square().mean().item(), rel=1e-4
        )
        cosine = (x * y).sum(-1) / x.norm(dim=-1) / y.norm(dim=-1)
        assert row["cosine_with_previous"] == pytest.approx(cosine.mean().item(), rel=1e-5)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_a_model_of_any_precision_is_measured(kind: torch.dtype) -> None:
    """Each of its models, with vectors of that precision; as it is measured in single precision, to the rounding of
    what is drawn."""

    given = torch.randn(1, 8, WIDTH).bfloat16()

    def of(dtype: torch.dtype) -> Sequence[AtSublayer]:
        def build(num_layers: int) -> nn.Module:
            return torchs(norm_first=True)(num_layers).to(dtype)

        found = audited(build, 2, lambda _: given.to(dtype), 2).by_layer
        assert found is not None
        return found

    for one, other in zip(of(kind), of(torch.float32), strict=True):
        assert one.measured["gradient_square"] == pytest.approx(other.measured["gradient_square"], rel=0.02)


def silent(*names: str) -> Callable[[nn.Module], None]:
    def edit(model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            if name.endswith(names):
                nn.init.zeros_(parameter)

    return edit


def loud(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if name.endswith("4.ffn.branch.down_proj.weight"):
            nn.init.normal_(parameter, std=2.0)


ON_AND_ON = "stack.blocks.5.attention.branch and 2 more do nothing at the start: they add 0 % of the stream."
WRONG = {
    "one silent branch": (
        transformer(GPT, gpt_2, silent("5.ffn.branch.down_proj.weight")),
        ["stack.blocks.5.ffn.branch does nothing at the start: it adds 0 % of the stream."],
    ),
    "all of a kind silent": (
        transformer(GPT, gpt_2, silent("attention.branch.out_proj.weight")),
        [f"stack.blocks.0.attention.branch, .*, {ON_AND_ON}"],
    ),
    "every branch silent": (
        transformer(GPT, gpt_2, silent("down_proj.weight", "out_proj.weight")),
        ["No sublayer does anything at the start: each adds 0 % of the stream."],
    ),
    "a head at 0": (transformer(replace(GPT, is_tied=False), gpt_2, silent("lm_head.weight")), []),
    "no norms": (  # there softmax saturates, and some kernels of attention have no finite derivative then
        transformer(replace(GPT, norms=everywhere(), is_tied=False), he),
        [
            "The stream explodes over depth: its second moment goes from .* before stack.blocks.1.attention.branch to "
            ".* before stack.blocks.7.attention.branch.",
            "The gradient (explodes on its way back: its square goes from .* before stack.blocks.7.attention.branch to "
            ".* before stack.blocks.1.attention.branch|is lost on its way back: before .* it is no finite number).",
        ],
    ),
    "one loud branch": (
        transformer(GPT, gpt_2, loud),
        [
            r"The stream explodes over depth: .*, most of it at stack.blocks.4.ffn.branch \(x [\d,]+\).",
            r"The gradient explodes on its way back: .*, most of it at stack.blocks.4.ffn.branch \(x [\d,]+\).",
            "stack.blocks.5.attention.branch, stack.blocks.5.ffn.branch, .*, stack.blocks.7.ffn.branch do nothing at "
            "the start: they add less than 0.1 % of the stream.",
        ],
    ),
    "a stream that fades": (
        transformer(replace(GPT, norms=everywhere(), is_tied=False, residual_weight=third, branch_weight=third), he),
        [
            "The stream vanishes over depth: .* before stack.blocks.1.* to .* before stack.blocks.7.attention.branch.",
            "The gradient vanishes on its way back: .* before stack.blocks.7.attention.branch to .*",
        ],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_by_layer(name: str) -> None:
    build, lines = WRONG[name]
    torch.manual_seed(0)
    module = build(NUM_LAYERS)
    built = look(module, guess(module))
    found = says(rows_of(built, [measured(built)], None))
    assert len(found) == len(lines), found
    for line, pattern in zip(found, lines, strict=True):
        assert re.fullmatch(pattern, line), line


def test_what_is_wrong_stands_on_the_page_and_what_has_no_gradient_has_no_prediction_of_it() -> None:
    """Of a model with a silent branch, and a head at 0, through which no gradient comes."""
    silence = silent("1.ffn.branch.down_proj.weight", "lm_head.weight")
    answer = audited(transformer(replace(GPT, is_tied=False), gpt_2, silence), 1, num_layers=2)
    assert answer.by_layer is not None
    (line,) = says(answer.by_layer)
    assert line.startswith("stack.blocks.1.ffn.branch does nothing") and line in " ".join(str(answer).split())
    told = {quantity for row in answer.by_layer for quantity in row.predicted}
    assert told == {"second_moment", "branch_share", "cosine_with_previous"}


def test_a_gradient_that_is_no_number_is_told() -> None:
    """Of a model whose backward pass gives NaN from its sixth layer on."""

    class Lost(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            return gradients[0] * math.nan

    class Losing(Sublayer):
        def added(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
            y = super().added(x, memory)
            return Lost.apply(y) if (self.at.layer, self.at.kind) == (6, "attention") else y

    answer = audited(transformer(replace(GPT, sublayer=Losing), gpt_2), 2)
    assert answer.by_layer is not None
    assert says(answer.by_layer) == [
        "The gradient is lost on its way back: before stack.blocks.5.attention.branch it is no finite number."
    ]
    assert "at 8 layers 2 of 2 models have gradients that are no finite numbers" in " ".join(str(answer).split())
    json.dumps(answer.document(), allow_nan=False)


def test_constants_on_the_stream_are_in_what_it_does() -> None:
    """The same function written in two ways, the second with its residual weights on the stream itself, before the
    norm: the stream, the shares and the gradient are the same."""

    class Inside(Sublayer):
        def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
            return self.residual_weight * x + self.added(self.residual_weight * x, memory)

    class Outside(Sublayer):
        def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
            x = self.residual_weight * x
            return x + self.added(x, memory)

    shape = replace(GPT, residual_weight=lambda at: 0.9 + 0.02 * at.layer, is_tied=False)
    inside, outside = (
        audited(transformer(replace(shape, sublayer=kind), gpt_2), 1, num_layers=FEW_LAYERS)
        for kind in (Inside, Outside)
    )
    assert inside.by_layer is not None and outside.by_layer is not None
    assert [sub.start_scale for sub in outside.depths[-1].built.sublayers][4] == pytest.approx(0.96)
    for one, other in zip(inside.by_layer, outside.by_layer, strict=True):
        for quantity in QUANTITIES:
            assert other.measured[quantity] == pytest.approx(one.measured[quantity], rel=1e-4), (one.name, quantity)


def test_the_command_has_it_in_its_document_and_its_plot(tmp_path: Path) -> None:
    figure = tmp_path / "mine.svg"
    asked = ("audit", "--hf", "gpt2", "--layers", "2", "--width", "32", "--seeds", "2", "--json")
    answer = json.loads(run(*asked, "--by-layer", "--plot", str(figure)).stdout)
    rows = answer["by_layer"]["sublayers"]
    assert [row["name"] for row in rows] == [f"h.{at}.{part}" for at in range(2) for part in ("attn", "mlp")]
    assert all(
        {"measured", "low", "high", "predicted"} == row[quantity].keys() for row in rows for quantity in QUANTITIES
    )
    drawn = figure.read_text(encoding="utf-8")
    assert all(title in drawn for title, *_ in _OF_LAYERS.values())
    with pytest.raises(ValueError, match="by_layer is measured"):
        audit(RIGHT["a GPT"][0], 2, by_layer=True, measures=False)

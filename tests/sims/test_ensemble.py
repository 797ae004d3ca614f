"""Many models as one are these models one by one."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from depthlaw.sims import ensemble
from depthlaw.sims.ensemble import Ensemble, Member, NotEnoughMemoryError, members_at_once
from depthlaw.sims.model import BRANCH_ROLES, MATRICES, ModelConfig, SublayerConfig, Transformer, alternating
from depthlaw.sims.optim import NORMALISATION, OPTIMIZERS, first_step
from depthlaw.sims.update import Task, draw_inputs, first_order, layers_of, objective, roles_of
from tests.often import often

D, T, B = 12, 5, 2
SEEDS = (3, 14, 15)


def varied(member: int, kinds: str, mixes: bool = False, **rest: Any) -> tuple[SublayerConfig, ...]:
    """No number is 1, none is the same in two members or two sublayers. kinds: a, c, f."""
    names = {"a": "attention", "c": "cross", "f": "ffn"}
    return tuple(
        SublayerConfig(
            kind=names[letter],
            residual_weight=0.7 + 0.1 * index + 0.05 * member,
            branch_weight=1.4 - 0.1 * index - 0.07 * member,
            input_scale=0.9 + 0.03 * index + 0.11 * member,
            gains={role: 1.1 + 0.1 * index + 0.15 * member for role in MATRICES[names[letter]]},
            lr_multipliers={
                role: 0.5 + 0.1 * index + 0.2 * member
                for role in (*MATRICES[names[letter]], "bias", "norm_gain", "branch_weight")
            },
            **({"input_weight": 0.2 + 0.1 * index + 0.05 * member} if mixes else {}),
            **({"value_weight": 0.8 + 0.1 * member, "first_value_weight": 0.4} if mixes and letter == "a" else {}),
            **rest,
        )
        for index, letter in enumerate(kinds)
    )


CASES: dict[str, tuple[dict[str, Any], Task]] = {
    "encoder": ({"encoder": "afaf"}, Task(num_tokens=T, batch_size=B)),
    "causal, every logit": ({"encoder": "afaf", "is_causal": True}, Task(num_tokens=T, batch_size=B, readout="sum")),
    "encoder-decoder": ({"encoder": "af", "decoder": "acf", "placement": "pre"}, Task(num_tokens=T, batch_size=B)),
    "encoder-decoder of tokens": (
        {"encoder": "af", "decoder": "acf", "placement": "sub", "vocab_size": 7},
        Task(num_tokens=T, batch_size=B, objective="ce", num_classes=4),
    ),
    "affine and biases": (
        {"encoder": "afa", "placement": "peri", "has_affine": True, "has_bias": True, "norm_kind": "rmsnorm"},
        Task(num_tokens=T, batch_size=B, objective="ce", num_classes=4, readout="sum"),
    ),
    "qk-norm, normformer, swiglu": (
        {
            **{"encoder": "af", "decoder": "acf", "placement": "normformer", "has_affine": True, "has_bias": True},
            **{"has_qk_norm": True, "activation": "swiglu", "ffn_width": 9},
        },
        Task(num_tokens=T, batch_size=B),
    ),
    "trained branch weights": (
        {"encoder": "afaf", "placement": "none", "trains_branch_weight": True},
        Task(num_tokens=T, batch_size=B),
    ),
    "x_0 and the first values again": (
        {"encoder": "afaf", "decoder": "acfa", "placement": "pre", "mixes": True},
        Task(num_tokens=T, batch_size=B),
    ),
    "visited three times": (
        {"encoder": "af", "decoder": "acf", "placement": "pre", "visits": 3, "has_affine": True, "has_bias": True},
        Task(num_tokens=T, batch_size=B, objective="ce", num_classes=4),
    ),
    "so many sublayers that encoder_10 sorts before encoder_2": ({"encoder": "f" * 12}, Task()),
    "ffn alone": ({"encoder": "fff", "placement": "post", "ffn_ratio": 1}, Task()),
}


def members(rest: dict[str, Any], task: Task) -> list[Member]:
    rest = dict(rest)
    trains = {name: rest.pop(name, False) for name in ("trains_branch_weight", "mixes")}
    kinds = {side: rest.pop(side) for side in ("encoder", "decoder") if side in rest}
    each = []
    for member, seed in enumerate(SEEDS):
        sides = {side: varied(member, letters, **trains) for side, letters in kinds.items()}
        each.append(Member(task.on(ModelConfig(d_model=D, num_heads=3, **sides, **rest)), seed))
    return each


def plain_objective(model: Transformer, hidden: Tensor, labels: Tensor, task: Task) -> Tensor:
    """Of one model, written again."""
    head = dict(model.named_parameters())["_weights.head"]
    if task.objective == "ce":
        read, labels = (hidden, labels) if task.readout == "sum" else (hidden[:, -1], labels[:, -1])
        return F.cross_entropy((read @ head.T).flatten(0, -2), labels.flatten())
    if task.readout == "sum":
        return torch.einsum("btd,td->b", hidden, head).mean()
    return (hidden[:, -1] @ head[0]).mean()


@pytest.mark.parametrize("case", often(CASES, 2, wide=1))
def test_each_member_is_its_own_model(case: str) -> None:
    """Forward pass, gradients and update of each member against the plain model of its config and seed."""
    rest, task = CASES[case]
    each = members(rest, task)
    model, inputs = Ensemble(each), draw_inputs(each[0].config, task, SEEDS, torch.float64, "cpu")
    hidden = model(inputs.x, inputs.y)
    optimizers = OPTIMIZERS if case == "encoder-decoder of tokens" else ("sgd", "adam", "lamb", "muon")
    order = first_order(model, inputs, task, ["sgd", *optimizers])
    total = objective(model, hidden, inputs, task)
    names = [name for name, _ in model.named_parameters()]
    parameters = dict(model.named_parameters())
    grads = torch.autograd.grad(total.sum(), [parameters[name] for name in names], materialize_grads=True)
    ours = dict(zip(names, grads, strict=True))
    for index, member in enumerate(each):
        plain = Transformer(member.config, member.seed)
        own = dict(plain.named_parameters())
        out = plain(inputs.x[index], None if inputs.y is None else inputs.y[index])
        torch.testing.assert_close(hidden[index], out, rtol=1e-11, atol=1e-12)
        value = plain_objective(plain, out, inputs.labels[index], task)
        torch.testing.assert_close(total[index], value, rtol=1e-11, atol=1e-12)
        expected = dict(zip(own, torch.autograd.grad(value, list(own.values()), materialize_grads=True), strict=True))
        for name, grad in expected.items():
            torch.testing.assert_close(parameters[name][index], own[name], rtol=0, atol=0)
            torch.testing.assert_close(ours[name][index], grad, rtol=1e-9, atol=1e-12)
        for optimizer in optimizers:
            compare_update(model, plain, expected, index, optimizer, order.values[optimizer], member)


def compare_update(
    model: Ensemble,
    plain: Transformer,
    grads: dict[str, Tensor],
    index: int,
    optimizer: str,
    values: dict[str, Tensor],
    member: Member,
) -> None:
    """By role and by layer, <g, first step> of each parameter on its own."""
    sums: dict[str, float] = {}
    layers: dict[str, dict[str, float]] = {}
    power, constant = NORMALISATION[optimizer]
    for name, weight, role in plain.tagged():
        parts = name.removeprefix("_weights.").split("_")
        rate = 1.0
        if len(parts) > 1 and parts[1].isdigit():
            rate = dict(member.config.sides)[parts[0]][int(parts[1])].lr_multipliers.get(role, 1.0)
        step = first_step(optimizer, grads[name], weight.detach(), weight.dim(), is_branch=role in BRANCH_ROLES)
        value = rate * float((grads[name] * step).sum()) / (constant * D**power)
        sums[role] = sums.get(role, 0.0) + value
        if len(parts) > 1 and parts[1].isdigit():
            of_role = layers.setdefault(role, {})
            of_role["_".join(parts[:2])] = of_role.get("_".join(parts[:2]), 0.0) + value
    sums["update"] = sum(value for role, value in sums.items() if role in BRANCH_ROLES)
    ours = {role: float(value[index]) for role, value in roles_of(model, values).items()}
    assert ours == pytest.approx(sums, rel=1e-8, abs=1e-13)
    by_layer = {role: [float(v[index]) for v in of_role] for role, of_role in layers_of(model, values).items()}
    assert by_layer.keys() == layers.keys()
    for role, of_role in layers.items():
        assert by_layer[role] == pytest.approx(list(of_role.values()), rel=1e-8, abs=1e-13)


@pytest.mark.parametrize(
    "change", [{"d_model": 24}, {"placement": "pre"}, {"encoder": alternating(2, trains_branch_weight=True)}]
)
def test_members_of_another_shape_are_refused(change: dict[str, Any]) -> None:
    config = ModelConfig(encoder=alternating(2), d_model=D)
    with pytest.raises(ValueError, match="member 1 differs from member 0"):
        Ensemble([Member(config, 0), Member(replace(config, **change), 0)])
    Ensemble([Member(config, 0), Member(replace(config, encoder=alternating(2, residual_weight=2.0)), 1)])


def test_one_network_that_does_not_fit_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensemble, "available_bytes", lambda _: 3 * 2**30)
    with pytest.raises(NotEnoughMemoryError) as caught:
        members_at_once(8 * 2**30, "cpu", "80 sublayers, d_model 4096")
    asked, there = str(caught.value).split("; ")
    assert asked == "one network of 80 sublayers, d_model 4096 needs 8 GiB"
    assert there == "3 GiB are free on cpu, of which 2.1 GiB can be used"
    assert members_at_once(2 * 2**30, "cpu", "") == 1
    assert members_at_once(2**28, "cpu", "") == 6

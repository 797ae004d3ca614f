"""Tangents and steps against finite steps, streams and LAMB against their definitions, inputs against what is asked."""

import gc
import math
import weakref
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor

from depthlaw.sims.config import BRANCH_ROLES
from depthlaw.sims.ensemble import Ensemble, Member
from depthlaw.sims.model import ModelConfig, SublayerConfig, alternating, decoder_layers
from depthlaw.sims.optim import MIXED, OPTIMIZERS
from depthlaw.sims.update import (
    Inputs,
    Norms,
    Task,
    draw_inputs,
    finite_changes,
    first_order,
    linear_up_to,
    objective,
    real_step,
    roles_of,
    second_order,
    size_of,
    tangents,
)

D, T, B = 8, 3, 2
SEEDS = (1, 2)
F64: dict[str, Any] = {"dtype": torch.float64, "device": "cpu"}
TASKS = {
    f"{kind}, {readout}": Task(num_tokens=T, batch_size=B, objective=kind, readout=readout, num_classes=4)
    for kind in ("logit", "ce")
    for readout in ("last", "sum")
}


def setting(task: Task, **rest: Any) -> tuple[Ensemble, Inputs]:
    """Smooth, so that finite differences have an order; with every role but embeddings, none at rate 1."""
    rates = {role: 0.3 + 0.1 * index for index, role in enumerate(("bias", "norm_gain", "norm_bias", "branch_weight"))}
    numbers: dict[str, Any] = {"lr_multipliers": rates, "trains_branch_weight": True, "branch_weight": 0.8}
    sides = {"encoder": alternating(2, **numbers), "decoder": decoder_layers(1, **numbers)}
    plain: dict[str, Any] = {**sides, "d_model": D, "num_heads": 2, "ffn_ratio": 2, "activation": "gelu"}
    flags = {"has_affine": True, "has_bias": True, "has_qk_norm": True, "placement": "pre"}
    config = task.on(ModelConfig(**{**plain, **flags, **rest}))
    model = Ensemble([Member(config, seed) for seed in SEEDS])
    with torch.no_grad():  # nothing at a value that hides a mistake
        for index, parameter in enumerate(model.parameters()):
            noise = torch.Generator().manual_seed(index)
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=noise, dtype=torch.float64))
    return model, draw_inputs(config, task, SEEDS, torch.float64, "cpu")


def gradients_of(model: Ensemble, inputs: Inputs, task: Task) -> dict[str, Tensor]:
    steps = first_order(model, inputs, task, ["sgd"], keeps_steps=True).steps["sgd"]
    return {name: step / model.lr_multiplier(name, model.num_dims[name]) for name, step in steps.items()}


@pytest.mark.parametrize(("optimizer", "task"), [("sgd", "logit, sum"), ("adam", "ce, last")])
def test_tangents_are_what_small_steps_tend_to(optimizer: str, task: str) -> None:
    model, inputs = setting(TASKS[task])
    step = first_order(model, inputs, TASKS[task], [optimizer], keeps_steps=True).steps[optimizer]
    exact = tangents(model, inputs, TASKS[task], step)
    errors: dict[str, list[float]] = {name: [] for name in exact}
    for rate in (1e-3, 1e-4):
        up, down = (
            finite_changes(model, inputs, TASKS[task], step, torch.full((len(SEEDS),), sign * rate).double())
            for sign in (1, -1)
        )
        for name, tangent in exact.items():
            errors[name].append(float(((up[name] - down[name]) / (2 * rate) - tangent).norm() / tangent.norm()))
    for large, small in errors.values():  # second order: 100 times less
        assert 50 < large / small < 200 or large < 1e-9
        assert small < 1e-4
    assert all(tangent.abs().max() > 1e-6 for tangent in exact.values())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_real_step_is_the_first_step(optimizer: str) -> None:
    task = TASKS["ce, last"]
    model, inputs = setting(task)
    grads = gradients_of(model, inputs, task)
    step = first_order(model, inputs, task, [optimizer], keeps_steps=True).steps[optimizer]
    real = real_step(model, grads, optimizer, 1e-3)
    for name, value in step.items():
        if model.num_dims[name] == 2 and (optimizer == "muon" or (optimizer == MIXED and "head" not in name)):
            # Five Newton-Schulz steps bring every singular value near 1, not to 1: as far as optim.py says.
            along = [(grads[name] * moved).reshape(len(SEEDS), -1).sum(1) for moved in (real[name], value)]
            assert ((along[0] / along[1] > 0.6) & (along[0] / along[1] < 1.25)).all()
            assert not torch.allclose(real[name], value, rtol=1e-2)
        else:
            torch.testing.assert_close(real[name], value, rtol=1e-9, atol=1e-11)
    model.lr_multipliers = {name: torch.ones(len(SEEDS)).double() for name in model.lr_multipliers}
    unscaled = real_step(model, grads, optimizer, 1e-3)
    assert any(not torch.allclose(unscaled[name], value, rtol=1e-3) for name, value in step.items())


def test_linear_up_to_is_known_for_a_quadratic() -> None:
    """One linear branch: f(lr) = f - lr s + lr^2 c, c = head S2 S1 x; the linear part is a tenth off at 0.1 s / |c|."""
    task = Task()
    config = task.on(
        ModelConfig(encoder=(SublayerConfig(kind="ffn"),), placement="none", activation="identity", d_model=D)
    )
    model = Ensemble([Member(config, seed) for seed in range(6)])
    inputs = draw_inputs(config, task, range(6), torch.float64, "cpu")
    order = first_order(model, inputs, task, ["sgd"], keeps_steps=True)
    step = {name: value * (model.roles[name] != "head") for name, value in order.steps["sgd"].items()}
    slope = roles_of(model, order.values["sgd"])["update"] * D
    head = dict(model.named_parameters())["_weights.head"].detach()[:, 0]
    s1, s2 = (step[f"_weights.encoder_0_{role}"] for role in ("fc1", "fc2"))
    curvature = torch.einsum("ei,eij,ejk,ek->e", head, s2, s1, inputs.x[:, 0, 0])
    expected = 0.1 * slope / curvature.abs()
    reached = linear_up_to(model, inputs, task, step, slope)
    end = 100 / slope  # of the grid: a larger rate is not looked for
    is_inside = expected < end
    assert is_inside.sum() == 5
    assert ((reached <= expected) & (expected < reached * 10 ** (1 / 8)))[is_inside].all()
    torch.testing.assert_close(reached[~is_inside], end[~is_inside])
    still = linear_up_to(model, inputs, task, step, torch.zeros_like(slope))
    assert still.isinf().all()


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_streams_are_what_they_are_called(placement: str) -> None:
    task = TASKS["logit, last"]
    model, inputs = setting(task, placement=placement)
    order = first_order(model, inputs, task, ["sgd"], has_cosines=True)
    places, streams = [], []
    for side, index, x in model.walk(inputs.x.clone().requires_grad_(), None if inputs.y is None else inputs.y.clone()):
        places.append((side, index))
        streams.append(x if x.requires_grad else x.requires_grad_())
    assert places == list(order.streams)
    value = objective(model, streams[-1], inputs, task)
    grads = torch.autograd.grad(value.sum(), streams, materialize_grads=True)
    first = {side: x for (side, index), x in zip(places, streams, strict=True) if index == 0}

    def cosine(a: Tensor, b: Tensor) -> float:
        return float(a @ b / (a.norm() * b.norm()))

    before, correlations = dict(zip(places, streams, strict=True)), set[float]()
    for place, x, grad in zip(places, streams, grads, strict=True):
        stream, x_before = order.streams[place], before.get((place[0], place[1] - 1), x)
        pairwise, with_input, with_previous = (
            stream.token_correlation,
            stream.cosine_with_input,
            stream.cosine_with_previous,
        )
        assert pairwise is not None and with_input is not None and with_previous is not None
        correlations.add(float(pairwise[0]))
        for member in range(len(SEEDS)):
            own, x_0 = x[member].detach(), first[place[0]][member].detach()
            assert float(stream.second_moment[member]) == pytest.approx(float((own**2).mean()))
            pairs = [cosine(own[b, i], own[b, j]) for b in range(B) for i, j in combinations(range(T), 2)]
            assert float(pairwise[member]) == pytest.approx(sum(pairs) / len(pairs))
            along = [cosine(own[b, i], x_0[b, i]) for b in range(B) for i in range(T)]
            assert float(with_input[member]) == pytest.approx(sum(along) / len(along))
            along = [cosine(own[b, i], x_before[member].detach()[b, i]) for b in range(B) for i in range(T)]
            assert float(with_previous[member]) == pytest.approx(sum(along) / len(along))
            assert stream.gradient_square is not None
            assert float(stream.gradient_square[member]) == pytest.approx(float(grad[member].square().sum()))
        assert stream.is_finite.all()
    assert len(correlations) == len(places)


def test_lamb_s_definition_counts_all_entries_and_its_step_those_that_move() -> None:
    task = Task()
    config = task.on(ModelConfig(encoder=(SublayerConfig(kind="ffn"),) * 2, d_model=64, ffn_ratio=1))
    model = Ensemble([Member(config, seed) for seed in SEEDS])
    inputs = draw_inputs(config, task, SEEDS, torch.float64, "cpu")
    order = first_order(model, inputs, task, ["lamb"])
    grads = gradients_of(model, inputs, task)
    for name, weight, _ in model.tagged():
        grad = grads[name].flatten(1)
        size = weight.detach().flatten(1).norm(dim=1) * grad.abs().sum(1) / 64
        torch.testing.assert_close(order.functionals["lamb"][name], size / math.sqrt(grad.shape[1]))
        torch.testing.assert_close(order.values["lamb"][name], size / (grad != 0).sum(1).sqrt())
    longer = order.values["lamb"]["_weights.encoder_0_fc1"] / order.functionals["lamb"]["_weights.encoder_0_fc1"]
    assert ((longer > 1.2) & (longer < 1.7)).all()  # half the relus are shut


VECTORS = replace(TASKS["ce, sum"], trains_inputs=True)


def test_input_vectors_are_the_rows_of_a_vocabulary_where_no_token_comes_twice() -> None:
    model, inputs = setting(VECTORS)
    assert inputs.y is not None
    size, plain = B * T, replace(VECTORS, trains_inputs=False)
    with_table, _ = setting(plain, vocab_size=size)
    own, tables = dict(model.named_parameters()), dict(with_table.named_parameters())
    tokens, of_decoder = (torch.arange(size).reshape(1, B, T).repeat(len(SEEDS), 1, 1) for _ in range(2))
    with torch.no_grad():
        for name, table in tables.items():
            side = {"_weights.encoder_embedding": inputs.x, "_weights.decoder_embedding": inputs.y}.get(name)
            table.copy_(own[name] if side is None else side.flatten(1, 2))
    names = ("sgd", "lars", "muon", "adam", "lamb")
    ours = first_order(model, inputs, VECTORS, names)
    theirs = first_order(with_table, Inputs(tokens, of_decoder, inputs.labels), plain, names)
    for optimizer in names:
        roles = roles_of(with_table, theirs.functionals[optimizer])
        for role, value in roles_of(model, ours.functionals[optimizer]).items():
            torch.testing.assert_close(value, roles[role], rtol=1e-9, atol=0)


def test_inputs_are_each_seed_s_own_and_correlated_as_asked() -> None:
    config = ModelConfig(encoder=alternating(1), decoder=decoder_layers(1), d_model=512)
    for correlation in (0.0, 0.6, 1.0):
        task = Task(num_tokens=8, batch_size=2, correlation=correlation)
        drawn = draw_inputs(config, task, range(20), torch.float64, "cpu")
        assert drawn.y is not None
        for x in (drawn.x, drawn.y):
            products = x @ x.mT / 512
            off = ~torch.eye(8, dtype=torch.bool)
            # 20 x 2 x 28 pairs, each with scatter of at most sqrt(2 / 512).
            assert float(products[..., off].mean()) == pytest.approx(correlation, abs=5 * math.sqrt(2 / 512 / 40))
            assert float(products.diagonal(dim1=-2, dim2=-1).mean()) == pytest.approx(
                1, abs=5 * math.sqrt(2 / 512 / 40)
            )
        again = draw_inputs(config, task, [7], torch.float64, "cpu")
        torch.testing.assert_close(again.x[0], drawn.x[7], rtol=0, atol=0)
        assert not torch.allclose(drawn.x, drawn.y)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"readout": "first"}, "readout is one of last, sum"),
        ({"objective": "mse"}, "objective is one of logit, ce"),
        ({"correlation": 1.1}, "correlation lies between 0 and 1"),
        ({"num_tokens": 0}, "num_tokens is at least 1"),
        ({"objective": "ce", "num_classes": 1}, "at least 2 classes"),
    ],
)
def test_a_task_that_cannot_be_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Task(**change)


def test_second_order_is_what_bends_a_finite_step() -> None:
    """Readings; and of each sublayer by itself, what its own step alone changes behind it."""
    task = TASKS["ce, sum"]
    model, inputs = setting(task, decoder=())
    step = first_order(model, inputs, task, ["adam"], keeps_steps=True).steps["adam"]
    step = {name: step[name] if model.roles[name] in BRANCH_ROLES else 0 * step[name] for name in step}
    found, rate = second_order(model, inputs, task, step), torch.full((len(SEEDS),), 1e-4).double()
    up, down = (finite_changes(model, inputs, task, step, sign * rate) for sign in (1, -1))
    for name in ("logit", "loss", "hidden"):
        first, second = (up[name] - down[name]) / 2e-4, (up[name] + down[name]) / 2e-8
        wanted = (size_of(first), size_of(second)) if name == "hidden" else (first, second)
        for value, close in zip(found[name], wanted, strict=True):
            assert torch.allclose(value, close, rtol=1e-3)

    def streams(index: int, rate: float) -> Tensor:
        weights = {name: p.detach().clone() for name, p, _ in model.tagged()}
        with torch.no_grad():
            for name, p, _ in model.tagged():
                p.sub_(rate * step[name] if f"encoder_{index}_" in name else 0)
            moved = model.streams(inputs.x)[index + 1]
            for name, p, _ in model.tagged():
                p.copy_(weights[name])
        return moved

    squares = torch.zeros(2, len(SEEDS)).double()
    for index in (0, 1):
        still, up_there, down_there = (streams(index, rate) for rate in (0, 1e-4, -1e-4))
        squares[0] += size_of((up_there - down_there) / 2e-4).square() / 2
        squares[1] += size_of((up_there + down_there - 2 * still) / 2e-8).square() / 2
    for value, square in zip(found["block"], squares, strict=True):
        assert torch.allclose(value, square.sqrt(), rtol=1e-3)
    assert model.kinks is model.held is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_singular_values_of_a_gradient_of_few_tokens(dtype: torch.dtype) -> None:
    """By its rank and by the whole matrix; singular values over six orders of magnitude, one gradient that is 0."""
    generator = torch.Generator().manual_seed(1)
    kind: dict[str, Any] = {"generator": generator, "dtype": dtype}
    sizes = torch.tensor([10.0**-power for power in range(7)], dtype=dtype)[:, None]
    grad = torch.randn((4, 64, 7), **kind) @ (sizes * torch.randn((4, 7, 96), **kind))
    grad[2] = 0
    whole, by_rank = (Norms(grad, grad, 2, is_branch=True, rank=rank).nuclear for rank in (None, 7))
    assert torch.allclose(whole, by_rank, rtol=1e-10 if dtype is torch.float64 else 1e-5, atol=0)


@pytest.mark.parametrize("num", [1, 2])
def test_gradients_of_few_members_at_a_time_are_those_of_all(num: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three members, so that the last gradients that are made at once are fewer; of matrices of several shapes."""
    task = TASKS["logit, last"]
    config = task.on(ModelConfig(encoder=alternating(2), decoder=decoder_layers(1), d_model=D, num_heads=2))
    model, inputs = Ensemble([Member(config, seed) for seed in range(3)]), draw_inputs(config, task, range(3), **F64)
    optimizers = ("sgd", "adam", "lamb", "lars", "muon")
    whole = first_order(model, inputs, task, optimizers)
    monkeypatch.setattr("depthlaw.sims.update._NEAR", num * 4 * D**2 * 8)
    parts = first_order(model, inputs, task, optimizers)
    for optimizer in optimizers:
        for name, value in whole.values[optimizer].items():
            assert torch.allclose(parts.values[optimizer][name], value, rtol=1e-12, atol=0)


def test_an_ensemble_goes_when_nobody_has_it() -> None:
    """Without a circle that waits for the garbage collector: a run of many would fill the memory."""
    config = Task(num_tokens=4).on(ModelConfig(encoder=alternating(2), d_model=8, has_affine=True, has_bias=True))
    ensemble = Ensemble([Member(config, 0)])
    first_order(
        ensemble, draw_inputs(config, Task(num_tokens=4), (0,), torch.float64, "cpu"), Task(num_tokens=4), ["adam"]
    )
    there = weakref.ref(ensemble)
    gc.disable()
    try:
        del ensemble
        assert there() is None
    finally:
        gc.enable()

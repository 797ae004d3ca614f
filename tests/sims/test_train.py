"""What training does at each step, what it measures on the way, and the rule of what became of it."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from depthlaw.sims.model import BRANCH_ROLES, Transformer, alternating, decoder_layers
from depthlaw.sims.optim import LAMB, MIXED, MuonWithAdamW, group_options
from depthlaw.sims.training import train as training
from depthlaw.sims.training.data import HELD_OUT, IGNORED, Batch, Data, load
from depthlaw.sims.training.stepping import Rows
from depthlaw.sims.training.train import (
    MOVED,
    SCHEDULES,
    Moves,
    TrainConfig,
    TrainResult,
    train,
    train_together,
)
from tests.often import often
from tests.sims.training import BASE, MODEL, D, Plain, logits_of_first, moves, network_after, own_parallel, without_time

EXACT = replace(BASE, precision="float64")
PLAIN = replace(EXACT, model=replace(MODEL, encoder=alternating(2)))
"""Every learning rate the same."""


def loss_at(config: TrainConfig, network: Plain, step: int) -> Tensor:
    return loss_of(network, load(config.data).batch(config.batch_size, config.seed, step))


def loss_of(network: Plain, batch: Batch) -> Tensor:
    logits = network(batch.inputs, batch.decoder_inputs)
    return functional.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED)


CLASSES: dict[str, tuple[Callable[..., Optimizer], dict[str, Any]]] = {
    "momentum": (SGD, {"momentum": 0.9}),
    "adamw": (AdamW, {"weight_decay": 0.0}),
    "lamb": (LAMB, {}),
    "muon": (MuonWithAdamW, {}),
    MIXED: (MuonWithAdamW, {"is_matched": True}),
}


@pytest.mark.parametrize("name", CLASSES)
def test_steps_are_those_of_its_own_class(name: str, tmp_path: Path) -> None:
    config = replace(PLAIN, optimizer=name, num_steps=3)
    trained = dict(network_after(config, tmp_path).named_parameters())
    make, options = CLASSES[name]
    network = Plain(config)
    groups = [
        {"params": [parameter], **group_options(name, is_branch=role in BRANCH_ROLES)}
        for _, parameter, role, _ in network.tagged()
    ]
    optimizer = make(groups, lr=config.learning_rate, **options)
    for step in range(3):
        optimizer.zero_grad()
        loss_at(config, network, step).backward()
        optimizer.step()
    torch.testing.assert_close(trained, dict(network.named_parameters()))


def test_learning_rate_multipliers_reach_their_parameters(tmp_path: Path) -> None:
    rates = {"bias": 0.5, "norm_gain": 0.0, "norm_bias": 3.0}
    plain = replace(PLAIN, optimizer="sgd", num_steps=1)
    config = replace(plain, model=replace(MODEL, encoder=alternating(2, lr_multipliers=rates)))
    without, moved = (moves(network_after(run, tmp_path), Plain(run)) for run in (plain, config))
    # The final norm stands outside of sublayers, whose rates these are.
    roles = {name: role for name, _, role, _ in Plain(plain).tagged() if "final" not in name}
    expected = {name: move * rates.get(roles.get(name, "final"), 1.0) for name, move in without.items()}
    torch.testing.assert_close(moved, expected)
    assert set(rates) <= set(roles.values())


def test_weight_decay_is_of_matrices_and_tables_alone(tmp_path: Path) -> None:
    config = replace(PLAIN, optimizer="adamw", num_steps=1, optimizer_options={"betas": (0.5, 0.9)})
    without = network_after(config, tmp_path)
    decayed = moves(network_after(replace(config, weight_decay=0.2), tmp_path), without)
    start = dict(Plain(config).named_parameters())
    by_size = {name: -config.learning_rate * 0.2 * weight.detach() for name, weight in start.items()}
    torch.testing.assert_close(decayed, {name: move if move.dim() == 2 else 0 * move for name, move in by_size.items()})


def test_clipping_is_of_the_whole_gradient(tmp_path: Path) -> None:
    config = replace(PLAIN, optimizer="sgd", num_steps=1)

    def length(clip_norm: float | None) -> float:
        moved = moves(network_after(replace(config, clip_norm=clip_norm), tmp_path), Plain(config))
        return math.hypot(*(float(move.norm()) for move in moved.values())) / config.learning_rate

    whole = length(None)
    assert length(0.25 * whole) == pytest.approx(0.25 * whole)
    assert length(2 * whole) == whole


def rate(schedule: str, t: int, num_warmup: int, num_steps: int, start: float) -> float:
    """As it is written in textbooks, in other words than there."""
    if t < num_warmup:
        share = (t + 1) / num_warmup
        return share + start * (1 - share)
    left = (num_steps - t) / (num_steps - num_warmup)
    return {
        "constant": 1.0,
        "linear": left,
        "cosine": math.sin(math.pi / 2 * left) ** 2,
        "inverse-sqrt": (max(num_warmup, 1) / (t + 1)) ** 0.5,
    }[schedule]


@pytest.mark.parametrize(
    ("schedule", "num_warmup", "start"),
    [*((one, 4, 0.25) for one in SCHEDULES), ("cosine", 0, 0.0), ("linear", 10, 0.0)],
)
def test_each_step_has_the_rate_of_its_schedule(
    schedule: str, num_warmup: int, start: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under signSGD an entry moves by its rate. Of lamb, one optimizer for each run, the rates are its groups'."""
    rates: dict[str, Any] = {"schedule": schedule, "warmup_steps": num_warmup, "warmup_from": start}
    config = replace(BASE, num_steps=10, evaluate_every=10, precision="float64", **rates)
    moved: list[set[float]] = []  # in each step
    take_step = Rows.take_step

    def watched(weights: Rows, members: Sequence[int], step: int) -> None:
        before = weights.rows.clone()
        take_step(weights, members, step)
        lengths = (weights.rows - before).abs() / config.learning_rate
        moved.append({round(length, 9) for length in lengths[lengths > 0].tolist()})

    monkeypatch.setattr(Rows, "take_step", watched)
    train(replace(config, optimizer="signsgd"))
    used: list[set[float]] = []
    handle = register_optimizer_step_pre_hook(
        lambda optimizer, *_: used.append({group["lr"] / config.learning_rate for group in optimizer.param_groups})
    )
    try:
        train(replace(config, optimizer="lamb"))
    finally:
        handle.remove()
    expected = [rate(schedule, t, num_warmup, 10, start) for t in range(10)]
    for of_steps in (moved, used):
        assert [sorted(lengths) for lengths in of_steps] == [
            [pytest.approx(0.5 * r), pytest.approx(r)] for r in expected
        ]
    if schedule in ("linear", "cosine") and num_warmup < 10:
        assert config.rate_at(10) == pytest.approx(0)


def test_a_run_is_a_function_of_its_config(tmp_path: Path) -> None:
    config = replace(BASE, num_steps=3, measure_at=(0, 2))
    result, again = train(config), train(config)
    assert without_time(result) == without_time(again)
    for other in (replace(config, seed=1), replace(config, batch_size=5), replace(config, learning_rate=0.011)):
        assert train(other).losses != result.losses
    first, second = (network_after(config, tmp_path) for _ in range(2))
    assert not any(move.any() for move in moves(first, second).values())
    assert all(move.any() for move in moves(first, network_after(replace(config, seed=1), tmp_path)).values())
    measured_more_often = train(replace(config, measure_at=(0, 1, 2, 3), evaluate_every=1))
    assert measured_more_often.losses == result.losses  # looking changes nothing


def test_mixed_precision_knows_every_norm() -> None:
    """Warnings are errors here: torch has one for norms whose input and gain are of two kinds."""
    torch.set_warn_always(True)  # and otherwise says it once in a process
    try:
        for norm_kind, *flags in (("layernorm", 1, 1), ("rmsnorm", 1, 1), ("rmsnorm", 1, 0), ("layernorm", 0, 0)):
            has_affine, has_qk_norm = map(bool, flags)
            norms = {"norm_kind": norm_kind, "has_affine": has_affine, "has_qk_norm": has_qk_norm}
            model = replace(MODEL, placement="sub", **norms)
            config = replace(BASE, model=model, num_steps=2)
            mixed, whole = train(replace(config, precision="bfloat16")).losses, train(config).losses
            assert mixed == pytest.approx(whole, rel=2 * torch.finfo(torch.bfloat16).eps)
            assert mixed != whole
    finally:
        torch.set_warn_always(False)


def update_by_hand(config: TrainConfig, network: Plain) -> dict[str, float]:
    """Of logit 0 at the last position of the first held-out sequence, by autograd on the plain model."""
    batch = load(config.data).held_out(HELD_OUT)
    decoder_inputs = None if batch.decoder_inputs is None else batch.decoder_inputs[:1]
    inputs = [x.detach().requires_grad_() for x in network.vectors(batch.inputs[:1], decoder_inputs) if x is not None]
    plain = Transformer(network.config, 0)
    plain.load_state_dict(network.core.state_dict())
    plain.logits(plain(*inputs))[0, -1, 0].backward()
    measure, power = {
        "sgd": (lambda gradient: gradient.square().sum(), 1.0),
        "adam": (lambda gradient: gradient.abs().sum(), 1.5),
    }[config.optimizer]
    roles: dict[str, float] = {"embedding": sum(float(measure(x.grad)) for x in inputs) / D**power}
    for name, parameter, role in plain.tagged():
        if parameter.grad is not None:
            rate = float(measure(parameter.grad)) * float(plain.lr_multipliers[name]) / D**power
            roles[role] = roles.get(role, 0.0) + rate
    return {"update": sum(value for role, value in roles.items() if role in BRANCH_ROLES), **roles}


@pytest.mark.parametrize(
    ("optimizer", "has_decoder"),
    [pytest.param("adam", True, id="both sides"), pytest.param("sgd", False, id="an encoder", marks=pytest.mark.slow)],
)
def test_looks_are_at_the_weights_of_their_step(optimizer: str, has_decoder: bool, tmp_path: Path) -> None:
    decoder = decoder_layers(1) if has_decoder else ()
    data = own_parallel(tmp_path) if has_decoder else BASE.data
    model = replace(MODEL, decoder=decoder)
    config = replace(EXACT, model=model, data=data, optimizer=optimizer, measure_at=(0, 3, 6))
    looks = {look.step: look for look in train(config).looks}
    assert list(looks) == [0, 3, 6]
    networks = {n: network_after(replace(config, num_steps=n, measure_at=()), tmp_path) for n in (1, 3, 4, 6)}
    networks[0] = Plain(config)

    for step, look in looks.items():
        assert look.update == pytest.approx(update_by_hand(config, networks[step]))

    def moved(old: int, new: int) -> float:
        change = logits_of_first(config, networks[new]) - logits_of_first(config, networks[old])
        return float(change.square().mean().sqrt())

    assert [looks[n].from_start for n in (0, 3, 6)] == pytest.approx([0.0, moved(0, 3), moved(0, 6)])
    assert looks[0].from_start == 0.0
    assert (looks[0].in_step, looks[3].in_step, looks[6].in_step) == pytest.approx((moved(0, 1), moved(3, 4), None))

    def gradient_norms(step: int) -> dict[str, list[float]]:
        loss_at(config, networks[0 if step == 0 else 3], step).backward()
        squares = {side: [0.0] * len(sublayers) for side, sublayers in model.sides}
        for name, parameter, role in networks[0 if step == 0 else 3].core.tagged():
            if role in BRANCH_ROLES and parameter.grad is not None:
                side, index = name.removeprefix("_weights.").split("_")[:2]
                squares[side][int(index)] += float(parameter.grad.square().sum())
        return {side: [math.sqrt(square) for square in row] for side, row in squares.items()}

    for step in (0, 3):
        expected = gradient_norms(step)
        assert set(looks[step].gradient_norms) == set(expected)
        for side, norms in expected.items():
            assert looks[step].gradient_norms[side] == pytest.approx(norms)
    assert looks[6].gradient_norms == {}  # no batch comes then


def test_losses_of_a_step_are_those_of_its_batch_and_are_all_told(tmp_path: Path) -> None:
    config = replace(EXACT, seed=3)
    told: list[int] = []
    result = train(config, advance=told.append)
    assert told == [1] * 6
    assert result.num_steps == len(result.losses) == 6
    third = loss_at(config, network_after(replace(config, num_steps=3), tmp_path), 3).item()
    assert result.losses[3] == pytest.approx(third)
    assert [step for step, _ in result.held_out_at] == [0, 2, 4, 6]
    held_out = [loss for _, loss in result.held_out_at if loss is not None]
    assert (result.held_out, result.best) == (held_out[-1], min(held_out))
    assert result.guess == pytest.approx(load(config.data).guess)
    at_end = loss_of(network_after(config, tmp_path), load(config.data).held_out(HELD_OUT)).item()
    assert result.held_out == pytest.approx(at_end)
    assert result.num_parameters == sum(p.numel() for p in Plain(config).parameters())


def test_a_run_whose_loss_is_not_finite_has_diverged_and_is_json() -> None:
    result = train(replace(BASE, optimizer="sgd", learning_rate=1e30, num_steps=20, measure_at=(0, 1)))
    assert result.outcome == "diverged"
    assert result.reason == "the training loss at step 2 is not finite"
    assert not result.has_trained
    assert (result.num_steps, result.losses[1], result.held_out) == (2, None, None)
    assert (result.looks[1].from_start, result.looks[1].in_step) == (None, None)
    text = json.dumps(result.plain(), allow_nan=False)
    assert TrainResult.model_validate_json(text) == result


def test_a_loss_that_stays_above_the_start_has_diverged() -> None:
    """Of small batches, whose losses jump over where it began."""
    config = replace(BASE, optimizer="signsgd", learning_rate=0.3, num_steps=14, patience=50, batch_size=4)
    config = replace(config, evaluate_every=14)
    whole = train(config)

    def stops_after(patience: int) -> int:
        start = whole.held_out_at[0][1]
        assert start is not None
        is_above = [loss is not None and loss > start for loss in whole.losses]
        return next((n for n in range(2 * patience, 15) if all(is_above[n - patience : n])), 14)

    for patience in (1, 3):
        result = train(replace(config, patience=patience))
        assert result.num_steps == stops_after(patience) != stops_after(patience + 1)
        assert result.losses == whole.losses[: result.num_steps]
        assert (result.outcome, result.held_out) == ("diverged", None)
        assert f"where it began, for {patience} steps" in result.reason
    assert (whole.outcome, whole.num_steps) == ("diverged", 14)
    assert whole.reason.startswith("held-out loss")


def test_the_rule_at_its_boundaries() -> None:
    run = training._Run(BASE, load(BASE.data))
    start = train(BASE).held_out_at[0][1]
    assert start is not None
    guess = run.data.guess

    def outcome(held_out: float) -> str:
        run.held_out_at = [(0, start), (6, held_out)]
        return run.result().outcome

    assert outcome(math.nextafter(guess, 0)) == "trained"
    assert outcome(guess) == outcome(start) == "stuck"
    assert guess < start
    for held_out in (math.nextafter(start, math.inf), math.inf, math.nan):
        assert outcome(held_out) == "diverged"
    assert (run.result().held_out, run.result().best) == (None, pytest.approx(start))
    run.held_out_at = [(0, start), (3, guess / 2), (6, guess)]
    assert (run.result().outcome, run.result().best) == ("stuck", pytest.approx(guess / 2))
    run.stopped = "why"
    assert outcome(0.0) == "diverged"
    assert (run.result().reason, run.result().held_out) == ("why", None)


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("optimizer", ["adamm"]),
        ("schedule", ["step"]),
        ("precision", ["float16"]),
        *((field, [0]) for field in ("num_steps", "batch_size", "evaluate_every", "patience")),
        ("learning_rate", [0.0, math.nan, math.inf]),
        ("warmup_steps", [-1, 7]),
        ("warmup_from", [-0.1, 1.1, math.nan]),
        ("weight_decay", [-0.1, math.inf]),
        ("clip_norm", [0.0, math.nan]),
        ("measure_at", [(-1,), (0, 7)]),
        ("seed", [-1]),
        ("optimizer_options", [{"weight_decay": 0.1}, {"lr": 0.1}]),
    ],
)
def test_settings_that_cannot_be_are_refused(field: str, bad: list[Any]) -> None:
    for value in bad:
        with pytest.raises(ValueError, match=rf"^{field} ") as refusal:
            TrainConfig(**{**vars(BASE), field: value})
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "has_decoder",
    [pytest.param(True, id="both sides"), pytest.param(False, id="an encoder", marks=pytest.mark.slow)],
)
def test_moves_are_what_the_real_step_changes(has_decoder: bool, tmp_path: Path) -> None:
    """Against differences, for which the step is short: by role, the network with that role alone behind the step."""
    data = own_parallel(tmp_path) if has_decoder else BASE.data
    model = replace(MODEL, decoder=decoder_layers(1) if has_decoder else ())
    rates: dict[str, Any] = {"learning_rate": 1e-6, "schedule": "inverse-sqrt", "num_steps": 4, "weight_decay": 0.1}
    config = replace(EXACT, model=model, data=data, optimizer="adamw", **rates, evaluate_every=4)
    measured = train(replace(config, measure_at=(0, 2, 4), has_moves=True))
    plain = train(config)
    assert (measured.losses, measured.held_out) == (plain.losses, plain.held_out)
    first, third, last = (look.moves for look in measured.looks)
    assert last is None  # no step follows
    assert first is not None and third is not None
    networks = {n: network_after(replace(config, num_steps=n, evaluate_every=n), tmp_path) for n in (1, 2, 3)}
    networks[0] = Plain(config)
    for step, found in ((0, first), (2, third)):
        _check_moves(found, networks[0], networks[step], networks[step + 1], 1e-6 / math.sqrt(step + 1))
    assert set(first.made.values()) == {0.0}


def _check_moves(found: Moves, start: Plain, before: Plain, after: Plain, rate: float) -> None:
    held_out = load(before.data).held_out(MOVED)
    inputs = held_out.inputs, held_out.decoder_inputs
    roles = {name: role for name, _, role, _ in before.tagged()}
    at_start, there, ends = (
        {name: p.detach() for name, p in network.named_parameters()} for network in (start, before, after)
    )

    def changed(wanted: Callable[[str], bool]) -> float:
        behind = {name: ends[name] if wanted(roles[name]) else p for name, p in there.items()}
        with torch.no_grad():
            change = functional_call(before, behind, inputs) - functional_call(before, there, inputs)
        return float(change.square().mean().sqrt()) / rate

    sets = {role: [role] for role in set(roles.values())} | {"update": BRANCH_ROLES}
    for name, of_name in sets.items():
        in_full = changed(lambda role, of_name=of_name: role in of_name)
        assert found.logits[name] == pytest.approx(in_full, rel=1e-3)
        assert found.in_full[name] == pytest.approx(in_full, rel=1e-6)
    whole = changed(lambda _: True)
    assert (found.logits["all"], found.logits["whole"]) == pytest.approx((whole, whole), rel=1e-3)

    def size(role: str, by_name: dict[str, Tensor]) -> float:
        of_role = [by_name[name].flatten() for name in roles if roles[name] == role]
        return float(torch.cat(of_role).square().mean().sqrt())

    made = {name: p - at_start[name] for name, p in there.items()}
    steps = {name: (p - ends[name]) / rate for name, p in there.items()}
    for role in ("fc2", "embedding", "bias"):
        assert found.weights[role] == pytest.approx(size(role, there), rel=1e-5)
        assert found.made[role] == pytest.approx(size(role, made), rel=1e-4)
        assert found.steps[role] == pytest.approx(size(role, steps), rel=1e-4)
    x, _ = before.vectors(*inputs)
    x_0, x_L = found.stream["encoder"]
    assert x_0 == pytest.approx(float(x.detach().square().mean().sqrt()))
    assert x_L is not None and x_L != pytest.approx(x_0, rel=1e-3)


@pytest.mark.parametrize("name", often(["sgd", *CLASSES], 3, wide=1))
def test_the_parts_of_a_move_are_those_of_its_batch_and_another(name: str, tmp_path: Path) -> None:
    """The steps are measured from two runs of their own, which differ in the batch of one step alone; what a look asks
    changes no run."""
    config = replace(PLAIN, optimizer=name, learning_rate=1e-6, num_steps=3, evaluate_every=3, clip_norm=1e-3)
    measured, step, num_taken = train(replace(config, measure_at=(1,), has_moves=True)), 1, 2
    assert measured.losses == train(config).losses
    found = measured.looks[0].moves
    assert found is not None
    until = replace(config, num_steps=num_taken, evaluate_every=num_taken)
    before, after = (
        network_after(replace(until, num_steps=1, evaluate_every=1), tmp_path),
        network_after(until, tmp_path),
    )
    there, ends = ({n: p.detach() for n, p in network.named_parameters()} for network in (before, after))
    branches = [n for n, _, role, _ in before.tagged() if role in BRANCH_ROLES]
    own, other = (_gradients(before, loss_at(config, before, at), branches) for at in (step, config.num_steps + step))
    taken = {n: (there[n] - ends[n]) / 1e-6 for n in branches}

    def along(several: dict[str, Tensor], others: dict[str, Tensor]) -> float:
        return float(sum((several[n] * others[n]).sum() for n in branches))

    gained = torch.cat([(other[n] * taken[n]).flatten() for n in branches])
    quadrature, most = float(gained.square().sum().sqrt()), float(gained.abs().sum())
    expected = {"own": along(own, taken), "other": along(other, taken), "independent": quadrature, "most": most}
    assert found.loss == pytest.approx(expected, rel=1e-3)
    share = along(own, taken) / along(own, own)
    assert found.logits["along"] == pytest.approx(_changed(before, {n: share * g for n, g in own.items()}), rel=1e-3)
    with pytest.MonkeyPatch.context() as patch:
        batch = Data.batch
        patch.setattr(Data, "batch", lambda data, size, seed, at: batch(data, size, seed, at + 3 * (at == step)))
        elsewhere = dict(network_after(until, tmp_path / "another").named_parameters())
    apart = {n: (elsewhere[n].detach() - ends[n]) / 1e-6 / math.sqrt(2) for n in branches}
    assert found.logits["unshared"] == pytest.approx(_changed(before, apart), rel=1e-3)
    assert found.logits["unshared"]


def _gradients(network: Plain, loss: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    parameters = dict(network.named_parameters())
    return dict(zip(names, torch.autograd.grad(loss, [parameters[name] for name in names]), strict=True))


def _changed(network: Plain, steps: dict[str, Tensor]) -> float:
    """The root mean square change of the held-out logits, by a central difference along the steps."""
    held_out = load(network.data).held_out(MOVED)
    inputs = held_out.inputs, held_out.decoder_inputs
    there = {name: p.detach() for name, p in network.named_parameters()}
    length = 1e-4 / max(float(step.abs().max()) for step in steps.values())
    with torch.no_grad():
        ends = [
            functional_call(network, there | {n: there[n] + sign * length * s for n, s in steps.items()}, inputs)
            for sign in (1, -1)
        ]
    return float((ends[0] - ends[1]).square().mean().sqrt()) / (2 * length)


@pytest.mark.wide
def test_moves_of_runs_together_are_those_of_each_alone_and_of_one_that_diverges_there_are_none() -> None:
    config = replace(EXACT, optimizer="adamw", measure_at=(0, 1, 5), has_moves=True)
    several = [config, replace(config, seed=1), replace(config, learning_rate=1e300)]
    together = train_together(several)
    for one, found in zip(several[:2], together, strict=False):
        for look, alone in zip(found.looks, train(one).looks, strict=True):
            assert look.moves is not None and alone.moves is not None
            assert look.moves.logits == pytest.approx(alone.moves.logits)
    assert together[2].outcome == "diverged"
    assert together[2].looks[-1].moves is None or None in together[2].looks[-1].moves.logits.values()

"""What a watch measures is what a direct computation gives; it changes no bit of a run, and no error of it ends one."""

import copy
import json
import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, jvp

import depthlaw
from depthlaw.auditing.inputs import given
from depthlaw.auditing.reading.look import look
from depthlaw.auditing.updates import measured
from depthlaw.watching.compare import change_at, compare, described, learnt_limit
from depthlaw.watching.probe import DIFFERENCE, FORWARD
from depthlaw.watching.record import Run
from tests.depthlaw.watching.models import GPT, WIDTH, batch
from tests.depthlaw.watching.runs import made
from tests.often import often

PROBE = batch(99)
MATRICES = {"q", "k", "v", "out", "fc1", "fc2"}


def optimizers(model, kind="adamw"):
    if kind == "sgd":
        return [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)]
    if kind == "adamw":
        return [torch.optim.AdamW(model.parameters(), lr=1e-3)]
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and n.startswith("blocks")]
    others = [p for p in model.parameters() if all(p is not own for own in matrices)]
    return [torch.optim.Muon(matrices, lr=0.02), torch.optim.AdamW(others, lr=1e-3)]


def train(
    model, opts, num_steps=4, *, watched=False, block=False, precision=None, accumulate=1, run=None, **options
) -> Any:
    """As people do; run: what is called in the place of the model."""
    torch.manual_seed(5)
    run = model if run is None else run
    watch: Any = depthlaw.watch(run, opts, probe=PROBE, budget=None, **options) if watched else None
    loss = None
    for step in range(num_steps):
        for part in range(accumulate):
            with nullcontext() if precision is None else torch.autocast("cpu", precision):
                _, loss = run(*batch(10 * step + part))
            (loss / accumulate).backward()
        with watch if watch is not None and block else nullcontext():
            for opt in opts:
                opt.step()
        for opt in opts:
            opt.zero_grad()
        if watch is not None and not block:
            watch.step(loss, tokens=32)
    if watch is not None:
        watch.close()
    return watch


def weights(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def two(**options: Any) -> Any:
    torch.manual_seed(1)
    model = GPT(**options)
    return model, copy.deepcopy(model)


def role_of(name, index):
    """By hand, of the small GPT: the role of a parameter's rows."""
    part = name.rpartition(".")[0].rpartition(".")[2]
    if name.endswith("bias"):
        return "norm_bias" if part.startswith("ln") else "bias"
    named = {"c_proj": "out", "c_fc": "fc1", "c_out": "fc2", "table": "embedding", "places": "positions"}
    return "qkv"[index // WIDTH] if part == "c_attn" else named.get(part, "norm_gain")


def test_what_a_step_changed_is_what_a_direct_computation_gives():
    """Under AdamW's second step, whose direction is no function of one gradient: by the weights on both sides."""
    model, _ = two()
    opts = optimizers(model)
    train(model, opts, 1)
    before = weights(model)
    watch = train(model, opts, 1, watched=True)
    after = weights(model)
    plain = copy.deepcopy(model).eval()

    def logits(values):
        return functional_call(plain, {**values, "head.weight": values["table.weight"]}, (PROBE[0],))[0]

    whole = logits(after) - logits(before)
    assert watch.last.whole == pytest.approx(whole.square().mean().sqrt().item(), rel=1e-4)
    total = torch.zeros_like(whole)
    for role, found in watch.last.roles.items():
        tangent = {}
        for name, value in before.items():
            rows = torch.tensor([role_of(name, row) == role for row in range(len(value))])
            tangent[name] = (after[name] - value) * rows.reshape(-1, *(1,) * (value.ndim - 1))
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            moved = jvp(logits, (before,), (tangent,))[1]
        total += moved
        assert found.change == pytest.approx(moved.square().mean().sqrt().item(), rel=1e-4)
        assert found.per_rate == pytest.approx(found.change / 1e-3)
        step = torch.cat([t[t != 0] for t in tangent.values()])
        assert found.step == pytest.approx(step.square().mean().sqrt().item(), rel=0.05)
    assert {*watch.last.roles} == MATRICES | {"embedding", "positions", "norm_gain", "norm_bias", "bias"}
    assert watch.last.first_order == pytest.approx(total.square().mean().sqrt().item(), rel=1e-4)
    assert sum(found.share for found in watch.last.roles.values()) == pytest.approx(1)
    assert watch.last.method == FORWARD


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_the_first_step_moves_a_logit_as_sims_measures_it(kind):
    """Where one logit is what is trained: its first step is the update of the theorems, times the rate."""
    model, _ = two(dropout=0.0)
    one = PROBE[0][:1]
    built = look(model, given(one, model))
    update = measured(built, kind)
    opt = {"sgd": torch.optim.SGD, "adamw": lambda p, lr: torch.optim.AdamW(p, lr, weight_decay=0.0, eps=1e-20)}[kind]

    class Logit(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(ids)[0][:, -1:, :1]

    logit = Logit()
    own = opt(logit.parameters(), lr=1e-6)
    watch: Any = depthlaw.watch(logit, own, probe=one)
    logit(one).sum().backward()
    own.step()
    watch.step()
    for role in MATRICES:
        assert watch.last.roles[role].per_rate == pytest.approx(
            update[role] * WIDTH ** {"sgd": 1.0, "adamw": 1.5}[kind], rel=0.02
        )


@pytest.mark.parametrize(
    ("model_options", "options"),
    often(
        [
            ({}, {}),
            ({}, {"kind": "sgd", "accumulate": 2}),
            ({}, {"kind": "muon+adamw", "block": True}),
            ({}, {"precision": torch.bfloat16}),
            ({"checkpoints": False}, {}),
            ({"checkpoints": True}, {}),
        ],
        2,
        wide=1,
    ),
    ids=["adamw", "sgd, accumulated", "muon and adamw", "bfloat16", "checkpoints", "reentrant checkpoints"],
)
def test_the_run_ends_in_the_same_bits(model_options, options, tmp_path):
    """With dropout, so that a drawn number more or less would be seen."""
    options = dict(options)
    kind = options.pop("kind", "adamw")
    model, twin = two(**model_options)
    watch = train(model, optimizers(model, kind), watched=True, every=1, to=tmp_path / "run.jsonl", **options)
    state = torch.get_rng_state()
    options.pop("block", None)
    train(twin, optimizers(twin, kind), **options)
    assert all(torch.equal(*pair) for pair in zip(weights(model).values(), weights(twin).values(), strict=True))
    assert torch.equal(state, torch.get_rng_state())
    assert all(part.training for part in model.modules())
    run = Run.read(tmp_path / "run.jsonl")
    assert [one.step for one in run.looks] == [0, 1, 2, 3]
    assert {one.method for one in run.looks} == {FORWARD}
    assert watch.last == run.looks[-1]
    assert all(one.first_order == pytest.approx(one.whole, rel=0.3) for one in run.looks)
    assert [(part.layer, part.kind) for part in watch.last.stream] == [
        (layer, kind) for layer in (1, 2) for kind in ("attention", "ffn")
    ]
    assert all(0 < part.share < 1 and -1 < part.cosine < 1 and part.second_moment > 0 for part in watch.last.stream)


class Counting(GPT):
    """Notes in attributes how often it was called, and what it answered."""

    calls: int = 0
    noted: Any = None

    def forward(self, ids, targets=None):
        self.calls += 1
        logits, loss = super().forward(ids, targets)
        self.noted = logits.square().mean()
        return logits, None if loss is None else loss + self.noted / self.calls


def test_what_a_module_notes_of_its_calls_is_that_of_the_run():
    torch.manual_seed(1)
    model = Counting()
    twin = copy.deepcopy(model)
    train(model, optimizers(model), watched=True, every=1)
    train(twin, optimizers(twin))
    assert model.calls == twin.calls == 4
    assert torch.equal(model.noted, twin.noted)
    assert all(torch.equal(*pair) for pair in zip(weights(model).values(), weights(twin).values(), strict=True))


def test_differences_find_what_forward_mode_finds_and_leave_the_same_bits():
    model, twin = two()
    by_mode = train(model, optimizers(model), 2, watched=True, every=1)
    other, _ = two()
    opts = optimizers(other)
    torch.manual_seed(5)
    watch: Any = depthlaw.watch(other, opts, probe=PROBE, budget=None, every=1)
    watch._probe.method = DIFFERENCE
    for step in range(2):
        other(*batch(10 * step))[1].backward()
        opts[0].step()
        opts[0].zero_grad()
        watch.step()
    train(twin, optimizers(twin), 2)
    assert all(torch.equal(*pair) for pair in zip(weights(other).values(), weights(twin).values(), strict=True))
    assert watch.last.method == DIFFERENCE
    for role, found in by_mode.last.roles.items():
        assert watch.last.roles[role].change == pytest.approx(found.change, rel=0.05)
        assert watch.last.roles[role].weight == found.weight


def test_half_precision_is_looked_at_in_single():
    model, _ = two(dropout=0.0)
    model = model.bfloat16()
    watch = train(model, optimizers(model), 2, watched=True, every=1)
    assert watch.last.method == FORWARD
    assert watch.last.first_order == pytest.approx(watch.last.whole, rel=0.3)


@pytest.mark.wide
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # Torch's, of itself.
@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_compiled_model_is_watched_as_it_is_written(backend):
    """inductor wants a compiler of C++."""
    model, twin = two(dropout=0.0)
    run = torch.compile(model, backend=backend)
    watch = train(model, optimizers(model), 2, watched=True, every=1, run=run)
    train(twin, optimizers(twin), 2, run=torch.compile(twin, backend=backend))
    assert all(torch.equal(*pair) for pair in zip(weights(model).values(), weights(twin).values(), strict=True))
    assert {*watch.last.roles} >= MATRICES
    assert watch.last.method == FORWARD


@pytest.mark.wide
def test_frozen_and_added_parameters_end_in_the_same_bits():
    """The frozen have no role in a step, and what is added while it goes on has one."""
    ends = []
    for is_watched in (True, False):
        model, _ = two()
        for block in model.blocks:
            block.c_fc.weight.requires_grad_(False)
        opts = optimizers(model)
        torch.manual_seed(5)
        watch: Any = depthlaw.watch(model, opts, probe=PROBE, budget=None, every=1) if is_watched else None
        for step in range(4):
            if step == 2:
                model.head.bias = nn.Parameter(torch.zeros(17))
                opts[0].add_param_group({"params": [model.head.bias], "lr": 0.5})
                model.blocks[0].c_fc.weight.requires_grad_(True)
            model(*batch(step))[1].backward()
            opts[0].step()
            opts[0].zero_grad()
            if watch is not None:
                watch.step()
                assert watch.last.step == step and ("fc1" in watch.last.roles) == (step >= 2)
        assert watch is None or watch.last.roles["bias"].rate > 1e-3
        ends.append(weights(model))
    assert all(torch.equal(*pair) for pair in zip(*(end.values() for end in ends), strict=True))


def test_looks_come_at_powers_of_two_and_then_at_each_multiple(tmp_path):
    model, _ = two(num_layers=1)
    train(model, optimizers(model), 14, watched=True, every=6, to=tmp_path / "run.jsonl")
    assert [one.step for one in Run.read(tmp_path / "run.jsonl").looks] == [0, 1, 2, 4, 6, 12]


def test_looks_take_no_more_of_the_time_than_the_budget(monkeypatch, caplog):
    """By a clock of its own: a step takes a second, a look takes three. Who has to wait for long is told, once."""
    from depthlaw.watching import watch as module

    now = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    real = module.Probe.look

    def slow(self, before):
        now[0] += 3
        return real(self, before)

    monkeypatch.setattr(module.Probe, "look", slow)
    model, _ = two(num_layers=1)
    opt = optimizers(model)[0]
    watch: Any = depthlaw.watch(model, opt, probe=PROBE, every=1, budget="25%")
    looked = []
    for number in range(40):
        opt.step()
        now[0] += 1
        watch.step()
        if watch.last.step == number:
            looked.append(number)
    assert looked[0] == 0
    assert 3 * len(looked) <= 0.25 * now[0]
    assert 3 * (len(looked) + 1) > 0.2 * now[0] and not caplog.records
    watch.close()
    watch = depthlaw.watch(model, opt, probe=PROBE, every=1, budget="0.1%")
    for _ in range(4):
        opt.step()
        watch.step()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "the next look comes in about 100 minutes: looks may take 0.1 % of the time, and have taken 3 s" in line


@pytest.mark.parametrize(
    "options",
    [{}, pytest.param({"fused": True}, marks=pytest.mark.slow), pytest.param({"block": True}, marks=pytest.mark.wide)],
    ids=["hooks", "fused", "with watch"],
)
def test_a_step_that_a_grad_scaler_lets_none_take_is_told_as_none(options, tmp_path, caplog):
    """At the first two steps, as where its scale begins too high, and at one between. The next step that is taken is
    looked at instead, the first one too, beside what was predicted of it; no alarm, curve or bit has the others."""
    is_block = options.pop("block", False)
    tuned, _ = two(dropout=0.0)
    train(tuned, optimizers(tuned), 10, watched=True, every=1, to=tmp_path / "tuned.jsonl")
    ends, logged, alarms = [], [], []
    for is_watched in (True, False):
        model, _ = two(dropout=0.0)
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        asked: Any = {"probe": PROBE, "every": 8, "budget": "0.0001%", "to": tmp_path / "run.jsonl"}
        asked |= {"log": lambda own, step: logged.append(step)}
        watch: Any = depthlaw.watch(model, opt, **asked) if is_watched else None
        if watch is not None:
            watch.limit("fc2", 1e-6, lambda role, step, times: alarms.append(step))
        for step in range(10):
            scaler.scale(model(*batch(step))[1]).backward()
            if step in (0, 1, 8):
                model.head.weight.grad[0, 0] = math.inf
            if watch is not None and step == 3:
                watch._budget = None
            with watch if watch is not None and is_block else nullcontext():
                scaler.step(opt)
            scaler.update()
            opt.zero_grad()
            if watch is not None and not is_block:
                watch.step()
        ends.append(weights(model))
        if watch is not None:
            watch.close()
    assert all(torch.equal(*pair) for pair in zip(*(end.values() for end in ends), strict=True))
    run = Run.read(tmp_path / "run.jsonl")
    assert [(one.step, one.took_step) for one in run.looks] == [
        (0, False), (1, False), (2, True), (4, True), (8, False), (9, True)
    ]  # fmt: skip
    assert logged == alarms == [2, 4, 9] and not caplog.records
    why = "as a GradScaler lets none be taken where gradients are infinite"
    verdict = described(run)
    assert verdict[0] == f"The optimizer took no step at 3 looks, of steps 0 to 8, {why}."
    assert verdict[1].startswith("Step 9 moved the logits by") and verdict[-1].startswith("The first step moved the")
    assert [pair.at for pair in compare(Run.read(tmp_path / "tuned.jsonl"), run).whole.pairs] == [2, 4, 9]


def test_an_optimizer_that_never_steps_is_told_once(caplog):
    """As where the watch was given another one than trains."""
    model, _ = two()
    watch: Any = depthlaw.watch(model, optimizers(model), probe=PROBE, every=1, budget=None)
    for _ in range(50):
        watch.step()
    assert not watch.has_ended and not watch.last.took_step
    (told,) = [record.getMessage() for record in caplog.records]
    assert "the optimizer that is watched took none of the last 20 steps" in told


# ---------------------------------------------------------------- the file


def test_the_file_has_a_header_and_goes_on_with_the_same_run(tmp_path):
    path = tmp_path / "run.jsonl"
    model, _ = two()
    train(model, optimizers(model), 2, watched=True, every=1, to=path)
    header = json.loads(path.read_text().splitlines()[0])
    assert header["kind"] == "depthlaw-watch" and header["version"] == 1
    assert header["num_layers"] and header["d_model"] == WIDTH
    assert header["roles"]["q"] == 2 * WIDTH**2
    assert header["optimizers"] == [
        {"name": "AdamW", "lr": 1e-3, "weight_decay": 1e-2, "betas": [0.9, 0.999], "eps": 1e-8}
    ]
    with path.open("a") as file:
        file.write('{"step": 2, "cut')
    train(model, optimizers(model), 2, watched=True, every=1, to=path, start=1)
    run = Run.read(path)
    assert [(one.step, one.tokens) for one in run.looks] == [(0, 32), (1, 64), (2, 96)]


@pytest.mark.slow
def test_what_a_run_went_back_behind_is_no_part_of_it(tmp_path):
    """Nor does a run that is begun anew mix with what its file had."""
    path = tmp_path / "run.jsonl"
    for num_steps, start, places in (
        (9, 0, [0, 1, 2, 4, 8]),
        (2, 3, [0, 1, 2, 3, 4]),
        (2, 7, [0, 1, 2, 3, 4, 7, 8]),
        (3, 0, [0, 1, 2]),
    ):
        model, _ = two()
        train(model, optimizers(model), num_steps, watched=True, every=100, to=path, start=start)
        looks = Run.read(path).looks
        assert [one.step for one in looks] == places
        assert [one.tokens for one in looks] == [32 * (step + 1) for step in places]


def test_a_run_that_begins_anew_at_another_rate_is_what_its_file_says(tmp_path):
    path = tmp_path / "run.jsonl"
    for rate, start, num_steps in ((1e-3, 0, 3), (2e-3, 2, 2), (4e-3, 0, 0)):
        model, _ = two(dropout=0.0)
        opts = [torch.optim.AdamW(model.parameters(), lr=rate)]
        train(model, opts, num_steps, watched=True, every=1, to=path, start=start)
        run = Run.read(path)
        if start:
            assert run.header.trained_by == "AdamW at 0.001" and run.header.start == 0
            assert [(own.start, own.trained_by) for own in run.later] == [(2, "AdamW at 0.002")]
            assert [one.step for one in run.looks] == [0, 1, 2, 3]
    assert (run.header.trained_by, run.later, run.looks) == ("AdamW at 0.004", [], [])


def test_a_file_of_before_is_read_and_goes_on(tmp_path):
    """Its header had no start and its looks did not say whether a step was taken."""
    path = tmp_path / "run.jsonl"
    model, _ = two()
    train(model, optimizers(model), 2, watched=True, every=1, to=path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    del lines[0]["start"], lines[1]["took_step"], lines[2]["took_step"]
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    assert [(one.step, one.took_step) for one in Run.read(path).looks] == [(0, True), (1, True)]
    train(model, optimizers(model), 1, watched=True, every=1, to=path, start=2)
    assert [one.step for one in Run.read(path).looks] == [0, 1, 2]


def wrong_file(path):
    path.write_text("a page of notes\n")


def other_version(path):
    path.write_text('{"kind":"depthlaw-watch","version":9}\n')


def other_run(path):
    model = GPT(num_layers=1)
    train(model, optimizers(model), 1, watched=True, to=path)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (wrong_file, "is no file of a watched run"),
        (other_version, "is of version 9, and this depthlaw reads version 1"),
        (other_run, "is of a run with another num_layers: name another file"),
    ],
)
def test_a_file_that_is_something_else_is_left_alone(make, line, tmp_path, caplog):
    path = tmp_path / "run.jsonl"
    make(path)
    before = path.read_bytes()
    model, _ = two()
    watch = train(model, optimizers(model), 2, watched=True, to=path)
    assert watch.has_ended
    (told,) = [record.getMessage() for record in caplog.records]
    assert line in told and "the run goes on" in told
    assert path.read_bytes() == before


def test_two_watches_do_not_write_one_file(tmp_path, caplog):
    model, _ = two()
    opts = optimizers(model)
    first = depthlaw.watch(model, opts, probe=PROBE, to=tmp_path / "run.jsonl")
    second = depthlaw.watch(model, opts, probe=PROBE, to=tmp_path / "run.jsonl")
    assert second.has_ended and not first.has_ended
    assert "is being written by another process" in caplog.text
    first.close()


# ---------------------------------------------------------------- errors


class Nothing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return self.fc(x)


def no_batch(model):
    return 1 / 0


@pytest.mark.parametrize(
    ("model", "probe", "line"),
    [
        (GPT(), {"wrong": PROBE[0]}, "the probe does not fit GPT.forward"),
        (GPT(), torch.randn(2, 3), "reading GPT on the probe: RuntimeError: "),
        (GPT(), no_batch, "the probe no_batch() raised ZeroDivisionError: division by zero"),
        (Nothing(), torch.randn(2, 8), "Nothing has no residual stream that can be read"),
    ],
    ids=["names", "kind", "function", "no stream"],
)
def test_what_cannot_be_watched_is_told_in_one_line(model, probe, line, caplog):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    watch: Any = depthlaw.watch(model, opt, probe=probe)
    opt.step()
    watch.step()
    watch.limit("fc2", 2.0)
    assert watch.has_ended
    (told,) = [record.getMessage() for record in caplog.records]
    assert line in told and "\n" not in told


def test_a_full_disk_ends_the_watch_and_not_the_run(caplog, tmp_path, monkeypatch):
    from depthlaw.watching.record import Writer

    model, twin = two()

    def full(self, line):
        raise OSError(28, "No space left on device")

    real = Writer.add
    monkeypatch.setattr(Writer, "add", lambda self, line: (full if hasattr(line, "step") else real)(self, line))
    watch = train(model, optimizers(model), 3, watched=True, to=tmp_path / "run.jsonl")
    train(twin, optimizers(twin), 3)
    assert watch.has_ended and "No space left on device" in caplog.text and len(caplog.records) == 1
    assert all(torch.equal(*pair) for pair in zip(weights(model).values(), weights(twin).values(), strict=True))


def test_a_file_that_never_ends_is_refused(caplog, monkeypatch):
    """A full device answers zeros, and none of them ends a line."""
    monkeypatch.setattr("depthlaw.watching.record._LONGEST", 1000)
    model, _ = two()
    watch: Any = depthlaw.watch(model, optimizers(model), probe=PROBE, to="/dev/full")
    assert watch.has_ended
    (told,) = [record.getMessage() for record in caplog.records]
    assert "/dev/full is no file of a watched run" in told


def test_a_step_that_no_hook_sees_is_told_once(caplog):
    model, _ = two()
    watch: Any = depthlaw.watch(model, [], probe=PROBE, every=1, budget=None)
    for _ in range(3):
        watch.step()
    assert not watch.has_ended and watch.last is None
    (told,) = [record.getMessage() for record in caplog.records]
    assert "take it in `with watch:`" in told


def test_a_block_round_a_whole_loop_is_told_once(caplog):
    model, _ = two()
    with depthlaw.watch(model, optimizers(model), probe=PROBE):
        train(model, optimizers(model), 1)
        assert not caplog.records
    opts = optimizers(model)
    with depthlaw.watch(model, opts, probe=PROBE) as watch:
        train(model, opts, 3)
    assert not watch.has_ended
    (told,) = [record.getMessage() for record in caplog.records]
    assert "an optimizer took more than one step" in told and "not round the loop" in told


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"budget": "much"}, "budget is the part of the wall time .* or None; here it is 'much'"),
        ({"budget": 2}, "budget is .*; here it is 2"),
        ({"budget": True}, "budget is .*; here it is True"),
        ({"budget": [1]}, "budget is .*; here it is of type list"),
        ({"every": 0}, "every is a whole number of steps from 1 on, such as 100; here it is 0"),
        ({"every": "10"}, "every is a whole number of steps from 1 on, such as 100; here it is '10'"),
        ({"every": 2.5}, "every is .*; here it is 2.5"),
        ({"every": None}, "every is .*; here it is of type NoneType"),
        ({"start": -1}, "start is a whole number of steps from 0 on, .*; here it is -1"),
        ({"to": 3}, "to is the name of a file, such as .*; here it is 3"),
        ({"to": ""}, "to is the name of a file, such as .*; here it is ''"),
        ({"reference": GPT()}, "reference is the name of a file, .*; here it is of type GPT"),
        ({"probe": 3}, "probe is a batch as the model is called with it .*; here it is 3"),
        ({"probe": None}, "probe is a batch .*; here it is of type NoneType"),
        ({"optimizer": "adamw"}, "optimizer is one of torch's optimizers, .*; here it is 'adamw'"),
        ({"model": batch}, r"model is a torch\.nn\.Module, .*; here it is of type function"),
        ({"log": [3]}, r"log is a function of .*; here it is 3"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_before_the_run(options, line):
    model = GPT()
    asked = {"model": model, "optimizer": optimizers(model), "probe": PROBE} | options
    with pytest.raises(ValueError, match=f"^depthlaw.watch: {line}$"):
        depthlaw.watch(**asked)


def test_a_setting_may_be_what_other_libraries_have_for_it(tmp_path):
    """Numbers of numpy, paths, and None for no log."""
    model = GPT()
    opts = tuple(optimizers(model))
    options: Any = {"every": np.int64(2), "budget": np.float32(0.5), "to": tmp_path / "run.jsonl", "log": None}
    depthlaw.watch(model, opts, probe=lambda _: PROBE, **options).close()
    header = Run.read(tmp_path / "run.jsonl").header
    assert (header.every, header.budget) == (2, 0.5)


# ---------------------------------------------------------------- beside a reference, alarms, logs


def test_an_alarm_tells_a_role_that_moves_more_than_in_the_reference(tmp_path, caplog):
    path = tmp_path / "tuned.jsonl"
    model, twin = two()
    train(model, optimizers(model), 2, watched=True, every=1, to=path)
    opts = optimizers(twin)
    other = [p for n, p in twin.named_parameters() if n.endswith("c_out.weight")]
    opts[0].param_groups[0]["params"] = [p for p in twin.parameters() if all(p is not own for own in other)]
    opts[0].add_param_group({"params": other, "lr": 5e-3})
    told = []
    numbers = []
    torch.manual_seed(5)
    log = [lambda own, step: numbers.append((step, own))]
    watch: Any = depthlaw.watch(twin, opts, probe=PROBE, reference=path, log=log, every=1, budget=None)
    watch.limit("fc2", 3.0, then=lambda *alarm: told.append(alarm))
    watch.limit("fc9", 3.0)
    twin(*batch(0))[1].backward()
    opts[0].step()
    watch.step()
    assert [(role, step) for role, step, _ in told] == [("fc2", 0)]
    assert told[0][2] == pytest.approx(5.0, rel=1e-3) == watch.last.roles["fc2"].beside_reference
    assert watch.last.roles["q"].beside_reference == pytest.approx(1.0, rel=1e-3)
    assert [record.getMessage() for record in caplog.records] == [
        "depthlaw: no limit is set: no role is called 'fc9' (there are " + ", ".join(watch._probe.roles.names) + ")"
    ]
    ((step, own),) = numbers
    assert step == 0 and own["depthlaw/change/fc2"] == watch.last.roles["fc2"].change
    assert all(math.isfinite(value) for value in own.values())


def times_five(tmp_path, caplog, *, steps, limit=None, then=None):
    """A run whose fc2 moves 5 times as far as that of the reference at some of 4 steps."""
    path = tmp_path / "tuned.jsonl"
    model, twin = two(dropout=0.0)
    train(model, [torch.optim.SGD(model.parameters(), lr=1e-3)], 4, watched=True, every=1, to=path)
    other = [p for n, p in twin.named_parameters() if n.endswith("c_out.weight")]
    rest = [p for p in twin.parameters() if all(p is not own for own in other)]
    optimizer = torch.optim.SGD([{"params": rest}, {"params": other}], lr=1e-3)
    watch: Any = depthlaw.watch(twin, optimizer, probe=PROBE, every=1, budget=None, reference=path)
    if limit is not None:
        watch.limit("fc2", limit, then)
    for step in range(4):
        optimizer.param_groups[1]["lr"] = 5e-3 if step in steps else 1e-3
        twin(*batch(10 * step))[1].backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.step()
    return watch, [record.getMessage() for record in caplog.records]


def test_a_reference_sets_limits_and_an_alarm_is_told_where_it_begins(tmp_path, caplog):
    watch, told = times_five(tmp_path, caplog, steps=(0, 1, 3))
    assert [line.split(" moves ")[0] for line in told] == ["depthlaw: step 0: fc2", "depthlaw: step 3: fc2"]
    limit = f"{learnt_limit(Run.read(tmp_path / 'tuned.jsonl'), 'fc2'):.2g}"
    assert told[0] == f"depthlaw: step 0: fc2 moves the logits 5 times as far as in the reference; the limit is {limit}"
    assert not watch.has_ended


@pytest.mark.slow
def test_a_role_that_hardly_matters_is_no_alarm_unless_it_is_asked_for(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("depthlaw.watching.watch.MATTERS", 1.1)
    assert times_five(tmp_path, caplog, steps=(0, 1, 3))[1] == []
    told = times_five(tmp_path / "asked", caplog, steps=(0, 1, 3), limit=2.5)[1]
    assert [line.split(" moves ")[0] for line in told] == ["depthlaw: step 0: fc2", "depthlaw: step 3: fc2"]


@pytest.mark.wide
def test_a_function_is_called_at_each_look_beyond_the_limit(tmp_path, caplog):
    called = []
    _, told = times_five(tmp_path, caplog, steps=(0, 1, 3), limit=2.5, then=lambda *alarm: called.append(alarm))
    assert [(role, step) for role, step, _ in called] == [("fc2", 0), ("fc2", 1), ("fc2", 3)]
    assert all(times > 2.5 for *_, times in called)
    assert not told


def test_what_is_no_finite_number_is_told_once_and_beyond_each_limit(tmp_path, caplog):
    """A step that is lost moves nothing less than its limit."""
    model, _ = two()
    opts = optimizers(model)
    calls = []
    watch = depthlaw.watch(model, opts, probe=PROBE, to=tmp_path / "run.jsonl", every=1, budget=None)
    watch.limit("fc2", 1e6, lambda *call: calls.append(call))
    for step in range(4):
        model(*batch(step))[1].backward()
        opts[0].step()
        opts[0].zero_grad()
        if step == 2:
            model.blocks[0].c_out.weight.data[0, 0] = math.nan
        watch.step()
    watch.close()
    assert calls == [("fc2", 2, math.inf), ("fc2", 3, math.inf)]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "depthlaw: step 2: what the step moves the logits by is no finite number"
    run = Run.read(tmp_path / "run.jsonl")
    assert described(run)[0] == "From step 2 on, no step moved the logits by a finite number."
    good = made(tmp_path / "good.jsonl", {role: dict.fromkeys(range(4), 1.0) for role in run.header.roles})
    assert compare(Run.read(good), run).verdict[0].startswith("2 layers: from step 2 on, no step moved the logits by a")


@pytest.mark.wide
def test_an_alarm_that_fails_ends_the_watch_and_one_that_leaves_ends_the_run(tmp_path, caplog):
    watch, told = times_five(tmp_path, caplog, steps=(0,), limit=2.5, then=lambda *_: 1 / 0)
    assert watch.has_ended and told[-1].endswith("the run goes on: ZeroDivisionError: division by zero")

    def leave(*_):
        raise SystemExit("fc2")

    with pytest.raises(SystemExit, match="fc2"):
        times_five(tmp_path / "anew", caplog, steps=(0,), limit=2.5, then=leave)


def test_a_role_that_is_uneven_in_the_reference_has_a_wider_limit(tmp_path):
    steady, uneven = dict.fromkeys(range(5), 1.0), {0: 1.0, 1: 1.0, 2: 3.0, 3: 1.0, 4: 0.5}
    run = Run.read(made(tmp_path / "run.jsonl", {"fc2": steady, "q": uneven}))
    assert {role: learnt_limit(run, role) for role in ("fc2", "q", "v")} == {"fc2": 2.0, "q": 6.0, "v": 2.0}


@pytest.mark.parametrize(
    ("limit", "line"),
    [
        *((("fc2", given), "update is how many times as far, a number above 0") for given in (0, -1.0, math.nan, "2")),
        ((2, 2.0), "role is the name of a role, such as .*; here it is 2"),
        (("fc2", 2.0, "stop"), "then is a function of .*; here it is 'stop'"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(limit, line):
    model = GPT()
    watch: Any = depthlaw.watch(model, optimizers(model), probe=PROBE)
    with pytest.raises(ValueError, match=f"^depthlaw.watch: a limit's {line}"):
        watch.limit(*limit)


def test_between_looks_of_the_reference_stands_the_line_through_them(tmp_path):
    run = Run.read(made(tmp_path / "run.jsonl", {"fc2": {0: 1.0, 4: 16.0}}))
    assert [change_at(run, "fc2", step) for step in (0, 2, 4, 5)] == [1.0, pytest.approx(4.0), 16.0, None]


def test_a_reference_of_another_architecture_is_told_and_left_out(tmp_path, caplog):
    """A GPT-2 beside a Llama."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    size: Any = {"vocab_size": 17, "bos_token_id": 0, "eos_token_id": 0}
    heads: Any = {"num_attention_heads": 2, "num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 32}
    llama, path = LlamaForCausalLM(LlamaConfig(**size, **heads)), tmp_path / "llama.jsonl"
    depthlaw.watch(llama, optimizers(llama), probe=PROBE[0], to=path).close()
    gpt: Any = GPT2LMHeadModel(GPT2Config(**size, n_embd=16, n_head=2, n_layer=1, n_positions=8))
    opts = optimizers(gpt)
    watch: Any = depthlaw.watch(gpt, opts, probe=PROBE[0], reference=path)
    gpt(PROBE[0]).logits.square().mean().backward()
    opts[0].step()
    watch.step()
    assert watch.last is not None and not watch.has_ended
    assert all(own.beside_reference is None for own in watch.last.roles.values())
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("depthlaw: the watch goes on without its reference: ") and "\n" not in told
    assert "llama.jsonl is of another architecture than this model: only one has" in told and "fc3" in told


def test_a_reference_that_does_not_fit_is_told_and_left_out(tmp_path, caplog):
    model, _ = two()
    watch = train(model, optimizers(model), 1, watched=True, reference=tmp_path / "none.jsonl")
    assert watch.last is not None
    assert "goes on without its reference" in caplog.text

"""Measurements of many seeds: the same in every chunk, divergence where it began, and nothing that rounding decides."""

import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy.stats import ttest_ind

from depthlaw.sims import measure
from depthlaw.sims.config import BRANCH_ROLES, KINKED
from depthlaw.sims.ensemble import MOST, Ensemble, Member, NotEnoughMemoryError
from depthlaw.sims.measure import Question, Result, choose_device, run
from depthlaw.sims.model import ModelConfig, SublayerConfig, alternating, decoder_layers
from depthlaw.sims.update import (
    Divergence,
    Inputs,
    Task,
    divergences,
    draw_inputs,
    first_order,
    layers_of,
    objective,
    roles_of,
)
from tests import realnet
from tests.memory import Peak
from tests.often import often

D = 16


def question(num_sublayers: int = 4, **rest: Any) -> Question:
    numbers = {name: rest.pop(name) for name in ("residual_weight", "gains") if name in rest}
    own = {name: rest.pop(name) for name in ("placement", "activation", "decoder", "visits") if name in rest}
    config = ModelConfig(encoder=alternating(num_sublayers, **numbers), d_model=D, num_heads=2, **own)
    return Question(**{"config": config, "task": Task(num_tokens=4), **rest})


def together(asked: Question, seeds: range, advance: Callable[[float], None] = lambda _: None) -> Result:
    return as_one(list(run(asked, seeds, advance)))


def as_one(parts: list[Result]) -> Result:
    """All chunks."""
    assert len({tuple(part.values) for part in parts}) == 1  # the same quantities in each
    values = {name: [x for part in parts for x in part.values[name]] for name in parts[0].values}
    diverged = {seed: place for part in parts for seed, place in part.diverged.items()}
    seeds = [seed for part in parts for seed in part.seeds]
    return Result(seeds, values, diverged, parts[0].unreliable, parts[0].dtype)


@pytest.mark.wide
def test_chunks_do_not_change_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = question(
        2,
        task=Task(num_tokens=2, objective="ce", num_classes=3, trains_inputs=True),
        optimizers=("lamb",),
        has_layers=True,
        has_changes=True,
        learning_rate=1e-3,
        decoder=decoder_layers(1),
        placement="pre",
    )
    whole = together(asked, range(3))
    assert "lamb/embedding" in whole.values
    assert not any("/change/" in name and "embedding" in name for name in whole.values)  # nothing moves the inputs
    monkeypatch.setattr(measure, "_MOST_AT_ONCE", 2)
    parts = list(run(asked, range(3)))
    assert sorted(len(part.seeds) for part in parts) == [1, 2]
    parts = as_one(parts)
    assert parts.seeds == list(range(3))
    assert parts.values.keys() == whole.values.keys()
    for name, values in whole.values.items():
        assert parts.values[name] == pytest.approx(values, rel=1e-9, abs=1e-15)
    bare = replace(asked, has_changes=False, learning_rate=None)
    again, other = together(bare, range(3)), together(bare, range(3, 6))
    assert next(run(replace(bare, dtype="auto", learning_rate=1e-3), [0])).dtype == "float64"  # where a step is taken
    for name, values in again.values.items():  # chunk by chunk, to rounding: which differs with what is kept beside it
        assert parts.values[name] == pytest.approx(values, rel=1e-12, abs=1e-15)
    assert all(a != b for a, b in zip(other.values["lamb/update"], whole.values["lamb/update"], strict=True))


def test_the_same_quantities_whether_or_not_steps_are_kept() -> None:
    task = Task(num_tokens=4, trains_inputs=True)
    asked = question(task=task, optimizers=("sgd", "lamb", "muon"))
    (bare,), (kept,) = run(asked, [1, 2]), run(replace(asked, has_changes=True), [1, 2])
    same = {name: values for name, values in kept.values.items() if "/change/" not in name}
    assert bare.values.keys() == same.keys()
    for name, values in bare.values.items():
        assert same[name] == pytest.approx(values, rel=1e-12, abs=1e-15)
    assert [name for name in bare.values if "real_step" in name] == ["lamb/real_step"]
    unasked = set(bare.values) - set(next(run(replace(asked, task=Task(num_tokens=4)), [1, 2])).values)
    assert unasked == {f"{optimizer}/embedding" for optimizer in asked.optimizers}


@pytest.mark.parametrize("of_vectors", [False, True])
def test_a_step_on_spheres_is_a_short_step_that_is_brought_back(of_vectors: bool) -> None:
    """Of a Sub-LN network with a cross-attention, at a finite length: every matrix, or every vector of one along the
    stream, is given its norm again."""
    asked = question(2, decoder=decoder_layers(1), placement="sub", optimizers=("signsgd",), has_changes=True)
    name = "update_on_vectors" if of_vectors else "update_on_spheres"
    (found,) = next(run(asked, [3])).values[f"signsgd/change/logit/{name}"]
    config, task = asked.full_config, asked.task
    model, length = Ensemble([Member(config, 3)]), 1e-6
    inputs = draw_inputs(config, task, [3], torch.float64, torch.device("cpu"))
    order = first_order(model, inputs, task, ["signsgd"], keeps_steps=True)

    def logit() -> float:
        with torch.no_grad():
            return float(objective(model, model(inputs.x, inputs.y), inputs, task))

    before = logit()
    with torch.no_grad():
        for parameter, weight, role in model.tagged():
            if role not in BRANCH_ROLES:
                continue
            dims = (-2, -1) if not of_vectors else (-2,) if role in ("out", "cross_out", "fc2") else (-1,)
            norm = weight.norm(dim=dims, keepdim=True)
            weight.sub_(length * order.steps["signsgd"][parameter])
            weight.mul_(norm / weight.norm(dim=dims, keepdim=True))
    moved = (logit() - before) / length
    assert found * D**1.5 == pytest.approx(moved, rel=1e-4)
    (free,) = next(run(asked, [3])).values["signsgd/change/logit/update"]
    assert found != pytest.approx(free, rel=1e-3)


def test_memory_decides_the_chunk_and_recomputation(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = question(4, task=Task(num_tokens=32))
    plain = together(asked, range(4))
    need = measure.bytes_of_member(asked.full_config, 32, 32, 8)
    again = measure.bytes_of_member(replace(asked.full_config, recomputes=True), 32, 32, 8)
    alone, least = (math.ceil(size / MOST) for size in (need, again))
    for free, sizes, recomputes in ((4 * need, [2, 2], False), (alone, [1] * 4, False), (least, [1] * 4, True)):
        monkeypatch.setattr("depthlaw.sims.ensemble.available_bytes", lambda _, free=free: free)
        assert measure._chunk(asked, 4) == (sizes[0], recomputes)
        parts = list(run(asked, range(4)))
        assert [len(part.seeds) for part in parts] == sizes
        for name, values in as_one(parts).values.items():
            assert values == pytest.approx(plain.values[name], rel=1e-9)
    monkeypatch.setattr("depthlaw.sims.ensemble.available_bytes", lambda _: again - 1)
    with pytest.raises(NotEnoughMemoryError, match=r"^one network of 4 sublayers, d_model 16, float64 needs .* GiB"):
        next(run(asked, range(4)))


WIDE = ModelConfig(
    encoder=alternating(4), decoder=decoder_layers(2), d_model=32, activation="swiglu", placement="normformer"
)
MEMORY = {
    "one token": question(2, task=Task()),
    "changes": question(2, task=Task(num_tokens=16), has_changes=True, optimizers=("muon", "adafactor")),
    "a step": question(2, task=Task(), learning_rate=1e-3, optimizers=("adam", "lamb")),
    "an encoder-decoder": Question(config=replace(WIDE, has_affine=True, has_bias=True), task=Task(num_tokens=32)),
    "recomputed": Question(
        config=replace(WIDE, encoder=alternating(8), decoder=(), recomputes=True), task=Task(num_tokens=64)
    ),
}


@pytest.mark.parametrize("case", MEMORY)
def test_memory_that_is_asked_for_is_enough_and_not_much_more(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = replace(MEMORY[case], task=replace(MEMORY[case].task, trains_inputs=True))
    said: list[int] = []
    monkeypatch.setattr(measure, "members_at_once", lambda need, *_: said.append(need) or 1)
    measure._chunk(asked, 1)
    with Peak() as peak:
        measure._measure(asked, [0], lambda _: None)
    assert peak.most <= said[0] <= 3 * peak.most


def test_no_seeds_and_unknown_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="no seeds"):
        next(run(question(), []))
    with pytest.raises(ValueError, match=r"unknown device 'tpu' \(allowed: auto, cpu, cuda\)"):
        choose_device("tpu")
    assert choose_device("cpu") == "cpu"


def diverging(wild: ModelConfig, tame: ModelConfig) -> dict[int, Divergence]:
    """Where a wild network diverges. The tame one beside it has the numbers that it has alone."""
    task, optimizers = Task(num_tokens=3), ("sgd", "muon")
    pair = Ensemble([Member(task.on(wild), 1), Member(task.on(tame), 2)])
    inputs = draw_inputs(tame, task, [1, 2], torch.float64, "cpu")
    alone = Ensemble([Member(task.on(tame), 2)])
    own = Inputs(inputs.x[1:], None, inputs.labels[1:])
    both, single = first_order(pair, inputs, task, optimizers), first_order(alone, own, task, optimizers)
    for optimizer in optimizers:
        expected = roles_of(alone, single.functionals[optimizer])
        for role, value in roles_of(pair, both.functionals[optimizer]).items():
            torch.testing.assert_close(value[1], expected[role][0])
    assert divergences(single) == {}
    return divergences(both)


def test_divergence_is_where_squares_overflow() -> None:
    """x_l is about 1e40^l: the square of x_4 is no number any more, though x_4 is, and its norm would be 0."""
    config = ModelConfig(encoder=alternating(12), placement="pre", d_model=8)
    wild = replace(config, encoder=alternating(12, residual_weight=1e40))
    for num_sublayers in (12, 6):  # of the shorter no number is infinite
        pair = (replace(network, encoder=network.encoder[:num_sublayers]) for network in (wild, config))
        assert diverging(*pair) == {0: Divergence("encoder", 4, "forward")}


def test_divergence_going_backward() -> None:
    """x_1 and x_2 are about 1e-160 and x_3 about 1 again: gradients of 1e160, which have no square, begin at x_2."""
    config = ModelConfig(encoder=(SublayerConfig(kind="ffn"),) * 4, placement="none", d_model=8)
    down, up = (SublayerConfig(kind="ffn", residual_weight=a, branch_weight=a) for a in (1e-160, 1e160))
    wild = replace(config, encoder=(down, config.encoder[1], up, config.encoder[3]))
    assert diverging(wild, config) == {0: Divergence("encoder", 2, "backward")}


def test_divergence_of_an_update_alone() -> None:
    """fc2 undoes fc1, so that every stream and its gradient is about 1, and fc1's gradient has no square."""
    config = ModelConfig(encoder=(SublayerConfig(kind="ffn"),) * 4, placement="none", d_model=8)
    steep = SublayerConfig(kind="ffn", gains={"fc1": 1e-170, "fc2": 1e170})
    wild = replace(config, encoder=(*config.encoder[:2], steep, config.encoder[3]))
    assert diverging(wild, config) == {0: Divergence("encoder", 3, "update")}


@pytest.mark.parametrize("placement", ["pre", "sub"])
def test_overflow_inside_a_sublayer_is_seen_before_a_norm_hides_it(
    placement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Squares of the preactivation overflow; behind the inner norm of "sub" the stream itself stays finite."""
    stack = tuple(SublayerConfig(kind="ffn", gains={"fc1": gain}) for gain in (1.0, 1e200, 1.0))
    config = ModelConfig(encoder=stack, placement=placement, norm_kind="rmsnorm", d_model=D, ffn_ratio=1)
    asked = Question(config=config)
    result = together(asked, range(2))
    assert result.diverged == dict.fromkeys(range(2), Divergence("encoder", 2, "forward"))
    monkeypatch.setattr(Ensemble, "on_norm", lambda *_: None)
    assert bool(together(asked, range(2)).diverged) == (placement == "pre")


def test_a_step_that_overflows_leaves_what_was_before_it() -> None:
    stack = tuple(SublayerConfig(kind="ffn") for _ in range(3))
    config = ModelConfig(encoder=stack, placement="none", d_model=D, ffn_ratio=1)
    result = together(Question(config=config, learning_rate=1e160), range(2))
    assert result.diverged == dict.fromkeys(range(2), Divergence("encoder", 3, "step"))
    lost = {name for name, values in result.values.items() if not all(map(math.isfinite, values))}
    assert lost == {"sgd/finite/logit", "sgd/finite/hidden"}


def test_a_diverged_seed_is_recorded_and_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = question(12, residual_weight=1e40, placement="pre", optimizers=("sgd", "muon", "lamb"), has_layers=True)
    result = together(asked, range(3))
    assert result.diverged == dict.fromkeys(range(3), Divergence("encoder", 4, "forward"))
    assert all(len(values) == 3 and all(map(math.isnan, values)) for values in result.values.values())
    assert result.unreliable == {}
    assert not together(question(12, placement="pre"), range(3)).diverged


def in_both(asked: Question, seeds: range) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """By quantity, in float32 and, with the same weights and inputs and no ReLU on the other side of 0, in float64."""
    config = asked.full_config
    short = Ensemble([Member(config, seed) for seed in seeds], dtype=torch.float32)
    exact = Ensemble([Member(config, seed) for seed in seeds])
    own = dict(short.named_parameters())
    with torch.no_grad():
        for name, parameter in exact.named_parameters():
            parameter.copy_(own[name])
    inputs = draw_inputs(config, asked.task, seeds, torch.float32, "cpu")
    measured = []
    short.kinks = exact.kinks = {}
    for model, x in ((short, inputs.x), (exact, inputs.x.double())):
        order = first_order(model, Inputs(x, None, inputs.labels), asked.task, asked.optimizers)
        values: dict[str, torch.Tensor] = {}
        for optimizer in asked.optimizers:
            values |= {f"{optimizer}/{role}": v for role, v in roles_of(model, order.functionals[optimizer]).items()}
            for role, layers in layers_of(model, order.functionals[optimizer]).items():
                values |= {f"{optimizer}/layer/{role}/{index}": v for index, v in enumerate(layers, start=1)}
        measured.append(values | measure._gradients(model, order))
    return measured[0], measured[1]


@pytest.mark.parametrize(("num_sublayers", "some"), [(12, False), (60, True)])
def test_what_rounding_decides_is_found_and_nothing_else(num_sublayers: int, some: bool) -> None:
    """Against the truth: float64 with float32's weights. Tokens differ by less and less, and q's and k's gradients are
    1 % off where 1 - correlation comes to about 10 units in the last place."""
    asked = question(
        num_sublayers, task=Task(num_tokens=8), optimizers=("sgd", "adam"), dtype="float32", has_layers=True
    )
    seeds = range(8)
    result = next(run(asked, seeds))
    flagged = result.unreliable
    assert not flagged.keys() & result.values.keys()
    short, exact = in_both(asked, seeds)
    errors = {name: (short[name] / exact[name] - 1).abs() for name in exact}
    assert bool(flagged) == some
    for name in exact.keys() - flagged.keys():
        assert abs(float(short[name].double().mean() / exact[name].mean()) - 1) <= measure._LIMIT, name
    sound = max(float(errors[name].max()) for name in exact if name.split("/")[-2] in ("v", "out", "fc1", "fc2"))
    assert sound < measure._LIMIT
    for name in flagged:
        assert errors[name].max() > sound, name
    if some:
        assert sum(bool(errors[name].max() > measure._LIMIT) for name in flagged) > len(flagged) / 2
        last = f"sgd/layer/q/{num_sublayers // 2}"
        assert last in flagged and errors[last].median() > measure._LIMIT
    assert all(name.split("/")[-2] in ("q", "k") for name in flagged)
    # Deep q and k are lost, yet their sums are those of the first layers, which are right.
    for optimizer in asked.optimizers:
        assert all((errors[f"{optimizer}/{role}"] < 1e-3).all() for role in ("q", "k", "update"))


@pytest.mark.parametrize("activation", KINKED)
def test_a_unit_that_rounding_switches_loses_nothing(activation: str) -> None:
    """Half the units of an FFN are 0 but for rounding: either side is as good, whichever the rounding takes."""
    asked = question(2, task=Task(num_tokens=1), optimizers=("adam",), dtype="float32", activation=activation)
    model = Ensemble([Member(asked.full_config, seed) for seed in range(2)], dtype=torch.float32)
    inputs = draw_inputs(asked.full_config, asked.task, range(2), torch.float32, "cpu")
    fc1_EFD = dict(model.named_parameters())["_weights.encoder_1_fc1"][:, ::2]
    u_ED = dict(((side, index), x) for side, index, x in model.walk(inputs.x))["encoder", 1][:, 0, 0]
    with torch.no_grad():
        for _ in range(3):  # each time what rounding has left
            fc1_EFD -= (fc1_EFD @ u_ED[..., None]) * u_ED[:, None] / u_ED.square().sum(-1)[:, None, None]

    def change(kinks: dict[tuple[str, int], torch.Tensor] | None) -> dict[str, float]:
        model.kinks = kinks
        order = first_order(model, inputs, asked.task, asked.optimizers)
        return measure.rounding(asked, model, inputs, order, {} if kinks is None else kinks)

    assert change(None)["adam/fc1"] > measure._LIMIT
    assert change({}) == {}


@pytest.mark.parametrize(
    ("correlation", "dtype", "lost"),
    [(0.0, "float32", False), (1 - 1e-3, "float32", False), (1 - 1e-13, "float32", True), (1 - 1e-9, "float64", False)],
)
def test_tokens_that_differ_by_rounding_alone_lose_q_and_k_altogether(
    correlation: float, dtype: str, lost: bool
) -> None:
    task = Task(num_tokens=8, correlation=correlation)
    asked = question(8, task=task, optimizers=("sgd", "adam"), dtype=dtype, has_layers=True)
    result = together(asked, range(3))
    roles = {name for name in result.unreliable if "layer" not in name.split("/")}
    assert roles == ({f"{optimizer}/{role}" for optimizer in ("sgd", "adam") for role in "qk"} if lost else set())
    assert {"sgd/v", "sgd/out", "sgd/fc1", "sgd/fc2", "sgd/update"} <= result.values.keys()
    assert any(name.startswith("sgd/layer/q") for name in result.values) is not lost


@pytest.mark.parametrize(("num_sublayers", "dtype"), [(12, "float32"), (60, "float64")])
def test_float32_is_taken_where_it_is_right(num_sublayers: int, dtype: str) -> None:
    """And then it is: no number of a seed is off by more than a hundredth of the scatter that seeds have."""
    asked = question(
        num_sublayers, task=Task(num_tokens=8), optimizers=("sgd", "adam"), dtype="auto", has_layers=num_sublayers > 12
    )
    told: list[float] = []
    seeds = range(12 if dtype == "float32" else 4)
    [first, *rest] = run(asked, seeds, told.append)
    assert {part.dtype for part in (first, *rest)} == {dtype}
    assert sum(told) == pytest.approx(len(seeds))
    assert not first.unreliable
    same = as_one(list(run(replace(asked, dtype=dtype), seeds)))
    assert as_one([first, *rest]).values == {name: pytest.approx(x, rel=1e-4) for name, x in same.values.items()}
    if dtype == "float32":
        short, exact = in_both(asked, seeds)
        for name in first.values:
            errors = (short[name] / exact[name] - 1).abs()
            assert errors.max() < max(0.01 * float(exact[name].log().std()), 1e-5), name  # the head's are all the same


def test_visits_are_sums_of_their_own() -> None:
    """Streams are counted through all visits, and a unit may be on one side of its kink at one visit and on the other
    at the next; beside a second way to the same networks, which neither probes rounding nor joins factors."""
    asked = question(2, visits=3, task=Task(num_tokens=4), optimizers=("sgd", "adam"), has_layers=True)
    told: list[float] = []
    [result] = run(asked, range(3), told.append)
    assert sum(told) == pytest.approx(3)
    indices = {int(name.split("/")[2]) for name in result.values if name.startswith("layer/encoder")}
    assert indices == set(range(7))
    config = asked.full_config
    model = Ensemble([Member(config, seed) for seed in range(3)])
    inputs = draw_inputs(config, asked.task, range(3), torch.float64, "cpu")
    value = objective(model, model(inputs.x), inputs, asked.task).sum()
    grads = torch.autograd.grad(value, list(model.parameters()))
    for optimizer, length, power in (("sgd", 2, 1), ("adam", 1, 1.5)):
        squares = {
            name: grad.abs().pow(length).flatten(1).sum(1)
            for (name, _, _), grad in zip(model.tagged(), grads, strict=True)
        }
        own = torch.stack([square for name, square in squares.items() if "head" not in name]).sum(0) / D**power
        assert result.values[f"{optimizer}/update"] == pytest.approx(own.tolist(), rel=1e-9)


@pytest.fixture
def two_cores() -> Iterator[None]:
    """For torch's operations."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_cores")
def test_threads_and_cores_change_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = question(12, task=Task(num_tokens=8), optimizers=("sgd", "adam"), has_layers=True)
    wild = question(12, residual_weight=1e40, placement="pre")  # its numbers overflow
    for one in (asked, wild):
        results = []
        for shares in ((1, 1), (3, 1), (1, 2)):
            monkeypatch.setattr(measure, "threads_for", lambda *_, shares=shares: measure.Shares(*shares))
            results.append(together(one, range(10)))
        alone = results.pop(0)
        for shared in results:
            assert (alone.seeds, alone.diverged, alone.dtype) == (shared.seeds, shared.diverged, shared.dtype)
            assert alone.unreliable.keys() == shared.unreliable.keys()
            for name, values in alone.values.items():
                assert shared.values[name] == pytest.approx(values, rel=1e-6, nan_ok=True), name


@pytest.mark.parametrize(
    ("width", "num_seeds", "rest", "shares"),
    [
        (16, 2, {}, (1, 1)),
        (64, 15, {}, (1, 1)),
        (64, 17, {}, (1, 2)),
        (256, 16, {}, (2, 1)),
        (256, 16, {"learning_rate": 0.1}, (1, 2)),
        (256, 1, {}, (1, 1)),
        (512, 1, {}, (1, 2)),
        (512, 8, {}, (2, 1)),
    ],
)
def test_large_operations_are_worth_cores_and_larger_ones_threads(
    width: int, num_seeds: int, rest: dict[str, Any], shares: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two cores. Where steps are kept, one thread has all seeds."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    config = ModelConfig(encoder=alternating(2), d_model=width, num_heads=2)
    asked = Question(config=config, task=Task(num_tokens=32), **rest)
    assert measure.threads_for(asked, num_seeds) == shares


@pytest.mark.parametrize(("there", "most", "cores"), [(2, None, 2), (1, None, 1), (2, 1, 1)])
def test_an_operation_has_as_many_cores_as_there_are_and_as_it_may_have(
    there: int, most: int | None, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, seen = torch.get_num_threads(), []
    monkeypatch.setattr(measure, "threads_for", lambda *_: measure.Shares(1, 2))
    monkeypatch.setattr(measure, "_part", lambda *_, **__: seen.append(torch.get_num_threads()))
    torch.set_num_threads(there)
    try:
        measure._measure(question(2), [0], lambda _: None, most_threads=most)
        assert (seen, torch.get_num_threads()) == ([cores], there)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("stops", [1, 2], ids=["first teller", "second teller"])
def test_what_is_told_may_stop_threads(monkeypatch: pytest.MonkeyPatch, stops: int) -> None:
    """As Ctrl-C does: nobody is told any more, and torch has its threads back. It is raised, and not that the other
    thread was stopped for it, even where both have ended by the time that somebody looks."""
    monkeypatch.setattr(measure, "threads_for", lambda *_: measure.Shares(2, 1))
    monkeypatch.setattr(measure, "wait", lambda futures, return_when: wait(futures))
    before, after, tellers = torch.get_num_threads(), 0, set()

    def stop(done: float) -> None:
        nonlocal after
        after += len(tellers) == stops
        tellers.add(threading.get_ident())
        if len(tellers) == stops:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        together(question(40), range(6), stop)
    assert after == 0 and torch.get_num_threads() == before


@pytest.mark.parametrize("placement", often(["sub", "post", "pre"], 3))
def test_an_ffn_stack_is_measured_as_another_writing_of_it_is(placement: str) -> None:
    """By Welch's test of log U. 27 comparisons in all: one in 4,000 draws of all seeds would fall below at random."""
    width, num_sublayers, num_seeds = 16, 4, 300
    sublayers = (SublayerConfig(kind="ffn"),) * num_sublayers
    config = ModelConfig(encoder=sublayers, placement=placement, d_model=width, ffn_ratio=1)
    ours = together(Question(config=config, optimizers=("sgd", "adam", "lamb")), range(num_seeds))
    theirs = realnet.measure(realnet.scheme_numbers(f"{placement}-ln", num_sublayers), width, num_seeds, 5)
    for optimizer, functional in (("sgd", "square"), ("adam", "sign"), ("lamb", "layerwise_sign")):
        for role in ("fc1", "fc2", "update"):
            pair = torch.tensor(ours.values[f"{optimizer}/{role}"]), theirs[functional, role]
            p_value = ttest_ind(*(x.log().numpy() for x in pair), equal_var=False).pvalue
            assert p_value > 1e-5, (optimizer, role)

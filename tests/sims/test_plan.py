"""Training on paper, beside small networks that torch counts."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from depthlaw.sims.model import ModelConfig, alternating, decoder_layers, side_by_side
from depthlaw.sims.optim import OPTIMIZERS
from depthlaw.sims.training.data import DataConfig, load
from depthlaw.sims.training.plan import NODE, flops_of_step, memory_of_training, parameters_of, plan, states_of
from depthlaw.sims.training.stepping import Rows
from depthlaw.sims.training.train import PRECISIONS, TrainConfig, _Run, _Together
from tests.memory import Peak
from tests.often import often
from tests.sims.training import own_parallel

MODEL = ModelConfig(
    encoder=alternating(4), placement="pre", d_model=48, num_heads=4, activation="gelu", has_affine=True, has_bias=True
)
BASE = TrainConfig(model=MODEL, data=DataConfig(name="digits"), learning_rate=0.01, num_steps=1, batch_size=16)
CHANGES: Mapping[str, dict[str, Any]] = {
    "pre": {},
    "bare": {"placement": "none", "has_affine": False, "has_bias": False, "activation": "identity"},
    "post": {"placement": "post", "activation": "relu"},
    "sub": {"placement": "sub", "activation": "tanh"},
    "peri": {"placement": "peri", "norm_kind": "rmsnorm"},
    "normformer": {"placement": "normformer", "activation": "leaky_relu"},
    "without affine": {"has_affine": False, "has_qk_norm": True, "has_wide_norms": True},
    "dyt": {"placement": "sub", "norm_kind": "dyt", "num_kv_heads": 1},
    "derf": {"placement": "sub", "norm_kind": "derf", "activation": "relu"},
    "derf, capped": {"placement": "sub", "norm_kind": "derf", "logit_softcap": 5.0},
    "capped": {"placement": "sub", "logit_softcap": 5.0, "activation": "identity"},
    "like llama": {"norm_kind": "rmsnorm", "activation": "swiglu", "rotary_base": 1e4, "num_kv_heads": 2},
    "queries normed": {"has_qk_norm": True, "activation": "reglu", "head_size": 20, "ffn_width": 50},
    "parallel": {"encoder": side_by_side(alternating(4))},
    "layer scale": {"encoder": alternating(4, has_layer_scale=True, branch_weight=0.1), "activation": "geglu"},
    "branch weight": {"encoder": alternating(4, trains_branch_weight=True, norms=frozenset({"pre", "branch", "post"}))},
    "scaled": {"encoder": alternating(4, input_scale=0.5, residual_weight=2.0), "embedding_multiplier": 8.0},
    "two streams": {"placement": "post", "has_second_stream": True},
}


def changed(name: str) -> TrainConfig:
    return replace(BASE, model=replace(MODEL, norm_eps=1e-5, **CHANGES[name]))


ALL = {name: changed(name) for name in CHANGES}
ALL["translation"] = replace(ALL["pre"], model=replace(MODEL, norm_eps=1e-5, decoder=decoder_layers(3)))
ALL["causal"] = replace(ALL["pre"], model=replace(MODEL, norm_eps=1e-5, is_causal=True), data=DataConfig())
AGAIN = replace(ALL["pre"], model=replace(ALL["pre"].model, recomputes=True))
ALL["speech"] = replace(ALL["like llama"], data=DataConfig(name="speech"))
WHERE = ({"pre", "branch"}, {"post"}, {"pre"}, {"post"})
MIXED = [replace(one, norms=frozenset(places)) for one, places in zip(MODEL.encoder, WHERE, strict=True)]
ALL["norms that differ"] = replace(BASE, model=replace(MODEL, norm_eps=1e-5, encoder=tuple(MIXED)))


@pytest.fixture(autouse=True, scope="module")
def _pairs(tmp_path_factory: pytest.TempPathFactory) -> None:
    ALL["translation"] = replace(ALL["translation"], data=own_parallel(tmp_path_factory.mktemp("pairs")))


def together(config: TrainConfig) -> _Together:
    return _Together([_Run(config, load(config.data))], "cpu")


def kept_bytes(run: _Together) -> int:
    """Of what autograd keeps for the backward pass, each storage once, the parameters left out."""
    own = {parameter.untyped_storage().data_ptr() for parameter in run.network.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(x: Tensor) -> Tensor:
        if (place := x.untyped_storage().data_ptr()) not in own:
            kept[place] = x
        return x

    with saved_tensors_hooks(keep, lambda x: x):
        run._losses(run._batches(0))
    return sum(x.untyped_storage().nbytes() for x in kept.values())


@pytest.mark.parametrize(("name", "precision"), often(product(ALL, PRECISIONS), 21, wide=7))
def test_activations_are_what_torch_keeps(name: str, precision: str) -> None:
    config = replace(ALL[name], precision=precision)
    planned = memory_of_training(config, load(config.data)).activations
    assert planned + 8 == kept_bytes(together(config))  # with the number of labels


def test_activations_where_sublayers_are_computed_again() -> None:
    """Their inputs, and all of one sublayer besides, which torch keeps only on the way back."""
    config, data = ALL["pre"], load(BASE.data)
    shorter = replace(config, model=replace(config.model, encoder=config.model.encoder[:2]))
    again, short, kept = (
        memory_of_training(one, data, recomputes=recomputes).activations
        for one, recomputes in ((config, True), (shorter, False), (shorter, True))
    )
    inputs = 4 * BASE.batch_size * data.num_positions * MODEL.d_model
    assert again == kept + 2 * inputs
    several = config.model.encoder[:2]
    inside = []
    for sublayer in several:
        one, two = (replace(config, model=replace(config.model, encoder=(sublayer,) * num)) for num in (1, 2))
        inside.append(kept_bytes(together(two)) - kept_bytes(together(one)))
    assert again + 8 == kept_bytes(together(AGAIN)) + max(inside)
    assert again < short + 4 * inputs


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_keep_so_much(name: str) -> None:
    config = replace(BASE, optimizer=name, model=replace(MODEL, norm_eps=1e-5))
    run = together(config)
    next(run.steps())
    optimizer = run.weights._optimizer if isinstance(run.weights, Rows) else run.weights._members[0].optimizer
    kept = sum(
        value.numel()
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, Tensor) and value.numel() > 1
    )
    assert kept == sum(states_of(name, tensor) for tensor in parameters_of(config.model, load(config.data)))


FAST = {("sgd", 64), ("lamb", 1)}
WIDE = {("muon", 1)}


@pytest.mark.parametrize(
    ("name", "batch_size"),
    [
        pytest.param(*one, marks=() if one in FAST else pytest.mark.wide if one in WIDE else pytest.mark.slow)
        for one in product(OPTIMIZERS, (1, 64))
    ],
)
def test_the_peak_of_a_step(name: str, batch_size: int) -> None:
    """Of all tensors that are alive at once, where weights take the most and where activations do."""
    model = replace(MODEL, encoder=alternating(2), norm_eps=1e-5, d_model=96)
    config = replace(BASE, model=model, optimizer=name, batch_size=batch_size)
    config = replace(config, evaluate_every=100, num_steps=3)
    next(together(config).steps())  # what a process makes once is none of a run's
    with Peak() as peak:
        steps = together(config).steps()
        next(steps)  # which makes what the optimizer keeps
        peak.most = 0
        next(steps)
    assert memory_of_training(config, load(config.data)).total == pytest.approx(peak.most, rel=0.1)


def counted_flops(run: _Together) -> tuple[int, int]:
    """Of the forward and of the backward pass."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as forward:
        loss = run._losses(run._batches(0))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as backward:
        run.weights.take_gradients(loss.sum())
    return forward.get_total_flops(), backward.get_total_flops()


@pytest.mark.parametrize("name", often(ALL, 6, wide=1))
def test_parameters_and_flops_are_those_that_torch_counts(name: str) -> None:
    run, planned = together(ALL[name]), plan(ALL[name], load(ALL[name].data), NODE)
    counted: Counter[str] = Counter()
    for _, parameter, role, _ in run.network.tagged():
        counted[role] += parameter.numel()
    assert planned.by_role == counted
    assert counted_flops(run) == (planned.flops.forward, planned.flops.backward)


def test_flops_of_a_forward_pass_that_is_computed_again() -> None:
    flops = flops_of_step(AGAIN, load(BASE.data))
    assert counted_flops(together(AGAIN)) == (flops.forward, flops.backward + flops.again)

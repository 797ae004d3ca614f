"""What runs would take, before they run: ``depthlaw train --plan`` and the page of large models, as plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from depthlaw.network.trials import common
from depthlaw.system.files import document

if TYPE_CHECKING:
    from depthlaw.network.trials import Trial
    from depthlaw.sims.training.frontend import Shape
    from depthlaw.sims.training.plan import Hardware, Memory, Plan
    from depthlaw.sims.training.train import TrainConfig


def document_of_plans(
    trials: Sequence[Trial], hardware: Hardware, nodes: Sequence[int], *, vocabulary: int | None = None
) -> dict[str, Any]:
    """What each scheme under each optimizer at each depth would take: seeds and learning rates change nothing."""
    different = {(trial.scheme, trial.optimizer, trial.sides): trial for trial in reversed(trials)}
    rows = [planned_trial(trial, hardware, nodes, vocabulary=vocabulary) for trial in different.values()]
    return document(config=common(vars(trials[0])), hardware=asdict(hardware), rows=rows[::-1])


def planned_trial(
    trial: Trial, hardware: Hardware, nodes: Sequence[int], *, vocabulary: int | None = None
) -> dict[str, Any]:
    """JSON: a run on these numbers of nodes. vocabulary: the tokens of each side, in place of the data's own."""
    from depthlaw.sims.training.data import load

    config = trial.lower()
    data = load(config.data)
    if vocabulary is not None:
        if not data.vocab_size:
            raise ValueError(f"a vocabulary is of tokens, and the shape {trial.shape} has none")
        data = replace(
            data,
            vocab_size=vocabulary,
            num_classes=vocabulary,
            decoder_vocab_size=vocabulary if data.has_decoder else 0,
        )
    layers = {"num_layers": trial.num_layers}
    if trial.arch == "encoder-decoder":
        layers["num_decoder_layers"] = trial.sides[1]
    return {"scheme": trial.scheme, "optimizer": trial.optimizer, **layers, **planned(config, data, hardware, nodes)}


def planned(config: TrainConfig, shape: Shape, hardware: Hardware, nodes: Sequence[int]) -> dict[str, Any]:
    """JSON of one configuration, as ``planned_trial``."""
    from depthlaw.sims.training.plan import parameters_of, plan

    tensors = parameters_of(config.model, shape)
    plans = [plan(config, shape, replace(hardware, num_nodes=num), tensors) for num in nodes]
    first = plans[0]
    flops = first.flops._asdict()
    return {
        "num_parameters": first.num_parameters,
        "parameters": dict(first.by_role),
        "tokens": first.tokens,
        "flops": flops | {"per_token": (first.flops.forward + first.flops.backward) / first.tokens},
        "nodes": [_on_nodes(plan) for plan in plans],
    }


def _on_nodes(plan: Plan) -> dict[str, Any]:
    return {
        "num_nodes": plan.hardware.num_nodes,
        "num_devices": plan.hardware.num_devices,
        "received": {"weights": 2 * plan.gathered, "gradients": plan.reduced},
        "as_it_is": _of_way(plan, plan.memory, recomputes=False),
        "recomputing": _of_way(plan, plan.recomputing, recomputes=True),
    }


def _of_way(plan: Plan, memory: Memory, *, recomputes: bool) -> dict[str, Any]:
    low, high = plan.seconds(recomputes=recomputes)
    return {
        "memory": memory._asdict() | {"total": memory.total},
        "feeds_all": plan.feeds_all,
        "fits": plan.fits(memory),
        "seconds": {"low": low, "high": high},
    }


def gigabytes(number: float) -> str:
    """With three digits, all before the point and at most three behind it.

    >>> from depthlaw.network.planned import gigabytes
    >>> gigabytes(4.0612e12), gigabytes(3.2e8), gigabytes(4.27e7), gigabytes(5.72e4), gigabytes(0)
    ('4,061', '0.32', '0.043', '<0.001', '0')
    """
    number /= 1e9
    if 0 < number < 0.0005:
        return "<0.001"
    return f"{number:,.0f}" if number >= 99.95 else f"{number:.3g}" if number >= 0.1 else f"{round(number, 3):g}"

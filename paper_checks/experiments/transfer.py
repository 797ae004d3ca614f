"""Does the advice pay? Tune a rate at 4 layers, go deeper with each remedy of ``advise``, and look at the loss.

Decoders on bytes, five under AdamW and three under Muon beside it, and a ViT on images are trained at 4, 16 and 32
layers, each at eight learning rates, an octave apart, the same at every depth. The deeper ones are trained as they are,
and with the remedies that ``advise`` prints for them from 4 layers on: plain numbers, kept in
``results/remedies.json``; ``python -m depthlaw.paper_checks.experiments.transfer`` writes them anew.

The plan, written before the first run that is counted:

- A run's loss is its held-out loss at the end, in nats; of a run that diverged the loss of guessing without the input,
  which is what one has then.
- The tuned rate: that of the least mean loss at 4 layers. The best rate of a remedy at a depth: that of its least mean
  loss there. Of each seed both are chosen by the other seeds, so that no run is judged by the choice that it made.
  Every number below is one of each seed, and its interval is Student's over the seeds.
- What a remedy gains: the loss of the deeper model as it is less the loss with the remedy, both at the tuned rate. The
  advice pays in a model if the interval of the gain of ``learning-rates``, the first answer of ``advise``, at the
  largest depth lies above 0; it costs if the interval lies below 0.
- What transfer costs with a remedy: its loss at the tuned rate less that at its own best rate. What the remedy costs:
  its loss at its own best rate less that of the best of all remedies and rates there. A cost is none if its interval
  lies below NONE nats, and it is one if the interval lies above it.
- Which law moves the best rate of a model as it is: the slope of log2(best rate) on log2(N) over the depths, as
  ``best_rates`` has it, beside three predictions: minus the slope of the first step's update; minus that of the law
  after the start that was nearest in ``after_start`` (aligned), at the tuned rate after a tenth of the steps; and no
  move. The nearest is that of the least root mean square distance over the models, and it is better than another if the
  interval of the difference, paired by seed, leaves out 0.
- --scale small is 32 wide and 120 steps, and has 4 and 32 layers; wide is twice as wide, and large, for a GPU, 64 wide
  and four times as long.
  Warm-up over a tenth of the steps, then a cosine to 0. Grids do not move afterwards.

Muon beside AdamW, planned when the runs under AdamW were there and none under Muon was but those of a first look
(seed 1000, 4 layers, powers of 2 from -11 to -1: the least loss was at 2^-4, 2^-5 and 2^-4):

- Three of the models, trained in the order of ``MODELS``: one is whole before the next begins. Nothing, and the three
  remedies that ``advise`` prints for all of them under this optimizer; grids with the best rate of the first look in
  the upper half, three octaves below their end. All else, and every number, as above.
- Which law moves the best rate: the law that was nearest in ``after_start`` under this optimizer is that of the first
  step itself, so that there are two predictions, it and no move.
- A model of fewer than LEAST_SEEDS seeds is said to have so few.

Another task, planned when all of the above was there and none of this but a first look (seed 1000, 4 layers, powers of
2 from -12 to -3: the least loss was at 2^-6, with 2^-7 beside it):

- The ViT of the recipes under AdamW on masked patches of digits (``vit-masked``), an encoder whose tokens are vectors
  and whose loss is over the patches that it does not see. All of it, and every number, as above, but that no law of how
  the best rate moves is held against it: those are derived for the decoders' text.

Longer runs, planned when all of the above was there and none of these but a first look (pre-ln, seed 1000, 4 layers,
powers of 2 from -11 to -4: the least loss was at 2^-6, as in the short runs; its interval of the gain of
``learning-rates`` there was [0.002, 0.039] nats, of ``depth-mup`` [0.111, 0.248]):

- Two of the decoders under AdamW are trained ``LONGER`` times as long, at the rate that the short runs tuned at 4
  layers and an octave below it: as they are, with the first answer of ``advise``, and with depth-mup. 3 seeds.
  Every number as above, of the two rates.
- A gain lasts if the interval of the longer runs lies above 0, too; it is gone if the interval has 0. No law of how the
  best rate moves is asked: two rates do not tell.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from depthlaw.network.trials import OF_RECIPE, Change, Trial
from depthlaw.paper_checks.experiments.after_start import ADAMW, MUON
from depthlaw.paper_checks.experiments.base import LEAST_SEEDS, Arm, Book, Experiment, Plan
from depthlaw.paper_checks.experiments.scale import HEAD_SIZE, SMALL, WIDE, Scale
from depthlaw.system.files import write_atomically
from depthlaw.system.places import RESULTS

TUNED, DEEPER = 4, (16, 32)
NOTHING = "nothing"
_EVERY = (NOTHING, "learning-rate", "learning-rates", "depth-mup")
_BEFORE, _BEHIND = (*_EVERY, "completep"), (*_EVERY, "su-adam")
_GPT2, _LLAMA2, _VIT = (f"{OF_RECIPE}{name}" for name in ("gpt2", "llama-2", "vit"))
LONGER = 10
LONG = f"{ADAMW}, {LONGER} times as long"
"""Stands where an optimizer's name does, for AdamW's longer runs."""
MODELS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    ADAMW: {
        **dict.fromkeys((_GPT2, _LLAMA2, "pre-ln"), _BEFORE),
        **dict.fromkeys(("post-ln", "deepnorm"), _BEHIND),
        _VIT: _BEFORE,
    },
    MUON: dict.fromkeys((_GPT2, _LLAMA2, "pre-ln"), _EVERY),
    LONG: dict.fromkeys(("pre-ln", _GPT2), (NOTHING, "learning-rates", "depth-mup")),
}
"""By optimizer, or ``LONG``, the remedies of each. Those of AdamW hang on whether norms stand before the branches, or
behind the sums."""
_HIGHEST = {
    ADAMW: {_GPT2: -6, _LLAMA2: -5, "pre-ln": -4, "post-ln": -7, "deepnorm": -6, _VIT: -4},
    MUON: {_GPT2: -1, _LLAMA2: -2, "pre-ln": -1},
}
"""Powers of 2. Under AdamW in a first look (seed 1000, 4 layers, 300 steps) the least loss was at 2^-9, 2^-8, 2^-6 and
2^-9 for the first four: each grid has it in its upper half, since deeper models want lower rates where anything
moves."""
RATES = {
    optimizer: {model: tuple(2.0**power for power in range(top - 7, top + 1)) for model, top in highest.items()}
    for optimizer, highest in _HIGHEST.items()
} | {LONG: {"pre-ln": (2.0**-7, 2.0**-6), _GPT2: (2.0**-9, 2.0**-8)}}
_CASES = tuple((optimizer, model) for optimizer, models in MODELS.items() for model in models)
SHAPES = {_VIT: "vit-masked"}
"""What a model is trained on (``network.trials``), where that is no text of a decoder's."""
OF_TEXT = tuple((optimizer, model) for optimizer, model in _CASES if model not in SHAPES and optimizer != LONG)
"""Those that laws of how the best rate moves are held against."""
WEIGHT_DECAY = 0.01
NONE = 0.05
"""Nats that a cost has to be above to be one."""
NUM_STEPS = 120
_KEPT = RESULTS / "remedies.json"
_LONG = replace(WIDE, name="large", more=4)


def arm_name(model: str, num_layers: int, remedy: str, rate: float, optimizer: str = ADAMW) -> str:
    return f"{model} {num_layers} {remedy} at 2^{math.log2(rate):g}" + f" {optimizer}" * (optimizer != ADAMW)


def of_depth(model: str, num_layers: int, optimizer: str = ADAMW) -> tuple[str, ...]:
    """The remedies that are trained there; the tuned model has none."""
    return MODELS[optimizer][model] if num_layers > TUNED else (NOTHING,)


def cases(scale: Scale) -> tuple[tuple[str, str], ...]:
    """Optimizers and models."""
    return tuple((optimizer, model) for optimizer, model in _CASES if optimizer != LONG or scale == SMALL)


def depths(scale: Scale) -> tuple[int, ...]:
    return TUNED, *(DEEPER[-1:] if scale == SMALL else DEEPER)


def make(scale: Scale) -> Experiment:
    scale = scale if scale in (SMALL, WIDE) else _LONG
    arms = []
    for optimizer, model in cases(scale):
        shared = scale.shared(NUM_STEPS * (LONGER if optimizer == LONG else 1), warmup=0.1)
        shared |= {"weight_decay": WEIGHT_DECAY, "schedule": "cosine", "evaluate_every": shared["num_steps"]}
        shared |= {"optimizer": ADAMW if optimizer == LONG else optimizer, "shape": SHAPES.get(model, "gpt")}
        for layers in depths(scale):
            for remedy in of_depth(model, layers, optimizer):
                key = scale.d_model, shared["optimizer"], model, layers, remedy
                change = None if remedy == NOTHING else kept()[key]
                trial = Trial(scheme=model, num_layers=layers, change=change, **shared)
                arms += [
                    Arm(name=arm_name(model, layers, remedy, rate, optimizer), trial=replace(trial, learning_rate=rate))
                    for rate in RATES[optimizer][model]
                ]
    return Experiment(
        name="transfer",
        question="Does a learning rate that was tuned at 4 layers do at 32, with each remedy of advise?",
        claims=(),
        arms=tuple(arms),
        pilot=(),
        plan=_plan,
    )


def _plan(_: Book) -> Plan:
    return Plan(LEAST_SEEDS, f"{LEAST_SEEDS} seeds, five hours of one core at the small scale.")


# ---------------------------------------------------------------- the remedies in numbers


@cache
def kept() -> dict[tuple[int, str, str, int, str], Change]:
    """By width, optimizer, model, layers and name. FileNotFoundError where they were never written."""
    rows = json.loads(_KEPT.read_text(encoding="utf-8"))
    return {
        (row["d_model"], row["optimizer"], row["model"], row["layers"], row["name"]): Change(
            name=row["name"], from_layers=row["from_layers"], numbers=tuple(row["numbers"].items())
        )
        for row in rows
    }


def derived(d_model: int, model: str, num_layers: int, optimizer: str = ADAMW) -> Iterator[Change]:
    """The remedies as ``advise`` gives them now."""
    from depthlaw.advice.advice import advise

    whose = {"recipe": model.removeprefix(OF_RECIPE)} if model.startswith(OF_RECIPE) else {"scheme": model}
    shape: dict[str, Any] = {"width": d_model, "num_heads": d_model // HEAD_SIZE}
    advice = advise(optimizer=optimizer, from_layers=TUNED, layers=num_layers, **whose, **shape)
    for name in MODELS[optimizer][model][1:]:
        remedy = advice.named(name)
        yield Change.between(name, TUNED, advice.deep.config(optimizer), remedy.config, remedy.own_rates)


def write() -> None:
    rows = [
        {"d_model": width, "optimizer": optimizer, "model": model, "layers": layers}
        | {"name": change.name, "from_layers": change.from_layers, "numbers": dict(change.numbers)}
        for width in (SMALL.d_model, WIDE.d_model)
        for optimizer, model in _CASES
        if optimizer != LONG
        for layers in DEEPER
        for change in derived(width, model, layers, optimizer)
    ]
    write_atomically(_KEPT, "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    write()

"""Does the advice pay? Tune a rate at 4 layers, go deeper with each remedy of ``advise``, and look at the loss.

Seven decoders on bytes, under AdamW and under Muon beside it, and a ViT on images are trained at 4, 16 and 32 layers,
each at eight learning rates, an octave apart, the same at every depth. The deeper ones are trained as they are, and
with the remedies that ``advise`` prints for them from 4 layers on: plain numbers, kept in ``results/remedies.json``;
``python -m depthlaw.paper_checks.experiments.transfer`` writes them anew.

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

- Three of the models, trained in the order of ``CASES``: one is whole before the next begins. Nothing, and the three
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

Post-norm under Muon, and halfway, planned when all of the above was there and none of these but a first look (seed
1000, 4 layers, powers of 2 from -11 to -1 under Muon: the least loss was at 2^-6 for post-ln and at 2^-5 for deepnorm):

- post-ln and deepnorm are trained under Muon as the three models above, with the remedies that they have under AdamW.
- At the small scale the five decoders under AdamW have 16 layers, too, with every remedy, at the rates of their 32
  layers. At least 3 seeds. Gains and costs as above; which law moves the best rate is asked of 4 and 32 layers alone.
  What a remedy gains grows with depth if the interval of its gain at 32 layers less that at 16, paired by seed, lies
  above 0; it shrinks if the interval lies below 0.

The first three models under Muon ran when its products on a CPU were bfloat16's own, the others when they were
float32's, rounded to bfloat16: the same but for rounding.

Two more decoders, and what Muon lacked, planned when all of the above was there and none of these but a first look
(seed 1000, 4 layers, powers of 2 from -12 to -4 under AdamW and from -9 to 1 under Muon: the least loss was at 2^-7 and
2^-5 for gpt2-openai, at 2^-8 and 2^-5 for llama-3):

- gpt2-openai, pre-norm with every matrix at 0.02, and llama-3, with four heads of 8 that share one of keys, are trained
  under both optimizers with the remedies that the other pre-norm decoders have under AdamW, and the 16 layers of the
  small scale: at least 3 seeds, and grids that end three octaves above the first look's.
- gpt2, llama-2 and pre-ln have completep under Muon, too, at the rates that they have; and all seven decoders have 16
  layers under Muon. Every number as above. Which law moves the best rate is asked anew, of all seven.

In most of these runs under Muon the step of AdamW beside it was one call for all vectors: the same but for rounding.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
LONGER = 10
NUM_RATES = 8
WEIGHT_DECAY = 0.01
NONE = 0.05
"""Nats that a cost has to be above to be one."""
_NUM_STEPS = 120
_KEPT = RESULTS / "remedies.json"
_LONG = replace(WIDE, name="large", more=4)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is trained of a model: at ``rates``, with the depths ``layers``, of which the first is the one that is
    tuned, and with remedies at the others. shape: as in ``network.trials``. head_size: d_model over the number of
    heads. times: as many times as long as the others. experiment: whose runs they are."""

    model: str
    optimizer: str
    rates: tuple[float, ...]
    remedies: tuple[str, ...]
    layers: tuple[int, ...] = (TUNED, *DEEPER)
    shape: str = "gpt"
    head_size: int = HEAD_SIZE
    times: int = 1
    experiment: str = "transfer"

    @property
    def name(self) -> str:
        return self.model.removeprefix(OF_RECIPE)

    @property
    def longer(self) -> str:
        """Empty, but where it is trained for longer."""
        return f", {self.times} times as long" * (self.times > 1)

    @property
    def is_halfway(self) -> bool:
        """Whether it ends at the smaller of both larger depths."""
        return self.layers[-1] == DEEPER[0]

    @property
    def is_main(self) -> bool:
        """Whether it is what README tells of a model: as long as most, and as deep as any."""
        return self.times == 1 and not self.is_halfway

    @property
    def is_judged(self) -> bool:
        """Whether laws of how the best rate moves are held against it: they are derived for decoders of text, two rates
        do not tell, and halfway is not asked."""
        return len(self.rates) > 2 and self.shape.startswith("gpt") and not self.is_halfway

    def ways(self, num_layers: int) -> tuple[str, ...]:
        """As it is, and with each remedy: the tuned model has none."""
        return (NOTHING, *self.remedies) if num_layers > self.layers[0] else (NOTHING,)

    def arm_name(self, num_layers: int, way: str, rate: float) -> str:
        of_optimizer = f" {self.optimizer}" * (self.optimizer != ADAMW)
        return f"{self.model} {num_layers} {way} at 2^{math.log2(rate):g}{of_optimizer}{self.longer}"

    def arms(self, scale: Scale) -> Iterator[Arm]:
        shared = scale.shared(_NUM_STEPS * self.times, warmup=0.1)
        shared |= {"weight_decay": WEIGHT_DECAY, "schedule": "cosine", "evaluate_every": shared["num_steps"]}
        shared |= {"optimizer": self.optimizer, "shape": self.shape, "num_heads": scale.d_model // self.head_size}
        for layers in self.layers:
            for way in self.ways(layers):
                change = None if way == NOTHING else kept()[scale.d_model, self.optimizer, self.model, layers, way]
                trial = Trial(scheme=self.model, num_layers=layers, change=change, **shared)
                for rate in self.rates:
                    yield Arm(name=self.arm_name(layers, way, rate), trial=replace(trial, learning_rate=rate))


def below(power: int, num_rates: int = NUM_RATES) -> tuple[float, ...]:
    """So many rates, an octave apart, up to that power of 2."""
    return tuple(2.0**k for k in range(power - num_rates + 1, power + 1))


_EVERY = "learning-rate", "learning-rates", "depth-mup"
_BEFORE, _BEHIND = (*_EVERY, "completep"), (*_EVERY, "su-adam")
"""Under AdamW they hang on whether norms stand before the branches, or behind the sums."""
GPT2, LLAMA2, _VIT, _PLAIN, _LLAMA3 = (
    f"{OF_RECIPE}{name}" for name in ("gpt2", "llama-2", "vit", "gpt2-openai", "llama-3")
)
CASES = (
    # Under AdamW in a first look (seed 1000, 4 layers, 300 steps) the least loss was at 2^-9, 2^-8, 2^-6 and 2^-9 for
    # the first four: each grid has it in its upper half, since deeper models want lower rates where anything moves.
    Case(model=GPT2, optimizer=ADAMW, rates=below(-6), remedies=_BEFORE),
    Case(model=LLAMA2, optimizer=ADAMW, rates=below(-5), remedies=_BEFORE),
    Case(model="pre-ln", optimizer=ADAMW, rates=below(-4), remedies=_BEFORE),
    Case(model="post-ln", optimizer=ADAMW, rates=below(-7), remedies=_BEHIND),
    Case(model="deepnorm", optimizer=ADAMW, rates=below(-6), remedies=_BEHIND),
    Case(model=_PLAIN, optimizer=ADAMW, rates=below(-4), remedies=_BEFORE),
    Case(model=_LLAMA3, optimizer=ADAMW, rates=below(-5), remedies=_BEFORE, head_size=8),
    Case(model=_VIT, optimizer=ADAMW, rates=below(-4), remedies=_BEFORE, shape="vit-masked"),
    Case(model=GPT2, optimizer=MUON, rates=below(-1), remedies=_BEFORE),
    Case(model=LLAMA2, optimizer=MUON, rates=below(-2), remedies=_BEFORE),
    Case(model="pre-ln", optimizer=MUON, rates=below(-1), remedies=_BEFORE),
    Case(model="post-ln", optimizer=MUON, rates=below(-3), remedies=_BEHIND),
    Case(model="deepnorm", optimizer=MUON, rates=below(-2), remedies=_BEHIND),
    Case(model=_PLAIN, optimizer=MUON, rates=below(-2), remedies=_BEFORE),
    Case(model=_LLAMA3, optimizer=MUON, rates=below(-2), remedies=_BEFORE, head_size=8),
    Case(model="pre-ln", optimizer=ADAMW, rates=(2.0**-7, 2.0**-6), remedies=_EVERY[1:], times=LONGER),
    Case(model=GPT2, optimizer=ADAMW, rates=(2.0**-9, 2.0**-8), remedies=_EVERY[1:], times=LONGER),
)


def cases(scale: Scale) -> tuple[Case, ...]:
    """At the small scale one of the larger depths is beside the tuned one; the longer runs, and halfway, are there
    alone."""
    once = tuple(case for case in CASES if case.times == 1)
    if scale != SMALL:
        return once
    halfway = (replace(case, layers=(TUNED, DEEPER[0])) for case in once if case.shape == "gpt")
    return (*(replace(case, layers=(TUNED, DEEPER[-1])) for case in CASES), *halfway)


def make(scale: Scale) -> Experiment:
    scale = scale if scale in (SMALL, WIDE) else _LONG
    return Experiment(
        name="transfer",
        question="Does a learning rate that was tuned at 4 layers do at 32, with each remedy of advise?",
        claims=(),
        arms=tuple(dict.fromkeys(arm for case in cases(scale) for arm in case.arms(scale))),
        pilot=(),
        plan=_plan,
    )


def _plan(_: Book) -> Plan:
    return Plan(LEAST_SEEDS, f"{LEAST_SEEDS} seeds of each.")


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


def derived(d_model: int, case: Case, num_layers: int) -> Iterator[Change]:
    """The remedies as ``advise`` gives them now."""
    from depthlaw.advice.advice import advise

    whose = {"recipe": case.name} if case.model.startswith(OF_RECIPE) else {"scheme": case.model}
    shape: dict[str, Any] = {"width": d_model, "num_heads": d_model // case.head_size}
    advice = advise(optimizer=case.optimizer, from_layers=TUNED, layers=num_layers, **whose, **shape)
    for name in case.remedies:
        remedy = advice.named(name)
        yield Change.between(name, TUNED, advice.deep.config(case.optimizer), remedy.config, remedy.own_rates)


def write() -> None:
    rows = [
        {"d_model": width, "optimizer": case.optimizer, "model": case.model, "layers": layers}
        | {"name": change.name, "from_layers": change.from_layers, "numbers": dict(change.numbers)}
        for width in (SMALL.d_model, WIDE.d_model)
        for case in CASES
        if case.times == 1
        for layers in DEEPER
        for change in derived(width, case, layers)
    ]
    write_atomically(_KEPT, "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    write()

"""After the first step: for how long does the depth law of the first step live, and which law comes after it?

Decoders on bytes, 64 wide, of 4 to 32 layers, at a constant rate without warm-up. At some steps it is measured what the
step that the optimizer really takes changes in held-out logits by the matrices of the branches, per unit rate, to first
order (``sims.training.train.Moves``): U_t. Five ways to build the network, under AdamW at a rate and, of three, at a
quarter of it; three under Muon beside AdamW, whose steps take long here, so that they are few and the rate is larger;
and three under SGD with momentum.

The plan, written before the first run that is counted. A first look was at pre-ln of 4 and 16 layers, AdamW at 2^-8, 12
steps, 4 seeds: there U_t fell from a slope of 0.9 to none within 2 steps, and the stream at the end of 16 layers grew
to 25 times its beginning within 10 steps, as if the branches all pushed in one direction. The fifth law below and the
third unit were thought of then.

- The slope of a seed at a step: of log2 U_t on log2 N over 4, 8, 16 and 32 layers, by least squares. Intervals are
  Student's over the seeds.
- How long, in a scheme whose slope at step 0 is above FLAT: until the slope is half of what it was at step 0,
  interpolated in log2(1 + step) between looks, of each seed. Of a scheme that is flat at step 0 (an interval within
  FLAT of 0), at which looks it is not flat any more (an interval outside of FLAT of 0).
- In which unit: a cell is a scheme, depth and rate under AdamW. Its life is the step at which U_t is first half of U_0,
  interpolated likewise; cells in which that does not happen are counted and left out. Three units of time: steps;
  (rate x steps)/(root mean square of fc2's weights at step 0); and rate x steps x U_0, which is 1 when the first step's
  law, were it true for so long, would have changed the logits by 1, and so contradicts itself. For each seed the
  standard deviation over the cells of log2(life) in each unit. The unit with the least has the law if its interval lies
  below those of both others; if it lies below COLLAPSE octaves, the curves fall together.
- Which law: the mean slope of a seed over the looks from LATE on (of Muon: over its last two), beside five laws that
  are derived without a fitted constant, as slopes over the same depths (``theory.kernel.after_start``), the scale that
  the optimizer made at the middle one of these looks (``made``): (first) of the first step;
  (forgotten) each matrix of a branch has the same scale at every depth, times its learning-rate multiplier, and
  multipliers stay; (noise) the step's direction is independent of what is measured, so that parts add in quadrature;
  (both) of these; (aligned) forgotten, and what branches add to the stream adds up in amplitude instead of in
  quadrature. A law holds of a scheme if the interval, widened by NEAR on either side, has its slope. The law with the
  least root mean square distance over the schemes is the nearest; it is better than another if the interval of the
  difference, paired by seed, leaves out 0.

Signal and noise, planned when all of the above was there and no run had them:

- Three of the schemes under AdamW (pre-ln, gpt2, depth-mup) are trained anew, so that each look also has two parts of
  the step: along the gradient of its own batch, and what another batch in its place would not have brought (``Moves``).
- Numbers of a seed at a step: the share of U_t squared that is not shared with another batch, and the share along the
  own gradient, means over the depths; of what the step takes off the loss of its own batch the part that it takes off
  the other one's; and of the latter its share of what it would be if every entry had the sign for it (agreement), and
  what it is over the root of its entries' squares (over independent), which is about 1 or less where the directions of
  the step and of that gradient have nothing to do with each other. Sums over the depths.
- The law of noise takes them to be so: it is contradicted where the interval of the last number, mean over the late
  looks, lies above INDEPENDENT. The law of the first step takes every entry to have the sign: it is contradicted where
  the interval of the agreement lies below AGREED.

SGD with momentum, planned when all of the above was there and none of this but a first look (pre-ln, seed 1000, 4 and
32 layers, powers of 2 from -7 to 0: the least loss was at 2^-3 and 2^-4, and 2^-1 diverged at both):

- The same three at a rate of 2^-4, all else as under AdamW. Every number as above, but that no law but that of the
  first step is held against it: its steps have no length of their own, and what they make of a weight hangs on the
  gradients' size. Units of time, signal and noise are of AdamW alone, as above.

Is the unit one elsewhere? Planned when all of the above was there and none of this, to test what was found: lives
scatter least in rate x steps x U_0, around 1.

- Two sets that the unit was not found on, under AdamW. Other decoders (OTHERS), the rest of the schemes and recipes of
  ``best_rates``, all else as above. And training as people do it (SCHEDULED): the rate is a peak that is reached after
  WARMUP steps, a cosine takes it to 0, gradients are clipped to a norm of 1, and the decay is ten times as strong. Time
  is then the sum of the rates of the steps so far in place of rate x steps.
- Of each set and seed, over its networks that have a life in that unit: the mean of log2(life) less that of the
  networks that the unit was found on, and the standard deviation. The unit holds in a set if the interval of the first
  lies within COLLAPSE of 0 and that of the second below COLLAPSE; it fails if either interval lies outside. No number
  above has these runs in it.

The rest of the grid, and the step in full by role, planned when all of the above was there and none of this, without a
first look:

- What had been trained under AdamW alone is trained under Muon and under SGD with momentum, too (MORE), all else as
  above. Of these the numbers of a network are as above. Which law is nearest under Muon is asked anew, of all seven
  networks; no other number above has these runs in it.
- pre-ln, gpt2 and depth-mup under AdamW at the larger rate are trained anew, so that each look also has what the step
  of a role alone changes in full (``Moves.in_full``); their other numbers are those of the new runs. Of a seed, a role
  and a look: the slope of that on log2 N over the depths, beside the slope to first order, and the ratio of the two
  changes at the largest depth. A role's growth is another one in full where the interval of the difference of the
  slopes, paired by seed, leaves out 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from depthlaw.network.trials import OF_RECIPE, Trial
from depthlaw.paper_checks.experiments.base import Arm, Book, Experiment, Plan
from depthlaw.paper_checks.experiments.scale import HEAD_SIZE, Scale

LAYERS = (4, 8, 16, 32)
ADAMW, MUON, MOMENTUM = "adamw", "muon+adamw", "momentum"
RATES = {ADAMW: 2.0**-9, MUON: 2.0**-7, MOMENTUM: 2.0**-4}
STEPS = {ADAMW: 96, MUON: 24, MOMENTUM: 96}
SLOW, SLOWER, SCHEDULED = "slow", 4, "scheduled"
"""Ways to train: at a rate so many times smaller, and with warm-up, a cosine and clipping."""


class Case(NamedTuple):
    """What is trained at every depth. way: SLOW, SCHEDULED, or empty: at the optimizer's rate, which is constant."""

    scheme: str
    optimizer: str = ADAMW
    way: str = ""

    @property
    def rate(self) -> float:
        return RATES[self.optimizer] / (SLOWER if self.way == SLOW else 1)

    def arm_name(self, num_layers: int) -> str:
        return " ".join(filter(None, (self.scheme, str(num_layers), self.optimizer, self.way)))


_THREE, _LLAMA = ("pre-ln", "gpt2", "depth-mup"), f"{OF_RECIPE}llama-2"
FAST = tuple(
    Case(scheme, optimizer)
    for optimizer, schemes in {
        ADAMW: (*_THREE, "completep", "deepnorm"),
        MUON: ("pre-ln", "depth-mup", "completep"),
        MOMENTUM: _THREE,
    }.items()
    for scheme in schemes
)
PLANNED = FAST + tuple(Case(scheme, way=SLOW) for scheme in _THREE)
"""Those that the unit of time and the law behind the first step were looked for in."""
OTHERS = tuple(Case(scheme) for scheme in ("su-pre-adam", _LLAMA))
AS_PEOPLE_DO = tuple(Case(scheme, way=SCHEDULED) for scheme in ("pre-ln", "gpt2", _LLAMA))
MORE = tuple(
    Case(scheme, optimizer)
    for optimizer, schemes in {MUON: ("gpt2", "deepnorm"), MOMENTUM: ("completep", "deepnorm")}.items()
    for scheme in (*schemes, "su-pre-adam", _LLAMA)
)
"""The rest of the grid."""
CASES = PLANNED + OTHERS + AS_PEOPLE_DO + MORE
FLAT, COLLAPSE, NEAR = 0.25, 0.5, 0.15
INDEPENDENT, AGREED = 2.0, 0.5
LATE = 32
MIDDLE = {ADAMW: 64, MUON: 16}
"""The look at which laws are asked what the optimizer made."""
WEIGHT_DECAY = 0.01
WARMUP = 24
SEEDS = 4


def looks(optimizer: str, more: int = 1) -> tuple[int, ...]:
    """Steps: 0, the powers of 2, and the last that a step follows."""
    last = STEPS[optimizer] * more - 1
    return (0, *(2**power for power in range(last.bit_length()) if 2**power < last), last)


def make(scale: Scale) -> Experiment:
    width = 2 * scale.d_model
    shared: dict[str, Any] = scale.shared(1) | {"d_model": width, "num_heads": width // HEAD_SIZE, "has_moves": True}
    shared |= {"batch_size": scale.batch_size // 2, "weight_decay": WEIGHT_DECAY}
    scheduled = {"warmup_steps": WARMUP * scale.more, "schedule": "cosine", "clip_norm": 1.0}
    scheduled |= {"weight_decay": 10 * WEIGHT_DECAY}
    arms = []
    for layers in LAYERS:
        for case in CASES:
            steps = STEPS[case.optimizer] * scale.more
            settings = shared | {"optimizer": case.optimizer, "learning_rate": case.rate}
            settings |= {"num_steps": steps, "evaluate_every": steps, "measure_at": looks(case.optimizer, scale.more)}
            settings |= scheduled if case.way == SCHEDULED else {}
            trial = Trial(scheme=case.scheme, num_layers=layers, **settings)
            arms.append(Arm(name=case.arm_name(layers), trial=trial))
    return Experiment(
        name="after-start",
        question="For how long does the depth law of the first step live, and which law comes after it?",
        claims=(),
        arms=tuple(arms),
        pilot=(),
        plan=_plan,
    )


def _plan(_: Book) -> Plan:
    text = (
        f"{SEEDS} seeds, as many as two cores run in half an hour. In a first look the slope over two depths scattered "
        "between seeds by 0.04 at the first step and by up to 0.4 after it: these tell a slope of 0.9 from none."
    )
    return Plan(SEEDS, text)

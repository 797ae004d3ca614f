"""Which law moves the best rate, asked once more: on a width, depths, a text and seeds that no other experiment has.

``best_rates`` and ``transfer`` are 32 and 64 wide, of 4 to 32 layers, on the source of Python's library. A law that was
looked at there may fit what it was looked at on. Here three decoders are trained as they are, half as wide again, with
5 and 40 layers, on the pages that Python's help shows (prose with examples), with seeds from 100 on, each at eight
learning rates, an octave apart, the same at either depth.

The plan, written before the first run that is counted:

- A first look (seed 1000, 5 layers, powers of 2 from -12 to -3) had the least loss at 2^-8 (gpt2), 2^-8 (llama-2) and
  2^-6 (pre-ln): each grid ends three octaves above. Grids do not move afterwards. Steps, warm-up, schedule, decay,
  batches and AdamW are those of ``transfer``.
- The slope of a seed: of log2(best rate) on log2(N) over both depths, as ``best_rates`` has it. A least loss at an end
  of the grid is no optimum: that seed has no slope in that model.
- Three predictions, as in ``transfer``: minus the slope of the first step's update; minus that of the law after the
  start that was nearest in ``after_start`` (aligned), at the rate that was tuned at 5 layers (for each seed by the
  others), after a tenth of the steps; and no move. Both laws are computed without a fitted constant, at this width and
  for this text.
- In a model a law is refuted if the interval of the slope (Student's over the seeds) leaves out its prediction. It is
  asked of models in which every seed has a slope.
- The nearest law is that of the least root mean square distance, of each seed over the models in which it has a slope;
  it is better than another if the interval of the difference, paired by seed, leaves out 0. What ``transfer`` found
  holds here if the same law is nearest.
- 5 seeds. No remedy is trained: that is ``transfer``'s.

Longer runs, planned when all of the above was there and none of these. "No move" was nearest, but 40 layers had learnt
so little in 120 steps (3.07 to 3.18 nats at their best rates, guessing 3.30) that much of a best rate is chance; in
pre-ln, which had learnt most, the slope was -0.22 [-0.76, 0.32], and no law was refuted:

- pre-ln is trained ``LONGER`` times as long, at eight rates an octave lower, with the same depths, text and seeds.
  Which laws are refuted, and which is nearest, is asked of these runs alone, by the same rules.

A control, planned when four seeds of the longer runs were there (slope -0.51 [-0.66, -0.37], predicted by the first
step's law -0.60) and none of these:

- depth-mup, whose update is flat, is trained as long, on the same depths, text and seeds, from 2^-9 to 2^-2 (32 wide
  its best rates were 2^-4 and 2^-3.5). If the best rate of pre-ln falls because its update grows, that of depth-mup
  stays put: the interval of its slope leaves out the mean of pre-ln's, and lies within a quarter of 0, as
  ``best_rates`` has it. At least 3 seeds.

Longest runs, planned when all of the above was there and none of these. Two and a half times the longer runs, the best
rate of pre-ln may move as theirs did (-0.50 [-0.61, -0.38]), or less, as the later law says of all long runs, whose
start is forgotten:

- pre-ln is trained ``LONGEST`` times as long, on the same depths, text and seeds, at five rates from 2^-9 to 2^-5: 480
  steps had their least loss at 2^-6 (5 layers) and 2^-8 (40 layers), which lie within. Which laws are refuted, and
  which is nearest, is asked of these runs alone, by the same rules; how the slope changed from the longer runs, paired
  by seed. At least 3 seeds.
"""

from __future__ import annotations

from dataclasses import replace

from depthlaw.paper_checks.experiments.after_start import ADAMW
from depthlaw.paper_checks.experiments.base import LEAST_SEEDS, Book, Experiment, Plan
from depthlaw.paper_checks.experiments.scale import Scale
from depthlaw.paper_checks.experiments.transfer import GPT2, LLAMA2, NUM_RATES, Case, below

FIRST_SEED = 100
LONGER, LONGEST = 4, 10
CONTROL = "depth-mup"


def _case(model: str, highest: int, times: int = 1, num_rates: int = NUM_RATES) -> Case:
    own = {"layers": (5, 40), "shape": "gpt-help", "times": times, "experiment": "elsewhere"}
    return Case(model=model, optimizer=ADAMW, rates=below(highest, num_rates), remedies=(), **own)


PLANS = (
    (_case(GPT2, -5), _case(LLAMA2, -5), _case("pre-ln", -3)),
    (_case("pre-ln", -4, LONGER),),
    (_case(CONTROL, -2, LONGER),),
    (_case("pre-ln", -5, LONGEST, 5),),
)
"""Each is judged by itself."""
CASES = tuple(case for cases in PLANS for case in cases)


def wider(scale: Scale) -> Scale:
    return replace(scale, d_model=scale.d_model * 3 // 2)


def make(scale: Scale) -> Experiment:
    return Experiment(
        name="elsewhere",
        question="Which law moves the best learning rate on a width, depths, a text and seeds of their own?",
        claims=(),
        arms=tuple(arm for case in CASES for arm in case.arms(wider(scale))),
        pilot=(),
        plan=_plan,
        first_seed=FIRST_SEED,
    )


def _plan(_: Book) -> Plan:
    return Plan(LEAST_SEEDS, f"{LEAST_SEEDS} seeds of each, from {FIRST_SEED} on.")

"""Translation at 18L-18L: Post-LN with and without warm-up, beside DeepNorm, Post-LN-init, Admin and Magneto's three.

S3-42: Post-LN diverges where Pre-LN, NormFormer and Magneto train. DN-13: Post-LN-init trains where Post-LN does not.
S1-48: the deeper, the more likely a vanilla model is stuck, and warm-up helps. S1-04: a rate of eta/N cancels the N of
Post-LN's update. Warm-up lowers the sum of the rates too, so an arm has the lower sum without warm-up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from depthlaw.network.trials import POST_LN_INIT, Trial
from depthlaw.paper_checks.experiments.base import LEAST_SEEDS, PILOT_SEEDS, Arm, Book, Experiment, Plan
from depthlaw.paper_checks.experiments.scale import Scale

DEPTHS = (2, 6, 9, 18)
DEEP = DEPTHS[-1]
SMALL_RATE, RATE, LARGE_RATE = 2.0**-11, 2.0**-9, 2.0**-8
ALIKE = ("pre-ln", "normformer", "sub-ln-gamma", "deepnorm", "admin", POST_LN_INIT, "post-ln")
_STEPS = 150
_LOOKS = (0, 1, 2, 5, 10, 20, 50, 100, 150)


def plain(scheme: str, num_layers: int = DEEP, rate: float = RATE) -> str:
    return f"{scheme} {num_layers}L-{num_layers}L at {rate:.2g}"


def warmed(num_layers: int = DEEP, rate: float = RATE) -> str:
    return f"{plain('post-ln', num_layers, rate)}, warm-up"


EDGE = DEPTHS[2]
"""Layers on either side at which some seeds of Post-LN train and some do not."""
EDGE_SEEDS = 20
"""More than tell shares of 0.2 and 0.8 from each other (``seeds_for_shares``); the depth was chosen when 5 seeds of it
had been seen."""
SAME_SUM = f"{plain('post-ln', EDGE)}, times what warm-up leaves of the sum of rates"
FROM_FRACTION = f"{plain('post-ln')}, warm-up from 1/N"
DIVIDED = f"{plain('post-ln')}, over N"


def make(scale: Scale) -> Experiment:
    looks = tuple(step * scale.more for step in _LOOKS)
    shared: dict[str, Any] = scale.shared(_STEPS) | {"shape": "nmt", "measure_at": looks}

    def arm(name: str, scheme: str, num_layers: int = DEEP, rate: float = RATE, **more: Any) -> Arm:
        sides = {"num_layers": num_layers, "num_decoder_layers": num_layers}
        return Arm(name=name, trial=Trial(scheme=scheme, learning_rate=rate, **sides, **shared | more))

    half = {"warmup_steps": shared["num_steps"] // 2}
    arms = [arm(plain(scheme), scheme) for scheme in ALIKE]
    arms += [arm(warmed(), "post-ln", **half), arm(FROM_FRACTION, "post-ln", **half, warmup_from=1 / DEEP)]
    arms += [arm(DIVIDED, "post-ln", rate=RATE / DEEP)]
    for layers, rate in ((DEEP, SMALL_RATE), *((layers, RATE) for layers in DEPTHS[:-1]), (DEPTHS[1], LARGE_RATE)):
        arms.append(arm(plain("post-ln", layers, rate), "post-ln", layers, rate))
        arms.append(arm(warmed(layers, rate), "post-ln", layers, rate, **half))
    arms += [arm(plain("deepnorm", layers), "deepnorm", layers) for layers in DEPTHS[:2]]
    left = 1 - (half["warmup_steps"] - 1) / (2 * shared["num_steps"])
    arms.append(arm(SAME_SUM, "post-ln", EDGE, RATE * left))
    at_edge = {plain("post-ln", EDGE), warmed(EDGE), SAME_SUM}
    arms = [replace(arm, least_seeds=EDGE_SEEDS) if arm.name in at_edge else arm for arm in arms]
    return Experiment(
        name="warmup",
        question="Does Post-LN train at 18 layers on either side, does warm-up save it, and what else does?",
        claims=("S3-42", "DN-13", "S1-48", "S1-04", "S2-23"),
        arms=tuple(arms),
        pilot=tuple(arm for arm in arms if arm.name in {plain("post-ln"), plain("pre-ln")}),
        plan=_plan,
    )


def _plan(book: Book) -> Plan:
    """Seeds that tell a share of 0.95 that train from one of 0.05, and whether the pilot looks like that."""
    from depthlaw.sims.training.planning import seeds_for_shares

    high, low = 0.95, 0.05
    enough = seeds_for_shares(high, low)
    trained: dict[str, list[bool]] = {"post-ln": [], "pre-ln": []}
    for trial in book.trials:
        if trial.seed in PILOT_SEEDS and trial.scheme in trained:
            trained[trial.scheme].append(book[trial].has_trained)
    seen = "; ".join(f"{scheme} trained in {sum(outcomes)} of {len(outcomes)}" for scheme, outcomes in trained.items())
    seeds = max(LEAST_SEEDS, enough)
    text = (
        f"pilot: {seen}. To tell a share of {high:g} that train from one of {low:g} takes {enough} seeds of each "
        f"(Boschloo's exact test, power 0.9, level 0.95); {seeds} are run. Shares nearer to each other stay open."
    )
    return Plan(seeds, text)

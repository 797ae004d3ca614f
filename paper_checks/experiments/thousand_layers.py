"""24, 100 and 1,000 layers: DeepNorm, Sub-LN with gamma and Su's rule for Adam, beside Post-LN and Pre-LN.

Who trains, how far, at what update: S1-50, DN-12, DN-14; and for how long the update is what it was at initialisation.
All at one learning rate, as the promise of a depth-independent update has it. The task is the synthesised one of
frames: it is learnt in so few steps that 1,000 layers can be trained for them on two cores. (Of bytes, at 2^-8 and in
50 steps, neither Post-LN nor Pre-LN learnt anything at 1,000 layers.) Task and rate were chosen at 100 layers.
"""

from __future__ import annotations

from typing import Any

from depthlaw.network.trials import Trial
from depthlaw.paper_checks.experiments.base import Arm, Book, Experiment, Plan
from depthlaw.paper_checks.experiments.scale import Scale

LAYERS = (24, 100, 1000)
SCHEMES = ("post-ln", "pre-ln", "sub-ln-gamma", "deepnorm", "su-adam")
RATE = 2.0**-10
_STEPS = 40
_LOOKS = (0, 1, 5, 40)
_SEEDS = 3


def arm_name(scheme: str, num_layers: int) -> str:
    return f"{scheme} {num_layers}"


def make(scale: Scale) -> Experiment:
    shared: dict[str, Any] = scale.shared(_STEPS, warmup=0.2) | {"learning_rate": RATE}
    shared |= {"shape": "speech", "num_tokens": scale.num_tokens // 2, "batch_size": scale.batch_size // 2}
    shared |= {"measure_at": tuple(step * scale.more for step in _LOOKS)}
    arms = [
        Arm(name=arm_name(scheme, layers), trial=Trial(scheme=scheme, num_layers=layers, **shared))
        for layers in LAYERS
        for scheme in SCHEMES
    ]
    return Experiment(
        name="thousand-layers",
        question="Which schemes train at 1,000 layers, how far, and at what update?",
        claims=("S1-50", "DN-12", "DN-14"),
        arms=tuple(arms),
        pilot=(),
        plan=_plan,
    )


def _plan(book: Book) -> Plan:
    """What so few seeds can say: a scheme that trains with each of them trains with a share of at least so much."""
    from depthlaw.sims.training.outcomes import share

    low = share(_SEEDS, _SEEDS).low
    text = (
        f"{_SEEDS} seeds at every depth, since 1,000 layers are dear: all of them trained says that a share of at "
        f"least {low:.2f} does (exact interval, 0.95), none of them at most {1 - low:.2f}."
    )
    return Plan(_SEEDS, text)

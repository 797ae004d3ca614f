"""The largest stable learning rate by scheme and depth, GPT-like and BERT-like, and whether the update predicts it.

S3-40, S3-41: the order that the slides print. S3-49, S3-04: a smaller update at initialisation, a larger stable rate?
One axis more: deep and narrow against shallow and wide at equal parameters, 12 N d^2.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

from depthlaw.network.trials import Trial
from depthlaw.paper_checks.experiments.base import LEAST_SEEDS, PILOT_SEEDS, Arm, Book, Experiment, Plan
from depthlaw.paper_checks.experiments.scale import Scale

GRID = tuple(2.0 ** (k / 2) for k in range(-20, 1))
"""From 2^-10 to 1 by half octaves: the smallest ratio that the slides print is 2, and an interval of edges is one step
of the grid wider than its scatter. Below 2^-10 no scheme learns enough in so few steps to tell slow from stuck."""
START, LARGE_START = 2.0**-8, 2.0**-4
"""Where searches begin: of what has norms behind the residual or none, and of what has them before the branch."""
SCHEMES = ("post-ln", "pre-ln", "normformer", "sub-ln-gamma", "deepnorm", "su-adam")
MORE_SCHEMES = ("gpt2", "completep", "rezero")
_PRE = ("pre-ln", "normformer", "sub-ln-gamma", "gpt2", "completep")
LAYERS = (4, 12, 24)
MIDDLE = 12
BERT_SCHEMES = ("post-ln", "pre-ln", "sub-ln-gamma")
AXIS = ("post-ln", "pre-ln", "deepnorm")
_STEPS, _BERT_STEPS = 120, 300
_OCTAVE = 1.0
CURVE = GRID[:15:2]
"""By octaves to 2^-3: held-out loss against the learning rate, for a second look at what "trains" means."""


def gpt(scheme: str, num_layers: int) -> str:
    return f"gpt {scheme} {num_layers}"


def bert(scheme: str) -> str:
    return f"bert {scheme} {MIDDLE}"


def on_curve(scheme: str, rate: float) -> str:
    return f"{gpt(scheme, MIDDLE)} at {rate:g}"


def wide(scheme: str) -> str:
    """A quarter of the layers, twice the width."""
    return f"gpt {scheme} {LAYERS[-1] // 4}, twice as wide"


def make(scale: Scale) -> Experiment:
    def searched(name: str, trial: Trial) -> Arm:
        start = LARGE_START if trial.scheme in _PRE and trial.shape == "gpt" else START
        return Arm(name=name, trial=replace(trial, learning_rate=start), grid=GRID)

    shared: dict[str, Any] = scale.shared(_STEPS, warmup=0.1) | {"measure_at": (0,)}
    arms = [
        searched(gpt(scheme, layers), Trial(scheme=scheme, num_layers=layers, **shared))
        for layers in LAYERS
        for scheme in (*SCHEMES, *(MORE_SCHEMES if layers == MIDDLE else ()))
    ]
    arms += [
        Arm(
            name=on_curve(scheme, rate),
            trial=Trial(scheme=scheme, num_layers=MIDDLE, **shared, learning_rate=rate),
        )
        for rate in CURVE
        for scheme in SCHEMES
    ]
    masked: dict[str, Any] = scale.shared(_BERT_STEPS, warmup=0.1) | {"measure_at": (0,)}
    arms += [
        searched(bert(scheme), Trial(scheme=scheme, shape="bert", num_layers=MIDDLE, **masked))
        for scheme in BERT_SCHEMES
    ]
    wider = shared | {"d_model": 2 * shared["d_model"], "num_heads": 2 * shared["num_heads"]}
    arms += [searched(wide(scheme), Trial(scheme=scheme, num_layers=LAYERS[-1] // 4, **wider)) for scheme in AXIS]
    return Experiment(
        name="stable-rates",
        question="What is the largest learning rate at which each scheme trains, and does its update at initialisation "
        "predict it?",
        claims=("S3-40", "S3-41", "S3-49", "S3-04", "S2-23", "S1-49"),
        arms=tuple(arms),
        pilot=tuple(arm for arm in arms if arm.name in {gpt("pre-ln", MIDDLE), gpt("sub-ln-gamma", MIDDLE)}),
        plan=_plan,
    )


def _plan(book: Book) -> Plan:
    """Seeds that tell an octave apart: of the pilot's paired differences, the scatter that they do not exceed."""
    from depthlaw.sims.training.planning import largest_sd

    # The pilot's arms are found by their seeds: whatever scale it ran at.
    edges: dict[str, dict[int, float]] = {}
    for trial in book.trials:
        if trial.seed in PILOT_SEEDS and book[trial].has_trained:
            of_scheme = edges.setdefault(trial.scheme, {})
            of_scheme[trial.seed] = max(of_scheme.get(trial.seed, -math.inf), math.log2(trial.learning_rate))
    first, second = (edges.get(name, {}) for name in ("pre-ln", "sub-ln-gamma"))
    differences = [first[seed] - second[seed] for seed in PILOT_SEEDS if seed in first and seed in second]
    if len(differences) < 2:
        return Plan(LEAST_SEEDS, f"{LEAST_SEEDS} seeds: the pilot has no scatter to go by")
    step = math.log2(GRID[1] / GRID[0])
    sd = largest_sd(differences)
    text = (
        f"pilot: {len(differences)} seeds of pre-ln and sub-ln-gamma at {MIDDLE} layers; the difference of their "
        f"largest stable rates scatters by at most {sd:.2g} octaves (one-sided 0.8). At power 0.9 and level 0.95, on a "
        f"grid of {step:g}, one octave takes {_seeds(sd, _OCTAVE - step)} seeds, and {LEAST_SEEDS} seeds tell "
        f"{_told(sd) + step:.1f} octaves. {LEAST_SEEDS} are run; --seeds for more."
    )
    return Plan(LEAST_SEEDS, text)


@cache
def _seeds(sd: float, difference: float) -> str:
    from depthlaw.sims.training.outcomes import MIN_EDGES
    from depthlaw.sims.training.planning import seeds_for_difference

    try:
        return str(max(MIN_EDGES, seeds_for_difference(sd, difference)))
    except ValueError:
        return "more than 1,000"


@cache
def _told(sd: float) -> float:
    """The least difference, by tenths of an octave, that LEAST_SEEDS find."""
    from depthlaw.sims.training.planning import POWER, power_of_difference

    return next(k / 10 for k in range(1, 10_000) if sd == 0 or power_of_difference(LEAST_SEEDS, sd, k / 10) >= POWER)

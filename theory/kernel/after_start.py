"""What becomes of the update's law behind the first steps: laws that are derived, and to be held against training.

Each takes a network as it is built, and gives it at a later step, without a fitted constant:

    first      as it is built: each step of its own goes as the first one does
    forgotten  the matrices of branches are as large as the optimizer made them (``made``): gains drop out, and residual
               weights, branch weights and learning-rate multipliers stay
    noise      the step's direction is independent of the gradient of what is looked at, so that the parts of all
               entries add up in quadrature: the root of the squares' sum, in place of a sum of absolute values
    both       forgotten and noise
    aligned    forgotten, and all branches push the stream in one direction, which steps along one gradient make of
               them: what they add to it adds up in amplitude, in place of in quadrature. Where nothing but their sum is
               left of the stream, U of N layers without a residual weight is a sum of N parts over a length of order
               N: flat, where a sum in quadrature has the length sqrt(N)

Linear, as ``theory.kernel.predict``, in the number of sublayers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final, NamedTuple

from depthlaw.theory.kernel.predict import KernelUpdate, predict_kernel
from depthlaw.theory.kernel.setting import Inputs, Transformer
from depthlaw.theory.kernel.update import noise_power
from depthlaw.theory.optimizers import MATCHED, MIXED


class Law(NamedTuple):
    """What a law takes from a network as it is built."""

    is_forgotten: bool = False
    is_noise: bool = False
    is_aligned: bool = False


LAWS: Final[Mapping[str, Law]] = {
    "first": Law(),
    "forgotten": Law(is_forgotten=True),
    "noise": Law(is_noise=True),
    "both": Law(is_forgotten=True, is_noise=True),
    "aligned": Law(is_forgotten=True, is_aligned=True),
}
MOMENTUM: Final = 0.95
"""Of Muon, as it is published and as torch has it."""
_MADE_OF_SIGNS: Final = ("adam", "adamw", "rmsprop", "signsgd")
LION: Final = (0.9, 0.99)
"""Lion's betas, as they are published: of the average that it takes the sign of, and of the one that it keeps."""
_WITH_LENGTH: Final = (*_MADE_OF_SIGNS, "lion", "muon", *MIXED)
_DECOUPLED: Final = ("adamw", "signsgd", "lion", "muon", *MIXED)
"""Those that decay the weights by themselves, of those whose steps have a length of their own."""


def made(optimizer: str, learning_rate: float, num_steps: int, d_model: int, weight_decay: float = 0.0) -> float:
    """What an optimizer has made of a branch's matrix in so many steps: sqrt(d_model) times the root mean square of an
    entry. About 1 is what Xavier's init begins with.

    An entry moves by e times the rate a step: e is 1 of signs (and of Adam, while its gradient keeps its sign),
    d_model^(-1/2) of Muon's polar factor, and MATCHED of Muon's beside AdamW. Steps in one direction add up to
    e rate num_steps. Behind that rate and decay balance: w <- (1 - rate decay) w - rate u, with E u^2 = e^2, comes to
    E w^2 = e^2 rate k/(2 decay) where its steps are of one direction for a time that is short beside 1/(rate decay). k
    is the sum of the steps' correlations: 1 of Adam, whose momentum hands on each gradient with weights that add up to
    1; (1 + m)/(1 - m) of Muon, which makes its step as long again as momentum m had left it short; of Lion, whose steps
    stay signs, what ``_correlations_of_lion`` says. All are of gradients that are independent of each other. The
    smaller of the two is made.

    ValueError, in one line, for an optimizer whose steps are as long as the gradient (sgd), or a share of the weights
    (lamb, lars, adafactor: their start is never forgotten); and for a decay that it divides by something else.

    >>> from depthlaw.theory.kernel.after_start import made
    >>> made("adamw", 0.001, 100, 256), round(made("adamw", 0.001, 10**6, 256, 0.1), 3)
    (1.6, 1.131)
    """
    if optimizer in ("muon", *MIXED):
        entry, kept = float(MATCHED) if optimizer in MIXED else d_model**-0.5, (1 + MOMENTUM) / (1 - MOMENTUM)
    elif optimizer in _MADE_OF_SIGNS:
        entry, kept = 1.0, 1.0
    elif optimizer == "lion":
        entry, kept = 1.0, _correlations_of_lion()
    else:
        raise ValueError(
            f"{optimizer}: what it makes of the weights is derived of steps with a length of their own "
            f"({', '.join(_WITH_LENGTH)})"
        )
    if weight_decay and optimizer not in _DECOUPLED:
        raise ValueError(f"{optimizer}: where rate and decay balance is derived of {', '.join(_DECOUPLED)}")
    balance = math.sqrt(learning_rate * kept / (2 * weight_decay)) if weight_decay else math.inf
    return entry * min(learning_rate * num_steps, balance) * math.sqrt(d_model)


@cache
def _correlations_of_lion() -> float:
    """The sum of the correlations of one of Lion's steps with all others, of independent normal gradients.

    Lion steps by the sign of c = beta1 m + (1 - beta1) g, and keeps m <- beta2 m + (1 - beta2) g. Two neighbouring c
    have the correlation r, two that are s steps apart r beta2^(s-1), and the signs of two normal numbers of correlation
    r have 2/pi asin(r).

    >>> from depthlaw.theory.kernel.after_start import _correlations_of_lion
    >>> round(_correlations_of_lion())
    46
    """
    beta1, beta2 = LION
    of_m = beta1**2 * (1 - beta2) / (1 + beta2)
    r = ((1 - beta1) * beta1 * (1 - beta2) + of_m * beta2) / ((1 - beta1) ** 2 + of_m)
    lags = range(math.ceil(math.log(1e-9) / math.log(beta2)))
    return 1 + 4 / math.pi * sum(math.asin(r * beta2**lag) for lag in lags)


def predict_after_start(
    law: str,
    network: Transformer,
    inputs: Inputs,
    optimizer: str,
    size: float,
    d_model: int,
    *,
    advance: Callable[[float], None] = lambda _: None,
    **options: Any,
) -> KernelUpdate:
    """The update by a law of ``LAWS``, of the branches' matrices, in the unit of the first step's at that width.

    size: what ``made`` says. options: of ``predict_kernel``. ValueError, in one line, for what cannot be.
    """
    which = LAWS[law]
    later = network.forgotten(size) if which.is_forgotten else network
    if which.is_aligned:
        later = replace(later, is_aligned=True)
    update = predict_kernel(later, inputs, (optimizer,), advance=advance, is_noise=which.is_noise, **options)[optimizer]
    return update if not which.is_noise else _in_unit(update, d_model ** -noise_power(optimizer))


def _in_unit(update: KernelUpdate, unit: float) -> KernelUpdate:
    roles = {role: value * unit for role, value in update.roles.items()}
    sides = {side: {role: value * unit for role, value in of_side.items()} for side, of_side in update.sides.items()}
    log10 = update.log10_update + math.log10(unit)
    return replace(update, update=update.update * unit, log10_update=log10, roles=roles, sides=sides)

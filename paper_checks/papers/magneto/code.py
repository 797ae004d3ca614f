"""What the authors' code does, torchscale 0.3.0, recorded as data; and the equations of a sublayer, evaluated.

``tests/paper_checks/test_torchscale.py`` holds each recorded fact against the package itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray
    Function = Any

VERSION = "0.3.0"
STEPS: Mapping[str, tuple[str, ...]] = {
    "attention": ("LN", "QKV", "attention", "LN", "WO"),
    "cross": ("LN", "QKV", "attention", "WO"),
    "ffn": ("LN", "W1", "phi", "LN", "W2"),
}
"""torchscale with subln: its branches, step by step from the input on. Of the cross-attention's QKV only Q reads the
normed input; K and V read the encoder's output, which has the encoder's last norm behind it."""
SCALED = frozenset({"v", "out", "fc1", "fc2"})
"""torchscale with subln: the roles that its initialisation multiplies by gamma, biases included."""
UNSCALED = frozenset({"q", "k", "cross_q", "cross_k", "cross_v", "cross_out"})
"""The roles that it leaves as they are. Untouched means torch's default for a linear layer, not Xavier."""


@dataclass(frozen=True, kw_only=True)
class Equation:
    """A sublayer as an equation prints it: the steps from the input on, and whether the input is added at the end."""

    kind: str
    steps: tuple[str, ...]
    has_residual: bool

    @property
    def text(self) -> str:
        branch = "".join(f"{step}(" for step in reversed(self.steps)) + "x" + ")" * len(self.steps)
        return f"{self.kind}: {'x + ' if self.has_residual else ''}{branch}"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A real network of one sublayer behind some others: its matrices by role, its stream before and after it."""

    num_heads: int
    activation: str
    weights: Mapping[str, Array]
    memory_SD: Array | None
    before_TD: Array
    after_TD: Array


_D, _TOKENS = 12, 5
_ARCHITECTURES = ((1, "relu"), (3, "relu"), (3, "gelu"))


@cache
def cases(kind: str, placement: str) -> tuple[Case, ...]:
    """A sublayer of that kind in real networks of that norm placement: heads, activations, seeds. No norm has eps."""
    import torch

    from sims.model import ModelConfig, SublayerConfig, Transformer, alternating

    found = []
    for seed, (num_heads, activation) in enumerate(_ARCHITECTURES):
        is_cross = kind == "cross"
        config = ModelConfig(
            encoder=alternating(2) if is_cross else (SublayerConfig(kind=kind),),
            decoder=(SublayerConfig(kind="cross"),) if is_cross else (),
            placement=placement,
            d_model=_D,
            num_heads=num_heads,
            activation=activation,
        )
        model = Transformer(config, seed)
        generator = torch.Generator().manual_seed(100 + seed)
        x_BTD, y_BTD = (torch.randn((1, _TOKENS, _D), generator=generator, dtype=torch.float64) for _ in range(2))
        with torch.no_grad():
            memory = model.encode(x_BTD)[-1] if is_cross else None
            streams = model.streams(x_BTD, y_BTD if is_cross else None)
        prefix = "_weights.decoder_0_cross_" if is_cross else "_weights.encoder_0_"
        named = {name.removeprefix(prefix): p for name, p in model.named_parameters() if name.startswith(prefix)}
        found.append(
            Case(
                num_heads=num_heads,
                activation=activation,
                weights={role: p.detach().numpy() for role, p in named.items()},
                memory_SD=None if memory is None else memory[0].numpy(),
                before_TD=streams[0][0].numpy(),
                after_TD=streams[1][0].numpy(),
            )
        )
    return tuple(found)


def agrees(equation: Equation, case: Case) -> bool:
    """Whether the equation gives what the network gives: x_l where it prints the residual, else x_l - x_{l-1}."""
    found = evaluate(equation, case)
    return close(found, case.after_TD - (0 if equation.has_residual else case.before_TD))


def close(first: Array, second: Array) -> bool:
    """To nine digits: both were computed in float64, in a different order."""
    return bool(abs(first - second).max() <= 1e-9 * abs(second).max())


def evaluate(equation: Equation, case: Case) -> Array:
    """The printed steps one after the other, in plain numpy."""
    state: Any = case.before_TD
    for step in equation.steps:
        if step == "LN":
            state = tuple(map(layer_norm, state)) if isinstance(state, tuple) else layer_norm(state)
        elif step == "phi":
            state = activation(case.activation)(state)
        elif step == "QKV":
            source = state if case.memory_SD is None else case.memory_SD
            inputs = {"q": state, "k": source, "v": source}
            state = tuple(x @ case.weights[role].T for role, x in inputs.items())
        elif step == "attention":
            state = _attention(*state, case.num_heads)
        else:
            state = state @ case.weights[{"W1": "fc1", "W2": "fc2", "WO": "out"}[step]].T
    return state + case.before_TD if equation.has_residual else state


def activation(name: str) -> Function:
    import numpy as np
    from scipy.special import ndtr

    return {"relu": lambda u: np.maximum(u, 0), "gelu": lambda u: u * ndtr(u), "identity": lambda u: u}[name]


def layer_norm(x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / (centred**2).mean(-1, keepdims=True) ** 0.5


def _attention(q: Array, k: Array, v: Array, num_heads: int) -> Array:
    import numpy as np

    out = []
    for q_TK, k_SK, v_SK in zip(*(np.split(x, num_heads, axis=-1) for x in (q, k, v)), strict=True):
        weights = np.exp(q_TK @ k_SK.T / q_TK.shape[-1] ** 0.5)
        out.append(weights / weights.sum(-1, keepdims=True) @ v_SK)
    return np.concatenate(out, axis=-1)

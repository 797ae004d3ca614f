"""The only place that makes Symbols, so that two rooms never mean different things by one letter.

``Symbol("N") != Symbol("N", positive=True)`` in sympy, and their difference does not vanish; a stray Symbol made
elsewhere is therefore an error that no test on printed text would see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sympy import IndexedBase, Matrix, Symbol

# Counts. A count is never called "depth": N and M are blocks (layers), L is residual sublayers.
N: Final = Symbol("N", integer=True, positive=True)
"""Encoder layers (blocks), or the layers of a single stack."""
M: Final = Symbol("M", integer=True, positive=True)
"""Decoder layers (blocks)."""
L: Final = Symbol("L", integer=True, positive=True)
"""Residual sublayers of one stack: 2N in an encoder or decoder-only model, 3M in a decoder with cross-attention."""
l: Final = Symbol("l", integer=True, positive=True)  # noqa: E741 - the field's letter for a sublayer
"""Index of a sublayer, 1..L."""
k: Final = Symbol("k", integer=True, positive=True)
"""A second index of a sublayer."""

# One sublayer: x_l = norm_post(a x_{l-1} + b norm_branch(W2 norm_inner(phi(W1 c norm_pre(x_{l-1})))))
residual_weight: Final = Symbol("alpha", positive=True)
branch_weight: Final = Symbol("b", positive=True)
init_gain: Final = Symbol("lambda", positive=True)
"""One gain shared by every scaled matrix of a branch (lambda of Su, beta of DeepNet, gamma of Magneto)."""
gain_in: Final = Symbol("w", positive=True)
"""Gain w of W1 (and of the value projection), Var W1_ij = w^2/d."""
gain_out: Final = Symbol("v", positive=True)
"""Gain v of W2 (and of the output projection), Var W2_ij = v^2/d."""
gains_in: Final = IndexedBase("w", positive=True)
"""w_l, gain of W1 of sublayer l."""
gains_out: Final = IndexedBase("v", positive=True)
"""v_l, gain of W2 of sublayer l."""
displacements: Final = IndexedBase("delta", positive=True)
"""delta_l = ||theta_l^* - theta_l||, how far the two matrices of sublayer l move in one step."""

eta: Final = Symbol("eta", positive=True)
"""Learning rate."""
d: Final = Symbol("d", integer=True, positive=True)
"""d_model, the width of the residual stream."""
u: Final = Symbol("u", real=True)
"""A preactivation."""
scale: Final = Symbol("s", positive=True)
"""Standard deviation of a preactivation."""


def scratch(name: str, **assumptions: bool) -> Symbol:
    """A symbol of local meaning (an entry of a test matrix, say). Same name and assumptions, same symbol."""
    return Symbol(name, **assumptions)


def scratch_matrix(name: str, rows: int, cols: int, **assumptions: bool) -> Matrix:
    """A (rows, cols) matrix of entries ``name_ij``, for arguments that hold for any matrix of that shape."""
    return Matrix(rows, cols, lambda i, j: Symbol(f"{name}_{i + 1}{j + 1}", **assumptions))


@dataclass(frozen=True, kw_only=True)
class SideSymbols:
    """The letters of one stack of an architecture of two."""

    residual_weight: Symbol
    branch_weight: Symbol
    init_gain: Symbol
    gains_in: IndexedBase
    gains_out: IndexedBase
    displacements: IndexedBase


def side_symbols(side: str) -> SideSymbols:
    """Letters for the side of that name: alpha_e, lambda_e, v_e, w_e of the encoder, alpha_d ... of the decoder."""
    e = side[0]
    return SideSymbols(
        residual_weight=Symbol(f"alpha_{e}", positive=True),
        branch_weight=Symbol(f"b_{e}", positive=True),
        init_gain=Symbol(f"lambda_{e}", positive=True),
        gains_in=IndexedBase(f"w_{e}", positive=True),
        gains_out=IndexedBase(f"v_{e}", positive=True),
        displacements=IndexedBase(f"delta_{e}", positive=True),
    )

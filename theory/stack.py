"""One residual sublayer, and stacks of them: what a sublayer does to the signal and to the gradient.

Every network that depthlaw speaks of is a value of one form (d_model = d, square matrices, one input)::

    x_l = norm_post( a_l x_{l-1} + b_l norm_branch( W2 norm_inner( phi( W1 c_l norm_pre( x_{l-1} ) ) ) ) )

    W1_ij ~ N(0, w_l^2/d)      W2_ij ~ N(0, v_l^2/d)      x_0 of unit second moment, and counted

Post-LN, DeepNorm, Pre-LN, Sub-LN, Peri-LN, ReZero, depth-muP ... differ only in which norms stand and in a, b, c, w, v.
``transfer`` below is the whole physics of one sublayer at infinite width; everything else composes it. It is written in
plain arithmetic, so the same lines serve sympy expressions, mpmath numbers and floats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from sympy import Expr, Integer, Rational, S

from depthlaw.theory.symbols import M, N, l


class NormKind(Enum):
    """What a norm does. The stream has zero mean at infinite width, so the two differ only behind an activation."""

    LAYERNORM = "layernorm"  # centres, then scales
    RMSNORM = "rmsnorm"  # scales only


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where norms stand in the one form.

    pre: before the branch. inner: before its last matrix. branch: behind it. post: behind the sum. final: once before
    the head, needed where the stream itself is not normalised. heads: in an attention, of queries, keys and values in
    the place of pre; to the second moments of one input the two are the same.

    >>> from depthlaw.theory.stack import PLACEMENTS
    >>> PLACEMENTS["sub"].names
    ('pre', 'inner', 'final')
    """

    pre: bool = False
    inner: bool = False
    branch: bool = False
    post: bool = False
    final: bool = False
    heads: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Those that stand, in the order of the signal."""
        return tuple(name for name in ("pre", "heads", "inner", "branch", "post", "final") if getattr(self, name))

    @property
    def has_pre(self) -> bool:
        """Whether the branch's input has second moment 1, whatever the stream's is."""
        return self.pre or self.heads


POST = Placement(post=True)
PRE = Placement(pre=True, final=True)
SUB = Placement(pre=True, inner=True, final=True)
PERI = Placement(pre=True, branch=True, final=True)
NO_NORM = Placement()
NORM_FUNCTIONS = ("dyt", "derf")
PLACEMENTS: dict[str, Placement] = {"post": POST, "pre": PRE, "sub": SUB, "peri": PERI}


class BranchMoments(NamedTuple):
    """Gaussian moments of the activation at the preactivation's own scale s = w c sqrt(input second moment).

    second E phi^2, variance Var phi, abs_mean E|phi|, abs_centred E|phi - E phi|, slope_second E phi'^2,
    slope_abs E|phi'|; each over u = s z, z ~ N(0, 1).
    """

    second: Any
    variance: Any
    abs_mean: Any
    abs_centred: Any
    slope_second: Any
    slope_abs: Any

    def times_gaussian(self, scale: Any, mean_abs: Any) -> BranchMoments:
        """Of phi times an independent Gaussian number of this standard deviation, and of its slope. mean_abs: E|z|."""
        second, size = scale**2 * self.second, mean_abs * scale * self.abs_mean
        slopes = scale**2 * self.slope_second, mean_abs * scale * self.slope_abs
        return BranchMoments(second, second, size, size, *slopes)


class Transfer(NamedTuple):
    """What one sublayer does, per unit of the gradient D_l = ||df/dx_l||^2 that reaches it from above.

    Second moments are per coordinate, gradients are squared norms over all d coordinates.
    """

    increment: Any
    """b^2 E(branch output)^2: what the branch adds to the second moment of the stream."""
    sum_second: Any
    """Second moment of a x + b F before a post-norm: a^2 q + increment."""
    stream: Any
    """Second moment of x_l."""
    gradient_ratio: Any
    """D_{l-1} / D_l."""
    fc1_square: Any
    """||df/dW1||_F^2 / (d D_l)."""
    fc2_square: Any
    """||df/dW2||_F^2 / (d D_l)."""
    branch_weight: Any
    """b itself."""
    branch_second: Any
    """E F^2 before b, times what of D_l reaches it: E (df/db)^2 per unit of D_l."""
    fc1_abs_over_gaussian: Any
    """||df/dW1||_1 / (d^{3/2} sqrt(D_l)), without the factor E|z|^2 = 2/pi of its two Gaussian sides."""
    fc2_abs_over_gaussian: Any
    """||df/dW2||_1 / (d^{3/2} sqrt(D_l)), without the factor E|z| = sqrt(2/pi) of its one Gaussian side."""
    fc3_square: Any = None
    fc3_abs_over_gaussian: Any = None
    """The same of W3, of an FFN whose hidden units are phi(W1 u) W3 u; None of others."""


def real_norm(second: Any) -> tuple[Any, Any]:
    """What LayerNorm and RMSNorm make of an input of that second moment: the second moment behind them, and the factor
    of the squared gradient on its way back."""
    return 1, 1 / second


def transfer(  # the one form has this many letters
    placement: Placement,
    norm_kind: NormKind,
    moments: BranchMoments,
    *,
    stream: Any,
    residual_weight: Any,
    branch_weight: Any,
    input_scale: Any,
    gain_in: Any,
    gain_out: Any,
    sqrt: Callable[[Any], Any],
    norm: Callable[[Any], tuple[Any, Any]] = real_norm,
    two_over_pi: Any = None,
) -> Transfer:
    """Carry the second moment of the stream through one sublayer and the gradient back through it.

    Exact as the width goes to infinity: W1, W2 and what comes from above are independent, cross terms average to zero,
    and the projections inside the derivative of a norm (onto the ones and onto the signal) remove a share of order 1/d
    of the gradient. ``stream`` is E x_{l-1}^2; ``moments`` are those at the preactivation's own scale. A branch norm
    over a zero branch (v = 0) is 0/0; no scheme has it. sqrt: that of the numbers: sympy's, or math's. norm: what
    stands before the branch, as ``real_norm`` has it; elsewhere a norm is a real one. two_over_pi: of an FFN whose
    hidden units are phi(W1 u) times W3 u, W3 of gain 1.

    >>> from math import pi, sqrt
    >>> from depthlaw.theory.stack import PRE, BranchMoments, NormKind, transfer
    >>> identity = BranchMoments(1.0, 1.0, sqrt(2 / pi), sqrt(2 / pi), 1.0, 1.0)
    >>> letters = {"residual_weight": 1, "branch_weight": 1, "input_scale": 1, "gain_in": 1, "gain_out": 1}
    >>> found = transfer(PRE, NormKind.LAYERNORM, identity, stream=4.0, sqrt=sqrt, **letters)
    >>> found.stream, found.gradient_ratio, found.fc1_square
    (5.0, 1.25, 1.0)
    """
    a2, b2 = residual_weight**2, branch_weight**2
    before, slope_before = norm(stream) if placement.has_pre else (stream, 1)
    input_second = input_scale**2 * before
    # forward: W1 c norm_pre(x) -> phi (times W3 c norm_pre(x)) -> norm_inner -> W2 -> norm_branch
    gate = None if two_over_pi is None else moments
    if gate is not None:
        moments = moments.times_gaussian(sqrt(input_second), sqrt(two_over_pi))
    inner_scale2 = moments.variance if norm_kind is NormKind.LAYERNORM else moments.second
    hidden_second = 1 if placement.inner else moments.second
    output_second = gain_out**2 * hidden_second
    increment = b2 if placement.branch else b2 * output_second
    sum_second = a2 * stream + increment
    # backward, per unit of D_l
    at_sum = 1 / sum_second if placement.post else 1
    at_output = at_sum * b2 / output_second if placement.branch else at_sum * b2
    at_hidden = gain_out**2 * at_output / (inner_scale2 if placement.inner else 1)
    at_preactivation = at_hidden * moments.slope_second
    to_input = gain_in**2 * at_preactivation + (0 if gate is None else at_hidden * gate.second)
    to_stream = to_input * input_scale**2 * slope_before
    if not placement.inner:
        hidden_abs = moments.abs_mean
    elif norm_kind is NormKind.LAYERNORM:
        hidden_abs = moments.abs_centred / sqrt(moments.variance)
    else:
        hidden_abs = moments.abs_mean / sqrt(moments.second)
    return Transfer(
        increment=increment,
        sum_second=sum_second,
        stream=1 if placement.post else sum_second,
        gradient_ratio=a2 * at_sum + to_stream,
        fc1_square=at_preactivation * input_second,
        fc2_square=at_output * hidden_second,
        branch_weight=branch_weight,
        branch_second=at_sum * (1 if placement.branch else output_second),
        fc1_abs_over_gaussian=sqrt(at_hidden * input_second) * moments.slope_abs,
        fc2_abs_over_gaussian=sqrt(at_output) * hidden_abs,
        fc3_square=None if gate is None else at_hidden * gate.second * input_second,
        fc3_abs_over_gaussian=None if gate is None else sqrt(at_hidden * input_second) * gate.abs_mean,
    )


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A stack of L sublayers of the one form; coefficients are expressions in ``symbols.L`` (and ``symbols.l``).

    residual_weight None means Admin's rule, a_l^2 = 1 + sum_{j<l} Var f_j, which depends on the activation. even: where
    norms stand in even sublayers, a Transformer's FFNs, if not as in the others. early: where they stand in the first
    layers, up to ``early_share`` of all. embedding_scale: what the embedding's entries are multiplied by at the start,
    so that x_0 has its square as second moment (T-Fixup). trains_branch_weight: whether the scalar b is itself a
    trained parameter (ReZero, SkipInit, Fixup). norm_function: "dyt" or "derf", the function that stands in every
    norm's place, of each entry: tanh(x/2) or erf(x/2). has_second_stream: ResiDual's y_l = y_{l-1} + b_l F_l beside x;
    the head reads x_L + norm(y_L).

    >>> from depthlaw.theory.stack import POST, Stack
    >>> from depthlaw.theory.symbols import L
    >>> Stack(placement=POST, residual_weight=L, gain_in=1 / L).gain_out
    1
    """

    placement: Placement
    residual_weight: Expr | None = S.One
    branch_weight: Expr = S.One
    input_scale: Expr = S.One
    gain_in: Expr = S.One
    gain_out: Expr = S.One
    embedding_scale: Expr = S.One
    trains_branch_weight: bool = False
    even: Placement | None = None
    early: Placement | None = None
    early_share: Rational = S.Zero
    norm_function: str = ""
    has_second_stream: bool = False

    def __post_init__(self) -> None:
        if self.norm_function not in ("", *NORM_FUNCTIONS):
            raise ValueError(f"norm_function is one of {', '.join(NORM_FUNCTIONS)}, not {self.norm_function!r}")

    def placement_at(self, index: int, num_sublayers: int, *, is_ffn: bool | None = None) -> Placement:
        """Where norms stand in sublayer ``index``, counted from 1. is_ffn: of a Transformer's; None: every second one.

        >>> from depthlaw.theory.schemes import scheme
        >>> [scheme("mix-ln").stack.placement_at(index, 16).names for index in (4, 5)]
        [('post',), ('pre', 'final')]
        """
        if self.early is not None and 2 * ((index + 1) // 2) <= self.early_share * num_sublayers:
            return self.early
        is_even = index % 2 == 0 if is_ffn is None else is_ffn
        return self.even if self.even is not None and is_even else self.placement

    @property
    def is_uniform(self) -> bool:
        """Whether every sublayer has the same norms and, but for the stream, the same numbers."""
        letters = (self.residual_weight, self.branch_weight, self.input_scale, self.gain_in, self.gain_out)
        moves = any(letter is not None and letter.has(l) for letter in letters)
        return self.even is None and self.early is None and not moves


class SublayerKind(Enum):
    """The sublayers of a Transformer, named by what they read."""

    SELF = "self"
    CROSS = "cross"
    FFN = "ffn"
    PARALLEL = "parallel"  # self-attention and FFN of one input, both added to the stream


SCALED_ROLES: dict[SublayerKind, tuple[str, str]] = {
    SublayerKind.SELF: ("v", "out"),
    SublayerKind.CROSS: ("cross_v", "cross_out"),
    SublayerKind.FFN: ("fc1", "fc2"),
}
"""The two matrices (W1, W2) that each kind of sublayer multiplies on its value path, by role."""

UNSCALED_ROLES: dict[SublayerKind, tuple[str, ...]] = {
    SublayerKind.SELF: ("q", "k"),
    SublayerKind.CROSS: ("cross_q", "cross_k"),
    SublayerKind.FFN: (),
}
"""Matrices that only steer the softmax: a magnitude argument gives them gain 1."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One stack of an architecture: which sublayers make a layer, and how many layers there are."""

    name: str
    layer: tuple[SublayerKind, ...]
    num_layers: Expr

    @property
    def num_sublayers(self) -> Expr:
        return Integer(len(self.layer)) * self.num_layers

    def positions(self, kind: SublayerKind) -> tuple[int, ...]:
        """1-based positions of a kind within one layer; sublayer l is of that kind iff l mod len(layer) matches."""
        return tuple(i for i, sublayer in enumerate(self.layer, start=1) if sublayer is kind)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Encoder, decoder, or both; in the last the decoder's cross-attention reads the encoder's output."""

    name: str
    sides: tuple[Side, ...]


_PLAIN = (SublayerKind.SELF, SublayerKind.FFN)
ARCHITECTURES: dict[str, Architecture] = {
    "encoder": Architecture(name="encoder", sides=(Side(name="encoder", layer=_PLAIN, num_layers=N),)),
    "decoder": Architecture(name="decoder", sides=(Side(name="decoder", layer=_PLAIN, num_layers=M),)),
    "encoder-decoder": Architecture(
        name="encoder-decoder",
        sides=(
            Side(name="encoder", layer=_PLAIN, num_layers=N),
            Side(
                name="decoder",
                layer=(SublayerKind.SELF, SublayerKind.CROSS, SublayerKind.FFN),
                num_layers=M,
            ),
        ),
    ),
}

"""The bound where the stream is normalised after each sublayer (post): DeepNet's scalar model, differentiated.

One sublayer in one dimension, f(x, v, w) = (alpha x + v w x) / sqrt(alpha^2 + v^2 w^2), is differentiated by x and by
its two weights, and the sensitivities are chained. The exact second moments of the same sublayer (``exact``) stand
beside it. Source: DN-02, DN-03, DN-08.
"""

from __future__ import annotations

from sympy import Expr, IndexedBase, Product, S, Sum, cancel, diff, factor, sqrt

from depthlaw.theory.bounds.derivation import Bound, Step
from depthlaw.theory.bounds.growing import identity_transfer
from depthlaw.theory.stack import POST, Stack
from depthlaw.theory.symbols import (
    L,
    displacements,
    eta,
    gain_in,
    gain_out,
    gains_in,
    gains_out,
    init_gain,
    k,
    l,
    residual_weight,
    scratch,
)


def scalar_slope(alpha: Expr, v: Expr, w: Expr) -> Expr:
    """df/dx: the norm divides by the root of the summed variances.

    >>> from depthlaw.theory.bounds.scalar_model import scalar_slope
    >>> from depthlaw.theory.symbols import residual_weight
    >>> scalar_slope(residual_weight, 1, 1)
    (alpha + 1)/sqrt(alpha**2 + 1)
    """
    return (alpha + v * w) / sqrt(alpha**2 + (v * w) ** 2)


def scalar_sensitivity(alpha: Expr, v: Expr, w: Expr) -> Expr:
    """||df/d(v, w)|| at x = 1, where alpha > v w (beyond that, its negative).

    >>> from depthlaw.theory.bounds.scalar_model import scalar_sensitivity
    >>> from depthlaw.theory.symbols import residual_weight
    >>> scalar_sensitivity(residual_weight, 1, 1)
    -sqrt(2)*alpha*(1 - alpha)/(alpha**2 + 1)**(3/2)
    """
    slope = scalar_slope(residual_weight, gain_out, gain_in)
    by_v, by_w = (factor(diff(slope, weight) / other) for weight, other in ((gain_out, gain_in), (gain_in, gain_out)))
    if cancel(by_v - by_w) != 0:
        raise ArithmeticError("the two slopes of the scalar model should differ only in which weight they carry")
    at = {residual_weight: alpha, gain_out: v, gain_in: w}
    return (by_v * sqrt(gain_out**2 + gain_in**2)).subs(at, simultaneous=True)


def cross_slopes(alpha: Expr, v: Expr, w: Expr) -> tuple[Expr, Expr]:
    """Cross-attention, f = (alpha y + v w x) / sqrt(alpha^2 + v^2 w^2): its slopes in y and in x."""
    y, x = scratch("y", real=True), scratch("x", real=True)
    f = (alpha * y + v * w * x) / sqrt(alpha**2 + (v * w) ** 2)
    return diff(f, y), diff(f, x)


def sensitivity_bound(alpha: Expr, v: Expr, w: Expr) -> Expr:
    """What the sensitivity is taken to be at a small branch: sqrt(v^2 + w^2) / alpha."""
    return sqrt(v**2 + w**2) / alpha


def scalar_steps(alpha: Expr, v: IndexedBase, w: IndexedBase, delta: IndexedBase, length: Expr) -> tuple[Step, ...]:
    """The steps from the scalar model to the bound; letters of one sublayer are those of ``symbols``."""
    small = gain_out * gain_in / residual_weight
    each = sensitivity_bound(alpha, v[l], w[l])
    chain = Product(scalar_slope(alpha, v[k], w[k]), (k, l + 1, length))
    moved = Sum(each * delta[l], (l, 1, length))
    sensitivity, slope = (of(residual_weight, init_gain, init_gain) for of in (scalar_sensitivity, scalar_slope))
    flat = length * sensitivity_bound(residual_weight, init_gain, init_gain) ** 2
    return (
        Step(
            name="variances add",
            before=residual_weight + gain_out * gain_in,
            after=sqrt(residual_weight**2 + (gain_out * gain_in) ** 2),
            effect="near",
            condition="a stream and its branch are uncorrelated; in one dimension they are proportional, the norm "
            "would divide by alpha + v w, and nothing would depend on the weights",
            small=small,
        ),
        Step(
            name="first order in the weights",
            before=scratch("Delta_F", positive=True),
            after=Sum(scalar_sensitivity(alpha, v[l], w[l]) * chain * delta[l], (l, 1, length)),
            effect="near",
            condition="Taylor to first order in every delta_l, chained over the sublayers above l",
            small=delta[l],
            uniform_after=sensitivity**2 * (slope ** (2 * length) - 1) / (slope**2 - 1),
        ),
        Step(
            name="stream passes unchanged",
            before=chain,
            after=S.One,
            effect="lowers",
            condition="the slopes of all sublayers above l multiply to about 1: L v w / alpha is small",
            small=length * small,
            uniform_after=length * sensitivity**2,
        ),
        Step(
            name="small branch",
            before=scalar_sensitivity(residual_weight, gain_out, gain_in),
            after=sensitivity_bound(residual_weight, gain_out, gain_in),
            effect="raises",
            condition="v w / alpha is small",
            small=small,
            uniform_after=flat,
        ),
        Step(
            name="one step of SGD",
            before=moved,
            after=eta * Sum(each**2, (l, 1, length)),
            effect="raises",
            condition="||dL/dF|| is O(1), and no sublayer's gradient exceeds what it would be at the top of the stack",
            uniform_after=flat,
        ),
    )


def second_moments(alpha: Expr, v: Expr, w: Expr) -> Expr:
    """||df/dW1||^2 + ||df/dW2||^2 per d of a post-norm sublayer, identity activation; D_l is 1 at every l."""
    sublayer = identity_transfer(POST, stream=S.One, alpha=alpha, v=v, w=w)
    if cancel(sublayer.gradient_ratio - 1) != 0:
        raise ArithmeticError("a post-norm sublayer at the identity activation should pass the gradient unchanged")
    return factor(sublayer.fc1_square + sublayer.fc2_square)


def post_bound(name: str, stack: Stack) -> Bound:
    """The bound of one post-norm stack."""
    alpha, v, w = residual_weight, gains_out, gains_in
    steps = scalar_steps(alpha, v, w, displacements, L)
    uniform = L * sensitivity_bound(alpha, init_gain, init_gain) ** 2
    letters = {init_gain: stack.gain_in, residual_weight: stack.residual_weight}
    return Bound(
        scheme=name,
        prefactor=eta,
        expression=steps[-1].after / eta,
        factorised=Sum(v[l] ** 2 + w[l] ** 2, (l, 1, L)) / alpha**2,
        exact=Sum(second_moments(alpha, v[l], w[l]), (l, 1, L)),
        uniform=uniform,
        at_scheme=uniform.subs(letters, simultaneous=True),
        steps=steps,
        displacement=steps[-1].before,
    )

"""The leading order of the update in L: from the closed form where there is one, else by an argument named here."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from sympy import Expr, Integer, RisingFactorial, S, cancel, log, oo, pi, sqrt

from depthlaw.theory.asymptotics.expansion import CONSTANT, BeyondScaleError, compare, sign_of
from depthlaw.theory.asymptotics.orders import Order, leading_order, sum_order
from depthlaw.theory.meanfield.closedform import ClosedForm, growing_stream_sum, symbolic_moments
from depthlaw.theory.meanfield.setting import MOMENT_KINDS, NormFunction, Setting, degree, role_values
from depthlaw.theory.meanfield.update import cached_closed_form
from depthlaw.theory.moments import Kind, large_scale, small_scale
from depthlaw.theory.stack import NO_NORM, POST, PRE, BranchMoments, Placement, Stack, Transfer, real_norm, transfer
from depthlaw.theory.symbols import L, k, l


@functools.lru_cache(maxsize=8192)
def update_order(setting: Setting) -> Order:
    """Leading order of the update as L goes to infinity, in L: exact, with the argument that shows it in ``shown_by``.

    The limit of what ``meanfield.predict`` computes at finite L, under the same assumptions. BeyondScaleError where no
    argument here decides. Restate it in layers by ``order.restated(L, 2 * N)``.

    >>> from depthlaw.theory.meanfield.growth import update_order
    >>> from depthlaw.theory.meanfield.setting import Setting
    >>> from depthlaw.theory.symbols import L, N
    >>> order = update_order(Setting.of("deepnorm", "adam"))
    >>> order.power, round(float(order.coefficient), 4)
    (1/2, 0.4502)
    >>> order.restated(L, 2 * N).expression(N)
    2*sqrt(N)/pi
    >>> order.shown_by[0]
    'the gradient has the same norm at every layer (rho = 1): L equal terms'
    >>> update_order(Setting.of("pre-ln", "sgd")).expression(L)
    2*log(L)
    """
    form = cached_closed_form(setting)
    if form is not None:
        return _from_closed_form(setting, form)
    stack = setting.scheme.stack
    if setting.gated:
        raise BeyondScaleError("gated FFNs where the product over the layers does not telescope")
    if stack.embedding_scale != 1 and stack.placement != NO_NORM:
        raise BeyondScaleError("an embedding that is scaled before a norm")
    if stack.has_second_stream:
        return _two_streams(setting)
    if stack.even is not None:
        return _in_pairs(setting, stack.even)
    if stack.early is not None:
        return _in_two_parts(setting, stack.early)
    if not stack.is_uniform or stack.norm_function or (stack.placement.branch and not stack.placement.has_pre):
        return _slowly_moving(setting)
    if not stack.placement.has_pre:
        return _linearised(setting)
    return _weighted_residual(setting)


def _from_closed_form(setting: Setting, form: ClosedForm) -> Order:
    try:
        order = leading_order(form.update, L)
    except BeyondScaleError:
        order = _unbounded_kappa(setting)
        if order is None:
            raise
    return _because(order, form.why)


def _because(order: Order, why: str) -> Order:
    if order.is_zero:
        return order
    return dataclasses.replace(order, shown_by=(why, *order.shown_by))


def _unbounded_kappa(setting: Setting) -> Order | None:
    """Sub-LN whose gains grow, behind an activation that saturates: kappa itself grows with L.

    The gradient then grows by kappa log L in the exponent, beyond every power; the sum over layers is at least
    its last backward product over the first layer's, so the update grows so as well. No coefficient is stated.
    """
    stack = setting.scheme.stack
    if not stack.placement.inner or setting.gated or setting.activation.is_homogeneous:
        return None
    scale = stack.gain_in * stack.input_scale
    moments = symbolic_moments(setting.activation, scale)
    kappa = leading_order(scale**2 * moments.slope_second / moments.variance, L)
    if compare((kappa.power, kappa.log_power, kappa.loglog_power), CONSTANT) <= 0:
        return None
    exponent = kappa.times(Order(coefficient=degree(setting.functional), log_power=S.One))
    return Order(
        coefficient=S.NaN,
        power=oo,
        growth=exponent.expression(L),
        shown_by=("kappa grows with L: Gamma(L+kappa)/Gamma(L) = exp(kappa log L) to leading order in the exponent",),
    )


def _vanishing_gain_moments(setting: Setting, scale: Expr) -> BranchMoments:
    """The leading term of every moment as the scale goes to 0: phi(u) = phi'(0) u (1 + O(u))."""
    if sign_of(leading_order(scale, L).power or S.Zero) >= 0:
        raise BeyondScaleError("no norm, gains that do not vanish, and an activation that is not homogeneous")
    leads = [small_scale(setting.activation, kind)[0] for kind in MOMENT_KINDS]
    return BranchMoments(*(coefficient * scale**power for coefficient, power in leads))


def _linearised(setting: Setting) -> Order:
    """No norm and gains that vanish with L: the activation acts as u -> phi'(0) u, which is homogeneous.

    Then q_{l-1} D_l is the same at every layer, as in ``closedform``; what is left out is of relative order of the
    gain, and stays so over the stack because the branches together add a bounded share to the stream.
    """
    stack = setting.scheme.stack
    moments = _vanishing_gain_moments(setting, stack.gain_in * stack.input_scale)
    t, units = _transfer(setting, moments, stack)
    ratio = cancel(t.gradient_ratio)
    p = degree(setting.functional)
    start = stack.embedding_scale ** (2 * p)
    order = leading_order((units["fc1"] + units["fc2"]) * start * L * ratio ** (p * (L - 1)), L)
    order = dataclasses.replace(order, next_term=None, remainder=stack.gain_in)
    return _because(order, "small gains: phi(u) = phi'(0) u (1 + O(u)), homogeneous to leading order")


def _transfer(
    setting: Setting, moments: BranchMoments, stack: Stack, stream: Expr = S.One
) -> tuple[Transfer, dict[str, Expr]]:
    assert stack.residual_weight is not None
    t = transfer(
        stack.placement,
        setting.norm_kind,
        moments,
        stream=stream,
        residual_weight=stack.residual_weight,
        branch_weight=stack.branch_weight,
        input_scale=stack.input_scale,
        gain_in=stack.gain_in,
        gain_out=stack.gain_out,
        sqrt=sqrt,
        norm=_far_norm(setting.norm_function),
    )
    return t, role_values(setting.functional, t, stack.gain_in, stack.gain_out, sqrt, 2 / pi)


def _far_norm(asked: NormFunction | None) -> Callable[[Expr], tuple[Expr, Expr]]:
    """What stands in a norm's place, as ``real_norm`` has it: of a function, to leading order in a long stream."""
    if asked is None:
        return real_norm
    (second, level), (slope, power) = (
        large_scale(asked.function, kind)[0] for kind in (Kind.SECOND, Kind.SLOPE_SECOND)
    )

    def norm(stream: Expr) -> tuple[Expr, Expr]:
        scale = asked.scale * sqrt(stream)
        return second * scale**level, asked.scale**2 * slope * scale**power

    return norm


def _at(setting: Setting, stack: Stack, stream: Expr = S.One) -> tuple[Transfer, Expr]:
    """A sublayer at that second moment of the stream, and the sum of its units."""
    before = _far_norm(setting.norm_function)(stream)[0] if stack.placement.has_pre else stream
    moments = symbolic_moments(setting.activation, stack.gain_in * stack.input_scale * sqrt(before))
    t, units = _transfer(setting, moments, stack, stream)
    return t, units["fc1"] + units["fc2"]


def _slowly_moving(setting: Setting) -> Order:
    """A stream that grows without end under coefficients that move slowly, in blocks k of two equal sublayers.

    q_k = sum 2 beta_j. With kappa_k, what a branch adds to the gradient over what it adds to the stream, going to kappa
    like a power of k, D_l ~ (1/q_L) (q_L/q_l)^kappa: the logarithm of the product over the layers is kappa log(q_L/q_l)
    and a sum that converges. The update is sum_k 2 unit_k D_k^p. Where kappa_k grows, so does the gradient, beyond
    every power: no coefficient is stated.
    """
    stack, p = setting.scheme.stack, degree(setting.functional)
    if stack.residual_weight != 1:
        raise BeyondScaleError("a moving sublayer with a residual weight")
    if any(getattr(stack, name).has(L) and getattr(stack, name).has(l) for name in ("branch_weight", "gain_in")):
        raise BeyondScaleError("weights or gains that move with the share of the depth")
    letters = {
        name: getattr(stack, name).subs(l, 2 * k) for name in ("branch_weight", "input_scale", "gain_in", "gain_out")
    }
    blocks, two = dataclasses.replace(stack, **letters), Order(coefficient=Integer(2))
    beta = leading_order(_at(setting, blocks, k)[0].increment, k)
    stream = sum_order(beta.times(two), "Euler-Maclaurin: sum of 1/k is log")
    t, units = _at(setting, blocks, stream.expression(k))
    added = cancel(t.gradient_ratio - 1)
    kappa = leading_order(cancel(added * stream.expression(k) / t.increment), k)
    if kappa.powers != CONSTANT:
        grown = sum_order(leading_order(added, k).times(two), "Euler-Maclaurin: sum against its integral")
        grown = grown.restated(k, L / 2).times(Order(coefficient=p))
        if compare(grown.powers, (S.Zero, S.One, S.Zero)) <= 0:
            raise BeyondScaleError("kappa does not tend to a constant")
        why = "kappa_k grows: log D_0 is the sum of kappa_k beta_k / q_k, beyond every power of L"
        return Order(coefficient=S.NaN, power=oo, growth=grown.expression(L), shown_by=(why, *grown.shown_by))
    for after in (kappa.next_term, kappa.remainder):
        if after is not None and sign_of(leading_order(after, k).powers[0]) >= 0:
            raise BeyondScaleError("kappa does not tend to a constant fast enough")
    gradient = stream.raised(-kappa.coefficient * p)
    unit = leading_order(units, k)
    total = sum_order(unit.times(two).times(gradient), "Euler-Maclaurin: sum against its integral")
    if kappa.coefficient != 1:
        total = total.times(stream.raised((kappa.coefficient - 1) * p))
    total = total.restated(k, L / 2).times(leading_order(setting.lr_multiplier, L))
    reason = "kappa -> 1: D_l ~ 1/q_l" if kappa.coefficient == 1 else "kappa -> a constant: D_l ~ (q_L/q_l)^kappa / q_L"
    return _because(total, f"{reason}; two equal sublayers a block; next term relatively 1/log L or 1/log log L")


def _geometric(ratio: Expr, count: Expr) -> Expr:
    """1 + ratio + ... + ratio^(count - 1)."""
    return count if ratio == 1 else (ratio**count - 1) / (ratio - 1)


def _two_streams(setting: Setting) -> Order:
    """ResiDual: the post-norm stack x whose branches are also added to y, read as x_L + norm(y_L).

    The squared gradient at y is 1/q_y = 1/(beta L) at every layer; its product with the gradient at x vanishes as the
    post-norms are passed. So if the post-norm stack passes gradients on as they are (rho = 1), each layer adds 1/L to
    them: D_l = 1 + (1 - l/L). If it makes them grow, 1/L is negligible.
    """
    stack, p = setting.scheme.stack, degree(setting.functional)
    alone = dataclasses.replace(setting.scheme, stack=dataclasses.replace(stack, has_second_stream=False))
    order = update_order(dataclasses.replace(setting, scheme=alone))
    rho = cancel(_at(setting, stack)[0].gradient_ratio)
    size = sign_of(leading_order(rho, L).coefficient - 1)
    if size < 0 or stack.residual_weight != 1 or stack.branch_weight != 1:
        raise BeyondScaleError("two streams, of which the first passes ever less of the gradient")
    mean = (2 ** (1 + p) - 1) / (1 + p) if rho == 1 else S.One  # of (2 - l/L)^p
    order = dataclasses.replace(order, coefficient=order.coefficient * mean, next_term=None, remainder=L**-S.Half)
    return _because(order, "the gradient that comes back by y is 1/(beta L) of the head's, at every layer")


def _in_pairs(setting: Setting, even: Placement) -> Order:
    """Two kinds of sublayers in turn, a norm behind the sum of the first, none in the second; an even number of them.

    Behind every first sublayer the stream is 1, behind every second one 1 + beta, so all pairs but the first, where the
    stream comes in at 1, have one ratio of gradients.
    """
    first, p = setting.scheme.stack, degree(setting.functional)
    second = dataclasses.replace(first, placement=even)
    if not first.placement.post or even.names or first.residual_weight != 1:
        raise BeyondScaleError("pairs of sublayers of other norms")
    t2, units2 = _at(setting, second)
    t1, units1 = _at(setting, first, t2.stream)
    _, units_first = _at(setting, first)
    rho, top = cancel(t1.gradient_ratio * t2.gradient_ratio), real_norm(t2.stream)[1] ** p
    through, pairs = t2.gradient_ratio**p, L / 2
    ends = units2 + through * units_first
    inside = (units2 + through * units1) * _geometric(rho**p, pairs - 1)
    total = top * (inside + rho ** (p * (pairs - 1)) * ends) * setting.lr_multiplier
    return _because(leading_order(total, L), "geometric series in rho of a pair of sublayers, an even number of these")


def _in_two_parts(setting: Setting, early: Placement) -> Order:
    """Post-norm up to a share of the depth, pre-norm beyond: two sums that telescope, one behind the other."""
    stack, p = setting.scheme.stack, degree(setting.functional)
    if early != POST or stack.placement != PRE or stack.residual_weight != 1:
        raise BeyondScaleError("two parts of other norms")
    num_early, num_late = stack.early_share * L, (1 - stack.early_share) * L
    t_late, units_late = _at(setting, stack)
    t_early, units_early = _at(setting, dataclasses.replace(stack, placement=early))
    eps = cancel(1 / t_late.increment)
    kappa = cancel((t_late.gradient_ratio - 1) / t_late.increment)
    late, why = growing_stream_sum(eps, kappa, p)
    at_border = eps * RisingFactorial(num_late + 1 + eps, kappa - 1) / RisingFactorial(eps, kappa)
    below = units_early * _geometric(cancel(t_early.gradient_ratio) ** p, num_early)
    total = (units_late * late.subs(L, num_late) + at_border**p * below) * setting.lr_multiplier
    return _because(leading_order(total, L), f"post-norm below, geometric series in rho; pre-norm above, {why}")


def _weighted_residual(setting: Setting) -> Order:
    """Pre-type norms with a residual weight a other than 1: q_l = a^2 q_{l-1} + beta, D_{l-1}/D_l = a^2 + kappa beta/q.

    a < 1: the stream settles. a > 1: the first layers are all.
    """
    stack, p = setting.scheme.stack, degree(setting.functional)
    assert stack.residual_weight is not None
    a2 = stack.residual_weight**2
    moments = symbolic_moments(setting.activation, stack.gain_in * stack.input_scale)
    t, units = _transfer(setting, moments, stack)
    unit = (units["fc1"] + units["fc2"]) * setting.lr_multiplier
    beta, kappa = t.increment, cancel((t.gradient_ratio - a2) / t.increment)
    lead = leading_order(a2, L)
    size = sign_of(lead.power) or sign_of(lead.coefficient - 1)
    if size < 0:
        return _settled(a2, beta, kappa, unit, p)
    if size == 0:
        raise BeyondScaleError("a residual weight that tends to 1")
    if sign_of(lead.power) > 0:
        order = leading_order(unit / (a2 + beta) ** p, L)
        order = dataclasses.replace(order, next_term=None, remainder=a2**-p)
        return _because(order, "a grows: D_1 = 1/q_1 is all, D_2/D_1 -> 0")
    if sign_of(leading_order(beta, L).power) < 0:
        order = leading_order(unit / (a2**p - 1), L)
        order = dataclasses.replace(order, next_term=None, remainder=beta)
        return _because(order, "a > 1, branches vanish: geometric series of a^-2p")
    raise BeyondScaleError("a > 1 with branches that do not vanish: the coefficient is an infinite product")


def _settled(a2: Expr, beta: Expr, kappa: Expr, unit: Expr, p: Expr) -> Order:
    """a < 1: from some layer on the stream is beta/(1 - a^2), and D_{l-1}/D_l is rho = a^2 + kappa (1 - a^2).

    Where rho > 1 the first layers are most of the sum, and those stand before the stream has settled: their ratios
    are an infinite product that only beta >> a^2, which settles at once, makes 1.
    """
    why, settled, rho = "the stream settles at beta/(1 - a^2)", beta / (1 - a2), a2 + kappa * (1 - a2)
    if kappa == 1:
        order = leading_order(unit * L / settled**p, L)
        return _because(order if order.next_term else dataclasses.replace(order, remainder=log(L) / L), why)
    order = leading_order(unit * (rho ** (p * L) - 1) / (rho**p - 1) / settled**p, L)
    if sign_of(leading_order(kappa - 1, L).coefficient) < 0:
        return _because(order, why)
    if sign_of(leading_order(a2 / beta, L).power) < 0:
        return _because(dataclasses.replace(order, next_term=None, remainder=a2 / beta), why)
    if order.power is not oo:
        raise BeyondScaleError(
            "a < 1: the coefficient is an infinite product over the layers before the stream settles"
        )
    first = "the layers before that leave an infinite product: no coefficient is stated"
    return Order(coefficient=S.NaN, power=oo, growth=leading_order(rho ** (p * L), L).growth, shown_by=(why, first))

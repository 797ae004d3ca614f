"""The leading order of the update in L: from the closed form where there is one, else by an argument named here."""

from __future__ import annotations

import dataclasses
import functools

from sympy import Expr, Integer, S, cancel, log, oo, pi, sqrt

from theory.asymptotics.expansion import CONSTANT, BeyondScaleError, compare, sign_of
from theory.asymptotics.orders import Order, leading_order, sum_order
from theory.meanfield.closedform import ClosedForm, symbolic_moments
from theory.meanfield.setting import MOMENT_KINDS, Setting, degree, role_values
from theory.meanfield.update import cached_closed_form
from theory.moments import small_scale
from theory.stack import BranchMoments, Stack, Transfer, transfer
from theory.symbols import L, k, l


@functools.lru_cache(maxsize=8192)
def update_order(setting: Setting) -> Order:
    """Leading order of the update as L goes to infinity, in L: exact, with the argument that shows it in ``shown_by``.

    The limit of what ``meanfield.predict`` computes at finite L, under the same assumptions. BeyondScaleError where no
    argument here decides. Restate it in layers by ``order.restated(L, 2 * N)``.

    >>> from theory.meanfield.growth import update_order
    >>> from theory.meanfield.setting import Setting
    >>> from theory.symbols import L, N
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
    if stack.input_scale.has(l):
        return _slowly_scaled(setting)
    if not stack.placement.pre:
        return _linearised(setting)
    return _weighted_residual(setting)


def _from_closed_form(setting: Setting, form: ClosedForm) -> Order:
    try:
        found = leading_order(form.update, L)
    except BeyondScaleError:
        found = _unbounded_kappa(setting)
        if found is None:
            raise
    return _because(found, form.why)


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
    if not stack.placement.inner or setting.activation.is_homogeneous:
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
    order = leading_order((units["fc1"] + units["fc2"]) * L * ratio ** (degree(setting.functional) * (L - 1)), L)
    order = dataclasses.replace(order, next_term=None, remainder=stack.gain_in)
    return _because(order, "small gains: phi(u) = phi'(0) u (1 + O(u)), homogeneous to leading order")


def _transfer(setting: Setting, moments: BranchMoments, stack: Stack) -> tuple[Transfer, dict[str, Expr]]:
    assert stack.residual_weight is not None
    t = transfer(
        stack.placement,
        setting.norm_kind,
        moments,
        stream=S.One,
        residual_weight=stack.residual_weight,
        branch_weight=stack.branch_weight,
        input_scale=stack.input_scale,
        gain_in=stack.gain_in,
        gain_out=stack.gain_out,
        sqrt=sqrt,
    )
    return t, role_values(setting.functional, t, stack.gain_in, stack.gain_out, sqrt, 2 / pi)


def _slowly_scaled(setting: Setting) -> Order:
    """Pre-norm whose input scale falls with the layer (LayerNorm Scaling), in blocks k of two equal sublayers.

    q_k = sum 2 beta_j, D_l ~ 1/q_l because kappa_k - 1 vanishes so fast that the product of (1 + (kappa_k - 1)
    beta_k/q_k) converges from every layer on, and the update is sum_k 2 unit_k q_k^-p.
    """
    stack = setting.scheme.stack
    if stack.residual_weight != 1:
        raise BeyondScaleError("a moving input scale with a residual weight")
    blocks = dataclasses.replace(stack, input_scale=stack.input_scale.subs(l, 2 * k))
    t, units = _transfer(setting, symbolic_moments(setting.activation, blocks.gain_in * blocks.input_scale), blocks)
    beta = leading_order(t.increment, k)
    excess = cancel(t.gradient_ratio - 1 - t.increment)
    if excess != 0 and sign_of(leading_order(excess, k).powers[0] + 1) >= 0:
        raise BeyondScaleError("kappa does not tend to 1 fast enough")
    two = Order(coefficient=Integer(2))
    stream = sum_order(beta.times(two), "Euler-Maclaurin: sum of 1/k is log")
    gradient = stream.raised(-degree(setting.functional))
    unit = leading_order(units["fc1"] + units["fc2"], k)
    total = sum_order(unit.times(two).times(gradient), "Euler-Maclaurin: sum against its integral")
    total = total.restated(k, L / 2).times(leading_order(setting.lr_multiplier, L))
    return _because(
        total, "kappa -> 1: D_l ~ 1/q_l; two equal sublayers a block; next term relatively 1/log L or 1/log log L"
    )


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

"""Holds a rule of the magnitude rung against the mean field: does the update of the FFN stack really stay flat?"""

from __future__ import annotations

from dataclasses import replace

from sympy import Expr, S, cancel, oo

from depthlaw.theory.asymptotics.expansion import sign_of
from depthlaw.theory.asymptotics.orders import Order
from depthlaw.theory.meanfield.growth import update_order
from depthlaw.theory.meanfield.setting import Setting, degree
from depthlaw.theory.rules.types import Rule, SideRule
from depthlaw.theory.schemes import Scheme
from depthlaw.theory.stack import PLACEMENTS, Stack
from depthlaw.theory.symbols import L


def rule_scheme(rule: Rule, side: SideRule) -> Scheme:
    """The FFN-only stack that a rule for one plain stack builds. Its gain is 1 where no gain keeps the update flat.

    ValueError for a side with cross-attention, or that is read by one: that is no single stack.

    >>> from depthlaw.theory.meanfield.update import predict
    >>> from depthlaw.theory.rules.check import rule_scheme
    >>> from depthlaw.theory.rules.solve import solve_rule
    >>> rule = solve_rule("post", "adam")
    >>> built = rule_scheme(rule, rule.sides[0])
    >>> built.stack.residual_weight, built.stack.gain_in
    (sqrt(L), 1/sqrt(L))
    >>> [round(predict(built, "adam", count).update, 4) for count in (8, 64, 512)]
    [0.6363, 0.6366, 0.6366]
    """
    if len(rule.sides) != 1:
        raise ValueError(f"the {side.name} of an {rule.architecture} is not a single stack")
    place = {side.num_layers: L / len_of_layer(side)}
    gain = S.One if side.gain is None else side.gain.subs(place)
    stack = Stack(
        placement=PLACEMENTS[rule.norm],
        residual_weight=side.residual_weight.subs(place),
        branch_weight=side.branch_weight.subs(place),
        gain_in=gain,
        gain_out=gain,
    )
    return Scheme(name=f"rule-{rule.norm}-{rule.optimizer}-{rule.select}", source="derived", stack=stack)


def len_of_layer(side: SideRule) -> int:
    """The number of sublayers in a layer of this side."""
    return int(side.num_sublayers / side.num_layers)


def rule_order(rule: Rule, side: SideRule, activation: str = "relu", norm_kind: str = "layernorm") -> Order:
    """The leading order of the true update under the rule, in the rule's count of layers.

    This holds the magnitude argument against the mean field: a rule is good where the order is a constant
    (``is_flat``). The stack is that of ``rule_scheme``, the order that of ``growth.update_order``. BeyondScaleError
    where the order is open, ValueError for an encoder-decoder.

    >>> from depthlaw.theory.rules.check import is_flat, rule_order
    >>> from depthlaw.theory.rules.solve import solve_rule
    >>> post, sub = solve_rule("post", "sgd"), solve_rule("sub", "sgd")
    >>> str(rule_order(post, post.sides[0])), is_flat(rule_order(post, post.sides[0]))
    ('1', True)
    >>> order = rule_order(sub, sub.sides[0])
    >>> is_flat(order), round(float(order.power), 3), order.log_power
    (False, 0.467, -1)
    """
    setting = Setting.of(rule_scheme(rule, side), rule.optimizer, activation, norm_kind)
    return update_order(setting).restated(L, len_of_layer(side) * side.num_layers)


def flat_gain(rule: Rule, side: SideRule, activation: str = "relu", norm_kind: str = "layernorm") -> Expr | None:
    """The gain that keeps the mean field's update flat where the rule's own gain does not, in the rule's count of
    layers.

    Let the update grow as L^r at gain 1. Behind a homogeneous activation and under a squared gradient it falls with the
    gain g as g^-2r, so g = L^(r/2) is tried; it is returned only if its own order, derived anew, is flat. None where
    the rule is flat already, where it sets no gain, or where this does not help.

    >>> from depthlaw.theory.rules.check import flat_gain
    >>> from depthlaw.theory.rules.solve import solve_rule
    >>> rule = solve_rule("sub", "sgd")
    >>> flat_gain(rule, rule.sides[0]).evalf(3)
    1.18*N**0.234
    >>> post = solve_rule("post", "sgd")
    >>> print(flat_gain(post, post.sides[0]))
    None
    """
    order = rule_order(rule, side, activation, norm_kind)
    if side.gain is None or is_flat(order):
        return None
    unscaled = replace(rule_scheme(rule, side).stack, gain_in=S.One, gain_out=S.One)
    setting = Setting.of(Scheme(name="gain 1", source="derived", stack=unscaled), rule.optimizer, activation, norm_kind)
    power, log_power, _ = update_order(setting).powers
    if power is oo or log_power != 0 or not setting.is_homogeneous:
        return None
    gain = L ** cancel(power / (2 * degree(setting.functional)))
    tried = replace(
        setting, scheme=Scheme(name="flat", source="derived", stack=replace(unscaled, gain_in=gain, gain_out=gain))
    )
    return gain.subs(L, side.num_sublayers) if is_flat(update_order(tried)) else None


def is_flat(order: Order) -> bool:
    """Whether an order is a constant other than 0.

    >>> from depthlaw.theory.meanfield.growth import update_order
    >>> from depthlaw.theory.rules.check import is_flat
    >>> from depthlaw.theory.meanfield.setting import Setting
    >>> [is_flat(update_order(Setting.of("deepnorm", name))) for name in ("sgd", "adam")]
    [True, False]
    """
    return not order.is_zero and order.growth == 0 and all(sign_of(power) == 0 for power in order.powers)

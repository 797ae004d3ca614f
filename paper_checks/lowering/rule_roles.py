"""What a rule leaves open: how the parameters grow that it says nothing of, and how the update grows without it.

A rule is of the matrices of the branches. A default model trains norm gains and biases, linear biases, an embedding and
a head too. The kernel rung says what these do at the rule's own weights and gains: at the depth that was asked for and
at a shallower one, with few tokens and few quasi-random points, since a rule is to answer at once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sympy import Expr, S

from paper_checks.lowering.networks import NoTheoryError
from paper_checks.lowering.predicted_rows import shares as shares_at
from paper_checks.system.places import TRAINING_RECORDS
from theory.asymptotics.evaluate import evaluate
from theory.rules.check import rule_scheme
from theory.rules.magnitude import exponents
from theory.rules.types import Rule
from theory.rules.types import evaluate as in_numbers
from theory.schemes import SCHEMES, Scheme
from theory.stack import ARCHITECTURES, SCALED_ROLES, UNSCALED_ROLES, Placement, Stack
from theory.symbols import L

if TYPE_CHECKING:
    from theory.kernel.predict import Transformer

TOKENS = 4
"""They cost little. A role grows over 8 times the depth as it does with 16, within 20 %; beside 64 tokens biases and
the embedding are further off, by up to 30 %, since with more tokens these grow more slowly."""
MORE_TOKENS = 16
"""With them a share is that of ``depthlaw predict``, whose default they are; with 4 it is a seventh smaller. And of
Sub-LN, where 4 say too much of biases and the embedding."""
EFFORT = 0.25
"""Of the quasi-random points of a prediction; an update is within 3 %."""
MOST_LAYERS = 256
"""On all sides together: what takes ten seconds. A deeper model is asked about at that many, and that is said."""
SHALLOWER = 8
FLAT = 0.05
"""An exponent in depth below it is flat, as in TRANSFORMERS.md."""
FLAT_AT_FEW_TOKENS = 0.1
"""The same of a parameter outside the rule with ``TOKENS``: 0.08 with 4 can be 0.035 with 64."""
BESIDE: Mapping[str, tuple[str, ...]] = {
    "post": ("post-ln", "deepnorm"),
    "pre": ("pre-ln", "gpt2"),
    "sub": ("sub-ln", "sub-ln-gamma"),
}
"""By placement, what people run today."""
_DEPTHS = (12, 96, 10**6)
"""Two schemes whose weights and gains are equal at all of these are one."""

Counts = Mapping[str, int]
"""Layers, by the letter of each side."""


@dataclass(frozen=True, kw_only=True)
class Growth:
    """From one depth to another: the update of the last over that of the first, and the exponent in depth. flat: up to
    which exponent nothing is said of it."""

    factor: float
    exponent: float
    flat: float = FLAT

    @property
    def grows(self) -> bool:
        return self.exponent > self.flat


@dataclass(frozen=True, kw_only=True)
class RoleGrowth:
    """shallow, deep: the layers of each side. matrices: those of the branches together. others: by role, those that the
    rule says nothing of. unmoved: of those, what the optimizer's first step leaves at zero. shares: of each of these,
    at the deep end, its part over the matrices'; None where no width is asked about. error: the largest relative
    standard error of the quasi-random averages in them."""

    shallow: Counts
    deep: Counts
    matrices: Growth | None
    others: Mapping[str, Growth]
    unmoved: Sequence[str]
    shares: Mapping[str, float | None]
    error: float


@dataclass(frozen=True, kw_only=True)
class Beside:
    """order: leading order in the rule's own count, for people; None where it is not decided. log10_growth: of an FFN
    stack's exact second moments; growth: the same, None beyond the floats."""

    scheme: str
    order: str | None
    growth: Growth | None
    log10_growth: float | None


def role_growth(
    rule: Rule,
    counts: Counts,
    activation: str = "relu",
    norm_kind: str = "layernorm",
    d_model: int | None = None,
    tuned: Counts | None = None,
) -> RoleGrowth:
    """How every role grows under exactly this rule, up to that depth.

    A real Transformer at infinite width, softmax attention, one logit at the last of ``tokens_of`` tokens. d_model: the
    width at which the shares are told. tuned: the layers that the depth is compared with; an eighth of it if left out.
    Deeper than ``MOST_LAYERS``, it is asked about at that many, both depths in proportion. NoTheoryError, in one line,
    where it is one layer, and for what the kernel rung does not know.
    """
    from theory.kernel.predict import Inputs, predict_kernel, unit_power

    most = max(sum(counts.values()), sum((tuned or counts).values()))
    share = min(Fraction(1), Fraction(MOST_LAYERS, most))
    deep, shallow = (
        {name: max(1, int(count * share)) for name, count in depth.items()} for depth in (counts, tuned or counts)
    )
    if tuned is None:
        shallow = {name: shallower(count) for name, count in deep.items()}
    if shallow == deep:
        raise NoTheoryError("a network of one layer has no shallower one to compare with")
    found = []
    try:
        for depth in (shallow, deep):
            network = _transformer(rule, depth, activation, norm_kind)
            inputs = Inputs(num_tokens=tokens_of(rule.norm, d_model))
            answer = predict_kernel(network, inputs, [rule.optimizer], effort=EFFORT)
            found.append((sum(map(len, network.sides)), answer[rule.optimizer]))
    except (ValueError, ArithmeticError) as error:
        raise NoTheoryError(str(error) or type(error).__name__) from error
    (few, first), (many, last) = found
    ruled = {role for side in rule.sides for role in side.lr_multiplier}
    outside = {role: value for role, value in last.roles.items() if role not in ruled}
    # one layer is no power law's beginning: small exponents from there say nothing
    is_one = max(shallow.values()) == 1
    flat = FLAT_AT_FEW_TOKENS if tokens_of(rule.norm, d_model) == TOKENS else FLAT
    others = {
        role: growth
        for role, value in outside.items()
        if (growth := growth_of(first.roles[role], value, many / few, math.inf if is_one else flat)) is not None
    }
    units = {role: unit_power(rule.optimizer, role) for role in others}
    row = {"update": last.update, "roles": {role: last.roles[role] for role in others}}
    return RoleGrowth(
        shallow=shallow,
        deep=deep,
        matrices=growth_of(first.update, last.update, many / few, math.inf if is_one else FLAT),
        others=dict(sorted(others.items(), key=lambda item: -item[1].exponent)),
        unmoved=sorted(role for role, value in outside.items() if value == 0),
        shares={} if d_model is None else {role: value for role, (value,) in shares_at([row], units, d_model).items()},
        error=max(answer.error[role] for _, answer in found for role in (*others, "update")),
    )


def tokens_of(norm: str, d_model: int | None) -> int:
    """Of the sequence that is asked about, with and without a width."""
    return TOKENS if d_model is None and norm != "sub" else MORE_TOKENS


def shallower(num_layers: int) -> int:
    """What a depth is compared with: two layers at least, where it has more."""
    return max(min(2, num_layers - 1), num_layers // SHALLOWER, 1)


def growth_of(first: float, last: float, deeper: float, flat: float = FLAT) -> Growth | None:
    """None where an update is 0 or beyond the floats. deeper: how many times as many sublayers."""
    if not (0 < first < math.inf and 0 < last < math.inf):
        return None
    return Growth(factor=last / first, exponent=math.log(last / first) / math.log(deeper), flat=flat)


def _transformer(rule: Rule, counts: Counts, activation: str, norm_kind: str) -> Transformer:
    """The network that the rule builds, with its own matrices' learning rates."""
    from theory.kernel.predict import Sublayer, Transformer

    numbers = in_numbers(rule, **counts)
    sides = []
    for side in ARCHITECTURES[rule.architecture].sides:
        mine = numbers[side.name]
        layer = []
        for kind in side.layer:
            roles = (*UNSCALED_ROLES[kind], *SCALED_ROLES[kind])
            layer.append(
                Sublayer(
                    kind=kind,
                    residual_weight=mine.residual_weight,
                    branch_weight=mine.branch_weight,
                    gains={role: mine.init_gain[role] for role in roles} if mine.init_gain else {},
                    lr_multipliers={role: mine.lr_multiplier[role] for role in roles},
                )
            )
        sides.append(tuple(layer) * counts[str(side.num_layers)])
    return Transformer(
        encoder=sides[0],
        decoder=sides[1] if len(sides) > 1 else (),
        placement=rule.norm,
        norm_kind=norm_kind,
        activation=activation,
        is_causal=rule.architecture == "decoder",
    )


# ---------------------------------------------------------------- the same network, asked about by `predict`


def plain_scheme(placement: Placement) -> str:
    """The named scheme whose norms stand there, with no weight and no gain."""
    return next(name for name, found in SCHEMES.items() if found.stack == Stack(placement=placement))


def named_scheme(scheme: Scheme) -> str | None:
    """The first named scheme with these norms, weights and gains at every depth; None where none has them."""
    return next((name for name, found in SCHEMES.items() if _values(found) == _values(scheme)), None)


@cache
def _values(scheme: Scheme) -> tuple[object, ...]:
    stack = scheme.stack
    is_special = stack.trains_branch_weight or stack.input_scale != 1 or scheme.sign_lr_multiplier != 1
    is_special |= not stack.is_uniform or bool(stack.norm_function) or stack.has_second_stream
    if stack.residual_weight is None or is_special:
        return (scheme.name,)  # like no other
    letters = (stack.residual_weight, stack.branch_weight, stack.gain_in, stack.gain_out)
    return stack.placement, *(
        tuple(f"{float(evaluate(letter, {L: depth}, 20)):.12g}" for letter in letters) for depth in _DEPTHS
    )


def predict_command(rule: Rule, depths: Sequence[int], *more: str) -> str | None:
    """The ``depthlaw predict`` that asks about this very rule at those layers, by role. more: further options.

    By a named scheme that has it, else as power laws. None of an encoder-decoder, and of a gain that is neither.
    """
    *others, side = rule.sides
    if others:
        return None
    scheme = rule_scheme(rule, side)
    name = named_scheme(scheme)
    which = f"--scheme {name}" if name is not None else _laws(rule.norm, scheme.stack)
    if which is None:
        return None
    arch = "" if rule.architecture == "encoder" else f" --arch {rule.architecture}"
    layers = ",".join(map(str, depths))
    asked = f"depthlaw predict {which} --optimizer {rule.optimizer} --attention{arch} --layers {layers}"
    return " ".join([asked, *more, "--roles"])


def _laws(norm: str, stack: Stack) -> str | None:
    assert stack.residual_weight is not None
    options = {"residual-weight": stack.residual_weight, "branch-weight": stack.branch_weight, "gain": stack.gain_in}
    try:
        laws = {name: _law(expr) for name, expr in options.items() if expr != S.One}
    except ArithmeticError:
        return None
    return " ".join([f"--norm {norm}", *(f"--{name} {law}" for name, law in laws.items())])


def _law(expr: Expr) -> str:
    coefficient, (power,) = exponents(expr, (L,))
    return f"{coefficient if coefficient.is_Rational else f'{float(coefficient):.10g}'},{power}"


# ---------------------------------------------------------------- and without the rule


def beside(rule: Rule, num_layers: int, activation: str = "relu", norm_kind: str = "layernorm") -> list[Beside]:
    """The rule itself, and what people run with norms in that place: how the update of an FFN stack grows, to leading
    order and from an eighth of that depth to it. Exact second moments, at any depth."""
    from theory.asymptotics.expansion import BeyondScaleError
    from theory.meanfield.growth import update_order
    from theory.meanfield.setting import Setting
    from theory.meanfield.update import predict_setting
    from theory.rules.check import len_of_layer
    from theory.tables import order_cells

    (side,) = rule.sides
    sublayers = len_of_layer(side)
    shallow = shallower(num_layers)
    found = []
    for scheme in (rule_scheme(rule, side), *(SCHEMES[name] for name in BESIDE[rule.norm])):
        setting = Setting.of(scheme, rule.optimizer, activation, norm_kind)
        try:
            order = update_order(setting).restated(L, sublayers * side.num_layers)
            text = str(order_cells(order)["approximate"]).replace("N", str(side.num_layers))
        except BeyondScaleError:
            text = None
        log10_growth = growth = None
        if shallow != num_layers:
            # gelu explodes beyond the floats, where only logarithms are left
            with suppress(ValueError, ArithmeticError):
                first, last = (
                    predict_setting(setting, sublayers * count).log10_update for count in (shallow, num_layers)
                )
                log10_growth = last - first if math.isfinite(last - first) else None
                growth = growth_of(1.0, 10 ** (last - first), num_layers / shallow)
        found.append(Beside(scheme=scheme.name, order=text, growth=growth, log10_growth=log10_growth))
    return found


# ---------------------------------------------------------------- and whether it was trained


def trained_under(scheme: Scheme, activation: str, norm_kind: str) -> list[str] | None:
    """The optimizers under which the runs of TRAINING.md trained a scheme with these norms, weights and gains. None
    where there are no records to ask."""
    trained = _trained(TRAINING_RECORDS)
    if trained is None:
        return None
    wanted = {name for name, found in SCHEMES.items() if _values(found) == _values(scheme)}
    asked = [activation, norm_kind]
    return sorted({optimizer for name, optimizer, *kinds in trained if name in wanted and kinds == asked})


@cache
def _trained(records: Path) -> frozenset[tuple[str, ...]] | None:
    """Scheme, optimizer, activation and norm of every run there. None where there is no record."""
    files = sorted(records.glob("*.jsonl"))
    configs = (json.loads(line)["config"] for path in files for line in path.read_text(encoding="utf-8").splitlines())
    names = ("scheme", "optimizer", "activation", "norm_kind")
    return frozenset(tuple(one[name] for name in names) for one in configs) if files else None

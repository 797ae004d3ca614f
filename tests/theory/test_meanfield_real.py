"""`theory.meanfield.update` against real networks that were written from DESIGN's text without reading `theory`.

The prediction is exact at infinite width only, so each case is measured at four widths, doubling, and the mean over
independent networks is extrapolated in powers of 1/d. The prediction must lie in the interval of the limit, which comes
from the seeds alone: two-sided, Student, at FAMILY_ERROR over all comparisons together. Each case has as many networks
as it takes to reject the same prediction multiplied or divided by 1 + `resolution`, and must do so.
"""

from __future__ import annotations

import math
import random
import zlib
from dataclasses import dataclass, replace

import pytest
import scipy.stats

from tests import realnet
from tests.realnet import FUNCTIONAL, FUNCTIONALS, ROLES, Curve, Stack, scheme_numbers
from theory.meanfield.update import predict

FAMILY_ERROR = 1e-3
EXACT = 1e-12  # relative rounding of a sum of float64 numbers; used only where a number is not random


@dataclass(frozen=True, kw_only=True)
class Case:
    scheme: str
    num_sublayers: int
    activation: str = "relu"
    norm_kind: str = "layernorm"
    gains: str = "own"  # the scheme's own; or a key of GAINS
    resolution: float = 0.05
    matrices: str = "implicit"

    @property
    def id(self) -> str:
        parts = [self.scheme, str(self.num_sublayers), self.activation, self.norm_kind, self.gains, self.matrices]
        return "-".join(parts)

    @property
    def seed(self) -> int:
        return zlib.crc32(self.id.encode())

    def lists(self) -> dict[str, list[float] | None]:
        if self.gains == "own":
            return {"w": None, "v": None}
        w, v = GAINS[self.gains](self.num_sublayers)
        return {"w": w, "v": v}

    def stack(self) -> Stack:
        return scheme_numbers(self.scheme, self.num_sublayers, self.activation, self.norm_kind, **self.lists())

    def widths(self) -> tuple[int, ...]:
        first = max(64, 4 * self.num_sublayers)
        return tuple(first * 2**power for power in range(4))

    def predicted(self, optimizer: str, **other) -> dict[str, float]:
        """By role, and "update". `other` overrides what the theory is asked about."""
        asked = {"activation": self.activation, "norm_kind": self.norm_kind, **self.lists(), **other}
        scheme, num = asked.pop("scheme", self.scheme), asked.pop("num_sublayers", self.num_sublayers)
        prediction = predict(scheme, optimizer, num, **asked)
        return {"update": float(prediction.update), **{role: float(prediction.roles[role]) for role in ROLES}}


def _random(num: int) -> tuple[list[float], list[float]]:
    generator = random.Random(num)
    w, v = ([math.exp(generator.uniform(-0.7, 0.7)) for _ in range(num)] for _ in range(2))
    return w, v


# Uneven gains (w, v): growing geometrically over the stack, shrinking, one sublayer exploding, random.
GAINS = {
    "growing": lambda num: ([3 ** (k / num) for k in range(num)], [2 ** (k / num) for k in range(num)]),
    "shrinking": lambda num: ([2 ** (-k / num) for k in range(num)], [3 ** (-k / num) for k in range(num)]),
    "exploding-w": lambda num: ([8.0 if k == num // 2 else 1.0 for k in range(num)], [1.0] * num),
    "exploding-v": lambda num: ([1.0] * num, [8.0 if k == num // 2 else 1.0 for k in range(num)]),
    "random": _random,
}

# Every scheme and placement, optimizer, norm and activation; gains of every pattern; from one sublayer to 128.
CASES = [
    Case(scheme="post-ln", num_sublayers=1),
    Case(scheme="post-ln", num_sublayers=6, activation="gelu", norm_kind="rmsnorm"),
    Case(scheme="post-ln", num_sublayers=4, activation="identity", gains="exploding-v"),
    Case(scheme="pre-ln", num_sublayers=12),
    Case(scheme="pre-ln", num_sublayers=4, activation="gelu", gains="growing"),
    Case(scheme="pre-ln", num_sublayers=5, activation="tanh", norm_kind="rmsnorm", gains="exploding-w"),
    Case(scheme="sub-ln", num_sublayers=8),
    Case(scheme="sub-ln", num_sublayers=8, norm_kind="rmsnorm"),
    Case(scheme="sub-ln", num_sublayers=1, activation="silu"),
    Case(scheme="sub-ln", num_sublayers=6, activation="gelu", gains="random"),
    Case(scheme="sub-ln", num_sublayers=5, activation="identity", gains="exploding-w"),
    Case(scheme="peri-ln", num_sublayers=6, activation="gelu"),
    Case(scheme="peri-ln", num_sublayers=4, norm_kind="rmsnorm", gains="shrinking"),
    Case(scheme="normformer", num_sublayers=4, activation="tanh"),
    Case(scheme="deepnorm", num_sublayers=16),
    Case(scheme="deepnorm", num_sublayers=4, activation="silu", norm_kind="rmsnorm", gains="random"),
    Case(scheme="su-sgd", num_sublayers=6),
    Case(scheme="su-adam", num_sublayers=6, activation="gelu"),
    Case(scheme="su-lamb", num_sublayers=6, activation="identity"),
    Case(scheme="su-pre-sgd", num_sublayers=6, activation="silu"),
    Case(scheme="su-pre-adam", num_sublayers=6),
    Case(scheme="su-pre-lamb", num_sublayers=6, activation="tanh", norm_kind="rmsnorm"),
    Case(scheme="sub-ln-gamma", num_sublayers=8),
    Case(scheme="admin", num_sublayers=8),
    Case(scheme="admin", num_sublayers=5, activation="gelu", norm_kind="rmsnorm"),
    Case(scheme="gpt2", num_sublayers=6, activation="gelu"),
    Case(scheme="fixup", num_sublayers=5, activation="gelu"),
    Case(scheme="t-fixup", num_sublayers=6),
    Case(scheme="t-fixup", num_sublayers=3, activation="gelu", gains="growing"),
    Case(scheme="rezero", num_sublayers=3),
    Case(scheme="skipinit", num_sublayers=2, activation="identity"),
    Case(scheme="depth-mup", num_sublayers=6),
    Case(scheme="depth-mup", num_sublayers=4, activation="tanh", norm_kind="rmsnorm"),
    Case(scheme="completep", num_sublayers=5),
    Case(scheme="ln-scaling", num_sublayers=7, activation="gelu"),
    Case(scheme="pre-ln", num_sublayers=2, activation="gelu", matrices="explicit", resolution=0.1),
    Case(scheme="post-ln", num_sublayers=64, resolution=0.3),
    Case(scheme="deepnorm", num_sublayers=128, norm_kind="rmsnorm", resolution=0.25),
    Case(scheme="sub-ln", num_sublayers=64, gains="random", resolution=0.3),
]


# Coarse, in `make test`: every place of a norm, activation, norm and pattern of gains, with so many networks as a miss
# by a third takes.
COARSE = [
    replace(case, resolution=0.33)
    for case in CASES
    if (case.gains in ("random", "exploding-w", "exploding-v") and case.num_sublayers < 64)
    or case.scheme == "ln-scaling"
    or (case.scheme, case.num_sublayers, case.norm_kind)
    in (
        ("sub-ln", 8, "layernorm"),
        ("peri-ln", 4, "rmsnorm"),
        ("t-fixup", 3, "layernorm"),
        ("depth-mup", 6, "layernorm"),
    )
]
NUM_COMPARISONS = (len(CASES) + len(COARSE)) * len(FUNCTIONALS) * (1 + len(ROLES))


def quantile(freedom: int, num_comparisons: int = NUM_COMPARISONS) -> float:
    return float(scipy.stats.t.isf(FAMILY_ERROR / num_comparisons / 2, freedom))


def agrees(curve: Curve, predicted: float) -> bool:
    """The one check: is the prediction what the measured means tend to?"""
    if curve.limit_error == 0:
        return math.isclose(predicted, curve.limit, rel_tol=EXACT, abs_tol=0)
    return abs(predicted - curve.limit) <= quantile(curve.freedom) * curve.limit_error


def converges(curve: Curve, predicted: float) -> bool:
    """Is the widest network nearer to the prediction than the narrowest, or not discernibly farther?"""
    narrow, wide = (abs(curve.means[end] - predicted) for end in (0, -1))
    return wide - narrow <= quantile(curve.freedom) * math.hypot(curve.errors[0], curve.errors[-1])


def measured(case: Case) -> dict[tuple[str, str], Curve]:
    # So many standard errors to a prediction off by `resolution`: the interval's, and as many again for where it falls.
    relative_error = case.resolution / (1 + case.resolution) / (2 * quantile(10_000))
    stack, widths = case.stack(), case.widths()
    if case.matrices == "explicit":
        widths = (32, 64, 128, 256)
    num_seeds = realnet.plan(stack, widths, relative_error, case.seed)
    return realnet.measure_curves(stack, widths, num_seeds, case.seed, matrices=case.matrices)


def multiplied(curve: Curve, multiplier: float) -> Curve:
    return Curve(
        widths=curve.widths,
        means=tuple(multiplier * x for x in curve.means),
        errors=tuple(multiplier * x for x in curve.errors),
        limit=multiplier * curve.limit,
        limit_error=multiplier * curve.limit_error,
        freedom=curve.freedom,
    )


# --- the comparison --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        *(pytest.param(case, id=f"{case.id}-coarse") for case in COARSE),
        *(pytest.param(case, id=case.id, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]) for case in CASES),
    ],
)
def test_prediction_is_the_limit_of_real_networks(case: Case) -> None:
    curves, stack = measured(case), case.stack()
    wrong, blunt = [], []
    for optimizer, functional in FUNCTIONAL.items():
        multiplier, predicted = stack.lr_multiplier.get(optimizer, 1.0), case.predicted(optimizer)
        assert math.isclose(predicted["update"], sum(predicted[role] for role in ROLES), rel_tol=1e-9)
        for role, value in predicted.items():
            curve = multiplied(curves[functional, role], multiplier)
            if not (agrees(curve, value) and converges(curve, value)):
                wrong.append(f"{optimizer} {role}: predicted {value:.6g}, measured {curve}")
        curve, value = multiplied(curves[functional, "update"], multiplier), predicted["update"]
        for mutant in (value * (1 + case.resolution), value / (1 + case.resolution)):
            if value != 0 and agrees(curve, mutant):
                blunt.append(f"{optimizer}: would accept {mutant:.6g} for {value:.6g}, measured {curve}")
    assert not wrong, "\n".join(wrong)
    assert not blunt, "\n".join(blunt)


# --- the check must reject wrong theories ----------------------------------------------------------------------------


# --- the measurement itself, without the theory ----------------------------------------------------------------------

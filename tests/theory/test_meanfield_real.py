"""`theory.meanfield.update` against real networks that were written from the design's text without reading `theory`.

The prediction is exact at infinite width only, so each case is measured at four widths, doubling, and the mean over
independent networks is extrapolated in powers of 1/d. The prediction must lie in the interval of the limit, which comes
from the seeds alone: two-sided, Student, at FAMILY_ERROR over all comparisons together. Each case has as many networks
as it takes to reject the same prediction multiplied or divided by 1 + `resolution`, and must do so.
"""

import math
import random
import zlib
from typing import NamedTuple

import pytest
import scipy.stats

from depthlaw.theory.meanfield.update import predict
from tests.realnet import FUNCTIONAL, FUNCTIONALS, ROLES, Curve, limits, scheme_numbers

FAMILY_ERROR = 1e-3
EXACT = 1e-12  # relative rounding of a sum of float64 numbers; used only where a number is not random


def _random(num: int) -> tuple[list[float], list[float]]:
    generator = random.Random(num)
    w, v = ([math.exp(generator.uniform(-0.7, 0.7)) for _ in range(num)] for _ in range(2))
    return w, v


# Uneven gains (w, v): growing geometrically over the stack, shrinking, one sublayer exploding, random.
GAINS = {
    "own": lambda _: (None, None),
    "growing": lambda num: ([3 ** (k / num) for k in range(num)], [2 ** (k / num) for k in range(num)]),
    "shrinking": lambda num: ([2 ** (-k / num) for k in range(num)], [3 ** (-k / num) for k in range(num)]),
    "exploding-w": lambda num: ([8.0 if k == num // 2 else 1.0 for k in range(num)], [1.0] * num),
    "exploding-v": lambda num: ([1.0] * num, [8.0 if k == num // 2 else 1.0 for k in range(num)]),
    "random": _random,
}


class Case(NamedTuple):
    """gains: a key of GAINS. resolution: the relative error of a prediction that must be seen."""

    scheme: str
    num_sublayers: int
    activation: str = "relu"
    norm_kind: str = "layernorm"
    gains: str = "own"
    resolution: float = 0.05

    @property
    def id(self) -> str:
        return "-".join(map(str, self[:5]))


FINE = [
    Case("post-ln", 1),
    Case("post-ln", 6, "gelu", "rmsnorm"),
    Case("pre-ln", 12),
    Case("pre-ln", 4, "gelu", gains="growing"),
    Case("sub-ln", 8, norm_kind="rmsnorm"),
    Case("sub-ln", 1, "silu"),
    Case("peri-ln", 6, "gelu"),
    Case("deepnorm", 16),
    Case("admin", 5, "gelu", "rmsnorm"),
    Case("fixup", 5, "gelu"),
    Case("rezero", 3),
    Case("depth-mup", 4, "tanh", "rmsnorm"),
    Case("completep", 5),
    Case("post-ln", 64, resolution=0.3),
    Case("deepnorm", 128, norm_kind="rmsnorm", resolution=0.25),
    Case("sub-ln", 64, gains="random", resolution=0.3),
]
"""Slow ones alone: also the deepest, and schemes that differ from others in their numbers."""
BOTH = [
    Case("post-ln", 4, "identity", gains="exploding-v"),
    Case("pre-ln", 5, "tanh", "rmsnorm", "exploding-w"),
    Case("sub-ln", 8),
    Case("sub-ln", 6, "gelu", gains="random"),
    Case("sub-ln", 5, "identity", gains="exploding-w"),
    Case("peri-ln", 4, norm_kind="rmsnorm", gains="shrinking"),
    Case("deepnorm", 4, "silu", "rmsnorm", "random"),
    Case("t-fixup", 3, "gelu", gains="growing"),
    Case("depth-mup", 6),
    Case("ln-scaling", 7, "gelu"),
]
"""Every place of a norm, activation, norm and pattern of gains: in `make test` with as many networks as a miss by a
third takes."""
NUM_COMPARISONS = (len(FINE) + 2 * len(BOTH)) * len(FUNCTIONALS) * (1 + len(ROLES))


def quantile(freedom: int) -> float:
    return float(scipy.stats.t.isf(FAMILY_ERROR / NUM_COMPARISONS / 2, freedom))


def agrees(curve: Curve, predicted: float) -> bool:
    """The one check: is the prediction what the measured means tend to?"""
    if curve.limit_error == 0:
        return math.isclose(predicted, curve.limit, rel_tol=EXACT, abs_tol=0)
    return abs(predicted - curve.limit) <= quantile(curve.freedom) * curve.limit_error


@pytest.mark.parametrize(
    "case",
    [
        *(pytest.param(case._replace(resolution=0.33), id=f"{case.id}-coarse") for case in BOTH),
        *(pytest.param(case, id=case.id, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]) for case in FINE + BOTH),
    ],
)
def test_prediction_is_the_limit_of_real_networks(case: Case) -> None:
    kinds, num = {"activation": case.activation, "norm_kind": case.norm_kind}, case.num_sublayers
    gains = dict(zip("wv", GAINS[case.gains](num), strict=True))
    stack = scheme_numbers(case.scheme, num, **kinds, **gains)
    # So many standard errors to a prediction off by `resolution`: the interval's, and as many again for where it falls.
    relative_error = case.resolution / (1 + case.resolution) / (2 * quantile(10_000))
    first = max(64, 4 * num)
    curves = limits(stack, [first * 2**power for power in range(4)], relative_error, zlib.crc32(case.id.encode()))
    wrong, blunt = [], []
    for optimizer, functional in FUNCTIONAL.items():
        prediction = predict(case.scheme, optimizer, num, **kinds, **gains)
        predicted = {"update": prediction.update, **{role: prediction.roles[role] for role in ROLES}}
        for role, update in predicted.items():
            curve, value = curves[functional, role], float(update) / stack.lr_multiplier.get(optimizer, 1.0)
            if not agrees(curve, value):
                wrong.append(f"{optimizer} {role}: predicted {value:.6g}, measured {curve}")
            for mutant in (value * (1 + case.resolution), value / (1 + case.resolution)):
                if role == "update" and value != 0 and agrees(curve, mutant):
                    blunt.append(f"{optimizer}: would accept {mutant:.6g} for {value:.6g}, measured {curve}")
    assert not wrong, "\n".join(wrong)
    assert not blunt, "\n".join(blunt)

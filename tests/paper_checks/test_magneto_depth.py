"""What Magneto's claims rest on beside counterexamples: limits, closed sums and measurements, each by another way."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from sympy import S

from depthlaw.paper_checks.claims.statements import Growth
from depthlaw.paper_checks.papers.magneto.explosion import in_the_limit
from depthlaw.paper_checks.papers.magneto.goal import _alternating_update
from depthlaw.paper_checks.routes import second_meanfield
from depthlaw.paper_checks.routes.algebra import rational_gains
from depthlaw.paper_checks.routes.signal_propagation.gelu_growth import _log_update


@pytest.mark.parametrize("norm_kind", ["rmsnorm", "layernorm"])
def test_S2_17_the_condition_is_the_limit(norm_kind: str) -> None:
    """Both sides of the condition that is stated, at rational gains, against exact updates at w_l = 10^9."""
    signs = set()
    for length in (1, 2, 4, 7):
        for case in range(4):
            v, w = rational_gains(length, case)
            for place in range(length):
                sides = in_the_limit(norm_kind, v, w, place)
                exploding = [Fraction(10**9) if i == place else g for i, g in enumerate(w)]
                updates = [
                    float(second_meanfield.update(name, v, exploding, norm_kind=norm_kind))
                    for name in ("sub-ln", "pre-ln")
                ]
                assert updates == pytest.approx([float(side) for side in sides], rel=1e-9)
                signs.add(sides[0] < sides[1])
    assert signs == {True, False}


@pytest.mark.parametrize("norm_kind", ["rmsnorm", "layernorm"])
@pytest.mark.parametrize("scheme", ["pre-ln", "sub-ln", "sub-ln-gamma"])
def test_S3_10_sums_in_gamma_functions_are_the_sums(scheme: str, norm_kind: str) -> None:
    """GELU's closed sums at a depth that can be added up, too: they leave out what is of the order of 1/L."""
    statement = Growth(scheme=scheme, activation="gelu", norm_kind=norm_kind, order=S.One)
    for length in (10**4, 10**6):
        added = second_meanfield.log_update(scheme, length, "gelu", norm_kind)
        assert float(_log_update(statement, math.log(length))) == pytest.approx(added, abs=5 / length)


def test_S2_24_half_the_power() -> None:
    """log(L^(kappa - 1)) of the sums that the claim's check adds up, against 1/(2 (pi - 1)) = 0.233, as L grows."""
    sums = [_alternating_update(length) * math.log(length) for length in (10**3, 10**4, 10**5, 10**6)]
    powers = [math.log10(late / early) for early, late in pairwise(sums)]
    assert powers == sorted(powers, reverse=True)
    assert 1 / (2 * (math.pi - 1)) < powers[-1] < 0.26

"""Su's article on attention, S1-18: the share of q and k in the update of stacks of each scheme, by depth."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sympy import Expr, Rational, S

from paper_checks.claims.claim import Check, Evidence, Route
from paper_checks.claims.statements import Growth
from paper_checks.routes import attention
from paper_checks.routes.checks import all_of, check, outcome
from paper_checks.routes.intervals import Interval, interval, of_logs
from paper_checks.routes.kernel import Curve, curve, exponent, law
from paper_checks.routes.second_meanfield import coefficients


@dataclass(frozen=True, kw_only=True)
class DeepShare:
    """The share of q and k in the squared gradients of all matrices falls with depth; ``power``: as L^power.

    most: that it is at most at ``_DEPTHS[1]`` sublayers. is_scaled: logits over sqrt(d).
    """

    schemes: tuple[str, ...]
    is_scaled: bool
    power: Expr | None = None
    most: Expr | None = None

    def with_(self, **changes: Any) -> DeepShare:
        return replace(self, **changes)

    @property
    def text(self) -> str:
        logits = "logits over sqrt(d)" if self.is_scaled else "logits not scaled"
        law = "falls with depth" if self.power is None else f"goes as L^({self.power})"
        law += "" if self.most is None else f", to at most {self.most} at L = {_DEPTHS[1]}"
        return f"{logits}: the share of q and k in the squared gradients {law}: {', '.join(self.schemes)}"

    def allows(self, slope: Interval) -> bool | None:
        if self.power is not None:
            return slope.low <= float(self.power) <= slope.high
        return True if slope.high < 0 else False if slope.low >= 0 else None


_DEPTHS = (4, attention.DEEPEST)


def _measured_shares(s: DeepShare) -> Evidence:
    answers, numbers, over = [], {}, {}
    for scheme in s.schemes:
        shares = [attention.query_shares(scheme, length, is_scaled=s.is_scaled) for length in _DEPTHS]
        steps = [(b - a) / math.log(_DEPTHS[1] / _DEPTHS[0]) for a, b in zip(*shares, strict=True)]
        slope, deep = interval(steps), of_logs(shares[1])
        answers.append(s.allows(slope))
        numbers[scheme] = {f"L = {n}": of_logs(logs).text for n, logs in zip(_DEPTHS, shares, strict=True)}
        numbers[scheme]["power"] = slope.text
        if s.most is not None:
            answers.append(deep.within(0.0, float(s.most)))
            over |= {scheme: deep.text} if answers[-1] is False else {}
    example = {
        "printed": "insignificant in the update",
        "found": f"shares of the squared gradients at L = {_DEPTHS[1]}: "
        + ", ".join(f"{found} in {scheme}" for scheme, found in over.items()),
        "command": "depthlaw explain S1-18",
    }
    return Evidence(
        route=Route.MEASURED,
        num_effective=len(answers),
        verdict=outcome(all_of(answers)),
        detail="real Transformers, width 32, 16 tokens, q and k at gain 1: the share at both depths, and its power",
        numbers=numbers,
        counterexample=example if over else None,
    )


def _share_powers(s: DeepShare) -> list[bool | None]:
    """Where the gains shrink: dL/dW_q has lambda_v lambda_o where dL/dW_v has lambda_o, so it is gain^2 that counts."""
    out: list[bool | None] = []
    for scheme in s.schemes:
        low, high = (coefficients(scheme, length).gain_in for length in (10**4, 10**6))
        power = 2 * math.log(high / low) / math.log(100)
        if power < 0:
            out.append(s.allows(Interval(power - 1e-9, power + 1e-9)))
    return out


def _by_kernel(s: DeepShare) -> Evidence:
    """The same at infinite width, N = 4 to 1,000 layers."""
    if not s.is_scaled:
        raise LookupError("the kernel rung has logits over sqrt(d)")
    answers, numbers = [], {}
    for scheme in s.schemes:
        found = law(Growth(scheme=scheme, order=S.One))
        parts = {role: curve(found, role) for role in ("q", "k", "update")}
        lengths, whole, _ = parts["update"]
        logs = np.logaddexp(parts["q"].logs, parts["k"].logs) - whole
        # errors of a share of the whole: at most the sum of either's
        share = Curve(lengths, logs, np.maximum(parts["q"].errors, parts["k"].errors) + parts["update"].errors)
        power = exponent(share)
        assert power.low is not None and power.high is not None
        answers.append(s.allows(Interval(power.low, power.high)))
        by_length = dict(zip(lengths.tolist(), np.exp(logs).tolist(), strict=True))
        if s.most is not None:
            answers += [value <= float(s.most) for length, value in by_length.items() if length >= _DEPTHS[1]]
        numbers[scheme] = {f"L = {n:.0f}": f"{by_length[n]:.3g}" for n in (8.0, 32.0, 2000.0)}
        numbers[scheme]["power"] = f"{power.low:.3f} to {power.high:.3f}"
    return Evidence(
        route=Route.KERNEL,
        num_effective=len(answers),
        verdict=outcome(all_of(answers)),
        detail="Transformers at infinite width, 16 tokens, q and k at gain 1, N = 4 to 1,000: the share, and its power",
        numbers=numbers,
    )


SHRINKING = ("deepnorm", "su-sgd", "su-adam", "su-lamb")
_SCHEMES = ("post-ln", *SHRINKING, "pre-ln", "sub-ln")
DEEP = DeepShare(schemes=_SCHEMES, is_scaled=True, most=Rational(1, 4))
DEEP_UNSCALED = DEEP.with_(is_scaled=False)
SHARES = (
    check(
        Route.PROOF,
        "gains that shrink: the share's power is that of the gain squared, -1/2 or -1; nothing is said of gain 1",
        _share_powers,
        is_direct=True,
    ),
    Check(route=Route.MEASURED, run=_measured_shares, is_direct=True),
)
SHARES_OF_SCALED = (*SHARES, Check(route=Route.KERNEL, run=_by_kernel))
"""With logits over sqrt(d)."""

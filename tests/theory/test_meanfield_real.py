"""`theory.meanfield.update` against real networks that were written from DESIGN's text without reading `theory`.

The prediction is exact at infinite width only, so each case is measured at four widths, doubling, and the mean over
independent networks is extrapolated in powers of 1/d. The prediction must lie in the interval of the limit, which comes
from the seeds alone: two-sided, Student, at FAMILY_ERROR over all comparisons together. Each case has as many networks
as it takes to reject the same prediction multiplied or divided by 1 + `resolution`, and must do so.

The survey (every scheme, activation, norm and pattern of gains, and depth to 128) takes about an hour of one core:

    DEPTHLAW_SURVEY=1 pytest tests/theory/test_meanfield_real.py -m slow
"""

from __future__ import annotations

import itertools
import math
import os
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest
import scipy.stats
import torch

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

# Every scheme and placement, optimizer, norm and activation; gains of every pattern; from one sublayer to sixteen.
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
]

PLACEMENTS = ("post-ln", "pre-ln", "sub-ln", "peri-ln", "deepnorm", "ln-scaling", "t-fixup")


def _survey() -> Iterator[Case]:
    for scheme, activation, norm_kind in itertools.product(
        realnet.SCHEMES, realnet.ACTIVATIONS, ("layernorm", "rmsnorm")
    ):
        for num in (5, 10) if activation == "relu" else (5,):
            yield Case(scheme=scheme, num_sublayers=num, activation=activation, norm_kind=norm_kind)
        if scheme in PLACEMENTS:
            for gains in GAINS:
                yield Case(scheme=scheme, num_sublayers=4, activation=activation, norm_kind=norm_kind, gains=gains)
    for scheme in realnet.SCHEMES:
        yield Case(scheme=scheme, num_sublayers=32, activation="gelu", norm_kind="rmsnorm", resolution=0.2)
        yield Case(scheme=scheme, num_sublayers=2, activation="gelu")
        if scheme != "sub-ln-gamma":
            yield Case(scheme=scheme, num_sublayers=1)
            yield Case(scheme=scheme, num_sublayers=1, activation="silu", norm_kind="rmsnorm")
    for scheme in ("pre-ln", "sub-ln", "peri-ln", "deepnorm", "admin", "depth-mup", "ln-scaling", "su-adam"):
        yield Case(scheme=scheme, num_sublayers=64, resolution=0.2)
        yield Case(scheme=scheme, num_sublayers=64, gains="random", resolution=0.3)
        yield Case(scheme=scheme, num_sublayers=128, norm_kind="rmsnorm", resolution=0.25)
    for scheme, norm_kind in itertools.product(("post-ln", "pre-ln", "sub-ln"), ("layernorm", "rmsnorm")):
        yield Case(scheme=scheme, num_sublayers=2, norm_kind=norm_kind, matrices="explicit", resolution=0.1)
        yield Case(
            scheme=scheme, num_sublayers=3, activation="gelu", norm_kind=norm_kind, matrices="explicit", resolution=0.1
        )
    yield Case(scheme="post-ln", num_sublayers=64, resolution=0.3)
    yield Case(scheme="post-ln", num_sublayers=128, resolution=0.5)


# Coarse: every place of a norm, activation, norm and pattern of gains, with so many networks as a miss by a third
# takes, of which FAST in make test; all of CASES, and finer, in make test-long.
COARSE = [
    replace(case, resolution=0.33)
    for case in CASES
    if case.scheme in ("sub-ln", "peri-ln", "t-fixup", "skipinit", "depth-mup", "ln-scaling")
    or case.gains in ("random", "exploding-w", "exploding-v")
]
FAST = [
    case
    for case in COARSE
    if case.scheme in ("post-ln", "pre-ln", "deepnorm", "ln-scaling")
    or (case.scheme, case.num_sublayers, case.norm_kind)
    in (
        ("sub-ln", 8, "layernorm"),
        ("peri-ln", 4, "rmsnorm"),
        ("t-fixup", 3, "layernorm"),
        ("depth-mup", 6, "layernorm"),
    )
]
SURVEY = [case for case in dict.fromkeys(_survey()) if case not in CASES] if "DEPTHLAW_SURVEY" in os.environ else []
NUM_COMPARISONS = (len(CASES) + len(COARSE) + len(SURVEY)) * len(FUNCTIONALS) * (1 + len(ROLES))


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


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# --- the comparison --------------------------------------------------------------------------------------------------


def _parameters() -> list:
    return [
        pytest.param(case, id=f"{case.id}-coarse", marks=[] if case in FAST else [pytest.mark.slow]) for case in COARSE
    ] + [pytest.param(case, id=case.id, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]) for case in CASES + SURVEY]


@pytest.mark.parametrize("case", _parameters())
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


def test_cases_cover_what_they_say() -> None:
    assert {case.scheme for case in CASES} == set(realnet.SCHEMES)
    for cases in (CASES, FAST):
        assert {case.activation for case in cases} == set(realnet.ACTIVATIONS)
        assert {case.gains for case in cases} == {"own", *GAINS}
    places = itertools.product(("post-ln", "pre-ln", "sub-ln", "peri-ln"), realnet.NORMS)
    assert {(case.scheme, case.norm_kind) for case in CASES} >= set(places)
    assert len({case.id for case in CASES + SURVEY}) == len(CASES + SURVEY)


# --- the check must reject wrong theories ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A wrong prediction, `factor` times what the theory says when it is asked about something else."""

    what: str
    optimizer: str = "sgd"
    role: str = "update"
    as_role: str | None = None
    factor: float = 1.0
    asked: dict = field(default_factory=dict)
    value: float | None = None

    def wrong(self, case: Case) -> float:
        if self.value is not None:
            return self.value
        return self.factor * case.predicted(self.optimizer, **self.asked)[self.as_role or self.role]


GROWING_W, GROWING_V = GAINS["growing"](6)
MUTANTS: dict[Case, list[Mutant]] = {
    Case(scheme="sub-ln", num_sublayers=8): [
        *(
            Mutant(what="LayerNorm inside does not centre", optimizer=optimizer, asked={"norm_kind": "rmsnorm"})
            for optimizer in FUNCTIONAL
        ),
        Mutant(what="fc1 is fc2", role="fc1", as_role="fc2"),
        Mutant(what="the norm inside is a norm behind", asked={"scheme": "peri-ln"}),
    ],
    Case(scheme="pre-ln", num_sublayers=8): [
        Mutant(what="x_0 is not counted", value=sum(1 / (k / 2) for k in range(1, 9))),
        Mutant(what="x_0 is counted twice", value=sum(1 / (2 + k / 2) for k in range(1, 9))),
        Mutant(what="E phi^2 is about 1", asked={"activation": "identity"}),
        Mutant(what="the output projections are scaled", asked={"scheme": "gpt2"}),
    ],
    Case(scheme="deepnorm", num_sublayers=8): [
        *(
            Mutant(what=what, optimizer=optimizer, factor=factor)
            for optimizer in FUNCTIONAL
            for what, factor in (("a factor 2 dropped", 0.5), ("the exponent off by 1/4", 8**0.25), ("5 % off", 1.05))
        ),
        Mutant(what="N for 2N", optimizer="adam", asked={"num_sublayers": 4}),
        Mutant(what="relu is about gelu", asked={"activation": "gelu"}),
        Mutant(what="symmetric without the 4", asked={"scheme": "su-sgd"}),
    ],
    Case(scheme="depth-mup", num_sublayers=6): [
        Mutant(what="no learning-rate multiplier", optimizer="adam", factor=6**0.5),
        Mutant(what="a multiplier under SGD", factor=6**-0.5),
        Mutant(what="branch 1/N", asked={"scheme": "completep"}),
    ],
    Case(scheme="pre-ln", num_sublayers=6, gains="growing"): [
        Mutant(what="the sublayers in reverse", asked={"w": GROWING_W[::-1], "v": GROWING_V[::-1]}),
        Mutant(what="w for v", role="fc1", asked={"w": GROWING_V, "v": GROWING_W}),
        Mutant(what="gains ignored", role="fc2", asked={"w": None, "v": None}),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("case", MUTANTS, ids=lambda case: case.id)
def test_wrong_theories_are_rejected(case: Case) -> None:
    curves, stack = measured(case), case.stack()
    survivors = []
    for mutant in MUTANTS[case]:
        multiplier = stack.lr_multiplier.get(mutant.optimizer, 1.0)
        curve = multiplied(curves[FUNCTIONAL[mutant.optimizer], mutant.role], multiplier)
        assert agrees(curve, case.predicted(mutant.optimizer)[mutant.role]), mutant
        if agrees(curve, mutant.wrong(case)):
            survivors.append(mutant)
    assert not survivors


# --- the measurement itself, without the theory ----------------------------------------------------------------------


def _hand() -> Iterator[tuple[Case, str, str, float]]:
    """What can be derived on paper in a few lines."""

    def case(scheme: str, num: int, norm_kind: str = "layernorm", activation: str = "relu") -> Case:
        return Case(scheme=scheme, num_sublayers=num, norm_kind=norm_kind, activation=activation)

    yield case("post-ln", 4), "square", "update", 2 * 4 / 3
    yield case("pre-ln", 4), "square", "update", sum(1 / (1 + k / 2) for k in range(1, 5))
    yield case("pre-ln", 4, activation="identity"), "square", "update", 2 * sum(1 / (1 + k) for k in range(1, 5))
    yield case("sub-ln", 4, "rmsnorm"), "square", "update", 2 * sum(1 / (1 + k) for k in range(1, 5))
    # LayerNorm centres: Var relu(z) = (1 - 1/pi)/2, so fc1 is pi/(pi - 1) times fc2 and the gradient grows on its way
    # down by 1 + pi/(pi - 1)/k at sublayer k + 1.
    ratio = math.pi / (math.pi - 1)
    down = [math.prod((k + ratio) / k for k in range(n + 1, 5)) / 5 for n in range(1, 5)]
    yield case("sub-ln", 4), "square", "fc2", sum(down)
    yield case("sub-ln", 4), "square", "fc1", ratio * sum(down)
    # One sublayer: every norm of one outer product of Gaussian vectors.
    one = case("post-ln", 1, activation="identity")
    yield one, "square", "fc2", 1 / 2
    yield one, "sign", "fc2", 2 / math.pi / math.sqrt(2)
    yield one, "layerwise_sign", "fc1", 2 / math.pi / math.sqrt(2)
    yield one, "layerwise", "fc1", 1 / math.sqrt(2)
    yield one, "nuclear", "fc2", 1 / math.sqrt(2)
    fixup = case("fixup", 4)
    yield fixup, "square", "fc2", 1 / 2
    yield fixup, "square", "fc1", 0.0
    yield fixup, "layerwise", "update", 0.0
    yield case("rezero", 3), "sign", "update", 0.0


HAND = list(_hand())


@pytest.mark.slow
@pytest.mark.parametrize("case", list(dict.fromkeys(case for case, *_ in HAND)), ids=lambda case: case.id)
def test_measurement_by_hand(case: Case) -> None:
    curves = measured(case)
    for of, functional, role, value in HAND:
        if of != case:
            continue
        assert agrees(curves[functional, role], value), (functional, role, value, curves[functional, role])
        assert value == 0 or not agrees(curves[functional, role], 1.05 * value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "activation", "norm_kind"),
    [
        ("post-ln", "gelu", "layernorm"),
        ("sub-ln", "gelu", "layernorm"),
        ("peri-ln", "tanh", "rmsnorm"),
        ("t-fixup", "silu", "rmsnorm"),
    ],
)
def test_implicit_matrices_have_the_law_of_explicit_ones(scheme: str, activation: str, norm_kind: str) -> None:
    """At a width where 1/d effects are large: each functional's distribution (two-sample Kolmogorov-Smirnov)."""
    stack = scheme_numbers(scheme, 3, activation, norm_kind)
    explicit = realnet.measure(stack, 6, 20_000, 1, matrices="explicit")
    implicit = realnet.measure(stack, 6, 20_000, 2)
    other = realnet.measure(stack, 7, 20_000, 3)
    smallest = {key: scipy.stats.ks_2samp(explicit[key], implicit[key]).pvalue for key in explicit}
    assert min(smallest.values()) > FAMILY_ERROR / (4 * len(smallest)), smallest
    # and the same test tells a width of 6 from one of 7
    assert scipy.stats.ks_2samp(explicit["layerwise", "update"], other["layerwise", "update"]).pvalue < FAMILY_ERROR


RATE = 1e-6
TINY = 1e-300  # eps: zero would be 0/0 where a relu is off
STEPS: dict[str, tuple[str, Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]]] = {
    "sgd": ("square", lambda p: torch.optim.SGD(p, lr=RATE)),
    "momentum": ("square", lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.9)),
    "adam": ("sign", lambda p: torch.optim.Adam(p, lr=RATE, eps=TINY)),
    "adamw": ("sign", lambda p: torch.optim.AdamW(p, lr=RATE, eps=TINY, weight_decay=0)),
    # RMSprop does not correct its bias: at alpha = 0.99 its first step is ten times the sign.
    "rmsprop": ("sign", lambda p: torch.optim.RMSprop(p, lr=RATE * math.sqrt(1 - 0.99), alpha=0.99, eps=TINY)),
    "adafactor": ("layerwise_sign", lambda p: torch.optim.Adafactor(p, lr=RATE, eps=(1e-100, TINY), weight_decay=0)),
}
POWER_OF_WIDTH = {"square": 1.0, "sign": 1.5, "layerwise_sign": 1.0, "nuclear": 0.5}


@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("name", STEPS)
def test_functional_is_the_first_step_of_the_real_optimizer(name: str, activation: str) -> None:
    functional, make = STEPS[name]
    width = 24
    for scheme in ("sub-ln", "post-ln"):
        parameters, logit = realnet.one_network(scheme_numbers(scheme, 3, activation), width, 5)
        logit.backward()
        expected = realnet.gradient_functionals(parameters)
        stepped = realnet.first_step(parameters, make)
        for role in ROLES:
            value = stepped[role] / RATE / width ** POWER_OF_WIDTH[functional]
            assert value == pytest.approx(expected[functional, role], rel=1e-7), (scheme, role)


def test_functional_is_the_first_step_of_muon() -> None:
    """With Newton-Schulz coefficients that converge; it runs in bfloat16, which has eight bits."""

    def make(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Muon(parameters, lr=RATE, weight_decay=0, ns_coefficients=(1.5, -0.5, 0.0), ns_steps=10)

    width = 24
    parameters, logit = realnet.one_network(scheme_numbers("sub-ln", 3, "gelu"), width, 5)
    logit.backward()
    expected, stepped = realnet.gradient_functionals(parameters), realnet.first_step(parameters, make)
    for role in ROLES:
        assert stepped[role] / RATE / width**0.5 == pytest.approx(expected["nuclear", role], rel=2**-7)

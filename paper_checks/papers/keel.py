"""Keel (Post-LayerNorm Is Back): the scale at which a post-norm's residual path passes gradients on."""

from __future__ import annotations

from functools import cache
from typing import Any

from sympy import Expr, Integer, Rational, exp, limit, log, oo

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Amendment, Claim, Finding, Kind, Mutant, Part, Route, Verdict, claim
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes import algebra
from depthlaw.paper_checks.routes.checks import Answers, awaits, check, python_command
from depthlaw.theory.symbols import L

# ---------------------------------------------------------------- KE-02: the critical scale


def _passed(power: Expr) -> Expr:
    """lim (alpha / sqrt(alpha^2 + 1))^L at alpha = L^power: what L post-norms leave of the residual path's gradient."""
    return exp(limit(-L / 2 * log(1 + L ** (-2 * power)), L, oo))


def _number(power: Expr, length: int) -> float:
    alpha = float(length) ** float(power)
    return float((alpha / (alpha**2 + 1) ** 0.5) ** length)


_LIMIT = Values.of("lim (L/sqrt(L^2 + 1))^L = {value}", value=1)
_CRITICAL = Values.of("alpha = L^{power} is the smallest power at which the gradient does not vanish", power=1)


@check(Route.PROOF, "the limit")
def _limit(s: Values) -> list[bool | None]:
    return [algebra.equal(_passed(Integer(1)), s["value"])]


@check(Route.PROOF, "lim (alpha/sqrt(alpha^2 + 1))^L at the printed power of L, and at one a twelfth below")
def _vanishes_below(s: Values) -> Answers:
    at, below = (_passed(power) for power in (s["power"], s["power"] - Rational(1, 12)))
    powers = (Rational(1, 4), Rational(1, 2), Rational(3, 4), Integer(1))
    code = "print(*[(1e6**(2*p) / (1e6**(2*p) + 1))**5e5 for p in (0.25, 0.5, 0.75, 1)])"
    holds = at != 0 and below == 0
    example = {
        "printed": s.text,
        "found": "alpha = sqrt(L) leaves exp(-1/2), alpha = L^(3/4) leaves 1, alpha = L^(1/4) nothing",
        "command": python_command(code),
    }
    numbers = {f"alpha = L^({power})": str(_passed(power)) for power in powers}
    return Answers(holds=[holds], numbers=numbers, counterexample=None if holds else example)


@check(Route.NUMERIC, "the same at 10^4 and 10^6 sublayers")
def _vanishes_in_numbers(s: Values) -> list[bool | None]:
    """What is left, once it is there, stays; what vanishes is a third at the most of what it was at 10^4."""
    step = Rational(1, 12)
    stays = [_number(power, 10**6) > 0.9 * _number(power, 10**4) > 0 for power in (s["power"], s["power"] - step)]
    return [stays[0] and not stays[1]]


_KE_02 = Claim(
    id="KE-02",
    kind=Kind.RESULT,
    locator="(19) and footnote 2",
    quote="lim (L/sqrt(L^2 + 1))^L = 1, so alpha = L is the critical scale",
    summary="alpha = L is the critical scale of the residual path: (L/sqrt(L^2 + 1))^L goes to 1",
    parts=(
        Part(name="the limit, of a path at initialisation", statement=_LIMIT, checks=(_limit,)),
        Part(
            name="that it makes alpha = L critical, at initialisation",
            statement=_CRITICAL,
            checks=(_vanishes_below, _vanishes_in_numbers),
            mutants=changed(_CRITICAL, power=[Rational(1, 4), Rational(3, 4), 2]),
            expected=Verdict.REFUTED,
            instead=Amendment(statement=_CRITICAL.with_(power=Rational(1, 2)), text="the critical scale is sqrt(L)"),
            condition="another criterion than the gradient of the residual path, such as the update under an optimizer",
        ),
    ),
    finding=Finding(
        "Keel's limit holds, but does not make alpha = L critical: from alpha = sqrt(L) on the residual path passes "
        "the gradient on",
        rank=63,
    ),
)

# ---------------------------------------------------------------- KE-04: DeepNorm, as Keel states it

_DEEPNORM = Values.of(alpha=L ** Rational(1, 4), beta=L ** -Rational(1, 4))


@check(Route.ARITHMETIC, "DeepNet's decoder, alpha = (2M)^(1/4) and beta = (8M)^(-1/4), L counting sublayers or layers")
def _as_deepnet(s: Values) -> Answers:
    readings = {"sublayers, L = 2M": L / 2, "layers, L = M": L}
    fits = {
        name: algebra.equal(s["alpha"], (2 * M) ** Rational(1, 4))
        and algebra.equal(s["beta"], (8 * M) ** -Rational(1, 4))
        for name, M in readings.items()
    }
    example = {
        "printed": s.text,
        "found": "DeepNet's alpha beta is 4^(-1/4) = 0.707 at every depth, the printed one is 1",
        "command": python_command("M = 12; print((2*M)**0.25 * (8*M)**-0.25)"),
    }
    holds = any(fits.values())
    return Answers(holds=[holds], numbers=fits, counterexample=None if holds else example)


_KE_04 = claim(
    "KE-04",
    kind=Kind.REMARK,
    name="the gains at initialisation",
    locator="Section 2.4",
    quote="DeepNorm's decoder: alpha = L^0.25, beta = L^-0.25",
    summary="DeepNorm's decoder has alpha = L^(1/4) and beta = L^(-1/4)",
    statement=_DEEPNORM,
    checks=(_as_deepnet,),
    mutants=(Mutant(name="beta = 1", statement=_DEEPNORM.with_(beta=1)),),
    expected=Verdict.REFUTED,
    instead=Amendment(
        statement=_DEEPNORM.with_(beta=(4 * L) ** -Rational(1, 4)), text="beta = (4L)^(-1/4), L sublayers"
    ),
    condition="a gain beta that is counted in units of Xavier's over sqrt(2)",
    finding=Finding(
        "DeepNorm's gain beta is (4L)^(-1/4), not L^(-1/4) as Keel states it, L counting sublayers", rank=90
    ),
)

# ---------------------------------------------------------------- KE-03: the norm inside

_GAINS = Values.of("LN(g LN(x)) is no multiple of g LN(x) where the gains g {are} all alike", are="are not")
_STEP = Values.of(
    "alpha = L, gains of 1: without the norm inside, the first gradients of the matrices are {word}", word="larger"
)


@check(Route.NUMERIC, "LN(g LN(x)) beside g LN(x) up to a factor, gains alike and not, 1,000 x of width 8")
def _twice_normed(s: Values) -> list[bool | None]:
    import numpy as np

    draw = np.random.default_rng(3)
    x, gains = draw.normal(size=(1000, 8)), np.ones(8) if s["are"] == "are" else np.exp(draw.normal(size=8))

    def norm(z: np.ndarray) -> np.ndarray:
        z = z - z.mean(-1, keepdims=True)
        return z / np.sqrt((z**2).mean(-1, keepdims=True))

    once, two = gains * norm(x), norm(gains * norm(x))
    return [bool(abs(two - once * (two * once).sum() / (once**2).sum()).max() > 1e-3)]


_ROUNDING = 1e-9


@cache
def _gradients(*, is_inside: bool, num_sublayers: int = 8) -> tuple[Any, Any]:
    """Of matrices, and of the outer norms' gains: a drawn Keel of FFNs, 16 wide, with the norm inside or without."""
    import torch

    draw = torch.Generator().manual_seed(11)
    matrices = torch.randn((num_sublayers, 2, 16, 16), generator=draw, dtype=torch.float64) / 4
    readout, first = (torch.randn(16, generator=draw, dtype=torch.float64) for _ in range(2))
    gains = torch.ones((num_sublayers, 16), dtype=torch.float64)
    matrices, gains = matrices.requires_grad_(), gains.requires_grad_()

    def norm(z: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(z, (16,), eps=0.0)

    x = norm(first)
    for (w1, w2), gain in zip(matrices, gains, strict=True):
        x = gain * norm(num_sublayers * x + ((norm(x) if is_inside else x) @ w1).relu() @ w2)
    of_matrices, of_gains = torch.autograd.grad(x @ readout, (matrices, gains))
    return of_matrices, of_gains


@check(
    Route.MEASURED,
    "gradients of a drawn stack of 8 FFN sublayers, with and without the norm inside",
    steps=lambda: ("gains of 1: the outer norm's output is normed, and LN(LN(z)) = LN(z) for every z: one function",),
)
def _first_step(s: Values) -> Answers:
    (with_it, gains), (without, other_gains) = (_gradients(is_inside=inside) for inside in (True, False))
    apart = float((with_it - without).norm() / with_it.norm())
    longer = float(without.norm() / with_it.norm())
    word = "equal" if apart < _ROUNDING else "larger" if longer > 1 else "smaller"
    of_gains = float((gains - other_gains).norm() / gains.norm())
    # Below that, the number is the processor's and not the network's.
    of_matrices = f"less than {_ROUNDING:g}" if apart < _ROUNDING else f"{apart:.2f}"
    text = f"matrices apart by {of_matrices} of their length, the outer norms' gains by {of_gains:.2f} of theirs"
    example = {"printed": s.text, "found": text, "command": "depthlaw explain KE-03"}
    return Answers(
        holds=[word == s["word"]],
        numbers={"matrices": of_matrices, "gains": of_gains},
        counterexample=None if word == s["word"] else example,
    )


_STABLE = "training runs of Keel with and without the norm inside, at several depths"

_KE_03 = Claim(
    id="KE-03",
    kind=Kind.STEP,
    locator="Sections 3.4 and 4.2",
    quote="the two LNs cannot be merged; alpha = L without the inner one is less stable",
    summary="Keel's two norms cannot be merged into one, and without the inner one it is less stable",
    parts=(
        Part(
            name="that they are not one norm, once gains differ",
            statement=_GAINS,
            checks=(_twice_normed,),
            mutants=changed(_GAINS, are="are"),
        ),
        Part(
            name="less stable, in the first step",
            statement=_STEP,
            checks=(_first_step,),
            mutants=changed(_STEP, word="smaller"),
            expected=Verdict.REFUTED,
            instead=Amendment(
                statement=_STEP.with_(word="equal"),
                text="while gains are 1 both are one function of the matrices, and so is every gradient of a matrix",
            ),
            condition="gains that training has made differ; in the first step the gains' own gradients differ already",
        ),
        Part(
            name="less stable, in training",
            statement=_STEP,
            checks=(awaits(_STABLE),),
            expected=Verdict.UNDECIDED,
            open=_STABLE,
        ),
    ),
    finding=Finding(
        "Keel's inner norm does nothing at the start: with gains of 1 the network without it is the same function, and "
        "every matrix takes the same first step",
        rank=67,
    ),
)

# ---------------------------------------------------------------- KE-05: the largest rates

_RATES = {
    "pre-ln": ("0.00765", "0.00467"),
    "keel": ("0.0101", "0.00631"),
    "post-ln": ("0.0003", "0.00028"),
    "deepnorm": ("0.00035", "0.00035"),
}
_LARGEST = Values.of("Table 1: {scheme} bears the largest rate of all, at 64 layers and at 512", scheme="keel")
_FALLS = Values.of("from 64 to 512 layers the largest rate falls as the first update grows")


@check(Route.ARITHMETIC, "the printed rates, compared")
def _in_table(s: Values) -> list[bool | None]:
    return [max(_RATES, key=lambda scheme: float(_RATES[scheme][at])) == s["scheme"] for at in (0, 1)]


@check(Route.MEANFIELD, "the printed falls beside how much Adam's first update grows", is_open=True)
def _beside_updates(_: Values) -> Answers:
    from depthlaw.theory.meanfield.update import predict

    numbers = {}
    for scheme, (few, many) in _RATES.items():
        grows = predict(scheme, "adam", 1024).update / predict(scheme, "adam", 128).update
        numbers[scheme] = f"rate falls by {float(few) / float(many):.2f}, update grows by {grows:.2f}"
    return Answers(holds=[None], numbers=numbers)


_OPEN = "learning rates swept at 64 and 512 layers: the table's own falls are not those of the first update"

_KE_05 = Claim(
    id="KE-05",
    kind=Kind.RESULT,
    locator="Table 1",
    quote="largest rates at 64 and 512 layers: Pre-LN 7.65e-3, 4.67e-3; Keel 1.01e-2, 6.31e-3; Post-LN 3.0e-4, 2.8e-4; "
    "DeepNorm 3.5e-4, 3.5e-4",
    summary="Keel bears the largest learning rate of four schemes, at 64 and at 512 layers",
    parts=(
        Part(
            name="the table, of itself",
            statement=_LARGEST,
            checks=(_in_table,),
            mutants=changed(_LARGEST, scheme=["pre-ln", "deepnorm"]),
        ),
        Part(
            name="that these are the largest",
            statement=_FALLS,
            checks=(_beside_updates,),
            expected=Verdict.UNDECIDED,
            open=_OPEN,
        ),
    ),
)

CLAIMS = (_KE_02, _KE_03, _KE_04, _KE_05)

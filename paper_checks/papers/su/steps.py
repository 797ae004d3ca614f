"""Su's article, the steps of the optimizers and what they do to the loss: SGD, Adam and LAMB.

g the gradient, theta the parameters, eta the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

from sympy import Expr, Integer, lambdify, simplify, sqrt

from paper_checks.claims.claim import Amendment, Check, Claim, Evidence, Finding, Mutant, Part, Route, Verdict, claim
from paper_checks.claims.letters import g, l1_g, n, norm_g, read_update, sign_g
from paper_checks.claims.statements import Values
from paper_checks.papers.su import networks as su_nets
from paper_checks.routes import one_liners
from paper_checks.routes.checks import check, outcome
from paper_checks.routes.intervals import interval
from paper_checks.routes.search import search
from theory.symbols import eta

_GRAD = r"\nabla_{\boldsymbol{\theta}}\mathcal{L}(\boldsymbol{\theta})"
_SECTION = "Multiple Optimizers"


# ---------------------------------------------------------------- S1-02, S1-31: one step of SGD, of Adam


def _published(optimizer: str) -> Check:
    def decide(s: Values) -> list[bool | None]:
        from theory.optimizers import optimizer as published

        return [bool((s["change"] / read_update(published(optimizer).loss_change_text)).cancel() == 1)]

    return check(Route.PROOF, f"<g, step> of {optimizer}'s published update map, reduced symbolically", decide)


_RATES = (1e-4, 1e-5)


@cache
def _one_step(optimizer: str) -> tuple[tuple[tuple[float, ...], float, float, float], ...]:
    """By seed: the loss change of one step of torch's optimizer at each rate, ||g||, ||g||_1 and <g, step>/rate."""
    import torch

    make = {
        "sgd": lambda matrices, rate: torch.optim.SGD(matrices, lr=rate),
        "adam": lambda matrices, rate: torch.optim.Adam(matrices, lr=rate, eps=0.0),
    }[optimizer]
    found = []
    for seed in range(8):
        changes, along = [], 0.0
        network = su_nets.Transformer(seed, "gelu")
        before = network.loss().item()
        gradients = network.gradients()
        start = [matrix.detach().clone() for matrix in network.parameters]
        for rate in _RATES:
            for matrix, gradient in zip(network.parameters, gradients, strict=True):
                matrix.grad = gradient.clone()
            make(network.parameters, rate).step()
            changes.append(network.loss().item() - before)
            with torch.no_grad():
                moved = zip(network.parameters, start, gradients, strict=True)
                along = sum(float(((matrix - old) * slope).sum()) for matrix, old, slope in moved) / rate
                for matrix, old in zip(network.parameters, start, strict=True):
                    matrix.copy_(old)
        square = sum(float((x**2).sum()) for x in gradients)
        size = sum(float(x.abs().sum()) for x in gradients)
        found.append((tuple(changes), math.sqrt(square), size, along))
    return tuple(found)


def _real_step(optimizer: str) -> Check:
    """The relative distance from the printed change falls with the rate, as what is left over is of second order."""

    def run(statement: Values) -> Evidence:
        printed = lambdify((eta, norm_g, l1_g), statement["change"], modules="math")
        powers, off = [], 0.0
        for changes, norm, size, along in _one_step(optimizer):
            far, near = (abs(c / printed(rate, norm, size) - 1) for c, rate in zip(changes, _RATES, strict=True))
            powers.append(math.log10(far / near))
            off = max(off, abs(along / printed(1.0, norm, size) - 1))
        holds = interval(powers).within(0.5, 1.5)
        return Evidence(
            route=Route.MEASURED,
            num_effective=len(powers),
            verdict=outcome(False if off > 1e-6 else holds),
            detail=f"one step of torch.optim's {optimizer} on a real Transformer: <g, step> is the printed change; the "
            "loss's own differs by a share in proportion to the rate",
            numbers={"power of the rate": su_nets.shown(sum(powers) / len(powers))},
        )

    return Check(route=Route.MEASURED, run=run, is_direct=True)


_SGD, _ADAM = Values.of(change=-eta * norm_g**2), Values.of(change=-eta * l1_g)
_S1_02 = claim(
    "S1-02",
    source="su",
    locator="Increment Explosion, after the first equation",
    quote=r"For SGD, we have $\Delta\boldsymbol{\theta}=-\eta " + _GRAD + r"$, so $\Delta\mathcal{L} \approx "
    r"-\eta\Vert" + _GRAD + r"\Vert^2$.",
    summary="one step of SGD changes the loss by -eta ||g||^2 to first order",
    uses=("S1-01",),
    statement=_SGD,
    checks=(_published("sgd"), _real_step("sgd")),
    mutants=(
        Mutant(name="not squared", statement=Values.of(change=-eta * norm_g)),
        Mutant(name="half of it", statement=Values.of(change=-eta * norm_g**2 / 2)),
        Mutant(name="up", statement=Values.of(change=eta * norm_g**2)),
    ),
)
_S1_31 = claim(
    "S1-31",
    source="su",
    locator=f"{_SECTION}, second paragraph",
    quote=r"so $\Delta\mathcal{L} \approx -\eta\Vert" + _GRAD + r"\Vert_1$.",
    summary="the step -eta sign(g) changes the loss by -eta ||g||_1 to first order",
    uses=("S1-01",),
    statement=_ADAM,
    checks=(_published("adam"), _real_step("adam")),
    mutants=(
        Mutant(name="the 2-norm", statement=Values.of(change=-eta * norm_g)),
        Mutant(name="half of it", statement=Values.of(change=-eta * l1_g / 2)),
        Mutant(name="SGD's", statement=_SGD),
    ),
)


# ---------------------------------------------------------------- S1-30: Adam's step


@dataclass(frozen=True, kw_only=True)
class AdamStep:
    """Delta theta = ``entry``, eps 0, of an entry whose gradients are not 0.

    Exactly at the first step (``at_first``); else at every step, up to an accuracy: without ``spread`` no more than the
    sign is asked; with spread r, where all gradients of an entry so far are of one sign and their sizes lie in
    [(1 - r) c, (1 + r) c] for some c, the factor between the two sides is asked to lie within (1 + r)/(1 - r) of 1.
    """

    entry: Expr
    at_first: bool = False
    spread: Fraction | None = None

    @property
    def text(self) -> str:
        if self.at_first:
            return f"Delta theta = {self.entry} at the first step, eps 0"
        if self.spread is None:
            return f"Delta theta is approximately {self.entry} at every step"
        low, high = 1 - self.spread, 1 + self.spread
        return (
            f"Delta theta is {self.entry} up to a factor {high / low}, while an entry's gradients stay within {low} to "
            f"{high} of one number"
        )

    def allows(self, gradients: Sequence[Fraction]) -> bool | None:
        """Whether the hypotheses are met by the gradients of an entry up to a step."""
        if self.at_first:
            return len(gradients) == 1
        if self.spread is None:
            return True
        sizes = [abs(x) for x in gradients]
        one_sign = len({x > 0 for x in gradients}) == 1
        return one_sign and max(sizes) * (1 - self.spread) <= min(sizes) * (1 + self.spread)

    def agrees(self, step: float, gradient: Fraction, slack: float = su_nets.ROUNDING) -> bool:
        """Whether a step at learning rate 1 is the printed one, to the accuracy that is asked."""
        at = {g: gradient, sign_g: 1 if gradient > 0 else -1, eta: 1}
        factor = step / float(self.entry.subs(at))
        if self.at_first:
            return abs(factor - 1) < slack
        if self.spread is None:
            return factor > 0
        most = float((1 + self.spread) / (1 - self.spread))
        return (1 - slack) / most <= factor <= most * (1 + slack)


_DECAYS = Fraction(9, 10), Fraction(999, 1000)


def _adam_step(gradients: Sequence[Fraction]) -> float:
    """-m_hat / sqrt(v_hat) after these gradients of an entry, from the moving averages as Adam's paper defines them."""
    m = v = Fraction(0)
    for x in gradients:
        m = _DECAYS[0] * m + (1 - _DECAYS[0]) * x
        v = _DECAYS[1] * v + (1 - _DECAYS[1]) * x * x
    steps = len(gradients)
    return -float(m / (1 - _DECAYS[0] ** steps)) / math.sqrt(v / (1 - _DECAYS[1] ** steps))


def _adam_searched(statement: AdamStep) -> Evidence:
    from hypothesis import strategies as st

    halves = st.integers(-20, 20).filter(bool).map(lambda i: Fraction(i, 2))
    near = st.tuples(st.sampled_from((-1, 1)), st.lists(st.integers(9, 11), min_size=1, max_size=6)).map(
        lambda case: [case[0] * Fraction(i) for i in case[1]]
    )
    cases = st.one_of(st.lists(halves, min_size=1, max_size=5), near)

    def holds(gradients: list[Fraction]) -> bool | None:
        if not statement.allows(gradients):
            return None
        return statement.agrees(_adam_step(gradients), gradients[-1])

    found = search(cases, holds, max_examples=120)
    example = None
    if found.found is not None:
        last, step = found.found[-1], _adam_step(found.found)
        sequence = ", ".join(str(x) for x in found.found)
        example = {
            "printed": statement.text,
            "found": f"gradients {sequence} of an entry: step {step:+.4g} eta, -sign(g) = {-1 if last > 0 else 1}",
            "gradients": [str(x) for x in found.found],
            "command": one_liners.adam_step([str(x) for x in found.found]),
        }
    return Evidence(
        route=Route.PROPERTY,
        num_effective=found.num_effective,
        verdict=outcome(found.found is None),
        detail="gradients of one entry over one to six steps, exact moving averages, beta 0.9 and 0.999",
        counterexample=example,
    )


@cache
def _torch_steps(name: str) -> tuple[tuple[tuple[Fraction, ...], float], ...]:
    """(gradients up to a step, that step at learning rate 1) of torch.optim's optimizer, eps 0, entry by entry."""
    import torch

    rows = (
        (1, -Fraction(1, 2), 3, -2),
        (10, 9, 11, 10),
        (-9, -11, -10, -9),
        (2, 2, 2, 2),
        (Fraction(1, 1000), 1000, 1, 1),
    )
    gradients = [tuple(map(Fraction, row)) for row in rows]
    theta = torch.nn.Parameter(torch.zeros(len(gradients), dtype=torch.float64))
    more = {"weight_decay": 0.0} if name == "AdamW" else {}
    optimizer = getattr(torch.optim, name)([theta], lr=1.0, eps=0.0, **more)
    found = []
    for step in range(4):
        before = theta.detach().clone()
        theta.grad = torch.tensor([float(row[step]) for row in gradients], dtype=torch.float64)
        optimizer.step()
        moved = (theta.detach() - before).tolist()
        found += [(row[: step + 1], dx) for row, dx in zip(gradients, moved, strict=True)]
    return tuple(found)


def _adam_in_torch(s: AdamStep) -> list[bool | None]:
    found = [pair for name in ("Adam", "AdamW") for pair in _torch_steps(name)]
    return [s.agrees(step, gradients[-1]) for gradients, step in found if s.allows(gradients)]


_ADAM_CHECKS = (
    Check(route=Route.PROPERTY, run=_adam_searched, is_direct=True),
    check(
        Route.MEASURED,
        "torch.optim.Adam and AdamW (no weight decay), eps 0: five entries over four steps",
        _adam_in_torch,
        is_direct=True,
    ),
)
_AT_FIRST = AdamStep(entry=-eta * sign_g, at_first=True)
_EVERY = AdamStep(entry=-eta * sign_g)
_STEADY = replace(_EVERY, spread=Fraction(1, 10))
_S1_30 = Claim(
    id="S1-30",
    source="su",
    locator=f"{_SECTION}, second paragraph",
    quote=r"For Adam-type optimizers, the update amount at each step is approximately $\Delta\boldsymbol{\theta}=-\eta"
    r"\,\text{sign}(" + _GRAD + r")$",
    summary="Adam's step is approximately -eta sign(g)",
    parts=(
        Part(
            name="the first step, eps 0",
            statement=_AT_FIRST,
            checks=_ADAM_CHECKS,
            mutants=(
                Mutant(name="SGD's", statement=replace(_AT_FIRST, entry=-eta * g)),
                Mutant(name="a factor 2", statement=replace(_AT_FIRST, entry=-2 * eta * sign_g)),
            ),
        ),
        Part(
            name="at each step",
            statement=_EVERY,
            checks=_ADAM_CHECKS,
            mutants=(
                Mutant(name="SGD's", statement=replace(_STEADY, entry=-eta * g)),
                Mutant(name="a factor 2", statement=replace(_STEADY, entry=-2 * eta * sign_g)),
            ),
            hedge=Amendment(
                statement=_STEADY,
                text="exact at the first step (eps 0), and at every step while an entry's gradient stays the same; "
                "while all its gradients so far are of one sign and lie within 1 - r to 1 + r of one number, up to a "
                "factor (1 + r)/(1 - r), for m_hat and sqrt(v_hat) are both averages of them. A gradient that changes "
                "sign can give a step against it: after 1 and -1/2 the step is -0.266 eta",
            ),
            expected=Verdict.CONDITIONAL,
        ),
    ),
    expected=Verdict.CONDITIONAL,
    finding=Finding(
        "Su: Adam's step is -eta sign(g) at the first step; later one only while the gradient keeps its sign and size",
        rank=270,
    ),
)


# ---------------------------------------------------------------- S1-36: LAMB


def _published_relative() -> Check:
    def decide(s: Values) -> list[bool | None]:
        from sympy import Matrix, symbols

        from theory.optimizers import frobenius
        from theory.optimizers import optimizer as published

        grad, theta = (Matrix(1, 3, symbols(f"{name}1:4", real=True, nonzero=True)) for name in ("g", "p"))
        relative = frobenius(published("lamb").update(grad, theta)) ** 2 / frobenius(theta) ** 2
        return [simplify(relative / s["relative"].subs(n, Integer(3)) ** 2) == 1]

    return check(Route.PROOF, "||Delta theta||/||theta|| of the published map on a matrix of symbols", decide)


@cache
def _lamb_run() -> tuple[float, ...]:
    """||Delta theta||/||theta||/eta by step and matrix: LAMB (its Algorithm 2) on DeepNorm FFNs of several gains."""
    import torch

    beta1, beta2, eps, decay, rate = 0.9, 0.999, 1e-6, 0.01, 2.0**-7
    ratios = []
    for weight, gain in ((1.0, 1.0), (3.0, 0.1), (0.2, 5.0)):
        generator = su_nets.rng(36)
        x = su_nets.normal(generator, 8, 16)
        target = su_nets.normal(generator, 8, 16)
        thetas = [gain / 4 * su_nets.normal(generator, 16, 16) for _ in range(6)]
        averages = [[torch.zeros_like(theta), torch.zeros_like(theta)] for theta in thetas]
        for step in range(1, 5):
            thetas = [theta.requires_grad_() for theta in thetas]
            out = x
            for first, second in zip(thetas[::2], thetas[1::2], strict=True):
                out = su_nets.layer_norm(weight * out + su_nets.ffn(out, first, second, "gelu"), 1e-5)
            gradients = torch.autograd.grad(((out - target) ** 2).mean(), thetas)
            thetas = [theta.detach() for theta in thetas]
            for i, (theta, grad) in enumerate(zip(thetas, gradients, strict=True)):
                m, v = averages[i]
                m = beta1 * m + (1 - beta1) * grad
                v = beta2 * v + (1 - beta2) * grad**2
                averages[i] = [m, v]
                r = (m / (1 - beta1**step)) / ((v / (1 - beta2**step)).sqrt() + eps) + decay * theta
                moved = rate * theta.norm() / r.norm() * r
                ratios.append(float(moved.norm() / theta.norm()) / rate)
                thetas[i] = theta - moved
    return tuple(ratios)


def _lamb_measured(s: Values) -> list[bool | None]:
    printed = float(s["relative"].subs({eta: 1, n: 256}))
    return [abs(found / printed - 1) < su_nets.ROUNDING for found in _lamb_run()]


_RELATIVE = Values.of(relative=eta)
_S1_36 = claim(
    "S1-36",
    source="su",
    locator=f"{_SECTION}, third paragraph",
    quote=r"the relative update amount at each step is the same (equal to the learning rate $\eta$), and it will not "
    r"change regardless of how $\alpha, \lambda$ are adjusted.",
    summary="under LAMB the relative update of every matrix is eta, whatever alpha and lambda are",
    statement=_RELATIVE,
    checks=(
        _published_relative(),
        check(
            Route.MEASURED,
            "LAMB as published, with weight decay and eps, norms matrix by matrix: four steps of three DeepNorm "
            "networks of other alpha and lambda; theta != 0 is needed (the article's own printed step would give eta "
            "sqrt(n): S1-34). AdaFactor, named beside LAMB, steps by eta max(RMS(theta), eps_2), eps_2 = 10^-3, "
            "times a direction clipped to a root mean square of at most 1: relative to theta eta at most where "
            "RMS(theta) >= eps_2, up to eta eps_2/RMS(theta) where it is smaller",
            _lamb_measured,
            is_direct=True,
        ),
    ),
    mutants=(
        Mutant(name="as its printed step would have it", statement=Values.of(relative=eta * sqrt(n))),
        Mutant(name="half", statement=Values.of(relative=eta / 2)),
    ),
)

CLAIMS: tuple[Claim, ...] = (_S1_02, _S1_30, _S1_31, _S1_36)

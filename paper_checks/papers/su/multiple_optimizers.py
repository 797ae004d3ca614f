"""Su's article, "Multiple Optimizers": the steps of Adam and LAMB, and alpha and lambda for each optimizer.

g the gradient, theta the parameters, eta the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from numpy.random import default_rng
from sympy import Abs, Expr, Float, Integer, Matrix, Rational, S, oo, sign, simplify, sqrt, symbols

from depthlaw.paper_checks.claims.broken import broken
from depthlaw.paper_checks.claims.claim import (
    Amendment,
    Cell,
    Claim,
    Finding,
    Kind,
    Mutant,
    Part,
    Route,
    Verdict,
    claim,
    sentence,
)
from depthlaw.paper_checks.claims.statements import Growth, Values
from depthlaw.paper_checks.papers.su.increment_explosion import loss_change_checks
from depthlaw.paper_checks.papers.su.preliminary_conclusion import (
    HALF,
    OPTIMIZERS,
    TABLE,
    TABLE_TEXTS,
    TARGETS,
    TWO_N,
    constraint,
    growth_by_four,
    side,
    size,
    solution,
    why,
)
from depthlaw.paper_checks.papers.su.sublayers import ROUNDING, normal
from depthlaw.paper_checks.routes import algebra
from depthlaw.paper_checks.routes.checks import Answers, check, python_command
from depthlaw.paper_checks.routes.search import search
from depthlaw.paper_checks.routes.tables.derived import g, l1_g, n, norm_g, norm_theta, read_update, sign_g
from depthlaw.paper_checks.routes.training import questions
from depthlaw.paper_checks.routes.training.arms import at_this_scale
from depthlaw.theory.symbols import L, eta
from depthlaw.theory.symbols import init_gain as lam
from depthlaw.theory.symbols import residual_weight as alpha

_GRAD = r"\nabla_{\boldsymbol{\theta}}\mathcal{L}(\boldsymbol{\theta})"
_SECTION = "Multiple Optimizers"


# ---------------------------------------------------------------- S1-30, S1-31: Adam's step


def _allows(s: Values, gradients: Sequence[Fraction]) -> bool:
    """Whether the hypotheses are met by the gradients of an entry up to a step."""
    sizes = [abs(x) for x in gradients]
    is_steady = len({x > 0 for x in gradients}) == 1 and max(sizes) * (1 - s["r"]) <= min(sizes) * (1 + s["r"])
    return len(gradients) <= s["most_steps"] and (s["r"] == oo or is_steady)


def _agrees(s: Values, step: float, gradient: Fraction) -> bool:
    """Whether a step at learning rate 1 is the printed one: by its sign, or up to a factor (1 + r)/(1 - r)."""
    factor = step / float(s["entry"].subs({g: gradient, sign_g: 1 if gradient > 0 else -1, eta: 1}))
    if s["r"] == oo:
        return factor > 0
    most = float((1 + s["r"]) / (1 - s["r"]))
    return (1 - ROUNDING) / most <= factor <= most * (1 + ROUNDING)


def _adam_step(gradients: Sequence[Fraction]) -> float:
    """-m_hat / sqrt(v_hat) after these gradients of an entry, from the moving averages as Adam's paper defines them."""
    averages, steps = [], len(gradients)
    for beta, power in ((Fraction(9, 10), 1), (Fraction(999, 1000), 2)):
        average = sum((1 - beta) * beta ** (steps - 1 - i) * x**power for i, x in enumerate(gradients))
        averages.append(average / (1 - beta**steps))
    return -float(averages[0]) / math.sqrt(averages[1])


def _shows_step(gradients: Sequence[str]) -> str:
    """A command that shows Adam's step, in units of eta, after these gradients of an entry."""
    return python_command(
        f"g = [{', '.join(gradients)}]; m = lambda b, a: sum(b ** (len(a) - 1 - i) * x for i, x in enumerate(a))"
        " / sum(b**i for i in range(len(a))); print('step', -m(0.9, g) / m(0.999, [x * x for x in g]) ** 0.5)"
    )


@check(Route.PROPERTY, "an entry's gradients over one to six steps, exactly, beta 0.9 and 0.999")
def _adam_searched(s: Values) -> Answers:
    from hypothesis import strategies as st

    halves = st.integers(-20, 20).filter(bool).map(lambda i: Fraction(i, 2))
    near = st.tuples(st.sampled_from((-1, 1)), st.lists(st.integers(9, 11), min_size=1, max_size=6)).map(
        lambda case: [case[0] * Fraction(i) for i in case[1]]
    )

    def holds(gradients: list[Fraction]) -> bool | None:
        return _agrees(s, _adam_step(gradients), gradients[-1]) if _allows(s, gradients) else None

    searched = search(st.one_of(st.lists(halves, min_size=1, max_size=5), near), holds, max_examples=120)
    example = None
    if (gradients := searched.found) is not None:
        listed = [str(x) for x in gradients]
        example = {
            "printed": s.text,
            "found": f"gradients {', '.join(listed)} of an entry: step {_adam_step(gradients):+.4g} eta, -sign(g) = "
            f"{-1 if gradients[-1] > 0 else 1}",
            "gradients": listed,
            "command": _shows_step(listed),
        }
    return Answers(holds=[searched.found is None], num_effective=searched.num_effective, counterexample=example)


@check(Route.MEASURED, "torch.optim.Adam and AdamW, eps 0, no decay: five entries over four steps")
def _adam_in_torch(s: Values) -> list[bool | None]:
    import torch

    rows = ((1, -0.5, 3, -2), (10, 9, 11, 10), (-9, -11, -10, -9), (2, 2, 2, 2), (Fraction(1, 1000), 1000, 1, 1))
    gradients = [[Fraction(x) for x in row] for row in rows]
    answers: list[bool | None] = []
    for kind in (torch.optim.Adam, torch.optim.AdamW):
        theta = torch.nn.Parameter(torch.zeros(len(gradients), dtype=torch.float64))
        optimizer = kind([theta], lr=1.0, eps=0.0, weight_decay=0.0)
        for step in range(4):
            before = theta.detach().clone()
            theta.grad = torch.tensor([float(row[step]) for row in gradients], dtype=torch.float64)
            optimizer.step()
            for row, moved in zip(gradients, (theta.detach() - before).tolist(), strict=True):
                if _allows(s, row[: step + 1]):
                    answers.append(_agrees(s, moved, row[step]))
    return answers


_ADAM_CHECKS = (_adam_searched, _adam_in_torch)
_AT_FIRST = Values.of("Delta theta = {entry} at the first step, eps 0", entry=-eta * sign_g, most_steps=1, r=0)
_EVERY = Values.of("Delta theta is approximately {entry} at every step", entry=-eta * sign_g, most_steps=oo, r=oo)
_STEADY = Values.of(
    "Delta theta is {entry} up to a factor (1 + r)/(1 - r), while an entry's gradients stay within 1 - r to 1 + r of "
    "one number, r = {r}",
    entry=-eta * sign_g,
    most_steps=oo,
    r=Rational(1, 10),
)
_S1_30 = Claim(
    id="S1-30",
    kind=Kind.STEP,
    locator=f"{_SECTION}, second paragraph",
    quote=r"For Adam-type optimizers, the update amount at each step is approximately $\Delta\boldsymbol{\theta}=-\eta"
    r"\,\text{sign}(" + _GRAD + r")$",
    summary="Adam's step is approximately -eta sign(g)",
    parts=(
        Part(
            name="the first step, eps 0", statement=_AT_FIRST, checks=_ADAM_CHECKS, mutants=broken(_AT_FIRST, "entry")
        ),
        Part(
            name="at each step",
            statement=_EVERY,
            checks=_ADAM_CHECKS,
            mutants=(Mutant(name="SGD's", statement=_STEADY.with_(entry=-eta * g)), *broken(_STEADY, "entry")),
            hedge=Amendment(
                statement=_STEADY,
                text=sentence(
                    "exact at the first step (eps 0), and at every step while an entry's gradient stays the same; "
                    "while all its gradients so far are of one sign and lie within 1 - r to 1 + r of one number, up to "
                    "a factor (1 + r)/(1 - r), for m_hat and sqrt(v_hat) are both averages of them. A gradient that "
                    "changes sign can give a step against it: after 1 and -1/2 the step is {step:.3f} eta",
                    step=Float(_adam_step([Fraction(1), Fraction(-1, 2)])),
                ),
            ),
            expected=Verdict.CONDITIONAL,
        ),
    ),
    finding=Finding(
        "Su: Adam's step is -eta sign(g) at the first step; later one only while the gradient keeps its sign and size",
        rank=270,
    ),
)

_ADAM = Values.of(change=-eta * l1_g)
_S1_31 = claim(
    "S1-31",
    kind=Kind.STEP,
    locator=f"{_SECTION}, second paragraph",
    quote=r"so $\Delta\mathcal{L} \approx -\eta\Vert" + _GRAD + r"\Vert_1$.",
    summary="the step -eta sign(g) changes the loss by -eta ||g||_1 to first order",
    uses=("S1-01", "S1-30"),
    statement=_ADAM,
    checks=loss_change_checks("adam"),
)


# ---------------------------------------------------------------- S1-32, S1-33, S1-35: alpha and lambda

_S1_32 = constraint(
    "S1-32",
    "adam",
    "lambda/alpha = 1/(2N)",
    f"{_SECTION}, second paragraph",
    r"the gradient should be scaled down to $1/(2N)$ of its original value, i.e., we should have "
    r"$\lambda/\alpha=1/(2N)$.",
)

_S1_33 = solution(
    "S1-33",
    "adam",
    f"{_SECTION}, second paragraph",
    r"If we similarly set $\lambda=1/\alpha$, then we get"
    "\n"
    r"$$ \alpha = (2N)^{1/2},\quad \lambda = (2N)^{-1/2} $$",
    ("S1-32",),
)

_S1_35 = solution(
    "S1-35",
    "lamb",
    f"{_SECTION}, third paragraph",
    r"so $\Delta\mathcal{L}=\mathcal{O}(2N\lambda^2/\alpha)$, which implies $\lambda^2/\alpha=1/(2N)$.",
    ("S1-34",),
)


# ---------------------------------------------------------------- S1-34, S1-37: steps and loss changes of the summary

_GRADIENT = tuple(map(Rational, ("1/3", "-2", "5/7", "-1/11", "3", "-4/5")))
_PARAMETER = tuple(map(Rational, ("-1/2", "4/3", "2", "-3/5", "1/7", "-6")))
"""Six entries each, both signs, no two of a size: enough to tell the maps apart."""
_BETA1, _BETA2 = Rational(9, 10), Rational(999, 1000)


def _norm(entries: Sequence[Expr]) -> Expr:
    """The root of the sum of squares."""
    return sqrt(sum((x**2 for x in entries), S.Zero))


def _first_step(optimizer: str, gradient: Sequence[Expr], parameter: Sequence[Expr]) -> list[Expr]:
    """The first step from zero state, eps 0, no weight decay, learning rate 1, as the optimizers' papers print it."""
    if optimizer == "sgd":
        return [-x for x in gradient]
    m_hat = [(1 - _BETA1) * x / (1 - _BETA1) for x in gradient]
    v_hat = [(1 - _BETA2) * x**2 / (1 - _BETA2) for x in gradient]
    direction = [m / sqrt(v) for m, v in zip(m_hat, v_hat, strict=True)]
    if optimizer == "adam":
        return [-r for r in direction]
    if optimizer == "lamb":
        return [-_norm(parameter) / _norm(direction) * r for r in direction]
    raise ValueError(f"no optimizer {optimizer!r} here")


def _entry_values(gradient: Sequence[Expr], parameter: Sequence[Expr], index: int) -> Mapping[Expr, Expr]:
    """The letters at one entry of a gradient and a parameter, learning rate 1."""
    return {
        g: gradient[index],
        sign_g: sign(gradient[index]),
        norm_g: _norm(gradient),
        l1_g: sum((Abs(x) for x in gradient), S.Zero),
        norm_theta: _norm(parameter),
        n: Integer(len(gradient)),
        eta: S.One,
    }


def _step_agrees(optimizer: str, step: Expr, loss: Expr) -> list[bool]:
    """Whether a printed step and loss change are the optimizer's own: entry by entry, then <g, step>; exact."""
    moved = _first_step(optimizer, _GRADIENT, _PARAMETER)
    answers = [
        (step.subs(_entry_values(_GRADIENT, _PARAMETER, i)) - moved[i]).equals(0) is True for i in range(len(moved))
    ]
    change = sum((x * dx for x, dx in zip(_GRADIENT, moved, strict=True)), S.Zero)
    return [*answers, (loss.subs(_entry_values(_GRADIENT, _PARAMETER, 0)) - change).equals(0) is True]


_MAP_TEXTS = {
    "sgd": ("-eta*g", "-eta*||g||^2"),
    "adam": ("-eta*sign(g)", "-eta*||g||_1"),
    "lamb": ("-eta*||theta||*sign(g)", "-eta*||theta||*||g||_1"),
}
_MAPS = {name: tuple(map(read_update, texts)) for name, texts in _MAP_TEXTS.items()}
"""(Delta theta, Delta L) of his summary."""


def _cells(columns: tuple[str, str], texts: Mapping[str, tuple[str, str]], *optimizers: str) -> tuple[Cell, ...]:
    return tuple(
        Cell(table="su-optimizers", where=(("optimizer", name),), column=column, printed=text)
        for name in optimizers
        for column, text in zip(columns, texts[name], strict=True)
    )


def _map_part(optimizer: str, name: str, **rest: Any) -> Part:
    step, loss = _MAPS[optimizer]
    statement = Values.of(step=step, loss=loss)

    def published_map(s: Values) -> list[bool | None]:
        from depthlaw.theory.optimizers import optimizer as published

        known = published(optimizer)
        pairs = ((s["step"], known.update_text), (s["loss"], known.loss_change_text))
        return [bool((printed / read_update(text)).cancel() == 1) for printed, text in pairs]

    return Part(
        name=name,
        statement=statement,
        checks=(
            check(Route.PROOF, f"the published update map of {optimizer}, reduced symbolically", published_map),
            check(
                Route.NUMERIC,
                f"one first step of {optimizer} on a matrix of six entries, exactly",
                lambda s: _step_agrees(optimizer, s["step"], s["loss"]),
            ),
        ),
        **rest,
    )


@check(Route.PROOF, "degrees of the published map, by scaling it symbolically")
def _degrees_by_map(s: Values) -> list[bool | None]:
    from depthlaw.theory.optimizers import optimizer as published

    lamb = published("lamb")
    return [algebra.equal(S(2) ** s["gradient"], S(2) ** lamb.gradient_degree), lamb.parameter_degree == s["parameter"]]


@check(Route.NUMERIC, "degrees of the printed map at six entries")
def _degrees_by_hand(s: Values) -> list[bool | None]:
    step, three = _MAPS["lamb"][0], Integer(3)
    answers: list[bool | None] = []
    for name, times_g, times_p in (("gradient", three, S.One), ("parameter", S.One, three)):
        for i in range(6):
            at = _entry_values([times_g * x for x in _GRADIENT], [times_p * x for x in _PARAMETER], i)
            factor = step.subs(at) / step.subs(_entry_values(_GRADIENT, _PARAMETER, i))
            answers.append(bool((factor - three ** s[name]).equals(0)))
    return answers


_DEGREES = Values.of(gradient=0, parameter=1)
_LAMB_PUBLISHED = Values.of(step=_MAPS["lamb"][0] / sqrt(n), loss=_MAPS["lamb"][1] / sqrt(n))
_S1_34 = Claim(
    id="S1-34",
    kind=Kind.STEP,
    locator=f"{_SECTION}, third paragraph, and the summary's LAMB row",
    quote=r"For LAMB-type optimizers, the update amount at each step is approximately "
    r"$\Delta\boldsymbol{\theta}=-\eta\Vert\boldsymbol{\theta}\Vert\,\text{sign}(\nabla_{\boldsymbol{\theta}}"
    r"\mathcal{L}(\boldsymbol{\theta}))$, so $\Delta\mathcal{L} \approx -\eta\Vert\boldsymbol{\theta}\Vert\Vert"
    r"\nabla_{\boldsymbol{\theta}}\mathcal{L}(\boldsymbol{\theta})\Vert_1$.",
    summary="LAMB's step is -eta ||theta|| sign(g), its loss change -eta ||theta|| ||g||_1",
    parts=(
        _map_part(
            "lamb",
            "as equations",
            misprint=Amendment(
                statement=_LAMB_PUBLISHED,
                text="-eta ||theta||/sqrt(n) sign(g) and -eta ||theta|| ||g||_1/sqrt(n) for a matrix of n entries: the "
                "direction is normalised to length 1, so ||theta|| must be read as the root mean square of theta",
                grounds="the same section: the relative update is 'equal to the learning rate eta', which the printed "
                "form misses by sqrt(n); and LAMB as published (arXiv 1904.00962, Algorithm 2)",
            ),
            expected=Verdict.MISPRINT,
        ),
        Part(
            name="as magnitudes in N",
            statement=_DEGREES,
            checks=(_degrees_by_map, _degrees_by_hand),
            mutants=(
                Mutant(name="Adam's degrees", statement=_DEGREES.with_(parameter=0)),
                Mutant(name="LARS without a sign", statement=_DEGREES.with_(gradient=1)),
            ),
        ),
    ),
    cells=_cells(("update", "loss_change"), _MAP_TEXTS, "lamb"),
    finding=Finding("Su: LAMB's step has ||theta||/sqrt(n) for a matrix of n entries, not ||theta||", rank=80),
)


def _row(optimizer: str) -> Part:
    weight, gain = TABLE[optimizer]
    statement = Values.of(alpha=weight, lam=gain)

    def put_in(s: Values) -> list[bool | None]:
        family = side("post", optimizer).family
        return [algebra.equal(family.lhs.xreplace({alpha: s["alpha"], lam: s["lam"]}), S.One)]

    def meets_target(s: Values) -> list[bool | None]:
        """His own condition; and 2N branches sum to one: g^2 under SGD, |g| under Adam, |theta||g| under LAMB."""
        change, power = size(optimizer, s["alpha"], s["lam"]), 2 if optimizer == "sgd" else 1
        return [algebra.equal(change, TARGETS[optimizer]), algebra.equal(TWO_N * change**power, S.One)]

    family = f"put into the derived condition that the post-norm update under {optimizer} is 1 for every N"
    return Part(
        name=f"{optimizer}: alpha, lambda and the row's condition",
        statement=statement,
        checks=(
            check(Route.PROOF, family, put_in, steps=why("post", optimizer)),
            check(Route.ARITHMETIC, "his magnitudes, summed over 2N branches", meets_target),
        ),
    )


_S1_37 = Claim(
    id="S1-37",
    kind=Kind.STEP,
    locator=f"{_SECTION}, the summary's table",
    quote=r"Optimizer | $\Delta\boldsymbol{\theta}$ | $\Delta\mathcal{L}$ | $\alpha$ | $\lambda$ |",
    summary="the three rows satisfy lambda/alpha = (2N)^(-1/2), lambda/alpha = (2N)^(-1), lambda^2/alpha = (2N)^(-1)",
    uses=("S1-23", "S1-32", "S1-35"),
    parts=(
        *map(_row, OPTIMIZERS),
        _map_part("sgd", "sgd: the step and the loss change"),
        _map_part("adam", "adam: the step and the loss change, first step, eps 0"),
    ),
    cells=(
        *_cells(("alpha", "lambda"), TABLE_TEXTS, *OPTIMIZERS),
        *_cells(("update", "loss_change"), _MAP_TEXTS, "sgd", "adam"),
    ),
)


# ---------------------------------------------------------------- S1-36: LAMB


@check(Route.PROOF, "||Delta theta||/||theta|| of the published map on a matrix of symbols")
def _relative_by_map(s: Values) -> list[bool | None]:
    from depthlaw.theory.optimizers import frobenius
    from depthlaw.theory.optimizers import optimizer as published

    grad, theta = (Matrix(1, 3, symbols(f"{name}1:4", real=True, nonzero=True)) for name in ("g", "p"))
    relative = frobenius(published("lamb").update(grad, theta)) ** 2 / frobenius(theta) ** 2
    return [simplify(relative / s["relative"].subs(n, Integer(3)) ** 2) == 1]


@check(
    Route.MEASURED,
    "LAMB as published, with weight decay and eps, norms matrix by matrix: four steps of three DeepNorm "
    "networks of other alpha and lambda; theta != 0 is needed (the article's own printed step would give eta "
    "sqrt(n): S1-34). AdaFactor, named beside LAMB, steps by eta max(RMS(theta), eps_2), eps_2 = 10^-3, "
    "times a direction clipped to a root mean square of at most 1: relative to theta eta at most where "
    "RMS(theta) >= eps_2, up to eta eps_2/RMS(theta) where it is smaller",
)
def _relative_measured(s: Values) -> list[bool | None]:
    from depthlaw.sims.model import ModelConfig, SublayerConfig, Transformer
    from depthlaw.sims.optim import make

    printed, rate = float(s["relative"].subs({eta: 1, n: 256})), 2.0**-7
    answers: list[bool | None] = []
    for weight, gain in ((1.0, 1.0), (3.0, 0.1), (0.2, 5.0)):
        sublayer = SublayerConfig(kind="ffn", residual_weight=weight, gains={"fc1": gain, "fc2": gain})
        model = Transformer(ModelConfig(encoder=(sublayer,) * 3, d_model=16, ffn_ratio=1, activation="gelu"), seed=36)
        optimizer = make("lamb", model.parameters(), rate, weight_decay=0.01)
        x, target = normal(default_rng(36), 2, 1, 8, 16)
        for _ in range(4):
            before = [theta.detach().clone() for theta in model.parameters()]
            optimizer.zero_grad()
            (model(x) - target).square().mean().backward()
            optimizer.step()
            for theta, old in zip(model.parameters(), before, strict=True):
                ratio = float((theta.detach() - old).norm() / old.norm()) / rate
                answers.append(abs(ratio / printed - 1) < ROUNDING)
    return answers


_RELATIVE = Values.of(relative=eta)
_S1_36 = claim(
    "S1-36",
    kind=Kind.RESULT,
    locator=f"{_SECTION}, third paragraph",
    quote=r"the relative update amount at each step is the same (equal to the learning rate $\eta$), and it will not "
    r"change regardless of how $\alpha, \lambda$ are adjusted.",
    summary="under LAMB the relative update of every matrix is eta, whatever alpha and lambda are",
    statement=_RELATIVE,
    checks=(_relative_by_map, _relative_measured),
)


# ---------------------------------------------------------------- S1-49


_S1_49 = Claim(
    id="S1-49",
    kind=Kind.RESULT,
    locator=f"{_SECTION}, first paragraph",
    quote="The original paper states: “We derive on SGD and then verify that it also works reasonably well on Adam,” "
    "but theoretically, they are not completely universal.",
    summary="gains derived for SGD work reasonably well on Adam, but are not universal: the update is Theta(L^(1/2))",
    parts=(
        *(
            growth_by_four(
                f"not universal: the update of {scheme} under Adam, relu",
                Growth(scheme=scheme, optimizer="adam", order=L**HALF),
            )
            for scheme in ("su-sgd", "deepnorm")
        ),
        Part(
            name="that it works reasonably well on Adam",
            statement=Growth(scheme="deepnorm", optimizer="adam", order=L**HALF),
            checks=(
                at_this_scale(
                    questions.DEEP_TRAINS["deepnorm"], questions.DEEP_TRAINS["su-adam"], *questions.WITHIN_POST.values()
                ),
            ),
            open="whether deep Post-LN with the gains derived for SGD trains under Adam as far as with Adam's own row, "
            "at widths and for as many steps as people train: small networks of either begin to train at 1,000 layers, "
            "and no longer or wider run here has the gains derived for SGD",
            expected=Verdict.UNDECIDED,
        ),
    ),
)

CLAIMS: tuple[Claim, ...] = (_S1_30, _S1_31, _S1_32, _S1_33, _S1_34, _S1_35, _S1_36, _S1_37, _S1_49)

"""Su's post-hoc analysis: the model near the identity, gradients of order 1 at every depth; his SGD row under Adam."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from sympy import Expr, Integer, Rational, S, limit, oo

from paper_checks.claims.claim import Amendment, Check, Claim, Evidence, Finding, Mutant, Part, Route, Verdict
from paper_checks.claims.statements import Growth
from paper_checks.papers.su.parts import HALF, QUARTER, TABLE
from paper_checks.routes import attention, questions, second_meanfield
from paper_checks.routes.checks import GROWTH, all_of, check, outcome
from paper_checks.routes.intervals import Interval, interval, of_logs
from paper_checks.routes.kernel import GROWTH_BY_KERNEL
from paper_checks.routes.recorded_stacks import STACKS_ON_RECORD
from paper_checks.routes.training import at_this_scale
from theory.symbols import L, N

_POST_HOC = "Post-hoc Analysis, second paragraph"
_NAMES = {"sgd": "SGD", "adam": "Adam", "lamb": "LAMB"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is said of a Post-LN stack of 2N sublayers with these alpha and lambda, for these activations."""

    alpha: Expr
    lam: Expr
    activations: tuple[str, ...] = ("relu", "gelu")

    @property
    def network(self) -> str:
        return f"alpha = {self.alpha}, lambda = {self.lam}, {' and '.join(self.activations)}"

    def branch_share(self) -> Expr:
        """lambda^4/alpha^2, the order of a branch's squared length beside that of the skip."""
        return (self.lam**4 / self.alpha**2).xreplace({N: L / 2})

    def at(self, length: int) -> tuple[float, float]:
        num_layers = Rational(length, 2)
        return float(self.alpha.subs(N, num_layers)), float(self.lam.subs(N, num_layers))


class NearIdentity(Row):
    @property
    def text(self) -> str:
        return f"cos(x_L, x_0) -> 1 as the depth grows: {self.network}"


class BoundedGradients(Row):
    @property
    def text(self) -> str:
        return f"dL/dx_l and dx_l/dz_l are O(1) at every depth: {self.network}"

    def with_(self, **changes: Any) -> BoundedGradients:
        return replace(self, **changes)


# ---------------------------------------------------------------- measured

_DEPTHS = (4, attention.DEEPEST)
_DEPTHS_TEXT = tuple(f"L = {length}" for length in _DEPTHS)


class Deep(NamedTuple):
    """Of real networks, by run: 1 - cos(x_L, x_0); log of the largest |dL/dx_l|^2/|dL/dx_L|^2; largest |dx_l/dz_l|."""

    turned: list[float]
    log_gradient: list[float]
    jacobian: list[float]


@cache
def _deep(alpha: float, lam: float, activation: str, length: int) -> Deep:
    """Real Transformers by autograd: 2 inputs of 8 independent tokens, width 32, one readout per token."""
    import torch

    from sims.model import Transformer

    class Watched(Transformer):
        """Keeps the standard deviations of what its norms receive: ||dLN(z)/dz|| is their inverse at z."""

        seen: list[torch.Tensor]

        def _norm(self, place: str, name: str, x_BTD: torch.Tensor) -> torch.Tensor:
            if place == "post":
                self.seen.append(x_BTD.detach().std(-1, correction=0).amin())
            return super()._norm(place, name, x_BTD)

    def watch(model: Watched, x_BTD: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
        model.seen = []
        return model.streams(x_BTD)[1:], torch.stack(model.seen).amin()

    network = second_meanfield.coefficients("post-ln", length)._replace(residual_weight=alpha, gain_in=lam)
    model, stacked = attention.stack(network, length, Watched, activation=activation)
    x_RBTD, readout_RBTD = attention.inputs(2, 8, 32, 50)
    streams, smallest_R = attention.together(model, watch)(stacked, x_RBTD)
    last_RBTD = streams[-1]
    grads = torch.autograd.grad((last_RBTD * readout_RBTD).sum(), streams)
    squares_LR = torch.stack([grad.square().sum((1, 2, 3)) for grad in grads])
    out, x = last_RBTD.detach().flatten(1), x_RBTD.flatten(1)
    turned_R = 1 - torch.nn.functional.cosine_similarity(out, x)
    return Deep(
        turned_R.tolist(),
        (squares_LR.amax(0) / squares_LR[-1]).log().tolist(),
        (alpha / smallest_R).tolist(),
    )


def _deeps(row: Row, activation: str, length: int) -> Deep:
    return _deep(*row.at(length), activation, length)


def _measured(detail: str, numbers: dict[str, Any], answers: Sequence[bool | None]) -> Evidence:
    return Evidence(
        route=Route.MEASURED,
        num_effective=len(answers),
        verdict=outcome(all_of(list(answers))),
        detail=detail,
        numbers=numbers,
    )


# ---------------------------------------------------------------- S1-39


def _summed(share: Expr) -> tuple[Expr, Expr]:
    """Limits of one branch's squared share and of the sum over L branches."""
    return limit(share, L, oo), limit(L * share, L, oo)


def _cosine_tends_to_one(s: NearIdentity) -> list[bool | None]:
    """cos = (1 + lambda^2 E phi(lambda z)^2/alpha^2)^(-L/2), and E phi(lambda z)^2 is of the order of lambda^2."""
    return [_summed(s.branch_share()) == (0, 0)]


def _cosine_by_quadrature(s: NearIdentity) -> list[bool | None]:
    """log cos at 10^2, 10^4, 10^6 sublayers, moments of the activation by quadrature."""
    out: list[bool | None] = []
    for activation in s.activations:
        logs = []
        for length in second_meanfield.LENGTHS:
            alpha, lam = s.at(length)
            logs.append(length / 2 * math.log1p(lam**2 * second_meanfield.moments(activation, lam)[1] / alpha**2))
        out.append(logs[0] > logs[1] > logs[2] and logs[2] < 1e-3)
    return out


def _cosine_measured(s: NearIdentity) -> Evidence:
    answers, numbers = [], {}
    for activation in s.activations:
        by_depth = [interval(_deeps(s, activation, n).turned) for n in _DEPTHS]
        shallow, deep = by_depth
        answers.append(deep.high < shallow.low and deep.high < 0.1)
        numbers[activation] = {depth: found.text for depth, found in zip(_DEPTHS_TEXT, by_depth, strict=True)}
    return _measured("1 - cos(x_L, x_0) of real Transformers, attention and FFN", numbers, answers)


def _near(optimizer: str) -> Part:
    alpha, lam = TABLE[optimizer]
    statement = NearIdentity(alpha=alpha, lam=lam)
    return Part(
        name=f"the row of {_NAMES[optimizer]}",
        statement=statement,
        checks=(
            check(
                Route.PROOF,
                f"the branches' squared shares sum to L lambda^4/alpha^2 = {L * statement.branch_share()} -> 0",
                _cosine_tends_to_one,
                is_direct=True,
                steps=lambda: (
                    "W2 is independent of what came before: the branch is orthogonal to x_0 at infinite width",
                    "|alpha x_l + F|^2 = (alpha^2 + lambda^2 E phi(lambda z)^2) d, so each sublayer multiplies the "
                    "cosine by (1 + lambda^2 E phi^2/alpha^2)^(-1/2); averaging tokens only makes a branch shorter",
                ),
            ),
            check(
                Route.MEANFIELD, "the cosine at 10^2, 10^4, 10^6 FFN sublayers", _cosine_by_quadrature, is_direct=True
            ),
            Check(route=Route.MEASURED, run=_cosine_measured, is_direct=True),
        ),
        mutants=(
            Mutant(name="lambda = 1 under SGD's alpha", statement=NearIdentity(alpha=TABLE["sgd"][0], lam=S.One)),
            Mutant(name="alpha = lambda = 1", statement=NearIdentity(alpha=S.One, lam=S.One)),
        ),
    )


@dataclass(frozen=True)
class Step:
    """A branch of weight L^e makes cos(x_L, x_0) -> 1 for every exponent e under ``below``."""

    below: Expr

    @property
    def text(self) -> str:
        return f"branches of weight lambda^2/alpha = L^e, e < {self.below}: the whole model is close to the identity"

    def covers(self, exponents: Sequence[Expr]) -> list[Expr]:
        return [exponent for exponent in exponents if exponent < self.below]


_EXPONENTS = tuple(Rational(-k, 8) for k in range(0, 9))
_TRIED = (-QUARTER, -3 * QUARTER)


def _step_summed(s: Step) -> list[bool | None]:
    return [_summed(L ** (2 * exponent)) == (0, 0) for exponent in s.covers(_EXPONENTS)]


def _step_measured(s: Step) -> Evidence:
    """LN(x + L^e F), gain 1: alpha = L^(-e)."""
    answers, numbers = [], {}
    for exponent in s.covers(_TRIED):
        row = NearIdentity(alpha=(2 * N) ** -exponent, lam=S.One, activations=("relu",))
        shallow, deep = (interval(_deeps(row, "relu", n).turned) for n in _DEPTHS)
        answers.append(deep.high < shallow.low)
        numbers[f"weight L^({exponent})"] = dict(zip(_DEPTHS_TEXT, (shallow.text, deep.text), strict=True))
    return _measured("1 - cos(x_L, x_0) of real Transformers, attention and FFN", numbers, answers)


_STEP = Step(S.Zero)
_S1_39 = Claim(
    id="S1-39",
    source="su",
    locator=_POST_HOC,
    quote=r"Regardless of the optimizer used, $\lambda^2/\alpha$ is a relatively small number, meaning that the entire "
    "model is close to an identity function in the initial stage.",
    summary="with each row's alpha and lambda the whole model is near the identity at initialisation",
    parts=(
        *(_near(optimizer) for optimizer in TABLE),
        Part(
            name="that a small weight of each branch means it",
            statement=_STEP,
            checks=(
                check(
                    Route.PROOF,
                    "L branches of independent directions add their squares: L^(1 + 2e) -> 0, e = 0, -1/8, ..., -1",
                    _step_summed,
                    is_direct=True,
                ),
                Check(route=Route.MEASURED, run=_step_measured, is_direct=True),
            ),
            mutants=(
                Mutant(name="weight one too", statement=Step(HALF)),
                Mutant(name="below -1/4", statement=Step(-QUARTER)),
            ),
            hedge=Amendment(
                statement=Step(-HALF),
                text="small beside (2N)^(-1/2): 2N branches add up, and the sum of squares 2N (lambda^2/alpha)^2 has "
                "to vanish. Branches of weight (2N)^(-1/4) turn the stream away from the input altogether; all three "
                "rows ((2N)^(-3/4), (2N)^(-3/2), (2N)^(-1)) meet the condition",
            ),
            expected=Verdict.CONDITIONAL,
        ),
    ),
    expected=Verdict.CONDITIONAL,
    finding=Finding(
        "Su: the whole model is near the identity where the branch weights are small beside (2N)^(-1/2), "
        "which his three rows meet; that each branch weight is small does not suffice",
        rank=280,
    ),
)


# ---------------------------------------------------------------- S1-40


def _backward_product(s: BoundedGradients) -> list[bool | None]:
    """log of the product: L lambda^4/alpha^2 (E phi'^2 - E phi^2/lambda^2) to first order; ReLU's bracket is 0.

    The moments are bounded, so the sum of the shares decides where the bracket is not 0.
    """
    _, total = _summed(s.branch_share())
    out: list[bool | None] = []
    for activation in s.activations:
        _, second, slope, *_ = second_meanfield.moments(activation, 1.0)
        out.append(total.is_finite is True or abs(slope - second) < 1e-9)
    return out


def _backward_by_quadrature(s: BoundedGradients) -> list[bool | None]:
    """|dL/dx_0|^2/|dL/dx_L|^2 and |dx/dz|^2 at 10^2, 10^4, 10^6 FFN sublayers: no more than 2."""
    out: list[bool | None] = []
    for activation in s.activations:
        for length in second_meanfield.LENGTHS:
            alpha, lam = s.at(length)
            _, second, slope, *_ = second_meanfield.moments(activation, lam)
            skip, branch = alpha**2, lam**2 * second
            log_product = length * (math.log1p(lam**4 * slope / skip) - math.log1p(branch / skip))
            out += [log_product < math.log(2), 1 / (1 + branch / skip) < 2]
    return out


def _backward_measured(s: BoundedGradients) -> Evidence:
    answers, numbers = [], {}
    for activation in s.activations:
        for length in _DEPTHS:
            found = _deeps(s, activation, length)
            both: dict[str, Interval] = {
                "|dL/dx_l|^2": of_logs(found.log_gradient),
                "||dx_l/dz_l||": interval(found.jacobian),
            }
            answers += [True if each.high < 2 else False if each.low > 2 else None for each in both.values()]
            numbers[f"{activation}, L = {length}"] = {name: each.text for name, each in both.items()}
    return _measured("real Transformers: the largest over all l, the gradient over that of x_L", numbers, answers)


def _bounded(optimizer: str) -> Part:
    alpha, lam = TABLE[optimizer]
    statement = BoundedGradients(alpha=alpha, lam=lam)
    plain = BoundedGradients(alpha=S.One, lam=S.One, activations=("gelu",))
    steep = BoundedGradients(alpha=QUARTER, lam=Integer(5), activations=("tanh",))
    return Part(
        name=f"the row of {_NAMES[optimizer]}",
        statement=statement,
        checks=(
            check(
                Route.PROOF,
                "each sublayer multiplies |dL/dx|^2 by (alpha^2 + lambda^4 E phi'^2)/(alpha^2 + lambda^2 E phi^2): the "
                f"product is 1 + O({L * statement.branch_share()})",
                _backward_product,
                is_direct=True,
            ),
            check(
                Route.MEANFIELD, "the product and the norm of dx/dz, summed", _backward_by_quadrature, is_direct=True
            ),
            Check(route=Route.MEASURED, run=_backward_measured, is_direct=True),
        ),
        mutants=(
            Mutant(name="alpha = lambda = 1, gelu", statement=plain),
            Mutant(name="alpha = 1/4, lambda = 5, tanh", statement=steep),
        ),
    )


_S1_40 = Claim(
    id="S1-40",
    source="su",
    locator=_POST_HOC,
    quote=r"Therefore, $\frac{\partial \mathcal{L}}{\partial \boldsymbol{x}_{l+1}}$ and "
    r"$\frac{\partial \boldsymbol{x}_{l+1}}{\partial \boldsymbol{z}_{l+1}}$ are naturally $\mathcal{O}(1)$",
    summary="with each row's alpha and lambda dL/dx_{l+1} and dx_{l+1}/dz_{l+1} are O(1) at all depths",
    uses=("S1-39",),
    parts=tuple(_bounded(optimizer) for optimizer in TABLE),
)


# ---------------------------------------------------------------- S1-49


def _under_adam(scheme: str) -> Part:
    statement = Growth(scheme=scheme, optimizer="adam", order=L**HALF)
    return Part(
        name=f"not universal: the update of {scheme} under Adam, relu",
        statement=statement,
        checks=(*GROWTH, STACKS_ON_RECORD, GROWTH_BY_KERNEL),
        mutants=(
            Mutant(name="flat, as under SGD", statement=statement.with_(order=S.One)),
            Mutant(name="as L", statement=statement.with_(order=L)),
            Mutant(name="Adam's own row", statement=statement.with_(scheme="su-adam")),
        ),
    )


_S1_49 = Claim(
    id="S1-49",
    source="su",
    locator="Multiple Optimizers, first paragraph",
    quote="The original paper states: “We derive on SGD and then verify that it also works reasonably well on Adam,” "
    "but theoretically, they are not completely universal.",
    summary="gains derived for SGD work reasonably well on Adam, but are not universal: the update is Theta(L^(1/2))",
    parts=(
        _under_adam("su-sgd"),
        _under_adam("deepnorm"),
        Part(
            name="that it works reasonably well on Adam",
            statement=Growth(scheme="deepnorm", optimizer="adam", order=L**HALF),
            checks=(
                at_this_scale(
                    questions.DEEP_TRAINS["deepnorm"], questions.DEEP_TRAINS["su-adam"], *questions.WITHIN_POST.values()
                ),
            ),
            mutants=(),
            open="whether deep Post-LN with the gains derived for SGD trains under Adam as far as with Adam's own row, "
            "at widths and for as many steps as people train: small networks of either begin to train at 1,000 layers",
            expected=Verdict.UNDECIDED,
        ),
    ),
    expected=Verdict.UNDECIDED,
)

CLAIMS: tuple[Claim, ...] = (_S1_39, _S1_40, _S1_49)

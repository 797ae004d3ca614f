"""Peri-LN: how the variance of its stream grows, beside Pre-LN's."""

from __future__ import annotations

from typing import Any

from sympy import Rational, exp, log, sqrt

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Claim, Kind, Part, Route, Verdict, claim
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes.checks import Answers, awaits, check
from depthlaw.paper_checks.routes.signal_propagation.streams import STREAM, StreamOrder
from depthlaw.theory.symbols import L

_PERI = StreamOrder(scheme="peri-ln", low=L, high=L)
_RUNS = "variances of the stream by layer along training, of Pre-LN and Peri-LN networks of several depths"

# ---------------------------------------------------------------- PL-02: the bound of the last matrix's gradient

_BOUND = Values.of("||dloss/dW2|| <= {factor} gamma sqrt(D) ||h|| / ||a||", factor=4)


@check(
    Route.PROOF,
    "the norms of the three factors of the gradient, multiplied",
    steps=lambda: (
        "dloss/dW2 is the outer product of h and J delta: its norm is ||h|| ||J delta||",
        "J of gamma sqrt(D) a/||a|| is gamma sqrt(D)/||a|| times a projection: its norm is gamma sqrt(D)/||a||",
        "delta = softmax - one-hot: positive parts and negative parts add up to 1 at most each, so ||delta||^2 <= 2",
    ),
)
def _by_norms(s: Values) -> Answers:
    return Answers(holds=[bool(s["factor"] >= sqrt(2))], numbers={"least factor": str(sqrt(2))})


@check(
    Route.MEASURED, "gradients by autograd of 200 drawn cases and of one that is worst, with an RMS norm; a LayerNorm's"
)
def _by_autograd(s: Values) -> Answers:
    import torch

    draw = torch.Generator().manual_seed(5)
    wide = 16

    def ratio(w2: Any, h: Any, x: Any, *, is_centred: bool = False) -> float:
        a = (w2.requires_grad_() @ h) - (w2 @ h).mean() * is_centred
        loss = torch.nn.functional.cross_entropy((x + a / a.square().mean().sqrt())[None], torch.tensor([0]))
        (gradient,) = torch.autograd.grad(loss, w2)
        return float(gradient.norm() / (wide**0.5 * h.norm() / (w2 @ h).detach().norm()))

    def random(*shape: int) -> Any:
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    drawn = max(ratio(random(wide, wide), random(wide), 10 * random(wide)) for _ in range(200))
    h, x = random(wide), torch.zeros(wide, dtype=torch.float64)
    x[1] = 100.0  # all of the softmax on a class that is wrong, and a at right angles to delta
    a = random(wide) * (torch.arange(wide) > 1)
    worst = ratio(torch.outer(a, h) / h.square().sum(), h, x)
    off_centre = ratio(torch.outer(a + 1000, h) / h.square().sum(), h, x, is_centred=True)
    holds = [ratio_ <= float(s["factor"]) for ratio_ in (drawn, worst)]
    return Answers(holds=holds, numbers={"drawn": drawn, "worst": worst, "a LayerNorm, mean 1,000": off_centre})


_PL_02 = claim(
    "PL-02",
    kind=Kind.STEP,
    name="with an RMS norm, at any weights: at initialisation and in training",
    locator="Proposition 3.1, (8)",
    quote="||dloss/dW2|| <= 4 gamma sqrt(D) ||h||/||a||, a = W2 h, the output x + RMSNorm(a), cross-entropy of it",
    summary="Peri-LN: the gradient of W2 is at most 4 gamma sqrt(D) ||h||/||a||, so it does not grow with h",
    statement=_BOUND,
    checks=(_by_norms, _by_autograd),
    mutants=changed(_BOUND, factor=[1, Rational(7, 5)]),
)

CLAIMS = (
    Claim(
        id="PL-01",
        kind=Kind.RESULT,
        locator="Section 3",
        quote="the variance of the hidden state grows linearly with Peri-LN, exponentially with Pre-LN (in training)",
        summary="the variance of the stream grows linearly with Peri-LN, and exponentially with Pre-LN in training",
        parts=(
            Part(
                name="Peri-LN, at initialisation",
                statement=_PERI,
                checks=STREAM,
                mutants=changed(_PERI, low=L ** Rational(5, 4), high=[log(L), L ** Rational(3, 4)]),
            ),
            Part(
                name="Pre-LN, after training",
                statement=StreamOrder(scheme="pre-ln", low=exp(L), high=exp(L)),
                checks=(awaits(_RUNS),),
                expected=Verdict.UNDECIDED,
                open=_RUNS,
            ),
        ),
    ),
    _PL_02,
)

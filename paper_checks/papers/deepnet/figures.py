"""What DeepNet's figures 3 and 5 show of the update: DN-13 (Post-LN-init), DN-14 (Post-LN and DeepNet by depth)."""

from __future__ import annotations

import math
from statistics import median
from typing import Any

from sympy import S

from depthlaw.paper_checks.claims.claim import Claim, Kind, Mutant, Part, Route, claim
from depthlaw.paper_checks.claims.statements import Growth, Values
from depthlaw.paper_checks.papers.deepnet.models import matrix_shares
from depthlaw.paper_checks.papers.deepnet.runs import BETWEEN, DEPTHS, encoder_decoders, layers
from depthlaw.paper_checks.routes import algebra
from depthlaw.paper_checks.routes.checks import Answers, check
from depthlaw.paper_checks.routes.intervals import ends, exponent
from depthlaw.paper_checks.routes.kernel import curve, law
from depthlaw.paper_checks.routes.kernel import exponent as power_of
from depthlaw.paper_checks.routes.training import questions
from depthlaw.paper_checks.routes.training.arms import BY_TRAINING, open_in_small

_POWERS = {"stays": (-math.inf, BETWEEN), "grows": (BETWEEN, math.inf)}
"""Where the power of N of an update lies."""


def _depths(**schemes: str) -> Values:
    """How the update of an N-layer encoder and decoder moves with N, by scheme."""
    names = {name.replace("_", "-"): how for name, how in schemes.items()}
    return Values.of("; ".join(f"the update of {name} {{{name}}} with depth" for name in names), **names)


def _one_token_update(scheme: str, num_layers: int) -> float:
    """``one_token`` for layers of their own gains, layer by layer from the top; the paper's FFN of 2 d."""
    encoder, decoder = layers(scheme, num_layers)
    gradient, entering, total = 1.0, 0.0, 0.0
    for weight, gain in reversed(decoder):
        attention, ffn = matrix_shares(weight, gain, 2)
        kept = gradient * weight**2 / (weight**2 + gain**4)
        total += gradient * (ffn + attention) + kept * attention
        entering, gradient = entering + gradient - kept, kept
    return total + entering * sum(sum(matrix_shares(weight, gain, 2)) for weight, gain in encoder)


@check(
    Route.MEANFIELD,
    "the update at N = M = 10, 100, 1000, infinite width, one token on either side, relu: what explodes in Post-LN "
    "grows as N at initialisation, and no faster",
)
def _by_closed_form(s: Values) -> Answers:
    answers, numbers = [], {}
    for scheme, how in s:
        updates = [_one_token_update(scheme, n) for n in (10, 100, 1000)]
        logs = [math.log(update) for update in updates]
        answers.append((algebra.settles(logs) or algebra.falls_away(logs)) is (how == "stays"))
        numbers[scheme] = [float(f"{update:.4g}") for update in updates]
    return Answers(holds=answers, numbers=numbers)


@check(Route.MEASURED, f"recorded encoder-decoders of {DEPTHS} layers: the power of N, below or above 1/8")
def _by_record(s: Values) -> Answers:
    answers: list[bool | None] = []
    numbers: dict[str, Any] = {}
    low, high = DEPTHS[0], DEPTHS[-1]
    for scheme, how in s:
        updates = {n: encoder_decoders(scheme, n)[0] for n in DEPTHS}
        power = exponent(updates[low], updates[high], high / low)
        answers.append(power.within(*_POWERS[how]))
        numbers[f"power of N, {scheme}"] = power.text
        numbers[f"median update, {scheme}"] = {f"{n}L-{n}L": float(f"{median(updates[n]):.2g}") for n in DEPTHS}
        numbers["seeds"] = len(updates[low])
    if "post-ln-init" in dict(s):
        plain, scaled = (encoder_decoders(scheme, 18)[1] for scheme in ("post-ln", "post-ln-init"))
        norms = " to ".join(f"{math.exp(end / 2):.2f}" for end in exponent(plain, scaled, math.e))
        numbers["gradient norm of the decoder's top layer at 18L-18L, post-ln-init over post-ln"] = norms
    return Answers(holds=answers, numbers=numbers)


@check(Route.KERNEL, "encoder-decoders at infinite width, 16 tokens, N = M = 4 to 250: the power of N, beside 1/8")
def _by_kernel(s: Values) -> Answers:
    answers: list[bool | None] = []
    numbers = {}
    for scheme, how in s:
        statement = Growth(scheme="deepnorm" if scheme == "deepnet" else scheme, order=S.One)
        power = ends(power_of(curve(law(statement, "encoder-decoder"))))
        answers.append(power.within(*_POWERS[how]))
        numbers[f"power of N, {scheme}"] = f"{power.low:.3f} to {power.high:.3f}"
    return Answers(holds=answers, numbers=numbers)


_CHECKS = (_by_closed_form, _by_record)
_DN_13 = Claim(
    id="DN-13",
    kind=Kind.REMARK,
    locator="Section 3, Post-LN-init and Figure 3",
    quote="Post-LN-init: W of layer l divided by k_l = N - l + 1, W_o^l ~ N(0, 1/(k_l^2 d')). 18L-18L: it converges, "
    "Post-LN does not, though the gradient norm of its top layers is larger",
    summary="Post-LN-init (weights of layer l over N - l + 1) trains where Post-LN does not, top gradients larger",
    parts=(
        Part(
            name="it keeps the update at initialisation from growing with depth",
            statement=_depths(post_ln_init="stays"),
            checks=_CHECKS,
            mutants=(Mutant(name="it grows", statement=_depths(post_ln_init="grows")),),
        ),
        Part(
            name="18L-18L trains with it and is stuck without it: source lines to bytecode, 32 wide",
            statement=questions.INIT,
            checks=(BY_TRAINING,),
            mutants=(Mutant(name="the other way round", statement=questions.INIT.with_swapped()),),
        ),
        open_in_small(
            "its top-layer gradients are larger than Post-LN's",
            "the gradient norm of Post-LN-init's top layers is larger than that of Post-LN's",
            "at which step of training it is meant, and logged runs of the paper's networks. In small ones it is "
            "smaller before the first step, and larger when Post-LN has got stuck and its gradients have died",
            questions.GRADIENTS_AT_START,
            questions.GRADIENTS,
        ),
    ),
)
_DN_14 = claim(
    "DN-14",
    kind=Kind.RESULT,
    locator="Section 4, Figure 5",
    quote="update of 64-128-2 encoder-decoders, 6L-6L to 100L-100L: Post-LN's explodes with depth, DeepNet's is nearly "
    "constant",
    summary="the update of Post-LN explodes with depth, DeepNet's is nearly constant, 6L-6L to 100L-100L",
    uses=("DN-07",),
    name="the update by depth, at initialisation",
    statement=_depths(post_ln="grows", deepnet="stays"),
    checks=(*_CHECKS, _by_kernel),
    mutants=(
        Mutant(name="Post-LN stays", statement=_depths(post_ln="stays", deepnet="stays")),
        Mutant(name="DeepNet grows", statement=_depths(post_ln="grows", deepnet="grows")),
    ),
)

CLAIMS: tuple[Claim, ...] = (_DN_13, _DN_14)

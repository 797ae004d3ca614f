"""Magneto, Section 3.2: how matrices are drawn (9), what the model update is, and what (11) does not see.

The file that the paper's quotes come from is an extraction that lost roots, bars and brackets; quotes keep its damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sympy import Abs, Expr, Integer, Rational, S, sqrt

from depthlaw.paper_checks.claims.broken import broken, changed
from depthlaw.paper_checks.claims.claim import Claim, Kind, Route, claim
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes.checks import Answers, check
from depthlaw.paper_checks.routes.search import search
from depthlaw.theory.symbols import d, gains_in, gains_out, l, scratch

_v, _w = gains_out[l], gains_in[l]


def through_sublayer(
    placement: str, moments: Sequence[Any], norm_kind: str = "layernorm", *, sqrt: Any = sqrt, **letters: Any
) -> Any:
    """What ``theory.stack.transfer`` says of a sublayer whose branch is added as it is.

    moments: the fields of ``BranchMoments``. letters: the stream's second moment and the two gains.
    """
    from depthlaw.theory.stack import PLACEMENTS, BranchMoments, NormKind, transfer

    weights = {"residual_weight": 1, "branch_weight": 1, "input_scale": 1}
    return transfer(
        PLACEMENTS[placement], NormKind(norm_kind), BranchMoments(*moments), sqrt=sqrt, **weights, **letters
    )


def same(first: Expr, second: Expr) -> bool:
    """Of rational functions of letters."""
    return bool((first - second).cancel() == 0)


# ---------------------------------------------------------------- S2-06: (9) and Xavier

NINE = Values.of(variance=_v**2 / d, kurtosis=3, fan_in=d, fan_out=d)
"""N(0, v_l^2/d): its variance, and the fourth moment over the variance squared; on a matrix of these fans."""


@check(Route.PROOF, "gain^2 * 2/(fan_in + fan_out) at gain v_l and fans d, d")
def _xavier(s: Values) -> list[bool | None]:
    return [same(s["variance"], _v**2 * 2 / (s["fan_in"] + s["fan_out"]))]


@check(Route.MEASURED, "torch's xavier_normal_, d = 192: both moments within 5 standard errors")
def _drawn(s: Values) -> list[bool | None]:
    out: list[bool | None] = []
    for gain in (Rational(1, 2), S.One, Integer(3)):
        fans = [int(s[name].subs(d, 192)) for name in ("fan_in", "fan_out")]
        second, kurtosis = _moments(float(gain), *fans)
        count = fans[0] * fans[1]
        printed = float(s["variance"].subs({_v: gain, d: 192}))
        out.append(abs(second / printed - 1) < 5 * (2 / count) ** 0.5)
        out.append(abs(kurtosis - float(s["kurtosis"])) < 5 * (24 / count) ** 0.5)
    return out


@cache
def _moments(gain: float, fan_in: int, fan_out: int) -> tuple[float, float]:
    """E W^2 and E W^4 / (E W^2)^2 of torch's xavier_normal_."""
    import torch

    weight = torch.empty((fan_out, fan_in), dtype=torch.float64)
    torch.nn.init.xavier_normal_(weight, gain=gain, generator=torch.Generator().manual_seed(7))
    second = weight.square().mean()
    return float(second), float(weight.pow(4).mean() / second**2)


@check(Route.MEANFIELD, "the branch's second moment in the stack: fan_in Var(W2) E h^2 = v_l^2 E h^2")
def _in_stack(s: Values) -> list[bool | None]:
    sublayer = through_sublayer("sub", [S.One] * 6, stream=S.One, gain_in=_w, gain_out=_v)
    return [same(s["fan_in"] * s["variance"], sublayer.increment)]


_S2_06 = claim(
    "S2-06",
    kind=Kind.STEP,
    locator="Section 3.2, (9)",
    quote="the i-th row, j-th column entry of Wl,2satisfies that:\nWl,2\nij vN(0,v2\nl\nd)(9)",
    summary="W^{l,2}_ij ~ N(0, v_l^2/d), which is Xavier normal of gain v_l for a square d x d matrix",
    statement=NINE,
    checks=(_xavier, _drawn, _in_stack),
    mutants=(*broken(NINE, "variance"), *changed(NINE, fan_in=4 * d, kurtosis=Rational(9, 5))),
)

# ---------------------------------------------------------------- S2-07: the model update

_UPDATE = Values.of(
    "dF = ||gamma^T (F(x, theta*) - F(x, theta))|| is the change of the label's logit; "
    "gamma is {at_label} at the label, {elsewhere} elsewhere",
    at_label=1,
    elsewhere=0,
)


@check(Route.PROOF, "|z_label| for every label of 2 to 5 words, z any change of logits")
def _norm_is_logit(s: Values) -> list[bool | None]:
    out: list[bool | None] = []
    for words in range(2, 6):
        z = [scratch(f"z_{i}", real=True) for i in range(words)]
        for label in range(words):
            entry = sum(z[i] * (s["at_label"] if i == label else s["elsewhere"]) for i in range(words))
            out.append(bool(sqrt(entry**2) == Abs(z[label])))
    return out


@check(Route.MEASURED, "an SGD step of real Pre-LN networks: the norm, and the label's logit itself")
def _step_of_network(s: Values) -> list[bool | None]:
    import numpy as np

    out: list[bool | None] = []
    for label in range(4):
        moved = _moved_logits(label)
        gamma = np.full(len(moved), float(s["elsewhere"]))
        gamma[label] = float(s["at_label"])
        out.append(bool(abs(np.linalg.norm(gamma[None] @ moved) - abs(moved[label])) <= 1e-12 * abs(moved[label])))
    return out


@cache
def _moved_logits(label: int) -> Any:
    """By how much an SGD step on cross-entropy moves the logits of a small Pre-LN network."""
    import torch

    from depthlaw.sims.model import ModelConfig, Transformer, alternating

    generator = torch.Generator().manual_seed(label)
    model = Transformer(ModelConfig(encoder=alternating(4), placement="pre", d_model=8), seed=label)
    head = torch.randn((4, 8), generator=generator, dtype=torch.float64) / 8**0.5
    x_BTD = torch.randn((1, 3, 8), generator=generator, dtype=torch.float64)
    before = head @ model(x_BTD)[0, -1]
    grads = torch.autograd.grad(-before.log_softmax(0)[label], list(model.parameters()))
    with torch.no_grad():
        for parameter, grad in zip(model.parameters(), grads, strict=True):
            parameter.sub_(0.1 * grad)
        return (head @ model(x_BTD)[0, -1] - before).numpy()


_S2_07 = claim(
    "S2-07",
    kind=Kind.STEP,
    locator="Section 3.2, after (9)",
    quote="is the label of\nx\n, which is a one-hot vector\nwith a single entry as 1 and all the others as 0.",
    summary="dF = ||gamma^T (F(x, theta*) - F(x, theta))||, gamma one-hot: how far the label's logit moves",
    statement=_UPDATE,
    checks=(_norm_is_logit, _step_of_network),
    mutants=changed(_UPDATE, at_label=Rational(9, 10), elsewhere=[Rational(1, 30), 1]),
)

# ---------------------------------------------------------------- S2-15: what (11) does not see

_LAW = Values.of(
    "{placement}, phi = {activation}: W1 -> c W1 multiplies F by c^{output} and dF/dW1 by c^{gradient}; "
    "dF/dW1 is {angle} to W1",
    **{"activation": "relu", "placement": "sub", "output": 0, "gradient": -1, "angle": "orthogonal"},
)
"""A sublayer of (11), F its output, c > 0. placement: where the norms stand."""


@cache
def _at_scale(activation: str, placement: str, seed: int, which: int, factor: float) -> tuple[Any, Any, float]:
    """F at one coordinate, its gradient with respect to the scaled W1, and its cosine with that W1."""
    import torch

    from depthlaw.sims.model import ModelConfig, SublayerConfig, Transformer

    sublayers = (SublayerConfig(kind="ffn"),) * 3
    model = Transformer(ModelConfig(encoder=sublayers, placement=placement, d_model=8, activation=activation), seed)
    weight = dict(model.named_parameters())[f"_weights.encoder_{which}_fc1"]
    with torch.no_grad():
        weight.mul_(factor)
    x_BTD = torch.randn((1, 2, 8), generator=torch.Generator().manual_seed(1000 + seed), dtype=torch.float64)
    output = model(x_BTD)[0, -1, 0]
    (grad,) = torch.autograd.grad(output, weight)
    cosine = float((grad * weight).sum().detach() / (grad.norm() * weight.detach().norm()))
    return float(output.detach()), grad.numpy(), cosine


@check(
    Route.PROPERTY,
    "real networks of placement sub, F and its gradient by autograd, c from 1/8 to 10. gelu is not "
    "homogeneous: there F changes",
)
def _by_autograd(s: Values) -> Answers:
    from hypothesis import strategies as st

    def holds(case: tuple[int, int, float]) -> bool:
        seed, which, factor = case
        output, grad, cosine = _at_scale(s["activation"], s["placement"], seed, which, 1.0)
        scaled, scaled_grad, _ = _at_scale(s["activation"], s["placement"], seed, which, factor)
        same_output = abs(scaled - factor ** int(s["output"]) * output) <= 1e-9 * abs(scaled)
        expected = factor ** int(s["gradient"]) * grad
        same_grad = abs(scaled_grad - expected).max() <= 1e-9 * abs(expected).max()
        return bool(same_output and same_grad and (abs(cosine) < 1e-9) == (s["angle"] == "orthogonal"))

    cases = st.tuples(st.integers(0, 7), st.integers(0, 2), st.sampled_from([0.125, 0.5, 2.0, 3.0, 10.0]))
    searched = search(cases, holds, max_examples=40)
    gelu = _at_scale("gelu", "sub", 0, 0, 2.0)[0] / _at_scale("gelu", "sub", 0, 0, 1.0)[0] - 1
    return Answers(
        holds=[searched.found is None],
        num_effective=searched.num_effective,
        numbers={"relative change of F under c = 2, gelu": float(f"{gelu:.3g}"), "failing case": searched.found},
    )


_S2_15 = claim(
    "S2-15",
    kind=Kind.STEP,
    locator="Section 3.2, (11)",
    quote="xl=xl1+Wl,2LN(φ(Wl,1LN(xl1))) (11)",
    summary="phi homogeneous: F does not see w_l -> c w_l, and dF/dW^{l,1} is orthogonal to W^{l,1} and goes as 1/c",
    statement=_LAW,
    checks=(_by_autograd,),
    mutants=changed(_LAW, activation="gelu", placement="pre", gradient=-2, output=1, angle="not orthogonal"),
)

CLAIMS: tuple[Claim, ...] = (_S2_06, _S2_07, _S2_15)

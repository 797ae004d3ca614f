"""DeepNet's goal, an update of Theta(eta) at any depth, and what its figures say of the update: DN-10, DN-13, DN-14."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

from sympy import Expr, Rational, S, cancel

from paper_checks.claims.claim import Amendment, Check, Claim, Evidence, Finding, Kind, Mutant, Part, Route, Verdict
from paper_checks.claims.statements import Growth
from paper_checks.papers.deepnet.parts import BETWEEN, is_near, matrix_shares
from paper_checks.papers.deepnet.runs import (
    DEPTHS,
    GROUPS,
    GROWTH_ON_RECORD,
    LENGTHS,
    WIDTH,
    encoder_decoders,
    encoders,
    layers,
    power_between,
)
from paper_checks.routes import algebra, kernel, questions, second_meanfield
from paper_checks.routes.checks import GROWTH, all_of, check, order_key, order_of, outcome
from paper_checks.routes.contests import Words
from paper_checks.routes.intervals import Interval, exponent, exponent_of_means, interval
from paper_checks.routes.kernel import UPDATE, curve, follows, kernel_too, law, roles_beside
from paper_checks.routes.kernel import exponent as power_of
from paper_checks.routes.recorded_stacks import recorded_too
from paper_checks.routes.training import BY_TRAINING, at_this_scale
from theory.symbols import L

HALF = Rational(1, 2)


# ---------------------------------------------------------------- DN-10: all that a default model trains


@dataclass(frozen=True)
class RoleOrders:
    """What the parameters of each kind contribute to the change of a logit under one SGD step, per learning rate."""

    entries: tuple[tuple[str, Expr], ...]

    def __getitem__(self, name: str) -> Expr:
        return dict(self.entries)[name]

    def with_(self, **orders: Expr) -> RoleOrders:
        """Other orders under names with _ for a blank."""
        return RoleOrders(tuple((name, orders.get(name.replace(" ", "_"), order)) for name, order in self.entries))

    @property
    def text(self) -> str:
        forms = ", ".join(f"{name} Theta({order})" for name, order in self.entries)
        return f"deepnorm, fixed width, L sublayers, relu: ||df/dtheta||^2 of the {forms}"


def _by_theory(s: RoleOrders) -> list[bool | None]:
    """theory's sublayer: a norm's gain and bias get D_l = 1, an output bias 1/(alpha^2 + s) of it, fc1's as its W.

    What reaches the scores of an attention, and the biases of its queries with it, passed out and v: s/(alpha^2 + s).
    """
    from theory.meanfield.closedform import symbolic_moments
    from theory.moments import activation
    from theory.schemes import scheme
    from theory.stack import NormKind, transfer

    stack = scheme("deepnorm").stack
    assert stack.residual_weight is not None
    t = transfer(
        stack.placement,
        NormKind.LAYERNORM,
        symbolic_moments(activation("relu"), stack.gain_in),
        stream=S.One,
        residual_weight=stack.residual_weight,
        branch_weight=stack.branch_weight,
        input_scale=stack.input_scale,
        gain_in=stack.gain_in,
        gain_out=stack.gain_out,
        sqrt=lambda x: x**HALF,
    )
    if cancel(t.gradient_ratio - 1) != 0:
        raise ArithmeticError("a post-norm sublayer with ReLU should pass the squared gradient unchanged")
    each = {
        "matrices": t.fc1_square + t.fc2_square,
        "norm gains": S.One,
        "norm biases": S.One,
        "output biases": 1 / t.sum_second,
        "inner biases": t.fc1_square,
        "query biases": 1 - stack.residual_weight**2 / t.sum_second,
    }
    return [order_key(order_of(L * each[name])) == order_key(order_of(order)) for name, order in s.entries]


def _by_sums(s: RoleOrders) -> list[bool | None]:
    """The same sublayer written out, summed at 10^2, 10^4, 10^6."""
    out: list[bool | None] = []
    for name, order in s.entries:
        ratios = []
        for length in second_meanfield.LENGTHS:
            network = second_meanfield.coefficients("deepnorm", length)
            square, gain2 = network.residual_weight**2, network.gain_in**2
            total = square + gain2**2 / 2
            each = {"matrices": gain2 / total, "output biases": 1 / total, "inner biases": gain2 / 2 / total}
            each["query biases"] = gain2**2 / 2 / total
            ratios.append(math.log(length * each.get(name, 1.0) / float(order.subs(L, length))))
        out.append(algebra.settles(ratios))
    return out


def _by_measuring(s: RoleOrders) -> Evidence:
    """Whether the measured power of L of each kind is the stated one, to less than 1/8."""
    found = {length: encoders("deepnorm", "relu", length) for length in LENGTHS}
    (shallow, low), (deepest, high) = found.items()
    answers: list[bool | None] = []
    numbers = {}
    for name, order in s.entries:
        power = exponent_of_means(low[name], high[name], deepest / shallow)
        answers.append(is_near(power, power_between(order, LENGTHS)))
        numbers[f"power of L, {name}"] = power.text
    totals = {}
    for length, kinds in found.items():
        sums = map(sum, zip(*kinds.values(), strict=True))
        totals[length] = interval([total / own for total, own in zip(sums, kinds["matrices"], strict=True)])
        numbers[f"all over matrices, L = {length}"] = totals[length].text
    holds = all_of(answers)
    example = {
        "printed": "one SGD step moves F by Theta(eta), whatever the depth",
        "found": f"with norm gains and biases trained, Theta(eta L) at fixed width: at d = {WIDTH}, L = {deepest} "
        f"all parameters move a logit {totals[deepest].text} times as far as the matrices do",
        "width": WIDTH,
        "num_sublayers": deepest,
        "command": "depthlaw predict --attention --roles --scheme deepnorm --optimizer sgd --layers 6,24,96 "
        "--width 1024",
    }
    return Evidence(
        route=Route.MEASURED,
        num_effective=len(answers),
        verdict=outcome(holds),
        detail=f"recorded DeepNorm encoders, 4 tokens, d = {WIDTH}, {len(low['matrices'])} and {len(high['matrices'])} "
        f"seeds: each kind's power of "
        f"L from {shallow} to {deepest} sublayers, by autograd; multiples of 1/4 are told apart",
        numbers=numbers,
        counterexample=example if holds is False else None,
    )


_KERNEL_ROLES: Mapping[str, tuple[str, ...]] = {
    UPDATE: ("matrices",),
    "norm_gain": ("norm gains",),
    "norm_bias": ("norm biases",),
    "bias": ("output biases", "inner biases", "query biases"),
}
"""The kernel rung's roles, and the kinds of which each is the sum: it goes as the largest."""


_DEEPNORM = Growth(scheme="deepnorm", order=S.One)


def _by_kernel(s: RoleOrders) -> Evidence:
    """Each role of a real Transformer, at infinite width in units in which it is O(1)."""
    of_deepnorm = law(_DEEPNORM)
    answers = []
    numbers: dict[str, object] = {}
    for role, kinds in _KERNEL_ROLES.items():
        order = max((s[kind] for kind in kinds), key=lambda order: float(order.subs(L, 10**6)))
        found = follows(curve(of_deepnorm, role), order, is_upper=False)
        answers.append(found.answer)
        numbers |= {f"{role}, {name}": text for name, text in found.numbers.items()}
    return Evidence(
        route=Route.KERNEL,
        num_effective=sum(answer is not None for answer in answers),
        verdict=outcome(all_of(answers)),
        detail="DeepNorm Transformers at infinite width, softmax attention over 16 tokens and FFN in turn, N = 4 to "
        "1,000: each role's power of L, over all depths and over the deeper half; all linear biases are one role, "
        "which goes as its largest kind. Embedding and head are flat",
        numbers=numbers | roles_beside(_DEEPNORM, of_deepnorm),
    )


def _matrices(activation: str) -> Part:
    statement = Growth(scheme="deepnorm", activation=activation, order=S.One)
    part = Part(
        name=f"the weights that the theory covers, {activation}",
        statement=statement,
        checks=(*GROWTH, GROWTH_ON_RECORD),
        mutants=(
            Mutant(name="as L^(1/4)", statement=statement.with_(order=L ** Rational(1, 4))),
            Mutant(name="post-ln", statement=statement.with_(scheme="post-ln")),
        ),
    )
    return kernel_too(recorded_too(part) if activation == "relu" else part)


_ALL = RoleOrders(tuple((name, L**-HALF if name == "query biases" else S.One) for name in GROUPS))
"""The most that the goal allows. The biases of the queries have less, which does it no harm."""
_FOUND = _ALL.with_(norm_gains=L, norm_biases=L, output_biases=L**HALF)
_DN_10 = Claim(
    id="DN-10",
    kind=Kind.RESULT,
    source="deepnet",
    locator="Section 4, GOAL",
    quote="GOAL: ||dF|| = Theta(eta) per SGD step after initialisation, as eta goes to 0",
    summary="under DeepNorm one SGD step moves F by Theta(eta), whatever the depth",
    uses=("DN-04",),
    parts=(
        _matrices("relu"),
        _matrices("gelu"),
        Part(
            name="all parameters that a default model trains: norm gains and biases, linear biases",
            statement=_ALL,
            checks=(
                check(
                    Route.MEANFIELD,
                    "by kind, from the derived sublayer; its squared gradient is 1 at every l",
                    _by_theory,
                ),
                check(Route.NUMERIC, "by kind, summed at 10^2, 10^4, 10^6", _by_sums, is_direct=True),
                Check(route=Route.MEASURED, run=_by_measuring, is_direct=True),
                Check(route=Route.KERNEL, run=_by_kernel),
            ),
            mutants=(
                Mutant(name="output biases as L", statement=_FOUND.with_(output_biases=L)),
                Mutant(name="norm gains as L^(1/2)", statement=_FOUND.with_(norm_gains=L**HALF)),
                Mutant(name="query biases flat", statement=_FOUND.with_(query_biases=S.One)),
                Mutant(name="norms flat", statement=_FOUND.with_(norm_gains=S.One, norm_biases=S.One)),
            ),
            instead=Amendment(
                statement=_FOUND,
                text="norm gains and norm biases Theta(L) each, output biases Theta(L^(1/2)), inner biases and, times "
                "d, matrices Theta(1), query biases Theta(L^(-1/2)): a norm's bias adds straight to a stream whose "
                "gradient has one size all along",
            ),
            condition="these parameters are frozen, or the learning rate of norm gains and biases is divided by L and "
            "that of output biases by L^(1/2); or L is below about d/4, where the norms' 2L is below the matrices' d/2",
            expected=Verdict.REFUTED,
        ),
    ),
    expected=Verdict.REFUTED,
    finding=Finding(
        "DeepNorm keeps the update of the weight matrices flat in depth. The norm gains and biases, which a "
        "default model trains too, are not kept: their update grows as L at fixed width, and that of linear "
        "biases as L^(1/2). In real Transformers with softmax attention it is so too, derived up to "
        "{last:,} layers. Su's rows for SGD and Adam break it in the same roles, LAMB's in the norm gains "
        "(as published it moves no bias that is zero), and at Pre-Norm the linear biases grow as L under "
        "SGD and Adam",
        rank=30,
        numbers={"last": kernel.LAST},
    ),
)


# ---------------------------------------------------------------- DN-13 and DN-14: what figures show


@dataclass(frozen=True)
class Depths:
    """How the update of an N-layer encoder and decoder moves with N, by scheme: it grows, or stays."""

    entries: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        return "; ".join(f"the update of {scheme} {how} with depth" for scheme, how in self.entries)


def one_token_update(scheme: str, num_layers: int) -> float:
    """``one_token`` for layers of their own gains, layer by layer from the top; the paper's FFN of 2 d."""
    encoder, decoder = layers(scheme, num_layers)
    gradient, entering, total = 1.0, 0.0, 0.0
    for weight, gain in reversed(decoder):
        attention, ffn = matrix_shares(weight, gain, 2)
        total += gradient * (ffn + attention)
        kept = weight**2 / (weight**2 + gain**4)
        entering, gradient = entering + gradient * (1 - kept), gradient * kept
        total += gradient * attention
    return total + entering * sum(sum(matrix_shares(weight, gain, 2)) for weight, gain in encoder)


def _depths_by_closed_form(s: Depths) -> Evidence:
    answers, numbers = [], {}
    for scheme, how in s.entries:
        updates = [one_token_update(scheme, n) for n in (10, 100, 1000)]
        stays = algebra.settles(list(map(math.log, updates))) or algebra.falls_away(list(map(math.log, updates)))
        answers.append(stays is (how == "stays"))
        numbers[scheme] = [float(f"{update:.4g}") for update in updates]
    return Evidence(
        route=Route.MEANFIELD,
        num_effective=len(answers),
        verdict=outcome(all(answers)),
        detail="the update at N = M = 10, 100, 1000, infinite width, one token on either side, relu: what explodes in "
        "Post-LN grows as N at initialisation, and no faster",
        numbers=numbers,
    )


def _depths_by_record(s: Depths) -> Evidence:
    """The power of N between the figure's ends, from mean logarithms: Post-LN's seeds scatter by factors of ten."""
    answers: list[bool | None] = []
    numbers = {}
    low, high = DEPTHS[0], DEPTHS[-1]
    num_seeds = 0
    for scheme, how in s.entries:
        updates = {n: encoder_decoders(scheme, n)[0] for n in DEPTHS}
        num_seeds = len(updates[low])
        found = exponent(updates[low], updates[high], high / low)
        stays = found.is_below(BETWEEN)
        answers.append(None if stays is None else stays is (how == "stays"))
        numbers[f"power of N, {scheme}"] = found.text
        numbers[f"median update, {scheme}"] = {f"{n}L-{n}L": float(f"{median(updates[n]):.2g}") for n in DEPTHS}
    return Evidence(
        route=Route.MEASURED,
        num_effective=len(answers),
        verdict=outcome(all_of(answers)),
        detail=f"recorded encoder-decoders at initialisation, by autograd, d = 64, FFN 128, 2 heads, 4 tokens, "
        f"{num_seeds} seeds: the update's power of N from {low}L-{low}L to {high}L-{high}L, stays below 1/8, grows "
        "above",
        numbers=numbers,
    )


_KERNEL_NAMES = {"deepnet": "deepnorm"}


def _depths_by_kernel(s: Depths) -> Evidence:
    """Real encoder-decoders of N and N layers: the power of N, held against what the record is held against."""
    answers: list[bool | None] = []
    numbers = {}
    for scheme, how in s.entries:
        statement = Growth(scheme=_KERNEL_NAMES.get(scheme, scheme), order=S.One)
        found = power_of(curve(law(statement, "encoder-decoder")))
        assert found.low is not None and found.high is not None
        stays = Interval(found.low, found.high).is_below(BETWEEN)
        answers.append(None if stays is None else stays is (how == "stays"))
        numbers[f"power of N, {scheme}"] = f"{found.low:.3f} to {found.high:.3f}"
    return Evidence(
        route=Route.KERNEL,
        num_effective=sum(answer is not None for answer in answers),
        verdict=outcome(all_of(answers)),
        detail="encoder-decoders at infinite width, softmax attention over 16 tokens, cross-attention and FFN of 4 d, "
        "N = M = 4 to 250: the update's power of N, stays below 1/8, grows above",
        numbers=numbers,
    )


_INIT = Depths((("post-ln-init", "stays"),))


def _top_gradients() -> str:
    """At 18L-18L, Post-LN-init's top-layer gradient norm over Post-LN's, of recorded seeds."""
    plain, scaled = (encoder_decoders(scheme, 18)[1] for scheme in ("post-ln", "post-ln-init"))
    ends = exponent(plain, scaled, math.e)
    return " to ".join(f"{math.exp(end / 2):.2f}" for end in ends)


def _init_by_record(s: Depths) -> Evidence:
    found = _depths_by_record(s)
    top = {"gradient norm of the decoder's top layer at 18L-18L, post-ln-init over post-ln": _top_gradients()}
    return replace(found, numbers={**found.numbers, **top})


_DN_13 = Claim(
    id="DN-13",
    kind=Kind.REMARK,
    source="deepnet",
    locator="Section 3, Post-LN-init and Figure 3",
    quote="Post-LN-init: W of layer l divided by k_l = N - l + 1, W_o^l ~ N(0, 1/(k_l^2 d')). 18L-18L: it converges, "
    "Post-LN does not, though the gradient norm of its top layers is larger",
    summary="Post-LN-init (weights of layer l over N - l + 1) trains where Post-LN does not, top gradients larger",
    parts=(
        Part(
            name="it keeps the update at initialisation from growing with depth",
            statement=_INIT,
            checks=(
                Check(route=Route.MEANFIELD, run=_depths_by_closed_form, is_direct=True),
                Check(route=Route.MEASURED, run=_init_by_record, is_direct=True),
            ),
            mutants=(
                Mutant(name="it grows", statement=Depths((("post-ln-init", "grows"),))),
                Mutant(name="so does Post-LN", statement=Depths((("post-ln", "stays"),))),
            ),
        ),
        Part(
            name="18L-18L trains with it and is stuck without it: source lines to bytecode, 32 wide",
            statement=questions.INIT,
            checks=(BY_TRAINING,),
            mutants=(Mutant(name="the other way round", statement=questions.INIT.with_swapped()),),
        ),
        Part(
            name="its top-layer gradients are larger than Post-LN's",
            statement=Words("the gradient norm of Post-LN-init's top layers is larger than that of Post-LN's"),
            checks=(at_this_scale(questions.GRADIENTS_AT_START, questions.GRADIENTS),),
            mutants=(),
            open="at which step of training it is meant, and logged runs of the paper's networks. In small ones it is "
            "smaller before the first step, and larger when Post-LN has got stuck and its gradients have died",
            expected=Verdict.UNDECIDED,
        ),
    ),
    expected=Verdict.UNDECIDED,
)

_FIGURE = Depths((("post-ln", "grows"), ("deepnet", "stays")))
_DN_14 = Claim(
    id="DN-14",
    kind=Kind.RESULT,
    source="deepnet",
    locator="Section 4, Figure 5",
    quote="update of 64-128-2 encoder-decoders, 6L-6L to 100L-100L: Post-LN's explodes with depth, DeepNet's is nearly "
    "constant",
    summary="the update of Post-LN explodes with depth, DeepNet's is nearly constant, 6L-6L to 100L-100L",
    uses=("DN-07",),
    parts=(
        Part(
            name="the update by depth, at initialisation",
            statement=_FIGURE,
            checks=(
                Check(route=Route.MEANFIELD, run=_depths_by_closed_form, is_direct=True),
                Check(route=Route.MEASURED, run=_depths_by_record, is_direct=True),
                Check(route=Route.KERNEL, run=_depths_by_kernel),
            ),
            mutants=(
                Mutant(name="Post-LN stays", statement=Depths((("post-ln", "stays"), ("deepnet", "stays")))),
                Mutant(name="DeepNet grows", statement=Depths((("post-ln", "grows"), ("deepnet", "grows")))),
            ),
        ),
    ),
)

CLAIMS: tuple[Claim, ...] = (_DN_10, _DN_13, _DN_14)

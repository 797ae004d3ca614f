"""Su's article, "Post-hoc Analysis": small branches, the model near the identity, Pre-Norm, and a 200-layer model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from functools import cache
from itertools import product
from typing import Any

from sympy import Expr, Rational, S, limit, log, oo

from depthlaw.paper_checks.claims.claim import (
    Amendment,
    Cell,
    Check,
    Claim,
    Finding,
    Kind,
    Mutant,
    Part,
    Route,
    Verdict,
    claim,
)
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.papers.deepnet.abstract import M2M
from depthlaw.paper_checks.papers.su.preliminary_conclusion import (
    HALF,
    OPTIMIZERS,
    QUARTER,
    TABLE,
    TARGETS,
    TWO_N,
    flat,
    side,
    size,
)
from depthlaw.paper_checks.papers.su.sublayers import layer_norm
from depthlaw.paper_checks.routes import algebra, second_meanfield
from depthlaw.paper_checks.routes.checks import Answers, check, derived
from depthlaw.paper_checks.routes.intervals import Interval, interval, of_logs
from depthlaw.paper_checks.routes.tables.derived import read
from depthlaw.paper_checks.routes.tables.parameter_counts import Count, counted, to_rounding
from depthlaw.paper_checks.routes.tables.results import Column, won
from depthlaw.theory.symbols import L, N

_SECOND, _LAST = "Post-hoc Analysis, second paragraph", "Post-hoc Analysis, last paragraph"

# ---------------------------------------------------------------- S1-38: small branches


@check(Route.ARITHMETIC, "lambda^2/alpha of the table's rows, each a negative power of 2N")
def _below_one(s: Values) -> list[bool | None]:
    answers: list[bool | None] = []
    for name, value in s:
        weight, gain = TABLE[name]
        power = algebra.log_form(value).coeff(log(N))
        answers += [algebra.equal(value, gain**2 / weight), bool(power < 0) and algebra.equal(value, TWO_N**power)]
    return answers


_BRANCHES = Values.of(sgd=TWO_N ** Rational(-3, 4), adam=TWO_N ** Rational(-3, 2), lamb=1 / TWO_N)
_S1_38 = claim(
    "S1-38",
    kind=Kind.REMARK,
    locator=_SECOND,
    quote=r"the weight of each residual branch is scaled down to $\lambda^2/\alpha$ of its original value in the "
    r"initial stage. Regardless of the optimizer used, $\lambda^2/\alpha$ is a relatively small number",
    summary="branch weights lambda^2/alpha: (2N)^(-3/4), (2N)^(-3/2), (2N)^(-1), all below 1",
    uses=("S1-37",),
    statement=_BRANCHES,
    checks=(
        derived(
            "the derived rules' branch at initialisation",
            lambda: {name: side("post", name).branch_at_init for name in OPTIMIZERS},
        ),
        _below_one,
    ),
)


# ---------------------------------------------------------------- S1-39, S1-40: real networks of a row

_DEPTHS = (4, 16)


@cache
def _deep(weight: float, gain: float, activation: str, length: int) -> tuple[list[float], list[float], list[float]]:
    """By seed: 1 - cos(x_L, x_0); log of the largest |dL/dx_l|^2/|dL/dx_L|^2; the largest ||dx_l/dz_l||.

    Of real Post-LN Transformers: 2 inputs of 8 independent tokens, width 32, one readout per token.
    """
    import torch

    from depthlaw.sims.ensemble import Ensemble, Member
    from depthlaw.sims.model import ModelConfig, alternating
    from depthlaw.sims.update import Task, draw_inputs, first_order

    class Watched(Ensemble):
        """Keeps the largest factor of its norms: that is ||dLN(z)/dz|| at z."""

        largest = torch.tensor(0.0, dtype=torch.float64)

        def on_norm(self, name: str, factor_BT1: torch.Tensor) -> None:
            super().on_norm(name, factor_BT1)
            self.largest = torch.maximum(self.largest, factor_BT1.detach().flatten(1).amax(1))

    task, seeds = Task(num_tokens=8, batch_size=2, readout="sum"), range(16)
    encoder = alternating(length, residual_weight=weight, gains=dict.fromkeys(("v", "out", "fc1", "fc2"), gain))
    config = task.on(ModelConfig(encoder=encoder, d_model=32, activation=activation))
    model = Watched([Member(config, seed) for seed in seeds])
    inputs = draw_inputs(config, task, seeds, torch.float64, "cpu")
    streams = first_order(model, replace(inputs, x=layer_norm(inputs.x)), task, (), has_cosines=True).streams
    gradients: list[Any] = [streams["encoder", index].gradient_square for index in range(1, length + 1)]
    cosine = streams["encoder", length].cosine_with_input
    assert cosine is not None
    turned = 1 - cosine
    log_gradient = (torch.stack(gradients).amax(0) / gradients[-1]).log()
    return turned.tolist(), log_gradient.tolist(), (weight * model.largest).tolist()


def _total(s: Values) -> Expr:
    """L lambda^4/alpha^2: the order of L = 2N branches' squared lengths beside that of the skip."""
    return L * (s["lam"] ** 4 / s["alpha"] ** 2).xreplace({N: L / 2})


def _at(s: Values, length: int) -> tuple[float, float]:
    """alpha and lambda of so many sublayers."""
    weight, gain = (float(s[name].subs(N, Rational(length, 2))) for name in ("alpha", "lam"))
    return weight, gain


def _activations(s: Values) -> list[str]:
    return s["activations"].split(" and ")


def _of_rows(words: str, checks: tuple[Check, ...], mutants: Mapping[str, Mapping[str, Any]]) -> tuple[Part, ...]:
    """A part for each row of the summary. mutants: by name, what is wrong."""
    parts = []
    for name, (weight, gain) in zip(("SGD", "Adam", "LAMB"), TABLE.values(), strict=True):
        statement = Values.of(
            f"{words}: alpha = {{alpha}}, lambda = {{lam}}, {{activations}}",
            alpha=weight,
            lam=gain,
            activations="relu and gelu",
        )
        wrong = tuple(Mutant(name=name, statement=statement.with_(**values)) for name, values in mutants.items())
        parts.append(Part(name=f"the row of {name}", statement=statement, checks=checks, mutants=wrong))
    return tuple(parts)


# ---------------------------------------------------------------- S1-39: near the identity


@check(Route.PROOF, "the branches' squared shares sum to 0 in the limit")
def _cosine_tends_to_one(s: Values) -> Answers:
    return Answers(
        holds=[limit(_total(s), L, oo) == 0],
        detail=f"the branches' squared shares sum to L lambda^4/alpha^2 = {_total(s)} -> 0",
        steps=(
            "W2 is independent of what came before: the branch is orthogonal to x_0 at infinite width",
            "|alpha x_l + F|^2 = (alpha^2 + lambda^2 E phi(lambda z)^2) d, so each sublayer multiplies the "
            "cosine by (1 + lambda^2 E phi^2/alpha^2)^(-1/2); averaging tokens only makes a branch shorter",
        ),
    )


def _turned(s: Values, activation: str) -> tuple[Interval, Interval, dict[str, str]]:
    """1 - cos(x_L, x_0) at either depth, and both in words."""
    shallow, deep = (interval(_deep(*_at(s, length), activation, length)[0]) for length in _DEPTHS)
    return shallow, deep, {f"L = {_DEPTHS[0]}": shallow.text, f"L = {_DEPTHS[1]}": deep.text}


_COSINE = "1 - cos(x_L, x_0) of real Transformers, attention and FFN"


@check(Route.MEASURED, _COSINE)
def _cosine_measured(s: Values) -> Answers:
    holds, numbers = [], {}
    for activation in _activations(s):
        shallow, deep, numbers[activation] = _turned(s, activation)
        holds.append(deep.high < shallow.low and deep.high < 0.1)
    return Answers(holds=holds, numbers=numbers)


_STEP = Values.of(
    "branches of weight lambda^2/alpha = L^e, e < {below}: the whole model is close to the identity", below=0
)


@check(Route.PROOF, "L branches of independent directions: L^(1 + 2e) -> 0, e = 0, -1/8, ..., -1")
def _step_summed(s: Values) -> list[bool | None]:
    exponents = (Rational(-k, 8) for k in range(0, 9))
    return [limit(L ** (1 + 2 * exponent), L, oo) == 0 for exponent in exponents if exponent < s["below"]]


@check(Route.MEASURED, _COSINE)
def _step_measured(s: Values) -> Answers:
    """LN(x + L^e F), gain 1: alpha = L^(-e)."""
    holds, numbers = [], {}
    for exponent in (-QUARTER, -3 * QUARTER):
        if exponent < s["below"]:
            shallow, deep, words = _turned(Values.of(alpha=TWO_N**-exponent, lam=1), "relu")
            holds.append(deep.high < shallow.low)
            numbers[f"weight L^({exponent})"] = words
    return Answers(holds=holds, numbers=numbers)


_S1_39 = Claim(
    id="S1-39",
    kind=Kind.RESULT,
    locator=_SECOND,
    quote=r"Regardless of the optimizer used, $\lambda^2/\alpha$ is a relatively small number, meaning that the entire "
    "model is close to an identity function in the initial stage.",
    summary="with each row's alpha and lambda the whole model is near the identity at initialisation",
    parts=(
        *_of_rows(
            "cos(x_L, x_0) -> 1 as the depth grows",
            (_cosine_tends_to_one, _cosine_measured),
            {"lambda = 1 under SGD's alpha": {"alpha": TABLE["sgd"][0], "lam": 1}},
        ),
        Part(
            name="that a small weight of each branch means it",
            statement=_STEP,
            checks=(_step_summed, _step_measured),
            mutants=(
                Mutant(name="weight one too", statement=_STEP.with_(below=HALF)),
                Mutant(name="below -1/4", statement=_STEP.with_(below=-QUARTER)),
            ),
            hedge=Amendment(
                statement=_STEP.with_(below=-HALF),
                text="small beside (2N)^(-1/2): 2N branches add up, and the sum of squares 2N (lambda^2/alpha)^2 has "
                "to vanish. Branches of weight (2N)^(-1/4) turn the stream away from the input altogether; all three "
                "rows ((2N)^(-3/4), (2N)^(-3/2), (2N)^(-1)) meet the condition",
            ),
            expected=Verdict.CONDITIONAL,
        ),
    ),
    finding=Finding(
        "Su: the whole model is near the identity where the branch weights are small beside (2N)^(-1/2), "
        "which his three rows meet; that each branch weight is small does not suffice",
        rank=280,
    ),
)


# ---------------------------------------------------------------- S1-40: gradients of order 1


@check(Route.PROOF, "the product over sublayers is bounded")
def _backward_product(s: Values) -> Answers:
    """log of the product: L lambda^4/alpha^2 (E phi'^2 - E phi^2/lambda^2) to first order; ReLU's bracket is 0.

    The moments are bounded, so the sum of the shares decides where the bracket is not 0.
    """
    moments = [second_meanfield.moments(activation, 1.0) for activation in _activations(s)]
    is_finite = limit(_total(s), L, oo).is_finite is True
    return Answers(
        holds=[is_finite or abs(each.slope - each.second) < 1e-9 for each in moments],
        detail="each sublayer multiplies |dL/dx|^2 by (alpha^2 + lambda^4 E phi'^2)/(alpha^2 + lambda^2 E phi^2): the "
        f"product is 1 + O({_total(s)})",
    )


@check(Route.MEASURED, "real Transformers: the largest over all l, the gradient over that of x_L")
def _backward_measured(s: Values) -> Answers:
    holds: list[bool | None] = []
    numbers = {}
    for activation, length in product(_activations(s), _DEPTHS):
        _, log_gradient, jacobian = _deep(*_at(s, length), activation, length)
        both = {"|dL/dx_l|^2": of_logs(log_gradient), "||dx_l/dz_l||": interval(jacobian)}
        holds += [each.is_below(2) for each in both.values()]
        numbers[f"{activation}, L = {length}"] = {name: each.text for name, each in both.items()}
    return Answers(holds=holds, numbers=numbers)


_S1_40 = Claim(
    id="S1-40",
    kind=Kind.RESULT,
    locator=_SECOND,
    quote=r"Therefore, $\frac{\partial \mathcal{L}}{\partial \boldsymbol{x}_{l+1}}$ and "
    r"$\frac{\partial \boldsymbol{x}_{l+1}}{\partial \boldsymbol{z}_{l+1}}$ are naturally $\mathcal{O}(1)$",
    summary="with each row's alpha and lambda dL/dx_{l+1} and dx_{l+1}/dz_{l+1} are O(1) at all depths",
    uses=("S1-39",),
    parts=_of_rows(
        "dL/dx_l and dx_l/dz_l are O(1) at every depth",
        (_backward_product, _backward_measured),
        {
            "alpha = lambda = 1, gelu": {"alpha": 1, "lam": 1, "activations": "gelu"},
            "alpha = 1/4, lambda = 5, tanh": {"alpha": QUARTER, "lam": 5, "activations": "tanh"},
        },
    ),
)


# ---------------------------------------------------------------- S1-41: Pre-Norm

_PRE_TEXTS = {"sgd": "(2*N)**(-1/2)", "adam": "(2*N)**(-1)", "lamb": "(2*N)**(-1/2)"}
_PRE = Values.of(alpha=1, **{name: read(text) for name, text in _PRE_TEXTS.items()})


def _pre_rules() -> Mapping[str, Expr]:
    gains = {name: side("pre", name).gain for name in OPTIMIZERS}
    return {"alpha": side("pre", "sgd").residual_weight, **gains}


@check(Route.ARITHMETIC, "the printed conditions at alpha = 1")
def _recalculated(s: Values) -> list[bool | None]:
    conditions = [algebra.equal(size(name, s["alpha"], s[name]), TARGETS[name]) for name in OPTIMIZERS]
    return [algebra.equal(s["alpha"], S.One), *conditions]


_S1_41 = Claim(
    id="S1-41",
    kind=Kind.RESULT,
    locator="Post-hoc Analysis, third paragraph",
    quote=r"Therefore, the conclusion is that all $\alpha$ values in the results for Post-Norm are equal to 1, and the "
    r"corresponding $\lambda$ values are recalculated.",
    summary="Pre-Norm: alpha = 1, lambda recalculated: (2N)^(-1/2), (2N)^(-1), (2N)^(-1/2)",
    uses=("S1-23", "S1-32", "S1-35"),
    parts=(
        Part(
            name="the recalculated gains",
            statement=_PRE,
            checks=(
                derived("the derived pre-norm rules", _pre_rules),
                _recalculated,
            ),
        ),
        *(flat(f"su-pre-{name}", name, name=f"the true update under {name} does not grow") for name in OPTIMIZERS),
    ),
    cells=tuple(
        Cell(
            table="su-prenorm",
            where=(("optimizer", name),),
            column=column,
            printed=text,
            note="" if column == "alpha" else "not printed: recalculated from the row's condition, as the text asks",
        )
        for name in OPTIMIZERS
        for column, text in (("alpha", "1"), ("lambda", _PRE_TEXTS[name]))
    ),
)

# ---------------------------------------------------------------- S1-44, S1-45: 3.2 and 12 billion

_RESULT = (
    "The original paper presents a beautiful experimental result: a 200-layer “deep and narrow” model (3.2 billion "
    "parameters) outperformed a previous 48-layer “shallow and wide” SOTA model (12 billion parameters):"
)
DICTIONARY = 128112
"""Entries of M2M-100's published dictionary; the article and DeepNet's text print none."""
_DEEP_LOW, _DEEP_HIGH = to_rounding("3.2", 10**9)
_WIDE_LOW, _WIDE_HIGH = to_rounding("12", 10**9)
_DEEP = Count(
    stacks=((100, 1), (100, 2)),
    width=1024,
    rows=2 * DICTIONARY,
    low=_DEEP_LOW,
    high=_DEEP_HIGH,
    words="3.2 billion, to rounding",
)
_WIDE = Count(
    stacks=((24, 1), (24, 2)),
    width=4096,
    rows=DICTIONARY,
    low=_WIDE_LOW,
    high=_WIDE_HIGH,
    words="12 billion, to rounding",
)


_S1_44 = claim(
    "S1-44",
    kind=Kind.REMARK,
    locator=_LAST,
    quote=_RESULT,
    summary="200 layers (100 + 100, width 1,024) are 3.2B parameters: 2.936B in matrices and 256,224 embeddings",
    statement=_DEEP,
    checks=(counted,),
    mutants=(Mutant(name="one table", statement=_DEEP.with_(rows=DICTIONARY)),),
)

_S1_45 = Claim(
    id="S1-45",
    kind=Kind.REMARK,
    locator=_LAST,
    quote=_RESULT,
    summary="48 layers (24 + 24, width 4,096) are 12B parameters, with one table of embeddings or with two",
    parts=tuple(
        Part(
            name=name,
            statement=_WIDE.with_(rows=rows),
            checks=(counted,),
            mutants=(Mutant(name="no embeddings", statement=_WIDE.with_(rows=0)),),
        )
        for name, rows in (
            ("one table of 128,112, shared by input and output", DICTIONARY),
            ("input and output embeddings counted apart, as S1-44 needs it", 2 * DICTIONARY),
        )
    ),
)

# ---------------------------------------------------------------- S1-46: 200 layers against 48

_FIVE = Values.of("{by} BLEU ahead on {name}", name="Flores", by="5")


_S1_46 = Claim(
    id="S1-46",
    kind=Kind.REMARK,
    locator=f"{_LAST}; scores at second hand from DeepNet's comparison with M2M-100",
    quote=_RESULT,
    summary="DeepNet with 200 layers translates better than M2M-100 with 48 on all four test sets, by 5 BLEU on Flores",
    parts=(
        won(
            "S1-46",
            "all four test sets",
            (
                Column(
                    table="BLEU",
                    block="",
                    name=name,
                    entries=(("M2M-100, 48 layers", wide, False), ("DeepNet", deep, False)),
                )
                for name, (wide, deep) in M2M.items()
            ),
            model="DeepNet",
        ),
        Part(
            name="by 5 BLEU: on Flores (2.0 on WMT, 4.6 on OPUS, 1.4 on TED)",
            statement=_FIVE,
            checks=(
                check(
                    Route.ARITHMETIC,
                    "18.6 - 13.6, exactly",
                    lambda s: [Decimal(M2M[s["name"]][1]) - Decimal(M2M[s["name"]][0]) == Decimal(s["by"])],
                ),
            ),
            mutants=(
                Mutant(name="on TED", statement=_FIVE.with_(name="TED")),
                Mutant(name="on OPUS", statement=_FIVE.with_(name="OPUS")),
            ),
        ),
    ),
)

CLAIMS: tuple[Claim, ...] = (_S1_38, _S1_39, _S1_40, _S1_41, _S1_44, _S1_45, _S1_46)

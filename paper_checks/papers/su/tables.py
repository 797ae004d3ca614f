r"""Su Jianlin, "What's so Difficult About Training a 1000-Layer Transformer?" (2022), https://kexue.fm/archives/8978."""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr, Rational, S, log

from paper_checks.claims.claim import Amendment, Cell, Check, Claim, Finding, Mutant, Part, Route, Verdict, claim
from paper_checks.claims.statements import Values
from paper_checks.papers.deepnet import tables
from paper_checks.papers.su.measured import flat_sums, scaled_gradients
from paper_checks.papers.su.parts import (
    ATTRIBUTED,
    DEGREES,
    GRADIENTS,
    HALF,
    LAMB_PUBLISHED,
    OPTIMIZERS,
    OWN,
    QUARTER,
    RELATIVE,
    TABLE,
    TABLE_TEXTS,
    TARGETS,
    TWO_N,
    alternative,
    between,
    constraint,
    degrees_by_hand,
    degrees_by_map,
    flat,
    in_family,
    map_part,
    meets_target,
    rule_gradients,
    rule_relatives,
    side,
    size,
    solution,
)
from paper_checks.routes import algebra
from paper_checks.routes.checks import check, derived
from paper_checks.routes.printed_tables import read
from theory.symbols import N

_PRELIMINARY = "Preliminary Conclusion"
_MULTIPLE = "Multiple Optimizers"

_S1_24 = claim(
    "S1-24",
    source="su",
    locator=f"{_PRELIMINARY}, first paragraph",
    quote=r"The scaling in the original paper is looser, yielding $\lambda/\alpha = 1/\sqrt{4N}$, which is equivalent "
    "in terms of magnitude.",
    summary="DeepNet's ratio is 1/sqrt(4N), of the order of 1/sqrt(2N)",
    uses=("S1-23", "DN-04"),
    statement=Values.of(ratio=(4 * N) ** -HALF, other=TWO_N**-HALF),
    checks=(
        derived(
            "gain over residual weight of the derived DeepNet rule",
            lambda: {"ratio": side("post", "sgd", "deepnet").gain / side("post", "sgd", "deepnet").residual_weight},
        ),
        check(
            Route.ARITHMETIC,
            "beta/alpha as DeepNet prints them; the two ratios differ by a number",
            lambda s: [
                algebra.equal(s["ratio"], tables.PRINTED["encoder"][1] / tables.PRINTED["encoder"][0]),
                not algebra.log_form(s["ratio"] / s["other"]).has(N),
            ],
            is_direct=True,
        ),
    ),
    mutants=(
        Mutant(name="8N", statement=Values.of(ratio=(8 * N) ** -HALF, other=TWO_N**-HALF)),
        Mutant(name="another order", statement=Values.of(ratio=(4 * N) ** -QUARTER, other=TWO_N**-HALF)),
    ),
)

_S1_28 = claim(
    "S1-28",
    source="su",
    locator=f"{_PRELIMINARY}, last paragraph",
    quote=r"It maintains the gradient scaled to $(2N)^{-1/2}$ of its original value while making the initial learning "
    "pace slightly slower, but not too slow, implicitly acting as a Warmup.",
    summary="relative update of the chosen solution (2N)^(-1/4), strictly between those of the alternatives",
    uses=("S1-25", "S1-26", "S1-27"),
    statement=RELATIVE,
    checks=(
        derived("relative updates of three members of the derived family", rule_relatives),
        check(
            Route.ARITHMETIC,
            "exponents of 2N in order, 2N > 1; each is (lambda/alpha)/lambda",
            lambda s: [
                *between(s),
                *(
                    algebra.equal(s[name], 1 / OWN[kind][0])
                    for name, kind in (("low", "lambda_one"), ("middle", "symmetric"), ("high", "alpha_one"))
                ),
            ],
            is_direct=True,
        ),
    ),
    mutants=(
        Mutant(name="not strictly", statement=RELATIVE.with_(middle=1)),
        Mutant(name="outside", statement=RELATIVE.with_(middle=TWO_N ** -(HALF + QUARTER))),
    ),
)

_S1_29 = claim(
    "S1-29",
    source="su",
    locator=f"{_PRELIMINARY}, last paragraph",
    quote=r"It maintains the gradient scaled to $(2N)^{-1/2}$ of its original value",
    summary="all three solutions scale the gradient to (2N)^(-1/2)",
    uses=("S1-25", "S1-26", "S1-27"),
    statement=GRADIENTS,
    checks=(
        derived("gradients of three members of the derived family", rule_gradients),
        check(
            Route.ARITHMETIC,
            "lambda/alpha of each",
            lambda s: [algebra.equal(value, OWN[name][1] / OWN[name][0]) for name, value in s],
            is_direct=True,
        ),
        scaled_gradients(OWN),
    ),
    mutants=(
        Mutant(name="one differs", statement=GRADIENTS.with_(alpha_one=TWO_N**-QUARTER)),
        Mutant(name="N in place of 2N", statement=GRADIENTS.with_(symmetric=N**-HALF)),
    ),
)

_S1_34 = Claim(
    id="S1-34",
    source="su",
    locator=f"{_MULTIPLE}, third paragraph, and the summary's LAMB row",
    quote=r"For LAMB-type optimizers, the update amount at each step is approximately "
    r"$\Delta\boldsymbol{\theta}=-\eta\Vert\boldsymbol{\theta}\Vert\,\text{sign}(\nabla_{\boldsymbol{\theta}}"
    r"\mathcal{L}(\boldsymbol{\theta}))$, so $\Delta\mathcal{L} \approx -\eta\Vert\boldsymbol{\theta}\Vert\Vert"
    r"\nabla_{\boldsymbol{\theta}}\mathcal{L}(\boldsymbol{\theta})\Vert_1$.",
    summary="LAMB's step is -eta ||theta|| sign(g), its loss change -eta ||theta|| ||g||_1",
    parts=(
        map_part(
            "lamb",
            "as equations",
            misprint=Amendment(
                statement=LAMB_PUBLISHED,
                text="-eta ||theta||/sqrt(n) sign(g) and -eta ||theta|| ||g||_1/sqrt(n) for a matrix of n entries: the "
                "direction is normalised to length 1, so ||theta|| must be read as the root mean square of theta",
                grounds="the same section: the relative update is 'equal to the learning rate eta', which the printed "
                "form misses by sqrt(n); and LAMB as published (arXiv 1904.00962, Algorithm 2)",
            ),
            expected=Verdict.MISPRINT,
        ),
        Part(
            name="as magnitudes in N",
            statement=DEGREES,
            checks=(
                check(Route.PROOF, "degrees of the published map, by scaling it symbolically", degrees_by_map),
                check(Route.NUMERIC, "degrees of the printed map at six entries", degrees_by_hand, is_direct=True),
            ),
            mutants=(
                Mutant(name="Adam's degrees", statement=DEGREES.with_(parameter=0)),
                Mutant(name="LARS without a sign", statement=DEGREES.with_(gradient=1)),
            ),
        ),
    ),
    cells=tuple(
        Cell(table="su-optimizers", where=(("optimizer", "lamb"),), column=column, printed=text)
        for column, text in (("update", "-eta*||theta||*sign(g)"), ("loss_change", "-eta*||theta||*||g||_1"))
    ),
    expected=Verdict.MISPRINT,
    finding=Finding("Su: LAMB's step has ||theta||/sqrt(n) for a matrix of n entries, not ||theta||", rank=80),
)


def _row(optimizer: str) -> Part:
    a, lam = TABLE[optimizer]
    statement = Values.of(alpha=a, lam=lam)
    return Part(
        name=f"{optimizer}: alpha, lambda and the row's condition",
        statement=statement,
        checks=(in_family(optimizer), meets_target(optimizer)),
        mutants=(
            Mutant(name="lambda off by a quarter power", statement=statement.with_(lam=lam * TWO_N**QUARTER)),
            Mutant(name="N in place of 2N", statement=statement.with_(lam=lam.subs(N, N / 2))),
        ),
    )


_MAP_TEXT = {"sgd": ("-eta*g", "-eta*||g||^2"), "adam": ("-eta*sign(g)", "-eta*||g||_1")}
_S1_37 = Claim(
    id="S1-37",
    source="su",
    locator=f"{_MULTIPLE}, the summary's table",
    quote=r"Optimizer | $\Delta\boldsymbol{\theta}$ | $\Delta\mathcal{L}$ | $\alpha$ | $\lambda$ |",
    summary="the three rows satisfy lambda/alpha = (2N)^(-1/2), lambda/alpha = (2N)^(-1), lambda^2/alpha = (2N)^(-1)",
    uses=("S1-23", "S1-32", "S1-35"),
    parts=(
        *map(_row, OPTIMIZERS),
        map_part("sgd", "sgd: the step and the loss change"),
        map_part("adam", "adam: the step and the loss change, first step, eps 0"),
    ),
    cells=(
        *(
            Cell(table="su-optimizers", where=(("optimizer", name),), column=column, printed=text)
            for name, texts in TABLE_TEXTS.items()
            for column, text in zip(("alpha", "lambda"), texts, strict=True)
        ),
        *(
            Cell(table="su-optimizers", where=(("optimizer", name),), column=column, printed=text)
            for name, texts in _MAP_TEXT.items()
            for column, text in zip(("update", "loss_change"), texts, strict=True)
        ),
    ),
)

_BRANCHES = Values.of(
    sgd=TWO_N ** Rational(-3, 4),
    adam=TWO_N ** Rational(-3, 2),
    lamb=1 / TWO_N,
)


def _below_one(expr: Expr) -> bool:
    """A product of 2N and nothing else, to a negative power: below 1 for every N >= 1."""
    form = algebra.log_form(expr)
    power = form.coeff(log(N))
    return bool(power < 0) and algebra.equal(expr, TWO_N**power) is True


_S1_38 = claim(
    "S1-38",
    source="su",
    locator="Post-hoc Analysis, second paragraph",
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
        check(
            Route.ARITHMETIC,
            "lambda^2/alpha of the table's rows, each a negative power of 2N",
            lambda s: [
                *(algebra.equal(value, TABLE[name][1] ** 2 / TABLE[name][0]) for name, value in s),
                *(_below_one(value) for _, value in s),
            ],
            is_direct=True,
        ),
    ),
    mutants=(
        Mutant(name="lambda/alpha", statement=_BRANCHES.with_(sgd=TWO_N**-HALF)),
        Mutant(name="above 1", statement=_BRANCHES.with_(lamb=TWO_N)),
    ),
)


# ---------------------------------------------------------------- Pre-Norm

_PRE_TEXTS = {"sgd": "(2*N)**(-1/2)", "adam": "(2*N)**(-1)", "lamb": "(2*N)**(-1/2)"}
_PRE = Values.of(alpha=1, **{name: read(text) for name, text in _PRE_TEXTS.items()})


def _pre_rules() -> Mapping[str, Expr]:
    gains = {name: side("pre", name).gain for name in OPTIMIZERS}
    return {"alpha": side("pre", "sgd").residual_weight, **gains}


def _recalculated(s: Values) -> list[bool | None]:
    """The condition of each row at that alpha."""
    return [
        algebra.equal(s["alpha"], S.One),
        *(algebra.equal(size(name, s["alpha"], s[name]), TARGETS[name]) for name in OPTIMIZERS),
    ]


def _pre_check(name: str) -> Check:
    return (
        derived("the derived pre-norm rules", _pre_rules)
        if name == "rules"
        else check(Route.ARITHMETIC, "the printed conditions at alpha = 1", _recalculated, is_direct=True)
    )


_S1_41 = Claim(
    id="S1-41",
    source="su",
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
                _pre_check("rules"),
                _pre_check("conditions"),
                flat_sums("pre", lambda s: {name: (name, (s["alpha"], s[name])) for name in OPTIMIZERS}),
            ),
            mutants=(
                Mutant(name="not recalculated", statement=_PRE.with_(adam=TABLE["adam"][1])),
                Mutant(name="N in place of 2N", statement=_PRE.with_(sgd=N**-HALF)),
                Mutant(name="another alpha", statement=_PRE.with_(alpha=2)),
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

CLAIMS: tuple[Claim, ...] = (
    constraint(
        "S1-23",
        "sgd",
        "lambda/alpha = (2N)^(-1/2)",
        TWO_N**-HALF,
        f"{_PRELIMINARY}, first paragraph",
        r"we need to adjust the gradient to $\mathcal{O}(1/\sqrt{2N})$. The above equation tells us that this can be "
        r"achieved by setting $\lambda/\alpha=1/\sqrt{2N}$.",
        TWO_N**-QUARTER,
    ),
    _S1_24,
    solution(
        "S1-25",
        "sgd",
        f"{_PRELIMINARY}, second paragraph",
        r"According to the paper, starting from a symmetry perspective, setting $\lambda=1/\alpha$, we can solve for"
        "\n"
        r"$$ \alpha = (2N)^{1/4},\quad \lambda = (2N)^{-1/4} $$",
        ("S1-23", "DN-04"),
        ATTRIBUTED,
        finding=Finding("Su: lambda = 1/alpha is his own choice; DeepNet has beta = 1/(sqrt(2) alpha)", rank=210),
    ),
    alternative(
        "S1-26",
        "alpha-one",
        Values.of(alpha=1, lam=TWO_N**-HALF, gradient=TWO_N**-HALF, relative=1),
        f"{_PRELIMINARY}, Alternative Solution 1",
        r"$\alpha=1,\lambda=(2N)^{-1/2}$. In this case, the parameter initialization is scaled down to $(2N)^{-1/2}$ "
        r"of its original value, and the gradient is also scaled down to $(2N)^{-1/2}$ of its original value.",
        "alpha = 1: initialisation, gradient and step all times (2N)^(-1/2), the relative update unchanged",
    ),
    alternative(
        "S1-27",
        "lambda-one",
        Values.of(alpha=TWO_N**HALF, lam=1, gradient=TWO_N**-HALF, relative=TWO_N**-HALF),
        f"{_PRELIMINARY}, Alternative Solution 2",
        r"$\alpha=(2N)^{1/2},\lambda=1$. In this case, the parameter initialization is not scaled down, but the "
        r"gradient is scaled down to $(2N)^{-1/2}$ of its original value.",
        "lambda = 1: gradient and relative update times (2N)^(-1/2)",
    ),
    _S1_28,
    _S1_29,
    constraint(
        "S1-32",
        "adam",
        "lambda/alpha = 1/(2N)",
        1 / TWO_N,
        f"{_MULTIPLE}, second paragraph",
        r"the gradient should be scaled down to $1/(2N)$ of its original value, i.e., we should have "
        r"$\lambda/\alpha=1/(2N)$.",
        TWO_N**-HALF,
    ),
    solution(
        "S1-33",
        "adam",
        f"{_MULTIPLE}, second paragraph",
        r"If we similarly set $\lambda=1/\alpha$, then we get"
        "\n"
        r"$$ \alpha = (2N)^{1/2},\quad \lambda = (2N)^{-1/2} $$",
        ("S1-32",),
    ),
    _S1_34,
    solution(
        "S1-35",
        "lamb",
        f"{_MULTIPLE}, third paragraph",
        r"so $\Delta\mathcal{L}=\mathcal{O}(2N\lambda^2/\alpha)$, which implies $\lambda^2/\alpha=1/(2N)$.",
        ("S1-34",),
    ),
    _S1_37,
    _S1_38,
    _S1_41,
)

"""What the claims of Su's article are made of: his magnitudes, his table, and the checks that they share.

His letters: N layers, 2N residual branches; lambda the magnitude of a matrix, alpha the weight of the skip.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from sympy import Expr, Integer, Rational, S, log

from paper_checks.claims.claim import Amendment, Check, Claim, Mutant, Part, Route, Verdict, claim, worst
from paper_checks.claims.letters import (
    GRADIENT,
    PARAMETER,
    entry_values,
    g,
    l1_g,
    n,
    norm_g,
    norm_theta,
    read_update,
    sign_g,
    step_agrees,
)
from paper_checks.claims.statements import Growth, Values
from paper_checks.papers.deepnet import tables
from paper_checks.papers.su.measured import flat_sums
from paper_checks.routes import algebra
from paper_checks.routes.checks import GROWTH, check, derived
from paper_checks.routes.kernel import kernel_too
from paper_checks.routes.printed_tables import read
from paper_checks.routes.recorded_stacks import recorded_too
from theory.symbols import L, N, eta
from theory.symbols import init_gain as lam
from theory.symbols import residual_weight as alpha

HALF, QUARTER = Rational(1, 2), Rational(1, 4)
TWO_N = 2 * N
OPTIMIZERS = ("sgd", "adam", "lamb")
TARGETS = {"sgd": TWO_N**-HALF, "adam": 1 / TWO_N, "lamb": 1 / TWO_N}
"""What he asks of the gradient's size (of |theta| |g| under LAMB) so that 2N branches sum to O(1)."""
TABLE_TEXTS = {
    "sgd": ("(2*N)**(1/4)", "(2*N)**(-1/4)"),
    "adam": ("(2*N)**(1/2)", "(2*N)**(-1/2)"),
    "lamb": ("1", "(2*N)**(-1/2)"),
}
TABLE = {name: (read(alpha_text), read(lam_text)) for name, (alpha_text, lam_text) in TABLE_TEXTS.items()}
"""(alpha, lambda) of his summary."""
MAPS: Mapping[str, tuple[Expr, Expr]] = {
    "sgd": (-eta * g, -eta * norm_g**2),
    "adam": (-eta * sign_g, -eta * l1_g),
    "lamb": (-eta * norm_theta * sign_g, -eta * norm_theta * l1_g),
}
"""(Delta theta, Delta L) of his summary."""


@cache
def side(norm: str, optimizer: str, select: str | None = None) -> Any:
    from theory.rules.solve import solve_rule

    return solve_rule(norm, optimizer, "encoder", select).sides[0]


def why(norm: str, optimizer: str, select: str | None = None) -> Any:
    def steps() -> tuple[str, ...]:
        from theory.rules.solve import solve_rule

        return solve_rule(norm, optimizer, "encoder", select).why

    return steps


def size(optimizer: str, a: Expr, gain: Expr) -> Expr:
    """His magnitudes: the gradient is lambda/alpha; under LAMB the parameter's magnitude lambda comes with it."""
    return gain**2 / a if optimizer == "lamb" else gain / a


def in_family(optimizer: str, norm: str = "post") -> Check:
    """alpha and lambda put into the derived family: the update is 1 for every N."""

    def decide(s: Values) -> list[bool | None]:
        put = side(norm, optimizer).family.lhs.xreplace({alpha: s["alpha"], lam: s["lam"]})
        return [algebra.equal(put, S.One)]

    text = f"put into the derived condition that the {norm}-norm update under {optimizer} is 1 for every N"
    return check(Route.PROOF, text, decide, steps=why(norm, optimizer))


def meets_target(optimizer: str) -> Check:
    """His own condition, and that 2N branches then sum to one: g^2 under SGD, |g| under Adam, |theta||g| under LAMB."""
    power = 2 if optimizer == "sgd" else 1

    def decide(s: Values) -> list[bool | None]:
        found = size(optimizer, s["alpha"], s["lam"])
        return [algebra.equal(found, TARGETS[optimizer]), algebra.equal(TWO_N * found**power, S.One)]

    return check(Route.ARITHMETIC, "his magnitudes, summed over 2N branches", decide, is_direct=True)


def constraint(id_: str, optimizer: str, text: str, printed: Expr, locator: str, quote: str, mutant: Expr) -> Claim:
    """A printed ratio that keeps the update of one optimizer from growing with N."""

    def family(s: Values) -> list[bool | None]:
        gain = s["ratio"] * alpha if optimizer != "lamb" else (s["ratio"] * alpha) ** HALF
        return [algebra.equal(side("post", optimizer).family.lhs.xreplace({lam: gain}), S.One)]

    def summed(s: Values) -> list[bool | None]:
        return [algebra.equal(TWO_N * s["ratio"] ** (2 if optimizer == "sgd" else 1), S.One)]

    def members(s: Values) -> Mapping[str, tuple[str, tuple[Expr, Expr]]]:
        """The symmetric one, and the one with alpha = 1."""
        if optimizer == "lamb":
            raise ValueError("two members of the family lambda^2/alpha are not written here")
        root = s["ratio"] ** HALF
        return {"symmetric": (optimizer, (1 / root, root)), "alpha = 1": (optimizer, (S.One, s["ratio"]))}

    statement = Values.of(ratio=printed)
    return claim(
        id_,
        source="su",
        locator=locator,
        quote=quote,
        summary=f"under {optimizer} the number of layers cancels where {text}",
        statement=statement,
        checks=(
            check(Route.PROOF, f"the derived family under {optimizer}", family, steps=why("post", optimizer)),
            check(Route.ARITHMETIC, "the sum over 2N branches of what each changes is 1", summed, is_direct=True),
            flat_sums("post", members),
        ),
        mutants=(
            Mutant(name="N in place of 2N", statement=statement.with_(ratio=printed.subs(N, N / 2))),
            Mutant(name="another exponent", statement=statement.with_(ratio=mutant)),
        ),
    )


# ---------------------------------------------------------------- the solutions under SGD


def _member(select: str | None, *names: str) -> Any:
    fields = {
        "alpha": "residual_weight",
        "lam": "gain",
        "relative": "relative_update_order",
    }

    def values() -> dict[str, Expr]:
        found_side = side("post", "sgd", select)
        found = {name: getattr(found_side, fields[name]) for name in names if name in fields}
        if "gradient" in names:
            found["gradient"] = found_side.member.put_into(found_side.update_sum.gradient)
        return found

    return values


def _by_hand(s: Values) -> list[bool | None]:
    """Gradient lambda/alpha beside the 1 of alpha = lambda = 1, the SGD step in proportion, relative to lambda."""
    gradient = s["lam"] / s["alpha"]
    return [
        algebra.equal(gradient, s["gradient"]),
        algebra.equal(TWO_N * gradient**2, S.One),
        algebra.equal(gradient / s["lam"], s["relative"]),
    ]


def alternative(id_: str, select: str, statement: Values, locator: str, quote: str, summary: str) -> Claim:
    names = ("alpha", "lam", "gradient", "relative")
    return claim(
        id_,
        source="su",
        locator=locator,
        quote=quote,
        summary=summary,
        uses=("S1-23",),
        statement=statement,
        checks=(
            derived(f"the member {select!r} of the family", _member(select, *names), steps=why("post", "sgd", select)),
            check(Route.ARITHMETIC, "gradient and relative step by hand", _by_hand, is_direct=True),
        ),
        mutants=(
            Mutant(name="the relative update of the other one", statement=statement.with_(relative=TWO_N**-QUARTER)),
            Mutant(name="the gradient not scaled", statement=statement.with_(gradient=1)),
            Mutant(name="another gain", statement=statement.with_(lam=statement["lam"] * TWO_N**-QUARTER)),
        ),
    )


def between(s: Values) -> list[bool | None]:
    """low < middle < high as powers of 2N >= 2: the exponents are in that order."""
    names = ("low", "middle", "high")
    powers = [algebra.log_form(s[name]).coeff(log(N)) for name in names]
    pure = [algebra.equal(s[name], TWO_N**power) for name, power in zip(names, powers, strict=True)]
    return [*pure, bool(powers[0] < powers[1] < powers[2])]


RELATIVE = Values.of(low=TWO_N**-HALF, middle=TWO_N**-QUARTER, high=1)
GRADIENTS = Values.of(symmetric=TWO_N**-HALF, alpha_one=TWO_N**-HALF, lambda_one=TWO_N**-HALF)
OWN = {
    "symmetric": TABLE["sgd"],
    "alpha_one": (S.One, TWO_N**-HALF),
    "lambda_one": (TWO_N**HALF, S.One),
}


def rule_gradients() -> dict[str, Expr]:
    return {
        name: _member(name.replace("_", "-"), "gradient")()["gradient"]
        for name in ("symmetric", "alpha_one", "lambda_one")
    }


def rule_relatives() -> dict[str, Expr]:
    picked = {"low": "lambda-one", "middle": "symmetric", "high": "alpha-one"}
    return {name: _member(select, "relative")()["relative"] for name, select in picked.items()}


def flat(scheme: str, optimizer: str, activation: str = "relu", name: str = "") -> Part:
    """The true update of a network with these gains does not grow with depth."""
    statement = Growth(scheme=scheme, optimizer=optimizer, activation=activation, order=S.One)
    part = Part(
        name=name or f"the true update does not grow, {activation}",
        statement=statement,
        checks=GROWTH,
        mutants=(
            Mutant(name="grows as log L", statement=statement.with_(order=log(L))),
            Mutant(name="grows as L^(1/2)", statement=statement.with_(order=L**HALF)),
            Mutant(name="grows as L^(1/4)", statement=statement.with_(order=L**QUARTER)),
            Mutant(name="a scheme that is not flat", statement=statement.with_(scheme="post-ln")),
        ),
    )
    return kernel_too(recorded_too(part)) if activation == "relu" else part


def solution(
    id_: str, optimizer: str, locator: str, quote: str, uses: tuple[str, ...], *more: Part, **rest: Any
) -> Claim:
    """alpha and lambda for one optimizer, solved; and the true update of the network that has them."""
    a, gain = TABLE[optimizer]
    statement = Values.of(alpha=a, lam=gain)
    chosen = "the symmetric member" if optimizer != "lamb" else "the member alpha = 1"

    def from_rule() -> dict[str, Expr]:
        found = side("post", optimizer)
        return {"alpha": found.residual_weight, "lam": found.gain}

    def by_hand(s: Values) -> list[bool | None]:
        chosen = s["alpha"] if optimizer == "lamb" else s["alpha"] * s["lam"]
        return [
            algebra.equal(size(optimizer, s["alpha"], s["lam"]), TARGETS[optimizer]),
            algebra.equal(chosen, S.One),
        ]

    solved = Part(
        name="alpha and lambda",
        statement=statement,
        checks=(
            derived(f"{chosen} of the derived family", from_rule, steps=why("post", optimizer)),
            check(Route.ARITHMETIC, f"his condition and {chosen}, put in", by_hand, is_direct=True),
            flat_sums("post", lambda s: {optimizer: (optimizer, (s["alpha"], s["lam"]))}),
        ),
        mutants=(
            Mutant(name="N in place of 2N", statement=statement.with_(lam=gain.subs(N, N / 2))),
            Mutant(name="alpha and lambda of another row", statement=statement.with_(alpha=N)),
        ),
    )
    parts = (solved, *more, flat(f"su-{optimizer}", optimizer), flat(f"su-{optimizer}", optimizer, "gelu"))
    return Claim(
        id=id_,
        source="su",
        locator=locator,
        quote=quote,
        summary="under {} alpha = {}, lambda = {}".format(optimizer, *TABLE_TEXTS[optimizer]),
        uses=uses,
        parts=parts,
        expected=worst(part.expected for part in parts),
        **rest,
    )


# "According to the paper ... lambda = 1/alpha": what DeepNet sets is v^2 + w^2 = 1/alpha^2.
ATTRIBUTED = Part(
    name="that the original paper sets lambda = 1/alpha",
    statement=Values.of(product=1),
    checks=(
        check(
            Route.CITATION,
            "alpha times beta as DeepNet prints them, (2N)^(1/4) and (8N)^(-1/4)",
            lambda s: [algebra.equal(s["product"], tables.PRINTED["encoder"][0] * tables.PRINTED["encoder"][1])],
            is_direct=True,
        ),
        derived(
            "DeepNet's own condition v^2 + w^2 = 1/alpha^2, v = w, in the derived rule",
            lambda: {"product": side("post", "sgd", "deepnet").residual_weight * side("post", "sgd", "deepnet").gain},
        ),
    ),
    mutants=(Mutant(name="half of it", statement=Values.of(product=HALF)),),
    misprint=Amendment(
        statement=Values.of(product=2**-HALF),
        text="DeepNet sets v^2 + w^2 = 1/alpha^2 with v = w = beta, so beta = 1/(sqrt(2) alpha); lambda = 1/alpha is "
        "this article's own choice, the same up to a constant",
        grounds="DeepNet, Section 4 (DN-04)",
    ),
    expected=Verdict.MISPRINT,
)


# ---------------------------------------------------------------- LAMB


def published_step(optimizer: str) -> Check:
    def decide(s: Values) -> list[bool | None]:
        from theory.optimizers import optimizer as published

        found = published(optimizer)
        pairs = ((s["step"], found.update_text), (s["loss"], found.loss_change_text))
        return [_same_map(printed, read_update(text)) for printed, text in pairs]

    return check(Route.PROOF, f"the published update map of {optimizer}, reduced symbolically", decide)


def _same_map(first: Expr, second: Expr) -> bool:
    return bool((first / second).cancel() == 1)


def first_step(optimizer: str) -> Check:
    return check(
        Route.NUMERIC,
        f"one first step of {optimizer} on a matrix of six entries, exactly",
        lambda s: step_agrees(optimizer, s["step"], s["loss"]),
        is_direct=True,
    )


def map_part(optimizer: str, name: str, **rest: Any) -> Part:
    step, loss = MAPS[optimizer]
    statement = Values.of(step=step, loss=loss)
    return Part(
        name=name,
        statement=statement,
        checks=(published_step(optimizer), first_step(optimizer)),
        mutants=(
            Mutant(name="the other norm in the loss", statement=statement.with_(loss=-eta * norm_theta * norm_g)),
            Mutant(name="a factor 2", statement=statement.with_(step=2 * step)),
        ),
        **rest,
    )


def degrees_by_map(s: Values) -> list[bool | None]:
    from theory.optimizers import optimizer as published

    lamb = published("lamb")
    return [algebra.equal(S(2) ** s["gradient"], S(2) ** lamb.gradient_degree), lamb.parameter_degree == s["parameter"]]


def degrees_by_hand(s: Values) -> list[bool | None]:
    """The printed step at a gradient, then at a parameter, three times as large."""
    step, three = MAPS["lamb"][0], Integer(3)
    at = [step.subs(entry_values(GRADIENT, PARAMETER, i)) for i in range(6)]
    by_g = [step.subs(entry_values([three * x for x in GRADIENT], PARAMETER, i)) for i in range(6)]
    by_p = [step.subs(entry_values(GRADIENT, [three * x for x in PARAMETER], i)) for i in range(6)]
    return [
        *(bool((b / a - three ** s["gradient"]).equals(0)) for a, b in zip(at, by_g, strict=True)),
        *(bool((b / a - three ** s["parameter"]).equals(0)) for a, b in zip(at, by_p, strict=True)),
    ]


DEGREES = Values.of(gradient=0, parameter=1)
LAMB_PUBLISHED = Values.of(step=MAPS["lamb"][0] / n**HALF, loss=MAPS["lamb"][1] / n**HALF)

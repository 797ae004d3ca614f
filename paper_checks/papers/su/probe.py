"""Su's article, "Magnitude Analysis": W = lambda U with U as orthogonal as it can be, and dL/dlambda as a probe.

n rows and m columns; A = W W^T; g Xavier's gain: W_ij has mean 0 and variance 2 g^2/(n + m).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

from sympy import Expr, Integer, S, factor, lambdify, limit, solve, sqrt

from paper_checks.claims.claim import (
    Amendment,
    Check,
    Claim,
    Evidence,
    Finding,
    Mutant,
    Part,
    Route,
    Verdict,
    claim,
    number,
)
from paper_checks.claims.statements import Values
from paper_checks.papers.su import networks
from paper_checks.routes import algebra, one_liners
from paper_checks.routes.checks import all_of, check, outcome
from theory.symbols import init_gain as lam
from theory.symbols import scratch

_SECTION = "Magnitude Analysis"
t1, t2 = scratch("tr_A", positive=True), scratch("tr_A2", positive=True)
"""Traces of A and of A^2."""
n, m = (scratch(name, integer=True, positive=True) for name in ("n", "m"))
g = scratch("g", positive=True)


# ---------------------------------------------------------------- S1-06: the scalar


def _minimiser(s: Values) -> list[bool | None]:
    """||A/kappa^2 - I||_F^2 = t2 x^2 - 2 t1 x + n at x = 1/kappa^2: a parabola that opens upward."""
    x = scratch("x", positive=True)
    square = t2 * x**2 - 2 * t1 * x + n
    (least,) = solve(square.diff(x), x)
    return [bool(square.diff(x, 2).is_positive), algebra.equal(s["square"], 1 / least)]


@cache
def _spectra() -> tuple[tuple[float, ...], ...]:
    """Eigenvalues of W W^T: Gaussian matrices of several shapes, one with a geometric spectrum, one of rank one."""
    import numpy as np

    generator, found = networks.rng(6), []
    for shape in ((1, 1), (1, 7), (2, 3), (7, 2), (12, 12), (40, 10), (10, 40)):
        matrix = generator.standard_normal(shape)
        found.append(np.linalg.svd(matrix @ matrix.T, compute_uv=False))
    wide = generator.standard_normal((8, 8)) * 2.0 ** np.arange(8)[:, None]
    found.append(np.linalg.svd(wide @ wide.T, compute_uv=False))
    found.append(np.array([1.0] + 7 * [0.0]))
    return tuple(tuple(map(float, values)) for values in found)


def _is_least(s: Values) -> list[bool | None]:
    """Whether the distance is less at the printed kappa than at a hundredth more or less, and than far away."""
    square = lambdify((t1, t2, n), s["square"], modules="math")
    answers: list[bool | None] = []
    for values in _spectra():
        kappa = math.sqrt(square(math.fsum(values), math.fsum(a * a for a in values), len(values)))
        distances = [
            math.fsum((a / (kappa * c) ** 2 - 1) ** 2 for a in values) for c in (1.0, 0.99, 1.01, 0.5, 2.0, 1e-3, 1e3)
        ]
        answers.append(all(distances[0] < other for other in distances[1:]))
    return answers


_SQUARE = Values.of(square=t2 / t1)
_S1_06 = claim(
    "S1-06",
    source="su",
    locator=f"{_SECTION}, first equation",
    quote=r"$$ \lambda = \mathop{\text{argmin}}_{\kappa > 0} \Vert \boldsymbol{W}\boldsymbol{W}^{\top}/\kappa^2 - "
    r"\boldsymbol{I}\Vert,\quad $$",
    summary="by the Frobenius norm the least is at lambda^2 = tr(A^2)/tr(A), A = W W^T, and it is the only one",
    statement=_SQUARE,
    checks=(
        check(
            Route.PROOF,
            "a parabola in 1/kappa^2 (by the spectral norm it would be half of the largest and least eigenvalue's sum)",
            _minimiser,
            is_direct=True,
            steps=lambda: (
                "||A/kappa^2 - I||_F^2 = tr(A^2) x^2 - 2 tr(A) x + n, x = 1/kappa^2",
                "least at x = tr(A)/tr(A^2), where it is n - tr(A)^2/tr(A^2)",
            ),
        ),
        check(
            Route.NUMERIC,
            "the distance itself around the printed kappa, matrices of nine shapes and spectra",
            _is_least,
            is_direct=True,
        ),
    ),
    mutants=(
        Mutant(name="the mean eigenvalue", statement=Values.of(square=t1 / n)),
        Mutant(name="upside down", statement=Values.of(square=t1 / t2)),
        Mutant(name="the root", statement=Values.of(square=sqrt(t2 / t1))),
    ),
)


# ---------------------------------------------------------------- Xavier matrices: traces and samples

_SHAPES = {"d x d": (1, 1), "d x 4d": (1, 4), "4d x d": (4, 1)}
_GAINS = {"d x d": 1.0, "d x 4d": 0.5, "4d x d": 3.0}
_WIDTH, _NUM_SEEDS = 32, 16


def _expected_traces() -> tuple[Expr, Expr]:
    """E tr A and E tr A^2 of Gaussian entries of variance s^2, the second by Wick's pairings of four entries.

    tr A^2 = sum_ijkl W_ij W_kj W_kl W_il. An expectation of two entries is s^2 if both their indices agree, so a
    pairing leaves as many free sums as it leaves indices apart.
    """
    entries = (("i", "j"), ("k", "j"), ("k", "l"), ("i", "l"))
    total = S.Zero
    for other in (1, 2, 3):
        first, second = (entries[0], entries[other]), tuple(e for x, e in enumerate(entries) if x not in (0, other))
        equal = [(a, b) for pair in (first, second) for a, b in zip(*pair, strict=True)]
        rows = {"i", "k"} if not any({"i", "k"} == set(pair) for pair in equal) else {"i"}
        columns = {"j", "l"} if not any({"j", "l"} == set(pair) for pair in equal) else {"j"}
        total += n ** len(rows) * m ** len(columns)
    variance = 2 * g**2 / (n + m)
    return n * m * variance, factor(total) * variance**2


@cache
def _samples() -> Mapping[str, tuple[tuple[float, float], ...]]:
    """By shape: (lambda^2/g^2, squared relative distance) of torch's Xavier matrices, free of 1/d; normal and uniform.

    Each sample is twice the value at width 2d less that at d, so that what falls as 1/d drops out.
    """
    import torch

    generator, found = torch.Generator().manual_seed(7), {}
    for name, (rows, columns) in _SHAPES.items():
        samples = []
        for init in (torch.nn.init.xavier_normal_, torch.nn.init.xavier_uniform_):
            for _ in range(_NUM_SEEDS):
                pairs = []
                for width in (_WIDTH, 2 * _WIDTH):
                    matrix = torch.empty(rows * width, columns * width, dtype=torch.float64)
                    init(matrix, gain=_GAINS[name], generator=generator)
                    a = matrix @ matrix.T
                    one, two = float(a.trace()), float((a**2).sum())
                    pairs.append((two / one / _GAINS[name] ** 2, 1 - one**2 / two / len(a)))
                samples.append(tuple(2 * late - early for early, late in zip(*pairs, strict=True)))
        found[name] = tuple(samples)
    return found


def _limits(expr: Expr) -> dict[str, Expr]:
    """Of an expression in n and m, along each shape, as d goes to infinity."""
    x = scratch("d", positive=True)
    return {
        name: limit(expr.subs({n: rows * x, m: columns * x}), x, S.Infinity)
        for name, (rows, columns) in _SHAPES.items()
    }


# ---------------------------------------------------------------- S1-07: lambda and Xavier's gain


def _exact_gain(relative_to: str | None) -> Check:
    """lambda^2 in the limit of width against the printed one; ``relative_to``: both over those of that shape."""

    def run(statement: Values) -> Evidence:
        one, two = _expected_traces()
        found, printed = _limits(two / one), _limits(statement["lam"] ** 2)
        if relative_to is not None:
            found, printed = (
                {name: value / values[relative_to] for name, value in values.items()} for values in (found, printed)
            )
        answers = [algebra.equal(printed[name], found[name]) for name in _SHAPES]
        holds = all_of(answers)
        return Evidence(
            route=Route.PROOF,
            num_effective=len(answers),
            verdict=outcome(holds),
            detail="E tr A^2/E tr A by Wick's pairings is 2 g^2 (1 + 1/(n + m)) for every n and m",
            numbers={name: str(value) for name, value in found.items()},
            counterexample=None
            if holds or relative_to
            else {
                "printed": f"lambda = {statement['lam']}",
                "found": "lambda = sqrt(2) g for every shape, normal or uniform",
                "lambda_squared_over_gain_squared": {
                    name: networks.shown(sum(pair[0] for pair in pairs) / len(pairs))
                    for name, pairs in _samples().items()
                },
                "command": one_liners.XAVIER_GAIN,
            },
        )

    return Check(route=Route.PROOF, run=run, is_direct=True)


def _sampled_gain(relative_to: str | None) -> Check:
    """The same by torch's own initialisations."""

    def run(statement: Values) -> Evidence:
        one = scratch("c", positive=True)
        printed = {
            name: float(value.subs({g: _GAINS[name], one: 1})) / _GAINS[name] ** 2
            for name, value in _limits(statement["lam"] ** 2).items()
        }
        samples = {name: [pair[0] for pair in pairs] for name, pairs in _samples().items()}
        if relative_to is not None:
            base = sum(samples[relative_to]) / len(samples[relative_to])
            samples = {name: [x / base for x in values] for name, values in samples.items()}
            printed = {name: value / printed[relative_to] for name, value in printed.items()}
        answers = [networks.contains(samples[name], printed[name]) for name in _SHAPES]
        return Evidence(
            route=Route.MEASURED,
            num_effective=len(_SHAPES) * 2 * _NUM_SEEDS,
            verdict=outcome(all(answers)),
            detail="torch.nn.init.xavier_normal_ and xavier_uniform_, gains 1, 1/2 and 3, widths 32 and 64 taken to "
            "the limit" + (", over the square one's" if relative_to else ""),
            numbers={name: networks.shown(sum(values) / len(values)) for name, values in samples.items()},
        )

    return Check(route=Route.MEASURED, run=run, is_direct=True)


_GAIN, _ROOT_TWO = Values.of(lam=g), Values.of(lam=sqrt(2) * g)
_MAGNITUDE = Values.of(lam=scratch("c", positive=True) * g)
_S1_07 = Claim(
    id="S1-07",
    source="su",
    locator=f"{_SECTION}, after the first equation",
    quote=r"If $\boldsymbol{W}$ uses Xavier initialization, then $\lambda$ is equivalent to the gain parameter in it, "
    r"meaning that it multiplies an additional $\lambda$ on top of Xavier initialization.",
    summary="of a Xavier matrix lambda is the gain",
    uses=("S1-06",),
    parts=(
        Part(
            name="as an equation",
            statement=_GAIN,
            checks=(_exact_gain(None), _sampled_gain(None)),
            mutants=(
                Mutant(name="twice", statement=Values.of(lam=2 * g)),
                Mutant(name="by the columns", statement=Values.of(lam=g * sqrt(2 * m / (n + m)))),
            ),
            instead=Amendment(
                statement=_ROOT_TWO,
                text="lambda = sqrt(2) g at large width, for every shape: W W^T has eigenvalues between 0 and 4 g^2 "
                "(square), and tr(A^2)/tr(A) weighs them by their size",
            ),
            condition="(by the Frobenius norm, as in S1-06; by the spectral one a square matrix has sqrt(2) g too) the "
            "gain counted as sqrt(2) at Xavier's own, or lambda read off the mean eigenvalue, "
            "lambda^2 = tr(A)/n, of a square matrix; an orthogonal initialisation of gain g has lambda = g exactly",
            expected=Verdict.REFUTED,
        ),
        Part(
            name="as a magnitude: one constant for every shape",
            statement=_MAGNITUDE,
            checks=(_exact_gain("d x d"), _sampled_gain("d x d")),
            mutants=(
                Mutant(name="by the rows", statement=Values.of(lam=g * sqrt(n / (n + m)))),
                Mutant(name="by the columns", statement=Values.of(lam=g * sqrt(m / (n + m)))),
            ),
        ),
    ),
    expected=Verdict.REFUTED,
    finding=Finding(
        "Su: the lambda of a Xavier matrix is sqrt(2) times its gain, for every shape, not the gain", rank=180
    ),
)


# ---------------------------------------------------------------- S1-08: how close to orthogonal


def _exact_distance(statement: Values) -> Evidence:
    one, two = _expected_traces()
    found = {name: sqrt(value) for name, value in _limits(1 - one**2 / (n * two)).items()}
    printed = _limits(statement["distance"])
    answers = [algebra.equal(printed[name] + 1, found[name] + 1) for name in _SHAPES]
    holds = all_of(answers)
    values = {name: networks.shown(float(value)) for name, value in found.items()}
    return Evidence(
        route=Route.PROOF,
        num_effective=len(answers),
        verdict=outcome(holds),
        detail="||W W^T/lambda^2 - I||_F/||I||_F = sqrt(1 - (tr A)^2/(n tr A^2)) at the expected traces, as d grows",
        numbers=values,
        steps=("(E tr A)^2/(n E tr A^2) = m/(n + m + 1)",),
        counterexample=None
        if holds
        else {
            "printed": "W W^T/lambda^2 is close to I",
            "found": f"its relative distance is {values['d x d']} (d x d), {values['d x 4d']} (d x 4d), "
            f"{values['4d x d']} (4d x d) at every width; the zero matrix is at 1",
            "distances": values,
            "command": one_liners.XAVIER_DISTANCE,
        },
    )


def _sampled_distance(statement: Values) -> Evidence:
    samples = {name: [pair[1] for pair in pairs] for name, pairs in _samples().items()}
    printed = {name: float(value) ** 2 for name, value in _limits(statement["distance"]).items()}
    answers = [networks.contains(samples[name], printed[name]) for name in _SHAPES]
    return Evidence(
        route=Route.MEASURED,
        num_effective=len(_SHAPES) * 2 * _NUM_SEEDS,
        verdict=outcome(all(answers)),
        detail="its square, torch.nn.init.xavier_normal_ and xavier_uniform_, widths 32 and 64 taken to the limit",
        numbers={name: networks.shown(sum(values) / len(values)) for name, values in samples.items()},
    )


_S1_08 = Claim(
    id="S1-08",
    source="su",
    locator=f"{_SECTION}, after the first equation",
    quote="This is because the result of Xavier initialization is already close to an orthogonal matrix",
    summary="a Xavier matrix is close to an orthogonal one, in the distance that defines lambda",
    uses=("S1-06", "S1-07"),
    parts=(
        Part(
            name="as printed",
            statement=Values.of(distance=0),
            checks=(
                Check(route=Route.PROOF, run=_exact_distance, is_direct=True),
                Check(route=Route.MEASURED, run=_sampled_distance, is_direct=True),
            ),
            mutants=(
                Mutant(name="no closer than zero", statement=Values.of(distance=1)),
                Mutant(name="rows for columns", statement=Values.of(distance=sqrt(m / (n + m)))),
                Mutant(name="its square", statement=Values.of(distance=n / (n + m))),
            ),
            instead=Amendment(
                statement=Values.of(distance=sqrt(n / (n + m))),
                text="the relative Frobenius distance of W W^T/lambda^2 from I is sqrt(n/(n + m)), whatever the width "
                "(at lambda = g it would be 1 for a square matrix, as for the zero matrix)",
            ),
            condition="n/m -> 0, far fewer rows than columns (for W^T W far fewer columns); or each entry by itself: "
            "off the diagonal W W^T is O(g^2/sqrt(n + m)), but in a square matrix these many entries weigh as much "
            "together as the diagonal. An orthogonal initialisation is at distance 0",
            expected=Verdict.REFUTED,
        ),
    ),
    expected=Verdict.REFUTED,
    finding=Finding(
        "Su: a Xavier matrix is not close to orthogonal: a square one is at relative distance {square:.2g} "
        "at every width, where the zero matrix is at 1",
        rank=190,
        numbers={"square": number("as printed", "distances", "d x d")},
    ),
)


# ---------------------------------------------------------------- S1-09: the derivative in lambda

inner, norm_gradient = scratch("inner_G_U", real=True), scratch("norm_G", positive=True)
"""<dL/dW, U> and ||dL/dW||."""


def _chain_rule(s: Values) -> list[bool | None]:
    """A loss of four entries with free coefficients up to degree three, at W = lambda U."""
    w = [scratch(f"w_{i}", real=True) for i in range(4)]
    u = [scratch(f"u_{i}", real=True) for i in range(4)]
    terms = [S.One, *w, *(a * b for a in w for b in w), *(a * b * c for a in w for b in w for c in w)]
    loss: Expr = sum((scratch(f"c_{i}", real=True) * term for i, term in enumerate(terms)), S.Zero)
    at = {a: lam * b for a, b in zip(w, u, strict=True)}
    gradient = [loss.diff(a).xreplace(at) for a in w]
    along = sum((a * b for a, b in zip(gradient, u, strict=True)), S.Zero)
    size = sqrt(sum((a**2 for a in gradient), S.Zero))
    printed = s["derivative"].xreplace({inner: along, norm_gradient: size})
    left = loss.xreplace(at).diff(lam)
    numbers = {letter: Integer(i % 7 + 1) for i, letter in enumerate(sorted(left.free_symbols, key=str))}
    return [bool((left - printed).expand() == 0) or bool((left - printed).xreplace(numbers).equals(0))]


@cache
def _derivatives() -> tuple[tuple[float, float, float, float], ...]:
    """(dL/dlambda, <dL/dW, U>, ||dL/dW||, lambda) for every matrix of a real Transformer, by autograd."""
    import torch

    network, found = networks.Transformer(9), []
    gradients = network.gradients()
    for place, (matrix, gradient) in enumerate(zip(network.parameters, gradients, strict=True)):
        a = matrix.detach() @ matrix.detach().T
        size = float((a**2).sum() / a.trace()) ** 0.5
        u = matrix.detach() / size
        scalar = torch.tensor(size, dtype=u.dtype, requires_grad=True)
        layer, role = divmod(place, len(networks.ROLES))
        matrices = [dict(one) for one in network.matrices]
        matrices[layer][networks.ROLES[role]] = scalar * u
        (by_lambda,) = torch.autograd.grad(network.loss(matrices), scalar)
        found.append((float(by_lambda), float((gradient * u).sum()), float(gradient.norm()), size))
    return tuple(found)


def _autograd(s: Values) -> list[bool | None]:
    printed = lambdify((inner, norm_gradient, lam), s["derivative"], modules="math")
    return [
        abs(left - printed(along, norm, size)) <= networks.ROUNDING * norm for left, along, norm, size in _derivatives()
    ]


_S1_09 = claim(
    "S1-09",
    source="su",
    locator=f"{_SECTION}, second equation",
    quote=r"$$ \frac{\partial \mathcal{L}(\lambda \boldsymbol{U})}{\partial \lambda} = \left\langle\frac{\partial "
    r"\mathcal{L}(\lambda \boldsymbol{U})}{\partial (\lambda \boldsymbol{U})}, \boldsymbol{U}\right\rangle = "
    r"\left\langle\frac{\partial \mathcal{L}(\boldsymbol{W})}{\partial \boldsymbol{W}}, "
    r"\boldsymbol{U}\right\rangle $$",
    summary="dL(lambda U)/dlambda = <dL/dW, U>",
    statement=Values.of(derivative=inner),
    checks=(
        check(Route.PROOF, "a loss with free Taylor coefficients up to degree 3", _chain_rule, is_direct=True),
        check(Route.MEASURED, "autograd: every matrix of a real Transformer", _autograd, is_direct=True),
    ),
    mutants=(
        Mutant(name="<dL/dW, W>", statement=Values.of(derivative=lam * inner)),
        Mutant(name="the norm", statement=Values.of(derivative=norm_gradient)),
    ),
)

CLAIMS: tuple[Claim, ...] = (_S1_06, _S1_07, _S1_08, _S1_09)

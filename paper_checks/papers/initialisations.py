"""Rules of initialisation: where DeepNorm's exponent is from, GPT-NeoX, CaiT's LayerScale and ESM C's branches.

GPT-NeoX's rule speaks of activations. Under Adam its first update grows as L, faster than Pre-LN's: output matrices
are small, and what a step adds to them is not.
"""

from __future__ import annotations

from sympy import Expr, Integer, Rational, S, Symbol, limit, log, oo, solve, sqrt

from depthlaw.paper_checks.claims.broken import Mutant, changed
from depthlaw.paper_checks.claims.claim import Amendment, Claim, Finding, Kind, Part, Route, Verdict, claim
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes import algebra
from depthlaw.paper_checks.routes.checks import Answers, check, python_command
from depthlaw.paper_checks.routes.signal_propagation.streams import STREAM, StreamOrder
from depthlaw.theory.symbols import L, N

# ---------------------------------------------------------------- EM-01: DeepNorm's exponent

_FOUR = Values.of(
    "a branch of {matrices} matrices with gain beta, alpha = 1/beta = L^(1/4): SGD's update does not grow", matrices=4
)


def _update(matrices: int, length: int) -> Expr:
    """A matrix's gradient has the others' gains; a post-norm divides its square by alpha^2 + beta^(2 matrices)."""
    alpha, beta = length ** Rational(1, 4), length ** -Rational(1, 4)
    return length * matrices * beta ** (2 * (matrices - 1)) / (alpha**2 + beta ** (2 * matrices))


@check(Route.PROOF, "the power p of alpha = 1/beta = L^p at which L beta^(2(m - 1))/alpha^2 is of order 1")
def _by_powers(s: Values) -> Answers:
    p, m = Symbol("p", positive=True), s["matrices"]
    (power,) = solve(1 - 2 * p * (m - 1) - 2 * p, p)
    holds = power == Rational(1, 4)
    code = "print(*[n * m * n**(-(m - 1)/2) / (n**0.5 + n**(-m/2)) for m in (2, 4) for n in (100, 10000)])"
    example = {
        "printed": s.text,
        "found": f"{m} matrices ask for L^({power}); L^(1/4) is for two, as value and output, or the two of an FFN",
        "command": python_command(code),
    }
    return Answers(holds=[holds], numbers={"power": str(power)}, counterexample=None if holds else example)


@check(Route.NUMERIC, "the update at 10^2, 10^4 and 10^6 sublayers")
def _by_numbers(s: Values) -> list[bool | None]:
    logs = [float(log(_update(int(s["matrices"]), 10**n)).evalf()) for n in (2, 4, 6)]
    return [algebra.settles(logs)]


_EM_01 = claim(
    "EM-01",
    kind=Kind.REMARK,
    source="attentionexponent",
    name="the first update, at initialisation",
    locator="abstract, at second hand",
    quote="DeepNorm's exponent 1/4 comes from attention's four matrices",
    summary="DeepNorm's exponent 1/4 comes from the four matrices of an attention",
    statement=_FOUR,
    checks=(_by_powers, _by_numbers),
    mutants=changed(_FOUR, matrices=[1, 3]),
    expected=Verdict.REFUTED,
    instead=Amendment(
        statement=_FOUR.with_(matrices=2),
        text="it comes from two matrices with a gain: half of each side's square root, in FFNs alone as well",
    ),
    condition="another rule than alpha = 1/beta",
    finding=Finding(
        "DeepNorm's exponent 1/4 is that of branches of two matrices, FFNs alone included; four would give 1/8",
        rank=92,
    ),
)

# ---------------------------------------------------------------- GN-01: GPT-NeoX

_WANG = 4 / L  # 2/(N sqrt(d)), N = L/2, in units of 1/sqrt(d)
_ACTIVATIONS = StreamOrder(scheme="pre-ln", gains=(sqrt(Rational(2, 5)), _WANG), low=S.One, high=S.One)

_GN_01 = claim(
    "GN-01",
    kind=Kind.RESULT,
    source="neox",
    name="the stream, at initialisation",
    locator="Section 2, initialisation; init_functions.py",
    quote="output matrices of std 2/(N sqrt(d)), the others sqrt(2/(5 d)), prevent activations from growing with depth",
    summary="output matrices of std 2/(N sqrt(d)) keep the stream's variance from growing with depth",
    statement=_ACTIVATIONS,
    checks=STREAM,
    mutants=changed(_ACTIVATIONS, low=[log(L), sqrt(L)], high=1 / L),
)

# ---------------------------------------------------------------- CT-01: CaiT's LayerScale

_CODE = {24: "1e-5", 36: "1e-6", 48: "1e-6"}
_LAYER_SCALE = Values.of(
    "LayerScale starts at 10^{shallow} up to 18 layers, 10^{middle} up to 24, 10^{deep} beyond",
    shallow=-1,
    middle=-5,
    deep=-6,
)
_NEAR = Values.of("of that size the branches together add less than {share} of the input's variance", share=0.25)


def _started(s: Values, layers: int) -> Expr:
    return Integer(10) ** s["shallow" if layers <= 18 else "middle" if layers <= 24 else "deep"]


@check(Route.CITATION, "cait_models.py: init_scale of the models of 24, 36 and 48 layers")
def _as_in_code(s: Values) -> Answers:
    holds = [float(_started(s, layers)) == float(value) for layers, value in _CODE.items()]
    return Answers(holds=holds, numbers={str(layers): value for layers, value in _CODE.items()})


@check(Route.NUMERIC, "1 + N lambda^2 of Pre-LN's stream, two ReLU branches of half a variance each to a layer, over 1")
def _near_identity(s: Values) -> Answers:
    added = {n: float(n * _started(_LAYER_SCALE, n) ** 2) for n in (12, 18, 24, 36, 48)}
    return Answers(
        holds=[share < s["share"] for share in added.values()], numbers={str(n): v for n, v in added.items()}
    )


_CT_01 = Claim(
    id="CT-01",
    kind=Kind.RESULT,
    source="cait",
    locator="Section 2, LayerScale; cait_models.py",
    quote="LayerScale is initialised to 0.1 until depth 18, 1e-5 for depth 24 and 1e-6 for deeper networks, so that "
    "each block begins close to the identity",
    summary="LayerScale starts at 0.1, 1e-5 or 1e-6 by depth, and the network near the identity",
    parts=(
        Part(
            name="what the code has",
            statement=_LAYER_SCALE,
            checks=(_as_in_code,),
            mutants=changed(_LAYER_SCALE, middle=-4, deep=-5),
        ),
        Part(
            name="near the identity, at initialisation",
            statement=_NEAR,
            checks=(_near_identity,),
            mutants=changed(_NEAR, share=[0.1, 1e-12]),
        ),
    ),
)

# ---------------------------------------------------------------- ES-01: ESM C's residual branches

_BRANCH = Values.of(branch=sqrt(N))


@check(Route.CITATION, "transformer_stack.py and blocks.py: r / sqrt(n_layers / 36), up to the constant 6")
def _in_code(s: Values) -> Answers:
    ratio = s["branch"] / sqrt(36 / N)
    holds = bool(not ratio.has(N))
    return Answers(holds=[holds], numbers={"over the code's": str(ratio)})


@check(Route.PROOF, "E x_L^2 = 1 + N branch^2 of N layers, as N grows")
def _bounded(s: Values) -> list[bool | None]:
    return [bool(limit(1 + N * s["branch"] ** 2, N, oo).is_finite)]


_ES_01 = claim(
    "ES-01",
    kind=Kind.REMARK,
    source="esmc",
    name="the branch weight, and the stream at initialisation",
    locator="the text on the architecture, at second hand; transformer_stack.py",
    quote="residual branches are scaled by sqrt(n_layers)",
    summary="ESM C multiplies its residual branches by sqrt(n_layers)",
    statement=_BRANCH,
    checks=(_in_code, _bounded),
    mutants=(
        Mutant(name="1/N", statement=_BRANCH.with_(branch=1 / N)),
        Mutant(name="1", statement=_BRANCH.with_(branch=1)),
    ),
    expected=Verdict.MISPRINT,
    misprint=Amendment(
        statement=_BRANCH.with_(branch=6 / sqrt(N)),
        text="they are divided by sqrt(n_layers/36)",
        grounds="the released code: r / math.sqrt(n_layers / 36)",
    ),
    finding=Finding(
        "ESM C's code divides each branch by sqrt(n_layers/36); times sqrt(n_layers), as its text is quoted, the "
        "stream's variance would grow as the square of depth",
        rank=93,
    ),
)

CLAIMS = (_EM_01, _GN_01, _CT_01, _ES_01)

"""Magneto: what a sublayer is; (1)-(8), and the pseudo-code and layout of Figure 2.

The file that the quotes come from is an extraction that lost roots, bars and brackets; quotes keep its damage. What the
authors' code does, torchscale 0.3.0, is recorded as data, which ``test_torchscale.py`` holds against the package
itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from sympy import Expr, Function, IndexedBase, S, Sum, expand, lambdify

from depthlaw.paper_checks.claims.broken import broken, changed
from depthlaw.paper_checks.claims.claim import Amendment, Check, Claim, Finding, Kind, Mutant, Part, Route, Verdict
from depthlaw.paper_checks.claims.statements import Sublayer, Values
from depthlaw.paper_checks.routes import algebra
from depthlaw.paper_checks.routes.checks import check
from depthlaw.theory.symbols import L, l, scratch
from depthlaw.theory.symbols import init_gain as gamma

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray

# ---------------------------------------------------------------- the authors' code, and equations evaluated

VERSION = "0.3.0"
STEPS: Mapping[str, tuple[str, ...]] = {
    "attention": ("LN", "QKV", "attention", "LN", "WO"),
    "cross": ("LN", "QKV", "attention", "WO"),
    "ffn": ("LN", "W1", "phi", "LN", "W2"),
}
"""torchscale with subln: its branches, step by step from the input on. Of the cross-attention's QKV only Q reads the
normed input; K and V read the encoder's output, which has the encoder's last norm behind it."""
SCALED = frozenset({"v", "out", "fc1", "fc2"})
"""torchscale with subln: the roles that its initialisation multiplies by gamma, biases included."""
UNSCALED = frozenset({"q", "k", "cross_q", "cross_k", "cross_v", "cross_out"})
"""The roles that it leaves as they are. Untouched means torch's default for a linear layer, not Xavier."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A sublayer of a real network: its matrices by role, the stream before and after it."""

    num_heads: int
    activation: str
    weights: Mapping[str, Array]
    memory_SD: Array | None
    before_TD: Array
    after_TD: Array


_ARCHITECTURES = ((1, "relu"), (3, "relu"), (3, "gelu"))
"""Heads and activation, by seed."""


@cache
def network(
    kinds: tuple[str, ...], placement: str, *, seed: int = 0, input_scale: float = 1.0, v_scale: float = 1.0
) -> tuple[tuple[Case, ...], Array]:
    """The sublayers of a real network whose norms have no eps, and its last output.

    A cross-attention stands in a decoder and reads an encoder of two sublayers. input_scale: times the stream that
    enters the sublayers. v_scale: times each W_v.
    """
    import torch

    from depthlaw.sims.model import ModelConfig, SublayerConfig, Transformer, alternating

    is_cross, (num_heads, activation) = "cross" in kinds, _ARCHITECTURES[seed]
    sublayers = tuple(SublayerConfig(kind=kind) for kind in kinds)
    config = ModelConfig(
        encoder=alternating(2) if is_cross else sublayers,
        decoder=sublayers if is_cross else (),
        placement=placement,
        d_model=12,
        num_heads=num_heads,
        activation=activation,
    )
    model = Transformer(config, seed)
    generator = torch.Generator().manual_seed(100 + seed)
    x_BTD, y_BTD = (torch.randn((1, 5, 12), generator=generator, dtype=torch.float64) for _ in range(2))
    side = "decoder" if is_cross else "encoder"
    prefixes = [f"_weights.{side}_{i}_{'cross_' if is_cross else ''}" for i in range(len(kinds))]
    with torch.no_grad():
        for name, matrix in model.named_parameters():
            if name in {f"{prefix}v" for prefix in prefixes}:
                matrix.mul_(v_scale)
        memory_SD = model.encode(x_BTD)[-1][0].numpy() if is_cross else None
        inputs = (x_BTD, input_scale * y_BTD) if is_cross else (input_scale * x_BTD,)
        streams = [stream[0].numpy() for stream in model.streams(*inputs)]
    matrices = {name: matrix.detach().numpy() for name, matrix in model.named_parameters()}
    cases = tuple(
        Case(
            num_heads=num_heads,
            activation=activation,
            weights={n.removeprefix(prefix): matrix for n, matrix in matrices.items() if n.startswith(prefix)},
            memory_SD=memory_SD,
            before_TD=before,
            after_TD=after,
        )
        for prefix, before, after in zip(prefixes, streams, streams[1:], strict=False)
    )
    return cases, streams[-1]


def cases(kind: str, placement: str) -> list[Case]:
    """A sublayer of that kind in a network of that norm placement, of each architecture."""
    return [network((kind,), placement, seed=seed)[0][0] for seed in range(len(_ARCHITECTURES))]


def agrees(equation: Sublayer, case: Case) -> bool:
    """Whether the equation gives what the network gives: x_l where it prints the residual, else x_l - x_{l-1}."""
    return close(evaluate(equation, case), case.after_TD - (0 if equation.has_residual else case.before_TD))


def close(first: Array, second: Array) -> bool:
    """To nine digits: both were computed in float64, in a different order."""
    return bool(abs(first - second).max() <= 1e-9 * abs(second).max())


def evaluate(equation: Sublayer, case: Case) -> Array:
    """The printed steps one after the other, in plain numpy."""
    import numpy as np
    from scipy.special import ndtr

    state: Any = case.before_TD
    for step in equation.steps:
        if step == "LN":
            state = tuple(map(layer_norm, state)) if isinstance(state, tuple) else layer_norm(state)
        elif step == "phi":
            state = np.maximum(state, 0) if case.activation == "relu" else state * ndtr(state)
        elif step == "QKV":
            source = state if case.memory_SD is None else case.memory_SD
            inputs = {"q": state, "k": source, "v": source}
            state = tuple(x @ case.weights[role].T for role, x in inputs.items())
        elif step == "attention":
            heads = []
            for q_TK, k_SK, v_SK in zip(*(np.split(x, case.num_heads, axis=-1) for x in state), strict=True):
                shares = np.exp(q_TK @ k_SK.T / q_TK.shape[-1] ** 0.5)
                heads.append(shares / shares.sum(-1, keepdims=True) @ v_SK)
            state = np.concatenate(heads, axis=-1)
        else:
            state = state @ case.weights[{"W1": "fc1", "W2": "fc2", "WO": "out"}[step]].T
    return state + case.before_TD if equation.has_residual else state


def layer_norm(x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / (centred**2).mean(-1, keepdims=True) ** 0.5


_RECORDED = f"torchscale {VERSION}, recorded; a test holds the record against the package"

# ---------------------------------------------------------------- S2-01: (1)-(5)


def _in_real_stack(placement: str) -> tuple[Check, Check]:
    scheme_name = f"{placement}-ln"

    @check(
        Route.MEASURED,
        f"the equation evaluated in numpy, against a sublayer of a real Transformer of placement {placement}: its "
        "output where the residual is printed, else its branch; 1 and 3 heads, relu and gelu, to nine digits",
    )
    def by_network(s: Sublayer) -> list[bool | None]:
        return [agrees(s, case) for case in cases(s.kind, placement)]

    @check(Route.PROOF, f"norms first, before the last matrix, last: as in the stack of {scheme_name}, and none else")
    def by_theory(s: Sublayer) -> list[bool | None]:
        from depthlaw.theory.schemes import scheme

        norms = scheme(scheme_name).stack.placement
        places = {"pre": s.steps[0] == "LN", "inner": s.steps[-2] == "LN", "branch": s.steps[-1] == "LN"}
        answers = [printed == getattr(norms, name) for name, printed in places.items()]
        return [*answers, s.steps.count("LN") == sum(places.values())]

    return by_network, by_theory


_MSA = Sublayer(kind="attention", steps=STEPS["attention"], has_residual=True)
_FFN = Sublayer(kind="ffn", steps=STEPS["ffn"], has_residual=False)

_S2_01 = Claim(
    id="S2-01",
    kind=Kind.RESULT,
    locator="Section 3.1, (1)-(5)",
    quote="MSA(x) = x+WOLN(Attention(Q, K, V )) (2)",
    summary="Sub-LN: a LayerNorm before the input projection and one before the output projection, in MSA and FFN",
    parts=(
        Part(
            name="MSA, (1) and (2)",
            statement=_MSA,
            checks=_in_real_stack("sub"),
            mutants=(
                Mutant(name="no inner norm", statement=replace(_MSA, steps=("LN", "QKV", "attention", "WO"))),
                Mutant(name="behind WO", statement=replace(_MSA, steps=("LN", "QKV", "attention", "WO", "LN"))),
            ),
        ),
        Part(
            name="FFN, (3)-(5); (5) is the branch alone, where (2) adds the input",
            statement=_FFN,
            checks=_in_real_stack("sub"),
            mutants=(
                Mutant(name="no inner norm", statement=replace(_FFN, steps=("LN", "W1", "phi", "W2"))),
                Mutant(name="before phi", statement=replace(_FFN, steps=("LN", "W1", "LN", "phi", "W2"))),
            ),
        ),
    ),
)

# ---------------------------------------------------------------- S2-02: the pseudo-code

PSEUDO_CODE = (
    "def subln(x):\nreturn x + fout(LN(fin(LN(x))))\ndef subln_init(w):\nif wis ['ffn','v_proj','out_proj']:\n"
    "nn.init.xavier_normal_(w, gain=γ)\nelif wis ['q_proj','k_proj']:\nnn.init.xavier_normal_(w, gain=1)"
)
"""Figure 2, in an extraction that lost indents and some blanks."""
_BINDINGS = {
    "attention": {"fin": ("QKV", "attention"), "fout": ("WO",)},
    "ffn": {"fin": ("W1", "phi"), "fout": ("W2",)},
}


def _bound(s: Sublayer, kind: str) -> Sublayer:
    """subln(x) with fin and fout of a kind of sublayer put in."""
    steps = tuple(inner for step in s.steps for inner in _BINDINGS[kind].get(step, (step,)))
    return Sublayer(kind=kind, steps=steps, has_residual=True)


_GAINS = Values.of(ffn=gamma, v_proj=gamma, out_proj=gamma, q_proj=1, k_proj=1)
_ROLES = {"ffn": ("fc1", "fc2"), "v_proj": ("v",), "out_proj": ("out",), "q_proj": ("q",), "k_proj": ("k",)}


def _role_gains(s: Values) -> dict[str, Expr]:
    return {role: s[name] for name, roles in _ROLES.items() for role in roles}


@check(
    Route.PROPERTY,
    "the branch without norms, equal tokens, one matrix times 3: gamma where that is of degree 1, 1 where of 0 "
    "('w is [...]' read as 'w in [...]', else the code would set nothing)",
)
def _by_degree(s: Values) -> list[bool | None]:
    return [algebra.equal(gain, gamma ** _degree(role)) for role, gain in _role_gains(s).items()]


@cache
def _degree(role: str) -> int:
    """Of the branch without norms in one of its matrices, at equal tokens; StopIteration if it is neither 0 nor 1."""
    kind = "ffn" if role in ("fc1", "fc2") else "attention"
    plain = Sublayer(kind=kind, steps=tuple(step for step in STEPS[kind] if step != "LN"), has_residual=False)
    case = cases(kind, "none")[1]
    case = replace(case, before_TD=case.before_TD[:1].repeat(5, axis=0))
    scaled = replace(case, weights={**case.weights, role: 3 * case.weights[role]})
    ratio = abs(evaluate(plain, scaled)).sum() / abs(evaluate(plain, case)).sum()
    return next(degree for degree in (0, 1) if math.isclose(ratio, 3**degree, rel_tol=1e-9))


@check(Route.PROOF, "the roles on the value path of the theory's sublayers, and those beside it")
def _by_theory_roles(s: Values) -> list[bool | None]:
    from depthlaw.theory.stack import SCALED_ROLES, UNSCALED_ROLES, SublayerKind

    expected: dict[str, Expr] = {}
    for kind in (SublayerKind.SELF, SublayerKind.FFN):
        expected |= dict.fromkeys(SCALED_ROLES[kind], gamma) | dict.fromkeys(UNSCALED_ROLES[kind], S.One)
    printed = _role_gains(s)
    return [set(printed) == set(expected), *(algebra.equal(printed[role], gain) for role, gain in expected.items())]


_S2_02 = Claim(
    id="S2-02",
    kind=Kind.RESULT,
    locator="Section 2, Figure 2, top left",
    quote=PSEUDO_CODE,
    summary="subln(x) = x + fout(LN(fin(LN(x)))); gain gamma on ffn, v_proj, out_proj, gain 1 on q_proj, k_proj",
    uses=("S2-01", "S2-06"),
    parts=(
        Part(
            name="subln(x)",
            statement=Sublayer(("LN", "fin", "LN", "fout")),
            checks=(
                check(
                    Route.CITATION,
                    f"with fin and fout put in: the steps of (1)-(5), and those of {_RECORDED}",
                    lambda s: [_bound(s, e.kind).steps == x for e in (_MSA, _FFN) for x in (e.steps, STEPS[e.kind])],
                ),
                check(
                    Route.MEASURED,
                    "the same evaluated in numpy, against x_l of a real Transformer of placement sub, both kinds of "
                    "sublayer",
                    lambda s: [agrees(_bound(s, kind), case) for kind in _BINDINGS for case in cases(kind, "sub")],
                ),
            ),
            mutants=(
                Mutant(name="no inner norm", statement=Sublayer(("LN", "fin", "fout"))),
                Mutant(name="behind fout", statement=Sublayer(("LN", "fin", "fout", "LN"))),
            ),
        ),
        Part(
            name="subln_init(w)",
            statement=_GAINS,
            checks=(
                _by_degree,
                _by_theory_roles,
                check(
                    Route.CITATION,
                    f"{_RECORDED}: gamma on fc1, fc2, v and out (their biases too), on top of torch's default for "
                    "linear layers",
                    lambda s: [algebra.equal(g, gamma if r in SCALED else S.One) for r, g in _role_gains(s).items()],
                ),
            ),
            mutants=(*changed(_GAINS, q_proj=gamma), *broken(_GAINS)),
        ),
    ),
)

# ---------------------------------------------------------------- S2-04: the cross-attention

_FIGURE = ("Linear", "LN", "Linear", "Attention")
"""Boxes of the cross-attention in Figure 2 (b), in the order of the extraction; a self-attention has one LN more."""
_CROSS_GAINS = Values.of(cross_q=1, cross_k=1, cross_v=1, cross_out=1)


def _norms_that_act(kind: str) -> int:
    """How many norms a real branch has: one at its input if scaling that changes nothing, one behind v if that does."""
    plain, *scaled = (
        sublayer.after_TD - sublayer.before_TD
        for options in ({}, {"input_scale": 3.0}, {"v_scale": 3.0})
        for sublayer in network((kind,), "sub", **options)[0]
    )
    return sum(close(branch, plain) for branch in scaled)


_S2_04 = Claim(
    id="S2-04",
    kind=Kind.RESULT,
    locator="Section 2, below Figure 2, and Figure 2 (b)",
    quote="Besides, there is only one LayerNorm inside the cross-attention for the encoder-decoder architecture\n"
    "and we do not scale the initialized weights of cross-attention.",
    summary="a cross-attention has one LayerNorm, and its weights are not scaled",
    parts=(
        Part(
            name="one LayerNorm",
            statement=Values.of(norms=1),
            checks=(
                check(
                    Route.MEASURED,
                    "norms of a real decoder's branches by what they make them blind to, the scale of the input and "
                    "that of v: a cross-attention one, a self-attention one more",
                    lambda s: [s["norms"] == _norms_that_act("cross"), s["norms"] + 1 == _norms_that_act("attention")],
                ),
                check(
                    Route.CITATION,
                    f"the boxes of Figure 2 (b); {_RECORDED}; where it stands, at the input, is from the code",
                    lambda s: [s["norms"] == boxes.count("LN") for boxes in (_FIGURE, STEPS["cross"])],
                ),
            ),
            mutants=changed(Values.of(norms=1), norms=[0, 2]),
        ),
        Part(
            name="not scaled",
            statement=_CROSS_GAINS,
            checks=(
                check(
                    Route.CITATION,
                    f"{_RECORDED}: gamma on none of the four. (14) and the table's third take all v_d as equal; with "
                    "v = 1 here the share of the cross-attentions is 1/(1 + 2 gamma_d^2)",
                    lambda s: [(gain == 1) is (name in UNSCALED) for name, gain in s],
                ),
            ),
            mutants=changed(_CROSS_GAINS, cross_q=gamma, cross_v=gamma),
        ),
    ),
)

# ---------------------------------------------------------------- S2-05: (6)-(8)

_EIGHT = Sublayer(kind="ffn", steps=("LN", "W1", "phi", "W2"), has_residual=True)
_before, _out, _g = scratch("x_before"), scratch("G_x"), IndexedBase("g")
_SEVEN = Values.of(sublayer=_out, inside=_before + Sum(_g[l], (l, 1, L)))
"""(7): x^l = G^l(x^(l-1)); x^e is LN of ``inside``, where x_before stands for x and g_l for G^l(x^(l-1))."""
_SEVEN_RIGHT = _SEVEN.with_(sublayer=_before + _out)


def _chain(s: Values, length: int, apply: Callable[[int, Any], Any], start: Any) -> tuple[Any, Any]:
    """x^L, and what stands inside the LN of x^e, as (7) prints them; ``apply``: G^l."""
    stream, outputs = start, []
    sublayer = lambdify((_before, _out), s["sublayer"], modules="math")
    for index in range(1, length + 1):
        outputs.append(apply(index, stream))
        stream = sublayer(stream, outputs[-1])
    letters = (_before, *(_g[index] for index in range(1, length + 1)))
    return stream, lambdify(letters, s["inside"].subs(L, length).doit(), modules="math")(start, *outputs)


@check(
    Route.PROOF,
    "x^l and x^e of (7) are those of (8) for G the branch, or for G the whole sublayer; symbolic, L up "
    "to 4. As printed neither: with the branch x^l lacks x^(l-1), with the whole x^e adds it again",
)
def _by_readings(s: Values) -> list[bool | None]:
    start = scratch("X")

    def branch(index: int, stream: Expr) -> Expr:
        return Function(f"branch_{index}")(stream)

    def whole(index: int, stream: Expr) -> Expr:
        return stream + branch(index, stream)

    def agrees_with_eight(reading: Callable[[int, Expr], Expr]) -> bool:
        right = start
        for length in range(1, 5):
            right = whole(length, right)
            if any(expand(expr - right) != 0 for expr in _chain(s, length, reading, start)):
                return False
        return True

    return [agrees_with_eight(branch) or agrees_with_eight(whole)]


@check(Route.MEASURED, "(7) with G the branch, in numpy, against a real Pre-LN stack, L up to 4")
def _by_network(s: Values) -> list[bool | None]:
    branch, out = replace(_EIGHT, has_residual=False), []
    for length in range(1, 5):
        sublayers, x_e = network(("ffn",) * length, "pre")

        def apply(index: int, stream: Array, sublayers: Sequence[Case] = sublayers) -> Array:
            return evaluate(branch, replace(sublayers[index - 1], before_TD=stream))

        last, inside = _chain(s, length, apply, sublayers[0].before_TD)
        out += [close(last, sublayers[-1].after_TD), close(layer_norm(inside), x_e)]
    return out


_S2_05 = Claim(
    id="S2-05",
    kind=Kind.STEP,
    locator="Section 3.2, (6)-(8)",
    quote="xl=Gl(xl1, θel)and x0=x(7)",
    summary="Pre-LN: x^e = LN(x + sum_l G^l(x^(l-1))), x^l = G^l(x^(l-1)); x^l = x^(l-1) + W2 phi(W1 LN(x^(l-1)))",
    uses=("S2-01",),
    parts=(
        Part(
            name="(8), the sublayer",
            statement=_EIGHT,
            checks=_in_real_stack("pre"),
            mutants=(
                Mutant(name="norm behind W2", statement=replace(_EIGHT, steps=("W1", "phi", "W2", "LN"))),
                Mutant(name="an inner norm", statement=replace(_EIGHT, steps=STEPS["ffn"])),
            ),
        ),
        Part(
            name="(7) with (8)",
            statement=_SEVEN,
            checks=(_by_readings, _by_network),
            mutants=changed(_SEVEN_RIGHT, inside=[Sum(_g[l], (l, 1, L)), _before + Sum(_g[l], (l, 2, L))]),
            misprint=Amendment(
                statement=_SEVEN_RIGHT,
                text="x^l = x^(l-1) + G^l(x^(l-1)), G^l the branch without its residual, as x^e = LN(x + sum_l G^l) "
                "takes it",
                grounds="(8), and FFN(x) = W2 phi(W1 LN(x)) above it",
            ),
            expected=Verdict.MISPRINT,
        ),
    ),
    finding=Finding("Magneto's (7) has x^l = G^l(x^(l-1)) where its (8) adds x^(l-1)", rank=220),
)

CLAIMS: tuple[Claim, ...] = (_S2_01, _S2_02, _S2_04, _S2_05)

"""Other statements of the slides of Magneto: its code, its definition of the update, and its sizes."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from fractions import Fraction

from sympy import Abs, Add, Expr, Rational, S, sqrt

from paper_checks.claims.claim import Claim, Kind, Mutant, Part, Route, Verdict
from paper_checks.claims.statements import Values
from paper_checks.papers.magneto.experiments import ZERO_SHOT
from paper_checks.papers.magneto.theorems import GAMMAS
from paper_checks.papers.slides.rates import STABLER_WHERE
from paper_checks.routes import questions
from paper_checks.routes.checks import check
from paper_checks.routes.parameter_counts import COUNT_CHECKS, Count, to_rounding
from paper_checks.routes.search import search
from paper_checks.routes.training import BY_TRAINING
from theory.symbols import M, N, l, scratch

# ---------------------------------------------------------------- S3-01: the code

_SLIDE_CODE = """\
def subln(x):
    return x + fout(LN(fin(LN(x))))

def subln_init(w):
    if w is ['ffn', 'v_proj', 'out_proj']:
        nn.init.xavier_normal_(w, gain=γ)
    elif w is ['q_proj', 'k_proj']:
        nn.init.xavier_normal_(w, gain=1)
"""
"""The slides' code; its gamma is typeset there."""
_PAPER_CODE = """\
def subln(x):
return x + fout(LN(fin(LN(x))))
def subln_init(w):
if wis ['ffn','v_proj','out_proj']:
nn.init.xavier_normal_(w, gain=γ)
elif wis ['q_proj','k_proj']:
nn.init.xavier_normal_(w, gain=1)
"""
"""Figure 2 of the paper, in an extraction that lost indents and some blanks."""


@dataclass(frozen=True)
class Code:
    """Pseudo-code, as printed."""

    source: str

    @property
    def text(self) -> str:
        return "; ".join(line.strip() for line in self.source.splitlines() if line.strip())

    def with_(self, old: str, new: str) -> Code:
        if old not in self.source:
            raise ValueError(f"no {old!r} in the code")
        return Code(self.source.replace(old, new))


def _same_characters(statement: Code) -> list[bool | None]:
    return [re.sub(r"\s+", "", statement.source) == re.sub(r"\s+", "", _PAPER_CODE)]


def _names_outwards(call: ast.expr) -> list[str]:
    """f(g(x)) as [g, f]."""
    names: list[str] = []
    while isinstance(call, ast.Call):
        names.insert(0, ast.unparse(call.func))
        call = call.args[0]
    return names


def _read(source: str) -> tuple[list[str], dict[str, str]]:
    """What the branch does to x, in its order; and the gain of each weight. ``is`` a list is read as ``in`` it."""
    forward, init = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    (line,) = forward.body
    if not (isinstance(line, ast.Return) and isinstance(line.value, ast.BinOp) and isinstance(line.value.op, ast.Add)):
        raise ValueError("the sublayer is no sum")
    gains: dict[str, str] = {}
    for node in ast.walk(init):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and isinstance(node.body[0], ast.Expr):
            set_gain = node.body[0].value
            if isinstance(set_gain, ast.Call):
                roles = ast.literal_eval(node.test.comparators[0])
                gains.update({role: ast.unparse(set_gain.keywords[0].value) for role in roles})
    return [ast.unparse(line.value.left), *_names_outwards(line.value.right)], gains


_FORWARD = ["x", "LN", "fin", "LN", "fout"]
"""The paper's (1)-(4): a norm before the input projection and one before the output projection, and the skip."""
_SCALED = {"ffn": "γ", "v_proj": "γ", "out_proj": "γ", "q_proj": "1", "k_proj": "1"}
"""The paper's Section 2: what is scaled, and that queries and keys are not."""


def _same_program(statement: Code) -> list[bool | None]:
    forward, gains = _read(statement.source)
    return [forward == _FORWARD, gains == _SCALED]


_CODE = Code(_SLIDE_CODE)
_S3_01 = Claim(
    id="S3-01",
    kind=Kind.REMARK,
    source="slides",
    locator="TL;DR, left",
    quote="Notice that  $\\gamma$  is a constant.",
    summary="the pseudo-code is the paper's; gamma in it is a constant",
    parts=(
        Part(
            name="the same code as in the paper's Figure 2",
            statement=_CODE,
            checks=(
                check(Route.CITATION, "character by character, blanks aside", _same_characters, is_direct=True),
                check(
                    Route.PROOF,
                    "its syntax tree: LN, fin, LN, fout around the skip; gamma on ffn, v and out, 1 on q and k, as the "
                    "paper says in words ('w is [...]' meant as 'w in [...]', or nothing would be set)",
                    _same_program,
                    is_direct=True,
                ),
            ),
            mutants=(
                Mutant(name="no inner norm", statement=_CODE.with_("fout(LN(fin(LN(x))))", "fout(fin(LN(x)))")),
                Mutant(
                    name="norm of the branch", statement=_CODE.with_("fout(LN(fin(LN(x))))", "LN(fout(fin(LN(x))))")
                ),
                Mutant(name="queries and keys scaled", statement=_CODE.with_("gain=1", "gain=γ")),
                Mutant(name="values not scaled", statement=_CODE.with_("'ffn', 'v_proj',", "'ffn',")),
            ),
        ),
        Part(
            name="gamma is a constant: one number for a model, the same in every sublayer",
            statement=GAMMAS,
            checks=(
                check(
                    Route.PROOF,
                    "the table's gammas have no letter but N and M, and are positive numbers at each",
                    lambda s: [_is_number_of_layers(gamma) for _, gamma in s],
                    is_direct=True,
                ),
            ),
            mutants=(
                Mutant(name="the sublayer's own", statement=GAMMAS.with_(encoder=sqrt(1 + l))),
                Mutant(name="0 at one layer", statement=GAMMAS.with_(decoder=M - 1)),
            ),
        ),
    ),
)


def _is_number_of_layers(gamma: Expr) -> bool:
    values = [gamma.subs({N: layers, M: layers}) for layers in (1, 2, 6, 100)]
    return gamma.free_symbols <= {N, M} and all(bool(value > 0) for value in values)


# ---------------------------------------------------------------- S3-04: what the model update is

_CLASSES = 4
_BEFORE = [scratch(f"f{i}", real=True) for i in range(_CLASSES)]
_AFTER = [scratch(f"f{i}_new", real=True) for i in range(_CLASSES)]
_LABEL = [scratch(f"gamma{i}", real=True) for i in range(_CLASSES)]


def _length(entries: list[Expr]) -> Expr:
    return sqrt(Add(*(entry**2 for entry in entries)))


_MOVED = [new - old for new, old in zip(_AFTER, _BEFORE, strict=True)]
_READ = Add(*(label * moved for label, moved in zip(_LABEL, _MOVED, strict=True)))
_UPDATE = Values.of(update=_length([_READ]))
"""||gamma^T (F(x, theta*) - F(x, theta))||, four classes."""


def _is_label_logit(s: Values) -> list[bool | None]:
    out: list[bool | None] = []
    for place in range(_CLASSES):
        one_hot = {letter: Rational(int(i == place)) for i, letter in enumerate(_LABEL)}
        out.append(s["update"].subs(one_hot) - Abs(_AFTER[place] - _BEFORE[place]) == S.Zero)
    return out


def _is_label_logit_at_rationals(s: Values) -> list[bool | None]:
    from hypothesis import strategies as st

    numbers = st.lists(st.fractions(-9, 9, max_denominator=7), min_size=2 * _CLASSES, max_size=2 * _CLASSES)

    def holds(case: tuple[int, list[Fraction]]) -> bool:
        place, values = case
        exact = [Rational(value.numerator, value.denominator) for value in values]
        before, after = exact[:_CLASSES], exact[_CLASSES:]
        at = dict(zip((*_BEFORE, *_AFTER), exact, strict=True)) | {
            letter: Rational(int(i == place)) for i, letter in enumerate(_LABEL)
        }
        return s["update"].xreplace(at) == abs(after[place] - before[place])

    searched = search(st.tuples(st.integers(0, _CLASSES - 1), numbers), holds, max_examples=60)
    return [searched.found is None] * searched.num_effective


_S3_04 = Claim(
    id="S3-04",
    kind=Kind.STEP,
    source="slides",
    locator="Magneto: Initialization, Model Update",
    quote=r"**Model Update:**  $\Delta F = \|\gamma^T (F(x, \theta^*) - F(x, \theta))\|$",
    summary="the model update is |gamma^T (F(x, theta*) - F(x, theta))|; the smaller, the more stable the optimisation",
    parts=(
        Part(
            name="the definition is the paper's: the change of the label's logit",
            statement=_UPDATE,
            checks=(
                check(
                    Route.PROOF,
                    "at every one-hot gamma it is |f_y(theta*) - f_y(theta)|, four classes; that gamma, 'the label of "
                    "x', is one-hot stands in the paper alone, and is another gamma than the gain",
                    _is_label_logit,
                    is_direct=True,
                ),
                check(
                    Route.PROPERTY,
                    "the same at rational logits, exactly",
                    _is_label_logit_at_rationals,
                    is_direct=True,
                ),
            ),
            mutants=(
                Mutant(name="the change of all logits", statement=Values.of(update=_length(_MOVED))),
                Mutant(name="with its sign", statement=Values.of(update=_READ)),
                Mutant(
                    name="before the step left out",
                    statement=Values.of(update=_length([_READ.subs(dict.fromkeys(_BEFORE, S.Zero))])),
                ),
            ),
        ),
        Part(
            name="smaller updates make optimisation more stable",
            statement=questions.SMALLER["trains"],
            checks=(BY_TRAINING,),
            mutants=(Mutant(name="a larger update, more stable", statement=questions.SMALLER["trains"].with_larger()),),
            expected=Verdict.REFUTED,
            condition=STABLER_WHERE,
        ),
    ),
    expected=Verdict.REFUTED,
)

# ---------------------------------------------------------------- S3-48: sizes

_VOCABULARY = 50257
_SIZES = {24: "353", 48: "655", 72: "957"}


def _size(layers: int, printed: str) -> Part:
    low, high = to_rounding(printed, 10**6)
    statement = Count(
        stacks=((layers, 1),), width=1024, rows=_VOCABULARY, low=low, high=high, words=f"{printed} million parameters"
    )
    return Part(
        name=f"{layers} layers: {printed}M",
        statement=statement,
        checks=COUNT_CHECKS,
        mutants=(
            Mutant(name="a layer more", statement=statement.with_(stacks=((layers + 1, 1),))),
            Mutant(name="64,000 words", statement=statement.with_(rows=64000)),
            Mutant(name="output embeddings of their own", statement=statement.with_(rows=2 * _VOCABULARY)),
        ),
    )


_LOW, _HIGH = to_rounding("35", 10**7)
_MEDIUM = Count(
    stacks=((24, 1),), width=1024, rows=_VOCABULARY, low=_LOW, high=_HIGH, words="350 million, to two digits"
)
_S3_48 = Claim(
    id="S3-48",
    kind=Kind.REMARK,
    source="slides",
    locator=f"{ZERO_SHOT.locator}: layers alone are printed there; width 1024 and 350M at 24 layers are GPT-3 "
    "Medium's, in the body of the paper",
    quote=ZERO_SHOT.row("Pre-LN", "24L").line,
    summary="24, 48, 72 layers of width 1024 and one table of 50,257 embeddings: 353M, 655M, 957M",
    parts=(
        *(_size(layers, printed) for layers, printed in _SIZES.items()),
        Part(
            name="24 layers are the 350M of the paper's body, to two digits",
            statement=_MEDIUM,
            checks=COUNT_CHECKS,
            mutants=(
                Mutant(name="no embeddings", statement=_MEDIUM.with_(rows=0)),
                Mutant(name="width 768", statement=_MEDIUM.with_(width=768)),
            ),
        ),
    ),
)

CLAIMS: tuple[Claim, ...] = (_S3_01, _S3_04, _S3_48)

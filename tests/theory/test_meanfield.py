"""The mean field against a second implementation that shares no line with it, and against its own three ways.

The second implementation, `tests.scalarnet`, is written from the design's text and reads nothing of `theory`.
"""

import itertools
import math
from collections.abc import Iterable
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Rational

import depthlaw.theory.meanfield.closedform as closedform
import depthlaw.theory.meanfield.recursion as recursion
from depthlaw.theory.asymptotics.evaluate import evaluate
from depthlaw.theory.asymptotics.expansion import BeyondScaleError
from depthlaw.theory.meanfield.growth import update_order
from depthlaw.theory.meanfield.recursion import by_leap, by_recursion
from depthlaw.theory.meanfield.setting import Prediction, Setting
from depthlaw.theory.meanfield.update import from_closed_form, predict, predict_setting
from depthlaw.theory.schemes import SCHEMES, custom_scheme, formula
from depthlaw.theory.stack import transfer
from depthlaw.theory.symbols import L
from tests.often import often
from tests.scalarnet import ACTIVATIONS, ELSEWHERE, NORM_KINDS, OPTIMIZERS, Net, net, reference


def agree(predicted: Prediction, roles: dict[str, float], rel: float = 1e-10) -> bool:
    """Whether the update, and what each matrix adds to it, are those of ``roles``."""
    wanted = {"fc1": roles["fc1"], "fc2": roles["fc2"], "update": roles["fc1"] + roles["fc2"]}
    values = {"update": predicted.update, **predicted.roles}
    return all(math.isclose(values[key], value, rel_tol=rel, abs_tol=1e-300) for key, value in wanted.items())


def check(name: str, act: str, kind: str, nums: Iterable[int]) -> None:
    for num in nums:
        if num < SCHEMES[name].min_sublayers:
            continue
        wanted = reference(net(name, num), act, kind)
        for opt in OPTIMIZERS:
            assert agree(predict(name, opt, num, activation=act, norm_kind=kind), wanted[opt]), (kind, num, opt)


IN_KIND = ("post-ln", "pre-ln", "sub-ln", "sub-ln-gamma", "peri-ln", "t-fixup", "depth-mup", "ln-scaling")
"""A place of the norms each, or a growth that has a closed form of its own, or none."""


@pytest.mark.parametrize("name", [name for name in SCHEMES if name not in ELSEWHERE])
def test_a_scheme_agrees_with_the_reference(name):
    """Behind a relu; at one sublayer, too, where the schemes differ in kind."""
    check(name, "relu", "layernorm", (1, 7) if name in IN_KIND else (7,))


@pytest.mark.parametrize("name", ["rezero", "skipinit", "fixup"])
def test_trained_branch_weights_agree_with_the_reference(name):
    for act, num, opt in itertools.product(ACTIVATIONS, (1, 5), ("sgd", "adam")):
        predicted = predict(name, opt, num, activation=act).roles["branch_weight"]
        wanted = reference(net(name, num), act, "layernorm")[opt]["branch_weight"]
        assert math.isclose(predicted, wanted, rel_tol=1e-10, abs_tol=1e-300)


UNEVEN = {"w": [0.5, 2.0, 1.5], "v": [1.5, 0.7, 3.0]}


@pytest.mark.parametrize("name", ["post-ln", "pre-ln", "sub-ln", "peri-ln", "t-fixup"])
@pytest.mark.parametrize("sides", ["wv", "w", "v"])
def test_uneven_gains_agree_with_the_reference(name, sides):
    gains = {side: UNEVEN[side] for side in sides}
    for act, kind in itertools.product(("gelu", "tanh"), NORM_KINDS):
        wanted = reference(Net(**{**vars(net(name, 3)), **gains}), act, kind)
        for opt in OPTIMIZERS:
            assert agree(predict(name, opt, 3, activation=act, norm_kind=kind, **gains), wanted[opt]), (act, kind, opt)


constants = st.fractions(Fraction(1, 3), 3, max_denominator=4)
powers = st.sampled_from([Fraction(p, 4) for p in range(-4, 2)])
laws = st.tuples(constants, powers)


@settings(max_examples=8)
@given(
    norm=st.sampled_from(["post", "pre", "sub", "peri"]),
    laws=st.tuples(laws, laws, laws),
    opt=st.sampled_from(OPTIMIZERS),
    act=st.sampled_from(ACTIVATIONS),
    kind=st.sampled_from(NORM_KINDS),
    num=st.integers(1, 200),
)
def test_closed_form_is_the_recursion(norm, laws, opt, act, kind, num):
    residual = laws[0] if norm == "post" else (Fraction(1), Fraction(0))  # elsewhere another weight has no closed form
    scheme = custom_scheme(norm, residual_weight=residual, branch_weight=laws[1], gain=laws[2])
    setting = Setting.of(scheme, opt, act, kind)
    form = closedform.closed_form(setting)
    assert form is not None
    short, long = from_closed_form(setting, form, num), by_recursion(setting, num)
    assert math.isclose(short.log10_update, long.log10_update, abs_tol=1e-9)
    assert agree(short, long.roles, rel=1e-9) or short.update > 1e300


def _custom(norm: str, weight: str, **more) -> Setting:
    scheme = custom_scheme(norm, residual_weight=(Fraction(weight), Fraction(0)))
    return Setting.of(scheme, more.pop("opt", "sgd"), **more)


LEAPS = [
    Setting.of("ln-scaling", "sgd", "relu"),
    Setting.of("ln-scaling", "adam", "silu"),
    Setting.of("t-fixup", "lamb", "gelu"),
    *(_custom("pre", weight, opt="lars", activation_="tanh") for weight in ("0.9", "1.1", "1.5")),
    *(_custom(norm, weight, activation_="gelu") for norm, weight in (("sub", "0.9"), ("peri", "1.1"))),
]
"""What has no closed form: slowly growing stacks, and residual weights below and above 1."""


def test_the_leap_is_the_recursion():
    for setting in LEAPS:
        far, near = by_leap(setting, 3001), by_recursion(setting, 3001)
        assert math.isclose(far.log10_update, near.log10_update, abs_tol=1e-11), setting
        assert agree(far, near.roles) or near.update == math.inf, setting


@pytest.mark.parametrize("name", IN_KIND)
def test_a_milliard_sublayers_cost_no_walk(name, monkeypatch):
    calls: list[int] = []
    monkeypatch.setattr(recursion, "transfer", lambda *args, **kwargs: calls.append(1) or transfer(*args, **kwargs))
    for opt, act in (("sgd", "gelu"), ("adam", "relu")):
        calls.clear()
        assert predict(name, opt, 10**9, activation=act).log10_update > -12
        assert len(calls) < 100_000  # of 10^9


@pytest.mark.parametrize("factor", ["1.1", "10"])
def test_a_stream_beyond_the_floats_is_carried(factor):
    """a > 1: the first layers are all, and the rest, whose stream leaves the floats, adds nothing."""
    for norm, (opt, act) in itertools.product(("pre", "sub", "peri"), (("sgd", "tanh"), ("adam", "relu"))):
        setting = _custom(norm, factor, opt=opt, activation_=act)
        few = by_recursion(setting, 290)
        for many in (predict_setting(setting, 4000), predict_setting(setting, 10**9)):
            assert agree(many, few.roles)


@pytest.mark.parametrize("name", ["rezero", "skipinit"])
def test_zero_branches_move_only_their_weight(name):
    for opt, num in itertools.product(OPTIMIZERS, (1, 8, 10**9)):
        predicted = predict(name, opt, num)
        assert (predicted.update, predicted.log10_update) == (0, -math.inf)
    assert predict(name, "sgd", 8).roles["branch_weight"] == 4.0  # 8 E relu^2


def test_an_overflowing_update_is_told_by_its_logarithm():
    predicted = predict("post-ln", "sgd", 10**6, activation="gelu")
    assert predicted.update == math.inf and math.isfinite(predicted.log10_update)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"scheme": "pre-lnn"}, "pre-ln"),
        ({"optimizer": "adma"}, "adam"),
        ({"activation": "geluu"}, "gelu"),
        ({"norm_kind": "layernrom"}, "layernorm"),
        *(({"num_sublayers": bad}, "num_sublayers") for bad in (0, True, 10**13, 2.0, None)),
        ({"scheme": "sub-ln-gamma", "num_sublayers": 1}, "sub-ln-gamma"),
        ({"w": [1.0]}, "1 gains for 2"),
        ({"v": [1.0, 1.0, 1.0]}, "3 gains for 2"),
        *(({"w": [1.0, bad]}, "w of sublayer 2") for bad in (0.0, -1.0, math.nan, math.inf, "1", 1j)),
    ],
)
def test_bad_input_is_refused_in_one_line(change, said):
    asked = {"scheme": "pre-ln", "optimizer": "sgd", "num_sublayers": 2, **change}
    with pytest.raises(ValueError, match=said) as error:
        predict(**asked)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("norm, change", [("prepre", {}), ("pre", {"gain": (Fraction(0), Fraction(0))})])
def test_a_bad_custom_scheme_is_refused(norm, change):
    with pytest.raises(ValueError, match=r"pre|positive"):
        custom_scheme(norm, **change)


@pytest.mark.parametrize("norm", ["post", "pre", "sub", "peri"])
def test_a_formula_is_the_law_that_it_writes(norm: str) -> None:
    """Beside a power law, and beside weights by sublayer that are equal at every one."""
    as_power = custom_scheme(
        norm, residual_weight=(Fraction(5, 4), Fraction(1, 8)), gain=(Fraction(2), Fraction(-1, 4))
    )
    as_text = custom_scheme(norm, residual_weight=formula("1.25 * (2*N)^(1/8)"), gain=formula("2/sqrt(sqrt(L))"))
    falling = custom_scheme(norm, residual_weight=formula("sqrt(1 - 2/N)"), branch_weight=formula("2/N"))
    by_place = custom_scheme(norm, residual_weight=formula("sqrt(1 - 2*l/(N*l))"), branch_weight=formula("2*n/(N*n)"))
    for optimizer in ("sgd", "adam"):
        for one, other in ((as_power, as_text), (falling, by_place)):
            assert predict(one, optimizer, 30).update == pytest.approx(predict(other, optimizer, 30).update, rel=1e-12)


@pytest.mark.parametrize("name", ["post-ln", "pre-ln", "sub-ln", "peri-ln"])
def test_formulas_by_sublayer_agree_with_the_reference(name: str) -> None:
    laws = {"residual_weight": "1.15 - 0.9*n/N", "branch_weight": "1/sqrt(l)", "gain": "log(l + 1)"}
    own = custom_scheme(name.removesuffix("-ln"), **{law: formula(text) for law, text in laws.items()})
    count = range(1, 7)
    a = [1.15 - 0.9 * math.ceil(index / 2) / 3 for index in count]
    b, g = [index**-0.5 for index in count], [math.log(index + 1) for index in count]
    moved = Net(**{**vars(net(name, 6)), "a": a, "b": b, "w": g, "v": g})
    for act, kind in itertools.product(("relu", "gelu"), NORM_KINDS):
        wanted = reference(moved, act, kind)
        for opt in OPTIMIZERS:
            assert agree(predict(own, opt, 6, activation=act, norm_kind=kind), wanted[opt]), (act, kind, opt)


def test_what_moves_by_sublayer_is_walked_to_the_end() -> None:
    """Where the stream seems to have settled, weights to come still change it."""
    late = custom_scheme("pre", residual_weight=formula("1/2 + (l/L)^40"))
    setting = Setting.of(late, "sgd")
    assert predict(late, "sgd", 30_000).update == by_recursion(setting, 30_000).update
    with pytest.raises(ValueError, match="at most 1000000 sublayers"):
        predict(late, "sgd", 2_000_000)
    with pytest.raises(BeyondScaleError, match="a moving sublayer"):
        update_order(setting)
    with pytest.raises(BeyondScaleError, match="tends to 1"):
        update_order(Setting.of(custom_scheme("pre", residual_weight=formula("sqrt(1 - 2/N)")), "sgd"))
    with pytest.raises(BeyondScaleError, match="share of the depth"):
        update_order(Setting.of(custom_scheme("pre", branch_weight=formula("l/L")), "sgd"))


@pytest.mark.parametrize(
    "text",
    [
        *("2 L", "Q", "l.real", "__import__('os')", "sqrt(L, N)", "L if N else l", "True", "1/0*L"),
        *("sqrt(N" + ")" * 200, "", "L^(2", "'L'", "lambda: L", "2^L", "9^9^9^9^9", "((L^99)^99)^99", "1e400*L"),
    ],
)
def test_what_is_no_formula_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no formula|has a (power|number)") as error:
        formula(text)
    assert "\n" not in str(error.value) and len(str(error.value)) < 160


@pytest.mark.parametrize(
    "law, said",
    [
        ("1 - n/N", "the residual weight at sublayer 3 of 4 is 0; "),
        ("sqrt(1 - 3/N)", "the residual weight at 4 sublayers is no real number; "),
        ("1/(L - 4)", "the residual weight at 4 sublayers is no real number; "),
        ("sqrt(-1)", "the residual weight at 4 sublayers is no real number; "),
        ("L - L", "the residual weight at 4 sublayers is 0; "),
        ("log(-L)", "the residual weight at 4 sublayers is no real number; "),
    ],
)
def test_a_weight_that_is_not_positive_somewhere_is_refused(law: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        predict(custom_scheme("pre", residual_weight=formula(law)), "adam", 4)


@pytest.mark.parametrize("gain", ["1/10", "1/100", "1/10000000000"])
def test_small_branches_of_one_s_own_take_no_digits(gain: str) -> None:
    """1/s is then a large whole number, whose digamma sympy writes out: 8,000 digits at 1/10, and no end at 1/10^10."""
    own = custom_scheme("pre", gain=(Fraction(gain), Fraction(0)))
    setting = Setting.of(own, "sgd", "relu", "layernorm")
    form = closedform.closed_form(setting)
    assert form is not None
    assert from_closed_form(setting, form, 50).update == pytest.approx(by_recursion(setting, 50).update, rel=1e-12)
    assert update_order(setting).coefficient == 2 / Rational(gain) ** 2
    assert len(str(form.roles["fc1"])) < 200


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("activation", ["swiglu", "reglu"])
@pytest.mark.parametrize("name", often(["pre-ln", "sub-ln", "depth-mup", "deepnorm"], 4, wide=1))
def test_gated_stacks_have_closed_forms_and_leading_orders(name: str, activation: str, optimizer: str) -> None:
    setting = Setting.of(name, optimizer, activation)
    assert predict_setting(setting, 9).update == pytest.approx(by_recursion(setting, 9).update, rel=1e-12)
    order, length = update_order(setting), 10**12
    exact = mpmath.mpf(10) ** predict_setting(setting, length).log10_update
    ratio = exact / evaluate(order.expression(L), {L: length})
    assert abs(ratio - 1) < (0.7 if optimizer == "adam" and name in ("pre-ln", "sub-ln") else 1e-3), ratio
    if optimizer == "adam" and name in ("pre-ln", "sub-ln"):  # whose next term is smaller by log L, or a small power
        before = mpmath.mpf(10) ** predict_setting(setting, 10**6).log10_update
        assert abs(ratio - 1) < abs(before / evaluate(order.expression(L), {L: 10**6}) - 1)

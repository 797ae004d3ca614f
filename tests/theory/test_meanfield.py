"""The mean field against a second implementation that shares no line with it, and against its own three ways.

The second implementation, `tests.scalarnet`, is written from DESIGN's text and reads nothing of `theory`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Rational, S, sympify

import theory.meanfield.closedform as closedform
import theory.meanfield.recursion as recursion
from tests.scalarnet import ACTIVATIONS, NORM_KINDS, OPTIMIZERS, Net, net, reference
from theory.asymptotics.special import GrowthSum
from theory.meanfield.growth import update_order
from theory.meanfield.recursion import by_leap, by_recursion
from theory.meanfield.setting import Prediction, Setting
from theory.meanfield.update import from_closed_form, predict, predict_setting
from theory.schemes import SCHEMES, custom_scheme
from theory.stack import Transfer, transfer
from theory.symbols import L as L_


def agree(found: Prediction, roles: dict[str, float], rel: float = 1e-10) -> bool:
    wanted = {"fc1": roles["fc1"], "fc2": roles["fc2"], "update": roles["fc1"] + roles["fc2"]}
    got = {"update": found.update, **{role: found.roles[role] for role in ("fc1", "fc2")}}
    return all(math.isclose(got[key], value, rel_tol=rel, abs_tol=1e-300) for key, value in wanted.items())


# ---------------------------------------------------------------------------------------------- the same numbers


def check(name: str, act: str, kind: str, nums: Iterable[int]) -> None:
    for num in nums:
        if num < SCHEMES[name].min_sublayers:
            continue
        wanted = reference(net(name, num), act, kind)
        for opt in OPTIMIZERS:
            assert agree(predict(name, opt, num, activation=act, norm_kind=kind), wanted[opt]), (kind, num, opt)


OTHERS = [(act, kind) for act in ACTIVATIONS if act != "relu" for kind in NORM_KINDS]


def is_costly(name: str, act: str) -> bool:
    """New moments at each L."""
    letters = SCHEMES[name].stack
    return act not in ("relu", "identity") and (letters.gain_in * letters.gain_out).has(L_)


IN_KIND = ("post-ln", "pre-ln", "sub-ln", "sub-ln-gamma", "peri-ln", "t-fixup", "depth-mup", "ln-scaling")
"""A place of the norms each, or a growth that has a closed form of its own, or none."""
BY_KIND = [pytest.param(name, marks=[] if name in IN_KIND else [pytest.mark.slow]) for name in SCHEMES]


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_agrees_with_the_reference(name):
    """Behind a relu; at one sublayer, too, where the schemes differ in kind. CASES below have other activations."""
    check(name, "relu", "layernorm", (1, 7) if name in IN_KIND else (7,))


@pytest.mark.parametrize(
    "act, kind",  # each activation behind one of the two norms; both of relu, with the schemes
    [("relu", "rmsnorm")]
    + [pytest.param(*one, marks=[] if place % 4 in (0, 3) else [pytest.mark.slow]) for place, one in enumerate(OTHERS)],
)
def test_an_activation_agrees_with_the_reference(act, kind):
    """sub-ln, since its inner norm makes the most of both."""
    check("sub-ln", act, kind, (3,))


@pytest.mark.slow
@pytest.mark.parametrize("act", ACTIVATIONS)
@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_agrees_with_the_reference(name, act):
    for kind in NORM_KINDS:
        check(name, act, kind, (1, 2, 24) if is_costly(name, act) else (1, 2, 3, 7, 24))


@pytest.mark.parametrize("name", ["rezero", "skipinit", "fixup"])
def test_trained_branch_weights_agree_with_the_reference(name):
    for act, num, opt in itertools.product(ACTIVATIONS, (1, 5), ("sgd", "adam")):
        found = predict(name, opt, num, activation=act).roles["branch_weight"]
        wanted = reference(net(name, num), act, "layernorm")[opt]["branch_weight"]
        assert math.isclose(found, wanted, rel_tol=1e-10, abs_tol=1e-300)


WITH_NORM = [name for name, found in SCHEMES.items() if found.stack.placement.pre or found.stack.placement.post]
gains = st.floats(-2, 2).map(lambda x: 10**x)


@settings(max_examples=30)
@given(
    name=st.sampled_from(WITH_NORM),
    act=st.sampled_from(ACTIVATIONS),
    kind=st.sampled_from(NORM_KINDS),
    opt=st.sampled_from(OPTIMIZERS),
    pairs=st.lists(st.tuples(gains, gains), min_size=2, max_size=30),
    one_sided=st.sampled_from(["both", "w", "v"]),
)
def test_uneven_gains_agree_with_the_reference(name, act, kind, opt, pairs, one_sided):
    of = net(name, len(pairs))
    lists = {"w": [w for w, _ in pairs], "v": [v for _, v in pairs]}
    lists = {key: values for key, values in lists.items() if one_sided in ("both", key)}
    found = predict_setting(Setting.of(name, opt, act, kind), len(pairs), **lists)
    assert agree(found, reference(Net(**{**vars(of), **lists}), act, kind)[opt], rel=1e-9)


@pytest.mark.parametrize("name", ["post-ln", "pre-ln", "sub-ln", "peri-ln"])
def test_each_place_of_a_norm_agrees_with_the_reference(name):
    """Layer by layer: the examples above are drawn, and need not meet every optimizer behind every norm."""
    for act, kind in itertools.product(("gelu", "tanh"), NORM_KINDS):
        wanted = reference(Net(**{**vars(net(name, 3)), **UNEVEN}), act, kind)
        for opt in OPTIMIZERS:
            assert agree(predict(name, opt, 3, activation=act, norm_kind=kind, **UNEVEN), wanted[opt]), (act, kind, opt)


@settings(max_examples=10)
@given(
    act=st.sampled_from(ACTIVATIONS),
    opt=st.sampled_from(OPTIMIZERS),
    pairs=st.lists(st.tuples(st.floats(0.05, 5), st.floats(0.05, 5)), min_size=1, max_size=12),
)
def test_uneven_gains_without_a_norm_agree_with_the_reference(act, opt, pairs):
    w, v = (list(column) for column in zip(*pairs, strict=True))
    wanted = reference(Net(**{**vars(net("t-fixup", len(pairs))), "w": w, "v": v}), act, "layernorm")[opt]
    assert agree(predict("t-fixup", opt, len(pairs), activation=act, w=w, v=v), wanted, rel=1e-9)


# ---------------------------------------------------------------------------------------- three ways, one number

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
    *(Setting.of("ln-scaling", opt, act) for opt in ("sgd", "adam") for act in ACTIVATIONS),
    *(Setting.of("t-fixup", opt, act) for opt in ("sgd", "lamb") for act in ("gelu", "silu", "tanh")),
    *(_custom("pre", a, opt=o, activation_=act) for a in ("0.9", "1.1", "1.5") for o, act in (("sgd", "relu"),
      ("adam", "gelu"), ("lars", "tanh"))),
    *(_custom(norm, a, activation_="gelu") for norm in ("sub", "peri") for a in ("0.9", "1.1", "1.5")),
]  # fmt: skip


@pytest.mark.parametrize("num, step", [(3001, 3), pytest.param(5000, 1, marks=pytest.mark.slow)])
def test_the_leap_is_the_recursion(num, step):
    for setting in LEAPS[::step]:
        far, near = by_leap(setting, num), by_recursion(setting, num)
        assert math.isclose(far.log10_update, near.log10_update, abs_tol=1e-11), setting
        assert agree(far, near.roles) or near.update == math.inf, setting


# ------------------------------------------------------------------------------------------------- how much work


def _count(monkeypatch) -> list[int]:
    calls = [0]

    def counted(*args, **kwargs):
        calls[0] += 1
        return transfer(*args, **kwargs)

    monkeypatch.setattr(recursion, "transfer", counted)
    return calls


@pytest.mark.parametrize("name", BY_KIND)
def test_a_milliard_sublayers_cost_no_walk(name, monkeypatch):
    calls = _count(monkeypatch)
    for opt, act in (("sgd", "gelu"), ("adam", "relu")):
        calls[0] = 0
        found = predict(name, opt, 10**9, activation=act)
        assert found.log10_update > -12 or SCHEMES[name].stack.branch_weight == 0
        assert calls[0] < 100_000  # of 10^9


@pytest.mark.parametrize("factor", ["1.1", "10"])
def test_a_stream_beyond_the_floats_is_carried(factor):
    """a > 1: the first layers are all, and the rest, whose stream leaves the floats, adds nothing."""
    for norm, (opt, act) in itertools.product(("pre", "sub", "peri"), (("sgd", "tanh"), ("adam", "relu"))):
        setting = _custom(norm, factor, opt=opt, activation_=act)
        few = by_recursion(setting, 290)
        for many in (predict_setting(setting, 4000), predict_setting(setting, 10**9)):
            assert agree(many, few.roles)


def test_a_residual_weight_near_one_is_walked_to_the_end():
    setting = _custom("pre", "1.01")
    assert agree(by_leap(setting, 21_000), by_recursion(setting, 21_000).roles)


def test_gains_of_ones_own_cost_one_step_each(monkeypatch):
    """10^6 of them take some ten seconds; here it is the number of steps that counts."""
    calls, num = _count(monkeypatch), 20_000
    w, v = ([1 + (i % n) / 10 for i in range(num)] for n in (7, 5))
    assert math.isfinite(predict("pre-ln", "sgd", num, w=w, v=v).log10_update)
    assert calls[0] == num


# ----------------------------------------------------------------------------------------------- known relations


@pytest.mark.parametrize("opt", ("sgd", "lamb"))
@pytest.mark.parametrize("one, other", [("admin", "pre-ln"), ("normformer", "sub-ln")])
def test_two_schemes_are_one(one, other, opt):
    for (act, kind), num in itertools.product((("relu", "layernorm"), ("tanh", "rmsnorm")), (1, 5)):
        pair = [predict(name, opt, num, activation=act, norm_kind=kind) for name in (one, other)]
        assert agree(pair[0], pair[1].roles, rel=1e-14)


@settings(max_examples=30)
@given(pairs=st.lists(st.tuples(gains, gains), min_size=1, max_size=12), act=st.sampled_from(["relu", "identity"]))
def test_admin_is_pre_ln_under_uneven_gains(pairs, act):
    w, v = (list(column) for column in zip(*pairs, strict=True))
    pair = [predict(name, "sgd", len(w), activation=act, w=w, v=v) for name in ("admin", "pre-ln")]
    assert agree(pair[0], pair[1].roles)


@settings(max_examples=8)
@given(c=gains, name=st.sampled_from(["pre-ln", "post-ln", "ln-scaling", "t-fixup", "peri-ln"]), num=st.integers(1, 9))
def test_a_homogeneous_branch_sees_only_the_product_of_its_gains(c, name, num):
    of = net(name, num)
    scaled = {"w": [c * w for w in of.w], "v": [v / c for v in of.v]}
    for opt, power in (("sgd", 2), ("adam", 1), ("muon", 1), ("lars", 0), ("lamb", 0)):
        before, after = (predict_setting(Setting.of(name, opt), num, **lists) for lists in ({}, scaled))
        wanted = {"fc1": before.roles["fc1"] / c**power, "fc2": before.roles["fc2"] * c**power}
        assert agree(after, wanted), opt


@given(c=gains, opt=st.sampled_from(["lamb", "lars"]), kind=st.sampled_from(NORM_KINDS), num=st.integers(1, 9))
def test_sub_ln_under_lamb_sees_its_gains_only_against_the_input(c, opt, kind, num):
    """Gains w -> c w, v -> c v change nothing once the branches weigh as before beside the input (b = 1/c)."""
    even = predict(custom_scheme("sub"), opt, num, norm_kind=kind)
    small = custom_scheme("sub", branch_weight=(1 / Fraction(c), Fraction(0)), gain=(Fraction(c), Fraction(0)))
    assert agree(predict(small, opt, num, norm_kind=kind), even.roles)


@pytest.mark.parametrize(
    "c, kind", [(Fraction(1, 3), "layernorm"), pytest.param(Fraction(5), "rmsnorm", marks=pytest.mark.slow)]
)
def test_sub_ln_under_lamb_forgets_its_gains_with_depth(c, kind):
    """The input is counted, so the invariance is of the order and its constant, not of each depth."""
    scaled = custom_scheme("sub", gain=(c, Fraction(0)))
    ratio = [predict(s, "lamb", 10**n, norm_kind=kind).update for n in (0, 3, 6, 9) for s in (scaled, "sub-ln")]
    misses = [abs(one / other - 1) for one, other in zip(ratio[::2], ratio[1::2], strict=True)]
    assert misses[0] > 0.1 and misses[3] < 0.01
    assert all(later < earlier / 4 for earlier, later in itertools.pairwise(misses))


@given(c=gains, kind=st.sampled_from(NORM_KINDS), opt=st.sampled_from(OPTIMIZERS), num=st.integers(1, 9))
def test_sub_ln_forward_does_not_see_the_inner_gain(c, kind, opt, num):
    before, after = (predict("sub-ln", opt, num, norm_kind=kind, w=[x] * num) for x in (1.0, c))
    power = {"sgd": 2, "adam": 1, "muon": 1}.get(opt, 0)
    assert agree(after, {"fc1": before.roles["fc1"] / c**power, "fc2": before.roles["fc2"]})


def test_post_ln_relu_sgd_is_two_thirds_a_sublayer():
    for num in (1, 2, 24, 1000, 10**9):
        assert math.isclose(predict("post-ln", "sgd", num).update, 2 * num / 3, rel_tol=1e-15)


@given(pairs=st.lists(st.tuples(gains, gains), min_size=1, max_size=30), kind=st.sampled_from(["pre", "post", "none"]))
def test_the_gradient_telescopes_for_a_homogeneous_activation(pairs, kind):
    """D_l = 1/q_l before a final norm; constant over q_l without norms; constant under post-norm."""
    name = {"pre": "pre-ln", "post": "post-ln", "none": "t-fixup"}[kind]
    walk = recursion._Walk(Setting.of(name, "sgd"), lambda i: (1.0, 1.0, 1.0, *pairs[int(i) - 1]))
    streams, ratios = [1.0], []
    for i in range(1, len(pairs) + 1):
        ratios.append(walk.transfer(walk.letters(i), walk.stream)[0].gradient_ratio)
        walk.step(i)
        streams.append(walk.stream)
    for i, ratio in enumerate(ratios):
        assert math.isclose(ratio, streams[i + 1] / streams[i], rel_tol=1e-12)  # D_{l-1}/D_l = q_l/q_{l-1}


def test_roles_add_up_to_the_update():
    for name, opt in itertools.product(SCHEMES, ("sgd", "adam")):
        found = predict(name, opt, 7)
        assert found.update == found.roles["fc1"] + found.roles["fc2"]
        assert set(found.roles) - {"fc1", "fc2"} <= {"branch_weight"}


@pytest.mark.parametrize(
    "opt, power",
    [("sgd", 0), ("lamb", 0), ("adam", -0.5)]
    + [pytest.param(opt, 0, marks=pytest.mark.slow) for opt in ("momentum", "muon", "lars")]
    + [pytest.param(sign, -0.5, marks=pytest.mark.slow) for sign in ("adamw", "signsgd", "lion", "sophia", "rmsprop")],
)
def test_depth_mup_scales_the_learning_rate_of_sign_type_optimizers(opt, power):
    num = 16
    same = custom_scheme("pre", branch_weight=(Fraction(1), Fraction(-1, 2)))
    wanted = predict(same, opt, num).update * num**power
    assert math.isclose(predict("depth-mup", opt, num).update, wanted, rel_tol=1e-14)


@pytest.mark.parametrize("name", ["rezero", "skipinit"])
def test_zero_branches_move_only_their_weight(name):
    for opt, num in itertools.product(OPTIMIZERS, (1, 8, 10**9)):
        found = predict(name, opt, num)
        assert (found.update, found.log10_update) == (0, -math.inf)
    assert predict(name, "sgd", 8).roles["branch_weight"] == 4.0  # 8 E relu^2


def test_an_overflowing_update_is_told_by_its_logarithm():
    found = predict("post-ln", "sgd", 10**6, activation="gelu")
    assert found.update == math.inf and math.isfinite(found.log10_update)


# ----------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "change, said",
    [
        ({"scheme": "pre-lnn"}, "pre-ln"),
        ({"scheme": "deepnom"}, "deepnorm"),
        ({"optimizer": "adma"}, "adam"),
        ({"activation": "geluu"}, "gelu"),
        ({"norm_kind": "layernrom"}, "layernorm"),
        *(({"num_sublayers": bad}, "num_sublayers") for bad in (0, -1, True, 10**13, 2.0, "8", None, math.nan)),
        ({"scheme": "sub-ln-gamma", "num_sublayers": 1}, "sub-ln-gamma"),
        ({"w": [1.0]}, "1 gains for 2"),
        ({"v": [1.0, 1.0, 1.0]}, "3 gains for 2"),
        ({"w": []}, "0 gains for 2"),
        *(({"w": [1.0, bad]}, "w of sublayer 2") for bad in (0.0, -1.0, math.nan, math.inf, -math.inf)),
        *(({"v": [bad, 1.0]}, "v of sublayer 1") for bad in (0.0, -1.0, math.nan, math.inf, "1", None, 1j)),
    ],
)
def test_bad_input_is_refused_in_one_line(change, said):
    asked = {"scheme": "pre-ln", "optimizer": "sgd", "num_sublayers": 2, **change}
    with pytest.raises(ValueError, match=said) as error:
        predict(**asked)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change", [{"norm": "prepre"}, *({law: (Fraction(bad), Fraction(0))} for law in ("residual_weight", "gain")
                                    for bad in (0, -1))]
)  # fmt: skip
def test_a_bad_custom_scheme_is_refused(change):
    with pytest.raises(ValueError, match=r"pre|positive"):
        custom_scheme(change.pop("norm", "pre"), **change)


# ------------------------------------------------------------------------------------------------------- mutants

# (scheme, optimizer, activation, norm kind): the reference comparison on these must go red for every mutant.
UNEVEN = {"w": [0.5, 2.0, 1.5], "v": [1.5, 0.7, 3.0]}
CASES = [
    ("sub-ln", "sgd", "relu", "layernorm"),
    ("sub-ln", "adam", "relu", "layernorm"),
    ("pre-ln", "sgd", "relu", "layernorm"),
    ("ln-scaling", "lamb", "gelu", "layernorm"),
    ("deepnorm", "sgd", "gelu", "layernorm"),
    ("depth-mup", "adam", "tanh", "layernorm"),
    ("t-fixup", "lars", "relu", "layernorm"),
    ("completep", "sgd", "relu", "rmsnorm"),
]


def _mutant(change: Callable[[Transfer, dict], Transfer], before: Callable[[dict], dict] = dict) -> Callable:
    def mutated(placement, norm_kind, moments, **letters):
        changed = before({"moments": moments, **letters})
        return change(transfer(placement, norm_kind, changed.pop("moments"), **changed), changed)

    return mutated


def keep(t: Transfer, _: dict) -> Transfer:
    return t


MUTANTS = {
    "centring dropped": _mutant(keep, lambda k: {**k, "moments": k["moments"]._replace(variance=k["moments"].second)}),
    "v and w swapped": _mutant(keep, lambda k: {**k, "gain_in": k["gain_out"], "gain_out": k["gain_in"]}),
    "gradient without skip": _mutant(
        lambda t, k: t._replace(gradient_ratio=t.gradient_ratio - k["residual_weight"] ** 2)
    ),
    "gradient by the skip only": _mutant(lambda t, k: t._replace(gradient_ratio=k["residual_weight"] ** 2)),
    "branch weight once": _mutant(lambda t, k: t._replace(fc2_square=t.fc2_square / (k["branch_weight"] or 1))),
    "fc1 for fc2": _mutant(lambda t, _: t._replace(fc1_square=t.fc2_square)),
    "increment lost": _mutant(lambda t, k: t._replace(stream=k["stream"])),
    "input scale forgotten": _mutant(keep, lambda k: {**k, "input_scale": 1}),
}


def red() -> list[tuple]:
    """The cases that disagree with the reference, layer by layer."""
    wrong = []
    for name, opt, act, kind in CASES:
        wanted = reference(Net(**{**vars(net(name, 3)), **UNEVEN}), act, kind)[opt]
        if not agree(predict(name, opt, 3, activation=act, norm_kind=kind, **UNEVEN), wanted):
            wrong.append((name, opt))
    return wrong


def red_closed() -> list[tuple]:
    """The cases whose closed form, made anew, disagrees with the reference."""
    wrong = []
    for name, opt, act, kind in [*CASES, ("gpt2", "sgd", "relu", "rmsnorm"), ("post-ln", "sgd", "gelu", "rmsnorm")]:
        setting = Setting.of(name, opt, act, kind)
        form = closedform.closed_form(setting)
        if form and not agree(from_closed_form(setting, form, 3), reference(net(name, 3), act, kind)[opt]):
            wrong.append((name, opt))
    return wrong


def test_the_cases_of_the_mutants_agree_unbroken():
    assert not red() and not red_closed()


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_sublayer_is_seen_in_the_recursion(mutant, monkeypatch):
    monkeypatch.setattr(recursion, "transfer", MUTANTS[mutant])
    assert red()


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m not in ("increment lost", "input scale forgotten")])
def test_a_broken_sublayer_is_seen_in_the_closed_form(mutant, monkeypatch):
    monkeypatch.setattr(closedform, "transfer", MUTANTS[mutant])
    assert red_closed()


@pytest.mark.parametrize("room, check", [(recursion, red), (closedform, red_closed)])
def test_a_lost_two_over_pi_is_seen(room, check, monkeypatch):
    right = room.role_values
    monkeypatch.setattr(room, "role_values", lambda *args: right(*args[:-1], S.One if room is closedform else 1.0))
    assert {opt for _, opt in check()} >= {"adam"}


def test_an_input_that_is_not_counted_is_seen(monkeypatch):
    right = recursion._Walk.__init__

    def without_input(self, *args):
        right(self, *args)
        self.stream = self.admin = 1e-9

    monkeypatch.setattr(recursion._Walk, "__init__", without_input)
    assert ("pre-ln", "sgd") in red()
    monkeypatch.setattr(
        closedform, "_growing_stream_sum", lambda eps, kappa, p: (eps * GrowthSum(L_ + 1, S.One, kappa - 1), "")
    )
    assert ("pre-ln", "sgd") in red_closed()


@pytest.mark.parametrize("gain", ["1/10", "1/100", "1/10000000000"])
def test_small_branches_of_one_s_own_take_no_digits(gain: str) -> None:
    """1/s is then a large whole number, whose digamma sympy writes out: 8,000 digits at 1/10, and no end at 1/10^10."""
    own = custom_scheme("pre", gain=(Fraction(gain), Fraction(0)))
    setting = Setting.of(own, "sgd", "relu", "layernorm")
    form = closedform.closed_form(setting)
    assert form is not None
    short, long = (from_closed_form(setting, form, length) for length in (50, 10**6))
    assert short.update == pytest.approx(predict_setting(setting, 50).update, rel=1e-12)
    order = update_order(setting)
    assert sympify(str(order.coefficient)) == 2 / Rational(gain) ** 2
    assert len(str(form.roles["fc1"])) < 200
    s = float(Fraction(gain)) ** 4 / 2  # what a branch adds to a stream of 1
    exact = float(Fraction(gain)) ** 2 / s * math.log1p(1e6 * s)  # the sum over l of g^2/(1 + s l), as an integral
    assert long.update == pytest.approx(exact, rel=2 * s + 1e-5)

# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 4. Pre-LN, Sub-LN and the log laws: does $\sqrt{\log L}$ make the update flat?
#
# Pre-LN models train at depths where Post-LN gives up. The paper of [Magneto](https://arxiv.org/abs/2210.06423) has a
# reason: one SGD step changes a Post-LN model by an amount that grows as the number of layers, a Pre-LN model only as
# its logarithm. Sub-LN, with one more norm inside each branch, has a logarithm too, and the paper removes it with a
# gain: draw the matrices $\gamma = \sqrt{\log L}$ times as large, and the update no longer depends on depth.
#
# If you train deep models with a norm inside the branch (Sub-LN, NormFormer, and what torchscale builds by default),
# this matters to you: a learning rate that was tuned at few layers is then safe at many. We take the printed bounds,
# the exact answer at infinite width and real networks, and put them on one plot. One number, $\kappa$, decides who is
# right.

# %%
import matplotlib.pyplot as plt
import numpy as np
import sympy as sp

import depthlaw as dl
from depthlaw import sims, theory
from depthlaw.paper_checks.pages.prose import formula, name_curves, pick, say, style, table

# Of paper_checks.pages.prose: pick(full, fast=few): few where a test runs this; say: a paragraph with computed numbers;
# table: rows; formula: a formula set apart.
style()

# %% [markdown]
# ## What the paper prints
#
# A network here is $L$ residual sublayers with two matrices each, and one logit at the end. $v_l$ and $w_l$ are the
# gains of the second and the first matrix of sublayer $l$, $d$ is the width, $\eta$ the learning rate:
#
# $$\text{Pre-LN:}\quad x_l = x_{l-1} + W_2\,\phi(W_1\,\mathrm{LN}(x_{l-1})),$$
# $$\text{Sub-LN:}\quad x_l = x_{l-1} + W_2\,\mathrm{LN}(\phi(W_1\,\mathrm{LN}(x_{l-1}))).$$
#
# The update is what one SGD step changes the logit by, to first order. The theorems bound it from above, for any gains.
# We do not copy the bounds: `theory.bounds.update` derives them, and a test holds them against what is printed, term by
# term.

# %%
from depthlaw.theory.asymptotics.evaluate import evaluate as number
from depthlaw.theory.symbols import L

pre, sub = theory.derive_bound("pre-ln"), theory.derive_bound("sub-ln")
say("Theorem 3.1, the update of Pre-LN over $\\eta d$, is at most")
formula(pre.factorised)
say("Theorem 3.2, of Sub-LN, at most")
formula(sub.factorised)
say("With all gains equal to one $\\lambda$ they are one number, of order log L ($H_n$: harmonic):")
formula(sub.uniform, pre.uniform)

# %% [markdown]
# Between an exact calculation and these bounds lie a few replacements. Each is a step of the derivation, with what it
# does to the result. Watch the first: it counts the activation as if there were none.

# %%
table({"step": step.name, "effect": step.effect, "what is assumed": step.condition} for step in sub.steps)

# %% [markdown]
# ## What one sublayer really does
#
# At infinite width nothing needs to be bounded. Two numbers travel through the stack: the second moment of the stream,
# $q_l$, forwards, and the squared gradient, $D_l$, backwards. `theory.stack.transfer` is all that a sublayer does to
# them; here it is with symbols in place of numbers. $E$ is the mean over a Gaussian preactivation.

# %%
from functools import partial

from depthlaw.theory.stack import BranchMoments, NormKind

second, variance, slope, q, v, w = sp.symbols("E\\phi^2 Var\\phi E\\phi'^2 q_{l-1} v w", positive=True)
letters = BranchMoments(second, variance, sp.S.Zero, sp.S.Zero, slope, sp.S.Zero)
one = partial(
    theory.transfer, stream=q, residual_weight=sp.S.One, branch_weight=sp.S.One, input_scale=sp.S.One, sqrt=sp.sqrt
)
for name, placement, kind in (
    ("Pre-LN", theory.PRE, NormKind.LAYERNORM),
    ("Sub-LN, LayerNorm inside", theory.SUB, NormKind.LAYERNORM),
    ("Sub-LN, RMSNorm inside", theory.SUB, NormKind.RMSNORM),
):
    found = one(placement, kind, letters, gain_in=w, gain_out=v)
    say(f"{name}: the branch adds this to the stream, and multiplies the gradient by that:")
    formula(found.increment, "q_l - q_{l-1}")
    formula(found.gradient_ratio, "D_{l-1} / D_l")

# %% [markdown]
# Call $\beta$ what the branch adds to the stream. The gradient grows by $1 + \kappa\,\beta / q_{l-1}$ where the stream
# grows by $1 + \beta / q_{l-1}$, and
#
# $$\kappa = \frac{w^2\,E\phi'^2}{E\phi^2} \quad\text{(Pre-LN, or RMSNorm inside)},$$
# $$\kappa = \frac{w^2\,E\phi'^2}{\mathrm{Var}\,\phi} \quad\text{(LayerNorm inside)}.$$
#
# If $\kappa = 1$, gradient and stream grow alike, the product over the layers telescopes to $D_l = 1/q_l$, and the sum
# over $l$ is harmonic: a logarithm. If $\kappa > 1$, the gradient outruns the stream, and the sum becomes
# $L^{\kappa - 1}$. A LayerNorm subtracts the mean of $\phi$ before it divides, so it divides by too little wherever
# $\phi$ has a mean, as ReLU has.


# %%
from depthlaw.theory.meanfield.closedform import symbolic_moments


def kappa(name, placement, kind):
    """Of an activation at gain one: what theory's sublayer adds to the gradient over what it adds to the stream."""
    moments = symbolic_moments(theory.activation(name), sp.S.One)
    found = theory.transfer(
        placement, kind, moments, stream=sp.S.One, residual_weight=sp.S.One, branch_weight=sp.S.One,
        input_scale=sp.S.One, gain_in=sp.S.One, gain_out=sp.S.One, sqrt=sp.sqrt,
    )  # fmt: skip
    return (found.gradient_ratio - 1) / found.increment


formula(sp.simplify(kappa("relu", theory.SUB, NormKind.LAYERNORM)), r"\kappa(\text{ReLU, LayerNorm inside})")
formula(sp.simplify(kappa("relu", theory.SUB, NormKind.RMSNORM)), r"\kappa(\text{ReLU, RMSNorm inside})")

# %%
from depthlaw.theory.asymptotics.evaluate import constant

NAMES = ("relu", "gelu", "silu", "tanh", "identity")
WHERE = {
    "Pre-LN": ("pre-ln", theory.PRE, NormKind.LAYERNORM),
    "Sub-LN, RMSNorm": ("sub-ln", theory.SUB, NormKind.RMSNORM),
    "Sub-LN, LayerNorm": ("sub-ln", theory.SUB, NormKind.LAYERNORM),
}


def order_text(scheme, name, kind):
    power, logs, _ = theory.update_order(theory.Setting.of(scheme, "sgd", name, kind.value)).powers
    return f"L^{float(constant(power)):.3f}" if power != 0 else "log L" if logs == 1 else "flat"


values = {(n, p): float(constant(kappa(n, *WHERE[p][1:]))) for n in NAMES for p in WHERE}
table(
    {"activation": n, **{p: f"{values[n, p]:.3f}, so {order_text(WHERE[p][0], n, WHERE[p][2])}" for p in WHERE}}
    for n in NAMES
)

# %%
from depthlaw.paper_checks.experiments.kernel_laws import law

figure, axes = plt.subplots(figsize=(7.2, 2.6))
marks = {"Pre-LN": ("#0072B2", "s"), "Sub-LN, RMSNorm": ("#56B4E9", "o"), "Sub-LN, LayerNorm": ("#D55E00", "^")}
for i, name in enumerate(NAMES):
    for shift, (place, (color, mark)) in zip((0.15, 0, -0.15), marks.items(), strict=True):
        axes.plot(values[name, place], i + shift, mark, color=color, label=place if i == 0 else None)
axes.axvline(1, color="black", linewidth=1)
axes.annotate("log L on this line", (1, len(NAMES) - 0.5), (6, 0), textcoords="offset points", fontsize=8)
axes.set(yticks=range(len(NAMES)), yticklabels=NAMES, ylim=(-0.5, len(NAMES) - 0.1))
axes.set(xlabel=r"$\kappa$ at gain one; the update grows as $L^{\kappa - 1}$ to its right")
axes.set_title("One number decides: the log law needs kappa = 1")
name_curves(axes)
plt.show()

# %%
powers = [constant(theory.update_order(theory.Setting.of("sub-ln", "sgd", n)).powers[0]) for n in NAMES]
say(
    f"""Log L is right where $\\kappa$ is exactly one: ReLU behind an RMSNorm, ReLU in Pre-LN, and no activation at all.
    With a LayerNorm inside, {sum(power > 0 for power in powers)} of the {len(NAMES)} activations leave the line, from a
    power of {float(min(p for p in powers if p > 0)):.2f} to one of {float(max(powers)):.2f}. That is no accident of
    these: $w^2 E\\phi'^2 \\ge \\mathrm{{Var}}\\,\\phi$ for every activation (Gaussian Poincaré inequality), with
    equality for straight lines alone. GELU leaves the line even in Pre-LN, but by
    a power of {values["gelu", "Pre-LN"] - 1:.3f}, which hides behind log L at any depth that one can build."""
)

# %% [markdown]
# ## The exponent, and how it is shown
#
# For equal gains the sum over all layers has a closed form: gamma functions, from products that telescope. It is not
# fitted and not extrapolated; its leading order is read off with named asymptotics, and then the whole expression is
# evaluated at depths far beyond any network to see that it gets there. `GrowthSum` is short for
#
# $$\mathrm{GrowthSum}(a,b,s) = \frac{1}{s}\left(\frac{\Gamma(a+s)\,\Gamma(b)}{\Gamma(a)\,\Gamma(b+s)} - 1\right).$$

# %%
from typing import cast

from depthlaw.theory.meanfield.closedform import ClosedForm

setting = theory.Setting.of("sub-ln", "sgd", "relu", "layernorm")
form, order = cast(ClosedForm, theory.closed_form(setting)), theory.update_order(setting)
say(f"The update of Sub-LN (ReLU, LayerNorm, gains one), because {form.why}:")
formula(form.update, r"U(L) / \eta d")
formula(sp.simplify(order.powers[0]), r"\text{power of } L = \kappa - 1")
say("Asymptotics that were used: " + "; ".join(order.shown_by[1:]) + ".")
table(
    {"L": f"{count:,}", "U / leading order": f"{ratio:.6f}", "size of the next term": f"{after:.1e}"}
    for count, ratio, after in theory.cross_check(form.update, L, order)
)

# %% [markdown]
# ## Bound, exact answer and real networks on one plot
#
# Lines are computed, points are measured: the update of real torch networks, gradients by autograd, from
# `sims/records/ffn-stacks.jsonl` (ReLU, LayerNorm, two widths), and Sub-LN behind an RMSNorm measured here and now.
# A network of finite width differs from the lines by a share of the order of $L/d$.

# %%
from depthlaw.paper_checks.pages.drawing import STYLES
from depthlaw.paper_checks.routes import recorded_stacks
from depthlaw.sims.measure import Question, collect

LENGTHS, DEPTHS = recorded_stacks.LENGTHS, np.unique(np.geomspace(1, 100_000, pick(60, fast=6)).astype(int))
SUB_LN = ("#117733", "^")
LINES = {
    "Pre-LN": ("pre-ln", "layernorm", *STYLES["pre-ln"]),
    "Sub-LN, LayerNorm": ("sub-ln", "layernorm", *SUB_LN),
    "Sub-LN, RMSNorm": ("sub-ln", "rmsnorm", "#88CCEE", "o"),
}
WIDTH, NETWORKS = pick((512, 16), fast=(32, 4))


def mean_field(scheme, kind, lengths):
    return np.array([dl.predict(scheme, "sgd", int(n), norm_kind=kind).update for n in lengths])


def measured(scheme, width):
    """By length, the mean update of the recorded networks, with its interval of 0.95."""
    return [sims.estimate(list(recorded_stacks.updates(scheme, "sgd", n, width).values())) for n in LENGTHS]


def live(kind):
    of_sub = {"scheme": dl.scheme("sub-ln"), "norm_kind": kind, "d_model": WIDTH}
    questions = [Question(config=dl.Network(num_sublayers=n, **of_sub).config("sgd")) for n in LENGTHS]
    return [sims.estimate(collect(question, range(NETWORKS))["sgd/update"]) for question in questions]


points = {(scheme, d): measured(scheme, d) for scheme in ("pre-ln", "sub-ln") for d in recorded_stacks.WIDTHS}
points |= {("rmsnorm", WIDTH): live("rmsnorm")}


# %%
def dots(axes, found, color, mark, lengths=LENGTHS, **options):
    """Means with their intervals."""
    means = [one.mean for one in found]
    ends = [[one.mean - one.low for one in found], [one.high - one.mean for one in found]]
    axes.errorbar(lengths, means, ends, fmt=mark, color=color, capsize=2, markersize=5, linewidth=1, **options)


figure, axes = plt.subplots(figsize=(7.2, 4.8))
at_ones = sub.uniform.xreplace({letter: sp.S.One for letter in sub.uniform.free_symbols - {L}})
printed = np.array([number(at_ones, {L: int(n)}) for n in DEPTHS])
axes.plot(DEPTHS, printed.astype(float), "--", color="black", linewidth=1.2)
for name, (scheme, kind, color, _) in LINES.items():
    line = mean_field(scheme, kind, DEPTHS)
    axes.plot(DEPTHS, line, color=color, linewidth=1.6)
    axes.annotate(
        name,
        (DEPTHS[-1], line[-1]),
        (4, -12 if name == "Pre-LN" else -3),
        textcoords="offset points",
        color=color,
        fontsize=9,
    )
for (scheme, width), found in points.items():
    _, _, color, mark = LINES[
        "Pre-LN" if scheme == "pre-ln" else f"Sub-LN, {'RMSN' if 'rms' in scheme else 'LayerN'}orm"
    ]
    hollow = {"mfc": "white", "alpha": 0.6} if width == min(recorded_stacks.WIDTHS) else {}
    dots(axes, found, color, mark, np.array(LENGTHS) * (1.06 if hollow else 1), **hollow)
axes.annotate("printed bound, both", (DEPTHS[-1], float(printed[-1])), (4, 2), textcoords="offset points", fontsize=9)
axes.set(xscale="log", yscale="log", xlabel="sublayers L", ylabel=r"update / $\eta d$", xlim=(1, 2_500_000))
axes.set_title("Filled: measured at the larger width, hollow: at the smaller one; bars: intervals of 0.95", fontsize=9)
figure.suptitle("Sub-LN with LayerNorm leaves its own bound", fontsize=11)
plt.show()

# %%
from depthlaw.theory.bounds.update import evaluate

over = next(n for n in range(1, 1000) if dl.predict("sub-ln", "sgd", n).update > evaluate(sub, v=[1] * n, w=[1] * n))
last = LENGTHS[-1]
bound_there = evaluate(sub, v=[1] * last, w=[1] * last)
deep, rms = points["sub-ln", max(recorded_stacks.WIDTHS)][-1], points["rmsnorm", WIDTH][-1]
exact = {kind: dl.predict("sub-ln", "sgd", last, norm_kind=kind).update for kind in ("layernorm", "rmsnorm")}
say(
    f"""With ReLU and LayerNorm the exact update of Sub-LN exceeds the printed bound from L = {over} on. Measured at
    {last} sublayers and width {max(recorded_stacks.WIDTHS)}: {deep.mean:.1f} [{deep.low:.1f}, {deep.high:.1f}] over
    {deep.num} networks, predicted {exact["layernorm"]:.1f}, against a bound of {bound_there:.1f}.
    Swap LayerNorm for RMSNorm and nothing else, and {rms.num} networks of width {WIDTH}, measured above, give
    {rms.mean:.2f} [{rms.low:.2f}, {rms.high:.2f}] where {exact["rmsnorm"]:.2f}
    is predicted, below the bound. Pre-LN with ReLU stays below it at every L: there the theorem holds, at equal
    gains."""
)


# %% [markdown]
# A logarithm is hard to tell from a small power by eye. So look at the slope of these curves, the power of $L$ that the
# update goes with from $L$ to $2L$. A log law sinks towards zero, a power law settles.


# %%
from depthlaw.sims.stats import slope_weights


def local_power(scheme, kind, lengths):
    return np.log2(mean_field(scheme, kind, 2 * lengths) / mean_field(scheme, kind, lengths))


far = np.unique(np.geomspace(4, 10**9, pick(40, fast=6)).astype(np.int64))
figure, axes = plt.subplots()
for name, (scheme, kind, color, _) in LINES.items():
    slopes = local_power(scheme, kind, far)
    axes.plot(far, slopes, color=color, linewidth=1.6)
    axes.annotate(
        name,
        (far[-1], slopes[-1]),
        (4, -10 if name == "Pre-LN" else 0),
        textcoords="offset points",
        color=color,
        fontsize=9,
    )
powers = {scheme: recorded_stacks.exponent(scheme, "sgd") for scheme in ("pre-ln", "sub-ln")}
for scheme, color, mark in (("pre-ln", *STYLES["pre-ln"]), ("sub-ln", *SUB_LN)):
    dots(axes, [powers[scheme]], color, mark, [float(np.exp(np.log(LENGTHS).mean()))])
axes.axhline(float(1 / (sp.pi - 1)), color="grey", linewidth=0.8, linestyle=":")
axes.annotate(r"$1/(\pi - 1)$", (2_000, float(1 / (sp.pi - 1))), (0, -11), textcoords="offset points", color="grey")
axes.set(xscale="log", ylim=(0, 0.9), xlim=(3, 10**11), xlabel="sublayers L", ylabel="local power of L")
axes.set_title("A power law settles, log laws sink; points: measured over the recorded depths")
plt.show()
found = {s: f"{one.mean:.2f} [{one.low:.2f}, {one.high:.2f}]" for s, one in powers.items()}
same = {s: float(slope_weights(np.log(LENGTHS)) @ np.log(mean_field(s, "layernorm", LENGTHS))) for s in powers}
held = [(one.low or 0.0) <= same[s] <= (one.high or 0.0) for s, one in powers.items()]
say(
    f"""Measured power of $L$ from {LENGTHS[0]} to {LENGTHS[-1]} sublayers, at infinite width by a line in $1/d$, with
    intervals at level {recorded_stacks.LEVEL}: Sub-LN {found["sub-ln"]} (the exact curve over the same depths:
    {same["sub-ln"]:.2f}), Pre-LN {found["pre-ln"]} ({same["pre-ln"]:.2f}). {sum(held)} of {len(held)} intervals hold
    the power of the exact curve. That the power ends at {float(1 / (sp.pi - 1)):.3f} is derived; no network of
    {LENGTHS[-1]} sublayers could show it."""
)

# %% [markdown]
# ## What $\gamma = \sqrt{\log L}$ then does not do
#
# With all gains $\gamma$ the bound falls by $\gamma^2$, so $\gamma^2 = \log L$ makes the *bound* flat. The rule can be
# derived, too (`depthlaw rule --norm sub`). But $\kappa$ of ReLU does not depend on the gain, so a LayerNorm inside
# leaves $L^{1/(\pi - 1)} / \log L$ standing.

# %%
gamma_bound, gamma_order = (
    theory.derive_bound("sub-ln-gamma"),
    theory.update_order(theory.Setting.of("sub-ln-gamma", "sgd")),
)
formula(gamma_bound.at_scheme, r"\text{bound at } \gamma = \sqrt{\log L}")
say("It is flat: it falls to its limit. The true update, from its closed form, as L grows:")
power, log_power, _ = gamma_order.powers
formula(
    L ** sp.simplify(power) * sp.log(L) ** log_power,
    r"U_{\text{LayerNorm}}(L)",
    r"\sim \text{a constant times}",
)
formula(
    theory.update_order(theory.Setting.of("sub-ln-gamma", "sgd", "relu", "rmsnorm")).coefficient,
    r"\lim U_{\text{RMSNorm}}(L)",
)

# %%
from matplotlib.ticker import NullLocator

RMS_GAMMA, kernel = "#AA4499", {k: law("sub-ln-gamma", "sgd", norm_kind=k) for k in ("layernorm", "rmsnorm")}
gamma_points = [measured("sub-ln-gamma", d) for d in recorded_stacks.WIDTHS]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.9))
deep = np.unique(np.geomspace(2, 10**7, pick(40, fast=6)).astype(int))
left.plot(deep, [float(number(gamma_bound.at_scheme, {L: int(n)})) for n in deep], "--", color="black", linewidth=1.2)
for kind, color in (("layernorm", STYLES["sub-ln-gamma"][0]), ("rmsnorm", RMS_GAMMA)):
    left.plot(deep, mean_field("sub-ln-gamma", kind, deep), color=color)
dots(left, gamma_points[0], *STYLES["sub-ln-gamma"])
dots(left, gamma_points[1], *STYLES["sub-ln-gamma"], np.array(LENGTHS) * 1.1, mfc="white", alpha=0.6)
left.set(xscale="log", yscale="log", xlabel="sublayers L", ylabel=r"update / $\eta d$", title="FFN stack")
left.text(3e4, 55, "LayerNorm", color=STYLES["sub-ln-gamma"][0])
left.text(3e4, 1.3, "RMSNorm", color=RMS_GAMMA)
left.text(2e2, 3.3, "printed bound", fontsize=8)
left.set_ylim(1, 1000)
for (kind, role), color, text in (
    (("layernorm", "update"), STYLES["sub-ln-gamma"][0], "matrices, LayerNorm"),
    (("layernorm", "norm_gain"), "#DDAA33", "norm gains, LayerNorm"),
    (("rmsnorm", "update"), RMS_GAMMA, "matrices, RMSNorm"),
):
    curve = {n: u for n, u in kernel[kind].of(role).items() if n >= 4}
    right.plot(list(curve), np.array(list(curve.values())) / curve[4], "o-", markersize=3, color=color, label=text)
right.set(xscale="log", yscale="log", xlabel="layers N", ylabel="update / update at four layers")
right.set_title("Real Transformer, softmax attention")
right.set_yticks([1, 2, 5], ["1", "2", "5"])
right.yaxis.set_minor_locator(NullLocator())
name_curves(right)
figure.suptitle(r"Sub-LN with $\gamma = \sqrt{\log L}$ under SGD")
plt.show()

# %%
ends = {k: (one.updates[4], one.updates[1000]) for k, one in kernel.items()}
gains = kernel["layernorm"].of("norm_gain")
over = {}
for kind in kernel:
    line = mean_field("sub-ln-gamma", kind, LENGTHS)
    over[kind] = [one.mean / value for found in gamma_points for one, value in zip(found, line, strict=True)]
shown = {n: [dl.predict("sub-ln-gamma", "sgd", n, norm_kind=k).update for k in kernel] for n in (8, 64, 10**3, 10**6)}
table({"L": f"{n:,}", "LayerNorm": with_ln, "RMSNorm": with_rms} for n, (with_ln, with_rms) in shown.items())
say(
    f"""In a real Transformer an attention has no activation on its value path ($\\kappa = 1$), so only every other
    sublayer pushes. From four layers to a thousand, the update of its matrices
    grows by a factor of {ends["layernorm"][1] / ends["layernorm"][0]:.2f}, that of the norm gains, which a default
    model trains too, by {gains[1000] / gains[4]:.1f}. With RMSNorm inside, the matrices' update changes by a factor of
    {ends["rmsnorm"][1] / ends["rmsnorm"][0]:.2f}, where a flat one would have 1. The points on the left, measured with
    LayerNorm at widths {recorded_stacks.WIDTHS[0]} and {recorded_stacks.WIDTHS[1]}, are {min(over["layernorm"]):.2f} to
    {max(over["layernorm"]):.2f} times the LayerNorm curve, and {min(over["rmsnorm"]):.2f} to {max(over["rmsnorm"]):.2f}
    times that of RMSNorm."""
)

# %% [markdown]
# ## For any gains?
#
# The theorems allow every sublayer its own gains. That clause fails for both, with LayerNorm or without, and it needs
# nothing exotic: let the gains grow by a factor from one sublayer to the next. Of the steps above, look for those that
# *lower* the result: an upper bound must not have any.

# %%
FACTORS = np.geomspace(0.25, 12, pick(60, 12))


def over_bound(scheme, kind, factor, length=4):
    gains = [float(factor) ** i for i in range(length)]
    exact = dl.predict(scheme, "sgd", length, norm_kind=kind, w=gains, v=gains).update
    return exact / evaluate(theory.derive_bound(scheme), v=gains, w=gains)


figure, axes = plt.subplots(figsize=(7.2, 3.2))
for name, (scheme, kind, color, _) in LINES.items():
    axes.plot(FACTORS, [over_bound(scheme, kind, factor) for factor in FACTORS], color=color, label=name)
axes.axhline(1, color="black", linewidth=1)
axes.set(xscale="log", yscale="log", xlabel="gain of a sublayer over that of the one before")
axes.set_ylabel("exact update / bound")
axes.set_xticks([0.25, 0.5, 1, 2, 5, 10], ["1/4", "1/2", "1", "2", "5", "10"])
axes.xaxis.set_minor_locator(NullLocator())
axes.set_title("Four sublayers whose gains grow: above the line, the theorem is false")
name_curves(axes)
plt.show()
example = [1.0, 3.0, 9.0, 27.0]
truth, allowed = dl.predict("pre-ln", "sgd", 4, w=example, v=example).update, evaluate(pre, v=example, w=example)
say(
    f"""With gains {", ".join(f"{g:g}" for g in example)} and ReLU, Pre-LN moves by {truth:.3f} and its bound is
    {allowed:.3f}, a factor of {truth / allowed:.2f}. Faster growth breaks it by any factor."""
)

# %% [markdown]
# ## What is known of each claim
#
# The verdicts are the project's own, each from several independent checks. `depthlaw explain ID` shows them.

# %%
table(
    {"claim": i, "what is said": dl.claim(i).summary, "verdict": dl.claim(i).expected.value.upper()}
    for i in ("S2-08", "S2-10", "S2-13", "S2-21", "S3-10", "S3-14", "S2-20", "S2-24")
)

# %% [markdown]
# A claim takes the verdict of its worst part. The others may hold:

# %%
from depthlaw.paper_checks import Verdict

table(
    {"claim": i, "part": part.name, "verdict": part.expected.value.upper()}
    for i in ("S3-10", "S2-08", "S2-24")
    for part in dl.claim(i).parts
)
parts = {verdict: [p.name for p in dl.claim("S2-24").parts if p.expected is verdict] for verdict in Verdict}
say(
    f"""Of S2-24 what is refuted is the guarantee that is derived ({"; ".join(parts[Verdict.REFUTED])}), not that
    training is stable: {", ".join(parts[Verdict.UNDECIDED]) or "nothing"} is undecided."""
)

# %% [markdown]
# ## What to remember
#
# - **One number decides.** $\kappa$, what a branch adds to the gradient over what it adds to the stream. Where it is
#   one, the update grows as $\log L$; else as $L^{\kappa - 1}$.
# - **The log law of Pre-LN with ReLU stands**, and so does that of Sub-LN with ReLU behind an RMSNorm. Sub-LN with ReLU
#   and LayerNorm, the network of the paper, grows as $L^{1/(\pi - 1)}$ in an FFN stack.
# - **$\gamma = \sqrt{\log L}$ flattens the bound, not the update**, wherever $\kappa > 1$: with ReLU behind a
#   LayerNorm, above all. If you build Sub-LN with ReLU and want the rule to hold, put an RMSNorm inside.
# - **The bounds do not hold for any gains**; at equal gains (10) holds with ReLU, (12) with ReLU and RMSNorm, for the
#   branch matrices.
# - This is the first step, at one input, as the width goes to infinity. That a growing first step makes training
#   unstable is not shown here, and not by the papers' bounds either.
#
# ## Go on
#
# - `depthlaw predict --scheme sub-ln-gamma --optimizer sgd --sublayers 8,64,1000000 --norm-kind rmsnorm`, and the same
#   with `layernorm`; `depthlaw measure` with the same options builds the networks.
# - `depthlaw explain S3-10`, `depthlaw explain S2-13`: all parts, routes and counterexamples.
# - Next: [notebook 5](05_deepnet_constants.ipynb), where the constants of DeepNet come from;
#   [notebook 6](06_predicted_against_measured.ipynb), all schemes in real Transformers.

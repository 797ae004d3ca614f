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
# # 5. Where the constants of DeepNet come from, and which of them matter
#
# DeepNet trained a Transformer of a thousand layers with a table of formulas. Most of its rows are plain roots. One,
# of the encoder of an encoder-decoder, is not; you see it printed below. It stands in torchscale, and in what was
# copied from there. If you copy it, you may want to know what the decimals are made of, which assumption each of them
# rests on, and what would change if they were others. Here they are derived in front of you, to as many digits as you
# like, and then the argument itself is put to the test.

# %%
import matplotlib.pyplot as plt
import numpy as np
import sympy as sp

import depthlaw as dl
from depthlaw import sims, theory
from depthlaw.paper_checks.pages.prose import formula, pick, plain, quote, say, style, table
from depthlaw.theory.symbols import L, M, N, init_gain, residual_weight

# Of paper_checks.pages.prose: pick(full, fast=few): few where a test runs this; say: a paragraph with computed numbers;
# table: rows; formula: a formula set apart; quote: what a source prints, by claim.
style()
quote("DN-07")
BLUE, RED, GREY = "#0072B2", "#D55E00", "#777777"


def derive(*architecture, **options):
    return dl.solve_rule("post", "sgd", *architecture, with_alternatives=False, **options)


def gain_of(side):
    return side.member.values[init_gain]


def code(expr):
    return f"`{theory.compact(expr)}`"


# %% [markdown]
# ## The derivation, run live
#
# $\alpha$ multiplies the skip of a post-norm sublayer, $x_l = \mathrm{LN}(\alpha x_{l-1} + F(x_{l-1}))$; $\beta$, here
# $\lambda$, is the gain of the value, output and FFN matrices. $N$ and $M$ count the layers of encoder and decoder. The
# wish is that one SGD step moves the output by the same amount at every depth. `theory.rules.solve` solves it and
# writes down each step as it takes it:

# %%
from depthlaw.theory.tables import deepnet

rule = derive("encoder-decoder", "deepnet")
say("\n".join(f"{i}. {plain(step)}" for i, step in enumerate(rule.why, start=1)))

# %% [markdown]
# The decoder comes first: it ends in the output. Two equations, two unknowns. The family is "the update is one"; the
# choice within it, DeepNet's, is that the squared gains of a branch sum to $1/\alpha^2$.

# %%
decoder, encoder = rule.side("decoder"), rule.side("encoder")
formula(decoder.family.lhs, sign="=", left=sp.S.One)
formula(sp.Eq(2 * init_gain**2, 1 / residual_weight**2))
formula(sp.simplify(decoder.residual_weight**4), r"\alpha_d^4")
say(
    "The encoder reaches the output only through the M cross-attentions. Each passes on its branch, and they are added:"
)
formula(sp.simplify(encoder.coupling**4), r"c = M \frac{\lambda_d^2}{\alpha_d}, \qquad c^4")
say("Its own sum, over 2N sublayers, is multiplied by c, and solved in the same way:")
formula(encoder.family.lhs, left=sp.S.One)
formula(sp.simplify(encoder.residual_weight**16), r"\alpha_e^{16}")
formula(sp.simplify(gain_of(encoder) ** 16), r"\lambda_e^{16}")

# %%
at_one = {N: 1, M: 1}
constants = {"alpha": encoder.residual_weight.subs(at_one), "beta": gain_of(encoder).subs(at_one)}
table(
    {"constant": name, "exact": code(found), "to twenty digits": str(found.evalf(20)), "printed": printed}
    for (name, found), printed in zip(constants.items(), ("0.81", "0.87"), strict=True)
)
under, coupled = (
    sp.simplify(N**4 * M / encoder.residual_weight**16),
    sp.simplify(M / encoder.coupling**4),
)
say(
    f"""So the decimals are roots of {under}, and {under} is {coupled} over {coupled / under}: what stands in the
    coupling, over the fourth power of the two sublayers of a layer."""
)
table({name: f"`{cell}`" if "*" in str(cell) else cell for name, cell in row.items()} for row in deepnet().rows)

# %% [markdown]
# ## Which argument, which sum
#
# A constant is only as good as the counting behind it. Change one decision at a time and solve again. The first three
# lines differ in how the encoder is taken to pass the cross-attentions: its own update once, as DeepNet counts; its
# gradient too, as a chain rule has it; and, as independent random matrices have it, in mean square.

# %%
readings = {
    name: derive("encoder-decoder", "deepnet", coupling=name) for name in ("once", "own-gradient", "mean-square")
}
choices = {f"{name}, squared gains sum to 1/alpha^2": found for name, found in readings.items()}
choices |= {f"once, {name}": derive("encoder-decoder", name) for name in ("symmetric", "alpha-one")}
table(
    {
        "how": how,
        "alpha of the encoder": code(side.residual_weight),
        "its gain": code(gain_of(side)),
        "constants": f"{float(side.residual_weight.subs(at_one)):.4f}, {float(gain_of(side).subs(at_one)):.4f}",
    }
    for how, side in ((how, found.side("encoder")) for how, found in choices.items())
)

# %% [markdown]
# Not only the decimals change: the *power of M* does, and even its sign. So the exponent of $M$ hangs on the counting,
# which we come back to below, while the power of $N$ stays.
#
# ## The family: many constants, one update
#
# The equation $U = 1$ leaves a whole curve of pairs $(\alpha, \lambda)$. DeepNet's pair is one point of it, Su's
# $\lambda = 1/\alpha$ another; `depthlaw rule --select` walks along it. For an encoder, all of them have the same
# $\lambda/\alpha$ up to how the two matrices of a branch are counted.

# %%
from depthlaw.theory.schemes import OWN

SELECTIONS = {
    "deepnet": ("#000000", "v"),
    "symmetric": ("#44AA99", "p"),
    "alpha-one": ("#882255", "s"),
    "lambda-one": (BLUE, "o"),
}
members = {name: derive("encoder", name) for name in SELECTIONS}


def as_scheme(name):
    """The member as a network that theory predicts: its alpha and gain in L = 2N sublayers."""
    side = members[name].sides[0]
    a, gain = (expr.subs(N, L / 2) for expr in (side.residual_weight, gain_of(side)))
    return theory.Scheme(
        name=name, source=OWN, stack=theory.Stack(placement=theory.POST, residual_weight=a, gain_in=gain, gain_out=gain)
    )


rows = []
for name, found in members.items():
    side, others = found.sides[0], {o: code(theory.update_under(found, o)["encoder"]) for o in ("sgd", "adam", "lamb")}
    row = {"select": name, "alpha": code(side.residual_weight), "lambda": code(gain_of(side)), **others}
    exact = (f"{dl.predict(as_scheme(name), 'sgd', 2 * n).update:.4f}" for n in (6, 100))
    rows.append({**row, **dict(zip(("exact U, 6 layers", "exact U, 100"), exact, strict=True))})
table(rows)

# %%
from depthlaw.theory.rules.types import plainly

layers = 100
figure, axes = plt.subplots(figsize=(6.4, 3.8))
alphas = np.geomspace(0.7, 25, 50)
for name, color in (("deepnet", "black"), ("symmetric", GREY)):
    total = plainly(members[name].sides[0].update_sum.total).subs(N, layers)
    axes.plot(
        alphas,
        alphas / float(total.subs({residual_weight: 1, init_gain: 1})) ** 0.5,
        color=color,
        linewidth=1,
    )
for name, (color, mark) in SELECTIONS.items():
    side = members[name].sides[0]
    place = float(side.residual_weight.subs(N, layers)), float(gain_of(side).subs(N, layers))
    axes.plot(*place, mark, color=color, markersize=8)
    axes.annotate(name, place, (-8, 8), textcoords="offset points", color=color, ha="right")
axes.set(xscale="log", yscale="log", xlabel=r"residual weight $\alpha$", ylabel=r"gain $\lambda$")
axes.set_title(
    f"Every point of a line moves the output alike ({layers} layers, SGD)\n"
    "black: every matrix counted, grey: every sublayer"
)
plt.show()

# %% [markdown]
# Under SGD and Adam the members stay alike (up to that count), since only $\lambda/\alpha$ enters; under LAMB, whose
# step grows with the weights, they part.

# %%
exact_u = {n: dl.predict(as_scheme("deepnet"), "sgd", 2 * n).update for n in (6, layers)}
say(
    f"""The exact $U$ of DeepNet's member (infinite width, one input, ReLU) is {exact_u[6]:.4f} at 6 layers and
    {exact_u[layers]:.4f} at {layers}, where the rule holds 1: a ReLU passes half of a second moment, which the
    magnitude argument leaves out."""
)

# %% [markdown]
# ## Where a constant matters, and where any would do
#
# Multiply $\lambda$ by any number: the update moves up or down, *at every depth alike*. That is a factor on the
# learning rate, which you tune anyway. Multiply it by a power of $N$, be it a sixteenth, and the flatness is gone.

# %%
deep = np.unique(np.geomspace(1, 10_000, pick(40, fast=4)).astype(int))


def variant(factor):
    stack = dl.scheme("deepnorm").stack
    gain = stack.gain_in * factor
    return theory.Scheme(
        name="variant", source=OWN,
        stack=theory.Stack(placement=theory.POST, residual_weight=stack.residual_weight, gain_in=gain, gain_out=gain),
    )  # fmt: skip


figure, axes = plt.subplots(figsize=(7.2, 4))
for factor, color, text in (
    (sp.S(2), BLUE, "gain times 2"),
    (sp.S.One, "black", "DeepNorm"),
    (sp.S.Half, BLUE, "gain times 1/2"),
    ((L / 2) ** sp.Rational(1, 16), RED, "gain times N^(1/16)"),
    ((L / 2) ** sp.Rational(-1, 16), RED, "gain times N^(-1/16)"),
):
    curve = [dl.predict(variant(factor), "sgd", 2 * int(n)).update for n in deep]
    axes.plot(deep, curve, color=color, linestyle="--" if color == RED else "-")
    axes.annotate(text, (deep[-1], curve[-1]), (4, -3), textcoords="offset points", color=color, fontsize=9)
axes.set(xscale="log", yscale="log", xlabel="layers N", ylabel="exact update under SGD", xlim=(1, 300_000))
axes.set_title("A constant is a learning rate; an exponent is a law")
plt.show()
# What two printed decimals do to an encoder's part of the update, which goes with (lambda/alpha)^2.
printed_ratio, exact_ratio = sp.Rational(87, 81) ** 2, (constants["beta"] / constants["alpha"]) ** 2
say(
    f"""Rounding to two decimals changes the encoder's part of the update by
    {100 * (float(printed_ratio / exact_ratio) - 1):.1f} %. Writing 1 for both constants would change it by
    {100 * (float(1 / exact_ratio) - 1):.0f} %, at every depth alike. What needs care is the power behind them."""
)

# %% [markdown]
# ## What the argument assumes: one number in place of a network
#
# DeepNet proves its theorems in a model of one dimension: a sublayer is the function
# $f(x) = \frac{\alpha + vw}{\sqrt{\alpha^2 + v^2 w^2}}\,x$. These are the replacements on the way
# to the bound:

# %%
bound = theory.derive_bound("deepnorm")
table({"step": s.name, "effect": s.effect, "what is assumed": plain(s.condition)} for s in bound.steps)
say("The slope of the model, which the gradient meets at every sublayer, is taken to be about one:")
formula(theory.scalar_slope(residual_weight, init_gain, init_gain), r"f'(x)")

# %% [markdown]
# About one, $2N$ times over, is not one. In a wide random network it is: branch and stream are uncorrelated there, so
# squares add where the scalar model adds numbers, and a ReLU sublayer hands on as much squared gradient as it gets. To
# see which of the two a network is, we build some, and compare the gradient at the input with that at the top.

# %%
WIDTH, SEEDS = pick((128, range(16)), fast=(32, range(4)))
slope = sp.lambdify(L, theory.scalar_slope(residual_weight, init_gain, init_gain).subs(
    {residual_weight: dl.scheme("deepnorm").stack.residual_weight, init_gain: dl.scheme("deepnorm").stack.gain_in}
))  # fmt: skip


def gradient_ratio(num_layers):
    """Of real FFN stacks of DeepNorm: the squared gradient at the input over that at the top, its mean over seeds."""
    network = dl.Network(scheme=dl.scheme("deepnorm"), num_sublayers=2 * num_layers, d_model=WIDTH)
    asked = sims.Question(config=network.config("sgd"), task=network.task, has_layers=True)
    ratios = []
    for found in sims.run(asked, SEEDS):
        low, top = (found.values[f"layer/encoder/{i}/gradient_square"] for i in (0, 2 * num_layers))
        ratios += [a / b for a, b in zip(low, top, strict=True)]
    return sims.estimate(ratios)


measured_at = pick((2, 4, 8, 16, 32), fast=(2, 8))
real = {n: gradient_ratio(n) for n in measured_at}


# %%
from typing import cast

from depthlaw.paper_checks.routes.recorded_stacks import LENGTHS, updates


def dots(axes, xs, found, color, mark, **options):
    means = [one.mean for one in found]
    ends = [[one.mean - one.low for one in found], [one.high - one.mean for one in found]]
    axes.errorbar(list(xs), means, ends, fmt=mark, color=color, capsize=2, markersize=4.5, linewidth=1, **options)


own = {
    residual_weight: dl.scheme("deepnorm").stack.residual_weight,
    init_gain: dl.scheme("deepnorm").stack.gain_in,
}
whole = cast(sp.Expr, bound.step("first order in the weights").uniform_after)
scalar_update = sp.lambdify(L, whole.subs(own), modules="numpy")
record = {n: sims.estimate(list(updates("deepnorm", "sgd", n, 512).values())) for n in LENGTHS}

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8))
left.plot(deep, slope(2.0 * deep) ** (4.0 * deep), color=RED)
left.text(2, 100, "scalar model", color=RED)
left.axhline(1, color=BLUE)
left.text(30, 0.5, "infinite width (ReLU)", color=BLUE)
dots(left, real, real.values(), "black", "o")
left.set(xscale="log", yscale="log", xlabel="layers N", ylabel="squared gradient, input over top", ylim=(0.3, 1e5))
left.set_title("How much the gradient grows on its way down")
right.plot(deep, scalar_update(2.0 * deep), color=RED)
right.text(1.5, 40, "scalar model itself", color=RED)
right.axhline(1, color="black", linestyle="--", linewidth=1)
right.text(300, 1.15, "DeepNet's bound", fontsize=8)
right.plot(deep, [dl.predict("deepnorm", "sgd", 2 * int(n)).update for n in deep], color=BLUE)
right.text(300, 0.3, "infinite width", color=BLUE)
dots(right, [n / 2 for n in record], record.values(), "black", "o")
right.set(xscale="log", yscale="log", xlabel="layers N", ylabel="update under SGD", ylim=(0.2, 1e5))
right.set_title("The update, DeepNorm's alpha and beta")
plt.show()

# %%
from depthlaw.theory.meanfield.closedform import ClosedForm

form = cast(ClosedForm, theory.closed_form(theory.Setting.of("deepnorm", "sgd", "relu")))
say(f"Infinite width, by theory: {form.why}.")
passes = next(n for n in range(1, 10**5) if slope(2.0 * n) ** (2 * n) > 2)
least, last = min(record), max(record)
say(
    f"""In the scalar model the slopes of all sublayers multiply to {slope(200.0) ** 200:.2f} at 100 layers and
    {slope(2000.0) ** 2000:.1f} at 1,000, at DeepNet's own $\\alpha$ and $\\beta$; they pass 2 at N = {passes}. So the
    bounds do not follow from the model in which they are proved (DN-02, DN-03, DN-08). In networks of width {WIDTH} the
    ratio of squared gradients, measured above, is {real[max(real)].mean:.2f}
    [{real[max(real)].low:.2f}, {real[max(real)].high:.2f}] at {max(real)} layers, where the model says
    {slope(2.0 * max(real)) ** (4 * max(real)):.1f}. And the recorded update of {last} sublayers at width 512 is
    {record[last].mean:.3f} [{record[last].low:.3f}, {record[last].high:.3f}], that of {least}
    {record[least].mean:.3f} [{record[least].low:.3f}, {record[least].high:.3f}]; the bound is 1."""
)
vanilla = theory.scalar_sensitivity(sp.S.One, sp.S.One, sp.S.One)
say(
    f"""A second look at the model: at $\\alpha = v = w = 1$, which is vanilla Post-LN, it says that a step changes
    nothing at all (sensitivity {vanilla}), while real Post-LN moves in proportion to its depth. A model that is false,
    and a conclusion that is true: the right reason is that contributions of random matrices add as squares."""
)

# %% [markdown]
# The right reason has a condition of its own: it needs an activation with $w^2 E\phi'^2 = E\phi^2$, as ReLU has, or
# small branches. With GELU, the gradient of vanilla Post-LN does grow with depth; DeepNorm's branches are small enough.
#
# ## The encoder's share: where the decimals came from, again
#
# The encoder's update was multiplied by the coupling $c$ once. But an encoder weight's *gradient* comes through the
# cross-attentions, and the *change* it makes goes through them again: $c^2$. In DeepNet's own one-dimensional count the
# encoder's share is then not one. In a wide network the $M$ cross-attentions add as squares, and it falls.

# %%
values = {residual_weight: encoder.residual_weight, init_gain: gain_of(encoder)}
share = {n: sp.simplify(plainly(r.side("encoder").update_sum.total).xreplace(values)) for n, r in readings.items()}
for name, expr in share.items():
    formula(expr, rf"\text{{encoder's share, counted {name}}}")
crossing = next(m for m in range(1, 10**4) if float(share["own-gradient"].subs(M, m)) > 1)

# %%
import math

from depthlaw.paper_checks.papers.deepnet.models import Scales, deepnet_scales, one_token
from depthlaw.paper_checks.papers.deepnet.runs import COUNTS, encoder_share

readers = np.unique(np.geomspace(1, 10_000, pick(40, fast=4)).astype(int))


def exact_scales(n, m):
    """DeepNet's table at N, M, with the encoder's exact constants."""
    here = {N: n, M: m}
    of_encoder = float(encoder.residual_weight.subs(here)), float(gain_of(encoder).subs(here))
    return Scales(of_encoder, (float(decoder.residual_weight.subs(here)), float(gain_of(decoder).subs(here))))


figure, axes = plt.subplots(figsize=(7.2, 4.2))
for name, color in (("own-gradient", RED), ("once", "black"), ("mean-square", BLUE)):
    axes.plot(readers, [float(share[name].subs(M, int(m))) for m in readers], color=color)
wide = [one_token(deepnet_scales(8, int(m)), 8, int(m))[0] for m in readers]
axes.plot(readers, wide, color=BLUE, linestyle="--")
of_record = {m: sims.estimate(encoder_share(exact_scales(n, m), (n, m))) for n, m in COUNTS if n == 8}
dots(axes, of_record, of_record.values(), "black", "o")
axes.text(1.2, 1.15, "once, as DeepNet counts")
axes.text(9, 0.2, "coherent, own gradient too", color=RED)
axes.text(20, 0.04, "independent: mean square", color=BLUE)
axes.text(1.5, 0.004, "dashed: infinite width, one token\npoints: measured, four tokens", fontsize=8)
axes.axvline(crossing, color=RED, linewidth=0.8, linestyle=":")
axes.set(xscale="log", yscale="log", xlabel="decoder layers M", ylabel="encoder's share of the update", ylim=(1e-4, 5))
axes.set_title("The encoder's share at DeepNet's alpha and beta (N = 8)")
plt.show()
(first, start), (end, stop) = list(of_record.items())[:2]
power = np.log(stop.mean / start.mean) / np.log(end / first)
low, high = (one_token(exact_scales(8, m), 8, m)[0] for m in (end, first))
steep = np.log(low / high) / np.log(end / first)
has_fallen = (stop.high or math.inf) < (start.low or 0.0)
direction = "It falls, so that the printed constants are on the safe side" if has_fallen else "No fall is shown"
beside = [one.mean / one_token(exact_scales(8, m), 8, m)[0] for m, one in of_record.items()]
say(
    f"""Counted as the model is, the share is $M^{{1/4}}$ over {float(1 / share["own-gradient"].subs(M, 1)):.2f}
    and passes one at M = {crossing} (DN-07). Measured in real encoder-decoders it is {start.mean:.4f} [{start.low:.4f},
    {start.high:.4f}] at M = {first} and {stop.mean:.4f} [{stop.low:.4f}, {stop.high:.4f}] at M = {end}, a power of
    {power:.2f}; the closed form of infinite width and one token has {steep:.2f} there. {direction}. The points are
    {min(beside):.2f} to {max(beside):.2f} times the dashed line, which is of one token where the networks have four."""
)

# %% [markdown]
# ## And does it work?
#
# DeepNet's own picture is the update by depth, encoder-decoders of $N$ and $N$ layers. Here it is on record, at
# initialisation, of real networks, small and narrow as the paper's; "post-ln-init" is the paper's baseline
# that divides the weights of a layer by its place from the top.

# %%
from matplotlib.ticker import NullLocator

from depthlaw.paper_checks.pages.drawing import STYLES
from depthlaw.paper_checks.papers.deepnet.runs import DEPTHS, encoder_decoders

figure, axes = plt.subplots()
for name, style_name in (("post-ln", "post-ln"), ("post-ln-init", "post-ln-init"), ("deepnet", "deepnorm")):
    color, mark = STYLES[style_name]
    found = [sims.estimate(encoder_decoders(name, n)[0]) for n in DEPTHS]
    dots(axes, DEPTHS, found, color, mark)
    axes.plot(DEPTHS, [one.mean for one in found], color=color, linewidth=1)
    axes.annotate(name, (DEPTHS[-1], found[-1].mean), (8, -3), textcoords="offset points", color=color)
axes.set(xscale="log", yscale="log", xlabel="layers on either side, N = M", ylabel="update of the matrices, SGD")
axes.set_xticks(DEPTHS, [str(n) for n in DEPTHS])
axes.xaxis.set_minor_locator(NullLocator())
axes.set_xlim(5, 170)
axes.set_title("Recorded encoder-decoders of three schemes: the update by depth")
plt.show()
ends = [sims.estimate(encoder_decoders("deepnet", n)[0]) for n in (DEPTHS[0], DEPTHS[-1])]
inits = [sims.estimate(encoder_decoders("post-ln-init", n)[0]) for n in (DEPTHS[0], DEPTHS[-1])]
small = range(1, pick(40, fast=3))
beyond = [(n, m) for m in small for n in small if float(encoder.residual_weight.subs({N: n, M: m})) <= 1]
say(
    f"""DeepNet's update at {DEPTHS[0]} and {DEPTHS[-1]} layers: {ends[0].mean:.3f} [{ends[0].low:.3f},
    {ends[0].high:.3f}] and {ends[1].mean:.3f} [{ends[1].low:.3f}, {ends[1].high:.3f}]. Dividing
    the weights of a layer by its place gives {inits[0].mean:.3f} and {inits[1].mean:.3f}, in the end
    {inits[1].mean / ends[1].mean:.0f} times DeepNet's; a factor that depth does not change, a learning rate can undo.
    The long bars of Post-LN are of {5 * DEPTHS[-1]} sublayers at a small width. All this is of the matrices. Norm gains
    and biases, which a default model trains, grow (DN-10): notebook 6 has them."""
)
say(
    f"""One assumption on the side (DN-11): the proof asks for $\\alpha > 1$ and $\\beta > 1$. The gain is below one
    at every size, which must be a slip; and $\\alpha_e \\le 1$ for the {len(beyond)} pairs N, M below forty with
    $N^4 M \\le 27$, such as N = {beyond[0][0]}, M = {beyond[0][1]}. Small models only."""
)

# %%
table(
    {"claim": i, "what is said": plain(dl.claim(i).summary), "verdict": dl.claim(i).expected.value.upper()}
    for i in ("DN-04", "DN-06", "DN-07", "DN-02", "DN-03", "DN-08", "DN-09", "DN-10", "DN-11", "DN-14")
)

# %% [markdown]
# A claim takes the verdict of its worst part. The others may hold:

# %%
table(
    {"claim": i, "part": plain(part.name), "verdict": part.expected.value.upper()}
    for i in ("DN-07",)
    for part in dl.claim(i).parts
)

# %% [markdown]
# ## What to remember
#
# - **The decimals are roots of integers**, derived above. They come of a sum over $2N$ encoder sublayers, times a
#   coupling through $M$ cross-attentions, set to one, with the squared gains of a branch set to $1/\alpha^2$.
# - **They are one member of a family.** Under SGD any pair with the same $\lambda/\alpha$ moves the output alike;
#   `depthlaw rule --select` has the others. Constants are a matter of learning rate; exponents are not.
# - **The proof does not carry them**: its scalar model lets factors that are each about one multiply without end. Wide
#   random networks do carry them, since contributions add as squares.
# - **The power of M rests on counting a coupling once.** It is safe in wide networks, and not what either honest count
#   would give.
# - All of this is of the first SGD step, of the matrices. Adam wants another rule.
#
# ## Go on
#
# - `depthlaw rule --norm post --optimizer sgd --arch encoder-decoder --layers 6 --decoder-layers 6 --select deepnet`
# - `depthlaw explain DN-07` and `depthlaw explain DN-02`, with every route and counterexample.
# - Next: [notebook 6](06_predicted_against_measured.ipynb), predicted against measured in real Transformers.

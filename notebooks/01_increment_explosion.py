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
# # 1. Why N layers move N times as far
#
# Take one optimizer step with a shallow Transformer and one with a deep one, at the same learning rate. How much
# farther does the deep one move? If the answer is "in proportion to its depth", then a rate that is right for a
# shallow model throws a deep one far out in its very first step, before it has learnt anything. Su Jianlin, after
# Admin and DeepNet, calls this *increment explosion*, and everything else in these notebooks (residual weights,
# gains, smaller rates) is there to undo it.
#
# We show it three ways: by the formula, by the exact mean field, and on real networks in torch, which know nothing of
# either. Then we look at the two cures that the article names, and at what the argument does not say.

# %%
import matplotlib.pyplot as plt
import sympy as sp

import depthlaw as dl
from depthlaw import sims, theory
from depthlaw.paper_checks.pages.prose import formula, latex, pick, say, style, table, typeset

# Of paper_checks.pages.prose: pick(full, fast=few): few where a test runs this; say: a paragraph with computed numbers;
# table: rows; formula: a formula set apart; typeset: a claim's text with its formulas.
style()
WIDTH = pick(128, fast=16)
SEEDS = pick(range(24), fast=range(4))
LENGTHS = pick((2, 4, 8, 16, 32), fast=(2, 4))

# %% [markdown]
# ## One step
#
# Move the parameters $\theta$ by a small $\Delta\theta$. To first order the loss changes by
#
# $$\Delta\mathcal{L} \approx \langle \nabla_\theta\mathcal{L}, \Delta\theta\rangle.$$
#
# SGD steps against the gradient, $\Delta\theta = -\eta\nabla_\theta\mathcal{L}$ with learning rate $\eta$. Put that
# in. In `theory` an optimizer *is* its published update map, so this is a computation; here of one matrix with
# gradient entries $g_{ij}$:

# %%
sgd = dl.optimizer("sgd")
formula(sgd.loss_change.factor(), r"\langle G, \Delta\Theta\rangle")
say(f"for each matrix, `{sgd.loss_change_text}` (S1-02, {dl.claim('S1-02').expected.value}).")

# %% [markdown]
# A squared length is a sum over entries, so it is a sum over matrices, so it is a sum over layers. With $L$ residual
# sublayers ($L = 2N$ in an encoder of $N$ layers) that have matrices $W_1, W_2$ each,
#
# $$\Delta\mathcal{L} \approx -\eta\sum_{l=1}^{L}\left(\left\Vert\frac{\partial\mathcal{L}}{\partial W_1^l}\right\Vert^2
# + \left\Vert\frac{\partial\mathcal{L}}{\partial W_2^l}\right\Vert^2\right).$$
#
# Every term has the same sign: **no two layers can cancel**. If each gradient is of order one, as good initialisation
# and norms are meant to make it, the sum is $\mathcal{O}(L)$ (S1-03). That is all of the argument.
#
# From here on we look at one number, $U$: what one step changes a logit of the network by, to first order, per unit
# learning rate and over the width $d$. For SGD it is the sum above with the logit in the place of the loss, over $d$.
#
# ## Are the layers really alike?
#
# The argument needs gradients that are alike at every layer. So look at them, one by one. We build Post-LN stacks of
# FFN sublayers, $x_l = \mathrm{LN}(x_{l-1} + W_2\,\mathrm{relu}(W_1 x_{l-1}))$, many seeds at once, and take the
# gradient of a logit by autograd. Beside them Pre-LN, $x_l = x_{l-1} + W_2\,\mathrm{relu}(W_1\mathrm{LN}(x_{l-1}))$,
# and Post-LN with the gains and the residual weight that Su derives for SGD (`su-sgd`), of which more below.


# %%
from typing import Any

from depthlaw.network.lower import lower_ffn


def measured(scheme: str, num_sublayers: int, seeds: range = SEEDS, **asked: Any) -> dict[str, list[float]]:
    """By quantity, a value for each seed of real networks."""
    config = lower_ffn(scheme, "sgd", num_sublayers, asked.pop("width", WIDTH))
    found: dict[str, list[float]] = {}
    for chunk in sims.run(sims.Question(config=config, **asked), seeds):
        for name, values in chunk.values.items():
            found.setdefault(name, []).extend(values)
    return found


SCHEMES, DEEPEST = ("post-ln", "pre-ln", "su-sgd"), LENGTHS[-1]
CASES = [(scheme, length) for scheme in SCHEMES for length in LENGTHS]
NETWORKS = {(name, length): measured(name, length, has_layers=length == DEEPEST) for name, length in CASES}


# %%
from matplotlib.axes import Axes

from depthlaw.paper_checks.pages.drawing import STYLES


def draw(ax: Axes, scheme: str, xs: tuple[int, ...], found: list[sims.Estimate]) -> None:
    """Means with their intervals."""
    color, mark = STYLES[scheme]
    below = [one.mean - (one.low or 0.0) for one in found]
    above = [(one.high or 0.0) - one.mean for one in found]
    means = [one.mean for one in found]
    ax.errorbar(xs, means, (below, above), color=color, fmt=mark, ms=4.5, elinewidth=0.9, capsize=1.5)


def text_of(found: sims.Estimate | None) -> str:
    if found is None or found.low is None or found.high is None:
        return "not measured"
    return f"{found.mean:.2f}, interval {found.low:.2f} to {found.high:.2f}"


def part_of(scheme: str, layer: int) -> sims.Estimate:
    """The part of U that one sublayer has."""
    found = NETWORKS[scheme, DEEPEST]
    both = zip(found[f"sgd/layer/fc1/{layer}"], found[f"sgd/layer/fc2/{layer}"], strict=True)
    return sims.estimate([first + second for first, second in both])


# %%
layers = tuple(range(1, DEEPEST + 1))
fig, ax = plt.subplots()
for scheme in SCHEMES:
    parts = [part_of(scheme, layer) for layer in layers]
    draw(ax, scheme, layers, parts)
    ax.text(DEEPEST * 1.03, parts[-1].mean, scheme, color=STYLES[scheme][0], va="center")
exact = dl.predict("post-ln", "sgd", DEEPEST).update / DEEPEST
ax.plot([0, DEEPEST], [exact, exact], color=STYLES["post-ln"][0], lw=1, ls="--")
ax.set(yscale="log", xlim=(0, 1.17 * DEEPEST), xlabel="sublayer $l$", ylabel="its part of $U$")
falls = {scheme: part_of(scheme, DEEPEST).mean / part_of(scheme, 1).mean for scheme in SCHEMES}
told = ", ".join(f"{value:.2f} in {scheme}" for scheme, value in falls.items())
ax.set_title(f"The last part over the first: {told}")
plt.show()

# %% [markdown]
# Dashed: the part of one sublayer in the exact mean field of Post-LN. What a branch adds to the gradient on its way
# down, the norm behind it takes out again, so the gradient is as long at the first sublayer as at the last. (All
# points of a scheme are of the same networks, so they err together.) In Pre-LN the stream gets longer with every
# sublayer, and what a late branch adds turns a long stream by little: at infinite width its part falls as $1/l$.

# %% [markdown]
# ## The same sum, exactly
#
# At infinite width the sum can be done with nothing fitted and nothing neglected. The gradient's squared norm is
# multiplied by a number $\rho$ at every sublayer, and `theory` finds $\rho$ from Gaussian moments of the activation:

# %%
from depthlaw.theory.meanfield.update import cached_closed_form

form = cached_closed_form(theory.Setting.of("post-ln", "sgd"))
if form is not None:  # None where the product over the layers has no closed form
    formula(form.update, "U")
    say(f"since {form.why}.")

# %% [markdown]
# ## Three ways on one picture
#
# Lines: the exact mean field. Points: the mean over real networks, with its interval.

# %%
from depthlaw.theory.symbols import L, N

fig, ax = plt.subplots(figsize=(7.2, 4.2))
xs = [2**i for i in range(1, 11)]
for scheme in SCHEMES:
    draw(ax, scheme, LENGTHS, [sims.estimate(NETWORKS[scheme, length]["sgd/update"]) for length in LENGTHS])
    ys = [dl.predict(scheme, "sgd", x).update for x in xs]
    ax.plot(xs, ys, color=STYLES[scheme][0], lw=1.2)
    ax.text(xs[-1] * 1.1, ys[-1], scheme, color=STYLES[scheme][0], va="center")
ax.set(xscale="log", yscale="log", xlim=(1.7, 3600), xlabel="residual sublayers $L = 2N$")
ax.set_ylabel("update $U$ of a logit")
orders = {scheme: theory.update_order(theory.Setting.of(scheme, "sgd")) for scheme in SCHEMES}
goes = {scheme: L**order.power * sp.log(L) ** order.log_power for scheme, order in orders.items()}
told = ", ".join(f"{scheme} {'flat' if form == 1 else f'as ${latex(form)}$'}" for scheme, form in goes.items())
ax.set_title(f"The exact $U$, as $L$ grows: {told}")
plt.show()

# %%
rows = []
for scheme in SCHEMES:
    fit = sims.fit_exponent(
        LENGTHS,
        [NETWORKS[scheme, length]["sgd/update"] for length in LENGTHS],
        [dl.predict(scheme, "sgd", length).update for length in LENGTHS],
    )
    rows.append(
        {
            "scheme": f"`{scheme}`",
            "U as L grows, exact": orders[scheme].expression(L),
            f"exponent from {LENGTHS[0]} to {DEEPEST}, exact": fit.predicted,
            "exponent, measured": text_of(fit.measured),
        }
    )
table(rows)

# %%
import math
from statistics import stdev

few, many = (sims.estimate(NETWORKS["post-ln", length]["sgd/update"]).mean for length in (LENGTHS[0], DEEPEST))
times = dl.predict("post-ln", "sgd", DEEPEST).update / dl.predict("post-ln", "sgd", LENGTHS[0]).update
spread = {scheme: stdev(map(math.log, NETWORKS[scheme, DEEPEST]["sgd/update"])) for scheme in SCHEMES}
say(f"""
Real Post-LN of {DEEPEST} sublayers moves {many / few:.1f} times as far as one of {LENGTHS[0]}, with
{DEEPEST / LENGTHS[0]:.0f} times the sublayers; at infinite width it is {times:.1f}. Deep networks scatter: at {DEEPEST}
sublayers the standard deviation of $\\log U$ over {len(SEEDS)} networks is
{", ".join(f"{value:.2f} in `{scheme}`" for scheme, value in spread.items())}, so means need many seeds. All depths have
the same seeds, while the intervals of the exponents take depths as independent: they are approximate. Nothing is
fitted to the points: the lines were there first.
""")

# %% [markdown]
# ## Two cures
#
# **A smaller learning rate.** If $U$ grows as $L$, a rate of order $\eta/N$ cancels it (S1-04). The article adds that
# one may start there and raise the rate later, and that this is what warm-up does.
#
# **Smaller branches.** If every gradient is of order $1/\sqrt{L}$, their squares sum to order one at any depth
# (S1-05). `su-sgd` gets there with a residual weight above one and gains below one; notebook 3 derives both.

# %%
deep = 1000
rows = []
for scheme in SCHEMES:
    two, far = (dl.predict(scheme, "sgd", length).update for length in (2, deep))
    rows.append(
        {
            "scheme": f"`{scheme}`",
            "U at 2 sublayers": two,
            f"U at {deep}": far,
            "squared gradient of a sublayer, mean, times": far / deep / (two / 2),
            "rate that would undo it, times": two / far,
        }
    )
table(rows)
undo = {row["scheme"]: row["rate that would undo it, times"] for row in rows}
say(f"""
One rule does not fit all: $\\eta/N$ multiplies the rate by {2 / deep:g} from 2 to {deep} sublayers, and what undoes the
growth is {", ".join(f"{value:.2g} for {scheme}" for scheme, value in undo.items())}.
""")

# %% [markdown]
# ### Is a step of $\eta/N$ then as safe in a deep Post-LN as in a shallow one?
#
# First order says how fast a step sets out, not how far it goes straight. That can be measured: take the step for
# real, at larger and larger rates (everything trains), and note the largest rate up to which the logit does move by
# its first order, to a tenth of it.

# %%
SHORT = pick((2, 8, 32), fast=(2, 4))
NARROW, SOME = pick(64, fast=8), pick(range(8), fast=range(2))
reach: dict[str, list[list[float]]] = {"post-ln": [], "su-sgd": []}
for scheme, columns in reach.items():
    for length in SHORT:
        found = measured(scheme, length, SOME, width=NARROW, learning_rate=0.01)
        columns.append(found["sgd/linear_up_to"])

# %%
from matplotlib.ticker import NullLocator

fig, ax = plt.subplots(figsize=(7.2, 3.4))
for scheme, columns in reach.items():
    found = [sims.estimate(values) for values in columns]
    draw(ax, scheme, SHORT, found)
    ax.text(SHORT[-1] * 1.08, found[-1].mean, scheme, color=STYLES[scheme][0], va="center")
start = sims.estimate(reach["post-ln"][0]).mean
line = [start * SHORT[0] / x for x in SHORT]
ax.plot(SHORT, line, color="#555555", ls="--", lw=1)
ax.text(SHORT[-1] * 1.08, line[-1], "as $1/L$", color="#555555", va="center")
ax.set(xscale="log", yscale="log", xlim=(1.8, SHORT[-1] * 1.6), xlabel="residual sublayers $L$")
ax.set_xticks(SHORT, [str(x) for x in SHORT])
ax.xaxis.set_minor_locator(NullLocator())
ax.set_ylabel("largest linear learning rate")
ax.set_title(f"How far a first step of SGD goes straight, against depth (d = {NARROW}, 95 % intervals)")
plt.show()

# %%
slopes = {scheme: sims.fit_exponent(SHORT, columns).measured for scheme, columns in reach.items()}
for scheme, slope in slopes.items():
    say(f"- `{scheme}`: the largest linear rate goes as $L$ to the power {text_of(slope)}.")
post = slopes["post-ln"]
if post is not None and post.high is not None and post.high < -1:
    say("In Post-LN that is below $-1$: the range shrinks faster than $1/L$.")

# %% [markdown]
# So a rate of $\eta/N$ does cancel the first-order growth, which is what the claim says. Whether the step still does
# what its first order says is another matter, and asks for a rate of its own. This was measured on narrow stacks at
# these depths; no theory here derives the exponent.
#
# ### And warm-up?
#
# Warm-up makes the first steps small, the ones this argument is about. Whether that is what lets a deep Post-LN train
# is a question for training, and the project has trained small networks to ask it:

# %%
warm = dl.claim("S1-48")
say(f"**{warm.id}**, {warm.expected.value}: {typeset(warm.summary)}.")
for part in warm.parts:
    decides = f" To decide it: {part.open}." if part.open else ""
    say(f"- {part.name}: {part.expected.value}.{decides}")

# %% [markdown]
# ## What the argument does not say
#
# **That gradients are of order one.** That was the premise. With relu and gains of one it holds exactly. With another
# activation the same network may multiply the gradient by more than one at every sublayer:

# %%
from depthlaw.theory.tables import order_cells

rows, exponential = [], []
for activation in pick(("relu", "gelu", "silu", "tanh"), fast=("relu", "gelu")):
    order = theory.update_order(theory.Setting.of("post-ln", "sgd", activation)).restated(L, 2 * N)
    if order.power is sp.oo:  # faster than every power
        exponential.append(activation)
    rows.append(
        {
            "activation": activation,
            "U of N layers, as N grows": f"`{order_cells(order)['approximate']}`",
            "U at 64 sublayers": dl.predict("post-ln", "sgd", 64, activation=activation).update,
            f"log10 of U at {deep}": dl.predict("post-ln", "sgd", deep, activation=activation).log10_update,
        }
    )
table(rows)
say(f"""
Exponential growth, which no power of $N$ cancels: {", ".join(exponential) or "none of them"}. So "proportional to $N$"
is a statement about an activation, too.
""")

# %% [markdown]
# **That every optimizer sums squares.** Adam's first step is the sign of the gradient, so it sums sizes, not squares,
# and a cure that is right for SGD is wrong for it:

# %%
rows = []
for scheme in SCHEMES:
    orders = {
        name: theory.update_order(theory.Setting.of(scheme, name)).expression(L) for name in ("sgd", "adam", "lamb")
    }
    rows.append({"U as L grows": f"`{scheme}`", **orders})
table(rows)
few, many = (dl.predict("su-sgd", "adam", length).update for length in (32, deep))
say(f"`su-sgd` under Adam: U is {few:.3g} at 32 sublayers, {many:.3g} at {deep}. Notebook 3 solves it anew.")

# %% [markdown]
# **That a smaller update trains better, or that all that trains is counted.** A smaller $U$ is read as a promise of
# stability, and $U$ is of the matrices, while a default model trains norm gains and biases too. Both were looked into:

# %%
from depthlaw.paper_checks.verify.findings import finding_of

for name, question in (("S3-49", "Is smaller more stable?"), ("DN-10", "Is all that trains counted?")):
    say(f"*{question}* {name}, {dl.claim(name).expected.value}: {typeset(finding_of(name).text)}.")

# %% [markdown]
# `depthlaw explain` has what was found against each. Besides, all of this is of the first step, of one input, of FFN
# sublayers, with the exact lines at infinite width. Transformers with attention are in notebook 6, training in
# notebook 7.
#
# ## What to remember
#
# - One step of SGD changes the loss by minus the learning rate times the squared gradient: a sum of positive terms
#   over all layers, in which nothing cancels.
# - Where gradients are of order one at every layer (Post-LN, relu, gains of one, infinite width: exactly so), that is
#   in proportion to depth. The exponents measured above stand beside it.
# - A rate of order $1/N$ undoes the first-order growth of that network. It is too small for Pre-LN, not enough for
#   gelu, and how far a step goes straight is a question of its own.
# - Branches small enough to make gradients of order $1/\sqrt{L}$ undo it with the rate left alone.
# - It is a statement about the first step. It does not say who trains.
#
# ## Go on
#
# ```
# depthlaw predict --scheme post-ln --optimizer sgd --sublayers 8,64,1000000000
# depthlaw measure --scheme post-ln --optimizer sgd --sublayers 4,8,16,32 --width 256 --seeds 32 --no-keep
# depthlaw explain S1-03
# ```
#
# Claims: S1-01 to S1-05, S1-48. How Su finds the size of a gradient without computing it:
# [notebook 2](02_magnitude_and_probe.ipynb).

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
# # 9. What the papers print that does not hold
#
# If you scale a deep model by a formula from a paper, you trust a chain: a theorem, its proof, its assumptions, the
# constants, the network that it was drawn for. This project transcribed the statements of three sources as they are
# printed (Su's article, `S1`; Magneto, `S2`, and its slides, `S3`; DeepNet, `DN`) and what they cite (`LI`), and put
# each to the test under the hypotheses that its own source states. This notebook is about those that failed, each
# with its counterexample running in front of you: change a number and run it again.
#
# It is an audit, not a review. Most of what was checked holds; these papers are why depth is understood as well as it
# is; and nearly everything below fails for a reason that one sentence can name and one condition can mend.

# %%
import matplotlib.pyplot as plt
import sympy as sp
import torch

import depthlaw as dl
from depthlaw import sims, theory
from depthlaw.paper_checks.pages.prose import formula, name_curves, pick, quote, say, style, table, typeset

# Of paper_checks.pages.prose: pick(full, fast=few): few where a test runs this; say: a paragraph with computed numbers;
# table: rows; formula: a formula set apart; quote: what a source prints, by claim; typeset: a claim's text with its
# formulas.
style()
torch.set_num_threads(1)
torch.manual_seed(0)

# %%
from collections import Counter

from depthlaw.paper_checks import Verdict
from depthlaw.paper_checks.papers.magneto.theorems import PRE_BOUND, SUB_BOUND
from depthlaw.paper_checks.papers.registry import claims

PRINTED = {"pre-ln": PRE_BOUND, "sub-ln": SUB_BOUND}
counts = Counter(claim.expected.value for claim in claims().values())
by_source = {}
for name, claim in claims().items():
    by_source.setdefault(name.partition("-")[0], Counter())[claim.expected.value] += 1
table({"source": source} | {v.value: found[v.value] for v in reversed(Verdict)} for source, found in by_source.items())
say(f"""
**{counts["CONFIRMED"]} of {len(claims())} claims are confirmed as printed**, {counts["REFUTED"]} are refuted,
{counts["MISPRINT"]} are slips that the source itself sets right elsewhere, {counts["CONDITIONAL"]} are hedged in
the source and hold exactly under a condition, and {counts["UNDECIDED"]} are open. A claim takes the verdict of its
worst part, so a refuted one may be right in all but one of the networks that it speaks of.
""")

# %% [markdown]
# The claims that have a section below are judged anew where they stand, by every route but slow measurements, and
# `by_parts` says what of one holds and what fails.


# %%
from depthlaw.paper_checks.verify.document import check_claim


def by_parts(name):
    """What of a claim holds and what does not, judged now, and what holds instead where that is known."""
    parts = check_claim(name, with_mutants=False, quick=True)["parts"]
    holds = {
        verdict: [typeset(part["name"]) for part in parts if part["verdict"] == verdict.value] for verdict in Verdict
    }
    instead = {part["name"]: part["correction"] for part in parts if part["verdict"] == Verdict.REFUTED.value}
    known = {part: better for part, better in instead.items() if better}
    bare = [typeset(part) for part in instead if part not in known]
    lines = [f"**{name}, by its parts.**", ""]
    words = {
        Verdict.CONFIRMED: "Holds",
        Verdict.CONDITIONAL: "Holds under a condition",
        Verdict.UNDECIDED: "Open",
    }
    lines += [f"- {word}: {'; '.join(holds[verdict])}." for verdict, word in words.items() if holds[verdict]]
    lines += [f"- **Fails**: {typeset(part)}. Instead: {typeset(better)}." for part, better in known.items()]
    lines += [f"- **Fails**: {'; '.join(bare)}."] if bare else []
    say("\n".join(lines))


# %% [markdown]
# ## 1. Sub-LN is not logarithmic (S3-10, S3-14, S2-20, S3-12, S2-24)
#
# Magneto's slides print how a bound of the update grows with depth; here that order is read as the update's.
# Sub-LN's sublayer is
# $x + W_2\,\mathrm{LN}(\phi(W_1\,\mathrm{LN}(x)))$. The bound that the slides' order comes from takes the inner norm
# to divide by the root mean square of what it is given. A LayerNorm subtracts the mean first, and what comes out of a
# ReLU *has* a mean, so it divides by the smaller standard deviation, and every branch sends back more gradient than
# the sum allows for. The exact second moments of the network at infinite width say what becomes of that over depth:

# %%
from depthlaw.theory.symbols import L

quote("S3-10")
orders = {
    kind: theory.update_order(theory.Setting.of("sub-ln", "sgd", "relu", kind)) for kind in ("layernorm", "rmsnorm")
}
for kind, order in orders.items():
    power, log_power, _ = order.powers
    formula(L ** sp.cancel(power) * sp.log(L) ** log_power, rf"U_{{\text{{{kind}}}}}", r"\asymp")
say(f"The power of $L$ behind a LayerNorm is {float(orders['layernorm'].powers[0]):.3f}.")

# %%
import math

from depthlaw.paper_checks.routes import recorded_stacks

deep = [2**k for k in range(2, pick(21, fast=12))]
curves = {
    kind: [dl.predict("sub-ln", "sgd", num, norm_kind=kind).update for num in deep] for kind in ("layernorm", "rmsnorm")
}
measured = recorded_stacks.at_infinite_width("sub-ln", "sgd")
figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.5), dpi=90)
for (kind, values), color in zip(curves.items(), ("#D55E00", "#009E73"), strict=True):
    left.plot(deep, values, color=color, label=kind)
seen = measured.values()
ends = [[one.mean - (one.low or 0) for one in seen], [(one.high or 0) - one.mean for one in seen]]
left.errorbar(list(measured), [one.mean for one in seen], yerr=ends, fmt="o", color="black", markersize=3)
left.annotate("points: measured", (max(measured), 4), fontsize=8)
logs = [curves["rmsnorm"][0] * math.log(num) / math.log(deep[0]) for num in deep]
left.plot(deep, logs, color="grey", linestyle=":", label="printed: log L")
left.set(title="Sub-LN at gains 1: a power, not a logarithm", xlabel="L, sublayers", ylabel="update $U$ under SGD")
for kind, color in (("layernorm", "#D55E00"), ("rmsnorm", "#009E73")):
    values = [dl.predict("sub-ln-gamma", "sgd", num, norm_kind=kind).update for num in deep]
    right.plot(deep, values, color=color, label=kind)
right.set(title=r"Its gain $\sqrt{\log L}$, promised to be flat", xlabel="L, sublayers", ylabel="update $U$ under SGD")
for axes in (left, right):
    axes.set(xscale="log", yscale="log", xlim=(3, deep[-1]))
    name_curves(axes)
plt.show()

# %%
level = f"{recorded_stacks.LEVEL:.2%}"
say(f"""
Points: real PyTorch stacks from the project's record, carried to infinite width, with intervals of {level}. The gain
that Magneto derives from the logarithm, $\\gamma = \\sqrt{{\\log L}}$, keeps the update flat where the logarithm
holds, and otherwise not (right): so the guarantee that rests on it is not established. Whether training is stable is
another question, and open. What of the claim stands, part by part:
""")
by_parts("S3-10")

# %% [markdown]
# ## 2. For any gains? (S2-08, S2-13)
#
# Theorem 3.1 of Magneto bounds the update of Pre-LN, Theorem 3.2 that of Sub-LN, with $v_l$, $w_l$ the gains of the
# second and the first matrix of sublayer $l$, whatever they are. As printed:

# %%
from fractions import Fraction

from depthlaw.paper_checks.routes import second_meanfield
from depthlaw.paper_checks.routes.algebra import value_at
from depthlaw.paper_checks.routes.signal_propagation.update_bounds import LETTERS

formula(PRE_BOUND, r"\Delta F_{\text{pre}}", r"\;\le\; \eta d\;\cdot")
growing = [Fraction(3) ** k for k in range(4)]
exact = second_meanfield.update("pre-ln", growing, growing)
bound = value_at(PRE_BOUND, LETTERS, (growing, growing, len(growing)))
beside = "less than that" if bound < exact else "which holds here"
say(f"""
At $v_l = w_l = {", ".join(map(str, growing))}$ the exact update, added up in fractions, is {exact} =
{float(exact):.4f}; the bound is {bound} = {float(bound):.4f}, {beside}.
""")

# %%
from depthlaw.network.measuring import Kept

as_floats = tuple(map(float, growing))
net = dl.Network(scheme=dl.scheme("pre-ln"), num_sublayers=4, d_model=pick(256, fast=32), v=as_floats, w=as_floats)
real = sims.estimate(dl.measure(net, ["sgd"], range(pick(256, fast=16)), Kept(None))["sgd"].values["update"])
say(f"""
And real networks of those gains, {net.d_model} wide, {real.num} seeds, gradients by autograd: {real.mean:.3f}, with a
{sims.LEVEL:.0%} interval from {real.low:.3f} to {real.high:.3f}, beside a bound of {float(bound):.3f}.
""")

# %%
from depthlaw.paper_checks.pages.drawing import STYLES

ratios = {"pre-ln": [], "sub-ln": []}
steps = [Fraction(k, 4) for k in range(2, 25)]
for step in steps:
    gains = [step**k for k in range(4)]
    for name, printed in PRINTED.items():
        found = second_meanfield.update(name, gains, gains, norm_kind="rmsnorm")
        ratios[name].append(float(found / value_at(printed, LETTERS, (gains, gains, 4))))
figure, axes = plt.subplots(figsize=(6.6, 3.2), dpi=90)
for name, color in (("pre-ln", STYLES["pre-ln"][0]), ("sub-ln", STYLES["sub-ln-gamma"][0])):
    axes.plot([float(step) for step in steps], ratios[name], color=color)
    axes.annotate(f" {name}", (float(steps[-1]), ratios[name][-1]), color=color, va="center", fontsize=8)
axes.axhline(1, color="black", linewidth=0.8, linestyle="--")
axes.set(title="Above the line the printed bound is broken", yscale="log", ylabel="exact update over the printed bound")
axes.set(xlabel="t, of the gains $v_l = w_l = t^{l-1}$ of four sublayers (ReLU, RMSNorm)", xlim=(0, 7))
plt.show()

# %% [markdown]
# At equal gains, which is what the paper then initialises with, Theorem 3.1 holds for ReLU. The slip is small and
# instructive: a product over the sublayers above, $\prod_k (1 + s_k/S_{k-1})$ with $s_k = v_k^2 w_k^2$ and $S_k$
# their sums, is put as $1 + \sum_k s_k/S_{k-1}$, which is as large only while it is small. With the product the bound
# would hold, and be shorter.

# %%
by_parts("S2-08")
over = next(
    n
    for n in range(1, 40)
    if dl.predict("sub-ln", "sgd", n).update > value_at(SUB_BOUND, LETTERS, ([1] * n, [1] * n, n))
)
say(f"""
S2-13: Theorem 3.2 fails at gains 1 already, behind ReLU and LayerNorm, from {over} sublayers on (section 1 is why).
`depthlaw explain S2-13` has the networks in which it holds.
""")

# %% [markdown]
# ## 3. The activation is not a detail (S2-11)
#
# Magneto takes over from DeepNet that under SGD the update of plain Post-LN is $O(\sum_{l=1}^{L} v_l^2 + w_l^2)$.
# With ReLU, yes, for any gains. But many Transformers train with GELU, whose slope has a larger second moment
# than its value, so that every sublayer passes on a little more gradient than it received.

# %%
long = [2**k for k in range(1, 11)]
figure, axes = plt.subplots(figsize=(6.6, 3.2), dpi=90)
for activation, color in (("gelu", "#D55E00"), ("relu", "#0072B2")):
    values = [dl.predict("post-ln", "sgd", num, activation=activation).update / (2 * num) for num in long]
    axes.plot(long, values, color=color, marker=".")
    axes.annotate(f" {activation}", (long[-1], values[-1]), color=color, va="center", fontsize=8)
axes.axhline(1, color="black", linewidth=0.8, linestyle="--")
axes.set(title="Post-LN with GELU leaves every multiple of the bound", xscale="log", yscale="log", xlim=(1.5, 3000))
axes.set(xlabel="L, sublayers, gains 1", ylabel="update over the printed sum, $2L$")
plt.show()
late, later = (dl.predict("post-ln", "sgd", num, activation="gelu").update for num in (2000, 2001))
first = next(n for n in range(1, 200) if dl.predict("post-ln", "sgd", n, activation="gelu").update > 2 * n)
say(f"""
Each sublayer multiplies the update by {later / late:.4f} in the end. It exceeds the printed sum itself from {first}
sublayers on; in shallower models nothing shows.
""")
by_parts("S2-11")

# %% [markdown]
# ## 4. DeepNet's scalar model (DN-02, DN-03, DN-08, DN-09)
#
# DeepNet proves its bound in one dimension, where a sublayer is $f(x) = (\alpha x + v w x)/\sqrt{\alpha^2 + v^2
# w^2}$. Each sublayer's slope is then about one, and the proof takes their product over the network to be about one
# as well. Below is the model itself, at DeepNet's own $\alpha$ and $\beta$, differentiated by autograd.


# %%
def scalar_network(num_layers):
    """(slope over all 2N sublayers; how far theta_1 moves F, over the printed bound), d = 1, as printed."""
    alpha, beta = (2 * num_layers) ** 0.25, (8 * num_layers) ** -0.25
    thetas = [torch.tensor([beta, beta], dtype=torch.float64, requires_grad=True) for _ in range(2 * num_layers)]
    x = y = torch.ones((), dtype=torch.float64, requires_grad=True)
    for v, w in thetas:
        y = (alpha * y + v * w * y) / (alpha**2 + (v * w) ** 2).sqrt()
    by_x, by_theta = torch.autograd.grad(y, (x, thetas[0]))
    return float(by_x), float(by_theta.norm()) / (math.sqrt(2) * beta / alpha)


sizes = pick((2, 4, 8, 18, 50, 100, 200, 500), fast=(2, 18))
found = {num: scalar_network(num) for num in sizes}
stack = dl.scheme("deepnorm").stack
slope = theory.scalar_slope(stack.residual_weight or L**0, stack.gain_out, stack.gain_in)
figure, axes = plt.subplots(figsize=(6.6, 3.2), dpi=90)
product, over = zip(*found.values(), strict=True)
axes.plot(sizes, product, color="#D55E00", marker="o", label="product of the slopes, autograd")
axes.plot(sizes, over, color="black", marker="v", label=r"$\theta_1$ moved: $F$ over the bound")
product = [float(slope.subs(L, 2 * num).evalf()) ** (2 * num) for num in sizes]
axes.plot(sizes, product, color="#D55E00", linestyle=":", label="the same product, by theory")
axes.axhline(1, color="grey", linewidth=0.8, linestyle="--", label="printed: about 1; at most 1")
axes.set(title="Factors of about 1 multiply", xscale="log", yscale="log", xlabel="N, layers", ylabel="factor")
name_curves(axes)
plt.show()
say(f"""
At N = {sizes[-1]} the product is {found[sizes[-1]][0]:.3g}, and the bound is exceeded {found[sizes[-1]][1]:.3g}-fold.
""")
by_parts("DN-02")

# %% [markdown]
# So the theorem fails in the model that it is proved in, and holds where it is used: in a wide network a branch is
# uncorrelated with its stream, contributions add as squares, and the mean squared slopes multiply to one (with ReLU;
# with GELU at DeepNorm's own gains). DeepNorm's gains do what they should to these matrices, but not for that reason.
#
# ## 5. What DeepNorm leaves out (DN-10)
#
# DeepNet's goal is an update that does not grow, whatever the depth, and it counts the matrices. But a default model
# trains norm gains, norm biases and linear biases too, and a norm's bias adds straight to a stream whose gradient has
# one size all the way down. Real DeepNorm Transformers, measured as you read, beside the kernel rung's prediction:

# %%
quote("DN-10")
lengths, width = pick((2, 4, 8, 16, 32), fast=(2, 4)), 32
nets = [
    dl.Network(
        scheme=dl.scheme("deepnorm"), arch="encoder", num_sublayers=2 * n, d_model=width, num_heads=2, num_tokens=4
    )
    for n in lengths
]
values = [dl.measure(net, ["sgd"], range(pick(16, fast=2)), Kept(None))["sgd"].values for net in nets]
predictions = [net.theory("sgd") for net in nets]
groups = {"matrices": ["update"], "norm gains and biases": ["norm_gain", "norm_bias"], "linear biases": ["bias"]}
figure, axes = plt.subplots(figsize=(6.6, 3.4), dpi=90)
for (name, roles), color in zip(groups.items(), ("black", "#D55E00", "#0072B2"), strict=True):
    seen = [sims.estimate([sum(parts) for parts in zip(*(one[role] for role in roles), strict=True)]) for one in values]
    ends = [[one.mean - (one.low or 0) for one in seen], [(one.high or 0) - one.mean for one in seen]]
    axes.errorbar(lengths, [one.mean for one in seen], yerr=ends, fmt="o", color=color, markersize=4)
    parts = [one.update if name == "matrices" else sum(one.roles[r] for r in roles) / width for one in predictions]
    axes.plot(lengths, parts, color=color, linewidth=1)
    axes.annotate(f" {name}", (lengths[-1], parts[-1]), color=color, va="center", fontsize=8)
axes.set(
    title="DeepNorm: the matrices, and what else a default model trains", xscale="log", yscale="log", xlim=(1.8, 90)
)
axes.set(xlabel="N, layers", ylabel=f"part of the update $U$, width {width}")
axes.set_xticks(lengths, map(str, lengths))
axes.minorticks_off()
plt.show()
say(f"""
Points: measured, {sims.LEVEL:.0%} intervals over {len(values[0]["update"])} seeds; lines: predicted at infinite width.
The vectors' part is divided by the width, so this matters where depth is no longer small beside width (here it is not),
and a learning rate divided by L for the norms undoes it (notebook 8 prints the factor for your model).
""")
by_parts("DN-10")

# %% [markdown]
# ## 6. A smaller update, a more stable training? (S3-49, S3-04)
#
# Notebook 7 is about this one; here is its picture in numbers. Of the recorded searches for the largest learning rate
# at which a network trains:

# %%
from depthlaw.paper_checks.pages.training.runs import Record, count, judged_pairs
from depthlaw.paper_checks.routes.training.stable_rates import LOOKS

quote("S3-49")
record = Record.read("stable-rates")
pairs = judged_pairs(record.book, LOOKS[0])
both = {"smaller update, larger rate": count(pairs, True), "smaller update, smaller rate": count(pairs, False)}
both["open"] = len(pairs) - sum(both.values())
table({"pairs of schemes at one depth whose updates differ": name, "of them": number} for name, number in both.items())
by_parts("S3-49")

# %% [markdown]
# ## 7. Three short ones
#
# **Smaller than Pre-LN's? (S2-17, S3-09, S3-03.)** Said of Magneto where a sublayer explodes. One term of the bound
# is smaller; the whole bound is not where it is the first sublayer, and the true update at other gains one is larger
# wherever it is, with ReLU and LayerNorm.

# %%
rows, ones = [], [Fraction(1)] * 4
for place in range(4):
    w = [Fraction(100 if k == place else 1) for k in range(4)]
    bounds = {name: value_at(printed, LETTERS, (ones, w, 4)) for name, printed in PRINTED.items()}
    row = {f"bound of {name}": float(found) for name, found in bounds.items()}
    row |= {f"update of {name}": float(second_meanfield.update(name, ones, w)) for name in PRINTED}
    rows.append({"exploding sublayer": place + 1} | row)
table(rows)

# %% [markdown]
# **An average of tokens (DN-01).** Lemma 4.1 says that a softmax average has the magnitude of one token. At most
# that: not of opposite or many independent ones. **A LayerNorm's gradient (DN-15)** is printed as $O(\sqrt d/\lVert
# x\rVert)$; a mean that all entries share makes $\lVert x \rVert$ large and leaves the gradient where it is.

# %%
token = torch.ones(16, dtype=torch.float64)
average = torch.zeros(2, dtype=torch.float64).softmax(0) @ torch.stack([token, -token])
many = torch.randn(256, 64, dtype=torch.float64)
say(
    f"Length of a token {float(token.norm()):.3g}, of the average of it and its opposite {float(average.norm()):.3g}; "
    f"256 independent ones: {float(many.mean(0).norm() / many[0].norm()):.3g} of one."
)
norm, x, rows = torch.nn.LayerNorm(8, eps=0.0, elementwise_affine=False), torch.randn(8, dtype=torch.float64), []
for shift in (0.0, 10.0, 1000.0):
    jacobian = torch.autograd.functional.jacobian(norm, x + shift)
    spectral = float(torch.linalg.matrix_norm(torch.as_tensor(jacobian), 2))
    scaled = spectral * float((x + shift).norm()) / 8**0.5
    rows.append({"mean added to x": shift, "norm of the gradient, over sqrt(d)/‖x‖": scaled})
table(rows)

# %% [markdown]
# **Shown in other notebooks.** Su reads the size of a Xavier matrix off its gain, takes it for nearly orthogonal,
# probes $\partial L/\partial W$ by $\partial L/\partial \lambda$, and leaves out queries and keys (S1-07, S1-08, S1-10,
# S1-18): [notebook 2](02_magnitude_and_probe.ipynb). DeepNet's sum for an encoder-decoder, and its assumption that
# $\beta > 1$ (DN-07, DN-11): [notebook 5](05_deepnet_constants.ipynb). The encoder-decoder of Magneto (S2-18) fails as
# its Theorem 3.2 does, DeepNet's (DN-03) and plain Post-LN (DN-09) as the scalar model above.

# %%
known = [claim for claim in claims().values() if claim.expected is Verdict.REFUTED]
say(f"All {len(known)}, each in a sentence: `README.md`; with the evidence: `paper_checks/results/CLAIMS.md`.")

# %% [markdown]
# ## What to remember
#
# - Check a theorem in the network that you have: the norm's mean, the activation and unequal gains each break a
#   printed bound.
# - A bound proved in one dimension may fail there and hold in wide networks. DeepNorm's gains do what they should to
#   the matrices.
# - A default model trains more than matrices; what a derivation leaves out is where depth comes back in.
# - The counterexamples are of the first step, most at infinite width, and say so. A refuted claim is not a useless
#   scheme.
# - Most of what was checked stands. Nearly every failure has a name (a mean that was not subtracted, a product taken
#   for a sum, a factor that is about one, a role left out), and with it a condition under which the statement holds.
#
# ## Go on
#
# - `depthlaw explain S3-10`: what is printed, what holds instead, the counterexample and the derivation, of any claim.
# - `depthlaw verify S2-08 --mutants` checks one anew, and breaks the statement on purpose to see that the check
#   notices.
# - `CLAIMS.md` has all claims. To add one: `CONTRIBUTING.md`.

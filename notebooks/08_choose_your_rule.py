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
# # 8. Choosing the rule for your own model, in five minutes
#
# You are about to train something deep. Its depth is not that of anybody's recipe, its optimizer is not the one that
# the recipe was derived for, and the recipe you found on the internet says `(8N)**-0.25`. Which residual weight,
# which gain of which matrix, which learning rate of what keep one step of *your* model as far as one step of a
# shallow one?
#
# Write down what you have in the cell that begins with `PLACEMENT`, run the notebook, and read on. Every number below
# it is computed from these lines.
#
# Edit that cell here and run it here; nothing else is needed. The JupyterLab of `make lab` saves the change into
# `08_choose_your_rule.py` too. Other editors save this notebook alone, and `make notebooks`, which makes it anew from
# the `.py`, then leaves it as it is and says where to copy the change.

# %%
import matplotlib.pyplot as plt
import sympy as sp
import torch

import depthlaw as dl
from paper_checks.pages.prose import pick, say, style, table

# Of paper_checks.pages.prose: pick(full, fast=few): few where a test runs this; say: a paragraph with computed numbers;
# table: rows.
style()
torch.set_num_threads(1)

# %%
PLACEMENT = "post"  # where the norms stand: post, pre, or sub (before the branch and inside it)
OPTIMIZER = "adam"  # sgd momentum adam adamw rmsprop signsgd lion adafactor lars lamb muon sophia
ARCHITECTURE = "decoder"  # decoder (causal) or encoder
NUM_LAYERS = 48  # an attention and an FFN each
SHALLOW = 6  # layers of the model that you have tuned, to compare with; fewer than NUM_LAYERS
D_MODEL = 1024
NUM_HEADS = 16
ACTIVATION = "relu"  # relu, gelu, silu, tanh, identity or leaky_relu
NORM_KIND = "layernorm"  # or rmsnorm

# %%
from paper_checks.lowering.rule_document import NORMS

for setting, value, allowed in (
    ("PLACEMENT", PLACEMENT, NORMS),
    ("OPTIMIZER", OPTIMIZER, dl.OPTIMIZERS),
    ("ARCHITECTURE", ARCHITECTURE, ("decoder", "encoder")),
    ("ACTIVATION", ACTIVATION, dl.ACTIVATIONS),
    ("NORM_KIND", NORM_KIND, ("layernorm", "rmsnorm")),
):
    if value not in allowed:
        raise ValueError(f"{setting} is {value!r}, and has to be one of: {', '.join(allowed)}")
if not 1 <= SHALLOW < NUM_LAYERS:
    raise ValueError(f"SHALLOW is {SHALLOW} and NUM_LAYERS {NUM_LAYERS}; needed: 1 <= SHALLOW < NUM_LAYERS")
if D_MODEL % NUM_HEADS:
    raise ValueError(f"D_MODEL is {D_MODEL}, and has to be a multiple of NUM_HEADS, {NUM_HEADS}")


# %%
from theory.rules.solve import SideNumbers, SideRule, evaluate


def solved(placement: str) -> tuple[dl.Rule, SideRule, SideNumbers, sp.Expr]:
    """The rule, its one side, in numbers, and its learning rate: 1, but where no gain can do it."""
    rule = dl.solve_rule(placement, OPTIMIZER, ARCHITECTURE)
    [side] = rule.sides
    member = side.member if side.gain is not None else side.alternative("learning-rate")
    return rule, side, evaluate(rule, **{str(side.num_layers): NUM_LAYERS})[side.name], member.lr_multiplier


def rate_at(side, rate, num_layers):
    """The rule's learning rate at that depth over the one at SHALLOW, where yours was tuned."""
    return float(rate.subs(side.num_layers, num_layers) / rate.subs(side.num_layers, SHALLOW))


TOKENS = pick(16, fast=4)
rule, side, numbers, rate = solved(PLACEMENT)
own_rate = rate_at(side, rate, NUM_LAYERS)

# %% [markdown]
# An encoder-decoder has two sides that depend on each other; for one, ask
# `depthlaw rule --arch encoder-decoder --layers N --decoder-layers M`.
#
# ## 1. The rule
#
# Every sublayer is one of
#
# $$\underbrace{x \mapsto \mathrm{LN}\big(\alpha x + F(x)\big)}_{\text{post}} \qquad
#   \underbrace{x \mapsto x + F\big(\mathrm{LN}(x)\big)}_{\text{pre}} \qquad
#   \underbrace{x \mapsto x + W_2\,\mathrm{LN}\big(\phi(W_1\,\mathrm{LN}(x))\big)}_{\text{sub}}$$
#
# with a residual weight $\alpha$, and a gain $\lambda$ on the matrices of the branch $F$: `v` and `out` of an
# attention, `fc1` and `fc2` of an FFN. The rule is the $\alpha$ and $\lambda$ at which the first step's change of the
# function does not depend on the number of layers.

# %%
from textwrap import wrap

gains = numbers.init_gain or dict.fromkeys(("q", "k", "v", "out", "fc1", "fc2"), 1.0)
MATRICES = tuple(gains)
unscaled = [role for role in MATRICES if side.init_gain is None or side.init_gain[role] == 1]
scaled = [role for role in MATRICES if role not in unscaled]
lines = [("residual weight", numbers.residual_weight, side.formula["residual_weight"])]
if scaled:
    lines.append((f"gain of {', '.join(scaled)}", gains[scaled[0]], side.formula["init_gain"]))
lines.append((f"gain of {', '.join(unscaled)}", gains[unscaled[0]], "1"))
lines.append(("learning rate of the matrices, times", float(rate.subs(side.num_layers, NUM_LAYERS)), dl.compact(rate)))
table({"what": what, "value": value, "formula": f"`{text}`"} for what, value, text in lines)
if own_rate != 1:
    say(f"No gain can do it, so the matrices' learning rate does: {own_rate:.4g} times that at {SHALLOW} layers.")
say(f"{side.num_layers} counts layers; here it is {NUM_LAYERS}. The argument, as the code that makes it says it:")
argument = [line for step, text in enumerate(rule.why, start=1) for line in wrap(f"{step}. {text}", 108)]
say("\n".join(["```text", *argument, "```"]))

# %% [markdown]
# That is the papers' kind of argument: magnitudes and degree counting. It is not taken on faith. For a stack of FFNs
# the second moments are exact, and they have a leading order of their own:

# %%
from paper_checks.lowering.rule_document import mean_field

found = mean_field(rule, ACTIVATION)
say(f"*{found['says']}.*")

# %% [markdown]
# ## 2. What it does in a real Transformer
#
# Softmax attention, tokens that mix, heads of your size, every role by itself: $U$ is how far a first step of these
# parameters moves one logit, to first order and per unit learning rate (for this rule: at the learning rate that it
# asks for, over the one at the shallow depth), in units of a power of the width. Computed, not
# fitted; exact at infinite width. The same for three others at the same depths: the scheme that people copy (DeepNorm,
# whose gain `(8N)**-0.25` was derived for SGD), plain Post-LN and plain Pre-LN.


# %%
from paper_checks.lowering.predicted_rows import exponents, predicted_row


def network(scheme_, num_layers, d_model=D_MODEL, num_heads=NUM_HEADS, num_tokens=TOKENS):
    return dl.Network(
        scheme=scheme_,
        arch=ARCHITECTURE,
        is_causal=ARCHITECTURE == "decoder",
        num_sublayers=2 * num_layers,
        d_model=d_model,
        num_heads=num_heads,
        activation=ACTIVATION,
        norm_kind=NORM_KIND,
        num_tokens=num_tokens,
    )


def rows_of(scheme_, rates, num_layers):
    """What is predicted at each depth; the matrices at their learning rate of that depth."""
    out = {}
    for n, factor in zip(num_layers, rates, strict=True):
        row = predicted_row(network(scheme_, n).theory(OPTIMIZER))
        roles = {role: value * (factor if role in MATRICES else 1) for role, value in row["roles"].items()}
        out[n] = row | {"num_sublayers": 2 * n, "update": row["update"] * factor, "roles": roles}
    return out


depths = [SHALLOW, *(n for n in (12, 24) if SHALLOW < n < NUM_LAYERS), NUM_LAYERS]
mine = dl.rule_scheme(rule, side)
rows = {"this rule": rows_of(mine, [rate_at(side, rate, n) for n in depths], depths)}
for name in pick(("deepnorm", "post-ln", "pre-ln"), fast=("deepnorm",)):
    rows[name] = rows_of(dl.scheme(name), [1.0] * len(depths), depths)
growth = {name: exponents(list(found.values())) for name, found in rows.items()}
shallow, deep = rows["this rule"][SHALLOW], rows["this rule"][NUM_LAYERS]

# %%
import math
from textwrap import fill

from matplotlib.ticker import LogLocator

colors = {"this rule": "#CC79A7", "deepnorm": "#000000", "post-ln": "#D55E00", "pre-ln": "#0072B2"}
figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.6), dpi=90)


def draw(axes, curves):
    """Each curve by the depth, its name beside its end. Names of curves that run together share a label."""
    groups = []
    for name in sorted(curves, key=lambda name: curves[name][-1]):
        first = curves[groups[-1][0]] if groups else []
        near = [max(x, y) < 1.06 * min(x, y) for x, y in zip(first, curves[name], strict=bool(first))]
        if near and all(near) and name not in colors:
            groups[-1].append(name)
        else:
            groups.append([name])
    heights = [math.log(value) for curve in curves.values() for value in curve]
    low, high = min(heights) - 0.3, max(heights) + 0.3
    above = 0.0  # in parts of the panel's height, which one label must not share with the next
    for hue, group in enumerate(groups):
        color = colors.get(group[0], f"C{hue}")
        for name in group:
            axes.plot(depths, curves[name], color=color, marker="o", markersize=4)
        label = fill(", ".join(group), 20)
        half = 0.03 * (1 + label.count("\n"))
        place = max((math.log(curves[group[0]][-1]) - low) / (high - low), above + half)
        above = place + half
        at_end = {"xycoords": "axes fraction", "va": "center", "fontsize": 8}
        axes.annotate(label, (1.01, place), color=color, **at_end)
    axes.set_ylim(math.exp(low), math.exp(high))


draw(left, {name: [row["update"] for row in found.values()] for name, found in rows.items()})
left.set(title=f"All matrices together, {OPTIMIZER}", xlabel="layers", ylabel="$U$ of the branch matrices")
moved = {role: first for role, first in shallow["roles"].items() if first and role not in ("embedding", "head")}
draw(right, {role: [row["roles"][role] / first for row in rows["this rule"].values()] for role, first in moved.items()})
right.set(title=f"This rule, each role over itself at {SHALLOW} layers", xlabel="layers", ylabel="$U$ over its first")
for axes in (left, right):
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(depths, map(str, depths))
    axes.minorticks_off()
    axes.set_xlim(depths[0] / 1.1, depths[-1] * 1.1)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
plt.show()

# %%
from paper_checks.pages.transformers.growth import FLAT

deepnorm = network(dl.scheme("deepnorm"), NUM_LAYERS).config(OPTIMIZER).encoder[0]
its_gain = dl.compact(dl.scheme("deepnorm").stack.gain_in.subs(dl.L, 2 * side.num_layers))
theirs = [rows["deepnorm"][n]["update"] for n in (SHALLOW, NUM_LAYERS)]
its_slope = growth["deepnorm"]["update"] or 0.0  # None of an update that is zero, as no matrix has here
says = "so it is flat here too" if abs(its_slope) < FLAT else "which you would have to tune away again at every depth"
say(f"""
From {SHALLOW} to {NUM_LAYERS} layers the matrices' update goes from {shallow["update"]:.3g} to {deep["update"]:.3g}
under this rule, an exponent of {growth["this rule"]["update"]:.3f} in depth. With DeepNorm's residual weight and gain
(at {NUM_LAYERS} layers {deepnorm.residual_weight:.4g} and {deepnorm.gains["v"]:.4g}, which is `{its_gain}`) it goes
from {theirs[0]:.3g} to {theirs[1]:.3g}, exponent {its_slope:.3f}, {says}. The constant in front does not matter: a
learning rate absorbs it.
""")

# %% [markdown]
# ## 3. Who grows all the same, and the learning rate that undoes it
#
# The rule is about matrices. A default model trains norm gains and biases too, and the right panel above shows what
# they do. Since $U$ is per unit learning rate, a learning rate of a role alone, multiplied by its shallow $U$ over
# its deep $U$, keeps its part what it was in the shallow model that you have tuned.

# %%
from paper_checks.lowering.predicted_rows import lr_multipliers, shares

units = {role: network(mine, NUM_LAYERS).role_power(OPTIMIZER, role) for role in deep["roles"]}
both = [shallow, deep]
rates = {role: found[-1] for role, found in lr_multipliers(both).items()}
share_of = {role: found[-1] for role, found in shares(both, units, D_MODEL).items()}
table(
    {
        "role": f"`{role}`",
        "gain": gains.get(role),
        f"U, {SHALLOW} layers": shallow["roles"][role],
        f"U, {NUM_LAYERS} layers": deep["roles"][role],
        "exponent": "" if (power := growth["this rule"][role]) is None else f"{power + 0.0:.2f}",
        "learning rate, times": rates[role],
        f"over the matrices' update, at width {D_MODEL}": f"{share_of[role] or 0.0:.1%}",
    }
    for role in units
)
grows = [role for role in units if (growth["this rule"][role] or 0) > FLAT]
slower = {role: (rates[role] or 1.0) if role in grows else 1.0 for role in units}
slower |= {role: own_rate * slower[role] for role in MATRICES}
in_all = sum(share or 0.0 for share in share_of.values())
errors = max(value for found in rows.values() for row in found.values() for value in row["error"].values())
say(f"""
The last column is relative to the update of the matrices alone; all roles together make {in_all:.0%} of it. `bias`,
`norm_gain`, `norm_bias` and `embedding` are shown times a power of the width; the last column undoes it. Growing with
depth (an exponent above {FLAT}): {", ".join(f"`{role}`" for role in grows) or "none"}. A learning rate times the factor
in the table undoes that; for roles whose factor is above 1 you may leave it, and the smaller a role's part in the last
column, the less it matters. Quasi-random error at most {errors:.1%}; at infinite width, the relative correction is of
order L/d, here {2 * NUM_LAYERS}/{D_MODEL} = {2 * NUM_LAYERS / D_MODEL:.2g}.
""")
if own_rate != 1:
    say(f"The matrices stand here at the learning rate that the rule asks for: {own_rate:.4g} times that at {SHALLOW}.")

# %% [markdown]
# ## 4. Does a real network do it?
#
# Small enough for a laptop: PyTorch networks of the same kind, gradients by autograd, several seeds. Predictions are
# made anew for heads of the size that these have; all at one learning rate.

# %%
lengths, seeds = pick((2, 4, 8), fast=(1, 2)), range(pick(8, fast=2))
kept, checks, within, small_width = dl.Kept(None), [], 0, pick(128, fast=32)
for num_layers in lengths:
    small = network(mine, num_layers, d_model=small_width, num_heads=4, num_tokens=pick(8, fast=4))
    predicted = small.theory(OPTIMIZER)
    values = dl.measure(small, [OPTIMIZER], seeds, kept)[OPTIMIZER].values
    for role in ("update", "v", "fc1", "norm_gain"):
        power = 0.0 if role == "update" else small.role_power(OPTIMIZER, role)
        here = dl.estimate([value * small_width**power for value in values[role]])
        there = predicted.update if role == "update" else predicted.roles[role]
        ratio = dl.ratio_to_exact(here, there)
        row = {"layers": num_layers, "role": role, "predicted": there, "measured": here.mean}
        checks.append(row | {"measured / predicted": f"{ratio.mean:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"})
        within += (ratio.low or 0.0) <= 1 <= (ratio.high or 0.0)
table(checks)
say(f"""
Intervals: {dl.LEVEL:.0%} over {len(seeds)} seeds, at width {small_width}; {within} of {len(checks)} contain 1. The
roles of one depth are measured on the same networks, so they are no independent looks: count {len(lengths)}, one for
each depth. Beside chance, expect deviations from 1 of order L/d, here up to {2 * lengths[-1]}/{small_width}.
""")

# %% [markdown]
# ## 5. Into your model
#
# The lines to copy. They are also run here, on a real layer, so that what you copy is what was tried. Two traps that
# they avoid: Xavier's formula on a packed `in_proj_weight` takes three matrices for one of another shape, so `q`, `k`
# and `v` are initialised by themselves; and PyTorch's own defaults (Kaiming for linear layers) are replaced, all of
# them.


# %%
import inspect


def init_layer(attention, fc1, fc2):
    """attention: nn.MultiheadAttention; fc1, fc2: nn.Linear. GAIN: by role."""
    q, k, v = attention.in_proj_weight.detach().chunk(3)
    matrices = {"q": q, "k": k, "v": v, "out": attention.out_proj.weight, "fc1": fc1.weight, "fc2": fc2.weight}
    for role, weight in matrices.items():
        torch.nn.init.xavier_normal_(weight, gain=GAIN[role])
    for bias in (attention.in_proj_bias, attention.out_proj.bias, fc1.bias, fc2.bias):
        torch.nn.init.zeros_(bias)
    return matrices


GAIN = {role: float(f"{gain:.6g}") for role, gain in gains.items()}
forward = {
    "post": ("x = norm1(ALPHA * x + attention(x))", "x = norm2(ALPHA * x + ffn(x))"),
    "pre": ("x = ALPHA * x + attention(norm1(x))", "x = ALPHA * x + ffn(norm2(x))", "a norm before the head"),
    "sub": (
        "x = ALPHA * x + out(norm1b(heads(norm1(x))))",
        "x = ALPHA * x + fc2(norm2b(phi(fc1(norm2(x)))))",
        "a norm before the head",
    ),
}
new_line = "\n#   "
groups = "\n".join(f"#   {role}: learning rate * {factor:.3g}" for role, factor in slower.items() if factor != 1)
say(f"""
```python
ALPHA = {numbers.residual_weight:.6g}
GAIN = {GAIN}


{inspect.getsource(init_layer)}

# in the forward pass:
#   {new_line.join(forward[PLACEMENT])}
# parameter groups, where the learning rate was tuned at {SHALLOW} layers:
{groups or "#   none needed"}
```
""")

# %%
torch.manual_seed(0)
width = 64
layer = (torch.nn.MultiheadAttention(width, 4), torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width))
table(
    {
        "matrix": role,
        "shape": " x ".join(map(str, weight.shape)),
        "standard deviation": float(weight.detach().std()),
        "Xavier's times the gain": GAIN[role] * math.sqrt(2 / sum(weight.shape)),
    }
    for role, weight in init_layer(*layer).items()
)

# %% [markdown]
# ## 6. What if the norms stood elsewhere?
#
# The same depth and optimizer with the other placements, each with its own rule. Not "which is best": the update at
# initialisation does not order schemes whose norms stand in different places (notebook 7). But it says what each needs.

# %%
others = []
for placement in pick(NORMS, fast=("post",)):
    its_rule, its_side, its_numbers, its_rate = solved(placement)
    its_gains = its_numbers.init_gain
    its_rates = [rate_at(its_side, its_rate, n) for n in (SHALLOW, NUM_LAYERS)]
    try:
        two = list(rows_of(dl.rule_scheme(its_rule, its_side), its_rates, (SHALLOW, NUM_LAYERS)).values())
    except dl.NoTheoryError as error:
        say(f"`{placement}` cannot be computed here: {error}.")
        continue
    power = {role: found or 0.0 for role, found in exponents(two).items()}
    worst = max((role for role in power if role != "update"), key=power.__getitem__)
    others.append(
        {
            "norms": placement,
            "residual weight": its_numbers.residual_weight,
            "gain": f"{its_gains['fc1']:.4g}" if its_gains else "none helps",
            "gain's formula": f"`{its_side.formula['init_gain']}`",
            "learning rate": f"`{dl.compact(its_rate)}`",
            "a branch at the start": its_numbers.branch_at_init,
            f"U, {SHALLOW} to {NUM_LAYERS} layers": f"{two[0]['update']:.3g} to {two[1]['update']:.3g}",
            "exponent": f"{power['update'] + 0.0:.2f}",
            "grows most": f"`{worst}` ({power[worst]:.2f})",
        }
    )
table(others)

# %%
kinds = [{"norms": name} for name in NORMS if name != PLACEMENT]
for kind in kinds:
    its_rule = dl.solve_rule(kind["norms"], OPTIMIZER, ARCHITECTURE)
    kind["exact moments of an FFN stack"] = mean_field(its_rule, ACTIVATION)["says"]
    ways = [member.name for member in its_rule.sides[0].alternatives]
    kind["other ways to keep it flat"] = ", ".join(ways)
table(kinds)

# %% [markdown]
# Where the two disagree, mind what they are: the order is that of a stack of FFNs as depth goes to infinity, the
# exponent that of the Transformer between these two depths. At your depth the second is the one to trust.
#
# A tiny gain on a Pre-LN branch keeps the update flat, but it also makes the whole model start as the identity; the
# alternatives (a smaller learning rate, a branch weight) hold the same sum and start elsewhere. The rule fixes an
# order in depth, not which member of its family you will like best; `depthlaw rule --why` prints them all.
#
# ## What to remember
#
# - The gain depends on the optimizer. What is flat under SGD is not under Adam; the degree of the step in the gradient
#   decides it (notebook 3).
# - A rule is for the matrices. Look at norm gains and biases: where they grow, give them a learning rate of their own.
# - Initialise `q`, `k` and `v` each by itself, and do not scale `q` and `k`.
# - These are orders of the first step, at infinite width. They do not tune your learning rate, and they do not say who
#   trains better: try it, notebook 7 shows how.
#
# ## Go on
#
# - Change the cell that begins with `PLACEMENT` and run again: another optimizer, `"sub"`, another depth.
# - S1-24 to S1-41 are the claims that these rules rest on; DN-10 is the one on norm gains and biases.
# - Notebook 9: what of all that is printed does not hold.

# %%
causal = "--causal " if ARCHITECTURE == "decoder" else ""
say(f"""
The same from a shell; `depthlaw measure` takes the options of `depthlaw predict`:

```bash
depthlaw rule --norm {PLACEMENT} --optimizer {OPTIMIZER} --arch {ARCHITECTURE} --layers {NUM_LAYERS} --why
depthlaw predict --scheme deepnorm --optimizer {OPTIMIZER} --attention {causal}--layers {SHALLOW},{NUM_LAYERS} --roles
```
""")

# %% [markdown]
# ## 7. A published model, only deeper
#
# Perhaps no rule is wanted, and your model is a published one as it is: its norms, its FFNs, its heads, its standard
# deviations. `depthlaw schemes` lists the recipes. How far does each role move at your depth beside the shallow one,
# and which learning rate would undo it?

# %%
RECIPE = "llama-3"
RECIPE_OPTIMIZER = "adamw"  # any of the twelve, or muon+adamw

# %%
from paper_checks.experiments.kernel_laws import recipe_network
from paper_checks.lowering.predicted_rows import lr_multipliers, percent, shares


def row_of(found: dl.Network) -> dict:
    """What is predicted of it, as `depthlaw predict --json` has it."""
    return {**predicted_row(found.theory(RECIPE_OPTIMIZER)), "num_sublayers": found.depth}


published = [recipe_network(RECIPE, n, D_MODEL) for n in (SHALLOW, NUM_LAYERS)]
its_rows = [row_of(found) for found in published]
first, last = its_rows
units = {role: published[0].role_power(RECIPE_OPTIMIZER, role) for role in first["roles"]}
steepness, undone, part = exponents(its_rows), lr_multipliers(its_rows), shares(its_rows, units, D_MODEL)
table(
    {
        "role": f"`{role}`",
        f"{SHALLOW} layers": first["roles"][role],
        f"{NUM_LAYERS} layers": last["roles"][role],
        "exponent": f"{steepness[role] or 0.0:z.2f}",
        "learning rate, times": undone[role][-1],
        f"share at {NUM_LAYERS}": percent(part[role][-1]),
    }
    for role in first["roles"]
)
say(f"""
`{RECIPE}` under {RECIPE_OPTIMIZER} moves {last["update"] / first["update"]:.3g} times as far at {NUM_LAYERS} layers as
at {SHALLOW}, in all branch matrices together. A role whose share of that is small needs no learning rate of its own.
""")

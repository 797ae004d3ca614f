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
# Write down what you have in the second cell, run the notebook, and read on. Nothing below it is typed in by hand.

# %%
import inspect
import math
from textwrap import wrap

import matplotlib.pyplot as plt
import torch
from matplotlib.ticker import LogLocator
from torch import nn

from paper_checks.commands.rule import mean_field
from paper_checks.measuring import Kept, measure
from paper_checks.networks import Network
from paper_checks.predicted_rows import exponents, lr_multipliers, predicted_row, shares
from paper_checks.prose import pick, say, style, table
from paper_checks.transformers_growth import FLAT
from sims.stats import LEVEL, estimate, ratio_to_exact
from theory.rule_order import rule_scheme
from theory.rules import evaluate, solve_rule
from theory.schemes import scheme

style()
torch.set_num_threads(1)

# %%
PLACEMENT = "post"  # where the norms stand: post, pre, or sub (before the branch and inside it)
OPTIMIZER = "adam"  # sgd momentum adam adamw rmsprop signsgd lion lars lamb muon sophia
ARCHITECTURE = "decoder"  # decoder (causal) or encoder
NUM_LAYERS = 48  # an attention and an FFN each
D_MODEL = 1024
NUM_HEADS = 16
ACTIVATION = "relu"  # relu, gelu or silu
NORM_KIND = "layernorm"  # or rmsnorm

# %%
SHALLOW = 6  # layers of the model that you have tuned, to compare with
TOKENS = pick(16, fast=4)


def solved(placement, optimizer=OPTIMIZER, num_layers=NUM_LAYERS):
    """The rule, its one side, and both in numbers."""
    rule = solve_rule(placement, optimizer, ARCHITECTURE)
    [side] = rule.sides
    return rule, side, evaluate(rule, **{str(side.num_layers): num_layers})[side.name]


rule, side, numbers = solved(PLACEMENT)

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
gains = numbers.init_gain or dict.fromkeys(("q", "k", "v", "out", "fc1", "fc2"), 1.0)
table(
    [
        {
            "what": "residual weight",
            "value": numbers.residual_weight,
            "formula": f"`{side.formula['residual_weight']}`",
        },
        {"what": "gain of v, out, fc1, fc2", "value": gains["fc1"], "formula": f"`{side.formula['init_gain']}`"},
        {"what": "gain of q, k", "value": gains["q"], "formula": "`1`"},
        {"what": "learning rate, times", "value": numbers.lr_multiplier["fc1"], "formula": "`1`"},
    ]
)
say(f"{side.num_layers} counts layers; here it is {NUM_LAYERS}. The argument, as the code that makes it says it:")
argument = [line for step, text in enumerate(rule.why, start=1) for line in wrap(f"{step}. {text}", 108)]
say("\n".join(["```text", *argument, "```"]))

# %% [markdown]
# That is the papers' kind of argument: magnitudes and degree counting. It is not taken on faith. For a stack of FFNs
# the second moments are exact, and they have a leading order of their own:

# %%
found = mean_field(rule, ACTIVATION)
say(f"*{found['says']}.*")

# %% [markdown]
# ## 2. What it does in a real Transformer
#
# Softmax attention, tokens that mix, heads of your size, every role by itself: $U$ is how far a first step of these
# parameters moves one logit, to first order and per unit learning rate, in units of a power of the width. Computed, not
# fitted; exact at infinite width. The same for three others at the same depths: the scheme that people copy (DeepNorm,
# whose gain `(8N)**-0.25` was derived for SGD), plain Post-LN and plain Pre-LN.


# %%
def network(scheme_, num_layers, d_model=D_MODEL, num_heads=NUM_HEADS, num_tokens=TOKENS):
    return Network(
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


depths = sorted({SHALLOW, *pick((12, 24), fast=()), NUM_LAYERS})
mine = rule_scheme(rule, side)
shown = {"this rule": mine} | {
    name: scheme(name) for name in pick(("deepnorm", "post-ln", "pre-ln"), fast=("deepnorm",))
}
rows = {
    name: [{"num_sublayers": 2 * n, **predicted_row(network(one, n).theory(OPTIMIZER))} for n in depths]
    for name, one in shown.items()
}
growth = {name: exponents(found) for name, found in rows.items()}

# %%
colors = {"this rule": "#CC79A7", "deepnorm": "#000000", "post-ln": "#D55E00", "pre-ln": "#0072B2"}
figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.6), dpi=90)
for name, found in rows.items():
    values = [row["update"] for row in found]
    left.plot(depths, values, color=colors[name], marker="o", markersize=4)
    left.annotate(f" {name}", (depths[-1], values[-1]), color=colors[name], va="center", fontsize=8)
left.set(title=f"All matrices together, {OPTIMIZER}", xlabel="layers", ylabel="$U$ of the branch matrices")
together = {"norm_gain": "norm gains, biases", "bias": "linear biases", "fc1": "", "v": "v, out, fc1, fc2", "q": "q, k"}
base = rows["this rule"][0]["roles"]
for role, name in together.items():
    if not base[role]:  # LAMB moves nothing that starts at 0
        continue
    values = [row["roles"][role] / base[role] for row in rows["this rule"]]
    [line] = right.plot(depths, values, marker="o", markersize=4)
    right.annotate(f" {name}", (depths[-1], values[-1]), color=line.get_color(), va="center", fontsize=8)
right.set(title=f"This rule, each role over itself at {SHALLOW} layers", xlabel="layers", ylabel="$U$ over its first")
for axes in (left, right):
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(depths, map(str, depths))
    axes.minorticks_off()
    axes.set_xlim(0.85 * depths[0], 2.6 * depths[-1])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
plt.show()

# %%
deepnorm = network(scheme("deepnorm"), NUM_LAYERS).config(OPTIMIZER).encoder[0]
first, last = (row["update"] for row in (rows["this rule"][0], rows["this rule"][-1]))
say(f"""
From {SHALLOW} to {NUM_LAYERS} layers the matrices' update goes from {first:.3g} to {last:.3g} under this rule, an
exponent of {growth["this rule"]["update"]:.3f} in depth. With DeepNorm's residual weight and gain (at {NUM_LAYERS}
layers {deepnorm.residual_weight:.4g} and {deepnorm.gains["v"]:.4g}, which is `({8 * NUM_LAYERS})**-0.25`) it goes from
{rows["deepnorm"][0]["update"]:.3g} to {rows["deepnorm"][-1]["update"]:.3g}, exponent
{growth["deepnorm"]["update"]:.3f}. The constant in front does not matter, a learning rate absorbs it; the exponent is
what you would have to tune away again at every depth.
""")

# %% [markdown]
# ## 3. Who grows all the same, and the learning rate that undoes it
#
# The rule is about matrices. A default model trains norm gains and biases too, and the right panel above shows what
# they do. Since $U$ is per unit learning rate, a learning rate of a role alone, multiplied by its shallow $U$ over
# its deep $U$, keeps its part what it was in the shallow model that you have tuned.

# %%
units = {role: network(mine, NUM_LAYERS).role_power(OPTIMIZER, role) for role in rows["this rule"][0]["roles"]}
rates = lr_multipliers(rows["this rule"])
share_of = shares(rows["this rule"], units, D_MODEL)
table(
    {
        "role": f"`{role}`",
        "gain": gains.get(role),
        f"U, {SHALLOW} layers": rows["this rule"][0]["roles"][role],
        f"U, {NUM_LAYERS} layers": rows["this rule"][-1]["roles"][role],
        "exponent": "" if (power := growth["this rule"][role]) is None else f"{power + 0.0:.2f}",
        "learning rate, times": rates[role][-1],
        f"share of the update at width {D_MODEL}": f"{share_of[role][-1]:.1%}",
    }
    for role in units
)
grows = [role for role in units if (growth["this rule"][role] or 0) > FLAT]
errors = max(value for found in rows.values() for row in found for value in row["error"].values())
say(f"""
`bias`, `norm_gain`, `norm_bias` and `embedding` are shown times a power of the width; the last column undoes it.
Growing with depth: {", ".join(f"`{role}`" for role in grows) or "none"}. A learning rate times the factor in the
table undoes that; for roles whose factor is above 1 you may leave it. Where the share is small, none of it matters.
Quasi-random error at most {errors:.1%}; at infinite width, the relative correction is of order L/d, here
{2 * NUM_LAYERS}/{D_MODEL} = {2 * NUM_LAYERS / D_MODEL:.2g}.
""")

# %% [markdown]
# ## 4. Does a real network do it?
#
# Small enough for a laptop: PyTorch networks of the same kind, gradients by autograd, several seeds. Predictions are
# made anew for heads of the size that these have.

# %%
lengths, seeds = pick((2, 4, 8), fast=(1, 2)), range(pick(8, fast=2))
kept, checks, small_width = Kept(None), [], pick(128, fast=32)
for num_layers in lengths:
    small = network(mine, num_layers, d_model=small_width, num_heads=4, num_tokens=pick(8, fast=4))
    predicted = small.theory(OPTIMIZER)
    values = measure(small, [OPTIMIZER], seeds, kept)[OPTIMIZER].values
    for role in ("update", "v", "fc1", "norm_gain"):
        power = 0.0 if role == "update" else small.role_power(OPTIMIZER, role)
        here = estimate([value * small_width**power for value in values[role]])
        there = predicted.update if role == "update" else predicted.roles[role]
        ratio = ratio_to_exact(here, there)
        row = {"layers": num_layers, "role": role, "predicted": there, "measured": here.mean}
        checks.append(row | {"measured / predicted": f"{ratio.mean:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"})
table(checks)
say(f"""
Intervals: {LEVEL:.0%} over {len(seeds)} seeds, at width {small_width}; of {len(checks)} of them one may well miss by
chance. Beside that, expect deviations from 1 of order L/d, here up to {2 * lengths[-1]}/{small_width}.
""")

# %% [markdown]
# ## 5. Into your model
#
# The lines to copy. They are also run here, on a real layer, so that what you copy is what was tried. Two traps that
# they avoid: Xavier's formula on a packed `in_proj_weight` takes three matrices for one of another shape, so `q`, `k`
# and `v` are initialised by themselves; and PyTorch's own defaults (Kaiming for linear layers) are replaced, all of
# them.


# %%
def init_layer(attention, fc1, fc2):
    """attention: nn.MultiheadAttention; fc1, fc2: nn.Linear. GAIN: by role."""
    q, k, v = attention.in_proj_weight.detach().chunk(3)
    matrices = {"q": q, "k": k, "v": v, "out": attention.out_proj.weight, "fc1": fc1.weight, "fc2": fc2.weight}
    for role, weight in matrices.items():
        nn.init.xavier_normal_(weight, gain=GAIN[role])
    for bias in (attention.in_proj_bias, attention.out_proj.bias, fc1.bias, fc2.bias):
        nn.init.zeros_(bias)
    return matrices


GAIN = {role: float(f"{gain:.6g}") for role, gain in gains.items()}
forward = {
    "post": ("x = norm1(ALPHA * x + attention(x))", "x = norm2(ALPHA * x + ffn(x))"),
    "pre": ("x = x + attention(norm1(x))", "x = x + ffn(norm2(x))", "a norm before the head"),
    "sub": (
        "x = x + out(norm1b(heads(norm1(x))))",
        "x = x + fc2(norm2b(phi(fc1(norm2(x)))))",
        "a norm before the head",
    ),
}
slow = {role: rates[role][-1] for role in ("bias", "norm_gain", "norm_bias") if role in grows}
new_line = "\n#   "
groups = "\n".join(f"#   {role}: learning rate * {rate:.3g}" for role, rate in slow.items())
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
layer = (nn.MultiheadAttention(width, 4), nn.Linear(width, 4 * width), nn.Linear(4 * width, width))
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
for placement in ("post", "pre", "sub"):
    its_rule, its_side, its_numbers = solved(placement)
    its = rule_scheme(its_rule, its_side)
    two = [{"num_sublayers": 2 * n, **predicted_row(network(its, n).theory(OPTIMIZER))} for n in (SHALLOW, NUM_LAYERS)]
    power = {role: found or 0.0 for role, found in exponents(two).items()}
    worst = max(role for role in power if power[role] == max(power.values()))
    others.append(
        {
            "norms": placement,
            "residual weight": its_numbers.residual_weight,
            "gain": "none helps" if its_numbers.init_gain is None else f"{its_numbers.init_gain['fc1']:.4g}",
            "gain's formula": f"`{its_side.formula['init_gain']}`",
            "a branch at the start": its_numbers.branch_at_init,
            f"U, {SHALLOW} to {NUM_LAYERS} layers": f"{two[0]['update']:.3g} to {two[1]['update']:.3g}",
            "exponent": f"{power['update'] + 0.0:.2f}",
            "grows most": f"`{worst}` ({power[worst]:.2f})",
        }
    )
table(others)

# %%
kinds = [{"norms": name} for name in ("pre", "sub")]
for kind in kinds:
    its_rule, _, _ = solved(kind["norms"])
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
# order in depth, not which member of its family you will like best; `depthlaw rule` prints them all with numbers.
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
# - Change the cell with your model and run again: another optimizer, `PLACEMENT = "sub"`, a thousand layers.
# - `depthlaw rule --norm post --optimizer adam --arch decoder --layers 48`;
#   `depthlaw predict --scheme su-adam --optimizer adam --attention --causal --layers 6,48 --width 1024 --roles`;
#   `depthlaw measure` with the same options.
# - S1-24 to S1-41 are the claims that these rules rest on; DN-10 is the one on norm gains and biases.
# - Notebook 9: what of all that is printed does not hold.

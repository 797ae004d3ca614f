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
# # 8. Making your own model deeper
#
# You have tuned a model, and want it deeper. Its depth is not that of anybody's recipe, its optimizer is not the one
# that the recipe was derived for, and the recipe you found on the internet says `(8N)**-0.25`. What has to change, in
# the initialisation, on the branches, in the learning rates, for one step of the deeper model to move it as far as one
# step moved yours?
#
# Write down what you have in the cell that begins with `SCHEME`, run the notebook, and read on; each run takes seconds.
# Every number below that cell is computed from its lines.
#
# Edit that cell here and run it here; nothing else is needed. The JupyterLab of `make lab` saves the change into
# `08_choose_your_rule.py` too. Other editors save this notebook alone, and `make notebooks`, which makes it anew from
# the `.py`, then leaves it as it is and says where to copy the change.

# %%
from typing import Any

import matplotlib.pyplot as plt
import torch

import depthlaw as dl
from depthlaw import sims
from depthlaw.paper_checks.pages.prose import name_curves, pick, say, style, table

# Of paper_checks.pages.prose: pick(full, fast=few): few where a test runs this; say: a paragraph with computed numbers;
# table: rows.
style()
torch.set_num_threads(1)

# %%
SCHEME = None  # where norms stand and how it starts: pre-ln, gpt2, post-ln, deepnorm, sub-ln ... (depthlaw schemes)
RECIPE = "gpt2"  # or, in place of a scheme, a published model: llama-3, olmo-2, bert ... (depthlaw schemes)
OPTIMIZER = "adamw"  # sgd momentum adam adamw rmsprop signsgd lion adafactor lars lamb muon sophia, or muon+adamw
FROM_LAYERS = 12  # layers of the model that you have tuned: an attention and an FFN each
NUM_LAYERS = 48  # layers of the model that you want
D_MODEL = 1024
# Of a scheme; a recipe has its own:
ARCHITECTURE = "decoder"  # decoder (causal) or encoder
NUM_HEADS = 16
ACTIVATION = "gelu"  # relu, gelu, silu, tanh, identity, leaky_relu or relu2; or gated: swiglu, geglu, reglu
NORM_KIND = "layernorm"  # or rmsnorm


# %%
def question(from_layers, num_layers, d_model, num_heads, **rest) -> dict[str, Any]:
    """What is asked: the same block at other depths and another width."""
    asked = {"recipe": RECIPE, "scheme": SCHEME, "optimizer": OPTIMIZER, "from_layers": from_layers}
    asked |= {"layers": num_layers, "width": d_model, **rest}
    block = {"arch": ARCHITECTURE, "num_heads": num_heads, "activation": ACTIVATION, "norm_kind": NORM_KIND}
    return asked if RECIPE else asked | block | {"is_causal": ARCHITECTURE == "decoder"}


tokens = pick({}, fast={"num_tokens": 4})
advice = dl.advise(**question(FROM_LAYERS, NUM_LAYERS, D_MODEL, NUM_HEADS, **tokens))

# %% [markdown]
# ## 1. What happens if nothing is changed
#
# The update $U$ of a role is how far a first step of its parameters moves one logit, to first order and per unit
# learning rate. It is computed, not fitted: exact at infinite width, for softmax attention over tokens that mix, at
# your model's own initialisation. The share says how much of the whole update a role carries at your width; a role
# without one hardly matters.

# %%
table(
    {
        "role": f"`{role}`",
        f"update, {NUM_LAYERS} over {FROM_LAYERS} layers": factor,
        "exponent in depth": f"{advice.exponents[role]:z.2f}",
        "share": f"{advice.shares.get(role, 1.0):.1%}",
        "matters": "yes" if role in advice.matters else "",
    }
    for role, factor in advice.factors.items()
)
whole = advice.factors["update"]
worst = max(advice.matters, key=advice.factors.__getitem__)
say(f"""
One step moves the model of {NUM_LAYERS} layers {whole:.3g} times as far as it moves that of {FROM_LAYERS}, at the
same learning rate. Of the roles that matter, `{worst}` grows most, by {advice.factors[worst]:.3g}.
""")

# %% [markdown]
# ## 2. What to change
#
# Each remedy keeps the tuned model as it is, unless it says so, and gives the deeper one other numbers: laws of the two
# depths, some derived for this optimizer, some taken from what people use. The best remedy is the one that holds every
# role that matters, and all parameters together, or leaves the least of their growth. Among remedies that are equal in
# this, those stand first that do not start as the identity, then those that keep the tuned model, those that keep the
# forward pass, those whose steps are smaller beside their matrices, and those that change fewer things.

# %%
table(
    {
        "remedy": f"`{remedy.name}`",
        "leaves": f"{remedy.leaves[remedy.worst_role]:.3g} in `{remedy.worst_role}`",
        "relative update, times": remedy.relative,
        "branches at the start": f"{remedy.branches:.0%}",
        "runs here": "none" if remedy.record is None else remedy.record["num_runs"],
        "what changes": "; ".join(remedy.changes) or "nothing",
    }
    for remedy in advice.remedies
)
say(" ".join(f"{remark[0].upper()}{remark[1:]}." for remark in advice.remarks))

# %%
from textwrap import shorten

from matplotlib.ticker import LogLocator, NullFormatter

roles = list(advice.matters)
names = [remedy.name for remedy in advice.remedies]
figure, axes = plt.subplots(figsize=(7.6, 1.2 + 0.32 * len(names)), dpi=90)
for height, remedy in enumerate(advice.remedies):
    for hue, role in enumerate(roles):
        label = role if height == 0 else None
        place = height + 0.5 * (hue / max(1, len(roles) - 1) - 0.5)
        axes.plot(remedy.leaves[role], place, "o", color=f"C{hue}", markersize=5, label=label)
axes.axvline(1.0, color="0.3", linewidth=1)
axes.set(xscale="log", xlabel="update that is left, over the tuned model's", title="Each role under each remedy")
axes.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
axes.xaxis.set_major_formatter("{x:g}")
axes.xaxis.set_minor_formatter(NullFormatter())
axes.set_yticks(range(len(names)), [shorten(name, 40) for name in names])
axes.invert_yaxis()
name_curves(axes)
plt.show()

# %% [markdown]
# ## 3. The best one, as code
#
# The standard deviation of each matrix at your width, the forward pass where it changes, and parameter groups for
# `torch.optim`. `advice.code(remedy)` has the same for another remedy.

# %%
best = advice.remedies[0]
code = "\n".join(advice.code(best))
say(f"```python\n{code}\n```")

# %% [markdown]
# ## 4. Does a real network do it?
#
# Small enough for a laptop: PyTorch networks of the same block at a small width, at both depths, gradients by
# autograd, several seeds, an interval for each ratio. The prediction is made anew for that width and those depths.

# %%
few, many = pick((2, 8), fast=(1, 2))
width, seeds = pick(128, fast=32), range(pick(16, fast=2))
small = dl.advise(**question(few, many, width, 4, **tokens))
rows, inside = [], 0
best, *others = small.remedies
for remedy in (best, *(other for other in others if other.name == "nothing")):
    for role, measured in small.measure(remedy, seeds).items():
        rows.append(
            {
                "remedy": f"`{remedy.name}`",
                "role": f"`{role}`",
                "predicted": remedy.leaves[role],
                "measured": f"{measured.mean:.3g} [{measured.low:.3g}, {measured.high:.3g}]",
            }
        )
        inside += (measured.low or 0.0) <= remedy.leaves[role] <= (measured.high or 0.0)
table(rows)
say(f"""
The update at {many} layers over that at {few}. Intervals: {sims.LEVEL:.0%} over {len(seeds)} seeds, at width {width};
{inside} of {len(rows)} contain the prediction. The roles of one depth are measured on the same networks, so they are
no independent looks. Beside chance, expect deviations of order L/d, here up to {2 * many}/{width}.
""")

# %% [markdown]
# ## 5. Why: the derivation
#
# For norms in this place, the argument of the papers, done for your optimizer: magnitudes and degree counting. It gives
# one residual weight $\alpha$ and one gain on the matrices of the branch (`v` and `out` of an attention, `fc1` and
# `fc2` of an FFN) at which the update does not depend on the number of layers, and a family of other ways.

# %%
from textwrap import wrap

from depthlaw.advice.laws import known_as, placement

norms = placement(advice.deep.config(OPTIMIZER))
rule = dl.solve_rule(norms, OPTIMIZER, advice.deep.arch)
ways = {member.name: member for side in rule.sides for member in (side.member, *side.alternatives)}
table(
    {
        "way": f"`{name}`",
        "residual weight": member.residual_weight,
        "branch weight": member.branch_weight,
        "init gain": "none helps" if member.init_gain is None else member.init_gain,
        "learning rate": member.lr_multiplier,
        "update": member.update,
        "relative update": member.relative_update,
        "known as": known_as(member, norms, OPTIMIZER) or "",
    }
    for name, member in ways.items()
)
argument = [line for step, text in enumerate(rule.why, start=1) for line in wrap(f"{step}. {text}", 108)]
say("\n".join(["```text", *argument, "```"]))

# %% [markdown]
# ## What to remember
#
# - What holds the update depends on the optimizer. What is flat under SGD is not under Adam; the degree of the step in
#   the gradient decides it (notebook 3).
# - Look at the roles one by one: a rule for the matrices leaves norm gains and biases to grow. Where their share is
#   small, it does not matter.
# - A recipe that scales its outputs with depth and a branch weight do the same job: take one of them.
# - These are orders of the first step, at infinite width. They do not tune your learning rate, and they do not say who
#   trains better: try it, notebook 7 shows how.
#
# ## Go on
#
# - Change the cell that begins with `SCHEME` and run again: another optimizer, another recipe, another depth.
# - S1-24 to S1-41 are the claims that the derived rules rest on; DN-10 is the one on norm gains and biases.
# - Notebook 9: what of all that is printed does not hold.

# %%
which = f"--recipe {RECIPE}" if RECIPE else f"--scheme {SCHEME} --arch {ARCHITECTURE}"
depths = f"--from-layers {FROM_LAYERS} --layers {NUM_LAYERS} --width {D_MODEL}"
say(f"""
The same from a shell:

```bash
depthlaw advise {which} --optimizer {OPTIMIZER} {depths}
depthlaw predict {which} --optimizer {OPTIMIZER} --layers {FROM_LAYERS},{NUM_LAYERS} --width {D_MODEL} --roles
```
""")

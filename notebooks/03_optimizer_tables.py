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
# # 3. Which gain for which optimizer: the tables, derived in front of you
#
# A thousand-layer Post-LN needs a residual weight $\alpha$ and a gain $\lambda$ that shrink its branches. DeepNet
# derives them for SGD, and people then train with Adam. Su Jianlin's article asks what the numbers would be for the
# optimizer that one does use, and prints a table: three optimizers, three rows. What would the row of *yours* be?
#
# Two numbers of an optimizer decide it, and both can be computed from its update rule. We do so for those of the
# table, set the result beside what is printed, go on to optimizers that no paper has a row for, one of them made up
# here, and then check the rows against something that knows nothing of the argument: the exact mean field, and real
# networks.

# %%
import matplotlib.pyplot as plt
import sympy as sp
import torch

import depthlaw as dl
from depthlaw import sims, theory
from depthlaw.paper_checks.pages.prose import formula, name_curves, pick, say, style, table

# Of paper_checks.pages.prose: pick(full, fast=few): few where a test runs this; say: a paragraph with computed numbers;
# table: rows; formula: a formula set apart.
style()
NAMES = pick(tuple(theory.OPTIMIZERS), fast=("sgd", "adam", "lamb", "lars"))
ROWS = ("sgd", "adam", "lamb")

# %% [markdown]
# ## An optimizer is its first step
#
# In `theory` an optimizer is data: its published update map, from a gradient $G$ and a parameter $\Theta$ to the
# first step $\Delta\Theta$, from zero state, with eps at zero. Here is Adam's, bias correction and all, on a row of
# symbols:

# %%
from depthlaw.theory.symbols import scratch_matrix

g, theta = (scratch_matrix(name, 1, 3, real=True, nonzero=True) for name in ("g", "theta"))
formula(dl.optimizer("adam").update(g, theta), r"\Delta\Theta")

# %% [markdown]
# The decay rates are gone, and each entry is a sign. (At the first step. Later it is so only while a gradient keeps
# its sign and size: S1-30.) What matters of a step is how it scales. Multiply $G$ by a number $c$, and the step is
# multiplied by $c^p$: $p$ is its **degree in the gradient**. Multiply $\Theta$ by $c$, and it is multiplied by $c^t$:
# its **degree in the parameter**. Both are found by pulling $c$ out of the expression, node by node.
# To first order the loss changes by $\langle G, \Delta\Theta\rangle$, so by something of degree $p + 1$ in the
# gradient.


# %%
def code(text: str) -> str:
    """As code in a table, whose cells end at |."""
    return f"`{text.replace('||', '‖')}`"


rows = []
for name in NAMES:
    one = dl.optimizer(name)
    rows.append(
        {
            "optimizer": name,
            "step": code(one.update_text),
            "loss change": code(one.loss_change_text),
            "p": one.gradient_degree,
            "t": one.parameter_degree,
        }
    )
table(rows)
alike: dict[tuple[sp.Expr, sp.Expr], list[str]] = {}
for name in NAMES:
    alike.setdefault((dl.optimizer(name).gradient_degree, dl.optimizer(name).parameter_degree), []).append(name)
say(f"{len(NAMES)} optimizers, {len(alike)} pairs (p, t): {'; '.join(', '.join(names) for names in alike.values())}.")

# %% [markdown]
# ($\sqrt{n}$ is the root of the number of a matrix's entries, `polar(g)` the orthogonal factor of $G$. Adafactor's is
# shown for gradients of rank one, which is what one input gives.)
#
# ## From the degrees to the rule
#
# [Notebook 2](02_magnitude_and_probe.ipynb) has the size of a branch beside the stream and of its gradients, in the
# magnitudes $\lambda_1, \lambda_2$ of its two matrices:

# %%
from depthlaw.theory.rules.magnitude import Branch

branch = Branch()
formula(branch.magnitude, r"\text{branch}")
for place, gradient in enumerate(branch.gradients, start=1):
    formula(gradient, rf"\Vert G_{place}\Vert")

# %% [markdown]
# So each matrix changes the loss by $\Vert G\Vert^{p+1}\Vert\Theta\Vert^t$, and $2N$ sublayers add up. For the update
# not to depend on depth, that sum has to be one at every $N$. This is a whole family of networks, one equation for
# two letters:

# %%
SIDES = {name: dl.solve_rule("post", name).side("encoder") for name in ROWS}
for name, side in SIDES.items():
    formula(side.family.lhs, rf"\text{{{name}: }} 1")

# %% [markdown]
# One more condition picks a member. The article takes $\lambda = 1/\alpha$, "from a symmetry perspective", and
# $\alpha = 1$ for LAMB, whose relative step is the learning rate whatever one does. Every step is written by the code
# that takes it; for Adam:

# %%
steps = dl.solve_rule("post", "adam").why
say("\n".join(f"{place}. {step}" for place, step in enumerate(steps, start=1)).replace("*", r"\*"))

# %% [markdown]
# In logarithms to the base $2N$ a family is a straight line, and choosing a member is choosing a point on it:

# %%
from depthlaw.paper_checks.pages.drawing import STYLES
from depthlaw.theory.rules.magnitude import exponents
from depthlaw.theory.symbols import L, N, eta, init_gain, residual_weight

HUES = {"sgd": STYLES["su-sgd"][0], "adam": STYLES["su-adam"][0], "lamb": STYLES["su-lamb"][0]}


def power(expr: sp.Expr) -> float:
    """Of 2N, in an expression that is one."""
    return float(sp.log(expr.subs(N, 8)) / sp.log(16))


fig, ax = plt.subplots(figsize=(7.2, 4.2))
xs, named = [-0.25, 1.25], {}
for name, side in SIDES.items():
    _, (a, b) = exponents(side.family.lhs, (residual_weight, init_gain))
    ys = [-(1 + float(a) * x) / float(b) for x in xs]
    ax.plot(xs, ys, color=HUES[name], lw=1.3)
    ax.text(xs[-1] + 0.02, ys[-1], name, color=HUES[name], va="center")
    chosen = [one for one in side.alternatives if one.branch_weight == one.lr_multiplier == 1]
    for one in (side.member, *chosen):
        if one.name != "deepnet":  # counts matrices: its line is another, by a constant
            x, y = power(one.residual_weight), power(one.put_into(init_gain))
            fill = "full" if one is side.member else "none"
            ax.plot([x], [y], "o", color=HUES[name], fillstyle=fill, ms=9 if fill == "full" else 6)
            named.setdefault((x, y), []).append(f"{name}, {one.name}")
for (x, y), names in named.items():
    place = (-44, 12) if names == ["sgd, symmetric"] else (7, -5 - 9 * len(names))
    ax.annotate("\n".join(names), (x, y), place, textcoords="offset points", fontsize=7)
ax.set(xlim=(-0.3, 1.4), xlabel=r"residual weight $\alpha$: power of $2N$", ylabel=r"gain $\lambda$: power of $2N$")
ax.set_title("Every point of a line keeps the update flat. Full: the table's; open: other members")
plt.show()

# %% [markdown]
# ## Beside the printed table
#
# Now cell by cell. "Derived" is the output of the code above; "printed" stands in the article; they are compared as
# expressions, not as text.

# %%
from depthlaw.paper_checks.papers.registry import claims
from depthlaw.paper_checks.routes.tables.derived import side_by_side

tables = {one.id: {"id": one.id, "rows": one.rows} for one in (dl.su_optimizers(), dl.su_prenorm())}
printers = [claim for claim in claims().values() if any(cell.table in tables for cell in claim.cells)]
cells = side_by_side(tables.values(), printers)
table(
    {
        "optimizer": cell["row"]["optimizer"],
        "column": cell["column"],
        "derived": code(cell["derived"]),
        "printed": code(cell["printed"]),
        "same": "yes" if cell["equal"] else "**no**",
        "claim": cell["claim"],
    }
    for cell in cells
    if cell["table"] == "su-optimizers"
)

# %%
differ = sorted({cell["claim"] for cell in cells if not cell["equal"]})
before = [cell for cell in cells if cell["table"] == "su-prenorm" and cell["column"] == "lambda"]
say(f"""
{sum(bool(cell["equal"]) for cell in cells)} of {len(cells)} cells are the same, those of the Pre-Norm table among them,
where the article says to set $\\alpha = 1$ and to solve again: $\\lambda$ is
{", ".join(f"{code(cell['derived'])} for {cell['row']['optimizer']}" for cell in before)}.
""")
for id_ in differ:
    claim = dl.claim(id_)
    for part in claim.parts:
        if part.misprint is not None:
            slip = part.misprint
            say(f"**{id_}**, {part.expected.value}: {slip.text}. (Known from: {slip.grounds}.)")

# %% [markdown]
# The number of entries does not depend on depth, so the slip changes no power of $N$, and the row is right. It would
# change a learning rate.
#
# ## Optimizers that no paper has a row for
#
# The solver needs the two degrees and nothing else.

# %%
rows = []
for name in NAMES:
    side = dl.solve_rule("post", name, with_alternatives=False).side("encoder")
    rows.append(
        {
            "optimizer": name,
            "alpha": code(side.formula["residual_weight"]),
            "lambda": code(side.formula["init_gain"]),
            "relative step, times": code(side.formula["relative_update_order"]),
            "branch at the start": code(side.formula["branch_at_init"]),
        }
    )
table(rows)

# %% [markdown]
# Optimizers of the same degrees have the same row, whatever else their steps do: Muon's has all singular values at one,
# LARS's has no sign in it. The fourth column is a price that no row of the table shows: the relative step
# $\Vert\Delta\Theta\Vert/\Vert\Theta\Vert$ against that of $\alpha = \lambda = 1$.

# %%
orders = {name: SIDES[name].relative_update_order for name in ROWS}
twice = {name: order.subs(N, 16) / order.subs(N, 8) for name, order in orders.items()}
ways = {name: "grows" if step > 1 else "falls" if step < 1 else "stays" for name, step in twice.items()}
say("With depth that step " + ", ".join(f"{way} under the row of {name}" for name, way in ways.items()) + ".")
if ways["adam"] == "grows":
    say("Under Adam's own row it grows because a step of fixed size meets ever smaller weights.")

# %% [markdown]
# ### One of your own
#
# Halfway between SGD and sign descent: each entry moves by the root of its gradient.

# %%
from depthlaw.theory.rules.magnitude import Degrees

root = theory.Optimizer(
    name="root", update=lambda g, theta: -eta * g.applyfunc(lambda x: sp.sign(x) * sp.sqrt(sp.Abs(x)))
)
side = dl.solve_rule("post", root).side("encoder")
say(f"Degrees {root.gradient_degree} and {root.parameter_degree}; the loss changes by")
formula(root.loss_change, r"\langle G, \Delta\Theta\rangle")
formula(side.family.lhs, "1")
say(f"so alpha = {code(side.formula['residual_weight'])} and lambda = {code(side.formula['init_gain'])}.")

# %% [markdown]
# ### One that has no degree
#
# Not everything has an answer. Keep Adam's eps, and the step neither is a sign nor scales as a power. The solver does
# not guess:

# %%
from depthlaw.theory.optimizers import NotHomogeneousError
from depthlaw.theory.symbols import scratch

eps = scratch("eps", positive=True)
with_eps = theory.Optimizer(
    name="adam-with-eps", update=lambda g, theta: -eta * g.applyfunc(lambda x: x / (sp.Abs(x) + eps))
)
try:
    dl.solve_rule("post", with_eps)
except NotHomogeneousError as refusal:
    say(f"> {code(str(refusal))}")

# %% [markdown]
# Where gradients are far above eps it is Adam, where they are far below, SGD; and gradients that shrink with depth
# may pass from one to the other. That is not in any row.
#
# ## Does it hold? The exact mean field
#
# Everything so far was a count of magnitudes: assumed was that what arrives from above is of order one. The mean
# field assumes nothing of the kind: it follows the second moments of signal and gradient through every sublayer,
# exactly at infinite width. Each panel is one optimizer; each curve a network with the row of one of them.


# %%
def network(of: Degrees | str, name: str) -> theory.Scheme:
    """Post-LN with the residual weight and gain that the rule for an optimizer gives, in L = 2N sublayers."""
    found = dl.solve_rule("post", of, with_alternatives=False).side("encoder")
    alpha, lam = (found.member.put_into(letter).subs(N, L / 2) for letter in (residual_weight, init_gain))
    stack = theory.Stack(placement=theory.POST, residual_weight=alpha, gain_in=lam, gain_out=lam)
    return theory.Scheme(name=name, source="derived here", stack=stack)


BUILT = {name: network(name, f"row of {name}") for name in ROWS}
lengths = [2**i for i in range(1, pick(21, fast=8))]
fig, axes = plt.subplots(1, 3, figsize=(9, 3.5), sharey=True)
for ax, trained in zip(axes, ROWS, strict=True):
    for name, scheme in BUILT.items():
        ys = [dl.predict(scheme, trained, x).update for x in lengths]
        look = {"lw": 6, "alpha": 0.4} if name == trained else {"lw": 1.2, "alpha": 1}
        ax.plot(lengths, ys, color=HUES[name], label=scheme.name, **look)
    vanilla = [dl.predict("post-ln", trained, x).update for x in lengths]
    ax.plot(lengths, vanilla, color=STYLES["post-ln"][0], lw=1.1, ls="--", label=r"$\alpha = \lambda = 1$")
    ax.set(xscale="log", yscale="log", ylim=(1e-4, 1e5), xlabel="sublayers $L = 2N$")
    ax.set_title(f"trained with {trained}")
axes[0].set_ylabel("update $U$")
name_curves(axes[-1])
plt.show()

# %% [markdown]
# Broad: the optimizer's own row. DeepNet's habit of training SGD's row with Adam is a thin line of the middle panel.
# What the lines do from the first point to the last:

# %%
table(
    {"U at the last depth over U at the first, under": trained}
    | {f"row of {name}": dl.predict(BUILT[name], trained, lengths[-1]).update / first for name, first in firsts.items()}
    for trained in ROWS
    for firsts in [{name: dl.predict(BUILT[name], trained, lengths[0]).update for name in ROWS}]
)

# %% [markdown]
# Each goes by a power of $L$. How large those powers are, the argument of magnitudes and the mean field say separately:

# %%
rows, agreed = [], {}
for trained in NAMES:
    cells = {}
    for name in ROWS:
        by_size = exponents(theory.update_under(dl.solve_rule("post", name), trained)["encoder"], (N,))[1][0]
        exactly = theory.update_order(theory.Setting.of(BUILT[name], trained)).power
        case = (name, dl.optimizer(trained).gradient_degree, dl.optimizer(trained).parameter_degree)
        agreed[case] = agreed.get(case, True) and by_size == exactly
        cells[f"row of {name}"] = exactly
    rows.append({"U grows as L to the power, under": trained, **cells})
table(rows)
say(f"""
By rows and pairs of degrees there are {len(agreed)} distinct cases: optimizers with the same (p, t) count once. The
magnitude argument gives the same power in {sum(agreed.values())} of them.
""")

# %% [markdown]
# A row that is wrong for your optimizer need not ruin a training run. S1-49 asks it of SGD's row under Adam, and what
# is known is this:

# %%
for part in dl.claim("S1-49").parts:
    say(f"- {part.name}: {part.expected.value}")

# %% [markdown]
# ## And the optimizer that was made up here?
#
# The mean field has no formula for it, and says so. Real networks need none: take the gradients, sum $\Vert
# G\Vert_{3/2}^{3/2}$, which is its loss change, over all matrices, at several depths, for three rows.

# %%
from depthlaw.network.lower import lower_ffn
from depthlaw.sims.update import objective

WIDTH, SEEDS = pick(64, fast=16), pick(range(32), fast=range(4))
DEPTHS = pick((4, 8, 16, 32, 64), fast=(4, 8))


def root_update(scheme: theory.Scheme, num_sublayers: int) -> list[float]:
    """By seed: minus the loss change of a first step, per unit learning rate; a logit in the place of the loss."""
    task = sims.Task()
    config = task.on(lower_ffn(scheme, "sgd", num_sublayers, WIDTH))
    model = sims.Ensemble([sims.Member(config, seed) for seed in SEEDS])
    inputs = sims.draw_inputs(config, task, SEEDS, torch.float64, "cpu")
    weights = [weight for _, weight, role in model.tagged() if role != "head"]
    grads = torch.autograd.grad(objective(model, model(inputs.x, inputs.y), inputs, task).sum(), weights)
    return torch.stack([grad.abs().pow(1.5).sum((1, 2)) for grad in grads]).sum(0).tolist()


TRIED = {"own row": network(root, "row of root"), "row of sgd": BUILT["sgd"], "row of adam": BUILT["adam"]}
SUMS = {name: [root_update(scheme, depth) for depth in DEPTHS] for name, scheme in TRIED.items()}

# %%
from matplotlib.ticker import LogLocator

SHADES = {"own row": "#000000", "row of sgd": HUES["sgd"], "row of adam": HUES["adam"]}
fig, ax = plt.subplots(figsize=(7.2, 3.5))
for name, columns in SUMS.items():
    found = [sims.estimate(values) for values in columns]
    means, unit = [one.mean for one in found], found[0].mean
    below = [(one.mean - (one.low or 0.0)) / unit for one in found]
    above = [((one.high or 0.0) - one.mean) / unit for one in found]
    ys = [mean / unit for mean in means]
    ax.errorbar(DEPTHS, ys, (below, above), color=SHADES[name], marker="o", ms=5, capsize=2, lw=1.2)
    ax.text(DEPTHS[-1] * 1.06, means[-1] / unit, name, color=SHADES[name], va="center")
ax.set(xscale="log", yscale="log", xlim=(DEPTHS[0] * 0.9, DEPTHS[-1] * 1.7), xlabel="sublayers $L = 2N$")
ax.set_xticks(DEPTHS, [str(depth) for depth in DEPTHS], minor=False)
ax.minorticks_off()
ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
ax.yaxis.set_major_formatter("{x:g}")
ax.set_ylabel("update, over that of the shallowest")
ax.set_title(f"Real networks under an optimizer that no paper has (d = {WIDTH}, 95 % intervals)")
plt.show()


# %%
def text_of(found: sims.Estimate | None) -> str:
    if found is None or found.low is None or found.high is None:
        return "not measured"
    return f"{round(found.mean, 3) + 0.0:.3f}, interval {found.low:.3f} to {found.high:.3f}"


owners: dict[str, Degrees | str] = {"own row": root, "row of sgd": "sgd", "row of adam": "adam"}
rows, inside = [], []
for name, columns in SUMS.items():
    expected = exponents(theory.update_under(dl.solve_rule("post", owners[name]), root)["encoder"], (N,))[1][0]
    measured = sims.fit_exponent(DEPTHS, columns).measured
    if measured is not None and measured.low is not None and measured.high is not None:
        inside.append(measured.low <= float(expected) <= measured.high)
    rows.append({"U under root grows as L to the power": name, "derived": expected, "measured": text_of(measured)})
table(rows)
say(f"{sum(inside)} of {len(inside)} intervals, which take the depths as independent, hold the derived power.")

# %% [markdown]
# ## What this does not say
#
# - Orders, not constants: a row holds the update level, at a height that is not computed here, and the learning rate
#   is still to be tuned.
# - The matrices, not everything. Norm gains and biases train too, and their part is not held by these rows (DN-10).
# - The first step, from zero state. Adam's second step is not a sign.
# - Flat is not the same as trainable, or as best. [Notebook 7](07_training_at_depth.ipynb) trains.
#
# ## What to remember
#
# - An optimizer enters a depth law through two numbers: the degree of its step in the gradient, and in the parameter.
# - The rule is a line of networks, $2N(\lambda/\alpha)^{p+1}\lambda^t = 1$, and a table prints one point of it.
# - Su's three rows follow, but for a slip in LAMB's formula that changes no power.
# - Optimizers with the same two degrees share a row, so most need none of their own; one that has other degrees takes
#   one line.
# - The powers can be checked by the exact mean field, and on real networks for an optimizer made up on the spot.
#
# ## Go on
#
# ```
# depthlaw rule --norm post --optimizer muon --arch encoder --layers 100
# depthlaw tables --only su-optimizers
# depthlaw explain S1-37
# ```
#
# Claims: S1-21 to S1-41. `CONTRIBUTING.md` says how to add an optimizer for good. Bounds and logarithms, for norms
# that stand elsewhere, are in notebook 4.

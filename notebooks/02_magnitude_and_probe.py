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
# # 2. The probe: where it sees, and where it is blind
#
# How large is the gradient of a matrix in a deep network? One number per matrix is all that a depth law needs, and Su
# Jianlin's article gets it without computing a single gradient. It writes the matrix as $W = \lambda U$, a magnitude
# times a frame, and asks how the loss depends on $\lambda$: a derivative by one scalar, which can be read off the
# formula of the network. Residual weights and gains for thousand-layer models come out of this in a page.
#
# If you use that argument for a network of your own, you have to know when the scalar does see the matrix. It does
# for the article's own Post-LN. It sees nothing at all of matrices that many people train: those of Sub-LN, of
# Peri-LN, and of attention with QK-norm. We put both numbers side by side, on real networks.

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
WIDTH = pick(64, fast=16)
SEEDS = pick(range(64), fast=range(8))

# %% [markdown]
# ## A matrix is a magnitude times a frame
#
# The article takes for $\lambda$ the number $\kappa$ that brings $WW^\top/\kappa^2$ closest to the identity, so that
# $U = W/\lambda$ is as orthogonal as can be. In the Frobenius norm that is a parabola in $1/\kappa^2$, with its
# lowest point at $\lambda^2 = \mathrm{tr}\,A^2/\mathrm{tr}\,A$, $A = WW^\top$ (S1-06). Here for a Xavier matrix and
# for an orthogonal one, both of gain one, and the distance over $\Vert I\Vert$:

# %%
size = pick(256, fast=64)
generator = torch.Generator().manual_seed(0)
empty = torch.empty(size, size, dtype=torch.float64)
MATRICES = {
    "Xavier": torch.nn.init.xavier_normal_(empty.clone(), generator=generator),
    "orthogonal": torch.nn.init.orthogonal_(empty.clone(), generator=generator),
}
fig, ax = plt.subplots(figsize=(7.2, 3.2))
kappas = [2 ** (i / 20) for i in range(-14, 31)]
lowest = {}
for (name, matrix), color in zip(MATRICES.items(), ("#D55E00", "#0072B2"), strict=True):
    values = torch.linalg.eigvalsh(matrix @ matrix.T)
    best = float(values.square().sum() / values.sum()) ** 0.5
    ends = [float((values / kappa**2 - 1).square().mean().sqrt()) for kappa in (*kappas, best)]
    lowest[name] = (best, ends[-1])
    ax.plot(kappas, ends[:-1], color=color, label=name)
    ax.plot([best], [ends[-1]], "o", color=color)
ax.axhline(1, color="#555555", ls="--", lw=1, label="the zero matrix")
ax.set(ylim=(0, 3), xlabel=r"$\kappa$", ylabel=r"$\|WW^T/\kappa^2 - I\| / \|I\|$")
ax.set_title(f"A Xavier matrix has no $\\kappa$ that makes it nearly orthogonal ({size} by {size})")
name_curves(ax)
plt.show()

# %%
for id_ in ("S1-07", "S1-08"):
    one = dl.claim(id_)
    instead = next(part.instead for part in one.parts if part.instead is not None)
    say(f"- **{id_}** {one.expected.value}: {one.summary}. Instead: {instead.text}.")
say(f"""
The lowest points are at $\\kappa = {lowest["Xavier"][0]:.3f}$ and ${lowest["orthogonal"][0]:.3f}$, where the distances
are {lowest["Xavier"][1]:.3f} and {abs(lowest["orthogonal"][1]):.0e}. None of this hurts the argument: as a *magnitude*,
$\\lambda$ is the gain times one constant for every shape. From here on $\\lambda$ is the gain.
""")

# %% [markdown]
# ## The probe is an inner product
#
# By the chain rule (S1-09),
#
# $$\frac{\partial \mathcal{L}(\lambda U)}{\partial\lambda}
# = \left\langle\frac{\partial\mathcal{L}}{\partial W}, U\right\rangle .$$
#
# The left is the probe, the right has the gradient in it. The article goes on: so the one is in proportion to the
# other in magnitude. But an inner product sees only what lies **along** $U$. A gradient at right angles to $U$ can be
# as long as it likes. When is it at right angles? When making $W$ longer or shorter does not change the loss.
#
# ## What the probe is good for
#
# In the article's sublayer the scalars can be pulled out, since relu is homogeneous, $\phi(\lambda x) =
# \lambda\phi(x)$, and a residual weight $\alpha$ under a norm is a weight $1/\alpha$ on the branch. `theory` does
# just this:

# %%
from depthlaw.theory.rules.magnitude import Branch

plain = Branch()
formula(plain.magnitude, r"\text{branch beside the stream}")
for place, gradient in enumerate(plain.gradients, start=1):
    formula(gradient, rf"\text{{probe of }} W_{place}")

# %% [markdown]
# ($b$ is a weight on the branch, one in the article.) Two lines, and a residual weight or a gain can be chosen from
# them: that is notebook 3.
#
# ### How homogeneous are the activations?
#
# relu is, exactly. GELU and Swish are "approximately", says the article. The picture shows what is left over when the
# scalar is pulled out; the table the worst case, and the typical one: the root mean square over Gaussian inputs, as a
# share of that of $\lambda\phi(x)$.

# %%
from depthlaw.paper_checks.papers.su.sublayers import phi

fig, axes = plt.subplots(1, 2, figsize=(7.2, 2.9), sharey=True)
x = torch.linspace(-6, 6, 601, dtype=torch.float64)
COLORS = {"relu": "#000000", "gelu": "#009E73", "swish": "#CC79A7"}
for ax, factor in zip(axes, (0.5, 2.0), strict=True):
    for name, color in COLORS.items():
        rest = phi(name)(factor * x) - factor * phi(name)(x)
        ax.plot(x.tolist(), rest.tolist(), color=color, label=name)
    ax.set(xlabel="$x$", title=rf"$\lambda = {factor:g}$")
axes[0].set_ylabel(r"$\phi(\lambda x) - \lambda\phi(x)$")
name_curves(axes[1])
plt.show()

# %%
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.theory.moments import inhomogeneity

rows = []
for part in dl.claim("S1-12").parts[: pick(None, fast=2)]:
    holds = (part.hedge or part).statement
    bound = holds["bound"].evalf(5) if isinstance(holds, Values) else None
    known = theory.activation({"swish": "silu"}.get(part.name, part.name))
    half, twice = (f"{100 * float(inhomogeneity(known, factor)):.2g} %" for factor in (0.5, 2.0))
    rows.append({"activation": part.name, "never more than": bound, "typical at 0.5": half, "at 2": twice})
table(rows)

# %% [markdown]
# ## Probe against gradient, on real networks
#
# Now both numbers by autograd. For every matrix of every network: the probe $\langle G, U\rangle$, with $U =
# W/\lambda$ and $G$ the gradient of a logit, and the gradient's length $\Vert G\Vert$. A single probe is one inner
# product with a random matrix and is small now and then by chance, so we take root mean squares over seeds. And we
# multiply the probe by $\sqrt{d}$: a random matrix with entries of variance $1/d$ that has nothing to do with $G$
# would read $\Vert G\Vert/\sqrt{d}$. So "probe = gradient" is what a blind guess at a direction sees; to read less
# than that takes a reason.


# %%
from depthlaw.sims.update import objective


def both(
    config: sims.ModelConfig, task: sims.Task, seeds: range = SEEDS
) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
    """(role, d <G, W>^2, ||G||^2) of every matrix, a value for each seed. At gain 1, W is U."""
    config = task.on(config)
    model = sims.Ensemble([sims.Member(config, seed) for seed in seeds])
    inputs = sims.draw_inputs(config, task, seeds, torch.float64, "cpu")
    logit = objective(model, model(inputs.x, inputs.y), inputs, task).sum()
    matrices = [(role, weight) for _, weight, role in model.tagged() if role != "head"]
    grads = torch.autograd.grad(logit, [weight for _, weight in matrices])
    found = []
    for (role, weight), grad in zip(matrices, grads, strict=True):
        probe = (grad * weight.detach()).sum((1, 2))
        found.append((role, config.d_model * probe.square(), grad.square().sum((1, 2))))
    return found


TASK = sims.Task(num_tokens=8)
SHAPE = {"encoder": sims.alternating(4), "d_model": WIDTH, "num_heads": 4, "ffn_ratio": 1}
NETWORKS = {
    "Post-LN": sims.ModelConfig(placement="post", **SHAPE),
    "Pre-LN": sims.ModelConfig(placement="pre", **SHAPE),
    "Sub-LN": sims.ModelConfig(placement="sub", **SHAPE),
    "Peri-LN": sims.ModelConfig(placement="peri", **SHAPE),
    "Pre-LN, QK-norm": sims.ModelConfig(placement="pre", has_qk_norm=True, **SHAPE),
}
FOUND = {name: both(config, TASK) for name, config in NETWORKS.items()}

# %%
from matplotlib.axes import Axes

from depthlaw.paper_checks.pages.drawing import STYLES

LOOKS = {
    "Post-LN": (*STYLES["post-ln"], "full"),
    "Pre-LN": (*STYLES["pre-ln"], "full"),
    "Sub-LN": (*STYLES["sub-ln-gamma"], "full"),
    "Peri-LN": ("#7F3C8D", "D", "full"),
    "Pre-LN, QK-norm": (*STYLES["pre-ln"], "none"),
}


def scatter(ax: Axes) -> None:
    """Every matrix of every network: length of its gradient, and the probe."""
    for name, (color, mark, fill) in LOOKS.items():
        xs = [float(length.mean().sqrt()) for _, _, length in FOUND[name]]
        ys = [float(probe.mean().sqrt()) for _, probe, _ in FOUND[name]]
        ax.plot(xs, ys, mark, color=color, fillstyle=fill, ms=6, label=name)


BLIND = 1e-9
ROLES = ("q", "k", "v", "out", "fc1", "fc2")


def reading(name: str, role: str) -> float:
    """Probe squared over gradient squared, of all matrices of a role."""
    above = sum(float(probe.mean()) for mine, probe, _ in FOUND[name] if mine == role)
    return above / sum(float(length.mean()) for mine, _, length in FOUND[name] if mine == role)


READ = {name: {role: reading(name, role) for role in ROLES} for name in FOUND}
unseen = {name: [role for role, seen in read.items() if seen < BLIND] for name, read in READ.items()}

# %%
from matplotlib.ticker import LogLocator, NullLocator

fig, (top, bottom) = plt.subplots(2, 1, figsize=(7.2, 5.4), sharex=True, height_ratios=(3, 1.2))
for ax in (top, bottom):
    scatter(ax)
    ax.set(xscale="log", yscale="log")
edges = [float(length.mean().sqrt()) for found in FOUND.values() for _, _, length in found]
span = (0.8 * min(edges), 1.25 * max(edges))
top.plot(span, span, color="#555555", lw=1, ls="--")
top.text(span[0] * 1.02, span[0] * 1.12, "probe = gradient", color="#555555", rotation=28)
top.set(xlim=span, ylim=(0.5 * span[0], span[1]), ylabel=r"probe, $\sqrt{d}\ \langle G, U\rangle$")
bottom.set(ylim=(1e-17, 1e-13), xlabel=r"length of the gradient, $\|G\|$", ylabel="probe")
for axis in (bottom.xaxis, top.yaxis):
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")
named = "; ".join(f"{', '.join(roles)} of {name}" for name, roles in unseen.items() if roles)
bottom.text(span[0] * 1.02, 2e-14, f"blind: {named}", fontsize=8)
name_curves(top)
top.set_title("A point for each matrix. Below the break: gradients that it does not see")
plt.show()

# %%
table(
    {"probe squared over gradient squared": name}
    | {role: "**blind**" if seen < BLIND else f"{seen:.2f}" for role, seen in read.items()}
    for name, read in READ.items()
)
near = [READ[name][role] ** 0.5 for name in ("Post-LN", "Pre-LN") for role in ROLES]
lengths = {True: [], False: []}  # of gradients, by whether the probe is blind to them
for name, found in FOUND.items():
    for role, _, length in found:
        lengths[role in unseen[name]].append(float(length.mean().sqrt()))
say(f"""
Post-LN and Pre-LN, the networks that the argument was made for: by role, the probe is {min(near):.2f} to
{max(near):.2f} times the gradient. Up to such a factor it is what the article says. Then there are those at the bottom,
of which the probe reads nothing but rounding: {sum(map(len, unseen.values()))} of the {len(FOUND) * len(ROLES)} cells
of the table. Their gradients are {min(lengths[True]):.2g} to {max(lengths[True]):.2g} long, those of the others
{min(lengths[False]):.2g} to {max(lengths[False]):.2g}.
""")

# %% [markdown]
# ## Why it is blind
#
# Look at where a norm stands. In Sub-LN, $x + W_2\,\mathrm{LN}(\mathrm{relu}(W_1\,\mathrm{LN}(x)))$, the norm divides
# by the length of what $W_1$ made. Twice as long a $W_1$ gives exactly the same network. So the loss does not depend
# on $\lambda_1$ at all, and the probe is zero, while the gradient, at right angles to $W_1$, turns it. (Euler: a
# function of degree zero has $\langle\nabla f, W\rangle = 0$.) In Peri-LN a norm stands behind the whole branch, in
# QK-norm behind $q$ and $k$. `theory` knows of it: it gives such a matrix the degree it has, minus one, in its own
# magnitude.

# %%
sub = Branch(inner_norm=True)
formula(sub.magnitude, r"\text{branch of Sub-LN}")
formula(sub.magnitude.diff(sub.probes[0]), r"\text{probe of }W_1")
formula(sub.gradients[0], r"\text{gradient of }W_1")
deep = dl.predict("sub-ln", "sgd", 96)
say(f"""
$W_1$'s part of the update of Sub-LN at {deep.num_sublayers} sublayers, exact:
{100 * deep.roles["fc1"] / deep.update:.0f} %. That is what a probe taken at its word would have left out.
""")

# %% [markdown]
# GELU is not homogeneous, so behind it the norm does not make the loss quite invariant. The probe of Sub-LN's $W_1$
# then reads something, but how little says nothing of the gradient:

# %%
rows = []
for act in ("relu", "gelu", "silu"):
    stack = (sims.SublayerConfig(kind="ffn"),) * 4
    config = sims.ModelConfig(encoder=stack, placement="sub", d_model=WIDTH, ffn_ratio=1, activation=act)
    shares: dict[str, list[float]] = {"fc1": [], "fc2": []}
    for role, probe, length in both(config, sims.Task()):
        shares[role].append(float(probe.mean() / length.mean()))
    texts = {role: ", ".join(f"{x:.2g}" if x > BLIND else "0" for x in xs) for role, xs in shares.items()}
    rows.append({"multiple, by sublayer": act, **texts})
table(rows)

# %%
one = dl.claim("S1-10")
part = one.parts[0]
say(f"**S1-10**, {one.expected.value}: {one.summary}. It holds where: {part.condition}.")
seen = [float(probe.mean() / length.mean()) for found in FOUND.values() for _, probe, length in found]
least = min(value for value in seen if value > BLIND)
depth = len(NETWORKS["Post-LN"].encoder)
say(f"In the networks above, {depth} sublayers deep, with attention, what is not blind reads {least:.2f} or more.")

# %% [markdown]
# ## Where it sees, how much does it see?
#
# Even where it is not blind the probe need not see all, and the claim's condition says why: the next norm takes out the
# part of the branch that lies along the stream, and that part is what the probe would have seen. In one relu sublayer
# the share that is left is known exactly:

# %%
amended = part.instead.statement if part.instead is not None else None
CURVES = {}
if isinstance(amended, Values):
    CURVES = {name: amended[name] for name in ("post W1", "sub W2", "sub W1")}
for name, expr in CURVES.items():
    formula(expr, rf"d\,\langle G, U\rangle^2 / \Vert G\Vert^2 \text{{, {name}}}")

# %%
from depthlaw.theory.symbols import init_gain, residual_weight

GAINS = pick((0.5, 0.71, 1.0, 1.41, 2.0), fast=(0.5, 1.0, 2.0))
NARROW, MANY = pick(32, fast=8), pick(2000, fast=16)


def multiple(placement: str, role: str, gain: float) -> sims.Estimate:
    """Means of probe and gradient over seeds of their own, so that their errors are independent."""
    sublayer = sims.SublayerConfig(kind="ffn", gains={"fc1": gain, "fc2": gain})
    config = sims.ModelConfig(encoder=(sublayer,), placement=placement, d_model=NARROW, ffn_ratio=1)
    place = ("fc1", "fc2").index(role)
    probe = both(config, sims.Task(), range(MANY))[place][1] / gain**2
    length = both(config, sims.Task(), range(MANY, 2 * MANY))[place][2]
    return sims.ratio(sims.estimate(probe.tolist()), sims.estimate(length.tolist()))


fig, ax = plt.subplots(figsize=(7.2, 3.6))
xs = [2 ** (i / 16) for i in range(-20, 21)]
for (placement, role), scheme in {("post", "fc1"): "post-ln", ("sub", "fc2"): "sub-ln-gamma"}.items():
    color, mark = STYLES[scheme]
    name = f"{placement} W{role[-1]}"
    exact = sp.lambdify((init_gain, residual_weight), CURVES[name], modules="math")
    ax.plot(xs, [exact(x, 1.0) for x in xs], color=color, lw=1.2)
    for gain in GAINS:
        found = multiple(placement, role, gain)
        ends = [[found.mean - (found.low or 0.0)], [(found.high or 0.0) - found.mean]]
        ax.errorbar([gain], [found.mean], ends, color=color, fmt=mark, ms=5, capsize=2)
    ax.text(xs[-1] * 1.03, exact(xs[-1], 1.0), name, color=color, va="center")
ax.axhline(0, color=STYLES["sub-ln-gamma"][0], lw=1.2)
ax.text(xs[0], 0.02, "sub W1", color=STYLES["sub-ln-gamma"][0])
ax.set(xscale="log", xlim=(0.4, 3.0), ylim=(-0.05, 1.15), xlabel=r"gain $\lambda$ of both matrices, $\alpha = 1$")
ax.set_xticks(GAINS, [f"{gain:g}" for gain in GAINS])
ax.xaxis.set_minor_locator(NullLocator())
ax.set_ylabel("probe squared over gradient squared")
ax.set_title(f"The larger the branch, the less the probe sees (d = {NARROW}, 95 % intervals)")
plt.show()

# %% [markdown]
# Lines: exact, at infinite width. Points: real sublayers. In the article's own case, branches with $\lambda^2/\alpha
# \le 1$, the probe sees most of the gradient, always the same share to within a constant; a magnitude argument needs
# no more. With large gains it sees ever less.
#
# ## And $\lambda_q$, $\lambda_k$?
#
# In attention the article leaves two scalars out of the sum: "due to the presence of softmax, the gradients of
# $\lambda_q$, $\lambda_k$ themselves will be very small". Is that so, and is it the softmax? Here no probe is needed;
# these are the squared derivatives of one attention layer's output by $\lambda_q$ and by $\lambda_v$, one over the
# other, and the same of the matrices. Left with logits over $\sqrt{d}$, as everybody trains; right as the article
# prints it, without.


# %%
from depthlaw.paper_checks.papers.su.self_attention import one_layer
from depthlaw.paper_checks.routes.intervals import Interval


def span_of(ax: Axes, x: float, found: Interval, color: str, mark: str) -> None:
    middle = (found.low * found.high) ** 0.5
    ends = [[middle - found.low], [found.high - middle]]
    ax.errorbar([x], [middle], ends, color=color, fmt=mark, ms=5, capsize=2)


TOKENS, WIDTHS = pick((4, 8, 16, 32, 64, 128), fast=(4, 8)), pick((16, 32, 64, 128), fast=(16, 32))
fig, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.6), sharey=True)
unscaled = {width: one_layer(8, width, is_scaled=False) for width in WIDTHS}
WHAT = {
    "scalars": ("#0072B2", "s", r"$\lambda_q$ over $\lambda_v$"),
    "matrices": ("#D55E00", "o", r"$W_q$ over $W_v$"),
}
for what, (color, mark, label) in WHAT.items():
    for tokens in TOKENS:
        span_of(left, tokens, getattr(one_layer(tokens, 64), what), color, mark)
    for width, found in unscaled.items():
        span_of(right, width, getattr(found, what), color, mark)
    right.plot(WIDTHS[-1:], getattr(unscaled[WIDTHS[-1]], what)[:1], color=color, label=label)
for ax, ticks in ((left, TOKENS), (right, WIDTHS)):
    ax.axhline(0.25, color="#555555", ls="--", lw=1)
    ax.set(xscale="log", yscale="log")
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
left.text(TOKENS[0], 0.27, '"very small", as we read it', color="#555555", fontsize=8)
left.set(xlabel="tokens, at width 64", ylabel="squared gradient, q over v", title=r"logits over $\sqrt{d}$")
right.set(xlabel="width, at 8 tokens", title="logits not scaled")
name_curves(right)
plt.show()

# %%
softmax, linear = one_layer(64, 64).scalars, one_layer(64, 64, weights="linear").scalars
smaller = "so the softmax does not make it smaller" if linear.high < softmax.low else "which leaves the cause open"
least, most = WIDTHS[0], WIDTHS[-1]
say(f"""
With scaled logits, 64 tokens and width 64, the ratio of squares is {softmax.text} with a softmax, where "very small",
as we read it, is a quarter at most. With linear weights in its place it is {linear.text}, {smaller}. Without the scale
the scalar's ratio is {unscaled[least].scalars.text} at width {least} and {unscaled[most].scalars.text} at {most}, and
that
of the matrix, which is what the optimizer moves by, {unscaled[least].matrices.text} and {unscaled[most].matrices.text}.
There the probe can mislead without being blind.
""")
for part in dl.claim("S1-18").parts:
    say(f"- {part.name}: **{part.expected.value}**")

# %% [markdown]
# In whole stacks with scaled logits the article may leave q and k out all the same, for another reason. Their share
# of the squared gradients of all matrices:

# %%
from depthlaw.paper_checks.papers.su.self_attention import query_shares
from depthlaw.paper_checks.routes.intervals import of_logs

rows = []
for scheme in pick(("post-ln", "deepnorm", "pre-ln"), fast=("post-ln",)):
    for is_scaled in (True, False):
        few, many = (of_logs(query_shares(scheme, depth, is_scaled=is_scaled)) for depth in (4, 16))
        row = {"scheme": f"`{scheme}`", "logits": "over sqrt(d)" if is_scaled else "not scaled"}
        falls = "yes" if many.high < few.low else "not shown"
        rows.append({**row, "share at 4 sublayers": few.text, "at 16": many.text, "falls": falls})
table(rows)
cause = next(
    part for part in dl.claim("S1-18").parts if part.name == "that the softmax is the cause, logits over sqrt(d)"
)
if cause.instead is not None:
    say(f"Real Transformers, narrow ones; intervals over seeds. The cause, by claim S1-18: {cause.instead.text}.")

# %% [markdown]
# ## What to remember
#
# - The probe $\partial\mathcal{L}/\partial\lambda$ is the inner product of the gradient with the matrix itself:
#   exact, and blind to whatever is at right angles.
# - In Post-LN and Pre-LN it reads the size of the gradient up to a factor, which is in the table, and two lines of
#   algebra replace a backward pass.
# - Straight behind a matrix, or behind a homogeneous activation of it, a norm makes the probe zero. Sub-LN's $W_1$
#   and $v$, Peri-LN's branch, QK-norm's $q$ and $k$: ask there for the degree, not for the derivative.
# - Where branches are large beside the stream it sees little.
# - With scaled logits the softmax is no reason for $q$ and $k$ to be small (S1-18). Check the matrices, too.
#
# ## Go on
#
# ```
# depthlaw explain S1-10
# depthlaw explain S1-18
# depthlaw rule --norm sub --optimizer sgd --arch encoder --layers 100
# ```
#
# Claims: S1-06 to S1-20. [Notebook 3](03_optimizer_tables.ipynb) makes rules for optimizers out of these sizes,
# notebook 4 follows Sub-LN, where the probe failed.

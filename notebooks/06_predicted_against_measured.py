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
# # 6. Predicted against measured: does a real Transformer move as the theory says?
#
# A derivation that is right about a network with one input, infinite width and no attention may be of no use to you.
# Your model has softmax attention over many tokens, norm gains, biases, an embedding, a finite width, and you train it
# with Adam. So here is the test that matters: take all schemes that the project knows, under three optimizers; predict,
# without a single fitted constant, how far each *role* of parameters moves the output in the first step; build the
# networks in torch; measure; compare.
#
# If prediction and measurement agree at depths that one can build, the same prediction can be asked about depths that
# one cannot. That answers a practical question, as far as the first step decides it: with which scheme, under which
# optimizer, does a learning rate that was tuned on a shallow model take a deep one as far?

# %%
import matplotlib.pyplot as plt
import numpy as np

import depthlaw as dl
from depthlaw import sims
from depthlaw.paper_checks.experiments.sweeps import OPTIMIZERS
from depthlaw.paper_checks.pages.prose import name_curves, pick, say, style, table

# Of paper_checks.pages.prose: pick(full, fast=few): few where a test runs this; say: a paragraph with computed numbers;
# table: rows.
style()
COLORS = dict(zip(OPTIMIZERS, ("#0072B2", "#D55E00", "#009E73"), strict=True))

# %% [markdown]
# ## What is predicted
#
# The update $U$ is what a first step of learning rate $\eta$ changes one logit by, to first order in $\eta$, over
# $\eta$: the sum over parameters of gradient times step, its mean over random weights, in units of a power of the width
# that makes it of order one. For SGD it is $\|\nabla f\|^2$; for Adam, whose first step is a sign, $\|\nabla f\|_1$;
# for LAMB the same times the size of the weights.
#
# `theory.kernel.predict` carries the inner products of the tokens through the sublayers (activations, softmax averages,
# norms) and those of the gradients back, at infinite width. Out comes $U$ of each role: queries, keys, values, output
# and FFN matrices, biases, norm gains and biases, embedding, head. "Update" is that of the matrices together.
#
# ## One network in front of your eyes
#
# First the prediction, then the networks. Change the scheme, the depth or the width and run it again.

# %%
from depthlaw.network.measuring import Kept
from depthlaw.paper_checks.experiments.kernel_laws import SHOWN_ROLES, measured
from depthlaw.sims.stats import holds

one = dl.Network(
    scheme=dl.scheme("deepnorm"), arch="encoder", num_sublayers=pick(8, fast=4), d_model=pick(128, fast=32),
    num_heads=4, num_tokens=8,
)  # fmt: skip
seeds = range(pick(24, fast=4))
predicted = {optimizer: one.theory(optimizer) for optimizer in ("sgd", "adam")}
built = dl.measure(one, tuple(predicted), seeds, Kept(None))


def beside(optimizer):
    """By role: predicted, measured, and the ratio with its interval of 0.95."""
    for role in ("update", *SHOWN_ROLES):
        expected = predicted[optimizer].update if role == "update" else predicted[optimizer].roles.get(role, 0.0)
        if not expected:
            continue
        unit = 1.0 if role == "update" else one.d_model ** one.role_power(optimizer, role)
        found = sims.estimate([value * unit for value in built[optimizer].values[role] if value is not None])
        told = sims.ratio_to_exact(found, expected)
        shown = f"{told.mean:.3f} [{told.low:.3f}, {told.high:.3f}]"
        yield {"optimizer": optimizer, "role": role, "predicted": expected, "measured": found.mean, "ratio": shown}


table([row for optimizer in predicted for row in beside(optimizer)])
say(
    f"""DeepNorm, {one.num_sublayers // 2} layers, width {one.d_model}, {one.num_heads} heads, {one.num_tokens} tokens,
    {len(seeds)} random networks. Theory says where it holds: {predicted["sgd"].holds}."""
)

# %% [markdown]
# ## All of them, from the record
#
# The same for every scheme, five depths, two widths and many more tokens stands in `sims/records/transformers.jsonl`,
# each seed's numbers by itself. Predictions were computed before and are kept with a digest of the code that made them.

# %%
from dataclasses import replace

from depthlaw.paper_checks.experiments.compared import LAYERS, WIDE, cells
from depthlaw.paper_checks.experiments.sweeps import SWEEPS
from depthlaw.sims.records import record
from depthlaw.system.places import RECORDS

sweep = SWEEPS["transformers"]
chosen = tuple(one for one in sweep.networks if one.num_sublayers in pick([2 * n for n in LAYERS], fast=(2, 32)))
runs = record.read(RECORDS / "transformers.jsonl")
every = cells(replace(sweep, networks=chosen), runs, measured())
wide = [cell for cell in every if cell.network.d_model == WIDE]
moving = [cell for cell in wide if "update" in cell.ratios]
still = [cell for cell in wide if cell.predicted["update"].value == 0]
say(
    f"""{len(wide)} networks and optimizers at width {WIDE}, {min(one.num_seeds for one in moving)} to
    {max(one.num_seeds for one in moving)} seeds each. Where branches or gradients start at 0
    ({", ".join(sorted({cell.network.scheme.name for cell in still}))}), the prediction is an exact 0 for
    {len(still)} of them, and {sum(not cell.wrong_zeros for cell in still)} of these measure 0."""
)

# %%
from matplotlib.ticker import NullLocator

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.2))
for shift, optimizer in zip((0.9, 1.0, 1.11), OPTIMIZERS, strict=True):
    here = [cell for cell in moving if cell.optimizer == optimizer]
    exact = np.array([cell.predicted["update"].value for cell in here])
    low, mean, high = (np.array([getattr(c.estimates["update"], end) for c in here]) for end in ("low", "mean", "high"))
    depth = shift * np.array([cell.network.num_sublayers // 2 for cell in here])
    bars = {"fmt": "o", "color": COLORS[optimizer], "markersize": 3, "linewidth": 0.7}
    left.errorbar(exact, mean * exact, [(mean - low) * exact, (high - mean) * exact], label=optimizer, **bars)
    right.errorbar(depth, mean, [mean - low, high - mean], alpha=0.6, **bars)
ends = [min(c.predicted["update"].value for c in moving), max(c.predicted["update"].value for c in moving)]
left.plot(ends, ends, color="black", linewidth=0.8)
left.set(xscale="log", yscale="log", xlabel="predicted update", ylabel="measured update", title="All schemes")
name_curves(left)
right.axhline(1, color="black", linewidth=0.8)
right.set(xscale="log", xlabel="layers N", ylabel="measured / predicted", title="The same, ratios")
right.set_xticks(LAYERS, [str(n) for n in LAYERS])
right.xaxis.set_minor_locator(NullLocator())
figure.suptitle(f"Real Transformers, width {WIDE}: no fitted constant; bars are intervals of 0.95")
plt.show()

# %%
from depthlaw.sims.stats import errors_off

ratios = [cell.estimates["update"] for cell in moving]
say(
    f"""Predictions span a factor of {ends[1] / ends[0]:,.0f}. {sum(abs(one.mean - 1) <= 0.03 for one in ratios)} of
    {len(ratios)} ratios lie within 3 % of 1, the farthest is {max(ratios, key=lambda one: abs(one.mean - 1)).mean:.3f},
    and {sum(map(holds, ratios))} of {len(ratios)} intervals hold 1. These are not {len(ratios)} independent trials: the
    networks of one depth are drawn from the same seeds, so that they err together. By depth, the mean deviation from 1
    in standard errors:"""
)
by_depth = {n: [cell for cell in moving if cell.network.num_sublayers == 2 * n] for n in LAYERS}


def mean_off(found):
    return float(np.mean([errors_off(cell.estimates["update"]) for cell in found]))


table(
    {"layers": n, "ratios": len(found), "all": mean_off(found)}
    | {o: mean_off([cell for cell in found if cell.optimizer == o]) for o in OPTIMIZERS}
    for n, found in by_depth.items()
    if found
)
say(
    f"""Where the columns of a row agree, it is one draw of seeds that all of them show: so read this as about
    {sum(map(bool, by_depth.values()))} independent looks, one a depth."""
)

# %% [markdown]
# ## Is that as good as chance allows?
#
# A ratio that is a little off may be scatter, or a wrong theory. The scatter is known: so count each deviation in
# its own standard errors. If nothing but chance were at work, and the ratios were independent, these numbers would
# follow the curves. They are not independent, so a histogram of many ratios has little power.


# %%
from statistics import median

from scipy.stats import t as student

from depthlaw.paper_checks.experiments.kernel_laws import share


def deviations(role_names):
    found = [(cell.estimates[role], role) for cell in wide for role in role_names if role in cell.estimates]
    return np.array([errors_off(one) for one, _ in found]), found


x = np.linspace(-6, 6, 200)
figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True)
groups = {"update of the matrices": ("update",), "every role by itself": SHOWN_ROLES}
for axes, (title, names) in zip(panels, groups.items(), strict=True):
    off, found = deviations(names)
    degrees = median(one.num for one, _ in found) - 1
    axes.hist(np.clip(off, -6, 6), bins=list(np.arange(-6.25, 6.5, 0.5)), density=True, color="#88CCEE")
    axes.plot(x, student.pdf(x, degrees), color="black")
    axes.set(title=f"{title} ({len(off):,} ratios)", xlabel="(ratio - 1) / standard error")
panels[0].set_ylabel("share per unit")
panels[0].text(1.2, 0.37, "chance alone")
off, found = deviations(("embedding",))
panels[1].hist(
    np.clip(off, -6, 6), bins=list(np.arange(-6.25, 6.5, 0.5)), color="#CC3311",
    weights=[2 / deviations(SHOWN_ROLES)[0].size] * len(off),
)  # fmt: skip
panels[1].text(-6, 0.1, "red: embedding", color="#CC3311")
plt.show()

# %%
total, _ = deviations(("update",))
roles, found = deviations(SHOWN_ROLES)
rest, apart = ([one for one, role in found if (role == "embedding") is is_apart] for is_apart in (False, True))
table(
    {
        "role": role,
        "ratios": len(mine),
        "median": median(one.mean for one in mine),
        "least": min(one.mean for one in mine),
        "largest": max(one.mean for one in mine),
        "intervals that hold 1": f"{100 * sum(map(holds, mine)) / len(mine):.0f} %",
    }
    for role in SHOWN_ROLES
    if (mine := [one for one, name in found if name == role])
)
say(
    f"""The width of the left histogram is {total.std():.2f} standard errors, where independent trials have one. Its
    middle is at {total.mean():.2f}; the table by depth shows what that is made of, and so few independent draws say
    little of a bias. On the right, {len(rest):,} ratios of all roles but the embedding, of the same few draws:
    {100 * sum(map(holds, rest)) / len(rest):.1f} % of their intervals hold 1. Of the embedding's
    {100 * sum(map(holds, apart)) / len(apart):.0f} % do; more of it below."""
)

# %% [markdown]
# ## What the theory leaves out
#
# Two things, and both can be seen. **Width.** Infinite width is an approximation; the correction goes with the
# number of sublayers over the width, $L/d$. **Heads.** The gradient of a token's embedding arrives through the heads,
# and a few of them are not infinitely many: its size scatters, and the mean of $\|g\|_1$, which sign-type optimizers
# see, is smaller for it.

# %%
from depthlaw.paper_checks.experiments.compared import NARROW
from depthlaw.paper_checks.experiments.sweeps import HEAD_SIZE
from depthlaw.paper_checks.pages.drawing import STYLES

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
for shift, name in enumerate(("post-ln", "pre-ln", "sub-ln-gamma", "deepnorm")):
    here = [c for c in every if c.network.scheme.name == name and c.optimizer == "sgd"]
    xs = [c.network.num_sublayers / c.network.d_model * 1.1**shift for c in here]
    low, mean, high = (np.array([getattr(c.estimates["update"], e) for c in here]) for e in ("low", "mean", "high"))
    left.errorbar(
        xs, mean, [mean - low, high - mean], fmt=STYLES[name][1], color=STYLES[name][0], markersize=4, capsize=2,
        linewidth=0.8, label=name,
    )  # fmt: skip
left.axhline(1, color="black", linewidth=0.8)
left.set(xscale="log", xlabel="sublayers / width", ylabel="measured / predicted", title="Width: update under SGD")
name_curves(left)
for optimizer in OPTIMIZERS:
    for d_model in (NARROW, WIDE):
        mine = [
            c.estimates["embedding"].mean
            for c in every
            if (c.optimizer, c.network.d_model, c.network.num_sublayers) == (optimizer, d_model, 2)
        ]
        right.plot(
            d_model // HEAD_SIZE + OPTIMIZERS.index(optimizer) / 4 - 0.25 + np.linspace(-0.08, 0.08, len(mine)),
            mine, ".", color=COLORS[optimizer], label=optimizer if d_model == WIDE else None,
        )  # fmt: skip
right.axhline(1, color="black", linewidth=0.8)
right.set(xlabel="heads", ylabel="measured / predicted", title="Heads: embedding at one layer, every scheme")
right.set_xticks([NARROW // HEAD_SIZE, WIDE // HEAD_SIZE])
name_curves(right)
plt.show()

# %%
from depthlaw.paper_checks.experiments.compared import width_fit
from depthlaw.paper_checks.experiments.sweeps import KEPT_SCHEMES

fits = {}
for name, optimizer in ((n, o) for n in KEPT_SCHEMES for o in OPTIMIZERS):
    mine = [c for c in every if c.name[:2] == (name, optimizer) and "update" in c.ratios]
    if len({c.network.num_sublayers for c in mine}) > 1:
        fits[name, optimizer] = width_fit(mine)
worst = max(fits.values(), key=lambda fit: abs(fit.slope.mean))
embedding = {
    o: median(c.estimates["embedding"].mean for c in wide if c.optimizer == o and c.network.num_sublayers == 2)
    for o in OPTIMIZERS
}
say(
    f"""A line 1 + a/d + b L/d through all depths and both widths: of {len(fits)} intervals for b,
    {sum(holds(fit.slope, 0.0) for fit in fits.values())} hold 0; the largest b is {worst.slope.mean:.2f}
    [{worst.slope.low:.2f}, {worst.slope.high:.2f}]. A width term exists in theory; where an interval holds 0, these
    networks do not resolve it. At {LAYERS[-1]} layers and width {WIDE} that b would be
    {100 * abs(worst.slope.mean) * 2 * LAYERS[-1] / WIDE:.0f} %. The embedding at one layer and {WIDE // HEAD_SIZE}
    heads: median ratio {", ".join(f"{value:.3f} under {o}" for o, value in embedding.items())} (points of one column
    share their seeds and move together). The theory is one of infinitely many heads, and says so."""
)

# %% [markdown]
# ## Which scheme is flat under which optimizer
#
# Now to depths that nobody here could measure: kept predictions of encoders of up to a thousand layers. First all
# schemes at a glance, by the power of $N$ that the matrices' update has at the largest depths. Zero is flat: the same
# learning rate moves a deep model as far as a shallow one in its first step (whether it trains as well is notebook 7).
# White cells are what you look for; red ones grow, blue ones fall behind, grey ones begin with a
# factor that is zero.

# %%
from depthlaw.paper_checks.experiments.kernel_laws import LENGTHS, last_exponent, laws

law = laws()
grid = np.array([[last_exponent(law[name, o]) for o in OPTIMIZERS] for name in KEPT_SCHEMES], dtype=float)
figure, axes = plt.subplots(figsize=(4.6, 5.8))
image = axes.imshow(np.ma.masked_invalid(grid), cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
for i, row in enumerate(grid):
    for j, value in enumerate(row):
        text = "does not move" if np.isnan(value) else f"{round(value, 2) + 0.0:.2f}"
        axes.text(j, i, text, ha="center", va="center", fontsize=7, color="white" if abs(value) > 0.7 else "black")
axes.set_xticks(range(len(OPTIMIZERS)), OPTIMIZERS)
axes.set_yticks(range(len(KEPT_SCHEMES)), list(KEPT_SCHEMES), fontsize=8)
axes.set_facecolor("#BBBBBB")
axes.grid(visible=False)
axes.set_title(f"Power of N of the matrices' update, N = {LENGTHS[-2]} to {LENGTHS[-1]:,}")
figure.colorbar(image, shrink=0.5)
plt.show()

# %% [markdown]
# And the curves behind the numbers: four schemes by name, every other one in grey.

# %%
figure, panels = plt.subplots(1, 3, figsize=(9, 3.6), sharey=True)
named = ("post-ln", "pre-ln", "deepnorm", "su-adam")
curves = {case: {n: u for n, u in found.updates.items() if n >= 4 and u} for case, found in law.items()}
over = {case: {n: u / curve[4] for n, u in curve.items()} for case, curve in curves.items() if curve}
low, high = (which(u for curve in over.values() for u in curve.values()) for which in (min, max))
for axes, optimizer in zip(panels, OPTIMIZERS, strict=True):
    for name in (*(other for other in KEPT_SCHEMES if other not in named), *named):
        curve = over.get((name, optimizer), {})
        look = {"color": STYLES[name][0], "linewidth": 1.8} if name in named else {"color": "#CCCCCC", "linewidth": 0.9}
        axes.plot(list(curve), list(curve.values()), **look)
    place = 0.0  # of the label below, so that no two stand on one another
    for name in sorted(named, key=lambda name: over[name, optimizer][LENGTHS[-1]]):
        end = over[name, optimizer][LENGTHS[-1]]
        place = max(end, place * (high / low) ** 0.06)
        axes.annotate(f" {name}", (LENGTHS[-1], place), color=STYLES[name][0], va="center", fontsize=8)
    axes.set(xscale="log", yscale="log", xlabel="layers N", title=optimizer)
panels[0].set_ylabel("update / update at four layers")
figure.suptitle("The matrices' update by depth, predicted (infinite width)")
plt.show()


# %%
from depthlaw.paper_checks.experiments.kernel_laws import FLAT, growing


def flat(optimizer):
    ends = {name: last_exponent(law[name, optimizer]) for name in KEPT_SCHEMES}
    return [name for name, end in ends.items() if end is not None and abs(end) < FLAT]


for optimizer in OPTIMIZERS:
    kept = [name for name in flat(optimizer) if not growing(law[name, optimizer])]
    broken = [f"{n} ({', '.join(growing(law[n, optimizer]))})" for n in flat(optimizer) if n not in kept]
    say(
        f"""Under **{optimizer}** the matrices are flat in {len(flat(optimizer))} of {len(KEPT_SCHEMES)} schemes.
        No role grows in {", ".join(kept) or "none"}. Some other role grows in {"; ".join(broken) or "none"}."""
    )

several = {n: [o for o in OPTIMIZERS if n in flat(o)] for n in KEPT_SCHEMES}
everywhere = ", ".join(n for n, on in several.items() if len(on) == 3) or "no scheme"
pairs = ", ".join(f"{n} ({' and '.join(on)})" for n, on in several.items() if len(on) == 2)
crossed = last_exponent(law["su-sgd", "adam"]), last_exponent(law["su-adam", "sgd"])
say(
    f"""Flat in the matrices under all three: {everywhere}. Under two: {pairs}. Su's rule for SGD gives Adam's
    update a power of {crossed[0]:.2f}; that for Adam gives SGD's one of {crossed[1]:.2f}. DeepNorm's is
    {", ".join(f"{last_exponent(law['deepnorm', o]):.2f} under {o}" for o in OPTIMIZERS)}."""
)

# %% [markdown]
# So a rule for one optimizer need not be one for another, and being flat in the matrices is not being flat.
#
# ## DeepNorm's norm gains
#
# DeepNorm's promise is of the matrices under SGD. A default model trains its norm gains and biases too, and those
# theorems do not speak of them. Lines are predicted, points measured.

# %%
figure, axes = plt.subplots(figsize=(7.2, 4.4))
deepnorm = law["deepnorm", "sgd"]
drawn = {
    "fc1": "#0072B2",
    "v": "#56B4E9",
    "q": "#999933",
    "bias": "#E69F00",
    "norm_gain": "#D55E00",
    "embedding": "#777777",
}
here = [c for c in wide if c.name[:2] == ("deepnorm", "sgd")]
for role, color in drawn.items():
    curve = deepnorm.of(role)
    axes.plot(list(curve), list(curve.values()), color=color, linewidth=1.2)
    axes.annotate(role, (LENGTHS[-1], curve[LENGTHS[-1]]), (5, -3), textcoords="offset points", color=color)
    depth = [c.network.num_sublayers // 2 for c in here]
    mean = np.array([c.estimates[role].mean * c.predicted[role].value for c in here])
    low, high = (
        np.array([getattr(c.estimates[role], e) * c.predicted[role].value for c in here]) for e in ("low", "high")
    )
    axes.errorbar(
        depth, mean, [mean - low, high - mean], fmt="o", color=color, markersize=3.5, capsize=2, linewidth=0.8
    )
axes.set(xscale="log", yscale="log", xlabel="layers N", ylabel="U of the role (vectors: times d)", xlim=(0.9, 5000))
axes.set_title("DeepNorm under SGD: single roles by depth")
plt.show()

# %%
from depthlaw.paper_checks.experiments.kernel_laws import overtakes

rows = []
for name, optimizer in (("deepnorm", "sgd"), ("deepnorm", "lamb"), ("su-adam", "adam"), ("su-lamb", "lamb")):
    found = law[name, optimizer]
    beyond = {d: overtakes(found, optimizer, "norm_gain", d) for d in (512, 1024, 4096)}
    rows.append(
        {
            "scheme": name,
            "optimizer": optimizer,
            "power of N, matrices": f"{last_exponent(found):.2f}",
            "norm gains": f"{last_exponent(found, 'norm_gain'):.2f}",
            **{f"overtake at d = {d:,}": "not seen" if n is None else f"N = {n:,.0f}" for d, n in beyond.items()},
        }
    )
table(rows)
layers, d_model = 100, 1024
part = share(deepnorm, "sgd", "norm_gain", d_model, layers)
say(
    f"""A norm gain is one vector, so at width d its part is 1/d of what the figure shows (under LAMB, one over the
    root of d). At {layers} layers and width {d_model:,}, DeepNorm's norm gains have {100 * part:.0f} % of the matrices'
    update under SGD. From the depths in the table on they have more than all matrices together. The remedy is a
    learning rate of their own that falls as 1/N, or to freeze them; the column `lr ×` of `depthlaw predict --roles` has
    the number."""
)

# %% [markdown]
# ## What to remember
#
# - **The theory of the first step was not contradicted** by real Transformers: by role, with no fitted constant, it is
#   as near as the tables say. All schemes share their seeds, so there were far fewer independent draws than ratios;
#   known gaps are few heads and a width term that these networks do not resolve.
# - **Flat is a property of scheme and optimizer together.** The picture of powers and the lists below it say which.
# - **Matrices are not the model.** Norm gains and biases are not held by a rule for matrices; in deep and narrow models
#   they can be what moves.
# - Agreement was measured up to the depths and widths shown. Beyond them the curves are theory, at infinite width, and
#   trusted as far as $L/d$ is small. It is the first step: whether training goes well is another question.
#
# ## Go on
#
# - `depthlaw predict --attention --scheme deepnorm --optimizer adam --layers 8,100,1000 --width 1024 --roles`
# - `depthlaw measure --attention --scheme deepnorm --optimizer adam --sublayers 2,4,8,16 --width 256 --heads 4`
# - `TRANSFORMERS.md` has every number; claims DN-10, S3-12 and S2-24 rest on it.
# - Next: [notebook 7](07_training_at_depth.ipynb), what becomes of it in training.

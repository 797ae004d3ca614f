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
# # 7. Training at depth: does the first step know how it ends?
#
# Everything else in this project is about one step, the first: how far does a deep model move when its optimizer is
# let loose for the first time? Nobody trains for one step. What you want to know of a deep model is whether it will
# train, up to which learning rate, and whether warm-up will save it. And there is a printed bridge from the one to the
# other, a conclusion of the slides of Magneto's authors, which you see below.
#
# Only training can tell. So small networks were trained, many of them, with a plan written down before, but for what
# is listed below; every run is kept in `sims/records/training`. This notebook trains two networks in front of you, then
# reads the records of four experiments, and says what they show, what they refute, and what they leave open.

# %%
import matplotlib.pyplot as plt
import torch

import depthlaw as dl
from depthlaw import sims
from depthlaw.paper_checks.pages.prose import name_curves, pick, quote, say, style, table

# Of paper_checks.pages.prose: pick(full, fast=few): few where a test runs this; say: a paragraph with computed numbers;
# table: rows; quote: what a source prints, by claim.
style()
quote("S3-49")
torch.set_num_threads(1)

# %%
from IPython.display import display

from depthlaw.paper_checks.pages.drawing import canvas
from depthlaw.paper_checks.pages.training.figures import drawings
from depthlaw.paper_checks.pages.training.page import head
from depthlaw.paper_checks.pages.training.runs import Record

NAMES = ("stable-rates", "warmup", "thousand-layers")
records = {name: Record.read(name) for name in NAMES}
pictures = drawings(records | {"best-rates": Record.read("best-rates")})


def show(drawing, caption=None):
    """A picture of TRAINING.md, or parts of it, with its caption."""
    figure = canvas(drawing)
    figure.set_dpi(85)
    figure.set_layout_engine("none")
    display(figure)
    say(f"*{caption or drawing.caption}*")


trials = [arm.trial for record in records.values() for arm in record.experiment.arms]
widths, layers = {trial.d_model for trial in trials}, {trial.num_layers for trial in trials}
num_runs = sum(len(record.book) for record in records.values())
say(f"""
The records hold {num_runs:,} runs: networks {min(widths)} to {max(widths)} wide and {min(layers)} to {max(layers):,}
layers deep, trained for {min(trial.num_steps for trial in trials)} to {max(trial.num_steps for trial in trials)} steps.
**They are small, and short.** What a source says of *all* networks can be refuted by them. What it says of its own
large ones cannot, and a difference that is not seen here may be there at a width of a thousand.
""")
chosen = head(records).partition("- Chosen after")[2].partition("\n- ")[0]
say(f"**Not everything was planned.** Chosen after{chosen}")

# %% [markdown]
# ## 1. Two networks, trained while you wait
#
# Two decoders that read Python's own source byte by byte. They have the same depth, width, data, batches, optimizer
# (Adam) and learning rate; all that differs is the scheme: plain Post-LN, and DeepNorm, which weighs the residual up
# and the gains down. $U$ is what the other notebooks predict: how far one step moves a logit, to first order, per unit
# learning rate. Here it is measured on the very network that is trained, again and again as it trains.
#
# Change a line of the trial and run the cell again.

# %%
from dataclasses import replace

from depthlaw.paper_checks.experiments.stable_rates import gpt

live = dl.Trial(
    scheme="post-ln",
    shape="gpt",  # a causal decoder; its data are the bytes of Python's library
    num_layers=pick(12, fast=3),
    d_model=32,
    activation="relu",
    learning_rate=2.0**-8,
    warmup_steps=pick(12, fast=2),
    num_steps=pick(120, fast=12),
    measure_at=pick((0, 1, 2, 5, 10, 20, 40, 80, 120), fast=(0, 5, 12)),
    seed=4000,
)
pair = {scheme: dl.train(replace(live, scheme=scheme).lower()) for scheme in ("post-ln", "deepnorm")}

# %%
from depthlaw.paper_checks.pages.drawing import STYLES
from depthlaw.paper_checks.pages.training.runs import FACTOR, ratio

figure, (left, right) = plt.subplots(1, 2, figsize=(8.2, 3.4), dpi=90)
for scheme, run in pair.items():
    color, mark = STYLES[scheme]
    steps = [step for step, _ in enumerate(run.losses, start=1)]
    left.plot(steps, [loss or float("nan") for loss in run.losses], color=color, linewidth=1.2, label=scheme)
    ratios = [ratio(look, run) for look in run.looks]
    right.plot([look.step for look in run.looks], [x or float("nan") for x in ratios], color=color, marker=mark)
guess = pair["deepnorm"].guess
left.axhline(guess, color="#555555", linestyle="--", linewidth=1, label="without the input")
fates = ", ".join(f"{scheme}: {run.outcome}" for scheme, run in pair.items())
left.set(title=fates, xlabel="step", ylabel="training loss, nats a byte")
left.set_ylim(top=1.35 * guess)
name_curves(left)
right.axhspan(1 / FACTOR, FACTOR, color="#dddddd", alpha=0.6)
right.set(title="The update along training", xlabel="step", ylabel="$U$ over $U$ at initialisation")
right.set_xscale("symlog", linthresh=1)
right.set_yscale("log")
plt.show()

# %%
from depthlaw.paper_checks.pages.markdown import within
from depthlaw.paper_checks.pages.training.runs import leaves

for scheme, run in pair.items():
    gone = leaves(run)
    when = "it has not left it by the end" if gone is None else f"it has left it when looked at after {gone.step} steps"
    say(f"""
**{scheme}**: {run.outcome} ({run.reason}). Its update starts at $U = {run.looks[0].update["update"]:.3g}$; of staying
within a factor of {FACTOR:g} of that (the grey band): {when}.
""")

# %% [markdown]
# What these words mean was written down before the recorded runs were made:
#
# - **diverged**: the loss is not finite, or stays above where it began;
# - **stuck**: at the end the held-out loss is not below the entropy of the labels, which takes no look at the input
#   (the dashed line);
# - **trained**: it is below.
#
# So "trained" says that *something* was learnt, not how much, nor by what: a bigram passes too. It is a low bar on
# purpose.
#
# And the right panel is the first caveat of this whole project. Theory of the initialisation is about the left end of
# those curves, and at a rate at which one would train they do not stay there.

# %% [markdown]
# ## 2. The largest learning rate at which each scheme trains
#
# The first experiment searches, for each scheme, depth and seed, the largest rate of a grid (half octaves) at which the
# run still trains. That is what "stable" can mean in a measurable way.

# %%
from depthlaw.paper_checks.experiments.stable_rates import SCHEMES

rates = records["stable-rates"]
rates_picture = pictures["training-rates"]
panel = rates_picture.panels[0]
kept = [curve for curve in panel.curves if curve.label in SCHEMES]
panel = replace(panel, title="The largest rate of the grid at which a network still trains", curves=kept)
show(replace(rates_picture, panels=[panel], height=4.2))


# %%
from depthlaw.paper_checks.experiments.stable_rates import MIDDLE
from depthlaw.paper_checks.routes.training import questions


def answers(statements, book):
    """What the records say of statements: shown, its reverse shown, or open."""
    words = {"CONFIRMED": "yes", "REFUTED": "no", "UNDECIDED": "open"}
    found = [(statement.text, statement.evidence(book)) for statement in statements]
    shown = ["; ".join(f"{name}: {value}" for name, value in one.numbers.items()) for _, one in found]
    rows = zip(found, shown, strict=True)
    return [{"statement": text, "shown": words[one.verdict.value], "intervals": x} for (text, one), x in rows]


asked = [questions.PRE_EASIER, *questions.WITHIN_POST.values(), questions.SHALLOW["post-ln"]]
asked += [questions.GPT_ORDER["pre-ln", MIDDLE], questions.GPT_ORDER["normformer", MIDDLE]]
asked += [questions.LargerRate(names=(gpt("su-adam", MIDDLE), gpt("deepnorm", MIDDLE)))]
table(answers(asked, rates.book))
say(f"""
The intervals are octaves of the learning rate, {sims.LEVEL:.0%}, paired by seed (a seed draws the same batches in every
arm); "above" and "below": an end of the grid was reached, so that only the other end is known. "Open" means that
these seeds do not tell, not that there is no difference.
""")

# %%
from depthlaw.paper_checks.experiments.warmup import plain

words = {"CONFIRMED": "shown", "REFUTED": "refuted: its reverse is shown", "UNDECIDED": "open"}
inside = [words[one.evidence(rates.book).verdict.value] for one in questions.WITHIN_POST.values()]
say(f"""
So, at {MIDDLE} layers: that Pre-LN has a larger rate than plain Post-LN is
{words[questions.PRE_EASIER.evidence(rates.book).verdict.value]}. Among the schemes that norm the *sum* of stream and
branch (the Post-LN family), that the scaled one has a larger rate than plain Post-LN is
{"; ".join(f"{word} of {name}" for name, word in zip(questions.WITHIN_POST, inside, strict=True))}.
""")

# %% [markdown]
# ## 3. Does the update at initialisation predict it?
#
# If a smaller update made training more stable, the points below would fall from left to right.

# %%
predicts = pictures["training-predicts"]
first = replace(predicts.panels[0], title="The update at initialisation, and the largest rate at which it trains")
show(replace(predicts, panels=[first], columns=1, height=4.2))

# %%
from depthlaw.paper_checks.pages.markdown import bracket
from depthlaw.paper_checks.pages.training.runs import cases_by_depth, correlation, count, judged_pairs
from depthlaw.paper_checks.routes.training.stable_rates import LOOKS

by_depth = cases_by_depth(rates.book, LOOKS[0])
ranks = {num: correlation(found) for num, found in by_depth.items()}
table(
    {
        "layers": num,
        "networks": len(by_depth[num]),
        "rank correlation, with interval over networks": bracket(both[0].value, both[0].low, both[0].high),
        "the same, over seeds": bracket(both[1].mean, both[1].low, both[1].high),
    }
    for num, both in ranks.items()
    if both is not None
)
pairs = judged_pairs(rates.book, LOOKS[0])
agree, against = count(pairs, True), count(pairs, False)
say(f"""
"The smaller the update, the larger the rate" would be a correlation of -1. Pair by pair: {len(pairs)} pairs of schemes
at one depth have updates that differ by their interval. In {agree} the smaller update has the larger rate, in
**{against} it has the smaller rate**, and {len(pairs) - agree - against} are open; the level is one that all pairs hold
together, so that by chance not even one contradiction is to be expected.
""")

# %%
from depthlaw.paper_checks.pages.training.runs import mean_update, trial_of
from depthlaw.paper_checks.routes.training.arms import in_octaves

updates = {case.name: mean_update(case) for found in by_depth.values() for case in found}
clear = sorted((pair for pair in pairs if pair.agrees is False), key=lambda pair: pair.rates.octaves.high or 0.0)
scheme_of = {case.name: trial_of(case) for found in by_depth.values() for case in found}
table(
    {
        "layers": scheme_of[pair.smaller].num_layers,
        "smaller update": f"{scheme_of[pair.smaller].scheme} ({updates[pair.smaller]:.3g})",
        "larger update": f"{scheme_of[pair.larger].scheme} ({updates[pair.larger]:.3g})",
        "octaves of rate, first over second": in_octaves(pair.rates),
    }
    for pair in clear[:5]
)

# %% [markdown]
# Each line is a counterexample to the general statement, and the project's verdicts on it are judged here anew, from
# the records:

# %%
from depthlaw.paper_checks import judge

for name in ("S3-49", "S3-04"):
    verdict, parts = judge(dl.claim(name), quick=True)
    say(f"**{name}** ({dl.claim(name).summary}): **{verdict.value}**, by its parts:")
    table({"part": found.part.name, "verdict": found.verdict.value} for found in parts)

# %% [markdown]
# Read the parts: the verdict of a claim is that of its worst one. What is refuted is the comparison *between networks
# whose norms stand in different places*. What stands is the comparison with plain Post-LN inside its own family,
# which is the one that DeepNet made (the parts named after it). How far that goes is another question: the last row of
# the table of rates asks it of DeepNorm and Su's rule for Adam, whose updates differ too. Why the norms' place matters
# is not derived here; $U$ is about the first step, and knows nothing of what that step does to the second.
#
# ## 4. Does warm-up save Post-LN?
#
# Encoder-decoders that translate Python's source into its bytecode, the same number of layers on either side. Warm-up
# takes the first half of the run.

# %%
from depthlaw.paper_checks.experiments.warmup import DEPTHS, EDGE, SAME_SUM, warmed
from depthlaw.paper_checks.routes.training.arms import in_share
from depthlaw.sims.training.outcomes import share

warm = records["warmup"]
trained = {
    (num, name): share(sum(run.has_trained for run in found.results), len(found.seeds))
    for num in DEPTHS
    for name, found in (("none", warm.runs[plain("post-ln", num)]), ("warm-up", warm.runs[warmed(num)]))
}
table(
    {
        "Post-LN, layers": f"{num}-{num}",
        "trained without warm-up (exact interval)": in_share(trained[num, "none"]),
        "trained with it": in_share(trained[num, "warm-up"]),
    }
    for num in DEPTHS
)
panels = pictures["training-warmup"].panels
show(
    replace(pictures["training-warmup"], panels=[panels[0], panels[2]], columns=2),
    f"Training loss on translation. Left: {panels[0].title}, every scheme; right: Post-LN at smaller depths, with and "
    "without warm-up. Dashed: what can be had without the input.",
)

# %%
losses = questions.WARMED_LOSS
table(answers([questions.TRANSLATION, questions.OTHERS, questions.DEEPER, *losses.values()], warm.book))
verdict, _ = judge(dl.claim("S1-48"), quick=True)
slowed = warm.runs[SAME_SUM].results
num_slowed = sum(run.has_trained for run in slowed)
with_it, without = trained[EDGE, "warm-up"], trained[EDGE, "none"]
apart = [trained[num, "none"].high < trained[num, "warm-up"].low for num in DEPTHS]
say(f"""
At {DEPTHS[-1]} layers a side {trained[DEPTHS[-1], "none"].successes} of {trained[DEPTHS[-1], "none"].num} Post-LN train
without warm-up and {trained[DEPTHS[-1], "warm-up"].successes} of {trained[DEPTHS[-1], "warm-up"].num} with it. Of *how
many train*, the intervals part in {sum(apart)} of the {len(apart)} rows of the first table; the second has the losses.
S1-48, that the deeper a vanilla model is the more likely it gets stuck, and that warm-up helps: **{verdict.value}**.
At {EDGE} layers a side some seeds train and some do not: {with_it.successes} of {with_it.num} train with warm-up and
{without.successes} of {without.num} without it. At a lower rate whose sum over the steps is that of warm-up
{num_slowed} of {len(slowed)} do, so it is not the smaller sum that helps.
""")

# %% [markdown]
# ## 5. A thousand layers, and how long the theory of the first step holds
#
# All at one learning rate, as the promise of an update that does not depend on depth has it. The task is made of
# synthesised sound frames, which can be learnt in few steps.

# %%
from depthlaw.paper_checks.experiments.thousand_layers import LAYERS as DEEP_LAYERS
from depthlaw.paper_checks.experiments.thousand_layers import SCHEMES as DEEP_SCHEMES
from depthlaw.paper_checks.experiments.thousand_layers import arm_name as deep_name
from depthlaw.paper_checks.pages.training.runs import held_out

deepest = records["thousand-layers"]
panels = pictures["training-thousand"].panels
show(replace(pictures["training-thousand"], panels=[panels[0], panels[-1]], columns=2))
rows, thousand = [], {}
for scheme in DEEP_SCHEMES:
    found = deepest.runs[deep_name(scheme, DEEP_LAYERS[-1])]
    loss, diverged = held_out(found.results)
    trained_here = share(sum(run.has_trained for run in found.results), len(found.seeds))
    thousand[scheme] = trained_here
    row = {"scheme": scheme, f"trained at {DEEP_LAYERS[-1]:,} layers (exact interval)": in_share(trained_here)}
    row["held-out loss"] = f"{diverged} diverged" if loss is None else within(loss, 3)
    starts = found.updates
    rows.append(row | {"U at the start, by seed": ", ".join(f"{start:.3g}" for start in sorted(starts))})
table(rows)

# %%
show(pictures["training-updates"])
last = deepest.experiment.arms[0].trial.measure_at[-1]
rows = []
for scheme in DEEP_SCHEMES:
    row = {"scheme": scheme}
    for num in DEEP_LAYERS:
        looks = [leaves(run) for run in deepest.runs[deep_name(scheme, num)].results]
        steps = sorted(last + 1 if look is None else look.step for look in looks)
        row[f"{num:,} layers"] = ", ".join(f"not by {last}" if step > last else str(step) for step in steps)
    rows.append(row)
say(f"The step at which $U$ is first seen outside a factor of {FACTOR:g} of its start, for each seed:")
table(rows)


# %%
def num_left(num, step):
    """Of the runs at a depth, how many have left their start by then; and of how many."""
    looks = [leaves(run) for scheme in DEEP_SCHEMES for run in deepest.runs[deep_name(scheme, num)].results]
    return sum(look is not None and look.step <= step for look in looks), len(looks)


early = deepest.experiment.arms[0].trial.measure_at[-2]
spans = {num: "{} of {}".format(*num_left(num, early)) for num in DEEP_LAYERS}
order = sorted(DEEP_SCHEMES, key=lambda s: sum(x := deepest.runs[deep_name(s, DEEP_LAYERS[-1])].updates) / len(x))
others = [found for scheme, found in thousand.items() if scheme != "post-ln"]
parted = sum(thousand["post-ln"].high < found.low for found in others)
say(f"""
Three readings.

1. At {DEEP_LAYERS[-1]:,} layers and this rate there begin to train
   {", ".join(f"{found.successes} of {found.num} of {scheme}" for scheme, found in thousand.items())}. Against Post-LN
   the exact intervals part for {parted} of the {len(others)} others; where they overlap, the seeds do not tell. By the
   size of the update at the start the schemes stand in the order {", ".join(order)}; compare the column of losses.
2. When a network's update leaves what it was: by step {early},
   {", ".join(f"{text} runs at {num:,} layers" for num, text in spans.items())}. That is the shelf life of a statement
   about the initialisation, at this rate.
3. It is said of the first step, so the first step is what it may be trusted for; how the rest goes has to be tried.
""")

# %% [markdown]
# ## What to remember
#
# - That a smaller update at initialisation makes training more stable, as a general rule, is **refuted** (S3-49,
#   S3-04): it does not order schemes whose norms stand in different places. Beside plain Post-LN, the parts of S3-49
#   say how it is with DeepNorm and Su's rule for Adam.
# - Deep plain Post-LN tends to get stuck, and warm-up moves the depth at which it does, though not far (S1-48).
# - At a thousand layers there are a few seeds a scheme: what trained is listed above, with intervals that are wide.
# - Theory of the first step is about the first steps; by the table above they are the fewer, the deeper the network.
# - All of this is of small networks and short runs.
#
# ## What was not shown
#
# Whether any of these orders survives at the widths and lengths at which people train. The claims that stay open, and
# what would decide each:

# %%
from depthlaw.paper_checks.papers.registry import claims

for name, claim in claims().items():
    parts = [part for part in claim.parts if part.open and part.expected.value == "UNDECIDED"]
    for part in parts if claim.expected.value == "UNDECIDED" else ():
        say(f"- **{name}**, {part.name}: {part.open}.")

# %% [markdown]
# ## Go on
#
# - `depthlaw train --scheme post-ln,deepnorm --layers 6 --learning-rate 4e-3 --steps 40 --seeds 2`, on this data or on
#   yours (`--text FILE`).
# - `depthlaw experiment stable-rates --plan`, and without `--plan` to run it; `--scale large` for a GPU.
# - `TRAINING.md` has every table of the four experiments; `depthlaw explain S3-49` the verdict with its evidence.
# - Notebook 8: the rule for your own model.

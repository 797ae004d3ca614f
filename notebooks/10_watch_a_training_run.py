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
# # 10. Watching a training run
#
# You have made a model deeper, with the advice or without it, and training runs for days. What does a step move now,
# and is it more than in the model that you tuned? One line in the training loop answers that, role by role. Here three
# small models are watched: the tuned one, a deeper one as it is, and a deeper one with the advice.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional

import depthlaw as dl
from depthlaw.paper_checks.pages.prose import name_curves, pick, say, style, table
from depthlaw.sims.training.data import DataConfig, load
from depthlaw.watching import compare, record

style()
torch.set_num_threads(1)

# %% [markdown]
# ## 1. A model of your own
#
# A GPT as people write it, with GPT-2's initialisation: all matrices alike, but those that end a branch smaller by one
# over the root of the number of sublayers. depthlaw has never seen it; it reads the roles of its
# parameters from what flows through them.

# %%
WIDTH, TOKENS, RATE = 64, 32, 2**-9
FEW, MANY = pick((4, 24), fast=(1, 2))
STEPS, WARM_UP = pick((96, 16), fast=(4, 2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.c_out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.c_proj(mixed)
        return x + self.c_out(functional.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(256, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(num_layers))
        self.ln_f, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                ends_branch = name.endswith(("c_proj.weight", "c_out.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * num_layers) ** 0.5 if ends_branch else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


def build(num_layers: int) -> GPT:
    return GPT(num_layers)


# %% [markdown]
# ## 2. The advice
#
# What would one step of the deeper model move, and what has to change?

# %%
advice = dl.advise(model=build, from_layers=FEW, layers=MANY, optimizer="adamw")
ROLE = "fc2"  # the second matrix of each FFN, most of what a step moves in such models
grown = advice.factors[ROLE]
best = advice.remedies[0]
say(
    f"One step of AdamW moves {MANY} layers {advice.factors['update']:.2g} times as far as it moved {FEW}, if nothing "
    f"is changed; by {ROLE} alone {grown:.2g} times. The first of the remedies is `{best.name}`: "
    f"{'; '.join(best.changes)}."
)

# %% [markdown]
# ## 3. Three runs, each watched
#
# `dl.watch` is the one line, and `watch.step()` stands behind `optimizer.step()`. Looks are taken at the first steps,
# then at steps further and further apart. `apply` makes a fresh model what the advice says, and gives the groups of its
# parameters.

# %%
data = load(DataConfig(num_tokens=TOKENS))
held_out = data.held_out(64)
folder = Path(tempfile.mkdtemp())


def trained(num_layers: int, name: str, has_advice: bool = False) -> float:
    """Watched into a file; the held-out loss at the end."""
    torch.manual_seed(0)
    model = build(num_layers)
    groups = advice.apply(model, lr=RATE, weight_decay=0.01) if has_advice else model.parameters()
    optimizer = torch.optim.AdamW(groups, lr=RATE, weight_decay=0.01)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1 / WARM_UP, total_iters=WARM_UP)
    watch = dl.watch(model, optimizer, probe=held_out.inputs[:4], to=folder / name, every=64, budget=None)
    for step in range(STEPS):
        batch = data.batch(8, seed=0, step=step)
        loss = functional.cross_entropy(model(batch.inputs).flatten(0, 1), batch.labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)
        warm_up.step()
    watch.close()
    with torch.no_grad():
        return functional.cross_entropy(model(held_out.inputs).flatten(0, 1), held_out.labels.flatten()).item()


names = {
    f"{FEW} layers": (FEW, False),
    f"{MANY} layers": (MANY, False),
    f"{MANY} with the advice": (MANY, True),
}
losses = {name: trained(layers, name, has_advice) for name, (layers, has_advice) in names.items()}
runs = {name: record.Run.read(folder / name) for name in names}

# %% [markdown]
# ## 4. What the steps moved


# %%
def moved(run: record.Run) -> dict[int, float]:
    """By step, what it changed in the logits by ROLE alone."""
    return {look.step: change for look in run.looks if (change := compare.change_of(look, ROLE)) is not None}


_, axes = plt.subplots()
for name, run in runs.items():
    looks = [(step + 1, change) for step, change in moved(run).items()]
    axes.plot(*zip(*looks, strict=True), "o-", markersize=3, label=name)
axes.set(xscale="log", yscale="log", xlabel="step", ylabel=f"what a step of {ROLE} changes in the logits")
name_curves(axes)
plt.show()

# %% [markdown]
# `depthlaw watch FIRST SECOND` prints the same comparison in words, and `--plot` draws it role by role. The deeper run
# as it is, beside the tuned one:

# %%
first, plain, advised = runs.values()
say("\n".join(f"- {line}" for line in compare.compare(first, plain).verdict))

# %% [markdown]
# And with the advice:

# %%
say("\n".join(f"- {line}" for line in compare.compare(first, advised).verdict))

# %%
table(
    {
        "run": name,
        f"first step of {ROLE}": moved(run)[0],
        "predicted, if labels have nothing in common": ends[0],
        "and if all are alike": ends[1],
        "its last look": list(moved(run).values())[-1],
        "held-out loss": losses[name],
    }
    for name, run in runs.items()
    if (ends := compare.predicted_of(run, ROLE)) is not None
)

# %% [markdown]
# The first step was predicted before it was taken, from the weights and the probe alone: how far it moves the logits
# depends on what the labels of a batch have in common, which no weight tells, so the prediction has two ends.

# %%
times = [moved(run)[0] / moved(first)[0] for run in (plain, advised)]
say(
    f"The first step of {ROLE} of {MANY} layers moved the logits {times[0]:.2g} times as far as that of {FEW}, where "
    f"{grown:.2g} were predicted at infinite width; with the advice {times[1]:.2g} times. Later steps are another "
    "matter: the law of the first step lives for a few steps. This is one seed of a small model: it shows what a watch "
    "sees, and not that the advice pays. What is known of both stands in "
    "[TRAINING.md](../paper_checks/results/TRAINING.md)."
)

r"""Training a network: real optimizers, a stated rule for what became of it, and its update measured on the way.

What becomes of a run, a result like any other:

    diverged   the training loss is not finite; or it stands above the held-out loss at the start for ``patience``
               steps running, the first ``patience`` steps not counted; or the held-out loss at the end does
    stuck      at the end the held-out loss is not below ``guess``, the entropy of the held-out labels' own
               frequencies: the network does no better than one that ignores its input
    trained    it is below

So "trained" says that something was learnt, not how much: ``held_out`` says that. A learning rate so small that nothing
is learnt in ``num_steps`` ends as stuck; one that hardly moves the loss may end on the wrong side of its start.

The batch of a step is a function of the seed and the step, and nothing else is random, so that a run that goes on from
a checkpoint repeats every bit of one that was not stopped (on one machine with the same number of threads).

``train_together`` trains many runs of one shape in the time of far fewer: their weights are stacked, and one forward
and one backward pass serve all. Each has its own seed, learning rate, schedule, weight decay, clipping and numbers (two
schemes may be of one shape), and its own optimizer, so that its numbers are those of the run alone, to rounding. One
that diverges ends as it would alone, and costs nothing from then on. ``train`` is the same of one run.

The update at a step is that of one logit at the last position of one held-out sequence, in the unit of ``sims.update``,
with the weights as they are: at step 0 what theory predicts, later what became of it. ``from_start`` is how far the
function has moved: the root mean square, over all logits of that sequence, of the change since step 0; ``in_step``
that of the step just taken. Both, and the update, are computed in the precision of the weights.

It is one module, since a run, what is seen of it on the way and its checkpoint are one state: a number that one of them
keeps is asked by the others.

``TrainConfig`` is all that decides a run. Losses are in nats a label; with a checkpoint, a run that was stopped goes on
bit for bit.

>>> from depthlaw.sims.model import ModelConfig, alternating
>>> from depthlaw.sims.training.data import DataConfig
>>> from depthlaw.sims.training.train import TrainConfig, train
>>> model = ModelConfig(encoder=alternating(2), d_model=16, num_heads=2)
>>> settings = {"learning_rate": 1e-2, "num_steps": 4, "warmup_steps": 2, "batch_size": 4}
>>> config = TrainConfig(model=model, data=DataConfig(name="digits"), **settings)
>>> [config.rate_at(step) for step in range(4)]
[0.5, 1.0, 1.0, 1.0]
>>> result = train(config)
>>> result.num_steps, len(result.losses), result.outcome in ("trained", "stuck", "diverged")
(4, 4, True)
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import time
import warnings
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn
from torch.nn import functional

from depthlaw.sims.ensemble import Ensemble, Member, shape_of
from depthlaw.sims.model import BRANCH_ROLES, ModelConfig
from depthlaw.sims.optim import OPTIMIZERS
from depthlaw.sims.records.record import rounded
from depthlaw.sims.training.data import HELD_OUT, IGNORED, Batch, Data, DataConfig, load
from depthlaw.sims.training.frontend import Network
from depthlaw.sims.training.stepping import BY_ENTRY, Rows, ShardedWeights, Weights
from depthlaw.sims.training.sweep import EndsSweepError, of_the_disk
from depthlaw.sims.update import Inputs, Task, first_order, logit_tangents, roles_of

if TYPE_CHECKING:
    from depthlaw.sims.training.sharded import Processes

SCHEDULES = ("constant", "linear", "cosine", "inverse-sqrt")
PRECISIONS = ("float64", "float32", "bfloat16")
OUTCOMES = ("trained", "stuck", "diverged")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a disk, a quota and a limit of files' sizes say that have no more room."""
MOVED = 2
"""Held-out sequences whose logits ``Moves`` are of."""
_LARGEST_BY_SUBLAYER = 200
"""The largest number of sublayers at which the gradient norm of each one is kept."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything that decides a run.

    model: the network without vocabulary and head, which come from the data. learning_rate: the rate at its peak; step
    t (from 0) of the first ``warmup_steps`` W takes warmup_from + (1 - warmup_from) (t + 1)/W of it. schedule: how the
    rate goes on after the warm-up: constant, linear or cosine to 0 at ``num_steps``, or inverse-sqrt, sqrt(max(W, 1)/(t
    + 1)). weight_decay: the decay of matrices and tables; vectors have none. clip_norm: what the norm of the whole
    gradient is clipped to. optimizer_options: further options of the optimizer's class. precision: bfloat16 keeps
    weights in float32 and multiplies in bfloat16 (autocast). measure_at: the steps before which the update is measured;
    num_steps stands for the end. has_moves: whether a look also has what the next step of the optimizer moves
    (``Moves``). ValueError, in one line, for settings that do not go together.
    """

    model: ModelConfig
    data: DataConfig
    optimizer: str = "adam"
    learning_rate: float
    num_steps: int
    batch_size: int = 16
    warmup_steps: int = 0
    warmup_from: float = 0.0
    schedule: str = "constant"
    weight_decay: float = 0.0
    clip_norm: float | None = None
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    precision: str = "float32"
    evaluate_every: int = 50
    measure_at: tuple[int, ...] = ()
    has_moves: bool = False
    patience: int = 50

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("optimizer", self.optimizer, OPTIMIZERS),
            ("schedule", self.schedule, SCHEDULES),
            ("precision", self.precision, PRECISIONS),
        ):
            if value not in allowed:
                raise ValueError(f"{name} is one of {', '.join(allowed)}, not {value!r}")
        counts = ("num_steps", "batch_size", "evaluate_every", "patience")
        for name, count in zip(
            counts, (self.num_steps, self.batch_size, self.evaluate_every, self.patience), strict=True
        ):
            if count < 1:
                raise ValueError(f"{name} is at least 1, not {count}")
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise ValueError(f"learning_rate is a positive number, not {self.learning_rate}")
        if not 0 <= self.warmup_steps <= self.num_steps:
            raise ValueError(f"warmup_steps is from 0 to num_steps, {self.num_steps}, not {self.warmup_steps}")
        if not 0 <= self.warmup_from <= 1:
            raise ValueError(f"warmup_from is a share of the learning rate, from 0 to 1, not {self.warmup_from:g}")
        if self.weight_decay < 0 or not math.isfinite(self.weight_decay):
            raise ValueError(f"weight_decay is at least 0, not {self.weight_decay}")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(f"clip_norm is positive, not {self.clip_norm}")
        if odd := [step for step in self.measure_at if not 0 <= step <= self.num_steps]:
            raise ValueError(f"measure_at has steps from 0 to num_steps, {self.num_steps}, not {odd[0]}")
        if self.seed < 0:
            raise ValueError(f"seed is at least 0, not {self.seed}")
        if odd := sorted({"lr", "weight_decay", "params"} & set(self.optimizer_options)):
            raise ValueError(f"optimizer_options are those that have no field of their own here, not {odd[0]}")

    def rate_at(self, step: int) -> float:
        """The factor of ``learning_rate`` at a step, counted from 0."""
        if step < self.warmup_steps:
            return self.warmup_from + (1 - self.warmup_from) * (step + 1) / self.warmup_steps
        if self.schedule == "constant":
            return 1.0
        if self.schedule == "inverse-sqrt":
            return min(1.0, math.sqrt(max(self.warmup_steps, 1) / (step + 1)))
        done = (step - self.warmup_steps) / max(self.num_steps - self.warmup_steps, 1)
        return 1 - done if self.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2

    @property
    def kind(self) -> str:
        """What runs must have in common to be trained together."""
        rest = (self.data, self.optimizer, self.num_steps, self.batch_size, self.precision)
        options = sorted(self.optimizer_options.items())
        return repr((shape_of(self.model), *rest, options, self.evaluate_every, self.measure_at, self.has_moves))

    @property
    def digest(self) -> str:
        """A digest of all settings, by which a checkpoint belongs to exactly one run."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


_STRICT = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Moves(BaseModel):
    """What the step that the optimizer really took next changes in held-out logits, per unit learning rate.

    logits: root mean square, over all logits of ``MOVED`` held-out sequences, of the change to first order, by forward
    mode at the weights before the step: by role, of the branch matrices together ("update") and of all parameters
    ("all"); "whole" is the difference that the step made, over the rate of that step. in_full: the same where a role
    alone, or the branch matrices alone ("update"), take the step. weights, made, steps: by role, root mean square over
    all entries of the role's parameters, before the step: of the weights, of what they have moved since the start, and
    of the step over its rate. stream: by side, the root mean square of an entry of x_0 and of the x behind the last
    sublayer.

    Of the branch matrices' step, ``logits`` also has two parts: "along" is of its projection on the gradient of its own
    batch, and "unshared" of what another batch in place of it would not have brought: the difference of the two steps,
    over the square root of 2. loss: by how much the branch matrices' step lowers the loss of its own batch ("own") and
    of the other one ("other"), to first order and per unit rate; and what the entries of "other" come to in quadrature
    ("independent") and in absolute value ("most"). Records of before these, or ``in_full``, were measured lack them.
    """

    model_config = _STRICT

    logits: dict[str, float | None]
    in_full: dict[str, float | None] = {}
    loss: dict[str, float | None] = {}
    weights: dict[str, float | None]
    made: dict[str, float | None]
    steps: dict[str, float | None]
    stream: dict[str, list[float | None]]


class Look(BaseModel):
    """A measurement of the network after ``step`` steps of training. Numbers that were not finite are None.

    update: by role and "update", of one logit. gradient_norms: of the training loss, by side, of each sublayer's
    matrices in turn (of a deep one, the first and the last sublayer alone). moves: where they were asked for, and a
    step follows.
    """

    model_config = _STRICT

    step: int
    update: dict[str, float | None]
    from_start: float | None
    in_step: float | None = None
    gradient_norms: dict[str, list[float | None]] = {}
    moves: Moves | None = None


class TrainResult(BaseModel):
    """What became of a run, and why. Losses in nats a label.

    losses: of each step's batch. held_out: at the end, best the lowest, held_out_at by step, the start at step 0.
    guess: as in the rule above. seconds: of training, measurements included.
    """

    model_config = _STRICT

    outcome: str
    reason: str
    num_steps: int
    held_out: float | None
    best: float | None
    guess: float
    losses: list[float | None]
    held_out_at: list[tuple[int, float | None]]
    looks: list[Look]
    num_parameters: int
    seconds: float

    @property
    def has_trained(self) -> bool:
        return self.outcome == "trained"

    def plain(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


def train(
    config: TrainConfig,
    *,
    device: torch.device | str = "cpu",
    checkpoint: Path | None = None,
    checkpoint_every: int = 100,
    advance: Callable[[int], None] = lambda _: None,
    processes: Processes | None = None,
) -> TrainResult:
    """Train one network.

    checkpoint: a file that is written every so many steps; where it is there already, the run goes on from it. advance:
    a function that is called with the number of steps that were done. processes: the processes that the network is cut
    over, each of which calls this function; the checkpoint is then a folder that all of them can read, and any number
    of processes can go on from it. ValueError, in one line, for data that cannot
    be read, for a checkpoint of another run, and for a batch of fewer sequences than there are processes.
    """
    checkpoints = None if checkpoint is None else [checkpoint]
    (result,) = train_together(
        [config],
        device=device,
        checkpoints=checkpoints,
        checkpoint_every=checkpoint_every,
        advance=advance,
        processes=processes,
    )
    return result


def train_together(
    configs: Sequence[TrainConfig],
    *,
    device: torch.device | str = "cpu",
    checkpoints: Sequence[Path] | None = None,
    checkpoint_every: int = 100,
    advance: Callable[[int], None] = lambda _: None,
    processes: Processes | None = None,
) -> list[TrainResult]:
    """Train several networks of one ``TrainConfig.kind``; their results in the same order.

    checkpoints: a file of each, written every so many steps and, where it is there, gone on from. advance: told how
    many steps were done, those of each run counted. processes: as of ``train``, for one network. ValueError, in one
    line, for runs of several kinds, for data that cannot be read and for a checkpoint of another run.

    >>> from dataclasses import replace
    >>> from depthlaw.sims.model import ModelConfig, alternating
    >>> from depthlaw.sims.training.data import DataConfig
    >>> from depthlaw.sims.training.train import TrainConfig, train_together
    >>> model = ModelConfig(encoder=alternating(2), d_model=16, num_heads=2)
    >>> one = TrainConfig(model=model, data=DataConfig(name="digits"), learning_rate=1e-2, num_steps=4)
    >>> results = train_together([one, replace(one, seed=1), replace(one, learning_rate=1e-3)])
    >>> [result.num_steps for result in results]
    [4, 4, 4]
    """
    if len({config.kind for config in configs}) != 1:
        raise ValueError("runs that are trained together differ in their seeds and numbers alone")
    if processes is not None and (len(configs) > 1 or configs[0].batch_size < processes.num):
        raise ValueError(f"{processes.num} processes train one network, each on a sequence of its batch at least")
    if processes is not None and configs[0].has_moves:
        raise ValueError("what steps move is measured in one process alone")
    data = load(configs[0].data)
    runs = [_Run(config, data) for config in configs]
    if checkpoints is not None:
        for run, path in zip(runs, checkpoints, strict=True):
            run.go_on_from(path, processes)
    behind: dict[int, list[_Run]] = {}  # several steps where a kill came when only some were written
    for run in runs:
        behind.setdefault(run.step, []).append(run)
    for step, several in behind.items():
        together = _Together(several, device, processes)
        if step:
            advance(step * len(several))
        for num_runs in together.steps():
            advance(num_runs)
            if checkpoints is not None and together.step % checkpoint_every == 0:
                together.save()
    return [run.result() for run in runs]


def is_checkpoint(path: Path) -> bool:
    """Whether there is one of one process, a file, or one of several, in a folder: a hidden one is half of one."""
    return path.is_file() or (path.is_dir() and any(not entry.name.startswith(".") for entry in path.iterdir()))


class _Run:
    """What became of a run so far. checkpoint: its file; kept: what this holds, until the run goes on."""

    def __init__(self, config: TrainConfig, data: Data) -> None:
        self.config, self.data = config, data
        self.checkpoint: Path | None = None
        self.kept: dict[str, Any] | None = None
        self.num_parameters = 0
        self.step = 0
        self.seconds = 0.0
        self.losses: list[float] = []
        self.held_out_at: list[tuple[int, float]] = []
        self.looks: list[dict[str, Any]] = []
        self.above = 0
        self.stopped = ""

    @property
    def start(self) -> float:
        """The held-out loss before the first step."""
        return self.held_out_at[0][1]

    @property
    def is_over(self) -> bool:
        return bool(self.stopped) or self.step == self.config.num_steps

    def take_loss(self, loss: float) -> None:
        """Keep the loss of the step that is begun, which may end the run."""
        self.losses.append(loss)
        self.step += 1
        if not math.isfinite(loss):
            self.stopped = f"the training loss at step {self.step} is not finite"
            return
        self.above = self.above + 1 if loss > self.start and self.step > self.config.patience else 0
        if self.above >= self.config.patience:
            self.stopped = f"the training loss stood above {self.start:.4g}, where it began, for {self.above} steps"

    @property
    def history(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        return {
            "step": self.step,
            "seconds": self.seconds,
            "losses": self.losses,
            "held_out_at": self.held_out_at,
            "looks": self.looks,
            "above": self.above,
            "stopped": self.stopped,
        }

    def go_on_from(self, path: Path, processes: Processes | None) -> None:
        """Read a checkpoint, where there is one. ValueError, in one line, where it is none, or of another run."""
        self.checkpoint = path
        if not is_checkpoint(path):
            return
        try:
            if processes is None:
                with zipfile.ZipFile(path) as whole:  # torch reads past a flipped bit
                    if (damaged := whole.testzip()) is not None:
                        raise ValueError(damaged)
                content = torch.load(path, map_location="cpu", weights_only=True)
            else:
                content = processes.found(path)
            digest, data = content["digest"], content["data"]
        except Exception as error:  # torch names no exception of its own for a file that it cannot read
            raise ValueError(f"{path} is no checkpoint, or damaged: remove it to begin its run anew") from error
        if digest != self.config.digest or data != self.data.digest:
            raise ValueError(f"{path} is a checkpoint of another run: its settings or its data differ")
        self.kept, history = content, content["history"]
        self.step, self.seconds, self.losses = history["step"], history["seconds"], history["losses"]
        self.held_out_at, self.looks = history["held_out_at"], history["looks"]
        self.above, self.stopped = history["above"], history["stopped"]

    # ---------------------------------------------------------------- what became of it

    def result(self) -> TrainResult:
        held_out = self.held_out_at[-1][1]
        finite = [loss for _, loss in self.held_out_at if math.isfinite(loss)]
        outcome, reason = self._outcome(held_out)
        return TrainResult(
            outcome=outcome,
            reason=reason,
            num_steps=self.step,
            held_out=None if self.stopped else _finite(held_out),
            best=_finite(min(finite)) if finite else None,
            guess=rounded(self.data.guess),
            losses=[_finite(loss) for loss in self.losses],
            held_out_at=[(step, _finite(loss)) for step, loss in self.held_out_at],
            looks=[Look.model_validate(_all_finite(look)) for look in self.looks],
            num_parameters=self.num_parameters,
            seconds=rounded(self.seconds, 3),
        )

    def _outcome(self, held_out: float) -> tuple[str, str]:
        if self.stopped:
            return "diverged", self.stopped
        if not held_out <= self.start:  # NaN too
            return "diverged", f"held-out loss {held_out:.4g} at the end, {self.start:.4g} at the start"
        if held_out >= self.data.guess:
            return "stuck", f"held-out loss {held_out:.4g}; without the input {self.data.guess:.4g} can be had"
        return "trained", f"held-out loss {held_out:.4g}, below {self.data.guess:.4g} without the input"


def losses_of(network: nn.Module, batch: Batch, precision: str) -> Tensor:
    """The loss of every label of every member, one behind the other; 0 where a label is ignored."""
    is_mixed = precision == "bfloat16"
    with torch.autocast(batch.labels.device.type, torch.bfloat16) if is_mixed else nullcontext():
        logits_EBTC = network(batch.inputs, batch.decoder_inputs)
    wide = logits_EBTC if logits_EBTC.dtype == torch.float64 else logits_EBTC.float()
    return functional.cross_entropy(wide.flatten(0, 2), batch.labels.flatten(), ignore_index=IGNORED, reduction="none")


class _Together:
    """Networks in the middle of their training, all behind the same step.

    runs: those that are in the stack; one that is over leaves it before the next step.
    """

    def __init__(self, runs: Sequence[_Run], device: torch.device | str, processes: Processes | None = None) -> None:
        self.runs, self.device, self.processes = list(runs), torch.device(device), processes
        self.config, self.data = runs[0].config, runs[0].data  # of the config only what all have in common
        dtype = torch.float64 if self.config.precision == "float64" else torch.float32
        members = [Member(run.config.model, run.config.seed) for run in runs]
        if processes is None:
            self.network = Network(members, self.data, dtype=dtype, device=device)
            of_optimizer = Rows if self.config.optimizer in BY_ENTRY else Weights
            self.weights = of_optimizer(self.network, [run.config for run in runs])
        else:
            self.network = processes.network(members[0], self.data, dtype=dtype, device=device)
            self.weights = ShardedWeights(self.network, self.config)
        self._held_out = _to(self.data.held_out(HELD_OUT), self.device)
        self._probe = _part(self._held_out, 0, 1)
        self._at_start = self._logits_of_probe()
        self._rows_at_start = self.weights.rows.clone() if self.config.has_moves else None
        self._replay: Callable[[Batch], Tensor] | None = None
        self._is_warm = False
        start = self._evaluate() if not self.step else []
        for index, run in enumerate(self.runs):
            run.num_parameters = sum(p.numel() for p in self.network.parameters()) // len(self.runs)
            if run.kept is None:
                run.held_out_at = [(0, start[index])]
            else:
                self.weights.restore(index, run.kept)
                run.kept = None

    @property
    def step(self) -> int:
        return max(run.step for run in self.runs)

    # ---------------------------------------------------------------- going on

    def steps(self) -> Iterator[int]:
        """Yields, after each step that was done, of how many runs; ends when every run is over."""
        config = self.config
        while self._drop_what_is_over():
            start, step = time.perf_counter(), self.step
            going = [index for index, run in enumerate(self.runs) if not run.is_over]
            runs = [self.runs[index] for index in going]
            looks = self._looks() if step in config.measure_at else None
            before = None if looks is None else self._logits_of_probe()
            standing = self._standing(step) if looks is not None and config.has_moves else None
            self._take_step(looks)
            if looks is not None and standing is not None:
                for run, look, moves in zip(self.runs, looks, self._moves(standing, step), strict=True):
                    look["moves"] = None if run.stopped else moves
            if looks is not None and before is not None:
                in_step = _rms(self._logits_of_probe() - before)
                for run, index in zip(runs, going, strict=True):
                    run.looks.append(looks[index] | {"in_step": in_step[index]})
            if self.step % config.evaluate_every == 0 or self.step == config.num_steps:
                losses = self._evaluate()
                for run, index in zip(runs, going, strict=True):
                    run.held_out_at.append((self.step, losses[index]))
            if self.step == config.num_steps and self.step in config.measure_at:
                for run, look in zip(self.runs, self._looks(), strict=True):
                    run.looks += [] if run.stopped else [look]
            for run in runs:
                run.seconds += (time.perf_counter() - start) / len(runs)
            yield len(runs)

    def _drop_what_is_over(self) -> bool:
        """Take the runs that are over out of the stack, from a GPU those of an eighth at a time, since what is left is
        recorded anew. Whether there are others."""
        kept = [index for index, run in enumerate(self.runs) if not run.is_over]
        several = len(self.runs) // 8 if self.device.type == "cuda" else 0
        if 0 < len(kept) < len(self.runs) - several:
            self.runs = [self.runs[index] for index in kept]
            self.network.keep(kept)
            self.weights.keep(kept)
            self._replay, self._is_warm = None, False
            self._at_start = self._at_start[kept]
            self._rows_at_start = None if self._rows_at_start is None else self._rows_at_start[kept]
        return bool(kept)

    def _take_step(self, looks: list[dict[str, Any]] | None) -> None:
        step = self.step
        losses = self._losses_and_gradients(self._batches(step))
        for run, loss in zip(self.runs, self._summed(losses).tolist(), strict=True):
            if not run.is_over:
                run.take_loss(loss)
        alive = [index for index, run in enumerate(self.runs) if not run.stopped]
        if looks is not None:
            norms = _gradient_norms(self.network.config, self.weights.matrix_gradients())
            for index in alive:
                looks[index]["gradient_norms"] = norms[index]
        self.weights.take_step(alive, step)

    def _losses_and_gradients(self, batch: Batch) -> Tensor:
        """The loss of each run, (E,), whose gradients the weights then have. On a GPU it is a graph of what the second
        step of these members did, replayed: their networks are so small that starting each of its pieces from Python
        takes longer than the pieces."""
        if self._replay is not None:
            return self._replay(batch)
        losses = self._eager(batch)
        is_warm, self._is_warm = self._is_warm, True
        if is_warm and self.device.type == "cuda" and self.processes is None:
            self._replay = _replay(self._eager, batch, losses)
        return losses

    def _eager(self, batch: Batch) -> Tensor:
        losses = self._losses(batch)
        self.weights.take_gradients(losses.sum())
        return losses.detach()

    def _batches(self, step: int) -> Batch:
        """The batch of each run at a step, (E, B, ...), or what this process has of it. Runs of one seed share it."""
        seeds = list(dict.fromkeys(run.config.seed for run in self.runs))
        batches = [self._here(self.data.batch(self.config.batch_size, seed, step)) for seed in seeds]
        of_seeds, places = _to(_stacked(batches), self.device), [seeds.index(run.config.seed) for run in self.runs]
        return of_seeds if places == list(range(len(seeds))) else _each(of_seeds, lambda x: x[places])

    def _here(self, batch: Batch) -> Batch:
        """What this process has of a batch."""
        return batch if self.processes is None else _each(batch, self.processes.share)

    def _summed(self, x: Tensor) -> Tensor:
        """Over the processes."""
        return x if self.processes is None else self.processes.summed(x)

    def _losses(self, batch: Batch) -> Tensor:
        """The mean loss of each run's labels, (E,); of several processes, the part of it that is of this one's."""
        sums_E, counts_E = self._sums(batch)
        return sums_E / self._summed(counts_E)

    def _sums(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The sum of the losses of each run's labels, and how many these are, (E,)."""
        losses = losses_of(self.network, batch, self.config.precision)
        return losses.view(len(self.runs), -1).sum(1), (batch.labels != IGNORED).flatten(1).sum(1)

    @torch.no_grad()
    def _evaluate(self) -> list[float]:
        """The held-out loss of each run. As many sequences at a time as in a batch: so much is in the caches."""
        num, size = len(self._held_out.labels), self.config.batch_size
        parts = [self._sums(self._for_all(self._here(_part(self._held_out, at, size)))) for at in range(0, num, size)]
        sums, counts = (self._summed(torch.stack(column).sum(0)) for column in zip(*parts, strict=True))
        return (sums / counts).tolist()

    def _for_all(self, batch: Batch) -> Batch:
        """The same batch for each run."""
        return _each(batch, lambda x: x.expand(len(self.runs), *x.shape))

    # ---------------------------------------------------------------- looking

    @torch.no_grad()
    def _logits_of_probe(self) -> Tensor:
        return self._logits_of(self._probe)

    @torch.no_grad()
    def _logits_of(self, batch: Batch) -> Tensor:
        given = self._for_all(batch)
        return self.network(given.inputs, given.decoder_inputs).double()

    @torch.no_grad()
    def _vectors_of(self, batch: Batch) -> Inputs:
        """What a batch is to the Transformers behind the tables."""
        given = self._for_all(batch)
        with self.network.gathered():
            x, y = self.network.vectors(given.inputs, given.decoder_inputs)
        return Inputs(x, y, given.labels)

    def _looks(self) -> list[dict[str, Any]]:
        vectors = self._vectors_of(self._probe)
        x, y = (None if vector is None else vector.double() for vector in (vectors.x, vectors.y))
        assert x is not None
        task = Task(num_tokens=x.shape[2], trains_inputs=True)
        core = self.network.as_ensemble()
        order = first_order(core, Inputs(x, y, vectors.labels), task, [self.config.optimizer])
        roles = {
            role: value.tolist() for role, value in roles_of(core, order.functionals[self.config.optimizer]).items()
        }
        moved = _rms(self._logits_of_probe() - self._at_start)
        return [
            {
                "step": self.step,
                "update": {role: values[index] for role, values in roles.items()},
                "from_start": moved[index],
            }
            for index in range(len(self.runs))
        ]

    def _standing(self, step: int) -> _Standing:
        batch = _part(self._held_out, 0, MOVED)
        rows, vectors, logits = self.weights.rows.clone(), self._vectors_of(batch), self._logits_of(batch)
        alive = [index for index, run in enumerate(self.runs) if not run.stopped]
        own, other = (self._gradients(at) for at in (step, self.config.num_steps + step))
        instead = self.weights.step_under(other, alive, step)
        return _Standing(self.network.as_ensemble(rows.dtype), rows, batch, vectors, logits, own, other, instead)

    def _gradients(self, step: int) -> Tensor:
        """Of the batch of a step, or of one that no step has, (E, P)."""
        self._eager(self._batches(step))
        return self.weights.gradients.clone()

    @torch.no_grad()
    def _moves(self, standing: _Standing, step: int) -> list[dict[str, Any]]:
        """Of each run, the fields of ``Moves``, once the step is taken."""
        assert self._rows_at_start is not None
        core, tagged = standing.core, self.network.tagged()
        roles_of_name = {name: role for name, _, role, _ in tagged}
        lengths = [run.config.learning_rate * run.config.rate_at(step) for run in self.runs]
        rate_E = standing.rows.new_tensor(lengths)
        rate_EBTD = rate_E[:, None, None, None]
        now = self._vectors_of(standing.batch)
        steps = self.weights.named((standing.rows - self.weights.rows) / rate_E[:, None])
        of_core = {name.removeprefix("core."): value for name, value in steps.items() if name.startswith("core.")}
        of_inputs = (
            (standing.vectors.x - now.x) / rate_EBTD,  # linear in the tables: what their step makes of it
            None if now.y is None or standing.vectors.y is None else (standing.vectors.y - now.y) / rate_EBTD,
        )
        roles = list(dict.fromkeys(roles_of_name.values()))
        moved: dict[str, list[float]] = {}
        of_branches = of_all = torch.zeros_like(standing.logits)
        for role in roles:
            change = logit_tangents(core, standing.vectors, of_core, of_inputs, [role])
            of_all = of_all + change
            of_branches = of_branches + change if role in BRANCH_ROLES else of_branches
            moved[role] = _rms(change)
        own, other, instead = (
            {name: rows[name] for name, role in roles_of_name.items() if role in BRANCH_ROLES}
            for rows in map(
                self.weights.named,
                (standing.own, standing.other, (standing.rows - standing.instead) / rate_E[:, None]),
            )
        )
        gained = {name: (grad * steps[name]).double() for name, grad in other.items()}
        loss = {
            "own": _along(own, steps),
            "other": _along(other, steps),
            "independent": _along(gained, gained).sqrt(),
            "most": torch.stack([x.abs().flatten(1).sum(1) for x in gained.values()]).sum(0),
        }
        share_E = (loss["own"] / _along(own, own)).to(standing.rows.dtype)
        parts = {
            "along": {name: torch.einsum("e...,e->e...", grad, share_E) for name, grad in own.items()},
            "unshared": {name: (steps[name] - step) / math.sqrt(2) for name, step in instead.items()},
        }
        for name, part in parts.items():
            of_part = {key.removeprefix("core."): value for key, value in part.items()}
            moved[name] = _rms(logit_tangents(core, standing.vectors, of_part, (None, None), BRANCH_ROLES))
        whole = (self._logits_of(standing.batch) - standing.logits) / rate_EBTD
        moved |= {"update": _rms(of_branches), "all": _rms(of_all), "whole": _rms(whole)}
        sets = {role: [role] for role in roles} | {"update": BRANCH_ROLES}
        in_full = {
            name: _rms((logits - standing.logits) / rate_EBTD)
            for name, logits in zip(sets, self._stepped_alone(standing, sets.values(), roles_of_name), strict=True)
        }
        weights, made = self.weights.named(standing.rows), self.weights.named(standing.rows - self._rows_at_start)
        sizes = [_rms_by_role(several, roles_of_name) for several in (weights, made, steps)]
        sides = {side: (0, number) for side, number in core.config.num_sums.items()}
        ends: dict[tuple[str, int], list[float]] = {}
        for side, index, x in core.walk(standing.vectors.x, standing.vectors.y):
            if index in sides[side]:
                ends.setdefault((side, index), _rms(x))
        return [
            {
                **{
                    name: {role: values[member] for role, values in by_role.items()}
                    for name, by_role in zip(
                        ("logits", "in_full", "weights", "made", "steps"), (moved, in_full, *sizes), strict=True
                    )
                },
                "loss": {name: float(values[member]) for name, values in loss.items()},
                "stream": {side: [ends[side, index][member] for index in both] for side, both in sides.items()},
            }
            for member in range(len(self.runs))
        ]

    def _stepped_alone(
        self, standing: _Standing, sets: Iterable[Collection[str]], roles_of_name: Mapping[str, str]
    ) -> list[Tensor]:
        """For each set of roles the logits of the networks in which these alone have taken the step."""
        behind, found = self.weights.rows.clone(), []
        for several in sets:
            rows = standing.rows.clone()
            for (name, old), new in zip(
                self.weights.named(rows).items(), self.weights.named(behind).values(), strict=True
            ):
                if roles_of_name[name] in several:
                    old.copy_(new)
            self.weights.rows.copy_(rows)
            found.append(self._logits_of(standing.batch))
        self.weights.rows.copy_(behind)
        return found

    # ---------------------------------------------------------------- checkpoints

    def save(self) -> None:
        """Write the checkpoint of each run. EndsSweepError where the disk does not take it."""
        try:
            self._write()
        except Exception as error:
            if (of_disk := of_the_disk(error)) is None:
                raise
            place = self.runs[0].checkpoint
            assert place is not None
            what = "make room" if of_disk.errno in _FULL else "let it be written"
            goes_on = (
                "from the one before it, which is kept" if is_checkpoint(place) else "with the runs that are not kept"
            )
            failure = f"cannot write the checkpoint {place}: {of_disk.strerror or of_disk}"
            raise EndsSweepError(f"{failure}; {what}, and the same command goes on {goes_on}") from None

    def _write(self) -> None:
        """All to files beside the targets, which are then renamed."""
        if isinstance(self.weights, ShardedWeights):
            (run,) = self.runs
            assert run.checkpoint is not None
            content = {"digest": run.config.digest, "data": self.data.digest, "history": run.history}
            self.weights.save(run.checkpoint, run.step, content)
            return
        files: list[tuple[Path, Path]] = []
        try:
            for index, run in enumerate(self.runs):
                assert run.checkpoint is not None
                beside = run.checkpoint.with_name(f".{run.checkpoint.name}.{os.getpid()}")
                files.append((beside, run.checkpoint))
                network, optimizer = self.weights.state(index)
                content = {
                    "digest": run.config.digest,
                    "data": self.data.digest,
                    "network": network,
                    "optimizer": optimizer,
                    "history": run.history,
                }
                beside.parent.mkdir(parents=True, exist_ok=True)
                with beside.open("wb") as file:
                    torch.save(content, file)
            for beside, path in files:
                beside.replace(path)
        finally:
            for beside, _ in files:
                beside.unlink(missing_ok=True)


def _replay(function: Callable[[Batch], Tensor], batch: Batch, expected: Tensor) -> Callable[[Batch], Tensor]:
    """The function as a CUDA graph, which is replayed with what a batch has in the place of this one's numbers.

    expected: what the function came to of this batch. Where torch cannot record it, or the graph comes to something
    else, the function itself.
    """
    given = _each(batch, torch.clone)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            result = function(given)
        graph.replay()
        torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-3, equal_nan=True)
    except (RuntimeError, AssertionError) as error:
        warnings.warn(f"a step is not replayed as a CUDA graph: {error}", stacklevel=2)
        torch.cuda.synchronize()
        return function

    def replayed(batch: Batch) -> Tensor:
        for old, new in zip(_tensors_of(given), _tensors_of(batch), strict=True):
            old.copy_(new)
        graph.replay()
        return result

    return replayed


@dataclass(frozen=True)
class _Standing:
    """Networks before a step: their weights, and what they make of a batch (``_Together._vectors_of``).

    own, other: gradients (E, P) of the batch of the step and of another one. instead: the weights (E, P) behind the
    step with the other batch.
    """

    core: Ensemble
    rows: Tensor
    batch: Batch
    vectors: Inputs
    logits: Tensor
    own: Tensor
    other: Tensor
    instead: Tensor


# ---------------------------------------------------------------- pieces


def _gradient_norms(config: ModelConfig, gradients: Iterable[tuple[str, Tensor]]) -> list[dict[str, list[float]]]:
    """By member, gradient norms of each sublayer's matrices, by side; above ``_LARGEST_BY_SUBLAYER`` the first and last
    alone.
    """
    squares = {side: [torch.zeros(1, dtype=torch.float64)] * len(sublayers) for side, sublayers in config.sides}
    for name, gradient_EFD in gradients:
        side, _, rest = name.removeprefix("core._weights.").partition("_")
        index = rest.partition("_")[0]
        if side in squares and index.isdigit():
            places = squares[side]
            places[int(index)] = places[int(index)] + gradient_EFD.double().square().sum((1, 2)).cpu()
    by_side = {side: torch.stack(places).sqrt() for side, places in squares.items()}
    ends = {side: norms if len(norms) <= _LARGEST_BY_SUBLAYER else norms[[0, -1]] for side, norms in by_side.items()}
    return [
        dict(zip(ends, rows, strict=True)) for rows in zip(*(norms.T.tolist() for norms in ends.values()), strict=True)
    ]


def _each(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """The batch, each of its tensors changed."""
    decoder_inputs = None if batch.decoder_inputs is None else change(batch.decoder_inputs)
    return Batch(change(batch.inputs), decoder_inputs, change(batch.labels))


def _tensors_of(batch: Batch) -> list[Tensor]:
    return [x for x in (batch.inputs, batch.decoder_inputs, batch.labels) if x is not None]


def _to(batch: Batch, device: torch.device) -> Batch:
    return _each(batch, lambda x: x.to(device))


def _part(batch: Batch, start: int, size: int) -> Batch:
    """So many examples of a batch, from that one on."""
    return _each(batch, lambda x: x[start : start + size])


def _stacked(batches: Sequence[Batch]) -> Batch:
    decoder_inputs = [batch.decoder_inputs for batch in batches if batch.decoder_inputs is not None]
    inputs, labels = (torch.stack([getattr(batch, name) for batch in batches]) for name in ("inputs", "labels"))
    return Batch(inputs, torch.stack(decoder_inputs) if decoder_inputs else None, labels)


def _along(several: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> Tensor:
    """The inner product (E,) of each member's tensors with the others of the same names."""
    products = [(x * others[name]).flatten(1).sum(1, dtype=torch.float64) for name, x in several.items()]
    return torch.stack(products).sum(0)


def _rms(x: Tensor) -> list[float]:
    """The root mean square of each member."""
    return x.flatten(1).square().mean(1).sqrt().tolist()


def _rms_by_role(by_name: Mapping[str, Tensor], roles: Mapping[str, str]) -> dict[str, list[float]]:
    """The root mean square over all entries of a role's parameters, of each member."""
    squares: dict[str, Tensor] = {}
    counts: dict[str, int] = {}
    for name, value in by_name.items():
        role, entries = roles[name], value.double().reshape(len(value), -1)
        squares[role] = squares.get(role, 0.0) + entries.square().sum(1)
        counts[role] = counts.get(role, 0) + entries.shape[1]
    return {role: (square / counts[role]).sqrt().tolist() for role, square in squares.items()}


def _finite(x: float) -> float | None:
    return rounded(x) if math.isfinite(x) else None


def _all_finite(look: Any) -> Any:
    if isinstance(look, float):
        return _finite(look)
    if isinstance(look, dict):
        return {name: _all_finite(value) for name, value in look.items()}
    return [_all_finite(value) for value in look] if isinstance(look, list) else look

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

The update at a step is that of one logit at the last position of one held-out sequence, in the unit of ``sims.update``,
with the weights as they are: at step 0 what theory predicts, later what became of it. ``from_start`` is how far the
function has moved: the root mean square, over all logits of that sequence, of the change since step 0; ``in_step``
that of the step just taken. Both, and the update, are computed in the precision of the weights.

``TrainConfig`` is all that decides a run. Losses are in nats a label; with a checkpoint, a run that was stopped goes on
bit for bit.

>>> from sims.model import ModelConfig, alternating
>>> from sims.training.data import DataConfig
>>> from sims.training.train import TrainConfig, train
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

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor
from torch.nn import functional
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from sims.model import BRANCH_ROLES, ModelConfig
from sims.optim import MIXED, OPTIMIZERS, group_options, make
from sims.records.record import rounded
from sims.training.data import HELD_OUT, IGNORED, Batch, Data, DataConfig, load
from sims.training.frontend import Network
from sims.update import Inputs, Task, first_order, roles_of

SCHEDULES = ("constant", "linear", "cosine", "inverse-sqrt")
PRECISIONS = ("float64", "float32", "bfloat16")
OUTCOMES = ("trained", "stuck", "diverged")
_EPS: Mapping[str, float] = {"adam": 1e-8, "adamw": 1e-8, "rmsprop": 1e-8, "muon": 1e-8, "lamb": 1e-6, MIXED: 1e-8}
"""The eps that people train with, by optimizer; the eps of ``sims.optim.make`` is too small to matter."""
_FUSED = ("sgd", "momentum", "adam", "adamw")
"""The optimizers of torch that step all parameters in one call."""
_LARGEST_BY_SUBLAYER = 200
"""The largest number of sublayers at which the gradient norm of each one is kept."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything that decides a run.

    model: the network without vocabulary and head, which come from the data. learning_rate: its peak; step t (from 0)
    of the first ``warmup_steps`` W has warmup_from + (1 - warmup_from) (t + 1)/W of it. schedule: what follows the
    warm-up: constant, linear or cosine to 0 at ``num_steps``, or inverse-sqrt, sqrt(max(W, 1)/(t + 1)). weight_decay:
    that of matrices and tables; vectors have none. clip_norm: the largest norm of the whole gradient.
    optimizer_options: further options of the optimizer's class. precision: bfloat16 keeps weights in float32 and
    multiplies in bfloat16 (autocast). measure_at: steps before which the update is measured; num_steps is after the
    last. ValueError, in one line, for what does not fit.
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
    def digest(self) -> str:
        """A digest of all settings, by which a checkpoint belongs to exactly one run."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


_STRICT = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Look(BaseModel):
    """A measurement of the network after ``step`` steps of training. Numbers that were not finite are None.

    update: by role and "update", of one logit. gradient_norms: of the training loss, by side, of each sublayer's
    matrices in turn (of a deep one, the first and the last sublayer alone).
    """

    model_config = _STRICT

    step: int
    update: dict[str, float | None]
    from_start: float | None
    in_step: float | None = None
    gradient_norms: dict[str, list[float | None]] = {}


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
) -> TrainResult:
    """Train one network.

    checkpoint: a file that is written every so many steps and, where it is there, gone on from. advance: told how many
    steps were done. ValueError, in one line, for data that cannot be read and for a checkpoint of another run.
    """
    run = _Run(config, device)
    if checkpoint is not None and checkpoint.exists():
        run.restore(checkpoint)
        advance(run.step)
    for _ in run.steps():
        advance(1)
        if checkpoint is not None and run.step % checkpoint_every == 0:
            run.save(checkpoint)
    return run.result()


class _Run:
    """A network in the middle of its training."""

    def __init__(self, config: TrainConfig, device: torch.device | str) -> None:
        self.config, self.device = config, torch.device(device)
        self.data: Data = load(config.data)
        dtype = torch.float64 if config.precision == "float64" else torch.float32
        self.network = Network(config.model, self.data, config.seed, dtype=dtype, device=device)
        self.optimizer = _optimizer(self.network, config)
        self.scheduler = LambdaLR(self.optimizer, config.rate_at)
        self.step = 0
        self.seconds = 0.0
        self.losses: list[float] = []
        self.looks: list[dict[str, Any]] = []
        self.above = 0
        self.stopped = ""
        self._held_out = _to(self.data.held_out(HELD_OUT), self.device)
        inputs, decoder_inputs, labels = _parts(self._held_out)
        self._probe = Batch(inputs[:1], None if decoder_inputs is None else decoder_inputs[:1], labels[:1])
        self._at_start = self._logits_of_probe()
        self.held_out_at = [(0, self._evaluate())]

    # ---------------------------------------------------------------- going on

    def steps(self) -> Iterator[None]:
        """Yields after each step that was done; ends with the last one, or where the run has diverged."""
        config = self.config
        while self.step < config.num_steps and not self.stopped:
            start = time.perf_counter()
            look = self._look() if self.step in config.measure_at else None
            before = None if look is None else self._logits_of_probe()
            self._take_step(look)
            if look is not None and before is not None:
                look["in_step"] = _rms(self._logits_of_probe() - before)
                self.looks.append(look)
            if self.step % config.evaluate_every == 0 or self.step == config.num_steps:
                self.held_out_at.append((self.step, self._evaluate()))
            if self.step == config.num_steps and self.step in config.measure_at and not self.stopped:
                self.looks.append(self._look())
            self.seconds += time.perf_counter() - start
            yield

    def _take_step(self, look: dict[str, Any] | None) -> None:
        config = self.config
        batch = _to(self.data.batch(config.batch_size, config.seed, self.step), self.device)
        loss = self._loss(batch)
        self.losses.append(float(loss.detach()))
        self.step += 1
        if not math.isfinite(self.losses[-1]):
            self.stopped = f"the training loss at step {self.step} is not finite"
            return
        self.above = self.above + 1 if self.losses[-1] > self.start and self.step > config.patience else 0
        if self.above >= config.patience:
            self.stopped = f"the training loss stood above {self.start:.4g}, where it began, for {self.above} steps"
            return
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if look is not None:
            look["gradient_norms"] = _gradient_norms(self.network)
        if config.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), config.clip_norm)
        self.optimizer.step()
        self.scheduler.step()

    @property
    def start(self) -> float:
        """The held-out loss before the first step."""
        return self.held_out_at[0][1]

    def _precision(self) -> AbstractContextManager[Any]:
        is_mixed = self.config.precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16) if is_mixed else nullcontext()

    def _loss(self, batch: Batch) -> Tensor:
        with self._precision():
            logits = self.network(batch.inputs, batch.decoder_inputs)
        wide = logits if logits.dtype == torch.float64 else logits.float()
        return functional.cross_entropy(wide.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED)

    @torch.no_grad()
    def _evaluate(self) -> float:
        return float(self._loss(self._held_out))

    # ---------------------------------------------------------------- looking

    @torch.no_grad()
    def _logits_of_probe(self) -> Tensor:
        return self.network(self._probe.inputs, self._probe.decoder_inputs).double()

    def _look(self) -> dict[str, Any]:
        with torch.no_grad():
            x, y = self.network.vectors(self._probe.inputs, self._probe.decoder_inputs)
        vectors = Inputs(x[None].double(), None if y is None else y[None].double(), self._probe.labels[None])
        task = Task(num_tokens=x.shape[1], trains_inputs=True)
        core = self.network.as_ensemble()
        order = first_order(core, vectors, task, [self.config.optimizer])
        roles = roles_of(core, order.functionals[self.config.optimizer])
        return {
            "step": self.step,
            "update": {role: float(value) for role, value in roles.items()},
            "from_start": _rms(self._logits_of_probe() - self._at_start),
        }

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
            num_parameters=sum(p.numel() for p in self.network.parameters()),
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

    # ---------------------------------------------------------------- checkpoints

    def save(self, path: Path) -> None:
        """Write a checkpoint: to a file beside the target, which is then renamed."""
        content = {
            "digest": self.config.digest,
            "data": self.data.digest,
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "history": {
                "step": self.step,
                "seconds": self.seconds,
                "losses": self.losses,
                "held_out_at": self.held_out_at,
                "looks": self.looks,
                "above": self.above,
                "stopped": self.stopped,
            },
        }
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            torch.save(content, beside)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)

    def restore(self, path: Path) -> None:
        """Go on from a checkpoint. ValueError, in one line, where the file is none, or belongs to another run."""
        try:
            content = torch.load(path, map_location=self.device, weights_only=True)
            digest, data = content["digest"], content["data"]
        except Exception as error:  # torch names no exception of its own for a file that it cannot read
            raise ValueError(f"{path} is no checkpoint, or damaged: remove it to begin its run anew") from error
        if digest != self.config.digest or data != self.data.digest:
            raise ValueError(f"{path} is a checkpoint of another run: its settings or its data differ")
        self.network.load_state_dict(content["network"])
        self.optimizer.load_state_dict(content["optimizer"])
        self.scheduler.load_state_dict(content["scheduler"])
        history = content["history"]
        self.step, self.seconds, self.losses = history["step"], history["seconds"], history["losses"]
        self.held_out_at, self.looks = history["held_out_at"], history["looks"]
        self.above, self.stopped = history["above"], history["stopped"]


# ---------------------------------------------------------------- pieces


def _optimizer(network: Network, config: TrainConfig) -> Optimizer:
    """The optimizer of a run. Its parameter groups differ in learning-rate multiplier and in weight decay; under two
    optimizers, also in whose they are."""
    groups: dict[tuple[float, float, bool], list[Tensor]] = {}
    for _, parameter, role, multiplier in network.tagged():
        decay = config.weight_decay if parameter.dim() == 2 else 0.0
        is_branch = config.optimizer != MIXED or role in BRANCH_ROLES
        groups.setdefault((multiplier, decay, is_branch), []).append(parameter)
    parts: list[dict[str, Any]] = [
        {"params": parameters, "lr": config.learning_rate * multiplier, "weight_decay": decay}
        | group_options(config.optimizer, is_branch=is_branch)
        for (multiplier, decay, is_branch), parameters in groups.items()
    ]
    options: dict[str, Any] = {"eps": _EPS[config.optimizer]} if config.optimizer in _EPS else {}
    options |= {"fused": True} if config.optimizer in _FUSED else {}
    try:
        return make(config.optimizer, parts, config.learning_rate, **{**options, **config.optimizer_options})
    except TypeError as error:
        raise ValueError(f"optimizer_options of {config.optimizer}: {error}") from error


def _gradient_norms(network: Network) -> dict[str, list[float]]:
    """Gradient norms of each sublayer's matrices, by side; above ``_LARGEST_BY_SUBLAYER`` the first and last alone."""
    by_side: dict[str, list[float]] = {}
    for side, sublayers in network.config.sides:
        squares = [0.0] * len(sublayers)
        for name, parameter in network.core.named_parameters():
            parts = name.removeprefix("_weights.").split("_")
            if parameter.dim() == 2 and parameter.grad is not None and parts[0] == side and parts[1].isdigit():
                squares[int(parts[1])] += float(parameter.grad.double().square().sum())
        norms = [math.sqrt(square) for square in squares]
        by_side[side] = norms if len(norms) <= _LARGEST_BY_SUBLAYER else [norms[0], norms[-1]]
    return by_side


def _parts(batch: Batch) -> tuple[Tensor, Tensor | None, Tensor]:
    return batch.inputs, batch.decoder_inputs, batch.labels


def _to(batch: Batch, device: torch.device) -> Batch:
    inputs, decoder_inputs, labels = _parts(batch)
    return Batch(inputs.to(device), None if decoder_inputs is None else decoder_inputs.to(device), labels.to(device))


def _rms(x: Tensor) -> float:
    return float(x.square().mean().sqrt())


def _finite(x: float) -> float | None:
    return rounded(x) if math.isfinite(x) else None


def _all_finite(look: Any) -> Any:
    if isinstance(look, float):
        return _finite(look)
    if isinstance(look, dict):
        return {name: _all_finite(value) for name, value in look.items()}
    return [_all_finite(value) for value in look] if isinstance(look, list) else look

"""A tiny network on a tiny task, for the tests of training and of checkpoints."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from depthlaw.sims.ensemble import Member
from depthlaw.sims.model import ModelConfig, Transformer, alternating
from depthlaw.sims.training.data import HELD_OUT, DataConfig, load
from depthlaw.sims.training.frontend import Network
from depthlaw.sims.training.train import TrainConfig, TrainResult, train

D = 8
MODEL = ModelConfig(
    encoder=alternating(2, lr_multipliers={"bias": 0.5}),
    placement="pre",
    d_model=D,
    num_heads=2,
    ffn_ratio=2,
    activation="gelu",
    has_affine=True,
    has_bias=True,
    norm_eps=1e-5,
)
BASE = TrainConfig(
    model=MODEL, data=DataConfig(name="digits"), learning_rate=0.01, num_steps=6, batch_size=64, evaluate_every=2
)
"""256 sequences are held out, and a batch of them is evaluated at a time: of small batches that is most of a run."""
FULL = replace(
    BASE, warmup_steps=4, warmup_from=0.1, schedule="cosine", weight_decay=0.1, clip_norm=0.5, measure_at=(0, 4)
)
"""With everything that has a state of its own."""
DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.float32}


def own_parallel(folder: Path) -> DataConfig:
    """Numbers, to the same numbers backwards."""
    numbers = [b"%d" % (7919 * i + 12345) for i in range(500)]
    paths = folder / "numbers.src", folder / "numbers.tgt"
    paths[0].write_bytes(b"\n".join(numbers))
    paths[1].write_bytes(b"\n".join(number[::-1] for number in numbers))
    return DataConfig(name="translation", num_tokens=9, parallel=(str(paths[0]), str(paths[1])))


def without_time(result: TrainResult) -> dict[str, Any]:
    return result.plain() | {"seconds": 0.0}


def end_of(config: TrainConfig, folder: Path) -> dict[str, Any]:
    """What a checkpoint behind the last step holds."""
    path = folder / "end.pt"
    path.unlink(missing_ok=True)
    train(config, checkpoint=path, checkpoint_every=config.num_steps)
    return torch.load(path, weights_only=True)


class Plain(nn.Module):
    """One network without a stack and without fused kernels, at its start."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__()
        data, dtype = load(config.data), DTYPES[config.precision]
        stack = Network([Member(config.model, config.seed)], data, dtype=dtype)
        self.config, self.data = stack.config, config.data
        self.core = Transformer(stack.config, config.seed, dtype=dtype)
        self.tables = nn.ParameterDict({name: table.detach()[0].clone() for name, table in stack.tables.items()})

    def forward(self, inputs: Tensor, decoder_inputs: Tensor | None = None) -> Tensor:
        return self.core.logits(self.core(*self.vectors(inputs, decoder_inputs)))

    def vectors(self, inputs: Tensor, decoder_inputs: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        if "tokens" in self.tables:
            x = functional.embedding(inputs, self.tables["tokens"])
        else:
            x = inputs.to(self.tables["projection"].dtype) @ self.tables["projection"].mT
        x = x + self.tables["positions"] if "positions" in self.tables else x
        if decoder_inputs is None:
            return x, None
        return x, functional.embedding(decoder_inputs, self.tables["decoder_tokens"]) + self.tables["decoder_positions"]

    def tagged(self) -> list[tuple[str, nn.Parameter, str, float]]:
        return [
            *((f"tables.{name}", table, "embedding", 1.0) for name, table in self.tables.items()),
            *((f"core.{name}", p, role, float(self.core.lr_multipliers[name])) for name, p, role in self.core.tagged()),
        ]


def network_after(config: TrainConfig, folder: Path) -> Plain:
    """As it is behind the last step."""
    network = Plain(config)
    network.load_state_dict(end_of(config, folder)["network"])
    return network


def moves(network: Plain, other: Plain) -> dict[str, Tensor]:
    """What each parameter of ``network`` is less of ``other``."""
    theirs = dict(other.named_parameters())
    return {name: parameter.detach() - theirs[name].detach() for name, parameter in network.named_parameters()}


@torch.no_grad()
def logits_of_first(config: TrainConfig, network: Plain) -> Tensor:
    """Of the first held-out sequence, in float64."""
    batch = load(config.data).held_out(HELD_OUT)
    decoder_inputs = None if batch.decoder_inputs is None else batch.decoder_inputs[:1]
    return network(batch.inputs[:1], decoder_inputs).double()


@contextmanager
def files_of_at_most(num_bytes: int) -> Iterator[None]:
    """A disk without room, as far as this process can tell."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Killed(Exception):
    """In the middle of a run."""


def killed_at(step: int) -> Callable[[int], None]:
    """For ``advance``: what was saved behind that step is the last that there is."""
    done = 0

    def advance(num_steps: int) -> None:
        nonlocal done
        done += num_steps
        if done >= step:
            raise Killed

    return advance

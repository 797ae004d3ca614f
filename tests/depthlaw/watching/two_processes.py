"""What each of two gloo processes does in ``test_processes``: python -m tests.depthlaw.watching.two_processes FOLDER.

A small GPT is trained over DDP and over FSDP2, with a watch and without, and with one whose log fails at its second
look. Each process writes its last weights, and what was logged, by its rank.
"""

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import depthlaw
from tests.depthlaw.watching.models import GPT, batch


def fail(numbers: dict[str, float], step: int) -> None:
    if step == 1:
        raise OSError("the log is lost")


class Listed(GPT):
    """Calls its blocks from a list of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = [*self.blocks]

    def forward(self, ids: torch.Tensor, targets: torch.Tensor | None = None) -> Any:
        x = self.table(ids) + self.places.weight[: ids.shape[1]]
        for block in self.listed:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return logits, None if targets is None else functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def trained(kind: str, folder: Path, *, is_watched: bool, log: Any = ()) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    model = Listed() if kind == "listed" else GPT()
    run = model
    if kind == "ddp":
        run = DistributedDataParallel(model)
    else:
        if kind == "compiled":  # in place, and as a module of its own
            model.blocks[0].compile(backend="eager")
            own: Any = torch.compile(model.blocks[1], backend="eager")
            model.blocks[1] = own
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    optimizer = torch.optim.AdamW(run.parameters(), 1e-3)
    torch.manual_seed(5 + dist.get_rank())
    watch = None
    if is_watched:
        to = None if log else folder / f"{kind}.jsonl"
        watch = depthlaw.watch(run, optimizer, probe=batch(99), to=to, every=1, budget=None, log=log)
        watch.limit("fc2", 1e9)
    for step in range(4):
        run(*batch(10 * step + dist.get_rank()))[1].backward()
        optimizer.step()
        optimizer.zero_grad()
        if watch is not None:
            watch.step()
    parameters: list[tuple[str, Any]] = [*model.named_parameters()]
    whole = {name: p if kind == "ddp" else p.full_tensor() for name, p in parameters}
    return {name: value.detach().clone() for name, value in whole.items()}


def main(folder: Path) -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("depthlaw").addHandler(handler)
    rank, size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=size)
    ends = {}
    for kind in ("ddp", "fsdp"):
        for is_watched in (True, False):
            ends[f"{kind}, {is_watched}"] = trained(kind, folder, is_watched=is_watched)
        ends[f"{kind}, fails"] = trained(kind, folder, is_watched=True, log=fail)
    for kind in ("compiled", "listed"):
        for is_watched in (True, False):
            ends[f"{kind}, {is_watched}"] = trained(kind, folder, is_watched=is_watched)
    torch.save(ends, folder / f"{rank}.pt")
    (folder / f"{rank}.json").write_text(json.dumps(lines), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
    os._exit(0)  # threads of gloo that still want the interpreter abort one that takes its time to end

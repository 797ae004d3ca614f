"""Files of watched runs: of small real ones, and of changes that are made up."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import depthlaw
from depthlaw.watching.record import Header, Look, Role, Writer
from tests.depthlaw.watching.models import GPT, batch


def trained(path: Path, num_layers: int, num_steps: int = 9, **options: Any) -> Path:
    """Of a small GPT, looked at at the steps 0, 1, 2, 4 and 8."""
    torch.manual_seed(1)
    model = GPT(num_layers=num_layers)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    watch = depthlaw.watch(model, optimizer, probe=batch(99), to=path, every=8, budget=None, **options)
    for step in range(num_steps):
        loss = model(*batch(step))[1]
        assert loss is not None
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.step(loss, tokens=32)
    watch.close()
    return path


def made(
    path: Path,
    changes: Mapping[str, Mapping[int, float]],
    *,
    num_layers: int = 12,
    tokens: int = 10,
    roles: Sequence[str] = (),
) -> Path:
    """changes: by role, what each step moved; of all roles an equal share. tokens: of a step. roles: that the model has
    beside those."""
    header = Header(
        versions={},
        module="Made",
        num_layers={"decoder": num_layers},
        d_model=8,
        roles=dict.fromkeys((*changes, *roles), 64),
        optimizers=[{"name": "AdamW", "lr": 1e-3}],
        probe="ids (1, 4)",
        probe_sha256="0",
        every=1,
        budget=None,
        memory_bytes=0,
    )
    writer = Writer(path, header)
    for step in sorted({step for own in changes.values() for step in own}):
        there = {role: own[step] for role, own in changes.items() if step in own}
        writer.add(look(step, there, tokens=tokens * (step + 1)))
    writer.close()
    return path


def look(step: int, changes: Mapping[str, float], **fields: Any) -> Look:
    return Look(
        step=step,
        seconds=1.0,
        cost_seconds=0.1,
        method="forward-mode",
        whole=sum(changes.values()),
        first_order=None,
        roles={role: Role(change=change, share=1 / len(changes)) for role, change in changes.items()},
        stream=[],
        **fields,
    )

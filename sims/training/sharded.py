"""One network over several processes, each on a device of its own: torch's FSDP2 (``fully_shard``).

Each process keeps a share of every parameter, of its gradient and of what the optimizer keeps of it: rows. The matrices
of a sublayer are gathered while they multiply, in the forward and again in the backward pass, and so is the head; what
stands outside of them (tables, vectors) is gathered for the whole pass. The function is that of ``Network``, and so are
the numbers that it starts with: every process draws each parameter whole, and keeps its rows. Numbers
travel in the precision of the weights, so that nothing but the order of sums is another than in one process.

The processes are those of ``torchrun``. Nothing here knows of steps: ``sims.training.train`` has the loop.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load as load_checkpoint
from torch.distributed.checkpoint.state_dict_saver import save as save_checkpoint
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from depthlaw.sims.config import BRANCH_ROLES
from depthlaw.sims.ensemble import Ensemble, Member
from depthlaw.sims.model import Weight, weights_of
from depthlaw.sims.training.frontend import Fused, Network, Shape, tables_at_start, tables_of
from depthlaw.sims.training.sweep import EndsSweepError, of_the_disk

Result = TypeVar("Result")
MATRICES = (*BRANCH_ROLES, "head")
"""The roles of what stands in blocks."""


def start(device: str) -> Processes:
    """The processes that torchrun started, or this one alone, each on a device of this kind: "cpu" or "cuda"."""
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group(backend)
    else:
        store = dist.HashStore()  # pyright: ignore[reportPrivateImportUsage]
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
    return Processes(init_device_mesh(device, (dist.get_world_size(),)))


class Processes:
    """Those that one network is cut over. num: how many. rank: the number of this one, from 0."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self.mesh, self._group = mesh, mesh.get_group()
        self.num, self.rank = mesh.size(), mesh.get_local_rank()

    def network(self, member: Member, data: Shape, **rest: Any) -> ShardedNetwork:
        if self.mesh.device_type == "cuda":  # each thread begins on the first device
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        return ShardedNetwork(member, data, self, **rest)

    # ---------------------------------------------------------------- doing the same

    def leading(self, run: Callable[[Any], Result]) -> Callable[[Any], Result]:
        """``run``, which the others are told to do too, with the same argument.

        A ValueError is one that all of them meet, or of another that has ended. After any other error the others wait
        for this process in the middle of what they do, so it ends, and torchrun ends them.
        """

        def lead(task: Any) -> Result:
            try:
                self._told(task)
                return run(task)
            except ValueError:
                raise
            except BaseException as error:
                if _is_of_a_lost_one(error):
                    self._end_of_a_lost_one()
                traceback.print_exc()
                os._exit(1)

        return lead

    def follow(self, run: Callable[[Any], object]) -> None:
        """Do what the first process tells, until it is done. EndsSweepError where another process has ended."""
        while (task := self._next()) is not None:
            try:
                with suppress(ValueError):
                    run(task)
            except RuntimeError as error:
                if not _is_of_a_lost_one(error):
                    raise
                self._end_of_a_lost_one()
        dist.destroy_process_group()

    def _end_of_a_lost_one(self) -> NoReturn:
        """EndsSweepError in the process that notices first, so that it is said once; the others end."""
        rank = str(self.rank)
        with suppress(RuntimeError):  # torchrun, which keeps what they tell each other, has ended itself
            first = dist.distributed_c10d._get_default_store().compare_set(_SAID, "", rank)
            if first != rank.encode():
                os._exit(1)
        raise EndsSweepError(LOST) from None

    def _next(self) -> Any:
        try:
            return self._told(None)
        except RuntimeError:  # the first process has ended, and has said why
            os._exit(1)

    @contextmanager
    def dismissing(self) -> Iterator[None]:
        """In the first process: behind this block the others are told that all is done."""
        yield
        self._told(None)
        dist.destroy_process_group()

    def _told(self, what: Any) -> Any:
        """What the first process tells all."""
        box = [what]
        dist.broadcast_object_list(box, src=0, group=self._group)
        return box[0]

    def share(self, x: Tensor) -> Tensor:
        """The rows that are this process's."""
        return x[self.rank :: self.num]

    def summed(self, x: Tensor) -> Tensor:
        """Over the processes."""
        x = x.detach().clone()
        dist.all_reduce(x, group=self._group)
        return x

    # ---------------------------------------------------------------- parameters

    def norm(self, x: Tensor) -> Tensor:
        """The Euclidean norm of the whole of a parameter, of which a process may have no row at all."""
        assert isinstance(x, DTensor)
        local = x.to_local()
        largest = local.abs().amax() if local.numel() else local.new_zeros(())
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=self._group)
        square = self.summed(torch.where(largest == 0, 0, local / largest).square().sum())
        return DTensor.from_local(largest * square.sqrt(), self.mesh, [Replicate()], run_check=False)

    def whole(self, x: Tensor) -> Tensor:
        """All rows of it."""
        assert isinstance(x, DTensor)
        return x.full_tensor()

    def part_of(self, whole: Tensor, theta: Tensor) -> Tensor:
        """The rows of it that this process has of theta."""
        return distribute_tensor(whole, self.mesh, [Shard(0)], src_data_rank=None)

    # ---------------------------------------------------------------- checkpoints

    def save(self, folder: Path, step: int, content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Write a checkpoint: into a folder beside the earlier one, which takes its name when all of it is there."""
        target = folder / f"{step:012d}"
        beside = folder / f".{target.name}"

        def begin() -> None:
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir(parents=True)

        def end() -> None:
            (beside / CONTENT).write_text(json.dumps(content), encoding="utf-8")
            beside.replace(target)
            for other in folder.iterdir():
                if other != target:
                    shutil.rmtree(other)

        try:
            self._by_the_first(begin)
            try:
                save_checkpoint(dict(tensors), storage_writer=_Writer(beside), process_group=self._group)
            except CheckpointException as error:  # all of them have it
                raise next(
                    (failure for failure, _ in error.failures.values() if isinstance(failure, OSError)), error
                ) from None
            self._by_the_first(end)
        except OSError:
            if self.rank == 0:
                shutil.rmtree(beside, ignore_errors=True)
                with suppress(OSError):  # where it has the one before
                    folder.rmdir()
            raise

    def _by_the_first(self, act: Callable[[], None]) -> None:
        """What the first process does while the others wait. OSError of it in all of them."""
        failed = None
        if self.rank == 0:
            try:
                act()
            except OSError as error:
                failed = error
        if (failure := self._told(failed)) is not None:
            raise failure

    def found(self, folder: Path) -> dict[str, Any]:
        """What the last checkpoint in a folder says, and "folder", where its tensors are. An error where there is none,
        or where it would run code: torch reads the index of a checkpoint by pickle, its tensors by weights alone."""
        last = max(entry for entry in folder.iterdir() if not entry.name.startswith("."))
        with (last / ".metadata").open("rb") as file:
            _OfCheckpoints(file).load()
        return json.loads((last / CONTENT).read_text(encoding="utf-8")) | {"folder": last}

    def read(self, folder: Path, tensors: Mapping[str, Tensor]) -> None:
        """Write a checkpoint's numbers into these tensors, however many processes wrote it."""
        load_checkpoint(dict(tensors), checkpoint_id=folder, process_group=self._group)


CONTENT = "run.json"
LOST = (
    "another of torchrun's processes has ended, and with it the run: the same command goes on under torchrun, with any "
    "number of processes, from the run's last checkpoint, where there is one (--checkpoint-every)"
)
_GONE = re.compile(r"gloo/transport/.*(peer|[Bb]roken pipe)|remote process exit|ncclRemoteError", re.DOTALL)
"""What gloo and NCCL say of a process that has gone."""
_SAID = "depthlaw: a process was lost"


def _is_of_a_lost_one(error: BaseException) -> bool:
    """Whether another process has gone, or torchrun's own."""
    is_known = isinstance(error, RuntimeError) and _GONE.search(str(error)) is not None
    return is_known or isinstance(error, dist.DistNetworkError)


class _Writer(FileSystemWriter):
    """Of an error of the disk nothing else is told: torch's own, which it ends in, does not say what it was."""

    def write_data(self, plan: Any, planner: Any) -> Any:
        try:
            return super().write_data(plan, planner)
        except Exception as error:
            if (of_disk := of_the_disk(error)) is None:
                raise
            raise of_disk from None


_OF_TORCH = {
    "torch.distributed.checkpoint.metadata": None,
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo",),
    "torch.serialization": ("_get_layout",),
    "torch": ("Size", "float64", "float32", "bfloat16", "int64"),
    "pathlib": ("PosixPath", "WindowsPath"),
    "pathlib._local": ("PosixPath", "WindowsPath"),  # as Python 3.13 writes them
}
"""What the index of a checkpoint consists of, by module; None for whatever classes are there."""


class _OfCheckpoints(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):  # a member of an enumeration, as Python 3.11.2 writes it
            return _member
        names = _OF_TORCH.get(module, ())
        loaded = super().find_class(module, name) if names is None or name in names else None
        if loaded is None or (names is None and getattr(loaded, "__module__", None) != module):
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a checkpoint's index")
        return loaded


def _member(of: Any, name: str) -> Enum:
    if not (isinstance(of, type) and issubclass(of, Enum) and name in of.__members__):
        raise pickle.UnpicklingError(f"{name} of {of} is no part of a checkpoint's index")
    return of[name]


class _Block(nn.Module):
    """Parameters that are gathered together, while what is run in it runs."""

    def forward(self, run: Callable[..., Any], *arguments: Any) -> Any:
        return _own(run(*arguments))


def _own(result: Any) -> Any:
    """No views: FSDP's hooks on one are lost where it is written to, which it warns of."""
    if isinstance(result, tuple):
        return tuple(map(_own, result))
    return result.clone() if isinstance(result, Tensor) and result._is_view() else result


class _Owned(Mapping[str, Tensor]):
    """Parameters by name, wherever they stand, as they are just then, with the dimension of members in front."""

    def __init__(self, owners: Mapping[str, nn.Module], num_dims: Mapping[str, int]) -> None:
        self.owners, self.num_dims = owners, num_dims

    def __getitem__(self, name: str) -> Tensor:
        parameter = getattr(self.owners[name], name)
        return parameter[None] if parameter.dim() == self.num_dims[name] else parameter

    def __iter__(self) -> Iterator[str]:
        return iter(self.owners)

    def __len__(self) -> int:
        return len(self.owners)


class _Core(Fused):
    """The Transformer of one member, in blocks. Its parameters are on no device before ``fill``.

    has_whole_vectors: whether what is no matrix stays whole on each process, with a dimension for the member.
    """

    def __init__(
        self,
        members: Sequence[Member],
        mesh: DeviceMesh,
        *,
        dtype: torch.dtype,
        device: torch.device | str,
        has_whole_vectors: bool = False,
    ) -> None:
        super().__init__(members, dtype=dtype, device=device)
        made = dict(self._weights.items())
        del self._weights
        self.blocks, self.rest = nn.ModuleDict(), _Block()
        owners: dict[str, nn.Module] = {}
        for name, parameter in made.items():
            is_matrix = self.roles[f"_weights.{name}"] in MATRICES
            if is_matrix:
                place = "_".join(name.split("_")[:2])
                owner = self.blocks[place] if place in self.blocks else _Block()
                self.blocks[place] = owner
            else:
                owner = self.rest
            is_own = is_matrix or not has_whole_vectors
            value = parameter.detach()
            owner.register_parameter(name, nn.Parameter(value[0] if is_own and value.dim() > 1 else value))
            owners[name] = owner
        self._weights = _Owned(owners, {name: self.num_dims[f"_weights.{name}"] for name in owners})
        for block in self.blocks.values():
            _shard(block, mesh)

    def _filled(self, weights: list[Weight]) -> Iterator[Tensor]:
        self._rates = torch.tensor([[weight.lr_multiplier for weight in weights]], **self._kind).T
        for weight in weights:
            yield torch.empty((1, *weight.shape), dtype=self._kind["dtype"], device="meta")

    @torch.no_grad()
    def fill(self) -> None:
        """Draw every parameter as the network of one process does, and keep what is here of it."""
        for weight, (_, parameter, _) in zip(weights_of(self.config), self.tagged(), strict=True):
            whole = torch.empty(weight.shape, **self._kind)
            weight.fill(whole, self._generator, is_short=self.config.has_short_draws)
            keep(parameter, whole)

    def tagged(self) -> list[tuple[str, nn.Parameter, str]]:
        """Under the names of the network of one process. As they are kept here, where they are not just gathered."""
        named = [(f"_weights.{name}", getattr(owner, name)) for name, owner in self._weights.owners.items()]
        return [(name, parameter, self.roles[name]) for name, parameter in named]

    def _through(self, *arguments: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        side, index, *_ = arguments
        return self.blocks[f"{side}_{index}"](super()._through, *arguments)

    def logits(self, h_BTD: Tensor) -> Tensor:
        return self.blocks["head"](super().logits, h_BTD)


class ShardedNetwork(Network):
    """The network of one member, cut over processes. ValueError as of ``Network``."""

    def __init__(
        self,
        member: Member,
        data: Shape,
        processes: Processes,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.processes = processes
        super().__init__([member], data, dtype=dtype, device=device)
        self.held = self.tables
        held = dict.fromkeys(self.held, self.held)
        del self.tables
        self.tables = _Owned(held, dict.fromkeys(held, 2))
        _shard(self, processes.mesh)
        self.to_empty(device=device)
        assert isinstance(self.core, _Core)
        self.core.fill()
        with torch.no_grad():
            for name, table in tables_at_start(self.members[0], data):
                keep(self.held[name], table.to(dtype=dtype, device=device))

    def _make_core(self, data: Shape, dtype: torch.dtype, device: torch.device | str) -> Ensemble:
        return _Core(self.members, self.processes.mesh, dtype=dtype, device=device)

    def _make_tables(self, data: Shape, dtype: torch.dtype, device: torch.device | str) -> dict[str, Tensor]:
        shapes = {name: shape for name, (shape, _) in tables_of(self.members[0].config, data).items()}
        return {name: torch.empty(shape, dtype=dtype, device="meta") for name, shape in shapes.items()}

    def tagged(self) -> list[tuple[str, nn.Parameter, str, Tensor]]:
        """Of ``Network``, with every parameter as it is kept here, without a dimension for the member."""
        ones, core = torch.ones(1), self.core
        tables = [(f"tables.{name}", table, "embedding", ones) for name, table in self.held.items()]
        return [*tables, *((f"core.{name}", p, role, core.lr_multiplier(name, 0)) for name, p, role in core.tagged())]

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """What stands outside of blocks is whole within this."""
        module = cast(FSDPModule, self)
        module.unshard()
        try:
            yield
        finally:
            module.reshard()

    @torch.no_grad()
    def as_ensemble(self, dtype: torch.dtype = torch.float64) -> Ensemble:
        """Cut over the same processes; vectors are whole on each."""
        device = self.core._kind["device"]
        core = _Core(self.members, self.processes.mesh, dtype=dtype, device=device, has_whole_vectors=True)
        core.to_empty(device=device)
        for (_, there, _), (_, parameter, _) in zip(core.tagged(), self.core.tagged(), strict=True):
            assert isinstance(parameter, DTensor)
            if isinstance(there, DTensor):
                there.to_local().copy_(parameter.to_local())
            else:
                there.copy_(parameter.full_tensor().view_as(there))
        return core


def _shard(module: nn.Module, mesh: DeviceMesh) -> None:
    """Cut the parameters of a module that none of its blocks has. Gradients are added up, not averaged: each process
    has its share of the sum."""
    cut = cast(FSDPModule, fully_shard(module, mesh=mesh, reshard_after_forward=True))
    cut.set_gradient_divide_factor(1.0)
    cut.set_force_sum_reduction_for_comms(True)  # gloo can do no other


def keep(parameter: Tensor, whole: Tensor) -> None:
    """Write what this process has of a parameter, or all of it where it is not cut."""
    if isinstance(parameter, DTensor):
        there = distribute_tensor(
            whole.view(parameter.shape), parameter.device_mesh, parameter.placements, src_data_rank=None
        )
        parameter.to_local().copy_(there.to_local())
    else:
        parameter.copy_(whole)

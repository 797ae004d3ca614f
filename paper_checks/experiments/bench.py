"""How fast the program is, beside what people write instead: ratios of times that were taken in turn, in one run.

A pass is forward, backward and the norm of every parameter's gradient, of ``NUM_MEMBERS`` post-LN encoders of
``NUM_TOKENS`` tokens with biases and norm gains, in float32. depthlaw passes them as one ensemble, shared out to the
cores where that pays. Beside it stand, of as many networks of the same size:

    torchscale      a loop over torchscale's encoders
    torch           a loop over torch.nn.TransformerEncoder
    vmap            vmap(grad(functional_call)) of torch.nn.TransformerEncoder
    3 optimizers    depthlaw itself, of sgd, adam and lamb at once
    two processes   the loop over torchscale's (or torch's), half of the networks in each of two processes of one thread

``compare`` yields a row for each size and contender, ``trained`` one of a step of runs that are trained together beside
the same runs one by one, ``growth`` how time and memory of a pass, and of a prediction of the kernel rung, grow,
``commands`` how long people wait for commands, asked for the first time and again. A time alone says little of another
machine; a ratio does.
"""

from __future__ import annotations

import gc
import math
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module, metadata
from importlib.util import find_spec
from multiprocessing import get_context
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

    from depthlaw.sims.ensemble import Ensemble
    from depthlaw.sims.model import ModelConfig
    from depthlaw.sims.update import Inputs, Task

NUM_MEMBERS, NUM_TOKENS, HEAD_SIZE = 16, 32, 16
STAND_INS = {
    "fairscale": (),
    "fairscale.nn": ("checkpoint_wrapper", "wrap"),
    "timm": (),
    "timm.models": (),
    "timm.models.layers": ("drop_path",),
}
"""Names that torchscale imports of packages that it declares, and does not call in the networks built here."""
COMMANDS = (
    "--help",
    "rule --norm post --optimizer adam --arch encoder --layers 12",
    "explain S1-34",
    "tables",
    "predict --recipe llama-3 --optimizer adamw --layers 8,16,32 --roles",
    "advise --recipe gpt2 --optimizer adamw --from-layers 12 --layers 48",
    "audit --hf gpt2 --layers 2,4 --optimizer adamw",
    "verify --quick",
)
IMPORTS = {
    "--help": "import typer",
    "tables": "import sympy",
    "audit --hf gpt2 --layers 2,4 --optimizer adamw": "from transformers import GPT2LMHeadModel",
}
"""By command, what of Python it is held against: the least that it can take."""
FINDS_FAULTS = 1
"""The exit code of an audit that found some, and of a program that crashed, which prints nothing."""


@dataclass(frozen=True)
class Size:
    """Of the networks of a row."""

    d_model: int
    num_layers: int
    num_sequences: int = 1
    num_members: int = NUM_MEMBERS
    num_tokens: int = NUM_TOKENS

    @property
    def config(self) -> ModelConfig:
        from depthlaw.sims.model import ModelConfig, alternating

        heads = max(1, self.d_model // HEAD_SIZE)
        flags: dict[str, Any] = {"has_affine": True, "has_bias": True, "norm_eps": 1e-5}
        return self.task.on(
            ModelConfig(encoder=alternating(2 * self.num_layers), d_model=self.d_model, num_heads=heads, **flags)
        )

    @property
    def task(self) -> Task:
        from depthlaw.sims.update import Task

        return Task(num_tokens=self.num_tokens, batch_size=self.num_sequences)

    @property
    def num_operations(self) -> float:
        """Floating-point operations of a pass of one network: 6 for each number of a matrix and token, and those of
        attention's two products."""
        tokens, d = self.num_tokens * self.num_sequences, self.d_model
        return self.num_layers * tokens * (6 * 12 * d**2 + 12 * d * self.num_tokens)


QUICK = (Size(64, 8),)
SIZES = (Size(64, 8), Size(64, 32), Size(64, 128), Size(64, 32, 8), Size(256, 8), Size(256, 8, 8))


# ---------------------------------------------------------------- who is timed


class Ours:
    """depthlaw's ensemble, its members shared out to the cores."""

    def __init__(
        self, size: Size, dtype: str = "float32", device: str = "cpu", optimizers: Sequence[str] = ("sgd",)
    ) -> None:
        import torch

        from depthlaw.sims.ensemble import Ensemble, Member
        from depthlaw.sims.measure import Question, Shares, threads_for
        from depthlaw.sims.update import draw_inputs

        self.task, self.device, self.optimizers = size.task, device, optimizers
        question = Question(config=size.config, task=size.task)
        self.shares = threads_for(question, size.num_members) if device == "cpu" else Shares(1, 1)
        each, kind, config = math.ceil(size.num_members / self.shares.threads), getattr(torch, dtype), size.config
        cores = (self.shares.cores,)
        self.pool = ThreadPoolExecutor(self.shares.threads, initializer=torch.set_num_threads, initargs=cores)

        def make(start: int) -> tuple[Ensemble, Inputs]:
            seeds = range(start, min(start + each, size.num_members))
            members = [Member(config, seed) for seed in seeds]
            inputs = draw_inputs(config, self.task, seeds, kind, device)
            return Ensemble(members, dtype=kind, device=device), inputs

        self.parts = list(self.pool.map(make, range(0, size.num_members, each)))

    def __call__(self) -> None:
        from depthlaw.sims.update import first_order

        def measure(part: tuple[Ensemble, Inputs]) -> None:
            model, inputs = part
            first_order(model, inputs, self.task, self.optimizers)

        list(self.pool.map(measure, self.parts))
        _wait(self.device)

    def close(self) -> None:
        self.pool.shutdown()


class Loop:
    """A loop over networks of somebody else's code."""

    def __init__(self, size: Size, build: Callable[[Size], tuple[nn.Module, Callable]], device: str = "cpu") -> None:
        import torch

        self.device, self.models = device, [build(size) for _ in range(size.num_members)]
        for model, _ in self.models:
            model.to(device)
        shape = (size.num_sequences, size.num_tokens, size.d_model)
        self.inputs = [torch.randn(shape, device=device) for _ in self.models]

    def __call__(self) -> None:
        for (model, forward), x in zip(self.models, self.inputs, strict=True):
            forward(x)[:, -1, 0].sum().backward()
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad.norm()
                    parameter.grad = None
        _wait(self.device)

    def close(self) -> None:
        pass


class Mapped(Loop):
    """vmap(grad(functional_call)) over torch's encoders."""

    def __call__(self) -> None:
        import torch
        from torch.func import functional_call, grad, stack_module_state, vmap

        modules: list[Any] = [model for model, _ in self.models]
        weights, buffers = stack_module_state(modules)

        def read(of_one: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
            return functional_call(modules[0], (of_one, buffers), (x,))[:, -1, 0].sum()

        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "There is a performance drop"
            )  # of attention, which vmap takes one by one
            gradients = vmap(grad(read))({name: w.detach() for name, w in weights.items()}, torch.stack(self.inputs))
        for gradient in gradients.values():
            torch.linalg.vector_norm(gradient.flatten(1), dim=1)
        _wait(self.device)


def torch_encoder(size: Size) -> tuple[nn.Module, Callable]:
    """torch's own encoder."""
    from torch import nn

    heads, layers = max(1, size.d_model // HEAD_SIZE), size.num_layers
    layer = nn.TransformerEncoderLayer(size.d_model, heads, 4 * size.d_model, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    return model, model


def torchscale_encoder(size: Size) -> tuple[nn.Module, Callable]:
    """The encoder of Magneto's and DeepNet's authors."""
    with standing_in():
        code, config = (import_module(f"torchscale.architecture.{name}") for name in ("encoder", "config"))
    heads, d = max(1, size.d_model // HEAD_SIZE), size.d_model
    names = {"embed_dim": d, "attention_heads": heads, "ffn_embed_dim": 4 * d, "layers": size.num_layers}
    options = {f"encoder_{name}": value for name, value in names.items()}
    flags = {"encoder_normalize_before": False, "activation_fn": "relu", "vocab_size": -1, "no_output_layer": True}
    model = code.Encoder(config.EncoderConfig(**options, **flags))
    return model, lambda x: model(src_tokens=None, token_embeddings=x)["encoder_out"]


@contextmanager
def standing_in() -> Iterator[None]:
    """Modules that refuse to be called in the place of those that torchscale imports, where they are not installed."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a stand-in was called")

    made = [name for name in STAND_INS if name not in sys.modules and find_spec(name.partition(".")[0]) is None]
    for name in made:
        module = sys.modules[name] = ModuleType(name)
        for function in STAND_INS[name]:
            setattr(module, function, refuse)
    try:
        yield
    finally:
        for name in made:
            sys.modules.pop(name, None)


def _wait(device: str) -> None:
    if device != "cpu":
        import torch

        torch.cuda.synchronize()


class Apart:
    """A loop, half of its networks in each of two processes of one thread, which stand ready."""

    def __init__(self, size: Size, loop: str) -> None:
        half = Size(size.d_model, size.num_layers, size.num_sequences, size.num_members // 2, size.num_tokens)
        self.pools = [ProcessPoolExecutor(1, get_context("spawn")) for _ in range(2)]
        self._both(_stand_ready, half, loop)

    def _both(self, call: Callable, *arguments: Any) -> None:
        for future in [pool.submit(call, *arguments) for pool in self.pools]:
            future.result()

    def __call__(self) -> None:
        self._both(_pass_once)

    def close(self) -> None:
        for pool in self.pools:
            pool.shutdown()


_ready: list[Loop] = []
"""In a process of ``Apart``: its loop."""


def _stand_ready(size: Size, loop: str) -> None:
    import torch

    torch.set_num_threads(1)
    _ready[:] = [Loop(size, _BUILDERS[loop])]


def _pass_once() -> None:
    _ready[0]()


_BUILDERS = {"torchscale": torchscale_encoder, "torch": torch_encoder}


def contenders(device: str = "cpu") -> dict[str, Callable[[Size], Any]]:
    """Who stands beside depthlaw, by name; torchscale only where it is installed."""
    has_torchscale = find_spec("torchscale") is not None
    known: dict[str, Callable[[Size], Any]] = {
        "torchscale": lambda size: Loop(size, torchscale_encoder, device),
        "torch": lambda size: Loop(size, torch_encoder, device),
        "vmap": lambda size: Mapped(size, torch_encoder, device),
        "3 optimizers": lambda size: Ours(size, device=device, optimizers=("sgd", "adam", "lamb")),
        "two processes": lambda size: Apart(size, "torchscale" if has_torchscale else "torch"),
    }
    absent = ({"torchscale"} if not has_torchscale else set()) | ({"two processes"} if device != "cpu" else set())
    return {name: make for name, make in known.items() if name not in absent}


# ---------------------------------------------------------------- timing


def seconds_of(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare(size: Size, rounds: int, *, dtype: str = "float32", device: str = "cpu") -> Iterator[dict[str, Any]]:
    """A row for each contender: the medians of the times of a pass, and of their ratio, taken in turn.

    with_construction: the ratio where the networks are made anew for the pass; those of ``Apart`` stand ready and have
    none. share_of_peak: of our pass, in the operations that matrices take, over the best rate of ``matmul_peak``.
    """
    peak = matmul_peak(device)
    for name, make in contenders(device).items():
        theirs = make(size)
        ours = Ours(size, dtype, device)
        for call in (ours, theirs):  # once to warm up
            call()
        pairs = [(seconds_of(ours), seconds_of(theirs)) for _ in range(rounds)]
        ours.close()
        theirs.close()
        whole = None
        if name != "two processes":
            both = (partial(_anew, partial(Ours, size, dtype, device)), partial(_anew, partial(make, size)))
            made = [[seconds_of(call) for call in both] for _ in range(max(1, rounds // 2))]
            whole = statistics.median(others / seconds for seconds, others in made)
        kind = {"dtype": dtype, "device": device, "threads": math.prod(ours.shares)}
        yield {"beside": name, **size.__dict__, **kind, **_timed(size, pairs, peak), "with_construction": whole}
        gc.collect()


def _timed(size: Size, pairs: Sequence[tuple[float, float]], peak: float) -> dict[str, float]:
    """Of pairs of our seconds and theirs."""
    mine, theirs = (statistics.median(seconds) for seconds in zip(*pairs, strict=True))
    ratios = sorted(other / own for own, other in pairs)
    return {
        "seconds": mine,
        "seconds_beside": theirs,
        "ratio": statistics.median(ratios),
        "ratio_least": ratios[0],
        "ratio_most": ratios[-1],
        "share_of_peak": size.num_operations * size.num_members / mine / peak,
    }


TRAINED = Size(64, 8, num_sequences=4, num_members=8, num_tokens=16)
"""The runs that are trained: their sequences are the patches of a digit."""


def trained(size: Size, rounds: int, device: str = "cpu") -> dict[str, Any]:
    """A row as those of ``compare``, of a step of runs that are trained together, beside one after the other."""
    import torch

    from depthlaw.sims.training.data import DataConfig
    from depthlaw.sims.training.train import TrainConfig, train_together

    model = replace(size.config, num_outputs=0)  # its head comes from the data
    rest: dict[str, Any] = {"learning_rate": 1e-3, "num_steps": 10, "batch_size": size.num_sequences}
    configs = [
        TrainConfig(model=model, data=DataConfig(name="digits"), seed=seed, **rest) for seed in range(size.num_members)
    ]

    def seconds(several: Sequence[TrainConfig]) -> float:
        """Of a step: behind the first, and before the last, which the evaluation is a part of."""
        ends: list[float] = []
        train_together(several, device=device, advance=lambda _: ends.append(time.perf_counter()))
        return (ends[-2] - ends[0]) / (len(ends) - 2)

    pairs = [(seconds(configs), sum(seconds([config]) for config in configs)) for _ in range(rounds)]
    kind = {"beside": "runs one by one", "dtype": "float32", "device": device, "threads": torch.get_num_threads()}
    return {**size.__dict__, **kind, **_timed(size, pairs, matmul_peak(device)), "with_construction": None}


def _anew(make: Callable[[], Any]) -> None:
    made = make()
    made()
    made.close()


def matmul_peak(device: str = "cpu") -> float:
    """The most operations a second that products of float32 matrices reach here: one large product on all cores, or as
    many of middling ones as there are cores, each on one."""
    import torch

    num_cores, before = os.cpu_count() or 1, torch.get_num_threads()
    large = torch.randn(1536, 1536, device=device)

    def rate(call: Callable[[], Any], operations: float) -> float:
        def waited() -> None:
            call()
            _wait(device)

        waited()
        return operations / min(seconds_of(waited) for _ in range(5))

    rates = [rate(lambda: large @ large, 2 * 1536**3)]
    if device == "cpu":
        parts = [torch.randn(512, 512) for _ in range(num_cores)]
        with ThreadPoolExecutor(num_cores, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            rates.append(rate(lambda: list(pool.map(_ten_products, parts)), 10 * num_cores * 2 * 512**3))
        torch.set_num_threads(before)
    return max(rates)


def _ten_products(x: torch.Tensor) -> list[torch.Tensor]:
    return [x @ x for _ in range(10)]


# ---------------------------------------------------------------- growth, and commands


@dataclass(frozen=True)
class Predicted:
    """What the kernel rung is asked: the first step of a pre-LN decoder with relu, by role."""

    num_layers: int = 100
    num_tokens: int = 16
    optimizer: str = "adamw"

    def __call__(self) -> None:
        from depthlaw.theory.kernel.predict import Inputs, Sublayer, Transformer, predict_kernel
        from depthlaw.theory.stack import SublayerKind

        layer = tuple(Sublayer(kind=kind) for kind in (SublayerKind.SELF, SublayerKind.FFN))
        network = Transformer(encoder=self.num_layers * layer, placement="pre", is_causal=True)
        predict_kernel(network, Inputs(num_tokens=self.num_tokens), [self.optimizer])


AXES: dict[tuple[str, str], tuple[Size | Predicted, ...]] = {
    ("pass", "num_layers"): tuple(Size(64, layers, num_members=2) for layers in (32, 100, 300)),
    ("pass", "d_model"): tuple(Size(d, 8, num_members=2) for d in (64, 128, 256, 512)),
    ("pass", "num_tokens"): tuple(Size(64, 8, num_members=8, num_tokens=tokens) for tokens in (64, 128, 256, 512)),
    ("pass", "num_members"): tuple(Size(64, 8, num_members=members) for members in (8, 32, 128)),
    ("prediction", "num_layers"): tuple(Predicted(num_layers=layers) for layers in (10, 100, 1_000, 10_000)),
    ("prediction", "num_tokens"): tuple(Predicted(4, tokens) for tokens in (8, 32, 128, 512)),
    ("prediction", "optimizer"): tuple(Predicted(optimizer=name) for name in ("sgd", "adamw", "muon", "adafactor")),
}
"""By what is timed and what grows. For sgd the sums of squares of each role suffice; the others need sums of absolute
values, of singular values, or of rows and columns."""
_LONG = 10.0
"""What takes longer than these seconds is timed twice, and not four times; the first time it may draw points."""


def growth(what: str, axis: str) -> dict[str, Any]:
    """Time and memory of a pass, or a prediction, against one size, each in a process of its own, and the slopes of
    their logarithms, where the size is a number. fixed: what all sizes have in common."""
    import numpy as np

    sizes = AXES[what, axis]
    values = [getattr(size, axis) for size in sizes]
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        measured = [pool.submit(_alone, size).result() for size in sizes]
    times, memories = (np.array(column) for column in zip(*measured, strict=True))

    def slope(y: np.ndarray) -> float | None:
        """None too where the program's own memory sufficed."""
        is_known = axis != "optimizer" and y.min() > 0
        return float(np.polyfit(np.log(values), np.log(y), 1)[0]) if is_known else None

    slopes = {"time": slope(times), "memory": slope(memories)}
    fixed = {name: value for name, value in vars(sizes[0]).items() if name != axis}
    row = {"of": what, "axis": axis, "values": values, "fixed": fixed}
    return {**row, "seconds": times.tolist(), "bytes": memories.tolist(), **slopes}


def _alone(size: Size | Predicted) -> tuple[float, float]:
    """Seconds of a pass or a prediction, and the most memory beyond what the program itself takes; 0 where the system
    does not tell."""
    (Ours(Size(8, 1, num_members=1)) if isinstance(size, Size) else Predicted(1, 2))()
    before = _peak(is_new=True)
    timed = Ours(size) if isinstance(size, Size) else size
    first = seconds_of(timed)
    return min(first, *(seconds_of(timed) for _ in range(1 if first > _LONG else 3))), _peak() - before


def _peak(*, is_new: bool = False) -> float:
    """The most memory of this process in bytes, on Linux; is_new: from now on."""
    if is_new:
        with suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    sizes = [line.split()[1] for line in _lines("/proc/self/status") if line.startswith("VmHWM:")]
    return 1024.0 * float(sizes[0]) if sizes else 0.0


def timed_commands() -> tuple[str, ...]:
    """Those whose packages are installed."""
    has_transformers = find_spec("transformers") is not None
    return tuple(command for command in COMMANDS if has_transformers or "--hf" not in command)


def commands(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The seconds until each command has answered where no answer is kept, and until what it is held against has ended.

    again: the same once more, beside what the first call kept.
    """
    for command in names:
        with TemporaryDirectory() as kept:
            arguments = ("from depthlaw.cli.app import main; main()", *command.split())
            seconds, again = (_answered(*arguments, kept=kept) for _ in range(2))
        least = _answered(IMPORTS[command]) if command in IMPORTS else None
        beside = {"beside": IMPORTS.get(command), "least": least}
        yield {"command": f"depthlaw {command}", "seconds": seconds, "again": again, **beside}


def _answered(code: str, *arguments: str, kept: str = "") -> float:
    """The seconds that a new process takes. kept: the folder of answers that are kept; none are without it."""
    program = [sys.executable, "-c", code, *arguments]
    call = partial(subprocess.run, program, capture_output=True, env=os.environ | {"DEPTHLAW_CACHE": kept})
    start = time.perf_counter()
    done = call(check=False)
    seconds = time.perf_counter() - start
    if done.returncode not in (0, FINDS_FAULTS if "audit" in arguments and done.stdout else 0):
        raise subprocess.CalledProcessError(done.returncode, program, done.stdout, done.stderr)
    return seconds


def machine() -> dict[str, Any]:
    """What a record says of where it was made."""
    import psutil

    names = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    processor = names[0].partition(":")[2].strip() if names else platform.processor()
    memory = f"{psutil.virtual_memory().total / 2**30:.0f} GiB"
    import torch

    cores = {"num_cores": os.cpu_count(), "torch_threads": torch.get_num_threads()}
    return {"processor": processor, **cores, "memory": memory, "system": platform.system()}


def versions() -> dict[str, str]:
    there = [name for name in ("torch", "numpy", "torchscale") if find_spec(name) is not None]
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in there}}


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError:
        return []

"""The GPU lane: what wants a GPU, the most useful first, in as many minutes as there are.

    python -m tests.gpu                              # nine minutes on the GPU; again, and it goes on
    python -m tests.gpu --minutes 30 --out out/h100
    python -m tests.gpu --device cpu --rehearsal     # every command at a small size, in two minutes

Any Python that has depthlaw, its dependencies and pytest will do (`pip install --no-deps .` beside a torch of its
own). Each step is a command of its own, which keeps what it measures as soon as it has it, in --out; one that the time
cuts short goes on from there in the next call. What is done and what is left is said at the end, and stands in --out
as steps.json. Exit 1 where a step failed.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
SPARE_S = 15
"""Seconds kept for a command to end, which is asked to at that time before the limit."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """small: what stands in the command's braces in a rehearsal; full: on a GPU."""

    name: str
    what: str
    command: str
    full: Mapping[str, str]
    small: Mapping[str, str]


_TRAIN = "-m depthlaw train --scheme {schemes} --layers {layers} --learning-rate {rate} --width 64 --steps {steps}"
STEPS = (
    Step(
        name="tests",
        what="the same numbers on a GPU as on the CPU",
        command="-m pytest -q -p no:cacheprovider tests/sims/test_gpu.py -m gpu {only}",
        full={"only": ""},
        small={"only": "-k update"},
    ),
    Step(
        name="update",
        what="the update beside its prediction, 2,048 wide, to 128 layers of attention and FFN (the sweep deep)",
        command="-m depthlaw measure --scheme {scheme} --optimizer adam --attention --layers {layers} --width {width} "
        "--heads {heads} --tokens 8 --seeds {seeds} --roles --dtype float32 --device {device} "
        "--record {out}/deep.jsonl",
        full={"scheme": "deepnorm", "layers": "4,16,64,128", "width": "2048", "heads": "32", "seeds": "4"},
        small={"scheme": "deepnorm", "layers": "2,4", "width": "64", "heads": "4", "seeds": "2"},
    ),
    Step(
        name="sharded",
        what="one process of torchrun, which trains over the device's own collectives (nccl on a GPU)",
        command=f"-m torch.distributed.run --standalone --nproc-per-node 1 {_TRAIN} --device {{device}} "
        "--store {out}/sharded.sqlite",
        full={"schemes": "deepnorm", "layers": "24", "rate": "1e-3", "steps": "200"},
        small={"schemes": "deepnorm", "layers": "2", "rate": "1e-3", "steps": "4"},
    ),
    Step(
        name="bench",
        what="a row of bench",
        command="-m depthlaw bench --quick --rounds {rounds} --device {device} --record {out}/bench.json",
        full={"rounds": "3"},
        small={"rounds": "1"},
    ),
    Step(
        name="transfer",
        what="whether a rate that was tuned at 4 layers does at 16 and 32, with each remedy of advise",
        command="-m depthlaw experiment transfer --scale {scale} --workers 1 --device {device} --budget {budget} "
        "--store {out}/transfer.sqlite",
        full={"scale": "large", "budget": "60"},
        small={"scale": "small", "budget": "0.001"},
    ),
    Step(
        name="thousand",
        what="a Transformer of 1,000 layers of attention and FFN, trained",
        command=f"{_TRAIN} --device {{device}} --workers 1 --checkpoint-every {{every}} "
        "--store {out}/thousand.sqlite",
        full={"schemes": "deepnorm", "layers": "1000", "rate": "1e-3", "steps": "60", "every": "20"},
        small={"schemes": "deepnorm", "layers": "4", "rate": "1e-3", "steps": "4", "every": "2"},
    ),
    Step(
        name="sweep",
        what="the project's sweep for a GPU: stacks up to 2,000 sublayers, Transformers up to 512 layers",
        command="-m depthlaw.paper_checks.experiments.sweeps {sweep} --device {device} --folder {out} "
        "--at-once {seeds} --seeds {seeds} {only}",
        full={"sweep": "gpu", "seeds": "4", "only": ""},
        small={"sweep": "gpu", "seeds": "1", "only": "--first 1"},
    ),
)


def _ended(command: list[str], seconds: float, environment: Mapping[str, str]) -> int | None:
    """The exit code; None where the time cut the command short."""
    with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True) as process:
        for signals, patience in ((signal.SIGINT, seconds), (signal.SIGKILL, SPARE_S / 2)):
            try:
                code = process.wait(max(patience, 0.1))
                return code if signals is signal.SIGINT else None
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signals)
    return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("GPU_MINUTES", "9")), help="at most")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--rehearsal", action="store_true", help="every command at a small size")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "gpu", help="the folder of what is measured")
    asked = parser.parse_args(arguments)
    if asked.device == "cuda" and not torch.cuda.is_available():
        parser.error("this torch sees no GPU (allowed: --device cpu --rehearsal, which tries every command)")
    for package, why in (
        ("depthlaw", "records say which version; pip install --no-deps ."),
        ("pytest", "of the tests"),
    ):
        try:
            version(package)
        except PackageNotFoundError:
            parser.error(f"{package} is not installed in this Python ({why})")
    end = time.monotonic() + 60 * asked.minutes - SPARE_S
    asked.out.mkdir(parents=True, exist_ok=True)
    told = asked.out / "steps.json"
    of = {"device": asked.device, "rehearsal": asked.rehearsal, "depthlaw": version("depthlaw")}
    kept = json.loads(told.read_text(encoding="utf-8")) if told.exists() else {"of": of, "seconds": {}}
    if kept["of"] != of:
        parser.error(f"{asked.out} has what {kept['of']} measured: name another folder with --out, or remove it")
    seconds: dict[str, float] = kept["seconds"]
    environment = {**os.environ, "DEPTHLAW_TEST_DEVICE": asked.device}
    failed, left = [], []
    for step in STEPS:
        if step.name in seconds:
            continue
        if time.monotonic() >= end:
            left.append(step)
            continue
        values = {"device": asked.device, "out": shlex.quote(str(asked.out.resolve()))}
        values |= step.small if asked.rehearsal else step.full
        command = [sys.executable, *shlex.split(step.command.format(**values))]
        print(f"gpu: {step.name}: {step.what}\n     {shlex.join(['python', *command[1:]])}", flush=True)
        start = time.monotonic()
        code = _ended(command, end - start, environment)
        if code is None:
            left.append(step)
        elif code:
            failed.append(f"{step.name} (exit {code})")
        else:
            seconds[step.name] = round(time.monotonic() - start, 1)
            told.with_suffix(".new").write_text(json.dumps({"of": of, "seconds": seconds}), encoding="utf-8")
            told.with_suffix(".new").replace(told)
    print(f"gpu: done: {', '.join(f'{name} ({s:.0f} s)' for name, s in seconds.items()) or 'nothing'}")
    if failed:
        print(f"gpu: failed: {', '.join(failed)}")
    if left:
        print(f"gpu: left, for another call: {', '.join(f'{step.name} ({step.what})' for step in left)}")
    print(f"gpu: what was measured is in {asked.out}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

"""The machines that the tests are run as, and what a program sees of one: python -m tests.portable.machines"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

SEED = "DEPTHLAW_TEST_ORDER"
"""The variable that the order of the tests is drawn from; ``tests/portable/plugin.py`` reads it."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "pdflatex")

# Which tests a machine runs: patterns of files; those after a "!" are left out again. Networks that print nothing:
_NETWORKS = (
    "tests/paper_checks/test_counterexamples_*.py",
    "tests/paper_checks/test_kernel_*.py",
    "tests/paper_checks/test_magneto_depth.py",
    "tests/depthlaw/network/test_optimizers_agree.py",
    "tests/depthlaw/network/test_torchscale.py",
)
# Floating point: what torch, numpy, scipy and the C library round.
NUMBERS = (
    "tests/sims",
    "tests/theory/test_kernel_*.py",
    *_NETWORKS,
    "tests/paper_checks/test_meas*.py",
    "tests/depthlaw/cli/test_train*.py",
    "tests/depthlaw/network/test_trials.py",
    *("tests/depthlaw/auditing", "tests/depthlaw/watching", "tests/depthlaw/advice"),
)
# What is printed, written, drawn, sorted or found by name.
TEXT = ("tests/house", "tests/notebooks", "tests/paper_checks/test_*.py", *(f"!{path}" for path in _NETWORKS))
ALL = ("tests",)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """This machine with something changed.

    needs: a flag of the processor without which its variables name what it cannot do. hides: programs that are not
    found there. as_user: another user than root, in a checkout of its own whose parent belongs to root. python: the
    version, 3.11 for instance, of another Python.
    """

    name: str
    tests: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    needs: str = ""
    hides: tuple[str, ...] = ()
    as_user: bool = False
    python: str = ""

    def differences(self) -> Iterator[str]:
        """What ``--list`` says of it."""
        yield from (f"{variable}={value!r}" for variable, value in self.variables.items())
        if self.hides:
            yield f"without {', '.join(self.hides)}"
        if self.as_user:
            yield "a user who is not root"
        if self.python:
            yield f"Python {self.python}"


def table(seed: str) -> list[Machine]:
    """Every machine. seed: what the random hash seed and the random order are drawn from."""
    numbers = {
        "aten-default": {"ATEN_CPU_CAPABILITY": "default"},
        # `make test` gives its workers one thread each, and so does every machine here but the next.
        "threads-1": dict.fromkeys(THREADS, "1"),
        "threads-4": dict.fromkeys(THREADS, "4"),
        "mkl-compatible": {"MKL_CBWR": "COMPATIBLE"},
        "onednn-sse41": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
        "onednn-avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
        "openblas-prescott": {"OPENBLAS_CORETYPE": "Prescott"},
        "openblas-haswell": {"OPENBLAS_CORETYPE": "Haswell"},
        "numpy-sse": {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR"},
        "libm-without-fma": {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2_Usable,-AVX2,-FMA_Usable,-FMA,-FMA4"},
    }
    texts = {
        "locale-c": {"LANG": "C", "LC_ALL": "C", "LANGUAGE": "C"},
        # What Python 3.11 does on a system whose locale is not UTF-8, Latin-1 for instance.
        "not-utf-8": {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        "kathmandu": {"TZ": "Asia/Kathmandu"},
        "columns-40": {"COLUMNS": "40", "LINES": "10"},
        "hash-0": {"PYTHONHASHSEED": "0"},
        "hash-1": {"PYTHONHASHSEED": "1"},
        "hash-random": {"PYTHONHASHSEED": str(random.Random(seed).randrange(2, 2**32))},
    }
    return [
        *(
            Machine(name=f"aten-{name}", tests=NUMBERS, variables={"ATEN_CPU_CAPABILITY": name}, needs=flag)
            for name, flag in (("avx2", "avx2"), ("avx512", "avx512f"))
        ),
        *(Machine(name=name, tests=NUMBERS, variables=changed) for name, changed in numbers.items()),
        *(Machine(name=name, tests=TEXT, variables=changed) for name, changed in texts.items()),
        Machine(name="order", tests=("tests/sims", "tests/theory", *TEXT), variables={SEED: seed}),
        Machine(name="user", tests=("tests/sims", *TEXT), as_user=True),
        Machine(name="no-programs", tests=TEXT, variables={"DEPTHLAW_PROGRAMS": ""}, hides=PROGRAMS),
        *(Machine(name=f"python3.{n}", tests=ALL, python=f"3.{n}") for n in (11, 12, 13, 14)),
    ]


# One value where the table has several: those that differ most from what most machines have.
AT_ONCE = (
    "aten-default", "mkl-compatible", "onednn-sse41", "openblas-prescott", "numpy-sse", "libm-without-fma",
    "locale-c", "kathmandu", "columns-40", "hash-random", "order", "user", "no-programs",
)  # fmt: skip


def at_once(parts: Sequence[Machine]) -> Machine:
    return Machine(
        name="quick",
        tests=ALL,
        variables={name: value for part in parts for name, value in part.variables.items()},
        hides=tuple(name for part in parts for name in part.hides),
        as_user=any(part.as_user for part in parts),
    )


# ---------------------------------------------------------------- what a program sees of it


def _digest(values: Iterable[object]) -> str:
    return hashlib.sha256(repr([getattr(x, "tobytes", lambda x=x: x)() for x in values]).encode()).hexdigest()[:12]


def probe() -> dict[str, str]:
    """What a program can see of the machine, by name; two machines with the same answers are one to the tests."""
    import locale
    import math

    import numpy as np
    import torch
    from scipy import linalg
    from torch.nn import functional

    draw = random.Random(1)
    draws = [draw.uniform(0.1, 9) for _ in range(2000)]
    of_c = (math.exp, math.log, math.sin, math.tanh, math.gamma, lambda x: x**0.37)
    wide = np.random.default_rng(1).normal(size=(300, 300))
    both = [wide, wide.astype("float32")]
    of_numpy = (lambda a: a @ a, np.exp, np.sin, np.tanh, np.sum, lambda a: a.sum(axis=0), lambda a: a.sum(axis=1))
    x = torch.tensor(wide[:128].reshape(8, 48, 100))
    of_torch = (
        *(lambda a: a[0].T @ a[0], lambda a: torch.bmm(a, a.mT), lambda a: torch.linalg.svdvals(a[0])),
        *(torch.sum, lambda a: a.sum(1), lambda a: a.sum(2), torch.var, torch.exp, torch.tanh, functional.gelu),
        *(lambda a: a.softmax(-1), lambda a: functional.layer_norm(a, (100,))),
        lambda a: torch.randn(999, generator=torch.Generator().manual_seed(1), dtype=a.dtype),
    )
    return {
        "Python": sys.version,
        "user": str(os.geteuid()),
        "encoding": f"{locale.getpreferredencoding()} {sys.getfilesystemencoding()} {sys.stdout.encoding}",
        "locale": str(locale.setlocale(locale.LC_ALL, "")),
        "time zone": time.strftime("%z"),
        "width": str(shutil.get_terminal_size().columns),
        "order of sets": str(hash("depthlaw")) if "PYTHONHASHSEED" in os.environ else "drawn anew",
        "order of tests": os.environ.get(SEED, "as written"),
        "programs": ", ".join(name for name in PROGRAMS if shutil.which(name)),
        "threads": str(torch.get_num_threads()),
        "functions of C": _digest(f(x) for x in draws for f in of_c),
        "numbers of numpy": _digest(f(a) for a in both for f in of_numpy),
        "numbers of scipy": _digest([linalg.cholesky(wide @ wide.T + 300 * np.eye(300)), np.linalg.eigvalsh(wide)]),
        "numbers of torch": _digest(f(a).numpy() for a in (x, x.float()) for f in of_torch),
    }


if __name__ == "__main__":
    print(json.dumps(probe()))

"""The machines that the tests are run as, and what a program sees of one: python -m tests.portable.machines"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

SEED, RESULT = "DEPTHLAW_TEST_ORDER", "DEPTHLAW_TEST_RESULT"
"""The variables that the plugin beside this reads: what the order of the tests is drawn from, the file for a result."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

# ---------------------------------------------------------------- what a machine is, and which tests it runs

# Patterns of files; those after a "!" are left out again. First, networks that print nothing.
_NETWORKS = (
    "tests/paper_checks/test_counterexamples_*.py",
    "tests/paper_checks/test_kernel_*.py",
    "tests/paper_checks/test_magneto_depth.py",
    "tests/paper_checks/test_optimizers_agree.py",
    "tests/paper_checks/test_torchscale.py",
)
_KERNEL = ("tests/theory/test_kernel_*.py", "tests/theory/test_meanfield_real.py")
# Floating point: what torch, numpy, scipy and the C library round.
NUMBERS = (
    "tests/sims",
    *_KERNEL,
    *_NETWORKS,
    "tests/paper_checks/test_meas*.py",
    "tests/paper_checks/test_train*.py",
    "tests/paper_checks/test_trials.py",
)
# What is printed, written, drawn, sorted or found by name.
TEXT = ("tests/house", "tests/notebooks", "tests/paper_checks/test_*.py", *(f"!{path}" for path in _NETWORKS))
# Exact algebra, for a Python without torch.
EXACT = ("tests/theory/test_*.py", "!tests/theory/test_optimizers.py", *(f"!{path}" for path in _KERNEL))
ALL = ("tests",)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """This machine with something changed.

    needs: a flag of the processor without which its variables name what it cannot do. hides: programs that are not
    found there. as_user: another user than root, in a checkout of its own whose parent belongs to root.
    """

    name: str
    tests: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    needs: str = ""
    hides: tuple[str, ...] = ()
    as_user: bool = False
    python: str = ""


_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "pdflatex")
_NUMPY = "X86_V3 X86_V4 AVX512_ICL AVX512_SPR"
_LIBM = "glibc.cpu.hwcaps=-AVX2_Usable,-AVX2,-FMA_Usable,-FMA,-FMA4"


def _numbers(name: str, needs: str = "", **variables: str) -> Machine:
    return Machine(name=name, tests=NUMBERS, variables=variables, needs=needs)


def _text(name: str, **variables: str) -> Machine:
    return Machine(name=name, tests=TEXT, variables=variables)


def table(seed: str) -> list[Machine]:
    """Every machine. seed: what the random hash seed and the random order are drawn from."""
    return [
        _numbers("aten-default", ATEN_CPU_CAPABILITY="default"),
        _numbers("aten-avx2", ATEN_CPU_CAPABILITY="avx2", needs="avx2"),
        _numbers("aten-avx512", ATEN_CPU_CAPABILITY="avx512", needs="avx512f"),
        # `make test` gives its workers one thread each, and so does every machine here but the next.
        _numbers("threads-1", **dict.fromkeys(THREADS, "1")),
        _numbers("threads-4", **dict.fromkeys(THREADS, "4")),
        _numbers("mkl-compatible", MKL_CBWR="COMPATIBLE"),
        _numbers("onednn-sse41", ONEDNN_MAX_CPU_ISA="SSE41"),
        _numbers("onednn-avx2", ONEDNN_MAX_CPU_ISA="AVX2"),
        _numbers("openblas-prescott", OPENBLAS_CORETYPE="Prescott"),
        _numbers("openblas-haswell", OPENBLAS_CORETYPE="Haswell"),
        _numbers("numpy-sse", NPY_DISABLE_CPU_FEATURES=_NUMPY),
        _numbers("libm-without-fma", GLIBC_TUNABLES=_LIBM),
        _text("locale-c", LANG="C", LC_ALL="C", LANGUAGE="C"),
        # What Python 3.11 does on a system whose locale is not UTF-8, Latin-1 for instance.
        _text("not-utf-8", LANG="C", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"),
        _text("kathmandu", TZ="Asia/Kathmandu"),
        _text("columns-40", COLUMNS="40", LINES="10"),
        _text("hash-0", PYTHONHASHSEED="0"),
        _text("hash-1", PYTHONHASHSEED="1"),
        _text("hash-random", PYTHONHASHSEED=str(random.Random(seed).randrange(2, 2**32))),
        replace(_text("order", **{SEED: seed}), tests=("tests/sims", "tests/theory", *TEXT)),
        replace(_text("user"), as_user=True, tests=("tests/sims", *TEXT)),
        replace(_text("no-programs", DEPTHLAW_PROGRAMS=""), hides=_PROGRAMS),
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


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:12]


def probe() -> dict[str, str]:
    """What a program can see of the machine, by name; two machines with the same answers are one to the tests."""
    import locale
    import math

    draws = [random.Random(1).uniform(0.1, 9) for _ in range(2000)]
    functions = (math.exp, math.log, math.sin, math.tanh, math.gamma, lambda x: x**0.37)
    seen = {
        "Python": sys.version,
        "user": str(os.geteuid()),
        "functions of C": _digest([[f(x) for x in draws] for f in functions]),
        "encoding": f"{locale.getpreferredencoding()} {sys.getfilesystemencoding()} {sys.stdout.encoding}",
        "locale": str(locale.setlocale(locale.LC_ALL, "")),
        "time zone": time.strftime("%z"),
        "width": str(shutil.get_terminal_size().columns),
        "order of sets": str(hash("depthlaw")) if "PYTHONHASHSEED" in os.environ else "drawn anew",
        "order of tests": os.environ.get(SEED, "as written"),
        "programs": ", ".join(name for name in _PROGRAMS if shutil.which(name)),
    }
    return seen | _probe_numpy() | _probe_torch()


def _probe_numpy() -> dict[str, str]:
    try:
        import numpy as np
        from scipy import linalg
    except ImportError:
        return {}
    x = np.random.default_rng(1).normal(size=(300, 300))
    both = [x, x.astype("float32")]
    return {
        "products of numpy": _digest([(a @ a).tobytes() for a in both] + [np.linalg.eigvalsh(x + x.T).tobytes()]),
        "functions of numpy": _digest([f(a).tobytes() for a in both for f in (np.exp, np.sin, np.tanh)]),
        "sums of numpy": _digest([a.sum(axis=i).tobytes() for a in both for i in (None, 0, 1)]),
        "factors of scipy": _digest(linalg.cholesky(x @ x.T + 300 * np.eye(300)).tobytes()),
    }


def _probe_torch() -> dict[str, str]:
    try:
        import numpy as np
        import torch
    except ImportError:
        return {}
    seen = {"processor of torch": torch.backends.cpu.get_cpu_capability(), "threads": str(torch.get_num_threads())}
    # From numpy, so that torch's own draws are one answer and do not change the others.
    x = torch.tensor(np.random.default_rng(1).normal(size=(8, 48, 96)))
    for a in (x, x.float()):
        norm = torch.nn.functional.layer_norm(a, (96,))
        gelu = torch.nn.functional.gelu(a)
        of = str(a.dtype).removeprefix("torch.")
        parts = {
            "products": [a[0].T @ a[0], torch.bmm(a, a.transpose(1, 2)), torch.linalg.svdvals(a[0])],
            "sums": [a.sum(), a.sum(1), a.sum(2), a.var(), norm],
            "functions": [a.exp(), a.tanh(), gelu, a.softmax(-1)],
            "draws": [torch.randn(999, generator=torch.Generator().manual_seed(1), dtype=a.dtype)],
        }
        seen |= {f"{of} {k} of torch": _digest([t.numpy().tobytes() for t in ts]) for k, ts in parts.items()}
    return seen


if __name__ == "__main__":
    print(json.dumps(probe()))

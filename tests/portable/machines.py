"""The machines that the tests are run as: this one with something changed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
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

    hides: programs that are not found there. as_user: another user than root, in a checkout of its own whose parent
    belongs to root. python: the version, 3.11 for instance, of another Python.
    """

    name: str
    tests: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
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

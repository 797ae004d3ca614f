"""What holds for every test: threads, seeds and precision, the hypothesis profiles, programs that tests need, and a
budget of skips."""

import gc
import os
import random
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import settings

# The tests that may be skipped, by node id: exactly these. A test that cannot run here is left out by its marker
# (`-m "not gpu"`), which shows in the count of deselected tests; a skip looks like a pass and is none.
ALLOWED_SKIPS: frozenset[str] = frozenset()

# One thread each: the networks of tests are small, and threads that wait for one another spin on a busy machine.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
# Thousands of derivations in one process: sympy keeps more of what it worked out than for a command that answers one.
os.environ.setdefault("SYMPY_CACHE_SIZE", "20000")

# The folder of what tests/once.py makes once in a run: made before the workers start, which inherit its name.
FOLDER = "DEPTHLAW_TEST_RUN"
_made = FOLDER not in os.environ
if _made:
    os.environ[FOLDER] = tempfile.mkdtemp(prefix="depthlaw-tests-")
os.environ["DEPTHLAW_CACHE"] = f"{os.environ[FOLDER]}/kept"  # what commands answer is this run's, and not the user's

# `default` tries the same cases every time. `long` looks for new ones: HYPOTHESIS_PROFILE=long make test.
settings.register_profile("default", max_examples=100, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("long", max_examples=2000, deadline=None, derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(autouse=True)
def known_state(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test starts from seeds of its own and from default precision, whatever ran before it in this process."""
    gc.freeze()  # what earlier tests derived stays: no collection of garbage (the networks ask for many) looks at it
    seed = zlib.crc32(request.node.nodeid.encode())
    random.seed(seed)
    _seed_and_reset(seed)
    yield
    _seed_and_reset(seed)


def _seed_and_reset(seed: int) -> None:
    if (mpmath := sys.modules.get("mpmath")) is not None:
        mpmath.mp.dps = 15
        mpmath.mp.pretty = False
        mpmath.iv.dps = 15
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed)  # the global generator is what a careless test would use
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.manual_seed(seed)  # torch.manual_seed keeps a traceback for every device it has not met
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed)
        torch.set_default_dtype(torch.float32)


# --- programs that are no Python packages. Where one is missing, its tests are left out and that is said at the end;
# continuous integration has them all, and sets DEPTHLAW_PROGRAMS=all, so that there a missing one is red.

PROGRAMS = {"browser": ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"), "tex": ("pdflatex",)}


def find_program(marker: str) -> str | None:
    """The path of the first program of a marker that is installed."""
    return next((path for name in PROGRAMS[marker] if (path := shutil.which(name)) is not None), None)


def missing_programs(wanted: str) -> list[str]:
    """The markers whose tests are left out; none where all are ``wanted``."""
    return [] if wanted == "all" else [marker for marker in PROGRAMS if find_program(marker) is None]


def pytest_configure() -> None:
    gc.set_threshold(100_000, 20, 100)  # derivations make many objects, hardly any of them garbage in circles


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing = missing_programs(os.environ.get("DEPTHLAW_PROGRAMS", ""))
    left_out = [item for item in items if any(item.get_closest_marker(marker) for marker in missing)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium."""
    path = find_program("browser")
    assert path is not None, f"no Chromium: none of {', '.join(PROGRAMS['browser'])} is installed"
    return path


# --- the budget of skips. Skips of tests reach the controller of xdist as reports; skips of whole modules stay in the
# worker, and are sent along when it closes.

_skipped: set[str] = set()
_left_open: list[str] = []
_told: list[str] = []
"""What tests have to say of themselves at the end (``record_property("told", ...)``)."""


def left_open() -> list[str]:
    """What finalizers complain of in circles of objects that the tests left: files and stores that nobody closed. Not
    what could not be written to a disk without room, of which Python 3.13 complains too.
    """
    complaints: list[BaseException | None] = []
    before, sys.unraisablehook = sys.unraisablehook, lambda unraisable: complaints.append(unraisable.exc_value)
    gc.unfreeze()
    gc.collect()
    sys.unraisablehook = before
    gc.freeze()  # so that pytest's own collection, and the interpreter's at its end, look at none of it again
    return [str(complaint) for complaint in complaints if isinstance(complaint, ResourceWarning)]


def unlisted_skips(skipped: set[str]) -> list[str]:
    return sorted(skipped - ALLOWED_SKIPS)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.add(report.nodeid)
    if report.when == "call":
        _told.extend(str(text) for name, text in report.user_properties if name == "told")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        _skipped.add(report.nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    output = getattr(node, "workeroutput", {})
    _skipped.update(output.get("skipped", []))
    _left_open.extend(output.get("left_open", []))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    _left_open.extend(left_open())
    if output is not None:
        output |= {"skipped": sorted(_skipped), "left_open": _left_open}
    elif _left_open or unlisted_skips(_skipped):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if _made:
        shutil.rmtree(os.environ.pop(FOLDER), ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for marker in missing_programs(os.environ.get("DEPTHLAW_PROGRAMS", "")):
        names = ", ".join(PROGRAMS[marker])
        terminalreporter.write_line(f"left out: tests marked {marker}, as none of these is installed: {names}")
    for text in _told:
        terminalreporter.write_line(text)
    for text in _left_open:
        terminalreporter.write_line(f"FAILED: left open at the end: {text}", red=True)
    for nodeid in unlisted_skips(_skipped):
        terminalreporter.write_line(f"FAILED: skipped, and not in the list of allowed skips: {nodeid}", red=True)

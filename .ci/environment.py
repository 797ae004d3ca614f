"""Sets up the environment in .venv for the Makefile: `environment.py runtime`, `testing` or `lab`.

Does nothing when nothing that matters has changed. Two of these may run at once: the second waits for the first. An
environment that was moved or copied, whose interpreter is gone, or whose last install was cut short is made anew.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
PLACE = VENV / ".place"  # where, and with which Python, the environment was made
BUSY = VENV / ".busy"  # stands from before an install until it has succeeded
STEPS = {"runtime": ["runtime"], "testing": ["runtime", "testing"], "lab": ["runtime", "lab"]}
WHAT = {
    "runtime": "installing sympy, torch and the other runtime packages (the first time takes a minute or more)",
    "testing": "installing the test tools",
    "lab": "installing JupyterLab",
}


def say(text: str) -> None:
    print(f"depthlaw: {text}", flush=True)


def refuse(text: str) -> None:
    sys.exit(f"depthlaw: {text}")


def check_interpreter() -> None:
    if sys.version_info < (3, 11):
        refuse(f"Python 3.11 or newer is needed, {sys.executable} is older; name another with `make PYTHON=...`")
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        refuse(
            f"{sys.executable} -m venv is not available (no module {missing[0]}); Debian, Ubuntu: install python3-venv"
        )


def place() -> str:
    return f"{ROOT}\nPython {sys.version_info.major}.{sys.version_info.minor}\n"


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def project() -> dict:
    import tomllib  # here, so that an older Python gets as far as being told so

    return tomllib.loads(read(ROOT / "pyproject.toml"))


def key(step: str) -> str:
    """What an installed step depends on: the project's own declarations (not the tools' settings) and the pins."""
    declared = project()
    content = [step, declared["build-system"], declared["project"], read(ROOT / "constraints.txt")]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def stamp(step: str) -> Path:
    return VENV / f".installed-{step}"


def is_usable() -> bool:
    return PYTHON.exists() and read(PLACE) == place() and not BUSY.exists()


def make_anew() -> None:
    say("making the environment in .venv")
    # If .venv itself is activated, it must not be cleared by the Python that lies in it.
    base = getattr(sys, "_base_executable", None) or sys.executable
    subprocess.run([base, "-m", "venv", "--clear", str(VENV)], check=True, stdout=sys.stderr)
    PLACE.write_text(place(), encoding="utf-8")


def pip_install(*what: str) -> None:
    # The environment variables reach the environment in which pip builds the project too, so its backend is pinned as
    # well; newer versions of pip read the second one there. -qq keeps errors and drops warnings.
    pins = {"PIP_CONSTRAINT": "constraints.txt", "PIP_BUILD_CONSTRAINT": "constraints.txt"}
    settings = {**os.environ, **pins, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    start = time.monotonic()
    command = [str(PYTHON), "-m", "pip", "install", "-qq", *what]
    with subprocess.Popen(command, cwd=ROOT, env=settings, close_fds=False) as pip:
        while True:
            try:
                code = pip.wait(timeout=20)
                break
            except subprocess.TimeoutExpired:
                say(f"... still installing ({time.monotonic() - start:.0f} s)")
    if code:
        refuse("pip could not install the packages (its message is above); run make again to start over")


def install(step: str) -> None:
    say(WHAT[step])
    BUSY.touch()
    if step == "runtime":
        pip_install("-e", ".[verify]")
    elif step == "lab":
        pip_install(*project()["project"]["optional-dependencies"]["notebooks"])
    else:
        # The tools by themselves: `depthlaw` may be running beside this one, and is not to be reinstalled under it.
        extras = project()["project"]["optional-dependencies"]
        pip_install(*extras["dev"])
        pip_install("--no-deps", *extras["peers"])  # what torchscale declares, the tests need nothing of
    stamp(step).write_text(key(step), encoding="utf-8")
    BUSY.unlink()


def main(goal: str) -> None:
    check_interpreter()
    VENV.mkdir(exist_ok=True)
    lock = os.open(VENV, os.O_RDONLY)
    os.set_inheritable(lock, True)  # pip keeps it, should this process be killed and leave pip running
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("another make is at work in .venv; waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:
        pass  # a file system without locks
    if not is_usable():
        make_anew()
    for step in STEPS[goal]:
        if read(stamp(step)) != key(step):
            install(step)


if __name__ == "__main__":
    if sys.argv[1:] not in [[goal] for goal in STEPS]:
        refuse(f"usage: environment.py {'|'.join(STEPS)}")
    try:
        main(sys.argv[1])
    except KeyboardInterrupt:
        say("interrupted; run make again to go on")
        sys.exit(130)

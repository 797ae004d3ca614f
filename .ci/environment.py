"""Sets up the environment in .venv for the Makefile: `environment.py runtime`, `testing` or `lab`.

uv installs the versions that constraints.txt pins, which is uv.lock as pip reads it. Where there is no uv, pip brings
it into .venv; where even that fails, pip installs the rest too. uv is told what pip's settings say on this machine: an
index, a folder with wheels, a certificate. Nothing is done when nothing that matters has changed. Two of these may run
at once: the second waits for the first. An environment that was moved or copied, whose interpreter is gone, or whose
last install was cut short is made anew.
"""

import ast
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
PINS = "constraints.txt"
PLACE = VENV / ".place"  # where, and with which Python, the environment was made
BUSY = VENV / ".busy"  # stands from before an install until it has succeeded
STEPS = {"runtime": ["runtime"], "testing": ["runtime", "testing"], "lab": ["runtime", "lab"]}
WHAT = {
    "runtime": "installing sympy, torch and the other runtime packages (the first time takes up to a few minutes)",
    "testing": "installing the test tools",
    "lab": "installing JupyterLab",
}
UV_OF_PIP = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "no-index": "UV_NO_INDEX",
    "find-links": "UV_FIND_LINKS",
    "constraint": "UV_CONSTRAINT",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
"""The variable in which uv looks for what a setting of pip says."""
QUIET_S, SILENT_S = 20, 180
"""After how many seconds without a word from the installer a person is told that it works, and that it is stuck."""


def say(text: str) -> None:
    print(f"depthlaw: {text}", flush=True)


def refuse(text: str) -> None:
    sys.exit(f"depthlaw: {text}")


def check_interpreter() -> None:
    if sys.version_info < (3, 11):
        refuse(
            f"Python 3.11 or newer is needed, {sys.executable} is older; name another with `make PYTHON=...`, "
            "where uv is installed PYTHON='uv run --no-project --python 3.13 python'"
        )
    if not has_venv() and shutil.which("uv") is None:
        refuse(f"{sys.executable} -m venv is not available; Debian, Ubuntu: install python3-venv; or install uv")


def has_venv() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("venv", "ensurepip"))


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
    content = [step, declared["build-system"], declared["project"], read(ROOT / PINS)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def stamp(step: str) -> Path:
    return VENV / f".installed-{step}"


def is_usable() -> bool:
    return PYTHON.exists() and read(PLACE) == place() and not BUSY.exists()


def make_anew() -> None:
    say("making the environment in .venv")
    # If .venv itself is activated, it must not be cleared by the Python that lies in it.
    base = getattr(sys, "_base_executable", None) or sys.executable
    with_venv, with_uv = ["-m", "venv", "--clear"], ["venv", "-q", "--seed", "--allow-existing", "-p", base]
    subprocess.run([*([base, *with_venv] if has_venv() else ["uv", *with_uv]), str(VENV)], check=True)
    PLACE.write_text(place(), encoding="utf-8")


def settings_of_pip() -> dict[str, list[str]]:
    """What pip's files and variables say on this machine, by setting."""
    listed = subprocess.run([str(PYTHON), "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    values = dict(line.split("=", 1) for line in listed.stdout.splitlines() if "=" in line)
    settings = {}
    for section in ("global.", "install.", ":env:."):  # the later ones decide
        for name, value in values.items():
            if name.startswith(section):
                settings[name[len(section) :]] = ast.literal_eval(value).split()
    return settings


def settings_for_uv() -> dict[str, str]:
    """The variables that uv is run with: the person's own, and what pip's settings say where those are silent."""
    settings = {"UV_SYSTEM_CERTS": "1", "UV_BUILD_CONSTRAINT": PINS}
    for name, values in settings_of_pip().items():
        if name in UV_OF_PIP:
            settings[UV_OF_PIP[name]] = ("," if name == "find-links" else " ").join(values)
    if "UV_INDEX" in settings:  # pip takes the best version of all indexes, uv that of the first which has any
        settings["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    settings |= os.environ
    settings["UV_CONSTRAINT"] = f"{PINS} {settings.get('UV_CONSTRAINT', '')}".strip()
    return settings


def pip(*what: str) -> bool:
    # The variables reach the environment in which pip builds the project too, so its backend is pinned as well; newer
    # versions of pip read the second one there.
    pins = {"PIP_CONSTRAINT": PINS, "PIP_BUILD_CONSTRAINT": PINS, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    command = [str(PYTHON), "-m", "pip", "install", "--progress-bar", "off", *what]
    return has_succeeded(command, {**os.environ, **pins})


def packages(*what: str) -> None:
    own = VENV / "bin" / "uv"
    if not own.exists() and not pip("uv"):
        say("pip cannot bring uv")
    if (uv := str(own) if own.exists() else shutil.which("uv")) is not None:
        is_done = has_succeeded([uv, "pip", "install", "--python", str(PYTHON), *what], settings_for_uv())
    else:
        is_done = pip(*what)
    if not is_done:
        refuse("the packages could not be installed, for the reason above; run make again to go on")


def has_succeeded(command: "list[str]", settings: "dict[str, str]") -> bool:
    """Runs an installer, passing on what it says; where it says nothing, what it waits for is told."""
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    with subprocess.Popen(command, cwd=ROOT, env=settings, close_fds=False, **how) as process:
        heard = Heard(process)
        while heard.thread.is_alive():
            heard.thread.join(1)
            heard.say_what_it_waits_for()
    return process.returncode == 0


class Heard:
    """What an installer says, passed on without the list of all that was installed."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.last, self.pending, self.told = "an answer of the index of packages", [], 0
        self.start = self.since = time.monotonic()
        self.thread = threading.Thread(target=self.listen, args=(process.stdout,), daemon=True)
        self.thread.start()

    def listen(self, lines: "list[str]") -> None:
        for line in filter(None, map(str.strip, lines)):
            self.since, self.told = time.monotonic(), 0
            if re.match(r"[+~-] \S+==|Requirement already|Using Python", line):
                continue
            print(f"    {line}", flush=True)
            self.last = line
            if begun := re.match(r"(?:Downloading|Building) (.+)", line):
                self.pending.append(begun[1])
            elif ended := re.match(r"(?:Downloaded|Built) (\S+)", line):
                self.pending = [name for name in self.pending if name.split()[0] != ended[1]]

    def say_what_it_waits_for(self) -> None:
        silent = time.monotonic() - self.since
        if silent < QUIET_S * (self.told + 1):
            return
        self.told += 1
        waits = ", ".join(self.pending) or self.last
        if silent < SILENT_S:
            say(f"... still installing ({time.monotonic() - self.start:.0f} s): {waits}")
        else:
            say(f"no progress for {silent:.0f} s, waiting for: {waits} (Ctrl-C ends it, and make goes on from there)")


def install(step: str) -> None:
    say(WHAT[step])
    BUSY.touch()
    if step == "runtime":
        packages("-e", ".[verify]")
    elif step == "lab":
        packages(*project()["project"]["optional-dependencies"]["notebooks"])
    else:
        # The tools by themselves: `depthlaw` may be running beside this one, and is not to be reinstalled under it.
        extras = project()["project"]["optional-dependencies"]
        packages(*extras["dev"])
        packages("--no-deps", *extras["peers"])  # what torchscale declares, the tests need nothing of
    stamp(step).write_text(key(step), encoding="utf-8")
    BUSY.unlink()


def main(goal: str) -> None:
    check_interpreter()
    VENV.mkdir(exist_ok=True)
    lock = os.open(VENV, os.O_RDONLY)
    os.set_inheritable(lock, True)  # the installer keeps it, should this process be killed
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

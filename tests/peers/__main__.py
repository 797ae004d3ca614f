"""The audit and the watch beside other packages, in environments of their own: `make test-peers`, or by hand

python -m tests.peers [NAME ...]    says where the audit finds something else than pinned.json, and exits 1 then
python -m tests.peers --pin         writes pinned.json anew; read what changes before you commit it

An environment in build/peers holds the package and what it needs in other versions than .venv; the rest, torch among
it, is taken from .venv. Packages come from PyPI; no weights are downloaded.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "peers"
PINNED = Path(__file__).with_name("pinned.json")
ENVIRONMENTS = {
    **{f"timm-{version}": ("timm", f"timm=={version}") for version in ("1.0.20", "1.0.21", "1.0.22")},
    **{
        f"transformers-{version}": ("transformers", f"transformers=={version}")
        for version in ("4.57.6", "5.14.1", "5.15.0")
    },
    "litgpt-0.5.13": ("litgpt", "litgpt==0.5.13", "transformers<5.9"),
    "x-transformers-1.44.8": ("x-transformers", "x-transformers==1.44.8"),
    "diffusers-0.36.0": ("diffusers", "diffusers==0.36.0"),
}
"""By name: the package whose models are looked at, and what is installed."""
CLIENTS = "clients"
LOGGERS = (
    "tensorboard==2.21.0",
    "wandb==0.31.0",
    "mlflow==3.17.2",
    "lightning==2.6.6",
    "accelerate==1.15.0",
)
"""What a watch logs to and is called by, all in one environment; its tests are run there."""
Findings = Mapping[str, Sequence[str]]


def python_of(name: str) -> Path:
    """The interpreter of an environment, which is made where it is not there. RuntimeError where pip fails."""
    folder = FOLDER / name
    python, done = folder / "bin" / "python", folder / ".made"
    packages_of = LOGGERS if name == CLIENTS else ENVIRONMENTS[name][1:]
    wanted = [f"torch=={metadata.version('torch').partition('+')[0]}", *packages_of]
    if done.exists() and json.loads(done.read_text(encoding="utf-8")) == wanted:
        return python
    print(f"depthlaw: making the environment of {name}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    Path(packages, "project.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    constraints = folder / "constraints.txt"
    constraints.write_text(f"{wanted[0]}\n", encoding="utf-8")
    command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", constraints, *wanted[1:]]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise RuntimeError(f"pip could not install {' '.join(wanted[1:])}:\n{answer.stderr.strip()}")
    done.write_text(json.dumps(wanted), encoding="utf-8")
    return python


def findings(name: str) -> Findings:
    """What the audit says in that environment. RuntimeError where it fails."""
    command = [python_of(name), "-m", "tests.peers.models", ENVIRONMENTS[name][0]]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise RuntimeError(f"{name}:\n{answer.stderr.strip()}")
    return json.loads(answer.stdout[answer.stdout.index("{") :])


def _clients_pass() -> bool:
    """Whether a watch does what it should beside the clients: none of its tests may be skipped."""
    try:
        python = python_of(CLIENTS)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return False
    tests = "tests/peers/watch_clients.py"
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", tests]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(f"{CLIENTS}: {answer.stdout.strip().splitlines()[-1] if answer.stdout else answer.stderr}", flush=True)
    is_fine = answer.returncode == 0 and "skipped" not in answer.stdout
    print("" if is_fine else answer.stdout, end="", flush=True)
    return is_fine


def pinned() -> dict[str, Findings]:
    return json.loads(PINNED.read_text(encoding="utf-8")) if PINNED.exists() else {}


def main(arguments: Sequence[str]) -> int:
    pins = pinned()
    is_pinning = "--pin" in arguments
    known = [*ENVIRONMENTS, CLIENTS]
    names = [argument for argument in arguments if argument != "--pin"] or known
    if unknown := [name for name in names if name not in known]:
        print(f"no environment {unknown[0]!r} (there are: {', '.join(known)})", file=sys.stderr)
        return 2
    num_wrong = 0
    for name in names:
        if name == CLIENTS:
            num_wrong += not _clients_pass()
            continue
        try:
            found = findings(name)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            num_wrong += 1
            continue
        lines = [
            f"  {model}: found {_text(found.get(model))}, pinned {_text(pins.get(name, {}).get(model))}"
            for model in dict.fromkeys((*pins.get(name, {}), *found))
            if found.get(model) != pins.get(name, {}).get(model)
        ]
        print(f"{name}: {len(found)} models, {'as pinned' if not lines else 'otherwise than pinned'}", flush=True)
        print("".join(f"{line}\n" for line in lines), end="", flush=True)
        num_wrong += bool(lines) and not is_pinning
        pins[name] = found
    if is_pinning:
        PINNED.write_text(json.dumps({name: pins[name] for name in ENVIRONMENTS if name in pins}, indent=1) + "\n")
    return min(num_wrong, 1)


def _text(faults: Sequence[str] | None) -> str:
    return "nothing looked at" if faults is None else "; ".join(faults) or "no fault"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

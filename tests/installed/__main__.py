"""The wheel in environments of their own, beside the oldest and the newest torch that it holds with.

    python -m tests.installed           # every environment: gigabytes, as PyPI's torch for Linux brings CUDA along
    python -m tests.installed oldest

Each gets its torch first and the wheel behind it, which must leave that torch alone. Then the commands that people want
beside their own model are run in a folder that has packages called sims, theory and tests of its own.
"""

import argparse
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]

COMMANDS = (
    ("audit", "mymodel:build", "--layers", "2,4", "--scheme", "pre-ln", "--optimizer", "adamw"),
    ("advise", "--recipe", "gpt2", "--optimizer", "adamw", "--from-layers", "2", "--layers", "4", "--width", "64"),
    ("predict", "--scheme", "deepnorm", "--optimizer", "adam", "--sublayers", "4,8"),
    ("rule", "--norm", "post", "--optimizer", "adam", "--arch", "encoder", "--layers", "24"),
    ("tables",),
    ("explain", "S2-08"),
)
"""What a user runs; the audit finds faults in the model (torch's layers start as copies), which is exit 1."""
RIGHT = (("audit", "mymodel:Right", "--layers", "2,4"), ("audit", "--hf", "gpt2", "--layers", "2,4"))
"""Audits that find no fault."""

_MODEL = """
from torch import nn
import sims, tests, theory


def build(num_layers):
    assert sims.OWN and tests.OWN and theory.OWN
    layer = nn.TransformerEncoderLayer(64, 4, 256, norm_first=True, batch_first=True)
    return nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)


class Right(nn.Module):
    def __init__(self, num_layers):
        super().__init__()
        layers = [nn.TransformerEncoderLayer(64, 4, 256, norm_first=True, batch_first=True) for _ in range(num_layers)]
        self.layers, self.norm = nn.ModuleList(layers), nn.LayerNorm(64)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)
"""


@dataclass(frozen=True, kw_only=True)
class Environment:
    python: str
    packages: tuple[str, ...]


ENVIRONMENTS = {
    "oldest": Environment(
        python="3.11",
        packages=("torch==2.5.0", "numpy==2.0.0", "sympy==1.13.1", "scipy==1.15.0", "transformers==4.48.0"),
    ),
    "newest": Environment(python="3.13", packages=("torch", "numpy", "sympy", "scipy", "transformers")),
}


def own_folder(folder: Path) -> Path:
    """A user's: a model, and packages whose names are those of depthlaw's folders."""
    for name in ("sims", "theory", "tests"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("OWN = True\n", encoding="utf-8")
    (folder / "mymodel.py").write_text(_MODEL, encoding="utf-8")
    return folder


def _installed(python: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _is_fine(environment: Environment, folder: Path, uv: str) -> bool:
    """Prints what was tried and what came of it."""
    python = folder / "venv" / "bin" / "python"
    subprocess.run([uv, "venv", "-q", "--python", environment.python, folder / "venv"], check=True)
    pip = [uv, "pip", "install", "-q", "--no-config", "--python", python]  # none of this project's pins
    start = time.monotonic()
    subprocess.run([*pip, *environment.packages], check=True)
    before = {name: _installed(python, name) for name in ("torch", "numpy", "sympy")}
    (wheel,) = (folder.parent / "wheel").glob("*.whl")
    subprocess.run([*pip, wheel], check=True)
    after = {name: _installed(python, name) for name in before}
    print(f"  Python {environment.python}, {after}, installed in {time.monotonic() - start:.0f} s", flush=True)
    if before != after:
        print(f"  the wheel has changed what was there: {before}")
    is_fine, own = before == after, own_folder(folder)
    for arguments in (*COMMANDS, *RIGHT):
        start, wanted = time.monotonic(), int(arguments[0] == "audit" and arguments not in RIGHT)
        result = subprocess.run(
            [python.with_name("depthlaw"), *arguments], cwd=own, capture_output=True, text=True, check=False
        )
        print(f"  {' '.join(arguments[:3])}: exit {result.returncode}, {time.monotonic() - start:.1f} s", flush=True)
        if result.returncode != wanted:
            is_fine = False
            print(f"  {wanted} was expected:\n{result.stderr}")
    return is_fine


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.installed", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ENVIRONMENTS)}; all, if left out")
    names = parser.parse_args().names or [*ENVIRONMENTS]
    if unknown := set(names) - ENVIRONMENTS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))} (allowed: {', '.join(ENVIRONMENTS)})")
    uv = shutil.which("uv", path=Path(sys.executable).parent) or shutil.which("uv")
    if uv is None:
        parser.error("there is no uv beside this Python (allowed: the environment of `make testing`)")
    failed = []
    with TemporaryDirectory(prefix="depthlaw-") as folder:
        subprocess.run([uv, "build", "-q", "--wheel", "--out-dir", Path(folder, "wheel"), ROOT], check=True)
        for name in names:
            print(name, flush=True)
            Path(folder, name).mkdir()
            if not _is_fine(ENVIRONMENTS[name], Path(folder, name), uv):
                failed.append(name)
    print(f"{len(names) - len(failed)} passed, {len(failed)} failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

"""What the commands answer, as files: python -m tests.documents [--at FOLDER] OUT

For a change that should change no answer: write the documents of the checkout before it and of the one after it, and
compare the two folders with diff. Each command is run as a user would run it, in a process of the checkout at FOLDER;
a file has its exit code, what it printed, and what it said on standard error. Times and the path of the checkout are
left out.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from theory.optimizers import OPTIMIZERS
from theory.schemes import SCHEMES

FORMS = ("--json", "--markdown", "--csv", "--latex")


def commands() -> list[str]:
    """All of them, cheap ones last."""
    found = ["verify --json --mutants", "verify --full --quick", *(f"tables {form}" for form in FORMS)]
    found += ["schemes --json", "schemes deepnorm", "explain S2-08", "explain S2-08 --json", "explain S1-11"]
    for scheme in SCHEMES:
        found += [f"predict --scheme {scheme} --optimizer {name} --sublayers 4,8,16 --json" for name in OPTIMIZERS]
        found += [f"predict --scheme {scheme} --optimizer adam --sublayers 2,5 --activation gelu --roles"]
        attention = f"--scheme {scheme} --optimizer adam --sublayers 2,4 --attention --tokens 4 --roles --json"
        found += [f"predict {attention}", f"measure {attention} --width 32 --heads 2 --seeds 2"]
        found += [f"measure --scheme {scheme} --optimizer sgd --sublayers 2,4 --width 32 --seeds 3 --json"]
    for norm in ("post", "pre", "sub"):
        for name in ("sgd", "adam", "lamb", "muon"):
            rule = f"rule --norm {norm} --optimizer {name}"
            found += [f"{rule} --arch {arch} --layers 12 --json" for arch in ("encoder", "decoder")]
            found += [f"{rule} --arch encoder-decoder --layers 6 --decoder-layers 4 --json"]
    found += [f"rule --norm post --optimizer adam --arch encoder --layers 12 --select {way} --json"
              for way in ("deepnet", "symmetric", "alpha-one", "relative")]  # fmt: skip
    found += [
        "predict --scheme none --optimizer sgd --sublayers 4",
        "predict --scheme post-ln --optimizer none --sublayers 4",
        "predict --scheme post-ln --optimizer sgd --sublayers 4,x",
        "predict --scheme post-ln --optimizer sgd",
        "predict --scheme sub-ln-gamma --optimizer sgd --sublayers 1",
        "predict --norm post --residual-weight 1,0 --gain 1,0.5 --optimizer sgd --sublayers 4 --json",
        "measure --scheme post-ln --optimizer sgd --sublayers 4 --width 0 --seeds 2",
        "rule --norm post --optimizer adam --arch encoder-decoder --layers 6",
        "rule --norm none --optimizer adam --arch encoder --layers 6",
        "explain S9-99", "verify S9-99", "verify --source nobody", "tables --yaml", "train --scheme none", "nothing",
    ]  # fmt: skip
    return found


# Run in the other checkout, which need not have this file.
_ASK = """
import contextlib, io, shlex, sys
from pathlib import Path
try:
    from paper_checks.cli.app import main
except ImportError:  # an older checkout
    from paper_checks.cli import main
folder = Path(sys.argv[1])
for number, line in enumerate(sys.stdin.read().splitlines()):
    sys.argv = ["depthlaw", *shlex.split(line)]
    out, said, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    name = "".join(one if one.isalnum() or one in "-,." else "_" for one in line)
    text = f"{line}\\nexit {code}\\n{out.getvalue()}\\n---\\n{said.getvalue()}"
    (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    print(number, line, file=sys.__stderr__, flush=True)
"""
_TIMES = re.compile(r'"(?:seconds|created|commit)": [^,}\n]+')


def write(root: Path, out: Path, asked: list[str]) -> None:
    """A file for each command. subprocess.CalledProcessError where the process ends before all have answered."""
    out.mkdir(parents=True, exist_ok=True)
    settings = {"PYTHONPATH": str(root), "COLUMNS": "120", "LINES": "40", "TERM": "dumb", "NO_COLOR": "1"}
    subprocess.run(
        [sys.executable, "-c", _ASK, str(out.resolve())],
        cwd=root,
        env={**os.environ, **settings},
        input="\n".join(asked),
        text=True,
        check=True,
    )
    for path in out.glob("*.txt"):
        text = path.read_text(encoding="utf-8").replace(str(root), "")
        path.write_text(_TIMES.sub("", text), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.documents", description="What the commands answer.")
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder to write")
    parser.add_argument("--at", type=Path, default=Path(__file__).resolve().parents[1], metavar="FOLDER")
    parser.add_argument("--only", default="", metavar="WORD", help="commands that begin with it")
    asked = parser.parse_args()
    chosen = [one for one in commands() if shlex.split(one)[0].startswith(asked.only)]
    write(asked.at.resolve(), asked.out, chosen)


if __name__ == "__main__":
    main()

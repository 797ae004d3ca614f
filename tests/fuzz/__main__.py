"""Tries inputs of one kind, and shows what they break: ``python -m tests.fuzz KIND [FIRST] [HOW MANY]``.

python -m tests.fuzz "command lines" 4711       the one with this number, and how it ends
python -m tests.fuzz stores 0 500               the first 500
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

from tests.fuzz.kinds import KINDS
from tests.fuzz.watch import watching


def main(name: str, first: str = "0", how_many: str = "1") -> int:
    kind, num_broken = next(kind for kind in KINDS if kind.name == name), 0
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "`torch.jit.script", DeprecationWarning)
    with tempfile.TemporaryDirectory() as folder, watching(Path(folder).resolve()) as watch:
        for number in range(int(first), int(first) + int(how_many)):
            given = kind.input(number)
            broken = watch.broken(given)
            num_broken += bool(broken)
            if broken or how_many == "1":
                print(f"{name} {number}: {'; '.join(broken) or 'nothing broken'}\n{given}", flush=True)
    print(f"{how_many} {name}: {num_broken} broken; {watch.ended}")
    return 1 if num_broken else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Tries inputs of one kind, and shows what they break: ``python -m tests.fuzz KIND [FIRST] [HOW MANY]``.

python -m tests.fuzz "command lines" 4711       the one with this number, and how it ends
python -m tests.fuzz stores 0 500               the first 500
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

from tests.fuzz.kinds import KINDS
from tests.fuzz.watch import watching


def main(name: str, first: str = "0", how_many: str = "1") -> int:
    kind = next(kind for kind in KINDS if kind.name == name)
    numbers = range(int(first), int(first) + int(how_many))
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "`torch.jit.script", DeprecationWarning)
    num_broken, seconds, begun, groups = 0, [], time.process_time(), Counter()
    with tempfile.TemporaryDirectory() as folder, watching(Path(folder).resolve()) as watch:
        for number in numbers:
            given = kind.input(number)
            start = time.process_time()
            broken = watch.broken(given)
            seconds.append((time.process_time() - start, number))
            if len(numbers) == 1:
                print(given, watch.ended, sep="\n")
            if broken:
                num_broken += 1
                groups[broken[0][-60:]] += 1
                if groups[broken[0][-60:]] <= 2:
                    print(f"{name} {number}: {'; '.join(broken)}\n  {str(given)[:600]}", flush=True)
    print(f"{len(numbers)} {name}: {num_broken} broken; {watch.ended}; {time.process_time() - begun:.1f} s")
    print(
        "slowest:",
        ", ".join(f"{number}: {took:.1f} s" for took, number in sorted(seconds)[-5:]),
        groups.most_common(20),
    )
    return 1 if num_broken else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

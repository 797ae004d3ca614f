"""The examples of every ``--help``, quick ones first: tests read each as the command line does, and run the quick."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "rule": (
        "rule --norm post --optimizer adam --arch encoder --layers 24",
        "rule --norm post --optimizer sgd --arch encoder --layers 100 --select deepnet",
        "rule --norm pre --optimizer adamw --arch decoder --layers 48 --json",
        "rule --norm post --optimizer sgd --arch encoder-decoder --layers 18 --decoder-layers 6",
    ),
    "predict": (
        "predict --scheme sub-ln --optimizer sgd --sublayers 8,64,512,1000000000",
        "predict --norm post --residual-weight 1,1/4 --gain 0.7,-1/4 --optimizer adam --sublayers 8,64",
        "predict --scheme deepnorm --optimizer adam --layers 6,12,24,48 --attention --roles --plot deepnorm.svg",
        "predict --scheme pre-ln --optimizer adam --attention --arch decoder --layers 24 --heads 16 --width 1024",
    ),
    "tables": (
        "tables --only cross --activation gelu",
        "tables --only deepnet --markdown",
        "tables --only su-optimizers --latex",
        "tables --derive --json",
    ),
    "measure": (
        "measure --scheme post-ln --optimizer sgd --sublayers 4,8,16 --width 64 --seeds 8 --no-keep",
        "measure --scheme post-ln --optimizer sgd --sublayers 4,8,16,32,64 --width 512 --seeds 32 --plot post.png",
        "measure --scheme deepnorm --optimizer adam --layers 6,12,24 --attention --width 64 --heads 4 --roles",
        "measure --scheme deepnorm --optimizer adam --attention --arch encoder-decoder --layers 6 --decoder-layers 6",
    ),
    "train": (
        "train --scheme post-ln,deepnorm --layers 6,24 --learning-rate 1e-3,4e-3 --seeds 3 --budget 10",
        "train --scheme post-ln,admin --shape nmt --layers 18 --learning-rate 1e-3 --steps 400 --warmup 100",
        "train --scheme pre-ln --shape gpt --text book.txt.gz --layers 4 --learning-rate 2e-3 --plot book.svg",
    ),
    "experiment": (
        "experiment warmup --plan",
        "experiment thousand-layers --budget 40 --workers 2",
        "experiment stable-rates --from-record --budget 1",
    ),
    "verify": (
        "verify LI-05 S1-34",
        "verify LI-05 --mutants",
        "verify --source deepnet --quick",
        "verify --out out/verify.json",
    ),
    "explain": (
        "explain S1-34",
        "explain LI-05 --mutants",
        "explain DN-07 --json",
    ),
    "report": (
        "report --out out/report",
        "report --quick --out out/report",
        "report --from out/verify.json --out out/report",
    ),
}
"""By command, without ``depthlaw`` before each."""


def epilog(command: str) -> str:
    """What stands below the options. Blank lines between the lines: without them they would run into one."""
    return "\n\n".join(["Examples:", *(f"depthlaw {example}" for example in EXAMPLES[command])])


FIRST = "\n\n".join(
    [
        "Begin with:",
        *(f"depthlaw {EXAMPLES[command][0]}" for command in ("rule", "predict", "measure")),
        "depthlaw explain S1-34",
        "depthlaw --install-completion  (then TAB completes names of schemes, optimizers, claims ... in a new shell)",
    ]
)
"""Below the list of commands."""

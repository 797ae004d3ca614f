"""The audit of every model type of transformers that a configuration builds: `make test-hf`, or by hand

python -m tests.peers.types [NAME ...]    says where a type is told otherwise than in types.json, and exits 1 then;
                                          of a type that is not in it, what is told
python -m tests.peers.types --pin         writes types.json anew; read what changes before you commit it

Each is built 64 wide at 2 and at 4 layers and read, without a measurement, as `depthlaw audit --hf NAME` does: beside
the recipe of its name, where there is one, and else by itself. It is read, or refused and why, or has faults, each of
which was judged by hand once; or its configuration builds no such model, or it takes longer than 30 seconds. Weights
are random; nothing is downloaded.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING

from depthlaw.auditing.audit import audit
from depthlaw.auditing.builders import hugging_face

PINNED = Path(__file__).with_name("types.json")
WIDTH, LAYERS, SECONDS = 64, (2, 4), 30
_AT_ONCE = 2
_MEMORY = 10 * 2**30
"""Bytes, for each: beyond that the system would end whatever else runs."""
_MOST = 200
"""Letters of a reason."""
_LEFT_OUT = "left out"
"""What hangs on the machine is told, and not kept."""
JUDGED = {
    "fastspeech2_conformer": "right: its two stacks have their own numbers of layers, which --hf does not set",
    "flava": "right: its three stacks have numbers of layers of their own, which --hf does not set",
    "higgs_audio_v2": "right: each token goes through one of two FFNs, and is put back by its place; that is not read",
    "hrm_text": "right: it has a number of layers for each of its stacks, which --hf does not set",
    "mask2former": "right: its backbone has its layers in stages, which --hf does not set",
    "maskformer": "right: its backbone has its layers in stages, which --hf does not set",
    "mimi_encoder": "right: it is published without a final norm, and a convolution reads its stream",
    "moonshine": "right: its encoder has a number of layers of its own, which --hf does not set",
    "nanochat": "a fault: one over the square root of 2N counts both sublayers of a layer, and is given to attention's "
    "output matrix alone",
    "nemotron_h": "right: its layers are those of a pattern, which --hf does not lengthen",
    "pocket_tts_audio_tokenizer_encoder": "right: as Mimi's encoder, which it is",
    "pp_doclayout_v4": "a fault: the sums of its first decoder layer start at 1e-15, where the norms' epsilon is 1e-5",
    "sam_hq_vision_model": "a fault: its configuration draws every matrix at 1e-10; its neck has norms of its own",
    "sam_vision_model": "a fault: its configuration draws every matrix at 1e-10; its neck has norms of its own",
    "xlstm": "right: it has a number of blocks of its own, which --hf does not set",
}
"""Of a type with faults, what a look at its code says."""
Outcome = Mapping[str, str]
"""By type, what is said of it: "read", or a word with a colon and what."""


def outcome(name: str) -> str:
    """What the audit says of a type."""
    try:
        build, recipe = hugging_face(name, WIDTH)
    except ValueError as error:
        return f"not built: {error}".replace("--hf: ", "")[:_MOST]
    try:
        answer = audit(build, LAYERS, recipe=recipe, measures=False, has_nearest=False)
    except ValueError as error:
        word = "not built" if str(error).startswith("the builder failed") else "refused"
        word = _LEFT_OUT if "GiB of memory" in str(error) or "t allocate memory" in str(error) else word
        return f"{word}: {error}".replace(sys.prefix, "")[:_MOST]
    told = (f"{fault.kind} ({fault.role})" if fault.role else fault.kind for fault in answer.faults)
    kinds = ", ".join(sorted({*told}))
    return f"faults: {kinds}" if kinds else "read"


def _tell(name: str, answers: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    try:
        answers.send(outcome(name))
    except Exception as error:  # what is no refusal is a mistake of ours
        answers.send(f"crashed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")


def _within_time(name: str) -> str:
    """The same by a process of its own, which ends with its time."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_tell, args=(name, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(SECONDS) else f"{_LEFT_OUT}: longer than {SECONDS} s"
    except EOFError:
        return "crashed: the process ended"
    finally:
        process.kill()
        process.join()


def outcomes(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Of each type, two at once, in processes that begin with all that the first audit imports."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    outcome("gpt2")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from zip(names, pool.map(_within_time, names), strict=True)


def pinned() -> Outcome:
    return json.loads(PINNED.read_text(encoding="utf-8"))["types"] if PINNED.exists() else {}


def table(found: Outcome) -> Iterator[str]:
    """How many types there are of each outcome, and of each reason."""
    words = Counter(text.partition(":")[0] for text in found.values())
    yield f"{len(found)} types: {', '.join(f'{number} {word}' for word, number in words.most_common())}"
    for word in ("faults", "crashed", _LEFT_OUT):
        for name, text in found.items():
            if text.startswith(word):
                yield f"  {name}: {text}{f' (judged {JUDGED[name]})' if name in JUDGED else ''}"


def main(arguments: Sequence[str]) -> int:
    pins = dict(pinned())
    is_pinning = "--pin" in arguments
    names = [argument for argument in arguments if argument != "--pin"] or [*CONFIG_MAPPING]
    if unknown := [name for name in names if name not in CONFIG_MAPPING]:
        print(f"no type {unknown[0]!r} in transformers {transformers.__version__}", file=sys.stderr)
        return 2
    found, wrong = {}, 0
    for name, text in outcomes(names):
        found[name] = text
        if text != pins.get(name):
            wrong += name in pins and not text.startswith(_LEFT_OUT)
            print(f"  {name}: {text}\n    pinned: {pins.get(name, 'nothing')}", flush=True)
    print("\n".join(table(found)))
    if is_pinning:
        kept = {name: text for name, text in {**pins, **found}.items() if not text.startswith(_LEFT_OUT)}
        everything = {"transformers": transformers.__version__, "types": dict(sorted(kept.items()))}
        PINNED.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")
    return int(wrong > 0 and not is_pinning)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

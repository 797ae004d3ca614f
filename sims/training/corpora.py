"""Raw examples that a fresh machine has, or that are the user's own, and on which side of the split each one is.

The standard library is the running Python's: another Python has other sources and other bytecode. The split is by hash
of what an example is, one in ten held out, so that the same example is on the same side in every run.
"""

from __future__ import annotations

import dis
import gzip
import os
import sysconfig
import zlib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import CodeType
from warnings import catch_warnings, simplefilter

import numpy as np

HELD_OUT_IN = 10
"""One example in so many is held out."""
BLOCK = 1024
"""Bytes of the pieces by which a text is split."""
LIBRARY_BYTES = 4_000_000
MAX_TEXT_BYTES = 16_000_000
MAX_PAIRS = 100_000
MAX_FILE_BYTES = 200_000_000
"""How much is read of the standard library, of a user's text and of a user's pairs, which load in seconds; and the most
of a file of a user's, the end of which has to be seen."""
MAX_MODULE_BYTES = 250_000
"""Longer modules are left out: in the standard library that is the text of pydoc's help pages."""
NOT_SOURCES = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"})
OPERATIONS = tuple(sorted(name for name, code in dis.opmap.items() if code < 256))
"""Names of the bytecode's operations: the symbols of the bytecode side. Those from 256 on are the compiler's own."""

Pair = tuple[bytes, bytes]


def is_held_out(key: bytes) -> bool:
    return int.from_bytes(sha256(key).digest()[:8]) % HELD_OUT_IN == 0


def digest_of(*parts: bytes) -> str:
    """sha256 of the parts, with their lengths, so that none runs into the next."""
    whole = sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8))
        whole.update(part)
    return whole.hexdigest()


# --- text


@cache
def help_pages() -> tuple[Pair, ...]:
    """(paragraph, paragraph) of the pages of the language's reference that Python's ``help`` shows: English prose, with
    examples. Pages quote one another: a paragraph is there once, and has a blank line behind it."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise ValueError("this Python has no pages of help (pydoc_data): the shape gpt has other data") from None
    paragraphs = dict.fromkeys(part for _, page in sorted(topics.items()) for part in page.strip().split("\n\n"))
    encoded = [part.encode() + b"\n\n" for part in paragraphs]
    return tuple(zip(encoded, encoded, strict=True))


@cache
def standard_library() -> tuple[Pair, ...]:
    """(relative path, source) of modules of the standard library, sorted: whole files, by hash of the path, until
    ``LIBRARY_BYTES`` are reached. Without its tests, without packages installed beside it."""
    root = Path(sysconfig.get_paths()["stdlib"])
    paths = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in NOT_SOURCES]
        paths += [Path(folder, name).relative_to(root) for name in files if name.endswith(".py")]
    # What names the machine that Python was built on is not the library's.
    paths = [path for path in paths if not path.name.startswith("_sysconfigdata")]
    chosen, num_bytes = [], 0
    for path in sorted(paths, key=lambda path: sha256(b"share of " + path.as_posix().encode()).digest()):
        source = (root / path).read_bytes()
        if num_bytes + len(source) <= LIBRARY_BYTES and len(source) <= MAX_MODULE_BYTES:
            chosen.append((path.as_posix().encode(), source))
            num_bytes += len(source)
    if not chosen:
        raise ValueError(f"no source of the standard library in {root}: give a text of your own")
    return tuple(sorted(chosen))


def read(path: str, limit: int, *, has_to_end: bool = False) -> bytes:
    """The first ``limit`` bytes of a file, unpacked where its name ends in .gz. has_to_end: a longer one is refused.

    Errors: ValueError for what cannot be read or is empty.
    """
    try:
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            content = file.read(limit + has_to_end)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a whole gzip file: {error}") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if not content:
        raise ValueError(f"{path} is empty")
    if len(content) > limit:
        raise ValueError(f"{path} has more than {limit:,} bytes{', unpacked' if path.endswith('.gz') else ''}")
    return content


def blocks(text: bytes) -> list[Pair]:
    """(key, piece): a text in blocks of ``BLOCK`` bytes, each its own key."""
    return [(text[i : i + BLOCK], text[i : i + BLOCK]) for i in range(0, len(text), BLOCK)]


def sides(pieces: tuple[Pair, ...] | list[Pair]) -> tuple[bytes, bytes]:
    """The training and the held-out text of (key, piece): each its pieces behind one another."""
    return (
        b"".join(piece for key, piece in pieces if not is_held_out(key)),
        b"".join(piece for key, piece in pieces if is_held_out(key)),
    )


# --- pairs


def code_objects(code: CodeType) -> Iterator[CodeType]:
    """``code`` and those inside it, in the order of the source."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from code_objects(constant)


def bytecode_pairs(source: bytes) -> Iterator[Pair]:
    """(line, operations) of a module's source: each line, stripped, and the operations that bear its number.

    An operation is one byte, its index in ``OPERATIONS``; arguments and inline caches are left out. The code is
    compiled and never run. Errors: SyntaxError or ValueError for what does not compile.
    """
    lines = source.splitlines()
    index = {dis.opmap[name]: number for number, name in enumerate(OPERATIONS)}
    cache_entry = dis.opmap.get("CACHE", 0)
    operations: dict[int, list[int]] = defaultdict(list)
    with catch_warnings():
        simplefilter("ignore")  # what the compiler thinks of the library's own source
        module = compile(source, "<source>", "exec", dont_inherit=True, optimize=0)
    for code in code_objects(module):
        for start, stop, line in code.co_lines():
            if line:
                operations[line] += [index[byte] for byte in code.co_code[start:stop:2] if byte != cache_entry]
    for line, of_line in sorted(operations.items()):
        if line <= len(lines) and of_line:
            yield lines[line - 1].strip(), bytes(of_line)


@cache
def library_pairs() -> tuple[Pair, ...]:
    """The distinct pairs of the standard library's source and its bytecode, sorted."""
    pairs: set[Pair] = set()
    for _, source in standard_library():
        try:
            pairs.update(bytecode_pairs(source))
        except (SyntaxError, ValueError):
            continue  # the library carries files that are wrong on purpose
    return tuple(sorted(pairs))


def parallel_pairs(paths: tuple[str, str]) -> tuple[tuple[Pair, ...], int]:
    """The distinct pairs of two line-aligned files, sorted, and how many lines they have. Of more than ``MAX_PAIRS``
    lines the first are taken. Pairs with an empty side are left out."""
    texts = [read(path, MAX_FILE_BYTES, has_to_end=True).removesuffix(b"\n").split(b"\n") for path in paths]
    first, second = map(len, texts)
    if first != second:
        raise ValueError(f"{paths[0]} has {first} lines and {paths[1]} has {second}: line-aligned files have as many")
    pairs = {(a.strip(), b.strip()) for a, b in zip(texts[0][:MAX_PAIRS], texts[1][:MAX_PAIRS], strict=True)}
    return tuple(sorted(pair for pair in pairs if all(pair))), first


# --- images and frames


def digits() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's digits: images (N, 8, 8) of whole numbers 0 to 16, and which digit each is (N,)."""
    from sklearn.datasets import load_digits

    loaded = load_digits()
    return loaded.images, loaded.target


NUM_PHONES = 16
NUM_BANDS = 16
NUM_SPEAKERS = 200


@cache
def phones() -> np.ndarray:
    """(phone, band): synthesised spectra, each with three peaks as formants are; of mean 0 and variance 1 in a band."""
    rng = np.random.default_rng([NUM_PHONES, NUM_BANDS])
    centres = rng.uniform(0, NUM_BANDS, (NUM_PHONES, 3, 1))
    widths = rng.uniform(0.5, 2, (NUM_PHONES, 3, 1))
    spectra = np.exp(-0.5 * ((np.arange(NUM_BANDS) - centres) / widths) ** 2).sum(1)
    return (spectra - spectra.mean(0)) / spectra.std(0)


def utterance(number: int, num_frames: int) -> tuple[np.ndarray, np.ndarray]:
    """Frames (S, band) and the phone of each (S,), of the ``number``-th synthesised utterance.

    A phone lasts 2 to 8 frames and is not followed by itself. The speaker, ``number`` modulo ``NUM_SPEAKERS``, has a
    gain and a shift of each band; the noise is as loud as the phones.
    """
    speaker = np.random.default_rng([0, number % NUM_SPEAKERS])
    gain, shift = 1 + 0.2 * speaker.standard_normal(), 0.3 * speaker.standard_normal(NUM_BANDS)
    rng = np.random.default_rng([1, number])
    num_segments = num_frames // 2 + 1
    steps = rng.integers(1, NUM_PHONES, num_segments)
    spoken = np.repeat(np.cumsum(steps) % NUM_PHONES, rng.integers(2, 9, num_segments))[:num_frames]
    return gain * phones()[spoken] + shift + rng.standard_normal((num_frames, NUM_BANDS)), spoken

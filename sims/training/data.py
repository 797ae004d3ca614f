"""Batches to train on: of corpora that need no network, and of the user's own files.

A token is a byte, 0 to 255, or one of the special tokens behind the symbols of its side. ``causal``: each byte is asked
for from those before it. ``help``: the same, of another text. ``masked``: as BERT, 15 % of the positions are asked for;
of these 80 % show the mask token 256, 10 % a random byte, 10 % the byte itself. ``translation``: a line of source to
the names of its bytecode's operations, or a line of the user's first file to that of the second. ``digits``: which
digit it is, asked for at a class token in front. ``masked-patches``: as BEiT, the code of each masked patch.
``speech``: the phone of each frame, and it is synthesised.

No model here has a padding mask: in ``translation`` pads stand behind the shorter lines and are attended to as a token
like any other. They are never asked for.

A text's windows may run over the joint of two files or blocks that are not neighbours in the source.

``load`` reads a task once in a process; its ``batch`` is a function of size, seed and step alone. ``guess`` is the
entropy of the labels, in nats.

>>> from depthlaw.sims.training.data import DataConfig, load
>>> data = load(DataConfig(name="digits"))
>>> data.num_positions, data.num_features, data.num_classes, round(data.guess, 2)
(17, 4, 10, 2.28)
>>> batch = data.batch(2, seed=0, step=0)
>>> tuple(batch.inputs.shape), tuple(batch.labels.shape)
((2, 17, 4), (2, 17))
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import median_high

import numpy as np
import torch
from scipy.cluster.vq import kmeans2, vq
from torch import Tensor

from depthlaw.sims.training import corpora
from depthlaw.sims.training.corpora import Pair, digest_of, is_held_out

NAMES = ("causal", "help", "masked", "translation", "digits", "masked-patches", "speech")
IGNORED = -100
"""The label where nothing is asked for: the one that torch's cross-entropy ignores."""
HELD_OUT = 256
MAX_TOKENS = 4096
BYTES = 256
MASK = BYTES
"""The mask token of ``masked``, whose vocabulary is the bytes and it."""
SOURCE_PAD = BYTES
"""The pad of the source side of ``translation``, whose vocabulary is the bytes and it. The target side has n symbols
(bytes or operations), then the end (n), the start (n + 1) and the pad (n + 2). The classes are symbols and end."""
MASKED_BYTES = 0.15
MASKED_PATCHES = 0.4
NUM_CODES = 32
NUM_UTTERANCES = 20_000
PATCH = 2


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What to train on, as plain JSON.

    num_tokens: tokens of a sequence, of either side; the two tasks of digits have as many as there are patches,
    whatever it says. text: the user's own file, plain or .gz, for causal and masked. parallel: two line-aligned files,
    plain or .gz, for translation. Errors: ValueError for anything else.
    """

    name: str = "causal"
    num_tokens: int = 32
    text: str | None = None
    parallel: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise ValueError(f"data is one of {', '.join(NAMES)}, not {self.name!r}")
        if type(self.num_tokens) is not int or not 1 <= self.num_tokens <= MAX_TOKENS:
            raise ValueError(f"num_tokens is a whole number from 1 to {MAX_TOKENS}, not {self.num_tokens!r}")
        if self.text is not None and self.name not in ("causal", "masked"):
            raise ValueError(f"a text of your own is for causal and masked, not for {self.name}")
        if self.parallel is not None:
            if self.name != "translation":
                raise ValueError(f"parallel files of your own are for translation, not for {self.name}")
            if isinstance(self.parallel, str) or [type(path) for path in self.parallel] != [str, str]:
                raise ValueError(f"parallel is two files, source and target, not {self.parallel!r}")
            object.__setattr__(self, "parallel", tuple(self.parallel))  # JSON has lists only


@dataclass(frozen=True)
class Batch:
    """One batch of examples.

    inputs: tokens (B, S) int64, or vectors (B, S, F) float32. decoder_inputs: the tokens (B, T) of a translation: the
    start token, then all labels but the last. labels: (B, S), or (B, T) with a decoder, int64; IGNORED where nothing is
    asked for.
    """

    inputs: Tensor
    decoder_inputs: Tensor | None
    labels: Tensor


@dataclass(frozen=True)
class Examples:
    """The examples on one side of the split. take(indices (B,), rng) makes the batch of those at these indices."""

    num_examples: int
    take: Callable[[np.ndarray, np.random.Generator], Batch]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What of a task decides a network, as plain numbers; a plan on paper needs no more.

    num_positions, num_decoder_positions: S and T; T is 0 without a decoder. vocab_size: 0 for vectors;
    decoder_vocab_size: 0 without a decoder; num_features: F, 0 for tokens. num_classes: a label is below it.
    """

    is_causal: bool = False
    num_positions: int
    num_decoder_positions: int = 0
    vocab_size: int = 0
    decoder_vocab_size: int = 0
    num_features: int = 0
    num_classes: int

    @property
    def has_decoder(self) -> bool:
        return self.num_decoder_positions > 0


@dataclass(frozen=True, kw_only=True)
class Data(Sizes):
    """A task: its examples on both sides of the split, and their sizes. about: one line on what it is. digest: sha256
    of the examples.
    """

    about: str
    digest: str
    training: Examples = field(repr=False)
    held_out_examples: Examples = field(repr=False)

    @property
    def guess(self) -> float:
        """Entropy, in nats, of the labels of ``held_out(HELD_OUT)``: no model whose answer is everywhere the same gets
        below it there. (One that tells positions apart may, where labels depend on them, as in ``translation``.)"""
        return entropy(self.held_out(HELD_OUT).labels)

    def batch(self, size: int, seed: int, step: int) -> Batch:
        """``size`` training examples, drawn with replacement: a function of the arguments alone."""
        rng = np.random.default_rng([seed, step])
        return self.training.take(rng.integers(self.training.num_examples, size=size), rng)

    def held_out(self, size: int) -> Batch:
        """Always the same first ``size`` held-out examples, in a fixed random order; all where there are fewer."""
        order = np.random.default_rng(0).permutation(self.held_out_examples.num_examples)[:size]
        return self.held_out_examples.take(order, np.random.default_rng(1))


def entropy(labels: Tensor) -> float:
    """The entropy, in nats, of the frequencies of the labels that are asked for."""
    counts = torch.bincount(labels[labels != IGNORED]).double()
    return float(torch.special.entr(counts / counts.sum()).sum())


@lru_cache(maxsize=8)
def load(config: DataConfig) -> Data:
    """The task, read once in a process. Errors: ValueError for a file that cannot be read or has too little in it."""
    if config.name == "translation":
        return translation(config)
    if config.name in ("digits", "masked-patches"):
        return patches(config.name)
    return speech(config.num_tokens) if config.name == "speech" else text(config)


# --- text


def windows(text: bytes, stride: int, num_tokens: int, is_masked: bool) -> Examples:
    """Windows of ``num_tokens`` bytes, and the byte behind each, that start ``stride`` bytes apart."""
    stream = np.frombuffer(text, np.uint8)

    def take(indices: np.ndarray, rng: np.random.Generator) -> Batch:
        tokens = stream[stride * indices[:, None] + np.arange(num_tokens + 1)].astype(np.int64)
        if is_masked:
            return mask_bytes(tokens[:, :-1], rng)
        return Batch(torch.from_numpy(tokens[:, :-1]), None, torch.from_numpy(tokens[:, 1:]))

    return Examples((len(text) - num_tokens - 1) // stride + 1, take)


def chosen(length: int, share: float, rng: np.random.Generator) -> np.ndarray:
    """(S,) booleans: at random as near to ``share`` of them as can be, and at least one."""
    return rng.permutation(length) < max(1, round(share * length))


def mask_bytes(tokens: np.ndarray, rng: np.random.Generator) -> Batch:
    """BERT's rule: what is chosen is asked for, and shown as the mask, a random byte or itself, 80:10:10."""
    shown, labels = tokens.copy(), np.full_like(tokens, IGNORED)
    for row, asked, label in zip(shown, tokens, labels, strict=True):  # the first rows do not depend on the others
        is_chosen, fate = chosen(len(row), MASKED_BYTES, rng), rng.random(len(row))
        other = rng.integers(BYTES, size=len(row))
        label[is_chosen] = asked[is_chosen]
        row[:] = np.select([is_chosen & (fate < 0.8), is_chosen & (fate >= 0.9)], [MASK, other], asked)
    return Batch(torch.from_numpy(shown), None, torch.from_numpy(labels))


def text(config: DataConfig) -> Data:
    """The tasks causal, help and masked, on a text."""
    if config.name == "help":
        pieces = corpora.help_pages()
        source = f"bytes of the pages that Python {platform.python_version()}'s help shows, split by paragraph"
    elif config.text is None:
        pieces = corpora.standard_library()
        source = (
            f"bytes of {len(pieces)} modules of Python {platform.python_version()}'s standard library, split by file"
        )
    else:
        pieces = corpora.blocks(corpora.read(config.text, corpora.MAX_TEXT_BYTES))
        source = f"bytes of {config.text}, split by blocks of {corpora.BLOCK}, of the first {corpora.MAX_TEXT_BYTES}"
    training, held_out = corpora.sides(pieces)
    for side, side_text in (("training", training), ("held-out", held_out)):
        if len(side_text) <= config.num_tokens:
            raise ValueError(
                f"{config.text or 'the standard library'} is too short: its {side} part has {len(side_text)} bytes, "
                f"and num_tokens {config.num_tokens} needs {config.num_tokens + 1} or more (of a text, a tenth of its "
                f"blocks of {corpora.BLOCK} bytes is held out, by their hash: {20 * corpora.BLOCK} bytes mostly do)"
            )
    is_masked = config.name == "masked"
    return Data(
        is_causal=not is_masked,
        num_positions=config.num_tokens,
        vocab_size=BYTES + is_masked,
        num_classes=BYTES,
        about=f"{config.name}: {source}: {len(training)} to train on, {len(held_out)} held out",
        digest=digest_of(config.name.encode(), training, held_out),
        training=windows(training, 1, config.num_tokens, is_masked),
        held_out_examples=windows(held_out, config.num_tokens, config.num_tokens, is_masked),
    )


# --- pairs


def padded(rows: Sequence[bytes], width: int, pad: int) -> np.ndarray:
    """(B, width) int64: each row's bytes, then ``pad``."""
    out = np.full((len(rows), width), pad, dtype=np.int64)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = np.frombuffer(row, np.uint8)
    return out


def lines(pairs: Sequence[Pair], num_tokens: int, num_symbols: int) -> Examples:
    """Pairs of lines whose target has ``num_symbols`` symbols; an end is behind each."""
    end, start, pad = range(num_symbols, num_symbols + 3)

    def take(indices: np.ndarray, rng: np.random.Generator) -> Batch:
        sources, targets = zip(*(pairs[index] for index in indices), strict=True)
        labels = padded(targets, num_tokens, IGNORED)
        labels[np.arange(len(labels)), [len(target) for target in targets]] = end
        given = np.insert(np.where(labels == IGNORED, pad, labels)[:, :-1], 0, start, axis=1)
        inputs = padded(sources, num_tokens, SOURCE_PAD)
        return Batch(torch.from_numpy(inputs), torch.from_numpy(given), torch.from_numpy(labels))

    return Examples(len(pairs), take)


def translation(config: DataConfig) -> Data:
    """Pairs that fit, an end behind the target: split by the source line, so that no source is on both sides."""
    num_tokens = config.num_tokens
    if config.parallel is None:
        pairs, num_symbols = corpora.library_pairs(), len(corpora.OPERATIONS)
        python = f"Python {platform.python_version()}"
        source = f"lines of {python}'s standard library to their bytecode's operations, without arguments"
    else:
        pairs, num_lines = corpora.parallel_pairs(config.parallel)
        num_symbols = BYTES
        taken = f"{min(num_lines, corpora.MAX_PAIRS)} of {num_lines} lines"
        source = f"bytes of {config.parallel[0]} to {config.parallel[1]}, {taken}"
    if not pairs:
        raise ValueError(f"{source}: no line has a text on either side")
    fitting = [pair for pair in pairs if len(pair[0]) <= num_tokens and len(pair[1]) < num_tokens]
    training = [pair for pair in fitting if not is_held_out(pair[0])]
    held_out = [pair for pair in fitting if is_held_out(pair[0])]
    for side, pairs_of_side in (("train on", training), ("hold out", held_out)):
        if not pairs_of_side:
            middle = median_high(max(len(source), len(target) + 1) for source, target in pairs)
            raise ValueError(
                f"{source}: no pair to {side}: {len(fitting)} of {len(pairs)} fit into num_tokens {num_tokens} "
                f"with the target's end; {middle} would fit half of them"
            )
    return Data(
        num_positions=num_tokens,
        num_decoder_positions=num_tokens,
        vocab_size=BYTES + 1,
        decoder_vocab_size=num_symbols + 3,
        num_classes=num_symbols + 1,
        about=(
            f"translation: {source}: {len(training)} pairs to train on, {len(held_out)} held out by hash of the source "
            f"line; {len(pairs) - len(fitting)} longer than {num_tokens} tokens on a side left out"
        ),
        digest=digest_of(b"translation", *(line for pair in fitting for line in pair)),
        training=lines(training, num_tokens, num_symbols),
        held_out_examples=lines(held_out, num_tokens, num_symbols),
    )


# --- images and frames


def cut(images: np.ndarray) -> np.ndarray:
    """(N, 8, 8) images to their patches (N, 16, 4), row by row."""
    num, side = len(images), images.shape[1] // PATCH
    return images.reshape(num, side, PATCH, side, PATCH).swapaxes(2, 3).reshape(num, side * side, PATCH * PATCH)


def labelled(vectors: np.ndarray, labels: np.ndarray) -> Examples:
    """Vectors (N, S, F) and their labels (N, S), as they are."""
    features, asked = torch.from_numpy(vectors.astype(np.float32)), torch.from_numpy(labels.astype(np.int64))

    def take(indices: np.ndarray, rng: np.random.Generator) -> Batch:
        return Batch(features[indices], None, asked[indices])

    return Examples(len(vectors), take)


def masked(vectors: np.ndarray, codes: np.ndarray) -> Examples:
    """Patches (N, S, F), of which those that are masked are 0, with a feature more that is 1 there; codes (N, S)."""

    def take(indices: np.ndarray, rng: np.random.Generator) -> Batch:
        is_masked = np.stack([chosen(codes.shape[1], MASKED_PATCHES, rng) for _ in indices])
        shown = np.where(is_masked[..., None], 0, vectors[indices])
        shown = np.concatenate([shown, is_masked[..., None]], axis=-1).astype(np.float32)
        labels = np.where(is_masked, codes[indices], IGNORED)
        return Batch(torch.from_numpy(shown), None, torch.from_numpy(labels))

    return Examples(len(vectors), take)


def patches(name: str) -> Data:
    """digits and masked-patches: patches of 2x2, standardised by the training images' mean and standard deviation.

    The codes are the nearest of ``NUM_CODES`` k-means centres of the training images' patches.
    """
    images, classes = corpora.digits()
    held_out = np.array([is_held_out(image.astype(np.uint8).tobytes()) for image in images])
    values = cut(images)
    vectors = (values - images[~held_out].mean()) / images[~held_out].std()
    num_images, num_patches, num_values = values.shape
    if name == "digits":
        vectors = np.insert(vectors, 0, 0, axis=1)  # the class token, told apart by its position
        labels, num_classes, make = np.full(vectors.shape[:2], IGNORED), int(classes.max()) + 1, labelled
        labels[:, 0] = classes
    else:
        centres, _ = kmeans2(values[~held_out].reshape(-1, num_values), NUM_CODES, minit="++", rng=0)
        codes, _ = vq(values.reshape(-1, num_values), centres)
        labels = codes.reshape(num_images, num_patches).astype(np.int64)
        num_classes, make = NUM_CODES, masked
    return Data(
        num_positions=vectors.shape[1],
        num_features=num_values + (name == "masked-patches"),
        num_classes=num_classes,
        about=(
            f"{name}: scikit-learn's digits, 8x8 in {num_patches} patches: {np.sum(~held_out)} to train on, "
            f"{np.sum(held_out)} held out by hash of the image"
        ),
        digest=digest_of(name.encode(), images.astype(np.uint8).tobytes(), labels.astype("<i8").tobytes()),
        training=make(vectors[~held_out], labels[~held_out]),
        held_out_examples=make(vectors[held_out], labels[held_out]),
    )


def spoken(numbers: Sequence[int], num_tokens: int) -> Examples:
    """The utterances with these numbers, as examples."""

    def take(indices: np.ndarray, rng: np.random.Generator) -> Batch:
        utterances = [corpora.utterance(numbers[index], num_tokens) for index in indices]
        frames, labels = (np.stack(column) for column in zip(*utterances, strict=True))
        return Batch(torch.from_numpy(frames.astype(np.float32)), None, torch.from_numpy(labels.astype(np.int64)))

    return Examples(len(numbers), take)


def speech(num_tokens: int) -> Data:
    """The task speech: synthesised utterances, split by speaker."""
    sides: tuple[list[int], list[int]] = ([], [])
    for number in range(NUM_UTTERANCES):
        sides[is_held_out(b"speaker %d" % (number % corpora.NUM_SPEAKERS))].append(number)
    some = [corpora.utterance(number, num_tokens) for number in range(16)]
    # The last bits of a frame are the machine's own, its sixteenths are not.
    frames, labels = (b"".join(np.round(16 * part[i]).astype("<i8").tobytes() for part in some) for i in (0, 1))
    return Data(
        num_positions=num_tokens,
        num_features=corpora.NUM_BANDS,
        num_classes=corpora.NUM_PHONES,
        about=(
            f"speech: synthesised, no recording: {corpora.NUM_PHONES} phones in frames of {corpora.NUM_BANDS} bands by "
            f"{corpora.NUM_SPEAKERS} speakers; {len(sides[0])} utterances to train on, {len(sides[1])} of other "
            "speakers held out"
        ),
        digest=digest_of(b"speech", frames, labels),
        training=spoken(sides[0], num_tokens),
        held_out_examples=spoken(sides[1], num_tokens),
    )

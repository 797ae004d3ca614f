"""Shapes and labels of every task, a split that never leaks, batches that come again, and what is refused."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from depthlaw.sims.training import corpora, data
from depthlaw.sims.training.data import HELD_OUT, IGNORED, NAMES, Batch, Data, DataConfig, load

SIZE = 64


def task(name: str, num_tokens: int = 32) -> Data:
    return load(DataConfig(name=name, num_tokens=num_tokens))


def everything(examples: data.Examples) -> Batch:
    return examples.take(np.arange(examples.num_examples), np.random.default_rng(0))


def random_text(num_bytes: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).integers(256, size=num_bytes, dtype=np.uint8).tobytes()


def write(path: Path, content: bytes) -> str:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


def own_lines(folder: Path, num_lines: int = 200, prefix: str = "a") -> tuple[str, str]:
    """Two line-aligned files: numbers, and the same numbers backwards."""
    numbers = [b"%d" % (7919 * i + 12345) for i in range(num_lines)]
    first, second = (b"\n".join(side) + b"\n" for side in (numbers, [line[::-1] for line in numbers]))
    return write(folder / f"{prefix}.src", first), write(folder / f"{prefix}.tgt", second)


SHAPES = {
    "causal": (16, 0, 256, 0, 0, 256),
    "help": (16, 0, 256, 0, 0, 256),
    "masked": (16, 0, 257, 0, 0, 256),
    "translation": (16, 16, 257, len(corpora.OPERATIONS) + 3, 0, len(corpora.OPERATIONS) + 1),
    "digits": (17, 0, 0, 0, 4, 10),
    "masked-patches": (16, 0, 0, 0, 5, 32),
    "speech": (16, 0, 0, 0, 16, 16),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.wide] * (name == "translation")) for name in NAMES]
)
def test_batches_have_the_shapes_that_the_task_names(name: str) -> None:
    examples = task(name, 16)
    vocab_sizes = examples.vocab_size, examples.decoder_vocab_size
    positions = examples.num_positions, examples.num_decoder_positions
    assert (*positions, *vocab_sizes, examples.num_features, examples.num_classes) == SHAPES[name]
    assert (examples.is_causal, examples.has_decoder) == (name in ("causal", "help"), name == "translation")
    assert "\n" not in examples.about
    assert ("synthesised" in examples.about) == (name == "speech")
    for batch in (examples.batch(SIZE, 0, 0), examples.held_out(SIZE)):
        if examples.vocab_size:
            assert batch.inputs.shape == (SIZE, positions[0])
            assert batch.inputs.dtype == torch.int64
            assert 0 <= batch.inputs.min() <= batch.inputs.max() < examples.vocab_size
        else:
            assert batch.inputs.shape == (SIZE, positions[0], examples.num_features)
            assert batch.inputs.dtype == torch.float32
            assert batch.inputs.isfinite().all()
        assert batch.labels.shape == (SIZE, positions[1] or positions[0])
        assert batch.labels.dtype == torch.int64
        asked = batch.labels[batch.labels != IGNORED]
        assert 0 <= asked.min() <= asked.max() < examples.num_classes
        assert (batch.labels != IGNORED).any(1).all()  # no example asks for nothing
        assert (batch.decoder_inputs is not None) == examples.has_decoder
        if batch.decoder_inputs is not None:
            assert batch.decoder_inputs.shape == (SIZE, positions[1])
            assert 0 <= batch.decoder_inputs.min() <= batch.decoder_inputs.max() < examples.decoder_vocab_size


def test_causal_labels_are_the_next_bytes(tmp_path: Path) -> None:
    for batch in (task("causal").batch(SIZE, 0, 0), task("causal").held_out(SIZE)):
        assert torch.equal(batch.inputs[:, 1:], batch.labels[:, :-1])
    # The last label is the byte that follows in the text itself.
    counting = bytes(range(256)) * 400
    own = load(DataConfig(text=write(tmp_path / "counting", counting + random_text(50_000)), num_tokens=8))
    window = own.training.take(np.array([0, 5]), np.random.default_rng(0))
    assert window.labels.tolist() == [list(range(1, 9)), list(range(6, 14))]


def test_held_out_windows_ask_for_each_byte_once(tmp_path: Path) -> None:
    text = random_text(60_000)
    own = load(DataConfig(text=write(tmp_path / "text", text), num_tokens=50))
    _, held_out = corpora.sides(corpora.blocks(text))
    asked = everything(own.held_out_examples).labels.flatten().tolist()
    assert bytes(asked) == held_out[1 : len(asked) + 1]
    assert len(held_out) - len(asked) <= 50


def test_masked_shows_the_mask_a_random_byte_or_the_byte_80_10_10() -> None:
    num_asked = 15 * 2000
    batch = task("masked", 100).batch(2000, 0, 0)
    assert set((batch.labels != IGNORED).sum(1).tolist()) == {15}
    for is_shown, p in (  # as the mask, and as they are: a random byte may be the byte itself
        (batch.inputs == data.MASK, 0.8),
        ((batch.inputs == batch.labels), 0.1 * 257 / 256),
    ):
        assert abs(float(is_shown.sum()) / num_asked - p) < 5 * (p * (1 - p) / num_asked) ** 0.5
    # What is not asked for is shown as it is: the same windows, unmasked, are those of causal.
    plain = task("causal", 100).batch(2000, 0, 0).inputs
    not_asked = batch.labels == IGNORED
    assert torch.equal(batch.inputs[not_asked], plain[not_asked])
    assert torch.equal(batch.labels[~not_asked], plain[~not_asked])


def test_translation_ends_its_targets_and_shifts_them() -> None:
    translation = task("translation")
    end, start, pad = range(len(corpora.OPERATIONS), len(corpora.OPERATIONS) + 3)
    pairs = {
        (source, target)
        for source, target in corpora.library_pairs()
        if len(source) <= 32 and len(target) <= 31  # the end takes one
    }
    seen = set()
    for examples in (translation.training, translation.held_out_examples):
        batch = everything(examples)
        assert batch.decoder_inputs is not None
        assert (batch.decoder_inputs[:, 0] == start).all()
        shifted = torch.where(batch.labels == IGNORED, pad, batch.labels)[:, :-1]
        assert torch.equal(batch.decoder_inputs[:, 1:], shifted)
        for source, labels in zip(batch.inputs.tolist(), batch.labels.tolist(), strict=True):
            length = labels.index(end)
            assert all(label == IGNORED for label in labels[length + 1 :])
            text = [token for token in source if token != data.SOURCE_PAD]
            assert source[len(text) :] == [data.SOURCE_PAD] * (32 - len(text))
            seen.add((bytes(text), bytes(labels[:length])))
    assert seen == pairs
    assert translation.training.num_examples + translation.held_out_examples.num_examples == len(pairs)
    assert f"{len(corpora.library_pairs()) - len(pairs)} longer than 32 tokens" in translation.about


def test_digits_ask_at_the_class_token_only() -> None:
    digits = task("digits")
    training = everything(digits.training)
    assert (training.inputs[:, 0] == 0).all()
    assert (training.labels[:, 1:] == IGNORED).all()
    patches = training.inputs[:, 1:].double()
    rounding = torch.finfo(torch.float32).eps
    assert abs(patches.mean()) < rounding
    assert abs(patches.std(unbiased=False) - 1) < rounding
    held_out = everything(digits.held_out_examples).inputs[:, 1:]
    assert abs(held_out.mean()) > rounding  # standardised by the training images, not by its own


def test_masked_patches_hide_what_they_ask_for() -> None:
    batch = task("masked-patches").batch(SIZE, 0, 0)
    is_masked = batch.inputs[..., -1] == 1
    assert torch.equal(is_masked, batch.labels != IGNORED)
    assert set(is_masked.sum(1).tolist()) == {round(0.4 * 16)}
    assert (batch.inputs[is_masked][:, :-1] == 0).all()
    assert (batch.inputs[~is_masked][:, -1] == 0).all()
    # A code is a function of its patch: the same patches, unmasked, are those of the digits.
    patches, labels = (
        everything(task("digits").training).inputs[:, 1:],
        everything(task("masked-patches").training).labels,
    )
    pairs = {
        (patch.numpy().tobytes(), int(label))
        for patch, label in zip(patches[labels != IGNORED], labels[labels != IGNORED], strict=True)
    }
    assert len(pairs) == len({patch for patch, _ in pairs})
    assert {label for _, label in pairs} == set(range(32))


def sides(loaded: Data) -> tuple[data.Examples, data.Examples]:
    return loaded.training, loaded.held_out_examples


def shared(loaded: Data) -> int:
    """How many inputs are on both sides of the split."""
    training, held_out = ({row.numpy().tobytes() for row in everything(side).inputs} for side in sides(loaded))
    return len(training & held_out)


@pytest.mark.parametrize("name", ["translation", "digits"])
def test_no_input_is_on_both_sides(name: str) -> None:
    assert shared(task(name)) == 0


def test_no_text_is_on_both_sides(tmp_path: Path) -> None:
    assert shared(load(DataConfig(text=write(tmp_path / "text", random_text(60_000)), num_tokens=16))) == 0
    training, held_out = corpora.sides(corpora.standard_library())
    assert len(training) + len(held_out) == sum(len(source) for _, source in corpora.standard_library())
    for path, source in corpora.standard_library():
        assert source in (held_out if corpora.is_held_out(path) else training)


def same(a: Batch, b: Batch) -> bool:
    return torch.equal(a.inputs, b.inputs) and torch.equal(a.labels, b.labels)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_a_function_of_its_arguments(name: str) -> None:
    examples = task(name)
    first = examples.batch(8, 3, 5)
    examples.batch(8, 3, 6)
    examples.held_out(8)
    assert same(examples.batch(8, 3, 5), first)
    assert not same(examples.batch(8, 3, 6), first)
    assert not same(examples.batch(8, 4, 5), first)
    assert not same(examples.batch(8, 5, 3), first)


@pytest.mark.parametrize("name", NAMES)
def test_the_guess_is_the_least_loss_of_a_constant_answer(name: str) -> None:
    """The entropy of the frequencies of the labels that are asked for, by Gibbs' inequality."""
    labels = task(name).held_out(HELD_OUT).labels
    shares = torch.bincount(labels[labels != IGNORED]).double()
    assert task(name).guess == pytest.approx(float(torch.distributions.Categorical(shares).entropy()), rel=1e-12)


def test_packed_pairs_are_the_same_pairs(tmp_path: Path) -> None:
    files = own_lines(tmp_path)
    packed = [write(Path(file + ".gz"), Path(file).read_bytes()) for file in files]
    a = load(DataConfig(name="translation", parallel=files))
    b = load(DataConfig(name="translation", parallel=(packed[0], files[1])))
    assert a.digest == b.digest
    batch = a.batch(8, 0, 0)
    assert same(batch, b.batch(8, 0, 0))
    for source, labels in zip(batch.inputs.tolist(), batch.labels.tolist(), strict=True):
        assert [token for token in source if token < 256] == [token for token in labels if 0 <= token < 256][::-1]


REFUSED_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"name": "images"}, "data is one of causal, help, .*, not 'images'"),
    "many": ({"num_tokens": 4097}, "num_tokens is a whole number from 1 to 4096, not 4097"),
    "text-digits": ({"name": "digits", "text": "a"}, "a text of your own is for causal and masked, not for digits"),
    "pairs-causal": ({"parallel": ("a", "b")}, "parallel files of your own are for translation, not for causal"),
    "one": ({"name": "translation", "parallel": ("a",)}, "parallel is two files, source and target, not"),
}


@pytest.mark.parametrize("case", REFUSED_OPTIONS)
def test_options_that_do_not_fit_are_refused(case: str) -> None:
    options, message = REFUSED_OPTIONS[case]
    with pytest.raises(ValueError, match=message) as refusal:
        DataConfig(**options)
    assert "\n" not in str(refusal.value)


REFUSED_FILES: dict[str, tuple[str, bytes | None, str]] = {
    "missing": ("text", None, "text cannot be read: No such file or directory"),
    "empty-gz": ("text.gz", gzip.compress(b""), "text.gz is empty"),
    "cut-gz": ("text.gz", gzip.compress(random_text(60_000))[:-9], "text.gz is not a whole gzip file"),
    "broken-gz": ("text.gz", gzip.compress(b"")[:10] + b"\xff" * 40, "text.gz is not a whole gzip file"),
    "short": ("text", b"short", "text is too short: its .* part has 0|5 bytes, and num_tokens 32 needs 33 or more"),
    "same": ("text", b"a" * 60_000, "text is too short: its held-out part has 0 bytes"),
}


@pytest.mark.parametrize("case", REFUSED_FILES)
def test_files_that_do_not_do_are_refused(tmp_path: Path, case: str) -> None:
    file, content, message = REFUSED_FILES[case]
    if content is not None:
        (tmp_path / file).write_bytes(content)
    own = (str(tmp_path / file), own_lines(tmp_path)[1])
    with pytest.raises(ValueError, match=message) as refusal:
        load(DataConfig(text=own[0]))
    assert "\n" not in str(refusal.value)
    if "too short" not in message:
        with pytest.raises(ValueError, match=message):
            load(DataConfig(name="translation", parallel=own))


def test_files_that_are_not_aligned_are_refused(tmp_path: Path) -> None:
    first, second = own_lines(tmp_path, 200, "a")[0], own_lines(tmp_path, 201, "b")[1]
    with pytest.raises(ValueError, match=r"a\.src has 200 lines and .*b\.tgt has 201: line-aligned files have as many"):
        load(DataConfig(name="translation", parallel=(first, second)))


def test_pairs_of_which_none_fits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no pair to train on: 0 of 200 fit into num_tokens 3 with the target's end"):
        load(DataConfig(name="translation", num_tokens=3, parallel=own_lines(tmp_path)))
    files = own_lines(tmp_path, 1)
    with pytest.raises(ValueError, match=r"no pair to (train on|hold out): 1 of 1 fit"):
        load(DataConfig(name="translation", parallel=files))

"""What the command line refuses: exit 2, one line that says what, where and what is allowed, and nothing is begun."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

import pytest
import torch

from paper_checks.cli.options import BadInputError, count, counts, fraction, gains, power_law, refusing
from paper_checks.system import places
from tests.command import DEPTHLAW, depthlaw, document, refusal

STACK = "--scheme pre-ln --optimizer sgd"
BOTH = f"{STACK} --attention --arch encoder-decoder"
RULE = "rule --norm post --optimizer sgd --arch"
TRAIN = "train --scheme pre-ln --layers 1 --learning-rate 1e-3"
KEPT = "--sublayers 4 --no-keep"
REFUSED = {
    "nonesuch": "No such command 'nonesuch'",
    # names
    "predict --scheme deepnrom --optimizer sgd --layers 2": "did you mean deepnorm",
    "predict --scheme pre-ln --optimizer adm --sublayers 4": "did you mean adam",
    "predict --scheme post-ln,pre-ln --optimizer sgd --sublayers 4": "--scheme takes one name here, and not a list",
    "predict --scheme pre-ln --optimizer sgd,adam --sublayers 4": "--optimizer takes one name here, and not a list",
    f"predict {STACK} --sublayers 4 --activation rleu": "--activation is one of relu, gelu",
    f"predict {STACK} --sublayers 4 --activation swiglu": "swiglu, a gated FFN, needs --attention",
    f"predict {STACK} --sublayers 4 --rotary": "--rotary needs --attention",
    f"predict {STACK} --attention --layers 2 --init-std 0": "--init-std",
    f"predict {STACK} --sublayers 4 --norm-kind batchnorm": "layernorm, rmsnorm",
    "predict --norm pst --optimizer sgd --sublayers 2": "did you mean post",
    f"predict {STACK} --attention --sublayers 4 --readout first": "last, sum",
    f"predict {STACK} --attention --sublayers 4 --loss mse": "logit, ce",
    f"measure {STACK} {KEPT} --activation rleu": "leaky_relu, swiglu, geglu",
    f"measure {STACK} {KEPT} --device tpu": "auto, cpu, cuda",
    f"measure {STACK} {KEPT} --device cuda": "torch sees no GPU here",
    f"measure {STACK} {KEPT} --dtype float16": "float64, float32",
    "rule --norm layer --optimizer sgd --arch encoder --layers 4": "post, pre, sub",
    "rule --norm post-ln --optimizer sgd --arch encoder --layers 4": "did you mean post?",
    "rule --norm peri --optimizer adam --arch encoder --layers 4": "`depthlaw predict --scheme peri-ln --optimizer",
    f"{RULE} encodr --layers 4": "encoder",
    f"{RULE} encoder --layers 4 --select best": "symmetric",
    "rule --norm pre --optimizer sgd --arch encoder --layers 4 --select symmetric": "residual weight 1",
    "schemes deepnrom": "did you mean deepnorm",
    "tables --only nothing": "su-optimizers",
    "tables --only cross --activation swish": "relu, gelu",
    "verify S9-99": "S9-99",
    "verify --source nobody": "nobody",
    "explain S9-99": "S9-99",
    "train --scheme postln --layers 1 --learning-rate 1e-3": "did you mean post-ln",
    "train --scheme post-ln, --layers 1 --learning-rate 1e-3": "--scheme wants names",
    f"{TRAIN} --optimizer adm": "did you mean adam",
    f"{TRAIN} --shape bart": "--shape is one of gpt",
    f"{TRAIN} --schedule step": "--schedule is one of",
    f"{TRAIN} --precision float16": "--precision is one of",
    f"{TRAIN} --device tpu": "--device is one of auto, cpu, cuda, not 'tpu'",
    "experiment nonesuch": "unknown experiment 'nonesuch' (allowed: stable-rates, warmup, thousand-layers, own-row)",
    "experiment own-row --scale huge": "--scale is one of small, large, not 'huge'",
    # numbers
    f"predict {STACK} --sublayers 0": "from 1 to",
    f"predict {STACK} --sublayers 4,x": "not 'x'",
    f"predict {STACK} --sublayers 4,,8": "not ''",
    f"predict {STACK} --sublayers 99999999999999999": "from 1 to",
    f"predict {STACK} --sublayers 4 8 16": "written with commas, such as 4,8,16",
    f"predict {STACK} --sublayers 2 --w 1,0": "sublayer 2 is 0.0",
    f"predict {STACK} --sublayers 2 --v 1,nan": "positive finite",
    f"predict {STACK} --sublayers 2 --v 1,one": "entry 2",
    f"predict {STACK} --sublayers 2 --v @absent": "cannot read",
    "predict --norm pre --gain 0,0 --optimizer sgd --sublayers 2": "positive C",
    "predict --norm pre --gain 1,2,3 --optimizer sgd --sublayers 2": "C,P",
    f"predict {STACK} --attention --sublayers 4 --width 0": "--width must be",
    f"predict {STACK} --attention --sublayers 4 --tokens 0": "--tokens must be",
    f"predict {STACK} --attention --sublayers 4 --correlation 1.5": "--correlation lies between 0 and 1, not at 1.5",
    f"predict {STACK} --attention --sublayers 4 --loss ce --classes 1": "--classes must be a whole number from 2 to",
    f"measure {STACK} {KEPT} --seeds 0": "--seeds must be",
    f"measure {STACK} {KEPT} --seed -1": "--seed must be",
    f"measure {STACK} {KEPT} --learning-rate 1e999": "--learning-rate lies between 1e-09 and 1e+09",
    f"measure {STACK} {KEPT} --learning-rate fast": "not 'fast'",
    f"{RULE} encoder --layers ten": "not 'ten'",
    "train --scheme pre-ln --layers 10001 --learning-rate 1": "--layers must be a whole number from 1 to 10000",
    "train --scheme pre-ln --layers 1 --learning-rate 0": "--learning-rate is a positive number",
    f"{TRAIN} --tokens 4097": "--tokens must be a whole number from 1 to 4096, not 4097",
    f"{TRAIN} --workers 0": "--workers must be a whole number from 1",
    f"{TRAIN} --budget 0": "--budget is a positive number",
    f"{TRAIN} --checkpoint-every 0": "--checkpoint-every must be a whole number from 1",
    "experiment own-row --seeds 1001": "--seeds must be a whole number from 1 to 1000",
    # what does not go together, in the words of the options
    f"predict {STACK} --sublayers 4 --w 1,2": "2 gains for 4 sublayers",
    f"predict {STACK} --sublayers 4,8 --w 1,2": "exactly one",
    "predict --optimizer sgd --sublayers 2": "--scheme NAME and --norm",
    f"predict {STACK} --norm pre --sublayers 2": "give one of",
    f"predict {STACK} --gain 1,0 --sublayers 2": "belongs to --norm",
    f"predict {STACK}": "--sublayers is wanted",
    f"predict {STACK} --attention": "--layers N",
    f"predict {STACK} --attention --sublayers 4 --layers 2": "give one of --sublayers",
    "predict --scheme pre-ln --sublayers 4": "Missing option",
    f"predict {STACK} --sublayers 4 --tokens 4": "--tokens needs --attention",
    f"predict {STACK} --sublayers 4 --correlation 0": "--correlation needs --attention",
    f"predict {STACK} --sublayers 4 --causal": "--causal needs --attention",
    f"predict {STACK} --sublayers 4 --width 64": "--width needs --attention",
    f"predict {STACK} --attention --sublayers 4 --heads 2": "--heads needs --width",
    f"predict {STACK} --attention --sublayers 4 --heads 3 --width 10": "--width 10 is not a multiple of --heads 3",
    f"predict {STACK} --attention --sublayers 4 --tokens 129 --batch 2": "--batch 2 is 258: a prediction takes at most "
    "256",
    f"predict {STACK} --attention --sublayers 4 --classes 3": "--classes belongs to --loss ce",
    f"predict {STACK} --attention --sublayers 10001": "at most 10000 has --attention",
    "predict --scheme pre-ln --optimizer adafactor --sublayers 4 --attention": "no prediction for --optimizer",
    f"predict {STACK} --attention --sublayers 4 --decoder-layers 2": "belongs to --arch encoder-decoder",
    f"predict {BOTH} --sublayers 4": "wants --layers and --decoder-layers",
    f"predict {BOTH} --layers 2,3 --decoder-layers 2": "pair them",
    f"predict {BOTH} --layers 2 --decoder-layers 2 --causal": "the decoder is causal as it is",
    f"predict {BOTH} --layers 2 --decoder-layers 2 --w 1,2": "an encoder-decoder has two",
    f"measure {STACK} --no-keep": "a list such as 4,8,16",
    f"measure {STACK} --no-keep --sublayers 1000000000000": "at most 100000",
    f"{RULE} encoder-decoder --layers 4": "--decoder-layers",
    f"{RULE} encoder --layers 4 --decoder-layers 4": "encoder-decoder",
    "rule --norm post": "for example: depthlaw rule --norm post --optimizer",
    "rule --scheme deepnorm": "--norm post --select deepnet",
    "rule --scheme=su-adam --optimizer adam --arch encoder --layers 4": "`depthlaw predict --scheme NAME`",
    "tables --json --csv": "not several",
    "explain": "CLAIMS.md lists all ids",
    f"{TRAIN} --heads 3": "--width 32 is not a multiple of --heads 3",
    f"{TRAIN} --warmup 201": "--warmup is from 0 to --steps, 200, not 201",
    f"{TRAIN} --warmup-from 0.1": "give --warmup too",
    f"{TRAIN} --measure-at 201": "--measure-at has steps from 0 to --steps, 200, not 201",
    f"{TRAIN} --weight-decay -1": "--weight-decay is at least 0",
    f"{TRAIN} --clip 0": "--clip is positive",
    f"{TRAIN} --shape vit --text a.txt": "text belongs to gpt and bert, not to vit",
    f"{TRAIN} --parallel a b": "parallel belongs to nmt, not to gpt",
    f"{TRAIN} --decoder-layers 1": "--decoder-layers belongs to the shape nmt",
    f"{TRAIN} --shape nmt --decoder-layers 1,2": "--layers has 1 entries and --decoder-layers 2",
    f"{TRAIN} --workers 1 --scheduler tcp://127.0.0.1:1": "one of --workers and",
    f"{TRAIN} --seeds 100001": "the grid has 100001 runs; at most 100000 are allowed",
    "experiment own-row --workers 1 --scheduler tcp://host:1": "give one of --workers and --scheduler",
    "experiment own-row --store a --export ../HERE/a": "is the store",
    # what there is not
    "predict --scheme sub-ln-gamma --optimizer sgd --sublayers 1": "not defined below",
    "predict --norm sub --gain 1,90 --optimizer adam --sublayers 1000": "10^270",
    f"predict {BOTH.replace('pre-ln', 'gpt2')} --layers 2 --decoder-layers 2": "prints no",
    "measure --scheme post-ln --optimizer sgd --sublayers 2 --w 1e200,1e200 --no-keep": "range of floating-point",
    f"measure {STACK} {KEPT} --width 60000": "GiB are free",
    f"measure {STACK} --sublayers 20000 --width 20000 --no-keep": "20000 sublayers, d_model 20000",
    "train --scheme gpt2 --shape nmt --layers 1 --learning-rate 1": "prints no encoder-decoder",
    f"{TRAIN} --width 1000000": "1 layers of width 1000000 with 16 x 32 tokens take 2",
    f"{TRAIN} --shape vit --batch 1000000 --width 100000": "1000000 x 17 tokens take",
    "experiment own-row --scheduler tcp://host:1": "no cluster at tcp://host:1",
    # files
    f"predict {STACK} --sublayers 4 --plot it.gif": ".png, .svg, .pdf",
    f"measure {STACK} {KEPT} --plot FOLDER.png": "is not a file",
    f"measure {STACK} --sublayers 4 --record GARBAGE": "line 1 does not fit",
    f"{TRAIN} --text there/num_steps.txt": "there/num_steps.txt cannot be read",
    f"{TRAIN} --text=": "--text wants the name of a file, not ''",
    f"{TRAIN} --store=": "--store wants the name of a file, not ''",
    f"{TRAIN} --store GARBAGE": "--store: GARBAGE: ",
    f"{TRAIN} --plot DIARY.png": "--plot: DIARY.png is there and no png",
    "experiment own-row --store GARBAGE": "--store: GARBAGE: ",
    "experiment own-row --from-record": "--from-record: the project has no record of own-row",
    "experiment own-row --plan --from-record": "--from-record: the project has no record of own-row",
    "experiment own-row --from-record --scale large": "--from-record: the project has no record of own-row at scale",
}


def never(*_: object, **__: object) -> None:
    raise AssertionError("work was begun")


def no_cluster(address: str) -> Executor:
    raise ValueError(f"no cluster at {address}: nobody answers (allowed: a Dask scheduler's address)")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files that are no figure, no record and no store; no GPU, no cluster and 8 GiB; and no work."""
    folder = tmp_path / "HERE"
    (folder / "FOLDER.png").mkdir(parents=True)
    for name in ("GARBAGE", "DIARY.png"):
        (folder / name).write_text("garbage\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(places, "RECORDS", tmp_path)
    monkeypatch.setattr(places, "TRAINING_RECORDS", tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("sims.ensemble.available_bytes", lambda device: 2**33)
    monkeypatch.setattr("sims.training.sweep.cluster", no_cluster)
    for work in ("sims.measure._measure", "sims.training.sweep.pool", "paper_checks.lowering.trials.execute"):
        monkeypatch.setattr(work, never)
    return folder


@pytest.mark.parametrize("line", REFUSED)
def test_refused_in_one_line(line: str, here: Path) -> None:
    result = depthlaw(*line.split())
    assert (result.returncode, result.stdout) == (2, "")
    *before, said = result.stderr.splitlines()
    assert said.startswith("depthlaw: ") and REFUSED[line] in said
    assert not before or "5 seeds" in before[0], "a plan is said before runs are handed over"
    assert (here / "GARBAGE").read_text(encoding="utf-8") == "garbage\n", "what is no store stays as it is"


LATER = ("did you mean deepnorm", "not defined below", "10^270", "prints no")


def test_refusals_wait_for_no_import() -> None:
    """In a process that has imported nothing else: of those that need not ask theory what there is."""
    lines = [line for line, said in REFUSED.items() if line.startswith("predict") and said not in LATER]
    code = f"""
import sys
from paper_checks.cli.app import main
for line in {lines!r}:
    sys.argv = ["depthlaw", *line.split()]
    try:
        main()
    except SystemExit as done:
        assert done.code == 2, line
    heavy = [name for name in ("sympy", "torch", "numpy", "matplotlib") if name in sys.modules]
    assert not heavy, (line, heavy)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert len(result.stderr.splitlines()) == len(lines) > 40


def test_the_installed_command_answers_and_refuses() -> None:
    """As a process, whose standard output has the document and nothing else."""
    asked, wrong = "tables --only deepnet", f"predict {STACK} --sublayers 0"
    answered, refused = (
        subprocess.run([DEPTHLAW, *one.split(), "--json"], capture_output=True, text=True, check=False, timeout=200)
        for one in (asked, wrong)
    )
    assert (answered.returncode, answered.stderr) == (0, "")
    assert json.loads(answered.stdout) == document(*asked.split())
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == refusal(*wrong.split()) + "\n"


def test_an_answer_that_cannot_be_written_is_one_line() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        asked = [DEPTHLAW, "tables", "--only", "deepnet", "--json"]
        result = subprocess.run(asked, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1


# ---------------------------------------------------------------- while it is measured


@pytest.fixture
def measure_that_fails(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception], str]:
    def ask(error: Exception) -> str:
        def broken(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr("sims.measure._measure", broken)
        return refusal("measure", *STACK.split(), *KEPT.split())

    return ask


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore about it."),
    ],
)
def test_what_memory_has_no_room_for_and_no_other_error(
    error: Exception, measure_that_fails: Callable[[Exception], str]
) -> None:
    line = measure_that_fails(error)
    assert "out of memory at 4 sublayers, d_model 256" in line and "More about it" not in line
    with pytest.raises(RuntimeError, match="a bug"):
        measure_that_fails(RuntimeError("a bug"))


def test_a_record_that_cannot_be_and_one_that_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, asked = (
        tmp_path / "it.jsonl",
        ["measure", *STACK.split(), *["--sublayers", "4", "--width", "4", "--seeds", "1"]],
    )
    path.write_text('{"kind":"measure","config":{"scheme"', encoding="utf-8")
    result = depthlaw(*asked, "--json", "--record", path)
    assert json.loads(result.stdout)["rows"][0]["measured"] > 0
    assert result.stderr == "depthlaw: it.jsonl, line 1 is cut off: its run is left out\n"
    monkeypatch.setattr("paper_checks.lowering.measuring.LOCAL", path / "local.jsonl")
    assert "cannot be written: give --record FILE, or --no-keep" in refusal(*asked)


# ---------------------------------------------------------------- reading what was typed


@pytest.mark.parametrize("text", ["", " ", "1e", "1e-3", "1.5e3", "2.5", "0x10", "1_000", "٣", "--1", "9" * 60])
def test_counts_refuse(text: str) -> None:
    with pytest.raises(BadInputError):
        count(text, "--layers")


@pytest.mark.parametrize("error", [OverflowError("too large"), ZeroDivisionError("by zero"), FloatingPointError()])
def test_what_cannot_be_computed_is_refused(error: ArithmeticError) -> None:
    with pytest.raises(BadInputError, match=r"computed: (too large|by zero|FloatingPointError)$"), refusing():
        raise error


def test_inputs_read_exactly() -> None:
    for text in ("4, 8,16", "4 8 16", " 4,8 16 "):
        assert counts(text, "--sublayers") == [4, 8, 16]
    assert counts("1e3,2E9", "--sublayers") == [1000, 2 * 10**9]
    assert [count(text, "--tokens", 2, 9) for text in ("2", "9")] == [2, 9]
    for text in ("1", "10"):
        with pytest.raises(BadInputError, match="from 2 to 9"):
            count(text, "--tokens", 2, 9)
    assert fraction("0.1", "--gain") * 10 == 1
    assert power_law("0.7,-1/4", "--gain")[1] * 4 == -1
    assert gains("1 2,3", "--w") == (1.0, 2.0, 3.0)
    for bad in ("1/0", "x", "1,5,", "", "1e9999", "inf"):
        with pytest.raises(BadInputError):
            power_law(bad, "--gain")

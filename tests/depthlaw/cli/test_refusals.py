"""What the command line refuses: exit 2, one line that says what, where and what is allowed, and nothing is begun."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from depthlaw.cli.shared.options import BadInputError, count, counts, fraction, gains, power_law, refusing
from depthlaw.system import places
from tests.command import DEPTHLAW, depthlaw, document, refusal

STACK = "--scheme pre-ln --optimizer sgd"
BOTH = f"{STACK} --attention --arch encoder-decoder"
TRAIN = "train --scheme pre-ln --layers 1 --learning-rate 1e-3"
KEPT = "--sublayers 4 --no-keep"
ADVISE = "advise --scheme gpt2 --optimizer adamw --from-layers 2 --width 64"
NOBODY = "tcp://127.0.0.1:1"
NO_FOLDER = "there is no folder a/b (to make it: mkdir -p a/b)"
PLANNED = "experiment thousand-layers --workers"
"""Of which the runs are planned before the line is refused, which takes a second; as of one that stays."""
REFUSED = {
    "nonesuch": "No such command 'nonesuch'",
    # names
    "predict --scheme deepnrom --optimizer sgd --layers 2": "did you mean deepnorm",
    "measure --scheme post-ln,pre-ln --optimizer sgd --sublayers 4": "give one; several side by side are",
    "predict --scheme pre-ln,pre-ln --optimizer sgd --sublayers 4": "a scheme is named twice",
    "predict --scheme pre-ln,llama-2 --optimizer sgd --sublayers 4": "llama-2 is a recipe",
    "predict --scheme pre-ln,gpt2 --optimizer sgd --sublayers 4 --plot a.svg": "--plot draws one scheme",
    "explain zebra": "nothing here speaks of 'zebra'",
    f"measure {STACK} {KEPT} --activation rleu": "does not know 'rleu'; did you mean relu",
    f"measure {STACK} {KEPT} --device cuda": "torch sees no GPU here",
    "rule --norm post-ln --optimizer sgd --arch encoder --layers 4": "did you mean post?",
    "tables --only cross --activation swiglu": "for predict, measure, rule and advise",
    "rule --norm peri --optimizer adam --arch encoder --layers 4": "--norm is one of post, pre, sub, not 'peri'",
    "rule --norm pre --optimizer sgd --arch encoder --layers 4 --from-layers 4": "two depths are compared",
    "rule --norm pre --optimizer sgd --arch encoder --layers 4 --select symmetric": "residual weight 1",
    "explain S9-99": "unknown claim 'S9-99' (CLAIMS.md lists them; allowed: S1-01 to S1-50, S2-01 to S2-24, ",
    "verify DN7": "did you mean DN-07",
    "experiment nonesuch": "thousand-layers, best-rates, after-start, transfer, elsewhere)",
    "predict --scheme pre-ln --optimizer sgd --sublayers 4 --after-steps 3": "--after-steps needs --attention",
    "predict --recipe gpt2 --optimizer adamw --layers 2 --after-steps 3": "--after-steps needs --learning-rate and",
    "predict --recipe gpt2 --optimizer adamw --layers 2 --learning-rate 1": "belong to --after-steps",
    "predict --recipe gpt2 --optimizer lamb --layers 2 --width 64 --after-steps 3 --learning-rate 1": "derived of",
    "predict --scheme llama-2 --optimizer sgd --layers 2": "llama-2 is a recipe, a published model: write --recipe",
    "predict --recipe deepnorm --optimizer sgd --layers 2": "deepnorm is a scheme, no published model: write --scheme",
    "advise --from-layers 2 --layers 4 --width 64": "name a model: your own, --model MODULE:FACTORY or --hf NAME",
    "advise --recipe gpt2 --optimizer adamw --from-layers 2 --layers 4 --width 64 --lr 1": "takes no learning rate",
    "audit --hf meta-llama/Llama-2-7b-hf": "--hf takes a model type, such as llama or gpt2, or the path of",
    "audit absent.py:build": "there is no file absent.py",
    "report --out /proc/site": "--out: the folder /proc cannot be written to",
    f"predict {STACK} --sublayers 4,8 --visits 2,3": "give several numbers of --visits or of --sublayers",
    f"predict {STACK} --attention --layers 2 --visits 40": "counted at each visit, not 40",
    f"predict {STACK} --sublayers 4 --visits 2 --width 8": "--width needs --attention",
    "predict --scheme admin --optimizer sgd --sublayers 2 --visits 2": "visits of a layer share all its numbers",
    f"measure {STACK} {KEPT} --visits 0": "--visits",
    f"{ADVISE} --layers 4 --visits 2,4": "--from-visits R is wanted",
    "advise --hf gpt2 --from-layers 2 --layers 4 --visits 2": "--visits does not go with a model of your own",
    "rule --norm sub --optimizer sgd --arch encoder --layers 4 --visits 2": "such as adam, not sgd",
    "rule --norm sub --optimizer adam --arch encoder-decoder --layers 4 --decoder-layers 4 --visits 2": "for one stack",
    # numbers
    f"predict {STACK} --attention --layers 12-48": "a list is written with commas, such as 12,24,48",
    f"predict {STACK} --sublayers 4,x": "not 'x'",
    f"predict {STACK} --sublayers 99999999999999999": "from 1 to",
    f"predict {STACK} --sublayers 4 8 16": "written with commas, such as 4,8,16",
    f"predict {STACK} --sublayers 2 --v @absent": "cannot read",
    f"predict {STACK} --sublayers 2 --v @/dev/zero": "--v: /dev/zero has more than 2,000,000 bytes",
    "bench --quick --record GARBAGE": "is there and no record of `depthlaw bench` (allowed: one, which",
    "predict --norm pre --gain 0,0 --optimizer sgd --sublayers 2": "positive C",
    f"predict {STACK} --attention --sublayers 4 --correlation 1.5": "--correlation lies between 0 and 1, not at 1.5",
    f"predict {STACK} --attention --sublayers 4 --loss ce --classes 1": "--classes must be a whole number from 2 to",
    f"measure {STACK} {KEPT} --learning-rate 1e999": "--learning-rate lies between 1e-12 and 1e+09",
    f"{TRAIN} --tokens 4097": "--tokens must be a whole number from 1 to 4096, not 4097",
    f"{TRAIN} --budget 0": "--budget lies between 1e-12 and 1e+09, not at 0",
    # what does not go together, in the words of the options
    "predict --recipe gpt2 --optimizer adam --layers 2 --rotary": "--rotary does not go with --recipe",
    f"predict {STACK} --sublayers 4 --w 1,2": "2 gains for 4 sublayers",
    "predict --optimizer sgd --sublayers 2": "--scheme NAME and --norm",
    f"predict {STACK} --gain 1,0 --sublayers 2": "belongs to --norm",
    f"predict {STACK}": "--sublayers is wanted",
    f"predict {STACK} --sublayers 4 --correlation 0": "--correlation needs --attention",
    f"predict {STACK} --sublayers 4 --precise": "--precise needs --attention",
    f"predict {STACK} --attention --sublayers 4 --heads 2": "--heads needs --width",
    f"predict {STACK} --attention --sublayers 4 --heads 3 --width 10": "--width 10 is not a multiple of --heads 3",
    f"predict {STACK} --attention --sublayers 4 --tokens 257 --batch 2": "--batch 2 is 514: a prediction takes at most "
    "512",
    f"predict {STACK} --attention --sublayers 10001": "at most 10000 are computed",
    f"predict {BOTH} --sublayers 4": "wants --layers and --decoder-layers",
    f"predict {BOTH} --layers 2 --decoder-layers 2 --causal": "the decoder is causal as it is",
    f"measure {STACK} --no-keep --sublayers 1000000000000": "at most 100000 are computed",
    "rule --norm post": "for example: depthlaw rule --norm post --optimizer",
    "rule --scheme deepnorm": "--norm post --select deepnet",
    "rule --scheme=su-adam --optimizer adam --arch encoder --layers 4": "`depthlaw predict --scheme NAME`",
    "tables --json --csv": "not several",
    "explain": "CLAIMS.md lists all ids",
    "verify S1-23 --source deepnet": "none of S1-23 is of source 'deepnet'",
    "verify S1-23 --write-claims": "--write-claims needs all claims",
    f"{TRAIN} --heads 3": "--width 32 is not a multiple of --heads 3",
    f"{TRAIN} --warmup-from 0.1": "give --warmup too",
    f"{TRAIN} --shape nmt --decoder-layers 1,2": "--layers has 1 entries and --decoder-layers 2",
    f"{TRAIN} --workers 1 --scheduler tcp://127.0.0.1:1": "one of --workers and",
    f"{TRAIN} --seeds 10001": "the grid has 10001 runs; at most 10000 are allowed (several commands may share",
    "experiment thousand-layers --store a --export ../HERE/a": "is the store",
    # what there is not
    "predict --scheme sub-ln-gamma --optimizer sgd --sublayers 1": "not defined below",
    "predict --norm sub --gain 1,90 --optimizer adam --sublayers 1000": "10^270",
    "measure --scheme post-ln --optimizer sgd --sublayers 2 --w 1e200,1e200 --no-keep": "range of floating-point",
    f"measure {STACK} {KEPT} --width 60000": "GiB are free",
    f"measure {STACK} --sublayers 20000 --width 20000 --no-keep": "20000 sublayers, d_model 20000",
    "train --scheme gpt2 --shape nmt --layers 1 --learning-rate 1": "prints no encoder-decoder",
    f"{TRAIN} --width 1000000": "1 layers of width 1000000 with 16 x 32 tokens take ",
    f"measure {STACK} {KEPT} --scheduler {NOBODY}": f"no cluster at {NOBODY}: ",
    f"experiment thousand-layers --scheduler {NOBODY}": f"no cluster at {NOBODY}: ",
    "experiment thousand-layers --workers 4096": "--workers 4096: the free memory is enough for ",
    "experiment thousand-layers --scale large": "1000 layers of width 512 with 32 x 64 tokens take 1",
    f"predict {STACK} --attention --sublayers 2 --w 1e80,1e80 --v 1e80,1e80": "sublayer 1 of 2 is 0 or beyond floats",
    # of what advise has no answer to
    f"{ADVISE} --layers 2": "equal depths",
    f"{ADVISE}": "--layers N is wanted",
    f"{ADVISE} --layers 4 --heads 7": "--heads 7",
    f"{ADVISE} --layers 4,8 --code best": "--code is of one depth",
    f"{ADVISE} --layers 4 --tokens 4 --code it": "none of the ways that there are",
    f"{ADVISE} --layers 4 --code best --json": "do not go together",
    f"{ADVISE} --layers 4 --scheme rezero": "leaves the branch matrices",
    "advise --recipe t5 --optimizer adamw --from-layers 2 --layers 4 --width 64": "made for adafactor",
    # files
    f"predict {STACK} --sublayers 4 --plot a/b/it.svg": f"--plot: {NO_FOLDER}",
    f"measure {STACK} --sublayers 4 --record a/b/it.jsonl": f"--record: {NO_FOLDER}",
    f"{TRAIN} --store a/b/it.sqlite": f"--store: {NO_FOLDER}",
    "verify S1-23 --out .": "--out: . is not a file",
    f"predict {STACK} --sublayers 4 --plot it.gif": ".png, .svg, .pdf",
    f"measure {STACK} {KEPT} --plot FOLDER.png": "is not a file",
    f"measure {STACK} --sublayers 4 --record GARBAGE": "line 1 does not fit",
    f"{TRAIN} --text there/num_steps.txt": "there/num_steps.txt cannot be read",
    f"{TRAIN} --text=": "--text wants the name of a file, not ''",
    f"{TRAIN} --store GARBAGE": "--store: GARBAGE: ",
    f"{TRAIN} --plot DIARY.png": "--plot: DIARY.png is there and no png",
    "experiment thousand-layers --from-record": "--from-record: the project has no record of thousand-layers",
}


READERS = (
    "depthlaw.advice.rule_roles",
    "depthlaw.paper_checks.pages.measured",
    "depthlaw.paper_checks.pages.transformers",
    "depthlaw.paper_checks.papers.registry",
    "depthlaw.paper_checks.report.figures",
)
"""What takes the folder of records when it is imported: imported first, it has the real one, for later tests too."""


def never(*_: object, **__: object) -> None:
    raise AssertionError("work was begun")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files that are no figure, no record and no store; no GPU, no cluster and 8 GiB; and no work."""
    folder = tmp_path / "HERE"
    (folder / "FOLDER.png").mkdir(parents=True)
    for name in ("GARBAGE", "DIARY.png"):
        (folder / name).write_text("garbage\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    for module in READERS:
        import_module(module)
    monkeypatch.setattr("depthlaw.advice.records.TRAINING_RECORDS", tmp_path)
    monkeypatch.setattr(places, "RECORDS", tmp_path)
    monkeypatch.setattr(places, "TRAINING_RECORDS", tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("depthlaw.sims.ensemble.available_bytes", lambda device: 2**33)
    monkeypatch.setattr("depthlaw.sims.cluster.CONNECT", 0.2)
    for work in (
        "depthlaw.sims.measure._measure",
        "depthlaw.sims.training.sweep.pool",
        "depthlaw.network.trials.execute",
        "depthlaw.paper_checks.verify.document.verify",
    ):
        monkeypatch.setattr(work, never)
    return folder


@pytest.mark.parametrize(
    "line", [pytest.param(line, marks=[pytest.mark.wide] * line.startswith(PLANNED)) for line in REFUSED]
)
def test_refused_in_one_line(line: str, here: Path) -> None:
    result = depthlaw(*line.split())
    assert (result.returncode, result.stdout) == (2, "")
    *before, said = result.stderr.splitlines()
    assert said.startswith("depthlaw: ") and REFUSED[line] in said
    assert not before or "3 seeds" in before[0], "a plan is said before runs are handed over"
    assert (here / "GARBAGE").read_text(encoding="utf-8") == "garbage\n", "what is no store stays as it is"
    assert not (here / "a").exists()


LATER = (
    "--rotary does not go with --recipe",
    "--gain does not go with --recipe",
    "--after-steps needs --learning-rate and",
    "belong to --after-steps",
    "derived of",
    "did you mean deepnorm",
    "llama-2 is a recipe, a published model: write --recipe",
    *("a scheme is named twice", "a recipe is named twice", "llama-2 is a recipe", "--plot draws one scheme"),
    *("counted at each visit, not 40", "visits of a layer share all its numbers"),
    "not defined below",
    "10^270",
    "prints no",
    "sublayer 1 of 2 is 0 or beyond floats",
    "deepnorm is a scheme, no published model: write --scheme",
)


@pytest.mark.wide
def test_refusals_wait_for_no_import() -> None:
    """In a process that has imported nothing else: of those that need not ask theory what there is."""
    lines = [line for line, said in REFUSED.items() if line.startswith("predict") and said not in LATER]
    code = f"""
import sys
from depthlaw.cli.app import main
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
    assert len(result.stderr.splitlines()) == len(lines) > 20


def test_a_builder_that_raises_is_told_with_file_and_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken_builder.py"
    broken.write_text("def build(num_layers):\n    raise TypeError('no')\n", encoding="utf-8")
    asked = ("audit", f"{broken}:build", "--layers", "2,4")
    assert f"TypeError: no ({broken}, line 2); --traceback shows all of it" in refusal(*asked)
    result = depthlaw(*asked, "--traceback")
    assert result.returncode == 2 and "Traceback (most recent call last)" in result.stderr


def test_help_of_a_command() -> None:
    assert depthlaw("help", "schemes").stdout == depthlaw("schemes", "--help").stdout
    assert "help is of one command" in refusal("help", "schemes", "rule")


def test_the_installed_command_answers_as_a_process() -> None:
    asked = "tables --only deepnet"
    answered = subprocess.run([DEPTHLAW, *asked.split(), "--json"], capture_output=True, text=True, check=True)
    assert (json.loads(answered.stdout), answered.stderr) == (document(*asked.split()), "")


def test_an_answer_that_cannot_be_written_is_one_line() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        asked = [DEPTHLAW, "tables", "--only", "deepnet", "--json"]
        result = subprocess.run(asked, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1


# ---------------------------------------------------------------- while it is measured


OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore about it.")


@pytest.mark.parametrize("error", [MemoryError(), OUT_OF_MEMORY, RuntimeError("a bug")], ids=repr)
def test_what_memory_has_no_room_for_and_no_other_error(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("depthlaw.sims.measure._measure", broken)
    asked = ("measure", *STACK.split(), *KEPT.split())
    if str(error) == "a bug":
        with pytest.raises(RuntimeError, match="a bug"):
            depthlaw(*asked)
    else:
        line = refusal(*asked)
        assert "out of memory at 4 sublayers, d_model 256" in line and "More about it" not in line


def test_a_record_that_cannot_be_and_one_that_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, asked = tmp_path / "it.jsonl", f"measure {STACK} --sublayers 4 --width 4 --seeds 1".split()
    path.write_text('{"kind":"measure","config":{"scheme"', encoding="utf-8")
    result = depthlaw(*asked, "--json", "--record", path)
    assert json.loads(result.stdout)["rows"][0]["measured"] > 0
    assert result.stderr == "depthlaw: it.jsonl, line 1 is cut off: its run is left out\n"
    monkeypatch.setattr("depthlaw.network.measuring.LOCAL", path / "local.jsonl")
    assert "cannot be written: give --record FILE, or --no-keep" in refusal(*asked)


# ---------------------------------------------------------------- reading what was typed


@pytest.mark.parametrize("error", [OverflowError("too large"), ZeroDivisionError("by zero"), FloatingPointError()])
def test_what_cannot_be_computed_is_refused(error: ArithmeticError) -> None:
    with pytest.raises(BadInputError, match=r"computed: (too large|by zero|FloatingPointError)$"), refusing():
        raise error


def test_inputs_read_exactly() -> None:
    for text in ("4, 8,16", "4 8 16", " 4,8 16 "):
        assert counts(text, "--sublayers") == [4, 8, 16]
    assert counts("1e3,2E9", "--sublayers") == [1000, 2 * 10**9]
    assert [count(text, "--tokens", 2, 9) for text in ("2", "9")] == [2, 9]
    for text in ("1", "10", "", "1e", "1e-3", "2.5", "0x10", "1_000", "٣", "--1", "9" * 60):
        with pytest.raises(BadInputError, match="from 2 to 9"):
            count(text, "--tokens", 2, 9)
    assert fraction("0.1", "--gain") * 10 == 1
    assert power_law("0.7,-1/4", "--gain")[1] * 4 == -1
    assert gains("1 2,3", "--w") == (1.0, 2.0, 3.0)
    for bad in ("1/0", "x", "1,5,", "", "1e9999", "inf"):
        with pytest.raises(BadInputError):
            power_law(bad, "--gain")

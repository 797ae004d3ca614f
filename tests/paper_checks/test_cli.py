"""The command line as other programs meet it: JSON shapes, exit codes, one-line refusals, and nothing but JSON."""

import csv
import io
import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sympy as sp
import torch

from paper_checks.cli import choices
from paper_checks.cli import rule as rule_command
from paper_checks.cli.inputs import BadInputError, count, counts, fraction, gains, power_law, refusing
from paper_checks.cli.tables import SHOWN_OPTIMIZERS
from paper_checks.system.files import as_text, write_atomically
from tests import command
from tests.command import DEPTHLAW, depthlaw, options, refusal, told
from theory.optimizers import OPTIMIZERS
from theory.rules.selection import SELECTIONS
from theory.schemes import SCHEMES
from theory.stack import ARCHITECTURES, PLACEMENTS
from theory.symbols import L, l

LETTERS = {"N": sp.Symbol("N"), "M": sp.Symbol("M")}
document = cache(command.document)
pytestmark = pytest.mark.usefixtures("quickly")


# --- refusals: exit 2, one line that says what, where and what is allowed


REFUSED = {
    "nonesuch": "No such command 'nonesuch'",
    "predict --scheme deepnrom --optimizer sgd --sublayers 4": "did you mean deepnorm",
    "predict --scheme pre-ln --optimizer adm --sublayers 4": "adam",
    "predict --scheme pre-ln --optimizer sgd --sublayers 0": "from 1 to",
    "predict --scheme pre-ln --optimizer sgd --sublayers -3": "from 1 to",
    "predict --scheme pre-ln --optimizer sgd --sublayers 4,x": "not 'x'",
    "predict --scheme pre-ln --optimizer sgd --sublayers 4,,8": "not ''",
    "predict --scheme pre-ln --optimizer sgd --sublayers 2.5": "not '2.5'",
    "predict --scheme pre-ln --optimizer sgd --sublayers 99999999999999999": "from 1 to",
    "predict --scheme sub-ln-gamma --optimizer sgd --sublayers 1": "not defined below",
    "predict --scheme pre-ln --optimizer sgd --sublayers 4 --activation rleu": "relu",
    "predict --scheme pre-ln --optimizer sgd --sublayers 4 --norm-kind batchnorm": "layernorm, rmsnorm",
    "predict --scheme pre-ln --optimizer sgd --sublayers 4 --w 1,2": "2 gains for 4 sublayers",
    "predict --scheme pre-ln --optimizer sgd --sublayers 4,8 --w 1,2": "exactly one",
    "predict --scheme pre-ln --optimizer sgd --sublayers 2 --w 1,0": "sublayer 2 is 0.0",
    "predict --scheme pre-ln --optimizer sgd --sublayers 2 --v 1,nan": "positive finite",
    "predict --scheme pre-ln --optimizer sgd --sublayers 2 --v inf,1": "positive finite",
    "predict --scheme pre-ln --optimizer sgd --sublayers 2 --v 1,one": "entry 2",
    "predict --scheme pre-ln --optimizer sgd --sublayers 2 --v @absent": "cannot read",
    "predict --optimizer sgd --sublayers 2": "--scheme NAME and --norm",
    "predict --scheme pre-ln --norm pre --optimizer sgd --sublayers 2": "give one of",
    "predict --scheme pre-ln --gain 1,0 --optimizer sgd --sublayers 2": "belongs to --norm",
    "predict --norm pre --gain 0,0 --optimizer sgd --sublayers 2": "positive C",
    "predict --norm pre --gain 1,2,3 --optimizer sgd --sublayers 2": "C,P",
    "predict --norm pst --optimizer sgd --sublayers 2": "post",
    "predict --norm sub --gain 1,90 --optimizer adam --sublayers 1000": "10^270",
    "predict --scheme pre-ln --optimizer sgd": "--sublayers is wanted",
    "predict --scheme pre-ln --sublayers 4": "Missing option",
    "rule --norm post --optimizer sgd --arch encoder --layers 0": "from 1 to",
    "rule --norm post --optimizer sgd --arch encoder --layers ten": "not 'ten'",
    "rule --norm layer --optimizer sgd --arch encoder --layers 4": "post, pre, sub",
    "rule --norm peri --optimizer adam --arch encoder --layers 4": "`depthlaw predict --scheme peri-ln --optimizer",
    "rule --norm post --optimizer sgd --arch encodr --layers 4": "encoder",
    "rule --norm post --optimizer sgdd --arch encoder --layers 4": "sgd",
    "rule --norm post --optimizer sgd --arch encoder-decoder --layers 4": "--decoder-layers",
    "rule --norm post --optimizer sgd --arch encoder --layers 4 --decoder-layers 4": "encoder-decoder",
    "rule --norm post --optimizer sgd --arch encoder --layers 4 --select best": "symmetric",
    "rule --norm pre --optimizer sgd --arch encoder --layers 4 --select symmetric": "residual weight 1",
    "schemes deepnrom": "did you mean deepnorm",
    "tables --only nothing": "su-optimizers",
    "tables --json --csv": "not several",
    "verify S9-99": "S9-99",
    "verify --source nobody": "nobody",
    "explain S9-99": "S9-99",
    "explain": "CLAIMS.md lists all ids",
    "rule --scheme deepnorm": "--norm post --select deepnet",
    "rule --scheme=su-adam --optimizer adam --arch encoder --layers 4": "`depthlaw predict --scheme NAME`",
    "rule --norm post": "for example: depthlaw rule --norm post --optimizer",
    "predict --scheme pre-ln --optimizer sgd --sublayers 4 8 16": "written with commas, such as 4,8,16",
    "measure --scheme pre-ln --optimizer sgd": "a list such as 4,8,16",
    "predict --scheme pre-ln --optimizer sgd --attention": "--layers N",
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_refused_in_one_line(arguments: str) -> None:
    assert REFUSED[arguments] in refusal(*arguments.split())


def test_the_installed_command_answers_and_refuses() -> None:
    """As a process, whose standard output has the document and nothing else."""
    asked, wrong = "tables --only deepnet", "predict --scheme pre-ln --optimizer sgd --sublayers 0"
    answered, refused = (
        subprocess.run([DEPTHLAW, *one.split(), "--json"], capture_output=True, text=True, check=False, timeout=200)
        for one in (asked, wrong)
    )
    assert (answered.returncode, answered.stderr) == (0, "")
    assert json.loads(answered.stdout) == document(*asked.split())
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == refusal(*wrong.split()) + "\n"


MEASURE = "--scheme pre-ln --optimizer sgd --sublayers 4"
MEASURE_REFUSED = {
    f"{MEASURE} --width 0": "from 1 to",
    f"{MEASURE} --width 1.5e3": "not '1.5e3'",
    f"{MEASURE} --seeds 0": "--seeds must be",
    f"{MEASURE} --seed -1": "--seed must be",
    f"{MEASURE} --device tpu": "auto, cpu, cuda",
    f"{MEASURE} --device cuda": "torch sees no GPU here",
    f"{MEASURE} --dtype float16": "float64, float32",
    f"{MEASURE} --activation rleu": "--activation is one of relu, gelu",
    f"{MEASURE} --norm sandwich": "--norm is one of post, pre, sub, peri, not 'sandwich'",
    f"{MEASURE} --v 0,1,1,1": "--v of sublayer 1 is 0.0; gains are positive finite numbers",
    f"{MEASURE} --norm-kind batchnorm": "layernorm",
    f"{MEASURE} --learning-rate 0": "--learning-rate lies between 1e-09 and 1e+09",
    f"{MEASURE} --learning-rate 1e999": "--learning-rate lies between",
    f"{MEASURE} --learning-rate fast": "not 'fast'",
    f"{MEASURE} --plot it.gif": ".png, .svg, .pdf",
    f"{MEASURE} --plot absent/it.png": "no folder absent",
    f"{MEASURE} --plot FOLDER.png": "is not a file",
    f"{MEASURE} --record absent/it.jsonl": "no folder absent",
    f"{MEASURE} --record /dev/null": "is not a file",
    f"{MEASURE} --record GARBAGE": "line 1 does not fit",
    f"{MEASURE} --tokens 4": "--tokens needs --attention",
    f"{MEASURE} --causal": "--causal needs --attention",
    f"{MEASURE} --layers 2": "--layers needs --attention",
    f"{MEASURE} --attention --layers 2": "give one of --sublayers",
    f"{MEASURE} --attention --width 10 --heads 3": "--width 10 is not a multiple of --heads 3",
    f"{MEASURE} --attention --tokens 0": "--tokens must be",
    f"{MEASURE} --attention --correlation 1.5": "between 0 and 1",
    f"{MEASURE} --attention --readout first": "last, sum",
    f"{MEASURE} --attention --loss mse": "logit, ce",
    f"{MEASURE} --attention --loss ce --classes 1": "--classes must be a whole number from 2 to",
    f"{MEASURE} --attention --arch encodr": "encoder, decoder, encoder-decoder",
    f"{MEASURE} --attention --decoder-layers 2": "belongs to --arch encoder-decoder",
    f"{MEASURE} --attention --arch encoder-decoder": "wants --layers and --decoder-layers",
    f"{MEASURE} --attention --arch encoder-decoder --layers 2 --decoder-layers 2 --causal": "no --sublayers",
    "--scheme pre-ln --optimizer sgd --attention --arch encoder-decoder --layers 2 --decoder-layers 2 "
    "--causal": "the decoder is causal as it is",
    f"{MEASURE} --width 60000": "needs",
    f"{MEASURE} --width 60000 --seeds 1000000": "GiB are free",
    "--scheme pre-ln --optimizer sgd --sublayers 20000 --width 20000": "20000 sublayers, d_model 20000",
    "--scheme pre-ln --optimizer sgd --sublayers 1000000000000": "at most 100000",
    "--scheme pre-ln --optimizer sgd --sublayers 0": "from 1 to",
    "--scheme pre-ln --optimizer sgd": "--sublayers",
    "--scheme pre-ln --optimizer adm --sublayers 4": "adam",
    "--scheme deepnrom --optimizer sgd --sublayers 4": "did you mean deepnorm",
    "--scheme sub-ln-gamma --optimizer sgd --sublayers 1": "not defined below",
    "--scheme pre-ln --optimizer sgd --sublayers 2,4 --w 1,2": "exactly one",
    "--scheme pre-ln --optimizer sgd --sublayers 2 --w 1,nan": "positive finite",
    "--scheme post-ln --optimizer sgd --sublayers 2 --w 1e200,1e200": "range of floating-point",
    "--norm pre --gain 0 --optimizer sgd --sublayers 2": "positive C",
    "--scheme pre-ln --gain 1 --optimizer sgd --sublayers 2": "belongs to --norm",
    "--scheme pre-ln --optimizer sgd --attention --layers 0": "from 1 to",
    "--scheme gpt2 --optimizer sgd --attention --arch encoder-decoder --layers 2 --decoder-layers 2": "prints no",
    "--scheme pre-ln --optimizer sgd --attention --arch encoder-decoder --layers 2,3 --decoder-layers 2": "pair them",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a folder and a file have names that a figure and a record would have."""
    (tmp_path / "FOLDER.png").mkdir()
    (tmp_path / "GARBAGE").write_text("garbage\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


PREDICT = "--scheme pre-ln --optimizer sgd --sublayers 4"
PREDICT_REFUSED = {
    f"{PREDICT} --tokens 4": "--tokens needs --attention",
    f"{PREDICT} --causal": "--causal needs --attention",
    f"{PREDICT} --width 64": "--width needs --attention",
    f"{PREDICT} --heads 2 --width 64": "--heads needs --attention",
    "--scheme pre-ln --optimizer sgd --layers 2": "--layers needs --attention",
    "--scheme deepnrom --optimizer sgd --layers 2": "did you mean deepnorm",
    "--scheme post-ln,pre-ln --optimizer sgd --sublayers 4": "--scheme takes one name here, and not a list",
    "--scheme pre-ln --optimizer sgd,adam --sublayers 4": "--optimizer takes one name here, and not a list",
    f"{PREDICT} --plot it.gif": ".png, .svg, .pdf",
    f"{PREDICT} --attention --plot absent/it.svg": "no folder absent",
    f"{PREDICT} --attention --heads 2": "--heads needs --width",
    f"{PREDICT} --attention --heads 3 --width 10": "--width 10 is not a multiple of --heads 3",
    f"{PREDICT} --attention --width 0": "--width must be",
    f"{PREDICT} --attention --layers 2": "give one of --sublayers",
    f"{PREDICT} --attention --tokens 0": "--tokens must be",
    f"{PREDICT} --attention --tokens 129 --batch 2": "--batch 2 is 258: a prediction takes at most 256",
    f"{PREDICT} --attention --correlation 1.5": "between 0 and 1",
    f"{PREDICT} --attention --activation swiglu": "swiglu has two",
    f"{PREDICT} --attention --activation rleu": "relu, gelu",
    f"{PREDICT} --attention --norm-kind batchnorm": "layernorm",
    f"{PREDICT} --attention --w 1,2": "2 gains for 4 sublayers",
    "--scheme pre-ln --optimizer sgd --sublayers 10001 --attention": "at most 10000 has --attention",
    "--scheme pre-ln --optimizer adafactor --sublayers 4 --attention": "no prediction for --optimizer adafactor",
    "--scheme pre-ln --optimizer adm --sublayers 4 --attention": "adam",
    "--scheme pre-ln --optimizer sgd --attention": "give one of --sublayers",
    "--scheme gpt2 --optimizer sgd --attention --arch encoder-decoder --layers 2 --decoder-layers 2": "prints no",
}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("options", PREDICT_REFUSED)
def test_predict_refuses(options: str) -> None:
    assert PREDICT_REFUSED[options] in refusal("predict", *options.split())


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("options", MEASURE_REFUSED)
def test_measure_refuses_before_it_measures(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("measured")

    monkeypatch.setattr("sims.measure._measure", never)
    if "--device cuda" in options:
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("sims.ensemble.available_bytes", lambda device: 2**33)
    keeps = [] if "--record" in options else ["--no-keep"]
    assert MEASURE_REFUSED[options] in refusal("measure", *options.split(), *keeps)


def ask_measure_that_fails(error: Exception, monkeypatch: pytest.MonkeyPatch) -> str:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("sims.measure._measure", broken)
    return refusal("measure", *MEASURE.split(), "--no-keep")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore about it."),
    ],
)
def test_measure_refuses_what_memory_has_no_room_for(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    line = ask_measure_that_fails(error, monkeypatch)
    assert "out of memory at 4 sublayers, d_model 256" in line
    assert "More about it" not in line


def test_measure_hides_no_other_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        ask_measure_that_fails(RuntimeError("a bug"), monkeypatch)


def test_measure_where_its_own_record_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "records").write_text("a file where the folder would be", encoding="utf-8")
    monkeypatch.setattr("paper_checks.lowering.measuring.LOCAL", tmp_path / "records" / "local.jsonl")
    assert "cannot be written: give --record FILE, or --no-keep" in refusal("measure", *MEASURE.split())


def test_measure_tells_of_a_record_that_was_cut_off_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "it.jsonl"
    path.write_text('{"kind":"measure","config":{"scheme"', encoding="utf-8")
    result = depthlaw("measure", *MEASURE.split(), *["--width", "4", "--seeds", "1", "--json", "--record"], path)
    assert result.returncode == 0
    assert json.loads(result.stdout)["rows"][0]["measured"] > 0
    assert result.stderr == "depthlaw: it.jsonl, line 1 is cut off: its run is left out\n"


# --- rule


@cache
def rule(norm: str, optimizer: str, arch: str, layers: int, *more: str) -> dict[str, Any]:
    return command.document("rule", *options(norm=norm, optimizer=optimizer, arch=arch, layers=layers), *more)


@pytest.mark.parametrize(("norm", "arch"), [("post", "encoder"), ("pre", "decoder"), ("sub", "encoder")])
def test_rule_document(norm: str, arch: str) -> None:
    """Of few layers, which cost little and are as telling."""
    found = rule(norm, "adam", arch, 4)
    wanted = "residual_weight branch_weight init_gain lr_multiplier formula update_order relative_update_order"
    assert {*wanted.split(), "alternatives", "why"} <= set(found)
    assert set(found["init_gain"]) == set(found["lr_multiplier"]) == {"q", "k", "v", "out", "fc1", "fc2"}
    assert found["init_gain"]["q"] == found["init_gain"]["k"] == 1
    letter = "N" if arch == "encoder" else "M"
    formula = sp.sympify(found["formula"]["residual_weight"], locals=LETTERS)
    assert found["residual_weight"] == pytest.approx(float(formula.subs(LETTERS[letter], 4)))
    assert all(line["is_flat"] is not None for line in found["mean_field"])


def test_rule_by_side() -> None:
    found = rule("Post", "SGD", "Encoder-Decoder", 18, "--decoder-layers", "6", "--select", "DeepNet")
    assert found["decoder"]["residual_weight"] == pytest.approx(18**0.25)
    assert found["decoder"]["init_gain"]["cross_v"] == pytest.approx(72**-0.25)
    assert found["encoder"]["residual_weight"] == pytest.approx((18**4 * 6 / 27) ** (1 / 16))


def test_rule_without_any_gain() -> None:
    found = rule("sub", "lamb", "encoder", 4)
    assert found["init_gain"] is None
    assert any("invariant" in line for line in found["why"])


def test_rule_says_where_the_argument_fails() -> None:
    found = rule("sub", "sgd", "encoder", 4)
    relu = found["mean_field"][0]
    assert relu["is_flat"] is False
    assert sp.sympify(relu["order"]["power"]) == 1 / (sp.pi - 1)
    assert sp.simplify(sp.sympify(relu["flat_gain"], locals=LETTERS) - (2 * LETTERS["N"]) ** (1 / (2 * sp.pi - 2))) == 0


def test_rule_warns_where_its_own_assumption_fails() -> None:
    found = rule("post", "adam", "encoder-decoder", 6, "--decoder-layers", "6")
    assert any("squared branches sum to" in line for line in found["encoder"]["warnings"])
    assert not found["decoder"]["warnings"]
    assert any(line.startswith("WARNING, encoder") for line in found["why"])
    single = rule("post", "adam", "encoder", 4)
    assert not any("squared branches" in line for line in [*single["warnings"], *single["why"]])


# --- schemes


def wrong_schemes(found: dict[str, Any]) -> list[str]:
    """The schemes of which the document says otherwise than ``theory.schemes``."""
    wrong = [name for name in SCHEMES if name not in [one["name"] for one in found["schemes"]]]
    for one in found["schemes"]:
        scheme = SCHEMES[one["name"]]
        stack, laws = scheme.stack, {name: one[name] for name in ("branch_weight", "input_scale")}
        laws |= {"gain_in": one["gains"]["fc1"], "gain_out": one["gains"]["out"]}
        if stack.residual_weight is not None:
            laws["residual_weight"] = one["residual_weight"]
        letters = {"L": L, "l": l}
        differs = [name for name, text in laws.items() if sp.sympify(text, letters) - getattr(stack, name) != 0]
        norms = {name for name in ("pre", "inner", "branch", "post", "final") if getattr(stack.placement, name)}
        if differs or norms != set(one["norms"]) or one["source"] != scheme.source:
            wrong.append(one["name"])
    return wrong


def test_schemes_are_those_of_theory() -> None:
    found = document("schemes")
    assert wrong_schemes(found) == []
    mutant = json.loads(json.dumps(found).replace("(4*L)**(-1/4)", "(8*L)**(-1/4)"))
    assert wrong_schemes(mutant) == ["deepnorm"]
    assert document("schemes", "DeepNorm")["schemes"] == [one for one in found["schemes"] if one["name"] == "deepnorm"]
    assert {one["name"]: one["form"] for one in found["schemes"]}["ln-scaling"] == "x_l = x + W2 phi(W1 c norm(x))"


def test_schemes_for_people_fit_a_terminal() -> None:
    for name in ("", *SCHEMES):
        shown = told("schemes", *name.split(), COLUMNS="80")
        assert max(map(len, shown.splitlines())) <= 80, name
        assert all(f" {one} " in shown for one in SCHEMES) if not name else SCHEMES[name].source in shown
    assert "in an attention behind the branch" in told("schemes", "normformer")


# --- predict


def test_predict_document() -> None:
    found = document(*["predict", "--scheme", "pre-ln", "--optimizer", "sgd", "--sublayers", "4,8"])
    assert [row["num_sublayers"] for row in found["rows"]] == [4, 8]
    for row in found["rows"]:
        assert row["update"] == pytest.approx(sum(1 / (1 + k / 2) for k in range(1, row["num_sublayers"] + 1)))
        assert row["roles"]["fc1"] + row["roles"]["fc2"] == pytest.approx(row["update"])
    order = found["leading_order"]
    assert {"coefficient", "power", "log_power", "loglog_power", "shown_by"} <= set(order)
    assert (order["coefficient"], order["power"], order["log_power"]) == ("2", "0", "1")


def test_predict_overflow_is_null_beside_its_logarithm() -> None:
    found = document(
        *["predict", "--scheme", "post-ln", "--optimizer", "sgd", "--activation", "gelu", "--sublayers", "1000000000"]
    )
    assert found["rows"][0]["update"] is None
    assert found["rows"][0]["log10_update"] > 1e6
    assert found["leading_order"]["power"] == "oo"


def test_predict_vanishing() -> None:
    found = document(*["predict", "--scheme", "rezero", "--optimizer", "adam", "--sublayers", "12"])
    assert found["rows"][0]["update"] == 0
    assert found["rows"][0]["roles"]["branch_weight"] > 0
    assert (found["leading_order"]["coefficient"], found["leading_order"]["power"]) == ("0", None)


def test_predict_reads_gains_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "gains.txt"
    file.write_text("1 1\n1, 1\n", encoding="utf-8")
    arguments = ["predict", "--scheme", "pre-ln", "--optimizer", "sgd", "--sublayers", "4"]
    listed = document(*arguments, "--w", f"@{file}")
    assert listed["rows"][0]["update"] == pytest.approx(document(*arguments)["rows"][0]["update"])
    assert listed["leading_order"] is None


def test_predict_scheme_of_ones_own_is_the_named_one() -> None:
    mine = "predict --norm post --residual-weight 1,1/4 --gain 0.7071067811865476,-0.25 --optimizer sgd --sublayers 24"
    named = "predict --scheme deepnorm --optimizer sgd --sublayers 24"
    assert document(*mine.split())["rows"][0]["update"] == pytest.approx(document(*named.split())["rows"][0]["update"])


# --- tables


def test_tables_document() -> None:
    tables = {table["id"]: table["rows"] for table in document("tables")["tables"]}
    keys = {
        "su-optimizers": "optimizer update loss_change alpha lambda",
        "su-prenorm": "optimizer alpha lambda",
        "deepnet": "architecture side alpha beta",
        "magneto-gamma": "architecture side gamma",
        "bounds": "scheme bound order",
        "cross": "scheme optimizer activation norm_kind rung coefficient power log_power loglog_power",
    }
    assert set(keys) <= set(tables)
    for name, columns in keys.items():
        assert tables[name]
        assert all(set(columns.split()) <= set(row) for row in tables[name])
    columns = ("coefficient", "power", "log_power", "loglog_power")
    for cell in {row[column] for row in tables["cross"] for column in columns} - {None}:
        assert sp.sympify(cell, locals=LETTERS).is_number


@pytest.mark.parametrize("only", ["su-optimizers", "su-prenorm", "deepnet", "magneto-gamma", "cross"])
def test_tables_as_csv_say_what_the_document_says(only: str) -> None:
    rows = list(csv.DictReader(io.StringIO(told("tables", "--csv", "--only", only))))
    (table,) = document("tables", "--only", only)["tables"]
    assert rows == [{name: cell or "" for name, cell in row.items()} for row in table["rows"]]


def test_tables_as_markdown_and_latex() -> None:
    lines = told("tables", "--markdown", "--only", "deepnet").splitlines()
    assert sum(line.startswith("|") for line in lines) == 6
    typeset = told("tables", "--latex", "--only", "deepnet")
    assert typeset.count(r"\begin{tabular}") == typeset.count(r"\end{tabular}") == 1
    assert typeset.count(r"\\") == 5


@pytest.mark.parametrize("width", ["80", "120"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_cross_table_breaks_no_name_and_no_power(width: str, activation: str) -> None:
    """At 80 columns as at 120; a cell breaks between its factors alone."""
    shown = told("tables", "--only", "cross", "--activation", activation, COLUMNS=width)
    assert max(map(len, shown.splitlines())) <= int(width)
    first = [line.split()[0] for line in shown.splitlines() if re.match(r" [a-z]", line)]
    assert first == ["scheme", *SCHEMES]
    (head,) = [line.split() for line in shown.splitlines() if line.startswith(" scheme ")]
    assert head == ["scheme", *SHOWN_OPTIMIZERS]
    (table,) = document("tables", "--only", "cross")["tables"]
    rows = [row for row in table["rows"] if row["activation"] == activation and row["norm_kind"] == "layernorm"]
    cells = [row["approximate"] or "" for row in rows if row["optimizer"] in SHOWN_OPTIMIZERS]
    for power in {part for cell in cells for part in re.findall(r"N\^\S+|\(log N\)\^\S+", cell)}:
        assert power in shown


def test_tables_for_people_choose_the_activation() -> None:
    assert told("tables", "--only", "cross", "--activation", "tanh") != told("tables", "--only", "cross")
    assert "relu, gelu" in refusal("tables", "--only", "cross", "--activation", "swish")


def test_an_answer_that_cannot_be_written_is_one_line() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        asked = [DEPTHLAW, "tables", "--only", "deepnet", "--json"]
        result = subprocess.run(asked, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1


# --- the pieces


def test_help_names_what_theory_knows() -> None:
    for name in (*PLACEMENTS.keys() - {"peri"}, *rule_command.NORMS):
        assert name in choices.NORMS
    assert all(name in choices.ARCHITECTURES for name in ARCHITECTURES)
    assert choices.OPTIMIZERS.replace(" or ", ", ").split(", ") == list(OPTIMIZERS)
    assert all(name in SELECTIONS for name in choices.SELECTIONS.replace(" or ", ", ").split(", "))


@pytest.mark.parametrize("text", ["", " ", "1e", "1e-3", "1.5e3", "0x10", "1_000", "٣", "--1", "9" * 60])
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
    assert gains("1 2,3", "--w") == [1.0, 2.0, 3.0]
    for bad in ("1/0", "x", "1,5,", "", "1e9999", "inf"):
        with pytest.raises(BadInputError):
            power_law(bad, "--gain")


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file.json"
    write_atomically(target, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(target, "new \udcff")
    assert target.read_text(encoding="utf-8") == "old"
    assert [path.name for path in target.parent.iterdir()] == ["file.json"]


def test_json_is_strict() -> None:
    with pytest.raises(ValueError, match="JSON"):
        as_text({"update": float("inf")})

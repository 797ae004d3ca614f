"""The options of the command line: the names that they take, how what was typed is read, and how one is declared.

A command is a function whose parameters are its options, each with an ``option(...)`` where its default value stands.
Options that several commands share are the fields of a dataclass, and a parameter of that type stands for all of them.
A command gets numbers and paths: what cannot be read is refused before it begins, in one line that says what, where,
and what is allowed. Only typer is imported here and by the modules of the commands, so that ``depthlaw --help`` answers
at once.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import json
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import wraps
from html import unescape
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import typer

from depthlaw.system.files import read_all
from depthlaw.system.places import RESULTS, ROOT

# ---------------------------------------------------------------- names, as --help shows them and TAB completes them.
# Neither theory nor sims is imported for them: a test holds them against what theory and sims know. A name of one's own
# is added here too.

NORMS = "post, pre or sub"
PLACEMENTS = "post, pre, sub or peri"
ARCHITECTURES = "encoder, decoder or encoder-decoder"
SELECTIONS = "deepnet, symmetric, alpha-one, relative or lambda-one"
OPTIMIZERS = "sgd, momentum, adam, adamw, rmsprop, signsgd, lion, adafactor, lars, lamb, muon, sophia or muon+adamw"
ACTIVATIONS = "relu, gelu, silu, tanh, identity, leaky_relu or relu2"
GATED = "swiglu, geglu or reglu"
ANY_ACTIVATION = f"{ACTIVATIONS.replace(' or ', ', ')}, {GATED}"
NORM_KINDS = "layernorm or rmsnorm"
READOUTS = "last or sum"
LOSSES = "logit or ce"
DEVICES = "auto, cpu or cuda"
DTYPES = "auto, float64 or float32"
PRECISIONS = "float32, float64 or bfloat16"
SHAPES = "gpt, gpt-help, bert, nmt, vit, vit-masked or speech"
SCHEDULES = "constant, linear, cosine or inverse-sqrt"
EXPERIMENTS = "stable-rates, warmup, thousand-layers, best-rates, after-start, transfer or elsewhere"
SCALES = "small, wide or large"
WATCHED_BY = "steps or tokens"
FIGURES = (".png", ".svg", ".pdf")
POST_LN_INIT = "post-ln-init"
"""A scheme of ``depthlaw train`` alone: DeepNet's control."""

Completion = Callable[[str], list[str]]
"""What typer asks with the word that TAB was pressed in; it drops what does not begin so."""


def names(text: str) -> list[str]:
    """Of one of the constants above: "a, b or c" is a, b, c."""
    return text.replace(" or ", ", ").split(", ")


def one_of(known: str) -> Completion:
    """Completes one name of a constant above."""
    return lambda incomplete: names(known)


def some_of(known: Callable[[], Iterable[str]]) -> Completion:
    """Completes the last of a comma-separated list; what stands there already is not offered again."""

    def complete(incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in known() if name not in before.split(",")]

    return complete


# Names that change with the project are read from what it generates. Nothing is offered where that cannot be read.

_TABLES, _CLAIMS = RESULTS / "tables.json", RESULTS / "CLAIMS.md"
_SOURCES = ROOT / "paper_checks" / "claims" / "sources.toml"


def _tables() -> list[dict]:
    try:
        return json.loads(_TABLES.read_text(encoding="utf-8"))["tables"]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def schemes(incomplete: str = "") -> list[str]:
    """Of the generated table of all schemes: a new one is offered after `make tables`."""
    return list(dict.fromkeys(row["scheme"] for table in _tables() if table["id"] == "cross" for row in table["rows"]))


def recipes(incomplete: str = "") -> list[str]:
    from depthlaw.recipes.catalogue import RECIPES

    return list(RECIPES)


def one_table(incomplete: str) -> list[str]:
    return [table["id"] for table in _tables()]


def one_source(incomplete: str) -> list[str]:
    try:
        return list(tomllib.loads(_SOURCES.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return []


def one_claim(incomplete: str) -> list[tuple[str, str]]:
    """(id, its verdict and statement in CLAIMS.md, which zsh and fish show beside it)."""
    try:
        page = _CLAIMS.read_text(encoding="utf-8")
    except OSError:
        return []
    row = r"^\| ([A-Z]+[0-9]*-[0-9]+) \| .*? \| (.*) \| \*\*([A-Z]+)\*\* \|$"
    rows = re.findall(row, page, re.MULTILINE)
    plain = str.maketrans("[]", "()", "\\")  # rich reads brackets as its markup, and would break what is longer
    return [(id_, f"{verdict}: {unescape(text).translate(plain)}"[:60]) for id_, text, verdict in rows]


# ---------------------------------------------------------------- reading what was typed


class BadInputError(ValueError):
    """Unusable input; its text is the one line that the user sees."""


@contextlib.contextmanager
def refusing(option: str = "") -> Iterator[None]:
    """Turn a ValueError of the rooms below (unknown name, count out of range) into a refusal of the input, or of the
    one option that it can be of.

    So too where the numbers asked for lie beyond what can be computed (a gain of 1e-36 under a gelu, say).
    """
    try:
        yield
    except BadInputError:
        raise
    except ValueError as error:
        raise BadInputError(f"{option}: {error}" if option else str(error)) from error
    except ArithmeticError as error:
        raise BadInputError(f"beyond what can be computed: {str(error) or type(error).__name__}") from error


MOST = 10**12
"""Layers, and whatever else is counted."""
_MOST_ENTRIES = 10_000
_MOST_GAINS = 2_000_000
"""Bytes of a file of gains."""


def count(text: str, option: str, least: int = 1, most: int = 10**6) -> int:
    """A whole number from ``least`` to ``most``, as 1000 or 1e3."""
    written = re.fullmatch(r"([+-]?[0-9]{1,40})(?:[eE]\+?([0-9]{1,2}))?", text.strip())
    number = None if written is None else int(written[1]) * 10 ** int(written[2] or 0)
    if number is None or not least <= number <= most:
        shown = _shown(text) if number is None else number
        is_range = re.fullmatch(r"[0-9]+(-|\.\.|:)[0-9]+", text.strip()) is not None
        hint = "; a list is written with commas, such as 12,24,48" if is_range else ""
        raise BadInputError(f"{option} must be a whole number from {least} to {_count(most)}, not {shown}{hint}")
    return number


def entries(text: str) -> list[str]:
    """The entries of a list, which commas or blanks separate.

    >>> from depthlaw.cli.shared.options import entries
    >>> entries("4, 8,16"), entries("4 8 16"), entries("4,,8")
    (['4', '8', '16'], ['4', '8', '16'], ['4', '', '8'])
    """
    return re.split(r"\s*,\s*|\s+", text.strip())


def _count(number: int) -> str:
    return str(number) if number < 10**6 else f"{number:g}".replace("e+", "e")


def counts(text: str, option: str, least: int = 1, most: int = MOST) -> list[int]:
    """A list of counts, in the order given."""
    parts = entries(text)
    if len(parts) > _MOST_ENTRIES:
        raise BadInputError(f"{option} has {len(parts)} entries; at most {_MOST_ENTRIES} are allowed")
    return [count(part, option, least, most) for part in parts]


def check_pairs(layers: Sequence[Any], decoder_layers: Sequence[Any]) -> None:
    if len(decoder_layers) != len(layers):
        raise BadInputError(f"--layers has {len(layers)} entries and --decoder-layers {len(decoder_layers)}: pair them")


def fraction(text: str, option: str) -> Fraction:
    """A decimal or a ratio, read exactly: 0.25, 1/4, -1/2."""
    decimal = r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?"
    try:
        if re.fullmatch(rf"{decimal}|[+-]?[0-9]{{1,30}}/[0-9]{{1,30}}", text.strip()):
            return Fraction(text.strip())
    except ZeroDivisionError:
        pass
    raise BadInputError(f"{option} must be a number such as 0.25 or 1/4, not {_shown(text)}")


def real(text: str, option: str, least: float = -1e300, most: float = 1e300) -> float:
    if not least <= (number := fraction(text, option)) <= most:
        raise BadInputError(f"{option} lies between {least:g} and {most:g}, not at {text.strip()}")
    return float(number)


def reals(text: str, option: str, least: float, most: float) -> list[float]:
    return [real(part, option, least, most) for part in entries(text)]


def power_law(text: str, option: str) -> tuple[Fraction, Fraction]:
    """C,P meaning C L^P, with C positive; a lone C means P = 0."""
    first, _, second = text.partition(",")
    constant, power = fraction(first, option), fraction(second or "0", option)
    if constant <= 0:
        raise BadInputError(f"{option} must have a positive C, not {first.strip()}")
    if abs(power) > 100 or not Fraction(1, 10**100) < constant < 10**100:
        raise BadInputError(f"{option} is out of range: C within 1e-100 to 1e100, P within -100 to 100")
    return constant, power


def law(text: str, option: str) -> tuple[Fraction, Fraction] | str:
    """C,P meaning C L^P, or a formula, which is read where sympy is imported."""
    if re.search(r"[A-Za-z]", re.sub(r"[0-9.][eE][+-]?[0-9]", "", text)):
        return text.strip()
    return power_law(text, option)


def gains(text: str, option: str) -> tuple[float, ...]:
    """Positive numbers, or @FILE with them."""
    if text.startswith("@"):
        path = Path(text[1:])
        try:
            text = read_all(path, _MOST_GAINS).decode("utf-8-sig")
        except OSError as error:
            raise BadInputError(f"{option}: cannot read {path}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise BadInputError(f"{option}: cannot read {path}: it is not UTF-8 text") from error
        except ValueError as error:
            raise BadInputError(f"{option}: {error}") from error
    return tuple(real(part, f"{option}, entry {at},", 1e-300, 1e300) for at, part in enumerate(entries(text), start=1))


def one_name(text: str, option: str, known: str) -> str:
    """One of the names that ``known``, a constant above, lists. People write AdamW, ReLU and Post-LN."""
    if (name := _alone(text, option)) in names(known):
        return name
    if name in names(GATED):
        allowed = ", ".join(names(known))
        raise BadInputError(
            f"{option}: a gated FFN such as {name} is for predict, measure, rule and advise; here {allowed}"
        )
    close = difflib.get_close_matches(name, names(known), n=3)
    if close:
        raise BadInputError(f"{option} does not know {_shown(name)}; did you mean {' or '.join(close)}?")
    raise BadInputError(f"{option} is one of {', '.join(names(known))}, not {_shown(name)}")


def _alone(text: str, option: str) -> str:
    if "," in text:
        raise BadInputError(f"{option} takes one name here, and not a list such as {_shown(text)}")
    return text.lower()


def scheme_name(text: str, option: str) -> str:
    """A name that is generated is known without sympy; of another one theory says what is near it."""
    if (name := _alone(text, option)) not in schemes():
        from depthlaw.recipes.catalogue import scheme

        with refusing(option):
            scheme(name)
    return name


def scheme_names(text: str, option: str) -> str:
    """One or several, with commas between them."""
    names = [scheme_name(name, option) for name in some_names(text, option)]
    if len(set(names)) < len(names):
        raise BadInputError(f"{option} {text}: a scheme is named twice")
    return ",".join(names)


def some_names(text: str, option: str) -> list[str]:
    """Names with commas between them."""
    parts = [part.strip().lower() for part in text.split(",")]
    if not all(parts):
        raise BadInputError(f"{option} wants names with a comma between them, not {text!r}")
    return parts


def file_name(text: str, option: str) -> str:
    if not text.strip():
        raise BadInputError(f"{option} wants the name of a file, not {text!r}")
    return text


def written_file(text: str, option: str, suffixes: tuple[str, ...] = ("",)) -> Path:
    """A file that can be written, and whose name ends in one of these."""
    if not text.lower().endswith(suffixes):
        raise BadInputError(f"{option} wants a file that ends in {', '.join(suffixes)}, not {text!r}")
    return writable(Path(file_name(text, option)), option)


def writable(path: Path, option: str) -> Path:
    """What could not be written after an hour of work is refused before it. A file goes into a folder that is there:
    one that a slip of the pen names is not made."""
    if not path.parent.is_dir():
        to_make_it = shlex.join(["mkdir", "-p", str(path.parent)])
        raise BadInputError(f"{option}: there is no folder {path.parent} (to make it: {to_make_it})")
    if path.exists() and not path.is_file():
        raise BadInputError(f"{option}: {path} is not a file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise BadInputError(f"{option}: {path} cannot be written")
    return path


def local_file(path: Path, option: str, what: str) -> Path:
    """A file of the user's own below the records, whose folder is made. option: what to give where it cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return writable(path, what)
    except (OSError, BadInputError) as error:
        raise BadInputError(f"{path.parent} cannot be written: give {option}") from error


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


# ---------------------------------------------------------------- declaring an option

NETWORK, MORE = "The network", "How it is computed, shown and kept"
"""Panels of a ``--help``."""
REQUIRED = inspect.Parameter.empty
_READERS: dict[Any, tuple[Callable[..., Any], str]] = {
    int: (count, "N"),
    float: (real, "X"),
    list[int]: (counts, "LIST"),
    list[float]: (reals, "LIST"),
    list[str]: (some_names, "LIST"),
    tuple[float, ...]: (gains, "LIST"),
    tuple[Fraction, Fraction]: (power_law, "C,P"),
    Path: (written_file, "FILE"),
}
"""By the type of an option: how its value is read, and what stands for it in ``--help``."""


class Option(NamedTuple):
    """What stands as the default value of a command's parameter, or of a field of a dataclass of options."""

    text: str
    default: Any
    panel: str | None
    name: str | None
    about: dict[str, Any]
    is_argument: bool = False


def option(text: str, default: Any = None, panel: str | None = None, *, called: str | None = None, **about: Any) -> Any:
    """An option; how its value is read follows from the type of its parameter.

    text: its help. default: the value where it is left out, ``REQUIRED`` where it must not be. called: the option's
    name, where it is not the parameter's, or several. about: ``known``, one of the constants above, which the help
    lists where the text is no sentence; ``complete``; ``read``, where the type does not say it; ``metavar``; and limits
    for the reader.
    """
    return Option(text, default, panel, called, about)


def argument(text: str, metavar: str, default: Any = None, *, complete: Callable[[str], Any]) -> Any:
    """A value that is given without an option's name."""
    return Option(text, default, None, None, {"metavar": metavar, "complete": complete}, is_argument=True)


SCHEME = option(
    "A named scheme, such as post-ln or deepnorm; `depthlaw schemes` lists all.",
    metavar="NAME",
    read=scheme_name,
    complete=schemes,
)
JSON = option("Print one JSON document to standard output, and nothing else.", called="--json")
OPTIMIZER = option("The optimizer", REQUIRED, known=OPTIMIZERS)
NORM_KIND = option("The kind of norm", "layernorm", known=NORM_KINDS)
DEVICE = option("Where it is computed: auto (a GPU where there is one), cpu or cuda.", "auto", MORE, known=DEVICES)
SCHEDULER = option(
    "Compute on the workers of the Dask cluster whose scheduler is at tcp://HOST:PORT. Only this process writes the "
    "results.",
    None,
    MORE,
    metavar="ADDRESS",
)
BY_LAYER = option(
    "Also show each x_l (its size, how much of it the last sublayer added, its gradient) and each sublayer's part of "
    "the update.",
    None,
    MORE,
    called="--by-layer --profile",
)
ROLES = option("Also show each role (q, k, v, out, fc1 ...) by itself, and draw each in --plot.", None, MORE)
PLOT = option("Draw the update against depth, log-log, to a .png, .svg or .pdf file.", None, MORE, suffixes=FIGURES)


def unfolded(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command as typer reads it: a parameter whose type is a dataclass becomes an option for each of its fields."""
    hints = get_type_hints(command)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    plain: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            types = get_type_hints(groups[name])
            plain += [_for_typer(field, types[field], getattr(groups[name], field)) for field in _fields(groups[name])]
        else:
            plain.append(_for_typer(name, hints[name], parameter.default))

    @wraps(command)
    def run(**given: Any) -> Any:
        folded = {name: kind(**{field: given.pop(field) for field in _fields(kind)}) for name, kind in groups.items()}
        return command(**folded, **given)

    run.__signature__ = inspect.Signature(plain)  # pyright: ignore[reportAttributeAccessIssue]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in plain}
    return run


def _fields(kind: Any) -> list[str]:
    return [field.name for field in fields(kind)]


def _for_typer(name: str, hint: Any, declared: Option) -> inspect.Parameter:
    """Typer sees text where what was typed is read here, and a default's text too."""
    text, default, panel, called, about, is_argument = declared
    kind = get_args(hint)[0] if isinstance(hint, UnionType) else hint
    limits = {key: value for key, value in about.items() if key not in ("read", "complete", "metavar")}
    complete, usual = about.get("complete"), (None, None)
    if "known" in about:
        usual, complete = (one_name, "NAME"), one_of(about["known"])
        text = text if text.endswith(".") else f"{text}: {about['known']}."
    elif not is_argument:
        usual = _READERS.get(kind, usual)
    read = about.get("read", usual[0])

    def reading(param: typer.CallbackParam, value: str | None) -> Any:
        return None if read is None or value is None else read(value, param.opts[0], **limits)

    if read is not None:
        hint = str | None
        default = default if default in (None, REQUIRED) else str(default)
    elif kind is bool:
        called, default = called or f"--{name.replace('_', '-')}", bool(default)
    make = typer.Argument if is_argument else typer.Option
    info = make(
        *(called or "").split(),
        help=text,
        metavar=about.get("metavar", usual[1]),
        rich_help_panel=panel,
        autocompletion=complete,
        callback=None if read is None else reading,
    )
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, info])


def options_of(kind: type) -> dict[str, str]:
    """How the user writes each field of a dataclass of options."""
    return {name: getattr(kind, name).name or f"--{name.replace('_', '-')}" for name in _fields(kind)}


def defaults_of(kind: type) -> dict[str, Any]:
    """What each field of a dataclass of options is where it is left out."""
    return {name: getattr(kind, name).default for name in _fields(kind)}

"""What comes from outside, read with care: counts, lists, power laws. A refusal is one line: what, where, allowed."""

from __future__ import annotations

import contextlib
import difflib
import math
import os
import re
import shlex
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from paper_checks.cli.choices import names

MOST_LAYERS = 10**12
MOST_COUNTS = 10_000


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


def count(text: str, option: str, least: int = 1, most: int = MOST_LAYERS) -> int:
    """A whole number from ``least`` to ``most``, as 1000 or 1e3."""
    written = re.fullmatch(r"([+-]?[0-9]{1,40})(?:[eE]\+?([0-9]{1,2}))?", text.strip())
    if written is None:
        raise BadInputError(f"{option} must be a whole number from {least} to {most}, not {_shown(text)}")
    number = int(written[1]) * 10 ** int(written[2] or 0)
    if not least <= number <= most:
        raise BadInputError(f"{option} must be a whole number from {least} to {most}, not {number}")
    return number


def one_name(text: str, option: str, known: str) -> str:
    """One of the names that ``known``, a constant of ``paper_checks.cli.choices``, lists."""
    allowed = names(known)
    if text not in allowed:
        close = difflib.get_close_matches(text.lower(), allowed, n=3)
        hint = f" (did you mean {' or '.join(close)}?)" if close else ""
        raise BadInputError(f"{option} is one of {', '.join(allowed)}, not {_shown(text)}{hint}")
    return text


def entries(text: str) -> list[str]:
    """The entries of a list, which commas or blanks separate.

    >>> from paper_checks.cli.inputs import entries
    >>> entries("4, 8,16"), entries("4 8 16"), entries("4,,8")
    (['4', '8', '16'], ['4', '8', '16'], ['4', '', '8'])
    """
    return re.split(r"\s*,\s*|\s+", text.strip())


def counts(text: str, option: str, most: int = MOST_LAYERS) -> list[int]:
    """A list of counts, in the order given."""
    parts = entries(text)
    if len(parts) > MOST_COUNTS:
        raise BadInputError(f"{option} has {len(parts)} entries; at most {MOST_COUNTS} are allowed")
    return [count(part, option, most=most) for part in parts]


def fraction(text: str, option: str) -> Fraction:
    """A decimal or a ratio, read exactly: 0.25, 1/4, -1/2."""
    plain = text.strip()
    if not re.fullmatch(
        r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?|[+-]?[0-9]{1,30}/[0-9]{1,30}", plain
    ):
        raise BadInputError(f"{option} must be a number such as 0.25 or 1/4, not {_shown(text)}")
    try:
        return Fraction(plain)
    except ZeroDivisionError:
        raise BadInputError(f"{option} must be a number such as 0.25 or 1/4, not {_shown(text)}") from None


def power_law(text: str, option: str) -> tuple[Fraction, Fraction]:
    """C,P meaning C L^P, with C positive; a lone C means P = 0."""
    parts = text.split(",")
    if len(parts) not in (1, 2):
        raise BadInputError(f"{option} must be C,P meaning C L^P, such as 1,0.25, not {_shown(text)}")
    constant = fraction(parts[0], option)
    power = fraction(parts[1], option) if len(parts) == 2 else Fraction(0)
    if constant <= 0:
        raise BadInputError(f"{option} must have a positive C, not {parts[0].strip()}")
    if abs(power) > 100 or not Fraction(1, 10**100) < constant < 10**100:
        raise BadInputError(f"{option} is out of range: C within 1e-100 to 1e100, P within -100 to 100")
    return constant, power


def gains(text: str, option: str) -> list[float]:
    """Comma- or space-separated gains, or @FILE with them."""
    if text.startswith("@"):
        path = Path(text[1:])
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInputError(f"{option}: cannot read {path}: {_reason(error)}") from error
    numbers = []
    for index, part in enumerate(text.replace(",", " ").split(), start=1):
        try:
            number = float(part)
        except ValueError:
            raise BadInputError(f"{option}: entry {index} is {_shown(part)}, not a number") from None
        if not 0 < number < math.inf:
            raise BadInputError(f"{option} of sublayer {index} is {number}; gains are positive finite numbers")
        numbers.append(number)
    if not numbers:
        raise BadInputError(f"{option} is empty; one positive number per sublayer is wanted")
    return numbers


def plot_file(text: str) -> Path:
    """Where a figure can be written."""
    from paper_checks.pages.plots import SUFFIXES

    path = Path(text)
    if path.suffix.lower() not in SUFFIXES:
        raise BadInputError(f"--plot wants a file that ends in {', '.join(SUFFIXES)}, not {text!r}")
    return writable(path, "--plot")


def writable(path: Path, option: str) -> Path:
    """What could not be written after an hour of work is refused before it. A file goes into a folder that is there:
    one that a slip of the pen names is not made."""
    if not path.parent.is_dir():
        raise BadInputError(f"{option}: there is no folder {path.parent} (to make it: {_made(path.parent)})")
    if path.exists() and not path.is_file():
        raise BadInputError(f"{option}: {path} is not a file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise BadInputError(f"{option}: {path} cannot be written")
    return path


def _made(folder: Path) -> str:
    return shlex.join(["mkdir", "-p", str(folder)])


def _reason(error: Exception) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else "it is not UTF-8 text"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")

"""Texts as people, files and programs may hand them over: whole ones, and what becomes of them by every kind of slip
and of malice. All that is drawn is a function of the generator that is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from tests.fuzz.watch import CANARY

T = TypeVar("T")
PAYLOADS = (
    *(f"__import__('os').system('touch {CANARY}')", f"open('{CANARY}','w').close()"),
    f"[c for c in ().__class__.__base__.__subclasses__()][0] or open('{CANARY}','w')",
    *(f"exec(\"open('{CANARY}','w')\")", f"lambda: open('{CANARY}', 'w')"),
    *(f"Symbol('x').__class__.__init__.__globals__['{CANARY}']", f"$(touch {CANARY})", f"`touch {CANARY}`"),
    *(f"; touch {CANARY} #", f"' OR 1=1; ATTACH DATABASE '{CANARY}' AS a; --"),
    f"{{{{ cycler.__init__.__globals__.os.popen('touch {CANARY}') }}}}",
    *(f"!!python/object/apply:os.system ['touch {CANARY}']", f"cos\nsystem\n(S'touch {CANARY}'\ntR."),
    *(f"<script>fetch('{CANARY}')</script>", f"%s%n%x{CANARY}", f"{{0.__class__}}{CANARY}"),
)
ODD = (
    *("", " ", "\t", "\n", "\r\n", "\x00", "\x07", "\x1b[31m", "\x1b]0;x\x07", "\x7f", "\x85", "\ufeff", "\u200b"),
    *("\u202e", "\ud800", "\udcff", "é", "e\u0301", "ß", "ı", "İ", "٣", "²", "½", "Ⅷ", "𝟛", "一", "🙂", "ﬁ", "−", "，"),
    *("'", '"', "`", "\\", "/", "//", ".", "..", "../x", "../../x", "~", "*", "?", "[", "]", "{", "}", "(", ")", "<"),
    *(">", "|", "&", ";", ":", "::", ",", ",,", "=", "==", "-", "--", "---", "@", "#", "%", "%d", "$", "!", "_", "+"),
    *("^", "None", "null", "true", "nan", "NaN", "inf", "-inf", "Infinity", "[]", "{}", "()", "[red]", "[/]"),
    *("[bold", "L", "N"),
)
NUMBERS = (
    *("0", "-0", "1", "-1", "2", "3", "7", "10", "63", "64", "65", "100", "255", "256", "257", "1000", "1023"),
    *("4096", "10000", "10001", "65536", "100000", "1000000", "2147483647", "2147483648", "4294967296"),
    *("9007199254740993", "1e3", "1e12", "1E12", "1e13", "1e99", "1e308", "1e309", "1e-3", "1e-12", "1e-300"),
    *("1e-324", "1e400", "1e9999", "0.1", ".5", "5.", "-0.5", "1/2", "-1/3", "1/0", "0/1", "1//2", "1/2/3", "2**64"),
    *("9**9**9", "0x10", "0b1", "0o7", "1_000", "1,5", "1e", "e1", "+1", "++1", "--1", "007", "1 2", "1e+3"),
    *("3.14159265358979323846264338327950288", "99999999999999999999999999999999999999999999999999", "9" * 400),
    *("0." + "3" * 200, "1/" + "7" * 30, "7" * 30 + "/3"),
)


def drawn(rng: Random, parts: Sequence[T]) -> T:
    return parts[rng.randrange(len(parts))]


def odd(rng: Random) -> str:
    """A text that is nothing that anybody asks for."""
    kind = rng.randrange(6)
    if kind == 0:
        return drawn(rng, PAYLOADS)
    if kind == 1:
        return drawn(rng, NUMBERS)
    if kind == 2:
        return "".join(drawn(rng, ODD) for _ in range(rng.randrange(1, 6)))
    if kind == 3:
        return drawn(rng, ("a", "9", "(", "[", '"', "-", "🙂", "1,", "1 ", "../", "\\", "--x ")) * rng.choice(
            (50, 1000, 20000)
        )
    if kind == 4:
        return "".join(chr(rng.randrange(1, 0x250)) for _ in range(rng.randrange(1, 30)))
    return drawn(rng, ODD)


def _cut(rng: Random, text: str) -> str:
    first, last = sorted(rng.randrange(len(text) + 1) for _ in range(2))
    return text[:first] + text[last:]


def _double(rng: Random, text: str) -> str:
    first, last = sorted(rng.randrange(len(text) + 1) for _ in range(2))
    return text[:last] + text[first:]


def _swap(rng: Random, text: str) -> str:
    at = rng.randrange(len(text))
    return text[:at] + text[at + 1 : at + 2] + text[at : at + 1] + text[at + 2 :]


def _insert(rng: Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + odd(rng) + text[at:]


def _case(rng: Random, text: str) -> str:
    return rng.choice((text.upper(), text.title(), text.swapcase(), f" {text} ", f"{text}\n"))


def _other_number(rng: Random, text: str) -> str:
    """Its digits, or some of them, for another number."""
    places = [at for at, character in enumerate(text) if character.isdigit()]
    if not places:
        return drawn(rng, NUMBERS)
    at = rng.choice(places)
    return text[:at] + drawn(rng, NUMBERS) + text[at + 1 :]


_SLIPS: tuple[Callable[[Random, str], str], ...] = (_cut, _double, _swap, _insert, _case, _other_number)


def slipped(rng: Random, text: str) -> str:
    """The text with one to three slips in it, or an odd one in its place."""
    if not text or rng.random() < 0.1:
        return odd(rng)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = rng.choice(_SLIPS)(rng, text or "x")
    return text


def maybe(rng: Random, text: str, share: float) -> str:
    """The text, and of a share of them one with slips."""
    return slipped(rng, text) if rng.random() < share else text


def damaged(rng: Random, content: bytes) -> bytes:
    """The bytes of a file as a crash, a bad disk or another program may leave them."""
    kind = rng.randrange(9)
    if kind == 0:
        return content[: rng.randrange(len(content) + 1)]
    if kind == 1:  # one to eight bits
        changed = bytearray(content)
        for _ in range(rng.choice((1, 1, 2, 8)) if changed else 0):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        return bytes(changed)
    if kind == 2:  # a block of zeros
        first = rng.randrange(len(content) + 1)
        size = rng.choice((1, 16, 512, 4096))
        return content[:first] + bytes(len(content[first : first + size])) + content[first + size :]
    if kind == 3:
        return content + rng.randbytes(rng.choice((1, 7, 512, 5000)))
    if kind == 4:
        at = rng.randrange(len(content) + 1)
        return content[:at] + rng.randbytes(rng.choice((1, 3, 64))) + content[at:]
    if kind == 5:
        first, last = sorted(rng.randrange(len(content) + 1) for _ in range(2))
        return content[:last] + content[first:]
    if kind == 6:
        return content.replace(b"\n", rng.choice((b"\r\n", b"", b"\n\n", b"\x00")))
    if kind == 7:
        return rng.choice(
            (b"", b"\n", b"\x00", b"{}", b"[]", b"null", b'"', b"\xff\xfe", b"SQLite format 3\x00", b"\x1f\x8b")
        )
    return odd(rng).encode("utf-8", "surrogatepass")

"""Formulas as our texts have them, ``(8*N)^(-1/4)``, ``sqrt(log 2N)``, ``Sum(v[l]**2, (l, 1, L))``, read into a tree.

Nothing is evaluated. ``formula`` reads a text that is a formula from end to end, as sympy writes them and the tables
have them; ``pieces`` finds the formulas that stand in a sentence, and leaves the sentence as it is. What is not
understood stays text. ``formulas_latex`` writes the tree.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from paper_checks.notation.names import name
from paper_checks.notation.tokens import FUNCTIONS, PLACE, RELATIONS, Token, tokens

_BARE = frozenset(["log", "ln", "sqrt", "tr", "cos", "Var", "E"])  # these need no bracket: log 2N
_WEAK = frozenset("aAI")  # words of English, unless what stands beside them says that they are not
_DEEPEST, _READINGS = 30, 50
"""Brackets in brackets, and how often a token may be read on the average: bounds for text that is made to be slow."""
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class Node:
    """A piece of a formula.

    kind: number, name, place, word (a function's), words (of the sentence: gain^2), call, group, bars, power, index,
    prime, star, big (a sum over an index), minus, product, sum, relation, list. signs: what stands between the parts.
    is_math: no sentence has it by chance.
    """

    kind: str
    text: str = ""
    parts: tuple[Node, ...] = ()
    signs: tuple[str, ...] = ()
    is_math: bool = False


class NotAFormulaError(ValueError):
    """The text is no formula, or not one of the kind that is read here."""


# ---------------------------------------------------------------- reading


class _Reader:
    """Recursive descent. ``is_exact``: a formula from end to end, where every word has to be one of its names."""

    def __init__(self, text: str, *, is_exact: bool) -> None:
        self.tokens = tokens(text)
        self.is_exact = is_exact
        self.at = 0
        self.depth = 0
        self.level = 0
        self.left = _READINGS * len(self.tokens)
        self.bars: tuple[str, ...] = ()
        self.not_groups: set[int] = set()

    def peek(self, ahead: int = 0) -> Token | None:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else None

    def sees(self, *texts: str, ahead: int = 0, is_glued: bool = False) -> bool:
        token = self.peek(ahead)
        return token is not None and token.text in texts and not (is_glued and token.is_spaced)

    def take(self, *texts: str) -> Token:
        token = self.peek()
        if token is None or (texts and token.text not in texts):
            raise NotAFormulaError
        self.at += 1
        return token

    def tried(self, read: Callable[[], Node]) -> Node | None:
        """What is read, or None, and then nothing is taken."""
        start, depth = self.at, self.depth
        try:
            return read()
        except NotAFormulaError:
            self.at, self.depth = start, depth
            return None

    def listed(self) -> Node:
        parts, signs = [self.relation()], []
        while self.sees(",", ";"):
            signs.append(self.take().text)
            parts.append(self.relation())
        return parts[0] if not signs else _node("list", parts, signs)

    def relation(self) -> Node:
        return self.chain("relation", self.sum_, self.relation_sign)

    def relation_sign(self) -> str | None:
        token = self.peek()
        if token is None or token.text not in RELATIONS:
            return None
        after = self.peek(1)
        is_loose = token.is_spaced and after is not None and after.is_spaced
        is_spread = token.is_spaced or token.text not in "<>"
        return token.text if is_loose or token.text in ("=", "->") or (self.depth and is_spread) else None

    def sum_(self) -> Node:
        return self.chain("sum", self.signed, self.sum_sign)

    def sum_sign(self) -> str | None:
        token, after = self.peek(), self.peek(1)
        if token is None or after is None or token.text not in ("+", "-") or (token.is_spaced and not after.is_spaced):
            return None
        return token.text

    def signed(self) -> Node:
        if self.sees("-"):
            after = self.peek(1)
            if after is None or after.is_spaced:
                raise NotAFormulaError
            self.take()
            return _node("minus", [self.product()], [])
        return self.product()

    def product(self) -> Node:
        return self.chain("product", self.factor, self.product_sign)

    def product_sign(self) -> str | None:
        token = self.peek()
        if token is None:
            return None
        if token.text in ("*", "/", "%"):
            return token.text
        if token.text == "x" and self.is_size(self.peek(-1)) and self.is_size(self.peek(1)):
            return "x"
        return "" if self.may_follow(token) else None

    def is_size(self, token: Token | None) -> bool:
        return token is not None and (token.text == "d" or token.text[0].isdigit())

    def may_follow(self, token: Token) -> bool:
        """Whether a factor may stand here without a sign before it."""
        if token.text == "(":
            return True
        if token.text in ("|", "||"):
            return self.depth == 0 or not self.closes(token.text)
        if token.text.startswith(PLACE):
            return True
        if not token.is_name:
            return False
        if token.text in _WEAK and token.is_spaced and not self.is_exact:
            return False
        is_function = token.text in FUNCTIONS or token.text.startswith(("sum", "prod_"))
        return is_function or name(token.text.rstrip("_")) is not None

    def closes(self, bar: str) -> bool:
        return bar in self.bars

    def chain(self, kind: str, read: Callable[[], Node], sign: Callable[[], str | None]) -> Node:
        """Parts with signs between them. A sign behind which nothing can be read is left where it is."""
        parts, signs = [read()], []
        while (found := sign()) is not None:
            start = self.at
            if found:
                self.take()
            is_apart = self.at < len(self.tokens) and self.tokens[self.at].is_spaced
            part = self.tried(read)
            if part is None or (not found and not self.is_exact and not self.is_factor(parts[-1], part, is_apart)):
                self.at = start
                break
            parts.append(part)
            signs.append(found)
        return parts[0] if not signs else _node(kind, parts, signs)

    def is_factor(self, before: Node, part: Node, is_apart: bool) -> bool:
        """Whether two things that stand side by side in a sentence are a product; 2 (b) and 1 E are none."""
        is_aside = before.text == "1" or (part.kind == "group" and part.parts[0].kind != "sum")
        return part.is_math and not (is_apart and is_aside and before.kind == "number")

    def factor(self) -> Node:
        return self.behind(self.atom())

    def atom(self) -> Node:
        """A number, a name or a bracket. Nested as no formula is, it is none."""
        self.left -= 1
        if self.level >= _DEEPEST or self.left < 0:
            raise NotAFormulaError
        self.level += 1
        try:
            return self.any_atom()
        finally:
            self.level -= 1

    def any_atom(self) -> Node:
        token = self.take()
        if token.text == "(":
            return self.bracketed("group", ")")
        if token.text in ("|", "||"):
            kept, self.bars = self.bars, (*self.bars, token.text)
            try:
                inside = self.words(token.text) or self.listed()
            finally:
                self.bars = kept
            self.take(token.text)
            return Node("bars", token.text, (inside,), is_math=True)
        if token.text == "<" and (after := self.peek()) is not None and not after.is_spaced:
            inside = self.listed()
            if not self.sees(">", is_glued=True) or inside.kind != "list":
                raise NotAFormulaError
            self.take()
            return Node("inner", "", (inside,), is_math=True)
        if token.text.startswith(PLACE):
            return Node("place", token.text.strip(PLACE), is_math=True)
        if _NUMBER.fullmatch(token.text):
            return Node("number", token.text)
        if token.is_name:
            return self.named(token)
        raise NotAFormulaError

    def bracketed(self, kind: str, close: str) -> Node:
        """What stands in brackets, the first of which is taken. Where it is no formula, it is not tried again."""
        start, kept, depth = self.at, self.bars, self.depth
        if start in self.not_groups:
            raise NotAFormulaError
        self.bars, self.depth = (), depth + 1
        try:
            inside = self.listed()
            self.take(close)
        except NotAFormulaError:
            self.not_groups.add(start)
            raise
        finally:
            self.bars, self.depth = kept, depth
        return _node(kind, [inside], [])

    def named(self, token: Token) -> Node:
        text = token.text
        is_called = self.sees("(", is_glued=True)
        if text in ("sum_", "prod_") and self.sees("(", "{", is_glued=True):
            below = self.bracketed("group", {"(": ")", "{": "}"}[self.take().text]).parts[0]
            return self.big(text[:-1], below)
        if match := re.fullmatch(r"(sum|prod)_([a-z])", text):
            return self.big(match[1], Node("name", match[2]))
        if text == "sum" and (after := self.peek()) is not None and ("_" in after.text or after.text == "||"):
            return Node("big", text, is_math=True)
        if text.endswith("_") and name(text[:-1]) and self.sees("(", "{", is_glued=True):
            below = self.bracketed("group", {"(": ")", "{": "}"}[self.take().text]).parts[0]
            return Node("index", text[:-1], (below,), is_math=True)
        if text in FUNCTIONS and not is_called and text in _BARE:
            return self.bare(text)
        if text in FUNCTIONS and self.sees("^", is_glued=True):
            return Node("word", text, is_math=True)
        if name(text) is None and self.sees("^", "**", is_glued=True) and self.is_word(token):
            return Node("words", text)
        if name(text) is None and not is_called:
            raise NotAFormulaError
        if is_called:
            return self.called(text)
        is_math = text not in _WEAK
        is_inside = self.is_exact or self.depth or self.bars or not token.is_spaced
        if not is_math and not is_inside and not self.is_operand():
            raise NotAFormulaError
        return Node("name", text, is_math=is_math)

    def is_operand(self) -> bool:
        return self.sees("^", "**", "[", is_glued=True) or (self.sees("=") and self.peek(1) is not None)

    def called(self, text: str) -> Node:
        if name(text) is None and (text not in FUNCTIONS if self.is_exact else not text.isalpha()):
            raise NotAFormulaError
        start = self.at
        self.take("(")
        inside = self.tried(lambda: self.bracketed("group", ")")) or self.word_of_function(text)
        is_plural = text not in FUNCTIONS and len(text) > 1 and inside is not None and inside.parts[0].text == "s"
        if inside is None or is_plural or (name(text) is None and text not in FUNCTIONS and not inside.is_math):
            self.at = start
            if name(text) is None:
                raise NotAFormulaError
            return Node("name", text, is_math=text not in _WEAK)
        args = inside.parts[0]
        return Node("call", text, args.parts if args.kind == "list" else (args,), is_math=True)

    def below(self) -> Node:
        """An index: one atom, or two letters such as ij."""
        token = self.peek()
        is_pair = token is not None and re.fullmatch("[a-z]{2}", token.text) is not None
        return Node("name", self.take().text) if is_pair else self.atom()

    def is_word(self, token: Token) -> bool:
        """gain^2: in a sentence a word may be the base of a power, or stand in one."""
        return not self.is_exact and len(token.text) > 1 and token.text.isalpha() and token.text.islower()

    def words(self, close: str) -> Node | None:
        """A word alone before what closes it: |average|, log(slope)."""
        token = self.peek()
        if token is None or not self.is_word(token) or name(token.text) is not None:
            return None
        if token.is_spaced or not self.sees(close, ahead=1, is_glued=True):
            return None
        return Node("words", self.take().text)

    def word_of_function(self, text: str) -> Node | None:
        if text not in FUNCTIONS:
            return None
        inside = self.words(")")
        if inside is not None:
            self.take(")")
            return Node("group", "", (inside,), is_math=True)
        return None

    def bare(self, text: str) -> Node:
        """log 2N, log^2 N, sqrt N."""
        power = self.exponent() if self.sees("^", "**", is_glued=True) else None
        depth, self.depth = self.depth, self.depth + 1  # the A of tr A is no word
        try:
            parts = [self.factor()]
        finally:
            self.depth = depth
        if parts[0].kind == "number" and (token := self.peek()) and not token.is_spaced and self.may_follow(token):
            parts.append(self.factor())
        inside = parts[0] if len(parts) == 1 else _node("product", parts, [""])
        if not inside.is_math and inside.kind != "name":
            raise NotAFormulaError
        call = Node("bare", text, (inside,), is_math=True)
        return call if power is None else Node("power", "", (call, power), is_math=True)

    def big(self, text: str, below: Node) -> Node:
        above = self.exponent() if self.sees("^", is_glued=True) else None
        found = Node("big", text, (below,) if above is None else (below, above), is_math=True)
        body = self.tried(self.product)
        return found if body is None else _node("product", [found, body], [""])

    def exponent(self) -> Node:
        self.take("^", "**")
        if self.sees("*"):
            self.take()
            return Node("star")
        if self.sees("{"):
            self.take()
            return self.bracketed("group", "}").parts[0]
        if self.sees("-"):
            self.take()
            return _node("minus", [self.atom()], [])
        if (token := self.peek()) is not None and token.is_name and name(token.text) is not None:
            self.take()
            return Node("name", token.text, is_math=True)  # x^l(y) is no power of l(y)
        if (token := self.peek()) is not None and not token.is_spaced and self.is_word(token):
            return Node("words", self.take().text)
        found = self.atom()
        return found.parts[0] if found.kind == "group" else found

    def behind(self, found: Node) -> Node:
        """Powers, indices, primes and stars."""
        while True:
            if self.sees("^", "**", is_glued=True):
                power = self.tried(self.exponent)
                if power is None:
                    return found
                found = Node("power", "", (found, power), is_math=True)
            elif found.kind in ("bars", "power") and self.sees("_", is_glued=True):
                self.take()
                found = Node("below", "", (found, self.below()), is_math=True)
            elif found.kind == "name" and found.text[0].islower() and self.sees("[", is_glued=True):  # E[x] is a mean
                self.take()
                below = self.bracketed("group", "]").parts[0]
                found = Node("index", found.text, (below,), is_math=True)
            elif found.kind == "name" and self.sees("'", is_glued=True) and not self.is_word_next():
                self.take()
                found = Node("prime", "", (found,), is_math=True)
                if self.sees("(", is_glued=True) and (inside := self.tried(self.factor)) is not None:
                    found = _node("product", [found, inside], [""])
            elif found.kind == "name" and self.sees("*", is_glued=True) and self.is_star():
                self.take()
                found = Node("power", "", (found, Node("star")), is_math=True)
            else:
                return found

    def end_of_code(self) -> int | None:
        """Behind a call of code, subln_init(w), at which the next token stands."""
        token = self.peek()
        if token is None or "_" not in token.text[:-1] or not token.is_name or name(token.text) is not None:
            return None
        if token.text.startswith(("sum_", "prod_")) or not self.sees("(", ahead=1, is_glued=True):
            return None
        ends = (i + 1 for i in range(self.at + 2, len(self.tokens)) if self.tokens[i].text == ")")
        return next(ends, None)

    def is_word_next(self) -> bool:
        token = self.peek(1)
        return token is not None and token.is_name and not token.is_spaced

    def is_star(self) -> bool:
        """theta*, and no product: what follows is no operand, or stands apart."""
        token = self.peek(1)
        return token is None or token.is_spaced or not (token.text[0] in "(|" or token.text[0].isalnum())


def _node(kind: str, parts: list[Node], signs: list[str]) -> Node:
    is_sum_of_numbers = kind == "product" and any(sign in ("*", "x") for sign in signs)
    is_math = is_sum_of_numbers or any(part.is_math for part in parts)
    return Node(kind, "", tuple(parts), tuple(signs), is_math)


# ---------------------------------------------------------------- what others call


def formula(text: str) -> Node:
    """A text that is a formula from end to end. NotAFormulaError where it is not."""
    reader = _Reader(text, is_exact=True)
    found = reader.listed()
    if reader.peek() is not None or "".join(token.text for token in reader.tokens) != "".join(text.split()):
        raise NotAFormulaError(text)
    return found


def with_whole_powers(text: str) -> str:
    """The tables' N^1/2 (log N)^-1/2, where the whole fraction is the power, as N^(1/2) (log N)^(-1/2)."""
    return re.sub(r"\^(-?\d+/\d+)(?=\s|$)", r"^(\1)", text)


def pieces(text: str) -> list[str | Node]:
    """A sentence as text and the formulas in it, in their order.

    >>> from paper_checks.notation.formulas import pieces
    >>> [piece if isinstance(piece, str) else piece.kind for piece in pieces("grows as L^(1/2), not as a root")]
    ['grows as ', 'power', ', not as a root']
    """
    reader = _Reader(text, is_exact=False)
    found: list[str | Node] = []
    done = 0
    while (token := reader.peek()) is not None:
        start = reader.at
        before = reader.tokens[start - 1].text if start and not token.is_spaced else " "
        is_inside_word = before in ("-", "'", "’") or before[-1].isalnum()
        if (end := reader.end_of_code()) is not None:
            reader.at = end
            continue
        node = None if is_inside_word else reader.tried(reader.relation)
        if node is None or not node.is_math:
            reader.at = start + 1
            continue
        end = reader.tokens[reader.at - 1].end
        if token.start > done:
            found.append(text[done : token.start])
        found.append(node)
        done = end
    if done < len(text):
        found.append(text[done:])
    return found

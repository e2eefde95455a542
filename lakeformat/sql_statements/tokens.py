"""The words of a statement and where they are, by the quoting rules of the host that computes it. Pure.

DuckDB quotes names by ``"``, Spark by a back quote; in Spark ``"`` quotes text, and a backslash escapes. Nothing here
knows more of a dialect than where its texts, names and comments end.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Dialect", "Kind", "Token", "close_of", "depths", "name_at", "tokens_of"]


class Dialect(enum.Enum):
    """Whose SQL a text is."""

    DUCKDB = "duckdb"
    SPARK = "spark"


class Kind(enum.Enum):
    """What a token is."""

    WORD = "word"
    NAME = "quoted name"
    TEXT = "text"
    NUMBER = "number"
    SIGN = "sign"


@dataclass(frozen=True, slots=True)
class Token:
    """``value``: a name or text without its quotes, anything else as it is written; ``at`` and ``end``: its place."""

    kind: Kind
    value: str
    at: int
    end: int

    @property
    def lower(self) -> str:
        """The keyword that this may be: empty for quoted names and texts."""
        return self.value.lower() if self.kind in {Kind.WORD, Kind.SIGN} else ""

    @property
    def is_name(self) -> bool:
        """Whether this may name something."""
        return self.kind in {Kind.WORD, Kind.NAME}


_COMMON: Final = r"(?P<skip>\s+|--[^\n]*)|(?P<back>`(?:[^`]|``)*`)|(?P<number>\d[\w.]*|\.\d[\w]*)|(?P<word>\w+)"
_SIGNS: Final = r"(?P<sign>=>|->>?|::|<=>|<>|<=|>=|!=|==|\|\||.)"
_PATTERNS: Final = {
    Dialect.DUCKDB: re.compile(
        r"(?P<comment>/\*)|(?P<dollar>\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)|(?P<escaped>[eE]'(?:[^'\\]|\\.|'')*')|"
        rf"(?P<text>'(?:[^']|'')*')|(?P<quoted>\"(?:[^\"]|\"\")*\")|{_COMMON}|{_SIGNS}",
        re.DOTALL,
    ),
    Dialect.SPARK: re.compile(
        r"(?P<comment>/\*)|(?P<raw>[rR](?:'[^']*'|\"[^\"]*\"))|"
        rf"(?P<text>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")|{_COMMON}|{_SIGNS}",
        re.DOTALL,
    ),
}
_COMMENT: Final = re.compile(r"/\*|\*/")


def tokens_of(text: str, dialect: Dialect) -> list[Token]:
    """Split a statement; white space and comments are left out."""
    pattern, found, at = _PATTERNS[dialect], [], 0
    while at < len(text):
        match = pattern.match(text, at)
        assert match is not None  # noqa: S101  The last sign is any character.
        end, group = match.end(), match.lastgroup
        if group == "comment":
            end = _after_comment(text, at)
        elif group != "skip":
            found.append(_token(match, group or ""))
        at = end
    return found


def _token(match: re.Match[str], group: str) -> Token:
    text = match[0]
    kind, value = Kind.SIGN, text
    if group in {"back", "quoted"}:
        kind, value = Kind.NAME, text[1:-1].replace(text[0] * 2, text[0])
    elif group == "text":
        kind, value = Kind.TEXT, text[1:-1].replace(text[0] * 2, text[0])
    elif group in {"raw", "escaped"}:
        kind, value = Kind.TEXT, text[2:-1]
    elif group in {"dollar", "tag"}:
        kind, value = Kind.TEXT, text.split("$", 2)[2].rsplit("$", 2)[0]
    elif group in {"number", "word"}:
        kind = Kind.NUMBER if group == "number" else Kind.WORD
    return Token(kind, value, match.start(), match.end())


def _after_comment(text: str, at: int) -> int:
    """Find where a comment ends; comments may hold comments."""
    depth = 0
    for found in _COMMENT.finditer(text, at):
        depth += 1 if found[0] == "/*" else -1
        if depth == 0:
            return found.end()
    return len(text)


def depths(tokens: Sequence[Token]) -> list[int]:
    """Count the parentheses, brackets and ``case ... end`` that are open around each token, its own not among them."""
    found: list[int] = []
    stack: list[str] = []
    for at, token in enumerate(tokens):
        word = "" if at and tokens[at - 1].value == "." else token.lower
        closes = {")": "(", "]": "[", "}": "{", "end": "case"}.get(word)
        if closes is not None and closes in stack:
            while stack.pop() != closes:
                pass
        found.append(len(stack))
        if word in {"(", "[", "{", "case"}:
            stack.append(word)
    return found


def close_of(tokens: Sequence[Token], at: int) -> int:
    """Find the token that closes the parenthesis at ``at``; the number of tokens where nothing does."""
    deep = depths(tokens)
    return next((n for n in range(at + 1, len(tokens)) if deep[n] == deep[at] and tokens[n].value == ")"), len(tokens))


def name_at(tokens: Sequence[Token], at: int) -> int:
    """Return where a name of one or more parts ends that begins at ``at``; ``at`` itself where there is none."""
    if at >= len(tokens) or not (tokens[at].is_name or tokens[at].kind is Kind.TEXT):
        return at
    end = at + 1
    while end + 1 < len(tokens) and tokens[end].value == "." and tokens[end].kind is Kind.SIGN:
        if not (tokens[end + 1].is_name or tokens[end + 1].kind is Kind.TEXT):
            break
        end += 2
    return end

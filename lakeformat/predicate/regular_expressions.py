r"""Patterns of texts as patterns of RE2, the library by which Arrow searches texts.

`rlike` takes Java's regular expressions. The forms that Java and RE2 understand alike are taken over, and these are
rewritten: ``.`` (Java excludes five line ends), ``$`` (Java accepts a line end after the match), ``^`` and ``\s``. All
other forms (look-around, back references, word boundaries, flags, possessive quantifiers, Unicode classes) are refused.
"""

from __future__ import annotations

import re
from typing import Final

from lakeformat.predicate.nodes import like_tokens

__all__ = ["java_pattern", "like_pattern"]

_LINE_ENDS: Final = r"\n\r\x{85}\x{2028}\x{2029}"
#: Where ``$`` matches in a text that ends with a carriage return and a line feed, and where in all other texts.
_AT_END: Final = {True: r"(?:(?:\r\n)?\z)", False: rf"(?:[{_LINE_ENDS}]?\z)"}
_SPACE: Final = r" \t\n\x0B\f\r"
#: Escapes that mean the same for both, outside and inside of brackets.
_SAME: Final = frozenset("dDwW" + "tnrf")
_TOKEN: Final = re.compile(
    r"(?P<escape>\\.)|(?P<open>\((?:\?:)?(?!\?))|(?P<class>\[)|(?P<close>\))|(?P<repeat>(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??)"
    r"|(?P<plain>[^\\()\[\]{}*+?])",
    re.DOTALL,
)
_IN_CLASS: Final = re.compile(r"\\.|[^\\\[\]&]", re.DOTALL)


def like_pattern(pattern: str) -> str:
    """Return a LIKE pattern as an RE2 pattern, which matches the whole text, line ends included."""
    wild = {"%": ".*", "_": "."}
    return rf"(?s)\A{''.join(wild.get(token) or re.escape(token[1:]) for token in like_tokens(pattern))}\z"


def java_pattern(pattern: str, *, crlf: bool = False) -> str:
    """Return a regular expression of Java as an RE2 pattern that finds the same texts.

    Args:
        crlf: whether the pattern is for texts that end with a carriage return and a line feed.

    Raises:
        ValueError: A form that cannot be translated; the message names it.
    """
    parts: list[str] = []
    depth, position, may_repeat = 0, 0, False
    while position < len(pattern):
        if pattern[position] == "[":
            text, position = _translate_class(pattern, position)
            parts.append(text)
            may_repeat = True
            continue
        match = _TOKEN.match(pattern, position)
        if match is None:
            raise ValueError(
                f"the regular expression {pattern!r} has {pattern[position : position + 3]!r}, which is not supported"
            )
        kind, text = match.lastgroup, match[0]
        position = match.end()
        if kind == "repeat" and not may_repeat:
            raise ValueError(f"the regular expression {pattern!r} has {text!r} after nothing that can be repeated")
        depth += (kind == "open") - (kind == "close")
        if depth < 0:
            break
        if text == "$":
            if depth or pattern[position : position + 1] not in ("", "|"):
                raise ValueError(f"the regular expression {pattern!r} has '$' before its end, which is not supported")
            parts.append(_AT_END[crlf])
        else:
            parts.append(_translate(pattern, kind or "", text))
        may_repeat = kind in ("escape", "close") or (kind == "plain" and text not in "^$|")
    if depth:
        raise ValueError(f"the regular expression {pattern!r} has unpaired parentheses")
    return "".join(parts)


def _translate(pattern: str, kind: str, text: str) -> str:
    if kind == "escape":
        return _translate_escape(pattern, text, in_class=False)
    if kind == "plain":
        special = {".": f"[^{_LINE_ENDS}]", "^": r"\A", "|": "|"}
        return special.get(text) or re.escape(text)
    return text


def _translate_escape(pattern: str, text: str, *, in_class: bool) -> str:
    character = text[1]
    if character == "s":
        return _SPACE if in_class else f"[{_SPACE}]"
    if character in _SAME or (character.isascii() and not character.isalnum()):
        return text
    raise ValueError(f"the regular expression {pattern!r} has {text!r}, which is not supported")


def _translate_class(pattern: str, start: int) -> tuple[str, int]:
    """Translate a class in brackets. Return it, and the place after it."""
    position = start + 1
    negated = pattern.startswith("^", position)
    position += negated
    inner: list[str] = []
    while (match := _IN_CLASS.match(pattern, position)) is not None:
        escaped = match[0].startswith("\\")
        inner.append(_translate_escape(pattern, match[0], in_class=True) if escaped else match[0])
        position = match.end()
    if not inner or not pattern.startswith("]", position) or inner[0] == "^":
        raise ValueError(f"the regular expression {pattern!r} has a class in brackets that is not supported")
    return f"[{'^' * negated}{''.join(inner)}]", position + 1

"""Java's properties format, in which ``hoodie.properties`` and ``.hoodie_partition_metadata`` are stored.

The rules are those of ``java.util.Properties`` (``load`` and ``store``), by which Hudi reads and writes
both files. A file is decoded as latin-1, and written as ASCII with every other character of keys and values as
``\\uXXXX``, in UTF-16 code units.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from lakeformat.errors import CorruptTableError, InvalidInputError

__all__ = ["decode", "encode"]

_BLANKS: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_TRAILING_BACKSLASHES: Final = re.compile(r"\\*\Z")
#: Pattern of one line: the key, then blanks with at most one ``=`` or ``:`` among them, then the value up to the end.
_ENTRY: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_LETTER_ESCAPES: Final = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}
_STORED_ESCAPES: Final = {
    **{value: f"\\{letter}" for letter, value in _LETTER_ESCAPES.items()},
    **{special: f"\\{special}" for special in "\\=:#!"},
}
_NEEDS_ESCAPE: Final = re.compile(r"[^\x20-\x7e]|[\\=:#!]")
_NOT_FOR_COMMENTS: Final = re.compile(r"[^\x01-\xff]")


def decode(data: bytes, *, name: str) -> dict[str, str]:
    """Parse a properties file; return its entries in file order. If a key occurs twice, its last value is returned.

    Args:
        data: The file's bytes.
        name: The file's path, for messages.

    Raises:
        CorruptTableError: ``data`` holds a NUL byte (a partial write), a bad ``\\uXXXX`` escape, or half of a
            surrogate pair.
    """
    if b"\0" in data:
        raise CorruptTableError(f"{name} is not a properties file: it holds NUL bytes; restore the file")
    entries: dict[str, str] = {}
    for line in _logical_lines(data.decode("latin-1")):
        match = _ENTRY.fullmatch(line)
        if match is None:  # Not reachable: every logical line matches.
            raise CorruptTableError(f"{name} is not a properties file: bad line {line!r}; restore the file")
        entries[_unescape(match[1], name)] = _unescape(match[2], name)
    return entries


def encode(values: Mapping[str, str], *, comments: Sequence[str]) -> bytes:
    """Return a properties file: a ``#`` line for each comment, then the entries sorted by key.

    Unlike ``Properties.store``, this adds no date line.

    Raises:
        InvalidInputError: A text holds half of a surrogate pair, which UTF-8 cannot represent.
    """
    head = [_write_comment(comment) for comment in comments]
    body = [f"{_escape(key, is_key=True)}={_escape(values[key], is_key=False)}\n" for key in sorted(values)]
    return "".join([*head, *body]).encode("latin-1")


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines with entries, without indentation. Join each line that ends in a backslash with the next one."""
    pending: list[str] = []
    continued = False
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANKS)
        if line.startswith(("#", "!")) and not any(pending):
            pending, continued = [], False
            continue
        backslashes = _TRAILING_BACKSLASHES.search(line)
        continued = backslashes is not None and len(backslashes[0]) % 2 == 1
        pending.append(line[:-1] if continued else line)
        if not continued:
            if joined := "".join(pending):
                yield joined
            pending = []
    if joined := "".join(pending):  # If the last line ends in a backslash, it is still pending.
        yield joined


def _unescape(text: str, name: str) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        token = match[1]
        if token[0] != "u":
            return _LETTER_ESCAPES.get(token, token)
        if len(token) == 1:
            raise CorruptTableError(f"{name} holds a malformed \\uXXXX escape in {text!r}; restore the file")
        return chr(int(token[1:], 16))

    plain = _ESCAPE.sub(replace, text)
    try:
        return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        message = f"{name} holds half of a surrogate pair in {text!r}; restore the file"
        raise CorruptTableError(message) from None


def _escape(text: str, *, is_key: bool) -> str:
    """Escape a key or value like ``Properties.saveConvert``: all spaces in a key, but only the first one in a value."""
    escaped = _NEEDS_ESCAPE.sub(lambda match: _STORED_ESCAPES.get(match[0]) or _utf16_escape(match[0]), text)
    if is_key:
        return escaped.replace(" ", "\\ ")
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _write_comment(text: str) -> str:
    """Return a comment as ``Properties.writeComments`` does: ``#`` before each line, and only latin-1 unescaped."""
    lines = _LINE_END.split(_NOT_FOR_COMMENTS.sub(lambda match: _utf16_escape(match[0]), text))
    return "".join(f"#{line}\n" for line in lines)


def _utf16_escape(character: str) -> str:
    try:
        units = character.encode("utf-16-be")
    except UnicodeEncodeError:
        message = f"cannot store {character!r} in a properties file: it is half of a surrogate pair"
        raise InvalidInputError(message) from None
    return "".join(f"\\u{units[start : start + 2].hex().upper()}" for start in range(0, len(units), 2))

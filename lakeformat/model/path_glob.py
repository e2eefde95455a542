"""Globs for paths of files, as Hadoop's ``GlobPattern`` understands them."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["compile_glob"]

_OUTSIDE: Final = {"*": ".*", "?": ".", "{": "(?:", "}": ")", ",": "|"}
_TOKENS: Final = re.compile(r"\\(?P<literal>.)|(?P<set>\[[!^]?\]?[^]]*\])|(?P<other>.)", re.DOTALL)


def compile_glob(glob: str) -> re.Pattern[str]:
    """Compile a glob for whole paths. It may begin anywhere in a path, and ``*`` and ``?`` also stand for ``/``.

    Raises:
        ValueError: a brace or bracket is not closed, or a range of characters is backwards.

    >>> bool(compile_glob("b/*").fullmatch("s3://bucket/t/b/file.parquet"))
    True
    >>> bool(compile_glob("{a,c}/*").fullmatch("s3://bucket/t/b/file.parquet"))
    False
    """
    parts, depth = [".*"], 0
    for token in _TOKENS.finditer(glob):
        literal, of_set, other = token.group("literal", "set", "other")
        if of_set is not None:
            parts.append(re.sub(r"^\[!", "[^", of_set))
            continue
        depth += {"{": 1, "}": -1}.get(other, 0)
        special = _OUTSIDE.get(other) if other != "," or depth else None
        parts.append(special or re.escape(literal or other))
        if depth < 0 or other == "[":
            raise ValueError("close each brace and bracket of the glob")
    if depth:
        raise ValueError("close each brace and bracket of the glob")
    try:
        return re.compile("".join(parts), re.DOTALL)
    except re.error as error:
        raise ValueError(f"the glob is not well formed ({error})") from None

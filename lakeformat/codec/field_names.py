"""Detection of a damaged field name: a known name is missing, and an unknown name differs from it by one character.

Decoders skip unknown fields, because newer releases of Hudi add some, and use a default for a missing one, because
older releases lack some. So a damaged name would be skipped, and its value lost without an error.
"""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["check_names"]


def check_names(found: Collection[str], known: Collection[str]) -> None:
    """Raise an error if a name seems to be a damaged form of a known name.

    >>> check_names(["fileId", "pbth"], ["fileId", "path"])
    Traceback (most recent call last):
    ValueError: it has 'pbth' where 'path' is missing

    Args:
        found: the names in a file.
        known: the names that the decoder knows.

    Raises:
        ValueError: a known name is missing, and an unknown one differs from it by one character.
    """
    unknown = [name for name in found if name not in known]
    for missing in (name for name in known if name not in found) if unknown else ():
        for name in unknown:
            if len(name) == len(missing) and sum(a != b for a, b in zip(name, missing, strict=True)) == 1:
                raise ValueError(f"it has {name!r} where {missing!r} is missing")

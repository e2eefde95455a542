"""Which small files of a partition take inserts, and which do not because to rewrite them costs more than it saves.

Hudi's rule adds inserts to every small file. A file that grows to its full size by small appends is then rewritten by
each of them. The rule here keeps Hudi's promise, that small files do not become many, and rewrites less.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from lakeformat.config.resolve import Options
from lakeformat.config.write_options import SMALL_FILE_CANDIDATES, SMALL_FILE_LIMIT

__all__ = ["SmallFile", "choose_files_to_fill", "fills_all_small_files"]

#: To rewrite a file of this many bytes costs about as much as to begin a new file.
_CHEAP_BYTES: Final = 1 << 20
#: A partition gets at most this many times the number of files that its bytes fill. Hudi leaves at least that number.
_MOST_FILES: Final = 2


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A small file group to which inserts may be added. ``at`` is the position of its slice in the partition."""

    at: int
    file_id: str
    size_bytes: int


def choose_files_to_fill(
    sizes: Sequence[int],
    small: Sequence[SmallFile],
    added_bytes: float,
    max_file_bytes: int,
    rewritten: Collection[int] = (),
) -> Sequence[SmallFile]:
    """Choose the small files of a partition to which inserts are added; if none is chosen, they go into a new file.

    1. Chosen are all files that are rewritten anyway, and all whose rewrite is cheap: they are not larger than the
       inserts, or than `_CHEAP_BYTES`.
    2. If there are none, the inserts go into a new file, if the partition has fewer than `_MOST_FILES` times the number
       of files that its bytes fill.
    3. Otherwise the smallest file is chosen.

    Args:
        sizes: bytes of all files of the partition.
        small: those that may take inserts.
        added_bytes: estimated bytes of the inserts.
        rewritten: positions of the files that the write rewrites because of updates.
    """
    cheap_bytes = max(_CHEAP_BYTES, added_bytes)
    cheap = [file for file in small if file.at in rewritten or file.size_bytes <= cheap_bytes]
    if cheap or not small:
        return cheap
    may_open = len(sizes) < _MOST_FILES * math.ceil(sum(sizes) / max(1, max_file_bytes))
    return [] if may_open else [min(small, key=lambda file: (file.size_bytes, file.file_id))]


def fills_all_small_files(options: Options) -> bool:
    """Tell whether inserts fill small files by Hudi's own rule, because the user has set one of its options."""
    return options.is_set(SMALL_FILE_LIMIT) or options.is_set(SMALL_FILE_CANDIDATES)

"""The key facts of a base file's footer, reused for the file's next version: old keys need not be hashed again."""

from __future__ import annotations

from typing import Final

from lakeformat.files.base_file import KeyFacts
from lakeformat.files.footers import KeyFooter
from lakeformat.files.key_range import KeyRange
from lakeformat.storage.port import Storage

__all__ = ["inherited_facts"]

#: A stored filter for more than this many times the rows is not reused.
_OVERSIZED: Final = 4


def inherited_facts(storage: Storage, footer: KeyFooter, incoming: int) -> KeyFacts | None:
    """Return the base file's filter and key range, or None if the new keys do not fit into the filter.

    Keys that are removed stay in both, as in Hudi's growing filters: a filter that is too wide is safe, one that is too
    narrow is not.
    """
    stored = footer.bloom(storage) if footer.minimum is not None and footer.maximum is not None else None
    roomy = stored is not None and len(stored.rows) == 1 and incoming <= stored.free
    if stored is None or not roomy or stored.used + stored.free > _OVERSIZED * max(footer.rows, 1):
        return None
    return KeyFacts(stored, KeyRange(footer.minimum, footer.maximum))

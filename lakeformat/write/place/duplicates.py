"""Insert's duplicate policy: keys that are in the table already, or twice in the batch.

Hudi: ``DataSourceUtils.resolveDuplicates``. Memory: the keys of the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.errors import DuplicateKeyError
from lakeformat.index.port import Ints, Tagged
from lakeformat.model.record import RECORD_KEY
from lakeformat.write.rows.prepare import ANY_PARTITION

__all__ = ["doubled_keys", "refuse_doubled", "stored_keys", "without_stored"]


def doubled_keys(keys: pa.ChunkedArray) -> pa.Array:
    """The keys that come more than once, each once."""
    if pc.count_distinct(keys).as_py() == len(keys):
        return pa.array([], keys.type)
    counts = pc.value_counts(keys)
    return counts.field("values").filter(pc.greater(counts.field("counts"), 1))


def refuse_doubled(rows: Mapping[str, pa.Table]) -> None:
    """Refuse a batch that holds a key twice in one partition.

    Args:
        rows: partition path -> prepared rows.

    Raises:
        DuplicateKeyError: names such a key.
    """
    for partition, table in rows.items():
        doubled = doubled_keys(table.column(RECORD_KEY))
        if len(doubled):
            raise DuplicateKeyError(
                f"{len(doubled)} record key(s) come more than once in the input, e.g. {doubled[0].as_py()!r}"
                f"{_within(partition)}; leave them out, or set hoodie.datasource.insert.dup.policy=drop"
            )


def without_stored(rows: Mapping[str, pa.Table], tagged: Mapping[str, Tagged], *, fail: bool) -> dict[str, Tagged]:
    """Only the rows whose keys no file holds, and those whose row log files have deleted: these go where it stood.

    Args:
        rows: partition path -> prepared rows.
        tagged: exact locations of all of them.
        fail: whether a stored key is refused; else its row is left out.

    Raises:
        DuplicateKeyError: names a key that is stored.
    """
    stored = {path: keys for path, found in tagged.items() if len(keys := stored_keys(found))}
    if fail and stored:
        path, keys = next(iter(stored.items()))
        key = rows[path].column(RECORD_KEY)[int(keys[0])].as_py()
        total = sum(map(len, stored.values()))
        raise DuplicateKeyError(
            f"{total} record key(s) of the input are in the table already, e.g. {key!r}{_within(path)}; leave "
            "them out, use operation upsert, or set hoodie.datasource.insert.dup.policy=drop"
        )
    return {path: _again(found, stored_keys(found)) for path, found in tagged.items()}


def stored_keys(found: Tagged) -> Ints:
    """Keys of which some slice has a row."""
    return np.unique(found.keys if found.gone is None else found.keys[~found.gone])


def _again(found: Tagged, stored: Ints) -> Tagged:
    """The pairs of the other keys, one each."""
    left = np.flatnonzero(~np.isin(found.keys, stored))
    left = left[np.unique(found.keys[left], return_index=True)[1]]
    gone = None if found.gone is None else found.gone[left]
    return replace(found, keys=found.keys[left], files=found.files[left], gone=gone, base_rows=None)


def _within(partition: str) -> str:
    return "" if partition == ANY_PARTITION else f" in partition {partition!r}"

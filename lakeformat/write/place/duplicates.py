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
from lakeformat.index.port import Tagged
from lakeformat.model.record import RECORD_KEY
from lakeformat.write.rows.prepare import ANY_PARTITION

__all__ = ["doubled_keys", "refuse_doubled", "without_stored"]


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
    """Only the rows whose keys no file holds.

    Args:
        rows: partition path -> prepared rows.
        tagged: exact locations of all of them.
        fail: whether a stored key is refused; else its row is left out.

    Raises:
        DuplicateKeyError: names a key that is stored.
    """
    stored = {path: found for path, found in tagged.items() if len(found.keys)}
    if fail and stored:
        path, found = next(iter(stored.items()))
        key = rows[path].column(RECORD_KEY)[int(found.keys[0])].as_py()
        total = sum(len(np.unique(found.keys)) for found in stored.values())
        raise DuplicateKeyError(
            f"{total} record key(s) of the input are in the table already, e.g. {key!r}{_within(path)}; leave "
            "them out, use operation upsert, or set hoodie.datasource.insert.dup.policy=drop"
        )
    nothing = np.empty(0, np.int64)
    return {path: replace(found, keys=nothing, files=nothing) for path, found in tagged.items()}


def _within(partition: str) -> str:
    return "" if partition == ANY_PARTITION else f" in partition {partition!r}"

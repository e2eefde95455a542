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

__all__ = ["drop_stored_rows", "find_repeated_keys", "find_stored_keys", "refuse_repeated_keys"]


def find_repeated_keys(keys: pa.ChunkedArray) -> pa.Array:
    """Return the keys that occur more than once, each once."""
    if pc.count_distinct(keys).as_py() == len(keys):
        return pa.array([], keys.type)
    counts = pc.value_counts(keys)
    return counts.field("values").filter(pc.greater(counts.field("counts"), 1))


def refuse_repeated_keys(rows: Mapping[str, pa.Table]) -> None:
    """Refuse a batch that holds a key twice in one partition.

    Args:
        rows: partition path -> prepared rows.

    Raises:
        DuplicateKeyError: names such a key.
    """
    for partition, table in rows.items():
        repeated = find_repeated_keys(table.column(RECORD_KEY))
        if len(repeated):
            raise DuplicateKeyError(
                f"{len(repeated)} record key(s) come more than once in the input, e.g. {repeated[0].as_py()!r}"
                f"{_partition_text(partition)}; leave them out, or set hoodie.datasource.insert.dup.policy=drop"
            )


def drop_stored_rows(rows: Mapping[str, pa.Table], tagged: Mapping[str, Tagged], *, fail: bool) -> dict[str, Tagged]:
    """Drop rows whose keys a file holds. Keep rows whose stored version log files have deleted; they go to that slice.

    Args:
        rows: partition path -> prepared rows.
        tagged: exact locations of all rows.
        fail: whether a stored key raises an error. If not, its row is dropped.

    Raises:
        DuplicateKeyError: names a key that is stored.
    """
    stored = {path: keys for path, found in tagged.items() if len(keys := find_stored_keys(found))}
    if fail and stored:
        path, keys = next(iter(stored.items()))
        key = rows[path].column(RECORD_KEY)[int(keys[0])].as_py()
        total = sum(map(len, stored.values()))
        raise DuplicateKeyError(
            f"{total} record key(s) of the input are in the table already, e.g. {key!r}{_partition_text(path)}; leave "
            "them out, use operation upsert, or set hoodie.datasource.insert.dup.policy=drop"
        )
    return {path: _drop_keys(found, find_stored_keys(found)) for path, found in tagged.items()}


def find_stored_keys(tagged: Tagged) -> Ints:
    """Return the positions of the keys that some slice holds a row of."""
    return np.unique(tagged.keys if tagged.is_deleted is None else tagged.keys[~tagged.is_deleted])


def _drop_keys(tagged: Tagged, stored: Ints) -> Tagged:
    """Return the location without the stored keys, with one pair for each key that is left."""
    kept_pairs = np.flatnonzero(~np.isin(tagged.keys, stored))
    kept_pairs = kept_pairs[np.unique(tagged.keys[kept_pairs], return_index=True)[1]]
    kept_gone = None if tagged.is_deleted is None else tagged.is_deleted[kept_pairs]
    return replace(
        tagged, keys=tagged.keys[kept_pairs], files=tagged.files[kept_pairs], is_deleted=kept_gone, base_rows=None
    )


def _partition_text(partition: str) -> str:
    return "" if partition == ANY_PARTITION else f" in partition {partition!r}"

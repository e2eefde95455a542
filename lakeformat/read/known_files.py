"""What a snapshot is made of, told without a look at its rows: its files as a table, and how many rows they hold."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.files.footers import read_metadata
from lakeformat.model.files import FileSlice
from lakeformat.storage.port import Storage
from lakeformat.table_state.live import Portion, file_objects, merged_rows
from lakeformat.table_state.snapshot import Snapshot

__all__ = ["FILES_SCHEMA", "known_files", "known_rows"]

#: ``path`` is the base file's, relative to the table, null where a slice has none; ``rows`` the base file's, null
#: where only its footer could tell; ``size_bytes`` of all files of the slice.
FILES_SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("partition_path", pa.string()),
        pa.field("file_id", pa.string()),
        pa.field("instant_time", pa.string()),
        pa.field("size_bytes", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("log_files", pa.list_(pa.string())),
    ]
)


def known_files(snapshot: Snapshot) -> pa.Table:
    """The live file slices, a row each (`FILES_SCHEMA`). Memory: some 200 bytes a slice; no file is opened."""
    portions = [_of_portion(portion) for portion in snapshot.live.portions()]
    return pa.concat_tables([FILES_SCHEMA.empty_table(), *portions])


def _of_portion(portion: Portion) -> pa.Table:
    files = portion.files
    names, partitions = files["name"], files["partition_path"]
    folders = pc.if_else(pc.equal(partitions, ""), "", pc.binary_join_element_wise(partitions, "", "/"))
    columns = [
        pc.binary_join_element_wise(folders, names, ""),
        partitions,
        pc.replace_substring_regex(names, "_.*", ""),
        files["instant_time"],
        files["size_bytes"],
        files["rows"],
        pa.nulls(files.num_rows, pa.list_(pa.string())),
    ]
    plain = pa.Table.from_arrays(columns, schema=FILES_SCHEMA)
    logged = merged_rows(portion)
    if portion.slices is None or not logged.any():
        return plain
    slices = pa.Table.from_pylist([_of_slice(each) for each in portion.slices if each is not None], FILES_SCHEMA)
    return pa.concat_tables([plain.filter(pa.array(~logged)), slices]).sort_by(
        [("partition_path", "ascending"), ("file_id", "ascending")]
    )


def _of_slice(each: FileSlice) -> dict[str, object]:
    return {
        "path": each.base.path if each.base else None,
        "partition_path": each.group.partition_path,
        "file_id": each.group.file_id,
        "instant_time": each.base_instant,
        "size_bytes": each.size_bytes,
        "log_files": [log.path for log in each.logs],
    }


def known_rows(storage: Storage, snapshot: Snapshot) -> int | None:
    """How many rows a snapshot has: by the file index, of other files by their footers. None where logs must be merged.

    Raises:
        CorruptTableError: a footer that is needed is damaged; names the file.
    """
    if snapshot.live.has_logs or snapshot.changes is not None:
        return None
    total = 0
    with ThreadPoolExecutor(max(2, pa.cpu_count())) as pool:
        for portion in snapshot.live.portions():
            counts = portion.files["rows"]
            total += pc.sum(counts, min_count=0).as_py()
            unknown = file_objects(portion.files.filter(pc.is_null(counts)))
            total += sum(pool.map(lambda file: int(read_metadata(storage, file).num_rows), unknown))
    return total

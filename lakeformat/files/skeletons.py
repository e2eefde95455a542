"""Base files of bootstrapped tables that hold the meta columns only, each joined with the file of its other columns.

A bootstrap that only makes meta columns writes a *skeleton* for each file that was there before, its *source*: row i of
the skeleton belongs to row i of the source (Hudi: ``MetadataOnlyBootstrapModeSelector``). The bootstrap index names the
source of each skeleton.

A skeleton is opened as one Parquet file with all columns. Its first bytes are the source's, and stay where they are.
After them come the meta columns, encoded anew in the row groups of the source, and a footer of all columns. So all
readers and writers of base files take it for an ordinary one.

Memory: the meta columns of the file.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.codec import properties
from lakeformat.codec.avro.container import decode_record, file_schema, optional_field
from lakeformat.codec.hfile import HFile
from lakeformat.errors import CorruptTableError, UnsupportedTableError
from lakeformat.files.batch_rows import OpenParquet
from lakeformat.files.splice import field_ids as ids
from lakeformat.files.splice.spliced_file import move_chunk
from lakeformat.files.splice.stored_groups import MAGIC, ParquetFooter, find_stored_groups, read_footer
from lakeformat.files.splice.thrift_tree import (
    I64,
    LIST,
    STRUCT,
    Field,
    SpliceError,
    Struct,
    encode_struct,
    read_field,
)
from lakeformat.model.files import BOOTSTRAP_TIME, BaseFileName, join_path
from lakeformat.model.record import META_COLUMNS
from lakeformat.model.table_config import BOOTSTRAP_BASE, PROPERTIES_PATH
from lakeformat.storage import open_beside
from lakeformat.storage.port import Storage

__all__ = ["find_source", "is_skeleton", "open_rows"]

_INDEX_FOLDER: Final = ".hoodie/.aux/.bootstrap/.fileids"
_TEXT: Final = "string"
_PATH: Final = {"type": "record", "name": "HoodiePath", "fields": [{"name": "uri", "type": ["null", _TEXT]}]}
_STATUS: Final = {"type": "record", "name": "HoodieFileStatus", "fields": [{"name": "path", "type": ["null", _PATH]}]}
_ENTRY: Final = file_schema("HoodieBootstrapFilePartitionInfo", optional_field("bootstrapFileStatus", _STATUS))
_INFO: Final = file_schema("HoodieBootstrapIndexInfo", optional_field("bootstrapBasePath", _TEXT))
_META: Final = pa.schema([pa.field(name, pa.string()) for name in META_COLUMNS])


def is_skeleton(path: str) -> bool:
    """Tell by the name of a base file whether it holds the meta columns only."""
    return path.endswith(f"_{BOOTSTRAP_TIME}.parquet")


def open_rows(storage: Storage, path: str) -> Any:
    """Open a base file as a Parquet file with all its columns.

    Raises:
        FileNotFoundError: the base file is missing.
        CorruptTableError, UnsupportedTableError: the source of a skeleton is missing or cannot be read; the message
            names it.
    """
    if not is_skeleton(path):
        return storage.open_input(path)
    where = f"{storage.location}/{path}"
    with storage.open_input(path) as skeleton:
        uri = find_source(storage, path)
        folder, _, name = uri.rpartition("/")
        try:
            source = open_beside(storage, folder).open_input(name)
        except FileNotFoundError:
            raise CorruptTableError(
                f"{where} has only the meta columns of its rows, and the file of the others, {uri}, is missing; "
                f"put it there, or set {BOOTSTRAP_BASE} in {PROPERTIES_PATH} to the folder to which it was moved"
            ) from None
        try:
            return pa.PythonFile(_join(skeleton, source), mode="r")
        except (SpliceError, ValueError, pa.ArrowException) as error:
            raise UnsupportedTableError(f"{where} cannot be joined with {uri}: {error}; use Apache Hudi") from None


def find_source(storage: Storage, path: str) -> str:
    """Return the URI of the file with the other columns of a skeleton.

    If the bootstrap index has it below the folder that was bootstrapped, and the table's properties now name another
    folder, the file is looked for there.
    """
    folder, _, file_name = path.rpartition("/")
    key = f"part={folder};fileid={BaseFileName.parse(file_name).file_id}"
    for entry in storage.list(_INDEX_FOLDER):
        if not entry.name.endswith(".hfile"):
            continue
        name = join_path(_INDEX_FOLDER, entry.name)
        with storage.open_input(name) as opened:
            index = HFile(opened, name, lambda _: None)
            cells = index.look_up(pa.array([key]))
            if cells.num_rows:
                value, info = cells["value"][0].as_py(), index.info["INDEX_INFO"]
                uri = str(decode_record(value, _ENTRY, name=name)["bootstrapFileStatus"]["path"]["uri"])
                base = decode_record(info, _INFO, name=name)["bootstrapBasePath"]
                return _map_source(uri, str(base or ""), _read_base(storage))
    raise CorruptTableError(
        f"{storage.location}/{path} has only the meta columns of its rows, and {_INDEX_FOLDER} does not name the "
        "file of the others; restore that folder from a copy"
    )


def _read_base(storage: Storage) -> str:
    text = properties.decode(storage.read(PROPERTIES_PATH), name=PROPERTIES_PATH)
    return text.get(BOOTSTRAP_BASE, "")


def _map_source(uri: str, old: str, new: str) -> str:
    """Return where a source is now, if its folder was moved from ``old`` to ``new``."""
    below = f"{_plain(old).rstrip('/')}/"
    if old and new and _plain(uri).startswith(below):
        return f"{new.rstrip('/')}/{_plain(uri).removeprefix(below)}"
    return uri


def _plain(uri: str) -> str:
    """Return a URI of a local file as a path; another URI as it is."""
    return "/" + uri.removeprefix("file:").lstrip("/") if uri.startswith("file:") else uri


class _JoinedFile(io.RawIOBase):
    """The first bytes of a file, and after them bytes in memory."""

    def __init__(self, source: Any, kept: int, tail: bytes) -> None:
        super().__init__()
        self._source, self._kept, self._tail, self._at = source, kept, tail, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._kept + len(self._tail)}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        end = self._kept + len(self._tail)
        end = end if size < 0 else min(end, self._at + size)
        parts: list[bytes] = []
        if self._at < min(end, self._kept):
            self._source.seek(self._at)
            parts.append(bytes(self._source.read(min(end, self._kept) - self._at)))
            if len(parts[0]) < min(end, self._kept) - self._at:
                raise OSError("the file became shorter while it was read")
        if end > self._kept:
            parts.append(self._tail[max(self._at - self._kept, 0) : end - self._kept])
        self._at = max(self._at, end)
        return b"".join(parts)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


def _join(skeleton: Any, source: Any) -> _JoinedFile:
    """Return one Parquet file with the columns of a skeleton and of its source, in the row groups of the source."""
    footer, own = read_footer(source), read_footer(skeleton)
    groups = [group for group in footer.groups if read_field(group, ids.GROUP_ROWS, I64)]
    sizes = [read_field(group, ids.GROUP_ROWS, I64) for group in groups]
    rows = OpenParquet(skeleton).read(list(META_COLUMNS)).cast(_META)
    if rows.num_rows != sum(sizes):
        raise SpliceError(f"it has {rows.num_rows} rows, and that file has {sum(sizes)}")
    encoded = _encode(rows, sizes)
    reader = pa.BufferReader(encoded)
    meta = read_footer(reader)
    chunks = [
        [move_chunk(chunk, footer.start + chunk.start, None) for chunk in group.chunks]
        for group in find_stored_groups(reader, meta, range(len(sizes))).values()
    ]
    tree = encode_struct(_join_footers(footer, meta, own, groups, chunks))
    tail = b"".join((encoded.to_pybytes(), tree, len(tree).to_bytes(4, "little"), MAGIC))
    return _JoinedFile(source, footer.start, tail)


def _encode(rows: pa.Table, sizes: Sequence[int]) -> pa.Buffer:
    """Return a Parquet file of the rows with row groups of these sizes."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, store_schema=False, write_page_checksum=True) as writer:
        for start, end in pairwise(np.cumsum([0, *sizes]).tolist()):
            writer.write_table(rows.slice(start, end - start), end - start)
    return sink.getvalue()


def _join_footers(
    source: ParquetFooter,
    meta: ParquetFooter,
    own: ParquetFooter,
    groups: Sequence[Struct],
    chunks: Sequence[Sequence[Struct]],
) -> Struct:
    """Return the footer of the joined file.

    Args:
        source: the footer of the source, which names the writer of most columns.
        meta: the footer of the meta columns, encoded anew.
        own: the footer of the skeleton, whose entries are kept: key range and bloom filter.
        groups: the row groups of the source that have rows.
        chunks: for each row group, the column chunks of the meta columns at their places.
    """
    root, *columns = read_field(source.tree, ids.SCHEMA, LIST)[1]
    leaves = read_field(meta.tree, ids.SCHEMA, LIST)[1][1:]
    count = root[ids.CHILDREN]
    whole = {**root, ids.CHILDREN: Field(count.kind, count.value + len(leaves))}
    tree = {
        **source.tree,
        ids.SCHEMA: Field(LIST, (STRUCT, [whole, *leaves, *columns])),
        ids.ROW_GROUPS: Field(LIST, (STRUCT, [_join_group(*pair) for pair in zip(groups, chunks, strict=True)])),
    }
    for name in (ids.KEY_VALUES, ids.COLUMN_ORDERS):
        tree.pop(name, None)
    if ids.KEY_VALUES in own.tree:
        tree[ids.KEY_VALUES] = own.tree[ids.KEY_VALUES]
    if ids.COLUMN_ORDERS in source.tree and ids.COLUMN_ORDERS in meta.tree:
        orders = [order for footer in (meta, source) for order in read_field(footer.tree, ids.COLUMN_ORDERS, LIST)[1]]
        tree[ids.COLUMN_ORDERS] = Field(LIST, (STRUCT, orders))
    return tree


def _join_group(group: Struct, chunks: Sequence[Struct]) -> Struct:
    """Return a row group with further column chunks before its own. Its order refers to columns by number."""
    metas = [read_field(chunk, ids.META, STRUCT) for chunk in chunks]
    sums = {ids.TOTAL_BYTES: ids.PLAIN_BYTES, ids.COMPRESSED_BYTES: ids.STORED_BYTES}
    more = {
        total: Field(I64, read_field(group, total, I64) + sum(read_field(meta, part, I64) for meta in metas))
        for total, part in sums.items()
        if total in group
    }
    own = read_field(group, ids.COLUMNS, LIST)[1]
    kept = {number: field for number, field in group.items() if number != ids.SORTING_COLUMNS}
    return {**kept, **more, ids.COLUMNS: Field(LIST, (STRUCT, [*chunks, *own]))}

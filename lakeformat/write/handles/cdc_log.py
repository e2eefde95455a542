"""Change data files: they are written beside rewritten base files and list the changed rows.

Source: Hudi's ``HoodieMergeHandleWithChangeLog`` and ``HoodieCDCLogger``.

To find the changes, each batch of stored rows is compared with the rows that the merger makes of it:

- A row with the new commit's time is an update.
- A key that is missing from the merger's rows is a delete.
- The rows that the merger adds after the last batch are inserts.

Memory: the rows before and after their changes, up to a row group's bytes, and the keys of the batch.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.arrow.conform import conform
from lakeformat.codec.avro.schema import to_avro
from lakeformat.files.log_writer import encode_change_block
from lakeformat.merge.order import pair_keys
from lakeformat.model.files import join_path
from lakeformat.model.record import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY
from lakeformat.model.table_config import ChangeLogging
from lakeformat.storage.port import Storage

__all__ = ["ChangeLog", "ChangeLogSettings", "HandleMerger", "log_changes"]

_TEXT: Final = ["null", "string"]


class HandleMerger(Protocol):
    """An object that changes the rows of one base file: it replaces and drops rows batch by batch, then adds rows."""

    @property
    def updates(self) -> int:
        """Return the number of stored rows replaced so far."""

    @property
    def deletes(self) -> int:
        """Return the number of stored rows deleted so far."""

    @property
    def unmatched_lookups(self) -> int:
        """Return the number of rows that the index located in this base file, but that no batch so far has held."""

    @property
    def lookup_columns(self) -> Collection[str]:
        """Return the names of the stored columns by which `find` finds rows; the record key is among them."""

    def find_touched_groups(self, metadata: pq.FileMetaData) -> Sequence[bool]:
        """Tell for each row group of the base file whether it may hold a row that changes, by the statistics."""

    def find(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Find the rows of a batch that may change; None if there are none. The method does not change the merger.

        Args:
            batch: stored rows with the columns of `lookup_columns`, and maybe others.
        """

    def needed_columns(self, found: pa.Array) -> Collection[str] | None:
        """Return the names of the columns that `apply` needs besides those of `lookup_columns`; None if it needs all.

        Args:
            found: what `find` found in a batch.
        """

    def apply(self, batch: pa.RecordBatch, found: pa.Array | None) -> Iterator[pa.Table]:
        """Yield a batch of stored rows with changed rows replaced and deleted rows dropped.

        If the new rows are large, the batch is yielded in several parts. A column whose values stay the same keeps its
        memory.

        Args:
            found: what `find` found in this batch.
        """

    def emit_inserts(self) -> Iterator[pa.Table]:
        """Yield the rows to add, with their meta columns. Call this once, after the last batch of stored rows."""


@dataclass(frozen=True, slots=True)
class ChangeLogSettings:
    """Settings of the change data files. They can be pickled.

    Attributes:
        mode: whether a change is stored as key only, with the row before it, or with the rows before and after it.
        columns: the table's columns, without meta columns.
        schema: Avro schema of a change record, as JSON.
        block_bytes: when the logged changes in memory have this many bytes, they are written as a block.
    """

    mode: ChangeLogging
    columns: pa.Schema
    schema: str
    block_bytes: int

    @classmethod
    def of(cls, mode: ChangeLogging, columns: pa.Schema, table_name: str, block_bytes: int) -> ChangeLogSettings:
        """Return the settings for a table with these columns.

        Source of the schema: Hudi's ``HoodieCDCUtils.schemaBySupplementalLoggingMode``.
        """
        image = json.loads(to_avro(columns, table_name=table_name))
        space = image.pop("namespace")
        record: dict[str, Any]
        if mode is ChangeLogging.OP_KEY_ONLY:
            texts = [{"name": name, "type": ["string", "null"]} for name in ("op", "record_key")]
            record = {"type": "record", "name": "Record", "fields": texts}
        else:
            both = mode is ChangeLogging.DATA_BEFORE_AFTER
            kinds = {"op": _TEXT, "ts_ms" if both else "record_key": _TEXT, "before": ["null", image]}
            if both:
                kinds["after"] = ["null", image["name"]]
            fields = [{"name": name, "type": kind, "doc": "", "default": None} for name, kind in kinds.items()]
            record = {"type": "record", "name": "CDC", "namespace": space, "fields": fields}
        return cls(mode, columns, json.dumps(record, separators=(",", ":")), block_bytes)


class ChangeLog:
    """A file of change data. It is created when the first change is logged.

    Attributes:
        size_bytes: bytes written so far; 0 if there is no file.
    """

    def __init__(
        self, storage: Storage, target: str, instant_time: str, settings: ChangeLogSettings, files: ExitStack
    ) -> None:
        self._storage, self._target, self._time, self._files = storage, target, instant_time, files
        self._settings = settings
        self._sink: Any = None
        self._make_image = pa.struct(list(settings.columns))
        self._held: list[pa.Table] = []
        self._held_bytes = self.size_bytes = 0

    def stats(self, partition_path: str) -> tuple[tuple[str, int], ...]:
        """Return the file's final path and size in bytes, for the commit's write stats; empty if there is no file."""
        path = join_path(partition_path, self._target.rpartition("/")[2])
        return ((path, self.size_bytes),) if self.size_bytes else ()

    def add(self, op: str, keys: pa.Array, before: Any, after: Any) -> None:
        """Log inserts, updates or deletes.

        Args:
            op: the kind of the changes: ``i``, ``u`` or ``d``.
            keys: the record keys of the changed rows.
            before: the rows before the change, one per key, in the same order; None for inserts.
            after: the rows after the change, one per key, in the same order; None for deletes.
        """
        count = len(keys)
        if not count:
            return
        mode = self._settings.mode
        columns: dict[str, Any] = {"op": pa.repeat(op, count)}
        if mode is ChangeLogging.DATA_BEFORE_AFTER:
            columns["ts_ms"] = pa.repeat(self._time, count)
        else:
            columns["record_key"] = keys.cast(pa.string())
        if mode is not ChangeLogging.OP_KEY_ONLY:
            columns["before"] = self._images(before, count)
        if mode is ChangeLogging.DATA_BEFORE_AFTER:
            columns["after"] = self._images(after, count)
        rows = pa.table(columns)
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= self._settings.block_bytes:
            self.flush()

    def flush(self) -> None:
        """Write the logged changes that are still in memory to the file, as one block."""
        if not self._held:
            return
        if self._sink is None:
            self._sink = self._files.enter_context(self._storage.open_output(self._target))
        rows = pa.concat_tables(self._held)
        block = encode_change_block(rows, instant_time=self._time, schema=self._settings.schema)
        self._sink.write(block)
        self.size_bytes += len(block)
        self._held, self._held_bytes = [], 0

    def _images(self, rows: Any, count: int) -> pa.Array:
        if rows is None:
            return pa.nulls(count, self._make_image)
        shaped = conform(rows, self._settings.columns)
        if isinstance(shaped, pa.Table):
            shaped = shaped.combine_chunks()
        columns = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in shaped.columns]
        return pa.StructArray.from_arrays(columns, fields=list(self._settings.columns))


class _LoggingMerger:
    """A merger that passes batches to another merger, and logs that merger's changes."""

    def __init__(self, merger: HandleMerger, log: ChangeLog, instant_time: str) -> None:
        self._merger, self._log, self._time = merger, log, instant_time

    @property
    def updates(self) -> int:
        return self._merger.updates

    @property
    def deletes(self) -> int:
        return self._merger.deletes

    @property
    def unmatched_lookups(self) -> int:
        return self._merger.unmatched_lookups

    @property
    def lookup_columns(self) -> Collection[str]:
        return self._merger.lookup_columns

    def find_touched_groups(self, metadata: pq.FileMetaData) -> Sequence[bool]:
        return self._merger.find_touched_groups(metadata)

    def find(self, batch: pa.RecordBatch) -> pa.Array | None:
        return self._merger.find(batch)

    def needed_columns(self, found: pa.Array) -> Collection[str] | None:
        return None

    def apply(self, batch: pa.RecordBatch, found: pa.Array | None) -> Iterator[pa.Table]:
        if found is None:
            yield from self._merger.apply(batch, found)
            return
        deletes = self.deletes
        keys, visible = batch.column(RECORD_KEY), [pa.array([], pa.string())]
        if pc.count_distinct(keys).as_py() < len(keys):
            yield from self._apply_to_repeated_keys(batch, found)
            return
        for part in self._merger.apply(batch, found):
            new = part.filter(pc.equal(part.column(COMMIT_TIME).cast(pa.string()), self._time))
            new_keys = _text(new)
            self._log.add("u", new_keys, batch.take(pc.index_in(new_keys, value_set=keys)), new)
            visible.append(_text(part))
            yield part
        if self.deletes > deletes:
            gone = pc.invert(pc.is_in(keys, value_set=pa.concat_arrays(visible)))
            self._log.add("d", keys.filter(gone), batch.filter(gone), None)

    def _apply_to_repeated_keys(self, batch: pa.RecordBatch, matches: pa.Array) -> Iterator[pa.Table]:
        """Apply the merger to a batch in which several rows have the same key, and log the changes.

        The key does not show which of these rows has changed. But the merger changes a row's sequence number only with
        the row, so a sequence number that remains marks an unchanged row.
        """
        parts = list(self._merger.apply(batch, matches))
        yield from parts
        is_new = [pc.equal(part.column(COMMIT_TIME).cast(pa.string()), self._time) for part in parts]
        unchanged = [part.filter(pc.invert(new)) for part, new in zip(parts, is_new, strict=True)]
        same = pa.concat_arrays([_text(rows, COMMIT_SEQNO) for rows in unchanged])
        old = batch.filter(pc.invert(pc.is_in(batch.column(COMMIT_SEQNO).cast(pa.string()), value_set=same)))
        written = [part.filter(new) for part, new in zip(parts, is_new, strict=True)]
        new = pa.concat_tables(written, promote_options="permissive")
        before, after = old.column(RECORD_KEY).cast(pa.string()), _text(new)
        old_at, new_at = pair_keys(before, after)
        self._log.add("u", after.take(pa.array(new_at)), old.take(pa.array(old_at)), new.take(pa.array(new_at)))
        unpaired, right = (
            np.setdiff1d(np.arange(len(of)), positions) for of, positions in ((before, old_at), (after, new_at))
        )
        self._log.add("d", before.take(pa.array(unpaired)), old.take(pa.array(unpaired)), None)
        self._log.add("i", after.take(pa.array(right)), None, new.take(pa.array(right)))

    def emit_inserts(self) -> Iterator[pa.Table]:
        for rows in self._merger.emit_inserts():
            self._log.add("i", _text(rows), None, rows)
            yield rows


def _text(rows: pa.Table, name: str = RECORD_KEY) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.string()), *rows.column(name).cast(pa.string()).chunks])


@contextmanager
def log_changes(
    storage: Storage, merger: HandleMerger, target: str, instant_time: str, settings: ChangeLogSettings
) -> Iterator[tuple[HandleMerger, ChangeLog]]:
    """Yield a merger that works like ``merger`` and logs its changes, and the log.

    The change data file is complete when the ``with`` block ends.

    Args:
        merger: the merger whose changes are logged.
        target: path of the change data file.
    """
    with ExitStack() as files:
        log = ChangeLog(storage, target, instant_time, settings, files)
        yield _LoggingMerger(merger, log, instant_time), log
        log.flush()

"""A deltacommit beside a compaction: it updates one row of a file group in a log file, named as the layout requires."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakeformat
from lakeformat.codec.avro.schema import to_avro, with_meta
from lakeformat.file_system_view.live_files import ListedSlices
from lakeformat.files.log_writer import encode_parquet_block
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import FileGroupId, FileSlice, LogFileName, join_path
from lakeformat.model.instant import Action, Instant, State, next_instant_time
from lakeformat.transaction.order.claims import Claim, claim_instant, release

__all__ = ["Append", "slices"]


def slices(table: lakeformat.Table) -> tuple[FileSlice, ...]:
    """Return the newest slice of each file group."""
    snapshot = table.snapshot()
    if isinstance(snapshot.live, ListedSlices):
        return snapshot.live.slices
    return tuple(FileSlice(file.group, file.name.instant_time, file) for file in snapshot.files)


@dataclass
class Append:
    """An update of one row by a log file. ``begin`` claims the instant; ``finish`` writes the file and completes it.

    Attributes:
        planned: the pending compactions that the update knows.
    """

    table: lakeformat.Table
    value: str = "late"
    time: str = ""
    key: str = ""
    planned: Mapping[FileGroupId, str] = field(default_factory=dict)

    def begin(self) -> Append:
        context = self.table.context
        self.planned = context.store.read_compaction_groups(context.store.load())
        taken = claim_instant(
            context.store, context.store.config(), context.clock, Action.DELTA_COMMIT, Claim("heartbeat", "0" * 32)
        )
        self.time = taken.time
        context.storage.create(context.store.path(taken.at(State.INFLIGHT)), self._encoded({}))
        return self

    def finish(self) -> Append:
        context, store = self.table.context, self.table.context.store
        piece = max((each for each in slices(self.table) if each.base is not None), key=lambda each: len(each.logs))
        assert piece.base is not None
        row = self._row(piece)
        layout_2 = store.layout.has_completion_times
        of_slice = self.time if layout_2 else self.planned.get(piece.group, piece.base_instant)
        versions = [log.name.version for log in piece.logs if log.name.instant_time == of_slice]
        name = LogFileName(piece.group.file_id, of_slice, max(versions, default=0) + 1, "0-0-0")
        path = join_path(piece.group.partition_path, str(name))
        sink = io.BytesIO()
        pq.write_table(row, sink)
        schema = to_avro(with_meta(self.table.snapshot().columns("")), table_name="t")
        data = encode_parquet_block(sink.getvalue(), instant_time=self.time, schema=schema)
        context.storage.create(path, data)
        stat = WriteStat(
            piece.group.file_id, path, piece.group.partition_path, of_slice, 1, num_updates=1, size_bytes=len(data)
        )
        now = store.load().last_time
        end = next_instant_time(context.clock.now_ms(), now, store.config().zone) if layout_2 else None
        done = Instant(self.time, Action.DELTA_COMMIT, State.COMPLETED, end)
        stats = {piece.group.partition_path: (stat,)}
        context.storage.create(store.path(done), self._encoded(stats))
        release(context.storage, self.time)
        return self

    def run(self) -> Append:
        return self.begin().finish()

    def _encoded(self, stats: dict[str, tuple[WriteStat, ...]]) -> bytes:
        layout = self.table.context.store.layout
        schema = to_avro(self.table.snapshot().columns(""), table_name="t")
        return layout.encode_commit(CommitMetadata("UPSERT", stats, {"schema": schema}))

    def _row(self, piece: FileSlice) -> pa.Table:
        assert piece.base is not None
        stored = pq.read_table(
            f"{self.table.context.storage.location}/{piece.base.path}", columns=["_hoodie_record_key"]
        )
        rows = self.table.to_arrow(meta_columns=True)
        keys = rows.column("_hoodie_record_key").to_pylist()
        paths = rows.column("_hoodie_partition_path").to_pylist()
        known = set(stored.column(0).to_pylist())
        at = next(at for at, key in enumerate(keys) if key in known and paths[at] == piece.group.partition_path)
        self.key = keys[at]
        row: dict[str, Any] = rows.slice(at, 1).to_pylist()[0]
        row |= {"name": self.value, "ts": row["ts"] + 1000, "_hoodie_commit_time": self.time}
        return pa.Table.from_pylist([row], schema=rows.schema)

    def seen(self) -> bool:
        """Tell whether a reader sees the updated row."""
        rows = lakeformat.open(self.table.context.storage.location).to_arrow(columns=["_hoodie_record_key", "name"])
        found = dict(zip(*(rows.column(name).to_pylist() for name in ("_hoodie_record_key", "name")), strict=True))
        return bool(found[self.key] == self.value)

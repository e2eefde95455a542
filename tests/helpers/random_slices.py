"""Merge-on-read tables made by hand in memory: base files of small row groups, and log files of all kinds of blocks.

After every change, a dictionary from key to row has the content of the table.
"""

from __future__ import annotations

import io
import json
import random
import struct
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat import Table
from lakeformat.codec.log_blocks import BlockKind, HeaderKey, encode_block
from lakeformat.codec.timeline_files.commit import encode_commit_json
from lakeformat.files.log_writer import encode_delete_block
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import FileSlice, LogFileName
from lakeformat.model.record import META_COLUMNS
from tests.helpers.skipping_tables import new_table

Row = dict[str, Any]

_TYPES: Final = {"ts": pa.int64(), "v": pa.int64(), "x": pa.float64()}
SCHEMA: Final = pa.schema([(name, _TYPES.get(name, pa.string())) for name in ("id", "ts", "v", "x", "s", "p")])
_AVRO: Final = {"string": "string", "int64": "long", "double": "double"}
AVRO: Final = {
    "type": "record",
    "name": "r",
    "fields": [{"name": name, "type": ["null", "string"], "default": None} for name in META_COLUMNS]
    + [{"name": field.name, "type": ["null", _AVRO[str(field.type)]], "default": None} for field in SCHEMA],
}
MODE: Final = "hoodie.record.merge.mode"
#: Merge rule -> table properties.
RULES: Final = {
    "commit": {MODE: "COMMIT_TIME_ORDERING"},
    "event": {MODE: "EVENT_TIME_ORDERING", "hoodie.table.precombine.field": "ts"},
    "partial": {MODE: "COMMIT_TIME_ORDERING", "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"},
}


class RandomSlices:
    """A table whose slices have log files.

    Attributes:
        rows: key -> the row in a snapshot.
        kinds: the kinds of blocks that were written.
        mixed: keys of rows whose fields once came from several versions.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rule = self.random.choice(list(RULES))
        self.rows: dict[str, Row] = {}
        self.kinds: set[str] = set()
        self.mixed: set[str] = set()
        self._old = new_table(SCHEMA, partitionpath="p", precombine="ts")
        for part in range(self.random.randint(1, 2)):
            self._insert(f"p{part}", part * 40)
        self.table = self._as_merge_on_read()
        self._folders = {key: row["p"] for key, row in self.rows.items()}
        self._numbers = 100
        for each in self.table.snapshot().files:
            group = FileSlice(each.group, each.name.instant_time, each)
            for version in range(1, self.random.randint(1, 4)):
                self._append(group, version)

    def _insert(self, partition: str, first: int) -> None:
        rows = [self._row(number, partition) for number in range(first, first + self.random.randint(4, 20))]
        if self.random.random() < 0.3:
            self.random.shuffle(rows)
        self._old.bulk_insert(pa.Table.from_pylist(rows, SCHEMA))
        self.rows |= {row["id"]: row for row in rows}

    def _row(self, number: int, partition: str | None) -> Row:
        local = number if self.random.random() < 0.8 else self.random.randint(0, 80)
        return {
            "id": f"{number:03}",
            "ts": self.random.randint(4, 6),
            "v": local if self.random.random() < 0.9 else None,
            "x": self.random.choice([local / 2, float("nan"), None]),
            "s": self.random.choice(["a", "b", f"s{local}", None]),
            "p": partition,
        }

    def _as_merge_on_read(self) -> Table:
        """Return the same files under other properties and without an index."""
        storage, path = self._old.context.storage, ".hoodie/hoodie.properties"
        gone = {"hoodie.table.type", "hoodie.compaction.payload.class"}.union(*RULES.values())
        lines = [line for line in storage.read(path).decode().splitlines() if line.partition("=")[0] not in gone]
        lines += ["hoodie.table.type=MERGE_ON_READ", *(f"{key}={value}" for key, value in RULES[self.rule].items())]
        storage.replace(path, "\n".join(lines).encode())
        storage.delete_folder(".hoodie/.lakeformat/index")
        return Table(storage, self._old.options)

    def _append(self, group: FileSlice, version: int) -> None:
        """Append one deltacommit with a log file of some blocks."""
        time = str(int(group.base_instant) + 1000 * version + 10 * self._numbers)
        self._numbers += 1
        partition = group.group.partition_path
        updates = self.random.random() < 0.7
        blocks = [self._block(time, partition, updates=updates) for _ in range(self.random.randint(1, 3))]
        data = b"".join(blocks)
        name = str(LogFileName(group.group.file_id, group.base_instant, version, "0-1-1"))
        storage = self.table.context.storage
        path, before, size = f"{partition}/{name}", group.base_instant, len(data)
        storage.create(path, data)
        stat = WriteStat(group.group.file_id, path, partition, before, 1, num_updates=int(updates), size_bytes=size)
        metadata = CommitMetadata("UPSERT", {partition: (stat,)}, {"schema": json.dumps(AVRO)})
        for state in (".requested", ".inflight"):
            storage.create(f".hoodie/{time}.deltacommit{state}", b"")
        storage.create(f".hoodie/{time}.deltacommit", encode_commit_json(metadata))

    def _block(self, time: str, partition: str, *, updates: bool) -> bytes:
        kind = self.random.choice(["avro", "parquet", "parquet", "delete", "is_partial"])
        if kind == "is_partial" and self.rule == "event":
            kind = "avro"
        self.kinds.add(kind)
        known = sorted(key for key in self.rows if self._folders[key] == partition)
        chosen = self.random.sample(known, min(len(known), self.random.randint(1, 3)))
        if kind == "delete":
            return self._deletes(time, partition, chosen)
        new = [f"{self._numbers + 100 * at:03}" for at in range(1, self.random.randint(2, 3))]
        self._folders |= dict.fromkeys(new, partition)
        rows = [{**self._row(self.random.randint(0, 80), partition), "id": key} for key in new]
        if updates:  # Under a global index that moves no rows, an update may name any partition.
            places = {key: self.random.choice([partition, partition, partition, "p1", None]) for key in chosen}
            rows += [{**self._row(self.random.randint(0, 80), place), "id": key} for key, place in places.items()]
        if kind == "is_partial":
            rows = [{name: row[name] for name in ("id", "ts", "v", "p")} for row in rows]
        for row in rows:
            self._met(row, whole=kind != "is_partial")
        meta = {"_hoodie_commit_time": time, "_hoodie_partition_path": partition}
        stored = [{**meta, "_hoodie_record_key": row["id"], **row} for row in rows]
        header = {HeaderKey.INSTANT_TIME: time, HeaderKey.SCHEMA: json.dumps(AVRO)}
        if kind == "avro":
            return encode_block(BlockKind.AVRO_DATA, header, _avro(stored))
        if kind == "is_partial":
            header[HeaderKey.IS_PARTIAL] = "true"
        sink, text = io.BytesIO(), pa.schema([(name, pa.string()) for name in META_COLUMNS])
        fields = [field for field in (*text, *SCHEMA) if field.name in {*META_COLUMNS, *rows[0]}]
        pq.write_table(pa.Table.from_pylist(stored, pa.schema(fields)), sink, row_group_size=2)
        return encode_block(BlockKind.PARQUET_DATA, header, sink.getvalue())

    def _deletes(self, time: str, partition: str, keys: list[str]) -> bytes:
        if self.rule != "event" or self.random.random() < 0.5:
            for key in keys:
                del self.rows[key]
            ordering: list[pa.Array] = []
        else:
            values = [self.random.randint(4, 6) for _ in keys]
            ordering = [pa.array(values, pa.int64())]
            for key, value in zip(keys, values, strict=True):
                if value >= self.rows[key]["ts"]:
                    del self.rows[key]
        return encode_delete_block(
            pa.array(keys), partition_path=partition, instant_time=time, schema=json.dumps(AVRO), ordering=ordering
        )

    def _met(self, row: Row, *, whole: bool) -> None:
        old = self.rows.get(row["id"])
        if old is None:
            self.rows[row["id"]] = dict.fromkeys(SCHEMA.names) | row
        elif not whole:
            self.mixed.add(row["id"])
            self.rows[row["id"]] = old | row
        elif self.rule == "partial":
            self.mixed.add(row["id"])
            self.rows[row["id"]] = old | {name: value for name, value in row.items() if value is not None}
        elif self.rule == "commit" or row["ts"] >= old["ts"]:
            self.rows[row["id"]] = row


def _avro(rows: list[Row]) -> bytes:
    schema, packed = fastavro.parse_schema(AVRO), [struct.pack(">ii", 3, len(rows))]
    for row in rows:
        one = io.BytesIO()
        fastavro.schemaless_writer(one, schema, row)
        packed.append(struct.pack(">i", len(one.getvalue())) + one.getvalue())
    return b"".join(packed)

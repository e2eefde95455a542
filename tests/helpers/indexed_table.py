"""A table with any index whose writes, statements and services follow a dictionary of rows.

`IndexedTable` draws an index, options and verbs from a seed. Row groups are small, so that merges copy some of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import lakeformat
from lakeformat.model.operation import Operation
from tests.helpers.local_shuffle import merge_shuffled, write_shuffled

__all__ = ["INDEXES", "IndexedTable"]

Row = dict[str, Any]
Key = tuple[str, int] | int

SCHEMA: Final = pa.schema(
    {
        "id": pa.int64(),
        "p": pa.string(),
        "n": pa.int32(),
        "t": pa.string(),
        "s": pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())}),
    }
)
SOURCE: Final = SCHEMA.append(pa.field("op", pa.string()))
IDS: Final = 400
BATCH_SIZES: Final = (1, 3, 20, 150)
_BUCKETS: Final = "hoodie.bucket.index.num.buckets"

#: Name -> the options of an index.
INDEXES: Final[dict[str, dict[str, Any]]] = {
    "AUTO": {},
    "BLOOM": {"hoodie.index.type": "BLOOM"},
    "SIMPLE": {"hoodie.index.type": "SIMPLE"},
    "BUCKET": {"hoodie.index.type": "BUCKET", _BUCKETS: 3},
    "CONSISTENT_HASHING": {
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
        _BUCKETS: 2,
    },
    "GLOBAL_BLOOM": {"hoodie.index.type": "GLOBAL_BLOOM"},
    "GLOBAL_SIMPLE": {"hoodie.index.type": "GLOBAL_SIMPLE"},
    "RECORD_INDEX": {
        "hoodie.index.type": "RECORD_INDEX",
        "hoodie.metadata.enable": True,
        "hoodie.metadata.record.index.enable": True,
    },
}
#: Global index -> the option that lets a row move to another partition.
_MOVES: Final = {
    "GLOBAL_BLOOM": "hoodie.bloom.index.update.partition.path",
    "GLOBAL_SIMPLE": "hoodie.simple.index.update.partition.path",
    "RECORD_INDEX": "hoodie.record.index.update.partition.path",
}
#: Condition -> the same condition in Python.
CONDITIONS: Final[dict[str, Callable[[Row], bool]]] = {
    "n = 1": lambda row: row["n"] == 1,
    "id < 50": lambda row: row["id"] < 50,
    "id between 100 and 130": lambda row: 100 <= row["id"] <= 130,
    "t is null and p = 'x'": lambda row: row["t"] is None and row["p"] == "x",
    "s.a = 2": lambda row: row["s"] is not None and row["s"]["a"] == 2,
    "upper(t) = 'A'": lambda row: row["t"] == "a",
}
#: Clause of a merge -> its verb and arguments.
CLAUSES: Final[dict[str, tuple[str, tuple[Any, ...]]]] = {
    "delete": ("when_matched_delete", ("op = 'd'",)),
    "update": ("when_matched_update", (["t"], "op = 'u'")),
    "insert": ("when_not_matched_insert", ("op is null or op = 'u'",)),
}


@dataclass
class IndexedTable:
    """A table with any index, and the rows that it must have.

    Attributes:
        is_global: whether a key names a row in all partitions.
        stays: whether a row stays in its partition, whatever partition an upsert gives it.
        model: for each key its row.
        place: for each key the partition that its row lies in.
        past: what the table was after each verb: the end for `Table.changes`, the newest instant, and the rows.
        copied: number of rows of the row groups that writes have copied.
        log: what was done, for the message of a failure.
    """

    path: Path
    draw: random.Random
    index: str
    model: dict[Key, Row] = field(default_factory=dict)
    place: dict[Key, str] = field(default_factory=dict)
    past: list[tuple[str, str, dict[Key, Row]]] = field(default_factory=list)
    copied: int = 0
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        chance = self.draw.random
        self.is_global = self.index in _MOVES
        self.stays = self.is_global and chance() < 0.4
        self.is_merge_on_read = self.index == "CONSISTENT_HASHING" or chance() < 0.5
        self.options: dict[str, Any] = {**INDEXES[self.index], "lakeformat.parquet.row.group.rows": 16}
        if self.is_global:
            self.options[_MOVES[self.index]] = not self.stays
        if chance() < 0.4:
            self.options["hoodie.metadata.enable"] = True
            self.options["hoodie.metadata.index.column.stats.enable"] = chance() < 0.6
        if chance() < 0.4:
            self.options["hoodie.parquet.small.file.limit"] = 0
        made = {"hoodie.table.cdc.enabled": chance() < 0.3, "hoodie.write.table.version": self.draw.choice([6, 8, 9])}
        kind = "MERGE_ON_READ" if self.is_merge_on_read else "COPY_ON_WRITE"
        self.log.append(f"{self.index} {kind} {made} {self.options}")
        self.table = lakeformat.create(
            self.path, SCHEMA, record_key="id", partition_by="p", table_type=kind, **made, **self.options
        )

    def key(self, row: Row) -> Key:
        return row["id"] if self.is_global else (row["p"], row["id"])

    def reopen(self) -> None:
        self.table = lakeformat.open(self.path, **self.options)

    def draw_rows(self) -> list[Row]:
        """Return rows with different ids."""
        drawn = (self._draw_row() for _ in range(self.draw.choice(BATCH_SIZES)))
        return list({row["id"]: row for row in drawn}.values())

    def _draw_row(self) -> Row:
        choose = self.draw.choice
        return {
            "id": self.draw.randrange(IDS),
            "p": choose("xyz"),
            "n": choose([None, 0, 1, 2, 3]),
            "t": choose([None, "", "a", "b", "c" * 30]),
            "s": choose([None, {"a": choose([None, 1, 2]), "b": choose([None, [], ["x", None]])}]),
        }

    def put(self, rows: Iterable[Row]) -> None:
        """Put rows into the model, as an upsert does."""
        for row in rows:
            key = self.key(row)
            self.place[key] = self.place[key] if self.stays and key in self.model else row["p"]
            self.model[key] = row

    def drop(self, keys: Iterable[Key]) -> None:
        for key in list(keys):
            self.model.pop(key, None)

    # --- verbs ----------------------------------------------------------------------------------------

    def take_step(self) -> None:
        """Do something that is drawn, to the table and to the model, and compare them."""
        verbs = [self.upsert] * 5 + [self.upsert_in_tasks] * 2 + [self.merge, self.merge_in_tasks]
        verbs += [self.insert, self.delete, self.delete_where, self.update, self.overwrite, self.delete_partition]
        services = [self.compact] * self.is_merge_on_read + [self.cluster] * (self.index != "BUCKET")
        verb = self.draw.choice([*verbs, *services]) if self.past else self.upsert
        self.log.append(verb.__name__)
        verb()
        if self.draw.random() < 0.3:
            self.reopen()
        self.check_rows()
        (newest,) = self.table.history(1)
        self.past.append((self.table.changes(since="000").until, newest.instant_time, dict(self.model)))
        self.copied += sum(step.get("copied_rows", 0) for step in (newest.report or {}).get("steps", ()))

    def upsert(self) -> None:
        rows = self.draw_rows()
        self.table.upsert(pa.Table.from_pylist(rows, SCHEMA))
        self.put(rows)

    def upsert_in_tasks(self) -> None:
        rows = self.draw_rows()
        write_shuffled(self.table, self._split(rows, SCHEMA), Operation.UPSERT)
        self.put(rows)

    def _split(self, rows: Sequence[Row], schema: pa.Schema) -> list[pa.Table]:
        tasks = self.draw.randint(1, 3)
        return [pa.Table.from_pylist(rows[at::tasks], schema) for at in range(tasks)]

    def insert(self) -> None:
        rows = [row for row in self.draw_rows() if self.key(row) not in self.model]
        self.table.insert(pa.Table.from_pylist(rows, SCHEMA))
        self.put(rows)

    def delete(self) -> None:
        rows = self.draw_rows()
        self.table.delete(pa.Table.from_pylist(rows, SCHEMA).select(["id", "p"]))
        self.drop(map(self.key, rows))

    def delete_where(self) -> None:
        where = self.draw.choice([*CONDITIONS])
        self.log.append(where)
        self.table.delete(where=where)
        self.drop(key for key, row in self.model.items() if CONDITIONS[where](row))

    def update(self) -> None:
        where = self.draw.choice([*CONDITIONS])
        self.log.append(where)
        self.table.update({"t": "up"}, where)
        self.model |= {key: {**row, "t": "up"} for key, row in self.model.items() if CONDITIONS[where](row)}

    def merge(self, *, in_tasks: bool = False) -> None:
        rows = [{**row, "op": self.draw.choice(["u", "d", None])} for row in self.draw_rows()]
        names = [name for name in CLAUSES if self.draw.random() < 0.6] or ["insert"]
        self.log.append(f"{names} of {len(rows)} rows")
        merge = self.table.merge(pa.Table.from_pylist(rows, SOURCE))
        for name in names:
            verb, arguments = CLAUSES[name]
            merge = getattr(merge, verb)(*arguments)
        if in_tasks:
            merge_shuffled(self.table, self._split(rows, SOURCE), merge.clauses)
        else:
            merge.execute()
        for row in rows:
            key, op = self.key(row), row["op"]
            if key not in self.model:
                self.put([{name: row[name] for name in SCHEMA.names}] if "insert" in names and op != "d" else [])
            elif op == "d" and "delete" in names:
                self.drop([key])
            elif op == "u" and "update" in names:
                self.model[key] = {**self.model[key], "t": row["t"]}

    def merge_in_tasks(self) -> None:
        self.merge(in_tasks=True)

    def overwrite(self) -> None:
        rows = self.draw_rows()
        gone = {row["p"] for row in rows}
        left = {key for key in self.model if self.place[key] not in gone}
        rows = [row for row in rows if self.key(row) not in left]  # An overwrite looks no keys up.
        gone = {row["p"] for row in rows}
        self.table.insert_overwrite(pa.Table.from_pylist(rows, SCHEMA))
        self.drop(key for key in self.model if self.place[key] in gone)
        self.put(rows)

    def delete_partition(self) -> None:
        known = sorted({self.place[key] for key in self.model})
        if known:
            path = self.draw.choice(known)
            self.table.delete_partitions(path)
            self.drop(key for key in self.model if self.place[key] == path)

    def compact(self) -> None:
        self.table.compact()

    def cluster(self) -> None:
        orders: list[dict[str, Any]] = [{}, {"by": "id"}]
        if self.index != "CONSISTENT_HASHING":  # Its buckets are sorted by columns, not along a curve.
            orders.append({"by": ["id", "n"], "curve": "zorder"})
        self.table.cluster(**self.draw.choice(orders))

    # --- checks ---------------------------------------------------------------------------------------

    def check_rows(self) -> None:
        """Compare all rows, and those of a condition, with the model."""
        assert _sorted(self.table.to_arrow().to_pylist()) == _sorted(self.model.values()), self.log
        where = self.draw.choice([*CONDITIONS])
        chosen = _sorted(row for row in self.model.values() if CONDITIONS[where](row))
        assert _sorted(self.table.to_arrow(SCHEMA.names, where=where).to_pylist()) == chosen, (where, self.log)
        assert self.table.count(where) == len(chosen), (where, self.log)

    def check_past(self) -> None:
        """Compare earlier states with the model, and replay the changes since some of them."""
        for since, instant, rows in [("000", "", {}), *self.draw.sample(self.past, min(3, len(self.past)))]:
            replica = dict(rows)
            for change in self.table.changes(since=since, images=True).to_arrow().to_pylist():
                if (before := change["before"]) is not None:
                    assert replica.pop(self.key(before), None) == before, (since, self.log)
                if (after := change["after"]) is not None:
                    replica[self.key(after)] = after
            assert _sorted(replica.values()) == _sorted(self.model.values()), (since, self.log)
            if instant:
                stored = self.table.to_arrow(as_of=instant).to_pylist()
                assert _sorted(stored) == _sorted(rows.values()), (instant, self.log)


def _sorted(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["p"], row["id"]))

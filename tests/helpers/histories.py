"""Random histories of Hudi tables: the writes to a table and the actions on it, step by step, drawn from a seed.

A `Kind` says what a table is and which steps happen; `steps_of` draws its history. This module does not need Hudi:
``history_player.py`` plays the steps.
"""

from __future__ import annotations

import datetime as dt
import decimal
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa

W: Final = "hoodie.datasource.write."
PAYLOADS: Final = "org.apache.hudi.common.model."
BUCKETS: Final = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "3"}
#: Inserts go into log files of new file groups. All tables of a session share this index, so only one may use it.
LOG_ONLY: Final = {"hoodie.index.type": "INMEMORY"}
PARQUET_BLOCKS: Final = {"hoodie.logfile.data.block.format": "parquet"}
METADATA: Final = {"hoodie.metadata.enable": "true"}
#: Inserts go into existing files: a file group gets a new base file between its log files.
FILLING: Final = {"hoodie.parquet.small.file.limit": "104857600"}
#: A commit writes several log files, and several blocks into each.
SMALL_BLOCKS: Final = {"hoodie.logfile.data.block.max.size": "400", "hoodie.logfile.max.size": "2000"}
LOG_COMPACTION: Final = {"hoodie.log.compaction.inline": "true", "hoodie.log.compaction.blocks.threshold": "1"}
KEYS: Final = 30


@dataclass(frozen=True, slots=True)
class Write:
    """A write of rows through Hudi's data source."""

    operation: str
    rows: pa.Table
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sql:
    """A SQL statement about ``{table}`` or ``{path}``, with values in other braces."""

    statement: str
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kill:
    """The death of the newest commit's writer before completion. Its files and markers remain."""


@dataclass(frozen=True, slots=True)
class RollBack:
    """A rollback of the newest commit by Hudi."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """An upgrade of the table to version 9 by Hudi."""


Step: TypeAlias = Write | Sql | Kill | RollBack | Upgrade


@dataclass(frozen=True, slots=True)
class Kind:
    """A table and the steps of its history.

    Attributes:
        name: the name of the table, which seeds its history.
        hudi: the release that makes the table.
        version: the table version.
        happens: the steps after the first, each a name of `DRAWN`, in random order except those after "then".
        mor: merge-on-read instead of copy-on-write.
        payload: the payload class; "" for commit time ordering.
        ordering: the ordering fields.
        partitioned: the table has three partitions.
        nested: columns of every type instead of five flat ones.
        flagged: the table has the column ``_hoodie_is_deleted``.
        ranges: incremental queries are compared. On some tables Hudi's incremental queries raise a Java error, end the
            process, or fill rows from older ones in the same row group of the base file.
        options: the options of every write.
    """

    name: str
    hudi: str
    version: int
    happens: str
    mor: bool = True
    payload: str = "DefaultHoodieRecordPayload"
    ordering: tuple[str, ...] = ("ts",)
    partitioned: bool = False
    nested: bool = False
    flagged: bool = False
    ranges: bool = True
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def by_time(self) -> bool:
        """Tell whether late updates lose."""
        return self.payload.startswith(("Default", "Partial", "EventTime"))

    @property
    def late_updates(self) -> bool:
        """Tell whether some updates are late.

        With commit time, 0.15.0 has a rule of its own for those within the log.
        """
        return self.by_time or self.hudi != "0.15.0"

    @property
    def late_deletes(self) -> bool:
        """Tell whether some rows that delete are late. In 0.15.0 they win over the base file's row."""
        return self.hudi != "0.15.0"


FLAT: Final = pa.schema(
    {"id": pa.string(), "ts": pa.int64(), "seq": pa.int32(), "part": pa.string(), "n": pa.int32(), "s": pa.string()}
)
NESTED: Final = pa.schema(
    {
        "d": pa.float64(),
        "f": pa.float32(),
        "b": pa.bool_(),
        "dec": pa.decimal128(12, 3),
        "wide": pa.decimal128(30, 5),
        "day": pa.date32(),
        "at": pa.timestamp("us", tz="UTC"),
        "bin": pa.binary(),
        "arr": pa.list_(pa.int64()),
        "arrs": pa.list_(pa.struct({"a": pa.int32(), "b": pa.string()})),
        "m": pa.map_(pa.string(), pa.float64()),
        "st": pa.struct({"x": pa.int32(), "y": pa.struct({"z": pa.string(), "w": pa.decimal128(5, 2)})}),
    }
)


def nested_value(chance: random.Random, number: int) -> dict[str, Any]:
    few, sign = chance.randrange(3), chance.choice((-1, 1))
    return {
        "d": number / 3 * sign,
        "f": number * 1.5 * sign,
        "b": sign > 0,
        "dec": decimal.Decimal(number * sign * 1001) / 1000,
        "wide": decimal.Decimal(f"{sign * 12345678901234567890123}.{number % 10:05}"),
        "day": dt.date(1969, 12, 30) + dt.timedelta(days=number),
        "at": dt.datetime(1969, 12, 31, 23, 59, 59, 123456, tzinfo=dt.timezone.utc) + dt.timedelta(hours=number),
        "bin": bytes([0, 255, number % 256]) * few,
        # The elements are not null: Hudi's default two-level lists cannot hold a null.
        "arr": [number, -number, number**5][:few],
        "arrs": [{"a": number, "b": "x"}, {"a": None, "b": None}][:few],
        "m": {"one": 1.5 * number, "none": None} if few else {},
        "st": {"x": number, "y": {"z": f"z{number}", "w": decimal.Decimal("-1.23")} if few else None},
    }


class History:
    """The drawing of one table's steps, with the state that the next step needs."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.chance = random.Random(kind.name)
        self.clock = 0
        self.keys = KEYS
        self.evolved = False

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the next write."""
        schema = FLAT
        if self.evolved:
            schema = schema.set(schema.get_field_index("n"), pa.field("n", pa.int64()))
        for each in NESTED if self.kind.nested else ():
            schema = schema.append(each)
        if self.kind.flagged:
            schema = schema.append(pa.field("_hoodie_is_deleted", pa.bool_()))
        if self.evolved:
            schema = schema.append(pa.field("more", pa.string())).append(pa.field("most", pa.date32()))
        return schema

    def row(self, number: int) -> dict[str, Any]:
        """Return a random row of a key; some columns are null."""
        chance = self.chance
        late = chance.random() < 0.3 and self.kind.late_updates
        value = chance.randrange(1000)
        row: dict[str, Any] = {"n": value + (2**40 if self.evolved else 0), "s": f"v{value}", "more": "more"}
        row |= {"most": dt.date(2030, 1, 1), **(nested_value(chance, value) if self.kind.nested else {})}
        row = {name: None if chance.random() < 0.25 else of for name, of in row.items() if name in self.schema.names}
        time = self.clock - (chance.randrange(30) if late else 0)
        times = {name: self.at(name, time) for name in {"ts", *self.kind.ordering}} | {"seq": chance.randrange(3)}
        return {"id": f"k{number:03}", "part": f"p{number % 3}", **row, **times}

    def at(self, name: str, time: int) -> Any:
        """Return the time as an ordering value of the type of the column."""
        match self.schema.field(name).type:
            case pa.TimestampType():
                return dt.datetime(2000, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(microseconds=time)
            case kind if pa.types.is_date(kind):
                return dt.date(2000, 1, 1) + dt.timedelta(days=time)
            case kind if pa.types.is_decimal(kind):
                return decimal.Decimal(time) / 100
            case kind if pa.types.is_string(kind):
                return f"{time:09}"
            case kind if pa.types.is_floating(kind):
                return time / 8
        return time

    def rows(self, numbers: list[int]) -> pa.Table:
        self.clock += 10
        return pa.Table.from_pylist([self.row(number) for number in numbers], self.schema)

    def some(self, count: int) -> list[int]:
        return self.chance.sample(range(self.keys), count)

    def upsert(self) -> Step:
        fresh = list(range(self.keys, self.keys + self.chance.randrange(4)))
        self.keys += len(fresh)
        return Write("upsert", self.rows(self.some(8) + fresh))

    def insert(self) -> Step:
        fresh = list(range(self.keys, self.keys + 5))
        self.keys += len(fresh)
        return Write("insert", self.rows(fresh), FILLING)

    def delete(self) -> Step:
        return Write("delete", self.rows(self.some(5)))

    def flag(self) -> Step:
        """Return an upsert in which five rows delete by the column ``_hoodie_is_deleted``."""
        rows = self.rows(self.some(8)).to_pylist()
        for row in rows[:5]:
            row["_hoodie_is_deleted"] = True
            if not self.kind.late_deletes:
                row |= {name: self.at(name, self.clock) for name in self.kind.ordering}
        return Write("upsert", pa.Table.from_pylist(rows, self.schema))

    def mark(self) -> Step:
        """Return an upsert in which five rows delete by the table's own marker."""
        rows = self.rows(self.some(8)).to_pylist()
        for row in rows[:5]:
            row["s"] = "GONE"
        return Write("upsert", pa.Table.from_pylist(rows, self.schema))

    def sql_delete(self) -> Step:
        return Sql("DELETE FROM {table} WHERE id IN ({keys})", {"keys": self._listed(4)})

    def sql_update(self) -> Step:
        self.clock += 10
        values = {"ts": str(self.clock), "keys": self._listed(5)}
        return Sql("UPDATE {table} SET s = 'by sql', n = NULL, ts = {ts} WHERE id IN ({keys})", values)

    def merge_into(self) -> Step:
        """Return a merge that updates some columns, as partial updates if the release can write them."""
        self.clock += 10
        rows = ", ".join(
            f"('k{n:03}', 'p{n % 3}', bigint({self.clock - self.chance.randrange(25)}), {self.chance.randrange(3)}, "
            f"{'NULL' if self.chance.random() < 0.3 else repr(f'merged {n}')})"
            for n in self.some(7)
        )
        return Sql(
            "MERGE INTO {table} t USING (SELECT * FROM VALUES {rows} AS v(id, part, ts, seq, s)) s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET t.id = s.id, t.s = s.s, t.ts = s.ts, t.seq = s.seq",
            {"rows": rows},
        )

    def _listed(self, count: int) -> str:
        return ", ".join(f"'k{number:03}'" for number in self.some(count))

    def evolve(self) -> Step:
        """Widen an int column to long and add two columns, for this step and all later ones."""
        self.evolved = True
        return self.upsert()

    def log_compact(self) -> Step:
        return Write("upsert", self.rows(self.some(4)), LOG_COMPACTION)

    def overwrite(self) -> Step:
        return Write("insert_overwrite", self.rows(self.some(6)))

    def drop(self) -> Step:
        """Return a step that replaces one whole partition."""
        return Write("delete_partition", self.rows([1]), {f"{W}partitions.to.delete": "p1"})

    def archive(self) -> Step:
        """Return an upsert after which all commits except the newest leave the timeline; files stay."""
        few = {"hoodie.keep.min.commits": "3", "hoodie.keep.max.commits": "4", "hoodie.cleaner.commits.retained": "2"}
        return Write("upsert", self.rows(self.some(6)), {**few, "hoodie.archive.automatic": "true"})

    def clean(self) -> Step:
        return Write(
            "upsert",
            self.rows(self.some(6)),
            {"hoodie.clean.automatic": "true", "hoodie.cleaner.commits.retained": "2"},
        )

    def schedule(self) -> Step:
        return Sql("CALL run_compaction(op => 'schedule', path => '{path}')")

    def compact(self) -> Step:
        return Sql("CALL run_compaction(op => 'scheduleAndExecute', path => '{path}')")

    def run(self) -> Step:
        """Return a step that runs the planned compaction."""
        return Sql("CALL run_compaction(op => 'run', path => '{path}')")

    def cluster(self) -> Step:
        return Sql("CALL run_clustering(path => '{path}', order => 'n')")

    def plan_clusters(self) -> Step:
        return Sql("CALL run_clustering(path => '{path}', op => 'schedule')")

    def upgrade(self) -> Step:
        return Upgrade()

    def kill(self) -> Step:
        return Kill()

    def roll_back(self) -> Step:
        return RollBack()

    def first(self) -> Step:
        rows = self.rows(list(range(KEYS)))
        if "hoodie.index.type" in self.kind.options:
            return Write("upsert", rows)
        return Write("bulk_insert", rows, {"hoodie.bulkinsert.shuffle.parallelism": "3"})


def steps_of(kind: Kind) -> Iterator[tuple[str, Step]]:
    """Return the history of a table: names and steps."""
    history = History(kind)
    yield "first", history.first()
    shuffled, _, then = kind.happens.partition("then")
    names = shuffled.split()
    history.chance.shuffle(names)
    for name in (*names, *then.split()):
        yield name, getattr(history, name)()

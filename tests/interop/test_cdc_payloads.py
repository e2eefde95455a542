"""Rows of Debezium and AWS DMS: Apache Hudi and we write one table in turn, and both read what Hudi alone has made.

The histories leave out what Hudi's versions answer differently; `docs/merging.md` lists it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi
from tests.helpers.tables import a_schema

pytestmark = pytest.mark.interop

UNAVAILABLE: Final = "__debezium_unavailable_value"
PAYLOAD: Final = "hoodie.datasource.write.payload.class"
MODEL: Final = "org.apache.hudi.common.model."
POSTGRES: Final = MODEL + "debezium.PostgresDebeziumAvroPayload"
MYSQL: Final = MODEL + "debezium.MySqlDebeziumAvroPayload"
DMS: Final = MODEL + "AWSDmsAvroPayload"
_DEBEZIUM: Final = {"_change_operation_type": "string", "text": "string", "n": "int32"}
SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    POSTGRES: a_schema(id="string", _event_lsn="int64", data="binary", **_DEBEZIUM),
    MYSQL: a_schema(id="string", _event_seq="string", _event_bin_file="string", _event_pos="int64", **_DEBEZIUM),
    DMS: a_schema(id="string", ts="int64", Op="string", text="string", n="int32"),
}

#: One event: key, its place in the log of the database, what happened, a text, a number.
Event = tuple[str, int, str, str, int]


@dataclass(frozen=True)
class Case:
    """A payload class in a table version and type, played by one release of Hudi."""

    payload: str
    version: int
    merge_on_read: bool
    release: str = "1.2.0"

    @property
    def name(self) -> str:
        kind = "mor" if self.merge_on_read else "cow"
        return f"{self.payload.rpartition('.')[2]}-{self.version}-{kind}-{self.release}"

    @property
    def is_newest(self) -> bool:
        """Tell whether the rules of version 9 hold: rows of a batch fill each other, late rows fill stored ones."""
        return self.version == 9

    @property
    def fills(self) -> bool:
        """Tell whether Hudi fills unavailable values: 1.2.0 does not in log files before version 9."""
        return self.payload == POSTGRES and (self.is_newest or not self.merge_on_read or self.release == "0.15.0")

    @property
    def orders_deletes(self) -> bool:
        """Tell whether a late delete loses, in Hudi too: before version 9 every delete in a log file wins."""
        return self.payload != DMS and (self.is_newest or not self.merge_on_read)

    @property
    def is_old_mysql(self) -> bool:
        """Tell whether Hudi compares positions of a batch as text, and keeps the stored row if they are equal."""
        return self.payload == MYSQL and self.release == "0.15.0"

    @property
    def has_bytes(self) -> bool:
        """Tell whether Hudi fills bytes: 1.2.0 fails on them before version 9, and does not fill its own log files."""
        return self.payload == POSTGRES and (self.release == "0.15.0" or (self.is_newest and not self.merge_on_read))

    @property
    def schema(self) -> pa.Schema:
        schema = SCHEMAS[self.payload]
        return schema if self.has_bytes or "data" not in schema.names else schema.remove(schema.get_field_index("data"))

    def batch(self, events: Sequence[Event]) -> pa.Table:
        return pa.Table.from_pylist([self._row(*event) for event in events], self.schema)

    def _row(self, key: str, at: int, operation: str, text: str, n: int) -> dict[str, Any]:
        file, position = divmod(at, 100)
        return {
            "id": key,
            "ts": at,
            "_event_lsn": at,
            "_event_seq": f"{file:06d}.{position}",
            "_event_bin_file": f"mysql-bin.{file:06d}",
            "_event_pos": position,
            "Op": {"d": "D", "u": "U"}.get(operation, "I"),
            "_change_operation_type": operation,
            "text": text,
            "data": text.encode(),
            "n": n,
        }

    @property
    def options(self) -> dict[str, str]:
        """Return the options of the table for Hudi; lakeformat takes the same names."""
        ordering = {POSTGRES: "_event_lsn", MYSQL: "_event_seq", DMS: "ts"}[self.payload]
        named = {} if self.is_newest else {"hoodie.datasource.write.precombine.field": ordering}
        return {
            PAYLOAD: self.payload,
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.table.type": "MERGE_ON_READ" if self.merge_on_read else "COPY_ON_WRITE",
            "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
            **({} if self.release == "0.15.0" else {"hoodie.write.table.version": str(self.version)}),
            **named,
        }


def snapshot(case: Case) -> Iterator[Event]:
    """Yield the first load, with keys that occur twice, and deletes of keys that are not there."""
    for key in ("newer", "tie", "older", "gone", "gone_tie", "late", "again", "toast", "twice", "rest", "key", "file"):
        yield key, 505, "r", "old", 1
    yield from (("dup", 505, "c", "a", 1), ("dup", 506, "u", "b", 2))
    yield from (("brief", 505, "c", "a", 1), ("brief", 506, "d", "a", 1), ("nobody", 505, "d", "a", 1))
    yield from (("back", 505, "d", "a", 1), ("back", 506, "c", "b", 2))
    if case.is_newest and case.fills:
        yield "unset", 505, "r", UNAVAILABLE, 1


def changes(case: Case) -> Iterator[Event]:
    """Yield newer, tied and older rows and deletes, and several of one key."""
    yield from (("newer", 510, "u", "new", 2), ("older", 504, "u", "new", 2))
    yield from (("gone", 506, "d", "x", 2), ("again", 507, "d", "x", 2))
    if not case.is_old_mysql:
        yield from (("tie", 505, "u", "new", 2), ("gone_tie", 505, "d", "x", 2))
    yield from (("nobody", 506, "d", "x", 2), ("fresh", 401, "c", "only", 2), ("file", 499, "u", "late", 2))
    first, second, third = (508, 509, 509) if case.is_old_mysql else (509, 510, 511)
    yield from (("twice", first, "u", "first", 2), ("twice", second, "u", "second", 3))
    yield from (
        ("dup", 508, "u", "x", 3),
        ("dup", third, "d", "y", 4),
        ("back", 508, "d", "x", 3),
        ("back", 509, "c", "c", 4),
    )
    if case.orders_deletes:
        yield "late", 504, "d", "x", 2
    if case.fills:
        yield "toast", 506, "u", UNAVAILABLE, 2
    if case.is_newest and case.fills:
        yield from (("rest", 510, "u", UNAVAILABLE, 3), ("rest", 509, "u", "filling", 2), ("unset", 504, "u", "set", 9))


def later(case: Case) -> Iterator[Event]:
    """Yield keys that come back after a delete, and changes of rows that log files have."""
    yield from (("again", 512, "c", "again", 5), ("nobody", 402, "c", "came", 5), ("gone", 513, "c", "again", 5))
    fills_from_logs = case.fills and (case.is_newest or not case.merge_on_read)  # 0.15.0 fills from base files alone.
    yield from (("newer", 511, "u", UNAVAILABLE if fills_from_logs else "newest", 6), ("tie", 506, "d", "x", 6))
    yield from (("fresh", 402, "u", "more", 6), ("twice", 512, "d", "x", 6), ("older", 600, "u", "six", 6))


def last(case: Case) -> Iterator[Event]:
    yield from (("newer", 512, "d", "x", 7), ("older", 599, "u", "late", 7), ("rest", 601, "u", "end", 7))
    yield from (("tie", 602, "c", "back", 7), ("file", 1001, "u", "ten", 7), ("file", 999, "u", "nine", 8))


HISTORY: Final = (snapshot, changes, later, last)
CASES: Final = [
    *(Case(payload, version, mor) for payload in SCHEMAS for version in (6, 8, 9) for mor in (False, True)),
    *(Case(payload, 6, mor, "0.15.0") for payload in SCHEMAS for mor in (False, True)),
]
#: With one task in Hudi, the rows of a batch are combined in their order.
ONE_TASK: Final = {"hoodie.upsert.shuffle.parallelism": "1"}
EVERY_RUN: Final = {case.name for case in CASES if case.is_newest and case.merge_on_read}


def rows_of(table: pa.Table) -> dict[str, dict[str, Any]]:
    keyed = {r["id"]: {n: v for n, v in r.items() if not n.startswith("_hoodie_")} for r in table.to_pylist()}
    assert len(keyed) == table.num_rows
    return keyed


def commits_of(table: pa.Table) -> dict[str, str]:
    return dict(zip(table["id"].to_pylist(), table["_hoodie_commit_time"].to_pylist(), strict=True))


def write_by_hudi(hudi: Hudi, path: Path, case: Case, rows: pa.Table, operation: str = "upsert", **more: str) -> None:
    hudi.write(path, rows, operation, **{**case.options, **ONE_TASK, **more})


def open_ours(path: Path, case: Case) -> lakeformat.Table:
    """Open or create the table with the options that Hudi gets."""
    return lakeformat.create(path, case.schema, if_exists="open", **case.options)


def hudis(case: Case) -> Any:
    """Return the case as a parameter, with the release of Hudi that plays it."""
    marks = () if case.name in EVERY_RUN else (pytest.mark.nightly,)
    return pytest.param(case, case.release, id=case.name, marks=marks)


def compact(path: Path, case: Case, hudi: Hudi | None) -> None:
    """Write one row and compact the table, by Hudi if it is given, else by us."""
    row = case.batch([("compacted", 500, "c", "x", 0)])
    if not case.merge_on_read:
        return
    if hudi is None:
        open_ours(path, case).upsert(row)
        open_ours(path, case).compact()
        return
    now = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
    write_by_hudi(hudi, path, case, row, **now)


@pytest.mark.parametrize(("case", "hudi"), [*map(hudis, CASES)], indirect=["hudi"])
@pytest.mark.parametrize("first", ["hudi", "ours"])
def test_writers_in_turn_leave_what_hudi_alone_leaves(case: Case, first: str, hudi: Hudi, tmp_path: Path) -> None:
    shared, alone = tmp_path / "shared", tmp_path / "alone"
    turn = first == "hudi"
    for number, events in enumerate(HISTORY):
        rows = case.batch([*events(case)])
        write_by_hudi(hudi, alone, case, rows)
        if turn:
            write_by_hudi(hudi, shared, case, rows)
        else:
            open_ours(shared, case).upsert(rows)
        theirs = rows_of(hudi.read(alone))
        assert rows_of(hudi.read(shared)) == theirs, f"Hudi reads the shared table after batch {number}"
        assert rows_of(lakeformat.open(shared).to_arrow()) == theirs, f"after batch {number}"
        ours = lakeformat.open(alone).to_arrow(meta_columns=True)
        assert rows_of(ours) == theirs, f"we read Hudi's table after batch {number}"
        if not case.is_newest and case.release == "1.2.0":
            assert commits_of(ours) == commits_of(hudi.read(alone)), f"after batch {number}"
        if number == 2:
            compact(shared, case, None if turn else hudi)
            compact(alone, case, hudi)
        turn = not turn
    delete = case.batch([("rest", 1, "d", "x", 0)])
    write_by_hudi(hudi, alone, case, delete, "delete")
    open_ours(shared, case).delete(delete)
    theirs = rows_of(hudi.read(alone))
    assert rows_of(hudi.read(shared)) == rows_of(lakeformat.open(shared).to_arrow()) == theirs
    assert "rest" not in theirs

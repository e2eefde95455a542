"""A table and a dictionary that get the same sequence of writes; hudi-rs reads the same rows at the end.

The model knows neither files nor partition folders, only (partition value, id) -> row.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import lakeformat
from lakeformat.config.resolve import resolve
from lakeformat.storage import LocalStorage
from lakeformat.transaction.commit.result import WriteResult
from tests.helpers import hudi_rs
from tests.helpers.faulty import CountingIds, SteppingClock

__all__ = ["COLUMNS", "Entry", "Kind", "Model", "WrittenTable"]

Row = dict[str, Any]
Key = tuple[str | None, int]
Model = dict[Key, Row]


COLUMNS: Final = {"id": pa.int64(), "region": pa.string(), "ts": pa.int64(), "v": pa.string()}
ADDED: Final = {"more": pa.float64(), "tags": pa.list_(pa.string()), "_hoodie_is_deleted": pa.bool_()}

BUCKETS: Final = "hoodie.bucket.index.num.buckets"

PLAIN_REGIONS: Final = (
    None, "", "r", "with space", "ünï", "日本", "a=b", "region=r", "plus+and&", "semi;colon", "{x}", "~", "-", "dot.",
    "quote'", "com,ma", "(1)", "!", "@", "$x", "MiXed", "mixed",
)  # fmt: skip
#: Values for escaped partition paths only: some are refused as folder names, others have a meaning in a URL.
ESCAPED_REGIONS: Final = (*PLAIN_REGIONS, "100%", "%2F", "a/b", "a:b", "q?x", "[ab]*", "#tag", '"', "back\\slash", "^")

#: 0 does not occur: hudi-rs treats a null ordering value as 0, while here null is less than all values.
ORDERING: Final = st.none() | st.integers(1, 4)
VALUES: Final = st.fixed_dictionaries(
    {
        "ts": ORDERING,
        "v": st.sampled_from([None, "", "a", "b", "ü", "x" * 300]),
        "more": st.none() | st.integers(-1, 1).map(float),
        "tags": st.none() | st.lists(st.sampled_from(["t", None]), max_size=2),
        "_hoodie_is_deleted": st.sampled_from([None, False, True]),
    }
)
#: Whole numbers stay below 100. Hypothesis draws wider ones also from the constants in the code, so any change of the
#: code would change the drawn histories.
BATCHES: Final = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 99), VALUES), max_size=6)


@dataclass(frozen=True)
class Kind:
    """The kind of the table."""

    version: int
    is_merge_on_read: bool

    def __str__(self) -> str:
        return f"{self.version}-{'merge-on-read' if self.is_merge_on_read else 'copy-on-write'}"


@dataclass
class Entry:
    """A completed commit and the rows of the table at that time.

    Attributes:
        is_service: the commit changed no row.
        travelled: the rows that time travel shows, if they differ because the plan is older than earlier commits.
        sure: all files of the commit exist: no clean or other service may have deleted one.
    """

    instant: str
    model: Model
    columns: dict[str, pa.DataType]
    is_service: bool = False
    sure: bool = True
    travelled: Model | None = None

    def shows(self, found: Model) -> bool:
        """Tell whether time travel may return these rows.

        The commit of a service has the columns of the time at which it completed.
        """
        rows = self.model if self.travelled is None else self.travelled
        if not self.is_service:
            return found == rows
        columns = {name for row in found.values() for name in row}
        return found == {key: {**dict.fromkeys(columns), **row} for key, row in rows.items()}


@dataclass(frozen=True)
class Variant:
    """The options of a table."""

    buckets: int
    partitioned: bool
    ordering: bool
    url_encode: bool
    hive_style: bool
    small_file_bytes: int
    max_file_bytes: int
    kept: int

    @property
    def options(self) -> dict[str, Any]:
        keys = {"url_encode": self.url_encode, "hive_style": self.hive_style}
        return (
            keys
            | ({"partitionpath": "region"} if self.partitioned else {})
            | ({"ordering": "ts"} if self.ordering else {})
            | ({"hoodie.index.type": "BUCKET", BUCKETS: self.buckets} if self.buckets else {})
        )


VARIANTS: Final = st.builds(
    Variant,
    buckets=st.sampled_from([0, 0, 0, 2]),
    partitioned=st.sampled_from([True, True, True, False]),
    ordering=st.booleans(),
    url_encode=st.booleans(),
    hive_style=st.booleans(),
    small_file_bytes=st.sampled_from([0, 1 << 20]),
    max_file_bytes=st.sampled_from([1, 1 << 20]),
    kept=st.sampled_from([10, 10, 2]),
)


def wins(stored: Row, incoming: Row) -> bool:
    """Tell whether the incoming row wins by event time: it loses only to a newer row; null is older than everything."""
    old, new = stored["ts"], incoming["ts"]
    return old is None or (new is not None and new >= old)


def assert_hudi_rs_agrees(table: lakeformat.Table, as_of: str | None) -> None:
    """Check that hudi-rs reads the same rows, meta columns included. It shows the past with empty present columns.

    If a row is older than a column, hudi-rs takes that column from a log version that lost.
    """
    ours = hudi_rs.rows_by_key(table.to_arrow(as_of=as_of, meta_columns=True))
    theirs = hudi_rs.rows_by_key(hudi_rs.read(table.context.storage.location, as_of))
    columns = {*ADDED, *(ours[0] if ours else ())}
    unsure = ADDED.keys() if table.config.takes_logs else ()
    assert len(theirs) == len(ours)
    for their, our in zip(theirs, ours, strict=True):
        compared = [name for name in columns if name not in unsure or our.get(name) is not None]
        assert {name: their.get(name) for name in compared} == {name: our.get(name) for name in compared}


class WrittenTable(RuleBasedStateMachine):
    """One table, its model, and the past of both."""

    kind: ClassVar[Kind]
    steps: ClassVar[int] = 0
    #: The number of reads of a past instant that returned its rows.
    exact: ClassVar[int] = 0

    @initialize(variant=VARIANTS)
    def create(self, variant: Variant) -> None:
        self.variant = variant
        self.folder = Path(tempfile.mkdtemp(prefix="stateful-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
        self.path = self.folder / "table"
        self.clock, self.ids = SteppingClock(), CountingIds("stateful")
        self.columns = dict(COLUMNS)
        self.model: Model = {}
        self.past: list[Entry] = []
        options = {
            "hoodie.write.table.version": self.kind.version,
            "table_type": "MERGE_ON_READ" if self.kind.is_merge_on_read else "COPY_ON_WRITE",
        }
        lakeformat.create(self.path, pa.schema(self.columns), record_key="id", **options, **variant.options)
        self.reopen()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            try:
                if hasattr(self, "table"):
                    self.ends()
            finally:
                shutil.rmtree(self.folder)

    def ends(self) -> None:
        """Check that every past state that must be readable is unchanged, and that hudi-rs agrees."""
        for entry in self.past:
            if entry.sure:
                assert entry.shows(self.read(entry.instant))
                type(self).exact += 1
        if not (self.kind.is_merge_on_read and self.plans):  # hudi-rs returns rows twice beside a pending compaction.
            for instant in (None, *(entry.instant for entry in self.past[-2:-1] if entry.sure)):
                assert_hudi_rs_agrees(self.table, instant)

    # --- the model ------------------------------------------------------------------------------------

    def key(self, row: Row) -> Key:
        """Return the key of a row. Null and empty values share Hudi's default partition."""
        return (row["region"] or None if self.variant.partitioned else None, row["id"])

    def rows(self, batch: Iterable[tuple[int, int, Row]]) -> list[Row]:
        """Return input rows with the present columns of the table."""
        regions = ESCAPED_REGIONS if self.variant.url_encode else PLAIN_REGIONS
        whole = ({"id": id_, "region": regions[at % len(regions)], **values} for id_, at, values in batch)
        return [{name: row[name] for name in self.columns} for row in whole]

    def new_rows(self, batch: Iterable[tuple[int, int, Row]]) -> list[Row]:
        """Return rows whose keys are neither in the table nor twice in the batch."""
        unique = {self.key(row): row for row in self.rows(batch)}
        return [row for key, row in unique.items() if key not in self.model]

    def combined(self, rows: Iterable[Row]) -> Model:
        """Return one row for each key: the newest, or the later one on a tie."""
        kept: Model = {}
        for row in rows:
            key = self.key(row)
            if key not in kept or not self.variant.ordering or wins(kept[key], row):
                kept[key] = row
        return kept

    def apply(self, rows: Model, *, merge: bool) -> None:
        """Put rows into the model; remove rows that are marked as deleted."""
        for key, row in rows.items():
            stored = self.model.get(key)
            loses = merge and stored is not None and self.variant.ordering and not wins(stored, row)
            if loses:
                continue
            if row.get("_hoodie_is_deleted"):
                self.model.pop(key, None)
            else:
                self.model[key] = row

    @property
    def plans(self) -> list[str]:
        """Return the instants of pending plans."""
        return [instant.time for instant in self.table.snapshot().timeline.pending]

    def arrow(self, rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist(rows, pa.schema(self.columns))

    def write(self, do: Callable[[], WriteResult], then: Callable[[], None]) -> None:
        """Run a write and then update the model. If a pending plan forbids the write, both stay as they are."""
        errors = (lakeformat.WriteConflictError, lakeformat.UnsupportedTableError) if self.plans else ()
        result = self.refused(do, *errors)
        if result is not None:
            then()
            self.record_write(result.instant_time)

    def refused(self, do: Callable[[], Any], *errors: type[lakeformat.LakeformatError]) -> Any:
        """Call a method. Return its result, or None if it is refused with one line."""
        try:
            return do()
        except errors as error:
            refusal = str(error)
        assert "\n" not in refusal
        return None

    def record_write(self, instant: str) -> None:
        """Record a commit with the present state."""
        self.add_commit(Entry(instant, dict(self.model), dict(self.columns)))

    def add_commit(self, entry: Entry) -> None:
        """Record a commit. Cleaning may have removed files of an older one."""
        self.past.append(entry)
        self.forget(self.variant.kept)

    def forget(self, commits: int) -> None:
        """Mark all commits except the newest as possibly cleaned."""
        for old in self.past[:-commits]:
            old.sure = False

    # --- writes ----------------------------------------------------------------------------------------

    @rule(batch=BATCHES)
    def upsert(self, batch: list[tuple[int, int, Row]]) -> None:
        rows = self.rows(batch)
        self.write(lambda: self.table.upsert(self.arrow(rows)), lambda: self.apply(self.combined(rows), merge=True))

    @rule(batch=BATCHES)
    def insert_new_keys(self, batch: list[tuple[int, int, Row]]) -> None:
        rows = self.new_rows(batch)
        new = {self.key(row): row for row in rows}
        self.write(lambda: self.table.insert(self.arrow(rows)), lambda: self.apply(new, merge=False))

    @rule(batch=BATCHES)
    def bulk_insert_new_keys(self, batch: list[tuple[int, int, Row]]) -> None:
        rows = self.new_rows(batch)
        new = {self.key(row): row for row in rows}
        self.write(lambda: self.table.bulk_insert(self.arrow(rows)), lambda: self.apply(new, merge=False))

    @rule(batch=BATCHES)
    def delete(self, batch: list[tuple[int, int, Row]]) -> None:
        rows = self.rows(batch)
        gone = {self.key(row) for row in rows}
        keys = self.arrow(rows).select(["id", "region"])
        self.write(lambda: self.table.delete(keys), lambda: self.keep(lambda key, row: key not in gone))

    @rule(ids=st.lists(st.integers(0, 11), max_size=3))
    def delete_in_all_partitions(self, ids: list[int]) -> None:
        keys = pa.table({"id": pa.array(ids, pa.int64())})
        self.write(lambda: self.table.delete(keys), lambda: self.keep(lambda key, row: key[1] not in ids))

    def keep(self, wanted: Callable[[Key, Row], bool]) -> None:
        """Delete all other rows from the model."""
        self.model = {key: row for key, row in self.model.items() if wanted(key, row)}

    @rule(batch=BATCHES)
    def overwrite(self, batch: list[tuple[int, int, Row]]) -> None:
        rows = self.rows(batch)

        def then() -> None:
            self.model = {}
            self.apply(self.combined(rows), merge=False)

        self.write(lambda: self.table.overwrite(self.arrow(rows)), then)

    @rule(batch=BATCHES)
    def insert_overwrite(self, batch: list[tuple[int, int, Row]]) -> None:
        rows = self.rows(batch)
        combined = self.combined(rows)
        brought = {key[0] for key in combined}

        def then() -> None:
            self.keep(lambda key, row: key[0] not in brought)
            self.apply(combined, merge=False)

        self.write(lambda: self.table.insert_overwrite(self.arrow(rows)), then)

    @precondition(lambda self: self.variant.partitioned and self.model)
    @rule(data=st.data())
    def delete_partitions(self, data: st.DataObject) -> None:
        standing = self.table.to_arrow(["_hoodie_partition_path", "region"]).to_pylist()
        path = data.draw(st.sampled_from(sorted({row["_hoodie_partition_path"] for row in standing})))
        gone = {row["region"] or None for row in standing if row["_hoodie_partition_path"] == path}
        self.write(lambda: self.table.delete_partitions([path]), lambda: self.keep(lambda key, row: key[0] not in gone))

    @rule(batch=BATCHES, values_too=st.booleans())
    def update_some_columns(self, batch: list[tuple[int, int, Row]], values_too: bool) -> None:
        """Upsert some columns. New keys get null in the other columns."""
        written = ["id", "region", "ts", *(["v"] if values_too else [])]
        rows = [{name: row[name] for name in written} for row in self.rows(batch)]
        some = pa.Table.from_pylist(rows, pa.schema({name: self.columns[name] for name in written}))
        combined = self.combined(rows)

        def then() -> None:
            filled = {key: (self.model.get(key) or dict.fromkeys(self.columns)) | row for key, row in combined.items()}
            self.apply(filled, merge=True)

        self.write(lambda: self.table.upsert(some, partial_update=True), then)

    @rule(least=st.integers(0, 11), ts=ORDERING, v=st.sampled_from([None, "set"]))
    def update_where(self, least: int, ts: int | None, v: str | None) -> None:
        def then() -> None:
            self.model = {k: {**row, "ts": ts, "v": v} if k[1] >= least else row for k, row in self.model.items()}

        self.write(lambda: self.table.update({"ts": ts, "v": v}, where=f"id >= {least}"), then)

    @rule(v=st.sampled_from(["", "a", "set"]))
    def delete_where(self, v: str) -> None:
        self.write(lambda: self.table.delete(where=f"v = '{v}'"), lambda: self.keep(lambda key, row: row["v"] != v))

    @precondition(lambda self: len(self.columns) < len(COLUMNS) + len(ADDED))
    @rule(batch=BATCHES.filter(bool))
    def add_a_column(self, batch: list[tuple[int, int, Row]]) -> None:
        """Upsert rows with a new column. Only a write that succeeds adds the column."""
        before = len(self.past)
        name = next(name for name in ADDED if name not in self.columns)
        columns, model = self.columns, self.model
        self.columns = {**columns, name: ADDED[name]}
        self.model = {key: {**row, name: None} for key, row in model.items()}
        self.upsert(batch)
        if len(self.past) == before:
            self.columns, self.model = columns, model

    @rule()
    def reopen(self) -> None:
        options = {
            "hoodie.parquet.small.file.limit": self.variant.small_file_bytes,
            "hoodie.parquet.max.file.size": self.variant.max_file_bytes,
            "hoodie.clean.commits.retained": self.variant.kept,
            "hoodie.keep.min.commits": self.variant.kept + 1,
            "hoodie.keep.max.commits": self.variant.kept + 3,
        }
        storage = LocalStorage(str(self.path))
        self.table = lakeformat.Table(storage, resolve(options), clock=self.clock, ids=self.ids)

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def travel(self, data: st.DataObject) -> None:
        """Read a past commit. If cleaning may have removed its files, the read may be refused."""
        entry = data.draw(st.sampled_from(self.past))
        errors = () if entry.sure else (lakeformat.InstantNotAvailableError,)
        found = self.refused(lambda: self.read(entry.instant), *errors)
        if found is not None:
            assert entry.shows(found)
            type(self).exact += 1

    # --- invariants -------------------------------------------------------------------------------------

    def read(self, as_of: str | None = None) -> Model:
        rows = self.table.to_arrow(as_of=as_of, meta_columns=False).to_pylist()
        keyed = {self.key(row): row for row in rows}
        assert len(keyed) == len(rows), "a key is in two rows"
        return keyed

    @invariant()
    def equals_the_model(self) -> None:
        type(self).steps += 1
        assert self.read() == self.model

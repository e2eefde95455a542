"""Tables follow a dictionary through any sequence of writes, and hudi-rs reads the same rows in the end.

The model knows no file, no partition folder and no instant: partition value and id -> row.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import lakeformat
from lakeformat.config.resolve import resolve
from lakeformat.storage import LocalStorage
from tests.helpers import hudi_rs
from tests.helpers.faulty import CountingIds, SteppingClock
from tests.helpers.flights import MEMORY_DISK

Row = dict[str, Any]
Key = tuple[str | None, int]
Model = dict[Key, Row]

STEPS: Final = 25
#: Commits whose rows cleaning keeps: ``hoodie.clean.commits.retained``.
KEPT: Final = 10

COLUMNS: Final = {"id": pa.int64(), "region": pa.string(), "ts": pa.int64(), "v": pa.string()}
ADDED: Final = {"more": pa.float64(), "tags": pa.list_(pa.string()), "_hoodie_is_deleted": pa.bool_()}

PLAIN_REGIONS: Final = (
    None, "", "r", "with space", "ünï", "日本", "a=b", "region=r", "plus+and&", "semi;colon", "{x}", "~", "-", "dot.",
    "quote'", "com,ma", "(1)", "!", "@", "$x", "MiXed", "mixed",
)  # fmt: skip
#: Only where partition paths are escaped: some are refused as folder names, others mean something in a URL.
ESCAPED_REGIONS: Final = (*PLAIN_REGIONS, "100%", "%2F", "a/b", "a:b", "q?x", "[ab]*", "#tag", '"', "back\\slash", "^")

VALUES: Final = st.fixed_dictionaries(
    {
        "ts": st.none() | st.integers(0, 3),
        "v": st.sampled_from([None, "", "a", "b", "ü", "x" * 300]),
        "more": st.none() | st.integers(-1, 1).map(float),
        "tags": st.none() | st.lists(st.sampled_from(["t", None]), max_size=2),
        "_hoodie_is_deleted": st.sampled_from([None, False, True]),
    }
)
BATCHES: Final = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 1000), VALUES), max_size=6)


@dataclass(frozen=True)
class Variant:
    """How a table is made."""

    partitioned: bool
    ordering: bool
    url_encode: bool
    hive_style: bool
    small_file_bytes: int
    max_file_bytes: int

    @property
    def options(self) -> dict[str, Any]:
        keys = {"recordkey": "id", "url_encode": self.url_encode, "hive_style": self.hive_style}
        return (
            keys
            | ({"partitionpath": "region"} if self.partitioned else {})
            | ({"ordering": "ts"} if self.ordering else {})
        )


VARIANTS: Final = st.builds(
    Variant,
    partitioned=st.sampled_from([True, True, True, False]),
    ordering=st.booleans(),
    url_encode=st.booleans(),
    hive_style=st.booleans(),
    small_file_bytes=st.sampled_from([0, 1 << 20]),
    max_file_bytes=st.sampled_from([1, 1 << 20]),
)


def wins(stored: Row, incoming: Row) -> bool:
    """Event time: the incoming row stays out only if the stored one is newer; null is older than everything."""
    old, new = stored["ts"], incoming["ts"]
    return old is None or (new is not None and new >= old)


def assert_hudi_rs_agrees(table: lakeformat.Table, as_of: str | None) -> None:
    """The same rows, meta columns included; hudi-rs shows the past with the columns of the present, empty."""
    ours = hudi_rs.rows_by_key(table.to_arrow(as_of=as_of, meta_columns=True))
    theirs = hudi_rs.rows_by_key(hudi_rs.read(table.engine.storage.location, as_of))
    columns = {*ADDED, *(ours[0] if ours else ())}
    assert [{name: row.get(name) for name in columns} for row in theirs] == [
        {name: row.get(name) for name in columns} for row in ours
    ]


class TableMachine(RuleBasedStateMachine):
    """One table, its model, and the past of both."""

    steps = 0
    #: Looks at a past instant that found its rows.
    exact = 0
    table_version = 6

    @initialize(variant=VARIANTS)
    def create(self, variant: Variant) -> None:
        self.variant = variant
        self.folder = Path(tempfile.mkdtemp(prefix="stateful-", dir=MEMORY_DISK))
        self.path = self.folder / "table"
        self.clock, self.ids = SteppingClock(), CountingIds("stateful")
        self.columns = dict(COLUMNS)
        self.model: Model = {}
        self.past: list[tuple[str, Model]] = []
        lakeformat.create(
            self.path,
            pa.schema(self.columns),
            record_key="id",
            **{"hoodie.write.table.version": self.table_version},
            **{name: value for name, value in variant.options.items() if name != "recordkey"},
        )
        self.reopen()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            try:
                for instant in (None, *(instant for instant, _ in self.past[-2:-1])):
                    assert_hudi_rs_agrees(self.table, instant)
            finally:
                shutil.rmtree(self.folder)

    # --- the model ------------------------------------------------------------------------------------

    def key(self, row: Row) -> Key:
        """Null and empty values share Hudi's default partition."""
        return (row["region"] or None if self.variant.partitioned else None, row["id"])

    def rows(self, batch: Iterable[tuple[int, int, Row]]) -> list[Row]:
        """Input rows with the columns the table has by now."""
        regions = ESCAPED_REGIONS if self.variant.url_encode else PLAIN_REGIONS
        whole = ({"id": id_, "region": regions[at % len(regions)], **values} for id_, at, values in batch)
        return [{name: row[name] for name in self.columns} for row in whole]

    def new_rows(self, batch: Iterable[tuple[int, int, Row]]) -> list[Row]:
        """Rows whose keys are neither in the table nor twice in the batch."""
        unique = {self.key(row): row for row in self.rows(batch)}
        return [row for key, row in unique.items() if key not in self.model]

    def combined(self, rows: Iterable[Row]) -> Model:
        """One row a key: the newest, the later one on a tie."""
        kept: Model = {}
        for row in rows:
            key = self.key(row)
            if key not in kept or not self.variant.ordering or wins(kept[key], row):
                kept[key] = row
        return kept

    def apply(self, rows: Model, *, merge: bool) -> None:
        """Put rows in, or take them out where they are marked as deleted."""
        for key, row in rows.items():
            stored = self.model.get(key)
            if merge and stored is not None and self.variant.ordering and not wins(stored, row):
                continue
            if row.get("_hoodie_is_deleted"):
                self.model.pop(key, None)
            else:
                self.model[key] = row

    def arrow(self, rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist(rows, pa.schema(self.columns))

    def written(self, instant: str) -> None:
        self.past.append((instant, dict(self.model)))

    # --- what may happen ------------------------------------------------------------------------------

    @rule(batch=BATCHES)
    def upsert(self, batch: list[tuple[int, int, Row]]) -> None:
        rows = self.rows(batch)
        result = self.table.upsert(self.arrow(rows))
        self.apply(self.combined(rows), merge=True)
        self.written(result.instant_time)

    @rule(batch=BATCHES)
    def insert_new_keys(self, batch: list[tuple[int, int, Row]]) -> None:
        rows = self.new_rows(batch)
        result = self.table.insert(self.arrow(rows))
        self.apply({self.key(row): row for row in rows}, merge=False)
        self.written(result.instant_time)

    @rule(batch=BATCHES)
    def bulk_insert_new_keys(self, batch: list[tuple[int, int, Row]]) -> None:
        rows = self.new_rows(batch)
        result = self.table.bulk_insert(self.arrow(rows))
        self.apply({self.key(row): row for row in rows}, merge=False)
        self.written(result.instant_time)

    @rule(batch=BATCHES)
    def delete(self, batch: list[tuple[int, int, Row]]) -> None:
        rows = self.rows(batch)
        result = self.table.delete(self.arrow(rows).select(["id", "region"]))
        for row in rows:
            self.model.pop(self.key(row), None)
        self.written(result.instant_time)

    @rule(ids=st.lists(st.integers(0, 11), max_size=3))
    def delete_in_all_partitions(self, ids: list[int]) -> None:
        result = self.table.delete(pa.table({"id": pa.array(ids, pa.int64())}))
        self.model = {key: row for key, row in self.model.items() if key[1] not in ids}
        self.written(result.instant_time)

    @rule(batch=BATCHES)
    def overwrite(self, batch: list[tuple[int, int, Row]]) -> None:
        rows = self.rows(batch)
        result = self.table.overwrite(self.arrow(rows))
        self.model = {}
        self.apply(self.combined(rows), merge=False)
        self.written(result.instant_time)

    @rule(batch=BATCHES)
    def insert_overwrite(self, batch: list[tuple[int, int, Row]]) -> None:
        rows = self.rows(batch)
        result = self.table.insert_overwrite(self.arrow(rows))
        combined = self.combined(rows)
        brought = {key[0] for key in combined}
        self.model = {key: row for key, row in self.model.items() if key[0] not in brought}
        self.apply(combined, merge=False)
        self.written(result.instant_time)

    @precondition(lambda self: self.variant.partitioned and self.model)
    @rule(data=st.data())
    def delete_partitions(self, data: st.DataObject) -> None:
        standing = self.table.to_arrow(["_hoodie_partition_path", "region"]).to_pylist()
        path = data.draw(st.sampled_from(sorted({row["_hoodie_partition_path"] for row in standing})))
        gone = {row["region"] or None for row in standing if row["_hoodie_partition_path"] == path}
        result = self.table.delete_partitions([path])
        self.model = {key: row for key, row in self.model.items() if key[0] not in gone}
        self.written(result.instant_time)

    @rule(batch=BATCHES, values_too=st.booleans())
    def update_some_columns(self, batch: list[tuple[int, int, Row]], values_too: bool) -> None:
        """New keys get null in the columns that are not written."""
        written = ["id", "region", "ts", *(["v"] if values_too else [])]
        rows = [{name: row[name] for name in written} for row in self.rows(batch)]
        some = pa.Table.from_pylist(rows, pa.schema({name: self.columns[name] for name in written}))
        result = self.table.upsert(some, partial_update=True)
        for key, row in self.combined(rows).items():
            stored = self.model.get(key)
            if stored is None or not self.variant.ordering or wins(stored, row):
                self.model[key] = {**(stored or dict.fromkeys(self.columns)), **row}
        self.written(result.instant_time)

    @rule(least=st.integers(0, 11), ts=st.none() | st.integers(0, 3), v=st.sampled_from([None, "set"]))
    def update_where(self, least: int, ts: int | None, v: str | None) -> None:
        result = self.table.update({"ts": ts, "v": v}, where=f"id >= {least}")
        self.model = {k: {**row, "ts": ts, "v": v} if k[1] >= least else row for k, row in self.model.items()}
        self.written(result.instant_time)

    @rule(v=st.sampled_from(["", "a", "set"]))
    def delete_where(self, v: str) -> None:
        result = self.table.delete(where=f"v = '{v}'")
        self.model = {key: row for key, row in self.model.items() if row["v"] != v}
        self.written(result.instant_time)

    @precondition(lambda self: len(self.columns) < len(COLUMNS) + len(ADDED))
    @rule(batch=BATCHES.filter(bool))
    def add_a_column(self, batch: list[tuple[int, int, Row]]) -> None:
        name = next(name for name in ADDED if name not in self.columns)
        self.columns[name] = ADDED[name]
        self.model = {key: {**row, name: None} for key, row in self.model.items()}
        self.upsert(batch)

    @rule()
    def reopen(self) -> None:
        options = {
            "hoodie.parquet.small.file.limit": self.variant.small_file_bytes,
            "hoodie.parquet.max.file.size": self.variant.max_file_bytes,
        }
        storage = LocalStorage(str(self.path))
        self.table = lakeformat.Table(storage, resolve(options), clock=self.clock, ids=self.ids)

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def travel(self, data: st.DataObject) -> None:
        """What cleaning keeps is as it was; what is older is as it was, or cannot be had."""
        back = data.draw(st.integers(1, len(self.past)))
        instant, model = self.past[-back]
        try:
            assert self.read(instant) == model
        except lakeformat.InstantNotAvailableError:
            assert back > KEPT
        else:
            type(self).exact += 1

    # --- what must hold -------------------------------------------------------------------------------

    def read(self, as_of: str | None = None) -> Model:
        rows = self.table.to_arrow(as_of=as_of, meta_columns=False).to_pylist()
        keyed = {self.key(row): row for row in rows}
        assert len(keyed) == len(rows), "a key stands in two rows"
        return keyed

    @invariant()
    def equals_the_model(self) -> None:
        type(self).steps += 1
        assert self.read() == self.model


def run(examples: int, table_version: int) -> None:
    """As many random lives as asked for, of tables of one version."""

    class Machine(TableMachine):
        pass

    Machine.table_version = table_version
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
    assert Machine.steps >= examples * 20
    assert Machine.exact >= examples // 4


def test_tables_follow_a_dictionary() -> None:
    run(examples=10, table_version=6)


@pytest.mark.slow
@pytest.mark.parametrize("table_version", [6, 8, 9])
def test_tables_of_all_versions_follow_a_dictionary(table_version: int) -> None:
    run(examples=32, table_version=table_version)


@pytest.mark.nightly
@pytest.mark.parametrize("table_version", [6, 8, 9])
def test_many_tables_follow_a_dictionary(table_version: int) -> None:
    run(examples=400, table_version=table_version)

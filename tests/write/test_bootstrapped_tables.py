"""Tables that Apache Hudi has bootstrapped from plain files are read and written. Oracles: Hudi's answers, a dict."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat import CorruptTableError, Table, UnsupportedTableError
from lakeformat.model.record import META_COLUMNS
from lakeformat.timeline.store import TimelineStore
from tests.helpers.bootstrapped import make_bootstrapped, set_bootstrap_base
from tests.helpers.fixture_tables import names, read_expectations

Row = dict[str, Any]
Model = dict[Any, Row]
TABLES: Final = [name for name in names("hudi_rest") if "_bootstrap_" in name]
SKELETONS: Final = [name for name in TABLES if name.endswith("_metadata")]
_INSTANT: Final = "00000000000001"


def make(name: str, folder: Path) -> Path:
    return make_bootstrapped(name.removeprefix("hudi_rest/"), folder)[0]


def comparable(rows: Iterable[Row]) -> list[Row]:
    left_out = {"_hoodie_commit_seqno", "_hoodie_file_name"}
    kept = ({name: value for name, value in row.items() if name not in left_out} for row in rows)
    return sorted(kept, key=lambda row: row["id"])


def read(path: Path, as_of: str | None = None, **options: Any) -> list[Row]:
    return comparable(lakeformat.open(path, **options).to_arrow(meta_columns=True, as_of=as_of).to_pylist())


@pytest.mark.parametrize("name", TABLES)
def test_all_states_and_changes_are_those_of_hudi(name: str, tmp_path: Path) -> None:
    path, facts = make(name, tmp_path), read_expectations(name)
    assert read(path) == comparable(facts["snapshot"])
    for instant, rows in facts["as_of"].items():
        assert read(path, instant) == comparable(rows)
    for since, rows in facts["incremental"].items():
        begin = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": since}
        assert read(path, **begin) == comparable(rows)
    assert not lakeformat.open(path).check()


@pytest.mark.parametrize("name", SKELETONS)
def test_columns_and_filters_of_skeletons(name: str, tmp_path: Path) -> None:
    path = make(name, tmp_path)
    table, rows = lakeformat.open(path), read(path, _INSTANT)
    assert table.count(as_of=_INSTANT) == len(rows) == 6
    for column in [*table.schema.names, "_hoodie_record_key", "_hoodie_commit_time"]:
        found = table.to_arrow([column], as_of=_INSTANT)[column].to_pylist()
        assert sorted(found) == sorted(row[column] for row in rows)
    for where, wanted in {
        "part = 'a'": {1, 2, 3},
        "part > 'a' and id < 6": {4, 5},
        "id = 5": {5},
        "name is null": set(),
        "part is null": set(),
        "_hoodie_record_key = '2'": {2},
    }.items():
        found = table.to_arrow(["id"], where=where, as_of=_INSTANT)["id"].to_pylist()
        assert set(found) == wanted, where


@pytest.mark.parametrize("name", TABLES)
def test_a_bootstrapped_table_takes_every_write(name: str, tmp_path: Path) -> None:
    path = make(name, tmp_path)
    table = lakeformat.open(path)
    table.restore(next(iter(read_expectations(name)["as_of"])))
    model: Model = {row["id"]: row for row in lakeformat.open(path).to_arrow().to_pylist()}
    sources = {file: file.read_bytes() for file in (tmp_path / "bootsrc").rglob("*.parquet")}

    def check() -> None:
        rows = lakeformat.open(path).to_arrow().to_pylist()
        assert {row["id"]: row for row in rows} == model
        assert len(rows) == len(model)

    def row(number: int, part: str, ts: int) -> Row:
        return {"id": number, "name": f"w{number}", "ts": ts, "part": part}

    assert len(model) == 6
    check()
    table.upsert([row(1, "a", 9), {**model[2], "ts": 0}])
    model[1] = row(1, "a", 9)
    check()
    table.delete(where="id = 5")
    del model[5]
    table.update({"ts": 50}, where="part = 'b' and id = 6")
    model[6]["ts"] = 50
    check()
    table.insert([row(30, "c", 1), row(31, "b", 1)])
    model |= {30: row(30, "c", 1), 31: row(31, "b", 1)}
    check()
    if "_mor_" in name:
        table.compact()
        check()
    table.cluster(by=["name"])
    check()
    for part in ("part = 'a'", "part = 'b'"):
        wanted = {key for key, one in model.items() if one["part"] == part[-2]}
        assert set(lakeformat.open(path).to_arrow(["id"], where=part)["id"].to_pylist()) == wanted
    assert not table.check()
    for file in lakeformat.open(path).snapshot().each_file():
        assert pq.read_schema(path / file.path).names == [*META_COLUMNS, "id", "name", "ts", "part"]
    assert {file: file.read_bytes() for file in sources} == sources


def test_plans_name_the_sources_of_skeletons(tmp_path: Path) -> None:
    path = make("hudi_rest/v9_mor_bootstrap_metadata", tmp_path)
    table = lakeformat.open(path, **{"lakeformat.compact.auto": False})
    table.restore(_INSTANT)
    table.delete(where="id = 1")
    scheduled = table.schedule_compaction()
    store = TimelineStore(table.context.storage)
    timeline = store.load()
    plans = [store.read_compaction_plan(instant) for instant in timeline.pending if instant.time == str(scheduled)]
    assert [one.source for plan in plans for one in plan.operations] == [
        str(next(tmp_path.glob("bootsrc/part=a/*.parquet")))
    ]


@pytest.mark.parametrize("name", SKELETONS)
def test_a_missing_source_is_named(name: str, tmp_path: Path) -> None:
    path = make(name, tmp_path)
    set_bootstrap_base(path, "/moved")
    with pytest.raises(CorruptTableError, match=r"part-.*\.parquet, is missing; put it there, or set hoodie.boots"):
        lakeformat.open(path).to_arrow(as_of=_INSTANT)
    set_bootstrap_base(path, str(tmp_path / "bootsrc"))
    assert len(read(path, _INSTANT)) == 6
    first = next((tmp_path / "bootsrc").rglob("*.parquet"))
    pq.write_table(pq.read_table(first, partitioning=None).slice(1), first)
    with pytest.raises(UnsupportedTableError, match=r"cannot be joined with .* rows"):
        lakeformat.open(path).to_arrow(as_of=_INSTANT)
    shutil.rmtree(path / ".hoodie" / ".aux")
    with pytest.raises(CorruptTableError, match="does not name the file of the others; restore that folder"):
        lakeformat.open(path).to_arrow(as_of=_INSTANT)


def test_sources_with_several_row_groups_and_types_are_joined(tmp_path: Path) -> None:
    path = make("hudi_rest/v9_cow_bootstrap_metadata", tmp_path)
    wanted = read(path, _INSTANT)
    for file in (tmp_path / "bootsrc").rglob("*.parquet"):
        rows = pq.read_table(file, partitioning=None)
        with pq.ParquetWriter(file, rows.schema, compression="gzip", version="1.0") as writer:
            for at in range(rows.num_rows):
                writer.write_table(rows.slice(at, 1))
                writer.write_table(rows.slice(0, 0))
    assert read(path, _INSTANT) == wanted
    assert lakeformat.open(path).to_arrow(["id"], where="id = 6", as_of=_INSTANT) == pa.table(
        {"id": pa.array([6], pa.int32())}
    )


def test_other_formats_do_not_show_skeletons(tmp_path: Path) -> None:
    path = make("hudi_rest/v9_cow_bootstrap_metadata", tmp_path)
    table: Table = lakeformat.open(path)
    table.restore(_INSTANT)
    with pytest.raises(UnsupportedTableError, match="files outside of the table, from a bootstrap"):
        table.sync("delta")
    table.cluster(by=["name"])
    table.sync("delta")

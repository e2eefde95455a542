"""Tables whose metadata table Apache Hudi made: lakeformat and Hudi write in turn, and both keep it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakeformat
from lakeformat.metadata_table.bounds import typed_bounds
from tests.helpers import hudi_rs
from tests.helpers.hudi_spark import Hudi
from tests.helpers.hudi_view import find_disagreements
from tests.helpers.tables import a_schema
from tests.metadata_table.test_fixtures import open_table

pytestmark = pytest.mark.interop

SCHEMA = a_schema(id="int64", name="string", ts="int64", p="string")
Rows = dict[int, dict[str, object]]
#: Hudi's options for its writes. It looks keys up in the record index alone, so it must find keys of ours there.
THEIRS = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.partition.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.index.type": "RECORD_INDEX",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.table.name": "shared",
}
KINDS = [
    pytest.param(6, "COPY_ON_WRITE", id="v6-cow", marks=pytest.mark.nightly),
    pytest.param(6, "MERGE_ON_READ", id="v6-mor"),
    pytest.param(8, "COPY_ON_WRITE", id="v8-cow", marks=pytest.mark.nightly),
    pytest.param(8, "MERGE_ON_READ", id="v8-mor", marks=pytest.mark.nightly),
    pytest.param(9, "COPY_ON_WRITE", id="v9-cow", marks=pytest.mark.nightly),
    pytest.param(9, "MERGE_ON_READ", id="v9-mor"),
]


def rows(number: int) -> pa.Table:
    ids = [1, 2, 10 + number % 7, 100 + number]
    values = [[f"n{number}"] * 4, [number] * 4, ["x", "y", "z", f"q{number % 3}"]]
    return pa.table([ids, *values], schema=SCHEMA)


def by_id(table: pa.Table) -> Rows:
    found = table.select(SCHEMA.names).to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row for row in found}


def steps(ours: lakeformat.Table) -> list[tuple[str, Callable[[], object]]]:
    """Return the services to run in turn."""
    return [
        ("clean", lambda: ours.clean(commits=1)),
        ("cluster", lambda: ours.cluster(by=["id"])),
        ("compact", lambda: ours.compact() if ours.config.table_type.value == "MERGE_ON_READ" else None),
        ("archive", ours.archive),
    ]


@pytest.mark.parametrize(("version", "kind"), KINDS)
def test_both_keep_the_metadata_table(version: int, kind: str, hudi: Hudi, tmp_path: Path) -> None:
    write_in_turn(15, version, kind, hudi, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize(("version", "kind"), KINDS)
def test_both_keep_the_metadata_table_for_thirty_commits(version: int, kind: str, hudi: Hudi, tmp_path: Path) -> None:
    write_in_turn(30, version, kind, hudi, tmp_path)


def write_in_turn(commits: int, version: int, kind: str, hudi: Hudi, tmp_path: Path) -> None:
    """Write with lakeformat and Hudi in turn, run services, and compare all readers with a dict after each commit."""
    path = tmp_path / "t"
    theirs = {**THEIRS, "hoodie.datasource.write.table.type": kind, "hoodie.write.table.version": str(version)}
    hudi.write(path, rows(0), "upsert", **theirs)
    born = first_instants(path)
    ours = lakeformat.open(path)
    model = by_id(rows(0))
    services = steps(ours)
    for number in range(1, commits + 1):
        if number % 5 == 0:
            hudi.write(path, rows(number), "upsert", **theirs)
            model |= by_id(rows(number))
        elif number % 5 == 3:
            gone = rows(number).slice(0, 1)
            ours.delete(gone)
            model = {key: row for key, row in model.items() if key not in by_id(gone)}
        else:
            ours.upsert(rows(number))
            model |= by_id(rows(number))
        if number % 3 == 0:
            services[number // 3 % len(services)][1]()
        assert ours.check().findings == (), number
        assert by_id(ours.to_arrow()) == model
        if number % 5 in {0, 4}:
            assert by_id(hudi.read(path, options={"hoodie.metadata.enable": "true"})) == model
            assert_skipping_is_right(hudi, path, model, number)
    table = open_table(path)
    assert table is not None
    of_partitions = {"partition_stats"} if version > 6 else set()
    assert {"files", "column_stats", "bloom_filters", "record_index"} | of_partitions <= set(table.names)
    assert first_instants(path) == born or table.instants.oldest > min(born)
    hudi_rs.assert_same_rows(ours)


@pytest.mark.parametrize("version", [6, pytest.param(9, marks=pytest.mark.nightly)])
def test_a_key_that_hudi_deleted_and_wrote_to_another_file_group(version: int, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    kind = {"hoodie.datasource.write.table.type": "MERGE_ON_READ", "hoodie.write.table.version": str(version)}
    theirs = {**THEIRS, **kind, "hoodie.parquet.small.file.limit": "0"}
    hudi.write(path, rows(0), "upsert", **theirs)
    hudi.write(path, rows(1).slice(0, 1), "delete", **theirs)
    hudi.write(path, rows(2).slice(0, 1), "upsert", **theirs)
    model = by_id(rows(0)) | by_id(rows(2).slice(0, 1))
    ours = lakeformat.open(path)
    assert by_id(ours.to_arrow()) == model
    ours.upsert(rows(3))
    model |= by_id(rows(3))
    assert by_id(ours.to_arrow()) == model
    assert by_id(hudi.read(path, options={"hoodie.metadata.enable": "true"})) == model
    hudi.write(path, rows(4), "upsert", **theirs)
    model |= by_id(rows(4))
    assert by_id(ours.to_arrow()) == model
    ours.delete(rows(5).slice(0, 2))
    model = {key: row for key, row in model.items() if key > 2}
    assert by_id(ours.to_arrow()) == model
    assert by_id(hudi.read(path, options={"hoodie.metadata.enable": "true"})) == model


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        pytest.param(6, "COPY_ON_WRITE", marks=pytest.mark.nightly),
        (9, "COPY_ON_WRITE"),
        pytest.param(9, "MERGE_ON_READ", marks=pytest.mark.nightly),
    ],
)
def test_both_find_and_move_rows_by_the_record_index(version: int, kind: str, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    moves = {"hoodie.record.index.update.partition.path": "true"}
    shape = {"hoodie.datasource.write.table.type": kind, "hoodie.write.table.version": str(version)}
    theirs = {**THEIRS, **moves, **shape}
    hudi.write(path, rows(0), "upsert", **theirs)
    ours = lakeformat.open(path, **{"hoodie.index.type": "RECORD_INDEX", **moves})
    model = by_id(rows(0))
    for number in range(1, 7):
        batch = rows(number).set_column(3, "p", pa.array(["xyz"[number % 3], "y", f"q{number}", "z"]))
        if number % 3:
            result = ours.upsert(batch)
            (tag,) = [step for step in result.report["steps"] if step["step"] == "tag"]
            assert tag["index_keys"] == len(batch)
        else:
            hudi.write(path, batch, "upsert", **theirs)
        model |= by_id(batch)
        if number == 4:
            ours.delete(batch.slice(1, 1).select(["id"]))
            del model[2]
        assert by_id(ours.to_arrow()) == model, number
    assert by_id(hudi.read(path, options={"hoodie.metadata.enable": "true"})) == model
    hudi_rs.assert_same_rows(ours)


def assert_skipping_is_right(hudi: Hudi, path: Path, model: Rows, newest: int, *, conditions: int = 8) -> None:
    """Check conditions by which Hudi skips files and partitions with the statistics of the metadata table.

    Args:
        conditions: how many to check. The look-up of keys is always one of them, the others take turns.
    """
    options = "'hoodie.metadata.enable' 'true', 'hoodie.enable.data.skipping' 'true'"
    hudi.run(f"CREATE OR REPLACE TEMPORARY VIEW shared USING hudi OPTIONS (path '{path}', {options})")
    known: dict[str, Callable[[dict[str, Any]], bool]] = {
        "ts < 1": lambda row: row["ts"] < 1,
        "p = 'y' or ts < 3": lambda row: row["p"] == "y" or row["ts"] < 3,
        f"ts = {newest}": lambda row: row["ts"] == newest,
        f"ts < {newest - 4}": lambda row: row["ts"] < newest - 4,
        "id between 11 and 13": lambda row: 11 <= row["id"] <= 13,
        f"name = 'n{newest}' and p = 'x'": lambda row: row["name"] == f"n{newest}" and row["p"] == "x",
        "id > 100000": lambda row: row["id"] > 100000,
    }
    first = newest * (conditions - 1) % len(known)
    chosen = dict((list(known.items()) * 2)[first : first + conditions - 1])
    chosen |= {"id in (1, 12, 101)": lambda row: row["id"] in {1, 12, 101}}
    scans = [f"SELECT {at} AS scan, * FROM shared WHERE {text}" for at, text in enumerate(chosen)]  # noqa: S608
    found = hudi.sql(" UNION ALL ".join(scans))
    for at, (condition, holds) in enumerate(chosen.items()):
        rows_of_scan = by_id(found.filter(pc.equal(found["scan"], at)))
        assert rows_of_scan == {key: row for key, row in model.items() if holds(row)}, condition


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
def test_hudi_finds_rows_of_a_file_with_nan(hudi: Hudi, tmp_path: Path) -> None:
    """Hudi 1.x joins the statistics of files that have some, so the bounds of a partition may lack those of a file."""
    path, schema = tmp_path / "t", a_schema(id="int64", v="float64", ts="int64", p="string")
    theirs = {**THEIRS, "hoodie.write.table.version": "9", "hoodie.datasource.write.table.type": "COPY_ON_WRITE"}
    hudi.write(path, pa.table([[1, 2], [1.0, 2.0], [1, 1], ["x", "y"]], schema=schema), "upsert", **theirs)
    nan = pa.table([[3], [float("nan")], [500], ["x"]], schema=schema)
    lakeformat.open(path, **{"hoodie.parquet.small.file.limit": 0}).insert(nan)
    for number in (4, 5):
        hudi.write(path, pa.table([[number], [1.0], [number], ["x"]], schema=schema), "upsert", **theirs)
    options = "'hoodie.metadata.enable' 'true', 'hoodie.enable.data.skipping' 'true'"
    hudi.run(f"CREATE OR REPLACE TEMPORARY VIEW has_nan USING hudi OPTIONS (path '{path}', {options})")
    assert hudi.sql("SELECT id FROM has_nan WHERE ts = 500")["id"].to_pylist() == [3]


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
@pytest.mark.parametrize(
    ("version", "kind"), [pytest.param(*KINDS[1].values, id="v6-mor", marks=pytest.mark.nightly), *KINDS[2:]]
)
def test_the_same_history_gives_the_records_that_hudi_makes(
    version: int, kind: str, hudi: Hudi, tmp_path: Path
) -> None:
    """Sizes, instants and names of file groups may differ. Version 6 has no statistics of partitions.

    Hudi keeps the last record of a partition that has lost all its rows. Ours then has no bounds and counts 0 values.
    """
    theirs = {**THEIRS, "hoodie.datasource.write.table.type": kind, "hoodie.write.table.version": str(version)}
    theirs["hoodie.compact.inline.max.delta.commits"] = "100"
    paths = [tmp_path / "hudi", tmp_path / "ours"]
    for path in paths:
        hudi.write(path, rows(0), "upsert", **theirs)
    ours = lakeformat.open(paths[1], **{"hoodie.parquet.small.file.limit": "0"})  # As `Hudi.write` does.
    for number in range(1, 6):
        if number == 3:
            hudi.write(paths[0], rows(2).slice(2), "delete", **theirs)
            ours.delete(rows(2).slice(2))
        else:
            hudi.write(paths[0], rows(number), "upsert", **theirs)
            ours.upsert(rows(number))
        assert statistics_of_files(paths[0]) == statistics_of_files(paths[1]), number
        assert places_of_keys(paths[0]) == places_of_keys(paths[1]), number
        if version > 6:
            found = [statistics_of_partitions(path) for path in paths]
            empty = {place for place, (_, _, values, *_) in found[1].items() if values == 0}
            assert found[0].keys() == found[1].keys(), number
            assert {k: v for k, v in found[0].items() if k not in empty} == {
                k: v for k, v in found[1].items() if k not in empty
            }, number
            assert len(found[0]) > len(empty)
        for path in paths:
            assert find_disagreements(lakeformat.open(path)) == []


def statistics_of_files(path: Path) -> dict[tuple[str, str], list[tuple[object, ...]]]:
    """Return bounds, counts and tightness of each live file, by partition and column, and without the files' names."""
    table = open_table(path)
    assert table is not None
    pieces = lakeformat.open(path).snapshot().each_slice()
    folders = {str(file.name): piece.group.partition_path for piece in pieces for file in piece.files}
    found: dict[tuple[str, str], list[tuple[object, ...]]] = {}
    for column in ("_hoodie_record_key", *SCHEMA.names):
        rows = table.column_stats([column])
        data_type = pa.string() if column.startswith("_") else SCHEMA.field(column).type
        bounds = zip(*(bound.to_pylist() for bound in typed_bounds(rows, data_type)), strict=True)
        for row, ends in zip(rows.to_pylist(), bounds, strict=True):
            if row["file_name"] in folders:
                facts = (*ends, row["values"], row["nulls"], row["is_tight"])
                found.setdefault((folders[row["file_name"]], column), []).append(facts)
    return {place: sorted(facts, key=str) for place, facts in found.items()}


def places_of_keys(path: Path) -> dict[str, tuple[str, list[str]]]:
    """Return of each key its partition and the keys that are in the same file group."""
    table = open_table(path)
    assert table is not None
    rows = table.record_index().to_pylist()
    groups: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: row["key"]):
        groups.setdefault(row["file_id"], []).append(row["key"])
    return {row["key"]: (row["partition_path"], groups[row["file_id"]]) for row in rows}


def statistics_of_partitions(path: Path) -> dict[tuple[str, str], tuple[object, ...]]:
    """Return bounds, counts and tightness of each partition and column."""
    table = open_table(path)
    assert table is not None
    found: dict[tuple[str, str], tuple[object, ...]] = {}
    for column in ("_hoodie_record_key", *SCHEMA.names):
        rows = table.partition_stats([column])
        data_type = pa.string() if column.startswith("_") else SCHEMA.field(column).type
        bounds = zip(*(bound.to_pylist() for bound in typed_bounds(rows, data_type)), strict=True)
        for row, ends in zip(rows.to_pylist(), bounds, strict=True):
            found[row["partition_path"], column] = (*ends, row["values"], row["nulls"], row["is_tight"])
    return found


def first_instants(path: Path) -> list[str]:
    """Return the instants that filled the metadata table. Others would show that it was built again."""
    files = (path / ".hoodie" / "metadata").rglob("00000000000000*.deltacommit")
    return sorted(file.name for file in files)

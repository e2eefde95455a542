"""Tables that lakeformat and Apache Hudi write in turn, both cleaning and archiving after every write."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.config.resolve import resolve
from lakeformat.file_system_view.context import open_context
from lakeformat.model.instant import Action, State
from tests.helpers import hudi_rs
from tests.helpers.hudi_spark import Hudi
from tests.helpers.tables import a_schema

pytestmark = pytest.mark.interop

SCHEMA = a_schema(id="int64", name="string", ts="int64", p="string")
SHORT = {
    "hoodie.clean.automatic": "true",
    "hoodie.cleaner.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.timeline.compaction.batch.size": "3",
}
#: Version, merge-on-read, number of commits. Every run makes a few commits, nights make sixty on all kinds.
LIVES = [
    pytest.param(6, False, 9, id="v6-cow"),
    pytest.param(9, False, 9, id="v9-cow", marks=pytest.mark.nightly),
    pytest.param(9, True, 9, id="v9-mor"),
    *(
        pytest.param(version, mor, 60, id=f"v{version}-{'mor' if mor else 'cow'}-60", marks=pytest.mark.nightly)
        for version in (6, 8, 9)
        for mor in (False, True)
    ),
]


def rows(number: int) -> pa.Table:
    ids = [1, 2, 10 + number]
    values = [[f"n{number}"] * 3, [number] * 3, ["x", "y" if number % 2 else "x", "z"]]
    return pa.table([ids, *values], schema=SCHEMA)


def rows_as_tuples(table: pa.Table) -> list[tuple[object, ...]]:
    names = ("_hoodie_commit_time", "id", "name", "ts", "p")
    return sorted(
        zip(*(table.column(name).to_pylist() for name in names), strict=True), key=lambda row: (row[1], row[4])
    )


@pytest.mark.parametrize(("version", "mor", "rounds"), LIVES)
def test_both_clean_and_archive_one_table(version: int, mor: bool, rounds: int, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    kind = "MERGE_ON_READ" if mor else "COPY_ON_WRITE"
    compacting = {"hoodie.compact.inline": str(mor).lower(), "hoodie.compact.inline.max.delta.commits": "3"}
    theirs = {
        **SHORT,
        **compacting,
        "hoodie.metadata.enable": "false",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.write.table.version": str(version),
        "hoodie.write.auto.upgrade": "false",
    }
    options = {**SHORT, **compacting, "hoodie.table.type": kind, "hoodie.write.table.version": version}
    ours = lakeformat.create(path, SCHEMA, record_key="id", partition_by="p", ordering="ts", **options)
    held: dict[tuple[int, str], str] = {}
    for number in range(rounds):
        if number % 4 in {2, 3}:
            hudi.write(path, rows(number), "upsert", **theirs)
        else:
            ours.upsert(rows(number))
        held |= {(row["id"], row["p"]): row["name"] for row in rows(number).to_pylist()}
        mine = rows_as_tuples(ours.to_arrow(meta_columns=True))
        assert {(row[1], row[4]): row[2] for row in mine} == held
        assert rows_as_tuples(hudi.read(path)) == mine
    hudi_rs.assert_same_rows(ours)

    store = open_context(str(path), resolve({})).store
    timeline = store.load()
    assert len(timeline.commits) <= 3 + 2 * mor  # Hudi keeps deltacommits that no compaction has covered.
    assert len([entry for entry in ours.history() if entry.operation != "compact"]) == rounds
    base_files = [each for each in path.rglob("*.parquet") if ".hoodie" not in each.parts]
    assert len(base_files) <= 3 * 3 + rounds + 3 * mor  # Three groups that change, and the insert of each round.

    archived = {entry.instant_time for entry in ours.history()} - timeline.commit_times
    name = f"life{version}_{mor}_{rounds}".lower()
    hudi.run(f"CREATE TABLE IF NOT EXISTS {name} USING hudi LOCATION '{path}'")
    listed = hudi.sql(
        f"CALL show_archived_commits(table => '{name}', start_ts => '2020', end_ts => '2999', limit => 999)"
    )
    assert archived <= set(listed.column(listed.column_names[0]).to_pylist())

    newest = timeline.commits[-1]
    asked = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": timeline.commits[0].completed_at,
    }
    assert rows_as_tuples(hudi.read(path, options=asked)) == rows_as_tuples(
        ours.changes(timeline.commits[0].completed_at).to_arrow(meta_columns=True)
    )
    assert newest.state is State.COMPLETED


def test_pending_clean_is_finished_by_hudi(hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    version = 6 if hudi.version == "0.15.0" else 9
    off = {**SHORT, "hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
    ours = lakeformat.create(
        path, SCHEMA, record_key="id", partition_by="p", ordering="ts", **off, **{"hoodie.write.table.version": version}
    )
    for number in range(4):
        ours.upsert(rows(number))
    going = [path / file.path for file in ours.clean(dry_run=True).files]
    whole = {file: file.read_bytes() for file in going}
    ours.clean()
    store = open_context(str(path), resolve({})).store
    (clean,) = store.load().of_action(Action.CLEAN)
    (path / store.path(clean)).unlink()
    (path / store.path(clean.at(State.INFLIGHT))).unlink()
    for file, data in whole.items():
        file.write_bytes(data)
    theirs = {"hoodie.metadata.enable": "false", "hoodie.write.table.version": str(version)}
    hudi.write(path, rows(4), "upsert", **{**SHORT, **theirs})
    assert not any(file.exists() for file in going)
    assert store.load().of_action(Action.CLEAN)[0].time == clean.time
    assert rows_as_tuples(hudi.read(path)) == rows_as_tuples(ours.to_arrow(meta_columns=True))


@pytest.mark.parametrize("version", [6, 9])
def test_hudi_writes_first_into_a_table_that_we_created(version: int, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    options = {"hoodie.write.table.version": version}
    ours = lakeformat.create(path, SCHEMA, record_key="id", partition_by="p", ordering="ts", **options)
    theirs = {"hoodie.write.table.version": str(version), "hoodie.write.auto.upgrade": "false"}
    hudi.write(path, rows(0), "upsert", **theirs)
    ours.upsert(rows(1))
    expected = {(row["id"], row["p"]): row["name"] for number in (0, 1) for row in rows(number).to_pylist()}
    assert {(row["id"], row["p"]): row["name"] for row in ours.to_arrow().to_pylist()} == expected

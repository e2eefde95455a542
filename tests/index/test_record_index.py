"""Writes that find keys by the record index of a metadata table, against a dict, and beside the search of files."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat.errors import DuplicateKeyError
from lakeformat.metadata_table.deltacommit import MetadataChanges, write_deltacommit
from lakeformat.metadata_table.names import FOLDER, MetadataPartition
from lakeformat.model.operation import Operation
from lakeformat.storage import LocalStorage, SystemClock
from tests.helpers.examples import examples
from tests.helpers.fixture_tables import names, unpack
from tests.helpers.local_shuffle import write_shuffled
from tests.metadata_table.test_fixtures import open_table
from tests.metadata_table.test_kept import assert_kept, rows_of

INDEX = "hoodie.index.type"
MOVES = "hoodie.record.index.update.partition.path"
TABLES = [
    pytest.param(
        name, marks=() if name.rpartition("/")[2] in {"v8_cow_clustered", "v9_mor_compacted"} else pytest.mark.slow
    )
    for name in names("hudi_metadata")
]
BY_INDEX = {INDEX: "RECORD_INDEX", MOVES: "true"}
KINDS = ["RECORD_INDEX", "AUTO"]
REGIONS = ("eu", "us", "asia")


def fresh(path: Path, **options: str) -> lakeformat.Table:
    """Open a table whose files the next write lists."""
    return lakeformat.open(path, **options)


def row(rows: pa.Table, key: str, ts: int, region: str) -> pa.Table:
    """Return one row that is like the first row except for these values."""
    table = rows.slice(0, 1)
    for name, value in (("id", key), ("ts", ts), ("region", region)):
        at = table.schema.get_field_index(name)
        if at >= 0:
            table = table.set_column(at, table.schema.field(at), pa.array([value], table.schema.field(at).type))
    return table


def counts_of(tagging: Mapping[str, Any]) -> tuple[int, int, int]:
    return tagging["index_keys"], tagging["files"], tagging["bytes_read"]


@pytest.mark.parametrize("kind", ["RECORD_INDEX", "global_record_level_index"])
@pytest.mark.parametrize("name", TABLES)
def test_every_key_is_found_by_the_index_and_no_other(name: str, kind: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    rows = lakeformat.open(path).to_arrow()
    others = [row(rows, f"none{number}", 1, rows["region"][0].as_py()) for number in range(3)]
    incoming = pa.concat_tables([rows, *others])
    by_index = fresh(path, **{INDEX: kind}).plan_upsert(incoming)
    stays = {"hoodie.simple.index.update.partition.path": "false"}
    by_files = fresh(path, **{INDEX: "GLOBAL_SIMPLE"}, **stays).plan_upsert(incoming)
    assert (by_index.updates, by_index.inserts) == (by_files.updates, by_files.inserts)
    assert {(f.partition_path, f.file_id, f.updates) for f in by_index.files if f.updates} == {
        (f.partition_path, f.file_id, f.updates) for f in by_files.files if f.updates
    }
    tagging = by_index.tagging
    assert tagging["index_keys"] == tagging["keys"] == len(incoming)
    assert 0 < tagging["index_groups"] <= 10
    assert tagging["index_bytes"] > 0
    assert by_files.tagging["index_keys"] == 0


VERBS = ("upsert", "delete", "drop", "fail", "stay", "tasks", "auto", "auto tasks", "compact", "cluster")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["upsert", "delete", "drop", "fail", "stay", "tasks", "auto", "auto tasks", "compact", "cluster"]
        ),
        st.lists(
            st.tuples(st.integers(0, 9), st.sampled_from(REGIONS)), min_size=1, max_size=4, unique_by=lambda one: one[0]
        ),
    ),
    min_size=2,
    max_size=7,
)


@pytest.mark.parametrize("name", TABLES)
@settings(
    max_examples=examples(3),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(steps=STEPS)
@example(steps=[("stay", [(7, "asia")]), ("upsert", [(7, "eu")]), ("compact", [(0, "us")])])  # An empty base file.
def test_rows_that_move_go_and_come_back_are_those_of_a_dict(
    name: str, steps: list[tuple[str, list[tuple[int, str]]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = unpack(name, tmp_path_factory.mktemp("table"))
    rows = lakeformat.open(path).to_arrow()
    known = rows["id"].to_pylist()[:5]
    model = {each["id"]: each for each in rows.to_pylist()}
    for number, (verb, chosen) in enumerate(steps):
        keys = [known[at] if at < len(known) else f"key{at}" for at, _ in chosen]
        regions = [region for _, region in chosen]
        if verb.startswith("auto"):  # It looks in the partition of the row, so the row must not move.
            regions = [
                model[key]["region"] if key in model else region for key, region in zip(keys, regions, strict=True)
            ]
        ts = 10_000_000 + number
        batch = pa.concat_tables([row(rows, key, ts, region) for key, region in zip(keys, regions, strict=True)])
        new = {each["id"]: each for each in batch.to_pylist()}
        apply(path, verb, batch, new, model)
        assert rows_of(lakeformat.open(path)) == model, (number, verb)
    assert_kept(path)


def apply(path: Path, verb: str, batch: pa.Table, new: dict[str, Any], model: dict[str, Any]) -> None:
    """Apply a verb to the table and to the model."""
    table = fresh(path, **BY_INDEX)
    if verb == "upsert":
        table.upsert(batch)
        model |= new
    elif verb == "delete":
        table.delete(batch.select(["id"]))
        for key in new:
            model.pop(key, None)
    elif verb in {"drop", "fail"}:
        policy = fresh(path, **BY_INDEX, **{"hoodie.datasource.insert.dup.policy": verb})
        if verb == "fail" and new.keys() & model.keys():
            with pytest.raises(DuplicateKeyError):
                policy.insert(batch)
            return
        policy.insert(batch)
        model |= {key: value for key, value in new.items() if key not in model}
    elif verb == "stay":
        fresh(path, **{INDEX: "RECORD_INDEX"}).upsert(batch)
        model |= new
        if "region" in table.config.partition_fields:  # The row is put back into its own folder.
            table.upsert(batch)
    elif verb == "auto":
        lakeformat.open(path).upsert(batch)
        model |= new
    elif verb.endswith("tasks"):
        moved = lakeformat.open(path) if verb.startswith("auto") else table
        write_shuffled(moved, [batch.slice(0, 1), batch.slice(1)], Operation.UPSERT)
        model |= new
    elif verb == "compact" and table.config.table_type.value == "MERGE_ON_READ":
        table.compact()
    elif verb == "cluster":
        table.cluster(by=["qty"])


@pytest.mark.parametrize("moves", ["true", "false"])
def test_a_row_moves_only_if_the_option_says_so(moves: str, tmp_path: Path) -> None:
    path = unpack("hudi_metadata/v8_cow_clustered", tmp_path)
    table = fresh(path, **{INDEX: "RECORD_INDEX", MOVES: moves})
    rows = table.to_arrow()
    first = rows.slice(0, 1).to_pylist()[0]
    goal = next(region for region in REGIONS if region != first["region"])
    count = len(rows)
    result = table.upsert(row(rows, first["id"], 10_000_000, goal))
    assert len(table.to_arrow()) == count
    stored = table.to_arrow(["id", "region", "_hoodie_partition_path"], where=f"id = '{first['id']}'").to_pylist()
    folder = f"region={goal if moves == 'true' else first['region']}"
    assert stored == [{"id": first["id"], "region": goal, "_hoodie_partition_path": folder}]
    assert result.report["rows"]["inserted"] == (moves == "true")


# --- places that are wrong --------------------------------------------------------------------------


def add_to_index(path: Path, places: Mapping[str, tuple[str, str]]) -> None:
    """Let the record index name these places, which are not those of the keys, by a deltacommit that completes."""
    metadata = open_table(path)
    assert metadata is not None
    rows = pa.table(
        {
            "key": pa.array(places, pa.string()),
            "partition_path": [partition for partition, _ in places.values()],
            "file_id": [file_id for _, file_id in places.values()],
            "instant_ms": pa.repeat(0, len(places)),
        }
    )
    time = max(instant.time for instant in lakeformat.open(path).snapshot().timeline.commits)
    later = str(int(time) + 1)
    write_deltacommit(metadata, later, MetadataChanges({MetadataPartition.RECORD_INDEX: rows}, {}), SystemClock())


@pytest.mark.parametrize("name", ["v8_cow_clustered", "v9_mor_compacted"])
def test_a_wrong_place_neither_loses_nor_doubles_a_row(name: str, tmp_path: Path) -> None:
    path = unpack(f"hudi_metadata/{name}", tmp_path)
    table = fresh(path, **BY_INDEX)
    rows = table.to_arrow()
    slices = list(table.snapshot().each_slice())
    first, second = (
        slices[0].group,
        next(s.group for s in slices if s.group.partition_path != slices[0].group.partition_path),
    )
    stored = rows["id"][0].as_py()
    region = rows["region"][0].as_py()
    add_to_index(
        path,
        {
            "gone": (first.partition_path, first.file_id),
            "gone elsewhere": (second.partition_path, second.file_id),
            "dead": (first.partition_path, "00000000-0000-0000-0000-000000000000-0"),
            stored: (first.partition_path, "00000000-0000-0000-0000-000000000000-0"),
        },
    )
    own = first.partition_path.partition("=")[2]
    keys = {"gone": own, "gone elsewhere": own, "dead": own, stored: region}
    batch = pa.concat_tables([row(rows, key, 10_000_000, place) for key, place in keys.items()])
    result = fresh(path, **BY_INDEX).upsert(batch)
    assert result.report["rows"]["inserted"] == 3
    assert result.report["rows"]["updated"] == 1
    expected = {each["id"]: each for each in [*rows.to_pylist(), *batch.to_pylist()]}
    assert rows_of(lakeformat.open(path)) == expected
    found = lakeformat.open(path).to_arrow(["id", "_hoodie_partition_path"], where="id like 'gone%' or id = 'dead'")
    assert set(found["_hoodie_partition_path"].to_pylist()) == {first.partition_path}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["v8_cow_clustered", "v9_mor_compacted", "v9_cow_overwrite_flat"])
def test_tasks_ask_the_index_and_write_what_one_process_writes(name: str, kind: str, tmp_path: Path) -> None:
    path = unpack(f"hudi_metadata/{name}", tmp_path)
    rows = lakeformat.open(path).to_arrow()
    region = rows["region"][0].as_py()
    batch = pa.concat_tables([rows.slice(0, 5), row(rows, "new", 10_000_000, region)])
    copy = Path(shutil.copytree(path, tmp_path / "copy"))
    theirs = lakeformat.open(copy, **{INDEX: kind}).upsert(batch)
    ours = write_shuffled(lakeformat.open(path, **{INDEX: kind}), [batch.slice(0, 2), batch.slice(2)], Operation.UPSERT)
    assert ours.report["rows"] == theirs.report["rows"]
    assert rows_of(lakeformat.open(path)) == rows_of(lakeformat.open(copy))
    (tag,) = [step for step in ours.report["steps"] if step["step"] == "tag"]
    assert tag["index_keys"] >= len(batch)
    assert tag["index_groups"] > 0
    assert_kept(path)


# --- AUTO -------------------------------------------------------------------------------------------


def test_auto_keeps_the_rows_of_a_key_in_two_partitions_apart(tmp_path: Path) -> None:
    path = unpack("hudi_metadata/v8_cow_clustered", tmp_path)
    rows = lakeformat.open(path).to_arrow()
    first = rows.slice(0, 1).to_pylist()[0]
    goal = next(region for region in REGIONS if region != first["region"])
    lakeformat.open(path).upsert(row(rows, first["id"], 10_000_000, goal))
    lakeformat.open(path).delete(row(rows, first["id"], 10_000_001, goal))  # The index has no place of the key now.
    assert lakeformat.open(path).plan_upsert(rows.slice(0, 1)).inserts == 0
    lakeformat.open(path).upsert(row(rows, first["id"], 10_000_002, first["region"]))
    assert len(lakeformat.open(path).to_arrow()) == len(rows)


def test_auto_reads_the_record_index_alone_where_keys_are_unique_in_the_table(tmp_path: Path) -> None:
    path = unpack("hudi_metadata/v9_cow_overwrite_flat", tmp_path)
    rows = lakeformat.open(path).to_arrow()
    incoming = pa.concat_tables([rows, row(rows, "new", 1, "eu")])
    plan = lakeformat.open(path).plan_upsert(incoming)
    assert (plan.updates, plan.inserts) == (len(rows), 1)
    assert plan.tagging["index_keys"] == len(incoming)
    by_files = lakeformat.open(path, **{"hoodie.metadata.enable": "false"}).plan_upsert(incoming)
    assert (by_files.updates, by_files.inserts) == (len(rows), 1)
    assert by_files.tagging["index_keys"] == 0
    result = lakeformat.open(path).upsert(incoming)
    (tag,) = [step for step in result.report["steps"] if step["step"] == "tag"]
    assert counts_of(tag) == (len(incoming), 0, 0)  # A plan checks each place in the files; a write need not.


def test_auto_searches_the_files_if_the_record_index_would_unpack_more(tmp_path: Path) -> None:
    path = unpack("hudi_metadata/v9_cow_overwrite_flat", tmp_path)
    rows = lakeformat.open(path).to_arrow()
    new = pa.concat_tables([row(rows, f"new{number}", 1, "eu") for number in range(500)])
    lakeformat.open(path).upsert(new)
    incoming = pa.concat_tables([rows, new])
    plans = {kind: lakeformat.open(path, **{"hoodie.index.type": kind}).plan_upsert(incoming) for kind in KINDS}
    assert {(plan.updates, plan.inserts) for plan in plans.values()} == {(len(incoming), 0)}
    assert [plans[kind].tagging["index_keys"] for kind in ("AUTO", "RECORD_INDEX")] == [0, len(incoming)]
    few = lakeformat.open(path).plan_upsert(new.slice(0, 10))
    assert (few.updates, few.tagging["index_keys"]) == (10, 10)


# --- fall back --------------------------------------------------------------------------------------


def damage(path: Path, how: str) -> None:
    folder = path / FOLDER / "record_index"
    if how == "partitioned":
        definitions = path / ".hoodie/.index_defs/index.json"
        definitions.write_text(definitions.read_text().replace('"isPartitioned" : "false"', '"isPartitioned" : "true"'))
        assert json.loads(definitions.read_text())["indexDefinitions"]["record_index"]
    elif how == "group":
        for file in folder.glob("*record-index-0000-0*"):
            file.unlink()
    elif how == "truncated":
        for file in folder.glob("record-index-*.hfile"):
            file.write_bytes(file.read_bytes()[:-100])
    elif how == "behind":
        times = sorted(file.name for file in (path / FOLDER / ".hoodie/timeline").glob("*.deltacommit"))
        (path / FOLDER / ".hoodie/timeline" / times[-1]).unlink()
    elif how == "gone":
        shutil.rmtree(path / FOLDER)


REASONS = {
    "partitioned": "divided by partition",
    "group": "lacks file group",
    "truncated": "is not a whole HFile",
    "behind": "lacks instant",
    "gone": "is missing",
    "off": "hoodie.metadata.enable is false",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", REASONS)
def test_an_index_that_cannot_be_used_is_named_once_and_files_are_searched(
    how: str, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = unpack("hudi_metadata/v9_mor_compacted", tmp_path)
    rows = lakeformat.open(path).to_arrow()
    damage(path, how)
    options = {INDEX: kind, **({"hoodie.metadata.enable": "false"} if how == "off" else {})}
    with caplog.at_level(logging.WARNING, "lakeformat.write"):
        plan = fresh(path, **options).plan_upsert(rows)
    (text,) = [record.getMessage() for record in caplog.records if "record index" in record.getMessage()]
    assert text.startswith(f"table {LocalStorage(str(path)).location}: keys are searched in the files")
    assert REASONS[how] in text
    assert (plan.updates, plan.inserts) == (len(rows), 0)
    assert plan.tagging["index_keys"] == 0
    assert plan.tagging["files"] > 0


def test_a_table_without_a_record_index_is_searched_globally(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.string()), ("ts", pa.int64())])
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", partition_by="day", ordering="ts", **BY_INDEX)
    table.upsert(pa.table({"id": ["a", "b"], "day": ["1", "2"], "ts": [1, 1]}))
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "lakeformat.write"):
        table.upsert(pa.table({"id": ["a"], "day": ["2"], "ts": [2]}))
    assert "the table has no record index" in caplog.text
    assert sorted(table.to_arrow().to_pylist(), key=lambda each: str(each["id"])) == [
        {"id": "a", "day": "2", "ts": 2},
        {"id": "b", "day": "2", "ts": 1},
    ]

"""Options of Hudi that change what a write or its services do. Oracle: answers of Hudi 1.2.0, noted as rows."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import lakeformat
from lakeformat import InvalidOptionError, Table, ValidationFailedError
from lakeformat.config.resolve import resolve
from lakeformat.write.intake import plan_job

Row = dict[str, Any]
KINDS = ["COPY_ON_WRITE", "MERGE_ON_READ"]


def row(number: int, name: str, ts: int, part: str = "a") -> Row:
    return {"id": number, "name": name, "ts": ts, "part": part}


def make(path: Path, rows: list[Row], **options: Any) -> Table:
    """Make a table with these rows, keyed by id, ordered by ts."""
    return lakeformat.create(
        path, rows, record_key="id", partition_by="part", ordering="ts", insert=True, if_exists="error", **options
    )


def texts(path: Path) -> list[str]:
    return sorted(f"{one['id']}:{one['name']}" for one in lakeformat.open(path).to_arrow().to_pylist())


@pytest.mark.parametrize("kind", KINDS)
def test_an_insert_merges_with_the_small_file_that_takes_it(kind: str, tmp_path: Path) -> None:
    make(tmp_path / "t", [row(1, "n1", 5), row(2, "n2", 5)], table_type=kind)
    batch = [row(1, "v1", 7), row(1, "w1", 8), row(2, "old", 1), row(3, "n3", 7), row(3, "m3", 9)]
    lakeformat.open(tmp_path / "t", **{"hoodie.merge.allow.duplicate.on.inserts": False}).insert(batch)
    assert texts(tmp_path / "t") == ["1:w1", "2:n2", "3:m3"]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_new_files_are_not_compared(kind: str, tmp_path: Path) -> None:
    make(tmp_path / "t", [row(1, "n1", 5)], table_type=kind)
    table = lakeformat.open(tmp_path / "t", **{"hoodie.merge.allow.duplicate.on.inserts": False})
    table.insert([row(4, "x", 1, "new"), row(4, "y", 2, "new")])
    assert texts(tmp_path / "t") == ["1:n1", "4:x", "4:y"]


def test_by_default_an_insert_keeps_all_rows(tmp_path: Path) -> None:
    make(tmp_path / "t", [row(1, "n1", 5)])
    lakeformat.open(tmp_path / "t").insert([row(1, "v1", 7), row(1, "w1", 8)])
    assert texts(tmp_path / "t") == ["1:n1", "1:v1", "1:w1"]


def test_bulk_insert_replaces_what_its_option_says(tmp_path: Path) -> None:
    """The interop tests compare both operations and modes with Hudi."""
    table = make(tmp_path / "t", [row(1, "n1", 5), row(2, "n2", 5, "b")])
    option = "hoodie.bulkinsert.overwrite.operation.type"
    with pytest.raises(InvalidOptionError, match="needs mode overwrite"):
        lakeformat.open(tmp_path / "t", **{option: "insert_overwrite_table"}).bulk_insert([row(3, "n3", 5)])
    assert texts(tmp_path / "t") == ["1:n1", "2:n2"]
    lakeformat.open(tmp_path / "t", **{option: "insert_overwrite"}).bulk_insert([row(3, "n3", 5)])
    assert texts(tmp_path / "t") == ["2:n2", "3:n3"]
    store, ids = table.context.store, table.context.ids
    options = resolve({"operation": "bulk_insert", option: "insert_overwrite_table"})
    job = plan_job(store, table.snapshot(), options, table.schema, ids, overwrite=True)
    assert job.operation.value == "insert_overwrite_table"
    options = resolve({"operation": "bulk_insert", option: "insert_overwrite"})
    with pytest.raises(InvalidOptionError, match="needs mode append"):
        plan_job(store, table.snapshot(), options, table.schema, ids, overwrite=True)


def test_an_overwrite_replaces_the_named_partitions(tmp_path: Path) -> None:
    """As Hudi does for ``insert overwrite ... partition (...)``: partitions of the rows are not replaced."""
    make(tmp_path / "t", [row(1, "n1", 5), row(2, "n2", 5, "b"), row(3, "n3", 5, "c")])
    table = lakeformat.open(tmp_path / "t", **{"hoodie.static.overwrite.partition.paths": "b,c"})
    table.insert_overwrite([row(4, "n4", 5), row(5, "n5", 5, "b")])
    assert texts(tmp_path / "t") == ["1:n1", "4:n4", "5:n5"]


def test_a_refusal_of_a_validator_may_be_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(tmp_path / "t", [row(1, "n1", 5)])
    table = lakeformat.open(tmp_path / "t")
    with pytest.raises(ValidationFailedError):
        table.upsert([row(2, "n2", 5)], validators=[lambda write: False])
    policy = {"hoodie.precommit.validators.failure.policy": "WARN_LOG"}
    with caplog.at_level(logging.WARNING):
        lakeformat.open(tmp_path / "t", **policy).upsert([row(2, "n2", 5)], validators=[lambda write: False])
    assert texts(tmp_path / "t") == ["1:n1", "2:n2"]
    assert "refused the write: it returned False, but hoodie.precommit" in caplog.text


def test_no_service_runs_if_they_are_off(tmp_path: Path) -> None:
    path, keeps_one = tmp_path / "t", {"hoodie.clean.commits.retained": 1, "hoodie.compact.inline": True}
    limits = {"hoodie.compact.inline.max.delta.commits": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
    make(path, [row(1, "n", 0)], table_type="MERGE_ON_READ")
    for number in range(4):
        options = {**keeps_one, **limits, "hoodie.table.services.enabled": False}
        lakeformat.open(path, **options).upsert([row(1, "n", number)])
    actions = {entry.action for entry in lakeformat.open(path).history()}
    assert actions == {"deltacommit"}
    lakeformat.open(path, **keeps_one, **limits).upsert([row(1, "n", 9)])
    assert "commit" in {entry.action for entry in lakeformat.open(path).history()}


@pytest.mark.parametrize(
    ("options", "cleaned"),
    [
        ({"hoodie.clean.partition.filter.regex": "b"}, {"b"}),
        ({"hoodie.clean.partition.filter.regex": "b.*"}, {"b", "ba"}),
        ({"hoodie.clean.partition.filter.selected": "a,ba"}, {"a", "ba"}),
        ({"hoodie.cleaner.partition.filter.selected": "a", "hoodie.cleaner.partition.filter.regex": "b"}, {"a"}),
    ],
)
def test_only_chosen_partitions_are_cleaned(options: dict[str, str], cleaned: set[str], tmp_path: Path) -> None:
    path, parts = tmp_path / "t", ("a", "b", "ba")
    off = {"hoodie.clean.automatic": False}
    make(path, [row(1, "n", 0, part) for part in parts], **off)
    for ts in (1, 2):
        lakeformat.open(path, **off).upsert([row(1, "n", ts, part) for part in parts])

    def files() -> dict[str, int]:
        return {part: len([*(path / part).glob("*.parquet")]) for part in parts}

    assert files() == dict.fromkeys(parts, 3)
    lakeformat.open(path, **off, **options).clean(commits=1)
    left = files()
    assert {part for part in parts if left[part] < 3} == cleaned
    lakeformat.open(path, **off).clean(commits=1)
    assert set(files().values()) == {min(left.values())}, "the next clean covers what the filter left out"


def test_a_wrong_pattern_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="regular expression"):
        make(tmp_path / "t", [row(1, "n", 0)], **{"hoodie.clean.partition.filter.regex": "["})

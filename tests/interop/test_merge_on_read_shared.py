"""Merge-on-read tables of lakeformat, shared with Apache Hudi: both read, update and compact them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.file_system_view.file_groups import list_files
from tests.helpers.crashing import dies_at
from tests.helpers.faulty import Mode
from tests.helpers.flights import Write, copy_of
from tests.helpers.hudi_spark import Hudi
from tests.helpers.tables import a_schema

pytestmark = pytest.mark.interop

SCHEMA = a_schema(id="string", p="string", v="int64", ts="int64")
W = "hoodie.datasource.write."
MOR = {f"{W}table.type": "MERGE_ON_READ", "hoodie.compact.inline": "false"}
COMPACTING = {**MOR, "hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
INDEXES: Mapping[str, Mapping[str, str]] = {
    "BLOOM": {"hoodie.index.type": "BLOOM"},
    "BUCKET": {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"},
}

Model = dict[tuple[str, str], tuple[int, int]]


def rows(held: Model) -> pa.Table:
    return pa.table(
        [[k for _, k in held], [p for p, _ in held], [v for v, _ in held.values()], [t for _, t in held.values()]],
        schema=SCHEMA,
    )


def model_of(table: pa.Table) -> Model:
    found = {(row["p"], row["id"]): (row["v"], row["ts"]) for row in table.to_pylist()}
    assert len(found) == table.num_rows, "a key is doubled"
    return found


def make_model(numbers: range, edition: int) -> Model:
    return {(f"p{n % 2}", f"k{n}"): (edition, edition) for n in numbers}


def versions_of(hudi: Hudi) -> list[int]:
    return [6] if hudi.version == "0.15.0" else [6, 9]


@pytest.mark.parametrize("index", INDEXES)
def test_both_read_the_rows_of_alternating_writes(index: str, hudi: Hudi, tmp_path: Path) -> None:
    for version in versions_of(hudi):
        write_in_turns(tmp_path / f"v{version}", version, INDEXES[index], hudi)


def write_in_turns(path: Path, version: int, index: Mapping[str, str], hudi: Hudi) -> None:
    made = {"table_type": "MERGE_ON_READ", "hoodie.write.table.version": version, **index}
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="p", ordering="ts", **made)
    theirs = {**MOR, **index, "hoodie.write.table.version": str(version), f"{W}precombine.field": "ts"}
    compacting = {**theirs, **COMPACTING}
    model: Model = {}

    def check() -> None:
        assert model_of(lakeformat.open(path).to_arrow()) == model
        assert model_of(hudi.read(path)) == model

    def ours(new: Model, gone: Model | None = None) -> None:
        nonlocal model
        table.upsert(rows(new))
        model = model | new
        if gone:
            table.delete(rows(gone).select(["id", "p"]))
            model = {key: row for key, row in model.items() if key not in gone}
        check()

    def hudis(new: Model, options: Mapping[str, str] = theirs) -> None:
        nonlocal model
        hudi.write(path, rows(new), "upsert", **options)
        model = model | new
        check()

    ours(make_model(range(12), 1))
    ours(make_model(range(3, 6), 2), gone=make_model(range(6, 8), 2))
    hudis(make_model(range(4, 9), 3))
    ours(make_model(range(5, 10), 4), gone=make_model(range(1), 4))
    hudis(make_model(range(2, 14), 5), compacting)
    ours(make_model(range(0, 14, 3), 6), gone=make_model(range(1, 2), 6))
    hudis(make_model(range(10, 12), 7), compacting)
    ours(make_model(range(12), 8))


@pytest.mark.parametrize("hudi", ["0.15.0", "1.2.0"], indirect=True)
def test_hudi_rolls_our_dead_writer_back(hudi: Hudi, tmp_path: Path) -> None:
    for version in versions_of(hudi):
        dead_writer(tmp_path / f"v{version}", version, hudi)


def dead_writer(folder: Path, version: int, hudi: Hudi) -> None:
    from tests.helpers.flights import make_template, rows_of

    folder.mkdir()
    path, before = make_template(folder, version=str(version), table_type="MERGE_ON_READ")
    write, number = Write("upsert", (1, 3, 4, 21, 24), "dead"), 0
    while True:  # The loop ends after the append and before the completion.
        storage = copy_of(path, folder)
        assert dies_at(write, storage, number, Mode.AFTER)
        if len(list_files(storage).logs) > len(list_files(storage.__class__(str(path))).logs) + 1:
            break
        number += 1
    next_rows = pa.table([[2], ["r2"], ["theirs"]], names=["id", "region", "v"])
    options = {**MOR, "hoodie.write.table.version": str(version), f"{W}precombine.field": "v"}
    hudi.write(Path(storage.root), next_rows, "upsert", **options)
    wanted = {**before, 2: ("r2", "theirs")}
    assert rows_of(storage) == wanted
    seen = {row["id"]: (row["region"], row["v"]) for row in hudi.read(Path(storage.root)).to_pylist()}
    # Hudi 0.15 stops reading at a block later than its snapshot; the next commit shows the blocks after it.
    assert seen == wanted or hudi.version == "0.15.0"

"""Clustering: what it does to the files of a copy-on-write table, and that no row changes.

A clustering reads the files of a partition, sorts their rows by columns or along a curve (z-order, Hilbert), and writes
new file groups of a target size. One replacecommit puts them in the place of the old ones. The oracle is the text of
all rows, meta columns included, before and after, read by lakeformat and by hudi-rs. Plans, runs and conflicts are in
test_clustering_plans.py, merge-on-read tables in test_cluster_slices.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat.codec.avro.schema import from_avro
from lakeformat.errors import InvalidInputError, InvalidOptionError, SchemaMismatchError
from tests.helpers.clustered import (
    SCHEMA,
    all_rows,
    all_rows_by_hudi_rs,
    column_of,
    file_names,
    rows,
    scattered_table,
    sortable,
)
from tests.helpers.fixture_tables import names, unpack
from tests.helpers.tables import NO_PACKING, a_table

BUFFER = "lakeformat.clustering.buffer.bytes"
#: Bytes: rows are sorted in memory, and on storage.
BUFFERS = (1 << 30, 40_000)
#: Bytes: a target that leaves several files in a partition.
TINY = 4_000

# --- rows ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("buffer", BUFFERS)
@pytest.mark.parametrize("curve", ["linear", "hilbert", pytest.param("z-order", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "by",
    [("at.z", "x", "id"), *(pytest.param(by, marks=pytest.mark.slow) for by in (("x", "y"), ("city",)))],
    ids=",".join,
)
def test_clustering_changes_files_and_no_row(by: Sequence[str], curve: str, buffer: int, tmp_path: Path) -> None:
    table = scattered_table(tmp_path / "t", **{BUFFER: buffer})
    before, commits, old = all_rows(table), [entry.instant_time for entry in table.history()], file_names(table)
    past = all_rows(table, commits[1])
    result = table.cluster(by, curve=curve, target_file_bytes=TINY)

    # The rows are the same for every reader; the files are others, and the meta columns name them.
    assert result.report["rows"] == {"rewritten": 600}
    assert all_rows(table) == before
    assert all_rows_by_hudi_rs(table) == before
    assert not old & file_names(table)
    assert {row["_hoodie_file_name"] for row in table.to_arrow(meta_columns=True).to_pylist()} == file_names(table)

    # Time travel reads the old files; the clustering is a commit of the history.
    assert all_rows(table, commits[1]) == past
    assert table.history()[0].operation == "cluster"
    assert table.history()[0].report is not None

    # Writers find keys by the filters, ranges and names of the new files.
    changes = rows(700, seed=2).slice(50, 650)
    table.upsert(changes)
    table.delete(changes.select(["id", "region"]).slice(0, 40))
    assert table.to_arrow(meta_columns=True).num_rows == 50 + 650 - 40
    assert all_rows_by_hudi_rs(table) == all_rows(table)


def test_clustering_of_a_table_without_partitions_drops_files_without_rows(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", schema=SCHEMA, **NO_PACKING)
    table.bulk_insert(rows(50))
    table.bulk_insert(rows(100).slice(50))
    table.delete(rows(50).select(["id"]))
    before = all_rows(table)
    table.cluster(["x", "y"])
    assert len(file_names(table)) == 1
    assert all_rows(table) == all_rows_by_hudi_rs(table) == before

    table.delete(where="true")
    table.cluster(["x", "y"])
    assert file_names(table) == set()
    assert table.to_arrow().num_rows == 0


@pytest.mark.parametrize("name", names("hudi_v6"))
def test_clustering_of_a_table_that_hudi_made_keeps_rows_and_schema(name: str, tmp_path: Path) -> None:
    table = lakeformat.open(unpack(name, tmp_path), **{BUFFER: 1000 if "types" in name else 1 << 30})
    before = all_rows(table)
    schema_text = table.context.store.read_commit(table.snapshot().timeline.commits[-1]).schema_text
    table.cluster(sortable(table)[:4])
    assert all_rows(table) == all_rows_by_hudi_rs(table) == before
    newest = table.context.store.read_commit(table.snapshot().timeline.commits[-1])
    if "_hoodie_commit_time" in schema_text:
        assert from_avro(newest.schema_text, name="x") == table.snapshot().schema
    else:
        assert newest.schema_text == schema_text


# --- layout -------------------------------------------------------------------------------------------


def nulls_first(value: Any) -> tuple[Any, ...]:
    """Return a sort key that puts nulls first and NaN last."""
    if value is None:
        return (False,)
    nan = isinstance(value, float) and math.isnan(value)
    return True, nan, 0 if nan else value


@pytest.mark.parametrize("buffer", BUFFERS)
@pytest.mark.parametrize("by", ["id", "x", "y"])
def test_linear_order_leaves_files_that_do_not_overlap(by: str, buffer: int, tmp_path: Path) -> None:
    table = scattered_table(tmp_path / "t", **{BUFFER: buffer})
    table.cluster(by, target_file_bytes=TINY)
    for files in table.snapshot().by_partition.values():
        values = sorted([nulls_first(value) for value in column_of(table, file, by)] for file in files)
        assert len(values) > 2
        assert list(itertools.chain.from_iterable(values)) == sorted(itertools.chain.from_iterable(values))


@pytest.mark.parametrize("buffer", BUFFERS)
@pytest.mark.parametrize("curve", ["z-order", "hilbert"])
def test_curve_leaves_files_that_are_narrow_in_both_columns(curve: str, buffer: int, tmp_path: Path) -> None:
    """If a partition has n files, each file holds about 1/sqrt(n) of the values of each column, not all of them."""
    table = scattered_table(tmp_path / "t", count=3000, **{BUFFER: buffer})
    table.cluster(["x", "at.z"], curve=curve, target_file_bytes=8_000)
    files = [file for files in table.snapshot().by_partition.values() for file in files]
    widths = [len({value // 100 for value in column_of(table, file, "x") if value is not None}) / 10 for file in files]
    assert len(files) >= 12
    assert sum(widths) / len(widths) < 0.8


@pytest.mark.parametrize("given", [None, 30_000])
def test_sorted_file_is_read_in_part_by_a_filter_on_the_sort_column(given: int | None, tmp_path: Path) -> None:
    """By default a clustering writes row groups that are small enough to be skipped; the option overrides this."""
    options = {"lakeformat.parquet.row.group.rows": given} if given else {}
    table = a_table(tmp_path / "t", rows=rows(60_000), operation="bulk_insert", **options)
    table.cluster("x")
    (file,) = table.snapshot().files
    footer = pq.read_metadata(tmp_path / "t" / file.path)
    groups = [footer.row_group(at).num_rows for at in range(footer.num_row_groups)]
    assert (max(groups) > 20_000) == (given is not None)
    assert sum(groups) == 60_000
    where = "x between 10 and 20"
    assert f"row groups {1:>10,}" in table.explain(where=where)
    expected = sum(1 for x in rows(60_000).column("x").to_pylist() if x is not None and 10 <= x <= 20)
    assert table.to_arrow(where=where).num_rows == expected


def test_clustering_without_columns_puts_small_files_together(tmp_path: Path) -> None:
    table = scattered_table(tmp_path / "t")
    before = all_rows(table)
    old = file_names(table)
    result = table.cluster()
    assert result.report["files"]["replaced"] == len(old) > 3
    assert len(file_names(table)) == 3
    assert all_rows(table) == all_rows_by_hudi_rs(table) == before
    assert table.cluster().skipped  # Each partition has one file, so there is nothing left to do.


# --- partitions ---------------------------------------------------------------------------------------


def test_clustering_of_named_partitions_leaves_the_others_alone(tmp_path: Path) -> None:
    table = scattered_table(tmp_path / "t")
    before, old = all_rows(table), table.snapshot().by_partition
    table.cluster(["x"], partitions=["e*"])
    new = table.snapshot().by_partition
    assert new["us"] == old["us"]
    assert len(new["eu"]) == 1
    assert all_rows(table) == before
    with pytest.raises(InvalidInputError, match="no partition 'mars'"):
        table.cluster(["x"], partitions="mars")


def test_clustering_logs_partitions_and_options_that_have_no_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = scattered_table(tmp_path / "t", count=60, **{"hoodie.layout.optimize.strategy": "hilbert"})
    table.cluster(["x"], partitions=["eu", "mars", "x*"])
    assert "no partition matches mars, x*" in caplog.text
    assert "sort" not in caplog.text
    table.cluster()
    assert "hoodie.layout.optimize.strategy=hilbert sorts nothing" in caplog.text


# --- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"by": ["nope"]}, SchemaMismatchError, "'nope'"),
        ({"by": ["at"]}, SchemaMismatchError, r"'at'|struct"),
        ({"by": ["x", "x"]}, InvalidInputError, "different columns"),
        ({"by": ["x"], "curve": "peano"}, InvalidInputError, "peano"),
        ({"by": ["x"], "target_file_bytes": 0}, InvalidInputError, "not a size"),
        ({"curve": "hilbert"}, InvalidInputError, "curve='hilbert' needs columns"),
        ({"by": ["x"], "partitions": []}, InvalidInputError, "no partition is named; .* leave partitions out"),
    ],
)
def test_clustering_refuses_bad_arguments_and_leaves_no_plan(
    arguments: Any, error: type[Exception], text: str, tmp_path: Path
) -> None:
    table = scattered_table(tmp_path / "t", count=60)
    with pytest.raises(error, match=text):
        table.cluster(**arguments)
    assert table.snapshot().timeline.pending == ()


def test_clustering_of_a_bucket_table_is_refused(tmp_path: Path) -> None:
    """A bucket is one file group. The index is named by the caller, or it is known from the file ids."""
    path = tmp_path / "t"
    scattered_table(path, count=60)
    with pytest.raises(InvalidOptionError, match="BUCKET"):
        lakeformat.open(path, **{"hoodie.index.type": "BUCKET"}).cluster("x")
    a_table(tmp_path / "b", rows=rows(20), index="BUCKET", operation="upsert")
    with pytest.raises(InvalidOptionError, match="BUCKET"):
        lakeformat.open(tmp_path / "b").cluster("x")

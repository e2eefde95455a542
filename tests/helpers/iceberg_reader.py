"""pyiceberg and polars as oracles: what readers of Iceberg see of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from pyiceberg.table import StaticTable

from lakeformat import Table
from lakeformat.arrow.kinds import Kind, kind_of
from tests.helpers.delta_reader import as_texts

__all__ = ["assert_iceberg_shows", "assert_snapshots_show", "iceberg_rows", "open_iceberg"]


def open_iceberg(location: str) -> StaticTable:
    """Open the newest metadata that the folder's hint names."""
    return StaticTable.from_metadata(location)


def iceberg_rows(location: str, **how: Any) -> list[str]:
    """Return the rows that pyiceberg reads as sorted texts, so that NaN is equal to itself."""
    return as_texts(open_iceberg(location).scan(**how).to_arrow())


def assert_iceberg_shows(table: Table, *, with_polars: bool = False) -> None:
    """Assert that the newest Iceberg snapshot beside a table has the table's rows and columns.

    pyiceberg 0.12 reads null as an empty list, if the list is one of structs. So only polars compares such columns.
    """
    ours, iceberg = table.to_arrow(), open_iceberg(table.location)
    theirs = iceberg.scan().to_arrow()
    assert theirs.schema.names == ours.schema.names
    names = [field.name for field in ours.schema if not _is_list_of_structs(field.type)]
    assert as_texts(theirs.select(names)) == as_texts(ours.select(names))
    if with_polars:
        frame = pl.scan_iceberg(iceberg).collect()
        assert sorted(map(repr, frame.rows())) == sorted(map(repr, pl.from_arrow(ours).rows()))


def _is_list_of_structs(of: pa.DataType) -> bool:
    return kind_of(of) is Kind.LIST and kind_of(of.value_type) is Kind.STRUCT


def assert_snapshots_show(table: Table) -> int:
    """Assert that each snapshot has the rows of its instant, and that no other manifests lie there. Return how many."""
    iceberg = open_iceberg(table.location)
    for snapshot in iceberg.snapshots():
        assert snapshot.summary is not None
        ours = table.to_arrow(as_of=snapshot.summary.additional_properties["lakeformat.instant"])
        theirs = iceberg.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        names = [name for name in ours.schema.names if name in theirs.schema.names]
        assert as_texts(theirs.select(names)) == as_texts(ours.select(names))
    named = {manifest.manifest_path for each in iceberg.snapshots() for manifest in each.manifests(iceberg.io)}
    named |= {each.manifest_list for each in iceberg.snapshots()}
    assert {str(path) for path in Path(table.location, "metadata").glob("*.avro")} == named
    return len(iceberg.snapshots())

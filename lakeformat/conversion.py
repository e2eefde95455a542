"""Hudi tables made of Delta and Iceberg tables: the rows of one version are copied.

deltalake and pyiceberg read the source, so its deletes, partitions and schema changes mean what they say there. What a
library cannot read is refused by its name. The source is not changed, and its older versions are not taken over.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

import pyarrow as pa

from lakeformat.bootstrap import check_keys
from lakeformat.errors import InvalidInputError, UnsupportedTableError
from lakeformat.extras import install_line
from lakeformat.public import public
from lakeformat.storage import open_storage
from lakeformat.table import Table, create
from lakeformat.transaction.hooks import ProposedWrite

__all__ = ["convert"]

#: Entry of the commit's metadata that names the source and its version.
_CONVERTED_FROM: Final = "lakeformat_converted_from"
_METADATA_FILE: Final = ".metadata.json"
_BATCH_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True)
class _Source:
    """One version of a table of another format.

    Attributes:
        name: format, location and version, for messages.
        library: the package that reads it.
        schema: its columns.
        partition_by: the columns whose values part it, without those that another column is computed to.
        scan: opens a stream of the rows, with these columns.
    """

    name: str
    library: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    scan: Callable[[Sequence[str]], Any]

    def read(self, columns: Sequence[str]) -> pa.RecordBatchReader:
        """Stream these columns. Raise `UnsupportedTableError` where the library cannot read the table."""
        with _refusing(self.name, self.library):
            reader = self.scan(columns)
        schema = pa.schema([reader.schema.field(name) for name in columns])

        def batches() -> Iterator[pa.RecordBatch]:
            with _refusing(self.name, self.library):
                for batch in reader:
                    yield batch.select(columns)

        return pa.RecordBatchReader.from_batches(schema, batches())


@public
def convert(
    source: Any,
    path: str | os.PathLike[str],
    *,
    record_key: str | Sequence[str] = (),
    partition_by: str | Sequence[str] | None = None,
    ordering: str | None = None,
    **options: Any,
) -> Table:
    """Make a Hudi table of the rows that a Delta or Iceberg table has now, as a copy, by one bulk_insert.

    `adopt` makes one of a folder of plain Parquet files. The source stays as it is. Its older versions are not taken
    over; the commit's metadata names the version that was read.

    Memory: the columns of the key and the partition of all rows, and the memory of bulk_insert.

    Args:
        source: the path or URL of a Delta table; the path of an Iceberg table with a ``version-hint.text``, or of one
            of its ``.metadata.json`` files; or a table that deltalake or pyiceberg has opened, which is the way for
            tables of a catalog and for storage that needs credentials.
        path: folder or URL of the new table.
        record_key: columns that identify a row; without them each row gets a generated key.
        partition_by: columns of the partition folders; by default those of the source. A column that Iceberg computes
            its partitions from (``bucket``, ``days`` …) is not among them.
        ordering: column whose greater value marks the newer of two rows with one key.
        options: Hudi's option names or the short aliases; ``storage_options`` has the credentials of ``path``.

    Raises:
        InvalidInputError: the source is another kind of table, its package is missing, or ``path`` has commits already.
        UnsupportedTableError: deltalake or pyiceberg cannot read the source, for example because of deletion vectors or
            equality deletes; the message names what.
        DuplicateKeyError: two rows of a partition have the same key, or a key is null.
        SchemaMismatchError: a type cannot be stored; the message names the column.
    """
    found = _open(source)
    keys = (record_key,) if isinstance(record_key, str) else tuple(record_key)
    parts = found.partition_by if partition_by is None else partition_by
    parts = (parts,) if isinstance(parts, str) else tuple(parts)
    rows = check_keys(found.name, found.schema.names, keys, parts, lambda names: found.read(names).read_all())
    table = create(path, found.schema, record_key=keys, partition_by=parts, ordering=ordering, **options)
    if table.snapshot().timeline.commits:
        raise InvalidInputError(f"{table.location} is a table with commits already; give another path")

    def all_rows_are_written(write: ProposedWrite) -> None:
        if rows is not None and (written := sum(stat.num_inserts for stat in write.stats)) != rows:
            raise InvalidInputError(f"{written:,} of {rows:,} rows of {found.name} would be written; convert it again")

    reader, origin = found.read(found.schema.names), {_CONVERTED_FROM: found.name}
    table.bulk_insert(reader, validators=[all_rows_are_written], extra_metadata=origin)
    return table


def _open(source: Any) -> _Source:
    """Return the newest version of the table at a path, or the version that a library has opened."""
    library = type(source).__module__.partition(".")[0]
    if library == "deltalake":
        return _delta(source)
    if library == "pyiceberg":
        return _iceberg(source)
    location = os.fspath(source)
    storage = open_storage(location)
    if location.endswith(_METADATA_FILE) or storage.info("metadata/version-hint.text") is not None:
        tables = _import("pyiceberg.table", "iceberg")
        with _refusing(location, "pyiceberg"):
            table = tables.StaticTable.from_metadata(location)
        return _iceberg(table)
    if any(storage.list("_delta_log")):
        deltalake = _import("deltalake", "delta")
        with _refusing(location, "deltalake"):
            table = deltalake.DeltaTable(location)
        return _delta(table)
    if any(entry.name.endswith(_METADATA_FILE) for entry in storage.list("metadata")):
        raise InvalidInputError(
            f"only the catalog of the Iceberg table {location} knows its newest metadata; give the table as pyiceberg "
            "loads it from the catalog, or the path of one of its .metadata.json files"
        )
    raise InvalidInputError(
        f"{location} is neither a Delta table nor an Iceberg table; lakeformat.adopt(path, ...) takes plain Parquet"
    )


def _import(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise InvalidInputError(f"{extra.title()} tables are read by {package}; {install_line(extra)}") from None


def _delta(table: Any) -> _Source:
    name = f"Delta table {table.table_uri}, version {table.version()}"

    with _refusing(name, "deltalake"):
        dataset, parts = table.to_pyarrow_dataset(), tuple(table.metadata().partition_columns)

    def scan(columns: Sequence[str]) -> Any:
        how = {"batch_size": _BATCH_ROWS, "batch_readahead": 1, "fragment_readahead": 1}
        return dataset.scanner(columns=list(columns), **how).to_reader()

    return _Source(name, "deltalake", dataset.schema, parts, scan)


def _iceberg(table: Any) -> _Source:
    snapshot = table.current_snapshot()
    name = f"Iceberg table {table.location()}, snapshot {None if snapshot is None else snapshot.snapshot_id}"
    with _refusing(name, "pyiceberg"):
        columns, fields = table.schema(), table.spec().fields
        parts = tuple(columns.find_column_name(each.source_id) for each in fields if str(each.transform) == "identity")
        schema = columns.as_arrow()

    def scan(names: Sequence[str]) -> Any:
        return table.scan(selected_fields=tuple(names)).to_arrow_batch_reader()

    return _Source(name, "pyiceberg", schema, parts, scan)


@contextmanager
def _refusing(name: str, library: str) -> Iterator[None]:
    """Say in one line which source a library cannot read, and why."""
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UnsupportedTableError(f"{name} cannot be read by {library} {version(library)}: {reason}") from error

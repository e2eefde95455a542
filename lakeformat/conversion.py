"""Hudi tables made of Delta and Iceberg tables, of the rows of one version: as a copy, or in the source's folder.

deltalake and pyiceberg read the source, so its deletes, partitions and schema changes mean what they say there. What a
library cannot read is refused by its name. The source's older versions are not taken over.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

import pyarrow as pa

from lakeformat.bootstrap import (
    adopt_folder,
    check_keys,
    finish_adoption,
    is_own_file,
    key_settings,
    open_folder,
    take_folder,
)
from lakeformat.errors import InvalidInputError, UnsupportedTableError, reason_of
from lakeformat.extras import install_line
from lakeformat.public import public
from lakeformat.storage import open_storage
from lakeformat.storage.port import HOODIE, Storage
from lakeformat.table import Table, create
from lakeformat.transaction.commit.hooks import ProposedWrite

__all__ = ["convert", "convert_folder"]

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
    path: str | os.PathLike[str] | None = None,
    *,
    record_key: str | Sequence[str] = (),
    partition_by: str | Sequence[str] | None = None,
    ordering: str | None = None,
    **options: Any,
) -> Table:
    """Make a Hudi table of the rows that a Delta or Iceberg table has now, by one bulk_insert.

    The older versions of the source are not taken over; the commit's metadata names the version that was read.
    Without ``path`` a folder of plain Parquet files is taken, too, as by `adopt`.

    With ``path`` the table is a copy, and the source stays as it is. Without it the table takes the source's folder:
    once the rows are written, all that the folder held is moved to ``.hoodie/.lakeformat/removed``, where
    ``table.repair(keep=False)`` deletes it. If the process dies, call `convert` again. No other process may write to
    the source meanwhile; if one did, nothing is published.

    Memory: the columns of the key and the partition of all rows, and the memory of bulk_insert.

    Args:
        source: the path or URL of a Delta table; the path of an Iceberg table with a ``version-hint.text``, or of one
            of its ``.metadata.json`` files; or a table that deltalake or pyiceberg has opened, which is the way for
            tables of a catalog and for storage that needs credentials. Without ``path``: the path of a folder.
        path: folder or URL of the new table; by default the source's folder.
        record_key: columns that identify a row; without them each row gets a generated key.
        partition_by: columns of the partition folders; by default those of the source. A column that Iceberg computes
            its partitions from (``bucket``, ``days`` …) is not among them.
        ordering: column whose greater value marks the newer of two rows with one key.
        options: Hudi's option names or the short aliases; ``storage_options`` has the credentials of ``path``.

    Raises:
        InvalidInputError: the source is another kind of table, its package is missing, ``path`` has commits already,
            or another table lies in the folder of the source.
        UnsupportedTableError: deltalake or pyiceberg cannot read the source, for example because of deletion vectors or
            equality deletes; the message names what.
        DuplicateKeyError: two rows of a partition have the same key, or a key is null.
        SchemaMismatchError: a type cannot be stored; the message names the column.
        ValidationFailedError: the source changed during the call; nothing was published.
    """
    keys = (record_key,) if isinstance(record_key, str) else tuple(record_key)
    parts = (partition_by,) if isinstance(partition_by, str) else None if partition_by is None else tuple(partition_by)
    if path is None:
        return convert_folder(*_own_folder(source, options), keys, parts, ordering)
    opened = _open(source)
    parts = opened.partition_by if parts is None else parts
    validator = _check_rows(opened, keys, parts)
    table = create(path, opened.schema, record_key=keys, partition_by=parts, ordering=ordering, **options)
    if table.snapshot().timeline.commits:
        raise InvalidInputError(f"{table.location} is a table with commits already; give another path")
    origin = {_CONVERTED_FROM: opened.name}
    table.bulk_insert(opened.read(opened.schema.names), validators=[validator], extra_metadata=origin)
    return table


def convert_folder(
    storage: Storage,
    given: Mapping[str, Any],
    keys: tuple[str, ...],
    partition_by: tuple[str, ...] | None,
    ordering: str | None,
) -> Table:
    """Convert the table in the folder that a storage opens, as `convert` does without ``path``.

    Args:
        given: the caller's options.
        keys: the record key columns.
    """
    if (adopted := finish_adoption(storage, given)) is not None:
        return adopted
    if _find_kind(storage) is None:
        return adopt_folder(storage, keys, partition_by, ordering, given)
    files, opened = _list_files(storage), _open(storage.location)
    parts = opened.partition_by if partition_by is None else partition_by
    validator = _check_rows(opened, keys, parts)

    def source_is_unchanged(write: ProposedWrite) -> None:
        if (now := _open(storage.location).name) != opened.name:
            raise InvalidInputError(f"{opened.name} is {now} now; convert it again when no other process writes to it")

    settings = {**key_settings(keys, parts, ordering), **given}
    rows, origin = opened.read(opened.schema.names), {_CONVERTED_FROM: opened.name}
    return take_folder(storage, settings, files, rows, [validator, source_is_unchanged], origin)


def _check_rows(
    source: _Source, keys: tuple[str, ...], partition_by: tuple[str, ...]
) -> Callable[[ProposedWrite], None]:
    """Check the keys of all rows. Return the condition of the commit that it has as many rows."""
    names = source.schema.names
    rows = check_keys(source.name, names, keys, partition_by, lambda columns: source.read(columns).read_all())

    def all_rows_are_written(write: ProposedWrite) -> None:
        if rows is not None and (written := sum(stat.num_inserts for stat in write.stats)) != rows:
            raise InvalidInputError(f"{written:,} of {rows:,} rows of {source.name} would be written; convert it again")

    return all_rows_are_written


def _own_folder(source: Any, options: Mapping[str, Any]) -> tuple[Storage, dict[str, Any]]:
    """Open the folder of a source that is to become a table. Return the options without ``storage_options``, too."""
    if not isinstance(source, str | os.PathLike) or os.fspath(source).endswith(_METADATA_FILE):
        raise InvalidInputError(f"{source} is not the folder of a table; give path, the place of the new table")
    return open_folder(source, options)


def _list_files(storage: Storage) -> tuple[str, ...]:
    """Return the paths of all files in a source's folder, without those of an attempt that died."""

    def walk(folder: str) -> Iterator[str]:
        for entry in storage.list(folder):
            if not entry.is_folder:
                yield entry.path
            elif entry.path != HOODIE:
                if entry.name == HOODIE:
                    raise InvalidInputError(f"{storage.location} holds another table ({folder}); move it elsewhere")
                yield from walk(entry.path)

    return tuple(path for path in walk("") if not is_own_file(path.rpartition("/")[2]))


def _open(source: Any) -> _Source:
    """Return the newest version of the table at a path, or the version that a library has opened."""
    library = type(source).__module__.partition(".")[0]
    if library == "deltalake":
        return _delta(source)
    if library == "pyiceberg":
        return _iceberg(source)
    location = os.fspath(source)
    kind = "iceberg" if location.endswith(_METADATA_FILE) else _find_kind(open_storage(location))
    if kind == "iceberg":
        tables = _import("pyiceberg.table", "iceberg")
        with _refusing(location, "pyiceberg"):
            table = tables.StaticTable.from_metadata(location)
        return _iceberg(table)
    if kind == "delta":
        deltalake = _import("deltalake", "delta")
        with _refusing(location, "deltalake"):
            table = deltalake.DeltaTable(location)
        return _delta(table)
    raise InvalidInputError(
        f"{location} is neither a Delta table nor an Iceberg table; lakeformat.adopt(path, ...) takes plain Parquet"
    )


def _find_kind(storage: Storage) -> str | None:
    """Return the format of the table in a folder, None if there is none. Refuse one that only a catalog knows."""
    if storage.info("metadata/version-hint.text") is not None:
        return "iceberg"
    if any(storage.list("_delta_log")):
        return "delta"
    if any(entry.name.endswith(_METADATA_FILE) for entry in storage.list("metadata")):
        raise InvalidInputError(
            f"only the catalog of the Iceberg table {storage.location} knows its newest metadata; give the table as "
            "pyiceberg loads it from the catalog, or the path of one of its .metadata.json files"
        )
    return None


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
        parts = tuple(
            columns.find_column_name(field.source_id) for field in fields if str(field.transform) == "identity"
        )
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
        reason = reason_of(error, None)
        raise UnsupportedTableError(f"{name} cannot be read by {library} {version(library)}: {reason}") from error

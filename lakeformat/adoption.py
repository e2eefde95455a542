"""A folder of plain Parquet becomes a Hudi table, in place (Hudi: a bootstrap in mode ``FULL_RECORD``).

Rows are read and written anew as base files beside their sources; what stands there is not touched before the commit
is published. Then the sources are put aside, under ``.hoodie/.lakeformat/removed``. A note tells what was meant, so
that a second call goes on where the first one died.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.config.resolve import resolve
from lakeformat.errors import CorruptTableError, DuplicateKeyError, InvalidInputError, SchemaMismatchError
from lakeformat.model.files import BaseFileName
from lakeformat.services.adopt import plan
from lakeformat.services.doctor.run import REMOVED
from lakeformat.storage import open_storage
from lakeformat.storage.port import HOODIE, Storage, own_path
from lakeformat.table import Table
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.validators import ProposedWrite
from lakeformat.write.decide.table_settings import check_options, create_table
from lakeformat.write.rows.schema import incoming_schema

__all__ = ["adopt", "adopt_folder"]

_LOG: Final = logging.getLogger("lakeformat.adopt")
#: What is being adopted: token of the commit, and the files.
_NOTE: Final = own_path("adopting")
_ADOPTED: Final = "lakeformat_adopted"
_HIVE_STYLE: Final = "hoodie.datasource.write.hive_style_partitioning"
_ROWS: Final = 65_536


def adopt(
    path: str | os.PathLike[str],
    *,
    record_key: str | Sequence[str] = (),
    partition_by: str | Sequence[str] | None = None,
    ordering: str | None = None,
    **options: Any,
) -> Table:
    """Make a Hudi table of a folder of plain Parquet files, in place, by one bulk_insert.

    Sources stay as they are until the table is there; then they go to ``.hoodie/.lakeformat/removed``, where
    ``table.repair(dry_run=False, keep=False)`` deletes them. If the process dies, call it again. Nobody else may write
    the folder meanwhile. Names and numbers of folders (``day=2026-01-01``) become columns: int32 or int64 where all
    are written as numbers are, else text. A file that lacks a column has nulls there.

    Memory: the key columns of all rows, and what bulk_insert takes.

    Args:
        path: folder or URL.
        record_key: columns that identify a row; without one each row gets a generated key.
        partition_by: columns that make the folders; by default those that make them now.
        ordering: column that tells the newer of two rows with one key.
        options: Hudi's option names or the short aliases; ``storage_options`` goes to fsspec.

    Raises:
        InvalidInputError: the folder holds no plain Parquet, or more than that; nothing was changed.
        SchemaMismatchError: files have a column of two types.
        DuplicateKeyError: rows of a partition have one key, or a key is null.
        ValidationFailedError: files changed meanwhile; nothing was published.
    """
    given = dict(options)
    storage_options = given.pop("storage_options", None) or {}
    sync = resolve(given, table=os.fspath(path))["lakeformat.storage.sync"]
    keys = (record_key,) if isinstance(record_key, str) else tuple(record_key)
    parts = (partition_by,) if isinstance(partition_by, str) else partition_by
    return adopt_folder(open_storage(path, sync=sync, **storage_options), keys, parts, ordering, given)


def adopt_folder(
    storage: Storage,
    keys: tuple[str, ...],
    partition_by: Sequence[str] | None,
    ordering: str | None,
    given: Mapping[str, Any],
) -> Table:
    """The folder of a storage; see `adopt`.

    Args:
        given: options as the user gave them.
    """
    if TimelineStore(storage).exists() and _published(table := Table(storage, resolve(given, table=storage.location))):
        return _finished(table)
    found = _sources(storage)
    folders = {name: plan.folder_type(dict(file.values)[name] for file in found) for name in found[0].columns}
    schemas = [(file, _schema(storage, file)) for file in found]
    schema = plan.joined_schema(schemas, folders, storage.location)
    parts = found[0].columns if partition_by is None else tuple(partition_by)
    _check_keys(storage, found, schema, keys, parts)
    named = {"recordkey": keys, "partitionpath": parts, "ordering": ordering}
    hive = {_HIVE_STYLE: True} if parts and parts == found[0].columns else {}
    settings = {**hive, **{name: value for name, value in named.items() if value}, **given}
    options = resolve(settings, table=storage.location)
    table = Table(storage, options)
    config = create_table(table.engine.store, options, incoming_schema(schema), table.engine.clock)
    check_options(config, options, storage.location)
    token = table.engine.ids.token()
    note = {"token": token, "files": [asdict(file) for file in found]}
    storage.replace(_NOTE, json.dumps(note).encode())
    rows = sum(_row_count(storage, file) for file in found)

    def nothing_has_changed(write: ProposedWrite) -> None:
        if _sources(storage) != found:
            raise InvalidInputError(f"files of {storage.location} changed while they were read; adopt it again")
        if (written := sum(stat.num_inserts for stat in write.stats)) != rows:
            raise InvalidInputError(f"{written} of {rows} rows would be in the table")

    reader = pa.RecordBatchReader.from_batches(schema, _batches(storage, found, schema))
    table.bulk_insert(reader, validators=[nothing_has_changed], extra_metadata={_ADOPTED: token})
    return _finished(table)


def _listed(storage: Storage, folder: str = "") -> Iterator[plan.SourceFile]:
    """Everything that may be a source; what engines pass by is looked at for whose it is, and left."""
    for entry in storage.list(folder):
        if entry.path == HOODIE:
            continue
        refused = plan.refused_folder(entry.path, storage.location, is_folder=entry.is_folder)
        if refused is not None:
            raise refused
        if plan.hidden(entry.name, is_folder=entry.is_folder):
            continue
        if entry.is_folder:
            yield from _listed(storage, entry.path)
        elif BaseFileName.match(entry.name) is None:  # What an attempt before this one left is rolled back.
            yield plan.SourceFile.of(entry.path, entry.size_bytes, entry.modified_ms)


def _sources(storage: Storage) -> tuple[plan.SourceFile, ...]:
    return plan.sources_of(_listed(storage), storage.location)


def _opened(storage: Storage, file: plan.SourceFile) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(storage.open_input(file.path))
    except pa.ArrowException as error:
        raise CorruptTableError(f"{storage.location}/{file.path} cannot be read ({error}); take it out") from error


def _schema(storage: Storage, file: plan.SourceFile) -> pa.Schema:
    with _opened(storage, file) as parquet:
        schema = parquet.schema_arrow
    meta = [name for name in schema.names if name == "_hoodie_commit_time"]
    return schema if meta else incoming_schema(schema)


def _row_count(storage: Storage, file: plan.SourceFile) -> int:
    with _opened(storage, file) as parquet:
        return int(parquet.metadata.num_rows)


def _batches(storage: Storage, files: Sequence[plan.SourceFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of the files, some at a time, with the columns of all of them."""
    for file in files:
        folders = dict(file.values)
        with _opened(storage, file) as parquet:
            present = set(parquet.schema_arrow.names)
            wanted = [name for name in schema.names if name in present]
            for batch in parquet.iter_batches(_ROWS, columns=wanted):
                columns = [_column(batch, field, folders) for field in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field, folders: dict[str, str | None]) -> pa.Array:
    if field.name in folders:
        return pa.repeat(plan.typed_value(folders[field.name], field.type), batch.num_rows)
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    try:
        return batch.column(field.name).cast(field.type)
    except pa.ArrowException as error:
        raise SchemaMismatchError(f"column {field.name!r} cannot be stored as {field.type}: {error}") from error


def _check_keys(
    storage: Storage,
    files: Sequence[plan.SourceFile],
    schema: pa.Schema,
    keys: tuple[str, ...],
    partitions: tuple[str, ...],
) -> None:
    """Each key once in its partition, and none null: of two rows with one key an upsert would find either."""
    known = set(schema.names)
    for name in (*keys, *partitions):
        if name.partition(":")[0] not in known:
            raise InvalidInputError(f"{storage.location} has no column {name!r}; it has {', '.join(schema.names)}")
    if not keys:
        return
    names = [*dict.fromkeys((*keys, *(name.partition(":")[0] for name in partitions)))]
    wanted = pa.schema([schema.field(name) for name in names])
    table = pa.Table.from_batches(_batches(storage, files, wanted), wanted)
    if any(table.column(name).null_count for name in keys):
        raise DuplicateKeyError(f"{storage.location}: a record key is null; name columns that are never null")
    counted = table.group_by(names).aggregate([([], "count_all")])
    if counted.num_rows < table.num_rows:
        twice = counted.slice(int(counted.column("count_all").to_numpy().argmax()), 1).to_pylist()[0]
        told = ", ".join(f"{name}={twice[name]!r}" for name in names)
        raise DuplicateKeyError(
            f"{storage.location}: {table.num_rows - counted.num_rows:,} rows have the key of another, e.g. {told}; "
            "name other columns, or take the doubles out"
        )


def _published(table: Table) -> bool:
    """Whether the table has commits: then an adoption of ours may have to be finished.

    Raises:
        InvalidInputError: it is a table, and no adoption is to be finished.
    """
    storage, timeline = table.engine.storage, table.engine.store.load()
    if not timeline.commits:
        return False
    if storage.info(_NOTE) is not None:
        token = json.loads(storage.read(_NOTE))["token"]
        if any(said.extra.get(_ADOPTED) == token for said in map(table.engine.store.commit, timeline.commits)):
            return True
    raise InvalidInputError(f"{storage.location} is a Hudi table already; open it")


def _finished(table: Table) -> Table:
    """Put the sources aside, now that their rows are in the table."""
    storage = table.engine.storage
    files = json.loads(storage.read(_NOTE))["files"]
    aside = f"{REMOVED}/{table.engine.clock.now_ms()}"
    for file in files:
        if storage.info(file["path"]) is not None:
            storage.move(file["path"], f"{aside}/{file['path']}")
    for file in files:
        folder = file["path"].rpartition("/")[0]
        while folder and storage.remove_empty(folder):
            folder = folder.rpartition("/")[0]
    storage.delete(_NOTE)
    _LOG.info("%s: adopted %s files", storage.location, len(files))
    return table

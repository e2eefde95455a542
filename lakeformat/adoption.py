"""Adoption of a folder of plain Parquet files as a Hudi table, in place (Hudi: a bootstrap in mode ``FULL_RECORD``).

The rows are written to base files beside the source files. The source files are not changed before the commit is
published; then they are moved to ``.hoodie/.lakeformat/removed``. A note records the plan, so that a second call
continues after a crash.
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
#: File that records an adoption in progress: token of the commit, and the source files.
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

    The source files stay unchanged until the table exists. Then they are moved to ``.hoodie/.lakeformat/removed``,
    where ``table.repair(dry_run=False, keep=False)`` deletes them. If the process dies, call it again. No other process
    may write to the folder meanwhile. Folder names (``day=2026-01-01``) become columns: int32 or int64 if all values
    are numbers in canonical form, else text. A file that lacks a column has nulls there.

    Memory: the key columns of all rows, and what bulk_insert takes.

    Args:
        path: folder or URL.
        record_key: columns that identify a row; without them each row gets a generated key.
        partition_by: columns of the table's partition folders; by default those of the present folders.
        ordering: column whose greater value marks the newer of two rows with one key.
        options: Hudi's option names or the short aliases; ``storage_options`` goes to fsspec.

    Raises:
        InvalidInputError: the folder is not a folder of plain Parquet files; nothing was changed.
        SchemaMismatchError: a column has different types in different files.
        DuplicateKeyError: two rows of a partition have the same key, or a key is null.
        ValidationFailedError: source files changed meanwhile; nothing was published.
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
    """Adopt the folder of a storage; see `adopt`.

    Args:
        given: the caller's options.
    """
    if TimelineStore(storage).exists() and _has_unfinished_adoption(table := Table(storage, resolve(given, table=storage.location))):
        return _move_sources_aside(table)
    sources = _sources(storage)
    folders = {name: plan.folder_type(dict(file.values)[name] for file in sources) for name in sources[0].columns}
    schemas = [(file, _schema(storage, file)) for file in sources]
    schema = plan.joined_schema(schemas, folders, storage.location)
    parts = sources[0].columns if partition_by is None else tuple(partition_by)
    _check_keys(storage, sources, schema, keys, parts)
    named = {"recordkey": keys, "partitionpath": parts, "ordering": ordering}
    hive = {_HIVE_STYLE: True} if parts and parts == sources[0].columns else {}
    settings = {**hive, **{name: value for name, value in named.items() if value}, **given}
    options = resolve(settings, table=storage.location)
    table = Table(storage, options)
    config = create_table(table.engine.store, options, incoming_schema(schema), table.engine.clock)
    check_options(config, options, storage.location)
    token = table.engine.ids.token()
    note = {"token": token, "files": [asdict(file) for file in sources]}
    storage.replace(_NOTE, json.dumps(note).encode())
    rows = sum(_row_count(storage, file) for file in sources)

    def nothing_has_changed(write: ProposedWrite) -> None:
        if _sources(storage) != sources:
            raise InvalidInputError(f"files of {storage.location} changed while they were read; adopt it again")
        if (written := sum(stat.num_inserts for stat in write.stats)) != rows:
            raise InvalidInputError(f"{written} of {rows} rows would be in the table")

    reader = pa.RecordBatchReader.from_batches(schema, _batches(storage, sources, schema))
    table.bulk_insert(reader, validators=[nothing_has_changed], extra_metadata={_ADOPTED: token})
    return _move_sources_aside(table)


def _list_sources(storage: Storage, folder: str = "") -> Iterator[plan.SourceFile]:
    """Yield every file that may be a source.

    Skips names that engines skip, after checking that they mark no other format.
    """
    for entry in storage.list(folder):
        if entry.path == HOODIE:
            continue
        refused = plan.refused_folder(entry.path, storage.location, is_folder=entry.is_folder)
        if refused is not None:
            raise refused
        if plan.hidden(entry.name, is_folder=entry.is_folder):
            continue
        if entry.is_folder:
            yield from _list_sources(storage, entry.path)
        elif BaseFileName.match(entry.name) is None:  # Base files come from an earlier attempt, which is rolled back.
            yield plan.SourceFile.of(entry.path, entry.size_bytes, entry.modified_ms)


def _sources(storage: Storage) -> tuple[plan.SourceFile, ...]:
    return plan.sources_of(_list_sources(storage), storage.location)


def _open(storage: Storage, file: plan.SourceFile) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(storage.open_input(file.path))
    except pa.ArrowException as error:
        raise CorruptTableError(f"{storage.location}/{file.path} cannot be read ({error}); take it out") from error


def _schema(storage: Storage, file: plan.SourceFile) -> pa.Schema:
    with _open(storage, file) as parquet:
        schema = parquet.schema_arrow
    meta = [name for name in schema.names if name == "_hoodie_commit_time"]
    return schema if meta else incoming_schema(schema)


def _row_count(storage: Storage, file: plan.SourceFile) -> int:
    with _open(storage, file) as parquet:
        return int(parquet.metadata.num_rows)


def _batches(storage: Storage, files: Sequence[plan.SourceFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the files in batches, each with the columns of ``schema``."""
    for file in files:
        folders = dict(file.values)
        with _open(storage, file) as parquet:
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
    """Check that each key occurs once in its partition and that no key is null.

    An upsert could otherwise update either of two rows with one key.
    """
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
        duplicate = counted.slice(int(counted.column("count_all").to_numpy().argmax()), 1).to_pylist()[0]
        example = ", ".join(f"{name}={duplicate[name]!r}" for name in names)
        raise DuplicateKeyError(
            f"{storage.location}: {table.num_rows - counted.num_rows:,} rows have the key of another, e.g. {example}; "
            "name other columns, or take the doubles out"
        )


def _has_unfinished_adoption(table: Table) -> bool:
    """Tell whether an adoption was published whose source files may still have to be moved.

    Raises:
        InvalidInputError: the folder is a Hudi table without an unfinished adoption.
    """
    storage, timeline = table.engine.storage, table.engine.store.load()
    if not timeline.commits:
        return False
    if storage.info(_NOTE) is not None:
        token = json.loads(storage.read(_NOTE))["token"]
        if any(commit.extra.get(_ADOPTED) == token for commit in map(table.engine.store.commit, timeline.commits)):
            return True
    raise InvalidInputError(f"{storage.location} is a Hudi table already; open it")


def _move_sources_aside(table: Table) -> Table:
    """Move the source files aside, since their rows are in the table now."""
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

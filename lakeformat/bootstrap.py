"""Adoption of a folder of plain Parquet files as a Hudi table, in place (Hudi: ``FullRecordBootstrap``).

The rows are written to new base files in the same folder. The source files are not changed before the commit is
published. Then they are moved to ``.hoodie/.lakeformat/removed``. A file in lakeformat's folder lists the source files.
If the process dies before all of them are moved, a second call reads this list and moves the remaining ones.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.codec.json_text import parse_json
from lakeformat.config.resolve import resolve, storage_options_of
from lakeformat.errors import CorruptTableError, DuplicateKeyError, InvalidInputError, SchemaMismatchError
from lakeformat.files.batch_rows import OpenParquet
from lakeformat.files.footers import open_parquet, row_batches
from lakeformat.model.files import PARTITION_MARKER, BaseFileName
from lakeformat.public import public
from lakeformat.services.doctor.run import REMOVED
from lakeformat.storage import open_storage
from lakeformat.storage.port import HOODIE, Storage, own_path
from lakeformat.table import Table
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.commit.hooks import ProposedWrite
from lakeformat.write.intake import create_table
from lakeformat.write.plan.table_settings import check_options
from lakeformat.write.rows.schema import incoming_schema

__all__ = [
    "SourceFile",
    "adopt",
    "adopt_folder",
    "check_keys",
    "finish_adoption",
    "folder_type",
    "is_hidden",
    "is_own_file",
    "join_schemas",
    "key_settings",
    "open_folder",
    "parse_value",
    "refuse_entry",
    "sources_of",
    "take_folder",
]

#: Maps names of folders to texts for an error message. A folder with one of these names shows that another program
#: maintains the Parquet files, and that some of them may not be valid. Only that program knows which files are valid,
#: so the table folder is refused.
_OWNERS: Final[Mapping[str, str]] = {
    "_delta_log": "a Delta table",
    "_spark_metadata": "written by a stream, which lists the files that count",
    "_temporary": "still being written by Spark, or was left half-written",
}
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_META: Final = "_hoodie_commit_time"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A Parquet file and the values in its folder names.

    Attributes:
        values: column and text of each folder ``column=value``, outermost first; None is null.
    """

    path: str
    size_bytes: int
    modified_ms: int
    values: tuple[tuple[str, str | None], ...] = ()

    @classmethod
    def of(cls, path: str, size_bytes: int, modified_ms: int) -> SourceFile:
        """Return the source file of a path, with the values in its folder names."""
        pairs = [folder.split("=", 1) for folder in path.split("/")[:-1] if "=" in folder]
        values = ((unquote(name), None if text == _NULL else unquote(text)) for name, text in pairs)
        return cls(path, size_bytes, modified_ms, tuple(values))

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns whose values are in the file's folder names."""
        return tuple(name for name, _ in self.values)


def is_hidden(name: str, *, is_folder: bool) -> bool:
    """Tell whether query engines skip a name: it begins with ``.`` or ``_`` and is not a folder like ``_c=value``."""
    return name[:1] in {".", "_"} and not (is_folder and "=" in name)


def refuse_entry(path: str, location: str, *, is_folder: bool) -> InvalidInputError | None:
    """Return the error if this entry of a listing shows that the folder is not plain Parquet; else None."""
    name = path.rpartition("/")[2]
    if name in _OWNERS:
        owner = _OWNERS[name]
        cure = (
            "lakeformat.convert(path, ...) takes it" if name == "_delta_log" else "write its rows with its own engine"
        )
        return InvalidInputError(f"{location} is {owner} ({path}); {cure}")
    if name.endswith(".metadata.json"):
        return InvalidInputError(f"{location} is an Iceberg table ({path}); lakeformat.convert(path, ...) takes it")
    if not is_folder and not is_hidden(name, is_folder=False) and not name.endswith(".parquet"):
        return InvalidInputError(f"{location}/{path} is not a Parquet file; move it out of the folder")
    return None


def sources_of(files: Iterable[SourceFile], location: str) -> tuple[SourceFile, ...]:
    """Check that the files can form one table. Return them sorted by path.

    Raises:
        InvalidInputError: there are no files, or their partition folders differ.
    """
    sources = tuple(sorted(files, key=lambda file: file.path))
    if not sources:
        raise InvalidInputError(f"{location} holds no Parquet file; give the folder that does")
    odd = next((file for file in sources if file.columns != sources[0].columns), None)
    if odd is not None:
        names = [f"{'/'.join(file.columns) or 'no'} folders ({file.path})" for file in (sources[0], odd)]
        raise InvalidInputError(f"{location}: files are in {names[0]} and in {names[1]}; adopt one of the two")
    return sources


def folder_type(texts: Iterable[str | None]) -> pa.DataType:
    """Return the type of a folder column: int32 or int64 if all texts are canonical numbers, else string.

    >>> folder_type(["1", "12"]), folder_type(["01", "12"])
    (DataType(int32), DataType(string))
    """
    values = [text for text in texts if text is not None]
    if not values or not all(_is_number(text) for text in values):
        return pa.string()
    return pa.int32() if all(-(2**31) <= int(text) < 2**31 for text in values) else pa.int64()


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and str(int(text)) == text and len(digits) < 19


def parse_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Convert a folder's text to a value of its column's type."""
    return pa.scalar(text if text is None or kind_of(kind) is Kind.TEXT else int(text), kind)


def join_schemas(
    schemas: Sequence[tuple[SourceFile, pa.Schema]], folders: Mapping[str, pa.DataType], location: str
) -> pa.Schema:
    """Return the columns of all files, followed by those of their folders. A file that lacks a column has nulls there.

    Raises:
        SchemaMismatchError: a column has two types, or is both in the files and in their folder names.
        InvalidInputError: the files belong to a Hudi table.
    """
    fields: dict[str, tuple[pa.DataType, str]] = {}
    for file, schema in schemas:
        if _META in schema.names:
            raise InvalidInputError(f"{location}/{file.path} is a file of a Hudi table; copy that table, and open it")
        for field in schema:
            kind, first = fields.setdefault(field.name, (field.type, file.path))
            if kind != field.type:
                raise SchemaMismatchError(
                    f"{location}: column {field.name!r} is {kind} in {first} and {field.type} in {file.path}; "
                    "write one of them again"
                )
    if both := sorted(fields.keys() & folders.keys()):
        raise SchemaMismatchError(
            f"{location}: column {both[0]!r} is in the files and in their folders' names; write them without it"
        )
    return pa.schema([*((name, kind) for name, (kind, _) in fields.items()), *folders.items()])


_LOG: Final = logging.getLogger("lakeformat.adopt")
#: File that records an adoption in progress: the token in the commit's metadata, and the source files.
_NOTE: Final = own_path("adopting")
_ADOPTED: Final = "lakeformat_adopted"
_HIVE_STYLE: Final = "hoodie.datasource.write.hive_style_partitioning"
_ROWS: Final = 65_536


@public
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
    where ``table.repair(keep=False)`` deletes them. If the process dies, call `adopt` again. No other process may write
    to the folder meanwhile. Folder names (``day=2026-01-01``) become columns: int32 or int64 if all values
    are numbers in canonical form, else text. A file that lacks a column has nulls there.

    Memory: the key columns of all rows, and the memory of bulk_insert.

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
        ValidationFailedError: source files changed during the call; nothing was published.
    """
    keys = (record_key,) if isinstance(record_key, str) else tuple(record_key)
    parts = (partition_by,) if isinstance(partition_by, str) else partition_by
    storage, given = open_folder(path, options)
    return adopt_folder(storage, keys, parts, ordering, given)


def open_folder(path: str | os.PathLike[str], options: Mapping[str, Any]) -> tuple[Storage, dict[str, Any]]:
    """Open the folder that is to become a table. Return the options without ``storage_options``, too."""
    given = dict(options)
    said = given.pop("storage_options", None)
    storage_options = storage_options_of(os.fspath(path), given, said)
    sync = resolve(given, table=os.fspath(path))["lakeformat.storage.sync"]
    return open_storage(path, sync=sync, **storage_options), given


def adopt_folder(
    storage: Storage,
    keys: tuple[str, ...],
    partition_by: Sequence[str] | None,
    ordering: str | None,
    given: Mapping[str, Any],
) -> Table:
    """Adopt the folder that a storage opens, as `adopt` does for a path.

    Args:
        keys: the record key columns.
        given: the caller's options.
    """
    if (adopted := finish_adoption(storage, given)) is not None:
        return adopted
    sources = _sources(storage)
    folders = {name: folder_type(dict(file.values)[name] for file in sources) for name in sources[0].columns}
    schemas = [(file, _schema(storage, file)) for file in sources]
    schema = join_schemas(schemas, folders, storage.location)
    parts = sources[0].columns if partition_by is None else tuple(partition_by)

    def read(names: Sequence[str]) -> pa.Table:
        asked = pa.schema([schema.field(name) for name in names])
        return pa.Table.from_batches(_batches(storage, sources, asked), asked)

    check_keys(storage.location, schema.names, keys, parts, read)
    hive = {_HIVE_STYLE: True} if parts and parts == sources[0].columns else {}
    settings = {**hive, **key_settings(keys, parts, ordering), **given}
    rows = sum(_row_count(storage, file) for file in sources)

    def nothing_has_changed(write: ProposedWrite) -> None:
        if _sources(storage) != sources:
            raise InvalidInputError(f"files of {storage.location} changed while they were read; adopt it again")
        if (written := sum(stat.num_inserts for stat in write.stats)) != rows:
            raise InvalidInputError(f"{storage.location}: {written} of {rows} rows would be written; adopt it again")

    reader = pa.RecordBatchReader.from_batches(schema, _batches(storage, sources, schema))
    return take_folder(storage, settings, [file.path for file in sources], reader, [nothing_has_changed])


def key_settings(keys: tuple[str, ...], parts: tuple[str, ...], ordering: str | None) -> dict[str, Any]:
    """Return the options that name the columns of a new table."""
    named = {"recordkey": keys, "partitionpath": parts, "ordering": ordering}
    return {name: value for name, value in named.items() if value}


def take_folder(
    storage: Storage,
    settings: Mapping[str, Any],
    files: Sequence[str],
    rows: pa.RecordBatchReader,
    validators: Sequence[Callable[[ProposedWrite], None]],
    extra_metadata: Mapping[str, str] | None = None,
) -> Table:
    """Make a table in a folder, write its rows by one bulk_insert, and then move the files aside that held them.

    Args:
        settings: the options of the table and of the write.
        files: the paths of the files.
        validators: conditions of the commit.
        extra_metadata: further entries of its metadata.
    """
    options = resolve(settings, table=storage.location)
    table = Table(storage, options)
    config = create_table(table.context.store, options, incoming_schema(rows.schema), table.context.clock)
    check_options(config, options, storage.location)
    token = table.context.ids.token()
    note = {"token": token, "files": [{"path": path} for path in files]}
    storage.replace(_NOTE, json.dumps(note).encode())
    table.bulk_insert(rows, validators=validators, extra_metadata={**(extra_metadata or {}), _ADOPTED: token})
    return _move_sources_aside(table)


def _list_sources(storage: Storage, folder: str = "") -> Iterator[SourceFile]:
    """Yield every file that may be a source.

    Raises an error if a name marks another format. Skips names that query engines skip.
    """
    for entry in storage.list(folder):
        if entry.path == HOODIE:
            continue
        refused = refuse_entry(entry.path, storage.location, is_folder=entry.is_folder)
        if refused is not None:
            raise refused
        if is_hidden(entry.name, is_folder=entry.is_folder):
            continue
        if entry.is_folder:
            yield from _list_sources(storage, entry.path)
        elif BaseFileName.match(entry.name) is None:  # Skip base files: they are from a failed attempt.
            yield SourceFile.of(entry.path, entry.size_bytes, entry.modified_ms)


def _sources(storage: Storage) -> tuple[SourceFile, ...]:
    return sources_of(_list_sources(storage), storage.location)


@contextmanager
def _open(storage: Storage, file: SourceFile) -> Iterator[OpenParquet]:
    try:
        source = storage.open_input(file.path)
    except FileNotFoundError:
        raise InvalidInputError(
            f"{storage.location}/{file.path} was deleted meanwhile; adopt the folder again"
        ) from None
    with source, open_parquet(source, f"{storage.location}/{file.path}") as parquet:
        yield parquet


def _schema(storage: Storage, file: SourceFile) -> pa.Schema:
    with _open(storage, file) as parquet:
        schema = parquet.schema_arrow
    meta = [name for name in schema.names if name == "_hoodie_commit_time"]
    return schema if meta else incoming_schema(schema)


def _row_count(storage: Storage, file: SourceFile) -> int:
    with _open(storage, file) as parquet:
        return int(parquet.metadata.num_rows)


def _batches(storage: Storage, files: Sequence[SourceFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the files in batches, each with the columns of ``schema``."""
    for file in files:
        folders = dict(file.values)
        with _open(storage, file) as parquet:
            present = set(parquet.schema_arrow.names)
            present_names = [name for name in schema.names if name in present]
            for batch in row_batches(parquet, f"{storage.location}/{file.path}", _ROWS, columns=present_names):
                columns = [_column(batch, field, folders) for field in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field, folders: dict[str, str | None]) -> pa.Array:
    if field.name in folders:
        return pa.repeat(parse_value(folders[field.name], field.type), batch.num_rows)
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    try:
        return batch.column(field.name).cast(field.type)
    except pa.ArrowException as error:
        raise SchemaMismatchError(f"column {field.name!r} cannot be stored as {field.type}: {error}") from error


def check_keys(
    source: str,
    columns: Sequence[str],
    keys: tuple[str, ...],
    partitions: tuple[str, ...],
    read: Callable[[Sequence[str]], pa.Table],
) -> int | None:
    """Check that each key occurs once in its partition and that no key is null. Return the number of rows.

    An upsert could otherwise update either of two rows with one key. Without keys, return None.

    Args:
        source: what the rows come from, for messages.
        columns: the names of its columns.
        read: reads these columns of all rows.
    """
    for name in (*keys, *partitions):
        if name.partition(":")[0] not in columns:
            raise InvalidInputError(f"{source} has no column {name!r}; it has {', '.join(columns)}")
    if not keys:
        return None
    names = [*dict.fromkeys((*keys, *(name.partition(":")[0] for name in partitions)))]
    table = read(names)
    if any(table.column(name).null_count for name in keys):
        raise DuplicateKeyError(f"{source}: a record key is null; name columns that are never null")
    counted = table.group_by(names).aggregate([([], "count_all")])
    if counted.num_rows < table.num_rows:
        duplicate = counted.slice(int(counted.column("count_all").to_numpy().argmax()), 1).to_pylist()[0]
        example = ", ".join(f"{name}={duplicate[name]!r}" for name in names)
        raise DuplicateKeyError(
            f"{source}: {table.num_rows - counted.num_rows:,} rows have the key of another, e.g. {example}; "
            "name other columns, or remove the duplicate rows"
        )
    rows: int = table.num_rows
    return rows


def finish_adoption(storage: Storage, given: Mapping[str, Any]) -> Table | None:
    """Return the table of an adoption that died when its commit was published, with the rest of its sources moved.

    Raises:
        InvalidInputError: the folder is a Hudi table without an unfinished adoption.
    """
    if not TimelineStore(storage).exists():
        return None
    table = Table(storage, resolve(given, table=storage.location))
    return _move_sources_aside(table) if _has_unfinished_adoption(table) else None


def _has_unfinished_adoption(table: Table) -> bool:
    """Tell whether the table comes from an adoption that died before it had moved all source files.

    Raises:
        InvalidInputError: the folder is a Hudi table without an unfinished adoption.
    """
    storage, timeline = table.context.storage, table.context.store.load()
    if not timeline.commits:
        return False
    if storage.info(_NOTE) is not None:
        token, _ = _read_note(storage)
        if any(
            commit.extra.get(_ADOPTED) == token for commit in map(table.context.store.read_commit, timeline.commits)
        ):
            return True
    raise InvalidInputError(f"{storage.location} is a Hudi table already; open it")


def _read_note(storage: Storage) -> tuple[str, list[str]]:
    """Return the token and the paths of the source files of the adoption in progress.

    Raises:
        CorruptTableError: the note is damaged, or names another file than a source file.
    """
    try:
        note = parse_json(storage.read(_NOTE))
        token, paths = note["token"], [file["path"] for file in note["files"]]
        if not isinstance(token, str) or (odd := [path for path in paths if not _may_be_source(path)]):
            raise ValueError(f"it names {str(odd[0] if isinstance(token, str) else token)[:200]!r}")
    except (ValueError, KeyError, TypeError, LookupError) as error:
        raise CorruptTableError(
            f"{storage.location}/{_NOTE} is damaged ({error}); nothing was moved; delete it, and move source files "
            "whose rows are in the table out of the folder"
        ) from None
    return token, paths


def _may_be_source(path: Any) -> bool:
    """Tell whether a path in the table's folder may be one of a source's file."""
    if not isinstance(path, str) or not path or "\0" in path or "\n" in path:
        return False
    parts = path.split("/")
    return parts[0] != HOODIE and not {"", ".", ".."} & {*parts} and not is_own_file(parts[-1])


def is_own_file(name: str) -> bool:
    """Tell whether a file outside ``.hoodie`` is one that a write of the new table made."""
    return BaseFileName.match(name) is not None or name == PARTITION_MARKER


def _move_sources_aside(table: Table) -> Table:
    """Move the source files to `REMOVED`, because their rows are in the table now. Return the table."""
    storage = table.context.storage
    _, files = _read_note(storage)
    aside = f"{REMOVED}/{table.context.clock.now_ms()}"
    for path in files:
        if storage.info(path) is not None:
            storage.move(path, f"{aside}/{path}")
    for path in files:
        folder = path.rpartition("/")[0]
        while folder and storage.remove_empty(folder):
            folder = folder.rpartition("/")[0]
    storage.delete(_NOTE)
    _LOG.info("%s: adopted %s files", storage.location, len(files))
    return table

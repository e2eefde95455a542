"""Steps 1 and 2 of a write: open or create the table, plan the job, and prepare the whole input.

Plain Python runs both steps here. Spark's driver only plans the job here; each Spark task prepares its own rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.gather import combine_table
from lakeformat.codec import properties
from lakeformat.concurrency import run_both
from lakeformat.config.resolve import Options
from lakeformat.config.write_options import BAD_ROWS
from lakeformat.errors import (
    InvalidOptionError,
    LakeformatError,
    TableNotFoundError,
    UnsupportedTableError,
)
from lakeformat.file_system_view.hashing_rings import StoredBuckets, find_bucket_engine, find_first_buckets
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.footers import open_base, open_parquet, row_batches
from lakeformat.index.bucket import find_bucket_count, has_bucket_files
from lakeformat.keys.partition_paths import partition_paths
from lakeformat.keys.record_keys import GENERATED_KEY, record_keys
from lakeformat.merge import MergeRule
from lakeformat.model import table_config as names
from lakeformat.model.bucket_rule import BucketRule
from lakeformat.model.files import BaseFile
from lakeformat.model.index_type import BUCKET, CONSISTENT
from lakeformat.model.keys import (
    KeyGeneratorKind,
    KeySettings,
)
from lakeformat.model.operation import Operation
from lakeformat.model.record import RECORD_KEY
from lakeformat.model.table_config import (
    TableConfig,
)
from lakeformat.storage.port import Clock, Ids, Storage, is_remote
from lakeformat.storage.scratch import open_mapped_storage
from lakeformat.timeline.path_probe import check_free, check_no_commits
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.commit.hooks import check_hooks
from lakeformat.transaction.order.properties_file import save_copy
from lakeformat.transaction.order.written_file import stage_folder
from lakeformat.write.plan.job import (
    BUCKET_ENGINE,
    BUCKET_EXPRESSIONS,
    BUCKETS,
    HASH_FIELD,
    INDEX_TYPE,
    WriteJob,
    check_index,
    check_keyless,
    check_operation,
    check_unpartitioned,
    choose_operation,
    drops_stored_keys,
    index_settings,
    input_schema,
)
from lakeformat.write.plan.merging import merge_rule, settings_of
from lakeformat.write.plan.table_settings import (
    NEW_ENCODING,
    check_options,
    key_settings,
    lacking_properties,
    new_table_values,
)
from lakeformat.write.rows.bad_rows import BadRows
from lakeformat.write.rows.bulk_insert_order import plan_layout
from lakeformat.write.rows.prepare import PrepareSettings, delete_marker, prepare
from lakeformat.write.rows.schema import check_named_schema, check_ordering, rounded_columns
from lakeformat.write.rows.stage import StageReader, StageWriter

_LOG: Final = logging.getLogger("lakeformat.write")

__all__ = [
    "create_table",
    "open_existing",
    "open_or_create",
    "plan_job",
    "prepare_input",
    "probe_keys",
    "with_bucket_index",
]

#: Number of write buffers (``lakeformat.write.buffer.bytes``) that an input may fill and still stay in memory. A
#: larger input is written to a stage file.
_BUFFERS: Final = 4
#: If the chunks of an input have fewer bytes on average, they are concatenated: key lookups in one chunk are faster.
_CHUNK_BYTES: Final = 4 << 20
#: Number of rows of a base file that are compared with its folder.
_FOLDER_ROWS: Final = 1024
#: Settings of a write without rows.
_NO_ROWS: Final = PrepareSettings(pa.schema([]), KeySettings(KeyGeneratorKind.NON_PARTITIONED, ()), MergeRule())


@contextmanager
def prepare_input(
    storage: Storage, job: WriteJob, rows: pa.RecordBatchReader, bad_rows: BadRows | None = None
) -> Iterator[tuple[Mapping[str, pa.Table], int]]:
    """Prepare the whole input. Yield a mapping of partition path to prepared rows, and the number of input rows.

    The rows may only be used inside the ``with`` block, because they may lie in a memory-mapped file that is deleted
    when the block ends.

    A small input stays in memory. A larger input is prepared buffer by buffer and written to a stage file, as in
    a Spark task. The stage file is then memory-mapped.

    Memory: `_BUFFERS` times ``lakeformat.write.buffer.bytes``, and the same again while a small input is prepared.

    Args:
        bad_rows: collects the rows that cannot be written; None refuses them.

    Raises:
        SchemaMismatchError, InvalidInputError: if rows cannot be written.
    """
    buffer = job.options.write.buffer_bytes
    waiting: list[pa.RecordBatch] = []
    size = 0
    batches = iter(rows)
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size > _BUFFERS * buffer:
            break
    else:
        table = pa.Table.from_batches(waiting, rows.schema)
        if len(waiting) > 1 and size < len(waiting) * _CHUNK_BYTES:
            table = combine_table(table)
        waiting.clear()
        count = table.num_rows
        prepared = prepare(table, job.prepare, bad_rows=bad_rows)
        del table
        yield prepared, count
        return
    with ExitStack() as stack:
        disk = stack.enter_context(open_mapped_storage(storage))
        folder = stage_folder(job.write_id)
        stack.callback(_delete_folder, disk, folder)
        path = f"{folder}/input.arrow"
        with StageWriter(
            disk, path, job.prepare, combined=job.needs_combining, buffer_bytes=buffer, bad_rows=bad_rows
        ) as stage:
            for batch in chain(_drain(waiting), batches):
                stage.append(batch)
            staged = stage.finish()
        yield stack.enter_context(StageReader(disk, [staged], job.prepare)).read_partitions(), staged.rows


def _drain(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches, and remove each batch from the list so that its memory can be freed after use."""
    batches.reverse()
    while batches:
        yield batches.pop()


def _delete_folder(storage: Storage, folder: str) -> None:
    with suppress(LakeformatError, OSError):
        storage.delete_folder(folder)


def open_or_create(store: TimelineStore, options: Options, schema: pa.Schema, clock: Clock) -> TableConfig:
    """Return the table's config. If the table does not exist, create it from the options."""
    try:
        return open_existing(store, options)
    except TableNotFoundError:
        check_free(store.storage)
        return create_table(store, options, schema, clock)


def open_existing(store: TimelineStore, options: Options) -> TableConfig:
    """Return the config of an existing table that is to be written to.

    Raises:
        TableNotFoundError: if there is no table.
        UnsupportedTableError: if lakeformat must not write to the table.
        InvalidOptionError: if the options contradict the table's config.
    """
    config = store.config()
    config.check_writable(store.storage.location)
    check_options(config, options, store.storage.location)
    return config


def create_table(
    store: TimelineStore, options: Options, schema: pa.Schema, clock: Clock, *, must_be_new: bool = False
) -> TableConfig:
    """Create a new, empty table by writing its ``hoodie.properties``, and return its config.

    Args:
        must_be_new: if True, an existing table is an error. If False, the config of a table that another writer created
            first is returned.

    Raises:
        InvalidOptionError: if there is no record key but an option needs one, if the options contradict each other or
            the existing table, or if the table exists and must be new.
        SchemaMismatchError: if a column that the options name is not in the schema or has an unsuitable type.
        CorruptTableError: if the path has commits, but no ``hoodie.properties``.
    """
    config = TableConfig(new_table_values(options, schema, store.storage.location))
    config.check_writable(store.storage.location)
    key_settings(config, options)
    saved = datetime.fromtimestamp(clock.now_ms() / 1000, timezone.utc).isoformat().replace("+00:00", "Z")
    data = properties.encode(dict(config.values), comments=[f"Properties saved on {saved}"])
    if store.storage.has_folders:
        store.storage.make_folder(config.timeline_folder)  # Hudi lists it before its first write.
    check_no_commits(store.storage)
    try:
        store.storage.create(names.PROPERTIES_PATH, data)
        save_copy(store.storage, data)
    except FileExistsError:
        if must_be_new:
            raise InvalidOptionError(
                f"a table is at {store.storage.location} already; choose another path, or open it"
            ) from None
        config = store.config()
        config.check_writable(store.storage.location)
        check_options(config, options, store.storage.location)
    return config


def probe_keys(storage: Storage, snapshot: Snapshot, settings: KeySettings, options: Options) -> KeySettings:
    """Return the key settings that reproduce the record key stored in the first base file that has a row.

    Some writers spell a complex key of one column ``column:value``, others ``value``, and some write timestamps as
    numbers, others as dates with times. The stored key shows which form the table uses. If no base file has a row, or
    files hold no keys, the settings are returned unchanged.

    Raises:
        InvalidOptionError: if an option requires the other form of a complex key.
        UnsupportedTableError: if the stored key has a form that lakeformat does not know or that an option forbids, or
            if the table names no record key but its keys were not generated.
        CorruptTableError: if the file cannot be read.
    """
    columns = sorted({RECORD_KEY, *(name.partition(".")[0] for name in settings.record_fields)})
    for file in () if snapshot.config.has_virtual_keys else snapshot.each_file():
        rows = _first_rows(storage, file, columns)
        if rows is not None:
            return _match_stored_key(file, rows, settings, options)
    return settings


def _check_folder(storage: Storage, files: Iterable[BaseFile], settings: KeySettings) -> None:
    """Check that the settings of the key generator put rows of a base file into the folder in which it lies.

    Under a global index a few rows may lie elsewhere. So one row of the first base file that has rows must fit.

    Raises:
        InvalidOptionError: none of the rows fits.
    """
    columns = sorted({field.name.partition(".")[0] for field in settings.partition_fields})
    for file in files:
        rows = _first_rows(storage, file, columns, _FOLDER_ROWS)
        if rows is None:
            continue
        paths = pc.unique(partition_paths(rows, settings).cast(pa.string())).to_pylist()
        if file.partition_path not in paths:
            raise InvalidOptionError(
                f"{storage.location} does not store all settings of its key generator, and those of the options put "
                f"the rows of {file.path} into {paths[0]!r}; give the settings with which it was written"
            )
        return


def _first_rows(storage: Storage, file: BaseFile, columns: Sequence[str], count: int = 1) -> pa.Table | None:
    """Return the first rows of a base file; None if the file has no rows or lacks one of the columns."""
    where = f"{storage.location}/{file.path}"
    with open_base(storage, file) as source, open_parquet(source, where) as parquet:
        if not set(columns) <= set(parquet.schema_arrow.names):
            return None
        batch = next(row_batches(parquet, where, count, columns=columns), None)
    return pa.Table.from_batches([batch]) if batch is not None and batch.num_rows else None


def _match_stored_key(file: BaseFile, rows: pa.Table, settings: KeySettings, options: Options) -> KeySettings:
    stored = rows.column(RECORD_KEY)[0].as_py()
    if settings.generates_keys:
        if GENERATED_KEY.fullmatch(stored):
            return settings
        raise UnsupportedTableError(
            f"{file.path} holds the record key {stored!r}, which is not a generated one, but {names.PROPERTIES_PATH} "
            f"has no {names.RECORD_FIELDS}; restore that file from a copy"
        )
    made_key = record_keys(rows, settings)[0].as_py()
    if made_key == stored:
        return settings
    other = replace(settings, single_key_prefixed=not settings.single_key_prefixed)
    if len(settings.record_fields) == 1 and record_keys(rows, other)[0].as_py() == stored:
        if options.is_set(NEW_ENCODING):
            raise InvalidOptionError(
                f"{NEW_ENCODING}={str(options[NEW_ENCODING]).lower()} would write keys like {made_key!r} where "
                f"{file.path} holds {stored!r}; leave the option out"
            )
        return other
    by_time = replace(settings, logical_times=not settings.logical_times)
    if record_keys(rows, by_time)[0].as_py() == stored and not options.is_set(names.LOGICAL_TIMES):
        return by_time
    raise UnsupportedTableError(
        f"{file.path} holds the record key {stored!r} where lakeformat would write {made_key!r}; writing would double "
        "rows, so it is refused"
    )


def with_bucket_index(
    storage: Storage, snapshot: Snapshot, options: Options, *, stored: StoredBuckets | None = None
) -> Options:
    """Return the options. If the table was written with a bucket index, make them select this index.

    Without this, a write could add a file that belongs to no bucket, and every later write with the bucket index would
    fail. If the index is AUTO and the stored keys determine the number of buckets, AUTO becomes BUCKET. A table with
    consistent hashing shows its engine by its hashing metadata.

    Args:
        stored: what the table says about its buckets; None to look.

    Raises:
        InvalidOptionError: if the table has a bucket index, and the options name another index, another engine or
            another number of buckets, or the stored keys do not determine the number of buckets.
    """
    keys = snapshot.config.record_fields
    write_options = options.write
    stored = stored or find_bucket_engine(storage, snapshot.timeline)
    if stored.is_consistent:
        return _with_consistent_hashing(storage, options)
    if stored.rule is not None:
        return _with_bucket_rule(storage, stored.rule, options)
    if write_options.is_consistent and snapshot.live.count:
        raise InvalidOptionError(
            f"{storage.location} was not written with {BUCKET_ENGINE}={CONSISTENT}, and its file groups have no hash "
            "ranges; leave the option out, or write the rows into a new table"
        )
    if write_options.index.has_buckets or not keys or not has_bucket_files(snapshot.each_slice()):
        return options
    is_free = write_options.index.is_automatic
    buckets = find_bucket_count(storage, snapshot, write_options.hash_fields or keys) if is_free else None
    if buckets is None or (write_options.buckets != buckets and options.is_set(BUCKETS)):
        raise InvalidOptionError(
            f"the files of {storage.location} are buckets, and new ones must be, too; set {INDEX_TYPE}=BUCKET with the "
            f"{BUCKETS} and {HASH_FIELD} that it was written with"
        )
    _LOG.info(
        "%s was written with %s=BUCKET and %d buckets, and so is this write", storage.location, INDEX_TYPE, buckets
    )
    return options.with_values(**{INDEX_TYPE: BUCKET.name, BUCKETS: buckets})


def _with_bucket_rule(storage: Storage, rule: BucketRule, options: Options) -> Options:
    """Return the options with the rule of a table whose partitions have their own numbers of buckets.

    Raises:
        InvalidOptionError: the options name another index or another rule.
    """
    write_options, where = options.write, f"the rule of partition_bucket_index_manager in {storage.location}"
    if not (write_options.index.is_automatic or write_options.index.has_buckets):
        raise InvalidOptionError(f"{INDEX_TYPE}={write_options.index.name}, but {where} needs BUCKET; leave it out")
    ruled = {BUCKETS: rule.default, BUCKET_EXPRESSIONS: rule.expressions}
    given = {BUCKETS: write_options.buckets, BUCKET_EXPRESSIONS: write_options.bucket_expressions}
    for key, value in ruled.items():
        if options.is_set(key) and given[key] != value:
            raise InvalidOptionError(f"{key} differs from {where}, which has {rule.text}; leave it out")
    return options.with_values(**{INDEX_TYPE: BUCKET.name, BUCKETS: rule.default, BUCKET_EXPRESSIONS: rule.text})


def _with_consistent_hashing(storage: Storage, options: Options) -> Options:
    """Return the options with the index of a table with consistent hashing. Raise an error if they name another one."""
    write_options = options.write
    if not (write_options.index.is_automatic or write_options.index.has_buckets):
        raise InvalidOptionError(
            f"{INDEX_TYPE}={write_options.index.name}, but {storage.location} was written with "
            f"{BUCKET_ENGINE}={CONSISTENT}, and its rows are found by their hashes; leave the option out"
        )
    if options.is_set(BUCKET_ENGINE) and write_options.bucket_engine != CONSISTENT:
        raise InvalidOptionError(
            f"{BUCKET_ENGINE}={write_options.bucket_engine}, but {storage.location} was written with {CONSISTENT}; "
            "leave the option out"
        )
    # A new partition begins like the others, if the options do not say otherwise.
    first_buckets = None if options.is_set(BUCKETS) else find_first_buckets(storage)
    given = {} if first_buckets is None else {BUCKETS: first_buckets}
    return options.with_values(**{INDEX_TYPE: BUCKET.name, BUCKET_ENGINE: CONSISTENT, **given})


def _table_keys(store: TimelineStore, snapshot: Snapshot, options: Options) -> KeySettings:
    """Return the key settings by which the record keys in the table's files were made."""
    if not snapshot.config.partition_fields:
        check_unpartitioned(snapshot, store.storage.location)
    keys = key_settings(snapshot.config, options)
    if snapshot.live.count and lacking_properties(snapshot.config, options, keys):
        _check_folder(store.storage, snapshot.each_file(), keys)
    return probe_keys(store.storage, snapshot, keys, options) if snapshot.live.count else keys


def _find_engine_and_keys(
    store: TimelineStore, snapshot: Snapshot, options: Options
) -> tuple[StoredBuckets, KeySettings]:
    """Return what the table says about its buckets, and the result of `_table_keys`. Both need a request."""
    find_engine = partial(find_bucket_engine, store.storage, snapshot.timeline)
    find_keys = partial(_table_keys, store, snapshot, options)
    return run_both(find_engine, find_keys, at_once=is_remote(store.storage))


def _plan_without_rows(
    store: TimelineStore, snapshot: Snapshot, operation: Operation, options: Options, ids: Ids
) -> WriteJob:
    """Plan a write whose options name the partitions, so that the input's rows and columns do not matter."""
    return WriteJob(operation, snapshot.config, options, _NO_ROWS, needs_combining=False, write_id=ids.token())


def _check_bulk_overwrite(options: Options, location: str, *, overwrite: bool) -> None:
    """Check that the save mode fits the operation that replaces a bulk_insert (Hudi: ``HoodieSparkSqlWriter``)."""
    replaces, is_table = options.write.bulk_overwrite, options.write.bulk_overwrite == "insert_overwrite_table"
    if options.write.operation == "bulk_insert" and replaces is not None and is_table != overwrite:
        mode = "overwrite" if is_table else "append"
        raise InvalidOptionError(
            f"{location}: hoodie.bulkinsert.overwrite.operation.type={replaces} needs mode {mode}, as in Hudi; set the "
            f"mode, or write operation {replaces}"
        )


def plan_job(
    store: TimelineStore,
    snapshot: Snapshot,
    options: Options,
    rows: pa.Schema,
    ids: Ids,
    *,
    overwrite: bool = False,
) -> WriteJob:
    """Plan a write. Before rows are read, refuse a write that the input's columns or the options do not allow.

    Args:
        snapshot: the table's present state.
        rows: the input's Arrow schema.
        overwrite: whether Spark's save mode is ``overwrite``.

    Raises:
        InvalidOptionError, SchemaMismatchError, UnsupportedTableError: if the write is refused. Nothing was written.
    """
    config, write_options = snapshot.config, options.write
    has_key = bool(config.record_fields)
    operation = choose_operation(write_options.operation, options, has_key=has_key, overwrite=overwrite)
    _check_bulk_overwrite(options, store.storage.location, overwrite=overwrite)
    combine = operation.needs_tagging or write_options.combine or drops_stored_keys(operation, options)
    check_operation(operation, config, options, store.storage.location)
    if operation is Operation.DELETE_PARTITION and write_options.partitions:
        return _plan_without_rows(store, snapshot, operation, options, ids)
    stored, keys = _find_engine_and_keys(store, snapshot, options)
    if keys.generates_keys:
        check_keyless(operation, options, store.storage.location)
    removes = operation.has_no_rows
    has_partitions = {f.name.partition(".")[0] for f in keys.partition_fields}.issubset(rows.names)
    schema = input_schema(snapshot, operation, rows, keys)
    check_named_schema(schema, "" if removes else write_options.schema_text)
    rule = MergeRule() if removes else merge_rule(config, options, keys, schema, meets_stored=operation.needs_tagging)
    for field in rule.ordering:
        check_ordering(schema, field)
    marker = None if removes else delete_marker(options, settings_of(config, options), schema, snapshot.schema)
    is_bound = stored.is_consistent or stored.rule is not None
    if is_bound or (not removes and operation is not Operation.INSERT_OVERWRITE_TABLE):
        options = with_bucket_index(store.storage, snapshot, options, stored=stored)
    index = index_settings(config, options)
    check_index(index, config, rule)
    refuses_keys = operation is Operation.INSERT and options.write.dup_policy != "none"
    compares_keys = operation.needs_tagging or combine or refuses_keys
    is_global = index.is_global and compares_keys
    search_all = operation is Operation.DELETE and (is_global or not has_partitions)
    job = WriteJob(
        operation,
        config,
        options,
        PrepareSettings(schema, keys, rule, search_all, marker, is_global, not options.is_set(BAD_ROWS)),
        combine,
        ids.token(),
        plan_layout(options, schema, combine=combine) if operation is Operation.BULK_INSERT else None,
        snapshot.versions,
        snapshot.schema,
    )
    _check_columns(job, snapshot, store.storage.location)
    return job


def _check_columns(job: WriteJob, snapshot: Snapshot, location: str) -> None:
    """Refuse what does not suit the columns after the write, and say which integers it rounds."""
    if job.merges_inserts and job.rule.folds:
        raise InvalidOptionError(
            "hoodie.merge.allow.duplicate.on.inserts=false: rows of this table fill each other's fields, which only "
            "upsert does; write operation upsert"
        )
    columns = job.final_schema(snapshot)
    check_hooks(job.options, columns)
    if rounded := rounded_columns(snapshot.schema or columns, columns):
        _LOG.warning(
            "%s: the integers of %s become floats, as by Hudi, and large ones are rounded; to keep the types set "
            "hoodie.datasource.write.reconcile.schema=true",
            location,
            ", ".join(rounded),
        )

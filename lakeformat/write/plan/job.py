"""Step 1 of a write: plan a `WriteJob` from the options, the table's config and the input's columns.

The options name the type of the index; ``AUTO`` chooses the type by the table's files.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

import pyarrow as pa

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.codec.avro.schema import to_avro, with_meta
from lakeformat.codec.stored_types import with_operation, without_operation
from lakeformat.config.resolve import Options
from lakeformat.errors import CorruptTableError, InvalidOptionError, SchemaMismatchError, nearest
from lakeformat.file_system_view.folder_values import constants_time, dropped_column_values, virtual_key_settings
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.base_file import FileSettings
from lakeformat.files.stored_shape import SchemaVersion, StoredShape
from lakeformat.index.factory import make_index
from lakeformat.index.port import Index, IndexSettings
from lakeformat.merge import MergeRule
from lakeformat.model.keys import KeyGeneratorKind, KeySettings, PartitionKind
from lakeformat.model.operation import Operation
from lakeformat.model.record import IS_DELETED, OPERATION, RECORD_KEY
from lakeformat.model.table_config import (
    OPERATION_FIELD,
    PARTITION_FIELDS,
    POPULATES_META_FIELDS,
    PROPERTIES_PATH,
    TableConfig,
)
from lakeformat.transaction.commit.hooks import check_hooks
from lakeformat.transaction.order.conflict import StalePlanError
from lakeformat.transaction.order.settings import TransactionSettings, make_transaction_settings
from lakeformat.write.plan.table_settings import lacking_properties
from lakeformat.write.rows.bulk_insert_order import Layout
from lakeformat.write.rows.prepare import PrepareSettings
from lakeformat.write.rows.schema import check_key_types, check_stays_number, evolve, incoming_schema, mark_required

__all__ = [
    "BUCKETS",
    "BUCKET_ENGINE",
    "BUCKET_EXPRESSIONS",
    "HASH_FIELD",
    "INDEX_TYPE",
    "WriteJob",
    "check_combining",
    "check_index",
    "check_keyless",
    "check_operation",
    "check_unpartitioned",
    "choose_operation",
    "columns_stored_as_text",
    "drops_stored_keys",
    "index_settings",
    "input_schema",
    "rewrite_job",
]

_LOG: Final = logging.getLogger("lakeformat.write")
INDEX_TYPE: Final = "hoodie.index.type"
BUCKETS: Final = "hoodie.bucket.index.num.buckets"
BUCKET_EXPRESSIONS: Final = "hoodie.bucket.index.partition.expressions"
BUCKET_ENGINE: Final = "hoodie.index.bucket.engine"

HASH_FIELD: Final = "hoodie.bucket.index.hash.field"


def index_settings(config: TableConfig, options: Options) -> IndexSettings:
    """Return the index settings from the options and the table's config."""
    write_options, stores_keys = options.write, not config.has_virtual_keys
    return IndexSettings(
        write_options.index.name,
        write_options.by_ranges,
        write_options.by_tree,
        update_partition=write_options.update_partition,
        engine=write_options.bucket_engine,
        buckets=write_options.buckets,
        bucket_rule=write_options.bucket_rule,
        hash_fields=write_options.hash_fields or config.record_fields,
        use_metadata_table=write_options.use_metadata_table and stores_keys,
        asks_stored_filters=write_options.asks_stored_filters and stores_keys,
    )


def check_index(index: IndexSettings, config: TableConfig, rule: MergeRule) -> None:
    """Raise an error if the options select something that the index does not support.

    Raises:
        InvalidOptionError: if a global index would have to move rows whose partition a merger decides, if a hash
            field is not a record key field, or if consistent hashing is requested for a table without log files.
    """
    if config.has_virtual_keys and index.type.trusts_record_index:
        raise InvalidOptionError(
            f"hoodie.index.type={index.kind} does not work with {POPULATES_META_FIELDS}=false: Hudi leaves the record "
            "index empty; set hoodie.index.type=SIMPLE"
        )
    if index.is_consistent and not config.takes_logs:
        raise InvalidOptionError(
            f"{BUCKET_ENGINE}={index.engine} does not work with a copy-on-write table; make the table with "
            "hoodie.datasource.write.table.type=MERGE_ON_READ, or leave the option out"
        )
    if index.is_global and index.update_partition and rule.merger and config.partition_fields:
        raise InvalidOptionError(
            f"a merger cannot say which partition its row belongs to, but hoodie.index.type={index.kind} needs it; set "
            f"{index.type.update_partition}=false, or use another index"
        )
    for name in index.hash_fields if index.has_buckets else ():
        if name not in config.record_fields:
            raise InvalidOptionError(
                f"{HASH_FIELD} names {name!r}, which is not a record key field{nearest(name, config.record_fields)}; "
                f"use {', '.join(config.record_fields)}"
            )


_CODEC: Final = "hoodie.parquet.compression.codec"
_COMBINE: Final = "hoodie.combine.before.insert"
_DUP_POLICY: Final = "hoodie.datasource.insert.dup.policy"
_RECONCILE: Final = "hoodie.datasource.write.reconcile.schema"


@dataclass(frozen=True)
class WriteJob:
    """A planned write. It can be pickled for Spark tasks.

    Attributes:
        needs_combining: whether the input is reduced to one row per key.
        prepare: settings by which input rows get their keys and partition paths.
        write_id: a string that is unique to the write: the name of its stage folder, the seed of its file ids and the
            token of its commit.
        layout: how bulk_insert sorts rows and divides them over files; None keeps the input order.
        versions: for a table changed by schema on read, how files of each schema store the columns when the job is
            planned.
        is_preview: whether nothing is written. Then the look-up of keys is exact, since no merge corrects it.
        planned: the table's columns when the job is planned; None if it has none yet.
    """

    operation: Operation
    config: TableConfig
    options: Options
    prepare: PrepareSettings
    needs_combining: bool
    write_id: str
    layout: Layout | None = None
    versions: tuple[SchemaVersion, ...] = ()
    planned: pa.Schema | None = None
    is_preview: bool = False

    @property
    def named_partitions(self) -> tuple[str, ...]:
        """Return the partition paths that the options name for ``delete_partition``; empty if the rows name them."""
        return self.options.write.partitions if self.operation is Operation.DELETE_PARTITION else ()

    @property
    def dup_policy(self) -> str:
        """Return what happens to inserts whose keys are in the table already: ``drop`` or ``fail``, else ``none``."""
        return self.options.write.dup_policy if self.operation is Operation.INSERT else "none"

    @property
    def merges_inserts(self) -> bool:
        """Tell whether an insert merges its rows with those of the small files that take them."""
        doubles = self.options.write.doubles_inserts or self.index_settings.has_buckets
        return self.operation is Operation.INSERT and not doubles

    @property
    def fills_files_in_tasks(self) -> bool:
        """Tell whether a shuffled write adds rows to existing file groups. Its tasks compare no keys in small files."""
        return self.uses_existing_groups and not self.merges_inserts

    @property
    def puts_bad_rows_aside(self) -> bool:
        """Tell whether rows that cannot be written go to the table of bad rows. If not, they are refused."""
        return self.options.write.bad_rows == "aside" and self.operation is not Operation.DELETE_PARTITION

    @property
    def collects_duplicates(self) -> bool:
        """Tell whether rows that the duplicate policy refuses are put aside. Only one process can find them."""
        return self.puts_bad_rows_aside and self.dup_policy == "fail"

    @property
    def needs_tagging(self) -> bool:
        """Tell whether the keys of the rows are looked up in the table."""
        return self.operation.needs_tagging or self.dup_policy != "none"

    @property
    def needs_staging(self) -> bool:
        """Tell whether all rows must be staged before files are written, in order to tag, combine or bucket them."""
        return self.needs_tagging or self.needs_combining or self.index_settings.has_buckets

    @property
    def writes_directly(self) -> bool:
        """Tell whether plain Python streams the rows into base files as they arrive.

        Rows to combine are streamed, too, if they may be read back from these files: they are in order of arrival, and
        no row is a delete. See `lakeformat.write.direct_session`.
        """
        if not self.needs_staging:
            return True
        deletes = self.prepare.marker is not None or IS_DELETED in self.prepare.schema.names
        readable = not (deletes or self.prepare.is_global or self.layout or self.config.drops_partition_columns)
        others = self.needs_tagging or self.index_settings.has_buckets or self.uses_existing_groups
        return readable and not others

    @property
    def uses_existing_groups(self) -> bool:
        """Tell whether rows may go into existing file groups. If not, the write only opens new ones."""
        if self.operation is Operation.BULK_INSERT:
            return self.index_settings.has_buckets  # A bucket has only one file group, so its rows must go there.
        return self.operation.uses_existing_groups

    @cached_property
    def index_settings(self) -> IndexSettings:
        """Return the settings of the index that the write uses."""
        settings = index_settings(self.config, self.options)
        # An index lookup may return false positives. A merge into a base file detects them, because it reads the file's
        # keys. A write that appends to log files or drops rows with stored keys does not read them, so it needs an
        # exact lookup, and so does a preview.
        finds_deleted = self.dup_policy != "none"
        exact = finds_deleted or self.is_preview or (self.config.takes_logs and not settings.has_buckets)
        copies = self.operation is Operation.DELETE
        replaced_by = self.write_id if self.operation.is_overwrite else ""
        return replace(settings, exact=exact, finds_deleted=finds_deleted, finds_copies=copies, replaced_by=replaced_by)

    @cached_property
    def shape(self) -> StoredShape:
        """Return how base files store the table's columns: by schema on read, and without record keys."""
        key = virtual_key_settings(self.config) if self.config.has_virtual_keys else None
        return StoredShape(key=key, versions=self.versions)

    def shape_with(self, schema: pa.Schema) -> StoredShape:
        """Return `shape` with the values of the columns that files do not hold, of a table with this schema."""
        if not self.config.folder_columns:
            return self.shape
        values = partial(dropped_column_values, config=self.config, schema=schema)
        return replace(self.shape, folder=values, only=constants_time(self.config))

    @property
    def rule(self) -> MergeRule:
        """Return the rule that merges rows with the same key."""
        return self.prepare.rule

    @property
    def index(self) -> Index:
        """Return the index that finds the file groups of keys."""
        return make_index(self.index_settings)

    @cached_property
    def transaction_settings(self) -> TransactionSettings:
        """Return the settings of the job's transaction."""
        settings = make_transaction_settings(self.operation, self.config, self.options, self.write_id)
        lacking = lacking_properties(self.config, self.options, self.prepare.keys)
        if self.has_operations:
            lacking = {**lacking, OPERATION_FIELD: "true"}
        return replace(settings, lacking=lacking)

    @property
    def has_operations(self) -> bool:
        """Tell whether files of the table have the column of operations, or get it."""
        return self.options.write.stores_operation or (self.planned is not None and OPERATION in self.planned.names)

    def at(self, snapshot: Snapshot) -> WriteJob:
        """Return the job for the table's present columns. Call it before the write begins an instant."""
        return self if snapshot.versions == self.versions else replace(self, versions=snapshot.versions)

    def check_unaltered(self, snapshot: Snapshot) -> None:
        """Raise a `StalePlanError` if columns were renamed, dropped or changed in type since the job was planned."""
        if snapshot.versions != self.versions:
            raise StalePlanError(f"the columns of {self.config.name} were altered meanwhile; run the write again")

    def final_schema(self, snapshot: Snapshot) -> pa.Schema:
        """Return the table's schema after this write.

        Raises:
            SchemaMismatchError: if the input's columns do not fit the table's columns.
            StalePlanError: if they do not fit columns that have changed since the job was planned, or the files of the
                write would have columns that were altered meanwhile.
        """
        self.check_unaltered(snapshot)
        table = snapshot.schema
        if table is not None and self.has_operations:
            table = without_operation(table)
        try:
            joined = self._join_columns(table)
            return with_operation(joined) if self.has_operations else joined
        except SchemaMismatchError as error:
            if snapshot.schema is None or self.planned is None or snapshot.schema.equals(self.planned):
                raise
            raise StalePlanError(f"{error}; the columns of {self.config.name} have changed meanwhile") from None

    def _join_columns(self, table: pa.Schema | None) -> pa.Schema:
        if self.operation.has_no_rows:
            return table if table is not None else self.prepare.schema
        is_replaced = self.operation is Operation.INSERT_OVERWRITE_TABLE or self.options.write.drops_columns
        if is_replaced and table is not None and self.rule.columns is None:
            joined = _replacement_schema(table, self.prepare.schema)
        else:
            reconciles = self.options[_RECONCILE]
            joined = evolve(
                table,
                self.prepare.schema,
                fill_missing=self.options.write.fill_missing or reconciles,
                partial=self.rule.columns is not None,
                keeps_types=reconciles,
            )
        if table is not None:
            fields = (*self.config.record_fields, *self.config.partition_fields, *self.rule.ordering)
            check_stays_number(table, joined, fields)
        return joined

    def files(self, schema: pa.Schema) -> FileSettings:
        """Return the settings for writing base files with this schema."""
        settings, write_options = self.transaction_settings, self.options.write
        stored = pa.schema([field for field in schema if field.name not in self.config.dropped_columns])
        return FileSettings(
            schema,
            to_avro(with_meta(stored), table_name=self.config.name),
            write_options.codec,
            not self.options.is_set(_CODEC),
            (RECORD_KEY, *self._key_copy(schema)),
            write_options.bloom_fpp,
            write_options.file_bytes,
            settings.index.list_indexed_columns(stored)
            if settings.keeps_index
            else settings.index.partition_columns(stored),
            write_options.row_group_rows,
            write_options.row_group_bytes,
            stores_meta=not self.config.has_virtual_keys,
            dropped=frozenset(self.config.dropped_columns),
        )

    def _key_copy(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return a tuple of the text column whose values equal the record keys; empty if there is no such column."""
        fields = self.prepare.keys.record_fields
        is_copy = len(fields) == 1 and fields[0] in schema.names and schema.field(fields[0]).type == pa.string()
        return fields if is_copy else ()


def _replacement_schema(table: pa.Schema, incoming: pa.Schema) -> pa.Schema:
    """Return the schema of a table whose rows are all replaced: the incoming columns, with types as after an upsert.

    Raises:
        SchemaMismatchError: if a column keeps its name but changes its type as no write may change it.
    """
    stored = set(table.names)
    kept = pa.schema([table.field(name) for name in incoming.names if name in stored])
    joined = evolve(kept, incoming, fill_missing=True)
    return pa.schema([joined.field(field.name).with_nullable(field.nullable) for field in incoming])


def check_unpartitioned(snapshot: Snapshot, location: str) -> None:
    """Refuse a table without partition fields that has files in a partition.

    If ``hoodie.properties`` has lost its partition fields, a write would store each row again, in the root folder.
    """
    folder = next((path for path in snapshot.slices if path), None)
    if folder is not None:
        raise CorruptTableError(
            f"{location}/{PROPERTIES_PATH} names no partition fields ({PARTITION_FIELDS}), but there are files in the "
            f"partition {folder!r}; restore it from a copy"
        )


def columns_stored_as_text(keys: KeySettings) -> tuple[str, ...]:
    """Return the columns whose values are converted to text to make record keys and partition paths."""
    simple = (f.name for f in keys.partition_fields if keys.kind_of(f) is PartitionKind.SIMPLE)
    return (*keys.record_fields, *simple)


def check_keyless(operation: Operation, options: Options, location: str) -> None:
    """Refuse operations and options that need a record key, by Hudi's rules (``AutoRecordKeyGenerationUtils``)."""
    if operation.needs_tagging:
        advice = "use insert" if operation is Operation.UPSERT else "delete by a condition, or whole partitions"
        raise InvalidOptionError(
            f"operation {operation.value} needs a record key, and {location} has none: its keys are generated; {advice}"
        )
    for key, off in ((_COMBINE, False), (_DUP_POLICY, "none")):
        if options[key] != off:
            raise InvalidOptionError(
                f"option {key} compares record keys, and {location} has none: its keys are generated; leave it out"
            )


def choose_operation(named: str | None, options: Options, *, has_key: bool, overwrite: bool) -> Operation:
    """Return the operation that the option and Spark's save mode select."""
    operation = Operation(named or ("upsert" if has_key else "insert"))
    if operation is Operation.BULK_INSERT and options.write.dup_policy != "none":
        raise InvalidOptionError(
            f"{_DUP_POLICY}={options.write.dup_policy} needs every key looked up, which bulk_insert does not do; use "
            "operation insert"
        )
    if operation is Operation.BULK_INSERT and options.write.bulk_overwrite is not None:
        operation = Operation(options.write.bulk_overwrite)
    if not overwrite or operation.is_overwrite:
        return operation
    if operation.has_no_rows:
        raise InvalidOptionError(
            f"mode overwrite and operation {operation.value} contradict each other; use mode append"
        )
    return Operation.INSERT_OVERWRITE if options.write.dynamic else Operation.INSERT_OVERWRITE_TABLE


def drops_stored_keys(operation: Operation, options: Options) -> bool:
    """Tell whether an insert drops rows whose keys are already in the table."""
    return operation is Operation.INSERT and options.write.dup_policy == "drop"


def input_schema(snapshot: Snapshot, operation: Operation, rows: pa.Schema, keys: KeySettings) -> pa.Schema:
    """Return the input's columns as they are stored; empty if the operation removes rows, which needs only keys."""
    schema = pa.schema([]) if operation.has_no_rows else incoming_schema(rows)
    if snapshot.has_operations:
        schema = without_operation(schema)  # It tells how stored rows came, not what happens to the input's.
    if snapshot.schema is not None:
        check_key_types(snapshot.schema, rows, columns_stored_as_text(keys))
        if operation is not Operation.INSERT_OVERWRITE_TABLE:
            schema = mark_required(snapshot.schema, schema)
    if IS_DELETED in schema.names and kind_of(schema.field(IS_DELETED).type) is not Kind.BOOLEAN:
        raise SchemaMismatchError(f"column {IS_DELETED!r} must be boolean, not {schema.field(IS_DELETED).type}")
    return schema


def check_operation(operation: Operation, config: TableConfig, options: Options, location: str) -> None:
    """Raise an error if the options or the table's config do not allow the operation."""
    if operation is Operation.DELETE_PARTITION and not config.partition_fields:
        raise InvalidOptionError(
            f"operation delete_partition, but {location} has no partitions; overwrite it with no rows to empty it"
        )
    check_combining(options)


def check_combining(options: Options) -> None:
    """Raise an error if the options ask for an upsert or delete that writes one key twice."""
    for key in ("hoodie.combine.before.upsert", "hoodie.combine.before.delete"):
        if not options[key]:
            raise InvalidOptionError(f"{key}=false would write one key twice; leave it out, or use operation insert")


def rewrite_job(snapshot: Snapshot, options: Options, operation: Operation, write_id: str) -> WriteJob:
    """Return the job of a write that changes stored rows in place. It has no input rows and makes no keys."""
    check_hooks(options, snapshot.schema or pa.schema([]))
    keys = KeySettings(KeyGeneratorKind.NON_PARTITIONED, snapshot.config.record_fields)
    prepare = PrepareSettings(pa.schema([]), keys, MergeRule())
    return WriteJob(
        operation,
        snapshot.config,
        options,
        prepare,
        needs_combining=False,
        write_id=write_id,
        versions=snapshot.versions,
        planned=snapshot.schema,
    )

"""One write, decided: what the options, the table and the input's columns together mean. A picklable value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from lakeformat.codec.avro_schema import to_avro, with_meta
from lakeformat.config.resolve import Options
from lakeformat.errors import CorruptTableError, InvalidOptionError, SchemaMismatchError
from lakeformat.files.base_file import FileSettings
from lakeformat.index.kinds import make_index
from lakeformat.index.port import Index, IndexSettings
from lakeformat.merge import MergeRule
from lakeformat.model.keys import KeyGeneratorKind, KeySettings, PartitionKind
from lakeformat.model.operation import Operation
from lakeformat.model.record import IS_DELETED, RECORD_KEY
from lakeformat.model.table_config import PARTITION_FIELDS, PROPERTIES_PATH, TableConfig
from lakeformat.storage.port import Ids
from lakeformat.table_state.bucket_layout import check_bucket_layout
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.hooks import check_hooks
from lakeformat.transaction.purpose import Purpose, purpose_of
from lakeformat.write.decide.indexing import check_index, index_settings, with_buckets_kept
from lakeformat.write.decide.merging import merge_rule
from lakeformat.write.decide.table_settings import key_settings, probe_keys
from lakeformat.write.rows.delete_marker import delete_marker
from lakeformat.write.rows.layout import Layout, plan_layout
from lakeformat.write.rows.prepare import PrepareSettings
from lakeformat.write.rows.schema import check_key_types, check_ordering, evolve, incoming_schema, required_as

__all__ = [
    "WriteJob",
    "check_unpartitioned",
    "chosen_operation",
    "plan_job",
    "rewrite_job",
    "spelt_columns",
]

_CODEC: Final = "hoodie.parquet.compression.codec"
_COMBINE: Final = "hoodie.combine.before.insert"
_DUP_POLICY: Final = "hoodie.datasource.insert.dup.policy"
_RECONCILE: Final = "hoodie.datasource.write.reconcile.schema"


@dataclass(frozen=True)
class WriteJob:
    """A planned write.

    Attributes:
        combine: keep one row per key of the input.
        prepare: how input rows become prepared rows.
        write_id: names the stage folder and the file ids; also the commit's token.
        layout: how bulk_insert orders rows and files; None for as they come.
    """

    operation: Operation
    config: TableConfig
    options: Options
    prepare: PrepareSettings
    combine: bool
    write_id: str
    layout: Layout | None = None

    @property
    def named_partitions(self) -> tuple[str, ...]:
        """What ``delete_partition`` is told to delete; empty for the partitions of the rows."""
        return self.options.write.partitions if self.operation is Operation.DELETE_PARTITION else ()

    @property
    def dup_policy(self) -> str:
        """``drop`` or ``fail`` if an insert looks for keys that are there already, else ``none``."""
        return self.options.write.dup_policy if self.operation is Operation.INSERT else "none"

    @property
    def tags(self) -> bool:
        """Whether rows are looked up in the table."""
        return self.operation.tags or self.dup_policy != "none"

    @property
    def staged(self) -> bool:
        """Whether rows must meet before files are written: to be looked up, combined, or brought to their bucket."""
        return self.tags or self.combine or self.index_settings.has_buckets

    @property
    def joins(self) -> bool:
        """Whether rows may join file groups that are there; the others only open new ones."""
        if self.operation is Operation.BULK_INSERT:
            return self.index_settings.has_buckets  # A bucket has one file group at most.
        return self.operation.joins

    @property
    def index_settings(self) -> IndexSettings:
        """Which index, and how it works."""
        settings = index_settings(self.config, self.options)
        # No merge follows that would find a guess out.
        tells_gone = self.dup_policy != "none"
        exact = tells_gone or (self.config.takes_logs and not settings.has_buckets)
        return replace(settings, exact=exact, tells_gone=tells_gone)

    @property
    def rule(self) -> MergeRule:
        """How rows with one key become one."""
        return self.prepare.rule

    @property
    def index(self) -> Index:
        """Where keys are looked for."""
        return make_index(self.index_settings)

    @property
    def purpose(self) -> Purpose:
        """As much of it as its transaction needs to know."""
        return purpose_of(self.operation, self.config, self.options, self.write_id)

    def final_schema(self, snapshot: Snapshot) -> pa.Schema:
        """The table's schema after this write.

        Raises:
            SchemaMismatchError: the columns do not fit the table's present ones.
        """
        if self.operation.removes:
            return snapshot.schema if snapshot.schema is not None else self.prepare.schema
        if self.operation is Operation.INSERT_OVERWRITE_TABLE and snapshot.schema is not None:
            return _overwritten(snapshot.schema, self.prepare.schema)
        fill = self.options.write.fill_missing or self.options[_RECONCILE]
        partial = self.rule.columns is not None
        return evolve(snapshot.schema, self.prepare.schema, fill_missing=fill, partial=partial)

    def files(self, schema: pa.Schema) -> FileSettings:
        """Settings of base files with this schema."""
        purpose, asked = self.purpose, self.options.write
        return FileSettings(
            schema,
            to_avro(with_meta(schema), table_name=self.config.name),
            asked.codec,
            not self.options.given(_CODEC),
            (RECORD_KEY, *self._key_copy(schema)),
            asked.bloom_fpp,
            asked.file_bytes,
            purpose.index.indexed(schema) if purpose.keeps_index else purpose.index.partition_columns(schema),
            asked.row_group_rows,
            asked.row_group_bytes,
        )

    def _key_copy(self, schema: pa.Schema) -> tuple[str, ...]:
        """The column that holds the same texts as the record key, if there is one."""
        fields = self.prepare.keys.record_fields
        is_copy = len(fields) == 1 and fields[0] in schema.names and pa.types.is_string(schema.field(fields[0]).type)
        return fields if is_copy else ()


def _overwritten(table: pa.Schema, incoming: pa.Schema) -> pa.Schema:
    """Replacing all rows may bring any columns, if none keeps its name and changes its type."""
    stored = set(table.names)
    for field in incoming:
        if field.name in stored:
            evolve(pa.schema([table.field(field.name)]), pa.schema([field]), fill_missing=True)
    return incoming


def check_unpartitioned(snapshot: Snapshot, location: str) -> None:
    """Properties that lost their partition fields would send every row into the root folder, a second time."""
    folder = next((path for path in snapshot.slices if path), None)
    if folder is not None:
        raise CorruptTableError(
            f"{location}/{PROPERTIES_PATH} names no partition fields ({PARTITION_FIELDS}), but there are files in the "
            f"partition {folder!r}; restore it from a copy"
        )


def spelt_columns(keys: KeySettings) -> tuple[str, ...]:
    """Columns whose values stand as text in keys and partition paths."""
    simple = (f.name for f in keys.partition_fields if keys.kind_of(f) is PartitionKind.SIMPLE)
    return (*keys.record_fields, *simple)


def _check_keyless(operation: Operation, options: Options, location: str) -> None:
    """Refuse what needs a key, by Hudi's rules (``AutoRecordKeyGenerationUtils``)."""
    if operation.tags:
        advice = "use insert" if operation is Operation.UPSERT else "delete by a condition, or whole partitions"
        raise InvalidOptionError(
            f"operation {operation.value} needs a record key, and {location} has none: its keys are generated; {advice}"
        )
    for key, off in ((_COMBINE, False), (_DUP_POLICY, "none")):
        if options[key] != off:
            raise InvalidOptionError(
                f"option {key} compares record keys, and {location} has none: its keys are generated; leave it out"
            )


def chosen_operation(said: str | None, options: Options, *, has_key: bool, overwrite: bool) -> Operation:
    """The operation meant, from the option and Spark's save mode."""
    operation = Operation(said or ("upsert" if has_key else "insert"))
    if operation is Operation.BULK_INSERT and options.write.dup_policy != "none":
        raise InvalidOptionError(
            f"{_DUP_POLICY}={options.write.dup_policy} needs every key looked up, which bulk_insert does not do; use "
            "operation insert"
        )
    if not overwrite or operation.overwrites:
        return operation
    if operation.removes:
        raise InvalidOptionError(
            f"mode overwrite and operation {operation.value} contradict each other; use mode append"
        )
    return Operation.INSERT_OVERWRITE if options.write.dynamic else Operation.INSERT_OVERWRITE_TABLE


def _drops(operation: Operation, options: Options) -> bool:
    return operation is Operation.INSERT and options.write.dup_policy == "drop"


def _keys_of(store: TimelineStore, snapshot: Snapshot, options: Options) -> KeySettings:
    """How keys are made, as the table's files have them."""
    if not snapshot.config.partition_fields:
        check_unpartitioned(snapshot, store.storage.location)
    keys = key_settings(snapshot.config, options)
    return probe_keys(store.storage, snapshot.each_file(), keys, options) if snapshot.live.count else keys


def _schema_of(snapshot: Snapshot, operation: Operation, rows: pa.Schema, keys: KeySettings) -> pa.Schema:
    """The columns that the input brings; none where it removes rows."""
    schema = pa.schema([]) if operation.removes else incoming_schema(rows)
    if snapshot.schema is not None and operation is not Operation.INSERT_OVERWRITE_TABLE:
        check_key_types(snapshot.schema, rows, spelt_columns(keys))
        schema = required_as(snapshot.schema, schema)
    if IS_DELETED in schema.names and not pa.types.is_boolean(schema.field(IS_DELETED).type):
        raise SchemaMismatchError(f"column {IS_DELETED!r} must be boolean, not {schema.field(IS_DELETED).type}")
    return schema


def _check_operation(operation: Operation, config: TableConfig, options: Options, location: str) -> None:
    """What the options alone tell against it."""
    if operation is Operation.DELETE_PARTITION and not config.partition_fields:
        raise InvalidOptionError(
            f"operation delete_partition, but {location} has no partitions; overwrite it with no rows to empty it"
        )
    for key in ("hoodie.combine.before.upsert", "hoodie.combine.before.delete"):
        if not options[key]:
            raise InvalidOptionError(f"{key}=false would write one key twice; leave it out, or use operation insert")


def plan_job(
    store: TimelineStore,
    snapshot: Snapshot,
    options: Options,
    rows: pa.Schema,
    ids: Ids,
    *,
    overwrite: bool = False,
) -> WriteJob:
    """Decide a write, refusing here whatever the schema and the settings alone can tell.

    Args:
        snapshot: the table as it stands.
        rows: the input's Arrow schema.
        overwrite: Spark's save mode ``overwrite``.

    Raises:
        InvalidOptionError, SchemaMismatchError, UnsupportedTableError: with the reason; nothing was written.
    """
    config = snapshot.config
    snapshot.check_writable(store.storage.location)
    check_bucket_layout(store.storage)
    asked, has_key = options.write, bool(config.record_fields)
    operation = chosen_operation(asked.operation, options, has_key=has_key, overwrite=overwrite)
    combine = operation.tags or asked.combine or _drops(operation, options)
    _check_operation(operation, config, options, store.storage.location)
    if operation is Operation.DELETE_PARTITION and asked.partitions:
        # The partitions are named: of the rows, not even the columns count.
        nothing = PrepareSettings(pa.schema([]), KeySettings(KeyGeneratorKind.NON_PARTITIONED, ()), MergeRule())
        return WriteJob(operation, config, options, nothing, combine=False, write_id=ids.token())
    keys = _keys_of(store, snapshot, options)
    if keys.generated:
        _check_keyless(operation, options, store.storage.location)
    delete = operation.removes
    has_partitions = {f.name.partition(".")[0] for f in keys.partition_fields}.issubset(rows.names)
    schema = _schema_of(snapshot, operation, rows, keys)
    rule = MergeRule() if delete else merge_rule(config, options, keys, schema, meets_stored=operation.tags)
    if rule.ordering:
        check_ordering(schema, rule.ordering)
    marker = None if delete else delete_marker(options, config.merge_settings, schema, snapshot.schema)
    if not delete and operation is not Operation.INSERT_OVERWRITE_TABLE:
        options = with_buckets_kept(store.storage, snapshot, options)
    index = index_settings(config, options)
    check_index(index, config, rule)
    looks = operation.tags or combine or (operation is Operation.INSERT and options.write.dup_policy != "none")
    whole = index.is_global and looks
    search_all = operation is Operation.DELETE and (whole or not has_partitions)
    job = WriteJob(
        operation,
        config,
        options,
        PrepareSettings(schema, keys, rule, search_all=search_all, marker=marker, whole=whole),
        combine,
        ids.token(),
        plan_layout(options, schema, combine=combine) if operation is Operation.BULK_INSERT else None,
    )
    check_hooks(options, job.final_schema(snapshot))
    return job


def rewrite_job(snapshot: Snapshot, options: Options, operation: Operation, ids: Ids) -> WriteJob:
    """A write that changes stored rows where they stand: it has no rows of its own and makes no keys."""
    check_hooks(options, snapshot.schema or pa.schema([]))
    keys = KeySettings(KeyGeneratorKind.NON_PARTITIONED, snapshot.config.record_fields)
    prepare = PrepareSettings(pa.schema([]), keys, MergeRule())
    return WriteJob(operation, snapshot.config, options, prepare, combine=False, write_id=ids.token())

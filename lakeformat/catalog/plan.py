"""Planning of a registration: what the catalog should have, and which changes lead there.

Sources: Hudi's ``HiveSyncTool``, ``HMSDDLExecutor``, ``HoodieSyncClient`` and ``AWSGlueCatalogSyncClient``.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa

from lakeformat.catalog.entry import CatalogColumn, CatalogEntry, CatalogPartition
from lakeformat.catalog.partition_values import extract_values
from lakeformat.catalog.types import hive_type, spark_schema_json
from lakeformat.config.catalog_options import CatalogOptions
from lakeformat.errors import InvalidInputError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.extractors import choose_extractor
from lakeformat.model.record import META_COLUMNS
from lakeformat.model.table_config import DATABASE, TableConfig

__all__ = [
    "LAST_COMMIT",
    "LAST_COMPLETION",
    "Change",
    "PartitionChanges",
    "Partitioning",
    "TableChange",
    "TableFacts",
    "find_location",
    "is_same_place",
    "make_entries",
    "plan_partitions",
    "plan_table",
    "touched_partitions",
    "with_progress",
]

LAST_COMMIT: Final = "last_commit_time_sync"
LAST_COMPLETION: Final = "last_commit_completion_time_sync"
_WRITER: Final = "hudi_writer_version"
_LISTING: Final = "hudi.metadata-listing-enabled"
_REPLACING: Final = frozenset({"DELETE_PARTITION", "INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE"})
_HUDI_FORMATS: Final = (
    "org.apache.hudi.hadoop.HoodieParquetInputFormat",
    "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat",
)
_OLD_FORMATS: Final = (
    "com.uber.hoodie.hadoop.HoodieInputFormat",
    "com.uber.hoodie.hadoop.realtime.HoodieRealtimeInputFormat",
)
_OUTPUT_FORMAT: Final = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
_SERDE: Final = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What is registered of a table.

    Attributes:
        location: the table's path or URL.
        schema: the columns without the meta columns.
        spark_version: the version of Spark for the property ``spark.sql.create.version``; "" for none.
    """

    config: TableConfig
    location: str
    schema: pa.Schema
    spark_version: str


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The partition fields of a table in the catalog, and how values are read from partition paths."""

    fields: tuple[str, ...]
    extractor: str
    location: str

    @classmethod
    def of(cls, config: TableConfig, options: CatalogOptions, location: str) -> Partitioning:
        """Return the partitioning of a table. What the options leave open follows from the table's settings."""
        own = config.partition_fields
        fields = own if options.partition_fields is None else options.partition_fields
        chosen = choose_extractor(len(own), hive_style=config.hive_style, slash_dates=config.slash_dates)
        return cls(fields, options.extractor or chosen, location)

    def partition(self, path: str) -> CatalogPartition | None:
        """Return the entry of a partition path; None if the extractor finds no values in it.

        Raises:
            InvalidInputError: the path does not fit the extractor or the partition fields.
        """
        values = extract_values(self.extractor, path, self.fields)
        return CatalogPartition(values, f"{self.location}/{path}" if path else self.location) if values else None


class Change(str, Enum):
    """What is done to a table in the catalog."""

    NONE = "unchanged"
    CREATE = "created"
    ALTER = "altered"
    RECREATE = "created again"


def make_entries(facts: TableFacts, options: CatalogOptions, catalog: str) -> tuple[CatalogEntry, ...]:
    """Return the entries of a table: one for copy-on-write; for merge-on-read those of the strategy.

    Args:
        catalog: ``hive`` or ``glue``.
    """
    name = options.table or facts.config.name
    if not facts.config.takes_logs:
        return (_make_entry(facts, options, catalog, name, is_realtime=False, is_optimized=False),)
    if options.strategy != "ALL":
        is_optimized = options.strategy == "RO"
        return (_make_entry(facts, options, catalog, name, is_realtime=not is_optimized, is_optimized=is_optimized),)
    optimized = name if options.skips_ro_suffix else f"{name}_ro"
    names = {optimized: True, f"{name}_rt": False}
    if options.names_snapshot:
        names.setdefault(name, False)  # Without a suffix the read-optimized table has the name.
    return tuple(
        _make_entry(facts, options, catalog, name, is_realtime=not is_optimized, is_optimized=is_optimized)
        for name, is_optimized in names.items()
    )


def _make_entry(
    facts: TableFacts, options: CatalogOptions, catalog: str, name: str, *, is_realtime: bool, is_optimized: bool
) -> CatalogEntry:
    location = find_location(facts.location, options, catalog)
    fields = Partitioning.of(facts.config, options, location).fields
    schema = facts.schema if options.omits_meta_columns else _with_meta_columns(facts.schema)
    types = {field.name: hive_type(field.type, has_timestamps=options.has_timestamps) for field in schema}
    properties = dict(options.table_properties)
    serde_properties = dict(options.serde_properties)
    if catalog == "glue":
        properties[_LISTING] = str(options.glue.lists_metadata).upper()
    if options.for_spark:
        properties.update(_spark_properties(schema, fields, facts.spark_version, options.schema_length))
        base = options.location or facts.location
        serde_properties.update({"path": base, "hoodie.query.as.ro.table": str(is_optimized).lower()})
    if not options.is_managed:
        properties["EXTERNAL"] = "TRUE"
    formats = _OLD_FORMATS if options.uses_old_formats else _HUDI_FORMATS
    return CatalogEntry(
        database=options.database or facts.config.get(DATABASE) or "default",
        name=name,
        columns=tuple(CatalogColumn(name, type_) for name, type_ in types.items() if name not in fields),
        partition_keys=tuple(CatalogColumn(name, types.get(name, "string")) for name in fields),
        location=location,
        input_format=formats[is_realtime],
        output_format=_OUTPUT_FORMAT,
        serde=_SERDE,
        serde_properties={**serde_properties, "serialization.format": "1"},
        properties=properties,
        is_managed=options.is_managed,
    )


def find_location(location: str, options: CatalogOptions, catalog: str) -> str:
    """Return the location that is registered. Glue calls S3 ``s3://``, not ``s3a://``."""
    place = options.location or location
    return f"s3://{place[6:]}" if catalog == "glue" and place.startswith("s3a://") else place


def _with_meta_columns(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *schema])


def _spark_properties(schema: pa.Schema, partition_fields: Sequence[str], version: str, length: int) -> dict[str, str]:
    """Return the properties by which Spark knows the table's columns (``SparkDataSourceTableUtils``)."""
    fields = {field.name: field for field in schema}
    columns = [field for field in schema if field.name not in partition_fields]
    columns += [fields.get(name) or pa.field(name, pa.string(), nullable=False) for name in partition_fields]
    text = spark_schema_json(columns)
    parts = [text[start : start + length] for start in range(0, len(text), length)]
    return {
        "spark.sql.sources.provider": "hudi",
        **({"spark.sql.create.version": version} if version else {}),
        "spark.sql.sources.schema.numParts": str(len(parts)),
        **{f"spark.sql.sources.schema.part.{number}": part for number, part in enumerate(parts)},
        **({"spark.sql.sources.schema.numPartCols": str(len(partition_fields))} if partition_fields else {}),
        **{f"spark.sql.sources.schema.partCol.{number}": name for number, name in enumerate(partition_fields)},
    }


@dataclass(frozen=True, slots=True)
class TableChange:
    """The change of one table in the catalog.

    Attributes:
        entry: the table as it should be. Properties of the catalog that are not in it are kept.
        columns: names of the columns that are added, dropped or get another type.
        retyped: whether a column gets another type.
    """

    change: Change
    entry: CatalogEntry
    columns: tuple[str, ...] = ()
    retyped: bool = False


def plan_table(wanted: CatalogEntry, found: CatalogEntry | None, *, recreates: bool) -> TableChange:
    """Plan the change of a table in the catalog.

    Args:
        found: the table in the catalog; None if there is none.
        recreates: whether the table may be created again if it cannot be altered.

    Raises:
        InvalidInputError: the catalog has a table of that name that is not this one, or has other partition keys.
    """
    if found is None:
        return TableChange(Change.CREATE, wanted, tuple(column.name for column in wanted.columns))
    if not is_same_place(found.location, wanted.location):
        if not (recreates or _is_of_hudi(found)):
            raise InvalidInputError(
                f"table {wanted.full_name} in the catalog is another one, at {found.location or 'no location'}, and is "
                "not of Hudi; register this one by another name"
            )
        return TableChange(Change.RECREATE, wanted)
    keys, found_keys = (tuple(key.name.lower() for key in entry.partition_keys) for entry in (wanted, found))
    if keys != found_keys:
        if recreates:
            return TableChange(Change.RECREATE, wanted)
        raise InvalidInputError(
            f"table {wanted.full_name} has the partition keys {', '.join(found_keys) or '(none)'} in the catalog, not "
            f"{', '.join(keys) or '(none)'}; drop it there, or set "
            "hoodie.datasource.hive_sync.recreate_table_on_error=true"
        )
    before, after = ({column.name.lower(): column.type for column in entry.columns} for entry in (found, wanted))
    retyped = [name for name in after if name in before and before[name] != after[name]]
    moved = [name for name in (*after, *before) if (name in after) != (name in before)]
    is_same = (
        not retyped
        and not moved
        and _contains(found.properties, wanted.properties)
        and _contains(found.serde_properties, wanted.serde_properties)
        and (found.input_format, found.output_format) == (wanted.input_format, wanted.output_format)
    )
    if is_same:
        return TableChange(Change.NONE, wanted)
    return TableChange(Change.ALTER, wanted, (*moved, *retyped), bool(retyped))


def _is_of_hudi(entry: CatalogEntry) -> bool:
    return entry.properties.get("spark.sql.sources.provider") == "hudi" or "hoodie" in entry.input_format.lower()


def _contains(whole: Mapping[str, str], part: Mapping[str, str]) -> bool:
    return all(whole.get(key) == value for key, value in part.items())


def is_same_place(one: str, other: str) -> bool:
    """Tell whether two locations are the same, whatever their schemes (``FSUtils.comparePathsWithoutScheme``)."""
    return _path_of(one) == _path_of(other)


def _path_of(location: str) -> str:
    """Return a location without its scheme: ``file:/t``, ``file:///t`` and ``/t`` are equal."""
    parts = urlsplit(location)
    path = location if len(parts.scheme) < 2 else f"{parts.netloc}{parts.path}"
    return posixpath.normpath(path)


def with_progress(
    entry: CatalogEntry, last_commit: str, last_completion: str, writer: str, *, has_path: bool
) -> CatalogEntry:
    """Return the entry with the properties that say which commit is registered, and by whom.

    Args:
        has_path: whether the serde gets the location even if the table is not for Spark, as in a Hive metastore.
    """
    progress = {LAST_COMMIT: last_commit, LAST_COMPLETION: last_completion}
    properties = {**entry.properties, **{key: value for key, value in progress.items() if value}, _WRITER: writer}
    path = {"path": entry.location} if has_path and last_commit else {}
    return replace(entry, properties=properties, serde_properties={**path, **entry.serde_properties})


@dataclass(frozen=True, slots=True)
class PartitionChanges:
    """Partitions that the catalog gets, that move or only have new files, and that it loses."""

    added: tuple[CatalogPartition, ...] = ()
    changed: tuple[CatalogPartition, ...] = ()
    touched: tuple[CatalogPartition, ...] = ()
    dropped: tuple[CatalogPartition, ...] = ()


def touched_partitions(commits: Iterable[CommitMetadata]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the partition paths that commits have written or replaced, and those that they have dropped.

    A partition is dropped if it was deleted or overwritten, and no file was written into it since
    (``TimelineUtils.getDroppedPartitions``).

    Args:
        commits: the commits, oldest first.
    """
    touched: dict[str, None] = {}
    dropped: set[str] = set()
    for commit in commits:
        touched |= dict.fromkeys((*commit.stats, *commit.replaced))
        if commit.operation in _REPLACING:
            dropped |= set(commit.replaced)
        dropped -= {path for path, stats in commit.stats.items() if stats}
    return tuple(touched), frozenset(dropped - {""})


def plan_partitions(
    paths: Iterable[str],
    dropped: Collection[str],
    found: Sequence[CatalogPartition],
    partitioning: Partitioning,
    *,
    is_complete: bool,
    touches: bool,
) -> PartitionChanges:
    """Plan the changes of a table's partitions in the catalog.

    Args:
        paths: the partition paths to look at.
        dropped: those of them that the table no longer has.
        found: the partitions in the catalog.
        is_complete: whether ``paths`` are all partitions of the table. Then the catalog loses all others.
        touches: whether partitions that only have new files are altered, too.
    """
    by_values = {partition.values: partition for partition in found}
    changes: dict[str, list[CatalogPartition]] = {"added": [], "changed": [], "touched": [], "dropped": []}
    seen = set()
    for path in sorted(paths):
        partition = partitioning.partition(path)
        if partition is None:
            continue
        seen.add(partition.values)
        present = by_values.get(partition.values)
        if path in dropped:
            kind = "dropped" if present else ""
        elif present is None:
            kind = "added"
        elif not is_same_place(present.location, partition.location):
            kind = "changed"
        else:
            kind = "touched" if touches and not is_complete else ""
        if kind:
            changes[kind].append(partition)
    if is_complete:
        changes["dropped"] += [partition for values, partition in by_values.items() if values not in seen]
    return PartitionChanges(**{kind: tuple(partitions) for kind, partitions in changes.items()})

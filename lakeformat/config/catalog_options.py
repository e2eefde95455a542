"""Options that register a table in AWS Glue or a Hive metastore (Hudi: ``HoodieSyncConfig``, ``HiveSyncConfig``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from lakeformat.config.option import Effect, Option, make_choice_parser, parse_flag, parse_names, parse_positive
from lakeformat.config.problems import Problem
from lakeformat.errors import InvalidOptionError

__all__ = [
    "CATALOG_OPTIONS",
    "CATALOG_SWITCH",
    "EXTRACTORS",
    "FAILS",
    "METASTORE_URIS",
    "CatalogOptions",
    "GlueOptions",
    "fails_on_error",
    "find_catalog_errors",
    "parse_uris",
    "wanted_catalogs",
]

_HIVE: Final = "hoodie.datasource.hive_sync."
_META: Final = "hoodie.meta.sync."
_GLUE: Final = "hoodie.datasource.meta.sync.glue."
_AWS: Final = "hoodie.aws."
_TOOLS: Final = _META + "client.tool.class"
_MODE: Final = _HIVE + "mode"
METASTORE_URIS: Final = _HIVE + "metastore.uris"
_EXTRACTOR: Final = _HIVE + "partition_extractor_class"
_IGNORES: Final = _HIVE + "ignore_exceptions"
#: The option that lets each write register the table.
CATALOG_SWITCH: Final = _HIVE + "enable"
FAILS: Final = "lakeformat.catalog.fail_on_error"

#: Maps the name of each sync class of Hudi, without its package, to the catalog.
_CATALOGS: Final[Mapping[str, str]] = {
    "HiveSyncTool": "hive",
    "AwsGlueCatalogSyncTool": "glue",
    "AWSGlueCatalogSyncTool": "glue",
}
#: Names of Hudi's classes that read the partition values of a partition path.
EXTRACTORS: Final = (
    "MultiPartKeysValueExtractor",
    "HiveStylePartitionValueExtractor",
    "SinglePartPartitionValueExtractor",
    "SlashEncodedDayPartitionValueExtractor",
    "SlashEncodedHourPartitionValueExtractor",
    "NonPartitionedExtractor",
)
_STRATEGIES: Final = ("ALL", "RO", "RT")


def _parse_pairs(text: str) -> dict[str, str]:
    """Parse lines of the form ``key = value`` (Hudi: ``ConfigUtils.toMap``)."""
    pairs: dict[str, str] = {}
    for line in filter(str.strip, text.split("\n")):
        key, *values = line.split("=")
        if len(values) > 1 or not key.strip():
            raise ValueError(f"write key=value, one pair a line; {line.strip()!r} is none")
        pairs[key.strip()] = values[0].strip() if values else ""
    return pairs


def _text(key: str, help_text: str, default: str | None = None, *aliases: str) -> Option:
    return Option(key, help_text, Effect.WRITE, default=default, aliases=aliases)


def _flag(key: str, help_text: str, default: bool = False, *aliases: str) -> Option:
    return Option(key, help_text, Effect.WRITE, parse_flag, default, aliases)


CATALOG_OPTIONS: Final[tuple[Option, ...]] = (
    _flag(CATALOG_SWITCH, "Register the table in a catalog after each write; see the page Catalogs."),
    _flag("hoodie.datasource.meta.sync.enable", "The same as hoodie.datasource.hive_sync.enable.", False,
          "hoodie.datasource.meta_sync.enable"),
    _text(_TOOLS, "The catalogs, by Hudi's classes: HiveSyncTool, AwsGlueCatalogSyncTool, or both with a comma.",
          "org.apache.hudi.hive.HiveSyncTool", "hoodie.datasource.meta.sync.client.tool.class"),
    _text(_MODE, "hms: the Hive metastore itself is called. glue: the catalog is AWS Glue. jdbc and hiveql need "
          "HiveServer2 and are refused."),
    _text(METASTORE_URIS, "Address of the Hive metastore, such as thrift://host:9083; several with commas, tried in "
          "order. By default hive.metastore.uris of the Spark session or of hive-site.xml.", None,
          "hive.metastore.uris", "spark.hadoop.hive.metastore.uris", "spark.hive.metastore.uris"),
    _flag(FAILS, "A write whose registration fails raises CatalogError, although its commit is visible. By default "
          "a warning is logged."),
    _flag(_IGNORES, "false, if it is given, means lakeformat.catalog.fail_on_error=true.", True),
    _text(_HIVE + "database", "Database of the table; by default hoodie.database.name, else default.", None,
          _GLUE + "database_name"),
    _text(_HIVE + "table", "Name of the table in the catalog; by default hoodie.table.name.", None,
          _GLUE + "table_name"),
    _flag(_HIVE + "auto_create_database", "Create the database if it does not exist.", True),
    Option(_HIVE + "partition_fields", "Partition columns in the catalog; by default those of the table.",
           Effect.WRITE, parse_names),
    _text(_EXTRACTOR, "Class of Hudi that reads partition values from paths: " + ", ".join(EXTRACTORS) +
          ". By default the one that fits the table's partitions."),
    Option(_HIVE + "table.strategy", "Tables of a merge-on-read table: RO, RT or ALL (name_ro, name_rt and name).",
           Effect.WRITE, make_choice_parser(*_STRATEGIES), "ALL"),
    _flag(_HIVE + "skip_ro_suffix", "Name the read-optimized table without _ro."),
    _flag(_META + "sync_snapshot_with_table_name", "With ALL, register name as well as name_rt.", True),
    _flag(_HIVE + "support_timestamp", "Timestamps have the type timestamp in the catalog, else bigint."),
    _flag(_HIVE + "sync_as_datasource", "Add the properties by which Spark reads the table as Hudi.", True),
    Option(_HIVE + "schema_string_length_thresh", "Greatest length of one property with Spark's schema.",
           Effect.WRITE, parse_positive, 4000),
    Option(_HIVE + "table_properties", "More table properties: key=value, one a line.", Effect.WRITE, _parse_pairs),
    Option(_HIVE + "serde_properties", "More serde properties: key=value, one a line.", Effect.WRITE, _parse_pairs),
    _flag(_HIVE + "create_managed_table", "Create a managed table. Dropping it in the catalog deletes its files."),
    _flag(_HIVE + "omit_metadata_fields", "Leave out the five meta columns."),
    _flag(_HIVE + "use_pre_apache_input_format", "Use the input formats of com.uber.hoodie."),
    _flag(_HIVE + "recreate_table_on_error", "Drop and create the table in the catalog if it cannot be changed.",
          False, _GLUE + "recreate_table_on_error"),
    Option(_HIVE + "batch_num", "Partitions in one request to the Hive metastore.", Effect.WRITE, parse_positive, 1000),
    _flag(_META + "incremental", "Look only at the partitions of commits since the last registration.", True),
    _flag("hoodie.datasource.meta_sync.condition.sync", "Leave last_commit_time_sync if nothing else changes."),
    _flag(_META + "no_partition_metadata", "Register no partitions; queries list them from the metadata table."),
    _flag(_META + "touch.partitions.enabled", "Alter also partitions that only got new files."),
    _text("hoodie.meta_sync.spark.version", "Property spark.sql.create.version; by default the installed PySpark's."),
    _text("hoodie.datasource.meta.sync.base.path", "Location in the catalog; by default the path of the table."),
    _text(_GLUE + "catalogid", "Account of the Glue catalog; by default that of the credentials."),
    _flag(_GLUE + "skip_table_archive", "Glue keeps no older version of the table.", True),
    _flag(_GLUE + "metadata_file_listing", "Athena lists files from the metadata table."),
    _text(_AWS + "glue.endpoint", "Address of Glue, if it is not the region's."),
    _text(_AWS + "glue.region", "Region of Glue; by default that of the environment.", None, "hoodie.aws.region"),
    _text(_AWS + "access.key", "Access key for Glue; by default the credentials of the environment."),
    _text(_AWS + "secret.key", "Secret key for Glue."),
    _text(_AWS + "session.token", "Session token for Glue."),
    _text(_AWS + "role.arn", "Role to assume for Glue."),
    _text(_AWS + "role.session.name", "Session name of that role.", "hoodie"),
    _text(_AWS + "role.external.id", "External id of that role."),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GlueOptions:
    """Where AWS Glue is, and who calls it. The keys never appear in a ``repr``.

    Attributes:
        catalog_id: account of the catalog; None for that of the credentials.
        skips_archive: whether Glue keeps no older version of a changed table.
        lists_metadata: whether Athena lists files from the metadata table.
    """

    catalog_id: str | None
    skips_archive: bool
    lists_metadata: bool
    endpoint: str | None
    region: str | None
    access_key: str | None = field(repr=False)
    secret_key: str | None = field(repr=False)
    session_token: str | None = field(repr=False)
    role_arn: str | None
    role_session: str
    role_external_id: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogOptions:
    """How a table is registered in catalogs.

    Attributes:
        catalogs: ``hive``, ``glue`` or both: where each write registers the table; empty if it does not.
        uris: host and port of each Hive metastore, tried in order; empty if the options name none.
        fails: whether a failed registration raises an error.
        database, table: the names in the catalog; "" for those of the table.
        partition_fields: the partition columns; None for those of the table.
        extractor: name of Hudi's class for partition values, without its package; "" for the one that fits.
        strategy: which tables a merge-on-read table gets: ``ALL``, ``RO`` or ``RT``.
        location: the registered location; "" for the table's path.
        spark_version: version of Spark in the table properties; "" for the installed one.
    """

    catalogs: tuple[str, ...]
    uris: tuple[tuple[str, int], ...]
    fails: bool
    database: str
    table: str
    creates_database: bool
    partition_fields: tuple[str, ...] | None
    extractor: str
    strategy: str
    skips_ro_suffix: bool
    names_snapshot: bool
    has_timestamps: bool
    for_spark: bool
    schema_length: int
    table_properties: Mapping[str, str]
    serde_properties: Mapping[str, str]
    is_managed: bool
    omits_meta_columns: bool
    uses_old_formats: bool
    recreates: bool
    batch: int
    is_incremental: bool
    is_conditional: bool
    skips_partitions: bool
    touches_partitions: bool
    spark_version: str
    location: str
    glue: GlueOptions

    @classmethod
    def of(cls, get: Callable[[str], Any], is_set: Callable[[str], bool], catalog: str = "") -> CatalogOptions:
        """Make the typed form of the options.

        Args:
            get: returns the value of an option.
            is_set: tells whether the user gave an option.
            catalog: ``hive`` or ``glue`` instead of the catalogs that the options name; "" for those.

        Raises:
            InvalidOptionError: the options contradict each other, or one is missing.
        """
        wanted = (catalog,) if catalog else wanted_catalogs(get)
        if errors := list(_errors_of(get, is_set, wanted)):
            raise InvalidOptionError("; ".join(error.text for error in errors))
        given = get(_HIVE + "partition_fields")
        return cls(
            catalogs=wanted,
            uris=tuple(parse_uris(get(METASTORE_URIS) or "")) if "hive" in wanted else (),
            fails=fails_on_error(get, is_set),
            database=get(_HIVE + "database") or "",
            table=get(_HIVE + "table") or "",
            creates_database=get(_HIVE + "auto_create_database"),
            partition_fields=None if given is None else tuple(given),
            extractor=(get(_EXTRACTOR) or "").rpartition(".")[2],
            strategy=get(_HIVE + "table.strategy"),
            skips_ro_suffix=get(_HIVE + "skip_ro_suffix"),
            names_snapshot=get(_META + "sync_snapshot_with_table_name"),
            has_timestamps=get(_HIVE + "support_timestamp"),
            for_spark=get(_HIVE + "sync_as_datasource"),
            schema_length=get(_HIVE + "schema_string_length_thresh"),
            table_properties=get(_HIVE + "table_properties") or {},
            serde_properties=get(_HIVE + "serde_properties") or {},
            is_managed=get(_HIVE + "create_managed_table"),
            omits_meta_columns=get(_HIVE + "omit_metadata_fields"),
            uses_old_formats=get(_HIVE + "use_pre_apache_input_format"),
            recreates=get(_HIVE + "recreate_table_on_error"),
            batch=get(_HIVE + "batch_num"),
            is_incremental=get(_META + "incremental"),
            is_conditional=get("hoodie.datasource.meta_sync.condition.sync"),
            skips_partitions=get(_META + "no_partition_metadata"),
            touches_partitions=get(_META + "touch.partitions.enabled"),
            spark_version=get("hoodie.meta_sync.spark.version") or "",
            location=get("hoodie.datasource.meta.sync.base.path") or "",
            glue=_glue_options(get),
        )


def _glue_options(get: Callable[[str], Any]) -> GlueOptions:
    return GlueOptions(
        catalog_id=get(_GLUE + "catalogid") or None,
        skips_archive=get(_GLUE + "skip_table_archive"),
        lists_metadata=get(_GLUE + "metadata_file_listing"),
        endpoint=get(_AWS + "glue.endpoint") or None,
        region=get(_AWS + "glue.region") or None,
        access_key=get(_AWS + "access.key") or None,
        secret_key=get(_AWS + "secret.key") or None,
        session_token=get(_AWS + "session.token") or None,
        role_arn=get(_AWS + "role.arn") or None,
        role_session=get(_AWS + "role.session.name"),
        role_external_id=get(_AWS + "role.external.id") or None,
    )


def _is_on(get: Callable[[str], Any]) -> bool:
    return bool(get(CATALOG_SWITCH) or get("hoodie.datasource.meta.sync.enable"))


def wanted_catalogs(get: Callable[[str], Any]) -> tuple[str, ...]:
    """Return the catalogs that the options name, each once; empty if registration is off."""
    if not _is_on(get):
        return ()
    if (get(_MODE) or "").lower() == "glue":
        return ("glue",)
    names = (name.rpartition(".")[2] for name in parse_names(get(_TOOLS)))
    return tuple(dict.fromkeys(_CATALOGS[name] for name in names if name in _CATALOGS))


def fails_on_error(get: Callable[[str], Any], is_set: Callable[[str], bool]) -> bool:
    """Tell whether a write whose registration fails raises an error."""
    return bool(get(FAILS)) or (is_set(_IGNORES) and not get(_IGNORES))


def find_catalog_errors(get: Callable[[str], Any], is_set: Callable[[str], bool]) -> Iterator[Problem]:
    """Find options that prevent the registration after a write; nothing if it is off."""
    if _is_on(get):
        yield from _errors_of(get, is_set, wanted_catalogs(get), checks_tools=True)


def _errors_of(
    get: Callable[[str], Any], is_set: Callable[[str], bool], wanted: tuple[str, ...], *, checks_tools: bool = False
) -> Iterator[Problem]:
    if not wanted and not checks_tools:
        return
    unknown = [name for name in parse_names(get(_TOOLS)) if name.rpartition(".")[2] not in _CATALOGS]
    if checks_tools and (unknown or not wanted):
        text = (
            f"option {_TOOLS}={get(_TOOLS)} names {', '.join(unknown) or 'no class'}, which is not built; write "
            "HiveSyncTool, AwsGlueCatalogSyncTool or both"
        )
        yield Problem(_TOOLS, text)
    if "hive" in wanted:
        yield from _hive_errors((get(_MODE) or "").lower(), get(METASTORE_URIS) or "")
    extractor = (get(_EXTRACTOR) or "").rpartition(".")[2]
    if extractor and extractor not in EXTRACTORS:
        text = f"option {_EXTRACTOR}={get(_EXTRACTOR)} cannot run here; write one of {', '.join(EXTRACTORS)}"
        yield Problem(_EXTRACTOR, text)
    if get(FAILS) and is_set(_IGNORES) and get(_IGNORES):
        text = f"options {FAILS}=true and {_IGNORES}=true contradict each other; give one of them"
        yield Problem(FAILS, text)
    if bool(get(_AWS + "access.key")) != bool(get(_AWS + "secret.key")):
        given = "access.key" if get(_AWS + "access.key") else "secret.key"
        text = f"options {_AWS}access.key and {_AWS}secret.key belong together; give both or none"
        yield Problem(_AWS + given, text)


def _hive_errors(mode: str, text: str) -> Iterator[Problem]:
    if mode not in {"", "hms", "glue"}:
        why = "needs HiveServer2, which is never called" if mode in {"jdbc", "hiveql"} else "is not known"
        cure = f"set it to hms, and {METASTORE_URIS} to the address of the metastore"
        yield Problem(_MODE, f"option {_MODE}={mode} {why}; {cure}")
        return
    try:
        list(parse_uris(text))
    except ValueError:
        problem = f"option {METASTORE_URIS}={text!r} is not of the form thrift://host:9083; correct it"
        yield Problem(METASTORE_URIS, problem)


def parse_uris(text: str) -> Iterator[tuple[str, int]]:
    """Yield host and port of each address of a Hive metastore.

    Raises:
        ValueError: an address is not of the form ``thrift://host:port``.
    """
    for uri in parse_names(text):
        parts = urlsplit(uri)
        if parts.scheme != "thrift" or not parts.hostname:
            raise ValueError(uri)
        yield parts.hostname, parts.port or 9083

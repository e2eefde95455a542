"""Options that register a table in AWS Glue or a Hive metastore (Hudi: ``HoodieSyncConfig``, ``HiveSyncConfig``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from lakeformat.config.option import (
    Effect,
    Option,
    declare,
    make_choice_parser,
    options_of,
    parse_flag,
    parse_names,
    parse_positive,
    values_of,
)
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


_entry: Final = partial(Option, Effect.WRITE)


def _text(key: str, doc: str, default: str | None = None, *aliases: str, **form: Any) -> Any:
    return declare(
        Effect.WRITE, key, doc, str.strip, default, aliases, **{"convert": lambda text: text or None, **form}
    )


def _flag(key: str, doc: str, default: bool = False, *aliases: str) -> Any:
    return declare(Effect.WRITE, key, doc, parse_flag, default, aliases)


def _or_empty(text: str | None) -> str:
    return text or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlueOptions:
    """Where AWS Glue is, and who calls it. The keys never appear in a ``repr``."""

    # fmt: off
    catalog_id: str | None = _text(
        _GLUE + "catalogid", "Account of the Glue catalog; by default that of the credentials.")
    skips_archive: bool = _flag(_GLUE + "skip_table_archive", "Glue keeps no older version of the table.", True)
    lists_metadata: bool = _flag(_GLUE + "metadata_file_listing", "Athena lists files from the metadata table.")
    endpoint: str | None = _text(_AWS + "glue.endpoint", "Address of Glue, if it is not the region's.")
    region: str | None = _text(
        _AWS + "glue.region", "Region of Glue; by default that of the environment.", None, "hoodie.aws.region")
    access_key: str | None = _text(
        _AWS + "access.key", "Access key for Glue; by default the credentials of the environment.", is_secret=True)
    secret_key: str | None = _text(_AWS + "secret.key", "Secret key for Glue.", is_secret=True)
    session_token: str | None = _text(_AWS + "session.token", "Session token for Glue.", is_secret=True)
    role_arn: str | None = _text(_AWS + "role.arn", "Role to assume for Glue.")
    role_session: str = _text(_AWS + "role.session.name", "Session name of that role.", "hoodie", convert=str)
    role_external_id: str | None = _text(_AWS + "role.external.id", "External id of that role.", is_secret=True)
    # fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogOptions:
    """How a table is registered in catalogs.

    Attributes:
        catalogs: ``hive``, ``glue`` or both: where each write registers the table; empty if it does not.
        uris: host and port of each Hive metastore, tried in order; empty if the options name none.
        fails: whether a failed registration raises an error.
    """

    catalogs: tuple[str, ...]
    uris: tuple[tuple[str, int], ...]
    fails: bool
    glue: GlueOptions
    # fmt: off
    database: str = _text(
        _HIVE + "database", "Database of the table; by default hoodie.database.name, else default.", None,
        _GLUE + "database_name", convert=_or_empty)
    table: str = _text(
        _HIVE + "table", "Name of the table in the catalog; by default hoodie.table.name.", None,
        _GLUE + "table_name", convert=_or_empty)
    creates_database: bool = _flag(_HIVE + "auto_create_database", "Create the database if it does not exist.", True)
    partition_fields: tuple[str, ...] | None = declare(
        Effect.WRITE, _HIVE + "partition_fields", "Partition columns in the catalog; by default those of the table.",
        parse_names, convert=lambda names: None if names is None else tuple(names))
    extractor: str = _text(
        _EXTRACTOR, "Class of Hudi that reads partition values from paths: " + ", ".join(EXTRACTORS) +
        ". By default the one that fits the table's partitions.",
        convert=lambda name: (name or "").rpartition(".")[2])
    strategy: str = declare(
        Effect.WRITE, _HIVE + "table.strategy",
        "Tables of a merge-on-read table: RO, RT or ALL (name_ro, name_rt and name).",
        make_choice_parser(*_STRATEGIES), "ALL")
    skips_ro_suffix: bool = _flag(_HIVE + "skip_ro_suffix", "Name the read-optimized table without _ro.")
    names_snapshot: bool = _flag(
        _META + "sync_snapshot_with_table_name", "With ALL, register name as well as name_rt.", True)
    has_timestamps: bool = _flag(
        _HIVE + "support_timestamp", "Timestamps have the type timestamp in the catalog, else bigint.")
    for_spark: bool = _flag(
        _HIVE + "sync_as_datasource", "Add the properties by which Spark reads the table as Hudi.", True)
    schema_length: int = declare(
        Effect.WRITE, _HIVE + "schema_string_length_thresh", "Greatest length of one property with Spark's schema.",
        parse_positive, 4000)
    table_properties: Mapping[str, str] = declare(
        Effect.WRITE, _HIVE + "table_properties", "More table properties: key=value, one a line.", _parse_pairs,
        convert=lambda pairs: pairs or {})
    serde_properties: Mapping[str, str] = declare(
        Effect.WRITE, _HIVE + "serde_properties", "More serde properties: key=value, one a line.", _parse_pairs,
        convert=lambda pairs: pairs or {})
    is_managed: bool = _flag(
        _HIVE + "create_managed_table", "Create a managed table. Dropping it in the catalog deletes its files.")
    omits_meta_columns: bool = _flag(_HIVE + "omit_metadata_fields", "Leave out the five meta columns.")
    uses_old_formats: bool = _flag(_HIVE + "use_pre_apache_input_format", "Use the input formats of com.uber.hoodie.")
    recreates: bool = _flag(
        _HIVE + "recreate_table_on_error", "Drop and create the table in the catalog if it cannot be changed.",
        False, _GLUE + "recreate_table_on_error")
    batch: int = declare(
        Effect.WRITE, _HIVE + "batch_num", "Partitions in one request to the Hive metastore.", parse_positive, 1000)
    is_incremental: bool = _flag(
        _META + "incremental", "Look only at the partitions of commits since the last registration.", True)
    is_conditional: bool = _flag(
        "hoodie.datasource.meta_sync.condition.sync", "Leave last_commit_time_sync if nothing else changes.")
    skips_partitions: bool = _flag(
        _META + "no_partition_metadata", "Register no partitions; queries list them from the metadata table.")
    touches_partitions: bool = _flag(
        _META + "touch.partitions.enabled", "Alter also partitions that only got new files.")
    spark_version: str = _text(
        "hoodie.meta_sync.spark.version", "Property spark.sql.create.version; by default the installed PySpark's.",
        convert=_or_empty)
    location: str = _text(
        "hoodie.datasource.meta.sync.base.path", "Location in the catalog; by default the path of the table.",
        convert=_or_empty)
    # fmt: on

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
        catalogs = (catalog,) if catalog else wanted_catalogs(get)
        if errors := list(_errors_of(get, is_set, catalogs)):
            raise InvalidOptionError("; ".join(error.text for error in errors))
        return cls(
            catalogs=catalogs,
            uris=tuple(parse_uris(get(METASTORE_URIS) or "")) if "hive" in catalogs else (),
            fails=fails_on_error(get, is_set),
            glue=GlueOptions(**values_of(GlueOptions, get)),
            **values_of(cls, get),
        )


CATALOG_OPTIONS: Final = (
    _entry(CATALOG_SWITCH, "Register the table in a catalog after each write; see the page Catalogs.",
           parse_flag, False),
    _entry("hoodie.datasource.meta.sync.enable", "The same as hoodie.datasource.hive_sync.enable.",
           parse_flag, False, ("hoodie.datasource.meta_sync.enable",)),
    _entry(_TOOLS, "The catalogs, by Hudi's classes: HiveSyncTool, AwsGlueCatalogSyncTool, or both with a comma.",
           str.strip, "org.apache.hudi.hive.HiveSyncTool",
           ("hoodie.datasource.meta.sync.client.tool.class",)),
    _entry(_MODE, "hms: the Hive metastore itself is called. glue: the catalog is AWS Glue. jdbc and hiveql need "
           "HiveServer2 and are refused."),
    _entry(METASTORE_URIS, "Address of the Hive metastore, such as thrift://host:9083; several with commas, tried in "
           "order. By default hive.metastore.uris of the Spark session or of hive-site.xml.",
           str.strip, None,
           ("hive.metastore.uris", "spark.hadoop.hive.metastore.uris", "spark.hive.metastore.uris")),
    _entry(FAILS, "A write whose registration fails raises CatalogError, although its commit is visible. By default "
           "a warning is logged.",
           parse_flag, False),
    _entry(_IGNORES, "false, if it is given, means lakeformat.catalog.fail_on_error=true.",
           parse_flag, True),
    *options_of(CatalogOptions),
    *options_of(GlueOptions),
)  # fmt: skip


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
    get: Callable[[str], Any], is_set: Callable[[str], bool], catalogs: tuple[str, ...], *, checks_tools: bool = False
) -> Iterator[Problem]:
    if not catalogs and not checks_tools:
        return
    unknown = [name for name in parse_names(get(_TOOLS)) if name.rpartition(".")[2] not in _CATALOGS]
    if checks_tools and (unknown or not catalogs):
        text = (
            f"option {_TOOLS}={get(_TOOLS)} names {', '.join(unknown) or 'no class'}, which is not built; write "
            "HiveSyncTool, AwsGlueCatalogSyncTool or both"
        )
        yield Problem(_TOOLS, text)
    if "hive" in catalogs:
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

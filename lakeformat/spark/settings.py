"""Settings of Spark's session that change what a built-in source writes or reads, and what lakeformat does with each.

The table below decides for each setting: lakeformat obeys it, warns that it has no effect, or refuses it. Only settings
with a value that someone gave are asked for, in one call. `settings_page` returns the page of the documentation.
"""

from __future__ import annotations

import enum
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from lakeformat.errors import InvalidOptionError
from lakeformat.spark.jobs import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "OVERWRITE_MODE",
    "SETTINGS",
    "Answer",
    "Setting",
    "Use",
    "check_settings",
    "find_obstacle",
    "find_setting",
    "given_settings",
    "is_dynamic",
    "settings_page",
]

_LOG: Final = logging.getLogger("lakeformat.spark")
OVERWRITE_MODE: Final = "spark.sql.sources.partitionOverwriteMode"
#: With this setting Spark's own scan shifts INT96 of files of other writers to the session's zone.
_CONVERSION: Final = "spark.sql.parquet.int96TimestampConversion"


class Answer(enum.Enum):
    """What lakeformat does with a setting."""

    OBEYED = "obeyed"
    SAME = "no effect"
    WARNED = "no effect, with a warning"
    REFUSED = "refused"


class Use(enum.Enum):
    """What a session does with a table."""

    READ = "read"
    WRITE = "write"
    SQL = "SQL"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, or a family of settings.

    Attributes:
        name: its name, with ``*`` for a family.
        answer: what lakeformat does with it.
        text: the reason, and what to do instead.
        uses: in which use of a table a warning or an error comes.
        plain: values, in lower case, which mean the same as what lakeformat does: they bring no warning and no error.
    """

    name: str
    answer: Answer
    text: str
    uses: frozenset[Use] = field(default=frozenset())
    plain: frozenset[str] = field(default=frozenset({"false"}))


def _family(answer: Answer, text: str, names: str) -> tuple[Setting, ...]:
    return tuple(Setting(f"spark.sql.{name}", answer, text) for name in names.split())


def _warned(name: str, use: Use, plain: str, text: str, answer: Answer = Answer.WARNED) -> Setting:
    return Setting(f"spark.sql.{name}", answer, text, frozenset({use}), frozenset(plain.split()))


_CALENDAR: Final = "dates and times are stored and read in the proleptic Gregorian calendar (CORRECTED)"
_RECOVERY: Final = "files must be whole: a missing or damaged file is an error; lakeformat.doctor names and mends it"
#: The first setting or family that fits a name decides.
SETTINGS: Final[tuple[Setting, ...]] = (
    Setting(
        OVERWRITE_MODE,
        Answer.OBEYED,
        "dynamic: mode overwrite replaces only the partitions of the rows. The option of the same name, or "
        "hoodie.datasource.overwrite.mode, or an operation comes first. Without register(spark) the save is refused "
        "by name. insert overwrite of lakeformat.spark.sql always replaces the partitions of its rows",
    ),
    *_family(
        Answer.OBEYED,
        'a save or load without format(...) is one of this format if it is "lakehouse"',
        "sources.default",
    ),
    *_family(Answer.OBEYED, "the zone of texts in conditions", "session.timeZone"),
    *_family(Answer.OBEYED, "Spark's casts and functions, and casts of lakeformat.spark.sql", "ansi.enabled"),
    *_family(
        Answer.OBEYED,
        "Spark evaluates it before rows reach lakeformat, or after lakeformat has read them",
        "caseSensitive mapKeyDedupPolicy timestampType legacy.timeParserPolicy",
    ),
    *_family(
        Answer.OBEYED,
        "size of the tasks of Spark's own scan; other reads have lakeformat.read.split.bytes",
        "files.maxPartitionBytes files.openCostInBytes files.minPartitionNum files.maxPartitionNum",
    ),
    *_family(
        Answer.OBEYED,
        "how Spark's own scan reads the same rows",
        "parquet.columnarReaderBatchSize parquet.enable*VectorizedReader parquet.filterPushdown* "
        "parquet.pushdown.inFilterThreshold parquet.recordLevelFilter.enabled sources.ignoreDataLocality "
        "sources.fileCompressionFactor sources.structPredicateDecompose.* optimizer.nestedSchemaPruning.enabled "
        "optimizer.nestedPredicatePushdown.supportedFileSources legacy.parquet.returnNullStructIfAllFieldsMissing",
    ),
    *_family(Answer.OBEYED, "Spark may push filters into the data source", "python.filterPushdown.enabled"),
    *_family(
        Answer.SAME,
        "an INT96 is a moment in UTC in every file; in such a session Spark's own scan is not used",
        "parquet.int96TimestampConversion",
    ),
    _warned("files.maxRecordsPerFile", Use.WRITE, "0 -1", "files have the size of hoodie.parquet.max.file.size"),
    _warned(
        "parquet.compression.codec",
        Use.WRITE,
        "gzip",
        "set hoodie.parquet.compression.codec, which a table keeps for its services, too",
    ),
    _warned(
        "parquet.outputTimestampType",
        Use.WRITE,
        "int96 timestamp_micros",
        "timestamps are stored in microseconds; round them in the rows",
    ),
    _warned("parquet.writeLegacyFormat", Use.WRITE, "false", "files have today's form of lists and decimals"),
    _warned("parquet.datetimeRebaseModeInWrite", Use.WRITE, "corrected exception", _CALENDAR),
    _warned("parquet.int96RebaseModeInWrite", Use.WRITE, "corrected exception", _CALENDAR),
    _warned("parquet.datetimeRebaseModeInRead", Use.READ, "corrected exception", _CALENDAR),
    _warned("parquet.int96RebaseModeInRead", Use.READ, "corrected exception", _CALENDAR),
    _warned("files.ignoreCorruptFiles", Use.READ, "false", _RECOVERY),
    _warned("files.ignoreMissingFiles", Use.READ, "false", _RECOVERY),
    _warned(
        "parquet.fieldId.read.enabled", Use.READ, "false", "columns are found by name; Hudi's tables have no field ids"
    ),
    _warned("parquet.binaryAsString", Use.READ, "false", "columns have the table's types; cast(column as string)"),
    _warned(
        "storeAssignmentPolicy",
        Use.SQL,
        "ansi",
        "lakeformat.spark.sql stores values as ANSI says: a value that does not fit is an error; unset it, or cast in "
        "the query",
        Answer.REFUSED,
    ),
    *_family(
        Answer.SAME,
        "the table's own metadata has columns, types, partitions and files",
        "parquet.mergeSchema parquet.respectSummaryFiles parquet.inferTimestampNTZ.enabled parquet.int96AsTimestamp "
        "parquet.aggregatePushdown parquet.fieldId.read.ignoreMissing parquet.fieldId.write.enabled "
        "parquet.reader.respectUnknownTypeAnnotation.enabled legacy.parquet.nanosAsLong "
        "sources.partitionColumnTypeInference.enabled sources.validatePartitionColumns "
        "sources.parallelPartitionDiscovery.* sources.useListFilesFileSystemList files.ignoreInvalidPartitionPaths "
        "files.ignoredPathSegmentRegex files.archive.* files.supportSecondOffsetFormat "
        "legacy.readFileSourceTableCacheIgnoreOptions filesourceTableRelationCacheSize",
    ),
    *_family(
        Answer.SAME,
        "a commit of the timeline publishes files, with any committer and without one",
        "sources.commitProtocolClass sources.outputCommitterClass parquet.output.committer.class "
        "execution.fastFailOnFileFormatOutput maxConcurrentOutputFileWriters",
    ),
    *_family(
        Answer.SAME,
        "variants are stored as their two binaries, never shredded; rows of the other types are refused by name, and "
        "lengths of char and varchar are not kept",
        "variant.* parquet.variant.* parquet.ignoreVariantAnnotation timestampNanosTypes.* timeType.* geospatial.* "
        "udt.* charAsVarchar preserveCharVarcharTypeInfo readSideCharPadding legacy.charVarcharAsString "
        "legacy.noCharPaddingInPredicate",
    ),
    *_family(
        Answer.SAME,
        "Spark's catalog and its tables of other formats",
        "sources.bucketing.* sources.v2.bucketing.* sources.schemaStringLengthThreshold sources.useV1SourceList "
        "sources.binaryFile.* sources.disabledJdbcConnProviderList runSQLOnFiles defaultColumn.* fileSource.* "
        "generatedColumn.* jsonGenerator.* thrift* hive.* orc.* avro.* csv.* json.* xml.* "
        "legacy.json.* legacy.csv.* legacy.avro.* "
        "legacy.nullValueWrittenAsQuotedEmptyStringCsv legacy.replaceDatabricksSparkAvro.enabled "
        "legacy.skipTypeValidationOnAlterPartition statistics.* timeTravelTimestampKey timeTravelVersionKey",
    ),
    *_family(
        Answer.SAME,
        "a save without columns, or with a path and another path as an option, is refused",
        "legacy.allowEmptySchemaWrite legacy.pathOptionBehavior.enabled",
    ),
    *_family(
        Answer.SAME,
        "how Spark plans and runs a query: the rows are the same",
        "adaptive.* optimizer.* cbo.* codegen.* join.* shuffle.* execution.* streaming.* pyspark.* "
        "maxMetadataStringLength artifact.*",
    ),
)


@cache
def find_setting(name: str) -> Setting | None:
    """Return the setting or family of this name; None if lakeformat says nothing about it."""
    return next((setting for setting in SETTINGS if fnmatchcase(name, setting.name)), None)


def given_settings(spark: SparkSession) -> Mapping[str, str]:
    """Return the settings of the table above, without families, that someone has set for the session."""
    session: Any = spark
    if context_of(spark) is not None:
        text = session._jsparkSession.conf().getAll().mkString("\n")
        return dict(re.findall(r"^(spark\.sql\.\S+) -> (.*)$", text, re.MULTILINE))
    try:
        return dict(session.conf.getAll)
    except Exception as error:  # Another engine behind Spark Connect may not tell.
        _LOG.debug("the session tells no settings: %s", str(error).partition("\n")[0])
        return {}


def find_obstacle(spark: SparkSession) -> str:
    """Warn about settings that a read does not obey. Return why Spark's own scan would read other rows, or ``""``."""
    given = given_settings(spark)
    check_settings(given, Use.READ)
    shifts = given.get(_CONVERSION, "").strip().lower() == "true"
    return f"{_CONVERSION}=true would shift moments that Spark's own scan reads" if shifts else ""


def is_dynamic(given: Mapping[str, str]) -> bool:
    """Tell whether an overwrite replaces only the partitions of its rows, as the session says."""
    return given.get(OVERWRITE_MODE, "").strip().lower() == "dynamic"


def check_settings(given: Mapping[str, str], use: Use) -> None:
    """Warn about settings that have no effect, once for each value in this process, and refuse others.

    Raises:
        InvalidOptionError: a setting is refused.
    """
    for setting in SETTINGS:
        value = given.get(setting.name)
        if value is None or use not in setting.uses or value.strip().lower() in setting.plain:
            continue
        if setting.answer is Answer.REFUSED:
            raise InvalidOptionError(f"{setting.name}={value} is not for lakeformat: {setting.text}")
        if setting.answer is Answer.WARNED:
            _warn(setting, value)


@cache
def _warn(setting: Setting, value: str) -> None:
    _LOG.warning('%s=%s has no effect on format("lakehouse"): %s', setting.name, value, setting.text)


def settings_page() -> str:
    """Return the text of ``docs/reference/spark-settings.md``."""
    lines = [_HEAD]
    for setting in SETTINGS:
        plain = f" (no word at {', '.join(f'`{value}`' for value in sorted(setting.plain))})" if setting.uses else ""
        lines.append(f"| `{setting.name}` | **{setting.answer.value}**{plain} | {setting.text} |")
    return "\n".join(lines) + "\n"


_HEAD: Final = """# Settings of Spark's session

This page is made by `python tools/spark_settings.py` from `lakeformat/spark/settings.py`. It names every setting of
Spark 4.0 to 4.3 that changes what a built-in source writes or reads. The first line that fits a name counts. A setting
that is not named here does not change what a source does.

- **obeyed**: it has the effect that it has for Parquet.
- **no effect**: it tunes a part that lakeformat does not have, or that works differently; rows are the same.
- **no effect, with a warning**: one warning per process and value says so. Values that mean what lakeformat does bring
  none.
- **refused**: rows would differ from what the setting means.

Warnings and errors come from `load` and `save` after `register(spark)`, and from `read`, `write` and `sql` of
`lakeformat.spark`.

| setting | answer | what it means here |
|---|---|---|"""

"""The table's own settings, stored in ``hoodie.properties`` (Hudi: ``HoodieTableConfig``)."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timezone, tzinfo
from enum import Enum
from typing import Final

from lakeformat.errors import CorruptTableError, InvalidInputError, InvalidOptionError, UnsupportedTableError, nearest
from lakeformat.model.keys import KeyGeneratorKind
from lakeformat.model.merge_settings import MergeSettings, PartialUpdate, RecordMergeMode, merge_settings
from lakeformat.model.table_version import SEVERAL_ORDERING_FIELDS, TableVersion, table_version
from lakeformat.model.version_checks import check_read, check_written
from lakeformat.public import public

__all__ = [
    "BOOTSTRAP_BASE",
    "CREATE_SCHEMA",
    "DATABASE",
    "DROPS_PARTITION_COLUMNS",
    "EXTRACTOR",
    "INDEX_DEFS",
    "LAYOUT",
    "LOST_PROPERTIES",
    "METADATA_INFLIGHT",
    "METADATA_PARTITIONS",
    "OPERATION_FIELD",
    "PARTITION_FIELDS",
    "POPULATES_META_FIELDS",
    "PROPERTIES_PATH",
    "TIMELINE_PATH",
    "TYPED_FIELDS",
    "VERSION",
    "ZONE",
    "ChangeLogging",
    "MergeMode",
    "TableConfig",
    "TableType",
    "table_checksum",
]

PROPERTIES_PATH: Final = ".hoodie/hoodie.properties"
#: What to do if ``hoodie.properties`` is lost or damaged.
LOST_PROPERTIES: Final = (
    "restore it from a copy, or lakeformat repair (in Python lakeformat.repair(path)) makes it again from commits and "
    "rows"
)

NAME: Final = "hoodie.table.name"
DATABASE: Final = "hoodie.database.name"
TYPE: Final = "hoodie.table.type"
VERSION: Final = "hoodie.table.version"
CHECKSUM: Final = "hoodie.table.checksum"
LAYOUT: Final = "hoodie.timeline.layout.version"
RECORD_FIELDS: Final = "hoodie.table.recordkey.fields"
PARTITION_FIELDS: Final = "hoodie.table.partition.fields"
ORDERING: Final = "hoodie.table.precombine.field"
KEY_GENERATOR: Final = "hoodie.table.keygenerator.class"
#: Key under which Hudi 1.x stores the ordering columns, in version 6 tables too. Hudi 0.x uses the key `ORDERING`.
ORDERING_1X: Final = "hoodie.table.ordering.fields"
#: Key under which Hudi 1.x stores the type of the key generator, in version 6 tables too. Hudi 0.x stores the class.
KEY_GENERATOR_1X: Final = "hoodie.table.keygenerator.type"
HIVE_STYLE: Final = "hoodie.datasource.write.hive_style_partitioning"
URL_ENCODE: Final = "hoodie.datasource.write.partitionpath.urlencode"
LOGICAL_TIMES: Final = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"
SLASH_DATES: Final = "hoodie.datasource.write.slash.separated.date.partitioning"
#: Key of lakeformat, under which a version 6 table with a custom key generator stores its fields as ``name:TYPE``.
#: Hudi stores the types from version 8 on, in `PARTITION_FIELDS`.
TYPED_FIELDS: Final = "lakeformat.partition.fields"
#: Key of lakeformat, under which a table stores that its files have the column of operations. Hudi stores it nowhere.
OPERATION_FIELD: Final = "lakeformat.operation.field"
ZONE: Final = "hoodie.table.timeline.timezone"
PAYLOAD: Final = "hoodie.compaction.payload.class"
MERGE_MODE: Final = "hoodie.record.merge.mode"
CDC: Final = "hoodie.table.cdc.enabled"
CDC_MODE: Final = "hoodie.table.cdc.supplemental.logging.mode"
CREATE_SCHEMA: Final = "hoodie.table.create.schema"
ARCHIVE_FOLDER: Final = "hoodie.archivelog.folder"
TIMELINE_PATH: Final = "hoodie.timeline.path"
HISTORY_PATH: Final = "hoodie.timeline.history.path"
#: The folder whose files a bootstrap has taken into the table.
BOOTSTRAP_BASE: Final = "hoodie.bootstrap.base.path"
DROPS_PARTITION_COLUMNS: Final = "hoodie.datasource.write.drop.partition.columns"
POPULATES_META_FIELDS: Final = "hoodie.populate.meta.fields"
#: Which meta columns have values (version 10). It goes before the property above, which is derived from it.
META_FIELDS_MODE: Final = "hoodie.meta.fields.mode"
STORAGE_LAYOUT: Final = "hoodie.table.storage.layout"
METADATA_PARTITIONS: Final = "hoodie.table.metadata.partitions"
METADATA_INFLIGHT: Final = "hoodie.table.metadata.partitions.inflight"
INDEX_DEFS: Final = "hoodie.table.index.defs.path"
#: The properties from this one to `EXTRACTOR` occur only in table versions 8 and 9.
INITIAL_VERSION: Final = "hoodie.table.initial.version"
TABLE_FORMAT: Final = "hoodie.table.format"
SEVERAL_FORMATS: Final = "hoodie.table.multiple.base.file.formats.enable"
MERGE_STRATEGY: Final = "hoodie.record.merge.strategy.id"
PARTIAL_UPDATE_MODE: Final = "hoodie.table.partial.update.mode"
#: Prefix under which version 9 stores further settings for merging, such as the delete field.
MERGE_PROPERTY: Final = "hoodie.record.merge.property."
LEGACY_PAYLOAD: Final = "hoodie.table.legacy.payload.class"
EXTRACTOR: Final = "hoodie.table.partition_extractor_class"

_CUSTOM: Final = "CUSTOM"
_BY_HUDI: Final = "use Apache Hudi for this table"
_BY_ITS_FORMAT: Final = "write it by Apache Hudi; read it as a table of that format, or copy it by lakeformat.convert"


class ChangeLogging(str, Enum):
    """The parts of a changed row that change data files store (Hudi: ``HoodieCDCSupplementalLoggingMode``)."""

    OP_KEY_ONLY = "OP_KEY_ONLY"
    DATA_BEFORE = "DATA_BEFORE"
    DATA_BEFORE_AFTER = "DATA_BEFORE_AFTER"


class TableType(str, Enum):
    """The table type, which decides how updates are stored (Hudi: ``HoodieTableType``)."""

    COPY_ON_WRITE = "COPY_ON_WRITE"
    MERGE_ON_READ = "MERGE_ON_READ"


class MergeMode:
    """The rules by which a write merges a row with the stored row of the same key.

    A rule is named like Hudi 1.x's merge mode (``RecordMergeMode``), or if there is none, like Hudi's payload class.
    """

    COMMIT_TIME: Final = "COMMIT_TIME_ORDERING"
    EVENT_TIME: Final = "EVENT_TIME_ORDERING"
    PARTIAL_UPDATE: Final = "PartialUpdateAvroPayload"
    NON_DEFAULTS: Final = "OverwriteNonDefaultsWithLatestAvroPayload"
    AWS_DMS: Final = "AWSDmsAvroPayload"
    POSTGRES: Final = "PostgresDebeziumAvroPayload"
    MYSQL: Final = "MySqlDebeziumAvroPayload"

    #: Maps the payload classes of Hudi 0.x to their rule.
    OF_PAYLOAD: Final[Mapping[str, str]] = {
        "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload": COMMIT_TIME,
        "org.apache.hudi.common.model.DefaultHoodieRecordPayload": EVENT_TIME,
        "org.apache.hudi.common.model.EventTimeAvroPayload": EVENT_TIME,
        "org.apache.hudi.common.model.PartialUpdateAvroPayload": PARTIAL_UPDATE,
        "org.apache.hudi.common.model.OverwriteNonDefaultsWithLatestAvroPayload": NON_DEFAULTS,
        "org.apache.hudi.common.model.AWSDmsAvroPayload": AWS_DMS,
        "org.apache.hudi.common.model.debezium.PostgresDebeziumAvroPayload": POSTGRES,
        "org.apache.hudi.common.model.debezium.MySqlDebeziumAvroPayload": MYSQL,
    }
    #: Maps each rule to the payload class that is stored for it.
    PAYLOAD_OF: Final[Mapping[str, str]] = {
        COMMIT_TIME: "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
        EVENT_TIME: "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
        PARTIAL_UPDATE: "org.apache.hudi.common.model.PartialUpdateAvroPayload",
        NON_DEFAULTS: "org.apache.hudi.common.model.OverwriteNonDefaultsWithLatestAvroPayload",
        AWS_DMS: "org.apache.hudi.common.model.AWSDmsAvroPayload",
        POSTGRES: "org.apache.hudi.common.model.debezium.PostgresDebeziumAvroPayload",
        MYSQL: "org.apache.hudi.common.model.debezium.MySqlDebeziumAvroPayload",
    }
    #: Maps the rules that are payload classes to the merge mode that version 9 stores for them.
    STORED_AS: Final[Mapping[str, str]] = {
        PARTIAL_UPDATE: EVENT_TIME,
        NON_DEFAULTS: COMMIT_TIME,
        AWS_DMS: COMMIT_TIME,
        POSTGRES: EVENT_TIME,
        MYSQL: EVENT_TIME,
    }
    #: Maps rules to the partial update mode that version 9 stores for them.
    PARTIAL_OF: Final[Mapping[str, PartialUpdate]] = {
        PARTIAL_UPDATE: PartialUpdate.IGNORE_DEFAULTS,
        NON_DEFAULTS: PartialUpdate.IGNORE_DEFAULTS,
        POSTGRES: PartialUpdate.FILL_UNAVAILABLE,
    }


def table_checksum(name: str, database: str = "") -> str:
    """Return the CRC-32 of ``<database>.<name>`` in decimal (Hudi: ``HoodieTableConfig.generateChecksum``)."""
    return str(zlib.crc32(f"{database}.{name}".encode()))


@public
@dataclass(frozen=True)
class TableConfig:
    """The properties of a table as texts by key, unknown keys included, with typed access to the known keys."""

    values: Mapping[str, str]

    def get(self, key: str, default: str = "") -> str:
        """Return the stored text of a key, or ``default`` if the table does not store the key."""
        return self.values.get(key, default)

    def _flag(self, key: str, default: bool) -> bool:
        text = self.get(key)
        return text.strip().lower() == "true" if text else default

    def _fields(self, key: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.get(key).split(",") if part.strip())

    @property
    def name(self) -> str:
        """Return the table's name."""
        return self.get(NAME)

    @property
    def version(self) -> int:
        """Return the table version; 0 if it is not a number."""
        return _parse_number(self.get(VERSION))

    @property
    def traits(self) -> TableVersion:
        """Return the traits of the table version; those of the oldest one if the version is not supported."""
        return table_version(self.version)

    @property
    def layout_version(self) -> int:
        """Return the timeline layout version, 1 or 2. If it is not stored, return the layout of the table version."""
        text = self.get(LAYOUT)
        return _parse_number(text) if text else self.traits.timeline_layout

    @property
    def table_type(self) -> TableType | None:
        """Return the table type; None if lakeformat does not know the stored type."""
        name = self.get(TYPE).upper()
        return TableType(name) if name in TableType.__members__ else None

    @property
    def takes_logs(self) -> bool:
        """Tell whether updates and deletes are appended to log files (merge-on-read)."""
        return self.table_type is TableType.MERGE_ON_READ

    @property
    def change_logging(self) -> ChangeLogging | None:
        """Return which parts of changed rows writers log; None if ``hoodie.table.cdc.enabled`` is not true.

        Raises:
            UnsupportedTableError: The stored mode of change logging is not known.
        """
        if not self._flag(CDC, False):
            return None
        mode = self.get(CDC_MODE).upper() or ChangeLogging.DATA_BEFORE_AFTER
        if mode not in ChangeLogging.__members__:
            raise UnsupportedTableError(f"{CDC_MODE}={self.get(CDC_MODE)} in {PROPERTIES_PATH} is not supported")
        return ChangeLogging(mode)

    @property
    def orders_versions(self) -> bool:
        """Tell whether readers of log files merge by ordering columns.

        If not, the version that was written last wins.
        """
        settings = self.merge_settings
        return settings.mode is RecordMergeMode.EVENT_TIME and bool(settings.ordering_fields)

    @property
    def record_fields(self) -> tuple[str, ...]:
        """Return the columns of the record key; empty for a table with generated keys."""
        return self._fields(RECORD_FIELDS)

    @property
    def partition_fields(self) -> tuple[str, ...]:
        """Return the columns of the partition path, without the types that a custom generator appends."""
        return tuple(field.partition(":")[0] for field in self._fields(PARTITION_FIELDS))

    @property
    def typed_partition_fields(self) -> tuple[str, ...]:
        """Return the partition fields as stored; for the custom generator they are ``name:TYPE``, if types are known.

        Version 6 stores the types under `TYPED_FIELDS`.
        """
        stored, typed = self._fields(PARTITION_FIELDS), self._fields(TYPED_FIELDS)
        same = tuple(field.partition(":")[0] for field in typed) == stored
        return typed if same and stored else stored

    @property
    def ordering_field(self) -> str | None:
        """Return the first ordering (precombine) column; None if the table has none."""
        return next(iter(self.ordering_fields), None)

    @property
    def ordering_fields(self) -> tuple[str, ...]:
        """Return the ordering columns, stored under Hudi 1.x's key or the older key; empty if there are none."""
        return self._fields(ORDERING_1X) or self._fields(ORDERING)

    @property
    def merge_settings(self) -> MergeSettings:
        """Return the settings by which readers merge versions of a record. For writers `merge_mode` is used instead."""
        return merge_settings(self.values, self.ordering_fields)

    @property
    def key_generator(self) -> str:
        """Return the stored class name of the key generator, or its type; "" if the table stores neither."""
        return self.get(KEY_GENERATOR) or self.get(KEY_GENERATOR_1X)

    @property
    def hive_style(self) -> bool:
        """Tell whether partition folders are named ``field=value``."""
        return self._flag(HIVE_STYLE, False)

    @property
    def url_encode(self) -> bool:
        """Tell whether partition values are escaped in folder names."""
        return self._flag(URL_ENCODE, False)

    @property
    def logical_times(self) -> bool:
        """Tell whether record keys and partition paths hold timestamps as dates with times, not as numbers."""
        return self._flag(LOGICAL_TIMES, False)

    @property
    def slash_dates(self) -> bool:
        """Tell whether partition folders of a date are ``2024/05/06``. Hudi stores it only as the extractor's class."""
        return self._flag(SLASH_DATES, self.get(EXTRACTOR).endswith(".SlashEncodedDayPartitionValueExtractor"))

    @property
    def drops_partition_columns(self) -> bool:
        """Tell whether data files lack the partition columns. Readers then parse their values from folder names."""
        return self._flag(DROPS_PARTITION_COLUMNS, False)

    @property
    def is_bootstrapped(self) -> bool:
        """Tell whether the table was made of files that were there before, and may still need them."""
        return bool(self.get(BOOTSTRAP_BASE))

    @property
    def folder_columns(self) -> tuple[str, ...]:
        """Return the columns that some files may lack, because folder names give their values."""
        return self.partition_fields if self.drops_partition_columns or self.is_bootstrapped else ()

    @property
    def dropped_columns(self) -> tuple[str, ...]:
        """Return the columns that data files of lakeformat do not hold, because folder names give their values."""
        return self.partition_fields if self.drops_partition_columns else ()

    @property
    def has_operations(self) -> bool:
        """Tell whether lakeformat has found or made files with the column of operations."""
        return self._flag(OPERATION_FIELD, False)

    @property
    def has_virtual_keys(self) -> bool:
        """Tell whether data files lack the meta columns or have only nulls in them."""
        mode = self.get(META_FIELDS_MODE)
        return mode.upper() == "NONE" if mode else not self._flag(POPULATES_META_FIELDS, True)

    @property
    def zone(self) -> tzinfo | None:
        """Return the timeline's zone: UTC, or None for the zone of this process (Hudi: ``HoodieTimelineTimeZone``)."""
        if self.get(ZONE, "LOCAL").upper() == "UTC":
            return timezone.utc
        return None

    @property
    def archive_folder(self) -> str:
        """Return the path of the folder with archived instants, relative to the table."""
        if self.layout_version == 1:
            return f".hoodie/{self.get(ARCHIVE_FOLDER, 'archived')}".rstrip("/")
        return f"{self.timeline_folder}/{self.get(HISTORY_PATH) or 'history'}".rstrip("/")

    @property
    def timeline_folder(self) -> str:
        """Return the path of the folder with active instants, relative to the table."""
        return ".hoodie" if self.layout_version == 1 else f".hoodie/{self.get(TIMELINE_PATH) or 'timeline'}".rstrip("/")

    @property
    def has_metadata_table(self) -> bool:
        """Tell whether the table has a metadata table, according to its properties. It may be incomplete (inflight)."""
        return bool(self.metadata_partitions or self.pending_metadata_partitions)

    @property
    def metadata_partitions(self) -> tuple[str, ...]:
        """Return the names of the metadata table's partitions that may be read."""
        return self._fields(METADATA_PARTITIONS)

    @property
    def pending_metadata_partitions(self) -> tuple[str, ...]:
        """Return the names of the metadata table's partitions that are being built, and may not be read yet."""
        return self._fields(METADATA_INFLIGHT)

    @property
    def names_merge_rule(self) -> bool:
        """Tell whether the table stores a merge mode or a payload class. Copy-on-write tables of Hudi 0.x do not."""
        return bool(self.get(PAYLOAD) or self.get(MERGE_MODE))

    @property
    def merge_mode(self) -> str:
        """Return the `MergeMode` by which a write merges a row with the stored row of the same key.

        It follows from the stored mode. If no mode is stored, it follows from the stored payload class. If neither is
        stored, it is Hudi 1.x's default: event time if the table has an ordering column, else commit time.

        Raises:
            UnsupportedTableError: The stored mode or payload class is not supported.
        """
        mode, payload = self.get(MERGE_MODE).upper(), self.get(PAYLOAD)
        beyond = MergeMode.OF_PAYLOAD.get(payload) in MergeMode.STORED_AS
        # Hudi 1.x stores the mode CUSTOM for these payload classes, so the class decides.
        if mode and not (mode == _CUSTOM and beyond):
            if mode not in {MergeMode.COMMIT_TIME, MergeMode.EVENT_TIME}:
                raise UnsupportedTableError(f"{MERGE_MODE}={mode} in {PROPERTIES_PATH} is not supported for writing")
            return self._find_payload_mode(mode)
        if payload:
            if payload not in MergeMode.OF_PAYLOAD:
                raise UnsupportedTableError(
                    f"{PAYLOAD}={payload} in {PROPERTIES_PATH} is not supported for writing"
                    f"{nearest(payload, MergeMode.OF_PAYLOAD)}"
                )
            return MergeMode.OF_PAYLOAD[payload]
        return MergeMode.EVENT_TIME if self.ordering_fields else MergeMode.COMMIT_TIME

    def _find_payload_mode(self, mode: str) -> str:
        """Return the `MergeMode` for ``mode`` with the partial update mode and the payload class of version 9."""
        partial = self.get(PARTIAL_UPDATE_MODE).strip().upper()
        legacy = MergeMode.OF_PAYLOAD.get(self.get(LEGACY_PAYLOAD), "")
        for payload_mode, stored_as in MergeMode.STORED_AS.items():
            is_partial = MergeMode.PARTIAL_OF.get(payload_mode, "") == partial
            if stored_as == mode and is_partial and (partial or payload_mode == legacy):
                return payload_mode
        if partial:
            raise UnsupportedTableError(
                f"{PARTIAL_UPDATE_MODE}={partial} in {PROPERTIES_PATH} is not supported for writing in mode {mode}"
            )
        return mode

    def check_readable(self, location: str) -> None:
        """Check that lakeformat can read the table. Error messages name the property.

        Raises:
            CorruptTableError: A required property is missing or the checksum is wrong.
            UnsupportedTableError: The version, the type or a feature is not supported.
        """
        where = f"{location}/{PROPERTIES_PATH}"
        for key in (NAME, TYPE, VERSION):
            if not self.get(key):
                raise CorruptTableError(f"{where} has no {key}; {LOST_PROPERTIES}")
        checksum = self.get(CHECKSUM)
        if checksum and checksum != table_checksum(self.name, self.get(DATABASE)):
            raise CorruptTableError(f"{where}: {CHECKSUM} does not fit the table's name; {LOST_PROPERTIES}")
        self._check_kind(where)
        for key, supported, default in _READABLE:
            if (self.get(key) or default).upper() not in supported:
                cure = _BY_ITS_FORMAT if key == TABLE_FORMAT else _BY_HUDI
                raise UnsupportedTableError(f"{where}: {key}={self.get(key)} is not supported; {cure}")

    def _check_kind(self, where: str) -> None:
        check_read(where, self.version, self.get(VERSION))
        if self.table_type is None:
            raise UnsupportedTableError(f"{where}: {TYPE}={self.get(TYPE)} is not supported")
        if self.get(STORAGE_LAYOUT, "default").lower() not in self.traits.storage_layouts:
            raise UnsupportedTableError(
                f"{where}: {STORAGE_LAYOUT}={self.get(STORAGE_LAYOUT)} is not supported; {_BY_HUDI}"
            )
        if self.layout_version != self.traits.timeline_layout:
            raise UnsupportedTableError(f"{where}: {LAYOUT}={self.get(LAYOUT)} is not supported")

    def check_changeable(self, location: str) -> None:
        """Check that lakeformat can read the table, and changes tables of this version. Raise as `check_readable`."""
        self.check_readable(location)
        check_written(f"{location}/{PROPERTIES_PATH}", self.version, "a table service")

    def check_compactable(self, location: str) -> None:
        """Check that lakeformat can read the table, and can merge its log files into base files.

        Raises:
            InvalidInputError: The table is copy-on-write.
            UnsupportedTableError: Compaction does not support one of its features.
        """
        self.check_readable(location)
        if self.table_type is TableType.COPY_ON_WRITE:
            raise InvalidInputError(
                f"{location} is copy-on-write: it has no log files to compact; cluster() rewrites small files"
            )
        where = f"{location}/{PROPERTIES_PATH}"
        self._check_features(where, "compaction")

    def _check_features(self, where: str, doing: str) -> None:
        check_written(where, self.version, doing)
        for key, supported, default in _WRITABLE:
            if self.get(key, default).lower() not in supported:
                raise UnsupportedTableError(f"{where}: {doing} with {key}={self.get(key)} is not supported")

    def check_writable(self, location: str) -> None:
        """Check that lakeformat can read and write the table.

        Raises:
            CorruptTableError: A required property is missing or the checksum is wrong.
            UnsupportedTableError: Writing does not support the version, the type or a feature of the table.
        """
        self.check_readable(location)
        where = f"{location}/{PROPERTIES_PATH}"
        self._check_features(where, "writing")
        _ = self.change_logging
        if self.has_virtual_keys:
            kind = KeyGeneratorKind.of_table(self.key_generator, self.record_fields, self.partition_fields)
            if not kind.makes_virtual_keys(self.record_fields):
                raise UnsupportedTableError(
                    f"{where}: writing with {POPULATES_META_FIELDS}=false needs record key fields and the simple, "
                    "nonpartitioned or complex key generator, the last with several key fields"
                )
        self._check_dropped(where)
        if len(self.ordering_fields) > 1 and not self.traits.takes_several_ordering_fields:
            key = ORDERING_1X if self.get(ORDERING_1X) else ORDERING
            raise UnsupportedTableError(
                f"{where}: writing with {key}={self.get(key)} is not supported before version "
                f"{SEVERAL_ORDERING_FIELDS}, only one field"
            )
        if self.key_generator:
            try:
                KeyGeneratorKind.parse(self.key_generator)
            except InvalidOptionError as error:
                raise UnsupportedTableError(f"{where}: {error}") from None

    def _check_dropped(self, where: str) -> None:
        """Check that folder names give the values of the columns that files do not hold, and that merges need none."""
        if not self.drops_partition_columns:
            return
        kind = KeyGeneratorKind.of_table(self.key_generator, self.record_fields, self.partition_fields)
        merged = {*self.ordering_fields, *(self.record_fields if self.has_virtual_keys else ())}
        if any("." in name for name in self.partition_fields) or self.slash_dates or kind in _MADE_OF_TIMES:
            need = "needs top-level partition fields, plain folders, and the simple or complex key generator"
        elif merged.intersection(self.partition_fields):
            need = f"needs other ordering and virtual key fields than {', '.join(self.partition_fields)}"
        else:
            return
        raise UnsupportedTableError(f"{where}: writing with {DROPS_PARTITION_COLUMNS}=true {need}")


_MADE_OF_TIMES: Final = frozenset({KeyGeneratorKind.TIMESTAMP, KeyGeneratorKind.CUSTOM})


def _parse_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


_READABLE: Final = (
    ("hoodie.table.base.file.format", {"PARQUET"}, "PARQUET"),
    (SEVERAL_FORMATS, {"FALSE"}, "false"),
    (TABLE_FORMAT, {"NATIVE"}, "native"),
    (META_FIELDS_MODE, {"ALL", "NONE"}, "ALL"),
    (DROPS_PARTITION_COLUMNS, {"TRUE", "FALSE"}, "false"),
    (POPULATES_META_FIELDS, {"TRUE", "FALSE"}, "true"),
)
_WRITABLE: Final = (("hoodie.partition.metafile.use.base.format", {"false"}, "false"),)

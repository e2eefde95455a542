"""The options that a new table stores in ``hoodie.properties``, and `MergeOptions`, those of the merge rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from lakeformat.config.option import (
    WRITE,
    Effect,
    Option,
    declare,
    make_choice_parser,
    options_of,
    parse_flag,
    parse_merge_strategy,
    parse_mergers,
    parse_names,
    values_of,
)
from lakeformat.errors import InvalidOptionError
from lakeformat.model.table_version import WRITTEN_VERSIONS

__all__ = ["MODE", "PAYLOAD", "TABLE_OPTIONS", "UNCLEAR_KEYS", "KeyOptions", "MergeOptions"]

UNCLEAR_KEYS: Final = "lakeformat.write.unclear.keys"

_table: Final = partial(Option, Effect.TABLE)
_declare: Final = partial(declare, Effect.TABLE)
_write: Final = partial(Option, Effect.WRITE)


@dataclass(frozen=True, slots=True)
class KeyOptions:
    """The typed options of the forms of keys and folders that Hudi does not store with a table."""

    slash_dates: bool = _declare(
        WRITE + "slash.separated.date.partitioning",
        "Write `/` for each `-` of the value of a single partition field into folders: 2024-05-06 becomes 2024/05/06. "
        "Tables that Hudi made with hive-style folders do not store it: name it for the first write.",
        parse_flag,
        False,
    )
    logical_times: bool = _declare(
        WRITE + "keygenerator.consistent.logical.timestamp.enabled",
        "Write timestamps with a zone in record keys and partition paths as 2024-01-02 03:04:05.678 (UTC, cut to "
        "milliseconds), and not as microseconds. A table with rows shows it by its keys.",
        parse_flag,
        False,
    )

    @classmethod
    def of(cls, value: Callable[[str], Any]) -> KeyOptions:
        """Return the typed options. ``value`` is a function that returns the value of an option key, or its default."""
        return cls(**values_of(cls, value))


TABLE_OPTIONS: Final[tuple[Option, ...]] = (
    _table(
        "hoodie.table.name",
        "Name of the table; the folder's name if not given.",
        aliases=("name", "hoodie.datasource.write.table.name"),
    ),
    _table("hoodie.database.name", "Database to which the table belongs.", default=""),
    _table(
        WRITE + "recordkey.field",
        "Columns that identify a row, separated by commas, with dots for fields of structs; none for generated keys.",
        parse_names,
        (),
        ("recordkey", "record_key", "hoodie.table.recordkey.fields"),
    ),
    _write(
        UNCLEAR_KEYS,
        "What a write does with a key of several fields whose text in Hudi other values have, too, because a value "
        "holds `,b:` (b is a key field) or is `__null__`: refuse the row, or merge rows with one text, as Hudi.",
        make_choice_parser("refuse", "merge"),
        "refuse",
        ("unclear_keys",),
    ),
    _table(
        WRITE + "partitionpath.field",
        "Columns whose values make the partition folders; none for one folder.",
        parse_names,
        (),
        ("partitionpath", "partition_by", "hoodie.table.partition.fields"),
    ),
    _table(
        "hoodie.table.ordering.fields",
        "Column that decides which of two rows with one key is newer; in table version 9 also several, separated by "
        "commas, of which the first that differs decides.",
        aliases=(
            "ordering",
            WRITE + "precombine.field",
            "hoodie.table.precombine.field",
            "precombine",
            "hoodie.payload.ordering.field",
        ),
    ),
    _table(
        WRITE + "keygenerator.class",
        "How keys and partition paths are made; by default inferred from the columns.",
        aliases=("hoodie.table.keygenerator.class", "keygenerator"),
    ),
    _table(
        WRITE + "keygenerator.type",
        "The same by a short name: SIMPLE, COMPLEX, NON_PARTITION, TIMESTAMP, CUSTOM.",
        aliases=("hoodie.table.keygenerator.type",),
    ),
    _table(WRITE + "hive_style_partitioning", "Name folders column=value.", parse_flag, False, ("hive_style",)),
    _table(
        WRITE + "partitionpath.urlencode",
        "Escape special characters of partition values.",
        parse_flag,
        False,
        ("url_encode",),
    ),
    *options_of(KeyOptions),
    _table(
        "hoodie.populate.meta.fields",
        "Store each row's record key, partition path, commit and file with it. With false keys are made of the key "
        "columns; incremental queries and the record index need them stored.",
        parse_flag,
        True,
    ),
    _table(
        WRITE + "drop.partition.columns",
        "Leave partition columns out of files: readers take their values from the names of folders. They must be "
        "strings, integers, booleans or dates; empty strings are read as null.",
        parse_flag,
        False,
    ),
    _table(
        WRITE + "table.type",
        "COPY_ON_WRITE: changed files are written again; MERGE_ON_READ: updates and deletes are appended to log files, "
        "which readers merge.",
        make_choice_parser("COPY_ON_WRITE", "MERGE_ON_READ"),
        "COPY_ON_WRITE",
        ("table_type", "hoodie.datasource.write.storage.type", "hoodie.table.type"),
    ),
    _table(
        "hoodie.write.table.version",
        "Table version of a new table: 6 (Hudi 0.14 to 1.2 read it), 8 (1.0 and later) or 9 (1.1 and later).",
        make_choice_parser(*map(str, WRITTEN_VERSIONS)),
        "6",
        ("hoodie.table.version",),
    ),
    _table(
        "hoodie.write.complex.keygen.new.encoding",
        "Form of the key if the complex generator has one key field: true (the default) writes the value alone, "
        "false field:value. Tables keep their form; from table version 9 on it is always field:value, as in Hudi.",
        parse_flag,
        None,
    ),
    _table(
        WRITE + "payload.class",
        "Hudi 0.x name of the merge rule: OverwriteWithLatestAvroPayload, DefaultHoodieRecordPayload, "
        "EventTimeAvroPayload, PartialUpdateAvroPayload (the newer row, its nulls filled from the other), "
        "OverwriteNonDefaultsWithLatestAvroPayload (nulls of the incoming row keep the stored value), "
        "AWSDmsAvroPayload (rows of AWS DMS: Op=D deletes), PostgresDebeziumAvroPayload or MySqlDebeziumAvroPayload "
        "(rows of Debezium: _change_operation_type=d deletes, _event_lsn or the place in the binary log orders).",
        aliases=("hoodie.compaction.payload.class",),
    ),
    _table(
        "hoodie.write.record.merge.mode",
        "COMMIT_TIME_ORDERING: the incoming row wins; EVENT_TIME_ORDERING (the "
        "default with an ordering column): the greater ordering value wins; on a tie, the incoming row wins.",
        make_choice_parser("COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING"),
        None,
        ("merge_mode", "hoodie.record.merge.mode"),
    ),
    _table(
        "hoodie.write.record.merge.strategy.id",
        "The same by Hudi's ids. The id of commit-time ordering selects it; the ids of event-time ordering and of "
        "payload classes leave the choice to the ordering column and the payload class.",
        parse_merge_strategy,
        None,
        (
            WRITE + "record.merger.strategy",
            "hoodie.record.merge.strategy.id",
            "hoodie.compaction.record.merger.strategy",
        ),
    ),
    _table(
        "hoodie.write.record.merge.custom.implementation.classes",
        "Hudi's own mergers, whose rules are supported: HoodieAvroRecordMerger, HoodieSparkRecordMerger, "
        "DefaultSparkRecordMerger, OverwriteWithLatestSparkRecordMerger; the rule is chosen by the options above.",
        parse_mergers,
        (),
        (WRITE + "record.merger.impls",),
    ),
    _table(
        "hoodie.table.cdc.enabled",
        "Log the changes of each commit row by row, beside the base files that it writes again. Changes can also be "
        "read without this log.",
        parse_flag,
        False,
    ),
    _table(
        "hoodie.table.cdc.supplemental.logging.mode",
        "Contents of the log for each row: DATA_BEFORE_AFTER (the row before and after), DATA_BEFORE or OP_KEY_ONLY; "
        "readers find the rest in base files.",
        make_choice_parser("DATA_BEFORE_AFTER", "DATA_BEFORE", "OP_KEY_ONLY"),
        "DATA_BEFORE_AFTER",
    ),
)


MODE: Final = "hoodie.write.record.merge.mode"
PAYLOAD: Final = WRITE + "payload.class"
_STRATEGY: Final = "hoodie.write.record.merge.strategy.id"


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """The typed options of the merge rule.

    Attributes:
        mode: The merge mode that the user set, by its name or by the id of a merge strategy; None if not set.
        mode_option: Key of the option that set the mode, for messages.
        payload: The payload class that the user set, with or without its package; None if not set.
        ordering: The ordering columns of a new table, separated by commas; None if not set.
    """

    mode: str | None
    mode_option: str
    payload: str | None
    ordering: str | None

    @property
    def named_by(self) -> str | None:
        """Return the key of the option that sets the merge rule: the mode's, else the payload's; None if unset."""
        return self.mode_option if self.mode else PAYLOAD if self.payload else None

    @classmethod
    def of(cls, value: Callable[[str], Any]) -> MergeOptions:
        """Return the typed options. ``value`` is a function that returns the value of an option key, or its default.

        Raises:
            InvalidOptionError: The merge mode and the id of the merge strategy contradict each other.
        """
        mode, by_id = value(MODE), value(_STRATEGY)
        if mode and by_id and mode != by_id:
            raise InvalidOptionError(
                f"options {MODE}={mode} and {_STRATEGY}, which is the id of {by_id}, contradict each other; give one"
            )
        option = MODE if mode or not by_id else _STRATEGY
        return cls(mode or by_id or None, option, value(PAYLOAD), value("hoodie.table.ordering.fields"))

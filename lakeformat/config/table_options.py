"""The options that a new table stores in ``hoodie.properties``, and `MergeOptions`, those of the merge rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.config.option import (
    WRITE,
    Effect,
    Option,
    make_choice_parser,
    parse_flag,
    parse_merge_strategy,
    parse_mergers,
    parse_names,
)
from lakeformat.errors import InvalidOptionError
from lakeformat.model.table_version import TABLE_VERSIONS

__all__ = ["MODE", "PAYLOAD", "TABLE_OPTIONS", "UNCLEAR_KEYS", "MergeOptions"]

UNCLEAR_KEYS: Final = "lakeformat.write.unclear.keys"

TABLE_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "hoodie.table.name",
        "Name of the table; the folder's name if not given.",
        Effect.TABLE,
        aliases=("name", "hoodie.datasource.write.table.name"),
    ),
    Option("hoodie.database.name", "Database to which the table belongs.", Effect.TABLE, default=""),
    Option(
        WRITE + "recordkey.field",
        "Columns that identify a row, separated by commas, with dots for fields of structs; none for generated keys.",
        Effect.TABLE,
        parse_names,
        (),
        ("recordkey", "record_key", "hoodie.table.recordkey.fields"),
    ),
    Option(
        UNCLEAR_KEYS,
        "What a write does with a key of several fields whose text in Hudi other values have, too, because a value "
        "holds `,b:` (b is a key field) or is `__null__`: refuse the row, or merge rows with one text, as Hudi.",
        Effect.WRITE,
        make_choice_parser("refuse", "merge"),
        "refuse",
        ("unclear_keys",),
    ),
    Option(
        WRITE + "partitionpath.field",
        "Columns whose values make the partition folders; none for one folder.",
        Effect.TABLE,
        parse_names,
        (),
        ("partitionpath", "partition_by", "hoodie.table.partition.fields"),
    ),
    Option(
        "hoodie.table.ordering.fields",
        "Column that decides which of two rows with one key is newer; in table version 9 also several, separated by "
        "commas, of which the first that differs decides.",
        Effect.TABLE,
        aliases=(
            "ordering",
            WRITE + "precombine.field",
            "hoodie.table.precombine.field",
            "precombine",
            "hoodie.payload.ordering.field",
        ),
    ),
    Option(
        WRITE + "keygenerator.class",
        "How keys and partition paths are made; by default inferred from the columns.",
        Effect.TABLE,
        aliases=("hoodie.table.keygenerator.class", "keygenerator"),
    ),
    Option(
        WRITE + "keygenerator.type",
        "The same by a short name: SIMPLE, COMPLEX, NON_PARTITION, TIMESTAMP, CUSTOM.",
        Effect.TABLE,
        aliases=("hoodie.table.keygenerator.type",),
    ),
    Option(
        WRITE + "hive_style_partitioning",
        "Name folders column=value.",
        Effect.TABLE,
        parse_flag,
        False,
        ("hive_style",),
    ),
    Option(
        WRITE + "partitionpath.urlencode",
        "Escape special characters of partition values.",
        Effect.TABLE,
        parse_flag,
        False,
        ("url_encode",),
    ),
    Option(
        WRITE + "table.type",
        "COPY_ON_WRITE: changed files are written again; MERGE_ON_READ: updates and deletes are appended to log files, "
        "which readers merge.",
        Effect.TABLE,
        make_choice_parser("COPY_ON_WRITE", "MERGE_ON_READ"),
        "COPY_ON_WRITE",
        ("table_type", "hoodie.datasource.write.storage.type", "hoodie.table.type"),
    ),
    Option(
        "hoodie.write.table.version",
        "Table version of a new table: 6 (Hudi 0.14 to 1.2 read it), 8 (1.0 and later) or 9 (1.1 and later).",
        Effect.TABLE,
        make_choice_parser(*map(str, TABLE_VERSIONS)),
        "6",
        ("hoodie.table.version",),
    ),
    Option(
        "hoodie.write.complex.keygen.new.encoding",
        "Form of the key if the complex generator has one key field: true (the default) writes the value alone, "
        "false field:value. Tables keep their form; from table version 9 on it is always field:value, as in Hudi.",
        Effect.TABLE,
        parse_flag,
        None,
    ),
    Option(
        WRITE + "payload.class",
        "Hudi 0.x name of the merge rule: OverwriteWithLatestAvroPayload, DefaultHoodieRecordPayload, "
        "EventTimeAvroPayload, PartialUpdateAvroPayload (the newer row, its nulls filled from the other), "
        "OverwriteNonDefaultsWithLatestAvroPayload (nulls of the incoming row keep the stored value), "
        "AWSDmsAvroPayload (rows of AWS DMS: Op=D deletes), PostgresDebeziumAvroPayload or MySqlDebeziumAvroPayload "
        "(rows of Debezium: _change_operation_type=d deletes, _event_lsn or the place in the binary log orders).",
        Effect.TABLE,
        aliases=("hoodie.compaction.payload.class",),
    ),
    Option(
        "hoodie.write.record.merge.mode",
        "COMMIT_TIME_ORDERING: the incoming row wins; EVENT_TIME_ORDERING (the "
        "default with an ordering column): the greater ordering value wins; on a tie, the incoming row wins.",
        Effect.TABLE,
        make_choice_parser("COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING"),
        None,
        ("merge_mode", "hoodie.record.merge.mode"),
    ),
    Option(
        "hoodie.write.record.merge.strategy.id",
        "The same by Hudi's ids. The id of commit-time ordering selects it; the ids of event-time ordering and of "
        "payload classes leave the choice to the ordering column and the payload class.",
        Effect.TABLE,
        parse_merge_strategy,
        None,
        (
            WRITE + "record.merger.strategy",
            "hoodie.record.merge.strategy.id",
            "hoodie.compaction.record.merger.strategy",
        ),
    ),
    Option(
        "hoodie.write.record.merge.custom.implementation.classes",
        "Hudi's own mergers, whose rules are supported: HoodieAvroRecordMerger, HoodieSparkRecordMerger, "
        "DefaultSparkRecordMerger, OverwriteWithLatestSparkRecordMerger; the rule is chosen by the options above.",
        Effect.TABLE,
        parse_mergers,
        (),
        (WRITE + "record.merger.impls",),
    ),
    Option(
        "hoodie.table.cdc.enabled",
        "Log the changes of each commit row by row, beside the base files that it writes again. Changes can also be "
        "read without this log.",
        Effect.TABLE,
        parse_flag,
        False,
    ),
    Option(
        "hoodie.table.cdc.supplemental.logging.mode",
        "Contents of the log for each row: DATA_BEFORE_AFTER (the row before and after), DATA_BEFORE or OP_KEY_ONLY; "
        "readers find the rest in base files.",
        Effect.TABLE,
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

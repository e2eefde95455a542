"""Settings of the table: given at creation, kept in ``hoodie.properties``."""

from __future__ import annotations

from typing import Final

from lakeformat.config.option import WRITE, Effect, Option, fields, flag, merge_strategy, mergers, one_of

__all__ = ["TABLE_OPTIONS"]

TABLE_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "hoodie.table.name",
        "Name of the table; the folder's name if not given.",
        Effect.TABLE,
        aliases=("name", "hoodie.datasource.write.table.name"),
    ),
    Option("hoodie.database.name", "Database the table belongs to.", Effect.TABLE, default=""),
    Option(
        WRITE + "recordkey.field",
        "Columns that identify a row; commas between several, dots into structs; none for generated keys.",
        Effect.TABLE,
        fields,
        (),
        ("recordkey", "record_key", "hoodie.table.recordkey.fields"),
    ),
    Option(
        WRITE + "partitionpath.field",
        "Columns whose values make the folders; none for one folder.",
        Effect.TABLE,
        fields,
        (),
        ("partitionpath", "partition_by", "hoodie.table.partition.fields"),
    ),
    Option(
        "hoodie.table.ordering.fields",
        "Column that tells the newer of two rows with one key.",
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
        "How keys and partition paths are made; inferred from the columns.",
        Effect.TABLE,
        aliases=("hoodie.table.keygenerator.class", "keygenerator"),
    ),
    Option(
        WRITE + "keygenerator.type",
        "The same by a short name: SIMPLE, COMPLEX, NON_PARTITION, TIMESTAMP, CUSTOM.",
        Effect.TABLE,
        aliases=("hoodie.table.keygenerator.type",),
    ),
    Option(WRITE + "hive_style_partitioning", "Name folders column=value.", Effect.TABLE, flag, False, ("hive_style",)),
    Option(
        WRITE + "partitionpath.urlencode",
        "Escape special characters of partition values.",
        Effect.TABLE,
        flag,
        False,
        ("url_encode",),
    ),
    Option(
        WRITE + "table.type",
        "COPY_ON_WRITE: files that change are written anew; MERGE_ON_READ: updates and deletes are appended to "
        "log files, which readers merge.",
        Effect.TABLE,
        one_of("COPY_ON_WRITE", "MERGE_ON_READ"),
        "COPY_ON_WRITE",
        ("table_type", "hoodie.datasource.write.storage.type", "hoodie.table.type"),
    ),
    Option(
        "hoodie.write.table.version",
        "Table version of a new table: 6 (Hudi 0.14 to 1.2 read it), 8 (1.0 and later) or 9 (1.1 and later).",
        Effect.TABLE,
        one_of("6", "8", "9"),
        "6",
        ("hoodie.table.version",),
    ),
    Option(
        "hoodie.write.complex.keygen.new.encoding",
        "One key field under the complex generator: true writes the "
        "bare value, false field:value. Existing tables keep the form they have.",
        Effect.TABLE,
        flag,
        None,
    ),
    Option(
        WRITE + "payload.class",
        "Hudi 0.x name of the merge rule: OverwriteWithLatestAvroPayload, DefaultHoodieRecordPayload, "
        "EventTimeAvroPayload, PartialUpdateAvroPayload (the newer row, its nulls filled from the other) or "
        "OverwriteNonDefaultsWithLatestAvroPayload (nulls of the incoming row keep the stored value).",
        Effect.TABLE,
        aliases=("hoodie.compaction.payload.class",),
    ),
    Option(
        "hoodie.write.record.merge.mode",
        "COMMIT_TIME_ORDERING: the incoming row wins; EVENT_TIME_ORDERING (the "
        "default with an ordering column): the greater ordering value wins, the incoming row on a tie.",
        Effect.TABLE,
        one_of("COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING"),
        None,
        ("merge_mode", "hoodie.record.merge.mode"),
    ),
    Option(
        "hoodie.write.record.merge.strategy.id",
        "The same by Hudi's ids: that of commit-time ordering asks for it; those of event-time ordering and of payload "
        "classes leave the rule to the ordering column and the payload class.",
        Effect.TABLE,
        merge_strategy,
        None,
        (
            WRITE + "record.merger.strategy",
            "hoodie.record.merge.strategy.id",
            "hoodie.compaction.record.merger.strategy",
        ),
    ),
    Option(
        "hoodie.write.record.merge.custom.implementation.classes",
        "Hudi's own mergers, whose rules are built: HoodieAvroRecordMerger, HoodieSparkRecordMerger, "
        "DefaultSparkRecordMerger, OverwriteWithLatestSparkRecordMerger; the rule is chosen by the options above.",
        Effect.TABLE,
        mergers,
        (),
        (WRITE + "record.merger.impls",),
    ),
    Option(
        "hoodie.table.cdc.enabled",
        "Log what each commit changes row by row, beside the base files that it writes anew; "
        "what changed is told without it, too.",
        Effect.TABLE,
        flag,
        False,
    ),
    Option(
        "hoodie.table.cdc.supplemental.logging.mode",
        "What the log holds of a row: DATA_BEFORE_AFTER (the row before and after), DATA_BEFORE or OP_KEY_ONLY; "
        "readers find the rest in base files.",
        Effect.TABLE,
        one_of("DATA_BEFORE_AFTER", "DATA_BEFORE", "OP_KEY_ONLY"),
        "DATA_BEFORE_AFTER",
    ),
)

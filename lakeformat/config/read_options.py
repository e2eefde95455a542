"""How a read works."""

from __future__ import annotations

from typing import Final

from lakeformat.config.option import Effect, Option, count, fields, flag, one_of, zone

__all__ = [
    "BEGIN",
    "CHANGE_DATA",
    "END",
    "END_COLUMNS",
    "FORMAT",
    "FULL_SCAN",
    "HOLES",
    "INCREMENTAL",
    "QUERY_TYPE",
    "READ_OPTIONS",
    "TIME_ZONE",
]

QUERY_TYPE: Final = "hoodie.datasource.query.type"
#: A value of it.
INCREMENTAL: Final = "incremental"
BEGIN: Final = "hoodie.datasource.read.begin.instanttime"
END: Final = "hoodie.datasource.read.end.instanttime"
END_COLUMNS: Final = "hoodie.datasource.read.schema.use.end.instanttime"
FULL_SCAN: Final = "hoodie.datasource.read.incr.fallback.fulltablescan.enable"
HOLES: Final = "hoodie.read.timeline.holes.resolution.policy"
FORMAT: Final = "hoodie.datasource.query.incremental.format"
#: A value of it.
CHANGE_DATA: Final = "cdc"
TIME_ZONE: Final = "time_zone"

READ_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "as.of.instant",
        "Read the table as it was: an instant, a date, or a date and time in the timeline's zone.",
        Effect.READ,
    ),
    Option(
        QUERY_TYPE,
        "snapshot; read_optimized: of merge-on-read tables the base files alone, of copy-on-write tables the same; or "
        "incremental: rows that commits of a range wrote.",
        Effect.READ,
        one_of("snapshot", "read_optimized", INCREMENTAL),
        "snapshot",
        ("hoodie.datasource.view.type",),
    ),
    Option(
        BEGIN,
        "Where the range of an incremental query begins, exclusive: an instant, from table version 8 on a completion "
        "time; 000 for everything.",
        Effect.READ,
    ),
    Option(END, "Where the range ends, inclusive; by default it does not.", Effect.READ),
    Option(
        FORMAT,
        "latest_state: each row that changed in the range once, as it was at its end; cdc: each change, with the row "
        "before and after it, also of tables that log no changes.",
        Effect.READ,
        one_of("latest_state", CHANGE_DATA),
        "latest_state",
    ),
    Option(
        FULL_SCAN,
        "Where a range ends before what is still there, read the newest rows of its commits instead of failing.",
        Effect.READ,
        flag,
        False,
    ),
    Option(
        END_COLUMNS,
        "Rows of a range that ends have the columns of its end; by default those of today.",
        Effect.READ,
        flag,
        False,
    ),
    Option(
        HOLES,
        "What an incremental query of version 6 does about a pending commit that later ones have overtaken: BLOCK ends "
        "the range before it, FAIL raises.",
        Effect.READ,
        one_of("BLOCK", "FAIL"),
        "BLOCK",
    ),
    Option(
        "where",
        "Rows wanted, as a Spark SQL condition: comparisons, in, between, like, is null, and, or, not.",
        Effect.READ,
    ),
    Option(
        TIME_ZONE,
        "Zone of texts and times without one that the condition compares with timestamps; by default the session's "
        "under Spark, UTC in plain Python.",
        Effect.READ,
        zone,
    ),
    Option("columns", "Columns wanted, commas between them.", Effect.READ, fields, None),
    Option(
        "meta_columns",
        "Return the five _hoodie_ columns first; plain Python does so only where it is set.",
        Effect.READ,
        flag,
        True,
    ),
    Option(
        "hoodie.enable.data.skipping",
        "Leave out files and row groups whose statistics rule out a match.",
        Effect.READ,
        flag,
        True,
    ),
    Option(
        "lakeformat.read.verify",
        "Read what skipping leaves out all the same, and fail if a row of it matches.",
        Effect.READ,
        flag,
        False,
        ("verify",),
    ),
    Option("lakeformat.read.split.bytes", "Bytes one Spark task reads, compressed.", Effect.READ, count, 128 << 20),
)

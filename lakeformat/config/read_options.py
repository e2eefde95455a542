"""How a read works.

What the options of reading say, typed: parsed once, as `Options.read`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.config.option import Effect, Option, count, fields, flag, one_of, zone
from lakeformat.config.stream_options import MAX_BYTES, MAX_COMMITS, MAX_FILES, START_OFFSET

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
    "ReadOptions",
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


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a read works; where an option is None or empty nothing was asked.

    Attributes:
        as_of: the point in time, as text.
        incremental: whether rows that commits of a range wrote are asked for.
        optimized: whether base files alone are.
        begin, end: of the range, as text; exclusive and inclusive.
        images: whether changes are asked for with their rows before and after.
        full_scan: whether a range whose past is gone is answered by the newest rows.
        end_columns: whether rows of a range have the columns of its end.
        fails_at_holes: whether a pending commit that others have overtaken is an error.
        where: Spark SQL.
        time_zone: of texts and naive times in conditions; None is UTC, or under Spark the session's.
        columns: names.
        meta_columns: whether the five come first.
        skipping: whether statistics may rule out files and row groups.
        verify: whether what they ruled out is read all the same.
        split_bytes: what a task reads, compressed.
        batch_commits, batch_files, batch_bytes: the most of a stream's batch.
        start: where a stream without a checkpoint begins, as text.
    """

    as_of: str | None
    incremental: bool
    optimized: bool
    begin: str | None
    end: str | None
    images: bool
    full_scan: bool
    end_columns: bool
    fails_at_holes: bool
    where: str | None
    time_zone: str | None
    columns: tuple[str, ...] | None
    meta_columns: bool
    skipping: bool
    verify: bool
    split_bytes: int
    batch_commits: int | None
    batch_files: int | None
    batch_bytes: int | None
    start: str

    @classmethod
    def of(cls, value: Callable[[str], Any]) -> ReadOptions:
        """From what gives the value of a key, or its default."""
        incremental = value(QUERY_TYPE) == INCREMENTAL
        return cls(
            as_of=value("as.of.instant"),
            incremental=incremental,
            optimized=value(QUERY_TYPE) == "read_optimized",
            begin=value(BEGIN),
            end=value(END),
            images=incremental and value(FORMAT) == CHANGE_DATA,
            full_scan=value(FULL_SCAN),
            end_columns=value(END_COLUMNS),
            fails_at_holes=value(HOLES) == "FAIL",
            where=value("where"),
            time_zone=value(TIME_ZONE),
            columns=value("columns"),
            meta_columns=value("meta_columns"),
            skipping=value("hoodie.enable.data.skipping"),
            verify=value("lakeformat.read.verify"),
            split_bytes=value("lakeformat.read.split.bytes"),
            batch_commits=value(MAX_COMMITS),
            batch_files=value(MAX_FILES),
            batch_bytes=value(MAX_BYTES),
            start=str(value(START_OFFSET)),
        )

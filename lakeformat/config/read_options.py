"""The options of a read, and their typed form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.config.option import (
    Effect,
    Option,
    make_choice_parser,
    parse_count,
    parse_flag,
    parse_names,
    parse_zone,
)
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
#: A value of `QUERY_TYPE`.
INCREMENTAL: Final = "incremental"
BEGIN: Final = "hoodie.datasource.read.begin.instanttime"
END: Final = "hoodie.datasource.read.end.instanttime"
END_COLUMNS: Final = "hoodie.datasource.read.schema.use.end.instanttime"
FULL_SCAN: Final = "hoodie.datasource.read.incr.fallback.fulltablescan.enable"
HOLES: Final = "hoodie.read.timeline.holes.resolution.policy"
FORMAT: Final = "hoodie.datasource.query.incremental.format"
#: A value of `FORMAT`.
CHANGE_DATA: Final = "cdc"
TIME_ZONE: Final = "time_zone"

READ_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "as.of.instant",
        "Read the table as of a point in time: an instant, a date, or a date and time in the timeline's zone.",
        Effect.READ,
    ),
    Option(
        QUERY_TYPE,
        "snapshot: the merged rows; read_optimized: only the base files of merge-on-read tables, all rows of "
        "copy-on-write tables; incremental: the rows that the commits of a range wrote.",
        Effect.READ,
        make_choice_parser("snapshot", "read_optimized", INCREMENTAL),
        "snapshot",
        ("hoodie.datasource.view.type",),
    ),
    Option(
        BEGIN,
        "Start of an incremental query's range, exclusive: an instant (a completion time from table version 8 on); 000 "
        "for everything.",
        Effect.READ,
    ),
    Option(END, "End of the range, inclusive; by default it has no end.", Effect.READ),
    Option(
        FORMAT,
        "latest_state: each row that changed in the range, once, in its state at the end of the range; cdc: each "
        "change, with the row before and after it. cdc also works for tables that do not log changes.",
        Effect.READ,
        make_choice_parser("latest_state", CHANGE_DATA),
        "latest_state",
    ),
    Option(
        FULL_SCAN,
        "If the table's state at the end of the range is no longer available, read the newest rows of its commits "
        "instead of failing.",
        Effect.READ,
        parse_flag,
        False,
    ),
    Option(
        END_COLUMNS,
        "Give the rows of a range with an end the columns of its end; by default they have the current columns.",
        Effect.READ,
        parse_flag,
        False,
    ),
    Option(
        HOLES,
        "What an incremental query of version 6 does about a pending commit with later completed commits: BLOCK ends "
        "the range before it, FAIL raises an error.",
        Effect.READ,
        make_choice_parser("BLOCK", "FAIL"),
        "BLOCK",
    ),
    Option(
        "where",
        "Rows to read, as a Spark SQL condition: comparisons, in, between, like, is null, and, or, not.",
        Effect.READ,
    ),
    Option(
        TIME_ZONE,
        "Time zone of texts and times without a zone that the condition compares with timestamps; by default the "
        "session's zone under Spark, UTC in plain Python.",
        Effect.READ,
        parse_zone,
    ),
    Option("columns", "Columns to read, separated by commas.", Effect.READ, parse_names, None),
    Option(
        "meta_columns",
        "Return the five _hoodie_ columns first; plain Python returns them only if this option is set.",
        Effect.READ,
        parse_flag,
        True,
    ),
    Option(
        "hoodie.enable.data.skipping",
        "Leave out files and row groups whose statistics rule out a match.",
        Effect.READ,
        parse_flag,
        True,
    ),
    Option(
        "lakeformat.read.verify",
        "Also read the files and row groups that skipping leaves out, and fail if one of their rows matches.",
        Effect.READ,
        parse_flag,
        False,
        ("verify",),
    ),
    Option(
        "lakeformat.read.split.bytes",
        "Compressed bytes that one Spark task reads.",
        Effect.READ,
        parse_count,
        128 << 20,
    ),
)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The typed options of a read. An option that is not given is None or empty.

    Attributes:
        as_of: the point in time, as text.
        incremental: whether to read the rows that the commits of a range wrote.
        optimized: whether to read base files alone.
        begin, end: bounds of the range, as text; exclusive and inclusive.
        images: whether to read changes with their rows before and after.
        full_scan: whether to read the newest rows if the table's state at the end of the range is gone.
        end_columns: whether rows of a range have the columns of its end.
        fails_at_holes: whether a pending commit with later completed commits is an error.
        where: a condition in Spark SQL.
        time_zone: zone of texts and naive times in conditions; None is UTC, or the session's zone under Spark.
        columns: names of the columns to read.
        meta_columns: whether the five meta columns come first.
        skipping: whether statistics may rule out files and row groups.
        verify: whether to read also the files and row groups that were ruled out.
        split_bytes: compressed bytes that a task reads.
        batch_commits, batch_files, batch_bytes: limits of a stream's batch.
        start: start of a stream without a checkpoint, as text.
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
        """Make the typed options. ``value`` returns the value of a key, or its default."""
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

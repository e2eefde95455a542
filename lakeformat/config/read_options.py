"""The options of a read, and `ReadOptions`, a class with their values."""

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
    "METADATA_TABLE",
    "QUERY_TYPE",
    "READ_OPTIONS",
    "TIME_ZONE",
    "ReadOptions",
]

QUERY_TYPE: Final = "hoodie.datasource.query.type"
#: The value of `QUERY_TYPE` for an incremental query.
INCREMENTAL: Final = "incremental"
BEGIN: Final = "hoodie.datasource.read.begin.instanttime"
END: Final = "hoodie.datasource.read.end.instanttime"
END_COLUMNS: Final = "hoodie.datasource.read.schema.use.end.instanttime"
FULL_SCAN: Final = "hoodie.datasource.read.incr.fallback.fulltablescan.enable"
HOLES: Final = "hoodie.read.timeline.holes.resolution.policy"
FORMAT: Final = "hoodie.datasource.query.incremental.format"
#: The value of `FORMAT` for reading changes with the rows before and after.
CHANGE_DATA: Final = "cdc"
TIME_ZONE: Final = "time_zone"
METADATA_TABLE: Final = "hoodie.metadata.enable"

READ_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "as.of.instant",
        "Read the table as of a point in time: an instant, a version number, a date, or a date and time in the "
        "timeline's zone.",
        Effect.READ,
        aliases=("timestampasof", "versionasof"),
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
        METADATA_TABLE,
        "List the files of a read from the table's metadata table if it has one; else, and if that table is damaged, "
        "from the folders. If it is given as true, a write makes the metadata table if the table has none.",
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
        as_of: Time travel: the instant whose state is read, as the text that the user gave; None for the newest state.
        incremental: Whether the read is an incremental query: it returns the rows that a range of commits wrote.
        optimized: Whether the read is a read-optimized query: it reads base files and no log files.
        begin: Exclusive start of the range of commits, as text.
        end: Inclusive end of the range of commits, as text.
        images: Whether an incremental query returns changes, with the rows before and after.
        full_scan: Whether an incremental query returns the newest versions of rows if those at the end of the range
            have been cleaned. If not, it fails.
        end_columns: Whether the rows of an incremental query have the columns that the table had at the end of the
            range, and not the current columns.
        fails_at_holes: Whether an incremental query fails if a pending commit has later completed commits. If not, the
            range ends before the pending commit.
        where: The filter, a condition in Spark SQL.
        time_zone: Name of the zone of texts and naive times in the filter; None is UTC, under Spark the session's zone.
        columns: Names of the columns to read; None for all.
        meta_columns: Whether the result begins with the five meta columns.
        skipping: Whether files and row groups are skipped if column statistics show that no row matches the filter.
        metadata_table: Whether the table's metadata table may list the files.
        verify: Whether skipped files and row groups are read too, to fail if one of their rows matches.
        split_bytes: Number of compressed bytes that one Spark task reads.
        batch_commits: Maximum number of commits in a batch of a stream; None for no limit.
        batch_files: Maximum number of files that the commits of a batch wrote; None for no limit.
        batch_bytes: Maximum total size in bytes of the files that the commits of a batch wrote; None for no limit.
        start: Start of a stream without a checkpoint, as text: ``earliest``, ``latest`` or an instant.
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
    metadata_table: bool
    verify: bool
    split_bytes: int
    batch_commits: int | None
    batch_files: int | None
    batch_bytes: int | None
    start: str

    @classmethod
    def of(cls, value: Callable[[str], Any]) -> ReadOptions:
        """Return the typed options. ``value`` is a function that returns the value of an option key, or its default."""
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
            metadata_table=value(METADATA_TABLE),
            verify=value("lakeformat.read.verify"),
            split_bytes=value("lakeformat.read.split.bytes"),
            batch_commits=value(MAX_COMMITS),
            batch_files=value(MAX_FILES),
            batch_bytes=value(MAX_BYTES),
            start=str(value(START_OFFSET)),
        )

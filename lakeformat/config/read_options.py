"""The options of a read, and `ReadOptions`, a class with their values."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from lakeformat.config.option import (
    Effect,
    declare,
    make_choice_parser,
    options_of,
    parse_count,
    parse_flag,
    parse_glob,
    parse_names,
    parse_zone,
    values_of,
)
from lakeformat.config.stream_options import MAX_BYTES, MAX_COMMITS, MAX_FILES, START_OFFSET
from lakeformat.model.path_glob import compile_glob

__all__ = [
    "BEGIN",
    "CHANGE_DATA",
    "END",
    "END_COLUMNS",
    "FORMAT",
    "FULL_SCAN",
    "HOLES",
    "INCREMENTAL",
    "MERGE_TYPE",
    "METADATA_TABLE",
    "PATH_GLOB",
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
PATH_GLOB: Final = "hoodie.datasource.read.incr.path.glob"
HOLES: Final = "hoodie.read.timeline.holes.resolution.policy"
MERGE_TYPE: Final = "hoodie.datasource.merge.type"
FORMAT: Final = "hoodie.datasource.query.incremental.format"
#: The value of `FORMAT` for reading changes with the rows before and after.
CHANGE_DATA: Final = "cdc"
TIME_ZONE: Final = "time_zone"
METADATA_TABLE: Final = "hoodie.metadata.enable"

_option: Final = partial(declare, Effect.READ)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The typed options of a read. An option that is not given is None or empty.

    Attributes:
        batch_commits, batch_files, batch_bytes: Limits of a batch of a stream; None for no limit.
        start: Start of a stream without a checkpoint, as text: ``earliest``, ``latest`` or an instant.
    """

    batch_commits: int | None
    batch_files: int | None
    batch_bytes: int | None
    start: str
    as_of: str | None = _option(
        "as.of.instant",
        "Read the table as of a point in time: an instant, a version number, a date, or a date and time in the "
        "timeline's zone.",
        aliases=("timestampasof", "versionasof"),
    )
    query: str = _option(
        QUERY_TYPE,
        "snapshot: the merged rows; read_optimized: only the base files of merge-on-read tables, all rows of "
        "copy-on-write tables; incremental: the rows that the commits of a range wrote.",
        make_choice_parser("snapshot", "read_optimized", INCREMENTAL),
        "snapshot",
        ("hoodie.datasource.view.type",),
    )
    merges: bool = _option(
        MERGE_TYPE,
        "payload_combine: log files of merge-on-read tables are merged into their base files; skip_merge: the rows of "
        "base files and log files are returned side by side as they were written, also those that are deleted.",
        make_choice_parser("payload_combine", "skip_merge"),
        "payload_combine",
        convert=lambda value: value == "payload_combine",
    )
    begin: str | None = _option(
        BEGIN,
        "Start of an incremental query's range, exclusive: an instant (a completion time from table version 8 on); 000 "
        "for everything.",
    )
    end: str | None = _option(END, "End of the range, inclusive; by default it has no end.")
    format: str = _option(
        FORMAT,
        "latest_state: each row that changed in the range, once, in its state at the end of the range; cdc: each "
        "change, with the row before and after it. cdc also works for tables that do not log changes.",
        make_choice_parser("latest_state", CHANGE_DATA),
        "latest_state",
    )
    full_scan: bool = _option(
        FULL_SCAN,
        "If the table's state at the end of the range is no longer available, read the newest rows of its commits "
        "instead of failing.",
        parse_flag,
        False,
    )
    end_columns: bool = _option(
        END_COLUMNS,
        "Give the rows of a range with an end the columns of its end; by default they have the current columns.",
        parse_flag,
        False,
    )
    path_glob: re.Pattern[str] | None = _option(  # noqa: RUF009  A compiled pattern is immutable.
        PATH_GLOB,
        "An incremental query reads only the file slices whose path ends in what this glob matches, such as `b/*`; `*` "
        "also stands for `/`. The path is that of the base file, or of the last log file if there is none.",
        parse_glob,
        "",
        convert=lambda glob: compile_glob(glob) if glob else None,
    )
    fails_at_holes: bool = _option(
        HOLES,
        "What an incremental query of version 6 does about a pending commit with later completed commits: BLOCK ends "
        "the range before it, FAIL raises an error.",
        make_choice_parser("BLOCK", "FAIL"),
        "BLOCK",
        convert=lambda value: value == "FAIL",
    )
    where: str | None = _option(
        "where", "Rows to read, as a Spark SQL condition: comparisons, in, between, like, is null, and, or, not."
    )
    time_zone: str | None = _option(
        TIME_ZONE,
        "Time zone of texts and times without a zone that the condition compares with timestamps; by default the "
        "session's zone under Spark, UTC in plain Python.",
        parse_zone,
    )
    columns: tuple[str, ...] | None = _option("columns", "Columns to read, separated by commas.", parse_names, None)
    meta_columns: bool = _option(
        "meta_columns",
        "Return the five _hoodie_ columns first; plain Python returns them only if this option is set.",
        parse_flag,
        True,
    )
    skipping: bool = _option(
        "hoodie.enable.data.skipping",
        "Leave out files and row groups whose statistics rule out a match.",
        parse_flag,
        True,
    )
    metadata_table: bool = _option(
        METADATA_TABLE,
        "List the files of a read from the table's metadata table if it has one; else, and if that table is damaged, "
        "from the folders. If it is given as true, a write makes the metadata table if the table has none.",
        parse_flag,
        True,
    )
    verify: bool = _option(
        "lakeformat.read.verify",
        "Also read the files and row groups that skipping leaves out, and fail if one of their rows matches.",
        parse_flag,
        False,
        ("verify",),
    )
    split_bytes: int = _option(
        "lakeformat.read.split.bytes", "Compressed bytes that one Spark task reads.", parse_count, 128 << 20
    )

    @property
    def incremental(self) -> bool:
        """Tell whether the read is an incremental query: it returns the rows that a range of commits wrote."""
        return self.query == INCREMENTAL

    @property
    def optimized(self) -> bool:
        """Tell whether the read is a read-optimized query: it reads base files and no log files."""
        return self.query == "read_optimized"

    @property
    def images(self) -> bool:
        """Tell whether an incremental query returns changes, with the rows before and after."""
        return self.incremental and self.format == CHANGE_DATA

    @classmethod
    def of(cls, value: Callable[[str], Any]) -> ReadOptions:
        """Return the typed options. ``value`` is a function that returns the value of an option key, or its default."""
        return cls(
            **values_of(cls, value),
            batch_commits=value(MAX_COMMITS),
            batch_files=value(MAX_FILES),
            batch_bytes=value(MAX_BYTES),
            start=str(value(START_OFFSET)),
        )


READ_OPTIONS: Final = options_of(ReadOptions)

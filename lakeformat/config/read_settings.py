"""What the options of reading say, typed: parsed once, as `Options.read`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lakeformat.config.read_options import (
    BEGIN,
    CHANGE_DATA,
    END,
    END_COLUMNS,
    FORMAT,
    FULL_SCAN,
    HOLES,
    INCREMENTAL,
    QUERY_TYPE,
    TIME_ZONE,
)
from lakeformat.config.stream_options import MAX_BYTES, MAX_COMMITS, MAX_FILES, START_OFFSET

__all__ = ["ReadOptions"]


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

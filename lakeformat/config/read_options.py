"""How a read works."""

from __future__ import annotations

from typing import Final

from lakeformat.config.option import Effect, Option, count, fields, flag, one_of

__all__ = ["QUERY_TYPE", "READ_OPTIONS"]

QUERY_TYPE: Final = "hoodie.datasource.query.type"

READ_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "as.of.instant",
        "Read the table as it was: an instant, a date, or a date and time in the timeline's zone.",
        Effect.READ,
    ),
    Option(
        QUERY_TYPE,
        "snapshot, or read_optimized: of merge-on-read tables the base files alone, of copy-on-write tables the same.",
        Effect.READ,
        one_of("snapshot", "read_optimized"),
        "snapshot",
        ("hoodie.datasource.view.type",),
    ),
    Option(
        "where",
        "Rows wanted, as a Spark SQL condition: comparisons, in, between, like, is null, and, or, not.",
        Effect.READ,
    ),
    Option("columns", "Columns wanted, commas between them.", Effect.READ, fields, None),
    Option("meta_columns", "Return the five _hoodie_ columns first.", Effect.READ, flag, True),
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

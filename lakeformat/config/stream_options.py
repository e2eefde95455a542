"""The options of streams: where a source starts, how large its batches are, and ids to detect repeated batches."""

from __future__ import annotations

from typing import Final

from lakeformat.config.option import Effect, Option, parse_count, parse_positive

__all__ = [
    "BATCH_APP",
    "BATCH_ID",
    "MAX_BYTES",
    "MAX_COMMITS",
    "MAX_FILES",
    "SINK_IDENTIFIER",
    "START_OFFSET",
    "STREAM_OPTIONS",
]

BATCH_APP: Final = "lakeformat.batch.app"
BATCH_ID: Final = "lakeformat.batch.id"
SINK_IDENTIFIER: Final = "hoodie.datasource.write.streaming.checkpoint.identifier"
START_OFFSET: Final = "hoodie.datasource.streaming.startoffset"
MAX_COMMITS: Final = "lakeformat.stream.max.commits"
MAX_FILES: Final = "lakeformat.stream.max.files"
MAX_BYTES: Final = "lakeformat.stream.max.bytes"

STREAM_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        BATCH_APP,
        "Sender of the batch, a streaming query or a job; with the id below, a batch that is sent twice is skipped.",
        Effect.WRITE,
    ),
    Option(
        BATCH_ID,
        "Number of the batch; only batches with a number above the last one are written.",
        Effect.WRITE,
        parse_count,
    ),
    Option(
        SINK_IDENTIFIER,
        "Name under which a stream records its batches in commits, for Apache Hudi's sink; by default the query's id.",
        Effect.WRITE,
    ),
    Option(
        START_OFFSET,
        "Start of a stream without a checkpoint: earliest, latest, or an instant after which it starts (a completion "
        "time from table version 8 on).",
        Effect.READ,
        str.strip,
        "earliest",
    ),
    Option(
        MAX_COMMITS,
        "Most commits in a batch of a stream; by default all new commits.",
        Effect.READ,
        parse_positive,
        None,
        ("maxcommitspertrigger",),
    ),
    Option(
        MAX_FILES,
        "Most files written by the commits of a stream's batch; a single commit is never split.",
        Effect.READ,
        parse_positive,
        None,
        ("maxfilespertrigger",),
    ),
    Option(
        MAX_BYTES,
        "Most bytes of these files; a single commit is never split.",
        Effect.READ,
        parse_positive,
        None,
        ("maxbytespertrigger",),
    ),
)

"""Batches of streams: where and how much a source takes, and by what a batch that comes again is known."""

from __future__ import annotations

from typing import Final

from lakeformat.config.option import Effect, Option, count, positive

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
        "Who sends the batch, a streaming query or a job; with the id below, a batch sent twice is skipped.",
        Effect.WRITE,
    ),
    Option(BATCH_ID, "Number of the batch; only numbers above the last are written.", Effect.WRITE, count),
    Option(
        SINK_IDENTIFIER,
        "Under which name a stream notes its batches in commits, for Apache Hudi's sink; by default the query's id.",
        Effect.WRITE,
    ),
    Option(
        START_OFFSET,
        "Where a stream begins that has no checkpoint yet: earliest, latest, or after an instant, from table version 8 "
        "on a completion time.",
        Effect.READ,
        str.strip,
        "earliest",
    ),
    Option(
        MAX_COMMITS,
        "Commits a batch of a stream takes at most; by default all there are.",
        Effect.READ,
        positive,
        None,
        ("maxcommitspertrigger",),
    ),
    Option(
        MAX_FILES,
        "Files that the commits of a stream's batch wrote, at most; one commit is always taken whole.",
        Effect.READ,
        positive,
        None,
        ("maxfilespertrigger",),
    ),
    Option(
        MAX_BYTES,
        "Bytes of these files, at most; one commit is always taken whole.",
        Effect.READ,
        positive,
        None,
        ("maxbytespertrigger",),
    ),
)

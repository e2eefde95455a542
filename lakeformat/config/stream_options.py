"""The options of streams: where a source starts, how large its batches are, and ids to detect repeated batches."""

from __future__ import annotations

from functools import partial
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

_read: Final = partial(Option, Effect.READ)
_write: Final = partial(Option, Effect.WRITE)
STREAM_OPTIONS: Final[tuple[Option, ...]] = (
    _write(
        BATCH_APP,
        "Sender of the batch, a streaming query or a job; with the id below, a batch that is sent twice is skipped.",
    ),
    _write(BATCH_ID, "Number of the batch; only batches with a number above the last one are written.", parse_count),
    _write(
        SINK_IDENTIFIER,
        "Name under which a stream records its batches in commits, for Apache Hudi's sink; by default the query's id.",
    ),
    _read(
        START_OFFSET,
        "Start of a stream without a checkpoint: earliest, latest, or an instant after which it starts (a completion "
        "time from table version 8 on).",
        str.strip,
        "earliest",
    ),
    _read(
        MAX_COMMITS,
        "Most commits in a batch of a stream; by default all new commits.",
        parse_positive,
        None,
        ("maxcommitspertrigger",),
    ),
    _read(
        MAX_FILES,
        "Most files written by the commits of a stream's batch; a single commit is never split.",
        parse_positive,
        None,
        ("maxfilespertrigger",),
    ),
    _read(
        MAX_BYTES,
        "Most bytes of these files; a single commit is never split.",
        parse_positive,
        None,
        ("maxbytespertrigger",),
    ),
)

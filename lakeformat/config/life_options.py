"""Cleaning and archiving: how much of the past a table keeps, and when the rest goes."""

from __future__ import annotations

from typing import Final

from lakeformat.config.option import Effect, Option, count, flag, one_of, positive

__all__ = [
    "ARCHIVES",
    "ARCHIVE_BATCH",
    "BEYOND_SAVEPOINT",
    "BLOCKED_BY_CLEAN",
    "CLEANS",
    "CLEAN_AFTER",
    "CLEAN_INCREMENTALLY",
    "CLEAN_POLICY",
    "COMMITS_RETAINED",
    "HISTORY_BATCH",
    "HISTORY_BYTES",
    "HOURS_RETAINED",
    "KEPT_MANIFESTS",
    "LIFE_OPTIONS",
    "MAX_COMMITS",
    "MIN_COMMITS",
    "VERSIONS_RETAINED",
]

CLEANS: Final = "hoodie.clean.automatic"
CLEAN_POLICY: Final = "hoodie.clean.policy"
COMMITS_RETAINED: Final = "hoodie.clean.commits.retained"
HOURS_RETAINED: Final = "hoodie.clean.hours.retained"
VERSIONS_RETAINED: Final = "hoodie.clean.fileversions.retained"
CLEAN_AFTER: Final = "hoodie.clean.trigger.max.commits"
CLEAN_INCREMENTALLY: Final = "hoodie.clean.incremental.enabled"
ARCHIVES: Final = "hoodie.archive.automatic"
MIN_COMMITS: Final = "hoodie.keep.min.commits"
MAX_COMMITS: Final = "hoodie.keep.max.commits"
ARCHIVE_BATCH: Final = "hoodie.commits.archival.batch"
BEYOND_SAVEPOINT: Final = "hoodie.archive.beyond.savepoint"
BLOCKED_BY_CLEAN: Final = "hoodie.archive.block.on.latest.clean.ectr"
HISTORY_BATCH: Final = "hoodie.timeline.compaction.batch.size"
HISTORY_BYTES: Final = "hoodie.timeline.compaction.target.file.max.bytes"
KEPT_MANIFESTS: Final = "hoodie.timeline.manifest.retained.versions"

LIFE_OPTIONS: Final[tuple[Option, ...]] = (
    Option(CLEANS, "After a write, delete files that only older versions of the table need.", Effect.WRITE, flag, True),
    Option(
        CLEAN_POLICY,
        "What cleaning keeps: KEEP_LATEST_COMMITS, KEEP_LATEST_BY_HOURS or KEEP_LATEST_FILE_VERSIONS.",
        Effect.WRITE,
        one_of("KEEP_LATEST_COMMITS", "KEEP_LATEST_BY_HOURS", "KEEP_LATEST_FILE_VERSIONS"),
        "KEEP_LATEST_COMMITS",
        ("hoodie.cleaner.policy",),
    ),
    Option(
        COMMITS_RETAINED,
        "KEEP_LATEST_COMMITS: so many commits can be read as they were.",
        Effect.WRITE,
        positive,
        10,
        ("hoodie.cleaner.commits.retained",),
    ),
    Option(
        HOURS_RETAINED,
        "KEEP_LATEST_BY_HOURS: commits of so many hours can be read as they were.",
        Effect.WRITE,
        positive,
        24,
        ("hoodie.cleaner.hours.retained",),
    ),
    Option(
        VERSIONS_RETAINED,
        "KEEP_LATEST_FILE_VERSIONS: of each file group so many versions stay.",
        Effect.WRITE,
        positive,
        3,
        ("hoodie.cleaner.fileversions.retained",),
    ),
    Option(
        "hoodie.clean.trigger.strategy", "What makes cleaning due.", Effect.WRITE, one_of("NUM_COMMITS"), "NUM_COMMITS"
    ),
    Option(
        CLEAN_AFTER,
        "Commits from one automatic clean to the next.",
        Effect.WRITE,
        positive,
        1,
        ("hoodie.clean.max.commits",),
    ),
    Option(
        CLEAN_INCREMENTALLY,
        "Look only at partitions that have changed since the last clean.",
        Effect.WRITE,
        flag,
        True,
        ("hoodie.cleaner.incremental.mode",),
    ),
    Option(ARCHIVES, "After a write, move old commits from the timeline into the archive.", Effect.WRITE, flag, True),
    Option(MIN_COMMITS, "Commits that archiving leaves on the timeline.", Effect.WRITE, positive, 20),
    Option(
        MAX_COMMITS,
        "With more commits, cleans and rollbacks on the timeline, some are archived.",
        Effect.WRITE,
        positive,
        30,
    ),
    Option(ARCHIVE_BATCH, "Instants in a block of the archive (table version 6).", Effect.WRITE, positive, 10),
    Option(
        BEYOND_SAVEPOINT,
        "Archive commits after a savepoint, too: only the savepointed ones themselves stay on the timeline.",
        Effect.WRITE,
        flag,
        False,
    ),
    Option(
        BLOCKED_BY_CLEAN,
        "Archive only commits older than the oldest one that the last clean has kept whole.",
        Effect.WRITE,
        flag,
        False,
    ),
    Option(
        HISTORY_BATCH,
        "Files of one level of the archive that are put together (table versions 8 and 9).",
        Effect.WRITE,
        positive,
        10,
    ),
    Option(
        HISTORY_BYTES,
        "Bytes of files of the archive that are put together, at most (table versions 8 and 9).",
        Effect.WRITE,
        positive,
        1048576000,
    ),
    Option(
        KEPT_MANIFESTS,
        "Older manifests of the archive that stay for readers (table versions 8 and 9).",
        Effect.WRITE,
        count,
        3,
    ),
)

"""Steps of publishing a commit: making its metadata, counting rows, running validators, checking other commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa

from lakeformat.codec.avro.schema import to_avro
from lakeformat.codec.internal_schema import LATEST_SCHEMA, decode_internal_schema, encode_internal_schema
from lakeformat.codec.stored_types import without_operation
from lakeformat.concurrency import run_all, run_both
from lakeformat.errors import WriteConflictError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.log_file_stats import earlier_log_facts
from lakeformat.model.commit import FILES_SCHEMA, CommitMetadata, WriteStat
from lakeformat.model.instant import Instant
from lakeformat.model.operation import Operation
from lakeformat.read.run.view import TableView
from lakeformat.storage.port import is_remote
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.timeline.write_report import REPORT_KEY, Report
from lakeformat.transaction.commit.completed_file import OpenCommit
from lakeformat.transaction.commit.hooks import Hooks, ProposedWrite, run_validators
from lakeformat.transaction.commit.nested_partitions import check_nesting, make_off_folder_entry
from lakeformat.transaction.order.conflict import PendingActionError
from lakeformat.transaction.order.foreign_writes import find_running_writes
from lakeformat.transaction.order.outcome import NewKeyCheck, Outcome, make_proposed_snapshot
from lakeformat.transaction.order.settings import TransactionSettings

__all__ = [
    "changed_columns",
    "check_no_plans",
    "count_rows",
    "make_commit_metadata",
    "make_publish_check",
    "read_other_writes",
    "validate_write",
]

#: Maximum number of commits of other writers that are read at once.
_READ_THREADS: Final = 8


def changed_columns(outcome: Outcome) -> dict[str, str]:
    """Return the columns that rows of a write add or change in type, with their types; nothing for an alteration."""
    before = outcome.snapshot.schema
    if before is None or outcome.altered is not None:
        return {}
    known = {field.name: field.type for field in before}
    return {field.name: str(field.type) for field in outcome.schema if known.get(field.name) != field.type}


def make_commit_metadata(
    settings: TransactionSettings,
    hooks: Hooks,
    report: Report,
    outcome: Outcome,
    instant_time: str,
    stats: Sequence[WriteStat],
    replaced: Mapping[str, tuple[str, ...]],
) -> CommitMetadata:
    """Return the metadata of the completed file, without the batch ids.

    Args:
        stats: the write stats of the written files.
        replaced: maps partition path to the ids of the file groups to hide.
    """
    config, schema = settings.config, outcome.schema
    by_partition: dict[str, list[WriteStat]] = {}
    errors = report.rows.get("set_aside", 0)
    for number, stat in enumerate(stats):
        counted = replace(stat, write_errors=errors) if errors and not number else stat
        by_partition.setdefault(stat.partition_path, []).append(counted)
    extra = {
        **hooks.extra_metadata,
        "schema": outcome.schema_text or to_avro(without_operation(schema), table_name=config.name),
        REPORT_KEY: report.as_text(),
        **make_off_folder_entry(outcome.written, config, schema),
        **earlier_log_facts(stats, outcome.snapshot.live),
    }
    if schemas := outcome.schemas_after(instant_time):
        extra[LATEST_SCHEMA] = encode_internal_schema(schemas[-1])
    if outcome.files_schema is not None and not outcome.files_schema.equals(schema):
        extra[FILES_SCHEMA] = to_avro(outcome.files_schema, table_name=config.name)
    return CommitMetadata(
        settings.operation.name,
        {p: tuple(s) for p, s in by_partition.items()},
        extra,
        replaced,
        compacted=settings.operation is Operation.COMPACT,
    )


def validate_write(
    context: TableContext,
    settings: TransactionSettings,
    hooks: Hooks,
    report: Report,
    commit: OpenCommit,
    schema: pa.Schema,
    stats: Sequence[WriteStat],
    replaced: Mapping[str, tuple[str, ...]],
) -> None:
    """Run the validators on the table as the commit will make it. Raise `ValidationFailedError` if one refuses."""
    if not hooks.validators:
        return
    snapshot = context.snapshot()  # Load the newest snapshot: other writers may have published meanwhile.
    after = make_proposed_snapshot(snapshot, schema, stats, replaced, commit.time)
    storage = context.storage
    with report.step("validate") as counted:
        views = TableView(storage, snapshot), TableView(storage, after)
        write = ProposedWrite(settings.operation.value, *views, tuple(stats))
        run_validators(hooks, write)
        counted["validators"] = len(hooks.validators)


def count_rows(
    operation: Operation,
    report: Report,
    stats: Sequence[WriteStat],
    opened: int,
    replaced: Mapping[str, tuple[str, ...]],
) -> None:
    """Add numbers of rows and files to the write's report. ``opened`` is the number of files in new file groups."""
    if operation in {Operation.CLUSTER, Operation.COMPACT}:
        report.rows["rewritten"] = sum(stat.num_writes for stat in stats)
    else:
        report.rows.update(
            inserted=sum(stat.num_inserts for stat in stats),
            updated=sum(stat.num_updates for stat in stats),
            deleted=sum(stat.num_deletes for stat in stats),
        )
    report.files.update(
        created=opened,
        merged=len(stats) - opened,
        replaced=sum(map(len, replaced.values())),
        bytes=sum(stat.size_bytes for stat in stats),
    )


def read_other_writes(
    store: TimelineStore, timeline: Timeline, ours: OpenCommit, *, looks_for_running: bool
) -> tuple[list[tuple[str, CommitMetadata]], Sequence[Instant]]:
    """Read the commits that have completed since ours began, and find other programs' running writes.

    Without locks both is done at once: if another writer decides meanwhile, our turn is lost.

    Args:
        looks_for_running: whether to look for running writes.

    Returns:
        (instant time, metadata) of the commits, archived ones included; and the result of `find_running_writes`.
    """

    def read_commits() -> list[tuple[str, CommitMetadata]]:
        others = timeline.completed_since(ours.known)
        read = run_all(store.read_commit, others, threads=_READ_THREADS)
        found = [(instant.time, metadata) for instant, metadata in zip(others, read, strict=True)]
        return found + store.read_unseen_archived(timeline, ours.known)

    if not looks_for_running:
        return read_commits(), ()
    find = partial(find_running_writes, store, timeline, ours.time)
    return run_both(read_commits, find, at_once=is_remote(store.storage))


def _check_columns_unaltered(outcome: Outcome, others: Sequence[tuple[str, CommitMetadata]]) -> None:
    """Raise an error if columns were altered while the write ran, or if other commits ran while it alters columns.

    The names of columns in a file are those of its instant. So no write may begin before a change and end after it.
    """
    known = outcome.snapshot.schemas
    latest = known[-1].version if known else None
    for time, metadata in others:
        text = metadata.extra.get(LATEST_SCHEMA, "")
        found = decode_internal_schema(text.encode(), name=time) if text else None
        if outcome.altered is not None or (found.version if found else None) != latest:
            raise WriteConflictError(
                f"commit {time} of {outcome.snapshot.config.name} ran while columns were altered; run the write again"
            )


def check_no_plans(store: TimelineStore, timeline: Timeline) -> None:
    """Refuse to alter columns while a clustering or compaction is planned: its files would have the old names.

    Raises:
        WriteConflictError: nothing was published.
    """
    planned = {*store.read_clustering_groups(timeline).values(), *store.read_compaction_groups(timeline).values()}
    if planned:
        raise PendingActionError(
            f"{store.storage.location}: columns cannot be altered while the table service {min(planned)} is planned; "
            "run it, or remove its plan"
        )


def make_publish_check(outcome: Outcome, opened: frozenset[str]) -> NewKeyCheck:
    """Return a function that raises an error if other commits conflict with new partitions or keys of this write.

    Args:
        opened: partitions that get new file groups.
    """

    def check(others: Sequence[tuple[str, CommitMetadata]]) -> None:
        _check_columns_unaltered(outcome, others)
        beside = {path for _, other in others for path in other.stats}
        check_nesting(opened.difference(outcome.snapshot.live.partitions()), beside)
        if outcome.check_new_keys is not None:
            outcome.check_new_keys(others)

    return check

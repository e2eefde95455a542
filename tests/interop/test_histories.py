"""Tables that Hudi makes by random histories: lakeformat reads the same rows, after each step and at each instant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InstantNotAvailableError
from tests.helpers import hudi_rs
from tests.helpers.histories import BUCKETS, FILLING, LOG_ONLY, METADATA, PARQUET_BLOCKS, SMALL_BLOCKS, Kind, W
from tests.helpers.history_player import Look, Played, Player
from tests.helpers.hudi_spark import Hudi

pytestmark = pytest.mark.interop

KINDS: Final = (
    Kind("v6_commit_time", "0.15.0", 6, "upsert delete sql_delete compact sql_update evolve then upsert", payload=""),
    Kind(
        "v6_event_time_pending",
        "0.15.0",
        6,
        "upsert flag insert delete then schedule upsert flag",
        partitioned=True,
        flagged=True,
    ),
    Kind(
        "v6_log_only",
        "0.15.0",
        6,
        "upsert delete upsert then schedule upsert delete",
        partitioned=True,
        options={**LOG_ONLY, **PARQUET_BLOCKS},
    ),
    Kind(
        "v6_nested",
        "0.15.0",
        6,
        "upsert flag evolve upsert delete then log_compact flag upsert",
        ordering=("at",),
        flagged=True,
        nested=True,
        options=METADATA,
    ),
    Kind("v6_clustered", "0.15.0", 6, "upsert evolve cluster upsert delete then upsert roll_back", partitioned=True),
    Kind(
        "v6_partial_payload",
        "0.15.0",
        6,
        "upsert upsert upsert compact upsert",
        payload="PartialUpdateAvroPayload",
        ranges=False,
    ),
    Kind(
        "v8_two_fields",
        "1.1.1",
        8,
        "upsert upsert flag delete compact flag upsert",
        ordering=("ts", "seq"),
        flagged=True,
    ),
    Kind(
        "v9_commit_buckets",
        "1.1.1",
        9,
        "upsert delete upsert sql_delete evolve then schedule upsert",
        payload="",
        options=BUCKETS,
    ),
    Kind("v8_cow", "1.1.1", 8, "upsert delete insert evolve cluster merge_into", mor=False, partitioned=True),
    Kind(
        "v9_nested_parquet",
        "1.1.1",
        9,
        "upsert upsert evolve flag then delete compact upsert flag",
        ordering=("at", "wide"),
        flagged=True,
        nested=True,
        options={**PARQUET_BLOCKS, **METADATA},
    ),
    Kind(
        "v6_by_1_1",
        "1.1.1",
        6,
        "upsert flag upsert sql_delete then log_compact upsert kill upsert schedule upsert",
        flagged=True,
    ),
    Kind(
        "v9_partial_payload",
        "1.1.1",
        9,
        "upsert upsert upsert delete compact upsert",
        payload="PartialUpdateAvroPayload",
    ),
    Kind(
        "v9_merge_into",
        "1.2.0",
        9,
        "merge_into delete evolve sql_update upsert then merge_into",
        partitioned=True,
        ranges=False,
    ),
    Kind(
        "v9_two_fields",
        "1.2.0",
        9,
        "upsert flag delete then log_compact kill upsert schedule flag insert",
        ordering=("ts", "seq"),
        flagged=True,
        options=FILLING,
    ),
    Kind("v8_log_only", "1.2.0", 8, "upsert delete evolve then upsert schedule upsert", options=LOG_ONLY),
    Kind(
        "v9_cow",
        "1.2.0",
        9,
        "upsert delete overwrite drop cluster upsert sql_update",
        mor=False,
        partitioned=True,
        options=METADATA,
    ),
    Kind(
        "v8_clustered",
        "1.2.0",
        8,
        "upsert cluster upsert delete then merge_into roll_back merge_into",
        partitioned=True,
        payload="",
        ranges=False,
    ),
    Kind(
        "v8_partial_payload",
        "1.2.0",
        8,
        "upsert upsert flag then upsert compact upsert flag upsert",
        payload="PartialUpdateAvroPayload",
        flagged=True,
    ),
    Kind(
        "v6_upgraded",
        "1.2.0",
        6,
        "upsert delete upsert then compact upsert flag upgrade upsert delete schedule upsert",
        flagged=True,
    ),
    Kind(
        "v9_small_blocks",
        "1.2.0",
        9,
        "upsert delete upsert upsert then log_compact upsert merge_into",
        partitioned=True,
        ranges=False,
        options={**SMALL_BLOCKS, **PARQUET_BLOCKS, f"{W}hive_style_partitioning": "true"},
    ),
    Kind(
        "v9_non_defaults",
        "1.2.0",
        9,
        "upsert upsert merge_into delete upsert compact upsert",
        payload="OverwriteNonDefaultsWithLatestAvroPayload",
    ),
    Kind(
        "v9_marker",
        "1.2.0",
        9,
        "upsert mark delete mark then compact upsert archive compact mark archive clean archive",
        options=METADATA,
    ),
    Kind(
        "v6_by_1_2",
        "1.2.0",
        6,
        "upsert upsert evolve delete merge_into then schedule upsert kill upsert",
        nested=True,
        payload="",
    ),
)
ON_EVERY_RUN: Final = frozenset(
    {"v6_commit_time", "v6_event_time_pending", "v6_log_only", "v9_merge_into", "v9_two_fields", "v8_log_only"}
)
Rows = dict[str, dict[str, Any]]


#: The release comes first: its one session makes all of its tables.
HISTORIES: Final = pytest.mark.parametrize(
    ("hudi", "kind"),
    [
        pytest.param(kind.hudi, kind, id=f"{kind.hudi}-{kind.name}", marks=() if often else pytest.mark.nightly)
        for kind in KINDS
        for often in [kind.name in ON_EVERY_RUN]
    ],
    indirect=True,
    scope="session",
)


@pytest.fixture(scope="session")
def kind(request: pytest.FixtureRequest) -> Kind:
    named: Kind = request.param
    return named


@pytest.fixture(scope="session")
def played(kind: Kind, hudi: Hudi, tmp_path_factory: pytest.TempPathFactory) -> Played:
    return Player(kind, hudi, tmp_path_factory.mktemp(kind.name)).play()


def by_key(table: pa.Table) -> Rows:
    listed = table.to_pylist(maps_as_pydicts="strict")
    rows = {row["id"]: row for row in listed}
    assert len(rows) == len(listed), "a record key is doubled"
    return rows


def differences(found: Rows, wanted: Rows) -> Iterator[str]:
    for key in sorted(found.keys() | wanted.keys()):
        ours, theirs = found.get(key), wanted.get(key)
        if ours is None or theirs is None:
            yield f"{key}: {'Hudi' if ours is None else 'we'} alone: {theirs or ours}"
        else:
            names = sorted(ours.keys() | theirs.keys())
            yield from (
                f"{key} {name}: {ours.get(name, 'none')!r}, by Hudi {theirs.get(name, 'none')!r}"
                for name in names
                if ours.get(name) != theirs.get(name) or (name in ours) != (name in theirs)
            )


def of_range(table: lakeformat.Table, begin: str, end: str, theirs: pa.Table | str) -> Rows:
    """Return our answer to an incremental query, without rows that lost to a row from before the range.

    lakeformat filters rows before log records meet base rows, so these rows are in its answer. Hudi filters row groups
    of base files: if a group also holds rows of the range, the winning row is read and wins again, and Hudi leaves the
    loser out.
    """
    ours = by_key(table.changes(begin, end or None).to_arrow(meta_columns=True))
    their_rows = by_key(theirs) if isinstance(theirs, pa.Table) else {}
    whole = lakeformat.open(table.context.storage.location)
    last = next((i.time for i in whole.snapshot().timeline.commits if end in {i.time, i.completed_at}), None)
    standing = by_key(whole.to_arrow(as_of=last, meta_columns=True))
    commit = "_hoodie_commit_time"
    return {key: row for key, row in ours.items() if key in their_rows or standing.get(key, row)[commit] == row[commit]}


def compare_reads(look: Look) -> list[str]:
    """Return the differences between our read and Hudi's.

    Only an instant or a range may be refused, and then both must refuse it.
    """
    try:
        table = lakeformat.open(look.table, **look.options)
        if look.bounds is None:
            ours = by_key(table.to_arrow(as_of=look.as_of, meta_columns=True))
        else:
            ours = of_range(table, *look.bounds, look.rows)
    except InstantNotAvailableError as refusal:
        may = (look.as_of or look.bounds) and isinstance(look.rows, str)
        return [] if may else [f"we refuse: {refusal}"]
    if isinstance(look.rows, str):
        return [f"Hudi refuses: {look.rows.splitlines()[0]}"]
    return list(differences(ours, by_key(look.rows)))


@HISTORIES
def test_rows_are_those_that_hudi_reads(played: Played) -> None:
    wrong: Mapping[str, list[str]] = {look.label: compare_reads(look) for look in played.looks}
    assert not any(wrong.values()), "\n".join(f"{at}: {each}" for at, every in wrong.items() for each in every)


@HISTORIES
def test_hudi_rs_reads_the_same_rows_where_it_reads_the_kind(played: Played) -> None:
    """Only the present is compared: for the past, hudi-rs shows the columns of today."""
    now = [look.table for look in played.looks if look.as_of is None and not look.options]
    read = [table for table in now if not hudi_rs.refusal(table) and not compaction_pending_in_version_6(table)]
    for table in read:
        hudi_rs.assert_same_rows(lakeformat.open(table))
    if not read:
        pytest.skip(hudi_rs.refusal(played.table))


def compaction_pending_in_version_6(table: Path) -> bool:
    """Tell whether a compaction is pending. In version 6 hudi-rs then skips log files written since the plan."""
    files = {file.name for file in (table / ".hoodie").iterdir()}
    plans = {name.partition(".")[0] for name in files if name.endswith(".compaction.requested")}
    return any(f"{instant}.commit" not in files for instant in plans)

"""Tables that Hudi makes by random histories read as Hudi reads them: after each step, and at each instant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import hudi_rs
import pyarrow as pa
import pytest
from histories import BUCKETS, FILLING, METADATA, PARQUET_BLOCKS, Kind
from history_player import Look, Played, Player
from hudi_spark import Hudi

import lakeformat
from lakeformat import LakeformatError

pytestmark = pytest.mark.interop

KINDS: Final = (
    Kind("v6_commit_time", "0.15.0", 6, "upsert delete sql_delete compact sql_update evolve then upsert", payload=""),
    Kind(
        "v6_event_time_pending",
        "0.15.0",
        6,
        "upsert flag upsert insert delete then schedule upsert flag",
        partitioned=True,
        flagged=True,
    ),
    Kind(
        "v6_buckets_parquet",
        "0.15.0",
        6,
        "upsert delete upsert then schedule upsert delete",
        options={**BUCKETS, **PARQUET_BLOCKS},
    ),
    Kind(
        "v6_nested",
        "0.15.0",
        6,
        "upsert flag evolve upsert delete then log_compact flag kill upsert upsert",
        ordering=("at",),
        flagged=True,
        nested=True,
        options=METADATA,
    ),
    Kind("v6_clustered", "0.15.0", 6, "upsert evolve cluster upsert delete then upsert roll_back", partitioned=True),
    Kind("v6_partial_payload", "0.15.0", 6, "upsert upsert upsert compact upsert", payload="PartialUpdateAvroPayload"),
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
        ordering=("day", "wide"),
        flagged=True,
        nested=True,
        options={**PARQUET_BLOCKS, **METADATA},
    ),
    Kind(
        "v6_by_1_1", "1.1.1", 6, "upsert flag upsert sql_delete then log_compact upsert schedule upsert", flagged=True
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
        "upsert merge_into delete merge_into upsert evolve sql_update then merge_into",
        partitioned=True,
    ),
    Kind(
        "v9_two_fields",
        "1.2.0",
        9,
        "upsert flag delete upsert then log_compact upsert schedule upsert flag insert",
        ordering=("ts", "seq"),
        flagged=True,
        options=FILLING,
    ),
    Kind("v8_buckets", "1.2.0", 8, "upsert delete upsert evolve then kill upsert schedule upsert", options=BUCKETS),
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
    {"v6_commit_time", "v6_event_time_pending", "v6_buckets_parquet", "v9_merge_into", "v9_two_fields", "v8_buckets"}
)
Rows = dict[tuple[str, str], dict[str, Any]]


#: The release first: its one session makes all of its tables.
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
    rows = {(row["_hoodie_partition_path"], row["_hoodie_record_key"]): row for row in listed}
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
                f"{key} {name}: {ours.get(name)!r}, by Hudi {theirs.get(name)!r}"
                for name in names
                if ours.get(name) != theirs.get(name) or (name in ours) != (name in theirs)
            )


def compared(look: Look) -> list[str]:
    try:
        ours = by_key(lakeformat.open(look.table, **look.options).to_arrow(as_of=look.as_of))
    except LakeformatError as refusal:
        return [] if isinstance(look.rows, str) else [f"we refuse: {refusal}"]
    if isinstance(look.rows, str):
        return [f"Hudi refuses: {look.rows.splitlines()[0]}"]
    return list(differences(ours, by_key(look.rows)))


@HISTORIES
def test_rows_are_those_that_hudi_reads(played: Played) -> None:
    wrong: Mapping[str, list[str]] = {look.label: compared(look) for look in played.looks}
    assert not any(wrong.values()), "\n".join(f"{at}: {each}" for at, every in wrong.items() for each in every)


@HISTORIES
def test_hudi_rs_reads_the_same_rows_where_it_reads_the_kind(played: Played) -> None:
    """Now alone: of the past hudi-rs shows the columns of today."""
    now = [look.table for look in played.looks if look.as_of is None and not look.options]
    read = [table for table in now if not hudi_rs.refusal(table)]
    for table in read:
        hudi_rs.assert_same_rows(lakeformat.open(table))
    if not read:
        pytest.skip(hudi_rs.refusal(played.table))

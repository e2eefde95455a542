"""Skipping on merge-on-read slices loses no row, finds no deleted row, and skips some files."""

from __future__ import annotations

import pytest

from lakeformat import SkippingError
from lakeformat.predicate import bind, parse_where
from lakeformat.read.query import ReadQuery, readable_schema
from lakeformat.read.run.parallel import read_all
from lakeformat.read.run.session import plan_read
from lakeformat.read.run.verify import read_verified
from tests.helpers.random_slices import SCHEMA, RandomSlices
from tests.helpers.row_oracle import evaluate
from tests.helpers.skipping_tables import edit_footers
from tests.helpers.thrift_footer import MAX_VALUE, MIN_VALUE, Struct, put_bytes

FILTERS = (
    "v = {n}", "v < {n}", "v > {n}", "v is null", "v between 7 and {n}", "x > {n}", "x < {n}", "x is null",
    "s = 's{n}'", "s = 'b'", "s is null", "id = '{n:03}'", "id > '{n:03}'", "_hoodie_record_key = '{n:03}'", "p = 'p1'",
    "p = 'p1' and v < {n}", "v = {n} and s = 'a'", "not (v < {n})", "v > {n} or s = 'a'", "ts > 5", "p is null",
    "v is null and s is null", "_hoodie_commit_time is null", "_hoodie_partition_path = 'p0'",
)  # fmt: skip


TABLES, ASKED = 16, 6


@pytest.mark.slow
def test_skipping_read_returns_the_rows_of_a_full_read() -> None:
    seen: set[str] = set()
    slices = groups = folders = 0
    for seed in range(TABLES):
        made = RandomSlices(seed)
        seen.update({made.rule, *made.kinds})
        snapshot, storage = made.table.snapshot(), made.table.context.storage
        full = readable_schema(snapshot.columns("here"), meta_columns=True)
        expected = [{name: row[name] for name in SCHEMA.names} for row in made.rows.values()]
        assert by_text(made.table.to_arrow(SCHEMA.names).to_pylist()) == by_text(expected), seed
        mixed = [row for key, row in made.rows.items() if key in made.mixed]
        of_rows = [f"v = {row['v']} and ts = {row['ts']} and s = '{row['s']}'" for row in mixed if row["v"] is not None]
        for text in ["p = 'p1'", "p is null", *made.random.sample(FILTERS, ASKED), *of_rows]:
            asked = parse_where(text.format(n=made.random.randint(0, 80)))
            query = ReadQuery(full, bind(asked, full))
            plan = plan_read(storage, snapshot, query, split_bytes=1 << 20, count_row_groups=True)
            found = [row for batch in read_all(storage, snapshot, query, plan) for row in batch.to_pylist()]
            verified = list(read_verified(storage, snapshot, query, split_bytes=1 << 20))
            assert by_text(found) == by_text([row for batch in verified for row in batch.to_pylist()]), (seed, asked)
            if "_hoodie" not in text:
                judged = [key for key, row in made.rows.items() if evaluate(asked, row) is True]
                assert sorted(row["id"] for row in found) == sorted(judged), (seed, asked)
            folders += plan.files_after_names < plan.files
            slices += plan.files_after_stats < plan.files
            groups += (plan.row_groups_after or 0) < (plan.row_groups or 0)
    assert seen == {"commit", "event", "partial", "avro", "parquet", "delete", "is_partial"}
    assert slices > TABLES * ASKED // 10, "where nothing is ever skipped nothing is proved"
    assert folders > 0
    assert groups > TABLES * ASKED // 10


def test_a_verified_read_finds_wrong_statistics_of_a_slice() -> None:
    made = next(each for each in map(RandomSlices, range(TABLES)) if each.rule == "event")
    base = {file.name.instant_time for file in made.table.snapshot().files}
    stored = [
        row
        for row in made.table.to_arrow(where="v is not null", meta_columns=True).to_pylist()
        if row["_hoodie_commit_time"] in base
    ]
    where = f"id = '{stored[0]['id']}' and v = {stored[0]['v']}"
    assert made.table.to_arrow(where=where, verify=True, meta_columns=True).num_rows == 1

    def lies(path: str, statistics: Struct) -> None:
        if path == "v":
            for bound in (MIN_VALUE, MAX_VALUE):
                put_bytes(statistics, bound, (1000).to_bytes(8, "little"))

    paths = edit_footers(made.table, lies)
    with pytest.raises(SkippingError, match=r"loses 1 matching row\(s\) of 1 file") as caught:
        made.table.to_arrow(where=where, verify=True, meta_columns=True)
    assert any(path in str(caught.value) for path in paths)


def by_text(rows: list[dict[str, object]]) -> list[str]:
    return sorted(map(repr, rows))

"""The law of skipping: for random tables, layouts and filters, a read returns exactly the rows that match.

The oracle is an evaluator of Spark's predicates on single rows, which knows no files.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from lakeformat.predicate import bind
from lakeformat.read.query import ReadQuery, readable_schema
from lakeformat.read.run.parallel import read_all
from lakeformat.read.run.session import plan_read
from lakeformat.read.run.verify import read_verified
from tests.helpers.examples import examples
from tests.helpers.random_tables import Draw, RandomTable, draws
from tests.helpers.row_oracle import evaluate

#: Each combination of a table and a filter is a case.
TABLES, FILTERS = 20, 64


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_filtered_reads_return_exactly_the_matching_rows() -> None:
    cases = skipped = 0
    tables = examples(TABLES)

    @settings(max_examples=tables, deadline=None, suppress_health_check=list(HealthCheck))
    @given(draws())
    def check(draw: Draw) -> None:
        nonlocal cases, skipped
        made = RandomTable(draw)
        snapshot, storage = made.table.snapshot(), made.table.context.storage
        full = readable_schema(snapshot.columns("here"), meta_columns=True)
        for number in range(FILTERS):
            predicate = made.filter()
            query = ReadQuery(pa.schema([full.field("id")]), bind(predicate, full))
            plan = plan_read(storage, snapshot, query, split_bytes=1 << 20)
            batches = list(read_all(storage, snapshot, query, plan))
            found = sorted(key for batch in batches for key in batch["id"].to_pylist())
            wanted = sorted(key for key, row in made.rows.items() if evaluate(predicate, row) is True)
            assert found == wanted, predicate
            if number % 16 == 0:
                verified = read_verified(storage, snapshot, query, split_bytes=1 << 20)
                assert sum(batch.num_rows for batch in verified) == len(wanted), predicate
            cases += 1
            skipped += plan.bytes_after < plan.bytes

    check()
    assert cases >= tables * FILTERS
    assert skipped > cases // 10, "tables on which nothing is ever skipped prove nothing"

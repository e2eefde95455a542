"""The laws of filters: an independent evaluator selects the same rows, and no unit with such a row is skipped."""

from __future__ import annotations

import io
import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeformat.files.column_stats import FileStats, NanCounts, collect_file_stats, fold_file_stats
from lakeformat.files.footer_bounds import fold_files, row_group_bounds
from lakeformat.predicate import ColumnComparison, Not, Predicate, bind, columns_of, mask, may_match
from tests.helpers.examples import examples
from tests.helpers.filter_strategies import PATHS, SCHEMA, filters, filters_on, rows
from tests.helpers.row_oracle import cell, evaluate

anything = filters() | st.sampled_from(sorted(PATHS)).flatmap(filters_on)


def select_rows(predicate: Predicate, table: list[dict[str, Any]]) -> list[bool]:
    return [evaluate(predicate, row) is True for row in table]


def footer(table: pa.Table, row_group_size: int, store_schema: bool) -> pq.FileMetaData:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=row_group_size, store_schema=store_schema)
    return pq.ParquetFile(sink).metadata


@settings(max_examples=examples(150), deadline=None)
@given(anything, rows())
def test_mask_selects_the_rows_that_the_evaluator_selects(predicate: Predicate, table: list[dict[str, Any]]) -> None:
    bound = bind(predicate, SCHEMA)
    batch = pa.RecordBatch.from_pylist(table, SCHEMA)
    assert mask(bound, batch).to_pylist() == select_rows(predicate, table)
    halves = pa.concat_tables([pa.table(batch.slice(0, 1)), pa.table(batch.slice(1))])
    assert mask(bound, halves).to_pylist() == select_rows(predicate, table)


FLOATS = ("d", "f", "s.d")


def nans(table: list[dict[str, Any]], path: str) -> int:
    return sum(isinstance(value := cell(row, path), float) and math.isnan(value) for row in table)


#: Columns that Spark compares without losing a value.
PAIRS = [("i", "l"), ("l", "s.a"), ("f", "d"), ("d", "f"), ("i", "d"), ("t", "s.t")]
PAIRS += [(name, name) for name in ("m", "b", "at", "day", "flag")]


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(PAIRS), st.sampled_from(["=", "<=>", "!=", "<", "<=", ">", ">="]), st.booleans(), rows())
def test_two_columns_compare_as_the_evaluator_says(
    pair: tuple[str, str], op: Any, negated: bool, table: list[dict[str, Any]]
) -> None:
    compared = ColumnComparison(pair[0], op, pair[1])
    predicate: Predicate = Not(compared) if negated else compared
    bound = bind(predicate, SCHEMA)
    batch = pa.RecordBatch.from_pylist(table, SCHEMA)
    assert mask(bound, batch).to_pylist() == select_rows(predicate, table)
    assert mask(bound, pa.table(batch)).to_pylist() == select_rows(predicate, table)
    assert columns_of(bound) == {path.partition(".")[0] for path in pair}
    assert may_match(bound, {}, pa.array([len(table), 0])).tolist() == [True, False]


@settings(max_examples=examples(150), deadline=None)
@given(
    anything,
    st.lists(st.tuples(rows(), st.sets(st.sampled_from(SCHEMA.names)), st.booleans()), min_size=1, max_size=3),
    st.integers(1, 4),
)
def test_no_row_group_or_file_with_a_selected_row_is_left_out(
    predicate: Predicate,
    files: list[tuple[list[dict[str, Any]], set[str], bool]],
    row_group_size: int,
) -> None:
    footers, wanted_units, nan_counts = [], [], []
    for table, missing, store_schema in files:
        kept = SCHEMA if missing == set(SCHEMA.names) else pa.schema([f for f in SCHEMA if f.name not in missing])
        footers.append(footer(pa.Table.from_pylist(table, kept), row_group_size, store_schema))
        nan_counts.append({path: nans(table, path) for path in FLOATS if path.partition(".")[0] not in missing})
        truths = select_rows(predicate, [{name: row[name] for name in kept.names} for row in table])
        wanted_units.append([any(truths[i : i + row_group_size]) for i in range(0, len(table), row_group_size)])
    bound = bind(predicate, SCHEMA)
    wanted_files = np.array([any(units) for units in wanted_units])
    without_nan = [[path for path, count in counts.items() if not count] for counts in nan_counts]
    for nan_free in ((), without_nan):
        bounds, row_counts, file_index = row_group_bounds(footers, sorted(PATHS), SCHEMA, nan_free)
        unit_flags = may_match(bound, bounds, row_counts)
        assert not (np.concatenate(wanted_units) & ~unit_flags).any()
        file_flags = may_match(bound, *fold_files(bounds, row_counts, file_index, len(files)))
        assert not (wanted_files & ~file_flags).any()

    for counts in (nan_counts, [{}] * len(files)):
        facts = [
            collect_file_stats(metadata, metadata.schema.to_arrow_schema(), sorted(PATHS), of_file)
            for metadata, of_file in zip(footers, counts, strict=True)
        ]
        decoded = [FileStats.of_dict(json.loads(json.dumps(asdict(one)))) for one in facts]
        assert decoded == facts
        assert not (wanted_files & ~may_match(bound, *fold_file_stats(decoded, sorted(PATHS), SCHEMA))).any()


@given(st.lists(rows(), max_size=3))
def test_nan_is_counted_as_the_evaluator_counts_it(tables: list[list[dict[str, Any]]]) -> None:
    counts = NanCounts(SCHEMA, sorted(PATHS))
    for table in tables:
        counts.add(pa.Table.from_pylist(table, SCHEMA))
    everything = [row for table in tables for row in table]
    assert counts.by_path == {path: nans(everything, path) for path in FLOATS}


@given(filters())
def test_the_columns_of_a_filter_are_those_it_names(predicate: Predicate) -> None:
    assert columns_of(predicate) <= set(SCHEMA.names)
    assert columns_of(bind(predicate, SCHEMA)) <= columns_of(predicate)

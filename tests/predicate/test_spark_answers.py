"""Spark is the oracle: conditions select the rows that Spark selected when ``tests/fixtures/spark`` was recorded."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat.errors import InvalidInputError
from lakeformat.files.footer_bounds import row_group_bounds
from lakeformat.predicate import Not, bind, mask, may_match, parse_where
from tests.helpers.pushed_filters import CONDITIONS
from tests.helpers.spark_answers import Answers, answers, selected
from tests.helpers.spark_questions import (
    FUNCTION_BATCHES,
    FUNCTION_ZONES,
    QUESTIONS,
    Question,
    functions_name,
    zone_name,
)
from tests.helpers.tables import a_table
from tests.helpers.typed_filters import FILTERS
from tests.helpers.zoned_conditions import HARD, SKIPPED_DAY, ZONES


@pytest.fixture(scope="module")
def types() -> tuple[Question, Answers]:
    """Return the rows of every type, and the answers of Spark."""
    return QUESTIONS["types"](), answers("types")


@pytest.fixture(scope="module")
def file(types: tuple[Question, Answers], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the rows of every type; a row group has four rows."""
    path = tmp_path_factory.mktemp("types") / "rows.parquet"
    pq.write_table(types[0].rows, path, row_group_size=4)
    return path


@pytest.mark.parametrize("text", FILTERS)
def test_filter_selects_the_rows_of_spark(text: str, file: Path, types: tuple[Question, Answers]) -> None:
    table = pq.read_table(file)
    bound = bind(parse_where(text), table.schema, zone=types[0].zone)
    ids = table.filter(mask(bound, table))["id"].to_pylist()
    assert ids == selected(types[1][text])

    columns = [name for name in table.column_names if name != "s"] + ["s.a", "s.t", "s"]
    bounds, row_counts, _ = row_group_bounds([pq.read_metadata(file)], columns, table.schema)
    kept = may_match(bound, bounds, row_counts)
    assert {i // 4 for i in ids} <= {unit for unit, flag in enumerate(kept) if flag}


@pytest.fixture(scope="module")
def pushed() -> tuple[Question, Answers]:
    """Return the rows and the answers about filters that Spark pushes."""
    return QUESTIONS["pushed_filters"](), answers("pushed_filters")


#: Casts that are written as functions of a type are Spark's alone.
_BY_TYPE = re.compile(r"(float|double)\(")


@pytest.mark.parametrize("text", [text for text in CONDITIONS if not _BY_TYPE.search(text)])
def test_condition_that_spark_can_push_selects_its_rows(text: str, pushed: tuple[Question, Answers]) -> None:
    question, theirs = pushed
    condition = bind(parse_where(text), question.rows.schema, zone=question.zone)
    assert question.rows.filter(mask(condition, question.rows))["id"].to_pylist() == selected(theirs[text])


def test_two_conditions_select_no_row_and_the_others_some(pushed: tuple[Question, Answers]) -> None:
    assert {text for text, answer in pushed[1].items() if "t" not in answer} == {"f = 0.1", "part is null"}


def _ids(table: pa.Table, text: str, zone: str) -> list[int] | None:
    """Return the rows that we select; None if the condition compares what cannot be compared."""
    try:
        return table.filter(mask(bind(parse_where(text), table.schema, zone=zone), table))["id"].to_pylist()
    except InvalidInputError as error:
        if "cannot be compared" in str(error):
            return None
        raise


@pytest.mark.parametrize("zone", ZONES)
def test_conditions_on_times_select_the_rows_of_a_session_in_the_zone(zone: str) -> None:
    question, theirs = QUESTIONS[zone_name(zone)](), answers(zone_name(zone))
    ours = {text: ids for text in theirs if (ids := _ids(question.rows, text, zone)) is not None}
    assert len(ours) > len(theirs) * 0.85
    assert {text: ids for text, ids in ours.items() if ids != selected(theirs[text])} == {}
    assert len({theirs[text] for text in ours}) > 50


@pytest.mark.parametrize("zone", ZONES)
def test_a_table_in_folders_of_days_skips_no_row_of_the_zone(zone: str) -> None:
    question, theirs = QUESTIONS[zone_name(zone)](), answers(zone_name(zone))
    table = a_table(rows=question.rows, partition_by="day", operation="bulk_insert")
    for text in (*HARD, *SKIPPED_DAY):
        found = table.to_arrow(["id"], where=text, time_zone=zone)["id"].to_pylist()
        assert (text, sorted(found)) == (text, selected(theirs[text]))


def _answer(text: str, table: pa.Table, zone: str) -> str | None:
    """Return our answer as the record writes it; None if the condition is refused."""
    try:
        predicate = bind(parse_where(text), table.schema, zone=zone)
    except InvalidInputError:
        return None
    try:
        yes, no = mask(predicate, table).to_pylist(), mask(Not(predicate), table).to_pylist()
    except InvalidInputError:
        return "error"
    return "".join("t" if one else "f" if other else "n" for one, other in zip(yes, no, strict=True))


@pytest.mark.parametrize("batch", FUNCTION_BATCHES)
@pytest.mark.parametrize("zone", FUNCTION_ZONES)
def test_conditions_with_functions_have_the_values_of_spark(zone: str, batch: int) -> None:
    name = functions_name(zone, batch)
    rows, theirs = QUESTIONS[name]().rows, answers(name)
    ours = {text: answer for text in theirs if (answer := _answer(text, rows, zone)) is not None}
    assert ours == {text: theirs[text] for text in ours}
    assert len(ours) > 60

"""Writes and reads are recorded by OpenTelemetry's own SDK, which keeps spans and metrics in memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import lakeformat
from lakeformat import Table
from tests.helpers.telemetry import collect

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


def rows(start: int, stop: int) -> pa.Table:
    return pa.table({"id": range(start, stop), "v": [f"v{at}" for at in range(start, stop)]}, SCHEMA)


@pytest.fixture
def collected() -> Iterator[tuple[InMemorySpanExporter, InMemoryMetricReader]]:
    with collect() as collected:
        yield collected


@pytest.fixture
def spans(collected: tuple[InMemorySpanExporter, InMemoryMetricReader]) -> InMemorySpanExporter:
    return collected[0]


@pytest.fixture
def reader(collected: tuple[InMemorySpanExporter, InMemoryMetricReader]) -> InMemoryMetricReader:
    return collected[1]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return lakeformat.create(str(tmp_path / "t"), SCHEMA, record_key="id")


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (found,) = [span for span in spans.get_finished_spans() if span.name == name]
    return found


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    return dict(span.attributes or {})


def sums(reader: InMemoryMetricReader, table: Table) -> dict[tuple[str, ...], Any]:
    """Return the sum or the count of each metric of a table, by name, operation, and change or step."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        (metric.name, *(str(value) for name, value in sorted(point.attributes.items()) if not skipped(name))): (
            point.value if hasattr(point, "value") else point.count
        )
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if point.attributes["db.collection.name"] == table.location
    }


def skipped(name: str) -> bool:
    return name in {"db.collection.name", "db.system.name"}


def test_write_is_a_span_with_its_steps_as_children(table: Table, spans: InMemorySpanExporter) -> None:
    table.upsert(rows(0, 10))
    spans.clear()
    with trace.get_tracer("test").start_as_current_span("job"):
        result = table.upsert(rows(5, 20))
    span, job = named(spans, "lakeformat.upsert"), named(spans, "job")
    assert span.parent is not None
    assert span.parent.span_id == job.context.span_id
    assert attributes(span) == {
        "db.system.name": "hudi",
        "db.collection.name": table.location,
        "db.operation.name": "upsert",
        "lakeformat.instant_time": result.instant_time,
        **{f"lakeformat.rows.{change}": count for change, count in result.report["rows"].items()},
        **{f"lakeformat.files.{what}": count for what, count in result.report["files"].items() if what != "bytes"},
        "lakeformat.bytes": result.files.bytes,
    }
    assert (result.rows.updated, result.rows.inserted) == (5, 10)
    steps = [one for one in spans.get_finished_spans() if one.parent and one.parent.span_id == span.context.span_id]
    assert [one.name for one in steps] == [f"lakeformat.{step['step']}" for step in result.report["steps"]]
    tag = next(step for step in result.report["steps"] if step["step"] == "tag")
    assert attributes(named(spans, "lakeformat.tag"))["lakeformat.keys"] == tag["keys"] == 15


def test_metrics_of_writes_and_reads_add_up(table: Table, reader: InMemoryMetricReader) -> None:
    written = [table.upsert(rows(0, 10)).files.bytes, table.upsert(rows(5, 20)).files.bytes]
    assert table.to_arrow(where="id < 5").num_rows == 5
    found = sums(reader, table)
    assert found["lakeformat.rows", "upsert", "inserted"] == 20
    assert found["lakeformat.rows", "upsert", "updated"] == 5
    assert found["lakeformat.bytes", "upsert"] == sum(written)
    assert found["lakeformat.operation.duration", "upsert"] == 2
    assert found["lakeformat.step.duration", "upsert", "tag"] >= 1
    assert found["lakeformat.rows", "read", "read"] == 5
    assert found["lakeformat.files", "read", "read"] == 1
    assert found["lakeformat.operation.duration", "read"] == 1


def test_read_counts_skipped_files_and_ends_when_its_consumer_stops(table: Table, spans: InMemorySpanExporter) -> None:
    for start in (0, 100, 200):
        table.bulk_insert(rows(start, start + 10))
    spans.clear()
    assert table.to_arrow(where="id >= 200").num_rows == 10
    span = attributes(named(spans, "lakeformat.read"))
    assert (span["lakeformat.files.read"], span["lakeformat.files.skipped"], span["lakeformat.rows.read"]) == (1, 2, 10)
    assert attributes(named(spans, "lakeformat.plan"))["lakeformat.files_after"] == 1
    spans.clear()
    assert table.to_arrow(limit=3).num_rows == 3
    assert attributes(named(spans, "lakeformat.read"))["lakeformat.rows.read"] == 3


def test_failed_write_is_a_span_with_the_error(table: Table, spans: InMemorySpanExporter) -> None:
    def refuse(_: object) -> bool:
        return False

    with pytest.raises(lakeformat.ValidationFailedError):
        table.upsert(rows(0, 3), validators=[refuse])
    span = named(spans, "lakeformat.upsert")
    assert span.status.status_code is trace.StatusCode.ERROR
    assert attributes(span)["error.type"] == "ValidationFailedError"
    assert [event.name for event in span.events] == ["exception"]
    assert table.count() == 0


def test_services_and_conditions_are_spans(table: Table, spans: InMemorySpanExporter) -> None:
    for start in (0, 10):
        table.bulk_insert(rows(start, start + 10))
    spans.clear()
    table.update({"v": "'x'"}, where="id = 3")
    table.cluster()
    names = {span.name for span in spans.get_finished_spans()}
    assert names >= {"lakeformat.upsert", "lakeformat.cluster", "lakeformat.rewrite"}


def test_nothing_is_imported_without_opentelemetry(tmp_path: Path) -> None:
    code = (
        "import lakeformat, sys\n"
        "table = lakeformat.create(sys.argv[1], {'id': 'int64'}, record_key='id')\n"
        "table.upsert([{'id': 1}])\n"
        "assert table.count() == 1 and table.to_arrow().num_rows == 1\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "t")], check=True)

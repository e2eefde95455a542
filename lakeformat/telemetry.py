"""OpenTelemetry spans and metrics of writes and reads.

They are recorded if the process has imported OpenTelemetry, as ``opentelemetry-instrument`` does. Otherwise nothing is
recorded, and nothing is imported. Where spans and metrics go is up to the providers that the process has set.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from time import monotonic
from typing import Any, Final

import pyarrow as pa

__all__ = ["Operation", "record_batches"]

_SCOPE: Final = "lakeformat"
_DURATION: Final = "lakeformat.operation.duration"
_STEP_DURATION: Final = "lakeformat.step.duration"
#: Maps each counter to its unit and its description.
_COUNTERS: Final[Mapping[str, tuple[str, str]]] = {
    "lakeformat.rows": ("{row}", "Rows, by what an operation did with them"),
    "lakeformat.files": ("{file}", "Files, by what an operation did with them"),
    "lakeformat.bytes": ("By", "Bytes of the files that an operation wrote or read"),
}


class Operation:
    """One write or read as a span, with a child span for each of its steps.

    Span and metrics have the attributes ``db.system.name`` (``hudi``), ``db.collection.name`` (the table's location)
    and ``db.operation.name``, as OpenTelemetry's conventions for databases name them.
    """

    def __init__(self, name: str, location: str) -> None:
        self._attributes = {
            "db.system.name": "hudi",
            "db.collection.name": location,
            "db.operation.name": name,
        }
        self._start = monotonic()
        self._span: Any = None
        if "opentelemetry.trace" in sys.modules:
            from opentelemetry import trace

            self._span = trace.get_tracer(_SCOPE).start_span(f"{_SCOPE}.{name}", attributes=self._attributes)

    @contextmanager
    def step(self, name: str, counts: Mapping[str, Any]) -> Iterator[None]:
        """Record the block as a step. Spans that the block starts, such as those of requests, are its children.

        Args:
            counts: the step's counts, which the block may add; they become attributes of the step's span.
        """
        if self._span is None:
            yield
            return
        from opentelemetry import trace

        start = monotonic()
        context = trace.set_span_in_context(self._span)
        with trace.get_tracer(_SCOPE).start_as_current_span(f"{_SCOPE}.{name}", context) as span:
            yield
            span.set_attributes(_as_attributes(counts))
        step = {**self._attributes, "lakeformat.step": name}
        _instruments()[_STEP_DURATION].record(monotonic() - start, step)

    def end(
        self,
        counts: Mapping[str, Any],
        *,
        rows: Mapping[str, int] | None = None,
        files: Mapping[str, int] | None = None,
        size_bytes: int = 0,
        error: BaseException | None = None,
    ) -> None:
        """End the span and add to the metrics. Only the first call has an effect.

        Args:
            counts: further attributes of the span.
            rows, files: numbers of rows and files, by what the operation did with them.
            size_bytes: bytes of the files that the operation wrote or read.
            error: why the operation failed; None if it did not.
        """
        span, self._span = self._span, None
        if span is None:
            return
        from opentelemetry import trace

        counted = {"lakeformat.rows": rows or {}, "lakeformat.files": files or {}}
        flat = {f"{name}.{change}": count for name, some in counted.items() for change, count in some.items()}
        span.set_attributes({**_as_attributes(counts), **flat, "lakeformat.bytes": size_bytes})
        measured = dict(self._attributes)
        if error is not None:
            measured["error.type"] = type(error).__name__
            span.set_attribute("error.type", measured["error.type"])
            span.record_exception(error)
            span.set_status(trace.StatusCode.ERROR, str(error))
        span.end()
        instruments = _instruments()
        instruments[_DURATION].record(monotonic() - self._start, measured)
        for name, some in counted.items():
            for change, count in some.items():
                instruments[name].add(count, {**self._attributes, "lakeformat.change": change})
        instruments["lakeformat.bytes"].add(size_bytes, self._attributes)


def record_batches(
    operation: Operation, batches: Iterator[pa.RecordBatch], files: int, skipped: int, size_bytes: int
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the batches of a read, and end its operation after the last one, or when the consumer stops.

    Args:
        files, skipped: numbers of files that the read opens and leaves out.
        size_bytes: bytes that the read takes from these files, compressed.
    """
    rows, error = 0, None
    try:
        for batch in batches:
            rows += batch.num_rows
            yield batch
    except Exception as raised:
        error = raised
        raise
    finally:
        if (close := getattr(batches, "close", None)) is not None:
            close()
        counted = {"read": files, "skipped": skipped}
        operation.end({}, rows={"read": rows}, files=counted, size_bytes=size_bytes, error=error)


def _as_attributes(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts as attributes of a span. Values of other types become text."""
    return {
        f"lakeformat.{name}": value if isinstance(value, bool | int | float | str) else str(value)
        for name, value in counts.items()
    }


@cache
def _instruments() -> Mapping[str, Any]:
    """Make the instruments, once in a process, by their names."""
    from opentelemetry import metrics

    meter = metrics.get_meter(_SCOPE)
    return {
        _DURATION: meter.create_histogram(_DURATION, "s", "Seconds of a write or read"),
        _STEP_DURATION: meter.create_histogram(_STEP_DURATION, "s", "Seconds of a step of a write or read"),
        **{name: meter.create_counter(name, unit, what) for name, (unit, what) in _COUNTERS.items()},
    }

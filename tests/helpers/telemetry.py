"""OpenTelemetry's SDK in this process, which takes its providers only once; here it forgets the earlier ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import metrics, trace
from opentelemetry.metrics import _internal
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util._once import Once

from lakeformat import telemetry


def forget_providers() -> None:
    """Let the process take other providers, as OpenTelemetry's own tests do."""
    trace._TRACER_PROVIDER_SET_ONCE, trace._TRACER_PROVIDER = Once(), None
    _internal._METER_PROVIDER_SET_ONCE, _internal._METER_PROVIDER = Once(), None
    telemetry._instruments.cache_clear()


@contextmanager
def collect() -> Iterator[tuple[InMemorySpanExporter, InMemoryMetricReader]]:
    """Collect the spans and the metrics of the block, in all threads."""
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracing, metering = TracerProvider(), MeterProvider([reader])
    tracing.add_span_processor(SimpleSpanProcessor(spans))
    forget_providers()
    trace.set_tracer_provider(tracing)
    metrics.set_meter_provider(metering)
    try:
        yield spans, reader
    finally:
        tracing.shutdown()
        metering.shutdown()
        forget_providers()

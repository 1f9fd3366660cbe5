"""What the tests of tracing share: spans in memory, and what is read from them."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import SpanContext, SpanKind, Tracer


class Spans:
    """A provider of its own, and the spans that have ended under it."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = self.provider.get_tracer("the app")

    @property
    def all(self) -> Sequence[ReadableSpan]:
        """In the order of their ends."""
        return self._exporter.get_finished_spans()

    def of(self, name: str) -> list[ReadableSpan]:
        """Those of this name, in the order in which they began."""
        return sorted((each for each in self.all if each.name == name), key=lambda each: each.start_time or 0)

    def one(self, name: str) -> ReadableSpan:
        """The only one of this name."""
        (found,) = self.of(name)
        return found

    def tree(self) -> dict[str, str | None]:
        """The name of each span's parent, or "elsewhere" for one that isn't here."""
        names = {context(each).span_id: each.name for each in self.all}
        return {
            each.name: None if each.parent is None else names.get(each.parent.span_id, "elsewhere")
            for each in self.all
        }

    def clear(self) -> None:
        self._exporter.clear()


def context(span: ReadableSpan) -> SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def traces(spans: Sequence[ReadableSpan]) -> set[int]:
    return {context(each).trace_id for each in spans}


def links(span: ReadableSpan) -> list[int]:
    """The ids of the spans that it's linked to."""
    return [each.context.span_id for each in span.links]


def about(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def errors(span: ReadableSpan) -> list[dict[str, object]]:
    """Its exceptions' attributes."""
    return [dict(event.attributes or {}) for event in span.events if event.name == "exception"]


PRODUCER, CONSUMER, INTERNAL = SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.INTERNAL

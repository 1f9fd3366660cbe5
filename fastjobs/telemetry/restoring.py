"""What CarryTrace gives back to the context that a job runs in, here and in the processes of `process=True`."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.trace import INVALID_SPAN_CONTEXT, NonRecordingSpan, SpanContext

from fastjobs.telemetry import trace_context

BAGGAGE = "baggage"
MOST_BAGGAGE = 1024
"""How many bytes of baggage go with a job. It's whole entries: those that don't fit are left out."""

_baggage = W3CBaggagePropagator()


class RestoredTrace:
    """Restores what CarryTrace carries, and makes no spans: for the processes of kinds with `process=True`."""

    def carry(self, into: MutableMapping[str, str]) -> None:
        """Nothing."""

    def restore(self, carried: Mapping[str, str]) -> None:
        """Sets the trace in the current context."""
        restore_trace(carried)


class RestoredTraceAndBaggage(RestoredTrace):
    """The same of one with `baggage=True`: of others none is restored, whatever stands in the database."""

    def restore(self, carried: Mapping[str, str]) -> None:
        """Sets the trace, and the baggage if there is any, in the current context."""
        restore_trace(carried)
        restore_baggage(carried)


class _Carried(NonRecordingSpan):
    """The span that a job was pushed in, as it was carried. It's read as someone asks: without an SDK few ever do."""

    def __init__(self, carried: Mapping[str, str]) -> None:
        self._carried: Mapping[str, str] | None = carried
        self._context = INVALID_SPAN_CONTEXT

    def get_span_context(self) -> SpanContext:
        if self._carried is not None:
            self._context = trace_context.read(self._carried) or INVALID_SPAN_CONTEXT
            self._carried = None
        return self._context


def restore_trace(carried: Mapping[str, str]) -> None:
    """Makes the push's span current, if there's any."""
    if trace_context.PARENT in carried:
        contexts.attach(trace.set_span_in_context(_Carried(carried)))


def restore_baggage(carried: Mapping[str, str]) -> None:
    """Sets the baggage, if there's any."""
    text = carried.get(BAGGAGE)
    if text is not None and len(text) <= MOST_BAGGAGE and text.isascii():
        contexts.attach(_baggage.extract({BAGGAGE: text}))


def carry_baggage(into: MutableMapping[str, str]) -> None:
    """Puts as much of the current baggage in as goes with a job."""
    all_of_it: dict[str, str] = {}
    _baggage.inject(all_of_it)
    kept, length = list[str](), -1
    for entry in all_of_it.get(BAGGAGE, "").split(","):
        length += len(entry) + 1
        if length > MOST_BAGGAGE:
            break
        kept.append(entry)
    if text := ",".join(kept):
        into[BAGGAGE] = text

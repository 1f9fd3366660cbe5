"""`CarryTrace`: OpenTelemetry's trace goes with a request's jobs, and their pushes and runs are spans of it.

It needs opentelemetry-api alone. Where the app sets no SDK up, nothing is recorded, and a trace that came with a
request is carried all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextvars import Token
from functools import lru_cache

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanKind, Tracer, TracerProvider
from opentelemetry.util.types import AttributeValue

from fastjobs.core.job import Job
from fastjobs.core.outcome import Outcome
from fastjobs.core.request_id import carried_id, request_id
from fastjobs.telemetry import conventions as names
from fastjobs.telemetry import exceptions, trace_context

Attributes = dict[str, AttributeValue]

BAGGAGE = "baggage"
MOST_BAGGAGE = 1024
"""How many bytes of baggage go with a job. It's whole entries: those that don't fit are left out."""

_SUPPRESSED = "suppress_instrumentation"
"""The name by which instrumentations of libraries ask whether they're to make no spans."""
_baggage = W3CBaggagePropagator()


class RestoredTrace:
    """Restores what CarryTrace carries, and makes no spans: for the processes of kinds with `process=True`."""

    def carry(self, into: MutableMapping[str, str]) -> None:
        """Nothing."""

    def restore(self, carried: Mapping[str, str]) -> None:
        """Sets the trace, and the baggage if there is any, in the current context."""
        _restore_trace(carried)
        _restore_baggage(carried)


class CarryTrace:
    """Takes the trace of a request to its jobs: `Queue(carry=[CarryRequestID(), CarryTrace()])`.

    Each push is a PRODUCER span `send <kind>`, whose parent is the span that is current, and each run, retries too,
    is a CONSUMER span `process <kind>`, a child of its job's push and linked to it; an on_fail is an `on_fail <kind>`
    beside them. They're current in what they tell of, so that a handler's own spans and log lines are in the trace, of
    a `def` and of `process=True` too. Asking the store for jobs makes no spans. A job that a schedule pushed begins a
    trace of its own.

    A push's span ends with the push; whether its transaction commits, it doesn't know. A run's ends as its handler
    does, or, after `done_in`, once the store has said whether the job is done. A run that failed has its error, with a
    stack trace. All have the messaging conventions' attributes, and the run's `fastjobs.attempt`, `fastjobs.outcome`
    and `fastjobs.waited` (seconds).

    - `link_only`: runs begin traces of their own, linked to the push's: for jobs that run hours after it, or for
      traces that would have thousands of them.
    - `baggage`: carries OpenTelemetry's baggage too, 1 KB of it at most. It comes with requests, so whoever sends one
      can put something in the database.
    - `tracer_provider`: by default the global one, also where it's set later than this is made.

    The app sets the SDK up, with its exporter. Needs the extra `otel`.
    """

    in_process = RestoredTrace

    def __init__(
        self,
        *,
        link_only: bool = False,
        baggage: bool = False,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        self._link_only = link_only
        self._baggage = baggage
        self._tracer: Tracer = trace.get_tracer(names.SCOPE, tracer_provider=tracer_provider)

    def carry(self, into: MutableMapping[str, str]) -> None:
        """The span that is current, and the baggage if it's asked for."""
        self._carry(trace.get_current_span(), into)

    def restore(self, carried: Mapping[str, str]) -> None:
        """Makes the push's span the parent of what follows, but with `link_only`, and sets the baggage."""
        if not self._link_only:
            _restore_trace(carried)
        if self._baggage:
            _restore_baggage(carried)

    def pushing(self, kind: str, count: int) -> _Push:
        """A span for the push."""
        name, common = _of(names.SEND, kind)
        about = dict(common)
        if count > 1:
            about[names.BATCH_COUNT] = count
        if (request := request_id()) is not None:
            about[names.CONVERSATION_ID] = request
        span = self._tracer.start_span(
            name,
            kind=SpanKind.PRODUCER,
            attributes=about,
            record_exception=False,
            set_status_on_exception=False,
        )
        return _Push(self._carry, span, count)

    def running(self, job: Job, carried: Mapping[str, str], waited: float, *, on_fail: bool) -> _Run | None:
        """A span for the run, current in the run's own context."""
        push = trace_context.read(carried) if self._link_only else trace.get_current_span().get_span_context()
        has_push = push is not None and push.is_valid
        name, common = _of(names.ON_FAIL if on_fail else names.PROCESS, job.kind)
        about = {**common, names.MESSAGE_ID: job.id, names.ATTEMPT: job.attempts}
        if not on_fail:
            about[names.WAITED] = waited
        if (request := carried_id(carried)) is not None:
            about[names.CONVERSATION_ID] = request
        span = self._tracer.start_span(
            name,
            kind=SpanKind.INTERNAL if on_fail else SpanKind.CONSUMER,
            attributes=about,
            links=(Link(push),) if push is not None and has_push else (),
            record_exception=False,
            set_status_on_exception=False,
        )
        if span.get_span_context().is_valid:
            contexts.attach(trace.set_span_in_context(span))
        return _Run(span) if span.is_recording() else None

    def unseen(self) -> None:
        """Has no instrumentation of a library make spans for what the queue's own loops do."""
        contexts.attach(contexts.set_value(_SUPPRESSED, True))

    def _carry(self, span: Span, into: MutableMapping[str, str]) -> None:
        trace_context.write(span.get_span_context(), into)
        if self._baggage:
            _carry_baggage(into)


class _Push:
    """A push and its span."""

    __slots__ = ("_carry", "_count", "_span", "_token")

    def __init__(
        self, carry: Callable[[Span, MutableMapping[str, str]], None], span: Span, count: int
    ) -> None:
        self._carry = carry
        self._span = span
        self._count = count
        self._token: Token[Context] | None = None

    def carry(self, into: MutableMapping[str, str]) -> None:
        self._carry(self._span, into)

    def begin(self) -> None:
        if self._span.is_recording():
            self._token = contexts.attach(trace.set_span_in_context(self._span))

    def end(self, ids: Sequence[str | None] | None, error: BaseException | None) -> None:
        span = self._span
        if self._token is not None:
            contexts.detach(self._token)
        if not span.is_recording():
            return
        if ids is not None:
            pushed = len(ids) - ids.count(None)
            if pushed < self._count:
                span.set_attribute(names.PUSHED, pushed)
            elif pushed == 1 and ids[0] is not None:
                span.set_attribute(names.MESSAGE_ID, ids[0])
        if error is not None:
            exceptions.told(span, error)
        span.end()


class _Run:
    """A run and its span."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def end(self, outcome: Outcome | None, error: BaseException | None) -> None:
        span = self._span
        if outcome is not None:
            span.set_attribute(names.OUTCOME, outcome.value)
        if error is not None:
            exceptions.told(span, error)
        span.end()


@lru_cache(maxsize=1024)
def _of(operation: str, kind: str) -> tuple[str, Attributes]:
    """The name of a kind's spans, and what all of them have."""
    about: Attributes = {
        names.SYSTEM: names.FASTJOBS,
        names.OPERATION_NAME: operation,
        names.DESTINATION: kind,
    }
    if operation != names.ON_FAIL:
        about[names.OPERATION_TYPE] = operation
    return f"{operation} {kind}", about


def _restore_trace(carried: Mapping[str, str]) -> None:
    found = trace_context.read(carried)
    if found is not None:
        contexts.attach(trace.set_span_in_context(NonRecordingSpan(found)))


def _restore_baggage(carried: Mapping[str, str]) -> None:
    text = carried.get(BAGGAGE)
    if text is not None and len(text) <= MOST_BAGGAGE:
        contexts.attach(_baggage.extract({BAGGAGE: text}))


def _carry_baggage(into: MutableMapping[str, str]) -> None:
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

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
from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN_CONTEXT,
    ProxyTracerProvider,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
    Tracer,
    TracerProvider,
)
from opentelemetry.util.types import AttributeValue

from fastjobs.core.errors import RegistrationError
from fastjobs.core.job import Job
from fastjobs.core.outcome import Outcome
from fastjobs.core.request_id import carried_id, request_id
from fastjobs.telemetry import conventions as names
from fastjobs.telemetry import exceptions, trace_context
from fastjobs.telemetry.restoring import (
    RestoredTrace,
    RestoredTraceAndBaggage,
    carry_baggage,
    restore_baggage,
    restore_trace,
)

Attributes = dict[str, AttributeValue]

_SAMPLED = TraceFlags.SAMPLED
_OFTEN = 1000
"""How many pushes and runs ask each whether an SDK has been set up since; then one of 16 does."""
_SUPPRESSED = "suppress_instrumentation"
"""The name by which instrumentations of libraries ask whether they're to make no spans."""


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

    The app sets the SDK up, with its exporter. Needs the extra `otel`. RegistrationError for what none of these can be.
    """

    in_process: type[RestoredTrace] = RestoredTrace

    def __init__(
        self,
        *,
        link_only: bool = False,
        baggage: bool = False,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        for name, value in (("link_only", link_only), ("baggage", baggage)):
            if not isinstance(value, bool):  # "no", as an environment says it, would be a yes
                raise RegistrationError(f"CarryTrace: {name} is True or False, not {value!r}")
        if tracer_provider is not None and not isinstance(tracer_provider, TracerProvider):
            raise RegistrationError(
                f"CarryTrace: tracer_provider is OpenTelemetry's TracerProvider, not {tracer_provider!r}"
            )
        self._link_only = link_only
        self._baggage = baggage
        if baggage:
            self.in_process = RestoredTraceAndBaggage
        self._tracer: Tracer = trace.get_tracer(names.SCOPE, tracer_provider=tracer_provider)
        self._has_sdk = tracer_provider is not None
        self._asked = 0

    def carry(self, into: MutableMapping[str, str]) -> None:
        """The span that is current, and the baggage if it's asked for."""
        self._carry(trace.get_current_span(), into)

    def restore(self, carried: Mapping[str, str]) -> None:
        """Makes the push's span the parent of what follows, but with `link_only`, and sets the baggage."""
        if not self._link_only:
            restore_trace(carried)
        if self._baggage:
            restore_baggage(carried)

    def pushing(self, kind: str, count: int) -> _Push | None:
        """A span for the push; None where it wouldn't be recorded, and the current span's place says as much."""
        if not (self._has_sdk or self._finds_sdk()):
            return None
        before = trace.get_current_span().get_span_context()
        if before.is_valid and not (before.is_remote or before.trace_flags & _SAMPLED):
            return None  # the request's own span was sampled away here, so that its child would be too
        name, common = _of(names.SEND, kind)
        span = self._tracer.start_span(name, kind=SpanKind.PRODUCER, attributes=common)
        if span.is_recording():
            if count > 1:
                span.set_attribute(names.BATCH_COUNT, count)
            if (request := request_id()) is not None:
                span.set_attribute(names.CONVERSATION_ID, request)
        elif _says(span, before):
            return None
        return _Push(self._carry, span, count)

    def running(self, job: Job, carried: Mapping[str, str], waited: float, *, on_fail: bool) -> _Run | None:
        """A span for the run, current in the run's own context."""
        if not (self._has_sdk or self._finds_sdk()):
            return None
        before = trace.get_current_span().get_span_context()
        push = (trace_context.read(carried) or INVALID_SPAN_CONTEXT) if self._link_only else before
        name, common = _of(names.ON_FAIL if on_fail else names.PROCESS, job.kind)
        span = self._tracer.start_span(
            name,
            kind=SpanKind.INTERNAL if on_fail else SpanKind.CONSUMER,
            # What a sampler may ask for. The rest is for spans that are recorded.
            attributes=common,
        )
        if not span.is_recording():
            if not _says(span, before):
                contexts.attach(trace.set_span_in_context(span))
            return None
        contexts.attach(trace.set_span_in_context(span))
        if push.is_valid:
            span.add_link(push)
        about: Attributes = {names.MESSAGE_ID: job.id, names.ATTEMPT: job.attempts}
        if not on_fail:
            about[names.WAITED] = waited
        if (request := carried_id(carried)) is not None:
            about[names.CONVERSATION_ID] = request
        span.set_attributes(about)
        return _Run(span)

    def unseen(self) -> None:
        """Has no instrumentation of a library make spans for what the queue's own loops do."""
        contexts.attach(contexts.set_value(_SUPPRESSED, True))

    def _finds_sdk(self) -> bool:
        """Whether there is an SDK by now. Without one there are no spans, and nothing is done for them."""
        self._asked += 1
        if self._asked > _OFTEN and self._asked % 16:
            return False  # whoever has done without for so long hardly ever sets one up, and the question takes time
        self._has_sdk = not isinstance(trace.get_tracer_provider(), ProxyTracerProvider)
        return self._has_sdk

    def _carry(self, span: Span, into: MutableMapping[str, str]) -> None:
        # A run with `link_only` carries its own to a process, or none, in place of its push's.
        if into:
            into.pop(trace_context.PARENT, None)
            into.pop(trace_context.STATE, None)
        trace_context.write(span.get_span_context(), into)
        if self._baggage:
            carry_baggage(into)


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
        # A coroutine that is dropped is closed in any context, in which there's nothing to set back.
        if self._token is not None and (
            not isinstance(error, GeneratorExit) or trace.get_current_span() is span
        ):
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

    __slots__ = ("_span", "trace_id")

    def __init__(self, span: Span) -> None:
        self._span = span
        self.trace_id = f"{span.get_span_context().trace_id:032x}"

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


def _says(span: Span, current: SpanContext) -> bool:
    """Whether the current place says the same as a span that isn't recorded: what is made in it is recorded or not."""
    found = span.get_span_context()
    # One that is none at all is of a tracer that does nothing, as in an SDK that is disabled.
    return not found.is_valid or (
        found.trace_id == current.trace_id and found.trace_flags == current.trace_flags
    )

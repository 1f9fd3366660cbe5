"""What carriers cost a job, pushed and run, in one process and by turns.

    python -m tests.benchmarks carrying

A `Memory` keeps the jobs, as it takes the least time of its own, and what a queue without carriers takes is taken off.
Of so many jobs, 50 at a time are timed, and the least counts: all else that a machine does meanwhile only adds.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import Link, SpanKind, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import fastjobs
from fastjobs.core.request_id import current

TURNS = 10
SOME = 50


class Nowhere(SpanExporter):
    """The spans are made and end, and go nowhere."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def recording() -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(Nowhere()))
    return provider


def unsampled() -> TracerProvider:
    return TracerProvider(sampler=ParentBased(ALWAYS_OFF), shutdown_on_exit=False)


class Least:
    """The least time that one of some jobs took, by the time at which each of them had been done."""

    def __init__(self) -> None:
        self.each = float("inf")
        self._count = 0
        self._since = perf_counter()

    def done(self) -> None:
        self._count += 1
        if self._count % SOME == 0:
            now = perf_counter()
            self.each = min(self.each, (now - self._since) / SOME)
            self._since = now


async def of_a_queue(carry: Sequence[fastjobs.Carrier], jobs: int) -> float:
    """Seconds to push and run a job."""
    queue = fastjobs.Queue(fastjobs.Memory(), carry=carry, workers=8)
    left, done = jobs, asyncio.Event()
    run: Least

    @queue.kind("mail")
    async def mail(user: int) -> None:
        nonlocal left
        run.done()
        left -= 1
        if not left:
            done.set()

    async with queue.running(run=False):
        pushed = Least()
        for user in range(jobs):
            await mail.push(user)
            pushed.done()
    async with queue.running():
        run = Least()
        await done.wait()
    return pushed.each + run.each


async def by_hand(tracer: Tracer, jobs: int) -> float:
    """Seconds to make the same spans, of a push and a run, by the SDK alone."""
    propagator = TraceContextTextMapPropagator()
    common = {"messaging.system": "fastjobs", "messaging.destination.name": "mail"}
    send = {**common, "messaging.operation.name": "send", "messaging.operation.type": "send"}
    process = {**common, "messaging.operation.name": "process", "messaging.operation.type": "process"}
    least = Least()
    for job in range(jobs):
        carried: dict[str, str] = {}
        about: dict[str, Any] = {**send, "messaging.message.conversation_id": "req-1"}
        with tracer.start_as_current_span("send mail", kind=SpanKind.PRODUCER, attributes=about) as span:
            propagator.inject(carried)
            span.set_attribute("messaging.message.id", str(job))
        parent = propagator.extract(carried, contexts.Context())
        about = {
            **process,
            "messaging.message.conversation_id": "req-1",
            "messaging.message.id": str(job),
            "fastjobs.attempt": 1,
            "fastjobs.waited": 0.0,
        }
        with tracer.start_as_current_span(
            "process mail",
            parent,
            kind=SpanKind.CONSUMER,
            attributes=about,
            links=[Link(trace.get_current_span(parent).get_span_context())],
        ) as span:
            span.set_attribute("fastjobs.outcome", "done")
        least.done()
    return least.each


async def measure(jobs: int) -> dict[str, float]:
    id = fastjobs.CarryRequestID()

    def traced(provider: Any) -> list[fastjobs.Carrier]:
        return [id, fastjobs.CarryTrace(tracer_provider=provider)]

    on, off, none = recording(), unsampled(), None
    ways: dict[str, Callable[[], Any]] = {
        "without": lambda: of_a_queue([], jobs),
        "api": lambda: of_a_queue(traced(none), jobs),
        "off": lambda: of_a_queue(traced(off), jobs),
        "on": lambda: of_a_queue(traced(on), jobs),
        "bare": lambda: by_hand(on.get_tracer("bare"), jobs),
    }
    # In a request, with its ID and its span: for the API alone it came from elsewhere.
    current.set("SCK2WDZABCDEFGHIJKLMNOPQRS")
    inbound = trace.SpanContext(0xABC << 64, 77, True, trace.TraceFlags(0))
    outside = trace.set_span_in_context(trace.NonRecordingSpan(inbound))
    dropped = trace.set_span_in_context(off.get_tracer("request").start_span("POST /register"))
    request = trace.set_span_in_context(on.get_tracer("request").start_span("POST /register"))
    took = {name: float("inf") for name in ways}
    for _ in range(TURNS):
        for name, way in ways.items():
            gc.collect()
            token = contexts.attach({"on": request, "bare": request, "off": dropped}.get(name, outside))
            took[name] = min(took[name], await way() * 1e6)
            contexts.detach(token)
    return {
        "without": took["without"],
        "api": took["api"] - took["without"],
        "off": took["off"] - took["without"],
        "on": took["on"] - took["without"],
        "bare": took["bare"],
        "ratio": (took["on"] - took["without"]) / took["bare"],
    }


def main() -> None:
    print(json.dumps(asyncio.run(measure(int(sys.argv[2])))))


if __name__ == "__main__":
    main()

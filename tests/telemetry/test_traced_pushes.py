"""CarryTrace: the spans of pushes, each way to push, and what sampling and options make of a trace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, DEFAULT_ON, ParentBased
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    StatusCode,
    TraceFlags,
    TraceState,
    get_current_span,
)

from fastjobs import (
    CarryTrace,
    Every,
    Memory,
    PayloadError,
    Queue,
    Unique,
    current_job,
)
from fastjobs.core.job import NewJob
from fastjobs.testing import Clock
from tests.telemetry.spans import Spans, about, context, links, traces

pytestmark = pytest.mark.anyio

NewQueue = Callable[..., Queue]


async def _nothing() -> None: ...


async def _takes_a_number(user: int) -> None: ...


async def test_push_many_is_one_span_that_says_how_many(new_queue: NewQueue, spans: Spans) -> None:
    queue = new_queue()
    mail = queue.kind("mail", unique=True)(_takes_a_number)
    await mail.push_many([1, 2, 2])
    send = spans.one("send mail")
    assert about(send)["messaging.batch.message_count"] == 3
    assert about(send)["fastjobs.pushed"] == 2
    assert "messaging.message.id" not in about(send)
    await queue.drain()
    assert [links(each) for each in spans.of("process mail")] == [[context(send).span_id]] * 2
    spans.clear()
    assert await mail.push_many([]) == []
    assert list(spans.all) == []


async def test_a_unique_push_that_finds_its_job_leaves_it_in_the_first_ones_trace(
    new_queue: NewQueue, spans: Spans
) -> None:
    for unique in (True, Unique(latest=True)):
        spans.clear()
        queue = new_queue()
        mail = queue.kind("mail", unique=unique)(_takes_a_number)
        with spans.tracer.start_as_current_span("first"):
            first = await mail.push(1)
        with spans.tracer.start_as_current_span("second"):
            second = await mail.push(1)
        await queue.drain()
        sends = spans.of("send mail")
        assert links(spans.one("process mail")) == [context(sends[0]).span_id]
        if second is None:
            assert about(sends[1])["fastjobs.pushed"] == 0
        else:
            assert about(sends[1])["messaging.message.id"] == first


async def test_a_push_that_fails_is_its_spans_error(new_queue: NewQueue, spans: Spans) -> None:
    class Down(Memory):
        async def push(self, jobs: Any) -> Any:
            raise ConnectionError("no database")

    mail = new_queue(store=Down()).kind("mail")(_takes_a_number)
    with pytest.raises(ConnectionError):
        await mail.push(7)
    send = spans.one("send mail")
    assert send.status.status_code is StatusCode.ERROR
    assert about(send)["error.type"] == "ConnectionError"
    assert not get_current_span().get_span_context().is_valid


@pytest.mark.parametrize("closer", ["another context", "its own"])
async def test_a_push_that_is_dropped_on_its_way_ends_its_span_and_says_no_more(
    spans: Spans, clock: Clock, caplog: pytest.LogCaptureFixture, closer: str
) -> None:
    class Slow(Memory):
        async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
            await asyncio.sleep(60)
            return await super().push(jobs)

    queue = Queue(Slow(clock=clock), clock=clock, carry=[CarryTrace(tracer_provider=spans.provider)])

    @queue.kind("mail")
    async def mail() -> None: ...

    pushing, own = mail.push(), Context()
    own.run(pushing.send, None)
    (Context() if closer == "another context" else own).run(pushing.close)
    assert spans.one("send mail").end_time
    assert not own.run(get_current_span).get_span_context().is_valid or closer == "another context"
    assert not caplog.messages


async def test_a_push_that_is_refused_before_the_store_is_asked_makes_no_span(
    new_queue: NewQueue, spans: Spans
) -> None:
    mail = new_queue().kind("mail")(_takes_a_number)
    with pytest.raises(PayloadError):
        await mail.push("seven")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert list(spans.all) == []


async def test_the_store_is_asked_within_the_pushs_span(new_queue: NewQueue, spans: Spans) -> None:
    class Traced(Memory):
        async def push(self, jobs: Any) -> Any:
            with spans.tracer.start_as_current_span("INSERT"):
                return await super().push(jobs)

    queue = new_queue(store=Traced())
    mail = queue.kind("mail")(_takes_a_number)
    await mail.push(1)
    assert spans.tree() == {"INSERT": "send mail", "send mail": None}
    spans.clear()
    await mail.in_(Traced()).push(1)
    assert spans.tree() == {"INSERT": "send mail", "send mail": None}


async def test_each_way_to_push_has_its_span_and_carries_it(new_queue: NewQueue, spans: Spans) -> None:
    store = Memory()
    queue = new_queue(store=store)
    mail = queue.kind("mail")(_takes_a_number)

    async def in_a_store() -> None:
        pushed = mail.in_(store).push(1)
        with spans.tracer.start_as_current_span("another"):  # it carries the context of its call
            await pushed

    async def in_a_store_many() -> None:
        await mail.in_(store).push_many([1])

    ways: dict[str, Callable[[], Any]] = {
        "push": lambda: mail.push(1),
        "push at": lambda: mail.push(1, after=0),
        "push_many": lambda: mail.push_many([1]),
        "in_": in_a_store,
        "in_ many": in_a_store_many,
        "sync": lambda: asyncio.to_thread(mail.sync.push, 1),
        "sync many": lambda: asyncio.to_thread(mail.sync.push_many, [1]),
    }
    async with queue.running(run=False):
        for way, push in ways.items():
            spans.clear()
            with spans.tracer.start_as_current_span(way):
                await push()
                assert trace.get_current_span().get_span_context() != context(spans.one("send mail")), way
            await queue.drain()
            assert spans.tree()["send mail"] == way
            assert spans.tree()["process mail"] == "send mail", way


async def test_a_sync_push_on_the_loops_thread_ends_its_span_with_the_error(
    new_queue: NewQueue, spans: Spans
) -> None:
    mail = new_queue().kind("mail")(_takes_a_number)
    with pytest.raises(Exception, match="would block"):
        mail.sync.push(1)
    assert about(spans.one("send mail"))["error.type"] == "fastjobs.core.errors.QueueError"


async def test_a_handlers_push_is_in_its_runs_trace(new_queue: NewQueue, spans: Spans) -> None:
    queue = new_queue()
    second = queue.kind("second")(_nothing)

    @queue.kind("first")
    async def first() -> None:
        await second.push()

    await first.push()
    await queue.drain()
    assert spans.tree() == {
        "send first": None,
        "process first": "send first",
        "send second": "process first",
        "process second": "send second",
    }


async def test_a_schedules_job_begins_a_trace_of_its_own(
    new_queue: NewQueue, spans: Spans, clock: Clock
) -> None:
    queue = new_queue()
    ran = anyio.Event()

    @queue.kind("nightly")
    async def nightly() -> None:
        ran.set()

    nightly.schedule(Every(minutes=1))
    async with queue.running():
        await clock.pass_time(70, turns=30)
        await ran.wait()
        await clock.pass_time(1, turns=30)
    assert spans.of("send nightly") == []
    run = spans.of("process nightly")[0]
    assert run.parent is None
    assert run.links == ()


# Options, and what came with the request.


async def test_with_link_only_a_run_begins_a_trace_of_its_own_that_is_linked_to_the_push(
    new_queue: NewQueue, spans: Spans
) -> None:
    queue = new_queue(trace={"link_only": True})

    @queue.kind("mail", attempts=1)
    async def mail() -> None:
        with spans.tracer.start_as_current_span("smtp"):
            raise ValueError

    @mail.on_fail
    async def tell(error: Exception) -> None: ...

    with spans.tracer.start_as_current_span("request"):
        await mail.push()
    await queue.drain()
    assert spans.tree() == {
        "request": None,
        "send mail": "request",
        "smtp": "process mail",
        "process mail": None,
        "on_fail mail": None,
    }
    send = context(spans.one("send mail")).span_id
    assert links(spans.one("process mail")) == links(spans.one("on_fail mail")) == [send]
    assert len(traces(spans.all)) == 3


def inbound(flags: int, state: str | None = None) -> NonRecordingSpan:
    kept = TraceState.from_header([state]) if state else None
    return NonRecordingSpan(SpanContext(0xABC << 64, 77, True, TraceFlags(flags), kept))


@pytest.mark.parametrize(
    "flags",
    [0, 1, 2, 3],
    ids=["unsampled", "sampled", "unsampled and random", "sampled and random"],
)
async def test_the_requests_sampling_is_the_jobs(clock: Clock, flags: int) -> None:
    spans = Spans(ParentBased(DEFAULT_ON))
    queue = Queue(Memory(clock=clock), clock=clock, carry=[CarryTrace(tracer_provider=spans.provider)])
    seen: list[SpanContext] = []

    @queue.kind("mail")
    async def mail() -> None:
        seen.append(get_current_span().get_span_context())
        with spans.tracer.start_as_current_span("smtp"):
            await anyio.lowlevel.checkpoint()

    with trace.use_span(inbound(flags)):
        await mail.push()
    await queue.drain()
    assert seen[0].trace_id == 0xABC << 64
    assert seen[0].trace_flags.sampled == bool(flags & 1)
    assert {each.name for each in spans.all} == (
        {"send mail", "process mail", "smtp"} if flags & 1 else set[str]()
    )


async def test_a_push_that_is_sampled_away_takes_its_run_with_it(clock: Clock) -> None:
    spans = Spans(ParentBased(ALWAYS_OFF))
    carry = CarryTrace(tracer_provider=spans.provider)
    store = Memory(clock=clock)
    queue = Queue(store, clock=clock, carry=[carry])
    seen: list[SpanContext] = []

    @queue.kind("mail")
    async def mail() -> None:
        seen.append(get_current_span().get_span_context())

    await mail.push()
    await queue.drain()
    assert list(spans.all) == []
    assert seen[0].is_valid
    assert not seen[0].trace_flags.sampled


async def test_an_instance_that_does_not_record_hands_on_the_trace_it_was_given(clock: Clock) -> None:
    # No provider was ever set in this process: opentelemetry-api alone.
    store = Memory(clock=clock)
    queue = Queue(store, clock=clock, carry=[CarryTrace(tracer_provider=trace.NoOpTracerProvider())])
    seen: list[SpanContext] = []

    @queue.kind("mail")
    async def mail() -> None:
        seen.append(get_current_span().get_span_context())

    with trace.use_span(inbound(1, "vendor=abc")):
        await mail.push()
    await mail.push()
    await queue.drain()
    assert (seen[0].trace_id, seen[0].span_id) == (0xABC << 64, 77)
    assert seen[0].trace_state.to_header() == "vendor=abc"
    assert not seen[1].is_valid


async def test_a_long_tracestate_costs_no_push(new_queue: NewQueue, spans: Spans) -> None:
    queue = new_queue()
    carried: list[Any] = []

    @queue.kind("mail")
    async def mail() -> None:
        carried.append(current_job().carried)

    for length in (400, 5000):
        state = ",".join(f"k{n}={'x' * (length // 20)}" for n in range(20))
        with trace.use_span(inbound(1, state)):
            await mail.push()
    await queue.drain()
    assert [set(each) for each in carried] == [{"traceparent", "tracestate"}, {"traceparent"}]

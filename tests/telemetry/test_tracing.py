"""CarryTrace: the spans of runs, whose children they are, and what they say, whatever an app does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry.trace import (
    SpanKind,
    StatusCode,
    get_current_span,
)
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from fastjobs import (
    CarryRequestID,
    CarryTrace,
    Memory,
    Permanent,
    Queue,
    Retry,
    Snooze,
    SQLStore,
    current_job,
    sqlite,
)
from fastjobs.core.job import NewJob
from fastjobs.core.request_id import current
from fastjobs.store import Done, Job
from fastjobs.testing import Clock
from tests.telemetry.spans import CONSUMER, INTERNAL, PRODUCER, Spans, about, context, errors, links, traces

pytestmark = pytest.mark.anyio

NewQueue = Callable[..., Queue]


async def _nothing() -> None: ...


async def test_a_push_and_its_run_are_spans_of_the_requests_trace(new_queue: NewQueue, spans: Spans) -> None:
    queue = new_queue(carry=[CarryRequestID(), CarryTrace(tracer_provider=spans.provider)])

    @queue.kind("mail")
    async def mail(user: int) -> None:
        with spans.tracer.start_as_current_span("smtp"):
            await anyio.lowlevel.checkpoint()

    current.set("req-1")
    with spans.tracer.start_as_current_span("POST /register"):
        id = await mail.push(7)
        assert get_current_span().is_recording()  # the request's own, again
    assert await queue.drain() == 1

    assert spans.tree() == {
        "smtp": "process mail",
        "process mail": "send mail",
        "send mail": "POST /register",
        "POST /register": None,
    }
    assert len(traces(spans.all)) == 1
    send, process = spans.one("send mail"), spans.one("process mail")
    assert (send.kind, process.kind) == (PRODUCER, CONSUMER)
    assert links(process) == [context(send).span_id]
    common = {
        "messaging.system": "fastjobs",
        "messaging.destination.name": "mail",
        "messaging.message.id": id,
        "messaging.message.conversation_id": "req-1",
    }
    assert about(send) == common | {"messaging.operation.name": "send", "messaging.operation.type": "send"}
    assert about(process) == common | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "fastjobs.attempt": 1,
        "fastjobs.waited": 0.0,
        "fastjobs.outcome": "done",
    }
    assert {send.status.status_code, process.status.status_code} == {StatusCode.UNSET}
    assert process.parent is not None
    assert process.parent.is_remote
    assert {each.instrumentation_scope.name for each in (send, process) if each.instrumentation_scope} == {
        "fastjobs"
    }


async def test_retries_are_further_children_of_the_push_and_so_is_the_on_fail(
    new_queue: NewQueue, spans: Spans, clock: Clock
) -> None:
    queue = new_queue()

    @queue.kind("mail", attempts=3, backoff=lambda attempt: 60)
    async def mail(user: int) -> None:
        raise ConnectionRefusedError("the mail server\nis down") if user else Permanent("no such user")

    @mail.on_fail
    async def tell(user: int, error: Exception) -> None:
        with spans.tracer.start_as_current_span("tell support"):
            await anyio.lowlevel.checkpoint()

    await mail.push(7)
    for _ in range(3):
        await queue.drain()
        clock.advance(65)
    send = spans.one("send mail")
    runs = spans.of("process mail")
    assert [each.parent and each.parent.span_id for each in runs] == [context(send).span_id] * 3
    assert [links(each) for each in runs] == [[context(send).span_id]] * 3
    assert [about(each)["fastjobs.attempt"] for each in runs] == [1, 2, 3]
    assert [about(each)["fastjobs.outcome"] for each in runs] == ["retried", "retried", "failed"]
    assert [about(each)["fastjobs.waited"] for each in runs] == [0.0, 5.0, 5.0]
    assert {about(each)["error.type"] for each in runs} == {"ConnectionRefusedError"}
    assert {each.status.status_code for each in runs} == {StatusCode.ERROR}
    (error,) = errors(runs[0])
    assert error["exception.type"] == "ConnectionRefusedError"
    assert error["exception.message"] == "the mail server\nis down"
    assert "in mail" in str(error["exception.stacktrace"])
    told = spans.one("on_fail mail")
    assert told.kind is INTERNAL
    assert told.parent is not None
    assert told.parent.span_id == context(send).span_id
    assert about(told)["fastjobs.attempt"] == 3
    assert told.status.status_code is StatusCode.UNSET
    assert spans.tree()["tell support"] == "on_fail mail"
    assert len(traces(spans.all)) == 1


async def test_an_on_fail_that_fails_is_an_error_of_its_own_span(new_queue: NewQueue, spans: Spans) -> None:
    queue = new_queue()

    @queue.kind("mail", attempts=1)
    async def mail(user: int) -> None:
        raise ValueError

    @mail.on_fail
    def tell(user: int, error: Exception) -> None:
        raise LookupError("nobody to tell")

    await mail.push(7)
    await queue.drain()
    assert about(spans.one("on_fail mail"))["error.type"] == "LookupError"
    assert about(spans.one("process mail"))["error.type"] == "ValueError"


async def test_a_limiter_sees_the_trace_and_what_it_holds_back_has_no_run(
    new_queue: NewQueue, spans: Spans, clock: Clock
) -> None:
    queue = new_queue()
    waits = [30.0, 0.0]

    class Limits:
        async def attempt(self, key: str) -> float:
            with spans.tracer.start_as_current_span("limiter"):
                return waits.pop(0)

    @queue.kind("mail", rate=Limits())
    async def mail(user: int) -> None: ...

    await mail.push(7)
    await queue.drain()
    assert spans.tree() == {"send mail": None, "limiter": "send mail"}
    clock.advance(31)
    await queue.drain()
    assert len(spans.of("limiter")) == 2
    assert spans.tree()["process mail"] == "send mail"
    assert len(traces(spans.all)) == 1


@pytest.mark.parametrize(
    ("raised", "outcome", "error"),
    [
        (None, "done", None),
        (ValueError("x"), "retried", "ValueError"),
        (Retry("later", after=5), "retried", "fastjobs.core.errors.Retry"),
        (Snooze("later", after=5), "held back", None),
        (Permanent("never"), "failed", "fastjobs.core.errors.Permanent"),
        (SystemExit(3), "retried", "RuntimeError"),
        (asyncio.CancelledError(), "retried", "RuntimeError"),
    ],
    ids=["done", "error", "retry", "snooze", "permanent", "exit", "cancelled"],
)
@pytest.mark.parametrize("runs", ["async", "thread"])
async def test_a_run_says_how_it_ended(
    new_queue: NewQueue,
    spans: Spans,
    raised: BaseException | None,
    outcome: str,
    error: str | None,
    runs: str,
) -> None:
    queue = new_queue()

    async def on_loop() -> None:
        if raised is not None:
            raise raised

    def in_thread() -> None:
        with spans.tracer.start_as_current_span("inside"):
            if raised is not None:
                raise raised

    kind = queue.kind("mail")(on_loop if runs == "async" else in_thread)
    await kind.push(None)
    await queue.drain()
    span = spans.one("process mail")
    assert about(span)["fastjobs.outcome"] == outcome
    assert about(span).get("error.type") == error
    assert span.status.status_code is (StatusCode.UNSET if error is None else StatusCode.ERROR)
    assert len(errors(span)) == (error is not None)
    if runs == "thread":
        assert spans.tree()["inside"] == "process mail"


async def test_a_payload_that_does_not_fit_is_a_run_that_failed(new_queue: NewQueue, spans: Spans) -> None:
    store = Memory()
    queue = new_queue(store=store)
    queue.kind("mail")(_takes_a_number)
    await store.push([NewJob(kind="mail", payload='"seven"')])
    await queue.drain()
    span = spans.one("process mail")
    assert (about(span)["fastjobs.outcome"], about(span)["error.type"]) == (
        "failed",
        "fastjobs.core.errors.PayloadError",
    )


async def _takes_a_number(user: int) -> None: ...


async def test_a_timeout_is_its_runs_error(new_queue: NewQueue, spans: Spans, clock: Clock) -> None:
    queue = new_queue()
    began = anyio.Event()

    @queue.kind("mail", timeout=5)
    async def mail(user: int) -> None:
        began.set()
        await anyio.sleep_forever()

    async with queue.running():
        await mail.push(7)
        await clock.pass_time(0)
        await began.wait()
        await clock.pass_time(6)
        span = spans.one("process mail")
    assert (about(span)["fastjobs.outcome"], about(span)["error.type"]) == ("retried", "TimeoutError")


async def test_a_run_that_is_stopped_with_the_queue_is_nobodys_error(
    new_queue: NewQueue, spans: Spans, clock: Clock
) -> None:
    queue = new_queue(grace=0)
    began = anyio.Event()

    @queue.kind("mail")
    async def mail(user: int) -> None:
        began.set()
        await anyio.sleep_forever()

    async with queue.running():
        await mail.push(7)
        await clock.pass_time(0)
        await began.wait()
    span = spans.one("process mail")
    assert about(span)["fastjobs.outcome"] == "retried"
    assert "error.type" not in about(span)
    assert span.status.status_code is StatusCode.UNSET


async def test_a_run_whose_job_is_cancelled_is_no_error(
    new_queue: NewQueue, spans: Spans, clock: Clock
) -> None:
    queue = new_queue()
    began = anyio.Event()

    @queue.kind("mail")
    async def mail(user: int) -> None:
        began.set()
        await anyio.sleep_forever()

    async with queue.running():
        id = await mail.push(7)
        assert id is not None
        await clock.pass_time(0)
        await began.wait()
        await queue.cancel(id)
        await clock.pass_time(1, turns=30)
        span = spans.one("process mail")
    assert about(span)["fastjobs.outcome"] == "cancelled"
    assert span.status.status_code is StatusCode.UNSET


async def test_a_run_that_is_left_behind_as_the_queue_stops_has_its_span(
    new_queue: NewQueue, spans: Spans, clock: Clock
) -> None:
    queue = new_queue(grace=0)
    began = anyio.Event()

    @queue.kind("mail")
    async def mail(user: int) -> None:
        began.set()
        while True:
            try:
                await anyio.sleep_forever()
            except asyncio.CancelledError:
                continue

    async with queue.running():
        await mail.push(7)
        await clock.pass_time(0)
        await began.wait()
    assert about(spans.one("process mail"))["fastjobs.outcome"] == "retried"


async def test_a_run_whose_claim_is_gone_says_so(new_queue: NewQueue, spans: Spans, clock: Clock) -> None:
    class Told(Memory):
        latest: Job

        async def claim(self, *args: Any, **kwargs: Any) -> Any:
            claimed = await super().claim(*args, **kwargs)
            for self.latest in claimed.jobs:
                pass
            return claimed

    store = Told(clock=clock)
    queue = new_queue(store=store, hold=3)
    began = anyio.Event()

    @queue.kind("mail", timeout=600)
    async def mail(user: int) -> None:
        began.set()
        await anyio.sleep_forever()

    async with queue.running():
        await mail.push(7)
        await clock.pass_time(0)
        await began.wait()
        await store.mark([Done(store.latest.id, store.latest.claim)])  # another instance has ended it
        await clock.pass_time(4, turns=30)
        span = spans.one("process mail")
    assert about(span)["error.type"] == "fastjobs.core.errors.ClaimLost"
    assert about(span)["fastjobs.outcome"] == "retried"


async def test_a_done_in_is_done_once_the_store_has_said_so(
    new_queue: NewQueue, spans: Spans, tmp_path: Path, clock: Clock
) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'app.db'}")
    sqlite.configure(engine)
    queue = new_queue(store=SQLStore(engine, clock=clock), poll=1000)

    @queue.kind("mail", attempts=1)
    async def mail(commits: bool) -> None:
        async with AsyncSession(engine) as session:
            await current_job().done_in(session)
            if commits:
                await session.commit()

    async with queue.running(run=False):
        await mail.push(True)
        await mail.push(False)
        assert await queue.drain() == 2
    await engine.dispose()
    done, forgotten = spans.of("process mail")
    assert about(done)["fastjobs.outcome"] == "done"
    assert done.status.status_code is StatusCode.UNSET
    assert about(forgotten)["fastjobs.outcome"] == "failed"
    assert about(forgotten)["error.type"] == "fastjobs.core.errors.NotCommitted"


async def test_spans_of_a_kind_of_any_name_are_named_after_it(new_queue: NewQueue, spans: Spans) -> None:
    queue = new_queue()
    kind = queue.kind("a.b:c_d-9")(_nothing)
    await kind.push()
    await queue.drain()
    assert {each.name for each in spans.all} == {"send a.b:c_d-9", "process a.b:c_d-9"}
    assert {each.kind for each in spans.all} == {SpanKind.PRODUCER, SpanKind.CONSUMER}


async def test_an_error_that_is_long_or_whose_text_raises_makes_a_small_event(
    new_queue: NewQueue, spans: Spans
) -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    queue = new_queue()

    @queue.kind("deep", attempts=1)
    async def deep(depth: int) -> None:
        if depth > 200:
            raise ValueError("x" * 10_000_000)
        await deep.handler(depth + 1)

    @queue.kind("unspeakable", attempts=1)
    async def unspeakable() -> None:
        raise Unspeakable

    await deep.push(0)
    await unspeakable.push()
    await queue.drain()
    (error,) = errors(spans.one("process deep"))
    assert len(str(error["exception.message"])) <= 1024
    assert len(str(error["exception.stacktrace"])) <= 16_384
    (error,) = errors(spans.one("process unspeakable"))
    assert "its str() raised RuntimeError" in str(error["exception.message"])


async def test_a_plain_handler_in_a_thread_is_in_its_runs_span_and_so_is_what_it_pushes(
    new_queue: NewQueue, spans: Spans
) -> None:
    queue = new_queue()
    threads: list[int] = []
    second = queue.kind("second")(_nothing)

    @queue.kind("mail")
    def mail() -> None:
        threads.append(threading.get_ident())
        with spans.tracer.start_as_current_span("smtp"):
            second.sync.push()

    async with queue.running(run=False):
        await mail.push()
        await queue.drain()
    assert threads != [threading.get_ident()]
    assert spans.tree()["smtp"] == "process mail"
    assert spans.tree()["send second"] == "smtp"


async def test_the_queues_own_loops_have_libraries_make_no_spans(
    new_queue: NewQueue, spans: Spans, clock: Clock
) -> None:
    from opentelemetry.instrumentation.utils import is_instrumentation_enabled

    asked: dict[str, bool] = {}

    class Traced(Memory):
        async def claim(self, *args: Any, **kwargs: Any) -> Any:
            asked["claim"] = is_instrumentation_enabled()
            return await super().claim(*args, **kwargs)

        async def mark(self, marks: Any) -> Any:
            asked["mark"] = is_instrumentation_enabled()
            return await super().mark(marks)

        async def push(self, jobs: Any) -> Any:
            asked["push"] = is_instrumentation_enabled()
            return await super().push(jobs)

    queue = new_queue(store=Traced(clock=clock))

    @queue.kind("mail")
    async def mail() -> None:
        asked["handler"] = is_instrumentation_enabled()

    async with queue.running():
        await mail.push()
        await clock.pass_time(1, turns=30)
    assert asked == {"claim": False, "mark": False, "push": True, "handler": True}

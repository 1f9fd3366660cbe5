"""Log records say which request, job and trace they belong to: by a filter, and by a processor of structlog's."""

from __future__ import annotations

import io
import json
import logging
import logging.handlers
import queue
import threading
from collections.abc import Callable, Generator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import anyio
import pytest
import structlog
from fastapi import FastAPI
from fastapi.testclient import TestClient
from opentelemetry import trace
from pythonjsonlogger.json import JsonFormatter

import fastjobs
from fastjobs import (
    CarryRequestID,
    CarryTrace,
    Kinds,
    LogFilter,
    Memory,
    Permanent,
    Queue,
    RegistrationError,
)
from fastjobs.core.request_id import current
from fastjobs.core.trace_id import carried_trace
from fastjobs.runtime.current import CurrentJob, running_job
from fastjobs.runtime.lines import say
from fastjobs.telemetry.logs import log_fields
from tests.telemetry.spans import Spans, context

pytestmark = pytest.mark.anyio

FIELDS = ["request_id", "kind", "job", "attempt", "trace_id", "span_id"]
log = logging.getLogger("tests.shop")


class Lines(logging.StreamHandler[io.StringIO]):
    """What is logged, as text or as JSON, with the filter on it."""

    def __init__(self, formatter: logging.Formatter, empty: str | None = "-") -> None:
        super().__init__(io.StringIO())
        self.setFormatter(formatter)
        self.addFilter(LogFilter(empty=empty))

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self.lines]


@pytest.fixture
def heard() -> Generator[Callable[..., Lines]]:
    made: list[Lines] = []

    def hear(form: str | None = None, empty: str | None = "-") -> Lines:
        """Without a format it's JSON."""
        formatter = JsonFormatter("%(levelname)s %(message)s") if form is None else logging.Formatter(form)
        made.append(Lines(formatter, empty))
        logging.getLogger().addHandler(made[-1])
        return made[-1]

    before = logging.getLogger().level
    logging.getLogger().setLevel(logging.INFO)
    yield hear
    logging.getLogger().setLevel(before)
    for each in made:
        logging.getLogger().removeHandler(each)


Hear = Callable[..., Lines]
WHOLE = " ".join(f"%({name})s" for name in [*FIELDS, "message"])


def test_a_line_that_is_about_nothing_says_so(heard: Hear) -> None:
    text = heard(WHOLE)
    as_json = heard(empty=None)
    log.info("up")
    assert text.lines == ["- - - - - - up"]
    # Though the other one had put its own in place.
    assert as_json.objects == [{"levelname": "INFO", "message": "up"} | dict.fromkeys(FIELDS)]


def test_what_a_record_has_already_stays(heard: Hear) -> None:
    text = heard("%(kind)s %(job)s %(message)s")
    log.info("seen", extra={"kind": "lemon"})
    assert text.lines == ["lemon - seen"]


def test_a_routes_lines_have_its_requests_id_and_its_jobs_lines_that_and_the_jobs_own(heard: Hear) -> None:
    text = heard("%(request_id)s %(kind)s %(job)s %(attempt)s %(message)s")
    done = threading.Event()
    q = Queue(Memory(), carry=[CarryRequestID()], observe=lambda ran: done.set())

    def deep() -> None:
        log.info("deep")

    @q.kind("mail", attempts=1)
    def mail(user: int) -> None:
        log.info("to %s", user)
        deep()
        raise Permanent("refused")

    @mail.on_fail
    async def tell(user: int, error: Exception) -> None:
        log.info("sorry")
        told.set()

    told = threading.Event()
    app = FastAPI(lifespan=fastjobs.lifespan(q))
    app.add_middleware(fastjobs.RequestIDMiddleware)

    @app.post("/mail")
    def push() -> None:
        log.info("pushing")
        mail.sync.push(7)

    with TestClient(app) as client:
        client.post("/mail", headers={"X-Request-ID": "abc-1"})
        assert done.wait(30)
        assert told.wait(30)
    own = [each for each in text.lines if " " in each and "kind=" not in each and "httpx" not in each]
    assert [each for each in own if each.startswith("abc-1")] == [
        "abc-1 - - - pushing",
        "abc-1 mail 1 1 to 7",
        "abc-1 mail 1 1 deep",
        "abc-1 mail 1 1 sorry",
    ]
    # The queue's own line about it is said outside of the job, and has the fields all the same.
    (failed,) = [each for each in text.lines if "failed for good" in each]
    assert failed.startswith(
        "abc-1 mail 1 1 a job failed for good kind=mail job=1 attempt=1 request_id=abc-1"
    )


async def test_the_lines_of_interleaved_jobs_have_each_its_own_and_none_after(
    new_queue: Callable[..., Queue], spans: Spans, heard: Hear
) -> None:
    text = heard("%(job)s %(attempt)s %(trace_id)s %(span_id)s %(message)s")
    queue = new_queue(workers=50)

    @queue.kind("mail")
    async def mail(user: int) -> None:
        log.info("user %s", user)

    async with queue.running():
        ids = await mail.push_many(range(100))
        while len(spans.of("process mail")) < 100:
            await anyio.sleep(0)
    log.info("after")
    by_id = {str(about["messaging.message.id"]): each for each, about in _runs(spans)}
    expected = {
        f"{id} 1 {context(by_id[str(id)]).trace_id:032x} {context(by_id[str(id)]).span_id:016x} user {user}"
        for user, id in enumerate(ids)
    }
    assert set(text.lines) == expected | {"- - - - after"}


def _runs(spans: Spans) -> list[tuple[Any, dict[str, Any]]]:
    return [(each, dict(each.attributes or {})) for each in spans.of("process mail")]


async def test_json_has_each_field_by_itself_in_the_queues_lines_too(
    new_queue: Callable[..., Queue], spans: Spans, heard: Hear
) -> None:
    as_json = heard(empty=None)
    queue = new_queue()

    @queue.kind("mail", attempts=2, backoff=0)
    async def mail(user: int) -> None:
        log.info("to %s", user)
        raise ConnectionRefusedError("no\nanswer")

    await mail.push(7)
    assert await queue.drain() == 2
    first, again, second, failed = as_json.objects
    runs = [context(each) for each in spans.of("process mail")]
    for line, attempt in ((first, 1), (second, 2)):
        assert line["message"] == "to 7"
        assert line["job"] == "1"
        assert line["attempt"] == attempt
        assert line["trace_id"] == f"{runs[attempt - 1].trace_id:032x}"
        assert line["span_id"] == f"{runs[attempt - 1].span_id:016x}"
    for line, attempt, sentence in ((again, 1, "will run again"), (failed, 2, "failed for good")):
        assert sentence in line["message"]
        assert line["kind"] == "mail"
        assert line["job"] == "1"
        assert line["attempt"] == attempt
        assert line["err"] == "ConnectionRefusedError: no\\nanswer"
        assert line["trace_id"] == f"{runs[0].trace_id:032x}"
        assert f"trace_id={runs[0].trace_id:032x}" in line["message"]
    # And the failed job's own word on it.
    (job,) = await queue.failed()
    assert job.trace_id == failed["trace_id"]


@pytest.mark.parametrize("link_only", [False, True])
async def test_the_queues_lines_name_the_trace_that_the_run_is_in(
    new_queue: Callable[..., Queue], spans: Spans, heard: Hear, link_only: bool
) -> None:
    text = heard("%(trace_id)s %(message)s")
    queue = new_queue(trace={"link_only": link_only})

    @queue.kind("mail", attempts=1)
    async def mail() -> None:
        raise ValueError

    await mail.push()
    await queue.drain()
    (line,) = text.lines
    run, push = context(spans.one("process mail")), context(spans.one("send mail"))
    assert line.startswith(f"{run.trace_id:032x} a job failed for good")
    assert (run.trace_id == push.trace_id) is not link_only
    (job,) = await queue.failed()
    assert job.trace_id == f"{push.trace_id:032x}"


async def test_without_an_sdk_the_trace_that_a_request_came_with_is_in_the_lines(heard: Hear) -> None:
    text = heard("%(trace_id)s %(message)s")

    class Came:
        def carry(self, into: MutableMapping[str, str]) -> None:
            into["traceparent"] = f"00-{'ab' * 16}-{'cd' * 8}-01"

        def restore(self, carried: Mapping[str, str]) -> None: ...

    store = Memory()
    pushing, running = Queue(store, carry=[Came()]), Queue(store, carry=[CarryTrace()])

    async def mail() -> None:
        log.info("sent")
        raise ValueError

    pushed = pushing.kind("mail", attempts=1)(mail)
    running.kind("mail", attempts=1)(mail)
    await pushed.push()
    await running.drain()
    sent, failed = text.lines
    assert sent == f"{'ab' * 16} sent"
    assert failed.startswith(f"{'ab' * 16} a job failed for good")


def test_behind_a_queue_of_records_the_fields_are_those_of_where_the_line_was_logged() -> None:
    records: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    handler = logging.handlers.QueueHandler(records)
    handler.addFilter(LogFilter())
    log.addHandler(handler)
    token = current.set("abc-3")
    try:
        log.warning("seen")
    finally:
        current.reset(token)
        log.removeHandler(handler)
    assert records.get_nowait().__dict__["request_id"] == "abc-3"


class Hostile:
    def __init__(self, job: CurrentJob | None) -> None:
        self._job = job

    def current(self) -> CurrentJob:
        if self._job is None:
            raise RuntimeError("torn down")
        return self._job


def test_what_would_break_a_line_is_escaped(heard: Hear) -> None:
    text = heard("%(kind)s %(job)s %(message)s")
    nasty = CurrentJob(
        id="1\r\n[CRITICAL] all is lost", kind="a\x1b[2Jb\u2028c", attempt=1, last_error=None, carried={}
    )
    token = running_job.set(Hostile(nasty))
    try:
        log.info("seen")
    finally:
        running_job.reset(token)
    assert text.stream.getvalue() == "a\\x1b[2Jb\\u2028c 1\\r\\n[CRITICAL] all is lost seen\n"


def test_a_job_or_a_span_that_cannot_be_asked_takes_no_line_away(
    heard: Hear, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = heard(WHOLE)
    monkeypatch.setattr(trace, "get_current_span", lambda: 1 / 0)
    token = running_job.set(Hostile(None))
    try:
        log.info("seen")
    finally:
        running_job.reset(token)
    assert text.lines == ["- - - - - - seen"]


async def test_a_field_of_the_queues_own_lines_takes_nothing_of_a_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    say(logging.WARNING, "a line", name="x", args=3, message="y", kind="a\nb", took=0.5, gone=None)
    (record,) = caplog.records
    assert record.getMessage() == 'a line name=x args=3 message=y kind="a\\nb" took=0.5'
    assert record.name == "fastjobs"
    assert record.__dict__["kind"] == "a\\nb"
    assert record.__dict__["took"] == 0.5
    assert "gone" not in record.__dict__


kinds = Kinds()


@kinds.kind("report", process=True)
def report(file: str) -> None:
    Path(file).write_text(json.dumps(log_fields()))


async def test_a_process_has_the_fields_too(tmp_path: Path) -> None:
    q = Queue(Memory(), carry=[CarryRequestID()])
    q.include(kinds)
    file = tmp_path / "fields.json"
    token = current.set("abc-2")
    try:
        await report.push(str(file))
    finally:
        current.reset(token)
    assert await q.drain() == 1
    found = json.loads(file.read_text())
    assert found == {"request_id": "abc-2", "kind": "report", "job": "1", "attempt": 1}


async def test_structlogs_events_have_the_fields_that_there_are(
    new_queue: Callable[..., Queue], spans: Spans
) -> None:
    written = io.StringIO()
    shop = structlog.wrap_logger(
        structlog.PrintLogger(written),
        processors=[
            structlog.contextvars.merge_contextvars,
            fastjobs.add_log_fields,
            structlog.processors.JSONRenderer(),
        ],
    )
    queue = new_queue()

    @queue.kind("mail")
    async def mail(user: int) -> None:
        structlog.contextvars.bind_contextvars(user=user)
        shop.info("sent", job="mine")

    await mail.push(7)
    await queue.drain()
    shop.info("after")
    sent, after = [json.loads(each) for each in written.getvalue().splitlines()]
    run = context(spans.one("process mail"))
    assert sent == {
        "event": "sent",
        "user": 7,
        "kind": "mail",
        "job": "mine",  # what the event says itself stays
        "attempt": 1,
        "trace_id": f"{run.trace_id:032x}",
        "span_id": f"{run.span_id:016x}",
    }
    assert after == {"event": "after"}


@pytest.mark.parametrize(
    ("carried", "trace"),
    [
        (f"00-{'ab' * 16}-{'cd' * 8}-01", "ab" * 16),
        (f"00-{'ab' * 16}-{'cd' * 8}-03", "ab" * 16),
        (f"cc-{'ab' * 16}-{'cd' * 8}-01-more", "ab" * 16),
        (f"00-{'ab' * 16}-{'cd' * 8}-01-more", None),
        (f"ff-{'ab' * 16}-{'cd' * 8}-01", None),
        (f"00-{'00' * 16}-{'cd' * 8}-01", None),
        (f"00-{'ab' * 16}-{'00' * 8}-01", None),
        (f"00-{'AB' * 16}-{'cd' * 8}-01", None),
        (f"00-{'ab' * 16}-{'cd' * 8}-01\n", None),
        ("", None),
        ("a\r\nb", None),
    ],
)
def test_a_carried_traces_id_is_read_by_its_grammar(carried: str, trace: str | None) -> None:
    assert carried_trace({"traceparent": carried}) == trace
    assert carried_trace({}) is None


@pytest.mark.parametrize("empty", [0, b"-", False], ids=repr)
def test_an_empty_that_is_no_text_is_refused(empty: Any) -> None:
    with pytest.raises(RegistrationError, match="empty is a string or None"):
        LogFilter(empty=empty)

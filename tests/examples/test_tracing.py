"""The tracing example, run: its spans as they come by OTLP, its log lines and its failed jobs tell one story."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml

from examples.registration.demo import until
from examples.tracing.demo import ROOT, Running, running
from examples.tracing.receiver import Received
from examples.tracing.waterfall import waterfall
from tests.databases.postgres import Database

pytestmark = pytest.mark.timeout(240)  # processes are started, on a machine with much to do

ROUTES = ["register", "register-sync", "remind", "remind-sync"]
"""In a transaction of an async and of a sync session, and by themselves."""
JOB = ["send welcome-mail", "process welcome-mail", "smtp", "process welcome-mail", "smtp"]


@pytest.fixture(
    scope="module",
    params=["sqlite", "sqlite in two processes", "postgres", "postgres in two processes"],
)
def app(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    url = f"sqlite+aiosqlite:///{tmp_path_factory.mktemp('tracing') / 'app.db'}"
    if request.param.startswith("postgres"):
        on_server: Database = request.getfixturevalue("postgres_module_database")
        on_server.clear()
        url = str(on_server.url("asyncpg"))
    with running(url, apart="two" in request.param) as found:
        yield found


@pytest.mark.parametrize("route", ROUTES)
def test_a_request_its_push_and_both_attempts_are_one_trace_and_the_log_lines_say_so(
    app: Running, route: str
) -> None:
    id = f"req-{route}"
    job = app.post(f"/{route}", "ada@example.org", id)
    trace = app.trace_of(id)
    in_tx = route.startswith("register")
    spans = app.receiver.wait_for(trace, [f"POST /{route}", *JOB, *(["commit"] if in_tx else [])])

    (server,) = [each for each in spans if each.kind == "SERVER"]
    (send,) = named(spans, "send welcome-mail")
    first, second = named(spans, "process welcome-mail")
    assert (server.name, server.parent_id) == (f"POST /{route}", "")
    assert (send.kind, first.kind, second.kind) == ("PRODUCER", "CONSUMER", "CONSUMER")
    assert ancestors(send, spans)[-1] is server
    assert [each.parent_id for each in (first, second)] == [send.span_id] * 2
    assert [each.links for each in (first, second)] == [(send.span_id,)] * 2
    assert [each.parent_id for each in named(spans, "smtp")] == [first.span_id, second.span_id]
    assert [each.attributes["fastjobs.attempt"] for each in (first, second)] == [1, 2]
    assert [each.attributes["fastjobs.outcome"] for each in (first, second)] == ["retried", "done"]
    assert [each.failed for each in (send, first, second)] == [False, True, False]
    assert first.attributes["error.type"] == "ConnectionRefusedError"
    for each in (send, first, second):
        assert each.attributes["messaging.message.id"] == job
        assert each.attributes["messaging.message.conversation_id"] == id
        assert each.attributes["messaging.destination.name"] == "welcome-mail"
    if in_tx:
        (commit,) = named(spans, "commit")
        assert ancestors(commit, spans)[-1] is server
        assert send.began <= commit.began <= second.began
    web, worker = app.processes[0], app.processes[-1]
    assert {each.service for each in (server, send)} == {"web"}
    assert {each.service for each in (first, second)} == {"web" if web is worker else "worker"}

    until(lambda: any(f"request {id} job {job}" in line for line in worker.lines), "a job's line")
    (pushing,) = [each for each in web.lines if f"[request {id} job - trace {trace}]" in each]
    assert "registering" in pushing or "reminding" in pushing
    (welcomed,) = [each for each in worker.lines if "welcomed" in each and id in each]
    assert f"[request {id} job {job} trace {trace}]" in welcomed
    (again,) = [each for each in worker.lines if "will run again" in each and id in each]
    assert f"job={job} attempt=1 request_id={id} trace_id={trace} " in again
    assert again.endswith(f"[request {id} job {job} trace {trace}]")


def test_a_failed_job_says_the_request_and_the_trace_that_its_log_lines_say(app: Running) -> None:
    job = app.post("/register", "nobody@nowhere.example", "req-nobody")
    trace = app.trace_of("req-nobody")
    spans = app.receiver.wait_for(trace, JOB)
    runs = named(spans, "process welcome-mail")
    assert [each.attributes["fastjobs.outcome"] for each in runs] == ["retried", "failed"]
    assert runs[1].status == "Permanent: the mail server knows no such address"

    def failed() -> list[str]:
        return [each for each in app.lines if "failed for good" in each and f"job={job} " in each]

    until(lambda: bool(failed()), "the job's last line")
    assert f"request_id=req-nobody trace_id={trace} " in failed()[0]
    told = json.loads(app.command("jobs", "examples.tracing.app:q", "--json", "show", job))
    assert (told["state"], told["request_id"], told["trace_id"]) == ("failed", "req-nobody", trace)


def test_polls_claims_and_marks_are_in_no_trace(app: Running) -> None:
    app.post("/remind", "ada@example.org", "req-last")
    app.receiver.wait_for(app.trace_of("req-last"), ["POST /remind", *JOB])
    begun_by_requests = {each.trace_id for each in app.receiver.spans if each.kind == "SERVER"}
    assert [each for each in app.receiver.spans if each.trace_id not in begun_by_requests] == []


def test_the_demo_shows_both_processes_in_one_waterfall_and_ends_well() -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "examples.tracing.demo"],
        cwd=ROOT, env={**os.environ, "NO_COLOR": "1"}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^POST /register +\|▇+ *\|.* web$", ran.stdout, re.M), ran.stdout
    assert re.search(
        r"─ process welcome-mail +\| *▇+ *\|.* worker +attempt 1, retried, error: Conn", ran.stdout
    )
    assert re.search(r"─ process welcome-mail +\| *▇+ *\|.* worker +attempt 2, done$", ran.stdout, re.M)
    assert "ok the failed job says its request and its trace" in ran.stdout


def span(name: str, id: str, parent: str, began: float, ended: float, **more: object) -> Received:
    return Received(
        service="web",
        name=name,
        kind="INTERNAL",
        trace_id="ab",
        span_id=id,
        parent_id=parent,
        began=began,
        ended=ended,
        failed="error" in more,
        status=str(more.pop("error", "")),
        attributes=dict(more),
    )


def test_a_waterfall_has_each_span_under_its_parent_and_at_its_time() -> None:
    spans = [
        span("run", "3", "2", 12.0, 16.0, **{"fastjobs.attempt": 1, "error": "ValueError"}),
        span("request", "1", "", 10.0, 12.0),
        span("push", "2", "1", 10.0, 11.0),
        span("lost", "9", "8", 15.99, 16.0),
    ]
    told = [re.sub(" {2,}", " ", line) for line in waterfall(spans).splitlines()]
    assert told == [
        "trace ab, 4 spans, 6.00 s",
        "request |▇▇▇▇▇▇▇▇▇▇▇ | 2000 ms web",
        "└─ push |▇▇▇▇▇ | 1000 ms web",
        " └─ run | ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇| 4000 ms web attempt 1, error: ValueError",
        "lost | ▇| 10 ms web",
    ]
    assert waterfall([]) == "no spans\n"


def test_the_compose_files_ports_are_those_that_the_app_and_the_readme_name() -> None:
    folder = ROOT / "examples" / "tracing"
    compose = yaml.safe_load((folder / "compose.yaml").read_text())
    ports = compose["services"]["jaeger"]["ports"]
    assert [each.split(":")[1] for each in ports] == ["4318", "16686"]
    assert all(each.startswith("127.0.0.1:") for each in ports)
    assert "http://localhost:16686" in (folder / "README.md").read_text()
    assert "http://localhost:4318" in (folder / "app.py").read_text()


def named(spans: list[Received], name: str) -> list[Received]:
    """In the order in which they began."""
    return [each for each in spans if each.name == name]


def ancestors(span: Received, spans: list[Received]) -> list[Received]:
    by_id = {each.span_id: each for each in spans}
    found: list[Received] = []
    while span.parent_id:
        span = by_id[span.parent_id]
        found.append(span)
    return found

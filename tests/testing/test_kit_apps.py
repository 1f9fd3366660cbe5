"""The kit beside an app: with its lifespan and without, its workers beside the test, and pytest's fixtures."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from httpx import ASGITransport, AsyncClient
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs
from fastjobs import Outcome, Queue, SQLStore, current_job, request_id
from fastjobs.web.serving import Stateless

ROOT = Path(__file__).parent.parent.parent


class App:
    """An app with a queue, and what its jobs did."""

    def __init__(self, *more: Queue, store: fastjobs.Store | None = None) -> None:
        self.done: list[object] = []
        self.loops: list[asyncio.AbstractEventLoop] = []
        self.q = Queue(poll=0.05, grace=0.5, carry=[fastjobs.CarryRequestID()])

        @self.q.kind("mail")
        async def mail(user: int) -> None:
            if user < 0:
                raise ValueError(f"there is no user {user}")
            self.done.append((user, request_id()))
            self.loops.append(asyncio.get_running_loop())

        @self.q.kind("count")
        def count() -> None:
            self.done.append(current_job().kind)

        self.mail, self.count = mail, count
        self.app = FastAPI(lifespan=self._lifespan(more, store))
        self.app.add_middleware(fastjobs.RequestIDMiddleware)

        @self.app.post("/mails/{user}")
        async def send(user: int) -> str | None:
            self.loops.append(asyncio.get_running_loop())
            return await mail.push(user)

        @self.app.post("/counts")
        def start() -> str | None:
            return count.sync.push()

    def _lifespan(self, more: tuple[Queue, ...], store: fastjobs.Store | None) -> Stateless:
        @asynccontextmanager
        async def within(_: FastAPI) -> AsyncGenerator[None]:
            self.done.append("began")
            yield

        if store is not None:
            return fastjobs.lifespan(self.q, within=within, store=store)
        return fastjobs.lifespan(self.q, *more, within=within)


def test_nothing_runs_by_itself_without_the_lifespan() -> None:
    app = App()
    with app.q.testing() as jobs:
        client = TestClient(app.app)
        client.post("/mails/1", headers={"X-Request-ID": "abc-1"})
        client.post("/counts")
        assert jobs.pushed(app.mail, 1)
        assert app.done == []
        assert jobs.drain() == 2
    assert app.done == [(1, "abc-1"), "count"]


def test_nothing_runs_by_itself_within_the_lifespan_either() -> None:
    app = App()
    with app.q.testing() as jobs, TestClient(app.app) as client:
        assert app.done == ["began"]
        client.post("/mails/1", headers={"X-Request-ID": "abc-1"})
        client.post("/counts")
        assert (app.q.health().running, app.q.health().workers) == (True, 0)
        assert app.done == ["began"]
        assert [job.request_id for job in jobs.waiting] == ["abc-1", jobs.waiting[1].request_id]
        assert jobs.drain() == 2
        assert app.done == ["began", (1, "abc-1"), "count"]


def test_handlers_run_on_the_apps_own_loop_where_it_has_one() -> None:
    app = App()
    with app.q.testing() as jobs, TestClient(app.app) as client:
        client.post("/mails/1")
        jobs.drain()
        jobs.run(app.mail, 2)
        of_route, of_job, of_run = app.loops
        assert of_route is of_job is of_run


def test_what_a_handler_raised_comes_from_the_apps_loop_to_the_test() -> None:
    app = App()
    with app.q.testing() as jobs, TestClient(app.app) as client:
        client.post("/mails/-1")
        with pytest.raises(ValueError, match="there is no user -1"):
            jobs.drain()


def test_the_lifespans_own_store_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "app.db"
    engine = create_async_engine(f"sqlite+aiosqlite:///{file}")
    app = App(store=SQLStore(engine))
    with app.q.testing() as jobs, TestClient(app.app) as client:
        client.post("/mails/1")
        assert jobs.drain() == 1
    assert isinstance(app.q.store, SQLStore)
    assert not file.exists()


def test_each_queue_of_an_app_has_a_block() -> None:
    other = Queue()

    @other.kind("other")
    async def kind() -> None: ...

    app = App(other)
    with app.q.testing() as jobs, other.testing() as others, TestClient(app.app) as client:
        client.post("/mails/1")
        kind.sync.push()
        assert (jobs.pushed(), others.pushed()) == ([1], [None])
        assert (jobs.drain(), others.drain()) == (1, 1)


def test_a_block_after_another_may_enter_the_lifespan_again() -> None:
    app = App()
    for user in (1, 2):
        with app.q.testing() as jobs, TestClient(app.app) as client:
            client.post(f"/mails/{user}")
            assert jobs.pushed() == [user]
            assert jobs.drain() == 1


@pytest.mark.anyio
async def test_an_async_test_drains_on_its_own_loop_within_the_lifespan_and_without() -> None:
    app = App()
    with app.q.testing() as jobs:
        async with AsyncClient(transport=ASGITransport(app.app), base_url="http://test") as client:
            await client.post("/mails/1")
            assert await jobs.adrain() == 1
            async with app.app.router.lifespan_context(app.app):
                await client.post("/mails/2")
                assert await jobs.adrain() == 1
    assert set(app.loops) == {asyncio.get_running_loop()}


@pytest.mark.anyio
async def test_an_async_test_of_an_app_on_another_threads_loop_has_handlers_run_there() -> None:
    app = App()

    with app.q.testing() as jobs, TestClient(app.app) as client:
        await asyncio.to_thread(client.post, "/mails/1")
        assert await jobs.adrain() == 1
    of_route, of_job = app.loops
    assert of_route is of_job is not asyncio.get_running_loop()


# Workers beside the test.


def test_workers_run_beside_the_test_where_that_is_asked() -> None:
    app = App()
    ran = threading.Event()

    @app.q.kind("signal")
    def signal() -> None:
        ran.set()

    with app.q.testing(run=True), TestClient(app.app):
        signal.sync.push()
        assert ran.wait(10)


def test_a_drain_waits_for_what_workers_run_and_answers_for_both() -> None:
    app = App()
    with app.q.testing(run=True) as jobs, TestClient(app.app) as client:
        for user in range(5):
            client.post(f"/mails/{user}")
        jobs.run(app.count)  # the test's own, and no part of what a drain answers
        assert jobs.drain() == 5
        client.post("/counts")
        assert jobs.drain() == 1
        assert jobs.drain() == 0


def test_what_failed_in_a_worker_is_raised_by_the_next_drain_once() -> None:
    app = App()
    with app.q.testing(run=True) as jobs, TestClient(app.app) as client:
        client.post("/mails/-1")
        client.post("/mails/1")
        with pytest.raises(ValueError, match="there is no user -1"):
            while True:
                jobs.drain()
        jobs.drain()
        assert sorted(ran.outcome for ran in jobs.ran) == [Outcome.DONE, Outcome.RETRIED]


def test_a_drain_waits_for_a_handler_that_runs_and_for_its_on_fail() -> None:
    app = App()
    began, go, told = threading.Event(), threading.Event(), list[str]()

    @app.q.kind("slow", attempts=1)
    def slow() -> None:
        began.set()
        assert go.wait(10)
        raise ValueError("in the end")

    @slow.on_fail
    def tell(error: Exception) -> None:
        told.append(str(error))

    with app.q.testing(run=True) as jobs, TestClient(app.app):
        slow.sync.push()
        assert began.wait(10)
        threading.Timer(0, go.set).start()
        assert jobs.drain(raising=False) == 1
        assert told == ["in the end"]


# Fixtures.

CONFTEST = """
import pytest
import fastjobs
from fastjobs.testing import fixtures

q = fastjobs.Queue()
late = fastjobs.Queue()

@q.kind("mail")
async def mail(user: int) -> None: ...

@late.kind("mail")
async def late_mail(user: int) -> None: ...

jobs = fixtures.jobs(q, autouse=True)
late_jobs = fixtures.jobs(lambda: late, clock=fastjobs.testing.Clock)

@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
"""

TESTS = """
import pytest
from datetime import UTC, datetime
from conftest import late_mail, mail, q
from fastjobs.testing import Jobs

@pytest.mark.parametrize("user", [1, 2])
def test_sync(jobs: Jobs, user: int) -> None:
    assert not jobs.pushed()
    mail.sync.push(user)
    assert jobs.pushed(mail, user)
    assert jobs.drain() == 1

@pytest.mark.anyio
@pytest.mark.parametrize("user", [1, 2])
async def test_async(jobs: Jobs, user: int) -> None:
    await mail.push(user)
    assert await jobs.adrain() == 1

def test_that_takes_no_jobs() -> None:
    mail.sync.push(1)  # the autouse fixture has given the queue a store

def test_late(late_jobs: Jobs) -> None:
    late_mail.sync.push(1, at=datetime(2026, 1, 1, tzinfo=UTC))
    assert late_jobs.drain() == 1
"""


@pytest.mark.parametrize("spread", [[], ["-n", "2"]], ids=["in one process", "in two"])
def test_fixtures_give_sync_tests_and_async_ones_their_jobs(tmp_path: Path, spread: list[str]) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-c", "/dev/null",
         "--rootdir", str(tmp_path), *spread, "."],
        cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}, timeout=50,
    )  # fmt: skip
    assert "6 passed" in ran.stdout, ran.stdout + ran.stderr

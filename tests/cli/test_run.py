"""`fastjobs run`: real processes, told to stop in every way, whose handlers do what they can to keep them."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs
from fastjobs.store import Claimable
from tests.cli.conftest import Run

GRACE = 0.5
LIMIT = GRACE + 1.0 + 1.0
"""Grace and a second, and one that a busy machine may take to end what is measured."""

LONG = """
q = fastjobs.Queue(fastjobs.Memory(), grace=60)
"""
HOSTILE = """
@q.kind("swallows", attempts=1)
async def swallows() -> None:
    say("swallows runs")
    while True:
        try:
            await asyncio.sleep(100)
        except BaseException:
            pass

@q.kind("leaves", attempts=1)
async def leaves() -> None:
    threading.Thread(target=time.sleep, args=(100,), name="lingers").start()
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 100)
    q.left = asyncio.create_task(swallows.handler())

push(swallows); push(leaves)
"""


@pytest.mark.parametrize(
    "order",
    [
        [signal.SIGTERM],
        # A terminal's Ctrl-C, that a supervisor passes on in the same moment: one order.
        [signal.SIGINT, signal.SIGTERM],
    ],
)
def test_it_exits_with_0_within_grace_and_a_second_though_handlers_swallow_all_and_leave_tasks_and_threads(
    run: Run, order: list[signal.Signals]
) -> None:
    process = run(HOSTILE)
    process.until("swallows runs\nswallows runs")
    for number in order:
        process.tell(number)
    code, took = process.ends()
    assert (code, took <= LIMIT) == (0, True), (code, took, process.log)
    assert "stopping queue=main:q running=1 grace=0.5s" in process.log
    assert "a handler was left behind" in process.log
    assert "all is stopped, and what was left behind is not waited for threads=" in process.log
    assert "lingers" in process.log


def test_it_ends_at_once_where_nothing_runs_and_lets_the_apps_own_exit_run(run: Run) -> None:
    process = run(
        LONG
        + """
import atexit
atexit.register(say, "at exit")
logging.getLogger().addHandler(logging.StreamHandler(sys.stdout))
logging.getLogger().setLevel("INFO")
@q.kind("mail")
async def mail() -> None: say("ran")
push(mail)
"""
    )
    process.until("ran\n")
    process.tell(signal.SIGTERM)
    code, took = process.ends()
    assert (code, took < 5) == (0, True), (code, took)
    assert process.log.endswith("at exit\n")
    assert "INFO fastjobs:" not in process.log, "the app has a log of its own, and its own format"
    assert "\nrunning queue=main:q workers=4 kinds=mail\n" in f"\n{process.log}"


def test_a_second_signal_ends_it_at_once_with_1(run: Run) -> None:
    process = run(LONG + HOSTILE)
    process.until("swallows runs")
    process.tell(signal.SIGINT)
    process.until("stopping")
    with pytest.raises(subprocess.TimeoutExpired):
        process.popen.wait(0.15)
    process.tell(signal.SIGTERM)
    code, took = process.ends()
    assert (code, took < 5) == (1, True), (code, took)
    assert "told to stop twice" in process.log


def test_a_handler_that_blocks_the_loop_doesnt_keep_it_and_it_says_so(run: Run) -> None:
    process = run(
        """
@q.kind("blocks")
async def blocks() -> None:
    say("blocks")
    time.sleep(100)
push(blocks)
"""
    )
    process.until("blocks\n")
    process.tell(signal.SIGTERM)
    code, took = process.ends()
    assert (code, took <= LIMIT) == (1, True), (code, took)
    assert "it did not stop in time" in process.log
    assert "main.py:" in process.log.splitlines()[-1], "it says where it stands"


def test_nothing_that_runs_as_the_interpreter_ends_keeps_it(run: Run) -> None:
    process = run(
        """
class Endless:
    def __del__(self):
        while True: pass
@q.kind("mail")
async def mail() -> None: say("ran")
push(mail)
sys.modules["kept"] = Endless()
"""
    )
    process.until("ran\n")
    process.tell(signal.SIGTERM)
    assert process.ends()[1] <= LIMIT
    assert "Endless" in process.log or "__del__" in process.log


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_a_signal_to_a_forked_child_of_a_handler_is_the_childs_alone(run: Run) -> None:
    process = run(
        """
@q.kind("forks")
async def forks() -> None:
    child = os.fork()
    if not child:
        time.sleep(100)
        os._exit(0)
    await asyncio.sleep(0.1)
    os.kill(child, signal.SIGTERM)
    say(f"the child ended by {os.waitpid(child, 0)[1]}")
    await asyncio.sleep(0.2)
    say("and it runs")
push(forks)
"""
    )
    process.until("and it runs")
    assert "the child ended by 15\n" in process.log
    assert "stopping" not in process.log


def test_a_bug_of_fastjobs_own_ends_it_with_1_for_its_supervisor_to_start_it_again(run: Run) -> None:
    process = run(
        """
from fastjobs.runtime.ledger import Ledger
async def run(ledger): raise RuntimeError("a bug")
Ledger.run = run
@q.kind("mail")
async def mail() -> None: ...
"""
    )
    code, _ = process.ends()
    assert code == 1
    assert "CRITICAL fastjobs: a bug in fastjobs" in process.log


def test_the_apps_lifespan_is_entered_around_it_and_the_queue_runs_once(run: Run) -> None:
    process = run(
        """
from starlette.applications import Starlette
late = fastjobs.Queue(grace=0.5)
other = fastjobs.Queue(fastjobs.Memory())

@other.kind("never")
async def never() -> None: say("NEVER")

@late.kind("mail")
async def mail() -> None:
    say(f"ran with {opened}, of {late.health().workers} workers")
    await never.push()

opened = []
@contextlib.asynccontextmanager
async def own(app):
    opened.append("engine")
    yield
    say(f"closed while it runs: {late.health().running}")

def make():
    return Starlette(lifespan=fastjobs.lifespan(late, other, within=own))

@contextlib.asynccontextmanager
async def store(app):
    async with own(app):
        late.use(fastjobs.Memory())
        async with late.running():  # an app may run it by hand, too
            await mail.push()
            yield

app = Starlette(lifespan=fastjobs.lifespan(other, within=store))
""",
        *("run", "main:late", "--app", "main:app", "--workers", "3"),
    )
    process.until("ran with ['engine'], of 3 workers")
    process.tell(signal.SIGTERM)
    assert process.ends()[0] == 0
    assert "closed while it runs: False" in process.log
    assert "NEVER" not in process.log, "other queues are open, and not run"


def test_it_runs_the_kinds_it_is_told_to_with_so_many_workers_and_leaves_the_others(run: Run) -> None:
    process = run(
        """
@q.kind("report")
async def report() -> None: say("NEVER")
@q.kind("mail")
async def mail() -> None: say(f"ran by one of {q.health().workers}")
@q.kind("letter")
async def letter() -> None: say("written")
push(report); push(mail); push(letter)
""",
        *("run", "main:q", "--kinds", "mail, letter", "--workers", "3"),
    )
    process.until("ran by one of 3")
    process.until("written")
    process.tell(signal.SIGTERM)
    assert process.ends()[0] == 0
    assert 'running queue=main:q workers=3 kinds="letter, mail"\n' in process.log
    assert "NEVER" not in process.log


def test_a_queue_with_a_fallback_alone_runs_the_jobs_of_all_kinds(run: Run) -> None:
    process = run(
        LONG
        + """
@q.fallback
async def unknown(value: int) -> None: say(f"ran {fastjobs.current_job().kind} {value}")
logging.getLogger().addHandler(logging.StreamHandler(sys.stdout))
logging.getLogger().setLevel("INFO")
other = fastjobs.Queue(q.store)
@other.kind("photo")
async def photo(n: int) -> None: ...
asyncio.run(photo.push(7))
"""
    )
    process.until("ran photo 7")
    assert "kinds=all" in process.log
    process.tell(signal.SIGTERM)
    assert process.ends()[0] == 0


def test_a_stop_as_it_starts_is_no_failure(run: Run) -> None:
    process = run(
        LONG
        + """
@q.kind("mail")
async def mail() -> None: ...
async def app(scope, receive, send):
    say("starts")
    await asyncio.sleep(100)
""",
        *("run", "main:q", "--app", "main:app"),
    )
    process.until("starts")
    process.tell(signal.SIGTERM)
    code, took = process.ends()
    assert (code, took < 5) == (0, True), (code, took, process.log)


def test_an_app_that_doesnt_start_ends_it_with_1(run: Run) -> None:
    process = run(
        """
@q.kind("mail")
async def mail() -> None: ...
async def app(scope, receive, send): pass
""",
        *("run", "main:q", "--app", "main:app"),
    )
    assert process.ends()[0] == 1
    assert "LifespanFailed: startup: it has no lifespan" in process.log


@pytest.mark.anyio
async def test_jobs_that_were_stopped_are_due_at_once_with_their_attempt(run: Run, tmp_path: Path) -> None:
    process = run(
        """
from sqlalchemy.ext.asyncio import create_async_engine
engine = create_async_engine("sqlite+aiosqlite:///jobs.db")
fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine), workers=2, grace=0.2)

@q.kind("stubborn", attempts=1)
async def stubborn() -> None:
    job = fastjobs.current_job()
    say(f"runs {job.id}")
    while True:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            if job.id == "2":
                raise

asyncio.run(stubborn.push_many([None] * 3))
"""
    )
    process.until("runs 1\n")
    process.until("runs 2\n")
    process.tell(signal.SIGTERM)
    assert process.ends()[0] == 0
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'jobs.db'}")
    fastjobs.sqlite.configure(engine)
    store = fastjobs.SQLStore(engine)
    claimed = await store.claim([Claimable(kind="stubborn", hold=1_000_000, attempts=1)], 10)
    assert sorted((job.id, job.attempts, job.lost) for job in claimed.jobs) == [
        (number, 1, False) for number in "123"
    ]
    await store.close()

"""With process=True a handler runs in a process: its value goes as JSON, and what becomes of the process is its own."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import ClassVar

import pytest
from opentelemetry.baggage import set_baggage
from opentelemetry.context import attach
from opentelemetry.trace import INVALID_SPAN_CONTEXT

from fastjobs import (
    Cancelled,
    CarryRequestID,
    CarryTrace,
    Extra,
    Kinds,
    LostWorker,
    Memory,
    Outcome,
    Queue,
    Ran,
    RegistrationError,
)
from fastjobs.core.request_id import current
from fastjobs.runtime.crossing import told, untold
from tests.runtime import crunching
from tests.runtime.crunching import Odd, Order
from tests.runtime.test_threads import until
from tests.telemetry.spans import Spans, context

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
ROOT = Path(__file__).parents[2]
CRUNCH = crunching.kinds._kinds["crunch"].handler


def a_queue(seen: list[Ran], **settings: object) -> Queue:
    queue = Queue(Memory(), observe=seen.append, grace=0.2, **settings)  # type: ignore[arg-type]  # pyright: ignore
    queue.kind("crunch", process=True, attempts=2, timeout=30, backoff=0, permanent=Odd)(CRUNCH)
    return queue


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except ProcessLookupError:  # also of a read that comes as it goes
        return True
    except FileNotFoundError:
        return Path("/proc/self/stat").exists()


async def long_until(holds: Callable[[], object]) -> None:
    """As `until`, for what a process takes to start on a machine with much to do."""
    async with asyncio.timeout(90):
        while not holds():
            await asyncio.sleep(0.01)


async def test_a_handler_in_a_process_has_its_job_and_each_end_is_its_jobs_own(
    seen: list[Ran], tmp_path: Path
) -> None:
    queue = a_queue(seen, processes=1, carry=[CarryRequestID()], workers=1)
    crunch = queue._kinds["crunch"]
    failed: list[Exception] = []
    crunch.on_fail(lambda order, error: failed.append(error))
    current.set("req-7")
    orders = ["tell", "raise", "odd", "snooze", "system-exit", "coroutine", "interrupt", "exit", "tell"]
    ids = await crunch.push_many([Order(do=do, path=tmp_path / f"{n}") for n, do in enumerate(orders)])
    async with queue.running():
        await long_until(lambda: len(seen) == 13 and len(failed) == 5)
    runs = {id: [ran for ran in seen if ran.job == id] for id in ids}
    tell, raised, odd, snoozed, exited, coroutine, interrupted, lost, tell_again = runs.values()

    # Its job and its request, in a process of this one's, that is used again.
    kind, attempt, before, request, pid, parent = (tmp_path / "0").read_text().split()
    assert [kind, attempt, before, request, int(parent)] == ["crunch", "1", "None", "req-7", os.getpid()]
    assert int(pid) != os.getpid()
    assert [run.outcome for run in tell + tell_again] == [Outcome.DONE] * 2

    # Its errors, of their own types.
    assert [(type(run.error), str(run.error)) for run in raised] == [(ValueError, "no such image")] * 2
    (only,) = odd
    assert isinstance(only.error, Odd)
    assert only.error.args == (7,)
    assert str(only.error) == "code 7: upside down"
    assert only.outcome is Outcome.FAILED  # permanent=Odd
    assert [run.outcome for run in snoozed] == [Outcome.HELD_BACK]
    assert [str(run.error) for run in exited] == ["SystemExit: 4"] * 2
    assert "returned a coroutine, which nothing awaits" in str(coroutine[0].error)

    # Ctrl-C and a SIGTERM to the whole group are the app's to answer.
    assert [run.outcome for run in interrupted] == [Outcome.DONE]

    # Its death counts as an attempt, and the next job has a process again.
    assert [run.outcome for run in lost] == [Outcome.RETRIED, Outcome.FAILED]
    assert [str(run.error) for run in lost] == ["its process ended in the middle of it: it exited with 3"] * 2
    assert all(isinstance(run.error, LostWorker) for run in lost)
    assert (tmp_path / "8").read_text().split()[4] != pid
    assert is_gone(int((tmp_path / "8").read_text().split()[4]))  # with the queue


async def test_carriers_restore_in_the_process_too_where_their_classes_can_be_made_there(
    seen: list[Ran], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Local(crunching.CarryTenant): ...

    spans = Spans()
    carry = [
        CarryRequestID(),
        CarryTrace(tracer_provider=spans.provider, baggage=True),
        crunching.CarryTenant(),
        crunching.CarryTheme("dark"),  # it names one that stands for it
        crunching.CarryColour("red"),  # and this one has something of its own, and names none
        Local(),
    ]
    queue = a_queue(seen, processes=1, carry=carry)
    crunch = queue._kinds["crunch"]
    current.set("req-7")
    crunching.tenant.set("acme")
    attach(set_baggage("user", "ada"))
    async with queue.running():
        with spans.tracer.start_as_current_span("request"):
            await crunch.push(Order(do="context", path=tmp_path / "told"))
        await long_until(lambda: seen)
    assert [ran.outcome for ran in seen] == [Outcome.DONE]
    there = json.loads((tmp_path / "told").read_text())
    process = context(spans.one("process crunch"))
    assert spans.tree()["process crunch"] == "send crunch"
    assert there == {
        "request": "req-7",
        "tenant": "acme",
        "theme": "dark",
        "colour": "none",
        "trace": [
            process.trace_id,
            process.span_id,
        ],  # the run's own span: its spans there are children of it
        "baggage": {"user": "ada"},
        "sdk": False,
    }


@pytest.mark.parametrize("has_sdk", [True, False], ids=["an SDK", "no SDK"])
async def test_in_a_process_too_link_only_has_no_trace_of_the_push_and_no_baggage_is_taken_from_the_table(
    seen: list[Ran], tmp_path: Path, has_sdk: bool
) -> None:
    spans = Spans()
    trace = CarryTrace(link_only=True, tracer_provider=spans.provider if has_sdk else None)

    class CarryOther:
        """As whoever writes to the table would."""

        def carry(self, into: MutableMapping[str, str]) -> None:
            into.update(baggage="user=ada", tracestate="vendor=1")

        def restore(self, carried: Mapping[str, str]) -> None: ...

    queue = a_queue(seen, processes=1, carry=[trace, CarryOther()])
    crunch = queue._kinds["crunch"]
    async with queue.running():
        with spans.tracer.start_as_current_span("request"):
            await crunch.push(Order(do="context", path=tmp_path / "told"))
        await long_until(lambda: seen)
    there = json.loads((tmp_path / "told").read_text())
    run = context(spans.one("process crunch")) if has_sdk else INVALID_SPAN_CONTEXT
    assert there["trace"] == [run.trace_id, run.span_id]
    assert run.trace_id != context(spans.one("request")).trace_id
    assert there["baggage"] == {}


async def test_one_that_runs_over_its_timeout_is_killed_alone_and_an_idle_one_that_died_costs_nothing(
    seen: list[Ran], tmp_path: Path
) -> None:
    queue = a_queue(seen, processes=2)
    hang = queue.kind("hang", process=True, timeout=0.3, attempts=1)(crunching.hang)
    crunch = queue._kinds["crunch"]
    async with queue.running():
        await hang.push(tmp_path / "hangs")
        await crunch.push(Order(do="tell", path=tmp_path / "first"))
        await long_until(lambda: len(seen) == 2)
        hung = next(ran for ran in seen if ran.kind == "hang")
        assert hung.outcome is Outcome.FAILED
        assert str(hung.error) == "ran over its timeout of 0.3 s"
        await long_until(lambda: is_gone(int((tmp_path / "hangs").read_text())))
        assert [ran.outcome for ran in seen if ran.kind == "crunch"] == [Outcome.DONE]

        idle = int((tmp_path / "first").read_text().split()[4])
        os.kill(idle, signal.SIGKILL)
        await long_until(lambda: is_gone(idle))
        await crunch.push(Order(do="tell", path=tmp_path / "second"))
        await long_until(lambda: len(seen) == 3)
    assert seen[2].outcome is Outcome.DONE
    assert (tmp_path / "second").read_text().split()[1] == "1"


async def test_a_crash_is_its_own_jobs_and_a_stop_kills_what_outlasts_grace_and_gives_it_back(
    seen: list[Ran], tmp_path: Path
) -> None:
    queue = a_queue(seen, processes=2)
    crunch, paths = queue._kinds["crunch"], [tmp_path / "one", tmp_path / "two"]

    def written(path: Path) -> bool:
        return path.exists() and path.read_text() != ""

    async with queue.running():
        await crunch.push(Order(do="hang", path=paths[0]))
        await long_until(lambda: written(paths[0]))
        await crunch.push(Order(do="crash"))
        await long_until(lambda: len(seen) == 2)
        assert str(seen[1].error) == "its process ended in the middle of it: it was killed by SIGSEGV"
        assert not is_gone(int(paths[0].read_text()))

        await crunch.push(Order(do="hang", path=paths[1]))
        await long_until(lambda: written(paths[1]))
        await crunch.push(Order(do="tell"))  # it waits for a process
        stopping = time.monotonic()
    assert time.monotonic() - stopping < 5  # 1.2 s, and what a machine with much to do adds to it
    assert [ran.outcome for ran in seen[2:]] == [Outcome.RETRIED] * 3
    await until(lambda: all(is_gone(int(path.read_text())) for path in paths))


async def test_a_cancel_ends_the_process_of_its_job_alone_and_removes_the_job(
    seen: list[Ran], tmp_path: Path
) -> None:
    queue = a_queue(seen, processes=1)
    crunch, path = queue._kinds["crunch"], tmp_path / "pid"
    async with queue.running():
        id = await crunch.push(Order(do="hang", path=path))
        await long_until(lambda: path.exists() and path.read_text())
        waits = await crunch.push(Order(do="tell", path=tmp_path / "never"))  # for a process
        await long_until(lambda: queue.health().busy == 2)
        assert id is not None
        assert waits is not None
        assert await queue.cancel(waits) is Cancelled.ASKED
        await until(lambda: len(seen) == 1)
        assert not is_gone(int(path.read_text()))
        assert await queue.cancel(id) is Cancelled.ASKED
        await long_until(lambda: is_gone(int(path.read_text())))
        await until(lambda: len(seen) == 2)
        assert [await queue.job(each) for each in (id, waits)] == [None, None]
    assert [(ran.outcome, ran.job) for ran in seen] == [(Outcome.CANCELLED, waits), (Outcome.CANCELLED, id)]
    assert not (tmp_path / "never").exists()


class NoProgress(Memory):
    extras: ClassVar[Extra] = Memory.extras & ~Extra.PROGRESS


async def test_progress_crosses_from_a_process_and_so_does_what_is_wrong_with_it(seen: list[Ran]) -> None:
    queue = a_queue(seen, processes=1)
    crunch = queue._kinds["crunch"]
    ids = [await crunch.push(Order(do=do)) for do in ("report", "report-badly")]
    assert await queue.drain() == 4
    jobs = [await queue.job(id or "") for id in ids]
    assert [job.progress if job is not None else "gone" for job in jobs] == [{"step": 99}, None]
    assert [type(ran.error).__name__ for ran in seen] == ["ValueError", "PayloadError"] * 2

    seen.clear()
    lacking = Queue(NoProgress(), observe=seen.append)
    await lacking.kind("crunch", process=True, attempts=1)(CRUNCH).push(Order(do="report"))
    assert await lacking.drain() == 1
    assert [str(ran.error) for ran in seen] == [
        f"progress() needs a store with PROGRESS, and NoProgress has {_names(NoProgress.extras)}"
    ]


def _names(extras: Extra) -> str:
    return ", ".join(each.name or "" for each in extras)


def test_a_process_ends_with_an_app_that_was_killed(tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        import asyncio, os, pathlib, signal, time
        import fastjobs
        from tests.runtime import crunching

        path = pathlib.Path({str(tmp_path / "pid")!r})

        async def main() -> None:
            q = fastjobs.Queue(fastjobs.Memory())
            hang = q.kind("hang", process=True)(crunching.hang)
            async with q.running():
                await hang.push(path)
                while not (path.exists() and path.read_text()):
                    await asyncio.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)

        if __name__ == "__main__":
            asyncio.run(main())
    """)
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=100, check=False)
    assert ended.returncode == -signal.SIGKILL
    pid, deadline = int((tmp_path / "pid").read_text()), time.monotonic() + 30
    while not is_gone(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert is_gone(pid)


# What can't be.


def _nested() -> Callable[[], None]:
    def inner() -> None: ...

    return inner


REFUSED: dict[str, tuple[Callable[..., object], str]] = {
    "a lambda": (lambda: None, "<lambda> is made inside of something else"),
    "a nested function": (_nested(), "_nested.<locals>.inner is made inside of something else"),
    "a partial": (functools.partial(crunching.hang, Path()), "a handler is a function of a module"),
    "an async function": (crunching._later, "a handler is a plain def, and .*_later.* is async"),
}


@pytest.mark.parametrize(("fn", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_another_process_cannot_run_is_refused(fn: Callable[..., object], why: str) -> None:
    with pytest.raises(RegistrationError, match=f"kind 'k': with process=True .*{why}"):
        Kinds().kind("k", process=True)(fn)


def test_process_is_true_or_false_and_processes_a_number() -> None:
    with pytest.raises(RegistrationError, match="process is True or False, not 2"):
        Kinds().kind("k", process=2)(crunching.hang)  # type: ignore[arg-type]  # pyright: ignore
    with pytest.raises(RegistrationError, match="processes is a whole number from 1 to 10,000, not 0"):
        Queue(processes=0)


async def test_a_name_that_stands_for_another_function_is_told_of(seen: list[Ran]) -> None:
    queue = Queue(Memory(), observe=seen.append)
    kind = queue.kind("shadow", process=True)(crunching.shadow)
    await kind.push()
    assert await queue.drain() == 1
    assert "imports its handler as tests.runtime.crunching.shadowed, which is another function" in str(
        seen[0].error
    )


class Deaf(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Hidden(ValueError):
    """One whose module the app hasn't loaded, as it goes on."""


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        KeyError("x"),
        Odd(3, hint="a"),
        ExceptionGroup("two", [ValueError()]),
        Deaf(),
        SystemExit(3),
    ],
)
def test_an_error_crosses_as_its_own_type_and_says_what_it_said(error: BaseException) -> None:
    import json

    crossed = untold(json.loads(json.dumps(told(error))))
    name = type(error).__name__
    assert name in (type(crossed).__name__, str(crossed).partition(":")[0])
    if name != "ExceptionGroup":
        assert isinstance(crossed, type(error))
    if name not in ("Deaf", "ExceptionGroup"):
        assert str(crossed) == str(error)


def test_an_error_that_the_app_does_not_know_is_the_nearest_that_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Hidden, "__module__", "a.module.of.the.process.alone")
    crossed = untold(told(Hidden("secret plan")))
    assert type(crossed).__mro__[1] is ValueError
    assert str(crossed) == "Hidden: secret plan"

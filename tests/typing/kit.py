"""What a type checker makes of `q.testing()`: a value that its kind doesn't take is an error before the test runs.

mypy and pyright read this file; it's never run. A line that's wrong on purpose says so by an ignore, and both
checkers fail on an ignore that nothing needs.
"""

from __future__ import annotations

from typing import Any, assert_type

from pydantic import BaseModel

from fastjobs import JobInfo, Memory, Queue, Ran
from fastjobs.testing import Clock, Jobs, Pushed

q = Queue(Memory())


class Mail(BaseModel):
    user: int


@q.kind("mail")
async def mail(value: Mail) -> None: ...


@q.kind("tick")
async def tick() -> None: ...


def sync_test() -> None:
    with q.testing() as jobs:
        assert_type(jobs, Jobs)
        assert_type(jobs.pushed(mail), Pushed[Mail])
        assert_type(jobs.pushed(mail, Mail(user=1)), Pushed[Mail])
        assert_type(jobs.pushed(mail)[0], Mail)
        assert_type(jobs.pushed(tick), Pushed[None])
        assert_type(jobs.pushed(tick, None), Pushed[None])
        assert_type(jobs.pushed("mail"), Pushed[Any])
        assert_type(jobs.pushed(after=7, name="once"), Pushed[Any])
        assert_type(jobs.drain(), int)
        assert_type(jobs.run(mail, Mail(user=1), attempt=2), Ran)
        assert_type(jobs.run(tick), Ran)
        assert_type(jobs.waiting, list[JobInfo])
        assert_type(jobs.failed, list[JobInfo])
        assert_type(jobs.ran, list[Ran])
        assert_type(jobs.clock, Clock)


async def async_test(jobs: Jobs) -> None:
    assert_type(await jobs.adrain(raising=False), int)
    assert_type(await jobs.arun(mail, Mail(user=1)), Ran)
    assert_type(await jobs.arun(tick), Ran)


async def refused(jobs: Jobs) -> None:
    jobs.pushed(mail, 3)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    jobs.pushed(tick, 3)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    jobs.pushed(Mail(user=1))  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    jobs.run(mail)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.run(mail, 3)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await jobs.arun(mail, 3)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await jobs.drain()  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    with q.testing(run="yes"):  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        pass

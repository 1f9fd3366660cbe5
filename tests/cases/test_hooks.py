"""What an app gives the queue to call can't stop it: observe=, carriers, types of values, on_crash=."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import BeforeValidator

from fastjobs import Extra, Memory, Outcome, Queue, Ran
from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.job import NewJob
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio

RAISED = [ValueError("no"), asyncio.CancelledError(), SystemExit(1), KeyboardInterrupt()]
"""A CancelledError comes of a future that someone else cancelled, and ends the task that lets it through."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def new_queue(clock: Clock) -> Callable[..., Queue]:
    def new(**settings: Any) -> Queue:
        chosen: dict[str, Any] = {
            "store": Memory(clock=clock),
            "clock": clock,
            "workers": 1,
            "grace": 0.5,
            **settings,
        }
        return Queue(**chosen)

    return new


def lines(caplog: pytest.LogCaptureFixture, beginning: str) -> list[str]:
    return [line for line in caplog.messages if line.startswith(beginning)]


@pytest.mark.parametrize("raised", RAISED, ids=repr)
async def test_whatever_observe_raises_the_ends_of_jobs_are_kept(
    new_queue: Callable[..., Queue], clock: Clock, caplog: pytest.LogCaptureFixture, raised: BaseException
) -> None:
    def broken(ran: Ran) -> None:
        raise raised

    queue = new_queue(observe=broken)

    @queue.kind("mail")
    async def mail(user: int) -> None: ...

    async with queue.running():
        for user in range(3):
            await mail.push(user)
            await clock.pass_time(1, turns=30)
    assert len(lines(caplog, "observe= failed")) == 3
    clock.advance(3600)
    assert await queue.drain() == 0


class _Broken:
    def __init__(self, raised: BaseException) -> None:
        self.raised = raised

    def carry(self, into: MutableMapping[str, str]) -> None:
        into["x"] = "1"

    def restore(self, carried: Mapping[str, str]) -> None:
        raise self.raised


@pytest.mark.parametrize("raised", RAISED, ids=repr)
async def test_whatever_a_carrier_raises_as_it_restores_its_job_runs_and_its_worker_lives(
    new_queue: Callable[..., Queue], clock: Clock, caplog: pytest.LogCaptureFixture, raised: BaseException
) -> None:
    seen: list[Ran] = []
    queue = new_queue(observe=seen.append, carry=[_Broken(raised)])

    @queue.kind("mail")
    async def mail(user: int) -> None: ...

    async with queue.running():
        await mail.push_many([1, 2, 3])
        await clock.pass_time(1, turns=30)
        assert [ran.outcome for ran in seen] == [Outcome.DONE] * 3
    assert len(lines(caplog, "a carrier failed, and its part is not restored carrier=_Broken")) == 3


_unfit: list[BaseException] = []


def _check(value: object) -> object:
    for raised in _unfit:
        raise raised
    return value


User = Annotated[int, BeforeValidator(_check)]


@pytest.mark.parametrize("raised", RAISED, ids=repr)
async def test_whatever_a_values_type_raises_as_it_reads_a_payload_its_job_fails_and_its_worker_lives(
    new_queue: Callable[..., Queue], clock: Clock, raised: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Ran] = []
    queue = new_queue(observe=seen.append)

    @queue.kind("mail")
    async def mail(user: User) -> None: ...

    @queue.kind("canary")
    async def canary() -> None: ...

    await mail.push_many([1, 2])
    monkeypatch.setitem(globals(), "_unfit", [raised])
    async with queue.running():
        await canary.push()
        await clock.pass_time(1, turns=30)
        assert [(ran.kind, ran.outcome) for ran in seen] == [
            ("mail", Outcome.FAILED),
            ("mail", Outcome.FAILED),
            ("canary", Outcome.DONE),
        ]


async def test_an_on_fail_that_has_no_value_to_run_with_is_said_to_not_have_run(
    new_queue: Callable[..., Queue], caplog: pytest.LogCaptureFixture
) -> None:
    store = Memory()
    queue = new_queue(store=store)

    @queue.kind("mail")
    async def mail(user: int) -> None: ...

    @mail.on_fail
    async def tell(user: int, error: Exception) -> None:
        raise AssertionError("there's no value to tell of")

    await store.push([NewJob(kind="mail", payload='"seven"')])
    assert await queue.drain() == 1
    assert lines(caplog, "on_fail was not run") == [
        "on_fail was not run, as the payload doesn't fit kind=mail job=1 attempt=1"
    ]


class _Cancels(Memory):
    """Its first claim meets a future that someone cancelled."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.claims = 0

    async def claim(
        self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
    ) -> Claimed:
        self.claims += 1
        if self.claims == 1:
            raise asyncio.CancelledError
        return await super().claim(kinds, limit, ahead=ahead, others=others)


async def test_a_cancellation_that_nobody_asked_for_ends_no_loop(
    new_queue: Callable[..., Queue], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Ran] = []
    queue = new_queue(store=_Cancels(clock), observe=seen.append)

    @queue.kind("mail")
    async def mail(user: int) -> None: ...

    async with queue.running():
        await mail.push(1)
        await clock.pass_time(5, turns=30)
        assert [ran.outcome for ran in seen] == [Outcome.DONE]
    assert lines(caplog, 'a bug in fastjobs part="the feed"')


async def test_an_on_crash_that_raises_is_logged_and_the_loop_goes_on(
    new_queue: Callable[..., Queue], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Ran] = []
    queue = new_queue(store=_Cancels(clock), observe=seen.append)

    @queue.kind("mail")
    async def mail(user: int) -> None: ...

    def crashed(error: BaseException) -> None:
        raise RuntimeError("the pager is down")

    async with queue.running(on_crash=crashed):
        await mail.push(1)
        await clock.pass_time(5, turns=30)
        assert [ran.outcome for ran in seen] == [Outcome.DONE]
    assert len(lines(caplog, "on_crash= failed")) == 1


class _Bare:
    """A store of the three verbs alone, or with what it's said to have."""

    extras: ClassVar[Extra] = Extra(0)

    def __init__(self) -> None:
        self.jobs: list[NewJob] = []

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        self.jobs += jobs
        return [str(len(self.jobs)) for _ in jobs]

    async def claim(
        self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
    ) -> Claimed:
        return Claimed()

    async def mark(self, marks: Sequence[Any]) -> list[Any]:
        return []


class _Carries(_Bare):
    extras: ClassVar[Extra] = Extra.CARRY


@pytest.mark.parametrize("own", [_Bare, _Carries, None])
async def test_a_store_that_stands_for_a_transaction_is_given_what_it_keeps_itself(
    own: type[_Bare] | None,
) -> None:
    queue = Queue(own() if own else None, carry=[_Broken(ValueError())])

    @queue.kind("mail")
    async def mail(user: int) -> None: ...

    bare, carries = _Bare(), _Carries()
    for store in (bare, carries):
        await mail.in_(store).push(1)
        await mail.in_(store).push_many([2])
    assert [job.carried for job in bare.jobs] == [None, None]
    assert [job.carried for job in carries.jobs] == ['{"x":"1"}'] * 2

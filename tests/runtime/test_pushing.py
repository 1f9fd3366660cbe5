"""Pushing: when a job is due, what it carries, and what a push that can't be says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, ClassVar

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from fastjobs import (
    CarryError,
    Extra,
    Kind,
    Memory,
    PayloadError,
    PushError,
    Queue,
    QueueError,
    StoreError,
    current_job,
)
from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.duration import FIRST, LAST
from fastjobs.core.job import NewJob
from fastjobs.core.marks import Kept, Mark
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 1_000_000


class Mail(BaseModel):
    user: int


class Bare:
    """A store with the three verbs alone: it notes what is pushed."""

    extras: ClassVar[Extra] = Extra(0)

    def __init__(self) -> None:
        self.pushed: list[list[NewJob]] = []

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        self.pushed.append(list(jobs))
        return [str(number) for number in range(len(jobs))]

    async def claim(
        self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
    ) -> Claimed:
        return Claimed()

    async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
        return [Kept.YES for _ in marks]

    @property
    def jobs(self) -> list[NewJob]:
        return [job for jobs in self.pushed for job in jobs]


class Carrying(Bare):
    extras: ClassVar[Extra] = Extra.CARRY


def mails(store: Any, **given: Any) -> Kind[Mail]:
    queue = Queue(store, clock=Clock(), **given)

    @queue.kind("mail")
    async def mail(mail: Mail) -> None: ...

    return mail


def ticks(store: Any, **given: Any) -> Kind[None]:
    queue = Queue(store, clock=Clock(), **given)

    @queue.kind("tick")
    async def tick() -> None: ...

    return tick


# When it's due.


async def test_a_push_is_due_now_by_the_stores_clock() -> None:
    store = Bare()
    assert await mails(store).push(Mail(user=1)) == "0"
    assert store.jobs == [NewJob(kind="mail", payload='{"user":1}', at=None, after=0)]


@pytest.mark.parametrize(
    ("after", "expected"), [(0, 0), (2, 2 * SECOND), (0.25, SECOND // 4), (timedelta(minutes=1), 60 * SECOND)]
)
async def test_a_wait_is_seconds_or_a_timedelta(after: float | timedelta, expected: int) -> None:
    store = Bare()
    await mails(store).push(Mail(user=1), after=after)
    assert (store.jobs[0].at, store.jobs[0].after) == (None, expected)


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=5, minutes=30))])
async def test_a_time_is_an_exact_instant(zone: timezone) -> None:
    store = Bare()
    await mails(store).push(Mail(user=1), at=(START + timedelta(microseconds=1)).astimezone(zone))
    assert store.jobs[0].at == 1_767_225_600_000_001


async def test_a_time_that_has_gone_is_due() -> None:
    store = Bare()
    await mails(store).push(Mail(user=1), at=START - timedelta(days=30_000))
    assert store.jobs[0].at is not None


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ({"at": datetime(2026, 1, 2)}, "at needs a zone: 2026-01-02T00:00:00"),
        ({"at": START, "after": 5}, "a job is due at= a time or after= a wait, not both"),
        ({"at": START, "after": 0}, "not both"),
        ({"at": 5}, "at is a datetime with a zone, and this is a int: 5"),
        ({"at": "2026-01-02"}, "at is a datetime with a zone"),
        ({"at": START.date()}, "at is a datetime with a zone"),
        ({"after": -1}, "after is at least 0 s, and this is -1 s"),
        ({"after": float("nan")}, "after is a number of seconds"),
        ({"after": float("inf")}, "after is a number of seconds"),
        ({"after": 1e305}, "after is at most 9,999 years"),
        ({"after": 10**400}, "after is at most 9,999 years"),
        ({"after": "5"}, "after is seconds or a timedelta, and this is a str"),
        ({"after": True}, "after is seconds or a timedelta, and this is a bool"),
        ({"after": START}, "after is seconds or a timedelta, and this is a datetime"),
        ({"after": timedelta(days=365 * 8000)}, "is past the year 9999"),
    ],
)
async def test_a_time_that_cannot_be_is_a_push_error_and_nothing_is_pushed(
    when: dict[str, Any], told: str
) -> None:
    store = Bare()
    kind = mails(store)
    with pytest.raises(PushError, match=told):
        await kind.push(Mail(user=1), **when)
    with pytest.raises(PushError, match=told):
        await kind.push_many([Mail(user=1)], **when)
    with pytest.raises(PushError, match=told):
        await kind.in_(store).push(Mail(user=1), **when)
    assert store.pushed == []


# Values.


async def test_many_are_pushed_in_their_order_at_once() -> None:
    store = Bare()
    values = [Mail(user=number) for number in range(50)]
    assert await mails(store).push_many(iter(values), after=3) == [str(number) for number in range(50)]
    assert len(store.pushed) == 1
    assert [job.payload for job in store.jobs] == [f'{{"user":{number}}}' for number in range(50)]
    assert {job.after for job in store.jobs} == {3 * SECOND}


async def test_many_are_pushed_all_or_none() -> None:
    store = Bare()
    bad: Any = {"user": "x"}
    with pytest.raises(PayloadError, match=r"kind 'mail'.*user"):
        await mails(store).push_many([Mail(user=1), bad, Mail(user=3)])
    assert store.pushed == []


async def test_an_error_of_the_values_comes_out_and_nothing_is_pushed() -> None:
    def values() -> Iterator[Mail]:
        yield Mail(user=1)
        raise LookupError("no more")

    store = Bare()
    with pytest.raises(LookupError):
        await mails(store).push_many(values())
    assert store.pushed == []


async def test_no_values_ask_nothing_of_the_store() -> None:
    store = Bare()
    assert await mails(store).push_many([]) == []
    assert await mails(store).in_(store).push_many([]) == []
    assert store.pushed in ([], [[]])


async def test_a_kind_without_a_value_is_pushed_without_one_or_with_none() -> None:
    store = Bare()
    kind = ticks(store)
    await kind.push()
    await kind.push(None)
    await kind.push(after=5)
    await kind.push_many([None, None])
    assert [job.payload for job in store.jobs] == ["null"] * 5


async def test_a_value_for_a_kind_without_one_is_a_payload_error() -> None:
    push: Any = ticks(Bare()).push
    with pytest.raises(
        PayloadError, match=r"kind 'tick': its handler takes no value, and this push has one, of type Mail$"
    ):
        await push(Mail(user=1))


async def test_no_value_for_a_kind_with_one_is_a_payload_error() -> None:
    push: Any = mails(Bare()).push
    with pytest.raises(
        PayloadError, match=r"kind 'mail': the value, of type NoneType, doesn't fit its kind's type"
    ):
        await push()


async def test_a_value_over_max_payload_is_a_payload_error() -> None:
    store = Bare()
    kind = mails(store, max_payload=12)
    await kind.push(Mail(user=123))
    with pytest.raises(PayloadError, match="13 bytes as JSON, and max_payload is 12"):
        await kind.push(Mail(user=1234))
    assert len(store.jobs) == 1


class Odd:
    def __repr__(self) -> str:
        return "odd"

    def __eq__(self, other: object) -> bool:
        raise ValueError("odd")

    def __hash__(self) -> int:
        return 0


DURATIONS = st.floats() | st.integers() | st.timedeltas()
INSTANTS = st.datetimes() | st.datetimes(timezones=st.timezones())
ODD = (
    st.builds(Odd)
    | st.text()
    | st.binary()
    | st.decimals()
    | st.dates()
    | st.none()
    | st.booleans()
    | st.complex_numbers()
)
VALUES = (
    st.builds(Mail, user=st.integers())
    | st.dictionaries(st.text(max_size=5), st.integers())
    | ODD
    | DURATIONS
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(VALUES, st.none() | INSTANTS | ODD, st.none() | DURATIONS | ODD)
def test_whatever_it_is_given_a_push_pushes_or_raises_an_error_of_its_own(
    value: Any, at: Any, after: Any
) -> None:
    for kind in (mails(Bare()), ticks(Bare())):
        try:
            (job,), _ = kind.jobs((value,), at, after)
        except (PushError, PayloadError):
            continue
        assert job.at is None or FIRST <= job.at <= LAST
        assert 0 <= job.after <= LAST
        assert type(job.payload) is str


# Stores.


async def test_a_push_without_a_store_says_how_to_give_it_one() -> None:
    kind = mails(None)
    with pytest.raises(QueueError, match=r"no store yet: Queue\(store\), q\.use\(store\) or lifespan"):
        await kind.push(Mail(user=1))
    with pytest.raises(QueueError, match="no store yet"):
        kind.in_(object())  # type: ignore[call-overload]  # pyright: ignore
    assert kind.queue is not None
    store = Bare()
    kind.queue.use(store)
    await kind.push(Mail(user=1))
    assert len(store.jobs) == 1


async def test_in_a_store_of_another_kind_its_own_store_is_not_asked() -> None:
    store = Bare()
    kind = mails(None)
    assert await kind.in_(store).push(Mail(user=1)) == "0"
    assert len(store.jobs) == 1


async def test_a_store_without_transactions_says_so() -> None:
    with pytest.raises(StoreError, match="in_\\(\\) needs a store with TRANSACTIONS, and Bare has no extras"):
        mails(Bare()).in_(object())  # type: ignore[call-overload]  # pyright: ignore


async def test_what_is_no_transaction_is_refused() -> None:
    with pytest.raises(StoreError):
        mails(Memory()).in_(object())  # type: ignore[call-overload]  # pyright: ignore


async def test_an_error_of_the_store_comes_out_as_it_is() -> None:
    class Broken(Bare):
        async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await mails(Broken()).push(Mail(user=1))


async def test_a_push_through_a_queue_that_never_ran_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    class Kept(Bare):
        extras = Extra.LIFECYCLE

    caplog.set_level(logging.INFO, "fastjobs")
    await mails(Bare()).push(Mail(user=1))
    assert not caplog.records, "a store with nothing to open is a test's"
    kind = mails(Kept())
    await kind.push(Mail(user=1))
    await kind.push(Mail(user=2))
    assert [record.message.split(",")[0] for record in caplog.records] == [
        "a job was pushed through a queue that was never started in this process"
    ]
    assert "kind=mail" in caplog.text


# Carrying.

tenant: ContextVar[str] = ContextVar("tenant", default="")


class CarryTenant:
    def carry(self, into: MutableMapping[str, str]) -> None:
        into["tenant"] = tenant.get()

    def restore(self, carried: Mapping[str, str]) -> None:
        tenant.set(carried.get("tenant", ""))


class Other:
    def carry(self, into: MutableMapping[str, str]) -> None:
        into["other"] = "x"

    def restore(self, carried: Mapping[str, str]) -> None: ...


class Broken:
    """Raises after it has put something in, and as it's to give it back."""

    def carry(self, into: MutableMapping[str, str]) -> None:
        into["broken"] = "half"
        raise LookupError("no\ncontext")

    def restore(self, carried: Mapping[str, str]) -> None:
        raise LookupError("no context")


class Carries:
    def __init__(self, into: Any) -> None:
        self.into = into

    def carry(self, into: MutableMapping[str, str]) -> None:
        into.update(self.into)

    def restore(self, carried: Mapping[str, str]) -> None: ...


async def test_a_push_carries_what_its_context_has() -> None:
    store = Carrying()
    tenant.set("acme")
    await mails(store, carry=[CarryTenant(), Other()]).push_many([Mail(user=1), Mail(user=2)])
    assert [job.carried for job in store.jobs] == ['{"tenant":"acme","other":"x"}'] * 2


async def test_a_store_that_does_not_carry_is_given_nothing_to() -> None:
    store = Bare()
    await mails(store, carry=[CarryTenant()]).push(Mail(user=1))
    assert store.jobs[0].carried is None


async def test_a_push_without_carriers_carries_nothing() -> None:
    store = Carrying()
    await mails(store).push(Mail(user=1))
    assert store.jobs[0].carried is None


async def test_a_carrier_that_raises_loses_its_own_part_alone(caplog: pytest.LogCaptureFixture) -> None:
    store = Carrying()
    await mails(store, carry=[CarryTenant(), Broken(), Other()]).push(Mail(user=1))
    assert store.jobs[0].carried == '{"tenant":"","other":"x"}'
    told = [record.message for record in caplog.records if "carrier" in record.message]
    assert len(told) == 1
    assert "a carrier failed, and its part is not carried carrier=Broken" in told[0]
    assert "\n" not in told[0]


@pytest.mark.parametrize(
    ("into", "told"),
    [
        ({"a": "x" * 4096}, "at most 4096 bytes"),
        ({f"n{n}": "" for n in range(33)}, "at most 32 names"),
        ({"a": "x\r\ny"}, "has control characters"),
        ({"A": "x"}, "a carried name is"),
        ({"a": 5}, "is a string, not a int"),
    ],
)
async def test_what_is_too_much_to_carry_is_a_carry_error_and_nothing_is_pushed(into: Any, told: str) -> None:
    store = Carrying()
    with pytest.raises(CarryError, match=told):
        await mails(store, carry=[Carries(into)]).push(Mail(user=1))
    assert store.pushed == []


async def test_what_was_carried_is_restored_for_the_job_alone() -> None:
    clock = Clock()
    queue = Queue(Memory(clock=clock), clock=clock, carry=[Broken(), CarryTenant()])
    seen = list[tuple[str, Mapping[str, str]]]()

    @queue.kind("mail")
    async def mail(mail: Mail) -> None:
        seen.append((tenant.get(), dict(current_job().carried)))
        tenant.set("left behind")

    tenant.set("one")
    await mail.push(Mail(user=1))
    tenant.set("two")
    await mail.push(Mail(user=2))
    tenant.set("mine")
    assert await queue.drain() == 2
    assert seen == [("one", {"tenant": "one"}), ("two", {"tenant": "two"})]
    assert tenant.get() == "mine"


# Pushes that wait for their await.


class Pushes:
    """A store whose transactions are this object, and that notes what is unfinished as they'd commit."""

    extras: ClassVar[Extra] = Extra.TRANSACTIONS

    def __init__(self) -> None:
        self.jobs: list[NewJob] = []
        self.unfinished: Callable[[], str | None] = lambda: None
        self.fails: Exception | None = None

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        await anyio.lowlevel.checkpoint()
        if self.fails is not None:
            raise self.fails
        self.jobs.extend(jobs)
        return [str(len(self.jobs))] * len(jobs)

    claim = Bare.claim
    mark = Bare.mark

    def within(
        self, tx: object, committed: Callable[[], None], unfinished: Callable[[], str | None] = lambda: None
    ) -> Any:
        self.unfinished = unfinished

        class Tx:
            sync = False
            push = self.push

        return Tx()


@pytest.fixture
def tx() -> Pushes:
    return Pushes()


def in_tx(tx: Pushes) -> Any:
    return mails(tx).in_(object())  # type: ignore[call-overload]  # pyright: ignore


async def test_a_push_that_was_awaited_is_finished(tx: Pushes) -> None:
    assert await in_tx(tx).push(Mail(user=1)) == "1"
    assert await in_tx(tx).push_many([Mail(user=2)]) == ["2"]
    assert tx.unfinished() is None


async def test_a_push_that_was_never_awaited_is_named_and_pushes_nothing(tx: Pushes) -> None:
    push = in_tx(tx)
    push.push(Mail(user=1))
    await push.push(Mail(user=2))
    assert "a push of 'mail' in this transaction was never awaited" in str(tx.unfinished())
    assert [job.payload for job in tx.jobs] == ['{"user":2}']


async def test_many_that_were_never_awaited_are_named_too(tx: Pushes) -> None:
    in_tx(tx).push_many([Mail(user=1)])
    assert "never awaited" in str(tx.unfinished())


async def test_a_value_that_cannot_be_pushed_raises_at_the_call_and_is_not_unfinished(tx: Pushes) -> None:
    push = in_tx(tx)
    with pytest.raises(PayloadError):
        push.push({"user": "x"})
    assert tx.unfinished() is None


async def with_await(push: Coroutine[Any, Any, str | None]) -> str | None:
    return await push


async def with_create_task(push: Coroutine[Any, Any, str | None]) -> str | None:
    return await asyncio.create_task(push)


async def with_gather(push: Coroutine[Any, Any, str | None]) -> str | None:
    return (await asyncio.gather(push))[0]


async def with_wait_for(push: Coroutine[Any, Any, str | None]) -> str | None:
    return await asyncio.wait_for(push, 10)


async def with_shield(push: Coroutine[Any, Any, str | None]) -> str | None:
    return await asyncio.shield(push)


async def with_task_group(push: Coroutine[Any, Any, str | None]) -> str | None:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(push)
    return task.result()


AWAITS = [with_await, with_create_task, with_gather, with_wait_for, with_shield, with_task_group]


@pytest.mark.parametrize("wait_for", AWAITS)
async def test_a_push_is_awaited_in_every_way_that_a_coroutine_is(tx: Pushes, wait_for: Any) -> None:
    push = in_tx(tx).push(Mail(user=1))
    assert asyncio.iscoroutine(push)
    assert tx.unfinished() is not None
    assert await wait_for(push) == "1"
    assert tx.unfinished() is None


@pytest.mark.parametrize("wait_for", [with_await, with_create_task, with_gather])
async def test_an_error_of_the_push_comes_out_and_it_is_finished(tx: Pushes, wait_for: Any) -> None:
    tx.fails = OSError("disk full")
    with pytest.raises(OSError, match="disk full"):
        await wait_for(in_tx(tx).push(Mail(user=1)))
    assert tx.unfinished() is None


async def test_pushes_of_one_transaction_may_be_gathered(tx: Pushes) -> None:
    push = in_tx(tx)
    await asyncio.gather(*(push.push(Mail(user=number)) for number in range(20)))
    assert len(tx.jobs) == 20
    assert tx.unfinished() is None


async def test_a_task_that_has_not_begun_is_unfinished(tx: Pushes) -> None:
    task = asyncio.create_task(in_tx(tx).push(Mail(user=1)))
    assert "never awaited" in str(tx.unfinished())
    await task
    assert tx.unfinished() is None


async def test_a_push_that_was_cancelled_raises_where_it_is_awaited(tx: Pushes) -> None:
    task = asyncio.create_task(in_tx(tx).push(Mail(user=1)))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tx.jobs == []


async def test_a_push_is_awaited_once(tx: Pushes) -> None:
    push = in_tx(tx).push(Mail(user=1))
    await push
    with pytest.raises(RuntimeError, match="already awaited"):
        await push
    assert len(tx.jobs) == 1


async def test_a_push_that_was_closed_is_still_one_that_was_never_awaited(tx: Pushes) -> None:
    in_tx(tx).push(Mail(user=1)).close()
    assert "never awaited" in str(tx.unfinished())

"""`kind.schedule`: what it takes, what it refuses, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, cast

import pytest

from fastjobs import (
    Cron,
    Every,
    Extra,
    Kinds,
    Memory,
    PayloadError,
    Queue,
    RegistrationError,
    Schedule,
    StoreError,
    Unique,
)
from fastjobs.core.unique import key_of
from fastjobs.testing import Clock
from tests.runtime.conftest import Mail

pytestmark = pytest.mark.anyio

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Without(Memory):
    extras: ClassVar[Extra] = Memory.extras & ~Extra.SCHEDULES


def test_a_schedule_is_named_after_its_kind_and_a_second_needs_a_name(queue: Queue) -> None:
    @queue.kind("mail")
    def mail(value: Mail) -> None: ...

    mail.schedule(Every(60), Mail(user=1))
    with pytest.raises(
        RegistrationError, match=r"'mail' is a schedule of this kind already.*name=\"mail-2\""
    ):
        mail.schedule(Every(30), Mail(user=2))
    mail.schedule(Every(30), Mail(user=2), name="mail-2")
    assert [each.name for each in queue.schedules] == ["mail", "mail-2"]
    assert [each.job.payload for each in queue.schedules] == ['{"user":1}', '{"user":2}']


def test_a_schedules_name_is_one_in_a_queue(queue: Queue) -> None:
    @queue.kind("mail")
    def mail() -> None: ...

    @queue.kind("photo")
    def photo() -> None: ...

    mail.schedule(Every(60), name="photo")
    with pytest.raises(RegistrationError, match="'photo' is a schedule of kind 'mail' already"):
        photo.schedule(Every(60))
    photo.schedule(Every(60), name="Photo")


def test_a_value_is_checked_as_a_pushs_is(new_queue: Callable[..., Queue]) -> None:
    queue = new_queue(max_payload=40)

    @queue.kind("mail")
    def mail(value: Mail) -> None: ...

    @queue.kind("text")
    def text(value: str) -> None: ...

    with pytest.raises(PayloadError, match="user"):
        mail.schedule(Every(60), cast(Mail, {"user": "x"}))
    with pytest.raises(PayloadError, match="doesn't fit"):
        cast(Any, mail).schedule(Every(60))
    with pytest.raises(PayloadError, match="max_payload"):
        text.schedule(Every(60), "x" * 40)
    assert queue.schedules == ()


def test_a_value_that_changes_later_is_scheduled_as_it_was(queue: Queue) -> None:
    @queue.kind("mail")
    def mail(value: Mail) -> None: ...

    value = Mail(user=1)
    mail.schedule(Every(60), value)
    value.user = 2
    assert queue.schedules[0].job.payload == '{"user":1}'


class _Later:
    async def next(self, after: datetime) -> datetime | None:
        return after


class _Alone:
    def next(self) -> datetime | None:
        return None


class _ByName:
    def next(self, *, after: datetime) -> datetime | None:
        return after


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Every, "Every is a class"),
        ("0 2 * * *", "it's a Cron"),
        (None, "it's a Cron"),
        (timedelta(hours=1), "it's a Cron"),
        (_Later(), "not awaited"),
        (_Alone(), r"next\(after\), and takes \(\)"),
        (_ByName(), r"by position.*takes \(\*, after"),
    ],
    ids=["a class", "text", "nothing", "a timedelta", "an async one", "one without after", "one by name"],
)
def test_what_is_no_schedule_is_refused(queue: Queue, given: Any, said: str) -> None:
    @queue.kind("mail")
    def mail() -> None: ...

    with pytest.raises(RegistrationError, match=said):
        mail.schedule(given)
    assert queue.schedules == ()


def test_a_schedule_whose_parameters_cannot_be_told_is_taken(queue: Queue) -> None:
    class Native:
        next = max

    @queue.kind("mail")
    def mail() -> None: ...

    class Unreadable:
        @property
        def __signature__(self) -> object:
            raise NameError("an annotation's name")

        def __call__(self, after: datetime) -> datetime | None:
            return None

    class Annotated:
        next = Unreadable()

    mail.schedule(cast(Any, Native()), name="native")
    mail.schedule(cast(Any, Annotated()), name="annotated")
    assert [each.name for each in queue.schedules] == ["native", "annotated"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"missed": "never"}, "missed is"),
        ({"missed": ["once"]}, "missed is"),
        ({"jitter": -1}, "jitter"),
        ({"jitter": "5 s"}, "jitter"),
        ({"name": ""}, "printable ASCII"),
        ({"name": "é"}, "printable ASCII"),
        ({"name": "n" * 201}, "printable ASCII"),
        ({"name": 5}, "printable ASCII"),
    ],
    ids=str,
)
def test_an_option_that_cannot_be_is_refused(queue: Queue, more: dict[str, Any], said: str) -> None:
    @queue.kind("mail")
    def mail() -> None: ...

    with pytest.raises(RegistrationError, match=said):
        mail.schedule(Every(60), **more)
    assert queue.schedules == ()


def test_a_store_without_schedules_is_refused_once_both_are_known(clock: Clock) -> None:
    def make(store: Memory | None) -> tuple[Queue, Any]:
        queue = Queue(store, clock=clock)

        @queue.kind("mail")
        def mail() -> None: ...

        return queue, mail

    _, mail = make(Without(clock=clock))
    with pytest.raises(StoreError, match="SCHEDULES"):
        mail.schedule(Every(60))
    queue, mail = make(None)
    mail.schedule(Every(60))
    with pytest.raises(StoreError, match="SCHEDULES"):
        queue.use(Without(clock=clock))
    queue.use(Memory(clock=clock))


def test_kinds_of_another_module_have_schedules_too(clock: Clock, new_queue: Callable[..., Queue]) -> None:
    kinds = Kinds()

    @kinds.kind("mail")
    def mail(value: str) -> None: ...

    mail.schedule(Every(60), "x" * 50)
    with pytest.raises(RegistrationError, match="this kind"):
        mail.schedule(Every(60), "y")
    with pytest.raises(StoreError, match="SCHEDULES"):
        Queue(Without(clock=clock)).include(kinds)
    small = new_queue(max_payload=40)
    with pytest.raises(PayloadError, match="max_payload"):
        small.include(kinds)
    assert small.schedules == ()
    queue = new_queue()
    queue.include(kinds)
    mail.schedule(Every(60), "y", name="more")
    assert [each.name for each in queue.schedules] == ["mail", "more"]


def test_kinds_whose_schedules_have_one_name_are_included_all_or_none(queue: Queue) -> None:
    kinds = Kinds()

    @kinds.kind("mail")
    def mail() -> None: ...

    @kinds.kind("photo")
    def photo() -> None: ...

    mail.schedule(Every(60), name="nightly")
    photo.schedule(Every(60), name="nightly")
    with pytest.raises(RegistrationError, match="'nightly' is a schedule of kind 'mail' already"):
        queue.include(kinds)
    assert not queue.kinds


async def test_no_schedule_is_registered_while_the_queue_runs(queue: Queue) -> None:
    @queue.kind("mail")
    def mail() -> None: ...

    async with queue.running():
        with pytest.raises(RegistrationError, match="the queue runs already"):
            mail.schedule(Every(60))
    mail.schedule(Every(60))
    assert len(queue.schedules) == 1
    await asyncio.sleep(0)


def test_a_run_of_a_unique_kind_has_the_key_and_never_moves_a_job(queue: Queue) -> None:
    @queue.kind("mail", unique=Unique(latest=True, one_at_a_time=True, at_most=60))
    def mail(value: Mail) -> None: ...

    mail.schedule(Every(60), Mail(user=1))
    job = queue.schedules[0].run(AT).job
    assert (job.key, job.one_at_a_time, job.latest, job.at_most) == (key_of('{"user":1}'), True, False, None)


def test_jitter_puts_off_the_job_and_not_the_run_by_the_same_on_each_instance(
    new_queue: Callable[..., Queue],
) -> None:
    found: list[list[int]] = []
    for _ in range(2):
        queue = new_queue()

        @queue.kind("mail")
        def mail() -> None: ...

        mail.schedule(Every(3600), jitter=timedelta(minutes=5))
        runs = [queue.schedules[0].run(AT + timedelta(hours=n)) for n in range(200)]
        assert [run.due for run in runs] == [
            round((AT + timedelta(hours=n)).timestamp()) * 1_000_000 for n in range(200)
        ]
        found.append([(run.job.at or 0) - run.due for run in runs])
    assert found[0] == found[1]
    assert len(set(found[0])) > 190
    assert 0 <= min(found[0]) < 30_000_000
    assert 270_000_000 < max(found[0]) <= 300_000_000


def test_a_run_at_the_end_of_time_is_still_one(queue: Queue) -> None:
    @queue.kind("mail")
    def mail() -> None: ...

    mail.schedule(Cron("0 0 * * *"), jitter=timedelta(days=30))
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert queue.schedules[0].run(last).job.at is not None


def test_the_words_of_the_protocol_are_enough_for_a_schedule_of_ones_own(queue: Queue) -> None:
    class Once:
        def next(self, after: datetime, /) -> datetime | None:
            return AT if after < AT else None

    @queue.kind("mail")
    def mail() -> None: ...

    once: Schedule = Once()
    mail.schedule(once)
    assert queue.schedules[0].schedule is once

"""What the metrics say: of runs and pushes in this process, and of the jobs in the store, which is asked seldom."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio import to_thread
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from prometheus_client import CollectorRegistry, generate_latest

from fastjobs import (
    Every,
    LostWorker,
    Memory,
    OTelMetrics,
    Outcome,
    Permanent,
    PrometheusMetrics,
    Queue,
    Ran,
    RegistrationError,
    Snooze,
    Throttle,
)
from fastjobs.store import KindCount
from fastjobs.telemetry import conventions as names
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio

Labels = frozenset[tuple[str, str]]


class Read:
    """What an OpenTelemetry meter has told of."""

    def __init__(self, **options: Any) -> None:
        self._reader: Any = InMemoryMetricReader()
        provider = MeterProvider([self._reader], shutdown_on_exit=False)
        self.metrics = OTelMetrics(meter_provider=provider, **options)

    def all(self) -> dict[str, dict[Labels, Any]]:
        """By name and attributes: a number, or of a histogram how many and their sum."""
        data: Any = self._reader.get_metrics_data()
        found: dict[str, dict[Labels, Any]] = {}
        resources: list[Any] = [] if data is None else data.resource_metrics
        scopes: list[Any] = [scope for resource in resources for scope in resource.scope_metrics]
        for scope in scopes:
            assert scope.scope.name == "fastjobs"
            metrics: list[Any] = scope.metrics
            for metric in metrics:
                points: list[Any] = metric.data.data_points
                found[metric.name] = {labels(**dict(each.attributes or {})): number(each) for each in points}
        return found


def number(point: Any) -> Any:
    if isinstance(point, HistogramDataPoint):
        return point.count, point.sum
    assert isinstance(point, NumberDataPoint)
    return point.value


def labels(**each: Any) -> Labels:
    return frozenset((name, str(value)) for name, value in each.items())


def of(kind: str, **more: str) -> Labels:
    return frozenset({(names.DESTINATION, kind), *more.items()})


def messaging(kind: str, operation: str, **more: str) -> Labels:
    about = {names.SYSTEM: "fastjobs", names.OPERATION_NAME: operation, names.DESTINATION: kind}
    return frozenset({*about.items(), *more.items()})


def page(registry: CollectorRegistry) -> dict[str, float]:
    """A scrape's lines, by name and labels."""
    lines = [each for each in generate_latest(registry).decode().splitlines() if not each.startswith("#")]
    return {name: float(value) for name, _, value in (each.rpartition(" ") for each in lines)}


NewMetricsQueue = Callable[..., Queue]


@pytest.fixture
def new(clock: Clock) -> NewMetricsQueue:
    def new(observe: Any, **options: Any) -> Queue:
        return Queue(
            options.pop("store", None) or Memory(clock=clock), clock=clock, observe=observe, **options
        )

    return new


def mails(q: Queue, clock: Clock) -> Any:
    """A kind whose jobs do what their value says, and take a second."""

    @q.kind("mail", attempts=2, backoff=5)
    async def mail(what: str) -> None:
        clock.advance(1)
        if what == "fails":
            raise ConnectionRefusedError
        if what == "refused":
            raise Permanent("no")
        if what == "snoozes":
            raise Snooze(after=1000)

    return mail


async def test_opentelemetry_is_told_of_each_run_by_the_conventions_and_by_its_outcome(
    new: NewMetricsQueue, clock: Clock
) -> None:
    read = Read()
    q = new(read.metrics)
    mail = mails(q, clock)
    await mail.push_many(["works", "fails", "refused", "snoozes"])
    await q.drain()
    clock.advance(5)
    await q.drain()
    found = read.all()
    assert found[names.RUNS] == {
        of("mail", **{names.OUTCOME: "done"}): 1,
        of("mail", **{names.OUTCOME: "retried"}): 1,
        of("mail", **{names.OUTCOME: "failed"}): 2,
        of("mail", **{names.OUTCOME: "held back"}): 1,
    }
    error = {names.ERROR_TYPE: "ConnectionRefusedError"}
    refused = {names.ERROR_TYPE: "fastjobs.core.errors.Permanent"}
    assert found[names.CONSUMED_MESSAGES] == {
        messaging("mail", "process"): 2,
        messaging("mail", "process", **error): 2,
        messaging("mail", "process", **refused): 1,
    }
    assert found[names.PROCESS_DURATION] == {
        messaging("mail", "process"): (2, 2.0),
        messaging("mail", "process", **error): (2, 2.0),
        messaging("mail", "process", **refused): (1, 1.0),
    }
    assert found[names.SENT_MESSAGES] == {messaging("mail", "send"): 4}
    (count, _seconds) = found[names.WAITED_TIME][of("mail")]
    assert count == 5


async def test_prometheus_is_told_of_each_run(new: NewMetricsQueue, clock: Clock) -> None:
    registry = CollectorRegistry()
    q = new(PrometheusMetrics(registry=registry))
    mail = mails(q, clock)
    await mail.push_many(["works", "fails"])
    await q.drain()
    found = page(registry)
    assert found['fastjobs_runs_total{kind="mail",outcome="done"}'] == 1
    assert found['fastjobs_runs_total{kind="mail",outcome="retried"}'] == 1
    assert found['fastjobs_pushed_total{kind="mail"}'] == 2
    assert found['fastjobs_run_seconds_count{kind="mail"}'] == 2
    assert found['fastjobs_run_seconds_sum{kind="mail"}'] == 2.0
    assert found['fastjobs_run_seconds_bucket{kind="mail",le="0.5"}'] == 0
    assert found['fastjobs_run_seconds_bucket{kind="mail",le="1.0"}'] == 2
    assert found['fastjobs_waited_seconds_count{kind="mail"}'] == 2
    assert found['fastjobs_waited_seconds_sum{kind="mail"}'] == 1.0  # the second one waited for the first


async def test_what_never_ran_is_no_run_that_took_no_time(new: NewMetricsQueue, clock: Clock) -> None:
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry=registry)
    read = Read()
    q = new([metrics, read.metrics], poll=0.05)

    @q.kind("sms", rate=Throttle(1, per=60))
    async def sms() -> None: ...

    await sms.push()
    await sms.push()
    await q.drain()
    # Cancelled in the moment before its worker began with it, and one that kept losing its worker.
    cancelled = Ran(
        kind="sms", job="8", attempt=1, outcome=Outcome.CANCELLED, error=None, took=0.0, waited=1.0
    )
    metrics(cancelled)
    read.metrics(cancelled)
    lost = LostWorker("lost its worker")
    ran = Ran(kind="sms", job="9", attempt=3, outcome=Outcome.FAILED, error=lost, took=0.0, waited=1.0)
    metrics(ran)
    read.metrics(ran)
    found = page(registry)
    assert found['fastjobs_runs_total{kind="sms",outcome="failed"}'] == 1
    assert found['fastjobs_runs_total{kind="sms",outcome="cancelled"}'] == 1
    assert found['fastjobs_run_seconds_count{kind="sms"}'] == 1
    assert read.all()[names.CONSUMED_MESSAGES] == {messaging("sms", "process"): 1}


async def test_pushes_are_counted_whichever_way_they_come(new: NewMetricsQueue, clock: Clock) -> None:
    registry = CollectorRegistry()
    q = new(PrometheusMetrics(registry=registry))

    @q.kind("mail", unique=True)
    async def mail(user: int) -> None: ...

    @q.kind("report")
    async def report() -> None: ...

    report.schedule(Every(hours=1))
    other = Memory(clock=clock)
    assert await mail.push(1) is not None
    assert await mail.push(1) is None  # it waits already
    assert (await mail.push_many([1, 2, 3]))[0] is None
    await mail.in_(other).push(1)
    await to_thread.run_sync(mail.sync.push, 4)
    assert page(registry)['fastjobs_pushed_total{kind="mail"}'] == 5
    async with q.running():
        await clock.pass_time(0.1)
    assert page(registry)['fastjobs_pushed_total{kind="report"}'] == 1  # by its schedule, ahead of its time


async def test_a_push_that_fails_is_not_counted(new: NewMetricsQueue, clock: Clock) -> None:
    class Down(Memory):
        async def push(self, jobs: Any) -> Any:
            raise OSError("no route to the database")

    registry = CollectorRegistry()
    q = new(PrometheusMetrics(registry=registry), store=Down(clock=clock))

    @q.kind("mail")
    async def mail() -> None: ...

    with pytest.raises(OSError, match="no route"):
        await mail.push()
    assert 'fastjobs_pushed_total{kind="mail"}' not in page(registry)


# Gauges.


class Asked(Memory):
    """Counts how often it's asked for numbers; while `down`, it has none."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.times = 0
        self.down = False

    async def counts(self, *, cap: int = 10_000) -> list[KindCount]:
        self.times += 1
        if self.down:
            raise OSError("no route to the database")
        return await super().counts(cap=cap)


async def test_gauges_tell_of_the_store_by_one_query_a_scrape_and_at_most_one_in_five_seconds(
    new: NewMetricsQueue, clock: Clock
) -> None:
    store, registry, read = Asked(clock), CollectorRegistry(), Read()
    q = new([PrometheusMetrics(registry=registry), read.metrics], store=store, workers=1)
    mail = mails(q, clock)
    await mail.push("refused")
    await q.drain()
    await mail.push_many(["a", "b", "c"])
    await mail.push("later", after=3600)
    await q.pause("mail")
    clock.advance(40)
    async with q.running(run=False):
        found = await to_thread.run_sync(page, registry)
        assert store.times == 1
        gauges = ("fastjobs_jobs_", "fastjobs_oldest_", "fastjobs_paused")
        assert {name: value for name, value in found.items() if name.startswith(gauges)} == {
            'fastjobs_jobs_waiting{kind="mail"}': 4,
            'fastjobs_jobs_due{kind="mail"}': 3,
            'fastjobs_jobs_held{kind="mail"}': 0,
            'fastjobs_jobs_parked{kind="mail"}': 0,
            'fastjobs_jobs_failed{kind="mail"}': 1,
            'fastjobs_oldest_age_seconds{kind="mail"}': 40,
            'fastjobs_paused{kind="mail"}': 1,
        }  # fmt: skip
        told = await to_thread.run_sync(read.all)
        assert store.times == 2  # each metrics object's own, and seven gauges are one query
        assert told[names.WAITING_JOBS] == {of("mail"): 4}
        assert told[names.DUE_JOBS] == {of("mail"): 3}
        assert told[names.HELD_JOBS] == {of("mail"): 0}
        assert told[names.FAILED_JOBS] == {of("mail"): 1}
        assert told[names.OLDEST_AGE] == {of("mail"): 40.0}
        assert told[names.PAUSED] == {of("mail"): 1}
        clock.advance(4.9)
        await to_thread.run_sync(page, registry)
        assert store.times == 2
        clock.advance(0.2)
        found = await to_thread.run_sync(page, registry)
        assert store.times == 3
        assert found['fastjobs_oldest_age_seconds{kind="mail"}'] == 45.1
    # A queue that doesn't run is asked nothing, and says nothing old either.
    assert not [name for name in await to_thread.run_sync(page, registry) if "jobs_waiting" in name]
    assert store.times == 3


async def test_a_scrape_on_the_event_loop_waits_for_nothing_and_has_the_numbers_the_next_time(
    new: NewMetricsQueue, clock: Clock
) -> None:
    store, registry = Asked(clock), CollectorRegistry()
    q = new(PrometheusMetrics(registry=registry), store=store)
    mail = mails(q, clock)
    await mail.push("a")
    async with q.running(run=False):
        assert 'fastjobs_jobs_waiting{kind="mail"}' not in page(registry)
        await anyio.wait_all_tasks_blocked()
        assert page(registry)['fastjobs_jobs_waiting{kind="mail"}'] == 1
        await mail.push("b")
        clock.advance(10)
        assert page(registry)['fastjobs_jobs_waiting{kind="mail"}'] == 1  # and asks anew
        await anyio.wait_all_tasks_blocked()
        assert page(registry)['fastjobs_jobs_waiting{kind="mail"}'] == 2
        assert store.times == 2


class Slow(Asked):
    """Answers once it may."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.go = asyncio.Event()

    async def counts(self, *, cap: int = 10_000) -> list[KindCount]:
        found = await super().counts(cap=cap)
        await self.go.wait()
        return found


async def test_scrapes_at_once_share_one_query(new: NewMetricsQueue, clock: Clock) -> None:
    store, registry = Slow(clock), CollectorRegistry()
    q = new(PrometheusMetrics(registry=registry), store=store)
    mails(q, clock)
    pages: list[dict[str, float]] = []
    waiting = threading.Semaphore(0)

    def scrape() -> None:
        waiting.release()
        pages.append(page(registry))

    async with q.running(run=False), anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(to_thread.run_sync, scrape)
        for _ in range(5):
            await to_thread.run_sync(waiting.acquire)
        store.go.set()
    assert store.times == 1
    assert [each.get('fastjobs_jobs_waiting{kind="mail"}') for each in pages] == [0] * 5


async def test_a_slow_store_is_waited_for_once_and_not_by_each_gauge(
    new: NewMetricsQueue, clock: Clock
) -> None:
    store, read = Slow(clock), Read()
    q = new(read.metrics, store=store)
    mail = mails(q, clock)
    await mail.push("a")
    async with q.running(run=False):
        read.all()  # on the loop: it asks, and doesn't wait
        await anyio.wait_all_tasks_blocked()
        assert store.times == 1
        clock.advance(5)
        # Its time is over, though there's no answer yet: nothing waits, and nothing asks beside it.
        assert names.WAITING_JOBS not in await to_thread.run_sync(read.all)
        assert store.times == 1
        store.go.set()
        await anyio.wait_all_tasks_blocked()
        assert (await to_thread.run_sync(read.all))[names.WAITING_JOBS] == {of("mail"): 1}


async def test_while_the_store_is_down_a_scrape_has_the_rest_and_the_log_says_so_once_a_minute(
    new: NewMetricsQueue, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    store, registry = Asked(clock), CollectorRegistry()
    q = new(PrometheusMetrics(registry=registry), store=store)
    mail = mails(q, clock)
    await mail.push("works")
    store.down = True
    async with q.running(run=False):
        for _ in range(3):
            found = await to_thread.run_sync(page, registry)
            assert found['fastjobs_pushed_total{kind="mail"}'] == 1
            assert not [name for name in found if "jobs_waiting" in name]
            clock.advance(6)
        lines = [each for each in caplog.messages if "numbers of metrics" in each]
        assert len(lines) == 1
        assert "OSError: no route to the database" in lines[0]
        store.down = False
        assert (await to_thread.run_sync(page, registry))['fastjobs_jobs_waiting{kind="mail"}'] == 1
        # Numbers that can't be had anew are told for a minute.
        store.down = True
        clock.advance(59)
        assert (await to_thread.run_sync(page, registry))['fastjobs_jobs_waiting{kind="mail"}'] == 1
        clock.advance(6)
        assert 'fastjobs_jobs_waiting{kind="mail"}' not in await to_thread.run_sync(page, registry)


async def test_a_queue_that_starts_again_is_asked_on_its_new_loop(clock: Clock) -> None:
    registry = CollectorRegistry()
    q = Queue(Memory(clock=clock), clock=clock, observe=PrometheusMetrics(registry=registry))
    mails(q, clock)

    async def start() -> bool:
        clock.advance(10)
        async with q.running(run=False):
            found = await to_thread.run_sync(page, registry)
            return 'fastjobs_jobs_waiting{kind="mail"}' in found

    for _ in range(2):
        assert await to_thread.run_sync(asyncio.run, start())


def test_what_a_loop_left_unanswered_as_it_ended_keeps_no_later_one_from_asking(clock: Clock) -> None:
    store, registry = Slow(clock), CollectorRegistry()
    q = Queue(store, clock=clock, observe=PrometheusMetrics(registry=registry))
    mails(q, clock)

    async def leave() -> None:
        async with q.running(run=False):
            page(registry)
            await asyncio.sleep(0)

    first = asyncio.new_event_loop()
    first.run_until_complete(leave())
    first.stop()
    first.run_forever()
    left = asyncio.all_tasks(first)
    assert store.times == 1
    assert len(left) == 1

    async def again() -> dict[str, float]:
        store.go = asyncio.Event()
        store.go.set()
        clock.advance(10)
        async with q.running(run=False):
            return await to_thread.run_sync(page, registry)

    assert asyncio.run(again())['fastjobs_jobs_waiting{kind="mail"}'] == 0
    assert store.times == 2
    for task in left:
        task.cancel()
    first.run_until_complete(asyncio.wait(left))
    first.close()


async def test_a_store_that_counts_nothing_has_no_gauges(new: NewMetricsQueue, clock: Clock) -> None:
    class Plain(Memory):
        extras = Memory.extras & ~Memory.extras.COUNTS

    registry = CollectorRegistry()
    q = new(PrometheusMetrics(registry=registry), store=Plain(clock=clock))
    mails(q, clock)
    async with q.running(run=False):
        assert not [name for name in await to_thread.run_sync(page, registry) if "jobs_waiting" in name]


# Bounds.


async def test_kinds_that_nobody_here_handles_are_one_label(new: NewMetricsQueue, clock: Clock) -> None:
    store, registry = Memory(clock=clock), CollectorRegistry()
    theirs = Queue(store, clock=clock)
    for n in range(50):
        other = theirs.kind(f"other-{n}")(_nothing)
        await other.push()
    metrics = PrometheusMetrics(registry=registry)
    q = new(metrics, store=store)
    mail = mails(q, clock)
    await mail.push("a")
    async with q.running(run=False):
        found = await to_thread.run_sync(page, registry)
    assert found['fastjobs_jobs_waiting{kind="_other"}'] == 50
    assert found['fastjobs_jobs_waiting{kind="mail"}'] == 1
    assert len([name for name in found if name.startswith("fastjobs_jobs_waiting")]) == 2
    metrics(Ran(kind="other-1", job="1", attempt=1, outcome=Outcome.DONE, error=None, took=0.1, waited=0.0))
    assert page(registry)['fastjobs_runs_total{kind="_other",outcome="done"}'] == 1


async def test_what_the_fallback_runs_is_under_one_label_however_it_is_named(
    new: NewMetricsQueue, clock: Clock
) -> None:
    store, registry = Memory(clock=clock), CollectorRegistry()
    theirs = Queue(store, clock=clock)
    for n in range(20):
        await theirs.kind(f"other-{n}")(_nothing).push()
    q = new(PrometheusMetrics(registry=registry), store=store)

    @q.fallback
    async def anything() -> None: ...

    assert await q.drain() == 20
    runs = {name: count for name, count in page(registry).items() if name.startswith("fastjobs_runs_total")}
    assert runs == {'fastjobs_runs_total{kind="_other",outcome="done"}': 20}


async def _nothing() -> None: ...


def test_errors_of_ever_new_types_are_one_label_in_the_end() -> None:
    read = Read()
    for n in range(300):
        error = type(f"Error{n}", (Exception,), {})()
        read.metrics(
            Ran(kind="mail", job="1", attempt=1, outcome=Outcome.RETRIED, error=error, took=0.1, waited=0.0)
        )
    found = {
        dict(each)[names.ERROR_TYPE]: count for each, count in read.all()[names.CONSUMED_MESSAGES].items()
    }
    assert len(found) == 101
    assert found["_OTHER"] == 200


async def test_the_kinds_of_two_queues_are_told_of_together(clock: Clock) -> None:
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry=registry)
    queues = [Queue(Memory(clock=clock), clock=clock, observe=metrics) for _ in range(2)]
    kinds = [q.kind(name)(_nothing) for q, name in zip(queues, ("mail", "report"), strict=True)]
    for kind in kinds:
        await kind.push()
    async with queues[0].running(run=False), queues[1].running(run=False):
        found = await to_thread.run_sync(page, registry)
    assert found['fastjobs_jobs_waiting{kind="mail"}'] == found['fastjobs_jobs_waiting{kind="report"}'] == 1


async def test_what_two_queues_of_one_store_have_is_counted_once(clock: Clock) -> None:
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry=registry)
    store = Memory(clock=clock)
    queues = [Queue(store, clock=clock, observe=metrics) for _ in range(2)]
    kinds = [q.kind(name)(_nothing) for q, name in zip(queues, ("mail", "report"), strict=True)]
    for kind in kinds:
        await kind.push()
    async with queues[1].running(run=False):
        only = await to_thread.run_sync(page, registry)
        clock.advance(10)
        async with queues[0].running(run=False):
            found = await to_thread.run_sync(page, registry)
    for each in (only, found):
        assert each['fastjobs_jobs_waiting{kind="mail"}'] == each['fastjobs_jobs_waiting{kind="report"}'] == 1


@pytest.mark.parametrize("metrics", [OTelMetrics, PrometheusMetrics])
@pytest.mark.parametrize(
    ("options", "says"),
    [({"every": 0}, "every"), ({"every": "often"}, "every"), ({"cap": 0}, "cap"), ({"cap": True}, "cap")],
    ids=["no wait", "a word", "nothing", "a bool"],
)
def test_settings_of_metrics_that_cannot_be_are_refused(
    metrics: Callable[..., object], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(RegistrationError, match=says):
        metrics(**options)


def test_a_second_one_in_one_registry_is_refused() -> None:
    registry = CollectorRegistry()
    PrometheusMetrics(registry=registry)
    with pytest.raises(RegistrationError, match="make one for all queues, or give each its registry="):
        PrometheusMetrics(registry=registry)


async def test_metrics_hold_no_queue_that_is_gone(clock: Clock) -> None:
    metrics = PrometheusMetrics(registry=CollectorRegistry())
    gone = weakref.ref(Queue(Memory(clock=clock), clock=clock, observe=metrics))
    gc.collect()
    assert gone() is None

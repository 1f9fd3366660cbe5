"""The suite on the runs of schedules (SCHEDULES)."""

from __future__ import annotations

import asyncio

from fastjobs.core.job import NewJob
from fastjobs.store import Extra, ListenStore, Run, ScheduleStore, Store, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.subject import (
    MINUTE,
    SECOND,
    Heard,
    Subject,
    claim,
    keyed,
    need,
    of,
    payloads,
    push_one,
    take,
    take_one,
)


class Schedules(Subject):
    """Each run of a schedule is pushed once, with its job or not at all, and a schedule's runs only go forward."""

    async def test_a_run_is_a_job_due_at_its_own_time(self, store: Store, clock: Clock) -> None:
        """Which is later than the run, where the schedule has a jitter."""
        runs = _schedules(store)
        due = clock.now() + MINUTE
        assert await runs.push_run(_run("nightly", due, at=due + SECOND)) is True
        assert await runs.runs(["nightly"]) == {"nightly": due}
        clock.advance(60.999999)
        assert await take(store) == [], "a run was claimed before its job's time"
        clock.advance(0.000001)
        job = await take_one(store)
        assert (job.kind, job.payload, job.run_at, job.attempts) == ("mail", "1", due + SECOND, 1)

    async def test_a_run_due_then_or_later_is_pushed_once(self, store: Store, clock: Clock) -> None:
        runs = _schedules(store)
        now = clock.now()
        assert await runs.push_run(_run("nightly", now)) is True
        for due in (now, now - 1, now - MINUTE, 0):
            assert await runs.push_run(_run("nightly", due, payload='"again"')) is False
            assert await runs.runs(["nightly"]) == {"nightly": now}
        assert await runs.push_run(_run("nightly", now + 1, payload="2")) is True
        clock.advance(1)
        assert await payloads(store) == ["1", "2"]

    async def test_a_run_stays_pushed_once_its_job_is_gone(self, store: Store, clock: Clock) -> None:
        runs = _schedules(store)
        due = clock.now()
        await runs.push_run(_run("nightly", due))
        await take_one(store)
        clock.advance(365 * 24 * 3600)
        assert await runs.push_run(_run("nightly", due)) is False
        assert await runs.runs(["nightly"]) == {"nightly": due}

    async def test_a_schedules_runs_are_its_own(self, store: Store, clock: Clock) -> None:
        runs = _schedules(store)
        now = clock.now()
        names = ["nightly", "Nightly", "nightly ", "night-ly", "n" * 200]
        for nth, name in enumerate(names):
            assert await runs.push_run(_run(name, now - nth, payload=str(nth))) is True
        wanted = {name: now - nth for nth, name in enumerate(names)}
        assert await runs.runs([*names, "another"]) == wanted
        assert await runs.runs(["Nightly"]) == {"Nightly": now - 1}
        assert await runs.runs([]) == {}
        assert await payloads(store) == ["4", "3", "2", "1", "0"]

    async def test_a_kind_may_have_several_schedules(self, store: Store, clock: Clock) -> None:
        runs = _schedules(store)
        now = clock.now()
        for name in ("nightly", "weekly"):
            assert await runs.push_run(_run(name, now, payload=f'"{name}"')) is True
        assert await payloads(store) == ['"nightly"', '"weekly"']

    async def test_another_instance_finds_the_runs(self, store: Store, other: Store, clock: Clock) -> None:
        runs, others = _schedules(store), _schedules(other)
        due = clock.now()
        assert await runs.push_run(_run("nightly", due)) is True
        assert await others.runs(["nightly"]) == {"nightly": due}
        assert await others.push_run(_run("nightly", due)) is False
        assert await others.push_run(_run("nightly", due + 1)) is True
        assert await runs.runs(["nightly"]) == {"nightly": due + 1}

    async def test_of_several_instances_that_push_a_run_one_does(
        self, store: Store, other: Store, clock: Clock
    ) -> None:
        both = _schedules(store), _schedules(other)
        for nth in range(20):
            run = _run("nightly", clock.now(), payload=str(nth))
            won = await asyncio.gather(*(both[n % 2].push_run(run) for n in range(self.races)))
            assert won.count(True) == 1, f"{won.count(True)} of {self.races} pushed one run"
            assert await payloads(store) == [str(nth)]
            clock.advance(1)

    async def test_of_different_runs_at_once_each_that_is_pushed_has_its_job(
        self, store: Store, other: Store, clock: Clock
    ) -> None:
        both = _schedules(store), _schedules(other)
        for nth in range(10):
            first, step = clock.now() - self.races, 2 * nth + 3
            dues = [first + n * step % self.races for n in range(self.races)]
            pushes = (
                both[n % 2].push_run(_run("nightly", due, payload=str(due))) for n, due in enumerate(dues)
            )
            won = [
                str(due) for due, pushed in zip(dues, await asyncio.gather(*pushes), strict=True) if pushed
            ]
            assert sorted(await payloads(store)) == sorted(set(won))
            assert len(set(won)) == len(won), "a run was pushed twice"
            assert await both[0].runs(["nightly"]) == {"nightly": max(dues)}
            clock.advance(1)

    async def test_a_run_is_never_kept_without_its_job(self, store: Store, clock: Clock) -> None:
        """A lone surrogate is no text a database takes. A store may refuse the run, or keep it."""
        runs = _schedules(store)
        due = clock.now()
        try:
            await runs.push_run(_run("nightly", due, payload='"\ud800"'))
        except Exception:
            assert await runs.runs(["nightly"]) == {}, "a run is kept though its push failed"
            assert await runs.push_run(_run("nightly", due)) is True
        assert len(await take(store)) == 1

    async def test_a_run_of_a_kind_that_is_new_is_claimed_as_any_other(
        self, store: Store, clock: Clock
    ) -> None:
        await _schedules(store).push_run(_run("nightly", clock.now(), kind="report"))
        found = await claim(store, of("mail"), others=of(""))
        assert [job.kind for job in found.jobs] == ["report"]

    async def test_a_run_of_a_key_that_waits_is_kept_without_a_job_of_its_own(
        self, store: Store, clock: Clock
    ) -> None:
        need(store, Extra.UNIQUE)
        runs = _schedules(store)
        due = clock.now() + MINUTE
        await push_one(store, keyed("1", at=due + MINUTE))
        assert await runs.push_run(Run("nightly", due, keyed("2", at=due))) is True
        assert await runs.runs(["nightly"]) == {"nightly": due}
        assert await runs.push_run(Run("nightly", due, keyed("2", at=due))) is False
        clock.advance(119)
        assert await take(store) == [], "a run moved the job that waits, or has one of its own"
        clock.advance(1)
        assert await payloads(store) == ["1"]

    async def test_a_run_never_moves_the_job_that_waits(self, store: Store, clock: Clock) -> None:
        """Nor where its kind's pushes do (LATEST)."""
        need(store, Extra.LATEST)
        runs = _schedules(store)
        due = clock.now() + MINUTE
        id = await push_one(store, keyed("1", at=due, latest=True))
        for at in (due - SECOND, due + MINUTE):
            assert await runs.push_run(Run("nightly", at, keyed("2", at=at, latest=True))) is True
        clock.advance(59.5)
        assert await take(store) == [], "a run moved the job that waits"
        clock.advance(0.5)
        job = await take_one(store, of(hold=10 * MINUTE))
        assert (job.id, job.payload, job.run_at) == (id, "1", due)
        clock.advance(120)
        assert await take(store) == []

    async def test_a_run_of_a_key_that_is_free_has_it(self, store: Store, clock: Clock) -> None:
        need(store, Extra.UNIQUE)
        runs = _schedules(store)
        due = clock.now()
        assert await runs.push_run(Run("nightly", due, keyed("1", at=due))) is True
        assert await push_one(store, keyed("2")) is None, "a run of a unique kind let its key be"
        assert await payloads(store) == ["1"]
        assert await runs.push_run(Run("nightly", due + 1, keyed("3", at=due))) is True
        assert await payloads(store) == ["3"]

    async def test_a_run_wakes_other_instances(self, store: Store, other: Store, clock: Clock) -> None:
        need(store, Extra.LISTEN)
        assert supports(store, Extra.LISTEN)
        listens: ListenStore = store
        heard = Heard(self.heard_within)
        async with listens.listen(heard.wake):
            await _schedules(other).push_run(_run("nightly", clock.now()))
            await heard.once_more("a run that another instance pushed woke nobody")

    async def test_the_stores_now_is_its_claims_now(self, store: Store, clock: Clock) -> None:
        runs = _schedules(store)
        for _ in range(3):
            before, found, after = await runs.now(), await claim(store), await runs.now()
            assert before <= found.now <= after
            assert after - before < SECOND
            clock.advance(60)
            assert await runs.now() >= after + MINUTE

    async def test_a_look_at_the_runs_writes_nothing(self, store: Store, clock: Clock) -> None:
        runs = _schedules(store)
        await runs.push_run(_run("nightly", clock.now()))

        async def look() -> None:
            await runs.runs(["nightly", "weekly"])
            await runs.now()

        await self.writes_nothing(store, look)


def _schedules(store: Store) -> ScheduleStore:
    need(store, Extra.SCHEDULES)
    assert supports(store, Extra.SCHEDULES)
    return store


def _run(name: str, due: int, *, at: int | None = None, payload: str = "1", kind: str = "mail") -> Run:
    return Run(name, due, NewJob(kind=kind, payload=payload, at=due if at is None else at))

"""The server's clock: told by an offset that is measured, and the same for every instance."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from fastjobs.core.claiming import Claimable
from fastjobs.core.job import NewJob
from fastjobs.stores.sql.dialects.postgres import asyncpg_link
from fastjobs.stores.sql.server.clock import EVERY, SECOND, ServerClock
from fastjobs.stores.sql.store import SQLStore
from fastjobs.testing import Clock
from tests.databases.postgres import Database

pytestmark = pytest.mark.anyio

_ONE = 1_767_225_600 * SECOND


class _World:
    """A server and a machine whose clocks are moved by hand."""

    def __init__(self) -> None:
        self.passed = 0
        self.server_is_ahead = 0
        self.wall_is_ahead = 0
        self.there = self.back = 100
        self.clock = ServerClock(None, steady=lambda: 7 + self.passed, wall=self.wall)

    def server(self) -> int:
        return _ONE + self.passed + self.server_is_ahead

    def wall(self) -> int:
        return _ONE + self.passed + self.wall_is_ahead

    def ask(self) -> int:
        self.passed += self.there
        told = self.server()
        self.passed += self.back
        return told

    async def measure(self) -> None:
        async def ask() -> int:
            return self.ask()

        await self.clock.measure(ask)


@pytest.fixture
def world() -> _World:
    return _World()


async def test_the_servers_time_is_told_whatever_the_machines_is(world: _World) -> None:
    world.server_is_ahead, world.wall_is_ahead = 3 * SECOND, -SECOND
    assert world.clock.is_due()
    await world.measure()
    assert world.clock.now() == world.server()
    world.passed += 30 * SECOND
    world.wall_is_ahead += 3600 * SECOND  # someone sets the machine's clock
    assert world.clock.now() == world.server()


def test_a_measurement_where_there_is_no_loop_is_as_good(world: _World) -> None:
    world.server_is_ahead = 2 * SECOND
    world.clock.measure_sync(world.ask)
    assert world.clock.now() == world.server()


async def test_it_is_measured_again_each_minute_and_then_follows_the_server(world: _World) -> None:
    await world.measure()
    assert not world.clock.is_due()
    world.server_is_ahead = 4 * SECOND
    world.passed += EVERY
    assert world.clock.is_due()
    await world.measure()
    assert world.clock.now() == world.server()


async def test_an_answer_that_was_held_up_is_not_what_the_time_is_told_by(world: _World) -> None:
    held_up = iter([4 * SECOND, 2 * SECOND])

    async def ask() -> int:
        world.back = next(held_up, 100)
        return world.ask()

    await world.clock.measure(ask)
    assert world.clock.now() == world.server()


async def test_a_first_answer_that_took_a_round_trip_more_is_asked_for_again(world: _World) -> None:
    prepares = iter([2_000])

    async def ask() -> int:
        world.there = next(prepares, 100)
        return world.ask()

    await world.clock.measure(ask)
    assert world.clock.now() == world.server()


async def test_a_slow_round_trip_that_says_nothing_new_changes_nothing(world: _World) -> None:
    await world.measure()
    world.passed += EVERY
    world.there, world.back = 400_000, 0
    await world.measure()
    assert world.clock.now() == world.server()


async def test_a_slow_round_trip_is_off_by_half_of_it_at_most(world: _World) -> None:
    world.there, world.back = 400_000, 0
    await world.measure()
    assert abs(world.clock.now() - world.server()) <= 200_000


async def test_a_server_far_from_the_machine_is_told_once_while_it_lasts(
    world: _World, caplog: pytest.LogCaptureFixture
) -> None:
    world.server_is_ahead = 6 * SECOND
    for _ in range(3):
        await world.measure()
        world.passed += EVERY
    assert len(caplog.messages) == 1
    assert "6.0 s ahead of" in caplog.messages[0]
    world.server_is_ahead = 0
    await world.measure()
    world.server_is_ahead = -8 * SECOND
    await world.measure()
    assert len(caplog.messages) == 2
    assert "8.0 s behind" in caplog.messages[1]


async def test_a_server_near_the_machine_is_no_news(world: _World, caplog: pytest.LogCaptureFixture) -> None:
    world.server_is_ahead = 4 * SECOND
    await world.measure()
    assert caplog.messages == []


def test_a_tests_clock_is_told_and_never_measured() -> None:
    given = Clock()
    clock = ServerClock(given)
    assert not clock.is_due()
    given.advance(5)
    assert clock.now() == given.now()


async def test_jobs_are_due_by_the_servers_clock(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        asyncpg_link, "CLOCK", "SELECT (extract(epoch FROM clock_timestamp() + '100 s') * 1000000)::bigint"
    )
    store = SQLStore(create_async_engine(postgres_database.url("asyncpg"), poolclass=NullPool))
    await store.push([NewJob(kind="mail", payload="1")])
    claimed = await store.claim([Claimable(kind="mail", hold=SECOND, attempts=3)], 1)
    ((told, run_at),) = postgres_database.execute(
        "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, run_at FROM fastjobs_jobs"
    )
    assert run_at <= claimed.now
    assert 95 * SECOND < claimed.now - told <= 100 * SECOND
    assert len(caplog.messages) == 1
    await store.close()


def test_the_first_push_in_a_transaction_asks_the_server_for_its_time(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = create_engine(postgres_database.url("psycopg"), poolclass=NullPool)
    store = SQLStore(engine)
    monkeypatch.setattr(store._database, "_clock", ServerClock(None, wall=lambda: 0))
    with engine.begin() as connection:
        pusher = store.within(connection, lambda: None)
        assert pusher.sync
        pusher.push([NewJob(kind="mail", payload="1")])
    ((off,),) = postgres_database.execute(
        "SELECT abs(run_at - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) FROM fastjobs_jobs"
    )
    assert off < 10 * SECOND

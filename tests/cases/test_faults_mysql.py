"""What other queues were brought down by on MySQL and MariaDB: crashes, silences and ended sessions."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest

from fastjobs import Outcome, Queue, Ran, SQLStore, current_job
from fastjobs.runtime import waiting
from fastjobs.store import Claimable, Claimed
from tests.databases.mysql import Database, Server
from tests.databases.proxy import Proxy
from tests.stores.test_mysql_connections import DRIVERS, engine_of

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def on_mariadb(mariadb: Server) -> Iterator[Database]:
    database = mariadb.create_database()
    yield database
    database.drop()


@pytest.fixture
def database(on_mariadb: Database) -> Database:
    on_mariadb.clear()
    return on_mariadb


def _impatient(monkeypatch: pytest.MonkeyPatch, limit: float) -> None:
    for part in ("feed", "ledger", "pushing", "renewal"):
        monkeypatch.setattr(f"fastjobs.runtime.{part}.limited", partial(waiting.limited, limit=limit))


# A connection that is cancelled as it's opened is left to the garbage by aiomysql, which warns of that.
@pytest.mark.filterwarnings("ignore:Unclosed connection:ResourceWarning")
@pytest.mark.parametrize("driver", DRIVERS)
async def test_work_goes_on_once_a_silent_connection_is_well_and_a_stop_in_the_silence_ends_in_time(
    database: Database, driver: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _impatient(monkeypatch, 0.3)
    monkeypatch.setattr("fastjobs.stores.sql.server.on_loop.LEFT", 1.0)
    told: asyncio.Queue[Ran] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    with Proxy(database.server.port) as proxy:
        engine = engine_of(proxy.url(database.url(driver)))
        queue = Queue(SQLStore(engine), poll=0.1, grace=0.5, observe=told.put_nowait)

        @queue.kind("mail")
        async def mail() -> None: ...

        async with asyncio.timeout(20):
            async with queue.running():
                await mail.push()
                assert (await told.get()).outcome is Outcome.DONE
                proxy.hang()
                with pytest.raises(TimeoutError):
                    await mail.push()
                while queue.health().store_ok:
                    await asyncio.sleep(0.02)
                proxy.heal()
                await mail.push()
                assert (await told.get()).outcome is Outcome.DONE
                proxy.hang()
                stopped = loop.time()
        # Its grace, and then the time that the store's close has.
        assert loop.time() - stopped < 4
        proxy.heal()
    assert not [line for line in caplog.records if line.levelno >= logging.CRITICAL]


class _Asked(SQLStore):
    """Notes when its claims are answered."""

    answered: float = 0

    async def claim(
        self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
    ) -> Claimed:
        claimed = await super().claim(kinds, limit, ahead=ahead, others=others)
        self.answered = asyncio.get_running_loop().time()
        return claimed


async def test_no_job_is_lost_by_a_crash_of_the_server_and_few_lines_are_logged(
    make_mysql_server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    server = make_mysql_server()
    database = server.create_database()
    seen: list[Ran] = []
    store = _Asked(engine_of(database.url("asyncmy")))
    queue = Queue(store, workers=200, poll=0.1, observe=seen.append)
    runs: Counter[int] = Counter()
    all_run, end = asyncio.Event(), asyncio.Event()

    @queue.kind("mail")
    async def mail(number: int) -> None:
        runs[number] += 1
        if len(runs) == 200:
            all_run.set()
        await end.wait()

    loop = asyncio.get_running_loop()
    async with asyncio.timeout(40):
        async with queue.running():
            await mail.push_many(list(range(200)))
            await all_run.wait()
            await asyncio.to_thread(server.stop, "immediate")
            end.set()
            while queue.health().store_ok:
                await asyncio.sleep(0.02)
            await asyncio.to_thread(server.start)
            back = loop.time()
            while store.answered < back:
                await asyncio.sleep(0.02)
            assert loop.time() - back < 0.1 + 1
            while len(seen) < 200:
                await asyncio.sleep(0.02)
    assert {ran.outcome for ran in seen} == {Outcome.DONE}
    assert set(runs.values()) == {1}, "their marks were kept within their holds"
    assert database.execute("SELECT count(*) FROM fastjobs_jobs") == [(0,)]
    assert len(caplog.records) < 20, caplog.messages


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_job_whose_sessions_are_all_ended_is_marked_on_another_and_runs_once(
    database: Database, driver: str
) -> None:
    told: asyncio.Queue[Ran] = asyncio.Queue()
    attempts: list[int] = []
    queues = [
        Queue(SQLStore(engine_of(database.url(driver))), poll=0.05, observe=told.put_nowait) for _ in range(2)
    ]

    async def mail() -> None:
        attempts.append(current_job().attempt)
        await asyncio.to_thread(database.terminate_all)
        await asyncio.sleep(0.2)  # several polls of both

    kinds = [queue.kind("mail")(mail) for queue in queues]
    async with asyncio.timeout(20), queues[0].running(), queues[1].running():
        await kinds[0].push()
        assert (await told.get()).outcome is Outcome.DONE
    assert attempts == [1]
    assert database.execute("SELECT count(*) FROM fastjobs_jobs") == [(0,)]


async def test_idle_queues_write_nothing_and_ask_little(database: Database) -> None:
    queues = [Queue(SQLStore(engine_of(database.url("asyncmy"))), poll=0.05) for _ in range(2)]

    async def nothing() -> None: ...

    for queue in queues:
        queue.kind("mail")(nothing)

    def numbers() -> tuple[int, int]:
        # Those of the whole server; no other test has it meanwhile.
        names = "'Innodb_rows_inserted', 'Innodb_rows_updated', 'Innodb_rows_deleted', 'Questions'"
        found = dict(database.execute(f"SHOW GLOBAL STATUS WHERE Variable_name IN ({names})"))
        asked = int(found.pop("Questions"))
        return sum(map(int, found.values())), asked

    async with asyncio.timeout(20), queues[0].running(), queues[1].running():
        await asyncio.sleep(0.3)
        writes, asked = await asyncio.to_thread(numbers)
        await asyncio.sleep(0.5)
        now_writes, now_asked = await asyncio.to_thread(numbers)
    assert now_writes == writes
    # Two polls each twentieth of a second, of a statement or two, and the looks for others' pushes.
    assert now_asked - asked < 100

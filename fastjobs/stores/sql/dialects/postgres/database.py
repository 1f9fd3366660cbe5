"""The queue in a Postgres database: what it has on each loop, and what is known of the database on all of them.

Longer than 300 lines, as each thing that a store asks of its database is a few lines here, and all of them share these.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Literal, TypeVar

from sqlalchemy import BigInteger, Connection, Engine, TwoPhaseTransaction, func, literal_column, select, text

from fastjobs.clock import Clock
from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.errors import StoreError
from fastjobs.core.job import Alike, NewJob
from fastjobs.core.marks import GiveBack, HoldBack, Kept, Mark
from fastjobs.store import Cancelled, Places, Run, Throttled
from fastjobs.stores.sql import forks, values
from fastjobs.stores.sql.dialects.postgres import acting, marks, push, schedules, throttles
from fastjobs.stores.sql.dialects.postgres import claim as claiming
from fastjobs.stores.sql.dialects.postgres.kinds import make_kinds, note_within
from fastjobs.stores.sql.dialects.postgres.links import Link, is_locked_out
from fastjobs.stores.sql.dialects.postgres.listening import Listening
from fastjobs.stores.sql.dialects.postgres.notifying import Notifier
from fastjobs.stores.sql.dialects.postgres.opening import check_engine, hurry, link_opener
from fastjobs.stores.sql.dialects.postgres.statements import make_statements
from fastjobs.stores.sql.server.clock import ServerClock
from fastjobs.stores.sql.server.floors import Floors
from fastjobs.stores.sql.server.gathering import Beside, Gathering
from fastjobs.stores.sql.server.here import Here
from fastjobs.stores.sql.server.keyed_pushes import KeyedPushes
from fastjobs.stores.sql.server.on_loop import OnLoop
from fastjobs.stores.sql.server.pairing import Pairing
from fastjobs.stores.sql.server.presence import Presence
from fastjobs.stores.sql.server.wanted import Wanted
from fastjobs.stores.sql.tables import Tables

log = logging.getLogger("fastjobs")

_T = TypeVar("_T")

_CLOCK = select(literal_column("(extract(epoch FROM clock_timestamp()) * 1000000)::bigint", BigInteger))

# As the functions have it: no statistics, however old, are to have a whole table read, or sorted.
_BY_INDEXES = text(
    "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),"
    " set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),"
    " set_config('enable_sort', 'off', true), set_config('jit', 'off', true),"
    " set_config('transaction_read_only', :reads, true)"
)

_inherited: list[object] = []
"""What a fork gave this process of its parent's. To let it go would end connections that the parent has."""


class _Here(Here[Link]):
    """What the store has on one loop."""

    def __init__(
        self, database: Postgres, on_loop: OnLoop[Link], open_link: Callable[[], Awaitable[Link]]
    ) -> None:
        super().__init__(on_loop)
        self.notifier = Notifier(on_loop, database.statements.channel)
        self.gathering = Gathering(on_loop, lambda link, jobs: database.send(self, link, jobs))
        self.keyed = KeyedPushes(
            on_loop,
            lambda link, jobs: database.send(self, link, jobs, sorts=False),
            is_locked_out,
            again=lambda link, jobs: database.send(self, link, jobs),
        )
        self.pairing = Pairing(
            on_loop,
            self.gathering,
            mark=database.send_marks,
            claim=database.send_claim,
            both=database.send_both,
            undo=lambda claimed: database.give_back(self, claimed),
        )
        self.gathering.beside = Beside(
            lambda link, jobs, wanted: database.send_push_and_claim(self, link, jobs, wanted),
            database.send_claim,
            self.pairing.claimed,
        )
        self.listening = Listening(
            on_loop, open_link, self.notifier.notify, database.statements.channel, database.pids
        )


class Postgres:
    """The queue's database on a Postgres server."""

    name = "postgresql"
    beside = None

    def __init__(
        self,
        engine: Engine,
        tables: Tables,
        clock: Clock | None,
        *,
        migrate: bool,
        synchronous: Literal["FULL", "NORMAL"],
    ) -> None:
        check_engine(engine)
        if synchronous != "FULL":
            raise StoreError(
                f"synchronous is SQLite's: leave out synchronous={synchronous!r}, as on Postgres the server's"
                " synchronous_commit says it"
            )
        self.statements = make_statements(tables)
        self.pids: set[int] = set()
        """Of the server's processes behind the store's own links."""
        self._engine = engine
        self._open_link = link_opener(engine)
        self._tables = tables
        self._presence = Presence(
            engine,
            tables,
            migrate=migrate,
            name_of=lambda connection: connection.execute(select(func.current_database())).scalar_one(),
            hurry=hurry,
            makes_within=True,
        )
        self._clock = ServerClock(clock)
        self._kinds = make_kinds(self.statements)
        self._floors = Floors()
        self._freed: deque[tuple[str, bytes]] = deque()
        """Keys whose jobs have ended in a transaction of the app's, for which others may have parked meanwhile."""
        self._lock = threading.Lock()
        self._pid = 0
        self._heres: dict[asyncio.AbstractEventLoop, _Here] = {}

    async def open(self, kinds: Sequence[str]) -> None:
        """Connects, makes or upgrades the tables, and notes the kinds."""
        here = await self._ready()

        async def note(link: Link) -> None:
            await self._kinds.note(link, kinds, self.now())

        # Also where they are known: to open says that the database can be reached.
        await here.on_loop.use(note)

    async def close(self) -> None:
        """Lets the connections of this loop go, once all that was asked before is done."""
        with self._lock:
            here = None
            if self._pid == forks.pid():
                here = self._heres.pop(asyncio.get_running_loop(), None)
            if not self._heres:
                # Whoever opens it again may have made the database anew.
                self._presence.forget()
                self._kinds.forget()
        if here is not None:
            await here.close()

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        if not jobs:
            return []
        here = await self._ready()
        return await (here.keyed if values.has_keys(jobs) else here.gathering).push(jobs)

    async def send(
        self, here: _Here, link: Link, jobs: Sequence[NewJob], *, sorts: bool = True
    ) -> list[str | None]:
        """Sends one statement's worth of jobs."""
        now, notify = self.now(), here.notifier.is_time()
        ids = await push.push(link, self.statements, jobs, now, notify, self._kinds, sorts=sorts)
        self._see_due(jobs, now)
        if not notify:
            here.notifier.soon()
        return ids

    async def send_push_and_claim(
        self, here: _Here, link: Link, jobs: Sequence[NewJob], wanted: Wanted
    ) -> tuple[list[str | None], Claimed]:
        """Sends one statement's worth of jobs, and the claim that was asked with them."""
        await self._kinds.note(link, (job.kind for job in jobs), self.now())
        await self._before_claim(link, wanted)
        now = self.now()
        claim = claiming.Asked(wanted, now, self._floors)
        ids, claimed = await push.push_and_claim(link, self.statements, jobs, now, claim)
        self._see_due(jobs, now)
        taken = {job.id for job in claimed.jobs}
        if not taken.issuperset(ids):
            here.notifier.soon()  # of jobs that are held already nobody needs to hear
        return ids, claimed

    def _see_due(self, jobs: Sequence[NewJob], now: int) -> None:
        asked = jobs[:1] if isinstance(jobs, Alike) else jobs
        if any(job.after < 0 if job.at is None else job.at < now for job in asked):
            self._floors.forget()

    async def claim(
        self, kinds: Sequence[Claimable], limit: int, ahead: int, others: Claimable | None
    ) -> Claimed:
        wanted = Wanted(tuple(kinds), limit, ahead, others)
        here = await self._ready()
        return await here.pairing.claim(wanted)

    async def _promote(self, link: Link) -> None:
        kinds: list[str] = []
        keys: list[bytes] = []
        # The claims of other loops empty it as well.
        with contextlib.suppress(IndexError):
            while True:
                kind, key = self._freed.popleft()
                kinds.append(kind)
                keys.append(key)
        if kinds:
            try:
                ((woken,),) = await link.fetch(self.statements.promote, kinds, keys)
            except BaseException:
                self._freed.extend(zip(kinds, keys, strict=True))
                raise
            if woken:
                self._floors.forget()

    async def send_claim(self, link: Link, wanted: Wanted) -> Claimed:
        """Sends a claim."""
        await self._before_claim(link, wanted)
        # The time is told once there is a link: a claim that waited for one would make holds that are short.
        return await claiming.claim(link, self.statements, wanted, self.now(), self._floors)

    async def send_marks(self, link: Link, asked: Sequence[Mark]) -> list[Kept]:
        """Sends marks."""
        kept = await marks.mark(link, self.statements, asked, self.now(), self._floors.forget)
        if not {*map(type, asked)}.isdisjoint((GiveBack, HoldBack)):
            self._floors.forget()
        return kept

    async def send_both(
        self, link: Link, asked: Sequence[Mark], wanted: Wanted
    ) -> tuple[list[Kept], Claimed | None]:
        """Sends marks and a claim, in one statement where that can be; None for a claim that is to be sent alone."""
        batches = marks.batches(asked)
        if len(batches) != 1 or not wanted.terms:
            return await self.send_marks(link, asked), None
        await self._before_claim(link, wanted)
        now, answers = self.now(), [Kept.LOST] * len(asked)
        claim = claiming.Asked(wanted, now, self._floors)
        rows = await link.fetch(self.statements.mark_and_claim, *batches[0].values(now), *claim.values())
        told, *found = rows
        batches[0].tell(answers, *map(_numbers, (told[2], told[3], told[8])))
        if told[5]:
            self._floors.forget()
        return answers, None if told[7] else claim.answered(found)

    async def _before_claim(self, link: Link, wanted: Wanted) -> None:
        if self._freed:
            await self._promote(link)
        # A kind with a limit needs its row, which whoever claims of it locks.
        limited = [each.kind for each in wanted.kinds if each.at_once is not None]
        if limited or self._kinds.is_owed():
            await self._kinds.note(link, limited, self.now())

    async def mark(self, some: Sequence[Mark]) -> list[Kept]:
        values.check_marks(some)
        here = await self._ready()
        return await here.pairing.mark(list(some))

    async def prune(self, failed_for: int, limit: int) -> int:
        here = await self._ready()
        most = min(max(limit, 0), (1 << 31) - 1)
        ((gone,),) = await here.on_loop.use(
            lambda link: link.fetch(self.statements.prune, self.now() - failed_for, most, self.now())
        )
        return int(gone)

    async def sweep(self) -> int:
        here = await self._ready()
        ((woken,),) = await here.on_loop.use(lambda link: link.fetch(self.statements.sweep, self.now()))
        if woken:
            self._floors.forget()
        return int(woken)

    async def take(self, asked: Sequence[Throttled]) -> list[Places]:
        wanted = list(asked)
        if not wanted:
            return []
        here = await self._ready()
        return await here.on_loop.use(
            lambda link: throttles.take(link, self.statements, wanted, self.now()),
            undo=lambda places: self._let_go(here, places),
        )

    async def settle(self, started: Sequence[tuple[Places, int, int]]) -> None:
        some = [each for each in started if each[0].slots]
        if some:
            here = await self._ready()
            await here.on_loop.use(lambda link: throttles.settle(link, self.statements, some))

    async def cancel(self, ids: Sequence[str]) -> list[Cancelled]:
        if not ids:
            return []
        here = await self._ready()

        def woke() -> None:
            self._floors.forget()
            here.notifier.soon()

        return await acting.cancel(here.on_loop, self.statements, ids, self.now, woke)

    async def progress(self, reports: Sequence[tuple[str, int, str]]) -> None:
        if reports:
            here = await self._ready()
            await here.on_loop.use(lambda link: acting.progress(link, self.statements, reports))

    async def tell_the_time(self) -> int:
        here = await self._ready()

        async def tell(link: Link) -> int:
            return self.now()

        # On a link, as that is where the time is measured once it's due.
        return await here.on_loop.use(tell)

    async def runs(self, names: Sequence[str]) -> Mapping[str, int]:
        here = await self._ready()
        found = await here.on_loop.use(lambda link: link.fetch(self.statements.runs, list(names)))
        return {name: run_at for name, run_at in found}

    async def push_run(self, run: Run) -> bool:
        here = await self._ready()
        pushed = await schedules.push_run(here.on_loop, self._kinds, self._tables, run, self.now)
        if pushed:
            self._floors.forget()
            here.notifier.soon()
        return pushed

    async def run(self, work: Callable[[Connection], _T]) -> _T:
        """Runs what is written once for all databases, in a transaction."""

        def by_indexes(connection: Connection) -> _T:
            connection.execute(_BY_INDEXES, {"reads": "off"})
            return work(connection)

        here = await self._ready()
        try:
            return await here.on_loop.use(lambda link: link.run(by_indexes))
        finally:
            self._floors.forget()

    async def look(self, work: Callable[[Connection], _T]) -> _T:
        """Runs what only reads and is written once for all databases."""

        def read_only(connection: Connection) -> _T:
            connection.execute(_BY_INDEXES, {"reads": "on"})
            return work(connection)

        here = await self._ready()
        return await here.on_loop.use(lambda link: link.run(read_only))

    def tell_soon(self) -> None:
        """Notifies, as a push does."""
        self._here().notifier.soon()

    @asynccontextmanager
    async def listen(self, wake: Callable[[], None]) -> AsyncGenerator[None]:
        """Calls `wake`, on the loop, when another instance may have pushed."""
        here = await self._ready()
        async with here.listening.listen(wake):
            yield

    def prepare(self, connection: Connection, kinds: Sequence[str]) -> None:
        """Sees to it that the time is known, the tables are there for this transaction, and each kind has a row.

        Raises StoreError for a transaction of another database than the queue's.
        """
        if self._clock.is_due():
            self._clock.measure_sync(lambda: connection.execute(_CLOCK).scalar_one())
        self._presence.see_within(connection)
        note_within(self._kinds, self._tables, self._engine, connection, kinds, self.now())

    def tell(self, connection: Connection) -> Callable[[], None] | None:
        """What is to be called after the commit, from any thread, so that other instances hear of the push."""
        # A NOTIFY in the transaction has each such commit wait for the others of the whole server; one from a
        # connection of the queue's own, a little later, doesn't.
        if self._running():
            return self._notify
        if isinstance(connection.get_transaction(), TwoPhaseTransaction):
            return None  # Postgres prepares none that has a NOTIFY: their poll finds the job
        connection.execute(select(func.pg_notify(self.statements.channel, "")))
        return None

    def freed(self, kind: str, key: bytes) -> Callable[[], None] | None:
        """What wakes, after the commit, a job that parked while the app's transaction was open. Where no loop of the
        store's runs here, that is left to a sweep."""

        def freed() -> None:
            self._freed.append((kind, key))
            for here in self._running():
                try:
                    here.on_loop.loop.call_soon_threadsafe(here.do, self._promote)
                except RuntimeError:
                    continue  # that loop has just been closed
                return

        return freed

    def now(self) -> int:
        return self._clock.now()

    def _notify(self) -> None:
        for here in self._running():
            try:
                here.on_loop.loop.call_soon_threadsafe(here.notifier.soon)
            except RuntimeError:
                continue  # that loop has just been closed
            return

    def _running(self) -> list[_Here]:
        with self._lock:
            heres = list(self._heres.values()) if self._pid == forks.pid() else []
        return [here for here in heres if here.on_loop.loop.is_running() and not here.on_loop.is_closed]

    async def _ready(self) -> _Here:
        here = self._here()
        await here.ready(self._presence.see)
        return here

    def _here(self) -> _Here:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._pid != forks.pid():
                if self._heres:
                    _inherited.append(self._heres)
                self._heres, self.pids, self._pid = {}, set(), forks.pid()
            found = self._heres.get(loop)
            if found is not None and not found.on_loop.is_closed:
                return found
            for closed in [each for each in self._heres if each.is_closed()]:
                self._heres.pop(closed).abandon()
            on_loop = OnLoop(self._open_link, self._clock, self.pids)
            made = self._heres[loop] = _Here(self, on_loop, self._open_link)
            return made

    def give_back(self, here: _Here, claimed: Claimed) -> None:
        """Undoes a claim whose caller has gone, without waiting for it."""
        some = [GiveBack(job.id, job.claim) for job in claimed.jobs]
        if not some:
            return

        async def give_back(link: Link) -> None:
            await marks.mark(link, self.statements, some, self.now())
            self._floors.forget()

        here.do(give_back)

    def _let_go(self, here: _Here, places: list[Places]) -> None:
        """Gives the places back of a caller that has gone."""
        some = [(each, 0, 0) for each in places if each.slots]
        if some:
            here.do(lambda link: throttles.settle(link, self.statements, some))


def _numbers(text: str | None) -> list[int]:
    """Of an array, as Postgres writes it."""
    return [] if text is None else [int(each) for each in text[1:-1].split(",") if each]

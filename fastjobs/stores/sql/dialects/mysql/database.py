"""The queue in a MySQL or MariaDB database: what it has on each loop, and what is known of the database on all of them.

Longer than 300 lines, as each thing that a store asks of its database is a few lines here, and all of them share these.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Literal, TypeVar

from sqlalchemy import Connection, Engine, text

from fastjobs.clock import Clock
from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.errors import StoreError
from fastjobs.core.job import NewJob
from fastjobs.core.marks import GiveBack, HoldBack, Kept, Mark
from fastjobs.store import Cancelled, Places, Run, Throttled
from fastjobs.stores.sql import forks, values
from fastjobs.stores.sql.dialects.mysql import acting, keyed, marks, push, schedules, throttles, upkeep
from fastjobs.stores.sql.dialects.mysql import claim as claiming
from fastjobs.stores.sql.dialects.mysql.beside import Beside
from fastjobs.stores.sql.dialects.mysql.kinds import make_kinds
from fastjobs.stores.sql.dialects.mysql.link import CLOCK, Link
from fastjobs.stores.sql.dialects.mysql.listening import Listening, ring
from fastjobs.stores.sql.dialects.mysql.opening import check_engine, hurry, link_opener, name_of
from fastjobs.stores.sql.dialects.mysql.statements import make_statements
from fastjobs.stores.sql.dialects.mysql.steps import Found, Step, Steps, aside
from fastjobs.stores.sql.server.clock import ServerClock
from fastjobs.stores.sql.server.floors import Floors
from fastjobs.stores.sql.server.gathering import Gathering
from fastjobs.stores.sql.server.here import Here
from fastjobs.stores.sql.server.keyed_pushes import KeyedPushes
from fastjobs.stores.sql.server.on_loop import OnLoop, in_turn
from fastjobs.stores.sql.server.pairing import Pairing
from fastjobs.stores.sql.server.presence import Presence
from fastjobs.stores.sql.server.wanted import Wanted
from fastjobs.stores.sql.tables import Tables

_T = TypeVar("_T")

_inherited: list[object] = []
"""What a fork gave this process of its parent's. To let it go would end connections that the parent has."""


class _Here(Here[Link]):
    """What the store has on one loop."""

    def __init__(self, database: MySQL, open_link: Callable[[], Awaitable[Link]], clock: ServerClock) -> None:
        on_loop: OnLoop[Link] = OnLoop(open_link, clock, set())
        # A push may come to wait for an open transaction that pushes the same key, for a second or two: no other call
        # is to wait with it.
        self.apart: OnLoop[Link] = OnLoop(open_link, clock, set(), links=1)
        super().__init__(on_loop, self.apart)
        self.gathering: Gathering[Link] = Gathering(self.on_loop, database.send)
        self.keyed: KeyedPushes[Link] = KeyedPushes(self.apart, database.send, _is_open)
        self.pairing: Pairing[Link] = Pairing(
            self.on_loop,
            self.gathering,
            mark=database.send_marks,
            claim=database.send_claim,
            both=database.send_both,
            undo=lambda claimed: database.give_back(self, claimed),
        )
        self.listening = Listening(self.on_loop, database.statements)


class MySQL:
    """The queue's database on a MySQL or MariaDB server."""

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
                f"synchronous is SQLite's: leave out synchronous={synchronous!r}, as on MySQL and MariaDB the server's"
                " innodb_flush_log_at_trx_commit says it"
            )
        self.name = engine.dialect.name
        self.statements = make_statements(tables)
        self._engine = engine
        self._open_link = link_opener(engine)
        self._tables = tables
        self._presence = Presence(
            engine, tables, migrate=migrate, name_of=name_of, hurry=hurry, makes_within=False
        )
        self._clock = ServerClock(clock)
        self._kinds = make_kinds(self.statements)
        self.beside = Beside(engine, self._kinds, self._read)
        self._floors = Floors()
        self._freed: deque[keyed.Key] = deque()
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
                self.beside.close()
        if here is not None:
            await here.close()

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        if not jobs:
            return []
        here = await self._ready()
        return await (here.keyed if values.has_keys(jobs) else here.gathering).push(jobs)

    async def send(self, link: Link, jobs: Sequence[NewJob]) -> list[str | None]:
        """Sends jobs that are kept all or none."""
        await self._kinds.note(link, {job.kind for job in jobs}, self.now())
        now, greeting = self.now(), link.greeting
        steps = push.push(self.statements, jobs, now, greeting.packet, greeting.step, waits=False)
        is_one = push.is_one_statement(jobs, greeting.packet)
        ids = await (link.ask(steps) if is_one else link.transact(steps))
        if any((job.after < 0) if job.at is None else job.at < now for job in jobs):
            self._floors.forget()
        return ids

    async def claim(
        self, kinds: Sequence[Claimable], limit: int, ahead: int, others: Claimable | None
    ) -> Claimed:
        wanted = Wanted(tuple(kinds), limit, ahead, others)
        here = await self._ready()
        return await here.pairing.claim(wanted)

    async def send_claim(self, link: Link, wanted: Wanted) -> Claimed:
        """Sends a claim."""
        if not wanted.terms:
            return Claimed(now=self.now())
        await self._before_claim(link, wanted)
        # The time is told once there is a link: a claim that waited for one would make holds that are short.
        asked = claiming.Asked(self.statements, wanted, self.now(), self._floors)
        seen = await link.ask(claiming.look(asked))
        nothing = claiming.found_nothing(asked, seen)
        return await link.transact(claiming.claim(asked, seen)) if nothing is None else nothing

    async def send_marks(self, link: Link, asked: Sequence[Mark]) -> list[Kept]:
        """Sends marks."""
        answers = [Kept.LOST] * len(asked)

        async def send(batch: marks.Batch) -> marks.Marked:
            now = self.now()
            without: frozenset[int] = frozenset()
            while True:
                try:
                    return await link.transact(marks.mark(self.statements, batch, now, without))
                except marks.KeysAreLocked as locked:
                    without |= locked.ids

        for marked in await in_turn(link, [partial(send, batch) for batch in marks.batches(asked)]):
            self._told(marked, answers)
        if not {*map(type, asked)}.isdisjoint((GiveBack, HoldBack)):
            self._floors.forget()
        return answers

    async def send_both(
        self, link: Link, asked: Sequence[Mark], wanted: Wanted
    ) -> tuple[list[Kept], Claimed | None]:
        """Sends marks and a claim, in one transaction where that can be; None for a claim that is to be sent alone."""
        batches = marks.batches(asked)
        if len(batches) != 1 or not wanted.terms:
            return await self.send_marks(link, asked), None
        await self._before_claim(link, wanted)
        now, answers = self.now(), [Kept.LOST] * len(asked)
        claim = claiming.Asked(self.statements, wanted, now, self._floors)

        def both() -> Steps[tuple[marks.Marked, Claimed | None]]:
            marked = yield from marks.mark(self.statements, batches[0], now)
            if marked.has_keys:
                # It may wait for slots of others, which may wait for those that are locked now.
                return marked, None
            return marked, (yield from claiming.claim(claim, (yield from claiming.look(claim))))

        marked, claimed = await link.transact(both())
        self._told(marked, answers)
        return answers, claimed

    def _told(self, marked: marks.Marked, answers: list[Kept]) -> None:
        for place, kept in marked.answers.items():
            answers[place] = kept
        if marked.has_woken:
            self._floors.forget()

    async def _before_claim(self, link: Link, wanted: Wanted) -> None:
        if self._freed:
            await self._promote(link)
        # A kind is looked at by its row.
        await self._kinds.note(link, [each.kind for each in wanted.kinds], self.now())

    async def _promote(self, link: Link) -> None:
        keys: set[keyed.Key] = set()
        # The claims of other loops empty it as well.
        with contextlib.suppress(IndexError):
            while True:
                keys.add(self._freed.popleft())
        try:
            has_woken = await link.transact(keyed.promote_freed(self.statements, keys))
        except BaseException:
            self._freed.extend(keys)
            raise
        if has_woken:
            self._floors.forget()

    async def mark(self, some: Sequence[Mark]) -> list[Kept]:
        values.check_marks(some)
        here = await self._ready()
        return await here.pairing.mark(list(some))

    async def prune(self, failed_for: int, limit: int) -> int:
        here = await self._ready()
        return await upkeep.prune(here.on_loop, self.statements, failed_for, limit, self.now)

    async def sweep(self) -> int:
        here = await self._ready()
        woken = await upkeep.sweep(here.on_loop, self.statements, self.now)
        if woken:
            self._floors.forget()
        return woken

    async def take(self, asked: Sequence[Throttled]) -> list[Places]:
        wanted = list(asked)
        if not wanted:
            return []
        here = await self._ready()
        return await here.on_loop.use(
            lambda link: throttles.take(link, self.statements, self._tables.schema, wanted, self.now()),
            undo=lambda places: self._let_go(here, places),
        )

    async def settle(self, started: Sequence[tuple[Places, int, int]]) -> None:
        some = [each for each in started if each[0].slots]
        if some:
            here = await self._ready()
            schema = self._tables.schema
            await here.on_loop.use(lambda link: throttles.settle(link, self.statements, schema, some))

    async def cancel(self, ids: Sequence[str]) -> list[Cancelled]:
        if not ids:
            return []
        here = await self._ready()

        def woke() -> None:
            self._floors.forget()
            self.tell_soon()

        return await acting.cancel(here.on_loop, self.statements, ids, self.now, woke)

    async def progress(self, reports: Sequence[tuple[str, int, str]]) -> None:
        if reports:
            here = await self._ready()
            await here.on_loop.use(lambda link: link.transact(acting.progress(self.statements, reports)))

    async def tell_the_time(self) -> int:
        here = await self._ready()

        async def tell(link: Link) -> int:
            return self.now()

        # On a link, as that is where the time is measured once it's due.
        return await here.on_loop.use(tell)

    async def runs(self, names: Sequence[str]) -> Mapping[str, int]:
        here = await self._ready()
        return await here.on_loop.use(lambda link: link.ask(schedules.runs(self.statements, names)))

    async def push_run(self, run: Run) -> bool:
        here = await self._ready()
        pushed = await schedules.push_run(here.apart, self._kinds, self.statements, run, self.now)
        if pushed:
            self._floors.forget()
        return pushed

    async def run(self, work: Callable[[Connection], _T]) -> _T:
        """Runs what is written once for all databases, in a transaction."""
        here = await self._ready()
        try:
            return await here.on_loop.use(lambda link: link.run(work))
        finally:
            self._floors.forget()

    async def look(self, work: Callable[[Connection], _T]) -> _T:
        """Runs what only reads and is written once for all databases."""
        here = await self._ready()
        return await here.on_loop.use(lambda link: link.look(work))

    def tell_soon(self) -> None:
        """Has the others hear, who look for new jobs only, of one that may be claimed again."""
        self._here().do(lambda link: ring(link, self.statements))

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
            self._clock.measure_sync(lambda: int(connection.execute(text(CLOCK)).scalar_one()))
        # The kinds are noted by the push itself.
        self._presence.see_within(connection)

    def tell(self, connection: Connection) -> Callable[[], None] | None:
        """Nothing: nothing notifies here, and the others look."""

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

    async def _read(self, step: Step) -> Found:
        here = await self._ready()
        return await here.on_loop.use(lambda link: link.ask(aside(step)))

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
                self._heres, self._pid = {}, forks.pid()
            found = self._heres.get(loop)
            if found is not None and not found.on_loop.is_closed:
                return found
            for closed in [each for each in self._heres if each.is_closed()]:
                self._heres.pop(closed).abandon()
            made = self._heres[loop] = _Here(self, self._open_link, self._clock)
            return made

    def give_back(self, here: _Here, claimed: Claimed) -> None:
        """Undoes a claim whose caller has gone, without waiting for it."""
        some = [GiveBack(job.id, job.claim) for job in claimed.jobs]
        if not some:
            return

        async def give_back(link: Link) -> None:
            await self.send_marks(link, some)

        here.do(give_back)

    def _let_go(self, here: _Here, places: list[Places]) -> None:
        """Gives the places back of a caller that has gone."""
        some = [(each, 0, 0) for each in places if each.slots]
        if some:
            schema = self._tables.schema
            here.do(lambda link: throttles.settle(link, self.statements, schema, some))


def _is_open(error: BaseException) -> bool:
    """Whether a push met a key that an open transaction pushes."""
    return isinstance(error, push.KeyIsOpen)

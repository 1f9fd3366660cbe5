"""A process of the fleet: a queue with all kinds, a clock of its own that is wrong, and requests that push."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from fastjobs import Queue
from fastjobs.store import Store
from tests.fleet.kinds import VALUES, Actor, Stage
from tests.fleet.loop import SimLoop
from tests.fleet.record import SECOND, Process
from tests.fleet.referee import Referee


class SimClock:
    """A process's clock: as fast as the loop's, and up to an hour away from the store's."""

    def __init__(self, loop: SimLoop, start: int, chance: Random) -> None:
        self._loop = loop
        self._chance = chance
        self._start = start
        self.apart = 0.0
        """Seconds."""
        self._origin = chance.random() * 1e6

    def now(self) -> int:
        return self._start + round((self._loop.time() + self.apart) * SECOND)

    def monotonic(self) -> float:
        return self._loop.time() + self._origin

    def call_later(self, delay: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay, callback)

    def random(self) -> float:
        return self._chance.random()


class Instance(Actor):
    """A process that runs, from its start to its stop or its death."""

    def __init__(
        self,
        name: str,
        *,
        loop: SimLoop,
        start: int,
        chance: Random,
        referee: Referee,
        stage: Stage,
        connect: Callable[[Process], Store],
        hold: float,
    ) -> None:
        """`connect` gives it its way to the store."""
        poll, grace = chance.choice([1.0, 2.0, 5.0]), chance.choice([0.0, 1.0, 3.0])
        super().__init__(name, referee, stage, poll=round(poll * SECOND), grace=round(grace * SECOND))
        self._loop = loop
        self._chance = chance
        self.clock = SimClock(loop, start, Random(chance.random()))
        self.clock.apart = (chance.random() * 2 - 1) * 3600
        self.requests = True
        """Whether someone pushes through it."""
        self.up = False
        self.queue = Queue(
            connect(self),
            workers=chance.choice([1, 2, 4]),
            poll=poll,
            grace=grace,
            hold=hold,
            observe=lambda ran: referee.observed(self, ran),
            clock=self.clock,
        )
        self.register(self.queue)
        self._stop = asyncio.Event()
        with loop.owned_by(self):
            self.main = loop.create_task(self._main())

    @property
    def leaves(self) -> bool:
        """Whether it's gone, or was told to go."""
        return self.dead or self._stop.is_set()

    def stop(self) -> None:
        """Asks it to stop in order, as a deploy does."""
        if not self._stop.is_set():
            self.referee.say(f"{self.name} is told to stop")
            with self._loop.owned_by(self):
                self._stop.set()

    def kill(self) -> None:
        """Its tasks and timers are dropped where they are."""
        self.referee.say(f"{self.name} is killed")
        self.killed_at = self.referee.now()
        self.dead = True

    async def push(self, kind: str, count: int = 1, after: float = 0) -> None:
        """Pushes as a request would; one that fails may be kept or not."""
        referee = self.referee
        try:
            if count > 1:
                referee.acked(await self.kinds[kind].push_many(range(count)))
            else:
                value = self._chance.randrange(VALUES) if kind in ("once", "newest", "lanes") else 0
                referee.acked([await self.kinds[kind].push(value, after=after)])
        except Exception as error:
            referee.unheard += 1
            referee.say(f"{self.name} push of {kind} failed: {error}")

    async def _main(self) -> None:
        running = self.queue.running(on_crash=self._crashed)
        requests = self._loop.create_task(self._requests())
        await running.__aenter__()
        self.up = True
        self.referee.say(f"{self.name} is up")
        await self._stop.wait()
        self.stopping_at = self.referee.now()
        await running.__aexit__(None, None, None)
        self.referee.stopped(self)
        requests.cancel()
        self.dead = True

    async def _requests(self) -> None:
        chance = self._chance
        while True:
            await asyncio.sleep(chance.random() * 3)
            if not self.requests:
                continue
            kind = chance.choice(self.stage.pushed)
            if chance.random() < self.stage.bursts:
                burst = "quick" if "quick" in self.stage.pushed else chance.choice(self.stage.pushed)
                await self.push(burst, count=chance.randrange(10, 40))
            else:
                await self.push(kind, after=chance.random() * 4 if chance.random() < 0.3 else 0)

    def _crashed(self, error: BaseException) -> None:
        self.referee.breach("the queue has no bug", f"{self.name}: {error!r}")

"""The nemesis: it kills, stops and freezes the app's processes while they work, and has the database fail under them,
in an order that a seed decides."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from random import Random

from tests.soak.kinds import Push, Work
from tests.soak.load import Clients
from tests.soak.outages import Outages
from tests.soak.processes import Fleet, Slot


class Nemesis:
    """Faults, each aimed at a process that has something to lose."""

    def __init__(
        self, fleet: Fleet, clients: Clients, random: Random, outages: Outages | None = None
    ) -> None:
        self._fleet = fleet
        self._clients = clients
        self._random = random
        self._outages = outages
        self._one_freezes = asyncio.Lock()

    async def run(self, seconds: float, wanted: Mapping[str, int]) -> None:
        """Does so many of each fault in about so many seconds; one that comes late is done all the same."""
        faults = [fault for fault, times in wanted.items() for _ in range(times)]
        self._random.shuffle(faults)
        loop = asyncio.get_running_loop()
        began, each = loop.time(), seconds / max(1, len(faults))
        freezing: list[asyncio.Task[None]] = []
        for number, fault in enumerate(faults):
            moment = began + each * (number + self._random.uniform(0.2, 0.8))
            await asyncio.sleep(max(0.0, moment - loop.time()))
            if fault == "freeze":
                freezing.append(asyncio.create_task(self._freeze()))
            elif fault == "poison":
                await self._push(fault)
            elif fault in ("restart", "termination", "cut"):
                assert self._outages is not None
                await self._outages.do(fault)
            else:
                await self._end(fault)
        await asyncio.gather(*freezing)
        await asyncio.sleep(max(0.0, began + seconds - loop.time()))

    async def _end(self, fault: str) -> None:
        while True:
            slot = await self._target()
            # Long jobs first, so that it's in the middle of some.
            await asyncio.gather(*(self._push("long", slot) for _ in range(2)))
            await asyncio.sleep(self._random.uniform(0.05, 0.5))
            # A job may have killed it meanwhile.
            if slot.order(fault, signal.SIGKILL if fault == "kill" else signal.SIGTERM):
                return

    async def _freeze(self) -> None:
        """Pushes jobs that stop their process until one does: another fault may come before its first attempt."""
        async with self._one_freezes:
            before = self._fleet.freezes
            while self._fleet.freezes == before:
                await self._push("freeze")
                for _ in range(50):
                    await asyncio.sleep(0.05)
                    if self._fleet.freezes > before:
                        break

    async def _target(self) -> Slot:
        """A process that serves, and isn't frozen just now: waking one is another's."""
        while True:
            frozen = self._fleet.frozen()
            slots = [slot for slot in self._fleet.slots if slot.ready.is_set() and slot.name not in frozen]
            if slots:
                return self._random.choice(slots)
            await asyncio.sleep(0.05)

    async def _push(self, fault: str, slot: Slot | None = None) -> None:
        """Pushes a job, again until that is acknowledged."""
        kinds = {"long": "long", "freeze": "freezes", "poison": "poison"}
        while True:
            work = Work(ref=self._clients.ref())
            if fault == "freeze":
                # Some end as they wake, so that their end comes late; some go on, and are told that their job is gone.
                work.freeze, work.lingers = True, self._random.choice((0.0, 0.0, 0.5))
            to = (slot or await self._target()).url
            if await self._clients.push(Push(kind=kinds[fault], work=work), in_tx=False, to=to):
                return
            await asyncio.sleep(0.2)

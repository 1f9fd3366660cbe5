"""The database's own faults: its server is stopped as in a crash, sessions are ended, connections cut or silent."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from random import Random
from typing import Literal

from tests.soak.kinds import POLL
from tests.soak.places import ServerPlace
from tests.soak.recording import Recorder

CUTS = (
    "silence",
    "reset",
    "delay",
    "answer to COMMIT",
    "answer to a push",
    "answer to a claim",
    "answer to a mark",
)
"""What the proxy does. An answer that is cut is one that says that the server has done it."""
_AT_MOST = 4.0
"""Seconds that an answer is waited for."""


class Outages:
    """Breaks the way to one database, a fault after the other, and writes down from when to when."""

    def __init__(self, place: ServerPlace, recorder: Recorder, random: Random) -> None:
        self._place = place
        self._recorder = recorder
        self._random = random
        self._next_cut = 0

    async def do(self, fault: str) -> None:
        """One "restart", "termination" or "cut"; it returns once that is over."""
        began, wall = time.monotonic_ns(), time.time()
        if fault == "restart":
            fault = self._random.choice(self._place.crashes)
            hit = await asyncio.to_thread(self._restart, fault)
        elif fault == "termination":
            hit = await asyncio.to_thread(self._place.terminate)
        else:
            # Each in turn, so that a short run has all of them too.
            fault = CUTS[self._next_cut % len(CUTS)]
            self._next_cut += 1
            hit = await self._cut(fault)
        self._recorder.write(fault, began, hit, wall)
        if fault in ("restart", "crash"):
            # How soon the app is back is measured, and the next fault of the database's would be in between.
            await asyncio.sleep(POLL + 1.2)

    def _restart(self, how: str) -> int:
        server, hit = self._place.server, self._place.proxy.connections
        assert server is not None
        if how == "crash":
            os.kill(server.pid, signal.SIGKILL)
        server.stop("immediate")
        for last in (False, False, True):
            try:
                server.start()
                break
            except RuntimeError:
                # What the killed one had started may take a moment to see that it's gone.
                if last:
                    raise
        return hit

    async def _cut(self, what: str) -> int:
        proxy = self._place.proxy
        if what == "reset":
            return proxy.cut()
        hit = proxy.connections
        try:
            if what == "silence":
                proxy.hang()
                await asyncio.sleep(self._random.uniform(1.5, 4))
            elif what == "delay":
                proxy.delay(0.3)
                await asyncio.sleep(3)
            else:
                pattern, direction = self._place.answers[what]
                when: Literal["before", "answered"] = "before" if direction == "to_client" else "answered"
                cut = proxy.cut_at(pattern, direction=direction, when=when)
                hit = int(await asyncio.to_thread(cut.done.wait, _AT_MOST))
        finally:
            proxy.heal()
        return hit

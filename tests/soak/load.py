"""The clients: they push over HTTP, in every way there is, and write down what they were answered."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from random import Random

import httpx

from tests.soak.kinds import Push, Work
from tests.soak.recording import Recorder

_WAYS = {"plain": 25, "order": 45, "undone": 10, "savepoint": 12, "savepoint undone": 8}
_KINDS = {"quick": 60, "short": 20, "unsteady": 11, "hopeless": 4, "refused": 4, "long": 1}


class Clients:
    """Pushes to whichever of the app's processes it's pointed at."""

    def __init__(self, recorder: Recorder, pick: Callable[[], str]) -> None:
        """`pick` answers the address of a process."""
        self._recorder = recorder
        self._pick = pick
        self._numbers = itertools.count(1)
        self._http = httpx.AsyncClient(timeout=20, limits=httpx.Limits(max_connections=200))

    async def load(self, random: Random, pause: float, over: asyncio.Event) -> None:
        """One client: a push after the other, `pause` seconds apart on average, until it's over."""
        while not over.is_set():
            way = random.choices(list(_WAYS), list(_WAYS.values()))[0]
            kind = random.choices(list(_KINDS), list(_KINDS.values()))[0]
            fails = random.choice((0, 0, 1, 2, 3)) if kind == "unsteady" else 0
            push = Push(kind=kind, work=Work(ref=self.ref(), fails=fails))
            if way in ("savepoint", "savepoint undone"):
                push.inner = f"{push.work.ref}/inner"
                push.undo = "savepoint" if way == "savepoint" else "all"
            elif way == "undone":
                push.undo = "all"
            if not await self.push(push, in_tx=way != "plain"):
                await asyncio.sleep(0.2)
            await asyncio.sleep(random.random() * 2 * pause)

    def ref(self) -> str:
        """A name that no other push has."""
        return f"p{next(self._numbers)}"

    async def push(self, push: Push, *, in_tx: bool, to: str | None = None) -> bool:
        """One push, and whether it was sent and answered as it should be."""
        ref, undone = push.work.ref, push.undo == "all"
        self._recorder.write("try", ref, in_tx, undone)
        if push.inner is not None:
            self._recorder.write("try", push.inner, True, True)
        try:
            url = f"{to or self._pick()}/{'order' if in_tx else 'push'}"
            answer = await self._http.post(url, json=push.model_dump())
        except httpx.ConnectError:
            self._recorder.write("refused", ref)
            return False
        except httpx.TransportError:
            return False  # it was sent: what came of it nobody knows
        if answer.status_code == 200:
            self._recorder.write("acked", ref, answer.json()["id"])
        elif answer.status_code == 409:
            self._recorder.write("rolled back", ref)
        else:
            return False
        return True

    async def close(self) -> None:
        """Lets the connections go."""
        await self._http.aclose()

"""The wait for another transaction's end: what it pushed may be kept or dropped, and until then nobody knows which."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer

from fastjobs.core.errors import StoreTimeout

LIMIT = 10.0
"""Seconds that a push waits for another transaction."""

_WHAT = "an open transaction has pushed or moved a job of this key or name, and a push of it waits for its outcome"


class InTheWay(Exception):
    """A push met what another open transaction has pushed. It's made again once that has ended."""

    def __init__(self, ended: Future[None], thread: int) -> None:
        """`ended` is done as the transaction, or its savepoint, ends; `thread` is the one that pushed in it."""
        super().__init__(_WHAT)
        self._ended = ended
        self._thread = thread

    async def over(self) -> None:
        """Returns as it has ended; StoreTimeout where it doesn't in time."""
        try:
            async with asyncio.timeout(LIMIT):
                await asyncio.wrap_future(self._ended)
        except TimeoutError:
            raise StoreTimeout(f"{_WHAT}: it has not ended in {LIMIT:g} s") from None

    def over_in_thread(self) -> None:
        """As `over`, and blocks this thread. StoreTimeout at once where that very thread has the transaction."""
        if self._thread == threading.get_ident():
            raise StoreTimeout(f"{_WHAT}: this thread has that transaction open, so it can't end meanwhile")
        try:
            self._ended.result(LIMIT)
        except NoAnswer:
            raise StoreTimeout(f"{_WHAT}: it has not ended in {LIMIT:g} s") from None


class Outcomes:
    """Those that wait for one. Its store's lock is held at each call."""

    def __init__(self) -> None:
        self._waiting: list[Future[None]] = []

    def awaited(self, thread: int) -> InTheWay:
        """What to raise or await."""
        ended: Future[None] = Future()
        self._waiting.append(ended)
        return InTheWay(ended, thread)

    def came(self) -> None:
        """A transaction has ended, or a savepoint: all look again."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if each.set_running_or_notify_cancel():
                each.set_result(None)

"""A daemon thread that a sync driver's link works in: one call is in it at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

_T = TypeVar("_T")


class LinkThread:
    """The thread. It ends after `end`, and then calls `closes`, in the thread."""

    def __init__(self, name: str, closes: Callable[[], object]) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._closes = closes
        self.is_busy = False
        self.is_ending = False
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    async def call(self, work: Callable[[], _T]) -> _T:
        """Does it in the thread."""
        waits: Future[_T] = Future()
        self.is_busy = True
        self._calls.put((work, waits))
        return await asyncio.wrap_future(waits)

    def end(self) -> None:
        """Has the thread end after what was asked before."""
        self.is_ending = True
        self._calls.put(None)

    def _serve(self) -> None:
        try:
            while (call := self._calls.get()) is not None:
                work, waits = call
                # Whoever waits and is cancelled leaves the statement to its end: the link isn't used until then.
                is_wanted = waits.set_running_or_notify_cancel()
                answer, failure = None, None
                try:
                    if is_wanted:
                        answer = work()
                except BaseException as error:
                    failure = error
                # Before the answer, as whoever gets it may use the link at once.
                self.is_busy = False
                try:
                    if not is_wanted:
                        pass
                    elif failure is not None:
                        waits.set_exception(failure)
                    else:
                        waits.set_result(answer)
                except RuntimeError:
                    pass  # the loop that waited has been closed
                del call, work, waits, answer, failure
        finally:
            self._closes()

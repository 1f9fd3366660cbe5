"""What a caller has asked of a task of the store's own, and where its answer goes."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

_Asks = TypeVar("_Asks")
_Answer = TypeVar("_Answer")


class Question(Generic[_Asks, _Answer]):
    """One call. Its caller waits for `answer`, and may be cancelled meanwhile."""

    __slots__ = ("answer", "asks")

    def __init__(self, asks: _Asks, loop: asyncio.AbstractEventLoop) -> None:
        self.asks = asks
        self.answer: asyncio.Future[_Answer] = loop.create_future()

    def is_wanted(self) -> bool:
        """Whether somebody waits for an answer that isn't there yet."""
        return not self.answer.done()

    def has_come(self) -> bool:
        """Whether there's an answer, though its caller may have been cancelled in the same turn."""
        return self.answer.done() and not self.answer.cancelled() and self.answer.exception() is None

    def settle(self, answer: _Answer) -> bool:
        """Gives the answer; whether somebody was there to have it."""
        if self.answer.done():
            return False
        self.answer.set_result(answer)
        return True

    def fail(self, error: BaseException) -> None:
        """Gives an error in its place."""
        if self.answer.done():
            return
        if isinstance(error, asyncio.CancelledError):
            self.answer.cancel()
        else:
            self.answer.set_exception(error)

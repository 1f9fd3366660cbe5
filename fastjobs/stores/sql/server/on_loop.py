"""What the store has on one event loop: at most two links that work, each made when it's needed and kept.

Every call is made in a task of its own, which its caller's cancellation leaves alone: so a link is never left in the
middle of a statement, and what a claim took is known and can be given back.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

from fastjobs.clock import SystemClock
from fastjobs.stores.sql.server.clock import ServerClock
from fastjobs.stores.sql.server.link import L, Link

log = logging.getLogger("fastjobs")

_T = TypeVar("_T")

LINKS = 2
"""How many links work at once."""
LEFT = 5.0
"""How many seconds a call whose caller has gone has to end, before its connection is cut."""
TRIES = 5

_random = SystemClock().random


class OnLoop(Generic[L]):
    """The links of one store on one loop. It's made inside of it, and closes itself as `asyncio.run` ends."""

    def __init__(
        self, open_link: Callable[[], Awaitable[L]], clock: ServerClock, pids: set[int], links: int = LINKS
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._open_link = open_link
        self._clock = clock
        self._pids = pids
        self._room = asyncio.Semaphore(links)
        self._idle: list[L] = []
        self._busy: set[L] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._at_end: AsyncGenerator[None, None] | None = None
        self.before_close: list[Callable[[], Awaitable[None]]] = []
        """What is to be done, in order, before the links are closed."""
        self.listening: set[L] = set()
        """What is open beside those that work. Whoever adds one closes it."""
        self.is_closed = False

    async def start(self) -> None:
        """Has the loop close the links at its end, if nobody has by then."""
        # asyncio.run closes what async generators are left, and has no other way to be told of an end.
        if self._at_end is None:
            self._at_end = self._kept()
            await anext(self._at_end)

    async def close(self) -> None:
        """Lets what's under way end, and closes the links."""
        if self._at_end is not None:
            await self._at_end.aclose()

    async def use(self, work: Callable[[L], Awaitable[_T]], undo: Callable[[_T], object] | None = None) -> _T:
        """Does the work on a link. Where the caller is cancelled meanwhile, `undo` gets what came of it after all."""
        call = self.call(work)
        task = self.begin(call.run())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if undo is not None:
                task.add_done_callback(lambda done: _undo(done, undo))
            if not task.done():
                call.leave(task)
            raise

    def call(self, work: Callable[[L], Awaitable[_T]]) -> Call[L, _T]:
        """The work as a call that has not begun."""
        return Call(self, work)

    def begin(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Starts a task of the store's own, in a context that is nobody's."""
        task = self.loop.create_task(work, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def take(self) -> L:
        """A link that works, once one is free. Each is given back."""
        await self._room.acquire()
        try:
            while self._idle:
                link = self._idle.pop()
                if link.is_usable():
                    break
                await self._drop(link)
            else:
                link = await self._open_link()
                self._pids.add(link.pid)
        except BaseException:
            self._room.release()
            raise
        self._busy.add(link)
        try:
            if self._clock.is_due():
                await self._clock.measure(link.ask_the_time)
        except BaseException as error:
            await self.give(link, error)
            raise
        return link

    async def give(self, link: L, error: BaseException | None = None) -> None:
        """Takes a link back, after a call that ended with this error; one that may be broken is closed."""
        self._busy.discard(link)
        is_whole = error is None or link.is_answer(error)
        try:
            if is_whole and not self.is_closed and link.is_usable():
                self._idle.append(link)
            else:
                await self._drop(link)
        finally:
            self._room.release()

    async def _drop(self, link: L) -> None:
        self._pids.discard(link.pid)
        try:
            await link.close()
        except Exception:
            log.debug("a connection of the queue's couldn't be closed", exc_info=True)

    async def _kept(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self._end()

    async def _end(self) -> None:
        for each in self.before_close:
            try:
                await each()
            except Exception:
                log.debug("the queue's connections are closed in a hurry", exc_info=True)
        own = asyncio.current_task()
        under_way = {task for task in self._tasks if task is not own}
        if under_way:
            _, late = await asyncio.wait(under_way, timeout=LEFT)
            self.is_closed = True
            for link in list(self._busy):
                link.abort()
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=LEFT)
        self.is_closed = True
        idle, self._idle = self._idle, []
        for link in idle:
            await self._drop(link)
        # A connection that was cut is let go in the loop's next turn, and there may be no other.
        await asyncio.sleep(0)

    def abandon(self) -> None:
        """Closes the links of a loop that has been closed without its end."""
        self.is_closed = True
        for link in [*self._idle, *self._busy, *self.listening]:
            self._pids.discard(link.pid)
            try:
                link.abandon()
            except Exception:
                log.debug("a connection of a closed loop couldn't be closed", exc_info=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Whoever waits for it has it too; where nobody does any more, it's no news for asyncio to log.
            task.exception()


class Call(Generic[L, _T]):
    """One piece of work on a link, tried again where the server gave it up for another's sake."""

    def __init__(self, here: OnLoop[L], work: Callable[[L], Awaitable[_T]]) -> None:
        self._here = here
        self._work = work
        self._link: L | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> _T:
        """Does it."""
        tries = 0
        while True:
            tries += 1
            self._link = link = await self._here.take()
            failure: BaseException | None = None
            try:
                return await self._work(link)
            except BaseException as error:
                failure = error
                if tries >= TRIES or not link.is_worth_another_try(error):
                    raise
            finally:
                self._link = None
                await self._here.give(link, failure)
                failure = None
            await asyncio.sleep(_random() * 0.01 * 2**tries)

    def leave(self, task: asyncio.Task[_T]) -> None:
        """Nobody waits for it any more: what has not begun never does, and the rest is to end soon."""
        if self._link is None:
            task.cancel()
            return
        if self._timer is None:
            self._timer = timer = self._here.loop.call_later(LEFT, self._cut, context=contextvars.Context())
            task.add_done_callback(lambda _: timer.cancel())

    def _cut(self) -> None:
        if self._link is not None:
            self._link.abort()


async def in_turn(link: Link, works: Iterable[Callable[[], Awaitable[_T]]]) -> list[_T]:
    """Does each after the other on this link; each is committed by itself, and tried again by itself, as what came
    before it must not be done twice."""
    answers: list[_T] = []
    for work in works:
        tries = 0
        while True:
            tries += 1
            try:
                answers.append(await work())
                break
            except Exception as error:
                # The first is tried again with its call.
                if not answers or tries >= TRIES or not link.is_worth_another_try(error):
                    raise
            await asyncio.sleep(_random() * 0.01 * 2**tries)
    return answers


def _undo(done: asyncio.Task[_T], undo: Callable[[_T], object]) -> None:
    if not done.cancelled() and done.exception() is None:
        undo(done.result())

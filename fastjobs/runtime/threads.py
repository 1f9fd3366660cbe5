"""The queue's own threads, in which `def` handlers run.

They are daemons, where the default executor's and anyio's keep a process alive until each has returned: a handler that
never returns is left behind, and the process ends all the same.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context
from queue import SimpleQueue

from fastjobs.core.text import running_place


class Call:
    """One call of a function in a thread."""

    __slots__ = ("_context", "_fn", "_loop", "_values", "_waiter", "error", "finished", "left", "thread")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, context: Context, fn: Callable[..., object], *values: object
    ) -> None:
        self._loop = loop
        self._context = context
        self._fn = fn
        self._values = values
        self._waiter: asyncio.Future[None] | None = None
        self.error: BaseException | None = None
        """What it raised."""
        self.finished = False
        """Whether it has returned or raised, and the loop has been told."""
        self.left = False
        """Whether nobody waits for it any more."""
        self.thread = 0
        """The thread that runs it; 0 before."""

    def run(self) -> None:
        """Calls it, in the current thread; raises nothing."""
        self.thread = threading.get_ident()
        self.error = outcome(self._context, self._fn, *self._values)

    def where(self) -> str:
        """Where in the app's code it is just now."""
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
        return running_place(frames.get(self.thread))

    async def changed(self) -> None:
        """Returns once it has finished, or `stir` was called."""
        if not self.finished:
            self._waiter = self._loop.create_future()
            await self._waiter

    def stir(self) -> None:
        """Has `changed` return."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def finish(self) -> None:
        """It has finished; on the loop."""
        self.finished = True
        self.stir()


class Threads:
    """Threads, made as they're needed and used again."""

    def __init__(self, most: int) -> None:
        """`most` are kept. More are made only in the place of those that are left behind."""
        self.loop = asyncio.get_running_loop()
        self._most = most
        self._free = 0
        self._count = 0
        self._left = 0
        self._made = 0
        self._inbox: SimpleQueue[Call | None] = SimpleQueue()
        self._ended: deque[Call] = deque()
        self._telling = False
        self._letting = False
        self._closed = False

    def start(self, call: Call) -> None:
        """Has a thread run it. A RuntimeError where there's none to be had."""
        if self._free:
            self._free -= 1
            self._inbox.put(call)
            if not self._letting:
                self._letting = True
                self.loop.call_soon(self._let)
            return
        # In a list, as the thread holds its arguments for as long as it lives.
        name = f"fastjobs handler {self._made + 1}"
        threading.Thread(target=self._work, args=([call],), name=name, daemon=True).start()
        self._made += 1
        self._count += 1

    def _let(self) -> None:
        """Lets the threads that were just given calls begin, before the loop keeps what ended before.

        They need the interpreter's lock, which it would hold for all that: at the median they begin a third sooner.
        """
        self._letting = False
        time.sleep(0)

    def leave(self, call: Call) -> None:
        """Leaves behind a call that goes on: another thread may be made in the place of its own."""
        call.left = True
        self._count -= 1
        self._left += 1

    def close(self) -> None:
        """Ends the threads: each as soon as it's idle."""
        for _ in range(self._count + self._left):
            self._inbox.put(None)
        self._closed = True

    def _work(self, first: list[Call]) -> None:
        call: Call | None = first.pop()
        while call is not None:
            call.run()
            if not self._end(call):
                return
            call = None  # what it held is let go of while the thread waits
            call = self._inbox.get()

    def _end(self, call: Call) -> bool:
        """Tells the loop, once for all that end before it looks; False where there's no loop any more."""
        self._ended.append(call)
        if not self._telling:
            self._telling = True
            try:
                self.loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # closed: nobody waits for it
                return False
        return True

    def _deliver(self) -> None:
        self._telling = False  # before it looks: what ends after this tells again
        while self._ended:
            call = self._ended.popleft()
            call.finish()
            if call.left:
                self._left -= 1
                self._count += 1
            if self._count <= self._most:
                self._free += 1
            elif not self._closed:
                self._count -= 1
                self._inbox.put(None)


def outcome(context: Context, fn: Callable[..., object], *values: object) -> BaseException | None:
    """Calls a plain handler in the context, and answers what it raised; raises nothing."""
    try:
        returned = context.run(fn, *values)
        if inspect.isawaitable(returned):
            return _unawaited(fn, returned)
    except BaseException as error:  # SystemExit is an end as any other
        return error
    return None


def _unawaited(fn: Callable[..., object], returned: object) -> TypeError:
    """The error of a plain function that gave something to await: its work hasn't begun."""
    if inspect.iscoroutine(returned):
        returned.close()
    return TypeError(
        f"{getattr(fn, '__name__', None) or repr(fn)} is a plain function and returned a {type(returned).__name__},"
        " which nothing awaits, so its work was not done. Make it an async def"
    )

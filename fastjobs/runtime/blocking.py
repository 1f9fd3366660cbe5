"""The queue from sync code: `kind.sync.push(value)`, `q.sync.failed()`, from a thread or with no event loop at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import TimeoutError as NoAnswer
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from fastjobs.core.blocked import waits
from fastjobs.core.duration import Seconds
from fastjobs.core.errors import QueueError, StoreTimeout
from fastjobs.core.job import NewJob
from fastjobs.runtime.following import Followed
from fastjobs.runtime.settings import STORE_LIMIT

if TYPE_CHECKING:
    from fastjobs.runtime.desk import Desk
    from fastjobs.runtime.kind import Kind
    from fastjobs.runtime.queue import Queue

T = TypeVar("T")


class BlockingPush(Generic[T]):
    """A kind that pushes from sync code, and blocks its thread until the job is kept."""

    def __init__(self, kind: Kind[T], queue: Queue) -> None:
        self._kind = kind
        self._queue = queue

    @overload
    def push(
        self: BlockingPush[None],
        value: None = None,
        *,
        at: datetime | None = None,
        after: Seconds | None = None,
        name: str | None = None,
    ) -> str | None: ...
    @overload
    def push(
        self, value: T, *, at: datetime | None = None, after: Seconds | None = None, name: str | None = None
    ) -> str | None: ...
    def push(
        self,
        value: Any = None,
        *,
        at: datetime | None = None,
        after: Seconds | None = None,
        name: str | None = None,
    ) -> str | None:
        """As `Kind.push`, from a thread of the app's, a `def` route or a script.

        On a thread whose event loop runs it raises QueueError, as it would block the loop: `await kind.push(…)` there.
        """
        return self._push(*self._kind.jobs((value,), at, after, name=name))[0]

    def push_many(
        self, values: Iterable[T], *, at: datetime | None = None, after: Seconds | None = None
    ) -> list[str | None]:
        """As `Kind.push_many`, from sync code."""
        jobs, followed = self._kind.jobs(values, at, after)
        return self._push(jobs, followed) if jobs else []

    def _push(self, jobs: Sequence[NewJob], followed: Followed | None) -> list[str | None]:
        push = partial(self._blocking, jobs)
        return push() if followed is None else followed.through(push)

    def _blocking(self, jobs: Sequence[NewJob]) -> list[str | None]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass  # and not the push itself: what it raises would be told as raised while this was handled
        else:
            raise QueueError(
                f"kind {self._kind.name!r}: sync.push would block this thread's event loop; write await kind.push(…)"
            )
        with waits():
            return push_blocking(self._queue, jobs)


def push_blocking(queue: Queue, jobs: Sequence[NewJob]) -> list[str | None]:
    """Pushes on the queue's own loop, where it runs on one, and else on a loop that ends with the push."""
    loop = queue.loop
    if loop is None or not loop.is_running():
        return _run(queue.push(jobs))
    answer = asyncio.run_coroutine_threadsafe(queue.push(jobs), loop)
    try:
        return answer.result(STORE_LIMIT + 1)
    except NoAnswer:
        if answer.done():
            raise  # the store's own, or the push's
        answer.cancel()
        raise StoreTimeout(
            f"the queue's event loop gave no answer to a push in {STORE_LIMIT + 1:g} s: something blocks it, and the"
            " job may be kept or not"
        ) from None


def block(queue: Desk, call: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
    """The answer of one of the queue's methods, on its own loop where it runs, and else on one that ends with it.

    One that takes long is waited for, as each call of the store in it has its limit, for as long as the loop runs.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise QueueError(f"q.sync.{what} would block this thread's event loop; write await q.{what}(…)")
    with waits():
        return _answered(queue, call, what)


def _answered(queue: Desk, call: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
    loop = queue.loop
    if loop is None or not loop.is_running():
        return _run(call())
    answer = asyncio.run_coroutine_threadsafe(call(), loop)
    while True:
        try:
            return answer.result(STORE_LIMIT + 1)
        except NoAnswer:
            if answer.done():
                raise  # the store's own
            if _turns(loop):
                continue
            answer.cancel()
            raise StoreTimeout(
                f"the queue's event loop gave no answer to q.sync.{what} in {STORE_LIMIT + 2:g} s: something blocks it,"
                " and it may be done or not"
            ) from None


def _run(call: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, but that a factory has it leave the thread's current event loop as it is."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(call)


def _turns(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the loop gets to what it's asked within a second."""
    turn = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop)
    try:
        turn.result(1)
    except NoAnswer:
        turn.cancel()
        return False
    return True

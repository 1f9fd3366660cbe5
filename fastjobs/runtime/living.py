"""Runs queues while a block is entered: starts them all, and stops them all at once, one grace for all."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Literal

import anyio

from fastjobs.core.errors import QueueError, RegistrationError
from fastjobs.runtime.handlers import is_async

if TYPE_CHECKING:
    from fastjobs.runtime.kind import Kind
    from fastjobs.runtime.life import Life
    from fastjobs.runtime.queue import Queue

OnCrash = Literal["stop", "log"] | Callable[[BaseException], None]
"""What follows a bug of fastjobs' own: SIGTERM to this process, nothing but the log, or a call."""

_LEFT_ALONE: contextvars.ContextVar[Sequence[Queue] | None] = contextvars.ContextVar(
    "fastjobs left alone", default=None
)


@contextmanager
def not_run_here(*queues: Queue) -> Generator[None]:
    """Has `live` run nothing in this context: it opens stores alone, and leaves these queues to who runs them.

    So an app's lifespan can be entered for what else it opens.
    """
    token = _LEFT_ALONE.set(queues)
    try:
        yield
    finally:
        _LEFT_ALONE.reset(token)


@asynccontextmanager
async def live(
    queues: Sequence[Queue],
    *,
    run: bool = True,
    on_crash: OnCrash = "log",
    workers: int | None = None,
    kinds: Sequence[str | Kind[Any]] | None = None,
) -> AsyncGenerator[None]:
    """Runs the queues while entered. They stop together, within the longest grace and a second.

    They are given their grace also where the block is cancelled. `workers` is in place of each one's own number, and
    `kinds`, for one queue alone, are those whose jobs it runs.
    """
    left_alone = _LEFT_ALONE.get()
    if left_alone is not None:
        queues, run = [queue for queue in queues if queue not in left_alone], False
    if run and kinds is None:
        _check_fallbacks(queues)
    crashed = following(on_crash)
    lives: list[Life] = []
    async with AsyncExitStack() as stack:
        for queue in queues:
            lives.append(
                await stack.enter_async_context(
                    queue.begin(run=run, crashed=crashed, workers=workers, kinds=kinds)
                )
            )
        started: list[Life] = []
        try:
            for life in lives:
                started.append(life)
                await life.start()
            yield
        finally:
            await _stop(started)


def _check_fallbacks(queues: Sequence[Queue]) -> None:
    """A QueueError where the fallback of one would take the jobs that another of them has handlers for."""
    for queue in queues if len(queues) > 1 else ():
        for other in queues if queue.has_fallback else ():
            theirs = sorted(set(other.kinds) - set(queue.kinds))
            if theirs and other.store is queue.store:
                raise QueueError(
                    f"the fallback of a queue handles all kinds in its store that the queue has no handler for, and"
                    f" another queue on this store handles {', '.join(theirs)}: have one queue with all kinds, or give"
                    " each a store of its own, as SQLStore(engine, prefix=…)"
                )


async def _stop(lives: Sequence[Life]) -> None:
    """Stops them at once, and to the end: a cancellation of the caller is passed on only then."""

    async def all_of_them() -> None:
        await asyncio.gather(*(life.stop() for life in lives))

    stopping = asyncio.create_task(all_of_them(), context=contextvars.Context())
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not stopping.done():
            try:
                await asyncio.wait([stopping])
            except asyncio.CancelledError as again:
                cancelled = again
    stopping.result()
    if cancelled is not None:
        raise cancelled


def following(on_crash: OnCrash) -> Callable[[BaseException], None]:
    """What to call after a bug; a RegistrationError for what `on_crash` can't be."""
    if callable(on_crash):
        if is_async(on_crash):
            raise RegistrationError(
                f"on_crash= is called and not awaited, so it's a plain function, not an async one: {on_crash!r}"
            )
        return on_crash
    if on_crash == "log":
        return lambda error: None
    if on_crash == "stop":
        # SIGTERM is what servers stop on in order, and supervisors start again after. Nothing else would: a server
        # goes on serving when a task of its lifespan has died.
        return lambda error: os.kill(os.getpid(), signal.SIGTERM)
    raise RegistrationError(f"on_crash is 'stop', 'log' or a callable, not {on_crash!r}")

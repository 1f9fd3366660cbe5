"""Asks a queue's store for something, in the app's lifespan where that opens it, and says in a line what went wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from fastjobs.cli.hosting import LifespanFailed, lifespan_of
from fastjobs.cli.mistake import Mistake
from fastjobs.cli.printing import ReaderGone, Unwritable, tell
from fastjobs.cli.target import Target
from fastjobs.core.errors import QueueError, RegistrationError
from fastjobs.core.text import error_text
from fastjobs.runtime.living import not_run_here
from fastjobs.runtime.queue import Queue
from fastjobs.stores.memory import Memory


def ask(target: Target, order: Callable[[Queue], Awaitable[int]]) -> int:
    """Carries out the order with the queue's store open and nothing running, and answers the exit code."""

    async def asked() -> int:
        async with entered(target):
            if isinstance(target.queue.store, Memory):
                raise Mistake(
                    f"{target.named} keeps its jobs in a Memory, which is in the app's own process and ends with it:"
                    " from another there is nothing to see. Ask it there, as by await q.failed()"
                )
            async with target.queue.running(run=False):
                return await order(target.queue)

    return outcome(target, asked)


def outcome(target: Target, asked: Callable[[], Awaitable[int]]) -> int:
    """The exit code of what is asked. A mistake is raised; what else goes wrong is told in a line."""

    async def run() -> int:
        return await asked()

    _be_quiet()
    try:
        return asyncio.run(run())
    except (Mistake, ReaderGone, Unwritable):
        raise
    except (RegistrationError, QueueError) as wrong:  # a StoreError is one
        raise Mistake(f"{target.named}: {wrong}") from None
    except LifespanFailed as failed:
        raised = failed.__cause__
        tell(f"the app's lifespan failed: {failed if raised is None else first_line(raised)}")
    except Exception as error:  # a driver's own, of which nobody knows them all
        tell(f"the store of {target.named} can't be asked: {first_line(error)}")
        logging.getLogger("fastjobs").debug("where it was", exc_info=error)
    return 1


@asynccontextmanager
async def entered(target: Target) -> AsyncGenerator[None]:
    """Enters the lifespan of the target's app, if it has one: its queues run nothing, and this one isn't opened.

    A Mistake where the queue has no store by then.
    """
    async with AsyncExitStack() as stack:
        if target.app is not None:
            with not_run_here(target.queue):
                # Its task is made in here, and has this context for as long as it lives.
                hosted = lifespan_of(target.app)
                await stack.enter_async_context(hosted)
        try:
            _ = target.queue.store
        except QueueError:
            raise Mistake(
                f"{target.named} has no store yet"
                + ("" if target.app else "; if its app gives it one as it starts: --app module:app")
            ) from None
        yield


def first_line(error: BaseException) -> str:
    """What an error says first: what follows may be a statement with all its values."""
    return error_text(error).partition("\n")[0]


def _be_quiet() -> None:
    """Keeps log lines off a terminal where the app has set up no logging: what goes wrong is told once, in a line."""
    log = logging.getLogger("fastjobs")
    if not log.hasHandlers():
        log.addHandler(logging.NullHandler())

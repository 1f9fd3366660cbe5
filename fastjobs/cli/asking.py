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
from fastjobs.core.text import error_place, error_text
from fastjobs.runtime.living import not_run_here
from fastjobs.runtime.queue import Queue
from fastjobs.store import Extra, supports
from fastjobs.stores.memory import Memory

_BUGS = (AssertionError, AttributeError, NameError, TypeError, LookupError, RecursionError)
"""What no database raises as it's down: where it was raised has to be seen."""


class NoFile(Exception):
    """The queue's SQLite file isn't there: opened, it would be made, with no job in it, in a wrong folder mostly."""


def ask(target: Target, order: Callable[[Queue], Awaitable[int]]) -> int:
    """Carries out the order with the queue's store open and nothing running, and answers the exit code."""

    async def asked() -> int:
        async with entered(target):
            if isinstance(target.queue.store, Memory):
                raise Mistake(
                    f"{target.named} keeps its jobs in a Memory, which is in the app's own process and ends with it:"
                    " from another there is nothing to see. Ask it there, as by await q.failed()"
                )
            check_file(target.queue)
            async with target.queue.running(run=False):
                return await order(target.queue)

    return outcome(target, asked)


def check_file(queue: Queue) -> None:
    """Raises NoFile where the store would make its SQLite file as it's opened."""
    if isinstance(queue.store, Memory):
        return
    from fastjobs.stores.sql.store import SQLStore  # not before it's needed: it loads SQLAlchemy

    path = queue.store.missing_file() if isinstance(queue.store, SQLStore) else None
    if path is not None:
        raise NoFile(
            f"{path} isn't there, and the app makes it as it starts. If it has run, its URL's path is relative,"
            " perhaps: then do this in the folder that the app runs in"
        )


async def check_kind(queue: Queue, kind: str) -> None:
    """A Mistake for a kind that this queue doesn't have, and that no job was ever of."""
    there = set(queue.kinds)
    if kind not in there and supports(queue.store, Extra.COUNTS):
        there |= {each.kind for each in await queue.counts(cap=1)}
        if kind not in there:
            raise Mistake(f"there is no kind {kind!r}; there are: {', '.join(sorted(there)) or 'none'}")


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
    except NoFile as absent:
        tell(f"the store of {target.named} can't be asked: {absent}")
    except LifespanFailed as failed:
        tell(f"the app's lifespan failed: {lifespan_error(failed)}")
    except _BUGS:
        raise
    except Exception as error:  # a driver's own, of which nobody knows them all
        tell(f"the store of {target.named} can't be asked: {first_line(error)}")
    return 1


def lifespan_error(failed: LifespanFailed) -> str:
    """What the app raised in its lifespan, and where."""
    raised = failed.__cause__
    if raised is None:
        return str(failed)
    place = error_place(raised)
    return first_line(raised) + (f" ({place})" if place else "")


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

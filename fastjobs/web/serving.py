"""Queues in an app's lifespan: entered before its first request, stopped with their grace after its last."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast, overload

from fastjobs.core.errors import RegistrationError
from fastjobs.runtime.kind import Kind
from fastjobs.runtime.living import OnCrash, following, live
from fastjobs.runtime.queue import Queue
from fastjobs.store import Store

# Starlette's Lifespan is a union of these two. One callable that may give either doesn't fit it, so `lifespan` is
# overloaded: what it answers is the one that `within` is.
Stateless = Callable[[Any], AbstractAsyncContextManager[None]]
Stateful = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]


@overload
def lifespan(
    *queues: Queue,
    within: None = None,
    store: Store | None = None,
    run: bool = True,
    on_crash: OnCrash = "stop",
    workers: int | None = None,
    kinds: Sequence[str | Kind[Any]] | None = None,
) -> Stateless: ...
@overload
def lifespan(
    *queues: Queue,
    within: Stateless,
    store: Store | None = None,
    run: bool = True,
    on_crash: OnCrash = "stop",
    workers: int | None = None,
    kinds: Sequence[str | Kind[Any]] | None = None,
) -> Stateless: ...
@overload
def lifespan(
    *queues: Queue,
    within: Stateful,
    store: Store | None = None,
    run: bool = True,
    on_crash: OnCrash = "stop",
    workers: int | None = None,
    kinds: Sequence[str | Kind[Any]] | None = None,
) -> Stateful: ...
def lifespan(
    *queues: Queue,
    within: Stateless | Stateful | None = None,
    store: Store | None = None,
    run: bool = True,
    on_crash: OnCrash = "stop",
    workers: int | None = None,
    kinds: Sequence[str | Kind[Any]] | None = None,
) -> Any:
    """Runs queues while the app serves: `FastAPI(lifespan=fastjobs.lifespan(q))`, and Starlette alike.

    - `within` is the app's own lifespan. It's entered first and left last, so what it opens outlives the queues,
      and what it yields is the state that requests see, unchanged.
    - `store` is given to the queue as it starts, for a queue that was made without one.
    - `run=False` only pushes: the jobs run in another process.
    - `on_crash` is for a bug of the queue's own, as an app would serve on without it: "stop", the default, logs
      CRITICAL and ends the process gracefully by SIGTERM, for its supervisor to start it again; "log" only logs; a
      callable is called with the error.
    - `workers` is how many jobs run at once in this process, in place of each queue's own number.
    - `kinds` are those whose jobs run in this process, by name or as Kind objects. Jobs of the queue's other kinds can
      be pushed, and are left to an instance that runs them.

    Several queues start in their order and stop together. A stop takes the longest `grace` and up to a second, also
    where the server cancels the lifespan. Jobs can be pushed until then, by requests that are still being answered.
    Each process of a server has its own lifespan, so `workers` times the processes run at once. A mounted app's
    lifespan never runs: give the queue to the outermost one.

    Raises RegistrationError for no queue, one twice, `store=` or `kinds=` with several, or a `within` that is no
    lifespan; and, as it's entered, for a kind that the queue doesn't have.
    """
    for queue in queues:
        if not isinstance(cast("object", queue), Queue):
            raise RegistrationError(
                f"lifespan takes queues, and {queue!r} is none: FastAPI(lifespan=fastjobs.lifespan(q))"
            )
    if not queues:
        raise RegistrationError("lifespan takes the queues to run: FastAPI(lifespan=fastjobs.lifespan(q))")
    if len(set(queues)) != len(queues):
        raise RegistrationError("lifespan was given one queue twice")
    if store is not None and len(queues) > 1:
        raise RegistrationError(
            f"store= is for one queue, and there are {len(queues)}: give each its own, by Queue(store) or q.use(store)"
        )
    if kinds is not None and len(queues) > 1:
        raise RegistrationError(
            f"kinds= is for one queue, and there are {len(queues)}: run each by a q.running(kinds=…) of its own"
        )
    following(on_crash)
    outer = _within(within)

    @asynccontextmanager
    async def entered(app: Any) -> AsyncGenerator[Mapping[str, Any] | None]:
        async with outer(app) as state:
            if store is not None:
                for queue in queues:
                    queue.use(store)
            # Not a task group: it would wrap the app's own exceptions, and end the lifespan with a queue that crashed.
            async with live(queues, run=run, on_crash=on_crash, workers=workers, kinds=kinds):
                yield state

    return entered


def _within(within: Any) -> Callable[[Any], AbstractAsyncContextManager[Any]]:
    """The app's own lifespan, as a function to a context manager."""
    if within is None:
        return _nothing
    if inspect.isasyncgenfunction(within):  # what Starlette takes too, deprecated
        return asynccontextmanager(within)
    if not callable(within) or inspect.isgeneratorfunction(within) or inspect.iscoroutinefunction(within):
        raise RegistrationError(
            f"within= is the app's own lifespan, a function of the app with @asynccontextmanager, not {within!r}"
        )
    make = cast("Callable[[Any], object]", within)

    def entered(app: Any) -> AbstractAsyncContextManager[Any]:
        made = make(app)
        if not isinstance(made, AbstractAsyncContextManager):
            raise RegistrationError(
                "within= is the app's own lifespan, which gives an async context manager: put @asynccontextmanager on"
                f" {within!r}; it gave {made!r}"
            )
        return cast("AbstractAsyncContextManager[Any]", made)

    return entered


@asynccontextmanager
async def _nothing(_app: Any) -> AsyncGenerator[None]:
    yield

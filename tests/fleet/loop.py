"""An event loop with virtual time and a seeded order of task steps: the same seed gives the same run.

Only the steps of tasks are shuffled, as asyncio promises the order of other callbacks. Each callback belongs to the
owner of the task that asked for it, so that an owner can be frozen, its steps kept for later, or killed, its steps
dropped with no cleanup at all: what a process does that's stopped or killed.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import Context, copy_context
from random import Random
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Owner:
    """Whose tasks and callbacks these are: a process of the simulation."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.frozen = False
        self.parked: list[_Callback] = []
        """What came due while it was frozen."""


class _Callback(asyncio.TimerHandle):
    """Something to call, now or at its time."""

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimLoop,
        context: Context | None,
    ) -> None:
        context = copy_context() if context is None else context
        super().__init__(when, callback, args, loop, context)
        task = getattr(callback, "__self__", None)
        self.steps = isinstance(task, _Task)
        """Whether it's a step of a task."""
        self.owner: Owner | None = task.owner if isinstance(task, _Task) else loop.owner
        self.call: Callable[[], object] = lambda: context.run(callback, *args)


class _Task(asyncio.Task[Any]):
    """A task that knows its owner before its first step is asked for."""

    def __init__(self, coro: Any, loop: SimLoop, **given: Any) -> None:
        self.owner = loop.owner
        super().__init__(coro, loop=loop, **given)


class SimLoop(asyncio.BaseEventLoop):
    """The loop. It never waits: where nothing is to be done it's the time of the next timer."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.owner: Owner | None = None
        """Whose callback runs just now; None for what stands outside of all of them."""
        self.complaints: list[str] = []
        """What asyncio would have logged: exceptions that nobody took."""
        self._chance = Random(seed)
        self._now = 0.0
        self._asked = 0
        self._due: list[_Callback] = []
        self._timers: list[tuple[float, int, _Callback]] = []
        self._tasks: list[_Task] = []
        """All of them, as those of a killed owner must not be closed, which would run their cleanup."""

    def run(self, over: Callable[[], object], limit: float) -> bool:
        """Runs until it's over, asked after each step, and says whether it is; else it's `limit` by the loop's time."""
        events._set_running_loop(self)
        try:
            while not over():
                if not self._step(limit):
                    return bool(over())
        finally:
            events._set_running_loop(None)
        return True

    @contextmanager
    def owned_by(self, owner: Owner | None) -> Generator[None]:
        """What is asked of the loop within belongs to this owner."""
        before, self.owner = self.owner, owner
        try:
            yield
        finally:
            self.owner = before

    def thaw(self, owner: Owner) -> None:
        """Lets it go on, with what came due meanwhile."""
        owner.frozen = False
        self._due += owner.parked
        owner.parked.clear()

    def _step(self, limit: float) -> bool:
        """Makes one step; False where there's none up to the limit."""
        while not self._due or (self._timers and self._timers[0][0] <= self._now):
            if not self._timers:
                return False
            if self._timers[0][0] > limit:
                self._now = max(self._now, limit)
                return False
            when, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, when)
            if not timer.cancelled():
                self._due.append(timer)
        chosen = self._due.pop(self._choose())
        if chosen.cancelled():
            return True
        owner = chosen.owner
        if owner is not None and owner.frozen:
            owner.parked.append(chosen)
        elif owner is None or not owner.dead:
            self.owner = owner
            try:
                chosen.call()
            finally:
                self.owner = None
        return True

    def _choose(self) -> int:
        if len(self._due) == 1 or not self._due[0].steps:
            return 0
        steps = [place for place, each in enumerate(self._due) if each.steps]
        return steps[int(self._chance.random() * len(steps))]

    # What asyncio asks of a loop.

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> _Callback:
        return self._ask(self._now, callback, args, context, soon=True)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> _Callback:
        return self._ask(when, callback, args, context, soon=False)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> _Callback:
        return self._ask(self._now + delay, callback, args, context, soon=False)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        **given: Any,
    ) -> asyncio.Task[T]:
        task = _Task(coro, self, name=name and str(name), context=context, **given)
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: Any) -> None:
        if not self.is_closed():
            self.complaints.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _ask(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
        *,
        soon: bool,
    ) -> _Callback:
        self._asked += 1
        asked = _Callback(when, callback, args, self, context)
        if self.is_closed():
            asked.cancel()
        elif soon:
            self._due.append(asked)
        else:
            heapq.heappush(self._timers, (when, self._asked, asked))
        return asked

"""A process's way to the shared store: each call may fail before its effect, after it, late, or never be answered.

The effect takes place outside of the process, as in a database's server: a process that's killed or frozen meanwhile
doesn't keep it from happening.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum, auto
from random import Random
from typing import Any, ClassVar, TypeVar

from fastjobs.store import Cancelled, Claimable, Claimed, Extend, Extra, Kept, Mark, NewJob, Places, Throttled
from fastjobs.stores.memory import Memory
from tests.fleet.loop import SimLoop
from tests.fleet.record import Call, Process
from tests.fleet.referee import Referee

T = TypeVar("T")


class Down(Exception):
    """What a driver might raise."""


class Fault(Enum):
    """What goes wrong with a call."""

    NONE = auto()
    BEFORE = auto()
    """It fails, and had no effect."""
    AFTER = auto()
    """It has its effect, and fails."""
    LOST = auto()
    """It never gets there."""
    UNANSWERED = auto()
    """It has its effect, and no answer."""
    LATE = auto()
    """Its effect comes when its caller has long given up, or just not yet."""
    BUSY = auto()
    """Some of its rows are in someone's transaction."""


class Weather:
    """How likely the faults are just now, for all processes alike."""

    def __init__(self, chance: Random, faults: Sequence[Fault]) -> None:
        self._chance = chance
        self._faults = faults
        self.late = 0
        """How many calls are on their way for longer than their callers may wait."""
        self.rough = 0.0
        """How many of the calls have a fault."""
        self.down = False
        """Whether no call gets through."""

    def draw(self) -> tuple[Fault, float, float]:
        """A call's fault, and the seconds on its way there and back."""
        there, back = self._chance.random() * 0.05, self._chance.random() * 0.05
        if self.down:
            return Fault.BEFORE, there, back
        if not self.rough or self._chance.random() > self.rough:
            return Fault.NONE, there, back
        fault = self._chance.choice(self._faults)
        if fault is Fault.LATE:
            there = 2 + self._chance.random() * 14
        return fault, there, back

    def some(self, marks: Sequence[Mark]) -> list[bool]:
        """Which of these marks are BUSY."""
        return [self._chance.random() < 0.6 for _ in marks]


class Wire:
    """The store, as one process has it."""

    extras: ClassVar[Extra] = (
        Extra.CARRY | Extra.FAILED | Extra.LIFECYCLE
        | Extra.UNIQUE | Extra.LATEST | Extra.ONE_AT_A_TIME | Extra.AT_ONCE | Extra.THROTTLE
        | Extra.CANCEL | Extra.PROGRESS
    )  # fmt: skip

    def __init__(
        self, loop: SimLoop, memory: Memory, weather: Weather, referee: Referee, process: Process
    ) -> None:
        self._loop = loop
        self._memory = memory
        self._weather = weather
        self._referee = referee
        self._process = process
        self._busy: set[str] = set()
        """The jobs whose latest mark answered BUSY; the next one doesn't, as a transaction is short."""

    async def open(self, kinds: Sequence[str] = ()) -> None:
        await self._call("open", lambda call, busy: None)

    async def close(self) -> None:
        await self._call("close", lambda call, busy: None)

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        def effect(call: Call, busy: bool) -> list[str | None]:
            ids = at_once(self._memory.push(jobs))
            self._referee.pushed(self._process, jobs, ids)
            return ids

        return await self._call("push", effect)

    async def claim(
        self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
    ) -> Claimed:
        def effect(call: Call, busy: bool) -> Claimed:
            claimed = at_once(self._memory.claim(kinds, limit, ahead=ahead, others=others))
            self._referee.claimed(self._process, kinds, limit, ahead, claimed, call)
            return claimed

        return await self._call("claim", effect, self._referee.heard)

    async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
        verb = "extend" if all(isinstance(each, Extend) for each in marks) else "mark"

        def effect(call: Call, busy: bool) -> list[Kept]:
            blocked = [
                one and mark.id not in self._busy
                for one, mark in zip(
                    self._weather.some(marks) if busy else [False] * len(marks), marks, strict=True
                )
            ]
            self._busy = {mark.id for mark, one in zip(marks, blocked, strict=True) if one}
            before = self._rows(marks)
            free = [mark for mark, one in zip(marks, blocked, strict=True) if not one]
            kept = iter(at_once(self._memory.mark(free)))
            answers = [Kept.BUSY if one else next(kept) for one in blocked]
            self._referee.marked(self._process, marks, answers, before, self._rows(marks), call)
            return answers

        return await self._call(verb, effect)

    async def take(self, asked: Sequence[Throttled]) -> list[Places]:
        return await self._call("take", lambda call, busy: at_once(self._memory.take(asked)))

    async def settle(self, started: Sequence[tuple[Places, int, int]]) -> None:
        await self._call("settle", lambda call, busy: at_once(self._memory.settle(started)))

    async def cancel(self, ids: Sequence[str]) -> list[Cancelled]:
        return await self._call("cancel", lambda call, busy: at_once(self._memory.cancel(ids)))

    async def asked(self, held: Sequence[tuple[str, int]]) -> set[str]:
        return await self._call("asked", lambda call, busy: at_once(self._memory.asked(held)))

    async def progress(self, reports: Sequence[tuple[str, int, str]]) -> None:
        await self._call("progress", lambda call, busy: at_once(self._memory.progress(reports)))

    def _rows(self, marks: Sequence[Mark]) -> dict[str, Any]:
        rows = self._memory._rows
        return {mark.id: copy.copy(rows[mark.id]) for mark in marks if mark.id in rows}

    async def _call(
        self, verb: str, effect: Callable[[Call, bool], T], heard: Callable[[T], None] = lambda _: None
    ) -> T:
        fault, there, back = self._weather.draw()
        answer: asyncio.Future[T] = self._loop.create_future()
        call = Call(verb, self._now(), fault is not Fault.NONE and fault is not Fault.BUSY)
        if call.troubled:
            self._process.troubles.append(call)
            self._referee.say(f"{self._process.name} {verb}: {fault.name}")

        def fail() -> None:
            if not answer.done():
                answer.set_exception(Down(f"{verb}: {fault.name}"))

        def succeed(result: T) -> None:
            if not answer.done():
                # A process that is dead by now hears nothing.
                if not self._process.dead:
                    heard(result)
                answer.set_result(result)

        def arrive() -> None:
            self._weather.late -= fault is Fault.LATE
            if fault is Fault.BEFORE:
                fail()
                return
            if fault is Fault.LOST:
                return
            result = effect(call, fault is Fault.BUSY)
            self._referee.counted(len(self._memory._rows))
            if fault is Fault.AFTER:
                self._loop.call_later(back, fail)
            elif fault is not Fault.UNANSWERED:
                self._loop.call_later(back, succeed, result)

        self._weather.late += fault is Fault.LATE
        with self._loop.owned_by(None):
            self._loop.call_later(there, arrive)
        try:
            return await answer
        finally:
            call.ended = self._now()

    def _now(self) -> int:
        return self._memory._clock.now()


def at_once(call: Coroutine[Any, Any, T]) -> T:
    """The answer of a call that never waits, as Memory's don't."""
    try:
        call.send(None)
    except StopIteration as answered:
        found: T = answered.value
        return found
    raise AssertionError("Memory waited")

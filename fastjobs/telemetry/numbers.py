"""How many jobs there are of each kind, for metrics: the store is asked seldom, and no event loop waits for it."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import CancelledError as Cancelled
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastjobs.core.duration import SECOND, Seconds, micros
from fastjobs.core.errors import RegistrationError
from fastjobs.runtime.lines import say_error
from fastjobs.store import Extra, Store, supports

if TYPE_CHECKING:
    from fastjobs.runtime.looking import KindInfo
    from fastjobs.runtime.queue import Queue

OTHER = "_other"
"""The label of all kinds that no queue here has a handler of: whoever pushes may name them anything."""
CAP = 10_000
_WAIT = 5.0
"""Seconds after asking the store for which a scrape in a thread waits, however many gauges it reads."""
_STALE = 60.0
"""Seconds after which numbers that couldn't be had anew are told no more."""
_TELL_EVERY = 60.0
_MOST_KINDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """A kind's, or those of all that have no handler here."""

    waiting: int
    due: int
    held: int
    parked: int
    failed: int
    oldest: float
    """Seconds; 0 where nothing is due."""
    paused: bool


class Counted:
    """The numbers of the queues that it watches, and which of their kinds' names are labels."""

    def __init__(self, *, every: Seconds = 5, cap: int = CAP) -> None:
        """`every` is how seldom at most a store is asked. RegistrationError for what can't be."""
        if isinstance(cap, bool) or not isinstance(cap, int) or cap < 1:
            raise RegistrationError(f"cap is how far to count, 10,000 by default, not {cap!r}")
        try:
            self._every = micros(every, "every", least=100_000) / SECOND
        except ValueError as bad:
            raise RegistrationError(str(bad)) from None
        self._cap = cap
        self._watched: list[_Watched] = []
        self._guard = threading.Lock()
        self._labels: set[str] = set()

    def watch(self, queue: Queue) -> None:
        """Counts its jobs too."""
        with self._guard:
            self._watched = [each for each in self._watched if each.queue() is not None]
            self._watched.append(_Watched(queue))

    def label(self, kind: str) -> str:
        """The kind's name, if it's one of the app's own."""
        if kind in self._labels:
            return kind
        queues = [found for each in self._watched if (found := each.queue()) is not None]
        if not any(kind in queue.kinds for queue in queues) and (queues or len(self._labels) >= _MOST_KINDS):
            return OTHER
        self._labels.add(kind)
        return kind

    def read(self) -> Mapping[str, Numbers]:
        """The numbers by label: no older than `every`, but on an event loop's thread, where it waits for nothing.

        Those of a queue that doesn't run are left out, and those that the store can't be asked for.
        """
        found: dict[str, Numbers] = {}
        stores: list[Store] = []
        for each in self._watched:
            queue = each.queue()
            if queue is None or queue.loop is None or any(queue.store is other for other in stores):
                continue  # what another queue's store has was counted with that one
            stores.append(queue.store)
            for info in each.read(self._every, self._cap):
                label = self.label(info.kind)
                found[label] = _sum(found.get(label), info)
        return found


class _Watched:
    """One queue's numbers, as they were when they were last had."""

    def __init__(self, queue: Queue) -> None:
        self.queue = weakref.ref(queue)
        self._infos: list[KindInfo] = []
        self._at = self._asked = self._told = float("-inf")
        self._under_way: tuple[asyncio.AbstractEventLoop, Future[None]] | None = None
        self._guard = threading.Lock()

    def read(self, every: float, cap: int) -> list[KindInfo]:
        queue = self.queue()
        loop = None if queue is None else queue.loop
        if queue is None or loop is None or not supports(queue.store, Extra.COUNTS):
            return []
        answer = self._ask(queue, loop, every, cap)
        if answer is not None and not _on_a_loop():
            left = self._asked + _WAIT - queue.clock.monotonic()
            with suppress(NoAnswer, Cancelled):  # what comes later is for the next one
                answer.result(max(left, 0.0))
        return self._infos if queue.clock.monotonic() - self._at < max(_STALE, every) else []

    def _ask(
        self, queue: Queue, loop: asyncio.AbstractEventLoop, every: float, cap: int
    ) -> Future[None] | None:
        """Asks, unless that's under way or was just done. What there is to wait for, if anything."""
        with self._guard:
            if self._under_way is not None and self._under_way[0] is loop and not self._under_way[1].done():
                return self._under_way[1]
            now = queue.clock.monotonic()
            if now - self._asked < every or not loop.is_running():
                return None
            self._asked = now
            asking = self._keep(queue, cap)
            try:
                answer = asyncio.run_coroutine_threadsafe(asking, loop)
            except RuntimeError:  # it was closed meanwhile
                asking.close()
                return None
            self._under_way = loop, answer
            return answer

    async def _keep(self, queue: Queue, cap: int) -> None:
        try:
            self._infos = await queue.counts(cap=cap)
        except Exception as error:
            now = queue.clock.monotonic()
            if now - self._told >= _TELL_EVERY:
                self._told = now
                say_error("the store was asked for the numbers of metrics, and they're left out", error)
        else:
            self._at = queue.clock.monotonic()


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _sum(before: Numbers | None, info: KindInfo) -> Numbers:
    one = Numbers(
        waiting=info.waiting,
        due=info.due,
        held=info.held,
        parked=info.parked,
        failed=info.failed,
        oldest=info.oldest or 0.0,
        paused=info.paused,
    )
    if before is None:
        return one
    return Numbers(
        waiting=before.waiting + one.waiting,
        due=before.due + one.due,
        held=before.held + one.held,
        parked=before.parked + one.parked,
        failed=before.failed + one.failed,
        oldest=max(before.oldest, one.oldest),
        paused=before.paused or one.paused,
    )

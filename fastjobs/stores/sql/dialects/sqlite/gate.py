"""The gate of a SQLite file: a line, within this process, of those who want to write it.

SQLite has one writer and no line: whoever happens to ask when the lock is free has it. Here transactions go in
the order they came. The store's own writer goes first, as its turns are short and the whole queue waits for
them, but never twice in a row while someone else waits.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from fastjobs.core.blocked import waiting_thread

FileKey = tuple[int, int]
"""A file's device and inode, the same by whichever path it's reached."""


class Turn:
    """Someone's place in the line, and then the turn itself."""

    __slots__ = ("first", "given", "loop", "since", "task", "thread", "wake")

    def __init__(self, *, first: bool = False) -> None:
        self.first = first
        self.given = False
        self.since = time.monotonic()
        self.wake: Callable[[], object] = _nothing
        self.loop: asyncio.AbstractEventLoop | None = None
        self.task: asyncio.Task[Any] | None = None
        self.thread = threading.get_ident()
        try:
            self.loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self.task = asyncio.current_task()

    def who(self) -> str:
        """Who has the turn and for how long, for the error of one who waited in vain."""
        name = "the queue's writer" if self.first else self.task.get_name() if self.task else "a thread"
        return f"{name} has had it for {time.monotonic() - self.since:.1f} s"


_taken: ContextVar[Turn | None] = ContextVar("fastjobs.turn", default=None)
"""The last turn that was taken in this context, in a thread without a loop."""


class Gate:
    """Lets one in at a time, in the order they came."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: Turn | None = None
        self._line: deque[Turn] = deque()
        self._last_was_first = False

    def held_here(self) -> bool:
        """Whether the running task has the turn, or the thread that waits for what the task does.

        FastAPI has one thread run a function of one request and then of another, each in a context of its own: so a
        thread's turn is its own only where that was taken in this context.
        """
        holder = self._holder
        if holder is None:
            return False
        if holder.task is None:
            return holder is _taken.get() and holder.thread == waiting_thread()
        try:
            return holder.task is asyncio.current_task()
        except RuntimeError:
            return False

    def enter(self, timeout: float, *, first: bool = False) -> Turn:
        """Waits for a turn in this thread, and raises "database is locked" where none came in time."""
        turn = self._enter(timeout, first=first)
        if turn.loop is None:
            _taken.set(turn)
        return turn

    def _enter(self, timeout: float, *, first: bool) -> Turn:
        turn = Turn(first=first)
        came = threading.Event()
        turn.wake = came.set
        if self._joins(turn):
            return turn
        if turn.loop is not None:
            self._refuse_to_block(turn)
        try:
            if came.wait(timeout):
                return turn
        except BaseException:  # a signal's handler raised: nobody would leave the turn that it gets
            self.leave(turn)
            raise
        raise self._gave_up(turn, timeout)

    async def enter_async(self, timeout: float) -> Turn:
        """Waits for a turn on the running loop. One that's cancelled while it waits leaves the line."""
        turn = Turn()
        assert turn.loop is not None
        loop = turn.loop
        came: asyncio.Future[None] = loop.create_future()
        turn.wake = lambda: loop.call_soon_threadsafe(_resolve, came)
        if self._joins(turn):
            return turn
        try:
            async with asyncio.timeout(timeout):
                await came
        except TimeoutError:
            raise self._gave_up(turn, timeout) from None
        except BaseException:
            self.leave(turn)
            raise
        return turn

    def leave(self, turn: Turn) -> None:
        """Ends the turn, or leaves the line. A turn that has ended already is nothing."""
        with self._lock:
            if self._holder is not turn:
                if turn in self._line:
                    self._line.remove(turn)
                return
            self._last_was_first = turn.first
            self._holder = None
            self._give()

    def _joins(self, turn: Turn) -> bool:
        with self._lock:
            holder = self._holder
            if holder is not None and turn.task is not None and holder.task is turn.task:
                raise sqlite3.OperationalError(
                    "database is locked: this task has a write transaction open on another connection, and would"
                    " wait for itself. Use one session for the whole of it, or execution option"
                    " fastjobs_readonly=True for what only reads"
                )
            self._line.append(turn)
            if holder is None:
                self._give()
            return turn.given

    def _give(self) -> None:
        # Under the lock. One whose loop has closed meanwhile is passed over.
        while self._line:
            preferred = not self._last_was_first
            turn = next((other for other in self._line if other.first is preferred), self._line[0])
            self._line.remove(turn)
            self._holder = turn
            turn.given = True
            turn.since = time.monotonic()
            try:
                turn.wake()
            except RuntimeError:
                self._holder = None
                continue
            return

    def _refuse_to_block(self, turn: Turn) -> None:
        # A sync wait on a loop's own thread, for a task of that same loop, can't end before it's given up.
        with self._lock:
            ahead = [self._holder, *self._line]
        if any(
            other is not None and other.task is not None and other.loop is turn.loop
            for other in ahead[: ahead.index(turn)]
        ):
            self.leave(turn)
            raise sqlite3.OperationalError(
                "database is locked: another task of this loop has a write transaction open or waits for one, and a"
                " sync session on the loop's own thread would block it. Use an async session, or a thread"
            )

    def _gave_up(self, turn: Turn, timeout: float) -> sqlite3.OperationalError:
        holder = self._holder
        said = holder.who() if holder is not None and holder is not turn else "its turn came too late"
        if turn.first:
            said += (
                ". Where that is this request's own session: push through kind.in_(session), and give jobs_in_tx the"
                " alias that the routes have"
            )
        self.leave(turn)
        return sqlite3.OperationalError(
            f"database is locked: waited {timeout:g} s for a turn to write; {said}"
        )


_gates: dict[FileKey, Gate] = {}
_gates_lock = threading.Lock()


def gate(key: FileKey) -> Gate:
    """The gate of this file, the same one for all who ask in this process."""
    with _gates_lock:
        found = _gates.get(key)
        if found is None:
            found = _gates[key] = Gate()
        return found


def any_held_here() -> bool:
    """Whether the running task, or the thread that waits for it, has the turn at any file's gate."""
    with _gates_lock:
        return any(each.held_here() for each in _gates.values())


def _forget() -> None:
    # In a child process: those who had a turn are not here, and a lock may have been held as it was copied.
    global _gates_lock
    _gates.clear()
    _gates_lock = threading.Lock()


def _nothing() -> None:
    return


def _resolve(came: asyncio.Future[None]) -> None:
    if not came.done():
        came.set_result(None)


os.register_at_fork(after_in_child=_forget)

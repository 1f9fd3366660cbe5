"""The store's writer: one thread with one connection, which commits in one transaction all calls that have gathered.

While a transaction is being committed the next calls gather, so that an idle queue commits each call at once and
a busy one hundreds together, for the price of one wait for the disk. The thread knows nothing of loops but where
to leave an answer.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from fastjobs.stores.sql.dialects.sqlite.opened import LOCKED_FOR, Opened

log = logging.getLogger("fastjobs")

_T = TypeVar("_T")
_BROKEN = (10, 11, 14, 26)
"""IOERR, CORRUPT, CANTOPEN, NOTADB: what a new connection may get over, and this one won't."""
_TOGETHER = 1000
"""The most calls in one transaction."""


class Call(Generic[_T]):
    """Something to do on the writer's connection, and where its answer goes."""

    __slots__ = ("_waits", "look", "loop", "undo", "work")

    def __init__(
        self,
        work: Callable[[Opened], _T],
        *,
        look: Callable[[Opened], _T | None] | None = None,
        undo: Callable[[_T], object] | None = None,
    ) -> None:
        self.work = work
        """Runs inside a transaction."""
        self.look = look
        """Runs outside one before, and may answer already, in which case nothing is written."""
        self.undo = undo
        """Is called with an answer that nobody waits for any more."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self._waits: Future[_T] | asyncio.Future[_T] | None = None
        """None where nobody waits in a thread or on a loop: it's made there, as it costs more than the call."""

    async def answer(self, submit: Callable[[Call[_T]], None]) -> _T:
        """Submits the call and waits for its answer on the running loop."""
        self.loop = asyncio.get_running_loop()
        waits = self._waits = self.loop.create_future()
        submit(self)
        try:
            found: _T = await waits
        except asyncio.CancelledError:
            # The answer may be there already, and this task cancelled before it came to read it.
            if self.undo is not None and waits.done() and not waits.cancelled() and waits.exception() is None:
                self.undo(waits.result())
            raise
        return found

    def is_wanted(self) -> bool:
        """Whether someone waits for it still. From here on one in a thread can't take it back."""
        waits = self._waits
        if waits is None:
            return True
        if isinstance(waits, Future):
            return waits.running() or waits.set_running_or_notify_cancel()
        return not waits.cancelled()

    def in_thread(self) -> Call[_T]:
        """This call, whose answer a thread is going to wait for."""
        self._waits = Future()
        return self

    def result(self, timeout: float | None = None) -> _T:
        """Waits for the answer in this thread."""
        assert isinstance(self._waits, Future)
        return self._waits.result(timeout)

    def settle(self, answer: Any, error: BaseException | None) -> None:
        """Leaves the answer. It's called where those who wait are: on their loop, or in the writer's thread."""
        waits = self._waits
        if waits is None:
            return
        if waits.done():
            if error is None and self.undo is not None:
                self.undo(answer)
        elif error is not None:
            waits.set_exception(error)
        else:
            waits.set_result(answer)


_Answer = tuple[Call[Any], Any, BaseException | None]


class Writer:
    """The thread, from its connection's opening to its end."""

    def __init__(self, opening: Callable[[], Opened], name: str) -> None:
        self.opened: Future[Opened] = uncancellable()
        self.ended: Future[None] = uncancellable()
        self._opening: Callable[[], Opened] | None = opening
        self._calls: SimpleQueue[Call[Any] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._stops = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Call[Any]) -> bool:
        """Puts the call in the queue; False where the thread is ending, so that another is to be asked."""
        with self._lock:
            if self._stops:
                return False
            self._calls.put(call)
            return True

    def stop(self) -> None:
        """Has the thread end, once it has done what was submitted before."""
        with self._lock:
            if not self._stops:
                self._stops = True
                self._calls.put(None)

    def is_stopping(self) -> bool:
        return self._stops

    def _run(self) -> None:
        try:
            assert self._opening is not None
            # Let go, as it holds the store, which is to have its end when nobody else has it.
            opening, self._opening = self._opening, None
            opened = opening()
            del opening
        except BaseException as error:
            with self._lock:
                self._stops = True
            self.opened.set_exception(error)
            self._answer(_all_failed(self._gathered(False)[0], error))
            self.ended.set_result(None)
            return
        self.opened.set_result(opened)
        try:
            more = True
            while more:
                calls, more = self._gathered(True)
                try:
                    answers = self._do(opened, calls)
                    if more and any(_is_broken(error) for _, _, error in answers):
                        # The next call finds no writer, and has another connection opened.
                        self.stop()
                        log.warning(
                            "the queue's database is gone or broken, and is opened anew with the next call"
                        )
                    self._answer(answers)
                except BaseException as error:  # what is left of it must not end the thread
                    log.critical("the queue's writer met a bug of its own", exc_info=True)
                    self._answer(_all_failed(calls, error))
        finally:
            try:
                opened.close()
            except Exception:
                log.warning("the queue's connection couldn't be closed", exc_info=True)
            self.ended.set_result(None)

    def _gathered(self, wait: bool) -> tuple[list[Call[Any]], bool]:
        """The calls that are there, waiting for the first; and whether the thread goes on."""
        calls: list[Call[Any]] = []
        try:
            call = self._calls.get(block=wait)
            while call is not None:
                calls.append(call)
                if len(calls) >= _TOGETHER:
                    return calls, True
                call = self._calls.get_nowait()
        except Empty:
            return calls, True
        return calls, False

    def _do(self, opened: Opened, calls: Sequence[Call[Any]]) -> list[_Answer]:
        answers: list[_Answer] = []
        wanted = [call for call in calls if call.is_wanted()]
        if not opened.is_in_place():
            return _all_failed(
                wanted, Moved(f"unable to open database file: {opened.path} was moved or removed")
            )
        if all(call.look is not None for call in wanted):
            looked = wanted
            wanted = list[Call[Any]]()
            for call in looked:
                assert call.look is not None
                look = call.look
                try:
                    answer = opened.patiently(lambda look=look: look(opened))  # type: ignore[misc]
                except Exception as error:
                    answers.append((call, None, error))
                    continue
                if answer is None:
                    wanted.append(call)
                else:
                    answers.append((call, answer, None))
        if wanted:
            answers.extend(self._together(opened, wanted))
        return answers

    def _together(self, opened: Opened, calls: Sequence[Call[Any]]) -> list[_Answer]:
        found: list[Any] = []
        try:
            turn = opened.gate.enter(LOCKED_FOR, first=True)
        except Exception as error:
            return _all_failed(calls, error)
        try:
            try:
                opened.begin()
            except Exception as error:
                return _all_failed(calls, error)
            try:
                for call in calls:
                    found.append(call.work(opened))
            except BaseException as error:
                _roll_back(opened)
                if len(calls) == 1:
                    return _all_failed(calls, error)
            else:
                try:
                    opened.commit()
                except BaseException as error:
                    # It may be kept or not, as far as anyone can tell: nobody's call is done again.
                    _roll_back(opened)
                    return _all_failed(calls, error)
                return [(call, answer, None) for call, answer in zip(calls, found, strict=True)]
        finally:
            opened.gate.leave(turn)
        # One of them can't be done. Nothing was sent to be committed, so each is tried alone.
        return [answer for call in calls for answer in self._together(opened, [call])]

    def _answer(self, answers: Sequence[_Answer]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop | None, list[_Answer]] = {}
        for answer in answers:
            by_loop.setdefault(answer[0].loop, []).append(answer)
        for loop, some in by_loop.items():
            if loop is None:
                _settle(some)
                continue
            try:
                loop.call_soon_threadsafe(_settle, some)
            except RuntimeError:  # the loop has closed: nobody waits any more
                for call, answer, error in some:
                    if error is None and call.undo is not None:
                        call.undo(answer)


def uncancellable() -> Future[Any]:
    """A future for several, of whom one that's cancelled must not cancel it for all."""
    made: Future[Any] = Future()
    made.set_running_or_notify_cancel()
    return made


def copy_of(error: BaseException) -> BaseException:
    """The error for one of several who get it: raised in several tasks, one object would gather all tracebacks."""
    try:
        return copy.copy(error)
    except Exception:
        return error


class Moved(sqlite3.OperationalError):
    """The database's file isn't where it was opened. What is written to it now would be lost."""


def _is_broken(error: BaseException | None) -> bool:
    if not isinstance(error, sqlite3.Error) or isinstance(error, Moved):
        return isinstance(error, Moved)
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _BROKEN


def _all_failed(calls: Sequence[Call[Any]], error: BaseException) -> list[_Answer]:
    return [(call, None, copy_of(error)) for call in calls]


def _settle(answers: Sequence[_Answer]) -> None:
    for call, answer, error in answers:
        call.settle(answer, error)


def _roll_back(opened: Opened) -> None:
    try:
        opened.rollback()
    except Exception:
        log.warning("a transaction of the queue's couldn't be rolled back", exc_info=True)

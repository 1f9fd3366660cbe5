"""Drives a handler's coroutine inside a standing worker's task, in a context of its own.

A task for each job would cost several times what it costs to step the coroutine by hand, and a task can't be left
behind: one that swallows every cancellation keeps asyncio.run from ending. Here the worker's task owns the steps,
so the queue can stop taking them.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from time import perf_counter
from typing import TYPE_CHECKING, Any

from fastjobs.runtime.watching import BLOCKED, Watch

if TYPE_CHECKING:
    from fastjobs.runtime.run import Run

_LEFT: list[object] = []


def _never_close(coro: object) -> None:
    """Keeps a coroutine that refused to be closed from being closed once more, also as the interpreter ends.

    By then a list would be let go, and each name be gone: in `while True: try: … except BaseException: continue` every
    round raises at once, and the process would never end. So it's counted once more than anyone has it.
    """
    try:
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(coro))
    except (ImportError, AttributeError):  # not CPython
        _LEFT.append(coro)


class Drive:
    """One coroutine being driven."""

    __slots__ = ("_coro", "_run", "_step", "_watch", "abandoned", "closed")

    def __init__(
        self, coro: Coroutine[Any, Any, object], context: Context, watch: Watch, run: Run | None
    ) -> None:
        """`run` is whose handler it is, for `watch`; None for a coroutine of the queue's own."""
        self._coro = coro
        self._watch = watch
        self._run = run
        self._step: Callable[..., Any] = context.run
        self.abandoned = False
        """Set, with a cancellation of the task to follow, to close the coroutine rather than cancel it."""
        self.closed = False
        """Whether the driving task itself was closed, as its loop went away."""

    @types.coroutine
    def run(self) -> Generator[Any, Any, object]:
        """Steps it to its end and answers what it returned.

        Raises what it raises, and CancelledError where it was abandoned.
        """
        send, throw, step, watch, watched = (
            self._coro.send,
            self._coro.throw,
            self._step,
            self._watch,
            self._run,
        )
        how: Callable[..., Any] = send
        given: object = None
        try:
            while True:
                watch.since = since = perf_counter()
                watch.run = watched
                try:
                    future = step(how, given)
                finally:
                    watch.run = None
                    if perf_counter() - since > BLOCKED and watched is not None:
                        watch.over(watched, since)
                try:
                    given = yield future
                    how = send
                except GeneratorExit:
                    self.closed = True
                    self._close()
                    raise
                except BaseException as thrown:
                    if self.abandoned:
                        self._close()
                        raise
                    how, given = throw, thrown
        except StopIteration as end:
            return end.value

    def _close(self) -> None:
        chain: list[object] = [self._coro]
        while (inner := getattr(chain[-1], "cr_await", None)) is not None:
            chain.append(inner)
        try:
            self._step(self._coro.close)
        except BaseException:  # RuntimeError where it ignores GeneratorExit; else what it raises
            for each in chain:
                _never_close(each)

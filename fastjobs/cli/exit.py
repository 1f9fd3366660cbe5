"""The end of a process that runs jobs: in order after the first signal, at once after a second, and in time always.

A handler may block the event loop, swallow every cancellation, or leave tasks and threads behind that Python would
wait for. So a thread of its own listens, by the wakeup file descriptor, which the interpreter writes to as a signal
comes, whatever the main thread is at; it counts the signals, and ends the process when its time is over.
"""

from __future__ import annotations

import atexit
import faulthandler
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from fastjobs.clock import Clock, SystemClock
from fastjobs.runtime.lines import say

STOPS = (signal.SIGTERM, signal.SIGINT)
ONE_ORDER = 0.1
"""Seconds within which a second signal is the same order: a terminal's Ctrl-C reaches a process and its supervisor,
which passes it on."""
_TAIL = 0.2
"""Seconds that the interpreter has for its own end, of those that a stop may take."""
_SPARE = 0.8
"""Seconds of these that have to be left for the interpreter to end as usual."""
_FLUSH = 0.3
"""Seconds that the last log lines have to be written."""


class Exit:
    """Stops the process on SIGTERM and SIGINT: `stop` is called, and by `limit` seconds later it has ended."""

    def __init__(self, stop: Callable[[], None], limit: float) -> None:
        """`stop` is called once, from any thread, and only asks."""
        self._stop = stop
        self._limit = limit
        self._clock: Clock = SystemClock()
        self._lock = threading.RLock()  # a signal's handler may come while its own thread has it
        self._first: float | None = None
        self._deadline: float | None = None
        self._heard = {"handler": 0, "thread": 0}
        self._one_order = 1
        self._reader, self._writer = socket.socketpair()
        self._code: int | None = None

    def watch(self) -> None:
        """Listens from now on, for as long as the process lives. On the main thread."""
        self._writer.setblocking(False)
        threading.Thread(target=self._listen, name="fastjobs exit", daemon=True).start()
        for number in STOPS:
            signal.signal(number, self._handler)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        if hasattr(os, "register_at_fork"):
            # A forked child has these handlers and this end of the socket: its own signals would stop this process.
            os.register_at_fork(after_in_child=self._in_child)

    def last(self) -> None:
        """The last of what runs at an exit: where little time is left, the interpreter's own end is left out.

        It takes apart all that was imported, which nobody waits for.
        """
        deadline, code = self._deadline, self._code
        if code is not None and deadline is not None and deadline - self._clock.monotonic() < _SPARE:
            _flush()
            os._exit(code)

    def begin(self) -> None:
        """Begins the end without a signal: it has to be over in time all the same."""
        with self._lock:
            if self._first is None:
                self._first = self._clock.monotonic()
                self._deadline = self._first + self._limit
                # The last resort needs no turn of the interpreter's: for an extension that keeps it to itself, and for
                # what never ends as the interpreter does, when threads of Python's run no more.
                with suppress(
                    RuntimeError, ValueError, OSError, AttributeError
                ):  # stderr is closed, or no file
                    faulthandler.dump_traceback_later(self._limit + _FLUSH, exit=True)
                self._look_again()
                self._stop()

    def stopped(self, code: int) -> None:
        """All is stopped, and the process is to exit with `code`: nothing that is left keeps it past its time."""
        with self._lock:
            self._code = code
            self.begin()
            assert self._first is not None
            # What is left has the rest of the time, less what the interpreter's own end takes.
            limit = self._first + self._limit
            self._deadline = min(limit, max(limit - _TAIL, self._clock.monotonic() + _TAIL / 2))
        self._look_again()

    def _handler(self, number: int, frame: FrameType | None) -> None:
        # The thread hears of it as well, unless someone has taken the wakeup descriptor for themselves.
        self._signal("handler")

    def _signal(self, heard_by: str) -> None:
        with self._lock:
            self._heard[heard_by] += 1
            heard = max(self._heard.values())
            if self._first is None:
                self.begin()
            elif self._clock.monotonic() - self._first < ONE_ORDER:
                self._one_order = max(self._one_order, heard)
            elif heard > self._one_order and self._code is not None:
                self._over()
            elif heard > self._one_order:
                self._end(1, "told to stop twice: it ends at once, and what runs waits for its holds")

    def _listen(self) -> None:
        while True:
            deadline = self._deadline
            left = None if deadline is None else max(0.0, deadline - self._clock.monotonic())
            if left == 0.0:
                self._over()
            if select.select([self._reader], [], [], left)[0]:
                for number in self._reader.recv(256):
                    if number in STOPS:
                        self._signal("thread")

    def _look_again(self) -> None:
        with suppress(BlockingIOError):  # full of signals: the thread is awake anyway
            self._writer.send(b"\0")

    def _over(self) -> None:
        if self._code is None:
            self._end(
                1,
                "it did not stop in time, and is ended: what runs waits for its holds",
                where=_place(threading.main_thread()),
            )
            return
        main = threading.main_thread()
        left = ", ".join(each.name for each in threading.enumerate() if not each.daemon and each is not main)
        self._end(
            self._code, "all is stopped, and what was left behind is not waited for", threads=left or None
        )

    def _end(self, code: int, why: str, **fields: object) -> None:
        def tell() -> None:
            say(logging.CRITICAL if self._code is None else logging.WARNING, why, **fields)
            _flush()

        # In a thread, as what blocks the process may have a lock that this waits for.
        last = threading.Thread(target=tell, daemon=True)
        try:
            last.start()
            last.join(_FLUSH)
        finally:
            os._exit(code)

    def _in_child(self) -> None:
        signal.set_wakeup_fd(-1)
        for number in STOPS:
            if signal.getsignal(number) == self._handler:
                signal.signal(
                    number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
                )


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or none: a pythonw's
            stream.flush()


def at_the_very_end(ended: Callable[[], Exit | None]) -> None:
    """Has the process's Exit, once there is one, come after all that the app registers from now on."""

    def last() -> None:
        found = ended()
        if found is not None:
            found.last()

    atexit.register(last)


def _place(thread: threading.Thread) -> str | None:
    """Where a thread is, innermost first: what blocks the event loop is there, where something does."""
    frame = sys._current_frames().get(thread.ident or 0)  # pyright: ignore[reportPrivateUsage]
    places: list[str] = []
    while frame is not None and len(places) < 3:
        places.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(places) or None

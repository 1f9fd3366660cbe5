"""Which thread waits, by `kind.sync` or `q.sync`, for what the current code does for it on the queue's loop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from contextvars import ContextVar


class _Wait:
    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.is_over = False


_current: ContextVar[_Wait | None] = ContextVar("fastjobs.blocked", default=None)


@contextlib.contextmanager
def waits() -> Generator[None]:
    """In the block this thread waits for what it asks of a loop, which gets the context along with that."""
    wait = _Wait()
    token = _current.set(wait)
    try:
        yield
    finally:
        wait.is_over = True  # for a task that was begun meanwhile, in this context, and lives on
        _current.reset(token)


def waiting_thread() -> int | None:
    """The identity of the thread that waits for the current code; None where no thread does."""
    wait = _current.get()
    return None if wait is None or wait.is_over else wait.thread

"""Hears from Linux that a file was written to, by any process of this machine, without a handle of the file.

By three calls of the C library, which every Linux has: a package that wraps them would be one more for each app to
install and to watch, and those that exist read the events in a thread or a loop of their own.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

_IN_MODIFY = 0x2


class Inotify:
    """The writes to one file, until it's closed."""

    def __init__(self, path: str) -> None:
        """Raises OSError where there's no such file, no inotify, or no more of them to be had."""
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, f"{sys.platform} has no inotify")
        # Both are imported here, as a queue in another database needs neither.
        try:
            import ctypes
            import select

            library: Any = ctypes.CDLL(None, use_errno=True)
            init, add = library.inotify_init1, library.inotify_add_watch
        except (ImportError, AttributeError) as error:
            raise OSError(errno.ENOSYS, f"the C library's inotify can't be called: {error}") from error
        add.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]
        self._file: int = init(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1 failed")
        if add(self._file, os.fsencode(path), _IN_MODIFY) < 0:
            failed = OSError(ctypes.get_errno(), "inotify_add_watch failed", path)
            os.close(self._file)
            raise failed
        self._stirred = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._file, select.POLLIN)
        self._poll.register(self._stirred, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Whether the file was written to since it was asked last, or is within so many seconds, or until a stir."""
        if not self._poll.poll(seconds * 1000):
            return False
        try:
            os.read(self._file, 1 << 16)
        except BlockingIOError:
            return False
        return True

    def stir(self) -> None:
        """Ends the wait, and those after it, from another thread."""
        os.eventfd_write(self._stirred, 1)

    def close(self) -> None:
        """Hears no more."""
        os.close(self._file)
        os.close(self._stirred)

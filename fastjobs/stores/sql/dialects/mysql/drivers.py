"""Whether a driver's connection has ended, and how it's ended at once: what the drivers tell little of.

What is asked here is private to the drivers, and looked for in asyncmy from 0.2.10 to 0.2.18, aiomysql 0.2 and 0.3, and
PyMySQL 1.1 and 1.2.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from typing import Any


def _transport_of(driver: Any) -> Any:
    """An async driver's transport, None once it has let go of it: asyncmy has it, an older one and aiomysql a stream
    writer over it."""
    own = getattr(driver, "_transport", None)
    return own if own is not None else getattr(getattr(driver, "_writer", None), "transport", None)


def is_hung_up(driver: Any) -> bool:
    """Whether the connection has ended: an idle one has nothing to read but the server's last word."""
    transport = _transport_of(driver)
    if transport is not None:
        return bool(transport.is_closing()) or _has_read_ahead(driver)
    sock = getattr(driver, "_sock", None)
    if sock is None:
        return True
    try:
        return bool(select.select([sock], [], [], 0)[0])
    except OSError:
        return True
    except ValueError:
        # It's closed, or a file descriptor over what select takes. Then the next call finds out.
        return bool(sock.fileno() < 0)


def _has_read_ahead(driver: Any) -> bool:
    """Whether the loop has read more, or an end, than an async driver has taken."""
    reader, protocol = getattr(driver, "_reader", None), getattr(driver, "_proto", None)
    if reader is not None:
        # At the end of a stream in which the server's last word was, `at_eof` isn't true yet.
        return bool(reader.at_eof() or getattr(reader, "_buffer", b""))
    return getattr(protocol, "length", 0) > getattr(protocol, "pos", 0)


def cut(driver: Any) -> None:
    """Ends the connection at once, without a word to the server. It's called on the loop, amid another's call too."""
    transport = _transport_of(driver)
    if transport is None:
        sock = getattr(driver, "_sock", None)
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        return
    own = None if transport.is_closing() else transport.get_extra_info("socket")
    if own is not None:
        # Of a loop that is closed the transport ends nothing any more. uvloop's socket can but tell its number, which
        # is another's once the transport is closed.
        with (
            contextlib.suppress(OSError, ValueError),
            socket.socket(fileno=os.dup(own.fileno())) as same,
        ):
            same.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(RuntimeError):
        transport.abort()
    # Or the driver warns of a connection that nobody has closed.
    driver.close()

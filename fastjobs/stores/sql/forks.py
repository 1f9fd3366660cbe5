"""Which process this is. To ask the system costs as much as much of a push, so a fork says that it was one."""

from __future__ import annotations

import os

_pid = os.getpid()


def pid() -> int:
    """This process's id."""
    return _pid


def _forked() -> None:
    global _pid
    _pid = os.getpid()


if hasattr(os, "register_at_fork"):  # where there is no fork, there is no such thing
    os.register_at_fork(after_in_child=_forked)

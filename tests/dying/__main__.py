"""`python -m tests.dying`: a process is killed at its first statement, at its second, … until one lives to its end.

`--syscalls` has strace kill it inside a statement instead: at its n-th write to a file, then at its n-th fdatasync. It
exits 1 where something was lost or torn. `--every 7` takes each seventh point alone.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from sqlite3 import dbapi2
from typing import Any

from tests.dying.finding import look
from tests.dying.story import App

_MOST = 2000
"""More points than a story has."""
_SYSCALLS = ("pwrite64", "fdatasync")


Way = Callable[[Path, int], bool]
"""Has the story lived in a folder, killed at its n-th write, and says whether it was."""


def main(given: Sequence[str] | None = None) -> int:
    """Kills, looks, and answers the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.dying", description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="only each so-manieth point (1)")
    parser.add_argument("--first", type=int, default=1, help="the first point (1)")
    parser.add_argument("--syscalls", action="store_true", help="kill at system calls, by strace")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what the queue logs")
    parser.add_argument("--live", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(given)
    if not asked.verbose:
        logging.getLogger("fastjobs").addHandler(logging.NullHandler())
    if asked.live is not None:
        asyncio.run(App(asked.live).live())
        return 0
    ways: list[tuple[str, Way]] = [("statement", _forked)]
    if asked.syscalls:
        ways = [(call, partial(_under_strace, call)) for call in _SYSCALLS]
    failed = False
    for what, way in ways:
        for n, broken in _points(way, range(asked.first, _MOST, asked.every)):
            if broken is None:
                print(f"no {what} {n}: it lived to its end, and all is there", flush=True)
                break
            if broken:
                failed = True
                print(f"killed at {what} {n}: {'; '.join(broken)}", flush=True)
        else:
            failed = True
            print(f"it was killed at each {what} up to {_MOST}")
    return failed


def _points(way: Way, points: range) -> Iterator[tuple[int, list[str] | None]]:
    """What is broken after a death at each point; None, and no more, where it lived to its end."""
    for n in points:
        folder = Path(tempfile.mkdtemp(prefix="fastjobs-dying-"))
        try:
            killed = way(folder, n)
            broken = _apart(lambda folder=folder: look(folder))  # type: ignore[misc]
            if not killed and not broken:
                yield n, None
                return
            yield n, broken
            if not killed:
                return
        finally:
            shutil.rmtree(folder)


def _forked(folder: Path, n: int) -> bool:
    """A fork of this process, which has imported all it needs already, kills itself as its n-th statement begins."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            _kill_at(n)
            asyncio.run(App(folder).live())
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return _ended(os.waitpid(pid, 0)[1])


def _kill_at(n: int) -> None:
    """Has each connection that's opened from here on count its statements, and the n-th of all be the end."""
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect
    left = n

    def count(statement: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(10)

    def counted(*args: Any, **given: Any) -> sqlite3.Connection:
        connection = connect(*args, **given)
        connection.set_trace_callback(count)
        return connection

    sqlite3.connect = dbapi2.connect = counted  # type: ignore[assignment]


def _under_strace(call: str, folder: Path, n: int) -> bool:
    strace = ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={call}"]
    strace += ["-e", f"inject={call}:signal=KILL:when={n}"]
    done = subprocess.run(
        [*strace, sys.executable, "-m", "tests.dying", "--live", str(folder)], check=False, timeout=60
    )
    return _ended(-done.returncode if done.returncode < 0 else done.returncode << 8)


def _ended(status: int) -> bool:
    """Whether it was killed; an error where it neither was nor lived."""
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0, "the story failed"
    return False


def _apart(work: Callable[[], list[str]]) -> list[str]:
    """Does it in a fork, as a loop and its threads are not to be forked with."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writes, "\n".join(work()).encode())
        except BaseException as error:
            traceback.print_exc()
            os.write(writes, f"what is left can't be run: {error!r}".encode())
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as told:
        broken = told.read().splitlines()
    os.waitpid(pid, 0)
    return broken


if __name__ == "__main__":
    sys.exit(main())

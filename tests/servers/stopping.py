"""One stop of one server: a hundred jobs run, requests are being answered, and it's told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from fastjobs.store import Claimable
from tests.servers.jobs import HOLD, HOSTILE, QUICK, Jobs
from tests.servers.serving import Server

ROOT = Path(__file__).parent.parent.parent
GRACE = 1.0
SLOW = 0.5
"""Seconds that a request still takes as the stop comes: servers stop the app only after it."""
REQUESTS = 5
PATIENCE = 120.0


@dataclass(slots=True)
class Stopped:
    """How it went."""

    took: float
    """Seconds from the signal until the last process was gone."""
    code: int
    back: int
    """How many of the jobs that ran are due at once, with their attempt."""
    answered: int
    """How many of the requests that were being answered were."""
    pushed: int
    """How many pushes were accepted after the signal."""
    wrong: list[str] = field(default_factory=list[str])
    """What should not be."""


class Failed(Exception):
    """The server doesn't do what it's to do before its stop."""


class Running:
    """A server that runs, in a folder of its own."""

    def __init__(self, server: Server, folder: Path, *, grace: float = GRACE) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "touched").mkdir(exist_ok=True)
        self.server, self.folder, self.grace = server, folder, grace
        self._port = _free_port()
        asyncio.run(_loaded(folder))
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", *server.words(self._port, folder)],
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "SERVERS_FOLDER": str(folder),
                    "SERVERS_WORKERS": str(sum(HOSTILE.values()) // server.processes),
                    "SERVERS_GRACE": str(grace),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def until_all_run(self, times: int = 1) -> None:
        """Returns once every job has been started so many times."""
        wanted = sum(HOSTILE.values()) * times
        self._until(lambda: len(set(self._lines("quick"))) == QUICK, "the quick jobs to have run")
        self._until(lambda: len(self._lines("hostile")) >= wanted, f"{wanted} starts")

    def touch(self) -> None:
        """Changes a file that a reloader watches."""
        (self.folder / "touched" / "changed.py").write_text(f"# {time.monotonic_ns()}\n")

    def stop(self, number: signal.Signals = signal.SIGTERM, *, slow: float = SLOW) -> Stopped:
        """Tells it to stop while requests are being answered, and looks at what it has left."""
        answers: list[str] = []
        asking = self._ask_slowly(slow, answers) if self.server.serves else []
        before = len(self._lines("pushed"))
        told = time.monotonic()
        os.kill(self._popen.pid, number)
        self._popen.wait(PATIENCE)
        self._until(self._is_gone, "its processes to end", alive=False)
        took = time.monotonic() - told
        for thread in asking:
            thread.join()
        pushed = self._lines("pushed")
        stopped = Stopped(
            took,
            self._popen.returncode,
            asyncio.run(_due(self.folder)),
            len(answers),
            len(pushed) - before,
        )
        stopped.wrong = self._wrong(stopped, answers, pushed, slow)
        return stopped

    def stop_twice(self, number: signal.Signals) -> tuple[float, int]:
        """Tells it to stop, and in the midst of it again: the seconds from then on, and its exit code."""
        self._popen.send_signal(number)
        time.sleep(0.5)
        told = time.monotonic()
        self._popen.send_signal(number)
        self._popen.wait(PATIENCE)
        return time.monotonic() - told, self._popen.returncode

    def kill(self) -> None:
        """Ends what is left of it."""
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()

    def _wrong(self, stopped: Stopped, answers: list[str], pushed: list[str], slow: float) -> list[str]:
        wanted = sum(HOSTILE.values())
        wrong: list[str] = []
        if stopped.code not in self.server.codes:
            wrong.append(f"it exited with {stopped.code}")
        if stopped.back != wanted:
            wrong.append(f"{wanted - stopped.back} of {wanted} jobs are not due at once with their attempt")
        if self.server.serves and stopped.answered != REQUESTS:
            wrong.append(f"{REQUESTS - stopped.answered} of {REQUESTS} requests were cut")
        with sqlite3.connect(self.folder / "jobs.db") as connection:
            kept = {
                str(row[0]) for row in connection.execute("SELECT id FROM fastjobs_jobs WHERE kind = 'note'")
            }
        connection.close()
        lost = {*pushed, *answers} - kept
        if lost:
            wrong.append(f"{len(lost)} pushes were accepted and lost")
        log = self._log.read_text()
        if "CRITICAL" in log or "Traceback" in log:
            wrong.append(f"its log has an error: {self._log}")
        return wrong

    def _ask_slowly(self, slow: float, answers: list[str]) -> list[threading.Thread]:
        self._until(self._answers, "it to answer")
        begun = threading.Barrier(REQUESTS + 1)

        def ask() -> None:
            request = Request(f"http://127.0.0.1:{self._port}/slow?seconds={slow}", method="POST")
            begun.wait()
            with suppress(OSError), urlopen(request, timeout=PATIENCE) as answer:
                answers.append(answer.read().decode().strip('"'))

        threads = [threading.Thread(target=ask) for _ in range(REQUESTS)]
        for thread in threads:
            thread.start()
        begun.wait()
        time.sleep(slow / 2)  # they are all on their way
        return threads

    def _answers(self) -> bool:
        with suppress(URLError, OSError):
            return bool(urlopen(f"http://127.0.0.1:{self._port}/ready", timeout=5).read() == b"true")
        return False

    def _is_gone(self) -> bool:
        try:
            os.killpg(self._popen.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def _lines(self, name: str) -> list[str]:
        try:
            return (self.folder / name).read_text().split()
        except FileNotFoundError:
            return []

    def _until(self, done: Callable[[], bool], what: str, *, alive: bool = True) -> None:
        end = time.monotonic() + PATIENCE
        while not done():
            if time.monotonic() > end or (alive and self._popen.poll() is not None):
                raise Failed(
                    f"{self.server.name}: waited for {what}; its log:\n{self._log.read_text()[-3000:]}"
                )
            time.sleep(0.02)


async def _loaded(folder: Path) -> None:
    jobs = Jobs(folder)
    async with jobs.q.running():
        await jobs.load()


async def _due(folder: Path) -> int:
    """How many of the hostile jobs a claim takes at once, for their first attempt."""
    jobs = Jobs(folder)
    kinds = [Claimable(kind=name, hold=int(HOLD * 1e6), attempts=1) for name in HOSTILE]
    async with jobs.q.running():
        claimed = await jobs.store.claim(kinds, 500)
    return sum(job.attempts == 1 and not job.lost for job in claimed.jobs)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])

"""Stops each server while a hundred jobs run, and prints how long each took and what it left.

    python -m tests.servers                 every server, once; uvicorn's reloader touched 5 times
    python -m tests.servers --only gunicorn
    python -m tests.servers --exits 100     `fastjobs run` and uvicorn, a hundred times each

`make servers` runs it where the servers are installed. It exits with 1 where anything is not as it should be.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.servers.jobs import HOSTILE
from tests.servers.serving import FASTJOBS, RELOADING, SERVERS, UVICORN, Server
from tests.servers.stopping import GRACE, REQUESTS, SLOW, Failed, Running, Stopped

OWN = 2.0
"""Seconds that a server takes for itself, beside its requests and the queue's grace and second: its processes look at
each other once a second, and each takes its interpreter apart."""
SLACK = 0.0
"""Seconds more, for a machine that has other things to do."""
TOUCHES = 5
Report = Callable[[str, Stopped], None]


def limit(server: Server) -> float:
    """How many seconds a stop of this server may take."""
    return GRACE + 1 + SLACK + (SLOW + OWN if server.serves else 0)


def stop_once(server: Server, folder: Path) -> Stopped:
    """Starts a server, and stops it once all jobs run."""
    running = Running(server, folder)
    try:
        running.until_all_run()
        stopped = running.stop()
    finally:
        running.kill()
    if stopped.took > limit(server):
        stopped.wrong.append(f"it took {stopped.took:.1f} s, and may take {limit(server):.1f}")
    return stopped


def reload_often(folder: Path) -> Stopped:
    """Has uvicorn reload the app five times: each time every job is back and runs again, long before its hold ends."""
    running = Running(RELOADING, folder)
    try:
        running.until_all_run()
        for touch in range(1, TOUCHES + 1):
            running.touch()
            began = time.monotonic()
            running.until_all_run(touch + 1)
            print(f"  reloaded, and all run again after {time.monotonic() - began:.1f} s", flush=True)
        return running.stop()
    finally:
        running.kill()


def ctrl_c_twice(folder: Path) -> tuple[float, int]:
    """A second Ctrl-C ends `fastjobs run` at once, though its grace is a minute: the seconds, and its exit code."""
    running = Running(FASTJOBS, folder, grace=60)
    try:
        running.until_all_run()
        return running.stop_twice(signal.SIGINT)
    finally:
        running.kill()


def main() -> int:
    """Runs what was asked for, and answers the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    parser.add_argument("--only", default="", help="the servers whose name has this in it")
    parser.add_argument("--exits", type=int, default=0, help="stop fastjobs run and uvicorn so many times")
    typed = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fastjobs-servers-", ignore_cleanup_errors=True) as folder:
        wrong = (
            _exits(Path(folder), typed.exits, typed.only) if typed.exits else _table(Path(folder), typed.only)
        )
    return 1 if wrong else 0


def _table(folder: Path, only: str) -> int:
    jobs = sum(HOSTILE.values())
    print(
        f"{jobs} jobs run, grace is {GRACE:g} s, and {REQUESTS} requests take {SLOW:g} s more; then SIGTERM\n"
    )
    print(f"{'':26}{'stopped':>9}{'exit':>6}{'due at once':>13}{'answered':>10}{'pushed':>8}")
    wrong = 0
    for number, server in enumerate(each for each in SERVERS if only in each.name):
        if importlib.util.find_spec(server.needs) is None:
            print(f"{server.name:26}is not installed")
            wrong += 1
            continue
        version = importlib.metadata.version(server.needs)
        try:
            at = folder / str(number)
            stopped = reload_often(at) if server is RELOADING else stop_once(server, at)
        except Failed as failed:
            print(f"{server.name:26}{failed}")
            wrong += 1
            continue
        wrong += bool(stopped.wrong)
        answered = f"{stopped.answered}/{REQUESTS}" if server.serves else "-"
        print(
            f"{server.name:26}{stopped.took:>7.2f} s{stopped.code:>6}{f'{stopped.back}/{jobs}':>13}"
            f"{answered:>10}{stopped.pushed:>8}  {server.needs} {version}  {'; '.join(stopped.wrong)}",
            flush=True,
        )
    if only in FASTJOBS.name:
        took, code = ctrl_c_twice(folder / "twice")
        wrong += took > 1 or code != 1
        print(f"{'fastjobs run, Ctrl-C twice':26}{took:>7.2f} s{code:>6}")
    return wrong


def _exits(folder: Path, times: int, only: str) -> int:
    wrong = 0
    for server in (each for each in (FASTJOBS, UVICORN) if only in each.name):
        took: list[float] = []
        bad = 0
        for number in range(times):
            stopped = stop_once(server, folder / f"{server.name}-{number}")
            took.append(stopped.took)
            if stopped.wrong:
                bad += 1
                print(f"{server.name}, exit {number + 1}: {'; '.join(stopped.wrong)}", flush=True)
        wrong += bad
        print(
            f"{server.name}: {times - bad} of {times} in time and whole;"
            f" {min(took):.2f} s, {statistics.median(took):.2f} s, {max(took):.2f} s (min, median, max;"
            f" {limit(server):.1f} s allowed)",
            flush=True,
        )
    return wrong


if __name__ == "__main__":
    sys.exit(main())

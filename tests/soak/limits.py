"""Hammers all limits from many processes that are killed, and checks that none was passed.

`python -m tests.soak.limits --seconds 60 --processes 8 [--database mariadb]`: kinds with at_once, one at a time,
unique, latest, rates and names, and one with all of them, are pushed to and run by each process, through the queue
and in transactions that roll back and dawdle. Processes are killed all the while. `--control` takes one limit out of
the store, and `--controls` runs each control in turn: the exit is 1 where the check doesn't see one.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.databases.binaries import ABSENT, find_postgres
from tests.databases.mysql import Server as MySQLServer
from tests.databases.mysql_binaries import FAMILIES
from tests.databases.postgres import Server
from tests.soak.done_in import fork, once
from tests.soak.history import NEMESIS, TABLES, read
from tests.soak.indexed import Indexed
from tests.soak.limits_app import TOLD, Hammer, prepare
from tests.soak.limits_checking import check, read_told
from tests.soak.limits_kinds import ATTEMPTS, KINDS
from tests.soak.limits_stores import CAUGHT_BY, break_database, execute
from tests.soak.mysql_place import private_server
from tests.soak.recording import Recorder
from tests.soak.report import given_up

_WAITING = (
    "SELECT kind, payload, count(*) FROM fastjobs_jobs WHERE claim = 0 AND state IN (0, 2)"
    " AND own_key IS NOT NULL GROUP BY kind, payload HAVING count(*) > 1"
)
"""Values of which several jobs wait that were never claimed: a claim lets go of a job's value."""
_DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


class Hammered:
    """One run on one database."""

    def __init__(self, asked: argparse.Namespace, folder: Path, url: str | None, control: str) -> None:
        self._asked = asked
        self._folder = folder
        self._direct = url
        self._path = None if url is not None else str(folder / "app.db")
        self._url = f"sqlite+aiosqlite:///{self._path}"
        for scheme, driver in (("postgresql", "asyncpg"), ("mysql", "asyncmy")):
            if url is not None and url.startswith(scheme):
                self._url = f"{scheme}+{driver}{url.removeprefix(scheme)}".replace("//root@", "//app@")
        self._is_mysql = url is not None and url.startswith("mysql")
        self._control = control
        self._random = Random(f"{asked.seed} kills")
        self._sampled: Counter[str] = Counter()
        self._samples = 0

    def run(self) -> bool:
        """Hammers, prints what there was to see, and answers whether all was kept, or the control was seen."""
        (self._folder / TOLD).mkdir()
        once(lambda: prepare(self._url))
        break_database(self._control, self._direct, self._path)
        before = self._deadlocks()
        began = time.monotonic()
        self._hammer(began)
        took = time.monotonic() - began
        if self._direct is not None:
            kept = {"jobs": self._rows(), "orders": [], "integrity": "ok", "deadlocks": 0, "idle_in_tx": []}
            (self._folder / TABLES).write_text(json.dumps(kept))
        history = read(self._folder, dict.fromkeys(KINDS, ATTEMPTS), ())
        if history.apart is not None:
            history = replace(history, apart=0.0)  # they all go by the machine's clock
        deadlocks = self._deadlocks() - before
        told = read_told(self._folder / TOLD)
        found, seen = check(Indexed(history), told, self._sampled, self._asked.hold, deadlocks)
        print(
            f"{self._asked.database}, control {self._control}: {took:.0f} s, {self._samples} looks at the table"
        )
        for name, value in seen.items():
            print(f"  {name}: {value}")
        if self._is_mysql:
            print(f"  given up by the server: {given_up(history)}")
        rules = Counter(each.rule for each in found)
        print(f"  violations: {json.dumps(rules)}", flush=True)
        if self._control != "none":
            rule = CAUGHT_BY[self._control]
            found = [each for each in found if each.rule == rule][:2]
            for each in found:
                print(f"  {each.rule}: {each.what}")
            print(
                f"  the control was {'caught' if rules[rule] else 'NOT caught'} by the rule: {rule}",
                flush=True,
            )
            return bool(rules[rule])
        for each in sorted(found, key=lambda each: (each.rule != "error", each.rule))[:12]:
            print(f"! {each.rule}: {each.what}")
        return not found

    def _hammer(self, began: float) -> None:
        asked = self._asked
        end = began + asked.seconds
        # What runs out after the last kill, a backlog of what has a rate, and as long again.
        until = end + 2 * asked.hold + max(20.0, asked.seconds)
        nemesis = Recorder(self._folder, NEMESIS)
        names: dict[int, str] = {}

        def begin(slot: int, generation: int) -> None:
            name = f"p{slot}-{generation}"
            hammer = Hammer(
                self._folder, self._url, name, self._control, asked.hold, asked.pause * asked.processes / 8
            )
            names[fork(lambda: hammer.run(began, end, until))] = name

        for slot in range(asked.processes):
            begin(slot, 0)
        kills = sorted(self._random.uniform(0.1, 0.9) * asked.seconds for _ in range(asked.kills))
        generation = 0
        try:
            while names and time.monotonic() < until + 10:
                self._sample()
                if kills and time.monotonic() - began >= kills[0] and time.monotonic() < end:
                    kills.pop(0)
                    generation += 1
                    pid = self._random.choice(sorted(names))
                    name = names.pop(pid)
                    os.kill(pid, signal.SIGKILL)
                    nemesis.write("kill", name)
                    os.waitpid(pid, 0)
                    begin(int(name[1:].partition("-")[0]), generation)
                for pid in sorted(names):
                    ended, status = os.waitpid(pid, os.WNOHANG)
                    if ended:
                        name = names.pop(pid)
                        if status:
                            raise SystemExit(f"the process {name} failed: {status}")
                time.sleep(0.05)
        finally:
            for pid in names:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            nemesis.close()

    def _sample(self) -> None:
        # Connected anew each time: a connection that is open as a process forks is no good in either.
        self._samples += 1
        for kind, payload, count in execute(_WAITING, self._direct, self._path):
            value = f"{kind} {payload}"
            self._sampled[value] = max(self._sampled[value], count)

    def _rows(self) -> list[tuple[object, ...]]:
        as_text = "CAST(id AS CHAR)" if self._is_mysql else "id::text"
        rows = f"SELECT {as_text}, kind, payload, state, attempts FROM fastjobs_jobs"
        return execute(rows, self._direct, self._path)

    def _deadlocks(self) -> int:
        # MySQL and MariaDB break some of themselves, and the store tries again: a caller's errors are the check there.
        if self._direct is None or self._is_mysql:
            return 0
        return int(execute(_DEADLOCKS, self._direct, None)[0][0])


@contextmanager
def _server(database: str) -> Generator[Server | MySQLServer | None]:
    if database == "sqlite":
        yield None
        return
    for family in FAMILIES:
        if database == family:
            # The app's processes have eight sessions or so each, and the killed ones' stay for a moment.
            with private_server(
                family, {"max_connections": "500", "innodb_print_all_deadlocks": "ON"}
            ) as made:
                yield made
            return
    found = find_postgres()
    if not found:
        raise SystemExit(ABSENT)
    with Server(found[0]) as server:
        yield server


def _url(server: Server | MySQLServer) -> str:
    """An empty database, without a driver. On MySQL as the superuser, as others' sessions are looked at."""
    if isinstance(server, Server):
        return server.create_database().url()
    return server.create_database().url("", user="root").replace("mysql+:", "mysql:")


def main(given: list[str] | None = None) -> int:
    """Hammers as the command line says, and answers the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.limits", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long is pushed (60)")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--database", choices=("sqlite", "postgres", *FAMILIES), default="sqlite")
    parser.add_argument("--hold", type=float, default=2, help="how many seconds a job is held (2)")
    parser.add_argument("--kills", type=int, help="how many kill -9 (one in two seconds)")
    parser.add_argument("--pause", type=float, default=0.08, help="seconds between a task's pushes (0.08)")
    parser.add_argument(
        "--seed", type=int, default=1, help="what chance goes by, but for the machine's own (1)"
    )
    parser.add_argument(
        "--control", choices=sorted(CAUGHT_BY), default="none", help="take this out of the store"
    )
    parser.add_argument("--controls", action="store_true", help="run each control in turn")
    asked = parser.parse_args(given)
    if asked.kills is None:
        asked.kills = int(asked.seconds / 2)
    good = True
    with _server(asked.database) as server:
        for control in sorted(CAUGHT_BY) if asked.controls else [asked.control]:
            with tempfile.TemporaryDirectory(prefix="fastjobs-limits-") as named:
                url = None if server is None else _url(server)
                good &= Hammered(asked, Path(named), url, control).run()
    print("sound" if good else "BROKEN")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

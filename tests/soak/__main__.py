"""`python -m tests.soak`: an app under load that is killed, frozen and stopped, whose database fails under
it, and whether it kept its promises.

It prints what happened, and exits 1 where a promise was broken or no fault found a victim. With `--control` the
store is broken on purpose, and the exit is 1 where the check doesn't see it: a check that can't fail says nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.databases.mysql_binaries import FAMILIES
from tests.soak.checking import check
from tests.soak.counting import count
from tests.soak.history import CLIENTS, DATABASE, read
from tests.soak.kinds import ALWAYS_FAILS, ATTEMPTS
from tests.soak.load import Clients
from tests.soak.nemesis import Nemesis
from tests.soak.outages import Outages
from tests.soak.place_of import DRIVERS, place_of
from tests.soak.places import File, Place, ServerPlace
from tests.soak.processes import Fleet, NeverReady
from tests.soak.recording import Recorder
from tests.soak.report import table, unharmed
from tests.soak.stores import CONTROLS

_CAUGHT_BY = {"no-fence": "late mark kept", "no-hold": "held twice"}
"""The rule that each control breaks."""
_FAULTS = ("kill", "stop", "freeze", "poison", "restart", "termination", "cut")
"""What it may be asked to do, each by an option with an s."""
_DRIVERS = sorted({driver for some in DRIVERS.values() for driver in some})
_SHOWN = 12
"""How many violations are spelled out."""


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """What it's asked to do."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=90, help="how long the load goes on (90)")
    parser.add_argument("--kills", type=int, default=20, help="how many kill -9 (20)")
    parser.add_argument("--freezes", type=int, default=8, help="how many jobs stop their process (8)")
    parser.add_argument("--stops", type=int, default=3, help="how many SIGTERM (3)")
    parser.add_argument(
        "--poisons", type=int, default=1, help="how many jobs that always kill their process (1)"
    )
    parser.add_argument(
        "--database", choices=("sqlite", "postgres", *FAMILIES), default="sqlite", help="(sqlite)"
    )
    parser.add_argument(
        "--driver",
        choices=_DRIVERS,
        help="a server's async one (asyncpg, asyncmy)",
    )
    parser.add_argument(
        "--url", default=None, help="an empty database, postgresql://… or mysql://…; else a private server's"
    )
    parser.add_argument(
        "--restarts", type=int, default=None, help="how many crashes of the server (5 on a server)"
    )
    parser.add_argument(
        "--terminations", type=int, default=None, help="how many sessions the server ends (10 on a server)"
    )
    parser.add_argument(
        "--cuts",
        type=int,
        default=None,
        help="how many cuts, silences, delays on the way to it (10 on a server)",
    )
    parser.add_argument(
        "--processes", type=int, default=2, help="how many uvicorn processes on one database (2)"
    )
    parser.add_argument("--hold", type=float, default=3, help="how many seconds a job is held (3)")
    parser.add_argument("--clients", type=int, default=6, help="how many clients push (6)")
    parser.add_argument("--pause", type=float, default=0.05, help="seconds between a client's pushes (0.05)")
    parser.add_argument(
        "--seed", type=int, default=None, help="what chance goes by; else it's made up, and printed"
    )
    parser.add_argument(
        "--unaimed", action="store_true", help="don't fail where a kill met no job: for a run of seconds"
    )
    parser.add_argument("--control", choices=sorted(_CAUGHT_BY), help="a store broken on purpose")
    parser.add_argument("--folder", type=Path, default=None, help="where its files go, and are kept")
    asked = parser.parse_args(given)
    given_any = [asked.restarts, asked.terminations, asked.cuts, asked.url]
    if asked.database == "sqlite" and any(given_any):
        parser.error("a file has no server: --restarts, --terminations, --cuts and --url are for a server")
    if asked.url is not None and asked.restarts:
        parser.error("the server that --url names is not restarted: leave out --restarts")
    is_server = asked.database != "sqlite"
    is_own = is_server and asked.url is None
    if is_server and asked.driver not in (None, *DRIVERS[asked.database]):
        parser.error(f"{asked.driver} is no driver of {asked.database}")
    asked.restarts = asked.restarts if asked.restarts is not None else 5 * is_own
    asked.terminations = asked.terminations if asked.terminations is not None else 10 * is_server
    asked.cuts = asked.cuts if asked.cuts is not None else 10 * is_server
    if asked.processes < 1 or asked.clients < 1:
        parser.error("it takes a process and a client at least")
    if asked.control == "no-fence" and (asked.processes < 2 or asked.freezes < 1):
        parser.error(
            "only a job that was frozen in one process and claimed by another shows a fence that is gone"
        )
    if asked.folder is not None and asked.folder.exists() and any(asked.folder.iterdir()):
        parser.error(f"{asked.folder} has files of something else in it")
    return asked


async def soak(asked: argparse.Namespace, folder: Path, place: File | ServerPlace) -> None:
    """The run itself: it leaves its record in the folder."""
    waking_by = Random(f"{asked.seed} waking")
    fleet = Fleet(folder, place.url, asked.processes, asked.hold, asked.control or "none", waking_by)
    recorder = Recorder(folder, CLIENTS)
    clients = Clients(recorder, fleet.pick)
    noted = Recorder(folder, DATABASE)
    outages = None
    if not isinstance(place, File):
        outages = Outages(place, noted, Random(f"{asked.seed} outages"))
    nemesis = Nemesis(fleet, clients, Random(f"{asked.seed} nemesis"), outages)
    over = asyncio.Event()
    running = [asyncio.create_task(slot.run()) for slot in fleet.slots]
    waking = asyncio.create_task(fleet.wake_the_frozen())
    try:
        await fleet.ready()
        loading = [
            asyncio.create_task(clients.load(Random(f"{asked.seed} client {n}"), asked.pause, over))
            for n in range(asked.clients)
        ]
        await nemesis.run(asked.seconds, {word: getattr(asked, f"{word}s") for word in _FAULTS})
        over.set()
        await asyncio.gather(*loading)
        await _drained(place, 20 * asked.hold + 20)
        await asyncio.to_thread(place.look)
        await asyncio.gather(*(slot.end() for slot in fleet.slots))
        await asyncio.gather(*running)
        await asyncio.to_thread(place.keep)
    finally:
        waking.cancel()
        for slot in fleet.slots:
            slot.kill()
        with suppress(Exception):
            await asyncio.gather(*running)
        await clients.close()
        recorder.close()
        fleet.recorder.close()
        noted.close()


async def _drained(place: Place, seconds: float) -> None:
    """Returns once no job waits or is held; or after so many seconds, and the check says what is left."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if await asyncio.to_thread(place.left) == 0:
            return
        await asyncio.sleep(0.2)


def told(asked: argparse.Namespace, folder: Path, store: str, took: float) -> bool:
    """Reads the record, prints what it comes to, and answers whether the run is a good one."""
    history = read(folder, ATTEMPTS, ALWAYS_FAILS)
    violations, counts = check(history), count(history)
    print(table(asked, store, history, counts, violations, took))
    for violation in violations[:_SHOWN]:
        print(f"! {violation.rule}: {violation.what}")
    if len(violations) > _SHOWN:
        print(f"! and {len(violations) - _SHOWN} more")
    missed = unharmed(asked, counts)
    for each in missed:
        print(f"! {each}")
    if asked.control is not None:
        rule = _CAUGHT_BY[asked.control]
        caught = any(violation.rule == rule for violation in violations)
        print(f"the control {asked.control} was {'caught' if caught else 'NOT caught'} by the rule: {rule}")
        return caught
    return not violations and not missed


def main(given: Sequence[str] | None = None) -> int:
    """Soaks, and answers the exit code."""
    asked = arguments(given)
    if asked.seed is None:
        asked.seed = secrets.randbelow(1_000_000)
    folder: Path = asked.folder or Path(tempfile.mkdtemp(prefix="fastjobs-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"soaking for about {asked.seconds:g} s, seed {asked.seed}", flush=True)
    began = time.monotonic()
    place = place_of(asked.database, folder, asked.driver, asked.url)
    try:
        asyncio.run(soak(asked, folder, place))
    except NeverReady as error:
        print(f"! {error}")
        return 1
    finally:
        place.close()
    good = told(asked, folder, place.name, time.monotonic() - began)
    if not good:
        print(f"its files are in {folder}; again: --seed {asked.seed}")
    elif asked.folder is None:
        shutil.rmtree(folder)
    return 0 if good else 1


if __name__ == "__main__":
    assert set(CONTROLS) == {"none", *_CAUGHT_BY}
    sys.exit(main())

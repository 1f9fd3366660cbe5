"""`python -m tests.soak`: an app under load that is killed, frozen and stopped, whose database fails under
it, and whether it kept its promises.

It prints what happened, and exits 1 where a promise was broken or no fault found a victim. With `--control` the
store is broken on purpose, and the exit is 1 where the check doesn't see it: a check that can't fail says nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.soak.checking import Violation, check
from tests.soak.counting import Counts, count
from tests.soak.history import CLIENTS, DATABASE, read
from tests.soak.kinds import ALWAYS_FAILS, ATTEMPTS
from tests.soak.load import Clients
from tests.soak.nemesis import Nemesis
from tests.soak.outages import CUTS, Outages
from tests.soak.places import File, OnServer, Place
from tests.soak.processes import Fleet, NeverReady
from tests.soak.recording import Recorder
from tests.soak.stores import CONTROLS

_CAUGHT_BY = {"no-fence": "late mark kept", "no-hold": "held twice"}
"""The rule that each control breaks."""
_SHOWN_ALWAYS = ("lost", "held twice", "torn", "late mark kept", "started twice")
"""The rules that have a row of their own, also where they hold."""
_SHOWN_OF_SERVERS = ("slow return", "deadlock", "idle in transaction")
_FAULTS = ("kill", "stop", "freeze", "poison", "restart", "termination", "cut")
"""What it may be asked to do, each by an option with an s."""
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
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite", help="(sqlite)")
    parser.add_argument(
        "--driver", choices=("asyncpg", "psycopg"), default="asyncpg", help="for Postgres (asyncpg)"
    )
    parser.add_argument(
        "--url", default=None, help="an empty Postgres database, postgresql://…; else a private server's"
    )
    parser.add_argument(
        "--restarts", type=int, default=None, help="how many crashes of the server (5 on Postgres)"
    )
    parser.add_argument(
        "--terminations", type=int, default=None, help="how many sessions the server ends (10 on Postgres)"
    )
    parser.add_argument(
        "--cuts",
        type=int,
        default=None,
        help="how many cuts, silences, delays on the way to it (10 on Postgres)",
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
        parser.error("a file has no server: --restarts, --terminations, --cuts and --url are for Postgres")
    if asked.url is not None and asked.restarts:
        parser.error("the server that --url names is not restarted: leave out --restarts")
    is_server, is_own = asked.database == "postgres", asked.database == "postgres" and asked.url is None
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


async def soak(asked: argparse.Namespace, folder: Path, place: Place) -> None:
    """The run itself: it leaves its record in the folder."""
    waking_by = Random(f"{asked.seed} waking")
    fleet = Fleet(folder, place.url, asked.processes, asked.hold, asked.control or "none", waking_by)
    recorder = Recorder(folder, CLIENTS)
    clients = Clients(recorder, fleet.pick)
    noted = Recorder(folder, DATABASE)
    outages = None
    if isinstance(place, OnServer):
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


def _shown_always(asked: argparse.Namespace) -> tuple[str, ...]:
    return _SHOWN_ALWAYS if asked.database == "sqlite" else (*_SHOWN_ALWAYS, *_SHOWN_OF_SERVERS)


def unharmed(asked: argparse.Namespace, counts: Counts) -> list[str]:
    """What was done and hit nothing: such a run has shown nothing."""
    found = [
        f"{wanted} of --{word}s were asked, and {counts.faults[word]} came"
        for word, wanted in (("kill", asked.kills), ("freeze", asked.freezes), ("stop", asked.stops))
        if counts.faults[word] < wanted
    ]
    outages = counts.outages
    came = {
        "restart": outages["restart"] + outages["crash"],
        "termination": outages["termination"],
        "cut": sum(outages[cut] for cut in CUTS),
    }
    found += [
        f"{getattr(asked, f'{word}s')} of --{word}s were asked, and {came[word]} came"
        for word in came
        if came[word] < getattr(asked, f"{word}s")
    ]
    if any(came.values()) and not counts.connections_met:
        found.append("nothing that was done to the database met a connection")
    if asked.kills and not counts.repeats["kill"] and not asked.unaimed:
        found.append("no kill met a job that was held")
    hit = counts.late_ends if asked.processes > 1 else counts.repeats["freeze"] + counts.late_renewals
    if asked.freezes and not asked.control and not hit:
        found.append("no frozen job was claimed again before it woke")
    if asked.poisons and counts.repeats["poison"] < asked.poisons:
        found.append("a job that kills its process was never claimed again")
    return found


def _database_rows(asked: argparse.Namespace, counts: Counts) -> list[tuple[str, object]]:
    if asked.database == "sqlite":
        return []
    outages = counts.outages
    cuts = ", ".join(f"{outages[cut]} {cut}" for cut in CUTS if outages[cut])
    rows: list[tuple[str, object]] = [
        ("server crashes, kill -9 of it", f"{outages['restart']}, {outages['crash']}"),
        ("sessions ended by it", outages["termination"]),
        ("cuts", cuts or "none"),
        ("connections they met", counts.connections_met),
        ("server's return to first claim", _times(counts.returns)),
        ("…to the first of each process", _times(counts.returns_each)),
        ("most log lines, process and outage", counts.most_lines),
    ]
    return rows


def _times(seconds: list[float]) -> str:
    if not seconds:
        return "none"
    return f"median {seconds[len(seconds) // 2]:.2f} s, most {seconds[-1]:.2f} s, of {len(seconds)}"


def table(
    asked: argparse.Namespace, store: str, counts: Counts, violations: list[Violation], took: float
) -> str:
    """What is printed of a run."""
    rules = Counter(violation.rule for violation in violations)
    of = ", ".join
    python, system = platform.python_version(), f"{platform.system()} {platform.machine()}"
    control = f", {asked.control}" if asked.control else ""
    rows: list[tuple[str, object]] = [
        ("store", f"SQLStore on {store}{control}"),
        ("ran on", f"Python {python}, {system}, {os.cpu_count()} cores"),
        ("processes, hold, seed", f"{asked.processes}, {asked.hold:g} s, {asked.seed}"),
        ("took", f"{took:.0f} s"),
        ("pushes acknowledged", counts.acked),
        ("pushes rolled back", counts.rolled_back),
        ("pushes without an answer", f"{counts.unanswered}, {counts.unanswered_kept} of them kept"),
        ("pushes not sent", counts.refused),
        ("claims, runs", f"{counts.claims}, {counts.runs}"),
        ("ended done, failed", f"{counts.done}, {counts.failed}"),
        ("kill -9", counts.faults["kill"]),
        ("kills by a job of its own", counts.faults["poison"]),
        ("freezes past the hold", counts.faults["freeze"]),
        ("stops, the last included", counts.faults["stop"]),
        ("stalls of the loop", counts.faults["stall"]),
        *_database_rows(asked, counts),
        ("repeats by cause", of(f"{n} {what}" for what, n in sorted(counts.repeats.items())) or "none"),
        ("late ends ignored", counts.late_ends),
        ("late renewals refused", counts.late_renewals),
        *((rule, rules.pop(rule, 0)) for rule in _shown_always(asked)),
        ("other violations", rules.total()),
    ]
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:<{width}}  {value}" for label, value in rows)


def told(asked: argparse.Namespace, folder: Path, store: str, took: float) -> bool:
    """Reads the record, prints what it comes to, and answers whether the run is a good one."""
    history = read(folder, ATTEMPTS, ALWAYS_FAILS)
    violations, counts = check(history), count(history)
    print(table(asked, store, counts, violations, took))
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
    place: Place = File(folder)
    if asked.database == "postgres":
        place = OnServer(folder, asked.driver, asked.url)
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

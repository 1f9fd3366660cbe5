"""Claims and marks flat out on one server, and a check that no job was held twice and no late mark was kept.

`python -m tests.soak.hammer --seconds 30`: four processes with two connections each claim a few jobs and mark them,
with holds so short that many run out first: every kind of mark meets every other claim. No app, and no queue.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

from sqlalchemy.ext.asyncio import create_async_engine

from fastjobs.clock import SystemClock
from fastjobs.core.job import NewJob
from fastjobs.store import Claimable, Done, Extend, Fail, GiveBack, Mark, TryAgain
from tests.databases.mysql_binaries import FAMILIES
from tests.soak.checking import Violation, deadlocked, held_twice, late
from tests.soak.history import read
from tests.soak.indexed import Indexed
from tests.soak.place_of import place_of
from tests.soak.recording import Recorder
from tests.soak.report import given_up
from tests.soak.stores import CONTROLS

KINDS = ("quick", "short", "long")
HOLD = 30_000
"""Microseconds."""
JOBS = 300
"""How many each process pushes at first, and again as it has ended them."""
_MOST = 1_000_000
_RULES = {"held twice": held_twice, "late mark kept": late, "deadlock": deadlocked}


async def hammer(folder: Path, url: str, name: str, control: str, seconds: float) -> None:
    """One process: two loops of claims and marks on one store, so on its two connections."""
    engine = create_async_engine(url)
    recorder = Recorder(folder, name)
    # The machine's clock, which all have in common: what each measures of a server's is a little apart.
    store = CONTROLS[control](engine, recorder, clock=SystemClock())
    random = Random(name)
    terms = [Claimable(kind=kind, hold=HOLD, attempts=_MOST) for kind in KINDS]
    end = time.monotonic() + seconds

    async def push(count: int) -> None:
        await store.push([NewJob(random.choice(KINDS), '{"ref": "p"}') for _ in range(count)])

    def ended(id: str, claim: int) -> Mark:
        what = random.random()
        if what < 0.4:
            return Done(id, claim)
        if what < 0.8:
            return TryAgain(id, claim, random.randrange(20_000), "again")
        return GiveBack(id, claim, None) if what < 0.95 else Fail(id, claim, "failed")

    async def one() -> None:
        while time.monotonic() < end:
            claimed = await store.claim(terms, random.randint(1, 8), ahead=random.randint(0, 1))
            if not claimed.jobs:
                await asyncio.sleep(0.001)
                continue
            marks: list[Mark] = [
                Extend(job.id, job.claim, HOLD) for job in claimed.jobs if random.random() < 0.2
            ]
            if marks:
                await store.mark(marks)
            if random.random() < 0.3:
                await asyncio.sleep(random.random() * 2 * HOLD / 1e6)  # about half come too late
            marks = [ended(job.id, job.claim) for job in claimed.jobs if random.random() < 0.95]
            await store.mark(marks)
            if gone := sum(isinstance(each, (Done, Fail)) for each in marks):
                await push(gone)

    try:
        await store.open(KINDS)
        await push(JOBS)
        await asyncio.gather(one(), one())
    finally:
        await store.close()
        await engine.dispose()
        recorder.close()


def _run(folder: Path, url: str, name: str, control: str, seconds: float) -> None:
    asyncio.run(hammer(folder, url, name, control, seconds))


def main() -> int:
    """Hammers, prints what it came to, and answers the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.hammer", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--database", choices=("postgres", *FAMILIES), default="postgres")
    parser.add_argument("--driver", help="an async one (asyncpg, asyncmy)")
    parser.add_argument("--url", default=None, help="an empty database; else a private server's")
    parser.add_argument("--control", choices=sorted(set(CONTROLS) - {"none"}), default="none")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as named:
        folder = Path(named)
        place = place_of(asked.database, folder, asked.driver, asked.url)
        try:
            context = multiprocessing.get_context("spawn")
            running = [
                context.Process(
                    target=_run, args=(folder, place.url, f"hammer{n}", asked.control, asked.seconds)
                )
                for n in range(asked.processes)
            ]
            for each in running:
                each.start()
            for each in running:
                each.join()
            codes = [each.exitcode for each in running]
            if any(codes):
                print(f"! its processes ended with {codes}")
                return 1
            place.keep()
        finally:
            place.close()
        history = replace(read(folder, dict.fromkeys(KINDS, _MOST), ()), apart=0.0)
    of = Indexed(history)
    found = [Violation(rule, what) for rule, broken in _RULES.items() for what in broken(of)]
    answers = Counter(mark.answer for mark in history.marks)
    print(
        f"store={place.name}  cores={os.cpu_count()}  claims={len(history.claims)}  marks={len(history.marks)}"
    )
    print("  ".join(f"{answer}={count}" for answer, count in answers.most_common()))
    rules = Counter(violation.rule for violation in found)
    print("  ".join(f"{rule}={rules[rule]}" for rule in _RULES))
    if asked.database in FAMILIES:
        print(given_up(history))
    for violation in found[:10]:
        print(f"! {violation.rule}: {violation.what}")
    if not answers["lost"]:
        print("! no mark came late, so nothing was tried")
    return 1 if found or not answers["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())

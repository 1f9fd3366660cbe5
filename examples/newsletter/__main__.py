"""Sends a newsletter to 2,000 readers at 50 a second, and a password reset twice a second beside it.

`python -m examples.newsletter` takes 40 seconds, on a new SQLite file that it removes; `--readers 500` takes 10. It
exits 1 where the letters went out faster than they may, or a reset was late.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs
from examples.newsletter.jobs import Reset, jobs, password_reset, publish

LATE = 0.5
"""Seconds after its push at which a reset is late."""


class Seen:
    """What was observed of the runs."""

    def __init__(self) -> None:
        self.letters = 0
        self.waits: list[float] = []
        """How long each reset waited, in seconds."""

    def __call__(self, ran: fastjobs.Ran) -> None:
        if ran.kind == "newsletter":
            self.letters += ran.outcome is fastjobs.Outcome.DONE
        else:
            self.waits.append(ran.waited)


async def run(readers: int, path: Path) -> bool:
    """Sends it, and answers whether it took no less than it may and no reset was late."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    fastjobs.sqlite.configure(engine)
    seen = Seen()
    q = fastjobs.Queue(fastjobs.SQLStore(engine), workers=4, observe=seen)
    q.include(jobs)
    async with q.running():
        began = time.monotonic()
        await publish(1, [f"reader{n}@example.org" for n in range(readers)])
        print(f"pushed {readers:,} letters in {time.monotonic() - began:.2f} s", flush=True)
        while seen.letters < readers:
            await password_reset.push(Reset(to="ada@example.org"))
            await asyncio.sleep(0.5)
            print(f"{time.monotonic() - began:5.1f} s: {seen.letters:,} sent", flush=True)
        took = time.monotonic() - began
    await engine.dispose()
    latest = max(seen.waits)
    print(
        f"{readers / took:.1f} letters a second; of {len(seen.waits)} resets the latest waited {latest:.3f} s"
    )
    return took >= readers / 50 - 1 and latest < LATE


def main(given: Sequence[str] | None = None) -> int:
    """Runs it, and answers the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.newsletter", description=__doc__)
    parser.add_argument("--readers", type=int, default=2000)
    asked = parser.parse_args(given)
    with tempfile.TemporaryDirectory() as folder:
        return 0 if asyncio.run(run(asked.readers, Path(folder) / "app.db")) else 1


if __name__ == "__main__":
    sys.exit(main())

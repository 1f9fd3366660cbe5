"""What is so of a queue in this process, for a readiness probe: read from its parts, without asking the store."""

from __future__ import annotations

from dataclasses import dataclass

from fastjobs.runtime.feed import Feed
from fastjobs.runtime.ledger import Ledger
from fastjobs.runtime.renewal import Renewal
from fastjobs.runtime.run import FAR, Run
from fastjobs.runtime.settings import Settings
from fastjobs.runtime.workers import Workers

PATIENCE = 15.0
"""Seconds for which the store may give no answer before a queue isn't well, or three polls where that is longer."""
RECENT = 60.0
"""Seconds for which a loop that a bug ended counts, though it has begun again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What is so of a queue in this process, as `q.health()` answers it. Times are seconds.

    It's plain numbers and words, so `dataclasses.asdict` makes JSON of it, and no value or id of a job is in it.
    """

    ok: bool
    """Whether it's well: it runs and isn't stopping, the store has answered it, and not longer ago than 15 seconds
    or three polls, and no loop of its own was ended by a bug in the last minute. Busy workers are well: while all
    of them run something, no claim is asked for, and none is missed. A queue that only pushes is well as it runs."""
    running: bool
    """Whether it was started here, and has not stopped."""
    stopping: bool
    """Whether it claims no more, and what runs has its grace."""
    store_ok: bool
    """Whether the store answered the last calls of the queue's loops: False from the first failure on."""
    down_for: float | None
    """How long the outage lasts; None where there is none."""
    claimed: float | None
    """How long ago the store answered a claim; None before the first, and where it only pushes."""
    workers: int
    """How many jobs may run at once here; 0 where it only pushes, or doesn't run."""
    busy: int
    """How many of the workers run something."""
    waiting: int
    """How many jobs are claimed and wait for a worker here. What waits in the store is not counted."""
    oldest: float | None
    """How long ago the job was claimed that is held longest here; None where none is held."""
    crashed: tuple[str, ...]
    """The loops of the queue that a bug ended in the last minute, as the log has named them; each begins again."""


STOPPED = Health(
    ok=False,
    running=False,
    stopping=False,
    store_ok=True,
    down_for=None,
    claimed=None,
    workers=0,
    busy=0,
    waiting=0,
    oldest=None,
    crashed=(),
)
"""That of a queue that doesn't run here."""


class Vitals:
    """Where the health of a running queue is read: each read is of one value, or of a copy made in one step."""

    def __init__(
        self,
        settings: Settings,
        feed: Feed,
        ledger: Ledger,
        renewal: Renewal,
        workers: Workers,
        runs: set[Run],
        *,
        works: bool,
    ) -> None:
        """`runs` is the live set of the jobs held here; `works` is False where the queue only pushes."""
        self._clock = settings.clock
        self._patience = max(PATIENCE, 3 * settings.poll)
        self._feed = feed
        self._ledger = ledger
        self._renewal = renewal
        self._workers = workers
        self._runs = runs
        self._works = works
        self._crashes: dict[str, float] = {}

    def crashed(self, part: str) -> None:
        """Takes note that a bug ended a loop."""
        self._crashes[part] = self._clock.monotonic()

    def read(self, *, opened: bool) -> Health:
        """What is so. `opened` is whether the store could be opened."""
        now = self._clock.monotonic()
        answered, stopping = self._feed.answered_at, self._feed.stopping
        down, silent = self._down_for(now), self._silent_for(now)
        busy = len(self._workers.running)
        held = [run.claimed_at for run in self._runs.copy()]
        crashed = tuple(sorted(part for part, at in self._crashes.copy().items() if now - at < RECENT))
        answers = not self._works or opened or answered is not None
        return Health(
            ok=answers and not stopping and not crashed and max(silent, down or 0.0) <= self._patience,
            running=True,
            stopping=stopping,
            store_ok=down is None,
            down_for=down,
            claimed=None if answered is None else max(0.0, now - answered),
            workers=self._workers.count if self._works else 0,
            busy=busy,
            waiting=max(0, self._workers.load - busy),
            oldest=max(0.0, now - min(held)) if held else None,
            crashed=crashed,
        )

    def _silent_for(self, now: float) -> float:
        """For how long the feed has had no answer that it wanted: also where it hangs, or the loop is blocked."""
        owed = self._feed.owed_at
        return max(0.0, now - owed) if self._works and owed != FAR else 0.0

    def _down_for(self, now: float) -> float | None:
        """How long the outage lasts. A part that has nothing left to ask can't know that its outage is over."""
        parts = (
            (self._feed.outage, self._feed.owed_at != FAR),
            (self._ledger.outage, self._ledger.pending),
            (self._renewal.outage, bool(self._runs)),
        )
        since = [outage.since for outage, asks in parts if asks]
        began = [at for at in since if at is not None]
        return max(0.0, now - min(began)) if began else None

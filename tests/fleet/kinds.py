"""The fleet's kinds: handlers that work, fail, wait, push, and behave badly, as a process registers them."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from fastjobs import Kind, Permanent, Queue, Retry, Snooze, Throttle, Unique, current_job
from fastjobs.core.duration import micros
from fastjobs.core.options import KindSettings
from fastjobs.runtime.current import running_job
from fastjobs.runtime.run import Run
from tests.fleet.loop import SimLoop
from tests.fleet.record import Process
from tests.fleet.referee import Referee

VALUES = 3
"""How many values requests push of a kind that tells them apart."""

KINDS: dict[str, KindSettings] = {
    "quick": {"attempts": 4, "backoff": 1},
    "urgent": {"attempts": 4, "backoff": 1, "priority": 10},
    "flaky": {"attempts": 3, "backoff": 2},
    "hopeless": {"attempts": 2, "backoff": 1},
    "permanent": {"attempts": 5, "backoff": 1},
    "snoozer": {"attempts": 3, "backoff": 1},
    "again": {"attempts": 3, "backoff": 1},
    "slow": {"attempts": 4, "backoff": 1, "timeout": 300},
    "late": {"attempts": 2, "backoff": 1, "timeout": 2},
    "deaf": {"attempts": 2, "backoff": 1, "timeout": 1},
    "hostile": {"attempts": 2, "backoff": 1},
    "chain": {"attempts": 3, "backoff": 1},
    "once": {"attempts": 3, "backoff": 1, "unique": Unique(one_at_a_time=True)},
    "newest": {
        "attempts": 3,
        "backoff": 1,
        "unique": Unique(latest=True, one_at_a_time=True, at_most=10),
    },
    "few": {"attempts": 3, "backoff": 1, "at_once": 2},
    "rated": {"attempts": 3, "backoff": 1, "rate": Throttle(3, per=4)},
    "lanes": {"attempts": 3, "backoff": 1, "rate": Throttle(2, per=3, by=lambda lane: lane % VALUES)},
    "probe": {"attempts": 2, "backoff": 1},
    "probe-again": {"attempts": 3, "backoff": 1},
}
ORDINARY = [name for name in KINDS if not name.startswith("probe")]
MOST = {name: terms.get("attempts", 10) for name, terms in KINDS.items()}
ALONE = [name for name, terms in KINDS.items() if isinstance(terms.get("unique"), Unique)]
RATES = {
    name: (rate, rate.by is not None)
    for name, terms in KINDS.items()
    if isinstance(rate := terms.get("rate"), Throttle)
}
TIMEOUTS = {name: micros(terms.get("timeout", 60), "timeout") for name, terms in KINDS.items()}


class Stage:
    """What the handlers of all processes share: it outlives each of them."""

    def __init__(self, chance: Random, bursts: float, pushed: Sequence[str]) -> None:
        self.chance = chance
        self.pushed = pushed
        """The kinds that requests push."""
        self.bursts = bursts
        """How many of the requests push many jobs at once."""
        self.over = False
        """The simulation has ended: whatever still runs lets go."""


class Actor(Process):
    """A process that runs handlers."""

    def __init__(self, name: str, referee: Referee, stage: Stage, *, poll: int, grace: int) -> None:
        super().__init__(name, poll=poll, grace=grace)
        self.referee = referee
        self.stage = stage
        self.kinds: dict[str, Kind[int]] = {}
        self.running = 0
        """How many of its handlers run."""

    def register(self, queue: Queue) -> None:
        """Registers all kinds with its queue. They're made once, as a fleet makes dozens of queues."""
        for name, kind in _MADE.items():
            self.kinds[name] = copy.copy(kind)
            queue._add(self.kinds[name])


def here() -> Actor:
    """The process whose handler this is."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    assert isinstance(loop.owner, Actor)
    return loop.owner


def running() -> Run:
    """The run whose handler this is."""
    run = running_job.get()
    assert isinstance(run, Run)
    return run


def report(step: int) -> None:
    """Says how far the job is that this handler runs."""
    current_job().progress(step)
    here().referee.reported(running().job, str(step))


async def quick(chance: Random) -> None:
    if chance.random() < 0.5:
        await asyncio.sleep(chance.random() * 0.05)


async def flaky(chance: Random) -> None:
    for step in range(chance.randrange(4)):
        report(step)
        await asyncio.sleep(chance.random() * 0.5)
    if chance.random() < 0.5:
        raise ValueError("not this time")


async def hopeless(chance: Random) -> None:
    raise ValueError("never")


async def permanent(chance: Random) -> None:
    await asyncio.sleep(0.1)
    raise Permanent("trying again won't mend it")


async def snoozer(chance: Random) -> None:
    if chance.random() < 0.6:
        raise Snooze(after=chance.random() * 3)


async def again(chance: Random) -> None:
    raise Retry(after=1.5)


async def slow(chance: Random) -> None:
    for step in range(4):
        report(step)
        await asyncio.sleep(chance.random() * 12)


async def late(chance: Random) -> None:
    await asyncio.sleep(chance.random() * 4)


async def deaf(chance: Random) -> None:
    stage = here().stage
    for _ in range(chance.randrange(1, 30)):
        try:
            await asyncio.sleep(1)
        except BaseException:
            if stage.over:
                raise


async def hostile(chance: Random) -> None:
    error: type[BaseException] = chance.choice(
        [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit, BaseException]
    )
    if chance.random() < 0.3:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return
    await asyncio.sleep(0)
    raise error


async def chain(chance: Random) -> None:
    process = here()
    process.referee.acked([await process.kinds["quick"].push(0)])


async def some_time(chance: Random) -> None:
    await asyncio.sleep(chance.random() * 2)
    if chance.random() < 0.2:
        raise ValueError("not this time")
    if chance.random() < 0.2:
        raise Snooze(after=chance.random())


async def probe(chance: Random) -> None: ...


async def probe_again(chance: Random) -> None:
    if running().job.attempts == 1:
        raise Retry(after=1.5)


def _made(name: str, terms: KindSettings, body: Callable[[Random], Awaitable[None]]) -> Kind[int]:
    async def handler(value: int) -> None:
        process, job = here(), running().job
        process.referee.started(process, job)
        process.running += 1
        how = "returned"
        try:
            await body(process.stage.chance)
        except BaseException as error:
            how = _HOW.get(type(error), "raised")
            raise
        finally:
            process.running -= 1
            if not process.stage.over:
                process.referee.ended(process, job, how)

    async def tell(value: int, error: Exception) -> None:
        here().referee.told(here(), running().job.id)

    kind: Kind[int] = Kind(name, handler, terms)
    kind.on_fail(tell)
    return kind


_HOW: dict[type[BaseException], str] = {asyncio.CancelledError: "cancelled", GeneratorExit: "closed"}
_BODIES: list[Callable[[Random], Awaitable[None]]] = [
    quick, quick, flaky, hopeless, permanent, snoozer, again, slow, late, deaf, hostile, chain,
    some_time, some_time, some_time, quick, quick, probe, probe_again,
]  # fmt: skip
_MADE = {name: _made(name, terms, body) for (name, terms), body in zip(KINDS.items(), _BODIES, strict=True)}

"""One simulated run, by its seed: three processes under load, their faults, then all healed, and what must be so."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest.mock import patch

from fastjobs.runtime import waiting
from fastjobs.runtime.run import Run
from fastjobs.runtime.watching import Watch
from fastjobs.stores.memory import Memory
from tests.fleet.instances import Instance, SimClock
from tests.fleet.kinds import MOST, ORDINARY, RATES, TIMEOUTS, VALUES, Stage
from tests.fleet.loop import Owner, SimLoop
from tests.fleet.record import SECOND, Process
from tests.fleet.referee import Referee
from tests.fleet.wire import Fault, Weather, Wire, at_once

START = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
FLEET = 3
STORM = 20.0
LONG = 3600.0
"""Within so many seconds after the storm all jobs have ended: no wait of theirs is longer than a few seconds."""
PROMPT = 0.3
"""Seconds within which an idle fleet starts a job: the time of its calls, and no poll."""


@dataclass(frozen=True, slots=True)
class Focus:
    """What goes wrong in a run."""

    acts: Sequence[str] = (
        ("kill",) * 6
        + ("freeze",) * 5
        + ("deploy",) * 5
        + ("step the clock", "run again") * 2
        + ("cancel",) * 4
        + ("pause",) * 2
    )
    """What happens to processes, each as likely as it's often here."""
    pause: float = 3.0
    """The most seconds between two of them."""
    faults: Sequence[Fault] = tuple(each for each in Fault if each is not Fault.NONE)
    """What goes wrong with the store's calls."""
    rough: Sequence[float] = (0.0, 0.0, 0.0, 0.05, 0.2, 0.5)
    """How many of them have a fault, one after another."""
    outages: float = 0.1
    """How often none gets through."""
    bursts: float = 0.1
    """How many of the requests push many jobs at once."""
    kinds: Sequence[str] = tuple(ORDINARY)
    """What the others push."""


EVERYTHING = Focus()
DEPLOYS = Focus(acts=("deploy",), pause=2.0, rough=(0.0,), outages=0.0, bursts=0.5)
SHORT = Focus(acts=("deploy",), pause=4.0, rough=(0.0,), outages=0.0, bursts=0.8, kinds=("quick",))
FROZEN = Focus(acts=("freeze as it stops",), pause=1.0, rough=(0.0,), outages=0.0, kinds=("slow", "deaf"))
FAILING = Focus(acts=("step the clock",), faults=(Fault.BEFORE,), rough=(0.4,), outages=0.0)
BUSY = Focus(acts=("step the clock",), faults=(Fault.BUSY,), rough=(0.8,), outages=0.0)
LIMITED = Focus(kinds=("once", "newest", "few", "rated", "lanes"), bursts=0.3)
TIMELY = Focus(acts=("step the clock",), rough=(0.0,), outages=0.0, kinds=LIMITED.kinds, bursts=0.3)
CANCELS = Focus(
    acts=("cancel",) * 4 + ("pause",),
    pause=0.5,
    rough=(0.0,),
    outages=0.0,
    kinds=("slow", "flaky", "again", "snoozer"),
)
CALM = Focus(acts=("step the clock",), rough=(0.0,), outages=0.0)


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a run."""

    seed: int
    broken: list[str]
    trace: list[str]
    counts: dict[str, int] = field(default_factory=dict[str, int])


class World:
    """One run."""

    def __init__(self, seed: int, focus: Focus = EVERYTHING) -> None:
        self.seed = seed
        self._focus = focus
        self.loop = SimLoop(seed)
        self._chance = Random(seed * 2 + 1)
        clock = SimClock(self.loop, START, Random(0))
        self._memory = Memory(clock=clock)
        self._weather = Weather(Random(self._chance.random()), focus.faults)
        self.referee = Referee(clock.now, TIMEOUTS, MOST, START, RATES, VALUES)
        self._stage = Stage(Random(self._chance.random()), focus.bursts, focus.kinds)
        self._hold = self._chance.choice([4.0, 8.0, 20.0])
        self._fleet: list[Instance] = []
        self._all: list[Instance] = []
        self._look = 0.0
        self.counts = {"kills": 0, "freezes": 0, "deploys": 0}

    def play(self) -> Played:
        """Plays it to its end, or to the first broken promise."""
        try:
            with _apart(self.loop):
                self._fleet = [self._new(place) for place in range(FLEET)]
                self._later(0.5, self._act)
                self._later(0.1, self._turn)
                if self._go(lambda: False, STORM):
                    self._heal()
                    if self._go(self._settled, STORM + LONG) and self._idle():
                        self._stop(self._fleet)
                    self.referee.finished()
            return self._played()
        finally:
            self._bury()

    def _played(self) -> Played:
        referee = self.referee
        counts = {
            **self.counts,
            "jobs": len(referee.jobs),
            "lapses": referee.lapses,
            "late marks": referee.late_marks,
            "unheard pushes": referee.unheard,
            "cancels": referee.cancels,
            "troubles": sum(len(each.troubles) for each in self._all),
        }
        return Played(self.seed, list(referee.broken), referee.trace, counts)

    # The storm.

    def _act(self) -> None:
        """Something happens to a process."""
        if self.loop.time() >= STORM:
            return
        chance = self._chance
        self._later(chance.random() * self._focus.pause, self._act)
        place = chance.randrange(FLEET)
        target = self._fleet[place]
        if target.dead:
            return
        match chance.choice(self._focus.acts):
            case "kill":
                self.counts["kills"] += 1
                self._kill(place)
            case "freeze":
                self._freeze(target, chance.random() * 2.5 * self._hold)
            case "deploy":
                self.counts["deploys"] += 1
                target.stop()
                self._later(chance.random() * 4, lambda: self._replace(place, target))
            case "freeze as it stops":
                target.stop()
                self._freeze(target, 1 + chance.random() * 5)
                self._later(chance.random() * 4, lambda: self._replace(place, target))
            case "step the clock":
                target.clock.apart = (chance.random() * 2 - 1) * 3600
            case "cancel":
                self._cancel()
            case "pause":
                self._pause(chance.choice(self._focus.kinds))
            case _:
                self._run_again()

    def _turn(self) -> None:
        """The weather turns."""
        if self.loop.time() >= STORM:
            return
        self._weather.rough = self._chance.choice(self._focus.rough)
        self._weather.down = self._chance.random() < self._focus.outages
        self.referee.say(f"weather: {'down' if self._weather.down else self._weather.rough}")
        self._later(1 + self._chance.random() * 8, self._turn)

    def _kill(self, place: int) -> None:
        target = self._fleet[place]
        target.kill()
        self._later(self._chance.random() * 6, lambda: self._replace(place, target))

    def _freeze(self, target: Instance, seconds: float) -> None:
        if target.frozen:
            return
        self.counts["freezes"] += 1
        referee = self.referee
        referee.say(f"{target.name} is frozen for {seconds:.1f} s")
        target.frozen = True
        target.freezes.append((referee.now(), referee.now() + round(seconds * SECOND)))
        self._later(seconds, lambda: self._thaw(target))

    def _thaw(self, target: Instance) -> None:
        if target.frozen:
            began, _ = target.freezes.pop()
            target.freezes.append((began, self.referee.now()))
            self.referee.say(f"{target.name} goes on")
            self.loop.thaw(target)

    def _replace(self, place: int, before: Instance) -> None:
        """Starts a process in the place of another, which is gone, or takes its time to stop."""
        if self._fleet[place] is before:
            self._fleet[place] = self._new(place)

    def _run_again(self) -> None:
        failed = [job.id for job in self.referee.jobs.values() if job.state == "failed"]
        if failed:
            id = self._chance.choice(failed)
            self.loop.create_task(self._memory.run_again([id]))
            self.referee.run_again(id)

    def _cancel(self) -> None:
        """Someone cancels a job, and sometimes it's in the process that has it, which then needn't hear of it."""
        kept = [job for job in self.referee.jobs.values() if job.state == "waiting"]
        if not kept:
            return
        tracked = self._chance.choice(kept)
        (answer,) = at_once(self._memory.cancel([tracked.id]))
        self.referee.cancelled(tracked.id, answer)
        for instance in self._fleet:
            if not (instance.dead or instance.frozen) and self._chance.random() < 0.3:
                with self.loop.owned_by(instance):
                    instance.queue._cancel_here(tracked.id)

    def _pause(self, kind: str) -> None:
        if at_once(self._memory.pause(kind, True)):
            self.referee.say(f"pause {kind}")
            self.referee.paused.add(kind)
            self._later(self._chance.random() * 6, lambda: self._resume(kind))

    def _resume(self, kind: str) -> None:
        if kind in self.referee.paused:
            self.referee.say(f"resume {kind}")
            self.referee.paused.discard(kind)
            at_once(self._memory.pause(kind, False))

    def _new(self, place: int) -> Instance:
        made = Instance(
            f"{'abc'[place]}{len(self._all)}",
            loop=self.loop,
            start=START,
            chance=Random(self._chance.random()),
            referee=self.referee,
            stage=self._stage,
            connect=self._wire,
            hold=self._hold,
        )
        made.requests = self.loop.time() < STORM
        self._all.append(made)
        return made

    def _wire(self, process: Process) -> Wire:
        return Wire(self.loop, self._memory, self._weather, self.referee, process)

    # All healed.

    def _heal(self) -> None:
        self.referee.say("all is healed")
        self._weather.rough, self._weather.down = 0.0, False
        for kind in sorted(self.referee.paused):
            self._resume(kind)
        for instance in self._all:
            instance.requests = False
            self._thaw(instance)
        for place, instance in enumerate(self._fleet):
            if instance.leaves:
                self._replace(place, instance)

    def _settled(self) -> bool:
        """Whether all jobs have ended, and no process still runs a handler, or waits for an answer that won't come."""
        if self.loop.time() < self._look:
            return False
        self._look = self.loop.time() + 0.5
        return (
            not self._weather.late
            and not any(job.state == "waiting" for job in self.referee.jobs.values())
            and not any(each.running or not each.up or each.waits or each.leaves for each in self._fleet)
        )

    def _idle(self) -> bool:
        """Whether a process that is alone and idle starts what is pushed at once, and what comes due as it does."""
        left, *others = self._fleet
        self._stop(others)
        self._go(lambda: False, self.loop.time() + 3)
        return all(
            self._prompt(left, kind, after, due)
            for kind, after, due in (("probe", 0, [0.0]), ("probe", 1.5, [1.5]), ("probe-again", 0, [0, 1.5]))
        )

    def _prompt(self, instance: Instance, kind: str, after: float, due: list[float]) -> bool:
        asked, known = self.referee.now(), len(self.referee.jobs)
        with self.loop.owned_by(instance):
            self.loop.create_task(instance.push(kind, after=after))

        def starts() -> list[float]:
            pushed = list(self.referee.jobs.values())[known:]
            return [(at - asked) / SECOND for job in pushed if job.kind == kind for at in job.starts]

        self._go(lambda: len(starts()) >= len(due), self.loop.time() + due[-1] + 2 * PROMPT)
        found = starts()
        if len(found) < len(due) or found[-1] > due[-1] + len(due) * PROMPT:
            self.referee.breach(
                "what is due is started as it's due", f"{kind}, due at {due}, started at {found}"
            )
        return self._go(lambda: False, self.loop.time() + 0.5)

    def _stop(self, some: Sequence[Instance]) -> None:
        """They stop in order."""
        for instance in some:
            instance.stop()
        if not self._go(lambda: all(each.dead for each in some), self.loop.time() + 10):
            return
        left = [each.name for each in some if not each.dead]
        if left:
            self.referee.breach("a stop returns", " ".join(left))

    # The loop.

    def _go(self, over: Callable[[], bool], until: float) -> bool:
        """Runs until then, or it's over; False once a promise is broken."""
        broken, complaints = self.referee.broken, self.loop.complaints
        self.loop.run(lambda: broken or complaints or over(), until)
        for complaint in complaints:
            self.referee.breach("nothing escapes", complaint)
        complaints.clear()
        return not broken

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        with self.loop.owned_by(None):
            self.loop.call_later(seconds, what)

    def _bury(self) -> None:
        """Lets go of what was killed in the middle of things, and of all that it would say about that."""
        self._stage.over = True
        self.loop.close()
        with _nothing_said():
            self.__dict__.clear()
            gc.collect()


def play(seed: int, focus: Focus = EVERYTHING) -> Played:
    """Plays the run of this seed."""
    return World(seed, focus).play()


@contextmanager
def swept() -> Generator[None]:
    """While entered, what was there before isn't looked at as each run's remains are swept away."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


@contextmanager
def _apart(loop: SimLoop) -> Generator[None]:
    """While entered, a process has for itself what it has one of for each loop; and sets are walked alike each time.

    Nothing is logged: the trace tells more.

    The runtime keeps runs in sets, whose order goes by the hash, and that by the address, which no seed decides.
    """
    limits: dict[Owner | None, waiting._Limits] = {}

    def own_limits(_: asyncio.AbstractEventLoop) -> waiting._Limits:
        found = limits.get(loop.owner)
        if found is None:
            found = limits[loop.owner] = waiting._Limits(loop)
            found.calls = _InOrder()
        return found

    def by_claim(run: Run) -> int:
        return hash((int(run.job.id), run.job.claim))

    def unwatched(watch: Watch) -> None:
        return

    log = logging.getLogger("fastjobs")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        with (
            patch.object(Run, "__hash__", by_claim),
            patch.object(waiting, "_limits", own_limits),
            # Its thread looks on, in real time, for as long as a handler runs: one that was killed runs for ever.
            patch.object(Watch, "_start", unwatched),
        ):
            yield
    finally:
        log.setLevel(level)


class _InOrder(set[Any]):
    """A set that is walked in the order in which things came in."""

    def __init__(self) -> None:
        super().__init__()
        self._members: dict[Any, None] = {}

    def add(self, element: Any, /) -> None:
        super().add(element)
        self._members[element] = None

    def discard(self, element: Any, /) -> None:
        super().discard(element)
        self._members.pop(element, None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._members)


@contextmanager
def _nothing_said() -> Generator[None]:
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.unraisablehook = hook

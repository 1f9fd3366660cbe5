"""What the simulation's referee knows of each job, of each claim of it, and of each process."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastjobs import Ran
from fastjobs.store import Mark
from tests.fleet.loop import Owner

SECOND = 1_000_000


@dataclass(slots=True)
class Call:
    """A store's call."""

    verb: str
    began: int
    troubled: bool
    """Whether it failed, had no answer, or came late."""
    ended: int | None = None
    """When its caller waited for it no more."""


class Process(Owner):
    """One process of the fleet, as the referee sees it. Times are Unix microseconds by the store's clock."""

    def __init__(self, name: str, *, poll: int, grace: int) -> None:
        super().__init__(name)
        self.poll = poll
        self.grace = grace
        self.killed_at: int | None = None
        self.freezes: list[tuple[int, int]] = []
        self.stopping_at: int | None = None
        self.stopped_at: int | None = None
        self.troubles: list[Call] = []

    @property
    def waits(self) -> bool:
        """Whether it waits for an answer that won't come."""
        return any(each.ended is None for each in self.troubles)

    def was_frozen(self, since: int, until: int) -> bool:
        return any(began <= until and ended >= since for began, ended in self.freezes)

    def had_trouble(self, verbs: str, since: int, until: int) -> bool:
        """Whether a call of one of the verbs was in trouble at any moment between the two."""
        return any(
            each.verb in verbs.split() and each.began <= until and (each.ended is None or each.ended >= since)
            for each in self.troubles
        )


@dataclass(slots=True, eq=False)
class Claim:
    """One claim of a job."""

    token: int
    by: Process
    at: int
    until: int
    """When its hold ends."""
    hold: int
    renewed: int
    """When its hold last began."""
    asked: int
    """When its process asked for that."""
    before: int
    """When it asked for the time before."""
    heard: bool = False
    """Whether its process has had the claim's answer."""
    started: int | None = None
    ended: int | None = None
    how: str = ""
    """How its handler ended."""
    stop_asked: int | None = None
    """When someone cancelled its job; when it began, where that was in the hold of an earlier claim."""
    is_to_end: bool = False
    """Whether it was in that of an earlier one, so that its handler must not begin."""
    reported: str | None = None
    """What its handler reported last of how far it is."""
    over: bool = False
    """Whether a mark has ended it."""


@dataclass(slots=True)
class End:
    """How a job ended, as the store has it."""

    outcome: str
    by: Process
    at: int
    attempt: int
    until: int
    """When the hold of the claim that ended it would have."""
    mark: Mark | None
    """None where a claim failed it."""
    call: Call
    """What ended it."""


@dataclass(slots=True, eq=False)
class Tracked:
    """One job."""

    id: str
    kind: str
    due: int
    key: tuple[str, bytes] | None = None
    """What it's the same by as another of its kind."""
    lane: str = ""
    """What its rate is counted by."""
    first: int = 0
    """When it was pushed first."""
    attempts: int = 0
    token: int = 0
    claim: Claim | None = None
    """The latest."""
    claims: dict[int, Claim] = field(default_factory=dict[int, Claim])
    state: str = "waiting"
    ends: list[End] = field(default_factory=list[End])
    observed: list[tuple[Process, Ran]] = field(default_factory=list[tuple[Process, Ran]])
    """Its runs that were told of as done or failed."""
    told: int = 0
    """How often its on_fail was run."""
    starts: list[int] = field(default_factory=list[int])
    cancelled: bool = False
    """Whether it was asked to stop, since it was pushed or run again."""

    @property
    def held(self) -> Claim | None:
        """The claim that may still mark it."""
        return None if self.claim is None or self.claim.over else self.claim

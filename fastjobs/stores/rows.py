"""A job as `Memory` keeps it, and the lines that jobs stand in."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import takewhile


class State(Enum):
    STAGED = auto()
    """In no line: the transaction that pushes it, moves it, or marks it done, has yet to end."""
    WAITING = auto()
    PARKED = auto()
    """Due, and in its key's own line, where it costs claims nothing: another of its key was held as it was met."""
    HELD = auto()
    FAILED = auto()


Key = tuple[str, bytes]
"""A kind and a key of it."""


@dataclass(slots=True)
class Row:
    """A job as it's kept. `run_at`, `held_until` and `state` say which line it stands in."""

    number: int
    kind: str
    payload: str
    run_at: int
    created_at: int
    carried: str | None
    state: State = State.STAGED
    attempts: int = 0
    claim: int = 0
    claimed: bool = False
    """Whether its latest claim may still mark it: after its hold ran out too, until another claim takes it."""
    held_until: int = 0
    lost: int = 0
    error: str | None = None
    failed_at: int = 0
    key: Key | None = None
    """As it was pushed, for life."""
    unique: bool = False
    """Whether it has the key, so that no other is pushed: only while it waits."""
    alone: Key | None = None
    """Its key for life, where no two of it are held at once."""
    counts: bool = False
    """Whether it's one of its kind's held jobs, and its key's: also while a transaction marks it done."""
    first_push_at: int = 0
    name: str | None = None
    keep_name: int = 0
    owner: object = None
    """Whose open transaction has pushed or moved it."""
    thread: int = 0
    """The thread that did."""
    moves: int = 0
    """How many moves of that transaction's are yet to be kept or dropped."""
    was: tuple[State, int] | None = None
    """Of a job that a transaction moves or marks done: where it stands for all others until then, and when it's due."""
    stop_asked: bool = False
    """Whether a claim of it was asked to stop, since it was pushed or run again."""
    progress: str | None = None

    @property
    def id(self) -> str:
        return str(self.number)

    @property
    def seen(self) -> tuple[State, int]:
        """Where it stands, and when it's due, as it's committed."""
        return (self.state, self.run_at) if self.state is not State.STAGED or self.was is None else self.was

    def has_claim(self, claim: int) -> bool:
        """Whether that claim has the job, so that a mark of it is kept."""
        return self.claimed and self.claim == claim


class Line(list[tuple[int, int]]):
    """Jobs in order of a time, then of their numbers."""

    def join(self, time: int, row: Row) -> None:
        insort(self, (time, row.number))

    def leave(self, time: int, row: Row) -> None:
        del self[bisect_left(self, (time, row.number))]

    def up_to(self, time: int) -> Iterator[tuple[int, int]]:
        return takewhile(lambda each: each[0] <= time, self)

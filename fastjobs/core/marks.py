"""Marks: what becomes of a claimed job. Each names the job and the claim that it ends or extends.

A mark changes something only while its claim has the job: the job is held by that claim, or the claim's hold
ran out and no later claim has taken it. Each mark but `Extend` ends the claim and moves the token on, so one
that comes late, or twice, changes nothing and is told `Kept.LOST`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kept(Enum):
    """What a store answers to a mark."""

    YES = "yes"
    """The mark is kept."""
    STOP = "stop"
    """`Extend` only: the hold is extended, and someone asked this job to stop."""
    LOST = "lost"
    """The claim has the job no more: a later claim took it, it was marked already, or it's gone. Nothing changed."""
    BUSY = "busy"
    """Someone's open transaction has the row. Nothing changed; ask again."""


@dataclass(slots=True, unsafe_hash=True)
class Done:
    """It ran, and is removed. Not to be changed; not frozen, as one is made for each run, and that costs three times as
    much."""

    id: str
    claim: int


@dataclass(frozen=True, slots=True)
class TryAgain:
    """The attempt failed and stays counted: due again `after` microseconds from the store's now, with its error.

    One that was asked to stop stays due as it was: the next claim removes it.
    """

    id: str
    claim: int
    after: int
    error: str


@dataclass(frozen=True, slots=True)
class Fail:
    """It failed for good: kept with its error where no claim finds it."""

    id: str
    claim: int
    error: str


@dataclass(frozen=True, slots=True)
class GiveBack:
    """The claim is undone: its attempt is taken back, and its key is had again unless another job has it now.

    `after` is None for due as it was, else due that many microseconds from the store's now. An `error` takes
    the place of the one kept before; None leaves that. One that was asked to stop stays due as it was, without its key.
    """

    id: str
    claim: int
    after: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class HoldBack:
    """As `GiveBack`, and no job of its kind is claimed for `kind_for` microseconds, on any instance (HOLD_BACK)."""

    id: str
    claim: int
    kind_for: int
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Extend:
    """The hold now ends `hold` microseconds from the store's now. A hold that has run out is not had back: LOST."""

    id: str
    claim: int
    hold: int


Mark = Done | TryAgain | Fail | GiveBack | HoldBack | Extend

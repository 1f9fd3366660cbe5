"""A job as it crosses the Store's Protocol: the one that is pushed, the one that is claimed, the one that failed.

Times are Unix microseconds by the store's own clock and waits are microseconds from its now, so that the
clocks of the app's instances never meet in one comparison.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, overload

from fastjobs.core.errors import PushError, RegistrationError
from fastjobs.core.text import one_line

_KIND_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}\Z", re.ASCII)


def kind_name(name: str) -> str:
    """The name, if a kind may have it; else a RegistrationError. It's kept in the database for ever."""
    if callable(name):
        raise RegistrationError('a kind has a name, which the database keeps: write @q.kind("welcome-mail")')
    if not is_kind_name(name):
        raise RegistrationError(
            f"a kind's name is 1 to 100 of A-Z a-z 0-9 . _ : - and begins with a letter or a digit:"
            f" {name!r:.250} is none"
        )
    return name


def is_kind_name(name: object) -> bool:
    """Whether a kind may have this name."""
    return isinstance(name, str) and _KIND_NAME.match(name) is not None


def job_name(name: str) -> str:
    """The name, if a push may have it; else a PushError. Each database keeps it as it is, and apart from any other."""
    if not isinstance(name, str) or not 1 <= len(name) <= 200 or not (name.isascii() and name.isprintable()):
        raise PushError(
            f"a push's name is 1 to 200 printable ASCII characters, and {one_line(repr(name), 250)} is none."
            " Of a longer text, or one in other letters, take a hash: hashlib.sha256(text.encode()).hexdigest()"
        )
    return name


class NewJob(NamedTuple):
    """A job to push. What a store has no extra for (`key`, `name`, `carried`, …) is never given to it.

    A tuple, as a frozen dataclass of so many fields costs half a push.
    """

    kind: str
    payload: str
    """The value as ASCII JSON text."""
    at: int | None = None
    """When it's due, in Unix microseconds; None for `after`."""
    after: int = 0
    """Microseconds from the store's now, where `at` is None."""
    key: bytes | None = None
    """What makes it the same as another of its kind (UNIQUE)."""
    latest: bool = False
    """Move the job of this key that waits, rather than leave it as it is (LATEST)."""
    at_most: int | None = None
    """How many microseconds from its first push a latest push may move a job that waits (LATEST)."""
    one_at_a_time: bool = False
    """Never held beside another of its kind and key (ONE_AT_A_TIME)."""
    name: str | None = None
    """Kept once for its name (NAMES)."""
    keep_name: int = 0
    """How many microseconds the name stays taken after the job has ended (NAMES)."""
    carried: str | None = None
    """What the push carried, as ASCII JSON text of a flat object of strings (CARRY)."""


class Alike(Sequence[NewJob]):
    """New jobs that differ in their payloads alone, none with a key or a name: a store may take them as they are.

    A thousand jobs in one push cost as much to make as to keep, so each is made as it's asked for.
    """

    __slots__ = ("after", "at", "carried", "kind", "payloads")

    def __init__(
        self,
        kind: str,
        payloads: list[str],
        at: int | None = None,
        after: int = 0,
        carried: str | None = None,
    ) -> None:
        self.kind = kind
        self.payloads = payloads
        self.at = at
        self.after = after
        self.carried = carried

    def __len__(self) -> int:
        return len(self.payloads)

    @overload
    def __getitem__(self, index: int) -> NewJob: ...
    @overload
    def __getitem__(self, index: slice) -> Alike: ...
    def __getitem__(self, index: int | slice) -> NewJob | Alike:
        some = self.payloads[index]
        if isinstance(some, str):
            return NewJob(self.kind, some, self.at, self.after, carried=self.carried)
        return Alike(self.kind, some, self.at, self.after, self.carried)

    def __iter__(self) -> Iterator[NewJob]:
        for payload in self.payloads:
            yield NewJob(self.kind, payload, self.at, self.after, carried=self.carried)

    def __repr__(self) -> str:
        return f"<{len(self.payloads)} jobs of kind {self.kind!r}>"


class Job(NamedTuple):
    """A claimed job. A tuple, as a busy queue makes tens of thousands of them a second."""

    id: str
    kind: str
    payload: str
    run_at: int
    """When it was due, in Unix microseconds by the store's clock."""
    attempts: int
    """How many times it has been claimed, this claim included, but for claims that were given back."""
    claim: int
    """The claim token: it only grows, and tells this claim from every other of the job."""
    lost: int = 0
    """How many of its claims ended because their hold ran out."""
    error: str | None = None
    """What its latest attempt failed with."""
    carried: str | None = None
    stop_asked: bool = False
    """Whether it was cancelled while an earlier claim held it, so that this one is only to remove it (CANCEL)."""


class FailedJob(NamedTuple):
    """A job that failed for good and is kept (FAILED)."""

    id: str
    kind: str
    payload: str
    attempts: int
    error: str | None
    failed_at: int
    """Unix microseconds by the store's clock."""
    created_at: int
    carried: str | None = None
    size: int = 0
    """How many bytes the payload has, whole."""
    lost: int = 0
    name: str | None = None
    has_key: bool = False
    """Whether it was pushed with a key (UNIQUE)."""
    progress: str | None = None
    """What its handler last said of how far it is, as JSON text (PROGRESS)."""


class JobState(StrEnum):
    """Where a job that is kept stands."""

    WAITING = "waiting"
    """For its time, or for a worker."""
    PARKED = "parked"
    """It waits for another of its value, as its kind runs one at a time of each."""
    HELD = "held"
    """A claim holds it: it runs, or is about to."""
    FAILED = "failed"
    """For good, and kept."""


class KeptJob(NamedTuple):
    """A job as it's kept, with what says why it isn't running (COUNTS)."""

    id: str
    kind: str
    state: JobState
    """HELD also where its hold has run out and no claim has seen it yet: `held_until` says so."""
    payload: str
    """As much of it as was asked for."""
    size: int
    """How many bytes the payload has, whole."""
    run_at: int
    created_at: int
    attempts: int
    lost: int
    error: str | None
    held_until: int | None
    """When its hold ends; None unless it's HELD."""
    failed_at: int | None
    carried: str | None
    name: str | None
    has_key: bool
    """Whether it was pushed with a key (UNIQUE)."""
    stop_asked: bool
    """Whether it was cancelled while it was held (CANCEL): it's removed as that claim ends, or else by the next. False
    once it has FAILED."""
    progress: str | None
    """What its handler last said of how far it is, as JSON text (PROGRESS)."""
    behind: str | None
    """Of a PARKED job the id of the one of its key that is held now, if there is one."""
    kind_held_until: int
    """Until when its kind is held back (HOLD_BACK); 0 where it never was."""
    kind_paused: bool
    kind_held: int
    """How many jobs of its kind are held now, by holds that have not run out; 1,001 at most."""
    now: int
    """The store's now, as it was read."""

"""The kinds of job that the soak pushes, and how often each may run. Both the app and the checker go by it."""

from __future__ import annotations

from pydantic import BaseModel

ATTEMPTS = {
    "quick": 10,
    "short": 10,
    "long": 10,
    "unsteady": 8,
    "hopeless": 3,
    "refused": 5,
    "freezes": 10,
    "poison": 2,
}
"""Each kind's attempts."""
POLL = 0.1
"""How often a process asks for jobs, in seconds."""
ALWAYS_FAILS = {"hopeless", "refused", "poison"}
"""The kinds whose every job ends failed."""


class Work(BaseModel):
    """What a job is asked to do. `ref` is the pusher's own name for it, known before it has an id."""

    ref: str
    fails: int = 0
    """How many of its first attempts raise (unsteady)."""
    freeze: bool = False
    """Its first attempt stops its own process past its hold (freezes)."""
    lingers: float = 0
    """How many seconds it goes on after it woke (freezes)."""


class Push(BaseModel):
    """What a client asks the app to push."""

    kind: str
    work: Work
    inner: str | None = None
    """The ref of a second job, pushed in a savepoint."""
    undo: str | None = None
    """What is rolled back: "all", or the "savepoint" alone."""

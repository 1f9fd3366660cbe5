"""Every error of fastjobs, in one tree.

An error says what was asked, what was found and what to do, and keeps its parts as attributes. Errors of a
database are never wrapped: an app knows its own database's. `Permanent`, `Retry` and `Snooze` are no
errors of the queue's: a handler raises them on purpose, to say what its job's end means.
"""

from __future__ import annotations

from datetime import timedelta


class FastjobsError(Exception):
    """Base of all errors that fastjobs raises."""


class RegistrationError(FastjobsError, ValueError):
    """A mistake in how kinds, queues or options are set up. Raised as the app is imported or starts."""


class StoreError(RegistrationError):
    """The store can't do what is asked of it: it lacks an extra, or its database can't hold a queue."""


class ScheduleError(RegistrationError):
    """A schedule that isn't one, never comes round, or answers what no schedule may.

    `text` is what was written, and `part` which part of it is wrong: "minute", "hour", "day of the month",
    "month", "day of the week", "zone", or "" for the whole.
    """

    def __init__(self, message: str, *, text: str = "", part: str = "") -> None:
        super().__init__(message)
        self.text = text
        self.part = part


class QueueError(FastjobsError, RuntimeError):
    """The queue can't do this now: it has no store yet, runs already, or the kind belongs to no queue."""


class PushError(FastjobsError, ValueError):
    """A push whose arguments can't be: a time without a zone, both `at` and `after`, a wait that never ends."""


class PayloadError(FastjobsError, ValueError):
    """A value that won't go to JSON and come back equal, or a payload that doesn't fit its kind any more.

    `kind` is the kind's name and `field` the path to what is wrong (`user.age`, `[3].name`), or "" for the
    value as a whole; a dict's key is a part of it. The value itself is never in the message, as it may be
    secret, and neither is the text of what a type's own code raised: its type and place are.
    """

    def __init__(self, message: str, *, kind: str = "", field: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.field = field


class CarryError(FastjobsError, ValueError):
    """What a push would carry is over its limits: 4 KB as JSON, 32 names, plain strings."""


class NotAwaited(FastjobsError):
    """A transaction was about to commit with a push in it that was never awaited. It didn't commit."""


class NotCommitted(FastjobsError):
    """A handler called `done_in` and ended, and its transaction was not committed: the job runs again."""


class ClaimLost(FastjobsError):
    """This job's claim has ended: its hold ran out and another claim has it, or it was marked already.

    `done_in` raises it. Let out of the handler's transaction, it rolls that back, so that nothing is done twice.
    """


class StoreTimeout(FastjobsError, TimeoutError):
    """The store gave no answer in time. A push may have been kept all the same, or not."""


class OutOfAttempts(FastjobsError):
    """A job whose attempts were used up before this claim, as after a deploy that lowered them."""

    def __init__(self, message: str, *, attempts: int = 0, lost: int = 0) -> None:
        super().__init__(message)
        self.attempts = attempts
        self.lost = lost


class LostWorker(OutOfAttempts):
    """A job that kept losing its worker, as one that kills its process does, until its attempts were used up."""


class Permanent(Exception):
    """Raised by a handler: trying again won't mend it. The job fails at once and `on_fail` runs.

    `raise fastjobs.Permanent("the user has gone") from error`
    """


class Retry(Exception):
    """Raised by a handler: this attempt failed, and the next one is to run `after` seconds from now.

    `after` is seconds (int, float) or a timedelta. It takes the place of the kind's backoff, this once. The
    attempt counts: at the kind's last one the job fails.
    """

    def __init__(self, message: str = "", *, after: float | timedelta) -> None:
        super().__init__(message or f"asked to run again after {after}")
        self.after = after


class Snooze(Exception):
    """Raised by a handler: not now. The job waits `after` seconds (or a timedelta), and no attempt is counted."""

    def __init__(self, message: str = "", *, after: float | timedelta) -> None:
        super().__init__(message or f"snoozed for {after}")
        self.after = after

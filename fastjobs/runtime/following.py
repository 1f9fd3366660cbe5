"""Has the carriers that are Followers follow each push and each run. What they raise is logged, and ends nothing."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from fastjobs.core.carrier import Carrier, FollowedPush, Follower
from fastjobs.core.outcome import Outcome
from fastjobs.runtime.lines import say_error

if TYPE_CHECKING:
    from fastjobs.runtime.run import Run

Followers = Sequence[Follower]
RAISED = (Exception, CancelledError)
"""What costs a carrier its own part alone at a push. Nobody awaits it, so that nobody has cancelled it."""


def pushing(follower: Follower, kind: str, count: int) -> FollowedPush | None:
    """A push begins: what it follows it by, if it does."""
    try:
        return follower.pushing(kind, count)
    except RAISED as error:
        _say(follower, error)
        return None


class Followed:
    """A push that is followed."""

    __slots__ = ("_pushes",)

    def __init__(self, pushes: Sequence[tuple[Carrier, FollowedPush]]) -> None:
        self._pushes = pushes

    def through(self, push: Callable[[], list[str | None]]) -> list[str | None]:
        """Asks the store, from sync code."""
        self._begin()
        try:
            ids = push()
        except BaseException as error:
            self.end(None, error)
            raise
        self.end(ids, None)
        return ids

    async def awaited(self, push: Awaitable[list[str | None]]) -> list[str | None]:
        """Asks the store."""
        self._begin()
        try:
            ids = await push
        except BaseException as error:
            self.end(None, error)
            raise
        self.end(ids, None)
        return ids

    def _begin(self) -> None:
        for carrier, push in self._pushes:
            try:
                push.begin()
            except RAISED as error:
                _say(carrier, error)

    def end(self, ids: list[str | None] | None, error: BaseException | None) -> None:
        """It was answered, or failed. The last that began ends first, as each sets back what it has set."""
        for carrier, push in reversed(self._pushes):
            try:
                push.end(ids, error)
            except RAISED as raised:
                _say(carrier, raised)


def begin(followers: Followers, run: Run, on_fail: bool) -> None:
    """A run begins, in the current context, which is its own."""
    for each in followers:
        try:
            found = each.running(run.job, run.carried, run.waited, on_fail=on_fail)
        except BaseException as error:  # as with a handler: a CancelledError of its own would end the worker
            _say(each, error)
        else:
            if found is not None:
                run.followed = (*run.followed, (each, found))
                run.trace_id = getattr(found, "trace_id", run.trace_id)


def end(run: Run, outcome: Outcome | None, error: BaseException | None) -> None:
    """A run has ended; once."""
    runs, run.followed = run.followed, ()
    for carrier, each in runs:
        try:
            each.end(outcome, error)
        except BaseException as raised:
            _say(carrier, raised)


def unseen(followers: Followers) -> None:
    """The current context is that of one of the queue's own loops."""
    for each in followers:
        try:
            each.unseen()
        except RAISED as error:
            _say(each, error)


def _say(follower: object, error: BaseException) -> None:
    say_error("a carrier failed, and does not follow this", error, carrier=type(follower).__name__)

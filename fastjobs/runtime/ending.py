"""`done_in`: a handler marks its own job done through a transaction of its own, and what follows its end.

The queue can't see the app's commit. So once the handler has ended, the store is asked by an `Extend`, which ends no
claim and may be sent twice: the job is there, and the transaction was not committed; or it's gone, and it's done.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from fastjobs.core.errors import ClaimLost, NotAwaited, NotCommitted, QueueError
from fastjobs.core.marks import Extend, Kept
from fastjobs.runtime.pushing import Later, Unfinished
from fastjobs.store import DoneInStore, Ender, Extra, SyncEnder, require

if TYPE_CHECKING:
    from fastjobs.runtime.run import Run

_TWICE = (
    "done_in was called for this job before: its end goes with that transaction, and can't go with another one too."
    " Where that one rolled back, let the error out of the handler, and the job runs again"
)
_IN_ON_FAIL = "done_in is for a handler: in on_fail the job has failed already, and is kept as failed"
_ENDED = "done_in comes too late: the handler of this job has ended, or was left behind"
_NOT_AWAITED = (
    "the done_in of a job of kind {!r} was never awaited, so it isn't done in this transaction: write"
    " await current_job().done_in(tx)"
)
_NOT_COMMITTED = "done_in was not committed"


class Ending:
    """A done_in that was asked for, or why there can be none any more."""

    __slots__ = ("_refuses", "committed", "lost", "sent")

    def __init__(self, refuses: str = _TWICE) -> None:
        self._refuses = refuses
        """What to tell whoever asks for another."""
        self.sent = False
        """Whether the job may be gone with the app's commit. From here on its hold isn't renewed."""
        self.lost = False
        """Whether the claim had been lost to another, so that nothing of it is in the transaction."""
        self.committed = False
        """Whether a commit was heard of. One through a raw connection never is."""

    def refuse(self) -> None:
        """Raises QueueError: there can be no other."""
        raise QueueError(self._refuses)

    def heard(self) -> None:
        """A commit of its transaction was told of."""
        self.committed = True

    def error(self, raised: BaseException | None) -> BaseException | None:
        """What the handler's end means where the job isn't done after all."""
        if raised is not None or self.lost:
            return raised
        return NotCommitted(_NOT_COMMITTED) if self.sent else NotAwaited("done_in was never awaited")


def in_on_fail() -> Ending:
    """What refuses a done_in in an on_fail."""
    return Ending(_IN_ON_FAIL)


def done_in(run: Run, tx: object) -> Coroutine[Any, Any, None] | None:
    """Marks the run's job done through `tx`: at once in a sync transaction, else as what it answers is awaited."""
    if run.ending is not None:
        run.ending.refuse()
    queue = run.kind.queue
    if run.task is None or queue is None:
        raise QueueError(_ENDED)
    store = queue.store
    require(store, Extra.DONE_IN, "done_in()")
    ending, unfinished = Ending(), Unfinished()
    ender = cast("DoneInStore", store).done_within(tx, run.job, ending.heard, unfinished)
    run.ending = ending
    is_sync = ender.sync
    if is_sync:
        _send(run, ending)
        _see(run, cast("SyncEnder", ender).done())
        return None
    later = Later(
        lambda: _done(run, ending, cast("Ender", ender)), unfinished, _NOT_AWAITED.format(run.job.kind)
    )
    unfinished.pending.append(later)
    return later


async def _done(run: Run, ending: Ending, ender: Ender) -> None:
    if run.task is None:
        raise QueueError(_ENDED)
    _send(run, ending)
    _see(run, await ender.done())


def _send(run: Run, ending: Ending) -> None:
    # Before the DELETE: an Extend that comes after its commit finds no job, and would have the handler cancelled.
    ending.sent = True
    run.leave_renewal()


def _see(run: Run, was_held: bool) -> None:
    if not was_held:
        assert run.ending is not None
        run.ending.sent, run.ending.lost = False, True  # the mark will say so too, and be told as late
        raise ClaimLost(
            f"job {run.job.id} of kind {run.job.kind!r} isn't this run's any more: its hold ran out and another claim"
            " has it, or it was marked. Let this error out, so that the transaction rolls back"
        )


def asks(run: Run) -> Extend | None:
    """The question whether the job is gone with the app's commit; None where no done_in was sent."""
    if run.ending is None or not run.ending.sent:
        return None
    return Extend(run.job.id, run.job.claim, run.hold)


def is_done(run: Run, kept: Kept | None, now: float) -> bool:
    """Whether the job was done by the app's commit, by the store's answer to what `asks` asked.

    Within its hold nobody else can have taken a job that is gone. After that, only a commit that was heard of says
    so, and otherwise its mark tells.
    """
    assert run.ending is not None
    if kept is None or kept is Kept.LOST:
        return run.ending.committed or (kept is Kept.LOST and now < run.until)
    return False

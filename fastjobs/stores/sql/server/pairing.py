"""What is asked in the same turn of the loop goes as one statement: one round trip, and one commit.

A job's end frees a worker, or a place of its kind's limit, so its mark and the claim of the next are asked together. As
two statements the claim would come too early, or wait for the mark's commit and then for its own. A push on an idle
queue and the claim of that job are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic

from fastjobs.core.claiming import Claimed
from fastjobs.core.marks import GiveBack, HoldBack, Kept, Mark
from fastjobs.stores.sql.server.gathering import Gathering
from fastjobs.stores.sql.server.link import L
from fastjobs.stores.sql.server.on_loop import Call, OnLoop
from fastjobs.stores.sql.server.question import Question
from fastjobs.stores.sql.server.wanted import Wanted

FEW = 100
"""More marks than so many go alone: a claim needn't wait for all of them."""

SendMarks = Callable[[L, Sequence[Mark]], Awaitable[list[Kept]]]
SendClaim = Callable[[L, Wanted], Awaitable[Claimed]]
SendBoth = Callable[[L, Sequence[Mark], Wanted], Awaitable["tuple[list[Kept], Claimed | None]"]]


class Pairing(Generic[L]):
    """The marks and claims of one loop."""

    def __init__(
        self,
        here: OnLoop[L],
        pushes: Gathering[L],
        *,
        mark: SendMarks[L],
        claim: SendClaim[L],
        both: SendBoth[L],
        undo: Callable[[Claimed], None],
    ) -> None:
        """`both` may keep the marks alone, and answers None for the claim then. `undo` gets what was claimed for a
        caller that has gone."""
        self._here = here
        self._pushes = pushes
        self.send_marks = mark
        self.send_claim = claim
        self.send_both = both
        self._undo = undo
        self._open: _Pair[L] | None = None
        """The one whose statement isn't sent yet."""

    async def mark(self, some: Sequence[Mark]) -> list[Kept]:
        """Keeps the marks. Those of a caller that is cancelled may be kept, unless their turn hadn't come yet."""
        together = _go_together(some)
        pair = self._open
        if pair is None or pair.marks is not None or not together:
            pair = self._begun(to_join=together)
        asked: Question[Sequence[Mark], list[Kept]] = Question(some, self._here.loop)
        pair.marks = asked
        try:
            return await asked.answer
        except asyncio.CancelledError:
            pair.leave()
            raise

    async def claim(self, wanted: Wanted) -> Claimed:
        """Claims. What was claimed for a caller that is cancelled is undone."""
        asked: Question[Wanted, Claimed] = Question(wanted, self._here.loop)
        pair = self._open
        if (pair is None or pair.wanted is not None) and wanted.terms and self._pushes.takes_claim():
            leave = self._pushes.leave
            self._pushes.wanted = asked
        else:
            if pair is None or pair.wanted is not None:
                pair = self._begun(to_join=True)
            pair.wanted, leave = asked, pair.leave
        try:
            return await asked.answer
        except asyncio.CancelledError:
            if asked.has_come():
                self._undo(asked.answer.result())
            leave()
            raise

    def claimed(self, asked: Question[Wanted, Claimed], claimed: Claimed) -> None:
        """Gives a claim's answer to who asked for it."""
        if not asked.settle(claimed):
            self._undo(claimed)

    def _begun(self, *, to_join: bool) -> _Pair[L]:
        pair: _Pair[L] = _Pair(self, self._here)
        if to_join:
            self._open = pair
        return pair

    def close(self, pair: _Pair[L]) -> None:
        """Nobody joins this one any more."""
        if self._open is pair:
            self._open = None


def _go_together(some: Sequence[Mark]) -> bool:
    # What gives a key back may wait for an open transaction of the app's, which a claim is not to.
    return len(some) <= FEW and {*map(type, some)}.isdisjoint((GiveBack, HoldBack))


class _Pair(Generic[L]):
    """Marks, a claim, or both, and the task that sends them, which is nobody's."""

    def __init__(self, pairing: Pairing[L], here: OnLoop[L]) -> None:
        self._pairing = pairing
        self.marks: Question[Sequence[Mark], list[Kept]] | None = None
        self.wanted: Question[Wanted, Claimed] | None = None
        call: Call[L, None] = here.call(self._send)
        task = here.begin(call.run())
        task.add_done_callback(self._ended)
        self._under_way: tuple[Call[L, None], asyncio.Task[None]] | None = call, task

    def leave(self) -> None:
        """One of the callers has gone. A statement that nobody waits for has some seconds left."""
        if self._under_way is not None and self._awaited() == (None, None):
            call, task = self._under_way
            self._pairing.close(self)
            call.leave(task)

    def _awaited(
        self,
    ) -> tuple[Question[Sequence[Mark], list[Kept]] | None, Question[Wanted, Claimed] | None]:
        marks, wanted = self.marks, self.wanted
        return (
            marks if marks is not None and marks.is_wanted() else None,
            wanted if wanted is not None and wanted.is_wanted() else None,
        )

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way = None
        self._pairing.close(self)
        error: BaseException | None = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            for asked in self._awaited():
                if asked is not None:
                    asked.fail(error)

    async def _send(self, link: L) -> None:
        pairing = self._pairing
        pairing.close(self)
        marks, wanted = self._awaited()
        if marks is not None and wanted is not None:
            try:
                kept, claimed = await pairing.send_both(link, marks.asks, wanted.asks)
            except Exception as error:
                # Where nothing of it is kept, each is sent for itself: what was wrong with one isn't the other's.
                if not link.is_answer(error):
                    raise
            else:
                # The claim's first, so that the next job starts before the end of the last is told of.
                if claimed is not None:
                    pairing.claimed(wanted, claimed)
                marks.settle(kept)
            marks, wanted = self._awaited()
        if marks is not None:
            try:
                marks.settle(await pairing.send_marks(link, marks.asks))
            except Exception as error:
                if wanted is None or not link.is_answer(error) or link.is_worth_another_try(error):
                    raise
                marks.fail(error)
        if wanted is not None:
            pairing.claimed(wanted, await pairing.send_claim(link, wanted.asks))

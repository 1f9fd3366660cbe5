"""Pushes of one loop, which gather while a push is under way: an idle queue pushes at once, a busy one in hundreds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from fastjobs.core.claiming import Claimed
from fastjobs.core.job import NewJob
from fastjobs.stores.sql.server.link import L
from fastjobs.stores.sql.server.on_loop import Call, OnLoop
from fastjobs.stores.sql.server.question import Question
from fastjobs.stores.sql.server.wanted import Wanted

TOGETHER = 1000
"""The most jobs of several calls in one statement."""
FEW = 100
"""The most jobs beside which a claim goes."""

Send = Callable[[L, Sequence[NewJob]], Awaitable[list["str | None"]]]
SendBoth = Callable[[L, Sequence[NewJob], Wanted], Awaitable["tuple[list[str | None], Claimed]"]]

_Push = Question[Sequence[NewJob], list["str | None"]]
"""One call's jobs, which are kept all or none, and where their ids go."""


@dataclass(frozen=True, slots=True)
class Beside(Generic[L]):
    """How a claim goes beside a push: in one statement, or after it; and who has its answer."""

    both: SendBoth[L]
    claim: Callable[[L, Wanted], Awaitable[Claimed]]
    claimed: Callable[[Question[Wanted, Claimed], Claimed], None]


class Gathering(Generic[L]):
    """Gathers pushes. The task that sends a group is nobody's, and there is none while nothing is to be sent."""

    def __init__(
        self, here: OnLoop[L], send: Send[L], *, order: Callable[[NewJob], tuple[str, bytes]] | None = None
    ) -> None:
        """`order` sorts those that are sent together, where each call has one job: a call's own keep theirs."""
        self._here = here
        self._order = order
        self._send = send
        self.beside: Beside[L] | None = None
        """None where no claim goes with its pushes."""
        self.wanted: Question[Wanted, Claimed] | None = None
        """The claim that goes with the next statement."""
        self._waiting: deque[_Push] = deque()
        self._group: list[_Push] = []
        """Those whose statement is under way."""
        self._is_sent = False
        self._call: Call[L, None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        """Sends the jobs with what else is there, and answers their ids.

        A caller that is cancelled leaves the others; its jobs may be kept, unless their turn hadn't come yet.
        """
        member: _Push = Question(jobs, self._here.loop)
        self._waiting.append(member)
        if self._task is None:
            self._begin()
        try:
            return await member.answer
        except asyncio.CancelledError:
            self.leave()
            raise

    def takes_claim(self) -> bool:
        """Whether a push is about to be sent, and no claim goes with it yet."""
        is_about_to = self._task is not None and not self._is_sent
        return is_about_to and self.beside is not None and self.wanted is None

    def _begin(self) -> None:
        self._is_sent = False
        self._call = self._here.call(self._send_group)
        self._task = self._here.begin(self._call.run())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error: BaseException | None = asyncio.CancelledError() if task.cancelled() else task.exception()
        group, self._group = self._group, []
        wanted, self.wanted = self.wanted, None
        if error is not None and not group:
            # It came to no connection, and so would the next.
            group = list(self._waiting)
            self._waiting.clear()
        if error is not None:
            for member in group:
                member.fail(error)
            if wanted is not None:
                wanted.fail(error)
        self._call = self._task = None
        if any(member.is_wanted() for member in self._waiting):
            self._begin()
        else:
            self._waiting.clear()

    def leave(self) -> None:
        """One of the callers has gone."""
        # A statement that nobody waits for has some seconds left; one that isn't sent yet is for those who wait.
        asked = self._group or self._waiting
        if (
            self._call is not None
            and self._task is not None
            and not any(each.is_wanted() for each in asked)
            and not (self.wanted is not None and self.wanted.is_wanted())
        ):
            self._call.leave(self._task)

    async def _send_group(self, link: L) -> None:
        # The group is what is there once a link is: more come while it's waited for. Sent again, it's the same one.
        group = self._group = self._group or self._next_group()
        self._is_sent = True
        wanted, beside = self.wanted, self.beside
        if wanted is None or beside is None or not wanted.is_wanted():
            return await self._push(link, group)
        jobs = _jobs_of(group)
        if 0 < len(jobs) <= FEW:
            try:
                ids, claimed = await beside.both(link, jobs, wanted.asks)
            except Exception as error:
                # Where nothing of it is kept, each is sent for itself.
                if not link.is_answer(error):
                    raise
            else:
                # The claim's first, so that who pushed finds what was claimed in hand.
                beside.claimed(wanted, claimed)
                return _settle(group, ids)
        await self._push(link, [member for member in group if member.is_wanted()])
        if wanted.is_wanted():
            beside.claimed(wanted, await beside.claim(link, wanted.asks))

    async def _push(self, link: L, group: list[_Push]) -> None:
        if not group:
            return
        try:
            ids = await self._send(link, _jobs_of(group))
        except Exception as error:
            # Only what is certainly not kept may be sent again.
            if not link.is_answer(error):
                raise
            if len(group) == 1:
                if link.is_worth_another_try(error):
                    raise
                return group[0].fail(error)
        else:
            return _settle(group, ids)
        given_up: Exception | None = None
        for member in group:
            if not member.is_wanted():
                continue
            try:
                member.settle(await self._send(link, member.asks))
            except Exception as error:
                if not link.is_answer(error):
                    raise
                if link.is_worth_another_try(error):
                    given_up = error
                else:
                    member.fail(error)
        if given_up is not None:
            # Those that have no answer are the group now, which the call tries again.
            self._group = [member for member in group if member.is_wanted()]
            raise given_up

    def _next_group(self) -> list[_Push]:
        group: list[_Push] = []
        count = 0
        while self._waiting:
            member = self._waiting[0]
            if group and count + len(member.asks) > TOGETHER:
                break
            self._waiting.popleft()
            if member.is_wanted():
                group.append(member)
                count += len(member.asks)
        order = self._order
        if order is not None and count == len(group) > 1:
            group.sort(key=lambda member: order(member.asks[0]))
        return group


def _jobs_of(group: list[_Push]) -> Sequence[NewJob]:
    if len(group) == 1:
        return group[0].asks
    return [job for member in group for job in member.asks]


def _settle(group: list[_Push], ids: list[str | None]) -> None:
    at = 0
    for member in group:
        member.settle(ids[at : at + len(member.asks)])
        at += len(member.asks)

"""Pushes of one loop, which gather while a push is under way: an idle queue pushes at once, a busy one in hundreds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from fastjobs.core.job import NewJob
from fastjobs.stores.sql.dialects.postgres.links import Link
from fastjobs.stores.sql.dialects.postgres.on_loop import Call, OnLoop

TOGETHER = 1000
"""The most jobs of several calls in one statement."""

Send = Callable[[Link, Sequence[NewJob]], Awaitable[list["str | None"]]]


class _Member:
    """One call's jobs, which are kept all or none, and where their ids go."""

    __slots__ = ("answer", "jobs")

    def __init__(self, jobs: Sequence[NewJob], answer: asyncio.Future[list[str | None]]) -> None:
        self.jobs = jobs
        self.answer = answer

    def is_wanted(self) -> bool:
        return not self.answer.done()

    def settle(self, ids: list[str | None]) -> None:
        if self.is_wanted():
            self.answer.set_result(ids)

    def fail(self, error: BaseException) -> None:
        if not self.is_wanted():
            return
        if isinstance(error, asyncio.CancelledError):
            self.answer.cancel()
        else:
            self.answer.set_exception(error)


class Gathering:
    """Gathers pushes. The task that sends a group is nobody's, and there is none while nothing is to be sent."""

    def __init__(self, here: OnLoop, send: Send) -> None:
        self._here = here
        self._send = send
        self._waiting: deque[_Member] = deque()
        self._group: list[_Member] = []
        """Those whose statement is under way."""
        self._call: Call[None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        """Sends the jobs with what else is there, and answers their ids.

        A caller that is cancelled leaves the others; its jobs may be kept, unless their turn hadn't come yet.
        """
        member = _Member(jobs, self._here.loop.create_future())
        self._waiting.append(member)
        if self._task is None:
            self._begin()
        try:
            return await member.answer
        except asyncio.CancelledError:
            self._leave()
            raise

    def _begin(self) -> None:
        self._call = self._here.call(self._send_group)
        self._task = self._here.begin(self._call.run())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error: BaseException | None = asyncio.CancelledError() if task.cancelled() else task.exception()
        group, self._group = self._group, []
        if error is not None and not group:
            # It came to no connection, and so would the next.
            group = list(self._waiting)
            self._waiting.clear()
        if error is not None:
            for member in group:
                member.fail(error)
        self._call = self._task = None
        if any(member.is_wanted() for member in self._waiting):
            self._begin()
        else:
            self._waiting.clear()

    def _leave(self) -> None:
        # A statement that nobody waits for has some seconds left; one that isn't sent yet is for those who wait.
        asked = self._group or self._waiting
        if self._call is not None and self._task is not None and not any(each.is_wanted() for each in asked):
            self._call.leave(self._task)

    async def _send_group(self, link: Link) -> None:
        # The group is what is there once a link is: more come while it's waited for. Sent again, it's the same one.
        group = self._group = self._group or self._next_group()
        if not group:
            return
        try:
            ids = await self._send(link, [job for member in group for job in member.jobs])
        except Exception as error:
            # Only what is certainly not kept may be sent again.
            if len(group) == 1 or not link.is_answer(error):
                raise
        else:
            at = 0
            for member in group:
                member.settle(ids[at : at + len(member.jobs)])
                at += len(member.jobs)
            return
        for member in group:
            if not member.is_wanted():
                continue
            try:
                member.settle(await self._send(link, member.jobs))
            except Exception as error:
                if not link.is_answer(error):
                    raise
                member.fail(error)

    def _next_group(self) -> list[_Member]:
        group: list[_Member] = []
        count = 0
        while self._waiting:
            member = self._waiting[0]
            if group and count + len(member.jobs) > TOGETHER:
                break
            self._waiting.popleft()
            if member.is_wanted():
                group.append(member)
                count += len(member.jobs)
        return group

"""The standing workers: each takes what is next and runs it to its end, for as long as the queue runs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from fastjobs.core.verdict import Cut
from fastjobs.runtime.run import Ended, Owed, Run
from fastjobs.runtime.runner import Runner

TURN = 0.001
"""Seconds that jobs take, one after another on all workers, before the loop has its turn: for the app, and for the next
claim, which is under way while these run."""
EACH = 0.000015
"""Seconds that a job takes beside its handler, about."""


class Workers:
    """So many workers, what they run, and what waits for them."""

    def __init__(self, runner: Runner, count: int, ended: Callable[[Ended[Run]], None]) -> None:
        """`ended` is told of each run that ended, before its worker takes the next."""
        self.count = count
        self._runner = runner
        self._ended = ended
        self._next: deque[Run | Owed] = deque()
        self._idle: deque[asyncio.Future[Run | Owed]] = deque()
        self._busy: dict[asyncio.Task[None], Run | Owed] = {}
        self._owner = asyncio.current_task()
        self._load = 0
        self._spent = 0.0
        """Seconds of this turn of the loop, on all workers."""
        self._is_over = False
        """Whether this turn is, and the next is to come."""
        self._quiet = asyncio.Event()
        self.freed: Callable[[], None] = lambda: None
        """Called as a worker has finished something."""

    @property
    def load(self) -> int:
        """How many things run or wait here."""
        return self._load

    @property
    def running(self) -> list[Run | Owed]:
        """What the workers run just now."""
        return list(self._busy.values())

    def offer(self, item: Run | Owed) -> None:
        """Gives something to run: to a worker that is idle, or to the next that is."""
        # Counted here, not as its worker gets to it: the feed looks before that.
        self._load += 1
        while self._idle:
            idle = self._idle.popleft()
            if not idle.done():
                idle.set_result(item)
                return
        self._next.append(item)

    def withdraw(self) -> list[Run]:
        """Takes back the jobs that wait for a worker; what is owed stays."""
        waiting = [item for item in self._next if isinstance(item, Run)]
        self._next = deque(item for item in self._next if not isinstance(item, Run))
        self._less(len(waiting))
        return waiting

    def forget(self, run: Run) -> bool:
        """Takes back one job, if it waits; answers whether it did."""
        if run not in self._next:
            return False
        self._next.remove(run)
        self._less(1)
        return True

    async def quiet(self) -> None:
        """Returns once nothing runs and nothing waits."""
        while self._load:
            self._quiet.clear()
            await self._quiet.wait()

    def abandon(self) -> list[Run | Owed]:
        """Leaves behind what still runs: its coroutines are closed and its workers end. Answers what it was."""
        left = self.running
        for task, item in list(self._busy.items()):
            run = run_of(item)
            if run.drive is not None:
                run.drive.abandoned = True
            task.cancel()
        return left

    async def work(self) -> None:
        """One worker: takes what is next and runs it, until it's cancelled."""
        task = asyncio.current_task()
        assert task is not None
        while True:
            item = self._next.popleft() if self._next else await self._wait()
            self._busy[task] = item
            try:
                if isinstance(item, Run):
                    ended = await self._runner.job(item, task)
                    self._ended(ended)
                    self._spent += ended.took + EACH
                    foreign = isinstance(ended.error, asyncio.CancelledError) and (
                        item.cut is None or self._runner.closing()
                    )
                    if foreign and self._owner is not None and self._owner.done():
                        return  # the loop is being closed around a queue that was never stopped
                    del ended
                else:
                    await self._runner.on_fail(item)
            finally:
                del self._busy[task]
                self._less(1)
            # An idle worker keeps no error, as in its traceback is all that a handler had.
            del item
            self.freed()
            if self._spent > TURN:
                # Handlers that never wait would keep the loop for as long as there are jobs, and the app from it.
                if not self._is_over:
                    self._is_over = True
                    task.get_loop().call_soon(self._next_turn)
                await asyncio.sleep(0)

    def _next_turn(self) -> None:
        self._spent, self._is_over = 0.0, False

    async def _wait(self) -> Run | Owed:
        idle: asyncio.Future[Run | Owed] = asyncio.get_running_loop().create_future()
        self._idle.append(idle)
        try:
            return await idle
        except asyncio.CancelledError:
            if idle.done() and not idle.cancelled():
                self._next.appendleft(idle.result())
            raise

    def _less(self, count: int) -> None:
        self._load -= count
        if not self._load:
            self._quiet.set()


def interrupt(item: Run | Owed, why: Cut) -> None:
    """Cancels what a worker runs."""
    run_of(item).interrupt(why)


def run_of(item: Run | Owed) -> Run:
    """The run that it is, or whose on_fail it is."""
    return item if isinstance(item, Run) else item.run

"""A store in memory whose calls can be made to fail before or after their effect, to hang, or to be counted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fastjobs.clock import Clock
from fastjobs.store import Claimable, Claimed, Extend, Kept, Mark, NewJob
from fastjobs.stores.memory import Memory


class Down(Exception):
    """What a driver might raise: nothing that anyone could list beforehand."""


class Unsteady(Memory):
    """Memory, with faults. Each set names verbs: push, claim, mark, extend."""

    def __init__(self, *, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.before: set[str] = set()
        """Fail before their effect."""
        self.after: set[str] = set()
        """Have their effect, then fail."""
        self.hang: set[str] = set()
        """Never answer."""
        self.poison: str | None = None
        """An id whose marks always fail, and with them the batch they are in."""
        self.busy: int = 0
        """How many marks yet to answer BUSY."""
        self.calls: dict[str, int] = {"push": 0, "claim": 0, "mark": 0, "extend": 0}
        self.batches: list[int] = []

    async def arrive(self, verb: str) -> None:
        self.calls[verb] += 1
        if verb in self.hang:
            await asyncio.Event().wait()
        if verb in self.before:
            raise Down(f"{verb}: the database is down")
        await asyncio.sleep(0)

    def depart(self, verb: str) -> None:
        if verb in self.after:
            raise Down(f"{verb}: the connection was cut as it answered")

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        await self.arrive("push")
        ids = await super().push(jobs)
        self.depart("push")
        return ids

    async def claim(
        self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
    ) -> Claimed:
        await self.arrive("claim")
        claimed = await super().claim(kinds, limit, ahead=ahead, others=others)
        self.depart("claim")
        return claimed

    async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
        verb = "extend" if marks and isinstance(marks[0], Extend) else "mark"
        await self.arrive(verb)
        if any(mark.id == self.poison for mark in marks):
            raise Down("a mark that no database takes")
        if self.busy:
            self.busy -= 1
            return [Kept.BUSY for _ in marks]
        if verb == "mark":
            self.batches.append(len(marks))
        kept = await super().mark(marks)
        self.depart(verb)
        return kept

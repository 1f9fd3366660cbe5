"""SQLStore with a recorder around its claims and marks, and two that are broken on purpose: the controls."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from fastjobs import SQLStore
from fastjobs.clock import Clock, SystemClock
from fastjobs.store import Claimable, Claimed, Extend, Kept, Mark
from fastjobs.stores.sql.dialects.mysql.errors import code
from fastjobs.stores.sql.dialects.mysql.link import AsyncLink
from tests.soak.recording import Recorder

_WORDS = {
    "Done": "done",
    "TryAgain": "try again",
    "Fail": "fail",
    "GiveBack": "give back",
    "HoldBack": "hold back",
    "Extend": "extend",
}


class Recorded(SQLStore):
    """Writes down each claim and mark, before it's asked and after it's answered."""

    def __init__(self, engine: AsyncEngine, recorder: Recorder, *, clock: Clock | None = None) -> None:
        """A SQLite file's clock is the machine's in any case; a server's own is told without one."""
        super().__init__(engine, clock=SystemClock() if engine.dialect.name == "sqlite" else clock)
        self._recorder = recorder
        _tell_of_what_is_given_up(recorder)
        self._claims: dict[tuple[str, int], int] = {}

    def claim_of(self, id: str, attempt: int) -> int:
        """The claim by which this process runs this attempt; asked once, as the attempt starts."""
        return self._claims.pop((id, attempt))

    async def claim(
        self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
    ) -> Claimed:
        asked_at = time.monotonic_ns()
        claimed = await super().claim(kinds, limit, ahead=ahead, others=others)
        holds = {each.kind: each.hold for each in kinds}
        for job in claimed.jobs:
            self._claims[job.id, job.attempts] = job.claim
            said = (job.id, job.claim, job.kind, _ref(job.payload), job.attempts)
            self._recorder.write("claimed", *said, claimed.now, claimed.now + holds[job.kind], asked_at)
        for job in claimed.exhausted:
            # What failed it has moved its token on, and answers it as it was before.
            said = (job.id, job.claim + 1, job.kind, _ref(job.payload), job.attempts)
            self._recorder.write("exhausted", *said, claimed.now, asked_at)
        self._recorder.write("looked", asked_at)
        return claimed

    async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
        words = [_WORDS[type(each).__name__] for each in marks]
        for each, word in zip(marks, words, strict=True):
            self._recorder.write("marking", each.id, each.claim, word)
        # The store tells the time once it has the lock, so an extended hold ends then or a little later.
        now = self._database.now()
        kept = await super().mark(marks)
        for each, word, answer in zip(marks, words, kept, strict=True):
            until = now + each.hold if isinstance(each, Extend) else 0
            self._recorder.write("marked", each.id, each.claim, word, answer.value, until)
        return kept


class _NoFence(SQLStore):
    """Takes a mark for one of whichever claim has the job by now."""

    async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
        def read(connection: Connection) -> dict[str, int]:
            rows = connection.execute(text("SELECT id, claim FROM fastjobs_jobs"))
            return {str(id): claim for id, claim in rows}

        tokens = await self._database.run(read)
        return await super().mark([replace(each, claim=tokens.get(each.id, each.claim)) for each in marks])


class _NoHold(SQLStore):
    """Holds nothing: what it has claimed may be claimed again at once."""

    async def claim(
        self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
    ) -> Claimed:
        kinds = [replace(each, hold=1) for each in kinds]
        return await super().claim(kinds, limit, ahead=ahead, others=others)


class RecordedNoFence(Recorded, _NoFence):
    """Its marks are taken whatever their claim."""


class RecordedNoHold(Recorded, _NoHold):
    """Its claims hold nothing."""


_is_worth_another_try = AsyncLink.is_worth_another_try


def _tell_of_what_is_given_up(recorder: Recorder) -> None:
    """Has the links to MariaDB and MySQL write down what the server broke for another's sake, which is tried again."""

    def told(self: AsyncLink, error: BaseException) -> bool:
        found = _is_worth_another_try(self, error)
        if found:
            recorder.write("given up", code(error))
        return found

    AsyncLink.is_worth_another_try = told  # type: ignore[method-assign, assignment]


CONTROLS: dict[str, type[Recorded]] = {
    "none": Recorded,
    "no-fence": RecordedNoFence,
    "no-hold": RecordedNoHold,
}


def _ref(payload: str) -> str:
    ref: str = json.loads(payload)["ref"]
    return ref

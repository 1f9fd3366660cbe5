"""What a queue does to its jobs and kinds for whoever asks: run again, delete, cancel, pause. Each is told in the log.

The line says whose request it was, where it was in one, and never what a job's value is.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, cast

from fastjobs.core.errors import QueueError, RegistrationError
from fastjobs.core.job import kind_name
from fastjobs.core.request_id import request_id
from fastjobs.runtime.lines import say
from fastjobs.runtime.waiting import limited
from fastjobs.store import Extra, FailedStore, Store, require

if TYPE_CHECKING:
    from typing import Any

    from fastjobs.runtime.kind import Kind

PAGE = 500
"""How many failed jobs one call takes."""


def named(kind: str | Kind[Any] | None) -> str | None:
    """The name of a kind that was asked for by itself or by name; a QueueError for what no kind is called."""
    if kind is None:
        return None
    name = kind if isinstance(kind, str) else getattr(kind, "name", None)
    if not isinstance(name, str):
        raise QueueError(f"kind= is a Kind or its name, not {kind!r:.80}")
    try:
        return kind_name(name)
    except RegistrationError as wrong:
        raise QueueError(str(wrong)) from None


def number(value: object, what: str, least: int, most: int) -> None:
    """A QueueError for what is no whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise QueueError(f"{what} is a whole number from {least} to {most:,}, not {value!r:.80}")


def an_id(id: object) -> str:
    """The id, or a QueueError that says what one is."""
    if not isinstance(id, str):
        raise QueueError(
            f"a job's id is a string, as its push answered it, and this is a {type(id).__name__}"
            + (": write *ids" if isinstance(id, (list, tuple, set, frozenset)) else "")
        )
    return id


def failed_store(store: Store, what: str) -> FailedStore:
    """The store, as one that keeps failed jobs; a StoreError where it doesn't."""
    require(store, Extra.FAILED, what)
    return cast("FailedStore", store)


class FailedJobs:
    """What is done to some of the failed jobs: those of these ids, those of a kind, or all."""

    def __init__(
        self, store: Store, ids: Sequence[str], kind: str | Kind[Any] | None, *, all: bool, what: str
    ) -> None:
        if (bool(ids), kind is not None, all is True).count(True) != 1 or not isinstance(all, bool):
            raise QueueError(f"q.{what} takes ids, or kind=, or all=True, and just one of these")
        self._store = failed_store(store, f"q.{what}")
        self._ids = list(dict.fromkeys(an_id(id) for id in ids))
        self._kind = named(kind)
        self._what = what

    async def run_again(self, wake: Callable[[], None]) -> int:
        """Puts them back, and wakes the queue after each page."""
        return await self._each(self._store.run_again, "failed jobs were put back to run again", wake)

    async def delete(self) -> int:
        """Removes them."""
        return await self._each(self._store.delete, "failed jobs were deleted", lambda: None)

    async def _each(
        self,
        act: Callable[[Sequence[str]], Awaitable[list[bool]]],
        sentence: str,
        after_each: Callable[[], None],
    ) -> int:
        count = 0
        try:
            if self._ids:
                for at in range(0, len(self._ids), PAGE):
                    count += sum(await limited(act(self._ids[at : at + PAGE]), self._what))
                    after_each()
                return count
            after: tuple[int, str] | None = None
            while True:
                # From the latest on: what fails anew meanwhile is before the first page, so this comes to an end.
                listed = self._store.failed(kind=self._kind, after=after, limit=PAGE, cut=0)
                page = await limited(listed, "a look at the failed jobs")
                if page:
                    count += sum(await limited(act([job.id for job in page]), self._what))
                    after_each()
                    after = (page[-1].failed_at, page[-1].id)
                if len(page) < PAGE:
                    return count
        finally:
            # Also where it ended with an error in the middle.
            if count:
                told(sentence, kind=self._kind, job=",".join(self._ids) or None, count=count)


def told(sentence: str, **fields: object) -> None:
    """Logs what was done."""
    say(logging.INFO, sentence, **fields, request_id=request_id())

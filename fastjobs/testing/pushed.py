"""What `jobs.pushed(…)` answers: the values that were pushed, and in a failed assert what was pushed instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from fastjobs.core.duration import SECOND
from fastjobs.core.errors import PayloadError
from fastjobs.stores.rows import Row
from fastjobs.testing.watched import Push

if TYPE_CHECKING:
    from fastjobs.runtime.kind import Kind

T = TypeVar("T")

_MOST = 10
"""How many other pushes are told of."""
_ANY_SIZE = 2**62


class Pushed(list[T]):
    """The values of the jobs that were pushed and are asked for, in the order they were committed.

    It's a list, so it's true where there's one, and equal to a list of the same values. Where it's empty its repr
    says what was pushed instead, and what was pushed in a transaction that never committed: pytest shows it.
    """

    def __init__(
        self,
        values: Iterable[T],
        asked: str = "a job",
        others: Sequence[str] = (),
        uncommitted: Sequence[str] = (),
    ) -> None:
        super().__init__(values)
        self._asked = asked
        self._others = others
        self._uncommitted = uncommitted

    def __repr__(self) -> str:
        if self:
            return super().__repr__()
        told = f"no push of {self._asked}"
        if self._uncommitted:
            told += f"; never committed: {_some(self._uncommitted)}"
        told += f"; pushed: {_some(self._others)}" if self._others else "; nothing else was pushed"
        return f"<{told}>"


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - _MOST
    return ", ".join(texts[:_MOST]) + (f" and {more} more" if more > 0 else "")


class Wanted:
    """What is asked for: pushes of a kind, of a value, with a wait or a name; each where it's given."""

    def __init__(
        self, kind: Kind[Any] | None, value: Sequence[Any], after: int | None, name: str | None
    ) -> None:
        """`value` holds the value, or nothing. A PayloadError for one that the kind doesn't take."""
        self._kind = kind
        self._after = after
        self._name = name
        self._told = "a job" if kind is None else repr(kind.name)
        self._payload: str | None = None
        if kind is not None and value:
            self._told += f" {value[0]!r}"
            self._payload = kind.codec.dump(value[0], _ANY_SIZE)

    def __str__(self) -> str:
        wait = "" if self._after is None else f" after {self._after / SECOND:g} s"
        return self._told + wait + ("" if self._name is None else f" named {self._name!r}")

    def is_met_by(self, push: Push) -> bool:
        """Whether this push is one of them. Values are compared as the handler gets them."""
        kind, row = self._kind, push.row
        if kind is not None and row.kind != kind.name:
            return False
        if self._after is not None and abs(push.after - self._after) >= SECOND:
            return False
        if self._name is not None and row.name != self._name:
            return False
        if kind is None or self._payload is None or self._payload == row.payload:
            return True
        return bool(kind.codec.load(row.payload) == kind.codec.load(self._payload))


def told(row: Row, kinds: Mapping[str, Kind[Any]], after: int = 0) -> str:
    """A push, for people."""
    try:
        value = repr(kinds[row.kind].codec.load(row.payload))
    except (KeyError, PayloadError):
        value = row.payload
    wait = f" after {after / SECOND:g} s" if after else ""
    return f"{row.kind!r} {value}{wait}" + ("" if row.name is None else f" named {row.name!r}")

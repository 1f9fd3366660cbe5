"""What `jobs.pushed(…)` answers: the values that were pushed, and in a failed assert what was pushed instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from fastjobs.core.duration import SECOND
from fastjobs.core.job import job_name
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
        self, values: Iterable[T], instead: Callable[[], str] = lambda: "nothing was pushed"
    ) -> None:
        """`instead` is what to say where it's empty."""
        super().__init__(values)
        self._instead = instead

    def __repr__(self) -> str:
        return super().__repr__() if self else f"<{self._instead()}>"


def instead(asked: str, others: Sequence[str], uncommitted: Sequence[str]) -> str:
    """That nothing was pushed of what is asked for, and what was."""
    said = f"no push of {asked}"
    if uncommitted:
        said += f"; never committed: {_some(uncommitted)}"
    return said + (f"; pushed: {_some(others)}" if others else "; nothing else was pushed")


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - _MOST
    return ", ".join(texts[:_MOST]) + (f" and {more} more" if more > 0 else "")


class Wanted:
    """What is asked for: pushes of a kind, of a value, with a wait or a name; each where it's given."""

    def __init__(
        self, kind: Kind[Any] | None, value: Sequence[Any], after: int | None, name: str | None
    ) -> None:
        """`value` holds the value, or nothing. A PayloadError for one that the kind doesn't take.

        A PushError for what can be no push's name: nothing has it, so that an `assert not` would always hold.
        """
        self._kind = kind
        self._after = after
        self._name = None if name is None else job_name(name)
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


def value_of(row: Row, kinds: Mapping[str, Kind[Any]]) -> Any:
    """The value of a push, as its handler gets it; the payload's text of a kind that isn't among these."""
    return kinds[row.kind].codec.load(row.payload) if row.kind in kinds else row.payload


def told(row: Row, kinds: Mapping[str, Kind[Any]], after: int = 0) -> str:
    """A push, for people."""
    wait = f" after {after / SECOND:g} s" if after else ""
    name = "" if row.name is None else f" named {row.name!r}"
    return f"{row.kind!r} {value_of(row, kinds)!r}{wait}{name}"

"""Kinds that belong to no queue yet: for a module of handlers, as a router is for routes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from fastjobs.core.errors import RegistrationError
from fastjobs.core.job import kind_name
from fastjobs.core.options import KindSettings
from fastjobs.runtime.handlers import place_of
from fastjobs.runtime.kind import Kind, KindDecorator


class Kinds:
    """Kinds of one module, given to a queue by `q.include(kinds)`.

    jobs = fastjobs.Kinds()

    @jobs.kind("welcome-mail", attempts=5)
    async def welcome(mail: WelcomeMail) -> None: ...
    """

    def __init__(self) -> None:
        self._kinds: dict[str, Kind[Any]] = {}
        self._included: object | None = None

    def kind(self, name: str, **settings: Unpack[KindSettings]) -> KindDecorator:
        """As `Queue.kind`; the kind pushes once a queue has included it."""

        kind_name(name)

        def decorate(fn: Callable[..., object], /) -> Kind[Any]:
            if self._included is not None:
                raise RegistrationError(
                    f"kind {name!r}: a queue has included these kinds already: register it first"
                )
            kind: Kind[Any] = Kind(name, fn, settings)
            if name in self._kinds:
                raise RegistrationError(
                    f"kind {name!r} has a handler already: {place_of(self._kinds[name].handler)}"
                )
            self._kinds[name] = kind
            return kind

        return decorate

    def given_to(self, queue: object, check: Callable[[Kind[Any]], None]) -> list[Kind[Any]]:
        """The kinds, for the queue that includes them: one, and once, and only if `check` lets all of them."""
        if self._included is not None:
            raise RegistrationError("these kinds are in a queue already; a kind belongs to one queue")
        for kind in self._kinds.values():
            check(kind)
        self._included = queue
        return list(self._kinds.values())


def chosen(kinds: Mapping[str, Kind[Any]], some: Sequence[str | Kind[Any]] | None) -> dict[str, Kind[Any]]:
    """Those of the kinds that are asked for, by name or themselves; all of them for None.

    A RegistrationError for one that isn't registered, which lists those that are, and for none at all.
    """
    if some is None:
        return dict(kinds)
    if isinstance(some, (str, Kind)) or not isinstance(some, Sequence):
        raise RegistrationError(f'kinds= is a list of kinds or their names, as in ["mail"], not {some!r}')
    names = [each.name if isinstance(each, Kind) else each for each in some]
    unknown = [repr(name) for name in names if name not in kinds]
    unknown += [
        f"{each.name!r} of another queue"
        for each in some
        if isinstance(each, Kind) and kinds.get(each.name, each) is not each
    ]
    if unknown:
        raise RegistrationError(
            f"the queue has no kind {', '.join(unknown)}; it has {', '.join(sorted(kinds)) or 'none'}"
        )
    if not names:
        raise RegistrationError("kinds= names no kind: run=False is what only pushes")
    return {name: kind for name, kind in kinds.items() if name in names}

"""Kinds that belong to no queue yet: for a module of handlers, as a router is for routes."""

from __future__ import annotations

from collections.abc import Callable
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

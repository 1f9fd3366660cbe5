"""The request's ID: taken from the request or made, known to all code that works for it, and in the response."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import Any

from fastjobs.core import request_id
from fastjobs.core.errors import RegistrationError
from fastjobs.runtime.handlers import is_async
from fastjobs.runtime.lines import say_error

# What ASGI says of these; Starlette's own aliases say the same, and this needs no Starlette.
_Scope = MutableMapping[str, Any]
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_ASGIApp = Callable[[_Scope, _Receive, _Send], Awaitable[None]]

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}\Z", re.ASCII)
_GIVEN = "fastjobs.request_id"
"""Where a scope says which ID its request has, and in which header: a mounted app's middleware gives it no other."""
_ANSWERS = ("http.response.start", "websocket.accept", "websocket.http.response.start")


class RequestIDMiddleware:
    """Gives each request and websocket an ID: `app.add_middleware(fastjobs.RequestIDMiddleware)`.

    An inbound `header` is taken where there is exactly one and it's plain (1 to 128 of A-Z a-z 0-9 . _ : @ / + = -);
    else, and always with `trust=False`, the ID is new. `fastjobs.request_id()` answers it in routes, dependencies,
    background tasks and sync code, `request.state.request_id` has it too, and the response says it in `header`,
    in place of what a route has set there. `CarryRequestID` takes it on to jobs.

    `use_existing` is where another middleware, outside of this one, has put the ID already: a ContextVar, as
    asgi-correlation-id's `correlation_id`, or a function that answers it or None. One that is plain is this request's
    ID, whatever a header says, and the response's header is that middleware's to set.

    One request has one ID: where several of these are around its route, as that of a mounted app too, it's what the
    outermost one says.

    The server's answer to an error that nothing handled is made outside all middleware: a handler for `Exception`
    reads `request.state.request_id`, and that response has the header only where this wraps the app as a whole,
    `app = RequestIDMiddleware(FastAPI(…))`. Raises RegistrationError for a `header` that is no header's name, a `trust`
    that is no bool, and a `use_existing` that is nothing to ask.
    """

    def __init__(
        self,
        app: _ASGIApp,
        *,
        header: str = "X-Request-ID",
        trust: bool = True,
        use_existing: ContextVar[str | None] | Callable[[], str | None] | None = None,
    ) -> None:
        if not isinstance(header, str) or not _HEADER.match(header):
            raise RegistrationError(f"RequestIDMiddleware: header is the name of a header, not {header!r}")
        if not isinstance(trust, bool):  # "no", as an environment says it, would be trusted
            raise RegistrationError(f"RequestIDMiddleware: trust is True or False, not {trust!r}")
        if isinstance(use_existing, ContextVar):
            variable = use_existing
            use_existing = lambda: variable.get(None)  # noqa: E731
        if use_existing is not None and (not callable(use_existing) or is_async(use_existing)):
            raise RegistrationError(
                "RequestIDMiddleware: use_existing is a ContextVar, or a plain function that answers the ID or None,"
                f" not {use_existing!r}"
            )
        self.app = app
        self._existing: Callable[[], str | None] | None = use_existing
        self._header = header.lower().encode("ascii")
        self._trust = trust

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        outer: tuple[str, bytes] | None = scope.get(_GIVEN)
        if outer is not None:
            id, leaves = outer[0], outer[1] == self._header
        else:
            existing = None if self._existing is None else self._from(self._existing)
            id, leaves = existing or self._inbound(scope) or request_id.new_id(), existing is not None
        answered = (self._header, id.encode("ascii"))

        async def answer(message: _Message) -> None:
            if message["type"] in _ANSWERS:
                # A new list: the app may hand out one of its own for every response.
                headers = [each for each in message.get("headers", ()) if each[0].lower() != self._header]
                message = {**message, "headers": [*headers, answered]}
            await send(message)

        scope.setdefault("state", {})["request_id"] = id
        scope.setdefault(_GIVEN, (id, self._header))
        token = request_id.current.set(id)
        try:
            await self.app(scope, receive, send if leaves else answer)
        finally:
            request_id.current.reset(token)
            if outer is None:
                scope.pop(_GIVEN, None)

    def _from(self, existing: Callable[[], str | None]) -> str | None:
        try:
            return request_id.plain_or_none(existing())
        except Exception as error:
            say_error("use_existing= of RequestIDMiddleware failed, and the request's ID is another", error)
            return None

    def _inbound(self, scope: _Scope) -> str | None:
        if not self._trust:
            return None
        found = [value for name, value in scope["headers"] if name.lower() == self._header]
        if len(found) != 1:
            return None  # two would let a client say one thing to a proxy and another to the app
        id: str = found[0].decode("latin-1")
        return id if request_id.plain(id) else None

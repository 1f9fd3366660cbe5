"""The ID of the request that the current code works for, and the carrier that takes it to the request's jobs."""

from __future__ import annotations

import re
import secrets
from base64 import b32encode
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar

from fastjobs.core.errors import RegistrationError

NAME = "request_id"
_PLAIN = re.compile(r"[A-Za-z0-9._:@/+=-]{1,128}\Z", re.ASCII)
current: ContextVar[str | None] = ContextVar("fastjobs.request_id", default=None)


def request_id() -> str | None:
    """The ID of the request this code works for, in a route or in a job that one pushed; None where there's none."""
    return current.get()


def plain(id: str) -> bool:
    """Whether this can be a request's ID: 1 to 128 of A-Z a-z 0-9 . _ : @ / + = -."""
    return _PLAIN.match(id) is not None


def plain_or_none(id: object) -> str | None:
    """What someone else has for an ID, if it can be one."""
    return id if isinstance(id, str) and plain(id) else None


def new_id() -> str:
    """A new ID: 26 characters, 16 random bytes."""
    return b32encode(secrets.token_bytes(16)).decode().rstrip("=")


def carried_id(carried: Mapping[str, str]) -> str | None:
    """The request's ID among what a job carried, if it is one."""
    found = carried.get(NAME)
    return found if found is not None and plain(found) else None


class CarryRequestID:
    """Carries the request's ID to its jobs, where `request_id()` answers it and the job's log lines say it.

    The ID is what `RequestIDMiddleware` gave the request. One that isn't plain is not restored.

    `use_existing` is a context variable in which another library keeps the ID, such as asgi-correlation-id's
    `correlation_id`: it's carried from there where no RequestIDMiddleware is, and is there again in the job, for that
    library's log filter. RegistrationError for what is no ContextVar.
    """

    existing: ContextVar[str | None] | None = None

    def __init__(self, *, use_existing: ContextVar[str | None] | None = None) -> None:
        if use_existing is None:
            return  # with nothing of its own it's made in a process too
        if not isinstance(use_existing, ContextVar):
            raise RegistrationError(
                f"CarryRequestID: use_existing is a ContextVar, which is set again in the job, not {use_existing!r}"
            )
        self.existing = use_existing
        self.in_process = CarryRequestID

    def carry(self, into: MutableMapping[str, str]) -> None:
        """The ID, if the current code works for a request."""
        found = current.get()
        if found is None and self.existing is not None:
            found = plain_or_none(self.existing.get(None))
        if found is not None:
            into[NAME] = found

    def restore(self, carried: Mapping[str, str]) -> None:
        """Sets it, if it's plain."""
        found = carried_id(carried)
        current.set(found)
        if self.existing is not None:
            self.existing.set(found)

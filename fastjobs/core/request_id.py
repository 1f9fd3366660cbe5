"""The ID of the request that the current code works for, and the carrier that takes it to the request's jobs."""

from __future__ import annotations

import re
import secrets
from base64 import b32encode
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar

NAME = "request_id"
_PLAIN = re.compile(r"[A-Za-z0-9._:@/+=-]{1,128}\Z", re.ASCII)
current: ContextVar[str | None] = ContextVar("fastjobs.request_id", default=None)


def request_id() -> str | None:
    """The ID of the request this code works for, in a route or in a job that one pushed; None where there's none."""
    return current.get()


def plain(id: str) -> bool:
    """Whether this can be a request's ID: 1 to 128 of A-Z a-z 0-9 . _ : @ / + = -."""
    return _PLAIN.match(id) is not None


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
    """

    def carry(self, into: MutableMapping[str, str]) -> None:
        found = current.get()
        if found is not None:
            into[NAME] = found

    def restore(self, carried: Mapping[str, str]) -> None:
        current.set(carried_id(carried))

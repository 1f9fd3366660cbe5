"""Asks the carriers: at a push for what to carry, at a run to give it back. One that raises loses only its own part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastjobs.core.carrier import Carrier, FollowedPush, Follower, packed
from fastjobs.core.errors import CarryError
from fastjobs.runtime import following
from fastjobs.runtime.following import Followed
from fastjobs.runtime.lines import say_error


def gather(
    carriers: Sequence[tuple[Carrier, Follower | None]], kind: str, count: int, *, keeps: bool
) -> tuple[str | None, Followed | None]:
    """What a push of so many jobs carries from the current context, and those who follow it, if any.

    `keeps` is whether the store keeps what is carried. A CarryError where it's over a limit.
    """
    into: dict[str, str] = {}
    pushes: list[tuple[Carrier, FollowedPush]] = []
    for carrier, follower in carriers:
        push = None if follower is None else following.pushing(follower, kind, count)
        if push is not None:
            pushes.append((carrier, push))
        if not keeps:
            continue
        own: dict[str, str] = {}
        try:
            carrier.carry(own) if push is None else push.carry(own)
        except following.RAISED as error:
            say_error("a carrier failed, and its part is not carried", error, carrier=type(carrier).__name__)
        except BaseException as error:
            Followed(pushes).end(None, error)
            raise
        else:
            into = {**into, **own} if into else own
    followed = Followed(pushes) if pushes else None
    try:
        return packed(into), followed
    except CarryError as error:
        if followed is not None:
            followed.end(None, error)
        raise


def restore(carriers: Sequence[Carrier], carried: Mapping[str, str]) -> None:
    """Gives it back to the current context."""
    for carrier in carriers:
        try:
            carrier.restore(carried)
        except BaseException as error:  # as with a handler: a CancelledError of its own would end the worker
            say_error("a carrier failed, and its part is not restored", error, carrier=type(carrier).__name__)

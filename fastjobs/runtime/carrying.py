"""Asks the carriers: at a push for what to carry, at a run to give it back. One that raises loses only its own part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastjobs.core.carrier import Carrier, packed
from fastjobs.core.errors import CarryError
from fastjobs.runtime.following import Followed, Followers, followed
from fastjobs.runtime.lines import say_error


def gather(
    carriers: Sequence[Carrier], followers: Followers, kind: str, count: int, *, keeps: bool
) -> tuple[str | None, Followed | None]:
    """What a push of so many jobs carries from the current context, and those who follow it, if any.

    `keeps` is whether the store keeps what is carried. A CarryError where it's over a limit.
    """
    pushes = followed(followers, kind, count) if followers else {}
    into: dict[str, str] = {}
    if keeps:
        for carrier in carriers:
            own: dict[str, str] = {}
            follows = pushes.get(id(carrier)) if pushes else None
            try:
                carrier.carry(own) if follows is None else follows[1].carry(own)
            except Exception as error:
                say_error(
                    "a carrier failed, and its part is not carried", error, carrier=type(carrier).__name__
                )
            else:
                into.update(own)
    push = Followed(pushes) if pushes else None
    try:
        return packed(into), push
    except CarryError as error:
        if push is not None:
            push.end(None, error)
        raise


def restore(carriers: Sequence[Carrier], carried: Mapping[str, str]) -> None:
    """Gives it back to the current context."""
    for carrier in carriers:
        try:
            carrier.restore(carried)
        except BaseException as error:  # as with a handler: a CancelledError of its own would end the worker
            say_error("a carrier failed, and its part is not restored", error, carrier=type(carrier).__name__)

"""Asks the carriers: at a push for what to carry, at a run to give it back. One that raises loses only its own part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastjobs.core.carrier import Carrier, packed
from fastjobs.runtime.lines import say_error


def gather(carriers: Sequence[Carrier]) -> str | None:
    """What a push carries from the current context; a CarryError where it's over a limit."""
    if not carriers:
        return None
    into: dict[str, str] = {}
    for carrier in carriers:
        own: dict[str, str] = {}
        try:
            carrier.carry(own)
        except Exception as error:
            say_error("a carrier failed, and its part is not carried", error, carrier=type(carrier).__name__)
        else:
            into.update(own)
    return packed(into)


def restore(carriers: Sequence[Carrier], carried: Mapping[str, str]) -> None:
    """Gives it back to the current context."""
    for carrier in carriers:
        try:
            carrier.restore(carried)
        except BaseException as error:  # as with a handler: a CancelledError of its own would end the worker
            say_error("a carrier failed, and its part is not restored", error, carrier=type(carrier).__name__)

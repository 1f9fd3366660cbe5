"""What handles the kinds that have no handler: `@q.fallback`.

It's a kind of its own inside, and no job is ever pushed of it: claims have its numbers for all kinds that aren't named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack, cast

from fastjobs.core.claiming import Claimable
from fastjobs.core.errors import RegistrationError
from fastjobs.core.options import FallbackSettings, KindSettings
from fastjobs.core.payload import Codec
from fastjobs.runtime.kind import Kind

_NAME = "fallback"


def fallback_kind(handler: Callable[..., object], **options: Unpack[FallbackSettings]) -> Kind[Any]:
    """The handler as a kind; a RegistrationError for an option that it has none of, or that can't be."""
    unknown = set(options) - set(FallbackSettings.__annotations__)
    if unknown:
        raise RegistrationError(
            f"the fallback has no option {', '.join(sorted(unknown))}: it knows nothing of the kinds that it handles."
            f" There are {', '.join(sorted(FallbackSettings.__annotations__))}"
        )
    kind: Kind[Any] = Kind(_NAME, handler, cast("KindSettings", options))
    if not kind.signature.takes_value:
        kind.codec = Codec(_NAME, Any)  # jobs of any kind have values, though it takes none
    return kind


def others(fallback: Kind[Any] | None, most: int) -> Claimable | None:
    """What claims are asked for beside the named kinds: jobs are held for `most` microseconds at most."""
    if fallback is None:
        return None
    options = fallback.options
    # None is claimed ahead: another instance may know that the kind is one that isn't.
    return Claimable(
        kind="",
        hold=options.hold(most),
        attempts=options.attempts,
        priority=options.priority,
        ahead_ok=False,
    )

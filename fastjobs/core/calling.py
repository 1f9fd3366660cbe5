"""How what an app hands over may be called."""

from __future__ import annotations

import inspect
from collections.abc import Callable


def wrong_parameters(of: Callable[..., object]) -> str | None:
    """The parameters of what can't be called with one argument by position; None where it can, or can't be told."""
    try:
        signature = inspect.signature(of)
    except Exception:
        # There is none; or its annotations, which Python 3.14 works out here, raise anything.
        return None
    try:
        signature.bind(None)
    except TypeError:
        return str(signature)
    return None

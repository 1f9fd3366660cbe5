"""Why a value or a payload is refused, in words that never have the value in them: it may be secret.

So the text of an exception that a type's own code raised is left out, and its type and place are said instead.
"""

from __future__ import annotations

import math
import re
from typing import get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ErrorType

from fastjobs.core.sameness import Difference, path
from fastjobs.core.text import error_place

# Pydantic's own errors whose text may quote the input. The rest of its own say what they wanted, not what they got.
_QUOTING = frozenset(
    {
        "assertion_error", "datetime_object_invalid", "get_attribute_error", "iteration_error", "mapping_type",
        "timezone_offset", "union_tag_invalid", "uuid_parsing", "value_error",
    }
)  # fmt: skip
_PLAIN = frozenset(get_args(ErrorType)) - _QUOTING

_UNKNOWN = re.compile(r"Unable to serialize unknown type: (?:<class ')?([\w.<>]+)")
_CALLED = re.compile(r"Error calling function `(\w+)`")


def why_unfit(bad: BaseException) -> tuple[str, str]:
    """The path to the first field that doesn't fit, and why it doesn't."""
    if isinstance(bad, ValidationError):
        first = bad.errors(include_url=False)[0]
        more = bad.error_count() - 1
        return path(first["loc"]), _detail(first) + (f" (and {more} more)" if more else "")
    if isinstance(bad, RecursionError):
        return "", "it's nested too deep"
    return "", _raised(bad)


def _detail(error: ErrorDetails) -> str:
    if error["type"] in _PLAIN:
        return error["msg"]
    raised = error.get("ctx", {}).get("error")
    return _raised(raised) if isinstance(raised, Exception) else f"it's refused as {error['type']!r}"


def _raised(error: BaseException) -> str:
    place = error_place(error)
    return f"a {type(error).__name__} was raised{f' at {place}' if place else ''}"


def why_not_json(bad: Exception) -> str:
    """Why pydantic wrote no JSON."""
    text = str(bad)
    unknown, called = _UNKNOWN.match(text), _CALLED.search(text)
    if unknown:
        return f"pydantic writes no {unknown[1]}"
    if called:
        return f"its serializer {called[1]} raised an error"
    if isinstance(bad, RecursionError) or "depth exceeded" in text:
        return "it's nested too deep"
    if "Circular reference" in text:
        return "it has itself as a part"
    if "surrogates not allowed" in text:
        return "a text in it has half of a surrogate pair, which is no character"
    if "invalid utf-8" in text:
        return "bytes in it are no UTF-8; pydantic's Base64Bytes keeps any"
    return _raised(bad)


def why_not_same(found: Difference) -> str:
    """Why what came back isn't what went."""
    left, right = found.left, found.right
    if isinstance(left, float) and not math.isfinite(left):
        return "JSON has no NaN and no Infinity"
    if type(left) is not type(right):
        ours, theirs = type(left).__name__, type(right).__name__
        return f"what is of type {ours} comes back as {theirs}, so a part of it would be lost"
    return "JSON can't keep it, as with a secret, an excluded field, a private attribute or a key that is no string"

"""Whether a value came back as it was, and where it didn't: two values compared part by part."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from pydantic import BaseModel

from fastjobs.core.text import one_line

_DEEPEST = 20


class Difference(NamedTuple):
    """The first part in which two values differ."""

    field: str
    """The path to it, or "" for the values as a whole."""
    left: object
    right: object


def difference(left: object, right: object) -> Difference | None:
    """Where the two differ, None where they're equal and of one type.

    Datetimes of one instant are equal: Python holds those of two zones for unequal in the hour that comes twice
    as clocks go back. What can't be compared, as it raises or answers no truth, differs.
    """
    return _difference(left, right, (), typed=True)


def _difference(left: object, right: object, at: tuple[int | str, ...], typed: bool) -> Difference | None:
    if (not typed or type(left) is type(right)) and _equal(left, right):
        return None
    if _one_instant(left, right):
        return None
    here = Difference(path(at), left, right)
    if type(left) is not type(right) or len(at) >= _DEEPEST:
        return here
    ours, theirs = _parts(left), _parts(right)
    if ours is None or theirs is None:
        return here
    # Where each part is the same and the whole isn't, it's in what isn't seen here, as a private attribute; unless
    # a part was only the same as an instant is.
    excused = False
    for key, value in ours.items():
        name = key if isinstance(key, int) and isinstance(left, Sequence) else str(key)
        if key not in theirs:
            return Difference(path((*at, name)), left, right)
        found = _difference(value, theirs[key], (*at, name), typed=False)
        if found is not None:
            return found
        excused = excused or not _equal(value, theirs[key])
    return None if excused else here


def not_finite(value: object, at: tuple[int | str, ...] = ()) -> Difference | None:
    """Where the value has a NaN or an infinity, which pydantic writes as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return Difference(path(at), value, None)
    if len(at) < _DEEPEST:
        for key, part in (_parts(value) or {}).items():
            found = not_finite(part, (*at, key if isinstance(key, int) else str(key)))
            if found is not None:
                return found
    return None


def _equal(left: object, right: object) -> bool:
    try:
        return bool(left == right)
    except Exception:  # a type's own __eq__ may do anything, as an array's does
        return False


def _one_instant(left: object, right: object) -> bool:
    if not isinstance(left, datetime) or not isinstance(right, datetime):
        return False
    if left.utcoffset() is None or right.utcoffset() is None:
        return False
    return left.astimezone(UTC) == right.astimezone(UTC)


def _parts(value: object) -> Mapping[Any, object] | None:
    if isinstance(value, BaseModel):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name, None) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return cast("Mapping[Any, object]", value)
    if isinstance(value, (list, tuple)):
        return dict(enumerate(cast("Sequence[object]", value)))
    return None


def path(loc: Sequence[int | str]) -> str:
    """A pydantic location, or a path of keys, as text: `user.tags[2]`. A key is cut and made safe for a line."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            key = one_line(str(part), 64)
            text += f".{key}" if text else key
    return text

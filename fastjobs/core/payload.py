"""Values and payloads: a value goes to JSON and must come back equal, or the push fails and says where.

A type is anything pydantic's TypeAdapter takes: a model, a dataclass, a TypedDict, `int`, `list[UUID]`. The text
is ASCII, so that every database and driver keeps it as it is, NUL and emoji included.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from fastjobs.core.errors import PayloadError, RegistrationError

T = TypeVar("T")

_NOT_ASCII = re.compile("[^\x00-\x7f]")


class Codec(Generic[T]):
    """Turns the values of one kind into payloads and back."""

    def __init__(self, kind: str, annotation: Any) -> None:
        """Raises RegistrationError where pydantic makes nothing of the annotation."""
        self.kind = kind
        self.empty = annotation is None or annotation is type(None)
        if not self.empty and hasattr(annotation, "__mapper__"):
            raise RegistrationError(
                f"kind {kind!r}: {annotation!r} is a table's model, and a job keeps no record: it may have"
                " changed by the time the job runs. Take its id, as in class Job(BaseModel): id: int"
            )
        try:
            self._adapter: TypeAdapter[T] = TypeAdapter(cast("type[T]", annotation))
        except PydanticUserError as bad:
            raise RegistrationError(
                f"kind {kind!r}: its value can't be a {annotation!r}, as pydantic makes no JSON of it: {bad.message}"
            ) from bad

    def dump(self, value: T, most: int) -> str:
        """The payload of the value, at most `most` bytes; else a PayloadError that names the field."""
        try:
            checked = self._adapter.validate_python(value)
            text = _ascii(self._adapter.dump_json(checked, warnings=False))
        except ValidationError as bad:
            raise self._unfit(bad, "the value doesn't fit its kind's type") from None
        except RecursionError:
            raise PayloadError(
                f"kind {self.kind!r}: the value is nested too deep for JSON", kind=self.kind
            ) from None
        except Exception as bad:  # pydantic lets through what a type's own serializer raises
            raise PayloadError(
                f"kind {self.kind!r}: the value doesn't go to JSON: {type(bad).__name__}: {bad}",
                kind=self.kind,
            ) from bad
        if len(text) > most:
            raise PayloadError(
                f"kind {self.kind!r}: the value is {len(text):,} bytes as JSON, and max_payload is {most:,}."
                " Keep what is large elsewhere, and its id in the job",
                kind=self.kind,
            )
        try:
            back = self._adapter.validate_json(text)
        except ValidationError as bad:
            raise self._unfit(bad, "the value doesn't come back from its own JSON") from None
        if not same(checked, back):
            field = difference(checked, back)
            raise PayloadError(
                f"kind {self.kind!r}: the value doesn't come back from JSON as it was"
                f"{f', at {field}' if field else ''}: {_why(field, checked, back)}",
                kind=self.kind,
                field=field,
            )
        return text

    def load(self, payload: str) -> T:
        """The value of the payload, or a PayloadError: whoever wrote it, or its kind's type, has changed."""
        try:
            return self._adapter.validate_json(payload)
        except ValidationError as bad:
            raise self._unfit(bad, "the payload doesn't fit the handler's type") from None
        except (ValueError, RecursionError) as bad:
            raise PayloadError(
                f"kind {self.kind!r}: the payload can't be read: {bad}", kind=self.kind
            ) from bad

    def _unfit(self, bad: ValidationError, what: str) -> PayloadError:
        first = bad.errors(include_url=False, include_input=False, include_context=False)[0]
        field = path(first["loc"])
        more = bad.error_count() - 1
        return PayloadError(
            f"kind {self.kind!r}: {what}{f', at {field}' if field else ''}: {first['msg']}"
            f"{f' (and {more} more)' if more else ''}",
            kind=self.kind,
            field=field,
        )


def path(loc: Sequence[int | str]) -> str:
    """A pydantic location, or a path of keys, as text: `user.tags[2]`."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else str(part)
    return text


def same(left: object, right: object) -> bool:
    """Whether both are equal and of one type; False where comparing raises or answers no truth."""
    return type(left) is type(right) and _equal(left, right)


def _equal(left: object, right: object) -> bool:
    try:
        return bool(left == right)
    except Exception:  # a type's own __eq__ may do anything, as an array's does
        return False


def difference(left: object, right: object, at: tuple[int | str, ...] = ()) -> str:
    """The path to the first part in which the two differ."""
    inner = _parts(left), _parts(right)
    if inner[0] is not None and inner[1] is not None and type(left) is type(right) and len(at) < 20:
        for key, value in inner[0].items():
            name = key if isinstance(key, int) and isinstance(left, Sequence) else str(key)
            if key not in inner[1]:
                return path((*at, name))
            if not _equal(value, inner[1][key]):
                return difference(value, inner[1][key], (*at, name))
    return path(at)


def _parts(value: object) -> Mapping[Any, object] | None:
    if isinstance(value, BaseModel):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return cast("Mapping[Any, object]", value)
    if isinstance(value, (list, tuple)):
        return dict(enumerate(cast("Sequence[object]", value)))
    return None


def _why(field: str, value: object, back: object) -> str:
    found: object = value
    for part in re.findall(r"[^.\[\]]+", field):
        parts = _parts(found)
        if parts is None:
            break
        found = parts.get(part, parts.get(int(part)) if part.isdigit() else None)
    if isinstance(found, float) and not math.isfinite(found):
        return "JSON has no NaN and no Infinity"
    if type(value) is not type(back):
        return (
            f"a {type(value).__name__} comes back as a {type(back).__name__}, so a part of it would be lost"
        )
    return "JSON can't keep it, as with a secret, an excluded field or a key that is no string"


def _ascii(text: bytes) -> str:
    if text.isascii():
        return text.decode("ascii")
    return _NOT_ASCII.sub(_escaped, text.decode("utf-8"))


def _escaped(found: re.Match[str]) -> str:
    point = ord(found.group())
    if point < 0x10000:
        return f"\\u{point:04x}"
    point -= 0x10000
    return f"\\u{0xD800 + (point >> 10):04x}\\u{0xDC00 + (point & 0x3FF):04x}"

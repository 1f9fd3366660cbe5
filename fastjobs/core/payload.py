"""Values and payloads: a value goes to JSON and must come back equal, or the push fails and says where.

A type is anything pydantic's TypeAdapter takes: a model, a dataclass, a TypedDict, `int`, `list[UUID]`. The text
is ASCII, so that every database and driver keeps it as it is, NUL and emoji included.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from fastjobs.core.errors import PayloadError, RegistrationError
from fastjobs.core.refusal import why_not_json, why_not_same, why_unfit
from fastjobs.core.sameness import Difference, difference, not_finite
from fastjobs.core.unique import unordered

T = TypeVar("T")

_NOT_ASCII = re.compile("[^\x00-\x7f]")


class Codec(Generic[T]):
    """Turns the values of one kind into payloads and back.

    It asks the adapter's own validator and serializer: the adapter's methods cost as much again as what they call.
    """

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
            # Pydantic before 2.10 has no such attribute, and raises on its own.
            if not getattr(self._adapter, "pydantic_complete", True):
                self._adapter.rebuild(raise_errors=True)
        except PydanticUndefinedAnnotation as bad:
            raise RegistrationError(
                f"kind {kind!r}: its value is a {annotation!r}, and that has a part {bad.name!r} which isn't defined"
                " yet. Define a value's parts before its handler"
            ) from bad
        except PydanticUserError as bad:
            raise RegistrationError(
                f"kind {kind!r}: its value can't be a {annotation!r}, as pydantic makes no JSON of it: {bad.message}"
            ) from bad

        self._plain = annotation if _compares_fields_alone(annotation) else None
        """A model whose values are equal where their fields are: to ask that alone is much quicker."""

    @property
    def unordered(self) -> str | None:
        """The first type in it whose JSON has no order of its own: "set" or "frozenset"."""
        return None if self.empty else unordered(self._adapter.core_schema)

    def dump(self, value: T, most: int) -> str:
        """The payload of the value, at most `most` bytes; else a PayloadError that names the field.

        A field goes by its alias, or by its name where the value doesn't come back by aliases (as with a
        `serialization_alias` alone).
        """
        return self.dump_all((value,), most)[0]

    def dump_all(self, values: Iterable[T], most: int) -> list[str]:
        """The payload of each."""
        # Nearly all values come back by their aliases, in ASCII: in one go they cost half of what the rest does. And
        # it's one loop for all, as a call for each would cost a quarter of it.
        asks = self._adapter.validator.validate_python
        writes = self._adapter.serializer.to_json
        reads = self._adapter.validator.validate_json
        plain = self._plain
        payloads: list[str] = []
        for value in values:
            try:
                checked: T = asks(value)
                found = writes(checked, by_alias=True, warnings=False)
                back: T = reads(found)
                of = type(checked)
                is_same = type(back) is of and (
                    (of is plain and back.__dict__ == checked.__dict__) or bool(back == checked)
                )
            except Exception:  # the rest says what is wrong
                is_same, found = False, b""
            if (
                is_same
                and len(found) <= most
                and found.isascii()
                and b"NaN" not in found
                and b"Infinity" not in found
            ):
                payloads.append(str(found, "ascii"))
            else:
                payloads.append(self._dumped(value, most))
        return payloads

    def _dumped(self, value: T, most: int) -> str:
        checked = self._checked(value)
        by_alias = self._text(checked, most, by_alias=True)
        lost = self._lost(checked, by_alias)
        if lost is None:
            return by_alias
        by_name = self._text(checked, most, by_alias=False)
        if by_name != by_alias and self._lost(checked, by_name) is None:
            return by_name
        raise lost

    def load(self, payload: str) -> T:
        """The value of the payload, or a PayloadError: whoever wrote it, or its kind's type, has changed."""
        try:
            value: T = self._adapter.validator.validate_json(payload)
            return value
        except BaseException as bad:  # a type's own validator may raise anything, and a worker asks it
            raise self._unfit(bad, "the payload doesn't fit the handler's type") from None

    def _checked(self, value: T) -> T:
        try:
            checked: T = self._adapter.validator.validate_python(value)
            return checked
        except Exception as bad:  # a type's own validator may raise anything
            name = type(value).__name__
            if self.empty:
                raise PayloadError(
                    f"kind {self.kind!r}: its handler takes no value, and this push has one, of type {name}",
                    kind=self.kind,
                ) from None
            what = f"the value, of type {name}, doesn't fit its kind's type"
            raise self._unfit(bad, what) from None

    def _text(self, checked: T, most: int, *, by_alias: bool) -> str:
        try:
            text = _ascii(self._adapter.serializer.to_json(checked, by_alias=by_alias, warnings=False))
        except Exception as bad:  # pydantic lets through what a type's own serializer raises
            why = why_not_json(bad)
            raise PayloadError(
                f"kind {self.kind!r}: the value doesn't go to JSON: {why}", kind=self.kind
            ) from None
        if len(text) > most:
            raise PayloadError(
                f"kind {self.kind!r}: the value is {len(text):,} bytes as JSON, and max_payload is {most:,}."
                " Keep what is large elsewhere, and its id in the job",
                kind=self.kind,
            )
        return text

    def _lost(self, checked: T, text: str) -> PayloadError | None:
        """What is wrong where the text doesn't give the value back."""
        try:
            back = self._adapter.validator.validate_json(text)
        except Exception as bad:  # a type's own validator may raise anything
            found = not_finite(checked)
            return (
                self._not_same(found)
                if found
                else self._unfit(bad, "the value doesn't come back from its JSON")
            )
        found = difference(checked, back) or _constant(text)
        return self._not_same(found) if found else None

    def _not_same(self, found: Difference) -> PayloadError:
        return PayloadError(
            f"kind {self.kind!r}: the value doesn't come back from JSON as it was"
            f"{f', at {found.field}' if found.field else ''}: {why_not_same(found)}",
            kind=self.kind,
            field=found.field,
        )

    def _unfit(self, bad: BaseException, what: str) -> PayloadError:
        field, why = why_unfit(bad)
        return PayloadError(
            f"kind {self.kind!r}: {what}{f', at {field}' if field else ''}: {why}",
            kind=self.kind,
            field=field,
        )


def _compares_fields_alone(annotation: Any) -> bool:
    return (
        isinstance(annotation, type)
        and issubclass(annotation, BaseModel)
        and annotation.__eq__ is BaseModel.__eq__
        and not annotation.__private_attributes__
        and annotation.model_config.get("extra") != "allow"
    )


def _constant(text: str) -> Difference | None:
    """Where the text has what is no JSON: `ser_json_inf_nan="constants"` writes it, and pydantic reads it back."""
    if "Infinity" not in text and "NaN" not in text:
        return None
    return difference(json.loads(text, parse_constant=float), json.loads(text, parse_constant=_no_number))


def _no_number(name: str) -> None:
    """Stands for it where the two are compared."""


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

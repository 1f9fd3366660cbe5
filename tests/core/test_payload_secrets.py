"""A value is never in the message of the error that refuses it, nor in the traceback that is logged with it."""

from __future__ import annotations

import traceback
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import AfterValidator, BaseModel, Field, SecretStr, field_serializer, field_validator
from pydantic_core import PydanticCustomError

from fastjobs.core.errors import PayloadError
from fastjobs.core.payload import Codec

CANARY = "c4n4ry"


class Checked(BaseModel):
    text: str

    @field_validator("text")
    @classmethod
    def no_canary(cls, text: str) -> str:
        raise ValueError(f"{text} is not allowed")


class Asserted(BaseModel):
    text: str

    @field_validator("text")
    @classmethod
    def no_canary(cls, text: str) -> str:
        raise AssertionError(text)


class Custom(BaseModel):
    text: str

    @field_validator("text")
    @classmethod
    def no_canary(cls, text: str) -> str:
        raise PydanticCustomError("mine", "it is {text}", {"text": text})


class Serialized(BaseModel):
    text: str

    @field_serializer("text")
    def as_text(self, text: str) -> str:
        raise ValueError(text)


class Cat(BaseModel):
    pet: Literal["cat"]


class Dog(BaseModel):
    pet: Literal["dog"]


class Pets(BaseModel):
    it: Annotated[Cat | Dog, Field(discriminator="pet")]


class Hidden(BaseModel):
    it: SecretStr


class Numbered(BaseModel):
    it: int


def raises(text: str) -> str:
    raise KeyError(text)


class Wild(BaseModel):
    text: Annotated[str, AfterValidator(raises)]


class Plain(BaseModel):
    text: Any


class Tattler:
    def __eq__(self, other: object) -> bool:
        raise ValueError(CANARY)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return CANARY


VALUES: dict[str, tuple[Any, Any, str]] = {
    "a check that quotes it": (Checked, {"text": CANARY}, "a ValueError was raised at test_payload_secrets.py:"),
    "an assertion that quotes it": (Asserted, {"text": CANARY}, "an AssertionError was raised"),
    "an error of one's own": (Custom, {"text": CANARY}, "it's refused as 'mine'"),
    "a check that raises anything": (Wild, {"text": CANARY}, "a KeyError was raised at test_payload_secrets.py:"),
    "a serializer that quotes it": (Serialized, Serialized(text=CANARY), "its serializer as_text raised"),
    "a tag": (Pets, {"it": {"pet": CANARY}}, "it's refused as 'union_tag_invalid'"),
    "a number": (Numbered, {"it": CANARY}, "valid integer"),
    "a uuid": (UUID, CANARY, "it's refused as 'uuid_parsing'"),
    "a literal": (Cat, {"pet": CANARY}, "'cat'"),
    "a whole that doesn't fit": (Numbered, CANARY, ""),
    "a secret": (Hidden, Hidden(it=SecretStr(CANARY)), "secret"),
    "a set": (Plain, Plain(text={CANARY}), "set"),
    "what is no JSON": (Plain, Plain(text=Tattler()), "Tattler"),
    "half a surrogate pair": (Plain, Plain(text=CANARY + "\ud800"), "surrogate"),
    "bytes": (Plain, Plain(text=CANARY.encode() + b"\xff"), "UTF-8"),
    "a long one": (Plain, Plain(text=CANARY * 100), "max_payload is 500"),
    "a NaN beside it": (Any, [CANARY, float("nan")], "NaN"),
    "one nested too deep": (Any, {"a": [[[[CANARY, {1, 2}]]]]}, "set"),
}  # fmt: skip


@pytest.mark.parametrize(("annotation", "value", "why"), VALUES.values(), ids=VALUES.keys())
def test_a_refused_value_is_not_told(annotation: Any, value: Any, why: str) -> None:
    codec: Codec[Any] = Codec("k", annotation)
    with pytest.raises(PayloadError) as caught:
        codec.dump(value, 500)
    assert why.replace("an A", "A") in str(caught.value).replace("a A", "A")
    assert CANARY not in str(caught.value)
    assert CANARY not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("payload", [f'{{"text":"{CANARY}"}}', f'"{CANARY}"', CANARY, f'["{CANARY}"'])
@pytest.mark.parametrize("annotation", [Checked, Asserted, Custom, Wild, Pets, UUID, Numbered])
def test_a_payload_that_does_not_fit_is_not_told(annotation: Any, payload: str) -> None:
    codec: Codec[Any] = Codec("k", annotation)
    with pytest.raises(PayloadError) as caught:
        codec.load(payload)
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_a_key_names_a_field_cut_and_on_one_line() -> None:
    codec: Codec[Any] = Codec("k", dict[str, int])
    with pytest.raises(PayloadError) as caught:
        codec.dump({"a\r\n\x1b[2J\u202e" + "x" * 10_000: "no"}, 500)
    assert caught.value.field.startswith("a\\r\\n\\x1b[2J\\u202exxx")
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)

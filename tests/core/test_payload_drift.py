"""A payload outlives the type it was written by: what still fits is read, and the rest names its field."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from fastjobs.core.errors import PayloadError
from fastjobs.core.payload import Codec


class Old(BaseModel):
    user: int
    size: str = "small"


class WithDefault(Old):
    note: str = "none"


class WithoutDefault(Old):
    note: str


class Renamed(BaseModel):
    person: int


class Retyped(BaseModel):
    user: list[int]


class Fewer(BaseModel):
    user: int


class FewerAndStrict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    user: int


class Size(StrEnum):
    LARGE = "large"


class Gone(BaseModel):
    user: int
    size: Size


class Deep(BaseModel):
    many: list[Retyped]


class NewAlias(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    user: int = Field(alias="userId")


PAYLOAD = Codec[Old]("k", Old).dump(Old(user=7), 1000)


def test_a_field_that_was_added_with_a_default_has_it() -> None:
    assert Codec[WithDefault]("k", WithDefault).load(PAYLOAD) == WithDefault(user=7, note="none")


def test_a_field_that_was_removed_is_passed_over() -> None:
    assert Codec[Fewer]("k", Fewer).load(PAYLOAD) == Fewer(user=7)


def test_a_field_that_got_an_alias_is_read_by_its_name_where_the_model_says_so() -> None:
    assert Codec[NewAlias]("k", NewAlias).load(PAYLOAD).user == 7


@pytest.mark.parametrize(
    ("now", "payload", "field", "why"),
    [
        (WithoutDefault, PAYLOAD, "note", "Field required"),
        (Renamed, PAYLOAD, "person", "Field required"),
        (Retyped, PAYLOAD, "user", "valid array"),
        (FewerAndStrict, PAYLOAD, "size", "not permitted"),
        (Gone, PAYLOAD, "size", "'large'"),
        (Deep, '{"many":[{"user":[1]},{"user":[1,"x"]}]}', "many[1].user[1]", "valid integer"),
        (None, PAYLOAD, "", "null"),
        (Old, "null", "", ""),
        (Old, "", "", "Invalid JSON"),
        (Old, '{"user":7', "", "Invalid JSON"),
        (Old, "{'user':7}", "", "Invalid JSON"),
        (Old, '{"user":' + "1" * 5000 + "}", "", "Invalid JSON"),
        (Any, "[" * 100_000, "", "Invalid JSON"),
        (Old, '{"user":NaN}', "user", ""),
        (Old, "\ud800", "", ""),
    ],
)
def test_what_no_longer_fits_is_refused_and_its_field_named(
    now: Any, payload: str, field: str, why: str
) -> None:
    with pytest.raises(PayloadError) as caught:
        Codec[Any]("k", now).load(payload)
    assert caught.value.kind == "k"
    assert caught.value.field == field
    assert "the payload doesn't fit the handler's type" in str(caught.value)
    assert why in str(caught.value)


def test_how_many_more_fields_do_not_fit_is_said() -> None:
    with pytest.raises(PayloadError, match=r"at user: .* \(and 1 more\)"):
        Codec[Old]("k", Old).load('{"user":"x","size":1}')

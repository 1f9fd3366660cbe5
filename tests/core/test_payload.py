"""A value comes back from its payload as it was, or the push fails and says where.

Longer than 300 lines, as it's one table of values with what becomes of each.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    Base64Bytes,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    RootModel,
    SecretStr,
    SerializerFunctionWrapHandler,
    computed_field,
    field_serializer,
    model_serializer,
)
from pydantic.alias_generators import to_camel
from typing_extensions import TypedDict

from fastjobs.core.errors import PayloadError, RegistrationError
from fastjobs.core.payload import Codec

MOST = 1_000_000
T = TypeVar("T")


def there_and_back(annotation: Any, value: Any) -> Any:
    codec: Codec[Any] = Codec("k", annotation)
    payload = codec.dump(value, MOST)
    assert payload.isascii()
    json.loads(payload, parse_constant=pytest.fail)
    return codec.load(payload)


def refused(annotation: Any, value: Any) -> PayloadError:
    codec: Codec[Any] = Codec("k", annotation)
    with pytest.raises(PayloadError) as caught:
        codec.dump(value, MOST)
    assert caught.value.kind == "k"
    assert "kind 'k'" in str(caught.value)
    return caught.value


class Colour(Enum):
    RED = "red"


class Size(StrEnum):
    SMALL = "small"


class Level(IntEnum):
    LOW = 1


class Mail(BaseModel):
    user: int
    subject: str = ""


class Cat(BaseModel):
    pet: Literal["cat"] = "cat"
    lives: int


class Dog(BaseModel):
    pet: Literal["dog"] = "dog"
    name: str


class Page(BaseModel, Generic[T]):
    items: list[T]


@dataclass
class Point:
    x: int
    y: float = 0.0


class Row(TypedDict, total=False):
    id: int
    name: str


class Pair(NamedTuple):
    left: int
    right: str


class Tags(RootModel[list[str]]):
    pass


class Aliased(BaseModel):
    user_name: str = Field(alias="userName")


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)
    first_name: str
    inner_part: Aliased


class OutAliased(BaseModel):
    user_name: str = Field(serialization_alias="userName")


class OutAliasedWithDefault(BaseModel):
    user_name: str = Field("nobody", serialization_alias="userName")


class InAliased(BaseModel):
    user_name: str = Field(validation_alias="userName")


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    x: int


class Computed(BaseModel):
    x: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return self.x * 2


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    id: UUID
    at: datetime
    size: Size
    pair: tuple[int, ...]


class Base64(BaseModel):
    raw: Base64Bytes


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


COMES_BACK: dict[str, tuple[Any, Any]] = {
    "none": (None, None),
    "int": (int, 5),
    "2**53+1": (int, 2**53 + 1),
    "2**63": (int, 2**63),
    "2**64": (int, 2**64),
    "401 digits": (int, 10**400),
    "401 digits, in a dict": (dict[str, Any], {"n": -(10**400)}),
    "the longest int": (int, 10**4299),
    "bool": (bool, True),
    "float": (float, 0.1 + 0.2),
    "the least float": (float, 5e-324),
    "the greatest float": (float, 1.7976931348623157e308),
    "str": (str, "é\u2028\U0001f600"),
    "NUL": (str, "a\0b"),
    "empty": (str, ""),
    "escapes": (str, '\\u0000"\\\x7f\x1b'),
    "bytes that are text": (bytes, b"ab\0"),
    "any bytes, as base64": (Base64, Base64(raw=b64encode(bytes(range(256))))),
    "decimal": (Decimal, Decimal("1.10")),
    "fraction of a second": (timedelta, timedelta(days=-1, microseconds=1)),
    "uuid": (UUID, UUID("12345678-1234-5678-1234-567812345678")),
    "datetime in UTC": (datetime, datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)),
    "datetime with an offset": (datetime, datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=-9, minutes=-30)))),
    "datetime with a zone": (datetime, datetime(2026, 7, 2, tzinfo=ZoneInfo("Europe/Berlin"))),
    "naive datetime": (datetime, datetime(2026, 1, 2)),
    "date": (date, date(2026, 1, 2)),
    "time": (time, time(1, 2, 3)),
    "set": (set[int], {1, 2}),
    "frozenset": (frozenset[str], frozenset({"a"})),
    "tuple": (tuple[int, str], (1, "a")),
    "enum": (Colour, Colour.RED),
    "str enum": (Size, Size.SMALL),
    "int enum": (Level, Level.LOW),
    "literal": (Literal["a", 1], 1),
    "path": (PurePosixPath, PurePosixPath("/a/b")),
    "address": (IPv4Address, IPv4Address("127.0.0.1")),
    "int keys": (dict[int, int], {1: 2, -3: 4}),
    "uuid keys": (dict[UUID, int], {UUID(int=7): 1}),
    "optional": (int | None, None),
    "int, not float": (int | float, 1),
    "float, not int": (int | float, 1.0),
    "str, not int": (int | str, "1"),
    "date, not str": (date | str, date(2026, 1, 2)),
    "model": (Mail, Mail(user=1, subject="é")),
    "models": (list[Mail], [Mail(user=1), Mail(user=2)]),
    "model of models": (Tree, Tree(value=1, children=[Tree(value=2)])),
    "one of two models": (Cat | Dog, Dog(name="x")),
    "discriminated": (Annotated[Cat | Dog, Field(discriminator="pet")], Cat(lives=9)),
    "generic model": (Page[Mail], Page[Mail](items=[Mail(user=1)])),
    "root model": (Tags, Tags(["a"])),
    "dataclass": (Point, Point(1, 2.5)),
    "typed dict": (Row, {"id": 1}),
    "named tuple": (Pair, Pair(1, "a")),
    "alias": (Aliased, Aliased(userName="x")),
    "alias generator, and an alias in it": (Camel, Camel(first_name="x", inner_part=Aliased(userName="y"))),
    "an alias that goes out only": (OutAliased, OutAliased(user_name="x")),
    "an alias out only, with a default": (OutAliasedWithDefault, OutAliasedWithDefault(user_name="x")),
    "more than its fields": (Open, Open(x=1, **{"more": [1, {"a": None}]})),
    "computed": (Computed, Computed(x=2)),
    "strict": (Strict, Strict(id=UUID(int=1), at=datetime(2026, 1, 1, tzinfo=UTC), size=Size.SMALL, pair=(1, 2))),
    "any JSON": (Any, {"a": [1, 2.5, None, True, "x", {}]}),
    "mapping": (Mapping[str, int], {"a": 1}),
    "optional in a field": (dict[str, float | None], {"a": None}),
}  # fmt: skip


@pytest.mark.parametrize(("annotation", "value"), COMES_BACK.values(), ids=COMES_BACK.keys())
def test_a_value_comes_back_as_it_was(annotation: Any, value: Any) -> None:
    back = there_and_back(annotation, value)
    assert back == value
    assert type(back) is type(value)


def test_minus_zero_keeps_its_sign() -> None:
    assert math.copysign(1, there_and_back(float, -0.0)) == -1


def test_an_alias_is_what_the_payload_says() -> None:
    assert Codec[Aliased]("k", Aliased).dump(Aliased(userName="x"), MOST) == '{"userName":"x"}'


def test_an_alias_for_one_way_that_no_payload_can_have_is_refused_clearly() -> None:
    error = refused(InAliased, InAliased.model_validate({"userName": "x"}))
    assert error.field == "userName"
    assert "doesn't come back from its JSON, at userName: Field required" in str(error)


@pytest.mark.parametrize("fold", [0, 1])
def test_the_hour_that_comes_twice_comes_back_as_the_same_instant(fold: int) -> None:
    # Python holds datetimes of two zones for unequal in that hour, whichever they are.
    twice = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=fold)
    assert there_and_back(datetime, twice).astimezone(UTC) == twice.astimezone(UTC)

    class Due(BaseModel):
        by: dict[str, list[datetime]]

    back = there_and_back(Due, Due(by={"x": [twice]}))
    assert back.by["x"][0].astimezone(UTC) == twice.astimezone(UTC)


def test_a_twice_told_hour_excuses_nothing_else() -> None:
    class Due(BaseModel):
        at: datetime
        secret: SecretStr

    twice = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert refused(Due, Due(at=twice, secret=SecretStr("x"))).field == "secret"


def test_a_dict_that_fits_stands_for_its_model() -> None:
    assert there_and_back(Mail, {"user": 1}) == Mail(user=1)


def test_what_validation_makes_of_a_value_is_what_is_kept() -> None:
    assert there_and_back(int, "5") == 5
    assert there_and_back(Mail, {"user": "5"}) == Mail(user=5)


# What isn't kept.


class Number(BaseModel):
    x: float


class Numbers(BaseModel):
    one: float | None = None
    many: list[float] = []
    by_name: dict[str, float] = {}


class Constants(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="constants")
    title: str = "NaN and Infinity"
    xs: list[float]


WITH_A_NUMBER: list[tuple[Any, Callable[[float], Any], str]] = [
    (float, lambda x: x, ""),
    (Number, lambda x: Number(x=x), "x"),
    (Numbers, lambda x: Numbers(one=x), "one"),
    (Numbers, lambda x: Numbers(many=[0, x]), "many[1]"),
    (Numbers, lambda x: Numbers(by_name={"a": x}), "by_name.a"),
    (list[Number], lambda x: [Number(x=1), Number(x=x)], "[1].x"),
    (Any, lambda x: {"a": [x]}, "a[0]"),
    (Constants, lambda x: Constants(xs=[1, x]), "xs[1]"),
]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, float("1e309"), float("-1e400")])
@pytest.mark.parametrize(("annotation", "wrap", "where"), WITH_A_NUMBER)
def test_what_is_no_number_in_json_is_refused_and_named(
    annotation: Any, wrap: Callable[[float], Any], where: str, bad: float
) -> None:
    error = refused(annotation, wrap(bad))
    assert error.field == where
    assert where in str(error)
    assert "JSON has no NaN and no Infinity" in str(error)


def test_a_text_that_speaks_of_infinity_is_a_text() -> None:
    assert there_and_back(Constants, Constants(xs=[1])) == Constants(xs=[1])
    assert there_and_back(str, "-Infinity, NaN") == "-Infinity, NaN"


@pytest.mark.parametrize("value", [10**4300, -(10**5000)], ids=["4301 digits", "5001 digits"])
def test_an_int_that_no_text_is_made_of_is_refused_at_the_push(value: int) -> None:
    assert "doesn't" in str(refused(int, value))
    refused(Any, {"n": value})


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_half_a_surrogate_pair_is_refused(text: str) -> None:
    assert "half of a surrogate pair" in str(refused(Any, text))
    refused(str, text)
    refused(dict[str, int], {text: 1})
    refused(Mail, Mail(user=1, subject=text))


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def test_a_value_nested_a_hundred_deep_comes_back() -> None:
    assert there_and_back(Any, nested(99)) == nested(99)


@pytest.mark.parametrize("depth", [300, 100_000])
def test_a_value_nested_too_deep_is_refused(depth: int) -> None:
    assert "nested too deep" in str(refused(Any, nested(depth)))


def test_a_model_nested_too_deep_is_refused() -> None:
    deep = Tree(value=0)
    for _ in range(5000):
        deep = Tree.model_construct(value=0, children=[deep])
    assert "nested too deep" in str(refused(Tree, deep))


def test_a_cycle_is_refused() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    assert "itself" in str(refused(Any, cycle))
    tree = Tree(value=1)
    tree.children.append(tree)
    assert "itself" in str(refused(Tree, tree))


class Stranger:
    pass


class LooseModel(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    it: Stranger


class Loose(BaseModel):
    what: Any


class Secret(BaseModel):
    password: SecretStr


class Left(BaseModel):
    kept: int = 0
    out: int = Field(0, exclude=True)


class Base(BaseModel):
    x: int


class Sub(Base):
    y: int = 0


class Holder(BaseModel):
    it: Base
    more: list[Base] = []


class Hidden(BaseModel):
    x: int
    _seen: int = PrivateAttr(0)

    def with_seen(self) -> Hidden:
        self._seen = 1
        return self


class Rounds(BaseModel):
    x: float

    @field_serializer("x")
    def rounded(self, x: float) -> float:
        return round(x)


class Drops(BaseModel):
    a: int = 0
    b: int = 0

    @model_serializer(mode="wrap")
    def without(self, wrapped: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in wrapped(self).items() if name == "a"}


class Array:
    """As an array of numpy's: == answers an array, whose truth is an error."""

    def __eq__(self, other: object) -> Array:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return self

    def __bool__(self) -> bool:
        raise ValueError("the truth of an array is ambiguous")


class Arrays(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    data: Array

    @field_serializer("data")
    def as_list(self, data: Array) -> list[int]:
        return [1]


@dataclass
class Half:
    kept: int
    made: float = field(default_factory=lambda: math.nan)


DOES_NOT_COME_BACK: dict[str, tuple[Any, Any, str, str]] = {
    "a set, as anything": (Any, {1}, "", "set comes back as list"),
    "a tuple in a field of any type": (Loose, Loose(what=(1,)), "what", "tuple comes back as list"),
    "bytes, as anything": (Loose, Loose(what=b"a"), "what", "bytes comes back as str"),
    "a decimal, as anything": (Loose, Loose(what=Decimal(1)), "what", "Decimal comes back as str"),
    "a datetime, as anything": (Loose, Loose(what=datetime(2026, 1, 1)), "what", "comes back as str"),
    "a key that is no string": (Any, {1: 2}, "1", "key that is no string"),
    "two keys of one name": (Any, {1: 1, "1": 2}, "1", ""),
    "a secret": (Secret, Secret(password=SecretStr("x")), "password", "secret"),
    "a field that is left out": (Left, Left(out=1), "out", ""),
    "a subclass": (Base, Sub(x=1), "", "Sub comes back as Base"),
    "a subclass in a field": (Holder, Holder(it=Sub(x=1)), "it", "Sub comes back as Base"),
    "a subclass in a list": (Holder, Holder(it=Base(x=1), more=[Base(x=1), Sub(x=1)]), "more[1]", "Sub"),
    "a private attribute": (Hidden, Hidden(x=1).with_seen(), "", "private attribute"),
    "a serializer that rounds": (Rounds, Rounds(x=1.5), "x", ""),
    "a serializer that drops": (Drops, Drops(b=1), "b", ""),
    "a dataclass with a NaN": (Half, Half(1), "made", "NaN"),
    "bytes that are no text": (bytes, b"\xff", "", "no UTF-8"),
    "what is no JSON": (Any, Stranger(), "", "Stranger"),
    "a type of its own": (LooseModel, LooseModel(it=Stranger()), "", "Stranger"),
    "what was changed to what doesn't fit": (Mail, Mail.model_construct(user="abc"), "user", "valid integer"),
    "what doesn't fit": (Mail, {"user": "abc"}, "user", "valid integer"),
    "what is missing": (Mail, {}, "user", "Field required"),
    "a value for a kind without one": (None, 5, "", "takes no value"),
    "none for a kind with one": (Mail, None, "", ""),
    "an iterator": (Iterable[int], [1, 2], "", ""),
}  # fmt: skip


@pytest.mark.parametrize(
    ("annotation", "value", "where", "why"), DOES_NOT_COME_BACK.values(), ids=DOES_NOT_COME_BACK.keys()
)
def test_what_does_not_come_back_is_refused_and_its_field_named(
    annotation: Any, value: Any, where: str, why: str
) -> None:
    error = refused(annotation, value)
    assert error.field == where
    assert where in str(error)
    assert why in str(error)


def test_what_cannot_be_compared_is_refused() -> None:
    refused(Arrays, Arrays(data=Array()))


def test_an_extra_field_that_comes_back_as_another_is_refused() -> None:
    refused(Open, Open.model_validate({"x": 1, "at": datetime(2026, 1, 1, tzinfo=UTC)}))


def test_a_field_that_was_set_to_what_it_can_not_be_is_refused() -> None:
    mail = Mail(user=1)
    mail.user = "2"  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    refused(Mail, mail)


def test_a_left_out_field_with_its_default_has_lost_nothing() -> None:
    assert there_and_back(Left, Left(kept=2, out=0)) == Left(kept=2, out=0)


def test_a_fraction_comes_back_or_is_refused() -> None:
    codec: Codec[Any] = Codec("k", Any)
    with pytest.raises(PayloadError):
        codec.dump(Fraction(1, 3), MOST)


# Size.


def test_a_payload_may_have_max_payload_bytes_and_not_one_more() -> None:
    codec = Codec[str]("k", str)
    assert len(codec.dump("a" * 98, 100)) == 100
    with pytest.raises(PayloadError, match=r"101 bytes as JSON, and max_payload is 100\.") as caught:
        codec.dump("a" * 99, 100)
    assert "aaa" not in str(caught.value)


def test_the_size_is_counted_in_bytes_as_kept() -> None:
    codec = Codec[str]("k", str)
    assert codec.dump("é", 8) == '"\\u00e9"'
    with pytest.raises(PayloadError, match="14 bytes"):
        codec.dump("\U0001f600", 8)


# Every JSON value.

SCALARS = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text()
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)


def exact(value: object) -> str:
    """The value as a text in which 1, 1.0 and True, or 0.0 and -0.0, are not the same."""
    return repr(value)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(JSON)
def test_every_json_value_comes_back_exactly_or_is_refused(value: Any) -> None:
    codec: Codec[Any] = Codec("k", Any)
    try:
        payload = codec.dump(value, MOST)
    except PayloadError:
        assert "nan" in exact(value) or "inf" in exact(value)
        return
    assert payload.isascii()
    assert exact(codec.load(payload)) == exact(value)
    assert exact(json.loads(payload)) == exact(value)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.builds(Mail, user=st.integers(), subject=st.text()))
def test_every_model_comes_back(mail: Mail) -> None:
    assert there_and_back(Mail, mail) == mail


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.datetimes(timezones=st.timezones()))
def test_every_instant_comes_back(at: datetime) -> None:
    try:
        utc = at.astimezone(UTC)
    except OverflowError:
        return
    try:
        back: datetime = there_and_back(datetime, at)
    except PayloadError:
        # An offset of seconds, as zones had before they were railway time, is no ISO 8601.
        offset = at.utcoffset()
        assert offset is not None
        assert offset % timedelta(minutes=1)
        return
    assert back.astimezone(UTC) == utc


# Types.


class Unknown(BaseModel):
    model_config = ConfigDict(defer_build=True)
    it: Nowhere  # type: ignore[name-defined]  # pyright: ignore[reportUndefinedVariable]  # noqa: F821


@pytest.mark.parametrize("annotation", [Stranger, 5, list[Stranger]])
def test_a_type_that_pydantic_makes_no_json_of_is_an_error_as_it_is_registered(annotation: Any) -> None:
    with pytest.raises(
        RegistrationError, match=r"kind 'k': its value can't be a .* pydantic makes no JSON of it"
    ):
        Codec("k", annotation)


def test_a_type_with_a_part_that_is_not_defined_is_an_error_as_it_is_registered() -> None:
    with pytest.raises(RegistrationError, match="a part 'Nowhere' which isn't defined yet"):
        Codec("k", Unknown)


def test_a_record_of_a_database_is_an_error_as_it_is_registered() -> None:
    class Record(BaseModel):
        pass

    Record.__mapper__ = object()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(RegistrationError, match=r"is a table's model.* Take its id"):
        Codec("k", Record)


def test_a_model_whose_building_was_put_off_is_built() -> None:
    class Late(BaseModel):
        model_config = ConfigDict(defer_build=True)
        x: int

    assert there_and_back(Late, Late(x=1)) == Late(x=1)

"""Keys of values, pinned, as they're kept in databases; and what Unique and Throttle may be given."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, IntEnum, StrEnum
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, PlainSerializer

from fastjobs import Limiter, Memory, Queue, RegistrationError, Throttle, Unique
from fastjobs.core.duration import SECOND
from fastjobs.core.options import KindSettings, checked
from fastjobs.core.payload import Codec
from fastjobs.core.rate import waited
from fastjobs.core.unique import canonical_writer, key_of


@pytest.mark.parametrize(
    ("payload", "key"),
    [
        ("null", "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"),
        ("1", "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"),
        ("1.0", "d0ff5974b6aa52cf562bea5921840c032a860a91a3512f7fe8f768f6bbe005f6"),
        ('"\\u00e9"', "abc3932c9ec58f042750738c49034e7ee67cf556d6be86832ac3dda38decb703"),
        ('{"a":1,"b":[true,null,"x"]}', "eca8cfb31ab74533e1eb2f4c74d2d55dfe3c79ac704787e54be8647ea7777eb1"),
    ],
)
def test_the_key_of_a_value_never_changes(payload: str, key: str) -> None:
    assert key_of(payload).hex() == key


def test_a_value_is_the_same_whatever_the_order_of_its_keys_and_its_spaces() -> None:
    assert key_of('{"a": 1, "b": {"d": 2, "c": 3}}') == key_of('{"b":{"c":3,"d":2},"a":1}')


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "1.0"), ("9007199254740993", "9007199254740992"), ('"Bob"', '"bob"'), ('"bob"', '"bob "'),
        ('"\\u00e9"', '"e\\u0301"'), ('{"a":null}', "{}"), ("[1,2]", "[2,1]"), ('"1"', "1"), ("0", "false"),
    ],
)  # fmt: skip
def test_values_that_differ_have_two_keys(one: str, other: str) -> None:
    assert key_of(one) != key_of(other)


@pytest.mark.parametrize("has", ["its own", "none", "another's"])
def test_a_key_is_of_the_same_text_whatever_encoder_json_has(
    has: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        if has == "none":
            patched.setattr("json.encoder.c_make_encoder", None)
        elif has == "another's":
            patched.setattr("json.encoder.c_make_encoder", dict)  # takes no such arguments
        write = canonical_writer()
    deep: Any = 0
    for _ in range(200):
        deep = {"a": [deep]}
    values: list[Any] = [
        None, True, 7, -1.5, 1e300, math.inf, 10**40, "", "\u00e9\ud800\U0001f600\n/<", [], {}, [[1, {}], "x"],
        {"b": 1, "a": {"\u00e9": None, "": [2.0]}}, deep,
    ]  # fmt: skip
    for value in values:
        assert write(value) == json.dumps(value, sort_keys=True, separators=(",", ":"))


class Tags(BaseModel):
    names: set[str]


class Around(BaseModel):
    tags: Tags | None = None


@dataclass
class Group:
    members: list[frozenset[int]]


class Sorted(BaseModel):
    names: Annotated[set[str], PlainSerializer(sorted)]


class NamedSet(BaseModel):
    """Nothing in it is a set."""

    type: str = "set"
    by_name: dict[str, list[int]] = {}


@pytest.mark.parametrize(
    ("annotation", "found"),
    [
        (set[int], "set"), (Tags, "set"), (Around, "set"), (list[Around], "set"), (Group, "frozenset"),
        (dict[str, set[str] | None], "set"), (Sorted, None), (NamedSet, None), (int, None), (None, None),
    ],
)  # fmt: skip
def test_a_set_anywhere_in_a_value_is_found(annotation: Any, found: str | None) -> None:
    assert Codec("k", annotation).unordered == found


def test_a_unique_kind_of_a_value_without_an_order_is_refused_and_told_what_to_do() -> None:
    queue = Queue(Memory())

    async def tag(value: Around) -> None: ...

    with pytest.raises(RegistrationError, match=r"kind 'tag': its value has a set in it, .* PlainSerializer"):
        queue.kind("tag", unique=True)(tag)
    queue.kind("tag")(tag)  # without unique= it's a value as any


def test_a_set_that_a_serializer_sorts_has_one_key() -> None:
    codec: Codec[Sorted] = Codec("k", Sorted)
    text = codec.dump(Sorted(names={"b", "a", "c"}), 1000)
    assert json.loads(text) == {"names": ["a", "b", "c"]}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"at_most": 5}, "at_most .* needs latest=True"),
        ({"latest": True, "at_most": 0}, "at_most is at least"),
        ({"latest": True, "at_most": -1}, "at_most is at least"),
        ({"latest": True, "at_most": math.nan}, "at_most is a number of seconds"),
        ({"latest": True, "at_most": True}, "at_most is seconds or a timedelta"),
        ({"latest": 1}, "latest is True or False, not 1"),
        ({"one_at_a_time": None}, "one_at_a_time is True or False, not None"),
    ],
)
def test_a_unique_that_cannot_be_says_so(given: dict[str, Any], told: str) -> None:
    with pytest.raises(RegistrationError, match=f"^Unique: .*{told}"):
        Unique(**given)


def of_nothing() -> int:
    return 1


def of_two(value: int, other: int) -> int:
    return value + other


@pytest.mark.parametrize(
    ("most", "more", "told"),
    [
        (0, {"per": 1}, "max is a whole number from 1 to 10,000, not 0"),
        (10_001, {"per": 1}, "not 10001"),
        (True, {"per": 1}, "not True"),
        (1.5, {"per": 1}, r"not 1\.5"),
        (1, {"per": 0}, "per is at least"),
        (1, {"per": -1}, "per is at least"),
        (1, {"per": math.inf}, "per is a number of seconds"),
        (1, {"per": timedelta(days=400)}, "per is at most a year"),
        (1, {"per": 1, "by": "user"}, "by is a plain function"),
        (
            1,
            {"per": 1, "by": of_nothing},
            "by is a plain function of one value, and it can't be called with one",
        ),
        (1, {"per": 1, "by": of_two}, "it can't be called with one"),
    ],
)
def test_a_throttle_that_cannot_be_says_so(most: Any, more: dict[str, Any], told: str) -> None:
    with pytest.raises(RegistrationError, match=f"^Throttle: .*{told}"):
        Throttle(most, **more)


async def in_time(value: int) -> int:
    return value


class Answers:
    async def attempt(self, key: str) -> float:
        return 0


class NoKey:
    async def attempt(self) -> float:
        return 0


class NotAsync:
    def attempt(self, key: str) -> float:
        return 0


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"unique": 1}, "unique is True, False or a Unique"),
        ({"unique": "yes"}, "unique is True, False or a Unique"),
        ({"at_once": 0}, "at_once is a whole number from 1"),
        ({"at_once": True}, "at_once is a whole number from 1"),
        ({"at_once": 1.0}, "at_once is a whole number from 1"),
        ({"rate": 5}, "rate is a Throttle"),
        ({"rate": object()}, "rate is a Throttle.* and <object .*> is none"),
        ({"rate": Answers}, "rate is a Throttle.*, and Answers is its class: make one of it"),
        ({"rate": Throttle}, "rate is a Throttle.* is none"),
        ({"rate": NotAsync()}, "rate is a Throttle.* is no async def"),
        ({"rate": NoKey()}, "rate is a Throttle.* can't be called with a key"),
        ({"rate": [Throttle(50, per=1), Throttle(5, per=1, by=str)]}, "a kind has one, and this is a list"),
        ({"keep_name": -1}, "keep_name is at least"),
    ],
)
def test_an_option_of_a_limit_that_cannot_be_says_so(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(RegistrationError, match=f"^kind 'k': .*{told}"):
        checked("k", KindSettings(**settings))  # type: ignore[typeddict-item]


def test_by_is_a_plain_function() -> None:
    with pytest.raises(RegistrationError, match="by is a plain function of a value, not an async one"):
        Throttle(1, per=1, by=in_time)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_by_needs_a_value() -> None:
    async def nightly() -> None: ...

    with pytest.raises(
        RegistrationError, match="kind 'nightly': it has no value, so its Throttle takes no by="
    ):
        Queue(Memory()).kind("nightly", rate=Throttle(1, per=1, by=str))(nightly)


def test_what_is_right_is_taken() -> None:
    limiter: Limiter = Answers()
    found = checked("k", {"unique": Unique(latest=True, at_most=60), "at_once": 3, "rate": limiter})
    assert found.unique is not None
    assert (found.unique.most, found.at_once, found.rate) == (60 * SECOND, 3, limiter)
    assert checked("k", {"unique": True}).unique == Unique()
    functions: list[Callable[[Any], Any]] = [str, attrgetter("user"), partial(getattr, "a"), max]
    for by in functions:
        assert Throttle(1, per=1, by=by).by is by
    assert checked("k", {}).keep_name == 86_400 * SECOND


def test_two_values_of_a_rate_never_have_one_key() -> None:
    throttle = Throttle(1, per=1, by=lambda value: value)
    values = [
        "",
        "5",
        5,
        "int:5",
        "é",
        "e\u0301",
        "x" * 200,
        "x" * 201,
        "x" * 202,
        "a\0",
        "a",
        "A",
        "a ",
        "\ud800",
        -5,
    ]
    keys = [throttle.key(value) for value in values]
    assert len(set(keys)) == len(values)
    assert all(len(key) <= 200 and key.isascii() and "\0" not in key for key in keys)


def test_a_member_of_an_enum_has_the_rate_of_what_it_is() -> None:
    class Plan(StrEnum):
        FREE = "free"

    class Old(str, Enum):  # noqa: UP042 - it's what apps have from before
        FREE = "free"

    class Size(IntEnum):
        BIG = 5

    throttle = Throttle(1, per=1, by=lambda value: value)
    keys = [throttle.key(value) for value in (Plan.FREE, Old.FREE, "free")]
    assert keys == ["free"] * 3
    assert {type(key) for key in keys} == {str}
    assert throttle.key(Size.BIG) == throttle.key(5) != throttle.key("Size:5")


@pytest.mark.parametrize(("answer", "wait"), [(0, 0), (0.0, 0), (1, SECOND), (1e-9, 1), (0.5, SECOND // 2)])
def test_a_limiters_answer_is_seconds_and_never_cut_to_none(answer: float, wait: int) -> None:
    assert waited(answer) == wait

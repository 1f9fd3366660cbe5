"""What a job carries: a few short strings, checked as they go and as they come back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastjobs.core.carrier import MOST_BYTES, MOST_NAMES, packed, unpacked
from fastjobs.core.errors import CarryError


def test_what_is_carried_comes_back() -> None:
    carried = {"request_id": "abc", "traceparent": "00-1-2-03", "a.b_c-9": 'é\U0001f600"\\'}
    text = packed(carried)
    assert text is not None
    assert text.isascii()
    assert unpacked(text) == carried


def test_nothing_is_carried_as_nothing() -> None:
    assert packed({}) is None
    assert unpacked(None) == {}
    assert unpacked("") == {}


def of_bytes(size: int) -> dict[str, str]:
    return {"a": "x" * (size - len('{"a":""}'))}


def test_4096_bytes_are_carried_and_4097_are_not() -> None:
    text = packed(of_bytes(4096))
    assert text is not None
    assert len(text) == 4096
    assert unpacked(text) == of_bytes(4096)
    with pytest.raises(CarryError, match="at most 4096 bytes as JSON, and this push would carry 4097"):
        packed(of_bytes(4097))


def test_the_bytes_are_counted_as_kept() -> None:
    with pytest.raises(CarryError, match="would carry 6008"):
        packed({"a": "é" * 1000})


def test_32_names_are_carried_and_33_are_not() -> None:
    assert len(unpacked(packed({f"n{n}": "" for n in range(MOST_NAMES)}))) == MOST_NAMES
    with pytest.raises(CarryError, match="at most 32 names, and this push would carry 33"):
        packed({f"n{n}": "" for n in range(MOST_NAMES + 1)})
    with pytest.raises(CarryError, match="would carry 10000"):
        packed({f"n{n}": "" for n in range(10_000)})


BAD_NAMES: list[Any] = ["", "A", "a b", "a\n", "é", "a" * 65, "a=b", "{", 5, None, b"a"]


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: f"{name!r:.12}")
def test_a_name_is_lower_case_and_short(name: Any) -> None:
    with pytest.raises(CarryError, match=r"a carried name is 1 to 64 of a-z 0-9 _ \. -, and .* is none"):
        packed({name: "x"})


@pytest.mark.parametrize("name", ["a", "_", "a" * 64, "level", "msg", "__proto__", "constructor", "9.-_"])
def test_a_name_that_means_something_elsewhere_is_a_name(name: str) -> None:
    assert unpacked(packed({name: "x"})) == {name: "x"}


CONTROLS = [
    "\r",
    "\n",
    "\r\n",
    "\0",
    "\x1b[2J",
    "\x7f",
    "\x85",
    "\x9b",
    "\u2028",
    "\u2029",
    "\ud800",
    "\udfff",
    "\t",
]


@pytest.mark.parametrize("text", CONTROLS, ids=ascii)
def test_no_value_has_control_characters_as_no_header_may(text: str) -> None:
    with pytest.raises(CarryError, match="carried 'a' has control characters, as no header may") as caught:
        packed({"a": f"x{text}y"})
    assert text not in str(caught.value)
    assert unpacked(json.dumps({"a": f"x{text}y", "b": "kept"})) == {"b": "kept"}


@pytest.mark.parametrize("value", [5, None, True, 1.5, b"x", ["x"], {"x": "y"}])
def test_a_value_is_a_string(value: Any) -> None:
    with pytest.raises(CarryError, match=f"carried 'a' is a string, not a {type(value).__name__}"):
        packed({"a": value})


@pytest.mark.parametrize(
    "text",
    [
        "null", "5", '"x"', "[]", '["a"]', "true", "{", "", "{'a':'b'}", '{"a":1}', '{"a":null}', '{"a":{"b":"c"}}',
        '{"a":["b"]}', '{"A":"b"}', '{"":"b"}', '{"a\\n":"b"}', '{"a":"b\\n"}', '{"a":"\\ud800"}', "NaN", '{"a":NaN}',
        "[" * 4000, '{"a":' * 800, "1" * 4096, '{"a":1e999}', "\ud800", "\0", '{"a":"b"}' + " " * 5000, "x" * 1_000_000,
        json.dumps({f"n{n}": "" for n in range(33)}), json.dumps({"a": "x" * 1_000_000}),
    ],
    ids=lambda text: f"{text!r:.14}",
)  # fmt: skip
def test_what_is_not_sound_is_not_restored(text: str) -> None:
    assert unpacked(text) == {}


def test_of_what_is_carried_the_sound_part_is_restored() -> None:
    assert unpacked('{"a":"1","B":"2","c":3,"d":"4\\n","e":"5"}') == {"a": "1", "e": "5"}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.dictionaries(st.text("ab_.é", max_size=6), st.text(max_size=20), max_size=6))
def test_whatever_is_carried_comes_back_or_is_refused(carried: dict[str, str]) -> None:
    try:
        text = packed(carried)
    except CarryError:
        return
    assert text is None or len(text) <= MOST_BYTES
    assert unpacked(text) == carried


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.text(max_size=60))
def test_whatever_stands_in_the_table_is_read_without_an_error(text: str) -> None:
    assert all(isinstance(value, str) for value in unpacked(text).values())

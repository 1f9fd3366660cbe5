"""What a handler may report of how far it is."""

from __future__ import annotations

from typing import Any

import pytest

from fastjobs import PayloadError
from fastjobs.core.progress import progress_text, progress_value


class Secretive:
    def __repr__(self) -> str:
        return "hunter2"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"done": 3, "of": 10}, '{"done":3,"of":10}'),
        (0.5, "0.5"),
        ("½\0", '"\\u00bd\\u0000"'),
        ("📬", '"\\ud83d\\udcec"'),
        (None, "null"),
        ("x" * 1022, '"' + "x" * 1022 + '"'),
    ],
    ids=["dict", "float", "text", "a pair of surrogates", "none", "longest"],
)
def test_progress_is_any_json_value_as_ascii(value: object, text: str) -> None:
    assert progress_text(value, "mail") == text


def deep() -> list[Any]:
    found: list[Any] = []
    for _ in range(100_000):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (float("nan"), "this float is none: ValueError"),
        (Secretive(), "this Secretive is none: TypeError"),
        ({"a": ["\ud800"]}, "this dict is none: UnicodeEncodeError"),
        ({"\udcec": 1}, "this dict is none: UnicodeEncodeError"),
        (deep(), "this list is none: RecursionError"),
        ("x" * 1023, "takes at most 1024 bytes as JSON, and this str has 1025"),
        ("é" * 500, "takes at most 1024 bytes as JSON, and this str has 3002"),
    ],
    ids=[
        "nan",
        "object",
        "half a character",
        "half a character for a name",
        "deep",
        "long",
        "long once escaped",
    ],
)
def test_what_is_no_json_or_too_long_is_refused_without_telling_it(value: object, told: str) -> None:
    with pytest.raises(PayloadError, match=told) as refused:
        progress_text(value, "mail")
    assert refused.value.kind == "mail"
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ["NaN", '{"a":[-Infinity]}', "1e999", '"\\ud800"', "[" * 100_000, "9" * 5000, '{"a"', ""],
    ids=["nan", "infinity", "out of range", "half a character", "deep", "digits", "cut", "empty"],
)
def test_what_someone_wrote_into_the_database_and_no_response_can_have_is_none(text: str) -> None:
    assert progress_value(text) is None


def test_what_was_reported_is_read_as_it_was() -> None:
    value = {"a": ["📬", "½", 0.5, None, 10**30]}
    assert progress_value(progress_text(value, "mail")) == value
    assert progress_value(None) is None

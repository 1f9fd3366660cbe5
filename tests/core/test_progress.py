"""What a handler may report of how far it is."""

from __future__ import annotations

from typing import Any

import pytest

from fastjobs import PayloadError
from fastjobs.core.progress import progress_text


class Secretive:
    def __repr__(self) -> str:
        return "hunter2"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"done": 3, "of": 10}, '{"done":3,"of":10}'),
        (0.5, "0.5"),
        ("½\0", '"\\u00bd\\u0000"'),
        (None, "null"),
        ("x" * 1022, '"' + "x" * 1022 + '"'),
    ],
    ids=["dict", "float", "text", "none", "longest"],
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
        (deep(), "this list is none: RecursionError"),
        ("x" * 1023, "takes at most 1024 bytes as JSON, and this str has 1025"),
        ("é" * 500, "takes at most 1024 bytes as JSON, and this str has 3002"),
    ],
    ids=["nan", "object", "deep", "long", "long once escaped"],
)
def test_what_is_no_json_or_too_long_is_refused_without_telling_it(value: object, told: str) -> None:
    with pytest.raises(PayloadError, match=told) as refused:
        progress_text(value, "mail")
    assert refused.value.kind == "mail"
    assert "hunter2" not in str(refused.value)

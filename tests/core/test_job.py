"""Names of kinds, which are kept in the database for ever, and jobs that differ in their payloads alone."""

from __future__ import annotations

from typing import Any

import pytest

from fastjobs.core.errors import RegistrationError
from fastjobs.core.job import Alike, NewJob, kind_name


@pytest.mark.parametrize("name", ["a", "9", "welcome-mail", "Mail.Welcome_2:v-1", "x" * 100, "os.system"])
def test_a_kind_may_have_a_plain_name(name: str) -> None:
    assert kind_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "", " a", "a ", "a b", "-a", ".a", "_a", ":a", "a\n", "é", "\u0661", "a/b", "a'b", 'a"b', "a`b", "a;b", "a\0",
        "x" * 101, "a%", "ａ", None, 5, b"a", ["a"],
    ],
    ids=lambda name: f"{name!a:.12}",
)  # fmt: skip
def test_no_kind_has_another_name(name: Any) -> None:
    with pytest.raises(RegistrationError, match="a kind's name is 1 to 100 of A-Z a-z 0-9"):
        kind_name(name)


def test_jobs_that_are_alike_are_new_jobs_as_they_are_asked_for() -> None:
    alike = Alike("mail", ["1", "2", "3"], None, 5, '{"a":"b"}')
    each = [NewJob("mail", payload, None, 5, carried='{"a":"b"}') for payload in "123"]
    assert list(alike) == each
    assert (len(alike), alike[-1], each[1] in alike, alike.index(each[2])) == (3, each[2], True, 2)
    assert list(alike[1:]) == each[1:]
    assert list(reversed(alike)) == each[::-1]
    with pytest.raises(IndexError):
        alike[3]
    assert not Alike("mail", [])

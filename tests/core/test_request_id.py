"""The request's ID, and the carrier that takes it to its jobs."""

from __future__ import annotations

from contextvars import ContextVar, copy_context

import pytest

from fastjobs import RegistrationError
from fastjobs.core.request_id import CarryRequestID, carried_id, current, new_id, plain, request_id


@pytest.mark.parametrize(
    "id", ["a", "A-Z.a_z:0@9/+=-", "x" * 128, new_id()], ids=["a", "each", "long", "new"]
)
def test_a_plain_id_is_one(id: str) -> None:
    assert plain(id)
    assert carried_id({"request_id": id}) == id


@pytest.mark.parametrize(
    "id",
    [
        "", "x" * 129, "a b", "a\n", "\na", "a\r\nSet-Cookie:x", "é", "\u0661", "a\0", "\x1b[2J", "a\u2028",
        "<x>", '"', "a,b", "%0a",
    ],
)  # fmt: skip
def test_one_that_is_not_plain_is_dropped(id: str) -> None:
    assert not plain(id)
    assert carried_id({"request_id": id}) is None


def test_new_ids_are_plain_and_differ() -> None:
    made = {new_id() for _ in range(1000)}
    assert len(made) == 1000
    assert all(plain(id) and len(id) == 26 for id in made)


def test_there_is_none_outside_a_request() -> None:
    assert copy_context().run(request_id) is None
    into: dict[str, str] = {}
    copy_context().run(CarryRequestID().carry, into)
    assert into == {}


def test_it_is_carried_to_where_it_is_restored() -> None:
    into: dict[str, str] = {}

    def request() -> None:
        current.set("abc")
        CarryRequestID().carry(into)

    def job() -> str | None:
        CarryRequestID().restore(into)
        return request_id()

    copy_context().run(request)
    assert into == {"request_id": "abc"}
    assert copy_context().run(job) == "abc"


def test_one_that_was_edited_in_the_table_is_not_restored() -> None:
    def job() -> str | None:
        CarryRequestID().restore({"request_id": "x\r\ny"})
        return request_id()

    assert copy_context().run(job) is None


def test_another_librarys_variable_is_carried_from_and_set_again() -> None:
    theirs: ContextVar[str | None] = ContextVar("theirs", default=None)
    unset: ContextVar[str | None] = ContextVar("unset")
    into: dict[str, str] = {}

    def push(id: str | None, ours: str | None = None) -> dict[str, str]:
        into: dict[str, str] = {}
        theirs.set(id)
        current.set(ours)
        CarryRequestID(use_existing=theirs).carry(into)
        return into

    def job(carried: dict[str, str]) -> tuple[str | None, str | None]:
        CarryRequestID(use_existing=theirs).restore(carried)
        return request_id(), theirs.get()

    assert copy_context().run(push, "abc") == {"request_id": "abc"}
    assert copy_context().run(push, "theirs", "ours") == {"request_id": "ours"}
    assert copy_context().run(push, "a\nb") == {}
    copy_context().run(CarryRequestID(use_existing=unset).carry, into)
    assert into == {}
    assert copy_context().run(job, {"request_id": "abc"}) == ("abc", "abc")
    assert copy_context().run(job, {"request_id": "a\nb"}) == (None, None)


def test_a_use_existing_that_could_not_be_set_again_is_refused() -> None:
    with pytest.raises(RegistrationError, match="use_existing is a ContextVar"):
        CarryRequestID(use_existing=lambda: "abc")  # type: ignore[arg-type]  # pyright: ignore

"""Texts of errors, made safe for a column and for one line of a log."""

from __future__ import annotations

import os
import time
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastjobs.core.text import (
    KEPT,
    LOGGED,
    error_and_place,
    error_place,
    error_text,
    kept_error,
    kept_text,
    one_line,
)

UNSAFE = {
    "CR LF": ("a\r\nb", "a\\r\\nb"),
    "NUL": ("a\0b", "a\\x00b"),
    "a screen cleared": ("\x1b[2J", "\\x1b[2J"),
    "a title set": ("\x1b]0;x\x07", "\\x1b]0;x\\x07"),
    "a clipboard written": ("\x1b]52;c;eA==\x07", "\\x1b]52;c;eA==\\x07"),
    "a link": ("\x1b]8;;http://x\x1b\\", "\\x1b]8;;http://x\\x1b\\"),
    "DEL": ("\x7f", "\\x7f"),
    "C1 CSI": ("\x9b2J", "\\x9b2J"),
    "NEL": ("a\x85b", "a\\x85b"),
    "a line separator": ("a\u2028b", "a\\u2028b"),
    "a paragraph separator": ("a\u2029b", "a\\u2029b"),
    "right to left": ("\u202etxt.exe", "\\u202etxt.exe"),
    "isolates": ("\u2066a\u2069", "\\u2066a\\u2069"),
    "marks of direction": ("\u200e\u200f\u061c", "\\u200e\\u200f\\u061c"),
    "zero width": ("a\u200bb\ufeffc", "a\\u200bb\\ufeffc"),
    "zero width, too": ("a\u2060b\u180ec\ufff9", "a\\u2060b\\u180ec\\ufff9"),
    "tags": ("a\U000e0041b", "a\\U000e0041b"),
    "half a pair": ("\ud800", "\\ud800"),
}


@pytest.mark.parametrize(("text", "safe"), UNSAFE.values(), ids=UNSAFE.keys())
def test_what_breaks_a_line_or_moves_a_terminal_is_escaped(text: str, safe: str) -> None:
    assert one_line(text) == safe


def test_other_text_is_left_as_it_is() -> None:
    text = "Grüße, \"日本\" \U0001f600 C:\\n 'x'"
    assert one_line(text) == text


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(st.characters(exclude_categories=()), max_size=30))
def test_any_text_is_one_line_that_can_be_written(text: str) -> None:
    found = one_line(text)
    assert len(found.splitlines()) <= 1
    assert not any(unicodedata.category(each) in {"Cc", "Cs", "Zl", "Zp"} for each in found)
    found.encode()


def test_a_long_line_is_cut_and_says_how_long_it_was() -> None:
    assert one_line("x" * LOGGED) == "x" * LOGGED
    assert one_line("x" * (LOGGED + 1)) == "x" * LOGGED + "… (1025 characters)"
    assert one_line("abc", 2) == "ab… (3 characters)"


def test_a_kept_text_has_no_nul_and_no_half_pair() -> None:
    assert kept_text("x\0y") == "x\\x00y"
    assert kept_text("x\ud800y\udfff") == "x\\ud800y\\udfff"
    assert kept_text(os.fsdecode(b"/tmp/\xff\xfe")) == "/tmp/\\udcff\\udcfe"
    assert kept_text("line\r\nline\x1b") == "line\r\nline\x1b"


@pytest.mark.parametrize("letter", ["x", "é", "日", "\U0001f600", "\0", "\ud800"])
@pytest.mark.parametrize(
    "count", [1, 1023, 1024, 1365, 1366, 2047, 2048, 4095, 4096, 4097, 8192, 8193, 20_000]
)
def test_a_kept_text_has_at_most_4096_bytes_and_is_cut_at_a_character(letter: str, count: int) -> None:
    text = letter * count
    kept = kept_text(text)
    size = len(kept.encode())
    whole = text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()
    assert size <= KEPT
    if len(whole.encode()) <= KEPT:
        assert kept == whole
    else:
        assert kept.endswith("…")
        assert whole.startswith(kept[:-1])
        assert size > KEPT - 4


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.text(st.characters(exclude_categories=())), st.integers(3, 60))
def test_any_text_is_kept_within_its_bytes(text: str, most: int) -> None:
    kept = kept_text(text, most)
    assert len(kept.encode()) <= most
    assert "\0" not in kept


def test_a_text_of_fifty_megabytes_is_cut_at_once() -> None:
    text = "\ud800\0é" * 17_000_000
    began = time.process_time()
    assert len(kept_text(text).encode()) <= KEPT
    assert len(one_line(text)) < 10 * LOGGED
    assert time.process_time() - began < 0.5


class Raises(Exception):
    def __init__(self, raised: BaseException) -> None:
        super().__init__()
        self.raised = raised

    def __str__(self) -> str:
        raise self.raised


class NoText(Exception):
    def __str__(self) -> Any:
        return 5


class Sly(str):
    """A str that answers nothing it's asked."""

    def __bool__(self) -> bool:
        raise ValueError("no truth")

    def __format__(self, spec: str) -> str:
        raise ValueError("no format")


class SlyText(Exception):
    def __str__(self) -> str:
        return Sly("sly")


def test_an_error_is_its_type_and_its_text() -> None:
    assert error_text(ValueError("boom")) == "ValueError: boom"
    assert error_text(ValueError()) == "ValueError"
    assert error_text(SystemExit(3)) == "SystemExit: 3"
    assert error_text(KeyError("x")) == "KeyError: 'x'"
    assert error_text(ValueError("x\0y\ud800")) == "ValueError: x\\x00y\\ud800"
    assert (
        error_text(ExceptionGroup("two", [ValueError("a"), KeyError("b")]))
        == "ExceptionGroup: two (2 sub-exceptions)"
    )


@pytest.mark.parametrize(
    "raised",
    [ValueError("x"), SystemExit(1), KeyboardInterrupt(), GeneratorExit(), BaseException(), RecursionError()],
)
def test_an_error_whose_text_raises_anything_has_a_text(raised: BaseException) -> None:
    assert error_text(Raises(raised)) == f"Raises (its str() raised {type(raised).__name__})"


def test_an_error_whose_text_is_none_has_a_text() -> None:
    assert error_text(NoText()) == "NoText (its str() raised TypeError)"
    assert error_text(SlyText()).startswith("SlyText")


def test_an_error_with_fifty_megabytes_of_text_is_cut() -> None:
    began = time.process_time()
    assert len(error_text(ValueError("x" * 50_000_000)).encode()) <= KEPT
    assert time.process_time() - began < 0.5


def test_where_an_error_was_raised_is_its_file_line_and_function() -> None:
    try:
        raise ValueError("boom")
    except ValueError as error:
        place = error_place(error)
    assert place.startswith("test_text.py:")
    assert place.endswith(" test_where_an_error_was_raised_is_its_file_line_and_function")
    assert error_place(ValueError()) == ""


def _raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as raised:
        return raised


@pytest.mark.parametrize("text", ["boom", "x" * 50_000, "é" * KEPT, "two\nlines [a:1 b]", "", "\0 \ud800"])
def test_an_error_is_kept_with_the_place_where_it_was_raised_and_both_come_back(text: str) -> None:
    error = _raised(ValueError(text))
    kept = kept_error(error_text(error), error)
    assert len(kept.encode()) <= KEPT
    told, where = error_and_place(kept)
    assert where == error_place(error)
    assert error_text(error).startswith(told.removesuffix("…"))
    assert len(told) > 0.9 * len(error_text(error))


def test_an_error_that_nobody_raised_is_kept_without_a_place() -> None:
    for error in (ValueError("no"), None):
        kept = kept_error("ValueError: no", error)
        assert error_and_place(kept) == ("ValueError: no", None)


def test_code_that_a_library_made_as_it_ran_is_none_of_the_apps() -> None:
    made = compile("raise ValueError('boom')", "<sqlalchemy generated wrapper for go>", "exec")
    with pytest.raises(ValueError, match="boom") as raised:
        exec(made, {})
    assert error_place(raised.value).startswith("test_text.py:")
    # Where there is no other, as by python -c, it's told.
    here = raised.value.__traceback__
    assert here is not None
    alone = raised.value.with_traceback(here.tb_next)
    assert error_place(alone) == "<sqlalchemy generated wrapper for go>:1 <module>"
